"""Every line of the tables for those who come from another program: both expressions are evaluated and compared."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "coming_from.md"
TABLES = {"Pinocchio": 30, "MuJoCo": 15, "Drake": 12}
"""Programs, and how many lines each has at least."""
TOLERANCE = 1e-9
_ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)


def section(name: str) -> str:
    """What stands below a heading."""
    return PAGE.read_text(encoding="utf-8").split(f"\n## {name}\n")[1].split("\n## ")[0]


@pytest.fixture(scope="module")
def spaces():
    """The names that the block of a section defines."""
    found = {}

    def of(name: str) -> dict:
        if name not in found:
            (block,) = blocks(section(name))
            for needed in block.needs:
                if importlib.util.find_spec(needed) is None:
                    pytest.skip(f"{needed} is not installed")
            space = {}
            exec(block.code, space)
            found[name] = space
        return found[name]

    return of


def rows():
    for name in TABLES:
        for theirs, ours in _ROW.findall(section(name)):
            yield pytest.param(name, theirs, ours, id=f"{name}-{theirs}")


@pytest.mark.parametrize(("name", "theirs", "ours"), tuple(rows()))
def test_both_sides_of_a_line_are_the_same(name, theirs, ours, spaces, monkeypatch):
    monkeypatch.chdir(ROOT)
    space = spaces(name)
    left, right = (eval(expression, space) for expression in (theirs, ours))
    if isinstance(right, tuple | list):
        assert list(left) == list(right)
        return
    left, right = (np.asarray(side, dtype=float) for side in (left, right))
    assert left.shape == right.shape
    finite = np.isfinite(right)
    allowed = TOLERANCE * np.abs(right[finite]).max(initial=1.0)
    np.testing.assert_allclose(left[finite], right[finite], rtol=0, atol=allowed)
    assert not np.isfinite(left[~finite]).any()


@pytest.mark.parametrize("name", TABLES)
def test_every_line_is_read(name):
    """None is lost to an unusual character."""
    lines = [line for line in section(name).splitlines() if line.startswith("| `")]
    assert len(_ROW.findall(section(name))) == len(lines) >= TABLES[name]


def test_the_page_is_where_it_is_linked():
    assert PAGE.name in Path(ROOT / "docs" / "index.md").read_text(encoding="utf-8")
