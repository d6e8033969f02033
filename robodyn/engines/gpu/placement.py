"""Where the arrays of one state of a rolled kernel lie: shared memory, the global workspace, or rows of the arguments.

Scratch arrays of a warp's or a block's state lie in shared memory where they fit, the smallest first, else in the
workspace; after them come rows that are worth it. A thread's own scratch arrays lie in the workspace, interleaved with
those of its warp, so that a warp's access is to neighbouring scalars; shared memory is for the tiles of rows.
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
"""Threads of a block whose states have a thread each; those that have a warp get as many if shared memory allows it."""
_WARP_BLOCKS = (THREADS, 64, 32)
_ROWS_BYTES = 12 << 10
"""Shared memory of a warp up to which rows are brought there: a multiprocessor has room for 18 warps with so much."""


@dataclass(frozen=True)
class Scratch:
    """A scratch array; `stage`: the stage of a chain that has it, None where it stays from stage to stage."""

    size: int
    stage: int | None


@dataclass(frozen=True)
class Row:
    """An input or a result of each state; `revisited`: its entries are read or written more than once each, or in no
    order that neighbouring threads share."""

    name: str
    size: int
    is_output: bool
    revisited: bool


@dataclass
class Placement:
    """Offsets in shared memory (`near`) and in the workspace (`far`) by name, and how much of them a state takes; of a
    warp's states where each has a thread, in shared memory.

    `threads`: of a block; `drained`: rows that leave through a tile at the beginning of shared memory.
    """

    threads: int
    near: dict[str, int] = field(default_factory=dict)
    far: dict[str, int] = field(default_factory=dict)
    held: int = 0
    left: int = 0
    drained: frozenset[str] = frozenset()

    def add_scratch(self, scratch: Mapping[str, Scratch], room: int) -> None:
        """Arrays of different stages overlap; those that stay come first."""
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
        """Bring rows of n scalars into shared memory, in that order; the names of those that do not fit."""
        out = []
        for name, size in sizes:
            if self.held + size <= room:
                self.near[name] = self.held
                self.held += size
            else:
                out.append(name)
        return out


def tiled(rows: Sequence[Row], threads: int | None, room: int) -> Placement:
    """Rows of states that have a thread each; `room`: scalars that a block may have in shared memory.

    Results have the first claim to a tile, and short rows before long ones: what is read with the scalar that was
    asked for waits in a cache, while stores go out one by one. Results that have none are left in the workspace and
    drained through a narrower tile.
    """
    count = threads or THREADS
    room = room * WARP // count
    ranked = sorted((row for row in rows if row.size), key=lambda row: (not row.is_output, row.size))
    tiles = [(row.name, WARP * padded(row.size)) for row in ranked]
    found = Placement(count)
    long = set(found.add_rows(tiles, room)) & {row.name for row in rows if row.is_output}
    if long and room >= BAND:
        found = Placement(count, held=BAND)
        outside = found.add_rows(tiles, room)
        found.drained = frozenset(row.name for row in rows if row.is_output and row.name in outside)
    return found


def cooperative(
    partition: str,
    rows: Sequence[Row],
    scratch: Mapping[str, Scratch],
    threads: int | None,
    width: int,
    shared_bytes: int,
    itemsize: int,
) -> Placement:
    """Arrays of states that have a warp or a block each.

    `width`: threads that can be of use to a state; `shared_bytes`: shared memory that a block may have.
    """
    room = shared_bytes // itemsize
    if partition == "block":
        found = Placement(threads or width)
        found.add_scratch(scratch, room)
        worthy = _ROWS_BYTES // itemsize * max(1, found.threads // WARP)
    else:
        for count in (threads,) if threads else _WARP_BLOCKS:
            found, own = Placement(count), room * WARP // count
            found.add_scratch(scratch, own)
            if not found.left:
                break
        room, worthy = own, _ROWS_BYTES // itemsize
    revisited = sorted((row.size, row.name) for row in rows if row.revisited)
    found.add_rows([(name, size) for size, name in revisited], min(room, worthy))
    return found
