"""Trajectory optimisation: calls of model predictive control, and batches of problems on one thread."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.internals.arguments import Array
from tests.bench.runner import Page, Run
from tests.bench.shared import robot_file
from tests.bench.timing import least

STEPS, DT, CALLS, PROBLEMS, _TURNS = 20, 0.02, 300, 512, 3
_CALL, _ITERATIONS, _SOLVED = {"arm7": 1e4, "quadruped": 1e3}, 5e4, 4e3
"""What was set as a goal: calls a second, iterations of problems a second, and converged problems a second."""


@dataclass
class Control:
    """Calls of `rd.Mpc`, one iteration each: median and 99th percentile, us."""

    name: str
    robot: str
    dofs: int
    median: float
    tail: float

    @property
    def rate(self) -> float:
        return 1e6 / self.median


@dataclass
class Batch:
    """Problems that are solved from gravity forces on one thread, by processor time.

    `converged`: the share; `iterations`: their mean; `rate`: converged problems a second; `speed`: iterations of
    problems a second.
    """

    name: str
    steps: int
    problems: int
    converged: float
    iterations: float
    rate: float
    speed: float

    @property
    def percent(self) -> float:
        return 100.0 * self.converged


@dataclass
class Parts:
    """Parts of one iteration by Crocoddyl, us: of all knots, one thread."""

    name: str
    version: str
    calc: float
    derivatives: float
    backward: float
    forward: float

    @property
    def total(self) -> float:
        return self.calc + self.derivatives + self.backward + self.forward


@dataclass
class Results:
    """What was measured."""

    control: list[Control] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    peers: list[Parts] = field(default_factory=list)


def arm() -> tuple[rd.Dynamics, Any, Array]:
    """The arm that reaches, its cost without a goal, and where it starts."""
    dyn = rd.Dynamics(rd.load_urdf(robot_file("arm7") or ""), joint_forces="damping", threads=1)
    cost = rd.costs.Control(1e-3) + rd.costs.State(q=0.1, qd=0.01) + rd.costs.State(q=100.0, qd=5.0, final=True)
    return dyn, cost, np.zeros(7)


def quadruped() -> tuple[rd.Dynamics, Any, Array]:
    """The quadruped on four fixed feet, which lowers and lifts its body."""
    model = rd.load_urdf(robot_file("quadruped") or "", base="floating")
    q = model.neutral()
    q[7:] = np.tile([0.0, 0.8, -1.6], 4)
    feet = [rd.Point(name) for name in model.link_names if name.endswith("_foot")]
    weight = np.array([50.0] * 6 + [0.2] * 12)
    cost = rd.costs.Control(1e-3) + rd.costs.State(q=weight, qd=0.1) + rd.costs.State(q=weight, qd=0.5, final=True)
    return rd.Dynamics(model, joint_forces="damping", constraints=feet, threads=1), cost, q


def with_goal(cost: Any, goal: Array) -> Any:
    """The cost with a configuration to reach, (nq,) or (..., nq)."""
    parts = [
        rd.costs.State(each.q, each.qd, goal, final=each.final) if isinstance(each, rd.costs.State) else each
        for each in cost.terms
    ]
    return sum(parts)


def measure(run: Run) -> Results:
    """The cases whose names are selected."""
    found = Results()
    for robot, make in (("arm7", arm), ("quadruped", quadruped)):
        for limits in (None, "effort"):
            name = f"{robot}{'' if robot == 'arm7' else ' on four feet'}{', effort limits' if limits else ''}"
            if run.chosen(f"trajectories: control {name}"):
                found.control.append(_controlled(name, robot, *make(), limits))
    for steps in (STEPS, 100):
        for limits in (None, "effort"):
            name = f"arm7{', effort limits' if limits else ''}"
            if run.chosen(f"trajectories: batch {name}, {steps} steps"):
                found.batches.append(_batch(name, steps, limits))
    if run.chosen("trajectories: Crocoddyl"):
        with suppress(ImportError):
            found.peers += _crocoddyl()
    return found


def _controlled(name: str, robot: str, dyn: rd.Dynamics, cost: Any, q: Array, limits: str | None) -> Control:
    """A goal that moves slowly keeps every call busy."""
    mpc = rd.Mpc(dyn, cost, STEPS, DT, limits=limits)
    rng, qd, times = np.random.default_rng(0), np.zeros(dyn.model.nv), []
    q0 = q.copy()
    way = rng.normal(0.0, 0.3, dyn.model.nv) if robot == "arm7" else np.r_[0.0, 0.0, 0.03, np.zeros(15)]
    for k in range(CALLS + 30):
        goal = dyn.model.integrate(q0, np.sin(0.02 * k) * way)
        begin = time.perf_counter()
        tau = mpc(q, qd, goal)
        times.append(time.perf_counter() - begin)
        q, qd = dyn.step(q, qd, tau, DT)
    median, tail = (1e6 * float(each) for each in np.percentile(times[30:], (50, 99)))
    return Control(name, robot, dyn.model.nv, median, tail)


def _batch(name: str, steps: int, limits: str | None) -> Batch:
    dyn, cost, q = arm()
    goals = 0.3 * dyn.model.random_configuration(np.random.default_rng(0), (PROBLEMS,))
    start = np.broadcast_to(q, (PROBLEMS, 7)), np.zeros(7)
    solve = partial(rd.optimize_trajectory, dyn, with_goal(cost, goals[:, None]), start, steps, DT, limits=limits)
    found = solve()
    best = least({"": solve}, 0.0, _TURNS, clock=time.process_time, warm=1)[""]
    done, total = int(found.converged.sum()), int(found.iterations.sum())
    return Batch(name, steps, PROBLEMS, done / PROBLEMS, total / PROBLEMS, done / best, total / best)


def _crocoddyl() -> Iterator[Parts]:
    """The same arm and cost, explicit Euler of Crocoddyl; its wheel crashes with contacts."""
    import crocoddyl  # type: ignore[import-not-found, unused-ignore]
    import pinocchio as pin

    path = str(robot_file("arm7"))
    for name, model in (
        ("arm7", pin.buildModelFromUrdf(path)),
        ("quadruped in the air", pin.buildModelFromUrdf(str(robot_file("quadruped")), pin.JointModelFreeFlyer())),
    ):
        state = crocoddyl.StateMultibody(model)
        floats = model.joints[1].nq == 7
        actuation = (crocoddyl.ActuationModelFloatingBase if floats else crocoddyl.ActuationModelFull)(state)
        goal = np.concatenate((pin.neutral(model), np.zeros(model.nv)))
        off = crocoddyl.CostModelResidual(state, crocoddyl.ResidualModelState(state, goal, actuation.nu))
        effort = crocoddyl.CostModelResidual(state, crocoddyl.ResidualModelControl(state, actuation.nu))
        models = []
        for weight, control in ((0.1, 1e-3), (100.0, 0.0)):
            costs = crocoddyl.CostModelSum(state, actuation.nu)
            costs.addCost("state", off, weight)
            if control:
                costs.addCost("control", effort, control)
            dynamics = crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, costs)
            models.append(crocoddyl.IntegratedActionModelEuler(dynamics, DT if control else 0.0))
        start = np.concatenate((pin.integrate(model, pin.neutral(model), np.full(model.nv, 0.2)), np.zeros(model.nv)))
        problem = crocoddyl.ShootingProblem(start, [models[0]] * STEPS, models[1])
        problem.nthreads = 1
        solver = crocoddyl.SolverFDDP(problem)
        us = [np.zeros(actuation.nu)] * STEPS
        solver.solve(problem.rollout(us), us, _TURNS, True)
        calls = {
            "calc": partial(problem.calc, solver.xs, solver.us),
            "derivatives": partial(problem.calcDiff, solver.xs, solver.us),
            "backward": solver.backwardPass,
            "forward": partial(solver.forwardPass, 1e-3),  # longer steps may diverge
        }
        with _subnormals_as_zero():
            found = least(calls, 0.3, _TURNS)
        yield Parts(name, crocoddyl.__version__, **{key: 1e6 * each for key, each in found.items()})


@contextmanager
def _subnormals_as_zero() -> Iterator[None]:
    """Flush subnormal numbers to zero on x86-64. Without that Crocoddyl is up to 25 times slower on a problem that is
    new, and calc takes twice as long later on."""
    libm, before, changed = ctypes.CDLL(ctypes.util.find_library("m")), *(ctypes.create_string_buffer(32) for _ in "ab")
    if platform.machine() != "x86_64" or libm.fegetenv(before) or libm.fegetenv(changed):
        yield
        return
    control = int.from_bytes(changed[28:32], "little") | 0x8040  # of glibc's fenv_t: MXCSR
    changed[28:32] = control.to_bytes(4, "little")
    libm.fesetenv(changed)
    try:
        yield
    finally:
        libm.fesetenv(before)


def notes(found: Results) -> Iterator[str]:
    """What was reached."""
    for each in found.control:
        yield f"{each.name}: {each.rate:,.0f} calls a second (wanted: {_CALL[each.robot]:,.0f})."
    for each in found.batches:
        if each.steps == STEPS:
            yield (
                f"{each.name}, {STEPS} steps: {each.speed:,.0f} iterations of problems a second on one thread (wanted: "
                f"{_ITERATIONS:,.0f}), {each.rate:,.0f} converged problems a second (wanted: {_SOLVED:,.0f})."
            )
    if not found.peers:
        yield "Not installed: Crocoddyl."


PAGE = Page("trajectories", Results, measure, notes=notes)
