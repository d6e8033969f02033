"""Scans on a GPU: one tree of up to millions of bodies, and groups of smaller ones.

`python -m tests.bench scan-gpu --write`. Methods are those that the scan engine answers there when this runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

from robodyn.engines.scan import ScanOptions
from robodyn.engines.scan.methods import methods_of
from robodyn.engines.scan.options import LAYOUTS
from robodyn.tools.benchmark.tables import Cells
from tests.bench import experiments, published
from tests.bench.drawing import finish, panels, published_times
from tests.bench.experiments import FORWARD, GRADIENT, INVERSE, MATRICES, Case, Contender, Curves, Experiment, Measured
from tests.bench.gpu import machine as gpu
from tests.bench.gpu.machine import Machine, of_one_gpu
from tests.bench.points import Point, remarks, worst_difference
from tests.bench.runner import Page, Pictures, Run
from tests.bench.shared import Row, bullets, goal, goal_table, markdown, picture, sections, show

SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000, 4_000_000)
MATRIX_SIZES = (10, 100, 1_000, 5_000, 10_000, 20_000, 40_000)
BRANCHINGS = (1.0, 2.0)
LINKS = (10, 100, 200)
GROUPS = (1, 10, 100, 1_000)
CHAIN = 1_000_000
"""Bodies of the chain whose forward dynamics has a goal."""
MOST_DENSE, MOST_FULL = 10_000, 1_000
"""Bodies of a tree of which a CPU makes dense matrices, and of a chain, whose matrix is full, for sparse ones."""
RECURSION = "cpu"
"""Our compiled recursion on one thread."""
WORDS = {
    INVERSE: "inverse dynamics",
    FORWARD: "forward dynamics",
    MATRICES: "mass matrix and bias force",
    GRADIENT: "gradient of inverse dynamics",
}
RECORDED = ("aba_scan", "idsva")
"""Methods of forward dynamics and of the gradient that are recorded, too."""
TIMES_A100, TIMES_RECURSION = 10.0, 50.0
"""What is wanted: over the thesis' times on an A100, over our recursion on a chain of `CHAIN` bodies."""


def contenders(query: str, machine: Machine, several: bool) -> list[Contender]:
    """What runs on a GPU, then the same on a CPU; `several`: groups, of which no sparse matrix is made."""
    found = []
    for method in methods_of(query):
        plain = Contender(method, query, "scan", machine=machine, options={"method": method})
        asked = [replace(plain, scan=ScanOptions(layout=LAYOUTS[0]))]
        if query == MATRICES:
            asked = [replace(plain, name=f"{method}, dense", options={})]
        if query == INVERSE:
            asked = [replace(plain, name=f"{method}, {each}", scan=ScanOptions(layout=each)) for each in LAYOUTS]
        for each in asked:
            found += _both(each) if query in (INVERSE, MATRICES) or method in RECORDED else [each]
    if query == MATRICES and not several:
        sparse = {"options": {"sparse": True}, "most_of_chains": MOST_FULL}
        found += _both(Contender("crba, sparse", query, "scan", machine=machine, **sparse))
    most = {"most": MOST_DENSE} if query in (MATRICES, GRADIENT) else {}
    return [*found, Contender(RECURSION, query, "cpu", **most)]


def _both(plain: Contender) -> list[Contender]:
    return [plain, replace(plain, name=f"{plain.name}, recorded", recorded=True)]


def plan(machine: Machine) -> list[Experiment]:
    """One tree, then groups."""
    found = []
    for query, words in WORDS.items():
        sizes = SIZES if query in (INVERSE, FORWARD) else MATRIX_SIZES
        cases = [Case(n, branching) for branching in BRANCHINGS for n in sizes]
        found.append(Experiment(words, "scan-gpu: one tree,", contenders(query, machine, several=False), cases))
    for query, words in WORDS.items():
        several = contenders(query, machine, several=True)
        for links in LINKS:
            states = [Case(links, batch=batch) for batch in GROUPS]
            found.append(Experiment(f"{words}, {links} links", "scan-gpu: groups,", several, states))
    return found


def measure(run: Run) -> Measured:
    """All points whose names, "scan-gpu: one tree, forward dynamics, crba", are selected."""
    machine = gpu.cuda_machine()
    found = experiments.measure(plan(machine), 0.0, run)
    found.machine = machine.facts
    return found


def merge(found: Measured, old: Measured, about: dict[str, str], old_about: dict[str, str]) -> Measured:
    """This, and of what nobody was asked about now what is stored of the same GPU: large trees take minutes to lay
    out."""
    if not of_one_gpu(old_about, about):
        return found
    before = [replace(each, commit=each.commit or old_about["commit"]) for each in old.points]
    key = attrgetter("group", "branching", "n", "batch", "series")
    return replace(found, points=list({key(each): each for each in (*before, *found.points)}.values()))


# What is wanted, and what came out.


def goals_of(points: Sequence[Point]) -> list[Row]:
    """Against the thesis' times, size by size, and against our own recursion."""
    a100 = [(INVERSE, 2.0, published.RNEA), *((MATRICES, *each) for each in published.CRBA.items())]
    found = []
    for query, branching, there in a100:
        shape = "a chain" if branching == 1.0 else f"branching {branching:g}"
        for n, seconds in there[published.GPU].items():
            what = f"{WORDS[query]}, {shape}, {n:,} bodies, over the A100's {show(seconds)}"
            found.append(_goal(what, TIMES_A100, seconds, _fastest(points, query, branching, n)))
    mine = Curves(points, WORDS[FORWARD], 1.0).seconds(RECURSION, (1, CHAIN))
    what = f"forward dynamics of a chain of {CHAIN:,}, over our recursion on one core"
    return [*found, _goal(what, TIMES_RECURSION, mine, _fastest(points, FORWARD, 1.0, CHAIN))]


def _goal(what: str, wanted: float, theirs: float | None, ours: Point | None) -> Row:
    if theirs is None or ours is None or ours.best_s is None:
        return goal(what, wanted, None)
    return goal(what, wanted, theirs / ours.best_s, ours.series)


def _fastest(points: Sequence[Point], query: str, branching: float, n: int) -> Point | None:
    wanted = WORDS[query], branching, n, 1, "gpu"
    there = [p for p in points if (p.group, p.branching, p.n, p.batch, p.where) == wanted and p.best_s]
    return min(there, key=lambda point: point.best_s or 0.0, default=None)


def said(query: str, branching: float) -> dict[str, dict[int, float]]:
    """The thesis' times, on an A100 and on a core."""
    if query == INVERSE:
        return published.RNEA if branching == 2.0 else {}
    return published.CRBA.get(branching, {}) if query == MATRICES else {}


def times_of(points: Sequence[Point]) -> list[Cells]:
    """By query and tree, then by query and links."""
    trees = {
        f"{words}, branching {branching:g}": (Curves(points, words, branching), said(query, branching))
        for query, words in WORDS.items()
        for branching in BRANCHINGS
    }
    groups = [f"{words}, {links} links" for words in WORDS.values() for links in LINKS]
    shown = trees | {group: (Curves(points, group, unit="groups"), {}) for group in groups}
    return [curves.table(title, RECURSION, others) for title, (curves, others) in shown.items() if curves.points]


def blocks(found: Measured, pictures: Pictures) -> dict[str, str]:
    return {
        "difference": worst_difference(found.points),
        "goals": markdown(goal_table(goals_of(found.points))),
        "picture": picture("Times by the number of bodies", pictures.get("times")),
        "tables": sections(times_of(found.points)),
        "missing": bullets(remarks(found.points, grouped=True)),
        "before": bullets(_before(found.points)),
    }


def _before(points: Sequence[Point]) -> list[str]:
    """Which points are of earlier runs, by cases; series are named where others of the case are of this one."""
    cases: dict[tuple[str, float, int], list[Point]] = {}
    for point in points:
        cases.setdefault((point.group, point.branching, point.n), []).append(point)
    found = []
    for (group, branching, n), mine in cases.items():
        for commit in dict.fromkeys(each.commit for each in mine if each.commit):
            series = dict.fromkeys(each.series for each in mine if each.commit == commit)
            some = f", {'; '.join(series)}" if any(each.commit != commit for each in mine) else ""
            found.append(f"{group}, branching {branching:g}, n = {n:,}{some}: at {commit}")
    return found


def draw(found: Measured, folder: Path) -> Pictures:
    """Write scan-gpu.svg, a panel for each query and branching factor of one tree."""
    points = [point for point in found.points if point.best_s]
    there = {query: words for query, words in WORDS.items() if any(point.group == words for point in points)}
    if not there:
        return {}
    size = (4.0 * len(BRANCHINGS), 3.6 * len(there))
    with panels(folder / "scan-gpu.svg", len(there), len(BRANCHINGS), size, sharey="row") as (_, axes):
        for row, (query, group) in zip(axes, there.items(), strict=True):
            for panel, branching in zip(row, BRANCHINGS, strict=True):
                Curves(points, group, branching).draw(panel)
                published_times(panel, said(query, branching))
                finish(panel, f"{group}, branching {branching:g}", "seconds")
            row[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return {"times": "scan-gpu.svg"}


PAGE = Page(
    "scan-gpu",
    Measured,
    measure,
    tables=lambda found: [goal_table(goals_of(found.points)), *times_of(found.points)],
    blocks=blocks,
    draw=draw,
    merge=merge,
    seconds=0.1,
)
