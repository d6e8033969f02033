"""Converts states and torques between a `Model` and the same robot in a PyBullet simulation."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from robodyn.bridges.simulators.checks import require_model, vector
from robodyn.core.constraints.refusals import constraints_named
from robodyn.core.findings import listed
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.internals.arguments import Array, count
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief, install, quoted, users_line
from robodyn.io.conventions.converter import converter

_MOST = (1 << 31) - 1
_SINGLE = ("revolute", "prismatic")
_REST = 1e-9
"""Largest force on a base, N or N m, that counts as rounding and is dropped."""

_MASSES = 1e-6
"""Largest tolerated relative difference of total masses."""


class Bridge:
    """Connects a `Model` to the same robot in PyBullet. Needs the extra `pybullet`.

    The constructor switches off PyBullet's motors, which hold joints at rest, so that torques alone move the joints.

    Args:
        body_id: result of `pybullet.loadURDF`.
        client: result of `pybullet.connect`.
        model: the robot, from the same file; its joints are matched by name. A floating base must float in PyBullet,
            too (`useFixedBase=False`).

    Other settings of PyBullet are up to you. Gravity is zero by default. Bodies have an air damping of 0.04 unless
    `changeDynamics(body_id, link, linearDamping=0, angularDamping=0)` removes it. Links without an `<inertial>` have
    1 kg and 1 kg m^2 unless `changeDynamics(body_id, link, mass=0, localInertiaDiagonal=[0, 0, 0])` removes them. With
    `flags=pybullet.URDF_USE_INERTIA_FROM_FILE` inertias are those of the file. PyBullet does not read `<mimic>`, so
    mimic joints are free, and loops are open. A body that is removed and loaded again needs a new bridge, because its
    motors are on again.

    Raises:
        ArgumentError: no such body or client; a base that is fixed in one and floats in the other; a model with joints
            that PyBullet does not have or has of another type, or with joints of several degrees of freedom other than
            its base.
        UnavailableError: PyBullet is not installed.

    Warns:
        RuntimeWarning: the total mass of moving bodies differs, or the model has constraints and the client none.
    """

    def __init__(self, body_id: int, client: int, model: Model) -> None:
        self._bullet = _bullet()
        require_model(model)
        self.body_id, self.client = count("body_id", body_id, 0, _MOST), count("client", client, 0, _MOST)
        if not self._bullet.isConnected(physicsClientId=self.client):
            raise ArgumentError(f"client: got {client}; wanted one that pybullet.connect returned and is connected")
        bodies = [
            self._bullet.getBodyUniqueId(k, **self._there) for k in range(self._bullet.getNumBodies(**self._there))
        ]
        if self.body_id not in bodies:
            raise ArgumentError(f"body_id: got {body_id}; the client has {bodies or 'none'}")
        self.model, self._known = model, self._called()
        kinds = [KINDS[code].name for code in model.joint_kind.tolist()]
        self.floats = bool(kinds) and kinds[0] == "floating"
        self._joints = self._found(kinds)
        self._require_bases_alike()
        base = model.joint_names[:1] if self.floats else ()
        self.converter = converter(model, "pybullet", joint_names=(*base, *self._joints))
        self._numbers = list(self._joints.values())
        self._warn_of_masses()
        self._warn_of_constraints()
        if self._numbers:
            self._bullet.setJointMotorControlArray(
                self.body_id,
                self._numbers,
                self._bullet.VELOCITY_CONTROL,
                forces=[0.0] * len(self._numbers),
                **self._there,
            )

    def __repr__(self) -> str:
        return f"<Bridge between {self.model.name!r} and PyBullet: nq {self.model.nq}, nv {self.model.nv}>"

    def state(self) -> tuple[Array, Array]:
        """(q (nq,), qd (nv,)), float64. Coordinates of mimic joints are ignored.

        Raises:
            ArgumentError: (also other methods) the body was removed, or its number now belongs to another body.
        """
        bullet = self._bullet
        with self._present():
            states = bullet.getJointStates(self.body_id, self._numbers, **self._there) if self._numbers else ()
            position, velocity = ([each[k] for each in states] for k in (0, 1))
            if self.floats:
                at, quaternion = bullet.getBasePositionAndOrientation(self.body_id, **self._there)
                linear, angular = bullet.getBaseVelocity(self.body_id, **self._there)
                position, velocity = [*at, *quaternion, *position], [*linear, *angular, *velocity]
        q = self.converter.q_from(np.array(position, dtype=np.float64))
        return q, self.converter.v_from(q, np.array(velocity, dtype=np.float64))

    def set_state(self, q: Any, qd: Any = None) -> None:
        """Set the state to q and qd (None for rest).

        Raises:
            ArgumentError: wrong arrays, or a quaternion of zero length.
            NumericalError: NaN or infinity.
        """
        bullet, model = self._bullet, self.model
        q = model.normalize(vector("q", q, model.nq))
        qd = np.zeros(model.nv) if qd is None else vector("qd", qd, model.nv)
        position, velocity = self.converter.q_to(q).tolist(), self.converter.v_to(q, qd).tolist()
        with self._present():
            if self.floats:
                bullet.resetBasePositionAndOrientation(self.body_id, position[:3], position[3:7], **self._there)
                bullet.resetBaseVelocity(self.body_id, velocity[:3], velocity[3:6], **self._there)
                position, velocity = position[7:], velocity[6:]
            for joint, at, speed in zip(self._numbers, position, velocity, strict=True):
                bullet.resetJointState(self.body_id, joint, at, speed, **self._there)

    def apply_torque(self, tau: Any) -> None:
        """Let tau (nv,) act in the next step, by TORQUE_CONTROL. PyBullet resets it after one step.

        Raises:
            ArgumentError: wrong array, or a force on a floating base, which has no drive.
            NumericalError: NaN or infinity.
        """
        torques = vector("tau", tau, self.model.nv)
        if self.floats:
            if np.abs(torques[:6]).max() > _REST:
                raise ArgumentError(f"tau: got {brief(torques[:6])} on the base, which floats; wanted zeros there")
            torques = np.concatenate((np.zeros(6), torques[6:]))
        # Joints only: their forces are the same in both conventions, and those of mimic joints are zero.
        forces = self._theirs(torques)
        with self._present():
            if self._numbers:
                self._bullet.setJointMotorControlArray(
                    self.body_id, self._numbers, self._bullet.TORQUE_CONTROL, forces=forces.tolist(), **self._there
                )

    # Helpers.

    def _called(self) -> tuple[str, int]:
        """Name and number of joints, which identify a body: PyBullet reuses the number of a removed body."""
        name = self._bullet.getBodyInfo(self.body_id, **self._there)[1].decode(errors="replace")
        return name, self._bullet.getNumJoints(self.body_id, **self._there)

    @contextmanager
    def _present(self) -> Iterator[None]:
        """Context around calls to PyBullet; raises an ArgumentError if the body is gone."""
        try:
            if (other := self._called()) != self._known:
                raise ArgumentError(
                    f"pybullet.Bridge: body {self.body_id} of client {self.client} is now {quoted(other[0])}; wanted "
                    f"{quoted(self._known[0])}, for which the bridge was made"
                )
            yield
        except self._bullet.error as error:
            gone = "the client is disconnected" if not self._bullet.isConnected(self.client) else "the body was removed"
            raise ArgumentError(
                f"pybullet.Bridge: PyBullet has no body {self.body_id} of client {self.client} any more ({error}): "
                f"{gone}; wanted the one that the bridge was made for"
            ) from error

    def _require_bases_alike(self) -> None:
        """Raise if only one of both bases floats. PyBullet reports mass 0 for a fixed base."""
        free = self._bullet.getDynamicsInfo(self.body_id, -1, **self._there)[0] > 0.0
        if free != self.floats:
            ours, other = ("floats" if each else "is fixed" for each in (self.floats, free))
            raise ArgumentError(
                f"model: the base of {self.model.name!r} {ours}, and that of the body {other} in PyBullet; wanted both "
                "alike: `useFixedBase`, `rd.load_urdf(..., base='floating')`"
            )

    def _warn_of_masses(self) -> None:
        """Warn if PyBullet added masses to links without <inertial>."""
        bullet, model = self._bullet, self.model
        total = bullet.getDynamicsInfo(self.body_id, -1, **self._there)[0] if self.floats else 0.0
        for j in range(bullet.getNumJoints(self.body_id, **self._there)):
            name = bullet.getJointInfo(self.body_id, j, **self._there)[12].decode(errors="replace")
            if name in model.link_names and model.link_body[model.link_index(name)] >= 0:
                total += bullet.getDynamicsInfo(self.body_id, j, **self._there)[0]
        if abs(total - model.total_mass) > _MASSES * model.total_mass:
            warnings.warn(
                f"pybullet.Bridge: what moves weighs {total:.6g} kg in PyBullet and {model.total_mass:.6g} kg here; "
                "links without <inertial> have 1 kg there: changeDynamics(body_id, link, mass=0, "
                "localInertiaDiagonal=[0, 0, 0])",
                RuntimeWarning,
                stacklevel=users_line(),
            )

    def _warn_of_constraints(self) -> None:
        """Warn that PyBullet does not close loops."""
        if self.model.constraints and not self._bullet.getNumConstraints(**self._there):
            warnings.warn(
                f"pybullet.Bridge: {quoted(self.model.name)} has constraints ({constraints_named(self.model)}), and "
                "the client has none: PyBullet moves the open tree unless createConstraint makes them",
                RuntimeWarning,
                stacklevel=users_line(),
            )

    @property
    def _there(self) -> dict[str, int]:
        return {"physicsClientId": self.client}

    def _theirs(self, tau: Array) -> Array:
        forces = np.asarray(self.converter.tau_to(self.model.neutral(), tau))
        return forces[6:] if self.floats else forces

    def _found(self, kinds: list[str]) -> dict[str, int]:
        """PyBullet's numbers of the model's joints by name, in PyBullet's order."""
        bullet = self._bullet
        types = {bullet.JOINT_REVOLUTE: "revolute", bullet.JOINT_PRISMATIC: "prismatic"}
        infos = [
            bullet.getJointInfo(self.body_id, j, **self._there)
            for j in range(bullet.getNumJoints(self.body_id, **self._there))
        ]
        their_joints = {info[1].decode(errors="replace"): (info[0], types.get(info[2], "")) for info in infos}
        wanted = dict(zip(self.model.joint_names, kinds, strict=True))
        if self.floats:
            del wanted[self.model.joint_names[0]]
        several = [f"{quoted(name)} ({kind})" for name, kind in wanted.items() if kind not in _SINGLE]
        wrong = [quoted(name) for name, kind in wanted.items() if their_joints.get(name, (0, ""))[1] != kind]
        if several or wrong:
            problems = (
                (several, "it has joints of several degrees of freedom"),
                (wrong, "PyBullet has no such joints as"),
            )
            raise ArgumentError(f"model: {'; '.join(f'{text} {listed(names)}' for names, text in problems if names)}")
        return {name: number for name, (number, _) in their_joints.items() if name in wanted}


def _bullet() -> Any:
    try:
        import pybullet
    except ImportError as error:
        raise UnavailableError(
            f"robodyn.simulators.pybullet.Bridge: PyBullet cannot be imported here ({error}): {install('pybullet')}"
        ) from error
    return pybullet
