"""Functions of rotations and poses for controllers: exponential, logarithm, errors, and their derivatives.

A pose T (4, 4) is [R p; 0 1]: R has the axes of the posed frame as columns, p is its origin, as `Dynamics.link_pose`
returns them. A twist (6,) is the angular part (rad, or rad/s), then the linear part (m, or m/s).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import Parameter, Signature
from types import MethodType
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.kinematics import Frame
from robodyn.algorithms.poses import TASKS, is_pose, rotation_of
from robodyn.algorithms.tasks import ScalarTask
from robodyn.api.queries.model_functions import Early, FastFunction
from robodyn.core.model import Model
from robodyn.engines.query_table import FRAMES
from robodyn.internals.arguments import Array, broadcast_leading, one_of, real_array, rows_named, within_memory
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.io.builders.random_tree import random_tree

_KIND = {"xi": {3: "rotation", 6: "pose"}, "T": {3: "rotation", 4: "pose"}}
_SHAPES = {"xi": ("3", "6"), "T": ("3, 3", "4, 4")}
_MATRICES = ("T", "T1", "T2")


def exp(xi: ArrayLike) -> Array:
    """The pose (..., 4, 4) that a constant twist xi (..., 6) reaches from the identity in one second.

    A rotation vector (..., 3) in rad gives a rotation (..., 3, 3) instead. `log` is the inverse. The twist is in axes
    of the moving frame. It has the same components in axes of the identity.

    Raises:
        ArgumentError: neither 3 nor 6 numbers in the last axis.
    """
    return cast(Array, _answer(_of_size("exp", "xi", xi), xi))


def log(T: ArrayLike) -> Array:
    """The twist (..., 6) that reaches the pose T (..., 4, 4) from the identity in one second, the short way round.

    A rotation (..., 3, 3) gives its rotation vector (..., 3) instead. The angle is at most pi; at pi the two directions
    are equally long, and one of them is returned. Rotations are made orthonormal by way of their quaternion. NaN and
    infinity stay in their rows.

    Raises:
        ArgumentError: a wrong shape, or a matrix that differs by more than 1e-2 from a pose or a rotation; names the
            rows.
    """
    return cast(Array, _answer(_of_size("log", "T", T), T))


def exp_gradient(xi: ArrayLike) -> Array:
    """J (..., 6, 6) with exp(xi + dxi) = exp(xi) exp(J dxi): the derivative of `exp` as a twist in axes of the result.

    (..., 3, 3) for rotation vectors. This is the right Jacobian of SE(3), or of SO(3) (Sola, Deray and Atchuthan, A
    micro Lie theory for state estimation in robotics, 2018, equations 143 and 179).

    Raises:
        ArgumentError: neither 3 nor 6 numbers in the last axis.
    """
    return cast(Array, _answer(_of_size("exp_gradient", "xi", xi), xi))


def log_gradient(T: ArrayLike) -> Array:
    """J (..., 6, 6) with log(T exp(d)) = log(T) + J d: the derivative of `log` by a twist d in axes of T.

    (..., 3, 3) for rotations. The inverse of `exp_gradient` at `log(T)`.

    Raises:
        ArgumentError: as `log`.
    """
    return cast(Array, _answer(_of_size("log_gradient", "T", T), T))


def pose_error(T1: ArrayLike, T2: ArrayLike, *, frame: Frame = "world_aligned") -> Array:
    """The twist (..., 6) that leads from the pose T1 (..., 4, 4) to T2 (..., 4, 4) in one second.

    A velocity of this twist in the same frame reduces the error: with J = `dyn.jacobian(q, link, frame=frame)` a
    controller moves by J qd = gain * pose_error(dyn.link_pose(q, link), target, frame=frame).

    Args:
        frame: "world_aligned": [log(R2 R1'), p2 - p1], in world axes at the frame's origin, which moves straight.
            "body": log(T1^-1 T2), in axes of T1. "world": log(T2 T1^-1), in world axes at the world's origin.

    Raises:
        ArgumentError: wrong shapes, leading axes that do not broadcast, a matrix that differs by more than 1e-2 from a
            pose, or an unknown frame.
    """
    return cast(Array, _answer(f"pose_error_{one_of('frame', frame, FRAMES)}", T1, T2))


def pose_error_gradient(T1: ArrayLike, T2: ArrayLike, *, frame: Frame = "world_aligned") -> tuple[Array, Array]:
    """Derivatives (..., 6, 6) of `pose_error` by motions of T1 and of T2.

    The motions are twists in the same frame as the error, so that the derivative by q is the first matrix times
    `dyn.jacobian(q, link, frame=frame)` if T1 is a link's pose.

    Raises:
        ArgumentError: as `pose_error`.
    """
    by_T1, by_T2 = _answer(f"pose_error_gradient_{one_of('frame', frame, FRAMES)}", T1, T2)
    return by_T1, by_T2


def _of_size(name: str, argument: str, value: Any) -> str:
    """The name of the function for rotations or for poses, as the last axis of the argument has it."""
    shape = value.shape if type(value) is np.ndarray else real_array(argument, value, (), np.float64).shape
    if not shape or shape[-1] not in _KIND[argument]:
        wanted = " or ".join(f"(..., {axes})" for axes in _SHAPES[argument])
        raise ArgumentError(f"{argument}: got shape {shape}; wanted {wanted}")
    return f"{name}_of_{_KIND[argument][shape[-1]]}"


def _answer(name: str, *arrays: ArrayLike) -> Any:
    return getattr(_FUNCTIONS, name)(*arrays)


class _FastFunction(FastFunction):
    """The fast path of a function of poses."""

    def task(self, calls: Any) -> tuple[ScalarTask, None]:
        """The task of its name."""
        return TASKS[self.name], None


class _Functions:
    """The functions of `TASKS` as attributes. Built-in functions take their places once they are compiled."""

    def __init__(self) -> None:
        for name, task in TASKS.items():
            method = MethodType(_on_arrays(task), self)
            self.__dict__[name] = Early(_FastFunction(self, name, method, tuple(task.given)))

    @cached_property
    def model(self) -> Model:
        """A free body: engines compile functions for a robot."""
        return random_tree(0, seed=0, base="floating")


def _on_arrays(task: ScalarTask) -> Callable[..., Any]:
    """A task as a function of NumPy arrays, which checks them."""
    sizes = {name: tuple(map(int, size.axes)) for name, size in task.given.items()}

    @within_memory
    def function(owner: _Functions, *values: Any) -> Any:
        arrays = {
            name: real_array(name, value, shape, np.float64)
            for (name, shape), value in zip(sizes.items(), values, strict=True)
        }
        leading = broadcast_leading({name: (array, len(sizes[name])) for name, array in arrays.items()})
        entries = {name: [array[..., *at] for at in np.ndindex(sizes[name])] for name, array in arrays.items()}
        with np.errstate(all="ignore"):
            for name, matrix in entries.items():
                if name in _MATRICES:
                    _require_poses(name, matrix)
            results = task.text(owner.model, entries, _no_algorithms)
            answers = []
            for name, size in task.outputs.items():
                shape = tuple(map(int, size.axes))
                out = np.empty((*leading, math.prod(shape)))
                for k, entry in enumerate(results[name]):
                    out[..., k] = entry
                answers.append(out.reshape(*leading, *shape))
        return answers[0] if len(answers) == 1 else tuple(answers)

    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("self", *sizes)]
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return function


def _no_algorithms(algorithm: Any) -> Any:
    """Never called: functions of poses run no algorithm of a robot."""
    raise NotImplementedError


def require_poses(name: str, T: Array) -> None:
    """Raise for matrices (..., 4, 4) that are no poses.

    Raises:
        ArgumentError: names the argument and the rows.
    """
    with np.errstate(all="ignore"):
        _require_poses(name, [T[..., *at] for at in np.ndindex(4, 4)])


def _require_poses(name: str, matrix: list[Any]) -> None:
    """Raise for matrices that are no poses or rotations.

    Raises:
        ArgumentError: names the argument and the rows.
    """
    poses = len(matrix) == 16
    straight = is_pose(rotation_of(matrix), matrix[12:16]) if poses else is_pose(tuple(matrix))
    if (bad := np.asarray(straight == 0.0)).any():
        wanted = "a pose: a rotation, a position, and the last row 0, 0, 0, 1" if poses else "a rotation"
        where = (
            f"others {rows_named(bad, 0)}" if bad.ndim else brief(np.reshape(matrix, (4 if poses else 3, -1)).tolist())
        )
        raise ArgumentError(f"{name}: got {where}; wanted {wanted}, to 1e-2")


_FUNCTIONS = _Functions()
