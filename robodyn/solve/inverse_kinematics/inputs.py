"""What calls of inverse kinematics give: targets, initial configurations and tolerances, as the search needs them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robodyn.api.dynamics import Dynamics
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.core.reach import reach
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, finite_number, real_array, require_finite
from robodyn.internals.array_library import Library
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief
from robodyn.solve.inverse_kinematics.aims import AllTasks
from robodyn.solve.inverse_kinematics.branch import Branch
from robodyn.solve.inverse_kinematics.seeds import further_starts, middle
from robodyn.solve.inverse_kinematics.tasks import PostureTask, Task

TOLERANCES = {"float64": (1e-6, 1e-6), "float32": (1e-4, 1e-4)}
"""Default tolerances in m and rad, by dtype."""
_SLACK = {"float64": 1e-10, "float32": 1e-6}
"""Distance in m or rad from a joint limit below which the joint counts as at the limit, by dtype."""
_LEAST = {"float64": 1e-10, "float32": 2e-6}
"""Smallest damping lambda for rows of size one, by dtype."""
_ROUNDING = {"float64": 1e-5, "float32": 0.05}
"""Factor of the smallest lambda of degrees of freedom, relative to the square of the heaviest row. It keeps J'J +
lambda positive definite despite rounding."""
_FARTHEST = 1e15
"""Upper bound in m of a tolerance. Its square does not overflow in any precision."""


class Inputs:
    """Reads the arguments of calls.

    Args:
        dyn: the robot.
        tasks: all tasks; `listed`: how many of them the user has listed.
        asked: the same tasks, looked up.

    `first`: the initial configuration of calls without one; `tail`: what follows the targets in the input `goals` of
    steps: bounds of tasks, and the posture if it is the same for all calls; `tailed`: whether something follows.
    """

    def __init__(self, dyn: Dynamics, tasks: Sequence[Task], listed: int, asked: AllTasks) -> None:
        self._dyn, self._model, self._tasks, self.listed, self._asked = dyn, dyn.model, tasks, listed, asked
        self.dtype = dyn.dtype
        self._size, self._lightest = _sizes(dyn.model, asked)
        postures = [each.q for each in tasks if isinstance(each, PostureTask)]
        own = [np.array(each) for each in postures if not isinstance(each, str)]
        self.first: Array = (own[0] if own else middle(dyn.model)).astype(self.dtype)
        self.stays = "q0" in postures
        numbers = [np.array([number for each in tasks for number in each.bounds])]
        if asked.posture and not self.stays:
            numbers.append(own[0] if own else middle(dyn.model))
        self.tail: Array = np.concatenate(numbers).astype(self.dtype)
        self.tailed = bool(self.tail.size) or self.stays

    @property
    def size(self) -> float:
        """The largest change of a weighted error per rad or m of joint motion."""
        return self._size

    def with_tail(self, library: Library, goals: Array, first: Array) -> Array:
        """Targets (B, 16 n), and what follows them, from initial configurations (B, nq)."""
        parts = [goals]
        if self.tail.size:
            parts.append(library.xp.broadcast_to(library.like_numpy(self.tail), (len(goals), self.tail.size)))
        if self.stays:
            parts.append(first)
        return parts[0] if len(parts) == 1 else library.xp.concatenate(parts, 1)

    def poses(self, targets: Any) -> Any:
        """Targets with positions alone as poses; others as they are."""
        try:
            shape = tuple(np.shape(targets))
        except Exception:  # a foreign object may raise anything
            return targets  # such as a ragged list, which is refused where it is read
        if not shape or shape[-1] != 3 or any(aim.turn for aim in self._asked.aims):
            return targets
        library = self._dyn._engine_for({"targets": targets})[1]
        places = real_array("targets", targets, (3,), self.dtype, what="positions", read=library.array)
        n = self._asked.targets
        if places.ndim > 1 and places.shape[-2] not in (n, self.listed):
            hint = "; of one task targets[..., None, :]" if n == 1 else ""
            raise ArgumentError(
                f"targets: got shape {places.shape}; wanted (..., {n}, 3), a position for each task{hint}"
            )
        poses = library.xp.zeros((*places.shape[:-1], 4, 4), self.dtype)
        poses[..., :3, 3] = places
        for k in range(4):
            poses[..., k, k] = 1.0
        return poses

    def read(self, library: Library, targets: Any, q0: Any) -> tuple[Array, Array, tuple[int, ...]]:
        """Flattened targets (B, 16 n), initial configurations (B, nq) and the leading axes."""
        n, xp = self._asked.targets, library.xp
        array = real_array("targets", targets, (4, 4), self.dtype, what="poses", read=library.array)
        if array.ndim == 2 and n == 1:
            array = array[None]
        if array.ndim > 2 and n < array.shape[-3] == self.listed:
            targeted = [k for k, task in enumerate(self._tasks) if task.targeted]
            array = array[..., targeted, :, :]
        if array.ndim == 2 or array.shape[-3] != n:
            hint = "; of one task targets[..., None, :, :]" if n == 1 else ""
            raise ArgumentError(
                f"targets: got shape {array.shape}; wanted (..., {n}, 4, 4), a pose for each task with a target{hint}"
            )
        first = library.like_numpy(self.first) if q0 is None else self._configurations(library, "q0", q0)
        try:
            leading = np.broadcast_shapes(array.shape[:-3], first.shape[:-1])
        except ValueError:
            raise ArgumentError(
                f"q0: got shape {first.shape}, targets of shape {array.shape}; wanted leading axes that broadcast"
            ) from None
        batch = prod(leading)
        goals = xp.broadcast_to(array, (*leading, n, 4, 4)).reshape(batch, 16 * n)
        return goals, xp.broadcast_to(first, (*leading, self._model.nq)).reshape(batch, self._model.nq), leading

    def starts(
        self, library: Library, given: Any, leading: tuple[int, ...], seeds: int, rng: Any, branch: Branch | None
    ) -> Array:
        """Initial configurations after the first, (seeds - 1, nq), or (B, seeds - 1, nq) if each target has its own."""
        nq = self._model.nq
        if given is None:
            return self._further(seeds - 1, rng, branch)
        own = self._configurations(library, "starts", given)
        if library.on_device:
            raise UnavailableError("starts: got arrays on a GPU; wanted NumPy arrays")
        if own.ndim < 2:
            raise ArgumentError(f"starts: got shape {own.shape}; wanted (..., k, {nq})")
        if own.shape[-2] >= seeds:
            raise ArgumentError(f"starts: got {own.shape[-2]} for seeds={seeds}; wanted fewer, as q0 is the first seed")
        require_finite("starts", own, 1)
        more = self._further(seeds - 1 - own.shape[-2], rng, branch)
        if own.ndim == 2:
            return np.concatenate((own, more))
        try:
            some = np.broadcast_to(own, (*leading, *own.shape[-2:])).reshape(prod(leading), *own.shape[-2:])
        except ValueError:
            raise ArgumentError(
                f"starts: got shape {own.shape}; wanted leading axes that broadcast to those of the targets, {leading}"
            ) from None
        return np.concatenate((some, np.broadcast_to(more, (len(some), *more.shape))), 1)

    def _further(self, count: int, rng: Any, branch: Branch | None) -> Array:
        found = further_starts(self._model, count, rng)
        return (found if branch is None else branch.moved(found)).astype(self.dtype)

    def _configurations(self, library: Library, name: str, given: Any) -> Array:
        """Configurations (..., nq), from an array or from values of some joints by name."""
        model = self._model
        if not strict_types.is_a(given, dict):
            return real_array(name, given, (model.nq,), self.dtype, what="model.nq numbers", read=library.array)
        if library.on_device:
            raise UnavailableError(f"{name}: got values by joint names, and arrays on a GPU; wanted an array (..., nq)")
        by_joint = []
        for joint, value in given.items():
            number = model.joint_index(joint)
            if int(model.mimics[number]) >= 0:
                raise ArgumentError(f"{name}[{joint!r}]: a joint that mimics another; wanted the other one")
            start = int(model.q_start[number])
            at = model.q_source[start : start + KINDS[model.joint_kind[number]].nq]
            shape = (len(at),) if len(at) != 1 else ()
            entry = real_array(f"{name}[{joint!r}]", value, shape, self.dtype, what="coordinates", read=library.array)
            by_joint.append((at, entry if shape else entry[..., None]))
        try:
            leading = np.broadcast_shapes(*(entry.shape[:-1] for _, entry in by_joint))
        except ValueError:
            raise ArgumentError(f"{name}: got {brief(given)}; wanted leading axes that broadcast") from None
        filled = np.broadcast_to(self.first, (*leading, model.nq)).copy()
        for at, entry in by_joint:
            filled[..., at] = entry
        return filled

    def settings(self, tolerance: Any) -> Array:
        """The settings of `steps_task` that depend on the call and the dtype, with tolerances that are not squared."""
        name = self.dtype.name
        wanted = TOLERANCES[name] if tolerance is None else tolerance
        pair = strict_types.members(wanted) if strict_types.is_a(wanted, tuple, list) else ()
        if len(pair) != 2:
            raise ArgumentError(f"tolerance: got {brief(tolerance)}; wanted two numbers, m and rad")
        distance, angle = (finite_number("tolerance", each) for each in pair)
        if not 0.0 < distance < _FARTHEST or not 0.0 < angle < 0.5 * np.pi:
            raise ArgumentError(
                f"tolerance: got {brief(tolerance)}; wanted a distance above 0 and below {_FARTHEST:g}, and an angle "
                "above 0 and below pi / 2"
            )
        common = max(self._lightest**2, _ROUNDING[name] * self._size**2)
        return np.array([distance, angle, _SLACK[name], _LEAST[name], _LEAST[name] * common])


def _sizes(model: Model, asked: AllTasks) -> tuple[float, float]:
    """Largest and smallest change of a weighted error per rad or m of joint motion, over all rows of the Jacobian."""
    sizes = [1.0, reach(model)] if model.constraints else []
    for aim in asked.aims:
        sizes += [aim.turn, *(aim.turns or ()), *(weight * reach(model, aim.point) for weight in aim.move)]
    return max(sizes), min(each for each in sizes if each)


def rounded_inwards(limits: tuple[Array, Array], dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rounds joint limits to a dtype, each towards the inside of its range."""
    lower, upper = (each.astype(dtype) for each in limits)
    low = np.where(lower < limits[0], np.nextafter(lower, dtype.type(np.inf)), lower)
    high = np.where(upper > limits[1], np.nextafter(upper, dtype.type(-np.inf)), upper)
    return low, high
