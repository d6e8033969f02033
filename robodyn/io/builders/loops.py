"""Joints that close loops: the tree goes on without them, and constraints hold what they held.

A constraint leaves free what its joint does. Its frame on the joint's parent, with the axis turned to z, is that of its
rows and of its forces.
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
"""Most joints that close loops, of one robot: their matrices are dense."""

_ROWS = {
    "fixed": ROWS,
    "revolute": ("rx", "ry", "x", "y", "z"),
    "continuous": ("rx", "ry", "x", "y", "z"),
    "prismatic": ("rx", "ry", "rz", "x", "y"),
    "planar": ("rx", "ry", "z"),
}
"""What joints hold, in axes of which z is the joint's. A spherical joint is a `Point`."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A joint that closes a loop.

    `element`: as findings call it; `type`: one of a description's joint types, or another word, for which there is no
    constraint; `to`, `link`: links before and behind it; `to_at`, `at`: transforms from these to its frame, which
    coordinate zero brings together; `axis`: in that frame; `lost`: what the file says of it that constraints have not.
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
    """What is to be said of a loop in the report."""

    element: str
    message: str
    line: int | None
    severity: Severity


def cut(description: RobotDescription, follow: bool) -> tuple[RobotDescription, list[Loop]]:
    """The description without joints to links that an earlier joint carries already, and these joints.

    Args:
        follow: whether mimics are followed.

    Raises:
        LoadError: such a joint leads from a link to itself, or another one is to follow it.
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
        here = Transform(transpose(Pose().rotation), ZERO3)
        ends = joint.parent, joint.child, to_at, here
        loops.append(Loop(joint.name, element, joint.type, *ends, joint.axis, joint.line, lost(joint)))
    if not loops:
        return description, loops
    names = {loop.name for loop in loops} - {joint.name for joint in kept}
    for joint in kept if follow else ():
        if joint.mimic is not None and joint.mimic.joint in names:
            led = f"mimics joint {quoted(joint.mimic.joint)}, which closes a loop and has no coordinate"
            wanted = 'put that before the other joint to its child, or load with mimic="ignore"'
            raise LoadError(f"joint {quoted(joint.name)}{at_line(joint.line)} {led}; {wanted}")
    return replace(description, joints=tuple(kept)), loops


def lost(joint: Joint | Axis) -> tuple[str, ...]:
    """What a joint says that no constraint holds."""
    limits = joint.limits
    said = {
        "limits": any(each is not None for each in (limits.lower, limits.upper, limits.effort, limits.velocity)),
        "damping": joint.damping,
        "friction": joint.friction,
        "armature": joint.armature,
        "mimic": joint.mimic is not None,
    }
    return tuple(what for what, given in said.items() if given)


def close(description: RobotDescription, mimics: Mimics, loops: list[Loop]) -> tuple[RobotDescription, list[Said]]:
    """The description with constraints for loops, and what is to be said of each. Those that join links of one body,
    and those for whose joints there is no constraint, are left out.

    Raises:
        LoadError: too many, a name that is taken, a link that does not exist, or a place that overflows.
    """
    if not loops:
        return description, []
    if len(loops) > MAX_LOOPS:
        raise LoadError(f"more than {MAX_LOOPS} joints close loops, the most that are read")
    taken = {joint.name: joint.line for joint in description.joints}
    body = links_alike(description, mimics)
    found: list[Constraint] = []
    said = []
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
            found.append(constraint)
        said.append(Said(loop.element, message, loop.line, "warning" if constraint is None else "info"))
    return replace(description, constraints=(*description.constraints, *found)), said


def _constraint(loop: Loop, where: str) -> tuple[Constraint | None, str]:
    """What holds what a joint did, and what to say of it."""
    rows = _ROWS.get(loop.type)
    if rows is None and loop.type != "spherical":
        return None, f"a {loop.type} joint, for which there is no constraint; the tree moves without it"
    X_to, X = loop.to_at, loop.at
    if loop.type not in TYPES_WITHOUT_AXIS:
        turned = Transform(turn_to_z(loop.axis), ZERO3)
        X_to, X = turned.after(X_to), turned.after(X)
    at, to_at = (Pose(each.r, transpose(each.E)) for each in (X, X_to))
    made: Point | Weld
    try:
        if rows is None:
            made = Point(loop.link, loop.to, at=at, to_at=to_at, name=loop.name)
        else:
            made = Weld(loop.link, loop.to, at=at, to_at=to_at, rows=rows, name=loop.name)
    except (ArgumentError, NumericalError) as error:  # numbers of a file that overflow
        raise LoadError(f"{where}: {error}") from None
    without = f"; what the file says of its {', '.join(loop.lost)} has no part" if loop.lost else ""
    return made, f"it closes a loop: a constraint, {type(made).__name__} ({', '.join(made.rows)}){without}"


def links_alike(description: RobotDescription, mimics: Mimics, types: frozenset[str] = frozenset()) -> dict[str, str]:
    """For every link one that stands for all that joints hold to it which never move, or are of some `types`."""
    near: dict[str, list[str]] = {link.name: [] for link in description.links}
    for joint in description.joints:
        if joint.name in mimics.welded or joint.type in types:
            near[joint.parent].append(joint.child)
            near[joint.child].append(joint.parent)
    found: dict[str, str] = {}
    for name in near:
        waiting = [] if name in found else [name]
        for link in waiting:  # grows while it is walked
            if link not in found:
                found[link] = name
                waiting += near[link]
    return found
