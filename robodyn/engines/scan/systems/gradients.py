"""Steps for the gradient of inverse dynamics, and their outward fold along stretches (`folds.py`).

Singh, Russell, Wensing 2022; formulas in `robodyn.algorithms.idsva`. Quantities of bodies and of degrees of freedom are
in the axes of each tree's first body, about bodies' own origins (`robodyn.engines.scan.trees.aligned`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from robodyn.algorithms.coriolis import CORIOLIS, CoriolisInertia, body_coriolis
from robodyn.core.spatial import (
    ZERO3,
    ZERO_FORCE,
    ZERO_INERTIA,
    ZERO_MOTION,
    Force,
    Inertia,
    Mat3,
    Motion,
    Scalar,
    Transform,
    Vec3,
    rotate_back,
)
from robodyn.core.sweeps import FORCE, INERTIA, SCALAR, TRANSFORM, FieldType
from robodyn.engines.scan.folds import Fold
from robodyn.engines.scan.semigroups import TWIST_PAIRS, TwistPair
from robodyn.engines.scan.systems.motions import across
from robodyn.engines.scan.trees.aligned import turned, turned_inertia

Scalars = tuple[Scalar, ...]


class Columns(NamedTuple):
    """Motions of a degree of freedom: S, psi = v_p x S, psidd = a_p x S + v_p x psi, both = psi + Sdot = 2 psi + vJ x
    S.

    v_p and a_p are the velocity and the acceleration of the parent.
    """

    S: Motion
    psi: Motion
    psidd: Motion
    both: Motion


class Parts(NamedTuple):
    """I, 2B and f of a body or a subtree."""

    inertia: Inertia
    B2: CoriolisInertia
    f: Force


class Felt(NamedTuple):
    """Forces of a degree of freedom: 2B psi + I psidd + S x* f, 2B S + I (psi + Sdot), 2B' S and I S."""

    F_q: Force
    F_qd: Force
    couple: Force
    IS: Force


COLUMNS, FELT = FieldType(Columns(*(ZERO_MOTION,) * 4)), FieldType(Felt(*(ZERO_FORCE,) * 4))
PARTS = FieldType(Parts(ZERO_INERTIA, CORIOLIS.template, ZERO_FORCE))
PUSHED = FieldType((*PARTS.template, ZERO_FORCE))
"""`Parts` and external forces."""


def columns_of(S: Motion, v_p: Motion, a_p: Motion, vJ: Motion) -> Columns:
    """`Columns` of a degree of freedom, from S, the parent's v and a about the body's origin, and vJ = S qd."""
    psi = v_p.cross(S)
    return Columns(S, psi, a_p.cross(S) + v_p.cross(psi), psi.scaled(2.0) + vJ.cross(S))


def parts(inertia: Inertia, v: Motion, a: Motion) -> Parts:
    """`Parts` of a body, with all quantities in the tree's axes."""
    f = inertia.net_force(v, a)
    return Parts(inertia, body_coriolis(inertia, v.scaled(2.0)), f)


def force_turned(E: Mat3, f: Force) -> Force:
    """A force, from body axes to the tree's axes."""
    return Force(rotate_back(E, f.ang), rotate_back(E, f.lin))


def felt(moving: Columns, total: Parts) -> Felt:
    """`Felt` of a degree of freedom, from its `Columns` and the sum of `Parts` over its subtree."""
    (S, psi, psidd, both), (inertia, B2, f) = moving, total
    return Felt(
        B2.times(psi) + inertia.times(psidd) + S.cross_force(f),
        B2.times(S) + inertia.times(both),
        B2.transpose_times(S),
        inertia.times(S),
    )


def turning(S: Motion, f: Force) -> Force:
    """- S x* f."""
    return S.cross_force(f).scaled(-1.0)


# The outward fold.


class AboutOrigin(NamedTuple):
    """v and a of the parent about the body's origin, and vJ = S qd."""

    v_p: Motion
    a_p: Motion
    vJ: Motion


AROUND = FieldType(AboutOrigin(ZERO_MOTION, ZERO_MOTION, ZERO_MOTION))


class Steered(NamedTuple):
    """Results for a body.

    `now`: its motion, with the transform from the tree's first body; `d`: its origin relative to its parent's;
    `around`: the inputs of `columns_of`; `parts`: the body's `Parts`, with external forces if the call has any.
    """

    now: TwistPair
    d: Vec3
    around: AboutOrigin
    parts: Any


def _steered(code: int, carry: TwistPair, X: Transform, pitch: Scalar, inertia: Inertia, *rates: Scalars) -> Steered:
    (qd, qdd), v_p, a_p = rates, X.motion(carry.xi2), X.motion(carry.xi1)
    vJ, at = across(code, pitch, qd), X.after(carry.g)
    v, a = v_p + vJ, a_p + across(code, pitch, qdd) + v_p.cross(vJ)
    around = AboutOrigin(*(turned(at.E, each) for each in (v_p, a_p, vJ)))
    own = parts(turned_inertia(at.E, inertia), around.v_p + around.vJ, turned(at.E, a))
    return Steered(TwistPair(at, a, v), rotate_back(carry.g.E, X.r), around, own)


def _steering(code: int) -> Callable[..., Any]:
    def step(carry: TwistPair, X: Transform, pitch: Scalar, inertia: Inertia, qd: Scalars, qdd: Scalars) -> Any:
        result = _steered(code, carry, X, pitch, inertia, qd, qdd)
        return result.now, result, ((),) * len(qd)

    return step


def _steering_pushed(code: int) -> Callable[..., Any]:
    def step(
        carry: TwistPair, X: Transform, pitch: Scalar, inertia: Inertia, force: Force, qd: Scalars, qdd: Scalars
    ) -> Any:
        result = _steered(code, carry, X, pitch, inertia, qd, qdd)
        outside = force_turned(result.now.g.E, result.now.g.force(force))
        return result.now, result._replace(parts=(*result.parts, outside)), ((),) * len(qd)

    return step


def _of_field(field: FieldType) -> FieldType:
    return FieldType(Steered(TWIST_PAIRS.identity, ZERO3, AROUND.template, field.template))


_BODY, _RATES = (TRANSFORM, SCALAR, INERTIA), (SCALAR, SCALAR)
STEERING = Fold(_steering, TWIST_PAIRS.field, _BODY, _RATES, _of_field(PARTS), inward=False)
"""The outward fold that computes `Steered` of bodies."""
STEERING_PUSHED = Fold(_steering_pushed, TWIST_PAIRS.field, (*_BODY, FORCE), _RATES, _of_field(PUSHED), inward=False)
"""The same with external forces, in the frame from which the carry's transforms start."""
