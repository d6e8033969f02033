"""Times a call repeatedly within a time budget."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

from robodyn.internals.records import dataclass

Clock = Callable[[Callable[[], object], int], float]
"""Function that returns the seconds of n runs of a call."""

_SHORTEST_SAMPLE_S = 2e-4
"""Shortest sample, s: about a thousand times the time to read the clock."""
_SAMPLES = 3
_PATIENCE = 3.0


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: best and median of `runs` samples. A sample is the mean of enough calls to be measurable."""

    best_s: float
    median_s: float
    runs: int


def settle() -> None:
    """Wait until optimised code has replaced quickly compiled code, if any is pending."""
    module = sys.modules.get("robodyn.engines.cpu.tiered_compilation")
    if module is not None:
        module.settle()


def seconds_of(call: Callable[[], object], times: int = 1) -> float:
    """Seconds of a number of calls."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - start


def measure(call: Callable[[], object], seconds: float, clock: Clock = seconds_of) -> Timing:
    """Time a call for about `seconds`. A slow call is sampled three times unless that takes three times too long."""
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
