"""The mass matrix by scans: composite inertias as sums over subtrees, entries along the paths to the root.

Thesis of Lynghus, listings 8 to 10 (RBDA section 6.2): H_ak = S_a . Ic_k S_k for a on the path from k to the root, and
its mirror image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robodyn.arguments import Array
from robodyn.engines.memory import require_memory
from robodyn.engines.scan.aligned import columns, composites, inertias, placement
from robodyn.engines.scan.branches import branches_of
from robodyn.engines.scan.elementwise import Elementwise
from robodyn.engines.scan.pairs import Pairs, coupled
from robodyn.engines.scan.states import Layout, State
from robodyn.spatial import ZERO_INERTIA, Inertia
from robodyn.sweeps import FORCE, INERTIA, MOTION, FieldType

_COMPOSITE = FieldType((ZERO_INERTIA,))
_force = Elementwise(Inertia.times, FORCE, INERTIA, MOTION)
_CSR_BYTES = 8
"""Of an entry beside its value: an index and a place. All are there twice while the matrix is put together."""

if TYPE_CHECKING:
    from scipy.sparse import csr_array  # type: ignore[import-untyped]


def entries(state: State) -> Pairs:
    """S_a and F_k = Ic_k S_k, of which H is made, but for armature."""
    branches, at = branches_of(state.layout), placement(state, state.transforms)
    composite, S = composites(state, at, _COMPOSITE, inertias(state, at)), columns(state, at)
    return Pairs(branches, S, _force(composite[:, branches.body], S), at.p[:, branches.body])


def mass_matrix(state: State, out: Array) -> None:
    """H into out (B, nv, nv)."""
    model = state.model
    H = state.zeros(state.batch, model.nv_tree, model.nv_tree) if model.has_mimic else out
    H[...] = 0.0
    entries(state).fill(H, upper=True, lower=True)
    diagonal = state.layout.diagonal
    H[:, diagonal, diagonal] += state.layout.armature.T
    if model.has_mimic:
        out[...] = coupled(state.layout, H)


def require_sparse_memory(layout: Layout) -> None:
    """Raise where the sparse mass matrix of a model is more than memory holds.

    Raises:
        ArgumentError: it is; says how much.
    """
    branches = branches_of(layout)
    require_memory(
        "sparse mass matrix",
        (2 * branches.pairs - len(branches),),
        2 * (layout.dtype.itemsize + _CSR_BYTES),
        "a tree with shorter paths: its mass matrix has an entry for each degree of freedom and each of its ancestors",
    )


def sparse_mass_matrix(state: State) -> csr_array:
    """H (nv, nv) of one state with the sparsity that branches induce (RBDA section 6.5), both triangles.

    Entries that vanish at this state alone are stored like all others, so the pattern is the model's.
    """
    from scipy.sparse import csr_array

    model, branches = state.model, branches_of(state.layout)
    nv, depth, index = len(branches), branches.tree.depth, np.int32
    if 2 * branches.pairs > np.iinfo(np.int32).max:
        index = np.int64  # type: ignore[assignment]
    starts = np.concatenate(([0], np.cumsum(depth + 1))).astype(index)
    data, columns_of = np.empty(branches.pairs, state.dtype), np.empty(branches.pairs, index)
    found = entries(state)
    for level in branches.levels():
        for piece, values in found.along(level):
            places = starts[level.dofs[piece], None] + np.arange(level.ancestors.shape[1])
            data[places], columns_of[places] = values[..., 0], level.ancestors[piece]
    data[starts[1:] - 1] += state.layout.armature[:, 0]
    below = csr_array((data, columns_of, starts), shape=(nv, nv))
    above = below.T.tocsr()  # sorted: in each row the diagonal comes first
    size = branches.tree.subtree_size
    rows = np.concatenate(([0], np.cumsum(depth + size))).astype(index)
    H = csr_array((np.empty(int(rows[-1]), state.dtype), np.empty(int(rows[-1]), index), rows), shape=(nv, nv))
    for part, shift, first in ((below, 0, starts), (above, depth, above.indptr)):
        places = np.arange(branches.pairs, dtype=index) + np.repeat(
            (rows[:-1] + shift - first[:-1]).astype(index), np.diff(first)
        )
        H.data[places], H.indices[places] = part.data, part.indices
    if not model.has_mimic:
        return H
    G = csr_array((model.v_multiplier.astype(state.dtype), (np.arange(nv), model.v_source)), shape=(nv, model.nv))
    coupled_matrix: csr_array = (G.T @ H @ G).tocsr()
    coupled_matrix.sort_indices()
    return coupled_matrix
