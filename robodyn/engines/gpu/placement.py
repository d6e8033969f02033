"""Places the arrays of a rolled kernel in shared memory, in the global workspace, or leaves rows in the arguments.

If a warp or a block works on a state, its scratch arrays are in shared memory, the smallest first, as far as they fit.
The others are in the workspace. Rows that are accessed repeatedly take the shared memory that is left.

If a thread works on a state, its scratch arrays are in the workspace, interleaved with those of its warp, so that the
warp's accesses are coalesced. Shared memory then holds the tiles of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from robodyn.engines.gpu.source import WARP
from robodyn.engines.gpu.tiles import BAND, padded
from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass

MOST_SCALARS = (1 << 31) - 1
THREADS = 128
"""Threads of a block with one thread for each state. Blocks with a warp for each state have as many, if the shared
memory of that many states suffices."""
_WARP_BLOCKS = (THREADS, 64, 32)
_ROWS_BYTES = 12 << 10
"""The most shared memory of a warp, in bytes, with rows in it. A multiprocessor of an H200 (228 KiB) has room for 18
such warps."""


@dataclass(frozen=True)
class Scratch:
    """A scratch array. `stage`: the stage of a chain that uses it; None if it is kept across stages."""

    size: int
    stage: int | None


@dataclass(frozen=True)
class Row:
    """An input or a result of each state. `revisited`: True if entries are accessed more than once, or in an order that
    neighbouring threads do not share."""

    name: str
    size: int
    is_output: bool
    revisited: bool


@dataclass
class Placement:
    """Offsets of arrays in shared memory (`near`) and in the workspace (`far`), by name.

    `threads`: threads of a block; `held`: scalars of shared memory for a state, or for a warp if each state has one
    thread; `left`: scalars of the workspace for a state; `drained`: rows that are copied to memory by `tiles.drain`,
    through a tile at the beginning of shared memory.
    """

    threads: int
    near: dict[str, int] = field(default_factory=dict)
    far: dict[str, int] = field(default_factory=dict)
    held: int = 0
    left: int = 0
    drained: frozenset[str] = frozenset()

    def add_scratch(self, scratch: Mapping[str, Scratch], room: int) -> None:
        """Place scratch arrays. Arrays of different stages share memory, after arrays that are kept across stages."""
        ends = {True: 0, False: 0}
        most = dict(ends)
        for stage in sorted({each.stage for each in scratch.values()}, key=lambda each: -1 if each is None else each):
            end = dict(ends)
            for size, name in sorted((each.size, name) for name, each in scratch.items() if each.stage == stage):
                near = end[True] + size <= room
                (self.near if near else self.far)[name] = end[near]
                end[near] += size
            most = {near: max(most[near], end[near]) for near in most}
            ends = end if stage is None else ends
        if sum(most.values()) > MOST_SCALARS:
            raise UnavailableError(f"gpu: {sum(most.values())} scalars for one state; at most {MOST_SCALARS}")
        self.held, self.left = self.held + most[True], most[False]

    def add_rows(self, sizes: Sequence[tuple[str, int]], room: int) -> list[str]:
        """Place rows, given as (name, scalars), in shared memory in that order. Returns the names that do not fit."""
        out = []
        for name, size in sizes:
            if self.held + size <= room:
                self.near[name] = self.held
                self.held += size
            else:
                out.append(name)
        return out


def tiled(rows: Sequence[Row], threads: int | None, room: int) -> Placement:
    """Place the rows of states with one thread each. `room`: scalars of shared memory of a block.

    Results get tiles before inputs, and short rows before long ones: a load brings neighbouring scalars into the cache
    for later loads, while each store goes to memory alone. Results without a tile are kept in the workspace and copied
    from there through a narrower tile.
    """
    count = threads or THREADS
    room = room * WARP // count
    ranked = sorted((row for row in rows if row.size), key=lambda row: (not row.is_output, row.size))
    tiles = [(row.name, WARP * padded(row.size)) for row in ranked]
    placement = Placement(count)
    long = set(placement.add_rows(tiles, room)) & {row.name for row in rows if row.is_output}
    if long and room >= BAND:
        placement = Placement(count, held=BAND)
        outside = placement.add_rows(tiles, room)
        placement.drained = frozenset(row.name for row in rows if row.is_output and row.name in outside)
    return placement


def cooperative(
    partition: str,
    rows: Sequence[Row],
    scratch: Mapping[str, Scratch],
    threads: int | None,
    width: int,
    shared_bytes: int,
    itemsize: int,
) -> Placement:
    """Place the arrays of states with a warp or a block each.

    `width`: the most threads that a state can use; `shared_bytes`: shared memory that a block may have.
    """
    room = shared_bytes // itemsize
    if partition == "block":
        placement = Placement(threads or width)
        placement.add_scratch(scratch, room)
        worthy = _ROWS_BYTES // itemsize * max(1, placement.threads // WARP)
    else:
        for count in (threads,) if threads else _WARP_BLOCKS:
            placement, own = Placement(count), room * WARP // count
            placement.add_scratch(scratch, own)
            if not placement.left:
                break
        room, worthy = own, _ROWS_BYTES // itemsize
    revisited = sorted((row.size, row.name) for row in rows if row.revisited)
    placement.add_rows([(name, size) for size, name in revisited], min(room, worthy))
    return placement
