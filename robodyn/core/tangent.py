"""Derivatives of q (+) u and of q1 (-) q0 on tangent spaces, joint by joint.

A small change of a configuration is a velocity in its own frame. With ad the matrix of the Lie bracket,
ad_u v = [u, v], and J(u) = sum (-ad_u)^k / (k + 1)!, a change of u moves q (+) u by J(u) du, and a change of q by
exp(-ad_u) dq = (1 - ad_u J(u)) dq (Iserles, Munthe-Kaas, Norsett and Zanna, Lie-group methods, 2000, section 2). The
eigenvalues of ad_u are zero and twice +-i theta, theta being the angle of u, so five terms are enough for the sum
(Selig, Geometric Fundamentals of Robotics, 2005, section 7.7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import factorial
from typing import Any

import numpy as np

from robodyn.core.joints import JointKind, joined
from robodyn.core.spatial import Scalar
from robodyn.internals.arguments import Array

_SERIES_BELOW = 1.0
"""Squared angle (rad^2): above it closed forms are accurate, below it the truncated series are exact to rounding."""
_SUM = (
    (1 / 2, 0.0, -1 / 720, 1 / 20160, -1 / 1209600, 1 / 119750400, -1 / 17435658240, 1 / 3487131648000),
    (1 / 6, 0.0, -1 / 5040, 1 / 181440, -1 / 13305600, 1 / 1556755200, -1 / 261534873600, 1 / 59281238016000),
    (1 / 24, -1 / 360, 1 / 13440, -1 / 907200, 1 / 95800320, -1 / 14529715200, 1 / 2988969984000),
    (1 / 120, -1 / 2520, 1 / 120960, -1 / 9979200, 1 / 1245404160, -1 / 217945728000, 1 / 50812489728000),
)
"""Coefficients of (-ad)^1 to (-ad)^4 in J, as series in theta^2."""


def _sum_closed(t: Scalar) -> tuple[Scalar, ...]:
    x = np.sqrt(t)
    s, c = np.sin(x), np.cos(x)
    return (
        (4.0 - x * s - 4.0 * c) / (2.0 * t),
        (4.0 * x - 5.0 * s + x * c) / (2.0 * t * x),
        (2.0 - x * s - 2.0 * c) / (2.0 * t * t),
        (2.0 * x - 3.0 * s + x * c) / (2.0 * t * t * x),
    )


_BERNOULLI = (
    1 / 6,
    1 / 30,
    1 / 42,
    1 / 30,
    5 / 66,
    691 / 2730,
    7 / 6,
    3617 / 510,
    43867 / 798,
    174611 / 330,
    854513 / 138,
)
"""Absolute values of the Bernoulli numbers B_2, B_4, ..., B_22."""
_HALF_COTANGENT = tuple(B / factorial(2 * n) for n, B in enumerate(_BERNOULLI, 1))
"""Coefficients of x^2, x^4, ... in 1 - (x / 2) cot(x / 2)."""
_INVERSE = (
    tuple((2 - n) * each for n, each in enumerate(_HALF_COTANGENT, 1)),
    tuple((1 - n) * each for n, each in enumerate(_HALF_COTANGENT, 1))[1:],
)
"""Coefficients of ad^2 and ad^4 in J^-1, as series in theta^2."""


def _inverse_closed(t: Scalar) -> tuple[Scalar, ...]:
    """Coefficients of ad^2 and ad^4 in the polynomial that equals (ad / 2) coth(ad / 2) at the eigenvalues 0 and
    +-i theta, with equal derivatives at +-i theta."""
    half = 0.5 * np.sqrt(t)
    s = np.sin(half)
    cotangent = half * np.cos(half) / s
    left, slope = 1.0 - cotangent, cotangent - half * half / (s * s)
    return (4.0 * left + slope) / (2.0 * t), (2.0 * left + slope) / (2.0 * t * t)


def moved_by(kind: JointKind, u: Array, xp: Any = np) -> tuple[Array, Array]:
    """Derivatives (..., k, k) of q (+) u by q and by u.

    `u`: an array (..., k) of a library, or a NumPy array (k,) of traced expressions.
    """
    ad = bracket_matrix(kind, u, xp)
    J = _sum(ad, _angle(kind, u), xp)
    by_q: Array = xp.eye(kind.nv, dtype=ad.dtype) - ad @ J
    return by_q, J


def apart_by(kind: JointKind, w: Array, xp: Any = np) -> tuple[Array, Array]:
    """Derivatives (..., k, k) of w = q1 (-) q0 (..., k) by q0, -J(-w)^-1, and by q1, J(w)^-1.

    Like J they are polynomials in ad: J^-1 = 1 + ad / 2 + a ad^2 + b ad^4. Angles are at most pi.
    """
    ad = bracket_matrix(kind, w, xp)
    even = _polynomial(ad @ ad, _coefficients(_INVERSE, _inverse_closed, _angle(kind, w)), xp)
    return 0.5 * ad - even, 0.5 * ad + even


def bracket_matrix(kind: JointKind, u: Array, xp: Any = np) -> Array:
    """ad_u (..., k, k)."""
    a = tuple(u[..., c] for c in range(kind.nv))
    ad: Array = xp.zeros((*u.shape, kind.nv), dtype=u.dtype)
    for c, unit in enumerate(np.eye(kind.nv).tolist()):
        for r, value in enumerate(kind.bracket(a, tuple(unit))):
            ad[..., r, c] = value
    return ad


def _angle(kind: JointKind, u: Array) -> Scalar:
    """theta^2 (...)."""
    return sum((u[..., c] * u[..., c] for c in range(kind.nv) if c not in kind.lengths), 0.0 * u[..., 0])


def _sum(ad: Array, t: Scalar, xp: Any) -> Array:
    """J as a function of ad and t = theta^2."""
    return _polynomial(-ad, _coefficients(_SUM, _sum_closed, t), xp)


def _coefficients(
    series: Sequence[Sequence[float]], closed: Callable[[Scalar], tuple[Scalar, ...]], t: Scalar
) -> list[Scalar]:
    """Coefficients at t: by series below the limit, in closed form above."""
    return [
        joined(partial(_at, terms), lambda t, k=k: closed(t)[k], t, _SERIES_BELOW)  # type: ignore[misc]
        for k, terms in enumerate(series)
    ]


def _at(terms: Sequence[float], t: Scalar) -> Scalar:
    value: Scalar = 0.0
    for term in reversed(terms):
        value = value * t + term
    return value


def _polynomial(ad: Array, coefficients: Sequence[Scalar], xp: Any) -> Array:
    """1 + c_1 ad + c_2 ad^2 + ..."""
    one: Array = xp.eye(ad.shape[-1], dtype=ad.dtype)
    value = 0.0 * ad
    for each in reversed(coefficients):
        value = ad @ (value + xp.asarray(each)[..., None, None] * one)
    result: Array = value + one
    return result
