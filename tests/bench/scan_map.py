"""Which method of the scan engine is the fastest where: bodies against states in a call.

`python -m tests.bench scan --write`. Beside the methods, our compiled recursion on one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from robodyn.engines.scan.methods import methods_of
from robodyn.plots.style import COLORS
from robodyn.tools.benchmark.tables import Cells
from tests.bench import experiments
from tests.bench.drawing import panels, pyplot
from tests.bench.experiments import Case, Contender, Experiment, Measured
from tests.bench.points import Point, remarks, worst_difference
from tests.bench.runner import Page, Pictures, Run
from tests.bench.shared import bullets, columns, picture, sections, show
from tests.bench.trees import FORWARD, INVERSE, Problem, on_cpu, tree

QUERIES = (INVERSE, FORWARD)
SHAPES = {"chain": 1.0, "binary": 2.0}
SKEW = 0.3
"""Of joints against their parents': no planar mechanism."""
SIZES = tuple(4**k for k in range(1, 11))
BATCHES = (1, 64, 1024)
MOST = 1 << 20
"""Bodies x batch."""
RECURSION, AUTO = "cpu", "auto"


def measure(run: Run) -> Measured:
    """All points whose names, "scan: QUERY, SHAPE, METHOD", are selected."""
    plan = []
    for query in QUERIES:
        asked = [_contender(query, name) for name in (RECURSION, *methods_of(query), AUTO)]
        for shape, branching in SHAPES.items():
            cases = [Case(n, branching, batch) for n in SIZES for batch in BATCHES if n * batch <= MOST]
            plan.append(Experiment(f"{query}, {shape}", "scan:", asked, cases))
    return experiments.measure(plan, lambda case: Problem(tree(case.n, case.branching, SKEW), case.batch), run)


def _contender(query: str, name: str) -> Contender:
    return on_cpu(name, query, "cpu") if name == RECURSION else on_cpu(name, query, "scan", method=name)


class Grid:
    """Points of one group by bodies and batch."""

    def __init__(self, group: str, points: Sequence[Point]) -> None:
        self.group = group
        self.points = [point for point in points if point.group == group]
        self.series = list(dict.fromkeys(point.series for point in self.points))
        self.methods = [each for each in self.series if each not in (RECURSION, AUTO)]
        self.sizes, self.batches = (sorted({getattr(point, name) for point in self.points}) for name in ("n", "batch"))
        self.at = {(point.series, point.n, point.batch): point for point in self.points}

    def seconds(self, series: str, n: int, batch: int) -> float | None:
        point = self.at.get((series, n, batch))
        return None if point is None else point.best_s

    def best(self, n: int, batch: int) -> str | None:
        """The fastest method."""
        found = [(seconds, series) for series in self.methods if (seconds := self.seconds(series, n, batch))]
        return min(found)[1] if found else None

    def against_recursion(self, n: int, batch: int) -> float | None:
        """How many times faster the fastest method is than the recursion."""
        name = self.best(n, batch)
        ours, theirs = (self.seconds(each, n, batch) if each else None for each in (name, RECURSION))
        return theirs / ours if ours and theirs else None

    def table(self) -> Cells:
        """A row for each size and batch; the fastest method in bold."""
        rows = []
        for batch in self.batches:
            for n in (n for n in self.sizes if any((series, n, batch) in self.at for series in self.series)):
                best, ratio = self.best(n, batch), self.against_recursion(n, batch)
                cells = [self._cell(series, n, batch, best) for series in self.series]
                rows.append((f"{n:,}", f"{batch:,}", *cells, best or "", "" if ratio is None else f"{ratio:.3g} x"))
        names = columns("|".join(f"#{each}" for each in ("bodies", "batch", *self.series, "times cpu")))
        return Cells(self.group, (*names[:-1], "fastest scan", names[-1]), rows)

    def _cell(self, series: str, n: int, batch: int, best: str | None) -> str:
        text = show(self.seconds(series, n, batch), "not measured")
        return f"**{text}**" if series == best else text


def grids(points: Sequence[Point]) -> list[Grid]:
    """Those of which there are points."""
    groups = [f"{query}, {shape}" for query in QUERIES for shape in SHAPES]
    return [grid for group in groups if (grid := Grid(group, points)).points]


def blocks(found: Measured, pictures: Pictures) -> dict[str, str]:
    shown = []
    for grid in grids(found.points):
        why = bullets(remarks(grid.points))
        shown.append(sections([grid.table()]) + (f"\n\nNot measured:\n\n{why}" if why else ""))
    return {
        "difference": worst_difference(found.points),
        "picture": picture("The fastest method by bodies and batch", pictures.get("map")),
        "grids": "\n\n".join(shown),
    }


def draw(found: Measured, folder: Path) -> Pictures:
    """The map: the fastest method as a colour, how many times faster than the recursion as a number."""
    there = grids(found.points)
    if pyplot() is None or not there:
        return {}
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    with panels(folder / "scan.svg", len(there), 1, (9.0, 2.4 * len(there))) as (_, axes):
        for (panel,), grid in zip(axes, there, strict=True):
            names = grid.methods
            chosen = [[grid.best(n, batch) for n in grid.sizes] for batch in grid.batches]
            numbers = np.array([[names.index(name) if name else np.nan for name in row] for row in chosen], float)
            colors = ListedColormap(COLORS[: len(names)])
            look = {"cmap": colors, "vmin": -0.5, "vmax": len(names) - 0.5, "alpha": 0.7}
            panel.imshow(numbers, aspect="auto", origin="lower", **look)
            ratios = [[grid.against_recursion(n, batch) for n in grid.sizes] for batch in grid.batches]
            for row, each in enumerate(ratios):
                for column, ratio in enumerate(each):
                    said = "" if ratio is None else f"{ratio:.2g} x"
                    panel.text(column, row, said, ha="center", va="center", fontsize=7)
            panel.set_xticks(range(len(grid.sizes)), [f"{n:,}" for n in grid.sizes])
            panel.set_yticks(range(len(grid.batches)), [f"{batch:,}" for batch in grid.batches])
            title = f"{grid.group}: fastest scan, and how many times faster than the recursion"
            panel.set(title=title, ylabel="batch")
            patches = [Patch(color=COLORS[k], label=name, alpha=0.7) for k, name in enumerate(names)]
            panel.legend(handles=patches, loc="center left", bbox_to_anchor=(1.0, 0.5))
        axes[-1][0].set_xlabel("bodies")
    return {"map": "scan.svg"}


PAGE = Page(
    "scan", Measured, measure, lambda found: [grid.table() for grid in grids(found.points)], blocks=blocks, draw=draw
)
