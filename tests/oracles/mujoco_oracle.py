"""MuJoCo as an oracle: the queries of `robodyn.Dynamics`, with our arguments and answers in our order.

MuJoCo has the quaternion of a free body with its scalar first, and the body's linear velocity, acceleration and force
in world axes; all that is converted here. Arrays are batches (B, ...); MuJoCo answers one state at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from lxml import etree

import robodyn as rd
from oracles import urdf_text
from oracles.quantities import Array

LEFT_OUT = ("visual", "collision", "material", "transmission", "gazebo", "ros2_control", "mujoco")
"""Elements that are taken out of the copy given to MuJoCo: shapes, of which there are no files, and settings."""

RENAMED = {"world": "link world"}
"""In MuJoCo "world" is what does not move, and so would a root link of that name be."""

ONE_COORDINATE = ("revolute", "continuous", "prismatic", "fixed")

ASKED = (
    "inverse dynamics",
    "inverse dynamics, external forces",
    "bias force",
    "gravity force",
    "mass matrix",
    "mass matrix inverse",
    "aba residual",
    "aba residual, equal efforts",
    "crba residual",
    "crba residual, equal efforts",
    "kinetic energy",
    "potential energy",
    "centre of mass",
    "centroidal momentum",
    "poses",
    "Jacobian, world_aligned",
    "velocity, body",
    "velocity, world_aligned",
)
"""The quantities that MuJoCo is asked about, by name."""


class Refused(Exception):
    """MuJoCo does not take the file, or means something else by it."""


def read_urdf(path: Path, floating: bool) -> mujoco.MjModel:
    """The model of a URDF file: no shapes, limits, friction, damping or mimics; armature as Drake's transmissions say.

    Raises:
        Refused: MuJoCo does not take it, or it has joints that MuJoCo takes apart.
    """
    robot = urdf_text.parse(path)
    for element in list(robot.iter(*LEFT_OUT)):
        element.getparent().remove(element)
    for element in robot.iter("link", "parent", "child"):
        for key, value in element.items():
            element.set(key, RENAMED.get(value, value))
    others = {joint.get("type") for joint in robot.findall("joint")} - set(ONE_COORDINATE)
    if others:
        raise Refused(f"{', '.join(sorted(others))} joint: its coordinates are others in MuJoCo, or it knows none")
    settings = {"fusestatic": "false", "balanceinertia": "false", "discardvisual": "false"}
    etree.SubElement(etree.SubElement(robot, "mujoco"), "compiler", settings)
    mujoco.set_mju_user_warning(lambda text: None)  # otherwise it writes a file where it stands
    try:
        spec = mujoco.MjSpec.from_string(etree.tostring(robot).decode())
        if floating:
            spec.worldbody.first_body().add_freejoint(name="root_joint")
        model = spec.compile()
    except ValueError as error:
        raise Refused(" ".join(str(error).split())) from None
    flags = mujoco.mjtDisableBit
    model.opt.disableflags |= flags.mjDSBL_CONSTRAINT | flags.mjDSBL_SPRING | flags.mjDSBL_DAMPER
    for joint, value in urdf_text.armatures(path).items():
        model.dof_armature[model.joint(joint).dofadr] = value
    # Links fixed to the world do not move and are not part of our energies and centre of mass.
    still = model.body_weldid == 0
    model.body_mass[still], model.body_inertia[still] = 0.0, 0.0
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


class MujocoOracle:
    """Answers for a robot of revolute, prismatic and continuous joints without mimics, on a fixed or floating base."""

    def __init__(self, mj_model: mujoco.MjModel, model: rd.Model) -> None:
        assert not model.has_mimic
        self.mj, self.data, self.model = mj_model, mujoco.MjData(mj_model), model
        self.floating = model.joint_names[0] == "root_joint"
        joints = [mj_model.joint(name) for name in model.joint_names]
        sizes = [7 if self.floating and i == 0 else 1 for i in range(len(joints))]
        self.q_at = np.concatenate([j.qposadr[0] + np.arange(n) for j, n in zip(joints, sizes, strict=True)])
        self.v_at = np.concatenate([j.dofadr[0] + np.arange(min(n, 6)) for j, n in zip(joints, sizes, strict=True)])
        self.bodies = [mj_model.body(RENAMED.get(name, name)).id for name in model.body_names]
        self.links = [mj_model.body(RENAMED.get(name, name)).id for name in model.link_names]

    def _place(self, q: Array, qd: Array | None = None, qdd: Array | None = None) -> Array:
        """Put MuJoCo at a state and return T, with (its velocities) = T (ours)."""
        T = np.zeros((self.mj.nv, self.mj.nv))
        T[self.v_at, np.arange(self.mj.nv)] = 1.0
        self.data.qpos[self.q_at] = q
        if self.floating:
            at = self.q_at[3]
            self.data.qpos[at : at + 4] = q[[6, 3, 4, 5]]
            R = np.empty(9)
            mujoco.mju_quat2Mat(R, self.data.qpos[at : at + 4])
            T[np.ix_(self.v_at[:3], range(3))] = R.reshape(3, 3)
        qd, qdd = (np.zeros(self.mj.nv) if rate is None else rate for rate in (qd, qdd))
        if self.floating:
            # From the spatial acceleration of the base to that of its origin.
            qdd = np.concatenate([qdd[:3] + np.cross(qd[3:6], qd[:3]), qdd[3:]])
        self.data.qvel[:], self.data.qacc[:] = T @ qd, T @ qdd
        mujoco.mj_inverse(self.mj, self.data)
        return T

    def inverse_dynamics(self, q: Array, qd: Array, qdd: Array, f_ext: Array | None = None) -> Array:
        def one(q: Array, qd: Array, qdd: Array, f_ext: Array | None) -> Array:
            T = self._place(q, qd, qdd)
            applied = np.zeros(self.mj.nv)
            for body, wrench in zip(self.bodies, [] if f_ext is None else f_ext, strict=f_ext is not None):
                mujoco.mj_applyFT(self.mj, self.data, wrench[3:], wrench[:3], np.zeros(3), body, applied)
            return T.T @ (self.data.qfrc_inverse - applied)

        return _each(one, q, qd, qdd, f_ext)

    def bias_force(self, q: Array, qd: Array, f_ext: Array | None = None) -> Array:
        return self.inverse_dynamics(q, qd, np.zeros_like(qd), f_ext=f_ext)

    def gravity_force(self, q: Array) -> Array:
        rest = np.zeros((len(q), self.mj.nv))
        return self.inverse_dynamics(q, rest, rest)

    def mass_matrix(self, q: Array) -> Array:
        def one(q: Array) -> Array:
            T, M = self._place(q), np.zeros((self.mj.nv, self.mj.nv))
            for row, column in zip(M, T.T, strict=True):
                mujoco.mj_mulM(self.mj, self.data, row, np.ascontiguousarray(column))
            return M @ T

        return _each(one, q)

    def mass_matrix_inverse(self, q: Array) -> Array:
        return np.linalg.inv(self.mass_matrix(q))

    def inversion_error(self, q: Array) -> float:
        return 0.0

    def kinetic_energy(self, q: Array, qd: Array) -> Array:
        def one(q: Array, qd: Array) -> float:
            self._place(q, qd)
            mujoco.mj_energyVel(self.mj, self.data)
            return self.data.energy[1]

        return _each(one, q, qd)

    def potential_energy(self, q: Array) -> Array:
        def one(q: Array) -> float:
            self._place(q)
            mujoco.mj_energyPos(self.mj, self.data)
            return self.data.energy[0]

        return _each(one, q)

    def center_of_mass(self, q: Array) -> Array:
        def one(q: Array) -> Array:
            self._place(q)
            return self.data.subtree_com[0].copy()

        return _each(one, q)

    def centroidal_momentum(self, q: Array, qd: Array) -> tuple[Array, Array]:
        def one(q: Array, qd: Array) -> Array:
            T = self._place(q, qd)
            mujoco.mj_subtreeVel(self.mj, self.data)
            mass = self.mj.body_subtreemass[0]
            h = np.concatenate([self.data.subtree_angmom[0], mass * self.data.subtree_linvel[0]])
            angular, linear = np.zeros((3, self.mj.nv)), np.zeros((3, self.mj.nv))
            mujoco.mj_angmomMat(self.mj, self.data, angular, 0)
            mujoco.mj_jacSubtreeCom(self.mj, self.data, linear, 0)
            return np.column_stack([h, np.vstack([angular, mass * linear]) @ T])

        both = _each(one, q, qd)
        return both[..., 0], both[..., 1:]

    def forward_kinematics(self, q: Array) -> Array:
        def one(q: Array) -> Array:
            self._place(q)
            T = np.tile(np.eye(4), (len(self.links), 1, 1))
            T[:, :3, :3] = self.data.xmat[self.links].reshape(-1, 3, 3)
            T[:, :3, 3] = self.data.xpos[self.links]
            return T

        return _each(one, q)

    def jacobian(self, q: Array, link: int, frame: str) -> Array:
        assert frame == "world_aligned"

        def one(q: Array) -> Array:
            T = self._place(q)
            linear, angular = np.zeros((3, self.mj.nv)), np.zeros((3, self.mj.nv))
            mujoco.mj_jacBody(self.mj, self.data, linear, angular, self.links[link])
            return np.vstack([angular, linear]) @ T

        return _each(one, q)

    def link_velocity(self, q: Array, qd: Array, link: int, frame: str) -> Array:
        local = {"body": 1, "world_aligned": 0}[frame]

        def one(q: Array, qd: Array) -> Array:
            self._place(q, qd)
            V = np.zeros(6)
            kind = mujoco.mjtObj.mjOBJ_XBODY
            mujoco.mj_objectVelocity(self.mj, self.data, kind, self.links[link], V, local)
            return V

        return _each(one, q, qd)


def _each(one: Callable[..., Any], *batches: Array | None) -> Array:
    """The answers for every state; what is None is None for every state."""
    count = next(len(batch) for batch in batches if batch is not None)
    rows = zip(*([None] * count if batch is None else batch for batch in batches), strict=True)
    return np.array([one(*row) for row in rows])
