"""How curves are drawn: small SVG files that are the same for the same figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robodyn.plots.style import STYLE


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
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    path.write_text(slim(path.read_text()))


def slim(svg: str) -> str:
    """A picture of Matplotlib's in a third of its size: numbers to a tenth of a point, no ids of parts, no list of
    fonts, and the style of markers once for a curve."""
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"-?\d+\.\d\d+", _rounded, tag[0]), svg)
    svg = re.sub(r"\n\s*", "\n", svg)
    svg = re.sub(r' \n([LCQMz"])', r" \1", svg)
    svg = re.sub(r" transform=\"rotate\(-0 [^\"]*\)\"|, 'Bitstream Vera Sans'[^;\"]*(?=, sans-serif)", "", svg)
    svg = re.sub(r'<g id="line2d_\d+">\n<g>\n(<use[^>]*/>)\n</g>\n</g>', r"\1", svg)
    svg = re.sub(r'<g id="(?:line2d|text)_\d+">\n(<path[^>]*/>|<text[^\n]*</text>)\n</g>', r"\1", svg)
    return re.sub(r'(<g(?: clip-path="[^"]*")?)>\n((?:<use[^>]*/>\n)+)</g>', _styled_once, svg)


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")


def _styled_once(group: re.Match[str]) -> str:
    styles = set(re.findall(r' style="([^"]*)"', group[2]))
    if len(styles) != 1:
        return group[0]
    return f'{group[1]} style="{styles.pop()}">\n' + re.sub(r' style="[^"]*"', "", group[2]) + "</g>"


@contextmanager
def panels(path: Path, rows: int, columns: int, size: tuple[float, float], **options: Any) -> Iterator[Any]:
    """Panels to draw into, rows of columns, and the figure; they are written where this ends."""
    plt = pyplot()
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained", **options)
    yield figure, axes
    save(plt, figure, path)


def finish(panel: Any, title: str, y: str, x: str = "bodies") -> None:
    """Both axes logarithmic, with names, ticks at powers of ten."""
    panel.set(xscale="log", yscale="log", xlabel=x, ylabel=y, title=title)
    panel.minorticks_off()
    panel.grid()


def legend(figure: Any, axes: Any, columns: int = 3) -> None:
    """Below the figure, of the curves in its panels, each once."""
    found: dict[str, Any] = {}
    for panel in axes.flat:
        handles, labels = panel.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    if found:
        figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=columns)


def published_times(panel: Any, columns: dict[str, dict[int, float]]) -> None:
    style = {"color": "#000000", "linestyle": ":", "markersize": 4, "linewidth": 0.8, "markerfacecolor": "none"}
    for (name, values), marker in zip(columns.items(), "sD", strict=False):
        panel.plot(list(values), list(values.values()), label=name, marker=marker, **style)
