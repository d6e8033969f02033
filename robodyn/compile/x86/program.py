"""From a program to machine code: straight-line code for W states, constants, and a list for the driver.

The driver (`driver.py`) loops over the rows of a batch and passes the addresses of W rows to the code; it is the same
for every program. The code transposes these rows into vectors of states, computes, and transposes the results into
rows. Each block of columns is loaded just before its first use and stored as soon as it is complete. The code works on
a frame on the driver's stack:

    spilled values | addresses and offsets of rows | addresses of arrays of vectors

Optionally the code prefetches the arguments of later states, and copies the results of the previous W states with
streaming stores (`copying`). The table then has two more arrays for each array of results, behind all others: source
and target of the copy. Their rows are the bytes of one state. Both begin at the last address before the data that is
aligned to a vector.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from robodyn.compile.llvm.target import Target
from robodyn.compile.tracing.program import Program
from robodyn.compile.x86.allocation import Allocator
from robodyn.compile.x86.encoding import Encoder
from robodyn.compile.x86.forms import is_evex
from robodyn.compile.x86.general import (
    COPIED_FROM,
    COPIED_TO,
    advancing,
    copying,
    in_turns,
    kept,
    offset_loads,
    once,
    shared_out,
)
from robodyn.compile.x86.image import PAGE, Image
from robodyn.compile.x86.instructions import ARRAYS, CALL, HEADER, POOL, PREFETCHT0, SPACE, SPILLS, VECTORS, Instruction
from robodyn.compile.x86.listing import Listing
from robodyn.compile.x86.places import ADDRESS, ProgramMemory
from robodyn.compile.x86.pointers import (
    ARRAY_POINTERS,
    FRAME_POINTER,
    GENERAL,
    JUMP_BYTES,
    POOL_POINTER,
    RELATIVE_BYTES,
    RETURN,
    SAVED,
    jump_to,
    load_pointer,
    point,
    pop,
    push,
    relative_pointer,
)
from robodyn.compile.x86.row_writer import (
    CALLERS,
    LINE,
    Layout,
    entered,
    entered_text,
    finishing,
    left,
    left_text,
    scheduled,
)
from robodyn.compile.x86.row_writer import function as line_function
from robodyn.compile.x86.row_writer import registers as line_registers
from robodyn.compile.x86.steps import Avx2Steps, Avx512Steps
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import FEW_SPILLED_BYTES

_REACH = 128
"""Reach of a one-byte displacement on either side of a pointer: in vectors with AVX-512, in bytes without."""
_LINE = 64
_DESCRIPTOR = 8
"""r8: the register of a function's fifth argument."""
_ENTRY_BYTES = RELATIVE_BYTES + JUMP_BYTES


def _aligned(size: int) -> int:
    """`size` rounded up to whole cache lines."""
    return -(-size // _LINE) * _LINE


def assembled(
    program: Program,
    dtype: np.dtype[Any],
    target: Target,
    vectors: frozenset[str] = frozenset(),
    registers: int | None = None,
    copies: bool = False,
    layout: Layout | None = None,
    spread: frozenset[str] = frozenset(),
) -> Assembled:
    """The machine code of a program on arrays of a dtype.

    Args:
        program: the program.
        dtype: of all arrays.
        target: the processor.
        vectors: names of arrays that hold vectors of states, only for the W rows from `first` on. Others have one row
            for
            each state.
        registers: number of registers to use; None for all.
        copies: True for additional code for large batches, which copies results during the computation. This needs all
            arrays as rows, and one register.
        layout: the layout of results among vectors, for additional code that writes their cache lines during the
            computation. All results must be in `vectors`; the code needs a few registers.
        spread: names of inputs that hold one state, which is that of all (AVX-512 only).
    """
    assert not (copies and vectors) and (layout is None or vectors >= {port.name for port in program.outputs})
    size = target.width(dtype) * dtype.itemsize
    evex = target.level == "avx512"
    assert not spread or is_evex(size)
    places = ProgramMemory(
        program, vectors | spread, dtype.itemsize, size, fetches=copies, layout=layout, spread=spread
    )
    steps = places.moved((Avx512Steps if evex else Avx2Steps)(program, places, dtype.itemsize).steps)
    free = (registers or (32 if evex else 16)) - copies - (0 if layout is None else line_registers(places.staging))
    scalar = dtype.itemsize if places.scalar else 0
    once_for_all = (value for values in places.spread.values() for value in values)
    of_arrays = places.staging, places.blocks, scalar, places.zeros, once_for_all
    allocator = Allocator(free, places.homes, places.stored, *of_arrays)
    code = allocator.run(steps)
    return Assembled(program, places, code, allocator.spills, dtype.itemsize, size, evex, free)


@dataclass(frozen=True)
class _Body:
    """The code for W rows: its instructions, the registers that hold offsets of rows, by place, and the numbers of the
    arrays of rows and of vectors. `calls`: True if it calls the functions that write lines."""

    code: list[Instruction]
    offsets: dict[int, int]
    rows: list[int]
    arrays: list[int]
    calls: bool = False


class Assembled:
    """Puts code, constants and the driver's list together. `register`: the first register reserved for copies, or for
    the functions that write lines."""

    def __init__(
        self,
        program: Program,
        places: ProgramMemory,
        code: list[Instruction],
        spills: int,
        itemsize: int,
        size: int,
        evex: bool,
        register: int,
    ) -> None:
        self.program, self.places, self._register = program, places, register
        self.itemsize, self.bytes, self._evex = itemsize, size, evex
        self.wide = is_evex(size)
        self.width = self.bytes // itemsize
        results = [port.size for port in program.outputs] if places.fetches else []
        headers = places.row_words * (len(places.rows) + 2 * len(results))
        self.addresses = [
            HEADER + (places.row_words * number + ADDRESS if of_rows else headers + number)
            for of_rows, number in places.spaces
        ]
        """Places of the addresses of the spaces of arrays."""
        self.pointers = ARRAY_POINTERS[: len(self.addresses)]
        """General registers that point to the first spaces of arrays."""
        self.rows_at = spills * self.bytes
        self.arrays_at = self.rows_at + 8 * headers
        self.encoder = self._encoder(spills, ARRAY_POINTERS if results else self.pointers)
        code = once(code)
        plain = in_turns([each for each in code if each[0] != PREFETCHT0], self.addresses)
        self._share_out(plain, bases_free=not results)
        first, self.offsets = kept(plain, self._for_offsets, self._loads, self._firsts)
        self.code = advancing(first, self._headers(len(places.rows), 0))
        self.bodies = [_Body(self.code, self.offsets, places.rows, places.arrays)]
        if results:
            self.bodies.append(self._copying(code, results, register))
        elif places.layout is not None:
            state = len(program.inputs) + len(program.outputs)
            calling = scheduled(self.code, places.layout)
            self.bodies.append(_Body(calling, self.offsets, places.rows, [*places.arrays, state], calls=True))
        self.frame_bytes = _aligned(self.arrays_at + 8 * len(self.bodies[-1].arrays))

    def _encoder(self, spills: int, array_pointers: Sequence[int]) -> Encoder:
        """An encoder that knows the addresses of all spaces."""
        itemsize, wide, places = self.itemsize, self.wide, self.places
        reach, unit = (_REACH, self.bytes) if wide else (_REACH // itemsize, itemsize)
        biased = wide or places.scalar
        self.bias = reach * unit if biased and spills > reach else 0
        self.pool_bias = reach * itemsize if biased and len(places.constants) > reach else 0
        self.pool = self._pool()
        starts = {
            SPILLS: -self.bias,
            HEADER: self.rows_at - self.bias,
            POOL: -self.pool_bias,
            VECTORS: len(self.pool) - self.pool_bias,
        }
        self.pool += self._vectors()
        pointers = {SPILLS: FRAME_POINTER, HEADER: FRAME_POINTER, POOL: POOL_POINTER, VECTORS: POOL_POINTER}
        for k, pointer in enumerate(array_pointers):
            starts[ARRAYS + k * SPACE], pointers[ARRAYS + k * SPACE] = 0, pointer
        mixed = self._evex and places.scalar
        coarse = mixed and self.rows_at > FEW_SPILLED_BYTES
        return Encoder(itemsize, self.bytes, starts, pointers, mixed=mixed, coarse=coarse, spread=places.spread)

    def _share_out(self, code: list[Instruction], bases_free: bool) -> None:
        """Choose the registers for bases and for offsets of rows. The code already has array pointers."""
        arrays = len(self.addresses)
        self._saved = tuple(each for each in SAVED if self.places.layout is None or each not in CALLERS)
        """Callee-saved registers that may be used, without those of the functions that the code calls."""
        far = self.encoder.far(code)
        if arrays > len(ARRAY_POINTERS):  # these point to one array after the other
            far = Counter({where: times for where, times in far.items() if where[0] not in ARRAY_POINTERS})
        self._firsts = self._headers(len(self.places.rows), 1)
        self._loads = offset_loads(code, self._firsts)
        """How often each offset is loaded; the same for all bodies."""
        self.bases, self._for_offsets = shared_out(self._loads, far, ARRAY_POINTERS[arrays:], self._saved, bases_free)
        self.encoder.reach(self.bases)

    def _headers(self, count: int, word: int) -> list[int]:
        """Places of the addresses (word 0) of the first `count` arrays of rows, or of the offsets of their first rows
        (word 1)."""
        return [HEADER + self.places.row_words * k + ADDRESS + word for k in range(count)]

    def _for_offsets_beside(self, free: Sequence[int]) -> list[int]:
        """Registers for offsets of rows: those in `free`, and the callee-saved ones already chosen."""
        return [*free, *(each for each in self._for_offsets if each in self._saved)]

    def _copying(self, code: list[Instruction], sizes: list[int], register: int) -> _Body:
        """The body that also copies vectors of results. `sizes`: number of scalars of each result, and so of its
        vectors."""
        rows, ports = self.places.rows, len(self.program.inputs) + len(sizes)
        all_rows = [*rows, *range(ports, ports + 2 * len(sizes))]
        registers = self._for_offsets_beside(ARRAY_POINTERS[: min(COPIED_FROM, COPIED_TO)])
        first, offsets = kept(code, registers, self._loads, self._firsts)
        addresses = self._headers(len(all_rows), 0)[len(rows) :]
        code = copying(first, zip(addresses[::2], addresses[1::2], sizes, strict=True), register)
        return _Body(advancing(code, self._headers(len(all_rows), 0)), offsets, all_rows, [])

    def _number(self, key: bytes | str) -> bytes:
        """The bytes of a constant."""
        if isinstance(key, str):
            return ((1 << 8 * self.itemsize - 1) - 1).to_bytes(self.itemsize, "little")
        number = struct.unpack("<d", key)[0]
        return struct.pack("<d", number) if self.itemsize == 8 else np.float32(number).tobytes()

    def _pool(self) -> bytes:
        numbers = map(self._number, self.places.constants)
        pool = b"".join(numbers if self.wide else (number * self.width for number in numbers))
        return pool + bytes(-len(pool) % 64)

    def _vectors(self) -> bytes:
        numbers = {value: self._number(key) for key, value in self.places.constants.items()}
        vectors = b"".join(
            (b"\xff" * (self.itemsize * key)).ljust(self.bytes, b"\0")
            if isinstance(key, int)
            else b"".join(numbers[value] for value in key)
            for key in self.places.rare
        )
        return vectors + bytes(-len(vectors) % 64)

    def image(self) -> Image:
        """The image of the machine code."""
        texts = [self._before(body) for body in self.bodies], [self._after(body) for body in self.bodies]
        sizes = [len(before) + RELATIVE_BYTES + len(after) for before, after in zip(*texts, strict=True)]
        starts = [sum(sizes[:k]) + k * _ENTRY_BYTES for k in range(len(sizes))]
        entries = [start + size for start, size in zip(starts, sizes, strict=True)]
        functions, functions_at = self._line_functions(), _aligned(entries[-1] + _ENTRY_BYTES)
        data_at = -(-(functions_at + sum(map(len, functions))) // PAGE) * PAGE
        lists: list[list[int]] = []
        list_at = data_at + len(self.pool)
        for body, start in zip(self.bodies, starts, strict=True):
            lists.append(self._list(start - list_at, body))
            list_at += 8 * len(lists[-1])
        lines_at, list_at = list_at, data_at + len(self.pool)
        lines = self._line_words(functions, functions_at, lines_at)
        driver_at = lines_at + len(lines)
        code = []
        for before, after, entry, words in zip(*texts, entries, lists, strict=True):
            pool_from = entry - len(after)
            code += [before, relative_pointer(POOL_POINTER, data_at + self.pool_bias - pool_from), after]
            code.append(relative_pointer(_DESCRIPTOR, list_at - (entry + RELATIVE_BYTES)))
            code.append(jump_to(driver_at - (entry + _ENTRY_BYTES)))
            list_at += 8 * len(words)
        code += [bytes(functions_at - entries[-1] - _ENTRY_BYTES), *functions]
        words = [word for each in lists for word in each]
        data = self.pool + struct.pack(f"<{len(words)}q", *words) + lines + bytes(8)
        operations = self.program.operations
        large = entries[1] if len(entries) > 1 else 0
        lines_at = lines_at if lines else 0
        return Image(b"".join(code), data, entries[0], driver_at, operations, large, lines_at)

    def _line_functions(self) -> list[bytes]:
        """The function that only writes lines; and for each array the functions that write its lines with streaming
        stores, with normal stores, and to consecutive rows."""
        layout = self.places.layout
        if layout is None:
            return []
        functions = [finishing(self.encoder, self.bodies[-1].code)]
        for array, row in enumerate(layout.filled):
            of = self.encoder, self.places.staging, self._register, array
            ways = (LINE * len(row), True), (LINE * len(row), False), (self.itemsize * len(row), False)
            functions += [b"".join(line_function(*of, apart, past)) for apart, past in ways]
        return [each.ljust(_aligned(len(each)), b"\xcc") for each in functions]

    def _line_words(self, functions: list[bytes], functions_at: int, at: int) -> bytes:
        """The words behind the driver's lists; see `Image.lines`."""
        layout = self.places.layout
        if layout is None:
            return b""
        tables = layout.entries()
        starts = [functions_at + sum(map(len, functions[:k])) for k in range(len(functions))]
        tables_at = at + 8 * (3 + len(functions))
        words = len(functions), tables_at, tables_at + len(tables), *starts
        return struct.pack(f"<{len(words)}q", *words) + tables + layout.packed()

    def _given_back(self, body: _Body) -> list[int]:
        """Callee-saved registers that a body uses, except those of the functions that it calls."""
        used = {*body.offsets.values(), *(base.register for base in self.bases)}
        return [each for each in self._saved if each in used]

    def _before(self, body: _Body) -> bytes:
        """The instructions that load array pointers and offsets at the beginning. The constants' pointer and the bases
        come after these."""
        words = self.arrays_at + 8 * len(self.places.arrays) - self.bias
        head = [*map(push, self._given_back(body))]
        head += [entered(FRAME_POINTER, words)] if body.calls else []
        address = self.encoder.plain_address
        head += [
            load_pointer(register, *address(place))
            for register, place in zip(self.pointers, self.addresses, strict=False)
        ]
        head += [load_pointer(register, *address(place)) for place, register in body.offsets.items()]
        return b"".join(head)

    def _after(self, body: _Body) -> bytes:
        saved = [left()] if body.calls else []
        saved += map(pop, self._given_back(body)[::-1])
        return b"".join([*map(point, self.bases), *self._encoded(body), *saved, RETURN])

    def _encoded(self, body: _Body) -> list[bytes]:
        """The bytes of the instructions. Bodies share the bytes of the first body."""
        if body.code is self.code:
            return self._first_parts
        if not body.calls:
            return self.encoder.parts(body.code)
        calls = iter(self.encoder.parts([each for each in body.code if each[0] == CALL]))
        others = iter(self._first_parts)
        return [next(calls if each[0] == CALL else others) for each in body.code]

    @cached_property
    def _first_parts(self) -> list[bytes]:
        return self.encoder.parts(self.code)

    def _addresses(self, rows: list[int]) -> list[int]:
        """Displacements of the addresses of arrays of rows, which advance to the next rows."""
        return [self.rows_at + 8 * (place - HEADER) - self.bias for place in self._headers(len(rows), 0)]

    def listing(self, *, large: bool = False) -> str:
        """The code as assembly text, including loads and stores of rows. `large`: the code for large batches."""
        body = self.bodies[large]
        given_back = [GENERAL[each] for each in self._given_back(body)]
        lines = [f"push {each}" for each in given_back]
        lines += entered_text(self.arrays_at + 8 * len(self.places.arrays) - self.bias) if body.calls else []
        for place, register in (*zip(self.addresses, self.pointers, strict=False), *body.offsets.items()):
            pointer, offset = self.encoder.plain_address(place)
            lines.append(f"mov {GENERAL[register]}, qword ptr [{GENERAL[pointer]} + {offset}]")
        lines.append("lea rsi, [rip + constants]")
        lines += [f"lea {GENERAL[each.register]}, [{GENERAL[each.pointer]} + {each.start}]" for each in self.bases]
        lines += [*Listing(self.encoder).lines(body.code), *(left_text() if body.calls else [])]
        lines += [f"pop {each}" for each in given_back[::-1]]
        return "kernel:\n" + "".join(f"    {line}\n" for line in [*lines, "ret"])

    def _list(self, start: int, body: _Body) -> list[int]:
        """The words that the driver reads: `driver.Program`."""
        arrays, rows = body.arrays, body.rows
        words = [self.frame_bytes, self.bias, start, len(arrays), len(rows)]
        for k, array in enumerate(arrays):
            words += [array, self.arrays_at + 8 * k]
        for array, at in zip(rows, self._addresses(rows), strict=True):
            words += [array, at + self.bias]
        return words
