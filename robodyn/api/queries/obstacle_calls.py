"""Calls about obstacles for one state, prepared: memory and programs are kept between calls.

Blocks of obstacles are rows of a batch, so a vector of states computes several blocks at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.algorithms.distances.tasks import BLOCKS, OBSTACLES, Asked, obstacle_groups, task_of
from robodyn.api.queries.obstacles import Obstacles
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

if TYPE_CHECKING:
    from robodyn.api.queries.core import Core

_MOST_OPERATIONS = 60_000
"""Rough operations of all programs of a call up to which it is prepared."""
_MOST = 32
"""Prepared calls that a `Dynamics` keeps: one for each query, and numbers of obstacles."""
_WAITING = 4
"""Calls of equal numbers that are kept, for threads that call at once."""
_KEPT = "_obstacle_calls"


@dataclass(frozen=True)
class _Part:
    """A program: what it is asked, rows of obstacles (blocks, block, n), and where its distances are in the result:
    `columns` (blocks * shapes * block), -1 for copies of the last obstacle."""

    asked: Asked
    given: Mapping[str, Array]
    columns: Array


class ObstacleCall:
    """A query about one state and obstacles of these numbers.

    Args:
        dyn: the `Dynamics`.
        name: of the query.
        obstacles: some with these numbers.
    """

    def __init__(self, dyn: Core, name: str, obstacles: Obstacles) -> None:
        self.engine, self.model = dyn.engine, dyn.model
        self._nothing = np.zeros(dyn.model.nq, dyn.dtype)
        self._q = np.zeros(dyn.model.nq, dyn.dtype)
        self._blocks = {
            kind: np.zeros((-(-rows.shape[-2] // BLOCKS[kind]), BLOCKS[kind], OBSTACLES[kind]), dyn.dtype)
            for kind, rows in obstacles.rows().items()
        }
        self._of: Obstacles | None = None
        self._runs: list[Callable[[], None]] | None = None
        parts = list(self._parts(obstacles))
        if not parts or sum(part.asked.least_operations(self.model) for part in parts) > _MOST_OPERATIONS:
            return
        sizes = [len(part.columns) for part in parts]
        ends = np.cumsum([0, *sizes])
        rows = [next((len(each) for each in part.given.values()), 1) for part in parts]
        firsts = np.cumsum([0, *rows])
        nv, dtype = dyn.model.nv, dyn.dtype
        task, self._finish = name, self._least
        if name == "min_distance_gradient":
            task, self._finish = "min_distance_with_gradient", self._least_gradient
        elif name != "min_distance":
            self._finish = self._gathered
            columns = np.concatenate([part.columns for part in parts])
            used = np.flatnonzero(columns >= 0)
            self._order = used[np.argsort(columns[used])]
        total = int(firsts[-1] if name.startswith("min") else ends[-1])
        self._d = np.zeros((total, nv) if name == "distances_gradient" else total, dtype)
        self._rows = np.zeros((total, nv), dtype)
        shape = self._d[self._order].shape if self._finish == self._gathered else self._rows.shape[1:]
        self._zeros = np.zeros(int(np.prod(shape)), dtype)
        runs: list[Callable[[], None]] = []
        for k, part in enumerate(parts):
            if name.startswith("min"):
                outputs = [self._d[firsts[k] : firsts[k + 1]], self._rows[firsts[k] : firsts[k + 1]]]
            else:
                outputs = [self._d[ends[k] : ends[k + 1]].reshape(rows[k], part.asked.size, *self._d.shape[1:])]
            asked = task_of(task, self.model, part.asked)
            inputs = {"q": np.broadcast_to(self._q, (rows[k], self.model.nq)), **part.given}
            run = self.engine.bound(asked, inputs, dict(zip(asked.outputs, outputs, strict=False)))
            if run is None:
                return
            runs.append(run)
        self._runs = runs

    def _parts(self, obstacles: Obstacles) -> Iterator[_Part]:
        pairs, near, start = self.model.pairs, obstacles.near(self.model), 0
        n = len(pairs)
        if n:
            yield _Part(Asked(pairs), {}, np.arange(n))
        total = obstacles.count
        for kind, rows in obstacles.rows().items():
            k, blocks = rows.shape[-2], self._blocks[kind]
            obstacle = np.arange(len(blocks) * BLOCKS[kind]).reshape(len(blocks), 1, BLOCKS[kind])
            for first, asked in obstacle_groups(self.model.collision_geometries, near, kind):
                shape = first + np.arange(len(asked.near))[:, None]
                columns = np.where(obstacle < k, n + shape * total + start + obstacle, -1)
                yield _Part(asked, {kind: blocks}, columns.ravel())
            start += k

    @property
    def works(self) -> bool:
        """True if the engine has all programs."""
        return self._runs is not None

    def __call__(self, q: Array, obstacles: Obstacles, checked: bool) -> Any:
        """The result for coordinates (nq,) in the precision of the `Dynamics`; None if a number is not finite and
        values are checked."""
        assert self._runs is not None
        if self._of is not obstacles:
            self._of = None  # a call that ends here leaves mixed obstacles
            for kind, rows in obstacles.rows().items():
                flat = self._blocks[kind].reshape(-1, OBSTACLES[kind])
                flat[: len(rows)], flat[len(rows) :] = rows, rows[-1]
            self._of = obstacles
        self._q[:] = q
        for run in self._runs:
            run()
        result = self._finish()
        if checked and not (q.dot(self._nothing) == 0.0 and self._is_finite(result)):
            return None
        return result

    def _is_finite(self, result: Any) -> bool:
        if isinstance(result, np.ndarray):
            return bool(result.ravel().dot(self._zeros) == 0.0)
        return bool(result - result == 0.0)

    def _least(self) -> Any:
        return self._d.min()

    def _least_gradient(self) -> Array:
        nearest: Array = self._rows[self._d.argmin()].copy()
        return nearest

    def _gathered(self) -> Array:
        return self._d.take(self._order, axis=0)


def prepared(dyn: Core, name: str, q: Array, obstacles: Obstacles, checked: bool) -> Any | None:
    """The result of a query for one state by a call that is kept; None if there is none, or the method shall report
    what is wrong.

    Args:
        dyn: the `Dynamics`.
        name: of the query.
        q: (nq,) in its precision.
        obstacles: one set.
        checked: True if all numbers must be finite.
    """
    numbers = obstacles.numbers
    if numbers is None or not dyn.engine.native or not dyn.model.n_bodies or dyn._options.code == "rolled":
        return None
    kept: dict[Any, list[ObstacleCall] | None] = vars(dyn).setdefault(_KEPT, {})
    key = name, numbers
    waiting = kept.get(key)
    if waiting is None and key in kept:  # it cannot be prepared
        return None
    try:  # calls in progress, as of other threads, are not among those that wait
        call = None if waiting is None else waiting.pop()
    except IndexError:
        call = None
    if call is None or call.engine is not dyn.engine or call.model is not dyn.model:
        call = ObstacleCall(dyn, name, obstacles)
        if len(kept) >= _MOST:
            kept.clear()
        if not call.works:
            if dyn._options.compile != "background":
                kept[key] = None
            return None
    result = call(q, obstacles, checked)
    waiting = kept.setdefault(key, [])
    if waiting is not None and len(waiting) < _WAITING:
        waiting.append(call)
    return result
