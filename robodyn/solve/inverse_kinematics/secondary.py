"""Goals in the null space of all tasks, on scalars: a posture, and manipulability.

Steps go uphill on

    F = sum of weight log sqrt(det(J J'))  -  1/2 sum of weight (difference to the posture)^2

J is the Jacobian of a link. Its derivatives are the kinematic Hessian. With p the gradient of F in the null space of
the tasks, a step is p / (1 + |p|^2 + |dF|), weights apart. 1 + |p|^2 is the curvature of log sin x, the manipulability
of two joints in a row. |dF| allows for the curvature of the tasks, times the gradient across the null space. With
a posture alone F is quadratic, and steps are a share of p.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.algorithms.definite import Definite, is_zero, product
from robodyn.algorithms.kinematic_gradients import pose_hessian
from robodyn.algorithms.kinematics import jacobian
from robodyn.algorithms.manifold import joint_by_joint
from robodyn.algorithms.relative_motion import OfLink, between
from robodyn.core.model import Model
from robodyn.core.reach import reach
from robodyn.internals.records import dataclass
from robodyn.solve.inverse_kinematics.aims import AllTasks
from robodyn.solve.inverse_kinematics.residuals import times
from robodyn.solve.inverse_kinematics.tasks import AXES

_ONWARD = 0.3
"""Largest share of the difference to a posture that a step covers. With 1 the errors of tasks grow again."""
_UPHILL = 0.6
"""Share of the step along the gradient of manipulability."""
_TINY = 1e-30
"""Avoids the root of zero."""
_SINGULAR = 1e-6
"""Added to J J', relative to the square of a row's size, so that its inverse exists in singular configurations."""


@dataclass
class Aside:
    """Where secondary goals lead.

    `step`: the gradient of F, or a share of it if it is `linear`; `least`, `weight`: the bend of the way at p = 0, and
    the sum of weights of manipulability.
    """

    step: list[Any]
    least: Any = 0.0
    weight: float = 0.0

    @property
    def linear(self) -> bool:
        """True for a posture alone."""
        return not self.weight

    def shortened(self, p: list[Any]) -> list[Any]:
        """The step of the gradient in the null space."""
        return p if self.linear else times(_UPHILL / (self.least + product(p, p) / self.weight), p)


def uphill(model: Model, asked: AllTasks, q: Any, posture: Any, at: OfLink) -> Aside:
    """Where secondary goals lead.

    Args:
        model, asked: the robot and all tasks.
        q, posture: the configuration and the preferred one, if there is one.
        at: evaluates an algorithm at q.
    """
    step: list[Any] = [0.0] * model.nv
    share = 1.0 if asked.dexterous else _ONWARD
    if asked.weights is not None:
        way = joint_by_joint(model, "v", lambda kind, at, _: kind.difference(tuple(q[at]), tuple(posture[at])))
        step = [
            0.0 if not weight or is_zero(d) else share * weight * d
            for weight, d in zip(asked.weights, way, strict=True)
        ]
    if not asked.dexterous:
        return Aside(step)
    for link, weight, axes in asked.dexterous:
        gradient = log_manipulability_gradient(model, link, axes, at)
        step = [a if is_zero(b) else a + weight * b for a, b in zip(step, gradient, strict=True)]
    heavy = sum(weight for _, weight, _ in asked.dexterous)
    return Aside(step, max(asked.weights or (0.0,)) + heavy + np.sqrt(product(step, step) + _TINY), heavy)


def log_manipulability_gradient(model: Model, link: int, axes: str, at: OfLink) -> list[Any]:
    """Derivatives of log sqrt(det(J J')), the trace of (J J')^-1 J dJ', by each degree of freedom."""
    n, rows = model.nv, AXES[axes]
    J, H = at(jacobian("world_aligned"), link)["J"], at(pose_hessian("world_aligned"), link)["H"]
    used = [J[n * r : n * r + n] for r in rows]
    lower = [[product(used[i], used[k]) for k in range(i + 1)] for i in range(len(used))]
    for i, r in enumerate(rows):
        lower[i][i] = lower[i][i] + _SINGULAR * (1.0 if r < 3 else reach(model)) ** 2
    solve = Definite(lower).solved
    moving = [j for j, moves in enumerate(between(model, link, -1)) if moves]
    columns = {j: solve([row[j] for row in used]) for j in moving}
    gradient: list[Any] = [0.0] * n
    for k in moving:
        gradient[k] = sum((product(columns[j], [H[(n * r + j) * n + k] for r in rows]) for j in moving), 0.0)
    return gradient
