"""Costs of soft rows: convex functions s of residuals x = J a - a_ref, their derivatives, and these along a line.

MuJoCo's (documentation, chapter Computation): a force is -s'(x). Functions of scalars of any kind, without branches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from robodyn.core.spatial import select

Line: TypeAlias = Callable[[Any], tuple[Any, Any]]
"""The first and the second derivative of a cost at x + t p, as functions of t."""
_TINY = 1e-30


class Cost(Protocol):
    """A convex function of some residuals."""

    def derivatives(self, x: Sequence[Any]) -> tuple[list[Any], list[list[Any]]]:
        """The gradient, and the lower triangle of the second derivatives, row by row."""

    def line(self, x: Sequence[Any], p: Sequence[Any]) -> Line:
        """Derivatives along x + t p."""


class Quadratic:
    """D/2 x^2, of equalities."""

    def __init__(self, D: Any) -> None:
        self._D = D

    def derivatives(self, x: Sequence[Any]) -> tuple[list[Any], list[list[Any]]]:
        """D x and D."""
        return [self._D * x[0]], [[self._D]]

    def line(self, x: Sequence[Any], p: Sequence[Any]) -> Line:
        """Linear in t."""
        slope = self._D * p[0]
        start, second = slope * x[0], slope * p[0]
        return lambda t: (start + t * second, second)


class OneSided:
    """D/2 min(0, x)^2, of limits and of contacts without friction."""

    def __init__(self, D: Any) -> None:
        self._D = D

    def derivatives(self, x: Sequence[Any]) -> tuple[list[Any], list[list[Any]]]:
        """D min(0, x), and D where x is below 0."""
        return [self._D * np.minimum(x[0], 0.0)], [[select(-x[0], self._D, 0.0)]]

    def line(self, x: Sequence[Any], p: Sequence[Any]) -> Line:
        """Quadratic where x + t p is below 0."""
        start, along = x[0], p[0]
        slope = self._D * along
        second = slope * along

        def at(t: Any) -> tuple[Any, Any]:
            y = start + t * along
            return slope * np.minimum(y, 0.0), select(-y, second, 0.0)

        return at


class Huber:
    """D/2 x^2 while |D x| is below `loss`, then linear: dry friction."""

    def __init__(self, D: Any, loss: Any) -> None:
        self._D, self._loss = D, loss

    def derivatives(self, x: Sequence[Any]) -> tuple[list[Any], list[list[Any]]]:
        """D x within the bounds."""
        y, loss = self._D * x[0], self._loss
        return [np.maximum(np.minimum(y, loss), -loss)], [[select(loss - abs(y), self._D, 0.0)]]

    def line(self, x: Sequence[Any], p: Sequence[Any]) -> Line:
        """Quadratic within the bounds."""
        loss, along, start, rate = self._loss, p[0], self._D * x[0], self._D * p[0]
        second = rate * along

        def at(t: Any) -> tuple[Any, Any]:
            y = start + t * rate
            return along * np.maximum(np.minimum(y, loss), -loss), select(loss - abs(y), second, 0.0)

        return at


class Pyramid:
    """D/2 min(0, e)^2 of the four edges e = x_0 +- mu_k x_k, k = 1, 2; residuals are along normal and tangents."""

    def __init__(self, D: Any, friction: tuple[Any, Any]) -> None:
        self._D, self._friction = D, friction

    def _edges(self, x: Sequence[Any]) -> list[Any]:
        slid = [mu * x[k + 1] for k, mu in enumerate(self._friction)]
        return [x[0] + slid[0], x[0] - slid[0], x[0] + slid[1], x[0] - slid[1]]

    def derivatives(self, x: Sequence[Any]) -> tuple[list[Any], list[list[Any]]]:
        """Sums over edges."""
        edges, (one, other) = self._edges(x), self._friction
        f = [self._D * np.minimum(e, 0.0) for e in edges]
        w = [select(-e, self._D, 0.0) for e in edges]
        first, second = w[0] + w[1], w[2] + w[3]
        gradient = [(f[0] + f[1]) + (f[2] + f[3]), one * (f[0] - f[1]), other * (f[2] - f[3])]
        return gradient, [
            [first + second],
            [one * (w[0] - w[1]), one * one * first],
            [other * (w[2] - w[3]), 0.0, other * other * second],
        ]

    def line(self, x: Sequence[Any], p: Sequence[Any]) -> Line:
        """Sums over edges."""
        edge = OneSided(self._D)
        lines = [edge.line([e], [along]) for e, along in zip(self._edges(x), self._edges(p), strict=True)]

        def at(t: Any) -> tuple[Any, Any]:
            (a, b), (c, d), (e, f), (g, h) = (line(t) for line in lines)
            return (a + c) + (e + g), (b + d) + (f + h)

        return at


class Elliptic:
    """The elliptic cone of a contact.

    With u = (mu x_0, mu_1 x_1, mu_2 x_2), N = u_0 and T = |(u_1, u_2)| it is 0 where N >= mu T, the sum of D_k/2 x_k^2
    where mu N + T <= 0, and D_0 (N - mu T)^2 / (2 mu^2 (1 + mu^2)) between; mu = mu_1 / sqrt(impratio).

    Args:
        D: of the normal.
        friction: mu_1, mu_2.
        impratio: ratio of the impedances of friction and normal.
    """

    def __init__(self, D: Any, friction: tuple[Any, Any], impratio: float) -> None:
        one, other = friction
        self._mu = mu = one / impratio**0.5
        self._scale = (mu, one, other)
        share = other / one
        self._D = (D, D * impratio, D * (impratio * share * share))
        self._middle = D / (mu * mu * (1.0 + mu * mu))

    def _regions(self, x: Sequence[Any]) -> tuple[list[Any], Any, Any, Any]:
        """u, T, N - mu T, and mu N + T."""
        u = [s * each for s, each in zip(self._scale, x, strict=True)]
        T = np.sqrt(u[1] * u[1] + u[2] * u[2])
        return u, T, u[0] - self._mu * T, self._mu * u[0] + T

    def derivatives(self, x: Sequence[Any]) -> tuple[list[Any], list[list[Any]]]:
        """Of the region of x."""
        mu, s, D = self._mu, self._scale, self._D
        u, T, z, inside = self._regions(x)
        inverse = 1.0 / (T + _TINY)
        c = [u[1] * inverse, u[2] * inverse]
        pull = self._middle * z
        round_ = -mu * (pull * inverse)
        bend = self._middle * (mu * mu) - round_  # along the tangential direction, beyond the round part
        middle = [pull * s[0], -mu * pull * c[0] * s[1], -mu * pull * c[1] * s[2]]
        second = [
            [self._middle * s[0] * s[0]],
            [-mu * self._middle * c[0] * s[0] * s[1], (bend * c[0] * c[0] + round_) * s[1] * s[1]],
            [
                -mu * self._middle * c[1] * s[0] * s[2],
                bend * c[0] * c[1] * s[1] * s[2],
                (bend * c[1] * c[1] + round_) * s[2] * s[2],
            ],
        ]

        def region(between: Any, below: Any) -> Any:
            """0 outside the dual cone, `between` or `below` elsewhere."""
            return select(-z, select(inside, between, below), 0.0)

        gradient = [region(between, d * each) for between, d, each in zip(middle, D, x, strict=True)]
        return gradient, [[region(second[k][m], D[k] if k == m else 0.0) for m in range(k + 1)] for k in range(3)]

    def line(self, x: Sequence[Any], p: Sequence[Any]) -> Line:
        """From the regions along the line."""
        mu, D, s = self._mu, self._D, self._scale
        rates = [each * along for each, along in zip(s, p, strict=True)]
        own = [d * along for d, along in zip(D, p, strict=True)]
        start = sum(a * b for a, b in zip(own, x, strict=True))
        curved = sum(a * b for a, b in zip(own, p, strict=True))
        speed = rates[1] * rates[1] + rates[2] * rates[2]

        def at(t: Any) -> tuple[Any, Any]:
            u, T, z, inside = self._regions([each + t * along for each, along in zip(x, p, strict=True)])
            inverse = 1.0 / (T + _TINY)
            outward = (u[1] * rates[1] + u[2] * rates[2]) * inverse
            dz = rates[0] - mu * outward
            between = self._middle * (dz * dz - z * mu * ((speed - outward * outward) * inverse))
            first = select(inside, self._middle * z * dz, start + t * curved)
            return select(-z, first, 0.0), select(-z, select(inside, between, curved), 0.0)

        return at
