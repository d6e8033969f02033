"""Functions for all writers of robot files: text with a report, numbers and names in XML, conversions of rotations."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from robodyn.core.description import Rotation
from robodyn.core.findings import Notes, Report
from robodyn.internals.errors import ArgumentError
from robodyn.internals.files import path_text
from robodyn.internals.messages import brief, quoted

if TYPE_CHECKING:
    from robodyn.core.model import Model

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LINES = {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}


class RobotText(str):
    """The text of a robot file. `report` lists what is written differently, not written, or readable by few
    programs."""

    report: Report

    @classmethod
    def of(cls, lines: Iterable[str], notes: Notes) -> RobotText:
        """Joins lines, and attaches findings."""
        text = cls("\n".join([*lines, ""]))
        text.report = Report(notes.findings())
        return text


_UNREAD = frozenset(
    {
        "ignored-tag",
        "unknown-tag",
        "shape-not-read",
        "sdf-added-mass",
        "sdf-constraint",
        "sdf-initial-pose",
        "sdf-spring",
        "mjcf-damping",
        "mjcf-equality",
        "mjcf-flex",
        "mjcf-fluid",
        "mjcf-gravity-compensation",
        "mjcf-initial-pose",
        "mjcf-limit",
        "mjcf-missing-file",
        "mjcf-option",
        "mjcf-softness",
        "mjcf-spring",
        "mjcf-tendon",
    }
)
"""Codes of findings about elements of a file that a model cannot represent."""


def note_unread(model: Model, notes: Notes) -> None:
    """Report that elements which were omitted in loading are not written."""
    for each in model.report:
        is_constraint = each.code == "mjcf-equality" and each.severity == "info"
        if each.code in _UNREAD and not is_constraint:
            for element in each.elements or (each.element,):
                notes.gather("not-written", element, f"loading left it out: {each.message}")


def note_pairs(model: Model, notes: Notes) -> None:
    """Report that pairs of shapes are not written: a reader chooses them anew."""
    if model.collision_pairs is not None:
        message = (
            f"the {len(model.collision_pairs)} pairs of shapes that distances are about; reading chooses them anew"
        )
        notes.add("not-written", f"robot {quoted(model.name)}", message)


def folder_of(what: str, given: object) -> Path | None:
    """The absolute path of a user's folder, with symbolic links resolved; None for None.

    Raises:
        ArgumentError: no path.
    """
    if given is None:
        return None
    path = path_text(given)
    if path is None:
        raise ArgumentError(f"{what}: got {brief(given)}; wanted the path of a folder, or None")
    return Path(os.path.realpath(path))


def name(what: str, given: str) -> str:
    """A name as an attribute's value, in quotes.

    Raises:
        ArgumentError: the name is blank or contains characters that XML forbids.
    """
    if _NOT_XML.search(given) or not given.strip():
        raise ArgumentError(f"{what} {quoted(given)} has a name that XML cannot hold; wanted printable characters")
    return quoteattr(given, _LINES)


def numbered(name: str, taken: dict[str, int]) -> str:
    """Appends a number to a name that is in `taken`. The result is added to `taken`."""
    result = name
    while result in taken:
        taken[name] += 1
        result = f"{name}_{taken[name]}"
    taken[result] = 1
    return result


def text_value(given: str) -> str:
    """A text as an attribute's value, in quotes. Characters that XML forbids become "?"."""
    return quoteattr(_NOT_XML.sub("?", given), _LINES)


def values(numbers: Iterable[float]) -> str:
    """Numbers as an attribute's value, in quotes. Reading them back gives the same numbers."""
    return '"' + " ".join(repr(float(x) + 0.0) for x in numbers) + '"'


def rpy_of(rotation: Rotation) -> tuple[float, float, float]:
    """Roll, pitch and yaw of a rotation Rz(yaw) Ry(pitch) Rx(roll), accurate to rounding errors for all rotations.

    At a pitch of pi/2 rounding errors determine the yaw. The roll is computed from Rz(yaw)' R, which compensates for
    it.
    """
    R00, R01, R02, R10, R11, R12, R20, _, _ = rotation
    yaw = math.atan2(R10, R00)
    c, s = math.cos(yaw), math.sin(yaw)
    pitch = math.atan2(-R20, c * R00 + s * R10)
    roll = math.atan2(s * R02 - c * R12, c * R11 - s * R01)
    return roll, pitch, yaw


def quaternion_of(rotation: Rotation) -> tuple[float, float, float, float]:
    """The unit quaternion wxyz of a rotation. It uses the row of the largest component, for accuracy."""
    R00, R01, R02, R10, R11, R12, R20, R21, R22 = rotation
    squares = (1.0 + R00 + R11 + R22, 1.0 + R00 - R11 - R22, 1.0 - R00 + R11 - R22, 1.0 - R00 - R11 + R22)
    k = max(range(4), key=squares.__getitem__)
    rows = (
        (squares[0], R21 - R12, R02 - R20, R10 - R01),
        (R21 - R12, squares[1], R10 + R01, R02 + R20),
        (R02 - R20, R10 + R01, squares[2], R21 + R12),
        (R10 - R01, R02 + R20, R21 + R12, squares[3]),
    )
    length = math.sqrt(sum(x * x for x in rows[k]))
    w, x, y, z = (part / length for part in rows[k])
    return w, x, y, z
