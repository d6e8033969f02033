"""Derivatives of a link's velocity and acceleration by q (on the tangent space), qd and qdd.

In world coordinates, let s_j be a column of the joint of body i, and p the parent of i. A coordinate of the joint turns
the contributions of this joint and of those below it (Carpentier and Mansard, Analytical Derivatives of Rigid Body
Dynamics Algorithms, 2018, have them in body frames):

    dv / dq_j  = s_j x (v - v_p)                                      dv / dqd_j = s_j
    da / dq_j  = s_j x (a - a_p) + (v_p x s_j) x (v - v_p)            da / dqdd_j = s_j
    da / dqd_j = (v_i + v_p - v) x s_j

A frame F that moves by m_j with the coordinate sees d(X_F v) = X_F (dv - m_j x v).
"""

from __future__ import annotations

from functools import cache

from robodyn.algorithms.kinematic_gradients import frame_velocity
from robodyn.algorithms.kinematics import (
    FROM_ROOT,
    POSES_OF_KNOWN,
    Frame,
    acceleration,
    base_motion,
    base_velocity,
    classical_frame,
    for_frame,
    to_frame,
    velocity,
)
from robodyn.core.spatial import Motion, add, cross
from robodyn.core.sweeps import (
    DOF_MOTIONS,
    MOTION,
    TRANSFORM,
    Algorithm,
    Ancestors,
    Body,
    ColumnOutput,
    Fields,
    LinkConstants,
    Outward,
    Sweep,
    World,
    Written,
)


def velocity_and_above(body: Body, own: Fields, parent: Fields) -> Written:
    """v_i, and v_p in the body's frame."""
    moved = velocity(body, own, parent)
    return {**moved, "v_p": moved["X"].motion(parent.v)}


def acceleration_and_above(body: Body, own: Fields, parent: Fields) -> Written:
    """v_i and a_i, and those of the parent in the body's frame."""
    moved = acceleration(body, own, parent)
    return {**moved, "v_p": moved["X"].motion(parent.v), "a_p": moved["X"].motion(parent.a)}


_VELOCITIES: tuple[Sweep, ...] = (
    World(base_velocity, writes=("v",)),
    Outward(velocity_and_above, carries=("v",), writes=("X", "v", "v_p")),
)
_ACCELERATIONS: tuple[Sweep, ...] = (
    World(base_motion, writes=("v", "a")),
    Outward(acceleration_and_above, carries=("v", "a"), writes=("X", "v", "a", "v_p", "a_p")),
)


@cache
def link_velocity_gradient(frame: Frame) -> Algorithm:
    """dV/dq and dV/dqd of the query's link's velocity seen in `frame`."""

    def start(body: Body, own: Fields, link: LinkConstants) -> Written:
        X = link.X.after(own.X0)
        return {"XL": X, "XF": to_frame(frame, X), "V": own.X0.motion_back(own.v)}

    def visit(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
        """dV/dq_j = S_j x (V - v_p), less the frame's own motion; dV/dqd_j = S_j; in world coordinates."""
        below = carry.V - own.X0.motion_back(own.v_p)
        by_q, by_qd = [], []
        for column in body.S:
            s = own.X0.motion_back(column)
            by_q.append(carry.XF.motion(s.cross(below) - frame_velocity(frame, carry.XL, s).cross(carry.V)))
            by_qd.append(carry.XF.motion(s))
        return {"V_q": tuple(by_q), "V_qd": tuple(by_qd)}, unchanged(carry, "XL", "XF", "V")

    return Algorithm(
        name=f"link_velocity_gradient_{frame}",
        inputs=("q", "qd"),
        fields={
            **dict.fromkeys(("X", "X0", "XL", "XF"), TRANSFORM),
            **dict.fromkeys(("v", "v_p", "V"), MOTION),
            **dict.fromkeys(("V_q", "V_qd"), DOF_MOTIONS),
            **FROM_ROOT,
        },
        sweeps=(
            *for_frame(frame, _VELOCITIES),
            *POSES_OF_KNOWN,
            Ancestors(
                start,
                visit,
                reads=("X0", "v"),
                carries=("XL", "XF", "V"),
                visits=("X0", "v_p"),
                writes=("V_q", "V_qd"),
                of_link=True,
            ),
        ),
        outputs={"dV_dq": ColumnOutput("V_q"), "dV_dqd": ColumnOutput("V_qd")},
    )


@cache
def link_acceleration_gradient(frame: Frame, classical: bool) -> Algorithm:
    """dA/dq, dA/dqd and dA/dqdd of the query's link's acceleration, spatial or classical, seen in `frame`."""
    seen_from = classical_frame(frame) if classical else frame

    def start(body: Body, own: Fields, link: LinkConstants) -> Written:
        X = link.X.after(own.X0)
        V, A = own.X0.motion_back(own.v), own.X0.motion_back(own.a)
        return {"XL": X, "XF": to_frame(seen_from, X), "V": V, "A": A}

    def visit(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
        """Derivatives by the coordinate, rate and acceleration of a joint on the path to the root."""
        v, v_p, a_p = (own.X0.motion_back(each) for each in (own.v, own.v_p, own.a_p))
        V, A, XF = carry.V, carry.A, carry.XF
        seen = XF.motion(V)

        def of_origin(change: Motion, of_velocity: Motion) -> Motion:
            """d(a + w x u) for the classical acceleration, da for the spatial one."""
            if not classical:
                return change
            turning = add(cross(of_velocity.ang, seen.lin), cross(seen.ang, of_velocity.lin))
            return Motion(change.ang, add(change.lin, turning))

        by_q, by_qd, by_qdd = [], [], []
        for column in body.S:
            s = own.X0.motion_back(column)
            moves = frame_velocity(seen_from, carry.XL, s)
            dV = XF.motion(s.cross(V - v_p) - moves.cross(V))
            dA = XF.motion(s.cross(A - a_p) + v_p.cross(s).cross(V - v_p) - moves.cross(A))
            along = XF.motion(s)
            by_q.append(of_origin(dA, dV))
            by_qd.append(of_origin(XF.motion((v + v_p - V).cross(s)), along))
            by_qdd.append(along)
        written = {"A_q": tuple(by_q), "A_qd": tuple(by_qd), "A_qdd": tuple(by_qdd)}
        return written, unchanged(carry, "XL", "XF", "V", "A")

    return Algorithm(
        name=f"link_acceleration_gradient_{frame}" + ("_classical" if classical else ""),
        inputs=("q", "qd", "qdd"),
        fields={
            **dict.fromkeys(("X", "X0", "XL", "XF"), TRANSFORM),
            **dict.fromkeys(("v", "a", "v_p", "a_p", "V", "A"), MOTION),
            **dict.fromkeys(("A_q", "A_qd", "A_qdd"), DOF_MOTIONS),
            **FROM_ROOT,
        },
        sweeps=(
            *for_frame(seen_from, _ACCELERATIONS),
            *POSES_OF_KNOWN,
            Ancestors(
                start,
                visit,
                reads=("X0", "v", "a"),
                carries=("XL", "XF", "V", "A"),
                visits=("X0", "v", "v_p", "a_p"),
                writes=("A_q", "A_qd", "A_qdd"),
                of_link=True,
            ),
        ),
        outputs={"dA_dq": ColumnOutput("A_q"), "dA_dqd": ColumnOutput("A_qd"), "dA_dqdd": ColumnOutput("A_qdd")},
    )


def unchanged(carry: Fields, *names: str) -> Written:
    """Carried fields that stay as they are."""
    return {name: getattr(carry, name) for name in names}
