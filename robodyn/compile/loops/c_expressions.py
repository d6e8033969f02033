"""Translates expressions of restricted Python into expressions of C."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

from robodyn.compile.c.body import Dialect
from robodyn.compile.loops.blocks import I1, I32, I64, Fixed, Number, Pointer, Struct, Type
from robodyn.compile.loops.c_primitives import C_PRIMITIVES
from robodyn.compile.loops.c_terms import (
    AND,
    ATOM,
    CHOICE,
    LANE,
    OR,
    PREFIX,
    Term,
    c_type,
    has_terms,
    is_address,
    lanes,
    moved,
)
from robodyn.compile.loops.gpu import OutsideError
from robodyn.compile.loops.language import Routine
from robodyn.compile.loops.source import MISSING, Source, each_part, is_static, source_of, type_named
from robodyn.compile.loops.walk import Computed, Walk, bound

if TYPE_CHECKING:
    from robodyn.compile.loops.cuda import Module

SIGNS: Mapping[str, tuple[str, int]] = {
    "mul": ("*", 13),
    "div": ("/", 13),
    "rem": ("%", 13),
    "add": ("+", 12),
    "sub": ("-", 12),
    "shl": ("<<", 11),
    "ashr": (">>", 11),
    "lt": ("<", 10),
    "le": ("<=", 10),
    "gt": (">", 10),
    "ge": (">=", 10),
    "eq": ("==", 9),
    "ne": ("!=", 9),
    "and": ("&", 8),
    "xor": ("^", 7),
    "or": ("|", 6),
}
"""Operators: the sign in C, and its precedence."""
_UNARY: Mapping[type, str] = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "!"}
_CALL = re.compile(r"\w\(|\(\*\)\(")
"""A call in an expression of C. `(double)(x)` is none."""


class Expressions(Walk):
    """Reads the expressions of one function. The subclass `Writer` binds the variables."""

    primitives = C_PRIMITIVES
    module: Module
    put: Callable[[str], None]
    """Add a line."""
    apart: Callable[[str], None]
    """Add a line that stores to memory, between barriers of the warp."""
    new: Callable[[str], str]
    """A new C name for a variable."""
    room: Callable[[str], str]
    """Declare an array and return its name, which resembles the name of the assigned variable. The text has NAME in its
    place."""
    held: Callable[[str], Any]
    """The current value of a variable."""

    def __init__(self, module: Module, source: Source, name: str) -> None:
        super().__init__(module, name)
        self.source = source

    # Operations.

    def _arithmetic(self, code: str, function: Computed, left: Any, right: Any) -> Any:
        sign, level = SIGNS[code]
        kind = self._common(left, right)
        if isinstance(kind, Pointer) and (sign not in "+-" or not isinstance(left, Term) or is_address(right)):
            left, right, kind = *(self.typed(each, I64) for each in (left, right)), I64
        if isinstance(kind, Number) and not kind.real:
            if sign in "+-|^" and not isinstance(right, Term) and right == 0 and isinstance(left, Term):
                return left
            if sign in "+|^" and not isinstance(left, Term) and left == 0:
                return right
            if sign == "*" and any(not isinstance(each, Term) and each == 0 for each in (left, right)):
                return 0
            if sign in "*/" and not isinstance(right, Term) and right == 1:
                return left
            if sign == "*" and not isinstance(left, Term) and left == 1:
                return right
            if function is operator.truediv:
                self.refuse("integers are divided by //")
        if sign in "/%" and isinstance(left, Term) and left.unsigned and not isinstance(right, Term) and right > 0:
            text = f"({left.unsigned} {sign} {right})"  # unsigned division by a power of two is a shift
            return Term(f"(int){text}", kind, PREFIX, unsigned=text)
        pair = [self._operand(each, kind, sign) for each in (left, right)]
        if isinstance(kind, Pointer) and lanes(kind.to) > 1:
            places = moved(pair[1].text, pair[1].level, kind.to)
            return Term(f"{pair[0].at(level)} {sign} {places}", kind, level, pair[0].read)
        read = any(isinstance(each, Term) and each.read for each in (left, right))
        return Term(f"{pair[0].at(level)} {sign} {pair[1].at(level + 1)}", kind, level, read)

    def _operand(self, value: Any, kind: Number | Pointer, sign: str) -> Term:
        if isinstance(value, Term):
            return value
        number = I64 if isinstance(kind, Pointer) else kind
        return Term(f"{value}LL", I64) if sign == "<<" and kind == I64 else self.typed(value, number)

    def _common(self, left: Any, right: Any) -> Number | Pointer:
        """The type of the result of an operation on two values."""
        terms = [each for each in (left, right) if isinstance(each, Term)]
        for each in terms:
            if isinstance(each.type, Pointer):
                return each.type
        widest = max((each.number for each in terms), key=lambda kind: (kind.real, kind.size))
        others = [each for each in (left, right) if not isinstance(each, Term)]
        if any(isinstance(each, float) for each in others) and not widest.real:
            self.refuse("a number with a fraction beside an integer")
        wide = any(isinstance(each, int) and not -(1 << 31) <= each < 1 << 31 for each in others)
        return widest if widest.real or widest == I64 else I64 if wide else I32

    def _unary(self, op: ast.unaryop, value: Term) -> Term:
        sign = "!" if isinstance(op, ast.Invert) and value.type == I1 else _UNARY[type(op)]
        kind = I1 if sign == "!" else value.number
        return Term(f"{sign}{value.at(PREFIX + (sign == '-'))}", kind, PREFIX)

    def _joined(self, conjunction: bool, values: Sequence[Term]) -> Term:
        if len(values) == 1:
            return values[0]
        sign, level = ("&&", AND) if conjunction else ("||", OR)
        return Term(f" {sign} ".join(each.at(level + 1) for each in values), I1, level)

    def repeats(self, value: Any) -> None:
        """Refuse calls, which C would evaluate once for each comparison."""
        if isinstance(value, Term) and _CALL.search(value.text):
            self.refuse("a call that several comparisons use is evaluated several times; give its result a name before")

    def comparison(self, code: str, left: Any, right: Any) -> Term:
        """Compare two values."""
        (sign, level), kind = SIGNS[code], self._common(left, right)
        pair = [self.typed(each, kind) if not isinstance(each, Term) or is_address(kind) else each
                for each in (left, right)]  # fmt: skip
        return Term(f"{pair[0].at(level)} {sign} {pair[1].at(level + 1)}", I1, level)

    def choice(self, test: Term, a: Any, b: Any) -> Term:
        """Select one of two values."""
        if isinstance(a, Term) or isinstance(b, Term):
            kind: Number | Pointer = self._common(a, b)
        else:
            kind = max(map(self.own_type, (a, b)), key=lambda kind: kind.real)
        first, second = self.typed(a, kind), self.typed(b, kind)
        text = f"{test.at(CHOICE + 1)} ? {first.at(CHOICE + 1)} : {second.at(CHOICE)}"
        return Term(text, kind, CHOICE, first.read or second.read)

    def _extreme(self, function: Callable[..., Any], values: Sequence[Any]) -> Any:
        total, *others = values
        for each in others:
            if any(isinstance(one, Term) and _CALL.search(one.text) for one in (total, each)):
                total = self._extreme_of_calls(function is min, total, each)
                continue
            test = self.compared(ast.Lt() if function is min else ast.Gt(), total, each)
            total = self.choice(test, total, each) if isinstance(test, Term) else total if test else each
        return total

    def _extreme_of_calls(self, least: bool, a: Any, b: Any) -> Term:
        """The smaller or the larger of two values. As arguments of a function they are evaluated once."""
        kind = self._common(a, b)
        first, second = self.typed(a, kind), self.typed(b, kind)
        read = first.read or second.read
        return Term(f"{self.module.extreme(least, c_type(kind, read))}({first.text}, {second.text})", kind, read=read)

    # Memory.

    def _entry(self, of: Any, k: Any) -> Term:
        assert isinstance(of, Term), f"{self.name}: {of} has no entries"
        to = of.pointed
        if isinstance(to, Struct):
            place: Term = self.binary(ast.Add(), of, k) if isinstance(k, Term) or k else of
            return place
        places, level = (k.text, k.level) if isinstance(k, Term) else (str(k), ATOM)
        if lanes(to) > 1:
            places = LANE if places == "0" else f"{moved(places, level, to)} + {LANE}"
        return Term(f"{of.at(ATOM)}[{places}]", to)

    def field(self, of: Any, name: str, place: bool = False) -> Term:
        """A field of the structure at an address, or the address of the field."""
        assert isinstance(of, Term) and isinstance(of.pointed, Struct), f"{self.name}: {name} of {of}"
        self.module.struct(of.pointed)
        kind = of.pointed.fields[name][1]
        text = f"{of.at(ATOM)}->{name}"
        if isinstance(kind, Fixed):
            return Term(text, Pointer(kind.to), read=of.read, fixed=True)
        if place or isinstance(kind, Struct):
            return Term(f"&{text}", Pointer(kind), PREFIX, of.read)
        return Term(text, kind)

    # Types.

    def own_type(self, value: Any) -> Number:
        """The type of a known number."""
        if isinstance(value, int):
            return I1 if isinstance(value, bool) else I64
        kind = self.types["Scalar"]
        assert isinstance(value, float) and isinstance(kind, Number), f"{self.name}: {value!r} is no number"
        return kind

    def typed(self, value: Any, kind: Type | None) -> Term:
        """An expression of the type `kind`, from an expression or a known number."""
        if not isinstance(value, Term):
            assert isinstance(kind, (Number, Pointer)), f"{self.name}: {value!r} has no type of its own here"
            text = self.literal(value, kind)
            return Term(text, kind, PREFIX if text.startswith("-") else ATOM)
        if value.type == kind or kind is None:
            return value
        if isinstance(kind, Number) and isinstance(value.type, Number):
            if value.type.real and not kind.real:
                raise TypeError(f"{self.name}: {value.text} is no integer")
            return value  # C converts it
        return self.cast(value, kind)

    def _given(self, value: Any, kind: Number | Pointer) -> Term:
        term = self.typed(value, kind)
        return Term(term.text, kind, term.level, term.read)

    def cast(self, value: Term, kind: Type) -> Term:
        """The expression cast to another type."""
        assert isinstance(kind, (Number, Pointer))
        if value.type == kind:
            return value
        read = value.read and isinstance(kind, Pointer)
        return Term(f"({c_type(kind, read)}){value.at(PREFIX)}", kind, PREFIX, read)

    def convert(self, kind: Number, value: Any) -> Term:
        """Convert a number to another type of number."""
        if not isinstance(value, Term):
            return self.typed(value, kind)
        if kind == I1 and value.type != I1:
            return Term(f"{value.at(10)} != 0", I1, 9)
        return self.cast(value, kind)

    def literal(self, value: Any, kind: Number | Pointer) -> str:
        """A known number as a literal of C."""
        if isinstance(kind, Number) and kind.real and isinstance(value, (int, float)):
            if not math.isfinite(value) and self.module.device:  # NVRTC has no <math.h>
                return "(0.0 / 0.0)" if math.isnan(value) else "(1.0 / 0.0)" if value > 0 else "(-1.0 / 0.0)"
            if not math.isfinite(value):  # macros of <math.h>
                return "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
            return Dialect(kind.scalar).number(float(value))
        if not isinstance(value, int):
            raise TypeError(f"{self.name}: got {value!r}; wanted {c_type(kind)}")
        if kind == I1:
            return str(bool(value)).lower() if self.module.device else str(int(bool(value)))
        return str(int(value)) if value != -(1 << 63) else f"{value + 1}LL - 1"

    # Calls.

    def _call_routine(self, routine: Routine[..., Any], positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
        return self._called(routine.function, positional, named)

    def _call_function(self, function: FunctionType, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
        if positional and not has_terms((positional, named)):
            try:
                return function(*positional, **named)
            except OutsideError:
                pass
        return self._called(function, positional, named)

    def _called(self, function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
        source, passed = source_of(function), list[str]()

        def part(name: str, annotation: ast.expr, value: Any) -> Term:
            term = self._passed(value, annotation, source)
            passed.append(term.text)
            return term

        given = bound(source, positional, named)
        for name, annotation in source.parameters:
            if annotation is not None and not is_static(annotation):
                given[name] = each_part(name, annotation, source, given[name], part)
            elif isinstance(given[name], Term):
                passed.append(given[name].text)
        called = self.module.called(function, given)
        if called.known is not MISSING:
            return called.known
        text, result = f"{called.name}({', '.join(passed)})", called.result
        if isinstance(result, tuple):
            found = self.new("found")
            self.put(f"{called.name}_result {found} = {text};")
            return tuple(Term(f"{found}.{each.text}", each.type, read=each.read) for each in result)
        return Term(text, None if result is None else result.type, read=result is not None and result.read)

    def _passed(self, value: Any, annotation: ast.expr, source: Source) -> Term:
        """An argument, converted to the parameter's type. An `Index` keeps its own size."""
        kind = type_named(annotation, source, self.types)
        if isinstance(annotation, ast.Name) and annotation.id == "Index":
            small = not isinstance(value, Term) and -(1 << 31) <= value < 1 << 31
            return self.typed(value, I32 if small else value.number if isinstance(value, Term) else kind)
        assert isinstance(kind, (Number, Pointer))
        return self._given(value, kind)
