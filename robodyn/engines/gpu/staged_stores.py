"""Results with long rows on their way to memory: a few at a time, through a window of shared memory.

A row of a gradient is longer than the shared memory that a thread can have. Written as they come, each scalar of a
warp's 32 states goes to a sector of memory of its own, of which it fills an eighth: a quadruped's gradient took seven
times as long as its bytes. So threads keep scalars in a window until it is full. Then the warp writes what makes up
whole lines of memory, and only if there is none, a part of one: rows of all states that a GPU works on at a time are
more than its cache holds, so a line that is written in two parts goes to memory twice, and parts of a sector are read
from there before.
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
"""What a cache takes from memory and gives back, if all of it is there at once."""
MAX_SLOTS = 256
"""Scalars of the largest window: where one waits is a byte of the code."""
_MANY, _SECTOR_BYTES = 64, 32
"""Neighbours that are written line by line, and what a line consists of: where a part of one is written, the rest of it
is read before."""
_SHARE_OF_NUMBERS = 4
"""Numbers that stay in the window take at most this fraction of it."""


def _waiting_place(k: Integer, a: Word, b: Word, c: Word, d: Word) -> Integer:
    """Where scalar k of 32 waits: what byte k of the numbers says."""
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
    """A warp writes `width` neighbouring scalars of each of its rows, which are `size` long, from `window`, where `row`
    scalars belong to each lane. As many lanes as the next power of two share a row."""
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
    """The same for many scalars of rows whose length is no multiple of a sector: lanes write lines of memory, which
    begin elsewhere in each row. Scalars are read as they are, and each goes as many lanes on as its row begins behind a
    line.

    `start`: of the scalars in their rows; `line`: scalars of a line; `words`: the numbers for each 32 of them.
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
"""Which output, and which of its scalars."""
_Line = tuple[int, int]
"""Which output, and which of the lines that each of its rows is."""


@dataclass(frozen=True)
class Run:
    """Neighbouring scalars of an output: the first of them, and where each waits in the window."""

    port: Port
    start: int
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Batch:
    """What leaves the window at once: when `node` is there, or at the beginning; `others` are scalars that no operation
    makes."""

    node: int
    runs: tuple[Run, ...]
    others: tuple[tuple[Port, int], ...]


class _Slots:
    """Places of a window: n of them, and more if that does not do.

    `banks`: shared memory gives so many scalars at once that a warp reads, if their places differ modulo this number.
    """

    def __init__(self, count: int, banks: int) -> None:
        self._free = [list(range(bank, count, banks))[::-1] for bank in range(banks)]
        self._count = count
        self.used = 0
        """Places that were ever taken, and those before them."""

    def take(self, number: int) -> int:
        """A place for scalar `number` of a row: neighbours are in different banks where that is possible."""
        free = self._free[number % len(self._free)] or max(self._free, key=len)
        if not free:
            free.append(self._count)
            self._count += 1
        place = free.pop()
        self.used = max(self.used, place + 1)
        return place

    def give(self, place: int) -> None:
        """A place that is free again."""
        self._free[place % len(self._free)].append(place)


class Window:
    """Where each scalar of the results of a program waits, if there is room for `size` of them at once: `slots`. (One
    that is a result in more places than that needs room for all of them.) Numbers that are results in several places
    stay there: `numbers`, each with its place.

    `operations`: the program's, in their order; `itemsize`: bytes of a scalar.
    """

    def __init__(self, program: Program, operations: Sequence[Operation], size: int, itemsize: int) -> None:
        self.program = program
        self.slots: dict[_Place, int] = {}
        self.made = replace(program, outputs=tuple(self._only_made(port) for port in program.outputs))
        """The program without the scalars that no operation makes."""
        ports = (program.outputs, self.made.outputs)
        self._ports = {id(port): k for each in ports for k, port in enumerate(each)}
        self._itemsize, self._length = itemsize, LINE_BYTES // itemsize
        self._free = _Slots(size, self._length)
        self.batches: list[Batch] = []
        self._waiting: dict[_Line, list[_Place]] = defaultdict(list)
        self._still: dict[_Line, list[_Place]] = defaultdict(list)
        """Places of numbers that stay, by the lines that they leave with."""
        self.numbers = self._shared_numbers(size)
        self._arrivals: dict[_Line, list[int]] = defaultdict(list)
        """When each line's scalars come, the last first."""
        self._fill(operations, size)

    def _shared_numbers(self, size: int) -> list[tuple[float, int]]:
        """Numbers that are results in several places, the most frequent ones, and where they stay."""
        places: dict[str, list[_Place]] = defaultdict(list)
        for port_number, port in enumerate(self.program.outputs):
            for k in range(port.size):
                number = self._number(port, k)
                if number is not None:
                    places[repr(number)].append((port_number, k))
        several = sorted((each for each in places.items() if len(each[1]) > 1), key=lambda each: -len(each[1]))
        found = []
        for text, held in several[: max(1, size // _SHARE_OF_NUMBERS)]:
            slot = self._free.take(held[0][1])
            found.append((float(text), slot))
            for place in held:
                self.slots[place] = slot
                self._still[self._line(place)].append(place)
        return found

    def _fill(self, operations: Sequence[Operation], size: int) -> None:
        """Let every scalar in when it is there, and lines out when they must go."""
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
        # An operation's results are stored at once; others come one by one, and are stored when they leave.
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
        """Scalars of the window that are used."""
        return self._free.used

    def _line(self, place: _Place) -> _Line:
        return place[0], place[1] // self._length

    def _make_room(self, most: int, node: int, time: int) -> None:
        """Let lines go until no more than `most` scalars wait: whole ones, and if these do not do, those that keep the
        most room for the longest time."""

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
        """Whether an operation makes it."""
        return isinstance(scalar, int) and self.program.nodes[scalar][0] > INPUT

    def _number(self, port: Port, k: int) -> float | None:
        """The number that a scalar of an output is, if it is one."""
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
        """Where a scalar waits."""
        return self.slots[self._ports[id(port)], k]

    def statements(
        self, dialect: Dialect, functions: Functions, inputs: Mapping[int, str], rows: Mapping[int, str], row: int
    ) -> dict[int, list[str]]:
        """What stands behind nodes, or at the beginning (`BEGINNING`).

        Args:
            dialect: how numbers are spelt.
            functions: what is called.
            inputs: expressions for nodes that are inputs.
            rows: pointers to the first row of the warp, by the `id` of an output.
            row: scalars of the window from one lane to the next.
        """
        found = {BEGINNING: [f"mine[{slot}] = {dialect.number(number)};" for number, slot in self.numbers]}
        for batch in self.batches:
            lines = found.setdefault(batch.node, [])
            for port, k in batch.others:
                number = self._number(port, k)
                value = inputs[int(port.scalars[k])] if number is None else dialect.number(number)
                lines.append(f"mine[{self.slot(port, k)}] = {value};")
            lines.append("__syncwarp();")
            lines += [line for run in batch.runs for line in self._flushes(functions, run, rows[id(run.port)], row)]
            lines.append("__syncwarp();")
        return found

    def _flushes(self, functions: Functions, run: Run, rows: str, row: int) -> Iterator[str]:
        """Statements that write a run."""
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
    """When each scalar of an output is there: what no operation makes comes with the next that one makes, or else with
    the one before it."""
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
    """Four words that hold the places of 32 scalars at most, a byte each."""
    return [int(word) for word in np.frombuffer(bytes(slots).ljust(WARP, b"\0"), "<i8")]
