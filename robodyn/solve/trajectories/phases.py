"""Which constraints hold at each step of a trajectory, and where."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.core.constraints.kinds import Point
from robodyn.core.constraints.resolved import anchored_by_calls, resolved_constraints
from robodyn.internals.arguments import Array, real_array, require_finite
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import quoted


class Phases:
    """`active` and `targets` of steps, as arguments of queries, and joint forces from controls.

    Args:
        dyn: the robot.
        active: (..., steps, n_constraints) flags that broadcast, or None for all.
        targets: (..., steps, n_constraints, 12) that broadcast, or None. Constraints without a place in the world then
            hold their links where q0 has them, points along the world's axes.
        q0: (B, nq).
        actuated: (nu,) velocities.
        steps, leading: of the problems.

    Raises:
        ArgumentError: arrays for a robot without constraints, or shapes that do not fit.
        UnavailableError: arrays for a robot with contacts, whose constraints hold at all times.
    """

    def __init__(
        self,
        dyn: Dynamics,
        active: Any,
        targets: Any,
        q0: Array,
        actuated: Array,
        steps: int,
        leading: tuple[int, ...],
    ) -> None:
        model = dyn.model
        self._actuated, self._nv, n = actuated, model.nv, model.n_constraints
        self._given: dict[str, Array] = {}
        for name, value, own in (("active", active, (n,)), ("targets", targets, (n, 12))):
            if value is None:
                continue
            if model.contacts is not None:
                raise UnavailableError(
                    f"{name}: got some for {quoted(model.name)}, which has contacts; wanted None: shapes touch or not, "
                    "and constraints hold at all times"
                )
            if not n:
                raise ArgumentError(f"{name}: {quoted(model.name)} has no constraints; wanted None")
            array = real_array(name, value, own, np.float64, flags=name == "active")
            require_finite(name, array, len(own))
            self._given[name] = _of_steps(name, array, own, steps, leading)
        if targets is None and model.contacts is None and anchored_by_calls(model.constraints):
            self._given["targets"] = places(dyn, q0)[:, None]

    def tau(self, u: Array) -> Array:
        """Joint forces (..., nv) of controls (..., nu)."""
        tau = np.zeros((*u.shape[:-1], self._nv))
        tau[..., self._actuated] = u
        return tau

    def of(self, rows: Array, step: int | None = None) -> dict[str, Any]:
        """Arguments for rows at all steps (R or 1, N or 1, ...), or at one (R or 1, ...)."""
        found: dict[str, Any] = {}
        for name, array in self._given.items():
            chosen = array if len(array) == 1 else array[rows]
            found[name] = chosen if step is None else chosen[:, step if chosen.shape[1] > 1 else 0]
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """Of the arguments."""
        return tuple(self._given)

    def put(self, name: str, of_steps: Array) -> None:
        """Other `active` or `targets` (B or 1, N or 1, ...)."""
        self._given[name] = of_steps


def places(dyn: Dynamics, q0: Array) -> Array:
    """Targets (B, n_constraints, 12) where q0 has the links; those of points have the world's axes."""
    targets = np.array(dyn.constraint_targets(q0), np.float64)
    for each in resolved_constraints(dyn.model):
        if each.kind is Point and each.anchored:
            targets[..., each.number, :9] = np.eye(3).ravel()
    return targets


def _of_steps(name: str, array: Array, own: tuple[int, ...], steps: int, leading: tuple[int, ...]) -> Array:
    """(B or 1, N or 1, *own)."""
    axes = array.ndim - len(own)
    try:
        full = np.broadcast_to(array, (*leading, steps, *own))
    except ValueError:
        wanted = f"wanted {own}, or with axes in front that broadcast to {(*leading, steps)}"
        raise ArgumentError(f"{name}: got shape {array.shape}; {wanted}") from None
    if axes == 0:
        return array[None, None]
    if axes == 1:
        return np.ascontiguousarray(np.broadcast_to(array, (steps, *own))[None])
    return np.ascontiguousarray(full.reshape(-1, steps, *own))
