"""Bytes of instructions: VEX for 16 registers of 32 bytes or of one scalar (AVX2), EVEX for 32 registers of 64 bytes
(AVX-512), and whichever is shorter for 32 registers of one scalar (AVX-512).

Every instruction here is opcode, ModRM byte and displacement behind a prefix that holds the high bits of register
numbers inverted (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, 2.3 and 2.7). The bytes of an
instruction are one number, lowest byte first, to which each register adds its bits by an exclusive or: an encoder is a
few tables. VEX has two prefixes, and the shorter one has bits for fewer registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from robodyn.compile.x86.forms import FUSED, Form, forms, is_evex, scalar_evex_forms
from robodyn.compile.x86.instructions import (
    ADD,
    ADVANCE,
    AHEAD,
    AND,
    CALL,
    CHOOSE,
    CLEAR,
    COMMUTES,
    DIV,
    EXTRACT,
    FETCH,
    HEADER,
    KEPT,
    LOAD,
    LOAD_HALF,
    LOAD_LANE,
    LOAD_ROW,
    MASK,
    MOVE,
    MUL,
    NO_OFFSET,
    OF_BITS,
    OR,
    PICK,
    POINTER,
    POOL,
    ROW,
    ROWS,
    SPACE,
    SQRT,
    STORE,
    STORE_HIGH,
    STORE_LANE,
    STORE_LOW,
    STORE_MANY,
    STORE_ONE,
    STORE_PAST,
    STORE_ROW,
    STORE_SOME,
    SUB,
    XOR,
    Instruction,
)
from robodyn.compile.x86.pointers import (
    ARRAY_POINTERS,
    NEAR,
    ROW_OFFSET,
    ROWS_POINTER,
    Base,
    advance_pointer,
    displaced,
    is_near,
    load_pointer,
)

_XMM_BYTES, _YMM_BYTES = 16, 32
_VEX_REGISTERS = 16


class Encoder:
    """Instructions on vectors.

    Args:
        itemsize: bytes of a scalar, 8 or 4.
        size: bytes of a register: EVEX with 64, VEX with 32 or those of a scalar.
        starts: where spaces begin, in bytes from where their pointer points.
        pointers: number of the general register that points to a space.
        mixed: whether there is EVEX for scalars as well.
        coarse: whether bases are near what EVEX reaches from there, not VEX.
        spread: spaces besides that of constants that have one scalar for all states.
    """

    def __init__(
        self,
        itemsize: int,
        size: int,
        starts: Mapping[int, int],
        pointers: Mapping[int, int],
        mixed: bool = False,
        coarse: bool = False,
        spread: Iterable[int] = (),
    ) -> None:
        self.itemsize, self.bytes = itemsize, size
        wide = self.wide = is_evex(size)
        self.scalar, self.mixed, self._counts = size == itemsize, mixed, wide or coarse
        assert self.scalar or not mixed
        self.starts, self.pointers = starts, pointers
        self._spread = {POOL, *spread} if wide else set[int]()
        self.forms = forms(itemsize, size)
        self.broadcast = Form(0x18 + (itemsize == 8), 2, w=int(itemsize == 8), sources=1)
        self.index = ROW_OFFSET
        """The general register that the offset of the row is in."""
        self._places: dict[int, tuple[int, bytes]] = {}
        self._bases = {code: self._evex(form) for code, form in self.forms.items()} if wide else {}
        self._plain_bases = {code: base for code, base in self._bases.items() if code in _PLAIN}
        self._loads: dict[int, tuple[int, bytes]] = {}
        self._vex_bases = {} if wide else {code: self._vex_base(code) for code in _COMMON if code in self.forms}
        self.evex_forms = scalar_evex_forms(itemsize) if mixed else {}
        self._evex_bases = {code: self._evex(form) for code, form in self.evex_forms.items()}
        self._both_places: dict[int, tuple[tuple[int, int, bytes], tuple[int, bytes], bool]] = {}
        self._based: dict[tuple[int, int], Base] = {}

    def reach(self, bases: Iterable[Base]) -> None:
        """Have these registers as well, from now on; before anything is encoded."""
        self._based = {(base.pointer, base.start): base for base in bases}

    def far(self, code: Iterable[Instruction]) -> Counter[tuple[int, int]]:
        """How many instructions have four bytes of displacement where one would do with a base, by its pointer and its
        start."""
        found: Counter[tuple[int, int]] = Counter()
        for place, times in Counter(~x for _, _, _, x in code if x < 0).items():
            pointer, offset = self.plain_address(place)
            start = self._start(place, offset)
            if start:
                found[pointer, start] += times
        return found

    def encode(self, code: Sequence[Instruction]) -> bytes:
        """The instructions' bytes."""
        return b"".join(self.parts(code))

    def parts(self, code: Sequence[Instruction]) -> list[bytes]:
        """The bytes of each instruction."""
        self.index = ROW_OFFSET
        if not self.wide:
            return self._vex_parts(code)
        parts: list[bytes] = []
        bases, places, loads = self._plain_bases, self._places, self._loads
        for operation, d, a, x in code:
            base = bases.get(operation)
            if base is None:
                if operation == LOAD and x < 0:
                    word, tail = loads.get(x) or self._load(x)
                    parts.append((word ^ _D[d]).to_bytes(6, "little") + tail)
                else:
                    parts.append(self._rare(operation, d, a, x))
            elif x >= 0:
                parts.append((base ^ _D[d] ^ _S[a] ^ _M[x]).to_bytes(6, "little"))
            else:
                bits, tail = places.get(~x) or self._place(~x)
                parts.append((base ^ _D[d] ^ _S[a] ^ bits).to_bytes(6, "little") + tail)
        return parts

    def _load(self, x: int) -> tuple[int, bytes]:
        """Reading place ~x, to register 0; a constant is spread over it."""
        bits, tail = self._place(~x)
        base = self._evex(self.broadcast) if bits & _BROADCAST else self._bases[LOAD]
        self._loads[x] = found = base ^ bits & ~_BROADCAST, tail
        return found

    def _rare(self, operation: int, d: int, a: int, x: int) -> bytes:
        """What is no arithmetic."""
        if operation == KEPT:
            self.index = d
            return b""
        if operation == ROW:
            self.index = ROW_OFFSET
        if operation in (ROWS, ROW):
            return load_pointer(ROWS_POINTER if operation == ROWS else ROW_OFFSET, *self.address(~x))
        if operation == POINTER:
            return load_pointer(ARRAY_POINTERS[d], *self.address(~x))
        if operation == ADVANCE:
            return advance_pointer(*self.address(~x))
        if operation == MASK:
            return _mask(a, x)
        if operation == CALL:
            modrm, tail = displaced(5, x, 1)
            return bytes((0xFF, modrm | 2 << 3)) + tail
        if operation in (LOAD_ROW, STORE_ROW):
            return self._row(operation, d, a, x)
        if operation in (LOAD_LANE, LOAD_HALF):
            return self._part(operation, d, a, x)
        if operation == EXTRACT:
            if not self.wide:
                return self._vex_bytes(self.forms[EXTRACT], x, 0, 0xC0 | (d & 7), b"", d >> 3) + bytes((a,))
            return (self._evex(self.forms[EXTRACT]) ^ _D[x] ^ _M[d]).to_bytes(6, "little") + bytes((a,))
        if operation == CLEAR:
            assert d < _VEX_REGISTERS
            return self._vex_bytes(_CLEARED, d, d, 0xC0 | (d & 7), b"", d >> 3, wide=False)
        if operation == STORE_MANY:
            pointer, offset = self.address(~x)
            size = a * self.itemsize
            place = *displaced(pointer, offset, 1), pointer >> 3
            return self._vex_bytes(_STORES[size], d, 0, *place, wide=size == _YMM_BYTES)
        if operation == FETCH:
            modrm, tail = displaced(ROWS_POINTER, x, 1)
            return bytes((0x0F, 0x18, modrm | 1 << 3)) + tail
        if operation == AHEAD:
            modrm, tail = self._in_row(x, 1)
            return b"\x42" * (self.index >> 3) + bytes((0x0F, 0x0D, modrm | 1 << 3)) + tail
        if operation in _PARTS and not self.wide:
            return self._vex_part(operation, d, a, x)
        if operation in _PARTS:
            bits, tail = self._wide_in_row(x, _PARTS[operation])
            last = bytes((a,)) if operation in (STORE_LANE, STORE_ONE) else b""
            word = self._evex(self.forms[operation]) ^ _D[d] ^ bits ^ (operation == STORE_SOME) << 24
            return word.to_bytes(6, "little") + tail + last
        memory = (0, b"") if x >= 0 else self._place(~x)
        return self._evex_bytes(self.forms[operation], d, a, x, memory)

    def _evex_bytes(self, form: Form, d: int, a: int, x: int, memory: tuple[int, bytes]) -> bytes:
        """An instruction by its form; `memory`: bits and displacement of x, if that is memory."""
        last = b"" if form.last is None else bytes((form.last,))
        if form.digit is not None:
            d, a = form.digit, d
        word = self._evex(form) ^ _D[d] ^ (_S[a] if form.sources == 2 or form.digit is not None else 0)
        if x >= 0:
            return (word ^ _M[x]).to_bytes(6, "little") + last
        bits, tail = memory
        return (word ^ bits).to_bytes(6, "little") + tail + last

    def _evex(self, form: Form) -> int:
        """62, P0, P1, P2, opcode, of registers 0."""
        length = 0x48 if form.wide and self.bytes == 64 else 0x08
        p0, p1 = 0xF0 | form.map, form.w << 7 | 0x7C | form.prefix
        return 0x62 | p0 << 8 | p1 << 16 | length << 24 | form.opcode << 32

    def address(self, place: int) -> tuple[int, int]:
        """The general register, and the bytes from where it points, of a place."""
        pointer, offset = self.plain_address(place)
        if self._based:
            base = self._based.get((pointer, self._start(place, offset)))
            if base is not None:
                return base.register, offset - base.start
        return pointer, offset

    def plain_address(self, place: int) -> tuple[int, int]:
        """The same without bases."""
        space = place // SPACE * SPACE
        return self.pointers[space], self.starts[space] + (place - space) * self._size(space)

    def _size(self, space: int) -> int:
        return 8 if space == HEADER else self.itemsize if space in self._spread else self.bytes

    def is_spread(self, place: int) -> bool:
        """Whether an instruction spreads what is at a place over its vector."""
        return place // SPACE * SPACE in self._spread

    def _start(self, place: int, offset: int) -> int:
        """Where the base would point that is near a place, bytes behind the pointer: 0 if that is near itself."""
        space = place // SPACE * SPACE
        unit = self._size(space) if self._counts and space != HEADER else 1
        return (offset // unit + NEAR) // (2 * NEAR) * (2 * NEAR * unit)

    def _place(self, place: int) -> tuple[int, bytes]:
        """Bits of a place in memory: those of the base register, of ModRM, and whether it is broadcast."""
        pointer, offset = self.address(place)
        broadcast = self.is_spread(place)
        modrm, tail = displaced(pointer, offset, self.itemsize if broadcast else self.bytes)
        self._places[place] = found = (pointer >> 3) << 13 | broadcast * _BROADCAST | modrm << 40, tail
        return found

    def _row(self, operation: int, d: int, mask: int, x: int) -> bytes:
        """Scalars from the x-th on of a row; the mask is a mask register, or with VEX, where rows are written whole, a
        vector register."""
        if self.wide:
            bits, tail = self._wide_in_row(x, self.bytes)
            masked = 0 if mask < 0 else mask | (0x80 if operation == LOAD_ROW else 0)
            word = self._bases[operation] ^ _D[d] ^ bits ^ masked << 24
            return word.to_bytes(6, "little") + tail
        form = self.forms[operation if mask >= 0 or operation == STORE_ROW else LOAD]
        return self._vex_bytes(form, d, max(mask, 0), *self._in_row(x, 1), index=self.index >> 3)

    def _part(self, operation: int, d: int, part: int, x: int) -> bytes:
        """Part of a row: the first one is loaded as a register of its size, others go between those of d."""
        last = bytes((part,)) if part else b""
        form = self.forms[operation] if part else replace(self.forms[LOAD], wide=False)
        if not self.wide:
            place = self._in_row(x, 1)
            return self._vex_bytes(form, d, d if part else 0, *place, wide=part > 0, index=self.index >> 3) + last
        bits, tail = self._wide_in_row(x, _YMM_BYTES if operation == LOAD_HALF else _XMM_BYTES)
        word = self._evex(form) ^ _D[d] ^ (_S[d] if part else 0) ^ bits
        if part == 0 and operation == LOAD_HALF:
            word |= 0x20 << 24
        return word.to_bytes(6, "little") + tail + last

    def lane_from(self, d: int, lane: int, pointer: int, offset: int) -> bytes:
        """16 bytes of memory to their place in a register; the first ones clear all behind them."""
        form = self.forms[LOAD_LANE] if lane else replace(self.forms[LOAD], wide=False)
        last = bytes((lane,)) if lane else b""
        if not self.wide:
            place = *displaced(pointer, offset, 1), pointer >> 3
            return self._vex_bytes(form, d, d if lane else 0, *place, wide=lane > 0) + last
        word = self._evex(form) ^ _D[d] ^ (_S[d] if lane else 0)
        return self._from(word, pointer, offset, _XMM_BYTES) + last

    def moved(self, operation: int, d: int, pointer: int, offset: int) -> bytes:
        """A register to memory or from there, as an operation says."""
        if not self.wide:
            return self._vex_bytes(self.forms[operation], d, 0, *displaced(pointer, offset, 1), pointer >> 3)
        return self._from(self._evex(self.forms[operation]) ^ _D[d], pointer, offset, self.bytes)

    @staticmethod
    def _from(word: int, pointer: int, offset: int, unit: int) -> bytes:
        modrm, tail = displaced(pointer, offset, unit)
        return (word ^ (pointer >> 3) << 13 ^ modrm << 40).to_bytes(6, "little") + tail

    def _in_row(self, x: int, unit: int) -> tuple[int, bytes]:
        """ModRM without its register, and what follows it, of scalar x of the row."""
        if self.index == NO_OFFSET:
            return displaced(ROWS_POINTER, x * self.itemsize, unit)
        modrm, tail = displaced(4, x * self.itemsize, unit)
        return modrm, bytes(((self.index & 7) << 3 | ROWS_POINTER,)) + tail

    def _wide_in_row(self, x: int, unit: int) -> tuple[int, bytes]:
        """The same as bits of an EVEX instruction."""
        modrm, tail = self._in_row(x, unit)
        return modrm << 40 ^ (self.index >> 3) << 14, tail

    # VEX: C5 with one more byte or C4 with two, opcode, ModRM.

    def _vex_parts(self, code: Sequence[Instruction]) -> list[bytes]:
        """The bytes of each instruction, those of nine in ten by tables; by EVEX where there is that as well and it is
        shorter, or has to be."""
        parts: list[bytes] = []
        bases, evex, places = self._vex_bases, self._evex_bases, self._both_places
        for operation, d, a, x in code:
            base = bases.get(operation)
            if base is None:
                if operation in evex:
                    parts.append(self._rare_scalar(operation, d, a, x))
                else:
                    plain = operation < ROWS or operation == STORE_PAST or operation >= PICK
                    parts.append((self._vex if plain else self._rare)(operation, d, a, x))
                continue
            short, long, first, commutes = base
            a &= first
            if x < 0:
                (extended, modrm, tail), (bits, far), shorter = places.get(~x) or self._both_place(~x)
                if shorter or d | a >= _VEX_REGISTERS:
                    word = evex[operation] ^ _D[d] ^ _S[a] ^ bits ^ (operation in OF_BITS and _BROADCAST)
                    parts.append(word.to_bytes(6, "little") + far)
                elif extended or not short:
                    word = long ^ _LONG_D[d] ^ a << 19 ^ extended ^ modrm << 32
                    parts.append(word.to_bytes(5, "little") + tail)
                else:
                    parts.append((short ^ _SHORT_D[d] ^ a << 11 ^ modrm << 24).to_bytes(4, "little") + tail)
                continue
            if d | a | x >= _VEX_REGISTERS:
                parts.append((evex[operation] ^ _D[d] ^ _S[a] ^ _M[x]).to_bytes(6, "little"))
                continue
            if commutes and x >= 8 > a:
                a, x = x, a  # a shorter prefix; assemblers do the same
            if x < 8 and short:
                parts.append((short ^ _SHORT_D[d] ^ a << 11 ^ (0xC0 | x) << 24).to_bytes(4, "little"))
            else:
                parts.append((long ^ _LONG_D[d] ^ a << 19 ^ _LONG_X[x]).to_bytes(5, "little"))
        return parts

    def _vex_base(self, operation: int) -> tuple[int, int, int, bool]:
        """Of registers 0: four bytes, or 0 where there are none so short; five bytes; bits that a first source has;
        whether sources change places."""
        form = self.forms[operation]
        last = 15 << 3 | (not self.scalar) << 2 | form.prefix
        short = 0xC5 | (0x80 | last) << 8 | form.opcode << 16 if form.map == 1 and not form.w else 0
        long = 0xC4 | (0xE0 | form.map) << 8 | (form.w << 7 | last) << 16 | form.opcode << 24
        commutes = operation in (OF_BITS if self.scalar else COMMUTES)
        return short, long, 31 if form.sources == 2 else 0, commutes

    def _vex(self, operation: int, d: int, a: int, x: int) -> bytes:
        form = self.forms[operation]
        last = b"" if form.last is None else bytes((form.last,))
        if operation == MOVE and x >= 8 > d:
            form, d, x = Form(0x29, prefix=form.prefix, sources=1), x, d
        if form.digit is not None:
            d, a = form.digit, d
        elif form.sources == 1:
            a = 0
        elif operation == SQRT:
            a = d  # whose upper scalars are kept
        wide = not self.scalar
        if x >= 0:
            return self._vex_bytes(form, d, a, 0xC0 | (x & 7), b"", x >> 3, wide) + last
        pointer, offset = self.address(~x)
        return self._vex_bytes(form, d, a, *displaced(pointer, offset, 1), pointer >> 3, wide) + last

    # Both: EVEX where it has to be, and where memory is too far for one byte of displacement but for EVEX.

    def uses_evex(self, operation: int, d: int, a: int, x: int) -> bool:
        """Which of both an instruction on scalars is encoded by."""
        if operation not in self.evex_forms:
            return False
        if operation not in self.forms or max(d, a, x) >= _VEX_REGISTERS:
            return True
        return x < 0 and (self._both_places.get(~x) or self._both_place(~x))[2]

    def evex_address(self, place: int) -> tuple[int, int]:
        """As `address`: from what is near enough for one byte of displacement that counts scalars, if anything is."""
        found = self.address(place)
        pointer, offset = self.plain_address(place)
        others = [(base.register, offset - base.start) for base in self._based.values() if base.pointer == pointer]
        near = (each for each in (found, (pointer, offset), *others) if is_near(each[1], self.itemsize))
        return next(near, found)

    def _both_place(self, place: int) -> tuple[tuple[int, int, bytes], tuple[int, bytes], bool]:
        """A place in memory for VEX (the high bit of the base register, ModRM, displacement) and for EVEX, and whether
        the second is shorter."""
        pointer, offset = self.address(place)
        vex = (pointer >> 3) << 13, *displaced(pointer, offset, 1)
        pointer, offset = self.evex_address(place)
        modrm, tail = displaced(pointer, offset, self.itemsize)
        shorter = self.mixed and len(tail) + 2 < len(vex[2])
        self._both_places[place] = found = vex, ((pointer >> 3) << 13 | modrm << 40, tail), shorter
        return found

    def _rare_scalar(self, operation: int, d: int, a: int, x: int) -> bytes:
        """What is rare of the operations on scalars."""
        if not self.uses_evex(operation, d, a, x):
            return self._vex(operation, d, a, x)
        if operation == SQRT:
            a = d  # whose upper scalars are kept
        bits, tail = (0, b"") if x >= 0 else (self._both_places.get(~x) or self._both_place(~x))[1]
        bits ^= operation >= CHOOSE and _BROADCAST
        return self._evex_bytes(self.evex_forms[operation], d, a, x, (bits, tail))

    def _vex_part(self, operation: int, d: int, part: int, x: int) -> bytes:
        """Write part of a register to the row."""
        form = self.forms[operation]
        last = bytes((part,)) if operation in (STORE_LANE, STORE_ONE) else b""
        if last == b"\0":  # the first ones are the beginning of the register
            form, last = _FIRST_PARTS[operation], b""
        return self._vex_bytes(form, d, 0, *self._in_row(x, 1), wide=form.wide, index=self.index >> 3) + last

    @staticmethod
    def _vex_bytes(
        form: Form, d: int, a: int, modrm: int, tail: bytes, extended: int = 0, wide: bool = True, index: int = 0
    ) -> bytes:
        """`extended`, `index`: the high bits of the last operand, or its pointer, and of its index."""
        last = (~a & 15) << 3 | wide << 2 | form.prefix
        modrm |= (d & 7) << 3
        if extended or index or form.map != 1 or form.w:
            head = bytes(
                (0xC4, (not d >> 3) << 7 | (not index) << 6 | (not extended) << 5 | form.map, form.w << 7 | last)
            )
        else:
            head = bytes((0xC5, (not d >> 3) << 7 | last))
        return head + bytes((form.opcode, modrm)) + tail


# `LESS`, which does not commute, is not among them.
_COMMON = (ADD, SUB, MUL, DIV, AND, OR, XOR, LOAD, STORE, *FUSED)
"""What tables encode with VEX."""
_PLAIN = (ADD, SUB, MUL, DIV, AND, OR, XOR, SQRT, STORE, MOVE, *FUSED)
"""And with EVEX, besides loads."""
_PARTS = {STORE_LANE: 16, STORE_SOME: 16, STORE_LOW: 8, STORE_HIGH: 8, STORE_ONE: 4}
"""Bytes that they write."""
_BROADCAST = 0x10 << 24
_CLEARED = Form(0x57, prefix=0)
_STORES = {4: Form(0x11, prefix=2), 8: Form(0x11, prefix=3), 16: Form(0x11, prefix=0), 32: Form(0x11, prefix=0)}
"""What writes as many bytes of a register."""
_FIRST_PARTS = {STORE_LANE: Form(0x11, prefix=0, sources=1, wide=False), STORE_ONE: Form(0x11, prefix=2, wide=False)}


# What registers add to an EVEX instruction: as destination, as first source, as second source.
_D = [(d >> 3 & 1) << 15 | (d >> 4) << 12 | (d & 7) << 43 for d in range(32)]
_S = [(a & 15) << 19 | (a >> 4) << 27 for a in range(32)]
_M = [(x >> 3 & 1) << 13 | (x >> 4) << 14 | (0xC0 | (x & 7)) << 40 for x in range(32)]


# Of VEX: as destination in a short instruction and in a long one, as second source in a long one.
_SHORT_D = [(d >> 3) << 15 | (d & 7) << 27 for d in range(16)]
_LONG_D = [(d >> 3) << 15 | (d & 7) << 35 for d in range(16)]
_LONG_X = [(x >> 3) << 13 | (0xC0 | (x & 7)) << 32 for x in range(16)]


def _mask(mask: int, count: int) -> bytes:
    """mov ecx, the mask of n scalars; kmovw to a mask register."""
    bits = ((1 << count) - 1).to_bytes(4, "little")
    return bytes((0xB8 | ROW_OFFSET,)) + bits + bytes((0xC5, 0xF8, 0x92, 0xC0 | mask << 3 | ROW_OFFSET))
