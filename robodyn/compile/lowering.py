"""From a graph to the operations a processor has: products that only one sum uses are computed inside that sum.

So are sums of a few products for a CPU: x + (a b + c d) becomes (x + a b) + c d, two operations instead of three. A
traced robot has many of them, as one cross product is added to another. Where additions take the place of products, as
on Intel's processors, that is a seventh of what a gradient computes; where they do not, it is as much less code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from robodyn.compile.tracing.expression import ABS, ADD, COS, INPUT, MUL, NEG, RECIPROCAL, SIN, SQRT, SUB, Node
from robodyn.compile.tracing.program import Port, Program
from robodyn.internals.tuning import MAX_INNER_PRODUCTS, MAX_SUM_PRODUCTS

_new = tuple.__new__
"""Makes an `Operation` in a third of the time of a call of it: there are tens of thousands."""
_Products: TypeAlias = tuple[int, ...]
"""Nodes of products; ~node of one that is taken away. The first one of a sum of products alone is not."""
_Sum: TypeAlias = tuple[int, bool, _Products]
"""A sum: the node that it begins with (-1: none), whether that is taken away, and products."""
_NONE: _Sum = -1, False, ()
_PLAIN = {ADD: "add", SUB: "sub", MUL: "mul", NEG: "neg", RECIPROCAL: "reciprocal", SQRT: "sqrt", ABS: "abs"}


class Operation(NamedTuple):
    """One step of straight-line code: it computes `results` (two for a sine with its cosine) from `operands`.

    `kind`: "add", "sub", "mul", "neg", "reciprocal", "sqrt", "abs"; "fma" (x y + z), "fnma" (z - x y), "fms" (x y - z);
    "sincos", whose results are the nodes of the sine and the cosine, -1 where one is not needed.
    """

    kind: str
    results: tuple[int, ...]
    operands: tuple[int, ...]


def stored_nodes(ports: Iterable[Port]) -> list[int]:
    """Nodes that outputs need, once for each place they go to."""
    return [scalar for port in ports for scalar in port.scalars if isinstance(scalar, int)]


def lower(program: Program, *, nested: bool = False) -> list[Operation]:
    """The program's operations in an order of evaluation; constants and inputs need none.

    `nested`: whether sums of products become part of other sums. The operations of such a sum stand together, and each
    but the last makes what no node is: it has the node of its product. More values wait for them, which takes registers
    that a GPU's threads need.
    """
    nodes = program.nodes
    uses = [0] * len(nodes)
    for node in stored_nodes(program.outputs):
        uses[node] += 1
    computed = []
    for index in program.live:
        operation, a, b = nodes[index]
        if operation > INPUT:
            computed.append(index)
            uses[a] += 1
            if b >= 0:
                uses[b] += 1
    sums, inside = _sums(nodes, computed, uses, *((MAX_INNER_PRODUCTS, MAX_SUM_PRODUCTS) if nested else (1, 0)))
    found: list[Operation] = []
    done: set[int] = set()
    for index in computed:
        if index in inside or index in done:
            continue
        if index in sums:
            found += _fused(nodes, index, sums[index])
            continue
        operation, a, b = nodes[index]
        if operation in (SIN, COS):
            pair = tuple(program.node_of(each, a) for each in (SIN, COS))
            done.update(pair)
            found.append(Operation("sincos", pair, (a,)))
        else:
            found.append(_new(Operation, (_PLAIN[operation], (index,), (a,) if b < 0 else (a, b))))
    return found


def _sums(
    nodes: Sequence[Node], computed: Iterable[int], uses: Sequence[int], most: int, longest: int
) -> tuple[dict[int, _Sum], set[int]]:
    """Sums with products, by their nodes; and nodes that are computed inside those of others: of `most` products, or
    `longest` where others are added to them."""
    sums: dict[int, _Sum] = {}
    inside: set[int] = set()

    def products(node: int, most: int) -> _Products:
        """Of a sum of products alone, or of one."""
        if nodes[node][0] == MUL:
            return (node,) if most else ()
        start, _, found = sums.get(node, _NONE)
        return found if start < 0 and len(found) <= most else ()

    for index in computed:
        operation, a, b = nodes[index]
        if operation != ADD and operation != SUB:
            continue
        later = products(b, most) if uses[b] == 1 else ()
        if later:
            inside.add(b)
            if operation == SUB:
                later = tuple([~product for product in later])
            first = products(a, longest) if uses[a] == 1 else ()
            if first:
                inside.add(a)
                sums[index] = -1, False, first + later
            else:
                sums[index] = a, False, later
        elif uses[a] == 1 and (first := products(a, most)):
            inside.add(a)
            sums[index] = b, operation == SUB, first
    return sums, inside


def _fused(nodes: Sequence[Node], index: int, whole: _Sum) -> list[Operation]:
    """The operations of a sum: one for each product, whose node it stands for, but for the last one."""
    value, minus, products = whole
    found = []
    last = products[-1]
    for product in products:
        node = product if product >= 0 else ~product
        _, x, y = nodes[node]
        result = index if product == last else node
        if value < 0:
            found.append(_new(Operation, ("mul", (result,), (x, y))))
        else:
            kind = "fms" if minus else "fma" if product >= 0 else "fnma"
            found.append(_new(Operation, (kind, (result,), (x, y, value))))
        value, minus = result, False
    return found


def last_readers(parts: Sequence[Sequence[Operation]]) -> dict[int, int]:
    """For each node that an operation reads: the last part that does."""
    return {node: k for k, part in enumerate(parts) for operation in part for node in operation.operands}


def frame_slots(parts: Sequence[Sequence[Operation]], last: Mapping[int, int]) -> tuple[dict[int, int], int]:
    """Places for values that a part later than their own reads last, used again after it; and how many there are."""
    slots: dict[int, int] = {}
    free: list[int] = []
    ending: dict[int, list[int]] = {}
    size = 0
    for k, part in enumerate(parts):
        free += ending.pop(k - 1, [])
        for node in (node for operation in part for node in operation.results):
            reader = last.get(node, k)
            if reader > k:
                if not free:
                    free, size = [size], size + 1
                slots[node] = free.pop()
                ending.setdefault(reader, []).append(slots[node])
    return slots, size
