"""A model's constants for tracing. Numbers that equal zero or one up to rounding become exactly zero or one, so that
tracing can fold them."""

from __future__ import annotations

import numpy as np

from robodyn.core.model import Model
from robodyn.internals.arguments import Array

_ROTATION_SNAP = 1e-13
"""Entries of a rotation matrix within this distance of 0, 1 or -1 become exactly that number. Robot files write half
turns with sixteen digits."""
_RELATIVE_SNAP = 1e-15
"""Lengths and inertias become zero below this fraction of the largest entry of their kind on the same body. Such
entries are rounding errors of the builder's rotations. The fraction must stay small: hands have inertias of 1e-6 kg m^2
beside offsets of 1e-1 m."""


def snapped_transforms(X: Array) -> Array:
    """Transforms (m, 12), each E row-major and then r, whose entries near 0, 1 and -1 are made exact."""
    X = X.copy()
    E, r = X[:, :9], X[:, 9:]
    for value in (0.0, 1.0, -1.0):
        E[np.abs(E - value) < _ROTATION_SNAP] = value
    _drop_small(r)
    return X


def snapped_inertias(inertia: Array) -> Array:
    """Inertias (m, 10) in which entries that are rounding errors, compared with entries of the same unit, are zero."""
    inertia = inertia.copy()
    for part in (inertia[:, 1:4], inertia[:, 4:]):
        _drop_small(part)
    return inertia


def _drop_small(part: Array) -> None:
    part[np.abs(part) < _RELATIVE_SNAP * np.abs(part).max(axis=1, keepdims=True, initial=0.0)] = 0.0


class Constants:
    """A model's snapped constants as arrays: `Xtree` (n, 12), `inertia` (n, 10), `link_X` (L, 12)."""

    def __init__(self, model: Model) -> None:
        self.Xtree = snapped_transforms(model.Xtree)
        self.inertia = snapped_inertias(model.inertia)
        self.link_X = snapped_transforms(model.link_X)
