"""Geometries and kept elements of models that are edited: those of links and joints that remain go along."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from robodyn.core.description import Extension, Geometry
from robodyn.core.findings import Notes, Report
from robodyn.internals.messages import quoted
from robodyn.internals.records import dataclass
from robodyn.io.builders.elements import Element, parse_xml, written
from robodyn.io.builders.values import number

if TYPE_CHECKING:
    from robodyn.core.model import Model
    from robodyn.io.editing.parts import Fields

LINKS = frozenset({"link", "body", "body1", "body2", "site", "objname", "refname"})
"""Attributes that name links."""
_JOINTS = frozenset({"joint", "jointinparent"})
"""Attributes that name joints that move."""
_EITHER = "reference"
"""The attribute of `<gazebo>` that names a link or any joint."""
_OWN = ""
"""The key of the joint that an element stands in."""
_OF_MOVING_JOINTS = frozenset({"safety_controller", "calibration"})
"""Elements of joints that mean nothing where a joint does not move."""


@dataclass(frozen=True)
class Names:
    """The names of a robot: its links, its joints that move, and all its joints."""

    links: frozenset[str]
    moving: frozenset[str]
    joints: frozenset[str]

    @classmethod
    def of(cls, links: Iterable[str], moving: Iterable[str], joints: Iterable[str]) -> Names:
        """The names of a robot; `joints` may be those that do not move alone."""
        movers = frozenset(moving)
        return cls(frozenset(links), movers, movers | frozenset(joints))

    def has(self, name: str, key: str) -> bool:
        """Whether there is what an attribute names."""
        if key in LINKS:
            return name in self.links
        if key in (_EITHER, _OWN):
            return name in self.joints or (key == _EITHER and name in self.links)
        return name in self.moving


def remaining(extension: Extension, is_lost: Callable[[str, str], bool]) -> Extension | None:
    """What is left of a kept element: without the joints and transmissions in it that are lost; None if it names other
    things that are, if no joint is left, or if it is a transmission of joints of which one is lost.

    `is_lost`: of a name and the key of the attribute that names it.
    """
    top = element_of(extension)
    own = {"link": "link", "joint": "joint" if top.tag in _OF_MOVING_JOINTS else _OWN}.get(extension.parent)
    if own is not None and is_lost(extension.of, own):
        return None

    def is_gone(element: Element) -> bool:
        if element.tag == "joint" and element is not top:
            return is_lost(element.attributes.get("name", ""), "joint")
        return element.tag == "transmission" and any(is_gone(child) for child in element.children)

    joints = [child for child in top.children if child.tag == "joint"]
    left = [child for child in top.children if not is_gone(child)]
    if is_gone(top) or (joints and not any(child in left for child in joints)):
        return None
    shorter = len(left) < len(top.children)
    top.children = left
    if any(is_lost(element.attributes[key], key) for element, key in _names(top)):
        return None
    return replace(extension, text=written(top)) if shorter else extension


def keep(model: Model, fields: Fields) -> None:
    """Leave out geometries of links that are gone, and kept elements of links and joints that are.

    `model`: before the edit; what its elements name that it never had stays as it is.
    """
    links = set(fields["link_names"])
    fields["geometries"] = tuple(each for each in fields["geometries"] if each.link in links)
    if not fields["extensions"]:
        return
    before = Names.of(model.link_names, model.joint_names, model.link_joints or ())
    after = Names.of(links, fields["joint_names"], fields["link_joints"] or ())
    if before.links <= after.links and before.moving <= after.moving and before.joints <= after.joints:
        return
    kept, notes = [], Notes()
    for each in fields["extensions"]:
        left = remaining(each, lambda name, key: before.has(name, key) and not after.has(name, key))
        if left is None:
            message = "its link or joint is gone, or does not move any more; left out"
            notes.gather("extension-dropped", element_name(each), message)
            continue
        if left is not each:
            message = "joints in it are gone, or do not move any more; these are left out"
            notes.gather("extension-dropped", element_name(each), message)
        kept.append(left)
    fields["extensions"] = tuple(kept)
    fields["report"] = Report((*fields["report"], *notes.findings()))


def renamed(
    geometries: Iterable[Geometry], extensions: Iterable[Extension], prefix: str, names: Mapping[str, str]
) -> tuple[tuple[Geometry, ...], tuple[Extension, ...]]:
    """Both as parts of another robot, where links and joints have other names.

    Names in kept elements stand in known attributes, and in URDF also in many other places, such as parameters of
    plugins. There every attribute and every text that is the name of a link, a joint, a shape or a kept element is
    changed, but for types, and for what spells a number, which it rather is.

    Args:
        geometries: those of the robot.
        extensions: its kept elements.
        prefix: what stands before the names of shapes and kept elements.
        names: the new names of links and joints by the old ones.
    """
    if not prefix and all(old == new for old, new in names.items() if old):
        return tuple(geometries), tuple(extensions)
    tops = [element_of(each) for each in extensions]
    known = {each.name: f"{prefix}{each.name}" for each in geometries if each.name}
    known |= {top.attributes["name"]: f"{prefix}{top.attributes['name']}" for top in tops if "name" in top.attributes}
    known |= {old: new for old, new in names.items() if old}
    shapes = [replace(each, link=known.get(each.link, each.link), name=known.get(each.name, "")) for each in geometries]
    kept = []
    for each, top in zip(extensions, tops, strict=True):
        anywhere = each.format == "urdf"
        waiting = [top]
        for element in waiting:
            for key, value in element.attributes.items():
                if key == "name" and element.tag == "actuator":
                    element.attributes[key] = f"{prefix}{value}"
                elif _is_naming(element, key, top) or (
                    each.format == "urdf" and key != "type" and number(value) is None
                ):
                    element.attributes[key] = known.get(value, value)
            if anywhere and element.text in known and number(element.text) is None:
                element.pieces = [known[element.text]]
            waiting += element.children
        kept.append(replace(each, of=known.get(each.of, each.of), text=written(top)))
    return tuple(shapes), tuple(kept)


def _is_naming(element: Element, key: str, top: Element) -> bool:
    """Whether an attribute of an element in `top` names a link or a joint, or, as its name, `top` itself or a joint."""
    if key == "name":
        return element is top or element.tag == "joint"
    return _is_reference(element, key, top)


def _is_reference(element: Element, key: str, top: Element) -> bool:
    """Whether an attribute of an element in `top` names a link or a joint, but for names of `<joint>` in it."""
    return key in LINKS or key in _JOINTS or (key == _EITHER and element is top)


def _names(top: Element) -> Iterator[tuple[Element, str]]:
    """Attributes of an element, and of all in it, for which `_is_reference` holds."""
    waiting = [top]
    for element in waiting:
        yield from ((element, key) for key in element.attributes if _is_reference(element, key, top))
        waiting += element.children


def element_of(extension: Extension) -> Element:
    """The element of a kept text."""
    parts: list[Element] = []
    top = parse_xml(extension.text.encode("utf-8", "replace"), None, frozenset(), parts.append, texts=True)
    top.children = parts
    return top


def element_name(extension: Extension) -> str:
    """A kept element as findings call it."""
    top = element_of(extension)
    name = next((top.attributes[key] for key in ("name", _EITHER) if key in top.attributes), extension.of)
    return f"{top.tag} {quoted(name)}" if name else top.tag
