"""RobotDescription: the checked content of a robot file, before it becomes arrays.

Plain frozen dataclasses of names, numbers and tuples. Builders make them (`robodyn.io.builders`), `robodyn.core.model`
turns them into a `Model`. Units are SI, angles radians. A rotation is nine numbers, row-major, and transforms
coordinates of the child (or inertial) frame into coordinates of the frame it is given in.
"""

from __future__ import annotations

import math
import sys
from dataclasses import field
from typing import TYPE_CHECKING, Literal, TypeAlias

from robodyn.internals.records import dataclass

if TYPE_CHECKING:
    from robodyn.core.constraints.kinds import Constraint

Vector3: TypeAlias = tuple[float, float, float]
"""x, y, z."""
Rotation: TypeAlias = tuple[float, float, float, float, float, float, float, float, float]
"""Nine numbers, row-major."""
Severity: TypeAlias = Literal["info", "warning", "error"]
"""Severity of a finding; see `Finding`."""

IDENTITY: Rotation = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)

JOINT_TYPES = (
    "revolute",
    "continuous",
    "prismatic",
    "fixed",
    "planar",
    "floating",
    "helical",
    "spherical",
    "universal",
)
"""Joint types a description may hold. `Model` turns `continuous` into a revolute joint without limits, `fixed`
into a merge of two links, and `universal` into two revolute joints with a massless body between them."""

ONE_COORDINATE_TYPES = frozenset({"revolute", "continuous", "prismatic", "helical"})
"""Joint types with one coordinate. Only they can mimic; all but `continuous` can have position limits."""

UNLIMITED = sys.float_info.max
"""A limit of this size means none, in formats that demand a number."""

TYPES_WITHOUT_AXIS = frozenset({"fixed", "floating", "spherical"})
"""Joint types whose axis is ignored."""

TRANSLATING_TYPES = frozenset({"prismatic", "planar", "floating"})
"""Joint types with a coordinate that only translates, so that the moved body needs mass."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a loading report.

    `severity`: "info" (read and used as it stands, or harmless), "warning" (defaulted, ignored or doubtful: the
    user should know), "error" (accepted only because of `strict=False`).
    `code`: a short stable identifier such as "link-without-inertial"; `element`: the element of the file, such
    as `link "base"`, or the first few of several with the same finding; `message`: the finding and how it was handled;
    `line`: line in the file of the (first) element, or None; `elements`: every element concerned.
    """

    severity: Severity
    code: str
    element: str
    message: str
    line: int | None = None
    elements: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = "" if self.line is None else f" (line {self.line})"
        return f"{self.severity}: {self.element}{where}: {self.message} [{self.code}]"


@dataclass(frozen=True, slots=True)
class Pose:
    """The pose of a frame: `xyz` its origin (m) and `rotation` its axes, both in the frame it is given in."""

    xyz: Vector3 = (0.0, 0.0, 0.0)
    rotation: Rotation = IDENTITY


@dataclass(frozen=True, slots=True)
class Inertial:
    """Mass (kg), pose of the inertial frame in the link frame (its origin is the centre of mass), and the
    rotational inertia about the centre of mass in the inertial frame: xx, xy, xz, yy, yz, zz (kg m^2)."""

    mass: float
    pose: Pose
    inertia: tuple[float, float, float, float, float, float]


@dataclass(frozen=True, slots=True)
class Link:
    """A rigid link; `inertial` is None if the file has none (mass and inertia are then zero). `line`: its line in the
    file, or None; links that differ only in `line` are equal."""

    name: str
    inertial: Inertial | None = None
    line: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a one-coordinate joint, None where the file has none. SI units."""

    lower: float | None = None
    upper: float | None = None
    effort: float | None = None
    velocity: float | None = None


@dataclass(frozen=True, slots=True)
class Mimic:
    """The joint's position is `multiplier * (position of joint) + offset`."""

    joint: str
    multiplier: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class Joint:
    """A joint between two links.

    `origin`: pose of the joint frame in the parent link's frame; the child link's frame coincides with the joint
    frame at position zero. `axis`: unit vector in the joint frame (rotation or translation axis; the normal of a
    planar joint; the first axis of a universal joint, whose second is `axis2`). `pitch`: m/rad, helical only.
    `damping` (N s/m or N m s/rad), `friction` (N or N m), `armature` (kg or kg m^2: inertia felt along the joint
    coordinate itself, as of a geared rotor) apply to each coordinate of the joint. `line`: as for a link.
    """

    name: str
    type: str
    parent: str
    child: str
    origin: Pose = field(default_factory=Pose)
    axis: Vector3 = (1.0, 0.0, 0.0)
    axis2: Vector3 = (0.0, 1.0, 0.0)
    pitch: float = 0.0
    limits: Limits = field(default_factory=Limits)
    damping: float = 0.0
    friction: float = 0.0
    armature: float = 0.0
    mimic: Mimic | None = None
    line: int | None = field(default=None, compare=False)


GEOMETRY_SIZES = {"box": 3, "sphere": 1, "cylinder": 2, "capsule": 2, "ellipsoid": 3, "plane": 2, "mesh": 3}
"""Kinds of geometries, and how many numbers their size has; see `Geometry`."""

ROLES = ("visual", "collision", "both")
"""Purposes of a geometry."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """A shape on a link: visible ("visual"), for collisions ("collision"), or "both". It does not affect the dynamics.

    `pose`: in the frame of the link. `size`, in m:
    box: edges along x, y, z; sphere: radius; cylinder: radius and length along z; capsule: radius and length, along z,
    between the centres of its ends; ellipsoid: semi-axes; plane (normal z): edges along x and y, 0 where it is
    infinite; mesh: factors that scale it along x, y, z.
    `mesh`: path of the mesh file as the robot's file has it; `folder`: the folder of the robot's file, "" for none.
    `name`, "" for none. `color`: red, green, blue, opacity, 0 to 1; `material`: name, `texture`: image file, as the
    robot's file has them. `format`: of the robot's file; `attributes`, `elements`: further attributes of the element
    there, and further elements in it as XML, which have no meaning in other formats.

    Raises, where it becomes a part of a model:
        ArgumentError: another kind or role, sizes that are not positive, or numbers that are not finite floats.
    """

    link: str
    role: str
    kind: str
    pose: Pose
    size: tuple[float, ...]
    mesh: str = ""
    folder: str = ""
    name: str = ""
    color: tuple[float, float, float, float] | None = None
    material: str = ""
    texture: str = ""
    format: str = "urdf"
    attributes: tuple[tuple[str, str], ...] = ()
    elements: str = ""


@dataclass(frozen=True, slots=True)
class Extension:
    """An element of a robot's file that is not interpreted, such as a transmission: text for files that are written.

    `format`: of the file; `parent`: the tag of the enclosing element; `of`: the name of the enclosing link or joint, ""
    for other elements.
    """

    format: str
    parent: str
    of: str
    text: str


@dataclass(frozen=True, slots=True)
class RobotDescription:
    """A checked kinematic tree: unique names, one root, every other link the child of exactly one joint, no
    cycles. `links` and `joints` keep the file's order; `report`: findings of the builder; `constraints`: constraints
    besides the joints (`robodyn.core.constraints`), by names of links and joints. `geometries`: visual and collision
    shapes; `extensions`: elements of the file that are kept as text."""

    name: str
    links: tuple[Link, ...]
    joints: tuple[Joint, ...]
    report: tuple[Finding, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    geometries: tuple[Geometry, ...] = ()
    extensions: tuple[Extension, ...] = ()

    @property
    def root(self) -> str:
        """Name of the one link that is no joint's child."""
        children = {joint.child for joint in self.joints}
        return next(link.name for link in self.links if link.name not in children)


@dataclass(frozen=True, slots=True)
class FileTree:
    """Joints of a file, fixed ones included, which a model does not keep but orders of other libraries depend on.

    `format`: "urdf", "sdf", or one whose order every library keeps: "mjcf", "pinocchio". `names` and `types` of the
    joints in the file's order. `carriers`: for each joint, the index of the joint that carries its parent link, -1 for
    the root. `joints`: for each body of the model, the index of its joint, -1 for a joint that is not in the file, such
    as that of a floating base.
    """

    format: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    carriers: tuple[int, ...]
    joints: tuple[int, ...]


def rotation_from_rpy(roll: float, pitch: float, yaw: float) -> Rotation:
    """Rotation Rz(yaw) Ry(pitch) Rx(roll) of URDF's fixed-axis roll, pitch, yaw (radians)."""
    cr, sr, cp, sp, cy, sy = (
        math.cos(roll),
        math.sin(roll),
        math.cos(pitch),
        math.sin(pitch),
        math.cos(yaw),
        math.sin(yaw),
    )
    return (
        cy * cp,
        cy * sp * sr - sy * cr,
        cy * sp * cr + sy * sr,
        sy * cp,
        sy * sp * sr + cy * cr,
        sy * sp * cr - cy * sr,
        -sp,
        cp * sr,
        cp * cr,
    )
