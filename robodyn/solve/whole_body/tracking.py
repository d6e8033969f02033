"""What a whole-body controller is made of: tracked tasks and feet, checked and looked up in a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robodyn.algorithms.contacts.geometry import slots
from robodyn.core.contacts.kinds import Contact, ContactPair
from robodyn.core.joints import CODE
from robodyn.core.model import Model
from robodyn.core.shapes import Plane, Sphere
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, count, finite_number
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass
from robodyn.solve.inverse_kinematics.aims import posture_weights
from robodyn.solve.inverse_kinematics.seeds import middle
from robodyn.solve.inverse_kinematics.tasks import KINDS, CoMTask, PoseTask, PositionTask, PostureTask, Task
from robodyn.solve.whole_body.terms import Foot, Goal, Layout, elimination_order

_MOST = 1e9
"""Largest gain or weight."""
_ALLOWED = "PoseTask, PositionTask, CoMTask, PostureTask"
_LOWEST = 100
_WORLD = [float(k % 5 == 0) for k in range(16)]


@dataclass(frozen=True, init=False)
class Tracking:
    """A task with gains, for `WholeBodyControl`: its acceleration should be kp e - kd v, with the error e and the
    velocity v of the task.

    Args:
        task: a `PoseTask`, `PositionTask`, `CoMTask` or `PostureTask`. Its own weights scale its rows: 0 leaves one
            free.
        kp: stiffness, 1/s^2, from 0.
        kd: damping, 1/s, from 0. 2 sqrt(kp) is critical.
        weight: of the squared deviation of its acceleration, above 0.
        priority: 1 for the highest. Tasks of a lower one act only where they change nothing for all higher ones.

    Raises:
        ArgumentError: another task, or numbers out of these ranges.
    """

    task: Task
    kp: float
    kd: float
    weight: float
    priority: int

    def __init__(self, task: Task, kp: float = 0.0, kd: float = 0.0, weight: float = 1.0, priority: int = 1) -> None:
        if not strict_types.is_a(task, *KINDS):
            raise ArgumentError(f"Tracking.task: got {brief(task)}; wanted one of {_ALLOWED}")
        if not isinstance(task, PoseTask | PositionTask | CoMTask | PostureTask) or task.bounds:
            bounds = " with bounds" if task.bounds else ""
            raise ArgumentError(
                f"Tracking.task: {type(task).__name__}{bounds} has no acceleration here; wanted one of {_ALLOWED}, "
                "without bounds"
            )
        if getattr(task, "priority", 1) != 1:
            raise ArgumentError(
                f"Tracking.task: {type(task).__name__}.priority is not read; wanted Tracking(priority=)"
            )
        if isinstance(task, PostureTask) and isinstance(task.q, str) and task.q == "q0":
            raise ArgumentError("Tracking.task: PostureTask.q: got 'q0'; wanted a configuration (nq,) or 'middle'")
        values: dict[str, Any] = {"task": task, "kp": _number("kp", kp), "kd": _number("kd", kd)}
        values |= {"weight": _number("weight", weight), "priority": count("Tracking.priority", priority, 1, _LOWEST)}
        if not values["weight"] > 0.0:
            raise ArgumentError(f"Tracking.weight: got {brief(weight)}; wanted a number above 0")
        for name, value in values.items():
            object.__setattr__(self, name, value)


def _number(name: str, value: Any) -> float:
    number = finite_number(f"Tracking.{name}", value)
    if not 0.0 <= number <= _MOST:
        raise ArgumentError(f"Tracking.{name}: got {brief(value)}; wanted a number from 0 to {_MOST:g}")
    return number


def trackings(given: Any) -> tuple[Tracking, ...]:
    """A list of `Tracking`, or one."""
    entries = strict_types.members(given) if strict_types.is_a(given, list, tuple) else (given,)
    for k, each in enumerate(entries):
        if not strict_types.is_a(each, Tracking):
            raise ArgumentError(f"tasks[{k}]: got {brief(each)}; wanted a robodyn.Tracking")
    if not entries:
        raise ArgumentError("tasks: got none; wanted at least one robodyn.Tracking")
    return tuple(entries)


def feet_of(model: Model, given: Any) -> tuple[Foot, ...]:
    """Feet from contacts of spheres with planes that are fixed to the world."""
    if not strict_types.is_a(given, list, tuple):
        raise ArgumentError(f"feet: got {brief(given)}; wanted a list of robodyn.Contact")
    return tuple(_foot(model, k, each) for k, each in enumerate(strict_types.members(given)))


def _foot(model: Model, k: int, contact: Any) -> Foot:
    if not strict_types.is_a(contact, Contact):
        raise ArgumentError(f"feet[{k}]: got {brief(contact)}; wanted a robodyn.Contact")
    first = isinstance(contact.first, Sphere)
    sphere, plane = (contact.first, contact.second) if first else (contact.second, contact.first)
    if not (isinstance(sphere, Sphere) and isinstance(plane, Plane)):
        got = f"a {contact.first.kind} and a {contact.second.kind}"
        raise UnavailableError(f"feet[{k}]: got {got}; wanted a sphere on a plane")
    if plane.link is not None or sphere.link is None:
        raise UnavailableError(f"feet[{k}]: wanted a sphere on a link, and a plane that is fixed to the world")
    if contact.condim != 3:
        raise UnavailableError(f"feet[{k}]: got condim {contact.condim}; wanted 3, a foot with friction")
    try:
        link = model.link_index(sphere.link)
    except ArgumentError as error:
        raise ArgumentError(f"feet[{k}]: {error}") from None
    pair = ContactPair(first=contact.first.geometry, second=contact.second.geometry)
    slot = slots(pair, _WORLD, _WORLD)[0]
    sign = 1.0 if first else -1.0
    axes = [tuple(sign * float(x) + 0.0 for x in axis) for axis in (slot.n, slot.t1, slot.t2)]
    below = tuple(-sphere.radius * x for x in axes[0])
    at = tuple(float(x) for x in sphere.at)
    return Foot(link, at, below, tuple(axes), contact.friction)  # type: ignore[arg-type]


def layout_of(model: Model, tasks: Sequence[Tracking], feet: tuple[Foot, ...], damped: tuple[str, ...]) -> Layout:
    """What the text of a controller depends on."""
    priorities = sorted({each.priority for each in tasks})
    goals: list[Goal] = []
    postures: list[tuple[int, int]] = []
    for k, each in enumerate(tasks):
        level = priorities.index(each.priority)
        try:
            if isinstance(each.task, PostureTask):
                posture_weights(model, each.task)
                postures.append((level, k))
            else:
                goals.append(_goal(model, each.task, level, k, len(goals)))
        except ArgumentError as error:
            raise ArgumentError(f"tasks[{k}]: {error}") from None
    floating = np.flatnonzero((model.parent < 0) & (model.joint_kind == CODE["floating"]))
    base = [int(model.v_source[model.v_start[body] + c]) for body in floating for c in range(6)]
    order = elimination_order(model, feet)
    return Layout(
        model.nv,
        feet,
        tuple(goals),
        tuple(postures),
        order,
        tuple(base),
        len(priorities),
        len(goals),
        len(tasks),
        damped,
    )


def _goal(model: Model, task: Task, level: int, number: int, target: int) -> Goal:
    if isinstance(task, CoMTask):
        if not model.total_mass > 0.0:
            raise ArgumentError(f"CoMTask: {model.name!r} has no mass, and so no centre of mass")
        return Goal(-1, (0.0, 0.0, 0.0), (), task.weight, level, number, target)
    assert isinstance(task, PoseTask | PositionTask)
    x, y, z = task.point
    if isinstance(task, PositionTask):
        return Goal(model.link_index(task.link), (x, y, z), (), task.weight, level, number, target)
    weights = tuple(task.weight) if len(task.weight) == 6 else tuple(w for w in task.weight for _ in range(3))
    return Goal(model.link_index(task.link), (x, y, z), weights[:3], weights[3:], level, number, target)


def constants_of(model: Model, tasks: Sequence[Tracking], layout: Layout) -> tuple[dict[str, Array], Array, Array]:
    """Inputs of the terms that are the same for all calls; square roots of the weights of unknowns (levels, unknowns);
    and which accelerations a posture has a weight for (levels, nv)."""
    gains = np.array([[each.kp, each.kd, np.sqrt(each.weight)] for each in tasks])
    found = {"gains": gains}
    heaviest = np.array([max(t.weight for t in tasks if t.priority == p) for p in sorted({t.priority for t in tasks})])
    squares = np.zeros((layout.levels, model.nv))
    if layout.postures:
        weights = []
        for level, k in layout.postures:
            task = tasks[k].task
            assert isinstance(task, PostureTask)
            weights.append(tasks[k].weight * np.array(posture_weights(model, task)) ** 2)
            squares[level] += weights[-1]
        # Rows of postures of one level are summed: the root of all weights times what each one wishes with its share.
        roots = np.sqrt(np.array([squares[level] for level, _ in layout.postures]))
        with np.errstate(invalid="ignore", divide="ignore"):
            found["share"] = np.where(roots > 0.0, np.array(weights) / roots, 0.0)
        found["q_des"] = np.array([_configuration(model, tasks[k].task) for _, k in layout.postures])
    order = list(layout.order)
    small = np.sqrt(REGULARISATION * heaviest)[:, None]
    roots = np.repeat(small, layout.unknowns, 1)
    roots[:, : model.nv] = np.where(squares > 0.0, np.sqrt(squares), small)[:, order]
    roots[-1, model.nv :] = np.sqrt(FORCE)
    return found, roots, (squares > 0.0)[:, order]


def _configuration(model: Model, task: Any) -> Array:
    return np.asarray(middle(model) if isinstance(task.q, str) else task.q, float)


FORCE = 1e-6
"""Weight of squared forces, m^2/s^4/N^2."""
REGULARISATION = 1e-9
"""Weight of accelerations that no posture has a weight for, relative to the heaviest task of their priority, and of
forces in all but the last priority. It makes solutions unique."""
