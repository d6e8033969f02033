"""Code of other languages is printed, not written by hand: few strings hold more than some lines of it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import robodyn

PACKAGE = Path(robodyn.__file__).parent
LINES = 5
"""Of such a string, at most."""
PRINTERS = (
    "compile/llvm/",
    "compile/loops/",
    "compile/x86/",
    "compile/c/",
    "tools/hardware/",
    "engines/gpu/kernel_text.py",
)
"""What prints other languages, and so holds pieces of them."""
LLVM = re.compile(
    r"^\s*(define |%\S+ = (load|add|mul|getelementptr|phi|icmp|select|call)|br (i1|label)|ret void)", re.M
)
CUDA = re.compile(
    r"__global__|__device__|__shared__|threadIdx|^\s*(for|if) \(.*\) ?\{?$|^\s*(double|float|int|T) \w+ = .*;$", re.M
)
CUDA_LEFT = {"engines/scan/cuda/folds.py"}
"""Files that still hold some: it is to become none."""


def texts(path: Path) -> list[str]:
    """String constants of a file, but docstrings; formatted ones with their holes filled by a name."""
    tree = ast.parse(path.read_text())
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inner = {id(each) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for each in node.values}
    found = []
    for node in ast.walk(tree):
        if id(node) in documents or id(node) in inner:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = [each.value if isinstance(each, ast.Constant) else "hole" for each in node.values]
            found.append("".join(map(str, parts)))
    return found


@cache
def long_texts() -> dict[str, list[str]]:
    """Strings of more than some lines by file, but those of printers."""
    names = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    return {
        name: [text for text in texts(path) if text.count("\n") > LINES]
        for name, path in names.items()
        if not name.startswith(PRINTERS) and '"""' in path.read_text().partition('"""')[2].partition('"""')[2]
    }


def holders(language: re.Pattern[str]) -> set[str]:
    """Files with such a string of a language."""
    return {name for name, each in long_texts().items() if any(map(language.search, each))}


@pytest.mark.matrix
def test_llvm_is_printed():
    assert holders(LLVM) == set()


@pytest.mark.matrix
def test_cuda_is_printed():
    assert holders(CUDA) == CUDA_LEFT


def test_such_strings_are_found(tmp_path):
    path = tmp_path / "some.py"
    path.write_text('"""define void @f()"""\nx = f"""define void @{1}() {{\nentry:\n  ret void\n}}\n"""\n')
    (text,) = texts(path)
    assert LLVM.search(text) and text.count("\n") == 4 and not CUDA.search(text)
