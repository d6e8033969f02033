"""Prints traced matrices as SX expressions of CasADi."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import casadi

from robodyn.bridges.casadi.blocks import Level, Matrix
from robodyn.compile.tracing.expression import (
    ABS,
    ADD,
    CONSTANT,
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
    Node,
    live_nodes,
)
from robodyn.core.joints import WHOLE

_OPERATIONS: dict[int, Callable[..., Any]] = {
    ADD: lambda a, b: a + b,
    SUB: lambda a, b: a - b,
    MUL: lambda a, b: a * b,
    MIN: casadi.fmin,
    MAX: casadi.fmax,
    NEG: lambda a: -a,
    RECIPROCAL: lambda a: 1.0 / a,
    SQRT: casadi.sqrt,
    SIN: casadi.sin,
    COS: casadi.cos,
    ABS: casadi.fabs,
}


def sparsity(matrix: Matrix) -> casadi.Sparsity:
    """The pattern of the entries that are not structural zeros."""
    height = max(1, matrix.rows)
    rows, columns = [k % height for k in matrix.places], [k // height for k in matrix.places]
    return casadi.Sparsity.triplet(matrix.rows, matrix.columns, rows, columns)


def sx_function(level: Level) -> casadi.Function:
    """The function as SX expressions; equal subexpressions of the program exist once."""
    arguments = {name: casadi.SX.sym(name, each.rows, each.columns) for name, each in level.inputs.items()}
    made: dict[int, Any] = {}
    for name, each in level.inputs.items():
        symbols = casadi.vertsplit(casadi.vec(arguments[name])) if each.scalars else []
        made.update((value.index, s) for value, s in zip(each.scalars, symbols, strict=True))  # type: ignore[union-attr]
    graph = level.graph
    roots = [v.index for each in level.outputs.values() for v in each.values if isinstance(v, Expression)]
    for index in live_nodes(graph.nodes, roots):
        if index not in made:
            made[index] = _printed(graph, index, made)
    results = []
    for each in level.outputs.values():
        values = [made[v.index] if isinstance(v, Expression) else v for v in each.values]
        results.append(casadi.SX(sparsity(each), casadi.vertcat(*values) if values else casadi.SX(0, 1)))
    return casadi.Function(level.name, list(arguments.values()), results, list(level.inputs), list(level.outputs))


def _printed(graph: Graph, index: int, made: Mapping[int, Any]) -> Any:
    """One node. CasADi differentiates every operation, so that three are written in another way:

    - The factor by which a quaternion is scaled before it is normalised, on which nothing depends, is 1: its slope is
      infinite where a component is zero.
    - The whole number next to x, which is (x + c) - c for a large c, is a floor, as CasADi would simplify it to x.
    - min(|x|, 0), which only carries NaN, is 0.
    """
    operation, a, b = graph.nodes[index]
    if operation == CONSTANT:
        return casadi.SX(a)
    assert operation != INPUT
    if operation == RECIPROCAL and index in graph.flat:
        return casadi.SX(1.0)
    if operation == SUB and graph.nodes[b] == (CONSTANT, WHOLE, -1):
        return casadi.floor(_summand(graph.nodes[a], b, made) + 0.5)
    if operation == MIN and _is_zero_of_absolute(graph, a, b):
        return casadi.SX(0.0)
    if operation == SELECT:
        return casadi.if_else(made[a] > 0.0, made[b[0]], made[b[1]])
    return _OPERATIONS[operation](made[a]) if b < 0 else _OPERATIONS[operation](made[a], made[b])


def _summand(node: Node, c: int, made: Mapping[int, Any]) -> Any:
    """x of a node x + c or c - (-x)."""
    operation, a, b = node
    return -made[b] if operation == SUB else made[b if a == c else a]


def _is_zero_of_absolute(graph: Graph, a: int, b: int) -> bool:
    kinds = {graph.nodes[a][0], graph.nodes[b][0]}
    return kinds == {ABS, CONSTANT} and any(graph.nodes[each] == (CONSTANT, 0.0, -1) for each in (a, b))
