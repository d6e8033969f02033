"""Points of a curve: a call timed at one size, or the reason why it was not.

Experiments over many sizes end where memory, time or a method does. A budget foresees calls that would take too long,
interrupts those that do, and keeps a process from taking more memory than there is.
"""

from __future__ import annotations

import math
import signal
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from robodyn.engines.memory import available
from robodyn.tools.benchmark.contenders import RefusedError
from robodyn.tools.benchmark.timing import Timing, seconds_of
from robodyn.tools.benchmark.timing import measure as timed
from tests.bench.shared import NOT_MEASURED, reason, show

WRONG = 1e-3
"""A difference, relative to the largest entry, from which on an answer is wrong rather than rounded."""
_PATIENCE = 10
"""Times the longest call that a point may take, preparations and repetitions included."""
_MEMORY_SHARE = 0.85
_STEEPEST = 3.0
"""Power of the size with which times are expected to grow at most: the factorisation of a matrix."""
_SHORT_S = 3.0


@dataclass
class Point:
    """One call of one contender at one size; `problem` says why there is no time.

    `group` is what the point belongs to (a figure, a shape), `off_by` its largest difference from the answer that it
    should give, relative to the largest entry; `where`: on which kind of processor; `commit`: of an earlier run that it
    is of.
    """

    group: str
    series: str
    n: int
    branching: float = 1.0
    batch: int = 1
    dtype: str = "float64"
    where: str = "cpu"
    best_s: float | None = None
    median_s: float | None = None
    runs: int = 0
    off_by: float | None = None
    problem: str = ""
    commit: str = ""

    @property
    def cell(self) -> str:
        """The time, or that there is none."""
        return show(self.best_s, NOT_MEASURED)


class TooLongError(BaseException):
    """A call was interrupted. Like KeyboardInterrupt, it is none of the errors that code may answer for itself."""


@dataclass
class Budget:
    """How long points may take: `seconds` for each, of calls of at most `limit`; sizes and times of curves so far, and
    why they ended."""

    seconds: float = 0.3
    limit: float = 20.0
    history: dict[Hashable, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    ended: dict[Hashable, str] = field(default_factory=dict)

    def expected(self, key: Hashable, size: float) -> float:
        """Seconds that a call of this size should take, by those of smaller ones; at least in proportion to it."""
        known = self.history[key]
        if not known:
            return 0.0
        last, took = known[-1]
        order = 1.0
        if len(known) > 1 and last > known[-2][0]:
            order = max(order, math.log(took / known[-2][1]) / math.log(last / known[-2][0]))
        return float(took * (size / last) ** min(order, _STEEPEST))

    def measure(
        self,
        point: Point,
        size: float,
        prepare: Callable[[], Callable[[], Any]],
        check: Callable[[Any], float] | None = None,
        *,
        wrong: float = WRONG,
        once: bool = False,
        apart: Hashable = None,
    ) -> Point:
        """Fill a point: `prepare` makes the call, and `check` says how far its result is off, `wrong` or more being no
        answer. With `once`, no more than two calls are made, and only one if it takes long.

        `size` is what times grow with. Sizes of one group, series and branching, and of one value of `apart`, must come
        in rising order.
        """
        key = (point.group, point.series, point.branching, point.dtype, point.where, apart)
        if key in self.ended:
            point.problem = self.ended[key]
        elif self.expected(key, size) > self.limit:
            point.problem = f"a call of more than the {show(self.limit)} allowed was expected"
        if point.problem:
            return point
        try:
            with _alarm(_PATIENCE * self.limit), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # what methods say of their errors is measured here
                self._fill(point, prepare(), check, wrong, once)
        except (MemoryError, TooLongError) as error:
            at = f"n = {point.n:,}" + (f", batch {point.batch:,}" if point.batch > 1 else "")
            why = "more memory than there is" if isinstance(error, MemoryError) else str(error)
            point.problem = self.ended[key] = f"from {at} on {why}"
        except Exception as error:  # a method may fail in any way: the others are measured nevertheless
            point.problem = reason(error)
        if point.best_s:
            self.history[key].append((size, point.best_s))
        return point

    def _fill(
        self, point: Point, call: Callable[[], Any], check: Callable[[Any], float] | None, wrong: float, once: bool
    ) -> None:
        start = time.perf_counter()
        answer = call()
        took = time.perf_counter() - start
        if check is not None:
            point.off_by = check(answer)
            if not point.off_by < wrong:
                raise RefusedError(f"WRONG: differs by {point.off_by:.1g}")
        del answer
        # The first call of a size may have compiled something, which says nothing about larger ones.
        best = min(took, seconds_of(call)) if once and took < _SHORT_S else took
        timing = Timing(best, best, 1) if once else timed(call, self.seconds)
        point.best_s, point.median_s, point.runs = timing.best_s, timing.median_s, timing.runs


def difference(answer: Any, wanted: Any) -> float:
    """Largest difference, relative to the largest entry."""
    return float(np.abs(np.asarray(answer) - wanted).max() / np.abs(wanted).max())


def off_by(results: Sequence[Any], truth: Sequence[Any], to_numpy: Callable[[Any], Any] = np.asarray) -> float:
    """The largest difference from what is right for states that a batch repeats, relative to the largest entry, of its
    first and its last rows; infinite for NaN and for other shapes."""
    worst = 0.0 if len(results) == len(truth) else np.inf
    for got, wanted in zip(results, truth, strict=False):
        count = min(len(got), len(wanted))
        if got.shape[1:] != wanted.shape[1:] or not count:
            return np.inf
        for start in {0, len(got) - count}:
            right = wanted[(start + np.arange(count)) % len(wanted)]
            error = np.abs(to_numpy(got[start : start + count]) - right).max() / (np.abs(wanted).max() or 1.0)
            worst = np.inf if np.isnan(error) else max(worst, float(error))
    return worst


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise `TooLongError` after some time, where signals allow it."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TooLongError(f"longer than {show(seconds)} with preparations")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Let arrays raise MemoryError before the machine has no memory left, where the system is Linux."""
    if sys.platform != "linux":
        yield
        return
    import resource

    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = mapped + int(_MEMORY_SHARE * available())
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


# Tables.


def remarks(points: Sequence[Point], grouped: bool = False) -> list[str]:
    """Why points have no time, each reason once, with the points that it is of; `grouped`: and with their group."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for point in points:
        if point.problem:
            at = f"{point.n:,}" + (f" x {point.batch:,}" if point.batch > 1 else "")
            key = f"{point.group}, " if grouped else "", point.series, point.problem
            found.setdefault(key, []).append(at)
    return [f"{group}{series}, n = {', '.join(at)}: {problem}" for (group, series, problem), at in found.items()]


def worst_difference(points: Sequence[Point]) -> str:
    """The largest difference of all, as text."""
    found = [point.off_by for point in points if point.off_by is not None]
    return f"{max(found):.0e}" if found else "not compared"
