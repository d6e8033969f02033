"""Sweeps over the bodies for queries about constraints, for trees that are too large for one program.

They are those of ABA for the difference x of accelerations to qdd = 0. With D = S' IA S = L diag(d) L' of each joint
(RBDA section 7.3), forces f on bodies, among them those that qdd = 0 needs, and generalised forces tau,

    w = L^-1 (tau - S' f)               f_p += X' (f + U D^-1 (tau - S' f))      from the leaves to the root
    x = L'^-1 d^-1 (w - L^-1 U' a)      a = X a_p + S x                          from the root to the leaves

So w = T tau for forces at rest, with T' d^-1 T = H^-1. With Y = T J', which has entries for the bodies on the paths of
a row alone, A = Y' d^-1 Y, and one outward sweep from w + Y lambda gives accelerations with constraint forces.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from robodyn.algorithms.aba import articulated_inertia, forward_substitute
from robodyn.algorithms.kinematics import (
    POSES,
    POSES_OF_KNOWN,
    acceleration,
    base_motion_against_gravity,
    base_velocity,
    joint_motion,
    velocity,
)
from robodyn.algorithms.tasks import Sized
from robodyn.core.joints import Scalars
from robodyn.core.spatial import ZERO_MOTION, Force, articulated
from robodyn.core.sweeps import (
    ARTICULATED,
    DOF_FORCES,
    DOF_TRIANGLE,
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
    with_given,
)
from robodyn.internals.records import dataclass


def back_substitute(factor: Scalars, inverse: Scalars, w: Scalars) -> Scalars:
    """L'^-1 d^-1 w, with 1/d in `inverse`."""
    x = [value * each for value, each in zip(w, inverse, strict=True)]
    for i in range(len(x) - 1, -1, -1):
        for j in range(i + 1, len(x)):
            x[i] = x[i] - factor[j * (j + 1) // 2 + i] * x[j]
    return tuple(x)


def response(body: Body, own: Fields, tau: Scalars, force: Force) -> tuple[Scalars, Force]:
    """w of generalised forces at a joint and of the force on its body, and the force on its parent's body."""
    w = forward_substitute(own.D, tuple(t - S.dot(force) for t, S in zip(tau, body.S, strict=True)))
    for U, x in zip(own.U, back_substitute(own.D, own.inverse, w), strict=True):
        force = force + U.scaled(x)
    return w, own.X.force_back(force)


def _still(world: WorldInputs, own: Fields) -> Written:
    return {"change": ZERO_MOTION}


def _motion_and_force(body: Body, own: Fields, parent: Fields) -> Written:
    """X, v, a at qdd = 0, the force I a + v x* I v, and the inertia to which children's are added."""
    moved = acceleration(body, own, parent)
    force = body.inertia.net_force(moved["v"], moved["a"])
    return {**moved, "f": force, "IA": articulated(body.inertia)}


def _motion_and_inertia(body: Body, own: Fields, parent: Fields) -> Written:
    return {**velocity(body, own, parent), "IA": articulated(body.inertia)}


def _external_force(body: Body, own: Fields, parent: Fields) -> Written:
    return {"f": own.f - own.X0.force(body.f_ext)}


def _factors(body: Body, own: Fields) -> tuple[Written, Written]:
    """`articulated_inertia`, and 1/d."""
    written, gives = articulated_inertia(body, own)
    D = written["D"]
    return {**written, "inverse": tuple(1.0 / D[i * (i + 3) // 2] for i in range(len(body.S)))}, gives


def _joint_forces(body: Body, own: Fields) -> tuple[Written, Written]:
    w, force = response(body, own, body.tau, own.f)
    return {"w": w}, {"f": force}


def _rates(body: Body, own: Fields, parent: Fields) -> Written:
    """x and a of the module; `rates`: qd + x."""
    a = own.X.motion(parent.change)
    more = forward_substitute(own.D, tuple(a.dot(U) for U in own.U))
    x = back_substitute(own.D, own.inverse, tuple(w - each for w, each in zip(own.w, more, strict=True)))
    rates = tuple(qd + each for qd, each in zip(body.qd, x, strict=True))
    return {"x": x, "rates": rates, "change": a + joint_motion(body, x)}


_WORLD = World(base_motion_against_gravity, writes=("v", "a"))
_POSE, _POSE_OF_BODY = POSES_OF_KNOWN
_FACTORS = Inward(_factors, reads=("X", "IA"), writes=("U", "D", "Ia", "inverse"), gives=("IA",))
_CHANGES = (
    World(_still, writes=("change",)),
    Outward(_rates, reads=("X", "U", "D", "inverse", "w"), carries=("change",), writes=("x", "rates", "change")),
)
_FORCES: tuple[Sweep, ...] = (
    _FACTORS,
    Inward(_joint_forces, reads=("X", "U", "D", "inverse", "f"), writes=("w",), gives=("f",)),
)
_FREE = (_WORLD, _POSE, Outward(_motion_and_force, carries=("v", "a"), writes=("X", "v", "a", "f", "IA")))
_EXTERNAL = Outward(_external_force, reads=("X0", "f"), writes=("f",))
_VELOCITY = World(base_velocity, writes=("v",))
_IMPULSES: tuple[Sweep, ...] = (
    _VELOCITY,
    _POSE,
    Outward(_motion_and_inertia, carries=("v",), writes=("X", "v", "IA")),
    _POSE_OF_BODY,
    _FACTORS,
    *_CHANGES,
)
_MOVING: tuple[Sweep, ...] = (_VELOCITY, _POSE, Outward(velocity, carries=("v",), writes=("X", "v")), _POSE_OF_BODY)
_FIELDS: dict[str, Any] = {
    **dict.fromkeys(("X", "X0"), TRANSFORM),
    **dict.fromkeys(("v", "a", "change"), MOTION),
    **dict.fromkeys(("IA", "Ia"), ARTICULATED),
    **dict.fromkeys(("inverse", "w", "x", "rates"), DOFS),
    "f": FORCE,
    "U": DOF_FORCES,
    "D": DOF_TRIANGLE,
}
_ROWS = Sized(("n_rows",))


def _sweeps(query: str, inputs: tuple[str, ...]) -> tuple[Sweep, ...]:
    external = (_EXTERNAL,) if "f_ext" in inputs else ()
    return {
        "constrained_forward_dynamics": (*_FREE, _POSE_OF_BODY, *external, *_FORCES, *_CHANGES),
        "constraint_residual": _MOVING,
        "constraint_jacobian": POSES,
        "delassus": (*_FREE, _POSE_OF_BODY, *external, *_FORCES),
        "impact": _IMPULSES,
        "project": _IMPULSES,
    }[query]


_OUTPUTS: dict[str, dict[str, Any]] = {
    "constrained_forward_dynamics": {"qdd": DofOutput("x", force=False), "lam": _ROWS},
    "constraint_residual": {"phi": _ROWS, "phidot": _ROWS},
    "constraint_jacobian": {"J": Sized(("n_rows", "nv"))},
    "delassus": {"A": Sized(("n_rows", "n_rows")), "v_free": _ROWS},
    "impact": {"qd_after": DofOutput("rates", force=False), "impulse": _ROWS},
    "project": {"q_held": Sized(("nq",)), "qd_held": DofOutput("rates", force=False)},
}


@dataclass(frozen=True)
class ConstraintQuery:
    """A query about constraints: its name, its inputs, mu and the number of proximal iterations."""

    name: str
    inputs: tuple[str, ...]
    proximal: tuple[float, int]


_INPUTS = frozenset(
    ("q", "qd", "tau", "armature", "f_ext", "inertia", "targets", "active", "restitution"),
)


def constraint_query(name: str, inputs: tuple[str, ...], proximal: tuple[float, int]) -> ConstraintQuery | None:
    """A query for loops; None if they do not know the query or one of its inputs."""
    known = name in _OUTPUTS and _INPUTS.issuperset(inputs)
    return ConstraintQuery(name, inputs, proximal) if known else None


@cache
def sweeps_of(query: str, inputs: tuple[str, ...]) -> Algorithm:
    """The sweeps over bodies of a query; results that are no fields of bodies come from what runs between them
    (`robodyn.engines.cpu.constraints`)."""
    sweeps = _sweeps(query, inputs)
    used = {
        name
        for sweep in sweeps
        for part in ("reads", "writes", "carries", "gives")
        for name in getattr(sweep, part, ())
    }
    fields = {name: kind for name, kind in _FIELDS.items() if name in used}
    plain = tuple(name for name in inputs if name not in ("inertia", "armature"))
    algorithm = Algorithm("_".join((query, "by_sweeps", *plain)), plain, fields, sweeps, _OUTPUTS[query])
    for name in ("inertia", "armature"):
        if name in inputs:
            algorithm = with_given(algorithm, name)
    return algorithm
