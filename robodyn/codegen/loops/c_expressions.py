"""From expressions of restricted Python to expressions of C."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

from robodyn.codegen.c_body import Dialect
from robodyn.codegen.loops.blocks import I1, I32, I64, Fixed, Number, Pointer, Struct, Type
from robodyn.codegen.loops.c_primitives import C_PRIMITIVES
from robodyn.codegen.loops.c_terms import (
    AND,
    ATOM,
    CHOICE,
    OR,
    PREFIX,
    Printed,
    Term,
    c_type,
    has_terms,
    is_address,
    rebuilt,
)
from robodyn.codegen.loops.gpu import OutsideError
from robodyn.codegen.loops.language import OWN, PRIMITIVES, Array, Byte, Integer, Routine, Scalar, struct_of
from robodyn.codegen.loops.source import MISSING, Source, each_part, is_static, source_of, type_named

if TYPE_CHECKING:
    from robodyn.codegen.loops.cuda import Module

BINARY: Mapping[type, tuple[str, int, Callable[[Any, Any], Any]]] = {
    ast.Mult: ("*", 13, operator.mul),
    ast.Div: ("/", 13, operator.truediv),
    ast.FloorDiv: ("/", 13, operator.floordiv),
    ast.Mod: ("%", 13, operator.mod),
    ast.Add: ("+", 12, operator.add),
    ast.Sub: ("-", 12, operator.sub),
    ast.LShift: ("<<", 11, operator.lshift),
    ast.RShift: (">>", 11, operator.rshift),
    ast.BitAnd: ("&", 8, operator.and_),
    ast.BitXor: ("^", 7, operator.xor),
    ast.BitOr: ("|", 6, operator.or_),
}
"""Operators: C's sign, how tightly it binds, and what it computes."""
_COMPARED: Mapping[type, tuple[str, int, Callable[[Any, Any], Any]]] = {
    ast.Lt: ("<", 10, operator.lt),
    ast.LtE: ("<=", 10, operator.le),
    ast.Gt: (">", 10, operator.gt),
    ast.GtE: (">=", 10, operator.ge),
    ast.Eq: ("==", 9, operator.eq),
    ast.NotEq: ("!=", 9, operator.ne),
}
_UNARY: Mapping[type, tuple[str, Callable[[Any], Any]]] = {
    ast.USub: ("-", operator.neg),
    ast.UAdd: ("+", operator.pos),
    ast.Invert: ("~", operator.invert),
    ast.Not: ("!", operator.not_),
}


class Expressions:
    """Reads the expressions of one function, whose variables others bind."""

    def __init__(self, module: Module, source: Source, name: str) -> None:
        self.module, self.source, self.name = module, source, name
        self.variables: dict[str, Any] = {}

    def put(self, text: str) -> None:
        """A line."""
        raise NotImplementedError

    def new(self, name: str) -> str:
        """A name of C for a variable."""
        raise NotImplementedError

    def room(self, text: str) -> str:
        """A name like that of what is assigned, of an array that `text` declares where it says NAME."""
        raise NotImplementedError

    def held(self, name: str) -> Any:
        """What a variable has."""
        raise NotImplementedError

    def refuse(self, node: ast.AST, why: str) -> NoReturn:
        """Say what cannot be printed."""
        raise TypeError(f"{self.name}: {ast.unparse(node)}: {why}")

    def evaluate(self, node: ast.expr) -> Any:
        """An expression of C, or what is known."""
        method = getattr(self, f"_of_{type(node).__name__.lower()}", None)
        if method is None:
            self.refuse(node, "no such expression here")
        return method(node)

    def _of_constant(self, node: ast.Constant) -> Any:
        return node.value

    def _of_name(self, node: ast.Name) -> Any:
        found = self.held(node.id) if node.id in self.variables else self.source.meaning(node.id)
        if found is MISSING:
            self.refuse(node, "has no value on every way here")
        return found

    def _of_tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._entries(node.elts))

    def _of_list(self, node: ast.List) -> Any:
        return list(self._entries(node.elts))

    def _entries(self, nodes: Iterable[ast.expr]) -> Iterator[Any]:
        for each in nodes:
            if isinstance(each, ast.Starred):
                yield from self.evaluate(each.value)
            else:
                yield self.evaluate(each)

    def _of_listcomp(self, node: ast.ListComp) -> list[Any]:
        found: list[Any] = []
        hidden = dict(self.variables)
        self._generated(node.generators, lambda: found.append(self.evaluate(node.elt)))
        self.variables = hidden
        return found

    _of_generatorexp = _of_listcomp

    def _generated(self, generators: list[ast.comprehension], then: Callable[[], None]) -> None:
        if not generators:
            then()
            return
        first, *others = generators
        for item in list(self.evaluate(first.iter)):
            self._named_in(first.target, item)
            if all(self.evaluate(test) for test in first.ifs):
                self._generated(others, then)

    def _named_in(self, target: ast.expr, item: Any) -> None:
        """Name an item within a comprehension."""
        if isinstance(target, ast.Name):
            self.variables[target.id] = item
        else:
            assert isinstance(target, ast.Tuple)
            for each, one in zip(target.elts, item, strict=True):
                self._named_in(each, one)

    def _of_binop(self, node: ast.BinOp) -> Any:
        return self.binary(node, node.op, self.evaluate(node.left), self.evaluate(node.right))

    def binary(self, node: ast.AST, op: ast.operator, left: Any, right: Any) -> Any:
        """What an operator makes of two."""
        sign, level, known = BINARY[type(op)]
        if not isinstance(left, Term) and not isinstance(right, Term):
            return known(left, right)
        kind = self._common(node, left, right)
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
            if isinstance(op, ast.Div):
                self.refuse(node, "integers are divided by //")
        if sign in "/%" and isinstance(left, Term) and left.unsigned and not isinstance(right, Term) and right > 0:
            text = f"({left.unsigned} {sign} {right})"  # without a sign a division is a shift
            return Term(f"(int){text}", kind, PREFIX, unsigned=text)
        pair = [self._operand(each, kind, sign) for each in (left, right)]
        read = any(isinstance(each, Term) and each.read for each in (left, right))
        return Term(f"{pair[0].at(level)} {sign} {pair[1].at(level + 1)}", kind, level, read)

    def _operand(self, value: Any, kind: Number | Pointer, sign: str) -> Term:
        if isinstance(value, Term):
            return value
        number = I64 if isinstance(kind, Pointer) else kind
        return Term(f"{value}LL", I64) if sign == "<<" and kind == I64 else self.typed(value, number)

    def _common(self, node: ast.AST, left: Any, right: Any) -> Number | Pointer:
        """The type of what is made of two."""
        terms = [each for each in (left, right) if isinstance(each, Term)]
        for each in terms:
            if isinstance(each.type, Pointer):
                return each.type
        widest = max((each.number for each in terms), key=lambda kind: (kind.real, kind.size))
        others = [each for each in (left, right) if not isinstance(each, Term)]
        if any(isinstance(each, float) for each in others) and not widest.real:
            self.refuse(node, "a number with a fraction beside an integer")
        wide = any(isinstance(each, int) and not -(1 << 31) <= each < 1 << 31 for each in others)
        return widest if widest.real or widest == I64 else I64 if wide else I32

    def _of_unaryop(self, node: ast.UnaryOp) -> Any:
        value = self.evaluate(node.operand)
        sign, known = _UNARY[type(node.op)]
        if not isinstance(value, Term):
            return known(value)
        if isinstance(node.op, ast.Invert) and value.type == I1:
            sign = "!"
        kind = I1 if sign == "!" else value.number
        return Term(f"{sign}{value.at(PREFIX + (sign == '-'))}", kind, PREFIX)

    def _of_boolop(self, node: ast.BoolOp) -> Any:
        conjunction, found = isinstance(node.op, ast.And), list[Term]()
        for each in node.values:
            value = self.evaluate(each)
            if isinstance(value, Term):
                found.append(value)
            elif bool(value) is not conjunction:
                if not found:
                    return not conjunction
                found.append(self.typed(bool(value), I1))
                break
        sign, level = ("&&", AND) if conjunction else ("||", OR)
        if len(found) < 2:
            return found[0] if found else conjunction
        return Term(f" {sign} ".join(each.at(level + 1) for each in found), I1, level)

    def _of_compare(self, node: ast.Compare) -> Any:
        left, found = self.evaluate(node.left), list[Term]()
        for op, each in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(each)
            one = self._compared(node, op, left, right)
            if isinstance(one, Term):
                found.append(one)
            elif not one:
                return False
            left = right
        if len(found) < 2:
            return found[0] if found else True
        return Term(" && ".join(each.at(AND + 1) for each in found), I1, AND)

    def _compared(self, node: ast.AST, op: ast.cmpop, left: Any, right: Any) -> Any:
        known = not isinstance(left, Term) and not isinstance(right, Term)
        if isinstance(op, (ast.Is, ast.IsNot)):  # a value is never None
            return (known and left is right) is isinstance(op, ast.Is)
        if isinstance(op, (ast.In, ast.NotIn)):
            return (left in right) is isinstance(op, ast.In)
        sign, level, function = _COMPARED[type(op)]
        if known:
            return function(left, right)
        kind = self._common(node, left, right)
        pair = [self.typed(each, kind) if not isinstance(each, Term) or is_address(kind) else each
                for each in (left, right)]  # fmt: skip
        return Term(f"{pair[0].at(level)} {sign} {pair[1].at(level + 1)}", I1, level)

    def _of_ifexp(self, node: ast.IfExp) -> Any:
        test = self.evaluate(node.test)
        if not isinstance(test, Term):
            return self.evaluate(node.body if test else node.orelse)
        return self.choice(test, self.evaluate(node.body), self.evaluate(node.orelse))

    def choice(self, test: Term, a: Any, b: Any) -> Any:
        """One of two values, or of lists of them."""
        if isinstance(a, (list, tuple)):
            return rebuilt(a, (self.choice(test, x, y) for x, y in zip(a, b, strict=True)))
        if isinstance(a, Term) or isinstance(b, Term):
            kind: Number | Pointer = self._common(ast.Pass(), a, b)
        else:
            kind = max(map(self.own_type, (a, b)), key=lambda kind: kind.real)
        first, second = self.typed(a, kind), self.typed(b, kind)
        text = f"{test.at(CHOICE + 1)} ? {first.at(CHOICE + 1)} : {second.at(CHOICE)}"
        return Term(text, kind, CHOICE, first.read or second.read)

    def _of_subscript(self, node: ast.Subscript) -> Any:
        of = self.evaluate(node.value)
        if of is Array:
            return type_named(node, self.source, self.module.types)
        if isinstance(of, Term):
            return self._entry(of, self.evaluate(node.slice))
        if isinstance(node.slice, ast.Slice):
            bounds = [each and self.evaluate(each) for each in (node.slice.lower, node.slice.upper, node.slice.step)]
            return of[slice(*bounds)]
        return of[self.evaluate(node.slice)]

    def _entry(self, of: Any, k: Any) -> Term:
        """The k-th value from an address on, or where it is if that is a structure."""
        assert isinstance(of, Term), f"{self.name}: {of} has no entries"
        index = k.text if isinstance(k, Term) else str(k)
        to = of.pointed
        if isinstance(to, Struct):
            found: Term = self.binary(ast.Pass(), ast.Add(), of, k) if isinstance(k, Term) or k else of
            return found
        return Term(f"{of.at(ATOM)}[{index}]", to)

    def field(self, of: Any, name: str, place: bool = False) -> Term:
        """A field of the structure at an address, or where it is."""
        assert isinstance(of, Term) and isinstance(of.pointed, Struct), f"{self.name}: {name} of {of}"
        self.module.struct(of.pointed)
        kind = of.pointed.fields[name][1]
        text = f"{of.at(ATOM)}->{name}"
        if isinstance(kind, Fixed):
            return Term(text, Pointer(kind.to), read=of.read, fixed=True)
        if place or isinstance(kind, Struct):
            return Term(f"&{text}", Pointer(kind), PREFIX, of.read)
        return Term(text, kind)

    def place(self, of: Term, name: str) -> Term:
        """Where a field is."""
        return self.field(of, name, place=True)

    def _of_attribute(self, node: ast.Attribute) -> Any:
        of = self.evaluate(node.value)
        return self.field(of, node.attr) if isinstance(of, Term) else getattr(of, node.attr)

    def own_type(self, value: Any) -> Number:
        """The type of a known number."""
        if isinstance(value, int):
            return I1 if isinstance(value, bool) else I64
        found = self.module.types["Scalar"]
        assert isinstance(value, float) and isinstance(found, Number), f"{self.name}: {value!r} is no number"
        return found

    def typed(self, value: Any, kind: Type | None) -> Term:
        """An expression for a value of a type, from one or from a known number."""
        if not isinstance(value, Term):
            assert isinstance(kind, (Number, Pointer)), f"{self.name}: {value!r} has no type of its own here"
            text = self._literal(value, kind)
            return Term(text, kind, PREFIX if text.startswith("-") else ATOM)
        if value.type == kind or kind is None:
            return value
        if isinstance(kind, Number) and isinstance(value.type, Number):
            if value.type.real and not kind.real:
                raise TypeError(f"{self.name}: {value.text} is no integer")
            return value  # C converts it
        return self.cast(value, kind)

    def cast(self, value: Term, kind: Type) -> Term:
        """The same in another type."""
        assert isinstance(kind, (Number, Pointer))
        if value.type == kind:
            return value
        return Term(f"({c_type(kind, value.read)}){value.at(PREFIX)}", kind, PREFIX, value.read)

    def _literal(self, value: Any, kind: Number | Pointer) -> str:
        if isinstance(kind, Number) and kind.real and isinstance(value, (int, float)):
            return Dialect(kind.scalar).number(float(value))
        if not isinstance(value, int):
            raise TypeError(f"{self.name}: got {value!r}; wanted {c_type(kind)}")
        if kind == I1:
            value = bool(value)
            return str(value).lower() if self.module.device else str(int(value))
        return str(int(value)) if value != -(1 << 63) else f"{value + 1}LL - 1"

    # Calls.

    def _of_call(self, node: ast.Call) -> Any:
        function = self.evaluate(node.func)
        name = PRIMITIVES.get(function) if isinstance(function, FunctionType) else None
        if name is not None:
            return C_PRIMITIVES[name](self, *map(self._argument, node.args))
        positional = list(self._entries(node.args))
        named = {each.arg: self.evaluate(each.value) for each in node.keywords if each.arg is not None}
        values = any(isinstance(each, Term) for each in (*positional, *named.values()))
        if isinstance(function, Printed):
            return self._printed(function, positional)
        if isinstance(function, Routine):
            return self._called(function.function, positional, named)
        if function in (min, max) and values:
            return self._extreme("<" if function is min else ">", *positional)
        if isinstance(function, FunctionType):
            if positional and not has_terms((positional, named)):
                try:
                    return function(*positional, **named)
                except OutsideError:
                    pass  # what it says depends on the thread
            return self._called(function, positional, named)
        kinds: Mapping[Any, Any] = {int: I64, bool: I1, Integer: I32, Byte: OWN["Byte"]}
        if values and (function in kinds or function is Scalar):
            return self.convert(kinds[function] if function in kinds else self.module.types["Scalar"], positional[0])
        if values and not (isinstance(function, type) and issubclass(function, tuple)):
            self.refuse(node, "cannot be called with values")
        return function(*positional, **named)

    def _argument(self, node: ast.expr) -> Any:
        """An argument of a primitive, which may be a type."""
        if isinstance(node, ast.Name) and (node.id in self.module.types or node.id in OWN):
            return type_named(node, self.source, self.module.types)
        found = self.evaluate(node)
        return struct_of(found) if isinstance(found, type) else found

    def convert(self, kind: Type, value: Any) -> Any:
        """A number as another one."""
        assert isinstance(kind, Number)
        if not isinstance(value, Term):
            return self.typed(value, kind)
        if value.type == kind:
            return value
        if kind == I1:
            return Term(f"{value.at(10)} != 0", I1, 9)
        return self.cast(value, kind)

    def _extreme(self, sign: str, *values: Any) -> Any:
        total, *others = values
        for each in others:
            test = self._compared(ast.Pass(), ast.Lt() if sign == "<" else ast.Gt(), total, each)
            total = self.choice(test, total, each) if isinstance(test, Term) else total if test else each
        return total

    def _called(self, function: Callable[..., Any], positional: list[Any], named: Mapping[str, Any]) -> Any:
        source = source_of(function)
        names = [name for name, _ in source.parameters]
        given = {**source.defaults, **dict(zip(names, positional, strict=False)), **named}
        passed: list[str] = []

        def part(name: str, annotation: ast.expr, value: Any) -> Term:
            term = self._passed(value, annotation, source)
            passed.append(term.text)
            return term

        arguments = {
            name: given[name]
            if is_static(annotation) or annotation is None
            else each_part(name, annotation, source, given[name], part)
            for name, annotation in source.parameters
        }
        called = self.module.called(function, arguments)
        text, result = f"{called.name}({', '.join(passed)})", called.result
        if isinstance(result, tuple):
            found = self.new("found")
            self.put(f"{called.name}_result {found} = {text};")
            return tuple(Term(f"{found}.{each.text}", each.type, read=each.read) for each in result)
        return Term(text, None if result is None else result.type, read=result is not None and result.read)

    def _passed(self, value: Any, annotation: ast.expr, source: Source) -> Term:
        """An argument as the parameter's type, or the index's own."""
        kind = type_named(annotation, source, self.module.types)
        if isinstance(annotation, ast.Name) and annotation.id == "Index":
            small = not isinstance(value, Term) and -(1 << 31) <= value < 1 << 31
            return self.typed(value, I32 if small else value.number if isinstance(value, Term) else kind)
        term = self.typed(value, kind)
        assert isinstance(kind, (Number, Pointer))
        return Term(term.text, kind, term.level, term.read)

    def _printed(self, function: Printed, arguments: Sequence[Any]) -> Term:
        key = "printed", function, *((a.type, a.read) if isinstance(a, Term) else a for a in arguments)
        name = self.module.printed(key, function, arguments)
        return Term(f"{name}({', '.join(each.text for each in arguments if isinstance(each, Term))})", function.result)
