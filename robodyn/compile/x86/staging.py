"""Rows of arrays into vectors of states and back, transposed in registers.

Rows are loaded in parts of 32 and of 16 bytes, each to its place in a register, and what each 16 bytes hold is
transposed by two-operand shuffles. Rows that are shorter, and those that are written, are transposed whole: first
within each 16 bytes of a register, then of 16 bytes among registers, in log2(W) rounds. Columns that nothing needs
cost nothing. Of a row's last scalars as many are moved as there are: in parts, or with a mask, but for those that are
written without mask registers: AMD's processors take a dozen cycles for a row by a vector that is a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from robodyn.compile.x86.forms import is_evex
from robodyn.compile.x86.instructions import (
    AHEAD,
    EVEN,
    EXTRACT,
    HIGH,
    HIGH_PAIRS,
    LOAD,
    LOAD_HALF,
    LOAD_LANE,
    LOAD_ROW,
    LOW,
    LOW_PAIRS,
    MASK,
    MOVE,
    ODD,
    ROW,
    ROWS,
    STORE_HIGH,
    STORE_LANE,
    STORE_LOW,
    STORE_ONE,
    STORE_ROW,
    STORE_SOME,
    Instruction,
)

Code: TypeAlias = list[Instruction]
_MASK = 1
"""The mask register."""
_NARROW: dict[int, dict[int, tuple[tuple[int, int], ...]]] = {
    8: {1: ((0, 1),), 2: ((0, 2),), 3: ((0, 2), (2, 1)), 4: ((0, 2), (2, 2))},
    4: {
        1: ((0, 1),),
        2: ((0, 2),),
        3: ((0, 3),),
        4: ((0, 4),),
        5: ((0, 4), (4, 1)),
        6: ((0, 4), (4, 2)),
        7: ((0, 4), (3, 4)),
        8: ((0, 4), (4, 4)),
    },
}
"""By the bytes of a scalar: numbers of columns for which whole rows take longer, and of their parts the first columns
and the sizes."""
_WITHOUT_MASKS = {3: ((0, 2), (2, 1))}
"""The same where there are no mask registers, if it is another."""
_LANE = 16
"""Bytes that most shuffles stay within."""


class Staging:
    """Writes the instructions of a block, W columns of W rows or less, on registers that it is given.

    Args:
        itemsize: bytes of a scalar.
        size: bytes of a register; mask registers are there where EVEX encodes instructions.
        mask: gives the place of a vector that is a mask of n scalars.
        vector: gives the place of a vector of constants.
    """

    def __init__(
        self, itemsize: int, size: int, mask: Callable[[int], int], vector: Callable[[tuple[int, ...]], int]
    ) -> None:
        wide = self.wide = is_evex(size)
        self.mask, self.vector = mask, vector
        self.width, self.lanes = size // itemsize, max(size // _LANE, 1)
        self.lane_size = self.width // self.lanes
        """Scalars in 16 bytes."""
        self.registers = self.width + 1
        """Registers that a block takes, unless it is loaded by a mask that is a vector."""
        parts = _NARROW[itemsize] if wide else _NARROW[itemsize] | _WITHOUT_MASKS
        self.narrow = {count: each for count, each in parts.items() if count < self.width}
        """Blocks of few columns that are written in parts of 16 bytes and less: the first column of each part, and how
        many it has. That takes fewer shuffles. A column of two parts is written twice."""

    def stored_registers(self, count: int, constant: bool) -> int:
        """Registers that it takes to store a block of columns; `constant`: all of them are constants."""
        if not self._in_parts(count, constant):
            return self.registers
        return sum(size + (size == 3) for _, size in self.narrow[count]) + 1

    def _in_parts(self, count: int, constant: bool) -> bool:
        """Whether a block is written in parts. Rows of constants alone need no shuffles, if there are masks."""
        return count in self.narrow and not (constant and self.wide)

    def blocks(self, size: int) -> Iterator[tuple[int, int]]:
        """First columns of the blocks of rows, and how many columns they have."""
        for start in range(0, size, self.width):
            yield start, min(self.width, size - start)

    def loaded_registers(self, start: int, needed: Sequence[bool]) -> int:
        """Registers that it takes to load a block of columns."""
        parts = self._loaded_parts(start, needed)
        if parts:
            return sum(size for _, size in parts) + 1
        return self.registers + (len(needed) < self.width and not self.wide)

    def _loaded_parts(self, start: int, needed: Sequence[bool]) -> list[tuple[int, int]]:
        """First columns and sizes of the parts of 32 and 16 bytes that have what is needed of a block; none where rows
        are shorter."""
        size, count, done = self.lane_size, len(needed), 0
        parts: list[tuple[int, int]] = []
        if start + count < size:
            return parts
        for column, wanted in enumerate(needed):
            if wanted and column >= done:
                half = self.lanes == 4 and start + count >= 2 * size and any(needed[column + size : column + 2 * size])
                parts.append((min(column, count - size * (1 + half)), size * (1 + half)))
                done = sum(parts[-1])
        return parts

    def load(self, rows: int, start: int, needed: Sequence[bool], registers: Sequence[int]) -> tuple[Code, list[int]]:
        """Columns from `start` on of rows whose address and offsets are at `rows`, and the register of each; of those
        that are not needed nothing is said.

        A part of a row goes to that register, and to that place in it, where it is in order once what each 16 bytes
        hold is transposed, and of halves those of two registers are brought together. Loads that put parts together
        take the place of shuffles, of which a processor does one at a time.
        """
        parts = self._loaded_parts(start, needed)
        if not parts:
            return self._load_rows(rows, start, needed, registers)
        lane_size, at, starts = self.lane_size, 0, []
        for _, size in parts:
            starts.append(at)
            at += size
        code: Code = [(ROWS, 0, 0, ~rows)]
        for row in range(self.width):
            code.append((ROW, 0, 0, ~(rows + 1 + row)))
            lane, place = divmod(row, lane_size)
            for at, (first, size) in zip(starts, parts, strict=True):
                if size == lane_size:
                    code.append((LOAD_LANE, registers[at + place], lane, start + first))
                else:
                    group, half = divmod(lane, 2)
                    code.append((LOAD_HALF, registers[at + group * lane_size + place], half, start + first))
        shuffles = Shuffles(self, registers[-1])
        columns = [registers[-1]] * len(needed)
        for at, (first, size) in zip(starts, parts, strict=True):
            found = shuffles.within_lanes(registers[at : at + lane_size])
            if size > lane_size:
                other = shuffles.within_lanes(registers[at + lane_size : at + size])
                pairs = [shuffles.pair(EVEN, ODD, *pair) for pair in zip(found, other, strict=True)]
                found = (*(even for even, _ in pairs), *(odd for _, odd in pairs))
            for column, register in enumerate(found, first):
                if column >= 0:
                    columns[column] = register
        code += _live(shuffles.code, {column for column, wanted in zip(columns, needed, strict=True) if wanted})
        return code, columns

    def _load_rows(
        self, rows: int, start: int, needed: Sequence[bool], registers: Sequence[int]
    ) -> tuple[Code, list[int]]:
        """The same by whole rows."""
        code, mask = self._masked(len(needed), registers)
        code.append((ROWS, 0, 0, ~rows))
        for k in range(self.width):
            code += [(ROW, 0, 0, ~(rows + 1 + k)), (LOAD_ROW, registers[k], mask, start)]
        shuffles, columns = self._transposed(registers)
        code += _live(shuffles, {column for column, wanted in zip(columns, needed, strict=False) if wanted})
        return code, columns

    def store(
        self,
        rows: int,
        start: int,
        count: int,
        registers: Sequence[int],
        constants: Mapping[int, int],
        more: bool = False,
    ) -> Code:
        """The first registers as columns from `start` on; `more`: there are columns behind them.

        Most rows do not begin with a cache line, so that 64 bytes lie in two. A processor that is to write them fetches
        the first while others are written, but waits for the second, which is fetched here meanwhile. Behind the last
        columns begins the next row, which is there already.

        `constants`: registers that are free to hold a constant, and which one. Constants are shuffled here, not by the
        processor: much of most results is zero.
        """
        if self._in_parts(count, constants.keys() >= set(registers[:count])):
            return self._narrow(rows, start, count, registers, constants)
        shuffles, found = self._transposed(registers, constants)
        code, mask = self._masked(count, registers)
        shuffles = _live(_defined(shuffles, set(registers[:count])), set(found))
        code = [*shuffles, *code, (ROWS, 0, 0, ~rows)]
        if more and self.lanes == 4:
            ahead = [((ROW, 0, 0, ~(rows + 1 + k)), (AHEAD, 0, 0, start + count)) for k in range(self.width)]
            code = [(ROWS, 0, 0, ~rows), *(each for pair in ahead for each in pair), *code]
        for k, register in enumerate(found):
            code += [(ROW, 0, 0, ~(rows + 1 + k)), (STORE_ROW, register, mask, start)]
        return code

    def _narrow(
        self, rows: int, start: int, count: int, registers: Sequence[int], constants: Mapping[int, int]
    ) -> Code:
        """A block of few columns; the last register is spare, and those before it take what is written twice."""
        spare, more = registers[-1], list(registers[count:-1])
        code: Code = [(LOAD, register, 0, ~self.vector((value,) * self.width)) for register, value in constants.items()]
        parts, done = [], 0
        for first, size in self.narrow[count]:
            twice = [more.pop() for _ in range(first, done)]
            code += [(MOVE, copy, 0, registers[first + k]) for k, copy in enumerate(twice)]
            parts.append((first, [*twice, *registers[first + len(twice) : first + size]]))
            done = first + size
            if size == 3:
                code.append((MASK, 0, _MASK, size))
        code.append((ROWS, 0, 0, ~rows))
        for first, columns in parts:
            part = len(columns)
            for row, each in enumerate(self._joined(code, [*columns, *more], spare)):
                code += self._parts(rows, start + first, part, row, each, columns[-1] if part > 1 else spare)
        return code

    @staticmethod
    def _joined(code: Code, columns: Sequence[int], spare: int) -> list[int]:
        """Columns side by side: each register has scalars of every n-th row, from its own number on."""
        if len(columns) == 1:
            return list(columns)
        a, b = columns[:2]
        code += [(LOW, spare, a, b), (HIGH, a, a, b)]
        if len(columns) == 2:
            return [spare, a]
        c, d = columns[2:]
        code += [(LOW, b, c, d), (HIGH, c, c, d)]
        code += [(LOW_PAIRS, d, spare, b), (HIGH_PAIRS, spare, spare, b)]
        code += [(LOW_PAIRS, b, a, c), (HIGH_PAIRS, a, a, c)]
        return [d, spare, b, a]

    def _parts(self, rows: int, start: int, part: int, first: int, register: int, spare: int) -> Code:
        """Write one of the registers of `_joined`: each 16 bytes are `size / part` rows."""
        size = self.lane_size
        code: Code = []
        for lane in range(self.lanes):
            row = rows + 1 + size * lane
            if part == size:
                code += [(ROW, 0, 0, ~(row + first)), (STORE_LANE, register, lane, start)]
                continue
            if lane:
                code.append((EXTRACT, spare, lane, register))
            source = spare if lane else register
            if part > size // 2:
                # Not where 16 bytes are taken out: the processor wants memory behind the last row for these.
                code += [(ROW, 0, 0, ~(row + first)), (STORE_SOME, source, 0, start)]
            elif 2 * part == size:
                for half, half_store in enumerate((STORE_LOW, STORE_HIGH)):
                    code += [(ROW, 0, 0, ~(row + 2 * first + half)), (half_store, source, 0, start)]
            else:
                for k in range(size):
                    code += [(ROW, 0, 0, ~(row + k)), (STORE_ONE, source, k, start)]
        return code

    def _masked(self, count: int, registers: Sequence[int]) -> tuple[Code, int]:
        """The mask of n scalars: a mask register, or to load by a vector; -1 of all."""
        if count == self.width:
            return [], -1
        if self.wide:
            return [(MASK, 0, _MASK, count)], _MASK
        return [(LOAD, registers[-1], 0, ~self.mask(count))], registers[-1]

    def _transposed(
        self, registers: Sequence[int], constants: Mapping[int, int] = MappingProxyType({})
    ) -> tuple[Code, list[int]]:
        """Shuffles of W registers, the next one being spare, and where each column is then."""
        shuffles = Shuffles(self, registers[self.width], constants)
        pair, parts = shuffles.pair, self.lane_size
        groups = [shuffles.within_lanes(registers[g : g + parts]) for g in range(0, self.width, parts)]
        columns = [0] * self.width
        for p in range(parts):
            lanes = [group[p] for group in groups]
            found: tuple[int, ...]
            if self.lanes == 4:
                (even, odd), (even2, odd2) = pair(EVEN, ODD, *lanes[:2]), pair(EVEN, ODD, *lanes[2:])
                (first, third), (second, fourth) = pair(EVEN, ODD, even, even2), pair(EVEN, ODD, odd, odd2)
                found = first, second, third, fourth
            else:
                found = pair(EVEN, ODD, *lanes)
            for j, register in enumerate(found):
                columns[parts * j + p] = register
        return shuffles.code, [shuffles.made(register) for register in columns]


class Shuffles:
    """Writes shuffles of registers.

    Args:
        staging: says how wide registers are, and where vectors of constants lie.
        spare: a register beside those that are shuffled.
        constants: registers that are free to hold a constant, and which one.
    """

    def __init__(self, staging: Staging, spare: int, constants: Mapping[int, int] = MappingProxyType({})) -> None:
        self.staging, self.spare = staging, spare
        self.code: Code = []
        self.known = {register: (value,) * staging.width for register, value in constants.items()}
        """Vectors of constants that registers will hold once they are needed."""

    def made(self, register: int) -> int:
        """The register, which holds what it should."""
        if register in self.known:
            self.code.append((LOAD, register, 0, ~self.staging.vector(self.known.pop(register))))
        return register

    def pair(self, low: int, high: int, a: int, b: int) -> tuple[int, int]:
        """Two shuffles of the same registers, and where their results are."""
        known = self.known
        if a in known and b in known:
            known[a], known[b] = (self._shuffled(each, known[a], known[b]) for each in (low, high))
            return a, b
        self.code.append((low, self.spare, self.made(a), self.made(b)))
        self.code.append((high, a, a, b))
        results, self.spare = (self.spare, a), b
        return results

    def within_lanes(self, rows: Sequence[int]) -> tuple[int, ...]:
        """Registers, as many as there are scalars in 16 bytes, transposed in each 16 bytes."""
        if len(rows) == 2:
            return self.pair(LOW, HIGH, *rows)
        a, b = self.pair(LOW, HIGH, *rows[:2]), self.pair(LOW, HIGH, *rows[2:])
        return *self.pair(LOW_PAIRS, HIGH_PAIRS, a[0], b[0]), *self.pair(LOW_PAIRS, HIGH_PAIRS, a[1], b[1])

    def _shuffled(self, code: int, a: tuple[int, ...], x: tuple[int, ...]) -> tuple[int, ...]:
        """What an instruction makes of two vectors."""
        size = self.staging.lane_size
        if code in (EVEN, ODD):
            lanes = [
                each[k : k + size] for each in (a, x) for k in range(size * (code == ODD), self.staging.width, 2 * size)
            ]
            return tuple(scalar for lane in lanes for scalar in lane)
        span, half = 2 if code in (LOW_PAIRS, HIGH_PAIRS) else 1, size // 2
        first = half * (code in (HIGH, HIGH_PAIRS))
        starts = [k for lane in range(first, self.staging.width, size) for k in range(lane, lane + half, span)]
        return tuple(scalar for k in starts for each in (a, x) for scalar in each[k : k + span])


def _live(code: Code, wanted: set[int]) -> Code:
    """The instructions that registers which are wanted in the end depend on."""
    kept = []
    for instruction in reversed(code):
        _, d, a, x = instruction
        if d in wanted:
            kept.append(instruction)
            wanted.discard(d)
            wanted.update((a, x))
    return kept[::-1]


def _defined(code: Code, known: set[int]) -> Code:
    """The instructions that read anything of registers which are known in the beginning."""
    kept = []
    for instruction in code:
        operation, d, a, x = instruction
        if operation == LOAD or a in known or x in known:
            kept.append(instruction)
            known.add(d)
        else:
            known.discard(d)
    return kept
