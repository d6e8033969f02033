"""A model for MuJoCo, and what MuJoCo says of it, with our arguments and answers in our order."""

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
    """The model as a `mujoco.MjModel`, body by body: frames, inertias, armature and gravity are ours; no damping,
    limits or contacts. Bodies, joints and links (as sites) are numbered: "body 3", "joint 3", "link 5". Joints that
    mimic others are free.

    Args:
        model: the robot.
        links: whether it has the sites, whose places MuJoCo works out in every step.

    Raises:
        UnavailableError: MuJoCo is not installed, or has no such model: helical and planar joints, floating ones that
            are not at the world, armature of these or that differs among the axes of a spherical joint, bodies that
            it refuses, as those without mass.
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
        # What floats is where its coordinates say, and those are the world's.
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
    """Where a model that `mujoco_model` made has our coordinates and velocities of the tree: bodies are depth-first."""
    q_at, v_at = np.empty(model.nq_tree, dtype=int), np.empty(model.nv_tree, dtype=int)
    for i, code in enumerate(model.joint_kind.tolist()):
        joint, kind = mj_model.joint(f"joint {i}"), KINDS[code]
        q_at[model.q_start[i] :][: kind.nq] = joint.qposadr[0] + np.arange(kind.nq)
        v_at[model.v_start[i] :][: kind.nv] = joint.dofadr[0] + np.arange(kind.nv)
    return q_at, v_at


class MujocoAnswers:
    """What MuJoCo says of a model that `mujoco_model` made."""

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
        """Every quantity with its largest error and what is allowed."""
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
        found, force = Comparison(dyn, self.sizes), SMALL * self.sizes.force
        found.add("mass matrix", H, 0.0, "mass_matrix", q)
        found.add("inverse dynamics", inverse, force, "inverse_dynamics", q, qd, qdd)
        found.add("kinetic energy", 0.5 * qd @ H @ qd, 0.0, "kinetic_energy", q, qd)
        found.add("potential energy", data.energy[0], force, "potential_energy", q)
        sites = [theirs.site(f"link {link}").id for link in range(len(self.model.link_names))]
        found.add_poses(q, data.site_xmat[sites].reshape(-1, 3, 3), data.site_xpos[sites])
        for link, site in list(zip(self.model.link_names, sites, strict=True))[-JACOBIANS:]:
            jac = np.zeros((6, theirs.nv))
            mujoco.mj_jacSite(theirs, data, jac[3:], jac[:3], site)
            found.add_jacobian(q, link, jac @ T @ self.G)
        return found.errors

    def _place(self, q: Array, qd: Array, qdd: Array) -> Array:
        """Put MuJoCo at a state; T with (its velocities) = T (ours of the tree)."""
        mujoco, data, T = self.mujoco, self.data, np.eye(self.theirs.nv)
        tree, rates = self.model.tree_coordinates(q), self.G @ qd
        for at in self.quaternions:
            tree[at : at + 4] = tree[[at + 3, at, at + 1, at + 2]]
        changes, placed = self.G @ qdd, tree.copy()
        for i in self.floating:
            at, start, X = int(self.model.q_start[i]), int(self.model.v_start[i]), self.model.Xtree[i]
            origin, whole, turn, R = np.empty(4), np.empty(4), X[:9].reshape(3, 3).T, np.empty(9)
            mujoco.mju_mat2Quat(origin, np.ascontiguousarray(turn).ravel())
            mujoco.mju_mulQuat(whole, origin, tree[at + 3 : at + 7])
            placed[at : at + 3], placed[at + 3 : at + 7] = X[9:] + turn @ tree[at : at + 3], whole
            mujoco.mju_quat2Mat(R, whole)
            T[start : start + 3, start : start + 3] = R.reshape(3, 3)
            # From the spatial acceleration of the base to that of its origin.
            changes[start : start + 3] += np.cross(rates[start + 3 : start + 6], rates[start : start + 3])
        data.qpos[self.q_at] = placed
        data.qvel[self.v_at], data.qacc[self.v_at] = T @ rates, T @ changes
        mujoco.mj_inverse(self.theirs, data)
        moved = np.zeros_like(T)
        moved[self.v_at] = T
        return moved
