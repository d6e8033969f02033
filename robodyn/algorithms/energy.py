"""Totals over the tree: kinetic and potential energy, centre of mass, centroidal momentum; their derivatives.

Bodies fixed to the world do not move and do not count. Orin, Goswami, Lee, Centroidal Dynamics of a Humanoid Robot
(2013) define the centroidal quantities: momentum about the centre of mass, in axes parallel to the world's.
"""

from __future__ import annotations

from functools import cache

from robodyn.algorithms.crba import COMPOSITES, composite, place
from robodyn.algorithms.kinematics import FROM_ROOT, base_velocity, for_trees, velocity
from robodyn.core.spatial import IDENTITY, Transform, dot, rotate_back, scale
from robodyn.core.sweeps import (
    DOF_FORCES,
    DOF_VECTORS,
    DOFS,
    FORCE,
    INERTIA,
    MOTION,
    SCALAR,
    TRANSFORM,
    VECTOR3,
    Algorithm,
    Body,
    ColumnOutput,
    DofOutput,
    Fields,
    Inward,
    Outward,
    World,
    WorldInputs,
    WorldOutput,
    Written,
)


def kinetic(body: Body, own: Fields, parent: Fields) -> Written:
    """K_i = (v' I v + armature qd^2) / 2."""
    moved = velocity(body, own, parent)
    v = moved["v"]
    K = 0.5 * v.dot(body.inertia.times(v))
    for armature, qd in zip(body.armature, body.qd, strict=True):
        K = K + 0.5 * armature * qd * qd
    return {**moved, "K": K}


def total_kinetic(body: Body, own: Fields) -> tuple[Written, Written]:
    """K_p += K_i."""
    return {}, {"K": own.K}


def potential(world: WorldInputs, own: Fields) -> Written:
    """U = -g . (sum of m c), zero for masses at the height of the world's origin."""
    return {"U": -dot(world.gravity, own.Ic.h)}


def center(world: WorldInputs, own: Fields) -> Written:
    """c = (sum of m c) / (sum of m)."""
    return {"com": scale(1.0 / own.Ic.m, own.Ic.h)}


def momentum_and_above(body: Body, own: Fields, parent: Fields) -> Written:
    """v_i and h_i = I v_i; the parent's velocity in the body's frame (`above`)."""
    moved = velocity(body, own, parent)
    return {**moved, "above": moved["X"].motion(parent.v), "h": body.inertia.times(moved["v"])}


def kinetic_gradient(body: Body, own: Fields) -> tuple[Written, Written]:
    """dK/dq = (v_p x S) . h and dK/dqd = S . h + armature qd, with h the momentum of the subtree; h_p += X' h.

    A coordinate of the joint changes the velocity of every body in the subtree by v_p x S, in that body's frame.
    """
    by_q = tuple(own.above.cross(column).dot(own.h) for column in body.S)
    by_qd = tuple(
        column.dot(own.h) + armature * qd for column, armature, qd in zip(body.S, body.armature, body.qd, strict=True)
    )
    return {"K_q": by_q, "K_qd": by_qd}, {"h": own.X.force_back(own.h)}


def whole(world: WorldInputs, own: Fields) -> Written:
    """The identity, and 1 / (sum of m)."""
    return {"X0": IDENTITY, "per_mass": 1.0 / own.Ic.m}


def center_columns(body: Body, own: Fields, parent: Fields) -> Written:
    """dc/dq: the linear momentum of the subtree at unit joint velocity, in world axes, over the whole mass."""
    X0 = own.X.after(parent.X0)
    lin = (rotate_back(X0.E, own.Ic.times(column).lin) for column in body.S)
    return {"X0": X0, "per_mass": parent.per_mass, "J": tuple(scale(parent.per_mass, each) for each in lin)}


def momentum(body: Body, own: Fields, parent: Fields) -> Written:
    """v_i, h_i = I v, and the body's inertia, to which those of its subtree will be added."""
    moved = velocity(body, own, parent)
    return {**moved, "Ic": body.inertia, "h": body.inertia.times(moved["v"])}


def total_momentum(body: Body, own: Fields) -> tuple[Written, Written]:
    """Ic_p += X' Ic X, h_p += X' h."""
    _, gives = composite(body, own)
    return {}, {**gives, "h": own.X.force_back(own.h)}


def about_center(world: WorldInputs, own: Fields) -> Written:
    """h about the centre of mass, and the transform from the centroidal frame to the world's."""
    to_center = Transform(IDENTITY.E, center(world, own)["com"])
    return {"XG": to_center.inverse(), "hG": to_center.force(own.h)}


def centroidal_columns(body: Body, own: Fields, parent: Fields) -> Written:
    """Column of A: XG_i' Ic_i S_i, with XG_i from the centroidal frame to the body's."""
    XG = own.X.after(parent.XG)
    return {"XG": XG, "A": tuple(XG.force_back(own.Ic.times(column)) for column in body.S)}


KINETIC_ENERGY = Algorithm(
    name="kinetic_energy",
    inputs=("q", "qd"),
    fields={"X": TRANSFORM, "v": MOTION, "K": SCALAR},
    sweeps=(
        World(base_velocity, writes=("v",)),
        Outward(kinetic, carries=("v",), writes=("X", "v", "K")),
        Inward(total_kinetic, reads=("K",), gives=("K",)),
    ),
    outputs={"K": WorldOutput("K")},
)

KINETIC_ENERGY_GRADIENT = Algorithm(
    name="kinetic_energy_gradient",
    inputs=("q", "qd"),
    fields={"X": TRANSFORM, "v": MOTION, "above": MOTION, "h": FORCE, "K_q": DOFS, "K_qd": DOFS},
    sweeps=(
        World(base_velocity, writes=("v",)),
        Outward(momentum_and_above, carries=("v",), writes=("X", "v", "above", "h")),
        Inward(kinetic_gradient, reads=("X", "above", "h"), writes=("K_q", "K_qd"), gives=("h",)),
    ),
    outputs={"K_q": DofOutput("K_q"), "K_qd": DofOutput("K_qd")},
)

POTENTIAL_ENERGY = Algorithm(
    name="potential_energy",
    inputs=("q",),
    fields={"X": TRANSFORM, "Ic": INERTIA, "U": SCALAR},
    sweeps=(Outward(place, writes=("X", "Ic")), COMPOSITES, World(potential, reads=("Ic",), writes=("U",))),
    outputs={"U": WorldOutput("U")},
)

CENTER_OF_MASS = Algorithm(
    name="center_of_mass",
    inputs=("q",),
    fields={"X": TRANSFORM, "Ic": INERTIA, "com": VECTOR3},
    sweeps=(Outward(place, writes=("X", "Ic")), COMPOSITES, World(center, reads=("Ic",), writes=("com",))),
    outputs={"com": WorldOutput("com", (3,))},
)

CENTER_OF_MASS_JACOBIAN = Algorithm(
    name="center_of_mass_jacobian",
    inputs=("q",),
    fields={"X": TRANSFORM, "X0": TRANSFORM, "Ic": INERTIA, "per_mass": SCALAR, "J": DOF_VECTORS},
    sweeps=(
        Outward(place, writes=("X", "Ic")),
        COMPOSITES,
        World(whole, reads=("Ic",), writes=("X0", "per_mass")),
        Outward(center_columns, reads=("X", "Ic"), carries=("X0", "per_mass"), writes=("X0", "per_mass", "J")),
    ),
    outputs={"J": ColumnOutput("J", rows=3)},
)


@cache
def centroidal_momentum(one_tree: bool) -> Algorithm:
    """h and A. `one_tree`: True for models with one root, at whose first body sums are taken."""
    return Algorithm(
        name="centroidal_momentum" + ("_of_one_tree" if one_tree else ""),
        inputs=("q", "qd"),
        fields={
            "X": TRANSFORM,
            "XG": TRANSFORM,
            "v": MOTION,
            "Ic": INERTIA,
            "h": FORCE,
            "hG": FORCE,
            "A": DOF_FORCES,
            **FROM_ROOT,
        },
        sweeps=(
            *for_trees(
                one_tree,
                World(base_velocity, writes=("v",)),
                Outward(momentum, carries=("v",), writes=("X", "v", "Ic", "h")),
            ),
            Inward(total_momentum, reads=("X", "Ic", "h"), gives=("Ic", "h")),
            World(about_center, reads=("Ic", "h"), writes=("XG", "hG")),
            Outward(centroidal_columns, reads=("X", "Ic"), carries=("XG",), writes=("XG", "A")),
        ),
        outputs={"h": WorldOutput("hG", (6,)), "A": ColumnOutput("A")},
    )
