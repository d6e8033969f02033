"""Applies `<experimental:params>`: changes that an `<include>` makes to the included model, as in libsdformat.

Each child of `<experimental:params>` refers to an element of the model. Its `element_id` is the path of the element by
names inside the model, such as "link::collision". Its `action` is add, modify, remove or replace. A child without an
action has children with their own actions.
"""

from __future__ import annotations

from robodyn.core.findings import Notes, at_line
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import near_misses, quoted
from robodyn.io.builders.elements import MAX_DEPTH, Element
from robodyn.io.builders.sdf_values import IGNORED_TAGS

PARAMETERS = "experimental:params"

MAX_LOOKED_AT = 20_000_000
"""Largest number of elements that are visited in searches. An element counts each time that it is visited."""

_ID, _ACTION = "element_id", "action"
_ACTIONS = ("add", "modify", "remove", "replace")
_NO_PART = IGNORED_TAGS - {"material"}
_AXES = frozenset({"axis", "axis2"})
_DEFAULTED = frozenset(
    {
        *("ixx", "ixy", "ixz", "iyy", "iyz", "izz", "xyz", "limit", "lower", "upper", "spring_reference"),
        *("spring_stiffness", "multiplier", "offset", "reference", "geometry", "size", "radius", "length", "radii"),
    }
)
"""Elements that libsdformat creates with defaults if they are missing, so that they can be modified."""


class Changes:
    """Applies changes to the models of one file and its includes."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._looked_at = 0
        self._subject = ""

    def apply(self, model: Element, parameters: Element, subject: str, version: tuple[int, int]) -> Element:
        """A copy of a model with the changes of an include.

        Args:
            model: the model.
            parameters: the element with the changes.
            subject: name of the include in messages.
            version: SDF version of the model's file.

        Raises:
            LoadError: an invalid change.
        """
        self._subject, copy = subject, _copied(model)
        for each in parameters.children:
            if each.tag in _NO_PART or not self._change(copy, each, version):
                message = f"change <{each.tag}>, which has no part in dynamics; skipped"
            else:
                message = f"change <{each.tag}> of what is included"
            self._notes.gather("sdf-include", subject, f"its <{PARAMETERS}> {message}", each.line, "info")
        return copy

    def _change(self, model: Element, change: Element, version: tuple[int, int]) -> bool:
        """Make one change. Returns False if it is inside an element that does not affect the dynamics."""
        path, action = change.attributes.get(_ID), change.attributes.get(_ACTION)
        name = change.attributes.get("name", "").strip()
        if path is None:
            raise self._error(change, f"it has no {_ID}, which says what it changes")
        if path.endswith("::") or path.count("::") > MAX_DEPTH:
            raise self._error(change, f"wanted names with '::' between them, at most {MAX_DEPTH}")
        if version < (1, 7) and _has_axes(change):
            raise self._error(
                change, f"axes of a file of version 1.{version[1]} cannot be changed; wanted 1.7 or newer"
            )
        if action == "add" and not name:
            raise self._error(change, "what is added wants a name")
        place = (model, -1) if action == "add" and not path else self._find(model, path, change)
        if place is None:
            near = near_misses(path, filter(None, map(_name, model.children)), 3)
            raise self._error(change, f"there is no such element; near it are {', '.join(map(quoted, near)) or 'none'}")
        parent, i = place
        target = parent.children[i] if i >= 0 else model
        if target.tag in _NO_PART:
            return False
        if action is None:
            for each in change.children:
                if each.tag not in _NO_PART:
                    self._act(each.attributes.get(_ACTION, ""), each, target, None)
        elif action == "add" and self._holds(target, change.tag, name):
            raise self._error(change, f"there is a <{change.tag}> {quoted(name)} already")
        else:
            self._act(action, change, target if action == "add" else parent, i)
        return True

    def _act(self, action: str, change: Element, parent: Element, i: int | None) -> None:
        """Apply an action to the i-th child of an element. None: to the child that `change` refers to."""
        if action not in _ACTIONS:
            raise self._error(change, f"its {_ACTION} is {quoted(action)}; allowed are {', '.join(_ACTIONS)}")
        if action == "add":
            parent.children.append(_copied(change, taken=True))
            return
        i = self._child(parent, change, renamed=action == "modify") if i is None else i
        target = parent.children[i]
        if action == "modify":
            self._modify(change, target)
        elif action == "replace":
            if "name" in target.attributes and "name" not in change.attributes:
                raise self._error(change, "what replaces an element with a name wants one, too")
            parent.children[i] = _copied(change, taken=True)
        elif not change.children:
            del parent.children[i]
        else:
            for each in change.children:
                if each.tag not in _NO_PART:
                    del target.children[self._child(target, each)]

    def _modify(self, change: Element, target: Element) -> None:
        """Change attributes and texts of an element and its descendants."""
        target.attributes |= _attributes(change)
        if change.text:
            target.pieces = [change.text]
            return
        for each in change.children:
            if each.tag in _NO_PART:
                continue
            if each.tag in _DEFAULTED and not any(other.tag == each.tag for other in target.children):
                target.children.append(Element(each.tag, {}, None))
            child = target.children[self._child(target, each, renamed=True)]
            if each.text or each.children:
                self._modify(each, child)
            elif child.children:
                raise self._error(each, "it says nothing that is to be modified")
            else:  # restore the default
                child.pieces = None
                child.attributes |= _attributes(each)

    def _find(self, top: Element, path: str, change: Element) -> tuple[Element, int] | None:
        """Find the element of a path, or one on the path that does not affect the dynamics.

        Returns:
            Its parent, and its index among the parent's children; None if there is no such element.
        """
        self._look_at(top)
        matches = []
        for i, each in enumerate(top.children):
            name = _name(each)
            if name and (name == path or path.startswith(f"{name}::")):
                matches.append((len(name), i))
        for length, i in sorted(matches, key=lambda each: -each[0]):
            each = top.children[i]
            if each.tag == "include":
                raise self._error(change, f"the model includes {quoted(_name(each))} in turn, which cannot be changed")
            if length == len(path):
                if each.tag == change.tag or change.attributes.get(_ACTION) == "add":
                    return top, i
            elif each.tag in _NO_PART:
                return top, i
            elif (place := self._find(each, path[length + 2 :], change)) is not None:
                return place
        return None

    def _child(self, target: Element, change: Element, renamed: bool = False) -> int:
        """The index of the child that `change` refers to, by its tag and name.

        Without a name it is the first child with the tag. With `renamed` this also holds if no child has the name.
        """
        self._look_at(target)
        alike = [i for i, each in enumerate(target.children) if each.tag == change.tag]
        name = change.attributes.get("name")
        named = [i for i in alike if target.children[i].attributes.get("name") == name]
        matching = alike if name is None or (renamed and not named) else named
        if not matching:
            shown = "" if name is None else f" {quoted(name)}"
            raise self._error(change, f"there is no <{change.tag}>{shown} in <{target.tag}> {quoted(_name(target))}")
        return matching[0]

    def _holds(self, element: Element, tag: str, name: str) -> bool:
        self._look_at(element)
        return any(each.tag == tag and _name(each) == name for each in element.children)

    def _look_at(self, element: Element) -> None:
        self._looked_at += len(element.children)
        if self._looked_at > MAX_LOOKED_AT:
            raise LoadError(f"<{PARAMETERS}> look at more than {MAX_LOOKED_AT} elements, the most that are looked at")

    def _error(self, change: Element, text: str) -> LoadError:
        where = change.attributes.get(_ID)
        shown = f"<{change.tag}>" if where is None else f"<{change.tag} {_ID}={quoted(where)}>"
        return LoadError(f"{self._subject} {PARAMETERS} {shown}{at_line(change.line)}: {text}")


def _copied(element: Element, taken: bool = False) -> Element:
    """A deep copy of an element. `taken`: True if it comes from the parameters: the copy then has no id, no action and
    no line, because its line belongs to another file."""
    attributes = _attributes(element) if taken else dict(element.attributes)
    copy = Element(element.tag, attributes, None if taken else element.line)
    copy.pieces = element.pieces
    copy.children = [_copied(each, taken) for each in element.children]
    return copy


def _attributes(change: Element) -> dict[str, str]:
    """Attributes of a change without its id and action."""
    return {key: value for key, value in change.attributes.items() if key not in (_ID, _ACTION)}


def _name(element: Element) -> str:
    """The name of an element in paths. For an include it is its `<name>`, "" if it has none."""
    if element.tag == "include":
        return next((each.text for each in element.children if each.tag == "name"), "")
    return element.attributes.get("name", "").strip()


def _has_axes(element: Element) -> bool:
    return element.tag in _AXES or any(map(_has_axes, element.children))
