"""Geometries and kept elements of models that are edited: those of links and joints that remain go along."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from robodyn.builders.elements import Element, parse_xml, written
from robodyn.builders.findings import Notes, Report
from robodyn.description import Extension, Geometry
from robodyn.messages import quoted
from robodyn.records import dataclass

if TYPE_CHECKING:
    from robodyn.editing.parts import Fields
    from robodyn.model import Model

_LINKS = frozenset({"link", "body", "body1", "body2", "site", "objname", "refname", "cranksite", "slidersite"})
_JOINTS = frozenset({"joint", "jointinparent"})
_EITHER, _OWN = "reference", ""
"""Attributes that name a link, a joint that moves, a link or any joint; and what stands for the joint around it."""
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
        if key in _LINKS:
            return name in self.links
        if key in (_EITHER, _OWN):
            return name in self.joints or (key == _EITHER and name in self.links)
        return name in self.moving


def remaining(extension: Extension, is_lost: Callable[[str, str], bool]) -> Extension | None:
    """What is left of a kept element: without the joints in it that are lost; None if it names other things that are,
    or no joint is left.

    `is_lost`: of a name and the key of the attribute that names it.
    """
    top = element_of(extension)
    driven = top.tag in _OF_MOVING_JOINTS
    own = {"link": "link", "joint": "joint" if driven else _OWN}.get(extension.parent)
    if own is not None and is_lost(extension.of, own):
        return None
    joints = [child for child in top.children if child.tag == "joint" and "name" in child.attributes]
    gone = [child for child in joints if is_lost(child.attributes["name"], "joint")]
    if gone and len(gone) == len(joints):
        return None
    top.children = [child for child in top.children if child not in gone]
    if any(is_lost(element.attributes[key], key) for element, key in _names(top)):
        return None
    return replace(extension, text=written(top)) if gone else extension


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
    kept, notes = [], Notes()
    for each in fields["extensions"]:
        left = remaining(each, lambda name, key: before.has(name, key) and not after.has(name, key))
        if left is None:
            message = "its link or joint is gone, or does not move any more; left out"
            notes.gather("extension-dropped", element_name(each), message)
        else:
            kept.append(left)
    fields["extensions"] = tuple(kept)
    fields["report"] = Report((*fields["report"], *notes.findings()))


def prefixed(
    geometries: Iterable[Geometry], extensions: Iterable[Extension], prefix: str
) -> tuple[tuple[Geometry, ...], tuple[Extension, ...]]:
    """Both with a prefix before all names of links and joints, and before those of kept elements."""
    if not prefix:
        return tuple(geometries), tuple(extensions)
    named = [(each, f"{prefix}{each.name}" if each.name else "") for each in geometries]
    shapes = tuple(replace(each, link=f"{prefix}{each.link}", name=name) for each, name in named)
    return shapes, tuple(_prefixed(each, prefix) for each in extensions)


def _prefixed(extension: Extension, prefix: str) -> Extension:
    top = element_of(extension)
    own = [each for each in (top, *top.children) if each is top or each.tag in ("joint", "actuator")]
    for element, key in (*_names(top), *((each, "name") for each in own if "name" in each.attributes)):
        element.attributes[key] = f"{prefix}{element.attributes[key]}"
    of = f"{prefix}{extension.of}" if extension.of else ""
    return replace(extension, of=of, text=written(top))


def _names(top: Element) -> Iterator[tuple[Element, str]]:
    """Attributes of an element, and of all in it, that name a link or a joint, but for names of `<joint>` in it."""
    waiting = [top]
    for element in waiting:
        for key in element.attributes:
            if key in _LINKS or key in _JOINTS or (key == _EITHER and element is top):
                yield element, key
        waiting += element.children


def element_of(extension: Extension) -> Element:
    """The element of a kept text."""
    parts: list[Element] = []
    top = parse_xml(extension.text.encode(), None, frozenset(), parts.append, texts=True)
    top.children = parts
    return top


def element_name(extension: Extension) -> str:
    """A kept element as findings call it."""
    top = element_of(extension)
    name = next((top.attributes[key] for key in ("name", _EITHER) if key in top.attributes), extension.of)
    return f"{top.tag} {quoted(name)}" if name else top.tag
