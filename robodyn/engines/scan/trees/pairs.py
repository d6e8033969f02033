"""Matrices with entries m_a . f_k for every degree of freedom k and each of its ancestors a.

Thesis of Lynghus, listing 10, for any joints. Motions and forces are about their bodies' origins, in the tree's axes
(`robodyn.engines.scan.trees.aligned`). An entry may be a sum of t products; the arrays then have 6 t rows.

Nearly full matrices are computed in tiles of the depth-first order. Each tile is a product of two thin matrices about a
nearby point. Other matrices are computed from lists of paths, in pieces, so that memory stays bounded. On a GPU,
kernels write every entry directly (`robodyn.engines.scan.cuda.pairs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from robodyn.core.spatial import ZERO_FORCE, ZERO_MOTION, Force, Motion, Scalar, Vec3, add, cross, sub
from robodyn.core.sweeps import VECTOR3, FieldType
from robodyn.core.tree import Indices
from robodyn.engines.scan.elements import device_of, library, taken
from robodyn.engines.scan.elementwise import Elementwise, kernels_for
from robodyn.engines.scan.states import Layout, Rows
from robodyn.engines.scan.trees.branches import Branches, Level
from robodyn.internals.arguments import Array
from robodyn.internals.tuning import DEVICE_PIECE, ONE_THREAD, PAIRS_PIECE, SHORTEST_TILE, TILES_PIECE


def cross3(a: Array, b: Array) -> Array:
    """a x b of arrays (3, ...)."""
    return np.stack((a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]))


class Pairs:
    """Products of motions (6t, nv_tree, B) of ancestors with forces (6t, nv_tree, B).

    `points` (3, nv_tree, B): the origins of the bodies of the degrees of freedom. `places` (nv_tree,): the index of
    each degree of freedom in these arrays, if they are in another order than the model's.
    """

    def __init__(
        self, branches: Branches, motions: Array, forces: Array, points: Array, places: Rows | None = None
    ) -> None:
        self.branches, self.batch, self.device = branches, motions.shape[-1], kernels_for(motions)
        self.places = None if isinstance(places, slice) else places
        if self.places is not None and self.device is None:
            motions, forces, points = (taken(each, self.places) for each in (motions, forces, points))
        self.motions, self.forces, self.points = motions, forces, points

    def whole(self, out: Array, diagonal: Array) -> None:
        """Fill symmetric matrices (B, nv_tree, nv_tree) with the entries, and zeros elsewhere. `diagonal` (nv_tree, 1)
        is added to the diagonal."""
        if self.device is not None:
            self.device.pairs.fill(self, out, upper=True, lower=True, diagonal=diagonal, clear=True)
            return
        out[...] = 0.0
        self.fill(out, upper=True, lower=True)
        along = self.branches.numbers
        out[:, along, along] += diagonal.T

    def rows(self, diagonal: Array, source: Array | None = None) -> Array:
        """The entries (pairs, B), row after row, each row from the root's child to the diagonal.

        `diagonal` (nv_tree, 1): added to the diagonal; `source`: indices of the entries to return, None for all.
        """
        if self.device is not None:
            return self.device.pairs.listed(self, diagonal, source)
        branches = self.branches
        values: Array = library(self.motions).empty((branches.pairs, self.batch), self.motions.dtype)
        if device_of(self.motions) is not None:
            for piece, entry in self.one_by_one():
                values[piece] = entry
        else:
            for level in branches.levels():
                for piece, entry in self.along(level):
                    values[branches.first[level.dofs[piece], None] + np.arange(level.ancestors.shape[1])] = entry
        values[branches.diagonal] += diagonal
        return values if source is None else values[source]

    def along(self, level: Level) -> Iterator[tuple[slice, Array]]:
        """The rows of a level in pieces, with entries (rows, depth + 1, B) from the root's child to the diagonal."""
        m, depth = level.ancestors.shape
        rows = max(1, PAIRS_PIECE // (depth * self.batch))
        for start in range(0, m, rows):
            piece = slice(start, start + rows)
            yield piece, self._entries(level.ancestors[piece], level.dofs[piece])

    def _entries(self, above: Array, dofs: Indices) -> Array:
        """m_a . f_k (m, d, B) for ancestors a (m, d) of degrees of freedom k (m,)."""
        way = self.points[:, dofs][:, :, None] - self.points[:, above]
        total = 0.0
        for t in range(0, len(self.motions), 6):
            m = self.motions[t : t + 6].take(above, axis=1)
            f = self.forces[t : t + 6].take(dofs, axis=1)[:, :, None]
            lin = m[3:] + cross3(m[:3], way)
            total = total + (m[:3] * f[:3]).sum(axis=0) + (lin * f[3:]).sum(axis=0)
        return np.asarray(total)

    def fill(self, out: Array, *, upper: bool = False, lower: bool = False) -> None:
        """Write the entries to (a, k) and/or (k, a) of matrices (B, nv_tree, nv_tree). Other entries are unchanged."""
        if self.device is not None:
            self.device.pairs.fill(self, out, upper=upper, lower=lower)
        elif device_of(self.motions) is not None:
            self._fill_one_by_one(out, upper, lower)
        elif self.branches.bushy:
            self._fill_by_paths(out, upper, lower)
        elif len(self.branches):
            self._fill_by_tiles(out, upper, lower)

    def one_by_one(self) -> Iterator[tuple[slice, Array]]:
        """All pairs in pieces, with their entries (m, B), computed by operations of the array library."""
        above, below = self.branches.all_pairs
        entry = entry_of(len(self.motions) // 6)
        pairs = max(1, DEVICE_PIECE // self.batch)
        for start in range(0, above.size, pairs):
            piece = slice(start, start + pairs)
            a, k = above[piece], below[piece]
            moving, pushing = (array[:, rows] for array, rows in ((self.motions, a), (self.forces, k)))
            yield piece, entry(moving, pushing, self.points[:, a], self.points[:, k])[0]

    def _fill_one_by_one(self, out: Array, upper: bool, lower: bool) -> None:
        above, below = self.branches.all_pairs
        for piece, values in self.one_by_one():
            a, k, entries = above[piece], below[piece], values.T
            if upper:
                out[:, a, k] = entries
            if lower:
                out[:, k, a] = entries

    def _fill_by_paths(self, out: Array, upper: bool, lower: bool) -> None:
        for level in self.branches.levels():
            for piece, values in self.along(level):
                above, dofs = level.ancestors[piece], level.dofs[piece, None]
                entries = values.transpose(2, 0, 1)
                if upper:
                    out[:, above, dofs] = entries
                if lower:
                    out[:, dofs, above] = entries

    def _fill_by_tiles(self, out: Array, upper: bool, lower: bool) -> None:
        nv, ends = len(self.branches), self.branches.ends
        motions, forces, points = (self._in_order(each) for each in (self.motions, self.forces, self.points))
        side = max(SHORTEST_TILE, int(min(TILES_PIECE // self.batch, ONE_THREAD // len(self.motions)) ** 0.5))
        latest = [int(ends[j : j + side].max()) for j in range(0, nv, side)]
        for k in range(0, nv, side):
            columns = slice(k, min(k + side, nv))
            centre = points[:, k : k + 1]
            f = _forces_about(forces[:, columns], points[:, columns] - centre)
            for j in range(0, k + 1, side):
                if latest[j // side] <= k:
                    continue
                rows = slice(j, min(j + side, nv))
                block = _motions_about(motions[:, rows], centre - points[:, rows]) @ f.transpose(0, 2, 1)
                at = np.arange(columns.start, columns.stop)
                there = (at >= np.arange(rows.start, rows.stop)[:, None]) & (at < ends[rows, None])
                self._put(out, rows, columns, there, block, upper, lower)

    def _in_order(self, array: Array) -> Array:
        """An array (size, nv_tree, B) as (B, nv_tree, size), in depth-first order."""
        if not self.branches.in_order:
            array = array[:, self.branches.tree.preorder]
        return np.ascontiguousarray(array.transpose(2, 1, 0))

    def _put(
        self, out: Array, rows: slice, columns: slice, there: Array, block: Array, upper: bool, lower: bool
    ) -> None:
        """Write a tile's entries, those with mask `there`, to the matrices."""
        if self.branches.in_order:
            if upper:
                np.copyto(out[:, rows, columns], block, where=there)
            if lower:
                np.copyto(out[:, columns, rows], block.transpose(0, 2, 1), where=there.T)
            return
        order, (i, j) = self.branches.tree.preorder, np.nonzero(there)
        values, above, dofs = block[:, i, j], order[rows][i], order[columns][j]
        if upper:
            out[:, above, dofs] = values
        if lower:
            out[:, dofs, above] = values


def _motions_about(motions: Array, way: Array) -> Array:
    """Motions (B, m, 6t), shifted to points at `way` (B, m, 3) from their reference points."""
    shifted = motions.copy()
    for t in range(0, motions.shape[-1], 6):
        shifted[..., t + 3 : t + 6] += _cross_last(motions[..., t : t + 3], way)
    return shifted


def _forces_about(forces: Array, way: Array) -> Array:
    """Forces (B, m, 6t), shifted to points from which their reference points are at `way` (B, m, 3)."""
    shifted = forces.copy()
    for t in range(0, forces.shape[-1], 6):
        shifted[..., t : t + 3] += _cross_last(way, forces[..., t + 3 : t + 6])
    return shifted


def _cross_last(a: Array, b: Array) -> Array:
    ax, ay, az = np.moveaxis(a, -1, 0)
    bx, by, bz = np.moveaxis(b, -1, 0)
    return np.stack((ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx), axis=-1)


@cache
def entry_of(terms: int) -> Elementwise:
    """The step for an entry: a sum of `terms` products m . f, with motions about one point, forces about another."""

    def step(motions: tuple[Motion, ...], forces: tuple[Force, ...], at: Vec3, to: Vec3) -> tuple[Scalar]:
        way, total = sub(to, at), 0.0
        for m, f in zip(motions, forces, strict=True):
            total = total + Motion(m.ang, add(m.lin, cross(m.ang, way))).dot(f)
        return (total,)

    many = FieldType((ZERO_MOTION,) * terms), FieldType((ZERO_FORCE,) * terms)
    return Elementwise(step, FieldType((0.0,)), *many, VECTOR3, VECTOR3)


def coupled_into(layout: Layout, matrix: Array, out: Array) -> None:
    """Write G' M G to `out` (B, nv, nv), for matrices M (B, nv_tree, nv_tree) over all joints, including mimicking ones
    (`Layout.coupling`)."""
    device = kernels_for(matrix)
    if device is not None:
        device.pairs.couple(layout, matrix, out)
        return
    if layout.device is not None:
        out[...] = layout.coupling.T @ matrix @ layout.coupling
        return
    model = layout.model
    order = np.argsort(model.v_source, kind="stable")
    starts = np.searchsorted(model.v_source[order], np.arange(model.nv))
    multiplier = model.v_multiplier[order].astype(matrix.dtype)
    for axis in (1, 2):
        shape = (1, -1, 1) if axis == 1 else (1, 1, -1)
        matrix = np.add.reduceat(matrix.take(order, axis=axis) * multiplier.reshape(shape), starts, axis=axis)
    out[...] = matrix
