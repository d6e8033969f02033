"""Encodes instructions as bytes: VEX for 16 registers of 32 bytes or of one scalar (AVX2), EVEX for 32 registers of 64
bytes (AVX-512), and the shorter of both for 32 registers of one scalar (AVX-512).

Every instruction has a prefix, an opcode, a ModRM byte and a displacement. The prefix holds the high bits of register
numbers, inverted (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, 2.3 and 2.7). The encoder
treats the bytes of an instruction as one little-endian number. Each register number adds its bits by an exclusive or
with a table entry. VEX has two prefixes; the shorter one has bits for fewer registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from robodyn.compile.x86.forms import FUSED, Form, Opcode, forms, is_evex, scalar_evex_forms
from robodyn.compile.x86.instructions import (
    ADD,
    ADVANCE,
    AND,
    BITWISE,
    BLENDV,
    CALL,
    CLEAR,
    COMMUTES,
    DIV,
    EXTRACTF128,
    EXTRACTF128_STORE,
    EXTRACTPS,
    HEADER,
    INSERTF64X4,
    INSERTF128,
    KMOV,
    LOAD,
    LOAD_ROW,
    MAX,
    MIN,
    MOV_OFFSET,
    MOV_POINTER,
    MOV_ROWS,
    MOVE,
    MOVHPD,
    MOVLPD,
    MOVNT,
    MOVU_MASKED,
    MUL,
    NO_INDEX,
    OR,
    POOL,
    PREFETCHT0,
    PREFETCHW,
    SPACE,
    SQRT,
    STORE,
    STORE_ROW,
    STORE_ZEROS,
    SUB,
    TERNLOG_SELECT,
    USE_OFFSET,
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
    """Encodes the instructions of a program.

    Args:
        itemsize: bytes of a scalar, 8 or 4.
        size: bytes of a register: 64 for EVEX, 32 or those of a scalar for VEX.
        starts: offset of each space from its pointer, in bytes.
        pointers: number of the general register that points to each space.
        mixed: True if instructions on scalars may use EVEX as well.
        coarse: True if bases are placed for the reach of EVEX displacements instead of those of VEX.
        spread: spaces, besides that of constants, that hold one scalar for all states.
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
        self.broadcast = Form(Opcode.VBROADCASTSS + (itemsize == 8), 2, w=int(itemsize == 8), sources=1)
        self.index = ROW_OFFSET
        """The general register that holds the offset of the row."""
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
        """Use these bases as well. Must be called before anything is encoded."""
        self._based = {(base.pointer, base.start): base for base in bases}

    def far(self, code: Iterable[Instruction]) -> Counter[tuple[int, int]]:
        """Number of instructions that need a displacement of four bytes but would need one byte with a base, by the
        base's pointer and start."""
        counts: Counter[tuple[int, int]] = Counter()
        for place, times in Counter(~x for _, _, _, x in code if x < 0).items():
            pointer, offset = self.plain_address(place)
            start = self._start(place, offset)
            if start:
                counts[pointer, start] += times
        return counts

    def encode(self, code: Sequence[Instruction]) -> bytes:
        """The bytes of the instructions."""
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
        """Loads place ~x to register 0; broadcasts a constant."""
        bits, tail = self._place(~x)
        base = self._evex(self.broadcast) if bits & _BROADCAST else self._bases[LOAD]
        self._loads[x] = entry = base ^ bits & ~_BROADCAST, tail
        return entry

    def _rare(self, operation: int, d: int, a: int, x: int) -> bytes:
        """Encode an instruction that is not arithmetic."""
        if operation == USE_OFFSET:
            self.index = d
            return b""
        if operation == MOV_OFFSET:
            self.index = ROW_OFFSET
        if operation in (MOV_ROWS, MOV_OFFSET):
            return load_pointer(ROWS_POINTER if operation == MOV_ROWS else ROW_OFFSET, *self.address(~x))
        if operation == MOV_POINTER:
            return load_pointer(ARRAY_POINTERS[d], *self.address(~x))
        if operation == ADVANCE:
            return advance_pointer(*self.address(~x))
        if operation == KMOV:
            return _mask(a, x)
        if operation == CALL:
            modrm, tail = displaced(5, x, 1)
            return bytes((_CALL, modrm | 2 << 3)) + tail
        if operation in (LOAD_ROW, STORE_ROW):
            return self._row(operation, d, a, x)
        if operation in (INSERTF128, INSERTF64X4):
            return self._part(operation, d, a, x)
        if operation == EXTRACTF128:
            if not self.wide:
                return self._vex_bytes(self.forms[EXTRACTF128], x, 0, 0xC0 | (d & 7), b"", d >> 3) + bytes((a,))
            return (self._evex(self.forms[EXTRACTF128]) ^ _D[x] ^ _M[d]).to_bytes(6, "little") + bytes((a,))
        if operation == CLEAR:
            assert d < _VEX_REGISTERS
            return self._vex_bytes(_CLEARED, d, d, 0xC0 | (d & 7), b"", d >> 3, wide=False)
        if operation == STORE_ZEROS:
            pointer, offset = self.address(~x)
            size = a * self.itemsize
            place = *displaced(pointer, offset, 1), pointer >> 3
            return self._vex_bytes(_STORES[size], d, 0, *place, wide=size == _YMM_BYTES)
        if operation == PREFETCHT0:
            modrm, tail = displaced(ROWS_POINTER, x, 1)
            return bytes((*_PREFETCHT0, modrm | 1 << 3)) + tail
        if operation == PREFETCHW:
            modrm, tail = self._in_row(x, 1)
            return b"\x42" * (self.index >> 3) + bytes((*_PREFETCHW, modrm | 1 << 3)) + tail
        if operation in _PARTS and not self.wide:
            return self._vex_part(operation, d, a, x)
        if operation in _PARTS:
            bits, tail = self._wide_in_row(x, _PARTS[operation])
            last = bytes((a,)) if operation in (EXTRACTF128_STORE, EXTRACTPS) else b""
            word = self._evex(self.forms[operation]) ^ _D[d] ^ bits ^ (operation == MOVU_MASKED) << 24
            return word.to_bytes(6, "little") + tail + last
        memory = (0, b"") if x >= 0 else self._place(~x)
        return self._evex_bytes(self.forms[operation], d, a, x, memory)

    def _evex_bytes(self, form: Form, d: int, a: int, x: int, memory: tuple[int, bytes]) -> bytes:
        """Encode an instruction by its form with EVEX. `memory`: bits and displacement of x if x is memory."""
        last = b"" if form.last is None else bytes((form.last,))
        if form.digit is not None:
            d, a = form.digit, d
        word = self._evex(form) ^ _D[d] ^ (_S[a] if form.sources == 2 or form.digit is not None else 0)
        if x >= 0:
            return (word ^ _M[x]).to_bytes(6, "little") + last
        bits, tail = memory
        return (word ^ bits).to_bytes(6, "little") + tail + last

    def _evex(self, form: Form) -> int:
        """The EVEX prefix (62, P0, P1, P2) and the opcode, for registers 0."""
        length = 0x48 if form.wide and self.bytes == 64 else 0x08
        p0, p1 = 0xF0 | form.map, form.w << 7 | 0x7C | form.prefix
        return 0x62 | p0 << 8 | p1 << 16 | length << 24 | form.opcode << 32

    def address(self, place: int) -> tuple[int, int]:
        """The general register and the displacement in bytes that address a place."""
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
        """Whether the place holds one scalar, which instructions broadcast to a vector."""
        return place // SPACE * SPACE in self._spread

    def _start(self, place: int, offset: int) -> int:
        """Start of the base nearest to a place, in bytes behind the pointer; 0 if the pointer itself is nearest."""
        space = place // SPACE * SPACE
        unit = self._size(space) if self._counts and space != HEADER else 1
        return (offset // unit + NEAR) // (2 * NEAR) * (2 * NEAR * unit)

    def _place(self, place: int) -> tuple[int, bytes]:
        """EVEX bits and displacement of a place in memory. The bits are those of the base register, of ModRM, and of
        broadcasting."""
        pointer, offset = self.address(place)
        broadcast = self.is_spread(place)
        modrm, tail = displaced(pointer, offset, self.itemsize if broadcast else self.bytes)
        self._places[place] = entry = (pointer >> 3) << 13 | broadcast * _BROADCAST | modrm << 40, tail
        return entry

    def _row(self, operation: int, d: int, mask: int, x: int) -> bytes:
        """Load or store scalars of a row from index x on. `mask` is a mask register with EVEX, a vector register with
        VEX. VEX stores whole rows only."""
        if self.wide:
            bits, tail = self._wide_in_row(x, self.bytes)
            masked = 0 if mask < 0 else mask | (0x80 if operation == LOAD_ROW else 0)
            word = self._bases[operation] ^ _D[d] ^ bits ^ masked << 24
            return word.to_bytes(6, "little") + tail
        form = self.forms[operation if mask >= 0 or operation == STORE_ROW else LOAD]
        return self._vex_bytes(form, d, max(mask, 0), *self._in_row(x, 1), index=self.index >> 3)

    def _part(self, operation: int, d: int, part: int, x: int) -> bytes:
        """Load one part of a row. The first part is loaded as a smaller register; others are inserted into d."""
        last = bytes((part,)) if part else b""
        form = self.forms[operation] if part else replace(self.forms[LOAD], wide=False)
        if not self.wide:
            place = self._in_row(x, 1)
            return self._vex_bytes(form, d, d if part else 0, *place, wide=part > 0, index=self.index >> 3) + last
        bits, tail = self._wide_in_row(x, _YMM_BYTES if operation == INSERTF64X4 else _XMM_BYTES)
        word = self._evex(form) ^ _D[d] ^ (_S[d] if part else 0) ^ bits
        if part == 0 and operation == INSERTF64X4:
            word |= 0x20 << 24
        return word.to_bytes(6, "little") + tail + last

    def lane_from(self, d: int, lane: int, pointer: int, offset: int) -> bytes:
        """Load 16 bytes of memory to their lane of a register. Loading the first lane clears the others."""
        form = self.forms[INSERTF128] if lane else replace(self.forms[LOAD], wide=False)
        last = bytes((lane,)) if lane else b""
        if not self.wide:
            place = *displaced(pointer, offset, 1), pointer >> 3
            return self._vex_bytes(form, d, d if lane else 0, *place, wide=lane > 0) + last
        word = self._evex(form) ^ _D[d] ^ (_S[d] if lane else 0)
        return self._from(word, pointer, offset, _XMM_BYTES) + last

    def moved(self, operation: int, d: int, pointer: int, offset: int) -> bytes:
        """Load or store a register, as `operation` says."""
        if not self.wide:
            return self._vex_bytes(self.forms[operation], d, 0, *displaced(pointer, offset, 1), pointer >> 3)
        return self._from(self._evex(self.forms[operation]) ^ _D[d], pointer, offset, self.bytes)

    @staticmethod
    def _from(word: int, pointer: int, offset: int, unit: int) -> bytes:
        modrm, tail = displaced(pointer, offset, unit)
        return (word ^ (pointer >> 3) << 13 ^ modrm << 40).to_bytes(6, "little") + tail

    def _in_row(self, x: int, unit: int) -> tuple[int, bytes]:
        """ModRM without its register field, and the bytes behind it, for scalar x of the row."""
        if self.index == NO_INDEX:
            return displaced(ROWS_POINTER, x * self.itemsize, unit)
        modrm, tail = displaced(4, x * self.itemsize, unit)
        return modrm, bytes(((self.index & 7) << 3 | ROWS_POINTER,)) + tail

    def _wide_in_row(self, x: int, unit: int) -> tuple[int, bytes]:
        """The same as bits of an EVEX instruction."""
        modrm, tail = self._in_row(x, unit)
        return modrm << 40 ^ (self.index >> 3) << 14, tail

    # VEX: prefix C5 with one more byte or C4 with two, then opcode and ModRM.

    def _vex_parts(self, code: Sequence[Instruction]) -> list[bytes]:
        """The bytes of each instruction. Tables encode nine of ten. In mixed programs EVEX is used if it is shorter or
        necessary."""
        parts: list[bytes] = []
        bases, evex, places = self._vex_bases, self._evex_bases, self._both_places
        for operation, d, a, x in code:
            base = bases.get(operation)
            if base is None:
                if operation in evex:
                    parts.append(self._rare_scalar(operation, d, a, x))
                else:
                    plain = operation < MOV_ROWS or operation == MOVNT or operation >= BLENDV
                    parts.append((self._vex if plain else self._rare)(operation, d, a, x))
                continue
            short, long, first, commutes = base
            a &= first
            if x < 0:
                (extended, modrm, tail), (bits, far), shorter = places.get(~x) or self._both_place(~x)
                if shorter or d | a >= _VEX_REGISTERS:
                    word = evex[operation] ^ _D[d] ^ _S[a] ^ bits ^ (operation in BITWISE and _BROADCAST)
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
                a, x = x, a  # allows the shorter prefix; assemblers do the same
            if x < 8 and short:
                parts.append((short ^ _SHORT_D[d] ^ a << 11 ^ (0xC0 | x) << 24).to_bytes(4, "little"))
            else:
                parts.append((long ^ _LONG_D[d] ^ a << 19 ^ _LONG_X[x]).to_bytes(5, "little"))
        return parts

    def _vex_base(self, operation: int) -> tuple[int, int, int, bool]:
        """For registers 0: the short encoding (0 if there is none), the long encoding, a bit mask for the first source
        (0 if there is none), and whether the sources commute."""
        form = self.forms[operation]
        last = 15 << 3 | (not self.scalar) << 2 | form.prefix
        short = 0xC5 | (0x80 | last) << 8 | form.opcode << 16 if form.map == 1 and not form.w else 0
        long = 0xC4 | (0xE0 | form.map) << 8 | (form.w << 7 | last) << 16 | form.opcode << 24
        commutes = operation in (BITWISE if self.scalar else COMMUTES)
        return short, long, 31 if form.sources == 2 else 0, commutes

    def _vex(self, operation: int, d: int, a: int, x: int) -> bytes:
        form = self.forms[operation]
        last = b"" if form.last is None else bytes((form.last,))
        if operation == MOVE and x >= 8 > d:
            form, d, x = Form(Opcode.MOVAPS_STORE, prefix=form.prefix, sources=1), x, d
        if form.digit is not None:
            d, a = form.digit, d
        elif form.sources == 1:
            a = 0
        elif operation == SQRT:
            a = d  # the instruction copies the upper scalars of this source
        wide = not self.scalar
        if x >= 0:
            return self._vex_bytes(form, d, a, 0xC0 | (x & 7), b"", x >> 3, wide) + last
        pointer, offset = self.address(~x)
        return self._vex_bytes(form, d, a, *displaced(pointer, offset, 1), pointer >> 3, wide) + last

    # Mixed: EVEX where registers require it, and where only the displacement of EVEX fits into one byte.

    def uses_evex(self, operation: int, d: int, a: int, x: int) -> bool:
        """Whether an instruction on scalars is encoded with EVEX."""
        if operation not in self.evex_forms:
            return False
        if operation not in self.forms or max(d, a, x) >= _VEX_REGISTERS:
            return True
        return x < 0 and (self._both_places.get(~x) or self._both_place(~x))[2]

    def evex_address(self, place: int) -> tuple[int, int]:
        """As `address`, but prefers a register from which the EVEX displacement, counted in scalars, fits into one
        byte."""
        default = self.address(place)
        pointer, offset = self.plain_address(place)
        others = [(base.register, offset - base.start) for base in self._based.values() if base.pointer == pointer]
        near = (each for each in (default, (pointer, offset), *others) if is_near(each[1], self.itemsize))
        return next(near, default)

    def _both_place(self, place: int) -> tuple[tuple[int, int, bytes], tuple[int, bytes], bool]:
        """The address of a place for VEX (high bit of the base register, ModRM, displacement) and for EVEX, and whether
        EVEX is shorter."""
        pointer, offset = self.address(place)
        vex = (pointer >> 3) << 13, *displaced(pointer, offset, 1)
        pointer, offset = self.evex_address(place)
        modrm, tail = displaced(pointer, offset, self.itemsize)
        shorter = self.mixed and len(tail) + 2 < len(vex[2])
        self._both_places[place] = entry = vex, ((pointer >> 3) << 13 | modrm << 40, tail), shorter
        return entry

    def _rare_scalar(self, operation: int, d: int, a: int, x: int) -> bytes:
        """Encode a rare instruction on scalars."""
        if not self.uses_evex(operation, d, a, x):
            return self._vex(operation, d, a, x)
        if operation == SQRT:
            a = d  # the instruction copies the upper scalars of this source
        bits, tail = (0, b"") if x >= 0 else (self._both_places.get(~x) or self._both_place(~x))[1]
        bits ^= operation >= TERNLOG_SELECT and _BROADCAST
        return self._evex_bytes(self.evex_forms[operation], d, a, x, (bits, tail))

    def _vex_part(self, operation: int, d: int, part: int, x: int) -> bytes:
        """Store part of a register to the row."""
        form = self.forms[operation]
        last = bytes((part,)) if operation in (EXTRACTF128_STORE, EXTRACTPS) else b""
        if last == b"\0":  # a plain store writes the first part of a register
            form, last = _FIRST_PARTS[operation], b""
        return self._vex_bytes(form, d, 0, *self._in_row(x, 1), wide=form.wide, index=self.index >> 3) + last

    @staticmethod
    def _vex_bytes(
        form: Form, d: int, a: int, modrm: int, tail: bytes, extended: int = 0, wide: bool = True, index: int = 0
    ) -> bytes:
        """Encode with VEX. `extended` and `index`: the high bits of the last operand (or its pointer) and of its index
        register."""
        last = (~a & 15) << 3 | wide << 2 | form.prefix
        modrm |= (d & 7) << 3
        if extended or index or form.map != 1 or form.w:
            head = bytes(
                (0xC4, (not d >> 3) << 7 | (not index) << 6 | (not extended) << 5 | form.map, form.w << 7 | last)
            )
        else:
            head = bytes((0xC5, (not d >> 3) << 7 | last))
        return head + bytes((form.opcode, modrm)) + tail


# CMPGT must not be in this table: `_vex_base` takes `BITWISE` instructions to commute, and CMPGT does not.
_COMMON = (ADD, SUB, MUL, DIV, MIN, MAX, AND, OR, XOR, LOAD, STORE, *FUSED)
"""Instructions that tables encode with VEX."""
_PLAIN = (ADD, SUB, MUL, DIV, MIN, MAX, AND, OR, XOR, SQRT, STORE, MOVE, *FUSED)
"""Instructions that tables encode with EVEX; loads have a table of their own."""
_PARTS = {EXTRACTF128_STORE: 16, MOVU_MASKED: 16, MOVLPD: 8, MOVHPD: 8, EXTRACTPS: 4}
"""Bytes that each partial store writes."""
_BROADCAST = 0x10 << 24
_CALL, _PREFETCHT0, _PREFETCHW = 0xFF, (0x0F, 0x18), (0x0F, 0x0D)
"""Opcodes of instructions without a vector prefix; the digits in their ModRM bytes are 2, 1 and 1."""
_MOV_CONSTANT, _KMOVW = 0xB8, (0xC5, 0xF8, 0x92)
"""Opcodes of mov to a general register, to which the register's number is added, and of kmovw with its prefix."""
_CLEARED = Form(Opcode.XORPS, prefix=0)
_STORES = {
    4: Form(Opcode.MOVUPS_STORE, prefix=2),
    8: Form(Opcode.MOVUPS_STORE, prefix=3),
    16: Form(Opcode.MOVUPS_STORE, prefix=0),
    32: Form(Opcode.MOVUPS_STORE, prefix=0),
}
"""The encodings of stores of the first 4, 8, 16 or 32 bytes of a register."""
_FIRST_PARTS = {
    EXTRACTF128_STORE: Form(Opcode.MOVUPS_STORE, prefix=0, sources=1, wide=False),
    EXTRACTPS: Form(Opcode.MOVUPS_STORE, prefix=2, wide=False),
}


# The bits that a register number adds to an EVEX instruction: as destination, as first source, as second source.
_D = [(d >> 3 & 1) << 15 | (d >> 4) << 12 | (d & 7) << 43 for d in range(32)]
_S = [(a & 15) << 19 | (a >> 4) << 27 for a in range(32)]
_M = [(x >> 3 & 1) << 13 | (x >> 4) << 14 | (0xC0 | (x & 7)) << 40 for x in range(32)]


# The same for VEX: as destination with the short and the long prefix, as second source with the long prefix.
_SHORT_D = [(d >> 3) << 15 | (d & 7) << 27 for d in range(16)]
_LONG_D = [(d >> 3) << 15 | (d & 7) << 35 for d in range(16)]
_LONG_X = [(x >> 3) << 13 | (0xC0 | (x & 7)) << 32 for x in range(16)]


def _mask(mask: int, count: int) -> bytes:
    """mov ecx, the mask of n scalars; kmovw k, ecx."""
    bits = ((1 << count) - 1).to_bytes(4, "little")
    return bytes((_MOV_CONSTANT | ROW_OFFSET,)) + bits + bytes((*_KMOVW, 0xC0 | mask << 3 | ROW_OFFSET))
