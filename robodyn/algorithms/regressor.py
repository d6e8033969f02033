"""What inverse dynamics is linear in: inertial parameters, external forces, gravity.

The regressor Y of a robot is that of its bodies, carried to the root: tau = Y pi, where pi holds ten numbers for each
body (Atkeson, An, Hollerbach, Estimation of Inertial Parameters of Manipulator Loads and Links, 1986).
"""

from __future__ import annotations

from typing import NamedTuple

from robodyn.algorithms.crba import COMPOSITES, place
from robodyn.algorithms.kinematics import POSES, POSES_OF_KNOWN, acceleration, base_motion_against_gravity
from robodyn.spatial import (
    ZERO3,
    ZERO_FORCE,
    Force,
    Motion,
    Scalar,
    Sym3,
    Transform,
    Vec3,
    add,
    cross,
    dot,
    rotate_back,
    scale,
    symmetric_times,
)
from robodyn.sweeps import (
    DOF_FORCES,
    DOF_MOTIONS,
    DOF_ROWS,
    INERTIA,
    MOTION,
    PER_BODY,
    TRANSFORM,
    Algorithm,
    Ancestors,
    Body,
    BodyOutput,
    ColumnOutput,
    Fields,
    FieldType,
    LinkConstants,
    Outward,
    World,
    Written,
)

_AXES: tuple[Vec3, ...] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
_SYMMETRIC: tuple[Sym3, ...] = (
    (1.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    (0.0, 1.0, 0.0, 0.0, 0.0, 0.0),
    (0.0, 0.0, 1.0, 0.0, 0.0, 0.0),
    (0.0, 0.0, 0.0, 1.0, 0.0, 0.0),
    (0.0, 0.0, 0.0, 0.0, 1.0, 0.0),
    (0.0, 0.0, 0.0, 0.0, 0.0, 1.0),
)


class Regressor(NamedTuple):
    """Ten forces, one for each parameter of a body: those of m and h in full; those of I are pure moments."""

    mh: tuple[Force, ...]
    I: tuple[Vec3, ...]

    def back(self, X: Transform) -> Regressor:
        """X' A: the same forces in the frame that X comes from."""
        return Regressor(tuple(X.force_back(f) for f in self.mh), tuple(rotate_back(X.E, n) for n in self.I))

    def power(self, s: Motion) -> tuple[Scalar, ...]:
        """s' A, ten numbers."""
        return (*(s.dot(f) for f in self.mh), *(dot(s.ang, n) for n in self.I))


REGRESSOR_FIELD = FieldType(Regressor((ZERO_FORCE,) * 4, (ZERO3,) * 6))


def body_regressor(v: Motion, a: Motion) -> Regressor:
    """A with A pi = I a + v x* I v: with d = a.lin + w x v.lin, the moment is h x d + I w' + w x I w and the force
    m d + w' x h + w x (w x h), where w and w' are the angular parts of v and a."""
    w, dw = v.ang, a.ang
    d = add(a.lin, cross(w, v.lin))
    of_h = tuple(Force(cross(e, d), add(cross(dw, e), cross(w, cross(w, e)))) for e in _AXES)
    of_I = tuple(add(symmetric_times(I, dw), cross(w, symmetric_times(I, w))) for I in _SYMMETRIC)
    return Regressor((Force(ZERO3, d), *of_h), of_I)


def start(body: Body, own: Fields, link: LinkConstants) -> Written:
    """A_i, from v_i and a_i."""
    return {"A": body_regressor(own.v, own.a)}


def visit(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
    """Y_ji = S_j' A, then A goes to the parent's frame."""
    return {"Y": tuple(carry.A.power(column) for column in body.S)}, {"A": carry.A.back(own.X)}


REGRESSOR = Algorithm(
    name="regressor",
    inputs=("q", "qd", "qdd"),
    fields={"X": TRANSFORM, "v": MOTION, "a": MOTION, "A": REGRESSOR_FIELD, "Y": DOF_ROWS},
    sweeps=(
        World(base_motion_against_gravity, writes=("v", "a")),
        Outward(acceleration, carries=("v", "a"), writes=("X", "v", "a")),
        Ancestors(start, visit, reads=("v", "a"), carries=("A",), visits=("X",), writes=("Y",)),
    ),
    outputs={"Y": BodyOutput("Y", PER_BODY["inertia"], flat=True)},
)
"""Y (nv, 10 n_bodies): tau = Y pi, but for the forces of armature. Block (j, i) is there for j on the path from i to
the root."""


def screw_in_world(body: Body, own: Fields, parent: Fields) -> Written:
    """J_i = X_i0^-1 S_i: the joint's motion in world coordinates."""
    return {"J": tuple(own.X0.motion_back(column) for column in body.S)}


def nothing_carried(body: Body, own: Fields, link: LinkConstants) -> Written:
    """A force in world coordinates is the same for every ancestor."""
    return {}


def against_force(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
    """dtau_j/df_i = -J_j': what the joint's drive must hold against."""
    return {"tau_f": tuple(scale(-1.0, (*column.ang, *column.lin)) for column in own.J)}, {}


EXTERNAL_FORCE_GRADIENT = Algorithm(
    name="external_force_gradient",
    inputs=("q",),
    fields={"X0": TRANSFORM, "J": DOF_MOTIONS, "tau_f": DOF_ROWS},
    sweeps=(
        *POSES,
        Outward(screw_in_world, reads=("X0",), writes=("J",)),
        Ancestors(nothing_carried, against_force, visits=("J",), writes=("tau_f",)),
    ),
    outputs={"tau_f": BodyOutput("tau_f", PER_BODY["f_ext"])},
)
"""dtau/df_ext (nv, n_bodies, 6), the forces being given in world coordinates."""


def momentum_columns(body: Body, own: Fields, parent: Fields) -> Written:
    """X_i0' Ic_i S_i: the subtree's momentum at unit joint velocity, in world coordinates."""
    return {"A": tuple(own.X0.force_back(own.Ic.times(column)) for column in body.S)}


MOMENTUM_MATRIX = Algorithm(
    name="momentum_matrix",
    inputs=("q",),
    fields={"X": TRANSFORM, "X0": TRANSFORM, "Ic": INERTIA, "A": DOF_FORCES},
    sweeps=(
        Outward(place, writes=("X", "Ic")),
        COMPOSITES,
        *POSES_OF_KNOWN,
        Outward(momentum_columns, reads=("X0", "Ic"), writes=("A",)),
    ),
    outputs={"A": ColumnOutput("A")},
)
"""A (6, nv): momentum about the world's origin is A qd for a base at rest. As H of robot and base is symmetric, A' is
also dtau/d(dV0), and minus its linear half dtau/dgravity."""
