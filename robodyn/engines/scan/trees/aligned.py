"""Quantities of bodies in the axes of their tree's first body, about the bodies' own origins.

The entries of a matrix over pairs of bodies are products of a motion of one body and a force of the other, which must
refer to the same point. With the first body's origin as that point, inertias about a far point would be differences of
large numbers. About the bodies' own origins, quantities are as large as in body frames, and only shifts separate two
bodies. The transforms do not include the joint to the world, so a robot far from the world's origin loses no accuracy.

Names: E (9, n, B), the rotation from the tree's axes to the body's; p (3, n, B), the body's origin relative to the
first body's; d (3, n, B), the body's origin relative to its parent's (meaningless for first bodies).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from robodyn.algorithms.coriolis import CoriolisInertia
from robodyn.core.joints import KINDS
from robodyn.core.spatial import (
    ZERO3,
    Force,
    Inertia,
    Mat3,
    Motion,
    Transform,
    Vec3,
    add,
    cross,
    cross_columns,
    rotate_back,
    scale,
)
from robodyn.core.sweeps import INERTIA, MOTION, VECTOR3, FieldType, flatten
from robodyn.engines.scan.elementwise import Elementwise
from robodyn.engines.scan.semigroups import POSES, Semigroup, sums
from robodyn.engines.scan.states import Layout, State
from robodyn.engines.scan.trees.branches import branches_of
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass


@dataclass
class Placement:
    """E, p and d of all bodies."""

    E: Array
    p: Array
    d: Array


def placement(state: State, X: Array) -> Placement:
    """Rotations and origins of bodies, from X (12, n, B) of `State.transforms`."""
    parent, roots = state.layout.parent, state.layout.roots
    below = X.copy()
    below[:, roots] = POSES.identities(X, roots.size)
    XR = state.outward(POSES, below)
    E, p = XR[:9], XR[9:]
    return Placement(E, p, _vector_turned(E[:, parent], X[9:]))


def subspace(layout: Layout) -> Array:
    """The columns of S in body frames (6, nv_tree, 1), cached with the layout."""
    if "subspace" not in layout.known:
        S: Array = np.zeros((6, layout.model.nv_tree, 1), layout.dtype)
        for code in np.unique(layout.model.joint_kind).tolist():
            kind, model = KINDS[code], layout.model
            bodies = np.flatnonzero(model.joint_kind == code)
            for k, column in enumerate(kind.subspace(model.pitch[bodies] if kind.pitched else 0.0)):
                for target, entry in zip(S[..., 0], flatten(column), strict=True):
                    target[model.v_start[bodies] + k] = entry
        layout.known["subspace"] = layout.placed(S)
    S_kept: Array = layout.known["subspace"]
    return S_kept


def turned(E: Mat3, m: Motion) -> Motion:
    """A motion, from body axes to the tree's axes."""
    return Motion(rotate_back(E, m.ang), rotate_back(E, m.lin))


def turned_inertia(E: Mat3, inertia: Inertia) -> Inertia:
    """An inertia, from body axes to the tree's axes."""
    return Transform(E, ZERO3).inertia_back(inertia)


ROTATION = FieldType((0.0,) * 9)
_vector_turned = Elementwise(rotate_back, VECTOR3, ROTATION, VECTOR3)
_inertia_turned = Elementwise(turned_inertia, INERTIA, ROTATION, INERTIA)
_motion_turned = Elementwise(turned, MOTION, ROTATION, MOTION)


def inertias(state: State, at: Placement) -> Array:
    """Inertias (10, n, B) in the tree's axes."""
    return _inertia_turned(at.E, state.inertia)


def columns(state: State, at: Placement) -> Array:
    """S (6, nv_tree, B) in the tree's axes."""
    return _motion_turned(at.E[:, branches_of(state.layout).body], subspace(state.layout))


def shifted(r: Vec3, quantity: Any) -> Any:
    """A quantity, or a tuple of quantities, shifted to another reference point. r: the old point minus the new one."""
    if isinstance(quantity, Force):
        return Force(add(quantity.ang, cross(r, quantity.lin)), quantity.lin)
    if isinstance(quantity, CoriolisInertia):
        x, y, z = quantity.s
        return CoriolisInertia(add(quantity.P, cross_columns(r, (0.0, -z, y, z, 0.0, -x, -y, x, 0.0))), quantity.s)
    if isinstance(quantity, Inertia):
        h, (rx, ry, rz) = quantity.h, r
        moved = add(h, scale(quantity.m, r))
        (hx, hy, hz), (gx, gy, gz) = h, moved
        xx, yy, zz = rx * hx + gx * rx, ry * hy + gy * ry, rz * hz + gz * rz
        xy, xz, yz = -(hx * ry + rx * gy), -(hx * rz + rx * gz), -(hy * rz + ry * gz)
        return Inertia(quantity.m, moved, add(quantity.I, (yy + zz, xy, xz, xx + zz, yz, xx + yy)))
    return tuple(shifted(r, part) for part in quantity)


class Stretch(NamedTuple):
    """The sum of a stretch's quantities about a reference point, and the vector r from there to the next stretch's
    reference point."""

    r: Vec3
    parts: Any


def summed(a: Any, b: Any) -> Any:
    """The sum of two quantities of the same type, which may be nested tuples."""
    if not isinstance(a, tuple):
        return a + b
    parts = (summed(x, y) for x, y in zip(a, b, strict=True))
    return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)


def _then(a: Stretch, b: Stretch) -> Stretch:
    return Stretch(add(a.r, b.r), summed(a.parts, shifted(a.r, b.parts)))


@cache
def _shift(field: FieldType) -> Elementwise:
    return Elementwise(shifted, field, VECTOR3, field)


@cache
def composite_of(field: FieldType) -> Semigroup:
    """The operator that joins consecutive stretches. `field`: the type of `Stretch.parts`."""
    return Semigroup("composite", Stretch(ZERO3, field.template), _then)


def composites(state: State, at: Placement, field: FieldType, own: Array) -> Array:
    """Sums over subtrees of the bodies' quantities `own` (size, n, B), each about its body's origin.

    The sum of a subtree is about the origin of its first body. Heavy paths use a scan of stretches, vector trees use
    sums about one common point.

    `field`: the type of the quantities, a tuple of inertias, Coriolis inertias and forces.
    """
    shift, options = _shift(field), state.layout.options
    if options.layout == "euler":
        return shift(-at.p, state.subtree_sums(shift(at.p, own)))
    paths, total, op = state.layout.heavy_paths, own.copy(), composite_of(field)
    for level in paths.inward():
        elements = state.empty(op.size, level.bodies.size, state.batch)
        elements[:3, :-1] = at.d[:, level.bodies[1:]]
        elements[:3, level.ends] = 0.0  # the last bodies of paths have no successor
        elements[3:] = total[:, level.bodies]
        scanned = level.segments.scan(op, elements, options.path_kernel, block=options.block, backwards=True)
        total[:, level.bodies] = scanned[3:]
        paths.join(sums(len(own)), total, level, shift(at.d[:, level.heads], total[:, level.heads]))
    return total
