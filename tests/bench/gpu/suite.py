"""The GPU engine: what is measured in which order, and the page that says what was found.

`python -m tests.bench gpu --fit --write`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from robodyn.tools.benchmark.tables import Cells
from tests.bench.cold import FIRST as COLUMNS
from tests.bench.first_answers import Case as Asked
from tests.bench.first_answers import First, cold_and_cached
from tests.bench.gpu import ceilings, goals, kernels, peers, queries
from tests.bench.gpu import machine as machines
from tests.bench.gpu.ceilings import Ceilings
from tests.bench.gpu.machine import Machine, of_one_gpu
from tests.bench.gpu.work import BATCHES
from tests.bench.runner import Page, Pictures, Run
from tests.bench.shared import MODELS, NOT_MEASURED, ROBOTS, bullets, markdown, reason, table, titled

FIRST_ROBOT = "arm7"
FIRST = ("inverse_dynamics", "forward_dynamics", "inverse_dynamics_gradient", "forward_dynamics_gradient")
"""Queries whose first answers are timed."""
_NAMED = 6
_TITLED = ("queries", "partitions", "first", "kernels")
"""Blocks of tables that have names."""
_FIRST = tuple(each.replace(":time", ":time?") for each in COLUMNS if not each.startswith("engine"))


@dataclass
class Measured:
    """Everything; before it is measured, what will be. `kept`: whether trials are there for the engine;
    `problems`: why a part of it failed as a whole; `took_s`: how long parts took; `commits`: of parts of earlier runs,
    whose commits they are."""

    points: list[queries.Point]
    partitions: list[kernels.Partition]
    rolled: list[queries.Rolled]
    rivals: list[peers.Rival]
    first: list[First]
    trials: list[kernels.Trial] = field(default_factory=list)
    ceilings: Ceilings | None = None
    machine: dict[str, str] = field(default_factory=dict)
    kept: bool | None = None
    problems: dict[str, str] = field(default_factory=dict)
    took_s: dict[str, float] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)


_PARTS = {
    "fit": "trials",
    "queries": "points",
    "rollouts": "rolled",
    "peers": "rivals",
    "partitions": "partitions",
    "first answers": "first",
}
"""Parts of a run, and where they are."""


def merge(found: Measured, old: Measured, about: dict[str, str], old_about: dict[str, str]) -> Measured:
    """This, and of what nothing was asked now what is stored of the same GPU: all of it takes minutes."""
    if not of_one_gpu(old_about, about):
        return found
    whole = replace(found, took_s=dict(found.took_s), commits=dict(found.commits), problems=dict(found.problems))
    for part, name in _PARTS.items():
        if getattr(found, name) or not getattr(old, name) or part in found.problems:
            continue
        setattr(whole, name, getattr(old, name))
        whole.kept = old.kept if part == "fit" else whole.kept
        whole.commits[part] = old.commits.get(part, old_about["commit"])
        for told in ("took_s", "problems"):
            getattr(whole, told).pop(part, None)
            if part in getattr(old, told):
                getattr(whole, told)[part] = getattr(old, told)[part]
    return whole


def measure(run: Run) -> Measured:
    """All that is selected, on the GPU that is there."""
    return measure_on(machines.cuda_machine(), run)


def measure_on(machine: Machine, run: Run, engine: str = "gpu") -> Measured:
    """Measure it all; with `fit`, every kernel first, so that everything else runs those that were found to be the
    fastest. `engine` is whose first answers are timed. `run.keep` is handed what there is after each part: a part that
    fails as a whole, or takes too long, leaves the others."""
    first = [First(FIRST_ROBOT, query, "gpu") for query in FIRST if run.selected(_first(query))]
    asked = queries.points(run), kernels.partitions(run), queries.rollouts(run), peers.rivals(run), first
    found = Measured(*asked, machine=machine.facts)

    def limits() -> None:
        found.ceilings = ceilings.measure(machine, run.settings.dtypes, run.seconds)

    def fitting() -> None:
        if run.fit:
            kernels.measure(machine, run, found.trials)
            found.kept = kernels.keep(machine, run, found.trials)

    def first_answers() -> None:
        for number, each in enumerate(found.first):
            run.announce(_first(each.query))
            case = Asked(str(MODELS / f"{each.robot}.urdf"), ROBOTS[each.robot], each.query, engine=engine)
            found.first[number] = cold_and_cached(case)

    parts: dict[str, Callable[[], None]] = {
        "ceilings": limits,
        "fit": fitting,
        "queries": lambda: queries.measure(machine, run, found.points),
        "rollouts": lambda: queries.measure_rollouts(machine, run, found.rolled),
        "peers": lambda: peers.measure(run, found.rivals, found.points),
        "partitions": lambda: kernels.measure_partitions(machine, run, found.partitions),
        "first answers": first_answers,
    }
    for name, part in parts.items():
        run.announce(f"gpu: {name}")
        start = time.perf_counter()
        try:
            part()
        except Exception as error:  # a GPU that failed once may fail always
            found.problems[name] = reason(error)
        found.took_s[name] = time.perf_counter() - start
        run.keep(found)
    return found


def _first(query: str) -> str:
    return f"gpu: first answer, {FIRST_ROBOT}, {query}"


# What is shown.


def cells(found: Measured) -> dict[str, list[Cells]]:
    """All tables, by section."""
    return {
        "goals": [goals.goal_table(goals.goals(found.points, found.ceilings, found.first, found.trials))],
        "ceilings": [_ceilings(found.ceilings)],
        "queries": queries.tables(found.points, found.ceilings),
        "published": [goals.beside_published(found.points)],
        "rollouts": [queries.rollout_table(found.rolled)],
        "peers": [peers.rival_table(found.rivals)],
        "partitions": kernels.tables(found.partitions),
        "first": [table("From load_urdf to the first answer", found.first, *_FIRST).filled()],
        "kernels": kernels.tables(found.trials),
    }


def _ceilings(found: Ceilings | None) -> Cells:
    rows = [("copy on the device, 1 GiB read and 1 GiB written", found and found.bytes_per_s, "GB/s")]
    for dtype in ("float32", "float64"):
        fused = f"fused products and sums in registers, {dtype}"
        rows.append((fused, found and found.flops.get(dtype), "GFLOP/s"))
    cells = [(what, NOT_MEASURED if most is None else f"{most / 1e9:,.0f} {unit}") for what, most, unit in rows]
    return Cells("Ceilings", ("what", "at most "), cells)


def blocks(found: Measured, pictures: Pictures) -> dict[str, str]:
    before = {part: f" (before, at {commit})" for part, commit in found.commits.items()}
    took = ", ".join(f"{name} {seconds:.0f} s{before.get(name, '')}" for name, seconds in found.took_s.items())
    made = {
        name: titled(tables) if name in _TITLED else "\n\n".join(map(markdown, tables))
        for name, tables in cells(found).items()
    }
    made["kernels"] += "\n\n" + "\n".join(kernels.verdict(found.trials))
    return {**made, "took": f"How long that took: {took}." if took else "", "missing": bullets(remarks(found))}


def remarks(found: Measured) -> list[str]:
    """Why something is missing, each reason once, with what it is of."""
    asked = [(part, problem) for part, problem in found.problems.items()]
    asked += [(f"{p.robot}, {p.query}, {p.dtype}, batch {p.batch:,}", p.problem) for p in found.points]
    asked += [(f"{each.robot}, {each.query}, {each.peer}", each.problem) for each in found.rivals]
    asked += [(f"rollouts, {r.robot}, {r.integrator}, {r.dtype}, batch {r.batch:,}", r.problem) for r in found.rolled]
    for each in (*found.partitions, *found.trials):
        what = f"{each.query}, {each.dtype}" if isinstance(each, kernels.Trial) else "partitions"
        for name, problem in each.problems.items():
            asked.append((f"{each.robot}, {what}, batch {each.batch:,}: {name}", problem))
    said: dict[str, list[str]] = {}
    for what, problem in asked:
        said.setdefault(problem, []).append(what)
    said.pop("", None)
    kept = ["the measurements of kernels could not be kept for the engine to choose by"] if found.kept is False else []
    return [*(f"{_few(where)}: {problem}" for problem, where in said.items()), *kept]


def _few(names: list[str]) -> str:
    shown = "; ".join(names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown


PAGE = Page(
    "gpu",
    Measured,
    measure,
    tables=lambda found: [each for tables in cells(found).values() for each in tables],
    notes=lambda found: [*kernels.verdict(found.trials), *remarks(found)],
    blocks=blocks,
    merge=merge,
    seconds=0.02,
    batches=BATCHES,
)
