"""Conventions of other libraries: the order of joints, states and inertial parameters."""

from __future__ import annotations

import numpy as np

from robodyn.core.tree import Indices, read_only
from robodyn.internals.arguments import count

_MAX_BODIES = 1 << 24


def pinocchio_parameters(n_bodies: int = 1) -> Indices:
    """(10 n_bodies,) permutation to Pinocchio's inertial parameters: m, m c, I xx xy yy xz yz zz for each body.

    `theirs = ours[..., order]` and `ours = theirs[..., order]`, both for parameters like `model.inertia.ravel()` and
    for columns of a regressor. The order of bodies and the frames of parameters stay robodyn's. Pinocchio numbers
    joints depth-first, and does not rotate joint axes to z (`robodyn.inertial_parameters.in_frame`).

    Raises:
        ArgumentError: `n_bodies` is no valid number of bodies.
    """
    bodies = count("n_bodies", n_bodies, 0, _MAX_BODIES)
    order = np.arange(10 * bodies).reshape(bodies, 10)
    order[:, [6, 7]] = order[:, [7, 6]]
    return read_only(order.ravel())
