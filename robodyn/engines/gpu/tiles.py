"""Rows of neighbouring states through shared memory.

Rows lie one behind another, so threads that each read their own row would touch a sector of memory each. Instead the 32
threads of a warp bring the rows of their 32 states into a tile side by side, each works on its own, and they write
results back side by side.
"""

from __future__ import annotations

from robodyn.compile.loops.gpu import warp_barrier
from robodyn.compile.loops.language import Array, Integer, Scalar, Word, routine
from robodyn.engines.gpu.functions import Functions
from robodyn.engines.gpu.source import WARP

BAND = WARP * (WARP + 1)
"""Scalars of the tile through which `drain` takes long rows."""


def padded(size: int) -> int:
    """Scalars from one row of a tile to the next: odd, so that rows begin in different banks."""
    return size | 1


@routine
def load(tile: Array[Scalar], rows: Array[Scalar], size: Integer, count: Integer, lane: Integer) -> None:
    """A warp copies `count` rows of `size` scalars to its tile. An even row is one scalar longer there: threads that
    use the same entry of their rows then find it in different banks."""
    for i in range(lane, size * count, WARP):
        tile[i if size % 2 else i + i // size] = rows[i]


@routine
def store(rows: Array[Scalar], tile: Array[Scalar], size: Integer, count: Integer, lane: Integer) -> None:
    """And back."""
    for i in range(lane, size * count, WARP):
        rows[i] = tile[i if size % 2 else i + i // size]


@routine
def drain(
    rows: Array[Scalar], own: Array[Scalar], band: Array[Scalar], size: Integer, count: Integer, lane: Integer
) -> None:
    """A warp writes rows that lie interleaved in the workspace: 32 columns at a time through `band`."""
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
