"""The common style of all figures: users' plots, documentation, and benchmarks."""

from __future__ import annotations

from typing import Any

from robodyn.internals.errors import UnavailableError
from robodyn.internals.messages import install, printable, shortened

COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#000000")
"""Colours that colour-blind readers can distinguish (Paul Tol's "bright"), then black."""
LINES = ("-", "--", ":")
"""Line styles. When all colours are used they repeat with the next style."""
STYLE: dict[str, Any] = {
    "axes.prop_cycle": f"cycler('color', {list(COLORS)})",
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.fontsize": 8,
    "legend.frameon": False,
    # Equal figures give equal SVG files with searchable text.
    "svg.fonttype": "none",
    "svg.hashsalt": "robodyn",
}
"""Settings for `matplotlib.style.use` and `matplotlib.style.context`."""
_LONGEST_NAME = 40


def pyplot(asked: str) -> Any:
    """Import Matplotlib's pyplot. `asked`: name of the calling function, for the message.

    Raises:
        UnavailableError: Matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot as found
    except ImportError as error:
        raise UnavailableError(f"{asked}: Matplotlib cannot be imported here ({error}): {install('plot')}") from error
    return found


def look(index: int) -> dict[str, Any]:
    """Colour and line style of the curve with this number."""
    return {"color": COLORS[index % len(COLORS)], "linestyle": LINES[index // len(COLORS) % len(LINES)]}


def label(name: str) -> str:
    """A name as a label. A leading blank protects names with an underscore, which Matplotlib would hide."""
    text = shortened(printable(name), _LONGEST_NAME)
    return f" {text}" if text.startswith("_") else text


def plain(*texts: Any) -> None:
    """Switch off math mode in Matplotlib's texts: a dollar sign in a name would start a formula."""
    for text in texts:
        text.set_parse_math(False)
