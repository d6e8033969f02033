"""Formulas of pairs of shapes in loops: traced, and printed in place or as functions that all queries share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from robodyn.algorithms.distances import solids
from robodyn.algorithms.distances.solids import BRICK, CAN, FLAT, ROD, SIZES
from robodyn.compile.llvm.straight_line import StraightLine, attributes
from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.vectors import Lines, VectorType, declarations
from robodyn.compile.loops.blocks import Number, Value
from robodyn.compile.loops.language import Array, Loose, Operator, Routine, Static, Vector, known, routine
from robodyn.compile.loops.llvm import Module, printed_module
from robodyn.compile.loops.reader import Reader
from robodyn.compile.lowering import lower
from robodyn.compile.tracing.expression import CONSTANT, INPUT, Graph
from robodyn.compile.tracing.program import Program
from robodyn.engines.cpu.distances.tables import FORMS
from robodyn.engines.cpu.loops.runtime import types_of
from robodyn.internals.records import dataclass


class Traced(Operator):
    """A function of scalars that is traced and printed in place.

    Args:
        kind: the type of every scalar.
        text: the function, of a sequence of scalars.
        count: number of arguments.
    """

    def __init__(self, kind: VectorType, text: Callable[[Sequence[Any]], Sequence[Any]], count: int) -> None:
        graph = Graph()
        inputs = graph.inputs(count)
        results = tuple(text(inputs))
        self._kind, self._text = kind, text
        self.program = Program.of(
            "formula", graph, {"in": ((count,), inputs)}, {"out": ((len(results),), list(results))}
        )

    def read(self, reader: Reader, *arguments: Any, **named: Any) -> list[Value]:
        """Emit the operations."""
        program, out, of = self.program, Lines(reader.numbers()), Number(self._kind.scalar, self._kind.width)
        # Names in text stay as they are, while others may be replaced where paths meet.
        names = [reader.make(of, "same", each).name for each in arguments]

        def fetch(node: int) -> str:
            operation, number, _ = program.nodes[node]
            assert operation == INPUT
            return f"%{names[number]}"

        code = StraightLine(self._kind, program.nodes, out, fetch)
        for each in lower(program, nested=True):
            code.compute(each)
        found = []
        for node in program.outputs[0].scalars:
            operation, number, _ = program.nodes[node] if isinstance(node, int) else (CONSTANT, node, 0)
            if operation == CONSTANT:
                found.append(Value(of, constant=number))
            else:
                found.append(Value(of, code.value(node).removeprefix("%")))
        if out.lines:
            reader.do("lines", lines=out.lines)
        return found

    def __call__(self, *arguments: Any, **named: Any) -> list[Any]:
        """Run the function as Python."""
        return list(self._text(arguments))


def numbers_at(at: Array[Loose], count: Static[int]) -> list[Vector]:
    """Consecutive vectors."""
    return [at[k] for k in range(count)]


def set_numbers(to: Array[Vector], values: Static[Sequence[Vector]]) -> None:
    """Store consecutive vectors."""
    for k, value in enumerate(values):
        to[k] = value


@dataclass(frozen=True)
class FormulaPair:
    """Two forms in the order of formulas, and whether the pair was in the other order."""

    one: int
    other: int
    swapped: bool

    @property
    def code(self) -> int:
        """The code of the pair in this order."""
        return len(FORMS) * self.one + self.other

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of the two shapes."""
        return SIZES[self.one], SIZES[self.other]

    @property
    def shared(self) -> bool:
        """True if its formulas are so long that queries share a function."""
        return {self.one, self.other} <= {ROD, BRICK}

    def distance(self, x: Sequence[Any]) -> Sequence[Any]:
        """The distance of shapes with the numbers x."""
        return solids.distance(self.one, self.other, x)

    def nearest(self, x: Sequence[Any]) -> Sequence[Any]:
        """Distance, witness points and normal."""
        return solids.nearest_numbers(self.one, self.other, x)


@known
def pair_of(code: int) -> FormulaPair:
    """The pair of a code. A can is a rod, except on a flat."""
    one, other = divmod(code, len(FORMS))
    if FLAT not in (one, other):
        one, other = (ROD if form == CAN else form for form in (one, other))
    swapped = one == FLAT or (other != FLAT and one > other)
    return FormulaPair(other, one, True) if swapped else FormulaPair(one, other, False)


@dataclass(frozen=True)
class FormulaModule:
    """The module of a formula. `name`: "distance" or "nearest"."""

    pair: FormulaPair
    name: str
    kind: VectorType
    target: Target

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of the two shapes."""
        return self.pair.sizes

    @property
    def traced(self) -> Traced:
        """The formula."""
        return Traced(self.kind, getattr(self.pair, self.name), sum(self.sizes))

    def text(self) -> str:
        """The text of the module."""
        return printed_with(("distance formula", self), self.kind, self.target, formula, self)


def printed_with(facts: object, kind: VectorType, target: Target, routine: Routine[..., None], module: object) -> str:
    """The text of a module with one public function, "kernel"."""

    def export(to: Module) -> None:
        for line in declarations(kind).splitlines():
            to.declare(line.removeprefix("declare "))
        to.export(routine, "kernel", module=module)

    return printed_module(facts, types_of(kind), export, attributes(target))


@routine
def formula(one: Array[Vector], other: Array[Vector], to: Array[Vector], module: Static[FormulaModule]) -> None:
    """A formula of two shapes, as a function that all queries share."""
    set_numbers(to, module.traced(*numbers_at(one, module.sizes[0]), *numbers_at(other, module.sizes[1])))
