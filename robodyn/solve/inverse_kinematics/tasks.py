"""Tasks of inverse kinematics: the classes that users make, and `Aim`, a task whose links are looked up in a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import as_array, finite_number, integer, real_array, require_finite
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass

Numbers = tuple[float, ...]
_HEAVIEST = 1e12
"""Largest weight. Its square, times the square of an error, does not overflow in single precision."""


@dataclass(frozen=True)
class Task:
    """A goal for a configuration. `weight` scales its errors relative to those of other tasks."""

    targeted: ClassVar[bool] = True
    """True if the task has a target pose."""


@dataclass(frozen=True, init=False)
class PoseTask(Task):
    """A link's frame coincides with the target frame.

    Args:
        link: name or index of the link, or frame.
        weight: weight of the errors, which are in rad and m: one number, two for (rotation, position), or six for
            (rotation about x, y, z, position along x, y, z) of the world's axes. 0 leaves them free.
        point: (3,) m in the link's axes: the point of the link that moves to the target's origin, instead of the link's
            own origin.
    """

    link: str | int
    weight: Numbers
    point: Numbers

    def __init__(self, link: str | int, weight: Any = 1.0, point: Any = (0.0, 0.0, 0.0)) -> None:
        _set(self, link=_named("PoseTask", "link", link), weight=_weights("PoseTask", weight, 2, 6))
        _set(self, point=_vector("PoseTask", "point", point))


@dataclass(frozen=True, init=False)
class PositionTask(Task):
    """A point of a link is at the target's origin. The target's rotation is ignored.

    Args:
        link, point: as in `PoseTask`.
        weight: a number, or (3,) along the world's axes. 0 leaves an axis free.
    """

    link: str | int
    weight: tuple[float, float, float]
    point: Numbers

    def __init__(self, link: str | int, weight: Any = 1.0, point: Any = (0.0, 0.0, 0.0)) -> None:
        _set(self, link=_named("PositionTask", "link", link), weight=_weights("PositionTask", weight, 3))
        _set(self, point=_vector("PositionTask", "point", point))


@dataclass(frozen=True, init=False)
class DirectionTask(Task):
    """An axis of a link is parallel to the same axis of the target. Position and rotation about the axis are free.

    Args:
        link: as in `PoseTask`.
        axis: (3,) in the link's axes, of any length but zero.
        weight: a number greater than 0.
    """

    link: str | int
    axis: Numbers
    weight: float

    def __init__(self, link: str | int, axis: Any = (0.0, 0.0, 1.0), weight: Any = 1.0) -> None:
        along = np.array(_vector("DirectionTask", "axis", axis))
        largest = float(np.abs(along).max())
        if largest == 0.0:
            raise ArgumentError(f"DirectionTask.axis: got {brief(axis)}; wanted three numbers that are not all 0")
        along = along / largest
        _set(self, link=_named("DirectionTask", "link", link), axis=tuple((along / np.linalg.norm(along)).tolist()))
        _set(self, weight=_weights("DirectionTask", weight, 1)[0])


@dataclass(frozen=True, init=False)
class RelativePoseTask(Task):
    """A link's pose relative to another link is the target pose, which is in the other link's frame.

    Args:
        link, weight, point: as in `PoseTask`; axes are those of the other link.
        to: name or index of the other link.
    """

    link: str | int
    to: str | int
    weight: Numbers
    point: Numbers

    def __init__(self, link: str | int, to: str | int, weight: Any = 1.0, point: Any = (0.0, 0.0, 0.0)) -> None:
        _set(self, link=_named("RelativePoseTask", "link", link), to=_named("RelativePoseTask", "to", to))
        _set(self, weight=_weights("RelativePoseTask", weight, 2, 6), point=_vector("RelativePoseTask", "point", point))


@dataclass(frozen=True, init=False)
class CoMTask(Task):
    """The centre of mass is at the target's origin. The target's rotation is ignored.

    Args:
        weight: a number, or (3,) along the world's axes: (1, 1, 0) leaves the height free.
    """

    weight: tuple[float, float, float]

    def __init__(self, weight: Any = 1.0) -> None:
        _set(self, weight=_weights("CoMTask", weight, 3))


@dataclass(frozen=True, init=False)
class PostureTask(Task):
    """A preferred configuration, approached in the null space of all other tasks. Convergence does not depend on it.

    Args:
        q: (nq,), the configuration.
        weight: a number from 0 to 1, or one for each degree of freedom (nv,): the share of the remaining difference
            that a step covers.
    """

    q: Numbers
    weight: Numbers

    targeted: ClassVar[bool] = False

    def __init__(self, q: Any, weight: Any = 1.0) -> None:
        configuration = real_array("PostureTask.q", q, (), np.float64)
        if configuration.ndim != 1:
            raise ArgumentError(f"PostureTask.q: got shape {configuration.shape}; wanted one configuration (nq,)")
        require_finite("PostureTask.q", configuration, 1)
        weights = np.atleast_1d(real_array("PostureTask.weight", weight, (), np.float64))
        if weights.ndim != 1 or not ((weights >= 0.0) & (weights <= 1.0)).all():
            raise ArgumentError(f"PostureTask.weight: got {brief(weight)}; wanted numbers from 0 to 1")
        _set(self, q=tuple(configuration.tolist()), weight=tuple(weights.tolist()))


KINDS = (PoseTask, PositionTask, DirectionTask, RelativePoseTask, CoMTask, PostureTask)
"""All kinds of tasks."""


@dataclass(frozen=True)
class Aim:
    """A task with a target, in the form that the generated code needs.

    `link`: index of the link, -1 for the centre of mass; `to`: index of the link whose frame the target is in, -1 for
    the world; `turn`: weight of the rotation, the largest if there are several; `move`: weights along the axes of the
    world, or of `to`; `axis`: axis of a `DirectionTask`, in the link's axes; `turns`: weights of the rotation about
    these axes, None if they are the same.
    """

    link: int
    to: int = -1
    point: Numbers = (0.0, 0.0, 0.0)
    turn: float = 0.0
    move: tuple[float, float, float] = (0.0, 0.0, 0.0)
    axis: Numbers | None = None
    turns: Numbers | None = None


@dataclass(frozen=True)
class AllTasks:
    """All tasks of a problem: `aims` in the order of the tasks; posture `weights` (nv,), or None without a posture."""

    aims: tuple[Aim, ...]
    weights: Numbers | None = None


def task_list(tasks: Any) -> tuple[Task, ...]:
    """Reads one task or several. A link's name or index becomes a `PoseTask`.

    Raises:
        ArgumentError: an entry is neither a task nor a link; the message names its position.
    """
    entries = strict_types.members(tasks) if strict_types.is_a(tasks, list, tuple) else (tasks,)
    result = []
    for k, each in enumerate(entries):
        if not strict_types.is_a(each, *KINDS):
            if strict_types.text_or_none(each) is None and integer(each) is None:
                raise ArgumentError(f"tasks[{k}]: got {brief(each)}; wanted a task such as PoseTask, or a link")
            each = PoseTask(each)
        result.append(each)
    return tuple(result)


def asked_for(model: Model, tasks: Sequence[Task]) -> AllTasks:
    """Looks up the links of tasks in a model.

    Raises:
        ArgumentError: a link that the model lacks, a task that the model cannot do, or several postures. The message
            names the task's position.
    """
    aims, weights = [], None
    for k, each in enumerate(tasks):
        try:
            if isinstance(each, PostureTask):
                if weights is not None:
                    raise ArgumentError("a second posture; wanted one PostureTask, or posture=")
                weights = _posture_weights(model, each)
            else:
                aims.append(_aim(model, each))
        except ArgumentError as error:
            raise ArgumentError(f"tasks[{k}]: {error}") from None
    return AllTasks(tuple(aims), weights)


def _posture_weights(model: Model, task: PostureTask) -> Numbers:
    if len(task.q) != model.nq:
        raise ArgumentError(f"PostureTask.q: got {len(task.q)} numbers; wanted model.nq = {model.nq}")
    try:
        model.normalize(np.array(task.q))
    except ArgumentError as error:
        raise ArgumentError(f"PostureTask.{error}") from None
    if len(task.weight) not in (1, model.nv):
        raise ArgumentError(f"PostureTask.weight: got {len(task.weight)} numbers; wanted one, or model.nv = {model.nv}")
    return task.weight * model.nv if len(task.weight) == 1 else task.weight


def _aim(model: Model, task: Task) -> Aim:
    if isinstance(task, CoMTask):
        if not model.total_mass > 0.0:
            raise ArgumentError(f"CoMTask: {model.name!r} has no mass, and so no centre of mass")
        return Aim(-1, move=task.weight)
    assert isinstance(task, PoseTask | PositionTask | DirectionTask | RelativePoseTask)
    link = model.link_index(task.link)
    if isinstance(task, DirectionTask):
        return Aim(link, turn=task.weight, axis=task.axis)
    if isinstance(task, PositionTask):
        return Aim(link, point=task.point, move=task.weight)
    *turns, x, y, z = task.weight if len(task.weight) == 6 else np.repeat(task.weight, 3).tolist()
    parts: dict[str, Any] = {"turn": max(turns), "move": (x, y, z)}
    if min(turns) < max(turns):
        parts["turns"] = tuple(turns)
    if isinstance(task, PoseTask):
        return Aim(link, point=task.point, **parts)
    to = model.link_index(task.to)
    if model.link_body[link] == model.link_body[to]:
        raise ArgumentError("RelativePoseTask: both links are on one body; wanted links that move apart")
    return Aim(link, to, task.point, **parts)


def _set(task: Task, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(task, name, value)


def _named(kind: str, field: str, link: Any) -> str | int:
    """Checks that a link is a name or an index. The model looks it up later."""
    name = strict_types.text_or_none(link)
    if name is not None:
        return name
    number = integer(link)
    if number is None:
        raise ArgumentError(f"{kind}.{field}: got {brief(link)}; wanted a link's name or index")
    return number


def _vector(kind: str, field: str, value: Any) -> Numbers:
    array = real_array(f"{kind}.{field}", value, (3,), np.float64)
    if array.ndim != 1:
        raise ArgumentError(f"{kind}.{field}: got shape {array.shape}; wanted (3,)")
    require_finite(f"{kind}.{field}", array, 1)
    return tuple(array.tolist())


def _weights(kind: str, value: Any, count: int, *counts: int) -> Any:
    """`count` finite numbers, or as many as another of the `counts`, none negative and not all 0. One number is
    repeated `count` times."""
    name = f"{kind}.weight"
    numbers = strict_types.members(value) if strict_types.is_a(value, list, tuple) else None
    several = "" if count == 1 else "".join(f", or {each} of them" for each in (count, *counts))
    if numbers is None and strict_types.is_a(value, np.ndarray):
        array = as_array(name, value, f"wanted a number from 0{several}")
        numbers = tuple(array.tolist()) if array.ndim == 1 else None
    if numbers is not None and len(numbers) not in (count, *counts):
        raise ArgumentError(f"{name}: got {brief(value)}; wanted a number from 0{several}")
    weights = tuple(finite_number(name, each) for each in (numbers if numbers is not None else (value,) * count))
    if min(weights) < 0.0 or max(weights) == 0.0:
        raise ArgumentError(f"{name}: got {brief(value)}; wanted numbers from 0, of which one is greater")
    if max(weights) > _HEAVIEST or min(each for each in weights if each) < 1.0 / _HEAVIEST:
        raise ArgumentError(f"{name}: got {brief(value)}; wanted 0, or numbers from {1 / _HEAVIEST:g} to {_HEAVIEST:g}")
    return weights
