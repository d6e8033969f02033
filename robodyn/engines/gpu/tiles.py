"""Copies rows of neighbouring states through tiles in shared memory, with coalesced accesses.

A state's row is contiguous in memory. Threads that read their own rows would each touch another memory sector. Instead
the 32 threads of a warp together copy the rows of their 32 states into a tile. Each thread works on its own row of the
tile. Then the warp together copies the results back.
"""

from __future__ import annotations

from robodyn.compile.loops.gpu import warp_barrier
from robodyn.compile.loops.language import Array, Integer, Scalar, Word, routine
from robodyn.engines.gpu.functions import Functions
from robodyn.engines.gpu.source import WARP

BAND = WARP * (WARP + 1)
"""Scalars of the tile through which `drain` copies long rows."""


def padded(size: int) -> int:
    """The stride of a tile's rows, in scalars: odd, so that rows begin in different banks of shared memory."""
    return size | 1


@routine
def load(tile: Array[Scalar], rows: Array[Scalar], size: Integer, count: Integer, lane: Integer) -> None:
    """A warp copies `count` rows of `size` scalars to its tile. Rows of even size are padded by one scalar in the tile,
    so that threads access the same entry of their rows in different banks."""
    for i in range(lane, size * count, WARP):
        tile[i if size % 2 else i + i // size] = rows[i]


@routine
def store(rows: Array[Scalar], tile: Array[Scalar], size: Integer, count: Integer, lane: Integer) -> None:
    """A warp copies `count` rows of `size` scalars from its tile to memory."""
    for i in range(lane, size * count, WARP):
        rows[i] = tile[i if size % 2 else i + i // size]


@routine
def drain(
    rows: Array[Scalar], own: Array[Scalar], band: Array[Scalar], size: Integer, count: Integer, lane: Integer
) -> None:
    """A warp copies interleaved rows from the workspace to memory, 32 columns at a time through the tile `band`."""
    for first in range(0, size, WARP):
        columns = min(size - first, WARP)
        for k in range(columns):
            band[lane * (WARP + 1) + k] = own[Word(first + k) * WARP]
        warp_barrier()
        if lane < columns:
            for r in range(count):
                rows[Word(r) * size + first + lane] = band[r * (WARP + 1) + lane]
        warp_barrier()


def loading(functions: Functions) -> str:
    """The name of `load`."""
    return functions.name(load, read=("rows",), alone=("rows",))


def storing(functions: Functions) -> str:
    """The name of `store`."""
    return functions.name(store, read=("tile",), alone=("rows",))


def draining(functions: Functions) -> str:
    """The name of `drain`."""
    return functions.name(drain, read=("own",))
