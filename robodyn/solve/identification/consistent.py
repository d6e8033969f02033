"""Least squares over parameters that bodies can have, by a barrier method.

The problem is convex (Wensing, Kim and Slotine 2018): minimise |R x - d|^2 / 2 + |P (x - x0)|^2 / 2 where the
pseudo-inertia J_i(x) of each body is positive definite and coefficients of joints are positive. The barrier adds
-mu log det J_i and -mu log x_j; mu falls until 4 mu for a body and mu for a coefficient, which bound the distance from
the minimum (Boyd and Vandenberghe, Convex Optimization, 2004, section 11.2), are small. Every Newton step is a
least-squares problem of its own, since the Hessian of -log det J is B' B with columns vec(L^-1 E_k L^-T), J = L L'.
"""

from __future__ import annotations

import numpy as np

from robodyn.core.inertial_parameters import pseudo_inertia
from robodyn.internals.arguments import Array
from robodyn.internals.errors import NumericalError
from robodyn.solve.identification.prior import whitened

_FALL = 0.1
"""What the factor mu of the barrier is multiplied by."""
_STEPS, _HALVINGS = 60, 60
_DECREMENT = 1e-3
"""Newton's method ends for one mu when the expected decrease, relative to mu, is below."""
_GAP, _ROUNDING = 1e-6, 1e-14
"""The last distance from the minimum, in units of the noise's variance; relative to the first value of the function."""


def constrained(R: Array, d: Array, P: Array, start: Array, bodies: int) -> Array:
    """The minimiser x (p,), from a feasible `start` (p,) that is the prior x0 as well.

    `bodies`: x begins with ten numbers for each of them; the others are coefficients that are not negative.

    Raises:
        NumericalError: Newton's method does not end.
    """
    x, count = start.copy(), start.size - 6 * bodies
    fixed, target = np.vstack((R, P)), np.concatenate((d, P @ start))
    first = 0.5 * float(np.sum((fixed @ x - target) ** 2))
    last, mu = max(_GAP, _ROUNDING * first) / count, max(1.0, first / count)
    while True:
        x = _newton(fixed, target, mu, x, bodies)
        if mu <= last:
            return x
        mu *= _FALL


def _newton(fixed: Array, target: Array, mu: float, x: Array, bodies: int) -> Array:
    for _ in range(_STEPS):
        B, c = _barrier(x, bodies)
        A = np.vstack((fixed, np.sqrt(mu) * B))
        b = np.concatenate((target - fixed @ x, np.sqrt(mu) * c))
        scale = np.linalg.norm(A, axis=0)
        step = np.linalg.lstsq(A / scale, b, rcond=None)[0] / scale
        decrement = float(np.sum((A @ step) ** 2))
        if decrement < _DECREMENT * mu:
            return x
        length, now = 1.0, _value(fixed, target, mu, x, bodies)
        for _ in range(_HALVINGS):
            trial = x + length * step
            if _value(fixed, target, mu, trial, bodies) <= now - 0.25 * length * decrement:
                break
            length *= 0.5
        else:
            return x  # rounding leaves no decrease
        x = trial
    raise NumericalError(f"identify: the search for consistent parameters does not end ({_STEPS} Newton steps)")


def _barrier(x: Array, bodies: int) -> tuple[Array, Array]:
    """B (rows, p) and c (rows,): the barrier's Hessian is B' B, and its gradient is -B' c."""
    rest, B = x[10 * bodies :], np.zeros((6 * bodies + x.size, x.size))
    for k, block in enumerate(whitened(x[: 10 * bodies].reshape(bodies, 10))):
        B[16 * k : 16 * k + 16, 10 * k : 10 * k + 10] = block
    B[16 * bodies + np.arange(rest.size), 10 * bodies + np.arange(rest.size)] = 1.0 / rest
    return B, np.concatenate((np.tile(np.eye(4).ravel(), bodies), np.ones(rest.size)))


def _value(fixed: Array, target: Array, mu: float, x: Array, bodies: int) -> float:
    """The function that is minimised; infinite outside of what bodies can have."""
    rest = x[10 * bodies :]
    if not (rest > 0.0).all():
        return np.inf
    try:
        L = np.linalg.cholesky(pseudo_inertia(x[: 10 * bodies].reshape(bodies, 10)))
    except np.linalg.LinAlgError:
        return np.inf
    logs = 2.0 * np.log(np.diagonal(L, axis1=-2, axis2=-1)).sum() + np.log(rest).sum()
    return float(0.5 * np.sum((fixed @ x - target) ** 2) - mu * logs)
