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
from robodyn.engines.query_table import FRAMES, QUERIES, QuerySpec
from robodyn.internals.errors import UnavailableError
from robodyn.io.builders.auto_tree import auto_tree
from robodyn.testing.pinocchio_models import pinocchio_model
from robodyn.tools.benchmark.tables import Cells
from tests.bench import control_loop
from tests.bench.runner import Page, Run
from tests.bench.shared import ROBOTS as BASES
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
    peer: str = "Pinocchio"
    """The other library."""

    @property
    def reached(self) -> bool:
        alone = self.wanted_us is None or self.us <= self.wanted_us
        return alone and (self.batch_ns is None or self.peer_ns is None or self.batch_ns <= self.peer_ns)

    @property
    def remark(self) -> str:
        """Of those that take longer."""
        return "" if self.reached else "more than wanted"


@dataclass
class Results:
    """What was measured."""

    calls: list[Timed]


def measure(run: Run) -> Results:
    found = Results([])
    for name in control_loop.ROBOTS:
        found.calls += _of_loops(name, run)
    for name in ROBOTS:
        model = robot(name)
        peer, plain, smallest = _peer(model), {}, _peer(auto_tree(1))
        batches = {
            (question.name, what): call
            for question in QUERIES.values()
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


def _of_loops(name: str, run: Run) -> Iterator[Timed]:
    """Calls of a control loop, beside other libraries."""
    model = robot(name, BASES.get(name, "fixed"))
    beside = control_loop.peers(model)
    for query, what, call in control_loop.cases(model):
        if run.chosen(f"calls: {name}, {query}, {what}, loop"):
            library, theirs = beside.get((query, what), ("", None))
            us, peer_us = _times(call, theirs, run.seconds)
            yield Timed(name, query, what, "float64", us, peer_us, peer_us, peer=library)


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
        for question in QUERIES.values():
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
    model: rd.Model, question: QuerySpec, dtype: str, leading: tuple[int, ...] = ()
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


_FUNCTIONS = {
    "inverse_dynamics": "rnea q v a",
    "inverse_dynamics f_ext": "rnea q v a forces",
    "forward_dynamics": "aba q v a",
    "forward_dynamics f_ext": "aba q v a forces",
    "joint_reaction": "rnea q v a",
    "joint_reaction f_ext": "rnea q v a forces",
    "mass_matrix": "crba q",
    "mass_matrix_inverse": "computeMinverse q",
    "bias_force": "nonLinearEffects q v",
    "gravity_force": "computeGeneralizedGravity q",
    "coriolis_matrix": "computeCoriolisMatrix q v",
    "inverse_dynamics_gradient": "computeRNEADerivatives q v a",
    "inverse_dynamics_gradient f_ext": "computeRNEADerivatives q v a forces",
    "forward_dynamics_gradient": "computeABADerivatives q v a",
    "forward_dynamics_gradient f_ext": "computeABADerivatives q v a forces",
    "gravity_force_gradient": "computeGeneralizedGravityDerivatives q",
    "regressor": "computeJointTorqueRegressor q v a",
    "kinetic_energy_regressor": "computeKineticEnergyRegressor q v",
    "potential_energy_regressor": "computePotentialEnergyRegressor q",
    "forward_kinematics": "framesForwardKinematics q",
    "kinetic_energy": "computeKineticEnergy q v",
    "potential_energy": "computePotentialEnergy q",
    "center_of_mass": "centerOfMass q",
    "center_of_mass_velocity": "centerOfMass q v no",
    "center_of_mass_acceleration": "centerOfMass q v a no",
    "subtree_center_of_mass": "centerOfMass q yes",
    "center_of_mass_jacobian": "jacobianCenterOfMass q",
    "centroidal_momentum": "ccrba q v",
    "centroidal_momentum_rate": "computeCentroidalMomentumTimeVariation q v a",
    "centroidal_momentum_matrix_derivative": "dccrba q v",
}
"""Pinocchio's functions of a model and its data by query and what is given besides, with what they are given."""


class _Pinocchio:
    """Pinocchio's calls for a robot.

    Raises:
        UnavailableError: it is not installed.
    """

    def __init__(self, model: rd.Model) -> None:
        self.made = made = pinocchio_model(model)
        import pinocchio as pin

        self.pin: Any = pin
        self.data, rng, names = made.createData(), np.random.default_rng(0), model.link_names
        self.ones = np.ones(made.nq)
        self.q, self.q1 = (pin.randomConfiguration(made, -self.ones, self.ones) for _ in range(2))
        self.v, self.a = rng.uniform(-1, 1, (2, made.nv))
        self.forces, self.no, self.yes = pin.StdVec_Force(), False, True
        self.forces.extend(pin.Force.Random() for _ in range(made.njoints))
        self.frame, self.observer = made.nframes - 1, made.getBodyId(names[min(2, len(names) - 1)])
        self.several = [made.getBodyId(names[k % len(names)]) for k in LINKS]

    def calls(self) -> dict[tuple[str, str], Call]:
        """By query and what is given besides."""
        pin, made, data = self.pin, self.made, self.data
        found: dict[tuple[str, str], Call] = {}
        for asked, words in _FUNCTIONS.items():
            query, _, what = asked.partition(" ")
            name, *given = words.split()
            function, arguments = getattr(pin, name), [getattr(self, each) for each in given]
            found[query, what] = lambda f=function, given=arguments: f(made, data, *given)
        return found | self._of_configurations() | self._of_poses() | self._of_frames()

    def _of_configurations(self) -> dict[tuple[str, str], Call]:
        pin, made, q, q1, v, ones = self.pin, self.made, self.q, self.q1, self.v, self.ones
        return {
            ("integrate", ""): lambda: pin.integrate(made, q, v),
            ("difference", ""): lambda: pin.difference(made, q, q1),
            ("interpolate", ""): lambda: pin.interpolate(made, q, q1, 0.3),
            ("distance", ""): lambda: pin.distance(made, q, q1),
            ("neutral", ""): lambda: pin.neutral(made),
            ("random_configuration", ""): lambda: pin.randomConfiguration(made, -ones, ones),
        }

    def _of_poses(self) -> dict[tuple[str, str], Call]:
        pin, made, data, q, frame, observer = self.pin, self.made, self.data, self.q, self.frame, self.observer
        parent, seen = made.frames[frame].parentJoint, pin.LOCAL_WORLD_ALIGNED
        tip = made.frames[frame].placement * pin.SE3(np.eye(3), np.array([0.1, 0.2, 0.3]))

        def pose(relative: bool) -> Any:
            pin.forwardKinematics(made, data, q)
            found = pin.updateFramePlacement(made, data, frame)
            return pin.updateFramePlacement(made, data, observer).actInv(found) if relative else found

        def at_point() -> Any:
            pin.computeJointJacobians(made, data, q)
            return pin.getFrameJacobian(made, data, parent, tip, seen)

        def of_several() -> Any:
            pin.computeJointJacobians(made, data, q)
            pin.updateFramePlacements(made, data)
            return [pin.getFrameJacobian(made, data, each, seen) for each in self.several]

        def relative() -> Any:
            pin.computeJointJacobians(made, data, q)
            pin.updateFramePlacements(made, data)
            J, other = (pin.getFrameJacobian(made, data, each, pin.LOCAL) for each in (frame, observer))
            return J - data.oMf[frame].actInv(data.oMf[observer]).action @ other

        return {
            ("link_pose", ""): lambda: pose(False),
            ("link_pose", "relative_to"): lambda: pose(True),
            ("jacobian", "point"): at_point,
            ("jacobian", f"{len(LINKS)} links"): of_several,
            ("jacobian", "relative_to"): relative,
        }

    def _of_frames(self) -> dict[tuple[str, str], Call]:
        """What is asked in axes: two calls each, but for Jacobians."""
        pin, made, data, frame = self.pin, self.made, self.data, self.frame
        q, v, a, aligned = self.q, self.v, self.a, self.pin.LOCAL_WORLD_ALIGNED
        axes = dict.fromkeys(("", "link by number", "frame=world_aligned"), aligned)
        axes |= {"frame=world": pin.WORLD, "frame=body": pin.LOCAL}
        computed = {
            "link_velocity": (pin.forwardKinematics, (q, v), pin.getFrameVelocity),
            "link_acceleration": (pin.forwardKinematics, (q, v, a), pin.getFrameAcceleration),
            "jacobian_derivative": (pin.computeJointJacobiansTimeVariation, (q, v), pin.getFrameJacobianTimeVariation),
            "link_velocity_gradient": (
                *(pin.computeForwardKinematicsDerivatives, (q, v, a), pin.getFrameVelocityDerivatives),
            ),
            "link_acceleration_gradient": (
                *(pin.computeForwardKinematicsDerivatives, (q, v, a), pin.getFrameAccelerationDerivatives),
            ),
        }

        def two(compute: Any, given: Any, get: Any, seen: Any) -> Call:
            return lambda: (compute(made, data, *given), get(made, data, frame, seen))

        found = {(query, what): two(*each, seen) for query, each in computed.items() for what, seen in axes.items()}
        classical = pin.forwardKinematics, (q, v, a), pin.getFrameClassicalAcceleration
        found["link_acceleration", "classical"] = two(*classical, aligned)
        for what, seen in axes.items():
            found["jacobian", what] = lambda seen=seen: pin.computeFrameJacobian(made, data, q, frame, seen)
        return found


def _peer(model: rd.Model) -> dict[tuple[str, str], Call]:
    """Pinocchio's calls; nothing where it is not installed."""
    try:
        return _Pinocchio(model).calls()
    except UnavailableError:
        return {}


def tables(found: Results) -> list[Cells]:
    asked = "call | {0.query}", "given besides | {0.what}", "dtype | {0.dtype}"
    us = "#us | {0.us:.2f}", "#other library, us | {0.peer_us:.2f}", "#wanted, us | {0.wanted_us:.2f}"
    ns = "#batch, ns | {0.batch_ns:.0f}", "#C++, ns | {0.peer_ns:.0f}"
    return [
        table(name, [each for each in found.calls if each.robot == name], *asked, *us, *ns, "remark | {0.remark}")
        for name in dict.fromkeys(each.robot for each in found.calls)
    ]


def notes(found: Results) -> list[str]:
    judged = [each for each in found.calls if each.wanted_us is not None]
    beside = [each for each in found.calls if each.peer_us and each.peer == "Pinocchio"]
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


PAGE = Page("calls", Results, measure, tables, notes, seconds=0.03)
