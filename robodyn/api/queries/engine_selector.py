"""Selects the engine for NumPy arrays with engine="auto": the CPU engine, unless another one measured faster.

`robodyn tune` fills a table of measurements. A row is the time of a query for one engine, robot and batch size. A call
uses the engine that was fastest at the nearest measured robot and batch size. Arrays on a GPU always go to the GPU
engine.
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
"""Engines that are compared. The reference engine is never the fastest."""
SECTION = Section(
    "engines",
    ENGINES,
    like=8.0,
    again=("asked", "dtype", "bodies", "depth", "batch"),
    usual=USUAL,
    margin=1.2,  # smaller differences may be noise on a busy machine
)
"""Table section of engine measurements with NumPy arrays."""


def current_table() -> Table:
    """The stored measurements of this machine."""
    return table(SECTION)


_HOW = {"method", "sparse"}
"""Arguments whose meaning depends on the engine."""


class EngineSelector:
    """Replaces the method of a query and passes each call to the engine that measured fastest.

    Args:
        dyn: the `Dynamics`.
        name: name of the query.
        usual: answers calls with the usual engine.
    """

    def __init__(self, dyn: Dynamics, name: str, usual: Callable[..., Any]) -> None:
        self.__self__, self.__name__, self.__doc__ = dyn, name, usual.__doc__  # as methods have them
        self._usual, self._table = usual, current_table()
        self._others: dict[str, Dynamics | None] = {}
        self._chosen: dict[int, Dynamics | None] = {}

    def __reduce__(self) -> Any:
        return getattr, (self.__self__, self.__name__)

    def __call__(self, *arguments: Any, **others: Any) -> Any:
        """Answer a call like the method."""
        q = arguments[0] if arguments else others.get("q")
        if type(q) is np.ndarray and q.ndim > 0 and q.size and not _HOW & others.keys():
            other = self._other(math.prod(q.shape[:-1]))
            if other is not None:
                with suppress(UnavailableError):  # the other engine may lack memory
                    return getattr(other, self.__name__)(*arguments, **others)
        return self._usual(*arguments, **others)

    def _other(self, batch: int) -> Dynamics | None:
        """The `Dynamics` of a faster engine for this batch size, or None for the usual engine."""
        size = batch.bit_length()
        if size not in self._chosen:
            dyn = self.__self__
            estimates = self._table.estimates(self.__name__, dyn.dtype.name, dyn.model, batch)
            available = (name for name in estimates if name == USUAL or self._on(name) is not None)
            engine = next(available, USUAL)
            self._chosen[size] = None if engine == USUAL else self._on(engine)
        return self._chosen[size]

    def _on(self, engine: str) -> Dynamics | None:
        if engine not in self._others:
            try:
                self._others[engine] = self.__self__.variant(engine=engine)
            except UnavailableError:  # the table may name an engine that is no longer installed
                self._others[engine] = None
        return self._others[engine]
