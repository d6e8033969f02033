"""Geometries and kept elements of models that are edited: those of links and joints that remain go along."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from typing import TYPE_CHECKING

from robodyn.builders.elements import Element, parse_xml, written
from robodyn.builders.findings import Notes, Report
from robodyn.description import Extension, Geometry
from robodyn.messages import quoted
from robodyn.records import dataclass

if TYPE_CHECKING:
    from robodyn.editing.described import Described
    from robodyn.editing.parts import Fields

_LINKS = frozenset({"link", "body", "body1", "body2", "site", "objname", "refname", "cranksite", "slidersite"})
_JOINTS = frozenset({"joint", "jointinparent"})
_EITHER = "reference"
"""Attributes that name a link, a moving joint, or a link or any joint."""
_OF_MOVING_JOINTS = frozenset({"safety_controller", "calibration"})
"""Elements of joints that mean nothing where a joint does not move."""


@dataclass(frozen=True)
class Names:
    """The names of a robot: its links, its joints that move, and all its joints."""

    links: frozenset[str]
    moving: frozenset[str]
    joints: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, fields: Fields) -> Names:
        """The names that the fields of a model have."""
        moving = frozenset(fields["joint_names"])
        return cls(frozenset(fields["link_names"]), moving, moving | frozenset(fields["link_joints"] or ()))

    @classmethod
    def of_robot(cls, robot: Described) -> Names:
        """The names of a robot that is written."""
        moving = frozenset(joint.name for joint in robot.joints if joint.type != "fixed")
        return cls(
            frozenset(link.name for link in robot.links), moving, frozenset(joint.name for joint in robot.joints)
        )

    def remaining(self, extension: Extension) -> Extension | None:
        """What is left of a kept element: without the joints in it that are gone; None if it names other things that
        are, or no joint is left."""
        top = element_of(extension)
        if extension.parent == "link" and extension.of not in self.links:
            return None
        if extension.parent == "joint" and extension.of not in self._joints_for(top):
            return None
        driven = [child for child in top.children if child.tag == "joint" and "name" in child.attributes]
        gone = [child for child in driven if child.attributes["name"] not in self.moving]
        if gone and len(gone) == len(driven):
            return None
        top.children = [child for child in top.children if child not in gone]
        if not all(self._has(element.attributes[key], key) for element, key in _names(top)):
            return None
        return replace(extension, text=written(top)) if gone else extension

    def _joints_for(self, element: Element) -> frozenset[str]:
        return self.moving if element.tag in _OF_MOVING_JOINTS else self.joints

    def _has(self, name: str, key: str) -> bool:
        if key == _EITHER:
            return name in self.links or name in self.joints
        return name in (self.links if key in _LINKS else self.moving)


def keep(fields: Fields) -> None:
    """Leave out geometries of links that are gone, and kept elements of links and joints that are."""
    names, notes = Names.of(fields), Notes()
    fields["geometries"] = tuple(each for each in fields["geometries"] if each.link in names.links)
    kept = []
    for each in fields["extensions"]:
        left = names.remaining(each)
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
