"""Reads URDF into a checked RobotDescription.

These elements affect the dynamics and are read: links with their inertials; joints with origin, axis, limits, dynamics
and mimic; joints that close loops, as constraints; rotor inertias of Drake's transmissions. Visuals and collisions are
read as well. All other known elements are kept as text, so that they can be written again. No other file is opened, not
even meshes and textures.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

from robodyn.core.description import (
    IDENTITY,
    JOINT_TYPES,
    TYPES_WITHOUT_AXIS,
    Finding,
    Geometry,
    Inertial,
    Joint,
    Limits,
    Link,
    Mimic,
    Pose,
    RobotDescription,
    Rotation,
    Vector3,
    rotation_from_rpy,
)
from robodyn.core.findings import Notes, Report, at_line
from robodyn.internals.arguments import flag, one_of
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted
from robodyn.io.builders.axes import pose_transform
from robodyn.io.builders.check_joints import Mimics, limits_of
from robodyn.io.builders.checks import MIMIC, resolve, unknown_joint_type
from robodyn.io.builders.elements import Element, parse_xml
from robodyn.io.builders.loops import Loop, close, cut
from robodyn.io.builders.sources import path_of, read_source
from robodyn.io.builders.transmissions import with_armatures
from robodyn.io.builders.unread_elements import Survey
from robodyn.io.builders.urdf_geometries import SHAPES, Geometries
from robodyn.io.builders.urdf_objects import describe_object, robot_of
from robodyn.io.builders.values import (
    bad_number,
    hint,
    infinity,
    number,
    numbers,
    off_unit,
    rotation_from_quaternion,
    unit_axis,
)

MAX_LINKS = 1_000_000
"""Largest number of links, and of joints, of a robot."""

IGNORED_TAGS = frozenset(
    {
        "calibration",
        "collision_checking",
        "contact",
        "contact_coefficients",
        "frame",
        "gazebo",
        "gravity",
        "joint_properties",
        "kinematic",
        "mujoco",
        "ros2_control",
        "safety_controller",
        "self_collision_checking",
        "self_filter",
        "sensor",
        "surface",
    }
)
"""Elements of URDF and its common extensions that do not affect the dynamics."""

# Known attributes of each element that is read. Child elements that may occur at most once are named further below.
_ATTRIBUTES = {
    "robot": frozenset({"name", "version"}),
    "link": frozenset({"name"}),
    "joint": frozenset({"name", "type"}),
    "origin": frozenset({"xyz", "rpy", "quat_xyzw"}),
    "mass": frozenset({"value"}),
    "inertia": frozenset({"ixx", "ixy", "ixz", "iyy", "iyz", "izz"}),
    "parent": frozenset({"link"}),
    "child": frozenset({"link"}),
    "axis": frozenset({"xyz"}),
    "axis2": frozenset({"xyz"}),
    "limit": frozenset({"lower", "upper", "effort", "velocity"}),
    "dynamics": frozenset({"damping", "friction", "armature"}),
    "mimic": frozenset({"joint", "multiplier", "offset"}),
    "loop_joint": frozenset({"name", "type"}),
    "link1": frozenset({"link", "xyz", "rpy", "quat_xyzw"}),
    "link2": frozenset({"link", "xyz", "rpy", "quat_xyzw"}),
}
_WORLD = "world"
_LIMITS = ("lower", "upper", "effort", "velocity")
_PRODUCTS = dict.fromkeys(("ixy", "ixz", "iyz")).keys()
_LOOP_TYPES = {
    "fixed": "fixed",
    "ball": "spherical",
    "revolute": "revolute",
    "continuous": "continuous",
    "prismatic": "prismatic",
}
"""Joint type of each type of `<loop_joint>`."""
_LOOP_CHILDREN = frozenset({"link1", "link2", "axis"})
_IGNORED_ATTRIBUTES = frozenset({("link", "type"), ("joint", "dont_collapse")})
_VERSIONS = frozenset({"1", "1.0"})
_HELICAL_AXIS_ATTRIBUTES = frozenset({"xyz", "pitch"})
_survey = Survey("URDF", IGNORED_TAGS, _IGNORED_ATTRIBUTES)
_NONE = frozenset[str]()
_HERE, _NO_LIMITS = Pose(), Limits()
_COMMON: dict[str, Vector3] = {
    "0 0 0": (0.0, 0.0, 0.0),
    "0.0 0.0 0.0": (0.0, 0.0, 0.0),
    "1 0 0": (1.0, 0.0, 0.0),
    "0 1 0": (0.0, 1.0, 0.0),
    "0 0 1": (0.0, 0.0, 1.0),
}
"""The most common vectors, which make up half of all vectors in files. They need no parsing."""
_LINK_CHILDREN = frozenset({"inertial"})
_INERTIAL_CHILDREN = frozenset({"origin", "mass", "inertia"})
_JOINT_CHILDREN = frozenset({"origin", "parent", "child", "axis", "limit", "dynamics", "mimic"})
_UNIVERSAL_CHILDREN = _JOINT_CHILDREN | {"axis2"}


def read_urdf(source: object, *, mimic: str = "follow", strict: bool = True) -> RobotDescription:
    """Read a robot from URDF and check it.

    The description is in SI units and radians. Its `report` lists everything that was defaulted, ignored or doubtful.

    In addition to standard URDF it reads `<origin quat_xyzw>`, `<dynamics armature>`, spherical joints, helical joints
    (`<axis xyz="0 0 1" pitch="0.01"/>`, pitch in m/rad), universal joints (`<axis>` and `<axis2>`), a transmission's
    `drake:rotor_inertia` (kg m^2, or kg) and `drake:gear_ratio`, or `motorInertia` and `mechanicalReduction`, and
    `<loop_joint>`. Second joints to a link and loop joints become the description's `constraints`.

    Args:
        source: a path (str or os.PathLike); XML text (a str that begins with "<"); bytes; an open text or binary file;
            or a robot object of urdfpy, urchin or yourdfpy.
        mimic, strict: as in `robodyn.io.builders.checks.check`.

    Raises:
        LoadError: a file that cannot be used.
        ArgumentError: another kind of source.
    """
    return read_and_resolve(source, mimic=mimic, strict=strict)[0]


def read_and_resolve(source: object, *, mimic: str, strict: bool) -> tuple[RobotDescription, Mimics]:
    """The description that `read_urdf` returns, and the resolved mimics."""
    notes = Notes()
    path = path_of(source)
    robot = None if path is not None else robot_of(source)
    loops: list[Loop] = []
    if robot is None:
        geometries = Geometries("" if path is None else str(Path(path).absolute().parent), _pose, notes)
        description = _robot(read_source(source), loops, geometries, notes)
    else:
        description = describe_object(robot, notes)
    mimic = one_of("mimic", mimic, MIMIC)
    description, second = cut(_with_world(description), mimic == "follow")
    loops = [*second, *loops]
    description, mimics = resolve(description, mimic, flag("strict", strict), directed=robot is None)
    if loops:
        description, closing_notes = close(description, mimics, loops)
        notes = Notes()
        for each in closing_notes:
            notes.gather("urdf-loop", each.element, each.message, each.line, each.severity)
        description = replace(description, report=Report((*description.report, *notes.findings())))
    return description, mimics


def _with_world(description: RobotDescription) -> RobotDescription:
    """Adds a link "world" if joints have it as their parent and no link has this name, as Drake does."""
    joints = [joint for joint in description.joints if joint.parent == _WORLD]
    if not joints or any(link.name == _WORLD for link in description.links):
        return description
    notes = Notes()
    for joint in joints:
        message = 'its parent is "world", and no link is called so; it is added as the root'
        notes.gather("implicit-world", f"joint {quoted(joint.name)}", message, joint.line)
    report = Report((*description.report, *notes.findings()))
    return replace(description, links=(Link(_WORLD), *description.links), report=report)


def geometries_of(source: object) -> tuple[tuple[Geometry, ...], tuple[Finding, ...]]:
    """The geometries of a URDF, and findings about unreadable ones. The URDF need not be a valid robot.

    Raises:
        LoadError: not the XML of a URDF.
        ArgumentError: another kind of source.
    """
    notes = Notes()
    path = path_of(source)
    geometries = Geometries("" if path is None else str(Path(path).absolute().parent), _pose, notes)

    def take(element: Element) -> None:
        if element.tag == "link":
            geometries.take(element.attributes.get("name", ""), element)
        elif element.tag == "material":
            geometries.take_material(element)

    opaque = frozenset({"inertial", "joint", "transmission", "gazebo"})
    root = parse_xml(read_source(source), "robot", opaque, take, notes=Notes())  # loading the model reports these
    shapes, _ = geometries.finish(root)
    return shapes, tuple(each for each in notes.findings() if each.severity == "warning")


def _robot(data: bytes, loops: list[Loop], geometries: Geometries, notes: Notes) -> RobotDescription:
    links: list[Link] = []
    joints: list[Joint] = []
    transmissions: list[Element] = []

    def take(element: Element) -> None:
        """Read a child of the robot by its tag. Transmissions are collected until all joints are known."""
        if element.tag == "link":
            links.append(_link(element, geometries, notes))
        elif element.tag == "joint":
            joints.append(_joint(element, geometries, notes))
        elif element.tag == "transmission":
            transmissions.append(element)
        elif element.tag == "loop_joint":
            loops.append(_loop(element, notes))
        elif element.tag == "material":
            geometries.take_material(element)
        else:
            _survey.report_tag("robot", element, "robot", notes, partial(geometries.keep, "robot", ""))
        if max(len(links), len(joints), len(loops)) > MAX_LINKS:
            raise LoadError(f"the robot has more than {MAX_LINKS} links or joints, the most that are read")

    root = parse_xml(data, "robot", _NONE, take, notes=notes)
    _survey(root, "robot", _NONE, _ATTRIBUTES["robot"], notes)
    version = root.attributes.get("version", "1.0").strip()
    if version not in _VERSIONS:
        message = f"version {quoted(version)} of URDF is not known here; read as version 1.0"
        notes.add("version-not-known", "robot", message, root.line)
    name = "robot"
    if root.attributes.get("name", "").strip():
        name = _name(root, "robot", "name")
    else:
        notes.add("robot-name-missing", "robot", 'no name is given; the robot is called "robot"', root.line)
    for element in transmissions:
        geometries.keep("robot", "", element)
    joints = with_armatures(joints, transmissions, notes)
    shapes, kept = geometries.finish(root)
    findings = notes.findings()
    return RobotDescription(name, tuple(links), tuple(joints), findings, geometries=shapes, extensions=kept)


def _link(element: Element, geometries: Geometries, notes: Notes) -> Link:
    name = _name(element, "link", "name")
    subject = f"link {quoted(name)}"
    keep = partial(geometries.keep, "link", name)
    parts = _survey(element, subject, _LINK_CHILDREN, _ATTRIBUTES["link"], notes, SHAPES, keep=keep)
    geometries.take(name, element)
    inertial = _inertial(parts["inertial"], subject, notes) if "inertial" in parts else None
    return Link(name, inertial, element.line)


def _inertial(element: Element, subject: str, notes: Notes) -> Inertial | None:
    part = f"{subject} inertial"
    parts = _survey(element, part, _INERTIAL_CHILDREN, _NONE, notes)
    pose = _pose(parts.get("origin"), part, notes)
    if "mass" not in parts and "inertia" not in parts:
        notes.add("inertial-empty", subject, "its <inertial> gives no mass and no inertia; both are zero", element.line)
        return None
    mass = 0.0
    if "mass" in parts:
        _survey(parts["mass"], part, _NONE, _ATTRIBUTES["mass"], notes)
        mass = _number(parts["mass"], part, "value")
    else:
        notes.add("mass-missing", subject, "its <inertial> gives no <mass>; the mass is zero", element.line)
    inertia = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    if "inertia" in parts:
        inertia = _inertia(parts["inertia"], subject, notes)
    else:
        notes.add("inertia-missing", subject, "its <inertial> gives no <inertia>; the inertia is zero", element.line)
    return Inertial(mass, pose, inertia)


def _inertia(element: Element, subject: str, notes: Notes) -> tuple[float, float, float, float, float, float]:
    part = f"{subject} inertial"
    _survey(element, part, _NONE, _ATTRIBUTES["inertia"], notes)
    if not element.attributes.keys() >= _PRODUCTS:
        missing = [product for product in _PRODUCTS if product not in element.attributes]
        message = f"its <inertia> gives no {', '.join(missing)}; taken as zero"
        notes.gather("inertia-products-missing", subject, message, element.line)
    return (
        _number(element, part, "ixx"),
        _number(element, part, "ixy", 0.0),
        _number(element, part, "ixz", 0.0),
        _number(element, part, "iyy"),
        _number(element, part, "iyz", 0.0),
        _number(element, part, "izz"),
    )


def _joint(element: Element, geometries: Geometries, notes: Notes) -> Joint:
    name = _name(element, "joint", "name")
    subject = f"joint {quoted(name)}"
    kind = element.attributes.get("type", "")
    if kind not in JOINT_TYPES:
        raise unknown_joint_type(subject, kind, element.line)
    children = _UNIVERSAL_CHILDREN if kind == "universal" else _JOINT_CHILDREN
    keep = partial(geometries.keep, "joint", name)
    parts = _survey(element, subject, children, _ATTRIBUTES["joint"], notes, keep=keep)
    parent, child = _end(element, parts, "parent", subject, notes), _end(element, parts, "child", subject, notes)
    if kind == "fixed":
        _drop_templates(parts, subject, notes)
    axis, axis2, pitch = _axes(element, parts, kind, subject, notes)
    damping, friction, armature = _dynamics(parts.get("dynamics"), subject, notes)
    origin, limits = _pose(parts.get("origin"), subject, notes), _limits(parts.get("limit"), subject, notes)
    mimic = _mimic(parts.get("mimic"), subject, notes)
    # Positional arguments: keyword arguments take a fifth longer.
    values = origin, axis, axis2, pitch, limits, damping, friction, armature, mimic
    return Joint(name, kind, parent, child, *values, element.line)


def _end(joint: Element, parts: dict[str, Element], tag: str, subject: str, notes: Notes) -> str:
    """The name of a joint's parent or child link."""
    if tag not in parts:
        raise LoadError(f"{subject}{at_line(joint.line)} has no <{tag} link=...>; a joint needs a parent and a child")
    _survey(parts[tag], subject, _NONE, _ATTRIBUTES[tag], notes)
    return _name(parts[tag], f"{subject} {tag}", "link")


def _loop(element: Element, notes: Notes) -> Loop:
    """Reads a `<loop_joint>`. It gives a frame on each of two links; the closed loop makes the two coincide."""
    name = _name(element, "loop_joint", "name")
    subject = f"loop_joint {quoted(name)}"
    kind = _LOOP_TYPES.get(element.attributes.get("type", ""))
    if kind is None:
        shown = quoted(element.attributes.get("type", ""))
        raise LoadError(f"{subject}{at_line(element.line)} has type {shown}; allowed are {', '.join(_LOOP_TYPES)}")
    parts = _survey(element, subject, _LOOP_CHILDREN, _ATTRIBUTES["loop_joint"], notes)
    links, frames = [], []
    for tag in ("link1", "link2"):
        if tag not in parts:
            raise LoadError(f"{subject}{at_line(element.line)} has no <{tag} link=...>; a loop joint needs two links")
        _survey(parts[tag], subject, _NONE, _ATTRIBUTES[tag], notes)
        links.append(_name(parts[tag], f"{subject} {tag}", "link"))
        frames.append(pose_transform(_pose_in(parts[tag], subject, notes)))
    if links[0] == links[1]:
        raise LoadError(f"{subject}{at_line(element.line)} joins link {quoted(links[0])} to itself")
    axis, _, _ = _axes(element, parts, kind, subject, notes)
    return Loop(name, subject, kind, links[0], links[1], frames[0], frames[1], axis, element.line)


def _drop_templates(parts: dict[str, Element], subject: str, notes: Notes) -> None:
    """Remove limits and dynamics of a fixed joint that contain unexpanded macros. A fixed joint does not use them."""
    for tag in ("limit", "dynamics"):
        if tag in parts and any("$" in value for value in parts[tag].attributes.values()):
            message = f"the <{tag}> of a fixed joint is not used, and not looked at: it holds an unexpanded macro"
            notes.gather(f"{tag}-not-used", subject, message, parts.pop(tag).line)


def _axes(
    joint: Element, parts: dict[str, Element], kind: str, subject: str, notes: Notes
) -> tuple[Vector3, Vector3, float]:
    """Axis, second axis and pitch of a joint. Values that its type does not use are ignored and get defaults."""
    axis, axis2, pitch = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), 0.0
    if kind in TYPES_WITHOUT_AXIS:
        if "axis" in parts:
            message = f"a {kind} joint has no use for its <axis>, which is not looked at"
            notes.gather("axis-not-used", subject, message, parts["axis"].line)
        return axis, axis2, pitch
    axis = _axis(joint, parts.get("axis"), axis, kind, subject, notes)
    if kind == "universal":
        axis2 = _axis(joint, parts.get("axis2"), axis2, kind, subject, notes)
    if kind == "helical":
        if "axis" not in parts or "pitch" not in parts["axis"].attributes:
            raise LoadError(
                f"{subject}{at_line(joint.line)} is helical and gives no pitch; "
                'give metres per radian, as in <axis xyz="0 0 1" pitch="0.01"/>'
            )
        pitch = _number(parts["axis"], subject, "pitch")
    return axis, axis2, pitch


def _axis(joint: Element, element: Element | None, default: Vector3, kind: str, subject: str, notes: Notes) -> Vector3:
    if element is not None:
        known = _HELICAL_AXIS_ATTRIBUTES if kind == "helical" else _ATTRIBUTES["axis"]
        _survey(element, subject, _NONE, known, notes)
    if element is None or "xyz" not in element.attributes:
        message = f"no axis is given; URDF's default {default[0]:g} {default[1]:g} {default[2]:g} is used"
        notes.gather("axis-defaulted", subject, message, joint.line)
        return default
    vector = _vector(element, subject, "xyz")
    if math.hypot(*vector) == 1.0:
        return vector
    axis, norm = unit_axis(vector, f"{subject} {element.tag} xyz{at_line(element.line)}")
    if off_unit(norm):
        message = f"the {element.tag} {quoted(element.attributes['xyz'])} has norm {norm:g}; scaled to norm 1"
        notes.add("axis-normalised", subject, message, element.line)
    return axis


def _limits(element: Element | None, subject: str, notes: Notes) -> Limits:
    if element is None:
        return _NO_LIMITS
    _survey(element, subject, _NONE, _ATTRIBUTES["limit"], notes)
    limits = {}
    for name in _LIMITS:
        text = element.attributes.get(name)
        if text is not None and (value := number(text)) is None and (value := infinity(text)) is None:
            raise bad_number(text, _where(element, subject, name))
        limits[name] = None if text is None else value
    return limits_of(limits, subject, element.line, notes)


def _dynamics(element: Element | None, subject: str, notes: Notes) -> tuple[float, float, float]:
    if element is None:
        return 0.0, 0.0, 0.0
    _survey(element, subject, _NONE, _ATTRIBUTES["dynamics"], notes)
    return (
        _number(element, subject, "damping", 0.0),
        _number(element, subject, "friction", 0.0),
        _number(element, subject, "armature", 0.0),
    )


def _mimic(element: Element | None, subject: str, notes: Notes) -> Mimic | None:
    if element is None:
        return None
    _survey(element, subject, _NONE, _ATTRIBUTES["mimic"], notes)
    return Mimic(
        _name(element, f"{subject} mimic", "joint"),
        _number(element, subject, "multiplier", 1.0),
        _number(element, subject, "offset", 0.0),
    )


def _pose(element: Element | None, subject: str, notes: Notes) -> Pose:
    if element is None:
        return _HERE
    _survey(element, subject, _NONE, _ATTRIBUTES["origin"], notes)
    return _pose_in(element, subject, notes)


def _pose_in(element: Element, subject: str, notes: Notes) -> Pose:
    """The pose from the attributes xyz, rpy and quat_xyzw of an element."""
    attributes = element.attributes
    rotation: Rotation = IDENTITY
    if "quat_xyzw" in attributes:
        where = _where(element, subject, "quat_xyzw")
        if "rpy" in attributes:
            raise LoadError(f"{where}: rpy is given as well; give one of the two")
        quaternion = numbers(attributes["quat_xyzw"], 4)
        if quaternion is None:
            raise bad_number(attributes["quat_xyzw"], where, 4)
        rotation, norm = rotation_from_quaternion(quaternion, where)
        if off_unit(norm):
            message = f"the quaternion {quoted(attributes['quat_xyzw'])} has norm {norm:g}; scaled to norm 1"
            notes.add("quaternion-normalised", f"{subject} {element.tag}", message, element.line)
    elif "rpy" in attributes:
        rpy = _vector(element, subject, "rpy")
        if any(rpy):
            rotation = rotation_from_rpy(*rpy)
    return Pose(_vector(element, subject, "xyz") if "xyz" in attributes else (0.0, 0.0, 0.0), rotation)


def _where(element: Element, subject: str, attribute: str) -> str:
    """Names an attribute for an error message, as in `joint "shoulder" axis xyz (line 7)`."""
    return f"{subject} {element.tag} {attribute}{at_line(element.line)}"


def _number(element: Element, subject: str, attribute: str, default: float | None = None) -> float:
    text = element.attributes.get(attribute)
    if text is None:
        if default is not None:
            return default
    elif (value := number(text)) is not None:
        return value
    where = _where(element, subject, attribute)
    raise LoadError(f"{where} is missing; give a finite number") if text is None else bad_number(text, where)


def _vector(element: Element, subject: str, attribute: str) -> Vector3:
    text = element.attributes[attribute]
    if (common := _COMMON.get(text)) is not None:
        return common
    values = numbers(text, 3)
    if values is None:
        raise bad_number(text, _where(element, subject, attribute), 3)
    x, y, z = values
    return x, y, z


def _name(element: Element, subject: str, attribute: str) -> str:
    name = element.attributes.get(attribute, "")
    if not name.strip():
        raise LoadError(
            f"{subject}{at_line(element.line)}: the attribute {attribute} of <{element.tag}> is missing or blank"
        )
    if "$" in name:
        raise LoadError(f"{subject}{at_line(element.line)}: the {attribute} {quoted(name)} holds a '$'{hint(name)}")
    return name
