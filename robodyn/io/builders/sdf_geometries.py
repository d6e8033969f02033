"""Reads the shapes of an SDF's links: `<visual>` and `<collision>`.

They do not affect the dynamics, so mistakes in them are no errors: shapes that cannot be read are omitted and reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from robodyn.core.description import Geometry, Pose
from robodyn.core.spatial import IDENTITY, ZERO3, Transform, transpose
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted
from robodyn.internals.records import dataclass
from robodyn.io.builders.axes import turn_to_z
from robodyn.io.builders.elements import Element
from robodyn.io.builders.sdf_frames import Frames, Scope
from robodyn.io.builders.sdf_values import Values
from robodyn.io.builders.urdf_geometries import LARGEST, SHAPES
from robodyn.io.builders.values import color_of, number, numbers, unit_axis

_SIZES: dict[str, tuple[tuple[str, int, str], ...]] = {
    "box": (("size", 3, "1 1 1"),),
    "sphere": (("radius", 1, "1"),),
    "cylinder": (("radius", 1, "1"), ("length", 1, "1")),
    "capsule": (("radius", 1, "0.5"), ("length", 1, "1")),
    "ellipsoid": (("radii", 3, "1 1 1"),),
    "plane": (("size", 2, "1 1"),),
    "mesh": (("scale", 3, "1 1 1"),),
}
"""Shapes with the elements of their sizes: tag, count of numbers, and SDF's default."""


@dataclass(slots=True)
class Shape:
    """A shape of the file. `pose`: in the frame `node`, or in the link's frame if `node` is None; `link`: its link."""

    geometry: Geometry
    pose: Transform
    link: int
    node: int | None = None


class Shapes:
    """The shapes of a file. A pose can be relative to any frame, so poses are computed when all frames are known."""

    def __init__(self, values: Values, frames: Frames) -> None:
        self._values, self._frames = values, frames
        self._found: list[Shape] = []

    def take(self, link: Element, name: str, node: int, scope: Scope, folder: Path | None) -> None:
        """Read the shapes of the link `name`. `folder`: folder of its file."""
        where = "" if folder is None else str(folder)
        for element in link.children:
            if element.tag in SHAPES:
                try:
                    self._found.append(self._shape(element, name, node, scope, where))
                except LoadError as error:
                    message = f"its <{element.tag}> is left out: {error}"
                    self._values.notes.gather("shape-not-read", f"link {quoted(name)}", message, element.line)

    def geometries(self) -> Iterator[Geometry]:
        """All geometries. The frames must be resolved."""
        for shape in self._found:
            X = shape.pose if shape.node is None else shape.pose.after(self._frames.relative(shape.node, shape.link))
            x, y, z = X.r
            yield replace(shape.geometry, pose=Pose((x + 0.0, y + 0.0, z + 0.0), transpose(X.E)))

    def _note_rest(self, element: Element, name: str) -> None:
        """Report elements of a shape and its material that are not read."""
        for parent, read in (
            (element, _READ),
            *((each, _COLOURS) for each in element.children if each.tag == "material"),
        ):
            for child in parent.children:
                if child.tag not in read:
                    message = f"<{child.tag}> of a <{parent.tag}> is not read; skipped"
                    self._values.notes.gather("ignored-tag", f"link {quoted(name)}", message, child.line)

    def _shape(self, element: Element, name: str, node: int, scope: Scope, folder: str) -> Shape:
        shapes = [shape for each in element.children if each.tag == "geometry" for shape in each.children]
        shape = next((each for each in shapes if each.tag in _SIZES), None)
        if shape is None:
            kinds = ", ".join(f"<{each.tag}>" for each in shapes) or "no shape"
            raise LoadError(f"{kinds}; read are {', '.join(_SIZES)}")
        size = tuple(x for part in _SIZES[shape.tag] for x in _numbers(shape, *part))
        if not all(0.0 < (abs(x) if shape.tag == "mesh" else x) < LARGEST for x in size):
            raise LoadError(f"the sizes of its <{shape.tag}> are {size}; wanted numbers above 0, below {LARGEST:g}")
        mesh = _text(shape, "uri") if shape.tag == "mesh" else ""
        if shape.tag == "mesh" and not mesh:
            raise LoadError("its mesh has no <uri>")
        if any(each.tag == "submesh" for each in shape.children):
            raise LoadError("it is a part of a mesh (<submesh>)")
        self._note_rest(element, name)
        parts = {each.tag: each for each in element.children if each.tag == "pose"}
        subject = f"link {quoted(name)} {element.tag}"
        pose, relative_to = self._values.pose(parts, subject)
        if shape.tag == "plane":
            normal, _ = unit_axis(_numbers(shape, "normal", 3, "0 0 1"), "its normal")  # type: ignore[arg-type]
            pose = Transform(turn_to_z(normal), ZERO3).after(pose)
        shape_name = element.attributes.get("name", "")
        geometry = Geometry(
            name, element.tag, shape.tag, Pose(), size, mesh, folder, shape_name, _color(element), format="sdf"
        )
        if not relative_to:
            return Shape(geometry, pose, node)
        frame = self._frames.new(subject, element.line)
        self._frames.put(frame, IDENTITY, (scope, relative_to))
        self._frames.hold(frame, node)
        return Shape(geometry, pose, node, frame)


_READ = frozenset({"pose", "geometry", "material", "transparency", "density"})
_COLOURS = frozenset({"diffuse", "ambient"})


def _text(element: Element, tag: str) -> str:
    return next((each.text for each in element.children if each.tag == tag), "")


def _numbers(element: Element, tag: str, count: int, default: str) -> tuple[float, ...]:
    text = _text(element, tag) or default
    values = numbers(text, count)
    if values is None:
        raise LoadError(f"the {tag} of its <{element.tag}> is {quoted(text)}; wanted {count} numbers")
    return values


def _color(element: Element) -> tuple[float, float, float, float] | None:
    """The diffuse or ambient colour of a material. Opacity is 1 by default, times 1 - transparency."""
    transparency = number(_text(element, "transparency") or "0")
    opacity = 1.0 if transparency is None else 1.0 - min(max(transparency, 0.0), 1.0)
    for material in (each for each in element.children if each.tag == "material"):
        for tag in ("diffuse", "ambient"):
            rgba = color_of(_text(material, tag))
            if rgba is not None:
                return (*rgba[:3], rgba[3] * opacity)
    return None
