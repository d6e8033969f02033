"""Chooses the kernel of a query: from measurements of this GPU, from those of another GPU, or by a rule.

The table of measurements has rows for tasks, dtypes, robots and batch sizes. A query takes the fastest kernel among the
rows with its task (or a similar one) and its dtype that are nearest to its robot and batch size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from robodyn.algorithms.tasks import Chain, Task
from robodyn.compile.tracing.program import Program
from robodyn.core.model import Model
from robodyn.engines.gpu.best_kernels import BEST, MEASURED_ON
from robodyn.engines.gpu.options import FUSIONS, KERNELS, GpuOptions
from robodyn.engines.gpu.source import WARP
from robodyn.engines.gpu.unrolled_chains import divisible, printable
from robodyn.engines.gpu.unrolled_kernels import fits_registers, traced, unrollable
from robodyn.engines.tuning_store import Row, Section, Table, table
from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass


@dataclass(frozen=True)
class Variant:
    """A kind of kernel, one of `KERNELS`, and how a task is divided into such kernels, one of `FUSIONS`."""

    kernel: str
    fusion: str = "complete"

    def __str__(self) -> str:
        return self.kernel if self.fusion == "complete" else f"{self.kernel}, {self.fusion}"


ALWAYS = Variant("thread")
"""This variant takes any robot and any task. It replaces kernels that do not compile."""
ALL = tuple(
    Variant(kernel, fusion)
    for fusion in reversed(FUSIONS)
    for kernel in KERNELS
    if kernel != "unrolled" or fusion != "fused"
)
SECTION = Section(
    "kernels",
    tuple(map(str, ALL)),
    like=2.0,
    again=("asked", "dtype", "bodies"),
    by_depth=False,
    beginnings=True,  # a task with more arguments, such as external forces, is like the one without
)
"""The section of the tuning store with measurements of kernels, by GPU name."""
BUILT_IN = Table(
    SECTION,
    (
        Row(SECTION.name, task, dtype, bodies, depth, 1, kernel, 0.0)
        for (task, bodies, depth), by_dtype in BEST.items()
        for dtype, kernel in by_dtype.items()
    ),
)
"""The table for GPUs without measurements: times differ between GPUs, but the fastest kernel seldom does. One choice
for all batch sizes."""
_SHORT = 9_500
"""Operations of the longest straight-line code that was the fastest on the GPU of the built-in table (an H200)."""


def variants(model: Model, task: Task) -> list[Variant]:
    """All variants that can run a task on a model."""
    fusions = FUSIONS if isinstance(task, Chain) else ("complete",)
    result = [Variant("unrolled")] if unrollable(model, task) else []
    result += [Variant("unrolled", "split")] if divisible(model, task) else []
    if not task.in_stages():
        return result
    return result + [Variant(kernel, fusion) for kernel in KERNELS if kernel != "unrolled" for fusion in fusions]


def allowed(model: Model, task: Task, options: GpuOptions) -> list[Variant]:
    """The variants that the options allow.

    Raises:
        UnavailableError: no variant is allowed.
    """
    every = variants(model, task)
    ways, fusions = Counter(each.kernel for each in every), {each.fusion for each in every}
    result = [
        each
        for each in every
        if options.kernel in ("auto", each.kernel)
        and (
            options.fusion in ("auto", each.fusion)
            or len(fusions) == 1
            or (options.kernel == each.kernel and ways[each.kernel] == 1)
        )
    ]
    if not result:
        others = "" if not task.in_stages() else "; kernels that take it: 'thread', 'warp', 'block'"
        raise UnavailableError(
            f"engine 'gpu': {task.name} of {model.name!r} is too large for straight-line code{others}"
        )
    return result


class Chooser:
    """Chooses kernels for one model."""

    def __init__(self, model: Model, dtype: np.dtype[Any], options: GpuOptions, device: str) -> None:
        self.model, self.dtype, self.options = model, dtype, options
        self.table = table(SECTION, device, BUILT_IN)

    def choose(
        self, task: Task, batch: int, base: tuple[str, ...] = (), link: int | None = None
    ) -> tuple[Variant, str]:
        """The kernel for a batch, and the reason as text. `base` and `link` are those of `unrolled_kernel`."""
        left = allowed(self.model, task, self.options)
        if len(left) == 1:
            return left[0], "the only one that options leave"
        by_name = {str(each): each for each in left}
        row = self._nearest(task, batch, by_name)
        # A robot with as many bodies may have longer straight-line code.
        while row is not None and not row.seconds and not self._short(by_name[row.choice], task, base, link):
            del by_name[row.choice]
            row = self._nearest(task, batch, by_name)
        if row is not None:
            like = f"of a robot with {row.bodies} bodies"
            measured = f"measured: {1e6 * row.seconds:.4g} us for {row.batch} states {like}"
            return by_name[row.choice], measured if row.seconds else f"the best on {MEASURED_ON} for batches {like}"
        return self._ruled(task, left, base, link), "by rule: nothing like it was measured"

    def _nearest(self, task: Task, batch: int, among: Container[str]) -> Row | None:
        """The fastest of the table's rows that are nearest to a call. `seconds` is 0 for rows of the built-in table."""
        tree = self.model.n_bodies, self.model.tree.n_levels
        near = self.table.near(task.name, self.dtype.name, *tree, batch, among)
        return min(near, key=lambda row: row.seconds, default=None)

    def _short(self, variant: Variant, task: Task, base: tuple[str, ...], link: int | None) -> bool:
        """Whether a variant's straight-line code for this robot is short enough. True for variants with loops."""
        if variant.kernel != "unrolled":
            return True
        if variant.fusion != "complete":
            return printable(self.model, task, base, link)
        program = self._program(task, base, link)
        return program is not None and program.operations <= _SHORT

    def _ruled(self, task: Task, left: Sequence[Variant], base: tuple[str, ...], link: int | None) -> Variant:
        """The choice by rule.

        Straight-line code is chosen if its values fit in registers, or else if it can be split and its parts are short
        enough. Other tasks get a warp for each state, or a block if the robot has more than 32 bodies.
        """
        usual = [each for each in left if each.fusion == "complete"] or list(left)
        by_name = {each.kernel: each for each in usual}
        program = self._program(task, base, link) if "unrolled" in by_name else None
        if program is not None and fits_registers(program, self.dtype):
            return by_name["unrolled"]
        several = "warp" if self.model.n_bodies <= WARP else "block"
        parts = [each for each in left if each.kernel == "unrolled" and each.fusion != "complete"]
        if parts and self._short(parts[-1], task, base, link):
            return parts[-1]
        return by_name.get(several) or usual[-1]

    def _program(self, task: Task, base: tuple[str, ...], link: int | None) -> Program | None:
        """The straight-line program, or None if it is too large."""
        try:
            return traced(self.model, task, base, link)
        except UnavailableError:
            return None
