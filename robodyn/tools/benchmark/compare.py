"""Runs benchmarks: compares the results of every contender with ours, then times it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.core.model import Model
from robodyn.engines.options import ENGINE_NAMES
from robodyn.engines.protocol import DTYPES
from robodyn.engines.query_table import QUERIES
from robodyn.internals.arguments import count, finite_number, one_of
from robodyn.internals.errors import ArgumentError, NumericalError, RobodynError, UnavailableError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass
from robodyn.io.builders.values import whole_number
from robodyn.tools.benchmark.contenders import (
    USUAL,
    Answers,
    Contender,
    Peer,
    Prepared,
    RefusedError,
    States,
    available_threads,
    draw,
    numbers_of,
    own_contenders,
    plain_call,
    repeated,
)
from robodyn.tools.benchmark.mujoco_peer import MuJoCo
from robodyn.tools.benchmark.pinocchio_peer import Pinocchio
from robodyn.tools.benchmark.timing import Timing, measure, seconds_of

TOLERANCE = {"float64": 1e-6, "float32": 1e-2}
"""Tolerance of the difference from our results, relative to the largest entry. Ill-conditioned robots cost float32
digits."""
EngineName: TypeAlias = Literal["auto", "reference", "cpu", "gpu", "scan"]

_DISTINCT_STATES = 256
_LONGEST_CALL_S = 5.0
_STEP = 8
_MOST_GIB = 4.0
_MOST_NUMBERS = 1 << 24
"""Limit of the scalars of the results for comparison. The reference engine needs several times their memory."""
_MOST_BATCH = 10_000_000
_MOST_THREADS = 4096
_PEERS: tuple[Callable[[Model], Peer], ...] = (Pinocchio, MuJoCo)


@dataclass(frozen=True)
class Settings:
    """Settings of a benchmark.

    `threads`: numbers of threads. `seconds`: time for each case. Cases in which one call would take more than some
    seconds, or whose arrays would fill gigabytes, are skipped and named.

    Raises:
        ArgumentError: a value that is not allowed.
    """

    queries: tuple[str, ...] = USUAL
    engine: EngineName = "auto"
    dtypes: tuple[str, ...] = ("float64",)
    threads: tuple[int, ...] = (1,)
    batches: tuple[int, ...] = (1, 128, 4096)
    seconds: float = 0.2

    def __post_init__(self) -> None:
        for name in ("queries", "dtypes", "threads", "batches"):
            if not getattr(self, name):
                raise ArgumentError(f"{name}: got none; wanted at least one")
        one_of("engine", self.engine, ENGINE_NAMES)
        for query in self.queries:
            one_of("query", query, tuple(QUERIES))
        for dtype in self.dtypes:
            one_of("dtype", dtype, DTYPES)
        for batch in self.batches:
            count("batch", batch, 1, _MOST_BATCH)
        for threads in self.threads:
            count("threads", threads, 1, _MOST_THREADS)
        if not 0.0 <= finite_number("seconds", self.seconds) <= 60.0:
            raise ArgumentError(f"seconds: got {self.seconds}; wanted a number from 0 to 60")


@dataclass(frozen=True)
class Result:
    """The result of one contender for one query, number of threads and batch. Times are for one state."""

    name: str
    ours: bool
    query: str
    dtype: str
    threads: int
    batch: int | None
    """States in a call; None for one state a call in a Python loop, which is valid for every batch."""
    best_ns: float | None = None
    median_ns: float | None = None
    runs: int = 0
    off_by: float | None = None
    """Largest difference from our results, relative to the largest entry."""
    operations: int | None = None
    """Floating-point operations for one state, if the engine counts them."""
    problem: str = ""
    """Why the case was not measured."""
    estimated: bool = False


@dataclass
class Report:
    """The measurements on one robot."""

    robot: str
    dof: int
    bodies: int
    engine: str
    peers: list[str]
    notes: list[str]
    results: list[Result] = field(default_factory=list)

    def best_peer(self, ours: Result) -> Result | None:
        """The fastest peer for the same query and batch with at most as many threads. Estimates of a library's C++ time
        count for batches only, because single calls from Python include the overhead."""
        rivals = [
            each
            for each in self.results
            if not each.ours
            and each.best_ns is not None
            and (each.query, each.batch or ours.batch) == (ours.query, ours.batch)
            and each.threads <= ours.threads
            and not (each.estimated and ours.batch == 1)
        ]
        return min(rivals, key=lambda each: each.best_ns or np.inf, default=None)


def find_peers(model: Model) -> tuple[list[Peer], list[str]]:
    """The peers that can represent this robot, and reasons why others cannot."""
    if model.nv == 0:
        return [], ["nothing moves"]
    peers: list[Peer] = []
    reasons = []
    for make in _PEERS:
        try:
            peers.append(make(model))
        except RefusedError as refusal:
            reasons.append(str(refusal))
    return peers, reasons


def compare(
    model: Model,
    settings: Settings,
    peers: Sequence[Peer] = (),
    *,
    robot: str | None = None,
    announce: Callable[[str], object] = lambda text: None,
) -> Report:
    """Measure queries of a model and of its peers, after comparing their results.

    Args:
        model: the robot.
        settings: what to measure.
        peers: other libraries to measure (`find_peers`).
        robot: name of the robot in the report; None for the model's.
        announce: called with a description of each measurement.

    Raises:
        ArgumentError: the robot has no degree of freedom.
        UnavailableError: this version does not have the engine.
    """
    if model.nv == 0:
        raise ArgumentError(f"model {model.name!r}: nothing moves; wanted a robot with a degree of freedom")
    chosen = Dynamics(model, engine=settings.engine).engine
    engine, threads = chosen.name, settings.threads if chosen.threaded else (1,)
    notes = [note for peer in peers for note in peer.notes]
    if threads != settings.threads:
        notes.append(f"Engine {engine!r} runs on one thread whatever the number asked for.")
    names = [peer.name for peer in peers]
    report = Report(robot or model.name, model.nv, model.n_bodies, engine, names, notes)
    for query in settings.queries:
        announce(f"{report.robot}: {query}")
        try:
            bench = _Bench(model, settings, query, announce)
        except (RobodynError, MemoryError) as error:
            problem = f"{_reason(error)}; with no answer to compare, no peer was measured"
            report.results.append(Result(f"robodyn {engine}", True, query, "float64", 1, None, problem=problem))
            continue
        report.results += bench.ours(threads)
        for peer in peers:
            for contender in peer.contenders(query, settings.threads):
                report.results += bench.measured(contender)
    return report


class _Bench:
    """The benchmark of one query of one robot: states, our results for them, and measurements of contenders.

    Raises:
        RobodynError: there is no result to compare with.
    """

    def __init__(self, model: Model, settings: Settings, query: str, announce: Callable[[str], object]) -> None:
        self.model, self.settings, self.query, self.announce = model, settings, query, announce
        self.asked = QUERIES[query]
        numbers = numbers_of(self.asked, model)
        if numbers > _MOST_NUMBERS:
            raise UnavailableError(f"the answer to one state has {numbers} numbers, too many to measure")
        chosen, reference = Dynamics(model, engine=settings.engine), Dynamics(model, engine="reference")
        first = self._inputs(1)
        for dyn in (chosen, reference):
            self._answered(dyn, first)  # the first call may compile
        slowest = max(seconds_of(partial(self._answered, dyn, first)) for dyn in (chosen, reference))
        rows = min(_DISTINCT_STATES, int(_LONGEST_CALL_S / slowest), _MOST_NUMBERS // numbers)
        self.states = self._inputs(max(1, rows))
        self.truth = self._answered(chosen, self.states)
        off_by = _difference(self.truth, self._answered(reference, self.states))
        if not off_by <= TOLERANCE["float64"]:
            raise NumericalError(f"WRONG: engine {settings.engine!r} differs from 'reference' by {off_by:.1g}")

    def _inputs(self, rows: int) -> States:
        drawn = draw(self.model, rows)
        return {name: drawn[name] for name in self.asked.plain}

    def _answered(self, dyn: Dynamics, states: States) -> Answers:
        answer = plain_call(dyn, self.asked)(*(states[name] for name in self.asked.plain))
        return answer if isinstance(answer, tuple) else (answer,)

    def ours(self, threads: Sequence[int]) -> list[Result]:
        """Results of our contenders for every dtype and number of threads."""
        results = []
        for dtype in self.settings.dtypes:
            for n in threads:
                dyn = Dynamics(self.model, engine=self.settings.engine, dtype=dtype, threads=n)
                operations = _operations(dyn, self.query)
                for contender in own_contenders(dyn, self.query, n):
                    results += self.measured(contender, operations)
        return results

    def _sizes(self, contender: Contender) -> Sequence[int | None]:
        """Batches to measure a contender at. Our loop of single calls is the batch of 1."""
        batches = self.settings.batches
        if not contender.ours:
            return (None,) if contender.single else batches
        return [batch for batch in batches if (batch == 1) == contender.single]

    def measured(self, contender: Contender, operations: int | None = None) -> list[Result]:
        """The results of one contender for every batch. Errors are recorded in the results."""
        results: list[Result] = []
        for batch in self._sizes(contender):
            self.announce(f"{self.query}: {contender.name}, {contender.dtype}, batch {batch or 'any'}")
            case = {key: getattr(contender, key) for key in ("name", "ours", "query", "dtype", "threads")}
            case |= {"batch": batch, "operations": operations}
            try:
                too_much = self._too_much(contender, batch or 1)
                results += [Result(**case, problem=too_much)] if too_much else self._timed(contender, case)
            except Exception as error:
                # A peer may raise anything; an unexpected exception in our code is a bug.
                if contender.ours and not isinstance(error, RobodynError | MemoryError):
                    raise
                results.append(Result(**case, problem=_reason(error)))
        return results

    def _too_much(self, contender: Contender, batch: int) -> str:
        """Why a batch is skipped, or ""."""
        # Inputs count twice, since a peer may need a reordered copy.
        numbers = numbers_of(self.asked, self.model) + 2 * len(self.asked.plain) * self.model.nq
        gigabytes = batch * numbers * np.dtype(contender.dtype).itemsize / (1 << 30)
        if gigabytes > _MOST_GIB:
            return f"left out: it would fill {gigabytes:.0f} GiB"
        # Batches grow step by step, so that the fixed cost of a call is not extrapolated as time per state.
        tried = 1
        while tried < batch:
            run = self._batch(contender, tried).run
            run()
            seconds = seconds_of(run)
            if seconds * batch / tried <= _LONGEST_CALL_S:
                break
            if seconds > _LONGEST_CALL_S / _STEP:
                return f"left out: one call would take about {seconds * batch / tried:.0f} s"
            tried *= _STEP
        return ""

    def _timed(self, contender: Contender, case: dict[str, Any]) -> list[Result]:
        seconds = self.settings.seconds
        prepared = self._loop(contender) if contender.single else self._batch(contender, case["batch"])
        prepared.run()
        off_by = _difference(prepared.answers(), self.truth)
        case = {**case, "off_by": off_by if np.isfinite(off_by) else None}
        if not off_by <= (contender.tolerance or TOLERANCE[contender.dtype]):
            return [Result(**case, problem=f"WRONG: differs from robodyn by {off_by:.1g}")]
        cost = _per_state(measure(prepared.run, seconds), prepared.states)
        results = [Result(**case, **cost)]
        if contender.overhead is not None:
            less = _per_state(contender.overhead(seconds), 1)
            cost = {**cost, **{key: cost[key] - less[key] for key in ("best_ns", "median_ns")}}
            case |= {"name": contender.overhead_name, "estimated": True}
            some_left = min(cost["best_ns"], cost["median_ns"]) > 0.0
            problem = "a call costs as much on a robot of one joint"
            results.append(Result(**case, **cost) if some_left else Result(**case, problem=problem))
        return results

    def _batch(self, contender: Contender, batch: int) -> Prepared:
        return contender.prepare(repeated(self.states, batch))

    def _loop(self, contender: Contender) -> Prepared:
        """A loop over as many states as take a tenth of the time for a case."""
        one = contender.prepare({name: array[:1] for name, array in self.states.items()})
        one.run()
        rows = max(1, int(0.1 * self.settings.seconds / max(seconds_of(one.run), 1e-9)))
        return contender.prepare({name: array[:rows] for name, array in self.states.items()})


def _per_state(timing: Timing, states: int) -> dict[str, Any]:
    best, median = (seconds / states * 1e9 for seconds in (timing.best_s, timing.median_s))
    return {"best_ns": best, "median_ns": median, "runs": timing.runs}


def _difference(answers: Answers, truth: Answers) -> float:
    """Largest difference relative to the largest entry; `answers` repeats the rows of `truth`. NaN is infinite."""
    worst = 0.0
    for got, wanted in zip(answers, truth, strict=True):
        scale = float(np.abs(wanted).max()) or 1.0
        for start in range(0, len(got), len(wanted)):
            rows = got[start : start + len(wanted)]
            error = float(np.abs(rows - wanted[: len(rows)]).max()) / scale
            worst = np.inf if np.isnan(error) else max(worst, error)
    return worst


def _operations(dyn: Dynamics, query: str) -> int | None:
    """The engine's count of floating-point operations for one state, or None."""
    program = getattr(dyn, "program", None)
    if program is None:
        return None
    try:
        operations = getattr(program(query), "operations", None)
    except RobodynError:
        return None
    return operations if isinstance(operations, int) else None


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, RobodynError) else f"{type(error).__name__}: {text}"


def threads_from(words: Sequence[str]) -> tuple[int, ...]:
    """Numbers of threads from words such as "1" and "all", without duplicates.

    Raises:
        ArgumentError: a word that is neither a number nor "all".
    """
    numbers = []
    for word in words:
        number = available_threads() if word == "all" else whole_number(word)
        if number is None:
            raise ArgumentError(f"threads: got {brief(word)}; wanted a number, or 'all'")
        numbers.append(number)
    return tuple(dict.fromkeys(numbers))
