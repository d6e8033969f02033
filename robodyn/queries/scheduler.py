"""Which engine answers NumPy arrays where the choice is "auto": the CPU engine, unless another one was measured to be
faster.

A measurement is a row of a table, which `robodyn tune` makes and keeps: the time of a query on a batch of states of a
tree on one engine. A call takes the engine that was fastest at the measured tree and batch nearest to its own; where
nothing like it was measured on this machine, a few measurements of another one hold. Arrays on a GPU are answered
there, whatever the tables say.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.errors import UnavailableError
from robodyn.measured import Row, Section, Table, table

if TYPE_CHECKING:
    from robodyn.dynamics import Dynamics

USUAL = "cpu"
ENGINES = ("cpu", "scan", "gpu")
"""Engines that are compared. The reference engine is nowhere the fastest."""
SECTION = Section(
    "engines",
    ENGINES,
    like=8.0,
    again=("asked", "dtype", "bodies", "depth", "batch"),
    usual=USUAL,
    margin=1.2,  # on a machine that is busy, a little faster says nothing
)
"""What was measured of engines, on NumPy arrays."""

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
    SECTION,
    (
        Row(SECTION.name, "mass_matrix", *place, engine, 1e-3 * time)
        for place, times in _DENSE_MS.items()
        for engine, time in zip(("cpu", "scan"), times, strict=True)
    ),
)
"""Where nothing was measured: the only query for which, without a GPU, another engine is ever faster than the usual."""


def current_table() -> Table:
    """What was measured on this machine and kept, over what is built in."""
    return table(SECTION, otherwise=BUILT_IN)


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
