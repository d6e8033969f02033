"""Sphinx configuration. Build with: python -m sphinx -W -n --keep-going -b html docs docs/_build/html"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The package of this checkout, installed or not, and our own extensions.
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

from robodyn import __version__  # noqa: E402

project = "robodyn"
author = "The robodyn authors"
copyright = author
release = version = __version__

extensions = [
    "plain_docstrings",
    "generated_tables",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "myst_nb",
]
exclude_patterns = ["_build"]

# Pages.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Notebooks are shown as they are stored: `python docs/notebooks/run.py --write` runs them.
nb_execution_mode = "off"

# API reference: docstrings and signatures are read by _ext/plain_docstrings.py.
autodoc_member_order = "bysource"
autodoc_typehints = "none"
# An extra, whose own names no page shows.
autodoc_mock_imports = [] if find_spec("casadi") else ["casadi"]
toc_object_entries_show_parents = "hide"

# Straight quotes stay: X' is a transpose.
smartquotes = False

nitpicky = True
# Names of Python and NumPy: their pages are not fetched, so that the site builds without a network.
nitpick_ignore_regex = [
    (r"py:class", r"(numpy|np|collections\.abc|os)\..*"),
    (r"py:class", r"Any|ArrayLike|NDArray|Callable|Iterable|Iterator|Mapping|Sequence|IO"),
    # Aliases of types, and a class of SciPy.
    (
        r"py:class",
        r"Task|Traceable|Hessians|Basis|Quantity|Event|Policy|Draw|Of|Path|Constraint|Vector|Coordinates|csr_array",
    ),
    # Of machine code and of the reference engine's order of work, which pages do not list.
    (r"py:class", r"Entry|Answers|Group"),
]

# Two classes are called Box: a shape, and a range of states of hardware. Their own pages name them in full.
suppress_warnings = ["ref.python"]

# Site.
html_theme = "furo"
html_title = f"robodyn {release}"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_show_copyright = False
pygments_style = "friendly"
