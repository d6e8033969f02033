"""Walks the statements of a function; both back ends share this walk.

Everything known when the function is printed, such as numbers, lists, types and sizes, is computed by Python at once.
An `if` with a known test leaves one of its branches, and a loop over known values is unrolled. The back ends translate
the rest: `reader` makes blocks of operations, `c_statements` prints C.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any, ClassVar, NoReturn, TypeAlias

from robodyn.compile.loops.blocks import Type, Unknown
from robodyn.compile.loops.gpu import rolled, unrolled
from robodyn.compile.loops.language import KNOWN, OWN, PRIMITIVES, Array, Operator, Routine, struct_of, switch
from robodyn.compile.loops.source import Source, type_named, value_type

Variables: TypeAlias = dict[str, Any]
Computed: TypeAlias = Callable[[Any, Any], Any]
BINARY: Mapping[type, tuple[str, Computed]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", operator.mul),
    ast.Div: ("div", operator.truediv),
    ast.FloorDiv: ("div", operator.floordiv),
    ast.Mod: ("rem", operator.mod),
    ast.BitAnd: ("and", operator.and_),
    ast.BitOr: ("or", operator.or_),
    ast.BitXor: ("xor", operator.xor),
    ast.LShift: ("shl", operator.lshift),
    ast.RShift: ("ashr", operator.rshift),
}
_COMPARED: Mapping[type, tuple[str, Computed]] = {
    ast.Eq: ("eq", operator.eq),
    ast.NotEq: ("ne", operator.ne),
    ast.Lt: ("lt", operator.lt),
    ast.LtE: ("le", operator.le),
    ast.Gt: ("gt", operator.gt),
    ast.GtE: ("ge", operator.ge),
}
_UNARY: Mapping[type, Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}


class Walk:
    """Walks a function's syntax tree. The method `_KIND` handles the nodes of one kind.

    Args:
        module: has the types of type names, and the functions that are called.
        name: the function's name, for error messages.
    """

    # The back ends define operations on unknown values,
    primitives: ClassVar[Mapping[str, Callable[..., Any]]]
    """Translators of the functions in `PRIMITIVES`, by name."""
    _arithmetic: Callable[[str, Computed, Any, Any], Any]
    """Apply a binary operator, given by its code and Python's function, to two values of which at least one is
    unknown."""
    _unary: Callable[[ast.unaryop, Any], Any]
    comparison: Callable[[str, Any, Any], Any]
    _joined: Callable[[bool, Sequence[Any]], Any]
    """The conjunction (True) or disjunction (False) of several tests."""
    choice: Callable[[Any, Any, Any], Any]
    """Select one of two values by a test."""
    _extreme: Callable[[Callable[..., Any], Sequence[Any]], Any]
    """Apply `min` or `max`."""
    convert: Callable[[Any, Any], Any]
    """Convert a value to a type of number."""
    _given: Callable[[Any, Any], Any]
    """A value, or a known number, as a variable of a type."""
    # on memory,
    _entry: Callable[[Any, Any], Any]
    """The k-th value behind an address, or its address if it is a structure."""
    field: Callable[[Any, str], Any]
    """A field of the structure at an address, or its address if it is a structure or an array."""
    _store_entry: Callable[[Any, Any, Any], None]
    _store_field: Callable[[Any, str, Any], None]
    # on variables and calls,
    _bind: Callable[[str, Any], None]
    """Assign a value to a variable."""
    _bind_entry: Callable[[list[Any], Any, Any, ast.expr], None]
    """Assign a value to an entry of a list; the last argument is the list's expression."""
    _call_routine: Callable[[Routine[..., Any], Sequence[Any], Mapping[str, Any]], Any]
    _call_function: Callable[[FunctionType, Sequence[Any], Mapping[str, Any]], Any]
    """Call a function that is not a `Routine`."""
    # and statements.
    _loop: Callable[[ast.While], bool | None]
    """Print a `while` loop and return None; if its test is known, return the test's value instead."""
    _counted: Callable[[ast.For, tuple[Any, Any, Any], bool, Any], None]
    """A loop over a range: the statement, (first, end, step), True if reversed, and `range`, `rolled` or `unrolled`."""
    _repeated: Callable[[ast.For, Iterable[Any]], None]
    """A loop over known values."""
    _switch: Callable[[ast.For, Any, Sequence[int]], None]
    """Jump to the copy of the body for the number that equals a value."""
    handlers: ClassVar[dict[type, Callable[[Any, Any], Any]]]

    def __init_subclass__(cls) -> None:
        methods = {kind: f"_{kind.__name__.lower()}" for base in (ast.stmt, ast.expr) for kind in base.__subclasses__()}
        cls.handlers = {kind: getattr(cls, method) for kind, method in methods.items() if hasattr(cls, method)}

    def __init__(self, module: Any, name: str) -> None:
        self.module, self.name = module, name
        self.types: Mapping[str, Type] = module.types
        self.variables: Variables = {}
        self.source: Source
        self.ended = ""
        """How the previous statement left this sequence of statements (jump or return); empty if it did not."""
        self.statement: ast.stmt = ast.Pass()

    def _parallel(self, targets: Sequence[ast.expr], values: Any) -> Sequence[Any]:
        """The values that a tuple assignment gives to its targets."""
        return list(values)

    def _effect(self, value: Any) -> None:
        """Handle an expression statement."""

    def _quantified(self, node: ast.GeneratorExp, conjunction: bool) -> Any:
        """`all` (conjunction) or `any` of a test over the rounds of a loop."""
        return self.all_or_any(conjunction, self._listcomp(node))

    # Statements.

    def statements(self, body: Iterable[ast.stmt]) -> None:
        """Walk statements until one jumps away or returns."""
        handlers = self.handlers
        for each in body:
            if self.ended:
                return
            self.statement = each
            if each.__class__ not in handlers:
                self.refuse("no such statement here")
            handlers[each.__class__](self, each)

    def refuse(self, why: str) -> NoReturn:
        """Raise a TypeError that says why a statement cannot be printed."""
        raise TypeError(f"{self.name}: {ast.unparse(self.statement).splitlines()[0]}: {why}")

    def _pass(self, node: ast.Pass) -> None:
        pass

    def _assert(self, node: ast.Assert) -> None:
        """Assertions only apply when the function runs as Python."""

    def _expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self._effect(self.evaluate(node.value))

    def _assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        for target in node.targets:
            self.store(target, value)

    def _annassign(self, node: ast.AnnAssign) -> None:
        assert node.value is not None
        value, kind = self.evaluate(node.value), node.annotation
        if isinstance(kind, ast.Name) and (kind.id in self.types or kind.id in OWN):
            value = self._given(value, value_type(kind, self.source, self.types))
        self.store(node.target, value)

    def _augassign(self, node: ast.AugAssign) -> None:
        self.store(node.target, self.binary(node.op, self.evaluate(node.target), self.evaluate(node.value)))

    def store(self, target: ast.expr, value: Any) -> None:
        """Assign a value to a variable, to entries of lists, or to memory."""
        if isinstance(target, ast.Name):
            self._bind(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for each, one in zip(target.elts, self._parallel(target.elts, value), strict=True):
                self.store(each, one)
        elif isinstance(target, ast.Subscript):
            of, k = self.evaluate(target.value), self.evaluate(target.slice)
            if isinstance(of, list):
                self._bind_entry(of, k, value, target.value)
            else:
                self._store_entry(of, k, value)
        elif isinstance(target, ast.Attribute):
            self._store_field(self.evaluate(target.value), target.attr, value)
        else:
            self.refuse("no such target")

    def _while(self, node: ast.While) -> None:
        while not self.ended and self._loop(node):
            self.statements(node.body)  # the test is known, so the loop is unrolled

    def _for(self, node: ast.For) -> None:
        inner, function = node.iter, self._function_of(node.iter)
        if function is switch and isinstance(inner, ast.Call):
            numbers = self.known(inner.args[1])
            value = self.evaluate(inner.args[0]) if len(numbers) > 1 else numbers[0]
            if isinstance(value, Unknown):
                self._switch(node, value, numbers)
            else:
                self._repeated(node, [value])
            return
        backwards = function is reversed
        if backwards and isinstance(inner, ast.Call):
            (inner,) = inner.args
            function = self._function_of(inner)
        if function not in (range, rolled, unrolled) or not isinstance(inner, ast.Call):
            self._repeated(node, self.evaluate(node.iter))
            return
        bounds = self._entries(inner.args)
        if function is not range or any(isinstance(each, Unknown) for each in bounds):
            self._counted(node, (*([0] if len(bounds) == 1 else []), *bounds, 1)[:3], backwards, function)
        else:
            self._repeated(node, reversed(range(*bounds)) if backwards else range(*bounds))

    def _function_of(self, node: ast.expr) -> Any:
        """The function of a call by name, else None."""
        return self.evaluate(node.func) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None

    # Expressions.

    def evaluate(self, node: ast.expr) -> Any:
        """The value of an expression, unknown or known."""
        try:
            handler = self.handlers[node.__class__]
        except KeyError:
            self.refuse(f"no {node.__class__.__name__} here")
        return handler(self, node)

    def known(self, node: ast.expr) -> Any:
        """The value of an expression that must be known."""
        value = self.evaluate(node)
        if isinstance(value, Unknown):
            self.refuse(f"{ast.unparse(node)} is not known when the function is printed")
        return value

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        name = node.id
        if name in self.variables:
            return self.variables[name]
        for scope in self.source.scopes:
            if name in scope:
                return scope[name]
        return self.refuse(f"{name} has no value on every way here")

    def _tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._entries(node.elts))

    def _list(self, node: ast.List) -> Any:
        return self._entries(node.elts)

    def _entries(self, nodes: Iterable[ast.expr]) -> list[Any]:
        values: list[Any] = []
        for each in nodes:
            if isinstance(each, ast.Starred):
                values += self.evaluate(each.value)
            else:
                values.append(self.evaluate(each))
        return values

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp) -> list[Any]:
        before, self.variables = self.variables, {**self.variables}
        items = [self.evaluate(node.elt) for _ in self._rounds(node.generators)]
        self.variables = before
        return items

    _generatorexp = _listcomp

    def _dictcomp(self, node: ast.DictComp) -> dict[Any, Any]:
        before, self.variables = self.variables, {**self.variables}
        items = {self.known(node.key): self.evaluate(node.value) for _ in self._rounds(node.generators)}
        self.variables = before
        return items

    def _rounds(self, generators: Sequence[ast.comprehension]) -> Iterator[None]:
        """The rounds of a comprehension. Each round binds its own values to the target names."""
        first, *others = generators
        for item in list(self.evaluate(first.iter)):
            self._name_item(first.target, item)
            if all(map(self.known, first.ifs)):
                yield from self._rounds(others) if others else (None,)

    def _name_item(self, target: ast.expr, item: Any) -> None:
        if isinstance(target, ast.Name):
            self.variables[target.id] = item
        else:
            assert isinstance(target, ast.Tuple)
            for each, one in zip(target.elts, item, strict=True):
                self._name_item(each, one)

    def _binop(self, node: ast.BinOp) -> Any:
        return self.binary(node.op, self.evaluate(node.left), self.evaluate(node.right))

    def binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        """Apply a binary operator."""
        code, function = BINARY[op.__class__]
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return self._arithmetic(code, function, left, right)
        return function(left, right)

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        value = self.evaluate(node.operand)
        return self._unary(node.op, value) if isinstance(value, Unknown) else _UNARY[node.op.__class__](value)

    def _boolop(self, node: ast.BoolOp) -> Any:
        """The value of `and` or `or`. Operands may be computed even if Python would skip them, so they must be safe to
        compute. Only the tests of `if` and `while` may jump instead."""
        conjunction, tests, value = isinstance(node.op, ast.And), [], None
        for each in node.values:
            value = self.evaluate(each)
            if isinstance(value, Unknown):
                tests.append(value)
            elif bool(value) is not conjunction:
                return value
        return self._joined(conjunction, tests) if tests else value

    def all_or_any(self, conjunction: bool, found: Sequence[Any]) -> Any:
        """Whether all tests hold (conjunction), or at least one."""
        unknown = [each for each in found if isinstance(each, Unknown)]
        if any(bool(each) is not conjunction for each in found if not isinstance(each, Unknown)):
            return not conjunction
        return self._joined(conjunction, unknown) if unknown else conjunction

    def _compare(self, node: ast.Compare) -> Any:
        left, tests = self.evaluate(node.left), []
        for op, each in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(each)
            if each is not node.comparators[-1]:
                self.repeats(right)
            one = self.compared(op, left, right)
            if isinstance(one, Unknown):
                tests.append(one)
            elif not one:
                return one
            left = right
        return self._joined(True, tests) if tests else True

    def repeats(self, value: Any) -> None:
        """Several comparisons use the value. Printers whose values are expressions refuse those that act."""

    def compared(self, op: ast.cmpop, left: Any, right: Any) -> Any:
        """The result of a comparison."""
        unknown = isinstance(left, Unknown) or isinstance(right, Unknown)
        if isinstance(op, (ast.Is, ast.IsNot)):  # an unknown value is never None
            return (not unknown and left is right) is isinstance(op, ast.Is)
        if isinstance(op, (ast.In, ast.NotIn)):
            outside = isinstance(op, ast.NotIn)
            one: ast.cmpop = ast.NotEq() if outside else ast.Eq()
            if unknown:
                self.repeats(left)
                return self.all_or_any(outside, [self.compared(one, left, each) for each in right])
            return (left in right) is not outside
        code, function = _COMPARED[op.__class__]
        return self.comparison(code, left, right) if unknown else function(left, right)

    def _ifexp(self, node: ast.IfExp) -> Any:
        test = self.evaluate(node.test)
        if not isinstance(test, Unknown):
            return self.evaluate(node.body if test else node.orelse)
        return self.select(test, self.evaluate(node.body), self.evaluate(node.orelse))

    def select(self, test: Any, a: Any, b: Any) -> Any:
        """Select one of two values, or element by element of two lists."""
        if isinstance(a, (list, tuple)):
            return rebuilt(a, (self.select(test, x, y) for x, y in zip(a, b, strict=True)))
        return self.choice(test, a, b)

    def _subscript(self, node: ast.Subscript) -> Any:
        of = self.evaluate(node.value)
        if isinstance(of, Unknown):
            return self._entry(of, self.evaluate(node.slice))
        if of is Array:
            return type_named(node, self.source, self.types)
        if isinstance(node.slice, ast.Slice):
            bounds = [each and self.known(each) for each in (node.slice.lower, node.slice.upper, node.slice.step)]
            return of[slice(*bounds)]
        return of[self.known(node.slice)]

    def _attribute(self, node: ast.Attribute) -> Any:
        of = self.evaluate(node.value)
        return self.field(of, node.attr) if isinstance(of, Unknown) else getattr(of, node.attr)

    # Calls.

    def _call(self, node: ast.Call) -> Any:
        function = self.evaluate(node.func)
        plain = isinstance(function, FunctionType)
        if plain and function in PRIMITIVES:
            return self._primitive(PRIMITIVES[function], node)
        if (function is all or function is any) and isinstance(node.args[0], ast.GeneratorExp):
            return self._quantified(node.args[0], function is all)
        positional = self._entries(node.args)
        named = {each.arg: self.evaluate(each.value) for each in node.keywords if each.arg is not None}
        if plain and function not in KNOWN:
            return self._call_function(function, positional, named)
        if isinstance(function, Routine):
            return self._call_routine(function, positional, named)
        if isinstance(function, Operator):
            return function.read(self, *positional, **named)
        if not any(isinstance(each, Unknown) for each in (*positional, *named.values())):
            return function(*positional, **named)
        if function is min or function is max:
            return self._extreme(function, positional)
        if isinstance(function, type):
            if issubclass(function, tuple):
                return function(*positional, **named)
            kind = self.types.get(function.__name__) or OWN.get(function.__name__)
            if kind is not None:
                return self.convert(kind, *positional)
        return self.refuse(f"{ast.unparse(node.func)} cannot be called with values")

    def _primitive(self, name: str, node: ast.Call) -> Any:
        """Call a primitive; its arguments may be types."""
        arguments: list[Any] = []
        for each in node.args:
            if isinstance(each, ast.Starred):
                arguments += self.evaluate(each.value)
                continue
            argument = None
            if isinstance(each, ast.Name):
                argument = self.types.get(each.id) or OWN.get(each.id)
            if argument is None:
                argument = self.evaluate(each)
                argument = struct_of(argument) if isinstance(argument, type) else argument
            arguments.append(argument)
        options = {each.arg: self.known(each.value) for each in node.keywords if each.arg is not None}
        return self.primitives[name](self, *arguments, **options)


def bound(source: Source, positional: Sequence[Any], named: Mapping[str, Any]) -> Variables:
    """The arguments of a call by the names of the parameters."""
    names = [name for name, _ in source.parameters]
    values = {**source.defaults, **dict(zip(names, positional, strict=False)), **named}
    return {name: copied(values[name]) for name in names}


def copied(variable: Any) -> Any:
    """A copy whose lists are new, so that changes on one path do not affect another."""
    if variable.__class__ is list:
        return [copied(each) for each in variable]
    if variable.__class__ is dict:
        return {name: copied(each) if each.__class__ is list else each for name, each in variable.items()}
    return variable


def rebuilt(like: Any, items: Iterable[Any]) -> Any:
    """A list or tuple of the same type with other items."""
    return type(like)(*items) if hasattr(like, "_fields") else type(like)(items)
