"""Proves an allocation: follows where values are, and demands of each instruction that it computes the next step.

What a register or a place holds is one thing for each of W states: (value, state), or of rows that were loaded
(place of the rows, row, column).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robodyn.compile.x86 import instructions as I
from robodyn.compile.x86.allocation import BINARY, FUSED, UNARY, Block, Step
from robodyn.compile.x86.instructions import COMMUTES

Lanes = tuple[Any, ...]
CONSTANTS = I.POOL // I.SPACE


class Checker:
    """What registers and places hold. `ZERO` is what a register that was cleared does.

    `homes`: what is in memory from the start; `stored`: where results have to be in the end; `blocks`: of rows;
    `width`: states; `parts`: scalars in 16 bytes.
    """

    ZERO = "zero"

    def __init__(
        self,
        registers: int,
        homes: Mapping[int, int],
        stored: Mapping[int, Sequence[int]],
        blocks: Sequence[Block] = (),
        width: int = 8,
        parts: int = 2,
    ) -> None:
        self.registers: list[Lanes | None] = [None] * registers
        self.width, self.parts = width, parts
        self.inputs = {value: ((value, -1),) * width for value, home in homes.items() if home // I.SPACE == CONSTANTS}
        self.blocks = blocks
        self.memory = {place: self.lanes(value) for value, place in homes.items()}
        self.given = dict(self.memory)
        self.stored = stored
        self.written: dict[int, Lanes] = {}
        self.rows: dict[tuple[int, int, int], Any] = {}
        self.at = (-1, -1)
        self.masks: dict[int, int] = {}

    def lanes(self, value: int) -> Lanes:
        """What is known of a value; a constant is one thing for all states."""
        return self.inputs.get(value, tuple((value, state) for state in range(self.width)))

    def read(self, x: int) -> Lanes:
        found = self.registers[x] if x >= 0 else self.memory.get(~x)
        assert found is not None, "nothing is there"
        return found

    def check(self, steps: Sequence[Step], code: Sequence[I.Instruction]) -> None:
        """Raise an AssertionError unless the code computes the steps."""
        for kind, result, _ in steps:
            if kind == "load":
                block = self.blocks[result]
                for column, value in enumerate(block.values, block.start):
                    self.inputs[value] = tuple((block.rows, row, column) for row in range(self.width))
        left = [step for step in steps if step[0] not in ("copy", "load", "store", "zeros")]
        for instruction in code:
            if not self._move(*instruction):
                self._compute(left.pop(0), *instruction)
        assert not left
        for kind, result, operands in steps:
            if kind == "store":
                block = self.blocks[result]
                for column, value in enumerate(operands, block.start):
                    found = tuple(self.rows[block.rows, row, column] for row in range(self.width))
                    assert found == self.lanes(value), "a row is not what it should be"
            elif kind not in ("load", "zeros"):
                value = operands[0] if kind == "copy" else result
                for place in self.stored.get(result, ()):
                    assert self.written.get(place) == self.lanes(value), "a result is not where it should be"

    def _move(self, code: int, d: int, a: int, x: int) -> bool:
        if code in (I.LOAD, I.MOVE):
            self.registers[d] = self.read(x)
        elif code == I.STORE:
            assert ~x not in self.given, "an input or a constant is written over"
            self.memory[~x] = self.written[~x] = self.read(d)
        elif code == I.CLEAR:
            self.registers[d] = (self.ZERO,) * self.width
        elif code == I.STORE_ZEROS:
            assert self.read(d) == (self.ZERO,) * self.width
            self.written.update({~x + k: self.read(d) for k in range(a)})
        elif code == I.MOV_ROWS:
            self.at = ~x, -1
        elif code == I.MOV_OFFSET:
            self.at = self.at[0], ~x - self.at[0] - 1
        elif code == I.LOAD_ROW:
            rows, row = self.at
            self._require_inside(rows, a, x)
            self.registers[d] = tuple((rows, row, x + k) for k in range(self.width))
        elif code == I.STORE_ROW:
            rows, row = self.at
            self._require_inside(rows, a, x)
            for k, each in enumerate(self.read(d)):
                self.rows[rows, row, x + k] = each
        elif code in (I.INSERTF128, I.INSERTF64X4):
            rows, row = self.at
            size = self.parts if code == I.INSERTF128 else self.width // 2
            ends = [block.start + len(block.values) for block in self.blocks if block.rows == rows]
            assert 0 <= x <= max(ends, default=0) - size, "a column of no block"
            others = list(self.read(d)) if a else [None] * self.width
            others[a * size : (a + 1) * size] = [(rows, row, x + k) for k in range(size)]
            self.registers[d] = tuple(others)
        elif code == I.EXTRACTF128:
            lane = self.read(x)[a * self.parts : (a + 1) * self.parts]
            self.registers[d] = lane + (None,) * (self.width - self.parts)
        elif code in (*range(I.EXTRACTF128_STORE, I.EXTRACTPS + 1), I.MOVU_MASKED):
            lanes, half = self.read(d), self.parts // 2
            start, count = {
                I.EXTRACTF128_STORE: (a * self.parts, self.parts),
                I.MOVLPD: (0, half),
                I.MOVHPD: (half, half),
                I.EXTRACTPS: (a, 1),
                I.MOVU_MASKED: (0, self.masks.get(1, 0)),
            }[code]
            rows, row = self.at
            inside = [block for block in self.blocks if block.rows == rows and block.start <= x]
            assert any(x + count <= block.start + len(block.values) for block in inside), "a column of no block"
            for k, each in enumerate(lanes[start : start + count]):
                self.rows[rows, row, x + k] = each
        elif code in range(I.UNPCKL, I.SHUFF_ODD + 1):
            self.registers[d] = self._shuffled(code, self.registers[a], self.registers[x])
        elif code == I.KMOV:
            self.masks[a] = x
        elif code == I.PREFETCHW:
            rows, row = self.at
            ends = [block.start + len(block.values) for block in self.blocks if block.rows == rows and block.more]
            assert 0 <= row < self.width and x in ends, "a column of no block"
        else:
            return False
        return True

    def _require_inside(self, rows: int, mask: int, start: int) -> None:
        """No column beside those of the block is moved."""
        counts = [len(block.values) for block in self.blocks if (block.rows, block.start) == (rows, start)]
        assert len(counts) == 1, "no block begins there"
        count = counts[0]
        if mask < 0:
            assert count == self.width
        elif self.width == self.parts:  # NEON
            assert mask == count
        elif self.width == 4 * self.parts:  # EVEX
            assert self.masks[mask] == count
        else:
            assert self.read(mask) == (("mask", count),) * self.width

    def _shuffled(self, code: int, a: Lanes | None, x: Lanes | None) -> Lanes:
        """Of what nobody has set, lanes are None."""
        unknown = (None,) * self.width
        one, two = (unknown if each is None else each for each in (a, x))
        if code in (I.SHUFF_EVEN, I.SHUFF_ODD):
            groups = [[each[k : k + self.parts] for k in range(0, self.width, self.parts)] for each in (one, two)]
            chosen = [group[k] for group in groups for k in range(code == I.SHUFF_ODD, len(group), 2)]
            return tuple(lane for group in chosen for lane in group)
        size = 2 if code in (I.UNPCKLPD, I.UNPCKHPD) else 1
        found: list[Any] = []
        for start in range(0, self.width, self.parts):
            half = start + (self.parts // 2 if code in (I.UNPCKH, I.UNPCKHPD) else 0)
            for k in range(half, half + self.parts // 2, size):
                found += [*one[k : k + size], *two[k : k + size]]
        return tuple(found)

    def _compute(self, step: Step, code: int, d: int, a: int, x: int) -> None:
        kind, result, operands = step
        wanted = tuple(map(self.lanes, operands))
        if kind in UNARY:
            assert code == UNARY[kind] and (self.read(x),) == wanted
        elif kind in BINARY:
            assert code == BINARY[kind]
            found = self.read(a), self.read(x)
            assert found == wanted or (code in COMMUTES and found[::-1] == wanted)
        elif kind == "blendv":
            assert code >= I.BLENDV and (self.read(code - I.BLENDV), self.read(x), self.read(a)) == wanted
        elif code >= I.FMADD:  # NEON, one scalar
            register = code % 32
            names = {I.FMADD: "fma", I.FMSUB: "fms", I.FNMADD: "fnma"}
            assert names[code - register] == kind
            assert (self.read(a), self.read(x), self.read(register)) == wanted
        else:
            values = self.read(d), self.read(a), self.read(x)
            orders = [order for order, each in FUSED[kind].items() if each == code]
            assert any(all(values[k] == wanted[role] for k, role in enumerate(order)) for order in orders)
        self.registers[d] = self.lanes(result)
