"""The gradient of y . tau, for a vector y: one product with the Jacobians of inverse dynamics, without the Jacobians.

y . tau is a virtual power: with the virtual velocity w_i = w_p + S_i y_i it is the sum of w_i . f_i. Its derivatives by
coordinates of joints are derived in `idsva_hessian`; here they are in body frames. With sums over the subtree of body i

    f = sum I a + v x* I v - f_ext      P = sum I w      Z = sum 2B' w      G = sum w x* f_ext

with 2B as in `idsva`, and with the motions v_p, a_p and w_p of the parent,

    d(y . tau)/dq_i   = S_i . (v_p x* (v_p x* P - Z) - a_p x* P - w_p x* f - G)
    d(y . tau)/dqd_i  = S_i . (Z - (v_p + v_i) x* P)
    d(y . tau)/dqdd_i = S_i . P + armature y_i

It takes two to three times the operations of inverse dynamics, whatever the size of the robot.
"""

from __future__ import annotations

from functools import cache

from robodyn.algorithms.coriolis import body_coriolis
from robodyn.algorithms.kinematics import POSES_OF_KNOWN, base_motion_against_gravity, joint_motion, parent_transform
from robodyn.core.spatial import ZERO3, Force, rotate_back
from robodyn.core.sweeps import (
    DOFS,
    FORCE,
    MOTION,
    TRANSFORM,
    VECTOR3,
    Algorithm,
    Body,
    DofOutput,
    Fields,
    Inward,
    Outward,
    Sweep,
    World,
    Written,
)

_MOTIONS = ("v", "a", "w")
_PARENTS = ("v_p", "a_p", "w_p")
_SUMS = ("f", "P", "Z")
_RESULTS = ("by_q", "by_qd", "by_qdd")


def forces(body: Body, own: Fields, parent: Fields) -> Written:
    """Motions of the body and its parent, in the body's frame; f, P and Z of the body alone."""
    X, vJ = parent_transform(body), joint_motion(body, body.qd)
    v_p, a_p, w_p = X.motion(parent.v), X.motion(parent.a), X.motion(parent.w)
    v, w = v_p + vJ, w_p + joint_motion(body, body.vector)
    a = a_p + joint_motion(body, body.qdd) + v.cross(vJ)
    inertia = body.inertia
    return {
        **dict(zip(_MOTIONS, (v, a, w), strict=True)),
        **dict(zip(_PARENTS, (v_p, a_p, w_p), strict=True)),
        "X": X,
        "f": inertia.net_force(v, a),
        "P": inertia.times(w),
        "Z": body_coriolis(inertia, v.scaled(2.0)).transpose_times(w).ang,
    }


def external_forces(body: Body, own: Fields, parent: Fields) -> Written:
    """f -= f_ext and G = w x* f_ext."""
    f_ext = own.X0.force(body.f_ext)
    return {"f": own.f - f_ext, "G": own.w.cross_force(f_ext)}


def gradient(body: Body, own: Fields) -> tuple[Written, Written]:
    """The equations above; f, P and Z are added to the parent's."""
    S, X, P, Z = body.S, own.X, own.P, Force(own.Z, ZERO3)
    turned = own.v_p.cross_force(own.v_p.cross_force(P) - Z)
    by_q = turned - own.a_p.cross_force(P) - own.w_p.cross_force(own.f)
    by_qd = Z - (own.v_p + own.v).cross_force(P)
    written = {
        "by_q": tuple(column.dot(by_q) for column in S),
        "by_qd": tuple(column.dot(by_qd) for column in S),
        "by_qdd": tuple(
            column.dot(P) + armature * y for column, armature, y in zip(S, body.armature, body.vector, strict=True)
        ),
    }
    return written, {"f": X.force_back(own.f), "P": X.force_back(P), "Z": rotate_back(X.E, own.Z)}


def gradient_outside(body: Body, own: Fields) -> tuple[Written, Written]:
    """`gradient` with external forces (G)."""
    written, gives = gradient(body, own)
    by_q = tuple(value - column.dot(own.G) for column, value in zip(body.S, written["by_q"], strict=True))
    return {**written, "by_q": by_q}, {**gives, "G": own.X.force_back(own.G)}


@cache
def rnea_vjp(inputs: tuple[str, ...] = ("q", "qd", "qdd", "vector")) -> Algorithm:
    """The gradient of y . tau with respect to q (on the tangent space), qd and qdd, y being the input `vector`."""
    outside = "f_ext" in inputs
    external: tuple[Sweep, ...] = ()
    if outside:
        external = (*POSES_OF_KNOWN, Outward(external_forces, reads=("X0", "w", "f"), writes=("f", "G")))
    sums = (*_SUMS, "G") if outside else _SUMS
    return Algorithm(
        name="rnea_vjp_" + "_".join(inputs),
        inputs=inputs,
        fields={
            **dict.fromkeys(("X", "X0"), TRANSFORM),
            **dict.fromkeys((*_MOTIONS, *_PARENTS), MOTION),
            **dict.fromkeys(("f", "P", "G"), FORCE),
            "Z": VECTOR3,
            **dict.fromkeys(_RESULTS, DOFS),
        },
        sweeps=(
            World(base_motion_against_gravity, writes=("v", "a")),
            Outward(forces, carries=_MOTIONS, writes=("X", *_MOTIONS, *_PARENTS, *_SUMS)),
            *external,
            Inward(
                gradient_outside if outside else gradient,
                reads=("X", "v", *_PARENTS, *sums),
                writes=_RESULTS,
                gives=sums,
            ),
        ),
        outputs={name: DofOutput(name) for name in _RESULTS},
    )
