"""The mass matrix and its inverse as linear operators of SciPy, which form no matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from robodyn.internals.arguments import Array, flag, real_array, require_finite
from robodyn.internals.errors import ArgumentError

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics


def mass_matrix_operator(dyn: Dynamics, q: ArrayLike, inverse: bool) -> Any:
    """The operator of `Dynamics.mass_matrix_operator`."""
    from scipy.sparse.linalg import LinearOperator  # type: ignore[import-untyped]

    inverse = flag("inverse", inverse)
    model = dyn.model
    state = real_array("q", q, (model.nq,), dyn.dtype)
    if state.ndim != 1:
        raise ArgumentError(f"q: got shape {state.shape}; wanted one state of shape ({model.nq},)")
    require_finite("q", state, 1)
    state = model.normalize(state).astype(dyn.dtype)
    # A base in free fall cancels gravity; at qd = 0 inverse dynamics is then tau = H qdd.
    falling = np.concatenate([np.zeros(3), model.gravity]).astype(dyn.dtype)
    ask, rest = dyn.forward_dynamics if inverse else dyn.inverse_dynamics, np.zeros(model.nv, dyn.dtype)

    def one(x: Array) -> Array:
        return np.asarray(ask(state, rest, np.asarray(x).reshape(-1), dV0=falling))

    def many(x: Array) -> Array:
        rows = np.ascontiguousarray(np.asarray(x).T)
        return np.asarray(ask(state, rest, rows, dV0=falling)).T

    return LinearOperator((model.nv, model.nv), matvec=one, rmatvec=one, matmat=many, rmatmat=many, dtype=dyn.dtype)
