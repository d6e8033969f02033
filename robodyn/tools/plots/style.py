"""The one style of all pictures: of figures that users ask for, of pages, and of benchmarks."""

from __future__ import annotations

from typing import Any

from robodyn.internals.errors import UnavailableError
from robodyn.internals.messages import printable, shortened

COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#000000")
"""Colours that stay apart for those who see fewer of them (Paul Tol's "bright"), then black."""
LINES = ("-", "--", ":")
"""Line styles: where colours are used up, they begin again with the next of these."""
STYLE: dict[str, Any] = {
    "axes.prop_cycle": f"cycler('color', {list(COLORS)})",
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.fontsize": 8,
    "legend.frameon": False,
    # The same figures give the same file, whose text can be searched.
    "svg.fonttype": "none",
    "svg.hashsalt": "robodyn",
}
"""For `matplotlib.style.use` and `matplotlib.style.context`."""
_LONGEST_NAME = 40


def pyplot(asked: str) -> Any:
    """Matplotlib's pyplot, for what was asked.

    Raises:
        UnavailableError: Matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot as found
    except ImportError as error:
        raise UnavailableError(
            f"{asked}: Matplotlib cannot be imported here ({error}): pip install 'robodyn[plot]'"
        ) from error
    return found


def look(index: int) -> dict[str, Any]:
    """Colour and line style of the curve with this number."""
    return {"color": COLORS[index % len(COLORS)], "linestyle": LINES[index // len(COLORS) % len(LINES)]}


def label(name: str) -> str:
    """A name from a file as a label. Matplotlib leaves labels out that begin with an underscore."""
    text = shortened(printable(name), _LONGEST_NAME)
    return f" {text}" if text.startswith("_") else text


def plain(*texts: Any) -> None:
    """Let texts of Matplotlib stand as they are: names may have dollar signs, which would begin a formula."""
    for text in texts:
        text.set_parse_math(False)
