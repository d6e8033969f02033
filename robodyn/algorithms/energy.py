"""Totals over the tree: kinetic and potential energy, centre of mass, centroidal momentum and its matrix.

Bodies fixed to the world do not move and do not count. Orin, Goswami, Lee, Centroidal Dynamics of a Humanoid Robot
(2013) define the centroidal quantities: momentum about the centre of mass, in axes parallel to the world's.
"""

from __future__ import annotations

from robodyn.algorithms.crba import COMPOSITES, composite, place
from robodyn.algorithms.kinematics import base_velocity, velocity
from robodyn.spatial import IDENTITY, Transform, dot, scale
from robodyn.sweeps import (
    DOF_FORCES,
    FORCE,
    INERTIA,
    MOTION,
    SCALAR,
    TRANSFORM,
    VECTOR3,
    Algorithm,
    Body,
    ColumnOutput,
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


def momentum(body: Body, own: Fields, parent: Fields) -> Written:
    """v_i, h_i = I v, and the inertia to which those of the subtree will be added."""
    moved = velocity(body, own, parent)
    return {**moved, "Ic": body.inertia, "h": body.inertia.times(moved["v"])}


def total_momentum(body: Body, own: Fields) -> tuple[Written, Written]:
    """Ic_p += X' Ic X, h_p += X' h."""
    _, given = composite(body, own)
    return {}, {**given, "h": own.X.force_back(own.h)}


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

CENTROIDAL_MOMENTUM = Algorithm(
    name="centroidal_momentum",
    inputs=("q", "qd"),
    fields={
        "X": TRANSFORM,
        "XG": TRANSFORM,
        "v": MOTION,
        "Ic": INERTIA,
        "h": FORCE,
        "hG": FORCE,
        "A": DOF_FORCES,
    },
    sweeps=(
        World(base_velocity, writes=("v",)),
        Outward(momentum, carries=("v",), writes=("X", "v", "Ic", "h")),
        Inward(total_momentum, reads=("X", "Ic", "h"), gives=("Ic", "h")),
        World(about_center, reads=("Ic", "h"), writes=("XG", "hG")),
        Outward(centroidal_columns, reads=("X", "Ic"), carries=("XG",), writes=("XG", "A")),
    ),
    outputs={"h": WorldOutput("hG", (6,)), "A": ColumnOutput("A")},
)
