"""A model's constants as a traced program sees them: numbers that are zero or one up to rounding are exactly that."""

from __future__ import annotations

import numpy as np

from robodyn.core.model import Model
from robodyn.internals.arguments import Array

_ROTATION_SNAP = 1e-13
"""Entries of a rotation this close to 0, 1 or -1 are taken to be it: half turns written with sixteen digits."""
_RELATIVE_SNAP = 1e-15
"""Lengths and inertias below this share of the largest of their kind on the body are zero: rounding of the builder's
turns. Nothing larger: hands have inertias of 1e-6 beside offsets of 1e-1."""


def snapped_transforms(X: Array) -> Array:
    """Transforms (m, 12), E row-major and r, with their near-constants made exact."""
    X = X.copy()
    E, r = X[:, :9], X[:, 9:]
    for value in (0.0, 1.0, -1.0):
        E[np.abs(E - value) < _ROTATION_SNAP] = value
    _drop_small(r)
    return X


def snapped_inertias(inertia: Array) -> Array:
    """Inertias (m, 10) without the entries that are rounding beside the others of their unit."""
    inertia = inertia.copy()
    for part in (inertia[:, 1:4], inertia[:, 4:]):
        _drop_small(part)
    return inertia


def _drop_small(part: Array) -> None:
    part[np.abs(part) < _RELATIVE_SNAP * np.abs(part).max(axis=1, keepdims=True, initial=0.0)] = 0.0


class Constants:
    """Snapped constants of a model, as arrays; `Xtree` (n, 12), `inertia` (n, 10), `link_X` (L, 12)."""

    def __init__(self, model: Model) -> None:
        self.Xtree = snapped_transforms(model.Xtree)
        self.inertia = snapped_inertias(model.inertia)
        self.link_X = snapped_transforms(model.link_X)
