"""Folds for matrices (`folds.py`): placements of bodies outward, and composites inward.

All quantities are in the axes of each tree's first body, about bodies' own origins
(`robodyn.engines.scan.trees.aligned`). So inertias are only shifted on the way inward. `POSING` and `gathering` compute
the elements of stretches for scans.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from robodyn.core.joints import KINDS
from robodyn.core.spatial import (
    IDENTITY,
    ZERO3,
    ZERO_INERTIA,
    ZERO_MOTION,
    Inertia,
    Motion,
    Scalar,
    Transform,
    Vec3,
    add,
    rotate_back,
)
from robodyn.core.sweeps import FORCE, INERTIA, MOTION, SCALAR, TRANSFORM, VECTOR3, FieldType
from robodyn.engines.scan.folds import Fold
from robodyn.engines.scan.semigroups import POSES
from robodyn.engines.scan.trees.aligned import Stretch, composite_of, shifted, summed, turned, turned_inertia


def _posing(code: int) -> Callable[..., Any]:
    def step(carry: Transform, X: Transform, pitch: Scalar) -> Any:
        return X.after(carry), (), ((),) * KINDS[code].nv

    return step


POSING = Fold(_posing, POSES.field, (TRANSFORM, SCALAR), (), inward=False)


class Column(NamedTuple):
    """A degree of freedom: its motion S, and its body's origin."""

    S: Motion
    p: Vec3


def _placing(code: int) -> Callable[..., Any]:
    def step(carry: Transform, X: Transform, pitch: Scalar, inertia: Inertia) -> Any:
        at, d = X.after(carry), rotate_back(carry.E, X.r)
        columns = tuple(Column(turned(at.E, s), at.r) for s in KINDS[code].subspace(pitch))
        return at, (at, d, turned_inertia(at.E, inertia)), columns

    return step


PLACING = Fold(
    _placing,
    POSES.field,
    (TRANSFORM, SCALAR, INERTIA),
    (),
    FieldType((IDENTITY, ZERO3, ZERO_INERTIA)),
    FieldType(Column(ZERO_MOTION, ZERO3)),
    inward=False,
)
"""The outward fold for transforms from the tree's first body. Its results are the transform, the origin relative to the
parent's and the inertia of each body, and the column of each degree of freedom."""


@cache
def gathering(field: FieldType) -> Fold:
    """The inward fold for elements of `composite_of(field)`: the sum of a stretch's quantities about the origin of the
    body before it, and the vector from there to the origin of its last body. `field`: the type of the bodies'
    quantities."""

    def of_kind(code: int) -> Callable[..., Any]:
        def step(carry: Stretch, d: Vec3, own: Any) -> Any:
            return Stretch(add(d, carry.r), shifted(d, summed(own, carry.parts))), (), ((),) * KINDS[code].nv

        return step

    return Fold(of_kind, composite_of(field).field, (VECTOR3, field), (), inward=True, hung=1)


@cache
def totalling(field: FieldType) -> Fold:
    """The inward fold for sums over subtrees: its carry is about the parent's origin, its results about the body's own.

    `field`: the type of the bodies' quantities.
    """

    def of_kind(code: int) -> Callable[..., Any]:
        def step(carry: Any, d: Vec3, own: Any) -> Any:
            total = summed(own, carry)
            return shifted(d, total), total, ((),) * KINDS[code].nv

        return step

    return Fold(of_kind, field, (VECTOR3, field), (), field, inward=True, hung=1)


def _composing(_code: int) -> Callable[..., Any]:
    def step(carry: Inertia, d: Vec3, own: Inertia, columns: tuple[Motion, ...]) -> Any:
        total = own + carry
        return shifted(d, total), (), tuple(total.times(s) for s in columns)

    return step


COMPOSING = Fold(_composing, INERTIA, (VECTOR3, INERTIA), (MOTION,), found_dofs=FORCE, inward=True, hung=1)
"""The inward fold for composite inertias Ic, about the parent's origin, with results Ic S of degrees of freedom."""
