"""Converts a model to MuJoCo, and compares MuJoCo's results in our conventions."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.tools.testing.peers import JACOBIANS, Comparison, Errors, about_centre, imported, worst
from robodyn.tools.testing.states import SMALL, Sizes, States

_KNOWN = ("revolute", "prismatic", "spherical", "floating")
_LIBRARY = "MuJoCo", "mujoco", "MjSpec"


def mujoco_model(model: Model, *, links: bool = True) -> Any:
    """Convert a model to a `mujoco.MjModel`, body by body, with its frames, inertias, armature and gravity, but without
    damping, limits and contacts.

    Bodies, joints and links (as sites) are numbered: "body 3", "joint 3", "link 5". Mimic joints are free.

    Args:
        model: the robot.
        links: True to add the sites, whose positions MuJoCo then computes in every step.

    Raises:
        UnavailableError: MuJoCo is not installed, or cannot represent the model: helical and planar joints, floating
            joints whose parent is not the world, armature of floating joints, armature that differs among the axes of a
            spherical joint, bodies that MuJoCo refuses, such as massless ones.
    """
    mujoco = imported(*_LIBRARY)
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
        armature = model.tree_armature[model.v_start[i] :][: kind.nv]
        if (armature != armature[0]).any() or (kind.name == "floating" and armature.any()):
            raise UnavailableError(f"MuJoCo has no such armature as that of {model.joint_names[i]!r} of {model.name!r}")
        # The pose of a floating body is given by its coordinates, which are in world axes in MuJoCo.
        placed = {} if kind.name == "floating" else _pose(mujoco, model.Xtree[i])
        body = bodies[i] = bodies[parent].add_body(name=f"body {i}", **placed)
        types = {"revolute": "HINGE", "prismatic": "SLIDE", "spherical": "BALL", "floating": "FREE"}
        joint = body.add_joint(name=f"joint {i}", type=getattr(mujoco.mjtJoint, f"mjJNT_{types[kind.name]}"))
        joint.axis = [0.0, 0.0, 1.0]
        joint.armature = float(armature[0])
        body.mass, body.ipos, about = about_centre(model.inertia[i])
        body.fullinertia, body.explicitinertial = about[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]], True
    for k, (body, X) in enumerate(zip(model.link_body.tolist(), model.link_X, strict=True) if links else ()):
        bodies[body].add_site(name=f"link {k}", **_pose(mujoco, X))
    try:
        return spec.compile()
    except ValueError as error:
        raise UnavailableError(f"MuJoCo refuses {model.name!r}: {' '.join(str(error).split())}") from None


def _pose(mujoco: Any, X: Array) -> dict[str, Array]:
    quaternion = np.empty(4)
    mujoco.mju_mat2Quat(quaternion, np.ascontiguousarray(X[:9].reshape(3, 3).T).ravel())
    return {"pos": np.array(X[9:]), "quat": quaternion}


def places(model: Model, mj_model: Any) -> tuple[Array, Array]:
    """Indices of our tree coordinates and velocities in a model from `mujoco_model`, whose bodies are depth-first."""
    q_at, v_at = np.empty(model.nq_tree, dtype=int), np.empty(model.nv_tree, dtype=int)
    for i, code in enumerate(model.joint_kind.tolist()):
        joint, kind = mj_model.joint(f"joint {i}"), KINDS[code]
        q_at[model.q_start[i] :][: kind.nq] = joint.qposadr[0] + np.arange(kind.nq)
        v_at[model.v_start[i] :][: kind.nv] = joint.dofadr[0] + np.arange(kind.nv)
    return q_at, v_at


class MujocoAnswers:
    """MuJoCo's results for a model from `mujoco_model`."""

    def __init__(self, model: Model, theirs: Any) -> None:
        self.mujoco, self.theirs, self.model, self.G = imported(*_LIBRARY), theirs, model, model.coupling()
        self.data, self.sizes = self.mujoco.MjData(theirs), Sizes.of(model)
        self.q_at, self.v_at = places(model, theirs)
        self.floating = [i for i in range(model.n_bodies) if KINDS[model.joint_kind[i]].name == "floating"]
        self.quaternions = [
            int(model.q_start[i]) + kind.quaternion
            for i in range(model.n_bodies)
            if (kind := KINDS[model.joint_kind[i]]).quaternion is not None
        ]

    def compare(self, dyn: Dynamics, s: States) -> Errors:
        """(largest error, tolerance) of every quantity."""
        return worst(self._compare_one(dyn, s, k) for k in range(len(s.q)))

    def _compare_one(self, dyn: Dynamics, s: States, k: int) -> Errors:
        mujoco, data, theirs = self.mujoco, self.data, self.theirs
        q, qd, qdd = s.q[k], s.qd[k], s.qdd[k]
        T = self._place(q, qd, qdd)
        inverse = self.G.T @ T.T @ data.qfrc_inverse
        H = np.zeros((theirs.nv, theirs.nv))
        for row, unit in zip(H, np.eye(theirs.nv), strict=True):
            mujoco.mj_mulM(theirs, data, row, unit)
        H = self.G.T @ T.T @ H @ T @ self.G
        mujoco.mj_energyPos(theirs, data)
        comparison, force = Comparison(dyn, self.sizes), SMALL * self.sizes.force
        comparison.add("mass matrix", H, 0.0, "mass_matrix", q)
        comparison.add("inverse dynamics", inverse, force, "inverse_dynamics", q, qd, qdd)
        comparison.add("kinetic energy", 0.5 * qd @ H @ qd, 0.0, "kinetic_energy", q, qd)
        comparison.add("potential energy", data.energy[0], force, "potential_energy", q)
        sites = [theirs.site(f"link {link}").id for link in range(len(self.model.link_names))]
        comparison.add_poses(q, data.site_xmat[sites].reshape(-1, 3, 3), data.site_xpos[sites])
        for link, site in list(zip(self.model.link_names, sites, strict=True))[-JACOBIANS:]:
            jac = np.zeros((6, theirs.nv))
            mujoco.mj_jacSite(theirs, data, jac[3:], jac[:3], site)
            comparison.add_jacobian(q, link, jac @ T @ self.G)
        return comparison.errors

    def _place(self, q: Array, qd: Array, qdd: Array) -> Array:
        """Set MuJoCo's state. Returns T with (MuJoCo's velocities) = T (our tree velocities)."""
        mujoco, data, T = self.mujoco, self.data, np.eye(self.theirs.nv)
        tree, rates = self.model.tree_coordinates(q), self.G @ qd
        for at in self.quaternions:
            tree[at : at + 4] = tree[[at + 3, at, at + 1, at + 2]]
        changes, placed = self.G @ qdd, tree.copy()
        for i in self.floating:
            at, start, X = int(self.model.q_start[i]), int(self.model.v_start[i]), self.model.Xtree[i]
            origin, attitude, R_tree, R = np.empty(4), np.empty(4), X[:9].reshape(3, 3).T, np.empty(9)
            mujoco.mju_mat2Quat(origin, np.ascontiguousarray(R_tree).ravel())
            mujoco.mju_mulQuat(attitude, origin, tree[at + 3 : at + 7])
            placed[at : at + 3], placed[at + 3 : at + 7] = X[9:] + R_tree @ tree[at : at + 3], attitude
            mujoco.mju_quat2Mat(R, attitude)
            T[start : start + 3, start : start + 3] = R.reshape(3, 3)
            # Convert the spatial acceleration of the base to the classical one of its origin.
            changes[start : start + 3] += np.cross(rates[start + 3 : start + 6], rates[start : start + 3])
        data.qpos[self.q_at] = placed
        data.qvel[self.v_at], data.qacc[self.v_at] = T @ rates, T @ changes
        mujoco.mj_inverse(self.theirs, data)
        moved = np.zeros_like(T)
        moved[self.v_at] = T
        return moved
