"""Serial chains from Denavit-Hartenberg tables, and from the screws of a product of exponentials."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from robodyn.core.description import Inertial, Joint, Limits, Link, Pose, RobotDescription, Rotation, Vector3
from robodyn.core.model import Model
from robodyn.core.poses import transform_of
from robodyn.core.spatial import Transform, sub
from robodyn.internals.arguments import Array, one_of, real_array, require_finite
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.io.builders.assemble import build_model
from robodyn.io.editing.to_description import pose_of

CONVENTIONS = ("standard", "modified")
MOST_JOINTS = 10_000
_KINDS = {"R": "revolute", "P": "prismatic"}
_OF_LINKS = {"mass": (), "com": (3,), "inertia": (3, 3)}
_LIMITS = ("lower", "upper", "effort", "velocity")
_OF_JOINTS = (*_LIMITS, "damping", "friction", "armature")
_UNIT = 1e-9
"""Largest deviation of the direction of a screw from a unit vector, and of an inertia from its transpose."""
_UPPER = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))


def from_dh(
    *,
    a: ArrayLike,
    alpha: ArrayLike,
    d: ArrayLike,
    theta: ArrayLike = 0.0,
    kinds: str = "R",
    convention: str = "standard",
    name: str = "robot",
    gravity: ArrayLike = (0.0, 0.0, -9.81),
    **values: ArrayLike,
) -> Model:
    """A serial chain from a Denavit-Hartenberg table of n joints.

    Each of the four columns is an array (n,), or one number for all joints. The links are "base", "link1" to "linkn",
    the joints "joint1" to "jointn". With the coordinate q added to theta (revolute) or to d (prismatic), the pose of
    a link in the one before is

        standard:  Rz(theta) Tz(d) Tx(a) Rx(alpha)          the joint's axis is z of the link before
        modified:  Rx(alpha) Tx(a) Rz(theta) Tz(d)          the joint's axis is z of its own link

    where a and alpha of row i of the modified convention are those between the axes i-1 and i (Craig 2005).

    Args:
        a: m.
        alpha: rad.
        d: m.
        theta: rad.
        kinds: "R" (revolute) or "P" (prismatic) for each joint, such as "RRPRRR"; one letter for all.
        convention: "standard" (Denavit and Hartenberg 1955; Paul 1981) or "modified" (Craig).
        name: of the robot.
        gravity: acceleration of free fall in world coordinates, m/s^2.
        values: of links, in their frames: `mass` (n,) in kg, `com` (n, 3), the centre of mass, in m, and `inertia`
            (n, 3, 3) about the centre of mass in kg m^2. Of joints, (n,): `lower`, `upper`, `effort`, `velocity`
            (limits, infinite for none), `damping`, `friction`, `armature`. Without `mass` a link is massless.

    Raises:
        ArgumentError: wrong shapes, words or names.
        NumericalError: NaN or infinity.
        LoadError: impossible values, such as negative masses.
    """
    standard = one_of("convention", convention, CONVENTIONS) == "standard"
    given = {"a": a, "alpha": alpha, "d": d, "theta": theta}
    columns = {key: real_array(key, value, (), np.float64) for key, value in given.items()}
    count = _length(columns, kinds)
    table = {key: _numbers(key, value, (), count) for key, value in columns.items()}
    letters = _letters(kinds, count)
    links, joints, parent = [Link("base")], list[Joint](), "base"
    about = _Values(values, count)
    for k, letter in enumerate(letters):
        along = _screw_pose(2, table["theta"][k], table["d"][k])
        across = _screw_pose(0, table["alpha"][k], table["a"][k])
        origin = along if standard else across @ along
        moved = f"axis{k + 1}" if standard else f"link{k + 1}"
        joints.append(about.joint(k, _KINDS[letter], parent, moved, origin, (0.0, 0.0, 1.0)))
        parent = f"link{k + 1}"
        if standard:
            links.append(Link(moved))
            joints.append(Joint(f"{moved}_to_{parent}", "fixed", moved, parent, _pose(across)))
        links.append(Link(parent, about.inertial(k)))
    return build_model(RobotDescription(name, tuple(links), tuple(joints)), gravity=gravity)


def from_screws(
    screws: ArrayLike,
    home: ArrayLike | None = None,
    *,
    name: str = "robot",
    gravity: ArrayLike = (0.0, 0.0, -9.81),
    **values: ArrayLike,
) -> Model:
    """A serial chain from the screw axes of a product of exponentials, T = exp(S_1 q_1) ... exp(S_n q_n) M.

    The links are "base" and "link1" to "linkn". At q = 0 their axes are those of the world. Their origins are the
    points of their joints' axes nearest to the world's origin; behind prismatic joints, the origin of the link before.
    "tool" has the pose M at q = 0.

    Args:
        screws: (n, 6), or (6,) for one joint: angular, then linear part, in world coordinates at q = 0, about the
            world's origin. Revolute: a unit vector w, then -w x p, with p a point of the axis; with h w added, the
            pitch h being in m/rad, the joint is helical. Prismatic: zeros, then a unit vector.
        home: M, (4, 4): the pose of "tool" at q = 0. None: there is no such link.
        name: of the robot.
        gravity: acceleration of free fall in world coordinates, m/s^2.
        values: of links and joints, as in `from_dh`.

    Raises:
        ArgumentError: wrong shapes or names, directions that are not unit vectors, `home` is not a pose.
        NumericalError: NaN or infinity.
        LoadError: impossible values, such as negative masses.

    Source: Lynch and Park, Modern Robotics, 2017, section 4.1.
    """
    rows = np.atleast_2d(real_array("screws", screws, (6,), np.float64, what="angular, then linear part"))
    if rows.ndim != 2 or not 1 <= len(rows) <= MOST_JOINTS:
        raise ArgumentError(f"screws: got shape {np.shape(screws)}; wanted (n, 6), for 1 to {MOST_JOINTS} joints")
    require_finite("screws", rows, 1)
    links, joints, parent, at = [Link("base")], list[Joint](), "base", np.zeros(3)
    about = _Values(values, len(rows))
    for k, (w, v) in enumerate(zip(rows[:, :3], rows[:, 3:], strict=True)):
        turns, kind, pitch = bool(w.any()), "prismatic", 0.0
        direction, point = (w, np.cross(w, v)) if turns else (v, at)
        if abs(np.linalg.norm(direction) - 1.0) > _UNIT:
            part = "angular part" if turns else "linear part, the angular one being zero,"
            raise ArgumentError(
                f"screws: the {part} of row {k} has length {np.linalg.norm(direction):.9g}; wanted a unit vector"
            )
        if turns:
            pitch = float(w @ v)
            kind = "revolute" if abs(pitch) <= _UNIT * max(1.0, float(np.abs(v).max())) else "helical"
        origin = np.eye(4)
        origin[:3, 3], at = point - at, point
        moved = f"link{k + 1}"
        joints.append(about.joint(k, kind, parent, moved, origin, _three(direction), pitch))
        links.append(Link(moved, about.inertial(k)))
        parent = moved
    if home is not None:
        M = transform_of("home", home)
        links.append(Link("tool"))
        joints.append(Joint("tool_mount", "fixed", parent, "tool", pose_of(Transform(M.E, sub(M.r, _three(at))))))
    return build_model(RobotDescription(name, tuple(links), tuple(joints)), gravity=gravity)


class _Values:
    """Values of links and joints, each (n, ...)."""

    def __init__(self, values: Mapping[str, ArrayLike], count: int) -> None:
        unknown = values.keys() - {*_OF_LINKS, *_OF_JOINTS}
        if unknown:
            raise ArgumentError(
                f"{min(unknown)}: no such argument; wanted any of {', '.join((*_OF_LINKS, *_OF_JOINTS))}"
            )
        self._given = {
            key: _numbers(key, value, _OF_LINKS.get(key, ()), count, finite=key not in _LIMITS)
            for key, value in values.items()
            if value is not None
        }
        for key in ("com", "inertia"):
            if key in self._given and "mass" not in self._given:
                raise ArgumentError(f"{key}: given without mass; wanted both")

    def _of(self, key: str, k: int) -> float | None:
        number = float(self._given[key][k]) if key in self._given else math.inf
        return number if math.isfinite(number) else None

    def joint(
        self, k: int, kind: str, parent: str, child: str, origin: Array, axis: Vector3, pitch: float = 0.0
    ) -> Joint:
        """The joint of row k. `origin`: its pose in the link before, (4, 4)."""
        limits = Limits(*(self._of(key, k) for key in _LIMITS))
        if kind == "revolute" and limits.lower is None and limits.upper is None:
            kind = "continuous"
        return Joint(
            f"joint{k + 1}",
            kind,
            parent,
            child,
            _pose(origin),
            axis,
            pitch=pitch,
            limits=limits,
            damping=self._of("damping", k) or 0.0,
            friction=self._of("friction", k) or 0.0,
            armature=self._of("armature", k) or 0.0,
        )

    def inertial(self, k: int) -> Inertial | None:
        """The inertial of link k; None without masses."""
        if "mass" not in self._given:
            return None
        com = self._given["com"][k] if "com" in self._given else np.zeros(3)
        matrix = self._given["inertia"][k] if "inertia" in self._given else np.zeros((3, 3))
        if np.abs(matrix - matrix.T).max() > _UNIT * np.abs(matrix).max():
            raise ArgumentError(f"inertia: row {k} is not symmetric; wanted symmetric matrices (3, 3)")
        matrix = 0.5 * matrix + 0.5 * matrix.T
        xx, xy, xz, yy, yz, zz = (float(matrix[i, j]) for i, j in _UPPER)
        return Inertial(float(self._given["mass"][k]), Pose(_three(com)), (xx, xy, xz, yy, yz, zz))


def _numbers(name: str, value: ArrayLike, shape: tuple[int, ...], count: int, finite: bool = True) -> Array:
    """Numbers (count, *shape); one entry is that of all. `finite`: False if infinity is allowed."""
    array = real_array(name, value, shape, np.float64)
    require_finite(name, array if finite else np.where(np.isinf(array), 0.0, array), len(shape))
    if array.ndim - len(shape) > 1 or (array.ndim > len(shape) and len(array) != count):
        raise ArgumentError(f"{name}: got shape {array.shape}; wanted {(count, *shape)}, a row for each joint")
    return np.broadcast_to(array, (count, *shape))


def _length(columns: Mapping[str, Array], kinds: Any) -> int:
    """The number of rows of a table, some columns of which may be one number."""
    lengths = {key: len(array) for key, array in columns.items() if array.ndim}
    if isinstance(kinds, str) and len(kinds) > 1:
        lengths["kinds"] = len(kinds)
    count = next(iter(lengths.values()), 1)
    if {*lengths.values()} - {count} or not 1 <= count <= MOST_JOINTS:
        said = ", ".join(f"{key} {length}" for key, length in lengths.items())
        raise ArgumentError(
            f"{next(iter(lengths))}: got columns of these lengths: {said}; wanted one length, 1 to {MOST_JOINTS}"
        )
    return count


def _letters(kinds: Any, count: int) -> str:
    if not isinstance(kinds, str) or not kinds or not {*kinds} <= {*_KINDS} or len(kinds) not in (1, count):
        raise ArgumentError(f"kinds: got {brief(kinds)}; wanted {count} letters R (revolute) or P (prismatic), or one")
    return kinds if len(kinds) == count else kinds * count


def _three(vector: Any) -> Vector3:
    x, y, z = (float(number) for number in vector)
    return x, y, z


def _screw_pose(axis: int, angle: float, shift: float) -> Array:
    """The pose of a turn about a coordinate axis and a shift along it."""
    i, j = (axis + 1) % 3, (axis + 2) % 3
    T = np.eye(4)
    T[i, i] = T[j, j] = np.cos(angle)
    T[j, i], T[i, j], T[axis, 3] = np.sin(angle), -np.sin(angle), shift
    return T


def _pose(T: Array) -> Pose:
    return Pose(_three(T[:3, 3]), cast(Rotation, tuple(float(number) for number in T[:3, :3].ravel())))
