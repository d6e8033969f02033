"""The joint table: one row per joint kind, all with the same methods.

A row defines its coordinates (nq, nv), its motion subspace S, the transform across the joint, and how its coordinates
add, subtract and change with time on their manifold. `robodyn.core.model` rotates body frames so that a joint's axis is
z. Hence S consists of zeros, ones and the pitch of a screw. It is constant in the body frame, so no joint kind needs a
velocity-product term. Methods that algorithms use work on scalars (see `robodyn.core.spatial`); `velocity` and `rate`
work on arrays of any library.

How to add a kind: docs/add_a_joint.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import numpy as np

from robodyn.core.spatial import (
    ZERO3,
    Motion,
    Scalar,
    Transform,
    Vec3,
    add,
    cross,
    dot,
    rotate,
    rotate_back,
    rotation_from_quaternion,
    rotation_z,
    scale,
    select,
    sub,
)

Scalars: TypeAlias = tuple[Scalar, ...]
"""Coordinates or velocities of one joint, a scalar each."""

_IDENTITY3 = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
_X, _Y, _Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


class JointKind(ABC):
    """A row of the table. `coordinates` and `velocities` name the components, in order.

    `lengths`: indices of the coordinates in metres, and of the velocities in m/s. Other coordinates are angles (rad) or
    quaternion components, other velocities are in rad/s. `quaternion`: index of the first component of a unit
    quaternion (xyzw) among the coordinates, or None. `axial`: True if the body frame is rotated so that the joint's
    axis is z. `pitched`: True if the joint has a pitch.
    """

    name: ClassVar[str]
    coordinates: ClassVar[tuple[str, ...]] = ("",)
    velocities: ClassVar[tuple[str, ...]] = ("",)
    lengths: ClassVar[tuple[int, ...]] = ()
    neutral: ClassVar[tuple[float, ...]] = (0.0,)
    quaternion: ClassVar[int | None] = None
    axial: ClassVar[bool] = True
    pitched: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Callable[[str], JointKind], tuple[str]]:
        """Pickling and copying return the row itself: kinds are compared by identity."""
        return _row, (self.name,)

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return len(self.coordinates)

    @property
    def nv(self) -> int:
        """Number of velocities (degrees of freedom)."""
        return len(self.velocities)

    @abstractmethod
    def subspace(self, pitch: Scalar) -> tuple[Motion, ...]:
        """Columns of S, in the body frame. `pitch` (m/rad) is used by the screw joint only."""

    @abstractmethod
    def transform(self, q: Scalars, pitch: Scalar) -> Transform:
        """Transform from the joint's frame on the parent to the body frame."""

    def integrate(self, q: Scalars, step: Scalars) -> Scalars:
        """q (+) step: follow the constant velocity `step` for unit time."""
        return add(q, step)  # type: ignore[no-any-return]

    def bracket(self, a: Scalars, b: Scalars) -> Scalars:
        """The Lie bracket of two velocities: how far moving by a, then b, is from moving by b, then a."""
        return (0.0,) * self.nv

    def turned(self, v: Scalars, u: Scalars) -> Scalars:
        """A linear velocity v in the axes after turning by u. The linear part of u and the angular part of v are 0."""
        return v

    def difference(self, q0: Scalars, q1: Scalars) -> Scalars:
        """q1 (-) q0: the step with integrate(q0, step) = q1."""
        return sub(q1, q0)  # type: ignore[no-any-return]

    def velocity(self, q: Any, rate: Any, xp: Any = np) -> Any:
        """The velocity (..., nv) of a joint whose coordinates q (..., nq) change at a rate dq/dt (..., nq).

        The result is linear in the rate. A quaternion in q has unit length, and the part of its rate along the
        quaternion is ignored. Leading axes of the two are equal. Arrays may be of any library; `xp` is its namespace
        (numpy, jax.numpy, torch).
        """
        return rate

    def rate(self, q: Any, velocity: Any, xp: Any = np) -> Any:
        """dq/dt (..., nq) at a velocity (..., nv), so that velocity(q, rate(q, v)) = v; arrays as in `velocity`.

        As a matrix it is the transpose of `velocity`, except that the rows of a quaternion are a quarter of it.
        """
        return velocity


class Revolute(JointKind):
    """Rotation about z."""

    name = "revolute"

    def subspace(self, pitch: Scalar) -> tuple[Motion, ...]:
        """Rotation about z."""
        return (Motion(_Z, ZERO3),)

    def transform(self, q: Scalars, pitch: Scalar) -> Transform:
        """Turn by q about z."""
        return Transform(rotation_z(q[0]), ZERO3)


class Prismatic(JointKind):
    """Translation along z."""

    name = "prismatic"
    lengths = (0,)

    def subspace(self, pitch: Scalar) -> tuple[Motion, ...]:
        """Translation along z."""
        return (Motion(ZERO3, _Z),)

    def transform(self, q: Scalars, pitch: Scalar) -> Transform:
        """Shift by q along z."""
        return Transform(_IDENTITY3, (0.0, 0.0, q[0]))


class Helical(JointKind):
    """A screw about z: rotation q, translation pitch * q."""

    name = "helical"
    pitched = True

    def subspace(self, pitch: Scalar) -> tuple[Motion, ...]:
        """Rotation about z with translation along it."""
        return (Motion(_Z, (0.0, 0.0, pitch)),)

    def transform(self, q: Scalars, pitch: Scalar) -> Transform:
        """Turn by q about z, shift by pitch q along it."""
        return Transform(rotation_z(q[0]), (0.0, 0.0, pitch * q[0]))


class Planar(JointKind):
    """Motion in the xy plane: q = [x, y, theta], velocity [vx, vy, omega] in the body frame."""

    name = "planar"
    coordinates = ("x", "y", "theta")
    velocities = ("vx", "vy", "omega")
    lengths = (0, 1)
    neutral = (0.0, 0.0, 0.0)

    def subspace(self, pitch: Scalar) -> tuple[Motion, ...]:
        """Translations along x and y, rotation about z."""
        return (Motion(ZERO3, _X), Motion(ZERO3, _Y), Motion(_Z, ZERO3))

    def transform(self, q: Scalars, pitch: Scalar) -> Transform:
        """Shift by x, y and turn by theta about z."""
        return Transform(rotation_z(q[2]), (q[0], q[1], 0.0))

    def integrate(self, q: Scalars, step: Scalars) -> Scalars:
        """SE(2) exponential."""
        vx, vy, theta = step
        # V = [[a, -b], [b, a]] with a = sin t / t and b = (1 - cos t) / t = (t/2) sinc(t/2)^2.
        half = _sinc(0.25 * theta * theta)
        a, b = _sinc(theta * theta), 0.5 * theta * half * half
        forward, left = a * vx - b * vy, b * vx + a * vy
        c, s = np.cos(q[2]), np.sin(q[2])
        return (q[0] + c * forward - s * left, q[1] + s * forward + c * left, q[2] + theta)

    def bracket(self, a: Scalars, b: Scalars) -> Scalars:
        """The bracket of se(2)."""
        return (b[2] * a[1] - a[2] * b[1], a[2] * b[0] - b[2] * a[0], 0.0)

    def turned(self, v: Scalars, u: Scalars) -> Scalars:
        """Turned back by the angle."""
        c, s = np.cos(u[2]), np.sin(u[2])
        return (c * v[0] + s * v[1], c * v[1] - s * v[0], v[2])

    def difference(self, q0: Scalars, q1: Scalars) -> Scalars:
        """SE(2) logarithm; the angle is taken in (-pi, pi], the nearest way round."""
        theta = q1[2] - q0[2]
        for _ in range(2):  # for very large angles the first pass leaves whole turns
            # The tolerance keeps a half turn at +pi although rounding could make it -pi.
            theta = theta - 2.0 * np.pi * _ceiling(theta / (2.0 * np.pi) - (0.5 + _ROUNDINGS))
        c, s = np.cos(q0[2]), np.sin(q0[2])
        dx, dy = q1[0] - q0[0], q1[1] - q0[1]
        forward, left = c * dx + s * dy, c * dy - s * dx
        half = 0.5 * theta
        # V^-1 = [[h cot h, h], [-h, h cot h]] with h = theta/2; h cot h = cos h / sinc h.
        a = np.cos(half) / _sinc(half * half)
        return (a * forward + half * left, a * left - half * forward, theta)

    def velocity(self, q: Any, rate: Any, xp: Any = np) -> Any:
        """The rate of x and y turned into the body frame."""
        c, s, x, y = xp.cos(q[..., 2]), xp.sin(q[..., 2]), rate[..., 0], rate[..., 1]
        return xp.stack((c * x + s * y, c * y - s * x, rate[..., 2]), -1)

    def rate(self, q: Any, velocity: Any, xp: Any = np) -> Any:
        """The linear velocity turned out of the body frame."""
        c, s, x, y = xp.cos(q[..., 2]), xp.sin(q[..., 2]), velocity[..., 0], velocity[..., 1]
        return xp.stack((c * x - s * y, c * y + s * x, velocity[..., 2]), -1)


class Spherical(JointKind):
    """A ball joint: q = unit quaternion xyzw, velocity = angular velocity in the body frame."""

    name = "spherical"
    coordinates = ("qx", "qy", "qz", "qw")
    velocities = ("wx", "wy", "wz")
    neutral = (0.0, 0.0, 0.0, 1.0)
    quaternion = 0
    axial = False

    def subspace(self, pitch: Scalar) -> tuple[Motion, ...]:
        """Rotations about x, y and z of the body."""
        return (Motion(_X, ZERO3), Motion(_Y, ZERO3), Motion(_Z, ZERO3))

    def transform(self, q: Scalars, pitch: Scalar) -> Transform:
        """Turn by the quaternion."""
        return Transform(rotation_from_quaternion(*q), ZERO3)

    def integrate(self, q: Scalars, step: Scalars) -> Scalars:
        """q * exp(step / 2)."""
        return quaternion_product(q, quaternion_exp(step))

    def bracket(self, a: Scalars, b: Scalars) -> Scalars:
        """The bracket of so(3), a x b."""
        return cross(a, b)

    def difference(self, q0: Scalars, q1: Scalars) -> Scalars:
        """2 log(q0^-1 q1), the short way round."""
        return quaternion_log(quaternion_product(_conjugate(q0), q1))

    def velocity(self, q: Any, rate: Any, xp: Any = np) -> Any:
        """The vector part of 2 q^-1 dq/dt."""
        return quaternion_velocity(q, rate, xp)

    def rate(self, q: Any, velocity: Any, xp: Any = np) -> Any:
        """q * velocity / 2."""
        return quaternion_rate(q, velocity, xp)


class Floating(JointKind):
    """Six degrees of freedom: q = [position, quaternion xyzw], velocity = [linear, angular] in the body frame."""

    name = "floating"
    coordinates = ("x", "y", "z", "qx", "qy", "qz", "qw")
    velocities = ("vx", "vy", "vz", "wx", "wy", "wz")
    lengths = (0, 1, 2)
    neutral = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    quaternion = 3
    axial = False

    def subspace(self, pitch: Scalar) -> tuple[Motion, ...]:
        """The permutation [0 1; 1 0]: velocities are linear first, 6-vectors angular first."""
        return (*(Motion(ZERO3, e) for e in (_X, _Y, _Z)), *(Motion(e, ZERO3) for e in (_X, _Y, _Z)))

    def transform(self, q: Scalars, pitch: Scalar) -> Transform:
        """Shift by the position, turn by the quaternion."""
        return Transform(rotation_from_quaternion(*q[3:7]), (q[0], q[1], q[2]))

    def integrate(self, q: Scalars, step: Scalars) -> Scalars:
        """SE(3) exponential: position and attitude follow one constant twist."""
        v, w = step[0:3], step[3:6]
        t = dot(w, w)
        wv = cross(w, v)
        half = _sinc(0.25 * t)
        along = add(v, add(scale(0.5 * half * half, wv), scale(_third(t), cross(w, wv))))
        moved = rotate_back(rotation_from_quaternion(*q[3:7]), along)
        return (*add(q[0:3], moved), *quaternion_product(q[3:7], quaternion_exp(w)))

    def bracket(self, a: Scalars, b: Scalars) -> Scalars:
        """The bracket of se(3)."""
        return (*add(cross(a[3:6], b[0:3]), cross(a[0:3], b[3:6])), *cross(a[3:6], b[3:6]))

    def turned(self, v: Scalars, u: Scalars) -> Scalars:
        """Turned back by the rotation vector."""
        return (*rotate(rotation_from_quaternion(*quaternion_exp(u[3:6])), v[0:3]), *v[3:6])

    def difference(self, q0: Scalars, q1: Scalars) -> Scalars:
        """SE(3) logarithm, the short way round."""
        w: Vec3 = quaternion_log(quaternion_product(_conjugate(q0[3:7]), q1[3:7]))
        p = rotate(rotation_from_quaternion(*q0[3:7]), sub(q1[0:3], q0[0:3]))
        wp = cross(w, p)
        return (*add(p, sub(scale(_log_third(dot(w, w)), cross(w, wp)), scale(0.5, wp))), *w)

    def velocity(self, q: Any, rate: Any, xp: Any = np) -> Any:
        """The rate of the position turned into the body frame; the vector part of 2 q^-1 dq/dt."""
        q = q[..., 3:7]
        linear = quaternion_turned(q, rate[..., 0:3], -1.0, xp)
        return xp.concatenate((linear, quaternion_velocity(q, rate[..., 3:7], xp)), -1)

    def rate(self, q: Any, velocity: Any, xp: Any = np) -> Any:
        """The linear velocity turned out of the body frame; q * angular velocity / 2."""
        q = q[..., 3:7]
        linear = quaternion_turned(q, velocity[..., 0:3], 1.0, xp)
        return xp.concatenate((linear, quaternion_rate(q, velocity[..., 3:6], xp)), -1)


def flat(x: Scalar) -> Scalar:
    """The same number, which derivatives of traced programs treat as a constant.

    For piecewise constant numbers, and for numbers on which the final result does not depend.
    """
    return x.jumping() if hasattr(x, "jumping") else x


def unit_quaternion(q: Scalars) -> Scalars:
    """A quaternion xyzw scaled to unit length, by operations on scalars alone.

    The entries are first divided twice by s, the sum of the square roots of their absolute values, so that no square
    overflows or underflows. For every finite length, s and 1/s are normal floating-point numbers. All four entries
    become NaN where the length is zero, or where one is NaN or infinite.
    """
    x, y, z, w = (np.sqrt(np.abs(entry)) for entry in q)
    step = flat(1.0 / (x + y + z + w))  # the result does not depend on this factor
    q = scale(step, scale(step, q))
    return scale(1.0 / np.sqrt(dot(q, q)), q)  # type: ignore[no-any-return]


def quaternion_product(a: Scalars, b: Scalars) -> Scalars:
    """The Hamilton product of two quaternions xyzw, scaled back to unit length."""
    (ax, ay, az, aw), (bx, by, bz, bw) = a, b
    product = (
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    )
    return scale(1.0 / np.sqrt(dot(product, product)), product)  # type: ignore[no-any-return]


def quaternion_exp(w: Scalars) -> Scalars:
    """The unit quaternion xyzw of a rotation by |w| about w."""
    quarter = 0.25 * dot(w, w)
    return (*scale(0.5 * _sinc(quarter), w), _cosine(quarter))


def quaternion_log(q: Scalars) -> Scalars:
    """The rotation vector of a unit quaternion xyzw, at most pi long.

    Its angle is four times the angle whose tangent is sqrt(s) / (1 + c), s = x^2 + y^2 + z^2 and c = |w|. Halved twice
    more, the tangent is at most 0.2, and a series gives the arc. There is no 0/0 at the identity.
    """
    x, y, z, w = q
    c = np.abs(w)
    square = (x * x + y * y + z * z) / ((1.0 + c) * (1.0 + c))
    first = 1.0 + np.sqrt(1.0 + square)
    square = square / (first * first)
    second = 1.0 + np.sqrt(1.0 + square)
    square = square / (second * second)
    series = _ARC_TERMS[-1]
    for term in reversed(_ARC_TERMS[:-1]):
        series = term + square * series
    sign = flat(select(-w, -1.0, 1.0))  # zero counts as positive
    return scale(16.0 * sign * series / ((1.0 + c) * first * second), (x, y, z))  # type: ignore[no-any-return]


def angle(sine: Scalar, cosine: Scalar) -> Scalar:
    """The angle in [-pi, pi] of two numbers that are proportional to its sine and cosine, without a branch. NaN for
    zeros.

    (cosine, sine) turned halfway towards the positive axis is proportional to (length + cosine, sine), and to
    (sine, length - cosine). The one that is not small gives the quaternion of the rotation.
    """
    length = np.sqrt(sine * sine + cosine * cosine)
    ahead = flat(is_positive(cosine))
    c, s = (ahead * a + (1.0 - ahead) * b for a, b in ((length + cosine, sine), (sine, length - cosine)))
    half = 1.0 / np.sqrt(c * c + s * s)
    return quaternion_log((0.0 * s, 0.0 * s, half * s, half * c))[2]


_ARC_TERMS = tuple((-1.0) ** k / (2 * k + 1) for k in range(12))
"""arctan t / t as a series in t^2, exact to 1e-17 where t^2 < 0.04."""
_ROUNDINGS = 2.0**-50
WHOLE = 1.5 * 2.0**52
"""Adding this to a number below 2^51 and subtracting it again rounds to the nearest whole number, ties to even."""


def _ceiling(x: Scalar) -> Scalar:
    """The smallest whole number >= x, without a branch."""
    nearest = (x + WHOLE) - WHOLE
    # `nearest` is zero in single precision; the loops then count up to four. In double precision it is 1/2 off at most.
    left = x - nearest
    for k in range(4):
        for sign in (1.0, -1.0):
            nearest = nearest + sign * is_positive(sign * left - (k + 0.75))
    return flat(nearest + is_positive(x - nearest))


def is_positive(x: Scalar) -> Scalar:
    """1 for positive numbers, 0 for others, NaN for NaN."""
    return select(x, 1.0, 0.0)


def _cross(xp: Any) -> Callable[[Any, Any], Any]:
    """The cross product of vectors (..., 3) in a library. CuPy has it under NumPy's older name only."""
    return getattr(xp.linalg, "cross", None) or xp.cross  # type: ignore[no-any-return]


def quaternion_turned(q: Any, a: Any, sign: float, xp: Any = np) -> Any:
    """Vectors a (..., 3) turned by unit quaternions xyzw q (..., 4), or with sign -1 by their inverses."""
    v = q[..., 0:3]
    t = 2.0 * _cross(xp)(v, a)
    return a + sign * q[..., 3:4] * t + _cross(xp)(v, t)


def quaternion_velocity(q: Any, rate: Any, xp: Any = np) -> Any:
    """The angular velocity (..., 3), in the turned frame, of unit quaternions xyzw (..., 4) that change at a rate."""
    v, w, dv, dw = q[..., 0:3], q[..., 3:4], rate[..., 0:3], rate[..., 3:4]
    return 2.0 * (w * dv - dw * v - _cross(xp)(v, dv))


def quaternion_rate(q: Any, w: Any, xp: Any = np) -> Any:
    """The rate of unit quaternions xyzw (..., 4) at an angular velocity (..., 3) in the turned frame."""
    v = q[..., 0:3]
    vector = 0.5 * (q[..., 3:4] * w + _cross(xp)(v, w))
    return xp.concatenate((vector, -0.5 * (v * w).sum(-1)[..., None]), -1)


def _conjugate(q: Scalars) -> Scalars:
    return (-q[0], -q[1], -q[2], q[3])


# Below this squared angle the closed forms lose digits to cancellation. The series are cut where the next term is under
# 1e-16 of the sum.
_SERIES_BELOW = 0.25


def joined(
    series: Callable[[Scalar], Scalar],
    closed: Callable[[Scalar], Scalar],
    t: Scalar,
    limit: float = _SERIES_BELOW,
) -> Scalar:
    """`series` of squared angles below the limit and `closed` above it, without a branch, so that it can be traced.

    One of the two is evaluated at t and the other at the limit, where both are equal.
    """
    apart = np.abs(t - limit)
    below, above = 0.5 * (t + limit - apart), 0.5 * (t + limit + apart)
    return closed(above) + (series(below) - series(limit))


def _sinc(t: Scalar) -> Scalar:
    """sin x / x with t = x^2, smooth through t = 0."""

    def series(t: Scalar) -> Scalar:
        tail = 1 / 362880 - t * (1 / 39916800 - t * (1 / 6227020800))
        return 1.0 - t * (1 / 6 - t * (1 / 120 - t * (1 / 5040 - t * tail)))

    def closed(t: Scalar) -> Scalar:
        x = np.sqrt(t)
        return np.sin(x) / x

    return joined(series, closed, t)


def _cosine(t: Scalar) -> Scalar:
    """cos x with t = x^2, smooth through t = 0."""

    def series(t: Scalar) -> Scalar:
        tail = 1 / 40320 - t * (1 / 3628800 - t * (1 / 479001600 - t / 87178291200))
        return 1.0 - t * (1 / 2 - t * (1 / 24 - t * (1 / 720 - t * tail)))

    return joined(series, lambda t: np.cos(np.sqrt(t)), t)


def _third(t: Scalar) -> Scalar:
    """(x - sin x) / x^3 with t = x^2."""

    def series(t: Scalar) -> Scalar:
        return 1 / 6 - t * (1 / 120 - t * (1 / 5040 - t * (1 / 362880 - t * (1 / 39916800 - t / 6227020800))))

    def closed(t: Scalar) -> Scalar:
        x = np.sqrt(t)
        return (x - np.sin(x)) / (t * x)

    return joined(series, closed, t)


def _log_third(t: Scalar) -> Scalar:
    """(1 - (x/2) cot(x/2)) / x^2 with t = x^2, 0 <= x < 2 pi."""

    def series(t: Scalar) -> Scalar:
        tail = 1 / 1209600 + t * (1 / 47900160 + t * (691 / 1307674368000))
        return 1 / 12 + t * (1 / 720 + t * (1 / 30240 + t * tail))

    def closed(t: Scalar) -> Scalar:
        half = 0.5 * np.sqrt(t)
        return (1.0 - half * np.cos(half) / np.sin(half)) / t

    return joined(series, closed, t)


KINDS: tuple[JointKind, ...] = (Revolute(), Prismatic(), Helical(), Planar(), Spherical(), Floating())
"""The table; `Model.joint_kind` holds row numbers."""

CODE: dict[str, int] = {kind.name: code for code, kind in enumerate(KINDS)}
"""Row number of a kind by its name."""


def _row(name: str) -> JointKind:
    return KINDS[CODE[name]]
