"""Converts a model to Pinocchio, and compares Pinocchio's results in our conventions."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.core.findings import listed
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief, quoted
from robodyn.tools.testing.peers import JACOBIANS, Comparison, Errors, about_centre, imported, worst
from robodyn.tools.testing.states import SMALL, Sizes, States, answers

_SWAP = [3, 4, 5, 0, 1, 2]
"""Swaps the linear and the angular part of 6-vectors."""
_JOINTS = {
    "revolute": "RZ",
    "prismatic": "PZ",
    "helical": "HZ",
    "spherical": "Spherical",
    "planar": "Planar",
    "floating": "FreeFlyer",
}
"""Pinocchio's names of our kinds of joints; the joint axis is z."""
_TWICE = ("JointModelRUB", "JointModelRevoluteUnbounded", "JointModelPlanar")
"""Joints of Pinocchio that store our last coordinate, an angle, as cosine and sine."""
_LIBRARY = "Pinocchio", "pinocchio", "Model"


def pinocchio_model(model: Model) -> Any:
    """Convert a model to a `pinocchio.Model`, joint by joint, with its frames, inertias, armature and gravity.

    Body frames are those of `model` (a joint's axis is z). Mimic joints are free; `model.coupling()` and
    `model.tree_coordinates` describe how they follow. Joints are numbered depth-first, as Pinocchio requires. Frames of
    type BODY are the links.

    Raises:
        UnavailableError: Pinocchio is not installed, or cannot represent the model, for example a joint named
            "universe".
    """
    pin = imported(*_LIBRARY)
    try:
        return _made(pin, model)
    except (RuntimeError, ValueError) as error:  # for example reserved names
        raise UnavailableError(f"Pinocchio has no model of {model.name!r}: {error}") from None


def _made(pin: Any, model: Model) -> Any:
    converted = pin.Model()
    converted.name = model.name
    converted.gravity = pin.Motion(np.array(model.gravity), np.zeros(3))
    place: dict[int, int] = {-1: 0}
    armature: list[Array] = []
    for i in model.tree.preorder.tolist():
        kind, name = KINDS[model.joint_kind[i]], model.joint_names[i]
        if converted.existJointName(name):
            raise ValueError(f"it has a joint {name!r} already")
        pitch = (float(model.pitch[i]),) if kind.name == "helical" else ()
        if kind.name not in _JOINTS:
            raise UnavailableError(f"Pinocchio has no {kind.name} joint such as {quoted(name)}")
        joint, at = getattr(pin, f"JointModel{_JOINTS[kind.name]}")(*pitch), _se3(pin, model.Xtree[i])
        place[i] = converted.addJoint(place[int(model.parent[i])], joint, at, name)
        converted.inertias[place[i]] = _inertia(pin, model.inertia[i])
        armature.append(model.tree_armature[model.v_start[i] :][: kind.nv])
    converted.armature = np.concatenate(armature) if armature else np.zeros(0)
    for name, body, X in zip(model.link_names, model.link_body.tolist(), model.link_X, strict=True):
        converted.addFrame(pin.Frame(name, place[body], 0, _se3(pin, X), pin.FrameType.BODY), False)
    return converted


def _se3(pin: Any, X: Array) -> Any:
    return pin.SE3(X[:9].reshape(3, 3).T, X[9:])


def _inertia(pin: Any, numbers: Array) -> Any:
    inertia = pin.Inertia.Zero()  # set part by part: the constructor refuses physically impossible inertias
    inertia.mass, inertia.lever, inertia.inertia = about_centre(numbers)
    return inertia


class PinocchioIndices:
    """Indices of our coordinates and velocities in Pinocchio's, for all joints including mimic joints.

    Raises:
        ArgumentError: `pin_model` has other joints than `model`.
    """

    def __init__(self, model: Model, pin_model: Any) -> None:
        missing = [name for name in model.joint_names if not pin_model.existJointName(name)]
        if missing:
            raise ArgumentError(f"pin_model: it lacks the joints {listed(missing)} of {model.name!r}")
        self.nq, self.nv = pin_model.nq, pin_model.nv
        # (our indices, their indices) of equal coordinates, and of angles that they store as cosine and sine.
        self.plain: tuple[list[int], list[int]] = ([], [])
        self.angles: tuple[list[int], list[int]] = ([], [])
        self.velocities: list[int] = []
        for name, code, ours in zip(model.joint_names, model.joint_kind.tolist(), model.q_start.tolist(), strict=True):
            j = pin_model.getJointId(name)
            nq, start = pin_model.nqs[j], pin_model.idx_qs[j]
            self.velocities += range(pin_model.idx_vs[j], pin_model.idx_vs[j] + pin_model.nvs[j])
            if pin_model.joints[j].shortname().startswith(_TWICE):
                nq -= 2
                self.angles[0].append(ours + nq)
                self.angles[1].append(start + nq)
            elif nq != KINDS[code].nq:
                raise ArgumentError(f"pin_model: joint {brief(name)} has {nq} coordinates; wanted {KINDS[code].nq}")
            self.plain[0].extend(range(ours, ours + nq))
            self.plain[1].extend(range(start, start + nq))
        if len(self.velocities) != self.nv:
            raise ArgumentError(f"pin_model: got nv {self.nv}; wanted {len(self.velocities)}, the joints of ours alone")

    def coordinates(self, tree: Array) -> Array:
        """Convert tree coordinates (..., nq_tree) to Pinocchio's (..., nq)."""
        theirs = np.zeros((*tree.shape[:-1], self.nq))
        theirs[..., self.plain[1]] = tree[..., self.plain[0]]
        angle, at = tree[..., self.angles[0]], np.array(self.angles[1], dtype=int)
        theirs[..., at], theirs[..., at + 1] = np.cos(angle), np.sin(angle)
        return theirs

    def rates(self, tree: Array) -> Array:
        """Convert tree velocities, accelerations or forces (..., nv_tree) to Pinocchio's order (..., nv)."""
        theirs = np.empty_like(tree)
        theirs[..., self.velocities] = tree
        return theirs

    def square(self, matrix: Array) -> Array:
        """Convert a matrix over Pinocchio's velocities to our order."""
        return matrix[np.ix_(self.velocities, self.velocities)]


def symmetric(upper: Array) -> Array:
    """The symmetric matrix of which Pinocchio has filled the upper triangle."""
    return np.triu(upper) + np.triu(upper, 1).T


class PinocchioAnswers:
    """Pinocchio's results for our model, by its own model of the same robot. Joints and links are matched by name."""

    def __init__(self, model: Model, pin_model: Any) -> None:
        self.pin, self.theirs, self.model = imported(*_LIBRARY), pin_model, model
        if not isinstance(pin_model, self.pin.Model):
            raise ArgumentError(f"pin_model: got {brief(pin_model)}; wanted a pinocchio.Model")
        self.at = PinocchioIndices(model, pin_model)
        missing = [name for name in model.link_names if not pin_model.existBodyName(name)]
        if missing:
            raise ArgumentError(f"pin_model: it lacks the links {listed(missing)} of {model.name!r}")
        self.data, self.G, self.sizes = pin_model.createData(), model.coupling(), Sizes.of(model)

    def compare(self, dyn: Dynamics, s: States) -> Errors:
        """(largest error, tolerance) of every quantity."""
        return worst(self._compare_one(dyn, s, k) for k in range(len(s.q)))

    def _compare_one(self, dyn: Dynamics, s: States, k: int) -> Errors:
        pin, model, data, G, at = self.pin, self.theirs, self.data, self.G, self.at
        q, qd, qdd, tau = s.q[k], s.qd[k], s.qdd[k], s.tau[k]
        y = at.coordinates(self.model.tree_coordinates(q))
        v, a = at.rates(G @ qd), at.rates(G @ qdd)
        H = G.T @ at.square(symmetric(pin.crba(model, data, y))) @ G
        inverse, bias = self._forces(pin.rnea(model, data, y, v, a)), self._forces(pin.rnea(model, data, y, v, 0 * a))
        gravity = self._forces(pin.computeGeneralizedGravity(model, data, y))
        by_q = G.T @ at.square(pin.computeRNEADerivatives(model, data, y, v, a)[0]) @ G
        comparison, force = Comparison(dyn, self.sizes), SMALL * self.sizes.force
        least = max(float(np.abs(inverse).max(initial=0.0)), force)
        comparison.add("mass matrix", H, 0.0, "mass_matrix", q)
        comparison.add("inverse dynamics", inverse, least, "inverse_dynamics", q, qd, qdd)
        comparison.add("bias force", bias, least, "bias_force", q, qd)
        comparison.add("gravity force", gravity, least, "gravity_force", q)
        comparison.add("gradient of inverse dynamics", by_q, least, "inverse_dynamics_gradient", q, qd, qdd)
        comparison.add("kinetic energy", 0.5 * qd @ H @ qd, 0.0, "kinetic_energy", q, qd)
        comparison.add("potential energy", pin.computePotentialEnergy(model, data, y), force, "potential_energy", q)
        if answers(dyn, "forward_dynamics") and dyn.singularity() is None:
            back = self._forces(pin.rnea(model, data, y, v, at.rates(G @ dyn.forward_dynamics(q, qd, tau))))
            size = np.abs(H) @ np.abs(np.linalg.solve(H, tau - bias)) if len(tau) else tau
            comparison.judge("forward dynamics", back, tau, float(size.max(initial=0.0)))
        pin.forwardKinematics(model, data, y)
        pin.updateFramePlacements(model, data)
        frames = [model.getBodyId(name) for name in self.model.link_names]
        poses = np.array([data.oMf[frame].homogeneous for frame in frames])
        comparison.add_poses(q, poses[:, :3, :3], poses[:, :3, 3])
        for link, frame in list(zip(self.model.link_names, frames, strict=True))[-JACOBIANS:]:
            J = pin.computeFrameJacobian(model, data, y, frame, pin.LOCAL_WORLD_ALIGNED)
            comparison.add_jacobian(q, link, J.reshape(6, -1)[np.ix_(_SWAP, at.velocities)] @ G)
        return comparison.errors

    def _forces(self, forces: Array) -> Array:
        ours: Array = self.G.T @ np.asarray(forces)[self.at.velocities]
        return ours
