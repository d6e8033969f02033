"""Sweeps over parts of a tree as tasks that wait for each other, an order for them, and how long they take.

A task is a sweep over a part. Outward it waits for the part above, inward for all parts below, and for the sweep before
it on its own part. A bundle, which has nothing below it, is swept outward and inward again at once, while it is in the
cache. The world's sweeps, links and results are apart: all tasks before them are done, and none behind them has begun.

Threads take tasks in one order, and wait for those that a task needs, which others have taken before. So nobody waits
for ever, however many threads there are, and one thread alone never waits. The order is that in which `threads` threads
would begin tasks if each took the one with the most work ahead of it (Hu 1961, Graham 1969: list scheduling by levels);
the time it would take them is the model by which the engine chooses.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from typing import Literal

import numpy as np

from robodyn.engines.cpu.parts.partition import Parts
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import MAX_VISITS, PIECES_OF_A_THREAD, TASK_NS

Work = Literal["alone", "outward", "inward", "pieces"]


@dataclass(frozen=True)
class Group:
    """Sweeps that run as one, or other work.

    `operation`: what tasks do; `ns`: (n,) for each body of the tree, or one number; `sum_ns`: for what a root hands to
    the part above; `count`: of what comes in pieces, links or entries of a result, with `ns` for each.
    """

    work: Work
    operation: str
    ns: Array
    sum_ns: float = 0.0
    count: int = 0

    @property
    def all_ns(self) -> float:
        """Of the whole tree on one thread."""
        return float(self.ns.sum()) * (self.count if self.work == "pieces" else 1)


@dataclass
class _Task:
    """Operations on parts, tasks that wait for them, and how long they take."""

    operations: list[tuple[str, int, int]]
    after: list[int]
    ns: float = 0.0


@dataclass
class Tasks:
    """Tasks in the order in which they are taken.

    `operations`: what each does, (name, first, last), one after the other; `after`: numbers of the tasks it waits for;
    `ns`: how long it takes; `together_ns`: how long all take on that many threads.
    """

    operations: list[list[tuple[str, int, int]]]
    after: list[list[int]]
    ns: Array
    together_ns: float

    @property
    def longest_ns(self) -> float:
        """The longest way through tasks that wait for each other: however many threads, it takes as long."""
        found = np.zeros(len(self.after))
        for number, after in enumerate(self.after):
            found[number] = self.ns[number] + max((found[each] for each in after), default=0.0)
        return float(found.max())


@dataclass
class _Maker:
    """Makes tasks group by group."""

    parts: Parts
    tasks: list[_Task] = field(default_factory=list)
    barrier: int = -1
    last: list[int] = field(default_factory=list)
    before: Work = "alone"

    def add(self, operations: list[tuple[str, int, int]], after: list[int], ns: float) -> int:
        """A task's number."""
        self.tasks.append(_Task(operations, after, ns))
        return len(self.tasks) - 1

    def alone(self, operations: list[tuple[str, int, int]], ns: float) -> None:
        """What all before it come before, and all behind it come after."""
        self.barrier = self.add(operations, list(range(max(self.barrier, 0), len(self.tasks))), ns)
        self.last = [self.barrier] * len(self.parts)

    def sweep(self, group: Group) -> None:
        """Tasks of a sweep over bodies."""
        if self.before in (group.work, "pieces"):  # what others read, the next sweep may replace
            self.alone([], 0.0)
        self.last = self._outward(group) if group.work == "outward" else self._inward(group)

    def _outward(self, group: Group) -> list[int]:
        parts, new = self.parts, [self.barrier] * len(self.parts)
        start, ns = parts.start.tolist(), _sums(group.ns[parts.body])
        for p, above in enumerate(parts.above.tolist()):
            first, last = start[p : p + 2]
            after = [self.last[p], *([new[above]] if p else ())]
            new[p] = self.add([(group.operation, first, last)], after, ns[last] - ns[first])
        return new

    def _inward(self, group: Group) -> list[int]:
        """Of a body with very many children in other parts, as in a star, a task sums some: those of some parts."""
        parts, new = self.parts, [self.barrier] * len(self.parts)
        entries, starts = parts.visits
        is_body, start = entries >= 0, starts.tolist()
        ns = _sums(np.where(is_body, group.ns[parts.body[np.maximum(entries, 0)]], group.sum_ns))
        below = parts.part[~entries[~is_body]]
        roots_before = np.concatenate([[0], np.cumsum(~is_body)]).tolist()
        places = (parts.body.size + parts.root_start).tolist()
        clear = group.operation.replace("sweep", "clear")
        for p in range(len(parts) - 1, -1, -1):
            operations, number = [(clear, places[p], places[p + 1])], self.last[p]
            for last in range(start[p + 1], start[p], -MAX_VISITS) or [start[p]]:
                first = max(last - MAX_VISITS, start[p])
                operations.append((group.operation, first, last))
                children = set(below[roots_before[first] : roots_before[last]].tolist())
                if not children and self.before == "outward" and number == self.last[p]:
                    self.tasks[number].operations += operations  # a bundle, which is in the cache
                    self.tasks[number].ns += ns[last] - ns[first]
                else:
                    number = self.add(operations, [number, *(new[c] for c in children)], ns[last] - ns[first])
                operations = []
            new[p] = number
        return new


def _sums(values: Array) -> list[float]:
    """Of the first 0, 1, ... of some values."""
    found: list[float] = np.concatenate([[0.0], np.cumsum(values)]).tolist()
    return found


def tasks_of(parts: Parts, groups: Sequence[Group], threads: int) -> Tasks:
    """The tasks of an algorithm on a tree in parts, for a number of threads."""
    maker = _Maker(parts)
    for group in groups:
        if group.work in ("outward", "inward"):
            maker.sweep(group)
        elif group.work == "pieces":
            maker.alone([], 0.0)
            cuts = np.linspace(0, group.count, min(group.count, PIECES_OF_A_THREAD * threads) + 1).astype(int).tolist()
            for first, last in pairwise(cuts):
                maker.add([(group.operation, first, last)], [maker.barrier], float(group.ns) * (last - first))
        else:
            maker.alone([(group.operation, 0, 0)], float(group.ns))
        maker.before = group.work
    return _in_order(maker.tasks, threads)


def _in_order(tasks: list[_Task], threads: int) -> Tasks:
    """Tasks as so many threads would take them."""
    after = [sorted(set(task.after) - {-1}) for task in tasks]
    then: list[list[int]] = [[] for _ in tasks]
    for number, each in enumerate(after):
        for before in each:
            then[before].append(number)
    ns = [task.ns + TASK_NS for task in tasks]
    ahead = [0.0] * len(tasks)
    for number in range(len(tasks) - 1, -1, -1):  # behind each come those that wait for it
        ahead[number] = ns[number] + max((ahead[each] for each in then[number]), default=0.0)
    missing = [len(each) for each in after]
    ready = [(-ahead[number], number) for number, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    running: list[tuple[float, int]] = []
    order, now = [], 0.0
    while ready or running:
        while ready and len(running) < threads:
            _, number = heapq.heappop(ready)
            order.append(number)
            heapq.heappush(running, (now + ns[number], number))
        now, done = heapq.heappop(running)
        for number in then[done]:
            missing[number] -= 1
            if not missing[number]:
                heapq.heappush(ready, (-ahead[number], number))
    place = {number: k for k, number in enumerate(order)}
    return Tasks(
        [tasks[number].operations for number in order],
        [[place[each] for each in after[number]] for number in order],
        np.array([ns[number] for number in order]),
        now,
    )
