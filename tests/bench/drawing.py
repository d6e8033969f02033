"""How curves are drawn: SVG files that are the same for the same figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from robodyn.plots.style import STYLE
from robodyn.plots.style import look as line
from tests.bench import published
from tests.bench.experiments import Curves

_SAID = {published.GPU: "s", published.CPU: "D"}


def pyplot() -> Any:
    """Matplotlib, set up so that the same figures give the same file; None where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    matplotlib.rcParams.update(STYLE)
    from matplotlib import pyplot as found

    return found


def save(plt: Any, figure: Any, path: Path) -> None:
    """Write the file, and forget the figure."""
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def look(index: int) -> dict[str, Any]:
    """Of the curve with this number."""
    return line(index) | {"marker": "o", "markersize": 3, "linewidth": 1.3}


def curve(panel: Any, sizes: Sequence[int], value: Callable[[int], float | None], **look: Any) -> None:
    """A line through the sizes that have a value."""
    there = [(n, y) for n in sizes if (y := value(n)) is not None]
    if there:
        panel.plot(*zip(*there, strict=True), **look)


def finish(panel: Any, title: str, y: str, x: str = "bodies") -> None:
    """Both axes logarithmic, with names."""
    panel.set(xscale="log", yscale="log", xlabel=x, ylabel=y, title=title)
    panel.grid()


def legend(figure: Any, panel: Any, columns: int = 3) -> None:
    """Below the figure, of the curves in a panel."""
    handles, labels = panel.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def times_and_ratios(top: Any, below: Any, curves: Curves, group: str, branching: float, against: str) -> None:
    """Times of all series in one panel, how many times faster than one of them in another."""
    sizes = curves.sizes(group)
    for k, series in enumerate(curves.series(group)):
        curve(top, sizes, lambda n, s=series: curves.seconds(group, branching, s, n), label=series, **look(k))
        if series != against:
            curve(below, sizes, lambda n, s=series: curves.ratio(group, branching, against, s, n), **look(k))
    below.axhline(1.0, color="#000000", linewidth=0.8)


def published_times(panel: Any, columns: dict[str, dict[int, float]]) -> None:
    """Seconds by size of others."""
    for name, values in columns.items():
        panel.plot(
            list(values), list(values.values()), label=name, color="#000000", linestyle=":", marker=_SAID[name],
            markersize=4, linewidth=0.8, markerfacecolor="none",
        )  # fmt: skip
