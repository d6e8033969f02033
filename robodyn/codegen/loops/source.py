"""What a function says: its syntax tree, and what names mean in it."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Mapping
from functools import cache
from types import FunctionType
from typing import Any

from robodyn.codegen.loops.blocks import Fixed, Pointer, Type
from robodyn.codegen.loops.language import OWN, struct_of
from robodyn.records import dataclass


class _Missing:
    """Stands for a variable that has no value, or none that all paths agree on."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()


@dataclass(frozen=True)
class Source:
    """A function's parameters, their annotations, its result's, its statements, and what names mean in it."""

    parameters: tuple[tuple[str, ast.expr | None], ...]
    returns: ast.expr | None
    body: tuple[ast.stmt, ...]
    names: Mapping[str, Any]
    defaults: Mapping[str, Any]

    def meaning(self, name: str) -> Any:
        """What a name stands for where the function is written."""
        return self.names.get(name, MISSING)


class _Names(dict[str, Any]):
    """A function's own module, what is around it, and Python's built-in names."""

    def __init__(self, function: FunctionType) -> None:
        inner = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        super().__init__({name: cell.cell_contents for name, cell in inner.items()})
        self._around = function.__globals__
        builtins = function.__builtins__ if hasattr(function, "__builtins__") else {}
        self._python = builtins if isinstance(builtins, dict) else vars(builtins)

    def __missing__(self, name: str) -> Any:
        return self._around[name] if name in self._around else self._python.get(name, MISSING)

    def get(self, name: str, default: Any = None) -> Any:
        """As of a dictionary, the module's names as well."""
        found = self[name]
        return default if found is MISSING else found


def function_text(function: FunctionType) -> str:
    """The lines of a function, to that of its last instruction. `inspect.getsource` takes twenty times as long, and is
    there for code that does not know where its instructions end."""
    code = function.__code__
    ends = [end for _, end, column, _ in code.co_positions() if end is not None and column is not None]
    if not ends:
        return inspect.getsource(function)
    return "".join(linecache.getlines(code.co_filename, function.__globals__)[code.co_firstlineno - 1 : max(ends)])


@cache
def source_of(function: FunctionType) -> Source:
    """What a function says."""
    (tree,) = ast.parse(textwrap.dedent(function_text(function))).body
    assert isinstance(tree, ast.FunctionDef)
    arguments = tree.args
    positional = [*arguments.posonlyargs, *arguments.args]
    own = function.__defaults__ or ()
    return Source(
        tuple((each.arg, each.annotation) for each in (*positional, *arguments.kwonlyargs)),
        tree.returns,
        tuple(tree.body),
        _Names(function),
        {
            **{each.arg: value for each, value in zip(positional[len(positional) - len(own) :], own, strict=True)},
            **(function.__kwdefaults__ or {}),
        },
    )


def is_static(annotation: ast.expr | None) -> bool:
    """Whether a parameter is known when its function is printed."""
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
        return isinstance(annotation, ast.Name) and annotation.id == "Static"
    return annotation is None


def type_named(node: ast.expr, source: Source, types: Mapping[str, Type]) -> Type:
    """The type of an annotation."""
    match node:
        case ast.Name(id=name) if name in types:
            return types[name]
        case ast.Name(id=name) if name in OWN:
            return OWN[name]
        case ast.Name(id=name) if isinstance(source.meaning(name), type):
            return struct_of(source.meaning(name))
        case ast.Subscript(value=ast.Name(id="Array"), slice=inner):
            to = type_named(inner, source, types)
            assert not isinstance(to, Fixed)
            return Pointer(to)
        case ast.Subscript(value=ast.Name(id="Static")):
            raise TypeError("a static parameter has no type here")
    raise TypeError(f"{ast.unparse(node)}: no type here; allowed: {', '.join([*types, *OWN])}, Array[...], structures")
