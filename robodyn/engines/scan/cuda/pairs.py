"""Kernels that make the entries of matrices over pairs of degrees of freedom (`robodyn.engines.scan.trees.pairs`), each
where it belongs, from the text that NumPy runs.

`pair_matrix` goes over whole matrices: a thread has a column of one of them and some of its rows, so that what is
written lies side by side, and which pairs there are is seen from places in the depth-first walk. `pair_list` goes over
lists of pairs, for rows that are kept by themselves and for matrices that are mostly zero. `couple` adds up what
belongs to joints that mimic others.
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
"""Of a column that a thread goes through: it reads what it needs of the column once for all of them."""
LISTED, UPPER, LOWER = 0, 1, 2
"""Where `pair_list` puts entries: in the order of the list, and at (a, k) or (k, a) or both of matrices."""

GIVEN = ("motions", "forces", "points", "diagonal")


def take(to: Array[Scalar], source: Array[Scalar], apart: Word, size: Static[int]) -> None:
    """Read scalars that lie so far apart."""
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
    """Whole matrices, of `rows` rows each.

    `rank` and `ends` (n,) are as `Branches.walk` says, and entries that are of no pair are set to zero where `clear` is
    not zero.
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
    """A list of pairs, of `rows` ancestors `above` and descendants `below`, or where `chosen` is not zero those of them
    that `source` names; `how` says where entries go."""
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
    """G' (.) G, G having an entry in each row: a thread for each entry.

    `full` (batch, many, many): matrices over all joints; `multiplier` (many,); `first` (rows + 1,), `order` (many,):
    which of these make an entry.
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
    """The kernel "pair_matrix" or "pair_list" for entries that are sums of so many products.

    Arrays are those of `Pairs`: `places` are read where `placed` is not zero, and `diagonal` (n,) is added where
    `added` is not.
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
    """What makes matrices of pairs on a device, in one launch."""

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
        """Put entries at (a, k) and/or (k, a) of matrices (B, nv_tree, nv_tree), `diagonal` (nv_tree, 1) being added;
        what is no such place stays, or with `clear` becomes zero."""
        if pairs.branches.bushy and not clear:
            self._list(pairs, out, diagonal, UPPER * upper + LOWER * lower)
        else:
            rows = len(pairs.branches)
            blocks = -(-rows // ROWS) * -(-rows * pairs.batch // BLOCK_THREADS)
            how = [int(upper), int(lower), int(clear)]
            self._start("pair_matrix", blocks, pairs, out, diagonal, pairs.branches.walk, rows, how)

    def listed(self, pairs: Pairs, diagonal: arguments.Array, source: arguments.Array | None) -> arguments.Array:
        """Entries (pairs, B) in the order of `Branches.all_pairs`, or those that `source` names."""
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
        # What is not added is not read either: any array will do.
        given = [pairs.motions, pairs.forces, pairs.points, pairs.points if diagonal is None else diagonal]
        numbers = [pairs.batch, *how, int(pairs.places is not None), int(diagonal is not None), *_strides(pairs, out)]
        self.device.start(self._kernel(name, pairs), blocks, [*given, out, *indices, pairs.places], rows, numbers)

    def couple(self, layout: Layout, full: arguments.Array, out: arguments.Array) -> None:
        """Let `out` (B, nv, nv) be G' (.) G of matrices (B, nv_tree, nv_tree) over all joints."""
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
    """Of motions, forces and points by scalar, element and row, and of matrices by matrix, row and column."""
    given = (pairs.motions, pairs.forces, pairs.points)
    found = [number for each in given for number in strides_in(each, each.shape[1], pairs.batch)]
    return [*found, *(each // out.itemsize for each in out.strides)]
