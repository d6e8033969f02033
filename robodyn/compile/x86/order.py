"""The order of a program's operations. Only sines and cosines are moved.

A processor's out-of-order window has one or two hundred operations. A sine has about thirty, most of which depend on
each other, so the sines of several angles are computed together. A division or a square root takes as long as many
other operations, and those that normalise a quaternion depend on each other. Sines are moved there to fill the wait.
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
    """Groups of sines that are computed together. A sine is identified by its index among the operations.

    `leader`: the first sine of the group of each sine. `bound`: leaders of groups that depend on other sines. `pauses`:
    positions behind divisions and square roots that do not depend on sines, where a group fills the wait.
    """

    leader: dict[int, int] = field(default_factory=dict)
    bound: set[int] = field(default_factory=set)
    pauses: list[int] = field(default_factory=list)

    @staticmethod
    def of(operations: Sequence[Operation], made: Mapping[int, int]) -> _Groups:
        """Forms the groups: up to `ANGLES_TOGETHER` consecutive sines, fewer if one depends on another. A single sine
        at the end joins the group before it. `made`: the index of the operation that computes each node."""
        groups = _Groups()
        latest: dict[int, int] = {}
        later: set[int] = set()
        """Nodes that depend on sines."""
        waits: dict[int, int] = {}
        """For nodes that do not depend on sines: the number of divisions and roots on the longest chain before them."""
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
                groups.leader[k] = group[0]
                if before >= 0:
                    groups.bound.add(group[0])
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
            groups.leader[group[0]] = earlier[0]
            if group[0] in groups.bound:
                groups.bound.add(earlier[0])
        groups.pauses = list(last.values())
        return groups

    def places(self) -> dict[int, int]:
        """For each group, by its leader, the operation before which it is computed: a pause, or the leader itself."""
        places = {first: first for first in self.leader.values()}
        free = [first for first in places if first not in self.bound]
        return places | {first: min(first, pause) for first, pause in zip(free, self.pauses, strict=False)}


def _latest_sine(node: int, operations: Sequence[Operation], made: Mapping[int, int], known: dict[int, int]) -> int:
    """Index of the last sine on which a node depends, or -1. `known`: results for nodes already visited."""
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
    """Yields groups of sines and cosines (True) and the operations between them (False). Everything on which an angle
    depends comes before its sine."""
    made = {node: k for k, operation in enumerate(operations) for node in operation.results}
    groups = _Groups.of(operations, made)
    places = groups.places()
    sines: dict[int, list[int]] = {}
    for k, leader in groups.leader.items():
        sines.setdefault(places[leader], []).append(k)
    moved = set(groups.leader)
    """Sines, and operations moved forward because sines at the places so far depend on them."""
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
    """Indices of operations behind a place on which sines depend, except those already moved."""
    needed: set[int] = set()
    waiting = list(sines)
    while waiting:
        for node in operations[waiting.pop()].operands:
            k = made.get(node, -1)
            if k > place and k not in moved and k not in needed:
                needed.add(k)
                waiting.append(k)
    return needed
