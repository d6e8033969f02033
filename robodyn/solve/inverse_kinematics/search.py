"""Starts and blocks of steps, until rows of targets are done."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from robodyn.algorithms.tasks import ScalarTask
from robodyn.core.model import Model
from robodyn.engines.protocol import Engine
from robodyn.internals.arguments import Array
from robodyn.internals.array_library import Library
from robodyn.internals.records import dataclass
from robodyn.solve.inverse_kinematics.levenberg import approaching, searching
from robodyn.solve.inverse_kinematics.residuals import MEASURES

_INSIDE = 0.81
"""Of the square of a tolerance: rows stop there, so that rounding does not leave them outside."""
_CARE, _OTHERS, _GLANCE = 16, 12, 4
"""How many times as many steps go to what is nearest; from how many other starts that is looked for, and how many
times as many steps go to that."""
_VECTOR, _WIDE = 8, 512
"""Entries that cost no more than one, and that are run side by side where few rows are left."""


@dataclass
class Found:
    """What is known of rows (B, ...)."""

    q: Array
    measures: Array
    cost: Array
    done: Array
    lost: Array
    iterations: Array
    start: Array

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All of them."""
        return self.q, self.measures, self.cost, self.done, self.lost, self.iterations, self.start


class Search:
    """Starts and blocks of steps, until rows are done.

    Args:
        engine, library, model: what runs, on which arrays.
        task: a block of steps, `robodyn.solve.inverse_kinematics.levenberg.steps_task`.
        steps: how many it takes.
        settings: tolerances, how near a bound counts as at it, and two least lambdas.
        size: of the robot, `robodyn.solve.inverse_kinematics.levenberg.searching`.
        posture: (nq,) or None.
        again: (seeds - 1, nq) configurations to start from after the first.
        blocks: how many to run from each, twice as many from the first.
    """

    def __init__(
        self,
        engine: Engine,
        library: Library,
        model: Model,
        task: ScalarTask,
        steps: int,
        settings: Array,
        size: float,
        posture: Array | None,
        again: Array,
        blocks: int,
    ) -> None:
        self._engine, self._xp, self._model, self._task, self._steps = engine, library.xp, model, task, steps
        self._dtype, self._blocks = again.dtype, blocks
        self._again = library.like_numpy(again)
        self._n = task.outputs["measures"].shape(model)[0] // MEASURES - 1
        distance, angle, *rest = settings.tolist()
        inner = [_INSIDE * distance**2, _INSIDE * np.sin(angle) ** 2, *rest]
        self._least = distance**2, np.sin(angle) ** 2
        self._pulled, self._released, self._careful = (
            library.like_numpy(np.array([[*inner, *damping, pull]], self._dtype))
            for damping, pull in ((searching(size), 1.0), (searching(size), 0.0), (approaching(size), 0.0))
        )
        self._q_des = None if posture is None else library.like_numpy(posture[None].astype(self._dtype))

    def run(self, goals: Array, first: Array) -> Found:
        """What becomes of rows (B, ...)."""
        xp, rows = self._xp, len(goals)
        found = Found(
            first.copy(),
            xp.full((rows, MEASURES * (self._n + 1)), np.nan, self._dtype),
            xp.full(rows, np.inf, self._dtype),
            xp.zeros(rows, bool),
            xp.zeros(rows, bool),
            xp.zeros(rows, np.int64),
            xp.full(rows, -1, np.int64),
        )
        every = xp.asarray(np.arange(rows))
        left = self._from_starts(found, every, goals, first, range(1 + len(self._again)), care=False)
        # The nearest, where there is none: what came nearest on the way to somewhere else need not be near it.
        others = range(1, 1 + min(_OTHERS, len(self._again)))
        left = self._from_starts(found, left, goals, first, others, care=True)
        if len(left):
            self._one(found, left, goals, found.q[left], _CARE * self._blocks, None, care=True)
        return found

    def _from_starts(self, found: Found, left: Array, goals: Array, first: Array, numbers: range, care: bool) -> Array:
        """Some starts, of rows that are left; returns which rows are left then."""
        xp, started = self._xp, numbers.start
        while len(left) and started < numbers.stop:
            beside = _VECTOR if started == 0 else _WIDE
            together = min(max(1, beside // len(left)), numbers.stop - started)
            if together == 1:
                begin = first[left] if started == 0 else xp.repeat(self._again[started - 1][None], len(left), 0)
                blocks = (_GLANCE if care else 2 if started == 0 else 1) * self._blocks
                self._one(found, left, goals, begin, blocks, started, care)
            else:
                self._several(found, left, goals, first, started, together, care)
            started += together
            left = left[~(found.done[left] | found.lost[left])]
        return left

    def _block(self, q: Array, goals: Array, settings: Array, pulls: Any) -> tuple[dict[str, Array], Array]:
        """Some steps, and which entries are where they should be: those that `pulls` to the posture at rest, too."""
        xp, rows = self._xp, len(q)
        inputs = {"q": q, "goals": goals, "settings": xp.broadcast_to(settings, (rows, settings.shape[1]))}
        if self._q_des is not None:
            inputs["q_des"] = xp.broadcast_to(self._q_des, q.shape)
        out = {
            name: xp.empty((rows, *each.shape(self._model)), self._dtype) for name, each in self._task.outputs.items()
        }
        self._engine.compose(self._task, inputs, out)
        out["used"] = xp.where(xp.isfinite(out["used"]), out["used"], 0.0)
        good = self._within(out["measures"])
        if pulls is not False:
            rests = out["used"] < self._steps
            good = good & (rests if pulls is True else rests | ~pulls)
        return out, good

    def _within(self, measures: Array) -> Array:
        """Which entries are within the tolerance."""
        distance, angle = self._least
        good = (measures[:, -MEASURES] <= distance) & (measures[:, -2] <= angle) & (measures[:, -1] <= 0.0)
        for k in range(0, MEASURES * self._n, MEASURES):
            good &= (measures[:, k] <= distance) & (measures[:, k + 1] <= angle) & (measures[:, k + 2] > 0.0)
        return good  # type: ignore[no-any-return]

    def _pulls(self, block: int, blocks: int) -> bool:
        """Whether one of n blocks goes to the posture, too: the last quarter only cares for tasks."""
        return self._q_des is not None and block < blocks - -(-blocks // 4)

    def _one(
        self, found: Found, rows: Array, goals: Array, begin: Array, blocks: int, start: int | None, care: bool
    ) -> None:
        """One start of each row; what is done makes room."""
        q, at = begin, goals[rows]
        for k in range(blocks):
            pulls = not care and self._pulls(k, blocks)
            settings = self._careful if care else self._pulled if pulls else self._released
            out, good = self._block(q, at, settings, pulls)
            finite = self._xp.isfinite(out["cost"])
            if k == 0 and start == 0 and not finite.all():
                found.lost[rows[~finite]] = True
            found.iterations[rows] += out["used"].astype(np.int64)
            leaves = good if k < blocks - 1 else finite
            better = leaves & (good | (out["cost"] < found.cost[rows]))
            self._keep(found, rows[better], {name: array[better] for name, array in out.items()}, good[better], start)
            stays = ~good & finite
            if not stays.any():
                return
            if not stays.all():
                rows, q, at = rows[stays], out["moved"][stays], at[stays]
            else:
                q = out["moved"]

    def _several(
        self, found: Found, rows: Array, goals: Array, first: Array, started: int, together: int, care: bool
    ) -> None:
        """Several starts of each row side by side; the first one that is successful counts."""
        xp, n, blocks = self._xp, len(rows), self._blocks * (_GLANCE if care else 1)
        begin = xp.repeat(self._again[max(0, started - 1) : started - 1 + together][None], n, 0)
        if started == 0:
            begin = xp.concatenate((first[rows][:, None], begin), 1)
        q, at = begin.reshape(n * together, -1), xp.repeat(goals[rows], together, 0)
        used = xp.zeros((n, together), np.int64)
        for k in range(blocks):
            settings, pulls = self._careful if care else self._released, not care and self._pulls(k, blocks)
            if pulls:
                settings = self._pulled
            elif started == 0 and self._pulls(k, 2 * blocks):  # the first start has more time
                settings, pulls = xp.repeat(self._released, n * together, 0), xp.zeros(n * together, bool)
                settings[::together], pulls[::together] = self._pulled, True
            more, reached = self._block(q, at, settings, pulls)
            if k == 0:
                out, good = more, reached
                if started == 0:
                    found.lost[rows[~xp.isfinite(out["cost"][::together])]] = True
            else:  # what is done stays as it is, as it does where it makes room
                more["used"][good] = 0.0
                out = {name: _chosen(xp, good, out[name], array) for name, array in more.items()}
                good = good | reached
            used += more["used"].astype(np.int64).reshape(n, together)
            if good[::together].all():
                break
            q = out["moved"]
        good = good.reshape(n, together)
        entries = {name: array.reshape(n, together, *array.shape[1:]) for name, array in out.items()}
        if started == 0:
            late = xp.flatnonzero(~good[:, 0])
            for k in range(blocks, 2 * blocks):
                if not len(late):
                    break
                pulls = self._pulls(k, 2 * blocks)
                settings = self._pulled if pulls else self._released
                more, reached = self._block(entries["moved"][late, 0], goals[rows[late]], settings, pulls)
                for name, array in more.items():
                    entries[name][late, 0] = array
                used[late, 0] += more["used"].astype(np.int64)
                good[late[reached], 0] = True
                late = late[~reached]
        finite = xp.isfinite(entries["cost"])
        successful = cast(Array, good.any(axis=1))
        cost = xp.where(finite, entries["cost"], np.inf)
        chosen = xp.where(successful, good.argmax(axis=1), cost.argmin(axis=1))
        counted = xp.where(successful, chosen, together - 1)
        found.iterations[rows] += xp.where(xp.asarray(np.arange(together))[None] <= counted[:, None], used, 0).sum(
            axis=1
        )
        entry = xp.asarray(np.arange(n)), chosen
        better = ~found.lost[rows] & (successful | (entries["cost"][entry] < found.cost[rows]))
        kept = {name: array[entry][better] for name, array in entries.items()}
        self._keep(found, rows[better], kept, successful[better], started + chosen[better])

    def _keep(self, found: Found, rows: Array, out: dict[str, Array], good: Array, start: Any) -> None:
        """Note what is better than what was known."""
        found.q[rows], found.measures[rows], found.cost[rows] = out["moved"], out["measures"], out["cost"]
        found.done[rows] = good
        if start is not None:
            found.start[rows] = start


def _chosen(xp: Any, which: Array, one: Array, other: Array) -> Array:
    """Rows of one array where `which`, else of the other."""
    return cast(Array, xp.where(which.reshape(-1, *(1,) * (one.ndim - 1)), one, other))
