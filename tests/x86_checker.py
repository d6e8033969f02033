"""Proves an allocation: follows where values are, and demands of each instruction that it computes the next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robodyn.codegen.x86.allocation import BINARY, COMMUTES, FUSED, UNARY, Step
from robodyn.codegen.x86.instructions import LOAD, MOVE, STORE, Instruction


class Checker:
    """What registers and places hold, by number of the value.

    `homes`: what is in memory from the start; `stored`: where results have to be in the end.
    """

    def __init__(self, registers: int, homes: Mapping[int, int], stored: Mapping[int, Sequence[int]]) -> None:
        self.registers: list[int | None] = [None] * registers
        self.memory = {place: value for value, place in homes.items()}
        self.given = dict(self.memory)
        self.stored = stored
        self.written: dict[int, int] = {}

    def read(self, x: int) -> int:
        found = self.registers[x] if x >= 0 else self.memory.get(~x)
        assert found is not None, "nothing is there"
        return found

    def check(self, segments: Sequence[Sequence[Step]], code: Sequence[Sequence[Instruction]]) -> None:
        for steps, instructions in zip(segments, code, strict=True):
            self.registers = [None] * len(self.registers)
            left = [step for step in steps if step[0] != "copy"]
            for instruction in instructions:
                if not self._move(*instruction):
                    self._compute(left.pop(0), *instruction)
            assert not left
            for kind, result, operands in steps:
                value = operands[0] if kind == "copy" else result
                for place in self.stored.get(result, ()):
                    assert self.written.get(place) == value, "a result is not where it should be"

    def _move(self, code: int, d: int, _: int, x: int) -> bool:
        if code in (LOAD, MOVE):
            self.registers[d] = self.read(x)
        elif code == STORE:
            assert ~x not in self.given, "an input or a constant is written over"
            self.memory[~x] = self.written[~x] = self.read(d)
        else:
            return False
        return True

    def _compute(self, step: Step, code: int, d: int, a: int, x: int) -> None:
        kind, result, operands = step
        if kind in UNARY:
            assert code == UNARY[kind] and (self.read(x),) == operands
        elif kind in BINARY:
            assert code == BINARY[kind]
            found = self.read(a), self.read(x)
            assert found == operands or (code in COMMUTES and found[::-1] == operands)
        else:
            form = code - FUSED[kind]
            values = self.read(d), self.read(a), self.read(x)
            first, second, summand = ((0, 2, 1), (1, 0, 2), (1, 2, 0))[form]
            assert {values[first], values[second]} == set(operands[:2]) and values[summand] == operands[2]
        self.registers[d] = result
