"""Sweeps over parts of a tree as tasks with dependencies, their order, and an estimate of their run time.

A task is a sweep over a part. Outward it waits for the part above, inward for all parts below; it also waits for the
previous sweep on the same part. A bundle without parts below it is swept outward and inward in one task, while it is in
the cache. Barriers separate sweeps over the world and links, and the gathering of results.

Threads take tasks in an order in which each task comes after those that it waits for. So there is no deadlock, whatever
the number of threads, and a single thread never waits. It is the order in which `threads` threads would start the tasks
if each took the available task with the longest chain of work behind it (Hu 1961, Graham 1969: list scheduling by
levels). The engine decides by the time that this schedule takes.
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
    """Sweeps that run together, or other work.

    `operation`: the tasks' operation; `ns`: (n,) estimated time for each body, or one number; `sum_ns`: time to add a
    root's values in the part above; `count`: for work in pieces, the number of links or entries of a result, with `ns`
    for each.
    """

    work: Work
    operation: str
    ns: Array
    sum_ns: float = 0.0
    count: int = 0

    @property
    def all_ns(self) -> float:
        """Estimated time for the whole tree on one thread, ns."""
        return float(self.ns.sum()) * (self.count if self.work == "pieces" else 1)


@dataclass
class _Task:
    """A task: its operations, the tasks that it waits for, and its estimated time."""

    operations: list[tuple[str, int, int]]
    after: list[int]
    ns: float = 0.0


@dataclass
class Tasks:
    """Tasks in the order in which threads take them.

    `operations`: each task's operations (name, first, last), in order; `after`: indices of the tasks that it waits for;
    `ns`: its estimated time; `together_ns`: estimated time of all tasks on all threads.
    """

    operations: list[list[tuple[str, int, int]]]
    after: list[list[int]]
    ns: Array
    together_ns: float

    @property
    def longest_ns(self) -> float:
        """Time of the longest chain of dependent tasks: a lower bound for any number of threads."""
        found = np.zeros(len(self.after))
        for number, after in enumerate(self.after):
            found[number] = self.ns[number] + max((found[each] for each in after), default=0.0)
        return float(found.max())


@dataclass
class _Maker:
    """Makes the tasks of one group after another."""

    parts: Parts
    tasks: list[_Task] = field(default_factory=list)
    barrier: int = -1
    last: list[int] = field(default_factory=list)
    before: Work = "alone"

    def add(self, operations: list[tuple[str, int, int]], after: list[int], ns: float) -> int:
        """Add a task; returns its index."""
        self.tasks.append(_Task(operations, after, ns))
        return len(self.tasks) - 1

    def alone(self, operations: list[tuple[str, int, int]], ns: float) -> None:
        """Add a barrier: a task that waits for all earlier tasks, and that all later tasks wait for."""
        self.barrier = self.add(operations, list(range(max(self.barrier, 0), len(self.tasks))), ns)
        self.last = [self.barrier] * len(self.parts)

    def sweep(self, group: Group) -> None:
        """Add the tasks of a sweep over bodies."""
        if self.before in (group.work, "pieces"):  # this sweep may overwrite fields that earlier tasks still read
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
        """Tasks of an inward sweep. A body with very many children in other parts gets several, each of which adds some
        children."""
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
                    self.tasks[number].operations += operations  # a bundle, which is still in the cache
                    self.tasks[number].ns += ns[last] - ns[first]
                else:
                    number = self.add(operations, [number, *(new[c] for c in children)], ns[last] - ns[first])
                operations = []
            new[p] = number
        return new


def _sums(values: Array) -> list[float]:
    """Sums of the first 0, 1, ... values."""
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
    """The tasks in the order of list scheduling on `threads` threads."""
    after = [sorted(set(task.after) - {-1}) for task in tasks]
    then: list[list[int]] = [[] for _ in tasks]
    for number, each in enumerate(after):
        for before in each:
            then[before].append(number)
    ns = [task.ns + TASK_NS for task in tasks]
    ahead = [0.0] * len(tasks)
    for number in range(len(tasks) - 1, -1, -1):  # tasks that wait for a task have larger numbers
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
