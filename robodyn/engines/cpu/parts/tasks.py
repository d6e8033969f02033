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
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

from robodyn.arguments import Array
from robodyn.engines.cpu.parts.partition import Parts

TASK_NS = 250.0
"""What a task costs besides its work: being taken, looking at those it waits for, being told done."""
_PIECES = 4
"""For each thread, of what comes in pieces."""
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

    def sweep(self, group: Group, fuse: bool) -> None:
        """Tasks of a sweep over bodies; `fuse`: whether those of bundles go on with what the last sweep did on them."""
        parts, outward = self.parts, group.work == "outward"
        if self.before in (group.work, "pieces"):  # what others read, the next sweep may replace
            self.alone([], 0.0)
        self.before = group.work
        ns = np.add.reduceat(np.append(group.ns[parts.body], 0.0), parts.start[:-1]) * (np.diff(parts.start) > 0)
        roots, (_, visits) = parts.root_start + parts.body.size, parts.visits
        if not outward:
            ns += group.sum_ns * (np.diff(visits) - np.diff(parts.start))
        leaf = np.bincount(parts.above[1:], minlength=len(parts)) == 0
        below: list[list[int]] = [[] for _ in range(len(parts))]
        new = [self.barrier] * len(parts)
        for p in range(len(parts)) if outward else range(len(parts) - 1, -1, -1):
            if outward:
                operations = [(group.operation, int(parts.start[p]), int(parts.start[p + 1]))]
            else:
                operations = [(group.operation.replace("sweep", "clear"), int(roots[p]), int(roots[p + 1]))]
                operations.append((group.operation, int(visits[p]), int(visits[p + 1])))
            if fuse and leaf[p]:
                number = self.last[p]
                self.tasks[number].operations += operations
                self.tasks[number].ns += ns[p]
            else:
                after = [self.last[p], *([new[parts.above[p]]] if outward and p else ()), *below[p]]
                number = self.add(operations, after, float(ns[p]))
            new[p] = number
            if not outward and p:
                below[parts.above[p]].append(number)
        self.last = new


def tasks_of(parts: Parts, groups: Sequence[Group], threads: int) -> Tasks:
    """The tasks of an algorithm on a tree in parts, for a number of threads."""
    maker = _Maker(parts)
    for group in groups:
        if group.work in ("outward", "inward"):
            maker.sweep(group, fuse=group.work == "inward" and maker.before == "outward")
        elif group.work == "pieces":
            maker.alone([], 0.0)
            cuts = np.linspace(0, group.count, min(group.count, _PIECES * threads) + 1).astype(int).tolist()
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
