"""Sphinx configuration. Build with: python -m sphinx -W -n --keep-going -b html docs docs/_build/html"""

from __future__ import annotations

import sys
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
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "myst_parser",
]
exclude_patterns = ["_build"]

# Pages.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# API reference.
napoleon_google_docstring = True
napoleon_numpy_docstring = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
# Aliases keep their names instead of what they stand for.
autodoc_type_aliases = {
    "Array": "robodyn.arguments.Array",
    "ArrayLike": "numpy.typing.ArrayLike",
    "Frame": "robodyn.algorithms.kinematics.Frame",
    "Indices": "robodyn.tree.Indices",
    **{name: f"robodyn.spatial.{name}" for name in ("Mat3", "Scalar", "Sym3", "Vec3")},
    "Scalars": "robodyn.joints.Scalars",
    **{name: f"robodyn.sweeps.{name}" for name in ("Fields", "Output", "Sweep", "Written")},
    **{name: f"robodyn.description.{name}" for name in ("Rotation", "Severity", "Vector3")},
}
toc_object_entries_show_parents = "hide"

nitpicky = True
# Names of Python and NumPy: their pages are not fetched, so that the site builds without a network.
nitpick_ignore_regex = [
    (r"py:.*", r"(numpy|np|collections\.abc|typing|os|pathlib)\..*"),
    (r"py:.*", r"(Any|ArrayLike|NDArray|Callable|Iterable|Iterator|Mapping|Sequence|Generator|IO|PathLike|float64|int8)"),
]

# Site.
html_theme = "furo"
html_title = f"robodyn {release}"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_show_copyright = False
pygments_style = "friendly"
