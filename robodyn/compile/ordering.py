"""In which order a program's operations run, so that few values wait for their readers at once.

A GPU's thread has 255 registers of 32 bits; values beyond them go through memory. Compilers keep about the order that
they are given, and a traced program runs outward over all bodies before it runs inward, so that on a tree with branches
every leg waits for all others. Finding the best order is hard; one of a few simple ones is good.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

from robodyn.compile.lowering import Operation, lower, stored_nodes
from robodyn.compile.tracing.expression import CONSTANT, INPUT
from robodyn.compile.tracing.program import Program
from robodyn.internals.tuning import ORDERED_OPERATIONS


def values_alive(operations: Sequence[Operation]) -> int:
    """The most results that wait for readers at once. Inputs do not count, for they can be read again; nor do results
    that are only stored, for they leave at once."""
    last = {node: k for k, operation in enumerate(operations) for node in operation.operands}
    made: set[int] = set()
    most = 0
    for k, operation in enumerate(operations):
        made -= {node for node in operation.operands if last[node] == k}
        made |= {node for node in operation.results if node in last}
        most = max(most, len(made))
    return most


def in_short_order(program: Program) -> Program:
    """The same program with its operations in the order, of a few, in which fewest values wait."""
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
    """Which operations read which: all by place in a list of operations.

    `needs`: what each reads, once each; `readers`: what reads each; `roots`: those that outputs take, in their order.
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
    """All that a result needs, before the next result; of two operands, the one that needs more registers first."""
    registers = [1] * len(links.needs)
    for k, needs in enumerate(links.needs):  # Sethi and Ullman's numbers, as if the graph were a tree
        ranked = sorted((registers[need] for need in needs), reverse=True)
        registers[k] = max([1, *(count + place for place, count in enumerate(ranked))])
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
    """Roots such that each adds as little as possible to what those before it need: results that share what they are
    made of come together."""
    needed: list[int] = []  # by each operation, itself included: a bit for each
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
    """Of the operations whose operands are there: the one that ends the wait of most values; of those alike, the one
    whose operands came last."""
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
            continue  # what it says of the cost is old: there is a newer entry
        done[k] = 1
        order.append(k)
        changed = []
        for need in links.needs[k]:
            waiting[need] -= 1
            if waiting[need] == 1:
                changed += [reader for reader in links.readers[need] if not done[reader] and not missing[reader]]
        for reader in links.readers[k]:
            missing[reader] -= 1
            if not missing[reader]:
                since[reader] = len(order)
                changed.append(reader)
        for each in changed:
            heapq.heappush(ready, (cost(each), -since[each], each))
    return order


def _live(program: Program, operations: Sequence[Operation]) -> tuple[int, ...]:
    """Nodes in an order of evaluation in which `lower` finds the operations in theirs."""
    nodes = program.nodes
    found = [node for node in program.live if nodes[node][0] in (CONSTANT, INPUT)]
    seen = set(found)
    for operation in operations:
        results = [node for node in operation.results if node >= 0]
        # Operands that are not there yet are products inside a sum.
        operands = (operand for node in results for operand in nodes[node][1:] if operand >= 0)
        for node in (*operands, *results):
            if node not in seen:
                seen.add(node)
                found.append(node)
    return tuple(found)
