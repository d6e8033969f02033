"""Queries on arrays of the device and of NumPy, beside our CPU engine, by robot, precision and batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import robodyn as rd
from robodyn.engines.gpu.source import KernelSource
from robodyn.tools.benchmark.tables import Cells, number
from robodyn.tools.benchmark.timing import measure as timed
from tests.bench.gpu.ceilings import Ceilings
from tests.bench.gpu.machine import Machine
from tests.bench.gpu.work import HOST_BYTES, Case, Plan, reason, room_on, sources, wrong
from tests.bench.points import NOT_MEASURED
from tests.bench.shared import show

COLUMNS = (
    *("query", "dtype", "batch ", "kernel", "kernel time ", "call ", "NumPy in, out ", "CPU engine "),
    *("states/s ", "GB/s (of copy) ", "GFLOP/s (of FMA) ", "over roofline "),
)


@dataclass
class Point:
    """One query at one batch: seconds, each of one call.

    `kernel`: which kind answered; `kernel_s`: by the device's clock; `call_s`: on arrays of the device, from Python;
    `numpy_s`: on NumPy arrays, transfers included; `cpu_s`: our CPU engine on all processors; `moved`, `operations`:
    bytes and floating-point operations for one state; `off_by`: from the reference engine; `problem`: why something is
    missing.
    """

    robot: str
    query: str
    dtype: str
    batch: int
    kernel: str = ""
    kernel_s: float | None = None
    call_s: float | None = None
    numpy_s: float | None = None
    cpu_s: float | None = None
    moved: int | None = None
    operations: int | None = None
    off_by: float | None = None
    problem: str = ""

    @property
    def states_per_s(self) -> float | None:
        """By the kernel's time."""
        return self.batch / self.kernel_s if self.kernel_s else None

    def over_roofline(self, ceilings: Ceilings | None) -> float | None:
        """How many times longer the kernel takes than the device must for such bytes and operations."""
        if ceilings is None or not (self.kernel_s and self.moved and self.operations):
            return None
        least = ceilings.seconds(self.batch * self.moved, self.batch * self.operations, self.dtype)
        return self.kernel_s / least

    def cells(self, ceilings: Ceilings | None) -> tuple[str, ...]:
        """As text."""
        times = (self.kernel_s, self.call_s, self.numpy_s, self.cpu_s)
        return (
            self.query,
            self.dtype,
            f"{self.batch:,}",
            self.kernel or NOT_MEASURED,
            *(NOT_MEASURED if each is None else show(each) for each in times),
            *self._rates(ceilings),
        )

    def _rates(self, ceilings: Ceilings | None) -> tuple[str, ...]:
        rate, over = self.states_per_s, self.over_roofline(ceilings)
        if rate is None or over is None or ceilings is None or self.moved is None or self.operations is None:
            return (NOT_MEASURED,) * 4
        moved, done = rate * self.moved, rate * self.operations
        return (
            number(rate),
            f"{number(moved / 1e9)} ({moved / ceilings.bytes_per_s:.0%})",
            f"{number(done / 1e9)} ({done / ceilings.flops[self.dtype]:.0%})",
            f"{over:.3g} x",
        )


def points(plan: Plan) -> list[Point]:
    """Everything that is asked, before anything is measured."""
    return [
        Point(robot, query, dtype, batch)
        for robot in plan.robots
        for query in plan.queries
        if plan.selected(name_of(robot, query))
        for dtype in plan.dtypes
        for batch in plan.batches
    ]


def name_of(robot: str, query: str) -> str:
    """What the runner's filter is held against."""
    return f"gpu: queries, {robot}, {query}"


def measure(machine: Machine, plan: Plan, found: Sequence[Point], announce: Callable[[str], object]) -> None:
    """Fill all points."""
    compile_ahead(machine, plan)
    for robot, load in plan.robots.items():
        model = None
        for query in plan.queries:
            mine = [point for point in found if (point.robot, point.query) == (robot, query)]
            if mine:
                announce(name_of(robot, query))
                model = model or load()
                _measure_query(machine, Case(model, query), mine, plan.seconds)


def compile_ahead(machine: Machine, plan: Plan) -> None:
    """Have the kernels that will answer compiled side by side."""
    wanted: list[KernelSource] = []
    for robot, load in plan.robots.items():
        asked = [query for query in plan.queries if plan.selected(name_of(robot, query))]
        for dtype in plan.dtypes if asked else ():
            dyn = rd.Dynamics(load(), engine="gpu", dtype=dtype)
            for task in map(dyn.plain_task, asked):
                for variant in dict.fromkeys(dyn.engine.variant(task, batch) for batch in plan.batches):
                    wanted += sources(dyn, task, variant)
    machine.ahead(wanted)


def _measure_query(machine: Machine, question: Case, mine: list[Point], seconds: float) -> None:
    operations = question.operations()
    for dtype in dict.fromkeys(point.dtype for point in mine):
        dyn = rd.Dynamics(question.model, engine="gpu", dtype=dtype)
        cpu = rd.Dynamics(question.model, engine="cpu", dtype=dtype)
        for point in mine:
            if point.dtype == dtype:
                point.moved, point.operations = question.row_bytes(dtype), operations
                try:
                    _fill(machine, question, dyn, cpu, point, seconds)
                except Exception as error:  # other points are measured nevertheless
                    point.problem = reason(error)


def _fill(machine: Machine, question: Case, dyn: rd.Dynamics, cpu: rd.Dynamics, point: Point, seconds: float) -> None:
    room = room_on(machine.device.free_bytes())
    point.problem = question.too_large(point.batch, point.dtype, room)
    if point.problem:
        return
    _on_device(machine, question, dyn, point, seconds)
    if point.problem:
        return
    point.problem = question.too_large(point.batch, point.dtype, HOST_BYTES)
    if point.problem:
        point.problem = f"NumPy and the CPU engine {point.problem}"
        return
    call, results = question.laid_out(dyn, point.batch)
    point.problem = wrong(question.off_by(results), point.dtype)
    if not point.problem:
        point.numpy_s = timed(call, seconds).best_s
        del call, results
        point.cpu_s = timed(question.laid_out(cpu, point.batch)[0], seconds).best_s


def _on_device(machine: Machine, question: Case, dyn: rd.Dynamics, point: Point, seconds: float) -> None:
    call, results = question.laid_out(dyn, point.batch, machine.device.xp)
    engine = dyn.engine
    point.kernel = str(engine.plan(question.task, engine.variant(question.task, point.batch)).variant)
    off_by = question.off_by(results, machine.device.xp.asnumpy)
    point.off_by = off_by if np.isfinite(off_by) else None
    point.problem = wrong(off_by, point.dtype)
    if not point.problem:
        point.kernel_s = machine.kernels(call, seconds).best_s
        point.call_s = machine.calls(call, seconds).best_s


def tables(found: Sequence[Point], ceilings: Ceilings | None) -> list[Cells]:
    """By robot."""
    return [
        Cells(robot, COLUMNS, [point.cells(ceilings) for point in found if point.robot == robot])
        for robot in dict.fromkeys(point.robot for point in found)
    ]
