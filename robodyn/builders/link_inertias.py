"""Inertias of links and of the bodies that they make up: one pass over arrays for a whole robot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robodyn.arguments import Array
from robodyn.description import Link

_FULL = np.array((4, 5, 6, 5, 7, 8, 6, 8, 9))
"""Of the entries m, h, xx, xy, xz, yy, yz, zz of an inertia, those of the whole matrix I."""
_ROWS, _COLUMNS = np.array((0, 0, 0, 1, 1, 2)), np.array((0, 1, 2, 1, 2, 2))
"""Rows and columns of the entries that are kept of a symmetric matrix."""
_UPPER = 3 * _ROWS + _COLUMNS
"""Their places among the nine."""

_TRANSPOSED = np.array((0, 3, 6, 1, 4, 7, 2, 5, 8, 9, 10, 11))
"""A rotation and an origin, as `robodyn.builders.axes.pose_transform` has them for a transform."""


def of_links(links: Sequence[Link]) -> Array:
    """Inertias (L, 10) of links in their own frames."""
    given = [(i, link.inertial) for i, link in enumerate(links) if link.inertial is not None]
    inertia = np.zeros((len(links), 10))
    if given:
        about_center = [(inertial.mass, 0.0, 0.0, 0.0, *inertial.inertia) for _, inertial in given]
        poses = np.array([(*inertial.pose.rotation, *inertial.pose.xyz) for _, inertial in given])
        inertia[[i for i, _ in given]] = _back(poses[:, _TRANSPOSED], np.array(about_center))
    return inertia


def of_bodies(link_inertia: Array, link_body: Array, link_X: Array, n: int) -> Array:
    """Inertias (n, 10) of bodies in their frames, from those of links; what is fixed to the world is left out."""
    inertia = np.zeros((n + 1, 10))  # the last row is the world's, which does not move
    heavy = np.flatnonzero(link_inertia.any(axis=1))
    np.add.at(inertia, link_body[heavy], _back(link_X[heavy], link_inertia[heavy]))
    return inertia[:n].copy()


def _back(rows: Array, inertia: Array) -> Array:
    """`robodyn.spatial.Transform.inertia_back` of transforms (L, 12) and inertias (L, 10), with the same roundings:
    entries of all its vectors and matrices side by side, so that small robots do not wait for calls of NumPy."""
    X, given = rows.T, inertia.T
    E, r, m = X[:9].reshape(3, 3, -1), X[9:], given[0]
    found = np.empty((10, len(rows)))
    found[0] = m
    h = _summed(E * given[1:4, None])
    moved = np.add(h, m * r, out=found[1:4])
    SE = _summed(given[_FULL].reshape(3, 3, 1, -1) * E[:, None])
    I = _summed(E[:, _ROWS] * SE[:, _COLUMNS])
    outer = (h[:, None] * r + r[:, None] * moved).reshape(9, -1)
    xx, yy, zz = outer[::4]
    shifted = -outer[_UPPER]
    shifted[0], shifted[3], shifted[5] = yy + zz, xx + zz, xx + yy
    np.add(I, shifted, out=found[4:])
    return found.T


def _summed(terms: Array) -> Array:
    """The sum of three, from the first to the last."""
    total: Array = terms[0] + terms[1] + terms[2]
    return total
