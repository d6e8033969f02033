"""The gradient of forward dynamics in one kernel or in several: the comparison of Plancher et al., figure 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import robodyn as rd
from robodyn.engines.gpu.choice import Variant, variants
from robodyn.engines.gpu.options import FUSIONS, GpuOptions
from robodyn.tools.benchmark.tables import Cells
from robodyn.tools.benchmark.timing import measure as timed
from tests.bench.gpu.machine import Machine
from tests.bench.gpu.work import HOST_BYTES, Case, Plan, reason, sources, wrong
from tests.bench.points import NOT_MEASURED
from tests.bench.shared import show

QUERY, DTYPE = "forward_dynamics_gradient", "float32"
_ORDER = tuple(reversed(FUSIONS))


@dataclass
class Partition:
    """One robot at one number of states: seconds of a call on NumPy arrays by kernel; `cpu_s`: of our CPU engine."""

    robot: str
    batch: int
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_s: float | None = None
    problems: dict[str, str] = field(default_factory=dict)

    def fastest(self, fusion: str, unrolled: bool = False) -> tuple[str, float] | None:
        """The fastest kernel of those taken apart like that, and its time."""
        mine = [
            Variant(kernel, fusion)
            for kernel in (("unrolled",) if unrolled else ("thread", "warp", "block"))
            if str(Variant(kernel, fusion)) in self.seconds
        ]
        if not mine:
            return None
        best = min(mine, key=lambda each: self.seconds[str(each)])
        return best.kernel, self.seconds[str(best)]

    def cells(self) -> tuple[str, ...]:
        """As text."""
        found = [self.fastest(fusion) for fusion in _ORDER]
        split, complete = found[0], found[-1]
        shown = [NOT_MEASURED if each is None else f"{show(each[1])} ({each[0]})" for each in found]
        straight = [self.fastest(fusion, unrolled=True) for fusion in ("split", "complete")]
        gain = f"{split[1] / complete[1]:.3g} x" if split and complete else NOT_MEASURED
        seconds = (*(each and each[1] for each in straight), self.cpu_s)
        rest = [NOT_MEASURED if each is None else show(each) for each in seconds]
        return (f"{self.batch:,}", *shown, gain, *rest)


def partitions(plan: Plan) -> list[Partition]:
    """Everything that is asked, before anything is measured."""
    return [
        Partition(robot, batch)
        for robot in plan.unlike
        if plan.selected(name_of(robot))
        for batch in (plan.partitions if QUERY in plan.queries else ())
    ]


def name_of(robot: str) -> str:
    """What the runner's filter is held against."""
    return f"gpu: partitions, {robot}"


def measure(machine: Machine, plan: Plan, found: Sequence[Partition], announce: Callable[[str], object]) -> None:
    """Fill all of them."""
    for robot in dict.fromkeys(each.robot for each in found):
        announce(name_of(robot))
        question = Case(plan.robots[robot](), QUERY)
        mine = [each for each in found if each.robot == robot]
        made = {variant: _dynamics(question, variant) for variant in variants(question.model, question.task)}
        machine.ahead([source for v, dyn in made.items() for source in sources(dyn, question.task, v)])
        for variant, dyn in made.items():
            for each in mine:
                _fill(question, dyn, str(variant), each, plan.seconds)
        cpu = rd.Dynamics(question.model, engine="cpu", dtype=DTYPE)
        for each in mine:
            if not question.too_large(each.batch, DTYPE, HOST_BYTES):
                each.cpu_s = timed(question.laid_out(cpu, each.batch)[0], plan.seconds).best_s


def _dynamics(question: Case, variant: Variant) -> rd.Dynamics:
    return rd.Dynamics(question.model, engine="gpu", dtype=DTYPE, gpu=GpuOptions(variant.kernel, variant.fusion))


def _fill(question: Case, dyn: rd.Dynamics, name: str, partition: Partition, seconds: float) -> None:
    problem = question.too_large(partition.batch, DTYPE, HOST_BYTES)
    try:
        if not problem:
            call, results = question.laid_out(dyn, partition.batch)
            problem = wrong(question.off_by(results), DTYPE)
        if not problem:
            partition.seconds[name] = timed(call, seconds).best_s
    except Exception as error:  # others are measured nevertheless
        problem = reason(error)
    if problem:
        partition.problems[name] = problem


def tables(found: Sequence[Partition]) -> list[Cells]:
    """By robot."""
    columns = (
        "states ",
        *(f"{fusion} " for fusion in _ORDER),
        "split / complete ",
        "unrolled, split ",
        "unrolled ",
        "CPU engine ",
    )
    return [
        Cells(robot, columns, [each.cells() for each in found if each.robot == robot])
        for robot in dict.fromkeys(each.robot for each in found)
    ]
