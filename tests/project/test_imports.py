"""Rooms of the package import what is below them alone; no file imports itself through others. Lazy imports count."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import textwrap
import tomllib
from functools import cache
from pathlib import Path

import pytest

import robodyn
from robodyn.internals.public_names import HOMES, RETIRED

PACKAGE = Path(robodyn.__file__).parent
ROOMS = ("internals", "core", "algorithms", "compile", "engines", "io", "api", "solve", "bridges", "tools")
"""Folders of the package: each imports from itself and from those before it."""
MOST_ENTRIES = 14
"""Files and folders at the top of the package."""


def modules():
    """Paths of all modules by their dotted names."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def called(function):
    """The last word of a called function's name."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def imports(text, known, name=""):
    """Modules that a text imports, wherever it does, by statements or by `import_module`, but for those that only types
    need."""
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
        elif isinstance(node, ast.Call) and called(node.func) in ("import_module", "__import__"):
            found |= {each.value for each in node.args[:1] if isinstance(each, ast.Constant)}
    return (found & known) - {name}


@cache
def graph_of_package():
    """What each module imports, by names."""
    known = modules()
    return {name: imports(path.read_text(), set(known), name) for name, path in known.items()}


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


@pytest.mark.matrix
def test_no_file_imports_itself_through_others():
    graph = graph_of_package()
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


def above(name, others):
    """Those of some modules that a module must not import: of rooms above its own, or the package itself."""
    room = name.split(".")[1]
    allowed = ROOMS[: ROOMS.index(room) + 1]
    return sorted(each for each in others if each == "robodyn" or each.split(".")[1] not in allowed)


def test_rooms_import_nothing_above_them():
    inside = {name: to for name, to in graph_of_package().items() if name.count(".") and name != "robodyn.__main__"}
    wrong = {name: above(name, to) for name, to in inside.items()}
    assert {name: others for name, others in wrong.items() if others} == {}


def test_imports_from_above_are_found():
    known = {
        "robodyn",
        "robodyn.core.model",
        "robodyn.io.editing.files",
        "robodyn.tools.cli",
        "robodyn.internals.errors",
    }
    lazy = (
        "def f():\n    from robodyn.io.editing import files\n    import_module('robodyn.tools.cli')\n    import robodyn"
    )
    fine = "from robodyn.internals.errors import ArgumentError\nfrom robodyn.core import model"
    wrong = ["robodyn", "robodyn.io.editing.files", "robodyn.tools.cli"]
    assert above("robodyn.core.model", imports(lazy + "\n" + fine, known)) == wrong


def test_the_package_has_few_entries():
    entries = {path.name for path in PACKAGE.iterdir()} - {"__pycache__"}
    assert len(entries) <= MOST_ENTRIES
    assert {name for name in entries if "." not in name} == set(ROOMS)


def test_all_that_the_package_provides_is_there():
    """Names are texts, which nothing else checks."""
    for home, names in ((robodyn._HOME, robodyn._HOME), (robodyn._PROVIDED, robodyn._PROVIDED)):
        for name in names:
            assert hasattr(importlib.import_module(f"robodyn.{home[name]}"), name), name


@pytest.mark.matrix
def test_public_names_are_the_modules_themselves():
    script = """
        import importlib, importlib.util, sys
        from robodyn.internals.errors import UnavailableError
        from robodyn.internals.public_names import HOMES
        for name, home in HOMES.items():
            try:
                module = importlib.import_module("robodyn." + name)
            except (ImportError, UnavailableError) as error:  # of an extra that is not installed
                assert name in ("casadi", "jax", "torch", "distributed"), error
                continue
            assert module is sys.modules["robodyn." + home] is getattr(sys.modules["robodyn"], name)
            assert module.__name__ == module.__spec__.name == "robodyn." + home
        import robodyn.simulators.mujoco, robodyn.bridges.simulators.mujoco as same
        assert robodyn.simulators.mujoco is same
        assert importlib.util.find_spec("robodyn.testing.no_such") is None
        assert importlib.util.find_spec("robodyn.no_such") is None
        import robodyn
        assert robodyn.plots is sys.modules["robodyn.tools.plots"]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


@pytest.mark.parametrize("name", HOMES)
def test_public_packages_export_no_name_of_a_file(name):
    """Python sets a package's attribute to the module whenever that is imported by its other name."""
    folder = PACKAGE.joinpath(*HOMES[name].split("."))
    files = {path.stem for path in folder.glob("*.py")}
    init = ast.parse((folder / "__init__.py").read_text()) if folder.is_dir() else ast.Module([], [])
    names = {
        alias.asname or alias.name
        for node in ast.walk(init)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    names |= {node.name for node in init.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert not names & files


@pytest.mark.parametrize("name", RETIRED)
def test_retired_names_warn(name):
    script = f"import warnings; warnings.simplefilter('error'); import robodyn.{name}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert f"DeprecationWarning: robodyn.{name} is now robodyn.{RETIRED[name]}" in done.stderr
    subprocess.run([sys.executable, "-W", "ignore", "-c", f"import robodyn.{name} as old; old.__doc__"], check=True)


@pytest.mark.matrix
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
