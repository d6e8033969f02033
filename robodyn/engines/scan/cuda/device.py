"""Runs steps, folds and scans on device arrays, by kernels that are generated from the same functions as for NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from robodyn.core.tree import Indices
from robodyn.engines.gpu.device import Device, LoadedKernel
from robodyn.engines.gpu.source import WARP
from robodyn.engines.scan.cuda.branches import BranchSolver
from robodyn.engines.scan.cuda.folds import TOGETHER_BYTES, fold_kernel
from robodyn.engines.scan.cuda.pairs import PairKernels
from robodyn.engines.scan.cuda.scans import (
    lanes_of,
    run_length,
    scan_kernels,
    takes_long,
)
from robodyn.engines.scan.cuda.steps import BLOCK_THREADS, move_kernel, step_kernel, strides_in
from robodyn.engines.scan.cuda.systems import BlockSystems
from robodyn.engines.scan.elementwise import Elementwise, traced
from robodyn.engines.scan.folds import Fold, Handed
from robodyn.engines.scan.order import Stretches
from robodyn.engines.scan.semigroups import Semigroup
from robodyn.engines.scan.trees.prefix_scans import Segments
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError

Kernels: TypeAlias = tuple[LoadedKernel, LoadedKernel]
"""The two kernels of a scan, see `scan_kernels`."""


class ScanDevice:
    """A device for scans: its array library, and kernels, which are compiled at their first use.

    `xp`: the array library, with NumPy's function names; `systems`: solver of block tri-diagonal systems; `branches`:
    solver with sparse mass matrices; `pairs`: computes the entries of mass matrices.
    """

    def __init__(self, device: Device) -> None:
        self.device, self.xp = device, device.xp
        self._steps: WeakKeyDictionary[Elementwise, dict[np.dtype[Any], LoadedKernel]] = WeakKeyDictionary()
        self._scans: WeakKeyDictionary[Elementwise, dict[Any, tuple[Kernels, bool]]] = WeakKeyDictionary()
        self._moves: dict[np.dtype[Any], LoadedKernel] = {}
        self._folds: dict[Any, LoadedKernel] = {}
        self._numbers: dict[Any, Array] = {}
        self._begins: WeakKeyDictionary[Segments, dict[tuple[bool, int, bool], list[Array]]] = WeakKeyDictionary()
        self.systems, self.branches, self.pairs = BlockSystems(self), BranchSolver(self), PairKernels(self)

    def placed(self, array: Array) -> Array:
        """A copy of a NumPy array of constants or indices on the device, kept for good."""
        copy: Array = self.device.constant(np.ascontiguousarray(array))
        return copy

    def numbers(self, values: tuple[float, ...], dtype: np.dtype[Any]) -> Array:
        """An array of numbers on the device, cached for good."""
        if (values, dtype) not in self._numbers:
            self._numbers[values, dtype] = self.placed(np.array(values, dtype))
        return self._numbers[values, dtype]

    def moved(self, array: Array) -> Array:
        """A copy of a NumPy array on the device, in the order of the current stream. The host does not wait."""
        copy: Array = self.xp.asarray(np.ascontiguousarray(array))
        return copy

    def here(self, array: Array) -> Array:
        """A copy of a device array as a NumPy array. The host waits for it.

        Raises:
            UnavailableError: a call is being recorded.
        """
        if self.device.is_recording():
            raise UnavailableError(
                "capture: this method looks at values on its way, which a recorded call cannot do; engine='gpu' has "
                "methods that can be recorded for every query"
            )
        copy: Array = self.xp.asnumpy(array)
        return copy

    def free_bytes(self) -> int:
        """Bytes of device memory that can be allocated."""
        return self.device.free_bytes()

    # Steps.

    def step(self, of: Elementwise, arrays: Sequence[Array], out: Array | None = None) -> Array:
        """Apply a step to every element, see `Elementwise`."""
        dtype = arrays[0].dtype
        shape = np.broadcast_shapes(*(array.shape[1:] for array in arrays))
        direct = out is not None and out.ndim == len(shape) + 1 <= 3
        result: Array = out if out is not None and direct else self.xp.empty((of.size, *shape), dtype)
        if result.size:
            operands = [*(self._three_axes(array, shape) for array in arrays), self._three_axes(result, shape)]
            batch = operands[-1].shape[2]
            numbers = [batch, *(number for array in operands for number in strides_in(array, *operands[-1].shape[1:]))]
            rows = operands[-1].shape[1] * batch
            self.start(self._step(of, dtype), -(-rows // BLOCK_THREADS), operands, rows, numbers)
        if out is None or direct:
            return result
        out[...] = result
        return out

    def _three_axes(self, array: Array, shape: tuple[int, ...]) -> Array:
        """An array broadcast to (size, n, batch), without a copy if it is contiguous or has at most three axes."""
        if len(shape) == 2:
            return array
        whole = self.xp.broadcast_to(array, (len(array), *shape))
        return whole.reshape(len(array), shape[0], -1)  # type: ignore[no-any-return]

    def _step(self, of: Elementwise, dtype: np.dtype[Any]) -> LoadedKernel:
        known = self._steps.setdefault(of, {})
        if dtype not in known:
            known[dtype] = self.device.load(step_kernel(traced(of), dtype))
        return known[dtype]

    # Indexing.

    def taken(self, elements: Array, places: Indices) -> Array:
        """The elements (size, m, ...) of an array (size, n, ...) at indices `places` (m,)."""
        chosen: Array = self.xp.empty((len(elements), len(places), *elements.shape[2:]), elements.dtype)
        self._move(elements, chosen, places, putting=False)
        return chosen

    def put(self, elements: Array, places: Indices, values: Array) -> None:
        """Assign values (size, m, ...), which may broadcast, to the elements at indices `places`."""
        shape = (len(elements), len(places), *elements.shape[2:])
        whole = self.xp.broadcast_to(values.astype(elements.dtype, copy=False), shape)
        self._move(whole, elements, places, putting=True)

    def _move(self, source: Array, target: Array, places: Indices, putting: bool) -> None:
        moved = source if putting else target
        if not moved.size:
            return
        if source.ndim > 3:  # both are contiguous, so reshape returns views
            source, target = (each.reshape(*each.shape[:2], -1) for each in (source, target))
        steps = [step // each.itemsize for each in (source, target) for step in (*each.strides, 0)[:3]]
        batch = moved.size // (moved.shape[0] * moved.shape[1])
        if source.dtype not in self._moves:
            self._moves[source.dtype] = self.device.load(move_kernel(source.dtype))
        rows = moved.shape[1] * batch
        numbers = [batch, len(source), int(putting), (target if putting else source).shape[1], *steps]
        blocks = -(-rows * len(source) // BLOCK_THREADS)
        self.start(self._moves[source.dtype], blocks, [source, target, places], rows, numbers)

    # Folds.

    def fold(
        self,
        fold: Fold,
        along: Stretches,
        carry: Array,
        bodies: Sequence[Array],
        dofs: Sequence[Array],
        found: Array | None,
        found_dofs: Array | None,
        sources: Array | None,
        handed: Handed | None,
        into: Array | None,
    ) -> Array:
        """Run a fold, see `Fold.__call__`."""
        order, many = along.order, carry.shape[1]
        batch = max(array.shape[2] for array in (carry, *bodies, *dofs))
        after: Array = self.xp.empty((len(carry), len(along), batch), carry.dtype) if into is None else into
        rows = len(along) * batch
        if rows:
            hanging = [] if handed is None or handed.of_paths is None else [handed.of_paths]
            ins, outs = [*bodies, *dofs, *hanging], [each for each in (after, found, found_dofs) if each is not None]
            strides = [strides_in(carry, len(along) if sources is None else many, batch)]
            strides += [strides_in(array, array.shape[1], batch) for array in (*ins, *outs)]
            indices = [along.own if sources is None else sources, *along.on_device, *order.on_device]
            if hanging:
                indices += order.hung
            together, turns = 0, []
            if along.turns is not None:
                indices, turns = [*indices, along.turns_on_device], [len(along.turns) - 1]
                together = min(TOGETHER_BYTES, self.device.shared_bytes)
            kernel = self._fold(fold, order.codes, carry.dtype, together)
            numbers = [batch, many, *turns, *(number for each in strides for number in each)]
            blocks = 1 if together else -(-rows // kernel.source.block_threads)
            self.start(kernel, blocks, [carry, *ins, *outs, *indices], rows, numbers)
        return after

    def _fold(self, fold: Fold, codes: tuple[int, ...], dtype: np.dtype[Any], together: int) -> LoadedKernel:
        key = fold, codes, dtype, together
        if key not in self._folds:
            self._folds[key] = self.device.load(fold_kernel(*key))
        return self._folds[key]

    # Scans.

    def scan(self, op: Semigroup, segments: Segments, elements: Array, backwards: bool) -> Array:
        """Prefixes or suffixes of elements (size, n, ...), see `Segments.scan`."""
        contiguous = self.xp.ascontiguousarray(elements.reshape(*elements.shape[:2], -1))
        lanes = lanes_of(contiguous.shape[2])
        kernels, long = self._scan(op, contiguous.dtype, backwards, lanes)
        kept = self._begins.setdefault(segments, {})
        if (backwards, lanes, long) not in kept:
            where, read = self.placed if segments.kept else self.moved, segments.reversed if backwards else segments
            kept[backwards, lanes, long] = list(map(where, positions(read, lanes, long=long)))
        begins = kept[backwards, lanes, long]
        result: Array = self.xp.empty(contiguous.shape, contiguous.dtype)
        if result.size:
            by = self._prefixes_of_tiles if long and lanes == WARP else self._prefixes
            result = by(kernels, lanes, begins, contiguous)
        return result.reshape(elements.shape)

    def _scan(self, op: Semigroup, dtype: np.dtype[Any], backwards: bool, lanes: int) -> tuple[Kernels, bool]:
        """The kernels of an operator, and whether its compositions take long (`takes_long`)."""
        known = self._scans.setdefault(op.step, {})
        if (dtype, backwards, lanes) not in known:
            composition = traced(op.step)
            totals, prefixes = scan_kernels(composition, dtype, backwards=backwards, lanes=lanes)
            kernels = self.device.load(totals), self.device.load(prefixes)
            known[dtype, backwards, lanes] = kernels, takes_long(composition)
        return known[dtype, backwards, lanes]

    def _prefixes(
        self,
        kernels: Kernels,
        lanes: int,
        begins: Sequence[Array],
        elements: Array,
    ) -> Array:
        """Prefixes of contiguous elements (size, n, batch): totals of tiles, a scan of the totals, then prefixes that
        start from these."""
        totals, prefixes = kernels
        size, n, batch = elements.shape
        result: Array = self.xp.empty(elements.shape, elements.dtype)
        length, carry = run_length(n, lanes), None
        tiles = -(-n // (lanes * length))
        blocks = -(-tiles * batch * lanes // totals.source.block_threads)
        if tiles > 1:
            sums = self.xp.empty((size, tiles, batch), elements.dtype)
            self.start(totals, blocks, [elements, sums, begins[0], None], n, [batch, length, 0])
            carry = self._prefixes(kernels, lanes, begins[1:], sums)
        numbers = [batch, length, int(carry is not None)]
        self.start(prefixes, blocks, [elements, result, begins[0], carry], n, numbers)
        return result

    def _prefixes_of_tiles(self, kernels: Kernels, lanes: int, begins: Sequence[Array], elements: Array) -> Array:
        """Prefixes for operators whose compositions take long: prefixes within tiles, then their composition with the
        totals of earlier tiles."""
        within, carried = kernels
        size, n, batch = elements.shape
        tiles = -(-n // lanes)
        blocks = -(-tiles * batch * lanes // within.source.block_threads)
        result: Array = self.xp.empty(elements.shape, elements.dtype)
        sums: Array = self.xp.empty((size, tiles, batch), elements.dtype)
        self.start(within, blocks, [elements, result, sums, begins[0], None], n, [batch, 1, 0])
        if tiles == 1:
            return result
        carry, whole = self._prefixes_of_tiles(kernels, lanes, begins[1:], sums), self.xp.empty_like(result)
        self.start(carried, blocks, [result, whole, begins[0], carry], n, [batch, 1, 1])
        return whole  # type: ignore[no-any-return]

    def start(
        self, kernel: LoadedKernel, blocks: int, arrays: Sequence[Array | None], rows: int, numbers: Sequence[int]
    ) -> None:
        """Launch a kernel with `blocks` blocks, or with as many as are resident if that is fewer.

        Arrays and numbers are those of `LoadedKernel.launch`, without the workspace, which scans do not have.
        """
        most = self.device.processors * kernel.blocks_per_processor
        kernel.launch(min(blocks, most), [*arrays, None], rows, numbers)


def positions(segments: Segments, lanes: int, *, long: bool = False) -> list[Indices]:
    """For each element the start of its segment, and the same for the totals of a scan's tiles, for their totals, and
    so on. `long`: as in `run_length`.

    A tile's total covers the elements from the last segment start in the tile. So a tile with a segment start begins a
    segment of totals.
    """
    starts, n, levels = segments.starts, segments.n, []
    while True:
        levels.append(np.repeat(starts, np.diff(starts, append=n)).astype(np.int64))
        tile = lanes * run_length(n, lanes, long=long)
        if n <= tile:
            return levels
        starts, n = np.unique(starts // tile), -(-n // tile)
