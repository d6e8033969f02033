"""Gradient of inverse dynamics by scans: Singh, Russell, Wensing 2022 (formulas in `robodyn.algorithms.idsva`).

Motions (psi, psidd, psi + Sdot) are computed outward, composites (I, 2B, f, external forces) inward. Each entry is a
product of a motion of one degree of freedom and a force of another, one of which is an ancestor of the other.
"""

from __future__ import annotations

from collections.abc import Mapping

from robodyn.core.spatial import IDENTITY, ZERO_MOTION, Inertia, Mat3, Motion, Transform
from robodyn.core.sweeps import FORCE, INERTIA, MOTION, TRANSFORM, FieldType
from robodyn.engines.scan.algorithms.inverse import METHODS, Motions, Outward, external_forces, inward
from robodyn.engines.scan.elements import library, stored, taken
from robodyn.engines.scan.elementwise import Elementwise, kernels_for
from robodyn.engines.scan.order import order_of
from robodyn.engines.scan.semigroups import TWIST_PAIRS, TwistPair
from robodyn.engines.scan.states import State
from robodyn.engines.scan.systems.composites import gathering, totalling
from robodyn.engines.scan.systems.gradients import (
    COLUMNS,
    FELT,
    PARTS,
    PUSHED,
    STEERING,
    STEERING_PUSHED,
    Columns,
    Parts,
    columns_of,
    felt,
    force_turned,
    parts,
    turning,
)
from robodyn.engines.scan.systems.motions import TWISTING
from robodyn.engines.scan.trees.aligned import (
    ROTATION,
    Placement,
    composite_of,
    composites,
    inertias,
    placement,
    subspace,
    turned,
)
from robodyn.engines.scan.trees.branches import branches_of
from robodyn.engines.scan.trees.pairs import Pairs, coupled_into
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

_F, _OUT = 22, 28
"""The first scalars of f and of external forces in a composite."""
_D, _AROUND, _OWN = 24, 27, 45
"""The first scalars of `d`, `around` and `parts` in `Steered`."""


# Steps for one body or one degree of freedom.


def _parents(X: Transform, E: Mat3, v_p: Motion, a_p: Motion, v: Motion) -> tuple[Motion, ...]:
    """v and a of the parent about the body's origin, and vJ, all in the tree's axes."""
    moved = X.motion(v_p)
    return tuple(turned(E, each) for each in (moved, X.motion(a_p), v - moved))


def _changes(E: Mat3, S: Motion, of_body: tuple[Motion, Motion, Motion]) -> Columns:
    return columns_of(turned(E, S), *of_body)


def _parts(E: Mat3, inertia: Inertia, v: Motion, a: Motion) -> Parts:
    """`Parts` of a body whose inertia is in the tree's axes already."""
    return parts(inertia, turned(E, v), turned(E, a))


_MOTIONS3 = FieldType((ZERO_MOTION,) * 3)
_of_parents = Elementwise(_parents, _MOTIONS3, TRANSFORM, ROTATION, MOTION, MOTION, MOTION)
_of_dofs = Elementwise(_changes, COLUMNS, ROTATION, MOTION, _MOTIONS3)
_of_bodies = Elementwise(_parts, PARTS, ROTATION, INERTIA, MOTION, MOTION)
_turned_force = Elementwise(force_turned, FORCE, ROTATION, FORCE)
_column_forces = Elementwise(felt, FELT, COLUMNS, PARTS)
_turned_by = Elementwise(turning, FORCE, MOTION, FORCE)
_power = Elementwise(lambda m, f: (m.dot(f),), FieldType((0.0,)), MOTION, FORCE)


@dataclass
class _Held:
    """The inputs of entries, by degree of freedom.

    `motions` (24, nv_tree, B): `Columns`; `composite` (28 or 34, nv_tree, B): sums of `Parts` over subtrees, followed
    by external forces if the call has any; `points` (3, nv_tree, B): the bodies' origins.
    """

    motions: Array
    composite: Array
    points: Array


def inverse_dynamics_gradient(state: State, outputs: Mapping[str, Array]) -> None:
    """d tau / dq and d tau / dqd into `tau_q` and `tau_qd`, each (B, nv, nv)."""
    folded = state.layout.options.layout == "heavy" and kernels_for(state.inputs["q"]) is not None
    held = _along_stretches(state) if folded else _body_by_body(state)
    S, psi, psidd, both = (held.motions[k : k + 6] for k in range(0, 24, 6))
    forces = _column_forces(held.motions, held.composite[:_OUT])
    F_q, F_qd, couple, IS = (forces[k : k + 6] for k in range(0, 24, 6))
    outside = [(S, _turned_by(S, held.composite[_OUT:]))] if len(held.composite) > _OUT else []
    nv = state.model.nv_tree
    for name, upper, lower in (
        ("tau_q", [(S, F_q)], [(psi, couple), (psidd, IS), *outside]),
        ("tau_qd", [(S, F_qd)], [(S, couple), (both, IS)]),
    ):
        out = outputs[name]
        full = state.empty(state.batch, nv, nv) if state.model.has_mimic else out
        full[...] = 0.0
        _pairs(state, upper, held).fill(full, upper=True)
        if name == "tau_q":
            _within_bodies(state, held, full)
        _pairs(state, lower, held).fill(full, lower=True)  # overwrites the diagonal
        if state.model.has_mimic:
            coupled_into(state.layout, full, out)


def _pairs(state: State, terms: list[tuple[Array, Array]], held: _Held) -> Pairs:
    concatenate = library(held.points).concatenate
    motions, forces = (each[0] if len(each) == 1 else concatenate(each) for each in zip(*terms, strict=True))
    return Pairs(branches_of(state.layout), motions, forces, held.points)


def _along_stretches(state: State) -> _Held:
    """`_Held` by folds: motions outward, composites inward."""
    order, pushed = order_of(state), state.given("f_ext")
    base = TwistPair(IDENTITY, state.base_acceleration, state.base_velocity or ZERO_MOTION)
    rates = order.rates(state, "qd"), order.rates(state, "qdd")
    steering, field = (STEERING_PUSHED, PUSHED) if pushed else (STEERING, PARTS)
    steered = Outward(state, order, TWIST_PAIRS, base, from_first=True).found(TWISTING, steering, rates)
    bodies = steered[_D:_AROUND], steered[_OWN:]
    total = state.empty(field.size(0), state.n, state.batch)
    alone, fold = (gathering(field), bodies), (totalling(field), bodies)
    inward(state, order, composite_of(field), alone, fold, bodies[1], found=total)
    at = taken(steered[:_OWN], order.dof_bodies)
    columns = _of_dofs(at[:9], subspace(state.layout), at[_AROUND:])
    return _Held(columns, taken(total, order.dof_bodies), at[9:12])


def _body_by_body(state: State) -> _Held:
    """`_Held` by scans over all bodies."""
    body, motions = branches_of(state.layout).body, METHODS["rnea"](state)
    at = placement(state, motions.X)
    return _Held(_of_columns(state, at, motions), _composites(state, at, motions)[:, body], at.p[:, body])


def _of_columns(state: State, at: Placement, motions: Motions) -> Array:
    """`Columns` of every degree of freedom (24, nv_tree, B), about the origin of its body."""
    parent, body = state.layout.parent, branches_of(state.layout).body

    def of_parent(moving: Array, base: Motion) -> Array:
        start = stored(base, state.empty(6, 1, state.batch))
        # Parent -1 selects the last entry, the world's.
        of_parents: Array = state.xp.concatenate((moving, start), axis=1)[:, parent]
        return of_parents

    v_p, a_p = of_parent(motions.v, state.base_velocity or ZERO_MOTION), of_parent(motions.a, state.base_acceleration)
    of_body = _of_parents(motions.X, at.E, v_p, a_p, motions.v)
    return _of_dofs(at.E[:, body], subspace(state.layout), of_body[:, body])


def _composites(state: State, at: Placement, motions: Motions) -> Array:
    """I, 2B, f and, if the call has any, external forces of subtrees (28 or 34, n, B)."""
    own = _of_bodies(at.E, inertias(state, at), motions.v, motions.a)
    if not state.given("f_ext"):
        return composites(state, at, PARTS, own)
    outside = _turned_force(at.E, external_forces(state, motions.X, motions.XR))
    return composites(state, at, PUSHED, state.xp.concatenate((own, outside)))


def _within_bodies(state: State, held: _Held, out: Array) -> None:
    """Subtract S_a . (S_k x* (f - F)) from entries (a, k) of two degrees of freedom of one joint, a before k.

    The term S_k x* f of `Felt.F_q` applies only if a belongs to a strict ancestor of the body.
    """
    if not state.layout.within_joints:
        return
    S, composite = held.motions[:6], held.composite
    force = composite[_F:_OUT] - composite[_OUT:] if len(composite) > _OUT else composite[_F:_OUT]
    for a, k in state.layout.within_joints:
        out[:, a, k] += _power(S[:, a], _turned_by(S[:, k], force[:, k]))[0].T
