"""The checks that every RobotDescription passes, wherever it comes from, before it becomes arrays.

Fields and tree here; masses and inertias in `check_bodies`, limits, coefficients and mimics in `check_joints`. All of
it takes time in proportion to the number of links, and nothing recurses.
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
"""What may be done about mimicking joints."""

_WORLD = '; add <link name="{}"/> where the robot is held by the world'
_SKIPPED = ("ignored-tag", "kept-tag", "unknown-tag")
_LIMITS = tuple((name, f"limits {name}") for name in ("lower", "upper", "effort", "velocity"))

UNIT = 1e-9
"""How far an axis may be from unit length and a rotation from orthonormal: the identities between algorithms hold to
about this much, and every builder does better."""

PARALLEL = 1e-6
"""Sine of the angle between a universal joint's axes below which they count as parallel: it would be singular."""


def check(description: RobotDescription, *, mimic: str = "follow", strict: bool = True) -> RobotDescription:
    """Check a description and return it with the findings appended to its report, and with every number a float.

    `mimic`: "follow" checks mimics and drops those of fixed joints; "ignore" drops all, so that every joint moves on
    its own. `strict`: refuse negative masses, principal moments of inertia that are negative by half of the largest or
    more (smaller ones are reported), and negative damping, friction or armature; with False they are kept and reported
    with severity "error". Checking twice changes nothing. A report is only ever added to: clear it before checking a
    description that was changed.
    Raises LoadError naming the link or joint, its value and what is allowed; ArgumentError for other arguments.
    """
    return check_and_resolve(description, mimic=mimic, strict=strict)[0]


def check_and_resolve(
    description: RobotDescription, *, mimic: str = "follow", strict: bool = True
) -> tuple[RobotDescription, Mimics]:
    """What `check` returns, and what its mimics amount to."""
    given = strict_types.of_kind(description, RobotDescription)
    if given is None:
        raise ArgumentError(f"description: a RobotDescription is wanted, not {strict_types.type_name(description)}")
    mimic, strict = one_of("mimic", mimic, MIMIC), flag("strict", strict)
    return resolve(_with_sound_fields(given), mimic, strict)


def resolve(
    description: RobotDescription, mimic: str, strict: bool, directed: bool = False
) -> tuple[RobotDescription, Mimics]:
    """What `check_and_resolve` returns for a description whose fields have their types and whose numbers are finite
    floats, as readers make them: what they say is checked, and not what they are. `directed`: axes have unit length
    and rotations are orthonormal, as those that a reader computes."""
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
    news = tuple(finding for finding in notes.findings() if finding not in known)
    if mimics.joints != description.joints or news:
        description = replace(description, joints=mimics.joints, report=Report((*description.report, *news)))
    return description, mimics


def unknown_joint_type(subject: str, kind: object, line: int | None) -> LoadError:
    """The error for a joint type that a description cannot hold."""
    shown = quoted(strict_types.text_or_none(kind) or brief(kind))
    return LoadError(f"{subject}{at_line(line)} has type {shown}; allowed are {', '.join(JOINT_TYPES)}")


def _with_sound_fields(description: RobotDescription) -> RobotDescription:
    """The description with every number a float, after checking the type of every field and that numbers are finite."""
    held = description.constraints
    found: dict[str, Any] = {
        "name": _text(description.name, "robot", "name", "a text"),
        "links": tuple(map(_sound_link, _parts(description, "links", Link))),
        "joints": tuple(map(_sound_joint, _parts(description, "joints", Joint))),
        "report": _parts(description, "report", Finding),
        "constraints": strict_types.members(held) if strict_types.is_a(held, tuple) else (None,),
    }
    good = all(map(is_finding, found["report"]))
    _require(good, "robot", "report", description.report, "a tuple of findings, whose fields have their types,")
    good = all(strict_types.is_whole(each, *CONSTRAINTS) for each in found["constraints"])
    _require(good, "robot", "constraints", held, "a tuple of Point, Weld, Rod, Coupling or Lock objects")
    news = {name: value for name, value in found.items() if not _same(value, getattr(description, name))}
    return replace(description, **news) if news else description


def _parts(description: RobotDescription, what: str, kind: type[_Part]) -> tuple[_Part, ...]:
    """What a field holds, as objects of exactly this kind."""
    parts = getattr(description, what)
    given = strict_types.members(parts) if strict_types.is_a(parts, tuple) else (None,)
    found = tuple(part for part in (strict_types.of_kind(each, kind) for each in given) if part is not None)
    _require(len(found) == len(given), "robot", what, parts, f"a tuple of {kind.__name__} objects")
    return found


def _same(value: Any, given: Any) -> bool:
    """Whether a field holds these very parts already, as it does from builders."""
    if value is given:
        return True
    parts = (type(given) is tuple or type(given) is Report) and len(value) == len(given)
    return parts and all(part is each for part, each in zip(value, given, strict=True))


def _updated(part: _Part, **values: Any) -> _Part:
    """The part with these values; itself where it has them already, as it has from builders."""
    for name, value in values.items():
        if getattr(part, name) is not value:
            return replace(part, **values)
    return part


def _of(kind: type[_Part], value: object, part: Link | Joint, what: str, wanted: str) -> _Part:
    """`value` as an object of exactly this kind, whatever subclass it came in."""
    found = strict_types.of_kind(value, kind)
    if found is None:
        raise _wrong(part, what, value, wanted)
    return found


def _sound_link(link: Link) -> Link:
    link = _updated(link, name=_name(link.name, "link"), line=_line(link.line, "link"))
    if link.inertial is None:
        return link
    inertial = _of(Inertial, link.inertial, link, "inertial", "an Inertial or None")
    mass, inertia = _float(inertial.mass, link, "mass"), _floats(inertial.inertia, 6, link, "inertia")
    pose = _sound_pose(inertial.pose, link)
    return _updated(link, inertial=_updated(inertial, mass=mass, inertia=inertia, pose=pose))


def _line(value: object, what: str) -> int | None:
    number = None if value is None else integer(value)
    sound = value is None or (number is not None and 0 <= number < LAST_LINE)
    _require(sound, what, "line", value, "a number or None")
    return number


def _sound_joint(joint: Joint) -> Joint:
    joint = _updated(joint, name=_name(joint.name, "joint"), line=_line(joint.line, "joint"))
    kind = strict_types.text_or_none(joint.type)
    if kind is None or kind not in JOINT_TYPES:
        raise unknown_joint_type(f"joint {quoted(joint.name)}", joint.type, joint.line)
    return _updated(
        joint,
        type=kind,
        parent=_text(joint.parent, joint, "parent", "the name of a link"),
        child=_text(joint.child, joint, "child", "the name of a link"),
        limits=_sound_limits(joint.limits, joint),
        origin=_sound_pose(joint.origin, joint),
        axis=_floats(joint.axis, 3, joint, "axis"),
        axis2=_floats(joint.axis2, 3, joint, "axis2"),
        mimic=None if joint.mimic is None else _sound_mimic(joint.mimic, joint),
        pitch=_float(joint.pitch, joint, "pitch"),
        damping=_float(joint.damping, joint, "damping"),
        friction=_float(joint.friction, joint, "friction"),
        armature=_float(joint.armature, joint, "armature"),
    )


def _sound_limits(limits: Limits, joint: Joint) -> Limits:
    limits, given = _of(Limits, limits, joint, "limits", "a Limits object"), {}
    for name, what in _LIMITS:
        value = getattr(limits, name)
        if value is not None:
            given[name] = _float(value, joint, what)
    return _updated(limits, **given)


def _sound_mimic(mimic: Mimic, joint: Joint) -> Mimic:
    mimic = _of(Mimic, mimic, joint, "mimic", "a Mimic or None")
    return _updated(
        mimic,
        joint=_text(mimic.joint, joint, "mimic", "the name of a joint"),
        multiplier=_float(mimic.multiplier, joint, "mimic multiplier"),
        offset=_float(mimic.offset, joint, "mimic offset"),
    )


def _sound_pose(pose: Pose, part: Link | Joint) -> Pose:
    pose = _of(Pose, pose, part, "origin", "a Pose")
    xyz, rotation = _floats(pose.xyz, 3, part, "origin xyz"), _floats(pose.rotation, 9, part, "origin rotation")
    return _updated(pose, xyz=xyz, rotation=rotation)


def _float(value: object, part: Link | Joint, what: str) -> float:
    number = value if type(value) is float and math.isfinite(value) else finite_real(value)
    if number is None:
        raise _wrong(part, what, value, "a finite number")
    return number


def _floats(values: object, count: int, part: Link | Joint, what: str) -> tuple[float, ...]:
    if type(values) is tuple and len(values) == count:
        if strict_types.all_are(values, float) and math.isfinite(sum(values)):
            return values  # what builders make, quickly; a sum that overflows is looked at number by number
        found = tuple(number for number in map(finite_real, values) if number is not None)
        if len(found) == count:
            return found
    raise _wrong(part, what, values, f"a tuple of {count} finite numbers")


def _text(value: object, part: Link | Joint | str, what: str, wanted: str) -> str:
    found = strict_types.text_or_none(value)
    if found is None:
        raise _wrong(part, what, value, wanted)
    return found


def _name(value: object, what: str) -> str:
    name = _text(value, what, "name", "a text that is not blank")
    _require(bool(name.strip()), what, "name", name, "a text that is not blank")
    return name


def _require(condition: bool, part: Link | Joint | str, what: str, value: object, wanted: str) -> None:
    if not condition:
        raise _wrong(part, what, value, wanted)


def _wrong(part: Link | Joint | str, what: str, value: object, wanted: str) -> LoadError:
    subject = _named(part) if isinstance(part, Link | Joint) else part
    return LoadError(f"{subject} {what}: {wanted} is wanted, not {brief(value)}")


def _named(part: Link | Joint) -> str:
    """A link or joint for an error message, as in `joint "shoulder" (line 7)`."""
    return f"{'link' if isinstance(part, Link) else 'joint'} {quoted(part.name)}{at_line(part.line)}"


def _check_tree(description: RobotDescription) -> list[tuple[int, int]]:
    """Names, ends and shape of the tree. Returns (link, joint that moves it) by index, parents before children; the
    root comes first, with joint -1."""
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
    for link, _ in order:  # grows while it is walked
        order.extend((index[description.joints[j].child], j) for j in children[link])
    if len(order) < len(description.links):
        raise LoadError(_cycle(description, joint_of, {description.links[i].name for i, _ in order}))
    return order


def _skipped(description: RobotDescription) -> str:
    """What elements of the robot were skipped, to be told where its tree falls apart: they may be what is missing."""
    found = [each for each in description.report if each.code in _SKIPPED and "robot" in each.elements]
    said = [each.message.replace("; skipped", "") + at_line(each.line) for each in found]
    return f" (not read: {listed(said)})" if said else ""


def _cycle(description: RobotDescription, joint_of: dict[str, int], reached: set[str]) -> str:
    """Say which links form a cycle, walking towards the root from a link that was not reached from it."""
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
    turned = [(part, pose.rotation) for part, pose in poses if pose.rotation != IDENTITY]
    if not turned:
        return
    matrices = np.array([rotation for _, rotation in turned], dtype=np.float64).reshape(-1, 3, 3)
    # Entries beyond 2 are wrong anyway and could overflow in the products.
    matrices = np.clip(matrices, -2.0, 2.0)
    errors = np.abs(matrices @ matrices.transpose(0, 2, 1) - np.eye(3)).max(axis=(1, 2))
    bad = np.flatnonzero((errors > UNIT) | (np.linalg.det(matrices) < 0.0))
    if bad.size:
        part, rotation = turned[bad[0]]
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
