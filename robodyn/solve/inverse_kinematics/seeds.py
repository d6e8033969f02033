"""Initial configurations of inverse kinematics."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.solve.inverse_kinematics.limits import bounds

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
_WIDE = 1e6
"""Limits beyond this, in m or rad, are too wide for their middle to be a useful start."""
_FIRST = 20
"""Number of points skipped at the beginning of Halton's sequence, where coordinates of all bases are correlated."""


def further_starts(model: Model, count: int, rng: Any) -> Array:
    """(count, nq) initial configurations within limits.

    Without `rng`, robots of up to twelve coordinates and without quaternions get points of Halton's sequence, which are
    evenly distributed. Other robots get random points with a fixed seed.
    """
    return _even(model, count) if rng is None else _within(model, model.random_configuration(rng, count))


@lru_cache(maxsize=16)
def _even(model: Model, count: int) -> Array:
    if model.nq <= len(_PRIMES) and not model.quaternion_starts.size:
        lower, width = model.drawn_from
        configurations = lower + width * _halton(count, model.nq)
    else:
        configurations = model.random_configuration(0, count)
    return _within(model, configurations)


def _within(model: Model, found: Array) -> Array:
    """Clips sampled configurations to the limits. Coordinates with very wide limits are moved near their middle."""
    lower, width = model.drawn_from
    wide = np.maximum(np.abs(lower), np.abs(lower + width)) >= _WIDE
    share = (found[:, wide] - lower[wide]) / width[wide]
    found[:, wide] = middle(model)[wide] + (2.0 * share - 1.0)
    return np.clip(found, *bounds(model))


def middle(model: Model) -> Array:
    """(nq,) the neutral configuration, with limited coordinates at the middle of their range unless it is very wide."""
    lower, upper = bounds(model)
    both = np.isfinite(lower) & np.isfinite(upper) & (np.maximum(np.abs(lower), np.abs(upper)) < _WIDE)
    neutral = np.clip(model.neutral(), lower, upper)
    return np.where(both, 0.5 * (np.where(both, lower, 0.0) + np.where(both, upper, 0.0)), neutral)


def _halton(count: int, size: int) -> Array:
    """(count, size) numbers in [0, 1): Halton's sequence (1960), the digits of k mirrored at the radix point."""
    points = np.zeros((count, size))
    for column, base in enumerate(_PRIMES[:size]):
        remaining, digit = np.arange(_FIRST, _FIRST + count), 1.0
        while remaining.any():
            digit /= base
            points[:, column] += digit * (remaining % base)
            remaining //= base
    return points
