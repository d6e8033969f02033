"""Contact points between two shapes: how deep, where, and along which axes, as MuJoCo has them.

Functions of scalars of any kind (`robodyn.core.spatial`) in world coordinates, like those of
`robodyn.algorithms.distances.formulas`: no branch on a value, NaN is passed on. A pair of shapes has a fixed number of
slots, points of contact that can be active. A slot that its pair has at times only, such as the second of two capsules
that are not parallel, is `APART` then.

Formulas take shapes in MuJoCo's order of kinds, and normals point from the first to the second, as MuJoCo's do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from robodyn.algorithms.constraints.terms import orthonormal
from robodyn.algorithms.contacts.height_fields import Field, point_to_field, segment_to_field
from robodyn.algorithms.distances.formulas import (
    CROSSED,
    TINY,
    Ball,
    Brick,
    Flat,
    Rod,
    Solid,
    along,
    clamp,
    divisor,
    length_of,
    nearest_of,
    perpendicular,
    pick,
    point_box,
    segment_pairs,
    sign,
)
from robodyn.algorithms.distances.scene import exact, solid
from robodyn.core.contacts.kinds import ContactPair
from robodyn.core.description import Geometry
from robodyn.core.spatial import Scalar, Vec3, add, cross, dot, rotate, rotate_back, scale, select, sub

APART = 1e10
"""Distance (m) of a slot that its pair does not have in a configuration."""
_PARALLEL = 1e-8
"""Squared sine of the angle below which two capsules are parallel."""
_ALONG = 1e-15
"""Squared product (m^4) of half an edge and half an axis below which they are parallel."""
_X: Vec3 = (1.0, 0.0, 0.0)
_WORLD = [float(k % 5 == 0) for k in range(16)]
"""The pose of the world."""


class Can(NamedTuple):
    """A cylinder: centre, half of its axis, radius, squared length of h, and a unit vector across the axis, on which
    the points of a cylinder that stands upright are."""

    c: Vec3
    h: Vec3
    r: Scalar
    hh: Scalar
    x: Vec3


Body: TypeAlias = Solid | Can | Field
_ORDER = (Flat, Field, Ball, Rod, Can, Brick)


class Slot(NamedTuple):
    """A point of contact in world coordinates.

    `dist`: signed distance, m, negative where the shapes overlap. `point`: in the middle between both surfaces. `n`:
    unit normal, of `slots` from the second shape to the first; `t1`, `t2`: tangents, n = t1 x t2.
    """

    dist: Scalar
    point: Vec3
    n: Vec3
    t1: Vec3
    t2: Vec3

    def turned(self) -> Slot:
        """The same with the shapes in the other order."""
        return self._replace(n=scale(-1.0, self.n), t2=scale(-1.0, self.t2))


def slots(pair: ContactPair, first: Sequence[Scalar], second: Sequence[Scalar]) -> list[Slot]:
    """The slots of a pair, `pair.slots` of them, apart or not. `first`, `second`: poses (16 scalars) of the links that
    carry the shapes."""
    one, other = body(pair.second, second, pair.margin), body(pair.first, first, pair.margin)
    if _ORDER.index(type(one)) <= _ORDER.index(type(other)):
        found = points(one, other)
    else:
        found = [slot.turned() for slot in points(other, one)]
    return found + [found[0]._replace(dist=APART)] * (pair.slots - len(found))


def ground(given: Mapping[str, Sequence[Scalar]]) -> Sequence[Scalar]:
    """The pose (16 scalars) that carries the shapes which are fixed to the world: that of the world, or the input
    "ground_pose", with its axes made orthonormal."""
    if "ground_pose" not in given:
        return _WORLD
    T = given["ground_pose"]
    R = orthonormal((*T[0:3], *T[4:7], *T[8:11]))
    return (*R[0:3], T[3], *R[3:6], T[7], *R[6:9], T[11], 0.0, 0.0, 0.0, 1.0)


def body(shape: Geometry, T: Sequence[Scalar], margin: float = 0.0) -> Body:
    """A shape on a link with the pose T in world coordinates. A capsule of length zero is a sphere. `margin`: the
    distance up to which formulas of height fields must be exact."""
    rotation = [exact(x) for x in shape.pose.rotation]
    if shape.kind == "height field":
        place = solid("box", shape.pose.xyz, rotation, (0.0, 0.0, 0.0), T)
        assert isinstance(place, Brick)
        x, y, rows, columns, *heights = shape.size
        by_row = tuple(tuple(heights[k : k + int(columns)]) for k in range(0, len(heights), int(columns)))
        assert len(by_row) == rows
        return Field(place.c, place.E, (x, y), by_row, margin)
    found = solid(shape.kind, shape.pose.xyz, rotation, shape.size, T)
    if shape.kind != "cylinder" or not isinstance(found, Rod):
        return found
    R = (*T[0:3], *T[4:7], *T[8:11])
    return Can(found.c, found.h, found.r, found.hh, rotate(R, (rotation[0], rotation[3], rotation[6])))


def points(one: Body, other: Body) -> list[Slot]:
    """The slots of two shapes in the order of MuJoCo."""
    if isinstance(one, Flat):
        return _on_plane(one, other)
    return _FORMULAS[type(one), type(other)](one, other)


def tangents(n: Vec3, hint: Vec3 | None = None) -> tuple[Vec3, Vec3]:
    """Two unit vectors across a unit vector n: the y axis, or z where |n_y| >= 1/2, made orthogonal to n, and n x t1.

    `hint`: a vector of any length that takes the place of the y axis. Where it is along n, t1 is the second of the
    tangents without it, turned round: the x axis on a horizontal plane.
    """
    axis = pick(0.5 - abs(n[1]), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    t = sub(axis, scale(dot(n, axis), n))
    t1 = scale(1.0 / np.sqrt(dot(t, t)), t)
    if hint is not None:
        for _ in range(2):  # once more, as the first difference is all rounding where the hint is along n
            hint = sub(hint, scale(dot(n, hint), n))
        t1 = _direction(hint, cross(t1, n))
    return t1, cross(n, t1)


def _direction(v: Vec3, otherwise: Vec3) -> Vec3:
    """The direction of v, `otherwise` where it has none, with derivatives that are finite in either case."""
    vv = dot(v, v)
    direction: Vec3 = pick(vv - TINY, scale(1.0 / np.sqrt(divisor(vv)), v), otherwise)
    return direction


def _balls(x1: Vec3, r1: Scalar, x2: Vec3, r2: Scalar, otherwise: Vec3, least: float = TINY) -> Slot:
    """Spheres about x1 and x2; `otherwise`: the normal where their squared distance is at most `least`."""
    v = sub(x2, x1)
    vv = dot(v, v)
    n = pick(vv - least, scale(1.0 / np.sqrt(divisor(vv)), v), otherwise)
    d = length_of(vv) - r1 - r2
    return Slot(d, along(x1, r1 + 0.5 * d, n), n, *tangents(n))


def _on_plane(plane: Flat, shape: Body) -> list[Slot]:
    n = plane.n
    if isinstance(shape, Ball):
        places, hint = [along(shape.c, -shape.r, n)], None
    elif isinstance(shape, Rod):
        ends = [along(shape.c, s, shape.h) for s in (1.0, -1.0)]
        places, hint = [along(x, -shape.r, n) for x in ends], shape.h
    elif isinstance(shape, Can):
        places, hint = _rim(n, shape), None
    elif isinstance(shape, Brick):
        places, hint = _corners(n, shape), None
    axes = tangents(n, hint)
    found = [(dot(n, x) - plane.o, x) for x in places]
    return [Slot(d, along(x, -0.5 * d, n), n, *axes) for d, x in found]


def _corners(n: Vec3, box: Brick) -> list[Vec3]:
    """The lower end of each diagonal of a box."""
    halves = [scale(b, box.E[k : k + 3]) for k, b in zip((0, 3, 6), box.b, strict=True)]
    reach = [dot(n, half) for half in halves]
    corners = []
    for signs in ((1.0, 1.0, 1.0), (-1.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, -1.0)):
        lower = select(sum(s * x for s, x in zip(signs, reach, strict=True)), -1.0, 1.0)
        x = box.c
        for s, half in zip(signs, halves, strict=True):
            x = along(x, lower * s, half)
        corners.append(x)
    return corners


def _rim(n: Vec3, can: Can) -> list[Vec3]:
    """Four points of the rims of a cylinder: the lowest of each, and two that make an equilateral triangle with it, on
    the lower rim."""
    a = scale(select(dot(n, can.h), -1.0, 1.0), can.h)  # down
    v = sub(scale(dot(n, a) / divisor(can.hh), a), n)
    v = scale(can.r, _direction(v, can.x))
    s = cross(v, a)
    s = scale(np.sqrt(0.75) * can.r / np.sqrt(divisor(dot(s, s))), s)
    lower, upper = add(can.c, a), sub(can.c, a)
    back = along(lower, -0.5, v)
    return [add(lower, v), add(upper, v), add(back, s), sub(back, s)]


def _ball_rod(ball: Ball, rod: Rod) -> list[Slot]:
    t = clamp(dot(rod.h, sub(ball.c, rod.c)) / divisor(rod.hh), 1.0)
    return [_balls(ball.c, ball.r, along(rod.c, t, rod.h), rod.r, perpendicular(rod.h))]


def _rod_rod(first: Rod, second: Rod) -> list[Slot]:
    """The nearest points; of parallel capsules both ends of the part where they are side by side, which is one point
    where one is before the other."""
    across = cross(first.h, second.h)
    s, t, _ = nearest_of(segment_pairs(first, second))
    parallel = _PARALLEL * first.hh * second.hh - dot(across, across)
    r = sub(second.c, first.c)
    # The second axis on the first: its middle and half of its length.
    middle, half = (dot(first.h, v) / divisor(first.hh) for v in (r, second.h))
    low, high = middle - abs(half), middle + abs(half)
    s_low, s_high = clamp(low, 1.0), clamp(high, 1.0)
    t_low, t_high = (clamp(dot(second.h, sub(scale(x, first.h), r)) / divisor(second.hh), 1.0) for x in (s_low, s_high))
    t_low, t_high = select(low + 1.0, -1.0 * sign(half), t_low), select(1.0 - high, sign(half), t_high)
    aside = _direction(across, perpendicular(first.h))

    def at(s: Scalar, t: Scalar) -> Slot:
        x1, x2 = along(first.c, s, first.h), along(second.c, t, second.h)
        return _balls(x1, first.r, x2, second.r, aside, CROSSED)

    near, other = at(select(parallel, s_low, s), select(parallel, t_low, t)), at(s_high, t_high)
    return [near, other._replace(dist=select(parallel, other.dist, APART))]


def _ball_can(ball: Ball, can: Can) -> list[Slot]:
    """The nearest point of the side, of a cap, or of a rim."""
    half, v = np.sqrt(can.hh), sub(ball.c, can.c)
    axis = scale(1.0 / half, can.h)
    x = dot(axis, v)
    across, up = sub(v, scale(x, axis)), scale(sign(x), axis)
    aside = _direction(across, can.x)
    beside, above = length_of(dot(across, across)) - can.r, abs(x) - half
    corner = add(scale(beside, aside), scale(above, up))
    flat = pick(above - beside, (above, *up), (beside, *aside))
    outside = np.minimum(above, beside)
    d, *out = pick(outside, (length_of(dot(corner, corner)), *_direction(corner, aside)), flat)
    d, n = d - ball.r, scale(-1.0, (out[0], out[1], out[2]))
    return [Slot(d, along(ball.c, ball.r + 0.5 * d, n), n, *tangents(n))]


def _ball_brick(ball: Ball, box: Brick) -> list[Slot]:
    d, n = point_box(rotate(box.E, sub(ball.c, box.c)), box.b)
    d, n = d - ball.r, scale(-1.0, rotate_back(box.E, n))
    return [Slot(d, along(ball.c, ball.r + 0.5 * d, n), n, *tangents(n))]


def _rod_brick(rod: Rod, box: Brick) -> list[Slot]:
    """The point of the capsule's axis that is nearest to the box, and a second one where the axis is along a face or an
    edge: the farthest point that is still above the box."""
    c, h, b = rotate(box.E, sub(rod.c, box.c)), rotate(box.E, rod.h), box.b
    best = _Touch(_FAR, 0.0, 0.0, 0.0, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    for end in (-1.0, 1.0):
        best = best.or_closer(_end_touch(end, along(c, end, h), b), 0.0)
    for j in range(3):
        for signs in ((-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0), (1.0, 1.0)):
            best = best.or_closer(_edge_touch(j, signs, c, h, rod.hh, b), _TIE)
    step, exists = _to_second(best, c, h, rod.hh, b)
    near, other = (_ball_brick(Ball(along(rod.c, s, rod.h), rod.r), box)[0] for s in (best.s, best.s + step))
    return [near, other._replace(dist=select(exists, other.dist, APART))]


class _Touch(NamedTuple):
    """Where the axis of a capsule is nearest to a face or an edge of a box.

    vv: squared distance; s: parameter of the point on the axis, from -1 to 1; x: on the edge, likewise. is_edge: 1 for
    an edge, 0 for a face or a point inside. across: for an edge, 1 for its direction j and 0 for the others; for a face
    likewise, all 0 inside. corner: for an edge, the side of the box on each axis, along the edge 0 in its middle.
    """

    vv: Scalar
    s: Scalar
    x: Scalar
    is_edge: Scalar
    axis: Vec3
    corner: Vec3

    def or_closer(self, other: _Touch, by: float) -> _Touch:
        """The other one where it is closer by more than `by` (m^2)."""
        closer = self.vv - by - other.vv
        mine, new = ((each.s, each.x, each.is_edge, *each.axis, *each.corner) for each in (self, other))
        s, x, is_edge, *rest = pick(closer, new, mine)
        return _Touch(select(closer, other.vv, self.vv), s, x, is_edge, tuple(rest[:3]), tuple(rest[3:]))


_FAR = 1e20
_TIE = 1e-15
"""By how much an edge must be closer than a face, m^2."""


def _end_touch(end: float, x: Vec3, b: Vec3) -> _Touch:
    """An end of the axis, where it is above a face or inside the box."""
    over = [abs(y) - edge for y, edge in zip(x, b, strict=True)]
    low, high = np.minimum(over[0], over[1]), np.maximum(over[0], over[1])
    second = np.maximum(low, np.minimum(high, over[2]))
    out = np.maximum(np.maximum(high, over[2]), 0.0)
    face = tuple([select(y, 1.0, 0.0) for y in over])
    return _Touch(select(second, 2.0 * _FAR, out * out), end, 0.0, 0.0, face, (0.0, 0.0, 0.0))


def _edge_touch(j: int, signs: tuple[float, float], c: Vec3, h: Vec3, hh: Scalar, b: Vec3) -> _Touch:
    """The nearest points of the axis and an edge along axis j: those of the lines, clamped one after the other."""
    k, l = (i for i in range(3) if i != j)
    corner: list[Scalar] = [0.0, 0.0, 0.0]
    corner[k], corner[l] = signs
    r = [corner[i] * b[i] - c[i] for i in range(3)]
    aa, ab, across = b[j] * b[j], b[j] * h[j], h[k] * h[k] + h[l] * h[l]
    f, g = -b[j] * r[j], dot(h, r)
    inverse, of_axis = 1.0 / divisor(aa * across), 1.0 / divisor(hh)
    x, s = (hh * f + ab * g) * inverse, (aa * g + ab * f) * inverse
    side = select(abs(x) - 1.0, sign(x), 0.0)
    s = select(abs(x) - 1.0, (g + ab * sign(x)) * of_axis, s)
    x, beyond = clamp(x, 1.0), abs(s) - 1.0
    s = clamp(s, 1.0)
    again = (f + s * ab) / aa
    side = select(beyond, select(abs(again) - 1.0, sign(again), side), side)
    x = select(beyond, clamp(again, 1.0), x)
    v = [r[i] - s * h[i] + (b[j] * x if i == j else 0.0) for i in range(3)]
    corner[j] = side
    axis: list[Scalar] = [0.0, 0.0, 0.0]
    axis[j] = 1.0
    vv = select(aa * across - _ALONG, dot(v, v), 2.0 * _FAR)
    return _Touch(vv, s, x, 1.0, tuple(axis), tuple(corner))


def _to_second(best: _Touch, c: Vec3, h: Vec3, hh: Scalar, b: Vec3) -> tuple[Scalar, Scalar]:
    """The second contact of a capsule and a box: its place in parameters of the axis, from the first one on, and 1 if
    there is one, else 0. It may be where the first is, as in MuJoCo."""
    spans = [1.0 / divisor(abs(y)) for y in h]
    ways = [sign(y) for y in h]
    full = [2.0 * edge * y for edge, y in zip(b, spans, strict=True)]
    middle = 1.0 - abs(sum(a * y for a, y in zip(best.axis, best.corner, strict=True)))
    # 1 where the axis goes from the side of the corner to the other side of the box, else -1.
    towards = [-way * select(abs(y), y, -1.0) for way, y in zip(ways, best.corner, strict=True)]
    edge = pick(middle, _from_edge(best, h, b, spans, ways, full, towards), _from_corner(best.s, h, hh, full, towards))
    step, exists = pick(best.is_edge, edge, _from_face(best, c, h, b, spans, ways))
    return step, exists


def _from_face(best: _Touch, c: Vec3, h: Vec3, b: Vec3, spans: Sequence[Scalar], ways: Sequence[Scalar]) -> Any:
    """From an end above a face towards the other end, up to where the axis leaves the face."""
    way, reach = -best.s, 2.0
    for i in range(3):
        ahead = (b[i] - (c[i] + best.s * h[i]) * (ways[i] * way)) * spans[i]
        reach = np.minimum(reach, select(best.axis[i], 2.0, select(ahead, ahead, 2.0)))
    return way * reach, best.axis[0] + best.axis[1] + best.axis[2]


def _from_corner(s: Scalar, h: Vec3, hh: Scalar, full: Sequence[Scalar], towards: Sequence[Scalar]) -> Any:
    """From a corner along the edge where the axis is within 45 degrees of it, else across a face; none where the axis
    points at the corner."""
    total = towards[0] + towards[1] + towards[2]
    step, exists = 0.0, 0.0
    for i in range(3):
        # The axis that goes another way than the other two.
        differs = -towards[i] * total
        along_edge = np.minimum(1.0 + total * s, full[i])
        others = [full[k] for k in range(3) if k != i]
        along_face = np.minimum(1.0 - total * s, np.minimum(*others))
        new = total * select(h[i] * h[i] - 0.5 * hh, -along_edge, along_face)
        step, exists = select(differs, new, step), select(differs, 1.0, exists)
    return step, exists


def _from_edge(
    best: _Touch,
    h: Vec3,
    b: Vec3,
    spans: Sequence[Scalar],
    ways: Sequence[Scalar],
    full: Sequence[Scalar],
    towards: Sequence[Scalar],
) -> Any:
    """From the middle of an edge that the axis crosses, across the face to which it is closer."""
    step, exists = 0.0, 0.0
    for j in range(3):
        k, l = (j + 1) % 3, (j + 2) % 3
        way, most = pick(abs(h[k]) - abs(h[l]), (towards[k], full[k]), (towards[l], full[l]))
        to_end = b[j] * (1.0 - ways[j] * way * best.x) * spans[j]
        new = way * np.minimum(np.minimum(1.0 - way * best.s, most), to_end)
        crossed = select(-towards[k] * towards[l], 1.0, 0.0)
        step, exists = pick(best.axis[j], (new, crossed), (step, exists))
    return step, exists


def _field_ball(field: Field, ball: Ball) -> list[Slot]:
    d, n = point_to_field(field, ball.c, ball.r)
    d = d - ball.r
    return [Slot(d, along(ball.c, -(ball.r + 0.5 * d), n), n, *tangents(n))]


def _field_rod(field: Field, rod: Rod) -> list[Slot]:
    """Both ends, and a point between them that is closer to an edge of the field than the ends are to the field."""
    found, nearest_end = [], APART
    for end in (1.0, -1.0):
        x = along(rod.c, end, rod.h)
        d, n = point_to_field(field, x, rod.r)
        found.append(_above(x, rod, d, n))
        nearest_end = np.minimum(nearest_end, found[-1].dist)
    d, s, n = segment_to_field(field, rod.c, rod.h, math.sqrt(rod.hh), rod.r)
    between = _above(along(rod.c, s, rod.h), rod, d, n)
    closer = nearest_end - _CLOSER * rod.r - between.dist
    return [*found, between._replace(dist=select(closer, between.dist, APART))]


def _above(x: Vec3, rod: Rod, d: Scalar, n: Vec3) -> Slot:
    """A point on the axis of a capsule that is d above a field with the normal n."""
    d = d - rod.r
    return Slot(d, along(x, -(rod.r + 0.5 * d), n), n, *tangents(n, rod.h))


_CLOSER = 1e-4
"""By how much a point between the ends of a capsule must be closer, as a part of its radius."""
_FORMULAS: dict[tuple[type[Body], type[Body]], Callable[..., list[Slot]]] = {
    (Field, Ball): _field_ball,
    (Field, Rod): _field_rod,
    (Ball, Ball): lambda first, second: [_balls(first.c, first.r, second.c, second.r, _X)],
    (Ball, Rod): _ball_rod,
    (Ball, Can): _ball_can,
    (Ball, Brick): _ball_brick,
    (Rod, Rod): _rod_rod,
    (Rod, Brick): _rod_brick,
}
