"""Velocities of joints for wished twists: one call, and batches on one thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.internals.arguments import Array
from tests.bench.runner import Run
from tests.bench.shared import robot_file
from tests.bench.timing import least

STATES, SINGLE, DT = 20_000, 1000, 0.01
_TURNS = 3
_ARMS = {"arm7": "tool0", "panda_arm": "panda_link8"}
_HUMANOIDS = {"humanoid": ("left_sole", "right_sole", "left_hand")}
SLOW, FAST = 0.1, 3.0
"""Deviations of wished twists, rad/s and m/s. At the greater one limits hold many joints."""


@dataclass
class Velocities:
    """One robot, its tasks and their twists.

    `single`: median of a call for one state, us; `steps`: its mean of steps of the solver; `rate`: states a second of a
    batch on one thread, by processor time.
    """

    robot: str
    dofs: int
    tasks: str
    dtype: str
    twists: float
    single: float
    steps: float
    rate: float


def measure(run: Run) -> Iterator[Velocities]:
    """The robots whose names are selected."""
    for name in (*_ARMS, *_HUMANOIDS):
        path = robot_file(name)
        if path is None or not run.chosen(f"ik: velocity {name}"):
            continue
        floats = name in _HUMANOIDS
        model = rd.load_urdf(path, base="floating" if floats else "fixed")
        tasks: list[Any] = (
            [rd.PoseTask(_ARMS[name])] if not floats else [rd.PoseTask(each) for each in _HUMANOIDS[name]]
        )
        words = "pose of the tool" if not floats else "poses of both feet, which hold exactly, and of a hand; a posture"
        for dtype in ("float64", "float32"):
            for size in (SLOW, FAST):
                yield _measured(name, model, tasks, words, dtype, size)


def _measured(name: str, model: Any, tasks: list[Any], words: str, dtype: str, size: float) -> Velocities:
    rng, n = np.random.default_rng(0), len(tasks)
    q = (0.8 * model.random_configuration(rng, (STATES,))).astype(dtype)
    twists = (size * rng.normal(size=(STATES, n, 6))).astype(dtype)
    hard: tuple[int, ...] = ()
    ik = rd.InverseKinematics(model, tasks, dtype=dtype, threads=1)
    if n > 1:
        q = model.integrate(model.neutral(), 0.3 * rng.normal(size=(STATES, model.nv))).astype(dtype)
        ik, hard = rd.InverseKinematics(model, tasks, model.neutral(), dtype=dtype, threads=1), (0, 1)
        twists[:, :2] = 0.0

    def solve(states: Array, wished: Array) -> Any:
        return ik.velocity(states, wished, DT, hard=hard)

    solve(q[:99], twists[:99])
    solve(q[0], twists[0])
    best = least({"": partial(solve, q, twists)}, 0.0, _TURNS, clock=time.process_time, warm=0)[""]
    times, steps = [], []
    for k in range(SINGLE):
        begin = time.perf_counter()
        _, report = solve(q[k], twists[k])
        times.append(time.perf_counter() - begin)
        steps.append(int(report.iterations))
    middle = 1e6 * float(np.median(times))
    return Velocities(name, model.nv, words, dtype, size, middle, float(np.mean(steps)), STATES / best)
