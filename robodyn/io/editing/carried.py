"""Geometries and kept elements of edited models: those of remaining links and joints are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from robodyn.core.description import Extension, Geometry
from robodyn.core.findings import Notes, Report
from robodyn.core.shapes import is_shape
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
"""Attributes that name moving joints."""
_EITHER = "reference"
"""The attribute of `<gazebo>` that names a link or any joint."""
_OWN = ""
"""Key for the joint that contains an element."""
_OF_MOVING_JOINTS = frozenset({"safety_controller", "calibration"})
"""Elements of joints that are meaningful for moving joints only."""


@dataclass(frozen=True)
class Names:
    """The names of a robot's links, moving joints, and all joints."""

    links: frozenset[str]
    moving: frozenset[str]
    joints: frozenset[str]

    @classmethod
    def of(cls, links: Iterable[str], moving: Iterable[str], joints: Iterable[str]) -> Names:
        """The names of a robot. `joints` may contain only fixed joints."""
        movers = frozenset(moving)
        return cls(frozenset(links), movers, movers | frozenset(joints))

    def has(self, name: str, key: str) -> bool:
        """True if the link or joint that an attribute names exists. `key`: the attribute."""
        if key in LINKS:
            return name in self.links
        if key in (_EITHER, _OWN):
            return name in self.joints or (key == _EITHER and name in self.links)
        return name in self.moving


def remaining(extension: Extension, is_lost: Callable[[str, str], bool]) -> Extension | None:
    """Removes lost joints, and transmissions of lost joints, from a kept element.

    Args:
        extension: the kept element.
        is_lost: called with a name and the attribute that names it; returns True if the link or joint is lost.

    Returns:
        The element without these parts. None if it refers to lost links or joints elsewhere, if it has lost all its
        joints, or if it is a transmission with a lost joint.
    """
    top = element_of(extension)
    owner_key = {"link": "link", "joint": "joint" if top.tag in _OF_MOVING_JOINTS else _OWN}.get(extension.parent)
    if owner_key is not None and is_lost(extension.of, owner_key):
        return None

    def is_gone(element: Element) -> bool:
        if element.tag == "joint" and element is not top:
            return is_lost(element.attributes.get("name", ""), "joint")
        return element.tag == "transmission" and any(is_gone(child) for child in element.children)

    joints = [child for child in top.children if child.tag == "joint"]
    remaining_children = [child for child in top.children if not is_gone(child)]
    if is_gone(top) or (joints and not any(child in remaining_children for child in joints)):
        return None
    is_changed = len(remaining_children) < len(top.children)
    top.children = remaining_children
    if any(is_lost(element.attributes[key], key) for element, key in _names(top)):
        return None
    return replace(extension, text=written(top)) if is_changed else extension


def keep(model: Model, fields: Fields) -> None:
    """Removes geometries of removed links, and kept elements of removed links and joints.

    `model`: the model before the edit. References to links or joints that it never had are kept.
    """
    links = set(fields["link_names"])
    _keep_pairs(fields, links)
    _keep_contacts(model, fields)
    fields["geometries"] = tuple(each for each in fields["geometries"] if each.link in links)
    if not fields["extensions"]:
        return
    before = Names.of(model.link_names, model.joint_names, model.link_joints or ())
    after = Names.of(links, fields["joint_names"], fields["link_joints"] or ())
    if before.links <= after.links and before.moving <= after.moving and before.joints <= after.joints:
        return
    kept, notes = [], Notes()
    for each in fields["extensions"]:
        rest = remaining(each, lambda name, key: before.has(name, key) and not after.has(name, key))
        if rest is None:
            message = "its link or joint is gone, or does not move any more; left out"
            notes.gather("extension-dropped", element_name(each), message)
            continue
        if rest is not each:
            message = "joints in it are gone, or do not move any more; these are left out"
            notes.gather("extension-dropped", element_name(each), message)
        kept.append(rest)
    fields["extensions"] = tuple(kept)
    fields["report"] = Report((*fields["report"], *notes.findings()))


def _keep_pairs(fields: Fields, links: set[str]) -> None:
    """Keeps listed pairs of shapes whose links remain, on different bodies."""
    if fields["collision_pairs"] is None:
        return
    body = dict(zip(fields["link_names"], fields["link_body"].tolist(), strict=True))
    shapes = [each.link for each in fields["geometries"] if is_shape(each)]
    remaining_shapes = [k for k, link in enumerate(shapes) if link in links]
    new = {k: number for number, k in enumerate(remaining_shapes)}
    fields["collision_pairs"] = tuple(
        (new[i], new[j])
        for i, j in fields["collision_pairs"]
        if i in new and j in new and body[shapes[i]] != body[shapes[j]]
    )


def _keep_contacts(model: Model, fields: Fields) -> None:
    """Keeps contacts between links that remain, on different bodies, and rows of joints and constraints that remain."""
    contacts = fields["contacts"]
    if contacts is None:
        return
    notes, joints = Notes(), set(fields["joint_names"])
    body = {"": -1, **dict(zip(fields["link_names"], fields["link_body"].tolist(), strict=True))}
    pairs = []
    for pair in contacts.pairs:
        one, other = (body.get(shape.link) for shape in (pair.first, pair.second))
        if one is not None and other is not None and one != other:
            pairs.append(pair)
        else:
            named = " and ".join(quoted(shape.link or "world") for shape in (pair.first, pair.second))
            notes.gather("contact-dropped", f"contact of {named}", "its links are gone, or on one body; left out")
    waiting = [(each.name, rows) for each, rows in zip(model.constraints, contacts.equalities, strict=True)]
    held = []
    for each in fields["constraints"]:
        k = next(k for k, (name, _) in enumerate(waiting) if name == each.name)
        held.append(waiting.pop(k)[1])
    rows = ([row for row in some if row.joint in joints] for some in (contacts.limits, contacts.dry_friction))
    limits, friction = map(tuple, rows)
    kept = replace(contacts, pairs=tuple(pairs), limits=limits, dry_friction=friction, equalities=tuple(held))
    fields["contacts"] = kept
    fields["report"] = Report((*fields["report"], *notes.findings()))


AFTERWARDS = "wanted a model without them, dataclasses.replace(model, contacts=None), and with_contacts afterwards"
"""What to do where an edit does not carry contacts."""


def renamed(
    geometries: Iterable[Geometry], extensions: Iterable[Extension], prefix: str, names: Mapping[str, str]
) -> tuple[tuple[Geometry, ...], tuple[Extension, ...]]:
    """Renames links and joints in geometries and kept elements, for a robot that becomes part of another one.

    Kept elements of MJCF have names in known attributes. Those of URDF have names in many other places, such as
    parameters of plugins. There, every attribute and every text that equals the name of a link, a joint, a shape or a
    kept element is renamed, except for types and numbers.

    Args:
        geometries: geometries of the robot.
        extensions: kept elements of the robot.
        prefix: prefix for the names of shapes and kept elements.
        names: new names of links and joints by their old names.
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
        queue = [top]
        for element in queue:
            for key, value in element.attributes.items():
                if key == "name" and element.tag == "actuator":
                    element.attributes[key] = f"{prefix}{value}"
                elif _is_naming(element, key, top) or (
                    each.format == "urdf" and key != "type" and number(value) is None
                ):
                    element.attributes[key] = known.get(value, value)
            if anywhere and element.text in known and number(element.text) is None:
                element.pieces = [known[element.text]]
            queue += element.children
        kept.append(replace(each, of=known.get(each.of, each.of), text=written(top)))
    return tuple(shapes), tuple(kept)


def _is_naming(element: Element, key: str, top: Element) -> bool:
    """True if an attribute of an element in `top` names a link, a joint or `top` itself, references and definitions."""
    if key == "name":
        return element is top or element.tag == "joint"
    return _is_reference(element, key, top)


def _is_reference(element: Element, key: str, top: Element) -> bool:
    """True if an attribute of an element in `top` refers to a link or a joint, except for the name of a `<joint>`."""
    return key in LINKS or key in _JOINTS or (key == _EITHER and element is top)


def _names(top: Element) -> Iterator[tuple[Element, str]]:
    """Attributes of an element and its descendants for which `_is_reference` holds."""
    queue = [top]
    for element in queue:
        yield from ((element, key) for key in element.attributes if _is_reference(element, key, top))
        queue += element.children


def element_of(extension: Extension) -> Element:
    """Parses the text of a kept element."""
    parts: list[Element] = []
    top = parse_xml(extension.text.encode("utf-8", "replace"), None, frozenset(), parts.append, texts=True)
    top.children = parts
    return top


def element_name(extension: Extension) -> str:
    """The name of a kept element in findings."""
    top = element_of(extension)
    name = next((top.attributes[key] for key in ("name", _EITHER) if key in top.attributes), extension.of)
    return f"{top.tag} {quoted(name)}" if name else top.tag
