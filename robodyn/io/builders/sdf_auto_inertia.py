"""Computes inertias from the shapes of a link, for `<inertial auto="true">` of SDF, in the same way as libsdformat.

Every `<collision>` counts, with its own `<density>`, else that of `<inertial>`, else 1000 kg/m^3.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from robodyn.core.description import Inertial, Pose, Vector3
from robodyn.core.findings import at_line
from robodyn.core.spatial import ZERO3, Inertia, Transform, sub
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted
from robodyn.io.builders.elements import Element
from robodyn.io.builders.sdf_values import NONE, Values, survey

_WATER = 1000.0
_COLLISION = frozenset({"pose", "density", "geometry", "auto_inertia_params", "surface", "laser_retro", "max_contacts"})

Solid = tuple[float, Vector3, float]
"""Volume, moments of inertia about the centre of mass for density 1, and the z coordinate of that centre."""


def _ellipsoid(a: float, b: float, c: float) -> Solid:
    volume = 4.0 / 3.0 * math.pi * a * b * c
    return volume, (volume / 5 * (b * b + c * c), volume / 5 * (a * a + c * c), volume / 5 * (a * a + b * b)), 0.0


def _box(x: float, y: float, z: float) -> Solid:
    volume = x * y * z
    return volume, (volume / 12 * (y * y + z * z), volume / 12 * (x * x + z * z), volume / 12 * (x * x + y * y)), 0.0


def _cylinder(r: float, h: float) -> Solid:
    volume = math.pi * r * r * h
    across = volume / 12 * (3 * r * r + h * h)
    return volume, (across, across, volume / 2 * r * r), 0.0


def _capsule(r: float, h: float) -> Solid:
    """A cylinder of length h with a half ball at each end."""
    middle, (across, _, along), _ = _cylinder(r, h)
    ends = 4.0 / 3.0 * math.pi * r**3
    across += ends * (0.4 * r * r + 0.375 * r * h + 0.25 * h * h)
    return middle + ends, (across, across, along + ends * 0.4 * r * r), 0.0


def _cone(r: float, h: float) -> Solid:
    """A cone along z with the origin at half of its height h."""
    volume = math.pi * r * r * h / 3.0
    across = volume * 3.0 / 80.0 * (4 * r * r + h * h)
    return volume, (across, across, volume * 0.3 * r * r), -h / 4


_SOLIDS: dict[str, tuple[tuple[tuple[str, float], ...], Callable[..., Solid]]] = {
    "sphere": ((("radius", 1.0),), lambda r: _ellipsoid(r, r, r)),
    "cylinder": ((("radius", 1.0), ("length", 1.0)), _cylinder),
    "capsule": ((("radius", 0.5), ("length", 1.0)), _capsule),
    "cone": ((("radius", 0.5), ("length", 1.0)), _cone),
}
"""Shapes with scalar sizes: tags of the sizes, and SDF's defaults."""
_VECTORS: dict[str, tuple[str, Callable[..., Solid]]] = {"box": ("size", _box), "ellipsoid": ("radii", _ellipsoid)}


def auto_inertial(link: Element, parts: dict[str, Element], subject: str, values: Values) -> Inertial:
    """The inertial of a link, from its shapes.

    Args:
        link: the element of the link.
        parts: children of its `<inertial>`. A mass among them scales the result.
        subject: name of the link in messages.
        values: reads numbers and poses.

    Raises:
        LoadError: no shape, a shape whose volume is not computed, such as a mesh, or an invalid value.
    """
    where = f"{subject} inertial"
    density = values.number(parts, "density", where, _WATER)
    inertias = [_collision_inertia(each, subject, density, values) for each in link.children if each.tag == "collision"]
    if not inertias:
        raise LoadError(
            f"{where}{at_line(link.line)} is to be computed from shapes (auto); the link has no <collision>"
        )
    for tag in ("pose", "inertia"):
        if tag in parts:
            message = f"it is computed from shapes (auto); its <{tag}> is not used"
            values.notes.gather("sdf-auto-inertial", subject, message, parts[tag].line)
    mass = sum(inertia.m for _, inertia in inertias)
    centre = [sum(inertia.m * X.r[k] for X, inertia in inertias) / mass for k in range(3)]
    combined = Inertia(0.0, ZERO3, (0.0,) * 6)
    for X, inertia in inertias:
        combined += Transform(X.E, sub(X.r, centre)).inertia_back(inertia)
    total = values.number(parts, "mass", where, mass)
    factor = total / mass
    moments = tuple(factor * each for each in combined.I)
    if not all(map(math.isfinite, (*centre, total, *moments))):
        raise LoadError(f"{where}{at_line(link.line)}: what is computed from its shapes overflows")
    x, y, z = centre
    xx, xy, xz, yy, yz, zz = moments
    return Inertial(total, Pose((x, y, z)), (xx, xy, xz, yy, yz, zz))


def _collision_inertia(element: Element, link: str, density: float, values: Values) -> tuple[Transform, Inertia]:
    """The inertia of one shape about its centre of mass, and the transform from the link's frame to that centre."""
    subject = f"{link} collision {quoted(element.attributes.get('name', ''))}"
    parts = survey(element, subject, _COLLISION, frozenset({"name"}), values.notes)
    X, relative_to = values.pose(parts, subject)
    if relative_to:
        raise LoadError(
            f"{subject} pose{at_line(parts['pose'].line)}: it is given in the frame {quoted(relative_to)}, and the "
            "link's inertia is to be computed from it (auto); give it in the link's own frame"
        )
    volume, moments, up = _solid(parts, subject, element, values)
    density = values.number(parts, "density", subject, density)
    if not density > 0.0 or not 0.0 < density * volume < math.inf:
        raise LoadError(
            f"{subject}{at_line(element.line)}: a volume of {volume:g} m^3 and a density of {density:g} kg/m^3; wanted "
            "both greater than zero, as the link's inertia is to be computed from them (auto)"
        )
    xx, yy, zz = (density * moment for moment in moments)
    X = Transform((1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0), (0.0, 0.0, up)).after(X) if up else X
    return X, Inertia(density * volume, ZERO3, (xx, 0.0, 0.0, yy, 0.0, zz))


def _solid(parts: dict[str, Element], subject: str, element: Element, values: Values) -> Solid:
    shapes = parts["geometry"].children if "geometry" in parts else []
    shape = next((each for each in shapes if each.tag in _SOLIDS or each.tag in _VECTORS), None)
    if shape is None:
        kinds = ", ".join((*_SOLIDS, *_VECTORS))
        what = ", ".join(f"<{each.tag}>" for each in shapes) or "no shape"
        raise LoadError(
            f"{subject}{at_line(element.line)}: {what}; the link's inertia is to be computed from it (auto), which is "
            f"done for {kinds}; give <mass> and <inertia> instead"
        )
    here = f"{subject} {shape.tag}"
    if shape.tag in _VECTORS:
        tag, solid = _VECTORS[shape.tag]
        own = survey(shape, here, frozenset({tag}), NONE, values.notes)
        numbers: tuple[float, ...] = values.vector(own, tag, here, (1.0, 1.0, 1.0))
    else:
        sizes, solid = _SOLIDS[shape.tag]
        own = survey(shape, here, frozenset(tag for tag, _ in sizes), NONE, values.notes)
        numbers = tuple(values.number(own, tag, here, default) for tag, default in sizes)
    if not all(number > 0.0 for number in numbers):
        raise LoadError(f"{here}{at_line(shape.line)}: sizes {numbers}; wanted numbers greater than zero")
    return solid(*numbers)
