"""What is measured on a GPU: robots, queries and batches; calls on batches whose answers are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.algorithms.tasks import Task
from robodyn.compile.tracing.unrolled import trace
from robodyn.core.model import Model
from robodyn.engines.gpu.choice import Variant
from robodyn.engines.query_table import QUERIES
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.tools.benchmark.compare import TOLERANCE
from robodyn.tools.benchmark.contenders import USUAL, draw, numbers_of
from tests.bench.gpu.machine import Machine
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


def by_robot(run: Run, what: str, found: Sequence[Any]) -> Iterator[tuple[Model, list[Any]]]:
    """Robots, announced, and what is asked of each."""
    for name in dict.fromkeys(each.robot for each in found):
        run.announce(f"gpu: {what}, {name}")
        yield ROBOTS[name](), [each for each in found if each.robot == name]


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
        results = tuple(xp.full((batch, *shape), np.nan, dyn.dtype) for shape in shapes)
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


def wrong(error: float, dtype: str) -> str:
    """What to say of an answer that is off by so much: nothing where it is right."""
    return "" if error <= TOLERANCE[dtype] else f"WRONG: differs by {error:.1g}"


def repeated(xp: Any, rows: Array, batch: int) -> Array:
    """An array of `xp` that repeats rows of NumPy's."""
    return xp.take(xp.asarray(rows), xp.asarray(np.arange(batch) % len(rows)), axis=0)


def compile_ahead(
    machine: Machine, questions: Iterable[Case], dtypes: Sequence[str], chosen: Callable[[Any, Case], Iterable[Variant]]
) -> None:
    """Kernels of some queries, side by side; of what the engine refuses none, as whoever runs it will see."""
    found: list[Any] = []
    for question in questions:
        for dtype in dtypes:
            dyn: Any = rd.Dynamics(question.model, engine="gpu", dtype=dtype)  # type: ignore[arg-type]
            for variant in dict.fromkeys(chosen(dyn, question)):
                with suppress(UnavailableError):
                    found += dyn.engine.sources(question.task, variant)
    machine.ahead(found)
