"""Forward dynamics by n + 1 inverse dynamics (JSIIA): Yang, Wu, Pan 2016, algorithm 2.

Column k of the mass matrix is the inverse dynamics of the robot at rest, without gravity, with the k-th acceleration
equal to one. All columns are computed as one batch of scans. A Cholesky factorisation solves the system. The work grows
with n^2; the number of sequential steps of the scans grows with log n.
"""

from __future__ import annotations

from robodyn.engines.memory import require_memory
from robodyn.engines.scan.algorithms.forward_crba import (
    REMEDY,
    net_force,
    require_dense_memory,
    solved,
    solved_by_library,
)
from robodyn.engines.scan.algorithms.inverse import inverse_dynamics
from robodyn.engines.scan.states import State
from robodyn.internals.arguments import Array


def forward_by_columns(state: State, out: Array) -> None:
    """qdd into out (B, nv).

    Raises:
        ArgumentError: the mass matrix does not fit in memory.
    """
    layout, nv = state.layout, state.model.nv
    if layout.device is None:
        remedy = f"method='crba' on branching trees, {REMEDY}"
        require_memory("mass matrix", (state.batch, nv, nv), state.dtype.itemsize, remedy)
    else:
        require_dense_memory(state)
    H = state.empty(state.batch, nv, nv)
    _columns(state, H.reshape(state.batch * nv, nv))
    if layout.device is None:
        solved(H, net_force(state), out)
    else:
        out[...] = solved_by_library(state, H)


def _columns(state: State, out: Array) -> None:
    """The rows of H, (B nv, nv). They are computed as columns, because H is symmetric."""
    layout, nv, xp = state.layout, state.model.nv, state.xp
    weightless = layout.weightless
    rows = layout.states_at_once
    for start in range(0, len(out), rows):
        number = xp.arange(start, min(start + rows, len(out)))
        row, column = number // nv, number % nv
        inputs = {name: state.inputs[name][row] for name in ("q", "inertia") if state.given(name)}
        inputs["qdd"] = (xp.arange(nv) == column[:, None]).astype(state.dtype)
        inputs["dV0"] = xp.broadcast_to(weightless, (row.size, 6))
        state.generalised(inverse_dynamics(State(layout, inputs)), out[start : start + rows])
