"""Prints a program as straight-line statements of C, also for languages derived from C.

The caller prints the code around the statements: functions, kernels, and how an entry of an array is accessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from robodyn.compile.lowering import Operation, frame_slots, last_readers, lower
from robodyn.compile.tracing.expression import CONSTANT, INPUT
from robodyn.compile.tracing.program import Port, Program
from robodyn.internals.errors import ArgumentError
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import C_PART_OPERATIONS

BEGINNING = -2
"""A node index for statements in `behind` that stand before all operations."""

_FORMS = {"add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "neg": "-{}"}
_CALLS = {"sqrt": "sqrt", "abs": "fabs"}
_COMPARISONS = {"min": "<", "max": ">"}
_FUSED = {"fma": "MULADD", "fms": "MULSUB", "fnma": "NMULADD"}


@dataclass(frozen=True)
class Dialect:
    """The spelling of scalars. `macros`: prefix of the macros MULADD (x y + z), MULSUB (x y - z) and NMULADD (z - x
    y)."""

    scalar: str = "double"
    macros: str = ""

    @property
    def suffix(self) -> str:
        """The suffix of numbers and function names in single precision."""
        return "f" if self.scalar == "float" else ""

    def number(self, value: float) -> str:
        """A literal that reads back as the same number, rounded to the dialect's precision.

        Raises:
            ArgumentError: the number is out of range.
        """
        with np.errstate(over="ignore"):
            rounded = np.float32(value) if self.suffix else np.float64(value)
        if not math.isfinite(rounded):
            raise ArgumentError(f"dtype: {value!r}, a constant of the model, does not fit {self.scalar}")
        return f"{rounded!s}{self.suffix}"

    def statements(self, operation: Operation, operands: Sequence[str], results: Sequence[str]) -> list[str]:
        """Statements that define the names `results`, in the order of the operation's results, from `operands`."""
        if operation.kind == "sincos":
            calls = zip(operation.results, results, ("sin", "cos"), strict=True)
            return [self._define(name, f"{f}{self.suffix}({operands[0]})") for node, name, f in calls if node >= 0]
        return [self._define(results[0], self._value(operation.kind, operands))]

    def _value(self, kind: str, operands: Sequence[str]) -> str:
        if kind in _FORMS:
            return _FORMS[kind].format(*operands)
        if kind in _COMPARISONS:  # a NaN among the two is the result
            a, b = operands
            return f"{a} {_COMPARISONS[kind]} {b} || {a} != {a} ? {a} : {b}"
        if kind == "select":
            return f"{operands[0]} > {self.number(0.0)} ? {operands[1]} : {operands[2]}"
        if kind == "reciprocal":
            return f"{self.number(1.0)} / {operands[0]}"
        if kind in _CALLS:
            return f"{_CALLS[kind]}{self.suffix}({operands[0]})"
        return f"{self.macros}{_FUSED[kind]}({', '.join(operands)})"

    def _define(self, name: str, value: str) -> str:
        return f"const {self.scalar} {name} = {value};"


def entry(port: Port, k: int) -> str:
    """Scalar k of an input or output as an entry of a contiguous array of that name."""
    return f"{port.name}[{k}]"


class Body:
    """The statements of a program, cut into parts that pass values through an array `frame`.

    Args:
        program: the program.
        dialect: the spelling of scalars.
        place: gives the expression for a scalar of an input or output.
        size: number of operations in one part.
        behind: further statements by node; they follow the operation that computes the node. Those of `BEGINNING` come
            first.
    """

    def __init__(
        self,
        program: Program,
        dialect: Dialect,
        place: Callable[[Port, int], str] = entry,
        size: int = C_PART_OPERATIONS,
        behind: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        self.program, self.dialect = program, dialect
        self._behind = {} if behind is None else behind
        operations = lower(program)
        self._parts = [operations[start : start + size] for start in range(0, max(1, len(operations)), size)]
        self._slots, self.frame_size = frame_slots(self._parts, last_readers(self._parts))
        self._inputs = {node: place(port, k) for port in program.inputs for k, node in enumerate(port.scalars)}
        self._stores: dict[int, list[str]] = {}
        """Expressions of the output entries to which each node is stored."""
        self._first: list[str] = []
        """Statements for outputs that need no operation."""
        for port in program.outputs:
            for k, scalar in enumerate(port.scalars):
                if isinstance(scalar, int) and program.nodes[scalar][0] > INPUT:
                    self._stores.setdefault(scalar, []).append(place(port, k))
                elif scalar == scalar:  # not UNREAD, which is NaN
                    value = self._name(scalar) if isinstance(scalar, int) else dialect.number(scalar)
                    self._first.append(f"{place(port, k)} = {value};")

    def parts(self) -> list[list[str]]:
        """Statements, part by part. Several parts share `frame`, an array of `frame_size` scalars."""
        return [self._part(operations, first=not k) for k, operations in enumerate(self._parts)]

    def _part(self, operations: Sequence[Operation], *, first: bool) -> list[str]:
        lines = [*self._first, *self._behind.get(BEGINNING, ())] if first else []
        defined: set[int] = set()
        for operation in operations:
            for node in operation.operands:
                if node not in defined and self.program.nodes[node][0] > INPUT:
                    defined.add(node)
                    lines.append(f"const {self.dialect.scalar} {self._name(node)} = frame[{self._slots[node]}];")
            operands = [self._name(node) for node in operation.operands]
            lines += self.dialect.statements(operation, operands, [self._name(node) for node in operation.results])
            for node in operation.results:
                defined.add(node)
                lines += [f"{place} = {self._name(node)};" for place in self._stores.get(node, ())]
                if node in self._slots:
                    lines.append(f"frame[{self._slots[node]}] = {self._name(node)};")
            for node in operation.results:
                lines += self._behind.get(node, ())
        return lines

    def _name(self, node: int) -> str:
        if node < 0:
            return ""
        operation, value, _ = self.program.nodes[node]
        if operation == CONSTANT:
            return self.dialect.number(value)
        return self._inputs[node] if operation == INPUT else f"t{node}"
