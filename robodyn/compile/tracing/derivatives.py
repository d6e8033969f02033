"""Derivatives of straight-line programs, as more of the same program.

Forwards (`along`) a rate follows every node from the inputs; backwards (`against`) a weight goes from the results to
the inputs (Griewank and Walther, Evaluating Derivatives, 2008, chapter 3). What is zero, one, or there already is
folded away as everywhere, so that a derivative of a derivative is one, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from robodyn.compile.tracing.expression import (
    ABS,
    ADD,
    COS,
    INPUT,
    MUL,
    NEG,
    RECIPROCAL,
    SIN,
    SQRT,
    SUB,
    Expression,
    Graph,
    Value,
    live_nodes,
    negated,
    reciprocal,
)

_TINY = 1e-37
"""A number of either precision: a size of zero has no slope."""


def along(graph: Graph, results: Sequence[Value], rates: Mapping[int, Value]) -> list[Value]:
    """The rate of each result where inputs, by their nodes, change at these rates."""
    rate: dict[int, Value] = dict(rates)
    for index in _nodes(graph, results):
        for operand, slope in _slopes(graph, index):
            if operand in rate:
                rate[index] = rate.get(index, 0.0) + slope * rate[operand]
    return [rate.get(each.index, 0.0) if isinstance(each, Expression) else 0.0 for each in results]


def against(graph: Graph, results: Sequence[Value], weights: Sequence[Value], inputs: Iterable[int]) -> list[Value]:
    """The gradient of the sum of weights times results with respect to inputs, given by their nodes."""
    weight: dict[int, Value] = {}
    for each, given in zip(results, weights, strict=True):
        if isinstance(each, Expression):
            weight[each.index] = weight.get(each.index, 0.0) + given
    for index in reversed(_nodes(graph, results)):
        if index in weight:
            for operand, slope in _slopes(graph, index):
                weight[operand] = weight.get(operand, 0.0) + slope * weight[index]
    return [weight.get(index, 0.0) for index in inputs]


def _nodes(graph: Graph, results: Sequence[Value]) -> list[int]:
    """The nodes that results need, in an order of evaluation."""
    return live_nodes(graph.nodes, (each.index for each in results if isinstance(each, Expression)))


def _slopes(graph: Graph, index: int) -> list[tuple[int, Value]]:
    """Operands of a node, and the derivative by each."""
    operation, a, b = graph.nodes[index]
    if operation <= INPUT or index in graph.flat:
        return []
    if operation in (ADD, SUB):
        return [(a, 1.0), (b, 1.0 if operation == ADD else -1.0)]
    if operation == MUL:
        return [(a, Expression(graph, b)), (b, Expression(graph, a))]
    x, y = Expression(graph, a), Expression(graph, index)
    slopes: dict[int, Callable[[], Value]] = {
        NEG: lambda: -1.0,
        RECIPROCAL: lambda: negated(y * y),
        SQRT: lambda: 0.5 * reciprocal(y),
        SIN: lambda: np.cos(x),
        COS: lambda: negated(np.sin(x)),
        ABS: lambda: x * (1.0 / (y + _TINY)),
    }
    return [(a, slopes[operation]())]
