"""The experiments of Lynghus' thesis, figures 10 to 16, with our engines in place of the thesis' own.

`python -m tests.bench thesis --write`; `--quick` stops at 10,000 bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from robodyn.benchmark.tables import Cells
from tests.bench import published
from tests.bench.points import NOT_MEASURED, Budget, Point, bounded_memory, remarks, worst_difference
from tests.bench.shared import facts, show
from tests.bench.thesis_cases import (
    BASELINE,
    CRBA,
    FASTER,
    HEAVY,
    OPERATORS,
    RECURRENCE,
    RNEA,
    SEQUENTIAL,
    SPARSE,
    STRUCTURES,
    TOUR,
    VELOCITIES,
    Contender,
    Problem,
)

SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000, 2_000_000, 4_000_000)
MATRIX_SIZES = (10, 100, 1_000, 5_000, 10_000, 20_000, 40_000)
BRANCHINGS = (1.0, 1.01, 1.5, 2.0)
QUICK = 10_000
"""Bodies at which a quick run stops."""


@dataclass(frozen=True)
class Experiment:
    """What runs over sizes and branchings; `figures`: those that show it."""

    group: str
    figures: str
    contenders: Sequence[Contender]
    branchings: tuple[float, ...]
    sizes: tuple[int, ...] = SIZES

    def name(self, contender: Contender) -> str:
        """What the runner's filter is held against."""
        return f"thesis: figure {self.figures}, {self.group}, {contender.name}"


EXPERIMENTS = (
    *(Experiment(f"structures: {what}", "10", each, (1.0,)) for what, each in STRUCTURES.items()),
    Experiment("velocities", "11", VELOCITIES, (2.0,)),
    Experiment("operators", "12", OPERATORS, (2.0,)),
    Experiment("RNEA", "13 and 14", RNEA, BRANCHINGS),
    Experiment("CRBA", "15 and 16", CRBA, BRANCHINGS, MATRIX_SIZES),
)
SHOWN = {"RNEA": (HEAVY, TOUR, SEQUENTIAL), "CRBA": (SPARSE, "scans, dense", SEQUENTIAL)}
"""Whose times by branching are compared in figures 13 and 15."""


def measure(
    selected: Callable[[str], bool], budget: Budget, largest: int, announce: Callable[[str], object]
) -> list[Point]:
    """All points whose names are selected, up to `largest` bodies; those so far if interrupted."""
    found: list[Point] = []
    with bounded_memory(), suppress(KeyboardInterrupt):
        for experiment in EXPERIMENTS:
            contenders = [each for each in experiment.contenders if selected(experiment.name(each))]
            for branching in experiment.branchings if contenders else ():
                for n in (n for n in experiment.sizes if n <= largest):
                    announce(
                        f"thesis: figure {experiment.figures}, {experiment.group}, branching {branching:g}, n = {n}"
                    )
                    found += _points(experiment, contenders, Problem(n, branching), budget)
    return found


def _points(experiment: Experiment, contenders: Sequence[Contender], problem: Problem, budget: Budget) -> list[Point]:
    found = []
    for each in contenders:
        point = Point(experiment.group, each.name, problem.n, problem.branching, where=each.where)
        if problem.n > each.most:
            point.problem = f"asked of at most {each.most:,} bodies"
        else:
            with each.running():
                check = partial(problem.off_by, each.answer)
                budget.measure(point, problem.n, partial(each.prepare, problem), check)
        found.append(point)
    return found


class Curves:
    """Points by group, branching, series and size."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = points
        self._at = {(p.group, p.branching, p.series, p.n): p for p in points}

    def of(self, group: str, branching: float | None = None) -> list[Point]:
        """The points of a group."""
        return [p for p in self.points if p.group == group and branching in (None, p.branching)]

    def sizes(self, group: str) -> list[int]:
        """Of a group, in order."""
        return sorted({p.n for p in self.of(group)})

    def series(self, group: str) -> list[str]:
        """Of a group, in the order in which they are listed."""
        return list(dict.fromkeys(p.series for p in self.of(group)))

    def at(self, group: str, branching: float, series: str, n: int) -> Point | None:
        """One point."""
        return self._at.get((group, branching, series, n))

    def seconds(self, group: str, branching: float, series: str, n: int) -> float | None:
        """Of the fastest call."""
        point = self.at(group, branching, series, n)
        return None if point is None else point.best_s

    def ratio(self, group: str, branching: float, over: str, under: str, n: int) -> float | None:
        """How many times longer one series takes than another."""
        a, b = (self.seconds(group, branching, series, n) for series in (over, under))
        return a / b if a and b else None

    def deviation(self, group: str, branching: float, series: str, n: int) -> float | None:
        """Of the time on a tree from that on a chain, as a share of the latter."""
        a, b = (self.seconds(group, each, series, n) for each in (branching, 1.0))
        return a / b - 1.0 if a and b else None

    def times(
        self, group: str, branching: float, against: str | None = None, said: dict[str, dict[int, float]] | None = None
    ) -> Cells:
        """Times, with how many times faster than `against` they are; then published ones."""
        series, said = self.series(group), said or {}
        rows = []
        for n in self.sizes(group):
            cells = [self._cell(group, branching, each, n, against) for each in series]
            others = [show(column[n]) if n in column else "" for column in said.values()]
            rows.append((f"{n:,}", *cells, *others))
        columns = ("bodies ", *(f"{each} " for each in series), *(f"{each} " for each in said))
        return Cells(f"{group}, branching {branching:g}", columns, rows)

    def _cell(self, group: str, branching: float, series: str, n: int, against: str | None) -> str:
        point = self.at(group, branching, series, n)
        if point is None:
            return ""
        ratio = None if against in (None, series) else self.ratio(group, branching, str(against), series, n)
        return point.cell if ratio is None else f"{point.cell} ({ratio:.3g} x)"

    def ratios(self, group: str, pairs: Sequence[tuple[str, str, str]], branching: float) -> Cells:
        """How many times faster, pair by pair (what it is called, the slower, the faster)."""
        rows = []
        for n in self.sizes(group):
            found = [self.ratio(group, branching, slow, fast, n) for _, slow, fast in pairs]
            rows.append((f"{n:,}", *(NOT_MEASURED if each is None else f"{each:.3g} x" for each in found)))
        return Cells(f"{group}, speed-up", ("bodies ", *(f"{name} " for name, _, _ in pairs)), rows)

    def deviations(self, group: str, series: str) -> Cells:
        """Times by branching, as the share by which they differ from those on a chain."""
        rows = []
        for n in self.sizes(group):
            found = [self.deviation(group, branching, series, n) for branching in BRANCHINGS[1:]]
            base = self.at(group, 1.0, series, n)
            rows.append(
                (
                    f"{n:,}",
                    NOT_MEASURED if base is None else base.cell,
                    *(NOT_MEASURED if each is None else f"{100 * each:+.0f} %" for each in found),
                )
            )
        columns = ("bodies ", "chain ", *(f"branching {branching:g} " for branching in BRANCHINGS[1:]))
        return Cells(f"{group}, {series}", columns, rows)


def tables(points: Sequence[Point]) -> dict[str, list[Cells]]:
    """By figure, those of which something was measured."""
    curves = Curves(points)
    found: dict[str, list[Cells]] = {}
    for what, pairs in FASTER.items():
        group = f"structures: {what}"
        if curves.of(group):
            found.setdefault("10", []).extend((curves.ratios(group, pairs, 1.0), curves.times(group, 1.0)))
    if curves.of("velocities"):
        found["11"] = [curves.times("velocities", 2.0, BASELINE)]
    if curves.of("operators"):
        found["12"] = [curves.times("operators", 2.0, RECURRENCE)]
    for group, heat, lines in (("RNEA", "13", "14"), ("CRBA", "15", "16")):
        if curves.of(group):
            there = [series for series in SHOWN[group] if series in curves.series(group)]
            found[heat] = [curves.deviations(group, series) for series in there]
            found[lines] = [
                curves.times(group, branching, SEQUENTIAL, said(group, branching)) for branching in BRANCHINGS
            ]
    return found


def said(group: str, branching: float) -> dict[str, dict[int, float]]:
    """Published times."""
    if group == "RNEA":
        return published.RNEA if branching == 2.0 else {}
    return published.CRBA.get(branching, {})


def document(points: Sequence[Point], about: dict[str, str], budget: Budget) -> dict[str, Any]:
    """Everything for a JSON file."""
    return {
        **about,
        "threads": 1,
        "seconds": budget.seconds,
        "limit_s": budget.limit,
        "points": [point.record() for point in points],
        "published": {
            "source": published.SOURCE,
            "RNEA": {"branching": 2.0, "seconds": published.RNEA},
            "CRBA": [{"branching": b, "seconds": columns} for b, columns in published.CRBA.items()],
        },
    }


TITLES = {
    "10": "Figure 10: what compact structures are worth",
    "11": "Figure 11: kernels, on the rootfix that computes velocities",
    "12": "Figure 12: the recurrence against addition",
    "13": "Figure 13: inverse dynamics by branching",
    "14": "Figure 14: inverse dynamics against the sequential recursion",
    "15": "Figure 15: mass matrix and bias force by branching",
    "16": "Figure 16: mass matrix and bias force against the sequential recursion",
}
TEXTS = {
    "10": "Transforms as (E, r), 12 numbers, or as 6 x 6 matrices; the same scan (vector tree, blocks of 64) and the "
    "same way to run steps on both sides. Chains. *NumPy*: operations of NumPy over all bodies; *compiled*: machine "
    "code; *numpy.matmul*: products of 6 x 6 left to that function. Mass matrices are not compared.",
    "11": "Vector tree, branching 2; in parentheses how many times faster than Blelloch's scan, compiled. NumPy has no "
    "scan of its own but for sums, which the thesis takes for comparison. *simulated*: a scan of transforms (blocks of "
    "64), then plain sums in world coordinates and back. *heavy paths*: on those instead of the vector tree.",
    "12": "Vector tree, branching 2; in parentheses how many times faster than the recurrence.",
    "13": "How much longer a call takes than on a chain of as many bodies; `rnea_world, vector tree` is the thesis' "
    "optimised algorithm.",
    "14": "In parentheses how many times faster than our compiled recursion on one thread. Both run on one core here.",
    "15": "As figure 13; the times are of the mass matrix and the bias force together, as in the thesis.",
    "16": "As figure 14. Dense matrices up to 10,000 bodies; one of 40,000 takes 12.8 GB.",
}


def page(points: Sequence[Point], about: dict[str, str], plots: dict[str, str]) -> str:
    """The page of docs/benchmarks; `plots`: files by figure."""
    lines = [
        "# Scans on trees: the experiments of the thesis",
        "",
        "Printed by `python -m tests.bench thesis --write`: figures 10 to 16 of Lynghus, *Data Parallel Rigid Body",
        "Dynamics*, with our engines, one state of Featherstone's autoTree. Shared machines drift: compare within one",
        "run. GPU: not measured.",
        "",
        f"Measured on: {facts(about)}; one thread, float64; the best of several calls.",
        "",
        published.NOTE,
        "",
        f"Largest difference of an answer from what it is compared with: {worst_difference(points)} of its largest "
        "entry: torques and products of the mass matrix with the compiled recursion, velocities with the scan on heavy "
        "paths.",
    ]
    for figure, cells in tables(points).items():
        lines += ["", f"## {TITLES[figure]}", "", TEXTS[figure]]
        if figure in published.SAID:
            lines += ["", f"Published: {published.SAID[figure]}"]
        if figure in plots:
            lines += ["", f"![{TITLES[figure]}]({plots[figure]})"]
        for table in cells:
            lines += ["", f"{table.title}:", "", *table.markdown()]
    why = [
        f"- {group}, {remark}" for group in dict.fromkeys(p.group for p in points) for remark in _remarks(points, group)
    ]
    if why:
        lines += ["", "## What was not measured", "", *why]
    return "\n".join(lines) + "\n"


def _remarks(points: Sequence[Point], group: str) -> list[str]:
    branchings = dict.fromkeys(p.branching for p in points if p.group == group)
    return [
        f"branching {branching:g}: {remark}"
        for branching in branchings
        for remark in remarks([p for p in points if (p.group, p.branching) == (group, branching)])
    ]
