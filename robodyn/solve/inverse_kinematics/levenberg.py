"""Steps of Levenberg and Marquardt on the configuration manifold, several in one program.

With the weighted errors e and their Jacobian J (m rows), and M a diagonal of 1 and 0, 0 for joints at a limit that the
gradient J'e pushes against:

    dq = M J' y        (J M J' + lambda) y = e - J M z        lambda = c |e|^2 / sqrt(1 + b |e|^2) + least
    q+ = limits(q (+) (dq + M z))

or, where degrees of freedom are fewer than rows, dq = S (S J'J S + lambda)^-1 S J'e with S S = M, which is the same.
lambda goes to zero with the error (Sugihara, Solvability-unconcerned inverse kinematics by the Levenberg-Marquardt
method, 2011), so that steps end as Newton's, and nothing has to be tried and taken back. What J'J leaves out is the
error times the curvature: far away, where b |e|^2 is large, lambda grows no faster than that, and M is 1 + far |e|^2 of
what only translates, which has no curvature: a base that floats goes any way in a few steps. z is the way to a posture:
it moves what J leaves free, to first order. States that are done do not move any more.
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
from robodyn.internals.arguments import Array
from robodyn.solve.inverse_kinematics.residuals import MEASURES, Goals, Rows, Scene, beyond, flat_measures, relu
from robodyn.solve.inverse_kinematics.tasks import AllTasks

DAMPING = 0.02
"""c: half of the arms of tests go furthest with it, the others with 0.1 and nearly as far with this."""
_FAR = 10.0
"""Errors this many times as large as the robot count as far."""
_NEAR = 1e-4
"""Errors as large as the robot times this count as near, where what is out of reach is gone to."""
_ONWARD = 0.3
"""Of the way to a posture that a step goes at most: with all of it tasks are left behind."""
_SETTLED = 1e-3
"""rad or m: a step to a posture that is no longer is the end of it."""
_UNLIMITED = 1e30
"""A bound beyond it is none: single precision has it, too."""
_NEVER = 1e-25
"""Beside products of errors and what is beyond a bound it is nothing, and not zero."""
SETTINGS = 9
"""Numbers that come with every call: squares of the tolerances, how near a bound counts as at it, the least lambda of
rows of size one, that of all degrees of freedom, c, b, far, and whether to go to the posture."""


@lru_cache(maxsize=64)
def _sliding(model: Model) -> Array:
    """(nv,) whether a degree of freedom only translates, it and what follows it."""
    found = np.zeros(model.nv, bool)
    for kind, _, v_index in model.free_joints:
        found[v_index[:, kind.lengths]] = True
    for body in np.flatnonzero(model.mimics >= 0).tolist():
        found[model.v_source[model.v_start[body]]] &= bool(KINDS[int(model.joint_kind[body])].lengths)
    return found


@lru_cache(maxsize=64)
def bounds(model: Model) -> tuple[Array, Array]:
    """(nq,) lower and upper limits of coordinates that are one degree of freedom; infinite where there are none."""
    single = dof_of_coordinates(model) >= 0
    lower, upper = np.where(single, model.lower, -np.inf), np.where(single, model.upper, np.inf)
    there = lower <= upper
    lower = np.where(there & (np.abs(lower) < _UNLIMITED), lower, -np.inf)
    return lower, np.where(there & (np.abs(upper) < _UNLIMITED), upper, np.inf)


def searching(size: float) -> tuple[float, float, float]:
    """c, b and far on the way to a target; `size` is how much a degree of freedom moves what is weighted, at most."""
    bend = 1.0 / (_FAR * size) ** 2
    return DAMPING, bend, bend


def approaching(size: float) -> tuple[float, float, float]:
    """The same towards what is out of reach: there lambda is the error times the curvature, whatever the error."""
    return 1.0 / _NEAR, 1.0 / (_NEAR * size) ** 2, 0.0


@lru_cache(maxsize=256)
def steps_task(asked: AllTasks, limits: bool, steps: int) -> ScalarTask:
    """n steps: from `q`, `goals` (16 numbers of each aim), `settings`, and with a posture `q_des`, to `moved`, the
    `measures` of what is left, the `cost` and how many steps were `used`."""
    given = {"q": Sized(("nq",)), "goals": Sized((16 * len(asked.aims),)), "settings": Sized((SETTINGS,))}
    if asked.weights is not None:
        given["q_des"] = Sized(("nq",))

    def text(model: Model, known: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
        return _Steps(model, asked, limits, known, at).taken(steps)

    outputs = {
        "moved": Sized(("nq",)),
        "measures": Sized((MEASURES * (len(asked.aims) + 1),)),
        "cost": Sized(()),
        "used": Sized(()),
    }
    which = blake2b(repr(asked).encode(), digest_size=16).hexdigest()
    return ScalarTask(f"inverse_kinematics_{steps}_{'limited' if limits else 'free'}_{which}", given, outputs, text)


class _Steps:
    """The text of `steps_task`."""

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

    def taken(self, steps: int) -> dict[str, Sequence[Any]]:
        """All of them."""
        used: Any = 0.0
        for _ in range(steps):
            used = used + self._step()
        rows = self._rows(False)
        measures = flat_measures(rows)
        rest = MEASURES * (len(self._asked.aims) + 1) - len(measures)
        measured = [*measures, *([0.0] * rest)]
        return {"moved": list(self._q), "measures": measured, "cost": [rows.cost()], "used": [used]}

    def _rows(self, slopes: bool) -> Rows:
        return Scene(self._model, self._asked.aims, self._goals, list(self._q), self._at).rows(slopes)

    def _step(self) -> Any:
        """One step; returns 1, or 0 where there is nothing to do any more."""
        rows = self._rows(True)
        free = self._free(rows)
        onward = None if self._posture is None else self._onward(free)
        dq = self._newton(rows, free, onward)
        left = beyond(rows, (self._least[0], self._least[1]))
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
        """dq without the way to the posture."""
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
            # Each row its own least: a system whose rows have other weights is as definite as before.
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
        """Coordinates within their bounds."""
        if not limits:
            return q
        found = scalars(list(q))
        for k, (lower, upper) in enumerate(zip(*(each.tolist() for each in bounds(self._model)), strict=True)):
            if np.isfinite(lower):
                found[k] = found[k] + relu(lower - found[k])
            if np.isfinite(upper):
                found[k] = found[k] - relu(found[k] - upper)
        return found

    def _free(self, rows: Rows) -> list[Any]:
        """For each degree of freedom 1, or 0 where it is at a limit that the gradient pushes against."""
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
        """M z: the way to the posture, of what is free."""
        assert self._asked.weights is not None
        q, posture = self._q, self._posture
        way = joint_by_joint(self._model, "v", lambda kind, at, _: kind.difference(tuple(q[at]), tuple(posture[at])))
        return [
            0.0 if not weight or is_zero(d) else self._pull * (_ONWARD * weight * d) * f
            for weight, d, f in zip(self._asked.weights, way, free, strict=True)
        ]
