"""The tree of degrees of freedom, which defines the nonzero entries of a mass matrix and of its factor L' D L.

Each degree of freedom counts as a joint of its own; those of one body form a chain (the expanded parent array of RBDA
section 6.5). Entry (a, k) of a mass matrix is zero unless one of the two is an ancestor of the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from robodyn.core.model import Model
from robodyn.core.tree import Indices, Tree
from robodyn.engines.scan.states import Layout
from robodyn.engines.scan.trees.heavy_paths import Placing
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.tuning import FEW_ROWS, FEWER_ENTRIES


class Level(NamedTuple):
    """Degrees of freedom of the same depth, in depth-first order.

    `dofs` (m,): the degrees of freedom; `ancestors` (m, depth + 1): the path from the root's child to the degree of
    freedom itself; `places` (m, depth + 1): the indices of these ancestors within their own levels.
    """

    dofs: Indices
    ancestors: Array
    places: Array


class Branches:
    """The tree of a model's degrees of freedom, including those of mimicking joints.

    `body` (nv_tree,): the body of each degree of freedom. `where`: a function that copies indices to the device of the
    arrays; None for NumPy arrays.
    """

    def __init__(self, model: Model, where: Placing | None = None) -> None:
        n, nv = model.n_bodies, model.nv_tree
        counts = np.diff(model.v_start, append=nv)
        body: Indices = np.repeat(np.arange(n), counts)
        self._where = where
        self.body: Indices = self._placed(body)
        first = np.zeros(nv, dtype=bool)
        first[model.v_start] = True
        above = model.parent[body]
        last = (model.v_start + counts - 1)[above] if n else above
        self.tree = Tree(np.where(first, np.where(above < 0, -1, last), np.arange(nv) - 1))

    def __len__(self) -> int:
        return len(self.tree)

    @cached_property
    def pairs(self) -> int:
        """Number of structural nonzeros in a lower triangle, including the diagonal."""
        return int((self.tree.depth + 1).sum())

    @cached_property
    def first(self) -> Indices:
        """(nv_tree,) start of each row in the packed list of nonzeros of the lower triangle, row after row."""
        return np.cumsum(self.tree.depth + 1) - self.tree.depth - 1

    @cached_property
    def ancestors(self) -> Indices:
        """(pairs,) column of each entry in the packed rows: ancestors from the root's child down, then the diagonal."""
        columns = np.empty(self.pairs, np.intp)
        for level in self.levels():
            columns[self.first[level.dofs, None] + np.arange(level.ancestors.shape[1])] = level.ancestors
        return columns

    @cached_property
    def diagonal(self) -> Array:
        """(nv_tree,) index of each diagonal entry in the packed rows, on the device of the arrays."""
        return self._placed(self.first + self.tree.depth)

    @cached_property
    def squares(self) -> float:
        """Sum of squared depths: operations of a factorisation along the branches (RBDA section 6.5)."""
        return float((self.tree.depth.astype(float) ** 2).sum())

    @property
    def bushy(self) -> bool:
        """Whether so few entries are nonzero that they are computed one by one."""
        return len(self) > FEW_ROWS and FEWER_ENTRIES * self.pairs < len(self) ** 2

    @cached_property
    def in_order(self) -> bool:
        """Whether degrees of freedom are numbered in depth-first order."""
        return bool((self.tree.preorder == np.arange(len(self))).all())

    @cached_property
    def ends(self) -> Indices:
        """(nv_tree,) end of the subtree of the k-th degree of freedom in depth-first order, an index in that order."""
        ends: Indices = np.arange(len(self)) + self.tree.subtree_size[self.tree.preorder]
        return ends

    @cached_property
    def all_pairs(self) -> tuple[Array, Array]:
        """Ancestor and descendant of each pair, in the order of the packed rows, on the device of the arrays. A degree
        of freedom is its own ancestor."""
        return self._placed(self.ancestors), self._placed(np.repeat(np.arange(len(self)), self.tree.depth + 1))

    @cached_property
    def numbers(self) -> Array:
        """(nv_tree,) indices of all degrees of freedom, on the device of the arrays."""
        return self._placed(np.arange(len(self)))

    @cached_property
    def walk(self) -> tuple[Array, Array]:
        """(nv_tree,) rank of each degree of freedom in depth-first order, and the end of its subtree there, on the
        device of the arrays: a is k or an ancestor of k if rank[a] <= rank[k] < end[a]."""
        rank = self.tree.preorder_rank
        return self._placed(rank.astype(np.int64)), self._placed((rank + self.tree.subtree_size).astype(np.int64))

    def _placed(self, indices: Array) -> Array:
        return indices if self._where is None else self._where(indices)

    def levels(self) -> Iterator[Level]:
        """The levels from the root outward. They are not cached, because together they are as large as the matrix."""
        tree, place = self.tree, np.empty(len(self), np.intp)
        ancestors, places = np.empty((2, 1, 0), np.int32)
        for d in range(tree.n_levels):
            dofs = tree.level(d)
            dofs = dofs[np.argsort(tree.preorder_rank[dofs])]
            place[dofs] = np.arange(dofs.size)
            parents = place[tree.parent[dofs]] if d else np.zeros(dofs.size, np.intp)  # the roots extend an empty row
            ancestors, places = (
                np.concatenate((rows[parents], own[:, None]), axis=1, dtype=np.int32, casting="same_kind")
                for rows, own in ((ancestors, dofs), (places, place[dofs]))
            )
            yield Level(dofs, ancestors, places)


_KNOWN: WeakKeyDictionary[Layout, Branches] = WeakKeyDictionary()


def branches_of(layout: Layout) -> Branches:
    """The branches of a layout's model, cached as long as the layout exists."""
    if layout not in _KNOWN:
        _KNOWN[layout] = Branches(layout.model, None if layout.device is None else layout.placed)
    return _KNOWN[layout]
