"""Constraint forces and what they do, on scalars: H qdd + bias = tau + J' lambda with J qdd + r = 0.

    H = L' D L      Y = L^-T J'      A = Y' D^-1 Y      z = L^-T (tau - bias)
    (A + M) lambda_(k+1) = -(r + Y' D^-1 z) + M lambda_k      qdd = L^-1 D^-1 (z + Y lambda)

with M = mu diag(A), a fixed number of times: where rows depend on each other, as those of every planar loop, lambda is
the shortest, each row measured in units of 1/sqrt(A_kk), and accelerations are exact to rounding after three (proximal
iterations, Carpentier, Budhiraja, Mansard, Proximal and Sparse Resolution of Constrained Dynamic Equations, 2021).
Zeros of the structure are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from robodyn.algorithms.definite import Definite, is_zero, product
from robodyn.chains import Elimination
from robodyn.joints import is_positive
from robodyn.model import Model

Rows = Sequence[Sequence[Any]]


@lru_cache(maxsize=16)
def _structure(model: Model) -> list[list[int]]:
    return [row.tolist() for row in Elimination(model).lower]


class Factors:
    """L and 1/D of a mass matrix (nv rows of nv scalars, of which the lower triangle is read)."""

    def __init__(self, model: Model, H: Rows) -> None:
        self._lower = _structure(model)
        n = len(H)
        self._L = [list(row) for row in H]
        self.inverse: list[Any] = [0.0] * n
        for k in range(n - 1, -1, -1):
            row, columns = self._L[k], self._lower[k]
            self.inverse[k] = 1.0 / row[k]
            for at in range(len(columns) - 1, -1, -1):
                p = columns[at]
                share = row[p] * self.inverse[k]
                for r in columns[: at + 1]:
                    self._L[p][r] = self._L[p][r] - share * row[r]
                row[p] = share

    def up(self, b: Sequence[Any]) -> list[Any]:
        """L^-T b."""
        x = list(b)
        for k in range(len(x) - 1, -1, -1):
            if not is_zero(x[k]):
                for p in self._lower[k]:
                    x[p] = x[p] - self._L[k][p] * x[k]
        return x

    def down(self, x: Sequence[Any]) -> list[Any]:
        """L^-1 D^-1 x."""
        x = [value if is_zero(value) else value * inverse for value, inverse in zip(x, self.inverse, strict=True)]
        for k in range(len(x)):
            for p in self._lower[k]:
                if not is_zero(x[p]):
                    x[k] = x[k] - self._L[k][p] * x[p]
        return x

    def product(self, a: Sequence[Any], b: Sequence[Any]) -> Any:
        """a' D^-1 b."""
        total: Any = 0.0
        for x, inverse, y in zip(a, self.inverse, b, strict=True):
            if not (is_zero(x) or is_zero(y)):
                total = total + x * inverse * y
        return total


def moves(row: Sequence[Any], size: Any, least: float) -> Any:
    """1 where a row of J moves with some joint, 0 where it is no more than `least` of what it is made of, whose sum of
    squares is `size`."""
    return is_positive(product(row, row) - least * least * size)


class Contact:
    """How constraints respond: A = J H^-1 J', each row measured by its own A_kk, factored with its proximal term.

    A factorisation L D L' of A + mu diag(A) has the roundings of one of rows that are scaled to A_kk = 1: whatever
    the units of rows are, none of them vanishes beside another.

    Args:
        A: (m, m) scalars, of which the lower triangle is read.
        moving: for every row 1 where it moves anything, 0 where it does not, and its force is none.
        proximal: mu, and how many iterations.
    """

    def __init__(self, A: Rows, moving: Sequence[Any], proximal: tuple[float, int]) -> None:
        size, self._iterations = proximal
        self._moving, self._mu = moving, [size * row[k] for k, row in enumerate(A)]
        lower = [list(row[: k + 1]) for k, row in enumerate(A)]
        for k, weight in enumerate(moving):
            lower[k][k] = lower[k][k] + self._mu[k] + (1.0 - weight)
        self._factors = Definite(lower) if lower else None

    def forces(self, rhs: Sequence[Any]) -> list[Any]:
        """lambda with A lambda = rhs."""
        if self._factors is None:
            return []
        rhs = self._of_moving(rhs)
        found = self._factors.solved(rhs)
        for _ in range(self._iterations - 1):
            found = self._factors.solved([b + mu * x for b, mu, x in zip(rhs, self._mu, found, strict=True)])
        return self._of_moving(found)

    def _of_moving(self, values: Sequence[Any]) -> list[Any]:
        return [weight * value for weight, value in zip(self._moving, values, strict=True)]


class ByMatrix:
    """Responses of the robot by its factored mass matrix."""

    def __init__(self, model: Model, H: Rows, J: Rows) -> None:
        self._factors = Factors(model, H)
        self._Y = [self._factors.up(row) for row in J]

    def delassus(self) -> list[list[Any]]:
        """A, its lower triangle."""
        product, Y = self._factors.product, self._Y
        return [[product(Y[i], Y[j]) for j in range(i + 1)] for i in range(len(Y))]

    def free(self, force: Sequence[Any]) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
        """J H^-1 f, and what gives H^-1 (f + J' lambda) for a lambda."""
        factors, Y, z = self._factors, self._Y, self._factors.up(force)

        def accelerations(forces: Sequence[Any]) -> list[Any]:
            total = list(z)
            for row, strength in zip(Y, forces, strict=True):
                total = [t if is_zero(y) else t + y * strength for t, y in zip(total, row, strict=True)]
            return factors.down(total)

        return [factors.product(row, z) for row in Y], accelerations


class ByRecursion:
    """The same by a right-hand side for each row: of large trees, whose mass matrix nobody wants.

    Args:
        solve: gives H^-1 f.
        J: rows.
        free: H^-1 f of the force, where it is known already.
    """

    def __init__(self, solve: Callable[[Sequence[Any]], list[Any]], J: Rows) -> None:
        self._solve, self._J = solve, J
        self._responses = [solve(row) for row in J]

    def delassus(self) -> list[list[Any]]:
        """A, its lower triangle."""
        return [[product(self._J[i], self._responses[j]) for j in range(i + 1)] for i in range(len(self._J))]

    def after(self, accelerations: Sequence[Any]) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
        """J qdd of accelerations without constraints, and what gives those with a lambda."""

        def with_forces(forces: Sequence[Any]) -> list[Any]:
            total = list(accelerations)
            for row, strength in zip(self._responses, forces, strict=True):
                total = [t + x * strength for t, x in zip(total, row, strict=True)]
            return total

        return [product(row, accelerations) for row in self._J], with_forces
