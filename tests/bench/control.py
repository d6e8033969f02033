"""Whole-body control: one call, and batches on one thread: `python -m tests.bench control --write`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import robodyn as rd
from tests.bench.runner import Page, Run
from tests.bench.shared import robot
from tests.bench.timing import least

BATCH, SINGLE = 4096, 2000
_TURNS = 12
_CALL, _RATE = 20.0, 200_000.0
_BENT = np.tile([0.0, 0.75, -1.5], 4)
_DTYPES = ("float64", "float32")
_CASES = {
    "quadruped, four feet": ("quadruped", 0.03, False),
    "quadruped, four feet, thrown about": ("quadruped", 0.2, False),
    "quadruped, two feet": ("quadruped", 0.03, True),
    "humanoid, eight points": ("humanoid", 0.02, False),
}
"""By name: the robot, the deviation of its coordinates and velocities, and whether half of its feet stand."""


@dataclass
class Case:
    """A robot with tasks and feet.

    `unknowns`: accelerations and forces; `steps`: of the solver, mean and largest; `feasible`: share of states, %;
    `us`: the median of a call for one state; `rate`: states a second of a batch on one thread.
    """

    name: str
    dtype: str
    unknowns: int
    steps: float
    most: int
    feasible: float
    us: float
    rate: float


@dataclass
class Results:
    """What was measured."""

    cases: list[Case]


def measure(run: Run) -> Results:
    found = Results([])
    for name, case in _CASES.items():
        if run.chosen(f"control: {name}"):
            found.cases += [_measured(name, *case, dtype, run.seconds) for dtype in _DTYPES]
            run.keep(found)
    return found


def _made(name: str, dtype: str) -> tuple[rd.WholeBodyControl, np.ndarray]:
    """The controller and the posture about which states are."""
    model = robot(name)
    q = model.neutral()
    if name == "quadruped":
        spheres = [rd.Sphere(link, radius=0.02) for link in model.link_names if link.endswith("foot")]
        q[2], q[7:] = 0.32, _BENT
    else:
        corners = [(x, y, 0.01) for x in (-0.1, 0.1) for y in (-0.035, 0.035)]
        spheres = [rd.Sphere(f"{side}_sole", at=at, radius=0.01) for side in ("left", "right") for at in corners]
        for side in ("left", "right"):
            for joint, angle in (("hip_pitch", -0.4), ("knee", 0.8), ("ankle_pitch", -0.4)):
                q[model.q_start[model.joint_index(f"{side}_{joint}")]] = angle
    trunk = "trunk" if name == "quadruped" else "thorax"
    tasks = [
        rd.Tracking(rd.PoseTask(trunk), 100.0, 20.0, 5.0),
        rd.Tracking(rd.PostureTask(q), 50.0, 10.0, 0.01),
    ]
    dyn = rd.Dynamics(model, dtype=dtype, threads=1, joint_forces=())
    feet = [rd.Contact(each, rd.Plane(), friction=0.7) for each in spheres]
    return rd.WholeBodyControl(dyn, tasks, feet, ("effort",)), q


def _measured(name: str, robot: str, size: float, half: bool, dtype: str, seconds: float) -> Case:
    rng = np.random.default_rng(0)
    wbc, posture = _made(robot, dtype)
    model = wbc.model
    q = model.integrate(np.tile(posture, (BATCH, 1)), size * rng.normal(size=(BATCH, model.nv))).astype(dtype)
    qd = (3.0 * size * rng.normal(size=(BATCH, model.nv))).astype(dtype)
    trunk = wbc.tasks[0].task
    T = rd.Dynamics(model).link_pose(posture, trunk.link)[None].astype(dtype)  # type: ignore[attr-defined]
    active = np.ones(len(wbc.feet), bool)
    if half:
        active[[0, 3]] = False
    targets = np.tile(T, (BATCH, 1, 1, 1))
    report = wbc(q, qd, targets, active)[3]
    steps, good = report.iterations, report.feasible
    call: Any = partial(wbc, q, qd, targets, active)
    best = least({"": call}, seconds, _TURNS, clock=time.process_time)[""]
    times = []
    for k in range(SINGLE):
        begin = time.perf_counter()
        wbc(q[k], qd[k], T, active)
        times.append(time.perf_counter() - begin)
    middle, unknowns = 1e6 * float(np.median(times)), model.nv + 3 * len(wbc.feet)
    return Case(
        name, dtype, unknowns, float(steps.mean()), int(steps.max()), 100.0 * float(good.mean()), middle, BATCH / best
    )


def notes(found: Results) -> list[str]:
    lines = []
    for each in found.cases:
        if each.name == "quadruped, four feet":
            call, rate = (("missed", "reached")[ok] for ok in (each.us <= _CALL, each.rate >= _RATE))
            lines.append(
                f"{each.name}, {each.dtype}: {each.us:.1f} us a call (wanted: {_CALL:g}, {call}), {each.rate:,.0f} "
                f"states a second on one thread (wanted: {_RATE:,.0f}, {rate})."
            )
    return lines


PAGE = Page("control", Results, measure, notes=notes, seconds=0.25)
