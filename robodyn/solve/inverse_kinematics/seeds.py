"""Configurations to start from again."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.solve.inverse_kinematics.levenberg import bounds

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
_WIDE = 1e6
"""m or rad: limits that are farther apart have no middle worth starting from."""
_FIRST = 20
"""Of the sequence, which is left out: its beginning is alike in all bases."""


def starts(model: Model, count: int, rng: Any) -> Array:
    """(count, nq) configurations within limits. Without `rng` from Halton's sequence for robots of up to twelve
    coordinates without attitudes, where it is even, and else drawn with a seed of its own."""
    return _even(model, count) if rng is None else _within(model, model.random_configuration(rng, count))


@lru_cache(maxsize=16)
def _even(model: Model, count: int) -> Array:
    if model.nq <= len(_PRIMES) and not model.quaternion_starts.size:
        lower, width = model.drawn_from
        found = lower + width * _halton(count, model.nq)
    else:
        found = model.random_configuration(0, count)
    return _within(model, found)


def _within(model: Model, found: Array) -> Array:
    """Configurations that were drawn, within limits, and of very wide ones near where targets may be expected."""
    lower, width = model.drawn_from
    wide = np.maximum(np.abs(lower), np.abs(lower + width)) >= _WIDE
    share = (found[:, wide] - lower[wide]) / width[wide]
    found[:, wide] = middle(model)[wide] + (2.0 * share - 1.0)
    return np.clip(found, *bounds(model))


def middle(model: Model) -> Array:
    """(nq,) the neutral configuration, limited coordinates in the middle of their range unless that is very wide."""
    lower, upper = bounds(model)
    both = np.isfinite(lower) & np.isfinite(upper) & (np.maximum(np.abs(lower), np.abs(upper)) < _WIDE)
    neutral = np.clip(model.neutral(), lower, upper)
    return np.where(both, 0.5 * (np.where(both, lower, 0.0) + np.where(both, upper, 0.0)), neutral)


def _halton(count: int, size: int) -> Array:
    """(count, size) numbers in [0, 1): Halton's sequence (1960), digits of k reversed behind the point."""
    found = np.zeros((count, size))
    for column, base in enumerate(_PRIMES[:size]):
        left, digit = np.arange(_FIRST, _FIRST + count), 1.0
        while left.any():
            digit /= base
            found[:, column] += digit * (left % base)
            left //= base
    return found
