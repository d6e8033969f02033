"""Pivots of the mass matrix and bounds of their rounding errors, which tell whether a robot is singular.

The articulated-body recursion takes out one degree of freedom s after the other, with pivots d = s' IA s + armature.
Along with the articulated inertias IA it computes `error`, a positive semi-definite bound of their rounding errors, in
units of the rounding of one operation. When a joint is taken out, an error e of IA becomes P' e P to first order, with
P = 1 - s (IA s)' / d, because Ia = P' IA P + ... is stationary in P. So errors of a chain grow where the motions of its
outer joints are large compared to that of the inner one, as next to a singularity, and stay bounded elsewhere.

For models with mimicking joints the mass matrix is factorised as a whole: `MASS_MATRIX_SIZE` bounds its entries.
"""

from __future__ import annotations

from robodyn.algorithms.crba import COMPOSITES
from robodyn.algorithms.crba import place as place_composite
from robodyn.algorithms.kinematics import parent_transform
from robodyn.core.spatial import ZERO_FORCE, ArticulatedInertia, Force, Motion, Scalar, articulated
from robodyn.core.sweeps import (
    ARTICULATED,
    DOF_FORCES,
    DOF_PAIRS,
    DOFS,
    INERTIA,
    TRANSFORM,
    Algorithm,
    Ancestors,
    Body,
    DofOutput,
    Fields,
    Inward,
    LinkConstants,
    Outward,
    PairBlocks,
    PairOutput,
    Written,
)


def diagonal(IA: ArticulatedInertia) -> ArticulatedInertia:
    """The diagonal of IA. It bounds one rounding of each entry, as |IA_ij| <= sqrt(IA_ii IA_jj)."""
    (mx, _, _, my, _, mz), (ix, _, _, iy, _, iz) = IA.M, IA.I
    return ArticulatedInertia((mx, 0.0, 0.0, my, 0.0, mz), (0.0,) * 9, (ix, 0.0, 0.0, iy, 0.0, iz))


def isotropic(IA: ArticulatedInertia) -> ArticulatedInertia:
    """The traces of I and M on the diagonal. They bound one rounding of each entry in any orientation of the axes."""
    m, i = IA.M[0] + IA.M[3] + IA.M[5], IA.I[0] + IA.I[3] + IA.I[5]
    return ArticulatedInertia((m, 0.0, 0.0, m, 0.0, m), (0.0,) * 9, (i, 0.0, 0.0, i, 0.0, i))


def place(body: Body, own: Fields, parent: Fields) -> Written:
    """X_i, the rigid inertia, and its rounding errors from the rotation to the body's axes by the loader."""
    IA = articulated(body.inertia)
    return {"X": parent_transform(body), "IA": IA, "error": isotropic(IA)}


def without(error: ArticulatedInertia, s: Motion, share: Force) -> ArticulatedInertia:
    """P' e P with P = 1 - s share'."""
    e = error.times(s)
    half = e - share.scaled(0.5 * s.dot(e))
    return error.minus_outer(share, half).minus_outer(half, share)


def pivots(body: Body, own: Fields) -> tuple[Written, Written]:
    """U = IA s, d = s' U and its error s' e s; then IA -= U U' / d, e = P' e P.

    The rounding of that difference, and of its transform to the parent, is added at the size of IA before it: the
    difference may be small by cancellation.
    """
    IA, error = own.IA, own.error
    d: list[Scalar] = []
    size: list[Scalar] = []
    for s, armature in zip(body.S, body.armature, strict=True):
        U = IA.times(s)
        d.append(s.dot(U) + armature)
        size.append(s.dot(error.times(s)))
        share = U.scaled(1.0 / d[-1])
        error = without(error, s, share)
        IA = IA.minus_outer(U, share)
    moved = own.X.articulated_back(error) + diagonal(own.X.articulated_back(diagonal(own.IA)))
    return {"pivot": tuple(d), "size": tuple(size)}, {"IA": own.X.articulated_back(IA), "error": moved}


PIVOTS = Algorithm(
    name="pivots",
    inputs=("q",),
    fields={"X": TRANSFORM, "IA": ARTICULATED, "error": ARTICULATED, "pivot": DOFS, "size": DOFS},
    sweeps=(
        Outward(place, writes=("X", "IA", "error")),
        Inward(pivots, reads=("X", "IA", "error"), writes=("pivot", "size"), gives=("IA", "error")),
    ),
    outputs={"pivot": DofOutput("pivot", force=False), "error": DofOutput("size", force=False)},
)
"""Pivots d and the size of their rounding errors, in units of the rounding of one operation. O(n)."""


def column_size(body: Body, own: Fields, link: LinkConstants) -> Written:
    """The isotropic bound of the composite inertia, times S_i."""
    bound = isotropic(articulated(own.Ic))
    return {"F": tuple(bound.times(column) for column in body.S)}


def own_block(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
    """S_i' F for the body itself, zero for pairs with its ancestors."""
    block = tuple(tuple(column.dot(F) for F in carry.F) for column in body.S)
    return {"size": block}, {"F": (ZERO_FORCE,) * len(carry.F)}


MASS_MATRIX_SIZE = Algorithm(
    name="mass_matrix_size",
    inputs=("q",),
    fields={"X": TRANSFORM, "Ic": INERTIA, "F": DOF_FORCES, "size": DOF_PAIRS},
    sweeps=(
        Outward(place_composite, writes=("X", "Ic")),
        COMPOSITES,
        Ancestors(column_size, own_block, reads=("Ic",), carries=("F",), writes=("size",)),
    ),
    outputs={"size": PairOutput((PairBlocks("size"),), diagonal="armature")},
)
"""A diagonal matrix b: the rounding of one operation changes H_ij by at most sqrt(b_i b_j) times that rounding."""
