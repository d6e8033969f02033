"""Pinocchio's models: a Model from a `pinocchio.Model`, joint by joint."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from robodyn.core.description import Inertial, Joint, Limits, Link, Mimic, Pose, RobotDescription
from robodyn.core.findings import Notes, Report
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError, LoadError, UnavailableError
from robodyn.internals.messages import quoted
from robodyn.internals.records import dataclass
from robodyn.io.builders.assemble import assemble
from robodyn.io.builders.checks import check_and_resolve
from robodyn.io.builders.coefficients import finite_gravity, with_coefficients
from robodyn.io.builders.foreign import foreign
from robodyn.io.builders.formats import reads_object

_Z, _Y, _X = (0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0)
_MOST = float(np.finfo(np.float64).max)
_WHOLE = {"JointModelFreeFlyer": "floating", "JointModelSpherical": "spherical", "JointModelPlanar": "planar"}
_CHAINS = {
    "JointModelSphericalZYX": tuple(("revolute", axis) for axis in (_Z, _Y, _X)),
    "JointModelTranslation": tuple(("prismatic", axis) for axis in (_X, _Y, _Z)),
}
"""Joints that are others one after another, with the same coordinates and velocities."""


@dataclass(frozen=True)
class _Part:
    """A joint of ours: its type, axes and pitch, and where it stands behind the one before."""

    type: str
    axis: tuple[float, float, float] = _Z
    pitch: float = 0.0
    origin: Pose = dataclasses.field(default_factory=Pose)
    nv: int = 1


def from_pinocchio(pin_model: Any, strict: bool = True) -> Model:
    """The same robot as a `pinocchio.Model`: frames of bodies become links, the universe the root link.

    Joints keep their order and names, so that `rd.converter(model, "pinocchio", joint_names=model.joint_names)` leads
    to its states. Composite joints, Translation and SphericalZYX become joints "name/1", "name/2" and so on. What
    Pinocchio calls armature, damping, friction and limits is taken over.

    Args:
        pin_model: the model; it is not changed.
        strict: whether a negative mass, damping, friction or armature, or a principal moment of inertia that is
            negative by half of the largest or more, is refused; if not, it is used and reported. Moments that break
            the triangle inequality are used and reported in any case.

    Raises:
        LoadError: a joint that this library has not, or an unusable robot.
        ArgumentError: no `pinocchio.Model`.
        UnavailableError: Pinocchio is not installed.
    """
    try:
        import pinocchio as pin
    except ImportError as error:
        raise UnavailableError(
            f"from_pinocchio: Pinocchio cannot be imported here ({error}): pip install pin"
        ) from error
    if not strict_types.is_a(pin_model, pin.Model):
        other = reads_object(pin_model) or "; robodyn.load reads files and texts"
        raise ArgumentError(f"pin_model: got {strict_types.type_name(pin_model)}; wanted a pinocchio.Model{other}")
    with foreign("the pinocchio.Model"):
        reader = _Reader(pin, pin_model)
        description = reader.description()
        gravity = finite_gravity(np.array(pin_model.gravity.linear))
    checked, mimics = check_and_resolve(description, mimic="follow", strict=strict)
    model = assemble(checked, mimics, "fixed", gravity)
    with foreign("the pinocchio.Model"):
        found = reader.coefficients(model)
    return with_coefficients(model, found, "pinocchio", strict)


class _Reader:
    """A `pinocchio.Model`, read."""

    def __init__(self, pin: Any, m: Any) -> None:
        self._pin, self._m, self._notes = pin, m, Notes()
        self._links: list[Link] = []
        self._joints: list[Joint] = []
        self._taken: set[str] = set()
        self._names: set[str] = set(m.names)
        self._dofs: dict[str, range] = {}
        """Where a joint of ours has its velocities in theirs."""

    def description(self) -> RobotDescription:
        """Joints with their bodies, then frames."""
        m = self._m
        carriers = {0: self._link("universe", m.inertias[0])}
        followers, leaders = (getattr(m, name, ()) for name in ("mimicking_joints", "mimicked_joints"))
        mimicked = dict(zip(followers, leaders, strict=True))
        for j in range(1, m.njoints):
            carriers[j] = self._joint(j, carriers[int(m.parents[j])], mimicked.get(j))
        for frame in m.frames:
            kind, parent = frame.type, _carrier(frame)
            fixed = kind in (self._pin.FrameType.BODY, self._pin.FrameType.OP_FRAME)
            if not fixed or (frame.name in self._taken and carriers[parent] == frame.name):
                continue
            link = self._link(frame.name, None)
            name = self._name(f"{link}_fixed")
            self._joints.append(Joint(name, "fixed", carriers[parent], link, _pose(frame.placement)))
        self._report_friction()
        return RobotDescription(
            m.name or "robot", tuple(self._links), tuple(self._joints), Report(self._notes.findings())
        )

    def _link(self, name: str, inertia: Any) -> str:
        while name in self._taken:
            name = f"_{name}"
        self._taken.add(name)
        inertial = None
        if inertia is not None and (inertia.mass or np.any(inertia.inertia)):
            about = np.array(inertia.inertia)
            six = tuple(float(about[at]) for at in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)))
            x, y, z = (float(each) for each in inertia.lever)
            inertial = Inertial(float(inertia.mass), Pose((x, y, z)), six)  # type: ignore[arg-type]
        self._links.append(Link(name, inertial))
        return name

    def _name(self, name: str) -> str:
        while name in self._names:
            name = f"_{name}"
        self._names.add(name)
        return name

    def _joint(self, j: int, parent: str, leader: int | None) -> str:
        """Joints for one of theirs; the link that carries its body."""
        m, name = self._m, self._m.names[j]
        joint, parts = m.joints[j], self._parts(m.joints[j], name)
        v, placed = int(m.idx_vs[j]), _pose(m.jointPlacements[j])
        for k, part in enumerate(parts):
            last = k == len(parts) - 1
            child = self._link(self._body_of(j) if last else f"{name}/{k + 1}", m.inertias[j] if last else None)
            own = name if len(parts) == 1 else self._name(f"{name}/{k + 1}")
            made = Joint(own, part.type, parent, child, _after(placed, part.origin), part.axis, pitch=part.pitch)
            if leader is not None:
                inner = joint.extract()
                followed = Mimic(m.names[leader], float(inner.scaling), float(inner.offset))
                made = dataclasses.replace(made, mimic=followed)
            else:
                self._dofs[own] = range(v, v + part.nv)
                made = dataclasses.replace(made, limits=self._limits(joint, part, len(parts)))
                v += part.nv
            self._joints.append(made)
            parent, placed = child, Pose()
        return parent

    def _body_of(self, j: int) -> str:
        """The name of the body frame that a joint carries at its own place, or the joint's."""
        m = self._m
        for frame in m.frames:
            if frame.type == self._pin.FrameType.BODY and _carrier(frame) == j and frame.placement.isIdentity(0.0):
                return str(frame.name)
        return str(m.names[j])

    def _limits(self, joint: Any, part: _Part, parts: int) -> Limits:
        m, q, v = self._m, int(joint.idx_q), int(joint.idx_v)
        if parts > 1 or joint.nv != 1:
            return Limits(-_MOST, _MOST) if part.type == "revolute" else Limits()
        bounded = joint.nq == 1 and part.type != "continuous"
        # A joint without limits here has a cosine and a sine there: one that has not keeps numbers that bound nothing.
        lower, upper = (
            float(np.clip(each[q], -_MOST, _MOST)) if bounded else None
            for each in (m.lowerPositionLimit, m.upperPositionLimit)
        )
        effort, velocity = (float(each[v]) if each[v] < _MOST else None for each in (m.effortLimit, m.velocityLimit))
        return Limits(lower, upper, effort, velocity)

    def _parts(self, joint: Any, name: str) -> list[_Part]:
        """Joints of ours that are one of theirs.

        Raises:
            LoadError: there are none.
        """
        kind = joint.shortname()
        if kind.startswith("JointModelMimic"):
            return [self._follower(joint, name)]
        if kind in _WHOLE:
            return [_Part(_WHOLE[kind], nv=int(joint.nv))]
        if kind in _CHAINS:
            return [_Part(each, axis) for each, axis in _CHAINS[kind]]
        if kind == "JointModelComposite":
            inner, parts = joint.extract(), []
            for each, placement in zip(inner.joints, inner.jointPlacements, strict=True):
                first, *others = self._parts(each, name)
                parts += [dataclasses.replace(first, origin=_after(_pose(placement), first.origin)), *others]
            return parts
        if kind == "JointModelUniversal":
            S = self._subspace(joint)
            return [_Part("revolute", _unit(S[3:, k])) for k in (0, 1)]
        return [self._one(joint, name)]

    def _follower(self, joint: Any, name: str) -> _Part:
        """A joint that mimics another: its motion is that of the other's coordinate."""
        scaling, data = float(joint.extract().scaling), joint.createData()
        joint.calc(data, self._pin.neutral(self._m))
        S = np.array(data.S).reshape(6, -1)
        if S.shape[1] != 1 or not scaling:
            raise LoadError(
                f"joint {quoted(name)} mimics another by {scaling}; wanted one degree of freedom that moves"
            )
        return _moving(S[:, 0] / scaling, 1)

    def _one(self, joint: Any, name: str) -> _Part:
        """A joint of one degree of freedom, by its motion at coordinate zero."""
        if int(joint.nv) != 1:
            raise LoadError(f"joint {quoted(name)} is a {joint.shortname()}, which has no counterpart here")
        return _moving(self._subspace(joint)[:, 0], int(joint.nq))

    def _subspace(self, joint: Any) -> Array:
        """S (6, nv), linear part first, at neutral."""
        pin = self._pin
        alone = pin.Model()
        alone.addJoint(0, joint, pin.SE3.Identity(), "joint")
        data = alone.createData()
        return np.array(pin.computeJointJacobians(alone, data, pin.neutral(alone))).reshape(6, -1)

    def coefficients(self, model: Model) -> dict[str, Array]:
        """Armature, damping and friction (nv_tree,) of every degree of freedom of the model."""
        m, sizes = self._m, np.diff([*model.v_start.tolist(), model.nv_tree])
        theirs = {name: np.array(getattr(m, name)) for name in ("armature", "damping") if hasattr(m, name)}
        theirs["friction"] = self._friction()
        found = {name: np.zeros(model.nv_tree) for name in ("armature", "damping", "friction")}
        for joint, start, n in zip(model.joint_names, model.v_start.tolist(), sizes.tolist(), strict=True):
            if joint in self._dofs:
                own = self._dofs[joint]
                for name, array in theirs.items():
                    found[name][start : start + n] = array[own.start : own.stop]
        return found

    def _friction(self) -> Array:
        """Coulomb friction (nv,): newer versions have one number for each direction."""
        m = self._m
        if not hasattr(m, "upperDryFrictionLimit"):
            return np.array(m.friction)
        return np.array(m.upperDryFrictionLimit)

    def _report_friction(self) -> None:
        m = self._m
        if not hasattr(m, "upperDryFrictionLimit"):
            return
        uneven = np.array(m.lowerDryFrictionLimit) != -np.array(m.upperDryFrictionLimit)
        for joint, own in self._dofs.items():
            if uneven[own.start : own.stop].any():
                message = "Coulomb friction differs in its two directions; that of positive velocities is used"
                self._notes.gather("friction-uneven", f"joint {quoted(joint)}", message)


def _carrier(frame: Any) -> int:
    """The joint that a frame is fixed to; older versions call it otherwise, newer ones warn of that name."""
    return int(frame.parentJoint if hasattr(frame, "parentJoint") else frame.parent)


def _moving(S: Array, nq: int) -> _Part:
    """The joint of a motion, linear part first."""
    linear, angular = S[:3], S[3:]
    if not angular.any():
        return _Part("prismatic", _unit(linear))
    if linear.any():
        return _Part("helical", _unit(angular), float(linear @ angular))
    return _Part("continuous" if nq == 2 else "revolute", _unit(angular))


def _unit(vector: Array) -> tuple[float, float, float]:
    x, y, z = (float(each) for each in vector / np.linalg.norm(vector))
    return x, y, z


def _pose(placement: Any) -> Pose:
    x, y, z = (float(each) for each in placement.translation)
    return Pose((x, y, z), tuple(np.array(placement.rotation).ravel().tolist()))


def _after(first: Pose, second: Pose) -> Pose:
    """A pose given in the frame of another one."""
    R = np.array(first.rotation).reshape(3, 3)
    x, y, z = (float(each) for each in np.array(first.xyz) + R @ np.array(second.xyz))
    turned = R @ np.array(second.rotation).reshape(3, 3)
    return Pose((x, y, z), tuple(turned.ravel().tolist()))
