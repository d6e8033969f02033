"""Every kernel of a query: which is the fastest where, which the engine chooses, and a gradient in one kernel or more.

The last is the comparison of Plancher et al., figure 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import robodyn as rd
from robodyn.engines.gpu.choice import SECTION, Chooser, Variant, variants
from robodyn.engines.gpu.options import FUSIONS, GpuOptions
from robodyn.engines.tuning_store import Row, Table
from robodyn.engines.tuning_store import keep as keep_table
from robodyn.tools.benchmark.timing import measure as timed
from tests.bench.gpu import queries
from tests.bench.gpu.machine import Machine
from tests.bench.gpu.queries import Case
from tests.bench.runner import Run
from tests.bench.shared import NOT_MEASURED, reason, show

ALLOWED = 1.5
"""Times the fastest kernel that the chosen one may take."""
QUERY, DTYPE = "forward_dynamics_gradient", "float32"
"""Of which partitions are compared."""


@dataclass
class Trial:
    """Every kernel on one batch of one robot: seconds of their work by the device's clock, and who is chosen.

    `held_out`: not among the measurements that are chosen by; `chosen`: by measurements; `ruled`: where there are none.
    """

    robot: str
    bodies: int
    depth: int
    task: str
    query: str
    dtype: str
    batch: int
    held_out: bool
    seconds: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    chosen: str = ""
    ruled: str = ""

    @property
    def best(self) -> str:
        """The fastest, or nothing."""
        return min(self.seconds, key=lambda name: self.seconds[name], default="")

    def over(self, name: str) -> float | None:
        """How many times longer a kernel takes than the fastest."""
        return self.seconds[name] / self.seconds[self.best] if name in self.seconds else None

    @property
    def chosen_over(self) -> float | None:
        return self.over(self.chosen)

    @property
    def ruled_over(self) -> float | None:
        return self.over(self.ruled)

    @property
    def star(self) -> str:
        return " *" * self.held_out


@dataclass
class Partition:
    """One robot at one number of states: seconds of a call on NumPy arrays by kernel; `cpu_s`: of our CPU engine."""

    robot: str
    batch: int
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_s: float | None = None
    problems: dict[str, str] = field(default_factory=dict)

    def fastest(self, fusion: str) -> tuple[float, str] | None:
        """The fastest kernel of those taken apart like that: its time and its kind."""
        kinds = {kind: self.seconds.get(str(Variant(kind, fusion))) for kind in ("thread", "warp", "block")}
        return min(((seconds, kind) for kind, seconds in kinds.items() if seconds is not None), default=None)

    @property
    def shown(self) -> dict[str, str]:
        """That, by how kernels are taken apart."""
        best = {fusion: self.fastest(fusion) for fusion in FUSIONS}
        return {fusion: f"{show(each[0])} ({each[1]})" if each else NOT_MEASURED for fusion, each in best.items()}

    @property
    def ratio(self) -> float | None:
        """How many times longer what is split takes."""
        split, complete = self.fastest("split"), self.fastest("complete")
        return split[0] / complete[0] if split and complete else None


def _every(dyn: Any, question: Case) -> list[Variant]:
    return variants(question.model, question.task)


def measure(machine: Machine, run: Run, found: list[Trial]) -> None:
    """Measure every kernel; what is found is added to `found`."""
    asked = [(r, q) for r in queries.unlike() for q in queries.ASKED if run.selected(f"gpu: fit, {r}, {q}")]
    questions = {(robot, query): Case(queries.ROBOTS[robot](), query) for robot, query in asked}
    run.announce(f"gpu: fit, compiling the kernels of {len(questions)} queries")
    queries.compile_ahead(machine, questions.values(), run.settings.dtypes, _every)
    for (robot, query), question in questions.items():
        run.announce(f"gpu: fit, {robot}, {query}")
        mine = trials(run, robot, question)
        for dtype in run.settings.dtypes:
            try_kernels(machine, question, dtype, [trial for trial in mine if trial.dtype == dtype], run.seconds)
        found += mine


def trials(run: Run, robot: str, question: Case) -> list[Trial]:
    """One query of a robot, before anything is measured."""
    tree = question.model.n_bodies, question.model.tree.n_levels
    return [
        Trial(robot, *tree, question.task.name, question.query, dtype, batch, held_out=batch not in queries.FITTED)
        for dtype in run.settings.dtypes
        for batch in sorted(queries.upto(run, (*queries.FITTED, *queries.HELD_OUT)))
    ]


def try_kernels(
    machine: Machine | None, question: Case, dtype: str, these: Sequence[Trial | Partition], seconds: float
) -> None:
    """Each kernel at one batch after another, until it fails: it would at larger ones too. Its work on arrays of the
    device, or without a machine calls on NumPy arrays."""
    clock, device = (timed, None) if machine is None else (machine.kernels, machine.device)
    for variant in variants(question.model, question.task):
        options: Any = GpuOptions(variant.kernel, variant.fusion)  # type: ignore[arg-type]
        dyn, name, failed = rd.Dynamics(question.model, engine="gpu", dtype=dtype, gpu=options), str(variant), ""  # type: ignore[arg-type]
        for each in these:
            problem = failed
            try:
                if not problem:
                    call, _, problem = question.judged(dyn, each.batch, device)
                if not problem:
                    each.seconds[name] = clock(call, seconds).best_s
            except Exception as error:  # other kernels are measured nevertheless
                problem = failed = reason(error)
            if problem:
                each.problems[name] = problem


def partitions(run: Run) -> list[Partition]:
    """Everything that is asked, before anything is measured."""
    robots = [
        robot for robot in queries.unlike() if run.selected(f"gpu: partitions, {robot}") and QUERY in queries.ASKED
    ]
    return [Partition(*each) for each in product(robots, queries.upto(run, queries.PARTITIONS))]


def measure_partitions(machine: Machine, run: Run, found: Sequence[Partition]) -> None:
    for model, mine in queries.by_robot(run, "partitions", found):
        question = Case(model, QUERY)
        queries.compile_ahead(machine, [question], [DTYPE], _every)
        try_kernels(None, question, DTYPE, mine, run.seconds)
        cpu = rd.Dynamics(model, engine="cpu", dtype=DTYPE)  # type: ignore[arg-type]
        for each in mine:
            call, _, problem = question.judged(cpu, each.batch)
            each.cpu_s = None if problem else timed(call, run.seconds).best_s


# Choosing.


def table(found: Sequence[Trial]) -> Table:
    """What the engine is to choose by."""
    rows = (
        Row(SECTION.name, trial.task, trial.dtype, trial.bodies, trial.depth, trial.batch, name, seconds)
        for trial in found
        if not trial.held_out
        for name, seconds in trial.seconds.items()
    )
    return Table(SECTION, rows)


def keep(machine: Machine, run: Run, found: Sequence[Trial]) -> bool:
    """Keep measurements for this GPU beside those of other queries, and see what engines choose from then on; whether
    they were kept."""
    kept = keep_table(table(found), machine.device.name)
    for model, mine in queries.by_robot(run, "fit, choices", found):
        for trial in mine:
            dyn: Any = rd.Dynamics(model, engine="gpu", dtype=trial.dtype)  # type: ignore[arg-type]
            task = dyn.plain_task(trial.query)
            trial.chosen = str(dyn.engine.variant(task, trial.batch))
            trial.ruled = str(Chooser(model, dyn.dtype, GpuOptions(), "").choose(task, trial.batch)[0])
    return kept


def worst(found: Sequence[Trial], ruled: bool = False) -> float | None:
    """How many times longer than the fastest kernel the chosen one takes at most."""
    ratios = [trial.over(trial.ruled if ruled else trial.chosen) for trial in found if trial.seconds]
    return None if None in ratios else max((each for each in ratios if each is not None), default=None)


def verdict(found: Sequence[Trial]) -> list[str]:
    """Whether the choice is as good as it should be."""
    chosen, ruled = worst(found), worst(found, ruled=True)
    if chosen is None or ruled is None:
        return [f"The chosen kernel against the fastest: {NOT_MEASURED}; `--fit` measures it."]
    good = "good enough" if chosen <= ALLOWED else "TOO SLOW"
    lines = [f"The chosen kernel takes at most {chosen:.3g} times as long as the fastest (allowed {ALLOWED}): {good}."]
    lines += [
        f"TOO SLOW: {trial.robot}, {trial.query}, {trial.dtype}, batch {trial.batch:,}: {trial.chosen} was chosen, "
        f"{trial.best} is the fastest."
        for trial in found
        if (trial.over(trial.chosen) or 0.0) > ALLOWED
    ]
    return [*lines, f"By rule, where nothing was measured, it would be {ruled:.3g} times."]
