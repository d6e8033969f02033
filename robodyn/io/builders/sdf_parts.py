"""Reads single `<link>` and `<joint>` elements of SDF."""

from __future__ import annotations

import math
from dataclasses import field

from robodyn.core.description import Inertial, Limits, Mimic, Pose, Vector3
from robodyn.core.findings import at_line
from robodyn.core.spatial import Transform, transpose
from robodyn.internals.errors import LoadError
from robodyn.internals.messages import quoted
from robodyn.internals.records import dataclass
from robodyn.io.builders.elements import Element
from robodyn.io.builders.sdf_auto_inertia import auto_inertial
from robodyn.io.builders.sdf_values import NONE, Values, name_of, survey
from robodyn.io.builders.urdf_geometries import SHAPES
from robodyn.io.builders.values import off_unit, unit_axis

_NAME = frozenset({"name"})
_LINK_CHILDREN = frozenset({"pose", "inertial", "gravity", "kinematic"})
_INERTIAL_CHILDREN = frozenset({"pose", "mass", "inertia", "density", "fluid_added_mass"})
_MOMENTS = ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
_JOINT_CHILDREN = frozenset(
    {
        *("pose", "parent", "child", "axis", "axis2", "thread_pitch", "screw_thread_pitch", "gearbox_ratio"),
        *("gearbox_reference_body", "drake:rotor_inertia", "drake:gear_ratio", "drake:mimic"),
    }
)
_AXIS_CHILDREN = frozenset({"xyz", "limit", "dynamics", "use_parent_model_frame", "initial_position", "mimic"})
_LIMIT_CHILDREN = frozenset({"lower", "upper", "effort", "velocity", "stiffness", "dissipation", "drake:acceleration"})
_DYNAMICS_CHILDREN = frozenset({"damping", "friction", "spring_reference", "spring_stiffness"})
_TYPES = {
    "revolute": ("revolute",),
    "continuous": ("continuous",),
    "prismatic": ("prismatic",),
    "screw": ("helical",),
    "universal": ("revolute", "revolute"),
    "revolute2": ("revolute", "revolute"),
    "ball": ("spherical",),
    "fixed": (),
    "gearbox": (),
}
"""The joints in series that each SDF joint type is equivalent to."""
_GEARBOX = ("revolute", "revolute")
"""Axes of a gearbox's two angles."""
_POSITIONS, _OTHERS = 1e16, -1.0
"""SDF's values for no limit: of positions, and of velocities and efforts."""
_Z = (0.0, 0.0, 1.0)


@dataclass(slots=True)
class Axis:
    """One axis of a joint, or a spherical or planar joint.

    `xyz`: a unit vector in the frame `expressed_in`, "" for the joint's own; `dampings`: dampings of a planar joint's
    three coordinates; `leader`: the joint that it mimics, as (joint, number of its axis); `mimic`: multiplier and
    offset.
    """

    type: str
    xyz: Vector3 = _Z
    expressed_in: str = ""
    pitch: float = 0.0
    limits: Limits = field(default_factory=Limits)
    damping: float = 0.0
    dampings: Vector3 | None = None
    friction: float = 0.0
    armature: float = 0.0
    leader: tuple[str, int] | None = None
    mimic: Mimic | None = None


@dataclass(slots=True)
class JointPart:
    """A `<joint>`: names as written, pose of its frame, and the reference frame of the pose ("" for the child's).

    `ratio`, `reference`: gear ratio and reference body of a gearbox, "" if no body is named. A gearbox has both axes or
    none. `missing`: required elements that a gearbox lacks.
    """

    name: str
    type: str
    parent: str
    child: str
    pose: Transform
    relative_to: str
    axes: list[Axis]
    line: int | None
    ratio: float = 1.0
    reference: str = ""
    missing: tuple[str, ...] = ()


def read_inertial(link: Element, parts: dict[str, Element], subject: str, values: Values, moves: bool) -> Inertial:
    """The inertial of a link, with SDF's defaults. Their use for a moving link is reported.

    Raises:
        LoadError: the inertial cannot be computed from the link's shapes (auto), or a value is invalid.
    """
    notes, element = values.notes, parts.get("inertial")
    missing, used = ["<inertial>"], ["1 kg", "moments of 1 kg m^2"]
    mass, pose, moments = 1.0, Pose(), (1.0, 0.0, 0.0, 1.0, 0.0, 1.0)
    densities = [part for each in link.children if each.tag == "collision" for part in each.children]
    if element is not None:
        where = f"{subject} inertial"
        own = survey(element, where, _INERTIAL_CHILDREN, frozenset({"auto"}), notes)
        if "fluid_added_mass" in own:
            message = "the mass of a fluid that moves along (<fluid_added_mass>) has no part"
            notes.gather("sdf-added-mass", subject, message, own["fluid_added_mass"].line)
        if values.flag_of(element, "auto", where, False):
            return auto_inertial(link, own, subject, values)
        X, _ = values.pose(own, where, related=False)
        pose = Pose(X.r, transpose(X.E))
        mass = values.number(own, "mass", where, 1.0)
        moments, missing = _moments(own, where, values)
        used = used[1:] if missing else []
        if not _is_given(own, "mass"):
            missing.append("<mass>")
            used.insert(0, "1 kg")
        densities += element.children
    if missing and moves:
        message = f"without {', '.join(missing)}: SDF's defaults are used, {' and '.join(used)}"
        notes.gather("sdf-default-inertial", subject, message, link.line)
    for each in densities:
        if each.tag == "density":
            message = '<density> counts only with auto="true" of its <inertial>; it is not used'
            notes.gather("sdf-density-not-used", subject, message, each.line, None if missing and moves else "info")
    return Inertial(mass, pose, moments)


def _is_given(parts: dict[str, Element], tag: str) -> bool:
    """True if there is a child with a text. A blank child stands for the default."""
    return tag in parts and bool(parts[tag].text)


def _moments(
    parts: dict[str, Element], subject: str, values: Values
) -> tuple[tuple[float, float, float, float, float, float], list[str]]:
    """The six entries of the inertia matrix, and the tags of missing diagonal entries."""
    if "inertia" not in parts:
        return (1.0, 0.0, 0.0, 1.0, 0.0, 1.0), ["<inertia>"]
    own = survey(parts["inertia"], subject, frozenset(_MOMENTS), NONE, values.notes)
    diagonal = ("ixx", "iyy", "izz")
    xx, xy, xz, yy, yz, zz = (values.number(own, m, subject, 1.0 if m in diagonal else 0.0) for m in _MOMENTS)
    return (xx, xy, xz, yy, yz, zz), [f"<{moment}>" for moment in diagonal if not _is_given(own, moment)]


def read_link(element: Element, subject: str, values: Values) -> dict[str, Element]:
    """The children of a link by tag. Reports properties that a model cannot represent."""
    notes = values.notes
    parts = survey(element, subject, _LINK_CHILDREN, _NAME, notes, SHAPES)
    if not values.flag(parts, "gravity", subject, True):
        message = "gravity is switched off for it in the file; it acts here"
        notes.gather("sdf-gravity-off", subject, message, parts["gravity"].line)
    if values.flag(parts, "kinematic", subject, False):
        message = "it is moved from outside in the file (<kinematic>); here forces move it"
        notes.gather("sdf-kinematic", subject, message, parts["kinematic"].line)
    return parts


def read_joint(element: Element, subject: str, values: Values, version: tuple[int, int]) -> JointPart:
    """Reads a `<joint>`.

    Raises:
        LoadError: an unknown type, a missing parent, child or axis, or an invalid value.
    """
    name = name_of(element, "joint")
    kind = element.attributes.get("type", "").strip().casefold()
    if kind not in _TYPES:
        raise LoadError(f"{subject}{at_line(element.line)} has type {quoted(kind)}; allowed are {', '.join(_TYPES)}")
    parts = survey(element, subject, _JOINT_CHILDREN, frozenset({"name", "type"}), values.notes)
    parent, child = (values.reference(parts, tag, subject, element.line) for tag in ("parent", "child"))
    if child == "world":
        raise LoadError(f"{subject}{at_line(element.line)}: its child is the world, which does not move")
    pose, relative_to = values.pose(parts, subject)
    types = _GEARBOX if kind == "gearbox" and {"axis", "axis2"} <= parts.keys() else _TYPES[kind]
    axes = [_axis(parts, k, of, subject, values, version, element.line) for k, of in enumerate(types)]
    if not axes and "axis" in parts and kind != "gearbox":
        message = f"a {kind} joint has no use for its <axis>, which is not looked at"
        values.notes.gather("axis-not-used", subject, message, parts["axis"].line)
    if kind == "screw":
        axes[0].pitch = _pitch(parts, subject, values)
    if len(axes) == 1:
        _read_drake_extensions(axes[0], parts, subject, values)
    part = JointPart(name, kind, parent, child, pose, relative_to, axes, element.line)
    if kind == "gearbox":
        part.ratio = values.number(parts, "gearbox_ratio", subject, 1.0)
        reference = values.text(parts, "gearbox_reference_body", subject) or ""
        part.reference = "" if reference == "__default__" else reference
        wanted = {"gearbox_reference_body": part.reference, "axis": "axis" in parts, "axis2": "axis2" in parts}
        part.missing = tuple(f"<{tag}>" for tag, present in wanted.items() if not present)
    return part


def _axis(
    parts: dict[str, Element],
    k: int,
    kind: str,
    subject: str,
    values: Values,
    version: tuple[int, int],
    line: int | None,
) -> Axis:
    """The k-th axis of a joint."""
    if kind == "spherical":  # its <axis> has the damping and friction of all three coordinates
        own = survey(parts["axis"], subject, _AXIS_CHILDREN, NONE, values.notes) if "axis" in parts else {}
        damping, friction = _dynamics(own["dynamics"], subject, values) if "dynamics" in own else (0.0, 0.0)
        return Axis(kind, damping=damping, friction=friction)
    tag = ("axis", "axis2")[k]
    if tag not in parts:
        raise LoadError(f"{subject}{at_line(line)} has no <{tag}>; its type wants one")
    notes, where = values.notes, f"{subject} {tag}"
    axis_parts = survey(parts[tag], where, _AXIS_CHILDREN, NONE, notes)
    vector = values.vector(axis_parts, "xyz", where, _Z, frozenset({"expressed_in"}))
    xyz, norm = unit_axis(vector, f"{where} xyz{at_line(parts[tag].line)}")
    if off_unit(norm):
        notes.add(
            "axis-normalised", subject, f"the {tag} {vector} has norm {norm:g}; scaled to norm 1", parts[tag].line
        )
    expressed_in = axis_parts["xyz"].attributes.get("expressed_in", "").strip() if "xyz" in axis_parts else ""
    # Axes are in the model's frame before version 1.5, and in the frame expressed_in after 1.6.
    if version < (1, 7) and values.flag(axis_parts, "use_parent_model_frame", where, version < (1, 5)):
        expressed_in = "__model__"
    limits = _limits(axis_parts["limit"], where, values) if "limit" in axis_parts else Limits()
    damping, friction = _dynamics(axis_parts["dynamics"], subject, values) if "dynamics" in axis_parts else (0.0, 0.0)
    bounded = limits.lower is not None or limits.upper is not None
    axis = Axis(
        "continuous" if kind == "revolute" and not bounded else kind,
        xyz,
        expressed_in,
        limits=limits,
        damping=damping,
        friction=friction,
    )
    if "mimic" in axis_parts:
        axis.leader, axis.mimic = _mimic(axis_parts["mimic"], where, values)
    return axis


def _limits(element: Element, subject: str, values: Values) -> Limits:
    parts = survey(element, f"{subject} limit", _LIMIT_CHILDREN, NONE, values.notes)
    lower, upper = (values.bound(parts, tag, subject, _POSITIONS) for tag in ("lower", "upper"))
    effort, velocity = (values.bound(parts, tag, subject, _OTHERS) for tag in ("effort", "velocity"))
    return Limits(lower, upper, effort, velocity)


def _dynamics(element: Element, subject: str, values: Values) -> tuple[float, float]:
    parts = survey(element, f"{subject} dynamics", _DYNAMICS_CHILDREN, NONE, values.notes)
    if values.number(parts, "spring_stiffness", subject, 0.0):
        values.notes.gather("sdf-spring", subject, "a spring; give its force as tau", element.line)
    return tuple(values.number(parts, tag, subject, 0.0) for tag in ("damping", "friction"))  # type: ignore[return-value]


def _mimic(element: Element, subject: str, values: Values) -> tuple[tuple[str, int], Mimic]:
    """The mimicked joint axis, and the mimic: position = multiplier * (the other's position - reference) + offset."""
    own = frozenset({"multiplier", "offset", "reference"})
    parts = survey(element, f"{subject} mimic", own, frozenset({"joint", "axis"}), values.notes)
    joint, which = (element.attributes.get(key, "").strip() for key in ("joint", "axis"))
    if which not in ("", "axis", "axis2"):
        raise LoadError(f"{subject} mimic{at_line(element.line)}: its axis is {quoted(which)}; wanted axis or axis2")
    multiplier = values.number(parts, "multiplier", subject, 1.0)
    offset, reference = (values.number(parts, tag, subject, 0.0) for tag in ("offset", "reference"))
    return _follower(joint, int(which == "axis2"), multiplier, offset - multiplier * reference, subject, element)


def _drakes_mimic(element: Element, subject: str, values: Values) -> tuple[tuple[str, int], Mimic]:
    """Drake's mimic: position = multiplier * (the other's position) + offset."""
    survey(element, f"{subject} drake:mimic", NONE, frozenset({"joint", "multiplier", "offset"}), values.notes)
    multiplier, offset = (
        values.attribute(element, name, subject, default) for name, default in (("multiplier", 1.0), ("offset", 0.0))
    )
    return _follower(element.attributes.get("joint", "").strip(), 0, multiplier, offset, subject, element)


def _follower(
    joint: str, axis: int, multiplier: float, offset: float, subject: str, element: Element
) -> tuple[tuple[str, int], Mimic]:
    place = f"{subject} mimic{at_line(element.line)}"
    if not joint:
        raise LoadError(f"{place} names no joint; give the one that it follows")
    if not math.isfinite(offset):
        raise LoadError(f"{place}: its offset and reference overflow")
    return (joint, axis), Mimic(joint, multiplier, offset)


def _pitch(parts: dict[str, Element], subject: str, values: Values) -> float:
    """The pitch in m/rad. `screw_thread_pitch` is in metres per revolution, `thread_pitch` in rad/m with opposite
    sign."""
    if "screw_thread_pitch" in parts or "thread_pitch" not in parts:
        return values.number(parts, "screw_thread_pitch", subject, 1.0) / (2.0 * math.pi)
    old = values.number(parts, "thread_pitch", subject, 1.0)
    pitch = -1.0 / old if old else math.inf
    if not math.isfinite(pitch):
        raise LoadError(f"{subject} thread_pitch{at_line(parts['thread_pitch'].line)}: {old} gives no finite pitch")
    return pitch


def _read_drake_extensions(axis: Axis, parts: dict[str, Element], subject: str, values: Values) -> None:
    """Reads Drake's rotor inertia, gear ratio and mimic of a joint with one coordinate."""
    if "drake:rotor_inertia" in parts:
        ratio = values.number(parts, "drake:gear_ratio", subject, 1.0)
        axis.armature = values.number(parts, "drake:rotor_inertia", subject, 0.0) * ratio * ratio
        line = parts["drake:rotor_inertia"].line
        if not math.isfinite(axis.armature):
            raise LoadError(f"{subject}{at_line(line)} armature: a finite number is wanted, not {axis.armature}")
        message = "its armature is drake:rotor_inertia times drake:gear_ratio squared"
        values.notes.gather("armature-from-rotor", subject, message, line)
    if "drake:mimic" in parts:
        axis.leader, axis.mimic = _drakes_mimic(parts["drake:mimic"], subject, values)
