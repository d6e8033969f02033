"""Queries and rollouts on arrays of the device and of NumPy, beside our CPU engine.

Robots, batches, and calls whose answers are known are those of all that is measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.algorithms.tasks import Task
from robodyn.compile.tracing.unrolled import trace
from robodyn.core.model import Model
from robodyn.engines.gpu.choice import Variant
from robodyn.engines.query_table import QUERIES
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.tools.benchmark.compare import TOLERANCE
from robodyn.tools.benchmark.contenders import USUAL, draw, numbers_of
from robodyn.tools.benchmark.tables import Cells, number
from robodyn.tools.benchmark.timing import measure as timed
from tests.bench.gpu.machine import Ceilings, Machine
from tests.bench.points import off_by
from tests.bench.runner import Run
from tests.bench.shared import NOT_MEASURED, columns, failing_alone, robot, show, times

DISTINCT = 64
"""States that a batch consists of, over and over."""
HOST_BYTES = 3 << 29
"""The most that arguments and results in host memory may take: filling more takes longer than measuring it."""
ROBOTS: dict[str, Callable[[], Model]] = {
    "arm7": partial(robot, "arm7"),
    "quadruped, floating": partial(robot, "quadruped"),
    "humanoid": partial(robot, "humanoid", "fixed"),
    "humanoid, floating": partial(robot, "humanoid"),
}
_ALIKE = ("humanoid",)
"""Robots with nearly as many bodies as another one."""
ASKED = tuple(query for query in USUAL if query != "bias_force")
BATCHES = (1, 16, 256, 1024, 4096, 65_536, 1_048_576)
PARTITIONS = (16, 32, 64, 128, 1024, 8192, 65_536)
"""Batches at which partitions of a gradient are compared."""
ROLLED = (1024, 65_536)
FITTED, HELD_OUT = (1, 8, 64, 512, 4096, 32_768, 131_072), (3, 200, 16_384, 65_536)
"""Batches at which every kernel is measured to choose by, and to see how good the choice is between."""
INTEGRATORS = ("semi_implicit_euler", "rk4")
STEPS, DT = 100, 1e-3
TORQUE = 0.1
"""The largest, N m: light bodies do not get so fast that a step is too long."""


def unlike() -> list[str]:
    """Robots for what is measured of several kernels or libraries, one of each size."""
    return [name for name in ROBOTS if name not in _ALIKE]


def upto(run: Run, batches: Sequence[int]) -> list[int]:
    """Those that are not larger than the largest that is asked for."""
    return [batch for batch in batches if batch <= max(run.settings.batches)]


def by_robot(run: Run, what: str, found: Sequence[Any]) -> Iterator[tuple[Model, list[Any]]]:
    """Robots, announced, and what is asked of each."""
    for name in dict.fromkeys(each.robot for each in found):
        run.announce(f"gpu: {what}, {name}")
        yield ROBOTS[name](), [each for each in found if each.robot == name]


class Case:
    """A query of a robot at states whose answers are known."""

    def __init__(self, model: Model, query: str) -> None:
        self.model, self.query, self.about = model, query, QUERIES[query]
        self.states = draw(model, DISTINCT)
        reference = rd.Dynamics(model, engine="reference")
        self.task: Task = reference.plain_task(query)
        answer = getattr(reference, query)(*(self.states[name] for name in self.about.plain))
        self.truth = answer if isinstance(answer, tuple) else (answer,)

    def operations(self) -> int:
        """Floating-point operations for one state, with all that this robot's structure saves."""
        return trace(self.model, self.task).operations

    def row_bytes(self, dtype: str) -> int:
        """Of the arguments and results of one state: the least that must be read and written."""
        given = sum(self.states[name].shape[1] for name in self.about.plain)
        return int(np.dtype(dtype).itemsize * (given + numbers_of(self.about, self.model)))

    def laid_out(self, dyn: rd.Dynamics, batch: int, xp: Any = np) -> tuple[Callable[[], Any], tuple[Array, ...]]:
        """A call whose arguments and results lie in arrays of `xp`, made once, and those results."""
        arrays = [repeated(xp, self.states[name].astype(dyn.dtype), batch) for name in self.about.plain]
        shapes = self.about.shapes(self.model, self.about.plain).values()
        results = tuple(xp.full((batch, *shape), np.nan, dyn.dtype) for shape in shapes)
        out = results if len(results) > 1 else results[0]
        getattr(dyn, self.query)(*arrays, out=out)
        # Looked up after the first answer: from then on it may be a quicker function.
        return partial(getattr(dyn, self.query), *arrays, out=out), results

    def judged(self, dyn: rd.Dynamics, batch: int, device: Any = None) -> tuple[Callable[[], Any], float | None, str]:
        """A call on arrays of a device, or of NumPy, how far its answer is off, and why it shall not be timed."""
        xp, to_numpy = (np, np.asarray) if device is None else (device.xp, device.xp.asnumpy)
        room = HOST_BYTES if device is None else device.free_bytes() / 2
        size, dtype = batch * self.row_bytes(str(dyn.dtype)), str(dyn.dtype)
        if size > room:
            return lambda: None, None, f"left out: arrays of {size / 1e9:.3g} GB"
        call, results = self.laid_out(dyn, batch, xp)
        error = off_by(results, self.truth, to_numpy)
        return call, error if np.isfinite(error) else None, wrong(error, dtype)


def wrong(error: float, dtype: str) -> str:
    """What to say of an answer that is off by so much: nothing where it is right."""
    return "" if error <= TOLERANCE[dtype] else f"WRONG: differs by {error:.1g}"


def repeated(xp: Any, rows: Array, batch: int) -> Array:
    """An array of `xp` that repeats rows of NumPy's."""
    return xp.take(xp.asarray(rows), xp.asarray(np.arange(batch) % len(rows)), axis=0)


def compile_ahead(
    machine: Machine, questions: Iterable[Case], dtypes: Sequence[str], chosen: Callable[[Any, Case], Iterable[Variant]]
) -> None:
    """Kernels of some queries, side by side; of what the engine refuses none, as whoever runs it will see."""
    found: list[Any] = []
    for question in questions:
        for dtype in dtypes:
            dyn: Any = rd.Dynamics(question.model, engine="gpu", dtype=dtype)  # type: ignore[arg-type]
            for variant in dict.fromkeys(chosen(dyn, question)):
                with suppress(UnavailableError):
                    found += dyn.engine.sources(question.task, variant)
    machine.ahead(found)


# Queries.


@dataclass
class Point:
    """One query at one batch: seconds, each of one call.

    `kernel`: which kind answered; `kernel_s`: by the device's clock; `call_s`: on arrays of the device, from Python;
    `numpy_s`: on NumPy arrays, transfers included; `cpu_s`: our CPU engine on all processors; `moved`, `operations`:
    bytes and floating-point operations for one state; `off_by`: from the reference engine; `problem`: why something is
    missing.
    """

    robot: str
    query: str
    dtype: str
    batch: int
    kernel: str = ""
    kernel_s: float | None = None
    call_s: float | None = None
    numpy_s: float | None = None
    cpu_s: float | None = None
    moved: int | None = None
    operations: int | None = None
    off_by: float | None = None
    problem: str = ""

    @property
    def states_per_s(self) -> float | None:
        return self.batch / self.kernel_s if self.kernel_s else None

    def over_roofline(self, ceilings: Ceilings | None) -> float | None:
        """How many times longer the kernel takes than the device must for such bytes and operations."""
        if ceilings is None or not (self.kernel_s and self.moved and self.operations):
            return None
        least = ceilings.seconds(self.batch * self.moved, self.batch * self.operations, self.dtype)
        return self.kernel_s / least

    def cells(self, ceilings: Ceilings | None) -> tuple[str, ...]:
        seconds = [show(each, NOT_MEASURED) for each in (self.kernel_s, self.call_s, self.numpy_s, self.cpu_s)]
        asked = self.query, self.dtype, f"{self.batch:,}", self.kernel or NOT_MEASURED
        rate, over = self.states_per_s, self.over_roofline(ceilings)
        if over is None:
            return (*asked, *seconds, *(NOT_MEASURED,) * 4)
        done = (rate * self.moved, ceilings.bytes_per_s), (rate * self.operations, ceilings.flops[self.dtype])
        shares = (f"{number(each / 1e9)} ({each / most:.0%})" for each, most in done)
        return (*asked, *seconds, number(rate), *shares, times(over))


@dataclass
class Rolled:
    """A rollout of a batch under constant torques, of which the last state is kept: seconds of a call of `steps` steps.

    `seconds`: on arrays of the device; `cpu_s`: our CPU engine on all processors; `off_by`: from what that gives in
    double precision.
    """

    robot: str
    integrator: str
    dtype: str
    batch: int
    seconds: float | None = None
    cpu_s: float | None = None
    off_by: float | None = None
    problem: str = ""
    steps: int = STEPS

    @property
    def ratio(self) -> float | None:
        return self.cpu_s / self.seconds if self.seconds and self.cpu_s else None

    @property
    def steps_per_s(self) -> float | None:
        return self.batch * self.steps / self.seconds if self.seconds else None

    @property
    def rate(self) -> str:
        return NOT_MEASURED if self.steps_per_s is None else number(self.steps_per_s)


def points(run: Run) -> list[Point]:
    """Queries that are asked, before anything is measured."""
    asked = [(r, q) for r in ROBOTS for q in ASKED if run.selected(f"gpu: queries, {r}, {q}")]
    return [Point(*a, *b) for a, b in product(asked, product(run.settings.dtypes, run.settings.batches))]


def measure(machine: Machine, run: Run, found: Sequence[Point]) -> None:
    """Fill all points; the kernels that will answer are compiled side by side."""
    settings, points = run.settings, dict.fromkeys((point.robot, point.query) for point in found)
    cases = {(name, query): Case(ROBOTS[name](), query) for name, query in points}
    compile_ahead(
        machine,
        cases.values(),
        settings.dtypes,
        lambda dyn, case: [dyn.engine.variant(case.task, batch) for batch in settings.batches],
    )
    for asked, question in cases.items():
        run.announce(f"gpu: queries, {', '.join(asked)}")
        mine = [point for point in found if (point.robot, point.query) == asked]
        measure_query(machine, question, mine, run.seconds)


def measure_query(machine: Machine, question: Case, mine: list[Point], seconds: float) -> None:
    operations = question.operations()
    for dtype in dict.fromkeys(point.dtype for point in mine):
        dyn, cpu = (rd.Dynamics(question.model, engine=name, dtype=dtype) for name in ("gpu", "cpu"))
        for point in (point for point in mine if point.dtype == dtype):
            point.moved, point.operations = question.row_bytes(dtype), operations
            with failing_alone(point):
                point.problem = _measure(machine, question, dyn, cpu, point, seconds)


def _measure(machine: Machine, question: Case, dyn: Any, cpu: Any, point: Point, seconds: float) -> str:
    """On the device, then on the host; why something is missing."""
    call, point.off_by, problem = question.judged(dyn, point.batch, machine.device)
    if not problem.startswith("left out"):
        variant = dyn.engine.variant(question.task, point.batch)
        point.kernel = str(dyn.engine.plan(question.task, variant).variant)
    if problem:
        return problem
    point.kernel_s, point.call_s = (clock(call, seconds).best_s for clock in (machine.kernels, machine.calls))
    call, _, problem = question.judged(dyn, point.batch)
    if problem:
        return f"NumPy and the CPU engine {problem}"
    point.numpy_s = timed(call, seconds).best_s
    del call
    point.cpu_s = timed(question.laid_out(cpu, point.batch)[0], seconds).best_s
    return ""


def tables(found: Sequence[Point], ceilings: Ceilings | None) -> list[Cells]:
    headings = columns(
        "query|dtype|#batch|kernel|#kernel time|#call|#NumPy in, out|#CPU engine|#states/s|#GB/s (of copy)",
        "#GFLOP/s (of FMA)|#over roofline",
    )
    return [
        Cells(robot, headings, [point.cells(ceilings) for point in found if point.robot == robot])
        for robot in dict.fromkeys(point.robot for point in found)
    ]


# Rollouts.


def rollouts(run: Run) -> list[Rolled]:
    """Those that are asked, before anything is measured."""
    asked = [(r, i) for r in unlike() if run.selected(f"gpu: rollouts, {r}") for i in INTEGRATORS]
    return [Rolled(*a, *b) for a, b in product(asked, product(run.settings.dtypes, upto(run, ROLLED)))]


def measure_rollouts(machine: Machine, run: Run, found: Sequence[Rolled]) -> None:
    for model, mine in by_robot(run, "rollouts", found):
        drawn = draw(model, DISTINCT)
        states = [drawn["q"], drawn["qd"], TORQUE * drawn["tau"]]
        truths = {each: _last(rd.Dynamics(model, engine="cpu"), each, states) for each in INTEGRATORS}
        for rolled in mine:
            with failing_alone(rolled):
                _roll(machine, model, rolled, states, truths[rolled.integrator], run.seconds)


def _roll(machine: Machine, model: rd.Model, rolled: Rolled, states: Sequence[Any], truth: Any, seconds: float) -> None:
    xp, given = machine.device.xp, [each.astype(rolled.dtype) for each in states]
    there, here = ([repeated(of, each, rolled.batch) for each in given] for of in (xp, np))
    dyn, cpu = (rd.Dynamics(model, engine=name, dtype=rolled.dtype) for name in ("gpu", "cpu"))  # type: ignore[arg-type]
    rolled.off_by = off_by(_last(dyn, rolled.integrator, there), truth, xp.asnumpy)
    rolled.problem = wrong(rolled.off_by, rolled.dtype)
    if not rolled.problem:
        rolled.seconds = machine.calls(lambda: _last(dyn, rolled.integrator, there), seconds).best_s
        rolled.cpu_s = timed(lambda: _last(cpu, rolled.integrator, here), seconds).best_s


def _last(dyn: rd.Dynamics, integrator: str, states: Sequence[Any]) -> tuple[Any, Any]:
    found = dyn.rollout(*states, dt=DT, steps=STEPS, integrator=integrator, save_every=None)
    return found.q[-1], found.qd[-1]
