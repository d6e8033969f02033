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

import robodyn as rd
from robodyn.engines.query_table import find
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.tools.benchmark.tables import Cells
from robodyn.tools.benchmark.timing import measure as timed
from tests.bench.runner import Page, Run
from tests.bench.shared import MODELS, robot, table
from tests.bench.timing import Call, least
from tests.ladders import ladder

BATCH = 4096
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
class Case:
    """One robot with constraints.

    `rows`, `rank`: of the Jacobian on closed states; `ns`: of a state of a batch, one thread; `us`: of one call for one
    state; `peer_ns`: what Pinocchio's C++ takes; `peer_us`: its call; `errors`: of accelerations, relative to the
    largest.
    """

    name: str
    rows: int
    rank: int
    operations: int
    ns: dict[str, float]
    us: dict[str, float]
    peer_us: float | None
    peer_ns: float | None
    errors: dict[str, float | None]

    @property
    def times(self) -> float | None:
        """As fast as Pinocchio's C++."""
        return self.peer_ns / self.ns["float64"] if self.peer_ns else None

    @property
    def share(self) -> float | None:
        """Of Pinocchio's call."""
        return self.us["float64"] / self.peer_us if self.peer_us else None


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
        """Time of a call in double precision, for each body."""
        return 1e9 * self.seconds["float64"] / self.bodies


@dataclass
class Results:
    """What was measured."""

    cases: list[Case]
    large: list[Large]
    gradients: list[Gradient] = field(default_factory=list)


Constraints = list[Any]


def robots() -> dict[str, Callable[[], tuple[rd.Model, Constraints, Array]]]:
    """What makes robots, their constraints, and a configuration that is closed, by the names of cases."""
    return {
        "quadruped, 4 points": partial(_feet, "quadruped", rd.Point),
        "humanoid, 2 welds": partial(_feet, "humanoid", rd.Weld),
        "quadruped, 2 loops": partial(_feet, "quadruped", None),
        "four-bar": _four_bar,
    }


def _feet(name: str, kind: Any) -> tuple[rd.Model, Constraints, Array]:
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


def _four_bar() -> tuple[rd.Model, Constraints, Array]:
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
            found.gradients.append(_differentiated(name, *make(), run.seconds))
    for name, made in large_robots().items():
        if run.chosen(f"constraints: large, {name}"):
            found.large.append(_measured_large(name, *made(), run.seconds))
    return found


def _measured(name: str, model: rd.Model, constraints: Constraints, q: Array, seconds: float) -> Case:
    dyn = rd.Dynamics(model, constraints=constraints, threads=1)
    states = _closed(dyn, q)
    J, wanted = dyn.constraint_jacobian(states[0][0]), _accelerations(dyn, states)
    calls, theirs = _peer(dyn, states)
    errors = {"float64": None, "float32": None, "Pinocchio": None if theirs is None else _error(theirs, wanted)}
    for dtype in ("float64", "float32"):
        ours = rd.Dynamics(model, constraints=constraints, threads=1, dtype=dtype)
        errors[dtype] = _error(ours.constrained_forward_dynamics(*states)[0], wanted)
        calls[dtype] = _call(ours, [each[0] for each in states])
        calls[f"batch {dtype}"] = _call(ours, [np.tile(each, (BATCH // _STATES, 1)) for each in states])
    us = {key: 1e6 * each for key, each in least(calls, seconds, _TURNS).items()}
    one = {dtype: us[dtype] for dtype in ("float64", "float32")}
    ns = {dtype: 1e3 * us[f"batch {dtype}"] / BATCH for dtype in one}
    peer_ns = None if theirs is None else 1e3 * (us["peer"] - us["smallest"])
    rank = int(np.linalg.matrix_rank(J, tol=1e-9))
    return Case(name, len(J), rank, _operations(dyn), ns, one, us.get("peer"), peer_ns, errors)


def _differentiated(name: str, model: rd.Model, constraints: Constraints, q: Array, seconds: float) -> Gradient:
    dyn = rd.Dynamics(model, constraints=constraints, threads=1)
    states = _closed(dyn, q)
    calls, theirs = _peer(dyn, states, gradient=True)
    for dtype in ("float64", "float32"):
        ours = rd.Dynamics(model, constraints=constraints, threads=1, dtype=dtype)
        calls[dtype] = _call(ours, [each[0] for each in states], _GRADIENT)
        calls[f"batch {dtype}"] = _call(ours, [np.tile(each, (BATCH // _STATES, 1)) for each in states], _GRADIENT)
    us = {key: 1e6 * each for key, each in least(calls, seconds, _TURNS).items()}
    one = {dtype: us[dtype] for dtype in ("float64", "float32")}
    ns = {dtype: 1e3 * us[f"batch {dtype}"] / BATCH for dtype in one}
    peer_ns = None if theirs is None else 1e3 * (us["peer"] - us["smallest"])
    return Gradient(name, _operations(dyn, _GRADIENT), ns, one, us.get("peer"), peer_ns)


def _call(dyn: rd.Dynamics, states: list[Array], query: str = _ACCELERATIONS) -> Call:
    given, ask = [each.astype(dyn.dtype) for each in states], getattr(dyn, query)
    out = ask(*given)
    return lambda: ask(*given, out=out)


def _operations(dyn: rd.Dynamics, query: str = _ACCELERATIONS) -> int:
    """Of a state: those of its compiled program."""
    engine, question = dyn.variant(engine="cpu").engine, find(query)
    assert question is not None
    return int(engine.generated(question.plain_task(dyn.model)).operations)  # type: ignore[attr-defined]


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
        U, s, Vt = np.linalg.svd(J)
        rank = int((s > 1e-9 * s[0]).sum())
        obeying = Vt[:rank].T @ (U[:, :rank].T @ -r / s[:rank])
        N = Vt[rank:].T
        found.append(obeying + N @ np.linalg.solve(N.T @ H @ N, N.T @ (force - H @ obeying)))
    return np.array(found)


def _error(got: Array, wanted: Array) -> float:
    """The worst of all states, relative to the state's largest acceleration."""
    return float((np.abs(got - wanted).max(-1) / np.abs(wanted).max(-1)).max())


def _peer(dyn: rd.Dynamics, states: list[Array], *, gradient: bool = False) -> tuple[dict[str, Call], Array | None]:
    """Pinocchio: a call for accelerations or for their derivatives, the same for the smallest robot, and accelerations
    of all states."""
    try:
        from tests.oracles.pinocchio_constraints import Constrained

        theirs = Constrained(dyn.model, (0.0, *dyn.model.proximal))
    except (ImportError, UnavailableError):
        return {}, None
    one = rd.random_tree(1, seed=0, joints=("revolute",))
    small = Constrained(one, (0.0, *one.proximal))

    def call(theirs: Any, q: Array, qd: Array, tau: Array) -> Call:
        given = theirs.at.coordinates(q), theirs.at.rates(qd), theirs.at.rates(tau)
        return (lambda: theirs.gradient(*given)) if gradient else (lambda: theirs.call(*given))

    calls = {"peer": call(theirs, *(each[0] for each in states)), "smallest": call(small, *[np.zeros(1)] * 3)}
    return calls, np.array([theirs.accelerations(*each) for each in zip(*states, strict=True)])


# Large trees.


def large_robots() -> dict[str, Callable[[], tuple[rd.Dynamics, Array]]]:
    """What makes robots with constraints, and configurations where these hold, by the names of cases."""
    found: dict[str, Callable[[], tuple[rd.Dynamics, Array]]] = {f"ladder of {LADDER_RUNGS} rungs": _ladder}
    for shape in _SHAPES:
        for bodies, loops in _SIZES:
            found[f"{shape}, {bodies:,} bodies, {3 * loops} rows"] = partial(_tree, shape, bodies, loops)
    return found


def _ladder() -> tuple[rd.Dynamics, Array]:
    model, held = ladder(LADDER_RUNGS)
    return rd.Dynamics(model, constraints=held, engine="cpu", threads=1), model.neutral()


def _tree(shape: str, bodies: int, loops: int) -> tuple[rd.Dynamics, Array]:
    model = rd.auto_tree(bodies, branching=_SHAPES[shape], skew=0.3)
    q = model.random_configuration(np.random.default_rng(1))
    far = np.random.default_rng(0).choice(np.arange(bodies // 2, bodies), 2 * loops, replace=False)
    poses, held = rd.Dynamics(model).forward_kinematics(q), []
    for name, other in np.array(model.body_names)[far].reshape(loops, 2).tolist():
        T, to_T = (poses[model.link_index(each)] for each in (name, other))
        held.append(rd.Point(name, other, to_at=to_T[:3, :3].T @ (T[:3, 3] - to_T[:3, 3]), name=f"{name} {other}"))
    return rd.Dynamics(model, constraints=held, engine="cpu", threads=1), q


def _measured_large(name: str, dyn: rd.Dynamics, q: Array, seconds: float) -> Large:
    still = np.zeros(dyn.model.nv)
    tau = np.random.default_rng(2).uniform(-1.0, 1.0, dyn.model.nv)
    qdd, lam = dyn.constrained_forward_dynamics(q, still, tau)
    J = dyn.constraint_jacobian(q)
    held = lam @ J
    lack = dyn.inverse_dynamics(q, still, qdd) - tau - held
    off_by = float(np.abs(lack).max() / max(1.0, np.abs(held).max()))
    if not off_by <= _TOLERANCE:
        raise rd.RobodynError(f"{name}: the equation of motion lacks {off_by:.1g} of its largest force")
    times = {}
    for dtype in ("float64", "float32"):
        call = _call(dyn.variant(dtype=dtype), [q, still, tau])
        times[dtype] = timed(call, seconds).best_s
    runs = dyn.explain("constrained_forward_dynamics").reason
    return Large(name, dyn.model.n_bodies, len(J), times, off_by, runs)


# What is shown.


def tables(found: Results) -> list[Cells]:
    sizes = "robot | {0.name}", "#rows | {0.rows}", "#rank | {0.rank}", "#operations | {0.operations:,}"
    ns = "#float64, ns a state | {0.ns[float64]:.0f}", "#float32, ns a state | {0.ns[float32]:.0f}"
    peer = "#Pinocchio's C++, ns | {0.peer_ns:.0f}", "#times | {0.times:.1f}"
    us = "#one call, us | {0.us[float64]:.2f}", "#Pinocchio's call, us | {0.peer_us:.2f}", "#share | {0.share:.2f}"
    errors = (f"#{what} | {{0.errors[{what}]:.1e}}" for what in ("float64", "float32", "Pinocchio"))
    calls = "#float64 | {0.seconds[float64]:time}", "#ns a body | {0.ns_a_body:.0f}"
    runs = *calls, "#float32 | {0.seconds[float32]:time}", "#lacks | {0.off_by:.0e}", "runs | {0.runs}"
    made = [
        table("Constrained forward dynamics", found.cases, *sizes, *ns, *peer, *us),
        table(
            "Derivatives, with the accelerations that they need first",
            found.gradients,
            "robot | {0.name}",
            sizes[-1],
            *ns,
            *peer,
            *us,
        ),
        table("Errors of accelerations", found.cases, "robot | {0.name}", *errors),
        table("Large trees", found.large, "robot | {0.name}", "#bodies | {0.bodies:,}", "#rows | {0.rows}", *runs),
    ]
    return [each for each in made if each.rows]


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


PAGE = Page("constraints", Results, measure, tables, notes, seconds=0.2)
