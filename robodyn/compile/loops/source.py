"""The source of a function: its syntax tree, and the meaning of the names in it."""

from __future__ import annotations

import ast
import builtins
import ctypes
import inspect
import linecache
import textwrap
from collections.abc import Callable, Mapping
from functools import cache
from types import FunctionType
from typing import Any

from robodyn.compile.loops.blocks import Fixed, Number, Pointer, Struct, Type
from robodyn.compile.loops.language import OWN, struct_of
from robodyn.compile.loops.live import each_statement
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import UnavailableError


class _Missing:
    """Marks a variable that has no value, or different values on different paths."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()


def function_text(function: FunctionType) -> str:
    """The source lines of a function, up to that of its last instruction. `inspect.getsource` takes twenty times as
    long; it is used only if the code has no position table."""
    code = function.__code__
    ends = [end for _, end, column, _ in code.co_positions() if end is not None and column is not None]
    if not ends:
        return inspect.getsource(function)
    lines = linecache.getlines(code.co_filename, function.__globals__)[code.co_firstlineno - 1 : max(ends)]
    if not lines:
        raise UnavailableError(
            f"{code.co_filename} cannot be read: machine code is made from the text of {function.__name__!r} there"
        )
    return "".join(lines)


class Source:
    """A function's parameters, annotations, statements, and the scopes in which its names have a meaning."""

    def __init__(self, function: FunctionType) -> None:
        text = function_text(function)
        (tree,) = ast.parse(textwrap.dedent(text) if text[0].isspace() else text).body
        assert isinstance(tree, ast.FunctionDef)
        positional = [*tree.args.posonlyargs, *tree.args.args]
        default_values = function.__defaults__ or ()
        defaults = zip(positional[len(positional) - len(default_values) :], default_values, strict=True)
        self.parameters = [(each.arg, each.annotation) for each in (*positional, *tree.args.kwonlyargs)]
        self.returns, self.body = tree.returns, tuple(tree.body)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        closure = {name: cell.cell_contents for name, cell in cells}
        self.scopes: tuple[Mapping[str, Any], ...] = closure, function.__globals__, vars(builtins)
        self.defaults = {**{each.arg: value for each, value in defaults}, **(function.__kwdefaults__ or {})}
        self._kinds: tuple[object, list[tuple[str, Number | Pointer]]] = None, []

    def meaning(self, name: str) -> Any:
        """The meaning of a name in the scope of the function."""
        return next((scope[name] for scope in self.scopes if name in scope), MISSING)

    def kinds(self, types: Mapping[str, Type]) -> list[tuple[str, Number | Pointer]]:
        """The parameters that are not static, with their types. The result is kept, because all calls within one module
        ask for the same."""
        if self._kinds[0] is not types:
            dynamic = [(name, each) for name, each in self.parameters if each is not None and not is_static(each)]
            self._kinds = types, [(name, value_type(each, self, types)) for name, each in dynamic]
        return self._kinds[1]

    @cached_property
    def straight(self) -> bool:
        """Whether the only `return` is the last statement."""
        *body, last = self.body
        return isinstance(last, ast.Return) and not any(isinstance(each, ast.Return) for each in each_statement(body))


@cache
def source_of(function: FunctionType) -> Source:
    """The source of a function."""
    return Source(function)


def is_static(annotation: ast.expr | None) -> bool:
    """Whether a parameter must be known when its function is printed."""
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
        return isinstance(annotation, ast.Name) and annotation.id == "Static"
    return annotation is None


def _is_structure(meaning: Any) -> bool:
    return isinstance(meaning, type) and issubclass(meaning, ctypes.Structure)


def value_type(node: ast.expr, source: Source, types: Mapping[str, Type]) -> Number | Pointer:
    """The type of a value with this annotation. A structure is passed by its address."""
    kind = type_named(node, source, types)
    assert not isinstance(kind, Fixed)
    return Pointer(kind) if isinstance(kind, Struct) else kind


def each_part(
    name: str, annotation: ast.expr, source: Source, value: Any, change: Callable[[str, ast.expr, Any], Any]
) -> Any:
    """Apply `change` to each number or address of a parameter, with its name, its annotation, and its value or
    `MISSING`.

    A parameter `a: tuple[T, ...]` has one part for each element of its value: a_0, a_1, ... A parameter whose type is a
    named tuple has one part for each field: a_FIELD.
    """
    match annotation:
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[inner, ast.Constant()])):
            return tuple(each_part(f"{name}_{k}", inner, source, one, change) for k, one in enumerate(value))
        case ast.Name(id=kind) if isinstance(group := source.meaning(kind), type) and issubclass(group, tuple):
            kinds = _field_kinds(group)
            values = value if isinstance(value, tuple) else [value] * len(kinds)
            pairs = zip(kinds.items(), values, strict=True)
            return group(*(each_part(f"{name}_{field}", kind, source, one, change) for (field, kind), one in pairs))
    return change(name, annotation, value)


@cache
def _field_kinds(group: type) -> dict[str, ast.expr]:
    texts = {field: each.__forward_arg__ for field, each in group.__annotations__.items()}
    return {field: ast.parse(text, mode="eval").body for field, text in texts.items()}


def type_named(node: ast.expr, source: Source, types: Mapping[str, Type]) -> Type:
    """The type for which an annotation stands."""
    match node:
        case ast.Name(id=name) if name in types:
            return types[name]
        case ast.Name(id=name) if name in OWN:
            return OWN[name]
        case ast.Name(id=name) if _is_structure(source.meaning(name)):
            return struct_of(source.meaning(name))
        case ast.BinOp(left=inner, op=ast.BitOr(), right=ast.Constant(value=None)):
            return type_named(inner, source, types)
        case ast.Subscript(value=ast.Name(id="Array"), slice=inner):
            to = type_named(inner, source, types)
            assert not isinstance(to, Fixed)
            return Pointer(to)
        case ast.Subscript(value=ast.Name(id="Static")):
            raise TypeError("a static parameter has no type here")
    raise TypeError(f"{ast.unparse(node)}: no type here; allowed: {', '.join([*types, *OWN])}, Array[...], structures")
