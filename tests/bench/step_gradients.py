"""Derivatives of steps and rollouts beside Pinocchio's: `python -m tests.bench step_gradients --write`."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

import robodyn as rd
from robodyn.arguments import Array
from robodyn.benchmark.tables import Cells
from robodyn.integrators import INTEGRATORS
from robodyn.testing.pinocchio_model import pinocchio_model
from tests.bench.runner import Page, Run
from tests.bench.shared import columns, robot
from tests.bench.timing import Call, least

_ROBOTS = ("arm7", "quadruped", "humanoid")
_BATCHES = (1, 64, 1024)
_DT = 1e-3
_STEPS, _ROWS = 1000, (1, 64)
_REPEATS = 7


@dataclass
class OfStep:
    """Microseconds for A and B of a state, by the size of the batch; and the first call."""

    robot: str
    integrator: str
    us: dict[int, float]
    first: float


@dataclass
class Theirs:
    """Microseconds of Pinocchio for a state's derivatives of forward dynamics and of `integrate`, called from Python,
    and of these what three calls cost on a robot of one joint."""

    robot: str
    us: float
    calls: float


@dataclass
class OfRollout:
    """Microseconds for a step of a state, forwards and for the gradient."""

    robot: str
    rows: int
    forwards: float
    gradient: float


@dataclass
class Found:
    """What was measured."""

    steps: list[OfStep]
    theirs: list[Theirs]
    rollouts: list[OfRollout]


def measure(run: Run) -> Found:
    """Run the cases whose names are selected."""
    found = Found([], [], [])
    for name in _ROBOTS:
        model = robot(name)
        for integrator in INTEGRATORS:
            if run.chosen(f"step_gradients: {name}, {integrator}"):
                found.steps.append(_of_step(name, model, integrator))
        if run.chosen(f"step_gradients: {name}, Pinocchio"):
            one = rd.random_tree(1, seed=0, joints=("revolute",))
            found.theirs.append(Theirs(name, _pinocchio(model), _pinocchio(one)))
        if run.chosen(f"step_gradients: {name}, rollouts"):
            found.rollouts += [_of_rollout(name, model, rows) for rows in _ROWS]
    return found


def _states(model: rd.Model, rows: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    qd, tau = rng.uniform(-1.0, 1.0, (2, rows, model.nv))
    return model.random_configuration(rng, (rows,)), qd, tau


def _microseconds(call: Call, repeats: int = _REPEATS, warm: int = 1) -> float:
    (seconds,) = least({"call": call}, 0.0, repeats, warm=warm).values()
    return 1e6 * seconds


def _of_step(name: str, model: rd.Model, integrator: str) -> OfStep:
    dyn, us = rd.Dynamics(model, threads=1), {}
    begin = time.perf_counter()
    dyn.step_gradient(*(each[0] for each in _states(model, 1)), _DT, integrator=integrator)
    first = time.perf_counter() - begin
    for rows in _BATCHES:
        states = _states(model, rows)
        out = dyn.step_gradient(*states, _DT, integrator=integrator)
        call = lambda states=states, out=out: dyn.step_gradient(*states, _DT, integrator=integrator, out=out)  # noqa: E731
        us[rows] = _microseconds(call, max(_REPEATS, 200 // rows)) / rows
    return OfStep(name, integrator, us, first)


def _pinocchio(model: rd.Model, rows: int = 256) -> float:
    """Microseconds of a state, in a loop in Python; A and B are not put together."""
    import pinocchio as pin

    theirs = pinocchio_model(model)
    data = theirs.createData()
    q, qd, tau = _states(model, rows)

    def call() -> None:
        for k in range(rows):
            pin.computeABADerivatives(theirs, data, q[k], qd[k], tau[k])
            step = _DT * (qd[k] + _DT * data.ddq)
            pin.dIntegrate(theirs, q[k], step, pin.ARG0)
            pin.dIntegrate(theirs, q[k], step, pin.ARG1)

    return _microseconds(call) / rows


def _of_rollout(name: str, model: rd.Model, rows: int) -> OfRollout:
    dyn = rd.Dynamics(model, threads=1, check=False)
    q, qd, tau = _states(model, rows)
    given = q, qd, 0.01 * tau, 1e-5, _STEPS
    weight = np.ones((2, rows, model.nv))
    calls = (
        lambda: dyn.rollout(*given, save_every=None),
        lambda: dyn.rollout_vjp(*given, save_every=None, q_weight=weight, qd_weight=weight),
    )
    return OfRollout(name, rows, *(_microseconds(call, 3) / _STEPS / rows for call in calls))


def tables(found: Found) -> list[Cells]:
    """For the screen and the page."""
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys(each.robot for each in (*found.steps, *found.theirs)):
        for each in (each for each in found.steps if each.robot == name):
            rows.append((name, each.integrator, *(f"{us:.2f}" for us in each.us.values()), f"{each.first:.2f}"))
        for theirs in (each for each in found.theirs if each.robot == name):
            rows.append((name, "Pinocchio, calls taken away", f"{theirs.us - theirs.calls:.2f}", "", "", ""))
            rows.append((name, "Pinocchio from Python", f"{theirs.us:.2f}", "", "", ""))
    sizes = "|".join(f"#us, batch of {n}" for n in _BATCHES)
    rollouts = [
        (
            *(each.robot, str(each.rows), f"{each.forwards:.2f}", f"{each.gradient:.2f}"),
            f"{each.gradient / each.forwards:.1f}",
        )
        for each in found.rollouts
    ]
    made = [
        Cells("A and B of a step", columns(f"robot|integrator|{sizes}|#first call, s"), rows),
        Cells("Gradients of rollouts", columns("robot|#states|#us a step|#us with gradient|#times"), rollouts),
    ]
    return [table for table in made if table.rows]


def notes(found: Found) -> list[str]:
    """What the tables say."""
    lines = []
    for theirs in found.theirs:
        for each in found.steps:
            if each.robot == theirs.robot and each.integrator == "semi_implicit_euler":
                most = each.us[_BATCHES[-1]]
                lines.append(
                    f"{each.robot}: A and B of a state of {_BATCHES[-1]} take {most:.2f} us, Pinocchio's derivatives "
                    f"and dIntegrate {theirs.us - theirs.calls:.1f} us without the cost of calls "
                    f"({(theirs.us - theirs.calls) / most:.1f} times as long), {theirs.us:.1f} us from Python "
                    f"({theirs.us / most:.1f} times)."
                )
    return lines


PAGE = Page("step_gradients", Found, measure, tables, notes)
