"""From a program to machine code for aarch64: straight-line code for W states, constants, and a list for the driver.

Code, driver and images are those of `robodyn.compile.x86.program`. The frame on the driver's stack is

    callee-saved registers | addresses and offsets of rows | addresses of arrays of vectors | spilled values
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from robodyn.compile.llvm.target import Target
from robodyn.compile.neon.allocation import NeonAllocator
from robodyn.compile.neon.encoding import FRAME, FREE_REGISTERS, POOL_POINTER, SCRATCH, VECTOR_REGISTERS, Encoder
from robodyn.compile.neon.forms import ADD_NUMBER, BRANCH, LOAD_WORD, MOVES, PAGE_OF, RETURN
from robodyn.compile.neon.steps import NeonSteps
from robodyn.compile.tracing.program import Program
from robodyn.compile.x86.image import PAGE, Image
from robodyn.compile.x86.instructions import HEADER, POOL, SPILLS, VECTORS, Instruction
from robodyn.compile.x86.places import ADDRESS, ProgramMemory

_LIST = 4
"""x4: the register of a function's fifth argument."""
_SAVED_BYTES = 8
_LINE = 64
_REACHED = 1 << 12
"""Bytes of a page, in which the processor counts distances."""


def assembled(
    program: Program,
    dtype: np.dtype[Any],
    target: Target,
    vectors: frozenset[str] = frozenset(),
    registers: int = len(VECTOR_REGISTERS),
) -> Assembled:
    """The machine code of a program on arrays of a dtype.

    Args:
        program: the program.
        dtype: of all arrays.
        target: the processor.
        vectors: names of arrays that hold vectors of states, only for the W rows from `first` on. Others have one row
            for each state.
        registers: number of registers to use.
    """
    size = target.width(dtype) * dtype.itemsize
    places = ProgramMemory(program, vectors, dtype.itemsize, size)
    steps = places.moved(NeonSteps(program, places, dtype.itemsize).steps)
    scalar = dtype.itemsize if places.scalar else 0
    of_arrays = places.staging, places.blocks, scalar, places.zeros
    allocator = NeonAllocator(registers, places.homes, places.stored, *of_arrays)
    return Assembled(program, places, allocator.run(steps), allocator.spills)


class Assembled:
    """Puts code, constants and the driver's list together."""

    def __init__(self, program: Program, places: ProgramMemory, code: Sequence[Instruction], spills: int) -> None:
        self.program, self.places, self.code = program, places, code
        self.itemsize, self.scalar = places.itemsize, places.scalar
        self.bytes = self.itemsize if self.scalar else 16
        used = {VECTOR_REGISTERS[d] for _, d, _, _ in code}
        self.saved = sorted(used.intersection(VECTOR_REGISTERS[FREE_REGISTERS:]))
        """Registers whose lower halves are restored."""
        headers = places.row_words * len(places.rows)
        self.rows_at = _SAVED_BYTES * len(self.saved)
        self.arrays_at = self.rows_at + 8 * headers
        spills_at = -(-(self.arrays_at + 8 * len(places.arrays)) // self.bytes) * self.bytes
        self.frame_bytes = -(-(spills_at + spills * self.bytes) // _LINE) * _LINE
        self.pool, vectors = self._pool(), self._vectors()
        self.starts = {SPILLS: spills_at, HEADER: self.rows_at, POOL: 0, VECTORS: len(self.pool)}
        self.pool += vectors
        self.addresses = [
            HEADER + (places.row_words * number + ADDRESS if of_rows else headers + number)
            for of_rows, number in places.spaces
        ]

    def _number(self, key: bytes | str) -> bytes:
        """The bytes of a constant."""
        assert isinstance(key, bytes)
        return key if self.itemsize == 8 else np.float32(struct.unpack("<d", key)[0]).tobytes()

    def _pool(self) -> bytes:
        pool = b"".join(self._number(key) * (self.bytes // self.itemsize) for key in self.places.constants)
        return pool + bytes(-len(pool) % _LINE)

    def _vectors(self) -> bytes:
        numbers = {value: self._number(key) for key, value in self.places.constants.items()}
        vectors = b""
        for key in self.places.rare:
            assert not isinstance(key, int)
            vectors += b"".join(numbers[value] for value in key)
        return vectors + bytes(-len(vectors) % _LINE)

    def _encoded(self, pool: int) -> tuple[Encoder, int]:
        """The code for W rows, and the entry behind it, whose number of words is the second result. `pool`: distance of
        the constants from the code."""
        encoder = Encoder(self.itemsize, self.bytes, self.starts, self.addresses)
        pairs = [(self.saved[k : k + 2], _SAVED_BYTES * k) for k in range(0, len(self.saved), 2)]
        for (one, *other), at in pairs:
            if other:
                encoder.emit(MOVES["stp", 8], one, *other, FRAME, at)
            else:
                encoder.move(False, one, FRAME, at, 8)
        self._address(encoder, POOL_POINTER, pool)
        encoder.encode(self.code)
        encoder.advance([HEADER + self.places.row_words * k + ADDRESS for k in range(len(self.places.rows))])
        for (one, *other), at in pairs:
            if other:
                encoder.emit(MOVES["ldp", 8], one, *other, FRAME, at)
            else:
                encoder.move(True, one, FRAME, at, 8)
        encoder.emit(RETURN)
        entry = len(encoder.words)
        self._address(encoder, _LIST, pool + len(self.pool))
        driver_at = pool + len(self.pool) + 8 * len(self._list(0))
        self._address(encoder, SCRATCH, driver_at)
        encoder.emit(LOAD_WORD, SCRATCH, SCRATCH, 0)
        encoder.emit(BRANCH, SCRATCH)
        return encoder, entry

    @staticmethod
    def _address(encoder: Encoder, register: int, distance: int) -> None:
        """Set a register to an address in the image. `distance`: from the image's start, where a page begins."""
        pages = distance // _REACHED - 4 * len(encoder.words) // _REACHED
        encoder.emit(PAGE_OF, register, pages % 4 * _REACHED, pages // 4 * 4 * _REACHED)
        if distance % _REACHED:
            encoder.emit(ADD_NUMBER, register, register, distance % _REACHED)

    def image(self) -> Image:
        """The image of the machine code."""
        encoder, entry = self._encoded(PAGE)
        data_at = -(-4 * len(encoder.words) // PAGE) * PAGE
        if data_at != PAGE:
            encoder, entry = self._encoded(data_at)  # as long: only distances change
        code = struct.pack(f"<{len(encoder.words)}I", *encoder.words)
        words = self._list(-(data_at + len(self.pool)))
        data = self.pool + struct.pack(f"<{len(words)}q", *words) + bytes(8)
        return Image(code, data, 4 * entry, data_at + len(data) - 8, self.program.operations)

    def _list(self, start: int) -> list[int]:
        """The words that the driver reads: `x86.driver.Program`. `start`: distance of the code from them."""
        arrays, rows = self.places.arrays, self.places.rows
        words = [self.frame_bytes, 0, start, len(arrays), len(rows)]
        for k, array in enumerate(arrays):
            words += [array, self.arrays_at + 8 * k]
        for k, array in enumerate(rows):
            words += [array, self.rows_at + 8 * (self.places.row_words * k + ADDRESS)]
        return words

    def listing(self) -> str:
        """The code as assembly text, including loads and stores of rows."""
        encoder, entry = self._encoded(PAGE)
        return "kernel:\n" + "".join(f"    {line}\n" for line in encoder.lines()[:entry])
