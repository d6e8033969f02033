"""ABA, the articulated-body algorithm: forward dynamics in O(n) (RBDA table 7.1), and the inverse mass matrix.

Both use the same inward sweep of articulated inertias; the inverse has a lane per unit force. Joints of several degrees
of freedom are blocks: D = S' IA S is factorised as L diag(d) L' without square roots.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from robodyn.algorithms.forward_gradient import inverse_by_mass_matrix
from robodyn.algorithms.kinematics import (
    POSES_OF_KNOWN,
    base_motion_against_gravity,
    joint_motion,
    parent_transform,
)
from robodyn.core.joints import Scalars
from robodyn.core.spatial import ZERO_MOTION, Force, Motion, Scalar, articulated
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
)


def ldl(D: Scalars, k: int, pivot: Callable[[Scalar, Scalar], Scalar] | None = None) -> Scalars:
    """L and d of D = L diag(d) L', packed like the lower triangle of D (row by row), with d on the diagonal.

    `pivot`: maps an entry of d, and the entry of D on its diagonal, to the entry of d that is used.
    """
    out: list[Scalar] = list(D)
    at = [i * (i + 1) // 2 for i in range(k)]
    for i in range(k):
        for j in range(i + 1):
            value = out[at[i] + j]
            for m in range(j):
                value = value - out[at[i] + m] * out[at[j] + m] * out[at[m] + m]
            if i != j:
                value = value / out[at[j] + j]
            elif pivot is not None:
                value = pivot(value, D[at[i] + i])
            out[at[i] + j] = value
    return tuple(out)


def forward_substitute(factor: Scalars, b: tuple[Any, ...]) -> tuple[Any, ...]:
    """L^-1 b, where the entries of b are scalars or spatial forces."""
    out: list[Any] = []
    for i, value in enumerate(b):
        for j in range(i):
            entry = factor[i * (i + 1) // 2 + j]
            value = value - (out[j].scaled(entry) if isinstance(out[j], Force) else entry * out[j])
        out.append(value)
    return tuple(out)


def ldl_solve(factor: Scalars, b: Scalars) -> Scalars:
    """D^-1 b."""
    k = len(b)
    x = [value / factor[i * (i + 1) // 2 + i] for i, value in enumerate(forward_substitute(factor, b))]
    for i in range(k - 1, -1, -1):
        for j in range(i + 1, k):
            x[i] = x[i] - factor[j * (j + 1) // 2 + i] * x[j]
    return tuple(x)


def base_acceleration(world: WorldInputs, own: Fields) -> Written:
    """a_0 = 0: lanes of the inverse mass matrix start at rest."""
    return {"a": ZERO_MOTION}


def place(body: Body, own: Fields, parent: Fields) -> Written:
    """X_i, and the rigid inertia to which children's articulated inertias will be added."""
    return {"X": parent_transform(body), "IA": articulated(body.inertia)}


def bias(body: Body, own: Fields, parent: Fields) -> Written:
    """v_i, c_i = v_i x S qd, pA_i = v_i x* I v_i."""
    placed = place(body, own, parent)
    vJ = joint_motion(body, body.qd)
    v = placed["X"].motion(parent.v) + vJ
    return {**placed, "v": v, "c": v.cross(vJ), "pA": body.inertia.velocity_force(v)}


def external_force(body: Body, own: Fields, parent: Fields) -> Written:
    """pA_i -= X_i0* f_ext_i; external forces are in world coordinates."""
    return {"pA": own.pA - own.X0.force(body.f_ext)}


def _triangle(body: Body, U: tuple[Force, ...]) -> Scalars:
    """Lower triangle of S' U plus armature on the diagonal."""
    return tuple(
        body.S[i].dot(U[j]) + (body.armature[i] if i == j else 0.0) for i in range(len(U)) for j in range(i + 1)
    )


def articulated_inertia(body: Body, own: Fields) -> tuple[Written, Written]:
    """U = IA S, D = S' U, Ia = IA - U D^-1 U'; IA_p += X' Ia X (RBDA eq. 7.43, 7.47)."""
    U = tuple(own.IA.times(column) for column in body.S)
    D = ldl(_triangle(body, U), len(U))
    Ia = own.IA
    for i, w in enumerate(forward_substitute(D, U)):
        Ia = Ia.minus_outer(w, w.scaled(1.0 / D[i * (i + 1) // 2 + i]))
    return {"U": U, "D": D, "Ia": Ia}, {"IA": own.X.articulated_back(Ia)}


def articulated_bias(body: Body, own: Fields) -> tuple[Written, Written]:
    """u = tau - S' pA; pA_p += X' (pA + Ia c + U D^-1 u) (RBDA eq. 7.44, 7.48)."""
    u = tuple(tau - column.dot(own.pA) for tau, column in zip(body.tau, body.S, strict=True))
    pa = own.pA + own.Ia.times(own.c)
    for U, x in zip(own.U, ldl_solve(own.D, u), strict=True):
        pa = pa + U.scaled(x)
    return {"u": u}, {"pA": own.X.force_back(pa)}


def _solve_joint(body: Body, own: Fields, a: Motion) -> Written:
    """qdd = D^-1 (u - U' a'), a = a' + S qdd (RBDA eq. 7.45, 7.46)."""
    qdd = ldl_solve(own.D, tuple(u - a.dot(U) for u, U in zip(own.u, own.U, strict=True)))
    return {"qdd": qdd, "a": a + joint_motion(body, qdd)}


def joint_acceleration(body: Body, own: Fields, parent: Fields) -> Written:
    """a' = X a_p + c, then qdd and a (`_solve_joint`)."""
    return _solve_joint(body, own, own.X.motion(parent.a) + own.c)


def unit_bias(body: Body, own: Fields) -> tuple[Written, Written]:
    """`articulated_bias` of a unit generalised force at rest, without gravity."""
    u = tuple(unit - column.dot(own.pA) for unit, column in zip(body.unit, body.S, strict=True))
    pa = own.pA
    for U, x in zip(own.U, ldl_solve(own.D, u), strict=True):
        pa = pa + U.scaled(x)
    return {"u": u}, {"pA": own.X.force_back(pa)}


def unit_acceleration(body: Body, own: Fields, parent: Fields) -> Written:
    """`joint_acceleration` at rest."""
    return _solve_joint(body, own, own.X.motion(parent.a))


_INERTIAS = Inward(articulated_inertia, reads=("X", "IA"), writes=("U", "D", "Ia"), gives=("IA",))
_INERTIA_FIELDS = {"X": TRANSFORM, "IA": ARTICULATED, "Ia": ARTICULATED, "U": DOF_FORCES, "D": DOF_TRIANGLE}
_SOLVE_FIELDS = {"pA": FORCE, "u": DOFS, "qdd": DOFS, "a": MOTION}


@cache
def aba(inputs: tuple[str, ...] = ("q", "qd", "tau")) -> Algorithm:
    """ABA, with external forces where `inputs` names them; for models without mimicking joints."""
    external: tuple[Sweep, ...] = ()
    if "f_ext" in inputs:
        external = (*POSES_OF_KNOWN, Outward(external_force, reads=("X0", "pA"), writes=("pA",)))
    return Algorithm(
        name="aba_" + "_".join(inputs),
        inputs=inputs,
        fields={**_INERTIA_FIELDS, **_SOLVE_FIELDS, "X0": TRANSFORM, "v": MOTION, "c": MOTION},
        sweeps=(
            World(base_motion_against_gravity, writes=("v", "a")),
            Outward(bias, carries=("v",), writes=("X", "IA", "v", "c", "pA")),
            *external,
            _INERTIAS,
            Inward(articulated_bias, reads=("X", "U", "D", "Ia", "c", "pA"), writes=("u",), gives=("pA",)),
            Outward(joint_acceleration, reads=("X", "U", "D", "u", "c"), carries=("a",), writes=("qdd", "a")),
        ),
        outputs={"qdd": DofOutput("qdd", force=False)},
    )


INVERSE_MASS_MATRIX = Algorithm(
    name="inverse_mass_matrix",
    inputs=("q",),
    fields={**_INERTIA_FIELDS, **_SOLVE_FIELDS},
    sweeps=(
        World(base_acceleration, writes=("a",)),
        Outward(place, writes=("X", "IA")),
        _INERTIAS,
        Inward(unit_bias, reads=("X", "U", "D", "pA"), writes=("u",), gives=("pA",), lanes=True),
        Outward(unit_acceleration, reads=("X", "U", "D", "u"), carries=("a",), writes=("qdd", "a"), lanes=True),
    ),
    outputs={"Hinv": DofOutput("qdd", force=False, lanes=True)},
    mixed_precision=inverse_by_mass_matrix(),
)
"""H^-1 by the articulated-body recursion, a lane for every unit generalised force: O(n^2).

A factorisation of the mass matrix takes half of the operations for a humanoid and a third for an arm. But it subtracts
most of the composite inertias in H again: in single precision a humanoid's inverse loses two of seven digits."""
