"""Pinocchio as an oracle: the queries of `robodyn.Dynamics`, with our arguments and answers in our order.

Pinocchio numbers joints depth-first, has cosine and sine for a continuous joint and for the angle of a planar one, puts
the linear part of 6-vectors first, and takes external forces in the frames of the joints. All that is converted here,
by the names of joints and links. Arrays are batches (B, ...); Pinocchio answers one state at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

import robodyn as rd

Array = NDArray[np.float64]

FRAMES = {
    "world": pin.ReferenceFrame.WORLD,
    "body": pin.ReferenceFrame.LOCAL,
    "world_aligned": pin.ReferenceFrame.LOCAL_WORLD_ALIGNED,
}
LINEAR_FIRST = [3, 4, 5, 0, 1, 2]
"""Turns linear, angular into angular, linear and back."""


class PinocchioOracle:
    """Answers for a robot without mimics. `V0` and `dV0` are the velocity and acceleration of a carrier below its base,
    whose place is the world's."""

    def __init__(self, pin_model: pin.Model, model: rd.Model) -> None:
        assert not model.has_mimic
        self.pin, self.data, self.model = pin_model, pin_model.createData(), model
        self.frames = [pin_model.getFrameId(name, pin.FrameType.BODY) for name in model.link_names]
        # Where our coordinates and velocities lie in Pinocchio's; angles of which it has cosine and sine; the joint of
        # every body, 0 for the massless one between the axes of a universal joint.
        self.plain: tuple[list[int], list[int]] = ([], [])
        self.turning: tuple[list[int], list[int]] = ([], [])
        self.velocities: list[int] = []
        self.joints: list[int] = []
        for body, name in enumerate(model.joint_names):
            self._find(body, name)

    def _find(self, body: int, name: str) -> None:
        whole = name if self.pin.existJointName(name) else name.rpartition("/")[0]
        part = 0 if whole == name else int(name.rpartition("/")[2]) - 1
        j = self.pin.getJointId(whole)
        kind = self.pin.joints[j].shortname()
        middle = kind == "JointModelUniversal" and part == 0
        self.joints.append(0 if middle else j)
        ends = [*self.model.q_start.tolist(), self.model.nq], [*self.model.v_start.tolist(), self.model.nv]
        nq, nv = (end[body + 1] - end[body] for end in ends)
        ours, theirs = self.model.q_start[body], self.pin.idx_qs[j] + part
        plain = nq - 1 if kind.startswith(("JointModelRUB", "JointModelRevoluteUnbounded", "JointModelPlanar")) else nq
        self.plain[0].extend(range(ours, ours + plain))
        self.plain[1].extend(range(theirs, theirs + plain))
        self.turning[0].extend(range(ours + plain, ours + nq))
        self.turning[1].extend(range(theirs + plain, theirs + nq))
        self.velocities.extend(range(self.pin.idx_vs[j] + part, self.pin.idx_vs[j] + part + nv))

    @cached_property
    def carried(self) -> PinocchioOracle:
        """The same robot on a massless free body; what was fixed to the world has no part in what moves."""
        whole = pin.Model()
        whole.gravity = self.pin.gravity
        whole.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "carrier")
        for j in range(1, self.pin.njoints):
            placement, name = self.pin.jointPlacements[j], self.pin.names[j]
            whole.addJoint(self.pin.parents[j] + 1, self.pin.joints[j], placement, name)
            whole.inertias[j + 1] = self.pin.inertias[j]
        for frame in self.pin.frames:
            if frame.type == pin.FrameType.BODY:
                whole.addFrame(pin.Frame(frame.name, frame.parentJoint + 1, frame.placement, frame.type), False)
        whole.armature = np.concatenate([np.zeros(6), self.pin.armature])
        return PinocchioOracle(whole, self.model)

    # Ours to Pinocchio's.

    def coordinates(self, q: Array) -> Array:
        """q as Pinocchio has it, (B, its nq)."""
        out = np.tile(pin.neutral(self.pin), (len(q), 1))
        out[:, self.plain[1]] = q[:, self.plain[0]]
        angle, at = q[:, self.turning[0]], np.array(self.turning[1], dtype=int)
        out[:, at], out[:, at + 1] = np.cos(angle), np.sin(angle)
        return out

    def _rates(self, rates: Array, base: Array | None = None) -> Array:
        out = np.zeros((len(rates), self.pin.nv))
        out[:, self.velocities] = rates
        if base is not None:
            out[:, :6] = base[:, LINEAR_FIRST]
        return out

    def _forces(self, q: Array, f_ext: Array | None) -> pin.StdVec_Force:
        """External forces of one state in the frames of the joints; `q` is Pinocchio's."""
        forces = pin.StdVec_Force()
        forces.extend([pin.Force.Zero()] * self.pin.njoints)
        if f_ext is not None:
            pin.forwardKinematics(self.pin, self.data, q)
            for j, wrench in zip(self.joints, f_ext, strict=True):
                assert j > 0 or not wrench.any()
                forces[j] = self.data.oMi[j].actInv(pin.Force(wrench[3:], wrench[:3]))
        return forces

    def _square(self, matrix: Array) -> Array:
        return matrix[np.ix_(self.velocities, self.velocities)]

    # Forces and accelerations.

    def inverse_dynamics(
        self,
        q: Array,
        qd: Array,
        qdd: Array,
        f_ext: Array | None = None,
        *,
        V0: Array | None = None,
        dV0: Array | None = None,
    ) -> Array:
        on = self if V0 is None else self.carried

        def one(q: Array, v: Array, a: Array, f_ext: Array | None) -> Array:
            return pin.rnea(on.pin, on.data, q, v, a, on._forces(q, f_ext))[on.velocities]

        return _each(one, on.coordinates(q), on._rates(qd, V0), on._rates(qdd, dV0), f_ext)

    def bias_force(self, q: Array, qd: Array, f_ext: Array | None = None) -> Array:
        return self.inverse_dynamics(q, qd, np.zeros_like(qd), f_ext)

    def gravity_force(self, q: Array) -> Array:
        return _each(
            lambda q: pin.computeGeneralizedGravity(self.pin, self.data, q)[self.velocities], self.coordinates(q)
        )

    def forward_dynamics(self, q: Array, qd: Array, tau: Array, f_ext: Array | None = None) -> Array:
        def one(q: Array, v: Array, tau: Array, f_ext: Array | None) -> Array:
            return pin.aba(self.pin, self.data, q, v, tau, self._forces(q, f_ext))[self.velocities]

        return _each(one, self.coordinates(q), self._rates(qd), self._rates(tau), f_ext)

    def mass_matrix(self, q: Array) -> Array:
        def one(q: Array) -> Array:
            upper = np.triu(pin.crba(self.pin, self.data, q))
            return self._square(upper + np.triu(upper, 1).T)

        return _each(one, self.coordinates(q))

    def mass_matrix_inverse(self, q: Array) -> Array:
        def one(q: Array) -> Array:
            upper = np.triu(pin.computeMinverse(self.pin, self.data, q))
            return self._square(upper + np.triu(upper, 1).T)

        return _each(one, self.coordinates(q))

    def coriolis_matrix(self, q: Array, qd: Array, *, V0: Array | None = None) -> Array:
        on = self if V0 is None else self.carried
        return _each(
            lambda q, v: on._square(pin.computeCoriolisMatrix(on.pin, on.data, q, v)),
            on.coordinates(q),
            on._rates(qd, V0),
        )

    # Gradients.

    def inverse_dynamics_gradient(
        self,
        q: Array,
        qd: Array,
        qdd: Array,
        f_ext: Array | None = None,
        *,
        V0: Array | None = None,
        dV0: Array | None = None,
    ) -> Array:
        """dtau/dq and dtau/dqd, (B, 2, nv, nv)."""
        on = self if V0 is None else self.carried

        def one(q: Array, v: Array, a: Array, f_ext: Array | None) -> Array:
            forces = on._forces(q, f_ext)
            by_q, by_qd, _ = pin.computeRNEADerivatives(on.pin, on.data, q, v, a, forces)
            return np.stack([on._square(by_q + on._turning_forces(q, forces)), on._square(by_qd)])

        return _each(one, on.coordinates(q), on._rates(qd, V0), on._rates(qdd, dV0), f_ext)

    def forward_dynamics_gradient(self, q: Array, qd: Array, tau: Array, f_ext: Array | None = None) -> Array:
        """dqdd/dq, dqdd/dqd and dqdd/dtau, (B, 3, nv, nv)."""

        def one(q: Array, v: Array, tau: Array, f_ext: Array | None) -> Array:
            forces = self._forces(q, f_ext)
            by_q, by_qd, by_tau = pin.computeABADerivatives(self.pin, self.data, q, v, tau, forces)
            by_tau = np.triu(by_tau) + np.triu(by_tau, 1).T
            by_q = by_q - by_tau @ self._turning_forces(q, forces)
            return np.stack([self._square(part) for part in (by_q, by_qd, by_tau)])

        return _each(one, self.coordinates(q), self._rates(qd), self._rates(tau), f_ext)

    def _turning_forces(self, q: Array, forces: pin.StdVec_Force) -> Array:
        """What to add to Pinocchio's dtau/dq, whose external forces turn with the bodies, for ours, which stay."""
        total = np.zeros((self.pin.nv, self.pin.nv))
        pin.computeJointJacobians(self.pin, self.data, q)
        for j, force in enumerate(forces):
            if force.vector.any():
                J = pin.getJointJacobian(self.pin, self.data, j, pin.ReferenceFrame.LOCAL)
                total += J.T @ np.array([pin.Motion(column).cross(force).vector for column in J.T]).T
        return total

    # Kinematics.

    def forward_kinematics(self, q: Array) -> Array:
        def one(q: Array) -> Array:
            pin.framesForwardKinematics(self.pin, self.data, q)
            return np.array([self.data.oMf[frame].homogeneous for frame in self.frames])

        return _each(one, self.coordinates(q))

    def jacobian(self, q: Array, link: int, frame: str) -> Array:
        def one(q: Array) -> Array:
            J = pin.computeFrameJacobian(self.pin, self.data, q, self.frames[link], FRAMES[frame])
            return J[np.ix_(LINEAR_FIRST, self.velocities)]

        return _each(one, self.coordinates(q))

    def link_velocity(self, q: Array, qd: Array, link: int, frame: str, *, V0: Array | None = None) -> Array:
        on = self if V0 is None else self.carried

        def one(q: Array, v: Array) -> Array:
            pin.forwardKinematics(on.pin, on.data, q, v)
            return pin.getFrameVelocity(on.pin, on.data, on.frames[link], FRAMES[frame]).vector[LINEAR_FIRST]

        return _each(one, on.coordinates(q), on._rates(qd, V0))

    def link_acceleration(
        self,
        q: Array,
        qd: Array,
        qdd: Array,
        link: int,
        frame: str,
        *,
        classical: bool = False,
        V0: Array | None = None,
        dV0: Array | None = None,
    ) -> Array:
        on = self if V0 is None else self.carried
        ask = pin.getFrameClassicalAcceleration if classical else pin.getFrameAcceleration

        def one(q: Array, v: Array, a: Array) -> Array:
            pin.forwardKinematics(on.pin, on.data, q, v, a)
            return ask(on.pin, on.data, on.frames[link], FRAMES[frame]).vector[LINEAR_FIRST]

        return _each(one, on.coordinates(q), on._rates(qd, V0), on._rates(qdd, dV0))

    # Totals.

    def kinetic_energy(self, q: Array, qd: Array, *, V0: Array | None = None) -> Array:
        on = self if V0 is None else self.carried
        return _each(
            lambda q, v: pin.computeKineticEnergy(on.pin, on.data, q, v), on.coordinates(q), on._rates(qd, V0)
        )

    def potential_energy(self, q: Array) -> Array:
        return _each(lambda q: pin.computePotentialEnergy(self.pin, self.data, q), self.coordinates(q))

    def center_of_mass(self, q: Array) -> Array:
        return _each(lambda q: pin.centerOfMass(self.pin, self.data, q).copy(), self.coordinates(q))

    def centroidal_momentum(self, q: Array, qd: Array, *, V0: Array | None = None) -> Array:
        """Momentum and its matrix side by side, (B, 6, 1 + nv)."""
        on = self if V0 is None else self.carried

        def one(q: Array, v: Array) -> Array:
            A = pin.ccrba(on.pin, on.data, q, v)
            return np.column_stack([on.data.hg.vector, A[:, on.velocities]])[LINEAR_FIRST]

        return _each(one, on.coordinates(q), on._rates(qd, V0))

    # The configuration manifold.

    def integrate(self, q: Array, step: Array) -> Array:
        """q (+) step in Pinocchio's coordinates."""
        return _each(lambda q, v: pin.integrate(self.pin, q, v), self.coordinates(q), self._rates(step))

    def difference(self, q0: Array, q1: Array) -> Array:
        return _each(
            lambda q0, q1: pin.difference(self.pin, q0, q1)[self.velocities],
            self.coordinates(q0),
            self.coordinates(q1),
        )


def _each(one: Callable[..., object], *batches: Array | None) -> Array:
    """The answers for every state; None is None for every state."""
    count = len(next(batch for batch in batches if batch is not None))
    rows = zip(*([None] * count if batch is None else batch for batch in batches), strict=True)
    return np.array([one(*row) for row in rows])
