"""Gradient of inverse dynamics by scans: Singh, Russell, Wensing 2022 (formulas in `robodyn.algorithms.idsva`).

Motions go outward (psi, psidd, psi + Sdot), composites (I, 2B, f, external forces) inward, and every entry is a product
of motions of one degree of freedom and forces of another on its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robodyn.algorithms.coriolis import CORIOLIS, body_coriolis
from robodyn.arguments import Array
from robodyn.engines.scan.algorithms.inverse import METHODS, Motions, external_forces
from robodyn.engines.scan.elements import library, stored
from robodyn.engines.scan.elementwise import Elementwise
from robodyn.engines.scan.states import State
from robodyn.engines.scan.trees.aligned import ROTATION, Placement, composites, inertias, placement, subspace, turned
from robodyn.engines.scan.trees.branches import Branches, branches_of
from robodyn.engines.scan.trees.pairs import Pairs, coupled
from robodyn.spatial import (
    ZERO_FORCE,
    ZERO_INERTIA,
    ZERO_MOTION,
    Force,
    Inertia,
    Mat3,
    Motion,
    Transform,
    rotate_back,
)
from robodyn.sweeps import FORCE, INERTIA, MOTION, TRANSFORM, FieldType

_BODY = FieldType((ZERO_INERTIA, CORIOLIS.template, ZERO_FORCE))
_BODY_OUTSIDE = FieldType((*_BODY.template, ZERO_FORCE))
_F, _OUT = 22, 28
"""Where f and external forces start among the scalars of a composite."""


# Steps on one body or one degree of freedom.


def _parents(X: Transform, E: Mat3, v_p: Motion, a_p: Motion, v: Motion) -> tuple[Motion, ...]:
    """v and a of the parent, about the body's origin, and vJ, all in the tree's axes."""
    moved = X.motion(v_p)
    return tuple(turned(E, each) for each in (moved, X.motion(a_p), v - moved))


def _changes(E: Mat3, S: Motion, of_body: tuple[Motion, Motion, Motion]) -> tuple[Motion, ...]:
    """S, psi = v_p x S, psidd = a_p x S + v_p x psi, and psi + Sdot = 2 psi + vJ x S."""
    column, (v_p, a_p, vJ) = turned(E, S), of_body
    psi = v_p.cross(column)
    return column, psi, a_p.cross(column) + v_p.cross(psi), psi.scaled(2.0) + vJ.cross(column)


def _parts(E: Mat3, inertia: Inertia, v: Motion, a: Motion) -> tuple[Any, ...]:
    """I, 2B and f of a body; its inertia is in the tree's axes already."""
    v, a = turned(E, v), turned(E, a)
    f = inertia.net_force(v, a)
    return inertia, body_coriolis(inertia, v.scaled(2.0)), f


def _force_turned(E: Mat3, f: Force) -> Force:
    return Force(rotate_back(E, f.ang), rotate_back(E, f.lin))


def _forces(moving: tuple[Motion, ...], parts: tuple[Any, ...]) -> tuple[Force, ...]:
    """2B psi + I psidd + S x* f, 2B S + I (psi + Sdot), 2B' S and I S."""
    (S, psi, psidd, both), (inertia, B2, f) = moving, parts
    return (
        B2.times(psi) + inertia.times(psidd) + S.cross_force(f),
        B2.times(S) + inertia.times(both),
        B2.transpose_times(S),
        inertia.times(S),
    )


def _turning(S: Motion, f: Force) -> Force:
    """- S x* f."""
    return S.cross_force(f).scaled(-1.0)


_MOTIONS3, _MOTIONS4, _FORCES4 = (
    FieldType(each) for each in ((ZERO_MOTION,) * 3, (ZERO_MOTION,) * 4, (ZERO_FORCE,) * 4)
)
_of_parents = Elementwise(_parents, _MOTIONS3, TRANSFORM, ROTATION, MOTION, MOTION, MOTION)
_of_dofs = Elementwise(_changes, _MOTIONS4, ROTATION, MOTION, _MOTIONS3)
_of_bodies = Elementwise(_parts, _BODY, ROTATION, INERTIA, MOTION, MOTION)
_turned_force = Elementwise(_force_turned, FORCE, ROTATION, FORCE)
_column_forces = Elementwise(_forces, _FORCES4, _MOTIONS4, _BODY)
_turned_by = Elementwise(_turning, FORCE, MOTION, FORCE)
_power = Elementwise(lambda m, f: (m.dot(f),), FieldType((0.0,)), MOTION, FORCE)


def inverse_dynamics_gradient(state: State, outputs: Mapping[str, Array]) -> None:
    """d tau / dq and d tau / dqd into `tau_q` and `tau_qd`, each (B, nv, nv)."""
    branches = branches_of(state.layout)
    motions = METHODS["rnea"](state)
    at = placement(state, motions.X)
    of_dofs = _of_columns(state, branches, at, motions)
    S, psi, psidd, both = (of_dofs[k : k + 6] for k in range(0, 24, 6))
    composite = _composites(state, at, motions)[:, branches.body]
    forces = _column_forces(of_dofs, composite[:_OUT])
    F_q, F_qd, couple, IS = (forces[k : k + 6] for k in range(0, 24, 6))
    outside = [(S, _turned_by(S, composite[_OUT:]))] if len(composite) > _OUT else []
    points = at.p[:, branches.body]
    for name, upper, lower in (
        ("tau_q", [(S, F_q)], [(psi, couple), (psidd, IS), *outside]),
        ("tau_qd", [(S, F_qd)], [(S, couple), (both, IS)]),
    ):
        out = outputs[name]
        full = state.zeros(state.batch, len(branches), len(branches)) if state.model.has_mimic else out
        full[...] = 0.0
        _pairs(branches, upper, points).fill(full, upper=True)
        if name == "tau_q":
            _within_bodies(state, S, composite, full)
        _pairs(branches, lower, points).fill(full, lower=True)  # this is what holds on the diagonal
        if state.model.has_mimic:
            out[...] = coupled(state.layout, full)


def _pairs(branches: Branches, terms: list[tuple[Array, Array]], points: Array) -> Pairs:
    motions, forces = (library(points).concatenate(each) for each in zip(*terms, strict=True))
    return Pairs(branches, motions, forces, points)


def _of_columns(state: State, branches: Branches, at: Placement, motions: Motions) -> Array:
    """S, psi, psidd and psi + Sdot of every degree of freedom (24, nv_tree, B), about its body's origin."""
    parent, body = state.layout.parent, branches.body

    def of_parent(moving: Array, base: Motion) -> Array:
        start = stored(base, state.empty(6, 1, state.batch))
        found: Array = state.xp.concatenate((moving, start), axis=1)[:, parent]  # of -1, the last one, the world's
        return found

    v_p, a_p = of_parent(motions.v, state.base_velocity or ZERO_MOTION), of_parent(motions.a, state.base_acceleration)
    of_body = _of_parents(motions.X, at.E, v_p, a_p, motions.v)
    return _of_dofs(at.E[:, body], subspace(state.layout), of_body[:, body])


def _composites(state: State, at: Placement, motions: Motions) -> Array:
    """I, 2B, f and, where there are some, external forces of subtrees (28 or 34, n, B)."""
    own = _of_bodies(at.E, inertias(state, at), motions.v, motions.a)
    if not state.given("f_ext"):
        return composites(state, at, _BODY, own)
    outside = _turned_force(at.E, external_forces(state, motions.X, motions.XR))
    return composites(state, at, _BODY_OUTSIDE, state.xp.concatenate((own, outside)))


def _within_bodies(state: State, S: Array, composite: Array, out: Array) -> None:
    """Take S_a . (S_k x* (f - F)) from the entries of a before k of one joint: strict ancestors alone turn the force on
    a body."""
    force = composite[_F:_OUT] - composite[_OUT:] if len(composite) > _OUT else composite[_F:_OUT]
    for a, k in state.layout.within_joints:
        out[:, a, k] += _power(S[:, a], _turned_by(S[:, k], force[:, k]))[0].T
