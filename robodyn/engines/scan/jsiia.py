"""Forward dynamics by n + 1 inverse dynamics (JSIIA): Yang, Wu, Pan 2016, algorithm 2.

Column k of the mass matrix is inverse dynamics of a robot at rest, without gravity, whose k-th acceleration is one. All
columns are one batch of scans; Cholesky's method solves. The work grows with the square of n, its depth only with the
logarithm.
"""

from __future__ import annotations

import numpy as np

from robodyn.arguments import Array
from robodyn.engines.memory import require_memory
from robodyn.engines.scan.forward_crba import REMEDY, net_force, solved
from robodyn.engines.scan.inverse import inverse_dynamics
from robodyn.engines.scan.states import State


def forward_by_columns(state: State, out: Array) -> None:
    """qdd into out (B, nv).

    Raises:
        ArgumentError: the mass matrix has no room in memory.
    """
    nv = state.model.nv
    require_memory(
        "mass matrix", (state.batch, nv, nv), state.dtype.itemsize, f"method='crba' on branching trees, {REMEDY}"
    )
    H = np.empty((state.batch, nv, nv), state.dtype)
    _columns(state, H.reshape(state.batch * nv, nv))
    solved(H, net_force(state), out)


def _columns(state: State, out: Array) -> None:
    """H, row after row (B nv, nv), its rows being its columns."""
    layout, nv = state.layout, state.model.nv
    weightless = np.concatenate((np.zeros(3), state.model.gravity)).astype(state.dtype)
    rows = layout.states_at_once
    for start in range(0, len(out), rows):
        row, column = np.divmod(np.arange(start, min(start + rows, len(out))), nv)
        inputs = {name: state.inputs[name][row] for name in ("q", "inertia") if state.given(name)}
        inputs["qdd"] = (np.arange(nv) == column[:, None]).astype(state.dtype)
        inputs["dV0"] = np.broadcast_to(weightless, (row.size, 6))
        state.generalised(inverse_dynamics(State(layout, inputs), "rnea"), out[start : start + rows])
