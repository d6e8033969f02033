"""The factorisation H = L' D L with branch-induced sparsity (RBDA tables 6.3 and 6.4), level by level of the tree.

The row of a degree of freedom is eliminated from the rows of its ancestors only, and there is no fill-in. Rows of one
level are independent of each other. Their contributions to a common ancestor are summed before they are subtracted. The
batch is the last axis of arrays, so a singular state affects only its own results.
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from robodyn.core.tree import Indices
from robodyn.engines.scan.trees.branches import Branches, Level
from robodyn.engines.scan.trees.pairs import Pairs
from robodyn.internals.arguments import Array


class BranchFactor:
    """The factor of a mass matrix.

    Args:
        branches: the tree of degrees of freedom.
        pairs: the entries of the matrix without armature.
        armature: (nv_tree, 1) to be added to the diagonal.
    """

    def __init__(self, branches: Branches, pairs: Pairs, armature: Array) -> None:
        self.levels = list(branches.levels())
        self.rows = [_entries(level, pairs, armature) for level in self.levels]
        self.groups = [_groups(level) for level in self.levels]
        self.pivots: list[Array] = [np.empty(0)] * len(self.levels)
        for depth in range(len(self.levels) - 1, -1, -1):
            self._eliminate(depth)

    def _eliminate(self, depth: int) -> None:
        """Eliminate a level's rows from those of their ancestors (table 6.3). The rows become L; D goes to `pivots`."""
        rows = self.rows[depth][:, :depth]
        self.pivots[depth] = self.rows[depth][:, depth]
        scaled = rows / self.pivots[depth][:, None]
        for above, (first, targets) in enumerate(self.groups[depth]):
            total = _summed(scaled[:, above, None] * rows[:, : above + 1], first)
            self.rows[above][targets] -= total
        self.rows[depth][:, :depth] = scaled

    def solve(self, b: Array) -> Array:
        """H^-1 b for b (nv_tree, B) (table 6.5, with the divisions of L' D L)."""
        x = [b[level.dofs] for level in self.levels]
        for depth in range(len(self.levels) - 1, -1, -1):
            for above, (first, targets) in enumerate(self.groups[depth]):
                x[above][targets] -= _summed(self.rows[depth][:, above] * x[depth], first)
        solution = np.empty_like(b)
        for depth, level in enumerate(self.levels):
            mine = x[depth] / self.pivots[depth]
            if depth:
                mine -= (self.rows[depth][:, :depth] * solution[level.ancestors[:, :depth]]).sum(axis=1)
            solution[level.dofs] = mine
        return solution

    @property
    def diagonal(self) -> Array:
        """D (nv_tree, B)."""
        order = np.fromiter(chain.from_iterable(level.dofs for level in self.levels), np.intp)
        pivots = np.concatenate(self.pivots)
        D = np.empty_like(pivots)
        D[order] = pivots
        return D


def _entries(level: Level, pairs: Pairs, armature: Array) -> Array:
    """Rows (m, depth + 1, B) of H up to the diagonal."""
    rows: Array = np.empty((*level.ancestors.shape, pairs.batch), pairs.motions.dtype)
    for piece, values in pairs.along(level):
        rows[piece] = values
    rows[:, -1] += armature[level.dofs]
    return rows


def _groups(level: Level) -> list[tuple[Indices, Indices]]:
    """For each level above: the first row of each run of rows with the same ancestor there, and that ancestor's index
    in its level."""
    groups = []
    for above in range(level.places.shape[1] - 1):
        first = np.flatnonzero(np.diff(level.places[:, above], prepend=-1))
        groups.append((first, level.places[first, above]))
    return groups


def _summed(rows: Array, first: Indices) -> Array:
    """Sums over runs of rows."""
    return rows if first.size == len(rows) else np.add.reduceat(rows, first, axis=0)
