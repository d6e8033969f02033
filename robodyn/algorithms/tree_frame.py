"""Bodies of a tree in one frame: that of the body at its root.

In a common frame, sums over subtrees and products between a body and its ancestors need no transforms. The world's
frame would do (Singh, Russell, Wensing 2022 use it), but the frame of the tree's first body is better: its transforms
do not contain the joint to the world, which saves operations, and a robot far from the world's origin loses no digits.

A step must not branch on whether its parent is the world. `below` is 0 for the world and 1 for every body. It weighs
the parent's value against the value that the tree starts with: exactly, and at no cost in a traced program.
"""

from __future__ import annotations

from typing import Any

from robodyn.algorithms.kinematics import base_motion_against_gravity, parent_transform
from robodyn.core.spatial import IDENTITY, Motion, Scalar, Transform, combined
from robodyn.core.sweeps import (
    DOF_MOTIONS,
    SCALAR,
    TRANSFORM,
    Body,
    Fields,
    FieldType,
    Outward,
    World,
    WorldInputs,
    Written,
)
from robodyn.core.sweeps import MOTION as MOTION_FIELD


def weighed(below: Scalar, parents: Any, first: Any) -> Any:
    """The parent's value where `below` is 1, the value that the tree starts with where it is 0."""
    if isinstance(parents, tuple):
        parts = [weighed(below, a, b) for a, b in zip(parents, first, strict=True)]
        return type(parents)(*parts) if hasattr(parents, "_fields") else tuple(parts)
    return below * parents + (1.0 - below) * first


def base_of_trees(world: WorldInputs, own: Fields) -> Written:
    """The world's motion against gravity; `below` is 0 and XR the identity."""
    return {**base_motion_against_gravity(world, own), "below": 0.0, "XR": IDENTITY}


def placed(body: Body, parent: Fields, motions: tuple[str, ...]) -> dict[str, Any]:
    """XR from the root's frame to the body's, columns S in the root's frame, and motions of the parent (v_p for v)."""
    X = parent_transform(body)
    XR: Transform = weighed(parent.below, X.after(parent.XR), IDENTITY)
    of_parent = {name: getattr(parent, name) for name in motions}
    return {
        "below": 1.0,
        "XR": XR,
        "S": tuple(XR.motion_back(column) for column in body.S),
        **{f"{name}_p": weighed(parent.below, m, X.motion(m)) for name, m in of_parent.items()},
    }


def motion(body: Body, own: Fields, parent: Fields) -> Written:
    """v_i, a_i, and derivatives of the subtree's motion by the joint's coordinates.

    psi = v_p x S, psidd = a_p x S + v_p x psi, and psi + Sdot with Sdot = v x S (Singh, Russell, Wensing 2022, eq. 12).
    """
    fields = placed(body, parent, ("v", "a"))
    v_p, a_p = fields.pop("v_p"), fields.pop("a_p")
    S: tuple[Motion, ...] = fields["S"]
    psi = tuple(v_p.cross(column) for column in S)
    vJ = combined(S, body.qd)
    return {
        **fields,
        "v": v_p + vJ,
        "a": a_p + combined(S, body.qdd) + combined(psi, body.qd),
        "psi": psi,
        "psidd": tuple(a_p.cross(column) + v_p.cross(each) for column, each in zip(S, psi, strict=True)),
        "psi_Sdot": tuple(each.scaled(2.0) + vJ.cross(column) for column, each in zip(S, psi, strict=True)),
    }


MOTION_FIELDS: dict[str, FieldType] = {
    "below": SCALAR,
    "XR": TRANSFORM,
    "v": MOTION_FIELD,
    "a": MOTION_FIELD,
    **dict.fromkeys(("S", "psi", "psidd", "psi_Sdot"), DOF_MOTIONS),
}
BASE = World(base_of_trees, writes=("v", "a", "below", "XR"))
MOTION = Outward(
    motion, carries=("below", "XR", "v", "a"), writes=("below", "XR", "S", "v", "a", "psi", "psidd", "psi_Sdot")
)
