"""The pages: every Python block of README.md and docs/*.md runs, and prints what the page shows.

Blocks of one page run in order in one namespace, from the root of the checkout. A `text` block that directly follows a
Python block is what that block prints. A comment directly before a block makes an exception, shown in no page:

    <!-- needs: module, module -->  the block, and the rest of the page, are skipped where a module is not installed
    <!-- not run: reason -->        the block is not run
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])

# [comment] ```python ... ``` [blank lines ```text ... ```]
_BLOCK = re.compile(
    r"(?:^<!-- (?P<word>needs|not run): (?P<detail>[^\n]*) -->\n)?"
    r"^```python\n(?P<code>.*?)^```\n"
    r"(?:\n*^```text\n(?P<shown>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    code: str
    line: int
    needs: tuple[str, ...]
    run: bool
    shown: str | None


def blocks(text: str) -> list[Block]:
    found = []
    for match in _BLOCK.finditer(text):
        needs = tuple(match["detail"].split(", ")) if match["word"] == "needs" else ()
        line = text.count("\n", 0, match.start("code"))
        found.append(Block(match["code"], line, needs, match["word"] != "not run", match["shown"]))
    return found


EXTRAS = {"casadi", "dask", "jax", "matplotlib", "torch", "viser"}
"""What the tests' own dependencies do not bring."""
SLOW = ("how_do_i.md", "trajectory_optimisation.md")


def marked():
    """Pages; those that need an extra are read where it is installed."""
    for page in PAGES:
        needed = {name for block in blocks(page.read_text(encoding="utf-8")) for name in block.needs}
        marks = [pytest.mark.extras] if needed & EXTRAS else [pytest.mark.matrix] if page.name in SLOW else []
        yield pytest.param(page, id=page.name, marks=marks)


@pytest.mark.parametrize("page", tuple(marked()))
def test_python_blocks_run_and_print_what_the_page_shows(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    namespace = {"__name__": page.stem}
    monkeypatch.setenv("MPLBACKEND", "Agg")
    for block in blocks(page.read_text(encoding="utf-8")):
        missing = [name for name in block.needs if importlib.util.find_spec(name) is None]
        if missing:
            pytest.skip(f"{page.name}, from line {block.line}: {', '.join(missing)} is not installed")
        if not block.run:
            continue
        # Line numbers of errors are those of the page.
        code = compile("\n" * block.line + block.code, str(page), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if block.shown is not None:
            lines = [line.rstrip() for line in printed.getvalue().splitlines()]
            assert lines == block.shown.splitlines(), f"{page.name}, the block at line {block.line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_is_found(page):
    """None is lost to an unusual fence or indentation."""
    text = page.read_text(encoding="utf-8")
    assert len(blocks(text)) == len(re.findall(r"^\s*(?:```+|~~~+|:::+)\s*\{?(?:python|py)\b", text, re.MULTILINE))
