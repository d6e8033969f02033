"""Calls of queries on batches, with answers that are known; which of them are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.algorithms.tasks import Task
from robodyn.compile.tracing.unrolled import trace
from robodyn.core.model import Model
from robodyn.engines.gpu.choice import Variant
from robodyn.engines.gpu.options import GpuOptions
from robodyn.engines.gpu.source import KernelSource
from robodyn.engines.query_table import QUERIES
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.tools.benchmark.compare import TOLERANCE
from robodyn.tools.benchmark.contenders import USUAL, draw, numbers_of
from tests.bench.points import off_by
from tests.bench.runner import Run
from tests.bench.shared import robot

DISTINCT = 64
"""States that a batch consists of, over and over."""
HOST_BYTES = 3 << 29
"""The most that arguments and results in host memory may take: filling more takes longer than measuring it."""
ROBOTS: dict[str, Callable[[], Model]] = {
    "arm7": partial(robot, "arm7"),
    "quadruped, floating": partial(robot, "quadruped"),
    "humanoid": partial(robot, "humanoid", "fixed"),
    "humanoid, floating": partial(robot, "humanoid"),
}
_ALIKE = ("humanoid",)
"""Robots with nearly as many bodies as another one."""
ASKED = tuple(query for query in USUAL if query != "bias_force")
BATCHES = (1, 16, 256, 1024, 4096, 65_536, 1_048_576)


PARTITIONS = (16, 32, 64, 128, 1024, 8192, 65_536)
"""Batches at which partitions of a gradient are compared."""
ROLLED = (1024, 65_536)
FITTED, HELD_OUT = (1, 8, 64, 512, 4096, 32_768, 131_072), (3, 200, 16_384, 65_536)
"""Batches at which every kernel is measured to choose by, and to see how good the choice is between."""


def unlike() -> list[str]:
    """Robots for what is measured of several kernels or libraries, one of each size."""
    return [name for name in ROBOTS if name not in _ALIKE]


def upto(run: Run, batches: Sequence[int]) -> list[int]:
    """Those that are not larger than the largest that is asked for."""
    return [batch for batch in batches if batch <= max(run.settings.batches)]


class Case:
    """A query of a robot at states whose answers are known."""

    def __init__(self, model: Model, query: str) -> None:
        self.model, self.query, self.about = model, query, QUERIES[query]
        self.states = draw(model, DISTINCT)
        reference = rd.Dynamics(model, engine="reference")
        self.task: Task = reference.plain_task(query)
        answer = getattr(reference, query)(*(self.states[name] for name in self.about.plain))
        self.truth = answer if isinstance(answer, tuple) else (answer,)

    def operations(self) -> int:
        """Floating-point operations for one state, with all that this robot's structure saves."""
        return trace(self.model, self.task).operations

    def row_bytes(self, dtype: str) -> int:
        """Of the arguments and results of one state: the least that must be read and written."""
        given = sum(self.states[name].shape[1] for name in self.about.plain)
        return int(np.dtype(dtype).itemsize * (given + numbers_of(self.about, self.model)))

    def laid_out(self, dyn: rd.Dynamics, batch: int, xp: Any = np) -> tuple[Callable[[], Any], tuple[Array, ...]]:
        """A call whose arguments and results lie in arrays of `xp`, made once, and those results."""
        arrays = [repeated(xp, self.states[name].astype(dyn.dtype), batch) for name in self.about.plain]
        shapes = self.about.shapes(self.model, self.about.plain).values()
        results = tuple(xp.empty((batch, *shape), dyn.dtype) for shape in shapes)
        for array in results:
            array[...] = np.nan
        out = results if len(results) > 1 else results[0]
        getattr(dyn, self.query)(*arrays, out=out)
        # Looked up after the first answer: from then on it may be a quicker function.
        return partial(getattr(dyn, self.query), *arrays, out=out), results

    def judged(self, dyn: rd.Dynamics, batch: int, device: Any = None) -> tuple[Callable[[], Any], float | None, str]:
        """A call on arrays of a device, or of NumPy, how far its answer is off, and why it shall not be timed."""
        xp, to_numpy = (np, np.asarray) if device is None else (device.xp, device.xp.asnumpy)
        room = HOST_BYTES if device is None else device.free_bytes() / 2
        size, dtype = batch * self.row_bytes(str(dyn.dtype)), str(dyn.dtype)
        if size > room:
            return lambda: None, None, f"left out: arrays of {size / 1e9:.3g} GB"
        call, results = self.laid_out(dyn, batch, xp)
        error = off_by(results, self.truth, to_numpy)
        return call, error if np.isfinite(error) else None, wrong(error, dtype)

    def with_kernel(self, variant: Variant, dtype: str) -> rd.Dynamics:
        """The GPU engine with one of its kernels."""
        return rd.Dynamics(self.model, engine="gpu", dtype=dtype, gpu=GpuOptions(variant.kernel, variant.fusion))  # type: ignore[arg-type]


def wrong(error: float, dtype: str) -> str:
    """What to say of an answer that is off by so much: nothing where it is right."""
    return "" if error <= TOLERANCE[dtype] else f"WRONG: differs by {error:.1g}"


def repeated(xp: Any, rows: Array, batch: int) -> Array:
    """An array of `xp` that repeats rows of NumPy's."""
    given = xp.asarray(rows)
    array = xp.empty((batch, *rows.shape[1:]), rows.dtype)
    done = min(len(rows), batch)
    array[:done] = given[:done]
    while done < batch:
        more = min(done, batch - done)
        array[done : done + more] = array[:more]
        done += more
    return array


def sources(dyn: rd.Dynamics, task: Task, kernels: Iterable[Variant]) -> list[KernelSource]:
    """Texts of kernels; none where the engine refuses, as whoever runs it will see."""
    found: list[KernelSource] = []
    for variant in kernels:
        try:
            found += dyn.engine.sources(task, variant)  # type: ignore[attr-defined]
        except UnavailableError:
            continue
    return found
