"""Groups sweeps that one traversal of the tree can run together, and yields that traversal.

The engine chooses the order of an algorithm's steps. If it runs one sweep after another, the fields of all bodies stay
live between sweeps: 71 kB for a humanoid's gradient at eight states, more than the L1 cache holds. If it runs branch by
branch, outward and back, only the fields on the path to the root stay live: 28 kB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from robodyn.core.sweeps import Ancestors, Inward, Outward, Sweep
from robodyn.core.tree import Tree


def walks(sweeps: Iterable[Sweep]) -> Iterator[list[Sweep]]:
    """The sweeps in their order, in groups of which each needs one traversal. Some sweeps of a group run on the way
    outward, others on the way back."""
    walk: list[Sweep] = []
    for sweep in sweeps:
        if walk and not _joins(sweep, walk):
            yield walk
            walk = []
        walk.append(sweep)
    if walk:
        yield walk


def _joins(sweep: Sweep, walk: Sequence[Sweep]) -> bool:
    """Whether a sweep gives the same results if it joins the traversal of the sweeps before it. On the way back, a
    body's own fields are complete, but its ancestors have only the fields written on the way outward."""
    if not all(map(_once_a_body, (*walk, sweep))):
        return False
    inward = [each for each in walk if isinstance(each, Inward)]
    if isinstance(sweep, Ancestors):
        late = {name for each in inward for name in (*each.writes, *each.gives)}
        return late.isdisjoint(sweep.visits)
    if any(isinstance(each, Ancestors) for each in walk):
        return False
    if isinstance(sweep, Inward):  # children give to a field before earlier inward sweeps have run on the parent
        return not any(set(sweep.gives) & {*each.reads, *each.writes, *each.gives} for each in inward)
    return not inward


def _once_a_body(sweep: Sweep) -> bool:
    if isinstance(sweep, Outward | Inward):
        return not sweep.lanes
    return isinstance(sweep, Ancestors) and not sweep.from_links


def comes_back(sweep: Sweep) -> bool:
    """Whether a sweep runs on the way back to the root."""
    return isinstance(sweep, Inward | Ancestors)


def branch_by_branch(tree: Tree) -> Iterator[tuple[int, bool]]:
    """Visits every body twice: before all bodies of its subtree (False), and after them (True).

    The order is a reversed Euler tour: the last child comes first. Children of one parent return in the order of
    `Inward` sweeps, so that sums over children round the same.
    """
    entered, left = tree.euler_tour
    for visit in np.argsort(np.concatenate([left, entered]))[::-1].tolist():
        back, body = divmod(visit, len(tree))
        yield body, back == 1
