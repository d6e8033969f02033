"""The experiments of Lynghus' thesis, figures 10 to 16, with our engines in place of the thesis' own.

`python -m tests.bench thesis --write`; `--quick` stops at 10,000 bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from robodyn.tools.benchmark.tables import Cells
from tests.bench import experiments, published
from tests.bench.experiments import Curves, Experiment, over, remarks_by_tree
from tests.bench.points import Budget, Point, worst_difference
from tests.bench.shared import facts
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
    Problem,
)

SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000, 2_000_000, 4_000_000)
MATRIX_SIZES = (10, 100, 1_000, 5_000, 10_000, 20_000, 40_000)
BRANCHINGS = (1.0, 1.01, 1.5, 2.0)
QUICK = 10_000
"""Bodies at which a quick run stops."""


EXPERIMENTS = (
    *(
        Experiment(f"structures: {w}", "thesis: figure 10,", each, over((1.0,), SIZES))
        for w, each in STRUCTURES.items()
    ),
    Experiment("velocities", "thesis: figure 11,", VELOCITIES, over((2.0,), SIZES)),
    Experiment("operators", "thesis: figure 12,", OPERATORS, over((2.0,), SIZES)),
    Experiment("RNEA", "thesis: figure 13 and 14,", RNEA, over(BRANCHINGS, SIZES)),
    Experiment("CRBA", "thesis: figure 15 and 16,", CRBA, over(BRANCHINGS, MATRIX_SIZES)),
)
SHOWN = {"RNEA": (HEAVY, TOUR, SEQUENTIAL), "CRBA": (SPARSE, "scans, dense", SEQUENTIAL)}
"""Whose times by branching are compared in figures 13 and 15."""


def measure(
    selected: Callable[[str], bool], budget: Budget, largest: int, announce: Callable[[str], object]
) -> list[Point]:
    """All points whose names, "thesis: figure 11, velocities, blelloch", are selected, up to `largest` bodies."""
    return experiments.measure(EXPERIMENTS, _problem, selected, budget, largest, announce)


def _problem(case: experiments.Case) -> Problem:
    return Problem(case.n, case.branching)


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
            found[heat] = [curves.deviations(group, series, BRANCHINGS[1:]) for series in there]
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
        "run. GPU: not measured here; see [scans on an H200](scan-gpu.md), with the figures that the thesis publishes.",
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
    why = [f"- {remark}" for remark in remarks_by_tree(points)]
    if why:
        lines += ["", "## What was not measured", "", *why]
    return "\n".join(lines) + "\n"
