"""Steps with contacts on arrays of the device, beside our CPU engine. `off_by` is that after one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.internals.arguments import Array
from robodyn.tools.benchmark.timing import measure as timed
from tests.bench import contacts
from tests.bench.gpu.machine import Machine
from tests.bench.gpu.queries import DISTINCT, Rolled, repeated, upto, wrong
from tests.bench.points import off_by
from tests.bench.runner import Run
from tests.bench.shared import failing_alone

ROBOT, DTYPE, BATCHES = "quadruped, spheres", "float32", (4096, 65_536, 1_048_576)
WANTED = 2e8
"""Steps per second of that robot in that precision, of the largest batch."""
STEPS = 20
_DEEP, _SPREAD, _FAST = 5e-4, 0.03, 0.1
"""Depth of the lowest foot, m; deviation of joint angles, rad; and of velocities, m/s and rad/s."""
_LONG = {"dt": contacts.DT, "steps": STEPS, "integrator": "mujoco"}


def touched(run: Run) -> list[Rolled]:
    """What is asked, before anything is measured."""
    batches = upto(run, BATCHES) if run.selected(f"gpu: contacts, {ROBOT}") else []
    return [Rolled(ROBOT, "mujoco", dtype, batch, steps=STEPS) for dtype in run.settings.dtypes for batch in batches]


def fastest(found: Sequence[Rolled]) -> float | None:
    """Steps per second of which something is wanted."""
    rates = (each.steps_per_s for each in found if (each.robot, each.dtype) == (ROBOT, DTYPE))
    return max((rate for rate in rates if rate is not None), default=None)


def measure(machine: Machine, run: Run, found: Sequence[Rolled]) -> None:
    """Fill it all."""
    for name in dict.fromkeys(each.robot for each in found):
        make, options = contacts.CASES[name]
        model = make(**options)
        states = _standing(model)
        step = {key: value for key, value in _LONG.items() if key != "steps"}
        truth = rd.Dynamics(model, joint_forces=()).step(*states, **step)  # type: ignore[arg-type]
        for each in found:
            with failing_alone(each):
                _measure(machine, model, each, states, truth, run.seconds)


def _standing(model: rd.Model) -> tuple[Array, Array]:
    """States of robots that have come down on some of their feet."""
    rng, dyn = np.random.default_rng(0), rd.Dynamics(model, joint_forces=())
    q = np.tile(model.neutral(), (DISTINCT, 1))
    q[:, 7:] = np.tile([0.0, 0.7, -1.4], 4) + rng.normal(0.0, _SPREAD, (DISTINCT, model.nq - 7))
    q[:, 2] -= dyn.contact_distances(q).min(axis=1) + _DEEP
    landed = dyn.rollout(q, rng.normal(0.0, _FAST, (DISTINCT, model.nv)), save_every=None, **_LONG)  # type: ignore[arg-type]
    return landed.q[-1], landed.qd[-1]


def _measure(
    machine: Machine, model: rd.Model, each: Rolled, states: tuple[Array, Array], truth: Any, seconds: float
) -> None:
    xp, given = machine.device.xp, [array.astype(each.dtype) for array in states]
    there, here = ([repeated(of, array, each.batch) for array in given] for of in (xp, np))
    dyn, cpu = (
        rd.Dynamics(model, engine=name, dtype=each.dtype, joint_forces=())  # type: ignore[arg-type]
        for name in ("gpu", "cpu")
    )
    after = dyn.step(*there, dt=contacts.DT, integrator="mujoco")
    each.off_by = off_by(after, truth, xp.asnumpy)
    each.problem = wrong(each.off_by, each.dtype)
    if not each.problem:
        each.seconds = machine.calls(lambda: dyn.rollout(*there, save_every=None, **_LONG), seconds).best_s
        each.cpu_s = timed(lambda: cpu.rollout(*here, save_every=None, **_LONG), seconds).best_s
