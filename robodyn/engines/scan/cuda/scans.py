"""Kernels that scan segments with any associative operator, traced from the function that NumPy's scans use.

Element arrays are (size, n, batch). A scan divides the sequence into tiles. A warp processes a tile for one row of the
batch, in rounds of 32 consecutive elements, one for each lane, so that memory accesses are coalesced. Each round is
scanned across the warp by shuffles in five steps and then composed with the last prefix of the round before.

The tiles' totals are computed first and scanned in the same way: `totals`, then `prefixes` on the totals, then
`prefixes` with these as carries. So elements are read twice and written once. If compositions take long, tiles have 32
elements,
and the prefixes within tiles are stored and composed with the carries later: `locals`, then `carried`. Elements then go
through memory once more, but a warp composes half as often.

If the batch fills warps, each lane processes a row of the batch instead, sequentially through its tile. Sequences of
one tile are then read once. The order of compositions depends only on the segments and on which of the two ways is
used. It depends neither on the order of threads nor on the grid, and on the batch only through that choice.

The running element of a lane is in registers, or in shared memory if it is too large. Blocks then have one warp and use
no more shared memory than every GPU offers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from robodyn.compile.loops.gpu import (
    WARP,
    block,
    blocks,
    distance,
    from_before,
    pool,
    shared,
    thread,
    unrolled,
    warp_barrier,
)
from robodyn.compile.loops.language import Array, Flag, Integer, Scalar, Static, Word, convert, local, routine
from robodyn.compile.tracing.program import Program
from robodyn.engines.gpu.functions import kernel_source, several
from robodyn.engines.gpu.source import SHARED_BYTES, KernelSource
from robodyn.engines.gpu.straight import Straight
from robodyn.engines.scan.cuda.steps import BLOCK_THREADS
from robodyn.internals.records import dataclass

_INLINE, _REGISTER_BYTES = 600, 400
"""The most operations of a composition that is inlined, and the most bytes of an element for that. Elements are then in
registers. A longer composition is a function, because NVRTC takes seconds for each inlined copy. Two elements of each
lane are then in shared memory if they fit, and only the third, which is composed with them, is in local memory.
Compositions of Riccati elements in double precision use all 255 registers with next to no spills. A multiprocessor
holds four such warps on sm_90, three on sm_80."""
LONGEST_RUN = 32
"""The most elements for a lane, or rounds of a warp, in a sequence of one tile."""
_SHORTEST_RUN = 8
"""Elements for a lane in each tile of a sequence of several tiles."""
_FEWEST_ROUNDS, _MOST_ROUNDS = 4, 128
"""Bounds for the rounds of a warp in each tile of a sequence of several tiles."""
_TILES = 1 << 10
"""The number of warps that keeps a large GPU busy. Sequences with more work get longer tiles."""


def lanes_of(batch: int) -> int:
    """The number of lanes that share a tile, 32 or 1."""
    return WARP if batch < WARP else 1


def run_length(n: int, lanes: int, *, long: bool = False) -> int:
    """The number of rounds of `lanes` elements in a tile of a scan of n. `long`: True if compositions take long."""
    if n <= lanes * (1 if long and lanes > 1 else LONGEST_RUN):
        return max(1, -(-n // lanes))
    if lanes == 1:
        return _SHORTEST_RUN
    if long:
        return 1
    return min(_MOST_ROUNDS, max(_FEWEST_ROUNDS, -(-n // (WARP * _TILES))))


def takes_long(composition: Program) -> bool:
    """Whether an operator's compositions are functions instead of inlined code."""
    return composition.operations > _INLINE


@dataclass(frozen=True)
class How:
    """Compile-time constants of a scan kernel.

    `part`: "totals", "prefixes", "locals" or "carried"; `lanes`: lanes that share a tile; `threads`: threads of a
    block; `size`: scalars of an element; `shared`: True if running elements are in shared memory; `then`: the
    composition.
    """

    part: str
    backwards: bool
    lanes: int
    threads: int
    size: int
    shared: bool
    then: Straight

    @property
    def tiles(self) -> int:
        """Tiles that a block processes at a time."""
        return self.threads // self.lanes

    @property
    def apart(self) -> int:
        """The stride of a running element's scalars. In shared memory, elements of threads are interleaved."""
        return self.threads if self.shared else 1


class Growing(NamedTuple):
    """A running element. `now`: its memory; `spare`: memory for the result of the next composition."""

    now: Array[Scalar]
    spare: Array[Scalar]


class Tile(NamedTuple):
    """A tile.

    `row`: its row of the batch; `number`: its index among `many` tiles; `start`, `last`: its first position, and the
    end; `rows`, `batch`: the sizes of element arrays.
    """

    row: Word
    number: Word
    many: Word
    start: Word
    last: Word
    rows: Word
    batch: Word


def load(to: Array[Scalar], source: Array[Scalar], step: Word, how: Static[How]) -> None:
    """Load an element."""
    for k in unrolled(how.size):
        to[k] = source[k * step]


def fill(to: Growing, source: Array[Scalar], step: Word, how: Static[How]) -> None:
    """Set a running element."""
    for k in unrolled(how.size):
        to.now[k * how.apart] = source[k * step]


def store(source: Growing, to: Array[Scalar], step: Word, how: Static[How]) -> None:
    """Store a running element."""
    for k in unrolled(how.size):
        to[k * step] = source.now[k * how.apart]


def grown(mine: Growing, how: Static[How]) -> tuple[Array[Scalar], Array[Scalar]]:
    """Replace a running element by the result of a composition.

    In shared memory the two locations are exchanged. In registers the result is copied, which the compiler turns into a
    renaming.
    """
    if how.shared:
        return mine.spare, mine.now
    for k in unrolled(how.size):
        mine.now[k] = mine.spare[k]
    return mine.now, mine.spare


def follow(mine: Growing, following: Array[Scalar], how: Static[How]) -> tuple[Array[Scalar], Array[Scalar]]:
    """Compose a running element with the element that follows in scan order."""
    if how.backwards:
        how.then(following, mine.now, mine.spare, 1, how.apart, how.apart)
    else:
        how.then(mine.now, following, mine.spare, how.apart, 1, how.apart)
    return grown(mine, how)


def precede(before: Array[Scalar], mine: Growing, how: Static[How]) -> tuple[Array[Scalar], Array[Scalar]]:
    """Compose a running element with the element that precedes it in scan order."""
    if how.backwards:
        how.then(mine.now, before, mine.spare, how.apart, 1, how.apart)
    else:
        how.then(before, mine.now, mine.spare, 1, how.apart, how.apart)
    return grown(mine, how)


def of_lane_before(
    to: Array[Scalar], mine: Growing, places: Array[Scalar], places_before: Integer, how: Static[How]
) -> None:
    """Read the running element of the lane `places_before` lanes earlier. Undefined if there is no such lane."""
    if how.shared:
        at = from_before(convert(Integer, distance(places, mine.now)), places_before)
        # Barriers keep reads and writes apart.
        warp_barrier()
        load(to, places + at, how.apart, how)
        warp_barrier()
    else:
        for k in unrolled(how.size):
            to[k] = from_before(mine.now[k], places_before)


def place(at: Word, n: Word, how: Static[How]) -> Word:
    """The index in memory of a position in scan order."""
    return n - 1 - at if how.backwards else at


def element(array: Array[Scalar], at: Word, tile: Tile, how: Static[How]) -> Array[Scalar]:
    """The address of the element at a position."""
    return array + (place(at, tile.rows, how) * tile.batch + tile.row)


def total(array: Array[Scalar], number: Word, tile: Tile, how: Static[How]) -> Array[Scalar]:
    """The address of the element of a tile, e.g. its total."""
    return array + (place(number, tile.many, how) * tile.batch + tile.row)


# One lane for each row of the batch.


def total_of_row(
    mine: Growing,
    other: Array[Scalar],
    elements: Array[Scalar],
    totals: Array[Scalar],
    begin: Array[Word],
    tile: Tile,
    how: Static[How],
) -> None:
    """The total of a tile: of the elements from the last segment start in it."""
    first = max(begin[tile.last - 1], tile.start)
    fill(mine, element(elements, first, tile, how), tile.rows * tile.batch, how)
    for at in range(first + 1, tile.last):
        load(other, element(elements, at, tile, how), tile.rows * tile.batch, how)
        mine = Growing(*follow(mine, other, how))
    store(mine, total(totals, tile.number, tile, how), tile.many * tile.batch, how)


def prefixes_of_row(
    mine: Growing,
    other: Array[Scalar],
    elements: Array[Scalar],
    prefixes: Array[Scalar],
    begin: Array[Word],
    carry: Array[Scalar],
    carried: Word,
    tile: Tile,
    how: Static[How],
) -> None:
    """Prefixes of a tile, starting from its carry."""
    if carried and begin[tile.start] < tile.start:
        fill(mine, total(carry, tile.number - 1, tile, how), tile.many * tile.batch, how)
    for at in range(tile.start, tile.last):
        load(other, element(elements, at, tile, how), tile.rows * tile.batch, how)
        if begin[at] == at:
            fill(mine, other, 1, how)
        else:
            mine = Growing(*follow(mine, other, how))
        store(mine, element(prefixes, at, tile, how), tile.rows * tile.batch, how)


# One warp for each tile.


def scan_round(
    mine: Growing,
    other: Array[Scalar],
    places: Array[Scalar],
    kept: Array[Scalar],
    any_kept: Flag,
    elements: Array[Scalar],
    begin: Array[Word],
    base: Word,
    at: Word,
    tile: Tile,
    how: Static[How],
) -> tuple[Array[Scalar], Array[Scalar]]:
    """Scan a round of elements, the first of which is at position `base`.

    `mine` becomes the prefix that ends at the lane's position `at` and begins at its segment's start, or at the tile's.
    `kept`: the last prefix before the round, if `any_kept`.
    """
    start = tile.rows
    if at < tile.last:
        start = begin[at]
        fill(mine, element(elements, at, tile, how), tile.rows * tile.batch, how)
    before: Integer = 1
    while before < how.lanes:
        of_lane_before(other, mine, places, before, how)
        if at >= base + before and start <= at - before:
            mine = Growing(*precede(other, mine, how))
        before *= 2
    if any_kept and start < base:
        load(other, kept, 1, how)
        mine = Growing(*precede(other, mine, how))
    warp_barrier()
    return mine.now, mine.spare


def rounds_of_warp(
    mine: Growing,
    other: Array[Scalar],
    places: Array[Scalar],
    kept: Array[Scalar],
    elements: Array[Scalar],
    found: Array[Scalar],
    begin: Array[Word],
    carry: Array[Scalar],
    carried: Word,
    tile: Tile,
    how: Static[How],
) -> None:
    """The total of a tile, or its prefixes, starting from its carry."""
    me = thread() % how.lanes
    any_kept = False
    if how.part == "prefixes":
        any_kept = bool(carried) and begin[tile.start] < tile.start
        if any_kept:
            before = total(carry, tile.number - 1, tile, how)
            for k in range(me, how.size, how.lanes):
                kept[k] = before[k * tile.many * tile.batch]
        warp_barrier()
    for base in range(tile.start, tile.last, how.lanes):
        at = base + me
        mine = Growing(*scan_round(mine, other, places, kept, any_kept, elements, begin, base, at, tile, how))
        any_kept = True
        if base + how.lanes < tile.last:  # the last lane's prefix, for all lanes
            if me == how.lanes - 1:
                store(mine, kept, 1, how)
            warp_barrier()
        if how.part == "prefixes":
            if at < tile.last:
                store(mine, element(found, at, tile, how), tile.rows * tile.batch, how)
        elif at == tile.last - 1:
            store(mine, total(found, tile.number, tile, how), tile.many * tile.batch, how)
    warp_barrier()


# One warp for each tile of 32 elements, if compositions take long. Prefixes within tiles are stored, so a carry needs
# one more composition instead of all of them again.


def prefixes_within(
    mine: Growing,
    other: Array[Scalar],
    places: Array[Scalar],
    elements: Array[Scalar],
    prefixes: Array[Scalar],
    totals: Array[Scalar],
    begin: Array[Word],
    tile: Tile,
    how: Static[How],
) -> None:
    """Prefixes within a tile, and its total."""
    at = tile.start + thread() % how.lanes
    mine = Growing(*scan_round(mine, other, places, other, False, elements, begin, tile.start, at, tile, how))
    if at < tile.last:
        store(mine, element(prefixes, at, tile, how), tile.rows * tile.batch, how)
    if at == tile.last - 1:
        store(mine, total(totals, tile.number, tile, how), tile.many * tile.batch, how)
    warp_barrier()


def with_carry(
    mine: Growing,
    other: Array[Scalar],
    elements: Array[Scalar],
    prefixes: Array[Scalar],
    begin: Array[Word],
    carry: Array[Scalar],
    tile: Tile,
    how: Static[How],
) -> None:
    """Prefixes of a tile, from those within it and its carry."""
    at = tile.start + thread() % how.lanes
    if at < tile.last:
        fill(mine, element(elements, at, tile, how), tile.rows * tile.batch, how)
        if tile.number > 0 and begin[at] < tile.start:
            load(other, total(carry, tile.number - 1, tile, how), tile.many * tile.batch, how)
            mine = Growing(*precede(other, mine, how))
        store(mine, element(prefixes, at, tile, how), tile.rows * tile.batch, how)


@routine
def scan(
    elements: Array[Scalar],
    found: tuple[Array[Scalar], ...],
    begin: Array[Word],
    carry: Array[Scalar],
    workspace: Array[Scalar],
    rows: Word,
    batch: Word,
    length: Word,
    carried: Word,
    how: Static[How],
) -> None:
    """Run a part of a scan, tile after tile."""
    if how.shared:
        places = pool(Scalar, (2 * how.threads + 1) * how.size)
        mine = Growing(places + thread(), places + (how.size * how.threads + thread()))
        kept = places + 2 * how.size * how.threads
    else:
        mine = Growing(local(Scalar, how.size), local(Scalar, how.size))
        places = kept = mine.now
        for k in unrolled(how.size):
            mine.now[k] = 0.0
        if how.lanes > 1 and how.part in ("totals", "prefixes"):
            all_kept = shared(Scalar, how.size * how.tiles)
            kept = all_kept + thread() // how.lanes * how.size
    other = local(Scalar, how.size)
    many = how.lanes * length
    tiles = (rows + many - 1) // many
    first = Word(block()) * how.tiles + thread() // how.lanes
    for work in range(first, tiles * batch, Word(blocks()) * how.tiles):
        row, number = work % batch, work // batch
        start = number * many
        tile = Tile(row, number, tiles, start, min(start + many, rows), rows, batch)
        if how.part == "locals":
            prefixes_within(mine, other, places, elements, found[0], found[1], begin, tile, how)
        elif how.part == "carried":
            with_carry(mine, other, elements, found[0], begin, carry, tile, how)
        elif how.lanes > 1:
            rounds_of_warp(mine, other, places, kept, elements, found[0], begin, carry, carried, tile, how)
        elif how.part == "totals":
            total_of_row(mine, other, elements, found[0], begin, tile, how)
        else:
            prefixes_of_row(mine, other, elements, found[0], begin, carry, carried, tile, how)


def scan_kernels(
    composition: Program, dtype: np.dtype[Any], *, backwards: bool, lanes: int = WARP
) -> tuple[KernelSource, KernelSource]:
    """The kernels of an operator.

        scan_totals(elements, totals, begin, carry, workspace, rows, batch, length, carried)
        scan_prefixes(elements, prefixes, begin, carry, workspace, rows, batch, length, carried)

    If compositions take long (`takes_long`) and `lanes` is 32, tiles have 32 elements, and the kernels are

        scan_locals(elements, prefixes, totals, begin, carry, workspace, rows, batch, length, carried)
        scan_carried(prefixes within tiles, prefixes, begin, carry, workspace, rows, batch, length, carried)

    Arrays: elements and prefixes (size, n, batch); totals, and their prefixes `carry`, (size, tiles, batch). `begin`
    (n,): for each position in scan order, the start of its segment. `rows` is n. `length` is the number of rounds of a
    tile (`run_length`); a tile has `lanes` x `length` elements. `carried` is nonzero if there is a carry.

    Args:
        composition: the program that computes out (size,) from in0 (size,) and in1 (size,), with in0 nearer the root.
        dtype: the type of elements.
        backwards: True if scan order is from the last element to the first, also for totals.
        lanes: 32, or 1 (`lanes_of`).
    """
    long, size = takes_long(composition), composition.outputs[0].size
    element_bytes = size * dtype.itemsize
    inline = not long and element_bytes <= _REGISTER_BYTES
    shared_bytes = 0 if inline else (2 * WARP + 1) * element_bytes
    if shared_bytes > SHARED_BYTES:
        shared_bytes = 0
    threads = WARP if shared_bytes else BLOCK_THREADS
    then = Straight("then", composition, dtype, inline=inline, reads="always")
    parts: dict[str, tuple[str, ...]] = {"totals": ("totals",), "prefixes": ("prefixes",)}
    if long and lanes > 1:
        parts = {"locals": ("prefixes", "totals"), "carried": ("prefixes",)}
    first, second = (
        kernel_source(
            scan,
            dtype,
            ("elements",),
            outputs,
            threads=threads,
            name=f"scan_{part}",
            shared_bytes=shared_bytes,
            found=several(len(outputs)),
            how=How(part, backwards, lanes, threads, size, bool(shared_bytes), then),
        )
        for part, outputs in parts.items()
    )
    return first, second
