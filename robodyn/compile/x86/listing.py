"""Prints instructions in the syntax of assemblers, in Intel's order of operands: destination first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from robodyn.compile.x86.encoding import Encoder
from robodyn.compile.x86.instructions import (
    ADD,
    ADVANCE,
    AND,
    BITWISE,
    BLENDV,
    CALL,
    CLEAR,
    CMPGT,
    DIV,
    EXTRACTF128,
    EXTRACTF128_STORE,
    EXTRACTPS,
    FMADD132,
    FMADD213,
    FMADD231,
    FMSUB132,
    FMSUB213,
    FMSUB231,
    FNMADD132,
    FNMADD213,
    FNMADD231,
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
    PREFETCHT0,
    PREFETCHW,
    SHUFF_EVEN,
    SHUFF_ODD,
    SLL_BIT0,
    SLL_BIT1,
    SQRT,
    SRA,
    STORE,
    STORE_ROW,
    STORE_ZEROS,
    SUB,
    TERNLOG_SELECT,
    UNPCKH,
    UNPCKHPD,
    UNPCKL,
    UNPCKLPD,
    USE_OFFSET,
    XOR,
    Instruction,
)
from robodyn.compile.x86.pointers import ARRAY_POINTERS, GENERAL, ROW_OFFSET, ROWS_POINTER

_NAMES = {
    ADD: "vadd",
    SUB: "vsub",
    MUL: "vmul",
    DIV: "vdiv",
    MIN: "vmin",
    MAX: "vmax",
    AND: "vand",
    OR: "vor",
    XOR: "vxor",
    SQRT: "vsqrt",
    LOAD: "vmovu",
    STORE: "vmovu",
    MOVE: "vmova",
    UNPCKL: "vunpckl",
    UNPCKH: "vunpckh",
    FMADD132: "vfmadd132",
    FMADD213: "vfmadd213",
    FMADD231: "vfmadd231",
    FMSUB132: "vfmsub132",
    FMSUB213: "vfmsub213",
    FMSUB231: "vfmsub231",
    FNMADD132: "vfnmadd132",
    FNMADD213: "vfnmadd213",
    FNMADD231: "vfnmadd231",
}
_ONE_SOURCE = (SQRT, LOAD, MOVE, SLL_BIT0, SLL_BIT1, SRA)
_STORES = {
    4: ("vmovss", "dword", "xmm"),
    8: ("vmovsd", "qword", "xmm"),
    16: ("vmovups", "xmmword", "xmm"),
    32: ("vmovups", "ymmword", "ymm"),
}
"""Mnemonic, memory size and register of a store of n bytes."""


class Listing:
    """Prints the lines for the instructions of an encoder."""

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
        """One line for each instruction; two for a mask, none for `USE_OFFSET`."""
        self.index = ROW_OFFSET
        for instruction in code:
            # Without {evex}, assemblers choose VEX even if its displacement makes the instruction longer.
            evex = self.encoder.mixed and self.encoder.uses_evex(*instruction)
            for line in self._line(*instruction):
                yield f"{{evex}} {line}" if evex else line

    def _line(self, code: int, d: int, a: int, x: int) -> Iterator[str]:
        v = self.vector
        if code == KMOV:
            yield f"mov ecx, {(1 << x) - 1}"
            yield f"kmovw k{a}, ecx"
        elif code == USE_OFFSET:
            self.index = d
        elif code == CALL:
            yield f"call qword ptr [rbp + {x}]"
        elif code == PREFETCHT0:
            yield f"prefetcht0 byte ptr {self._address(ROWS_POINTER, x)}"
        elif code == PREFETCHW:
            yield f"prefetchw byte ptr {self._in_row(x)}"
        elif code in (MOV_ROWS, MOV_OFFSET, MOV_POINTER):
            number = ARRAY_POINTERS[d] if code == MOV_POINTER else ROWS_POINTER if code == MOV_ROWS else ROW_OFFSET
            register = GENERAL[number]
            self.index = ROW_OFFSET if code == MOV_OFFSET else self.index
            yield f"mov {register}, qword ptr {self._address(*self.encoder.address(~x))}"
        elif code == ADVANCE:
            pointer, offset = self.encoder.address(~x)
            yield f"mov rax, qword ptr {self._address(pointer, offset - 8)}"
            yield f"add qword ptr {self._address(pointer, offset)}, rax"
        elif code in (INSERTF128, INSERTF64X4):
            part = "xmm" if code == INSERTF128 else "ymm"
            place = f"{part}word ptr {self._in_row(x)}"
            if a == 0:
                yield f"{self._evex}vmovu{self.suffix} {part}{d}, {place}"
            else:
                lane = ("64x2" if self.double else "32x4") if self.encoder.wide else "128"
                yield f"vinsertf{lane if code == INSERTF128 else '64x4'} {v}{d}, {v}{d}, {place}, {a}"
        elif code == EXTRACTF128_STORE and a == 0 and not self.encoder.wide:
            yield f"vmovups xmmword ptr {self._in_row(x)}, xmm{d}"
        elif code in (EXTRACTF128, EXTRACTF128_STORE):
            name = f"vextractf{('64x2' if self.double else '32x4') if self.encoder.wide else '128'}"
            place = f"xmm{d}" if code == EXTRACTF128 else f"xmmword ptr {self._in_row(x)}"
            yield f"{name} {place}, {v}{x if code == EXTRACTF128 else d}, {a}"
        elif code == MOVU_MASKED:
            yield f"vmovu{self.suffix} xmmword ptr {self._in_row(x)} {{k1}}, xmm{d}"
        elif code in (MOVLPD, MOVHPD):
            yield f"{self._evex}vmov{'l' if code == MOVLPD else 'h'}pd qword ptr {self._in_row(x)}, xmm{d}"
        elif code == EXTRACTPS and a == 0 and not self.encoder.wide:
            yield f"vmovss dword ptr {self._in_row(x)}, xmm{d}"
        elif code == EXTRACTPS:
            yield f"{self._evex}vextractps dword ptr {self._in_row(x)}, xmm{d}, {a}"
        elif code in (LOAD_ROW, STORE_ROW):
            yield self._row(code == LOAD_ROW, d, a, x)
        elif code == CLEAR:
            yield f"vxorps xmm{d}, xmm{d}, xmm{d}"
        elif code == STORE_ZEROS:
            name, size, register = _STORES[a * self.encoder.itemsize]
            yield f"{name} {size} ptr {self._address(*self.encoder.address(~x))}, {register}{d}"
        elif code == MOVNT:
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
            bits, evex = code in BITWISE or code >= TERNLOG_SELECT, self.encoder.uses_evex(code, d, a, x)
            operand = self._operand(x, whole=code == LOAD, bits=bits, evex=evex)
            half = code == SHUFF_EVEN and not self.encoder.wide
            operands.append(operand.replace("ymm", "xmm") if half else operand)
            yield f"{name} {', '.join(operands)}{last}"

    def _name(self, code: int) -> tuple[str, str]:
        """The mnemonic, and the last operand if it is a number."""
        top, wide, word = 8 * self.encoder.itemsize - 1, self.encoder.wide, "q" if self.double else "d"
        if code in (SLL_BIT0, SLL_BIT1):
            return f"vpsll{word}", f", {top - (code == SLL_BIT1)}"
        if code == SRA:
            return f"vpsra{word}", f", {top}"
        if code == CMPGT:
            return f"vpcmpgt{word}", ""
        if code >= BLENDV:
            return f"vblendv{self.suffix}", f", {self.vector}{code - BLENDV}"
        if code in (UNPCKLPD, UNPCKHPD):
            return ("vunpcklpd" if code == UNPCKLPD else "vunpckhpd"), ""
        if code >= TERNLOG_SELECT:
            return f"vpternlog{word}", f", {(self.encoder.evex_forms or self.encoder.forms)[code].last}"
        if code in (SHUFF_EVEN, SHUFF_ODD) and wide:
            return "vshuff64x2", f", {0x88 if code == SHUFF_EVEN else 0xDD}"
        if code in (SHUFF_EVEN, SHUFF_ODD):
            return ("vinsertf128", ", 1") if code == SHUFF_EVEN else ("vperm2f128", ", 49")
        if self.scalar and code in (LOAD, STORE):
            return f"vmov{self.scalar}", ""
        packed = not self.scalar or code == MOVE or code in BITWISE
        return _NAMES[code] + (self.suffix if packed else self.scalar), ""

    def _broadcasts(self, x: int) -> bool:
        return x < 0 and self.encoder.is_spread(~x)

    def _operand(self, x: int, whole: bool, bits: bool = False, evex: bool = False) -> str:
        """A register or memory operand. `whole`: no broadcast within the instruction; `bits`: a bitwise instruction;
        `evex`: an instruction on scalars encoded with EVEX."""
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
        index = None if self.index == NO_INDEX else self.index
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
