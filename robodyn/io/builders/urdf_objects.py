"""Reads robot objects of urdfpy, urchin and yourdfpy into a RobotDescription, without importing these libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from robodyn.core.description import (
    GEOMETRY_SIZES,
    JOINT_TYPES,
    TYPES_WITHOUT_AXIS,
    Geometry,
    Inertial,
    Joint,
    Link,
    Mimic,
    Pose,
    RobotDescription,
    Rotation,
    Vector3,
)
from robodyn.core.findings import Notes
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError, LoadError
from robodyn.internals.messages import brief, quoted
from robodyn.io.builders.check_joints import limits_of
from robodyn.io.builders.checks import unknown_joint_type
from robodyn.io.builders.foreign import foreign
from robodyn.io.builders.formats import reads_object
from robodyn.io.builders.urdf_geometries import LARGEST, SIZES
from robodyn.io.builders.values import bad_number, color, hint, infinity, number, off_unit, unit_axis

_Part = TypeVar("_Part", Link, Joint)

SYMMETRY = 1e-9
"""Largest difference between opposite products of inertia, relative to the largest moment of inertia. It allows for
rounding errors of rotated inertia matrices."""

_EXTENSIONS = {"helical": "pitch", "universal": "second axis"}
"""Joint types beyond standard URDF, with the property that these libraries do not store."""


def robot_of(source: object) -> Any:
    """The object that has `links` and `joints`: `source` itself (urdfpy, urchin) or `source.robot` (yourdfpy).

    Returns None if `source` is something else.

    Raises:
        ArgumentError: `source` is a RobotDescription already.
    """
    if strict_types.is_a(source, RobotDescription):
        raise ArgumentError(f"this is a RobotDescription already{reads_object(source)}")
    with foreign(f"an object of type {strict_types.type_name(source)}"):
        for candidate in (source, getattr(source, "robot", None)):
            parts = (getattr(candidate, "links", None), getattr(candidate, "joints", None))
            if all(strict_types.is_a(part, list, tuple) for part in parts):
                return candidate
    return None


def describe_object(robot: Any, notes: Notes) -> RobotDescription:
    """The unchecked description of a robot object.

    Some of these libraries give every link without `<inertial>` mass 1 and identity inertia. It looks like a real
    inertial, so it is used, and reported as `suspected-default-inertial`.

    Raises:
        LoadError: values that cannot be used.
    """
    with foreign("the robot object"):
        links, joints = strict_types.members(robot.links), strict_types.members(robot.joints)
        name = strict_types.text_or_none(getattr(robot, "name", None))
        if name is None or not name.strip():
            notes.add("robot-name-missing", "robot", 'no name is given; the robot is called "robot"')
            name = "robot"
        materials = (
            strict_types.members(listed_materials)
            if strict_types.is_a(listed_materials := getattr(robot, "materials", ()), list, tuple)
            else ()
        )
        by_name = {strict_types.text_or_none(getattr(each, "name", None)): each for each in materials}
    parts = tuple(_each("link", links, _link, notes)), tuple(_each("joint", joints, _joint, notes))
    names = (link.name for link in parts[0])
    shapes = tuple(
        shape for name, link in zip(names, links, strict=True) for shape in _shapes(name, link, by_name, notes)
    )
    return RobotDescription(_text(name, "robot name"), *parts, notes.findings(), geometries=shapes)


def _shapes(name: str, link: Any, materials: dict[str | None, Any], notes: Notes) -> Iterator[Geometry]:
    """The visuals and collisions of a link. Mistakes in them are reported and are no errors."""
    for role in ("visual", "collision"):
        with foreign(f"the {role}s of link {quoted(name)}"):
            shapes = getattr(link, f"{role}s", None)
        for each in strict_types.members(shapes) if strict_types.is_a(shapes, list, tuple) else ():
            try:
                with foreign("its attributes"):
                    shape = _shape(name, role, each, materials)
                yield shape
            except LoadError as error:
                notes.gather("shape-not-read", f"link {quoted(name)}", f"a {role} is left out: {error}")


def _shape(name: str, role: str, given: Any, materials: dict[str | None, Any]) -> Geometry:
    kinds = {kind: getattr(given.geometry, kind, None) for kind in (*SIZES, "mesh")}
    present = [(kind, part) for kind, part in kinds.items() if part is not None]
    if len(present) != 1:
        raise LoadError(f"it has {len(present)} shapes; wanted one")
    ((kind, part),) = present
    mesh = ""
    size: tuple[float, ...] = (1.0, 1.0, 1.0)
    if kind == "mesh":
        mesh = _text(part.filename, "its mesh")
        scale = getattr(part, "scale", None)
        if scale is not None:
            size = _array(np.broadcast_to(_floats(scale), 3), (3,), "the scale of its mesh")
    else:
        size = tuple(x for key in SIZES[kind] for x in _floats(getattr(part, key)).ravel().tolist())
    if len(size) != GEOMETRY_SIZES[kind]:
        raise LoadError(f"its sizes are {brief(size)}; wanted {GEOMETRY_SIZES[kind]} numbers")
    if not all(0.0 < (abs(x) if kind == "mesh" else x) < LARGEST for x in size):
        raise LoadError(f"its sizes are {size}; wanted numbers above 0, below {LARGEST:g}")
    material = getattr(given, "material", None) if role == "visual" else None
    material_name = None if material is None else strict_types.text_or_none(getattr(material, "name", None))
    rgba = None if material is None else _color(material) or _color(materials.get(material_name))
    pose, shape_name = _pose(getattr(given, "origin", None), f"its {role} origin"), getattr(given, "name", None)
    appearance = strict_types.text_or_none(shape_name) or "", rgba, material_name or ""
    return Geometry(name, role, kind, pose, size, mesh, "", *appearance)


def _color(material: Any) -> tuple[float, float, float, float] | None:
    """The colour of a material, None if it has none. The attribute `color` is an array or has an array `rgba`."""
    paint = getattr(material, "color", None)
    rgba = getattr(paint, "rgba", paint)
    return None if rgba is None else color(_array(rgba, (4,), "its colour"))


def _each(what: str, parts: Sequence[Any], describe: Callable[[Any, Notes], _Part], notes: Notes) -> Iterator[_Part]:
    for place, part in enumerate(parts, start=1):
        with foreign(f"{what} number {place} of the robot object"):
            described = describe(part, notes)
        yield described


def _link(link: Any, notes: Notes) -> Link:
    name = _text(getattr(link, "name", None), "link name")
    subject = f"link {quoted(name)}"
    inertial = getattr(link, "inertial", None)
    if inertial is None:
        return Link(name)
    part = f"{subject} inertial"
    mass, matrix = getattr(inertial, "mass", None), getattr(inertial, "inertia", None)
    if mass is None and matrix is None:
        notes.add("inertial-empty", subject, "its inertial gives no mass and no inertia; both are zero")
        return Link(name)
    if mass is None:
        notes.add("mass-missing", subject, "its inertial gives no mass; the mass is zero")
    if matrix is None:
        notes.add("inertia-missing", subject, "its inertial gives no inertia; the inertia is zero")
    pose = _pose(getattr(inertial, "origin", None), f"{part} origin")
    value = _number(mass, 0.0, f"{part} mass")
    xx, xy, xz, yx, yy, yz, zx, zy, zz = _array(
        np.zeros((3, 3)) if matrix is None else matrix, (3, 3), f"{part} inertia"
    )
    skew = max(abs(xy - yx), abs(xz - zx), abs(yz - zy))
    if skew > SYMMETRY * max(abs(xx), abs(yy), abs(zz)):
        raise LoadError(f"{part} inertia: {brief(matrix)} is not symmetric")
    inertia = (xx, xy, xz, yy, yz, zz)
    if value == 1.0 and inertia == (1.0, 0.0, 0.0, 1.0, 0.0, 1.0) and pose == Pose():
        message = "mass 1 and identity inertia look made up for a link without <inertial>; used as given"
        notes.add("suspected-default-inertial", subject, message)
    return Link(name, Inertial(value, pose, inertia))


def _joint(joint: Any, notes: Notes) -> Joint:
    name = _text(getattr(joint, "name", None), "joint name")
    subject = f"joint {quoted(name)}"
    kind = getattr(joint, "joint_type", None)  # urdfpy and urchin call it `joint_type`, yourdfpy `type`
    type_attribute = getattr(joint, "type", None) if kind is None else kind
    kind = strict_types.text_or_none(type_attribute)
    if kind is None or kind not in JOINT_TYPES:
        raise unknown_joint_type(subject, type_attribute, None)
    if kind in _EXTENSIONS:
        message = f"a robot object does not hold the {_EXTENSIONS[kind]} of a {kind} joint"
        raise LoadError(f"{subject}: {message}; load the file itself")
    axis: Vector3 = (1.0, 0.0, 0.0)
    if kind not in TYPES_WITHOUT_AXIS:
        axis = _axis(getattr(joint, "axis", None), subject, notes)
    limit, dynamics, mimic = (getattr(joint, part, None) for part in ("limit", "dynamics", "mimic"))
    limits = {part: _limit(limit, part, f"{subject} limit") for part in ("lower", "upper", "effort", "velocity")}
    return Joint(
        name=name,
        type=kind,
        parent=_text(getattr(joint, "parent", None), f"{subject} parent"),
        child=_text(getattr(joint, "child", None), f"{subject} child"),
        origin=_pose(getattr(joint, "origin", None), f"{subject} origin"),
        axis=axis,
        limits=limits_of(limits, subject, None, notes),
        damping=_optional(dynamics, "damping", f"{subject} dynamics") or 0.0,
        friction=_optional(dynamics, "friction", f"{subject} dynamics") or 0.0,
        mimic=None if mimic is None else _mimic(mimic, f"{subject} mimic"),
    )


def _axis(given: Any, subject: str, notes: Notes) -> Vector3:
    if given is None:
        notes.gather("axis-defaulted", subject, "no axis is given; URDF's default 1 0 0 is used")
        return (1.0, 0.0, 0.0)
    x, y, z = _array(given, (3,), f"{subject} axis")
    axis, norm = unit_axis((x, y, z), f"{subject} axis")
    if off_unit(norm):
        notes.add("axis-normalised", subject, f"the axis {(x, y, z)} has norm {norm:g}; scaled to norm 1")
    return axis


def _mimic(mimic: Any, where: str) -> Mimic:
    return Mimic(
        _text(getattr(mimic, "joint", None), f"{where} joint"),
        _number(getattr(mimic, "multiplier", None), 1.0, f"{where} multiplier"),
        _number(getattr(mimic, "offset", None), 0.0, f"{where} offset"),
    )


def _pose(matrix: Any, where: str) -> Pose:
    """The pose of a 4x4 homogeneous matrix (m); None stands for the identity."""
    if matrix is None:
        return Pose()
    m = _array(matrix, (4, 4), where)
    if m[12:] != (0.0, 0.0, 0.0, 1.0):
        raise LoadError(f"{where}: the last row {m[12:]} is not (0, 0, 0, 1)")
    rotation: Rotation = (m[0], m[1], m[2], m[4], m[5], m[6], m[8], m[9], m[10])
    return Pose((m[3], m[7], m[11]), rotation)


def _limit(holder: Any, part: str, where: str) -> float | None:
    """A limit, which may be infinite."""
    value = getattr(holder, part, None)
    if value is None:
        return None
    text = strict_types.text_or_none(value)
    if text is not None:
        infinite = infinity(text)
    else:
        array = _floats(value)
        infinite = float(array) if array.shape == () and np.isinf(array) else None
    return _number(value, 0.0, f"{where} {part}") if infinite is None else infinite


def _optional(holder: Any, part: str, where: str) -> float | None:
    value = getattr(holder, part, None)
    return None if value is None else _number(value, 0.0, f"{where} {part}")


def _number(value: Any, default: float, where: str) -> float:
    """A number, or the number in a string: yourdfpy stores damping and friction as strings."""
    if value is None:
        return default
    text = strict_types.text_or_none(value)
    if text is not None:
        parsed = number(text)
        if parsed is None:
            raise bad_number(text, where)
        return parsed
    return _array(value, (), where)[0]


def _array(value: Any, shape: Sequence[int], where: str) -> tuple[float, ...]:
    """The entries of an array in row-major order, after a check that its shape is right and all entries are finite."""
    array = _floats(value)
    if array.shape != tuple(shape) or not np.isfinite(array).all():
        wanted = f"finite numbers of shape {tuple(shape)}" if shape else "a finite number"
        raise LoadError(f"{where}: {brief(value)} is not {wanted}")
    return tuple(array.ravel().tolist())


def _floats(value: Any) -> Array:
    """Converts a value to a float64 array of class numpy.ndarray; one NaN if it contains no numbers.

    NumPy's functions call methods of array subclasses, and would pass on the errors that they raise.
    """
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.full(1, np.nan)


def _text(value: Any, where: str) -> str:
    name = strict_types.text_or_none(value)
    if name is None or not name.strip():
        raise LoadError(f"{where}: {brief(value)} is not a name; give a text that is not blank")
    if "$" in name:
        raise LoadError(f"{where}: {quoted(name)} holds a '$'{hint(name)}")
    return name
