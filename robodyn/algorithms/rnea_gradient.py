"""Gradient of RNEA: derivatives of inverse dynamics with respect to q and qd, a lane per degree of freedom.

The recursion of RNEA differentiated line by line (Plancher et al., Accelerating Robot Dynamics Gradients on a CPU, GPU,
and FPGA, algorithm 2; Carpentier and Mansard 2018), in body frames. Derivatives with respect to q are on the tangent
space: d(X m)/dq_c = (X m) x S_c for the joint's own transform. External forces are held constant in the world.
"""

from __future__ import annotations

from functools import cache

from robodyn.algorithms.kinematics import POSES_OF_KNOWN, base_motion_against_gravity, joint_motion
from robodyn.algorithms.rnea import external_force, force
from robodyn.core.spatial import ZERO_MOTION, Force, Motion
from robodyn.core.sweeps import (
    DOFS,
    FORCE,
    MOTION,
    TRANSFORM,
    Algorithm,
    Body,
    DofOutput,
    Fields,
    Inward,
    Outward,
    Sweep,
    World,
    WorldInputs,
    Written,
)


def base_at_rest(world: WorldInputs, own: Fields) -> Written:
    """The base's motion is an input, so its derivatives are zero."""
    return dict.fromkeys(("v_q", "a_q", "v_qd", "a_qd", "moved"), ZERO_MOTION)


def accumulate(body: Body, own: Fields) -> tuple[Written, Written]:
    """f_p += X_i' f_i, so that f_i becomes the force through joint i."""
    return {}, {"f": own.X.force_back(own.f)}


def _force_change(body: Body, v: Motion, dv: Motion, da: Motion) -> Force:
    """d(I a + v x* I v) = I da + dv x* I v + v x* I dv."""
    I = body.inertia
    return I.times(da) + dv.cross_force(I.times(v)) + v.cross_force(I.times(dv))


def motion_gradient(body: Body, own: Fields, parent: Fields) -> Written:
    """dv_i, da_i and the body's own df_i, for a change of the lane's q and of its qd."""
    vJ, unit = joint_motion(body, body.qd), joint_motion(body, body.unit)
    v_p, a_p = own.X.motion(parent.v), own.X.motion(parent.a)
    v_q = own.X.motion(parent.v_q) + v_p.cross(unit)
    a_q = own.X.motion(parent.a_q) + a_p.cross(unit) + v_q.cross(vJ)
    v_qd = own.X.motion(parent.v_qd) + unit
    a_qd = own.X.motion(parent.a_qd) + v_qd.cross(vJ) + own.v.cross(unit)
    return {
        "v_q": v_q,
        "a_q": a_q,
        "v_qd": v_qd,
        "a_qd": a_qd,
        "f_q": _force_change(body, own.v, v_q, a_q),
        "f_qd": _force_change(body, own.v, v_qd, a_qd),
    }


def external_gradient(body: Body, own: Fields, parent: Fields) -> Written:
    """A displacement m of a body turns a constant world force in its frame: df_i += m x* (X_i0* f_ext)."""
    moved = own.X.motion(parent.moved) + joint_motion(body, body.unit)
    return {"moved": moved, "f_q": own.f_q + moved.cross_force(own.X0.force(body.f_ext))}


def joint_force_gradient(body: Body, own: Fields) -> tuple[Written, Written]:
    """dtau_i = S' df_i; df_p += X_i' (df_i + unit x* f_i), the second term from the joint's own transform."""
    tau_q = tuple(column.dot(own.f_q) for column in body.S)
    tau_qd = tuple(column.dot(own.f_qd) for column in body.S)
    turned = own.f_q + joint_motion(body, body.unit).cross_force(own.f)
    return {"tau_q": tau_q, "tau_qd": tau_qd}, {
        "f_q": own.X.force_back(turned),
        "f_qd": own.X.force_back(own.f_qd),
    }


@cache
def rnea_gradient(inputs: tuple[str, ...] = ("q", "qd", "qdd")) -> Algorithm:
    """d tau / d q and d tau / d qd of RNEA, with external forces where `inputs` names them."""
    external: tuple[Sweep, ...] = ()
    external_lanes: tuple[Sweep, ...] = ()
    if "f_ext" in inputs:
        external = (*POSES_OF_KNOWN, Outward(external_force, reads=("X0", "f"), writes=("f",)))
        external_lanes = (
            Outward(
                external_gradient, reads=("X", "X0", "f_q"), carries=("moved",), writes=("moved", "f_q"), lanes=True
            ),
        )
    lane_motions = ("v_q", "a_q", "v_qd", "a_qd", "moved")
    return Algorithm(
        name="rnea_gradient_" + "_".join(inputs),
        inputs=inputs,
        fields={
            **dict.fromkeys(("X", "X0"), TRANSFORM),
            **dict.fromkeys(("v", "a", *lane_motions), MOTION),
            **dict.fromkeys(("f", "f_q", "f_qd"), FORCE),
            **dict.fromkeys(("tau_q", "tau_qd"), DOFS),
        },
        sweeps=(
            World(base_motion_against_gravity, writes=("v", "a")),
            Outward(force, carries=("v", "a"), writes=("X", "v", "a", "f")),
            *external,
            Inward(accumulate, reads=("X", "f"), gives=("f",)),
            World(base_at_rest, writes=lane_motions),
            Outward(
                motion_gradient,
                reads=("X", "v"),
                carries=("v", "a", "v_q", "a_q", "v_qd", "a_qd"),
                writes=("v_q", "a_q", "v_qd", "a_qd", "f_q", "f_qd"),
                lanes=True,
            ),
            *external_lanes,
            Inward(
                joint_force_gradient,
                reads=("X", "f", "f_q", "f_qd"),
                writes=("tau_q", "tau_qd"),
                gives=("f_q", "f_qd"),
                lanes=True,
            ),
        ),
        outputs={
            "tau_q": DofOutput("tau_q", lanes=True),
            "tau_qd": DofOutput("tau_qd", lanes=True),
        },
    )
