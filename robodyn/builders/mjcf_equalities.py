"""Equalities of a mjModel as constraints of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robodyn.arguments import Array
from robodyn.builders.mjcf_frames import rotation, three
from robodyn.constraints.kinds import Constraint, Coupling, Lock, Point, Weld
from robodyn.description import Pose

KINDS = ("connect", "weld", "joint", "tendon", "flex", "distance")
"""MuJoCo's mjEQ_CONNECT and those after it."""
_CONNECT, _WELD, _JOINT = range(3)
_SITE = 6
"""mjOBJ_SITE: then the equality is one of two sites' frames."""


def constraint_of(m: Any, e: int, name: str, bodies: Sequence[str], joints: Sequence[str]) -> Constraint | str:
    """The constraint that holds what an equality does, or why there is none.

    `bodies`, `joints`: names by MuJoCo's numbers. MuJoCo's anchors are in the axes of either body.
    """
    kind, (one, other), data = int(m.eq_type[e]), (int(m.eq_obj1id[e]), int(m.eq_obj2id[e])), np.array(m.eq_data[e])
    if kind == _JOINT:
        return _of_joints(m, one, other, data, name, joints)
    if kind not in (_CONNECT, _WELD):
        return "for which there is no constraint"
    if int(m.eq_objtype[e]) == _SITE:
        places = [(int(m.site_bodyid[s]), _pose(m.site_pos[s], m.site_quat[s])) for s in (one, other)]
    elif kind == _CONNECT:
        places = [(one, _pose(data[:3])), (other, _pose(data[3:6]))]
    else:
        places = [(one, _pose(data[3:6], data[6:10])), (other, _pose(data[:3]))]
    if m.body_weldid[places[0][0]] == m.body_weldid[places[1][0]]:
        return "that joins two frames of one body"
    if places[1][0] == 0:  # the world is what holds
        places.reverse()
    (to, to_at), (link, at) = places
    holding = bodies[to] if to else None
    if kind == _CONNECT:
        return Point(bodies[link], holding, at=at, to_at=to_at, name=name)
    return Weld(bodies[link], holding, at=at, to_at=to_at, name=name)


def _of_joints(m: Any, one: int, other: int, data: Array, name: str, joints: Sequence[str]) -> Constraint | str:
    """q_1 - zero_1 = a_0 + a_1 (q_2 - zero_2) + ..., of which that much is linear."""
    zero = float(m.qpos0[int(m.jnt_qposadr[one])]) + float(data[0])
    if other < 0:
        return Lock(joints[one], zero, name=name)
    if np.any(data[2:5]):
        return "of a polynomial that is not linear, for which there is no constraint"
    slope = float(data[1])
    its_zero = float(m.qpos0[int(m.jnt_qposadr[other])])
    return Coupling({joints[one]: 1.0, joints[other]: -slope}, zero - slope * its_zero, name=name)


def _pose(position: Array, quaternion: Array | None = None) -> Pose:
    return Pose(three(position)) if quaternion is None else Pose(three(position), rotation(quaternion))
