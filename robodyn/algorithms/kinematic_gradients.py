"""Derivatives of Jacobians: with respect to time, and with respect to coordinates (the kinematic Hessian).

In world coordinates a column s_j = X_j0^-1 S_j is carried along by its body: its rate is v_j x s_j, and its derivative
by a coordinate k of the same body or of an ancestor is s_k x s_j (Bruyninckx and De Schutter, Symbolic differentiation
of the velocity mapping for a serial kinematic chain, 1996). A frame F that moves with v_F, of its own or by the same
coordinate, sees d(X_F s) = X_F (ds - v_F x s).
"""

from __future__ import annotations

from functools import cache

from robodyn.algorithms.kinematics import (
    FROM_ROOT,
    POSES_OF_KNOWN,
    VELOCITIES,
    Frame,
    for_frame,
    jacobian,
    nothing_carried,
    to_frame,
)
from robodyn.core.spatial import ZERO3, ZERO_MOTION, Motion, Transform, add, cross
from robodyn.core.sweeps import (
    DOF_MOTIONS,
    DOF_PAIR_MOTIONS,
    MOTION,
    TRANSFORM,
    Algorithm,
    Ancestors,
    Body,
    ColumnOutput,
    Fields,
    LinkConstants,
    PairBlocks,
    PairOutput,
    Written,
)


def frame_velocity(frame: Frame, X: Transform, v: Motion) -> Motion:
    """How a frame moves, in world coordinates: X is the transform from the world to the link, v the link's velocity."""
    of_origin = Motion(ZERO3, add(v.lin, cross(v.ang, X.r)))
    return {"world": ZERO_MOTION, "body": v, "world_aligned": of_origin}[frame]


@cache
def jacobian_derivative(frame: Frame) -> Algorithm:
    """The time derivative of the query's link's Jacobian: column j is X_F ((v_j - v_F) x s_j)."""

    def start(body: Body, own: Fields, link: LinkConstants) -> Written:
        X = link.X.after(own.X0)
        return {"XF": to_frame(frame, X), "vF": frame_velocity(frame, X, own.X0.motion_back(own.v))}

    def visit(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
        seen = own.X0.motion_back(own.v) - carry.vF
        columns = tuple(carry.XF.motion(seen.cross(own.X0.motion_back(column))) for column in body.S)
        return {"Jdot": columns}, {"XF": carry.XF, "vF": carry.vF}

    return Algorithm(
        name=f"jacobian_derivative_{frame}",
        inputs=("q", "qd"),
        fields={
            **dict.fromkeys(("X", "X0", "XF"), TRANSFORM),
            **dict.fromkeys(("v", "vF"), MOTION),
            "Jdot": DOF_MOTIONS,
            **FROM_ROOT,
        },
        sweeps=(
            *for_frame(frame, VELOCITIES),
            *POSES_OF_KNOWN,
            Ancestors(
                start,
                visit,
                reads=("X0", "v"),
                carries=("XF", "vF"),
                visits=("X0", "v"),
                writes=("Jdot",),
                of_link=True,
            ),
        ),
        outputs={"Jdot": ColumnOutput("Jdot")},
    )


def moved(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
    """J_j x J_i for columns of an ancestor j and of i."""
    return {"pairs": tuple(tuple(upper.cross(lower) for lower in of_first.J) for upper in own.J)}, {}


def moved_aligned(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
    """A coordinate of the ancestor j turns column i; a coordinate of i only moves the origin, about the axis of j."""
    above = tuple(
        tuple(Motion(cross(upper.ang, lower.ang), cross(upper.ang, lower.lin)) for lower in of_first.J)
        for upper in own.J
    )
    return {"above": above, "below": tuple(tuple(Motion(ZERO3, each.lin) for each in row) for row in above)}, {}


@cache
def pose_hessian(frame: Frame) -> Algorithm:
    """Derivatives (6, j, k) of columns J_j of the query's link's Jacobian by coordinates q_k.

    J is zero off the link's path. With J_a = [w_a; l_a] of an ancestor and J_b of a body below it:

        world           d J_b / d q_a = J_a x J_b                  d J_a / d q_b = 0
        body            d J_b / d q_a = 0                          d J_a / d q_b = J_a x J_b
        world_aligned   d J_b / d q_a = [w_a x w_b; w_a x l_b]     d J_a / d q_b = [0; w_a x l_b]

    For two columns of one body the formulas on the left hold.
    """
    of_jacobian = jacobian(frame)
    step, blocks, fields = {
        "world": (moved, (PairBlocks("pairs", transposed=True),), ("pairs",)),
        "body": (moved, (PairBlocks("pairs", diagonal=False),), ("pairs",)),
        "world_aligned": (
            moved_aligned,
            (PairBlocks("above", transposed=True), PairBlocks("below", diagonal=False)),
            ("above", "below"),
        ),
    }[frame]
    return Algorithm(
        name=f"pose_hessian_{frame}",
        inputs=("q",),
        fields={**of_jacobian.fields, **dict.fromkeys(fields, DOF_PAIR_MOTIONS)},
        sweeps=(
            *of_jacobian.sweeps,
            Ancestors(nothing_carried, step, reads=("J",), visits=("J",), writes=fields),
        ),
        outputs={"H": PairOutput(blocks, rows=6)},
    )
