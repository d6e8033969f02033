"""Inverse dynamics with constraints: drives and constraint forces that together produce given accelerations."""

from __future__ import annotations

import numpy as np

from robodyn.internals.arguments import Array, rows_named
from robodyn.internals.errors import NumericalError

_ALLOWED = {"float64": 1e-6, "float32": 1e-2}
"""Tolerance for accelerations to satisfy the constraints, relative to the largest."""
_POSSIBLE = {"float64": 1e-6, "float32": 1e-3}
"""Share of the force on a joint without a drive that may be missing."""
_RANK = {"float64": 1e-8, "float32": 3e-4}
"""Singular values of J, with rows divided by their sizes, that count as rounding errors.

It is the root of the spacing of numbers: a null space is only as exact as the spacing over the least singular value
that counts."""


@np.errstate(over="ignore", invalid="ignore")  # states that are not finite, or too far away, get NaN
def shared_forces(
    need: Array, J: Array, sizes: Array, actuated: Array, dtype: np.dtype[np.float64], *, least_lam: bool
) -> tuple[Array, Array, Array]:
    """tau (..., nv), lambda (..., m), and the missing forces (..., nv) at joints without drives.

    lambda supplies the forces at those joints, J_u' lambda = need_u, or comes nearest to them. Among all such lambda it
    leaves the least to the drives, or is itself the least in units of 1/sizes.

    Args:
        need: (..., nv) generalised forces of drives and constraints together.
        J: (..., m, nv), with zeros in rows of inactive constraints.
        sizes: (m,) sizes of rows, by which rows are divided so that the rank does not depend on units.
        actuated: (nv,) True where there are drives.
        dtype: the precision of the numbers.
        least_lam: whether lambda is to be the least, and not tau.
    """
    J = J / sizes[:, None]
    norm = np.linalg.norm(J, axis=(-2, -1))
    finite = np.asarray(np.isfinite(norm) & np.isfinite(need).all(axis=-1))
    J = np.where(finite[..., None, None], J, 0.0)
    least = _RANK[dtype.name] * np.where(finite, np.maximum(norm, 1.0), 1.0)
    Jt = np.swapaxes(J, -1, -2)
    passive, driven = Jt[..., ~actuated, :], Jt[..., actuated, :]
    inverse = _pseudo_inverse(passive, least)
    lam = np.einsum("...mi,...i->...m", inverse, need[..., ~actuated])
    if not least_lam:
        null = np.eye(J.shape[-2]) - inverse @ passive
        short = need[..., actuated] - np.einsum("...im,...m->...i", driven, lam)
        more = np.einsum("...mi,...i->...m", _pseudo_inverse(driven @ null, least), short)
        lam = lam + np.einsum("...mn,...n->...m", null, more)
    left = np.where(finite[..., None], need - np.einsum("...im,...m->...i", Jt, lam), np.nan)
    tau = np.where(actuated, left, 0.0 * left)
    return tau, np.where(finite[..., None], lam / sizes, np.nan), left - tau


def _pseudo_inverse(matrix: Array, least: Array) -> Array:
    """The pseudo-inverse of a matrix (..., n, m) whose singular values up to `least` (...) are rounding errors."""
    largest = np.linalg.norm(matrix, axis=(-2, -1))
    inverse: Array = np.linalg.pinv(matrix, rcond=least / np.where(largest > 0.0, largest, 1.0))
    return inverse


def is_forbidden(qdd: Array, part: Array, dtype: np.dtype[np.float64]) -> Array:
    """Where (...) constraints do not allow accelerations, from the part of them that is forbidden."""
    off, allowed = np.abs(part).max(axis=-1, initial=0.0), qdd - part
    size = np.maximum(*(np.abs(each).max(axis=-1, initial=0.0) for each in (qdd, allowed)))
    return np.asarray(off > _ALLOWED[dtype.name] * np.maximum(size, 1.0))


def is_missing(need: Array, tau: Array, left: Array, dtype: np.dtype[np.float64]) -> Array:
    """Where (...) joints without drives need forces that constraints do not supply.

    The missing force is compared with the force that is needed and supplied, and with the rounding of the largest one.
    """
    rounding = 300.0 * np.finfo(dtype).eps * np.abs(need).max(axis=-1, initial=0.0, keepdims=True)
    gets = np.abs(need - tau - left)
    return np.asarray((np.abs(left) > _POSSIBLE[dtype.name] * np.maximum(np.abs(need), gets) + rounding).any(axis=-1))


def refuse(forbids: Array, lacks: Array) -> None:
    """Raise if constraints forbid accelerations, or drives cannot produce them."""
    for bad, what in (
        (forbids, "qdd: the constraints do not allow these accelerations"),
        (lacks, "qdd: the actuated joints cannot give these accelerations"),
    ):
        if np.any(bad):
            where = f" {rows_named(bad, 0)}" if np.ndim(bad) else ""
            raise NumericalError(f"{what}{where}")
