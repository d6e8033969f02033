"""Expressions: symbolic scalars that record the operations applied to them.

A `Graph` holds nodes, each an operation on earlier nodes. An `Expression` is one node of the graph and computes like a
float. Equal nodes exist once (hash-consing). The graph folds operations that a robot's structure makes trivial:
products with 0, 1 and -1, sums with 0, and signs. Negations move outward until a sum absorbs them: a + (-b) becomes a -
b. Products keep positive constants. A quotient is a product with a reciprocal, so that several quotients by one number
need one division. The graph depends only on the sequence of operations: the same model gives the same graph in every
process.

Folding treats 0 * x as 0 for every x: rows of a state with NaN can keep finite structural zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

CONSTANT, INPUT, ADD, SUB, MUL, NEG, RECIPROCAL, SQRT, SIN, COS, ABS, MIN, MAX, SELECT = range(14)
"""Operations. A node is (operation, first operand, second operand). Operands are indices of earlier nodes. A constant
has its value, and an input its number, as the first operand. Unused operands are -1. `SELECT` has a pair as its second
operand: (SELECT, c, (x, y)) is x where c > 0, y where c <= 0, and one of the two where c is NaN."""

OPERATION_NAMES = (
    *("constant", "input", "add", "sub", "mul", "neg", "reciprocal", "sqrt", "sin", "cos", "abs"),
    *("min", "max", "select"),
)
ARITHMETIC = (ADD, SUB, MUL, RECIPROCAL, SQRT, SIN, COS, MIN, MAX, SELECT)
"""Operations that count as one floating-point operation each. NEG and ABS are free: machine code merges them into the
operation that reads their result."""

Node: TypeAlias = tuple[int, Any, Any]
Value: TypeAlias = "Expression | float"
"""A traced scalar: an expression, or a number where folding left nothing to compute."""


class Graph:
    """A growing list of nodes, in which equal nodes exist once. `flat`: indices of nodes that are piecewise constant;
    their derivatives are zero."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.flat: set[int] = set()
        self._known: dict[Node, int] = {}
        self._n_inputs = 0

    def node(self, operation: int, a: Any, b: Any = -1) -> int:
        """Index of the node of this operation, which is added if it does not exist yet."""
        key = (operation, a, b)
        index = self._known.get(key)
        if index is None:
            index = self._known[key] = len(self.nodes)
            self.nodes.append(key)
        return index

    def input(self) -> Expression:
        """A new input. Inputs are numbered in the order in which they are made."""
        self._n_inputs += 1
        return Expression(self, self.node(INPUT, self._n_inputs - 1))

    def inputs(self, n: int) -> tuple[Expression, ...]:
        """n new inputs."""
        return tuple(self.input() for _ in range(n))

    @property
    def n_inputs(self) -> int:
        """Number of inputs made so far."""
        return self._n_inputs

    def add(self, a: int, b: int) -> Value:
        """a + b."""
        nodes = self.nodes
        if nodes[a][0] == NEG:
            if nodes[b][0] == NEG:
                return negated(self.add(nodes[a][1], nodes[b][1]))
            return self.sub(b, nodes[a][1])
        if nodes[b][0] == NEG:
            return self.sub(a, nodes[b][1])
        return Expression(self, self.node(ADD, a, b) if a < b else self.node(ADD, b, a))

    def sub(self, a: int, b: int) -> Value:
        """a - b."""
        nodes = self.nodes
        if a == b:
            return 0.0
        if nodes[b][0] == NEG:
            return self.add(a, nodes[b][1])
        if nodes[a][0] == NEG:
            return negated(self.add(nodes[a][1], b))
        opposite = self._known.get((SUB, b, a))
        return Expression(self, self.node(SUB, a, b)) if opposite is None else negated(Expression(self, opposite))

    def mul(self, a: int, b: int) -> Value:
        """a * b."""
        nodes = self.nodes
        if nodes[a][0] == NEG:
            return negated(self.mul(nodes[a][1], b))
        if nodes[b][0] == NEG:
            return negated(self.mul(a, nodes[b][1]))
        return Expression(self, self.node(MUL, a, b) if a < b else self.node(MUL, b, a))

    def scale(self, a: int, factor: float) -> Value:
        """a * factor. A negative sign moves outside; constant factors of a product merge into one."""
        if factor == 0.0:
            return 0.0
        operation, first, second = self.nodes[a]
        if operation == NEG:
            return self.scale(first, -factor)
        if operation == MUL and self.nodes[first][0] == CONSTANT:
            return self.scale(second, self.nodes[first][1] * factor)
        if operation == MUL and self.nodes[second][0] == CONSTANT:
            return self.scale(first, self.nodes[second][1] * factor)
        if factor < 0.0:
            return negated(self.scale(a, -factor))
        return Expression(self, a) if factor == 1.0 else self.mul(self.constant(factor), a)

    def extremum(self, operation: int, a: int, b: int) -> Value:
        """The lesser (MIN) or the greater (MAX) of two nodes, NaN where one of them is NaN."""
        return Expression(self, a if a == b else self.node(operation, min(a, b), max(a, b)))

    def choice(self, condition: int, positive: Any, otherwise: Any) -> Value:
        """`positive` where a node is greater than 0, else `otherwise`. Where it is NaN it is one of the two."""
        pair = tuple(
            each.index if isinstance(each, Expression) else self.constant(float(each)) for each in (positive, otherwise)
        )
        if pair[0] == pair[1]:
            return positive  # type: ignore[no-any-return]
        return Expression(self, self.node(SELECT, condition, pair))

    def jumps(self, index: int) -> None:
        """Mark a node as piecewise constant, and also the nodes of which it is a constant multiple: folding may make
        other products from these."""
        self.flat.add(index)
        operation, a, b = self.nodes[index]
        for each, other in ((a, b), (b, a)):
            if (operation == NEG and each >= 0) or (operation == MUL and self.nodes[other][0] == CONSTANT):
                self.jumps(each)

    def constant(self, value: float) -> int:
        """Index of the node of a number."""
        return self.node(CONSTANT, value)


class Expression:
    """A node of a graph that computes like a float. Reading its value, for example in a comparison, raises
    TypeError."""

    __slots__ = ("graph", "index")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, graph: Graph, index: int) -> None:
        self.graph, self.index = graph, index

    def __repr__(self) -> str:
        return f"<{OPERATION_NAMES[self.graph.nodes[self.index][0]]} %{self.index}>"

    def __add__(self, other: Any) -> Value:
        if isinstance(other, Expression):
            return self.graph.add(self.index, other.index)
        number = float(other)
        return self if number == 0.0 else self.graph.add(self.index, self.graph.constant(number))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Value:
        if isinstance(other, Expression):
            return self.graph.sub(self.index, other.index)
        number = float(other)
        return self if number == 0.0 else self.graph.sub(self.index, self.graph.constant(number))

    def __rsub__(self, other: Any) -> Value:
        number = float(other)
        return negated(self) if number == 0.0 else self.graph.sub(self.graph.constant(number), self.index)

    def __mul__(self, other: Any) -> Value:
        if isinstance(other, Expression):
            return self.graph.mul(self.index, other.index)
        return self.graph.scale(self.index, float(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Value:
        if isinstance(other, Expression):
            return self * reciprocal(other)
        return self.graph.scale(self.index, 1.0 / float(other))

    def __rtruediv__(self, other: Any) -> Value:
        return other * reciprocal(self)  # type: ignore[no-any-return]

    def __neg__(self) -> Value:
        return negated(self)

    def __abs__(self) -> Value:
        return _FUNCTIONS[np.abs](self)

    def jumping(self) -> Expression:
        """This expression, marked as piecewise constant: derivatives of the program treat it as a constant."""
        self.graph.jumps(self.index)
        return self

    def select(self, positive: Any, otherwise: Any) -> Value:
        """See `robodyn.core.spatial.select`."""
        nan = np.minimum(np.abs(self), 0.0).jumping()  # zero for every number
        return self.graph.choice(self.index, positive, otherwise) + nan  # type: ignore[no-any-return]

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        function = _FUNCTIONS.get(ufunc)
        if function is None or method != "__call__" or kwargs:
            return NotImplemented
        return function(*args)

    def _refuse(self, *_: Any) -> Any:
        raise TypeError("a traced expression has no value to look at: a step must not branch on scalars")

    __bool__ = __float__ = __int__ = __index__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse


def negated(a: Value) -> Value:
    """-a; a negation of a negation cancels."""
    if not isinstance(a, Expression):
        return -a
    operation, first, _ = a.graph.nodes[a.index]
    return Expression(a.graph, first) if operation == NEG else Expression(a.graph, a.graph.node(NEG, a.index))


def reciprocal(a: Expression) -> Value:
    """1 / a."""
    operation, first, _ = a.graph.nodes[a.index]
    if operation == NEG:
        return negated(reciprocal(Expression(a.graph, first)))
    return Expression(a.graph, a.graph.node(RECIPROCAL, a.index))


def _unary(operation: int, sign: str) -> Callable[[Expression], Value]:
    """A traced function of one argument. `sign`: its symmetry, "odd" or "even", by which a negation of the argument
    moves outside or vanishes; "" if it has none."""

    def apply(a: Expression) -> Value:
        inner, first, _ = a.graph.nodes[a.index]
        if inner == NEG and sign:
            positive = apply(Expression(a.graph, first))
            return negated(positive) if sign == "odd" else positive
        return Expression(a.graph, a.graph.node(operation, a.index))

    return apply


def _extremum(operation: int) -> Callable[[Any, Any], Value]:
    def apply(a: Any, b: Any) -> Value:
        graph: Graph = (a if isinstance(a, Expression) else b).graph
        first, second = (each.index if isinstance(each, Expression) else graph.constant(float(each)) for each in (a, b))
        return graph.extremum(operation, first, second)

    return apply


_FUNCTIONS: dict[Any, Callable[..., Value]] = {
    np.sin: _unary(SIN, "odd"),
    np.cos: _unary(COS, "even"),
    np.sqrt: _unary(SQRT, ""),
    np.abs: _unary(ABS, "even"),
    np.minimum: _extremum(MIN),
    np.maximum: _extremum(MAX),
    np.add: lambda a, b: b + a if isinstance(b, Expression) else a + b,
    np.multiply: lambda a, b: b * a if isinstance(b, Expression) else a * b,
    np.subtract: lambda a, b: a - b if isinstance(a, Expression) else b.__rsub__(a),
    np.true_divide: lambda a, b: b.__rtruediv__(a) if isinstance(b, Expression) else a / b,
}
"""NumPy functions that accept expressions. NumPy calls the arithmetic ones if the left operand is a NumPy number."""


def operands(node: Node) -> tuple[int, ...]:
    """The nodes that a node reads."""
    operation, a, b = node
    if operation <= INPUT:
        return ()
    if operation == SELECT:
        return (a, *b)
    return (a,) if b < 0 else (a, b)


def live_nodes(nodes: Sequence[Node], roots: Iterable[int]) -> list[int]:
    """Indices of the nodes that `roots` depend on, in ascending order, which is an order of evaluation."""
    needed = bytearray(len(nodes))
    for root in roots:
        needed[root] = 1
    for index in range(len(nodes) - 1, -1, -1):
        if needed[index]:
            operation, a, b = nodes[index]
            if operation > INPUT:
                needed[a] = 1
                if operation == SELECT:
                    needed[b[0]] = needed[b[1]] = 1
                elif b >= 0:
                    needed[b] = 1
    return [index for index, live in enumerate(needed) if live]
