"""From a program to machine code: straight-line code for W states, constants, and a list for the driver.

The driver (`driver.py`) goes through the rows of a batch, and tells the code where W of them begin; it is the same for
every program. The code brings these rows into vectors of states, computes, and brings vectors to rows: each block of
columns just before it is needed, and as soon as it is there. It works on a frame on the driver's stack:

    spilled values | addresses and offsets of rows | addresses of arrays of vectors

The same code can fetch arguments of states to come, and copy results of the W states before these past the caches, on
the way (`copying`). For each array of results the table has two more then, behind all others, whose rows are the bytes
of a state as well: what is copied, and where it goes, both from the last place before the array's own that is aligned
to a vector.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from robodyn.codegen.llvm.sincos import FORMATS, TWO_OVER_PI
from robodyn.codegen.llvm.target import Target
from robodyn.codegen.lowering import Operation, lower
from robodyn.codegen.x86.allocation import Allocator, Block, Step
from robodyn.codegen.x86.encoding import (
    ARRAY_POINTERS,
    FRAME_POINTER,
    JUMP_BYTES,
    POOL_POINTER,
    RELATIVE_BYTES,
    RETURN,
    VEX_BYTES,
    Encoder,
    advance_pointer,
    jump_to,
    load_pointer,
    relative_pointer,
)
from robodyn.codegen.x86.general import COPIED_FROM, COPIED_TO, copying, in_turns, kept, once
from robodyn.codegen.x86.instructions import ARRAYS, FETCH, HEADER, POOL, SPACE, SPILLS, VECTORS, Instruction
from robodyn.codegen.x86.listing import GENERAL, Listing
from robodyn.codegen.x86.order import ordered
from robodyn.codegen.x86.staging import Staging
from robodyn.tracing.expression import CONSTANT
from robodyn.tracing.program import Program

_SIZE = "size"
"""The constant that leaves all bits of a number but its sign."""
_REACH = 128
"""Vectors on either side of a pointer that one byte of displacement reaches."""
PAGE = 4096
_LINE = 64
_FETCHED_AHEAD = 3584
"""Bytes that rows are fetched ahead of those that are read, or W rows where these are more."""
_ADDRESS = 1
"""The word of an array of rows that is its address. The one before says how far the address moves, and offsets of its
rows follow."""
_DESCRIPTOR = 8
"""r8: the fifth argument of a function."""
_ENTRY_BYTES = RELATIVE_BYTES + JUMP_BYTES


@dataclass(frozen=True)
class Image:
    """Machine code that can be loaded anywhere.

    `code`: what runs for W rows, and the entry; `data`: constants, the driver's list and at last the
    driver's address, which begin on the next page; `entry`: where the entry is; `driver_at`: where the driver's address
    is to be; `operations`: what a state takes; `copying`: the entry of what copies on the way, 0 where there is none.
    """

    code: bytes
    data: bytes
    entry: int
    driver_at: int
    operations: int
    copying: int = 0

    def packed(self) -> bytes:
        """All of it, as it is kept."""
        numbers = self.entry, self.driver_at, self.operations, self.copying
        head = _HEAD.pack(MAGIC, len(self.code), len(self.data), *numbers)
        return head + self.code + self.data

    @staticmethod
    def unpacked(kept: bytes) -> Image | None:
        """What `packed` made; None if it did not."""
        if len(kept) < _HEAD.size:
            return None
        magic, code, data, entry, driver_at, operations, copying = _HEAD.unpack_from(kept)
        at = _HEAD.size + code
        inside = 0 <= entry < code and 0 <= copying < code and data >= 0
        if magic != MAGIC or len(kept) != at + data or not inside or driver_at != -(-code // PAGE) * PAGE + data - 8:
            return None
        return Image(kept[_HEAD.size : at], kept[at : at + data], entry, driver_at, operations, copying)


MAGIC = b"RDx86\0\0\2"
_HEAD = struct.Struct("<8s6q")


class _Places:
    """Where values of a program are in memory, and how its arrays are moved."""

    def __init__(
        self, program: Program, vectors: frozenset[str], itemsize: int, size: int, fetches: bool = False
    ) -> None:
        self.program, self.vectors, self.itemsize, self.fetches = program, vectors, itemsize, fetches
        self.staging = Staging(itemsize, size, self._mask, self._vector)
        self.row_words = _ADDRESS + 1 + self.staging.width
        """64-bit words of an array of rows."""
        self.homes: dict[int, int] = {}
        self.stored: dict[int, list[int]] = {}
        self.blocks: list[Block] = []
        self.rows: list[int] = []
        """Numbers of the arrays of rows."""
        self.arrays: list[int] = []
        """Numbers of the arrays of vectors, in the order of their spaces."""
        self.constants: dict[bytes | str, int] = {}
        self.rare: dict[int | tuple[int, ...], int] = {}
        """Places of masks, by how many scalars they have, and of vectors of constants."""
        self._next = len(program.nodes)
        self.loads = self._inputs()
        self.stores, self.copies = self._outputs()

    def fresh(self) -> int:
        """A value that no node is."""
        self._next += 1
        return self._next - 1

    def _space(self, array: int) -> int:
        self.arrays.append(array)
        return ARRAYS + SPACE * (len(self.arrays) - 1)

    def _block(self, start: int, values: tuple[int, ...], more: bool = False, fetched: tuple[int, ...] = ()) -> int:
        """A block of the last array of rows; whether these go on behind it, and what is fetched with it."""
        at = HEADER + (len(self.rows) - 1) * self.row_words + _ADDRESS
        self.blocks.append(Block(at, start, values, more, fetched))
        return len(self.blocks) - 1

    def _fetched(self, start: int, end: int, size: int) -> tuple[int, ...]:
        """What is fetched with some columns of rows of a size: their part of the lines of W rows to come. The processor
        does that by itself, but stops at the end of each page. What the caches have takes a few percent longer so;
        that is why it is not done but where results are copied past these."""
        if not self.fetches or self.staging.rows == 1:
            return ()
        span = self.staging.rows * size * self.itemsize
        lines, first = -(-span // _LINE), -(-max(span, _FETCHED_AHEAD) // _LINE)
        return tuple(_LINE * (first + k) for k in range(start * lines // size, end * lines // size))

    def _inputs(self) -> dict[int, int]:
        """Blocks by the values that they bring."""
        found: dict[int, int] = {}
        for array, port in enumerate(self.program.inputs):
            nodes = [node if isinstance(node, int) else -1 for node in port.scalars]
            if max(nodes, default=-1) < 0:
                continue
            if port.name in self.vectors:
                start = self._space(array)
                self.homes.update({node: start + k for k, node in enumerate(nodes) if node >= 0})
                continue
            self.rows.append(array)
            for start, count in self.staging.blocks(port.size):
                values = tuple(node if node not in found else -1 for node in nodes[start : start + count])
                if max(values) >= 0:
                    block = self._block(start, values, fetched=self._fetched(start, start + count, port.size))
                    found.update({node: block for node in values if node >= 0})
        return found

    def _outputs(self) -> tuple[list[int], list[Step]]:
        """Blocks of results, and copies to vectors of what is not computed."""
        found: list[int] = []
        others: dict[int, list[int]] = {}
        nodes = self.program.nodes
        for array, port in enumerate(self.program.outputs, len(self.program.inputs)):
            values = [
                self.constant(nodes[scalar][1] if isinstance(scalar, int) else scalar)
                if not isinstance(scalar, int) or nodes[scalar][0] == CONSTANT
                else scalar
                for scalar in port.scalars
            ]
            if port.name not in self.vectors:
                self.rows.append(array)
                for start, count in self.staging.blocks(port.size):
                    more = start + count < port.size
                    found.append(self._block(start, tuple(values[start : start + count]), more))
                continue
            place = self._space(array)
            for k, value in enumerate(values):
                given = value in self.homes or value in self.loads
                (others if given else self.stored).setdefault(value, []).append(place + k)
        copies: list[Step] = []
        for value, places in others.items():
            result = self.fresh()
            self.stored[result] = places
            copies.append(("copy", result, (value,)))
        return found, copies

    def moved(self, steps: list[Step]) -> list[Step]:
        """Steps with those that bring a block before its first value is read, and those that write one as soon as its
        values are there."""
        found: list[Step] = []
        missing: dict[int, int] = {}
        waiting: dict[int, list[int]] = {}
        loaded: set[int] = set()
        known = set(self.homes)

        def bring(values: tuple[int, ...]) -> None:
            for value in values:
                block = self.loads.get(value, -1)
                if block >= 0 and block not in loaded:
                    loaded.add(block)
                    found.append(("load", block, ()))
                    for each in self.blocks[block].values:
                        made(each)

        def made(value: int) -> None:
            known.add(value)
            for block in waiting.pop(value, ()):
                missing[block] -= 1
                if missing[block] == 0:
                    found.append(("store", block, self.blocks[block].values))

        for block in self.stores:
            values = set(self.blocks[block].values) - known
            missing[block] = len(values)
            for value in values:
                waiting.setdefault(value, []).append(block)
            if not values:
                found.append(("store", block, self.blocks[block].values))
        for step in (*steps, *self.copies):
            bring(step[2])
            found.append(step)
            made(step[1])
        for value in list(waiting):
            bring((value,))
        return found

    def constant(self, number: float | str) -> int:
        """The value that a constant is; numbers are told apart by their bits."""
        key = number if isinstance(number, str) else struct.pack("<d", number)
        if key not in self.constants:
            self.constants[key] = value = self.fresh()
            self.homes[value] = POOL + len(self.constants) - 1
        return self.constants[key]

    def _mask(self, count: int) -> int:
        return self.rare.setdefault(count, VECTORS + len(self.rare))

    def _vector(self, values: tuple[int, ...]) -> int:
        """Where constants are, side by side; one that is the same in all states is spread over a register."""
        if len(set(values)) == 1:
            return self.homes[values[0]]
        return self.rare.setdefault(values, VECTORS + len(self.rare))


class _Steps:
    """Steps of a program's operations."""

    def __init__(self, program: Program, places: _Places, itemsize: int, wide: bool) -> None:
        self.nodes, self.places = program.nodes, places
        self.format = FORMATS["double" if itemsize == 8 else "float"]
        self.wide, self.spreads = wide, wide or itemsize == 4
        self.steps: list[Step] = []
        for sines, operations in ordered(lower(program)):
            if sines:
                self._side_by_side(operations)
            else:
                for operation in operations:
                    self._plain(operation)

    def _plain(self, operation: Operation) -> None:
        kind, read, nodes, constant = operation.kind, operation.operands, self.nodes, self.places.constant
        for node in read:
            if nodes[node][0] == CONSTANT:
                read = tuple(constant(nodes[n][1]) if nodes[n][0] == CONSTANT else n for n in read)
                break
        if kind == "neg":
            kind, read = "xor", (*read, constant(-0.0))
        elif kind == "abs":
            kind, read = "and", (*read, constant(_SIZE))
        elif kind == "reciprocal":
            kind, read = "div", (constant(1.0), *read)
        self.steps.append((kind, operation.results[0], read))

    def _do(self, kind: str, *read: int | float, to: int = -1) -> int:
        """A step of its own, numbers being constants."""
        result = self.places.fresh() if to < 0 else to
        constant = self.places.constant
        self.steps.append((kind, result, tuple(constant(n) if isinstance(n, float) else n for n in read)))
        return result

    def _side_by_side(self, angles: list[Operation]) -> None:
        """Sines and cosines of several angles, a step of each after the other: one waits for its own steps only."""
        before, found = self.steps, []
        for operation in angles:
            self.steps = []
            self._sines(operation.operands[0], *operation.results)
            found.append(self.steps)
        before += [step for steps in zip_longest(*found) for step in steps if step is not None]
        self.steps = before

    def _spread(self, value: int) -> int:
        """All bits where the highest is set. Processors with AVX2 compare 64-bit integers and cannot shift them so."""
        return self._do("spread", value) if self.spreads else self._do("less", 0.0, value)

    def _sines(self, x: int, sine: int, cosine: int) -> None:
        """What `robodyn.codegen.llvm.sincos` does, in the same roundings, with bits in the place of conditions."""
        do, form = self._do, self.format
        first, second, third = form.parts
        shifted = do("fma", x, TWO_OVER_PI, form.magic)
        n = do("sub", shifted, form.magic)
        r = do("fnma", n, second, do("fnma", n, first, x))
        beyond = do("fnma", x, x, form.limit**2)  # the square is a power of two, so the sign is exact
        r = do("or", r, self._spread(beyond))  # all bits are those of a NaN
        z = do("mul", r, r)
        s = do("sub", r, do("fma", do("mul", r, z), self._polynomial(z, form.sine), do("mul", n, third)))
        c = do("fma", z, self._polynomial(z, form.cosine), 1.0)
        odd, sign = do("lowest", shifted), do("second", shifted)
        if self.wide:
            swap = do("spread", odd)
            if sine >= 0:
                do("signed", do("choose", swap, c, s), sign, -0.0, to=sine)
            if cosine >= 0:
                do("signed", do("choose", swap, s, c), do("xor", sign, odd), -0.0, to=cosine)
            return
        sign = do("and", sign, -0.0)
        change = do("and", do("xor", s, c), self._spread(odd))
        if sine >= 0:
            do("xor", do("xor", s, change), sign, to=sine)
        if cosine >= 0:
            do("xor", do("xor", c, change), do("xor", sign, odd), to=cosine)

    def _polynomial(self, z: int, coefficients: tuple[float, ...]) -> int:
        value = self._do("fma", z, coefficients[-1], coefficients[-2])
        for coefficient in coefficients[-3::-1]:
            value = self._do("fma", z, value, coefficient)
        return value


def assembled(
    program: Program,
    dtype: np.dtype[Any],
    target: Target,
    vectors: frozenset[str] = frozenset(),
    registers: int | None = None,
    copies: bool = False,
) -> Assembled:
    """The machine code of a program on arrays of a dtype.

    Arrays named in `vectors` hold vectors of states, for the W rows from `first` on alone; others a row for each state.
    `registers`: as many as the processor has, or less; `copies`: whether there is code that copies on the way as well,
    which is for rows alone and keeps one of the registers.
    """
    assert not (copies and vectors)
    size = target.vector_bytes
    wide = size != VEX_BYTES
    places = _Places(program, vectors, dtype.itemsize, size, copies)
    steps = places.moved(_Steps(program, places, dtype.itemsize, wide).steps)
    free = (registers or (32 if wide else 16)) - copies
    allocator = Allocator(free, places.homes, places.stored, places.staging, places.blocks)
    code = allocator.run(steps)
    return Assembled(program, places, code, allocator.spills, dtype.itemsize, size, free if copies else None)


@dataclass(frozen=True)
class _Body:
    """What runs for W rows: instructions, the registers that keep offsets of rows, by place, and numbers of the arrays
    of rows."""

    code: list[Instruction]
    offsets: dict[int, int]
    rows: list[int]


class Assembled:
    """Puts code, constants and the driver's list together; `register`: that of what copies on the way, if it is to."""

    def __init__(
        self,
        program: Program,
        places: _Places,
        code: list[Instruction],
        spills: int,
        itemsize: int,
        size: int,
        register: int | None = None,
    ) -> None:
        self.program, self.places = program, places
        self.itemsize, self.bytes = itemsize, size
        wide = self.wide = size != VEX_BYTES
        self.width = self.bytes // itemsize
        copied = [] if register is None else [port.size for port in program.outputs]
        arrays, headers = len(places.arrays), places.row_words * (len(places.rows) + 2 * len(copied))
        code = once(code)
        plain = [each for each in code if each[0] != FETCH]
        first, self.offsets = kept(plain, ARRAY_POINTERS[arrays:], self._headers(len(places.rows), 1))
        self.code = in_turns(first, arrays, HEADER + headers)
        self.bodies = [_Body(self.code, self.offsets, places.rows)]
        if register is not None:
            self.bodies.append(self._copying(code, copied, register))
        self.pointers = ARRAY_POINTERS[:arrays]
        """Registers of the first arrays of vectors."""
        self.rows_at = spills * self.bytes
        self.arrays_at = self.rows_at + 8 * headers
        self.frame_bytes = -(-(self.arrays_at + 8 * arrays) // 64) * 64
        self.bias = _REACH * self.bytes if wide and spills > _REACH else 0
        self.pool_bias = _REACH * itemsize if wide and len(places.constants) > _REACH else 0
        self.pool = self._pool()
        starts = {
            SPILLS: -self.bias,
            HEADER: self.rows_at - self.bias,
            POOL: -self.pool_bias,
            VECTORS: len(self.pool) - self.pool_bias,
        }
        self.pool += self._vectors()
        pointers = {SPILLS: FRAME_POINTER, HEADER: FRAME_POINTER, POOL: POOL_POINTER, VECTORS: POOL_POINTER}
        for k, pointer in enumerate(ARRAY_POINTERS if copied else self.pointers):
            starts[ARRAYS + k * SPACE], pointers[ARRAYS + k * SPACE] = 0, pointer
        self.encoder = Encoder(itemsize, size, starts, pointers)

    def _headers(self, count: int, word: int) -> list[int]:
        """Places of the address (word 0) of some arrays of rows, or of the offset of their first rows (word 1)."""
        return [HEADER + self.places.row_words * k + _ADDRESS + word for k in range(count)]

    def _copying(self, code: list[Instruction], sizes: list[int], register: int) -> _Body:
        """The body that copies vectors of results of some sizes, too; a vector of one scalar is a vector of bytes."""
        rows, ports = self.places.rows, len(self.program.inputs) + len(sizes)
        all_rows = [*rows, *range(ports, ports + 2 * len(sizes))]
        first, offsets = kept(code, ARRAY_POINTERS[: min(COPIED_FROM, COPIED_TO)], self._headers(len(rows), 1))
        addresses = self._headers(len(all_rows), 0)[len(rows) :]
        return _Body(
            copying(first, zip(addresses[::2], addresses[1::2], sizes, strict=True), register), offsets, all_rows
        )

    def _number(self, key: bytes | str) -> bytes:
        """A constant."""
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
        found = b"".join(
            (b"\xff" * (self.itemsize * key)).ljust(self.bytes, b"\0")
            if isinstance(key, int)
            else b"".join(numbers[value] for value in key)
            for key in self.places.rare
        )
        return found + bytes(-len(found) % 64)

    def image(self) -> Image:
        """The bytes."""
        texts = [self._before(body) for body in self.bodies], [self._after(body) for body in self.bodies]
        sizes = [len(before) + RELATIVE_BYTES + len(after) for before, after in zip(*texts, strict=True)]
        starts = [sum(sizes[:k]) + k * _ENTRY_BYTES for k in range(len(sizes))]
        entries = [start + size for start, size in zip(starts, sizes, strict=True)]
        data_at = -(-(entries[-1] + _ENTRY_BYTES) // PAGE) * PAGE
        lists: list[list[int]] = []
        list_at = data_at + len(self.pool)
        for body, start in zip(self.bodies, starts, strict=True):
            lists.append(self._list(start - list_at, body.rows))
            list_at += 8 * len(lists[-1])
        driver_at, list_at = list_at, data_at + len(self.pool)
        code = []
        for before, after, entry, words in zip(*texts, entries, lists, strict=True):
            pool_from = entry - len(after)
            code += [before, relative_pointer(POOL_POINTER, data_at + self.pool_bias - pool_from), after]
            code.append(relative_pointer(_DESCRIPTOR, list_at - (entry + RELATIVE_BYTES)))
            code.append(jump_to(driver_at - (entry + _ENTRY_BYTES)))
            list_at += 8 * len(words)
        words = [word for each in lists for word in each]
        data = self.pool + struct.pack(f"<{len(words)}q", *words) + bytes(8)
        copying = entries[1] if len(entries) > 1 else 0
        return Image(b"".join(code), data, entries[0], driver_at, self.program.operations, copying)

    def _before(self, body: _Body) -> bytes:
        """What loads registers that stay as they are, but the one of constants."""
        head = [
            load_pointer(register, FRAME_POINTER, self.arrays_at + 8 * k - self.bias)
            for k, register in enumerate(self.pointers)
        ]
        head += [load_pointer(register, *self.encoder.address(place)) for place, register in body.offsets.items()]
        return b"".join(head)

    def _after(self, body: _Body) -> bytes:
        advances = [advance_pointer(FRAME_POINTER, at, at - 8) for at in self._addresses(body.rows)]
        return b"".join([self.encoder.encode(body.code), *advances, RETURN])

    def _addresses(self, rows: list[int]) -> list[int]:
        """Where the addresses of arrays of rows are, which go on to the next rows when these are done."""
        return [self.rows_at + 8 * (place - HEADER) - self.bias for place in self._headers(len(rows), 0)]

    def listing(self, *, copying: bool = False) -> str:
        """The code as text; what brings rows into vectors and back is part of it. `copying`: that which copies on the
        way."""
        body = self.bodies[copying]
        lines = [
            f"mov {GENERAL[register]}, qword ptr [rdi + {self.arrays_at + 8 * k - self.bias}]"
            for k, register in enumerate(self.pointers)
        ]
        for place, register in body.offsets.items():
            pointer, offset = self.encoder.address(place)
            lines.append(f"mov {GENERAL[register]}, qword ptr [{GENERAL[pointer]} + {offset}]")
        lines += ["lea rsi, [rip + constants]", *Listing(self.encoder).lines(body.code)]
        for at in self._addresses(body.rows):
            lines += [f"mov rcx, qword ptr [rdi + {at - 8}]", f"add qword ptr [rdi + {at}], rcx"]
        lines.append("ret")
        return "kernel:\n" + "".join(f"    {line}\n" for line in lines)

    def _list(self, body: int, rows: list[int]) -> list[int]:
        """What the driver reads; see there."""
        arrays = self.places.arrays
        words = [self.frame_bytes, self.bias, body, len(arrays), len(rows)]
        for k, array in enumerate(arrays):
            words += [array, self.arrays_at + 8 * k]
        for array, at in zip(rows, self._addresses(rows), strict=True):
            words += [array, at + self.bias]
        return words
