"""Joint limits that inverse kinematics respects."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from robodyn.algorithms.joint_limits import dof_of_coordinates
from robodyn.core.model import Model
from robodyn.internals.arguments import Array

_UNLIMITED = 1e30
"""Joint limits beyond this number are ignored. It is finite in single precision."""


@lru_cache(maxsize=64)
def bounds(model: Model) -> tuple[Array, Array]:
    """(nq,) lower and upper limits of coordinates with one degree of freedom; infinite for all others."""
    single = dof_of_coordinates(model) >= 0
    lower, upper = np.where(single, model.lower, -np.inf), np.where(single, model.upper, np.inf)
    valid = lower <= upper
    lower = np.where(valid & (np.abs(lower) < _UNLIMITED), lower, -np.inf)
    return lower, np.where(valid & (np.abs(upper) < _UNLIMITED), upper, np.inf)
