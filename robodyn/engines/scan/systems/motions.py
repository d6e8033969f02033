"""Folds of motions outward and of forces inward (`folds.py`): the recursions of the Newton-Euler algorithm.

`MOVING`, `TWISTING` and `PULLING` compute the elements of stretches for scans. The other folds compute the results of
bodies and joints. External forces are in the frame from which the carry's transforms start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from robodyn.core.joints import KINDS
from robodyn.core.spatial import ZERO_FORCE, ZERO_MOTION, Force, Inertia, Motion, Scalar, Transform, articulated
from robodyn.core.sweeps import FORCE, INERTIA, MOTION, SCALAR, TRANSFORM, FieldType
from robodyn.engines.scan.folds import Fold
from robodyn.engines.scan.semigroups import (
    AFFINE_FORCES,
    AFFINE_MOTIONS,
    TWIST_PAIRS,
    AffineForce,
    AffineMotion,
    TwistPair,
)
from robodyn.engines.scan.systems.riccati import ZERO_SYM6, Sym6, symmetric

Scalars = tuple[Scalar, ...]

_FRAME = (TRANSFORM, SCALAR)
"""X from the parent's frame, and the pitch of the joint."""


def across(code: int, pitch: Scalar, rates: Scalars) -> Motion:
    """S times rates."""
    motion = ZERO_MOTION
    for s, rate in zip(KINDS[code].subspace(pitch), rates, strict=True):
        motion = motion + s.scaled(rate)
    return motion


def _nothing(dofs: Scalars) -> tuple[tuple[()], ...]:
    return ((),) * len(dofs)


# Velocities, and the loads of bodies.


def _moving(code: int) -> Callable[..., Any]:
    def step(carry: AffineMotion, X: Transform, pitch: Scalar, qd: Scalars) -> Any:
        return AFFINE_MOTIONS.then(carry, AffineMotion(X, across(code, pitch, qd))), (), _nothing(qd)

    return step


MOVING = Fold(_moving, AFFINE_MOTIONS.field, _FRAME, (SCALAR,), inward=False)


class Load(NamedTuple):
    """Inputs of the articulated-body algorithm for a body with velocity v: c = v x S qd, the negative bias force eta,
    and the inertia IA."""

    c: Motion
    eta: Force
    IA: Sym6


_LOAD = Load(ZERO_MOTION, ZERO_FORCE, ZERO_SYM6)


def _load(v: Motion, joint: Motion, inertia: Inertia) -> Load:
    return Load(v.cross(joint), inertia.velocity_force(v).scaled(-1.0), symmetric(articulated(inertia)))


def _loading(code: int) -> Callable[..., Any]:
    def step(before: Motion, X: Transform, pitch: Scalar, inertia: Inertia, qd: Scalars) -> Any:
        joint = across(code, pitch, qd)
        v = X.motion(before) + joint
        return v, (v, _load(v, joint, inertia)), _nothing(qd)

    return step


LOADING = Fold(_loading, MOTION, (*_FRAME, INERTIA), (SCALAR,), FieldType((ZERO_MOTION, _LOAD)), inward=False)
"""The outward fold for v, with results v and `Load` of bodies."""


def _loading_pushed(code: int) -> Callable[..., Any]:
    def step(carry: AffineMotion, X: Transform, pitch: Scalar, inertia: Inertia, force: Force, qd: Scalars) -> Any:
        joint = across(code, pitch, qd)
        now = AFFINE_MOTIONS.then(carry, AffineMotion(X, joint))
        load = _load(now.b, joint, inertia)
        return now, (now, load._replace(eta=load.eta + now.X.force(force))), _nothing(qd)

    return step


LOADING_PUSHED = Fold(
    _loading_pushed,
    AFFINE_MOTIONS.field,
    (*_FRAME, INERTIA, FORCE),
    (SCALAR,),
    FieldType((AFFINE_MOTIONS.identity, _LOAD)),
    inward=False,
)
"""The same with external forces. v is preceded by the transform from the tree's first body."""


# Velocities, accelerations, and the net forces of bodies.


def _twisted(code: int, carry: TwistPair, X: Transform, pitch: Scalar, qd: Scalars, qdd: Scalars) -> TwistPair:
    joint = across(code, pitch, qd)
    moved = X.motion(carry.xi2)
    a = X.motion(carry.xi1) + across(code, pitch, qdd) + moved.cross(joint)
    return TwistPair(X.after(carry.g), a, moved + joint)


def _twisting(code: int) -> Callable[..., Any]:
    def step(carry: TwistPair, X: Transform, pitch: Scalar, qd: Scalars, qdd: Scalars) -> Any:
        return _twisted(code, carry, X, pitch, qd, qdd), (), _nothing(qd)

    return step


TWISTING = Fold(_twisting, TWIST_PAIRS.field, _FRAME, (SCALAR, SCALAR), inward=False)


class Twist(NamedTuple):
    """Acceleration and velocity."""

    a: Motion
    v: Motion


_STILL = Twist(ZERO_MOTION, ZERO_MOTION)


def _exerting(code: int) -> Callable[..., Any]:
    def step(carry: Twist, X: Transform, pitch: Scalar, inertia: Inertia, qd: Scalars, qdd: Scalars) -> Any:
        now = Twist(*_twisted(code, TwistPair(X, carry.a, carry.v), X, pitch, qd, qdd)[1:])
        return now, (now, inertia.net_force(now.v, now.a)), _nothing(qd)

    return step


EXERTING = Fold(
    _exerting,
    FieldType(_STILL),
    (*_FRAME, INERTIA),
    (SCALAR, SCALAR),
    FieldType((_STILL, ZERO_FORCE)),
    inward=False,
)
"""The outward fold for a and v, with results a, v and I a + v x* I v of bodies."""


def _exerting_pushed(code: int) -> Callable[..., Any]:
    def step(
        carry: TwistPair, X: Transform, pitch: Scalar, inertia: Inertia, force: Force, qd: Scalars, qdd: Scalars
    ) -> Any:
        now = _twisted(code, carry, X, pitch, qd, qdd)
        return now, (now, inertia.net_force(now.xi2, now.xi1) - now.g.force(force)), _nothing(qd)

    return step


EXERTING_PUSHED = Fold(
    _exerting_pushed,
    TWIST_PAIRS.field,
    (*_FRAME, INERTIA, FORCE),
    (SCALAR, SCALAR),
    FieldType((TWIST_PAIRS.identity, ZERO_FORCE)),
    inward=False,
)
"""The same with external forces. a and v are preceded by the transform from the tree's first body."""


# Forces.


def _pulling(code: int) -> Callable[..., Any]:
    def step(carry: AffineForce, X: Transform, f: Force) -> Any:
        return AffineForce(carry.X.after(X), X.force_back(f + carry.f)), (), ((),) * KINDS[code].nv

    return step


PULLING = Fold(_pulling, AFFINE_FORCES.field, (TRANSFORM, FORCE), (), inward=True, hung=1)


def _summing(code: int) -> Callable[..., Any]:
    def step(carry: Force, X: Transform, pitch: Scalar, f: Force) -> Any:
        total = f + carry
        return X.force_back(total), (), tuple(s.dot(total) for s in KINDS[code].subspace(pitch))

    return step


SUMMING = Fold(_summing, FORCE, (*_FRAME, FORCE), (), found_dofs=SCALAR, inward=True, hung=2)
"""The inward fold for forces on subtrees, in the parent's frame, with results S' f of degrees of freedom."""
