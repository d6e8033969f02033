"""A model for Pinocchio, and what Pinocchio says of it, with our arguments and answers in our order."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from robodyn.arguments import Array
from robodyn.builders.findings import listed
from robodyn.dynamics import Dynamics
from robodyn.errors import ArgumentError, UnavailableError
from robodyn.joints import KINDS
from robodyn.messages import brief
from robodyn.model import Model
from robodyn.testing.states import SMALL, VALUES, Sizes, States, answers, relative

_SWAP = [3, 4, 5, 0, 1, 2]
"""Puts the linear part of 6-vectors last, or first again."""
_JOINTS = {
    "revolute": "RZ",
    "prismatic": "PZ",
    "helical": "HZ",
    "spherical": "Spherical",
    "planar": "Planar",
    "floating": "FreeFlyer",
}
"""Pinocchio's names of our kinds of joints, whose axis is z."""
_TWICE = ("JointModelRUB", "JointModelRevoluteUnbounded", "JointModelPlanar")
"""Joints of Pinocchio whose last coordinate of ours, an angle, is a cosine and a sine there."""
_LINKS = 3
"""Links whose Jacobians are asked about: the last ones. Poses are those of all."""


def _pinocchio() -> Any:
    try:
        found = importlib.import_module("pinocchio")
        if hasattr(found, "Model"):
            return found
        reason = "what is found under that name is something else"
    except Exception as error:  # a foreign module may raise anything
        reason = f"{type(error).__name__}: {error}"
    raise UnavailableError(f'Pinocchio is not installed here ({reason}); pip install "robodyn[test]" (wheel pin)')


def pinocchio_model(model: Model) -> Any:
    """The model as a `pinocchio.Model`, joint by joint: frames, inertias, armature and gravity are ours.

    Body frames are those of `model` (a joint's axis is z). Joints that mimic others are free, as in Pinocchio: what
    follows is told by `model.coupling()` and `model.tree_coordinates`. Joints are numbered depth-first, as Pinocchio
    wants them. Frames of type BODY are the links.

    Raises:
        UnavailableError: Pinocchio is not installed, or has no such model, as with a joint named "universe".
    """
    pin = _pinocchio()
    try:
        return _made(pin, model)
    except (RuntimeError, ValueError) as error:  # of names, for instance, that Pinocchio has for itself
        raise UnavailableError(f"Pinocchio has no model of {model.name!r}: {error}") from None


def _made(pin: Any, model: Model) -> Any:
    made = pin.Model()
    made.name = model.name
    made.gravity = pin.Motion(np.array(model.gravity), np.zeros(3))
    place: dict[int, int] = {-1: 0}
    armature: list[Array] = []
    for i in model.tree.preorder.tolist():
        kind, name = KINDS[model.joint_kind[i]], model.joint_names[i]
        if made.existJointName(name):
            raise ValueError(f"it has a joint {name!r} already")
        pitch = (float(model.pitch[i]),) if kind.name == "helical" else ()
        joint, at = getattr(pin, f"JointModel{_JOINTS[kind.name]}")(*pitch), _se3(pin, model.Xtree[i])
        place[i] = made.addJoint(place[int(model.parent[i])], joint, at, name)
        made.inertias[place[i]] = _inertia(pin, model.inertia[i])
        armature.append(model.tree_armature[model.v_start[i] :][: kind.nv])
    made.armature = np.concatenate(armature) if armature else np.zeros(0)
    for name, body, X in zip(model.link_names, model.link_body.tolist(), model.link_X, strict=True):
        made.addFrame(pin.Frame(name, place[body], 0, _se3(pin, X), pin.FrameType.BODY), False)
    return made


def _se3(pin: Any, X: Array) -> Any:
    return pin.SE3(X[:9].reshape(3, 3).T, X[9:])


def _inertia(pin: Any, numbers: Array) -> Any:
    mass, h, (xx, xy, xz, yy, yz, zz) = numbers[0], numbers[1:4], numbers[4:]
    c = h / mass if mass else np.zeros(3)
    about = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    made = pin.Inertia.Zero()  # part by part: all at once it is refused where no body has it
    made.mass, made.lever, made.inertia = float(mass), c, about - mass * (c @ c * np.eye(3) - np.outer(c, c))
    return made


class PinocchioAnswers:
    """What Pinocchio says of a model of ours, by its own model of the same robot, joints and links found by name."""

    def __init__(self, model: Model, pin_model: Any) -> None:
        self.pin, self.theirs, self.model = _pinocchio(), pin_model, model
        if not isinstance(pin_model, self.pin.Model):
            raise ArgumentError(f"pin_model: got {brief(pin_model)}; wanted a pinocchio.Model")
        for what, names, has in (
            ("joints", model.joint_names, pin_model.existJointName),
            ("links", model.link_names, pin_model.existBodyName),
        ):
            missing = [name for name in names if not has(name)]
            if missing:
                raise ArgumentError(f"pin_model: it lacks the {what} {listed(missing)} of {model.name!r}")
        self.data, self.G, self.sizes = pin_model.createData(), model.coupling(), Sizes.of(model)
        joints = [pin_model.getJointId(name) for name in model.joint_names]
        self.plain: tuple[list[int], list[int]] = ([], [])
        self.angles: tuple[list[int], list[int]] = ([], [])
        self.rates: list[int] = []
        for name, j, ours in zip(model.joint_names, joints, model.q_start.tolist(), strict=True):
            kind = KINDS[model.joint_kind[model.joint_index(name)]]
            nq, start = pin_model.nqs[j], pin_model.idx_qs[j]
            self.rates += range(pin_model.idx_vs[j], pin_model.idx_vs[j] + pin_model.nvs[j])
            if pin_model.joints[j].shortname().startswith(_TWICE):
                nq -= 2
                self.angles[0].append(ours + nq)
                self.angles[1].append(start + nq)
            elif nq != kind.nq:
                raise ArgumentError(f"pin_model: joint {brief(name)} has {nq} coordinates; wanted {kind.nq}")
            self.plain[0].extend(range(ours, ours + nq))
            self.plain[1].extend(range(start, start + nq))
        if len(self.rates) != pin_model.nv:
            raise ArgumentError(f"pin_model: got nv {pin_model.nv}; wanted {len(self.rates)}, the joints of ours alone")

    def compare(self, dyn: Dynamics, s: States) -> dict[str, tuple[float, float]]:
        """Every quantity with its largest error and what is allowed."""
        found: dict[str, tuple[float, float]] = {}
        for k in range(len(s.q)):
            for name, (error, allowed) in self._compare_one(dyn, s, k).items():
                found[name] = max(error, found.get(name, (0.0, 0.0))[0]), allowed
        return found

    def _compare_one(self, dyn: Dynamics, s: States, k: int) -> dict[str, tuple[float, float]]:
        pin, model, data, G = self.pin, self.theirs, self.data, self.G
        q, qd, qdd, tau = s.q[k], s.qd[k], s.qdd[k], s.tau[k]
        y = self._coordinates(q)
        v, a = self._rates(qd), self._rates(qdd)
        H = pin.crba(model, data, y).copy()
        H = G.T @ self._square(np.triu(H) + np.triu(H, 1).T) @ G
        inverse, bias = self._forces(pin.rnea(model, data, y, v, a)), self._forces(pin.rnea(model, data, y, v, 0 * a))
        gravity = self._forces(pin.computeGeneralizedGravity(model, data, y))
        by_q = pin.computeRNEADerivatives(model, data, y, v, a)[0].copy()
        allowed, sizes = VALUES[dyn.dtype.name], self.sizes
        least = max(float(np.abs(inverse).max(initial=0.0)), SMALL * sizes.force)
        energy = pin.computePotentialEnergy(model, data, y)
        found: dict[str, tuple[float, float]] = {}

        def compare(name: str, theirs: Any, size: float, query: str, *arguments: Any, part: Any = ...) -> None:
            if answers(dyn, query):
                ours = getattr(dyn, query)(*arguments)
                found[name] = relative((ours[0] if isinstance(ours, tuple) else ours)[part], theirs, size), allowed

        compare("mass matrix", H, 0.0, "mass_matrix", q)
        compare("inverse dynamics", inverse, least, "inverse_dynamics", q, qd, qdd)
        compare("bias force", bias, least, "bias_force", q, qd)
        compare("gravity force", gravity, least, "gravity_force", q)
        gradient = G.T @ self._square(by_q) @ G
        compare("gradient of inverse dynamics", gradient, least, "inverse_dynamics_gradient", q, qd, qdd)
        compare("kinetic energy", 0.5 * qd @ H @ qd, 0.0, "kinetic_energy", q, qd)
        compare("potential energy", energy, SMALL * sizes.force, "potential_energy", q)
        if answers(dyn, "forward_dynamics") and dyn.singularity() is None:
            back = self._forces(pin.rnea(model, data, y, v, self._rates(dyn.forward_dynamics(q, qd, tau))))
            size = np.abs(H) @ np.abs(np.linalg.solve(H, tau - bias)) if len(tau) else tau
            found["forward dynamics"] = relative(back, tau, float(size.max(initial=0.0))), allowed
        pin.forwardKinematics(model, data, y)
        pin.updateFramePlacements(model, data)
        frames = [model.getBodyId(name) for name in self.model.link_names]
        poses = np.array([data.oMf[frame].homogeneous for frame in frames])
        rotations, places = np.s_[:, :3, :3], np.s_[:, :3, 3]
        compare("attitudes of links", poses[rotations], 1.0, "forward_kinematics", q, part=rotations)
        compare("places of links", poses[places], SMALL * sizes.reach, "forward_kinematics", q, part=places)
        for link, frame in list(zip(self.model.link_names, frames, strict=True))[-_LINKS:]:
            J = pin.computeFrameJacobian(model, data, y, frame, pin.LOCAL_WORLD_ALIGNED)
            J = J.reshape(6, -1)[np.ix_(_SWAP, self.rates)] @ G
            compare(f"Jacobian of {link}, angular", J[:3], 1.0, "jacobian", q, link, part=np.s_[:3])
            compare(f"Jacobian of {link}, linear", J[3:], SMALL * sizes.reach, "jacobian", q, link, part=np.s_[3:])
        return found

    def _coordinates(self, q: Array) -> Array:
        tree, out = self.model.tree_coordinates(q), self.pin.neutral(self.theirs)
        out[self.plain[1]] = tree[self.plain[0]]
        angle, at = tree[self.angles[0]], np.array(self.angles[1], dtype=int)
        out[at], out[at + 1] = np.cos(angle), np.sin(angle)
        result: Array = out
        return result

    def _rates(self, rates: Array) -> Array:
        out = np.zeros(self.theirs.nv)
        out[self.rates] = self.G @ rates
        return out

    def _forces(self, forces: Array) -> Array:
        ours: Array = self.G.T @ np.asarray(forces)[self.rates]
        return ours

    def _square(self, matrix: Array) -> Array:
        return matrix[np.ix_(self.rates, self.rates)]
