"""Operators of the hybrid articulated-body algorithm, written over scalars: eq. 16, 18, 19 and 20 of Yang, Wu and Pan
(Parallel Dynamics Computation using Prefix Sum Operations, 2016).

The paper multiplies 8 x 8 and 15 x 15 matrices that consist mostly of zeros and ones. The last row only keeps the
constant 1. The column of an output (a joint torque, c-hat, an acceleration) is zero, because no later product reads an
output. So an element stores only the other blocks, and any number of output rows. A joint has one output row for each
degree of freedom. An algorithm that computes outputs after the scan, body by body, needs no output rows.

Eq. 20 stacks F_{i-1} on z-hat_i, so that tau-hat_i is an output of one half and an input of the other. Here both belong
to body i, and tau-hat = tau - S'F is substituted: z-hat_i = Y z-hat + Pi (tau - S'F). Since Y = X' - Pi S', the block
from F to z-hat is -Pi S' = Y - X'. Products of such operators keep this form, because
Y2 (Y1 - X1') + (Y2 - X2') X1' = Y2 Y1 - X2' X1'. So this block is not stored.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, TypeAlias

from robodyn.core.joints import Scalars
from robodyn.core.spatial import IDENTITY, ZERO_FORCE, Force, Motion, Scalar, Transform, add, dot
from robodyn.engines.scan.semigroups import Semigroup

Matrix6: TypeAlias = tuple[Scalar, ...]
"""36 scalars, row-major."""
Vector6: TypeAlias = tuple[Scalar, ...]
"""Angular part, then linear."""

IDENTITY6: Matrix6 = tuple(float(i == j) for i in range(6) for j in range(6))
_ZERO6: Vector6 = (0.0,) * 6


def times6(A: Matrix6, B: Matrix6) -> Matrix6:
    """A B."""
    return tuple(dot(A[i : i + 6], B[j::6]) for i in range(0, 36, 6) for j in range(6))


def applied6(A: Matrix6, x: Vector6) -> Vector6:
    """A x."""
    return tuple(dot(A[i : i + 6], x) for i in range(0, 36, 6))


def _row_times(row: Vector6, B: Matrix6) -> Vector6:
    """row B."""
    return tuple(dot(row, B[j::6]) for j in range(6))


class Affine(NamedTuple):
    """(A, b, C, d): x -> A x + b, and outputs C x + d: [[A, 0, b], [C, 0, d], [0, 0, 1]] on (x, outputs before, 1).

    With X the transform to a body, Pi = X' U D^-1 and Y = X' - Pi S', where U = IA S and D = S'U: eq. 16 has
    A = X', b = F-hat, C = S', d = 0; eq. 18 has A = Y, b = Pi tau-hat, C = -D^-1 S', d = D^-1 tau-hat; eq. 19 has
    A = Y', b = S c-hat, C = -Pi', d = c-hat.
    """

    A: Matrix6
    b: Vector6
    C: tuple[Vector6, ...]
    d: Scalars


def _following(outer: Affine, inner: Affine) -> Affine:
    """The product of matrices: `inner` first, then `outer`. Outputs are those of `outer`."""
    return Affine(
        times6(outer.A, inner.A),
        add(applied6(outer.A, inner.b), outer.b),
        tuple(_row_times(row, inner.A) for row in outer.C),
        tuple(dot(row, inner.b) + offset for row, offset in zip(outer.C, outer.d, strict=True)),
    )


def _identity(rows: int) -> Affine:
    return Affine(IDENTITY6, _ZERO6, (_ZERO6,) * rows, (0.0,) * rows)


@cache
def backward(rows: int = 0) -> Semigroup:
    """`Affine` operators from the leaves to the root, as in eq. 16 and 18, with a number of output rows.

    With outputs, the identity is only an identity as the first factor (nearer the leaves). As the last factor it would
    replace the outputs by its own, which are zeros.
    """
    return Semigroup(f"backward operator with {rows} outputs", _identity(rows), _following)


@cache
def forward(rows: int = 0) -> Semigroup:
    """`Affine` operators from the root to the leaves, as in eq. 19, with a number of output rows. The remark about the
    identity at `backward` applies."""
    return Semigroup(
        f"forward operator with {rows} outputs", _identity(rows), lambda first, then: _following(then, first)
    )


class Fused(NamedTuple):
    """(X, Y, f, z, C, d), eq. 20: F -> X'F + f and z-hat -> Y z-hat + (Y - X')F + z, and outputs C (F, z-hat) + d.

    Each row of C is a pair of rows, one for F and one for z-hat.
    """

    X: Transform
    Y: Matrix6
    f: Force
    z: Force
    C: tuple[tuple[Vector6, Vector6], ...]
    d: Scalars


def _fused_following(outer: Fused, inner: Fused) -> Fused:
    """The product of matrices: `inner` first, then `outer`."""
    f, z = (*inner.f.ang, *inner.f.lin), (*inner.z.ang, *inner.z.lin)
    moved = outer.X.force_back(inner.f)
    pushed = applied6(outer.Y, add(f, z))
    return Fused(
        inner.X.after(outer.X),
        times6(outer.Y, inner.Y),
        moved + outer.f,
        Force(pushed[:3], pushed[3:]) - moved + outer.z,
        tuple(_fused_row(of_F, of_z, inner) for of_F, of_z in outer.C),
        tuple(dot(of_F, f) + dot(of_z, z) + offset for (of_F, of_z), offset in zip(outer.C, outer.d, strict=True)),
    )


def _fused_row(of_F: Vector6, of_z: Vector6, inner: Fused) -> tuple[Vector6, Vector6]:
    """A row times the matrix of `inner`: (of_F - of_z) X' + of_z Y for F, and of_z Y for z-hat."""
    rest = inner.X.motion(Motion(tuple(of_F[:3]), tuple(of_F[3:])) - Motion(tuple(of_z[:3]), tuple(of_z[3:])))
    through = _row_times(of_z, inner.Y)
    return add((*rest.ang, *rest.lin), through), through


@cache
def fused(rows: int = 0) -> Semigroup:
    """`Fused` operators from the leaves to the root, with a number of output rows."""
    identity = Fused(IDENTITY, IDENTITY6, ZERO_FORCE, ZERO_FORCE, ((_ZERO6, _ZERO6),) * rows, (0.0,) * rows)
    return Semigroup(f"fused backward operator with {rows} outputs", identity, _fused_following)
