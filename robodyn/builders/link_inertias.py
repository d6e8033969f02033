"""Inertias of links and of the bodies that they make up: one pass over arrays for a whole robot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robodyn.arguments import Array
from robodyn.builders.axes import pose_transform
from robodyn.description import Link

_FULL = np.array((0, 1, 2, 1, 3, 4, 2, 4, 5))
"""Of the entries of a symmetric matrix xx, xy, xz, yy, yz, zz, those of the whole matrix."""
_UPPER = np.array((0, 1, 2, 4, 5, 8))
"""Of the entries of a matrix, those kept of a symmetric one."""
_FIRST, _SECOND = np.array((0, 0, 1)), np.array((1, 2, 2))
"""Rows and columns of xy, xz, yz."""


def of_links(links: Sequence[Link]) -> Array:
    """Inertias (L, 10) of links in their own frames."""
    given = [(i, link.inertial) for i, link in enumerate(links) if link.inertial is not None]
    inertia = np.zeros((len(links), 10))
    if given:
        about_center = [(inertial.mass, 0.0, 0.0, 0.0, *inertial.inertia) for _, inertial in given]
        poses = [(*X.E, *X.r) for X in (pose_transform(inertial.pose) for _, inertial in given)]
        inertia[[i for i, _ in given]] = _back(np.array(poses), np.array(about_center))
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
    h = E[0] * given[1] + E[1] * given[2] + E[2] * given[3]
    moved = h + m * r
    S = given[4:][_FULL].reshape(3, 3, -1)
    SE = S[:, 0, None] * E[0] + S[:, 1, None] * E[1] + S[:, 2, None] * E[2]
    I = E[0][:, None] * SE[0] + E[1][:, None] * SE[1] + E[2][:, None] * SE[2]
    xx, yy, zz = r * h + moved * r
    xy, xz, yz = -(h[_FIRST] * r[_SECOND] + r[_FIRST] * moved[_SECOND])
    shifted = np.array((yy + zz, xy, xz, xx + zz, yz, xx + yy))
    return np.concatenate((m[None], moved, I.reshape(9, -1)[_UPPER] + shifted)).T
