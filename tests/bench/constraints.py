"""Constrained forward dynamics beside Pinocchio's: `python -m tests.bench constraints --write`.

Pinocchio's constraintDynamics gets as many proximal iterations, in the same run and in turns. What its C++ takes is
estimated: its call from Python less that for a robot of one joint without constraints. Accuracy is that of
accelerations on closed states, held against a reference in double precision that leaves constraint forces out:
accelerations that obey the constraints, plus those of the null space of J that the equation of motion asks for.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.engines.cpu.engine import CpuEngine
from robodyn.engines.query_table import find
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.tools.benchmark.tables import Cells
from tests.bench import large_loops
from tests.bench.large_loops import Large
from tests.bench.shared import MODELS, page_of

BATCH = 4096
_STATES = 16
_TURNS = 200
_WANTED_TIMES = {"quadruped, 4 points": 20.0, "humanoid, 2 welds": 18.0}
_WANTED_SHARE = 0.3
"""What was set as a goal: how many times as fast as Pinocchio's C++, and the share of its call from Python."""


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
    errors: dict[str, float]


Constraints = list[Any]
Call = Callable[[], object]


def _robots() -> dict[str, Callable[[], tuple[rd.Model, Constraints, Array]]]:
    """What makes robots, their constraints, and a configuration that is closed, by the names of cases."""
    return {
        "quadruped, 4 points": lambda: _feet("quadruped", rd.Point),
        "humanoid, 2 welds": lambda: _feet("humanoid", rd.Weld),
        "quadruped, 2 loops": _tied_feet,
        "four-bar": _four_bar,
    }


def _bent(name: str) -> tuple[rd.Model, Array, dict[str, Array]]:
    """A robot, a configuration with bent legs, and poses of its feet."""
    model = rd.load_urdf(MODELS / f"{name}.urdf", base="floating")
    bend = np.random.default_rng(0).uniform(-0.5, 0.5, model.nv)
    q = model.integrate(model.neutral(), bend)
    poses = rd.Dynamics(model).forward_kinematics(q)
    return model, q, {link: poses[model.link_index(link)] for link in model.link_names if link.endswith("_foot")}


def _feet(name: str, kind: Any) -> tuple[rd.Model, Constraints, Array]:
    model, q, feet = _bent(name)
    return model, [kind(link, to_at=T[:3, 3] if kind is rd.Point else T) for link, T in feet.items()], q


def _tied_feet() -> tuple[rd.Model, Constraints, Array]:
    """Left feet tied to right ones."""
    model, q, feet = _bent("quadruped")
    names = list(feet)
    pairs = [(names[0], names[1]), (names[2], names[3])]
    return model, [rd.Point(a, b, to_at=(np.linalg.inv(feet[b]) @ feet[a])[:3, 3]) for a, b in pairs], q


def _four_bar() -> tuple[rd.Model, Constraints, Array]:
    """models/loops/four_bar.urdf, closed with the crank along the base."""
    model = rd.load_urdf(MODELS / "loops" / "four_bar.urdf")
    # Coupler and rocker 0.28 and 0.2 m over the 0.2 m that are left.
    coupler = np.arccos((0.28**2 + 0.2**2 - 0.2**2) / (2 * 0.28 * 0.2))
    rocker = np.pi - np.arccos((0.2**2 + 0.2**2 - 0.28**2) / (2 * 0.2 * 0.2))
    return model, [rd.Point("coupler", "rocker", (0.28, 0, 0), (0.2, 0, 0))], np.array([0.0, coupler, rocker])


def measure(selected: Callable[[str], bool], seconds: float, announce: Callable[[str], object]) -> list[Case]:
    """Run the cases whose names are selected."""
    found = []
    for name, make in _robots().items():
        if selected(f"constraints: {name}"):
            announce(f"constraints: {name}")
            found.append(_measured(name, *make(), seconds))
    return found


def _measured(name: str, model: rd.Model, constraints: Constraints, q: Array, seconds: float) -> Case:
    dyn = rd.Dynamics(model, constraints=constraints, threads=1)
    states = _closed(dyn, q)
    J = dyn.constraint_jacobian(states[0][0])
    wanted, peer = _accelerations(dyn, states), _peer(dyn, states)
    calls: dict[tuple[str, str], Call] = {}
    errors: dict[str, float] = {}
    for dtype in ("float64", "float32"):
        ours = rd.Dynamics(model, constraints=constraints, threads=1, dtype=dtype)  # type: ignore[arg-type]
        errors[dtype] = _error(ours.constrained_forward_dynamics(*states)[0], wanted)
        calls["one", dtype] = _call(ours, [each[0] for each in states])
        calls["batch", dtype] = _call(ours, [np.tile(each, (BATCH // _STATES, 1)) for each in states])
    if peer is not None:
        calls["peer", "call"], calls["peer", "smallest"] = peer.call, peer.smallest
        errors["Pinocchio"] = _error(peer.accelerations, wanted)
    us = _in_turns(calls, seconds)
    return Case(
        name,
        len(J),
        int(np.linalg.matrix_rank(J, tol=1e-9)),
        _operations(dyn),
        {dtype: 1e3 * each / BATCH for (what, dtype), each in us.items() if what == "batch"},
        {dtype: each for (what, dtype), each in us.items() if what == "one"},
        us.get(("peer", "call")),
        None if peer is None else 1e3 * (us["peer", "call"] - us["peer", "smallest"]),
        errors,
    )


def _in_turns(calls: dict[tuple[str, str], Call], seconds: float) -> dict[tuple[str, str], float]:
    """Microseconds of each: the least of many short runs, so that what else the machine does matters little."""
    timers = {key: timeit.Timer(call) for key, call in calls.items()}
    for call in calls.values():
        for _ in range(12):  # what is learnt or compiled
            call()
    once = {key: min(timer.repeat(3, 1)) for key, timer in timers.items()}
    loops = {key: max(1, int(seconds / _TURNS / each)) for key, each in once.items()}
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(_TURNS):
        for key, timer in timers.items():
            best[key] = min(best[key], timer.timeit(loops[key]) / loops[key])
    return {key: 1e6 * each for key, each in best.items()}


def _call(dyn: rd.Dynamics, states: list[Array]) -> Call:
    given = [each.astype(dyn.dtype) for each in states]
    out = dyn.constrained_forward_dynamics(*given)
    return lambda: dyn.constrained_forward_dynamics(*given, out=out)


def _operations(dyn: rd.Dynamics) -> int:
    """Of a state: those of its compiled program."""
    engine, question = dyn.variant(engine="cpu").engine, find("constrained_forward_dynamics")
    assert isinstance(engine, CpuEngine) and question is not None
    return engine.generated(question.plain_task(dyn.model)).operations


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


@dataclass
class _Peer:
    """Pinocchio: a call, the same for the smallest robot, and accelerations of all states."""

    call: Call
    smallest: Call
    accelerations: Array


def _peer(dyn: rd.Dynamics, states: list[Array]) -> _Peer | None:
    try:
        from tests.oracles.pinocchio_constraints import Constrained
    except ImportError:
        return None
    try:
        theirs = Constrained(dyn.model, (0.0, *dyn.model.proximal))
    except UnavailableError:
        return None
    found = np.array([theirs.accelerations(*each) for each in zip(*states, strict=True)])
    one = rd.random_tree(1, seed=0, joints=("revolute",))
    small = Constrained(one, (0.0, *one.proximal))
    return _Peer(_of_state(theirs, [each[0] for each in states]), _of_state(small, [np.zeros(1)] * 3), found)


def _of_state(theirs: Any, state: list[Array]) -> Call:
    given = theirs.at.coordinates(state[0]), theirs.at.rates(state[1]), theirs.at.rates(state[2])
    return lambda: theirs.call(*given)


def tables(found: list[Case]) -> list[Cells]:
    """For the screen and the page: none where nothing was measured."""
    if not found:
        return []
    sizes = ("robot", "rows ", "rank ", "operations ")
    speed = (
        *sizes,
        "float64, ns a state ",
        "float32, ns a state ",
        "Pinocchio's C++, ns ",
        "times ",
        "one call, us ",
        "Pinocchio's call, us ",
        "share ",
    )
    rows = [
        (
            *(each.name, str(each.rows), str(each.rank), f"{each.operations:,}"),
            *(f"{each.ns[dtype]:.0f}" for dtype in ("float64", "float32")),
            *(_or_nothing(each.peer_ns, ".0f"), _or_nothing(_times_of(each), ".1f"), f"{each.us['float64']:.2f}"),
            *(_or_nothing(each.peer_us, ".2f"), _or_nothing(_share_of(each), ".2f")),
        )
        for each in found
    ]
    judged = ("float64", "float32", "Pinocchio")
    errors = [(each.name, *(_or_nothing(each.errors.get(what), ".1e") for what in judged)) for each in found]
    return [
        Cells("Constrained forward dynamics", speed, rows),
        Cells("Errors of accelerations", ("robot", *(f"{what} " for what in judged)), errors),
    ]


def _or_nothing(value: float | None, how: str) -> str:
    return "" if value is None else format(value, how)


def _times_of(case: Case) -> float | None:
    return case.peer_ns / case.ns["float64"] if case.peer_ns else None


def _share_of(case: Case) -> float | None:
    return case.us["float64"] / case.peer_us if case.peer_us else None


def notes(found: list[Case]) -> list[str]:
    """What the tables say of what was wanted."""
    lines = []
    for each in found:
        as_fast, share = _times_of(each), _share_of(each)
        if as_fast is None or share is None:
            continue
        wanted = _WANTED_TIMES.get(each.name)
        goal = "" if wanted is None else f" (wanted: {wanted:.0f}, {'reached' if as_fast >= wanted else 'missed'})"
        within = "reached" if share <= _WANTED_SHARE else "missed"
        lines.append(
            f"{each.name}: a state of a batch takes {each.ns['float64']:.0f} ns, Pinocchio's C++ {as_fast:.1f} times "
            f"as long{goal}; one call takes {share:.2f} of its (wanted: {_WANTED_SHARE}, {within})."
        )
    return lines


def page(found: list[Case], large: list[Large], about: dict[str, str]) -> str:
    """The page of docs/benchmarks."""
    text = [
        "Printed by `python -m tests.bench constraints --write`: `constrained_forward_dynamics` on one thread, a state",
        f"of a batch of {BATCH:,} and one call from Python for one state, beside Pinocchio's constraintDynamics for",
        "the same robots and states with as many proximal iterations, in one run, in turns. `C++`: its call less that",
        "of a robot of one joint without constraints, the cost of calling from Python. `operations`: of a state, as",
        "compiled.",
        "",
        f"Errors are those of the worst of {_STATES} closed states, relative to a state's largest acceleration, beside",
        "a reference in double precision by the null space of J. See [constraints](../constraints.md).",
        "",
        "Large trees: one call for one state in double precision, of a ladder of four-bars and of trees with points",
        "held together between leaves. `lacks`: of the equation of motion, relative to the largest constraint force.",
    ]
    return page_of("Constraints", text, about, notes(found), [*tables(found), *large_loops.table(large)])


def document(found: list[Case], large: list[Large], about: dict[str, str]) -> dict[str, Any]:
    """The same for programs."""
    return {**about, "cases": [asdict(each) for each in found], "large": [asdict(each) for each in large]}
