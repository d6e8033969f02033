"""Converts a `pinocchio.Model` to a Model, joint by joint."""

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
_SAME_TYPE = {"JointModelFreeFlyer": "floating", "JointModelSpherical": "spherical", "JointModelPlanar": "planar"}
_CHAINS = {
    "JointModelSphericalZYX": tuple(("revolute", axis) for axis in (_Z, _Y, _X)),
    "JointModelTranslation": tuple(("prismatic", axis) for axis in (_X, _Y, _Z)),
}
"""Joints of Pinocchio that are equivalent to several joints in series, with the same coordinates and velocities."""


@dataclass(frozen=True)
class _Part:
    """A joint of a description: type, axis, pitch in m/rad, origin relative to the previous joint, and `nv`."""

    type: str
    axis: tuple[float, float, float] = _Z
    pitch: float = 0.0
    origin: Pose = dataclasses.field(default_factory=Pose)
    nv: int = 1


def from_pinocchio(pin_model: Any, strict: bool = True) -> Model:
    """Convert a `pinocchio.Model`. Frames of bodies become links, and the universe becomes the root link.

    Joints keep their order and names, so `rd.converter(model, "pinocchio", joint_names=model.joint_names)` converts
    states. Composite joints, Translation and SphericalZYX become joints "name/1", "name/2" and so on. Armature,
    damping, friction and limits are copied.

    Args:
        pin_model: the model; it is not changed.
        strict: True to refuse a negative mass, damping, friction or armature, and a principal moment of inertia that is
            negative by half of the largest or more. False to use and report such values. Moments that violate the
            triangle inequality are used and reported in any case.

    Raises:
        LoadError: a joint type that robodyn lacks, or an unusable robot.
        ArgumentError: not a `pinocchio.Model`.
        UnavailableError: Pinocchio is not installed.
    """
    try:
        import pinocchio as pin
    except ImportError as error:
        raise UnavailableError(
            f"from_pinocchio: Pinocchio cannot be imported here ({error}): pip install pin"
        ) from error
    if not strict_types.is_a(pin_model, pin.Model):
        hint = reads_object(pin_model) or "; robodyn.load reads files and texts"
        raise ArgumentError(f"pin_model: got {strict_types.type_name(pin_model)}; wanted a pinocchio.Model{hint}")
    with foreign("the pinocchio.Model"):
        reader = _Reader(pin, pin_model)
        description = reader.description()
        gravity = finite_gravity(np.array(pin_model.gravity.linear))
    checked, mimics = check_and_resolve(description, mimic="follow", strict=strict)
    model = assemble(checked, mimics, "fixed", gravity)
    with foreign("the pinocchio.Model"):
        coefficients = reader.coefficients(model)
    return with_coefficients(model, coefficients, "pinocchio", strict)


class _Reader:
    """Reads a `pinocchio.Model`."""

    def __init__(self, pin: Any, m: Any) -> None:
        self._pin, self._m, self._notes = pin, m, Notes()
        self._links: list[Link] = []
        self._joints: list[Joint] = []
        self._taken: set[str] = set()
        self._names: set[str] = set(m.names)
        self._dofs: dict[str, range] = {}
        """Velocities of each joint in Pinocchio's order, by the joint's name in the description."""

    def description(self) -> RobotDescription:
        """The description: joints with their bodies, then frames."""
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
            matrix = np.array(inertia.inertia)
            six = tuple(float(matrix[at]) for at in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)))
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
        """Adds the joints for one of Pinocchio's; returns the link of its body."""
        m, name = self._m, self._m.names[j]
        joint, parts = m.joints[j], self._parts(m.joints[j], name)
        v, placement = int(m.idx_vs[j]), _pose(m.jointPlacements[j])
        for k, part in enumerate(parts):
            last = k == len(parts) - 1
            child = self._link(self._body_of(j) if last else f"{name}/{k + 1}", m.inertias[j] if last else None)
            joint_name = name if len(parts) == 1 else self._name(f"{name}/{k + 1}")
            new = Joint(
                joint_name, part.type, parent, child, _composed(placement, part.origin), part.axis, pitch=part.pitch
            )
            if leader is not None:
                inner = joint.extract()
                mimic = Mimic(m.names[leader], float(inner.scaling), float(inner.offset))
                new = dataclasses.replace(new, mimic=mimic)
            else:
                self._dofs[joint_name] = range(v, v + part.nv)
                new = dataclasses.replace(new, limits=self._limits(joint, part, len(parts)))
                v += part.nv
            self._joints.append(new)
            parent, placement = child, Pose()
        return parent

    def _body_of(self, j: int) -> str:
        """The name of the body frame that coincides with a joint's frame, or else the joint's name."""
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
        # In Pinocchio a revolute joint without limits has cosine and sine. A revolute joint with an angle therefore
        # keeps limits, even if they are the largest floating-point numbers.
        lower, upper = (
            float(np.clip(each[q], -_MOST, _MOST)) if bounded else None
            for each in (m.lowerPositionLimit, m.upperPositionLimit)
        )
        effort, velocity = (float(each[v]) if each[v] < _MOST else None for each in (m.effortLimit, m.velocityLimit))
        return Limits(lower, upper, effort, velocity)

    def _parts(self, joint: Any, name: str) -> list[_Part]:
        """The joints that are equivalent to one of Pinocchio's.

        Raises:
            LoadError: there are none.
        """
        kind = joint.shortname()
        if kind.startswith("JointModelMimic"):
            return [self._follower(joint, name)]
        if kind in _SAME_TYPE:
            return [_Part(_SAME_TYPE[kind], nv=int(joint.nv))]
        if kind in _CHAINS:
            return [_Part(each, axis) for each, axis in _CHAINS[kind]]
        if kind == "JointModelComposite":
            inner, parts = joint.extract(), []
            for each, placement in zip(inner.joints, inner.jointPlacements, strict=True):
                first, *others = self._parts(each, name)
                parts += [dataclasses.replace(first, origin=_composed(_pose(placement), first.origin)), *others]
            return parts
        if kind == "JointModelUniversal":
            S = self._subspace(joint)
            return [_Part("revolute", _unit(S[3:, k])) for k in (0, 1)]
        return [self._single_dof(joint, name)]

    def _follower(self, joint: Any, name: str) -> _Part:
        """A joint that mimics another. Pinocchio scales its motion subspace by the mimic's multiplier."""
        scaling, data = float(joint.extract().scaling), joint.createData()
        joint.calc(data, self._pin.neutral(self._m))
        S = np.array(data.S).reshape(6, -1)
        if S.shape[1] != 1 or not scaling:
            raise LoadError(
                f"joint {quoted(name)} mimics another by {scaling}; wanted one degree of freedom that moves"
            )
        return _joint_of_motion(S[:, 0] / scaling, 1)

    def _single_dof(self, joint: Any, name: str) -> _Part:
        """A joint with one degree of freedom, from its motion subspace at coordinate zero."""
        if int(joint.nv) != 1:
            raise LoadError(f"joint {quoted(name)} is a {joint.shortname()}, which has no counterpart here")
        return _joint_of_motion(self._subspace(joint)[:, 0], int(joint.nq))

    def _subspace(self, joint: Any) -> Array:
        """The motion subspace S (6, nv) in the neutral configuration, linear part first."""
        pin = self._pin
        single = pin.Model()
        single.addJoint(0, joint, pin.SE3.Identity(), "joint")
        data = single.createData()
        return np.array(pin.computeJointJacobians(single, data, pin.neutral(single))).reshape(6, -1)

    def coefficients(self, model: Model) -> dict[str, Array]:
        """Armature, damping and friction (nv_tree,) of all degrees of freedom of the model."""
        m, sizes = self._m, np.diff([*model.v_start.tolist(), model.nv_tree])
        theirs = {name: np.array(getattr(m, name)) for name in ("armature", "damping") if hasattr(m, name)}
        theirs["friction"] = self._friction()
        coefficients = {name: np.zeros(model.nv_tree) for name in ("armature", "damping", "friction")}
        for joint, start, n in zip(model.joint_names, model.v_start.tolist(), sizes.tolist(), strict=True):
            if joint in self._dofs:
                dofs = self._dofs[joint]
                for name, array in theirs.items():
                    coefficients[name][start : start + n] = array[dofs.start : dofs.stop]
        return coefficients

    def _friction(self) -> Array:
        """Coulomb friction (nv,). Newer versions have one number for each direction; the upper one is used."""
        m = self._m
        if not hasattr(m, "upperDryFrictionLimit"):
            return np.array(m.friction)
        return np.array(m.upperDryFrictionLimit)

    def _report_friction(self) -> None:
        m = self._m
        if not hasattr(m, "upperDryFrictionLimit"):
            return
        uneven = np.array(m.lowerDryFrictionLimit) != -np.array(m.upperDryFrictionLimit)
        for joint, dofs in self._dofs.items():
            if uneven[dofs.start : dofs.stop].any():
                message = "Coulomb friction differs in its two directions; that of positive velocities is used"
                self._notes.gather("friction-uneven", f"joint {quoted(joint)}", message)


def _carrier(frame: Any) -> int:
    """The joint that a frame is fixed to. Older versions call the attribute `parent`, which newer ones deprecate."""
    return int(frame.parentJoint if hasattr(frame, "parentJoint") else frame.parent)


def _joint_of_motion(S: Array, nq: int) -> _Part:
    """The joint with a motion subspace S (6,), linear part first."""
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


def _composed(first: Pose, second: Pose) -> Pose:
    """The pose `second`, which is relative to `first`, in the reference frame of `first`."""
    R = np.array(first.rotation).reshape(3, 3)
    x, y, z = (float(each) for each in np.array(first.xyz) + R @ np.array(second.xyz))
    rotation = R @ np.array(second.rotation).reshape(3, 3)
    return Pose((x, y, z), tuple(rotation.ravel().tolist()))
