"""Tasks of inverse kinematics: the classes that users make."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.internals import strict_types
from robodyn.internals.arguments import integer, one_of, real_array, require_finite
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass
from robodyn.solve.inverse_kinematics.task_arguments import (
    Numbers,
    cone,
    cone_angle,
    convex_polygon,
    link_name,
    priority_of,
    range_of,
    unit_vector,
    vector,
    weights_of,
)


@dataclass(frozen=True)
class Task:
    """A goal for a configuration. `weight` scales its errors relative to those of other tasks.

    `priority`: 1 is the highest. Tasks of a lower one act only in the null space of all higher ones.
    """

    @property
    def targeted(self) -> bool:
        """True if the task has a target pose."""
        return True

    @property
    def bounds(self) -> Numbers:
        """The numbers between which the task keeps something, in the form that the generated code needs."""
        return ()


@dataclass(frozen=True, init=False)
class PoseTask(Task):
    """A link's frame coincides with the target frame.

    Args:
        link: name or index of the link, or frame.
        weight: weight of the errors, which are in rad and m: one number, two for (rotation, position), or six for
            (rotation about x, y, z, position along x, y, z) of the world's axes. 0 leaves them free.
        point: (3,) m in the link's axes: the point of the link that moves to the target's origin, instead of the link's
            own origin.
        priority: 1 for the highest; see `InverseKinematics`.
    """

    link: str | int
    weight: Numbers
    point: Numbers
    priority: int

    def __init__(self, link: str | int, weight: Any = 1.0, point: Any = (0.0, 0.0, 0.0), *, priority: int = 1) -> None:
        _set(self, link=link_name("PoseTask", "link", link), weight=weights_of("PoseTask", weight, 2, 6))
        _set(self, point=vector("PoseTask", "point", point), priority=priority_of("PoseTask", priority))


@dataclass(frozen=True, init=False)
class PositionTask(Task):
    """A point of a link is at the target's origin, or in a box about it.

    Args:
        link, point, priority: as in `PoseTask`.
        weight: a number, or (3,) along the world's axes. 0 leaves an axis free.
        lower, upper: a number or (3,), m: bounds of the point's coordinates in the target's frame. Its rotation counts
            then; -inf and inf leave a side open. None: the point is at the origin, and the rotation is ignored. If only
            one is given, the other side is open. Weights are along axes of the target then.
    """

    link: str | int
    weight: tuple[float, float, float]
    point: Numbers
    lower: Numbers | None
    upper: Numbers | None
    priority: int

    def __init__(
        self,
        link: str | int,
        weight: Any = 1.0,
        point: Any = (0.0, 0.0, 0.0),
        *,
        lower: Any = None,
        upper: Any = None,
        priority: int = 1,
    ) -> None:
        name = "PositionTask"
        _set(self, link=link_name(name, "link", link), weight=weights_of(name, weight, 3))
        _set(self, point=vector(name, "point", point), priority=priority_of(name, priority))
        if lower is not None or upper is not None:
            low, high = range_of(name, -np.inf if lower is None else lower, np.inf if upper is None else upper, 3)
            _set(self, lower=low, upper=high)
        else:
            _set(self, lower=None, upper=None)

    @property
    def bounds(self) -> Numbers:
        """Lower and upper bounds, if it has some."""
        return () if self.lower is None or self.upper is None else (*self.lower, *self.upper)


@dataclass(frozen=True, init=False)
class DirectionTask(Task):
    """An axis of a link is parallel to the same axis of the target, or in a cone about it. Position and rotation about
    the axis are free.

    Args:
        link, priority: as in `PoseTask`.
        axis: (3,) in the link's axes, of any length but zero.
        weight: a number greater than 0.
        angle: the largest angle between both axes, rad, from 0 to below pi.
    """

    link: str | int
    axis: Numbers
    weight: float
    angle: float
    priority: int

    def __init__(
        self,
        link: str | int,
        axis: Any = (0.0, 0.0, 1.0),
        weight: Any = 1.0,
        *,
        angle: float = 0.0,
        priority: int = 1,
    ) -> None:
        name = "DirectionTask"
        _set(self, link=link_name(name, "link", link), axis=unit_vector(name, "axis", axis))
        _set(
            self,
            weight=weights_of(name, weight, 1)[0],
            angle=cone_angle(name, angle),
            priority=priority_of(name, priority),
        )

    @property
    def bounds(self) -> Numbers:
        """The cone, if it has one."""
        return cone(self.angle)


@dataclass(frozen=True, init=False)
class GazeTask(Task):
    """An axis through a point of a link points at the target's origin, as a camera does. The target's rotation is
    ignored.

    Args:
        link, point, priority: as in `PoseTask`; the point is where the axis begins.
        axis, weight: as in `DirectionTask`.
        angle: the largest angle between the axis and the line to the target, rad, from 0 to below pi.
    """

    link: str | int
    axis: Numbers
    point: Numbers
    weight: float
    angle: float
    priority: int

    def __init__(
        self,
        link: str | int,
        axis: Any = (0.0, 0.0, 1.0),
        weight: Any = 1.0,
        point: Any = (0.0, 0.0, 0.0),
        *,
        angle: float = 0.0,
        priority: int = 1,
    ) -> None:
        name = "GazeTask"
        _set(
            self,
            link=link_name(name, "link", link),
            axis=unit_vector(name, "axis", axis),
            angle=cone_angle(name, angle),
        )
        _set(self, point=vector(name, "point", point), weight=weights_of(name, weight, 1)[0])
        _set(self, priority=priority_of(name, priority))

    @property
    def bounds(self) -> Numbers:
        """The cone, if it has one."""
        return cone(self.angle)


@dataclass(frozen=True, init=False)
class DistanceTask(Task):
    """The distance between a point of a link and a point of another link, or the target's origin, is in a range.

    Args:
        link, point, priority: as in `PoseTask`.
        to: name or index of the other link: the task has no target then. None: the distance to the target's origin.
        lower, upper: bounds of the distance, m; the same number twice for a distance.
        weight: a number greater than 0.
        to_point: (3,) m in the other link's axes, its point.
    """

    link: str | int
    to: str | int | None
    lower: float
    upper: float
    weight: float
    point: Numbers
    to_point: Numbers
    priority: int

    def __init__(
        self,
        link: str | int,
        to: str | int | None = None,
        *,
        lower: float = 0.0,
        upper: float = np.inf,
        weight: Any = 1.0,
        point: Any = (0.0, 0.0, 0.0),
        to_point: Any = (0.0, 0.0, 0.0),
        priority: int = 1,
    ) -> None:
        name = "DistanceTask"
        low, high = range_of(name, lower, upper, 1)
        if high[0] < 0.0:
            raise ArgumentError(f"{name}.upper: got {brief(upper)}; wanted a number from 0")
        _set(self, link=link_name(name, "link", link), to=None if to is None else link_name(name, "to", to))
        _set(
            self,
            lower=low[0],
            upper=high[0],
            weight=weights_of(name, weight, 1)[0],
            priority=priority_of(name, priority),
        )
        _set(self, point=vector(name, "point", point), to_point=vector(name, "to_point", to_point))
        if to is None and any(self.to_point):
            raise ArgumentError(f"{name}.to_point: got {brief(to_point)} without to=; wanted the link that it is on")

    @property
    def targeted(self) -> bool:
        """True if the distance is that to a target."""
        return self.to is None

    @property
    def bounds(self) -> Numbers:
        """Lower and upper bound."""
        return self.lower, self.upper


@dataclass(frozen=True, init=False)
class RelativePoseTask(Task):
    """A link's pose relative to another link is the target pose, which is in the other link's frame.

    Args:
        link, weight, point, priority: as in `PoseTask`; axes are those of the other link.
        to: name or index of the other link.
    """

    link: str | int
    to: str | int
    weight: Numbers
    point: Numbers
    priority: int

    def __init__(
        self,
        link: str | int,
        to: str | int,
        weight: Any = 1.0,
        point: Any = (0.0, 0.0, 0.0),
        *,
        priority: int = 1,
    ) -> None:
        name = "RelativePoseTask"
        _set(
            self, link=link_name(name, "link", link), to=link_name(name, "to", to), priority=priority_of(name, priority)
        )
        _set(self, weight=weights_of(name, weight, 2, 6), point=vector(name, "point", point))


@dataclass(frozen=True, init=False)
class CoMTask(Task):
    """The centre of mass is at the target's origin, or above or below a polygon.

    Args:
        weight: a number, or (3,) along the world's axes: (1, 1, 0) leaves the height free. A number with a polygon.
        polygon: (k, 2) corners of a convex polygon in the x-y plane of the target's frame, m, in order, either way
            round. The centre of mass is inside, at any z of this frame. None: it is at the origin, and the target's
            rotation is ignored.
        priority: as in `PoseTask`.
    """

    weight: tuple[float, float, float]
    polygon: tuple[Numbers, ...] | None
    priority: int

    def __init__(self, weight: Any = 1.0, *, polygon: Any = None, priority: int = 1) -> None:
        weights = weights_of("CoMTask", weight, 3)
        if polygon is not None and len(set(weights)) > 1:
            raise ArgumentError(f"CoMTask.weight: got {brief(weight)} with a polygon; wanted one number")
        _set(self, weight=weights, priority=priority_of("CoMTask", priority))
        _set(self, polygon=None if polygon is None else convex_polygon("CoMTask.polygon", polygon))

    @property
    def bounds(self) -> Numbers:
        """For each edge its unit normal to the outside, and how far out the edge is."""
        if self.polygon is None:
            return ()
        corners = np.array(self.polygon)
        edges = np.roll(corners, -1, axis=0) - corners
        normals = np.stack((edges[:, 1], -edges[:, 0]), 1) / np.linalg.norm(edges, axis=1)[:, None]
        return tuple(np.concatenate((normals, (normals * corners).sum(axis=1)[:, None]), 1).ravel().tolist())


@dataclass(frozen=True, init=False)
class PostureTask(Task):
    """A preferred configuration, approached in the null space of all other tasks, whatever their priority.

    Args:
        q: (nq,), the configuration; "q0" to stay near the initial configuration of each call; "middle" to stay near the
            middle of the limits, where joints have both.
        weight: a number from 0 to 1, or one for each degree of freedom (nv,): the share of the remaining difference
            that a step covers.

    What is approached is the smallest weighted sum of squares of the difference. Steps end once one is shorter than
    1e-3 (rad or m), or with three quarters of the iterations. Convergence does not depend on it.
    """

    q: Numbers | str
    weight: Numbers

    def __init__(self, q: Any, weight: Any = 1.0) -> None:
        word = strict_types.text_or_none(q)
        if word is not None and word not in POSTURES:
            raise ArgumentError(f"PostureTask.q: got {brief(q)}; wanted a configuration (nq,), 'q0' or 'middle'")
        if word is None:
            configuration = real_array("PostureTask.q", q, (), np.float64)
            if configuration.ndim != 1:
                raise ArgumentError(f"PostureTask.q: got shape {configuration.shape}; wanted one configuration (nq,)")
            require_finite("PostureTask.q", configuration, 1)
        weights = np.atleast_1d(real_array("PostureTask.weight", weight, (), np.float64))
        if weights.ndim != 1 or not ((weights >= 0.0) & (weights <= 1.0)).all():
            raise ArgumentError(f"PostureTask.weight: got {brief(weight)}; wanted numbers from 0 to 1")
        _set(self, q=tuple(configuration.tolist()) if word is None else word, weight=tuple(weights.tolist()))

    @property
    def targeted(self) -> bool:
        """False."""
        return False


@dataclass(frozen=True, init=False)
class ManipulabilityTask(Task):
    """A link is far from singular configurations, as far as all other tasks leave freedom: Yoshikawa's manipulability
    sqrt(det(J J')) grows (Yoshikawa, Manipulability of robotic mechanisms, 1985).

    Args:
        link: name or index of the link, or frame.
        weight: a number greater than 0. It matters beside a `PostureTask` and others of this kind: steps go uphill on
            the sum of weight log(manipulability), less half the weighted sum of squares of the difference to the
            posture.
        axes: rows of the Jacobian J that count: "all", "translation" or "rotation".

    Gradients are exact, by derivatives of the Jacobian. Steps end once one is shorter than 2e-4 (rad or m), near a
    local maximum, or with three quarters of the iterations. Convergence does not depend on it.
    """

    link: str | int
    weight: float
    axes: str

    def __init__(self, link: str | int, weight: Any = 1.0, axes: str = "all") -> None:
        _set(self, link=link_name("ManipulabilityTask", "link", link))
        _set(self, weight=weights_of("ManipulabilityTask", weight, 1)[0])
        _set(self, axes=one_of("ManipulabilityTask.axes", axes, tuple(AXES)))

    @property
    def targeted(self) -> bool:
        """False."""
        return False


POSTURES = ("q0", "middle")
"""Postures that have a name."""
AXES = {"all": range(6), "translation": range(3, 6), "rotation": range(3)}
"""Rows of the Jacobian, by name."""
KINDS = (
    PoseTask,
    PositionTask,
    DirectionTask,
    GazeTask,
    DistanceTask,
    RelativePoseTask,
    CoMTask,
    PostureTask,
    ManipulabilityTask,
)
"""All kinds of tasks."""


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


def _set(task: Task, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(task, name, value)
