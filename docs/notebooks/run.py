"""Run the notebooks: `python docs/notebooks/run.py [--write] [NAME ...]`; the tests do it, too. Needs the extra `docs`.

Every cell is run from top to bottom in a kernel of its own, in the folder of the notebooks, and warnings are errors.
`--write` stores what cells print and draw, without what differs from run to run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NAMES = sorted(path.stem for path in HERE.glob("*.ipynb"))
LONGEST_S = 120
"""Seconds for a cell, on a busy machine."""
# Before the first cell, and stored nowhere: pictures that are the same in every run, in the style of all others.
_PREPARATION = """
%matplotlib inline
%config InlineBackend.figure_formats = ["svg"]
%config InlineBackend.print_figure_kwargs = {"bbox_inches": "tight", "metadata": {"Date": None}}
import warnings
import matplotlib
import robodyn.plots
matplotlib.rcParams.update(robodyn.plots.STYLE)
warnings.simplefilter("error")
warnings.filterwarnings("default", category=PendingDeprecationWarning)  # ipykernel's own, at its end
"""


def path_of(name: str) -> Path:
    """Where a notebook lies."""
    return HERE / f"{name}.ipynb"


def executed(name: str) -> Any:
    """A notebook as it comes out of a run.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised, or warned.
    """
    notebook = nbformat.read(path_of(name), as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(_PREPARATION))
    root = str(ROOT)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, before)))
    try:
        NotebookClient(notebook, timeout=LONGEST_S, resources={"metadata": {"path": str(HERE)}}).execute()
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
    del notebook.cells[0]
    for number, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), start=1):
        cell.execution_count = number
        cell.metadata.pop("execution", None)  # times of day
        cell.outputs = _joined([output for output in map(_kept, cell.outputs) if output])
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def _kept(output: Any) -> Any:
    """An output without what nobody reads; None where the rest is nothing."""
    if output.output_type == "execute_result":
        return None  # what a last line is worth, such as a list of Matplotlib's artists
    if output.output_type == "display_data" and "image/svg+xml" in output.data:
        output.data = {"image/svg+xml": output.data["image/svg+xml"]}
        output.metadata = {}
    return output


def _joined(outputs: list[Any]) -> list[Any]:
    """Outputs with neighbouring pieces of text as one: where they are cut is chance."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if last is not None and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def printed(notebook: Any) -> list[str]:
    """What each cell of code prints."""
    return [
        "".join(output.text for output in cell.outputs if output.output_type == "stream")
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def main(words: list[str]) -> None:
    """Run notebooks, and store them if asked to."""
    write, names = "--write" in words, [word for word in words if word != "--write"]
    unknown = set(names) - set(NAMES)
    if unknown:
        sys.exit(f"no such notebook: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    for name in names or NAMES:
        begin = monotonic()
        notebook = executed(name)
        print(f"{name}: {monotonic() - begin:.1f} s", flush=True)
        if write:
            nbformat.write(notebook, path_of(name))


if __name__ == "__main__":
    main(sys.argv[1:])
