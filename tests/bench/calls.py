"""What a call from Python costs for one state: `python -m tests.bench calls --write`.

Every public query of a `Dynamics` with every optional argument, alone and all together; functions of a model; lists and
arrays of another precision. Beside Pinocchio's call for the same where it has one, from Python, in the same run and in
turns: the least time of some loops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.benchmark.tables import Cells
from robodyn.builders.auto_tree import auto_tree
from robodyn.errors import UnavailableError
from robodyn.questions import FRAMES, QUESTIONS, Question
from robodyn.testing.pinocchio_model import pinocchio_model
from tests.bench.runner import Page, Run
from tests.bench.shared import geometric_mean, robot, table
from tests.bench.timing import Call, least

ROBOTS = ("arm7", "humanoid")
BATCH = 4096
LINKS = (-1, -3, 2, 4)
"""Several links, by their places among those of a robot."""
_TURNS = 9
_SHORT, _SHARE, _ALONE, _FORCE, _CHECKED = 0.6, 0.6, 1.5, 3.0, 10.0
"""Microseconds: Pinocchio's calls that take no longer we equal, of others we want a share; of an arm where it has none;
`external_force`; lists and other dtypes."""
_ARM = "arm7"


@dataclass
class Timed:
    """Microseconds of a call, ours and Pinocchio's, and what was wanted of ours."""

    robot: str
    query: str
    what: str
    dtype: str
    us: float
    peer_us: float | None
    wanted_us: float | None
    batch_ns: float | None = None
    """A state of a batch, one thread, where Pinocchio has the call."""
    peer_ns: float | None = None
    """Pinocchio's call less that for a robot of one joint: what its C++ takes."""

    @property
    def reached(self) -> bool:
        """Whether ours takes no longer than wanted."""
        alone = self.wanted_us is None or self.us <= self.wanted_us
        return alone and (self.batch_ns is None or self.peer_ns is None or self.batch_ns <= self.peer_ns)

    @property
    def remark(self) -> str:
        """Of those that take longer."""
        return "" if self.reached else "more than wanted"


@dataclass
class Found:
    """What was measured."""

    calls: list[Timed]


def measure(run: Run) -> Found:
    """Run the cases whose names are selected."""
    found = Found([])
    for name in ROBOTS:
        model = robot(name)
        peer, plain, smallest = _peer(model), {}, _peer(auto_tree(1))
        batches = {
            (question.name, what): call
            for question in QUESTIONS.values()
            if any(query == question.name for query, _ in peer)
            for what, call in _calls_of(model, question, "float64", (BATCH,))
            if (question.name, what) in peer
        }
        for query, what, dtype, call in _cases(model):
            if run.chosen(f"calls: {name}, {query}, {what}, {dtype}"):
                key = query, what
                theirs = peer.get(key) if dtype == "float64" else None
                us, peer_us = _times(call, theirs, run.seconds)
                batch_ns = peer_ns = None
                if theirs is not None and key in batches:
                    batch_ns = 1e3 * _times(batches[key], None, run.seconds)[0] / BATCH
                    again, once = _times(theirs, smallest[key], run.seconds / 4)
                    peer_ns = 1e3 * max(0.0, again - (once or 0.0))
                if peer_us is not None and not what:
                    plain[query] = peer_us
                wanted = _wanted(name, query, what, peer_us, plain.get(query))
                found.calls.append(Timed(name, query, what, dtype, us, peer_us, wanted, batch_ns, peer_ns))
    return found


def _times(call: Call, peer: Call | None, seconds: float) -> tuple[float, float | None]:
    """Microseconds of both, in turns."""
    best = least({name: each for name, each in (("ours", call), ("peer", peer)) if each is not None}, seconds, _TURNS)
    return 1e6 * best["ours"], 1e6 * best["peer"] if peer is not None else None


def _wanted(robot: str, query: str, what: str, peer: float | None, plain: float | None) -> float | None:
    """`plain`: Pinocchio's time for the query without what is given besides."""
    if "links" in what and peer is not None:  # a list is looked at in Python
        return peer
    if "list" in what or "links" in what or "other precision" in what:
        return _CHECKED if robot == _ARM else None
    if peer is not None:
        return peer if peer <= _SHORT else _SHARE * peer
    if robot != _ARM:
        return None
    if plain is not None:
        return max(_ALONE, _SHARE * plain)
    return _FORCE if query == "external_force" else _ALONE


def _cases(model: rd.Model) -> Iterator[tuple[str, str, str, Call]]:
    for dtype in ("float64", "float32"):
        for question in QUESTIONS.values():
            for what, call in _calls_of(model, question, dtype):
                yield question.name, what, dtype, call
    rng = np.random.default_rng(0)
    q, q1, qd = model.random_configuration(rng), model.random_configuration(rng), rng.uniform(-1, 1, model.nv)
    wrench, link = rng.uniform(-1, 1, 6), model.link_names[-1]
    listed = q.tolist()
    functions: dict[tuple[str, str], Call] = {
        ("integrate", ""): lambda: model.integrate(q, qd),
        ("integrate", "dt"): lambda: model.integrate(q, qd, 0.01),
        ("integrate", "q as a list"): lambda: model.integrate(listed, qd),
        ("difference", ""): lambda: model.difference(q, q1),
        ("interpolate", ""): lambda: model.interpolate(q, q1, 0.3),
        ("distance", ""): lambda: model.distance(q, q1),
        ("neutral", ""): model.neutral,
        ("random_configuration", ""): model.random_configuration,
        ("random_configuration", "rng"): lambda: model.random_configuration(rng),
        ("external_force", ""): lambda: rd.external_force(model, q, link, wrench),
        ("external_force", "frame"): lambda: rd.external_force(model, q, link, wrench, frame="body"),
    }
    for (name, what), call in functions.items():
        yield name, what, "float64", call


def _calls_of(
    model: rd.Model, question: Question, dtype: str, leading: tuple[int, ...] = ()
) -> Iterator[tuple[str, Call]]:
    """Calls of a query: the plain one, one for each optional argument, and one with all of them."""
    rng = np.random.default_rng(0)
    shapes = {"f_ext": (model.n_bodies, 6), "inertia": (model.n_bodies, 10), "V0": (6,), "dV0": (6,), "point": (3,)}
    arrays: dict[str, Any] = {
        name: rng.uniform(-1, 1, (*leading, *shapes.get(name, (model.nv,)))).astype(dtype) for name in question.arrays
    }
    arrays["q"] = model.random_configuration(rng, leading).astype(dtype)
    if "inertia" in arrays:
        arrays["inertia"] = np.array(np.broadcast_to(model.inertia, (*leading, *model.inertia.shape)), dtype)
    link, observer, links = model.link_names[-1], model.link_names[2], [model.link_names[k] for k in LINKS]
    placed, named = question.arguments({name: arrays[name] for name in question.inputs}, link)
    threads = 1 if leading else None
    dyn = rd.Dynamics(model, dtype=dtype, threads=threads)
    forced = rd.Dynamics(model, dtype=dtype, joint_forces=("damping", "friction"), threads=threads)

    def call(dyn: rd.Dynamics = dyn, *, given: list[Any] = placed, **options: Any) -> Call:
        function, others = getattr(dyn, question.name), {**named, **options}
        return lambda: function(*given, **others)

    optional = {name: arrays[name] for name in question.optional}
    yield "", call()
    for name, array in optional.items():
        yield name, call(**{name: array})
    results = call()()
    out = tuple(map(np.empty_like, results)) if isinstance(results, tuple) else np.empty_like(results)
    if not question.optional or "vector" not in question.optional:
        yield "out", call(out=out)
    if len(optional) > 1:
        yield "all arrays", call(**optional)
    for method in question.possible(model, dyn.engine.name):
        yield f"method={method}", call(method=method)
    if question.of_link:
        by_number, same = question.arguments({name: arrays[name] for name in question.inputs}, model.link_index(link))
        yield "link by number", call(given=by_number, **same)
        yield f"{len(LINKS)} links", call(given=placed[:-1], links=links)
        if question.can_be_relative:
            yield "relative_to", call(relative_to=observer)
    for frame in FRAMES if question.in_frame else ():
        yield f"frame={frame}", call(frame=frame)
    if question.variants:
        yield "classical", call(classical=True)
    if question.joint_forces:
        yield "damping and friction", call(forced)
    if "q" in question.inputs:
        yield "q as a list", call(given=[arrays["q"].tolist(), *placed[1:]])
        other = "float32" if dtype == "float64" else "float64"
        yield "q in the other precision", call(given=[arrays["q"].astype(other), *placed[1:]])


def _peer(model: rd.Model) -> dict[tuple[str, str], Call]:
    """Pinocchio's calls by query and what is given; nothing where it is not installed."""
    try:
        made = pinocchio_model(model)
    except UnavailableError:
        return {}
    import pinocchio as pin

    data, rng = made.createData(), np.random.default_rng(0)
    ones = np.ones(made.nq)
    q, q1 = pin.randomConfiguration(made, -ones, ones), pin.randomConfiguration(made, -ones, ones)
    v, a = rng.uniform(-1, 1, made.nv), rng.uniform(-1, 1, made.nv)
    forces = pin.StdVec_Force()
    for _ in range(made.njoints):
        forces.append(pin.Force.Random())
    frame = made.nframes - 1
    frames = {
        "": pin.LOCAL_WORLD_ALIGNED,
        "link by number": pin.LOCAL_WORLD_ALIGNED,
        "frame=world": pin.WORLD,
        "frame=body": pin.LOCAL,
        "frame=world_aligned": pin.LOCAL_WORLD_ALIGNED,
    }

    def velocity(seen: Any) -> Any:
        pin.forwardKinematics(made, data, q, v)
        return pin.getFrameVelocity(made, data, frame, seen)

    def acceleration(seen: Any, classical: bool) -> Any:
        pin.forwardKinematics(made, data, q, v, a)
        get = pin.getFrameClassicalAcceleration if classical else pin.getFrameAcceleration
        return get(made, data, frame, seen)

    def changing(seen: Any) -> Any:
        pin.computeJointJacobiansTimeVariation(made, data, q, v)
        return pin.getFrameJacobianTimeVariation(made, data, frame, seen)

    observer = made.getBodyId(model.link_names[min(2, len(model.link_names) - 1)])
    several = [made.getBodyId(model.link_names[k % len(model.link_names)]) for k in LINKS]
    parent, placement = made.frames[frame].parentJoint, made.frames[frame].placement
    tip = placement * pin.SE3(np.eye(3), np.array([0.1, 0.2, 0.3]))

    def at_point() -> Any:
        pin.computeJointJacobians(made, data, q)
        return pin.getFrameJacobian(made, data, parent, tip, pin.LOCAL_WORLD_ALIGNED)

    def of_several() -> Any:
        pin.computeJointJacobians(made, data, q)
        pin.updateFramePlacements(made, data)
        return [pin.getFrameJacobian(made, data, each, pin.LOCAL_WORLD_ALIGNED) for each in several]

    def relative() -> Any:
        pin.computeJointJacobians(made, data, q)
        pin.updateFramePlacements(made, data)
        J, other = (pin.getFrameJacobian(made, data, each, pin.LOCAL) for each in (frame, observer))
        return J - data.oMf[frame].actInv(data.oMf[observer]).action @ other

    def pose(relative: bool) -> Any:
        pin.forwardKinematics(made, data, q)
        found = pin.updateFramePlacement(made, data, frame)
        return pin.updateFramePlacement(made, data, observer).actInv(found) if relative else found

    def velocity_gradient(seen: Any) -> Any:
        pin.computeForwardKinematicsDerivatives(made, data, q, v, a)
        return pin.getFrameVelocityDerivatives(made, data, frame, seen)

    def acceleration_gradient(seen: Any) -> Any:
        pin.computeForwardKinematicsDerivatives(made, data, q, v, a)
        return pin.getFrameAccelerationDerivatives(made, data, frame, seen)

    calls: dict[tuple[str, str], Call] = {
        ("link_pose", ""): lambda: pose(False),
        ("link_pose", "relative_to"): lambda: pose(True),
        ("jacobian", "point"): at_point,
        ("jacobian", f"{len(LINKS)} links"): of_several,
        ("jacobian", "relative_to"): relative,
        ("joint_reaction", ""): lambda: pin.rnea(made, data, q, v, a),
        ("joint_reaction", "f_ext"): lambda: pin.rnea(made, data, q, v, a, forces),
        ("center_of_mass_velocity", ""): lambda: pin.centerOfMass(made, data, q, v, False),
        ("center_of_mass_acceleration", ""): lambda: pin.centerOfMass(made, data, q, v, a, False),
        ("subtree_center_of_mass", ""): lambda: pin.centerOfMass(made, data, q, True),
        ("centroidal_momentum_rate", ""): lambda: pin.computeCentroidalMomentumTimeVariation(made, data, q, v, a),
        ("centroidal_momentum_matrix_derivative", ""): lambda: pin.dccrba(made, data, q, v),
        ("kinetic_energy_regressor", ""): lambda: pin.computeKineticEnergyRegressor(made, data, q, v),
        ("potential_energy_regressor", ""): lambda: pin.computePotentialEnergyRegressor(made, data, q),
        ("interpolate", ""): lambda: pin.interpolate(made, q, q1, 0.3),
        ("distance", ""): lambda: pin.distance(made, q, q1),
        ("inverse_dynamics", ""): lambda: pin.rnea(made, data, q, v, a),
        ("inverse_dynamics", "f_ext"): lambda: pin.rnea(made, data, q, v, a, forces),
        ("forward_dynamics", ""): lambda: pin.aba(made, data, q, v, a),
        ("forward_dynamics", "f_ext"): lambda: pin.aba(made, data, q, v, a, forces),
        ("mass_matrix", ""): lambda: pin.crba(made, data, q),
        ("mass_matrix_inverse", ""): lambda: pin.computeMinverse(made, data, q),
        ("bias_force", ""): lambda: pin.nonLinearEffects(made, data, q, v),
        ("gravity_force", ""): lambda: pin.computeGeneralizedGravity(made, data, q),
        ("coriolis_matrix", ""): lambda: pin.computeCoriolisMatrix(made, data, q, v),
        ("inverse_dynamics_gradient", ""): lambda: pin.computeRNEADerivatives(made, data, q, v, a),
        ("inverse_dynamics_gradient", "f_ext"): lambda: pin.computeRNEADerivatives(made, data, q, v, a, forces),
        ("forward_dynamics_gradient", ""): lambda: pin.computeABADerivatives(made, data, q, v, a),
        ("forward_dynamics_gradient", "f_ext"): lambda: pin.computeABADerivatives(made, data, q, v, a, forces),
        ("gravity_force_gradient", ""): lambda: pin.computeGeneralizedGravityDerivatives(made, data, q),
        ("regressor", ""): lambda: pin.computeJointTorqueRegressor(made, data, q, v, a),
        ("forward_kinematics", ""): lambda: pin.framesForwardKinematics(made, data, q),
        ("kinetic_energy", ""): lambda: pin.computeKineticEnergy(made, data, q, v),
        ("potential_energy", ""): lambda: pin.computePotentialEnergy(made, data, q),
        ("center_of_mass", ""): lambda: pin.centerOfMass(made, data, q),
        ("center_of_mass_jacobian", ""): lambda: pin.jacobianCenterOfMass(made, data, q),
        ("centroidal_momentum", ""): lambda: pin.ccrba(made, data, q, v),
        ("integrate", ""): lambda: pin.integrate(made, q, v),
        ("difference", ""): lambda: pin.difference(made, q, q1),
        ("neutral", ""): lambda: pin.neutral(made),
        ("random_configuration", ""): lambda: pin.randomConfiguration(made, -ones, ones),
        ("link_acceleration", "classical"): lambda: acceleration(pin.LOCAL_WORLD_ALIGNED, True),
    }
    for what, seen in frames.items():
        calls["jacobian", what] = lambda seen=seen: pin.computeFrameJacobian(made, data, q, frame, seen)
        calls["jacobian_derivative", what] = lambda seen=seen: changing(seen)
        calls["link_velocity", what] = lambda seen=seen: velocity(seen)
        calls["link_acceleration", what] = lambda seen=seen: acceleration(seen, False)
        calls["link_velocity_gradient", what] = lambda seen=seen: velocity_gradient(seen)
        calls["link_acceleration_gradient", what] = lambda seen=seen: acceleration_gradient(seen)
    return calls


def tables(found: Found) -> list[Cells]:
    """For the screen and the page."""
    asked = "query | {0.query}", "given besides | {0.what}", "dtype | {0.dtype}"
    us = "#us | {0.us:.2f}", "#Pinocchio, us | {0.peer_us:.2f}", "#wanted, us | {0.wanted_us:.2f}"
    ns = "#batch, ns | {0.batch_ns:.0f}", "#C++, ns | {0.peer_ns:.0f}"
    return [
        table(name, [each for each in found.calls if each.robot == name], *asked, *us, *ns, "remark | {0.remark}")
        for name in dict.fromkeys(each.robot for each in found.calls)
    ]


def notes(found: Found) -> list[str]:
    """What the tables say."""
    judged = [each for each in found.calls if each.wanted_us is not None]
    beside = [each for each in found.calls if each.peer_us]
    missed = Counter(f"{each.robot} {each.query}" for each in judged if not each.reached)
    lines = [
        f"{len(found.calls)} calls; of {len(judged)} something was wanted, and {len(judged) - missed.total()} reach it."
    ]
    ratios = [each.us / each.peer_us for each in beside if each.peer_us]
    if ratios:
        lines.append(
            f"{len(ratios)} beside Pinocchio's: {geometric_mean(ratios):.2f} of its time in the mean, "
            f"{min(ratios):.2f} to {max(ratios):.2f}."
        )
    ratios = [each.batch_ns / each.peer_ns for each in beside if each.batch_ns and each.peer_ns]
    if ratios:
        lines.append(
            f"A state of a batch of {BATCH} on one thread takes {geometric_mean(ratios):.3f} of what "
            f"Pinocchio's C++ does in the mean, {min(ratios):.3f} to {max(ratios):.3f}."
        )
    several = (f"{name} ({count})" for name, count in missed.items())
    return [*lines, f"Calls that take more than wanted: {', '.join(several) or 'none'}."]


PAGE = Page("calls", Found, measure, tables, notes, seconds=0.03)
