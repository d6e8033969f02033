"""Which kernel answers a query: what was measured on this GPU, or else a rule.

A measurement is a row of a table: task, dtype, bodies of the robot, batch, kernel, seconds. A query takes the fastest
kernel of the rows that are about its own task, or one like it, and its dtype, and nearest to its robot and batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np

from robodyn.chains import Chain, Task
from robodyn.engines.gpu.options import FUSIONS, KERNELS, GpuOptions
from robodyn.engines.gpu.printed import fits_registers, printable, traced
from robodyn.engines.gpu.source import WARP
from robodyn.errors import ArgumentError, UnavailableError
from robodyn.measurements import Subject, load, store
from robodyn.model import Model

_LIKE = 2.0
"""Robots count as alike up to this ratio of bodies."""


@dataclass(frozen=True)
class Variant:
    """A kind of kernel: one of `KERNELS`, and into how many it is taken apart, one of `FUSIONS`."""

    kernel: str
    fusion: str = "complete"

    def __str__(self) -> str:
        return self.kernel if self.fusion == "complete" else f"{self.kernel}, {self.fusion}"


ALWAYS = Variant("thread")
"""Takes any robot and any task: what is left where another kernel does not compile."""


@dataclass(frozen=True)
class Row:
    """A measurement: `seconds` of a call on a batch."""

    task: str
    dtype: str
    bodies: int
    batch: int
    kernel: str
    fusion: str
    seconds: float

    @property
    def variant(self) -> Variant:
        """What was measured."""
        return Variant(self.kernel, self.fusion)


def variants(model: Model, task: Task) -> list[Variant]:
    """All that can answer a task on a model."""
    fusions = FUSIONS if isinstance(task, Chain) else ("complete",)
    found = [Variant("printed")] if printable(model, task) else []
    return found + [Variant(kernel, fusion) for kernel in KERNELS if kernel != "printed" for fusion in fusions]


def allowed(model: Model, task: Task, options: GpuOptions) -> list[Variant]:
    """Those that options leave.

    Raises:
        UnavailableError: none.
    """
    several = isinstance(task, Chain)
    found = [
        each
        for each in variants(model, task)
        if options.kernel in ("auto", each.kernel) and (options.fusion in ("auto", each.fusion) or not several)
    ]
    if not found:
        raise UnavailableError(
            f"engine 'gpu': {task.name} of {model.name!r} is too large for straight-line code; kernels that take it: "
            "'thread', 'warp', 'block'"
        )
    return found


class Chooser:
    """Chooses kernels for one model.

    `source`: in words, where choices come from.
    """

    def __init__(self, model: Model, dtype: np.dtype[Any], options: GpuOptions, device: str) -> None:
        self.model, self.dtype, self.options = model, dtype, options
        self.table = measured(device)

    def choose(
        self, task: Task, batch: int, base: tuple[str, ...] = (), link: int | None = None
    ) -> tuple[Variant, str]:
        """The kernel for a batch, and why; `base` and `link` as in `printed_kernel`."""
        left = allowed(self.model, task, self.options)
        if len(left) == 1:
            return left[0], "the only one that options leave"
        row = nearest(self.table, task.name, self.dtype.name, self.model.n_bodies, batch, left)
        if row is not None:
            why = f"measured: {1e6 * row.seconds:.4g} us for {row.batch} states of a robot with {row.bodies} bodies"
            return row.variant, why
        return self._ruled(task, left, base, link), "by rule: nothing like it was measured on this GPU"

    def _ruled(self, task: Task, left: Sequence[Variant], base: tuple[str, ...], link: int | None) -> Variant:
        """Straight-line code where its values fit in registers, else a warp for each state of what a warp can hold."""
        usual = [each for each in left if each.fusion == "complete"] or list(left)
        by_name = {each.kernel: each for each in usual}
        if "printed" in by_name and self._fits(task, base, link):
            return by_name["printed"]
        several = "warp" if self.model.n_bodies <= WARP else "block"
        return by_name.get(several) or usual[-1]

    def _fits(self, task: Task, base: tuple[str, ...], link: int | None) -> bool:
        try:
            return fits_registers(traced(self.model, task, base, link), self.dtype)
        except UnavailableError:
            return False


def nearest(
    table: Iterable[Row], task: str, dtype: str, bodies: int, batch: int, left: Sequence[Variant]
) -> Row | None:
    """The fastest of the rows nearest to a call, or None where none is near. A task with more arguments, such as
    external forces, is like the one without, whose name its own begins with."""
    rows = [
        row
        for row in table
        if row.dtype == dtype
        and task.startswith(row.task)
        and row.variant in left
        and max(row.bodies, bodies) <= _LIKE * min(row.bodies, bodies)
    ]
    if not rows:
        return None

    def distance(row: Row) -> tuple[bool, float, float]:
        return row.task != task, abs(math.log2(row.bodies / bodies)), abs(math.log2(row.batch / batch))

    closest = min(map(distance, rows))
    return min((row for row in rows if distance(row) == closest), key=lambda row: row.seconds)


# Kept measurements.


def _kept(device: str) -> Subject:
    return Subject("kernels", device)


@cache
def measured(device: str) -> tuple[Row, ...]:
    """What was measured on a device of that name and kept; nothing where nothing was."""
    try:
        return read_table(load(_kept(device)) or ())
    except ArgumentError:
        return ()


def read_table(found: Any) -> tuple[Row, ...]:
    """Rows from what JSON holds.

    Raises:
        ArgumentError: something else than a list of rows.
    """
    try:
        rows = tuple(Row(**each) for each in found)
        good = all(
            row.variant.kernel in KERNELS and row.fusion in FUSIONS and row.bodies > 0 < row.batch and row.seconds > 0.0
            for row in rows
        )
    except TypeError:
        good = False
    if not good:
        raise ArgumentError("table of kernels: wanted a list of measurements with the fields of `Row`")
    return rows


def keep(rows: Iterable[Row], device: str) -> bool:
    """Keep measurements for other processes, beside those of other tasks and robots; whether that worked."""

    def about(row: Row) -> tuple[str, str, int]:
        return row.task, row.dtype, row.bodies

    new = list(rows)
    replaced = set(map(about, new))
    table = [*(row for row in measured(device) if about(row) not in replaced), *new]
    kept = store(_kept(device), [asdict(row) for row in table])
    measured.cache_clear()
    return kept
