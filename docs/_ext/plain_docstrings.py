"""Our docstrings are plain text: Google sections, `code` between single backticks, and Markdown tables.

This turns them into what Sphinx reads: tables become list tables, and characters that would be markup are escaped.
`robodyn.name` between backticks becomes a link where the reference has such a name.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

_CODE = re.compile(r"(`[^`]*`)")
_MARKUP = re.compile(r"[\\*|]|_(?=\W|$)")


def _escaped(line: str) -> str:
    parts = _CODE.split(line)
    return "".join(part if part.startswith("`") else _MARKUP.sub(r"\\\g<0>", part) for part in parts)


def _list_table(rows: list[str]) -> list[str]:
    """A Markdown table as an RST list table."""
    cells = [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows]
    del cells[1]  # the line of dashes
    out = ["", ".. list-table::", "   :header-rows: 1", ""]
    for row in cells:
        out += [f"   {'*' if i == 0 else ' '} - {_escaped(cell)}" for i, cell in enumerate(row)]
    return [*out, ""]


def convert(lines: list[str]) -> list[str]:
    """A docstring in our style as RST."""
    out: list[str] = []
    table: list[str] = []
    for line in [*lines, ""]:
        if line.lstrip().startswith("| "):
            table.append(line)
            continue
        if table:
            out += _list_table(table)
            table = []
        # An indented example after a blank line is code.
        out.append(_escaped(line))
    return out[:-1]


def _process(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    lines[:] = convert(lines)


def _code_role(name: str, raw: str, text: str, line: int, inliner: Any, options: Any = None, content: Any = ()) -> Any:
    literal = nodes.literal(text, text, classes=["docutils"])
    if re.fullmatch(r"robodyn(\.\w+)+", text):
        target = addnodes.pending_xref("", literal, refdomain="py", reftype="obj", reftarget=text, refexplicit=False)
        target["plain_docstring"] = True
        return [target], []
    return [literal], []


def _missing(app: Sphinx, env: object, node: addnodes.pending_xref, content: nodes.Element) -> nodes.Element | None:
    """A name between backticks that has no entry is code and nothing more."""
    return content if node.get("plain_docstring") else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the conversion, ahead of napoleon's at priority 500."""
    from docutils.parsers.rst import roles

    roles.register_local_role("plain-code", _code_role)
    app.add_config_value("plain_docstrings", True, "env")
    app.connect("config-inited", lambda app, config: setattr(config, "default_role", "plain-code"))
    app.connect("autodoc-process-docstring", _process, priority=400)
    app.connect("missing-reference", _missing)
    return {"parallel_read_safe": True, "version": "1"}
