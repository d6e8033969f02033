"""In which order the threads of one state take bodies, lanes and columns, so that no result depends on their timing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from robodyn.core.model import Model
from robodyn.core.tree import Tree
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass


@dataclass(frozen=True)
class Rounds:
    """Members of round r are `order[starts[r]:starts[r + 1]]`, int64."""

    order: Array
    starts: Array

    @staticmethod
    def of(rounds: Iterable[Sequence[int]]) -> Rounds:
        """Rounds given one by one."""
        listed = [list(each) for each in rounds]
        order = np.array([i for each in listed for i in each], np.int64)
        return Rounds(order, np.cumsum([0, *map(len, listed)]).astype(np.int64))

    def __len__(self) -> int:
        return self.starts.size - 1


def outward_rounds(tree: Tree) -> Rounds:
    """Bodies level by level: those of a round depend on no other of it."""
    return Rounds(tree.level_order.astype(np.int64), tree.level_start.astype(np.int64))


def inward_rounds(tree: Tree, world: bool) -> Rounds:
    """Bodies after their children, no two children of one parent in a round: what they hand to it is added up without
    a race, in one order. As few rounds as that takes.

    `world`: whether the world, too, counts as a parent.
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
    """The table of a lane sweep sorted by lane, (m, 4), and where each lane begins.

    Within a lane the order stays: lanes know nothing of each other.
    """
    order = np.argsort(pairs[:, 1], kind="stable")
    lanes = int(pairs[:, 1].max(initial=-1)) + 1
    counts = np.bincount(pairs[:, 1], minlength=lanes)
    return np.ascontiguousarray(pairs[order]), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def column_rounds(model: Model) -> Rounds:
    """Bodies that `Ancestors` sweeps start from, those in one round that add to the same entries of a matrix.

    Without mimicking joints that is each body alone; joints that share a coordinate share rows and columns.
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
    found: dict[int, list[int]] = {}
    for i in range(model.n_bodies):
        found.setdefault(find(i), []).append(i)
    return Rounds.of(found.values())


def _followed(model: Model, i: int) -> int:
    """The body whose joint body i follows in the end, itself where it follows none."""
    while model.mimics[i] >= 0:
        i = int(model.mimics[i])
    return i


def summed(pairs: Array, weight: Array, size: int) -> tuple[Array, Array, Array]:
    """Sums out[pairs[k, 1]] += weight[k] field[pairs[k, 0]] by result: starts (size + 1), places and weights."""
    order = np.argsort(pairs[:, 1], kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 1], minlength=size))]).astype(np.int64)
    return starts, np.ascontiguousarray(pairs[order, 0], np.int64), np.ascontiguousarray(weight[order])
