"""Prints the operations of a lowered program as vector instructions in LLVM's language."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from robodyn.compile.llvm.sincos import sincos_lines
from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.vectors import Lines, VectorType
from robodyn.compile.lowering import Operation
from robodyn.compile.tracing.expression import CONSTANT, Node

_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul"}
_COMPARISONS = {"min": "olt", "max": "ogt"}
_CALLS = {"sqrt": "sqrt", "abs": "fabs"}


class StraightLine:
    """Prints instructions and keeps the names of computed values.

    Args:
        kind: the type of every value.
        nodes: the graph's nodes.
        out: receives the instructions.
        fetch: gives the name of a value that was not computed here: an input, or a result of another function.
    """

    def __init__(self, kind: VectorType, nodes: Sequence[Node], out: Lines, fetch: Callable[[int], str]) -> None:
        self.kind, self.nodes, self.out, self.fetch = kind, nodes, out, fetch
        self.values: dict[int, str] = {}

    def value(self, node: int | float) -> str:
        """The name of a node's value, or a constant for a number."""
        if not isinstance(node, int):
            return self.kind.splat(node)
        if node not in self.values:
            operation, constant, _ = self.nodes[node]
            if operation == CONSTANT:
                return self.kind.splat(constant)
            self.values[node] = self.fetch(node)
        return self.values[node]

    def compute(self, operation: Operation) -> None:
        """Print the instructions of one operation."""
        operands = [self.value(node) for node in operation.operands]
        self.values.update(zip(operation.results, self._results(operation.kind, operands), strict=True))

    def _results(self, kind: str, operands: list[str]) -> list[str]:
        out, T = self.out, self.kind.name
        if kind == "sincos":
            lines, sine, cosine = sincos_lines(operands[0], self.kind, out.fresh, fused=self.kind.fused)
            out.lines += lines
            return [sine, cosine]
        if kind in _BINARY:
            return [out.new(f"{_BINARY[kind]} {T} {operands[0]}, {operands[1]}")]
        if kind == "neg":
            return [out.new(f"fneg {T} {operands[0]}")]
        if kind == "reciprocal":
            return [out.new(f"fdiv {T} {self.kind.splat(1.0)}, {operands[0]}")]
        if kind in _CALLS:
            return [out.new(f"call {T} @llvm.{_CALLS[kind]}.{self.kind.suffix}({T} {operands[0]})")]
        if kind in _COMPARISONS:  # a NaN among the two is the result
            a, b = operands
            better = self._choice(f"fcmp {_COMPARISONS[kind]} {T} {a}, {b}", a, b)
            return [self._choice(f"fcmp uno {T} {a}, {a}", a, better)]
        x, y, z = operands
        if kind == "select":
            return [self._choice(f"fcmp ogt {T} {x}, {self.kind.splat(0.0)}", y, z)]
        if kind == "fnma":
            x = out.new(f"fneg {T} {x}")
        elif kind == "fms":
            z = out.new(f"fneg {T} {z}")
        return [out.new(f"call {T} @llvm.fmuladd.{self.kind.suffix}({T} {x}, {T} {y}, {T} {z})")]

    def _choice(self, comparison: str, yes: str, no: str) -> str:
        """`yes` where a comparison holds, else `no`."""
        T, width = self.kind.name, self.kind.width
        holds = self.out.new(comparison)
        return self.out.new(f"select {'i1' if width == 1 else f'<{width} x i1>'} {holds}, {T} {yes}, {T} {no}")


def attributes(target: Target, more: str = "") -> str:
    """The attributes of every function. Without them LLVM avoids the widest registers of some processors."""
    bits = 8 * target.vector_bytes
    widths = f'"min-legal-vector-width"="{bits}" "prefer-vector-width"="{bits}"'
    return f"attributes #0 = {{ nounwind {widths}{more and ' '}{more} }}\n"
