"""Writes models as URDF."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from robodyn.core.constraints.kinds import ROWS, Point, Weld
from robodyn.core.constraints.resolved import anchored_by_calls
from robodyn.core.constraints.serialization import frame, pose
from robodyn.core.description import IDENTITY, TYPES_WITHOUT_AXIS, UNLIMITED, Joint, Link, Pose
from robodyn.core.findings import Notes
from robodyn.internals.arguments import one_of
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import quoted
from robodyn.io.builders.mesh_files import MeshFiles
from robodyn.io.editing.constraint_edits import element
from robodyn.io.editing.parts import unused
from robodyn.io.editing.to_description import Described, describe
from robodyn.io.editing.urdf_geometries import MESHES, MeshNames, UrdfGeometries
from robodyn.io.editing.writer_common import RobotText, folder_of, name, note_pairs, note_unread, rpy_of, values

if TYPE_CHECKING:
    from robodyn.core.model import Model

_COMMON = ("fixed", "continuous", "revolute", "prismatic", "planar", "floating")
"""Joint types of standard URDF."""
_LOOPS = {
    ROWS: ("fixed", None),
    **{tuple(row for row in ROWS if row != free): ("revolute", "xyz".index(free[1])) for free in ROWS[:3]},
    **{tuple(row for row in ROWS if row != free): ("prismatic", "xyz".index(free)) for free in ROWS[3:]},
}
"""Type of the loop joint, and index of its axis in the weld's frame, by the rows of a weld."""
_GRAVITY = (0.0, 0.0, -9.81)


def to_urdf(model: Model, meshes: Any, folder: Any, package_dirs: Any) -> RobotText:
    """Writes the robot as URDF; see `Model.to_urdf`."""
    notes = Notes()
    files, target_folder = MeshFiles(package_dirs), folder_of("folder", folder)
    names = MeshNames(one_of("meshes", meshes, MESHES), target_folder, files, notes)
    robot = describe(model, notes)
    note_pairs(model, notes)
    if model.contacts is not None:
        notes.add("not-written", f"robot {quoted(model.name)}", "its contacts; MJCF has them")
    shapes = UrdfGeometries(model, robot, names, notes)
    if robot.floating is not None:
        element = f"joint {quoted(model.joint_names[robot.floating])}"
        notes.add("written-otherwise", element, 'the floating base is left out; read it with base="floating"')
    if tuple(model.gravity.tolist()) != _GRAVITY:
        notes.add("not-written", "gravity", f"URDF has none; read it with gravity={model.gravity.tolist()}")
    for each in model.configurations:
        notes.gather("not-written", f"configuration {quoted(each)}", "URDF has no configurations")
    lines = ['<?xml version="1.0"?>', f"<robot name={_name('robot', model.name or 'robot')}>"]
    lines += [f"  {line}" for line in shapes.materials]
    for link in robot.links:
        lines += _link(link, [f"    {line}" for line in shapes.lines(link.name)])
    for joint in robot.joints:
        armature = 0.0 if joint.name in shapes.geared else joint.armature
        lines += _joint(replace(joint, armature=armature), shapes.kept("joint", joint.name), notes)
    lines += _loops(model, robot, notes)
    lines += [f"  {line}" for line in shapes.kept("robot")]
    shapes.note_left()
    note_unread(model, notes)
    return RobotText.of([*lines, "</robot>"], notes)


def _name(what: str, given: str) -> str:
    if "$" in given:
        raise ArgumentError(f"{what} {quoted(given)} has a name with a $, which readers of URDF take for xacro")
    return name(what, given)


def _link(link: Link, shapes: list[str]) -> Iterator[str]:
    if link.inertial is None and not shapes:
        yield f"  <link name={_name('link', link.name)}/>"
        return
    yield f"  <link name={_name('link', link.name)}>"
    if link.inertial is not None:
        yield "    <inertial>"
        yield from _origin(link.inertial.pose, "      ")
        yield f"      <mass value={values([link.inertial.mass])}/>"
        keys = ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
        parts = " ".join(f"{key}={values([x])}" for key, x in zip(keys, link.inertial.inertia, strict=True))
        yield f"      <inertia {parts}/>"
        yield "    </inertial>"
    yield from shapes
    yield "  </link>"


def _origin(pose: Pose, indent: str) -> Iterator[str]:
    rpy = "" if pose.rotation == IDENTITY else f" rpy={values(rpy_of(pose.rotation))}"
    if rpy or any(pose.xyz):
        yield f"{indent}<origin xyz={values(pose.xyz)}{rpy}/>"


def _joint(joint: Joint, kept: list[str], notes: Notes) -> Iterator[str]:
    subject = f"joint {quoted(joint.name)}"
    if joint.type not in _COMMON:
        notes.gather("written-for-few", subject, f"a {joint.type} joint, which other programs do not know of URDF")
    yield f'  <joint name={_name("joint", joint.name)} type="{joint.type}">'
    yield from _origin(joint.origin, "    ")
    yield f"    <parent link={_name('link', joint.parent)}/>"
    yield f"    <child link={_name('link', joint.child)}/>"
    if joint.type not in TYPES_WITHOUT_AXIS:
        pitch = f" pitch={values([joint.pitch])}" if joint.type == "helical" else ""
        yield f"    <axis xyz={values(joint.axis)}{pitch}/>"
    yield from _limits(joint, subject, notes)
    if joint.damping or joint.friction or joint.armature:
        armature = f" armature={values([joint.armature])}" if joint.armature else ""
        if armature:
            notes.gather("written-for-few", subject, "armature, which other programs do not know of URDF")
        yield f"    <dynamics damping={values([joint.damping])} friction={values([joint.friction])}{armature}/>"
    if joint.mimic is not None:
        numbers = f"multiplier={values([joint.mimic.multiplier])} offset={values([joint.mimic.offset])}"
        yield f"    <mimic joint={_name('joint', joint.mimic.joint)} {numbers}/>"
    yield from (f"    {line}" for line in kept)
    yield "  </joint>"


def _loops(model: Model, robot: Described, notes: Notes) -> Iterator[str]:
    """The lines of constraints that are loop joints. All constraints are reported."""
    taken = {joint.name for joint in robot.joints}
    for each in model.constraints:
        subject = element(each)
        loop_type = _LOOPS.get(each.rows) if isinstance(each, Weld) else ("ball", None)
        if loop_type is None or not isinstance(each, Point | Weld):
            notes.gather("not-written", subject, f"a constraint that is no loop joint ({type(each).__name__})")
            continue
        if each.to is None and robot.floating is not None:
            notes.gather("not-written", subject, "a constraint to the world, which is no link of a robot that floats")
            continue
        kind, axis = loop_type
        loop_name = unused(each.name, taken)
        if loop_name != each.name:
            notes.gather("written-otherwise", subject, f"its name is taken, and it is called {quoted(loop_name)}")
        if each.baumgarte is not None:
            notes.gather("not-written", subject, "how errors of the constraint decay")
        if anchored_by_calls([each]):
            notes.gather("written-otherwise", subject, "its place, which comes with every call, is the world's origin")
        notes.gather("written-for-few", subject, "a loop joint, which other programs do not know of URDF")
        yield f'  <loop_joint name={_name("constraint", loop_name)} type="{kind}">'
        ends = (("link1", each.to or robot.root, each.to_at), ("link2", each.link, each.at))
        for tag, link, place in ends:
            X_pose = pose(frame(place))
            rpy = "" if X_pose.rotation == IDENTITY else f" rpy={values(rpy_of(X_pose.rotation))}"
            yield f"    <{tag} link={_name('link', link)} xyz={values(X_pose.xyz)}{rpy}/>"
        if axis is not None:
            yield f"    <axis xyz={values([float(k == axis) for k in range(3)])}/>"
        yield "  </loop_joint>"


def _limits(joint: Joint, at: str, notes: Notes) -> Iterator[str]:
    """The limits of a joint. Readers of URDF need limits of all revolute and prismatic joints. They need effort and
    velocity in every <limit>, and take 0 for missing values."""
    limits = joint.limits
    ends = (("lower", limits.lower, -UNLIMITED), ("upper", limits.upper, UNLIMITED))
    rates = (("effort", limits.effort, UNLIMITED), ("velocity", limits.velocity, UNLIMITED))
    required = joint.type in ("revolute", "prismatic")
    bounded = required or limits.lower is not None or limits.upper is not None
    if not bounded and limits.effort is None and limits.velocity is None:
        return
    limit_values = (*ends, *rates) if bounded else rates
    missing = [what for what, value, _ in limit_values if value is None]
    if missing:
        notes.gather("written-otherwise", at, f"no limit of {', '.join(missing)}: the largest number stands for none")
    parts = " ".join(f"{what}={values([none if value is None else value])}" for what, value, none in limit_values)
    yield f"    <limit {parts}/>"
