"""Links and joints of SDF: what a `<link>` and a `<joint>` say, each by itself."""

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
"""What each of SDF's joint types is one after another."""
_GEARBOX = ("revolute", "revolute")
"""Axes of a gearbox, about which its two angles are."""
_POSITIONS, _OTHERS = 1e16, -1.0
"""What SDF means by no limit."""
_Z = (0.0, 0.0, 1.0)


@dataclass(slots=True)
class Axis:
    """One coordinate of a joint, or a spherical joint, or a planar one.

    `xyz`: a unit vector in the frame `expressed_in`, "" for the joint's own; `dampings`: of a planar joint's
    coordinates; `leader`: whom it mimics, as (joint, number of its axis), with `mimic`.
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
    """A `<joint>`: names as written, the pose of its frame and the frame that is given in ("" for the child's).

    `ratio`, `reference`: of a gearbox, which has both axes or none; "" where no reference body is named. `missing`:
    what a gearbox wants and does not say."""

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
    """The inertial of a link, with SDF's defaults; where those are used for a link that moves, they are reported.

    Raises:
        LoadError: it is to be computed from shapes of which it cannot, or a value is none.
    """
    notes, element = values.notes, parts.get("inertial")
    missing, used = ["<inertial>"], ["1 kg", "moments of 1 kg m^2"]
    mass, pose, six = 1.0, Pose(), (1.0, 0.0, 0.0, 1.0, 0.0, 1.0)
    densities = [part for each in link.children if each.tag == "collision" for part in each.children]
    if element is not None:
        here = f"{subject} inertial"
        own = survey(element, here, _INERTIAL_CHILDREN, frozenset({"auto"}), notes)
        if "fluid_added_mass" in own:
            message = "the mass of a fluid that moves along (<fluid_added_mass>) has no part"
            notes.gather("sdf-added-mass", subject, message, own["fluid_added_mass"].line)
        if values.flag_of(element, "auto", here, False):
            return auto_inertial(link, own, subject, values)
        X, _ = values.pose(own, here, related=False)
        pose = Pose(X.r, transpose(X.E))
        mass = values.number(own, "mass", here, 1.0)
        six, missing = _moments(own, here, values)
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
    return Inertial(mass, pose, six)


def _is_given(parts: dict[str, Element], tag: str) -> bool:
    """Whether there is a child with something in it; a blank one is the default."""
    return tag in parts and bool(parts[tag].text)


def _moments(
    parts: dict[str, Element], subject: str, values: Values
) -> tuple[tuple[float, float, float, float, float, float], list[str]]:
    """Six moments, and which of the diagonal are missing."""
    if "inertia" not in parts:
        return (1.0, 0.0, 0.0, 1.0, 0.0, 1.0), ["<inertia>"]
    own = survey(parts["inertia"], subject, frozenset(_MOMENTS), NONE, values.notes)
    diagonal = ("ixx", "iyy", "izz")
    xx, xy, xz, yy, yz, zz = (values.number(own, m, subject, 1.0 if m in diagonal else 0.0) for m in _MOMENTS)
    return (xx, xy, xz, yy, yz, zz), [f"<{moment}>" for moment in diagonal if not _is_given(own, moment)]


def read_link(element: Element, subject: str, values: Values) -> dict[str, Element]:
    """The children of a link, once what has no part here is reported."""
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
    """A `<joint>`.

    Raises:
        LoadError: a type that there is not, no parent, child or axis, or a value that is none.
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
        _drakes(axes[0], parts, subject, values)
    part = JointPart(name, kind, parent, child, pose, relative_to, axes, element.line)
    if kind == "gearbox":
        part.ratio = values.number(parts, "gearbox_ratio", subject, 1.0)
        given = values.text(parts, "gearbox_reference_body", subject) or ""
        part.reference = "" if given == "__default__" else given
        wanted = {"gearbox_reference_body": part.reference, "axis": "axis" in parts, "axis2": "axis2" in parts}
        part.missing = tuple(f"<{tag}>" for tag, there in wanted.items() if not there)
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
    """The k-th coordinate of a joint."""
    if kind == "spherical":  # its axis holds what acts on all three coordinates
        own = survey(parts["axis"], subject, _AXIS_CHILDREN, NONE, values.notes) if "axis" in parts else {}
        damping, friction = _dynamics(own["dynamics"], subject, values) if "dynamics" in own else (0.0, 0.0)
        return Axis(kind, damping=damping, friction=friction)
    tag = ("axis", "axis2")[k]
    if tag not in parts:
        raise LoadError(f"{subject}{at_line(line)} has no <{tag}>; its type wants one")
    notes, here = values.notes, f"{subject} {tag}"
    axis_parts = survey(parts[tag], here, _AXIS_CHILDREN, NONE, notes)
    given = values.vector(axis_parts, "xyz", here, _Z, frozenset({"expressed_in"}))
    xyz, norm = unit_axis(given, f"{here} xyz{at_line(parts[tag].line)}")
    if off_unit(norm):
        notes.add("axis-normalised", subject, f"the {tag} {given} has norm {norm:g}; scaled to norm 1", parts[tag].line)
    expressed_in = axis_parts["xyz"].attributes.get("expressed_in", "").strip() if "xyz" in axis_parts else ""
    # Before 1.5 axes were in the model's frame; after 1.6 expressed_in says where.
    if version < (1, 7) and values.flag(axis_parts, "use_parent_model_frame", here, version < (1, 5)):
        expressed_in = "__model__"
    limits = _limits(axis_parts["limit"], here, values) if "limit" in axis_parts else Limits()
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
        axis.leader, axis.mimic = _mimic(axis_parts["mimic"], here, values)
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
    """Whom it follows, and how: position = multiplier * (the other's - reference) + offset."""
    own = frozenset({"multiplier", "offset", "reference"})
    parts = survey(element, f"{subject} mimic", own, frozenset({"joint", "axis"}), values.notes)
    joint, which = (element.attributes.get(key, "").strip() for key in ("joint", "axis"))
    if which not in ("", "axis", "axis2"):
        raise LoadError(f"{subject} mimic{at_line(element.line)}: its axis is {quoted(which)}; wanted axis or axis2")
    multiplier = values.number(parts, "multiplier", subject, 1.0)
    offset, reference = (values.number(parts, tag, subject, 0.0) for tag in ("offset", "reference"))
    return _follower(joint, int(which == "axis2"), multiplier, offset - multiplier * reference, subject, element)


def _drakes_mimic(element: Element, subject: str, values: Values) -> tuple[tuple[str, int], Mimic]:
    """The same in Drake's words: position = multiplier * (the other's) + offset."""
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
    """Metres per radian: `screw_thread_pitch` is metres per turn, and `thread_pitch` radians per metre, backwards."""
    if "screw_thread_pitch" in parts or "thread_pitch" not in parts:
        return values.number(parts, "screw_thread_pitch", subject, 1.0) / (2.0 * math.pi)
    old = values.number(parts, "thread_pitch", subject, 1.0)
    pitch = -1.0 / old if old else math.inf
    if not math.isfinite(pitch):
        raise LoadError(f"{subject} thread_pitch{at_line(parts['thread_pitch'].line)}: {old} gives no finite pitch")
    return pitch


def _drakes(axis: Axis, parts: dict[str, Element], subject: str, values: Values) -> None:
    """Drake's rotor inertia, gear ratio and mimic of a joint of one coordinate."""
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
