"""The shapes of a robot in one configuration: where they are, what is nearest, and how distances change with q.

Functions of scalars of any kind; see `robodyn.algorithms.distances.formulas`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from robodyn.algorithms.distances.formulas import (
    TINY,
    Ball,
    Brick,
    Flat,
    Rod,
    Solid,
    nearest,
)
from robodyn.algorithms.kinematics import forward_kinematics, jacobian
from robodyn.algorithms.relative_motion import OfLink, between
from robodyn.core.description import Geometry
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.core.spatial import Scalar, Vec3, add, cross, dot, rotate, select, sub

_T = TypeVar("_T")
Place: TypeAlias = tuple[int, Solid]
"""The index of a link, -1 for the world, and a shape in world coordinates."""
_LEAST = -1e30
"""A number below all distances and their derivatives."""
_EXACT = 1e-13
"""Entries of rotations within this of 0, 1 or -1 are these, as in the model's own constants."""


class Scene:
    """Shapes of a robot in world coordinates.

    Args:
        model: the robot.
        shapes: its shapes, as geometries.
        at: evaluates algorithms in the configuration.
        q: the coordinates.
        moved: False if only the poses of shapes relative to each other matter. A floating base is then at the world's
            origin, which saves operations, and digits far from it.
    """

    def __init__(self, model: Model, shapes: Sequence[Geometry], at: OfLink, q: Sequence[Scalar], moved: bool) -> None:
        self._model, self._shapes, self._at, self.q = model, shapes, at, q
        self._moved: dict[str, Any] = {} if moved else self._base_at_origin()
        self._solids: dict[int, Place] = {}
        self._poses: dict[int, Sequence[Scalar]] = {}
        self._columns: dict[int, Sequence[Scalar]] = {}
        self._between: dict[tuple[int, int], list[int]] = {}

    def _base_at_origin(self) -> dict[str, Any]:
        """The coordinates with a floating base at the origin, if all shapes are on its tree."""
        model, root = self._model, floating_root(self._model, self._shapes)
        if root < 0:
            return {}
        start, q = int(model.q_source[model.q_start[root]]), list(self.q)
        q[start : start + 7] = KINDS[model.joint_kind[root]].neutral
        return {"q": q}

    def place(self, k: int) -> Place:
        """Shape k in world coordinates, and its link."""
        if k not in self._solids:
            shape = self._shapes[k]
            link = self._model.link_index(shape.link)
            if link not in self._poses:
                self._poses[link] = self._at(forward_kinematics(True), link, **self._moved)["T"]
            turned = [exact(x) for x in shape.pose.rotation]
            self._solids[k] = link, solid(shape.kind, shape.pose.xyz, turned, shape.size, self._poses[link])
        return self._solids[k]

    def _dofs(self, one: int, other: int) -> list[int]:
        """Degrees of freedom that move one link relative to another (-1: the world)."""
        key = (one, other) if one < other else (other, one)
        if key not in self._between:
            self._between[key] = [k for k, moves in enumerate(between(self._model, *key)) if moves]
        return self._between[key]

    def gradient(self, one: int, other: int, n: Vec3, x: Vec3) -> dict[int, Scalar]:
        """The derivative of a distance by q on the tangent space, by degree of freedom; others are zero.

        Column k of a link's Jacobian is the twist (w, v) of degree of freedom k: the witness point p of the first link
        moves with v + w x p, so the distance grows with n . v + (p x n) . w, and likewise for the second, whose witness
        point has the same moment about the origin, as both are on the line along n.

        Args:
            one, other: the links; -1 for the world.
            n: the normal from the other to the first.
            x: a point on the line through the witness points.
        """
        wrench = (*cross(x, n), *n)
        nv, columns = self._model.nv, [self._column(link) for link in (one, other)]
        row: dict[int, Scalar] = {}
        for k in self._dofs(one, other):
            twist = [columns[0][nv * i + k] - columns[1][nv * i + k] for i in range(6)]
            row[k] = sum((a * b for a, b in zip(twist, wrench, strict=True)), start=0.0)
        return row

    def _column(self, link: int) -> Sequence[Scalar]:
        """The Jacobian of a link in world coordinates, row by row."""
        if link < 0:
            return [0.0] * (6 * self._model.nv)
        if link not in self._columns:
            self._columns[link] = self._at(jacobian("world"), link, **self._moved)["J"]
        return self._columns[link]

    def poisoned(self, values: Sequence[Scalar]) -> list[Scalar]:
        """Values, but NaN where any coordinate is NaN, also one that they do not depend on."""
        if not len(self.q):
            return list(values)
        spoilt = np.minimum(sum(map(abs, self.q)), _LEAST)
        return [np.maximum(each, spoilt) for each in values]


def floating_root(model: Model, shapes: Sequence[Geometry]) -> int:
    """The floating body of whose tree all shapes are; -1 if there is none."""
    bodies = {int(model.link_body[model.link_index(each.link)]) for each in shapes}
    roots = {int(model.tree.path(body)[0]) if body >= 0 else -1 for body in bodies}
    root = roots.pop() if len(roots) == 1 else -1
    return root if root >= 0 and KINDS[model.joint_kind[root]].name == "floating" else -1


def solid(
    kind: str, xyz: Sequence[Scalar], rotation: Sequence[Scalar], size: Sequence[Scalar], T: Sequence[Scalar]
) -> Solid:
    """A shape on a link in world coordinates.

    Args:
        kind, xyz, rotation, size: of a geometry (`robodyn.core.description.Geometry`), which may be arrays over shapes.
        T: the pose of the link, 16 scalars.
    """
    R = (*T[0:3], *T[4:7], *T[8:11])
    c = add((T[3], T[7], T[11]), rotate(R, (xyz[0], xyz[1], xyz[2])))
    columns = [tuple(rotation[k::3]) for k in range(3)]
    if kind == "sphere":
        return Ball(c, size[0])
    if kind == "box":
        x, y, z = (rotate(R, column) for column in columns)
        return Brick(c, (*x, *y, *z), tuple(0.5 * edge for edge in size))
    if kind == "plane":
        z = rotate(R, columns[2])
        return Flat(z, dot(z, c))
    radius, half = size[0], 0.5 * size[1]
    if isinstance(half, float) and half == 0.0:
        return Ball(c, radius)
    h = rotate(R, tuple(half * x for x in columns[2]))
    return Rod(c, h, radius, half * half, kind == "cylinder")


def exact(x: float) -> float:
    """An entry of a rotation without rounding next to 0, 1 and -1."""
    whole = float(round(x))
    return whole if abs(x - whole) <= _EXACT else x


def reduced(values: Sequence[_T], join: Callable[[_T, _T], _T]) -> _T:
    """Values joined in pairs, and these again: the first of equal ones stays first."""
    while len(values) > 1:
        pairs = [values[k : k + 2] for k in range(0, len(values), 2)]
        values = [join(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return values[0]


def _radii(one: Any, other: Any) -> Any:
    """A key that is equal for pairs of spheres with equal sums of radii; None for other shapes."""
    if type(one) is not Ball or type(other) is not Ball:
        return None
    known = isinstance(one.r, float) and isinstance(other.r, float)
    return one.r + other.r if known else tuple(r if isinstance(r, float) else id(r) for r in (one.r, other.r))


def least(pairs: Sequence[tuple[Place, Place]]) -> Scalar:
    """The least distance of pairs of shapes. NaN if one of them is."""
    squares: dict[Any, tuple[Scalar, list[Scalar]]] = {}
    others = []
    one: Any
    other: Any
    for (_, one), (_, other) in pairs:
        radii = _radii(one, other)
        if radii is None:
            others.append(nearest(one, other).d)
        else:  # a root for each sum of radii is enough
            v = sub(one.c, other.c)
            squares.setdefault(radii, (one.r + other.r, []))[1].append(dot(v, v))
    others += [np.sqrt(reduced(same, np.minimum)) - total for total, same in squares.values()]
    return reduced(others, np.minimum)


def least_with_gradient(scene: Scene, pairs: Sequence[tuple[Place, Place]], nv: int) -> tuple[Scalar, list[Scalar]]:
    """The least distance of pairs of shapes, and its gradient; of the first pair where several are least.

    Of pairs between the same links, the nearest is found before its gradient is computed.
    """
    groups: dict[tuple[int, int], list[tuple[Place, Place]]] = {}
    for pair in pairs:
        groups.setdefault((pair[0][0], pair[1][0]), []).append(pair)
    candidates = []
    for (one, other), members in groups.items():
        d, n, x = _first_nearest([(first, second) for (_, first), (_, second) in members])
        candidates.append((d, scene.gradient(one, other, n, x)))

    def nearer(a: tuple[Scalar, dict[int, Scalar]], b: tuple[Scalar, dict[int, Scalar]]) -> Any:
        (d, row), (d_new, row_new) = a, b
        better = d - d_new
        keys = {**row, **row_new}
        return np.minimum(d, d_new), {k: select(better, row_new.get(k, 0.0), row.get(k, 0.0)) for k in keys}

    d, row = reduced(candidates, nearer)
    return d, [row.get(k, 0.0) for k in range(nv)]


def _first_nearest(pairs: Sequence[tuple[Any, Any]]) -> tuple[Scalar, Vec3, Vec3]:
    """Distance of the nearest pair, its normal, and a point on the line through its witness points."""

    def closer(a: tuple[Scalar, ...], b: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        better = a[0] - b[0]
        picked = [select(better, y, x) for x, y in zip(a[1:], b[1:], strict=True)]
        return np.minimum(a[0], b[0]), *picked

    balls: dict[Any, dict[int, list[tuple[Any, Any]]]] = {}
    found = []
    for one, other in pairs:
        radii = _radii(one, other)
        if radii is not None:
            balls.setdefault(radii, {}).setdefault(id(one), []).append((one, other))
        else:
            near = nearest(one, other)
            found.append((near.d, *near.n, *near.p1))
    for by_first in balls.values():
        rows = []
        for same in by_first.values():  # the nearest to each first sphere, so that its centre is selected only once
            one, other = same[0]
            offsets = [sub(one.c, other.c) for one, other in same]
            seconds = [(dot(v, v), *other.c) for v, (_, other) in zip(offsets, same, strict=True)]
            rows.append((*reduced(seconds, closer), *one.c))
        vv, *centres = reduced(rows, closer)
        length, v = np.sqrt(vv), sub(centres[3:], centres[:3])
        n = [select(vv - TINY, x / length, fixed) for x, fixed in zip(v, (0.0, 0.0, 1.0), strict=True)]
        found.append((length - (one.r + other.r), *n, *centres[3:]))
    d, *rest = reduced(found, closer)
    return d, tuple(rest[:3]), tuple(rest[3:])


def obstacles_of(given: Mapping[str, Sequence[Scalar]]) -> list[Solid]:
    """Obstacles in world coordinates from scalars of inputs: spheres (k, 4), capsules (k, 7), and boxes (k, 15): the
    first three rows of their poses and their edges."""
    solids: list[Solid] = []
    for x in _rows(given.get("spheres", ()), 4):
        solids.append(Ball(x[:3], x[3]))
    for x in _rows(given.get("capsules", ()), 7):
        h = tuple(0.5 * (b - a) for a, b in zip(x[:3], x[3:6], strict=True))
        c = tuple(0.5 * (a + b) for a, b in zip(x[:3], x[3:6], strict=True))
        solids.append(Rod(c, h, x[6], dot(h, h)))
    for x in _rows(given.get("boxes", ()), 15):
        E = (x[0], x[4], x[8], x[1], x[5], x[9], x[2], x[6], x[10])
        solids.append(Brick((x[3], x[7], x[11]), E, tuple(0.5 * edge for edge in x[12:])))
    return solids


def _rows(scalars: Sequence[Scalar], size: int) -> list[Any]:
    return [tuple(scalars[k : k + size]) for k in range(0, len(scalars), size)]
