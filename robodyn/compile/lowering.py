"""Lowering: from a graph to the operations of a processor. Products that only one sum uses become fused multiply-adds.

For a CPU, sums of a few products are merged as well: x + (a b + c d) becomes (x + a b) + c d, two operations instead of
three. Traced robots have many such sums, because cross products are added to one another. On Intel's processors, where
additions use the same units as products, this saves a seventh of a gradient's operations. On other processors it saves
that much code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

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
    Node,
)
from robodyn.compile.tracing.program import Port, Program
from robodyn.internals.tuning import MAX_INNER_PRODUCTS, MAX_SUM_PRODUCTS

_new = tuple.__new__
"""Makes an `Operation` in a third of the time of a call: there are tens of thousands."""
_Products: TypeAlias = tuple[int, ...]
"""Nodes of products; ~node for a product that is subtracted. The first product is positive if the sum has no other
start."""
_Sum: TypeAlias = tuple[int, bool, _Products]
"""A sum: the node at which it starts (-1: none), whether that node is subtracted, and the products."""
_NONE: _Sum = -1, False, ()
_PLAIN = {
    ADD: "add",
    SUB: "sub",
    MUL: "mul",
    NEG: "neg",
    RECIPROCAL: "reciprocal",
    SQRT: "sqrt",
    ABS: "abs",
    MIN: "min",
    MAX: "max",
    SELECT: "select",
}


class Operation(NamedTuple):
    """One operation of straight-line code. It computes the nodes `results` from the nodes `operands`.

    `kind`: "add", "sub", "mul", "neg", "reciprocal", "sqrt", "abs", "min", "max", "select";
    "fma" (x y + z), "fnma" (z - x y), "fms" (x y - z);
    "sincos", which has two results, the sine and the cosine, or -1 for one that is not needed.
    """

    kind: str
    results: tuple[int, ...]
    operands: tuple[int, ...]


def stored_nodes(ports: Iterable[Port]) -> list[int]:
    """The nodes that outputs read, once for each entry that reads them."""
    return [scalar for port in ports for scalar in port.scalars if isinstance(scalar, int)]


def lower(program: Program, *, nested: bool = False) -> list[Operation]:
    """The program's operations in an order of evaluation. Constants and inputs need no operations.

    `nested`: True if sums of products are merged into other sums. The operations of a merged sum are consecutive. Each
    but the last computes a partial sum, which is no node of the graph; it gets the index of its product's node. Merging
    keeps more values live and therefore needs more registers, which GPU threads lack.
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
            if operation == SELECT:
                for each in b:
                    uses[each] += 1
            elif b >= 0:
                uses[b] += 1
    sums, inside = _sums(nodes, computed, uses, *((MAX_INNER_PRODUCTS, MAX_SUM_PRODUCTS) if nested else (1, 0)))
    lowered: list[Operation] = []
    done: set[int] = set()
    for index in computed:
        if index in inside or index in done:
            continue
        if index in sums:
            lowered += _fused(nodes, index, sums[index])
            continue
        operation, a, b = nodes[index]
        if operation in (SIN, COS):
            pair = tuple(program.node_of(each, a) for each in (SIN, COS))
            done.update(pair)
            lowered.append(Operation("sincos", pair, (a,)))
        else:
            read = (a, *b) if operation == SELECT else (a,) if b < 0 else (a, b)
            lowered.append(_new(Operation, (_PLAIN[operation], (index,), read)))
    return lowered


def _sums(
    nodes: Sequence[Node], computed: Iterable[int], uses: Sequence[int], most: int, longest: int
) -> tuple[dict[int, _Sum], set[int]]:
    """Sums with products, by node, and the nodes that are computed inside other sums. `most`: limit of the products of
    a sum that is merged into another; `longest`: limit of the products of a sum to which others are added."""
    sums: dict[int, _Sum] = {}
    inside: set[int] = set()

    def products(node: int, most: int) -> _Products:
        """The products of a node that is a product or a sum of at most `most` products alone; else empty."""
        if nodes[node][0] == MUL:
            return (node,) if most else ()
        start, _, summands = sums.get(node, _NONE)
        return summands if start < 0 and len(summands) <= most else ()

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
    """The operations of a sum, one for each product. Each gets the index of its product's node, the last that of the
    sum."""
    value, minus, products = whole
    fused = []
    last = products[-1]
    for product in products:
        node = product if product >= 0 else ~product
        _, x, y = nodes[node]
        result = index if product == last else node
        if value < 0:
            fused.append(_new(Operation, ("mul", (result,), (x, y))))
        else:
            kind = "fms" if minus else "fma" if product >= 0 else "fnma"
            fused.append(_new(Operation, (kind, (result,), (x, y, value))))
        value, minus = result, False
    return fused


def last_readers(parts: Sequence[Sequence[Operation]]) -> dict[int, int]:
    """For each node that an operation reads, the index of the last part that reads it."""
    return {node: k for k, part in enumerate(parts) for operation in part for node in operation.operands}


def frame_slots(parts: Sequence[Sequence[Operation]], last: Mapping[int, int]) -> tuple[dict[int, int], int]:
    """Slots for values that a later part reads, and the number of slots. A slot is reused after its value's last
    reader."""
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
