"""What is done to a program before it becomes hardware: sums that vanish go, and long sums become trees."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import numpy as np

from robodyn.compile.tracing.expression import ADD, CONSTANT, INPUT, MUL, NEG, SUB, Expression, Graph, Value
from robodyn.compile.tracing.program import Program
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError
from robodyn.tools.hardware.program import inputs_of, rebuilt, uses
from robodyn.tools.hardware.ranges import chunks, rotations, values

ADD_CYCLES = 1
MUL_CYCLES = 3
"""From operands to result, of one sum or sign, and of one product: operands, product and result each have a
register."""
_VANISHING = 2.0**-40
_Term = tuple[int, Value]


def cycles_of(operation: int) -> int:
    """From operands to result."""
    return MUL_CYCLES if operation == MUL else ADD_CYCLES


def without_zeros(program: Program, ports: Mapping[str, Array]) -> tuple[Program, int]:
    """The program without sums that vanish whatever the state is, and how many of them there were.

    Identities of mechanics that no single operation shows survive tracing: a sum of products that cancel. They are
    found by numbers, not proved: below 2^-40 of their operands at all samples, as are inputs that are zero at all of
    them.

    Raises:
        ArgumentError: some value overflows at a sample.
    """
    kept: set[int] = set()
    for part in chunks(ports):
        with np.errstate(over="ignore", invalid="ignore"):
            found = values(program, part)
        for index in program.live:
            operation, a, b = program.nodes[index]
            if not np.all(np.isfinite(found[index])):
                raise ArgumentError("box: values of the gradient overflow in it; wanted a smaller box")
            if operation == CONSTANT or index in kept:
                continue
            size = 0.0
            if operation in (ADD, SUB):
                size = _VANISHING * np.maximum(np.abs(found[a]), np.abs(found[b]))
            if np.any(np.abs(found[index]) > size):
                kept.add(index)
    zero = [index for index in program.live if program.nodes[index][0] != CONSTANT and index not in kept]
    vanishing = [index for index in zero if program.nodes[index][0] in (ADD, SUB)]
    return rebuilt(program, dict.fromkeys(zero, 0.0)), len(vanishing)


def prepared(program: Program, ports: Mapping[str, Array]) -> tuple[Program, int]:
    """The program as hardware has it, and how many sums that vanish were left out of it. Another order of terms may
    bring together some that cancel."""
    total = 0
    while True:
        program, vanishing = without_zeros(program, ports)
        total += vanishing
        program = balanced(program)
        if not vanishing:
            return program, total


def balanced(program: Program) -> Program:
    """The program with every sum of several terms as a tree that is done as early as it can be.

    Terms that come early are added first. The two products by which sine and cosine of one angle turn a vector stay
    together: intervals know how large their sum is.
    """
    count, turned = uses(program), rotations(program)
    graph = Graph()
    ports, value = inputs_of(program, graph)
    inner = _inner_sums(program, count)
    ready = _Ready(graph)
    for index in program.live:
        operation, a, b = program.nodes[index]
        if operation == INPUT or index in inner:
            continue
        if operation == CONSTANT:
            value[index] = float(a)
        elif operation == MUL:
            value[index] = value[a] * value[b]
        else:
            value[index] = _tree(_terms(program, index, inner, turned, value), ready)
    outputs = {
        port.name: (port.shape, [value[s] if isinstance(s, int) else s for s in port.scalars])
        for port in program.outputs
    }
    return Program.of(program.name, graph, ports, outputs)


class _Ready:
    """In which cycle a value is there at the earliest."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: list[int] = []

    def __call__(self, value: Value) -> int:
        if not isinstance(value, Expression):
            return 0
        for operation, a, b in self._graph.nodes[len(self._known) : value.index + 1]:
            early = operation in (CONSTANT, INPUT)
            operands = () if early else (a,) if b < 0 else (a, b)
            start = max((self._known[each] for each in operands), default=0)
            self._known.append(0 if early else start + cycles_of(operation))
        return self._known[value.index]


def _inner_sums(program: Program, count: Mapping[int, int]) -> set[int]:
    """Sums and signs that one other sum or sign alone reads: terms of its own."""
    linear = (ADD, SUB, NEG)
    inner = set()
    for index in program.live:
        operation, a, b = program.nodes[index]
        if operation in linear:
            inner |= {each for each in (a, b) if each >= 0 and count[each] == 1 and program.nodes[each][0] in linear}
    return inner


def _terms(
    program: Program,
    index: int,
    inner: set[int],
    turned: Mapping[int, tuple[int, int]],
    value: Mapping[int, Value],
) -> list[_Term]:
    """Signed terms of a sum, those of sums within it included."""
    found: list[_Term] = []
    stack = [(1, index)]
    while stack:
        sign, at = stack.pop()
        if at != index and at not in inner:
            found.append((sign, value[at]))
            continue
        operation, a, b = program.nodes[at]
        if at in turned:
            pair = value[a] + value[b] if operation == ADD else value[a] - value[b]
            found.append((sign, pair))
        elif operation == NEG:
            stack.append((-sign, a))
        else:
            stack += [(-sign if operation == SUB else sign, b), (sign, a)]
    return found


def _tree(terms: Sequence[_Term], ready: _Ready) -> Value:
    """Their sum: always of the two that are there first. A sign is left over only where all terms have it."""
    heap = []
    for order, (sign, value) in enumerate(terms):
        heap.append((*_unsigned(sign, value, ready), order))
    entries = [(ready(value), order, sign, value) for sign, value, order in heap]
    order = len(entries)
    queue = [(when, place) for when, place, _, _ in entries]
    known = {place: (sign, value) for _, place, sign, value in entries}
    heapq.heapify(queue)
    while len(queue) > 1:
        (_, first), (_, second) = heapq.heappop(queue), heapq.heappop(queue)
        (sign, x), (other, y) = known.pop(first), known.pop(second)
        if sign == other:
            total, result = x + y, sign
        else:
            total, result = (x - y if sign > 0 else y - x), 1
        result, total = _unsigned(result, total, ready)
        known[order] = result, total
        heapq.heappush(queue, (ready(total), order))
        order += 1
    ((sign, value),) = known.values()
    return value if sign > 0 else -value


def _unsigned(sign: int, value: Value, ready: _Ready) -> _Term:
    """A sign that the value is, taken into the term's."""
    if isinstance(value, Expression) and value.graph.nodes[value.index][0] == NEG:
        return -sign, Expression(value.graph, value.graph.nodes[value.index][1])
    return sign, value
