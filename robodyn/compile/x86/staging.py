"""Loads rows of arrays into vectors of states and stores them back; the data are transposed in registers.

Rows are loaded in parts of 32 and 16 bytes, each into its position in a register, and transposed within 16-byte lanes
by two-operand shuffles. Shorter rows, and all stored rows, are transposed as a whole: first within 16-byte lanes, then
the lanes among registers, in log2(W) rounds. Unused columns cost nothing. The last scalars of a row are moved in parts
or with a mask. Stores without mask registers use parts: a masked store by a vector mask takes AMD's processors a dozen
cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from robodyn.compile.x86.forms import is_evex
from robodyn.compile.x86.instructions import (
    EXTRACTF128,
    EXTRACTF128_STORE,
    EXTRACTPS,
    INSERTF64X4,
    INSERTF128,
    KMOV,
    LOAD,
    LOAD_ROW,
    MOV_OFFSET,
    MOV_ROWS,
    MOVE,
    MOVHPD,
    MOVLPD,
    MOVU_MASKED,
    PREFETCHW,
    SHUFF_EVEN,
    SHUFF_ODD,
    STORE_ROW,
    UNPCKH,
    UNPCKHPD,
    UNPCKL,
    UNPCKLPD,
    Instruction,
)

Code: TypeAlias = list[Instruction]
_MASK = 1
"""Number of the mask register."""
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
"""By the bytes of a scalar and the number of columns: blocks that are stored faster in parts than as whole rows, and
the first column and size of each part."""
_WITHOUT_MASKS = {3: ((0, 2), (2, 1))}
"""Replacements of entries of `_NARROW` if there are no mask registers."""
_LANE = 16
"""Bytes of a lane: most shuffles work within lanes."""


class Staging:
    """Writes the instructions that load or store a block of at most W columns of W rows, with given registers.

    Args:
        itemsize: bytes of a scalar.
        size: bytes of a register; with EVEX there are mask registers.
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
        """Scalars in a lane of 16 bytes."""
        self.registers = self.width + 1
        """Registers that a block needs; loading with a vector mask needs one more."""
        parts = _NARROW[itemsize] if wide else _NARROW[itemsize] | _WITHOUT_MASKS
        self.narrow = {count: each for count, each in parts.items() if count < self.width}
        """Blocks of few columns that are stored in parts of at most 16 bytes, which takes fewer shuffles: the first
        column and the size of each part. A column in two parts is stored twice."""

    def stored_registers(self, count: int, constant: bool) -> int:
        """Number of registers needed to store a block of columns. `constant`: True if all columns are constants."""
        if not self._in_parts(count, constant):
            return self.registers
        return sum(size + (size == 3) for _, size in self.narrow[count]) + 1

    def _in_parts(self, count: int, constant: bool) -> bool:
        """Whether a block is stored in parts. With mask registers, rows of constants are stored whole: they need no
        shuffles."""
        return count in self.narrow and not (constant and self.wide)

    def blocks(self, size: int) -> Iterator[tuple[int, int]]:
        """The first column and the number of columns of each block of a row."""
        for start in range(0, size, self.width):
            yield start, min(self.width, size - start)

    def loaded_registers(self, start: int, needed: Sequence[bool]) -> int:
        """Number of registers needed to load a block of columns."""
        parts = self._loaded_parts(start, needed)
        if parts:
            return sum(size for _, size in parts) + 1
        return self.registers + (len(needed) < self.width and not self.wide)

    def _loaded_parts(self, start: int, needed: Sequence[bool]) -> list[tuple[int, int]]:
        """First columns and sizes of the parts of 32 and 16 bytes that contain the needed columns of a block; empty if
        rows are shorter."""
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
        """Load columns from `start` on, of rows whose address and offsets are at `rows`. Returns the code and the
        register of each column; registers of columns that are not needed are undefined.

        Each part of a row is loaded into the register and lane from which a transpose within lanes, for 32-byte parts
        followed by an exchange between two registers, puts the columns in order. These loads replace shuffles, of which
        a processor executes only one at a time.
        """
        parts = self._loaded_parts(start, needed)
        if not parts:
            return self._load_rows(rows, start, needed, registers)
        lane_size, at, starts = self.lane_size, 0, []
        for _, size in parts:
            starts.append(at)
            at += size
        code: Code = [(MOV_ROWS, 0, 0, ~rows)]
        for row in range(self.width):
            code.append((MOV_OFFSET, 0, 0, ~(rows + 1 + row)))
            lane, position = divmod(row, lane_size)
            for at, (first, size) in zip(starts, parts, strict=True):
                if size == lane_size:
                    code.append((INSERTF128, registers[at + position], lane, start + first))
                else:
                    group, half = divmod(lane, 2)
                    code.append((INSERTF64X4, registers[at + group * lane_size + position], half, start + first))
        shuffles = Shuffles(self, registers[-1])
        columns = [registers[-1]] * len(needed)
        for at, (first, size) in zip(starts, parts, strict=True):
            column_registers = shuffles.within_lanes(registers[at : at + lane_size])
            if size > lane_size:
                other = shuffles.within_lanes(registers[at + lane_size : at + size])
                pairs = [
                    shuffles.pair(SHUFF_EVEN, SHUFF_ODD, *pair) for pair in zip(column_registers, other, strict=True)
                ]
                column_registers = (*(even for even, _ in pairs), *(odd for _, odd in pairs))
            for column, register in enumerate(column_registers, first):
                if column >= 0:
                    columns[column] = register
        code += _live(shuffles.code, {column for column, wanted in zip(columns, needed, strict=True) if wanted})
        return code, columns

    def _load_rows(
        self, rows: int, start: int, needed: Sequence[bool], registers: Sequence[int]
    ) -> tuple[Code, list[int]]:
        """The same with whole rows."""
        code, mask = self._masked(len(needed), registers)
        code.append((MOV_ROWS, 0, 0, ~rows))
        for k in range(self.width):
            code += [(MOV_OFFSET, 0, 0, ~(rows + 1 + k)), (LOAD_ROW, registers[k], mask, start)]
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
        """Store the first registers as columns from `start` on. `more`: True if further columns follow.

        Most rows do not begin at a cache line, so 64 bytes of a row lie in two lines. The processor loads the first
        line while other stores are pending, but would wait for the second line, so this code prefetches it. Behind the
        last columns the next row begins, whose line is already loaded.

        `constants`: free registers for constants, and the constant of each. Shuffles of constants are done at compile
        time, because most results are largely zero.
        """
        if self._in_parts(count, constants.keys() >= set(registers[:count])):
            return self._narrow(rows, start, count, registers, constants)
        shuffles, column_registers = self._transposed(registers, constants)
        code, mask = self._masked(count, registers)
        shuffles = _live(_defined(shuffles, set(registers[:count])), set(column_registers))
        code = [*shuffles, *code, (MOV_ROWS, 0, 0, ~rows)]
        if more and self.lanes == 4:
            ahead = [((MOV_OFFSET, 0, 0, ~(rows + 1 + k)), (PREFETCHW, 0, 0, start + count)) for k in range(self.width)]
            code = [(MOV_ROWS, 0, 0, ~rows), *(each for pair in ahead for each in pair), *code]
        for k, register in enumerate(column_registers):
            code += [(MOV_OFFSET, 0, 0, ~(rows + 1 + k)), (STORE_ROW, register, mask, start)]
        return code

    def _narrow(
        self, rows: int, start: int, count: int, registers: Sequence[int], constants: Mapping[int, int]
    ) -> Code:
        """Store a block of few columns. The last register is spare; those before it take the columns that are stored
        twice."""
        spare, free = registers[-1], list(registers[count:-1])
        code: Code = [(LOAD, register, 0, ~self.vector((value,) * self.width)) for register, value in constants.items()]
        parts, done = [], 0
        for first, size in self.narrow[count]:
            twice = [free.pop() for _ in range(first, done)]
            code += [(MOVE, copy, 0, registers[first + k]) for k, copy in enumerate(twice)]
            parts.append((first, [*twice, *registers[first + len(twice) : first + size]]))
            done = first + size
            if size == 3:
                code.append((KMOV, 0, _MASK, size))
        code.append((MOV_ROWS, 0, 0, ~rows))
        for first, columns in parts:
            part = len(columns)
            for row, each in enumerate(self._joined(code, [*columns, *free], spare)):
                code += self._parts(rows, start + first, part, row, each, columns[-1] if part > 1 else spare)
        return code

    @staticmethod
    def _joined(code: Code, columns: Sequence[int], spare: int) -> list[int]:
        """Interleave columns: each resulting register has scalars of every n-th row, beginning with its own number."""
        if len(columns) == 1:
            return list(columns)
        a, b = columns[:2]
        code += [(UNPCKL, spare, a, b), (UNPCKH, a, a, b)]
        if len(columns) == 2:
            return [spare, a]
        c, d = columns[2:]
        code += [(UNPCKL, b, c, d), (UNPCKH, c, c, d)]
        code += [(UNPCKLPD, d, spare, b), (UNPCKHPD, spare, spare, b)]
        code += [(UNPCKLPD, b, a, c), (UNPCKHPD, a, a, c)]
        return [d, spare, b, a]

    def _parts(self, rows: int, start: int, part: int, first: int, register: int, spare: int) -> Code:
        """Store one of the registers of `_joined`. Each lane holds `size / part` rows."""
        size = self.lane_size
        code: Code = []
        for lane in range(self.lanes):
            row = rows + 1 + size * lane
            if part == size:
                code += [(MOV_OFFSET, 0, 0, ~(row + first)), (EXTRACTF128_STORE, register, lane, start)]
                continue
            if lane:
                code.append((EXTRACTF128, spare, lane, register))
            source = spare if lane else register
            if part > size // 2:
                # EXTRACTF128_STORE is not used here: it would need memory behind the last row.
                code += [(MOV_OFFSET, 0, 0, ~(row + first)), (MOVU_MASKED, source, 0, start)]
            elif 2 * part == size:
                for half, half_store in enumerate((MOVLPD, MOVHPD)):
                    code += [(MOV_OFFSET, 0, 0, ~(row + 2 * first + half)), (half_store, source, 0, start)]
            else:
                for k in range(size):
                    code += [(MOV_OFFSET, 0, 0, ~(row + k)), (EXTRACTPS, source, k, start)]
        return code

    def _masked(self, count: int, registers: Sequence[int]) -> tuple[Code, int]:
        """A mask of `count` scalars: a mask register, or for loads a vector register; with registers of one lane the
        count itself, as NEON loads that many; -1 for all scalars."""
        if count == self.width:
            return [], -1
        if self.lanes == 1:
            return [], count
        if self.wide:
            return [(KMOV, 0, _MASK, count)], _MASK
        return [(LOAD, registers[-1], 0, ~self.mask(count))], registers[-1]

    def _transposed(
        self, registers: Sequence[int], constants: Mapping[int, int] = MappingProxyType({})
    ) -> tuple[Code, list[int]]:
        """Shuffles that transpose W registers, with the next one as spare, and the register of each column
        afterwards."""
        shuffles = Shuffles(self, registers[self.width], constants)
        pair, parts = shuffles.pair, self.lane_size
        groups = [shuffles.within_lanes(registers[g : g + parts]) for g in range(0, self.width, parts)]
        columns = [0] * self.width
        for p in range(parts):
            lanes = [group[p] for group in groups]
            ordered: tuple[int, ...]
            if self.lanes == 4:
                (even, odd), (even2, odd2) = (
                    pair(SHUFF_EVEN, SHUFF_ODD, *lanes[:2]),
                    pair(SHUFF_EVEN, SHUFF_ODD, *lanes[2:]),
                )
                (first, third), (second, fourth) = (
                    pair(SHUFF_EVEN, SHUFF_ODD, even, even2),
                    pair(SHUFF_EVEN, SHUFF_ODD, odd, odd2),
                )
                ordered = first, second, third, fourth
            elif self.lanes == 1:
                ordered = tuple(lanes)
            else:
                ordered = pair(SHUFF_EVEN, SHUFF_ODD, *lanes)
            for j, register in enumerate(ordered):
                columns[parts * j + p] = register
        return shuffles.code, [shuffles.made(register) for register in columns]


class Shuffles:
    """Writes shuffles of registers.

    Args:
        staging: has the width of registers and the places of vectors of constants.
        spare: a register besides those that are shuffled.
        constants: free registers for constants, and the constant of each.
    """

    def __init__(self, staging: Staging, spare: int, constants: Mapping[int, int] = MappingProxyType({})) -> None:
        self.staging, self.spare = staging, spare
        self.code: Code = []
        self.known = {register: (value,) * staging.width for register, value in constants.items()}
        """Vectors of constants that are not loaded to their registers yet."""

    def made(self, register: int) -> int:
        """The register, after loading its constant if it has one."""
        if register in self.known:
            self.code.append((LOAD, register, 0, ~self.staging.vector(self.known.pop(register))))
        return register

    def pair(self, low: int, high: int, a: int, b: int) -> tuple[int, int]:
        """Two shuffles of the same registers. Returns the registers of the results."""
        known = self.known
        if a in known and b in known:
            known[a], known[b] = (self._shuffled(each, known[a], known[b]) for each in (low, high))
            return a, b
        self.code.append((low, self.spare, self.made(a), self.made(b)))
        self.code.append((high, a, a, b))
        results, self.spare = (self.spare, a), b
        return results

    def within_lanes(self, rows: Sequence[int]) -> tuple[int, ...]:
        """Transpose registers within each lane; there are as many registers as scalars in a lane."""
        if len(rows) == 2:
            return self.pair(UNPCKL, UNPCKH, *rows)
        a, b = self.pair(UNPCKL, UNPCKH, *rows[:2]), self.pair(UNPCKL, UNPCKH, *rows[2:])
        return *self.pair(UNPCKLPD, UNPCKHPD, a[0], b[0]), *self.pair(UNPCKLPD, UNPCKHPD, a[1], b[1])

    def _shuffled(self, code: int, a: tuple[int, ...], x: tuple[int, ...]) -> tuple[int, ...]:
        """The result of a shuffle of two known vectors."""
        size = self.staging.lane_size
        if code in (SHUFF_EVEN, SHUFF_ODD):
            lanes = [
                each[k : k + size]
                for each in (a, x)
                for k in range(size * (code == SHUFF_ODD), self.staging.width, 2 * size)
            ]
            return tuple(scalar for lane in lanes for scalar in lane)
        span, half = 2 if code in (UNPCKLPD, UNPCKHPD) else 1, size // 2
        first = half * (code in (UNPCKH, UNPCKHPD))
        starts = [k for lane in range(first, self.staging.width, size) for k in range(lane, lane + half, span)]
        return tuple(scalar for k in starts for each in (a, x) for scalar in each[k : k + span])


def _live(code: Code, wanted: set[int]) -> Code:
    """The instructions on which the registers in `wanted` depend at the end."""
    result = []
    for instruction in reversed(code):
        _, d, a, x = instruction
        if d in wanted:
            result.append(instruction)
            wanted.discard(d)
            wanted.update((a, x))
    return result[::-1]


def _defined(code: Code, known: set[int]) -> Code:
    """The instructions that read defined registers. `known`: the registers that are defined at the beginning."""
    result = []
    for instruction in code:
        operation, d, a, x = instruction
        if operation == LOAD or a in known or x in known:
            result.append(instruction)
            known.add(d)
        else:
            known.discard(d)
    return result
