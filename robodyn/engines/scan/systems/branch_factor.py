"""H = L' D L with the sparsity that branches induce (RBDA tables 6.3 and 6.4), a level of the tree at a time.

The row of a degree of freedom is taken out of the rows of its ancestors: that is all there is, no entry appears where
there was none. Rows of one level do not touch each other; what they take out of a common ancestor is summed up first.
Arrays have the batch as their last axis, so a singular state spoils itself alone.
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
        branches: whose degrees of freedom these are.
        pairs: the entries.
        armature: (nv_tree, 1) to be added on the diagonal.
    """

    def __init__(self, branches: Branches, pairs: Pairs, armature: Array) -> None:
        self.levels = list(branches.levels())
        self.rows = [_entries(level, pairs, armature) for level in self.levels]
        self.groups = [_groups(level) for level in self.levels]
        self.pivots: list[Array] = [np.empty(0)] * len(self.levels)
        for depth in range(len(self.levels) - 1, -1, -1):
            self._eliminate(depth)

    def _eliminate(self, depth: int) -> None:
        """Take the rows of a level out of those of their ancestors (table 6.3); leave L in them and D in `pivots`."""
        rows = self.rows[depth][:, :depth]
        self.pivots[depth] = self.rows[depth][:, depth]
        scaled = rows / self.pivots[depth][:, None]
        for above, (first, targets) in enumerate(self.groups[depth]):
            taken = _summed(scaled[:, above, None] * rows[:, : above + 1], first)
            self.rows[above][targets] -= taken
        self.rows[depth][:, :depth] = scaled

    def solve(self, b: Array) -> Array:
        """H^-1 b for b (nv_tree, B) (table 6.5, with the divisions of L' D L)."""
        x = [b[level.dofs] for level in self.levels]
        for depth in range(len(self.levels) - 1, -1, -1):
            for above, (first, targets) in enumerate(self.groups[depth]):
                x[above][targets] -= _summed(self.rows[depth][:, above] * x[depth], first)
        found = np.empty_like(b)
        for depth, level in enumerate(self.levels):
            mine = x[depth] / self.pivots[depth]
            if depth:
                mine -= (self.rows[depth][:, :depth] * found[level.ancestors[:, :depth]]).sum(axis=1)
            found[level.dofs] = mine
        return found

    @property
    def diagonal(self) -> Array:
        """D (nv_tree, B)."""
        order = np.fromiter(chain.from_iterable(level.dofs for level in self.levels), np.intp)
        pivots = np.concatenate(self.pivots)
        found = np.empty_like(pivots)
        found[order] = pivots
        return found


def _entries(level: Level, pairs: Pairs, armature: Array) -> Array:
    """Rows (m, depth + 1, B) of H up to the diagonal."""
    rows: Array = np.empty((*level.ancestors.shape, pairs.batch), pairs.motions.dtype)
    for piece, values in pairs.along(level):
        rows[piece] = values
    rows[:, -1] += armature[level.dofs]
    return rows


def _groups(level: Level) -> list[tuple[Indices, Indices]]:
    """For each level above: where the runs of rows with one ancestor there start, and its place in that level."""
    found = []
    for above in range(level.places.shape[1] - 1):
        first = np.flatnonzero(np.diff(level.places[:, above], prepend=-1))
        found.append((first, level.places[first, above]))
    return found


def _summed(rows: Array, first: Indices) -> Array:
    """Sums of runs of rows."""
    return rows if first.size == len(rows) else np.add.reduceat(rows, first, axis=0)
