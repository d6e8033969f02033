"""What became of quadratic programmes: the part that reports of solvers share."""

from __future__ import annotations

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.solve.quadratic.code import SOLVED


class ProgrammeReport:
    """What became of each state, in arrays with the leading axes of the states.

    Args:
        ends: (..., 2) outcomes and steps.
    """

    __slots__ = ("_ends",)

    def __init__(self, ends: Array) -> None:
        self._ends = ends

    @property
    def feasible(self) -> Array:
        """True where there is an answer."""
        return np.asarray(self._ends[..., 0] == SOLVED)

    @property
    def outcome(self) -> Array:
        """What became of each state."""
        return self._ends[..., 0]

    @property
    def iterations(self) -> Array:
        """Steps of the solver."""
        return self._ends[..., 1]

    def __repr__(self) -> str:
        total, done = self.feasible.size, int(self.feasible.sum())
        return f"<{type(self).__name__}: {done} of {total} feasible>"
