"""Translates expressions of restricted Python into blocks of operations; `flow` translates the statements."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

from robodyn.compile.loops.blocks import ADDRESS, I1, I64, End, Fixed, Number, Pointer, Struct, Value, loaded_type
from robodyn.compile.loops.flow import Flow
from robodyn.compile.loops.language import Routine
from robodyn.compile.loops.primitives import PRIMITIVE_READERS
from robodyn.compile.loops.source import Source, is_static, source_of
from robodyn.compile.loops.walk import Computed, bound

_BITWISE = frozenset(("and", "or", "xor", "shl", "ashr", "rem"))
_NEUTRAL = {"add": 0, "sub": 0, "or": 0, "shl": 0, "ashr": 0, "mul": 1, "div": 1}
"""Right operands that leave an integer unchanged."""


class Reader(Flow):
    """Reads one function."""

    primitives = PRIMITIVE_READERS

    def read(self, source: Source, known: Mapping[str, Any], values: Iterable[Value]) -> None:
        """Read the whole function. `values`: the values of the parameters that are not in `known`."""
        own = iter(values)
        self.variables = {name: known[name] if name in known else next(own) for name, _ in source.parameters}
        self.source = source
        self.statements(source.body)
        if not self.ended:
            self._end(End())

    # Operations.

    def _arithmetic(self, code: str, function: Computed, left: Any, right: Any) -> Any:
        pair = [each.constant if isinstance(each, Value) and each.type is I64 else None for each in (left, right)]
        if pair != [None, None]:
            a, b = (each if one is None else one for one, each in zip(pair, (left, right), strict=True))
            if isinstance(a, int) and isinstance(b, int):
                return self.typed(function(a, b), I64)
            if code == "mul" and 0 in pair:
                return self.typed(0, I64)
        of = left if isinstance(left, Value) else right
        kind = of.type
        if isinstance(kind, Pointer):
            if code in ("add", "sub") and of is left:
                return self.moved(of, right if code == "add" else self._negative(right))
            if code not in _BITWISE and not (isinstance(left, Value) and isinstance(right, Value)):
                self.refuse("addresses have no such operation")
            return self.make(I64, code, self.word(left), self.word(right))
        if isinstance(left, Value) and isinstance(right, Value):
            if left.type != right.type:
                if not isinstance(right.type, Pointer):
                    self.refuse(f"of {left.type} and {right.type}")
                right = self.word(right)
            return self.make(kind, code, left, right)
        if not kind.real and not isinstance(right, Value) and right == _NEUTRAL.get(code):
            return left
        return self.make(kind, code, self.typed(left, kind), self.typed(right, kind))

    def _negative(self, value: Any) -> Any:
        return self.make(I64, "sub", self.typed(0, I64), value) if isinstance(value, Value) else -value

    def _unary(self, op: ast.unaryop, value: Value) -> Value:
        kind = value.type
        assert isinstance(kind, Number)
        if isinstance(op, ast.USub):
            return self.make(kind, "neg", value) if kind.real else self._negative(value)
        assert isinstance(op, (ast.Not, ast.Invert))
        return self.make(kind, "xor", value, self.typed(True if kind.scalar == "i1" else -1, kind))

    def _joined(self, conjunction: bool, values: Sequence[Value]) -> Value:
        total, *others = values
        for each in others:
            total = self.make(I1, "and" if conjunction else "or", total, each)
        return total

    def comparison(self, code: str, left: Any, right: Any) -> Value:
        """Compare two values, as signed integers or as floating-point numbers."""
        kind = left.type if isinstance(left, Value) else right.type
        if isinstance(kind, Pointer) or (isinstance(right, Value) and isinstance(right.type, Pointer)):
            kind = ADDRESS
        of = Number("i1", kind.width) if isinstance(kind, Number) else I1
        return self.make(of, "compare", self.typed(left, kind), self.typed(right, kind), how=code)

    def choice(self, test: Value, a: Any, b: Any) -> Value:
        """Select one of two values."""
        kind = a.type if isinstance(a, Value) else b.type if isinstance(b, Value) else None
        if isinstance(b, Value) and isinstance(kind, Pointer) and b.type != kind:
            kind = ADDRESS
        a, b = self.typed(a, kind), self.typed(b, kind)
        return self.make(a.type, "select", test, a, b)

    def _extreme(self, function: Callable[..., Any], values: Sequence[Any]) -> Value:
        total, *others = (self.typed(each, I64) for each in values)
        for each in others:
            total = self.make(I64, "intrinsic", total, each, name=f"s{function.__name__}.i64")
        return total

    def convert(self, kind: Number, value: Value) -> Value:
        """Convert a number, or an address, to another type of number."""
        if value.type == kind.value:
            return value
        if isinstance(value.type, Pointer) and kind == I64:
            return self.word(value)
        if kind == I1:
            return self.make(I1, "compare", value, self.typed(0, value.type), how="ne")
        return self.make(kind.value, "convert", value)

    def typed(self, value: Any, kind: Number | Pointer | None) -> Value:
        """A value of the type `kind`, made from a value or a known number. None: keep its own type."""
        if isinstance(value, Value):
            if kind is None or value.type is kind:
                return value
            if isinstance(kind, Pointer):
                return self.cast(value, kind)
            if isinstance(value.type, Pointer) and kind is I64:
                return self.word(value)
            raise TypeError(f"{self.name}: got {value.type}; wanted {kind}")
        if kind is None:
            if not isinstance(value, int):
                raise TypeError(f"{self.name}: {value!r} has no type of its own here")
            kind = I1 if isinstance(value, bool) else I64
        if not isinstance(value, (bool, int, float)):
            raise TypeError(f"{self.name}: got {value!r}; wanted {kind}")
        return Value(kind, constant=value)

    _given = typed

    def word(self, value: Any) -> Value:
        """An address as an integer."""
        if isinstance(value, Value) and isinstance(value.type, Pointer):
            return self.make(I64, "word", value)
        return self.typed(value, I64)

    # Memory.

    def _entry(self, of: Value, k: Any) -> Value:
        at = self.moved(of, k)
        assert isinstance(at.type, Pointer)
        return at if isinstance(at.type.to, Struct) else self.load(at)

    def load(self, at: Value) -> Value:
        """Load the value at an address."""
        return self.make(loaded_type(at), "load", at)

    def store_at(self, at: Value, value: Any, **facts: Any) -> None:
        """Store a value."""
        self.do("store", self.typed(value, loaded_type(at)), at, **facts)

    def _store_entry(self, of: Value, k: Any, value: Any) -> None:
        self.store_at(self.moved(of, k), value)

    def _store_field(self, of: Value, name: str, value: Any) -> None:
        self.store_at(self.place(of, name), value)

    def moved(self, of: Value, k: Any) -> Value:
        """The address of the k-th value behind an address."""
        assert isinstance(of, Value) and isinstance(of.type, Pointer), f"{self.name}: {of} has no entries"
        if (k.constant if isinstance(k, Value) else k) == 0:
            return of
        return self.make(of.type, "move", of, self.typed(k, I64))

    def place(self, of: Value, name: str) -> Value:
        """The address of a field of a structure."""
        assert isinstance(of.type, Pointer) and isinstance(of.type.to, Struct), f"{self.name}: {name} of {of}"
        offset, kind = of.type.to.fields[name]
        to = kind.to if isinstance(kind, Fixed) else kind
        return self.cast(self.moved(self.cast(of, ADDRESS), offset), Pointer(to))

    def field(self, of: Value, name: str) -> Value:
        """A field of a structure; its address if it is an array or a structure."""
        at = self.place(of, name)
        assert isinstance(of.type, Pointer) and isinstance(of.type.to, Struct)
        return at if isinstance(of.type.to.fields[name][1], (Fixed, Struct)) else self.load(at)

    def cast(self, of: Value, kind: Pointer) -> Value:
        """The same address with another type of values."""
        if not isinstance(of.type, Pointer):
            return self.make(kind, "pointer", of)
        return of if of.type is kind else Value(kind, of.name, of.constant)

    # Calls.

    def _quantified(self, node: ast.GeneratorExp, conjunction: bool) -> Any:
        """The loop ends as soon as the result is known."""
        (loop,) = node.generators
        around = loop.iter
        bounds: list[Any] = []
        if isinstance(around, ast.Call) and self._function_of(around) is range:
            bounds = [self.evaluate(each) for each in around.args]
            around = ast.Call(around.func, [ast.Constant(each) for each in bounds], [])
        if not any(isinstance(each, Value) for each in bounds):
            return super()._quantified(node, conjunction)
        test = ast.UnaryOp(ast.Not(), node.elt) if conjunction else node.elt
        decided, otherwise = (ast.Return(ast.Constant(each)) for each in (not conjunction, conjunction))
        body = (ast.For(loop.target, around, [ast.If(test, [decided], [])], []), otherwise)
        return self.part(self.source, body, dict(self.variables), straight=False)

    def _call_routine(self, routine: Routine[..., Any], positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
        source = source_of(routine.function)
        given = bound(source, positional, named)
        known = {
            name: given[name] for name, annotation in source.parameters if is_static(annotation) or given[name] is None
        }
        function, _ = self.module.function(routine, known)
        own = [each for name, each in given.items() if name not in known]
        arguments = [self.typed(each, parameter.type) for each, parameter in zip(own, function.parameters, strict=True)]
        return self.called(function.result, "call", *arguments, function=function)

    def called(self, result: Number | Pointer | None, code: str, *operands: Value, **facts: Any) -> Value | None:
        """Add an operation, with or without a result."""
        if result is not None:
            return self.make(result, code, *operands, **facts)
        self.do(code, *operands, **facts)
        return None

    def _call_function(self, function: FunctionType, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Inline the function's statements at the call."""
        source = source_of(function)
        given = bound(source, positional, named)
        for name, kind in source.kinds(self.types):
            value = given[name]
            if value is not None and not isinstance(value, (list, tuple)):
                given[name] = self.typed(value, kind)
        return self.part(source, source.body, given, straight=source.straight)
