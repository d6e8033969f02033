"""Shapes on links, for distances: spheres, capsules, boxes, cylinders, planes.

A model stores shapes as geometries for collisions (`robodyn.core.description.Geometry`), as files have them. The
classes here describe the same shapes by the numbers that users think in.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, TypeAlias

import numpy as np

from robodyn.core.description import Geometry, Pose, Rotation, Vector3
from robodyn.core.poses import name_of, transform_of
from robodyn.core.spatial import IDENTITY, Mat3, Vec3, add, cross, dot, scale, sub, transpose
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, finite_number, real_array, require_finite
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass

_KINDS = ("sphere", "capsule", "box", "cylinder", "plane")
"""Kinds of geometries that are shapes."""


@dataclass(frozen=True, init=False, eq=False)
class Shape:
    """A convex shape that is fixed to a link, or, for contacts, to the world. Attributes are as they were given."""

    kind: ClassVar[str]
    link: str | None
    name: str | None

    def _set(self, link: Any, name: Any, **values: Any) -> None:
        owner = type(self).__name__
        checked: dict[str, Any] = {"link": None if link is None else name_of(f"{owner}.link", link)}
        checked["name"] = None if name is None else name_of(f"{owner}.name", name)
        for key, value in {**checked, **values}.items():
            object.__setattr__(self, key, value)

    @property
    def geometry(self) -> Geometry:
        """The shape as a geometry for collisions."""
        (x, y, z), R, size = self._placed()
        pose = Pose((x, y, z), R)
        return Geometry(self.link or "", "collision", self.kind, pose, size, name=self.name or "")

    def _placed(self) -> tuple[Vec3, Rotation, tuple[float, ...]]:
        """Position and rotation in the link's frame, and the size of the geometry."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.geometry == other.geometry

    def __hash__(self) -> int:
        return hash(self.geometry)


@dataclass(frozen=True, init=False, eq=False)
class Sphere(Shape):
    """A sphere.

    Args:
        link: name of the link, or frame, that carries it; None for the world, in contacts (`robodyn.Contact`) only.
        at: its centre (3,) in the link's frame, m.
        radius: m.
        name: for pairs and messages.

    Raises:
        ArgumentError: a radius that is not above 0, or other values that are no such numbers.
        NumericalError: NaN or infinity.
    """

    kind: ClassVar[str] = "sphere"
    at: Vector3
    radius: float

    def __init__(
        self, link: str | None, at: Any = (0.0, 0.0, 0.0), radius: float = 0.0, name: str | None = None
    ) -> None:
        self._set(link, name, at=_point("Sphere.at", at), radius=_length("Sphere.radius", radius))

    def _placed(self) -> tuple[Vec3, Rotation, tuple[float, ...]]:
        return self.at, _rotation(IDENTITY.E), (self.radius,)


@dataclass(frozen=True, init=False, eq=False)
class Capsule(Shape):
    """All points within a radius of a segment.

    Args:
        link, name: as of `Sphere`.
        start, end: ends (3,) of the segment in the link's frame, m. They may coincide.
        radius: m.

    Raises:
        ArgumentError, NumericalError: as of `Sphere`.
    """

    kind: ClassVar[str] = "capsule"
    start: Vector3
    end: Vector3
    radius: float

    def __init__(
        self,
        link: str | None,
        start: Any = (0.0, 0.0, 0.0),
        end: Any = (0.0, 0.0, 0.0),
        radius: float = 0.0,
        name: str | None = None,
    ) -> None:
        ends = {"start": _point("Capsule.start", start), "end": _point("Capsule.end", end)}
        self._set(link, name, **ends, radius=_length("Capsule.radius", radius))

    def _placed(self) -> tuple[Vec3, Rotation, tuple[float, ...]]:
        axis = sub(self.end, self.start)
        length = math.hypot(*axis)
        middle: Vec3 = scale(0.5, add(self.start, self.end))
        R = _rotation(IDENTITY.E) if length == 0.0 else _with_z(scale(1.0 / length, axis))
        return middle, R, (self.radius, length)


@dataclass(frozen=True, init=False, eq=False)
class Box(Shape):
    """A box.

    Args:
        link, name: as of `Sphere`.
        pose: of its centre and axes in the link's frame, as in `Model.with_frames`: None, three numbers (m), a
            homogeneous matrix (4, 4), or a `robodyn.description.Pose`.
        size: its edges (3,) along its axes, m.

    Raises:
        ArgumentError: edges that are not above 0, a matrix that is no pose, or other values that are no such numbers.
        NumericalError: NaN or infinity.
    """

    kind: ClassVar[str] = "box"
    pose: Any
    size: Vector3

    def __init__(
        self, link: str | None, pose: Any = None, size: Any = (0.0, 0.0, 0.0), name: str | None = None
    ) -> None:
        edges = _point("Box.size", size)
        for edge in edges:
            _length("Box.size", edge)
        self._set(link, name, pose=_pose("Box.pose", pose), size=edges)

    def _placed(self) -> tuple[Vec3, Rotation, tuple[float, ...]]:
        return *_frame(self.pose), self.size


@dataclass(frozen=True, init=False, eq=False)
class Cylinder(Shape):
    """A cylinder with flat ends. Distances are exact to planes; to all other shapes they are those of the capsule
    around it, which are shorter.

    Args:
        link, name: as of `Sphere`.
        pose: of its centre in the link's frame, as of `Box`; its axis is z.
        radius, length: m.

    Raises:
        ArgumentError, NumericalError: as of `Box`.
    """

    kind: ClassVar[str] = "cylinder"
    pose: Any
    radius: float
    length: float

    def __init__(
        self, link: str | None, pose: Any = None, radius: float = 0.0, length: float = 0.0, name: str | None = None
    ) -> None:
        sizes = {"radius": _length("Cylinder.radius", radius), "length": _length("Cylinder.length", length)}
        self._set(link, name, pose=_pose("Cylinder.pose", pose), **sizes)

    def _placed(self) -> tuple[Vec3, Rotation, tuple[float, ...]]:
        return *_frame(self.pose), (self.radius, self.length)


@dataclass(frozen=True, init=False, eq=False)
class Plane(Shape):
    """The half-space of points x with normal . x <= offset, such as a floor.

    Args:
        link, name: as of `Sphere`.
        normal: (3,) in the link's frame, out of the half-space; a unit vector to 1e-9.
        offset: distance of the plane from the link's origin along the normal, m.

    Raises:
        ArgumentError: a normal that is no unit vector, or other values that are no such numbers.
        NumericalError: NaN or infinity.
    """

    kind: ClassVar[str] = "plane"
    normal: Vector3
    offset: float

    def __init__(
        self, link: str | None = None, normal: Any = (0.0, 0.0, 1.0), offset: float = 0.0, name: str | None = None
    ) -> None:
        n = _point("Plane.normal", normal)
        if abs(math.hypot(*n) - 1.0) > 1e-9:
            raise ArgumentError(f"Plane.normal: got {brief(normal)} of length {math.hypot(*n):g}; wanted length 1")
        self._set(link, name, normal=n, offset=finite_number("Plane.offset", offset))

    def _placed(self) -> tuple[Vec3, Rotation, tuple[float, ...]]:
        return scale(self.offset, self.normal), _with_z(self.normal), (0.0, 0.0)


@dataclass(frozen=True, init=False, eq=False)
class HeightField(Shape):
    """A terrain over a rectangle, for contacts (`robodyn.Contact`) with spheres and capsules.

    Each cell of the grid is two triangles, divided from the vertex at the next column to that at the next row. Beside
    the rectangle there is nothing. There is no formula for `Dynamics.distances`, so `Model.with_shapes` refuses it.

    Args:
        link, name: as of `Sphere`.
        heights: (rows, columns) of z at equal spacing, rows along y and columns along x, m.
        size: edges (2,) of the rectangle along x and y, m.
        pose: of its centre in the link's frame, as of `Box`.

    Raises:
        ArgumentError, NumericalError: as of `Box`.
    """

    kind: ClassVar[str] = "height field"
    heights: Array
    size: tuple[float, float]
    pose: Any

    def __init__(
        self, link: str | None, heights: Any = None, size: Any = (0.0, 0.0), pose: Any = None, name: str | None = None
    ) -> None:
        array = np.array(real_array("HeightField.heights", heights, (), np.float64))
        if array.ndim != 2 or min(array.shape) < 2:
            raise ArgumentError(f"HeightField.heights: got shape {array.shape}; wanted (rows, columns), 2 or more each")
        require_finite("HeightField.heights", array, 2)
        array.setflags(write=False)
        edges = tuple(real_array("HeightField.size", size, (2,), np.float64).tolist())
        for edge in edges:
            _length("HeightField.size", edge)
        self._set(link, name, heights=array, size=edges, pose=_pose("HeightField.pose", pose))

    def _placed(self) -> tuple[Vec3, Rotation, tuple[float, ...]]:
        rows, columns = self.heights.shape
        return *_frame(self.pose), (*self.size, float(rows), float(columns), *self.heights.ravel().tolist())


KINDS: tuple[type[Shape], ...] = (Sphere, Capsule, Box, Cylinder, Plane)
"""Shapes that a model can have."""
Pairs: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of indices of shapes."""


def is_shape(geometry: Geometry) -> bool:
    """True if a geometry is a shape of a model: one for collisions, of a kind with a formula."""
    return geometry.role != "visual" and geometry.kind in _KINDS


def shape_of(geometry: Geometry) -> Shape:
    """The shape that a geometry describes, for which `is_shape` holds."""
    link, name, size, pose = geometry.link or None, geometry.name or None, geometry.size, geometry.pose
    if geometry.kind == "sphere":
        return Sphere(link, pose.xyz, size[0], name)
    z = (pose.rotation[2], pose.rotation[5], pose.rotation[8])
    if geometry.kind == "capsule":
        reach = scale(0.5 * size[1], z)
        start, end = (tuple(x + s * y for x, y in zip(pose.xyz, reach, strict=True)) for s in (-1.0, 1.0))
        return Capsule(link, start, end, size[0], name)
    if geometry.kind == "plane":
        n = scale(1.0 / math.hypot(*z), z)
        return Plane(link, n, dot(n, pose.xyz), name)
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = _orthonormal(np.reshape(pose.rotation, (3, 3))), pose.xyz
    return Box(link, matrix, size, name) if geometry.kind == "box" else Cylinder(link, matrix, size[0], size[1], name)


def _orthonormal(R: Array) -> Array:
    """A rotation; the nearest one for a matrix of a file with few digits."""
    if np.abs(R @ R.T - np.eye(3)).max() <= 1e-12:
        return R
    u, _, v = np.linalg.svd(R)
    nearest: Array = u @ v
    return nearest


def _point(name: str, value: Any) -> Vector3:
    array = real_array(name, value, (3,), np.float64)
    if array.ndim != 1:
        raise ArgumentError(f"{name}: got shape {array.shape}; wanted three numbers")
    require_finite(name, array, 1)
    x, y, z = array.tolist()
    return x, y, z


def _length(name: str, value: Any) -> float:
    number = finite_number(name, value)
    if not number > 0.0:
        raise ArgumentError(f"{name}: got {number:g}; wanted a length above 0, in m")
    return number


def _pose(name: str, value: Any) -> Any:
    """A checked pose: None, a tuple of three numbers, a matrix that cannot be written to, or a `Pose`."""
    transform_of(name, value)
    if value is None or strict_types.is_a(value, Pose):
        return value
    array = np.array(value, np.float64)
    array.setflags(write=False)
    return tuple(array.tolist()) if array.ndim == 1 else array


def _frame(pose: Any) -> tuple[Vec3, Rotation]:
    X = transform_of("pose", pose)
    return X.r, _rotation(transpose(X.E))


def _rotation(R: Mat3) -> Rotation:
    a, b, c, d, e, f, g, h, i = map(float, R)
    return a, b, c, d, e, f, g, h, i


def _with_z(z: Vec3) -> Rotation:
    """A rotation whose third column is the unit vector z."""
    if z == (0.0, 0.0, 1.0):
        return _rotation(IDENTITY.E)
    least = min(range(3), key=lambda k: abs(z[k]))
    x = cross(z, (float(least == 0), float(least == 1), float(least == 2)))
    x = scale(1.0 / math.hypot(*x), x)
    return _rotation(transpose((*x, *cross(z, x), *z)))
