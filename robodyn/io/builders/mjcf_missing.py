"""Omits shapes and textures whose files are missing, for instance if only the MJCF text was shared.

Textures do not affect the model. A shape does not affect it if no inertia depends on it: its body has an <inertial>
that MuJoCo uses, or does not move. All other elements need their files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from robodyn.core.findings import Notes, at_line
from robodyn.internals.messages import quoted
from robodyn.io.builders.elements import Element

_SHAPES = ("mesh", "hfield")
"""Elements of shapes. The attributes by which geoms refer to them have the same names."""
_MAY_BE_MISSING = (*_SHAPES, "texture", "skin")
_BODIES = ("body", "worldbody")
_JOINTS = ("joint", "freejoint")
_INSIDE_BODIES = ("frame", "replicate")
"""Elements that may stand between a body and its geoms and joints."""
_OBJECTS = (("objtype", "objname"), ("reftype", "refname"))


class Missing(NamedTuple):
    """An element with a missing file, the file's name in the MJCF, and the error message for it."""

    element: Element
    file: str
    message: str


class _Shape(NamedTuple):
    """An element such as a geom with a missing shape, and its ancestors from the root on."""

    element: Element
    around: tuple[Element, ...]

    @property
    def body(self) -> Element | None:
        """The body of a geom or joint; None if the element belongs to no single body."""
        for each in reversed(self.around if _is(self.element, "geom", *_JOINTS) else ()):
            if _is(each, *_BODIES):
                return each
            if not _is(each, *_INSIDE_BODIES):
                break
        return None


def may_be_missing(element: Element) -> bool:
    """True if an element with a missing file can be omitted. Flexes and submodels cannot: masses depend on them."""
    return _is(element, *_MAY_BE_MISSING)


def leave_out(root: Element, missing: Sequence[Missing], is_part: bool, notes: Notes) -> str | None:
    """Removes elements with missing files from a document, the geoms that use them, and references to these geoms.

    Args:
        root: the document, with its includes expanded.
        missing: elements with missing files, each of which `may_be_missing`.
        is_part: True if another model attaches the document, so that its world body may move.
        notes: collects findings on omitted elements.

    Returns:
        The reason why the elements are needed; None if they were removed.
    """
    names = {tag: {m.element.attributes.get("name") for m in missing if _is(m.element, tag)} for tag in _MAY_BE_MISSING}
    compiler, moving = dict[str, str](), set[int]()
    shapes: list[_Shape] = []
    for element, around in _all(root):
        if _is(element, "compiler"):
            compiler |= element.attributes
        elif _is(element, *_JOINTS):
            body = _Shape(element, around).body
            moving |= set() if body is None else {id(body)}
        if any(key in element.attributes and element.attributes[key] in names[key] for key in _SHAPES):
            shapes.append(_Shape(element, around))
    mass_counts = is_part or "settotalmass" in compiler
    for shape in shapes:
        if (reason := _depends(shape, compiler.get("inertiafromgeom", "auto").lower())) is None:
            continue
        body = shape.body
        in_world = body is not None and _is(body, "worldbody") and not is_part  # the world has no mass
        still = body is not None and not mass_counts and not any(id(each) in moving for each in shape.around)
        if body is None or not (in_world or still):
            return reason
        if not in_world:
            message = "it stands still, and the shapes that are left out are missing in its inertia"
            notes.gather("mjcf-missing-file", f"body {quoted(body.attributes.get('name', ''))}", message, body.line)
    textures = names["texture"] - {None}
    left_out = {id(each.element) for each in missing} | {id(each.element) for each in shapes}
    geoms = {shape.element.attributes["name"] for shape in shapes if "name" in shape.element.attributes}
    for element in [element for element, _ in _all(root)]:
        element.children = [
            child
            for child in element.children
            if id(child) not in left_out and not _refers_to_removed(child, geoms, textures)
        ]
        if element.attributes.get("texture") in textures:
            del element.attributes["texture"]
    for m in missing:
        message = "it is not there; what it shows is left out"
        notes.gather("mjcf-missing-file", f"file {quoted(m.file)}", message, m.element.line)
    return None


def _depends(shape: _Shape, inertia_from_geom: str) -> str | None:
    """The reason why the inertia of a body depends on a shape; None if it does not."""
    element, body = shape.element, shape.body
    if body is None:
        where = f"<{element.tag}>{at_line(element.line)}"
        return f"it can be left out where it is the shape of geoms of bodies alone, and {where} names it"
    if inertia_from_geom == "false":
        return None
    body_name = quoted(body.attributes.get("name", body.tag))
    if inertia_from_geom == "true":
        return f"the inertia of {body_name} is that of its shapes, as inertiafromgeom is true"
    if any(_is(child, "inertial") for child in body.children):
        return None
    return f"it can be left out where bodies that it is a shape of have an <inertial>, and {body_name} has none"


def _refers_to_removed(element: Element, geoms: set[str], textures: set[str | None]) -> bool:
    """True if an element refers to a removed geom, or is a layer with a removed texture."""
    attributes = element.attributes
    if _is(element, "layer") and attributes.get("texture") in textures:
        return True
    objects = [attributes.get(name) for kind, name in _OBJECTS if attributes.get(kind) == "geom"]
    return any(each in geoms for each in (*objects, *(attributes.get(key) for key in ("geom", "geom1", "geom2"))))


def _all(root: Element) -> Iterator[tuple[Element, tuple[Element, ...]]]:
    """All elements in document order, each with its ancestors."""
    stack: list[tuple[Element, tuple[Element, ...]]] = [(root, ())]
    while stack:
        element, around = stack.pop()
        yield element, around
        if element.children:
            inside = (*around, element)
            stack.extend((child, inside) for child in reversed(element.children))


def _is(element: Element, *tags: str) -> bool:
    return element.tag.lower() in tags
