"""Passes that simplify a program for hardware: they remove sums that vanish, and turn long sums into trees."""

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
"""Cycles from operands to result of a sum or negation, and of a product. A multiplier has registers for operands,
product and result."""
_VANISHING = 2.0**-40
_Term = tuple[int, Value]


def cycles_of(operation: int) -> int:
    """Cycles from operands to result of an operation."""
    return MUL_CYCLES if operation == MUL else ADD_CYCLES


def without_zeros(program: Program, ports: Mapping[str, Array]) -> tuple[Program, int]:
    """The program without sums that vanish at every state, and the number of these sums.

    Tracing does not detect identities of mechanics such as sums of products that cancel. They are found numerically,
    without proof: a sum counts as zero if it is below 2^-40 of its operands at all samples. Inputs that are zero at all
    samples are removed, too.

    Raises:
        ArgumentError: a value overflows at a sample.
    """
    nonzero: set[int] = set()
    for part in chunks(ports):
        with np.errstate(over="ignore", invalid="ignore"):
            computed = values(program, part)
        for index in program.live:
            operation, a, b = program.nodes[index]
            if not np.all(np.isfinite(computed[index])):
                raise ArgumentError("box: values of the gradient overflow in it; wanted a smaller box")
            if operation == CONSTANT or index in nonzero:
                continue
            size = 0.0
            if operation in (ADD, SUB):
                size = _VANISHING * np.maximum(np.abs(computed[a]), np.abs(computed[b]))
            if np.any(np.abs(computed[index]) > size):
                nonzero.add(index)
    zero = [index for index in program.live if program.nodes[index][0] != CONSTANT and index not in nonzero]
    vanishing = [index for index in zero if program.nodes[index][0] in (ADD, SUB)]
    return rebuilt(program, dict.fromkeys(zero, 0.0)), len(vanishing)


def prepared(program: Program, ports: Mapping[str, Array]) -> tuple[Program, int]:
    """The program for hardware, and the number of vanishing sums that were removed. Passes are repeated, because
    reordering may bring together terms that cancel."""
    total = 0
    while True:
        program, vanishing = without_zeros(program, ports)
        total += vanishing
        program = balanced(program)
        if not vanishing:
            return program, total


def balanced(program: Program) -> Program:
    """The program with every sum of several terms as a tree that finishes as early as possible.

    Terms that are ready early are added first. The two products of a rotation, c x and s y for one angle, stay
    together, because interval arithmetic knows a tight bound of their sum.
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
    """The earliest cycle in which a value can be ready."""

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
    """Sums and negations whose only reader is another sum or negation, so that they can be merged into it."""
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
    """The signed terms of a sum, including those of merged inner sums."""
    terms: list[_Term] = []
    stack = [(1, index)]
    while stack:
        sign, at = stack.pop()
        if at != index and at not in inner:
            terms.append((sign, value[at]))
            continue
        operation, a, b = program.nodes[at]
        if at in turned:
            pair = value[a] + value[b] if operation == ADD else value[a] - value[b]
            terms.append((sign, pair))
        elif operation == NEG:
            stack.append((-sign, a))
        else:
            stack += [(-sign if operation == SUB else sign, b), (sign, a)]
    return terms


def _tree(terms: Sequence[_Term], ready: _Ready) -> Value:
    """The sum of terms as a tree: repeatedly add the two that are ready first. A negation remains only if all terms are
    negative."""
    heap = []
    for order, (sign, value) in enumerate(terms):
        heap.append((*_unsigned(sign, value, ready), order))
    entries = [(ready(value), order, sign, value) for sign, value, order in heap]
    order = len(entries)
    queue = [(when, place) for when, place, _, _ in entries]
    partial_sums = {place: (sign, value) for _, place, sign, value in entries}
    heapq.heapify(queue)
    while len(queue) > 1:
        (_, first), (_, second) = heapq.heappop(queue), heapq.heappop(queue)
        (sign, x), (other, y) = partial_sums.pop(first), partial_sums.pop(second)
        if sign == other:
            total, result = x + y, sign
        else:
            total, result = (x - y if sign > 0 else y - x), 1
        result, total = _unsigned(result, total, ready)
        partial_sums[order] = result, total
        heapq.heappush(queue, (ready(total), order))
        order += 1
    ((sign, value),) = partial_sums.values()
    return value if sign > 0 else -value


def _unsigned(sign: int, value: Value, ready: _Ready) -> _Term:
    """Merge a negation of the value into the term's sign."""
    if isinstance(value, Expression) and value.graph.nodes[value.index][0] == NEG:
        return -sign, Expression(value.graph, value.graph.nodes[value.index][1])
    return sign, value
