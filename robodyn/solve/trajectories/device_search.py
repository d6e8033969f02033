"""Single shooting of many problems on a GPU: roll-outs, derivatives, costs and backward passes by kernels.

The host sees costs, predicted changes and masks alone, and decides as for the CPU engine (`shooting.py`). Problems that
are done rest; when half of them do, arrays are copied to smaller ones.
"""

from __future__ import annotations

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.solve.trajectories.device_kernels import DeviceArrays, DeviceKernels, bytes_of_problem
from robodyn.solve.trajectories.problem import Problem
from robodyn.solve.trajectories.shooting import (
    CONVERGED,
    DIVERGED,
    LEAST_MU,
    RUNNING,
    SIZES,
    Search,
    falls_enough,
)

_ROOM = 2
"""Arrays of the problems that are solved together take 1 / _ROOM of the free device memory."""


def require_device_search(problem: Problem, shooting: bool, curvature: bool) -> None:
    """Refuse what has no kernels.

    Raises:
        UnavailableError: contacts, multiple shooting, second derivatives, or limits other than those of effort.
    """
    model = problem.dyn.model
    refused = {
        f"contacts of {model.name!r}": model.contacts is not None,
        "q_guess": shooting,
        "method 'ddp'": curvature,
        "limits 'position' and 'velocity', Clearance and Friction": bool(problem.limits),
    }
    for what, found in refused.items():
        if found:
            raise UnavailableError(
                f"optimize_trajectory: engine 'gpu' has no kernels for {what}; allowed: 'cpu', 'reference'"
            )


class DeviceSearch(Search):
    """A search whose trajectories are on a GPU while it runs.

    Args:
        problem: of an engine "gpu".
        u: first controls (B, N, nu).
        backward: "auto", "recursion" or "scan".
    """

    def __init__(self, problem: Problem, u: Array, backward: str) -> None:
        n, count = problem.steps, problem.count
        self._kernels = DeviceKernels(problem, backward)
        q, qd = np.empty((count, n + 1, problem.q0.shape[1])), np.empty((count, n + 1, problem.nv))
        super().__init__(problem, q, qd, u)

    @property
    def at_once(self) -> int:
        """Problems whose arrays fit in memory."""
        free = int(self._kernels.engine.device.free_bytes())
        return max(1, free // (_ROOM * bytes_of_problem(self.problem)))

    def run(self, rows: Array, iterations: int, tolerance: float) -> None:
        """At most so many iterations of the given problems."""
        with self._kernels.engine.device.selected():
            arrays = DeviceArrays(self._kernels, self.problem, rows, self.u[rows])
            self.cost[rows] = arrays.roll_out(0.0)
            arrays.accept(np.ones(len(rows), bool))
            self.mu[rows], self.status[rows] = 0.0, np.where(np.isfinite(self.cost[rows]), RUNNING, DIVERGED)
            self.cost[rows[self.status[rows] == DIVERGED]] = np.inf
            self.logged(rows, self.cost[rows])
            for _ in range(iterations):
                going = self.status[arrays.rows] == RUNNING
                if 2 * going.sum() < len(going):
                    self._save(arrays, ~going)
                    if not going.any():
                        return
                    arrays = arrays.part(np.flatnonzero(going))
                running = arrays.rows[self.status[arrays.rows] == RUNNING]
                self._iterate_there(arrays, tolerance)
                self.logged(running, self.cost[running])
                self.tick(int((self.status != RUNNING).sum()))
            self._save(arrays, np.ones(len(arrays.rows), bool))

    def _save(self, arrays: DeviceArrays, chosen: Array) -> None:
        """Copy the results of some problems to the host."""
        rows = arrays.rows[chosen]
        for to, each in ((self.q, arrays.q), (self.qd, arrays.qd), (self.u, arrays.u), (self.gains, arrays.gains)):
            to[rows] = arrays.to_host(each).swapaxes(0, 1)[chosen]

    def _iterate_there(self, arrays: DeviceArrays, tolerance: float) -> None:
        """One iteration of those that run."""
        rows, running = arrays.rows, self.status[arrays.rows] == RUNNING
        arrays.mu = self.mu[rows]
        expected = arrays.solve()
        ok = np.isfinite(expected).all(axis=1) & running
        before = self.cost[rows]
        with np.errstate(invalid="ignore"):
            change = expected.sum(axis=1)
            done = ok & (np.abs(change) <= tolerance * np.abs(before)) & (self.mu[rows] <= LEAST_MU)
        arrays.keep_gains(ok)
        self.status[rows[done]] = CONVERGED
        self.iterations[rows[running & ~done]] += 1
        trying = ok & ~done
        taken = np.zeros(len(rows), bool)
        if trying.any():
            cost = arrays.roll_out(1.0)
            with np.errstate(invalid="ignore"):
                taken = trying & falls_enough(cost - before, change)
            arrays.accept(taken)
            self.cost[rows[taken]] = cost[taken]
            self.relax(rows[taken])
        left = np.flatnonzero(trying & ~taken)
        short = self._shorter_there(arrays, left, expected[left]) if left.size else np.zeros(0, np.int64)
        self.relax(rows[left[short == 0]])
        failed = running & ~ok
        failed[left[short < 0]] = True
        self.stiffen(rows[failed])

    def _shorter_there(self, arrays: DeviceArrays, left: Array, expected: Array) -> Array:
        """Take the best step of `SIZES` that lowers the cost enough, of the problems at some places; its number, -1 for
        none."""
        part, xp = arrays.part(left), arrays.kernels.xp
        before = self.cost[part.rows]
        least, number = np.full(len(left), np.inf), np.full(len(left), -1)
        best = part.trial
        for k, size in enumerate(SIZES):
            cost = part.roll_out(size)
            with np.errstate(invalid="ignore"):
                good = falls_enough(cost - before, size * expected[:, 0] + size**2 * expected[:, 1]) & (cost < least)
            mask = xp.asarray(good)[None, :, None]
            best = tuple(xp.where(mask, new, old) for new, old in zip(part.trial, best, strict=True))
            least[good], number[good] = cost[good], k
        at = xp.asarray(left)
        for whole, each in zip((arrays.q, arrays.qd, arrays.u), best, strict=True):
            whole[:, at] = each
        found = number >= 0
        self.cost[part.rows[found]] = least[found]
        return number
