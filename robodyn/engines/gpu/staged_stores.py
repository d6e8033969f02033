"""Staged stores: results with long rows go to memory through a window in shared memory, in whole cache lines.

A row of a gradient does not fit in a thread's share of shared memory. If each thread stored its scalars as they are
computed, each scalar would go to a memory sector of its own and fill an eighth of it. A quadruped's gradient would then
take seven times as long as its bytes need.

So threads collect scalars in a window until it is full. Then the warp stores the complete cache lines, or an incomplete
line if none is complete. The rows of all states in progress exceed the cache. A line that is stored in two parts
therefore goes to memory twice, and a partly stored sector is first read from memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from robodyn.compile.c.body import BEGINNING, Dialect
from robodyn.compile.loops.gpu import from_lane, unrolled
from robodyn.compile.loops.language import Array, Integer, Scalar, Static, Word, routine, shifted
from robodyn.compile.lowering import Operation
from robodyn.compile.tracing.expression import CONSTANT, INPUT
from robodyn.compile.tracing.program import Port, Program
from robodyn.engines.gpu.functions import Functions
from robodyn.engines.gpu.source import WARP
from robodyn.internals.records import dataclass

LINE_BYTES = 128
"""Bytes of a cache line."""
MAX_SLOTS = 256
"""Scalars of the largest window for each lane: a slot's index is a byte in the kernel's code."""
_MANY, _SECTOR_BYTES = 64, 32
"""Runs of at least _MANY neighbouring scalars are stored line by line. A line consists of sectors of _SECTOR_BYTES; a
store to a part of a sector makes the cache read the rest from memory."""
_SHARE_OF_NUMBERS = 4
"""Constants that stay in the window take at most 1 / _SHARE_OF_NUMBERS of it."""


def _waiting_place(k: Integer, a: Word, b: Word, c: Word, d: Word) -> Integer:
    """The slot of scalar k of 32: byte k of the four words."""
    word = a if k < 8 else b if k < 16 else c if k < 24 else d
    return Integer(shifted(word, k % 8 * 8) & 255)


@routine
def flush(
    rows: Array[Scalar],
    window: Array[Scalar],
    count: Integer,
    lane: Integer,
    a: Word,
    b: Word,
    c: Word,
    d: Word,
    width: Static[int],
    size: Static[int],
    row: Static[int],
) -> None:
    """A warp stores `width` neighbouring scalars of each of its rows from `window`.

    `size`: scalars of a row; `row`: stride of the window's rows, one for each lane. The number of lanes that share a
    row is the next power of two of `width`.
    """
    lanes = 1 << (width - 1).bit_length()
    r, k = lane // lanes, lane % lanes
    source, to = window + r * row + _waiting_place(k, a, b, c, d), rows + r * size + k
    for first in unrolled(0, WARP, WARP // lanes, times=8):
        if first + r < count and k < width:
            to[Word(first) * size] = source[first * row]


@routine
def flush_lines(
    rows: Array[Scalar],
    window: Array[Scalar],
    count: Integer,
    lane: Integer,
    width: Static[int],
    size: Static[int],
    row: Static[int],
    start: Static[int],
    line: Static[int],
    words: Static[tuple[int, ...]],
) -> None:
    """A warp stores many neighbouring scalars of rows whose length is no multiple of a sector, line by line.

    Lines begin at a different scalar of each row. Lanes load scalars from the window in their order, and each scalar
    moves to another lane, by the distance of the row's start from the beginning of a line.

    `start`: index of the first scalar in its row; `line`: scalars of a line; `words`: four words with the slots of each
    32 scalars.
    """
    chunks = len(words) // 4
    places = [_waiting_place(lane, *words[4 * j : 4 * j + 4]) for j in range(chunks)]
    for r in unrolled(count, times=2):
        behind = (start + r * size) % line
        other = (lane - behind) & (WARP - 1)
        before: Scalar = 0.0
        for j in range(chunks + 1):
            moved = from_lane(window[r * row + places[j]], other) if j < chunks else 0.0
            k = WARP * j + lane - behind
            if 0 <= k < width:
                rows[Word(r) * size + k] = before if lane < behind else moved
            before = moved


_Place = tuple[int, int]
"""The index of an output, and of one of its scalars."""
_Line = tuple[int, int]
"""The index of an output, and of a line in each of its rows."""


@dataclass(frozen=True)
class Run:
    """Neighbouring scalars of an output: the index of the first, and the window's slot of each."""

    port: Port
    start: int
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Batch:
    """Scalars that are stored together, after the operation of `node`, or at the beginning. `others`: those of them
    that are inputs or constants, which no operation computes."""

    node: int
    runs: tuple[Run, ...]
    others: tuple[tuple[Port, int], ...]


class _Slots:
    """Allocates the slots of a window: `count` slots, and more if they do not suffice.

    `banks`: a warp loads so many scalars of shared memory at once, if their slots differ modulo this number.
    """

    def __init__(self, count: int, banks: int) -> None:
        self._free = [list(range(bank, count, banks))[::-1] for bank in range(banks)]
        self._count = count
        self.used = 0
        """One more than the highest slot that was ever taken."""

    def take(self, number: int) -> int:
        """Take a slot for scalar `number` of a row. Neighbouring scalars get different banks if possible."""
        free = self._free[number % len(self._free)] or max(self._free, key=len)
        if not free:
            free.append(self._count)
            self._count += 1
        place = free.pop()
        self.used = max(self.used, place + 1)
        return place

    def give(self, place: int) -> None:
        """Free a slot."""
        self._free[place % len(self._free)].append(place)


class Window:
    """Assigns window slots to a program's results, and decides when they are stored.

    `slots`: the slot of each scalar of the results. The window has `size` slots, or more if one operation's value is a
    result in more places. `numbers`: constants that are results in several places, with their slots. They stay in the
    window.

    `operations`: the program's operations in order; `itemsize`: bytes of a scalar.
    """

    def __init__(self, program: Program, operations: Sequence[Operation], size: int, itemsize: int) -> None:
        self.program = program
        self.slots: dict[_Place, int] = {}
        self.made = replace(program, outputs=tuple(self._only_made(port) for port in program.outputs))
        """The program without results that are inputs or constants."""
        ports = (program.outputs, self.made.outputs)
        self._ports = {id(port): k for each in ports for k, port in enumerate(each)}
        self._itemsize, self._length = itemsize, LINE_BYTES // itemsize
        self._free = _Slots(size, self._length)
        self.batches: list[Batch] = []
        self._waiting: dict[_Line, list[_Place]] = defaultdict(list)
        self._still: dict[_Line, list[_Place]] = defaultdict(list)
        """Results that are constants in `numbers`, by their lines."""
        self.numbers = self._shared_numbers(size)
        self._arrivals: dict[_Line, list[int]] = defaultdict(list)
        """The times when each line's scalars are computed, the last first. A time is the index of an operation."""
        self._fill(operations, size)

    def _shared_numbers(self, size: int) -> list[tuple[float, int]]:
        """Assign slots to the most frequent constants among the results. Returns the constants and their slots."""
        places: dict[str, list[_Place]] = defaultdict(list)
        for port_number, port in enumerate(self.program.outputs):
            for k in range(port.size):
                number = self._number(port, k)
                if number is not None:
                    places[repr(number)].append((port_number, k))
        several = sorted((each for each in places.items() if len(each[1]) > 1), key=lambda each: -len(each[1]))
        numbers = []
        for text, held in several[: max(1, size // _SHARE_OF_NUMBERS)]:
            slot = self._free.take(held[0][1])
            numbers.append((float(text), slot))
            for place in held:
                self.slots[place] = slot
                self._still[self._line(place)].append(place)
        return numbers

    def _fill(self, operations: Sequence[Operation], size: int) -> None:
        """Assign a slot to each scalar at the time when it is computed, and store lines when the window is full."""
        made = {node: k for k, operation in enumerate(operations) for node in operation.results}
        arrivals = sorted(
            (time, not self._is_made(port.scalars[k]), (number, k))
            for number, port in enumerate(self.program.outputs)
            for k, time in enumerate(_times(port, made))
            if (number, k) not in self.slots
        )
        for time, _, place in reversed(arrivals):
            self._arrivals[self._line(place)].append(time)
        most, node = size - len(self.numbers), BEGINNING
        # An operation's value enters all its slots at once. Inputs and constants enter one by one, just before their
        # store.
        for (time, *_), group in groupby(arrivals, key=lambda each: (each[0], each[1] and each[2])):
            places = [place for _, _, place in group]
            self._make_room(most - len(places), node, time)
            for place in places:
                self._arrivals[self._line(place)].pop()
                self._waiting[self._line(place)].append(place)
                self.slots[place] = self._free.take(place[1])
            node = BEGINNING if time < 0 else max(operations[time].results)
        for line in self._still:
            self._waiting.setdefault(line, [])
        self._make_room(-1, node, len(operations))

    @property
    def room(self) -> int:
        """The number of slots in use, for each lane."""
        return self._free.used

    def _line(self, place: _Place) -> _Line:
        return place[0], place[1] // self._length

    def _make_room(self, most: int, node: int, time: int) -> None:
        """Store lines until the window holds at most `most` scalars.

        Complete lines are stored first, then those that would take the most slots for the longest time.
        """

        def kept(line: _Line) -> tuple[bool, int]:
            comes = self._arrivals[line]
            return not comes, (comes[-1] - time if comes else 1) * len(self._waiting[line])

        count = sum(map(len, self._waiting.values()))
        gone: list[_Place] = []
        for line in sorted(self._waiting, key=kept, reverse=True) if count > most else ():
            if count <= most and self._arrivals[line]:
                break
            leaving = self._waiting.pop(line)
            count -= len(leaving)
            gone += leaving + self._still.pop(line, [])
            for place in leaving:
                self._free.give(self.slots[place])
        if gone:
            self.batches.append(self._batch(gone, node))

    def _is_made(self, scalar: int | float) -> bool:
        """Whether an operation computes the scalar: it is neither an input nor a constant."""
        return isinstance(scalar, int) and self.program.nodes[scalar][0] > INPUT

    def _number(self, port: Port, k: int) -> float | None:
        """The value of an output's scalar, if it is a constant; else None."""
        scalar = port.scalars[k]
        if not isinstance(scalar, int):
            return float(scalar)
        operation, value, _ = self.program.nodes[scalar]
        return float(value) if operation == CONSTANT else None

    def _only_made(self, port: Port) -> Port:
        return port.without([not self._is_made(scalar) for scalar in port.scalars])

    def _batch(self, gone: Sequence[_Place], node: int) -> Batch:
        places, ports, numbers = sorted(gone), self.program.outputs, {slot for _, slot in self.numbers}
        others = tuple(
            (ports[port], k)
            for port, k in places
            if not self._is_made(ports[port].scalars[k]) and self.slots[port, k] not in numbers
        )
        return Batch(node, tuple(self._runs(places)), others)

    def _runs(self, places: Sequence[_Place]) -> Iterator[Run]:
        start = 0
        for k in range(1, len(places) + 1):
            number, first = places[start]
            if k == len(places) or places[k] != (number, first + k - start):
                slots = tuple(self.slots[place] for place in places[start:k])
                yield Run(self.program.outputs[number], first, slots)
                start = k

    def slot(self, port: Port, k: int) -> int:
        """The slot of a scalar."""
        return self.slots[self._ports[id(port)], k]

    def statements(
        self, dialect: Dialect, functions: Functions, inputs: Mapping[int, str], rows: Mapping[int, str], row: int
    ) -> dict[int, list[str]]:
        """The statements to insert after nodes, or at the beginning (`BEGINNING`), by node.

        Args:
            dialect: prints numbers.
            functions: the device functions that the statements call are added here.
            inputs: expressions of nodes that are inputs.
            rows: pointers to the first row of the warp, by the `id` of an output.
            row: stride of the window's rows, in scalars.
        """
        statements = {BEGINNING: [f"mine[{slot}] = {dialect.number(number)};" for number, slot in self.numbers]}
        for batch in self.batches:
            lines = statements.setdefault(batch.node, [])
            for port, k in batch.others:
                number = self._number(port, k)
                value = inputs[int(port.scalars[k])] if number is None else dialect.number(number)
                lines.append(f"mine[{self.slot(port, k)}] = {value};")
            lines.append("__syncwarp();")
            lines += [line for run in batch.runs for line in self._flushes(functions, run, rows[id(run.port)], row)]
            lines.append("__syncwarp();")
        return statements

    def _flushes(self, functions: Functions, run: Run, rows: str, row: int) -> Iterator[str]:
        """The statements that store a run."""
        size, width = run.port.size, len(run.slots)
        known: dict[str, Any] = {"read": ("window",), "alone": ("rows",), "size": size, "row": row}
        if width >= _MANY and size * self._itemsize % _SECTOR_BYTES:
            words = [word for first in range(0, width, WARP) for word in _packed(run.slots[first : first + WARP])]
            line = functions.name(
                flush_lines, **known, width=width, start=run.start, line=self._length, words=tuple(words)
            )
            yield f"{line}({rows} + {run.start}, window, count, lane);"
            return
        for first in range(0, width, WARP):
            slots = run.slots[first : first + WARP]
            where = ", ".join(f"{word:#x}ll" for word in _packed(slots))
            name = functions.name(flush, **known, width=len(slots))
            yield f"{name}({rows} + {run.start + first}, window, count, lane, {where});"


def _times(port: Port, at: Mapping[int, int]) -> list[int]:
    """The time when each scalar of an output enters the window.

    Inputs and constants enter with the next computed scalar of the output or, if there is none, with the one before.
    """
    made = [at.get(scalar) if isinstance(scalar, int) else None for scalar in port.scalars]
    times, following = [-1] * len(made), None
    for k in range(len(made) - 1, -1, -1):
        following = made[k] if made[k] is not None else following
        times[k] = -1 if following is None else following
    before = -1
    for k, time in enumerate(times):
        before = times[k] = before if time < 0 else time
    return times


def _packed(slots: Sequence[int]) -> list[int]:
    """The slots of at most 32 scalars, as the bytes of four words."""
    return [int(word) for word in np.frombuffer(bytes(slots).ljust(WARP, b"\0"), "<i8")]
