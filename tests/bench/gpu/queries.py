"""Queries and rollouts on arrays of the device and of NumPy, beside our CPU engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.tools.benchmark.contenders import draw
from robodyn.tools.benchmark.tables import Cells, number
from robodyn.tools.benchmark.timing import measure as timed
from tests.bench.gpu import work
from tests.bench.gpu.machine import Ceilings, Machine
from tests.bench.gpu.work import DISTINCT, Case, repeated, wrong
from tests.bench.points import off_by
from tests.bench.runner import Run
from tests.bench.shared import NOT_MEASURED, columns, failing_alone, show, times

INTEGRATORS = ("semi_implicit_euler", "rk4")
STEPS, DT = 100, 1e-3
TORQUE = 0.1
"""The largest, N m: light bodies do not get so fast that a step is too long."""


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
    """A rollout of a batch under constant torques, of which the last state is kept: seconds of a call.

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

    @property
    def ratio(self) -> float | None:
        return self.cpu_s / self.seconds if self.seconds and self.cpu_s else None

    @property
    def rate(self) -> str:
        return NOT_MEASURED if self.seconds is None else number(self.batch * STEPS / self.seconds)


def points(run: Run) -> list[Point]:
    """Queries that are asked, before anything is measured."""
    asked = [(r, q) for r in work.ROBOTS for q in work.ASKED if run.selected(f"gpu: queries, {r}, {q}")]
    return [Point(*a, *b) for a, b in product(asked, product(run.settings.dtypes, run.settings.batches))]


def measure(machine: Machine, run: Run, found: Sequence[Point]) -> None:
    """Fill all points; the kernels that will answer are compiled side by side."""
    asked = dict.fromkeys((point.robot, point.query) for point in found)
    cases = {(robot, query): Case(work.ROBOTS[robot](), query) for robot, query in asked}
    settings = run.settings
    work.compile_ahead(
        machine,
        cases.values(),
        settings.dtypes,
        lambda dyn, case: [dyn.engine.variant(case.task, batch) for batch in settings.batches],
    )
    for (robot, query), question in cases.items():
        run.announce(f"gpu: queries, {robot}, {query}")
        mine = [point for point in found if (point.robot, point.query) == (robot, query)]
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
    asked = [(r, i) for r in work.unlike() if run.selected(f"gpu: rollouts, {r}") for i in INTEGRATORS]
    return [Rolled(*a, *b) for a, b in product(asked, product(run.settings.dtypes, work.upto(run, work.ROLLED)))]


def measure_rollouts(machine: Machine, run: Run, found: Sequence[Rolled]) -> None:
    for model, mine in work.by_robot(run, "rollouts", found):
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
