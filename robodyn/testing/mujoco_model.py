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
from robodyn.testing.states import SMALL, VALUES, Sizes, States, answers, relative

_KNOWN = ("revolute", "prismatic", "spherical", "floating")
_LINKS = 3
"""Links whose Jacobians are asked about: the last ones. Poses are those of all."""


def _mujoco() -> Any:
    try:
        found = importlib.import_module("mujoco")
        if hasattr(found, "MjSpec"):
            return found
        reason = "what is found under that name is something else, or older than 3.2"
    except Exception as error:  # a foreign module may raise anything
        reason = f"{type(error).__name__}: {error}"
    raise UnavailableError(f'MuJoCo is not installed here ({reason}); pip install "robodyn[test]" (wheel mujoco)')


def mujoco_model(model: Model) -> Any:
    """The model as a `mujoco.MjModel`, body by body: frames, inertias, armature and gravity are ours; no damping,
    limits or contacts. Bodies, joints and links (as sites) are numbered: "body 3", "joint 3", "link 5". Joints that
    mimic others are free.

    Raises:
        UnavailableError: MuJoCo is not installed, or has no such model: helical and planar joints, floating ones that
            are not at the world, armature of these or that differs among the axes of a spherical joint, bodies that
            it refuses, as those without mass.
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
        self.data, self.sizes = self.mujoco.MjData(theirs), Sizes.of(model)
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
        allowed, sizes = VALUES[dyn.dtype.name], self.sizes
        found: dict[str, tuple[float, float]] = {}

        def compare(name: str, right: Any, size: float, query: str, *arguments: Any, part: Any = ...) -> None:
            if answers(dyn, query):
                found[name] = relative(getattr(dyn, query)(*arguments)[part], right, size), allowed

        compare("mass matrix", H, 0.0, "mass_matrix", q)
        compare("inverse dynamics", inverse, SMALL * sizes.force, "inverse_dynamics", q, qd, qdd)
        compare("kinetic energy", 0.5 * qd @ H @ qd, 0.0, "kinetic_energy", q, qd)
        compare("potential energy", data.energy[0], SMALL * sizes.force, "potential_energy", q)
        sites = [theirs.site(f"link {link}").id for link in range(len(self.model.link_names))]
        rotations, places = np.s_[:, :3, :3], np.s_[:, :3, 3]
        attitudes = data.site_xmat[sites].reshape(-1, 3, 3)
        compare("attitudes of links", attitudes, 1.0, "forward_kinematics", q, part=rotations)
        compare("places of links", data.site_xpos[sites], SMALL * sizes.reach, "forward_kinematics", q, part=places)
        for link, site in list(enumerate(sites))[-_LINKS:]:
            jac, name = np.zeros((6, theirs.nv)), self.model.link_names[link]
            mujoco.mj_jacSite(theirs, data, jac[3:], jac[:3], site)
            J = jac @ T @ self.G
            compare(f"Jacobian of {name}, angular", J[:3], 1.0, "jacobian", q, link, part=np.s_[:3])
            compare(f"Jacobian of {name}, linear", J[3:], SMALL * sizes.reach, "jacobian", q, link, part=np.s_[3:])
        return found

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
