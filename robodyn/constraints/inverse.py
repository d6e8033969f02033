"""Inverse dynamics with constraints: how drives and constraints share what accelerations need."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from robodyn.arguments import Array, rows_named
from robodyn.errors import NumericalError

_ALLOWED = {"float64": 1e-6, "float32": 1e-2}
"""How far accelerations may be from those that constraints allow, beside the largest."""


def shared_forces(need: Array, J: Array, actuated: Array) -> tuple[Array, Array, Array]:
    """tau (..., nv), lambda (..., m), and what is left of the need (..., nv) at joints without drives.

    lambda makes up for those joints, J_u' lambda = need_u; of all such the one that leaves the least to the drives.
    """
    Jt = np.swapaxes(J, -1, -2)
    passive, driven = Jt[..., ~actuated, :], Jt[..., actuated, :]
    inverse = np.linalg.pinv(passive, rcond=1e-10)
    lam = np.einsum("...mi,...i->...m", inverse, need[..., ~actuated])
    nothing = np.eye(J.shape[-2]) - inverse @ passive
    moved = driven @ nothing
    short = need[..., actuated] - np.einsum("...im,...m->...i", driven, lam)
    more = np.einsum("...mi,...i->...m", np.linalg.pinv(moved, rcond=1e-10), short)
    lam = lam + np.einsum("...mn,...n->...m", nothing, more)
    left = need - np.einsum("...im,...m->...i", Jt, lam)
    tau = np.where(actuated, left, 0.0)
    return tau, lam, left - tau


def require_allowed(qdd: ArrayLike, allowed: Array, dtype: np.dtype[np.float64]) -> None:
    """Raise where accelerations are none that constraints allow."""
    given = np.asarray(qdd, np.float64)
    off = np.abs(given - allowed).max(axis=-1, initial=0.0)
    size = np.maximum(np.abs(given).max(axis=-1, initial=0.0), np.abs(allowed).max(axis=-1, initial=0.0))
    _refuse(off > _ALLOWED[dtype.name] * np.maximum(size, 1.0), "qdd: the constraints do not allow these accelerations")


def require_possible(need: Array, left: Array, dtype: np.dtype[np.float64]) -> None:
    """Raise where joints without drives need forces that no constraint gives."""
    size = np.maximum(np.abs(need).max(axis=-1, initial=0.0), 1.0)
    off = np.abs(left).max(axis=-1, initial=0.0)
    _refuse(off > _ALLOWED[dtype.name] * size, "qdd: the actuated joints cannot give these accelerations")


def _refuse(bad: Array, what: str) -> None:
    if np.any(bad):
        where = f" {rows_named(np.asarray(bad), 0)}" if np.ndim(bad) else ""
        raise NumericalError(f"{what}{where}")
