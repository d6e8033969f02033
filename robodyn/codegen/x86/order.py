"""The order of a program's operations: theirs, but for sines and cosines.

A processor sees a hundred operations ahead or two. A sine takes thirty, most of which wait for each other, so several
angles are computed side by side. A division or a square root takes as long as many operations, and those that make a
quaternion a unit one wait for each other: sines are what can be done meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import groupby

from robodyn.codegen.lowering import Operation
from robodyn.records import dataclass

_TOGETHER = 3
"""Angles side by side. More of them ran no faster, and need more registers."""
_LONG = ("sqrt", "reciprocal")


@dataclass
class _Groups:
    """Sines that are computed together, by where they are among the operations.

    `leader`: the first of its group, of each; `bound`: those of groups that need other sines; `pauses`: where there is
    time for a group, after divisions and square roots that need no sines.
    """

    leader: dict[int, int] = field(default_factory=dict)
    bound: set[int] = field(default_factory=set)
    pauses: list[int] = field(default_factory=list)

    @staticmethod
    def of(operations: Sequence[Operation]) -> _Groups:
        """The groups of operations: as many sines one behind the other as there are side by side, or fewer where one
        needs another. The last one does not wait alone: it goes with the group before it."""
        found = _Groups()
        latest: dict[int, int] = {}
        """The last sine that a node depends on."""
        waits: dict[int, int] = {}
        """How many of what takes long are in a row before a node that needs no sines."""
        last: dict[int, int] = {}
        group: list[int] = []
        earlier: list[int] = []
        needs = -1
        for k, (kind, results, operands) in enumerate(operations):
            before = max([latest.get(node, -1) for node in operands], default=-1)
            if kind == "sincos":
                if not group or len(group) == _TOGETHER or before >= group[0]:
                    earlier, group, needs = group, [], before
                group.append(k)
                found.leader[k] = group[0]
                if before >= 0:
                    found.bound.add(group[0])
                before = k
            elif before < 0:
                wait = max([waits.get(node, 0) for node in operands], default=0)
                if kind in _LONG:
                    last[wait] = k
                    wait += 1
                waits[results[0]] = wait
            latest.update(dict.fromkeys(results, before))
        if len(group) == 1 and earlier and needs < earlier[0]:
            found.leader[group[0]] = earlier[0]
            if group[0] in found.bound:
                found.bound.add(earlier[0])
        found.pauses = list(last.values())
        return found

    def places(self) -> dict[int, int]:
        """Before which operation each group comes, by its first sine: in a pause, or where that sine is read."""
        found = {first: first for first in self.leader.values()}
        free = [first for first in found if first not in self.bound]
        return found | {first: min(first, pause) for first, pause in zip(free, self.pauses, strict=False)}


def ordered(operations: Sequence[Operation]) -> Iterator[tuple[bool, list[Operation]]]:
    """Groups of sines and cosines (True), and what lies between them; what an angle is made of comes before it."""
    groups = _Groups.of(operations)
    leader, places = groups.leader, groups.places()
    needed: dict[int, int] = {}
    order = []
    for k in range(len(operations) - 1, -1, -1):
        _, results, operands = operations[k]
        at = places[leader[k]] if k in leader else min(k, needed.get(results[0], k))
        for node in operands:
            needed[node] = min(at, needed.get(node, at))
        order.append((at, k in leader, k))
    order.sort()
    for (_, sines), run in groupby(order, lambda place: (place[0] if place[1] else -1, place[1])):
        yield sines, [operations[k] for _, _, k in run]
