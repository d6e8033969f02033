"""Which engine answers NumPy arrays where the choice is "auto": the CPU engine, unless another one was measured to be
faster.

A measurement is a row of a table, which `robodyn tune` makes and keeps: the time of a query on a batch of states of a
tree on one engine. A call takes the engine that was fastest at the measured tree and batch nearest to its own; where
nothing like it was measured on this machine, a few measurements of another one hold. Arrays on a GPU are answered
there, whatever the tables say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
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
    """Measurements of one machine, and a table that holds where these say nothing."""

    def __init__(self, rows: Iterable[Row], otherwise: Table | None = None) -> None:
        self.rows, self.otherwise = tuple(rows), otherwise

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
        if not batch:
            return {}
        if not near:
            return self.otherwise.nearest(query, dtype, bodies, depth, batch) if self.otherwise else {}
        closest = min(map(distance, near))
        found = {row.engine: row.seconds for row in near if distance(row) == closest}
        return dict(sorted(found.items(), key=lambda item: _handicapped(*item)))

    def unusual(self, query: str, dtype: str, model: Model) -> bool:
        """Whether another engine than the usual one is the one to take for some batch of a model."""
        rows = (*self.rows, *(self.otherwise.rows if self.otherwise else ()))
        batches = {row.batch for row in rows if (row.query, row.dtype) == (query, dtype)}
        return any(next(iter(self.estimates(query, dtype, model, batch)), USUAL) != USUAL for batch in batches)


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
            row.engine in ENGINES
            and all(0.0 < float(x) < math.inf for x in (row.bodies, row.depth, row.batch, row.seconds))
            for row in rows
        )
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good:
        raise ArgumentError("table of engines: wanted a list of measurements with the fields of `Row`")
    return Table(rows)


_DENSE_MS = {
    ("float64", 1000, 1000, 1): (3.51, 9.15),
    ("float64", 1000, 1000, 8): (19.3, 26.3),
    ("float64", 1000, 10, 1): (0.135, 4.41),
    ("float64", 1000, 10, 8): (4.6, 13.1),
    ("float64", 4000, 4000, 1): (75.6, 72.1),
    ("float64", 4000, 4000, 2): (140.0, 89.4),
    ("float64", 4000, 4000, 8): (290.0, 384.0),
    ("float64", 4000, 12, 1): (12.4, 23.7),
    ("float64", 4000, 12, 8): (92.4, 134.0),
    ("float64", 8000, 8000, 1): (296.0, 219.0),
    ("float64", 8000, 8000, 8): (3840.0, 1250.0),
    ("float64", 8000, 13, 1): (46.9, 52.8),
    ("float64", 8000, 13, 8): (328.0, 376.0),
    ("float32", 1000, 1000, 1): (3.24, 9.03),
    ("float32", 1000, 1000, 8): (13.3, 19.4),
    ("float32", 1000, 10, 1): (0.0994, 4.18),
    ("float32", 1000, 10, 8): (0.944, 8.59),
    ("float32", 4000, 4000, 1): (65.8, 50.1),
    ("float32", 4000, 4000, 8): (326.0, 236.0),
    ("float32", 4000, 12, 1): (6.7, 18.7),
    ("float32", 4000, 12, 8): (50.9, 74.6),
    ("float32", 8000, 8000, 1): (265.0, 189.0),
    ("float32", 8000, 8000, 8): (2580.0, 738.0),
    ("float32", 8000, 13, 1): (24.9, 39.8),
    ("float32", 8000, 13, 8): (194.0, 207.0),
}
"""Milliseconds of dense mass matrices on the CPU and the scan engine, by dtype, bodies, levels and batch: AMD EPYC (Zen
5), 2 processors."""
BUILT_IN = Table(
    Row("mass_matrix", *place, engine, 1e-3 * time)
    for place, times in _DENSE_MS.items()
    for engine, time in zip(("cpu", "scan"), times, strict=True)
)
"""Where nothing was measured: the only query for which, without a GPU, another engine is ever faster than the usual."""

_KEPT = Subject("engines to choose from")


@cache
def current_table() -> Table:
    """What was measured on this machine and kept, over what is built in."""
    try:
        rows = read_table(load(_KEPT) or ()).rows
    except ArgumentError:
        rows = ()
    return Table(rows, BUILT_IN)


def keep(table: Table) -> bool:
    """Keep measurements for other processes, beside those of other calls; whether that worked."""
    replaced = {replace(row, engine="", seconds=0.0) for row in table.rows}
    others = (row for row in current_table().rows if replace(row, engine="", seconds=0.0) not in replaced)
    kept = store(_KEPT, [asdict(row) for row in (*others, *table.rows)])
    current_table.cache_clear()
    return kept


_HOW = {"method", "sparse"}
"""Arguments that mean something else to each engine."""


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
        self._chosen: dict[int, Dynamics | None] = {}

    def __reduce__(self) -> Any:
        return getattr, (self.__self__, self.__name__)

    def __call__(self, *arguments: Any, **others: Any) -> Any:
        """Answer as the method does."""
        q = arguments[0] if arguments else others.get("q")
        if type(q) is np.ndarray and q.ndim > 0 and q.size and not _HOW & others.keys():
            other = self._other(math.prod(q.shape[:-1]))
            if other is not None:
                with suppress(UnavailableError):  # it may take more memory
                    return getattr(other, self.__name__)(*arguments, **others)
        return self._usual(*arguments, **others)

    def _other(self, batch: int) -> Dynamics | None:
        """What answers a batch instead, or None."""
        size = batch.bit_length()
        if size not in self._chosen:
            dyn = self.__self__
            found = self._table.estimates(self.__name__, dyn.dtype.name, dyn.model, batch)
            there = (name for name in found if name == USUAL or self._on(name) is not None)
            engine = next(there, USUAL)
            self._chosen[size] = None if engine == USUAL else self._on(engine)
        return self._chosen[size]

    def _on(self, engine: str) -> Dynamics | None:
        if engine not in self._others:
            try:
                self._others[engine] = self.__self__.variant(engine=engine)
            except UnavailableError:  # measured once, and gone since
                self._others[engine] = None
        return self._others[engine]
