"""Which sweeps one walk over the tree can do, and that walk.

An engine chooses the order of an algorithm's steps. Sweep after sweep, what the first one leaves on every body waits
for the last one: of a humanoid's gradient and eight states 71 kB, more than the nearest cache holds. Branch after
branch, outward and back again, only what is on the way to the root waits: 28 kB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from robodyn.core.sweeps import Ancestors, Inward, Outward, Sweep
from robodyn.core.tree import Tree


def walks(sweeps: Iterable[Sweep]) -> Iterator[list[Sweep]]:
    """Sweeps in their order, together where one walk does them: some on the way outward, others on the way back."""
    walk: list[Sweep] = []
    for sweep in sweeps:
        if walk and not _joins(sweep, walk):
            yield walk
            walk = []
        walk.append(sweep)
    if walk:
        yield walk


def _joins(sweep: Sweep, walk: Sequence[Sweep]) -> bool:
    """Whether a sweep does the same in the walk of those before it. On the way back a body's own fields are complete,
    and its ancestors have what was written on the way outward."""
    if not all(map(_once_a_body, (*walk, sweep))):
        return False
    inward = [each for each in walk if isinstance(each, Inward)]
    if isinstance(sweep, Ancestors):
        late = {name for each in inward for name in (*each.writes, *each.gives)}
        return late.isdisjoint(sweep.visits)
    if any(isinstance(each, Ancestors) for each in walk):
        return False
    if isinstance(sweep, Inward):  # its children give before the parent's step of those before it
        return not any(set(sweep.gives) & {*each.reads, *each.writes, *each.gives} for each in inward)
    return not inward


def _once_a_body(sweep: Sweep) -> bool:
    if isinstance(sweep, Outward | Inward):
        return not sweep.lanes
    return isinstance(sweep, Ancestors) and not sweep.from_links


def comes_back(sweep: Sweep) -> bool:
    """Whether a sweep is done on the way back."""
    return isinstance(sweep, Inward | Ancestors)


def branch_by_branch(tree: Tree) -> Iterator[tuple[int, bool]]:
    """Every body of a tree twice: before all bodies that it carries, and after them (True).

    It is an Euler tour backwards: children come last to first. After them come bodies in the order of `Inward` sweeps,
    as far as one is the parent of both: sums there are the same.
    """
    entered, left = tree.euler_tour
    for visit in np.argsort(np.concatenate([left, entered]))[::-1].tolist():
        back, body = divmod(visit, len(tree))
        yield body, back == 1
