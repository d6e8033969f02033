"""Instructions as assemblers write them, in Intel's order: what is written first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from robodyn.compile.x86.encoding import Encoder
from robodyn.compile.x86.instructions import (
    ADD,
    ADVANCE,
    AHEAD,
    AND,
    CALL,
    CHOOSE,
    CLEAR,
    DIV,
    EVEN,
    EXTRACT,
    FETCH,
    FMA132,
    FMA213,
    FMA231,
    FMS132,
    FMS213,
    FMS231,
    FNMA132,
    FNMA213,
    FNMA231,
    HIGH,
    HIGH_PAIRS,
    KEPT,
    LESS,
    LOAD,
    LOAD_HALF,
    LOAD_LANE,
    LOAD_ROW,
    LOW,
    LOW_PAIRS,
    LOWEST,
    MASK,
    MOVE,
    MUL,
    NO_OFFSET,
    ODD,
    OF_BITS,
    OR,
    PICK,
    POINTER,
    ROW,
    ROWS,
    SECOND,
    SPREAD,
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
from robodyn.compile.x86.pointers import ARRAY_POINTERS, GENERAL, ROW_OFFSET, ROWS_POINTER

_NAMES = {
    ADD: "vadd",
    SUB: "vsub",
    MUL: "vmul",
    DIV: "vdiv",
    AND: "vand",
    OR: "vor",
    XOR: "vxor",
    SQRT: "vsqrt",
    LOAD: "vmovu",
    STORE: "vmovu",
    MOVE: "vmova",
    LOW: "vunpckl",
    HIGH: "vunpckh",
    FMA132: "vfmadd132",
    FMA213: "vfmadd213",
    FMA231: "vfmadd231",
    FMS132: "vfmsub132",
    FMS213: "vfmsub213",
    FMS231: "vfmsub231",
    FNMA132: "vfnmadd132",
    FNMA213: "vfnmadd213",
    FNMA231: "vfnmadd231",
}
_ONE_SOURCE = (SQRT, LOAD, MOVE, LOWEST, SECOND, SPREAD)
_STORES = {
    4: ("vmovss", "dword", "xmm"),
    8: ("vmovsd", "qword", "xmm"),
    16: ("vmovups", "xmmword", "xmm"),
    32: ("vmovups", "ymmword", "ymm"),
}
"""What writes n bytes of a register."""


class Listing:
    """Lines for the instructions of an encoder."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.double = encoder.itemsize == 8
        self.suffix = "pd" if self.double else "ps"
        self.vector = {64: "zmm", 32: "ymm"}.get(encoder.bytes, "xmm")
        self.size = f"{self.vector}word ptr"
        self.scalar = ("sd" if self.double else "ss") if encoder.scalar else ""
        self._evex = "{evex} " if encoder.wide else ""
        self.index = ROW_OFFSET

    def lines(self, code: Sequence[Instruction]) -> Iterator[str]:
        """A line for each, but two for a mask, and none for a register that keeps an offset."""
        self.index = ROW_OFFSET
        for instruction in code:
            # Else an assembler takes the shorter prefix, whatever displacements are.
            evex = self.encoder.mixed and self.encoder.uses_evex(*instruction)
            for line in self._line(*instruction):
                yield f"{{evex}} {line}" if evex else line

    def _line(self, code: int, d: int, a: int, x: int) -> Iterator[str]:
        v = self.vector
        if code == MASK:
            yield f"mov ecx, {(1 << x) - 1}"
            yield f"kmovw k{a}, ecx"
        elif code == KEPT:
            self.index = d
        elif code == CALL:
            yield f"call qword ptr [rbp + {x}]"
        elif code == FETCH:
            yield f"prefetcht0 byte ptr {self._address(ROWS_POINTER, x)}"
        elif code == AHEAD:
            yield f"prefetchw byte ptr {self._in_row(x)}"
        elif code in (ROWS, ROW, POINTER):
            number = ARRAY_POINTERS[d] if code == POINTER else ROWS_POINTER if code == ROWS else ROW_OFFSET
            register = GENERAL[number]
            self.index = ROW_OFFSET if code == ROW else self.index
            yield f"mov {register}, qword ptr {self._address(*self.encoder.address(~x))}"
        elif code == ADVANCE:
            pointer, offset = self.encoder.address(~x)
            yield f"mov rax, qword ptr {self._address(pointer, offset - 8)}"
            yield f"add qword ptr {self._address(pointer, offset)}, rax"
        elif code in (LOAD_LANE, LOAD_HALF):
            part = "xmm" if code == LOAD_LANE else "ymm"
            place = f"{part}word ptr {self._in_row(x)}"
            if a == 0:
                yield f"{self._evex}vmovu{self.suffix} {part}{d}, {place}"
            else:
                lane = ("64x2" if self.double else "32x4") if self.encoder.wide else "128"
                yield f"vinsertf{lane if code == LOAD_LANE else '64x4'} {v}{d}, {v}{d}, {place}, {a}"
        elif code == STORE_LANE and a == 0 and not self.encoder.wide:
            yield f"vmovups xmmword ptr {self._in_row(x)}, xmm{d}"
        elif code in (EXTRACT, STORE_LANE):
            name = f"vextractf{('64x2' if self.double else '32x4') if self.encoder.wide else '128'}"
            place = f"xmm{d}" if code == EXTRACT else f"xmmword ptr {self._in_row(x)}"
            yield f"{name} {place}, {v}{x if code == EXTRACT else d}, {a}"
        elif code == STORE_SOME:
            yield f"vmovu{self.suffix} xmmword ptr {self._in_row(x)} {{k1}}, xmm{d}"
        elif code in (STORE_LOW, STORE_HIGH):
            yield f"{self._evex}vmov{'l' if code == STORE_LOW else 'h'}pd qword ptr {self._in_row(x)}, xmm{d}"
        elif code == STORE_ONE and a == 0 and not self.encoder.wide:
            yield f"vmovss dword ptr {self._in_row(x)}, xmm{d}"
        elif code == STORE_ONE:
            yield f"{self._evex}vextractps dword ptr {self._in_row(x)}, xmm{d}, {a}"
        elif code in (LOAD_ROW, STORE_ROW):
            yield self._row(code == LOAD_ROW, d, a, x)
        elif code == CLEAR:
            yield f"vxorps xmm{d}, xmm{d}, xmm{d}"
        elif code == STORE_MANY:
            name, size, register = _STORES[a * self.encoder.itemsize]
            yield f"{name} {size} ptr {self._address(*self.encoder.address(~x))}, {register}{d}"
        elif code == STORE_PAST:
            yield f"vmovntps {self._operand(x, whole=True)}, {v}{d}"
        elif code == STORE:
            place = self._operand(x, whole=True, evex=self.encoder.uses_evex(STORE, d, a, x))
            yield f"{self._name(STORE)[0]} {place}, {v}{d}"
        elif code == LOAD and self._broadcasts(x):
            yield f"vbroadcasts{'d' if self.double else 's'} {v}{d}, {self._operand(x, whole=True)}"
        else:
            name, last = self._name(code)
            operands = [f"{v}{d}"] + ([] if code in _ONE_SOURCE else [f"{v}{a}"])
            operands += [f"{v}{d}"] if code == SQRT and self.scalar else []
            bits, evex = code in OF_BITS or code >= CHOOSE, self.encoder.uses_evex(code, d, a, x)
            operand = self._operand(x, whole=code == LOAD, bits=bits, evex=evex)
            half = code == EVEN and not self.encoder.wide
            operands.append(operand.replace("ymm", "xmm") if half else operand)
            yield f"{name} {', '.join(operands)}{last}"

    def _name(self, code: int) -> tuple[str, str]:
        """The instruction, and its last operand where that is a number."""
        top, wide, word = 8 * self.encoder.itemsize - 1, self.encoder.wide, "q" if self.double else "d"
        if code in (LOWEST, SECOND):
            return f"vpsll{word}", f", {top - (code == SECOND)}"
        if code == SPREAD:
            return f"vpsra{word}", f", {top}"
        if code == LESS:
            return f"vpcmpgt{word}", ""
        if code >= PICK:
            return f"vblendv{self.suffix}", f", {self.vector}{code - PICK}"
        if code in (LOW_PAIRS, HIGH_PAIRS):
            return ("vunpcklpd" if code == LOW_PAIRS else "vunpckhpd"), ""
        if code >= CHOOSE:
            return f"vpternlog{word}", f", {(self.encoder.evex_forms or self.encoder.forms)[code].last}"
        if code in (EVEN, ODD) and wide:
            return "vshuff64x2", f", {0x88 if code == EVEN else 0xDD}"
        if code in (EVEN, ODD):
            return ("vinsertf128", ", 1") if code == EVEN else ("vperm2f128", ", 49")
        if self.scalar and code in (LOAD, STORE):
            return f"vmov{self.scalar}", ""
        packed = not self.scalar or code == MOVE or code in OF_BITS
        return _NAMES[code] + (self.suffix if packed else self.scalar), ""

    def _broadcasts(self, x: int) -> bool:
        return x < 0 and self.encoder.is_spread(~x)

    def _operand(self, x: int, whole: bool, bits: bool = False, evex: bool = False) -> str:
        """A register or memory; `whole`: no broadcast within the instruction; `bits`: read for its bits; `evex`: the
        instruction is one of EVEX on scalars.
        """
        if x >= 0:
            return f"{self.vector}{x}"
        place = self._address(*(self.encoder.evex_address if evex else self.encoder.address)(~x))
        item = "qword ptr" if self.double else "dword ptr"
        if self.scalar and (evex or not bits):
            return f"{item} {place}" + (f"{{1to{16 // self.encoder.itemsize}}}" if bits else "")
        if not self._broadcasts(x):
            return f"{self.size} {place}"
        return f"{item} {place}" + ("" if whole else f"{{1to{self.encoder.bytes // self.encoder.itemsize}}}")

    def _in_row(self, scalar: int) -> str:
        index = None if self.index == NO_OFFSET else self.index
        return self._address(ROWS_POINTER, scalar * self.encoder.itemsize, index)

    def _row(self, load: bool, d: int, mask: int, scalar: int) -> str:
        v, place = self.vector, f"{self.size} {self._in_row(scalar)}"
        if mask >= 0 and not self.encoder.wide:
            return f"vmaskmov{self.suffix} {v}{d}, {v}{mask}, {place}"
        masked = f" {{k{mask}}}" if mask >= 0 else ""
        if load:
            return f"vmovu{self.suffix} {v}{d}{masked}{' {z}' if mask >= 0 else ''}, {place}"
        return f"vmovu{self.suffix} {place}{masked}, {v}{d}"

    @staticmethod
    def _address(pointer: int, offset: int, index: int | None = None) -> str:
        more = "" if index is None else f" + {GENERAL[index]}"
        sign = f" {'-' if offset < 0 else '+'} {abs(offset)}" if offset else ""
        return f"[{GENERAL[pointer]}{more}{sign}]"
