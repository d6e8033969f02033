"""Timing of several calls in one run: in turns, so that what else the machine does slows all of them."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from robodyn.tools.benchmark.timing import settle

Call = Callable[[], object]
Key = TypeVar("Key", bound=Hashable)
_WARM = 12
"""Calls before any is timed: what is learnt or compiled."""
_SHORTEST_S = 1e-7


def in_turns(
    calls: Mapping[Key, Call],
    seconds: float,
    turns: int,
    clock: Callable[[], float] = time.perf_counter,
    warm: int = _WARM,
) -> dict[Key, list[float]]:
    """Seconds of one call of each, turn by turn; `seconds` is about the time for each of them in all turns."""
    for call in calls.values():
        for _ in range(warm):
            call()
    settle()
    timers = {key: timeit.Timer(call, timer=clock) for key, call in calls.items()}
    once = {key: min(timer.repeat(3, 1)) for key, timer in timers.items()} if seconds else dict.fromkeys(calls, 1.0)
    loops = {key: max(1, int(seconds / turns / max(_SHORTEST_S, each))) for key, each in once.items()}
    found: dict[Key, list[float]] = {key: [] for key in calls}
    for turn in range(turns):
        for key in list(timers)[:: 1 if turn % 2 else -1]:  # who begins takes turns as well
            found[key].append(timers[key].timeit(loops[key]) / loops[key])
    return found


def least(calls: Mapping[Key, Call], seconds: float, turns: int, **options: Any) -> dict[Key, float]:
    """The least of these."""
    return {key: min(each) for key, each in in_turns(calls, seconds, turns, **options).items()}
