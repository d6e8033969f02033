"""Derivatives of moving on the manifold, joint by joint: of q (+) u and of q1 (-) q0, on tangent spaces.

A small change of a configuration is a velocity in its own frame, as everywhere. With ad the matrix of the Lie bracket,
ad_u v = [u, v], and J(u) = sum (-ad_u)^k / (k + 1)!, a change of u moves q (+) u by J(u) du, and a change of q by
exp(-ad_u) dq = (1 - ad_u J(u)) dq (Iserles, Munthe-Kaas, Norsett and Zanna, Lie-group methods, 2000, section 2). The
eigenvalues of ad_u are zero and twice +-i theta, theta being the angle of u, so five terms are enough for the sum
(Selig, Geometric Fundamentals of Robotics, 2005, section 7.7).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robodyn.arguments import Array
from robodyn.joints import JointKind

_SERIES_BELOW = 1.0
"""Squared angle: above, closed forms lose no digit that counts; below, series cut after these terms are exact."""
_SUM = (
    (1 / 2, 0.0, -1 / 720, 1 / 20160, -1 / 1209600, 1 / 119750400, -1 / 17435658240, 1 / 3487131648000),
    (1 / 6, 0.0, -1 / 5040, 1 / 181440, -1 / 13305600, 1 / 1556755200, -1 / 261534873600, 1 / 59281238016000),
    (1 / 24, -1 / 360, 1 / 13440, -1 / 907200, 1 / 95800320, -1 / 14529715200, 1 / 2988969984000),
    (1 / 120, -1 / 2520, 1 / 120960, -1 / 9979200, 1 / 1245404160, -1 / 217945728000, 1 / 50812489728000),
)
"""Of (-ad)^1 to (-ad)^4: series in theta^2."""


def moved_by(kind: JointKind, u: Array) -> tuple[Array, Array]:
    """Derivatives (..., k, k) of q (+) u by q and by u (..., k)."""
    ad = _bracket_matrix(kind, u)
    J = _sum(ad, _angle(kind, u))
    return np.eye(kind.nv) - ad @ J, J


def apart_by(kind: JointKind, w: Array) -> tuple[Array, Array]:
    """Derivatives (..., k, k) of w = q1 (-) q0 (..., k) by q0 and by q1: moving by w undone. Angles are at most pi;
    J is far from singular there."""
    ad, t = _bracket_matrix(kind, w), _angle(kind, w)
    return -np.linalg.inv(_sum(-ad, t)), np.linalg.inv(_sum(ad, t))


def _bracket_matrix(kind: JointKind, u: Array) -> Array:
    """ad_u (..., k, k)."""
    a = tuple(u[..., c] for c in range(kind.nv))
    ad = np.zeros((*u.shape, kind.nv))
    for c, unit in enumerate(np.eye(kind.nv).tolist()):
        for r, value in enumerate(kind.bracket(a, tuple(unit))):
            ad[..., r, c] = value
    return ad


def _angle(kind: JointKind, u: Array) -> Array:
    """theta^2 (...)."""
    return sum((u[..., c] ** 2 for c in range(kind.nv) if c not in kind.lengths), np.zeros(u.shape[:-1]))


def _sum(ad: Array, t: Array) -> Array:
    """J of ad, t = theta^2."""
    large = np.maximum(t, _SERIES_BELOW)
    x = np.sqrt(large)
    s, c = np.sin(x), np.cos(x)
    closed = (
        (4.0 - x * s - 4.0 * c) / (2.0 * large),
        (4.0 * x - 5.0 * s + x * c) / (2.0 * large * x),
        (2.0 - x * s - 2.0 * c) / (2.0 * large**2),
        (2.0 * x - 3.0 * s + x * c) / (2.0 * large**2 * x),
    )
    return _polynomial(-ad, [_joined(series, each, t) for series, each in zip(_SUM, closed, strict=True)])


def _joined(series: Sequence[float], closed: Array, t: Array) -> Array:
    small, value = np.minimum(t, _SERIES_BELOW), np.zeros_like(t)
    for term in reversed(series):
        value = value * small + term
    return np.where(t < _SERIES_BELOW, value, closed)


def _polynomial(ad: Array, coefficients: Sequence[Array]) -> Array:
    """1 + c_1 ad + c_2 ad^2 + ..."""
    one = np.eye(ad.shape[-1])
    value = np.zeros_like(ad)
    for each in reversed(coefficients):
        value = ad @ (value + each[..., None, None] * one)
    return value + one
