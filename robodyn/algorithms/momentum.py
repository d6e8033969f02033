"""Velocities, accelerations and rates of centres of mass and momentum; their derivatives; inertias of subtrees.

Bodies fixed to the world do not move and do not count. Rates of the centroidal momentum are about the centre of mass,
which moves, in axes that do not turn (Orin, Goswami, Lee 2013). Momentum about a fixed point changes with the sum of
I a + v x* I v; about the centre of mass its rate is that sum transformed there, since the centre's velocity is parallel
to the linear momentum.

The columns X_i' Ic_i S_i of the momentum matrix change, seen from the world, by X_i' (D_i S_i + Ic_i (v_i x S_i)), with
D_i the rate of the composite inertia: the sum of (v x*) I - I (v x) over the subtree (Wensing and Orin, Improved
Computation of the Humanoid Centroidal Dynamics and Application for Whole-Body Control, 2016).

A coordinate of a joint with column S turns the bodies below it, and with them their momentum h. The velocity v_p of the
body before it stays, so the momentum changes by S x* h + Ic (v_p x S) (Carpentier and Mansard, Analytical Derivatives
of Rigid Body Dynamics Algorithms, 2018).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from robodyn.algorithms.crba import COMPOSITES, composite, place
from robodyn.algorithms.energy import center, momentum_and_above, total_momentum, whole
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
from robodyn.core.spatial import IDENTITY, Force, Motion, Transform, Vec3, add, cross, rotate_back, scale, sub
from robodyn.core.sweeps import (
    DOF_FORCES,
    DOF_VECTORS,
    FORCE,
    INERTIA,
    MOTION,
    PER_BODY,
    SCALAR,
    TRANSFORM,
    VECTOR3,
    Algorithm,
    Body,
    ColumnOutput,
    FieldOutput,
    Fields,
    FieldType,
    Inward,
    Outward,
    Sweep,
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


def momentum_above_and_inertia(body: Body, own: Fields, parent: Fields) -> Written:
    """v_i, v_p in the body's frame (`above`), I v_i and I."""
    return {**momentum_and_above(body, own, parent), "Ic": body.inertia}


def turned(body: Body, own: Fields) -> tuple[Force, ...]:
    """S x* h + Ic (v_p x S): derivatives of the subtree's momentum by the joint's coordinates, in the body's frame."""
    return tuple(column.cross_force(own.h) + own.Ic.times(own.above.cross(column)) for column in body.S)


def velocity_columns(body: Body, own: Fields, parent: Fields) -> Written:
    """Derivatives of (sum of linear momenta) / (sum of m) by q and qd, in world axes."""
    X0 = own.X.after(parent.X0)

    def seen(forces: Iterable[Force]) -> tuple[Vec3, ...]:
        return tuple(scale(parent.per_mass, rotate_back(X0.E, each.lin)) for each in forces)

    by_q, by_qd = seen(turned(body, own)), seen(own.Ic.times(column) for column in body.S)
    return {"X0": X0, "per_mass": parent.per_mass, "v_q": by_q, "v_qd": by_qd}


def momentum_columns(body: Body, own: Fields, parent: Fields) -> Written:
    """Derivatives of the momentum about the centre of mass: the centre moves by l / m, l being the linear part of the
    column by qd, which changes the moment by -(l / m) x (linear momentum) = (centre's velocity) x l."""
    XG = own.X.after(parent.XG)
    by_qd = tuple(XG.force_back(own.Ic.times(column)) for column in body.S)
    by_q = tuple(
        Force(add(f.ang, cross(parent.moved, column.lin)), f.lin)
        for f, column in zip(map(XG.force_back, turned(body, own)), by_qd, strict=True)
    )
    return {"XG": XG, "moved": parent.moved, "h_q": by_q, "h_qd": by_qd}


def parameters_of_subtree(body: Body, own: Fields, parent: Fields) -> Written:
    """The ten numbers of the composite inertia."""
    return {"pi": (own.Ic.m, *own.Ic.h, *own.Ic.I)}


def placed_from_world(world: WorldInputs, own: Fields) -> Written:
    """Nothing: inertias are added up from the bodies."""
    return {}


def inertia_about_center(world: WorldInputs, own: Fields) -> Written:
    """The inertia of all bodies about their centre of mass as a matrix, in world axes."""
    m, _, (xx, xy, xz, yy, yz, zz) = Transform(IDENTITY.E, center(world, own)["com"]).inverse().inertia_back(own.Ic)
    return {
        "matrix": (
            *(xx, xy, xz, 0.0, 0.0, 0.0),
            *(xy, yy, yz, 0.0, 0.0, 0.0),
            *(xz, yz, zz, 0.0, 0.0, 0.0),
            *(0.0, 0.0, 0.0, m, 0.0, 0.0),
            *(0.0, 0.0, 0.0, 0.0, m, 0.0),
            *(0.0, 0.0, 0.0, 0.0, 0.0, m),
        )
    }


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

_SUBTREE_MOMENTA: tuple[Sweep, ...] = (
    World(base_velocity, writes=("v",)),
    Outward(momentum_above_and_inertia, carries=("v",), writes=("X", "v", "above", "h", "Ic")),
    Inward(total_momentum, reads=("X", "Ic", "h"), gives=("Ic", "h")),
)
_MOMENTUM_FIELDS = {"X": TRANSFORM, "v": MOTION, "above": MOTION, "h": FORCE, "Ic": INERTIA}

CENTER_OF_MASS_VELOCITY_GRADIENT = Algorithm(
    name="center_of_mass_velocity_gradient",
    inputs=("q", "qd"),
    fields={**_MOMENTUM_FIELDS, "X0": TRANSFORM, "per_mass": SCALAR, "v_q": DOF_VECTORS, "v_qd": DOF_VECTORS},
    sweeps=(
        *_SUBTREE_MOMENTA,
        World(whole, reads=("Ic",), writes=("X0", "per_mass")),
        Outward(
            velocity_columns,
            reads=("X", "above", "h", "Ic"),
            carries=("X0", "per_mass"),
            writes=("X0", "per_mass", "v_q", "v_qd"),
        ),
    ),
    outputs={"dv_dq": ColumnOutput("v_q", rows=3), "dv_dqd": ColumnOutput("v_qd", rows=3)},
)


@cache
def centroidal_momentum_gradient(one_tree: bool) -> Algorithm:
    """Derivatives of the momentum about the centre of mass. `one_tree`: True for models with one root."""
    return Algorithm(
        name="centroidal_momentum_gradient" + ("_of_one_tree" if one_tree else ""),
        inputs=("q", "qd"),
        fields={
            **_MOMENTUM_FIELDS,
            "XG": TRANSFORM,
            "moved": VECTOR3,
            "h_q": DOF_FORCES,
            "h_qd": DOF_FORCES,
            **FROM_ROOT,
        },
        sweeps=(
            *for_trees(one_tree, *_SUBTREE_MOMENTA),
            World(moving_center, reads=("Ic", "h"), writes=("XG", "moved")),
            Outward(
                momentum_columns,
                reads=("X", "above", "h", "Ic"),
                carries=("XG", "moved"),
                writes=("XG", "moved", "h_q", "h_qd"),
            ),
        ),
        outputs={"dh_dq": ColumnOutput("h_q"), "dh_dqd": ColumnOutput("h_qd")},
    )


COMPOSITE_INERTIAS = Algorithm(
    name="composite_inertias",
    inputs=("q",),
    fields={"X": TRANSFORM, "Ic": INERTIA, "pi": FieldType((0.0,) * PER_BODY["inertia"])},
    sweeps=(
        Outward(place, writes=("X", "Ic")),
        COMPOSITES,
        Outward(parameters_of_subtree, reads=("Ic",), writes=("pi",)),
    ),
    outputs={"Ic": FieldOutput("pi", (PER_BODY["inertia"],))},
)


@cache
def centroidal_inertia(one_tree: bool) -> Algorithm:
    """The inertia of all bodies about their centre of mass. `one_tree`: True for models with one root."""
    return Algorithm(
        name="centroidal_inertia" + ("_of_one_tree" if one_tree else ""),
        inputs=("q",),
        fields={"X": TRANSFORM, "Ic": INERTIA, "matrix": FieldType((0.0,) * 36), **FROM_ROOT},
        sweeps=(
            *for_trees(one_tree, World(placed_from_world), Outward(place, writes=("X", "Ic"))),
            COMPOSITES,
            World(inertia_about_center, reads=("Ic",), writes=("matrix",)),
        ),
        outputs={"IG": WorldOutput("matrix", (6, 6))},
    )
