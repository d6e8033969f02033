"""Steps with contacts beside MuJoCo's: `python -m tests.bench contacts --write`.

Robots are those of models/ with shapes of our own on a plane. Accelerations of every case are compared with MuJoCo's
before times are taken.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.algorithms.contacts.tasks import block_lengths, most_iterations
from robodyn.internals.arguments import Array
from tests.bench.contact_peers import Peer, measured
from tests.bench.runner import Page, Run
from tests.bench.shared import robot
from tests.bench.timing import Call, least

BATCH, DT = 4096, 0.002
_TURNS, _SETTLE, _LONG, _FEW, _BACK = 12, 150, 100, 4, 8
_PUSHED = 0.03
"""Deviation of the angles that joints are driven to, rad."""
_STEPS: dict[str, Any] = {"dt": DT, "integrator": "mujoco"}
_TOLERANCE, _SHARE = 1e-9, 0.99
"""Of accelerations, relative to the largest of a state; and of how many states: MuJoCo's solver may end early."""
_WANTED = {"quadruped, spheres": (20.0, 35.0), "humanoid, spheres": (15.0, 28.0)}
"""Times mj_step that were set as a goal, in float64 and float32."""
_DTYPES = ("float64", "float32")
_MOST_STEPS = 5.0
"""Times a step that gradients were to take at most."""


@dataclass
class Case:
    """One robot with contacts.

    `ns`: of a step of a state of a batch, one thread, by precision; `mujoco_ns`: the same by `mujoco.rollout`; `us`: of
    calls about one state, by name; `touching`: the mean number of slots that act; `more`: the share of states that need
    more than one block of iterations; `iterations`: their mean.
    """

    name: str
    slots: int
    touching: float
    more: float
    iterations: float
    ns: dict[str, float]
    mujoco_ns: float
    us: dict[str, float]

    @property
    def percent(self) -> float:
        return 100.0 * self.more

    @property
    def times(self) -> dict[str, float]:
        """As fast as MuJoCo."""
        return {dtype: self.mujoco_ns / each for dtype, each in self.ns.items()}


@dataclass
class Gradients:
    """Derivatives of a state of a batch, one thread, in ns, by precision.

    `step`: of a step; `dynamics`: of `contact_forward_dynamics_gradient`; `matrices`: of `step_gradient`; `back`: of a
    step of `rollout_vjp`, forth and back.
    """

    name: str
    step: dict[str, float]
    dynamics: dict[str, float]
    matrices: dict[str, float]
    back: dict[str, float]

    @property
    def times(self) -> dict[str, float]:
        """The slowest of them in steps."""
        return {
            dtype: max(each[dtype] for each in (self.dynamics, self.matrices, self.back)) / step
            for dtype, step in self.step.items()
        }


@dataclass
class Results:
    """What was measured."""

    cases: list[Case]
    gradients: list[Gradients] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)


def _quadruped(box: bool = False, rows: bool = False, **options: Any) -> rd.Model:
    model = robot("quadruped")
    feet = [name for name in model.link_names if name.endswith("foot")]
    shapes = [rd.Box(foot, size=(0.05, 0.03, 0.02)) if box else rd.Sphere(foot, radius=0.02) for foot in feet]
    return _on_ground(model, shapes, rows, **options)


def _humanoid(**options: Any) -> rd.Model:
    corners = [(x, y, -0.0485) for x in (-0.046, 0.154) for y in (-0.04, 0.04)]
    shapes = [rd.Sphere(f"{side}_foot", at=at, radius=0.01) for side in ("left", "right") for at in corners]
    return _on_ground(robot("humanoid"), shapes, False, **options)


def _on_ground(model: rd.Model, shapes: list[Any], rows: bool, **options: Any) -> rd.Model:
    contacts = [rd.Contact(shape, rd.Plane(), friction=0.8) for shape in shapes]
    return model.with_contacts(contacts, limits=rows, dry_friction=rows, **options)


CASES: dict[str, tuple[Callable[..., rd.Model], dict[str, Any]]] = {
    "quadruped, spheres": (_quadruped, {}),
    "quadruped, spheres; limits, dry friction, damping": (_quadruped, {"rows": True}),
    "quadruped, spheres, elliptic": (_quadruped, {"cone": "elliptic"}),
    "quadruped, boxes": (_quadruped, {"box": True}),
    "humanoid, spheres": (_humanoid, {}),
}


def measure(run: Run) -> Results:
    found = Results([])
    for name, (make, options) in CASES.items():
        if run.chosen(f"contacts: {name}"):
            case, peers = _measured(name, make, options, run.seconds)
            found.cases.append(case)
            found.peers += peers
            run.keep(found)
        if run.chosen(f"contacts: gradients of {name}"):
            found.gradients.append(_differentiated(name, make, options, run.seconds))
            run.keep(found)
    return found


def _states(dyn: rd.Dynamics) -> tuple[Array, Array, Array]:
    """States (B, ...) and forces of robots that stand, and whose joints are pushed about."""
    model, rng = dyn.model, np.random.default_rng(0)
    q = model.neutral()
    if "quadruped" in model.name:
        q[7:] = np.tile([0.0, 0.7, -1.4], 4)
    q[2] -= dyn.contact_distances(q).min() + 5e-4
    goal, moved = q[7:].copy(), 1.0 / np.diag(dyn.mass_matrix_inverse(q))[6:]
    stiff, damped = 0.1 * moved / DT**2, 0.4 * moved / DT

    def policy(t: float, q: Array, qd: Array) -> Array:
        tau, there = np.zeros(qd.shape), goal + rng.normal(0.0, _PUSHED, qd[..., 6:].shape)
        tau[..., 6:] = stiff * (there - q[..., 7:]) - damped * qd[..., 6:]
        return tau

    qd = rng.normal(0.0, 0.3, (BATCH, model.nv))
    end = dyn.rollout(np.tile(q, (BATCH, 1)), qd, policy=policy, steps=_SETTLE, **_STEPS)
    return end.q[-1], end.qd[-1], policy(0.0, end.q[-1], end.qd[-1])


def _measured(
    name: str, make: Callable[..., rd.Model], options: dict[str, Any], seconds: float
) -> tuple[Case, list[Peer]]:
    model, forces = make(**options), ("damping",) if options.get("rows") else ()
    dyns = {dtype: rd.Dynamics(model, dtype=dtype, threads=1, joint_forces=forces) for dtype in _DTYPES}
    dyn = dyns["float64"]
    states = _states(dyn)
    one = tuple(each[0].copy() for each in states)
    calls: dict[str, Call] = {}
    for dtype in _DTYPES:
        rows = [each.astype(dtype) for each in states]
        out = dyns[dtype].step(*rows, **_STEPS)
        calls[dtype] = lambda dyn=dyns[dtype], rows=rows, out=out: dyn.step(*rows, **_STEPS, out=out)
    few = [each[:_FEW].copy() for each in states[:2]]
    calls["step"] = lambda: dyn.step(*one, **_STEPS)
    calls["dynamics"] = lambda: dyn.contact_forward_dynamics(*one, dt=DT)
    calls["rollout"] = lambda: dyn.rollout(one[0], one[1], steps=_LONG, **_STEPS)
    calls["few"] = lambda: dyn.rollout(few[0], few[1], steps=_LONG, **_STEPS)
    theirs, converted = _in_mujoco(dyn, states)
    calls |= _mujoco(name, dyn, states, theirs, converted)
    took = {key: 1e9 * each for key, each in least(calls, seconds, _TURNS, clock=time.process_time).items()}
    us = {key: took[key] / 1e3 for key in ("step", "dynamics", "mj_step")}
    us |= {key: took[key] / 1e3 / _LONG for key in ("rollout", "few")}
    ns = {dtype: took[dtype] / BATCH for dtype in _DTYPES}
    touching = float((dyn.contact_distances(states[0]) < 0.0).sum(axis=1).mean())
    assert model.contacts is not None
    (first, again), most = block_lengths(model.contacts), most_iterations(model.contacts)
    left = [_left(make(**options, iterations=n), forces, states) for n in range(first, most, again)]
    iterations = first + again * sum(left)
    slots = len(dyn.contact_distances(one[0]))
    after = rd.converter(model, "mujoco").v_to(*dyn.step(*states, **_STEPS))
    peers = measured(name, theirs, converted, after, ns, seconds)
    return Case(name, slots, touching, left[0], iterations, ns, took["mujoco"] / BATCH, us), peers


def _differentiated(name: str, make: Callable[..., rd.Model], options: dict[str, Any], seconds: float) -> Gradients:
    model, forces = make(**options), ("damping",) if options.get("rows") else ()
    states = _states(rd.Dynamics(model, threads=1, joint_forces=forces))
    calls: dict[str, Call] = {}
    for dtype in _DTYPES:
        dyn, rows = rd.Dynamics(model, dtype=dtype, threads=1, joint_forces=forces), [x.astype(dtype) for x in states]
        moved, by = dyn.step(*rows, **_STEPS), dyn.contact_forward_dynamics_gradient(*rows, dt=DT)
        matrices, weight = dyn.step_gradient(*rows, **_STEPS), np.ones((_BACK + 1, BATCH, model.nv), dtype)
        back = {**_STEPS, "steps": _BACK, "q_weight": weight, "qd_weight": weight}
        calls[f"step {dtype}"] = lambda dyn=dyn, rows=rows, out=moved: dyn.step(*rows, **_STEPS, out=out)
        calls[f"dynamics {dtype}"] = lambda dyn=dyn, rows=rows, out=by: dyn.contact_forward_dynamics_gradient(
            *rows, dt=DT, out=out
        )
        calls[f"matrices {dtype}"] = lambda dyn=dyn, rows=rows, out=matrices: dyn.step_gradient(
            *rows, **_STEPS, out=out
        )
        calls[f"back {dtype}"] = lambda dyn=dyn, rows=rows, back=back: dyn.rollout_vjp(*rows, **back)
    took = {key: 1e9 * each / BATCH for key, each in least(calls, seconds, _TURNS, clock=time.process_time).items()}
    ns = {what: {dtype: took[f"{what} {dtype}"] for dtype in _DTYPES} for what in ("step", "dynamics", "matrices")}
    return Gradients(name, **ns, back={dtype: took[f"back {dtype}"] / _BACK for dtype in _DTYPES})


def _left(model: rd.Model, forces: tuple[str, ...], states: tuple[Array, Array, Array]) -> float:
    """The share of states that do not converge within the iterations of the model."""
    q, qd, tau = states
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rd.ConvergenceWarning)
        report = rd.Dynamics(model, threads=1, joint_forces=forces).rollout(q, qd, tau=tau, steps=1, **_STEPS)
    return 1.0 - float(np.mean(report.converged))


def _in_mujoco(dyn: rd.Dynamics, states: tuple[Array, Array, Array]) -> tuple[Any, tuple[Array, Array, Array]]:
    """MuJoCo's model, and its qpos, qvel and forces."""
    import mujoco

    theirs = mujoco.MjModel.from_xml_string(str(dyn.model.to_mjcf()))
    theirs.opt.timestep = DT
    if not dyn.joint_forces:
        theirs.dof_damping[:] = 0.0
        theirs.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_LIMIT | mujoco.mjtDisableBit.mjDSBL_FRICTIONLOSS
    q, qd, tau = states
    convert = rd.converter(dyn.model, "mujoco")
    return theirs, (convert.q_to(q), convert.v_to(q, qd), convert.tau_to(q, tau))


def _mujoco(
    name: str,
    dyn: rd.Dynamics,
    states: tuple[Array, Array, Array],
    theirs: Any,
    converted: tuple[Array, Array, Array],
) -> dict[str, Call]:
    """MuJoCo's step of one state, from Python, and of all by its own loop on one thread."""
    import mujoco
    from mujoco.rollout import Rollout

    data, (q, qd, tau), (qpos, qvel, applied) = mujoco.MjData(theirs), states, converted

    def put(k: int) -> None:
        data.qpos[:], data.qvel[:], data.qfrc_applied[:] = qpos[k], qvel[k], applied[k]

    wanted, usual, n = [], theirs.opt.tolerance, BATCH // 8
    theirs.opt.tolerance = 0.0
    for k in range(n):
        put(k)
        mujoco.mj_forward(theirs, data)
        wanted.append(data.qacc.copy())
    theirs.opt.tolerance = usual
    found = dyn.contact_forward_dynamics(q[:n], qd[:n], tau[:n], dt=DT)[0]
    right = rd.converter(dyn.model, "mujoco").a_from(q[:n], qd[:n], np.array(wanted))
    off = np.abs(found - right).max(axis=1) / np.abs(right).max(axis=1)
    if not np.quantile(off, _SHARE) <= _TOLERANCE:
        raise rd.RobodynError(f"{name}: accelerations differ by {np.quantile(off, _SHARE):.1g}")
    physics, kind = np.empty((BATCH, mujoco.mj_stateSize(theirs, mujoco.mjtState.mjSTATE_FULLPHYSICS))), mujoco.mjtState
    for k in range(BATCH):
        put(k)
        mujoco.mj_getState(theirs, data, physics[k], kind.mjSTATE_FULLPHYSICS)
    control, loop = applied[:, None], Rollout(nthread=0)
    given = {"control_spec": int(kind.mjSTATE_QFRC_APPLIED), "nstep": 1}

    def step() -> None:
        put(0)
        mujoco.mj_step(theirs, data)

    return {"mj_step": step, "mujoco": lambda: loop.rollout(theirs, data, physics, control, **given)}


def notes(found: Results) -> list[str]:
    lines = []
    for each in found.cases:
        for dtype, wanted in zip(_DTYPES, _WANTED.get(each.name, ()), strict=False):
            times = each.times[dtype]
            reached = "reached" if times >= wanted else "missed"
            lines.append(f"{each.name}, {dtype}: {times:.1f} times MuJoCo (wanted: {wanted:g}, {reached}).")
    if found.gradients:
        slowest = max(max(each.times.values()) for each in found.gradients)
        reached = "reached" if slowest <= _MOST_STEPS else "missed"
        lines.append(f"Gradients take up to {slowest:.1f} times a step (wanted: {_MOST_STEPS:g}, {reached}).")
    return lines


PAGE = Page("contacts", Results, measure, notes=notes, seconds=0.25)
