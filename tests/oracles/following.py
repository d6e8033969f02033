"""An oracle for robots whose joints mimic others, made of one that lets every joint move on its own.

With y = G q + g0 the coordinates of all joints, tau = G' tau_y, H = G' H_y G, and so on. G is built here from what the
file says about each joint, not from the arrays of our model.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import robodyn as rd
from oracles.pinocchio_oracle import PinocchioOracle
from oracles.quantities import Array, relative
from oracles.urdf_text import Mimics


class FollowingOracle:
    """The queries of `PinocchioOracle` for `model`, whose joints follow others; in `free` all move on their own."""

    def __init__(self, free: PinocchioOracle, model: rd.Model, mimics: Mimics) -> None:
        self.free, self.model = free, model
        self.G_q, self.offset = _coupling(free.model.coordinate_names, model.coordinate_names, mimics)
        self.G, _ = _coupling(free.model.velocity_names, model.velocity_names, mimics)
        # A joint that never moves has no body of its own in our model, and no force acts on it alone.
        self.bodies = [free.model.body_names.index(name) for name in model.body_names]

    def _q(self, q: Array) -> Array:
        return q @ self.G_q.T + self.offset

    def _v(self, rates: Array) -> Array:
        return rates @ self.G.T

    def _f(self, f_ext: Array | None) -> Array | None:
        if f_ext is None:
            return None
        out = np.zeros((len(f_ext), self.free.model.n_bodies, 6))
        out[:, self.bodies] = f_ext
        return out

    def _square(self, matrix: Array) -> Array:
        return self.G.T @ matrix @ self.G

    def inverse_dynamics(self, q: Array, qd: Array, qdd: Array, f_ext: Array | None = None, **base: Any) -> Array:
        return self.free.inverse_dynamics(self._q(q), self._v(qd), self._v(qdd), f_ext=self._f(f_ext), **base) @ self.G

    def bias_force(self, q: Array, qd: Array, f_ext: Array | None = None) -> Array:
        return self.free.bias_force(self._q(q), self._v(qd), f_ext=self._f(f_ext)) @ self.G

    def gravity_force(self, q: Array) -> Array:
        return self.free.gravity_force(self._q(q)) @ self.G

    def gravity_force_gradient(self, q: Array) -> Array:
        return self._square(self.free.gravity_force_gradient(self._q(q)))

    def mass_matrix_product_gradient(self, q: Array, vector: Array) -> Array:
        return self._square(self.free.mass_matrix_product_gradient(self._q(q), vector=self._v(vector)))

    def mass_matrix(self, q: Array) -> Array:
        return self._square(self.free.mass_matrix(self._q(q)))

    def mass_matrix_inverse(self, q: Array) -> Array:
        return np.linalg.inv(self.mass_matrix(q))

    def inversion_error(self, q: Array) -> float:
        """How far two inverses of H by NumPy are apart, by LU and by Cholesky, relative to the largest entry."""
        root = np.linalg.inv(np.linalg.cholesky(self.mass_matrix(q)))
        return relative(np.swapaxes(root, 1, 2) @ root, self.mass_matrix_inverse(q))

    def _forward_dynamics(self, q: Array, qd: Array, tau: Array, f_ext: Array | None = None) -> Array:
        rest = tau - self.bias_force(q, qd, f_ext=f_ext)
        return np.linalg.solve(self.mass_matrix(q), rest[..., None])[..., 0]

    def coriolis_matrix(self, q: Array, qd: Array, **base: Any) -> Array:
        return self._square(self.free.coriolis_matrix(self._q(q), self._v(qd), **base))

    def inverse_dynamics_gradient(
        self, q: Array, qd: Array, qdd: Array, f_ext: Array | None = None, **base: Any
    ) -> tuple[Array, ...]:
        parts = self.free.inverse_dynamics_gradient(self._q(q), self._v(qd), self._v(qdd), f_ext=self._f(f_ext), **base)
        return tuple(map(self._square, parts))

    def forward_dynamics_gradient(
        self, q: Array, qd: Array, tau: Array, f_ext: Array | None = None
    ) -> tuple[Array, ...]:
        Hinv = self.mass_matrix_inverse(q)
        by_q, by_qd = self.inverse_dynamics_gradient(q, qd, self._forward_dynamics(q, qd, tau, f_ext), f_ext=f_ext)
        return -Hinv @ by_q, -Hinv @ by_qd, Hinv

    def forward_kinematics(self, q: Array) -> Array:
        return self.free.forward_kinematics(self._q(q))

    def jacobian(self, q: Array, link: int, frame: str) -> Array:
        return self.free.jacobian(self._q(q), link, frame=frame) @ self.G

    def jacobian_derivative(self, q: Array, qd: Array, link: int, frame: str, **base: Any) -> Array:
        return self.free.jacobian_derivative(self._q(q), self._v(qd), link, frame=frame, **base) @ self.G

    def pose_hessian(self, q: Array, link: int, frame: str) -> Array:
        return self._square(self.free.pose_hessian(self._q(q), link, frame=frame))

    def link_velocity(self, q: Array, qd: Array, link: int, frame: str, **base: Any) -> Array:
        return self.free.link_velocity(self._q(q), self._v(qd), link, frame=frame, **base)

    def link_acceleration(self, q: Array, qd: Array, qdd: Array, link: int, frame: str, **options: Any) -> Array:
        return self.free.link_acceleration(self._q(q), self._v(qd), self._v(qdd), link, frame=frame, **options)

    def kinetic_energy(self, q: Array, qd: Array, **base: Any) -> Array:
        return self.free.kinetic_energy(self._q(q), self._v(qd), **base)

    def kinetic_energy_gradient(self, q: Array, qd: Array) -> tuple[Array, ...]:
        return tuple(part @ self.G for part in self.free.kinetic_energy_gradient(self._q(q), self._v(qd)))

    def potential_energy(self, q: Array) -> Array:
        return self.free.potential_energy(self._q(q))

    def center_of_mass(self, q: Array) -> Array:
        return self.free.center_of_mass(self._q(q))

    def center_of_mass_jacobian(self, q: Array) -> Array:
        return self.free.center_of_mass_jacobian(self._q(q)) @ self.G

    def centroidal_momentum(self, q: Array, qd: Array, **base: Any) -> tuple[Array, Array]:
        h, A = self.free.centroidal_momentum(self._q(q), self._v(qd), **base)
        return h, A @ self.G


def _coupling(every: tuple[str, ...], own: tuple[str, ...], mimics: Mimics) -> tuple[Array, Array]:
    """G and g0 with (coordinates `every`) = G (coordinates `own`) + g0; a coordinate of a follower has its name."""
    G, offset = np.zeros((len(every), len(own))), np.zeros(len(every))
    for row, name in enumerate(every):
        factor = 1.0
        while name in mimics:
            name, multiplier, shift = mimics[name]
            offset[row] += factor * shift
            factor *= multiplier
        if name in own:  # otherwise it is a fixed joint: its position is zero
            G[row, own.index(name)] = factor
    return G, offset
