"""The notebooks of the documentation: they run without a warning, and what is stored in them is what they print."""

from __future__ import annotations

import importlib.util
import json
import re

import pytest
from robots import ROOT

FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
_NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?")


def cells(path, kind):
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == kind]


def runner():
    """docs/notebooks/run.py as a module."""
    spec = importlib.util.spec_from_file_location("run_notebooks", FOLDER / "run.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_there_are_five():
    assert len(NOTEBOOKS) == 5
    listed = (ROOT / "docs" / "notebooks.md").read_text()
    for path in NOTEBOOKS:
        assert f"notebooks/{path.stem}" in listed, "in the menu"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_stored_is_a_whole_run(path):
    """Cells in order, no error, pictures and text, and nothing of the machine that ran them."""
    code = cells(path, "code")
    assert 5 <= len(code) <= 10 and len(cells(path, "markdown")) > len(code) - 1
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"stream", "display_data"}
    assert all(output["name"] == "stdout" for output in outputs if output["output_type"] == "stream")
    assert any("image/svg+xml" in output.get("data", {}) for output in outputs)
    assert sum("".join(cell["source"]).count("assert ") for cell in code) >= 5
    assert not re.search(r"/(home|root|tmp|work)/", path.read_text(encoding="utf-8"))


@pytest.mark.extras
@pytest.mark.parametrize("name", [path.stem for path in NOTEBOOKS])
def test_it_runs_and_prints_what_is_stored(name):
    """Their assertions hold, warnings are errors; words are compared, and how many numbers there are."""
    for module in ("nbclient", "ipykernel", "matplotlib", "networkx", "gymnasium"):
        pytest.importorskip(module, reason=f"{module} is not installed (the extras 'docs' and 'plot')")
    run = runner()
    fresh = run.executed(name)
    stored = run.nbformat.read(run.path_of(name), as_version=4)
    words = [[_NUMBER.sub("#", text).split() for text in run.printed(each)] for each in (fresh, stored)]
    assert words[0] == words[1], f"python docs/notebooks/run.py --write {name}"


@pytest.mark.extras
@pytest.mark.parametrize("line", ["1 / 0", "import warnings; warnings.warn('odd')", "assert np.pi < 3"])
def test_a_cell_that_fails_is_found(line, monkeypatch, tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed (the extra 'docs')")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed (the extra 'docs')")
    run = runner()
    bad = run.nbformat.v4.new_notebook(cells=[run.nbformat.v4.new_code_cell(f"import numpy as np\n{line}")])
    run.nbformat.write(bad, tmp_path / "bad.ipynb")
    monkeypatch.setattr(run, "HERE", tmp_path)
    with pytest.raises(nbclient.exceptions.CellExecutionError):
        run.executed("bad")
