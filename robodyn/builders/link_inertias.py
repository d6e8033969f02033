"""Inertias of links and of the bodies that they make up.

The scalars of the algebra are arrays over links here: one pass for a whole robot.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robodyn.arguments import Array
from robodyn.builders.axes import pose_transform
from robodyn.description import Link
from robodyn.spatial import ZERO3, Inertia, Transform
from robodyn.sweeps import flatten


def of_links(links: Sequence[Link]) -> Array:
    """Inertias (L, 10) of links in their own frames."""
    given = [(i, link.inertial) for i, link in enumerate(links) if link.inertial is not None]
    inertia = np.zeros((len(links), 10))
    if not given:
        return inertia
    about_center = np.array([inertial.inertia for _, inertial in given]).T
    posed = np.array([(*X.E, *X.r) for X in (pose_transform(inertial.pose) for _, inertial in given)]).T
    masses = np.array([inertial.mass for _, inertial in given])
    moved = _frame(posed).inertia_back(Inertia(masses, ZERO3, tuple(about_center)))
    for column, scalar in enumerate(flatten(moved)):
        inertia[[i for i, _ in given], column] = scalar
    return inertia


def of_bodies(link_inertia: Array, link_body: Array, link_X: Array, n: int) -> Array:
    """Inertias (n, 10) of bodies in their frames, from those of links; what is fixed to the world is left out."""
    inertia = np.zeros((n + 1, 10))  # the last row is the world's, which does not move
    heavy = np.flatnonzero((link_inertia != 0.0).any(axis=1))
    rows = link_inertia[heavy].T
    given = Inertia(rows[0], (rows[1], rows[2], rows[3]), tuple(rows[4:]))
    moved = np.zeros((heavy.size, 10))
    for column, scalar in enumerate(flatten(_frame(link_X[heavy].T).inertia_back(given))):
        moved[:, column] = scalar
    np.add.at(inertia, link_body[heavy], moved)
    return inertia[:n].copy()


def _frame(rows: Array) -> Transform:
    return Transform(tuple(rows[:9]), (rows[9], rows[10], rows[11]))
