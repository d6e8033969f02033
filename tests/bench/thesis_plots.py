"""The plots of the thesis' figures 10 to 16: an SVG file each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.drawing import curve, finish, legend, look, published_times, pyplot, save, times_and_ratios
from tests.bench.experiments import Curves
from tests.bench.points import Point
from tests.bench.thesis import BRANCHINGS, SHOWN, said
from tests.bench.thesis_cases import BASELINE, FASTER, RECURRENCE, SEQUENTIAL


def draw(points: Sequence[Point], folder: Path) -> dict[str, str]:
    """Write thesis-10.svg and so on, of the figures of which there are points: names of files by figure."""
    plt, curves, found = pyplot(), Curves([p for p in points if p.best_s]), {}
    if plt is None:
        return {}
    for figure, (drawing, groups) in _DRAWINGS.items():
        if any(curves.of(group) for group in groups):
            name = f"thesis-{figure}.svg"
            save(plt, drawing(plt, curves), folder / name)
            found[figure] = name
    return found


def _structures(plt: Any, curves: Curves) -> Any:
    figure, axes = plt.subplots(1, len(FASTER), figsize=(8.4, 3.8), squeeze=False, layout="constrained", sharey=True)
    for panel, (what, pairs) in zip(axes[0], FASTER.items(), strict=True):
        group = f"structures: {what}"
        for k, (name, slow, fast) in enumerate(pairs):
            curve(
                panel, curves.sizes(group), lambda n, g=group, s=slow, f=fast: curves.ratio(g, 1.0, s, f, n),
                label=name, **look(k),
            )  # fmt: skip
        panel.axhline(1.0, color="#000000", linewidth=0.8)
        finish(panel, f"{what}, chain", "time with 6 x 6 / time with (E, r)")
    legend(figure, axes[0][0])
    return figure


def _one_tree(group: str, against: str) -> Callable[[Any, Curves], Any]:
    def drawing(plt: Any, curves: Curves) -> Any:
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 5.2), layout="constrained")
        times_and_ratios(left, right, curves, group, 2.0, against)
        finish(left, f"{group}, branching 2", "seconds")
        finish(right, "speed-up", f"times faster than {against}")
        legend(figure, left)
        return figure

    return drawing


def _branchings(group: str) -> Callable[[Any, Curves], Any]:
    def drawing(plt: Any, curves: Curves) -> Any:
        figure, axes = plt.subplots(
            2, len(BRANCHINGS), figsize=(3.6 * len(BRANCHINGS), 7.4), sharex=True, sharey="row", layout="constrained"
        )
        for column, branching in enumerate(BRANCHINGS):
            top, below = axes[0][column], axes[1][column]
            times_and_ratios(top, below, curves, group, branching, SEQUENTIAL)
            published_times(top, said(group, branching))
            finish(top, f"branching {branching:g}", "seconds")
            finish(below, "", f"times faster than {SEQUENTIAL}")
        legend(figure, axes[0][-1])
        return figure

    return drawing


def _heat(group: str) -> Callable[[Any, Curves], Any]:
    def drawing(plt: Any, curves: Curves) -> Any:
        from matplotlib.colors import SymLogNorm

        names = [series for series in SHOWN[group] if series in curves.series(group)] or curves.series(group)
        figure, axes = plt.subplots(1, len(names), figsize=(4.2 * len(names), 4.2), squeeze=False, layout="constrained")
        sizes = curves.sizes(group)
        for panel, series in zip(axes[0], names, strict=True):
            shares = [[_percent(curves.deviation(group, b, series, n)) for b in BRANCHINGS] for n in sizes]
            image = panel.imshow(shares, cmap="coolwarm", norm=SymLogNorm(10.0, vmin=-1000, vmax=1000), aspect="auto")
            for row, values in enumerate(shares):
                for column, share in enumerate(values):
                    text = "" if share != share else f"{share:+.0f} %"
                    panel.text(column, row, text, ha="center", va="center", fontsize=7)
            panel.set_xticks(range(len(BRANCHINGS)), [f"{b:g}" for b in BRANCHINGS])
            panel.set_yticks(range(len(sizes)), [f"{n:,}" for n in sizes])
            panel.set(xlabel="branching", title=series)
        figure.colorbar(image, ax=axes[0][-1], label="time over that of a chain, less 1, percent")
        axes[0][0].set_ylabel("bodies")
        return figure

    return drawing


def _percent(share: float | None) -> float:
    return float("nan") if share is None else 100.0 * share


_DRAWINGS: dict[str, tuple[Callable[[Any, Curves], Any], tuple[str, ...]]] = {
    "10": (_structures, tuple(f"structures: {what}" for what in FASTER)),
    "11": (_one_tree("velocities", BASELINE), ("velocities",)),
    "12": (_one_tree("operators", RECURRENCE), ("operators",)),
    "13": (_heat("RNEA"), ("RNEA",)),
    "14": (_branchings("RNEA"), ("RNEA",)),
    "15": (_heat("CRBA"), ("CRBA",)),
    "16": (_branchings("CRBA"), ("CRBA",)),
}
"""How each figure is drawn, and the groups that it shows."""
