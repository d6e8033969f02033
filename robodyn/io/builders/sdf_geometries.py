"""What the links of an SDF look like and collide with: `<visual>` and `<collision>`.

They have no part in the dynamics, so nothing that is wrong with them is an error: what cannot be read is left out and
reported.
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
"""Shapes with the elements of their sizes: how many numbers, and SDF's default."""


@dataclass(slots=True)
class Shape:
    """A shape as it stands in the file; its pose is given in the frame of the link or in that of `node`."""

    geometry: Geometry
    pose: Transform
    link: int
    node: int | None = None


class Shapes:
    """The shapes of a file. Poses may be given in any frame, so they are worked out when all frames are known."""

    def __init__(self, values: Values, frames: Frames) -> None:
        self._values, self._frames = values, frames
        self._found: list[Shape] = []

    def take(self, link: Element, name: str, node: int, scope: Scope, folder: Path | None) -> None:
        """Take those of a link, which is called `name`, of a file in `folder`."""
        where = "" if folder is None else str(folder)
        for element in link.children:
            if element.tag in SHAPES:
                try:
                    self._found.append(self._shape(element, name, node, scope, where))
                except LoadError as error:
                    message = f"its <{element.tag}> is left out: {error}"
                    self._values.notes.gather("shape-not-read", f"link {quoted(name)}", message, element.line)

    def geometries(self) -> Iterator[Geometry]:
        """All of them, once the frames are resolved."""
        for shape in self._found:
            X = shape.pose if shape.node is None else shape.pose.after(self._frames.relative(shape.node, shape.link))
            x, y, z = X.r
            yield replace(shape.geometry, pose=Pose((x + 0.0, y + 0.0, z + 0.0), transpose(X.E)))

    def _note_rest(self, element: Element, name: str) -> None:
        """Report what is not read of a shape and its material."""
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
        named = element.attributes.get("name", "")
        made = Geometry(name, element.tag, shape.tag, Pose(), size, mesh, folder, named, _color(element), format="sdf")
        if not relative_to:
            return Shape(made, pose, node)
        frame = self._frames.new(subject, element.line)
        self._frames.put(frame, IDENTITY, (scope, relative_to))
        self._frames.hold(frame, node)
        return Shape(made, pose, node, frame)


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
    """The colour that a material says its surface has; opacity is 1 where it is not given, and less by transparency."""
    given = number(_text(element, "transparency") or "0")
    opaque = 1.0 if given is None else 1.0 - min(max(given, 0.0), 1.0)
    for material in (each for each in element.children if each.tag == "material"):
        for tag in ("diffuse", "ambient"):
            found = color_of(_text(material, tag))
            if found is not None:
                return (*found[:3], found[3] * opaque)
    return None
