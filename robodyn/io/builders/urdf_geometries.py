"""Visuals and collisions of a URDF's links, and the elements of a URDF that are kept as text.

They do not affect the dynamics, so mistakes in them are no errors: an element that cannot be read is reported, and kept
as text.
"""

from __future__ import annotations

from collections.abc import Callable

from robodyn.core.description import Extension, Geometry, Pose
from robodyn.core.findings import Notes
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted
from robodyn.io.builders.elements import Element, written
from robodyn.io.builders.values import color_of, numbers

SHAPES = frozenset({"visual", "collision"})
"""Elements of a link that are geometries."""
_READ = frozenset({"origin", "geometry", "material"})
LARGEST = 1e6
"""Upper bound of sizes in m and of scale factors."""

SIZES = {"box": ("size",), "sphere": ("radius",), "cylinder": ("radius", "length"), "capsule": ("radius", "length")}
"""Attributes with the sizes of each primitive shape."""


class Geometries:
    """Collects geometries and kept elements while a URDF is parsed.

    Materials may be defined after the visuals that use them, so `finish` evaluates all geometries at the end.
    """

    def __init__(self, folder: str, read_pose: Callable[[Element | None, str, Notes], Pose], notes: Notes) -> None:
        self._folder, self._read_pose, self._notes = folder, read_pose, notes
        self._shapes: list[tuple[str, Element]] = []
        self._materials: dict[str, Element] = {}
        self._kept: list[tuple[str, str, Element]] = []

    def take(self, link: str, element: Element) -> None:
        """Take the visuals and collisions of a link."""
        self._shapes += [(link, child) for child in element.children if child.tag in SHAPES]

    def take_material(self, element: Element) -> None:
        """Take a material of the robot."""
        self._materials.setdefault(element.attributes.get("name", ""), element)

    def keep(self, parent: str, of: str, element: Element) -> None:
        """Keep an element of a `parent`, which is the link or joint `of`, as text."""
        self._kept.append((parent, of, element))

    def finish(self, root: Element) -> tuple[tuple[Geometry, ...], tuple[Extension, ...]]:
        """All geometries and kept elements. `root` declares the namespaces that kept elements use."""
        for _, shape in self._shapes:
            for material in _children(shape, "material"):
                if material.children:  # a definition: other links may refer to it by name
                    self.take_material(material)
        shapes = []
        for link, shape in self._shapes:
            try:
                shapes.append(self._geometry(link, shape))
            except LoadError as error:
                message = f"its <{shape.tag}> is not read, and kept as text: {error}"
                self._notes.gather("kept-tag", f"link {quoted(link)}", message, shape.line, "warning")
                self.keep("link", link, shape)
        spaces = {key: value for key, value in root.attributes.items() if key.startswith("xmlns:")}
        kept = [Extension("urdf", parent, of, _text(each, spaces)) for parent, of, each in self._kept]
        return tuple(shapes), tuple(kept)

    def _geometry(self, link: str, element: Element) -> Geometry:
        shapes = [shape for each in _children(element, "geometry") for shape in each.children]
        if len(shapes) != 1:
            raise LoadError(f"it has {len(shapes)} shapes; wanted one")
        (shape,) = shapes
        mesh = ""
        size: tuple[float, ...] = (1.0, 1.0, 1.0)
        if shape.tag == "mesh":
            mesh = shape.attributes.get("filename", "").strip()
            if not mesh:
                raise LoadError("its mesh has no filename")
            if "scale" in shape.attributes:
                size = _sizes(shape, "scale", 3, mirrored=True)
        elif shape.tag in SIZES:
            counts = 3 if shape.tag == "box" else 1
            size = tuple(x for key in SIZES[shape.tag] for x in _sizes(shape, key, counts))
        else:
            raise LoadError(f"<{shape.tag}> is none of {', '.join(SIZES)} and mesh")
        color, material, texture = self._look(element) if element.tag == "visual" else (None, "", "")
        origins = _children(element, "origin")
        pose = self._read_pose(origins[0] if origins else None, f"link {quoted(link)} {element.tag}", self._notes)
        looks = element.attributes.get("name", ""), color, material, texture
        more = tuple(pair for pair in element.attributes.items() if pair[0] != "name")
        rest = "".join(written(child) for child in element.children if child.tag not in _READ)
        shaped = shape.tag, pose, size, mesh, self._folder
        return Geometry(link, element.tag, *shaped, *looks, attributes=more, elements=rest)

    def _look(self, shape: Element) -> tuple[tuple[float, float, float, float] | None, str, str]:
        """Colour, name and texture of a shape's material."""
        for material in _children(shape, "material"):
            name = material.attributes.get("name", "")
            defined = material if material.children else self._materials.get(name, material)
            color = None
            for child in _children(defined, "color"):
                color = color_of(child.attributes.get("rgba", "")) or color
            textures = [child.attributes.get("filename", "") for child in _children(defined, "texture")]
            return color, name, textures[0] if textures else ""
        return None, "", ""


def _children(element: Element, tag: str) -> list[Element]:
    return [child for child in element.children if child.tag == tag]


def _sizes(element: Element, key: str, count: int, mirrored: bool = False) -> tuple[float, ...]:
    """The numbers of an attribute, which must be above 0. With `mirrored` they may also be negative."""
    values = numbers(element.attributes.get(key, ""), count)
    if values is None or not all(0.0 < (abs(x) if mirrored else x) < LARGEST for x in values):
        shown = quoted(element.attributes.get(key, ""))
        raise LoadError(f"{key} of its <{element.tag}> is {shown}; wanted {count} numbers above 0, below {LARGEST:g}")
    return values


def _text(element: Element, spaces: dict[str, str]) -> str:
    """An element as XML, with declarations of the namespaces whose prefixes it uses."""
    text = written(element)
    used = {key: value for key, value in spaces.items() if f"{key.removeprefix('xmlns:')}:" in text}
    if not used:
        return text
    element.attributes = {**used, **element.attributes}
    return written(element)
