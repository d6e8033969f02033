"""Which engine answers NumPy arrays where the choice is "auto": the CPU engine, unless another one was measured to be
faster.

A measurement is a row of a table, which `robodyn tune` makes and keeps: the time of a query on a batch of states of a
tree on one engine. A call takes the engine that was fastest at the measured tree and batch nearest to its own. Arrays
on a GPU are answered there, whatever the table says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.errors import ArgumentError, UnavailableError
from robodyn.measurements import Subject, load, store
from robodyn.model import Model

if TYPE_CHECKING:
    from robodyn.dynamics import Dynamics

USUAL = "cpu"
ENGINES = ("cpu", "scan", "gpu")
"""Engines that are compared. The reference engine is nowhere the fastest."""
_MARGIN = 1.2
"""Times faster that another engine must have been measured: on a machine that is busy, a little faster says nothing."""
_LIKE = 8.0
"""Trees count as alike up to this ratio of bodies."""


@dataclass(frozen=True)
class Row:
    """A measurement: `seconds` of a call; `depth`: of the tree, the bodies on its longest path."""

    query: str
    dtype: str
    bodies: int
    depth: int
    batch: int
    engine: str
    seconds: float


class Table:
    """Measurements of one machine."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = tuple(rows)

    def estimates(self, query: str, dtype: str, model: Model, batch: int) -> dict[str, float]:
        """Seconds by engine, the one to take first, where something like this call was measured; else nothing."""
        return self.nearest(query, dtype, model.n_bodies, model.tree.n_levels, batch)

    def nearest(self, query: str, dtype: str, bodies: int, depth: int, batch: int) -> dict[str, float]:
        """The same for any tree with so many bodies and levels."""

        def distance(row: Row) -> tuple[float, float]:
            tree = abs(math.log2(row.bodies / bodies)) + abs(math.log2(row.depth / depth))
            return tree, abs(math.log2(row.batch / batch))

        near = [
            row
            for row in self.rows
            if (row.query, row.dtype) == (query, dtype) and max(row.bodies, bodies) <= _LIKE * min(row.bodies, bodies)
        ]
        if not near or not batch:
            return {}
        closest = min(map(distance, near))
        found = {row.engine: row.seconds for row in near if distance(row) == closest}
        return dict(sorted(found.items(), key=lambda item: _handicapped(*item)))

    def unusual(self, query: str, dtype: str) -> bool:
        """Whether another engine than the usual one was ever the one to take."""
        best: dict[tuple[int, int, int], Row] = {}
        for row in self.rows:
            if (row.query, row.dtype) == (query, dtype):
                place = row.bodies, row.depth, row.batch
                best[place] = min(best.get(place, row), row, key=lambda each: _handicapped(each.engine, each.seconds))
        return any(row.engine != USUAL for row in best.values())


def _handicapped(engine: str, seconds: float) -> float:
    """What engines are compared by."""
    return seconds if engine == USUAL else _MARGIN * seconds


def read_table(found: Any) -> Table:
    """A table from what JSON holds.

    Raises:
        ArgumentError: something else than a list of rows.
    """
    try:
        rows = [Row(**each) for each in found]
        good = all(
            row.engine in ENGINES and min(row.bodies, row.depth, row.batch) > 0 and row.seconds > 0.0 for row in rows
        )
    except TypeError:
        good = False
    if not good:
        raise ArgumentError("table of engines: wanted a list of measurements with the fields of `Row`")
    return Table(rows)


_KEPT = Subject("engines to choose from")


@cache
def current_table() -> Table:
    """What was measured on this machine and kept; empty where nothing was."""
    try:
        return read_table(load(_KEPT) or ())
    except ArgumentError:
        return Table(())


def keep(table: Table) -> bool:
    """Keep measurements for other processes, beside those of other calls; whether that worked."""
    replaced = {replace(row, engine="", seconds=0.0) for row in table.rows}
    others = (row for row in current_table().rows if replace(row, engine="", seconds=0.0) not in replaced)
    kept = store(_KEPT, [asdict(row) for row in (*others, *table.rows)])
    current_table.cache_clear()
    return kept


class Scheduled:
    """A query in front of several engines. It stands where a quick call stands, and passes calls on.

    Args:
        dyn: what is asked.
        name: the query.
        usual: what answers with the usual engine.
    """

    def __init__(self, dyn: Dynamics, name: str, usual: Callable[..., Any]) -> None:
        self.__self__, self.__name__, self.__doc__ = dyn, name, usual.__doc__  # as methods have them
        self._usual, self._table = usual, current_table()
        self._others: dict[str, Dynamics | None] = {}
        self._chosen: dict[int, str] = {}

    def __reduce__(self) -> Any:
        return getattr, (self.__self__, self.__name__)

    def __call__(self, *arguments: Any, **others: Any) -> Any:
        """Answer as the method does."""
        q = arguments[0] if arguments else others.get("q")
        if type(q) is np.ndarray and q.ndim > 0 and q.size:
            other = self._other(math.prod(q.shape[:-1]))
            if other is not None:
                return getattr(other, self.__name__)(*arguments, **others)
        return self._usual(*arguments, **others)

    def _other(self, batch: int) -> Dynamics | None:
        """What answers a batch instead, or None."""
        size = batch.bit_length()
        if size not in self._chosen:
            dyn = self.__self__
            found = self._table.estimates(self.__name__, dyn.dtype.name, dyn.model, batch)
            self._chosen[size] = next(iter(found), USUAL)
        engine = self._chosen[size]
        return None if engine == USUAL else self._on(engine)

    def _on(self, engine: str) -> Dynamics | None:
        if engine not in self._others:
            try:
                self._others[engine] = self.__self__.variant(engine=engine)
            except UnavailableError:  # measured once, and gone since
                self._others[engine] = None
        return self._others[engine]
