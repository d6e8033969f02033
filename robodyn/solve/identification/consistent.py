"""Least squares over parameters that bodies can have, near a guess: a convex problem.

    minimise  |R x - d|^2 / 2 + w sum over bodies of (tr(P_i^-1 J_i) - log det J_i) + |(c - c0) / s|^2 w / 2

J_i is the pseudo-inertia of body i, which is linear in x, and P_i that of the guess; c are coefficients of joints. The
sum is, but for a constant, the entropic divergence of Lee, Wensing and Park (2020): zero at the guess, infinite where a
body cannot exist, the same in all frames and units. Coefficients are kept positive by -mu log c. mu falls until it does
not matter, and w from as high to what is asked for (Boyd and Vandenberghe, Convex Optimization, 2004, section 11.3).
"""

from __future__ import annotations

import numpy as np

from robodyn.core.inertial_parameters import pseudo_inertia
from robodyn.internals.arguments import Array
from robodyn.internals.errors import NumericalError
from robodyn.internals.records import dataclass
from robodyn.solve.identification.prior import Guess, whitened

_FALL = 0.2
"""What the factor mu of the barrier is multiplied by. Its first value holds the answer near the guess."""
_STEPS, _HALVINGS = 100, 60
_ENOUGH = 0.25
"""The part of the promised decrease that a step must bring."""
_DECREMENT = 1e-3
"""Newton's method ends when the expected decrease, relative to mu or the weight, is below."""
_GAP, _ROUNDING = 1e-6, 1e-14
"""The last distance from the minimum, in units of the noise's variance; relative to the first value of the function."""


@dataclass(frozen=True)
class _Problem:
    R: Array
    d: Array
    guess: Guess
    weight: float

    def value(self, x: Array, mu: float) -> float:
        """What is minimised; infinite outside of what bodies can have."""
        bodies, rest = self.guess.split(x)
        if not (rest > 0.0).all():
            return np.inf
        try:
            L = np.linalg.cholesky(pseudo_inertia(bodies))
        except np.linalg.LinAlgError:
            return np.inf
        logs = 2.0 * np.log(np.diagonal(L, axis1=-2, axis2=-1)).sum()
        found = 0.5 * np.sum((self.R @ x - self.d) ** 2) + self.weight * (self.guess.trace @ bodies.ravel() - logs)
        return float(found + 0.5 * self.weight * np.sum(self.guess.deviation(rest) ** 2) - mu * np.log(rest).sum())

    def step(self, x: Array, mu: float) -> tuple[Array, float]:
        """A Newton step, and the decrease that it promises, twice. With A'A the Hessian and A'b - g minus the
        gradient, it is a least-squares problem: no matrix is squared."""
        bodies, rest = self.guess.split(x)
        n, k, root = x.size, bodies.size, np.sqrt(self.weight)
        blocks = whitened(bodies)
        B = np.zeros((16 * len(bodies), n))
        for i, block in enumerate(blocks):
            B[16 * i : 16 * i + 16, 10 * i : 10 * i + 10] = block
        diagonal = np.eye(n)[k:]
        A = np.vstack(
            (self.R, root * B, root * diagonal / self.guess.scale[:, None], np.sqrt(mu) * diagonal / rest[:, None])
        )
        b = np.concatenate(
            (
                self.d - self.R @ x,
                root * np.tile(np.eye(4).ravel(), len(bodies)),
                -root * self.guess.deviation(rest),
                np.full(rest.size, np.sqrt(mu)),
            )
        )
        g = np.concatenate((self.weight * self.guess.trace, np.zeros(rest.size)))
        sizes = np.linalg.norm(A, axis=0)
        Q, S = np.linalg.qr(A / sizes)
        scaled = np.linalg.solve(S, Q.T @ b - np.linalg.solve(S.T, g / sizes))
        return scaled / sizes, float(np.sum((S @ scaled) ** 2))


def constrained(R: Array, d: Array, guess: Guess, weight: float) -> Array:
    """The minimiser x (p,): ten numbers for each body, then coefficients of joints.

    Raises:
        NumericalError: Newton's method does not end.
    """
    x = guess.start
    count = 4 * len(guess.inertia) + guess.coefficients.size
    first = 0.5 * float(np.sum((R @ x - d) ** 2))
    least = max(_GAP, _ROUNDING * first) / count
    mu = max(1.0, first)
    while True:
        x = _newton(_Problem(R, d, guess, max(weight, mu)), x, mu)
        if mu <= least:
            return x
        mu = max(least, _FALL * mu)


def _newton(problem: _Problem, x: Array, mu: float) -> Array:
    for _ in range(_STEPS):
        step, decrement = problem.step(x, mu)
        if decrement < _DECREMENT * mu:
            return x
        length, now = 1.0, problem.value(x, mu)
        # Far from a small guess a step of Newton's is short: as long as twice the step is better, it is taken.
        while problem.value(x + 2.0 * length * step, mu) < min(now, problem.value(x + length * step, mu)):
            length *= 2.0
        for _ in range(_HALVINGS):
            if problem.value(x + length * step, mu) <= now - _ENOUGH * min(1.0, length) * decrement:
                break
            length *= 0.5
        else:
            return x  # rounding leaves no decrease
        x = x + length * step
    raise NumericalError(f"identify: the search for consistent parameters does not end ({_STEPS} Newton steps)")
