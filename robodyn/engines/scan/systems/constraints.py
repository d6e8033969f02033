"""Bases of joints' constraint forces, for the constraint force algorithm."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from robodyn.core.joints import KINDS
from robodyn.engines.scan.options import Basis
from robodyn.engines.scan.states import Layout
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError, RobodynError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass

_ORTHOGONAL, _INDEPENDENT = 1e-9, 1e-9
"""Tolerances for a user's W: the largest cosine with a column of S, and the smallest singular value relative to the
largest."""


@dataclass(frozen=True)
class Constraints:
    """The unknown constraint forces of joints, and the weights of the known joint forces.

    `W` (6 k, n, 1): columns of the unknown forces, one after another: first of the constraints, then of degrees of
    freedom with armature, then zeros. `compliance` (k, n, 1): numbers that are added to the diagonal of A, for these
    three kinds of columns 0, 1 / armature, and 1. `weights` (nv, 1): (S'S)^-1, which is diagonal, because the columns
    of S are orthogonal for every joint kind.
    """

    W: Array
    compliance: Array
    weights: Array


_KNOWN: WeakKeyDictionary[Layout, Constraints] = WeakKeyDictionary()


def constraints_of(layout: Layout) -> Constraints:
    """The constraints of a layout's model, cached as long as the layout exists.

    Raises:
        ArgumentError: the function `constraint_basis` of the options returns no valid basis.
    """
    if layout not in _KNOWN:
        _KNOWN[layout] = _constraints(layout)
    return _KNOWN[layout]


def _constraints(layout: Layout) -> Constraints:
    n, model = layout.n, layout.model
    W, compliance, width = np.zeros((6, 6, n)), np.ones((6, n)), np.zeros(n, dtype=np.intp)
    weights = np.ones(model.nv_tree)
    for code in np.unique(model.joint_kind).tolist():
        kind, bodies = KINDS[code], np.flatnonzero(model.joint_kind == code)
        for pitch in np.unique(model.pitch[bodies]) if kind.pitched else (0.0,):
            chosen = bodies[model.pitch[bodies] == pitch] if kind.pitched else bodies
            S = np.array([(*column.ang, *column.lin) for column in kind.subspace(float(pitch))]).T
            basis = _basis(kind.name, S, layout.options.constraint_basis)
            W[: basis.shape[1], :, chosen], width[chosen] = basis.T[:, :, None], basis.shape[1]
            compliance[: basis.shape[1], chosen] = 0.0
            for s, start in zip(S.T, range(S.shape[1]), strict=True):
                dofs = model.v_start[chosen] + start
                weights[dofs] = 1.0 / (s @ s)
                armature = model.tree_armature[dofs]
                moved = chosen[armature > 0.0]
                W[width[moved], :, moved] = s / (s @ s)
                compliance[width[moved], moved] = 1.0 / armature[armature > 0.0]
                width[moved] += 1
    most = max(int(width.max(initial=0)), 1)
    arrays = (W[:most].reshape(6 * most, n, 1), compliance[:most, :, None], weights[:, None])
    return Constraints(*(layout.placed(np.ascontiguousarray(each, layout.dtype)) for each in arrays))


def _basis(kind: str, S: Array, chosen: Basis) -> Array:
    """The basis W (6, 6 - k) of a joint kind."""
    if S.shape[1] == 6:
        return np.empty((6, 0))
    if not callable(chosen):
        return complement(S)
    try:
        W = np.asarray(chosen(kind, S.copy()))
    except RobodynError:
        raise
    except Exception as error:  # a user's function may raise anything
        raise ArgumentError(f"constraint_basis: for {kind!r} it raised {type(error).__name__}: {error}") from error
    wanted = (6, 6 - S.shape[1])
    if W.shape != wanted or W.dtype.kind not in "fiu" or not np.isfinite(W).all():
        raise ArgumentError(f"constraint_basis: for {kind!r} it returned {brief(W)}; wanted finite numbers {wanted}")
    W = W.astype(np.float64)
    lengths = np.linalg.norm(W, axis=0)
    if (np.abs(W.T @ S) > _ORTHOGONAL * lengths[:, None] * np.linalg.norm(S, axis=0)).any():
        raise ArgumentError(
            f"constraint_basis: for {kind!r} it returned a W that is not orthogonal to S; wanted W'S = 0, got "
            f"entries up to {np.abs(W.T @ S).max():.3g}"
        )
    sizes = np.linalg.svd(W, compute_uv=False)
    if not sizes[-1] > _INDEPENDENT * sizes[0]:
        raise ArgumentError(f"constraint_basis: for {kind!r} it returned a W of rank below {wanted[1]}; wanted full")
    return W


def complement(S: Array) -> Array:
    """An orthonormal basis (6, 6 - k) of the complement of S (6, k), with unit vectors where S has zero rows."""
    touched = S.any(axis=1)
    left = np.linalg.svd(S[touched])[0][:, S.shape[1] :]  # the complement within the nonzero rows
    mixed = np.zeros((6, left.shape[1]))
    mixed[touched] = left
    return np.concatenate((np.eye(6)[:, ~touched], mixed), axis=1)
