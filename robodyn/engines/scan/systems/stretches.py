"""Stretches of `aba_scan`: extension of a stretch by a joint and a body, written over scalars.

A stretch is a run of consecutive bodies of a path. A Riccati element (`riccati.py`) describes its dynamics. When a
joint and a body are put before the stretch, J and eta change by the step of the articulated-body algorithm (RBDA eq.
7.42 to 7.44). A, b and C change by the same elimination of the free joint. This takes 1,100 operations; a composition
of two elements takes 4,100. A body without inertia of its own still has the inertia of the bodies behind it, so
singularities can occur only at the stretch's end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from robodyn.algorithms.aba import ldl, ldl_solve
from robodyn.core.joints import KINDS
from robodyn.core.spatial import ZERO_MOTION, Force, Motion, Scalar, Transform, add, cross, dot, scale, sub
from robodyn.core.sweeps import FORCE, MOTION, SCALAR, TRANSFORM, FieldType
from robodyn.engines.scan.folds import Fold
from robodyn.engines.scan.systems.riccati import (
    ONE,
    ONE_STRETCH,
    UPPER,
    ZERO_SYM6,
    Correction,
    Riccati,
    Rows,
    Sym6,
    Vec6,
    articulated_inertia,
    columns,
    product,
    rounding_of,
    symmetric,
    times,
    vector,
)


class Member(NamedTuple):
    """A joint and the body after it, in the body's frame.

    X: transform from the parent's frame; c: v x S qd; IA and eta: inertia and negative bias force, including those of
    light subtrees that hang on the body; S, tau, armature: for each degree of freedom.
    """

    X: Transform
    c: Motion
    IA: Sym6
    eta: Force
    S: tuple[Motion, ...]
    tau: tuple[Scalar, ...]
    armature: tuple[Scalar, ...]


class Gain(NamedTuple):
    """The acceleration of a degree of freedom is -(G a + g), with a the acceleration of the body before the joint, in
    that body's frame."""

    G: Vec6
    g: Scalar


def plucker(X: Transform) -> Rows:
    """The 6 x 6 matrix of X on motions (RBDA eq. 2.24)."""
    E = tuple(X.E[i : i + 3] for i in (0, 3, 6))
    return (*((*row, 0.0, 0.0, 0.0) for row in E), *((*cross(X.r, row), *row) for row in E))


def lengthened(
    member: Member, behind: Riccati, pivot: Callable[[Scalar, Scalar], Scalar] | None = None
) -> tuple[Riccati, tuple[Gain, ...]]:
    """Put a joint and a body before a stretch. Returns the longer stretch and the gains of the joint.

    With U = IA S, R = S' U + armature = L diag(d) L', w = L^-1 U', y = L^-1 (A S)', z = L^-1 (S' F - tau):
    Ia = IA - sum w w' / d and G = R^-1 U' X. A becomes A X - A S G, C becomes C + sum y y' / d, and J becomes X' Ia X.
    The acceleration c is multiplied by Ia, which causes smaller rounding errors than carrying it through the
    elimination.

    `pivot`: adjusts the pivots of R, the inertia at the joint, as in `ldl`.
    """
    X, S, c = member.X, member.S, member.c
    IA = articulated_inertia(add(member.IA, behind.J))
    p = add(vector(member.eta), behind.eta)
    F = Force(p[:3], p[3:]).scaled(-1.0)
    U = [IA.times(s) for s in S]
    Y = [times(behind.A, vector(s)) for s in S]
    R: list[Scalar] = []
    for i, (s, armature) in enumerate(zip(S, member.armature, strict=True)):
        R += [s.dot(u) for u in U[: i + 1]]
        R[-1] = R[-1] + armature
    factor = ldl(tuple(R), len(S), pivot)
    r = tuple(s.dot(F) - tau for s, tau in zip(S, member.tau, strict=True))
    of_c = ldl_solve(factor, tuple(c.dot(u) for u in U))
    G = columns(tuple(ldl_solve(factor, row) for row in zip(*(vector(X.force_back(u)) for u in U), strict=True)))
    g = tuple(map(_sum, ldl_solve(factor, r), of_c))

    b, C, Ia = add(times(behind.A, vector(c)), behind.b), behind.C, IA
    w, y, z = list(U), list(Y), list(r)
    for i in range(len(S)):
        d = factor[i * (i + 1) // 2 + i]
        for j in range(i):
            entry = factor[i * (i + 1) // 2 + j]
            w[i], y[i], z[i] = w[i] - w[j].scaled(entry), sub(y[i], scale(entry, y[j])), z[i] - entry * z[j]
        share = w[i].scaled(1.0 / d)
        b, F = sub(b, scale(z[i] / d, y[i])), F - share.scaled(z[i])
        C = add(C, (y[i][p] * (y[i][q] / d) for p, q in UPPER))
        Ia = Ia.minus_outer(w[i], share)
    for column, x in zip(Y, of_c, strict=True):
        b = sub(b, scale(x, column))
    A = product(behind.A, plucker(X))
    for column, row in zip(Y, G, strict=True):
        A = tuple(sub(old, scale(entry, row)) for old, entry in zip(A, column, strict=True))
    eta = X.force_back(F + Ia.times(c)).scaled(-1.0)
    J = symmetric(X.articulated_back(Ia))
    return Riccati(A, b, C, vector(eta), J), tuple(map(Gain, G, g))


def _sum(a: Scalar, b: Scalar) -> Scalar:
    return a + b


def accelerated(
    X: Transform, c: Motion, S: tuple[Motion, ...], gains: tuple[Gain, ...], a: Vec6
) -> tuple[Vec6, tuple[Scalar, ...]]:
    """Accelerations of a body and its joint, from the parent's acceleration (RBDA eq. 7.45 and 7.46)."""
    qdd = tuple(-(dot(gain.G, a) + gain.g) for gain in gains)
    a_body = X.motion(Motion(a[:3], a[3:])) + c
    for s, x in zip(S, qdd, strict=True):
        a_body = a_body + s.scaled(x)
    return vector(a_body), qdd


# Folds along stretches.


class Growing(NamedTuple):
    """A stretch that grows inward. `sound`: 1 if every joint so far has inertia, else at most 1/2."""

    element: Riccati
    sound: Scalar


ALONE = Growing(ONE_STRETCH, 1.0)
"""A stretch without bodies."""

_MEMBER, _HELD = (TRANSFORM, MOTION, FieldType((FORCE.template, ZERO_SYM6)), SCALAR), 2
"""X, c, (eta, IA) and the joint's pitch."""
_LOADS = (SCALAR, SCALAR)
"""tau and armature."""
_GAIN = FieldType(Gain((0.0,) * 6, 0.0))


def _member(code: int, X: Transform, c: Motion, held: Any, pitch: Scalar, tau: Any, armature: Any) -> Member:
    eta, IA = held
    return Member(X, c, IA, eta, KINDS[code].subspace(pitch), tau, armature)


@cache
def growing(dtype: np.dtype[Any]) -> Fold:
    """The fold that computes the Riccati elements of stretches, in a precision."""
    least = rounding_of(dtype).least

    def step(code: int) -> Callable[..., Any]:
        """The step for a joint kind."""

        def grown(carry: Growing, *parts: Any) -> Any:
            """The stretch with one more body."""
            sound = carry.sound

            def pivot(left: Scalar, diagonal: Scalar) -> Scalar:
                # x is 0 if rounding of 8 * diagonal absorbs the pivot. `feels` is 1 if the pivot is positive beyond
                # rounding errors (the joint has inertia), else 1/2 or 0. In that case a positive number is added to the
                # pivot, so that results stay finite.
                nonlocal sound
                x = (8.0 * diagonal + left - 8.0 * diagonal) / (diagonal + least)
                feels = 0.5 + 0.5 * x / (np.abs(x) + least)
                sound = sound * feels
                return left + (1.0 - feels)

            element, gains = lengthened(_member(code, *parts), carry.element, pivot)
            return Growing(element, sound), (), ((),) * len(gains)

        return grown

    return Fold(step, FieldType(ALONE), _MEMBER, _LOADS, inward=True, hung=_HELD)


def _settling(code: int) -> Callable[..., Any]:
    def settled(carry: Correction, *parts: Any) -> Any:
        behind = Riccati(carry.A, carry.b, ZERO_SYM6, carry.eta, carry.J)
        element, gains = lengthened(_member(code, *parts), behind)
        return Correction(element.A, element.b, element.eta, element.J), (), gains

    return settled


SETTLED = Correction(ONE, (0.0,) * 6, (0.0,) * 6, ZERO_SYM6)
"""A stretch without bodies and with nothing behind it."""
SETTLING = Fold(_settling, FieldType(SETTLED), _MEMBER, _LOADS, found_dofs=_GAIN, inward=True, hung=_HELD)
"""The articulated-body algorithm inward, from known J and eta behind a stretch: it computes A and b of the stretch, J
and eta as seen from before it, and the gains of all joints."""


def _accelerating(code: int) -> Callable[..., Any]:
    def moved(a: Vec6, X: Transform, c: Motion, pitch: Scalar, gains: tuple[Gain, ...]) -> Any:
        a_body, qdd = accelerated(X, c, KINDS[code].subspace(pitch), gains, a)
        return a_body, a_body, qdd

    return moved


_SIX = FieldType(vector(ZERO_MOTION))
ACCELERATING = Fold(_accelerating, _SIX, (TRANSFORM, MOTION, SCALAR), (_GAIN,), _SIX, SCALAR, inward=False)
"""The outward fold for accelerations of bodies and joints."""
