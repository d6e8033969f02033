"""No file of the package imports another one that imports it, directly or through others, at once or lazily."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

import robodyn

PACKAGE = Path(robodyn.__file__).parent


def modules():
    """Paths of all modules by their dotted names."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imports(text, known, name=""):
    """Modules that the statements of a text import, wherever these are, but for those that only types need."""
    tree = ast.parse(text)
    typing = {
        id(inside)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for each in node.body
        for inside in ast.walk(each)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "imports are absolute here"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
    return (found & known) - {name}


def circle(graph):
    """The names of a circle, or nothing."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        path.append(name)
        for other in sorted(graph[name]):
            found = visit(other)
            if found:
                return found
        done.add(path.pop())
        return []

    return next((found for found in map(visit, sorted(graph)) if found), [])


def test_no_file_imports_itself_through_others():
    known = modules()
    graph = {name: imports(path.read_text(), set(known), name) for name, path in known.items()}
    assert len(graph) > 200 and sum(map(len, graph.values())) > 800
    assert circle(graph) == []


def test_circles_are_found():
    texts = {
        "a": "def f():\n    from b import g",
        "b": "import c",
        "c": "try:\n    from a import f\nexcept ImportError:\n    pass",
        "d": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import e",
        "e": "import d",
    }
    graph = {name: imports(text, set(texts), name) for name, text in texts.items()}
    assert circle(graph) == ["a", "b", "c"]
    assert circle({name: graph[name] for name in ("d", "e")}) == []


def test_few_files_are_outside_rooms():
    outside = [path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("_")]
    assert len(outside) <= 25, outside


def test_types_are_checked_alike_without_optional_packages():
    """mypy runs where extras are missing, too, and so is told of every package that is not a dependency of the core."""
    path = PACKAGE.parent / "pyproject.toml"
    if not path.exists():
        pytest.skip("pyproject.toml comes with a checkout only")
    settings = tomllib.loads(path.read_text())
    skipped = {
        module.removesuffix(".*")
        for override in settings["tool"]["mypy"]["overrides"]
        if override.get("ignore_missing_imports")
        for module in override["module"]
    }
    core = {re.split("[<>=~;]", requirement)[0] for requirement in settings["project"]["dependencies"]}
    imported = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    assert {"msgspec", "viser"} < imported - core <= sys.stdlib_module_names | skipped | {"robodyn"}
