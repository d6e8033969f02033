"""Which method of the scan engine is the fastest where: bodies against states in a call.

`python -m tests.bench scan --write`. Beside the methods, our compiled recursion on one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np

from robodyn.engines.scan.methods import methods_of
from robodyn.plots.style import COLORS
from robodyn.tools.benchmark.tables import Cells
from tests.bench import experiments
from tests.bench.drawing import panels
from tests.bench.experiments import FORWARD, INVERSE, Case, Contender, Curves, Experiment, Measured, Size
from tests.bench.points import Point, remarks, worst_difference
from tests.bench.runner import Page, Pictures, Run
from tests.bench.shared import NOT_MEASURED, bullets, columns, picture, sections, show, times

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
        methods = [Contender(name, query, "scan", options={"method": name}) for name in (*methods_of(query), AUTO)]
        for shape, branching in SHAPES.items():
            cases = [Case(n, branching, batch) for n in SIZES for batch in BATCHES if n * batch <= MOST]
            plan.append(Experiment(f"{query}, {shape}", "scan:", [Contender(RECURSION, query, "cpu"), *methods], cases))
    return experiments.measure(plan, SKEW, run)


class Grid(Curves):
    """Curves of one group over bodies and batch."""

    def __init__(self, group: str, points: Sequence[Point]) -> None:
        super().__init__(points, group)
        self.methods = [each for each in self.series if each not in (RECURSION, AUTO)]
        self.batches, self.bodies = (sorted({size[k] for size in self.sizes}) for k in (0, 1))

    def best(self, size: Size) -> str | None:
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
            shown = {series: show(self.seconds(series, (batch, n)), NOT_MEASURED) for series in self.series}
            bold = [f"**{text}**" if series == best else text for series, text in shown.items()]
            rows.append((f"{n:,}", f"{batch:,}", *bold, best or "", times(ratio) if ratio else ""))
        headings = columns("#bodies|#batch", *(f"#{each}" for each in self.series), "fastest scan|#times cpu")
        return Cells(self.group, headings, rows)


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
    if not there:
        return {}
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    with panels(folder / "scan.svg", len(there), 1, (9.0, 2.4 * len(there))) as (_, axes):
        for (panel,), grid in zip(axes, there, strict=True):
            names = grid.methods
            numbers = np.full((len(grid.batches), len(grid.bodies)), np.nan)
            for (row, batch), (column, n) in product(enumerate(grid.batches), enumerate(grid.bodies)):
                if name := grid.best((batch, n)):
                    numbers[row, column] = names.index(name)
                ratio = grid.against_recursion((batch, n))
                said = "" if ratio is None else f"{ratio:.2g} x"
                panel.text(column, row, said, ha="center", va="center", fontsize=7)
            look = {"cmap": ListedColormap(COLORS[: len(names)]), "vmin": -0.5, "vmax": len(names) - 0.5, "alpha": 0.7}
            panel.imshow(numbers, aspect="auto", origin="lower", **look)
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
