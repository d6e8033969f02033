"""Register allocation for NEON: as for x86, but every operand is in a register.

A fused multiply-add of vectors overwrites its summand. One of scalars names four registers and overwrites nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robodyn.compile.x86.allocation import FUSED, NEVER, Allocator
from robodyn.compile.x86.instructions import (
    FMADD,
    FMADD231,
    FMSUB,
    FMSUB231,
    FNMADD,
    FNMADD231,
    LOAD,
    MOVE,
)

_SUMMAND = 2
"""Number of the operand that is added."""
_OF_FOUR = {FMADD231: FMADD, FMSUB231: FMSUB, FNMADD231: FNMADD}
_MOVES = ("load", "store", "copy", "zeros")


class NeonAllocator(Allocator):
    """Turns steps into instructions that read registers only; see `Allocator`."""

    def __init__(self, *of: Any, **more: Any) -> None:
        super().__init__(*of, **more)
        self.stays = set()

    def _fetch(self, at: int, kind: str, operands: tuple[int, ...], following: tuple[int, ...]) -> None:
        """Load all operands. A summand is loaded later, to the register that is overwritten."""
        if kind in _MOVES:
            return
        summand = operands[_SUMMAND] if self._overwrites(kind) and operands.count(operands[-1]) == 1 else -1
        for value in operands:
            if value not in self.where and value != summand:
                self._load(value, at)

    def _overwrites(self, kind: str) -> bool:
        """Whether a step is a multiply-add that overwrites its summand."""
        return not self.scalar and kind in FUSED and FUSED[kind][2, 0, 1] in _OF_FOUR

    def _fused(
        self, codes: Mapping[tuple[int, ...], int], operands: tuple[int, ...], following: tuple[int, ...], at: int
    ) -> int:
        code, where = codes[2, 0, 1], self.where
        if code not in _OF_FOUR:
            return super()._fused(codes, operands, following, at)
        one, other, last = operands
        a, x = where[one], where[other]
        source = where.get(last)
        if self.scalar:
            assert source is not None
            target = self._reused(operands, following)
            self.code.append((_OF_FOUR[code] + source, target, a, x))
            return target
        if source is not None and following[_SUMMAND] == NEVER and last not in (one, other):
            target = where.pop(last)
        else:
            target = self._take()
            moved = (LOAD, target, 0, ~self.home[last]) if source is None else (MOVE, target, 0, source)
            self.code.append(moved)
        self.code.append((code, target, a, x))
        return target
