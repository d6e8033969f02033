"""Automatic differentiation of straight-line programs; the derivative is a program in the same graph.

Forward mode (`along`) propagates a rate of change from the inputs to every node. Reverse mode (`against`) propagates an
adjoint from the results to the inputs (Griewank and Walther, Evaluating Derivatives, 2008, chapter 3). The graph folds
zeros, ones and repeated nodes as always. Derivatives can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from robodyn.compile.tracing.expression import (
    ABS,
    ADD,
    COS,
    INPUT,
    MAX,
    MIN,
    MUL,
    NEG,
    RECIPROCAL,
    SELECT,
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
from robodyn.core.spatial import select

_TINY = 1e-37
"""Added to a divisor that may be zero, so that abs(x) has slope 0 at x = 0. It is a normal number in both
precisions."""


def along(graph: Graph, results: Sequence[Value], rates: Mapping[int, Value]) -> list[Value]:
    """The rate of change of each result (forward mode). `rates` maps input nodes to their rates of change."""
    rate: dict[int, Value] = dict(rates)
    for index in _nodes(graph, results):
        for operand, slope in _slopes(graph, index):
            if operand in rate:
                rate[index] = rate.get(index, 0.0) + slope * rate[operand]
    return [rate.get(each.index, 0.0) if isinstance(each, Expression) else 0.0 for each in results]


def against(graph: Graph, results: Sequence[Value], weights: Sequence[Value], inputs: Iterable[int]) -> list[Value]:
    """The gradient, with respect to the nodes `inputs`, of the sum of weights times results (reverse mode)."""
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
    """The nodes that `results` depend on, in an order of evaluation."""
    return live_nodes(graph.nodes, (each.index for each in results if isinstance(each, Expression)))


def _slopes(graph: Graph, index: int) -> list[tuple[int, Value]]:
    """The operands of a node, each with the partial derivative of the node by it."""
    operation, a, b = graph.nodes[index]
    if operation <= INPUT or index in graph.flat:
        return []
    if operation in (ADD, SUB):
        return [(a, 1.0), (b, 1.0 if operation == ADD else -1.0)]
    if operation == MUL:
        return [(a, Expression(graph, b)), (b, Expression(graph, a))]
    if operation in (MIN, MAX):
        pair = Expression(graph, a), Expression(graph, b)
        behind = select(pair[0] - pair[1] if operation == MIN else pair[1] - pair[0], 1.0, 0.0)
        return [(a, 1.0 - behind), (b, behind)]
    if operation == SELECT:
        chosen = select(Expression(graph, a), 1.0, 0.0)
        return [(b[0], chosen), (b[1], 1.0 - chosen)]
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
