"""RNEA, the recursive Newton-Euler algorithm: inverse dynamics of a kinematic tree (RBDA table 5.1)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from robodyn.algorithms.kinematics import POSES_OF_KNOWN, acceleration, base_motion_against_gravity
from robodyn.core.sweeps import (
    DOFS,
    FORCE,
    MOTION,
    TRANSFORM,
    Algorithm,
    Body,
    DofOutput,
    FieldOutput,
    Fields,
    Inward,
    Outward,
    Sweep,
    World,
    Written,
)


def force(body: Body, own: Fields, parent: Fields) -> Written:
    """f_i = I a_i + v_i x* I v_i, with v_i and a_i of `kinematics.acceleration`."""
    moved = acceleration(body, own, parent)
    v, a = moved["v"], moved["a"]
    return {**moved, "f": body.inertia.net_force(v, a)}


def external_force(body: Body, own: Fields, parent: Fields) -> Written:
    """f_i -= X_i0* f_ext_i; external forces are in world coordinates."""
    return {"f": own.f - own.X0.force(body.f_ext)}


def joint_force(body: Body, own: Fields) -> tuple[Written, Written]:
    """tau_i = S' f_i + armature qdd_i; f_p += X_i' f_i."""
    tau = tuple(
        column.dot(own.f) + armature * qdd
        for column, armature, qdd in zip(body.S, body.armature, body.qdd, strict=True)
    )
    return {"tau": tau}, {"f": own.X.force_back(own.f)}


@cache
def rnea(inputs: tuple[str, ...] = ("q", "qd", "qdd")) -> Algorithm:
    """RNEA for these inputs. Without `qdd` it is the bias force, without `qd` and `qdd` the gravity force."""
    external: tuple[Sweep, ...] = ()
    if "f_ext" in inputs:
        external = (*POSES_OF_KNOWN, Outward(external_force, reads=("X0", "f"), writes=("f",)))
    return Algorithm(
        name="rnea_" + "_".join(inputs),
        inputs=inputs,
        fields={"X": TRANSFORM, "X0": TRANSFORM, "v": MOTION, "a": MOTION, "f": FORCE, "tau": DOFS},
        sweeps=(
            World(base_motion_against_gravity, writes=("v", "a")),
            Outward(force, carries=("v", "a"), writes=("X", "v", "a", "f")),
            *external,
            Inward(joint_force, reads=("X", "f"), writes=("tau",), gives=("f",)),
        ),
        outputs={"tau": DofOutput("tau")},
    )


@cache
def joint_reaction(inputs: tuple[str, ...] = ("q", "qd", "qdd")) -> Algorithm:
    """The forces f_i at the end of RNEA: the force through joint i that moves its body and the subtree below."""
    whole = rnea(inputs)
    return replace(whole, name="joint_reaction_" + "_".join(inputs), outputs={"f": FieldOutput("f", (6,))})
