"""Lines of results on the way: while W states are computed, what the W states before them left goes to rows.

Large results are left as vectors of states. A line of a row is L scalars that follow one another, for each of which the
state's is somewhere in its vector: so lines of W rows are L vectors, transposed. That is done for W lines at a time
by a function that the program calls now and then; what memory takes long for is not waited for then. There are two
places for vectors, which take turns. With AVX-512 a vector is a line, and L is W; with AVX2 L is twice W.

Lines begin where memory has them begin, rows anywhere. But L rows of n scalars are n lines, wherever they begin. So a
vector of states does not have rows that follow one another, but every L-th: all of them begin as far behind a line as
the first one does, and the L vectors of a group of W L rows differ by one row each. The first line of a row begins with
the last scalars of the row before, which the vector before has in the same state. These lie before the vectors of the
row's own scalars, so that a line is always L vectors that follow one another. What rows of a group share lines of with
rows of other groups is written scalar by scalar (`robodyn.engines.cpu.chains.row_writer_code`).

Rows that are fewer than a group are W that follow one another. Then a line of vectors is written wherever the row has
it, and not to a line of memory; the scalars behind a row's last whole line are written one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, product
from math import gcd
from typing import Any

import numpy as np

from robodyn.compile.x86.encoding import Encoder
from robodyn.compile.x86.instructions import CALL, LOAD, STORE, STORE_PAST, XOR, Instruction
from robodyn.compile.x86.pointers import GENERAL, RETURN, load_pointer, pop, push
from robodyn.compile.x86.staging import Shuffles, Staging
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass

STATE = 5
"""rbp: the words below. rbx is the next entry, r13 the first word of vectors, r14 and r15 are free to use."""
ENTRY_WORD, SOURCE_WORD, ARRAYS_WORD = 1, 2, 3
"""64-bit words that say what is to be done: the address of the first entry, that of the vectors, for each array that of
the line in which the first of W rows begins, and at last the function for it."""
MAX_ARRAYS = 6
"""More words are not within reach of a byte."""
_ZEROS, NOTHING = -1, -2
"""Sources of entries for lines of zeros, and for none."""
ENTRY_BYTES = 8
CALLERS = (3, STATE, 13, 14, 15)
"""Registers of the functions that are to be given back."""
_SAVED, _RESTORED = b"".join(map(push, CALLERS)), b"".join(map(pop, CALLERS[::-1]))
SAVED_BYTES = 320
"""Before the words: vector registers that a function gives back, if it has none to itself; nine of 32 bytes,
at most."""
LINE = 64
"""Bytes of a line."""
_PAGE_LINES = 4096 // LINE


@dataclass(frozen=True)
class Layout:
    """Where results are as vectors of W states: one array behind the other, with a place for each scalar of a row, as
    many before them as a line has, and one behind, which is a zero.

    `line`: scalars of a line; `filled`: by array, which scalars of a row are not zero by the tree.
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
        """Where the first scalars of arrays are, and at last the end, in vectors."""
        return tuple(
            self.line + each for each in accumulate((self.line + len(row) + 1 for row in self.filled), initial=0)
        )

    def written(self, array: int) -> Sequence[int]:
        """Places that are written, behind an array's first one: those of scalars that are not zero, and of a zero if
        there is any."""
        filled = self.filled[array]
        found = [k for k, each in enumerate(filled) if each]
        return found if all(filled) else [*found, len(filled)]

    def places(self, array: int) -> np.ndarray[Any, Any]:
        """Where each scalar is."""
        filled = np.array(self.filled[array])
        return np.where(filled, np.arange(filled.size), filled.size).astype(np.int64)

    def packed(self) -> bytes:
        """All of it, as it is kept."""
        sizes = [len(row) for row in self.filled]
        head = struct.pack(f"<{3 + len(sizes)}q", self.width, self.line, len(sizes), *sizes)
        bits = b"".join(bytes(row) for row in self.filled)
        return head + bits + bytes(-len(bits) % 8)

    @staticmethod
    def unpacked(kept: bytes) -> Layout:
        """What `packed` made."""
        width, line, count = struct.unpack_from("<3q", kept)
        sizes = struct.unpack_from(f"<{count}q", kept, 24)
        ends = [24 + 8 * count + end for end in accumulate(sizes, initial=0)]
        return Layout(width, line, tuple(tuple(map(bool, kept[a:b])) for a, b in pairwise(ends)))

    def gaps(self) -> list[tuple[int, int]]:
        """First vectors and numbers of those that are read, but never written, and are to be zero: near others in a
        line, or at either end of a row."""
        found: list[tuple[int, int]] = []
        for start, filled in zip(self.starts, self.filled, strict=False):
            near = self.line - 1
            read = [True] * near + list(filled) + [True] * near
            for k, each in enumerate(filled):
                if each or not any(read[k : k + 2 * near + 1]):
                    continue
                if found and sum(found[-1]) == start + k:
                    found[-1] = found[-1][0], found[-1][1] + 1
                else:
                    found.append((start + k, 1))
        return found

    @cached_property
    def lines(self) -> tuple[int, ...]:
        """How many lines a row of each array has at most."""
        return tuple(-(-len(row) // self.line) for row in self.filled)

    def entries(self) -> bytes:
        """Tables of two 32-bit integers for each line: where its vectors are, and where it is behind the line in which
        the row begins, in bytes. The first table is for no rows at all. For each array L tables follow: for rows that
        begin that many scalars behind a line."""
        found = [(NOTHING, 0)] * sum(self.lines)
        for array, count in enumerate(self.lines):
            found += [self._entry(array, line, off) for off in range(self.line) for line in range(count)]
        return np.array(found, np.int32).tobytes()

    def _entry(self, array: int, line: int, off: int) -> tuple[int, int]:
        filled = self.filled[array]
        first = self.line * line - off
        if first + self.line > len(filled):
            return NOTHING, 0
        if not any(filled[k] for k in range(first, first + self.line)):
            return _ZEROS, LINE * line
        return self.vector_bytes * (self.starts[array] + first), LINE * line


def crowded(scalars: int, width: int) -> bool:
    """Whether some of W rows of n scalars, which are L rows apart, begin at one place of their pages. Past the caches
    lines of such rows take a Zen 3 three times as long."""
    return _PAGE_LINES // gcd(scalars, _PAGE_LINES) < width


def scheduled(code: Sequence[Instruction], layout: Layout) -> list[Instruction]:
    """Instructions that call for one line of W rows after the other, evenly."""
    arrays = [array for array, count in enumerate(layout.lines) for _ in range(count)]
    found: list[Instruction] = []
    done = 0
    for k, array in enumerate(arrays, 1):
        at = k * len(code) // (len(arrays) + 1)
        found += code[done:at]
        found.append((CALL, 0, 0, 8 * (ARRAYS_WORD + len(layout.filled) + array)))
        done = at
    return found + list(code[done:])


def registers(staging: Staging) -> int:
    """Registers that functions keep to themselves: as many as they need, where there are 32. Of 16 they keep none, but
    save those that they use: a program without three or five of these is 5 to 10 % longer."""
    return _used(staging) if staging.wide else 0


def _used(staging: Staging) -> int:
    return staging.lane_size * (1 if staging.wide else 2) + 1


def entered(pointer: int, offset: int) -> bytes:
    """What a caller begins with: the address of the words is at an address and an offset from there."""
    return _SAVED + load_pointer(STATE, pointer, offset) + _begun()


def entered_text(offset: int) -> list[str]:
    """The same as text; the address of the words is in the frame."""
    saved = [f"push {GENERAL[each]}" for each in CALLERS]
    words = [f"mov rbp, qword ptr [rdi + {offset}]", "mov rbx, qword ptr [rbp + 8]", "mov r13, qword ptr [rbp + 16]"]
    return saved + words


def left() -> bytes:
    """What it ends with, but for the return."""
    return _RESTORED


def left_text() -> list[str]:
    """The same as text."""
    return [f"pop {GENERAL[each]}" for each in CALLERS[::-1]]


def finishing(encoder: Encoder, code: Sequence[Instruction]) -> bytes:
    """A function of the words' address: all calls of some code, and nothing else."""
    calls = [each for each in code if each[0] == CALL]
    moved = bytes.fromhex("4889fd")  # mov rbp, rdi
    cleared = bytes.fromhex("c5f877")  # vzeroupper
    return b"".join([_SAVED, moved, _begun(), encoder.encode(calls), _RESTORED, cleared, RETURN])


def _begun() -> bytes:
    return load_pointer(3, STATE, 8 * ENTRY_WORD) + load_pointer(13, STATE, 8 * SOURCE_WORD)


def function(
    encoder: Encoder, staging: Staging, first: int, array: int, apart: int, past: bool = False
) -> Iterator[bytes]:
    """The instructions for a line of W rows of an array.

    Each 16 bytes of W vectors are loaded to their place in a register, so that shuffles within 16 bytes are all that is
    left to do. What is half a line then is written beside the other half of it.

    Args:
        encoder: of the program.
        staging: of the program.
        first: its first register, if it keeps any.
        array: number of the array.
        apart: bytes from one of the W rows to the next.
        past: whether lines go past the caches.
    """
    lane, store, vector = staging.lane_size, STORE_PAST if past else STORE, encoder.bytes
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
    yield _jump(0x88, sum(map(len, lines)) + 4)  # js, behind the return
    yield bytes.fromhex("4d01ee")  # add r14, r13
    yield from lines
    yield RETURN
    yield bytes((0x41, 0x83, 0xFE, NOTHING & 0xFF))  # cmp r14d, -2
    yield _jump(0x84, sum(map(len, zeros)))  # je, to the return
    yield from zeros
    yield RETURN


_FROM, _TO = 14, 15


def _saves(encoder: Encoder, operation: int, count: int) -> list[bytes]:
    """The first registers to the bytes before the words, or from there."""
    return [encoder.moved(operation, register, STATE, -encoder.bytes * (register + 1)) for register in range(count)]


def _jump(condition: int, distance: int) -> bytes:
    return bytes((0x0F, condition)) + distance.to_bytes(4, "little")
