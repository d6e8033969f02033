"""The bounds of a model's joints, as steps of integrators take them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from robodyn.core.integrators import Limits
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.core.spatial import Inertia, Transform
from robodyn.internals.arguments import Array


def limits_of(model: Model, asked: Iterable[str]) -> dict[str, Limits]:
    """Finite bounds by name: "effort" and "velocity", or for "position" "lower" and "upper", of joints that have one
    coordinate. Kinds without any are not there."""
    found = {}
    for name in asked:
        if name == "position":
            v_of = dof_of_coordinates(model)
            for side, bounds in (("lower", model.lower), ("upper", model.upper)):
                at = np.flatnonzero(np.isfinite(bounds) & (v_of >= 0))
                found[side] = Limits(v_of[at], bounds[at], at)
        else:
            bounds = model.effort_limit if name == "effort" else model.velocity_limit
            on = np.flatnonzero(np.isfinite(bounds))
            found[name] = Limits(on, bounds[on])
    return {name: limits for name, limits in found.items() if limits.on.size}


def dof_of_coordinates(model: Model) -> Array:
    """(nq,) the degree of freedom of each coordinate that is one, -1 for those of other joints."""
    found = np.full(model.nq, -1)
    for kind, q_index, v_index in model.free_joints:
        if kind.nq == kind.nv == 1:
            found[q_index[:, 0]] = v_index[:, 0]
    return found


def inertia_moved(model: Model) -> Array:
    """(nv,) the diagonal of the mass matrix at the neutral configuration, kg or kg m^2, but for what joints that mimic
    one another add to each other's shares."""
    found = model.armature.copy()
    coordinates = model.tree_coordinates(model.neutral()).tolist()
    composite = [Inertia(row[0], tuple(row[1:4]), tuple(row[4:])) for row in model.inertia.tolist()]
    for i in range(model.n_bodies - 1, -1, -1):
        kind, q, v = KINDS[model.joint_kind[i]], int(model.q_start[i]), int(model.v_start[i])
        pitch, parent = float(model.pitch[i]), int(model.parent[i])
        for k, column in enumerate(kind.subspace(pitch)):
            own = column.dot(composite[i].times(column)) * float(model.v_multiplier[v + k]) ** 2
            found[model.v_source[v + k]] += own
        if parent >= 0:
            row = model.Xtree[i].tolist()
            X = kind.transform(tuple(coordinates[q : q + kind.nq]), pitch).after(
                Transform(tuple(row[:9]), tuple(row[9:]))
            )
            composite[parent] = composite[parent] + X.inertia_back(composite[i])
    return found
