"""What trajectory optimisation returns."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

STATUSES = ("iterations", "converged", "stalled", "diverged")
"""By the numbers of `robodyn.solve.trajectories.shooting`."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Trajectories of one problem or a batch, whose axes are first.

    `q` (..., steps + 1, nq) and `qd` (..., steps + 1, nv): states at the knots, rad and m, rad/s and m/s; `tau` (...,
    steps, nv): joint forces, N m and N, zeros where not actuated; `gains` (..., steps, nv, 2 nv): feedback tau + gains
    [q (-) q_k, qd - qd_k] of the last iteration; `cost` (...,): without penalties of limits; `converged` (...,);
    `iterations` (...,): taken in all; `status` (...,): "converged", "iterations" (all were taken), "stalled" (no step
    lowers the cost) or "diverged" (the first guess leads to NaN or infinity, and so are its states); `log` (..., n):
    what falls, at first and after each iteration: the cost, in multiple shooting with the penalty of gaps, with limits
    with theirs, both of which may grow between iterations; `violation` (...,): of limits of states, forces and
    clearances in natural units (rad, m, parts of the velocity limit, parts of the weight), 0 without them.
    """

    q: Array
    qd: Array
    tau: Array
    gains: Array
    cost: Array
    converged: Array
    iterations: Array
    status: Any
    log: Array
    violation: Array

    def __repr__(self) -> str:
        words = np.atleast_1d(self.status).ravel().tolist()
        if not words:
            return "<Trajectory: no problems>"
        counts = ", ".join(f"{words.count(word)} {word}" for word in STATUSES if word in words)
        told = words[0] if np.ndim(self.cost) == 0 else counts
        mean = float(np.mean(self.iterations))
        return f"<Trajectory: {told}, {mean:.4g} iterations{'' if np.ndim(self.cost) == 0 else ' in the mean'}>"
