"""Converts between rates dq/dt of coordinates and velocities, for arrays of any library.

Automatic differentiation ignores the manifold of q and treats q as nq independent numbers. The functions here convert
rates of these numbers to velocities and back. All but `unit` assume unit quaternions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from robodyn.core.joints import JointKind
from robodyn.core.model import Model
from robodyn.internals.arguments import Array


class _Taken:
    """Function `array -> array[..., index]`, without a copy if the indices are consecutive."""

    def __init__(self, index: Array, constant: Callable[[Array], Any]) -> None:
        flat = index.ravel()
        self._shape, self._size = index.shape, flat.size
        self._start = int(flat[0]) if flat.size and (np.diff(flat) == 1).all() else None
        self._index = constant(index) if self._start is None else None

    def __call__(self, array: Any) -> Any:
        if self._start is None:
            return array[..., self._index]
        return array[..., self._start : self._start + self._size].reshape((*array.shape[:-1], *self._shape))


def _in_order(places: list[Array], constant: Callable[[Array], Any]) -> _Taken:
    """Function that reorders values grouped by joint kind to coordinate order."""
    return _Taken(np.argsort(np.concatenate([np.empty(0, np.intp), *(each.ravel() for each in places)])), constant)


class Coordinates:
    """The coordinates of one robot.

    Args:
        model: the robot.
        xp: namespace of an array library: numpy, jax.numpy or torch.
        constant: converts a NumPy array to the library: integers as they are, other numbers in the working precision.
        fixed: returns an array that differentiation treats as a constant (stop gradient).
    """

    def __init__(
        self,
        model: Model,
        xp: Any = np,
        constant: Callable[[Array], Any] = np.asarray,
        fixed: Callable[[Any], Any] = lambda array: array,
    ) -> None:
        self._xp, self._fixed = xp, fixed
        joints = model.free_joints
        self._kinds = [kind for kind, _, _ in joints]
        self._q_parts = [_Taken(q_index, constant) for _, q_index, _ in joints]
        self._v_parts = [_Taken(v_index, constant) for _, _, v_index in joints]
        q_places, v_places = [q_index for _, q_index, _ in joints], [v_index for _, _, v_index in joints]
        self._q_order, self._v_order = _in_order(q_places, constant), _in_order(v_places, constant)
        self._additive = all(type(kind).velocity is JointKind.velocity for kind in self._kinds)
        places = model.quaternion_starts[:, None] + np.arange(4)
        order, weights = np.arange(model.nq), np.ones(model.nq)
        order[places.ravel()] = model.nq + np.arange(places.size)
        weights[places.ravel()] = 4.0
        self._quaternions = places.size
        self._attitudes, self._unit_order = _Taken(places, constant), _Taken(order, constant)
        self._weights = constant(weights)

    def unit(self, q: Any) -> Any:
        """q (..., nq) with quaternions of any length scaled to unit length; one of zero length becomes NaN."""
        if not self._quaternions:
            return q
        parts = self._attitudes(q)
        # First scale by the magnitude against overflow, as `robodyn.core.joints.unit_quaternion` does.
        step = self._fixed(self._xp.sqrt(self._xp.abs(parts)).sum(-1))[..., None]
        parts = parts / step / step
        parts = parts / self._xp.sqrt((parts * parts).sum(-1))[..., None]
        return self._unit_order(self._xp.concatenate((q, parts.reshape((*q.shape[:-1], self._quaternions))), -1))

    def velocity(self, q: Any, rate: Any) -> Any:
        """The velocity (..., nv) for a rate dq/dt (..., nq) of coordinates q (..., nq)."""
        if self._additive:
            return rate
        q, rate = self._broadcast(q, rate)
        rows = zip(self._kinds, self._q_parts, strict=True)
        return self._v_order(self._joined([kind.velocity(part(q), part(rate), self._xp) for kind, part in rows]))

    def rate(self, q: Any, velocity: Any) -> Any:
        """The rate dq/dt (..., nq) for a velocity (..., nv)."""
        if self._additive:
            return velocity
        q, velocity = self._broadcast(q, velocity)
        rows = zip(self._kinds, self._q_parts, self._v_parts, strict=True)
        rates = [kind.rate(q_part(q), v_part(velocity), self._xp) for kind, q_part, v_part in rows]
        return self._q_order(self._joined(rates))

    def velocity_transposed(self, q: Any, force: Any) -> Any:
        """The gradient (..., nq) of force . velocity(q, rate) with respect to the rate, for force (..., nv)."""
        back = self.rate(q, force)
        return self._weights * back if self._quaternions else back

    def rate_transposed(self, q: Any, weight: Any) -> Any:
        """The gradient (..., nv) of weight . rate(q, velocity) with respect to the velocity, for weight (..., nq)."""
        return self.velocity(q, weight / self._weights if self._quaternions else weight)

    def _broadcast(self, q: Any, change: Any) -> tuple[Any, Any]:
        leading = np.broadcast_shapes(q.shape[:-1], change.shape[:-1])
        one, other = (self._xp.broadcast_to(array, (*leading, array.shape[-1])) for array in (q, change))
        return one, other

    def _joined(self, parts: list[Any]) -> Any:
        """Concatenate arrays (..., joints, n) along a flat last axis."""
        return self._xp.concatenate(
            [part.reshape((*part.shape[:-2], part.shape[-2] * part.shape[-1])) for part in parts], -1
        )
