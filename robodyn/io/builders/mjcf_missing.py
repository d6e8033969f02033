"""Shapes and pictures of a MJCF whose files are not there, as where the text was shared alone.

A picture has no part in the model, and a shape has none where no inertia depends on it: where its body has an
<inertial> that MuJoCo takes, or stands still. Everything else wants its files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from robodyn.core.findings import Notes, at_line
from robodyn.internals.messages import quoted
from robodyn.io.builders.elements import Element

_SHAPES = ("mesh", "hfield")
"""Elements of shapes, and the attributes by which geoms name them."""
_MAY_BE_MISSING = (*_SHAPES, "texture", "skin")
_BODIES = ("body", "worldbody")
_JOINTS = ("joint", "freejoint")
_INSIDE_BODIES = ("frame", "replicate")
"""What stands between a body and its shapes and joints."""
_OBJECTS = (("objtype", "objname"), ("reftype", "refname"))


class Missing(NamedTuple):
    """An element, the first of its files that is not there, as the MJCF names it, and the words for that."""

    element: Element
    file: str
    message: str


class _Shape(NamedTuple):
    """An element of a body, as a geom whose shape is missing, and the elements around it from the root on."""

    element: Element
    around: tuple[Element, ...]

    @property
    def body(self) -> Element | None:
        """None where it is not known whose mass it is of."""
        for each in reversed(self.around if _is(self.element, "geom", *_JOINTS) else ()):
            if _is(each, *_BODIES):
                return each
            if not _is(each, *_INSIDE_BODIES):
                break
        return None


def may_be_missing(element: Element) -> bool:
    """Whether an element may be one that is left out: masses depend on flexes and submodels."""
    return _is(element, *_MAY_BE_MISSING)


def leave_out(root: Element, missing: Sequence[Missing], is_part: bool, notes: Notes) -> str | None:
    """Take elements whose files are missing from a document, with the geoms that show them and what names these.

    Args:
        root: the document, with what it includes.
        missing: elements of it, each of which `may_be_missing`.
        is_part: whether another model takes it in, so that its world may be on what moves.
        notes: on what was left out.

    Returns:
        Why that cannot be; None where it was done.
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
    counted = is_part or "settotalmass" in compiler
    for shape in shapes:
        if (why := _depends(shape, compiler.get("inertiafromgeom", "auto").lower())) is None:
            continue
        body = shape.body
        in_world = body is not None and _is(body, "worldbody") and not is_part  # which has no mass
        still = body is not None and not counted and not any(id(each) in moving for each in shape.around)
        if body is None or not (in_world or still):
            return why
        if not in_world:
            message = "it stands still, and the shapes that are left out are missing in its inertia"
            notes.gather("mjcf-missing-file", f"body {quoted(body.attributes.get('name', ''))}", message, body.line)
    pictures = names["texture"] - {None}
    gone = {id(each.element) for each in missing} | {id(each.element) for each in shapes}
    geoms = {shape.element.attributes["name"] for shape in shapes if "name" in shape.element.attributes}
    for element in [element for element, _ in _all(root)]:
        element.children = [
            child for child in element.children if id(child) not in gone and not _is_about(child, geoms, pictures)
        ]
        if element.attributes.get("texture") in pictures:
            del element.attributes["texture"]
    for m in missing:
        message = "it is not there; what it shows is left out"
        notes.gather("mjcf-missing-file", f"file {quoted(m.file)}", message, m.element.line)
    return None


def _depends(shape: _Shape, inertia_from_geom: str) -> str | None:
    """Why the inertia of a body depends on a shape; None where it does not."""
    element, body = shape.element, shape.body
    if body is None:
        place = f"<{element.tag}>{at_line(element.line)}"
        return f"it can be left out where it is the shape of geoms of bodies alone, and {place} names it"
    if inertia_from_geom == "false":
        return None
    called = quoted(body.attributes.get("name", body.tag))
    if inertia_from_geom == "true":
        return f"the inertia of {called} is that of its shapes, as inertiafromgeom is true"
    if any(_is(child, "inertial") for child in body.children):
        return None
    return f"it can be left out where bodies that it is a shape of have an <inertial>, and {called} has none"


def _is_about(element: Element, geoms: set[str], textures: set[str | None]) -> bool:
    """Whether an element is about a geom that is gone, or is the layer of a picture that is."""
    given = element.attributes
    if _is(element, "layer") and given.get("texture") in textures:
        return True
    objects = [given.get(name) for kind, name in _OBJECTS if given.get(kind) == "geom"]
    return any(each in geoms for each in (*objects, *(given.get(key) for key in ("geom", "geom1", "geom2"))))


def _all(root: Element) -> Iterator[tuple[Element, tuple[Element, ...]]]:
    """All elements in their order, each with those around it."""
    waiting: list[tuple[Element, tuple[Element, ...]]] = [(root, ())]
    while waiting:
        element, around = waiting.pop()
        yield element, around
        if element.children:
            inside = (*around, element)
            waiting.extend((child, inside) for child in reversed(element.children))


def _is(element: Element, *tags: str) -> bool:
    return element.tag.lower() in tags
