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
from tests.bench.experiments import FORWARD, INVERSE, Case, Contender, Curves, Experiment, Measured, Size
from tests.bench.points import Point, remarks, worst_difference
from tests.bench.runner import Page, Pictures, Run
from tests.bench.shared import NOT_MEASURED, bullets, picture, sections, show

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
    return experiments.measure(plan, SKEW, run)


def _contender(query: str, name: str) -> Contender:
    return (
        Contender(name, query, "cpu") if name == RECURSION else Contender(name, query, "scan", options={"method": name})
    )


class Grid(Curves):
    """Curves of one group over bodies and batch."""

    def __init__(self, group: str, points: Sequence[Point]) -> None:
        super().__init__(points, group)
        self.methods = [each for each in self.series if each not in (RECURSION, AUTO)]
        self.batches, self.bodies = (sorted({size[k] for size in self.sizes}) for k in (0, 1))

    def best(self, size: Size) -> str | None:
        """The fastest method."""
        found = [(seconds, series) for series in self.methods if (seconds := self.seconds(series, size))]
        return min(found)[1] if found else None

    def against_recursion(self, size: Size) -> float | None:
        """How many times faster the fastest method is than the recursion."""
        name = self.best(size)
        return None if name is None else self.ratio(RECURSION, name, size)

    def cells(self) -> Cells:
        """A row for each size and batch; the fastest method in bold."""
        rows = []
        for batch, n in self.sizes:
            best, ratio = self.best((batch, n)), self.against_recursion((batch, n))
            cells = [show(self.seconds(series, (batch, n)), NOT_MEASURED) for series in self.series]
            bold = [f"**{text}**" if series == best else text for series, text in zip(self.series, cells, strict=True)]
            rows.append((f"{n:,}", f"{batch:,}", *bold, best or "", "" if ratio is None else f"{ratio:.3g} x"))
        names = [f"{each} " for each in ("bodies", "batch", *self.series)]
        return Cells(self.group, (*names, "fastest scan", "times cpu "), rows)


def grids(points: Sequence[Point]) -> list[Grid]:
    """Those of which there are points."""
    groups = [f"{query}, {shape}" for query in QUERIES for shape in SHAPES]
    return [grid for group in groups if (grid := Grid(group, points)).points]


def blocks(found: Measured, pictures: Pictures) -> dict[str, str]:
    shown = []
    for grid in grids(found.points):
        why = bullets(remarks(grid.points))
        shown.append(sections([grid.cells()]) + (f"\n\nNot measured:\n\n{why}" if why else ""))
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
            chosen = [[grid.best((batch, n)) for n in grid.bodies] for batch in grid.batches]
            numbers = np.array([[names.index(name) if name else np.nan for name in row] for row in chosen], float)
            colors = ListedColormap(COLORS[: len(names)])
            look = {"cmap": colors, "vmin": -0.5, "vmax": len(names) - 0.5, "alpha": 0.7}
            panel.imshow(numbers, aspect="auto", origin="lower", **look)
            ratios = [[grid.against_recursion((batch, n)) for n in grid.bodies] for batch in grid.batches]
            for row, each in enumerate(ratios):
                for column, ratio in enumerate(each):
                    said = "" if ratio is None else f"{ratio:.2g} x"
                    panel.text(column, row, said, ha="center", va="center", fontsize=7)
            panel.set_xticks(range(len(grid.bodies)), [f"{n:,}" for n in grid.bodies])
            panel.set_yticks(range(len(grid.batches)), [f"{batch:,}" for batch in grid.batches])
            title = f"{grid.group}: fastest scan, and how many times faster than the recursion"
            panel.set(title=title, ylabel="batch")
            patches = [Patch(color=COLORS[k], label=name, alpha=0.7) for k, name in enumerate(names)]
            panel.legend(handles=patches, loc="center left", bbox_to_anchor=(1.0, 0.5))
        axes[-1][0].set_xlabel("bodies")
    return {"map": "scan.svg"}


PAGE = Page(
    "scan", Measured, measure, lambda found: [grid.cells() for grid in grids(found.points)], blocks=blocks, draw=draw
)
