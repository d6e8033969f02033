"""Spatial (6D) vector algebra over scalars of any kind.

A scalar is anything with `+ - * /` and NumPy's `sin`, `cos`, `sqrt`: a float, a NumPy or CuPy array over a batch, or
a traced expression. No function here branches on a value, so one implementation serves all kinds of scalars. Notation
and transformation rules are Featherstone's (Rigid Body Dynamics Algorithms, 2008, chapter 2 and tables A.1-A.4): a
6-vector holds its angular part first; `Transform` X takes motion vectors from frame A to frame B, `E` turns coordinates
of A into coordinates of B, and `r` is the origin of B in coordinates of A.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Scalar: TypeAlias = Any
"""A float, an array over a batch, or a traced expression."""
Vec3: TypeAlias = tuple[Scalar, Scalar, Scalar]
"""x, y, z."""
Mat3: TypeAlias = tuple[Scalar, ...]
"""Nine scalars, row-major."""
Sym3: TypeAlias = tuple[Scalar, Scalar, Scalar, Scalar, Scalar, Scalar]
"""xx, xy, xz, yy, yz, zz of a symmetric 3 x 3 matrix."""

ZERO3: Vec3 = (0.0, 0.0, 0.0)
ZERO_SYM3: Sym3 = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def add(a: Iterable[Scalar], b: Iterable[Scalar]) -> Any:
    """Component-wise sum of two equally long tuples."""
    return tuple([x + y for x, y in zip(a, b, strict=True)])


def sub(a: Iterable[Scalar], b: Iterable[Scalar]) -> Any:
    """Component-wise difference of two equally long tuples."""
    return tuple([x - y for x, y in zip(a, b, strict=True)])


def scale(s: Scalar, a: Iterable[Scalar]) -> Any:
    """Every component of `a` times the scalar `s`."""
    return tuple([s * x for x in a])


def dot(a: Sequence[Scalar], b: Sequence[Scalar]) -> Scalar:
    """Sum of products of two equally long tuples."""
    if len(a) == 3 == len(b):
        return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
    total = a[0] * b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        total = total + x * y
    return total


def cross(a: Vec3, b: Vec3) -> Vec3:
    """a x b."""
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def rotate(E: Mat3, a: Vec3) -> Vec3:
    """E a."""
    x, y, z = a
    return (E[0] * x + E[1] * y + E[2] * z, E[3] * x + E[4] * y + E[5] * z, E[6] * x + E[7] * y + E[8] * z)


def rotate_back(E: Mat3, a: Vec3) -> Vec3:
    """E' a."""
    x, y, z = a
    return (E[0] * x + E[3] * y + E[6] * z, E[1] * x + E[4] * y + E[7] * z, E[2] * x + E[5] * y + E[8] * z)


def matmul(A: Mat3, B: Mat3) -> Mat3:
    """A B."""
    a, b, c, d, e, f, g, h, i = A  # a loop over rows and columns takes twice as long
    j, k, l, m, n, o, p, q, r = B
    return (
        a * j + b * m + c * p,
        a * k + b * n + c * q,
        a * l + b * o + c * r,
        d * j + e * m + f * p,
        d * k + e * n + f * q,
        d * l + e * o + f * r,
        g * j + h * m + i * p,
        g * k + h * n + i * q,
        g * l + h * o + i * r,
    )


def transpose(A: Mat3) -> Mat3:
    """A'."""
    return (A[0], A[3], A[6], A[1], A[4], A[7], A[2], A[5], A[8])


def symmetric_times(S: Sym3, a: Vec3) -> Vec3:
    """S a for a symmetric S."""
    xx, xy, xz, yy, yz, zz = S
    x, y, z = a
    return (xx * x + xy * y + xz * z, xy * x + yy * y + yz * z, xz * x + yz * y + zz * z)


def full(S: Sym3) -> Mat3:
    """The nine entries of a symmetric matrix."""
    xx, xy, xz, yy, yz, zz = S
    return (xx, xy, xz, xy, yy, yz, xz, yz, zz)


def cross_columns(a: Vec3, B: Mat3) -> Mat3:
    """(a x) B."""
    return transpose(sum((cross(a, (B[j], B[3 + j], B[6 + j])) for j in (0, 1, 2)), ()))


def rows_cross(B: Mat3, a: Vec3) -> Mat3:
    """B (a x): row b' becomes (b x a)'."""
    return sum((cross((B[i], B[i + 1], B[i + 2]), a) for i in (0, 3, 6)), ())


def congruence(E: Mat3, S: Sym3) -> Sym3:
    """E' S E, six entries: the lower triangle is never computed, so symmetry is exact."""
    SE = matmul(full(S), E)
    pairs = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
    return tuple(dot(E[i::3], SE[j::3]) for i, j in pairs)


def select(condition: Scalar, positive: Scalar, otherwise: Scalar) -> Scalar:
    """`positive` where the condition is greater than 0, `otherwise` where it is not, NaN where it is NaN.

    Both values are computed; one that is not selected may be anything.
    """
    if hasattr(condition, "select"):
        return condition.select(positive, otherwise)
    if np.ndim(condition) == 0:
        return positive if condition > 0.0 else otherwise if condition <= 0.0 else np.nan
    real = condition.dtype.type  # numbers take the precision of the condition
    positive, otherwise = (real(value) if isinstance(value, float) else value for value in (positive, otherwise))
    return np.where(condition > 0.0, positive, np.where(condition <= 0.0, otherwise, np.nan))


class Force(NamedTuple):
    """A spatial force: moment about the frame's origin, then linear force."""

    ang: Vec3
    lin: Vec3

    def __add__(self, other: Force) -> Force:  # type: ignore[override]
        return Force(add(self.ang, other.ang), add(self.lin, other.lin))

    def __sub__(self, other: Force) -> Force:
        return Force(sub(self.ang, other.ang), sub(self.lin, other.lin))

    def scaled(self, s: Scalar) -> Force:
        """The force times a scalar."""
        return Force(scale(s, self.ang), scale(s, self.lin))


class Motion(NamedTuple):
    """A spatial velocity or acceleration: angular part, then linear part of the point at the frame's origin."""

    ang: Vec3
    lin: Vec3

    def __add__(self, other: Motion) -> Motion:  # type: ignore[override]
        return Motion(add(self.ang, other.ang), add(self.lin, other.lin))

    def __sub__(self, other: Motion) -> Motion:
        return Motion(sub(self.ang, other.ang), sub(self.lin, other.lin))

    def scaled(self, s: Scalar) -> Motion:
        """The motion times a scalar."""
        return Motion(scale(s, self.ang), scale(s, self.lin))

    def dot(self, f: Force) -> Scalar:
        """m . f, the power of a force on a motion."""
        return dot(self.ang, f.ang) + dot(self.lin, f.lin)

    def cross(self, m: Motion) -> Motion:
        """v x m (RBDA eq. 2.31)."""
        return Motion(cross(self.ang, m.ang), add(cross(self.ang, m.lin), cross(self.lin, m.ang)))

    def cross_force(self, f: Force) -> Force:
        """v x* f (RBDA eq. 2.32)."""
        return Force(add(cross(self.ang, f.ang), cross(self.lin, f.lin)), cross(self.ang, f.lin))


def combined(columns: Sequence[Motion], rates: Sequence[Scalar]) -> Motion:
    """The sum of columns, each times its rate."""
    total = columns[0].scaled(rates[0])
    for column, rate in zip(columns[1:], rates[1:], strict=True):
        total = total + column.scaled(rate)
    return total


ZERO_MOTION = Motion(ZERO3, ZERO3)
ZERO_FORCE = Force(ZERO3, ZERO3)


class Inertia(NamedTuple):
    """A rigid-body inertia as ten numbers: mass, first moment h = m c, rotational inertia about the frame's origin."""

    m: Scalar
    h: Vec3
    I: Sym3

    def __add__(self, other: Inertia) -> Inertia:  # type: ignore[override]
        return Inertia(self.m + other.m, add(self.h, other.h), add(self.I, other.I))

    def times(self, v: Motion) -> Force:
        """I v."""
        return Force(
            add(symmetric_times(self.I, v.ang), cross(self.h, v.lin)),
            sub(scale(self.m, v.lin), cross(self.h, v.ang)),
        )

    def velocity_force(self, v: Motion) -> Force:
        """v x* I v. The term m v x v is left out: it is zero, but its products are large far from the rotation axis."""
        classical = cross(v.ang, v.lin)
        return self._turning(v.ang) + Force(cross(self.h, classical), scale(self.m, classical))

    def net_force(self, v: Motion, a: Motion) -> Force:
        """I a + v x* I v, computed as I times the classical acceleration plus the gyroscopic force."""
        return self.times(Motion(a.ang, add(a.lin, cross(v.ang, v.lin)))) + self._turning(v.ang)

    def rate(self, v: Motion) -> Inertia:
        """(v x*) I - I (v x): the rate of change, in a fixed frame, of the inertia of a body that moves with v.

        The first number, the rate of the mass, is zero.
        """
        w, u = v
        x, y, z = w
        W: Mat3 = (0.0, -z, y, z, 0.0, -x, -y, x, 0.0)
        turned = matmul(W, full(self.I))
        towards = tuple(a * b for a in u for b in self.h)
        half = sub(turned, towards)
        pairs = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
        spread = 2.0 * dot(self.h, u)
        I = tuple(half[3 * i + j] + half[3 * j + i] + (spread if i == j else 0.0) for i, j in pairs)
        return Inertia(0.0, add(scale(self.m, u), cross(w, self.h)), I)

    def _turning(self, ang: Vec3) -> Force:
        """Gyroscopic and centrifugal force: moment w x I w, linear force w x (w x h)."""
        return Force(cross(ang, symmetric_times(self.I, ang)), cross(ang, cross(ang, self.h)))


class ArticulatedInertia(NamedTuple):
    """A symmetric 6 x 6 inertia [[I, H], [H', M]] as 21 numbers: I and M symmetric, H full.

    Only 21 numbers are stored: where rounding breaks the symmetry, recursions lose all digits on long chains.
    """

    M: Sym3
    H: Mat3
    I: Sym3

    def __add__(self, other: ArticulatedInertia) -> ArticulatedInertia:  # type: ignore[override]
        return ArticulatedInertia(add(self.M, other.M), add(self.H, other.H), add(self.I, other.I))

    def times(self, v: Motion) -> Force:
        """IA v."""
        return Force(
            add(symmetric_times(self.I, v.ang), rotate(self.H, v.lin)),
            add(symmetric_times(self.M, v.lin), rotate_back(self.H, v.ang)),
        )

    def minus_outer(self, u: Force, w: Force) -> ArticulatedInertia:
        """IA - u w'. Only the 21 stored entries are computed, so u w' must be a term of a symmetric sum."""
        pairs = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
        return ArticulatedInertia(
            sub(self.M, (u.lin[i] * w.lin[j] for i, j in pairs)),
            sub(self.H, (u.ang[i] * w.lin[j] for i in range(3) for j in range(3))),
            sub(self.I, (u.ang[i] * w.ang[j] for i, j in pairs)),
        )


ZERO_INERTIA = Inertia(0.0, ZERO3, ZERO_SYM3)
ZERO_ARTICULATED = ArticulatedInertia(ZERO_SYM3, (0.0,) * 9, ZERO_SYM3)


def articulated(inertia: Inertia) -> ArticulatedInertia:
    """A rigid inertia as an articulated one: M = m 1, H = h x."""
    m, (x, y, z) = inertia.m, inertia.h
    return ArticulatedInertia((m, 0.0, 0.0, m, 0.0, m), (0.0, -z, y, z, 0.0, -x, -y, x, 0.0), inertia.I)


class Transform(NamedTuple):
    """Plücker transform from frame A to frame B: E takes coordinates of A to B, r is B's origin in A (RBDA 2.8)."""

    E: Mat3
    r: Vec3

    def motion(self, v: Motion) -> Motion:
        """X v: a motion vector from A to B."""
        return Motion(rotate(self.E, v.ang), rotate(self.E, sub(v.lin, cross(self.r, v.ang))))

    def motion_back(self, v: Motion) -> Motion:
        """X^-1 v: a motion vector from B to A."""
        ang = rotate_back(self.E, v.ang)
        return Motion(ang, add(rotate_back(self.E, v.lin), cross(self.r, ang)))

    def force(self, f: Force) -> Force:
        """X* f: a force vector from A to B."""
        return Force(rotate(self.E, sub(f.ang, cross(self.r, f.lin))), rotate(self.E, f.lin))

    def force_back(self, f: Force) -> Force:
        """X' f: a force vector from B to A."""
        lin = rotate_back(self.E, f.lin)
        return Force(add(rotate_back(self.E, f.ang), cross(self.r, lin)), lin)

    def after(self, first: Transform) -> Transform:
        """The transform that goes through `first` (A to B) and then this one (B to C)."""
        return Transform(matmul(self.E, first.E), add(first.r, rotate_back(first.E, self.r)))

    def inverse(self) -> Transform:
        """The transform from B to A."""
        return Transform(transpose(self.E), scale(-1.0, rotate(self.E, self.r)))

    def inertia_back(self, inertia: Inertia) -> Inertia:
        """X' I X: a rigid inertia from B to A (RBDA eq. 2.66)."""
        h = rotate_back(self.E, inertia.h)
        moved = add(h, scale(inertia.m, self.r))
        I = congruence(self.E, inertia.I)
        # I' = E' I E - (r x)(h x) - (moved x)(r x), with (a x)(b x) = b a' - (a.b) 1.
        (rx, ry, rz), (hx, hy, hz), (gx, gy, gz) = self.r, h, moved
        xx, yy, zz = rx * hx + gx * rx, ry * hy + gy * ry, rz * hz + gz * rz
        shifted = (yy + zz, -(hx * ry + rx * gy), -(hx * rz + rx * gz), xx + zz, -(hy * rz + ry * gz), xx + yy)
        return Inertia(inertia.m, moved, add(I, shifted))

    def articulated_back(self, IA: ArticulatedInertia) -> ArticulatedInertia:
        """X' IA X: an articulated inertia from B to A, all 21 entries computed once."""
        M = congruence(self.E, IA.M)
        H1 = matmul(transpose(self.E), matmul(IA.H, self.E))
        H = add(H1, cross_columns(self.r, full(M)))
        left, right = cross_columns(self.r, transpose(H1)), rows_cross(H, self.r)
        upper = tuple(left[k] - right[k] for k in (0, 1, 2, 4, 5, 8))
        return ArticulatedInertia(M, H, add(congruence(self.E, IA.I), upper))


IDENTITY = Transform((1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0), ZERO3)


def rotation_z(q: Scalar) -> Mat3:
    """E of a frame turned by q about z: coordinates of the old frame to the new one."""
    c, s = np.cos(q), np.sin(q)
    return (c, s, 0.0, -s, c, 0.0, 0.0, 0.0, 1.0)


def rotation_from_quaternion(x: Scalar, y: Scalar, z: Scalar, w: Scalar) -> Mat3:
    """E of a frame whose attitude in the old frame is the unit quaternion xyzw (RBDA eq. 4.12)."""
    return (
        1.0 - 2.0 * (y * y + z * z),
        2.0 * (x * y + w * z),
        2.0 * (x * z - w * y),
        2.0 * (x * y - w * z),
        1.0 - 2.0 * (x * x + z * z),
        2.0 * (y * z + w * x),
        2.0 * (x * z + w * y),
        2.0 * (y * z - w * x),
        1.0 - 2.0 * (x * x + y * y),
    )
