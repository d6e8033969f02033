"""Rollouts on arrays of the device, beside our CPU engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.tools.benchmark.contenders import draw
from robodyn.tools.benchmark.tables import Cells, number
from robodyn.tools.benchmark.timing import measure as timed
from tests.bench.gpu.machine import Machine
from tests.bench.gpu.work import DISTINCT, Plan, off_by, reason, repeated, wrong
from tests.bench.points import NOT_MEASURED
from tests.bench.shared import show

INTEGRATORS = ("semi_implicit_euler", "rk4")
STEPS, DT = 100, 1e-3
TORQUE = 0.1
"""The largest, N m: light bodies do not get so fast that a step is too long."""


@dataclass
class Run:
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

    def cells(self) -> tuple[str, ...]:
        """As text."""
        rate = NOT_MEASURED if self.seconds is None else number(self.batch * STEPS / self.seconds)
        times = (NOT_MEASURED if each is None else show(each) for each in (self.seconds, self.cpu_s))
        ratio = f"{self.cpu_s / self.seconds:.3g} x" if self.seconds and self.cpu_s else NOT_MEASURED
        return (self.robot, self.integrator, self.dtype, f"{self.batch:,}", *times, ratio, rate)


def runs(plan: Plan) -> list[Run]:
    """Everything that is asked, before anything is measured."""
    return [
        Run(robot, integrator, dtype, batch)
        for robot in plan.unlike
        if plan.selected(name_of(robot))
        for integrator in INTEGRATORS
        for dtype in plan.dtypes
        for batch in plan.rolled
    ]


def name_of(robot: str) -> str:
    """What the runner's filter is held against."""
    return f"gpu: rollouts, {robot}"


def measure(machine: Machine, plan: Plan, found: Sequence[Run], announce: Callable[[str], object]) -> None:
    """Fill all of them."""
    for robot in dict.fromkeys(run.robot for run in found):
        announce(name_of(robot))
        model = plan.robots[robot]()
        drawn = draw(model, DISTINCT)
        states = [drawn["q"], drawn["qd"], TORQUE * drawn["tau"]]
        truths = {each: _last(rd.Dynamics(model, engine="cpu"), each, states) for each in INTEGRATORS}
        for run in (each for each in found if each.robot == robot):
            try:
                _fill(machine, model, run, states, truths[run.integrator], plan.seconds)
            except Exception as error:  # others are measured nevertheless
                run.problem = reason(error)


def _fill(machine: Machine, model: rd.Model, run: Run, states: Sequence[Any], truth: Any, seconds: float) -> None:
    given = [each.astype(run.dtype) for each in states]
    there = [repeated(machine.device.xp, each, run.batch) for each in given]
    dyn = rd.Dynamics(model, engine="gpu", dtype=run.dtype)
    run.off_by = off_by(_last(dyn, run.integrator, there), truth, machine.device.xp.asnumpy)
    run.problem = wrong(run.off_by, run.dtype)
    if run.problem:
        return
    run.seconds = machine.calls(lambda: _last(dyn, run.integrator, there), seconds).best_s
    here = [repeated(np, each, run.batch) for each in given]
    cpu = rd.Dynamics(model, engine="cpu", dtype=run.dtype)
    run.cpu_s = timed(lambda: _last(cpu, run.integrator, here), seconds).best_s


def _last(dyn: rd.Dynamics, integrator: str, states: Sequence[Any]) -> tuple[Any, Any]:
    found = dyn.rollout(*states, dt=DT, steps=STEPS, integrator=integrator, save_every=None)
    return found.q[-1], found.qd[-1]


def table(found: Sequence[Run]) -> Cells:
    """All of them."""
    columns = ("robot", "integrator", "dtype", "batch ", "call ", "CPU engine ", "ratio ", "steps/s ")
    return Cells("Rollouts", columns, [run.cells() for run in found])
