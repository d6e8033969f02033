"""Scans on a GPU: one tree of up to millions of bodies, and groups of smaller ones.

`python -m tests.bench scan-gpu --write`. Methods are those that the scan engine answers there when this runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from robodyn.engines.scan import ScanOptions
from robodyn.engines.scan.methods import methods_of
from robodyn.engines.scan.options import LAYOUTS
from robodyn.tools.benchmark.tables import Cells
from tests.bench import experiments, published
from tests.bench.drawing import curve, finish, look, published_times, pyplot, save
from tests.bench.experiments import Case, Contender, Curves, Experiment, over
from tests.bench.gpu.goals import Goal, table
from tests.bench.gpu.machine import Machine, of_one_gpu
from tests.bench.points import NOT_MEASURED, Budget, Point, remarks, worst_difference
from tests.bench.shared import facts, show
from tests.bench.trees import FORWARD, GRADIENT, INVERSE, MATRICES, Problem, on_cpu, on_gpu, tree

SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000, 4_000_000)
MATRIX_SIZES = (10, 100, 1_000, 5_000, 10_000, 20_000, 40_000)
BRANCHINGS = (1.0, 2.0)
LINKS = (10, 100, 200)
GROUPS = (1, 10, 100, 1_000)
CHAIN = 1_000_000
"""Bodies of the chain whose forward dynamics has a goal."""
MOST_DENSE = 10_000
"""Bodies of a tree of which a CPU makes dense matrices."""
MOST_FULL = 1_000
"""Bodies of a chain, whose matrix is full, of which sparse ones are made."""
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
    found = [*_on_gpu(query, machine)]
    if query == MATRICES and not several:
        sparse = [
            on_gpu("crba, sparse", query, "scan", machine, sparse=True),
            on_gpu("crba, sparse, recorded", query, "scan", machine, recorded=True, sparse=True),
        ]
        found += [replace(each, most_of_chains=MOST_FULL) for each in sparse]
    recursion = on_cpu(RECURSION, query, "cpu")
    if query in (MATRICES, GRADIENT):
        recursion = replace(recursion, most=MOST_DENSE)
    return [*found, recursion]


def _on_gpu(query: str, machine: Machine) -> Iterator[Contender]:
    for method in methods_of(query):
        if query == MATRICES:
            yield on_gpu(f"{method}, dense", query, "scan", machine)
            yield on_gpu(f"{method}, dense, recorded", query, "scan", machine, recorded=True)
            continue
        for layout in LAYOUTS if query == INVERSE else LAYOUTS[:1]:
            name = f"{method}, {layout}" if query == INVERSE else method
            options: dict[str, Any] = {"method": method, "scan": ScanOptions(layout=layout)}
            yield on_gpu(name, query, "scan", machine, **options)
            if query == INVERSE or method in RECORDED:
                yield on_gpu(f"{name}, recorded", query, "scan", machine, recorded=True, **options)


def plan(machine: Machine) -> list[Experiment]:
    """One tree, then groups."""
    trees = [
        Experiment(
            WORDS[query],
            "scan-gpu: one tree,",
            contenders(query, machine, several=False),
            over(BRANCHINGS, SIZES if query in (INVERSE, FORWARD) else MATRIX_SIZES),
        )
        for query in WORDS
    ]
    groups = [
        Experiment(
            f"{WORDS[query]}, {links} links",
            "scan-gpu: groups,",
            contenders(query, machine, several=True),
            [Case(links, batch=batch) for batch in GROUPS],
        )
        for query in WORDS
        for links in LINKS
    ]
    return [*trees, *groups]


def measure(
    machine: Machine,
    selected: Callable[[str], bool],
    budget: Budget,
    largest: int,
    announce: Callable[[str], object],
) -> list[Point]:
    """All points whose names, "scan-gpu: one tree, forward dynamics, crba", are selected."""
    return experiments.measure(plan(machine), _problem, selected, budget, largest, announce)


def _problem(case: Case) -> Problem:
    return Problem(tree(case.n, case.branching, 0.0), case.batch)


def with_stored(points: Sequence[Point], document: Mapping[str, Any], facts: Mapping[str, str]) -> list[Point]:
    """These, and of what nobody was asked about now what a document of the same GPU holds: large trees take minutes to
    lay out."""

    def key(point: Point) -> tuple[str, float, int, int, str]:
        return point.group, point.branching, point.n, point.batch, point.series

    if not of_one_gpu(document, facts):
        return list(points)
    asked, stored = set(map(key, points)), [Point(**each) for each in document["points"]]
    kept = [replace(each, commit=each.commit or document["commit"]) for each in stored if key(each) not in asked]
    groups, series = (list(dict.fromkeys(getattr(p, name) for p in (*stored, *points))) for name in ("group", "series"))
    words = list(WORDS.values())
    groups.sort(key=lambda group: words.index(group.split(", ")[0]) if group.split(", ")[0] in words else len(words))
    return sorted([*points, *kept], key=lambda p: (groups.index(p.group), *key(p)[1:4], series.index(p.series)))


# What is wanted, and what came out.


def goals_of(points: Sequence[Point]) -> list[Goal]:
    """Against the thesis' times, size by size, and against our own recursion."""
    found = [_over_a100(points, INVERSE, 2.0, n, seconds) for n, seconds in published.RNEA[published.GPU].items()]
    found += [
        _over_a100(points, MATRICES, branching, n, seconds)
        for branching, columns in published.CRBA.items()
        for n, seconds in columns[published.GPU].items()
    ]
    ours, mine = _fastest(points, FORWARD, 1.0, CHAIN), Curves(points).seconds(WORDS[FORWARD], 1.0, RECURSION, CHAIN)
    what = f"forward dynamics of a chain of {CHAIN:,}, over our recursion on one core"
    return [*found, _goal(what, TIMES_RECURSION, mine, ours)]


def _over_a100(points: Sequence[Point], query: str, branching: float, n: int, seconds: float) -> Goal:
    shape = "a chain" if branching == 1.0 else f"branching {branching:g}"
    what = f"{WORDS[query]}, {shape}, {n:,} bodies, over the A100's {show(seconds)}"
    return _goal(what, TIMES_A100, seconds, _fastest(points, query, branching, n))


def _goal(what: str, times: float, theirs: float | None, ours: Point | None) -> Goal:
    ratio = theirs / ours.best_s if theirs and ours is not None and ours.best_s else None
    said = NOT_MEASURED if ratio is None or ours is None else f"{ratio:.3g} x ({ours.series})"
    return Goal(what, f"{times:g} x", said, None if ratio is None else ratio >= times)


def _fastest(points: Sequence[Point], query: str, branching: float, n: int) -> Point | None:
    """On the GPU, of one tree."""
    there = [
        p
        for p in points
        if (p.group, p.branching, p.n, p.batch, p.where) == (WORDS[query], branching, n, 1, "gpu") and p.best_s
    ]
    return min(there, key=lambda point: point.best_s or 0.0, default=None)


def said(query: str, branching: float) -> dict[str, dict[int, float]]:
    """The thesis' times, on an A100 and on a core."""
    if query == INVERSE:
        return published.RNEA if branching == 2.0 else {}
    return published.CRBA.get(branching, {}) if query == MATRICES else {}


def tables(points: Sequence[Point]) -> list[Cells]:
    """By query and tree, then by query and links."""
    trees, groups = Curves(points), Curves(points, "batch", "groups")
    found = [
        trees.times(WORDS[query], branching, RECURSION, said(query, branching))
        for query in WORDS
        for branching in BRANCHINGS
        if trees.of(WORDS[query], branching)
    ]
    several = [f"{WORDS[query]}, {links} links" for query in WORDS for links in LINKS]
    shown = [(group, groups.times(group, 1.0, RECURSION)) for group in several if groups.of(group)]
    return [*found, *(Cells(group, times.columns, times.rows) for group, times in shown)]


def document(points: Sequence[Point], about: dict[str, str], budget: Budget) -> dict[str, Any]:
    """Everything for a JSON file."""
    return {
        **about,
        "seconds": budget.seconds,
        "limit_s": budget.limit,
        "points": [point.record() for point in points],
        "published": {
            "source": published.SOURCE,
            INVERSE: {"branching": 2.0, "seconds": published.RNEA},
            MATRICES: [{"branching": b, "seconds": columns} for b, columns in published.CRBA.items()],
        },
    }


TITLE = "# Scans on a GPU"
ASKED = (
    f"trees of Featherstone's autoTree of {SIZES[0]:,} to {SIZES[-1]:,} bodies (branching "
    f"{', '.join(f'{each:g}' for each in BRANCHINGS)}), with matrices of up to {MATRIX_SIZES[-1]:,}, and "
    f"{GROUPS[0]:,} to {GROUPS[-1]:,} states of chains of {', '.join(map(str, LINKS))} links, in float64: "
    f"{', '.join(WORDS.values())}, by every method that the scan engine answers there"
)


def unmeasured(missing: str) -> str:
    """The page where there is no GPU."""
    methods = "; ".join(f"{WORDS[query]} ({', '.join(methods_of(query))})" for query in WORDS)
    lines = [
        TITLE,
        "",
        f"GPU: not measured. {missing}",
        "",
        f"`python -m tests.bench scan-gpu --write` on a machine with a GPU measures {ASKED}: {methods}; beside our "
        "compiled recursion on one core, and the thesis' times.",
        "",
        *_goals([]),
        "",
        f"The A100's times are those of {published.SOURCE}.",
    ]
    return "\n".join(lines) + "\n"


def _goals(points: Sequence[Point]) -> list[str]:
    return ["## Goals", "", *table(goals_of(points)).markdown()]


def page(points: Sequence[Point], about: dict[str, str], plot: str | None) -> str:
    """The page of docs/benchmarks."""
    lines = [
        TITLE,
        "",
        f"Printed by `python -m tests.bench scan-gpu --write`: {ASKED}.",
        "",
        f"Measured on: {facts(about)}; the best of several calls from Python, each waited for; arrays live on the GPU.",
        "",
        f"*{RECURSION}*: our compiled recursion on one thread, with which all are compared in parentheses; *METHOD, "
        "heavy* and *METHOD, euler*: on heavy paths and on vector trees; *recorded*: the same by `Dynamics.capture`. "
        "Mass matrices are timed with the bias force, as in the thesis.",
        "",
        published.NOTE,
        "",
        f"Largest difference: {worst_difference(points)}, of torques and of sums of a matrix' rows relative to the "
        "largest, of accelerations by the torques that they need, relative to the largest bias force.",
        "",
        *_goals(points),
    ]
    lines += ["", f"![Times by the number of bodies]({plot})"] if plot is not None else []
    for cells in tables(points):
        lines += ["", f"## {cells.title}", "", *cells.markdown()]
    why = [f"- {group}, {each}" for group in dict.fromkeys(p.group for p in points) for each in _why(points, group)]
    lines += ["", "## What was not measured", "", *why] if why else []
    before = _before(points)
    lines += ["", "## What was measured before, on the same GPU", "", *before] if before else []
    return "\n".join(lines) + "\n"


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
            found.append(f"- {group}, branching {branching:g}, n = {n:,}{some}: at {commit}")
    return found


def _why(points: Sequence[Point], group: str) -> list[str]:
    return remarks([point for point in points if point.group == group])


def draw(points: Sequence[Point], folder: Path) -> str | None:
    """Write scan-gpu.svg, a panel for each query and branching factor of one tree; its name."""
    plt, curves = pyplot(), Curves([point for point in points if point.best_s])
    there = [query for query in WORDS if curves.of(WORDS[query])]
    if plt is None or not there:
        return None
    rows, columns = len(there), len(BRANCHINGS)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.0 * columns, 3.6 * rows), squeeze=False, sharey="row", layout="constrained"
    )
    for panels, query in zip(axes, there, strict=True):
        for panel, branching in zip(panels, BRANCHINGS, strict=True):
            group = WORDS[query]
            for k, series in enumerate(curves.series(group)):
                curve(
                    panel, curves.sizes(group), lambda n, g=group, b=branching, s=series: curves.seconds(g, b, s, n),
                    label=series, **look(k),
                )  # fmt: skip
            published_times(panel, said(query, branching))
            finish(panel, f"{group}, branching {branching:g}", "seconds")
        panels[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    save(plt, figure, folder / "scan-gpu.svg")
    return "scan-gpu.svg"
