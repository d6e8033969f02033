"""The plot of a benchmark page: states per second against the batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robodyn.plots.style import COLORS
from robodyn.tools.benchmark.compare import Report, Result
from tests.bench.drawing import pyplot, save

BLUE, RED, GREEN, YELLOW, _, PURPLE, *_ = COLORS
_QUERIES = ("inverse_dynamics", "forward_dynamics")
_FAMILIES = {
    "robodyn": ("robodyn", BLUE),
    "pin C++": ("Pinocchio, C++ estimated", YELLOW),
    "pin.": ("Pinocchio, call by call", GREEN),
    "rneaInParallel": ("Pinocchio, in parallel", GREEN),
    "abaInParallel": ("Pinocchio, in parallel", GREEN),
    "mj_": ("MuJoCo, call by call", RED),
    "mujoco.rollout": ("MuJoCo, rollout", RED),
    "JAX": ("JAX", PURPLE),
}
"""How the names of contenders begin -> label, colour."""


def draw(reports: Sequence[Report], path: Path) -> str | None:
    """Write an SVG file: a panel for each robot and query, float64. Its name, or None: nothing to draw, or nothing to
    draw with."""
    plt = pyplot()
    if plt is None or not reports:
        return None
    figure, axes = plt.subplots(
        len(_QUERIES), len(reports), figsize=(3.6 * len(reports), 6.4), squeeze=False, sharex=True, layout="constrained"
    )
    for column, report in enumerate(reports):
        for row, query in enumerate(_QUERIES):
            panel = axes[row][column]
            for results in _lines(report, query):
                _line(panel, results)
            panel.set(xscale="log", yscale="log", title=f"{report.robot}\n{query}" if row == 0 else query)
            panel.grid()
    for panel in axes[-1]:
        panel.set_xlabel("states in a call")
    for panels in axes:
        panels[0].set_ylabel("states per second")
    handles = {}
    for panel in axes.flat:
        handles |= {label: line for line, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
    save(plt, figure, path)
    return path.name


def _lines(report: Report, query: str) -> list[list[Result]]:
    """Results by contender and number of threads."""
    found: dict[tuple[str, int], list[Result]] = defaultdict(list)
    for result in report.results:
        if result.query == query and result.dtype == "float64" and result.best_ns:
            found[result.name, result.threads].append(result)
    return list(found.values())


def _line(panel: Any, results: list[Result]) -> None:
    """A line over batches, dotted on several threads; a dashed level for what does one state a call."""
    first = results[0]
    label, color = next(look for start, look in _FAMILIES.items() if first.name.startswith(start))
    rates = [1e9 / result.best_ns for result in results if result.best_ns]
    if first.batch is None:
        panel.axhline(rates[0], label=label, color=color, linestyle="--", linewidth=1.0)
        return
    several = first.threads > 1
    label = f"{label}, {first.threads} thread{'s' if several else ''}"
    style = {"linestyle": ":" if several else "-", "linewidth": 2.5 if first.ours else 1.2}
    panel.plot([result.batch for result in results], rates, label=label, color=color, marker="o", markersize=3, **style)
