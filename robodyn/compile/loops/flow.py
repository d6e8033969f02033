"""Translates statements into blocks in static single assignment (SSA) form.

Variables are put into SSA form directly (Braun et al. 2013, "Simple and Efficient Construction of Static Single
Assignment Form", for structured programs). Where paths meet, each variable that differs becomes a parameter of the
block. Values may be stored in lists. Each entry of a list is then a variable, like a register: `sums[r][c] = ...`.

Loops test before their first round and at the end of each round.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from robodyn.compile.loops.blocks import (
    ADDRESS,
    I1,
    I64,
    Block,
    Edge,
    End,
    Function,
    Number,
    Operation,
    Pointer,
    Value,
)
from robodyn.compile.loops.live import changed_names, set_names
from robodyn.compile.loops.source import MISSING, Source
from robodyn.compile.loops.walk import Variables, Walk, copied, rebuilt

if TYPE_CHECKING:
    from robodyn.compile.loops.llvm import Module

Paths: TypeAlias = list[tuple[Edge, Any]]
"""Jumps whose arguments are not set yet, each with the variables, or the function's result, at the jump."""


class Flow(Walk):
    """Makes the blocks of a function.

    Args:
        function: the function to fill.
        module: has the types of type names, and the functions that are called.
    """

    module: Module
    typed: Callable[[Any, Any], Value]

    def __init__(self, function: Function, module: Module) -> None:
        super().__init__(module, function.name)
        self.function = function
        self.loops: list[tuple[Paths, Paths]] = []
        """For each enclosing loop: the jumps out of it, and the jumps to its next round."""
        self.results: Paths | None = None
        """Jumps that return from the inlined function being read; None outside of inlined functions."""
        self.count = 0
        self._once: dict[object, Value] = {}
        self.block = self._new_block("entry")
        function.blocks.append(self.block)

    # Blocks.

    def _new_block(self, name: str) -> Block:
        self.count += 1
        return Block(f"{name}{self.count}")

    def _begin(self, block: Block) -> None:
        self.function.blocks.append(block)
        self.block, self.ended = block, ""

    def _end(self, end: End) -> None:
        self.block.end, self.ended = end, "left"

    def _jump(self, block: Block | None = None) -> Edge:
        edge = Edge(block or _NOWHERE, origin=self.block)
        self._end(End((edge,)))
        return edge

    def _onward(self) -> Paths:
        """A jump from the current position, unless the statements have already left it."""
        return [] if self.ended else [(self._jump(), self.variables)]

    def value(self, type: Number | Pointer) -> Value:
        """A new value."""
        self.count += 1
        return Value(type, f"v{self.count}")

    def numbers(self) -> Iterator[int]:
        """Numbers for new names in "lines"."""
        while True:
            self.count += 1
            yield self.count

    def do(self, code: str, *operands: Value, **facts: Any) -> None:
        """Add an operation without a result."""
        self.block.operations.append(Operation(code, operands, None, facts))

    def make(self, type: Number | Pointer, code: str, *operands: Value, **facts: Any) -> Value:
        """Add an operation and return its result."""
        self.count += 1
        result = Value(type, f"v{self.count}")
        self.block.operations.append(Operation(code, operands, result, facts))
        return result

    def once(self, key: object, make: Callable[[], Value]) -> Value:
        """A value computed once from parameters at the function's beginning, without a jump. All requests share it."""
        if key not in self._once:
            block, self.block = self.block, self.function.blocks[0]
            self._once[key] = make()
            self.block = block
        return self._once[key]

    # Statements.

    def _bind(self, name: str, value: Any) -> None:
        self.variables[name] = copied(value) if value.__class__ is list else value

    def _bind_entry(self, of: list[Any], k: Any, value: Any, name: ast.expr) -> None:
        of[k] = copied(value)

    def _return(self, node: ast.Return) -> None:
        result = None if node.value is None else self.evaluate(node.value)
        if self.results is None:
            wanted = self.function.result
            self._end(End(result=None if wanted is None else self.typed(result, wanted)))
        else:
            self.results.append((self._jump(), result))

    def _break(self, node: ast.Break) -> None:
        self.loops[-1][0].append((self._jump(), self.variables))

    def _continue(self, node: ast.Continue) -> None:
        self.loops[-1][1].append((self._jump(), self.variables))

    def _if(self, node: ast.If) -> None:
        yes, no, to_yes, to_no = self._new_block("then"), self._new_block("else"), list[Edge](), list[Edge]()
        known = self._condition(node.test, yes, no, to_yes, to_no)
        if known is not None:
            self.statements(node.body if known else node.orelse)
            return
        before, ends = self.variables, list[tuple[Edge, Any]]()
        for block, entered, body in ((yes, to_yes, node.body), (no, to_no, node.orelse)):
            if entered:
                self.variables = copied(before)
                self._begin(block)
                self.statements(body)
                ends += self._onward()
        self._meet("next", ends)

    def _loop(self, node: ast.While) -> bool | None:
        """Translate a `while` loop and return None; if its test is known, return the test's value instead."""

        def test(*jumps: Any) -> bool | None:
            if not isinstance(node.test, ast.Constant):
                return self._condition(node.test, *jumps)
            self._jumps(True, *jumps)
            return None

        return self._rounds_of(node.body, test)

    def _round(self, body: Sequence[ast.stmt]) -> tuple[Paths, Paths]:
        """Translate a loop's body once. Returns the jumps out of the loop and those to its next round."""
        self.loops.append(([], []))
        self.statements(body)
        return self.loops.pop()

    def _repeated(self, node: ast.For, items: Iterable[Any]) -> None:
        targets = [name for name in set_names([node.target]) if name not in self.variables]
        breaks: Paths = []
        for item in list(items):
            if self.ended:
                break
            self.store(node.target, item)
            left, onward = self._round(node.body)
            breaks += left
            if onward:
                self._meet("round", [*onward, *self._onward()])
        if breaks:
            self._meet("next", [*breaks, *self._onward()])
        for name in targets:
            self.variables.pop(name, None)

    def _switch(self, node: ast.For, value: Value, numbers: Sequence[int]) -> None:
        blocks = [self._new_block("case") for _ in numbers]
        self._end(End(tuple(map(Edge, blocks)), test=value, cases=tuple(numbers)))
        before, ends = self.variables, list[tuple[Edge, Any]]()
        for case, block in zip(numbers, blocks, strict=True):
            self.variables = copied(before)
            self._begin(block)
            self.store(node.target, case)
            left, onward = self._round(node.body)
            ends += [*onward, *left, *self._onward()]
        self._meet("next", ends)

    def _counted(self, node: ast.For, bounds: tuple[Any, Any, Any], backwards: bool, how: Any) -> None:
        first, end, step = self.typed(bounds[0], I64), self.typed(bounds[1], I64), bounds[2]
        known_one = not isinstance(step, Value) and step == 1
        assert isinstance(node.target, ast.Name) and (known_one or not backwards)
        name, counter = node.target.id, f"{node.target.id} counted"
        hidden = self.variables.get(name, MISSING)
        self.variables[counter] = end if backwards else first
        rounds = 0

        def test(yes: Block, no: Block, entered: list[Edge], left: list[Edge]) -> None:
            nonlocal rounds
            rounds += 1
            at = self.variables[counter]
            if rounds > 1 and not backwards:
                at = self.variables[counter] = self.make(I64, "add", at, self.typed(step, I64))
            pair = (at, first) if backwards else (at, end)
            more = self.make(I1, "compare", *pair, how="gt" if backwards else "lt")
            self._branch(more, yes, no, entered, left)

        def begin() -> None:
            if backwards:
                self.variables[counter] = self.make(I64, "sub", self.variables[counter], self.typed(1, I64))
            self.variables[name] = self.variables[counter]

        self._rounds_of(node.body, test, begin, counter)
        self.variables.pop(counter, None)
        if hidden is MISSING:
            self.variables.pop(name, None)

    def _rounds_of(
        self,
        body: Sequence[ast.stmt],
        test: Callable[[Block, Block, list[Edge], list[Edge]], bool | None],
        begin: Callable[[], None] | None = None,
        counter: str = "",
    ) -> bool | None:
        """Translate a loop. `test` adds the jumps to the next round and out of the loop. If the test is known before
        the first round, it is returned and nothing is added."""
        inside, out, variables = self._new_block("round"), self._new_block("out"), self.variables
        entered, left = list[Edge](), list[Edge]()
        known = test(inside, out, entered, left)
        if known is not None:
            return known
        names = changed_names(tuple(body)).items()
        changed = [name for name, whole in names if whole or isinstance(variables.get(name), list)]
        changed = [name for name in (*changed, counter) if name in variables]
        before = {name: _mapped(self._as_value, variables[name]) for name in changed}
        carried = {name: _mapped(lambda value: self.value(value.type), each) for name, each in before.items()}
        inside.parameters = [value for each in carried.values() for value in _leaves(each)]
        for edge in entered:
            edge.arguments = [value for name in changed for value in _leaves(before[name])]
        exits: Paths = [(edge, {**variables, **before}) for edge in left]
        unchanged = {name: each for name, each in variables.items() if name not in carried}
        frozen = {name: _marks(each) for name, each in unchanged.items() if isinstance(each, list)}
        self.variables = {**copied(unchanged), **copied(carried)}
        self._begin(inside)
        if begin is not None:
            begin()
        breaks, continues = self._round(body)
        ends = [*continues, *self._onward()]
        if ends:
            self._meet("latch", ends)
            for name, marks in frozen.items():
                if _marks(self.variables.get(name)) != marks:
                    self.refuse(f"changes the list {name} through another name")
            again, left = list[Edge](), list[Edge]()
            known = test(inside, out, again, left)
            if known is not None:
                self._jumps(known, inside, out, again, left)
            exits += [(edge, self.variables) for edge in left]
            for edge in again:
                edge.arguments = [
                    self._carried(value, parameter.type)
                    for name in changed
                    for value, parameter in zip(_leaves(self.variables[name]), _leaves(carried[name]), strict=True)
                ]
        self._meet("next", [*exits, *breaks])
        return None

    def _carried(self, value: Any, type: Number | Pointer) -> Value:
        """A variable's value for the next round."""
        if not isinstance(value, Value):
            return self.typed(value, type)
        same = value.type == type or (isinstance(value.type, Pointer) and isinstance(type, Pointer))
        assert same, f"{self.name}: a loop changes a variable from {type} to {value.type}"
        return value

    def _as_value(self, variable: Any) -> Value:
        return variable if isinstance(variable, Value) else self.typed(variable, None)

    # Where paths meet.

    def _meet(self, name: str, ends: Paths) -> None:
        """Continue where paths meet. Variables that differ between the paths become parameters of the new block."""
        if not ends:
            return
        if len(ends) == 1 and (origin := ends[0][0].origin) is not None:
            origin.end, self.block, self.ended, self.variables = None, origin, "", ends[0][1]
            return
        block = self._new_block(name)
        for edge, _ in ends:
            edge.block = block
        first, *rest = (variables for _, variables in ends)
        merged: Variables = {}
        for variable, one in first.items():
            value = one
            others = [variables.get(variable, MISSING) for variables in rest]
            for other in others:
                if other is not one:
                    value = self._merged(block, ends, [one, *others])
                    break
            if value is not MISSING:
                merged[variable] = value
        self.variables = merged
        self._begin(block)

    def _merged(self, block: Block, ends: Paths, each: list[Any]) -> Any:
        first = each[0]
        if all(other is first for other in each):
            return first
        if any(other is MISSING for other in each):
            return MISSING
        if all(isinstance(other, (list, tuple)) for other in each):
            if len({len(other) for other in each}) > 1:
                return MISSING
            return rebuilt(first, (self._merged(block, ends, list(entries)) for entries in zip(*each, strict=True)))
        values = [other for other in each if isinstance(other, Value)]
        if not values:
            if all(_are_same(other, first) for other in each):
                return first
            if not all(isinstance(other, (int, bool)) for other in each):
                return MISSING
        kind = values[0].type if values else I1 if isinstance(first, bool) else I64
        if any(other.type != kind for other in values):
            if len(values) < len(each) or not all(isinstance(other.type, Pointer) for other in values):
                return MISSING
            kind = ADDRESS
        parameter = self.value(kind)
        block.parameters.append(parameter)
        for (edge, _), other in zip(ends, each, strict=True):
            same = isinstance(other, Value) and isinstance(other.type, Pointer)
            edge.arguments.append(other if same else self.typed(other, kind))
        return parameter

    def part(self, source: Source, body: Sequence[ast.stmt], variables: Variables, *, straight: bool) -> Any:
        """Inline statements and return their result. `straight`: True if the only `return` is the last statement."""
        outer = self.variables, self.loops, self.source, self.results
        results: Paths = []
        self.variables, self.loops, self.source, self.results = variables, [], source, results
        if straight:
            self.statements(body[:-1])
            value = body[-1].value  # type: ignore[attr-defined]
            result = None if value is None else self.evaluate(value)
        else:
            self.statements(body)
            if not self.ended:
                results.append((self._jump(), None))
            block = self._new_block("returned")
            for edge, _ in results:
                edge.block = block
            result = self._merged(block, results, [each for _, each in results])
            self._begin(block)
        self.variables, self.loops, self.source, self.results = outer
        return result

    # Tests.

    def _condition(self, node: ast.expr, yes: Block, no: Block, entered: list[Edge], left: list[Edge]) -> bool | None:
        """Add jumps to one block or the other and record them. If the test is known, add nothing and return its value.
        `and` and `or` evaluate only the operands they need."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            known = self._condition(node.operand, no, yes, left, entered)
            return None if known is None else not known
        if not isinstance(node, ast.BoolOp):
            value = self.evaluate(node)
            if not isinstance(value, Value):
                return bool(value)
            self._branch(value, yes, no, entered, left)
            return None
        conjunction, jumped = isinstance(node.op, ast.And), False
        for each in node.values:
            between, on = (yes, entered) if conjunction else (no, left)
            if each is not node.values[-1]:
                between, on = self._new_block("between"), []
            if conjunction:
                known = self._condition(each, between, no, on, left)
            else:
                known = self._condition(each, yes, between, entered, on)
            if known is None:
                jumped = True
                if not on or each is node.values[-1]:
                    return None
                self._begin(between)
            elif known is not conjunction:
                break
        if not jumped:
            return known
        self._jumps(known, yes, no, entered, left)
        return None

    def _branch(self, test: Value, yes: Block, no: Block, entered: list[Edge], left: list[Edge]) -> None:
        """Jump to one of two blocks, by a test."""
        edges = Edge(yes), Edge(no)
        entered.append(edges[0])
        left.append(edges[1])
        self._end(End(edges, test=self.typed(test, I1)))

    def _jumps(self, known: bool | None, yes: Block, no: Block, entered: list[Edge], left: list[Edge]) -> None:
        """Jump to one of two blocks, by a known test."""
        (entered if known else left).append(self._jump(yes if known else no))


_NOWHERE = Block("nowhere")


def _leaves(variable: Any) -> Iterator[Any]:
    if isinstance(variable, (list, tuple)):
        for each in variable:
            yield from _leaves(each)
    else:
        yield variable


def _mapped(change: Callable[[Any], Any], variable: Any) -> Any:
    if isinstance(variable, (list, tuple)):
        return rebuilt(variable, (_mapped(change, each) for each in variable))
    return change(variable)


def _are_same(a: Any, b: Any) -> bool:
    """Whether two known values are identical; 0.0 and -0.0 are not."""
    return type(a) is type(b) and a == b and (not isinstance(a, float) or repr(a) == repr(b))


def _marks(variable: Any) -> list[int]:
    return [id(each) for each in _leaves(variable)]
