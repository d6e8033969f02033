"""Writes cache lines of results while the program computes: the results of one vector of W states go to rows during the
computation of the next vector.

Large results are first stored as vectors of states. A cache line of a row has L consecutive scalars, each of which is
an element of a vector. The lines of W rows are therefore L vectors, transposed. The program regularly calls a function
that writes one line of each of W rows. The computation continues while memory takes the stores. There are two buffers
for vectors, used alternately. With AVX-512 a vector has the size of a line and L = W; with AVX2 L = 2 W.

Cache lines are aligned, but rows begin anywhere. L rows of n scalars always take n lines. So a vector does not hold
consecutive rows but every L-th row: all its rows have the same offset from a line. L vectors, which differ by one row
each, cover a group of W L rows. The first line of a row begins with the last scalars of the row before. The previous
vector has these in the same elements, and they are kept before the vectors of the row's own scalars. A line therefore
always comes from L consecutive vectors. Lines shared with rows of other groups are written scalar by scalar
(`robodyn.engines.cpu.chains.row_writer_code`).

If fewer rows than a group are left, vectors hold W consecutive rows. Their lines are unaligned: they begin at the row's
own multiples of L scalars. The scalars behind the last whole line of a row are written one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, product
from math import gcd
from typing import Any

import numpy as np

from robodyn.compile.x86.encoding import Encoder
from robodyn.compile.x86.instructions import CALL, LOAD, MOVNT, STORE, XOR, Instruction
from robodyn.compile.x86.pointers import GENERAL, RETURN, load_pointer, pop, push
from robodyn.compile.x86.staging import Shuffles, Staging
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass

STATE = 5
"""rbp: address of the words below. rbx points to the next entry, r13 to the vectors; r14 and r15 are free."""
ENTRY_WORD, SOURCE_WORD, ARRAYS_WORD = 1, 2, 3
"""Indices of 64-bit words that describe the lines to write: the address of the first entry; that of the vectors; for
each array the address of the line in which the first of W rows begins; and for each array the function's address."""
MAX_ARRAYS = 6
"""Limit of the number of arrays: a one-byte displacement reaches no further words."""
_ZEROS, NOTHING = -1, -2
"""Sources of entries for lines that are zero, and for lines that are not written."""
ENTRY_BYTES = 8
CALLERS = (3, STATE, 13, 14, 15)
"""Callee-saved registers that the functions use."""
_SAVED, _RESTORED = b"".join(map(push, CALLERS)), b"".join(map(pop, CALLERS[::-1]))
SAVED_BYTES = 320
"""Bytes before the words for vector registers that a function saves, if none are reserved for it: at most nine of 32
bytes."""
LINE = 64
"""Bytes of a cache line."""
_PAGE_LINES = 4096 // LINE


@dataclass(frozen=True)
class Layout:
    """The layout of results as vectors of W states: one array behind the other. Each array has `line` vectors before
    the first scalar of a row, one vector for each scalar, and one behind them that is zero.

    `line`: scalars of a cache line; `filled`: for each array, the scalars of a row that are not structurally zero.
    """

    width: int
    line: int
    filled: tuple[tuple[bool, ...], ...]

    @property
    def vector_bytes(self) -> int:
        """Bytes of a vector."""
        return LINE // self.line * self.width

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Index of the vector of each array's first scalar, and finally the index of the end."""
        return tuple(
            self.line + each for each in accumulate((self.line + len(row) + 1 for row in self.filled), initial=0)
        )

    def written(self, array: int) -> Sequence[int]:
        """Vectors that are written, relative to an array's first one: those of scalars that are not zero, and if there
        are zeros, the zero behind them."""
        filled = self.filled[array]
        scalars = [k for k, each in enumerate(filled) if each]
        return scalars if all(filled) else [*scalars, len(filled)]

    def places(self, array: int) -> np.ndarray[Any, Any]:
        """Index of the vector of each scalar, relative to an array's first one. Zeros share one vector."""
        filled = np.array(self.filled[array])
        return np.where(filled, np.arange(filled.size), filled.size).astype(np.int64)

    def packed(self) -> bytes:
        """The layout as bytes for storage."""
        sizes = [len(row) for row in self.filled]
        head = struct.pack(f"<{3 + len(sizes)}q", self.width, self.line, len(sizes), *sizes)
        bits = b"".join(bytes(row) for row in self.filled)
        return head + bits + bytes(-len(bits) % 8)

    @staticmethod
    def unpacked(kept: bytes) -> Layout:
        """The layout from the bytes of `packed`."""
        width, line, count = struct.unpack_from("<3q", kept)
        sizes = struct.unpack_from(f"<{count}q", kept, 24)
        ends = [24 + 8 * count + end for end in accumulate(sizes, initial=0)]
        return Layout(width, line, tuple(tuple(map(bool, kept[a:b])) for a, b in pairwise(ends)))

    def gaps(self) -> list[tuple[int, int]]:
        """First vectors and lengths of runs of vectors that are read but never written and must be zero: vectors that
        share a line with written ones, or are at either end of a row."""
        runs: list[tuple[int, int]] = []
        for start, filled in zip(self.starts, self.filled, strict=False):
            near = self.line - 1
            read = [True] * near + list(filled) + [True] * near
            for k, each in enumerate(filled):
                if each or not any(read[k : k + 2 * near + 1]):
                    continue
                if runs and sum(runs[-1]) == start + k:
                    runs[-1] = runs[-1][0], runs[-1][1] + 1
                else:
                    runs.append((start + k, 1))
        return runs

    @cached_property
    def lines(self) -> tuple[int, ...]:
        """Largest number of lines of a row, for each array."""
        return tuple(-(-len(row) // self.line) for row in self.filled)

    def entries(self) -> bytes:
        """Tables with two 32-bit integers for each line: the offset of its vectors, and its offset in bytes from the
        line in which the row begins. The first table writes nothing. Then each array has L tables, for rows that begin
        0 to L - 1 scalars behind the beginning of a line."""
        entries = [(NOTHING, 0)] * sum(self.lines)
        for array, count in enumerate(self.lines):
            entries += [self._entry(array, line, off) for off in range(self.line) for line in range(count)]
        return np.array(entries, np.int32).tobytes()

    def _entry(self, array: int, line: int, off: int) -> tuple[int, int]:
        filled = self.filled[array]
        first = self.line * line - off
        if first + self.line > len(filled):
            return NOTHING, 0
        if not any(filled[k] for k in range(first, first + self.line)):
            return _ZEROS, LINE * line
        return self.vector_bytes * (self.starts[array] + first), LINE * line


def crowded(scalars: int, width: int) -> bool:
    """Whether some of W rows of n scalars, which are L rows apart, have the same offset in their pages. Streaming
    stores to such rows take three times as long on a Zen 3."""
    return _PAGE_LINES // gcd(scalars, _PAGE_LINES) < width


def scheduled(code: Sequence[Instruction], layout: Layout) -> list[Instruction]:
    """Insert calls, evenly spaced, each of which writes one line of W rows."""
    arrays = [array for array, count in enumerate(layout.lines) for _ in range(count)]
    result: list[Instruction] = []
    done = 0
    for k, array in enumerate(arrays, 1):
        at = k * len(code) // (len(arrays) + 1)
        result += code[done:at]
        result.append((CALL, 0, 0, 8 * (ARRAYS_WORD + len(layout.filled) + array)))
        done = at
    return result + list(code[done:])


def registers(staging: Staging) -> int:
    """Number of registers reserved for the functions: all that they need if there are 32. If there are 16, none is
    reserved, and the functions save and restore those they use: without these three or five registers a program is 5 to
    10 % longer."""
    return _used(staging) if staging.wide else 0


def _used(staging: Staging) -> int:
    return staging.lane_size * (1 if staging.wide else 2) + 1


def entered(pointer: int, offset: int) -> bytes:
    """The beginning of a caller. The address of the words is stored at pointer + offset."""
    return _SAVED + load_pointer(STATE, pointer, offset) + _begun()


def entered_text(offset: int) -> list[str]:
    """The same as text; the address of the words is in the frame."""
    saved = [f"push {GENERAL[each]}" for each in CALLERS]
    words = [f"mov rbp, qword ptr [rdi + {offset}]", "mov rbx, qword ptr [rbp + 8]", "mov r13, qword ptr [rbp + 16]"]
    return saved + words


def left() -> bytes:
    """The end of a caller, except the return instruction."""
    return _RESTORED


def left_text() -> list[str]:
    """The same as text."""
    return [f"pop {GENERAL[each]}" for each in CALLERS[::-1]]


def finishing(encoder: Encoder, code: Sequence[Instruction]) -> bytes:
    """A function whose argument is the address of the words: all calls of some code, and nothing else."""
    calls = [each for each in code if each[0] == CALL]
    move_words = bytes.fromhex("4889fd")  # mov rbp, rdi
    clear_upper = bytes.fromhex("c5f877")  # vzeroupper
    return b"".join([_SAVED, move_words, _begun(), encoder.encode(calls), _RESTORED, clear_upper, RETURN])


def _begun() -> bytes:
    return load_pointer(3, STATE, 8 * ENTRY_WORD) + load_pointer(13, STATE, 8 * SOURCE_WORD)


def function(
    encoder: Encoder, staging: Staging, first: int, array: int, apart: int, past: bool = False
) -> Iterator[bytes]:
    """The instructions that write a line of each of W rows of an array.

    Each 16 bytes of the W vectors are loaded into their lane of a register, so only shuffles within lanes remain. If a
    vector is half a line, the two halves of a line are stored one after the other.

    Args:
        encoder: the encoder of the program.
        staging: the staging of the program.
        first: the first register reserved for the function, if there are any.
        array: number of the array.
        apart: bytes from one of the W rows to the next.
        past: True for streaming stores.
    """
    lane, store, vector = staging.lane_size, MOVNT if past else STORE, encoder.bytes
    pieces, saved = range(0, LINE, vector), 0 if registers(staging) else _used(staging)
    first = 0 if saved else first
    lines = _saves(encoder, STORE, saved)
    for part in range(staging.lanes):
        rows, spare = [], first + _used(staging) - 1
        for piece, begin in zip(pieces, range(first, spare, lane), strict=True):
            own, at = list(range(begin, begin + lane)), piece * staging.width + 16 * part
            for k, register in enumerate(own):
                for place in range(staging.lanes):
                    lines.append(encoder.lane_from(register, place, _FROM, at + vector * (lane * place + k)))
            shuffles = Shuffles(staging, spare)
            rows.append(shuffles.within_lanes(own))
            lines += [encoder.encode([each]) for each in shuffles.code]
            spare = shuffles.spare
        for k, registers_of_row in enumerate(zip(*rows, strict=True)):
            for piece, register in zip(pieces, registers_of_row, strict=True):
                lines.append(encoder.moved(store, register, _TO, apart * (lane * part + k) + piece))
    lines += _saves(encoder, LOAD, saved)
    zeros = _saves(encoder, STORE, min(saved, 1))
    zeros.append(encoder.encode([(XOR, first, first, first)]))
    for row, piece in product(range(staging.width), range(0, LINE, vector)):
        zeros.append(encoder.moved(store, first, _TO, apart * row + piece))
    zeros += _saves(encoder, LOAD, min(saved, 1))
    yield bytes.fromhex("4c6333")  # movsxd r14, dword ptr [rbx]
    yield bytes.fromhex("4c637b04")  # movsxd r15, dword ptr [rbx + 4]
    yield bytes.fromhex("4883c308")  # add rbx, 8
    yield bytes.fromhex("4c037d") + bytes((8 * (ARRAYS_WORD + array),))  # add r15, qword ptr [rbp + ...]
    yield bytes.fromhex("4d85f6")  # test r14, r14
    yield _jump(0x88, sum(map(len, lines)) + 4)  # js, to the code behind the first return
    yield bytes.fromhex("4d01ee")  # add r14, r13
    yield from lines
    yield RETURN
    yield bytes((0x41, 0x83, 0xFE, NOTHING & 0xFF))  # cmp r14d, -2
    yield _jump(0x84, sum(map(len, zeros)))  # je, to the last return
    yield from zeros
    yield RETURN


_FROM, _TO = 14, 15


def _saves(encoder: Encoder, operation: int, count: int) -> list[bytes]:
    """Store the first registers to the bytes before the words, or load them from there."""
    return [encoder.moved(operation, register, STATE, -encoder.bytes * (register + 1)) for register in range(count)]


def _jump(condition: int, distance: int) -> bytes:
    return bytes((0x0F, condition)) + distance.to_bytes(4, "little")
