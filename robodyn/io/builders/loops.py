"""Joints that close kinematic loops: the tree omits them, and constraints replace them.

A constraint leaves the same directions free as its joint. Its rows and forces are in the joint's frame on the parent
link, rotated such that the joint axis is z.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from robodyn.core.constraints.kinds import ROWS, Constraint, Point, Weld
from robodyn.core.description import TYPES_WITHOUT_AXIS, Joint, Pose, RobotDescription, Severity, Vector3
from robodyn.core.findings import at_line
from robodyn.core.spatial import ZERO3, Transform, transpose
from robodyn.internals.errors import ArgumentError, LoadError, NumericalError
from robodyn.internals.messages import quoted
from robodyn.internals.records import dataclass
from robodyn.io.builders.axes import turn_to_z
from robodyn.io.builders.check_joints import Mimics

if TYPE_CHECKING:
    from robodyn.io.builders.sdf_parts import Axis

MAX_LOOPS = 10_000
"""Largest number of loop joints of a robot. The matrices of their constraints are dense."""

_ROWS = {
    "fixed": ROWS,
    "revolute": ("rx", "ry", "x", "y", "z"),
    "continuous": ("rx", "ry", "x", "y", "z"),
    "prismatic": ("rx", "ry", "rz", "x", "y"),
    "planar": ("rx", "ry", "z"),
}
"""Constrained directions of each joint type, in a frame whose z axis is the joint's. A spherical joint is a `Point`."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A joint that closes a loop.

    `element`: its name in findings; `type`: a joint type of descriptions, or another word, which has no constraint;
    `to`, `link`: parent and child link; `to_at`, `at`: transforms from these links to the joint's frame on each of
    them, which coincide at coordinate zero; `axis`: joint axis in that frame; `lost`: properties in the file that
    constraints cannot represent.
    """

    name: str
    element: str
    type: str
    to: str
    link: str
    to_at: Transform
    at: Transform
    axis: Vector3
    line: int | None
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Said:
    """A finding about a loop joint."""

    element: str
    message: str
    line: int | None
    severity: Severity


def cut(description: RobotDescription, follow: bool) -> tuple[RobotDescription, list[Loop]]:
    """Removes loop joints: joints whose child is the child of an earlier joint already.

    Args:
        description: the robot.
        follow: True if mimics are followed.

    Returns:
        The description without loop joints, and the loop joints.

    Raises:
        LoadError: a loop joint connects a link to itself, or another joint mimics it.
    """
    kept: list[Joint] = []
    loops: list[Loop] = []
    carried: set[str] = set()
    for joint in description.joints:
        if joint.child not in carried:
            carried.add(joint.child)
            kept.append(joint)
            continue
        element = f"joint {quoted(joint.name)}"
        if joint.parent == joint.child:
            raise LoadError(f"{element}{at_line(joint.line)} joins link {quoted(joint.child)} to itself")
        to_at = Transform(transpose(joint.origin.rotation), joint.origin.xyz)
        identity = Transform(transpose(Pose().rotation), ZERO3)
        ends = joint.parent, joint.child, to_at, identity
        loops.append(Loop(joint.name, element, joint.type, *ends, joint.axis, joint.line, lost(joint)))
    if not loops:
        return description, loops
    names = {loop.name for loop in loops} - {joint.name for joint in kept}
    for joint in kept if follow else ():
        if joint.mimic is not None and joint.mimic.joint in names:
            reason = f"mimics joint {quoted(joint.mimic.joint)}, which closes a loop and has no coordinate"
            remedy = 'put that before the other joint to its child, or load with mimic="ignore"'
            raise LoadError(f"joint {quoted(joint.name)}{at_line(joint.line)} {reason}; {remedy}")
    return replace(description, joints=tuple(kept)), loops


def lost(joint: Joint | Axis) -> tuple[str, ...]:
    """Properties of a joint that constraints cannot represent."""
    limits = joint.limits
    properties = {
        "limits": any(each is not None for each in (limits.lower, limits.upper, limits.effort, limits.velocity)),
        "damping": joint.damping,
        "friction": joint.friction,
        "armature": joint.armature,
        "mimic": joint.mimic is not None,
    }
    return tuple(what for what, present in properties.items() if present)


def close(description: RobotDescription, mimics: Mimics, loops: list[Loop]) -> tuple[RobotDescription, list[Said]]:
    """Adds constraints for loop joints to a description.

    Joints between links of one body, and joints of types without a constraint, are left out.

    Returns:
        The description, and a finding about each loop joint.

    Raises:
        LoadError: too many loop joints, a duplicate name, an unknown link, or a position that overflows.
    """
    if not loops:
        return description, []
    if len(loops) > MAX_LOOPS:
        raise LoadError(f"more than {MAX_LOOPS} joints close loops, the most that are read")
    taken = {joint.name: joint.line for joint in description.joints}
    body = links_alike(description, mimics)
    constraints: list[Constraint] = []
    findings = []
    for loop in loops:
        where = f"{loop.element}{at_line(loop.line)}"
        if loop.name in taken:
            lines = f"once{at_line(taken[loop.name])} and again{at_line(loop.line)}"
            raise LoadError(f"joint {quoted(loop.name)} is defined twice: {lines}; joint names must be unique")
        taken[loop.name] = loop.line
        for link in (loop.to, loop.link):
            if link not in body:
                raise LoadError(f"{where}: its link {quoted(link)} does not exist")
        constraint = None
        if body[loop.to] == body[loop.link]:
            message = "it joins links of one body; left out"
        else:
            constraint, message = _constraint(loop, where)
        if constraint is not None:
            constraints.append(constraint)
        findings.append(Said(loop.element, message, loop.line, "warning" if constraint is None else "info"))
    return replace(description, constraints=(*description.constraints, *constraints)), findings


def _constraint(loop: Loop, where: str) -> tuple[Constraint | None, str]:
    """The constraint that replaces a loop joint, None if there is none, and the message of its finding."""
    rows = _ROWS.get(loop.type)
    if rows is None and loop.type != "spherical":
        return None, f"a {loop.type} joint, for which there is no constraint; the tree moves without it"
    X_to, X = loop.to_at, loop.at
    if loop.type not in TYPES_WITHOUT_AXIS:
        rotation = Transform(turn_to_z(loop.axis), ZERO3)
        X_to, X = rotation.after(X_to), rotation.after(X)
    at, to_at = (Pose(each.r, transpose(each.E)) for each in (X, X_to))
    constraint: Point | Weld
    try:
        if rows is None:
            constraint = Point(loop.link, loop.to, at=at, to_at=to_at, name=loop.name)
        else:
            constraint = Weld(loop.link, loop.to, at=at, to_at=to_at, rows=rows, name=loop.name)
    except (ArgumentError, NumericalError) as error:  # numbers overflow
        raise LoadError(f"{where}: {error}") from None
    omission = f"; what the file says of its {', '.join(loop.lost)} has no part" if loop.lost else ""
    return (
        constraint,
        f"it closes a loop: a constraint, {type(constraint).__name__} ({', '.join(constraint.rows)}){omission}",
    )


def links_alike(description: RobotDescription, mimics: Mimics, types: frozenset[str] = frozenset()) -> dict[str, str]:
    """Maps each link to a representative of its group. Joints that never move, or are of `types`, connect a group."""
    neighbours: dict[str, list[str]] = {link.name: [] for link in description.links}
    for joint in description.joints:
        if joint.name in mimics.welded or joint.type in types:
            neighbours[joint.parent].append(joint.child)
            neighbours[joint.child].append(joint.parent)
    representative: dict[str, str] = {}
    for name in neighbours:
        queue = [] if name in representative else [name]
        for link in queue:  # grows during the loop
            if link not in representative:
                representative[link] = name
                queue += neighbours[link]
    return representative
