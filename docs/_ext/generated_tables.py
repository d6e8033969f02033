"""Tables of the pages that are made from the package itself.

`python docs/_ext/generated_tables.py --write` writes them into pages, between `<!-- generated: NAME -->` and
`<!-- end of generated -->`; a test finds tables that are out of date. The directive `generated` makes one in a build.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import robodyn
from robodyn import sweeps
from robodyn.core.findings import FINDINGS, SEVERITIES
from robodyn.engines.options import ENGINE_NAMES
from robodyn.engines.protocol import DTYPES
from robodyn.engines.query_table import every_query, short_names
from robodyn.engines.scan import HeavyPaths, VectorTree
from robodyn.internals import archives, errors
from robodyn.io.builders import (
    elements,
    loops,
    mjcf_compiler,
    mjcf_files,
    mjcf_keyframes,
    sdf_files,
    sdf_values,
    sources,
    urdf,
)
from robodyn.joints import KINDS, JointKind
from robodyn.tools.cli import state_files as cli_state_files

Row = tuple[str, ...]


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


def _code(words: Iterable[object]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _unit(kind: JointKind, coordinate: int) -> str:
    if kind.quaternion is not None and coordinate >= kind.quaternion:
        return "1"
    return "m" if coordinate in kind.lengths else "rad"


def _named(kind: JointKind, names: tuple[str, ...], alone: str, units: list[str]) -> str:
    if names == ("",):
        return f"`{alone}` ({units[0]})"
    together = dict.fromkeys(units)
    parts = [(unit, [n for n, u in zip(names, units, strict=True) if u == unit]) for unit in together]
    return ", ".join(f"{_code(group)} ({unit})" for unit, group in parts)


def _column(column: Any) -> str:
    """A column of S, angular part first, as in `[0 0 1; 0 0 0]`."""
    halves = [" ".join(entry if isinstance(entry, str) else f"{entry:g}" for entry in half) for half in column]
    return f"`[{halves[0]}; {halves[1]}]`"


def joint_kinds() -> list[Row]:
    """Rows of `robodyn.joints.KINDS`."""
    rows: list[Row] = [
        ("kind", "nq", "nv", "coordinates q", "velocities qd", "columns of S", "transform across the joint")
    ]
    for kind in KINDS:
        lengths = [_unit(kind, c) for c in range(kind.nq)]
        rates = ["m/s" if any(column.lin) and not any(column.ang) else "rad/s" for column in kind.subspace("pitch")]
        rows.append(
            (
                f"`{kind.name}`",
                str(kind.nq),
                str(kind.nv),
                _named(kind, kind.coordinates, "q", lengths),
                _named(kind, kind.velocities, "qd", rates),
                ", ".join(_column(column) for column in kind.subspace("pitch")),
                _first_line(type(kind).transform),
            )
        )
    return rows


def findings() -> list[Row]:
    """Codes of loading reports."""
    rows = [(f"`{code}`", SEVERITIES[code], meaning) for code, meaning in FINDINGS.items()]
    return [("code", "severity", "meaning"), *rows]


def support() -> list[Row]:
    """Which query runs on which engine."""
    engines = sorted({engine for question in every_query().values() for engine in question.engines})
    rows: list[Row] = [("query", "short", *engines, "methods besides `auto`", "answer")]
    for query, question in every_query().items():
        answered = ["yes" if engine in question.engines else "-" for engine in engines]
        methods = _code(method.name for method in question.methods) or "-"
        rows.append(
            (f"`{query}`", _code((question.short,)) if question.short else "", *answered, methods, question.about)
        )
    return rows


def exported() -> list[Row]:
    """Functions that `robodyn export` writes."""
    rows: list[Row] = [("`--query`", "inputs", "results", "query of `Dynamics`")]
    for name, (question, chosen) in short_names().items():
        results = [f"{each}{''.join(f'[{axis}]' for axis in r.axes) or '[1]'}" for each, r in question.results.items()]
        options = "".join(f", {option}={value}" for option, value in chosen.items())
        rows.append((f"`{name}`", _code(question.plain), _code(results), f"`{question.name}`{options}"))
    return rows


def engine_names() -> list[Row]:
    """Values of `engine=`."""
    rows: list[Row] = [("`engine=`", "dtypes", "queries")]
    for name in ENGINE_NAMES:
        answered = sum(name in question.engines for question in every_query().values())
        queries = "all" if name == "auto" or answered == len(every_query()) else str(answered)
        rows.append((f"`{name}`", ", ".join(DTYPES), queries))
    return rows


def error_classes() -> list[Row]:
    """The family of errors."""
    found = [value for value in vars(errors).values() if isinstance(value, type) and not issubclass(value, Warning)]
    rows: list[Row] = [("error", "subclass of", "raised when")]
    for one in found:
        bases = [base.__name__ for base in one.__mro__[1:] if base not in (object, BaseException, one)]
        rows.append((f"`{one.__name__}`", _code(base for base in bases if base != "Exception"), _first_line(one)))
    return rows


def _of_mjcf() -> str:
    return f"{mjcf_files.MOST_FILES:,}; {mjcf_files.MOST_ASSET_BYTES // 2**30} GiB"


def _of_sdf() -> str:
    return f"{sdf_files.MAX_INCLUDES:,}; {sdf_files.MAX_CHAIN}; {sources.MAX_BYTES // 2**20} MiB"


def reading_limits() -> list[Row]:
    """Bounds on what is read."""
    return [
        ("limit", "largest value"),
        ("size of a file", f"{sources.MAX_BYTES // 2**20} MiB"),
        ("links of a robot, and joints of a robot", f"{urdf.MAX_LINKS:,}"),
        ("joints that close loops", f"{loops.MAX_LOOPS:,}"),
        ("elements in a file", f"{elements.MAX_ELEMENTS:,}"),
        ("nesting depth of elements", f"{elements.MAX_DEPTH}; in MJCF {mjcf_files.MAX_DEPTH}"),
        ("files that a SDF includes; nesting depth of includes; size of all these files", _of_sdf()),
        ("XML files of a MJCF; size of all other files that it names", _of_mjcf()),
        ("time for compiling a MJCF", f"{mjcf_compiler.MOST_SECONDS:g} s"),
        ("memory for compiling a MJCF, on Linux", f"{mjcf_compiler.MOST_MEMORY // 2**30} GiB"),
        ("size of a compiled MJCF", f"{mjcf_compiler.MOST_COMPILED // 2**30} GiB"),
        ("keyframes", f"{mjcf_keyframes.MOST_KEYFRAMES:,}"),
        (
            "unpacked size of the arrays in a file of states (`robodyn id --states`)",
            f"{cli_state_files.MAX_BYTES // 2**30} GiB",
        ),
        (
            "unpacked size of the compressed parts of a file of states or of a rollout",
            f"{archives.MOST_UNPACKED // 2**20} MiB",
        ),
        ("length of a line of a .csv file of states", f"{cli_state_files.LONGEST_LINE:,} characters"),
    ]


def ignored_tags() -> list[Row]:
    """Elements of files that have no part in dynamics."""
    return [("elements kept as text",), (_code(sorted(urdf.IGNORED_TAGS)),)]


def sdf_ignored_tags() -> list[Row]:
    """Elements of SDF that have no part in dynamics."""
    return [("skipped elements",), (_code(sorted(sdf_values.IGNORED_TAGS)),)]


def field_types() -> list[Row]:
    """Types of fields in `robodyn.sweeps`, and their sizes."""
    rows: list[Row] = [("type", "nv = 1", "nv = 2", "nv = 3")]
    for name, value in vars(sweeps).items():
        # A block of pairs is as large as the two joints make it.
        if isinstance(value, sweeps.FieldType) and not name.startswith("DOF_PAIR"):
            rows.append((f"`{name}`", *(str(value.size(nv)) for nv in (1, 2, 3))))
    return rows


def files() -> list[Row]:
    """Modules, by the first line of their docstrings."""
    root = Path(robodyn.__file__).resolve().parent
    rows: list[Row] = [("file", "what stands in it")]
    for path in sorted(root.rglob("*.py"), key=lambda path: (path.parent != root, path)):
        text = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0]
        if text:
            rows.append((f"`{path.relative_to(root.parent).as_posix()}`", text.replace("\n", " ")))
    return rows


_SMALL_TREE = [-1, 0, 1, 1, 0]
"""A root with two children, the first of which has two."""


def _tour() -> list[tuple[int, bool]]:
    """Bodies of the small tree in the order of its Euler tour, and whether each is entered."""
    tree = VectorTree(_SMALL_TREE)
    steps = [(step, body, True) for body, step in enumerate(tree.lp)]
    steps += [(step, body, False) for body, step in enumerate(tree.rp)]
    return [(body, entered) for _, body, entered in sorted(steps)]


def euler_tour() -> list[Row]:
    """A small tree and its parentheses."""
    tree, tour = VectorTree(_SMALL_TREE), _tour()
    rows: list[Row] = [("body", *map(str, range(len(tree))))]
    for name, values in (("parent", _SMALL_TREE), ("lp", tree.lp), ("rp", tree.rp), ("depth", tree.depth)):
        rows.append((f"`{name}`", *map(str, values)))
    walk = " ".join(f"({body}" if entered else f"{body})" for body, entered in tour)
    return [*rows, ("tour", f"`{walk}`", *[""] * (len(tree) - 1))]


def rootfix_walk() -> list[Row]:
    """Depths by a scan: ones at lp, their inverses at rp."""
    tree, tour = VectorTree(_SMALL_TREE), _tour()
    put = [1 if entered else -1 for _, entered in tour]
    found = tree.rootfix(np.add, np.ones(len(tree), int), np.negative, 0)
    read = [str(found[body]) if entered else "" for body, entered in tour]
    return _walk(tour, [("input", put), ("prefix sums", np.cumsum(put)), ("`rootfix`: sum at lp", read)])


def leaffix_walk() -> list[Row]:
    """Subtree sizes by a scan: ones at lp, nothing at rp."""
    tree, tour = VectorTree(_SMALL_TREE), _tour()
    put = [1 if entered else 0 for _, entered in tour]
    found = tree.leaffix(np.add, np.ones(len(tree), int), np.negative, 0)
    read = ["" if entered else str(found[body]) for body, entered in tour]
    return _walk(
        tour, [("input", put), ("prefix sums", np.cumsum(put)), ("`leaffix`: sum at rp minus sum before lp", read)]
    )


def _walk(tour: list[tuple[int, bool]], lines: list[tuple[str, Any]]) -> list[Row]:
    rows: list[Row] = [("step", *map(str, range(len(tour))))]
    rows.append(("", *(f"({body}" if entered else f"{body})" for body, entered in tour)))
    return [*rows, *((name, *map(str, values)) for name, values in lines)]


def heavy_paths() -> list[Row]:
    """Levels of heavy paths of a binary tree."""
    rows: list[Row] = [("level", "paths", "parent body")]
    for k, level in enumerate(HeavyPaths((np.arange(15) - 1) // 2).levels):
        parts = np.split(level.bodies, level.starts[1:])
        paths = ", ".join("-".join(map(str, part)) for part in parts)
        rows.append((str(k), paths, ", ".join("world" if j < 0 else str(j) for j in level.junctions)))
    return rows


TABLES: dict[str, Callable[[], list[Row]]] = {
    "euler-tour": euler_tour,
    "rootfix-walk": rootfix_walk,
    "leaffix-walk": leaffix_walk,
    "heavy-paths": heavy_paths,
    "joint-kinds": joint_kinds,
    "findings": findings,
    "support": support,
    "exported": exported,
    "engine-names": engine_names,
    "error-classes": error_classes,
    "reading-limits": reading_limits,
    "ignored-tags": ignored_tags,
    "sdf-ignored-tags": sdf_ignored_tags,
    "field-types": field_types,
    "files": files,
}


def markdown(rows: list[Row]) -> str:
    """Rows as a Markdown table, the first one its head."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


ROOT = Path(__file__).resolve().parents[2]
_FILLED = re.compile(r"(?<=<!-- generated: )([a-z-]+) -->\n.*?(?=<!-- end of generated -->)", re.DOTALL)


def filled(text: str) -> str:
    """A page with its tables between `<!-- generated: NAME -->` and `<!-- end of generated -->` made anew."""
    return _FILLED.sub(lambda found: f"{found[1]} -->\n\n{markdown(TABLES[found[1]]())}\n\n", text)


def pages_with_tables() -> list[Path]:
    """Pages in which tables stand, so that readers of the Markdown see them, too."""
    return [page for page in sorted((ROOT / "docs").glob("*.md")) if _FILLED.search(page.read_text(encoding="utf-8"))]


class Generated(SphinxDirective):
    """`{generated} name` in a page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The table of that name."""
        name = self.arguments[0]
        if name not in TABLES:
            raise self.error(f"no generated table {name!r}; there are {', '.join(TABLES)}")
        return self.parse_text_to_nodes(markdown(TABLES[name]()))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive. Pages that use it are read again in every build."""
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True, "version": "1"}


if __name__ == "__main__":
    if "--write" in sys.argv:
        for path in pages_with_tables():
            path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        for title, make in TABLES.items():
            print(f"\n{title}\n\n{markdown(make())}")
