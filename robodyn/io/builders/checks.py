"""Checks of every RobotDescription, from any source, before it becomes a Model.

This module checks fields and the tree; `check_bodies` checks masses and inertias; `check_joints` checks limits,
coefficients and mimics. The time is linear in the number of links, and no function is recursive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from robodyn.core.constraints.kinds import KINDS as CONSTRAINTS
from robodyn.core.description import (
    IDENTITY,
    JOINT_TYPES,
    TYPES_WITHOUT_AXIS,
    Finding,
    Inertial,
    Joint,
    Limits,
    Link,
    Mimic,
    Pose,
    RobotDescription,
    Vector3,
)
from robodyn.core.findings import FINDINGS, LAST_LINE, Notes, Report, at_line, cycle, is_finding, listed
from robodyn.internals import strict_types
from robodyn.internals.arguments import finite_real, flag, integer, one_of
from robodyn.internals.errors import ArgumentError, LoadError
from robodyn.internals.messages import brief, printable, quoted
from robodyn.io.builders.check_bodies import check_inertials, check_massless
from robodyn.io.builders.check_joints import Mimics, check_joint_values, resolve_mimics

__all__ = ["FINDINGS", "check"]

_Part = TypeVar("_Part", Link, Joint, Inertial, Pose, Limits, Mimic, Finding)

MIMIC = ("follow", "ignore")
"""Ways to handle mimicking joints."""

_WORLD = '; add <link name="{}"/> where the robot is held by the world'
_SKIPPED = ("ignored-tag", "kept-tag", "unknown-tag")
_LIMITS = tuple((name, f"limits {name}") for name in ("lower", "upper", "effort", "velocity"))

UNIT = 1e-9
"""Largest deviation of an axis from unit length, and of a rotation from an orthonormal matrix. Identities between
algorithms hold to about this accuracy, and all builders are more accurate."""

PARALLEL = 1e-6
"""Sine of the angle between a universal joint's axes below which they count as parallel. Such a joint is singular."""


def check(description: RobotDescription, *, mimic: str = "follow", strict: bool = True) -> RobotDescription:
    """Check a description and return it with findings appended to its report, and with every number a float.

    Checking twice changes nothing. Findings are never removed from a report: clear it before you check a description
    that was changed.

    Args:
        description: the robot.
        mimic: "follow" checks mimics and drops those of fixed joints; "ignore" drops all, so that every joint moves
            independently.
        strict: True to refuse negative masses, damping, friction or armature, and principal moments of inertia that are
            negative by half of the largest or more (smaller ones are reported). False to keep such values and report
            them with severity "error".

    Raises:
        LoadError: an invalid description; the message names the link or joint, its value and the allowed values.
        ArgumentError: invalid arguments.
    """
    return check_and_resolve(description, mimic=mimic, strict=strict)[0]


def check_and_resolve(
    description: RobotDescription, *, mimic: str = "follow", strict: bool = True
) -> tuple[RobotDescription, Mimics]:
    """The description that `check` returns, and the resolved mimics."""
    sound = strict_types.of_kind(description, RobotDescription)
    if sound is None:
        raise ArgumentError(f"description: a RobotDescription is wanted, not {strict_types.type_name(description)}")
    mimic, strict = one_of("mimic", mimic, MIMIC), flag("strict", strict)
    return resolve(_with_checked_fields(sound), mimic, strict)


def resolve(
    description: RobotDescription, mimic: str, strict: bool, directed: bool = False
) -> tuple[RobotDescription, Mimics]:
    """Like `check_and_resolve`, for a description from a reader: the types of its fields are right and all numbers are
    finite floats, so only values are checked.

    `directed`: True if axes have unit length and rotations are orthonormal because the reader computed them.
    """
    notes = Notes()
    order = _check_tree(description)
    if not directed:
        _check_directions(description)
    for joint in description.joints:
        if joint.type == "universal":
            _check_universal(joint, notes)
    check_inertials(description.links, strict, notes)
    check_joint_values(description.joints, strict, notes)
    mimics = resolve_mimics(description.joints, mimic == "follow", notes)
    check_massless(description.links, mimics, order, notes)
    known = set(description.report)
    new_findings = tuple(finding for finding in notes.findings() if finding not in known)
    if mimics.joints != description.joints or new_findings:
        description = replace(description, joints=mimics.joints, report=Report((*description.report, *new_findings)))
    return description, mimics


def unknown_joint_type(subject: str, kind: object, line: int | None) -> LoadError:
    """The error for an unknown joint type."""
    shown = quoted(strict_types.text_or_none(kind) or brief(kind))
    return LoadError(f"{subject}{at_line(line)} has type {shown}; allowed are {', '.join(JOINT_TYPES)}")


def _with_checked_fields(description: RobotDescription) -> RobotDescription:
    """Checks that all fields have the right types and all numbers are finite, and converts numbers to floats."""
    constraints = description.constraints
    fields: dict[str, Any] = {
        "name": _text(description.name, "robot", "name", "a text"),
        "links": tuple(map(_checked_link, _parts(description, "links", Link))),
        "joints": tuple(map(_checked_joint, _parts(description, "joints", Joint))),
        "report": _parts(description, "report", Finding),
        "constraints": strict_types.members(constraints) if strict_types.is_a(constraints, tuple) else (None,),
    }
    valid = all(map(is_finding, fields["report"]))
    _require(valid, "robot", "report", description.report, "a tuple of findings, whose fields have their types,")
    valid = all(strict_types.is_whole(each, *CONSTRAINTS) for each in fields["constraints"])
    _require(
        valid, "robot", "constraints", constraints, "a tuple of Point, Weld, Rod, Rolling, Coupling or Lock objects"
    )
    changes = {name: value for name, value in fields.items() if not _same(value, getattr(description, name))}
    return replace(description, **changes) if changes else description


def _parts(description: RobotDescription, what: str, kind: type[_Part]) -> tuple[_Part, ...]:
    """The members of a field, as objects of exactly this class."""
    parts = getattr(description, what)
    members = strict_types.members(parts) if strict_types.is_a(parts, tuple) else (None,)
    parts_of_kind = tuple(part for part in (strict_types.of_kind(each, kind) for each in members) if part is not None)
    _require(len(parts_of_kind) == len(members), "robot", what, parts, f"a tuple of {kind.__name__} objects")
    return parts_of_kind


def _same(value: Any, given: Any) -> bool:
    """True if a field contains the same objects already, as in descriptions from builders."""
    if value is given:
        return True
    parts = (type(given) is tuple or type(given) is Report) and len(value) == len(given)
    return parts and all(part is each for part, each in zip(value, given, strict=True))


def _updated(part: _Part, **values: Any) -> _Part:
    """A copy of the part with these values; the part itself if it has them already, as in descriptions from
    builders."""
    for name, value in values.items():
        if getattr(part, name) is not value:
            return replace(part, **values)
    return part


def _exactly(kind: type[_Part], value: object, part: Link | Joint, what: str, wanted: str) -> _Part:
    """Converts `value` from any subclass to exactly this class."""
    converted = strict_types.of_kind(value, kind)
    if converted is None:
        raise _field_error(part, what, value, wanted)
    return converted


def _checked_link(link: Link) -> Link:
    link = _updated(link, name=_name(link.name, "link"), line=_line(link.line, "link"))
    if link.inertial is None:
        return link
    inertial = _exactly(Inertial, link.inertial, link, "inertial", "an Inertial or None")
    mass, inertia = _float(inertial.mass, link, "mass"), _floats(inertial.inertia, 6, link, "inertia")
    pose = _checked_pose(inertial.pose, link)
    return _updated(link, inertial=_updated(inertial, mass=mass, inertia=inertia, pose=pose))


def _line(value: object, what: str) -> int | None:
    number = None if value is None else integer(value)
    sound = value is None or (number is not None and 0 <= number < LAST_LINE)
    _require(sound, what, "line", value, "a number or None")
    return number


def _checked_joint(joint: Joint) -> Joint:
    joint = _updated(joint, name=_name(joint.name, "joint"), line=_line(joint.line, "joint"))
    kind = strict_types.text_or_none(joint.type)
    if kind is None or kind not in JOINT_TYPES:
        raise unknown_joint_type(f"joint {quoted(joint.name)}", joint.type, joint.line)
    return _updated(
        joint,
        type=kind,
        parent=_text(joint.parent, joint, "parent", "the name of a link"),
        child=_text(joint.child, joint, "child", "the name of a link"),
        limits=_checked_limits(joint.limits, joint),
        origin=_checked_pose(joint.origin, joint),
        axis=_floats(joint.axis, 3, joint, "axis"),
        axis2=_floats(joint.axis2, 3, joint, "axis2"),
        mimic=None if joint.mimic is None else _checked_mimic(joint.mimic, joint),
        pitch=_float(joint.pitch, joint, "pitch"),
        damping=_float(joint.damping, joint, "damping"),
        friction=_float(joint.friction, joint, "friction"),
        armature=_float(joint.armature, joint, "armature"),
    )


def _checked_limits(limits: Limits, joint: Joint) -> Limits:
    limits, values = _exactly(Limits, limits, joint, "limits", "a Limits object"), {}
    for name, what in _LIMITS:
        value = getattr(limits, name)
        if value is not None:
            values[name] = _float(value, joint, what)
    return _updated(limits, **values)


def _checked_mimic(mimic: Mimic, joint: Joint) -> Mimic:
    mimic = _exactly(Mimic, mimic, joint, "mimic", "a Mimic or None")
    return _updated(
        mimic,
        joint=_text(mimic.joint, joint, "mimic", "the name of a joint"),
        multiplier=_float(mimic.multiplier, joint, "mimic multiplier"),
        offset=_float(mimic.offset, joint, "mimic offset"),
    )


def _checked_pose(pose: Pose, part: Link | Joint) -> Pose:
    pose = _exactly(Pose, pose, part, "origin", "a Pose")
    xyz, rotation = _floats(pose.xyz, 3, part, "origin xyz"), _floats(pose.rotation, 9, part, "origin rotation")
    return _updated(pose, xyz=xyz, rotation=rotation)


def _float(value: object, part: Link | Joint, what: str) -> float:
    number = value if type(value) is float and math.isfinite(value) else finite_real(value)
    if number is None:
        raise _field_error(part, what, value, "a finite number")
    return number


def _floats(values: object, count: int, part: Link | Joint, what: str) -> tuple[float, ...]:
    if type(values) is tuple and len(values) == count:
        plain = strict_types.all_are(values, float)
        if plain and math.isfinite(sum(values)):
            return values  # fast path for builders; if only the sum overflows, each number is checked below
        numbers = tuple(number for number in map(finite_real, values) if number is not None)
        if len(numbers) == count:
            return values if plain else numbers
    raise _field_error(part, what, values, f"a tuple of {count} finite numbers")


def _text(value: object, part: Link | Joint | str, what: str, wanted: str) -> str:
    text = strict_types.text_or_none(value)
    if text is None:
        raise _field_error(part, what, value, wanted)
    return text


def _name(value: object, what: str) -> str:
    name = _text(value, what, "name", "a text that is not blank")
    _require(bool(name.strip()), what, "name", name, "a text that is not blank")
    return name


def _require(condition: bool, part: Link | Joint | str, what: str, value: object, wanted: str) -> None:
    if not condition:
        raise _field_error(part, what, value, wanted)


def _field_error(part: Link | Joint | str, what: str, value: object, wanted: str) -> LoadError:
    subject = _named(part) if isinstance(part, Link | Joint) else part
    return LoadError(f"{subject} {what}: {wanted} is wanted, not {brief(value)}")


def _named(part: Link | Joint) -> str:
    """A link or joint for an error message, as in `joint "shoulder" (line 7)`."""
    return f"{'link' if isinstance(part, Link) else 'joint'} {quoted(part.name)}{at_line(part.line)}"


def _check_tree(description: RobotDescription) -> list[tuple[int, int]]:
    """Checks names, parents, children and connectivity of the tree.

    Returns:
        (link, joint that moves it) by index, parents before children. The root is first and has joint -1.
    """
    if not description.links:
        raise LoadError("the robot has no links; at least one is needed")
    _require_unique("link", description.links)
    _require_unique("joint", description.joints)
    index = {link.name: i for i, link in enumerate(description.links)}
    joint_of: dict[str, int] = {}
    children: list[list[int]] = [[] for _ in description.links]
    for j, joint in enumerate(description.joints):
        for end, name in (("parent", joint.parent), ("child", joint.child)):
            if name not in index:
                text = f"{_named(joint)}: its {end} link {quoted(name)} does not exist"
                hint = _WORLD if end == "parent" and name.casefold() == "world" else ""
                raise LoadError(text + hint.format(printable(name)) + _skipped(description))
        if joint.child in joint_of:
            other = description.joints[joint_of[joint.child]]
            both = f"{_named(other)} and {_named(joint)}"
            raise LoadError(f"link {quoted(joint.child)} is the child of {both}; a link can have one parent only")
        joint_of[joint.child] = j
        children[index[joint.parent]].append(j)
    roots = [link.name for link in description.links if link.name not in joint_of]
    if len(roots) > 1:
        names = listed([quoted(name) for name in roots])
        text = f"{len(roots)} links have no parent: {names}; a robot has one root, so connect them by joints"
        implicit = any(each.code == "implicit-world" for each in description.report)
        text += ' ("world" is a parent that no link is called)' if implicit else ""
        raise LoadError(text + _skipped(description))
    order = [(index[roots[0]], -1)] if roots else []
    for link, _ in order:  # grows during the loop
        order.extend((index[description.joints[j].child], j) for j in children[link])
    if len(order) < len(description.links):
        raise LoadError(_cycle(description, joint_of, {description.links[i].name for i, _ in order}))
    return order


def _skipped(description: RobotDescription) -> str:
    """Lists skipped elements of the robot for an error about its tree: a missing link may be among them."""
    skipped = [each for each in description.report if each.code in _SKIPPED and "robot" in each.elements]
    texts = [each.message.replace("; skipped", "") + at_line(each.line) for each in skipped]
    return f" (not read: {listed(texts)})" if texts else ""


def _cycle(description: RobotDescription, joint_of: dict[str, int], reached: set[str]) -> str:
    """Names links that form a cycle. It follows parents from a link that is not reachable from the root."""
    link = next(link.name for link in description.links if link.name not in reached)
    seen: dict[str, None] = {}
    while link not in seen:
        seen[link] = None
        link = description.joints[joint_of[link]].parent
    names = list(seen)
    upward = names[names.index(link) + 1 :]
    return f"the links form a cycle: {cycle([link, *reversed(upward)])}; a robot is a tree"


def _require_unique(what: str, parts: Iterable[Link] | Iterable[Joint]) -> None:
    seen: dict[str, Link | Joint] = {}
    for part in parts:
        if part.name in seen:
            lines = f"{at_line(seen[part.name].line)} and again{at_line(part.line)}"
            raise LoadError(f"{what} {quoted(part.name)} is defined twice: once{lines}; {what} names must be unique")
        seen[part.name] = part


def _check_directions(description: RobotDescription) -> None:
    """Raise LoadError naming the link or joint whose axis is no unit vector or whose rotation is not orthonormal."""
    for joint in description.joints:
        if joint.type in TYPES_WITHOUT_AXIS:
            continue
        _require_unit(joint, "axis", joint.axis)
        if joint.type == "universal":
            _require_unit(joint, "axis2", joint.axis2)
    poses: list[tuple[Link | Joint, Pose]] = [(link, link.inertial.pose) for link in description.links if link.inertial]
    poses += [(joint, joint.origin) for joint in description.joints]
    rotated = [(part, pose.rotation) for part, pose in poses if pose.rotation != IDENTITY]
    if not rotated:
        return
    matrices = np.array([rotation for _, rotation in rotated], dtype=np.float64).reshape(-1, 3, 3)
    # Entries beyond 2 are wrong anyway and could overflow in the products.
    matrices = np.clip(matrices, -2.0, 2.0)
    errors = np.abs(matrices @ matrices.transpose(0, 2, 1) - np.eye(3)).max(axis=(1, 2))
    bad = np.flatnonzero((errors > UNIT) | (np.linalg.det(matrices) < 0.0))
    if bad.size:
        part, rotation = rotated[bad[0]]
        raise LoadError(
            f"{_named(part)} origin: the rotation {rotation} is no proper rotation; "
            f"give a right-handed orthonormal matrix, to within {UNIT:g}"
        )


def _require_unit(joint: Joint, which: str, axis: Vector3) -> None:
    norm = math.hypot(*axis)
    if abs(norm - 1.0) > UNIT:
        raise LoadError(f"{_named(joint)} {which}: {axis} has norm {norm:g}; give a unit vector, to within {UNIT:g}")


def _check_universal(joint: Joint, notes: Notes) -> None:
    cosine = math.fsum(a * b for a, b in zip(joint.axis, joint.axis2, strict=True))
    if 1.0 - abs(cosine) < PARALLEL**2 / 2:
        raise LoadError(
            f"{_named(joint)}: axis {joint.axis} and axis2 {joint.axis2} are parallel; two directions are needed"
        )
    if abs(cosine) > PARALLEL:
        message = f"its axes meet at {math.degrees(math.acos(cosine)):.4g} degrees, not 90; used as given"
        notes.add("axes-not-perpendicular", f"joint {quoted(joint.name)}", message, joint.line)
