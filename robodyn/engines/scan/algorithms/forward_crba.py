"""Forward dynamics by the mass matrix: H qdd = tau - bias, the bias by inverse dynamics (RBDA section 6.1).

H is factorised as a whole, by Cholesky's method, or along the branches (`robodyn.engines.scan.systems.branch_factor`),
by whichever of the two is expected to take less time. On a GPU the array library solves with it as a whole, or kernels
do along the branches (`robodyn.engines.scan.cuda.branches`), where that is far less work. Models with joints that mimic
others have no branches to speak of: theirs is G' H G.
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
"""What an error offers where a matrix has no room."""
_ON_GPU = f"fewer states, or {REMEDY}"


def net_force(state: State) -> Array:
    """tau - bias (B, nv)."""
    bias = state.empty(state.batch, state.model.nv)
    state.generalised(inverse_dynamics(state), bias)
    return state.inputs["tau"] - bias


def forward_by_mass_matrix(state: State, out: Array) -> None:
    """qdd into out (B, nv).

    Raises:
        ArgumentError: neither way has room in memory.
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
    """Raise where a device has no room for mass matrices and their factors.

    Raises:
        ArgumentError: it has not; says how much there is.
    """
    nv, layout = state.model.nv, state.layout
    require_memory("mass matrix", (state.batch, nv, nv), 2 * state.dtype.itemsize, _ON_GPU, layout.free_bytes)


def few_operations(branches: Branches) -> bool:
    """Whether a device factorises along the branches: where that is so much less work that launches for every level do
    not matter."""
    n = float(len(branches))
    return n > ONE_BY_ONE and FEWER_OPERATIONS * branches.squares < n**3 / 3


def along_branches(branches: Branches) -> bool:
    """Whether to factorise along the branches, by the time that each way is expected to take."""
    n = float(len(branches))
    if n <= ONE_BY_ONE:
        return False
    steps = branches.tree.n_levels**2
    sparse = BRANCH_FLOP * branches.squares + BRANCH_STEP * steps
    return sparse < DENSE_FLOP * n**3 / 3 + DENSE_ENTRY * n**2


def solved_by_library(state: State, H: Array) -> Array:
    """H^-1 (tau - bias) (B, nv) on a device.

    Raises:
        UnavailableError: the array library has no solver here, or a call is recorded, which CuPy does not do with its.
    """
    device = state.layout.device
    if device is not None and device.device.is_recording():
        raise UnavailableError(
            "capture: this method solves with a dense mass matrix by CuPy's libraries, which cannot be recorded; "
            "engine='gpu' has methods that can be recorded for every query"
        )
    b = net_force(state)[..., None]
    try:
        found: Array = state.xp.linalg.solve(H, b)[..., 0]
    except ImportError as error:
        raise UnavailableError(
            f"scan: CuPy solves no linear systems here ({error}); it wants cuBLAS and cuSOLVER, which the wheels "
            'cupy-cuda13x[ctk] bring. method="cfa" needs neither'
        ) from error
    return found


def solved(H: Array, b: Array, out: Array) -> None:
    """H^-1 b into out (B, nv) for H (B, nv, nv), which is overwritten, and b (B, nv). NaN where H is singular."""
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
    """One solution: by Cholesky's method, or where rounding leaves H not positive definite, by Bunch and Kaufman's."""
    if not np.isfinite(H).all():
        return np.nan
    diagonal = H.diagonal().copy()
    _, x, info = posv(H.T, b, lower=0, overwrite_a=True)  # H = H', and its columns are what LAPACK calls rows
    if info > 0:
        np.fill_diagonal(H, diagonal)  # the other triangle is as it was
        _, _, x, info = sysv(H.T, b, lower=1, overwrite_a=True)
    return np.nan if info else x
