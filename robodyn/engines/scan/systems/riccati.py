"""The articulated-body recursion as a semigroup of Riccati elements, and the affine maps of accelerations.

By Gauss' principle, forward dynamics minimises the sum over bodies of 1/2 a' I a + p' a - tau qdd, subject to
a = X a_parent + c + S qdd. This is a linear-quadratic problem with the acceleration as its state. A stretch, i.e. some
consecutive bodies of a path, is then an element (A, b, C, eta, J) of Särkkä and García-Fernández (Temporal
Parallelization of Dynamic Programming and Linear Quadratic Control, 2023, eq. 40 to 42). With x the acceleration of the
body before the stretch, in that body's frame, and y the acceleration of the stretch's last body:

- y = A x + b + C f under a force f on the last body. C is the mobility of the stretch's end;
- the force that accelerates the stretch is J x - eta. J is its articulated inertia and -eta its articulated bias force.

C and J are symmetric and positive semi-definite. They are stored as 21 numbers, because rounding errors that break
their symmetry destroy all accuracy on long chains. Everything is written over scalars (`robodyn.core.spatial`).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from robodyn.core.spatial import ArticulatedInertia, Force, Motion, Scalar, Sym3, add, dot, sub
from robodyn.core.sweeps import FieldType
from robodyn.engines.scan.semigroups import Semigroup

Vec6: TypeAlias = tuple[Scalar, ...]
"""Six scalars, angular first."""
Rows: TypeAlias = tuple[Vec6, ...]
"""A 6 x 6 matrix, row by row."""
Sym6: TypeAlias = tuple[Scalar, ...]
"""The 21 entries on and above the diagonal of a symmetric 6 x 6 matrix, row by row."""

_SIX = range(6)
UPPER = tuple((i, j) for i in _SIX for j in range(i, 6))
_AT = {pair: k for k, pair in enumerate(UPPER)}
ZERO: Rows = ((0.0,) * 6,) * 6
ZERO_SYM6: Sym6 = (0.0,) * 21
ONE: Rows = tuple(tuple(float(i == j) for j in _SIX) for i in _SIX)


def vector(pair: Motion | Force) -> Vec6:
    """A motion or a force as six scalars."""
    return (*pair.ang, *pair.lin)


def symmetric(IA: ArticulatedInertia) -> Sym6:
    """[[I, H], [H', M]] as 21 scalars."""
    I, H, M = IA.I, IA.H, IA.M
    return (*I[0:3], *H[0:3], *I[3:5], *H[3:6], I[5], *H[6:9], *M)


def articulated_inertia(S: Sym6) -> ArticulatedInertia:
    """The inverse of `symmetric`."""
    I: Sym3 = (S[0], S[1], S[2], S[6], S[7], S[11])
    M: Sym3 = (S[15], S[16], S[17], S[18], S[19], S[20])
    return ArticulatedInertia(M, (*S[3:6], *S[8:11], *S[12:15]), I)


def full(S: Sym6) -> Rows:
    """All rows of a symmetric matrix."""
    return tuple(tuple(S[_AT[min(i, j), max(i, j)]] for j in _SIX) for i in _SIX)


def columns(A: Rows) -> Rows:
    """A'."""
    return tuple(zip(*A, strict=True))


def times(A: Rows, x: Vec6) -> Vec6:
    """A x."""
    return tuple(dot(row, x) for row in A)


def product(A: Rows, B: Rows) -> Rows:
    """A B."""
    right = columns(B)
    return tuple(tuple(dot(row, column) for column in right) for row in A)


def congruence(A: Rows, S: Sym6) -> Sym6:
    """A S A', the entries on and above the diagonal."""
    AS = product(A, full(S))
    return tuple(dot(AS[i], A[j]) for i, j in UPPER)


class Rounding(NamedTuple):
    """`relative`: a few units of rounding; `least`: a tiny number whose reciprocal is finite."""

    relative: float
    least: float


def rounding_of(dtype: np.dtype[Any]) -> Rounding:
    """The constants of a precision."""
    known = np.finfo(dtype)
    return Rounding(4.0 * float(known.eps), 100.0 * float(known.tiny))


def root(S: Sym6, rounding: Rounding) -> tuple[Vec6, ...]:
    """The columns of the Cholesky factor L of a positive semi-definite S = L L'; column k starts at its diagonal.

    J of a stretch has no inertia along its first joint. So pivots vanish, or are rounding errors. Each pivot p is
    replaced by the root of p^2 + (rounding unit times the trace of the angular or linear block)^2. This changes S by a
    rounding error at most, and leaves larger pivots unchanged.
    """
    left = {pair: S[k] for k, pair in enumerate(UPPER)}
    columns_of_L = []
    for k in _SIX:
        block = range(3) if k < 3 else range(3, 6)
        pivot, floor = left[k, k], rounding.relative * sum(S[_AT[i, i]] for i in block)
        inverse = 1.0 / np.sqrt(np.sqrt(pivot * pivot + floor * floor + rounding.least))
        for j in range(k + 1, 6):
            left[k, j] = left[k, j] * inverse
        for i in range(k + 1, 6):
            for j in range(i, 6):
                left[i, j] = left[i, j] - left[k, i] * left[k, j]
        columns_of_L.append((1.0 / inverse, *(left[k, j] for j in range(k + 1, 6))))
    return tuple(columns_of_L)


def _factor(L: tuple[Vec6, ...], B: Rows) -> tuple[dict[tuple[int, int], Scalar], tuple[Scalar, ...]]:
    """The upper triangular N with N N' = 1 + L' B L, for L by columns: the entries above its diagonal, and the
    reciprocals of its diagonal."""
    BL = tuple(tuple(dot(row[k:], L[k]) for row in B) for k in _SIX)  # columns
    N = {(i, j): dot(L[i], BL[j][i:]) for i, j in UPPER}
    inverse: dict[int, Scalar] = {}
    for j in reversed(_SIX):
        for i in reversed(range(j + 1)):
            entry = N[i, j] if i < j else 1.0 + N[j, j]
            for m in range(j + 1, 6):
                entry = entry - N[i, m] * N[j, m]
            if i == j:
                inverse[j] = 1.0 / np.sqrt(entry)
            else:
                N[i, j] = entry * inverse[j]
    return N, tuple(inverse[j] for j in _SIX)


def damped(S: Sym6, B: Sym6, rounding: Rounding) -> Sym6:
    """S (1 + B S)^-1 for positive semi-definite S and B, computed as L (1 + L' B L)^-1 L' with S = L L'.

    The eigenvalues of 1 + L' B L are at least 1, and only its factorisation contains subtractions. LU decomposition of
    1 + B S without pivoting has similar residuals on chains (100,000 bodies, before the correction: 2.4e-12, here
    5.4e-12), but its pivots may vanish.
    """
    L = root(S, rounding)
    N, inverse = _factor(L, full(B))
    # With 1 + L' B L = N N', the result is W' W, where N W = L'. W is upper triangular like N and L'.
    W: dict[tuple[int, int], Scalar] = {}
    for j in _SIX:
        for i in reversed(range(j + 1)):
            entry = L[i][j - i]
            for m in range(i + 1, j + 1):
                entry = entry - N[i, m] * W[m, j]
            W[i, j] = entry * inverse[i]
    return tuple(dot([W[m, i] for m in range(i + 1)], [W[m, j] for m in range(i + 1)]) for i, j in UPPER)


def growth(C: Sym6, J: Sym6) -> Scalar:
    """tr(C J), the sum of the nonnegative eigenvalues of C J: the inertia J behind a stretch, relative to the inertia
    that its end itself has (the inverse of the mobility C)."""
    return dot([C[_AT[i, i]] for i in _SIX], [J[_AT[i, i]] for i in _SIX]) + 2.0 * dot(
        *([S[k] for k, (i, j) in enumerate(UPPER) if i < j] for S in (C, J))
    )


class Riccati(NamedTuple):
    """A stretch of a path (see above). A maps motions from the frame before the stretch to that of its last body."""

    A: Rows
    b: Vec6
    C: Sym6
    eta: Vec6
    J: Sym6


def _then(one: Riccati, two: Riccati, rounding: Rounding) -> Riccati:
    """The composition: A2 M A1, A2 M (b1 + C1 eta2) + b2, A2 M C1 A2' + C2, A1' M' (eta2 - J2 b1) + eta1,
    A1' M' J2 A1 + J1 with M = (1 + C1 J2)^-1. J2 M and M C1 are symmetric, and M = 1 - C1 (J2 M)."""
    J2M, MC1 = damped(two.J, one.C, rounding), damped(one.C, two.J, rounding)
    C1, resisting = full(one.C), full(J2M)
    A1 = columns(one.A)
    resisted = tuple(times(resisting, a) for a in A1)  # columns of J2 M A1
    MA1 = tuple(sub(a, times(C1, f)) for a, f in zip(A1, resisted, strict=True))
    y = add(one.b, times(C1, two.eta))
    f = times(resisting, y)
    return Riccati(
        tuple(tuple(dot(row, column) for column in MA1) for row in two.A),
        add(times(two.A, sub(y, times(C1, f))), two.b),
        add(congruence(two.A, MC1), two.C),
        add(times(A1, sub(two.eta, f)), one.eta),
        add((dot(A1[i], resisted[j]) for i, j in UPPER), one.J),
    )


ONE_STRETCH = Riccati(ONE, (0.0,) * 6, ZERO_SYM6, (0.0,) * 6, ZERO_SYM6)
"""The identity: a stretch without bodies."""


@cache
def riccati(dtype: np.dtype[Any]) -> Semigroup:
    """The operator in a precision, whose rounding unit `root` needs."""
    rounding = rounding_of(dtype)
    return Semigroup(f"Riccati {dtype}", ONE_STRETCH, lambda one, two: _then(one, two, rounding))


RICCATI = riccati(np.dtype(np.float64))

SYM6 = FieldType(ZERO_SYM6)


class Affine(NamedTuple):
    """x -> A x + b."""

    A: Rows
    b: Vec6


def _then_affine(one: Affine, two: Affine) -> Affine:
    return Affine(product(two.A, one.A), add(times(two.A, one.b), two.b))


AFFINE = Semigroup("affine", Affine(ONE, (0.0,) * 6), _then_affine)
"""The operator of first-order recurrences with general 6 x 6 matrices."""


class Correction(NamedTuple):
    """First-order propagation of errors of J and eta through a stretch (Newton's method for the recursion).

    The last body's acceleration is A x + b, with x the acceleration of the first body's parent and free joints (closed
    loop). Errors dJ and deta behind the stretch become A' dJ A + J and A' (deta - dJ b) + eta before it.
    """

    A: Rows
    b: Vec6
    eta: Vec6
    J: Sym6


def _then_corrected(one: Correction, two: Correction) -> Correction:
    A1, J2 = columns(one.A), full(two.J)
    return Correction(
        product(two.A, one.A),
        add(times(two.A, one.b), two.b),
        add(times(A1, sub(two.eta, times(J2, one.b))), one.eta),
        add(congruence(A1, two.J), one.J),
    )


CORRECTIONS = Semigroup("Riccati correction", Correction(ONE, (0.0,) * 6, (0.0,) * 6, ZERO_SYM6), _then_corrected)
