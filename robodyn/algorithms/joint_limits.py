"""Limits of a model's joints, for steps of integrators."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from robodyn.core.integrators import Limits
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.core.spatial import Inertia, Transform
from robodyn.internals.arguments import Array


def limits_of(model: Model, asked: Iterable[str]) -> dict[str, Limits]:
    """Finite bounds by name: "effort" and "velocity", and for "position" the names "lower" and "upper" with bounds of
    joints with one coordinate. Names without finite bounds are omitted."""
    by_name = {}
    for name in asked:
        if name == "position":
            v_of = dof_of_coordinates(model)
            for side, bounds in (("lower", model.lower), ("upper", model.upper)):
                at = np.flatnonzero(np.isfinite(bounds) & (v_of >= 0))
                by_name[side] = Limits(v_of[at], bounds[at], at)
        else:
            bounds = model.effort_limit if name == "effort" else model.velocity_limit
            on = np.flatnonzero(np.isfinite(bounds))
            by_name[name] = Limits(on, bounds[on])
    return {name: limits for name, limits in by_name.items() if limits.on.size}


def dof_of_coordinates(model: Model) -> Array:
    """(nq,) the degree of freedom that each coordinate equals, -1 for coordinates of joints that have several."""
    dofs = np.full(model.nq, -1)
    for kind, q_index, v_index in model.free_joints:
        if kind.nq == kind.nv == 1:
            dofs[q_index[:, 0]] = v_index[:, 0]
    return dofs


def linear_dofs(model: Model) -> Array:
    """(nv,) 1 for velocities in m/s, 0 for others."""
    linear = np.zeros(model.nv)
    for kind, _, v_index in model.free_joints:
        linear[v_index[:, list(kind.lengths)]] = 1.0
    return linear


def inertia_moved(model: Model) -> Array:
    """(nv,) the diagonal of the mass matrix at the neutral configuration, kg or kg m^2, without mixed terms of joints
    that mimic one another."""
    diagonal = model.armature.copy()
    coordinates = model.tree_coordinates(model.neutral()).tolist()
    composite = [Inertia(row[0], tuple(row[1:4]), tuple(row[4:])) for row in model.inertia.tolist()]
    for i in range(model.n_bodies - 1, -1, -1):
        kind, q, v = KINDS[model.joint_kind[i]], int(model.q_start[i]), int(model.v_start[i])
        pitch, parent = float(model.pitch[i]), int(model.parent[i])
        for k, column in enumerate(kind.subspace(pitch)):
            own = column.dot(composite[i].times(column)) * float(model.v_multiplier[v + k]) ** 2
            diagonal[model.v_source[v + k]] += own
        if parent >= 0:
            row = model.Xtree[i].tolist()
            X = kind.transform(tuple(coordinates[q : q + kind.nq]), pitch).after(
                Transform(tuple(row[:9]), tuple(row[9:]))
            )
            composite[parent] = composite[parent] + X.inertia_back(composite[i])
    return diagonal
