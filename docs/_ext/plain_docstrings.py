"""Our docstrings are plain text: Google sections, `code` between single backticks, and Markdown tables.

This turns them into what Sphinx reads: napoleon takes the sections, tables become list tables, and characters that
would be markup are escaped. `robodyn.name` between backticks becomes a link where the reference has such a name.
Signatures are shown as they stand in the source, with the names of type aliases instead of what they stand for.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, ForwardRef, get_args, get_origin

from docutils import nodes
from docutils.parsers.rst import roles
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon import Config, GoogleDocstring

from robodyn.internals.public_names import HOMES

_CODE = re.compile(r"(`[^`]*`)")
_MARKUP = re.compile(r"[\\*|]|_(?=\W|$)")
_LONGEST_VALUE = 60
_PAGE = re.compile(r"docs/(\w+)\.md")
_FULL_NAME = re.compile(r"robodyn(\.\w+)+")


def _escaped(line: str) -> str:
    """A line of text as RST: what is not code has no markup, and docs/page.md is a link."""
    parts = [p if p.startswith("`") else _MARKUP.sub(r"\\\g<0>", p) for p in _CODE.split(line)]
    return _PAGE.sub(r":doc:`/\1`", "".join(parts))


def _list_table(rows: list[str]) -> list[str]:
    """A Markdown table as an RST list table."""
    cells = [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows]
    del cells[1]  # the line of dashes
    out = ["", ".. list-table::", "   :header-rows: 1", ""]
    for row in cells:
        out += [f"   {'  -' if i else '* -'} {_escaped(cell)}" for i, cell in enumerate(row)]
    return [*out, ""]


def convert(lines: list[str]) -> list[str]:
    """A docstring in our style as RST."""
    out: list[str] = []
    table: list[str] = []
    for line in [*lines, ""]:
        if line.lstrip().startswith("|"):
            table.append(line)
            continue
        if table:
            is_table = len(table) > 1 and set(table[1].strip()) <= set("|-: ")
            out += _list_table(table) if is_table else map(_escaped, table)
            table = []
        out.append(_escaped(line))
    return out[:-1]


def _docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    # Napoleon takes "text: more" in the docstring of a variable or property for a type; as a function's it does not.
    what = "function" if what in ("attribute", "data", "property") else what
    parsed = GoogleDocstring(convert(lines), Config(napoleon_use_rtype=False), app, what, name, obj, None)
    lines[:] = parsed.lines()


def _written(annotation: Any) -> str:
    """An annotation as it stands in the source."""
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    if isinstance(annotation, str):
        return annotation
    if get_origin(annotation) is not None:
        inner = ", ".join(_written(argument) for argument in get_args(annotation))
        return f"{getattr(get_origin(annotation), '__name__', '')}[{inner}]"
    return getattr(annotation, "__name__", repr(annotation))


def _signature(
    app: Sphinx, what: str, name: str, obj: Any, options: object, signature: str | None, returns: str | None
) -> tuple[str, str] | None:
    if what not in ("class", "exception", "function", "method") or signature is None:
        return None
    if what == "class" and (signature == "()" or getattr(obj, "_is_protocol", False)):
        return "", ""  # the page wants none shown, or there is none
    try:
        found = inspect.signature(obj)
    except (TypeError, ValueError):
        return None
    parameters = list(found.parameters.values())
    if what == "method" and parameters and parameters[0].name == "self":
        del parameters[0]
    plain = [
        parameter.replace(
            annotation=_Source(_written(parameter.annotation))
            if parameter.annotation is not parameter.empty
            else parameter.empty,
            default=_Source("...") if "<factory>" in repr(parameter.default) else parameter.default,
        )
        for parameter in parameters
    ]
    answer = "" if found.return_annotation is found.empty or what == "class" else _written(found.return_annotation)
    return str(found.replace(parameters=plain, return_annotation=found.empty)), answer


class _Source:
    """A text that `inspect` prints without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _skip(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    # Fields of named tuples have nothing to say of themselves.
    return True if type(obj).__name__ == "_tuplegetter" else None


def _code_role(name: str, raw: str, text: str, line: int, inliner: Any, options: Any = None, content: Any = ()) -> Any:
    """Code, and a link where it is the full name of something in the reference."""
    literal = nodes.literal(text, text, classes=["docutils"])
    if not _FULL_NAME.fullmatch(text):
        return [literal], []
    link = addnodes.pending_xref("", literal, refdomain="py", reftype="obj", reftarget=text, refexplicit=False)
    link["or_plain_code"] = True
    return [link], []


def _missing(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Public names of modules stand for their places. Code between backticks that names nothing is code. A type alias
    in a signature links to its entry."""
    if node.get("refdomain") != "py":
        return None
    domain = env.get_domain("py")
    public, _, rest = node["reftarget"].removeprefix("robodyn.").partition(".")
    if public in HOMES:
        home = f"robodyn.{HOMES[public]}.{rest}".rstrip(".")
        found = domain.resolve_xref(env, node["refdoc"], app.builder, "obj", home, node, content)
        if found is not None:
            return found
    if node.get("or_plain_code"):
        return content
    if node.get("reftype") != "class":
        return None
    last = node["reftarget"].rpartition(".")[2]
    aliases = [name for name, each in domain.objects.items() if name.endswith(f".{last}") and each.objtype != "method"]
    if len(aliases) != 1:
        return None
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", aliases[0], node, content)


def _hide_values(app: Sphinx, doctree: nodes.document) -> None:
    """Drop values of data that tell a reader nothing: long ones, and functions."""
    for description in doctree.findall(addnodes.desc):
        if description["objtype"] in ("data", "attribute"):
            for value in list(description[0].findall(addnodes.desc_annotation)):
                text = value.astext()
                if text.lstrip().startswith("=") and (len(text) > _LONGEST_VALUE or "<" in text):
                    value.parent.remove(value)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the conversions."""
    app.setup_extension("sphinx.ext.autodoc")
    roles.register_local_role("plain-code", _code_role)
    app.connect("config-inited", lambda app, config: setattr(config, "default_role", "plain-code"))
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-skip-member", _skip)
    app.connect("missing-reference", _missing)
    app.connect("doctree-read", _hide_values)
    return {"parallel_read_safe": True, "version": "1"}
