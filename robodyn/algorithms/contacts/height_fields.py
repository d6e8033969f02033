"""The distance of points and segments to a height field, by closed forms on its triangles.

A height field is the graph of a piecewise linear function: each cell of its grid is two triangles, divided from the
vertex at the next column to that at the next row. Only the cells around a point matter: their heights are picked by
comparisons, so that a program has a few operations for each vertex of the field. The formulas are exact where the
surface is within the reach of the field from the point.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from robodyn.algorithms.distances.formulas import TINY, clamp, divisor, length_of, pick
from robodyn.core.contacts.kinds import heights_around
from robodyn.core.spatial import Mat3, Scalar, Vec3, dot, rotate, rotate_back, scale, select, sub

_FAR = 1e20
"""A squared distance that is never the least."""
_UP: Vec3 = (0.0, 0.0, 1.0)


class Field(NamedTuple):
    """A height field: centre, E with its axes as rows, edges along x and y, heights by row (y) and column (x), and the
    margin of contacts."""

    c: Vec3
    E: Mat3
    size: tuple[float, float]
    heights: tuple[tuple[float, ...], ...]
    margin: float


class _Patch(NamedTuple):
    """Cells around a point: vertices by column and row, relative to the point, and the edges of a cell."""

    vertices: list[list[Vec3]]
    dx: float
    dy: float

    def cells(self) -> Iterator[tuple[Vec3, Vec3, Vec3, Vec3]]:
        """Vertices of each cell: its first one, that of the next column, of the next row, and the opposite one."""
        V = self.vertices
        for a in range(len(V) - 1):
            for b in range(len(V[0]) - 1):
                yield V[a][b], V[a + 1][b], V[a][b + 1], V[a + 1][b + 1]

    def edges(self) -> Iterator[tuple[Vec3, Vec3]]:
        """Ends of all edges."""
        V = self.vertices
        for a, column in enumerate(V):
            for b, vertex in enumerate(column):
                if a + 1 < len(V):
                    yield vertex, V[a + 1][b]
                    if b:
                        yield vertex, V[a + 1][b - 1]
                if b + 1 < len(column):
                    yield vertex, column[b + 1]


def point_to_field(field: Field, x: Vec3, r: float) -> tuple[Scalar, Vec3]:
    """Signed distance of a point, negative below the field, and the normal of the field there. r: the reach besides the
    margin."""
    patch = _patch(field, rotate(field.E, sub(x, field.c)), r + field.margin)
    best: tuple[Scalar, ...] = (_FAR, 0.0, 0.0, 1.0)
    above: tuple[Scalar, ...] = (1.0, 0.0, 0.0)  # beside the field everything is above it
    for cell in patch.cells():
        lower, upper = (
            _triangle(cell[0], cell[1], cell[2], patch, 1.0),
            _triangle(cell[3], cell[2], cell[1], patch, -1.0),
        )
        for foot in (lower, upper):
            best = _closer(best, foot.vv, foot.v)
        ahead, aside = -cell[0][0] / patch.dx, -cell[0][1] / patch.dy
        outside = np.maximum(np.maximum(-ahead, ahead - 1.0), np.maximum(-aside, aside - 1.0))
        here = pick(ahead + aside - 1.0, (upper.over, *upper.slope), (lower.over, *lower.slope))
        above = pick(outside, above, here)
    for one, other in patch.edges():
        e = sub(other, one)
        t = np.minimum(np.maximum(-dot(one, e) / dot(e, e), 0.0), 1.0)
        v: Vec3 = tuple([-(y + t * z) for y, z in zip(one, e, strict=True)])
        best = _closer(best, dot(v, v), v)
    vv, v = best[0], best[1:]
    sign = select(above[0], 1.0, -1.0)
    flat = (-above[1], -above[2], 1.0)
    flat = scale(1.0 / np.sqrt(dot(flat, flat)), flat)
    n = pick(vv - TINY, scale(sign / np.sqrt(divisor(vv)), v), flat)
    return sign * length_of(vv), rotate_back(field.E, n)


def segment_to_field(field: Field, c: Vec3, h: Vec3, half: float, r: float) -> tuple[Scalar, Scalar, Vec3]:
    """Distance of the inside of a segment to edges below it, the parameter of its nearest point, from -1 to 1, and the
    normal. The distance is huge where there is none.

    Args:
        c, h, half: centre of the segment, half of it, and the length of that.
        r: reach beyond the segment, besides the margin.
    """
    p, h = rotate(field.E, sub(c, field.c)), rotate(field.E, h)
    best: tuple[Scalar, ...] = (_FAR, 0.0, 0.0, 1.0, 0.0)
    hh = half * half
    for one, other in _patch(field, p, half + r + field.margin).edges():
        e = sub(other, one)
        ee, b, f, g = dot(e, e), dot(h, e), -dot(h, one), -dot(e, one)
        s = clamp((b * g - f * ee) / divisor(hh * ee - b * b), 1.0)
        t = np.minimum(np.maximum((b * s + g) / ee, 0.0), 1.0)
        s = clamp((b * t - f) / hh, 1.0)
        v = tuple([s * y - x - t * z for x, y, z in zip(one, h, e, strict=True)])
        inside = np.minimum(1.0 - abs(s), v[2])
        best = _closer(best, select(inside, dot(v, v), _FAR), (*v, s))
    n = pick(0.5 * _FAR - best[0], scale(1.0 / np.sqrt(divisor(best[0])), best[1:4]), _UP)
    return np.sqrt(best[0]), best[4], rotate_back(field.E, n)


class _Foot(NamedTuple):
    """The foot of the perpendicular on a triangle: squared distance, huge where the foot is outside; the vector from
    the foot; the slopes along x and y; how far the point is above the plane along z."""

    vv: Scalar
    v: Vec3
    slope: tuple[Scalar, Scalar]
    over: Scalar


def _triangle(corner: Vec3, next_column: Vec3, next_row: Vec3, patch: _Patch, way: float) -> _Foot:
    """A triangle with a right angle at `corner` in the plane of x and y, from which its legs go forwards (way 1) or
    back (-1)."""
    p, q = (next_column[2] - corner[2]) * (way / patch.dx), (next_row[2] - corner[2]) * (way / patch.dy)
    over = p * corner[0] + q * corner[1] - corner[2]
    f = over / (p * p + q * q + 1.0)
    v: Vec3 = (-p * f, -q * f, f)
    ahead, aside = (-(v[0] + corner[0])) * (way / patch.dx), (-(v[1] + corner[1])) * (way / patch.dy)
    inside = np.minimum(np.minimum(ahead, aside), 1.0 - ahead - aside)
    return _Foot(select(inside, over * f, _FAR), v, (p, q), over)


def _closer(best: tuple[Scalar, ...], vv: Scalar, rest: Sequence[Scalar]) -> tuple[Scalar, ...]:
    closer = best[0] - vv
    return np.minimum(best[0], vv), *pick(closer, rest, best[1:])


def _patch(field: Field, p: Vec3, reach: float) -> _Patch:
    """The cells within a horizontal distance of a point p in the field's frame."""
    heights = field.heights
    counts = len(heights[0]), len(heights)
    steps = [edge / (count - 1) for edge, count in zip(field.size, counts, strict=True)]
    windows = [
        _window(x / step + 0.5 * (count - 1), count, heights_around(count, edge, reach))
        for x, step, count, edge in zip(p[:2], steps, counts, field.size, strict=True)
    ]
    (start_x, columns), (start_y, rows) = windows
    picked: list[list[Any]] = [[columns.picked(row, a) for row in heights] for a in range(columns.size)]
    z = [[rows.picked(column, b) - p[2] for b in range(rows.size)] for column in picked]
    (dx, dy), (x0, y0) = steps, (-0.5 * edge for edge in field.size)
    vertices = [
        [((start_x + a) * dx + x0 - p[0], (start_y + b) * dy + y0 - p[1], z[a][b]) for b in range(rows.size)]
        for a in range(columns.size)
    ]
    return _Patch(vertices, dx, dy)


class _Window(NamedTuple):
    """Adjacent vertices along an axis: their number, and for each first vertex from 1 on a number above 0 where the
    window begins there or later."""

    size: int
    later: list[Scalar]

    def picked(self, values: Sequence[Any], k: int) -> Any:
        """Of values along the axis that of vertex k of the window."""
        found = values[k]
        for first, later in enumerate(self.later, 1):
            found = select(later, values[first + k], found)
        return found


def _window(u: Scalar, count: int, size: int) -> tuple[Scalar, _Window]:
    """First vertex of the window around the coordinate u of a point in cells, and the window."""
    window = _Window(size, [u - float(first + (size - 2) // 2) for first in range(1, count - size + 1)])
    return window.picked([float(k) for k in range(count)], 0), window
