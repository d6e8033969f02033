"""The GPU suite: what is measured in which order, and the page that says what was found.

`python -m tests.bench gpu --fit --write`. Where there is no GPU, the page says what would be measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from robodyn.tools.benchmark.compare import Settings
from robodyn.tools.benchmark.tables import Cells
from tests.bench import first_answer, published
from tests.bench.first_answer import First
from tests.bench.gpu import ceilings, fit, goals, partitions, peers, queries, rollouts
from tests.bench.gpu.ceilings import Ceilings
from tests.bench.gpu.machine import Machine, of_one_gpu
from tests.bench.gpu.work import Plan, reason
from tests.bench.points import NOT_MEASURED
from tests.bench.shared import facts, show

FIRST_ROBOT, FIRST_BASE = "arm7", "fixed"
FIRST = ("inverse_dynamics", "forward_dynamics", "inverse_dynamics_gradient", "forward_dynamics_gradient")
"""Queries whose first answers are timed."""

_NAMED = 6


@dataclass
class Measured:
    """Everything; before it is measured, what will be. `kept`: whether trials are there for the engine;
    `problems`: why a part of it failed as a whole; `took_s`: how long parts took; `commits`: of parts of earlier runs,
    whose commits they are."""

    points: list[queries.Point]
    partitions: list[partitions.Partition]
    rolled: list[rollouts.Run]
    rivals: list[peers.Rival]
    first: list[First]
    trials: list[fit.Trial] = field(default_factory=list)
    ceilings: Ceilings | None = None
    machine: dict[str, str] = field(default_factory=dict)
    kept: bool | None = None
    problems: dict[str, str] = field(default_factory=dict)
    took_s: dict[str, float] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)

    def with_stored(self, document: Mapping[str, Any]) -> Measured:
        """This, and of what nothing was asked now what a document of the same GPU holds: all of it takes minutes."""
        if not document or not of_one_gpu(document, self.machine):
            return self
        found = replace(self, took_s=dict(self.took_s), commits=dict(self.commits), problems=dict(self.problems))
        for part, (name, kind) in _PARTS.items():
            if getattr(self, name) or not document[name] or part in self.problems:
                continue
            setattr(found, name, [kind(**each) for each in document[name]])
            found.kept = document["kept"] if part == "fit" else found.kept
            found.commits[part] = document.get("commits", {}).get(part, document["commit"])
            for told in ("took_s", "problems"):
                getattr(found, told).pop(part, None)
                if part in document[told]:
                    getattr(found, told)[part] = document[told][part]
        return found


_PARTS: dict[str, tuple[str, type]] = {
    "fit": ("trials", fit.Trial),
    "queries": ("points", queries.Point),
    "rollouts": ("rolled", rollouts.Run),
    "peers": ("rivals", peers.Rival),
    "partitions": ("partitions", partitions.Partition),
    "first answers": ("first", First),
}
"""Parts of a run, where they are, and of what."""


def plan(selected: Callable[[str], bool], settings: Settings) -> Plan:
    """What to measure; no batch is larger than the largest that is asked for."""
    usual, most = Plan(), max(settings.batches)
    sizes = {
        name: tuple(batch for batch in getattr(usual, name) if batch <= most)
        for name in ("partitions", "rolled", "fitted", "held_out")
    }
    return replace(
        usual, selected=selected, seconds=settings.seconds, dtypes=settings.dtypes, batches=settings.batches, **sizes
    )


def asked(plan: Plan) -> Measured:
    """What will be measured."""
    first = [First(FIRST_ROBOT, query, "gpu") for query in FIRST if plan.selected(_first(FIRST_ROBOT, query))]
    return Measured(queries.points(plan), partitions.partitions(plan), rollouts.runs(plan), peers.rivals(plan), first)


def _first(robot: str, query: str) -> str:
    return f"gpu: first answer, {robot}, {query}"


def measure(
    plan: Plan,
    machine: Machine,
    announce: Callable[[str], object],
    *,
    fitted: bool = False,
    engine: str = "gpu",
    store: Callable[[Measured], object] = lambda found: None,
) -> Measured:
    """Measure it all; with `fitted`, every kernel first, so that everything else runs those that were found to be the
    fastest. `engine` is whose first answers are timed; `store` is handed what there is after each part: a part that
    fails as a whole, or takes too long, leaves the others."""
    found = asked(plan)
    found.machine = machine.facts

    def limits() -> None:
        found.ceilings = ceilings.measure(machine, plan.dtypes, plan.seconds)

    def fitting() -> None:
        fit.measure(machine, plan, found.trials, announce)
        found.kept = fit.keep(machine, plan, found.trials)

    parts: dict[str, Callable[[], None]] = {
        "ceilings": limits,
        "fit": fitting if fitted else lambda: None,
        "queries": lambda: queries.measure(machine, plan, found.points, announce),
        "rollouts": lambda: rollouts.measure(machine, plan, found.rolled, announce),
        "peers": lambda: peers.measure(plan, found.rivals, found.points, announce),
        "partitions": lambda: partitions.measure(machine, plan, found.partitions, announce),
        "first answers": lambda: _first_answers(found, engine, announce),
    }
    for name, part in parts.items():
        announce(f"gpu: {name}")
        start = time.perf_counter()
        try:
            part()
        except Exception as error:  # a GPU that failed once may fail always
            found.problems[name] = reason(error)
        found.took_s[name] = time.perf_counter() - start
        store(found)
    return found


def _first_answers(found: Measured, engine: str, announce: Callable[[str], object]) -> None:
    for number, each in enumerate(found.first):
        announce(_first(each.robot, each.query))
        found.first[number] = first_answer.measure_case(each.robot, FIRST_BASE, each.query, engine)


def cells(found: Measured) -> dict[str, list[Cells]]:
    """All tables, by section."""
    first = [(each.robot, each.query, *_seconds(each), each.problem) for each in found.first]
    columns = ("robot", "query", "cold ", "cached ", "process, cold ", "process, cached ", "remark")
    return {
        "Goals": [goals.table(goals.goals(found.points, found.ceilings, found.first, found.trials))],
        "Ceilings": [_ceilings(found.ceilings)],
        "Queries": queries.tables(found.points, found.ceilings),
        "Published figures": [goals.beside_published(found.points)],
        "Rollouts": [rollouts.table(found.rolled)],
        "Peers on the same GPU": [peers.table(found.rivals)],
        "Partitions of a gradient": partitions.tables(found.partitions),
        "First answers": [Cells("From load_urdf to the first answer", columns, first).filled()],
        "Which kernel is the fastest": fit.tables(found.trials),
    }


def _seconds(first: First) -> tuple[str, ...]:
    times = (first.cold_s, first.cached_s, first.process_cold_s, first.process_cached_s)
    return tuple(NOT_MEASURED if each is None else show(each) for each in times)


def _ceilings(found: Ceilings | None) -> Cells:
    rows = [
        ("copy on the device, 1 GiB read and 1 GiB written", _rate(found and found.bytes_per_s, "GB/s")),
        *(
            (f"fused products and sums in registers, {dtype}", _rate(found and found.flops.get(dtype), "GFLOP/s"))
            for dtype in ("float32", "float64")
        ),
    ]
    return Cells("Ceilings", ("what", "at most "), rows)


def _rate(value: float | None, unit: str) -> str:
    return NOT_MEASURED if value is None else f"{value / 1e9:,.0f} {unit}"


TEXTS = {
    "Ceilings": "What the *roofline* of a kernel is made of: the least time for its bytes and operations, whichever "
    "takes longer. Bytes are those of arguments and results, each once; operations are those of the straight-line "
    "program of the robot, in which zeros of its structure are left out.",
    "Queries": "*kernel time*: by the device's own clock, of calls recorded in a CUDA graph; *call*: from Python on "
    "arrays of the device, many one after another, waiting once for all; *NumPy in, out*: on NumPy arrays, both "
    "transfers included; *CPU engine*: ours, on NumPy arrays, on all processors. States per second and rates are by "
    "kernel time. Arrays of small batches stay in the device's cache, which is faster than a copy.",
    "Published figures": published.GRID_NOTE,
    "Rollouts": f"{rollouts.STEPS} steps of {rollouts.DT:g} s from given states under constant torques, of which the "
    "last state is kept: *call*: from Python on arrays of the device, *CPU engine*: on NumPy arrays, on all "
    "processors.",
    "Peers on the same GPU": "Calls from Python on arrays of the device; compiling is not part of the time. Each call "
    "of a peer is waited for, ours one after another, and once for all of them.",
    "Partitions of a gradient": "The gradient of forward dynamics in one kernel (*complete*), in one up to each solve "
    "or product (*fused*) or in one of each stage (*split*), as Plancher et al. compare them (section V-C, figure 2): "
    "the time of a call on NumPy arrays, transfers included, single precision. There, what is not fused runs on the "
    "CPU, and leaving that away makes a call 1.9 (16 states) to 2.8 times (128 states) shorter; here all parts run on "
    "the GPU, so that *split / complete* shows what launches and passing matrices through memory cost. In parentheses: "
    "the fastest kernel of its kind, which is shown. *unrolled* is straight-line code, complete or split.",
    "First answers": "A new process for each: `cold` with nothing compiled, `cached` with what that left, the best of "
    "three. Imports of robodyn are not counted, that of CuPy and starting CUDA are; in `process` all are.",
    "Which kernel is the fastest": "Time of the work on the device by kernel. `--fit` measures it and keeps it for the "
    "engine to choose by; batches with a star are not among what is kept, and show how good the choice is between. "
    "*by rule*: what is chosen where nothing was measured.",
}


def page(found: Measured, about: dict[str, str]) -> str:
    """The page of docs/benchmarks."""
    lines = [
        "# The GPU engine",
        "",
        "Printed by `python -m tests.bench gpu --fit --write`. The best of several calls each; before anything is",
        "timed, its answers are compared with those of the reference engine.",
        "",
        f"Measured on: {facts(about | found.machine)}.",
    ]
    if found.took_s:
        before = {part: f" (before, at {commit})" for part, commit in found.commits.items()}
        parts = ", ".join(f"{name} {seconds:.0f} s{before.get(name, '')}" for name, seconds in found.took_s.items())
        lines += ["", f"How long that took: {parts}."]
    for section, tables in cells(found).items():
        lines += ["", f"## {section}"]
        lines += ["", TEXTS[section]] if section in TEXTS else []
        for table in tables:
            lines += ["", f"{table.title}:"] if table.title != section else []
            lines += ["", *table.markdown()]
        lines += ["", *fit.verdict(found.trials)] if section == "Which kernel is the fastest" else []
    noted = remarks(found)
    lines += ["", "## What was not measured", "", *(f"- {each}" for each in noted)] if noted else []
    return "\n".join(lines) + "\n"


def unmeasured(plan: Plan, missing: str) -> str:
    """The page where there is no GPU: what would be measured, what is wanted, and what others published."""
    batches, others = ", ".join(f"{batch:,}" for batch in plan.batches), goals.beside_published([])
    lines = [
        "# The GPU engine",
        "",
        f"GPU: not measured. {missing}",
        "",
        "`python -m tests.bench gpu --fit --write` on a machine with a GPU measures:",
        "",
        f"- {', '.join(plan.queries)};",
        f"  of {'; '.join(plan.robots)}; in {' and '.join(plan.dtypes)}, at {batches} states a call:",
        "  the kernel by the device's clock, a call on arrays there, and a call on NumPy arrays;",
        "- what the device can do at most (bytes of a copy, fused products and sums), which kernels are held against;",
        "- the gradient of forward dynamics in one kernel and in several; first answers with nothing compiled;",
        "- every kernel, by which the engine chooses from then on, and how good that choice is;",
        "- rollouts; JAX and MJX on the same GPU, where they are installed.",
        "",
        "## Goals",
        "",
        *goals.table(goals.goals([], None, [], [])).markdown(),
        "",
        "## Published figures",
        "",
        published.GRID_NOTE,
        "",
        *Cells(others.title, others.columns[:-2], [row[:-2] for row in others.rows]).markdown(),
    ]
    return "\n".join(lines) + "\n"


def remarks(found: Measured) -> list[str]:
    """Why something is missing, each reason once, with what it is of."""
    said: dict[str, list[str]] = {}
    for part, problem in found.problems.items():
        said.setdefault(problem, []).append(part)
    for point in found.points:
        if point.problem:
            said.setdefault(point.problem, []).append(
                f"{point.robot}, {point.query}, {point.dtype}, batch {point.batch:,}"
            )
    for rival in found.rivals:
        if rival.problem:
            said.setdefault(rival.problem, []).append(f"{rival.robot}, {rival.query}, {rival.peer}")
    for run in found.rolled:
        if run.problem:
            said.setdefault(run.problem, []).append(
                f"rollouts, {run.robot}, {run.integrator}, {run.dtype}, batch {run.batch:,}"
            )
    for each in (*found.partitions, *found.trials):
        for name, problem in each.problems.items():
            what = f"{each.query}, {each.dtype}" if isinstance(each, fit.Trial) else "partitions"
            said.setdefault(problem, []).append(f"{each.robot}, {what}, batch {each.batch:,}: {name}")
    kept = ["the measurements of kernels could not be kept for the engine to choose by"] if found.kept is False else []
    return [*(f"{_few(where)}: {problem}" for problem, where in said.items()), *kept]


def _few(names: list[str]) -> str:
    shown = "; ".join(names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown


def document(found: Measured, about: dict[str, str], plan: Plan) -> dict[str, Any]:
    """Everything for a JSON file."""
    grid = {"source": published.GRID_SOURCE, "hardware": published.GRID_HARDWARE, "batch": published.GRID_BATCH}
    return {
        **about,
        **found.machine,
        "seconds": plan.seconds,
        **asdict(found),
        "published": {**grid, "rows": [asdict(each) for each in published.GRID]},
    }
