"""The order of a program's operations: theirs, but for sines and cosines.

A processor sees a hundred operations ahead or two. A sine takes thirty, most of which wait for each other, so several
angles are computed side by side. A division or a square root takes as long as many operations, and those that make a
quaternion a unit one wait for each other: sines are what can be done meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from robodyn.compile.lowering import Operation
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import ANGLES_TOGETHER

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
    def of(operations: Sequence[Operation], made: Mapping[int, int]) -> _Groups:
        """The groups of operations: as many sines one behind the other as there are side by side, or fewer where one
        needs another. The last one does not wait alone: it goes with the group before it. `made`: which operation makes
        a node."""
        found = _Groups()
        latest: dict[int, int] = {}
        later: set[int] = set()
        """Nodes that depend on a sine."""
        waits: dict[int, int] = {}
        """How many of what takes long are in a row before a node that needs no sines."""
        last: dict[int, int] = {}
        group: list[int] = []
        earlier: list[int] = []
        needs = -1
        for k, (kind, results, operands) in enumerate(operations):
            alone = later.isdisjoint(operands)
            if kind == "sincos":
                before = -1 if alone else _latest_sine(operands[0], operations, made, latest)
                if not group or len(group) == ANGLES_TOGETHER or before >= group[0]:
                    earlier, group, needs = group, [], before
                group.append(k)
                found.leader[k] = group[0]
                if before >= 0:
                    found.bound.add(group[0])
                alone = False
            elif alone and (waits or kind in _LONG):
                wait = max([waits.get(node, 0) for node in operands], default=0)
                if kind in _LONG:
                    last[wait] = k
                    wait += 1
                waits[results[0]] = wait
            if not alone:
                later.update(results)
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


def _latest_sine(node: int, operations: Sequence[Operation], made: Mapping[int, int], known: dict[int, int]) -> int:
    """The last sine that a node depends on, -1 for none; `known`: those of nodes that were looked at."""
    waiting = [node]
    while waiting:
        of = waiting[-1]
        k = made.get(of)
        if k is None or operations[k].kind == "sincos":
            known[of] = -1 if k is None else k
            waiting.pop()
            continue
        missing = [each for each in operations[k].operands if each not in known]
        waiting += missing
        if not missing:
            known[of] = max([known[each] for each in operations[k].operands], default=-1)
            waiting.pop()
    return known[node]


def ordered(operations: Sequence[Operation]) -> Iterator[tuple[bool, list[Operation]]]:
    """Groups of sines and cosines (True), and what lies between them; what an angle is made of comes before it."""
    made = {node: k for k, operation in enumerate(operations) for node in operation.results}
    groups = _Groups.of(operations, made)
    places = groups.places()
    sines: dict[int, list[int]] = {}
    for k, leader in groups.leader.items():
        sines.setdefault(places[leader], []).append(k)
    moved = set(groups.leader)
    """Sines, and what those of the places so far need before its own turn."""
    done, plain = 0, list[Operation]()
    for place in sorted(sines):
        needed = sorted(_needed_after(place, sines[place], operations, made, moved))
        moved.update(needed)
        plain += [operations[k] for k in range(done, place + 1) if k not in moved]
        plain += [operations[k] for k in needed]
        done = place + 1
        if plain:
            yield False, plain
        plain = []
        yield True, [operations[k] for k in sorted(sines[place])]
    plain = [operations[k] for k in range(done, len(operations)) if k not in moved]
    if plain:
        yield False, plain


def _needed_after(
    place: int, sines: Sequence[int], operations: Sequence[Operation], made: Mapping[int, int], moved: set[int]
) -> set[int]:
    """Operations behind a place that sines need, but for those that were moved already."""
    found: set[int] = set()
    waiting = list(sines)
    while waiting:
        for node in operations[waiting.pop()].operands:
            k = made.get(node, -1)
            if k > place and k not in moved and k not in found:
                found.add(k)
                waiting.append(k)
    return found
