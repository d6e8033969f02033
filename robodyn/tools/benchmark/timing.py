"""Timing a call: as often as a budget allows."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

from robodyn.internals.records import dataclass

Clock = Callable[[Callable[[], object], int], float]
"""Seconds that n runs of a call take."""

_SHORTEST_SAMPLE_S = 2e-4
"""A thousand times what reading the clock costs, so that it does not count."""
_SAMPLES = 3
_PATIENCE = 3.0


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: best and median of `runs` samples, each the mean of as many calls as make it measurable."""

    best_s: float
    median_s: float
    runs: int


def settle() -> None:
    """Wait for the code that takes the place of what answered first, if any does."""
    hurry = sys.modules.get("robodyn.engines.cpu.tiered_compilation")
    if hurry is not None:
        hurry.settle()


def seconds_of(call: Callable[[], object], times: int = 1) -> float:
    """Seconds that some calls take."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - start


def measure(call: Callable[[], object], seconds: float, clock: Clock = seconds_of) -> Timing:
    """Time a call over and over for about `seconds`; a slow one three times, if that is not three times too long."""
    call()
    settle()
    times, sample = 1, clock(call, 1)
    while sample < _SHORTEST_SAMPLE_S:
        times = max(2 * times, int(times * _SHORTEST_SAMPLE_S / max(sample, 1e-9)))
        sample = clock(call, times)
    samples, total = [sample / times], sample
    while total < seconds or (len(samples) < _SAMPLES and total < _PATIENCE * seconds):
        sample = clock(call, times)
        samples.append(sample / times)
        total += sample
    return Timing(min(samples), median(samples), len(samples))
