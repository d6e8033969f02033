"""Derivatives by quantities in which inverse dynamics is linear: inertial parameters, external forces, gravity.

The regressor Y of a robot consists of the regressors of its bodies, transformed towards the root: tau = Y pi, where pi
holds ten numbers for each body (Atkeson, An, Hollerbach, Estimation of Inertial Parameters of Manipulator Loads and
Links, 1986). Derivatives of accelerations follow: d qdd / d u = -H^-1 d tau / d u.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from robodyn.algorithms.crba import COMPOSITES, CRBA, place
from robodyn.algorithms.forward_gradient import forward_by_mass_matrix
from robodyn.algorithms.kinematics import (
    POSES,
    POSES_OF_KNOWN,
    acceleration,
    base_motion_against_gravity,
    base_velocity,
    nothing_carried,
    pose,
    velocity,
)
from robodyn.algorithms.tasks import Chain, Solution, Solve, Stage
from robodyn.core.spatial import (
    IDENTITY,
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
    rotate,
    rotate_back,
    scale,
    symmetric_times,
)
from robodyn.core.sweeps import (
    DOF_MOTIONS,
    DOF_ROWS,
    DOF_VECTORS,
    INERTIA,
    MOTION,
    PER_BODY,
    TRANSFORM,
    VECTOR3,
    Algorithm,
    Ancestors,
    Body,
    BodyOutput,
    ColumnOutput,
    FieldOutput,
    Fields,
    FieldType,
    LinkConstants,
    Outward,
    World,
    WorldInputs,
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
    """Ten forces, one for each parameter of a body. Those of I are pure moments."""

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
"""Y (nv, 10 n_bodies): tau = Y pi, without the forces of armature. Block (j, i) is nonzero only for j on the path from
i to the root."""


def rows_of_body(body: Body, own: Fields, parent: Fields) -> Written:
    """A_i, six rows of ten numbers."""
    A = body_regressor(own.v, own.a)
    columns = (*A.mh, *(Force(n, ZERO3) for n in A.I))
    return {"rows": tuple(zip(*((*each.ang, *each.lin) for each in columns), strict=True))}


BODY_REGRESSOR = Algorithm(
    name="body_regressor",
    inputs=("q", "qd", "qdd"),
    fields={"X": TRANSFORM, "v": MOTION, "a": MOTION, "rows": FieldType(((0.0,) * 10,) * 6)},
    sweeps=(
        World(base_motion_against_gravity, writes=("v", "a")),
        Outward(acceleration, carries=("v", "a"), writes=("X", "v", "a")),
        Outward(rows_of_body, reads=("v", "a"), writes=("rows",)),
    ),
    outputs={"A": FieldOutput("rows", (6, 10))},
)
"""A (n_bodies, 6, 10): A_i pi_i = I a + v x* I v is the force that moves a body against gravity, in its frame."""


def kinetic_numbers(body: Body, own: Fields, parent: Fields) -> Written:
    """k with k . pi = v' I v / 2: u.u / 2 for m, u x w for h, and w w' / 2, its mixed entries twice, for I."""
    moved = velocity(body, own, parent)
    w, u = moved["v"]
    x, y, z = w
    of_I = (0.5 * (x * x), x * y, x * z, 0.5 * (y * y), y * z, 0.5 * (z * z))
    return {**moved, "k": (0.5 * dot(u, u), *cross(u, w), *of_I)}


KINETIC_ENERGY_REGRESSOR = Algorithm(
    name="kinetic_energy_regressor",
    inputs=("q", "qd"),
    fields={"X": TRANSFORM, "v": MOTION, "k": FieldType((0.0,) * 10)},
    sweeps=(World(base_velocity, writes=("v",)), Outward(kinetic_numbers, carries=("v",), writes=("X", "v", "k"))),
    outputs={"k": FieldOutput("k", (10,), flat=True)},
)
"""k (10 n_bodies): k . pi is the kinetic energy, without that of armature."""


def gravity_everywhere(world: WorldInputs, own: Fields) -> Written:
    """The identity, and g."""
    return {"X0": IDENTITY, "g": world.gravity}


def potential_numbers(body: Body, own: Fields, parent: Fields) -> Written:
    """u with u . pi = -g . (m r + E' h)."""
    X0 = pose(body, own, parent)["X0"]
    return {
        "X0": X0,
        "g": parent.g,
        "u": (-dot(parent.g, X0.r), *scale(-1.0, rotate(X0.E, parent.g)), *((0.0,) * 6)),
    }


POTENTIAL_ENERGY_REGRESSOR = Algorithm(
    name="potential_energy_regressor",
    inputs=("q",),
    fields={"X0": TRANSFORM, "g": VECTOR3, "u": FieldType((0.0,) * 10)},
    sweeps=(
        World(gravity_everywhere, writes=("X0", "g")),
        Outward(potential_numbers, carries=("X0", "g"), writes=("X0", "g", "u")),
    ),
    outputs={"u": FieldOutput("u", (10,), flat=True)},
)
"""u (10 n_bodies): u . pi is the potential energy."""


def screw_in_world(body: Body, own: Fields, parent: Fields) -> Written:
    """J_i = X_i0^-1 S_i: the joint's motion in world coordinates."""
    return {"J": tuple(own.X0.motion_back(column) for column in body.S)}


def against_force(body: Body, own: Fields, first: Body, of_first: Fields, carry: Fields) -> tuple[Written, Written]:
    """dtau_j/df_i = -J_j': the joint's drive balances the external force."""
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
"""dtau/df_ext (nv, n_bodies, 6), with forces in world coordinates."""


def against_gravity(body: Body, own: Fields, parent: Fields) -> Written:
    """dtau_i/dg = -E_i0' p with Ic_i S_i = (., p): the subtree's momentum at unit joint velocity, in world axes."""
    return {"tau_g": tuple(scale(-1.0, rotate_back(own.X0.E, own.Ic.times(column).lin)) for column in body.S)}


GRAVITY_GRADIENT = Algorithm(
    name="gravity_gradient",
    inputs=("q",),
    fields={"X": TRANSFORM, "X0": TRANSFORM, "Ic": INERTIA, "tau_g": DOF_VECTORS},
    sweeps=(
        Outward(place, writes=("X", "Ic")),
        COMPOSITES,
        *POSES_OF_KNOWN,
        Outward(against_gravity, reads=("X0", "Ic"), writes=("tau_g",)),
    ),
    outputs={"tau_g": ColumnOutput("tau_g", rows=3, transposed=True)},
)
"""dtau/dgravity (nv, 3)."""


@cache
def forward_regressor(inputs: tuple[str, ...] = ("q", "qd", "tau")) -> Chain:
    """dqdd/dpi = -H^-1 Y at the accelerations of tau, with external forces where `inputs` names them."""
    return Chain(
        name="forward_regressor_" + "_".join(inputs),
        inputs=inputs,
        stages=(*forward_by_mass_matrix(inputs).stages, *_solved(REGRESSOR, "Y", "dqdd_dpi")),
        results=("dqdd_dpi",),
    )


def _solved(algorithm: Algorithm, output: str, result: str) -> tuple[Stage, Solve]:
    solution = Solution(minus=output, like=algorithm.outputs[output])
    return Stage(algorithm), Solve("H", {result: solution})


FORWARD_EXTERNAL_FORCE_GRADIENT = Chain(
    name="forward_external_force_gradient",
    inputs=("q",),
    stages=(Stage(CRBA), *_solved(EXTERNAL_FORCE_GRADIENT, "tau_f", "dqdd_df_ext")),
    results=("dqdd_df_ext",),
)
"""dqdd/df_ext (nv, n_bodies, 6) = -H^-1 dtau/df_ext."""

FORWARD_GRAVITY_GRADIENT = Chain(
    name="forward_gravity_gradient",
    inputs=("q",),
    stages=(Stage(CRBA), *_solved(GRAVITY_GRADIENT, "tau_g", "dqdd_dgravity")),
    results=("dqdd_dgravity",),
)
"""dqdd/dgravity (nv, 3) = -H^-1 dtau/dgravity."""
