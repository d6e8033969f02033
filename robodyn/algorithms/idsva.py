"""Gradient of inverse dynamics by composites of subtrees in one frame, entry by entry.

Singh, Russell, Wensing, Efficient Analytical Derivatives of Rigid-Body Dynamics using Spatial Vector Algebra (2022),
algorithm 1 (IDSVA): with the composites I, 2B and f of the subtree of body i,

    d tau_j / d q_i  = S_j' (2B psi_i + I psidd_i + S_i x* f)         j a strict ancestor of i
    d tau_i / d q_j  = S_i' (2B psi_j + I psidd_j)                    j = i or an ancestor
    d tau_j / d qd_i = S_j' (2B S_i + I (psi_i + Sdot_i))             j = i or an ancestor
    d tau_i / d qd_j = S_i' (2B S_j + I (psi_j + Sdot_j))             j a strict ancestor

2B = (v x*) I - I (v x) + (I v) xbar* of each body has a zero right half and a skew lower left block: twelve numbers
(`coriolis.CoriolisInertia`).

External forces are constant in the world: with F the sum of those on the subtree, tau_i has - S_i' F, d tau_i / d q_j
has S_i' (S_j x* F) = - S_j' (S_i x* F).

With `floating_base_variant` some columns hold the gradient of forward dynamics, which is known there without a solve
(docs/gradients.md). For a root that floats freely these are all columns of d qdd / d q and, of d qdd / d qd, those of
linear velocities. With a_p = -g and v_p = 0 they are - S' psidd and - S' Sdot in the root's own rows, and zero in all
others.
"""

from __future__ import annotations

from functools import cache

from robodyn.algorithms.coriolis import CORIOLIS, body_coriolis
from robodyn.algorithms.kinematics import parent_transform
from robodyn.algorithms.tree_frame import BASE, MOTION, MOTION_FIELDS, weighed
from robodyn.core.spatial import IDENTITY, Motion, Scalar, Transform, dot
from robodyn.core.sweeps import (
    DOF_FORCES,
    DOF_PAIRS,
    FORCE,
    INERTIA,
    SCALAR,
    TRANSFORM,
    Algorithm,
    Ancestors,
    Body,
    Fields,
    FieldType,
    Inward,
    LinkConstants,
    Outward,
    PairBlocks,
    PairOutput,
    Sweep,
    World,
    WorldInputs,
    Written,
)

DOF_MOMENTS = FieldType((0.0, 0.0, 0.0), lambda nv: nv)


def body_forces(body: Body, own: Fields, parent: Fields) -> Written:
    """I, 2B and f of the body alone, to which those of its subtree will be added."""
    inertia = own.XR.inertia_back(body.inertia)
    return {
        "Ic": inertia,
        "B2": body_coriolis(inertia, own.v.scaled(2.0)),
        "f": inertia.net_force(own.v, own.a),
    }


def composites(body: Body, own: Fields) -> tuple[Written, Written]:
    """Sums over subtrees; all bodies share one frame, so there are no transforms."""
    return {}, {"Ic": own.Ic, "B2": own.B2, "f": own.f}


def world_is_first(world: WorldInputs, own: Fields) -> Written:
    """The identity: external forces are in the world's frame."""
    return {"X0R": IDENTITY}


def external_force(body: Body, own: Fields, parent: Fields) -> Written:
    """The external force on the body, in the root's frame."""
    X0R: Transform = weighed(parent.below, parent.X0R, parent_transform(body))
    return {"X0R": X0R, "f_out": X0R.force(body.f_ext)}


def external_composites(body: Body, own: Fields) -> tuple[Written, Written]:
    """Sums of external forces over subtrees."""
    return {}, {"f_out": own.f_out}


def columns(body: Body, own: Fields, link: LinkConstants) -> Written:
    """Of a body i: 2B psi + I psidd + S x* f, 2B S + I (psi + Sdot), 2B' S and I S."""
    S, B2, Ic = own.S, own.B2, own.Ic
    return {
        "F_q": tuple(
            B2.times(psi) + Ic.times(psidd) + column.cross_force(own.f)
            for column, psi, psidd in zip(S, own.psi, own.psidd, strict=True)
        ),
        "F_qd": tuple(B2.times(column) + Ic.times(both) for column, both in zip(S, own.psi_Sdot, strict=True)),
        "B2S": tuple(B2.transpose_times(column).ang for column in S),
        "IS": tuple(Ic.times(column) for column in S),
    }


def columns_outside(body: Body, own: Fields, link: LinkConstants) -> Written:
    """`columns`, and S x* F."""
    return {**columns(body, own, link), "SF": tuple(column.cross_force(own.f_out) for column in own.S)}


def entries(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
    """Blocks between an ancestor j (rows) and i (columns)."""
    i_columns = tuple(zip(carry.F_q, carry.F_qd, carry.B2S, carry.IS, strict=True))
    j_rows = tuple(zip(own.S, own.psi, own.psidd, own.psi_Sdot, strict=True))
    written = {
        "q_upper": tuple(tuple(S.dot(F_q) for F_q in carry.F_q) for S in own.S),
        "q_lower": tuple(
            tuple(dot(psi.ang, B2S) + psidd.dot(IS) for _, _, B2S, IS in i_columns) for _, psi, psidd, _ in j_rows
        ),
        "qd_upper": tuple(tuple(S.dot(F_qd) for F_qd in carry.F_qd) for S in own.S),
        "qd_lower": tuple(
            tuple(dot(S.ang, B2S) + both.dot(IS) for _, _, B2S, IS in i_columns) for S, _, _, both in j_rows
        ),
    }
    return written, {name: getattr(carry, name) for name in _CARRIED}


def entries_outside(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
    """`entries` with external forces."""
    written, carried = entries(body, own, first, of_first, carry)
    lower = tuple(
        tuple(value - S.dot(SF) for value, SF in zip(row, carry.SF, strict=True))
        for S, row in zip(own.S, written["q_lower"], strict=True)
    )
    return {**written, "q_lower": lower}, {**carried, "SF": carry.SF}


def is_root(body: Body, own: Fields, parent: Fields) -> Written:
    """1 for the first body of a tree, 0 for others."""
    return {"root": 1.0 - parent.below}


def columns_freely(body: Body, own: Fields, link: LinkConstants) -> Written:
    """`columns`, and a mark that the first visit pairs a body with itself."""
    return {**columns(body, own, link), "itself": 1.0}


def entries_freely(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
    """`entries` with known columns of roots: - S' psidd, - S' Sdot, and zero."""
    written, carried = entries(body, own, first, of_first, carry)
    alone = own.root * carry.itself
    linear_j = tuple(own.root * dot(S.lin, S.lin) for S in own.S)
    linear_i = tuple(alone * dot(S.lin, S.lin) for S in of_first.S)
    known = {
        "q_lower": tuple(
            tuple((1.0 - own.root) * value - alone * _along(S, psidd) for value, S in zip(row, of_first.S, strict=True))
            for row, psidd in zip(written["q_lower"], own.psidd, strict=True)
        ),
        "qd_lower": tuple(
            tuple((1.0 - linear) * value for value in row)
            for row, linear in zip(written["qd_lower"], linear_j, strict=True)
        ),
        "qd_upper": tuple(
            tuple(
                (1.0 - linear) * value - linear * _along(S, Sdot)
                for value, linear, Sdot in zip(row, linear_i, of_first.psi_Sdot, strict=True)
            )
            for row, S in zip(written["qd_upper"], own.S, strict=True)
        ),
    }
    return {**written, **known}, {**carried, "itself": 0.0}


def _along(S: Motion, m: Motion) -> Scalar:
    """S' m: a coordinate of m, where columns S are unit vectors."""
    return dot(S.ang, m.ang) + dot(S.lin, m.lin)


_CARRIED = ("F_q", "F_qd", "B2S", "IS")
_BLOCKS = ("q_upper", "q_lower", "qd_upper", "qd_lower")
_FIELDS: dict[str, FieldType] = {
    **MOTION_FIELDS,
    "Ic": INERTIA,
    "B2": CORIOLIS,
    "X0R": TRANSFORM,
    **dict.fromkeys(("root", "itself"), SCALAR),
    **dict.fromkeys(("f", "f_out"), FORCE),
    **dict.fromkeys(("F_q", "F_qd", "IS", "SF"), DOF_FORCES),
    "B2S": DOF_MOMENTS,
    **dict.fromkeys(_BLOCKS, DOF_PAIRS),
}


def outside_sweeps() -> tuple[Sweep, ...]:
    """Sweeps that transform external forces to the root's frame, as `f_out`."""
    return (
        World(world_is_first, writes=("X0R",)),
        Outward(external_force, carries=("below", "X0R"), writes=("X0R", "f_out")),
    )


@cache
def idsva(
    inputs: tuple[str, ...] = ("q", "qd", "qdd"), damping: bool = False, floating_base_variant: bool = False
) -> Algorithm:
    """d tau / d q and d tau / d qd, with external forces where `inputs` names them.

    `damping`: True if tau includes damping forces with the model's coefficients. `floating_base_variant`: True if all
    trees float freely and known columns of the gradient of forward dynamics replace those of the roots; not with
    external forces."""
    outside = "f_ext" in inputs
    add = (Inward(external_composites, reads=("f_out",), gives=("f_out",)),) if outside else ()
    start, visit = columns, entries
    if outside:
        start, visit = columns_outside, entries_outside
    elif floating_base_variant:
        start, visit = columns_freely, entries_freely
    name = ("idsva", *inputs, *(("damping",) if damping else ()), *(("freely",) if floating_base_variant else ()))
    return Algorithm(
        name="_".join(name),
        inputs=inputs,
        fields=_FIELDS,
        sweeps=(
            BASE,
            MOTION,
            *((Outward(is_root, carries=("below",), writes=("root",)),) if floating_base_variant else ()),
            Outward(body_forces, reads=("XR", "v", "a"), writes=("Ic", "B2", "f")),
            *(outside_sweeps() if outside else ()),
            Inward(composites, reads=("Ic", "B2", "f"), gives=("Ic", "B2", "f")),
            *add,
            Ancestors(
                start,
                visit,
                reads=("S", "psi", "psidd", "psi_Sdot", "Ic", "B2", "f", *(("f_out",) if outside else ())),
                carries=(*_CARRIED, *(("SF",) if outside else ()), *(("itself",) if floating_base_variant else ())),
                visits=("S", "psi", "psidd", "psi_Sdot", *(("root",) if floating_base_variant else ())),
                writes=_BLOCKS,
            ),
        ),
        outputs={
            "tau_q": PairOutput((PairBlocks("q_upper", diagonal=False), PairBlocks("q_lower", transposed=True))),
            "tau_qd": PairOutput(
                (PairBlocks("qd_upper"), PairBlocks("qd_lower", transposed=True, diagonal=False)),
                diagonal="damping" if damping else None,
            ),
        },
    )
