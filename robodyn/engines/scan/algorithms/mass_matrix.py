"""The mass matrix by scans: composite inertias as sums over subtrees, and entries along paths to the root.

Thesis of Lynghus, listings 8 to 10 (RBDA section 6.2): H_ak = H_ka = S_a . Ic_k S_k for a on the path from k to the
root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from robodyn.core.spatial import IDENTITY, Inertia
from robodyn.core.sweeps import FORCE, INERTIA, MOTION
from robodyn.engines.memory import require_memory
from robodyn.engines.scan.algorithms.inverse import Outward, inward
from robodyn.engines.scan.elementwise import Elementwise, kernels_for
from robodyn.engines.scan.order import order_of
from robodyn.engines.scan.semigroups import POSES, sums
from robodyn.engines.scan.states import Layout, State
from robodyn.engines.scan.systems.composites import COMPOSING, PLACING, POSING, gathering
from robodyn.engines.scan.trees.aligned import columns, composite_of, composites, inertias, placement
from robodyn.engines.scan.trees.branches import branches_of
from robodyn.engines.scan.trees.pairs import Pairs, coupled_into
from robodyn.engines.scan.trees.prefix_scans import Segments
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

_force = Elementwise(Inertia.times, FORCE, INERTIA, MOTION)
_CSR_BYTES = 16
"""Bytes of an entry besides its value: its column and its index. The factor 2 in `require_sparse_memory` accounts for
the copies while the matrix is assembled."""

if TYPE_CHECKING:
    from scipy.sparse import csr_array  # type: ignore[import-untyped]


def entries(state: State) -> Pairs:
    """S_a and F_k = Ic_k S_k, whose products are the entries of H without armature.

    On a device, folds need only a few launches for each level of heavy paths. With NumPy, each step of a fold is
    several calls, so scans over bodies need fewer calls.
    """
    if state.layout.options.layout == "heavy" and kernels_for(state.inputs["q"]) is not None:
        return _along_stretches(state)
    branches, at = branches_of(state.layout), placement(state, state.transforms)
    composite, S = composites(state, at, INERTIA, inertias(state, at)), columns(state, at)
    return Pairs(branches, S, _force(composite[:, branches.body], S), at.p[:, branches.body])


def _along_stretches(state: State) -> Pairs:
    """`entries` by folds: placements outward, composite inertias inward."""
    order, nv, batch = order_of(state), state.model.nv_tree, state.batch
    outward, columns = Outward(state, order, POSES, IDENTITY), state.empty(9, nv, batch)
    placed, S = outward.found(POSING, PLACING, (), columns), columns[:6]
    d, own, forces = placed[12:15], placed[15:], state.empty(FORCE.size(0), nv, batch)
    bodies = (d, own)
    alone, fold = (gathering(INERTIA), bodies), (COMPOSING, bodies)
    inward(state, order, composite_of(INERTIA), alone, fold, own, (S,), found_dofs=forces)
    return Pairs(branches_of(state.layout), S, forces, columns[6:], order.dof_places)


def mass_matrix(state: State, out: Array) -> None:
    """H into out (B, nv, nv)."""
    if not state.model.has_mimic:
        entries(state).whole(out, state.layout.armature)
        return
    H = state.empty(state.batch, state.model.nv_tree, state.model.nv_tree)
    entries(state).whole(H, state.layout.armature)
    coupled_into(state.layout, H, out)


def require_sparse_memory(layout: Layout) -> None:
    """Require that the sparse mass matrix of a model fits in memory.

    Raises:
        ArgumentError: it does not fit. The message gives its size.
    """
    branches = branches_of(layout)
    require_memory(
        "sparse mass matrix",
        (2 * branches.pairs - len(branches),),
        2 * (layout.dtype.itemsize + _CSR_BYTES),
        "a tree with shorter paths: its mass matrix has an entry for each degree of freedom and each of its ancestors",
        layout.free_bytes,
    )


def rows_up_to_the_diagonal(state: State) -> Array:
    """Entries (pairs, B) of H over all joints, row after row, each row from the root's child to the diagonal."""
    return entries(state).rows(state.layout.armature)


@dataclass(frozen=True)
class SparsePattern:
    """The sparsity pattern of a model's mass matrix, and the sources of its entries.

    `starts` (nv + 1,), `columns` (nnz,): the pattern in compressed-row format. `source`: for each entry, or each of its
    terms, the index in `rows_up_to_the_diagonal`. `terms`: None without mimicking joints. With them, entries are sums
    of
    terms: the terms' weights, a segment for each entry, and the index of each segment's last term.
    """

    starts: Array
    columns: Array
    source: Array
    terms: tuple[Array, Segments, Array] | None


_PATTERNS: WeakKeyDictionary[Layout, SparsePattern] = WeakKeyDictionary()


def sparse_pattern(layout: Layout) -> SparsePattern:
    """The branch-induced sparsity pattern (RBDA section 6.5) of both triangles, cached as long as the layout exists.

    The pattern depends on the model only. Entries that vanish in some states are stored, too.
    """
    if layout not in _PATTERNS:
        _PATTERNS[layout] = _sparse_pattern(layout)
    return _PATTERNS[layout]


def _sparse_pattern(layout: Layout) -> SparsePattern:
    model, branches = layout.model, branches_of(layout)
    depth, size, first = branches.tree.depth, branches.tree.subtree_size, branches.first
    nv, pairs = len(branches), np.arange(branches.pairs)
    row, column = np.repeat(np.arange(nv), depth + 1), branches.ancestors
    # A row has entries for ancestors, the diagonal, and descendants. The latter mirror its column below the diagonal.
    starts = np.concatenate(([0], np.cumsum(depth + size)))
    columns, source = np.empty((2, int(starts[-1])), np.intp)
    at = starts[row] + pairs - first[row]
    columns[at], source[at] = column, pairs
    by_column = np.argsort(column, kind="stable")
    at = np.arange(pairs.size) - np.repeat(np.cumsum(size) - size, size) + np.repeat(starts[:-1] + depth, size)
    columns[at], source[at] = row[by_column], by_column
    placed, terms = layout.placed, None
    if model.has_mimic:
        rows = np.repeat(np.arange(nv), depth + size)
        places = model.v_source[rows] * model.nv + model.v_source[columns]
        order = np.argsort(places, kind="stable")
        weights = (model.v_multiplier[rows] * model.v_multiplier[columns]).astype(layout.dtype)
        unique, counts = np.unique(places, return_counts=True)
        terms = placed(weights[order]), Segments(counts), placed(np.cumsum(counts) - 1)
        starts = np.searchsorted(unique, np.arange(model.nv + 1) * model.nv)
        columns, source = unique % model.nv, source[order]
    index = np.int64 if starts[-1] > np.iinfo(np.int32).max else np.int32
    return SparsePattern(placed(starts.astype(index)), placed(columns.astype(index)), placed(source), terms)


def sparse_entries(state: State) -> Array:
    """The nonzero entries of the mass matrix of one state, in the order of its `SparsePattern`."""
    pattern = sparse_pattern(state.layout)
    values = entries(state).rows(state.layout.armature, pattern.source)[:, 0]
    if pattern.terms is None:
        return values
    weights, segments, last = pattern.terms
    summed: Array = segments.scan(sums(1), (values * weights)[None, :, None])[0, last, 0]
    return summed


def sparse_mass_matrix(state: State) -> csr_array:
    """H (nv, nv) of one state as a sparse matrix; see `SparsePattern`."""
    from scipy.sparse import csr_array

    pattern, nv = sparse_pattern(state.layout), state.model.nv
    H: csr_array = csr_array((sparse_entries(state), pattern.columns.copy(), pattern.starts.copy()), shape=(nv, nv))
    return H
