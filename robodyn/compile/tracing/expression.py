"""Expressions: scalars that record what is done to them.

A `Graph` holds nodes, each an operation on earlier nodes; an `Expression` is one node of it and can be computed with
like a float. Equal nodes are made once (hash-consing), and what a robot's structure makes trivial is never made at
all: products with 0, 1 and -1, sums with 0, signs. Signs travel outward until a sum swallows them (a + (-b) becomes
a - b), products keep positive constants, and a quotient is a product with a reciprocal, so that several quotients by
one number divide once. The result depends on the operations asked for and on nothing else: the same model gives the
same graph in every process.

Folding treats 0 * x as 0 whatever x is: a state with NaN may leave structural zeros of its own row finite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

CONSTANT, INPUT, ADD, SUB, MUL, NEG, RECIPROCAL, SQRT, SIN, COS, ABS = range(11)
"""Operations. A node is (operation, first operand, second operand): operands are earlier nodes' numbers; a constant
has its value, an input its number, in place of the first; a place that is not used holds -1."""

OPERATION_NAMES = ("constant", "input", "add", "sub", "mul", "neg", "reciprocal", "sqrt", "sin", "cos", "abs")
ARITHMETIC = (ADD, SUB, MUL, RECIPROCAL, SQRT, SIN, COS)
"""Operations that count as one floating-point operation each; signs and sizes are free: they go into the next one."""

Node: TypeAlias = tuple[int, Any, int]
Value: TypeAlias = "Expression | float"
"""What tracing yields: a node, or a number where folding left nothing to compute."""


class Graph:
    """A growing list of nodes, equal ones once. `flat` are those that jump between constants: their derivatives are
    zero."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.flat: set[int] = set()
        self._known: dict[Node, int] = {}
        self._n_inputs = 0

    def node(self, operation: int, a: Any, b: int = -1) -> int:
        """Number of the node of that operation, made if it is not there yet."""
        key = (operation, a, b)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.nodes)
            self.nodes.append(key)
        return found

    def input(self) -> Expression:
        """A new input; inputs are numbered in the order they are made."""
        self._n_inputs += 1
        return Expression(self, self.node(INPUT, self._n_inputs - 1))

    def inputs(self, n: int) -> tuple[Expression, ...]:
        """n new inputs."""
        return tuple(self.input() for _ in range(n))

    @property
    def n_inputs(self) -> int:
        """Number of inputs made."""
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
        turned = self._known.get((SUB, b, a))
        return Expression(self, self.node(SUB, a, b)) if turned is None else negated(Expression(self, turned))

    def mul(self, a: int, b: int) -> Value:
        """a * b."""
        nodes = self.nodes
        if nodes[a][0] == NEG:
            return negated(self.mul(nodes[a][1], b))
        if nodes[b][0] == NEG:
            return negated(self.mul(a, nodes[b][1]))
        return Expression(self, self.node(MUL, a, b) if a < b else self.node(MUL, b, a))

    def scale(self, a: int, factor: float) -> Value:
        """a * factor, the constant's sign outside; constant factors of a product merge."""
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

    def jumps(self, index: int) -> None:
        """Note that a node is flat, and so is what it is a multiple of, which products with it may be made of."""
        self.flat.add(index)
        operation, a, b = self.nodes[index]
        for each, other in ((a, b), (b, a)):
            if (operation == NEG and each >= 0) or (operation == MUL and self.nodes[other][0] == CONSTANT):
                self.jumps(each)

    def constant(self, value: float) -> int:
        """The node of a number."""
        return self.node(CONSTANT, value)


class Expression:
    """A node of a graph that computes like a float and refuses to be looked at."""

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
        """Itself, which jumps between constants, as derivatives of the program are told."""
        self.graph.jumps(self.index)
        return self

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        function = _FUNCTIONS.get(ufunc)
        if function is None or method != "__call__" or kwargs:
            return NotImplemented
        return function(*args)

    def _refuse(self, *_: Any) -> Any:
        raise TypeError("a traced expression has no value to look at: a step must not branch on scalars")

    __bool__ = __float__ = __int__ = __index__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse


def negated(a: Value) -> Value:
    """-a, without stacking signs."""
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
    """A function of one argument; `sign` says what it does with a negative one: "odd", "even", or "" to keep it."""

    def apply(a: Expression) -> Value:
        inner, first, _ = a.graph.nodes[a.index]
        if inner == NEG and sign:
            bare = apply(Expression(a.graph, first))
            return negated(bare) if sign == "odd" else bare
        return Expression(a.graph, a.graph.node(operation, a.index))

    return apply


_FUNCTIONS: dict[Any, Callable[..., Value]] = {
    np.sin: _unary(SIN, "odd"),
    np.cos: _unary(COS, "even"),
    np.sqrt: _unary(SQRT, ""),
    np.abs: _unary(ABS, "even"),
    np.add: lambda a, b: b + a if isinstance(b, Expression) else a + b,
    np.multiply: lambda a, b: b * a if isinstance(b, Expression) else a * b,
    np.subtract: lambda a, b: a - b if isinstance(a, Expression) else b.__rsub__(a),
    np.true_divide: lambda a, b: b.__rtruediv__(a) if isinstance(b, Expression) else a / b,
}
"""NumPy's functions that expressions answer; the arithmetic ones are met when a NumPy number stands on the left."""


def live_nodes(nodes: Sequence[Node], roots: Iterable[int]) -> list[int]:
    """Numbers of the nodes that `roots` need, in the order they were made, which is an order of evaluation."""
    needed = bytearray(len(nodes))
    for root in roots:
        needed[root] = 1
    for index in range(len(nodes) - 1, -1, -1):
        if needed[index]:
            operation, a, b = nodes[index]
            if operation > INPUT:
                needed[a] = 1
                if b >= 0:
                    needed[b] = 1
    return [index for index, live in enumerate(needed) if live]
