"""Runs blocks of Levenberg-Marquardt steps from several seeds, until all targets have converged."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np

from robodyn.algorithms.tasks import ScalarTask
from robodyn.core.model import Model
from robodyn.engines.protocol import Engine
from robodyn.internals.arguments import Array
from robodyn.internals.array_library import Library
from robodyn.internals.records import dataclass
from robodyn.solve.inverse_kinematics.aims import MEASURES, AllTasks
from robodyn.solve.inverse_kinematics.branch import Branch
from robodyn.solve.inverse_kinematics.clearance import Clearance
from robodyn.solve.inverse_kinematics.levenberg import approaching, searching

_INSIDE = 0.81
"""Factor of the squared tolerances in the compiled program. The margin allows for rounding errors of results."""
_CARE, _OTHERS, _GLANCE = 16, 12, 4
"""Search for the nearest configuration of an unreachable target. `_CARE`: factor of the steps that refine the best
configuration. `_OTHERS`: number of other seeds tried. `_GLANCE`: factor of the steps from each of them."""
_PUSHED, _PUSHES = 16, 24
"""Where solutions are too near to something: most starts whose solutions are moved apart, and most steps for that."""
_SAME = {"float64": 1e-6, "float32": 1e-4}
"""By how much the cost of the highest priority may grow relative to itself, where it is out of reach and tasks of lower
priority are served."""
_VECTOR, _WIDE = 8, 512
"""Largest batches that run several seeds of a target at once. `_VECTOR`, for the first seed, costs no more than a
single entry. `_WIDE` is for all later seeds."""


@dataclass
class Found:
    """The best result so far of each target (B, ...).

    `q`: configurations; `measures`: errors, `MEASURES` numbers for each aim and for the constraints; `cost`: weighted
    sum of squares; `done`: True if converged; `lost`: True if the target or q0 is not finite; `iterations`: steps
    taken; `start`: index of the seed, -1 if there is none.
    """

    q: Array
    measures: Array
    cost: Array
    done: Array
    lost: Array
    iterations: Array
    start: Array

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All fields, in order."""
        return self.q, self.measures, self.cost, self.done, self.lost, self.iterations, self.start


class Settings(NamedTuple):
    """Settings of blocks that ignore secondary goals, and of those that serve them; and the largest squared errors of
    tasks that are fulfilled, of the distance and of the sine of the angle."""

    released: Array
    pulled: Array
    least: tuple[float, float]


def pulls_until(blocks: int) -> int:
    """The number of blocks that also serve secondary goals. The last quarter only serves the highest priority."""
    return blocks - -(-blocks // 4)


class Search:
    """Runs blocks of steps from several seeds, until all targets have converged.

    Args:
        engine, library, model: the engine that runs the steps, the array library, and the robot.
        task: a block of steps, from `robodyn.solve.inverse_kinematics.levenberg.steps_task`.
        steps: number of steps in a block.
        settings: two tolerances, the distance from a bound that counts as at it, and two smallest lambdas.
        size: size of the robot, as in `robodyn.solve.inverse_kinematics.levenberg.searching`.
        asked: all tasks.
        again: (seeds - 1, nq) initial configurations after the first, or (B, seeds - 1, nq) for each target.
        blocks: number of blocks from each seed, twice as many from the first.
        apart: a step that moves links apart, too; None if solutions need no clearance.
        branch: the only solutions that count; None: all.

    `settings`: those of blocks, (1, k).
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
        asked: AllTasks,
        again: Array,
        blocks: int,
        apart: ScalarTask | None = None,
        branch: Branch | None = None,
    ) -> None:
        self._engine, self._xp, self._model, self._task, self._steps = engine, library.xp, model, task, steps
        self._dtype, self._blocks, self._apart = again.dtype, blocks, apart
        self._clearance: Clearance | None = None
        self._branch = branch
        self._again = library.like_numpy(again)
        self._asked, self._secondary, self._highest = asked, asked.secondary, asked.highest
        distance, angle, *rest = settings.tolist()
        inner = [_INSIDE * distance**2, _INSIDE * np.sin(angle) ** 2, *rest]
        pulled, released, self._careful_pulled, self._careful = (
            library.like_numpy(np.array([[*inner, *damping, pull]], self._dtype))
            for damping in (searching(size), approaching(size))
            for pull in (1.0, 0.0)
        )
        self.settings = Settings(released, pulled, (distance**2, np.sin(angle) ** 2))

    def run(self, goals: Array, first: Array, clearance: Clearance | None = None, *, nearest: bool = True) -> Found:
        """Solves for a batch of targets (B, ...), whose solutions keep a clearance. `nearest`: True to search for the
        nearest configuration where no seed converges."""
        xp, rows, self._clearance = self._xp, len(goals), clearance
        results = Found(
            first.copy(),
            xp.full((rows, MEASURES * (len(self._asked.aims) + 1)), np.nan, self._dtype),
            xp.full(rows, np.inf, self._dtype),
            xp.zeros(rows, bool),
            xp.zeros(rows, bool),
            xp.zeros(rows, np.int64),
            xp.full(rows, -1, np.int64),
        )
        all_rows = xp.asarray(np.arange(rows))
        unsolved = self._from_starts(results, all_rows, goals, first, range(1 + self._others), care=False)
        if clearance is not None:
            reached = self._within(results.measures[unsolved])
            self._push(results, unsolved[reached], goals, first)
            unsolved = unsolved[~reached]
        # No seed has converged: search for the nearest configuration. The best so far is often a poor start for that.
        if not nearest:
            return results
        others = range(1, 1 + min(_OTHERS, self._others))
        unsolved = self._from_starts(results, unsolved, goals, first, others, care=True)
        if len(unsolved):
            self._one(results, unsolved, goals, results.q[unsolved], _CARE * self._blocks, None, care=True)
        if len(unsolved) and self._asked.levels > 1:
            self._lower(results, unsolved, goals)
        return results

    def _lower(self, found: Found, rows: Array, goals: Array) -> None:
        """Serves tasks of lower priority where those of the highest are out of reach, then returns to what is nearest
        for these. Where that fails, results stay as they are."""
        q, pulled = found.q[rows], pulls_until(2 * self._blocks)
        for k in range(pulled + _CARE * self._blocks):
            out, _ = self._block(q, goals[rows], self._careful_pulled if k < pulled else self._careful, True)
            found.iterations[rows] += out["used"].astype(np.int64)
            kept = out["cost"] <= found.cost[rows] * (1.0 + _SAME[self._dtype.name])
            if k < pulled:
                kept &= out["used"] < self._steps
            self._keep(found, rows[kept], {name: array[kept] for name, array in out.items()}, False, None)
            rows, q = rows[~kept], out["moved"][~kept]
            if not len(rows):
                return

    @property
    def _others(self) -> int:
        """Number of seeds after the first."""
        return int(self._again.shape[-2])

    def _other_starts(self, rows: Array, first: int, last: int) -> Array:
        """Seeds (k, last - first, nq) of some targets; 0 is the first one after q0."""
        if self._again.ndim == 2:
            return cast(Array, self._xp.repeat(self._again[None, first:last], len(rows), 0))
        return self._again[rows, first:last]

    def _from_starts(self, found: Found, left: Array, goals: Array, first: Array, numbers: range, care: bool) -> Array:
        """Tries a range of seeds on unsolved targets; returns the targets that are still unsolved."""
        started = numbers.start
        while len(left) and started < numbers.stop:
            most_entries = _VECTOR if started == 0 else _WIDE
            together = min(max(1, most_entries // len(left)), numbers.stop - started)
            if together == 1:
                begin = first[left] if started == 0 else self._other_starts(left, started - 1, started)[:, 0]
                blocks = (_GLANCE if care else 2 if started == 0 else 1) * self._blocks
                self._one(found, left, goals, begin, blocks, started, care)
            else:
                self._several(found, left, goals, first, started, together, care)
            started += together
            left = left[~(found.done[left] | found.lost[left])]
        return left

    def _block(
        self, q: Array, goals: Array, settings: Array, pulls: Any, apart: dict[str, Array] | None = None
    ) -> tuple[dict[str, Array], Array]:
        """Runs one block of steps; returns its outputs and which entries have converged.

        Entries with `pulls` serve secondary goals. They have converged once they no longer move. `apart`: inputs of the
        step that moves links apart.
        """
        task = self._task
        if apart is not None:
            assert self._apart is not None
            task = self._apart
        xp, rows = self._xp, len(q)
        inputs = {"q": q, "goals": goals, "settings": xp.broadcast_to(settings, (rows, settings.shape[1]))}
        out = {name: xp.empty((rows, *each.shape(self._model)), self._dtype) for name, each in task.outputs.items()}
        self._engine.compose(task, inputs | (apart or {}), out)
        # A program adds steps up as floats, with roundings.
        out["used"] = xp.rint(xp.where(xp.isfinite(out["used"]), out["used"], 0.0))
        good = self._within(out["measures"])
        if pulls is not False:
            at_rest = out["used"] < self._steps
            good = good & (at_rest if pulls is True else at_rest | ~pulls)
        return out, good

    def _within(self, measures: Array) -> Array:
        """True for entries within the tolerance."""
        distance, angle = self.settings.least
        good = (measures[:, -MEASURES] <= distance) & (measures[:, -2] <= angle) & (measures[:, -1] <= 0.0)
        for k in self._highest:
            good &= (measures[:, k] <= distance) & (measures[:, k + 1] <= angle) & (measures[:, k + 2] > 0.0)
        return good

    def _pulls(self, block: int, blocks: int) -> bool:
        """True if a block also serves secondary goals and tasks of lower priority."""
        return self._secondary and block < pulls_until(blocks)

    def _one(
        self, found: Found, rows: Array, goals: Array, begin: Array, blocks: int, start: int | None, care: bool
    ) -> None:
        """Runs one seed of each target. Targets that have converged leave the batch."""
        q, targets = begin, goals[rows]
        for k in range(blocks):
            pulls = not care and self._pulls(k, blocks)
            settings = self._careful if care else self.settings.pulled if pulls else self.settings.released
            out, good = self._block(q, targets, settings, pulls)
            finite = self._xp.isfinite(out["cost"])
            if k == 0 and start == 0 and not finite.all():
                found.lost[rows[~finite]] = True
            found.iterations[rows] += out["used"].astype(np.int64)
            leaves = good if k < blocks - 1 else finite
            done = self._free(out["moved"], rows, good)
            better = leaves & (done | (out["cost"] < found.cost[rows]))
            self._keep(found, rows[better], {name: array[better] for name, array in out.items()}, done[better], start)
            stays = ~good & finite
            if not stays.any():
                return
            if not stays.all():
                rows, q, targets = rows[stays], out["moved"][stays], targets[stays]
            else:
                q = out["moved"]

    def _several(
        self, found: Found, rows: Array, goals: Array, first: Array, started: int, together: int, care: bool
    ) -> None:
        """Runs several seeds of each target in one batch. The first successful seed of a target is kept."""
        xp, n, blocks = self._xp, len(rows), self._blocks * (_GLANCE if care else 1)
        begin = self._other_starts(rows, max(0, started - 1), started - 1 + together)
        if started == 0:
            begin = xp.concatenate((first[rows][:, None], begin), 1)
        q, at = begin.reshape(n * together, -1), xp.repeat(goals[rows], together, 0)
        used = xp.zeros((n, together), np.int64)
        for k in range(blocks):
            settings, pulls = self._careful if care else self.settings.released, not care and self._pulls(k, blocks)
            if pulls:
                settings = self.settings.pulled
            elif started == 0 and self._pulls(k, 2 * blocks):  # the first seed has twice as many blocks
                settings, pulls = xp.repeat(self.settings.released, n * together, 0), xp.zeros(n * together, bool)
                settings[::together], pulls[::together] = self.settings.pulled, True
            more, reached = self._block(q, at, settings, pulls)
            if k == 0:
                out, good = more, reached
                if started == 0:
                    found.lost[rows[~xp.isfinite(out["cost"][::together])]] = True
            else:  # converged entries do not change: `_one` removes them from its batch
                more["used"][good] = 0.0
                out = {name: _select_rows(xp, good, out[name], array) for name, array in more.items()}
                good = good | reached
            used += more["used"].astype(np.int64).reshape(n, together)
            first_ones = good[::together]
            if first_ones.all() and self._free(out["moved"][::together], rows, first_ones).all():
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
                settings = self.settings.pulled if pulls else self.settings.released
                more, reached = self._block(entries["moved"][late, 0], goals[rows[late]], settings, pulls)
                for name, array in more.items():
                    entries[name][late, 0] = array
                used[late, 0] += more["used"].astype(np.int64)
                good[late[reached], 0] = True
                late = late[~reached]
        good = self._free(entries["moved"].reshape(n * together, -1), xp.repeat(rows, together), good.ravel())
        good, finite = good.reshape(n, together), xp.isfinite(entries["cost"])
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

    def _free(self, q: Array, rows: Array, good: Array) -> Array:
        """Those entries that have converged, keep the clearance and are on the branch. `rows`: their targets."""
        if self._branch is not None:
            good = good & self._branch.holds(q)
        if self._clearance is None or not good.any():
            return good
        free = good.copy()
        free[good] = self._clearance.holds(q[good], rows[good])
        return free

    def _push(self, found: Found, left: Array, goals: Array, first: Array) -> None:
        """Moves links apart, from the solutions that each start leads to. The first start with which it succeeds
        counts, whatever the other targets are."""
        starts, done, blocks = min(_PUSHED, 1 + self._others), 0, 2 * self._blocks
        while len(left) and done < starts:
            together = min(max(1, _WIDE // len(left)), starts - done)
            numbers = np.tile(np.arange(done, done + together), len(left))
            rows = np.repeat(left, together)
            q = self._other_starts(left, max(0, done - 1), done - 1 + together)
            if done == 0:
                q = np.concatenate((first[left][:, None], q), 1)
            q = q.reshape(len(rows), -1)
            taken = np.zeros(len(rows), np.int64)
            for k in range(blocks):
                pulls = self._pulls(k, blocks)
                settings = self.settings.pulled if pulls else self.settings.released
                out, good = self._block(q, goals[rows], settings, pulls)
                q = out["moved"]
                taken += out["used"].astype(np.int64)
                if good.all():
                    break
            self._push_apart(found, rows[good], numbers[good], q[good], goals, taken[good])
            left, done = left[~found.done[left]], done + together

    def _push_apart(self, found: Found, rows: Array, numbers: Array, q: Array, goals: Array, taken: Array) -> None:
        """Steps that move links apart, of solutions `q` for the targets `rows` from starts with these `numbers`, which
        ascend for each target. `taken`: the steps that led to the solutions."""
        assert self._clearance is not None
        best = np.full(len(found.done), np.iinfo(np.int64).max)
        begun, going = (rows, numbers), np.arange(len(rows))
        for _ in range(_PUSHES):
            if not len(going):
                break
            lack, away = self._clearance.lacks(q, rows)
            out, good = self._block(q, goals[rows], self.settings.released, False, {"lack": lack, "away": away})
            taken[going] += 1
            free = self._free(out["moved"], rows, good)
            targets, at = np.unique(rows[free], return_index=True)
            chosen = np.flatnonzero(free)[at]
            better = numbers[chosen] < best[targets]
            targets, chosen = targets[better], chosen[better]
            best[targets] = numbers[chosen]
            kept = {name: array[chosen] for name, array in out.items()}
            self._keep(found, targets, kept, np.ones(len(targets), bool), numbers[chosen])
            stays = ~free & np.isfinite(out["cost"]) & (numbers < best[rows])
            rows, numbers, going, q = rows[stays], numbers[stays], going[stays], out["moved"][stays]
        counted = begun[1] <= best[begun[0]]
        np.add.at(found.iterations, begun[0][counted], taken[counted])

    def _keep(self, found: Found, rows: Array, out: dict[str, Array], good: Any, start: Any) -> None:
        """Stores results that are better than those so far."""
        found.q[rows], found.measures[rows], found.cost[rows] = out["moved"], out["measures"], out["cost"]
        found.done[rows] = good
        if start is not None:
            found.start[rows] = start


def _select_rows(xp: Any, which: Array, one: Array, other: Array) -> Array:
    """Rows of `one` where `which` is True, else of `other`."""
    return cast(Array, xp.where(which.reshape(-1, *(1,) * (one.ndim - 1)), one, other))
