"""Iterations of one problem that are as quick as possible, for control with a receding horizon."""

from __future__ import annotations

import numpy as np

from robodyn.solve.trajectories.fixed_arrays import FixedArrays
from robodyn.solve.trajectories.iteration_code import DONE, FAILED
from robodyn.solve.trajectories.shooting import CONVERGED, MOST_MU, STALLED, Search

_ONE = np.arange(1)


class WarmSearch:
    """The same iterations as those of a `Search` of one problem, on its arrays.

    Args:
        search: for which `FixedArrays` are possible.
        tolerance: as of `Search.run`.
    """

    def __init__(self, search: Search, tolerance: float) -> None:
        self._search = search
        plan = search.q, search.qd, search.u
        self._arrays = FixedArrays(search.problem, _ONE, plan, search.gains, search.cost, search.mu, tolerance)

    @staticmethod
    def of(search: Search, tolerance: float) -> WarmSearch | None:
        """For a search, if it is possible."""
        return WarmSearch(search, tolerance) if FixedArrays.possible(search.problem) else None

    def read_goals(self) -> None:
        """Read goals again."""
        self._arrays.read_goals(_ONE)

    def read_phases(self) -> None:
        """Read phases again."""
        self._arrays.read_phases(_ONE)

    def follow(self) -> bool:
        """Follow the plan from the problem's state with its feedback. False, without any change, if that is not
        finite."""
        problem, (q, qd) = self._search.problem, self._arrays.start
        q[0], qd[0] = problem.q0[0], problem.qd0[0]
        self._arrays.follow(1)
        return self._arrays.outcome.item() != FAILED

    def iterate(self) -> None:
        """One iteration."""
        search = self._search
        self._arrays.iterate(1)
        if self._arrays.outcome.item() == DONE:
            search.status[0] = CONVERGED
            return
        search.iterations += 1
        if search.mu.item() > MOST_MU:
            search.status[0] = STALLED
