"""Steps and scans on arrays of a device, by the kernels that are printed from the same texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from robodyn.arguments import Array
from robodyn.engines.gpu.device import Device, LoadedKernel
from robodyn.engines.scan.cuda.branches import BranchSolver
from robodyn.engines.scan.cuda.scans import BLOCK_THREADS, lanes_of, move_kernel, run_length, scan_kernels, step_kernel
from robodyn.engines.scan.cuda.systems import BlockSystems
from robodyn.engines.scan.elementwise import Elementwise, traced
from robodyn.engines.scan.semigroups import Semigroup
from robodyn.engines.scan.trees.prefix_scans import Segments
from robodyn.errors import UnavailableError
from robodyn.tree import Indices


class ScanDevice:
    """What scans need of a device: its array library, and kernels, compiled when they are first asked for.

    `xp`: functions named as NumPy's; `systems`: solves block tri-diagonal systems; `branches`: solves
    with mass matrices along the branches.
    """

    def __init__(self, device: Device) -> None:
        self.device, self.xp = device, device.xp
        self._steps: WeakKeyDictionary[Elementwise, dict[np.dtype[Any], LoadedKernel]] = WeakKeyDictionary()
        self._scans: WeakKeyDictionary[Elementwise, dict[Any, tuple[LoadedKernel, ...]]] = WeakKeyDictionary()
        self._moves: dict[np.dtype[Any], LoadedKernel] = {}
        self._begins: WeakKeyDictionary[Segments, dict[tuple[bool, int], list[Array]]] = WeakKeyDictionary()
        self.systems, self.branches = BlockSystems(self), BranchSolver(self)

    def placed(self, array: Array) -> Array:
        """A NumPy array, a model's constants or indices, on the device for good."""
        found: Array = self.device.constant(np.ascontiguousarray(array))
        return found

    def moved(self, array: Array) -> Array:
        """A NumPy array on the device, in the order of the current stream; nothing waits."""
        found: Array = self.xp.asarray(np.ascontiguousarray(array))
        return found

    def here(self, array: Array) -> Array:
        """A copy as a NumPy array, for which the host waits.

        Raises:
            UnavailableError: while a call is recorded.
        """
        if self.device.is_recording():
            raise UnavailableError(
                "capture: this method looks at values on its way, which a recorded call cannot do; engine='gpu' has "
                "methods that can be recorded for every query"
            )
        found: Array = self.xp.asnumpy(array)
        return found

    def free_bytes(self) -> int:
        """Memory that can be had."""
        return self.device.free_bytes()

    # Steps.

    def step(self, of: Elementwise, arrays: Sequence[Array], out: Array | None = None) -> Array:
        """A step on every element, see `Elementwise`."""
        dtype = arrays[0].dtype
        shape = np.broadcast_shapes(*(array.shape[1:] for array in arrays))
        direct = out is not None and out.ndim == len(shape) + 1 <= 3
        result: Array = out if out is not None and direct else self.xp.empty((of.size, *shape), dtype)
        if result.size:
            given = [*(self._three_axes(array, shape) for array in arrays), self._three_axes(result, shape)]
            batch = given[-1].shape[2]
            numbers = [batch, *(number for array in given for number in _strides(array, given[-1].shape))]
            rows = given[-1].shape[1] * batch
            self.start(self._step(of, dtype), -(-rows // BLOCK_THREADS), given, rows, numbers)
        if out is None or direct:
            return result
        out[...] = result
        return out

    def _three_axes(self, array: Array, shape: tuple[int, ...]) -> Array:
        """(size, n, batch), of a contiguous array or one of at most three axes without a copy."""
        if len(shape) == 2:
            return array
        whole = self.xp.broadcast_to(array, (len(array), *shape))
        return whole.reshape(len(array), shape[0], -1)  # type: ignore[no-any-return]

    def _step(self, of: Elementwise, dtype: np.dtype[Any]) -> LoadedKernel:
        known = self._steps.setdefault(of, {})
        if dtype not in known:
            known[dtype] = self.device.load(step_kernel(traced(of), dtype))
        return known[dtype]

    # Places.

    def taken(self, elements: Array, places: Indices) -> Array:
        """Elements (size, m, ...) at places (m,) of (size, n, ...)."""
        found: Array = self.xp.empty((len(elements), len(places), *elements.shape[2:]), elements.dtype)
        self._move(elements, found, places, putting=False)
        return found

    def put(self, elements: Array, places: Indices, values: Array) -> None:
        """Let elements at places be values (size, m, ...), which may broadcast."""
        shape = (len(elements), len(places), *elements.shape[2:])
        given = self.xp.broadcast_to(values.astype(elements.dtype, copy=False), shape)
        self._move(given, elements, places, putting=True)

    def _move(self, source: Array, target: Array, places: Indices, putting: bool) -> None:
        moved = source if putting else target
        if not moved.size:
            return
        if source.ndim > 3:  # views, for both are contiguous
            source, target = (each.reshape(*each.shape[:2], -1) for each in (source, target))
        steps = [step // each.itemsize for each in (source, target) for step in (*each.strides, 0)[:3]]
        batch = moved.size // (moved.shape[0] * moved.shape[1])
        if source.dtype not in self._moves:
            self._moves[source.dtype] = self.device.load(move_kernel(source.dtype))
        rows = moved.shape[1] * batch
        numbers = [batch, len(source), int(putting), (target if putting else source).shape[1], *steps]
        blocks = -(-rows * len(source) // BLOCK_THREADS)
        self.start(self._moves[source.dtype], blocks, [source, target, places], rows, numbers)

    # Scans.

    def scan(self, op: Semigroup, segments: Segments, elements: Array, backwards: bool) -> Array:
        """Prefixes or suffixes of elements (size, n, ...), see `Segments.scan`."""
        given = self.xp.ascontiguousarray(elements.reshape(*elements.shape[:2], -1))
        lanes = lanes_of(given.shape[2])
        kept = self._begins.setdefault(segments, {})
        if (backwards, lanes) not in kept:
            where = self.placed if segments.kept else self.moved
            kept[backwards, lanes] = list(map(where, positions(segments.reversed if backwards else segments, lanes)))
        kernels = self._scan(op, given.dtype, backwards, lanes)
        return self._prefixes(kernels, lanes, kept[backwards, lanes], given).reshape(elements.shape)

    def _scan(self, op: Semigroup, dtype: np.dtype[Any], backwards: bool, lanes: int) -> tuple[LoadedKernel, ...]:
        known = self._scans.setdefault(op.step, {})
        if (dtype, backwards, lanes) not in known:
            sources = scan_kernels(traced(op.step), dtype, backwards=backwards, lanes=lanes)
            known[dtype, backwards, lanes] = tuple(map(self.device.load, sources))
        return known[dtype, backwards, lanes]

    def _prefixes(
        self, kernels: tuple[LoadedKernel, ...], lanes: int, begins: Sequence[Array], elements: Array
    ) -> Array:
        """Of contiguous elements (size, n, batch)."""
        totals, prefixes = kernels
        size, n, batch = elements.shape
        found: Array = self.xp.empty(elements.shape, elements.dtype)
        if not found.size:
            return found
        length, carry = run_length(n, lanes), None
        tiles = -(-n // (lanes * length))
        blocks = -(-tiles * batch * lanes // totals.source.block_threads)
        if tiles > 1:
            sums = self.xp.empty((size, tiles, batch), elements.dtype)
            self.start(totals, blocks, [elements, sums, begins[0], None], n, [batch, length, 0])
            carry = self._prefixes(kernels, lanes, begins[1:], sums)
        numbers = [batch, length, int(carry is not None)]
        self.start(prefixes, blocks, [elements, found, begins[0], carry], n, numbers)
        return found

    def start(
        self, kernel: LoadedKernel, blocks: int, arrays: Sequence[Array | None], rows: int, numbers: Sequence[int]
    ) -> None:
        """Launch a kernel on at most as many blocks as run at a time; arrays and numbers are those of
        `LoadedKernel.launch`, but for the workspace, of which scans have none."""
        most = self.device.processors * kernel.blocks_per_processor
        kernel.launch(min(blocks, most), [*arrays, None], rows, numbers)


def _strides(array: Array, shape: tuple[int, ...]) -> list[int]:
    """From scalar to scalar, element to element and row to row, in scalars; 0 along what broadcasts to `shape`."""
    steps = [step // array.itemsize for step in array.strides]
    return [steps[0], *(0 if array.shape[k] < shape[k] else steps[k] for k in (1, 2))]


def positions(segments: Segments, lanes: int) -> list[Indices]:
    """Where the segment of each element begins, and so on for the totals of tiles of a scan, and of theirs.

    A tile's total is of what follows the last beginning in it, so one that has any begins a segment of totals.
    """
    starts, n, found = segments.starts, segments.n, []
    while True:
        found.append(np.repeat(starts, np.diff(starts, append=n)).astype(np.int64))
        tile = lanes * run_length(n, lanes)
        if n <= tile:
            return found
        starts, n = np.unique(starts // tile), -(-n // tile)
