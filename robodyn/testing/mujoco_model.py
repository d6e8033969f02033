"""A model for MuJoCo, and what MuJoCo says of it, with our arguments and answers in our order."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from robodyn.arguments import Array
from robodyn.dynamics import Dynamics
from robodyn.errors import UnavailableError
from robodyn.joints import KINDS
from robodyn.model import Model
from robodyn.testing.states import VALUES, States, relative

_KNOWN = ("revolute", "prismatic", "spherical", "floating")
_LINKS = 3


def _mujoco() -> Any:
    try:
        return importlib.import_module("mujoco")
    except ImportError as error:
        raise UnavailableError('MuJoCo is not installed; pip install "robodyn[test]" (wheel mujoco)') from error


def mujoco_model(model: Model) -> Any:
    """The model as a `mujoco.MjModel`, body by body: frames, inertias, armature and gravity are ours; no damping,
    limits or contacts. Bodies, joints and links (as sites) are numbered: "body 3", "joint 3", "link 5". Joints that
    mimic others are free.

    Raises:
        UnavailableError: MuJoCo is not installed, or has no such model: helical and planar joints, floating ones that
            are not at the world, bodies that it refuses, as those without mass.
    """
    mujoco = _mujoco()
    spec = mujoco.MjSpec()
    spec.option.gravity = np.array(model.gravity)
    spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    spec.compiler.balanceinertia = False
    bodies = {-1: spec.worldbody}
    for i in range(model.n_bodies):
        kind, parent = KINDS[model.joint_kind[i]], int(model.parent[i])
        if kind.name not in _KNOWN or (kind.name == "floating" and parent >= 0):
            joint = f"{model.joint_names[i]!r} of {model.name!r}"
            raise UnavailableError(f"MuJoCo has no {kind.name} joint such as {joint}")
        body = bodies[i] = bodies[parent].add_body(name=f"body {i}", **_pose(mujoco, model.Xtree[i]))
        types = {"revolute": "HINGE", "prismatic": "SLIDE", "spherical": "BALL", "floating": "FREE"}
        joint = body.add_joint(name=f"joint {i}", type=getattr(mujoco.mjtJoint, f"mjJNT_{types[kind.name]}"))
        joint.axis = [0.0, 0.0, 1.0]
        joint.armature = float(model.tree_armature[model.v_start[i]])
        mass, h, (xx, xy, xz, yy, yz, zz) = model.inertia[i, 0], model.inertia[i, 1:4], model.inertia[i, 4:]
        c = h / mass if mass else np.zeros(3)
        about = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) - mass * (c @ c * np.eye(3) - np.outer(c, c))
        body.mass, body.ipos, body.explicitinertial = float(mass), c, True
        body.fullinertia = about[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    for k, (body, X) in enumerate(zip(model.link_body.tolist(), model.link_X, strict=True)):
        bodies[body].add_site(name=f"link {k}", **_pose(mujoco, X))
    try:
        return spec.compile()
    except ValueError as error:
        raise UnavailableError(f"MuJoCo refuses {model.name!r}: {' '.join(str(error).split())}") from None


def _pose(mujoco: Any, X: Array) -> dict[str, Array]:
    quaternion = np.empty(4)
    mujoco.mju_mat2Quat(quaternion, np.ascontiguousarray(X[:9].reshape(3, 3).T).ravel())
    return {"pos": np.array(X[9:]), "quat": quaternion}


class MujocoAnswers:
    """What MuJoCo says of a model that `mujoco_model` made."""

    def __init__(self, model: Model, theirs: Any) -> None:
        self.mujoco, self.theirs, self.model, self.G = _mujoco(), theirs, model, model.coupling()
        self.data = self.mujoco.MjData(theirs)
        # Where MuJoCo, which numbers bodies depth-first, has our coordinates and velocities of the tree.
        self.q_at, self.v_at = np.empty(model.nq_tree, dtype=int), np.empty(model.nv_tree, dtype=int)
        for i, code in enumerate(model.joint_kind.tolist()):
            joint, kind = theirs.joint(f"joint {i}"), KINDS[code]
            self.q_at[model.q_start[i] :][: kind.nq] = joint.qposadr[0] + np.arange(kind.nq)
            self.v_at[model.v_start[i] :][: kind.nv] = joint.dofadr[0] + np.arange(kind.nv)
        self.floating = [i for i in range(model.n_bodies) if KINDS[model.joint_kind[i]].name == "floating"]
        self.quaternions = [
            int(model.q_start[i]) + kind.quaternion
            for i in range(model.n_bodies)
            if (kind := KINDS[model.joint_kind[i]]).quaternion is not None
        ]

    def compare(self, dyn: Dynamics, s: States) -> dict[str, tuple[float, float]]:
        """Every quantity with its largest error and what is allowed."""
        found: dict[str, tuple[float, float]] = {}
        for k in range(len(s.q)):
            for name, (error, allowed) in self._compare_one(dyn, s, k).items():
                found[name] = max(error, found.get(name, (0.0, 0.0))[0]), allowed
        return found

    def _compare_one(self, dyn: Dynamics, s: States, k: int) -> dict[str, tuple[float, float]]:
        mujoco, data, theirs = self.mujoco, self.data, self.theirs
        q, qd, qdd = s.q[k], s.qd[k], s.qdd[k]
        T = self._place(q, qd, qdd)
        inverse = self.G.T @ T.T @ data.qfrc_inverse
        H = np.zeros((theirs.nv, theirs.nv))
        for row, unit in zip(H, np.eye(theirs.nv), strict=True):
            mujoco.mj_mulM(theirs, data, row, unit)
        H = self.G.T @ T.T @ H @ T @ self.G
        mujoco.mj_energyPos(theirs, data)
        asked: dict[str, tuple[Any, Any, float]] = {
            "mass matrix": (dyn.mass_matrix(q), H, 0.0),
            "inverse dynamics": (dyn.inverse_dynamics(q, qd, qdd), inverse, 0.0),
            "kinetic energy": (dyn.kinetic_energy(q, qd), 0.5 * qd @ H @ qd, 0.0),
            "potential energy": (dyn.potential_energy(q), data.energy[0], 1.0),
        }
        for link in range(len(self.model.link_names))[-_LINKS:]:
            site, jac = data.site(f"link {link}"), np.zeros((6, theirs.nv))
            mujoco.mj_jacSite(theirs, data, jac[3:], jac[:3], site.id)
            pose, name = dyn.link_pose(q, link), self.model.link_names[link]
            asked[f"place of {name}"] = pose[:3, 3], np.array(site.xpos), 1.0
            asked[f"attitude of {name}"] = pose[:3, :3], np.array(site.xmat).reshape(3, 3), 1.0
            asked[f"Jacobian of {name}"] = dyn.jacobian(q, link), jac @ T @ self.G, 1.0
        allowed = VALUES[dyn.dtype.name]
        return {name: (relative(ours, right, size), allowed) for name, (ours, right, size) in asked.items()}

    def _place(self, q: Array, qd: Array, qdd: Array) -> Array:
        """Put MuJoCo at a state; T with (its velocities) = T (ours of the tree)."""
        mujoco, data, T = self.mujoco, self.data, np.eye(self.theirs.nv)
        tree, rates = self.model.tree_coordinates(q), self.G @ qd
        for at in self.quaternions:
            tree[at : at + 4] = tree[[at + 3, at, at + 1, at + 2]]
        data.qpos[self.q_at] = tree
        changes = self.G @ qdd
        for i in self.floating:
            at, start = int(self.model.q_start[i]), int(self.model.v_start[i])
            R = np.empty(9)
            mujoco.mju_quat2Mat(R, tree[at + 3 : at + 7])
            T[start : start + 3, start : start + 3] = R.reshape(3, 3)
            # From the spatial acceleration of the base to that of its origin.
            changes[start : start + 3] += np.cross(rates[start + 3 : start + 6], rates[start : start + 3])
        data.qvel[self.v_at], data.qacc[self.v_at] = T @ rates, T @ changes
        mujoco.mj_inverse(self.theirs, data)
        moved = np.zeros_like(T)
        moved[self.v_at] = T
        return moved
