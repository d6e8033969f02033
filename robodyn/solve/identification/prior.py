"""What is known before: a guess that bodies can have, and how far parameters are expected to be from it."""

from __future__ import annotations

import numpy as np

from robodyn.core.inertial_parameters import from_pseudo_inertia, pseudo_inertia
from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass
from robodyn.solve.identification.rows import Samples

_LIGHTEST, _THINNEST, _SMALLEST = 1e-4, 0.03, 1e-3
"""A guess: masses relative to the mean mass, radii of gyration relative to the body's largest, and that in m."""
_POSITIVE = 1e-3
"""A first coefficient, relative to its scale."""
_SHARE = 0.1
"""Of a joint's torques that armature, damping and dry friction are each expected to take."""


@dataclass(frozen=True, eq=False)
class Guess:
    """Parameters that are expected: `inertia` (n_bodies, 10), which bodies can have, and `coefficients` (k,) of joints,
    which may be `scale` (k,) away."""

    inertia: Array
    coefficients: Array
    scale: Array

    @cached_property
    def trace(self) -> Array:
        """(10 n_bodies,) the derivatives of tr(P^-1 J) by the parameters of J, for the pseudo-inertias P of bodies."""
        inverse = np.linalg.inv(pseudo_inertia(self.inertia))
        return np.asarray(np.einsum("nij,kji->nk", inverse, pseudo_inertia(np.eye(10))).ravel())

    @property
    def start(self) -> Array:
        """All of them as one vector, coefficients a little above zero."""
        return np.concatenate((self.inertia.ravel(), np.maximum(self.coefficients, _POSITIVE * self.scale)))

    def split(self, x: Array) -> tuple[Array, Array]:
        """(n_bodies, 10) and (k,)."""
        return x[: self.inertia.size].reshape(-1, 10), x[self.inertia.size :]

    def deviation(self, rest: Array) -> Array:
        """(k,) of coefficients, in units of their scale."""
        return np.asarray((rest - self.coefficients) / self.scale)


def guess_of(model: Model, samples: Samples) -> Guess:
    """From a model; how far coefficients may be off is seen from the torques."""
    coefficients, scale = _coefficients(model, samples)
    return Guess(nominal(model), coefficients, np.abs(coefficients) + scale)


def nominal(model: Model) -> Array:
    """(n_bodies, 10) inertial parameters; bodies that are flat, without mass or impossible are thickened."""
    inertia = model.inertia
    mass = np.maximum(inertia[:, 0], _LIGHTEST * max(float(inertia[:, 0].mean()), _LIGHTEST))
    at = inertia[:, 1:4] / mass[:, None]
    outer = mass[:, None, None] * at[:, :, None] * at[:, None, :]
    sizes, axes = np.linalg.eigh(pseudo_inertia(inertia)[:, :3, :3] - outer)
    largest = np.sqrt(np.maximum(sizes[:, -1], 0.0) / mass)
    least = mass * np.maximum(_THINNEST * largest, _SMALLEST) ** 2
    sizes = np.maximum(sizes, least[:, None])
    J = np.zeros((len(mass), 4, 4))
    J[:, :3, :3] = (axes * sizes[:, None]) @ np.swapaxes(axes, -1, -2) + outer
    J[:, :3, 3] = J[:, 3, :3] = mass[:, None] * at
    J[:, 3, 3] = mass
    return from_pseudo_inertia(J)


def whitened(inertia: Array) -> Array:
    """(n_bodies, 16, 10) columns vec(L^-1 E_k L^-T) of each body, with J = L L' its pseudo-inertia and E_k that of a
    unit of parameter k: their products are `deviation_metric`."""
    L = np.linalg.cholesky(pseudo_inertia(inertia))
    half = np.linalg.solve(L[:, None], pseudo_inertia(np.eye(10)))
    both = np.linalg.solve(L[:, None], np.swapaxes(half, -1, -2))
    return np.swapaxes(both.reshape(len(inertia), 10, 16), -1, -2)


def _coefficients(model: Model, samples: Samples) -> tuple[Array, Array]:
    """(guess, scale): coefficients of joints but speeds, in the order of the unknowns, and how far they may be from
    the guess."""
    unknowns, joints = samples.unknowns, samples.unknowns.joints
    v, a, forces = (np.sqrt(np.mean(each[:, joints] ** 2, axis=0)) for each in (*samples.motion[1:], samples.tau))
    forces = _SHARE * np.where(forces > 0.0, forces, forces.max(initial=0.0) or 1.0)
    by_kind = {
        "armature": (model.armature, forces / np.where(a > 0.0, a, 1.0)),
        "damping": (model.damping, forces / np.where(v > 0.0, v, 1.0)),
        "friction": (model.friction, forces),
        "stribeck": (np.zeros(model.nv), forces),
    }
    guess = [np.asarray(by_kind[kind][0])[joints] for kind in unknowns.kinds if kind != "speed"]
    scale = [by_kind[kind][1] for kind in unknowns.kinds if kind != "speed"]
    return np.concatenate([np.zeros(0), *guess]), np.concatenate([np.zeros(0), *scale])
