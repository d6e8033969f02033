"""CRBA, the composite-rigid-body algorithm: the joint-space inertia (mass) matrix (RBDA table 6.2)."""

from __future__ import annotations

from robodyn.algorithms.kinematics import parent_transform
from robodyn.core.sweeps import (
    DOF_FORCES,
    DOF_PAIRS,
    INERTIA,
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
    Written,
)


def place(body: Body, own: Fields, parent: Fields) -> Written:
    """X_i, and the body's inertia to which those of its subtree will be added."""
    return {"X": parent_transform(body), "Ic": body.inertia}


def composite(body: Body, own: Fields) -> tuple[Written, Written]:
    """Ic_p += X' Ic_i X (RBDA eq. 6.12)."""
    return {}, {"Ic": own.X.inertia_back(own.Ic)}


def column_force(body: Body, own: Fields, link: LinkConstants) -> Written:
    """F = Ic_i S_i: the force that moves the subtree of i at unit joint acceleration."""
    return {"F": tuple(own.Ic.times(column) for column in body.S)}


def block(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
    """H_ji = S_j' F, then F goes to the parent's frame. Armature is added on the diagonal by the output."""
    H = tuple(tuple(column.dot(F) for F in carry.F) for column in body.S)
    return {"H": H}, {"F": tuple(own.X.force_back(F) for F in carry.F)}


COMPOSITES = Inward(composite, reads=("X", "Ic"), gives=("Ic",))

CRBA = Algorithm(
    name="crba",
    inputs=("q",),
    fields={"X": TRANSFORM, "Ic": INERTIA, "F": DOF_FORCES, "H": DOF_PAIRS},
    sweeps=(
        Outward(place, writes=("X", "Ic")),
        COMPOSITES,
        Ancestors(column_force, block, reads=("Ic",), carries=("F",), visits=("X",), writes=("H",)),
    ),
    outputs={
        "H": PairOutput((PairBlocks("H"), PairBlocks("H", transposed=True, diagonal=False)), diagonal="armature"),
    },
)
"""H(q): block (j, i) for j on the path from i to the root, and its mirror image."""
