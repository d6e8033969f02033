"""Converts equalities of a mjModel to constraints of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from robodyn.core.constraints.kinds import Constraint, Coupling, Lock, Point, Weld
from robodyn.core.description import Pose, Severity
from robodyn.internals.arguments import Array
from robodyn.internals.errors import LoadError
from robodyn.io.builders.mjcf_frames import rotation, three
from robodyn.io.builders.mjmodel import MjArrays

_SCALE = 10
"""Index of `torquescale` in the data of a weld."""
_NO_SCALE = 1e-8
"""Below this `torquescale` a weld does not constrain rotation. MuJoCo's rotational stiffness grows with its square,
which then vanishes in rounding errors."""


class Reading(NamedTuple):
    """The constraint of an equality and a note for its finding, or None and the reason why there is no constraint."""

    constraint: Constraint | None
    note: str
    severity: Severity = "warning"


def equality_kinds(mujoco: Any) -> dict[int, str]:
    """Names of MuJoCo's equality types by their numbers: "connect", "weld", "joint" and others. They vary by
    version."""
    types = mujoco.mjtEq
    return {int(getattr(types, name)): name[5:].lower() for name in dir(types) if name.startswith("mjEQ_")}


class Equalities:
    """Reads the equalities of a mjModel. `bodies`, `joints`: all names in MuJoCo's order."""

    def __init__(self, arrays: MjArrays, bodies: Sequence[str], joints: Sequence[str]) -> None:
        self._a, self._bodies, self._joints = arrays, bodies, joints
        self._kinds, self._carriers = equality_kinds(arrays.mujoco), _carriers(arrays)

    def kind(self, e: int) -> str:
        """The type of an equality; its number if MuJoCo has no name for it."""
        number = int(self._a["eq_type"][e])
        return self._kinds.get(number, str(number))

    def linear(self, e: int) -> tuple[int, int] | None:
        """The two joints of an equality in which the first is a linear function of the second; None for others."""
        if self.kind(e) != "joint" or int(self._a["eq_obj2id"][e]) < 0 or np.any(self._a["eq_data"][e][2:5]):
            return None
        return self._a.number("eq_obj1id", e, "njnt"), self._a.number("eq_obj2id", e, "njnt")

    def reading(self, e: int, name: str) -> Reading:
        """The constraint that is equivalent to an equality.

        Raises:
            LoadError: numbers that are not finite, for instance in an edited mjModel.
        """
        kind = self.kind(e)
        if kind not in ("connect", "weld", "joint"):
            return Reading(None, "for which there is no constraint")
        data = np.array(self._a["eq_data"][e])
        if not np.isfinite(data).all():
            raise LoadError(f"the mjModel: eq_data[{e}] is {data.tolist()}; wanted finite numbers")
        return self._of_joints(e, data, name) if kind == "joint" else self._of_bodies(e, data, name, kind == "weld")

    def _of_bodies(self, e: int, data: Array, name: str, weld: bool) -> Reading:
        """The constraint of a connect or a weld. MuJoCo scales a weld's rotation and its stiffness by `torquescale`."""
        ends = self._ends(e, data, weld)
        if ends is None:
            return Reading(None, "between objects that are neither bodies nor sites")
        if self._carriers[ends[0][0]] == self._carriers[ends[1][0]]:
            return Reading(None, "that joins two frames of one body")
        (to, to_at), (link, at) = sorted(ends, key=lambda end: end[0] != 0)  # the world, body 0, comes first
        scale = float(data[_SCALE]) if weld else 0.0
        kind = Point if abs(scale) < _NO_SCALE else Weld
        constraint = kind(self._bodies[link], self._bodies[to] if to else None, at=at, to_at=to_at, name=name)
        if not weld or scale == 1.0:
            return Reading(constraint, "", "info")
        if kind is Point:
            return Reading(constraint, f"; turns are free, as its torquescale is {abs(scale):g}", "info")
        note = f"; its torquescale, {scale:g}, by whose square MuJoCo's is stiffer against turns, has no part"
        return Reading(constraint, note)

    def _ends(self, e: int, data: Array, weld: bool) -> list[tuple[int, Pose]] | None:
        """The two bodies of a connect or weld, each with the constrained frame on it; None for other objects."""
        a, objects, types = self._a, self._a.mujoco.mjtObj, self._a.get("eq_objtype")
        kind = int(objects.mjOBJ_BODY) if types is None else int(types[e])
        if kind == int(objects.mjOBJ_SITE):
            sites = [a.number(which, e, "nsite") for which in ("eq_obj1id", "eq_obj2id")]
            bodies = [a.number("site_bodyid", s, "nbody") for s in sites]
            frames = [_pose(f"site_quat[{s}]", a["site_pos"][s], a["site_quat"][s]) for s in sites]
        elif kind == int(objects.mjOBJ_BODY):
            bodies = [a.number(which, e, "nbody") for which in ("eq_obj1id", "eq_obj2id")]
            first, second = Pose(three(data[:3])), Pose(three(data[3:6]))
            # A weld stores its anchors in the opposite order. The pose of the second body in the first follows them.
            frames = [_pose(f"eq_data[{e}]", data[3:6], data[6:10]), first] if weld else [first, second]
        else:
            return None
        return list(zip(bodies, frames, strict=True))

    def own_sites(self, equalities: Sequence[str], sites: Sequence[str]) -> set[int]:
        """Sites that `to_mjcf` made as ends of equalities, recognised by their names."""
        a, objects = self._a, self._a.get("eq_objtype")
        own = set()
        for e in () if objects is None else np.flatnonzero(objects == int(a.mujoco.mjtObj.mjOBJ_SITE)).tolist():
            for k in (1, 2):
                s = a.number(f"eq_obj{k}id", e, "nsite")
                if sites[s] == f"{equalities[e]}/site{k}":
                    own.add(s)
        return own

    def _of_joints(self, e: int, data: Array, name: str) -> Reading:
        """The constraint q_1 - zero_1 = a_0 + a_1 (q_2 - zero_2), if all higher coefficients are zero."""
        one = self._a.number("eq_obj1id", e, "njnt")
        offset, pair = self.zero(one) + float(data[0]), self.linear(e)
        if int(self._a["eq_obj2id"][e]) < 0:
            return Reading(Lock(self._joints[one], offset, name=name), "", "info")
        if pair is None:
            return Reading(None, "of a polynomial that is not linear, for which there is no constraint")
        slope, other_zero = float(data[1]), self.zero(pair[1])
        sum_of = {self._joints[one]: 1.0, self._joints[pair[1]]: -slope}
        return Reading(Coupling(sum_of, offset - slope * other_zero, name=name), "", "info")

    def zero(self, j: int) -> float:
        """The coordinate of a hinge or slide in `qpos0`."""
        return float(self._a["qpos0"][self._a.number("jnt_qposadr", j, "nq")])


def _carriers(arrays: MjArrays) -> list[int]:
    """For each body, the nearest body on its path to the world that has joints: itself or an ancestor; 0 for none."""
    carriers: list[int] = []
    counts, parents = arrays["body_jntnum"].tolist(), arrays["body_parentid"].tolist()
    for b, (joints, parent) in enumerate(zip(counts, parents, strict=True)):
        carriers.append(b if joints or not b else carriers[parent])
    return carriers


def _pose(name: str, position: Array, quaternion: Array) -> Pose:
    if not np.any(quaternion):
        raise LoadError(f"the mjModel: {name} has a quaternion of length 0")
    return Pose(three(position), rotation(quaternion))
