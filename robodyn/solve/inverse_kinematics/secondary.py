"""Goals in the null space of all tasks, on scalars: a posture, and manipulability.

Steps go uphill on

    F = sum of weight log sqrt(det(J J'))  -  1/2 sum of weight (difference to the posture)^2

J is the Jacobian of a link. Its derivatives are the kinematic Hessian. The Hessian matrix of the logarithm of the sine
of an angle is 1 + |gradient|^2. Steps along the gradient are divided by that of all weights, and of 1 for the posture.
"""

from __future__ import annotations

from typing import Any

from robodyn.algorithms.definite import Definite, is_zero, product
from robodyn.algorithms.kinematic_gradients import pose_hessian
from robodyn.algorithms.kinematics import jacobian
from robodyn.algorithms.manifold import joint_by_joint
from robodyn.algorithms.relative_motion import OfLink, between
from robodyn.core.model import Model
from robodyn.core.reach import reach
from robodyn.solve.inverse_kinematics.aims import AllTasks
from robodyn.solve.inverse_kinematics.residuals import times
from robodyn.solve.inverse_kinematics.tasks import AXES

_ONWARD = 0.3
"""Largest share of the difference to a posture that a step covers. With 1 the errors of tasks grow again."""
_UPHILL = 0.6
"""Share of the step along the gradient of manipulability."""
_SINGULAR = 1e-6
"""Added to J J', relative to the square of a row's size, so that its inverse exists in singular configurations."""


def uphill(model: Model, asked: AllTasks, q: Any, posture: Any, at: OfLink) -> list[Any]:
    """The step that secondary goals ask for.

    Args:
        model, asked: the robot and all tasks.
        q, posture: the configuration and the preferred one, if there is one.
        at: evaluates an algorithm at q.
    """
    step: list[Any] = [0.0] * model.nv
    if asked.weights is not None:
        way = joint_by_joint(model, "v", lambda kind, at, _: kind.difference(tuple(q[at]), tuple(posture[at])))
        step = [
            0.0 if not weight or is_zero(d) else _ONWARD * weight * d
            for weight, d in zip(asked.weights, way, strict=True)
        ]
    if not asked.dexterous:
        return step
    bend: Any = max(asked.weights or (0.0,))
    step = times(_UPHILL / _ONWARD, step)
    for link, weight, axes in asked.dexterous:
        gradient = log_manipulability_gradient(model, link, axes, at)
        bend = bend + weight * (1.0 + product(gradient, gradient))
        step = [a if is_zero(b) else a + _UPHILL * weight * b for a, b in zip(step, gradient, strict=True)]
    return times(1.0 / bend, step)


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
