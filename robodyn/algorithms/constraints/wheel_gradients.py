"""Derivatives of the rows of a wheel (`robodyn.algorithms.constraints.terms.rolling_rows`) by dual numbers.

The formulas of the rows are evaluated on numbers that carry their derivatives along the constraint's path. In axes of
a, at unit velocity of degree of freedom j, dn/dq_j = w_j x n for the axle n; those of motions are in
`robodyn.algorithms.constraints.gradients`.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from robodyn.algorithms.constraints.terms import rolling_directions, rolling_motion, steepness
from robodyn.core.spatial import Vec3, add, cross, dot, scale


class Dual:
    """A number (..., 1) with its derivatives (..., P)."""

    __array_ufunc__ = None  # arrays on the left leave operations to this class

    def __init__(self, value: Any, slope: Any) -> None:
        self.value, self.slope = value, slope

    def __add__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            return Dual(self.value + other.value, self.slope + other.slope)
        return Dual(self.value + other, self.slope)

    __radd__ = __add__

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.slope)

    def __sub__(self, other: Any) -> Dual:
        return self.__add__(-other)

    def __rsub__(self, other: Any) -> Dual:
        return self.__neg__().__add__(other)

    def __mul__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            return Dual(self.value * other.value, self.slope * other.value + self.value * other.slope)
        return Dual(self.value * other, self.slope * other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            value = self.value / other.value
            return Dual(value, (self.slope - value * other.slope) / other.value)
        return Dual(self.value / other, self.slope / other)


class Wheel:
    """A wheel at a state.

    `w`, `l` (P,): angular velocity of b and velocity of its origin at unit velocity of each degree of freedom.

    Args:
        radius: of the wheel.
        axle: n, in axes of a.
        w, l: columns.
        weight: 1 if it is active, 0 if not.
    """

    def __init__(self, radius: float, axle: Vec3, w: Vec3, l: Vec3, weight: Any) -> None:
        self._radius, self._axle, self._w, self._l = radius, axle, w, l
        self._s = s = _steepness(axle, weight)
        moved = cross(w, axle)
        self._moved_axle = duals(axle, moved)
        self._moved_s = Dual(s, (axle[0] * moved[0] + axle[1] * moved[1]) / s)

    def errors(self) -> list[Any]:
        """Derivatives of phi by q: that of the height alone."""
        none = 0.0 * self._w[0]
        return [none, none, self._l[2] - self._radius * self._moved_s.slope]

    def rates(self, omega: Vec3, u: Vec3) -> list[Any]:
        """Derivatives of phidot by q; `omega`, `u`: duals of the motion of b."""
        rates, _ = rolling_motion(self._radius, self._moved_axle, self._moved_s, omega, u)
        return [each.slope for each in rates]

    def accelerations(self, omega: Vec3, u: Vec3, alpha: Vec3, beta: Vec3) -> list[Any]:
        """Derivatives of accelerations of rows by q, from duals by q."""
        _, found = rolling_motion(self._radius, self._moved_axle, self._moved_s, omega, u, alpha, beta)
        return [each.slope for each in found]

    def accelerations_by_qd(self, omega: Vec3, u: Vec3, alpha: Vec3, beta: Vec3) -> list[Any]:
        """Derivatives of accelerations of rows by qd, from duals by qd."""
        _, found = rolling_motion(self._radius, self._axle, self._s, omega, u, alpha, beta)
        return [each.slope for each in found]

    def columns(self) -> list[Any]:
        """Derivatives of phidot by qd."""
        rates, _ = rolling_motion(self._radius, self._axle, self._s, self._w, self._l)
        return rates

    def wrench(self, lam: Any) -> tuple[Vec3, Vec3]:
        """Moment about the origin of b and force of rows lam (..., 3), as duals by q."""
        forward, side, u = rolling_directions(self._moved_axle, self._moved_s)
        strengths = [lam[..., k : k + 1] for k in range(3)]
        force = add(add(scale(strengths[0], forward), scale(strengths[1], side)), (0.0, 0.0, strengths[2]))
        return cross(scale(-self._radius, u), force), cast(Vec3, force)

    def turned(self, moment: Vec3, force: Vec3, rows: Any, columns: Any) -> Any:
        """(P, P) w_i . dmoment/dq_j + l_i . dforce/dq_j of duals; `rows` and `columns` give vectors another axis."""
        total = dot(rows(self._w), columns(slopes(moment)))
        return total + dot(rows(self._l)[:2], columns(slopes(force)[:2]))  # the third component is a row of lam


def _steepness(axle: Vec3, weight: Any) -> Any:
    if weight.dtype != object:
        return steepness(axle, weight)
    scalars = np.empty(1, object)  # NumPy has no square roots of arrays of scalars, some of which are plain numbers
    scalars[0] = steepness(cast(Vec3, tuple(each[0] for each in axle)), weight[0])
    return scalars


def duals(values: Vec3, derivatives: Vec3) -> Vec3:
    """A vector of duals."""
    return cast(Vec3, tuple(Dual(*pair) for pair in zip(values, derivatives, strict=True)))


def values(vector: Vec3) -> Vec3:
    """Values of a vector of duals, some of which may be numbers."""
    return cast(Vec3, tuple(each.value if isinstance(each, Dual) else each for each in vector))


def slopes(vector: Vec3) -> Vec3:
    """Derivatives of a vector of duals."""
    return cast(Vec3, tuple(each.slope if isinstance(each, Dual) else 0.0 for each in vector))
