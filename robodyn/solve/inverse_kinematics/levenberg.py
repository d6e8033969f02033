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
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any

import numpy as np

from robodyn.algorithms.definite import is_zero, product
from robodyn.algorithms.joint_limits import dof_of_coordinates
from robodyn.algorithms.manifold import joint_by_joint, scalars, unit
from robodyn.algorithms.relative_motion import OfLink
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.joints import KINDS, is_positive
from robodyn.core.model import Model
from robodyn.core.reach import reach
from robodyn.internals.arguments import Array
from robodyn.solve.inverse_kinematics.aims import MEASURES, AllTasks
from robodyn.solve.inverse_kinematics.levels import step_of
from robodyn.solve.inverse_kinematics.limits import bounds
from robodyn.solve.inverse_kinematics.residuals import Goals, Rows, Scene, beyond, flat_measures, relu, times
from robodyn.solve.inverse_kinematics.secondary import Aside, uphill

DAMPING = 0.02
"""c. It is the best value for half of the arms in the tests. 0.1 is best for the others, by a small margin."""
_FAR = 10.0
"""Errors larger than this times the size of the robot count as far."""
_NEAR = 1e-4
"""Errors up to this times the size of the robot count as near, while approaching an unreachable target."""
_SETTLED, _SETTLED_UPHILL = 1e-3, 2e-4
"""Length of a step to secondary goals, in rad or m, below which they count as reached; with manipulability, whose steps
are shorter."""
_GUESSES = 3
"""How often a step guesses which bounds are active. More do not reach better postures."""
_NEVER = 1e-25
"""Avoids a division by zero. It is negligible beside products of errors and violations of bounds."""
SETTINGS = 9
"""Length of the `settings` input: squares of both tolerances, the distance from a bound that counts as at it, the
smallest lambda for rows of size one, the smallest lambda for degrees of freedom, c, b, far, and 1 to serve
secondary goals and tasks of lower priority or 0 to ignore them."""


@lru_cache(maxsize=64)
def _sliding(model: Model) -> Array:
    """(nv,) True if a degree of freedom only translates, as do all joints that mimic it."""
    translates = np.zeros(model.nv, bool)
    for kind, _, v_index in model.free_joints:
        translates[v_index[:, kind.lengths]] = True
    for body in np.flatnonzero(model.mimics >= 0).tolist():
        translates[model.v_source[model.v_start[body]]] &= bool(KINDS[int(model.joint_kind[body])].lengths)
    return translates


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

    Inputs are `q`, `goals`, `settings`, and if `apart` the numbers `lack` (how much the least distance is too small, in
    m, then its gradient). `goals` are 16 numbers of each aim with a target, the bounds of aims, and the posture if any.
    Outputs are the configuration `moved`, the `measures` of the remaining errors, the `cost` of the highest
    priority and the number of steps `used`.
    """
    numbers = 16 * asked.targets + asked.bounds + asked.posture
    inputs = {"q": Sized(("nq",)), "goals": Sized((numbers,)), "settings": Sized((SETTINGS,))}
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
        self._posture: Any = None
        if asked.weights is not None:
            self._posture = unit(model, given["goals"][len(given["goals"]) - model.nq :])
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
        rows, asked = self._rows(True), self._asked
        levels = [aim.level for aim in asked.aims]
        least = self._least[0], self._least[1]
        left = beyond(rows, levels, least)
        if self._apart is not None:
            lack, away = self._apart
            rows.add(1.0, lack, away, reach(self._model))
            left = left + lack
        free, aside = self._free(rows), None
        if asked.weights is not None or asked.dexterous:
            at = partial(self._at, q=list(self._q))
            aside = uphill(self._model, asked, self._q, self._posture, at)
            aside.step = times(self._pull, aside.step)
        dq, y = self._newton(rows, free, aside)
        for _ in range(_GUESSES if rows.bounded else asked.secondary):
            # The active set: limits and bounds that the step would break.
            free, rows = self._inside(free, dq), rows.foreseen(dq, y)
            dq, y = self._newton(rows, free, aside)
        if asked.secondary:
            length = product(dq, dq)
            settled = _SETTLED_UPHILL if asked.dexterous else _SETTLED
            moving = relu(length - settled * settled)
            if asked.levels > 1:
                moving = moving + is_positive(beyond(rows, levels, least, lower=True)) * relu(length - self._least[1])
            left = left + self._pull * moving
        going = is_positive(left)
        step, q = scalars([0.0 if is_zero(d) else going * d for d in dq]), self._q
        moved = joint_by_joint(
            self._model, "q", lambda kind, at, along: kind.integrate(tuple(q[at]), tuple(step[along]))
        )
        self._q = self._limited(moved, self._limits)
        return going

    def _newton(self, rows: Rows, free: list[Any], aside: Aside | None) -> tuple[list[Any], list[Any] | None]:
        """dq and multipliers of rows. `aside`: where secondary goals lead, if there are any."""
        cost = rows.cost()
        damping = self._damping * cost / np.sqrt(1.0 + self._bend * cost)
        slide: list[Any] = [1.0] * self._model.nv
        if self._sliding.any():
            farther = np.sqrt(1.0 + self._far * cost)
            slide = [farther if sliding else 1.0 for sliding in self._sliding.tolist()]
        floor = self._floor, self._common
        return step_of(rows, free, slide, damping, floor, aside, self._pull, self._asked.levels)

    # Limits.

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
        """For each degree of freedom 1, or 0 if it is at a limit that the first level pushes against."""
        first = rows.of(0)
        J, errors = [rows.J[i] for i in first], [rows.errors[i] for i in first]
        return self._inside(
            [1.0] * self._model.nv, [product([row[v] for row in J], errors) for v in range(self._model.nv)]
        )

    def _inside(self, free: list[Any], way: list[Any]) -> list[Any]:
        """`free`, but 0 for degrees of freedom at a limit beyond which `way` leads."""
        free = list(free)
        if not self._limits:
            return free
        lower, upper = (each.tolist() for each in bounds(self._model))
        for k, v in enumerate(dof_of_coordinates(self._model).tolist()):
            pushed: Any = 0.0
            if v < 0 or not (np.isfinite(lower[k]) or np.isfinite(upper[k])) or is_zero(way[v]):
                continue
            if np.isfinite(upper[k]):
                pushed = pushed + relu(self._q[k] - upper[k] + self._slack) * relu(way[v])
            if np.isfinite(lower[k]):
                pushed = pushed + relu(lower[k] - self._q[k] + self._slack) * relu(-way[v])
            free[v] = free[v] * (1.0 - pushed / (pushed + _NEVER))
        return free
