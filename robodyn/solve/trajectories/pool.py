"""Single shooting of many problems, a few at a time on arrays that stay in the cache. A problem that is done makes room
for the next one."""

from __future__ import annotations

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.solve.trajectories.fixed_arrays import FixedArrays, copied
from robodyn.solve.trajectories.problem import Plan, part_of
from robodyn.solve.trajectories.shooting import (
    CONVERGED,
    LEAST_MU,
    MOST_MU,
    RUNNING,
    STALLED,
    Search,
    falls_enough,
    relaxed,
    shorter_steps,
    stiffened,
)

_PLACES = 32
"""Problems at a time, for each thread."""


class PooledSearch(Search):
    """A `Search` whose problems take turns, if `FixedArrays` are possible."""

    def run(self, rows: Array, iterations: int, tolerance: float) -> None:
        """At most so many iterations of the given problems."""
        most = min(len(rows), _PLACES * getattr(self.problem.dyn.engine, "threads", 1))
        if not most or self.curvature is not None or not FixedArrays.possible(self.problem, most):
            super().run(rows, iterations, tolerance)
            return
        self.begin(rows)
        self.logged(rows, self.cost[rows])
        waiting = rows[self.status[rows] == RUNNING][::-1].tolist()
        if waiting:
            _Pool(self, min(most, len(waiting)), iterations, tolerance).run(waiting)


class _Pool:
    """Places for problems; those with one are the first `used`.

    Args:
        search: has the trajectories before and after.
        places: number of places.
        iterations, tolerance: as of `Search.run`.
    """

    def __init__(self, search: PooledSearch, places: int, iterations: int, tolerance: float) -> None:
        self._search, self._most, self._tolerance = search, iterations, tolerance
        self._plan: Plan = (
            np.zeros((places, *search.q.shape[1:])),
            np.zeros((places, *search.qd.shape[1:])),
            np.zeros((places, *search.u.shape[1:])),
        )
        self._gains, self._mu = np.zeros((places, *search.gains.shape[1:])), np.zeros(places)
        self._cost, self._count = np.zeros(places), np.zeros(places, np.int64)
        self._rows, self._used = np.zeros(places, np.int64), 0
        self._arrays = FixedArrays(search.problem, self._rows, self._plan, self._gains, self._mu)

    def run(self, waiting: list[int]) -> None:
        """Solve problems, the last one first."""
        for place in range(min(len(self._rows), len(waiting))):
            self._load(place, waiting.pop())
            self._used += 1
        search = self._search
        while self._used:
            ended = self._iterate()
            search.logged(self._rows[: self._used].copy(), self._cost[: self._used].copy())
            for place in reversed(np.flatnonzero(ended).tolist()):
                self._save(place)
                if waiting:
                    self._load(place, waiting.pop())
                else:
                    self._used -= 1
                    self._move(self._used, place)
            search.tick(int((search.status != RUNNING).sum()))

    def _iterate(self) -> Array:
        """One iteration of all; returns which are done."""
        m, arrays, search = self._used, self._arrays, self._search
        arrays.solve(m)
        ok, expected, rows = arrays.ok[:m].copy(), arrays.expected[:m], self._rows[:m]
        cost, mu, before = self._cost[:m], self._mu[:m], self._cost[:m].copy()
        with np.errstate(all="ignore"):
            change = expected[:, 0] + expected[:, 1]
            done = ok & (np.abs(change) <= self._tolerance * np.abs(cost)) & (mu <= LEAST_MU)
            trying = ok & ~done
            after = arrays.roll_out(m, with_step=True)
            taken = trying & falls_enough(after - cost, change)
        _copy(self._gains[:m], arrays.K[:m], ok)
        for to, each in zip(self._plan, arrays.trial, strict=True):
            _copy(to[:m], each[:m], taken)
        _copy(cost, after, taken)
        left = np.flatnonzero(trying & ~taken)
        eased = taken
        if left.size:
            part = part_of(self._plan, left)
            found = shorter_steps(
                search.problem, rows[left], part, before[left], arrays.k[left], arrays.K[left], expected[left]
            )
            number, tried, value = found
            at = left[number >= 0]
            for to, each in zip((*self._plan, self._cost), (*tried, value), strict=True):
                to[at] = each
            eased[left[number == 0]] = True
            trying[left[number < 0]] = False
        failed = ~(trying | done)
        mu[...] = np.where(eased, relaxed(mu), mu)
        mu[failed] = stiffened(mu[failed])
        search.status[rows[done]] = CONVERGED
        stalled = failed & (mu > MOST_MU)
        search.status[rows[stalled]] = STALLED
        self._count[:m] += ~done
        ended: Array = done | stalled | (self._count[:m] >= self._most)
        return ended

    def _load(self, place: int, row: int) -> None:
        search, problem = self._search, self._search.problem
        copied((each[place] for each in self._plan), (search.q[row], search.qd[row], search.u[row]))
        q, qd, _ = self._arrays.trial
        q[place, 0], qd[place, 0] = problem.q0[row], problem.qd0[row]
        self._gains[place] = search.gains[row]
        self._mu[place], self._cost[place] = search.mu[row], search.cost[row]
        self._count[place], self._rows[place] = 0, row
        self._arrays.read(np.array([row]), place)

    def _save(self, place: int) -> None:
        search, row = self._search, self._rows[place]
        copied((search.q[row], search.qd[row], search.u[row]), (each[place] for each in self._plan))
        search.gains[row] = self._gains[place]
        search.mu[row], search.cost[row] = self._mu[place], self._cost[place]
        search.iterations[row] += self._count[place]

    def _move(self, source: int, to: int) -> None:
        if source == to:
            return
        q, qd, _ = self._arrays.trial
        for each in (*self._plan, q[:, 0], qd[:, 0], self._gains, self._mu, self._cost, self._count, self._rows):
            each[to] = each[source]
        self._arrays.move(source, to)


def _copy(to: Array, source: Array, where: Array) -> None:
    """Copy rows of an array."""
    if where.all():
        to[...] = source
    else:
        to[where] = source[where]
