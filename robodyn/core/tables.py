"""Tables of a model, of its report and of results, drawn by rich.

Names come from files: unprintable characters are escaped, and consoles that print these tables must not interpret
markup in them (`console`).
"""

from __future__ import annotations

import io
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from robodyn.core.description import Finding
from robodyn.core.joints import KINDS
from robodyn.internals.arguments import Array
from robodyn.internals.messages import printable

if TYPE_CHECKING:
    from robodyn.api.motion.result import Rollout
    from robodyn.core.model import Model

_WIDTH = 120
_LINKS_NAMED = 5
_NUMBERS_SHOWN = 12
_SEVERITY_STYLE = {"error": "bold red", "warning": "yellow", "info": "dim"}
_UNITS = {"q": ("m", "rad"), "qd": ("m/s", "rad/s"), "qdd": ("m/s^2", "rad/s^2"), "tau": ("N", "N m")}


def _table(title: str | None = None) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def model_table(model: Model, rows: int) -> Table:
    """Joints and bodies of a model, at most `rows` of them."""
    table = _table(repr(model)[1:-1])
    for heading in ("body", "link", "parent", "joint", "kind", "q", "v", "mass [kg]", "limits"):
        justify: JustifyMethod = "right" if heading in ("body", "parent", "mass [kg]") else "left"
        table.add_column(heading, justify=justify, overflow="fold")
    for i in range(min(rows, model.n_bodies)):
        kind = KINDS[model.joint_kind[i]]
        table.add_row(
            str(i),
            printable(model.body_names[i]),
            "world" if model.parent[i] < 0 else str(model.parent[i]),
            printable(model.joint_names[i]),
            kind.name,
            _coordinates(model, i, "q"),
            _coordinates(model, i, "v"),
            f"{model.inertia[i, 0]:.4g}",
            _limits(model, i),
        )
    if model.n_bodies > rows:
        table.caption = f"... and {model.n_bodies - rows} more bodies"
    return table


def _coordinates(model: Model, i: int, letter: str) -> str:
    kind = KINDS[model.joint_kind[i]]
    start, n = (model.q_start[i], kind.nq) if letter == "q" else (model.v_start[i], kind.nv)
    source = (model.q_source if letter == "q" else model.v_source)[start]
    if model.mimics[i] >= 0:
        multiplier = model.v_multiplier[model.v_start[i]]
        offset = model.q_offset[start] if letter == "q" else 0.0
        return f"{multiplier:g} {letter}{source}" + (f" {offset:+g}" if offset else "")
    return f"{source}" if n == 1 else f"{source}..{source + n - 1}"


def _limits(model: Model, i: int) -> str:
    at = model.q_start[i]
    lower, upper = model._limits.lower[at], model._limits.upper[at]
    return f"{lower:g} .. {upper:g}" if np.isfinite([lower, upper]).any() else ""


def model_summary(model: Model) -> Table:
    """Summary of a model: sizes, mass, gravity and the count of findings."""
    g = " ".join(f"{x:g}" for x in model.gravity)
    links = sum(1 for body in model.link_body.tolist() if body < 0)
    coordinates = "" if model.nq == model.nv else f", {model.nq} coordinates"
    followers = int((model.mimics >= 0).sum())
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    named = list(model.configurations)
    configurations = ", ".join(map(printable, named[:_LINKS_NAMED]))
    configurations += f" and {len(named) - _LINKS_NAMED} more" if named[_LINKS_NAMED:] else ""
    for heading, text in (
        ("robot", printable(model.name)),
        ("dof", f"{model.nv}{coordinates}" + (f"; joints that mimic others: {followers}" if followers else "")),
        ("bodies", f"{model.n_bodies}, made of {len(model.link_names)} links, {links} of them fixed to the world"),
        ("mass", f"{model.total_mass:.6g} kg that can move"),
        ("gravity", f"{g} m/s^2"),
        *((("configurations", configurations),) if named else ()),
        ("findings", severity_counts(model.report)),
    ):
        grid.add_row(heading, text)
    return grid


def model_tree(model: Model, rows: int, deepest: int) -> RenderableType:
    """The bodies as a tree, in depth-first order, at most `rows` of them.

    Bodies with more than `deepest` ancestors are not indented further and state their depth: full indentation would
    take space as the square of the depth.
    """
    links: dict[int, list[str]] = defaultdict(list)
    for link, body in zip(model.link_names, model.link_body.tolist(), strict=True):
        if link != ("world" if body < 0 else model.body_names[body]):
            links[body].append(link)
    world = Tree(_branch("world", "", links[-1]), guide_style="dim")
    branches = {-1: world}  # where the children of each body go
    for i in model.tree.preorder[:rows].tolist():
        joint, depth = f"{printable(model.joint_names[i])}, {KINDS[model.joint_kind[i]].name}", int(model.tree.depth[i])
        above = branches[int(model.parent[i])]
        if depth < deepest:
            branches[i] = above.add(_branch(model.body_names[i], joint, links[i]))
        else:
            place = "" if depth == deepest else f"depth {depth}: "
            above.add(Text.assemble(place, _branch(model.body_names[i], joint, links[i])))
            branches[i] = above
    left = model.n_bodies - rows
    return Group(world, Text(f"... and {left} more bodies")) if left > 0 else world


def _branch(body: str, joint: str, links: Sequence[str]) -> Text:
    named = ", ".join(map(printable, links[:_LINKS_NAMED]))
    named += f" and {len(links) - _LINKS_NAMED} more" if links[_LINKS_NAMED:] else ""
    notes = "; ".join(filter(None, (joint, f"carries {named}" if named else "")))
    return Text.assemble((printable(body), "bold"), (f"  {notes}" if notes else "", "cyan"))


def severity_counts(report: Sequence[Finding]) -> str:
    """Words such as "0 errors, 1 warning, 3 info"."""
    counts = Counter[str](finding.severity for finding in report)
    plural = {each: "" if each == "info" or counts[each] == 1 else "s" for each in _SEVERITY_STYLE}
    return ", ".join(f"{counts[each]} {each}{plural[each]}" for each in _SEVERITY_STYLE)


def report_table(report: Sequence[Finding]) -> Table:
    """A loading report, the most severe findings first."""
    table = _table()
    table.add_column("severity")
    table.add_column("line", justify="right")
    table.add_column("element", ratio=2, overflow="fold")
    table.add_column("message", ratio=3, overflow="fold")
    table.add_column("code", overflow="fold")
    for finding in sorted(report, key=lambda finding: list(_SEVERITY_STYLE).index(finding.severity)):
        severity = Text(finding.severity, style=_SEVERITY_STYLE[finding.severity])
        line = "" if finding.line is None else str(finding.line)
        texts = (finding.element, finding.message, finding.code)
        table.add_row(severity, line, *map(printable, texts))
    return table


def rollout_table(rollout: Rollout) -> Table:
    """Summary of a rollout: its steps, times and arrays."""
    table = _table(f"Rollout of {rollout.steps} steps")
    for heading in ("array", "shape", "first", "last"):
        table.add_column(heading)
    for name in ("t", "q", "qd"):
        array = getattr(rollout, name)
        shown = isinstance(array, np.ndarray) and array.ndim <= 2 and 0 < array[-1:].size <= _NUMBERS_SHOWN
        ends = [np.array2string(array[k], precision=4, separator=", ") for k in (0, -1)] if shown else ["", ""]
        table.add_row(name, str(tuple(array.shape)), *ends)
    return table


def units(model: Model, quantity: str) -> tuple[str, ...]:
    """SI units of a quantity ("q", "qd", "qdd" or "tau") of a model, one per component; "1" for those of a
    quaternion."""
    names = []
    for code, followed in zip(model.joint_kind.tolist(), model.mimics.tolist(), strict=True):
        kind = KINDS[code]
        if followed >= 0:
            continue
        for c in range(kind.nq if quantity == "q" else kind.nv):
            in_quaternion = quantity == "q" and kind.quaternion is not None and c >= kind.quaternion
            names.append("1" if in_quaternion else _UNITS[quantity][c not in kind.lengths])
    return tuple(names)


def step_units(model: Model) -> tuple[str, ...]:
    """(nv) SI units of a small change of q, component by component as those of a velocity."""
    return tuple(unit.removesuffix("/s") for unit in units(model, "qd"))


def number_tables(title: str, rows: Sequence[str], columns: Sequence[str], values: Array, width: int) -> list[Table]:
    """A matrix of numbers with names on both axes, as tables of at most `width` characters."""
    texts = [[f"{value + 0.0:.6g}" for value in row] for row in values.tolist()]  # -0.0 becomes 0.0
    cells = [[name.split("\n") for name in columns], *([[text] for text in row] for row in texts)]
    # Two blanks follow every column, and one stands before the first.
    needed = [2 + max(cell_len(line) for lines in column for line in lines) for column in zip(*cells, strict=True)]
    room = width - 3 - max((cell_len(name) for name in rows), default=0)
    tables = []
    start = 0
    while start < len(columns):
        stop, left = start + 1, room - needed[start]
        while stop < len(columns) and needed[stop] <= left:
            left -= needed[stop]
            stop += 1
        part = "" if stop - start == len(columns) else f", columns {start + 1} to {stop} of {len(columns)}"
        table = _table(title + part)
        table.add_column(overflow="fold")
        for name in columns[start:stop]:
            table.add_column(name, justify="right", overflow="fold")
        for name, row in zip(rows, texts, strict=True):
            table.add_row(name, *row[start:stop])
        tables.append(table)
        start = stop
    return tables


def console(stderr: bool = False) -> Console:
    """A console that prints names literally, as wide as the terminal; files and pipes get a fixed width."""
    new = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not new.is_terminal and "COLUMNS" not in os.environ:
        new.width = _WIDTH
    return new


def to_html(renderable: RenderableType) -> str:
    """HTML of a renderable, for notebooks."""
    recorder = Console(width=_WIDTH, record=True, file=io.StringIO(), markup=False, emoji=False, highlight=False)
    recorder.print(renderable)
    return recorder.export_html(inline_styles=True, code_format='<pre style="line-height: 1.2">{code}</pre>')


def to_text(renderable: RenderableType) -> str:
    """Plain text of a renderable."""
    plain = Console(width=_WIDTH, color_system=None, force_terminal=False, markup=False, emoji=False, highlight=False)
    with plain.capture() as capture:
        plain.print(renderable)
    return capture.get().rstrip("\n")
