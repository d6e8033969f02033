"""Tables that people read: of a model, of its report, of results. Drawn by rich."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console, RenderableType
from rich.table import Table

from robodyn.joints import KINDS

if TYPE_CHECKING:
    from robodyn.model import Model

_WIDTH = 120


def model_table(model: Model, rows: int) -> Table:
    """Joints and bodies of a model, at most `rows` of them."""
    table = Table(title=repr(model)[1:-1], title_justify="left")
    for heading in ("body", "link", "parent", "joint", "kind", "q", "v", "mass [kg]", "limits"):
        table.add_column(heading, justify="right" if heading in ("body", "parent", "mass [kg]") else "left")
    for i in range(min(rows, model.n_bodies)):
        kind = KINDS[model.joint_kind[i]]
        table.add_row(
            str(i),
            model.body_names[i],
            "world" if model.parent[i] < 0 else str(model.parent[i]),
            model.joint_names[i],
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
    lower, upper = model.tree_lower[at], model.tree_upper[at]
    return f"{lower:g} .. {upper:g}" if np.isfinite([lower, upper]).any() else ""


def to_text(renderable: RenderableType) -> str:
    """What a renderable looks like in plain text."""
    console = Console(width=_WIDTH, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get().rstrip("\n")
