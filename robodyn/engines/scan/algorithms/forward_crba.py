"""Forward dynamics by the mass matrix: H qdd = tau - bias, with the bias from inverse dynamics (RBDA section 6.1).

H is factorised as a dense matrix (Cholesky) or with branch-induced sparsity
(`robodyn.engines.scan.systems.branch_factor`), depending on the estimated times. On a GPU the array library solves the
dense system, or kernels use the sparsity (`robodyn.engines.scan.cuda.branches`) if that is much less work. Models with
mimicking joints have the dense matrix G' H G, without branch-induced sparsity.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.algorithms.dense import solve
from robodyn.engines.memory import require_memory
from robodyn.engines.scan.algorithms.inverse import inverse_dynamics
from robodyn.engines.scan.algorithms.mass_matrix import entries, mass_matrix, rows_up_to_the_diagonal
from robodyn.engines.scan.states import State
from robodyn.engines.scan.systems.branch_factor import BranchFactor
from robodyn.engines.scan.trees.branches import Branches, branches_of
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.internals.tuning import (
    BRANCH_FLOP,
    BRANCH_STEP,
    DENSE_ENTRY,
    DENSE_FLOP,
    FEWER_OPERATIONS,
    ONE_BY_ONE,
    SEVERAL_STATES,
    SMALL_STATES_MATRIX,
)

REMEDY = "method='aba_scan', or the 'cpu' engine, which make no matrix"
"""The advice in error messages if a matrix does not fit in memory."""
_ON_GPU = f"fewer states, or {REMEDY}"


def net_force(state: State) -> Array:
    """tau - bias (B, nv)."""
    bias = state.empty(state.batch, state.model.nv)
    state.generalised(inverse_dynamics(state), bias)
    return state.inputs["tau"] - bias


def forward_by_mass_matrix(state: State, out: Array) -> None:
    """qdd into out (B, nv).

    Raises:
        ArgumentError: the matrix does not fit in memory.
    """
    nv, branches = state.model.nv, branches_of(state.layout)
    if state.layout.device is not None:
        _forward_on_device(state, branches, out)
        return
    if not state.model.has_mimic and along_branches(branches):
        require_memory("rows of the mass matrix", (branches.pairs, state.batch), 4 * state.dtype.itemsize, REMEDY)
        factor = BranchFactor(branches, entries(state), state.layout.armature)
        out[...] = factor.solve(np.ascontiguousarray(net_force(state).T)).T
        return
    require_memory("mass matrix", (state.batch, nv, nv), state.dtype.itemsize, REMEDY)
    H = np.empty((state.batch, nv, nv), state.dtype)
    mass_matrix(state, H)
    solved(H, net_force(state), out)


def _forward_on_device(state: State, branches: Branches, out: Array) -> None:
    nv, batch, layout = state.model.nv, state.batch, state.layout
    if not state.model.has_mimic and few_operations(branches):
        require_memory(
            "rows of the mass matrix", (branches.pairs, batch), 2 * state.dtype.itemsize, _ON_GPU, layout.free_bytes
        )
        assert layout.device is not None
        out[...] = layout.device.branches.solved(branches, rows_up_to_the_diagonal(state), net_force(state).T).T
        return
    require_dense_memory(state)
    H = state.empty(batch, nv, nv)
    mass_matrix(state, H)
    out[...] = solved_by_library(state, H)


def require_dense_memory(state: State) -> None:
    """Require that mass matrices and their factors fit in the device's memory.

    Raises:
        ArgumentError: they do not fit. The message gives the free memory.
    """
    nv, layout = state.model.nv, state.layout
    require_memory("mass matrix", (state.batch, nv, nv), 2 * state.dtype.itemsize, _ON_GPU, layout.free_bytes)


def few_operations(branches: Branches) -> bool:
    """Whether a device uses branch-induced sparsity: if that saves so much work that the launches for every level are
    worthwhile."""
    n = float(len(branches))
    return n > ONE_BY_ONE and FEWER_OPERATIONS * branches.squares < n**3 / 3


def along_branches(branches: Branches) -> bool:
    """Whether branch-induced sparsity is faster than the dense factorisation, from estimated times."""
    n = float(len(branches))
    if n <= ONE_BY_ONE:
        return False
    steps = branches.tree.n_levels**2
    sparse = BRANCH_FLOP * branches.squares + BRANCH_STEP * steps
    return sparse < DENSE_FLOP * n**3 / 3 + DENSE_ENTRY * n**2


def solved_by_library(state: State, H: Array) -> Array:
    """H^-1 (tau - bias) (B, nv) on a device.

    Raises:
        UnavailableError: the array library has no solver here, or a call is being recorded, which CuPy's solver does
            not support.
    """
    device = state.layout.device
    if device is not None and device.device.is_recording():
        raise UnavailableError(
            "capture: this method solves with a dense mass matrix by CuPy's libraries, which cannot be recorded; "
            "engine='gpu' has methods that can be recorded for every query"
        )
    b = net_force(state)[..., None]
    try:
        solution: Array = state.xp.linalg.solve(H, b)[..., 0]
    except ImportError as error:
        raise UnavailableError(
            f"scan: CuPy solves no linear systems here ({error}); it wants cuBLAS and cuSOLVER, which the wheels "
            'cupy-cuda13x[ctk] bring. method="cfa" needs neither'
        ) from error
    return solution


def solved(H: Array, b: Array, out: Array) -> None:
    """H^-1 b into out (B, nv), for b (B, nv) and H (B, nv, nv), which is overwritten. NaN if H is singular."""
    batch, nv = b.shape
    if not nv:
        return
    if nv <= SMALL_STATES_MATRIX and batch >= SEVERAL_STATES:
        out[...] = solve(H, b[..., None])[..., 0]
        return
    from scipy.linalg import lapack  # type: ignore[import-untyped]

    kind = "s" if H.dtype == np.float32 else "d"
    posv, sysv = getattr(lapack, f"{kind}posv"), getattr(lapack, f"{kind}sysv")
    for k in range(batch):
        out[k] = _solved_one(posv, sysv, H[k], b[k])


def _solved_one(posv: Any, sysv: Any, H: Array, b: Array) -> Any:
    """One solution, by Cholesky factorisation, or by Bunch-Kaufman if rounding errors make H indefinite."""
    if not np.isfinite(H).all():
        return np.nan
    diagonal = H.diagonal().copy()
    _, x, info = posv(H.T, b, lower=0, overwrite_a=True)  # H is symmetric, so rows and columns may be exchanged
    if info > 0:
        np.fill_diagonal(H, diagonal)  # the other triangle is unchanged
        _, _, x, info = sysv(H.T, b, lower=1, overwrite_a=True)
    return np.nan if info else x
