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


def _total(terms: Sequence[Any]) -> Any:
    """The sum of one or more scalars."""
    total = terms[0]
    for each in terms[1:]:
        total = total + each
    return total


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
    """D/2 min(0, e)^2 of the edges e = x_0 +- mu_k x_k, k = 1, 2 and so on.

    Residuals are along the normal and both tangents, then about these axes, as many as there are coefficients mu_k.
    """

    def __init__(self, D: Any, friction: Sequence[Any]) -> None:
        self._D, self._friction = D, friction

    def _edges(self, x: Sequence[Any]) -> list[Any]:
        slid = [mu * x[k + 1] for k, mu in enumerate(self._friction)]
        return [e for s in slid for e in (x[0] + s, x[0] - s)]

    def derivatives(self, x: Sequence[Any]) -> tuple[list[Any], list[list[Any]]]:
        """Sums over edges."""
        edges = self._edges(x)
        f = [self._D * np.minimum(e, 0.0) for e in edges]
        w = [select(-e, self._D, 0.0) for e in edges]
        both = [a + b for a, b in zip(w[::2], w[1::2], strict=True)]
        gradient = [_total([a + b for a, b in zip(f[::2], f[1::2], strict=True)])]
        second = [[_total(both)]]
        for k, mu in enumerate(self._friction):
            gradient.append(mu * (f[2 * k] - f[2 * k + 1]))
            second.append([mu * (w[2 * k] - w[2 * k + 1]), *[0.0] * k, mu * mu * both[k]])
        return gradient, second

    def line(self, x: Sequence[Any], p: Sequence[Any]) -> Line:
        """Sums over edges."""
        edge = OneSided(self._D)
        lines = [edge.line([e], [along]) for e, along in zip(self._edges(x), self._edges(p), strict=True)]

        def at(t: Any) -> tuple[Any, Any]:
            found = [line(t) for line in lines]
            pairs = zip(found[::2], found[1::2], strict=True)
            first, second = zip(*((a + c, b + d) for (a, b), (c, d) in pairs), strict=True)
            return _total(first), _total(second)

        return at


class Elliptic:
    """The elliptic cone of a contact.

    With u = (mu x_0, mu_1 x_1, mu_2 x_2, ...), N = u_0 and T = |(u_1, u_2, ...)| it is 0 where N >= mu T, the sum of
    D_k/2 x_k^2 where mu N + T <= 0, and D_0 (N - mu T)^2 / (2 mu^2 (1 + mu^2)) between; mu = mu_1 / sqrt(impratio).

    Args:
        D: of the normal.
        friction: mu_1, mu_2 and so on, of residuals as of `Pyramid`.
        impratio: ratio of the impedances of friction and normal.
    """

    def __init__(self, D: Any, friction: Sequence[Any], impratio: float) -> None:
        one = friction[0]
        self._mu = mu = one / impratio**0.5
        self._scale = (mu, *friction)
        shares = [each / one for each in friction[1:]]
        self._D = (D, D * impratio, *(D * (impratio * share * share) for share in shares))
        self._middle = D / (mu * mu * (1.0 + mu * mu))

    def _regions(self, x: Sequence[Any]) -> tuple[list[Any], Any, Any, Any]:
        """u, T, N - mu T, and mu N + T."""
        u = [s * each for s, each in zip(self._scale, x, strict=True)]
        T = np.sqrt(_total([each * each for each in u[1:]]))
        return u, T, u[0] - self._mu * T, self._mu * u[0] + T

    def derivatives(self, x: Sequence[Any]) -> tuple[list[Any], list[list[Any]]]:
        """Of the region of x."""
        mu, s, D = self._mu, self._scale, self._D
        u, T, z, inside = self._regions(x)
        inverse = 1.0 / (T + _TINY)
        c = [each * inverse for each in u[1:]]
        pull = self._middle * z
        round_ = -mu * (pull * inverse)
        bend = self._middle * (mu * mu) - round_  # along the tangential direction, beyond the round part
        middle, second = [pull * s[0]], [[self._middle * s[0] * s[0]]]
        for k, (along, own) in enumerate(zip(c, s[1:], strict=True)):
            middle.append(-mu * pull * along * own)
            row = [-mu * self._middle * along * s[0] * own]
            row += [bend * c[m] * along * s[m + 1] * own for m in range(k)]
            second.append([*row, (bend * along * along + round_) * own * own])

        def region(between: Any, below: Any) -> Any:
            """0 outside the dual cone, `between` or `below` elsewhere."""
            return select(-z, select(inside, between, below), 0.0)

        gradient = [region(between, d * each) for between, d, each in zip(middle, D, x, strict=True)]
        return gradient, [
            [region(x, D[k] if k == m else 0.0) for m, x in enumerate(row)] for k, row in enumerate(second)
        ]

    def line(self, x: Sequence[Any], p: Sequence[Any]) -> Line:
        """From the regions along the line."""
        mu, D, s = self._mu, self._D, self._scale
        rates = [each * along for each, along in zip(s, p, strict=True)]
        own = [d * along for d, along in zip(D, p, strict=True)]
        start = sum(a * b for a, b in zip(own, x, strict=True))
        curved = sum(a * b for a, b in zip(own, p, strict=True))
        speed = _total([each * each for each in rates[1:]])

        def at(t: Any) -> tuple[Any, Any]:
            u, T, z, inside = self._regions([each + t * along for each, along in zip(x, p, strict=True)])
            inverse = 1.0 / (T + _TINY)
            outward = _total([each * rate for each, rate in zip(u[1:], rates[1:], strict=True)]) * inverse
            dz = rates[0] - mu * outward
            between = self._middle * (dz * dz - z * mu * ((speed - outward * outward) * inverse))
            first = select(inside, self._middle * z * dz, start + t * curved)
            return select(-z, first, 0.0), select(-z, select(inside, between, curved), 0.0)

        return at
