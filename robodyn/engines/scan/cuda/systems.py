"""Solves block tri-diagonal systems on a device: plans and launches of the kernels in `elimination.py`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from robodyn.compile.tracing.program import Program
from robodyn.core.spatial import Scalar
from robodyn.core.sweeps import FieldType
from robodyn.engines.gpu.device import LoadedKernel
from robodyn.engines.scan.cuda.elimination import BLOCK_THREADS, TILE, elimination_kernel
from robodyn.engines.scan.elementwise import Elementwise, traced
from robodyn.engines.scan.systems.odd_even import below, block, factor, forward_substituted, less, lower, solved, taken
from robodyn.engines.scan.trees.prefix_scans import Segments
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

if TYPE_CHECKING:
    from robodyn.engines.scan.cuda.device import ScanDevice

Scalars = tuple[Scalar, ...]


@dataclass(frozen=True)
class Plan:
    """The plan for the systems of segments.

    `distances`: distances of the steps in global memory. After these steps, every second, fourth, ... block of a
    segment forms an independent system. `order` (n,) and `groups` (m, 3) describe these systems as for `solve_tiles`.
    """

    distances: tuple[int, ...]
    order: Array
    groups: Array


def plan(segments: Segments) -> Plan:
    """The plan for segments."""
    longest = int(segments.lengths.max(initial=0))
    distances: list[int] = []
    while -(-longest // (1 << len(distances))) > TILE:
        distances.append(1 << len(distances))
    stride = 1 << len(distances)
    segment = np.repeat(np.arange(segments.lengths.size), segments.lengths)
    system = stride * segment + segments.position % stride
    _, number, sizes = np.unique(system, return_inverse=True, return_counts=True)
    order = np.lexsort((segments.position, number, sizes[number]))
    lengths, counts = np.unique(sizes, return_counts=True)
    first = np.cumsum(lengths * counts) - lengths * counts
    return Plan(tuple(distances), order.astype(np.int64), np.stack((lengths, first, counts), axis=1).astype(np.int64))


def tiles(groups: Array, batch: int) -> int:
    """The number of tiles that the systems of `groups` (m, 3) fill."""
    lengths, _, counts = groups.T
    return int((-(-counts * batch // (TILE // lengths))).sum())


@cache
def column_steps(k: int) -> dict[str, Program]:
    """The kernels' steps for columns of k scalars, traced.

    "factored": (1 / d, L) of a packed block (its diagonal, then the entries below it, row by row); "substituted" and
    "solved": of a column, by these factors; "less" and "taken": subtract from a column the product of one row of a
    block and one of a column.
    """

    def factorise(D: Scalars) -> Scalars:
        L, d = factor(lower(D[:k], D[k:]))
        return (*(1.0 / d), *below(L))

    def substitute(L: Scalars, column: Scalars) -> Scalars:
        return tuple(forward_substituted(lower(L[:k], L[k:]), block(column, 1)).ravel())

    def solve(L: Scalars, column: Scalars) -> Scalars:
        return tuple(solved(lower(L[:k], L[k:]), block(L[:k], 1).ravel(), block(column, 1)).ravel())

    def subtract(into: Scalars, row: Scalars, right: Scalars) -> Scalars:
        return tuple(less(block(into, 1), block(row, k), block(right, 1)).ravel())

    def take(into: Scalars, row: Scalars, right: Scalars, weight: Scalars) -> Scalars:
        return tuple(taken(block(into, 1), block(row, k), block(right, 1), block(weight, 1).ravel()).ravel())

    packed, column, one = (FieldType((0.0,) * size) for size in (k * (k + 1) // 2, k, 1))
    steps = {
        "factored": Elementwise(factorise, packed, packed),
        "substituted": Elementwise(substitute, column, packed, column),
        "solved": Elementwise(solve, column, packed, column),
        "less": Elementwise(subtract, column, column, column, one),
        "taken": Elementwise(take, column, column, column, one, one),
    }
    return {name: traced(step) for name, step in steps.items()}


class BlockSystems:
    """Solves systems on a device; arrays as in `robodyn.engines.scan.systems.odd_even`, with one axis for the batch."""

    def __init__(self, device: ScanDevice) -> None:
        self.device = device
        self._kernels: dict[Any, LoadedKernel] = {}
        self._plans: WeakKeyDictionary[Segments, tuple[Plan, tuple[Array, Array], tuple[Array, Array]]] = (
            WeakKeyDictionary()
        )

    def solved(self, D: Array, U: Array, R: Array, segments: Segments) -> Array:
        """Solutions by odd-even elimination (`odd_even`)."""
        xp, (k, columns, n, batch) = self.device.xp, R.shape
        D, U, R = map(xp.ascontiguousarray, (D, U, R))
        X: Array = xp.empty(R.shape, R.dtype)
        if not X.size:
            return X
        how, around, systems = self._plan(segments)
        for distance in how.distances:
            reduced = xp.empty((2 * k * k + k * columns + k, n, batch), R.dtype)
            self._start("reduce_blocks", [D, U, R, reduced, *around], R.shape, [distance])
            left = [xp.empty(array.shape, array.dtype) for array in (D, U, R)]
            self._start("take_blocks", [D, R, reduced, *left, *around], R.shape, [distance])
            D, U, R = left
        self._start("solve_tiles", [D, U, R, X, *systems], R.shape, [tiles(how.groups, batch)])
        return X

    def residual(self, D: Array, U: Array, R: Array, X: Array, segments: Segments) -> Array:
        """The residual of a solution: right-hand sides minus left-hand sides."""
        xp = self.device.xp
        difference: Array = xp.empty(R.shape, R.dtype)
        if difference.size:
            _, around, _ = self._plan(segments)
            arrays = map(xp.ascontiguousarray, (D, U, R, X))
            self._start("residual_blocks", [*arrays, difference, *around], R.shape, [])
        return difference

    def _plan(self, segments: Segments) -> tuple[Plan, tuple[Array, Array], tuple[Array, Array]]:
        if segments not in self._plans:
            how, placed = plan(segments), self.device.placed
            around = segments.position.astype(np.int64), segments.left.astype(np.int64)
            self._plans[segments] = how, (placed(around[0]), placed(around[1])), (placed(how.order), placed(how.groups))
        return self._plans[segments]

    def _start(self, name: str, arrays: list[Array], shape: tuple[int, ...], numbers: list[int]) -> None:
        """Launch a kernel. `shape`: shape of the right-hand sides; `numbers`: the kernel's numbers after the batch."""
        k, columns, n, batch = shape
        dtype = arrays[0].dtype
        key = name, k, columns, dtype
        if key not in self._kernels:
            source = elimination_kernel(name, column_steps(k), k, columns, dtype)
            self._kernels[key] = self.device.device.load(source)
        width = columns if name == "residual_blocks" else 2 * k + columns
        blocks = numbers[0] if name == "solve_tiles" else -(-width * n * batch // BLOCK_THREADS)
        self.device.start(self._kernels[key], blocks, arrays, n, [batch, *numbers])
