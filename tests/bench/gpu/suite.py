"""The GPU engine: what is measured in which order, what was set out to reach, and what others published.

`python -m tests.bench gpu --fit --write`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from robodyn.tools.benchmark.tables import Cells, number
from tests.bench import published
from tests.bench.cold import First, first_answer
from tests.bench.gpu import contacts, kernels, peers, queries
from tests.bench.gpu import machine as machines
from tests.bench.gpu.machine import Ceilings, Machine, of_one_gpu
from tests.bench.gpu.queries import BATCHES, Point
from tests.bench.runner import Page, Pictures, Run
from tests.bench.shared import NOT_MEASURED, bullets, columns, goal, goal_table, reason, show, titled, titleless

FIRST_ROBOT = "arm7"
FIRST = ("inverse_dynamics", "forward_dynamics", "inverse_dynamics_gradient", "forward_dynamics_gradient")
"""Queries whose first answers are timed."""
BATCH, DTYPE = 65_536, "float32"
"""Of which something is wanted."""
TIMES_GRID = {"arm7": 5.0, "humanoid, floating": 3.0}
"""States per second of forward dynamics, over GRiD's published ones."""
OVER_ROOFLINE = 3.0
FIRST_ANSWER_S = 3.0
_NAMED = 6


@dataclass
class Measured:
    """Everything; before it is measured, what will be. `kept`: whether trials are there for the engine;
    `problems`: why a part of it failed as a whole; `took_s`: how long parts took; `commits`: of parts of earlier runs,
    whose commits they are."""

    points: list[Point]
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
    touched: list[queries.Rolled] = field(default_factory=list)


_PARTS = {
    "fit": "trials",
    "queries": "points",
    "rollouts": "rolled",
    "contacts": "touched",
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
    first = [
        First(FIRST_ROBOT, each, "gpu") for each in FIRST if run.selected(f"gpu: first answer, {FIRST_ROBOT}, {each}")
    ]
    asked = queries.points(run), kernels.partitions(run), queries.rollouts(run), peers.rivals(run), first
    found = Measured(*asked, machine=machine.facts, touched=contacts.touched(run))

    def limits() -> None:
        found.ceilings = machines.ceilings(machine, run.settings.dtypes, run.seconds)

    def fitting() -> None:
        if run.fit:
            kernels.measure(machine, run, found.trials)
            found.kept = kernels.keep(machine, run, found.trials)

    def first_answers() -> None:
        for k, each in enumerate(found.first):
            run.announce(f"gpu: first answer, {each.query}")
            found.first[k] = first_answer(each.robot, each.query, engine)

    parts: dict[str, Callable[[], None]] = {
        "ceilings": limits,
        "fit": fitting,
        "queries": lambda: queries.measure(machine, run, found.points),
        "rollouts": lambda: queries.measure_rollouts(machine, run, found.rolled),
        "contacts": lambda: contacts.measure(machine, run, found.touched),
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


# What is wanted, and what others published.


def goals(found: Measured) -> list[tuple[str, ...]]:
    cold = [each.cold_s for each in found.first if each.robot == FIRST_ROBOT and each.cold_s is not None]
    there = [each for each in found.points if (each.batch, each.dtype) == (BATCH, DTYPE)]
    over = [(each.over_roofline(found.ceilings), f"{each.robot}, {each.query}") for each in there]
    farthest = max((each for each in over if each[0] is not None), default=(None, ""))
    slowest = max(cold, default=None)
    roofline = f"kernels over the roofline, {DTYPE}, {BATCH:,} states, the farthest of all queries"
    first = "arm7: first answer with nothing compiled, the slowest query"
    seconds = partial(show, missing=NOT_MEASURED)
    return [
        *(_times_grid(found.points, robot, wanted) for robot, wanted in TIMES_GRID.items()),
        goal(roofline, OVER_ROOFLINE, *farthest, most=True),
        goal(first, FIRST_ANSWER_S, slowest, most=True, unit=seconds),
        goal(
            f"{contacts.ROBOT}: steps with contacts per second, {contacts.DTYPE}",
            contacts.WANTED,
            contacts.fastest(found.touched),
            unit=lambda rate: NOT_MEASURED if rate is None else number(rate),
        ),
        goal("the chosen kernel over the fastest, at most", kernels.ALLOWED, kernels.worst(found.trials), most=True),
    ]


def _at(points: Sequence[Point], robot: str, query: str, batch: int) -> Point | None:
    asked = robot, query, DTYPE, batch
    return next((each for each in points if (each.robot, each.query, each.dtype, each.batch) == asked), None)


def _times_grid(points: Sequence[Point], robot: str, wanted: float) -> tuple[str, ...]:
    theirs = next(each for each in published.GRID if (each.ours, each.query) == (robot, "forward_dynamics"))
    rate = published.GRID_BATCH / theirs.kernel_us * 1e6
    point = _at(points, robot, "forward_dynamics", BATCH)
    what = (
        f"{robot}: forward dynamics, {DTYPE}, {BATCH:,} states, over GRiD's {number(rate)} states/s of {theirs.robot} "
        f"({published.GRID_HARDWARE})"
    )
    return goal(what, wanted, point.states_per_s / rate if point and point.states_per_s else None)


def beside_published(points: Sequence[Point]) -> Cells:
    """GRiD's table, and ours at the same batch."""
    rows = []
    for each in published.GRID:
        point = _at(points, each.ours, each.query, published.GRID_BATCH)
        ours = (None, None) if point is None else (point.kernel_s, point.call_s)
        others = ", ".join(f"{name} {time:,} us" for name, time in each.others_us.items())
        theirs = f"{each.kernel_us:g} us", f"{each.call_us:g} us", others
        rows.append((each.query, each.robot, *theirs, each.ours, *(show(time, NOT_MEASURED) for time in ours)))
    headings = columns("query|published robot|#GRiD kernel|#GRiD call|published others|our robot|#our kernel|#our call")
    return Cells("Published figures", headings, rows)


# What is shown.


def cells(found: Measured) -> dict[str, list[Cells]]:
    """All tables, by section."""
    return {
        "goals": [goal_table(goals(found))],
        "ceilings": [_ceilings(found.ceilings)],
        "queries": queries.tables(found.points, found.ceilings),
        "published": [beside_published(found.points)],
    }


def _ceilings(found: Ceilings | None) -> Cells:
    most = [("copy on the device, 1 GiB read and 1 GiB written", found and found.bytes_per_s, "GB/s")]
    for dtype in ("float32", "float64"):
        most += [(f"fused products and sums in registers, {dtype}", found and found.flops.get(dtype), "GFLOP/s")]
    rows = [(what, NOT_MEASURED if rate is None else f"{rate / 1e9:,.0f} {unit}") for what, rate, unit in most]
    return Cells("Ceilings", columns("what|#at most"), rows)


def blocks(found: Measured, pictures: Pictures) -> dict[str, str]:
    before = {part: f" (before, at {commit})" for part, commit in found.commits.items()}
    took = ", ".join(f"{name} {seconds:.0f} s{before.get(name, '')}" for name, seconds in found.took_s.items())
    made = {name: (titled if name == "queries" else titleless)(tables) for name, tables in cells(found).items()}
    made |= {"kernels": "\n".join(kernels.verdict(found.trials)), "missing": bullets(remarks(found))}
    return {**made, "took": f"How long that took: {took}." if took else ""}


def remarks(found: Measured) -> list[str]:
    """Why something is missing, each reason once, with what it is of."""
    asked = list(found.problems.items())
    asked += [(f"{p.robot}, {p.query}, {p.dtype}, batch {p.batch:,}", p.problem) for p in found.points]
    asked += [(f"{each.robot}, {each.query}, {each.peer}", each.problem) for each in found.rivals]
    asked += [(f"rollouts, {r.robot}, {r.integrator}, {r.dtype}, batch {r.batch:,}", r.problem) for r in found.rolled]
    asked += [(f"contacts, {t.robot}, {t.dtype}, batch {t.batch:,}", t.problem) for t in found.touched]
    for each in (*found.partitions, *found.trials):
        what = f"{each.query}, {each.dtype}" if isinstance(each, kernels.Trial) else "partitions"
        where = f"{each.robot}, {what}, batch {each.batch:,}"
        asked += [(f"{where}: {name}", problem) for name, problem in each.problems.items()]
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
