"""Single shooting of many problems, a few at a time on arrays that stay in the cache. A problem that is done makes room
for the next one."""

from __future__ import annotations

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.solve.trajectories.fixed_arrays import FixedArrays
from robodyn.solve.trajectories.iteration_code import DONE
from robodyn.solve.trajectories.problem import Plan
from robodyn.solve.trajectories.shooting import CONVERGED, MOST_MU, RUNNING, STALLED, Search

_PLACES, _FEWER, _CACHE = 16, 8, 1 << 18
"""Problems at a time, for each thread, and fewer if their derivatives and gains have more numbers than the
second-level cache (L2)."""


class PooledSearch(Search):
    """A `Search` whose problems take turns, if `FixedArrays` are possible."""

    @cached_property
    def pooled(self) -> bool:
        """Whether problems take turns."""
        return self.curvature is None and FixedArrays.possible(self.problem)

    def run(self, rows: Array, iterations: int, tolerance: float) -> None:
        """At most so many iterations of the given problems."""
        nv, nu = self.problem.nv, self.problem.nu
        near = _PLACES * self.problem.steps * 2 * nv * (2 * nv + 3 * nu) <= _CACHE
        most = min(len(rows), (_PLACES if near else _FEWER) * getattr(self.problem.dyn.engine, "threads", 1))
        if not most or not self.pooled:
            super().run(rows, iterations, tolerance)
            return
        self.begin(rows)
        self.logged(rows, self.cost[rows])
        waiting = rows[self.status[rows] == RUNNING]
        if waiting.size:
            _Pool(self, min(most, len(waiting)), iterations, tolerance).run(waiting)


class _Pool:
    """Places for problems; those with one are the first `used`.

    Args:
        search: has the trajectories before and after.
        places: number of places.
        iterations, tolerance: as of `Search.run`.
    """

    def __init__(self, search: PooledSearch, places: int, iterations: int, tolerance: float) -> None:
        self._search, self._most = search, iterations
        plan: Plan = (
            np.zeros((places, *search.q.shape[1:])),
            np.zeros((places, *search.qd.shape[1:])),
            np.zeros((places, *search.u.shape[1:])),
        )
        gains, mu, cost = np.zeros((places, *search.gains.shape[1:])), np.zeros(places), np.zeros(places)
        self._count, self._rows, self._used = np.zeros(places, np.int64), np.zeros(places, np.int64), 0
        self._arrays = FixedArrays(search.problem, self._rows, plan, gains, cost, mu, tolerance)
        self._pairs = tuple(zip((*plan, gains, cost, mu), _arrays_of(search), strict=True))

    def run(self, waiting: Array) -> None:
        """Solve problems."""
        search, arrays = self._search, self._arrays
        self._used = min(len(self._rows), len(waiting))
        self._load(np.arange(self._used), waiting[: self._used])
        waiting = waiting[self._used :]
        while self._used:
            ended = np.flatnonzero(self._iterate())
            search.logged(self._rows[: self._used].copy(), arrays.cost[: self._used].copy())
            self._save(ended)
            filled = ended[: len(waiting)]
            self._load(filled, waiting[: len(filled)])
            waiting = waiting[len(filled) :]
            for place in reversed(ended[len(filled) :].tolist()):
                self._used -= 1
                self._move(self._used, place)
            search.tick(int((search.status != RUNNING).sum()))

    def _iterate(self) -> Array:
        """One iteration of all; returns which are done."""
        m, arrays, status = self._used, self._arrays, self._search.status
        arrays.iterate(m)
        done, stalled, rows = arrays.outcome[:m] == DONE, arrays.mu[:m] > MOST_MU, self._rows[:m]
        status[rows[stalled]], status[rows[done]] = STALLED, CONVERGED
        self._count[:m] += ~done
        ended: Array = done | stalled | (self._count[:m] >= self._most)
        return ended

    def _load(self, places: Array, rows: Array) -> None:
        if not places.size:
            return
        problem, (q, qd) = self._search.problem, self._arrays.start
        for own, each in self._pairs:
            own[places] = each[rows]
        q[places], qd[places] = problem.q0[rows], problem.qd0[rows]
        self._count[places], self._rows[places] = 0, rows
        self._arrays.read(rows, places)

    def _save(self, places: Array) -> None:
        if not places.size:
            return
        rows = self._rows[places]
        for own, each in self._pairs:
            each[rows] = own[places]
        self._search.iterations[rows] += self._count[places]

    def _move(self, source: int, to: int) -> None:
        if source == to:
            return
        for each in (*(own for own, _ in self._pairs), *self._arrays.start, self._count, self._rows):
            each[to] = each[source]
        self._arrays.move(source, to)


def _arrays_of(search: Search) -> tuple[Array, ...]:
    """What a problem has from one iteration to the next."""
    return search.q, search.qd, search.u, search.gains, search.cost, search.mu
