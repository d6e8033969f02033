"""From a function of restricted Python to blocks of operations.

The reader runs the function's syntax tree. What is known when it does, such as numbers, lists, and the types and sizes
that a module is for, is computed at once, by Python itself: an `if` whose test is known leaves one of its branches, a
loop over what is known is repeated. Everything else becomes operations on values.

Variables are in single assignment form from the beginning (Braun et al. 2013, "Simple and Efficient Construction of
Static Single Assignment Form", for structured programs): where paths meet, what differs becomes a parameter of the
block. Values may stand in lists, of which each entry is a variable then, as registers are: `sums[r][c] = ...`.

Loops test before their first round and at the end of each one.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import FunctionType
from typing import Any, NoReturn

from robodyn.codegen.loops.blocks import (
    ADDRESS,
    I1,
    I64,
    Block,
    Edge,
    End,
    Fixed,
    Function,
    Number,
    Operation,
    Pointer,
    Struct,
    Type,
    Value,
)
from robodyn.codegen.loops.language import KNOWN, OWN, PRIMITIVES, Array, Operator, Routine, struct_of
from robodyn.codegen.loops.source import MISSING, Source, is_static, source_of, type_named, value_type
from robodyn.records import dataclass

_BINARY: Mapping[type, tuple[str, Callable[[Any, Any], Any]]] = {
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
_BITWISE = frozenset(("and", "or", "xor", "shl", "ashr", "rem"))
_NEUTRAL = {"add": 0, "sub": 0, "or": 0, "shl": 0, "ashr": 0, "mul": 1, "div": 1}
"""Integers on the right that change nothing."""
_COMPARED: Mapping[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("eq", operator.eq),
    ast.NotEq: ("ne", operator.ne),
    ast.Lt: ("lt", operator.lt),
    ast.LtE: ("le", operator.le),
    ast.Gt: ("gt", operator.gt),
    ast.GtE: ("ge", operator.ge),
}


class _Unknown(Exception):
    """What was asked for takes operations."""


Variables = dict[str, Any]


@dataclass(eq=False)
class _Loop:
    """Where `break` and `continue` of a loop go: jumps that have no arguments yet, and the variables there."""

    breaks: list[tuple[Edge, Variables]]
    continues: list[tuple[Edge, Variables]]


@dataclass(eq=False)
class _Call:
    """Where `return` of a part of a function goes; `results`: jumps, and what they return; None: of the function."""

    source: Source
    results: list[tuple[Edge, Any]] | None


class Callees:
    """What finds the functions that a function calls."""

    def function(self, routine: Routine[..., Any], known: Mapping[str, Any]) -> tuple[Function, Source]:
        """The function of a routine with some parameters known."""
        raise NotImplementedError


class Reader:
    """Reads one function.

    Args:
        function: what to fill.
        types: what names of types stand for.
        callees: finds functions that it calls.
        primitives: what reads operations with names of their own.
    """

    def __init__(
        self,
        function: Function,
        types: Mapping[str, Type],
        callees: Callees,
        primitives: Mapping[str, Callable[..., Any]],
    ) -> None:
        self.function, self.types, self.callees, self.primitives = function, types, callees, primitives
        self.variables: Variables = {}
        self.loops: list[_Loop] = []
        self.calls: list[_Call] = []
        self.count = 0
        self._once: dict[object, Value] = {}
        self._silent = False
        """Whether there are to be no operations, as what is asked for may be known."""
        self.block: Block | None = self._new_block("entry")
        self.function.blocks.append(self.block)

    def read(self, source: Source, known: Mapping[str, Any], values: Iterable[Value]) -> None:
        """Read the whole function; `values`: of the parameters that are not known."""
        own = iter(values)
        self.variables = {name: known[name] if name in known else next(own) for name, _ in source.parameters}
        self.calls.append(_Call(source, None))
        self._statements(source.body)
        if self.block is not None:
            self._end(End())

    # Blocks.

    def _new_block(self, name: str) -> Block:
        self.count += 1
        return Block(f"{name}{self.count}")

    def _begin(self, block: Block) -> None:
        self.function.blocks.append(block)
        self.block = block

    def _end(self, end: End) -> None:
        if self._silent:
            raise _Unknown
        assert self.block is not None
        self.block.end, self.block = end, None

    def _jump(self, block: Block) -> Edge:
        edge = Edge(block, origin=self.block)
        self._end(End((edge,)))
        return edge

    def value(self, type: Number | Pointer) -> Value:
        """A new one."""
        self.count += 1
        return Value(type, f"v{self.count}")

    def numbers(self) -> Iterator[int]:
        """Numbers of names that nothing has yet, for "lines"."""
        while True:
            self.count += 1
            yield self.count

    def do(self, code: str, *operands: Value, type: Number | Pointer | None = None, **facts: Any) -> Any:
        """An operation, and its result."""
        if self._silent:
            raise _Unknown
        assert self.block is not None
        result = None if type is None else self.value(type)
        self.block.operations.append(Operation(code, operands, result, facts))
        return result

    def once(self, key: object, make: Callable[[], Value]) -> Value:
        """What is computed from parameters where the function begins, without a jump, for all who ask for it."""
        if key not in self._once:
            here, self.block = self.block, self.function.blocks[0]
            self._once[key] = make()
            self.block = here
        return self._once[key]

    # Statements.

    def _statements(self, body: Iterable[ast.stmt]) -> None:
        for each in body:
            if self.block is None:
                return  # behind a return, break or continue
            method = _method(each)
            if method is None:
                self._refuse(each, "no such statement here")
            method(self, each)

    def _refuse(self, node: ast.AST, why: str) -> NoReturn:
        raise TypeError(f"{self.function.name}: {ast.unparse(node)}: {why}")

    def _pass(self, node: ast.Pass) -> None:
        pass

    def _assert(self, node: ast.Assert) -> None:
        """For those who read it, and for the function as Python."""

    def _expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.evaluate(node.value)

    def _assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        for target in node.targets:
            self._store(target, value)

    def _annassign(self, node: ast.AnnAssign) -> None:
        assert node.value is not None
        value = self.evaluate(node.value)
        if isinstance(node.annotation, ast.Name) and node.annotation.id in {**OWN, **self.types}:
            value = self.typed(value, value_type(node.annotation, self.calls[-1].source, self.types))
        self._store(node.target, value)

    def _augassign(self, node: ast.AugAssign) -> None:
        self._store(node.target, self.binary(node.op, self.evaluate(node.target), self.evaluate(node.value), node))

    def _store(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(id=name):
                self.variables[name] = _copied(value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for each, one in zip(targets, value, strict=True):
                    self._store(each, one)
            case ast.Subscript(value=of, slice=index):
                container, k = self.evaluate(of), self.evaluate(index)
                if isinstance(container, list):
                    container[k] = _copied(value)
                    return
                at = self.moved(container, k)
                self.do("store", self.typed(value, loaded_type(at)), at)
            case ast.Attribute(value=of, attr=name):
                at = self.field(self.evaluate(of), name)
                self.do("store", self.typed(value, loaded_type(at)), at)
            case _:
                self._refuse(target, "no such target")

    def _return(self, node: ast.Return) -> None:
        result = None if node.value is None else self.evaluate(node.value)
        here = self.calls[-1]
        if here.results is None:
            wanted = self.function.result
            self._end(End(result=None if wanted is None else self.typed(result, wanted)))
        else:
            here.results.append((self._jump(_NOWHERE), result))

    def _break(self, node: ast.Break) -> None:
        self.loops[-1].breaks.append((self._jump(_NOWHERE), self.variables))

    def _continue(self, node: ast.Continue) -> None:
        self.loops[-1].continues.append((self._jump(_NOWHERE), self.variables))

    def _if(self, node: ast.If) -> None:
        known = self._known_test(node.test)
        if known is not None:
            self._statements(node.body if known else node.orelse)
            return
        yes, no = self._new_block("then"), self._new_block("else")
        to_yes, to_no = list[Edge](), list[Edge]()
        self._condition(node.test, to_yes, to_no, yes, no)
        before, ends = self.variables, []
        for block, entered, body in ((yes, to_yes, node.body), (no, to_no, node.orelse)):
            if entered:
                self.variables = _copied(before)
                self._begin(block)
                self._statements(body)
                if self.block is not None:
                    ends.append((self._jump(_NOWHERE), self.variables))
        self._meet("next", ends)

    def _while(self, node: ast.While) -> None:
        if isinstance(node.test, ast.Constant):
            assert node.test.value is True
            self._loop(node, node.body, lambda yes, _: [self._jump(yes)], lambda: None)
            return
        while True:
            known = self._known_test(node.test)
            if known is None:
                break
            if not known:
                return
            self._statements(node.body)  # a loop over what is known

        def test(yes: Block, no: Block) -> list[Edge]:
            entered: list[Edge] = []
            self._condition(node.test, entered, [], yes, no)
            return entered

        self._loop(node, node.body, test, lambda: None)

    def _for(self, node: ast.For) -> None:
        iterated = node.iter
        backwards = _called(iterated) == "reversed" and _called(getattr(iterated, "args", [None])[0]) == "range"
        inner = iterated.args[0] if backwards and isinstance(iterated, ast.Call) else iterated
        bounds: list[Any] | None = None
        if _called(inner) == "range":
            assert isinstance(inner, ast.Call)
            bounds = [self.evaluate(each) for each in inner.args]
        if _called(iterated) == "switch":
            assert isinstance(iterated, ast.Call)
            numbers = self._known(iterated.args[1])
            value = self.evaluate(iterated.args[0]) if len(numbers) > 1 else numbers[0]
            if isinstance(value, Value):
                self._switch(node, value, numbers)
            else:
                self._repeated(node, [value])
            return
        if bounds is None or not any(isinstance(each, Value) for each in bounds):
            self._repeated(node, self.evaluate(iterated))
            return
        first, end, step = (*([0] if len(bounds) == 1 else []), *bounds, 1)[:3]
        self._counted(node, self.typed(first, I64), self.typed(end, I64), step, backwards)

    def _repeated(self, node: ast.For, items: Iterable[Any]) -> None:
        """A loop over what is known."""
        targets = {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)} - set(self.variables)
        breaks: list[tuple[Edge, Variables]] = []
        for item in list(items):
            if self.block is None:
                break
            self.loops.append(_Loop([], []))
            self._store(node.target, item)
            self._statements(node.body)
            loop = self.loops.pop()
            breaks += loop.breaks
            if loop.continues:
                ends = [*loop.continues, *([(self._jump(_NOWHERE), self.variables)] if self.block is not None else [])]
                self._meet("round", ends)
        if breaks:
            ends = [*breaks, *([(self._jump(_NOWHERE), self.variables)] if self.block is not None else [])]
            self._meet("next", ends)
        self.variables = {name: each for name, each in self.variables.items() if name not in targets}

    def _switch(self, node: ast.For, value: Value, numbers: Sequence[int]) -> None:
        """Jump to the body for the number that a value is."""
        blocks = [self._new_block("case") for _ in numbers]
        self._end(End(tuple(map(Edge, blocks)), test=value, cases=tuple(numbers)))
        before, ends = self.variables, list[tuple[Edge, Variables]]()
        for case, block in zip(numbers, blocks, strict=True):
            self.variables = _copied(before)
            self._begin(block)
            self.loops.append(_Loop([], []))
            self._store(node.target, case)
            self._statements(node.body)
            loop = self.loops.pop()
            ends += loop.continues + loop.breaks
            if self.block is not None:
                ends.append((self._jump(_NOWHERE), self.variables))
        self._meet("next", ends)

    def _counted(self, node: ast.For, first: Value, end: Value, step: Any, backwards: bool) -> None:
        """A loop over a range, forward or, of steps of one, backwards."""
        known_one = not isinstance(step, Value) and step == 1
        assert isinstance(node.target, ast.Name) and (known_one or not backwards)
        name, counter = node.target.id, f"{node.target.id} counted"
        hidden = self.variables.get(name, MISSING)
        self.variables[counter] = end if backwards else first
        rounds = 0

        def test(yes: Block, no: Block) -> list[Edge]:
            nonlocal rounds
            rounds += 1
            at = self.variables[counter]
            if backwards:
                more = self.do("compare", at, first, type=I1, how="gt")
            elif rounds == 1:
                more = self.do("compare", at, end, type=I1, how="lt")
            else:
                at = self.do("add", at, self.typed(step, I64), type=I64)
                self.variables[counter] = at
                more = self.do("compare", at, end, type=I1, how="lt")
            edges = Edge(yes), Edge(no)
            self._end(End(edges, test=more))
            return [edges[0]]

        def begin() -> None:
            if backwards:
                self.variables[counter] = self.do("sub", self.variables[counter], self.typed(1, I64), type=I64)
            self.variables[name] = self.variables[counter]

        self._loop(node, node.body, test, begin, more=(counter,))
        self.variables.pop(counter, None)
        if hidden is MISSING:
            self.variables.pop(name, None)

    def _loop(
        self,
        node: ast.For | ast.While,
        body: list[ast.stmt],
        test: Callable[[Block, Block], list[Edge]],
        begin: Callable[[], None],
        more: tuple[str, ...] = (),
    ) -> None:
        """A loop: `test` ends a block with jumps to the next round, which it gives back, or out."""
        inside, exits = self._new_block("round"), list[tuple[Edge, Variables]]()
        changed = [name for name in (*_stored_names(body, self.variables), *more) if name in self.variables]
        before = {name: self._as_values(self.variables[name]) for name in changed}
        self.variables = {**self.variables, **before}
        carried = {name: _mapped(lambda value: self.value(value.type), each) for name, each in before.items()}
        inside.parameters = [value for each in carried.values() for value in _leaves(each)]
        entered = self._tested(test, inside, exits)
        for edge in entered:
            edge.arguments = [value for name in changed for value in _leaves(before[name])]
        unchanged = {name: each for name, each in self.variables.items() if name not in changed}
        frozen = {name: _marks(each) for name, each in unchanged.items() if isinstance(each, list)}
        self.variables = {**_copied(unchanged), **_copied(carried)}
        self._begin(inside)
        self.loops.append(_Loop([], []))
        begin()
        self._statements(body)
        loop = self.loops.pop()
        ends = [*loop.continues, *([(self._jump(_NOWHERE), self.variables)] if self.block is not None else [])]
        if ends:
            self._meet("latch", ends)
            for name, marks in frozen.items():
                if _marks(self.variables.get(name)) != marks:
                    self._refuse(node, f"changes the list {name} through another name")
            for edge in self._tested(test, inside, exits):
                edge.arguments = [
                    self._carried(value, parameter.type)
                    for name in changed
                    for value, parameter in zip(_leaves(self.variables[name]), _leaves(carried[name]), strict=True)
                ]
        self._meet("next", [*exits, *loop.breaks])

    def _tested(
        self, test: Callable[[Block, Block], list[Edge]], inside: Block, exits: list[tuple[Edge, Variables]]
    ) -> list[Edge]:
        """Run a loop's test; jumps out of the loop are noted."""
        out, known = self._new_block("out"), len(self.function.blocks)
        last = self.block
        entered = test(inside, out)
        tested = [last, *self.function.blocks[known:]]
        for block in tested:
            if block is not None and block.end is not None:
                exits += [(edge, self.variables) for edge in block.end.edges if edge.block is out]
        return entered

    def _carried(self, value: Any, type: Number | Pointer) -> Value:
        """A value for the next round."""
        if not isinstance(value, Value):
            return self.typed(value, type)
        same = value.type == type or (isinstance(value.type, Pointer) and isinstance(type, Pointer))
        assert same, f"{self.function.name}: a loop changes a variable from {type} to {value.type}"
        return value

    def _as_values(self, variable: Any) -> Any:
        return _mapped(lambda each: each if isinstance(each, Value) else self.typed(each, None), variable)

    def _meet(self, name: str, ends: list[tuple[Edge, Variables]]) -> None:
        """Go on where paths meet; what differs between their variables becomes parameters."""
        if not ends:
            return
        if len(ends) == 1 and (origin := ends[0][0].origin) is not None:
            origin.end, self.block, self.variables = None, origin, ends[0][1]
            return
        block = self._new_block(name)
        for edge, _ in ends:
            edge.block = block
        all_variables = [variables for _, variables in ends]
        merged: Variables = {}
        for variable in all_variables[0]:
            others = [variables.get(variable, MISSING) for variables in all_variables]
            found = self._merged(block, ends, others)
            if found is not MISSING:
                merged[variable] = found
        self.variables = merged
        self._begin(block)

    def _merged(self, block: Block, ends: list[tuple[Edge, Any]], each: list[Any]) -> Any:
        first = each[0]
        if all(other is first for other in each):
            return first
        if any(other is MISSING for other in each):
            return MISSING
        if all(isinstance(other, (list, tuple)) for other in each):
            if len({len(other) for other in each}) > 1:
                return MISSING
            return type(first)(self._merged(block, ends, list(entries)) for entries in zip(*each, strict=True))
        if not any(isinstance(other, Value) for other in each):
            if all(_are_same(other, first) for other in each):
                return first
            if not all(isinstance(other, (int, bool)) for other in each):
                return MISSING
        kind = next((other.type for other in each if isinstance(other, Value)), None)
        if kind is None:
            kind = I1 if isinstance(first, bool) else I64
        if any(isinstance(other, Value) and other.type != kind for other in each):
            if not all(isinstance(other, Value) and isinstance(other.type, Pointer) for other in each):
                return MISSING
            kind = ADDRESS
        parameter = self.value(kind)
        block.parameters.append(parameter)
        for (edge, _), other in zip(ends, each, strict=True):
            same = isinstance(other, Value) and isinstance(other.type, Pointer)
            edge.arguments.append(other if same else self.typed(other, kind))
        return parameter

    # Tests.

    def _known_test(self, node: ast.expr) -> bool | None:
        """What a test is where that is known without any operation."""
        before = self.variables, self.loops, list(self.calls), self.block
        silent, self._silent = self._silent, True
        try:
            found = self.evaluate(node)
        except _Unknown:
            return None
        finally:
            self._silent = silent
            self.variables, self.loops, self.calls, self.block = before
        return None if isinstance(found, Value) else bool(found)

    def _condition(self, node: ast.expr, entered: list[Edge], left: list[Edge], yes: Block, no: Block) -> None:
        """Jump to one block or the other; `and` and `or` look no further than they need. Jumps are noted."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._condition(operand, left, entered, no, yes)
            case ast.BoolOp(op=op, values=[first, *others]) if others:
                conjunction = isinstance(op, ast.And)
                rest: ast.expr = others[0] if len(others) == 1 else ast.BoolOp(op, others)
                known = self._known_test(first)
                if known is not None:
                    if known is not conjunction:
                        (entered if known else left).append(self._jump(yes if known else no))
                    else:
                        self._condition(rest, entered, left, yes, no)
                    return
                between, on = self._new_block("and" if conjunction else "or"), list[Edge]()
                if conjunction:
                    self._condition(first, on, left, between, no)
                else:
                    self._condition(first, entered, on, yes, between)
                if on:
                    self._begin(between)
                    self._condition(rest, entered, left, yes, no)
            case _:
                known = self._known_test(node)
                if known is not None:
                    (entered if known else left).append(self._jump(yes if known else no))
                    return
                edges = Edge(yes), Edge(no)
                entered.append(edges[0])
                left.append(edges[1])
                self._end(End(edges, test=self.typed(self.evaluate(node), I1)))

    # Expressions.

    def evaluate(self, node: ast.expr) -> Any:
        """A value, or what is known."""
        method = _method(node)
        if method is None:
            self._refuse(node, "no such expression here")
        return method(self, node)

    def _of_constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, name: str) -> Any:
        if name in self.variables:
            return self.variables[name]
        return self.calls[-1].source.meaning(name)

    def _of_name(self, node: ast.Name) -> Any:
        found = self._name(node.id)
        if found is MISSING:
            self._refuse(node, "has no value on every way here")
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

    def _of_listcomp(self, node: ast.ListComp | ast.GeneratorExp) -> list[Any]:
        found: list[Any] = []
        hidden = dict(self.variables)
        self._generated(node.generators, lambda: found.append(self.evaluate(node.elt)))
        self.variables = hidden
        return found

    _of_generatorexp = _of_listcomp

    def _of_dictcomp(self, node: ast.DictComp) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        hidden = dict(self.variables)
        self._generated(node.generators, lambda: found.update({self._known(node.key): self.evaluate(node.value)}))
        self.variables = hidden
        return found

    def _generated(self, generators: list[ast.comprehension], then: Callable[[], None]) -> None:
        if not generators:
            then()
            return
        first, *others = generators
        for item in list(self.evaluate(first.iter)):
            self._store(first.target, item)
            if all(self._known(test) for test in first.ifs):
                self._generated(others, then)

    def _known(self, node: ast.expr) -> Any:
        found = self.evaluate(node)
        if isinstance(found, Value):
            self._refuse(node, "is not known when the function is printed")
        return found

    def _of_binop(self, node: ast.BinOp) -> Any:
        return self.binary(node.op, self.evaluate(node.left), self.evaluate(node.right), node)

    def binary(self, op: ast.operator, left: Any, right: Any, node: ast.AST | None = None) -> Any:
        """A sum, a product or the like; `node`: where it is written."""
        node = node or op
        code, known = _BINARY[type(op)]
        if isinstance(folded := self._folded(code, known, left, right), Value):
            return folded
        if not isinstance(left, Value) and not isinstance(right, Value):
            return known(left, right)
        of = left if isinstance(left, Value) else right
        if isinstance(of.type, Pointer):
            if code in ("add", "sub") and of is left:
                return self.moved(of, right if code == "add" else self._negative(right))
            if code not in _BITWISE and not (isinstance(left, Value) and isinstance(right, Value)):
                self._refuse(node, "addresses have no such operation")
            left, right = (self.word(each) for each in (left, right))
            return self.do(code, left, right, type=I64)
        if isinstance(left, Value) and isinstance(right, Value) and left.type != right.type:
            if not isinstance(right.type, Pointer):
                self._refuse(node, f"of {left.type} and {right.type}")
            right = self.word(right)
        kind = of.type
        assert isinstance(kind, Number)
        if not kind.real and not isinstance(right, Value) and right == _NEUTRAL.get(code):
            return left
        return self.do(code, self.typed(left, kind), self.typed(right, kind), type=kind)

    def _folded(self, code: str, known: Callable[[Any, Any], Any], left: Any, right: Any) -> Value | None:
        """The result of an operation on words of which enough is constant."""
        pair = [each.constant if isinstance(each, Value) and each.type == I64 else None for each in (left, right)]
        if pair == [None, None]:
            return None
        a, b = (one if one is not None else each for one, each in zip(pair, (left, right), strict=True))
        if isinstance(a, int) and isinstance(b, int):
            return self.typed(known(a, b), I64)
        return self.typed(0, I64) if code == "mul" and 0 in pair else None

    def _negative(self, value: Any) -> Any:
        return self.do("sub", self.typed(0, I64), value, type=I64) if isinstance(value, Value) else -value

    def _of_unaryop(self, node: ast.UnaryOp) -> Any:
        value = self.evaluate(node.operand)
        if not isinstance(value, Value):
            known: Mapping[type, Callable[[Any], Any]] = {
                ast.USub: operator.neg,
                ast.UAdd: operator.pos,
                ast.Invert: operator.invert,
                ast.Not: operator.not_,
            }
            return known[type(node.op)](value)
        if isinstance(node.op, ast.USub):
            assert isinstance(value.type, Number)
            return self.do("neg", value, type=value.type) if value.type.real else self._negative(value)
        assert isinstance(value.type, Number) and isinstance(node.op, (ast.Not, ast.Invert))
        ones = True if value.type.scalar == "i1" else -1
        return self.do("xor", value, self.typed(ones, value.type), type=value.type)

    def _of_boolop(self, node: ast.BoolOp) -> Any:
        """As a value, short of the jumps that `if` and `while` make: what follows must be safe to compute."""
        conjunction, total, value = isinstance(node.op, ast.And), None, None
        for each in node.values:
            value = self.evaluate(each)
            if not isinstance(value, Value):
                if bool(value) is not conjunction:
                    return value
            else:
                total = value if total is None else self.do("and" if conjunction else "or", total, value, type=I1)
        return value if total is None else total

    def _joined(self, conjunction: bool, found: list[Any]) -> Any:
        """Whether all tests hold, or one of them."""
        values = [each for each in found if isinstance(each, Value)]
        if any(bool(each) is not conjunction for each in found if not isinstance(each, Value)):
            return not conjunction
        if not values:
            return conjunction
        total = values[0]
        for each in values[1:]:
            total = self.do("and" if conjunction else "or", total, each, type=I1)
        return total

    def _of_compare(self, node: ast.Compare) -> Any:
        left, total = self.evaluate(node.left), None
        for op, each in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(each)
            one = self.compared(op, left, right)
            if total is None or one is False:
                total = one
            elif total is not False:
                total = one if total is True else total if one is True else self.do("and", total, one, type=I1)
            left = right
        return total

    def compared(self, op: ast.cmpop, left: Any, right: Any) -> Any:
        """Whether a comparison holds."""
        if not isinstance(left, Value) and not isinstance(right, Value):
            if isinstance(op, (ast.Is, ast.IsNot)):
                return (left is right) is isinstance(op, ast.Is)
            if isinstance(op, (ast.In, ast.NotIn)):
                return (left in right) is isinstance(op, ast.In)
            return _COMPARED[type(op)][1](left, right)
        if isinstance(op, (ast.Is, ast.IsNot)):  # a value is never None
            return isinstance(op, ast.IsNot)
        if isinstance(op, (ast.In, ast.NotIn)):
            outside = isinstance(op, ast.NotIn)
            one: ast.cmpop = ast.NotEq() if outside else ast.Eq()
            return self._joined(outside, [self.compared(one, left, each) for each in right])
        kind = left.type if isinstance(left, Value) else right.type
        if isinstance(kind, Pointer) or (isinstance(right, Value) and isinstance(right.type, Pointer)):
            kind = ADDRESS
        width = kind.width if isinstance(kind, Number) else 1
        how, _ = _COMPARED[type(op)]
        return self.do("compare", self.typed(left, kind), self.typed(right, kind), type=Number("i1", width), how=how)

    def _of_ifexp(self, node: ast.IfExp) -> Any:
        test = self.evaluate(node.test)
        if not isinstance(test, Value):
            return self.evaluate(node.body if test else node.orelse)
        return self.select(test, self.evaluate(node.body), self.evaluate(node.orelse))

    def select(self, test: Value, a: Any, b: Any) -> Any:
        """One of two values, or of lists of them."""
        if isinstance(a, (list, tuple)):
            return type(a)(self.select(test, x, y) for x, y in zip(a, b, strict=True))
        kind = a.type if isinstance(a, Value) else b.type if isinstance(b, Value) else None
        if isinstance(b, Value) and isinstance(kind, Pointer) and b.type != kind:
            kind = ADDRESS
        a, b = self.typed(a, kind), self.typed(b, kind)
        return self.do("select", test, a, b, type=a.type)

    def _of_subscript(self, node: ast.Subscript) -> Any:
        if isinstance(node.value, ast.Name) and self._name(node.value.id) is Array:
            return type_named(node, self.calls[-1].source, self.types)
        of = self.evaluate(node.value)
        if isinstance(of, Value):
            at = self.moved(of, self.evaluate(node.slice))
            assert isinstance(at.type, Pointer)
            return at if isinstance(at.type.to, Struct) else self.load(at)
        if isinstance(node.slice, ast.Slice):
            bounds = [each and self._known(each) for each in (node.slice.lower, node.slice.upper, node.slice.step)]
            return of[slice(*bounds)]
        return of[self._known(node.slice)]

    def load(self, at: Value) -> Value:
        """What is at an address."""
        assert isinstance(at.type, Pointer) and isinstance(at.type.to, (Number, Pointer))
        to = at.type.to
        found: Value = self.do("load", at, type=to.value if isinstance(to, Number) else to)
        return found

    def moved(self, of: Value, k: Any) -> Value:
        """The k-th place from an address on."""
        assert isinstance(of, Value) and isinstance(of.type, Pointer), f"{self.function.name}: {of} has no entries"
        if (k.constant if isinstance(k, Value) else k) == 0:
            return of
        found: Value = self.do("move", of, self.typed(k, I64), type=of.type)
        return found

    def field(self, of: Value, name: str) -> Value:
        """Where a field of a structure is."""
        assert isinstance(of.type, Pointer) and isinstance(of.type.to, Struct), f"{self.function.name}: {name} of {of}"
        offset, kind = of.type.to.fields[name]
        to = kind.to if isinstance(kind, Fixed) else kind
        return self.cast(self.moved(self.cast(of, ADDRESS), offset), Pointer(to))

    def cast(self, of: Value, kind: Pointer) -> Value:
        """The same address of something else."""
        if not isinstance(of.type, Pointer):
            found: Value = self.do("pointer", of, type=kind)
            return found
        return of if of.type == kind else Value(kind, of.name, of.constant)

    def _of_attribute(self, node: ast.Attribute) -> Any:
        of = self.evaluate(node.value)
        if not isinstance(of, Value):
            return getattr(of, node.attr)
        at = self.field(of, node.attr)
        assert isinstance(of.type, Pointer) and isinstance(of.type.to, Struct) and isinstance(at.type, Pointer)
        inner = isinstance(of.type.to.fields[node.attr][1], (Fixed, Struct))
        return at if inner else self.load(at)

    def typed(self, value: Any, kind: Number | Pointer | None) -> Value:
        """A value of a type, from one or from a known number; None: of its own."""
        if isinstance(value, Value):
            if kind is None or value.type is kind or value.type == kind:
                return value
            if isinstance(kind, Pointer):
                return self.cast(value, kind)
            if isinstance(value.type, Pointer) and kind == I64:
                return self.word(value)
            raise TypeError(f"{self.function.name}: got {value.type}; wanted {kind}")
        if kind is None:
            if not isinstance(value, int):
                raise TypeError(f"{self.function.name}: {value!r} has no type of its own here")
            kind = I1 if isinstance(value, bool) else I64
        if not isinstance(value, (bool, int, float)):
            raise TypeError(f"{self.function.name}: got {value!r}; wanted {kind}")
        return Value(kind, constant=value)

    def word(self, value: Any) -> Value:
        """An address as a number."""
        if isinstance(value, Value) and isinstance(value.type, Pointer):
            found: Value = self.do("word", value, type=I64)
            return found
        return self.typed(value, I64)

    # Calls.

    def _of_call(self, node: ast.Call) -> Any:
        function = self.evaluate(node.func)
        name = PRIMITIVES.get(function) if isinstance(function, FunctionType) else None
        if name is not None:
            options = {each.arg: self._known(each.value) for each in node.keywords if each.arg is not None}
            return self.primitives[name](self, *self._arguments(node.args), **options)
        if function in (all, any) and isinstance(node.args[0], ast.GeneratorExp):
            return self._quantified(node.args[0], function is all)
        positional = list(self._entries(node.args))
        named = {each.arg: self.evaluate(each.value) for each in node.keywords if each.arg is not None}
        if isinstance(function, Operator):
            return function.read(self, *positional, **named)
        if isinstance(function, Routine):
            return self._call_routine(function, positional, named)
        values = any(isinstance(each, Value) for each in positional)
        if function in (min, max) and values:
            return self._extreme(function, positional)
        if isinstance(function, FunctionType) and function not in KNOWN:
            return self._inlined(function, positional, named)
        if function in (int, bool) and values:
            return self._as_integer(positional[0], I64 if function is int else I1)
        if values:
            self._refuse(node, "cannot be called with values")
        return function(*positional, **named)

    def _arguments(self, nodes: Iterable[ast.expr]) -> Iterator[Any]:
        for each in nodes:
            if isinstance(each, ast.Starred):
                yield from self.evaluate(each.value)
            else:
                yield self._argument(each)

    def _argument(self, node: ast.expr) -> Any:
        """An argument of a primitive, which may be a type."""
        if isinstance(node, ast.Name) and (node.id in self.types or node.id in OWN):
            return type_named(node, self.calls[-1].source, self.types)
        found = self.evaluate(node)
        return struct_of(found) if isinstance(found, type) else found

    def _quantified(self, node: ast.GeneratorExp, conjunction: bool) -> Any:
        """Whether a test holds in all rounds of a loop, or in one: there are no more rounds than it takes to know."""
        (loop,) = node.generators
        around = loop.iter
        bounds: list[Any] = []
        if isinstance(around, ast.Call) and _called(around) == "range":
            bounds = [self.evaluate(each) for each in around.args]
            around = ast.Call(around.func, [ast.Constant(each) for each in bounds], [])
        if not any(isinstance(each, Value) for each in bounds):
            return self._joined(conjunction, self._of_listcomp(node))
        test = ast.UnaryOp(ast.Not(), node.elt) if conjunction else node.elt
        decided, otherwise = (ast.Return(ast.Constant(each)) for each in (not conjunction, conjunction))
        body = (ast.For(loop.target, around, [ast.If(test, [decided], [])], []), otherwise)
        return self._part(self.calls[-1].source, body, dict(self.variables))

    def _extreme(self, function: Callable[..., Any], values: list[Any]) -> Any:
        code = "smin" if function is min else "smax"
        total, *others = (self.typed(each, I64) for each in values)
        for each in others:
            total = self.do("intrinsic", total, each, type=I64, name=f"{code}.i64")
        return total

    def _as_integer(self, value: Value, kind: Number) -> Value:
        if value.type == kind:
            return value
        if isinstance(value.type, Pointer) and kind == I64:
            return self.word(value)
        found: Value
        if kind == I1:
            found = self.do("compare", value, self.typed(0, value.type), type=I1, how="ne")
        else:
            assert isinstance(value.type, Number)
            found = self.do("convert", value, type=kind)
        return found

    @staticmethod
    def _bound(source: Source, positional: list[Any], named: Mapping[str, Any]) -> Variables:
        names = [name for name, _ in source.parameters]
        found = {**source.defaults, **dict(zip(names, positional, strict=False)), **named}
        return {name: _copied(found[name]) for name in names}

    def _call_routine(self, routine: Routine[..., Any], positional: list[Any], named: Mapping[str, Any]) -> Any:
        source = source_of(routine.function)
        given = self._bound(source, positional, named)
        known = {
            name: given[name] for name, annotation in source.parameters if is_static(annotation) or given[name] is None
        }
        function, _ = self.callees.function(routine, known)
        own = [each for name, each in given.items() if name not in known]
        arguments = [self.typed(each, parameter.type) for each, parameter in zip(own, function.parameters, strict=True)]
        return self.do("call", *arguments, type=function.result, function=function)

    def _inlined(self, function: FunctionType, positional: list[Any], named: Mapping[str, Any]) -> Any:
        source = source_of(function)
        given = self._bound(source, positional, named)
        for name, annotation in source.parameters:
            if not is_static(annotation) and annotation is not None:
                kind = value_type(annotation, source, self.types)
                if given[name] is not None and not isinstance(given[name], (list, tuple)):
                    given[name] = self.typed(given[name], kind)
        return self._part(source, source.body, given)

    def _part(self, source: Source, statements: Sequence[ast.stmt], variables: Variables) -> Any:
        """What statements return, in the middle of a function."""
        outer, loops = self.variables, self.loops
        self.variables, self.loops = variables, []
        results: list[tuple[Edge, Any]] = []
        self.calls.append(_Call(source, results))
        *body, last = statements
        result = None
        if _returns_last(tuple(statements)):
            assert isinstance(last, ast.Return)
            self._statements(body)
            result = None if last.value is None else self.evaluate(last.value)
        else:
            self._statements(statements)
            if self.block is not None:
                results.append((self._jump(_NOWHERE), None))
            block = self._new_block("returned")
            for edge, _ in results:
                edge.block = block
            result = self._merged(block, results, [each for _, each in results])
            self._begin(block)
        self.calls.pop()
        self.variables, self.loops = outer, loops
        return result


_NOWHERE = Block("nowhere")


def _called(node: ast.expr | None) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def loaded_type(at: Value) -> Number | Pointer:
    """The type of a value that is stored at an address."""
    assert isinstance(at.type, Pointer)
    to = at.type.to
    assert isinstance(to, (Number, Pointer)), f"nothing is stored as {to}"
    return to.value if isinstance(to, Number) else to


def _leaves(variable: Any) -> Iterator[Any]:
    if isinstance(variable, (list, tuple)):
        for each in variable:
            yield from _leaves(each)
    else:
        yield variable


def _mapped(change: Callable[[Any], Any], variable: Any) -> Any:
    if isinstance(variable, (list, tuple)):
        return type(variable)(_mapped(change, each) for each in variable)
    return change(variable)


def _copied(variable: Any) -> Any:
    """The same with lists of its own, so that what one path changes the other does not see."""
    if isinstance(variable, dict):
        return {name: _copied(each) for name, each in variable.items()}
    return [_copied(each) for each in variable] if isinstance(variable, list) else variable


def _are_same(a: Any, b: Any) -> bool:
    """Whether two known values are one; 0.0 and -0.0 are not."""
    return type(a) is type(b) and a == b and (not isinstance(a, float) or repr(a) == repr(b))


def _marks(variable: Any) -> list[int]:
    return [id(each) for each in _leaves(variable)]


def _stored_names(body: list[ast.stmt], variables: Variables) -> list[str]:
    """Names that statements change: variables, and lists of which an entry is set."""
    stored, entered = _stores(tuple(body))
    return [*stored, *(name for name in entered if name not in stored and isinstance(variables.get(name), list))]


@cache
def _stores(body: tuple[ast.stmt, ...]) -> tuple[dict[str, None], dict[str, None]]:
    """Names that statements set, and those of which they set an entry."""
    stored, entered = dict[str, None](), dict[str, None]()
    for part in body:
        for each in ast.walk(part):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                stored[each.id] = None
            elif isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Store):
                inner: ast.expr = each
                while isinstance(inner, ast.Subscript):
                    inner = inner.value
                if isinstance(inner, ast.Name):
                    entered[inner.id] = None
    return stored, entered


@cache
def _returns_last(statements: tuple[ast.stmt, ...]) -> bool:
    """Whether the only `return` is the last statement."""
    *body, last = statements
    return isinstance(last, ast.Return) and not any(
        isinstance(each, ast.Return) for part in body for each in ast.walk(part)
    )


_METHODS: dict[type, Callable[[Reader, Any], Any] | None] = {}


def _method(node: ast.AST) -> Callable[[Reader, Any], Any] | None:
    """What reads a statement or an expression."""
    kind = node.__class__
    if kind not in _METHODS:
        before = "_of_" if issubclass(kind, ast.expr) else "_"
        _METHODS[kind] = getattr(Reader, before + kind.__name__.lower(), None)
    return _METHODS[kind]
