"""The experiments of Lynghus' thesis, figures 10 to 16, with our engines in place of the thesis' own.

`python -m tests.bench thesis --write`; `--quick` stops at 10,000 bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from robodyn.tools.benchmark.tables import Cells
from tests.bench import experiments, published
from tests.bench.drawing import curve, finish, legend, look, panels, published_times, pyplot
from tests.bench.experiments import Curves, Experiment, Measured, over, remarks_by
from tests.bench.points import worst_difference
from tests.bench.runner import Page, Pictures, Run
from tests.bench.shared import bullets, picture, titled
from tests.bench.thesis_cases import (
    BASELINE,
    CRBA,
    DENSE,
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
SHOWN = {"RNEA": (HEAVY, TOUR, SEQUENTIAL), "CRBA": (SPARSE, DENSE, SEQUENTIAL)}
"""Whose times by branching are compared in figures 13 and 15."""
TITLES = {
    "10": "Figure 10: what compact structures are worth",
    "11": "Figure 11: kernels, on the rootfix that computes velocities",
    "12": "Figure 12: the recurrence against addition",
    "13": "Figure 13: inverse dynamics by branching",
    "14": "Figure 14: inverse dynamics against the sequential recursion",
    "15": "Figure 15: mass matrix and bias force by branching",
    "16": "Figure 16: mass matrix and bias force against the sequential recursion",
}
"""Of pictures."""


def measure(run: Run) -> Measured:
    """All points whose names, "thesis: figure 11, velocities, blelloch", are selected, up to the largest tree."""
    return experiments.measure(EXPERIMENTS, lambda case: Problem(case.n, case.branching), run)


def by_figure(found: Measured) -> dict[str, list[Cells]]:
    """Tables of those figures of which something was measured."""
    curves = Curves(found.points)
    made: dict[str, list[Cells]] = {}
    for what, pairs in FASTER.items():
        group = f"structures: {what}"
        if curves.of(group):
            made.setdefault("10", []).extend((curves.ratios(group, pairs, 1.0), curves.table(group, 1.0)))
    for figure, group, against in (("11", "velocities", BASELINE), ("12", "operators", RECURRENCE)):
        if curves.of(group):
            made[figure] = [curves.table(group, 2.0, against)]
    for group, heat, lines in (("RNEA", "13", "14"), ("CRBA", "15", "16")):
        if curves.of(group):
            there = [series for series in SHOWN[group] if series in curves.series(group)]
            made[heat] = [curves.deviations(group, series, BRANCHINGS[1:]) for series in there]
            made[lines] = [curves.table(group, b, SEQUENTIAL, said(group, b)) for b in BRANCHINGS]
    return made


def said(group: str, branching: float) -> dict[str, dict[int, float]]:
    """Published times."""
    if group == "RNEA":
        return published.RNEA if branching == 2.0 else {}
    return published.CRBA.get(branching, {})


def blocks(found: Measured, pictures: Pictures) -> dict[str, str]:
    """Of the page: a picture and tables for each figure."""
    tables = by_figure(found)
    why = remarks_by(found.points, "group", "branching", how=lambda group, b: f"{group}, branching {b:g}: ")
    return {
        **{f"tables_{figure}": titled(tables.get(figure, ())) for figure in TITLES},
        **{f"picture_{figure}": picture(title, pictures.get(figure)) for figure, title in TITLES.items()},
        "difference": worst_difference(found.points),
        "missing": bullets(why),
    }


# Pictures.


def draw(found: Measured, folder: Path) -> Pictures:
    """Write thesis-10.svg and so on, of the figures of which there are points."""
    curves, made = Curves([p for p in found.points if p.best_s]), {}
    for figure, (drawing, groups) in _DRAWINGS.items() if pyplot() is not None else ():
        if any(curves.of(group) for group in groups):
            made[figure] = f"thesis-{figure}.svg"
            drawing(curves, folder / made[figure])
    return made


def _structures(curves: Curves, path: Path) -> None:
    with panels(path, 1, len(FASTER), (8.4, 3.8), sharey=True) as (figure, axes):
        for panel, (what, pairs) in zip(axes[0], FASTER.items(), strict=True):
            group = f"structures: {what}"
            for k, (name, slow, fast) in enumerate(pairs):
                ratio = lambda n, s=slow, f=fast, g=group: curves.ratio(g, 1.0, s, f, n)  # noqa: E731
                curve(panel, curves.sizes(group), ratio, label=name, **look(k))
            panel.axhline(1.0, color="#000000", linewidth=0.8)
            finish(panel, f"{what}, chain", "time with 6 x 6 / time with (E, r)")
        legend(figure, axes)


def _one_tree(group: str, against: str) -> Callable[[Curves, Path], None]:
    def drawing(curves: Curves, path: Path) -> None:
        with panels(path, 1, 2, (9.6, 5.2)) as (figure, axes):
            left, right = axes[0]
            curves.draw(left, group, 2.0)
            curves.draw(right, group, 2.0, against, ratios=True)
            finish(left, f"{group}, branching 2", "seconds")
            finish(right, "speed-up", f"times faster than {against}")
            legend(figure, axes)

    return drawing


def _branchings(group: str) -> Callable[[Curves, Path], None]:
    def drawing(curves: Curves, path: Path) -> None:
        size = (3.6 * len(BRANCHINGS), 7.4)
        with panels(path, 2, len(BRANCHINGS), size, sharex=True, sharey="row") as (figure, axes):
            for column, branching in enumerate(BRANCHINGS):
                top, below = axes[0][column], axes[1][column]
                curves.draw(top, group, branching)
                curves.draw(below, group, branching, SEQUENTIAL, ratios=True)
                published_times(top, said(group, branching))
                finish(top, f"branching {branching:g}", "seconds")
                finish(below, "", f"times faster than {SEQUENTIAL}")
            legend(figure, axes)

    return drawing


def _heat(group: str) -> Callable[[Curves, Path], None]:
    def drawing(curves: Curves, path: Path) -> None:
        from matplotlib.colors import SymLogNorm

        names = [series for series in SHOWN[group] if series in curves.series(group)] or curves.series(group)
        sizes = curves.sizes(group)
        with panels(path, 1, len(names), (4.2 * len(names), 4.2)) as (figure, axes):
            for panel, series in zip(axes[0], names, strict=True):
                shares = [[_percent(curves.deviation(group, b, series, n)) for b in BRANCHINGS] for n in sizes]
                norm = SymLogNorm(10.0, vmin=-1000, vmax=1000)
                image = panel.imshow(shares, cmap="coolwarm", norm=norm, aspect="auto")
                write(panel, shares, lambda share: "" if share != share else f"{share:+.0f} %")
                panel.set_xticks(range(len(BRANCHINGS)), [f"{b:g}" for b in BRANCHINGS])
                panel.set_yticks(range(len(sizes)), [f"{n:,}" for n in sizes])
                panel.set(xlabel="branching", title=series)
            figure.colorbar(image, ax=axes[0][-1], label="time over that of a chain, less 1, percent")
            axes[0][0].set_ylabel("bodies")

    return drawing


def write(panel: Any, values: Sequence[Sequence[Any]], how: Callable[[Any], str]) -> None:
    """Values as text in the fields of a heat map."""
    for row, each in enumerate(values):
        for column, value in enumerate(each):
            panel.text(column, row, how(value), ha="center", va="center", fontsize=7)


def _percent(share: float | None) -> float:
    return float("nan") if share is None else 100.0 * share


_DRAWINGS: dict[str, tuple[Callable[[Curves, Path], None], tuple[str, ...]]] = {
    "10": (_structures, tuple(f"structures: {what}" for what in FASTER)),
    "11": (_one_tree("velocities", BASELINE), ("velocities",)),
    "12": (_one_tree("operators", RECURRENCE), ("operators",)),
    "13": (_heat("RNEA"), ("RNEA",)),
    "14": (_branchings("RNEA"), ("RNEA",)),
    "15": (_heat("CRBA"), ("CRBA",)),
    "16": (_branchings("CRBA"), ("CRBA",)),
}
"""How each figure is drawn, and the groups that it shows."""
PAGE = Page(
    "thesis",
    Measured,
    measure,
    tables=lambda found: [table for cells in by_figure(found).values() for table in cells],
    blocks=blocks,
    draw=draw,
)
