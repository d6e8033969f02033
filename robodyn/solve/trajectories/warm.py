"""Iterations of one problem that are as quick as possible, for control with a receding horizon."""

from __future__ import annotations

import math

import numpy as np

from robodyn.solve.trajectories.fixed_arrays import FixedArrays, copied
from robodyn.solve.trajectories.shooting import ARMIJO, CONVERGED, LEAST_MU, Search

_ONE = np.arange(1)


class WarmSearch:
    """The same iterations as those of a `Search` of one problem, on its arrays.

    Args:
        search: for which `FixedArrays` are possible.
    """

    def __init__(self, search: Search) -> None:
        self._search = search
        plan = search.q, search.qd, search.u
        self._arrays = FixedArrays(search.problem, _ONE, plan, search.gains, search.mu)

    @staticmethod
    def of(search: Search) -> WarmSearch | None:
        """For a search, if it is possible."""
        return WarmSearch(search) if FixedArrays.possible(search.problem, 1) else None

    def renew(self) -> None:
        """Read goals, weights and phases again."""
        self._arrays.read(_ONE)

    def follow(self) -> bool:
        """Follow the plan from the problem's state with its feedback. False, without any change, if that is not
        finite."""
        cost = self._rolled(with_step=False)
        if math.isfinite(cost):
            self._accept(cost)
        return math.isfinite(cost)

    def iterate(self, tolerance: float) -> None:
        """One iteration."""
        search, arrays = self._search, self._arrays
        arrays.solve(1)
        if not arrays.ok[0]:
            search.iterations += 1
            search.stiffen(_ONE)
            return
        np.copyto(search.gains, arrays.K)
        linear, quadratic = arrays.expected[0].tolist()
        before = search.cost.item()
        if abs(linear + quadratic) <= tolerance * abs(before) and search.mu.item() <= LEAST_MU:
            search.status[0] = CONVERGED
            return
        search.iterations += 1
        cost = self._rolled(with_step=True)
        if cost - before <= min(ARMIJO * (linear + quadratic), 0.0):  # not for NaN
            self._accept(cost)
            if search.mu.item() > 0.0:
                search.relax(_ONE)
            return
        number = search.shorter(_ONE, arrays.k, arrays.K, arrays.expected).item()
        if number < 0:
            search.stiffen(_ONE)
        elif number == 0:
            search.relax(_ONE)

    def _rolled(self, *, with_step: bool) -> float:
        problem, (q, qd, _) = self._search.problem, self._arrays.trial
        q[0, 0], qd[0, 0] = problem.q0[0], problem.qd0[0]
        return float(self._arrays.roll_out(1, with_step)[0])

    def _accept(self, cost: float) -> None:
        copied(self._arrays.plan, self._arrays.trial)
        self._search.cost[0] = cost
