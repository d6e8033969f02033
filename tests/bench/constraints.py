"""Constrained forward dynamics beside Pinocchio's: `python -m tests.bench constraints --write`.

Errors are held against a reference in double precision that leaves constraint forces out: accelerations that obey the
constraints, plus those of the null space of J that the equation of motion asks for. Large trees whose answer does not
obey its constraints and the equation of motion are not written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import null_space

import robodyn as rd
from robodyn.engines.query_table import find
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.tools.benchmark.timing import measure as timed
from tests.bench.runner import Page, Run
from tests.bench.shared import MODELS, robot
from tests.bench.timing import Call, least
from tests.ladders import ladder

BATCH, DTYPES = 4096, ("float64", "float32")
_STATES = 16
_ACCELERATIONS, _GRADIENT = "constrained_forward_dynamics", "constrained_forward_dynamics_gradient"
_TURNS = 200
_WANTED_TIMES = {"quadruped, 4 points": 20.0, "humanoid, 2 welds": 18.0}
_WANTED_SHARE = 0.3
"""What was set as a goal: how many times as fast as Pinocchio's C++, and the share of its call from Python."""
_WANTED_OF_GRADIENTS = {"quadruped, 4 points": (5.0, 1.0), "humanoid, 2 welds": (5.0, 1.0)}
"""The same of derivatives."""
LADDER_RUNGS = 55
_SHAPES = {"chain": 1.0, "binary tree": 2.0}
_SIZES = (
    *((bodies, 1) for bodies in (60, 100, 200, 300, 400, 500, 700, 1000, 3000, 10_000)),
    *((bodies, 10) for bodies in (100, 300, 1000, 3000, 10_000)),
)
_TOLERANCE = 1e-6


@dataclass
class Gradient:
    """Derivatives of accelerations and forces. `ns`: of a state of a batch, one thread; `us`: of one call for one
    state; `peer_ns`: what Pinocchio's C++ takes with the accelerations that it needs first; `peer_us`: its two calls.
    """

    name: str
    operations: int
    ns: dict[str, float]
    us: dict[str, float]
    peer_us: float | None
    peer_ns: float | None

    @property
    def times(self) -> float | None:
        """As fast as Pinocchio's C++."""
        return self.peer_ns / self.ns["float64"] if self.peer_ns else None

    @property
    def share(self) -> float | None:
        """Of Pinocchio's calls."""
        return self.us["float64"] / self.peer_us if self.peer_us else None


@dataclass
class Case(Gradient):
    """The same of accelerations. `rows`, `rank`: of the Jacobian on closed states; `errors`: of accelerations, relative
    to the largest."""

    rows: int
    rank: int
    errors: dict[str, float | None]


@dataclass
class Large:
    """A large tree.

    `seconds`: of one call, by precision; `off_by`: what the equation of motion lacks in double precision, relative to
    the largest constraint force; `runs`: what the engine says of the query.
    """

    name: str
    bodies: int
    rows: int
    seconds: dict[str, float]
    off_by: float
    runs: str

    @property
    def ns_a_body(self) -> float:
        return 1e9 * self.seconds["float64"] / self.bodies


@dataclass
class Results:
    """What was measured."""

    cases: list[Case]
    large: list[Large]
    gradients: list[Gradient] = field(default_factory=list)


Constraints = list[Any]
Held = tuple[rd.Model, Constraints, Array]
"""A robot, its constraints, and a configuration that is closed."""


def robots() -> dict[str, Callable[[], Held]]:
    """What makes robots, their constraints, and a configuration that is closed, by the names of cases."""
    return {
        "quadruped, 4 points": partial(_feet, "quadruped", rd.Point),
        "humanoid, 2 welds": partial(_feet, "humanoid", rd.Weld),
        "quadruped, 2 loops": partial(_feet, "quadruped", None),
        "four-bar": _four_bar,
    }


def _feet(name: str, kind: Any) -> Held:
    """Feet on the ground, or left ones tied to right ones; with bent legs."""
    model = robot(name)
    bend = np.random.default_rng(0).uniform(-0.5, 0.5, model.nv)
    q = model.integrate(model.neutral(), bend)
    poses = rd.Dynamics(model).forward_kinematics(q)
    feet = {link: poses[model.link_index(link)] for link in model.link_names if link.endswith("_foot")}
    if kind is None:
        pairs = zip(list(feet)[::2], list(feet)[1::2], strict=True)
        held = [rd.Point(a, b, to_at=(np.linalg.inv(feet[b]) @ feet[a])[:3, 3]) for a, b in pairs]
    else:
        held = [kind(link, to_at=T[:3, 3] if kind is rd.Point else T) for link, T in feet.items()]
    return model, held, q


def _four_bar() -> Held:
    """models/loops/four_bar.urdf, closed with the crank along the base."""
    model = rd.load_urdf(MODELS / "loops" / "four_bar.urdf")
    # Coupler and rocker 0.28 and 0.2 m over the 0.2 m that are left.
    coupler = np.arccos((0.28**2 + 0.2**2 - 0.2**2) / (2 * 0.28 * 0.2))
    rocker = np.pi - np.arccos((0.2**2 + 0.2**2 - 0.28**2) / (2 * 0.2 * 0.2))
    return model, [rd.Point("coupler", "rocker", (0.28, 0, 0), (0.2, 0, 0))], np.array([0.0, coupler, rocker])


def measure(run: Run) -> Results:
    found = Results([], [])
    for name, make in robots().items():
        if run.chosen(f"constraints: {name}"):
            found.cases.append(_measured(name, *make(), run.seconds))
        if run.chosen(f"constraints: gradients, {name}"):
            model, held, q = make()
            states = _closed(rd.Dynamics(model, constraints=held), q)
            took, operations = _timed(model, held, states, _GRADIENT, run.seconds)
            found.gradients.append(Gradient(name, operations, *_figures(took)))
    for name, made in large_robots().items():
        if run.chosen(f"constraints: large, {name}"):
            found.large.append(_measured_large(name, *made(), run.seconds))
    return found


def _measured(name: str, model: rd.Model, held: Constraints, q: Array, seconds: float) -> Case:
    dyn = rd.Dynamics(model, constraints=held)
    states = _closed(dyn, q)
    J, wanted, theirs = dyn.constraint_jacobian(states[0][0]), _accelerations(dyn, states), _pinocchio(dyn)
    errors: dict[str, float | None] = {"Pinocchio": None}
    for dtype in DTYPES:
        errors[dtype] = _error(dyn.variant(dtype=dtype).constrained_forward_dynamics(*states)[0], wanted)
    if theirs is not None:
        errors["Pinocchio"] = _error(
            np.array([theirs.accelerations(*row) for row in zip(*states, strict=True)]), wanted
        )
    took, operations = _timed(model, held, states, _ACCELERATIONS, seconds)
    rank = int(np.linalg.matrix_rank(J, tol=1e-9))
    return Case(name, operations, *_figures(took), len(J), rank, errors)


def _timed(
    model: rd.Model, held: Constraints, states: list[Array], query: str, seconds: float
) -> tuple[dict[str, float], int]:
    """Seconds of calls for one state and for a batch, on one thread, and of Pinocchio's calls for this robot and for
    the smallest one; operations of a state in the compiled program."""
    calls: dict[str, Call] = {}
    dyn = rd.Dynamics(model, constraints=held, threads=1, engine="cpu")
    for dtype in DTYPES:
        own = dyn.variant(dtype=dtype)
        calls[f"one {dtype}"] = _call(own, [each[0] for each in states], query)
        calls[dtype] = _call(own, [np.tile(each, (BATCH // _STATES, 1)) for each in states], query)
    smallest = rd.Dynamics(rd.random_tree(1, seed=0, joints=("revolute",)))
    for name, of, row in (("peer", dyn, [each[0] for each in states]), ("smallest", smallest, [np.zeros(1)] * 3)):
        theirs = _pinocchio(of)
        if theirs is not None:
            given = theirs.at.coordinates(row[0]), *map(theirs.at.rates, row[1:])
            calls[f"one {name}"] = partial(theirs.gradient if query == _GRADIENT else theirs.call, *given)
    question = find(query)
    assert question is not None
    operations = dyn.engine.generated(question.plain_task(dyn.model)).operations  # type: ignore[attr-defined]
    return least(calls, seconds, _TURNS), int(operations)


def _figures(took: dict[str, float]) -> tuple[dict[str, float], dict[str, float], float | None, float | None]:
    """Of a state of a batch, ns, and of a call, us; of Pinocchio's call, us, and of its C++, ns."""
    ns, us = {dtype: 1e9 * took[dtype] / BATCH for dtype in DTYPES}, {x: 1e6 * took[f"one {x}"] for x in DTYPES}
    if "one peer" not in took:
        return ns, us, None, None
    return ns, us, 1e6 * took["one peer"], 1e9 * (took["one peer"] - took["one smallest"])


def _call(dyn: rd.Dynamics, states: list[Array], query: str = _ACCELERATIONS) -> Call:
    given, ask = [each.astype(dyn.dtype) for each in states], getattr(dyn, query)
    out = ask(*given)
    return lambda: ask(*given, out=out)


def _pinocchio(dyn: rd.Dynamics) -> Any:
    """The robot with its constraints in Pinocchio, with as many proximal iterations; None where that is not there."""
    try:
        from tests.oracles.pinocchio_constraints import Constrained

        return Constrained(dyn.model, (0.0, *dyn.model.proximal))
    except (ImportError, UnavailableError):
        return None


def _closed(dyn: rd.Dynamics, q: Array) -> list[Array]:
    """Closed states near a configuration, and forces: q, qd, tau."""
    rng = np.random.default_rng(1)
    qd, tau = rng.uniform(-1.0, 1.0, (2, _STATES, dyn.model.nv))
    q = dyn.model.integrate(q, rng.uniform(-0.1, 0.1, (_STATES, dyn.model.nv)))
    for _ in range(12):
        q, qd = dyn.project(q, qd)
    return [q, qd, tau]


def _accelerations(dyn: rd.Dynamics, states: list[Array]) -> Array:
    """J+ (-r) + N y with N' (H qdd + bias - tau) = 0, N the null space of J."""
    judge = rd.Dynamics(dyn.model, engine="reference")
    found = []
    for q, qd, tau in zip(*states, strict=True):
        H, force, J = judge.mass_matrix(q), tau - judge.bias_force(q, qd), judge.constraint_jacobian(q)
        r = judge.delassus(q, qd, tau)[1] - J @ np.linalg.solve(H, force)
        obeying, N = -np.linalg.pinv(J, 1e-9) @ r, null_space(J, 1e-9)
        found.append(obeying + N @ np.linalg.solve(N.T @ H @ N, N.T @ (force - H @ obeying)))
    return np.array(found)


def _error(got: Array, wanted: Array) -> float:
    """The worst of all states, relative to the state's largest acceleration."""
    return float((np.abs(got - wanted).max(-1) / np.abs(wanted).max(-1)).max())


# Large trees.


def large_robots() -> dict[str, Callable[[], Held]]:
    """The same of large ones."""
    found: dict[str, Callable[[], Held]] = {f"ladder of {LADDER_RUNGS} rungs": _ladder}
    for shape in _SHAPES:
        for bodies, loops in _SIZES:
            found[f"{shape}, {bodies:,} bodies, {3 * loops} rows"] = partial(_tree, shape, bodies, loops)
    return found


def _ladder() -> Held:
    model, held = ladder(LADDER_RUNGS)
    return model, held, model.neutral()


def _tree(shape: str, bodies: int, loops: int) -> Held:
    model = rd.auto_tree(bodies, branching=_SHAPES[shape], skew=0.3)
    q = model.random_configuration(np.random.default_rng(1))
    far = np.random.default_rng(0).choice(np.arange(bodies // 2, bodies), 2 * loops, replace=False)
    poses, held = rd.Dynamics(model).forward_kinematics(q), []
    for name, other in np.array(model.body_names)[far].reshape(loops, 2).tolist():
        T, to_T = (poses[model.link_index(each)] for each in (name, other))
        held.append(rd.Point(name, other, to_at=to_T[:3, :3].T @ (T[:3, 3] - to_T[:3, 3]), name=f"{name} {other}"))
    return model, held, q


def _measured_large(name: str, model: rd.Model, constraints: Constraints, q: Array, seconds: float) -> Large:
    dyn = rd.Dynamics(model, constraints=constraints, engine="cpu", threads=1)
    still, tau = np.zeros(model.nv), np.random.default_rng(2).uniform(-1.0, 1.0, model.nv)
    qdd, lam = dyn.constrained_forward_dynamics(q, still, tau)
    J = dyn.constraint_jacobian(q)
    held = lam @ J
    lack = dyn.inverse_dynamics(q, still, qdd) - tau - held
    off_by = float(np.abs(lack).max() / max(1.0, np.abs(held).max()))
    if not off_by <= _TOLERANCE:
        raise rd.RobodynError(f"{name}: the equation of motion lacks {off_by:.1g} of its largest force")
    times = {}
    for dtype in DTYPES:
        times[dtype] = timed(_call(dyn.variant(dtype=dtype), [q, still, tau]), seconds).best_s
    return Large(name, model.n_bodies, len(J), times, off_by, dyn.explain(_ACCELERATIONS).reason)


# What is shown.


def notes(found: Results) -> list[str]:
    lines = []
    for each in found.cases:
        lines += _judged(each.name, each, _WANTED_TIMES.get(each.name), _WANTED_SHARE)
    for slopes in found.gradients:
        lines += _judged(f"Derivatives, {slopes.name}", slopes, *_WANTED_OF_GRADIENTS.get(slopes.name, (None, None)))
    return lines


def _judged(name: str, case: Case | Gradient, times: float | None, share: float | None) -> list[str]:
    if case.times is None or case.share is None:
        return []

    def goal(wanted: float | None, reached: bool) -> str:
        return "" if wanted is None else f" (wanted: {wanted:g}, {'reached' if reached else 'missed'})"

    return [
        f"{name}: a state of a batch takes {case.ns['float64']:.0f} ns, Pinocchio's C++ {case.times:.1f} times as long"
        f"{goal(times, case.times >= (times or 0.0))}; one call takes {case.share:.2f} of its"
        f"{goal(share, case.share <= (share or 0.0))}."
    ]


PAGE = Page("constraints", Results, measure, notes=notes, seconds=0.2)
