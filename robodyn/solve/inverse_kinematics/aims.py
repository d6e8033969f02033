"""Tasks whose links are looked up in a model, in the form that the generated code needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from robodyn.algorithms.joint_limits import dof_of_coordinates
from robodyn.algorithms.relative_motion import between
from robodyn.core.model import Model
from robodyn.internals.errors import ArgumentError
from robodyn.internals.records import dataclass
from robodyn.solve.inverse_kinematics.limits import bounds
from robodyn.solve.inverse_kinematics.task_arguments import Numbers
from robodyn.solve.inverse_kinematics.tasks import (
    AXES,
    CoMTask,
    DirectionTask,
    DistanceTask,
    GazeTask,
    ManipulabilityTask,
    PoseTask,
    PositionTask,
    PostureTask,
    RelativePoseTask,
    Task,
)

MEASURES = 3
"""Numbers that measure the error of an aim: squared distance, squared sine of the angle, and cosine of the angle."""


@dataclass(frozen=True)
class Aim:
    """A task with an error, in the form that the generated code needs.

    `link`: index of the link, -1 for the centre of mass; `to`: index of the link whose frame the target is in, -1 for
    the world; `turn`: weight of the rotation, the largest if there are several; `move`: weights along the axes of the
    world, or of `to`; `axis`: axis of a `DirectionTask`, in the link's axes; `turns`: weights of the rotation about
    these axes, None if they are the same; `level`: 0 for the highest priority of all tasks, 1 for the next; `bounds`:
    how many numbers bound it; `kind`: "gaze" or "distance" for these tasks; `to_point`: on the link `to`; `targeted`:
    True if it has a target.
    """

    link: int
    to: int = -1
    point: Numbers = (0.0, 0.0, 0.0)
    turn: float = 0.0
    move: tuple[float, float, float] = (0.0, 0.0, 0.0)
    axis: Numbers | None = None
    turns: Numbers | None = None
    level: int = 0
    bounds: int = 0
    kind: str = ""
    to_point: Numbers = (0.0, 0.0, 0.0)
    targeted: bool = True


@dataclass(frozen=True)
class AllTasks:
    """All tasks of a problem, but for numbers that are inputs.

    `aims` in the order of the tasks; posture `weights` (nv,), or None without a posture; `dexterous`: link, weight and
    axes of each manipulability; `posture`: number of its coordinates.
    """

    aims: tuple[Aim, ...]
    weights: Numbers | None = None
    dexterous: tuple[tuple[int, float, str], ...] = ()
    posture: int = 0

    @property
    def targets(self) -> int:
        """Number of aims with a target."""
        return sum(aim.targeted for aim in self.aims)

    @property
    def bounds(self) -> int:
        """How many numbers bound all aims."""
        return sum(aim.bounds for aim in self.aims)

    @property
    def levels(self) -> int:
        """Number of different priorities."""
        return 1 + max((aim.level for aim in self.aims), default=0)

    @property
    def highest(self) -> list[int]:
        """Where the measures of aims with the highest priority begin."""
        return [MEASURES * k for k, aim in enumerate(self.aims) if not aim.level]

    @property
    def secondary(self) -> bool:
        """Whether something acts in the null space of the tasks with the highest priority."""
        return self.levels > 1 or self.weights is not None or bool(self.dexterous)


def asked_for(model: Model, tasks: Sequence[Task]) -> AllTasks:
    """Looks up the links of tasks in a model.

    Raises:
        ArgumentError: a link that the model lacks, a task that the model cannot do, or several postures. The message
            names the task's position.
    """
    aims, weights, dexterous, priorities = [], None, [], []
    for k, each in enumerate(tasks):
        try:
            if isinstance(each, PostureTask):
                if weights is not None:
                    raise ArgumentError("a second posture; wanted one PostureTask, or posture=")
                weights = posture_weights(model, each)
            elif isinstance(each, ManipulabilityTask):
                dexterous.append(_dexterous(model, each))
            else:
                aims.append(_aim(model, each))
                priorities.append(each.priority)  # type: ignore[attr-defined]
        except ArgumentError as error:
            raise ArgumentError(f"tasks[{k}]: {error}") from None
    # Constraints of the model have the highest priority, also where no task has it.
    levels = sorted({1, *priorities} if model.constraints else set(priorities))
    aims = [replace(aim, level=levels.index(priority)) for aim, priority in zip(aims, priorities, strict=True)]
    return AllTasks(tuple(aims), weights, tuple(dexterous), 0 if weights is None else model.nq)


def _dexterous(model: Model, task: ManipulabilityTask) -> tuple[int, float, str]:
    link = model.link_index(task.link)
    moving, rows = sum(between(model, link, -1)), len(AXES[task.axes])
    if moving < rows:
        raise ArgumentError(
            f"ManipulabilityTask: {moving} degrees of freedom move {task.link!r}, and all its configurations are "
            f"singular for axes={task.axes!r}; wanted at least {rows}, or other axes"
        )
    return link, task.weight, task.axes


def posture_weights(model: Model, task: PostureTask) -> Numbers:
    """(nv,) weights. Joints without two limits have no middle."""
    if len(task.weight) not in (1, model.nv):
        raise ArgumentError(f"PostureTask.weight: got {len(task.weight)} numbers; wanted one, or model.nv = {model.nv}")
    weights = task.weight * model.nv if len(task.weight) == 1 else task.weight
    if task.q == "middle":
        ranged = np.zeros(model.nv, bool)
        lower, upper = bounds(model)
        ranged[dof_of_coordinates(model)[np.isfinite(lower) & np.isfinite(upper)]] = True
        return tuple(np.where(ranged, weights, 0.0).tolist())
    if isinstance(task.q, str):
        return weights
    if len(task.q) != model.nq:
        raise ArgumentError(f"PostureTask.q: got {len(task.q)} numbers; wanted model.nq = {model.nq}")
    try:
        model.normalize(np.array(task.q))
    except ArgumentError as error:
        raise ArgumentError(f"PostureTask.{error}") from None
    return weights


def _aim(model: Model, task: Task) -> Aim:
    bounded = len(task.bounds)
    if isinstance(task, CoMTask):
        if not model.total_mass > 0.0:
            raise ArgumentError(f"CoMTask: {model.name!r} has no mass, and so no centre of mass")
        return Aim(-1, move=task.weight, bounds=bounded)
    assert isinstance(task, PoseTask | PositionTask | DirectionTask | GazeTask | DistanceTask | RelativePoseTask)
    link = model.link_index(task.link)
    if isinstance(task, DirectionTask):
        return Aim(link, turn=task.weight, axis=task.axis, bounds=bounded)
    if isinstance(task, GazeTask):
        return Aim(link, point=task.point, turn=task.weight, axis=task.axis, bounds=bounded, kind="gaze")
    if isinstance(task, PositionTask):
        return Aim(link, point=task.point, move=task.weight, bounds=bounded)
    if isinstance(task, DistanceTask):
        to = -1 if task.to is None else model.link_index(task.to)
        _require_apart(model, "DistanceTask", link, to)
        parts: dict[str, Any] = {"move": (task.weight,) * 3, "bounds": bounded, "kind": "distance"}
        return Aim(link, to, task.point, **parts, to_point=task.to_point, targeted=task.targeted)
    *turns, x, y, z = task.weight if len(task.weight) == 6 else np.repeat(task.weight, 3).tolist()
    parts = {"turn": max(turns), "move": (x, y, z)}
    if min(turns) < max(turns):
        parts["turns"] = tuple(turns)
    if isinstance(task, PoseTask):
        return Aim(link, point=task.point, **parts)
    to = model.link_index(task.to)
    _require_apart(model, "RelativePoseTask", link, to)
    return Aim(link, to, task.point, **parts)


def _require_apart(model: Model, kind: str, link: int, to: int) -> None:
    if to >= 0 and model.link_body[link] == model.link_body[to]:
        raise ArgumentError(f"{kind}: both links are on one body; wanted links that move apart")
