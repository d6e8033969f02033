"""The Coriolis matrix C with C qd + g = bias and Hdot - 2 C skew-symmetric.

Echeandia and Wensing, Numerical Methods to Compute the Coriolis Matrix and Christoffel Symbols for Rigid-Body Systems
(2021), algorithm 1: composites of the body-level matrices B = ((v x*) I - I (v x) + (I v) xbar*) / 2 are summed inward
along with composite inertias. B has a zero right half and a skew lower left block: twelve numbers.
"""

from __future__ import annotations

from typing import NamedTuple

from robodyn.algorithms.crba import composite
from robodyn.algorithms.kinematics import base_velocity, velocity
from robodyn.core.spatial import (
    ZERO3,
    Force,
    Inertia,
    Mat3,
    Motion,
    Transform,
    Vec3,
    add,
    cross,
    cross_columns,
    dot,
    full,
    matmul,
    rotate,
    rotate_back,
    scale,
    sub,
    transpose,
)
from robodyn.core.sweeps import (
    DOF_FORCES,
    DOF_PAIRS,
    INERTIA,
    MOTION,
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
    World,
    Written,
)


class CoriolisInertia(NamedTuple):
    """B = [[P, 0], [s x, 0]]."""

    P: Mat3
    s: Vec3

    def times(self, m: Motion) -> Force:
        """B m."""
        return Force(rotate(self.P, m.ang), cross(self.s, m.ang))

    def transpose_times(self, m: Motion) -> Force:
        """B' m."""
        return Force(sub(rotate_back(self.P, m.ang), cross(self.s, m.lin)), ZERO3)

    def back(self, X: Transform) -> CoriolisInertia:
        """X' B X."""
        s = rotate_back(X.E, self.s)
        x, y, z = s
        turned = matmul(transpose(X.E), matmul(self.P, X.E))
        return CoriolisInertia(add(turned, cross_columns(X.r, (0.0, -z, y, z, 0.0, -x, -y, x, 0.0))), s)


CORIOLIS = FieldType(CoriolisInertia((0.0,) * 9, ZERO3))


def body_coriolis(inertia: Inertia, v: Motion) -> CoriolisInertia:
    """B of one body: P = (w x)(I - tr(I)/2) - u h' + (h.u) 1 and s = -(linear momentum), for v = (w, u)."""
    trace_half = 0.5 * (inertia.I[0] + inertia.I[3] + inertia.I[5])
    identity = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    centred = sub(full(inertia.I), scale(trace_half, identity))
    outer = tuple(u * h for u in v.lin for h in inertia.h)
    P = add(sub(cross_columns(v.ang, centred), outer), scale(dot(inertia.h, v.lin), identity))
    return CoriolisInertia(P, scale(-1.0, inertia.times(v).lin))


def outward(body: Body, own: Fields, parent: Fields) -> Written:
    """v_i, the rigid inertia and B_i of the body, to which those of its subtree will be added."""
    moved = velocity(body, own, parent)
    return {**moved, "Ic": body.inertia, "B": body_coriolis(body.inertia, moved["v"])}


def inward(body: Body, own: Fields) -> tuple[Written, Written]:
    """Ic_p += X' Ic X, B_p += X' B X."""
    _, gives = composite(body, own)
    return {}, {**gives, "B": own.B.back(own.X)}


def start(body: Body, own: Fields, link: LinkConstants) -> Written:
    """F1 = Ic Sdot + B S, F2 = Ic S, F3 = B' S, with Sdot = v x S."""
    return {
        "F1": tuple(own.Ic.times(own.v.cross(column)) + own.B.times(column) for column in body.S),
        "F2": tuple(own.Ic.times(column) for column in body.S),
        "F3": tuple(own.B.transpose_times(column) for column in body.S),
    }


def visit(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
    """C_ji = S_j' F1 and C_ij' = Sdot_j' F2 + S_j' F3."""
    upper = tuple(tuple(column.dot(F) for F in carry.F1) for column in body.S)
    lower = tuple(
        tuple(own.v.cross(column).dot(F2) + column.dot(F3) for F2, F3 in zip(carry.F2, carry.F3, strict=True))
        for column in body.S
    )
    moved = {name: tuple(own.X.force_back(F) for F in getattr(carry, name)) for name in ("F1", "F2", "F3")}
    return {"upper": upper, "lower": lower}, moved


CORIOLIS_MATRIX = Algorithm(
    name="coriolis_matrix",
    inputs=("q", "qd"),
    fields={
        "X": TRANSFORM,
        "v": MOTION,
        "Ic": INERTIA,
        "B": CORIOLIS,
        "F1": DOF_FORCES,
        "F2": DOF_FORCES,
        "F3": DOF_FORCES,
        "upper": DOF_PAIRS,
        "lower": DOF_PAIRS,
    },
    sweeps=(
        World(base_velocity, writes=("v",)),
        Outward(outward, carries=("v",), writes=("X", "v", "Ic", "B")),
        Inward(inward, reads=("X", "Ic", "B"), gives=("Ic", "B")),
        Ancestors(
            start,
            visit,
            reads=("Ic", "B", "v"),
            carries=("F1", "F2", "F3"),
            visits=("X", "v"),
            writes=("upper", "lower"),
        ),
    ),
    outputs={"C": PairOutput((PairBlocks("upper"), PairBlocks("lower", transposed=True, diagonal=False)))},
)
"""C(q, qd)."""
