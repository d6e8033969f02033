"""A program: the expression graph of one algorithm on one model, with named inputs and outputs."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from robodyn.compile.tracing.expression import (
    ABS,
    ADD,
    ARITHMETIC,
    CONSTANT,
    COS,
    INPUT,
    MAX,
    MIN,
    MUL,
    NEG,
    OPERATION_NAMES,
    RECIPROCAL,
    SELECT,
    SIN,
    SQRT,
    SUB,
    Expression,
    Graph,
    Node,
    Value,
    live_nodes,
    operands,
)
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass

_SYMBOLS = {ADD: "{} + {}", SUB: "{} - {}", MUL: "{} * {}", NEG: "-{}", RECIPROCAL: "1 / {}"}

_FUNCTIONS: dict[int, Callable[..., Any]] = {
    ADD: np.add,
    SUB: np.subtract,
    MUL: np.multiply,
    MIN: np.minimum,
    MAX: np.maximum,
    NEG: np.negative,
    RECIPROCAL: lambda x: 1.0 / x,
    SQRT: np.sqrt,
    SIN: np.sin,
    COS: np.cos,
    ABS: np.abs,
}


UNREAD = math.nan
"""Stands for an entry of an output that nobody reads. No program computes NaN as a constant."""
SHARED = "shared"
"""Name of the array that the first part of a split program passes to the second; see `Program.halves`."""


@dataclass(frozen=True)
class Port:
    """An input or output: its name, the shape of one state's array, and the node of each scalar in C order.

    An unused scalar of an input has node -1. A scalar of an output may be a number (float) instead of a node, or
    `UNREAD` if nobody reads it; generated code need not write it.
    """

    name: str
    shape: tuple[int, ...]
    scalars: tuple[int | float, ...]

    @property
    def size(self) -> int:
        """Number of scalars in one state's array."""
        return len(self.scalars)

    def without(self, entries: Sequence[bool]) -> Port:
        """This output with the entries marked True in `entries` unread."""
        scalars = tuple(UNREAD if left else each for each, left in zip(self.scalars, entries, strict=True))
        return Port(self.name, self.shape, scalars)


@dataclass(frozen=True)
class Program:
    """Straight-line code: its live nodes in an order of evaluation, with named inputs and outputs."""

    name: str
    nodes: Sequence[Node]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    live: tuple[int, ...] = field(repr=False)

    @staticmethod
    def of(
        name: str,
        graph: Graph,
        inputs: Mapping[str, tuple[tuple[int, ...], Sequence[Expression]]],
        outputs: Mapping[str, tuple[tuple[int, ...], Sequence[Value]]],
    ) -> Program:
        """The program that computes `outputs`, each (shape, scalars), from `inputs`, each (shape, expressions)."""
        results = tuple(
            Port(key, shape, tuple(_node_or_number(value) for value in scalars))
            for key, (shape, scalars) in outputs.items()
        )
        live = live_nodes(graph.nodes, _roots(results))
        wanted = set(live)
        arguments = tuple(
            Port(key, shape, tuple(each.index if each.index in wanted else -1 for each in scalars))
            for key, (shape, scalars) in inputs.items()
        )
        return Program(name, graph.nodes, arguments, results, tuple(live))

    def with_outputs(self, outputs: tuple[Port, ...]) -> Program:
        """A program of the same graph with other outputs and the nodes that these depend on."""
        roots = _roots(outputs)
        if roots == _roots(self.outputs):
            return Program(self.name, self.nodes, self.inputs, outputs, self.live)
        live = tuple(live_nodes(self.nodes, roots))
        wanted = set(live)
        inputs = tuple(
            Port(port.name, port.shape, tuple(node if node in wanted else -1 for node in port.scalars))
            for port in self.inputs
        )
        return Program(self.name, self.nodes, inputs, outputs, live)

    def halves(self, name: str) -> tuple[Program, Program]:
        """Split the program into two that run one after the other. The first does not depend on the input `name`.

        The output of the first program is `SHARED`: all intermediate values that the second reads, in the order in
        which it reads them. The inputs of the second program are `name` and `SHARED`. Its outputs are those of the
        whole program.
        """
        nodes = self.nodes
        depends = bytearray(len(nodes))
        for port in self.inputs:
            for node in port.scalars if port.name == name else ():
                if int(node) >= 0:
                    depends[int(node)] = 1
        read: list[int] = []
        for index in self.live:
            nodes_read = operands(nodes[index])
            if any(depends[each] for each in nodes_read):
                depends[index] = 1
                read += nodes_read
        roots = _roots(self.outputs)
        needed = (*read, *sorted(roots))
        shared = tuple(dict.fromkeys(each for each in needed if not depends[each] and nodes[each][0] != CONSTANT))
        rest = list(nodes)
        for place, node in enumerate(shared):
            rest[node] = INPUT, len(nodes) + place, -1
        between = Port(SHARED, (len(shared),), shared)
        ports = [port if port.name == name else replace(port, scalars=(-1,) * port.size) for port in self.inputs]
        live = tuple(live_nodes(rest, roots))
        return self.with_outputs((between,)), Program(self.name, rest, (*ports, between), self.outputs, live)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of live nodes of each operation."""
        counter = Counter(self.nodes[index][0] for index in self.live)
        return {OPERATION_NAMES[operation]: counter[operation] for operation in sorted(counter)}

    @cached_property
    def operations(self) -> int:
        """Floating-point operations for one state. An addition, product, reciprocal, square root, sine or cosine counts
        as one."""
        names = {OPERATION_NAMES[operation] for operation in ARITHMETIC}
        return sum(count for name, count in self.counts.items() if name in names)

    @cached_property
    def _numbers(self) -> dict[Node, int]:
        return {self.nodes[index]: index for index in self.live}

    def is_zero(self, scalar: int | float) -> bool:
        """Whether a scalar of a result is +0.0 in every state."""
        if isinstance(scalar, int):
            operation, value, _ = self.nodes[scalar]
            if operation != CONSTANT:
                return False
            scalar = value
        return scalar == 0.0 and math.copysign(1.0, scalar) > 0.0

    def node_of(self, operation: int, a: int, b: int = -1) -> int:
        """Index of the live node of this operation, or -1 if there is none."""
        return self._numbers.get((operation, a, b), -1)

    @cached_property
    def digest(self) -> str:
        """A hash of everything that the program computes. It is the same in every process."""
        state = hashlib.blake2b(digest_size=16)
        state.update(repr((self.name, self.inputs, self.outputs)).encode())
        state.update(repr([self.nodes[index] for index in self.live]).encode())
        return state.hexdigest()

    def evaluate(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Run the program node by node with NumPy on arrays (..., *shape). Slow and simple: a reference for generated
        code."""
        value: dict[int, Any] = {}
        inputs = {port.name: arrays[port.name] for port in self.inputs if port.name in arrays}
        leading = {
            port.name: inputs[port.name].shape[: -len(port.shape) or None]
            for port in self.inputs
            if port.name in inputs
        }
        for port in self.inputs:
            if port.name in inputs:
                flat = inputs[port.name].reshape((*leading[port.name], port.size))
                value.update({int(node): flat[..., k] for k, node in enumerate(port.scalars) if node >= 0})
        for index in self.live:
            operation, a, _ = self.nodes[index]
            if operation == CONSTANT:
                value[index] = a
            elif operation != INPUT:
                value[index] = _evaluate(operation, *[value[each] for each in operands(self.nodes[index])])
        batch = np.broadcast_shapes(*leading.values())
        dtype = np.result_type(*inputs.values()) if inputs else np.dtype(np.float64)
        results = {}
        for port in self.outputs:
            columns = np.empty((*batch, port.size), dtype)
            for k, scalar in enumerate(port.scalars):
                columns[..., k] = value[scalar] if isinstance(scalar, int) else scalar
            results[port.name] = columns.reshape((*batch, *port.shape))
        return results

    def text(self) -> str:
        """The program as readable text, one operation a line."""
        names = {s: f"{p.name}[{k}]" for p in self.inputs for k, s in enumerate(p.scalars) if s != -1}
        lines = [f"# {self.name}: {self.operations} operations"]
        for index in self.live:
            operation, a, _ = self.nodes[index]
            if operation == CONSTANT:
                names[index] = repr(a)
            elif operation != INPUT:
                names[index] = f"t{index}"
                read = [names[each] for each in operands(self.nodes[index])]
                form = _SYMBOLS.get(operation)
                named = f"{OPERATION_NAMES[operation]}({', '.join(read)})"
                lines.append(f"t{index} = {named if form is None else form.format(*read)}")
        for port in self.outputs:
            for k, scalar in enumerate(port.scalars):
                value = names[scalar] if isinstance(scalar, int) else repr(scalar)
                lines.append(f"{port.name}[{k}] = {value}")
        return "\n".join(lines) + "\n"

    def dot(self) -> str:
        """The graph in the DOT language of Graphviz."""
        names = {s: f"{p.name}[{k}]" for p in self.inputs for k, s in enumerate(p.scalars) if s != -1}
        lines = [f'digraph "{self.name}" {{', "  node [shape=box];"]
        for index in self.live:
            operation, a, _ = self.nodes[index]
            label = repr(a) if operation == CONSTANT else names.get(index, OPERATION_NAMES[operation])
            lines.append(f'  n{index} [label="{label}"];')
            lines += [f"  n{operand} -> n{index};" for operand in operands(self.nodes[index])]
        for port in self.outputs:
            for k, scalar in enumerate(port.scalars):
                if isinstance(scalar, int):
                    lines.append(f'  "{port.name}[{k}]"; n{scalar} -> "{port.name}[{k}]";')
        return "\n".join([*lines, "}"]) + "\n"


def is_unread(scalar: int | float) -> bool:
    """Whether a scalar of an output is `UNREAD`."""
    return scalar != scalar


def _roots(ports: Iterable[Port]) -> set[int]:
    """The nodes that outputs read."""
    return {scalar for port in ports for scalar in port.scalars if isinstance(scalar, int)}


def _node_or_number(value: Value) -> int | float:
    return value.index if isinstance(value, Expression) else float(value)


def _evaluate(operation: int, a: Any, *others: Any) -> Any:
    if operation == SELECT:
        return np.where(a > 0.0, *others)
    return _FUNCTIONS[operation](a, *others)
