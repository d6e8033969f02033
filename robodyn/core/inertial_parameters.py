"""Inertial parameters: the ten numbers of a body, their change of frame, and their physical consistency.

The order is that of `Model.inertia`: mass m (kg), first moment h = m c (kg m), rotational inertia I xx xy xz yy yz zz
about the frame's origin (kg m^2). The pseudo-inertia matrix of a body is [[S, h], [h', m]] with S = tr(I)/2 - I, the
second moments of its mass. A distribution of positive mass in space with these parameters exists if and only if the
matrix is positive definite (Wensing, Kim, Slotine, Linear Matrix Inequalities for Physically Consistent Inertial
Parameter Identification, 2018).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from robodyn.core.spatial import Inertia, Transform
from robodyn.core.sweeps import flatten
from robodyn.internals.arguments import Array, broadcast_leading, finite_number, real_array, rows_named
from robodyn.internals.errors import ArgumentError

_WHAT = "m, h, and I xx xy xz yy yz zz"
_ROWS, _COLUMNS = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 2, 1, 2, 2])
"""Rows and columns of xx xy xz yy yz zz in a matrix."""


def _parameters(inertia: ArrayLike) -> Array:
    return real_array("inertia", inertia, (10,), np.float64, what=_WHAT)


def pseudo_inertia(inertia: ArrayLike) -> Array:
    """The pseudo-inertia matrix (..., 4, 4) of inertial parameters (..., 10); linear in them."""
    pi = _parameters(inertia)
    J = np.empty((*pi.shape[:-1], 4, 4))
    with np.errstate(all="ignore"):
        J[..., _ROWS, _COLUMNS] = J[..., _COLUMNS, _ROWS] = -pi[..., 4:]
        half_trace = 0.5 * (pi[..., 4] + pi[..., 7] + pi[..., 9])
        J[..., [0, 1, 2], [0, 1, 2]] += half_trace[..., None]
    J[..., :3, 3] = J[..., 3, :3] = pi[..., 1:4]
    J[..., 3, 3] = pi[..., 0]
    return J


def from_pseudo_inertia(J: ArrayLike) -> Array:
    """Inertial parameters (..., 10) of the symmetric part of a pseudo-inertia matrix (..., 4, 4)."""
    matrix = real_array("J", J, (4, 4), np.float64)
    pi = np.empty((*matrix.shape[:-2], 10))
    with np.errstate(all="ignore"):
        symmetric = 0.5 * (matrix + np.swapaxes(matrix, -1, -2))
        pi[..., 0], pi[..., 1:4] = symmetric[..., 3, 3], symmetric[..., :3, 3]
        pi[..., 4:] = -symmetric[..., _ROWS, _COLUMNS]
        pi[..., [4, 7, 9]] += np.trace(symmetric[..., :3, :3], axis1=-2, axis2=-1)[..., None]
    return pi


def consistency_margin(inertia: ArrayLike) -> Array:
    """The smallest eigenvalue (...) of the pseudo-inertia matrix of parameters (..., 10), in SI units; NaN where they
    are not finite. It is positive for a body and zero for a flat or massless one. It is a concave function of the
    parameters, and small for a small body."""
    J = pseudo_inertia(inertia)
    finite: Array = np.logical_and.reduce(np.isfinite(J), axis=(-2, -1))
    smallest = np.linalg.eigvalsh(np.where(finite[..., None, None], J, 0.0))[..., 0]
    return np.asarray(np.where(finite, smallest, np.nan))[()]


def physically_consistent(inertia: ArrayLike, margin: float = 0.0) -> Array:
    """Whether some distribution of positive mass in space has the parameters (..., 10), as booleans (...).

    True where `consistency_margin` is greater than `margin`. At 0, point masses, and masses on a line or in a plane,
    are inconsistent up to rounding; a margin slightly below zero accepts them.
    """
    least = finite_number("margin", margin)
    return np.asarray(consistency_margin(inertia) > least)[()]


def in_frame(inertia: ArrayLike, X: ArrayLike) -> Array:
    """The same body in another frame: parameters (..., 10) in frame A become those in frame B.

    `X`: (..., 12) the transform from A to B as in `model.link_X`: E row-major, which takes coordinates of A to B, and
    r, B's origin in A. Leading axes broadcast.
    """
    pi, transform = _parameters(inertia), real_array("X", X, (12,), np.float64, what="E row-major, then r")
    leading = broadcast_leading({"inertia": (pi, 1), "X": (transform, 1)})
    x, e = (np.moveaxis(array, -1, 0) for array in (pi, transform))
    moved = np.empty((*leading, 10))
    with np.errstate(all="ignore"):
        seen = Transform(tuple(e[:9]), (e[9], e[10], e[11])).inverse()
        body = Inertia(x[0], (x[1], x[2], x[3]), (x[4], x[5], x[6], x[7], x[8], x[9]))
        for k, scalar in enumerate(flatten(seen.inertia_back(body))):
            moved[..., k] = scalar
    return moved


def frame_matrix(X: ArrayLike) -> Array:
    """(..., 10, 10) with `in_frame(inertia, X) == frame_matrix(X) @ inertia`: parameters change linearly.

    Regressors transform the other way: the columns of a body for parameters in A are `Y_B @ frame_matrix(X)`.
    """
    transform = real_array("X", X, (12,), np.float64, what="E row-major, then r")
    return np.swapaxes(in_frame(np.eye(10), transform[..., None, :]), -1, -2)


def deviation_metric(nominal: ArrayLike) -> Array:
    """(..., 10, 10) symmetric G with d' G d = tr((P^-1 D)^2), P and D the pseudo-inertia matrices of the nominal
    parameters (..., 10) and of a deviation d from them.

    It weighs a deviation relative to the body itself, whatever the units and the frame. In least squares it keeps
    parameters that the data do not determine near their nominal values, on the scale at which they stop being
    consistent (Lee, Wensing, Park, Geometric Robot Dynamic Identification: A Convex Programming Approach, 2020: the
    metric of the manifold of P, evaluated at the nominal point).

    Raises:
        ArgumentError: nominal parameters that are not physically consistent; names the rows.
    """
    pi = _parameters(nominal)
    bad = ~physically_consistent(pi)
    if bad.any():
        where = f" {rows_named(bad, 0)}" if pi.ndim > 1 else ""
        raise ArgumentError(
            f"nominal: no body can have these parameters{where}; wanted a positive definite pseudo-inertia matrix"
        )
    P, units = pseudo_inertia(pi), pseudo_inertia(np.eye(10))
    share = np.linalg.solve(P[..., None, :, :], units)
    metric: Array = np.einsum("...kab,...lba->...kl", share, share)
    return metric
