"""Gradients of inverse dynamics at rest: of gravity forces, and of products of the mass matrix and a vector.

`idsva` without velocities. With psidd_i = a_p x S_i, and the inertia I and force f = sum of
I a of the subtree of body i,

    d tau_j / d q_i  = S_j' (I psidd_i + S_i x* f)        j a strict ancestor of i
    d tau_i / d q_j  = S_i' I psidd_j                     j = i or an ancestor

The accelerations a are those against gravity, or those that the vector causes.
"""

from __future__ import annotations

from robodyn.algorithms.kinematics import base_motion_against_gravity
from robodyn.algorithms.tree_frame import placed
from robodyn.core.spatial import IDENTITY, ZERO_MOTION, combined
from robodyn.core.sweeps import (
    DOF_FORCES,
    DOF_MOTIONS,
    DOF_PAIRS,
    FORCE,
    INERTIA,
    MOTION,
    SCALAR,
    TRANSFORM,
    Algorithm,
    Ancestors,
    Body,
    Fields,
    Inward,
    LinkConstants,
    Outward,
    PairBlocks,
    PairOutput,
    World,
    WorldInputs,
    Written,
)


def base_against_gravity(world: WorldInputs, own: Fields) -> Written:
    """a_0 = -g. The world is not a body: `below` is 0."""
    return {"below": 0.0, "XR": IDENTITY, "a": base_motion_against_gravity(world, own)["a"]}


def base_without_gravity(world: WorldInputs, own: Fields) -> Written:
    """a_0 = 0. The world is not a body: `below` is 0."""
    return {"below": 0.0, "XR": IDENTITY, "a": ZERO_MOTION}


def acceleration(body: Body, own: Fields, parent: Fields) -> Written:
    """psidd_i = a_p x S_i and a_i = a_p + S_i x, in the frame of the tree's first body; x is zero or the vector."""
    fields = placed(body, parent, ("a",))
    a_p, S = fields.pop("a_p"), fields["S"]
    return {**fields, "a": a_p + combined(S, body.vector), "psidd": tuple(a_p.cross(column) for column in S)}


def body_forces(body: Body, own: Fields, parent: Fields) -> Written:
    """I and f = I a of the body alone, to which those of its subtree will be added."""
    inertia = own.XR.inertia_back(body.inertia)
    return {"Ic": inertia, "f": inertia.times(own.a)}


def composites(body: Body, own: Fields) -> tuple[Written, Written]:
    """Sums over subtrees; all bodies share one frame, so there are no transforms."""
    return {}, {"Ic": own.Ic, "f": own.f}


def columns(body: Body, own: Fields, link: LinkConstants) -> Written:
    """Of a body i: I psidd + S x* f, and I S."""
    both = zip(own.S, own.psidd, strict=True)
    return {
        "F": tuple(own.Ic.times(psidd) + column.cross_force(own.f) for column, psidd in both),
        "IS": tuple(own.Ic.times(column) for column in own.S),
    }


def entries(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
    """Blocks between an ancestor j (rows) and i (columns)."""
    upper = tuple(tuple(column.dot(F) for F in carry.F) for column in own.S)
    lower = tuple(tuple(psidd.dot(IS) for IS in carry.IS) for psidd in own.psidd)
    return {"upper": upper, "lower": lower}, {"F": carry.F, "IS": carry.IS}


def _at_rest(name: str, inputs: tuple[str, ...], base: World) -> Algorithm:
    return Algorithm(
        name=name,
        inputs=inputs,
        fields={
            "below": SCALAR,
            "XR": TRANSFORM,
            "a": MOTION,
            **dict.fromkeys(("S", "psidd"), DOF_MOTIONS),
            "Ic": INERTIA,
            "f": FORCE,
            **dict.fromkeys(("F", "IS"), DOF_FORCES),
            **dict.fromkeys(("upper", "lower"), DOF_PAIRS),
        },
        sweeps=(
            base,
            Outward(acceleration, carries=("below", "XR", "a"), writes=("below", "XR", "S", "a", "psidd")),
            Outward(body_forces, reads=("XR", "a"), writes=("Ic", "f")),
            Inward(composites, reads=("Ic", "f"), gives=("Ic", "f")),
            Ancestors(
                columns,
                entries,
                reads=("S", "psidd", "Ic", "f"),
                carries=("F", "IS"),
                visits=("S", "psidd"),
                writes=("upper", "lower"),
            ),
        ),
        outputs={"by_q": PairOutput((PairBlocks("upper", diagonal=False), PairBlocks("lower", transposed=True)))},
    )


GRAVITY_FORCE_GRADIENT = _at_rest(
    "gravity_force_gradient", ("q",), World(base_against_gravity, writes=("below", "XR", "a"))
)
"""dg/dq."""

MASS_MATRIX_PRODUCT_GRADIENT = _at_rest(
    "mass_matrix_product_gradient", ("q", "vector"), World(base_without_gravity, writes=("below", "XR", "a"))
)
"""d(H x)/dq for a constant vector x."""
