"""Samples of the cases of tests that take long: what every run asks.

A test with the mark `some(of=n, rest=mark)` runs about an n-th of its cases in every run, an eighth of the others by
that mark, and what is left by the mark `nightly`; with `some(of=n, when=mark)` about an n-th runs by that mark, and no
case in every run. Samples are the same in every process and run. Every value of every parameter is in them, where a
parameter does not have more values than the sample has cases; in both together, where it has no more than sixteen.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest

RARE = ("extras", "matrix", "kernels", "nightly")
"""Marks of tests that not every run asks."""
_OF_REST, _FEW = 8, 16


def thin_out(items: list[pytest.Item]) -> None:
    """Mark the cases that are not in the samples."""
    groups = defaultdict(list)
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if isinstance(item, pytest.Function) and "some" in marks and marks.isdisjoint(RARE):
            groups[item.path, item.originalname, "gpu" in marks].append(item)
    for cases in groups.values():
        some, known = cases[0].get_closest_marker("some").kwargs, [values(case) for case in cases]
        often, rare = sample(known, some["of"]), set[int]()
        if "when" in some:
            often, rare = rare, often
        elif left := [k for k in range(len(cases)) if k not in often]:
            rare = {left[k] for k in sample([known[k] for k in left], _OF_REST)}
        rare |= lacking(known, often | rare)
        for k, case in enumerate(cases):
            if k not in often:
                case.add_marker((some.get("rest") or some["when"]) if k in rare else "nightly")


def values(case: pytest.Function) -> dict[str, Any]:
    """The values of parameters; of what does not look the same in every process, their numbers."""
    plain = (str, int, float, tuple, list, type(None))
    spec = case.callspec
    return {name: repr(v) if isinstance(v, plain) else spec.indices[name] for name, v in spec.params.items()}


def sample(cases: list[dict[str, Any]], of: int) -> set[int]:
    """Numbers of the cases that are kept; a case is the value of each parameter."""
    order = list(range(len(cases)))
    random.Random(0).shuffle(order)
    chosen = set(order[: -(-len(cases) // of)])
    for name in cases[0]:
        if len({case[name] for case in cases}) <= len(chosen):
            asked = {cases[number][name] for number in chosen}
            for number in order:
                if cases[number][name] not in asked:
                    asked.add(cases[number][name])
                    chosen.add(number)
    return chosen


def lacking(cases: list[dict[str, Any]], chosen: set[int]) -> set[int]:
    """Numbers of cases that have a value which no chosen one has, of parameters with few values."""
    found: set[int] = set()
    for name in cases[0]:
        asked = {cases[number][name] for number in chosen | found}
        if len({case[name] for case in cases}) <= _FEW:
            for number, case in enumerate(cases):
                if case[name] not in asked:
                    asked.add(case[name])
                    found.add(number)
    return found
