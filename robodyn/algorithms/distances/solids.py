"""Shapes as rows of numbers, as loops over tables of pairs store them.

A `Form` is the kind of a shape as formulas know it. Its numbers are those of `robodyn.algorithms.distances.formulas`,
first in the frame of a link, then in world coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from robodyn.algorithms.distances.formulas import Ball, Brick, Flat, Rod, Solid, nearest
from robodyn.algorithms.distances.scene import obstacles_of, solid
from robodyn.algorithms.kinematics import FROM_ROOT, POSES, from_root
from robodyn.core.description import Geometry
from robodyn.core.spatial import Motion, Scalar, Transform, add, cross, dot, rotate_back
from robodyn.core.sweeps import TRANSFORM, Algorithm, Fields, LinkConstants, LinkOutput, Links, Written
from robodyn.internals.arguments import Array

Form: TypeAlias = int
BALL, ROD, BRICK, FLAT, CAN = range(5)
"""Codes of forms; a can is a cylinder."""
SIZES = (4, 8, 15, 4, 8)
"""Numbers of a shape of each form: a ball has its centre and radius, a rod c, h, r and h . h, a brick c, E and b, a
flat n and o."""
FORM_OF = {"spheres": BALL, "capsules": ROD, "boxes": BRICK}
"""Forms of obstacles."""
FRAME = 12
"""Numbers of a link's frame: its axes in world coordinates one after the other, and its origin."""
TWIST = 6
NEAREST = 10
"""Numbers of `Nearest`."""


def built(form: Form, x: Sequence[Scalar]) -> Solid:
    """A shape from its numbers."""
    c: Any = tuple(x[:3])
    if form == BALL:
        return Ball(c, x[3])
    if form == FLAT:
        return Flat(c, x[3])
    if form == BRICK:
        return Brick(c, tuple(x[3:12]), tuple(x[12:15]))
    return Rod(c, tuple(x[3:6]), x[6], x[7], form == CAN)


def numbers_of(shape: Solid) -> tuple[Scalar, ...]:
    """The numbers of a shape."""
    if isinstance(shape, Brick):
        return (*shape.c, *shape.E, *shape.b)
    if isinstance(shape, Rod):
        return (*shape.c, *shape.h, shape.r, shape.hh)
    return (*shape.c, shape.r) if isinstance(shape, Ball) else (*shape.n, shape.o)


def form_of(shape: Solid) -> Form:
    """The form of a shape."""
    if isinstance(shape, Rod):
        return CAN if shape.flat else ROD
    return (Ball, Rod, Brick, Flat).index(type(shape))


def on_link(geometry: Geometry) -> Solid:
    """A shape of a model in the frame of its link."""
    T = np.eye(4).ravel().tolist()
    pose = geometry.pose
    return solid(geometry.kind, pose.xyz, [float(x) for x in pose.rotation], geometry.size, T)


def placed(form: Form, own: Sequence[Scalar], frame: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """The numbers of a shape in world coordinates, from those in the frame of its link."""
    E, r = tuple(frame[:9]), tuple(frame[9:])
    shape = built(form, own)
    if isinstance(shape, Flat):
        n = rotate_back(E, shape.n)
        return numbers_of(Flat(n, shape.o + dot(n, r)))
    shape = shape._replace(c=add(r, rotate_back(E, shape.c)))
    if isinstance(shape, Rod):
        shape = shape._replace(h=rotate_back(E, shape.h))
    elif isinstance(shape, Brick):
        axes = [rotate_back(E, shape.E[k : k + 3]) for k in (0, 3, 6)]
        shape = shape._replace(E=tuple(x for axis in axes for x in axis))
    return numbers_of(shape)


def obstacle(kind: str, x: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """The numbers of an obstacle, from those of a user."""
    (shape,) = obstacles_of({kind: x})
    return numbers_of(shape)


def enclosed(shape: Solid) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """Centre and radius of a sphere around a shape that is no half-space."""
    assert not isinstance(shape, Flat)
    if isinstance(shape, Ball):
        return (*shape.c, shape.r)
    if isinstance(shape, Rod):
        return (*shape.c, np.sqrt(shape.hh) + shape.r)
    return (*shape.c, np.sqrt(dot(shape.b, shape.b)))


def distance(one: Form, other: Form, x: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """The distance of two shapes with the numbers x, those of the first one before those of the second."""
    return (nearest(built(one, x[: SIZES[one]]), built(other, x[SIZES[one] :])).d,)


def nearest_numbers(one: Form, other: Form, x: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """Distance, witness points and normal of two shapes."""
    near = nearest(built(one, x[: SIZES[one]]), built(other, x[SIZES[one] :]))
    return (near.d, *near.p1, *near.p2, *near.n)


def world_twist(S: Sequence[Scalar], frame: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """The motion S of a degree of freedom in the frame of a link, as a twist in world coordinates."""
    X = Transform(tuple(frame[:9]), tuple(frame[9:]))
    S = tuple(S)
    moved = X.motion_back(Motion(S[:3], S[3:]))
    return (*moved.ang, *moved.lin)


def rate(twist: Sequence[Scalar], n: Sequence[Scalar], x: Sequence[Scalar]) -> Scalar:
    """How fast a distance grows where its first shape moves by a twist; see `Scene.gradient`."""
    wrench = (*cross(tuple(x), tuple(n)), *n)
    return sum((a * b for a, b in zip(twist, wrench, strict=True)), start=0.0)


def enclosing_sphere(shapes: Sequence[Solid]) -> tuple[Array, float]:
    """A small sphere around shapes of a link, by steps towards the farthest one (Badoiu and Clarkson, 2003). Its radius
    is infinite around a half-space."""
    if any(isinstance(each, Flat) for each in shapes):
        return np.zeros(3), math.inf
    spheres = np.array([enclosed(each) for each in shapes], float)
    centre = spheres[:, :3].mean(axis=0)
    for step in range(1, 200):
        reach = np.linalg.norm(spheres[:, :3] - centre, axis=1) + spheres[:, 3]
        centre = centre + (spheres[reach.argmax(), :3] - centre) / (step + 1)
    reach = np.linalg.norm(spheres[:, :3] - centre, axis=1) + spheres[:, 3]
    return centre, float(reach.max())


def _frame_of_link(link: LinkConstants, own: Fields) -> Written:
    return {"frame": link.X.after(own.X0)}


@cache
def link_frames(at_origin: bool) -> Algorithm:
    """The frames of all links (n_links, 12). `at_origin`: with the tree's first body at the world's origin, for
    distances that do not depend on its position."""
    return Algorithm(
        name="link_frames" + ("_at_origin" if at_origin else ""),
        inputs=("q",),
        fields={"X0": TRANSFORM, "frame": TRANSFORM, **({"is_body": FROM_ROOT["is_body"]} if at_origin else {})},
        sweeps=(
            *(from_root(POSES, "X0") if at_origin else POSES),
            Links(_frame_of_link, reads=("X0",), writes=("frame",)),
        ),
        outputs={"frames": LinkOutput("frame", (FRAME,))},
    )
