"""Assigns each operation a start cycle, and each product a multiplier.

All datapaths are modulo schedules: every `interval` cycles a state enters, and each operation starts in a fixed cycle
of its state. n products need n / interval multipliers. An interval of 1 gives every product its own multiplier; an
interval as long as the latency shares multipliers most, with one state in the circuit at a time. Source: Rau, Iterative
modulo scheduling, 1994; without loops, list scheduling by priority suffices. Each sum has its own adder, because
multiplexers for shared operands are larger than an adder.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from robodyn.compile.tracing.expression import CONSTANT, INPUT, MUL
from robodyn.compile.tracing.program import Program
from robodyn.internals.records import dataclass
from robodyn.tools.hardware.passes import cycles_of
from robodyn.tools.hardware.program import output_scalars


@dataclass(frozen=True)
class Schedule:
    """The schedule of a datapath.

    Args:
        latency: cycles from the input of a state to its results.
        interval: cycles between consecutive states.
        multipliers: number of multipliers.
        start: cycle in which an operation reads its operands, by node.
        ready: first cycle in which a value can be read, by node; inputs are ready in cycle 0.
        unit: the multiplier of a product, by node.
        copies: number of registers of a value, by node: one for each state whose value is needed at the same time. A
            value shifts to the next register every `interval` cycles.
    """

    latency: int
    interval: int
    multipliers: int
    start: Mapping[int, int]
    ready: Mapping[int, int]
    unit: Mapping[int, int]
    copies: Mapping[int, int]

    def copy(self, index: int, cycle: int) -> int:
        """The register that holds a value for the state that is in this cycle."""
        return (cycle - self.ready[index]) // self.interval


def products(program: Program) -> int:
    """The number of products of a program."""
    return sum(program.nodes[index][0] == MUL for index in program.live)


def shortest(program: Program) -> int:
    """The least latency of any schedule, in cycles."""
    ends = _to_the_end(program)
    return max(ends.values(), default=0)


def scheduled(program: Program, multipliers: int, interval: int | None) -> Schedule:
    """A schedule for a number of multipliers, with a state every `interval` cycles; None: one state at a time."""
    start, unit = _start_cycles(program, multipliers, interval)
    ready = {
        index: start[index] + cycles_of(program.nodes[index][0]) if index in start else 0 for index in program.live
    }
    outputs = [s for s in output_scalars(program) if isinstance(s, int)]
    latency = max((ready[node] for node in outputs), default=0)
    # With a longer interval than the latency the circuit would be empty and take the next state at once.
    cycles_per_state = max(1, latency if interval is None else min(interval, latency))
    last = dict(ready)
    for index in start:
        for operand in _operands(program, index):
            last[operand] = max(last[operand], start[index])
    for node in outputs:
        last[node] = latency
    copies = {index: (last[index] - ready[index]) // cycles_per_state + 1 for index in program.live}
    return Schedule(latency, cycles_per_state, multipliers, start, ready, unit, copies)


def _operands(program: Program, index: int) -> list[int]:
    """Operands of a node without constants, which are always available."""
    operation, a, b = program.nodes[index]
    if operation in (CONSTANT, INPUT):
        return []
    return [each for each in (a, b) if each >= 0 and program.nodes[each][0] != CONSTANT]


def _to_the_end(program: Program) -> dict[int, int]:
    """Cycles from the start of an operation to the last result that needs it."""
    rest = dict.fromkeys(program.live, 0)
    total: dict[int, int] = {}
    for index in reversed(program.live):
        operation = program.nodes[index][0]
        total[index] = rest[index] + (0 if operation in (CONSTANT, INPUT) else cycles_of(operation))
        for operand in _operands(program, index):
            rest[operand] = max(rest[operand], total[index])
    return total


def _start_cycles(program: Program, multipliers: int, interval: int | None) -> tuple[dict[int, int], dict[int, int]]:
    """Start cycles of operations, and multipliers of products. Among operations that could start, the one with the
    longest path to the end goes first."""
    priority = _to_the_end(program)
    missing: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    queue: list[tuple[int, int, int]] = []  # cycle, less urgent, node
    earliest: dict[int, int] = {}
    for index in program.live:
        if program.nodes[index][0] in (CONSTANT, INPUT):
            continue
        waits = {each for each in _operands(program, index) if program.nodes[each][0] != INPUT}
        missing[index], earliest[index] = len(waits), 0
        for each in waits:
            readers.setdefault(each, []).append(index)
        if not waits:
            queue.append((0, -priority[index], index))
    heapq.heapify(queue)
    taken: dict[int, int] = {}
    start, unit = {}, {}
    while queue:
        cycle, rank, index = heapq.heappop(queue)
        if program.nodes[index][0] == MUL:
            phase = cycle if interval is None else cycle % interval
            if taken.get(phase, 0) == multipliers:
                heapq.heappush(queue, (cycle + 1, rank, index))
                continue
            unit[index] = taken.get(phase, 0)
            taken[phase] = unit[index] + 1
        start[index] = cycle
        done = cycle + cycles_of(program.nodes[index][0])
        for reader in readers.get(index, ()):
            earliest[reader] = max(earliest[reader], done)
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(queue, (earliest[reader], -priority[reader], reader))
    return start, unit
