"""Inertias of links, and of the bodies that they are merged into. Array operations handle all links at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robodyn.core.description import IDENTITY, Inertial, Link
from robodyn.internals.arguments import Array

_INERTIA_AND_MOMENT = np.array((4, 5, 6, 1, 5, 7, 8, 2, 6, 8, 9, 3))
"""Indices into the entries m, h, xx, xy, xz, yy, yz, zz of an inertia that give the rows of the 3x4 matrix (I, h)."""
_ROWS, _COLUMNS = np.array((0, 0, 0, 1, 1, 2)), np.array((0, 1, 2, 1, 2, 2))
"""Rows and columns of the stored entries xx, xy, xz, yy, yz, zz of a symmetric matrix."""
# tr(A) 1 - A for a 3x3 matrix A, in the stored entries: a diagonal entry is the sum of two of the nine entries of A,
# the others are one entry with the opposite sign.
_FIRST, _SECOND = np.array((4, 1, 2, 0, 5, 0)), np.array((8, 0, 0, 8, 0, 4))
_SIGN = np.array((1.0, -1.0, -1.0, 1.0, -1.0, 1.0))[:, None]
_BOTH = np.array((1.0, 0.0, 0.0, 1.0, 0.0, 1.0))[:, None]

# Transposes the rotation in rows of `_row`, as `robodyn.io.builders.axes.pose_transform` does.
_TRANSPOSED = np.array((0, 3, 6, 1, 4, 7, 2, 5, 8, *range(9, 22)))
_NO_INERTIA = (*IDENTITY, *[0.0] * 13)


def of_links(links: Sequence[Link]) -> Array:
    """Inertias (L, 10) of links in the links' frames."""
    rows = [_NO_INERTIA if link.inertial is None else _row(link.inertial) for link in links]
    columns = np.array(rows).T.take(_TRANSPOSED, 0)
    return _inertia_back(columns[:12], columns[12:]).T.copy()


def _row(inertial: Inertial) -> tuple[float, ...]:
    """Rotation (9), position (3) and inertia (10, about the center of mass) of an inertial."""
    return (*inertial.pose.rotation, *inertial.pose.xyz, inertial.mass, 0.0, 0.0, 0.0, *inertial.inertia)


def of_bodies(link_inertia: Array, link_body: Array, link_X: Array, n: int) -> Array:
    """Inertias (n, 10) of bodies in their frames, from those of their links. Links fixed to the world are omitted."""
    inertia = np.zeros((n + 1, 10))  # the last row is the world's (index -1)
    np.add.at(inertia, link_body, _inertia_back(link_X.T, link_inertia.T).T)
    return inertia[:n].copy()


def _inertia_back(X: Array, given: Array) -> Array:
    """`robodyn.spatial.Transform.inertia_back` of transforms (12, L) and inertias (10, L), with bit-identical results.

    It handles all entries of vectors and matrices in few NumPy calls, whose overhead dominates for small robots.
    """
    E, r, m = X[:9].reshape(3, 3, -1), X[9:], given[0]
    result = np.empty(given.shape)
    result[0] = m
    rotated = _summed(given.take(_INERTIA_AND_MOMENT, 0).reshape(3, 4, 1, -1) * E[:, None])
    SE, h = rotated[:3], rotated[3]
    shifted = np.add(h, m * r, out=result[1:4])
    I = _summed(E.take(_ROWS, 1) * SE.take(_COLUMNS, 1))
    outer = (h[:, None] * r + r[:, None] * shifted).reshape(9, -1)
    np.add(I, outer.take(_FIRST, 0) * _SIGN + outer.take(_SECOND, 0) * _BOTH, out=result[4:])
    return result


def _summed(terms: Array) -> Array:
    """The sum of three arrays in their order."""
    total: Array = terms[0] + terms[1] + terms[2]
    return total
