"""Inertias of links and of the bodies that they make up: one pass over arrays for a whole robot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robodyn.core.description import IDENTITY, Inertial, Link
from robodyn.internals.arguments import Array

_MIXED = np.array((4, 5, 6, 1, 5, 7, 8, 2, 6, 8, 9, 3))
"""Of the entries m, h, xx, xy, xz, yy, yz, zz of an inertia, those of the rows of (I, h)."""
_ROWS, _COLUMNS = np.array((0, 0, 0, 1, 1, 2)), np.array((0, 1, 2, 1, 2, 2))
"""Rows and columns of the entries that are kept of a symmetric matrix."""
# The trace of a matrix less the matrix, in those entries: two of the nine each, or one with the other sign.
_FIRST, _SECOND = np.array((4, 1, 2, 0, 5, 0)), np.array((8, 0, 0, 8, 0, 4))
_SIGN = np.array((1.0, -1.0, -1.0, 1.0, -1.0, 1.0))[:, None]
_BOTH = np.array((1.0, 0.0, 0.0, 1.0, 0.0, 1.0))[:, None]

# A rotation and an origin as `robodyn.io.builders.axes.pose_transform` has them for a transform, and an inertia.
_TRANSPOSED = np.array((0, 3, 6, 1, 4, 7, 2, 5, 8, *range(9, 22)))
_WITHOUT = (*IDENTITY, *[0.0] * 13)


def of_links(links: Sequence[Link]) -> Array:
    """Inertias (L, 10) of links in their own frames."""
    rows = [_WITHOUT if link.inertial is None else _row(link.inertial) for link in links]
    columns = np.array(rows).T.take(_TRANSPOSED, 0)
    return _back(columns[:12], columns[12:]).T.copy()


def _row(inertial: Inertial) -> tuple[float, ...]:
    """The pose of an inertial, and its inertia about the center of mass."""
    return (*inertial.pose.rotation, *inertial.pose.xyz, inertial.mass, 0.0, 0.0, 0.0, *inertial.inertia)


def of_bodies(link_inertia: Array, link_body: Array, link_X: Array, n: int) -> Array:
    """Inertias (n, 10) of bodies in their frames, from those of links; what is fixed to the world is left out."""
    inertia = np.zeros((n + 1, 10))  # the last row is the world's, which does not move
    np.add.at(inertia, link_body, _back(link_X.T, link_inertia.T).T)
    return inertia[:n].copy()


def _back(X: Array, given: Array) -> Array:
    """`robodyn.spatial.Transform.inertia_back` of transforms (12, L) and inertias (10, L), with the same roundings:
    entries of all its vectors and matrices side by side, so that small robots do not wait for calls of NumPy."""
    E, r, m = X[:9].reshape(3, 3, -1), X[9:], given[0]
    found = np.empty(given.shape)
    found[0] = m
    turned = _summed(given.take(_MIXED, 0).reshape(3, 4, 1, -1) * E[:, None])
    SE, h = turned[:3], turned[3]
    moved = np.add(h, m * r, out=found[1:4])
    I = _summed(E.take(_ROWS, 1) * SE.take(_COLUMNS, 1))
    outer = (h[:, None] * r + r[:, None] * moved).reshape(9, -1)
    np.add(I, outer.take(_FIRST, 0) * _SIGN + outer.take(_SECOND, 0) * _BOTH, out=found[4:])
    return found


def _summed(terms: Array) -> Array:
    """The sum of three, from the first to the last."""
    total: Array = terms[0] + terms[1] + terms[2]
    return total
