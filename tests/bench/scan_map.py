"""Which method of the scan engine is the fastest where: bodies against states in a call.

`python -m tests.bench scan --write`. Beside the methods, our compiled recursion on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robodyn.engines.scan.methods import methods_of
from robodyn.plots.style import COLORS
from robodyn.tools.benchmark.tables import Cells
from tests.bench.drawing import pyplot, save
from tests.bench.experiments import Case, Contender, Experiment
from tests.bench.experiments import measure as run
from tests.bench.points import NOT_MEASURED, Budget, Point, remarks, worst_difference
from tests.bench.shared import facts, show
from tests.bench.trees import FORWARD, INVERSE, Problem, on_cpu, tree

QUERIES = (INVERSE, FORWARD)
SHAPES = {"chain": 1.0, "binary": 2.0}
SKEW = 0.3
"""Of joints against their parents': no planar mechanism."""
SIZES = tuple(4**k for k in range(1, 11))
BATCHES = (1, 64, 1024)
MOST = 1 << 20
"""Bodies x batch."""
RECURSION = "cpu"


def groups() -> list[str]:
    """Queries and shapes: "forward_dynamics, chain"."""
    return [f"{query}, {shape}" for query in QUERIES for shape in SHAPES]


def methods(query: str) -> tuple[str, ...]:
    """Of the scan engine; "auto" is whichever it chooses itself."""
    return (*methods_of(query), "auto")


def measure(
    selected: Callable[[str], bool], budget: Budget, largest: int, announce: Callable[[str], object]
) -> list[Point]:
    """All points whose names, "scan: QUERY, SHAPE, METHOD", are selected, up to `largest` bodies."""
    experiments = [
        Experiment(
            f"{query}, {shape}", "scan:", [_contender(query, name) for name in (RECURSION, *methods(query))], cases
        )
        for query in QUERIES
        for shape, cases in _cases().items()
    ]
    return run(experiments, _problem, selected, budget, largest, announce)


def _cases() -> dict[str, list[Case]]:
    return {
        shape: [Case(n, branching, batch) for n in SIZES for batch in BATCHES if n * batch <= MOST]
        for shape, branching in SHAPES.items()
    }


def _problem(case: Case) -> Problem:
    return Problem(tree(case.n, case.branching, SKEW), case.batch)


def _contender(query: str, name: str) -> Contender:
    if name == RECURSION:
        return on_cpu(name, query, "cpu")
    return on_cpu(name, query, "scan", method=name)


# What came out.


class Grid:
    """Points of one group by bodies and batch."""

    def __init__(self, group: str, points: Sequence[Point]) -> None:
        self.group = group
        self.points = [point for point in points if point.group == group]
        self.series = list(dict.fromkeys(point.series for point in self.points))
        self.sizes, self.batches = (sorted({getattr(point, name) for point in self.points}) for name in ("n", "batch"))
        self.at = {(point.series, point.n, point.batch): point for point in self.points}

    def seconds(self, series: str, n: int, batch: int) -> float | None:
        """Of the fastest call."""
        point = self.at.get((series, n, batch))
        return None if point is None else point.best_s

    def best(self, n: int, batch: int) -> str | None:
        """The fastest method."""
        found = [
            (seconds, series)
            for series in self.series
            if series not in (RECURSION, "auto") and (seconds := self.seconds(series, n, batch))
        ]
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
            for n in self.sizes:
                if not any((series, n, batch) in self.at for series in self.series):
                    continue
                best, ratio = self.best(n, batch), self.against_recursion(n, batch)
                cells = [self._cell(series, n, batch, best) for series in self.series]
                rows.append((f"{n:,}", f"{batch:,}", *cells, best or "", "" if ratio is None else f"{ratio:.3g} x"))
        columns = (*(f"{each} " for each in ("bodies", "batch", *self.series)), "fastest scan", "times cpu ")
        return Cells(self.group, columns, rows)

    def _cell(self, series: str, n: int, batch: int, best: str | None) -> str:
        seconds = self.seconds(series, n, batch)
        text = NOT_MEASURED if seconds is None else show(seconds)
        return f"**{text}**" if series == best else text


def grids(points: Sequence[Point]) -> list[Grid]:
    """Those of which there are points."""
    return [grid for group in groups() if (grid := Grid(group, points)).points]


def document(points: Sequence[Point], about: dict[str, str], budget: Budget) -> dict[str, Any]:
    """Everything for a JSON file."""
    return {
        **about,
        "threads": 1,
        "seconds": budget.seconds,
        "limit_s": budget.limit,
        "skew": SKEW,
        "points": [point.record() for point in points],
        "fastest": [
            {"group": grid.group, "n": n, "batch": batch, "method": name, "times_cpu": grid.against_recursion(n, batch)}
            for grid in grids(points)
            for n in grid.sizes
            for batch in grid.batches
            if (name := grid.best(n, batch))
        ],
    }


def page(points: Sequence[Point], about: dict[str, str], plot: str | None) -> str:
    """The page of docs/benchmarks."""
    lines = [
        "# Scans on trees: which method where",
        "",
        'Printed by `python -m tests.bench scan --write`: methods of `engine="scan"` on chains and binary trees of',
        f"Featherstone's autoTree (skew {SKEW}), heavy paths, compiled steps. Shared machines drift: compare within",
        "one run.",
        "",
        f"Measured on: {facts(about)}; one thread, float64; the best of several calls, each of a whole batch.",
        "",
        "*cpu*: our compiled recursion on one thread; *auto*: the method that the scan engine chooses itself; *times",
        "cpu*: how many times faster than the recursion the fastest method is, in bold. Factorisations of LAPACK, in",
        "*crba* and *jsiia*, take as many threads as they like. GPU: not measured here; see",
        "[scans on an H200](scan-gpu.md).",
        "",
        f"Largest difference: {worst_difference(points)}, of torques relative to the largest, of accelerations by the "
        "torques that they need, relative to the largest bias force.",
    ]
    if plot is not None:
        lines += ["", f"![The fastest method by bodies and batch]({plot})"]
    for grid in grids(points):
        lines += ["", f"## {grid.group}", "", *grid.table().markdown()]
        why = remarks(grid.points)
        lines += ["", "Not measured:", "", *(f"- {remark}" for remark in why)] if why else []
    return "\n".join(lines) + "\n"


def draw(points: Sequence[Point], path: Path) -> str | None:
    """The map: the fastest method as a colour, how many times faster than the recursion as a number; the file's
    name."""
    plt, found = pyplot(), grids(points)
    if plt is None or not found:
        return None
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    figure, axes = plt.subplots(len(found), 1, figsize=(9.0, 2.4 * len(found)), squeeze=False, layout="constrained")
    for (panel,), grid in zip(axes, found, strict=True):
        names = [each for each in grid.series if each not in (RECURSION, "auto")]
        chosen = [[grid.best(n, batch) for n in grid.sizes] for batch in grid.batches]
        numbers = np.array([[names.index(name) if name else np.nan for name in row] for row in chosen], float)
        colors = ListedColormap(COLORS[: len(names)])
        panel.imshow(numbers, cmap=colors, vmin=-0.5, vmax=len(names) - 0.5, aspect="auto", origin="lower", alpha=0.7)
        for row, batch in enumerate(grid.batches):
            for column, n in enumerate(grid.sizes):
                ratio = grid.against_recursion(n, batch)
                panel.text(column, row, "" if ratio is None else f"{ratio:.2g} x", ha="center", va="center", fontsize=7)
        panel.set_xticks(range(len(grid.sizes)), [f"{n:,}" for n in grid.sizes])
        panel.set_yticks(range(len(grid.batches)), [f"{batch:,}" for batch in grid.batches])
        panel.set(title=f"{grid.group}: fastest scan, and how many times faster than the recursion", ylabel="batch")
        patches = [Patch(color=COLORS[k], label=name, alpha=0.7) for k, name in enumerate(names)]
        panel.legend(handles=patches, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes[-1][0].set_xlabel("bodies")
    save(plt, figure, path)
    return path.name
