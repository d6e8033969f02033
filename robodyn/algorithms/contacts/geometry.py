"""Points of contact of pairs of shapes, on scalars of any kind, by MuJoCo's rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from robodyn.algorithms.distances.formulas import Ball, Flat
from robodyn.algorithms.distances.scene import solid
from robodyn.core.contacts.kinds import ContactPair
from robodyn.core.description import Geometry
from robodyn.core.spatial import Scalar, Vec3, cross, dot, scale, sub
from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass


@dataclass(frozen=True)
class Slot:
    """A point of contact in world coordinates.

    `dist`: signed distance, m. `point`: middle of the penetration. `n`: unit normal, from the second shape to the
    first; `t1`, `t2`: tangents; n, t1, t2 are right-handed.
    """

    dist: Scalar
    point: Vec3
    n: Vec3
    t1: Vec3
    t2: Vec3


def slots(pair: ContactPair, first: Sequence[Scalar], second: Sequence[Scalar]) -> list[Slot]:
    """The slots of a pair, apart or not. `first`, `second`: poses (16 scalars) of the links that carry the shapes."""
    if pair.kinds != ("plane", "sphere") or pair.turned:
        raise UnavailableError(f"contacts of {pair.kinds}")
    ball, flat = cast(Ball, _solid(pair.first, first)), cast(Flat, _solid(pair.second, second))
    dist = dot(flat.n, ball.c) - flat.o - ball.r
    t1 = (0.0, 1.0, 0.0)
    return [Slot(dist, sub(ball.c, scale(ball.r + 0.5 * dist, flat.n)), flat.n, t1, cross(flat.n, t1))]


def _solid(shape: Geometry, T: Sequence[Scalar]) -> Ball | Flat:
    return cast("Ball | Flat", solid(shape.kind, shape.pose.xyz, shape.pose.rotation, shape.size, T))
