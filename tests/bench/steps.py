"""Steps of rollouts beside MuJoCo's: `python -m tests.bench steps --write`.

Which robots with damping stay finite at 5 ms, and errors, orders and times of integrators, from the same states and in
one run. MuJoCo's models are ours, body by body, with their damping and friction, without limits and contacts.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.core.integrators import INTEGRATORS
from robodyn.internals.arguments import Array
from robodyn.joints import KINDS
from robodyn.testing.mujoco_models import mujoco_model, places
from robodyn.tools.benchmark.tables import Cells
from tests.bench.shared import MODELS, page_of
from tests.robots import SHARED, example_robot_data

_DT, _SECONDS, _ROWS = 5e-3, 10.0, 6
_FINE = 5e-4
_STEPS = (4e-3, 2e-3, 1e-3, 5e-4)
_FINEST, _UNTIL = 1e-5, 0.4
_BATCH = 64
_ORDERS = (("arm7", "fixed"), ("humanoid", "floating"))


@dataclass
class Stood:
    """A robot with damping that did not stay finite in all rows: the seconds after which each row diverged, ours and
    MuJoCo's, None where it did not, or why MuJoCo has no such robot; and how many of ours diverge with finer steps."""

    robot: str
    base: str
    ours: list[float | None]
    theirs: list[float | None] | str
    finer: int


@dataclass
class Accuracy:
    """The largest error of positions after some time, and the time of a step, by steps of `dt`."""

    robot: str
    integrator: str
    dt: float
    error: float
    us: float
    us_in_batch: float | None


@dataclass
class Found:
    """What was measured."""

    damped: int
    stood: list[Stood]
    accuracy: list[Accuracy]


def measure(selected: Callable[[str], bool], announce: Callable[[str], object]) -> Found:
    """Run the cases whose names are selected."""
    found = Found(0, [], [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows that diverge are what is counted
        for name, base, model in _damped():
            if selected(f"steps: {name}, {base}"):
                announce(f"steps: {name}, {base}")
                found.damped += 1
                found.stood += _stood(name, base, model)
        for name, base in _ORDERS:
            if selected(f"steps: accuracy, {name}"):
                announce(f"steps: accuracy, {name}")
                found.accuracy += _accuracy(name, base)
    return found


def _damped() -> Iterator[tuple[str, str, rd.Model]]:
    """Robots whose files have damping, on both bases, once each."""
    for path in [*SHARED, *example_robot_data()]:
        for base in ("fixed", "floating"):
            try:
                model = rd.load_urdf(path, base=base, strict=False)
                rd.Dynamics(model, engine="reference").forward_dynamics(model.neutral(), *np.zeros((2, model.nv)))
            except rd.RobodynError:
                continue
            if model.damping.any():
                yield path.stem, base, model


def _states(model: rd.Model) -> tuple[Array, Array]:
    rng = np.random.default_rng(1)
    return model.random_configuration(rng, _ROWS), rng.uniform(-1.0, 1.0, (_ROWS, model.nv))


def _stood(name: str, base: str, model: rd.Model) -> list[Stood]:
    q, qd = _states(model)
    dyn = rd.Dynamics(model, joint_forces=("damping", "friction"))
    diverged = dyn.rollout(q, qd, None, _DT, round(_SECONDS / _DT), save_every=None).diverged
    if (diverged < 0).all():
        return []
    finer = dyn.rollout(q, qd, None, _FINE, round(_SECONDS / _FINE), save_every=None).diverged
    try:
        peer = Peer(model, "implicitfast", model.damping, model.friction)
        theirs: list[float | None] | str = [
            peer.stood(a, b, _DT, round(_SECONDS / _DT)) for a, b in zip(q, qd, strict=True)
        ]
    except rd.UnavailableError as error:
        theirs = str(error)
    ours = [_DT * int(step) if step >= 0 else None for step in diverged]
    return [Stood(name, base, ours, theirs, int((finer >= 0).sum()))]


class Peer:
    """MuJoCo's model of a robot with damping and friction (nv,).

    Raises:
        UnavailableError: MuJoCo has none.
    """

    def __init__(self, model: rd.Model, integrator: str, damping: Array, friction: Array) -> None:
        if model.has_mimic:
            raise rd.UnavailableError("joints mimic others, which MuJoCo has as soft constraints")
        import mujoco

        mujoco.set_mju_user_warning(lambda _: None)  # instability is what is looked for; it would write a file
        self._mujoco, self._model, self._theirs = mujoco, model, mujoco_model(model, links=False)
        self._theirs.opt.disableflags = 0
        self._theirs.opt.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator.upper()}")
        self._q_at, self._v_at = places(model, self._theirs)
        self._theirs.dof_damping[self._v_at] = damping
        self._theirs.dof_frictionloss[self._v_at] = friction
        self._data = mujoco.MjData(self._theirs)
        self._floats = bool(model.n_bodies) and KINDS[model.joint_kind[0]].name == "floating"

    def place(self, q: Array, qd: Array) -> None:
        """Begin at a state."""
        mujoco, data = self._mujoco, self._data
        mujoco.mj_resetData(self._theirs, data)
        own, v = self._model.tree_coordinates(q), qd.copy()
        for start in self._model.quaternion_starts.tolist():
            own[start : start + 4] = own[[start + 3, start, start + 1, start + 2]]
        if self._floats:
            R = np.empty(9)
            mujoco.mju_quat2Mat(R, own[3:7])
            v[:3] = R.reshape(3, 3) @ v[:3]
        data.qpos[self._q_at], data.qvel[self._v_at] = own, v

    def step(self, dt: float, steps: int) -> None:
        """Make steps."""
        self._theirs.opt.timestep = dt
        self._mujoco.mj_step(self._theirs, self._data, steps)

    def stood(self, q: Array, qd: Array, dt: float, steps: int) -> float | None:
        """The time at which MuJoCo gives a rollout up, None where it does not."""
        self.place(q, qd)
        kinds = self._mujoco.mjtWarning
        for k in range(steps):
            self.step(dt, 1)
            if any(
                self._data.warning[each].number
                for each in (kinds.mjWARN_BADQACC, kinds.mjWARN_BADQVEL, kinds.mjWARN_BADQPOS)
            ):
                return dt * k
        return None

    def q(self) -> Array:
        """Where it is, in our coordinates."""
        own: Array = self._data.qpos[self._q_at].copy()
        for start in self._model.quaternion_starts.tolist():
            own[start : start + 4] = own[[start + 1, start + 2, start + 3, start]]
        return own


def _accuracy(name: str, base: str) -> Iterator[Accuracy]:
    model = rd.load_urdf(MODELS / f"{name}.urdf", base=base)
    damping = model.damping if model.damping.any() else np.where(np.isfinite(model.effort_limit), 0.01, 0.0)
    q, qd = (each[:4] for each in _states(model))
    dyn = rd.Dynamics(model, threads=1)

    def ours(integrator: str, dt: float, rows: int = 4) -> tuple[Array, float]:
        at, speed = np.resize(q, (rows, model.nq)), np.resize(qd, (rows, model.nv))
        begin = time.perf_counter()
        run = dyn.rollout(
            at, speed, None, dt, round(_UNTIL / dt), integrator=integrator, damping=damping, save_every=None
        )
        return run.q[-1], time.perf_counter() - begin

    right, _ = ours("rk4", _FINEST)
    for integrator in INTEGRATORS:
        for dt in _STEPS:
            reached, _ = ours(integrator, dt)
            times = {rows: min(ours(integrator, dt, rows)[1] for _ in range(3)) for rows in (1, _BATCH)}
            each = {rows: 1e6 * seconds / round(_UNTIL / dt) / rows for rows, seconds in times.items()}
            error = float(np.abs(model.difference(right, reached)).max())
            yield Accuracy(name, integrator, dt, error, each[1], each[_BATCH])
    for integrator in ("Euler", "implicitfast", "implicit", "RK4"):
        peer = Peer(model, integrator, damping, np.zeros(model.nv))
        for dt in _STEPS:
            errors, seconds = [], float("inf")
            for k in range(4):
                peer.place(q[k], qd[k])
                begin = time.perf_counter()
                peer.step(dt, round(_UNTIL / dt))
                seconds = min(seconds, time.perf_counter() - begin)
                errors.append(np.abs(model.difference(right[k], peer.q())).max())
            yield Accuracy(
                name, f"MuJoCo {integrator}", dt, float(max(errors)), 1e6 * seconds / round(_UNTIL / dt), None
            )


def tables(found: Found) -> list[Cells]:
    """For the screen and the page."""
    headings = ("robot", "base", "ours diverge at, s", "MuJoCo's, s", f"of ours with {1e3 * _FINE:g} ms")
    stood = [
        (each.robot, each.base, _listed(each.ours), _listed(each.theirs), str(each.finer) + f" of {_ROWS}")
        for each in found.stood
    ]
    made = [Cells("Robots that do not stay finite", headings, stood)] if stood else []
    for robot in dict.fromkeys(each.robot for each in found.accuracy):
        rows = []
        for integrator in dict.fromkeys(each.integrator for each in found.accuracy):
            own = [each for each in found.accuracy if (each.robot, each.integrator) == (robot, integrator)]
            errors = [each.error for each in own]
            order = f"{np.log2(errors[-2] / errors[-1]):.2f}" if errors[-2] < 0.5 else ""
            last = own[-1]
            batch = "" if last.us_in_batch is None else f"{last.us_in_batch:.2f}"
            rows.append((integrator, *(f"{error:.1e}" for error in errors), order, f"{last.us:.2f}", batch))
        steps = tuple(f"error, {1e3 * dt:g} ms" for dt in _STEPS)
        made.append(Cells(robot, ("integrator", *steps, "order ", "us a step ", f"us, of {_BATCH} "), rows))
    return made


def _listed(times: list[float | None] | str) -> str:
    if isinstance(times, str):
        return times
    return ", ".join("-" if t is None else f"{t:.2f}" for t in times)


def notes(found: Found) -> list[str]:
    """What the tables say."""
    worse = [
        f"{each.robot}, {each.base}"
        for each in found.stood
        if not isinstance(each.theirs, str)
        and any(a is not None and b is None for a, b in zip(each.ours, each.theirs, strict=True))
    ]
    lines = [
        f"{found.damped} robots with damping, {_ROWS} states of each, {_SECONDS:g} s at {1e3 * _DT:g} ms: "
        f"{found.damped - len(found.stood)} stay finite.",
        f"Rows that diverge where MuJoCo's implicitfast stays finite: {', '.join(worse) or 'none'}.",
    ]
    return lines if found.damped else []


def page(found: Found, about: dict[str, str]) -> str:
    """The page of docs/benchmarks."""
    text = [
        "Printed by `python -m tests.bench steps --write`. Robots of the shared collection and of example-robot-data",
        "whose files have damping, on a fixed and a floating base, from random states under gravity, with damping and",
        "friction, without limits and contacts; MuJoCo from the same states. Those that are listed have joints without",
        "damping: they fall faster and faster, until forces that are products of velocities, which both libraries take",
        "at the beginning of a step, overshoot within it; shorter steps help, as the last column says. See",
        "[rollouts](../rollouts.md).",
        "",
        f"Errors are the largest of positions (rad, m) after {_UNTIL:g} s, of four states, beside `rk4` with steps of",
        f"{1e6 * _FINEST:g} us; the order is that of the last two. Times are of one thread, with the shortest steps,",
        f"of one state, and of each of {_BATCH}.",
    ]
    return page_of("Steps in time", text, about, notes(found), tables(found))


def document(found: Found, about: dict[str, str]) -> dict[str, Any]:
    """The same for programs."""
    return {**about, **asdict(found)}
