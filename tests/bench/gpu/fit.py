"""Which kernel is the fastest where: every one is measured, and the engine chooses by what was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import robodyn as rd
from robodyn.engines.gpu.choice import ALL, SECTION, Chooser, Variant, variants
from robodyn.engines.gpu.options import GpuOptions
from robodyn.engines.tuning_store import Row, Table
from robodyn.engines.tuning_store import keep as keep_table
from robodyn.tools.benchmark.tables import Cells
from tests.bench.gpu.machine import Machine
from tests.bench.gpu.work import Case, Plan, reason, room_on, sources, wrong
from tests.bench.points import NOT_MEASURED
from tests.bench.shared import show

ALLOWED = 1.5
"""Times the fastest kernel that the chosen one may take."""
_ALL = tuple(map(str, ALL))


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

    def cells(self) -> tuple[str, ...]:
        """As text."""
        times = [show(self.seconds[name]) if name in self.seconds else "" for name in _ALL]
        batch = f"{self.batch:,}{' *' if self.held_out else ''}"
        return (self.query, self.dtype, batch, *times, *self._against(self.chosen), *self._against(self.ruled))

    def _against(self, name: str) -> tuple[str, str]:
        over = self.over(name)
        return name or NOT_MEASURED, NOT_MEASURED if over is None else f"{over:.3g} x"


def name_of(robot: str, query: str) -> str:
    """What the runner's filter is held against."""
    return f"gpu: fit, {robot}, {query}"


def trials(plan: Plan, robot: str, question: Case) -> list[Trial]:
    """One query of a robot, before anything is measured."""
    model, task = question.model, question.task.name
    tree = model.n_bodies, model.tree.n_levels
    return [
        Trial(robot, *tree, task, question.query, dtype, batch, held_out=batch not in plan.fitted)
        for dtype in plan.dtypes
        for batch in sorted({*plan.fitted, *plan.held_out})
    ]


def measure(machine: Machine, plan: Plan, found: list[Trial], announce: Callable[[str], object]) -> None:
    """Measure every kernel; what is found is added to `found`."""
    questions = {
        (robot, query): Case(model, query)
        for robot, model in ((robot, plan.robots[robot]()) for robot in plan.unlike)
        for query in plan.queries
        if plan.selected(name_of(robot, query))
    }
    announce(f"gpu: fit, compiling the kernels of {len(questions)} queries")
    compile_ahead(machine, list(questions.values()), plan.dtypes)
    for (robot, query), question in questions.items():
        announce(name_of(robot, query))
        mine = trials(plan, robot, question)
        for dtype in plan.dtypes:
            for variant in variants(question.model, question.task):
                dyn = _dynamics(question, variant, dtype)
                these = [trial for trial in mine if trial.dtype == dtype]
                _measure_kernel(machine, question, dyn, str(variant), these, plan.seconds)
        found += mine


def compile_ahead(machine: Machine, questions: Sequence[Case], dtypes: Sequence[str]) -> None:
    """Have all kernels compiled side by side."""
    machine.ahead(
        [
            source
            for question in questions
            for dtype in dtypes
            for variant in variants(question.model, question.task)
            for source in sources(_dynamics(question, variant, dtype), question.task, variant)
        ]
    )


def _dynamics(question: Case, variant: Variant, dtype: str) -> rd.Dynamics:
    return rd.Dynamics(question.model, engine="gpu", dtype=dtype, gpu=GpuOptions(variant.kernel, variant.fusion))


def _measure_kernel(
    machine: Machine, question: Case, dyn: rd.Dynamics, name: str, these: Sequence[Trial], seconds: float
) -> None:
    """One kernel at one batch after another, until it fails: it would at larger ones too."""
    failed = ""
    for trial in these:
        problem = failed
        try:
            problem = problem or question.too_large(trial.batch, trial.dtype, room_on(machine.device.free_bytes()))
            if not problem:
                call, results = question.laid_out(dyn, trial.batch, machine.device.xp)
                problem = wrong(question.off_by(results, machine.device.xp.asnumpy), trial.dtype)
            if not problem:
                trial.seconds[name] = machine.kernels(call, seconds).best_s
        except Exception as error:  # other kernels are measured nevertheless
            problem = failed = reason(error)
        if problem:
            trial.problems[name] = problem


def table(found: Sequence[Trial]) -> Table:
    """What the engine is to choose by."""
    rows = (
        Row(SECTION.name, trial.task, trial.dtype, trial.bodies, trial.depth, trial.batch, name, seconds)
        for trial in found
        if not trial.held_out
        for name, seconds in trial.seconds.items()
    )
    return Table(SECTION, rows)


def keep(machine: Machine, plan: Plan, found: Sequence[Trial]) -> bool:
    """Keep measurements for this GPU beside those of other queries, and see what engines choose from then on; whether
    they were kept."""
    kept = keep_table(table(found), machine.device.name)
    for robot in plan.unlike:
        model = plan.robots[robot]()
        for trial in found:
            if trial.robot == robot:
                dyn = rd.Dynamics(model, engine="gpu", dtype=trial.dtype)
                task = dyn.plain_task(trial.query)
                trial.chosen = str(dyn.engine.variant(task, trial.batch))
                unmeasured = Chooser(model, dyn.dtype, GpuOptions(), "")
                trial.ruled = str(unmeasured.choose(task, trial.batch)[0])
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


def tables(found: Sequence[Trial]) -> list[Cells]:
    """By robot, with a column for each kernel that takes its queries."""
    columns = (
        "query",
        "dtype",
        "batch ",
        *(f"{name} " for name in _ALL),
        *("chosen", "over fastest ", "by rule", "over fastest "),
    )
    return [
        Cells(robot, columns, [trial.cells() for trial in found if trial.robot == robot]).filled()
        for robot in dict.fromkeys(trial.robot for trial in found)
    ]
