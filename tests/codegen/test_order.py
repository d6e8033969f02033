"""The order of a program's operations, held against its definition: looked at one operation after the other."""

from __future__ import annotations

import random
from itertools import groupby

import pytest

from robodyn.compile.lowering import Operation
from robodyn.compile.x86.order import ordered
from robodyn.internals.tuning import ANGLES_TOGETHER


def operations_of(rng, count):
    """A program of random operations, some of which depend on many before them."""
    nodes, operations, latest = list(range(rng.randrange(1, 6))), [], 5
    sines, near = 0.5 * rng.random(), rng.random()
    for _ in range(rng.randrange(count)):
        latest += 2
        read = [rng.choice(nodes[-8:] if rng.random() < near else nodes) for _ in range(3)]
        if rng.random() < sines:
            results = rng.choice(((latest, latest + 1), (latest, latest + 1), (latest, -1), (-1, latest + 1)))
            operations.append(Operation("sincos", results, (read[0],)))
        else:
            kind, arity = rng.choice((("add", 2), ("fma", 3), ("sqrt", 1), ("reciprocal", 1)))
            results = (latest,)
            operations.append(Operation(kind, results, tuple(read[:arity])))
        nodes += [node for node in results if node >= 0]
    return operations


def groups_of(operations):
    """Of each sine the first one of its group, and where the groups come, by their first sines."""
    latest, waits, last, leader, bound = {}, {}, {}, {}, set()
    group, earlier, needs = [], [], -1
    for k, (kind, results, operands) in enumerate(operations):
        before = max(latest.get(node, -1) for node in operands)
        if kind == "sincos":
            if not group or len(group) == ANGLES_TOGETHER or before >= group[0]:
                earlier, group, needs = group, [], before
            group.append(k)
            leader[k] = group[0]
            bound |= {group[0]} if before >= 0 else set()
            before = k
        elif before < 0:
            wait = max(waits.get(node, 0) for node in operands)
            if kind in ("sqrt", "reciprocal"):
                last[wait] = k
                wait += 1
            waits[results[0]] = wait
        latest.update(dict.fromkeys(results, before))
    if len(group) == 1 and earlier and needs < earlier[0]:
        leader[group[0]] = earlier[0]
        bound |= {earlier[0]} if group[0] in bound else set()
    places = {first: first for first in leader.values()}
    free = [first for first in places if first not in bound]
    return leader, places | {first: min(first, pause) for first, pause in zip(free, last.values(), strict=False)}


def by_definition(operations):
    """Each operation comes before the earliest group of sines that needs it, if that is before its own turn."""
    leader, places = groups_of(operations)
    needed, order = {}, []
    for k in reversed(range(len(operations))):
        _, results, operands = operations[k]
        at = places[leader[k]] if k in leader else min(k, needed.get(results[0], k))
        for node in operands:
            needed[node] = min(at, needed.get(node, at))
        order.append((at, k in leader, k))
    runs = groupby(sorted(order), lambda place: (place[0] if place[1] else -1, place[1]))
    return [(sines, [operations[k] for _, _, k in run]) for (_, sines), run in runs]


@pytest.mark.parametrize("seed", range(4))
def test_the_order_is_that_of_its_definition(seed):
    rng, several = random.Random(seed), 0
    for k in range(1500):
        operations = operations_of(rng, 40)
        found = [(sines, list(run)) for sines, run in ordered(operations)]
        assert found == by_definition(operations), (seed, k)
        several += sum(sines for sines, _ in found) > 1
    assert several > 500, (seed, several)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_read_comes_before(seed):
    rng = random.Random(seed)
    for k in range(500):
        operations = operations_of(rng, 60)
        done = {node for each in operations for node in each.operands} - {
            node for each in operations for node in each.results
        }
        flat = [each for _, run in ordered(operations) for each in run]
        assert sorted(flat) == sorted(operations), (seed, k)
        for each in flat:
            assert done.issuperset(each.operands), (seed, k, each)
            done.update(each.results)
