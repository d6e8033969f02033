"""Levenberg-Marquardt steps on the configuration manifold, several in one compiled program.

e are the weighted errors and J their Jacobian with m rows. M is a diagonal matrix: 0 for joints at a limit that the
gradient J'e pushes against, 1 for all others.

    dq = M J' y        (J M J' + lambda) y = e - J M z        lambda = c |e|^2 / sqrt(1 + b |e|^2) + least
    q+ = limits(q (+) (dq + M z))

If there are fewer degrees of freedom than rows, dq = S (S J'J S + lambda)^-1 S J'e with S S = M, which is equal.

lambda goes to zero with the error (Sugihara, Solvability-unconcerned inverse kinematics by the Levenberg-Marquardt
method, 2011). The last steps are therefore Newton steps, and no step is rejected. J'J omits the error times the
curvature of the kinematics. Far from the target, where b |e|^2 is large, lambda grows no faster than this term. Degrees
of freedom that only translate have no curvature: their entry of M is 1 + far |e|^2, so a floating base covers any
distance in a few steps. z is the difference to a posture. To first order it moves only the null space of J. States that
have converged do not move any more.

Where links are too near to something, one more row moves them apart: by how much the least distance is too small, and
the gradient of this distance. Both are inputs of the program, found before each step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from robodyn.algorithms.definite import Definite, is_zero, product
from robodyn.algorithms.joint_limits import dof_of_coordinates
from robodyn.algorithms.manifold import joint_by_joint, scalars, unit
from robodyn.algorithms.relative_motion import OfLink
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.joints import KINDS, is_positive
from robodyn.core.model import Model
from robodyn.core.reach import reach
from robodyn.internals.arguments import Array
from robodyn.solve.inverse_kinematics.residuals import MEASURES, Goals, Rows, Scene, beyond, flat_measures, relu
from robodyn.solve.inverse_kinematics.tasks import AllTasks

DAMPING = 0.02
"""c. It is the best value for half of the arms in the tests. 0.1 is best for the others, by a small margin."""
_FAR = 10.0
"""Errors larger than this times the size of the robot count as far."""
_NEAR = 1e-4
"""Errors up to this times the size of the robot count as near, while approaching an unreachable target."""
_ONWARD = 0.3
"""Largest share of the difference to a posture that a step covers. With 1 the errors of tasks grow again."""
_SETTLED = 1e-3
"""Length of a step to the posture, in rad or m, below which the posture counts as reached."""
_UNLIMITED = 1e30
"""Joint limits beyond this number are ignored. It is finite in single precision."""
_NEVER = 1e-25
"""Avoids a division by zero. It is negligible beside products of errors and violations of bounds."""
SETTINGS = 9
"""Length of the `settings` input: squares of both tolerances, the distance from a bound that counts as at it, the
smallest lambda for rows of size one, the smallest lambda for degrees of freedom, c, b, far, and 1 to approach the
posture or 0 to ignore it."""


@lru_cache(maxsize=64)
def _sliding(model: Model) -> Array:
    """(nv,) True if a degree of freedom only translates, as do all joints that mimic it."""
    translates = np.zeros(model.nv, bool)
    for kind, _, v_index in model.free_joints:
        translates[v_index[:, kind.lengths]] = True
    for body in np.flatnonzero(model.mimics >= 0).tolist():
        translates[model.v_source[model.v_start[body]]] &= bool(KINDS[int(model.joint_kind[body])].lengths)
    return translates


@lru_cache(maxsize=64)
def bounds(model: Model) -> tuple[Array, Array]:
    """(nq,) lower and upper limits of coordinates with one degree of freedom; infinite for all others."""
    single = dof_of_coordinates(model) >= 0
    lower, upper = np.where(single, model.lower, -np.inf), np.where(single, model.upper, np.inf)
    valid = lower <= upper
    lower = np.where(valid & (np.abs(lower) < _UNLIMITED), lower, -np.inf)
    return lower, np.where(valid & (np.abs(upper) < _UNLIMITED), upper, np.inf)


def searching(size: float) -> tuple[float, float, float]:
    """c, b and far for reachable targets. `size` is the largest change of a weighted error per rad or m of motion."""
    bend = 1.0 / (_FAR * size) ** 2
    return DAMPING, bend, bend


def approaching(size: float) -> tuple[float, float, float]:
    """c, b and far for unreachable targets: lambda is then the error times the curvature at any error."""
    return 1.0 / _NEAR, 1.0 / (_NEAR * size) ** 2, 0.0


@lru_cache(maxsize=256)
def steps_task(asked: AllTasks, limits: bool, steps: int, apart: bool = False) -> ScalarTask:
    """A task of `steps` Levenberg-Marquardt steps.

    Inputs are `q`, `goals` (16 numbers of each aim), `settings`, `q_des` if there is a posture, and if `apart` the
    numbers `lack` (how much the least distance is too small, in m, then its gradient). Outputs are the configuration
    `moved`, the `measures` of the remaining errors, the `cost` and the number of steps `used`.
    """
    inputs = {"q": Sized(("nq",)), "goals": Sized((16 * len(asked.aims),)), "settings": Sized((SETTINGS,))}
    if asked.weights is not None:
        inputs["q_des"] = Sized(("nq",))
    if apart:
        inputs |= {"lack": Sized(()), "away": Sized(("nv",))}

    def text(model: Model, known: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
        return _Steps(model, asked, limits, known, at).taken(steps)

    outputs = {
        "moved": Sized(("nq",)),
        "measures": Sized((MEASURES * (len(asked.aims) + 1),)),
        "cost": Sized(()),
        "used": Sized(()),
    }
    digest = blake2b(repr(asked).encode(), digest_size=16).hexdigest()
    words = [str(steps), "limited" if limits else "free", *(["apart"] if apart else []), digest]
    return ScalarTask("_".join(("inverse_kinematics", *words)), inputs, outputs, text)


class _Steps:
    """The program of `steps_task`, on scalars."""

    def __init__(
        self, model: Model, asked: AllTasks, limits: bool, given: Mapping[str, Sequence[Any]], at: OfLink
    ) -> None:
        self._model, self._asked, self._at = model, asked, at
        self._goals = Goals(asked.aims, given["goals"])
        *self._least, self._slack, self._floor, self._common, self._damping, self._bend, self._far, self._pull = given[
            "settings"
        ]
        self._q = self._limited(unit(model, given["q"]), limits)
        self._limits, self._sliding = limits, _sliding(model)
        self._posture: Any = unit(model, given["q_des"]) if asked.weights is not None else None
        self._apart = (relu(given["lack"][0]), list(given["away"])) if "lack" in given else None

    def taken(self, steps: int) -> dict[str, Sequence[Any]]:
        """Takes all steps; returns the outputs of `steps_task`."""
        used: Any = 0.0
        for _ in range(steps):
            used = used + self._step()
        rows = self._rows(False)
        measures = flat_measures(rows)
        missing = MEASURES * (len(self._asked.aims) + 1) - len(measures)
        measured = [*measures, *([0.0] * missing)]
        return {"moved": list(self._q), "measures": measured, "cost": [rows.cost()], "used": [used]}

    def _rows(self, slopes: bool) -> Rows:
        return Scene(self._model, self._asked.aims, self._goals, list(self._q), self._at).rows(slopes)

    def _step(self) -> Any:
        """One step; returns 1, or 0 if the state has converged already."""
        rows = self._rows(True)
        left = beyond(rows, (self._least[0], self._least[1]))
        if self._apart is not None:
            lack, away = self._apart
            rows.add(1.0, lack, away, reach(self._model))
            left = left + lack
        free = self._free(rows)
        onward = None if self._posture is None else self._onward(free)
        dq = self._newton(rows, free, onward)
        if onward is not None:
            dq = [a + b for a, b in zip(dq, onward, strict=True)]
            left = left + self._pull * relu(product(dq, dq) - _SETTLED * _SETTLED)
        going = is_positive(left)
        step, q = scalars([0.0 if is_zero(d) else going * d for d in dq]), self._q
        moved = joint_by_joint(
            self._model, "q", lambda kind, at, along: kind.integrate(tuple(q[at]), tuple(step[along]))
        )
        self._q = self._limited(moved, self._limits)
        return going

    def _newton(self, rows: Rows, free: list[Any], onward: list[Any] | None) -> list[Any]:
        """dq without the motion to the posture."""
        J, n, m = rows.J, self._model.nv, len(rows.J)
        cost = rows.cost()
        damping = self._damping * cost / np.sqrt(1.0 + self._bend * cost)
        slide: list[Any] = [1.0] * n
        if self._sliding.any():
            farther = np.sqrt(1.0 + self._far * cost)
            slide = [farther if sliding else 1.0 for sliding in self._sliding.tolist()]
            free = [a * b for a, b in zip(free, slide, strict=True)]
        freed = [[x if is_zero(x) else x * weight for x, weight in zip(row, free, strict=True)] for row in J]
        errors = rows.errors
        if onward is not None:
            errors = [e - product(row, onward) for e, row in zip(errors, J, strict=True)]
        if m <= n:
            # The smallest lambda scales with the row, so that weights do not change how well the system is conditioned.
            lower = [[product(freed[i], freed[k]) for k in range(i + 1)] for i in range(m)]
            for i, each in enumerate(rows.sizes):
                lower[i][i] = lower[i][i] + (damping + self._floor * each**2)
            y = Definite(lower).solved(errors)
            return [along * product([row[k] for row in freed], y) for k, along in enumerate(slide)]
        columns = [[row[k] for row in freed] for k in range(n)]
        lower = [
            [product(columns[i], columns[k]) + (damping + self._common if i == k else 0.0) for k in range(i + 1)]
            for i in range(n)
        ]
        y = Definite(lower).solved([product(column, errors) for column in columns])
        return [along * each for along, each in zip(slide, y, strict=True)]

    # Limits and posture.

    def _limited(self, q: Any, limits: bool) -> Any:
        """Clips coordinates to their limits."""
        if not limits:
            return q
        clipped = scalars(list(q))
        for k, (lower, upper) in enumerate(zip(*(each.tolist() for each in bounds(self._model)), strict=True)):
            if np.isfinite(lower):
                clipped[k] = clipped[k] + relu(lower - clipped[k])
            if np.isfinite(upper):
                clipped[k] = clipped[k] - relu(clipped[k] - upper)
        return clipped

    def _free(self, rows: Rows) -> list[Any]:
        """For each degree of freedom 1, or 0 if it is at a limit that the gradient pushes against."""
        free: list[Any] = [1.0] * self._model.nv
        if not self._limits:
            return free
        lower, upper = (each.tolist() for each in bounds(self._model))
        for k, v in enumerate(dof_of_coordinates(self._model).tolist()):
            pushed: Any = 0.0
            if v < 0 or not (np.isfinite(lower[k]) or np.isfinite(upper[k])):
                continue
            gradient = product([row[v] for row in rows.J], rows.errors)
            if is_zero(gradient):
                continue
            if np.isfinite(upper[k]):
                pushed = pushed + relu(self._q[k] - upper[k] + self._slack) * relu(gradient)
            if np.isfinite(lower[k]):
                pushed = pushed + relu(lower[k] - self._q[k] + self._slack) * relu(-gradient)
            free[v] = 1.0 - pushed / (pushed + _NEVER)
        return free

    def _onward(self, free: list[Any]) -> list[Any]:
        """M z: the motion to the posture, of degrees of freedom that no limit blocks."""
        assert self._asked.weights is not None
        q, posture = self._q, self._posture
        way = joint_by_joint(self._model, "v", lambda kind, at, _: kind.difference(tuple(q[at]), tuple(posture[at])))
        return [
            0.0 if not weight or is_zero(d) else self._pull * (_ONWARD * weight * d) * f
            for weight, d, f in zip(self._asked.weights, way, free, strict=True)
        ]
