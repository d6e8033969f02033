"""Rows of arrays into vectors of states and back, transposed in registers.

W rows of W scalars are transposed by two-operand shuffles: first within each 16 bytes of a register, then of 16 bytes
among registers, in log2(W) rounds. Columns that nothing needs cost nothing. Of a row's last scalars as many are moved
as there are: with a mask, or where rows are longer than a vector and masks slow (AVX2), together with some before them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

from robodyn.codegen.x86.instructions import (
    EVEN,
    HIGH,
    HIGH_PAIRS,
    LOAD,
    LOAD_ROW,
    LOW,
    LOW_PAIRS,
    MASK,
    ODD,
    ROWS,
    STORE,
    STORE_ROW,
    Instruction,
)

_MASK = 1
"""The mask register, or with AVX2 the last vector register."""


class Staging:
    """Writes the instructions.

    Args:
        itemsize: bytes of a scalar.
        wide: 64 bytes and mask registers, or 32 bytes.
        mask: gives the place of a vector that is a mask of so many scalars.
    """

    def __init__(self, itemsize: int, wide: bool, mask: Callable[[int], int]) -> None:
        self.wide, self.mask = wide, mask
        self.width = (64 if wide else 32) // itemsize
        self.lanes = 4 if wide else 2
        self.masked = _MASK if wide else 15

    def load(self, rows: int, slots: int, scalars: Sequence[int | float]) -> Iterator[Instruction]:
        """The columns that are needed, those whose scalar is not -1, of rows whose addresses are at `rows`."""
        for start, count in self._blocks(len(scalars)):
            needed = [k for k in range(count) if scalars[start + k] != -1]
            if not needed:
                continue
            mask = yield from self._masked(count)
            for k in range(self.width):
                yield ROWS, 0, 0, ~(rows + k)
                yield LOAD_ROW, k, mask, start
            shuffles, columns = self._transposed()
            yield from _live(shuffles, {columns[k] for k in needed})
            for k in needed:
                yield STORE, columns[k], 0, ~(slots + start + k)

    def store(self, rows: int, slots: int, size: int) -> Iterator[Instruction]:
        """Columns to rows."""
        for start, count in self._blocks(size):
            mask = yield from self._masked(count)
            for k in range(count):
                yield LOAD, k, 0, ~(slots + start + k)
            shuffles, transposed = self._transposed()
            yield from shuffles
            for k, register in enumerate(transposed):
                yield ROWS, 0, 0, ~(rows + k)
                yield STORE_ROW, register, mask, start

    def _blocks(self, size: int) -> Iterator[tuple[int, int]]:
        for start in range(0, size, self.width):
            count = min(self.width, size - start)
            if count < self.width < size and not self.wide:
                yield size - self.width, self.width
            else:
                yield start, count

    def _masked(self, count: int) -> Generator[Instruction, None, int]:
        """The mask of so many scalars; 0 of all."""
        if count == self.width:
            return 0
        yield (MASK, 0, self.masked, count) if self.wide else (LOAD, self.masked, 0, ~self.mask(count))
        return self.masked

    def _transposed(self) -> tuple[list[Instruction], list[int]]:
        """Shuffles of registers 0 .. W - 1, and where each column is then."""
        code: list[Instruction] = []
        spare = self.width

        def pair(low: int, high: int, a: int, b: int) -> tuple[int, int]:
            nonlocal spare
            code.append((low, spare, a, b))
            code.append((high, a, a, b))
            results, spare = (spare, a), b
            return results

        rows = list(range(self.width))
        parts = self.width // self.lanes
        groups: list[tuple[int, ...]] = []
        for g in range(0, self.width, parts):
            if parts == 2:
                groups.append(pair(LOW, HIGH, *rows[g : g + 2]))
                continue
            a, b = pair(LOW, HIGH, *rows[g : g + 2]), pair(LOW, HIGH, *rows[g + 2 : g + 4])
            groups.append((*pair(LOW_PAIRS, HIGH_PAIRS, a[0], b[0]), *pair(LOW_PAIRS, HIGH_PAIRS, a[1], b[1])))
        columns = [0] * self.width
        for p in range(parts):
            lanes = [group[p] for group in groups]
            if self.lanes == 4:
                (even, odd), (even2, odd2) = pair(EVEN, ODD, *lanes[:2]), pair(EVEN, ODD, *lanes[2:])
                (first, third), (second, fourth) = pair(EVEN, ODD, even, even2), pair(EVEN, ODD, odd, odd2)
                found: tuple[int, ...] = first, second, third, fourth
            else:
                found = pair(EVEN, ODD, *lanes)
            for j, register in enumerate(found):
                columns[parts * j + p] = register
        return code, columns


def _live(code: list[Instruction], wanted: set[int]) -> list[Instruction]:
    """The instructions that registers which are wanted in the end depend on."""
    kept = []
    for instruction in reversed(code):
        _, d, a, x = instruction
        if d in wanted:
            kept.append(instruction)
            wanted.discard(d)
            wanted.update((a, x))
    return kept[::-1]
