"""Constrained dynamics where the mass matrix is singular, but constraints hold what has no mass.

H qdd + bias = tau + J' lambda and J qdd + r = 0 determine accelerations if no motion that the constraints allow is
without kinetic energy. On the constraints J' R (J qdd + r) is zero for any weights R of rows, so it may be added:

    (H + J' R J) qdd + bias = tau - J' R r + J' lambda

The matrix on the left is regular, and lambda is the same. This is the augmented Lagrangian of Bayo, Garcia de Jalon and
Serna, A modified Lagrangian formulation for the dynamic analysis of constrained mechanical systems, 1988. Weights are
such that each row adds the mean of the diagonal of H.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.internals.provided import provided

_ROUNDING = 1e-12
"""Central inertias whose determinant is a smaller share of the cube of their trace count as singular."""


@lru_cache(maxsize=64)
def has_singular_mass_matrix(model: Model) -> bool:
    """True if the mass matrix is singular at every state."""
    return not _all_have_inertia(model.inertia) and provided("singularity")(model) is not None


def _all_have_inertia(inertia: Array) -> bool:
    """True if all bodies (n, 10) have mass and rotational inertia about every axis: then every joint moves some."""
    m, h, (xx, xy, xz, yy, yz, zz) = inertia[:, 0], inertia[:, 1:4], inertia[:, 4:].T
    if not (m > 0.0).all():
        return False
    about = np.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz], axis=1).reshape(-1, 3, 3)
    square = (h * h).sum(axis=1)[:, None, None] * np.eye(3) - h[:, :, None] * h[:, None, :]
    central = about - square / m[:, None, None]
    trace = np.trace(central, axis1=1, axis2=2)
    return bool((trace > 0.0).all() and (np.linalg.det(central) > _ROUNDING * trace**3).all())


def weights(size: Any, moving: Any, square: Any) -> Any:
    """R of rows. `size`: the mean of the diagonal of H; `moving`: 1 for rows that move, 0 for others; `square`: the sum
    of squares of a row of J."""
    return moving * size / (moving * square + (1.0 - moving))


def least_pivot(proximal: tuple[float, int]) -> float:
    """Share of a diagonal entry below which a pivot of H + J' R J is a rounding error. In single precision mu of
    `proximal` is at least 1e-5."""
    return 1e-14 if proximal[0] < 1e-6 else 4e-6
