"""Velocities, accelerations and rates of centres of mass and momentum, and the derivative of the centroidal matrix.

Bodies fixed to the world do not move and do not count. Rates of the centroidal momentum are about the centre of mass,
which moves, in axes that do not turn (Orin, Goswami, Lee 2013). Momentum about a fixed point changes with the sum of
I a + v x* I v; about the centre of mass its rate is that sum transformed there, since the centre's velocity is parallel
to the linear momentum.

The columns X_i' Ic_i S_i of the momentum matrix change, seen from the world, by X_i' (D_i S_i + Ic_i (v_i x S_i)), with
D_i the rate of the composite inertia: the sum of (v x*) I - I (v x) over the subtree (Wensing and Orin, Improved
Computation of the Humanoid Centroidal Dynamics and Application for Whole-Body Control, 2016).
"""

from __future__ import annotations

from functools import cache

from robodyn.algorithms.crba import COMPOSITES, composite, place
from robodyn.algorithms.energy import center
from robodyn.algorithms.kinematics import (
    FROM_ROOT,
    POSES_OF_KNOWN,
    acceleration,
    base_motion,
    base_velocity,
    for_trees,
    velocity,
)
from robodyn.core.joints import is_positive
from robodyn.core.spatial import IDENTITY, Force, Motion, Transform, add, cross, rotate_back, scale, sub
from robodyn.core.sweeps import (
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
    FieldOutput,
    Fields,
    Inward,
    Outward,
    World,
    WorldInputs,
    WorldOutput,
    Written,
)


def momentum(body: Body, own: Fields, parent: Fields) -> Written:
    """v_i, I v_i and m_i."""
    moved = velocity(body, own, parent)
    return {**moved, "h": body.inertia.times(moved["v"]), "m": body.inertia.m}


def momentum_rate(body: Body, own: Fields, parent: Fields) -> Written:
    """v_i, a_i, I a_i + v_i x* I v_i and m_i."""
    moved = acceleration(body, own, parent)
    return {**moved, "h": body.inertia.net_force(moved["v"], moved["a"]), "m": body.inertia.m}


def momentum_rate_and_composite(body: Body, own: Fields, parent: Fields) -> Written:
    """v_i, a_i, I a_i + v_i x* I v_i, and the body's inertia, to which those of its subtree will be added."""
    moved = acceleration(body, own, parent)
    return {**moved, "h": body.inertia.net_force(moved["v"], moved["a"]), "Ic": body.inertia}


def total(body: Body, own: Fields) -> tuple[Written, Written]:
    """h_p += X' h_i, m_p += m_i."""
    return {}, {"h": own.X.force_back(own.h), "m": own.m}


def total_and_composite(body: Body, own: Fields) -> tuple[Written, Written]:
    """h_p += X' h_i, Ic_p += X' Ic_i X."""
    _, gives = composite(body, own)
    return {}, {**gives, "h": own.X.force_back(own.h)}


def linear_over_mass(world: WorldInputs, own: Fields) -> Written:
    """(sum of momenta, or of their rates) / (sum of m)."""
    return {"moved": scale(1.0 / own.m, own.h.lin)}


def about_center(world: WorldInputs, own: Fields) -> Written:
    """The rate of momentum about the centre of mass."""
    return {"hG": Transform(IDENTITY.E, center(world, own)["com"]).force(own.h)}


def center_of_subtree(body: Body, own: Fields, parent: Fields) -> Written:
    """c = r + E' h / m; the body's own origin if its subtree has no mass."""
    weighs = is_positive(own.Ic.m)
    of_origin = scale(weighs / (own.Ic.m + (1.0 - weighs)), own.Ic.h)
    return {"com": add(own.X0.r, rotate_back(own.X0.E, of_origin))}


def inertia_and_rate(body: Body, own: Fields, parent: Fields) -> Written:
    """X_i, v_i, I_i and its rate D = (v x*) I - I (v x), to which those of its subtree will be added; I v."""
    moved = velocity(body, own, parent)
    v = moved["v"]
    return {**moved, "Ic": body.inertia, "D": body.inertia.rate(v), "h": body.inertia.times(v)}


def composite_and_rate(body: Body, own: Fields) -> tuple[Written, Written]:
    """Ic_p += X' Ic X, D_p += X' D X, h_p += X' h."""
    _, gives = composite(body, own)
    return {}, {**gives, "D": own.X.inertia_back(own.D), "h": own.X.force_back(own.h)}


def moving_center(world: WorldInputs, own: Fields) -> Written:
    """The transform from the centroidal frame to the world's, and the velocity of the centre of mass."""
    com = center(world, own)["com"]
    return {"XG": Transform(IDENTITY.E, com).inverse(), "moved": scale(1.0 / own.Ic.m, own.h.lin)}


def matrix_rate_columns(body: Body, own: Fields, parent: Fields) -> Written:
    """XG' (D S + Ic (v x S)) - (c' x l, 0), l being the linear part of the column of A, c' the centre's velocity."""
    XG = own.X.after(parent.XG)

    def column(S: Motion) -> Force:
        rate = XG.force_back(own.D.times(S) + own.Ic.times(own.v.cross(S)))
        lin = rotate_back(XG.E, own.Ic.times(S).lin)
        return Force(sub(rate.ang, cross(parent.moved, lin)), rate.lin)

    return {"XG": XG, "moved": parent.moved, "Adot": tuple(map(column, body.S))}


CENTER_OF_MASS_VELOCITY = Algorithm(
    name="center_of_mass_velocity",
    inputs=("q", "qd"),
    fields={"X": TRANSFORM, "v": MOTION, "h": FORCE, "m": SCALAR, "moved": VECTOR3},
    sweeps=(
        World(base_velocity, writes=("v",)),
        Outward(momentum, carries=("v",), writes=("X", "v", "h", "m")),
        Inward(total, reads=("X", "h", "m"), gives=("h", "m")),
        World(linear_over_mass, reads=("h", "m"), writes=("moved",)),
    ),
    outputs={"v": WorldOutput("moved", (3,))},
)

CENTER_OF_MASS_ACCELERATION = Algorithm(
    name="center_of_mass_acceleration",
    inputs=("q", "qd", "qdd"),
    fields={"X": TRANSFORM, "v": MOTION, "a": MOTION, "h": FORCE, "m": SCALAR, "moved": VECTOR3},
    sweeps=(
        World(base_motion, writes=("v", "a")),
        Outward(momentum_rate, carries=("v", "a"), writes=("X", "v", "a", "h", "m")),
        Inward(total, reads=("X", "h", "m"), gives=("h", "m")),
        World(linear_over_mass, reads=("h", "m"), writes=("moved",)),
    ),
    outputs={"a": WorldOutput("moved", (3,))},
)


@cache
def centroidal_momentum_rate(one_tree: bool) -> Algorithm:
    """The rate of the momentum about the centre of mass. `one_tree`: True for models with one root."""
    return Algorithm(
        name="centroidal_momentum_rate" + ("_of_one_tree" if one_tree else ""),
        inputs=("q", "qd", "qdd"),
        fields={"X": TRANSFORM, "v": MOTION, "a": MOTION, "Ic": INERTIA, "h": FORCE, "hG": FORCE, **FROM_ROOT},
        sweeps=(
            *for_trees(
                one_tree,
                World(base_motion, writes=("v", "a")),
                Outward(momentum_rate_and_composite, carries=("v", "a"), writes=("X", "v", "a", "Ic", "h")),
            ),
            Inward(total_and_composite, reads=("X", "Ic", "h"), gives=("Ic", "h")),
            World(about_center, reads=("Ic", "h"), writes=("hG",)),
        ),
        outputs={"hdot": WorldOutput("hG", (6,))},
    )


@cache
def centroidal_matrix_derivative(one_tree: bool) -> Algorithm:
    """The time derivative of the centroidal momentum matrix. `one_tree`: True for models with one root."""
    return Algorithm(
        name="centroidal_matrix_derivative" + ("_of_one_tree" if one_tree else ""),
        inputs=("q", "qd"),
        fields={
            "X": TRANSFORM,
            "XG": TRANSFORM,
            "v": MOTION,
            "Ic": INERTIA,
            "D": INERTIA,
            "h": FORCE,
            "moved": VECTOR3,
            "Adot": DOF_FORCES,
            **FROM_ROOT,
        },
        sweeps=(
            *for_trees(
                one_tree,
                World(base_velocity, writes=("v",)),
                Outward(inertia_and_rate, carries=("v",), writes=("X", "v", "Ic", "D", "h")),
            ),
            Inward(composite_and_rate, reads=("X", "Ic", "D", "h"), gives=("Ic", "D", "h")),
            World(moving_center, reads=("Ic", "h"), writes=("XG", "moved")),
            Outward(
                matrix_rate_columns,
                reads=("X", "v", "Ic", "D"),
                carries=("XG", "moved"),
                writes=("XG", "moved", "Adot"),
            ),
        ),
        outputs={"Adot": ColumnOutput("Adot")},
    )


SUBTREE_CENTERS_OF_MASS = Algorithm(
    name="subtree_centers_of_mass",
    inputs=("q",),
    fields={"X": TRANSFORM, "X0": TRANSFORM, "Ic": INERTIA, "com": VECTOR3},
    sweeps=(
        Outward(place, writes=("X", "Ic")),
        COMPOSITES,
        *POSES_OF_KNOWN,
        Outward(center_of_subtree, reads=("X0", "Ic"), writes=("com",)),
    ),
    outputs={"com": FieldOutput("com", (3,))},
)
