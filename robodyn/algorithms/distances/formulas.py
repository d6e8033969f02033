"""Signed distances between two convex shapes, with witness points and normals.

Functions of scalars of any kind (`robodyn.core.spatial`) in world coordinates: `+ - * /`, sqrt, abs, minimum, maximum
and `select`, and no branch on a value. A result is `Nearest`: the distance d, negative where the shapes overlap, the
witness points on both, and the normal n from the second to the first, so that p1 - p2 = d n.

The derivative of d is n times the relative velocity of the witness points, which needs no derivative of a formula.
Where d is not smooth (coincident centres, crossing segments, ties), n is one of the possible normals.

Methods: segment to segment by the least of five candidates, as the textbook's alternation (Ericson, Real-Time
Collision Detection, 2005, section 5.1.9) loses digits near parallel; segment to box by the root of the slope of the
squared distance, which is monotone and piecewise linear along the segment; boxes by edges and corners where they are
apart, and by the 15 axes of separation (Gottschalk, Lin and Manocha, OBBTree, 1996) where they overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from robodyn.core.spatial import Mat3, Scalar, Vec3, add, cross, dot, rotate, rotate_back, scale, select, sub

TINY = 1e-30
"""Added to divisors, and the squared length up to which a vector has no direction. Normal in single precision."""
_PARALLEL = 1e-10
"""Squared sine of the angle below which two axes have no common perpendicular."""
CROSSED = 1e-20
"""Squared distance (m^2) below which two segments cross. The direction between their nearest points is rounding."""
_UP: Vec3 = (0.0, 0.0, 1.0)
_OWN: tuple[Vec3, ...] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), _UP)


class Ball(NamedTuple):
    """A sphere: centre and radius."""

    c: Vec3
    r: Scalar


class Rod(NamedTuple):
    """A capsule, or a cylinder where `flat` is True: centre, half of its axis, radius, and the squared length of h."""

    c: Vec3
    h: Vec3
    r: Scalar
    hh: Scalar
    flat: bool = False


class Brick(NamedTuple):
    """A box: centre, E with its axes as rows, and half of its edges."""

    c: Vec3
    E: Mat3
    b: Vec3


class Flat(NamedTuple):
    """A half-space n . x <= o."""

    n: Vec3
    o: Scalar


Solid: TypeAlias = Ball | Rod | Brick | Flat


class Nearest(NamedTuple):
    """Distance, witness points, and the normal from the second shape to the first."""

    d: Scalar
    p1: Vec3
    p2: Vec3
    n: Vec3

    def swapped(self) -> Nearest:
        """The same with the shapes in the other order."""
        return Nearest(self.d, self.p2, self.p1, scale(-1.0, self.n))


def pick(condition: Scalar, positive: Sequence[Scalar], otherwise: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """`select` of every component."""
    return tuple([select(condition, x, y) for x, y in zip(positive, otherwise, strict=True)])


def sign(x: Scalar) -> Scalar:
    """1 where x is above 0, else -1."""
    return select(x, 1.0, -1.0)


def divisor(x: Scalar) -> Scalar:
    """x, or a tiny number where x is less."""
    return max(x, TINY) if isinstance(x, float) else np.maximum(x, TINY)


def clamp(x: Scalar, most: Scalar) -> Scalar:
    """x, or the nearer of -most and most where it is beyond."""
    return np.minimum(np.maximum(x, -most), most)


def along(p: Vec3, s: Scalar, v: Vec3) -> Vec3:
    """p + s v."""
    x: Vec3 = add(p, scale(s, v))
    return x


def unit(v: Vec3, vv: Scalar, otherwise: Vec3, least: float = TINY) -> tuple[Scalar, Vec3]:
    """The length of v, and its direction; `otherwise` where v . v is at most `least`. `vv`: v . v."""
    length = np.sqrt(vv)
    if isinstance(vv, float) and not vv > least:  # a constant
        return length, otherwise
    return length, pick(vv - least, scale(1.0 / length, v), otherwise)


def length_of(vv: Scalar) -> Scalar:
    """The root of a squared length, 0 up to `TINY`, with a derivative that is finite everywhere."""
    return select(vv - TINY, np.sqrt(divisor(vv)), 0.0)


def perpendicular(h: Vec3) -> Vec3:
    """A unit vector perpendicular to h; some unit vector where h is zero."""
    x, y, z = map(abs, h)
    # The axis of the smallest component.
    is_x, is_y = np.minimum(y, z) - x, np.minimum(x, z) - y
    axis = pick(is_x, (1.0, 0.0, 0.0), pick(is_y, (0.0, 1.0, 0.0), _UP))
    v = cross(h, axis)
    return unit(v, dot(v, v), (1.0, 0.0, 0.0))[1]


def _balls(v: Vec3, x1: Vec3, r1: Scalar, x2: Vec3, r2: Scalar, otherwise: Vec3, least: float = TINY) -> Nearest:
    """Spheres about x1 and x2, with v = x1 - x2."""
    length, n = unit(v, dot(v, v), otherwise, least)
    return Nearest(length - (r1 + r2), sub(x1, scale(r1, n)), along(x2, r2, n), n)


def ball_ball(first: Ball, second: Ball) -> Nearest:
    """Sphere and sphere."""
    return _balls(sub(first.c, second.c), first.c, first.r, second.c, second.r, _UP)


def ball_rod(first: Ball, second: Rod) -> Nearest:
    """Sphere and capsule."""
    r = sub(first.c, second.c)
    t = clamp(dot(second.h, r) / divisor(second.hh), 1.0)
    v = sub(r, scale(t, second.h))
    return _balls(v, first.c, first.r, along(second.c, t, second.h), second.r, perpendicular(second.h))


SegmentPoints: TypeAlias = tuple[Scalar, Scalar, Scalar]
"""Parameters s and t, from -1 to 1, of points of two segments, and the squared distance of these points."""


def segment_pairs(first: Rod, second: Rod) -> list[SegmentPoints]:
    """Candidates for the nearest points of the axes of two capsules: of both lines, and each end with the nearest point
    of the other segment: the ends -1 of the first and of the second, then the ends +1."""
    h1, h2 = first.h, second.h
    r = sub(first.c, second.c)
    a, e = divisor(first.hh), divisor(second.hh)
    b, c, f = dot(h1, h2), dot(h1, r), dot(h2, r)
    inner = clamp((b * f - c * e) / np.maximum(a * e - b * b, TINY), 1.0)
    pairs: list[tuple[Scalar, Scalar]] = [(inner, clamp((b * inner + f) / e, 1.0))]
    for end in (-1.0, 1.0):
        pairs += [(end, clamp((b * end + f) / e, 1.0)), (clamp((b * end - c) / a, 1.0), end)]
    vs = [sub(along(r, s, h1), scale(t, h2)) for s, t in pairs]
    return [(s, t, dot(v, v)) for (s, t), v in zip(pairs, vs, strict=True)]


def nearest_of(candidates: Sequence[SegmentPoints]) -> SegmentPoints:
    """The candidate with the least distance; the first of equal ones."""
    s, t, vv = candidates[0]
    for s_new, t_new, new in candidates[1:]:
        closer = vv - new
        s, t, vv = select(closer, s_new, s), select(closer, t_new, t), np.minimum(vv, new)
    return s, t, vv


def rod_rod(first: Rod, second: Rod) -> Nearest:
    """Capsule and capsule: the least of the distance of the lines and of the four ends to the other segment."""
    h1, h2 = first.h, second.h
    s, t, vv = nearest_of(segment_pairs(first, second))
    x1, x2 = along(first.c, s, h1), along(second.c, t, h2)
    across = cross(h1, h2)
    longer = pick(first.hh - second.hh, h1, h2)
    _, aside = unit(across, dot(across, across), perpendicular(longer))
    near = _balls(sub(x1, x2), x1, first.r, x2, second.r, aside, CROSSED)
    return near._replace(d=np.sqrt(vv) - (first.r + second.r))


def point_box(p: Vec3, b: Vec3) -> tuple[Scalar, Vec3]:
    """Signed distance of a point to a box, in the box's frame, and the normal out of the box."""
    signs = [sign(x) for x in p]
    q = [abs(x) - edge for x, edge in zip(p, b, strict=True)]
    out = [np.maximum(x, 0.0) for x in q]
    oo = out[0] * out[0] + out[1] * out[1] + out[2] * out[2]
    length = length_of(oo)
    deepest = np.maximum(np.maximum(q[0], q[1]), q[2])
    first = np.maximum(q[1], q[2]) - q[0]  # above 0 where another face is nearer
    second = q[2] - q[1]
    face = pick(first, pick(second, (0.0, 0.0, 1.0), (0.0, 1.0, 0.0)), (1.0, 0.0, 0.0))
    n = pick(oo - TINY, scale(1.0 / np.sqrt(divisor(oo)), out), face)
    turned: Vec3 = (signs[0] * n[0], signs[1] * n[1], signs[2] * n[2])
    return length + np.minimum(deepest, 0.0), turned


def ball_brick(first: Ball, second: Brick) -> Nearest:
    """Sphere and box."""
    d, n = point_box(rotate(second.E, sub(first.c, second.c)), second.b)
    n = rotate_back(second.E, n)
    return Nearest(d - first.r, sub(first.c, scale(first.r, n)), sub(first.c, scale(d, n)), n)


def _off(x: Vec3, b: Vec3) -> Vec3:
    """From the nearest point of a box to x."""
    return tuple([y - clamp(y, edge) for y, edge in zip(x, b, strict=True)])


def _crossings(c: Vec3, h: Vec3, b: Vec3) -> list[tuple[Scalar, Scalar]]:
    """For each axis of a box, the parameters s, clamped to |s| <= 1, at which c + s h crosses the planes of its two
    faces; the ends where h is parallel to these."""
    places = []
    for x, direction, edge in zip(c, h, b, strict=True):
        crosses = abs(direction) - TINY
        inverse = 1.0 / select(crosses, direction, 1.0)
        sides = [select(crosses, clamp((side * edge - x) * inverse, 1.0), side) for side in (-1.0, 1.0)]
        places.append((sides[0], sides[1]))
    return places


def _segment_outside(c: Vec3, h: Vec3, b: Vec3, crossings: Sequence[tuple[Scalar, Scalar]]) -> tuple[Scalar, Vec3]:
    """The parameter s of the point c + s h that is nearest to a box, |s| <= 1, and the vector to it from the box.

    The slope h . (x - clamp(x)) of half the squared distance grows with s and is linear between the six places where
    the line crosses planes of faces. Its root lies between the last of them with a slope of at most 0 and the first
    with one of at least 0. Where it is zero on a whole stretch, the middle is returned.
    """

    def slope(s: Scalar) -> Scalar:
        return dot(h, _off(along(c, s, h), b))

    at_start, at_end = slope(-1.0), slope(1.0)
    low, high, g_low, g_high = -1.0, 1.0, at_start, at_end
    for sides in crossings:
        for s in sides:
            g = slope(s)
            low, g_low = np.maximum(low, select(g, -1.0, s)), np.maximum(g_low, select(g, at_start, g))
            high, g_high = np.minimum(high, select(-g, 1.0, s)), np.minimum(g_high, select(-g, at_end, g))
    rise = g_high - g_low
    s = select(rise, low - g_low * ((high - low) / rise), 0.5 * (low + high))
    s = select(at_start, -1.0, select(-at_end, 1.0, s))
    s = clamp(s, 1.0)
    return s, _off(along(c, s, h), b)


def _segment_inside(
    c: Vec3, h: Vec3, b: Vec3, middle: Scalar, crossings: Sequence[tuple[Scalar, Scalar]]
) -> tuple[Scalar, Scalar, Vec3]:
    """How far a segment that crosses a box is inside it, the parameter of its deepest point, and the normal out of the
    box: the least overlap over the faces and the perpendiculars of the segment and an edge.

    `middle`: the parameter where all points of the segment are equally deep.
    """
    hh = np.maximum(dot(h, h), TINY)
    best, s, n = None, middle, _UP
    for i in range(3):
        side = sign(c[i])
        reach = side * h[i]
        axis: list[Scalar] = [0.0, 0.0, 0.0]
        axis[i] = side
        # The deepest point is an end, or the last point before the segment leaves the box across the other axes, where
        # it is all but parallel to the face.
        others = [crossings[k] for k in range(3) if k != i]
        begins = np.maximum(*(np.minimum(*pair) for pair in others))
        ends = np.minimum(*(np.maximum(*pair) for pair in others))
        deepest = select(reach, begins, select(-reach, ends, middle))
        candidate = b[i] + abs(h[i]) - abs(c[i]), deepest, tuple(axis)
        best, s, n = candidate if best is None else _least(best, s, n, *candidate)
    for i in range(3):
        edge = _OWN[i]
        across = cross(edge, h)
        vv = dot(across, across)
        defined = vv - _PARALLEL * hh
        across = scale(1.0 / np.sqrt(np.maximum(vv, TINY)), across)
        at = dot(across, c)
        out: Vec3 = scale(sign(at), across)
        overlap = sum(abs(x) * edge for x, edge in zip(across, b, strict=True)) - abs(at)
        # The segment against the edge of the box that is outermost along the axis.
        corner = tuple(sign(x) * y for x, y in zip(out, b, strict=True))
        aside = cross(out, edge)
        speed = dot(h, aside)
        place = dot(sub(corner, c), aside) / select(abs(speed) - TINY, speed, 1.0)
        best, s, n = _least(best, s, n, select(defined, overlap, _FAR), clamp(place, 1.0), out)
    return best, s, n


_FAR = 1e30
"""An overlap that is never the least."""


def _least(best: Scalar, s: Scalar, n: Vec3, new: Scalar, s_new: Scalar, n_new: Vec3) -> tuple[Scalar, Scalar, Vec3]:
    """The smaller overlap, with its point and normal; the first of equal ones."""
    smaller = best - new
    return np.minimum(best, new), select(smaller, s_new, s), pick(smaller, n_new, n)


def rod_brick(first: Rod, second: Brick) -> Nearest:
    """Capsule and box."""
    c, h, b = rotate(second.E, sub(first.c, second.c)), rotate(second.E, first.h), second.b
    crossings = _crossings(c, h, b)
    s_out, v = _segment_outside(c, h, b, crossings)
    depth, s_in, n_in = _segment_inside(c, h, b, s_out, crossings)
    vv = dot(v, v)
    length = np.sqrt(vv)
    apart = vv - TINY
    d, s = select(apart, length, -depth), select(apart, s_out, s_in)
    n = rotate_back(second.E, pick(apart, scale(1.0 / length, v), n_in))
    x = along(first.c, s, first.h)
    return Nearest(d - first.r, sub(x, scale(first.r, n)), sub(x, scale(d, n)), n)


def brick_brick(first: Brick, second: Brick) -> Nearest:
    """Box and box."""
    t = rotate(second.E, sub(first.c, second.c))
    axes = [rotate(second.E, first.E[k : k + 3]) for k in (0, 3, 6)]
    depth, n_in, x1_in, x2_in = _boxes_inside(t, axes, first.b, second.b)
    vv, x1, x2 = _boxes_outside(t, axes, first.b, second.b)
    length = np.sqrt(vv)
    apart = np.minimum(-depth, vv - TINY)  # the least overlap is negative for boxes that are apart
    n = pick(apart, scale(1.0 / length, sub(x1, x2)), n_in)
    d = select(apart, length, -depth)
    x1, x2 = pick(apart, x1, x1_in), pick(apart, x2, x2_in)
    p1, p2 = (add(second.c, rotate_back(second.E, x)) for x in (x1, x2))
    return Nearest(d, p1, p2, rotate_back(second.E, n))


def _boxes_outside(t: Vec3, axes: Sequence[Vec3], b1: Vec3, b2: Vec3) -> tuple[Scalar, Vec3, Vec3]:
    """Squared distance and nearest points of two boxes that are apart, in the frame of the second: twelve edges of the
    first to the second box, and eight corners of the second to the first box.

    `t` and `axes`: centre and axes of the first box.
    """
    halves = [scale(b, axis) for b, axis in zip(b1, axes, strict=True)]
    best: tuple[Scalar, Vec3, Vec3] | None = None
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        for sj in (-1.0, 1.0):
            for sk in (-1.0, 1.0):
                c = along(along(t, sj, halves[j]), sk, halves[k])
                s, v = _segment_outside(c, halves[i], b2, _crossings(c, halves[i], b2))
                x1 = along(c, s, halves[i])
                best = _closer(best, dot(v, v), x1, sub(x1, v))
    for corner in _CORNERS:
        x2: Vec3 = tuple(s * b for s, b in zip(corner, b2, strict=True))
        r = sub(x2, t)
        off = _off(tuple(dot(axis, r) for axis in axes), b1)
        v = tuple(sum(off[i] * axes[i][k] for i in range(3)) for k in range(3))
        best = _closer(best, dot(off, off), sub(x2, v), x2)
    assert best is not None
    return best


_CORNERS = [(x, y, z) for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)]


def _closer(best: tuple[Scalar, Vec3, Vec3] | None, vv: Scalar, x1: Vec3, x2: Vec3) -> tuple[Scalar, Vec3, Vec3]:
    """The nearer pair of points; the first of equal ones."""
    if best is None:
        return vv, x1, x2
    closer = best[0] - vv
    return np.minimum(best[0], vv), pick(closer, x1, best[1]), pick(closer, x2, best[2])


def _boxes_inside(t: Vec3, axes: Sequence[Vec3], b1: Vec3, b2: Vec3) -> tuple[Scalar, Vec3, Vec3, Vec3]:
    """The least overlap of two boxes over 15 axes, its normal towards the first box, and the points of both; in the
    frame of the second box. The overlap is negative if and only if the boxes are apart."""
    own = _OWN
    best, n = _FAR, _UP
    for axis in (*own, *axes):
        best, n = _less(best, n, axis, t, axes, b1, b2, 1.0)
    edges: tuple[Scalar, ...] | None = None
    for one in axes:
        for other in own:
            across = cross(other, one)
            vv = dot(across, across)
            across = scale(1.0 / np.sqrt(np.maximum(vv, TINY)), across)
            overlap, n_new = _less(_FAR, _UP, across, t, axes, b1, b2, vv - _PARALLEL)
            new = (overlap, *n_new, *one, *other)
            edges = new if edges is None else pick(edges[0] - overlap, new, edges)
    assert edges is not None
    crossed, n_crossed, along_1, along_2 = edges[0], edges[1:4], edges[4:7], edges[7:10]
    # Faces: the corner of the other box that is deepest. Of the box whose axis n is, the components have the least sum.
    origin: Vec3 = (0.0, 0.0, 0.0)
    of_second = sum(abs(dot(axis, n)) for axis in axes) - sum(map(abs, n))
    m1, m2 = _support(scale(-1.0, n), t, axes, b1, origin), _support(n, origin, own, b2, t)
    depth = np.minimum(best, crossed)
    x1 = pick(of_second, m1, along(m2, -1.0 * depth, n))
    x2 = pick(of_second, along(m1, depth, n), m2)
    # Edges: the nearest points of their lines.
    e1, e2 = _support(scale(-1.0, n_crossed), t, axes, b1, t), _support(n_crossed, origin, own, b2, origin)
    r, b = sub(e1, e2), dot(along_1, along_2)
    c, f = dot(along_1, r), dot(along_2, r)
    y1 = along(e1, (b * f - c) / np.maximum(1.0 - b * b, _PARALLEL), along_1)
    y2 = along(y1, depth, n_crossed)
    edge = best - crossed
    picked = pick(edge, (*n_crossed, *y1, *y2), (*n, *x1, *x2))
    n, x1 = picked[:3], picked[3:6]
    for _ in range(_PROJECTIONS):
        x1 = _nearest_in(x1, t, axes, b1)
        x1 = along(_nearest_in(along(x1, depth, n), origin, own, b2), -1.0 * depth, n)
    return depth, n, x1, along(x1, depth, n)


_PROJECTIONS = 3
"""Where faces or edges are all but parallel, the points above may be beside the other box. Projections onto one box
after the other then lead to points of both."""


def _nearest_in(x: Vec3, c: Vec3, axes: Sequence[Vec3], b: Vec3) -> Vec3:
    """The point of a box that is nearest to x."""
    r, nearest_point = sub(x, c), c
    for axis, half in zip(axes, b, strict=True):
        nearest_point = along(nearest_point, clamp(dot(axis, r), half), axis)
    return nearest_point


def _less(
    best: Scalar, n: Vec3, axis: Vec3, t: Vec3, axes: Sequence[Vec3], b1: Vec3, b2: Vec3, defined: Scalar
) -> tuple[Scalar, Vec3]:
    """The smaller of an overlap and that along another unit vector, if that is defined, and its normal."""
    at = dot(axis, t)
    reach = sum(b * abs(dot(axis, other)) for b, other in zip(b1, axes, strict=True))
    reach = reach + sum(b * abs(x) for b, x in zip(b2, axis, strict=True))
    overlap = reach - abs(at)
    if not isinstance(defined, float):
        overlap = select(defined, overlap, _FAR)
    return np.minimum(best, overlap), pick(best - overlap, scale(sign(at), axis), n)


def _support(n: Vec3, c: Vec3, axes: Sequence[Vec3], b: Vec3, near: Vec3) -> Vec3:
    """The point of a box that is farthest along n; of an edge or face perpendicular to n, the point nearest to
    `near`."""
    x, towards = c, sub(near, c)
    for axis, half in zip(axes, b, strict=True):
        reach = dot(axis, n)
        level = abs(reach) - _LEVEL
        x = along(x, select(level, sign(reach) * half, clamp(dot(axis, towards), half)), axis)
    return x


_LEVEL = 1e-6
"""Cosine of the angle to n up to which an axis counts as perpendicular to it."""


def flat_point(x: Vec3, r: Scalar, second: Flat) -> Nearest:
    """A sphere about x and a plane."""
    d = dot(second.n, x) - second.o
    return Nearest(d - r, sub(x, scale(r, second.n)), sub(x, scale(d, second.n)), second.n)


def ball_flat(first: Ball, second: Flat) -> Nearest:
    """Sphere and plane."""
    return flat_point(first.c, first.r, second)


def rod_flat(first: Rod, second: Flat) -> Nearest:
    """Capsule, or cylinder, and plane."""
    reach = dot(second.n, first.h)
    x = along(first.c, select(reach, -1.0, select(-reach, 1.0, 0.0)), first.h)
    if not first.flat:
        return flat_point(x, first.r, second)
    # The point of the rim that is lowest; none is where the axis is along the normal.
    v = second.n
    for _ in range(2):  # once more, as the first difference is all rounding where the axis is along the normal
        v = sub(v, scale(dot(v, first.h) / divisor(first.hh), first.h))
    vv = dot(v, v)
    rim = pick(vv - CROSSED, scale(1.0 / np.sqrt(vv), v), (0.0, 0.0, 0.0))
    return flat_point(sub(x, scale(first.r, rim)), 0.0, second)


def brick_flat(first: Brick, second: Flat) -> Nearest:
    """Box and plane."""
    axes = [first.E[k : k + 3] for k in (0, 3, 6)]
    x = first.c
    for axis, half in zip(axes, first.b, strict=True):
        x = along(x, -half * sign(dot(second.n, axis)), axis)
    return flat_point(x, 0.0, second)


FORMULAS: dict[tuple[type[Solid], type[Solid]], Callable[..., Nearest]] = {
    (Ball, Ball): ball_ball,
    (Ball, Rod): ball_rod,
    (Rod, Rod): rod_rod,
    (Ball, Brick): ball_brick,
    (Rod, Brick): rod_brick,
    (Brick, Brick): brick_brick,
    (Ball, Flat): ball_flat,
    (Rod, Flat): rod_flat,
    (Brick, Flat): brick_flat,
}
"""The formula of each pair of kinds; other pairs are swapped."""


def nearest(first: Solid, second: Solid) -> Nearest:
    """Distance, witness points and normal of two shapes."""
    formula = FORMULAS.get((type(first), type(second)))
    if formula is not None:
        return formula(first, second)
    return FORMULAS[type(second), type(first)](second, first).swapped()
