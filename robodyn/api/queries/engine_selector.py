"""Which engine answers NumPy arrays where the choice is "auto": the CPU engine, unless another one was measured to be
faster.

A measurement is a row of a table, which `robodyn tune` makes and keeps: the time of a query on a batch of states of a
tree on one engine. A call takes the engine that was fastest at the measured tree and batch nearest to its own. Arrays
on a GPU are answered there, whatever the table says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.engines.tuning_store import Section, Table, table
from robodyn.internals.errors import UnavailableError

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics

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


def current_table() -> Table:
    """What was measured on this machine and kept."""
    return table(SECTION)


_HOW = {"method", "sparse"}
"""Arguments that mean something else to each engine."""


class EngineSelector:
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
