"""Reads values of SDF from the text of elements: numbers, vectors, poses, names and flags."""

from __future__ import annotations

import math
import re

from robodyn.core.description import Pose, Rotation, Vector3, rotation_from_rpy
from robodyn.core.findings import Notes, at_line
from robodyn.core.spatial import IDENTITY, Transform
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted
from robodyn.io.builders.axes import pose_transform
from robodyn.io.builders.elements import Element
from robodyn.io.builders.unread_elements import Survey
from robodyn.io.builders.values import bad_number, hint, number, numbers, off_unit, rotation_from_quaternion

IGNORED_TAGS = frozenset(
    {
        *("actor", "allow_auto_disable", "atmosphere", "audio", "audio_sink", "audio_source", "battery"),
        *(
            "enable_wind",
            "gripper",
            "gui",
            "joint_properties",
            "light",
            "magnetic_field",
            "material",
            "must_be_base_link",
        ),
        *(
            "particle_emitter",
            "physics",
            "plugin",
            "population",
            "projector",
            "road",
            "scene",
            "self_collide",
            "sensor",
        ),
        *("spherical_coordinates", "state", "velocity_decay", "wind"),
    }
)
"""Elements of SDF that do not affect the dynamics."""

NONE = frozenset[str]()
_POSE = frozenset({"relative_to", "frame", "rotation_format", "degrees"})
_IGNORED_ATTRIBUTES = frozenset({("joint", "cfm"), ("world", "type")})
_FORMATS = ("euler_rpy", "quat_xyzw")
_YES, _NO = ("1", "true"), ("0", "false")
_UNBOUNDED = ("inf", "+inf", "-inf", "infinity", "+infinity", "-infinity")
_COMMAS = re.compile(r"(?<=[0-9.]),(?=\s|\Z)")
"""A comma after a number. Some files have them in poses, and Gazebo and Drake read such files."""
_MOST_NAME = 1000
"""Longest name in characters. The limit matters because names of models become prefixes of their members' names."""

survey = Survey("SDF", IGNORED_TAGS, _IGNORED_ATTRIBUTES)


class Values:
    """Reads values of children by tag. The argument `parts` of its methods has the children of an element, as `survey`
    returns them. An invalid value raises a LoadError that names the element and the text.
    """

    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    def text(self, parts: dict[str, Element], tag: str, subject: str, attributes: frozenset[str] = NONE) -> str | None:
        """The text of a child, None if there is no such child."""
        if tag not in parts:
            return None
        survey(parts[tag], f"{subject} {tag}", NONE, attributes, self.notes, text=True)
        return parts[tag].text

    def number(self, parts: dict[str, Element], tag: str, subject: str, default: float) -> float:
        """A finite number."""
        text = self.text(parts, tag, subject)
        if not text:
            return default
        value = number(text)
        if value is None:
            raise bad_number(text, _where(parts, tag, subject))
        return value

    def attribute(self, element: Element, name: str, subject: str, default: float) -> float:
        """A finite number in an attribute."""
        text = element.attributes.get(name)
        value = default if text is None else number(text)
        if value is None:
            raise bad_number(text or "", f"{subject} {element.tag} {name}{at_line(element.line)}")
        return value

    def bound(self, parts: dict[str, Element], tag: str, subject: str, none_from: float) -> float | None:
        """A limit, None if there is none.

        SDF writes no limit as infinity, as numbers from `none_from` on (1e16 for positions), or as negative numbers
        (`none_from` is -1 for velocities and forces).
        """
        text = self.text(parts, tag, subject)
        if not text or text.casefold() in _UNBOUNDED:
            return None
        value = self.number(parts, tag, subject, 0.0)
        unlimited = abs(value) >= none_from if none_from > 0.0 else value < 0.0
        return None if unlimited else value

    def flag(self, parts: dict[str, Element], tag: str, subject: str, default: bool) -> bool:
        """A flag in the text of a child."""
        text = self.text(parts, tag, subject)
        return default if not text else _yes_or_no(text, _where(parts, tag, subject))

    def flag_of(self, element: Element, name: str, subject: str, default: bool) -> bool:
        """A flag in an attribute."""
        text = element.attributes.get(name, "").strip()
        return default if not text else _yes_or_no(text, f"{subject} {name}{at_line(element.line)}")

    def vector(
        self, parts: dict[str, Element], tag: str, subject: str, default: Vector3, attributes: frozenset[str] = NONE
    ) -> Vector3:
        """Three finite numbers."""
        text = self.text(parts, tag, subject, attributes)
        if not text:
            return default
        values = numbers(text, 3)
        if values is None:
            raise bad_number(text, _where(parts, tag, subject), 3)
        x, y, z = values
        return x, y, z

    def pose(self, parts: dict[str, Element], subject: str, related: bool = True) -> tuple[Transform, str]:
        """The transform of a `<pose>` and the name of its reference frame, "" if none is named."""
        element = parts.get("pose")
        if element is None:
            return IDENTITY, ""
        text = self.text(parts, "pose", subject, _POSE) or ""
        attributes = element.attributes
        reference = attributes.get("relative_to", attributes.get("frame", "")).strip()
        where = _where(parts, "pose", subject)
        if reference and not related:
            raise LoadError(f"{where}: it is given in the frame {quoted(reference)}; SDF allows no frame here")
        rotation_format = attributes.get("rotation_format", "euler_rpy").strip()
        if rotation_format not in _FORMATS:
            raise LoadError(
                f"{where}: its rotation_format is {quoted(rotation_format)}; allowed are {', '.join(_FORMATS)}"
            )
        degrees = _yes_or_no(attributes.get("degrees", "false"), where)
        if not text:
            return IDENTITY, reference
        count = 7 if rotation_format == "quat_xyzw" else 6
        values = numbers(text, count)
        if values is None and (values := numbers(_COMMAS.sub(" ", text), count)) is not None:
            message = "commas between the numbers of a pose are read as blanks"
            self.notes.gather("stray-text", subject, message, element.line)
        if values is None:
            raise bad_number(text, where, count)
        if not any(values[3:6]) and rotation_format == "euler_rpy":
            return pose_transform(Pose(values[:3])), reference  # type: ignore[arg-type]
        rotation = self._quaternion(values[3:], where, subject, element) if count == 7 else _rpy(values[3:], degrees)
        return pose_transform(Pose(values[:3], rotation)), reference  # type: ignore[arg-type]

    def _quaternion(self, xyzw: tuple[float, ...], where: str, subject: str, element: Element) -> Rotation:
        rotation, norm = rotation_from_quaternion(xyzw, where)
        if off_unit(norm):
            message = f"the quaternion {xyzw} has norm {norm:g}; scaled to norm 1"
            self.notes.add("quaternion-normalised", f"{subject} pose", message, element.line)
        return rotation

    def reference(self, parts: dict[str, Element], tag: str, subject: str, line: int | None) -> str:
        """The name of another element. It must not be missing."""
        text = self.text(parts, tag, subject)
        if not text:
            raise LoadError(f"{subject}{at_line(line)} has no <{tag}>, or a blank one; give a name")
        return text


def name_of(element: Element, kind: str) -> str:
    """The name of an element. It must not be missing or reserved."""
    name = element.attributes.get("name", "").strip()
    place = f"{kind}{at_line(element.line)}"
    if not name:
        raise LoadError(f"{place}: the attribute name of <{element.tag}> is missing or blank")
    return allowed_name(name, place)


def allowed_name(name: str, place: str) -> str:
    """Checks that a name is not reserved by SDF, and returns it."""
    if "$" in name:
        raise LoadError(f"{place}: the name {quoted(name)} holds a '$'{hint(name)}")
    if name == "world" or (len(name) > 3 and name.startswith("__") and name.endswith("__")):
        raise LoadError(f"{place}: the name {quoted(name)} is one that SDF keeps for itself; give another")
    if len(name) > _MOST_NAME:
        raise LoadError(f"{place}: the name {quoted(name)} has more than {_MOST_NAME} characters, the most allowed")
    return name


def _yes_or_no(text: str, where: str) -> bool:
    word = text.strip().casefold()
    if word not in (*_YES, *_NO):
        raise LoadError(f"{where}: {quoted(text)} is neither true nor false{hint(text)}")
    return word in _YES


def _rpy(values: tuple[float, ...], degrees: bool) -> Rotation:
    roll, pitch, yaw = (math.radians(value) if degrees else value for value in values)
    return rotation_from_rpy(roll, pitch, yaw)


def _where(parts: dict[str, Element], tag: str, subject: str) -> str:
    return f"{subject} {tag}{at_line(parts[tag].line)}"
