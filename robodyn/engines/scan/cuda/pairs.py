"""Kernels for the entries of matrices over pairs of degrees of freedom (`robodyn.engines.scan.trees.pairs`).

The product of an entry is traced from the function that NumPy runs. `pair_matrix` fills whole matrices: a thread
computes some rows of a column, so that stores are coalesced. It recognises pairs by their ranks in depth-first order.
`pair_list` processes lists of pairs, for packed rows and for sparse matrices. `couple` sums entries of mimicking
joints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.compile.loops.gpu import all_threads, block, blocks, first_work, thread, unrolled
from robodyn.compile.loops.language import Array, Scalar, Static, Word, local, routine
from robodyn.engines.gpu.device import LoadedKernel
from robodyn.engines.gpu.functions import kernel_source
from robodyn.engines.gpu.source import KernelSource
from robodyn.engines.gpu.straight import Straight
from robodyn.engines.scan.cuda.steps import Strides, at_row, strides_in
from robodyn.engines.scan.elementwise import traced
from robodyn.engines.scan.states import Layout
from robodyn.engines.scan.trees.pairs import Pairs, entry_of
from robodyn.internals import arguments

if TYPE_CHECKING:
    from robodyn.engines.scan.cuda.device import ScanDevice

BLOCK_THREADS = 128
ROWS = 16
"""Rows of a column that a thread computes. It loads the column's data once for all of them."""
LISTED, UPPER, LOWER = 0, 1, 2
"""Destinations of `pair_list`: a list in the order of pairs, or entries (a, k), (k, a), or both of matrices."""

GIVEN = ("motions", "forces", "points", "diagonal")


def take(to: Array[Scalar], source: Array[Scalar], apart: Word, size: Static[int]) -> None:
    """Load `size` scalars with stride `apart`."""
    for k in unrolled(size):
        to[k] = source[k * apart]


@routine
def pair_matrix(
    motions: Array[Scalar],
    forces: Array[Scalar],
    points: Array[Scalar],
    diagonal: Array[Scalar],
    out: Array[Scalar],
    rank: Array[Word],
    ends: Array[Word],
    places: Array[Word],
    workspace: Array[Scalar],
    rows: Word,
    batch: Word,
    upper: Word,
    lower: Word,
    clear: Word,
    placed: Word,
    added: Word,
    motions_by: Strides,
    forces_by: Strides,
    points_by: Strides,
    out_by: Strides,
    product: Static[Straight],
    size: Static[int],
) -> None:
    """Fill whole matrices of `rows` rows each.

    `rank` and `ends` (n,): `Branches.walk`; `clear`: nonzero to set entries of no pair to zero.
    """
    n, columns = rows, batch * rows
    across = (columns + BLOCK_THREADS - 1) // BLOCK_THREADS
    m, f, p = local(Scalar, size), local(Scalar, size), local(Scalar, 3)
    there, at = local(Scalar, size), local(Scalar, 3)
    for work in range(Word(block()), (n + ROWS - 1) // ROWS * across, Word(blocks())):
        column = work % across * BLOCK_THREADS + thread()
        if column >= columns:
            continue
        row, k = column // n, column % n
        begin, end, place = rank[k], ends[k], places[k] if placed else k
        take(m, at_row(motions, motions_by, place, row), motions_by.scalar, size)
        take(f, at_row(forces, forces_by, place, row), forces_by.scalar, size)
        take(p, at_row(points, points_by, place, row), points_by.scalar, 3)
        first = work // across * ROWS
        for i in range(first, min(first + ROWS, n)):
            here, other = rank[i], places[i] if placed else i
            entry: Scalar = 0.0
            if upper and here <= begin < ends[i]:
                take(there, at_row(motions, motions_by, other, row), motions_by.scalar, size)
                take(at, at_row(points, points_by, other, row), points_by.scalar, 3)
                entry = product(there, f, at, p)
            elif lower and begin <= here < end:
                take(there, at_row(forces, forces_by, other, row), forces_by.scalar, size)
                take(at, at_row(points, points_by, other, row), points_by.scalar, 3)
                entry = product(m, there, p, at)
            elif not clear:
                continue
            if added and i == k:
                entry += diagonal[k]
            out[row * out_by.scalar + i * out_by.element + k * out_by.row] = entry


@routine
def pair_list(
    motions: Array[Scalar],
    forces: Array[Scalar],
    points: Array[Scalar],
    diagonal: Array[Scalar],
    out: Array[Scalar],
    above: Array[Word],
    below: Array[Word],
    source: Array[Word],
    places: Array[Word],
    workspace: Array[Scalar],
    rows: Word,
    batch: Word,
    how: Word,
    chosen: Word,
    placed: Word,
    added: Word,
    motions_by: Strides,
    forces_by: Strides,
    points_by: Strides,
    out_by: Strides,
    product: Static[Straight],
    size: Static[int],
) -> None:
    """Compute the entries of a list of pairs.

    `above`, `below`: ancestor and descendant of each pair; `chosen`: nonzero to compute only the pairs with indices
    `source`; `rows`: the number of entries; `how`: their destination (`LISTED`, `UPPER`, `LOWER`).
    """
    m, f, p, q = local(Scalar, size), local(Scalar, size), local(Scalar, 3), local(Scalar, 3)
    for work in range(first_work(BLOCK_THREADS), rows * batch, all_threads(BLOCK_THREADS)):
        row, which = work % batch, source[work // batch] if chosen else work // batch
        a, k = above[which], below[which]
        ancestor, descendant = places[a] if placed else a, places[k] if placed else k
        take(m, at_row(motions, motions_by, ancestor, row), motions_by.scalar, size)
        take(f, at_row(forces, forces_by, descendant, row), forces_by.scalar, size)
        take(p, at_row(points, points_by, ancestor, row), points_by.scalar, 3)
        take(q, at_row(points, points_by, descendant, row), points_by.scalar, 3)
        entry = product(m, f, p, q)
        if added and a == k:
            entry += diagonal[k]
        if how == LISTED:
            out[work] = entry
        if how & UPPER:
            out[row * out_by.scalar + a * out_by.element + k * out_by.row] = entry
        if how & LOWER:
            out[row * out_by.scalar + k * out_by.element + a * out_by.row] = entry


@routine
def couple(
    full: Array[Scalar],
    multiplier: Array[Scalar],
    out: Array[Scalar],
    first: Array[Word],
    order: Array[Word],
    workspace: Array[Scalar],
    rows: Word,
    batch: Word,
    many: Word,
    out_by: Strides,
) -> None:
    """Compute G' M G, where each row of G has one entry. One thread for each entry of the result.

    `full` (batch, many, many): the matrices M over all joints; `multiplier` (many,): the entries of G; `first`
    (rows + 1,), `order` (many,): the joint velocities that follow each velocity, in compressed form (`Layout.coupled`).
    """
    n = rows
    for work in range(first_work(BLOCK_THREADS), batch * n * n, all_threads(BLOCK_THREADS)):
        matrix, i, j = work // (n * n), work // n % n, work % n
        entry: Scalar = 0.0
        for a in range(first[i], first[i + 1]):
            whole = full + (matrix * many + order[a]) * many
            row: Scalar = 0.0
            for k in range(first[j], first[j + 1]):
                row += whole[order[k]] * multiplier[order[k]]
            entry += row * multiplier[order[a]]
        out[matrix * out_by.scalar + i * out_by.element + j * out_by.row] = entry


def pair_kernel(name: str, terms: int, dtype: np.dtype[Any]) -> KernelSource:
    """The kernel "pair_matrix" or "pair_list" for entries that are sums of `terms` products.

    Arrays are those of `Pairs`. `places` is used if `placed` is nonzero, and `diagonal` (n,) is added if `added` is
    nonzero.
    """
    known: dict[str, Any] = {
        "product": Straight("product", traced(entry_of(terms)), dtype, value=True),
        "size": 6 * terms,
    }
    if name == "pair_matrix":
        return kernel_source(pair_matrix, dtype, GIVEN, ("out",), threads=BLOCK_THREADS, **known)
    return kernel_source(pair_list, dtype, GIVEN, ("out",), threads=BLOCK_THREADS, **known)


def couple_kernel(dtype: np.dtype[Any]) -> KernelSource:
    """The kernel `couple`."""
    return kernel_source(couple, dtype, ("full", "multiplier"), ("out",), threads=BLOCK_THREADS)


class PairKernels:
    """Computes matrices of pairs on a device, each in one launch."""

    def __init__(self, device: ScanDevice) -> None:
        self.device = device
        self._kernels: dict[tuple[str, int, np.dtype[Any]], LoadedKernel] = {}
        self._couples: dict[np.dtype[Any], LoadedKernel] = {}

    def fill(
        self,
        pairs: Pairs,
        out: arguments.Array,
        *,
        upper: bool = False,
        lower: bool = False,
        diagonal: arguments.Array | None = None,
        clear: bool = False,
    ) -> None:
        """Write entries to (a, k) and/or (k, a) of matrices (B, nv_tree, nv_tree), and add `diagonal` (nv_tree, 1).

        Other entries are unchanged, or zero with `clear`.
        """
        if pairs.branches.bushy and not clear:
            self._list(pairs, out, diagonal, UPPER * upper + LOWER * lower)
        else:
            rows = len(pairs.branches)
            blocks = -(-rows // ROWS) * -(-rows * pairs.batch // BLOCK_THREADS)
            how = [int(upper), int(lower), int(clear)]
            self._start("pair_matrix", blocks, pairs, out, diagonal, pairs.branches.walk, rows, how)

    def listed(self, pairs: Pairs, diagonal: arguments.Array, source: arguments.Array | None) -> arguments.Array:
        """Entries (pairs, B) in the order of `Branches.all_pairs`, or those with indices `source`."""
        count = pairs.branches.pairs if source is None else len(source)
        out: arguments.Array = self.device.xp.empty((count, pairs.batch), pairs.motions.dtype)
        self._list(pairs, out[None], diagonal, LISTED, source)
        return out

    def _list(
        self,
        pairs: Pairs,
        out: arguments.Array,
        diagonal: arguments.Array | None,
        how: int,
        source: arguments.Array | None = None,
    ) -> None:
        rows = pairs.branches.pairs if source is None else len(source)
        blocks = -(-rows * pairs.batch // BLOCK_THREADS)
        indices = (*pairs.branches.all_pairs, source)
        self._start("pair_list", blocks, pairs, out, diagonal, indices, rows, [how, int(source is not None)])

    def _start(
        self,
        name: str,
        blocks: int,
        pairs: Pairs,
        out: arguments.Array,
        diagonal: arguments.Array | None,
        indices: Sequence[arguments.Array | None],
        rows: int,
        how: Sequence[int],
    ) -> None:
        # Without a diagonal the kernel does not read its argument, so any array serves.
        arrays = [pairs.motions, pairs.forces, pairs.points, pairs.points if diagonal is None else diagonal]
        numbers = [pairs.batch, *how, int(pairs.places is not None), int(diagonal is not None), *_strides(pairs, out)]
        self.device.start(self._kernel(name, pairs), blocks, [*arrays, out, *indices, pairs.places], rows, numbers)

    def couple(self, layout: Layout, full: arguments.Array, out: arguments.Array) -> None:
        """Write G' M G to `out` (B, nv, nv), for matrices M (B, nv_tree, nv_tree) over all joints."""
        batch, many, nv = len(full), layout.model.nv_tree, layout.model.nv
        if full.dtype not in self._couples:
            self._couples[full.dtype] = self.device.device.load(couple_kernel(full.dtype))
        arrays = [full, layout.sources["v"][1], out, *layout.coupled]
        numbers = [batch, many, *(each // out.itemsize for each in out.strides)]
        self.device.start(self._couples[full.dtype], -(-batch * nv * nv // BLOCK_THREADS), arrays, nv, numbers)

    def _kernel(self, name: str, pairs: Pairs) -> LoadedKernel:
        key = name, len(pairs.motions) // 6, pairs.motions.dtype
        if key not in self._kernels:
            self._kernels[key] = self.device.device.load(pair_kernel(*key))
        return self._kernels[key]


def _strides(pairs: Pairs, out: arguments.Array) -> list[int]:
    """Strides of motions, forces and points (scalar, element, row), and of the matrices (matrix, row, column)."""
    arrays = (pairs.motions, pairs.forces, pairs.points)
    strides = [number for each in arrays for number in strides_in(each, each.shape[1], pairs.batch)]
    return [*strides, *(each // out.itemsize for each in out.strides)]
