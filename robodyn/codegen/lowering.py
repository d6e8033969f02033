"""From a graph to the operations a processor has: products that only one sum uses are computed inside that sum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from robodyn.tracing.expression import ABS, ADD, COS, INPUT, MUL, NEG, RECIPROCAL, SIN, SQRT, SUB
from robodyn.tracing.program import Port, Program

_new = tuple.__new__
"""Makes an `Operation` in a third of the time of a call of it: there are tens of thousands."""
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


def lower(program: Program) -> list[Operation]:
    """The program's operations in an order of evaluation; constants and inputs need none."""
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
    fused: dict[int, Operation] = {}
    inside: set[int] = set()
    for index in computed:
        operation, a, b = nodes[index]
        if operation != ADD and operation != SUB:
            continue
        if uses[b] == 1 and nodes[b][0] == MUL:
            product, other, kind = b, a, "fma" if operation == ADD else "fnma"
        elif uses[a] == 1 and nodes[a][0] == MUL:
            product, other, kind = a, b, "fma" if operation == ADD else "fms"
        else:
            continue
        inside.add(product)
        _, factor, by = nodes[product]
        fused[index] = _new(Operation, (kind, (index,), (factor, by, other)))
    found: list[Operation] = []
    done: set[int] = set()
    for index in computed:
        if index in fused:
            found.append(fused[index])
        elif index not in inside and index not in done:
            operation, a, b = nodes[index]
            if operation in (SIN, COS):
                pair = tuple(program.node_of(each, a) for each in (SIN, COS))
                done.update(pair)
                found.append(Operation("sincos", pair, (a,)))
            else:
                found.append(_new(Operation, (_PLAIN[operation], (index,), (a,) if b < 0 else (a, b))))
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
