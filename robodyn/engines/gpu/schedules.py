"""The order in which the threads of one state process bodies, lanes and columns, so that results are deterministic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from robodyn.core.model import Model
from robodyn.core.tree import Tree
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass


@dataclass(frozen=True)
class Rounds:
    """Rounds of a loop, with a barrier after each. Round r has the members `order[starts[r]:starts[r + 1]]`, int64."""

    order: Array
    starts: Array

    @staticmethod
    def of(rounds: Iterable[Sequence[int]]) -> Rounds:
        """The rounds with these members."""
        listed = [list(each) for each in rounds]
        order = np.array([i for each in listed for i in each], np.int64)
        return Rounds(order, np.cumsum([0, *map(len, listed)]).astype(np.int64))

    def __len__(self) -> int:
        return self.starts.size - 1


def outward_rounds(tree: Tree) -> Rounds:
    """Bodies level by level of the tree. The bodies of a round do not depend on one another."""
    return Rounds(tree.level_order.astype(np.int64), tree.level_start.astype(np.int64))


def inward_rounds(tree: Tree, world: bool) -> Rounds:
    """Bodies after their children, in as few rounds as possible, with no two children of one parent in the same round.

    So the children's contributions are added to the parent without a race and in a fixed order.

    `world`: True if the world, too, counts as a parent.
    """
    n = len(tree)
    ready, time = [0] * n, [0] * n
    for parent in range(n - 1, -2, -1):
        last = -1
        for child in sorted(tree.children(parent).tolist(), key=lambda k: (ready[k], -k)):
            time[child] = max(ready[child], last + 1) if parent >= 0 or world else ready[child]
            last = time[child]
        if parent >= 0:
            ready[parent] = last + 1
    rounds: list[list[int]] = [[] for _ in range(max(time, default=-1) + 1)]
    for i in range(n - 1, -1, -1):
        rounds[time[i]].append(i)
    return Rounds.of(rounds)


def lane_rounds(pairs: Array) -> tuple[Array, Array]:
    """The table of a lane sweep sorted by lane, (m, 4), and the first row of each lane.

    The order within a lane is kept. Lanes are independent of each other.
    """
    order = np.argsort(pairs[:, 1], kind="stable")
    lanes = int(pairs[:, 1].max(initial=-1)) + 1
    counts = np.bincount(pairs[:, 1], minlength=lanes)
    return np.ascontiguousarray(pairs[order]), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def column_rounds(model: Model) -> Rounds:
    """Start bodies of `Ancestors` sweeps, grouped so that bodies that add to the same matrix entries share a group.

    Without mimicking joints each body is a group of its own. Joints that share a coordinate share rows and columns.
    """
    root = list(range(model.n_bodies))

    def find(i: int) -> int:
        while root[i] != i:
            i = root[i]
        return i

    touched: dict[tuple[int, int], int] = {}
    for first in range(model.n_bodies if model.has_mimic else 0):
        for here in model.tree.path(first).tolist():
            a, b = sorted((_followed(model, first), _followed(model, here)))
            other = touched.setdefault((a, b), first)
            low, high = sorted((find(other), find(first)))
            root[high] = low
    groups: dict[int, list[int]] = {}
    for i in range(model.n_bodies):
        groups.setdefault(find(i), []).append(i)
    return Rounds.of(groups.values())


def _followed(model: Model, i: int) -> int:
    """The body at the end of body i's chain of mimicked joints; body i itself if its joint mimics none."""
    while model.mimics[i] >= 0:
        i = int(model.mimics[i])
    return i


def summed(pairs: Array, weight: Array, size: int) -> tuple[Array, Array, Array]:
    """The sums out[pairs[k, 1]] += weight[k] field[pairs[k, 0]], grouped by result.

    Returns the starts of the groups (size + 1), the indices into the field, and the weights.
    """
    order = np.argsort(pairs[:, 1], kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 1], minlength=size))]).astype(np.int64)
    return starts, np.ascontiguousarray(pairs[order, 0], np.int64), np.ascontiguousarray(weight[order])
