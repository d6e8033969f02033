"""What an `<include>` changes in the model that it includes, `<experimental:params>`, as libsdformat does it.

Each child stands for an element of the model: `element_id` says where that is, by names from the model inwards, as
"link::collision", and `action` what becomes of it: add, modify, remove or replace. Without an action the children of
the child have theirs.
"""

from __future__ import annotations

from robodyn.core.findings import Notes, at_line
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import near_misses, quoted
from robodyn.io.builders.elements import MAX_DEPTH, Element
from robodyn.io.builders.sdf_values import IGNORED_TAGS

PARAMETERS = "experimental:params"

MAX_LOOKED_AT = 20_000_000
"""Most elements that are looked at for those that are to be changed, counting each as often."""

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
"""Elements that libsdformat puts where they are missing, so that they can be modified."""


class Changes:
    """Changes models of one file and of all that it includes."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._looked_at = 0
        self._subject = ""

    def apply(self, model: Element, parameters: Element, subject: str, version: tuple[int, int]) -> Element:
        """A copy of a model that an include changes. `version`: of the file with the model.

        Raises:
            LoadError: a change that cannot be made.
        """
        self._subject, made = subject, _copied(model)
        for each in parameters.children:
            if each.tag in _NO_PART or not self._change(made, each, version):
                said = f"change <{each.tag}>, which has no part in dynamics; skipped"
            else:
                said = f"change <{each.tag}> of what is included"
            self._notes.gather("sdf-include", subject, f"its <{PARAMETERS}> {said}", each.line, "info")
        return made

    def _change(self, model: Element, change: Element, version: tuple[int, int]) -> bool:
        """Make one change; False where it is inside of what has no part in dynamics."""
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
        """What is to become of the i-th child of an element; None: of the one that `change` stands for."""
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
        """Change attributes and texts of an element, and of those inside."""
        target.attributes |= _attributes(change)
        if change.text:
            target.pieces = [change.text]
            return
        for each in change.children:
            if each.tag in _NO_PART:
                continue
            if each.tag in _DEFAULTED and not any(other.tag == each.tag for other in target.children):
                target.children.append(Element(each.tag, {}, None))
            found = target.children[self._child(target, each, renamed=True)]
            if each.text or each.children:
                self._modify(each, found)
            elif found.children:
                raise self._error(each, "it says nothing that is to be modified")
            else:  # back to the default
                found.pieces = None
                found.attributes |= _attributes(each)

    def _find(self, top: Element, path: str, change: Element) -> tuple[Element, int] | None:
        """Where the element of a path is, or one on the way that has no part: what it is in, and its place there."""
        self._look_at(top)
        found = []
        for i, each in enumerate(top.children):
            name = _name(each)
            if name and (name == path or path.startswith(f"{name}::")):
                found.append((len(name), i))
        for length, i in sorted(found, key=lambda each: -each[0]):
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
        """The place of the child that an element stands for: that of its tag and name, without a name the first.
        `renamed`: without one of its name the first as well, whose name is changed."""
        self._look_at(target)
        alike = [i for i, each in enumerate(target.children) if each.tag == change.tag]
        name = change.attributes.get("name")
        named = [i for i in alike if target.children[i].attributes.get("name") == name]
        found = alike if name is None or (renamed and not named) else named
        if not found:
            called = "" if name is None else f" {quoted(name)}"
            raise self._error(change, f"there is no <{change.tag}>{called} in <{target.tag}> {quoted(_name(target))}")
        return found[0]

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
    """An element of its own. `taken`: from the parameters: without what they say of it, and without lines, which are
    of another file."""
    attributes = _attributes(element) if taken else dict(element.attributes)
    made = Element(element.tag, attributes, None if taken else element.line)
    made.pieces = element.pieces
    made.children = [_copied(each, taken) for each in element.children]
    return made


def _attributes(change: Element) -> dict[str, str]:
    """The attributes that are those of the element itself."""
    return {key: value for key, value in change.attributes.items() if key not in (_ID, _ACTION)}


def _name(element: Element) -> str:
    """What a path calls an element; of an include what that calls the model, "" where it does not say."""
    if element.tag == "include":
        return next((each.text for each in element.children if each.tag == "name"), "")
    return element.attributes.get("name", "").strip()


def _has_axes(element: Element) -> bool:
    return element.tag in _AXES or any(map(_has_axes, element.children))
