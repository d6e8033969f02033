"""Second-order derivatives of inverse dynamics, contracted with a vector, by composites of subtrees in one frame.

Singh, Russell, Wensing, On Second-Order Derivatives of Rigid-Body Dynamics: Theory & Implementation (2023) give the
tensors of d2 tau analytically. Here they are contracted with a vector y before anything is summed, which takes matrix
entries for n d pairs of bodies instead of tensor entries for n d^2 triples. The contracted form is derived here.

L = y' tau is a virtual power: with the virtual velocity w_i = w_p + S_i y_i it is the sum of w_i . f_i. This scalar
does not depend on frames, so derivatives can be taken in moving frames. With omega_i = w_p x S_i, with
psi_i = v_p x S_i and psidd_i = a_p x S_i + v_p x psi_i (`tree_frame`), and with sums over the subtree of body i

    I, 2B, f as in `idsva`      P = sum I w      Z = sum 2B' w      D x = sum 2B(x)' w

where 2B(x) is 2B for the velocity x, the first derivatives are

    dL / dq_i   = omega_i . f + psi_i . Z + psidd_i . P
    dL / dqd_i  = S_i . Z + (psi_i + Sdot_i) . P
    dL / dqdd_i = S_i . P

A joint j = i or an ancestor carries the subtree of i along. In the frame that moves with it omega_i changes by
omega_j x S_i, psi_i by psi_j x S_i, f by 2B psi_j + I psidd_j, P by I omega_j and Z by 2B' omega_j + D psi_j. Sorted by
what depends on j:

    U  = 2B psi_i + I psidd_i + S_i x* f         V = 2B' omega_i + S_i x* Z + D psi_i
    Ud = 2B S_i + I (psi_i + Sdot_i)             W = I omega_i + S_i x* P

    d2L / dq_i dq_j    = omega_j . U + psi_j . V + psidd_j . W      j = i or an ancestor
    d2L / dqd_i dq_j   = omega_j . Ud + psi_j . D S_i               j = i or an ancestor
    d2L / dq_i dqd_j   = S_j . V + (psi_j + Sdot_j) . W             j a strict ancestor
    d2L / dqd_i dqd_j  = S_j . D S_i, less S_j . (S_i x* P) where j = i
    d2L / dqdd_i dq_j  = omega_j . I S_i                            j = i or an ancestor
    d2L / dq_i dqdd_j  = S_j . W                                    j a strict ancestor

Within one joint of several degrees of freedom d2L / dq_i dq_j is d/dq_j of dL / dq_i on the tangent space, where the
order matters.

2B' w and D x are moments. With x = (u, t) and P = (m, p), D x = A u + u x m + 2 t x p. A is symmetric: the sum over
bodies of J W - W J + b h' + h b' - 2 (b.h) 1, where J is the rotational inertia, h the first moment, w = (a, b) and
W u = a x u.

External forces are constant in the world. With F their sum over the subtree and E x = sum (w x x) x* f_ext,
d2L / dq_i dq_j has S_j . (E S_i - omega_i x* F).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from robodyn.algorithms.coriolis import CORIOLIS
from robodyn.algorithms.idsva import body_forces, external_composites, outside_sweeps
from robodyn.algorithms.tree_frame import BASE, MOTION, MOTION_FIELDS
from robodyn.core.spatial import (
    ZERO3,
    ZERO_SYM3,
    Force,
    Inertia,
    Mat3,
    Motion,
    Sym3,
    Vec3,
    add,
    combined,
    cross,
    dot,
    full,
    rotate,
    rows_cross,
    scale,
    sub,
    symmetric_times,
)
from robodyn.core.sweeps import (
    DOF_FORCES,
    DOF_MOTIONS,
    DOF_PAIRS,
    DOF_VECTORS,
    FORCE,
    INERTIA,
    TRANSFORM,
    VECTOR3,
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
    Written,
)
from robodyn.core.sweeps import MOTION as MOTION_FIELD

SYM3 = FieldType(ZERO_SYM3)


class ForceTurns(NamedTuple):
    """E x = sum (w x x) x* f, of motions w and forces f: E (u, t) = (R u + Q t, Q u)."""

    R: Mat3
    Q: Mat3

    def times(self, x: Motion) -> Force:
        """E x."""
        return Force(add(rotate(self.R, x.ang), rotate(self.Q, x.lin)), rotate(self.Q, x.ang))


FORCE_TURNS = FieldType(ForceTurns((0.0,) * 9, (0.0,) * 9))


def _cross_after_cross(a: Vec3, n: Vec3) -> Mat3:
    """The matrix of u -> (a x u) x n = (a.n) u - a (n.u)."""
    along = dot(a, n)
    return tuple((along if i == j else 0.0) - a[i] * n[j] for i in range(3) for j in range(3))


def virtual_curvature(inertia: Inertia, w: Motion) -> Sym3:
    """A = J W - W J + b h' + h b' - 2 (b.h) 1 of one body."""
    JW, h, b = rows_cross(full(inertia.I), w.ang), inertia.h, w.lin
    twice = 2.0 * dot(b, h)
    pairs = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
    return tuple(
        JW[3 * i + j] + JW[3 * j + i] + b[i] * h[j] + h[i] * b[j] - (twice if i == j else 0.0) for i, j in pairs
    )


def virtual_motion(body: Body, own: Fields, parent: Fields) -> Written:
    """w = w_p + S y and omega = w_p x S. The world's w is zero, in any frame."""
    return {
        "w": parent.w + combined(own.S, body.vector),
        "omega": tuple(parent.w.cross(column) for column in own.S),
    }


def virtual_forces(body: Body, own: Fields, parent: Fields) -> Written:
    """P, Z and A of the body alone, to which those of its subtree will be added."""
    return {
        "P": own.Ic.times(own.w),
        "Z": own.B2.transpose_times(own.w).ang,
        "A": virtual_curvature(own.Ic, own.w),
    }


def force_turns(body: Body, own: Fields, parent: Fields) -> Written:
    """E of the body alone."""
    w, f = own.w, own.f_out
    R = add(_cross_after_cross(w.ang, f.ang), _cross_after_cross(w.lin, f.lin))
    return {"E": ForceTurns(R, _cross_after_cross(w.ang, f.lin))}


def composites(body: Body, own: Fields) -> tuple[Written, Written]:
    """Sums over subtrees; all bodies share one frame, so there are no transforms."""
    return {}, {name: getattr(own, name) for name in _COMPOSITES}


def composite_turns(body: Body, own: Fields) -> tuple[Written, Written]:
    """Sums of E over subtrees."""
    return {}, {"E": own.E}


def virtual_moment(A: Sym3, P: Force, x: Motion) -> Vec3:
    """D x = A u + u x m + 2 t x p."""
    lin: Vec3 = scale(2.0, cross(x.lin, P.lin))
    return add(symmetric_times(A, x.ang), add(cross(x.ang, P.ang), lin))  # type: ignore[no-any-return]


def columns(body: Body, own: Fields, link: LinkConstants) -> Written:
    """Of a body i: U, Ud, V, W, I S, D S for strict ancestors (DS), and D S - S x* P for j = i (T)."""
    S, B2, Ic, P = own.S, own.B2, own.Ic, own.P
    turned = tuple(column.cross_force(P) for column in S)
    DS = tuple(virtual_moment(own.A, P, column) for column in S)
    return {
        "U": tuple(
            B2.times(psi) + Ic.times(psidd) + column.cross_force(own.f)
            for column, psi, psidd in zip(S, own.psi, own.psidd, strict=True)
        ),
        "Ud": tuple(B2.times(column) + Ic.times(both) for column, both in zip(S, own.psi_Sdot, strict=True)),
        "V": tuple(
            add(
                add(B2.transpose_times(omega).ang, cross(column.ang, own.Z)),
                virtual_moment(own.A, P, psi),
            )
            for column, omega, psi in zip(S, own.omega, own.psi, strict=True)
        ),
        "W": tuple(Ic.times(omega) + SP for omega, SP in zip(own.omega, turned, strict=True)),
        "IS": tuple(Ic.times(column) for column in S),
        "DS": DS,
        "T": tuple(Force(sub(each, SP.ang), scale(-1.0, SP.lin)) for each, SP in zip(DS, turned, strict=True)),
    }


def columns_outside(body: Body, own: Fields, link: LinkConstants) -> Written:
    """`columns`, and Y = E S - omega x* F."""
    Y = tuple(
        own.E.times(column) - omega.cross_force(own.f_out) for column, omega in zip(own.S, own.omega, strict=True)
    )
    return {**columns(body, own, link), "Y": Y}


def entries(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
    """Blocks between an ancestor j (rows) and i (columns); after the first visit T is D S."""
    q_columns = tuple(zip(carry.U, carry.V, carry.W, strict=True))
    written = {
        "qq": tuple(
            tuple(omega.dot(U) + dot(psi.ang, V) + psidd.dot(W) for U, V, W in q_columns)
            for omega, psi, psidd in zip(own.omega, own.psi, own.psidd, strict=True)
        ),
        "q_qd": tuple(
            tuple(omega.dot(Ud) + dot(psi.ang, DS) for Ud, DS in zip(carry.Ud, carry.DS, strict=True))
            for omega, psi in zip(own.omega, own.psi, strict=True)
        ),
        "qd_q": tuple(
            tuple(dot(S.ang, V) + both.dot(W) for _, V, W in q_columns)
            for S, both in zip(own.S, own.psi_Sdot, strict=True)
        ),
        "qd_qd": tuple(tuple(S.dot(T) for T in carry.T) for S in own.S),
        "q_qdd": tuple(tuple(omega.dot(IS) for IS in carry.IS) for omega in own.omega),
        "qdd_q": tuple(tuple(S.dot(W) for W in carry.W) for S in own.S),
    }
    carried = {name: getattr(carry, name) for name in _CARRIED}
    return written, {**carried, "T": tuple(Force(DS, ZERO3) for DS in carry.DS)}


def entries_outside(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
    """`entries` with external forces."""
    written, carried = entries(body, own, first, of_first, carry)
    outside = tuple(
        tuple(value + S.dot(Y) for value, Y in zip(row, carry.Y, strict=True))
        for S, row in zip(own.S, written["qq"], strict=True)
    )
    return {**written, "qq": outside}, {**carried, "Y": carry.Y}


_COMPOSITES = ("Ic", "B2", "f", "P", "Z", "A")
_CARRIED = ("U", "Ud", "V", "W", "IS", "DS", "T")
_BLOCKS = ("qq", "q_qd", "qd_q", "qd_qd", "q_qdd", "qdd_q")
_MOTIONS = ("S", "psi", "psidd", "psi_Sdot", "omega")
_FIELDS: dict[str, FieldType] = {
    **MOTION_FIELDS,
    "w": MOTION_FIELD,
    "omega": DOF_MOTIONS,
    "Ic": INERTIA,
    "B2": CORIOLIS,
    **dict.fromkeys(("f", "f_out", "P"), FORCE),
    "Z": VECTOR3,
    "A": SYM3,
    "E": FORCE_TURNS,
    "X0R": TRANSFORM,
    **dict.fromkeys(("U", "Ud", "W", "IS", "T", "Y"), DOF_FORCES),
    **dict.fromkeys(("V", "DS"), DOF_VECTORS),
    **dict.fromkeys(_BLOCKS, DOF_PAIRS),
}


@cache
def idsva_hessian(inputs: tuple[str, ...] = ("q", "qd", "qdd", "vector")) -> Algorithm:
    """d2 L / dq dq, d2 L / dq dqd, d2 L / dqd dqd and d2 L / dq dqdd of L = y' tau, y being the input `vector`.

    Entry [k, m] of each is d/dy_m of d/dx_k. External forces are included if `inputs` names them.
    """
    outside = "f_ext" in inputs
    place: tuple[Sweep, ...] = ()
    add_up: tuple[Sweep, ...] = ()
    if outside:
        place = (*outside_sweeps(), Outward(force_turns, reads=("w", "f_out"), writes=("E",)))
        add_up = (
            Inward(external_composites, reads=("f_out",), gives=("f_out",)),
            Inward(composite_turns, reads=("E",), gives=("E",)),
        )
    return Algorithm(
        name="idsva_hessian_" + "_".join(inputs),
        inputs=inputs,
        fields=_FIELDS,
        sweeps=(
            BASE,
            MOTION,
            Outward(virtual_motion, reads=("S",), carries=("w",), writes=("w", "omega")),
            Outward(body_forces, reads=("XR", "v", "a"), writes=("Ic", "B2", "f")),
            Outward(virtual_forces, reads=("Ic", "B2", "w"), writes=("P", "Z", "A")),
            *place,
            Inward(composites, reads=_COMPOSITES, gives=_COMPOSITES),
            *add_up,
            Ancestors(
                columns_outside if outside else columns,
                entries_outside if outside else entries,
                reads=(*_MOTIONS, *_COMPOSITES, *(("f_out", "E") if outside else ())),
                carries=(*_CARRIED, *(("Y",) if outside else ())),
                visits=_MOTIONS,
                writes=_BLOCKS,
            ),
        ),
        outputs={
            "qq": PairOutput((PairBlocks("qq", transposed=True), PairBlocks("qq", diagonal=False))),
            "q_qd": PairOutput((PairBlocks("q_qd"), PairBlocks("qd_q", transposed=True, diagonal=False))),
            "qd_qd": PairOutput((PairBlocks("qd_qd"), PairBlocks("qd_qd", transposed=True, diagonal=False))),
            "q_qdd": PairOutput((PairBlocks("q_qdd"), PairBlocks("qdd_q", transposed=True, diagonal=False))),
        },
    )
