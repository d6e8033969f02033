"""Kernels of scans of segments by any associative operator.

They are printed from the texts that NumPy's scans run, traced. Element arrays are (size, n, batch).

A scan cuts the sequence into tiles, each the work of a warp for one row of the batch, which goes through it in rounds
of 32 elements that follow one another, one of a lane: a warp reads and writes scalars that lie side by side. A round is
scanned across the warp by shuffles, in five steps; then comes what the round before ended with. Totals of tiles are
scanned in the same way before that (`totals`, then `prefixes` on totals, then `prefixes` with what is carried in), so
that elements are read twice and written once. Where compositions take long, tiles are of 32 elements, whose prefixes
are kept, for what is carried in to be joined with (`locals`, then `carried`): elements go through memory once more, but
a warp composes half as often.

Where the batch fills warps, lanes are rows of it instead, each of which goes through its tile element by element, and
elements of sequences of one tile are read once. What is composed with what depends on the segments, and on which of the
two it is: neither on the order of threads nor on the grid nor on the batch else.

What a lane has found is in registers; elements that are too large for that are in shared memory, of which a block, then
of one warp, takes no more than every GPU gives.
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
"""Operations and bytes of an element up to which a composition stands in the code wherever it is used, and elements are
in registers. Beyond, the composition is a function, for each copy of which NVRTC takes seconds; two elements of each
lane are in shared memory, as far as they have room, and only the third, which is composed with them, in local memory.
Riccati elements in double precision then take all 255 registers and next to no spills, and leave four warps to a
multiprocessor of sm_90, three of sm_80; all in local memory it was seven elements, more than caches hold."""
LONGEST_RUN = 32
"""Elements that a lane goes through in a sequence of one tile; rounds of a warp in one."""
_SHORTEST_RUN = 8
"""Elements that a lane goes through in a sequence of several tiles."""
_FEWEST_ROUNDS, _MOST_ROUNDS = 4, 128
"""Of a warp in a sequence of several tiles."""
_TILES = 1 << 10
"""Warps that keep a large GPU busy: longer sequences get longer tiles."""


def lanes_of(batch: int) -> int:
    """Lanes that share a tile."""
    return WARP if batch < WARP else 1


def run_length(n: int, lanes: int, *, long: bool = False) -> int:
    """Rounds of `lanes` elements in a tile of a scan of n; `long`: whether compositions take long."""
    if n <= lanes * (1 if long and lanes > 1 else LONGEST_RUN):
        return max(1, -(-n // lanes))
    if lanes == 1:
        return _SHORTEST_RUN
    if long:
        return 1
    return min(_MOST_ROUNDS, max(_FEWEST_ROUNDS, -(-n // (WARP * _TILES))))


def takes_long(composition: Program) -> bool:
    """Whether an operator's compositions are functions, not inline."""
    return composition.operations > _INLINE


@dataclass(frozen=True)
class How:
    """What is known of a scan when its kernel is printed.

    `part`: "totals", "prefixes", "locals" or "carried"; `lanes`: that share a tile; `threads`: of a block; `size`:
    scalars of an element; `apart`: how far those of one that grows lie apart; `then`: composes a stretch with the next.
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
        """Tiles that a block works on at a time."""
        return self.threads // self.lanes

    @property
    def apart(self) -> int:
        """How far the scalars of an element that grows lie apart: in shared memory those of other threads are between
        them."""
        return self.threads if self.shared else 1


class Growing(NamedTuple):
    """An element that grows: where it is, and where it becomes what it will be."""

    now: Array[Scalar]
    spare: Array[Scalar]


class Tile(NamedTuple):
    """A tile: its row of the batch, its number of so many, and where it begins and ends; sizes of the whole."""

    row: Word
    number: Word
    many: Word
    start: Word
    last: Word
    rows: Word
    batch: Word


def load(to: Array[Scalar], source: Array[Scalar], step: Word, how: Static[How]) -> None:
    """Read an element."""
    for k in unrolled(how.size):
        to[k] = source[k * step]


def fill(to: Growing, source: Array[Scalar], step: Word, how: Static[How]) -> None:
    """Let one that grows be an element."""
    for k in unrolled(how.size):
        to.now[k * how.apart] = source[k * step]


def store(source: Growing, to: Array[Scalar], step: Word, how: Static[How]) -> None:
    """Write what has grown."""
    for k in unrolled(how.size):
        to[k * step] = source.now[k * how.apart]


def grown(mine: Growing, how: Static[How]) -> tuple[Array[Scalar], Array[Scalar]]:
    """What it becomes: places change where they are in shared memory; registers are copied, which only names them
    anew."""
    if how.shared:
        return mine.spare, mine.now
    for k in unrolled(how.size):
        mine.now[k] = mine.spare[k]
    return mine.now, mine.spare


def follow(mine: Growing, following: Array[Scalar], how: Static[How]) -> tuple[Array[Scalar], Array[Scalar]]:
    """Append what comes next in the order of the scan."""
    if how.backwards:
        how.then(following, mine.now, mine.spare, 1, how.apart, how.apart)
    else:
        how.then(mine.now, following, mine.spare, how.apart, 1, how.apart)
    return grown(mine, how)


def precede(before: Array[Scalar], mine: Growing, how: Static[How]) -> tuple[Array[Scalar], Array[Scalar]]:
    """Put before it what came before in the order of the scan."""
    if how.backwards:
        how.then(mine.now, before, mine.spare, how.apart, 1, how.apart)
    else:
        how.then(before, mine.now, mine.spare, 1, how.apart, how.apart)
    return grown(mine, how)


def of_lane_before(
    to: Array[Scalar], mine: Growing, places: Array[Scalar], places_before: Integer, how: Static[How]
) -> None:
    """Take what the lane that many places before has; anything where there is no such lane."""
    if how.shared:
        at = from_before(convert(Integer, distance(places, mine.now)), places_before)
        # Nobody writes while others read.
        warp_barrier()
        load(to, places + at, how.apart, how)
        warp_barrier()
    else:
        for k in unrolled(how.size):
            to[k] = from_before(mine.now[k], places_before)


def place(at: Word, n: Word, how: Static[How]) -> Word:
    """Elements lie in memory in the order of the scan, or backwards."""
    return n - 1 - at if how.backwards else at


def element(array: Array[Scalar], at: Word, tile: Tile, how: Static[How]) -> Array[Scalar]:
    """Where an element begins, of one for each position."""
    return array + (place(at, tile.rows, how) * tile.batch + tile.row)


def total(array: Array[Scalar], number: Word, tile: Tile, how: Static[How]) -> Array[Scalar]:
    """Where an element begins, of one for each tile."""
    return array + (place(number, tile.many, how) * tile.batch + tile.row)


# A lane for each row.


def total_of_row(
    mine: Growing,
    other: Array[Scalar],
    elements: Array[Scalar],
    totals: Array[Scalar],
    begin: Array[Word],
    tile: Tile,
    how: Static[How],
) -> None:
    """The total of a tile, of what follows the last beginning in it."""
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
    """Prefixes of a tile, from what is carried in."""
    if carried and begin[tile.start] < tile.start:
        fill(mine, total(carry, tile.number - 1, tile, how), tile.many * tile.batch, how)
    for at in range(tile.start, tile.last):
        load(other, element(elements, at, tile, how), tile.rows * tile.batch, how)
        if begin[at] == at:
            fill(mine, other, 1, how)
        else:
            mine = Growing(*follow(mine, other, how))
        store(mine, element(prefixes, at, tile, how), tile.rows * tile.batch, how)


# A warp for each tile.


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
    """A round of elements, the first of which is at `base`: `mine` becomes what ends with the lane's, at `at`, from
    where its segment begins, or else the tile. `kept`: what came before the round, where there is any."""
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
    """The total of a tile, or its prefixes from what is carried in."""
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
        if base + how.lanes < tile.last:  # what the last lane has, for all
            if me == how.lanes - 1:
                store(mine, kept, 1, how)
            warp_barrier()
        if how.part == "prefixes":
            if at < tile.last:
                store(mine, element(found, at, tile, how), tile.rows * tile.batch, how)
        elif at == tile.last - 1:
            store(mine, total(found, tile.number, tile, how), tile.many * tile.batch, how)
    warp_barrier()


# A warp for each tile of 32 elements, where compositions take long: prefixes within tiles are kept, so that what is
# carried in takes one composition more, not all of them again.


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
    """Prefixes of a tile from those within it, and what is carried in."""
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
    """A part of a scan, tile after tile."""
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

    Where compositions take long (`takes_long`) and lanes are 32, tiles are of 32 elements, and these are

        scan_locals(elements, prefixes, totals, begin, carry, workspace, rows, batch, length, carried)
        scan_carried(prefixes within tiles, prefixes, begin, carry, workspace, rows, batch, length, carried)

    Arrays: elements and prefixes (size, n, batch); totals, and carry, their prefixes, (size, tiles, batch). `begin`
    (n,): for each position in the order of the scan, where its segment begins. `rows` is n, `length` that of a run
    (`run_length`), a tile being as many runs as `lanes`, and `carried` says whether there is a carry.

    Args:
        composition: out (size,) from in0 (size,) and in1 (size,), in0 being nearer the root.
        dtype: of elements.
        backwards: whether positions are counted from the last element, and totals lie likewise.
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
