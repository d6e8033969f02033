"""The order of computation of the reference engine, and the constants of bodies that are computed together."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from robodyn.core.joints import KINDS, JointKind
from robodyn.core.model import Model
from robodyn.core.spatial import Inertia, Motion, Transform
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import MAX_KEPT_BODIES

Where: TypeAlias = slice | Array
"""Rows of fields: a slice where they are adjacent, as those of a group; a slice is read and written without a copy."""


def scalars(arrays: Array) -> Any:
    """Arrays (k, m, lanes, B) as k scalars. Arrays with one entry become NumPy numbers, whose arithmetic is faster."""
    return arrays.reshape(-1) if arrays.size == len(arrays) else arrays


def columns(rows: Array, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """The columns of constants (m, c) as scalars (m, 1, 1); as numbers if m is 1."""
    return tuple(scalars(np.ascontiguousarray(rows.T, dtype=dtype)[:, :, None, None]))


class Constants:
    """A model's constants of some bodies of one joint kind, computed on first access."""

    def __init__(self, model: Model, dtype: np.dtype[Any], kind: JointKind, bodies: Array) -> None:
        self.model, self.dtype, self.joint, self.bodies = model, dtype, kind, bodies

    @cached_property
    def S(self) -> tuple[Motion, ...]:
        """Columns of the motion subspace."""
        return self.joint.subspace(self.pitch)

    @cached_property
    def pitch(self) -> Any:
        """Pitch of helical joints."""
        return columns(self.model.pitch[self.bodies, None], self.dtype)[0]

    @cached_property
    def Xtree(self) -> Transform:
        """From the parents' frames to the joints'."""
        entries = columns(self.model.Xtree[self.bodies], self.dtype)
        return Transform(entries[:9], entries[9:])

    @cached_property
    def inertia(self) -> Inertia:
        """Spatial inertias of the bodies in their own frames."""
        entries = columns(self.model.inertia[self.bodies], self.dtype)
        return Inertia(entries[0], entries[1:4], entries[4:])

    @cached_property
    def dofs(self) -> Array:
        """(m, nv) indices of the joints' tree velocities."""
        return self.model.v_start[self.bodies][:, None] + np.arange(self.joint.nv)

    @cached_property
    def coordinates(self) -> Array:
        """(m, nq) indices of the joints' tree coordinates."""
        return self.model.q_start[self.bodies][:, None] + np.arange(self.joint.nq)

    @cached_property
    def armature(self) -> tuple[Any, ...]:
        """One scalar per degree of freedom."""
        return columns(self.model.tree_armature[self.dofs], self.dtype)


@dataclass(frozen=True)
class Group:
    """Bodies of one depth and one joint kind, and the rows of their fields and of their parents' fields."""

    kind: JointKind
    bodies: Array
    kept: Constants | None
    """The model's constants of the bodies, if they are kept between runs."""
    places: slice
    parents: Where
    siblings: bool
    """True if several of the bodies have the same parent."""


@dataclass(frozen=True)
class Schedule:
    """The order of computation on a model: groups of bodies of one depth and one joint kind, from the roots to the
    leaves. Rows of fields are in this order; the world's row is last."""

    groups: tuple[Group, ...]
    order: Array
    """(n,) body at each row of fields."""
    place: Array
    """(n + 1,) row of each body, then that of the world, whose index as a parent is -1."""
    slot: Array
    """(n,) index of each row among the rows of its joint kind."""

    @staticmethod
    def of(model: Model, dtype: np.dtype[Any]) -> Schedule:
        """Group the bodies of a model by depth and joint kind."""
        codes, n = model.joint_kind.astype(np.intp), model.n_bodies
        key = model.tree.depth * len(KINDS) + codes
        order = np.argsort(key, kind="stable")
        place = np.empty(n + 1, dtype=np.intp)
        place[order], place[n] = np.arange(n), n
        slot = np.empty(n, dtype=np.intp)
        for code in range(len(KINDS)):
            chosen = np.flatnonzero(codes[order] == code)
            slot[chosen] = np.arange(chosen.size)
        starts, groups = np.flatnonzero(np.diff(key[order], prepend=-1)), []
        for bodies in np.split(order, starts[1:]) if n else ():
            first, parents = int(place[bodies[0]]), place[model.parent[bodies]]
            alone, kind = bodies.size == 1, KINDS[codes[bodies[0]]]
            groups.append(
                Group(
                    kind=kind,
                    bodies=bodies,
                    kept=Constants(model, dtype, kind, bodies) if n <= MAX_KEPT_BODIES else None,
                    places=slice(first, first + bodies.size),
                    parents=slice(int(parents[0]), int(parents[0]) + 1) if alone else parents,
                    # Not np.unique: it waits for the GIL inside C++, which aborts the process if it exits meanwhile.
                    siblings=not alone and bool(np.bincount(parents - parents.min()).max() > 1),
                )
            )
        return Schedule(tuple(groups), order, place, slot)
