"""Pinocchio as an oracle: the queries of `robodyn.Dynamics`, with our arguments and answers in our order.

Pinocchio numbers joints depth-first, has cosine and sine for a continuous joint and for the angle of a planar one, puts
the linear part of 6-vectors first, and takes external forces in the frames of the joints. All that is converted here,
by the names of joints and links. Arrays are batches (B, ...); Pinocchio answers one state at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pinocchio as pin

import robodyn as rd
from oracles.quantities import Array, relative

FRAMES = {
    "world": pin.ReferenceFrame.WORLD,
    "body": pin.ReferenceFrame.LOCAL,
    "world_aligned": pin.ReferenceFrame.LOCAL_WORLD_ALIGNED,
}
SWAP = [3, 4, 5, 0, 1, 2]
"""Puts the angular part of a 6-vector before the linear one, or back."""

WITH_COSINE_AND_SINE = ("JointModelRUB", "JointModelRevoluteUnbounded", "JointModelPlanar")
"""Pinocchio's joints whose last coordinate of ours is an angle."""


class PinocchioOracle:
    """Answers for a robot without mimics. `V0` and `dV0` are answered by the same robot on a body that moves so."""

    def __init__(self, pin_model: pin.Model, model: rd.Model) -> None:
        assert not model.has_mimic
        self.pin, self.data, self.model = pin_model, pin_model.createData(), model
        self.frames = [pin_model.getFrameId(name, pin.FrameType.BODY) for name in model.link_names]
        self.joints = [pin_model.getJointId(name) for name in model.joint_names]
        # Where Pinocchio has our coordinates, the angles of which it has cosine and sine, and our velocities.
        self.plain: tuple[list[int], list[int]] = ([], [])
        self.angles: tuple[list[int], list[int]] = ([], [])
        self.velocities: list[int] = []
        for j, ours in zip(self.joints, model.q_start.tolist(), strict=True):
            nq, nv, theirs = pin_model.nqs[j], pin_model.nvs[j], pin_model.idx_qs[j]
            self.velocities.extend(range(pin_model.idx_vs[j], pin_model.idx_vs[j] + nv))
            if pin_model.joints[j].shortname().startswith(WITH_COSINE_AND_SINE):
                nq -= 2
                self.angles[0].append(ours + nq)
                self.angles[1].append(theirs + nq)
            self.plain[0].extend(range(ours, ours + nq))
            self.plain[1].extend(range(theirs, theirs + nq))

    @cached_property
    def carried(self) -> PinocchioOracle:
        """The same robot on a massless free body; what was fixed to the world has no part in what moves."""
        whole = pin.Model()
        whole.gravity = self.pin.gravity
        whole.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "carrier of the base")
        for j in range(1, self.pin.njoints):
            placement, name = self.pin.jointPlacements[j], self.pin.names[j]
            whole.addJoint(self.pin.parents[j] + 1, self.pin.joints[j], placement, name)
            whole.inertias[j + 1] = self.pin.inertias[j]
        for frame in self.pin.frames:
            if frame.type == pin.FrameType.BODY:
                whole.addFrame(pin.Frame(frame.name, frame.parentJoint + 1, frame.placement, frame.type), False)
        whole.armature = np.concatenate([np.zeros(6), self.pin.armature])
        return PinocchioOracle(whole, self.model)

    # Ours to Pinocchio's and back.

    def coordinates(self, q: Array) -> Array:
        """q as Pinocchio has it, (B, its nq); a carrier is at the world's origin."""
        out = np.tile(pin.neutral(self.pin), (len(q), 1))
        out[:, self.plain[1]] = q[:, self.plain[0]]
        angle, at = q[:, self.angles[0]], np.array(self.angles[1], dtype=int)
        out[:, at], out[:, at + 1] = np.cos(angle), np.sin(angle)
        return out

    def _rates(self, rates: Array, base: Array | None = None) -> Array:
        out = np.zeros((len(rates), self.pin.nv))
        out[:, self.velocities] = rates
        if base is not None:
            out[:, :6] = base[:, SWAP]
        return out

    def _forces(self, q: Array, f_ext: Array | None) -> pin.StdVec_Force:
        """External forces of one state in the frames of the joints; `q` is Pinocchio's."""
        forces = pin.StdVec_Force()
        forces.extend([pin.Force.Zero()] * self.pin.njoints)
        if f_ext is not None:
            pin.forwardKinematics(self.pin, self.data, q)
            for j, wrench in zip(self.joints, f_ext, strict=True):
                forces[j] = self.data.oMi[j].actInv(pin.Force(wrench[3:], wrench[:3]))
        return forces

    def _square(self, matrix: Array) -> Array:
        return matrix[np.ix_(self.velocities, self.velocities)]

    def _symmetric(self, upper: Array) -> Array:
        return self._square(np.triu(upper) + np.triu(upper, 1).T)

    def _columns(self, matrix: Array) -> Array:
        # Pinocchio hands out a matrix of one column as a vector.
        return matrix.reshape(6, -1)[np.ix_(SWAP, self.velocities)]

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
        return self.inverse_dynamics(q, qd, np.zeros_like(qd), f_ext=f_ext)

    def gravity_force(self, q: Array) -> Array:
        def one(q: Array) -> Array:
            return pin.computeGeneralizedGravity(self.pin, self.data, q)[self.velocities]

        return _each(one, self.coordinates(q))

    def gravity_force_gradient(self, q: Array) -> Array:
        def one(q: Array) -> Array:
            return self._square(pin.computeGeneralizedGravityDerivatives(self.pin, self.data, q))

        return _each(one, self.coordinates(q))

    def mass_matrix_product_gradient(self, q: Array, vector: Array) -> Array:
        """By derivatives of inverse dynamics at rest, without gravity."""
        floats = pin.Model(self.pin)
        floats.gravity.linear = np.zeros(3)

        def one(q: Array, a: Array) -> Array:
            return self._square(pin.computeRNEADerivatives(floats, self.data, q, np.zeros_like(a), a)[0])

        return _each(one, self.coordinates(q), self._rates(vector))

    def mass_matrix(self, q: Array) -> Array:
        return _each(lambda q: self._symmetric(pin.crba(self.pin, self.data, q)), self.coordinates(q))

    def mass_matrix_inverse(self, q: Array) -> Array:
        """The inverse of Pinocchio's H by NumPy: more accurate than Pinocchio's own (docs/accuracy.md)."""
        return np.linalg.inv(self.mass_matrix(q))

    def inversion_error(self, q: Array) -> float:
        """How far Pinocchio's inverse of H is from NumPy's, relative to the largest entry."""
        theirs = _each(lambda q: self._symmetric(pin.computeMinverse(self.pin, self.data, q)), self.coordinates(q))
        return relative(theirs, self.mass_matrix_inverse(q))

    def coriolis_matrix(self, q: Array, qd: Array, *, V0: Array | None = None) -> Array:
        on = self if V0 is None else self.carried

        def one(q: Array, v: Array) -> Array:
            return on._square(pin.computeCoriolisMatrix(on.pin, on.data, q, v))

        return _each(one, on.coordinates(q), on._rates(qd, V0))

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
    ) -> tuple[Array, Array]:
        on = self if V0 is None else self.carried

        def one(q: Array, v: Array, a: Array, f_ext: Array | None) -> tuple[Array, Array]:
            forces = on._forces(q, f_ext)
            by_q, by_qd, _ = pin.computeRNEADerivatives(on.pin, on.data, q, v, a, forces)
            by_q, by_qd = by_q.copy(), by_qd.copy()
            return on._square(by_q + on._turning_forces(q, forces)), on._square(by_qd)

        by_q, by_qd = np.moveaxis(_each(one, on.coordinates(q), on._rates(qd, V0), on._rates(qdd, dV0), f_ext), 1, 0)
        return by_q, by_qd

    def forward_dynamics_gradient(
        self, q: Array, qd: Array, tau: Array, f_ext: Array | None = None
    ) -> tuple[Array, Array, Array]:
        def one(q: Array, v: Array, tau: Array, f_ext: Array | None) -> tuple[Array, Array, Array]:
            forces = self._forces(q, f_ext)
            by_q, by_qd, by_tau = pin.computeABADerivatives(self.pin, self.data, q, v, tau, forces)
            by_q, by_qd, by_tau = self._square(by_q), self._square(by_qd), self._symmetric(by_tau)
            return by_q - by_tau @ self._square(self._turning_forces(q, forces)), by_qd, by_tau

        by_q, by_qd, by_tau = np.moveaxis(
            _each(one, self.coordinates(q), self._rates(qd), self._rates(tau), f_ext), 1, 0
        )
        return by_q, by_qd, by_tau

    def _turning_forces(self, q: Array, forces: pin.StdVec_Force) -> Array:
        """What to add to Pinocchio's dtau/dq, where external forces turn with the bodies, for ours, where they stay."""
        total = np.zeros((self.pin.nv, self.pin.nv))
        pin.computeJointJacobians(self.pin, self.data, q)
        for j, force in enumerate(forces):
            if force.vector.any():
                J = pin.getJointJacobian(self.pin, self.data, j, pin.ReferenceFrame.LOCAL).reshape(6, -1)
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
            return self._columns(pin.computeFrameJacobian(self.pin, self.data, q, self.frames[link], FRAMES[frame]))

        return _each(one, self.coordinates(q))

    def jacobian_derivative(self, q: Array, qd: Array, link: int, frame: str, *, V0: Array | None = None) -> Array:
        on = self if V0 is None else self.carried

        def one(q: Array, v: Array) -> Array:
            pin.computeJointJacobiansTimeVariation(on.pin, on.data, q, v)
            pin.updateFramePlacements(on.pin, on.data)
            return on._columns(pin.getFrameJacobianTimeVariation(on.pin, on.data, on.frames[link], FRAMES[frame]))

        return _each(one, on.coordinates(q), on._rates(qd, V0))

    def pose_hessian(self, q: Array, link: int, frame: str) -> Array:
        """In the link's frame entries within one joint are zero, as columns move along; there Pinocchio's are wrong."""
        joint = np.repeat(np.arange(self.model.n_bodies), np.diff([*self.model.v_start, self.model.nv]))
        kept = (joint[:, None] != joint) | (frame != "body")

        def one(q: Array) -> Array:
            pin.computeJointJacobians(self.pin, self.data, q)
            pin.updateFramePlacements(self.pin, self.data)
            pin.computeJointKinematicHessians(self.pin, self.data)
            H = pin.getFrameKinematicHessian(self.pin, self.data, self.frames[link], FRAMES[frame])
            # Its numbers are in Eigen's order, first index fastest, in an array that says the contrary.
            H = H.reshape(-1).reshape(H.shape, order="F")
            return H[np.ix_(SWAP, self.velocities, self.velocities)] * kept

        return _each(one, self.coordinates(q))

    def link_velocity(self, q: Array, qd: Array, link: int, frame: str, *, V0: Array | None = None) -> Array:
        on = self if V0 is None else self.carried

        def one(q: Array, v: Array) -> Array:
            pin.forwardKinematics(on.pin, on.data, q, v)
            return pin.getFrameVelocity(on.pin, on.data, on.frames[link], FRAMES[frame]).vector[SWAP]

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
        """A classical acceleration in "world" is asked for in "world_aligned", as ours is defined; Pinocchio's own is
        of the point at the world's origin."""
        on = self if V0 is None else self.carried
        frame = "world_aligned" if classical and frame == "world" else frame
        ask = pin.getFrameClassicalAcceleration if classical else pin.getFrameAcceleration

        def one(q: Array, v: Array, a: Array) -> Array:
            pin.forwardKinematics(on.pin, on.data, q, v, a)
            return ask(on.pin, on.data, on.frames[link], FRAMES[frame]).vector[SWAP]

        return _each(one, on.coordinates(q), on._rates(qd, V0), on._rates(qdd, dV0))

    # Totals.

    def kinetic_energy(self, q: Array, qd: Array, *, V0: Array | None = None) -> Array:
        """Armature is added here: Pinocchio counts it for some joint types and not for others."""
        on = self if V0 is None else self.carried
        bare = pin.Model(on.pin)
        bare.armature = np.zeros(bare.nv)

        def one(q: Array, v: Array) -> float:
            return pin.computeKineticEnergy(bare, on.data, q, v) + 0.5 * on.pin.armature @ (v * v)

        return _each(one, on.coordinates(q), on._rates(qd, V0))

    def kinetic_energy_gradient(self, q: Array, qd: Array) -> tuple[Array, Array]:
        by_q = np.einsum("bi,bij->bj", 0.5 * qd, self.mass_matrix_product_gradient(q, vector=qd))
        return by_q, (self.mass_matrix(q) @ qd[..., None])[..., 0]

    def potential_energy(self, q: Array) -> Array:
        return _each(lambda q: pin.computePotentialEnergy(self.pin, self.data, q), self.coordinates(q))

    def center_of_mass(self, q: Array) -> Array:
        return _each(lambda q: pin.centerOfMass(self.pin, self.data, q).copy(), self.coordinates(q))

    def center_of_mass_jacobian(self, q: Array) -> Array:
        def one(q: Array) -> Array:
            return pin.jacobianCenterOfMass(self.pin, self.data, q).reshape(3, -1)[:, self.velocities]

        return _each(one, self.coordinates(q))

    def centroidal_momentum(self, q: Array, qd: Array, *, V0: Array | None = None) -> tuple[Array, Array]:
        on = self if V0 is None else self.carried

        def one(q: Array, v: Array) -> Array:
            A = on._columns(pin.ccrba(on.pin, on.data, q, v))
            return np.column_stack([on.data.hg.vector[SWAP], A])

        both = _each(one, on.coordinates(q), on._rates(qd, V0))
        return both[..., 0], both[..., 1:]

    # The configuration manifold.

    def integrate(self, q: Array, step: Array) -> Array:
        """q (+) step in Pinocchio's coordinates."""
        return _each(lambda q, v: pin.integrate(self.pin, q, v), self.coordinates(q), self._rates(step))

    def difference(self, q0: Array, q1: Array) -> Array:
        def one(q0: Array, q1: Array) -> Array:
            return pin.difference(self.pin, q0, q1)[self.velocities]

        return _each(one, self.coordinates(q0), self.coordinates(q1))


def _each(one: Callable[..., Any], *batches: Array | None) -> Array:
    """The answers for every state; what is None is None for every state."""
    count = next(len(batch) for batch in batches if batch is not None)
    rows = zip(*([None] * count if batch is None else batch for batch in batches), strict=True)
    return np.array([one(*row) for row in rows])
