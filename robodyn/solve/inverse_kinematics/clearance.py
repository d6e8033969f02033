"""How far the links of candidate solutions are from each other and from obstacles."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.api.queries.obstacles import Obstacles
from robodyn.core.reach import reach
from robodyn.internals.arguments import Array, finite_number
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief

_MARGIN = 1e-3
"""Steps that move links apart aim at the clearance plus this times the size of the robot."""


class Clearance:
    """The least distance that solutions keep.

    Args:
        dyn: the robot.
        least: the distance, m; solutions keep more than that.
        obstacles: obstacles, or None for the robot alone.
        leading: leading axes of the targets.
        rows: which of the targets, as if they had one axis, are asked about; None: all.
    """

    def __init__(
        self,
        dyn: Dynamics,
        least: float,
        obstacles: Obstacles | None,
        leading: tuple[int, ...] = (),
        rows: Array | None = None,
    ) -> None:
        self.least, self._dyn, self._leading, self._rows = least, dyn, leading, rows
        self._obstacles = obstacles
        self._wanted = least + _MARGIN * reach(dyn.model)

    def of(self, rows: Array) -> Clearance:
        """The same for some of the targets."""
        return Clearance(self._dyn, self.least, self._obstacles, self._leading, rows)

    def distances(self, q: Array, rows: Array) -> Array:
        """Least distances (k,) at configurations (k, nq) for targets with the numbers `rows`."""
        return self._dyn.min_distance(q, self._obstacles_of(rows))

    def holds(self, q: Array, rows: Array) -> Array:
        """True (k,) where links are far enough from each other."""
        return self.distances(q, rows) > self.least

    def lacks(self, q: Array, rows: Array) -> tuple[Array, Array]:
        """By how much least distances are too small (k,), with a margin, and their gradients (k, nv)."""
        obstacles = self._obstacles_of(rows)
        least = self._dyn.min_distance(q, obstacles)
        lack = np.maximum(self._wanted - least, 0.0).astype(q.dtype)
        away = self._dyn.min_distance_gradient(q, obstacles)
        return lack, np.where((lack > 0.0)[:, None], away, 0.0)  # else the row would hold the distance where it is

    def _obstacles_of(self, rows: Array) -> Obstacles | None:
        if self._obstacles is None or not self._obstacles.leading:
            return self._obstacles
        return self._obstacles.repeated(self._leading, rows if self._rows is None else self._rows[rows])


def read_clearance(dyn: Dynamics, clearance: Any, obstacles: Any) -> tuple[float | None, Obstacles | None]:
    """The clearance and obstacles that a user gives; None and None if neither is given.

    Raises:
        ArgumentError: no number, no obstacles, or a model without shapes.
        UnavailableError: an engine on a GPU.
    """
    if obstacles is not None and not isinstance(obstacles, Obstacles):
        raise ArgumentError(f"obstacles: got {brief(obstacles)}; wanted robodyn.Obstacles or None")
    if clearance is None and obstacles is None:
        return None, None
    least = 0.0 if clearance is None else finite_number("clearance", clearance)
    model = dyn.model
    if not model.collision_geometries:
        raise ArgumentError(f"clearance: model {model.name!r} has no shapes; wanted one with them: Model.with_shapes")
    if obstacles is None and not model.n_pairs:
        raise ArgumentError(f"clearance: model {model.name!r} has no pairs of shapes; wanted some, or obstacles")
    if dyn.engine.name == "gpu":
        raise UnavailableError("clearance, obstacles: got engine 'gpu'; allowed: 'cpu', 'reference'")
    return least, obstacles
