"""When each operation begins, and which multiplier it uses.

All datapaths are modulo schedules: every `interval` cycles another state enters, and each operation begins in the same
cycle after its state came in. With an interval of 1 every product has a multiplier of its own (spatial); with one as
long as the latency there is one state inside at a time (shared); between them n products need n / interval multipliers
(Rau, Iterative modulo scheduling, 1994; without loops a list in order of priority is enough). Sums have adders of their
own: what would choose between an adder's operands is larger than the adder.
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
    """A datapath in time.

    Args:
        latency: cycles from when a state has been taken until its results are there.
        interval: cycles from one state to the next.
        multipliers: how many there are.
        start: cycle in which an operation reads its operands, by node.
        ready: cycle from which on a value can be read, by node; inputs are there in cycle 0.
        unit: the multiplier of a product, by node.
        copies: for how many states at once a value is kept, by node: one that is read n cycles after it was there moves
            on to another register every `interval` cycles.
    """

    latency: int
    interval: int
    multipliers: int
    start: Mapping[int, int]
    ready: Mapping[int, int]
    unit: Mapping[int, int]
    copies: Mapping[int, int]

    def copy(self, index: int, cycle: int) -> int:
        """Which register of a value holds it for the state that is in some cycle."""
        return (cycle - self.ready[index]) // self.interval


def products(program: Program) -> int:
    """How many products a program has."""
    return sum(program.nodes[index][0] == MUL for index in program.live)


def shortest(program: Program) -> int:
    """Cycles that any schedule takes."""
    ends = _to_the_end(program)
    return max(ends.values(), default=0)


def scheduled(program: Program, multipliers: int, interval: int | None) -> Schedule:
    """A schedule for that many multipliers, with a state every `interval` cycles; None: one state at a time."""
    start, unit = _start_cycles(program, multipliers, interval)
    ready = {
        index: start[index] + cycles_of(program.nodes[index][0]) if index in start else 0 for index in program.live
    }
    outputs = [s for s in output_scalars(program) if isinstance(s, int)]
    latency = max((ready[node] for node in outputs), default=0)
    # A longer interval is none: nothing is inside any more, and the next state is taken at once.
    every = max(1, latency if interval is None else min(interval, latency))
    last = dict(ready)
    for index in start:
        for operand in _operands(program, index):
            last[operand] = max(last[operand], start[index])
    for node in outputs:
        last[node] = latency
    copies = {index: (last[index] - ready[index]) // every + 1 for index in program.live}
    return Schedule(latency, every, multipliers, start, ready, unit, copies)


def _operands(program: Program, index: int) -> list[int]:
    """Those that are no constants: constants are there always."""
    operation, a, b = program.nodes[index]
    if operation in (CONSTANT, INPUT):
        return []
    return [each for each in (a, b) if each >= 0 and program.nodes[each][0] != CONSTANT]


def _to_the_end(program: Program) -> dict[int, int]:
    """Cycles from the start of an operation to the last result that needs it."""
    rest = dict.fromkeys(program.live, 0)
    whole: dict[int, int] = {}
    for index in reversed(program.live):
        operation = program.nodes[index][0]
        whole[index] = rest[index] + (0 if operation in (CONSTANT, INPUT) else cycles_of(operation))
        for operand in _operands(program, index):
            rest[operand] = max(rest[operand], whole[index])
    return whole


def _start_cycles(program: Program, multipliers: int, interval: int | None) -> tuple[dict[int, int], dict[int, int]]:
    """Cycles in which operations begin, and the units of products: of those that could begin, the ones that are
    farthest from the end are first."""
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
