"""Orders the operations of a program so that few values are live at once.

A GPU thread has 255 registers of 32 bits; further values go through memory. Compilers roughly keep the order of the
source. A traced program runs outward over all bodies before it runs inward, so on a branched tree the values of every
leg stay live until all legs are done. Finding the best order is hard; the best of a few simple orders is good.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

from robodyn.compile.lowering import Operation, lower, stored_nodes
from robodyn.compile.tracing.expression import CONSTANT, INPUT, operands
from robodyn.compile.tracing.program import Program
from robodyn.internals.tuning import ORDERED_OPERATIONS


def values_alive(operations: Sequence[Operation]) -> int:
    """The largest number of results that are live at once. Inputs do not count, because they can be loaded again.
    Results that are only stored do not count either."""
    last = {node: k for k, operation in enumerate(operations) for node in operation.operands}
    made: set[int] = set()
    most = 0
    for k, operation in enumerate(operations):
        made -= {node for node in operation.operands if last[node] == k}
        made |= {node for node in operation.results if node in last}
        most = max(most, len(made))
    return most


def in_short_order(program: Program) -> Program:
    """The same program, in that of a few simple orders which has the fewest live values."""
    operations = lower(program)
    links = _Links(program, operations)
    orders = (
        list(range(len(operations))),
        _depth_first(links, links.roots),
        _depth_first(links, links.roots[::-1]),
        _greedy(links),
        *([_depth_first(links, _cheapest_first(links))] if len(operations) <= ORDERED_OPERATIONS else []),
    )
    best = min(orders, key=lambda order: values_alive([operations[k] for k in order]))
    return replace(program, live=_live(program, [operations[k] for k in best]))


class _Links:
    """The dependencies between operations, as indices into the list of operations.

    `needs`: the operations whose results an operation reads, once each; `readers`: the operations that read its
    results; `roots`: the operations that outputs read, in the order of the outputs.
    """

    def __init__(self, program: Program, operations: Sequence[Operation]) -> None:
        made = {node: k for k, operation in enumerate(operations) for node in operation.results if node >= 0}
        self.needs = [tuple(dict.fromkeys(made[n] for n in each.operands if n in made)) for each in operations]
        self.readers: list[list[int]] = [[] for _ in operations]
        for k, needs in enumerate(self.needs):
            for need in needs:
                self.readers[need].append(k)
        self.roots = [made[node] for node in dict.fromkeys(stored_nodes(program.outputs)) if node in made]


def _depth_first(links: _Links, roots: Sequence[int]) -> list[int]:
    """Computes everything that one result needs before the next result. Of two operands, the one that needs more
    registers comes first."""
    registers = [1] * len(links.needs)
    for k, needs in enumerate(links.needs):  # Sethi-Ullman numbers, which are exact for trees
        ranked = sorted((registers[need] for need in needs), reverse=True)
        registers[k] = max([1, *(count + position for position, count in enumerate(ranked))])
    done = bytearray(len(links.needs))
    order = []
    for root in roots:
        stack = [root]
        while stack:
            k = stack[-1]
            missing = () if done[k] else [need for need in links.needs[k] if not done[need]]
            if missing:
                stack.append(max(missing, key=registers.__getitem__))
                continue
            stack.pop()
            if not done[k]:
                done[k] = 1
                order.append(k)
    return order


def _cheapest_first(links: _Links) -> list[int]:
    """Roots ordered so that each adds as few operations as possible to those already computed: results with common
    operands are neighbours."""
    needed: list[int] = []  # bit sets: the operations that each operation needs, itself included
    for k, needs in enumerate(links.needs):
        whole = 1 << k
        for need in needs:
            whole |= needed[need]
        needed.append(whole)
    done, left, order = 0, dict.fromkeys(links.roots), []
    while left:
        root = min(left, key=lambda k: (needed[k] & ~done).bit_count())
        done |= needed[root]
        order.append(root)
        del left[root]
    return order


def _greedy(links: _Links) -> list[int]:
    """Of the operations whose operands are computed, takes the one that ends the lifetime of most values; among equals,
    the one whose last operand was computed last."""
    waiting = [len(readers) for readers in links.readers]
    missing = [len(needs) for needs in links.needs]
    since = [0] * len(missing)
    done = bytearray(len(missing))

    def cost(k: int) -> int:
        return (1 if links.readers[k] else 0) - sum(1 for need in links.needs[k] if waiting[need] == 1)

    ready = [(cost(k), 0, k) for k, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        known, _, k = heapq.heappop(ready)
        if done[k] or known != cost(k):
            continue  # the cost is out of date, and the heap has a newer entry
        done[k] = 1
        order.append(k)
        updated = []
        for need in links.needs[k]:
            waiting[need] -= 1
            if waiting[need] == 1:
                updated += [reader for reader in links.readers[need] if not done[reader] and not missing[reader]]
        for reader in links.readers[k]:
            missing[reader] -= 1
            if not missing[reader]:
                since[reader] = len(order)
                updated.append(reader)
        for each in updated:
            heapq.heappush(ready, (cost(each), -since[each], each))
    return order


def _live(program: Program, operations: Sequence[Operation]) -> tuple[int, ...]:
    """Live nodes in an order from which `lower` makes the operations in the given order."""
    nodes = program.nodes
    live = [node for node in program.live if nodes[node][0] in (CONSTANT, INPUT)]
    seen = set(live)
    for operation in operations:
        results = [node for node in operation.results if node >= 0]
        # Operands that are not in the list yet are products inside a sum.
        read = (operand for node in results for operand in operands(nodes[node]))
        for node in (*read, *results):
            if node not in seen:
                seen.add(node)
                live.append(node)
    return tuple(live)
