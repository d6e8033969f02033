"""Stretches of `aba_scan`: how one grows by a joint and a body, written over scalars.

A stretch is some bodies of a path that follow one another. What it is to those around it is a Riccati element
(`riccati.py`); put before it, a joint and a body take the articulated-body algorithm's step from J and eta behind them
(RBDA eq. 7.42 to 7.44), and what A, b and C become follows from the same elimination, its joint being free to move:
1,100 operations where composing two elements takes 4,100. A body without inertia of its own feels that of the
bodies behind it, so that nothing is singular but what is at the stretch's end.
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

    X: from the parent's frame; c: v x S qd; IA and eta: inertia and negative bias force, those of subtrees that hang on
    the body included; S, tau, armature: per degree of freedom.
    """

    X: Transform
    c: Motion
    IA: Sym6
    eta: Force
    S: tuple[Motion, ...]
    tau: tuple[Scalar, ...]
    armature: tuple[Scalar, ...]


class Gain(NamedTuple):
    """Of a degree of freedom: its acceleration is -(G a + g), a being the acceleration of the body before the joint, in
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
    """A stretch with a joint and a body before it; `pivot` as of `ldl`, of the inertia that the joint feels.

    With U = IA S, R = S' U + armature = L diag(d) L', w = L^-1 U', y = L^-1 (A S)', z = L^-1 (S' F - tau):
    Ia = IA - sum w w' / d, G = R^-1 U' X, and A becomes A X - A S G, C + sum y y' / d, J X' Ia X. c is one more
    acceleration before the joint: it meets the inertia that is left, which loses less than taking it through the
    elimination.
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
    """Accelerations of a body and its joint from that of its parent (RBDA eq. 7.45 and 7.46)."""
    qdd = tuple(-(dot(gain.G, a) + gain.g) for gain in gains)
    found = X.motion(Motion(a[:3], a[3:])) + c
    for s, x in zip(S, qdd, strict=True):
        found = found + s.scaled(x)
    return vector(found), qdd


# Along stretches.


class Growing(NamedTuple):
    """A stretch that grows inward: what it is, and whether every joint felt inertia: 1, or else at most 1/2."""

    element: Riccati
    sound: Scalar


ALONE = Growing(ONE_STRETCH, 1.0)
"""No bodies at all."""

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
    """What stretches are to those before and behind them, in a precision."""
    least = rounding_of(dtype).least

    def step(code: int) -> Callable[..., Any]:
        """For a kind of joint."""

        def grown(carry: Growing, *parts: Any) -> Any:
            """One body more."""
            sound = carry.sound

            def pivot(left: Scalar, diagonal: Scalar) -> Scalar:
                # What is left of eight times the diagonal when that is as much as it can round away; its sign is 1
                # where the joint feels inertia, else 0 or -1. Then anything keeps numbers finite.
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
"""No bodies, and nothing behind them."""
SETTLING = Fold(_settling, FieldType(SETTLED), _MEMBER, _LOADS, found_dofs=_GAIN, inward=True, hung=_HELD)
"""The articulated-body algorithm inward: a stretch's A and b once J and eta of what is behind it are known, these for
what is before it, and the gains of all joints."""


def _accelerating(code: int) -> Callable[..., Any]:
    def moved(a: Vec6, X: Transform, c: Motion, pitch: Scalar, gains: tuple[Gain, ...]) -> Any:
        found, qdd = accelerated(X, c, KINDS[code].subspace(pitch), gains, a)
        return found, found, qdd

    return moved


_SIX = FieldType(vector(ZERO_MOTION))
ACCELERATING = Fold(_accelerating, _SIX, (TRANSFORM, MOTION, SCALAR), (_GAIN,), _SIX, SCALAR, inward=False)
"""Accelerations outward: of bodies, and of joints."""
