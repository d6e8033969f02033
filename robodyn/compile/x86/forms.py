"""The encoding of each instruction: opcode, prefix and operands, by the sizes of registers and scalars.

The numbers are those of the Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

from robodyn.compile.x86.instructions import (
    ADD,
    AND,
    BLENDV,
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
    LOAD,
    LOAD_ROW,
    MAX,
    MIN,
    MOVE,
    MOVHPD,
    MOVLPD,
    MOVNT,
    MOVU_MASKED,
    MUL,
    OR,
    SHUFF_EVEN,
    SHUFF_ODD,
    SLL_BIT0,
    SLL_BIT1,
    SQRT,
    SRA,
    STORE,
    STORE_ROW,
    SUB,
    TERNLOG_SELECT,
    TERNLOG_SIGN,
    UNPCKH,
    UNPCKHPD,
    UNPCKL,
    UNPCKLPD,
    XOR,
)
from robodyn.internals.records import dataclass


class Opcode:
    """Opcodes of vector instructions by mnemonic, as in the manual. The prefix in a `Form` selects PS, PD, SS or SD.

    Opcodes are numbered within a map. `PCMPGTQ`, `VBROADCASTSS` and `VMASKMOVPS` are in map 2, `VPERM2F128` and those
    after it in map 3, the others in map 1. `_STORE` marks opcodes that write memory.
    """

    MOVUPS, MOVUPS_STORE = 0x10, 0x11
    MOVLPS_STORE, MOVHPS_STORE = 0x13, 0x17
    UNPCKLPS, UNPCKHPS = 0x14, 0x15
    MOVAPS, MOVAPS_STORE = 0x28, 0x29
    MOVNTPS = 0x2B
    SQRTPS = 0x51
    ANDPS, ORPS, XORPS = 0x54, 0x56, 0x57
    ADDPS, MULPS, SUBPS, DIVPS = 0x58, 0x59, 0x5C, 0x5E
    MINPS, MAXPS = 0x5D, 0x5F
    PCMPGTD, PCMPGTQ = 0x66, 0x37
    PSHIFTD, PSHIFTQ = 0x72, 0x73
    """Shifts by a constant. The digit of the `Form` selects the shift: 4 is PSRA, 6 is PSLL."""
    VBROADCASTSS, VMASKMOVPS = 0x18, 0x2C
    VPERM2F128 = 0x06
    VEXTRACTPS = 0x17
    VINSERTF128, VEXTRACTF128 = 0x18, 0x19
    VINSERTF64X4 = 0x1A
    VSHUFF64X2 = 0x23
    VPTERNLOGD = 0x25
    VBLENDVPS = 0x4A


_EVEX_BYTES = 64
"""Size in bytes of vector registers whose instructions use EVEX encoding; smaller ones use VEX."""


def is_evex(size: int) -> bool:
    """Whether vector registers of this size in bytes are those of AVX-512."""
    return size == _EVEX_BYTES


@dataclass(frozen=True)
class Form:
    """The encoding of an instruction.

    `map`, `prefix`, `w`, `opcode`: as in the manual. `digit`: the opcode extension (/digit) in place of a destination,
    if any; the destination is then encoded as first source. `last`: the immediate byte at the end. `sources`: 1 if
    there is no first source, else 2. `wide`: True if the instruction uses the whole register, False if it uses 16
    bytes.
    """

    opcode: int
    map: int = 1
    prefix: int = 1
    w: int = 0
    digit: int | None = None
    last: int | None = None
    sources: int = 2
    wide: bool = True


def forms(itemsize: int, size: int) -> dict[int, Form]:
    """The encodings of the instructions, by code. `itemsize`: bytes of a scalar; `size`: bytes of a register."""
    if size == itemsize:
        return _scalar_forms(itemsize)
    double, wide = itemsize == 8, is_evex(size)
    p, w = int(double), int(double and wide)
    plain = _ARITHMETIC | _LOGIC | {UNPCKL: Opcode.UNPCKLPS, UNPCKH: Opcode.UNPCKHPS}
    moves = {LOAD: Opcode.MOVUPS, STORE: Opcode.MOVUPS_STORE, MOVE: Opcode.MOVAPS, SQRT: Opcode.SQRTPS}
    encodings = {code: Form(opcode, prefix=p, w=w) for code, opcode in plain.items()}
    encodings |= {code: Form(opcode, 2, 1, int(double)) for code, opcode in FUSED.items()}
    encodings |= {code: Form(opcode, prefix=p, w=w, sources=1) for code, opcode in moves.items()}
    encodings |= {UNPCKLPD: Form(Opcode.UNPCKLPS, w=int(wide)), UNPCKHPD: Form(Opcode.UNPCKHPS, w=int(wide))}
    encodings[MOVNT] = Form(Opcode.MOVNTPS, prefix=0, sources=1)
    encodings |= _integer_forms(itemsize, w, wide)
    if wide:
        encodings |= {
            SHUFF_EVEN: Form(Opcode.VSHUFF64X2, 3, w=1, last=0x88),
            SHUFF_ODD: Form(Opcode.VSHUFF64X2, 3, w=1, last=0xDD),
        }
        encodings |= {LOAD_ROW: encodings[LOAD], STORE_ROW: encodings[STORE]}
        encodings |= {INSERTF128: Form(Opcode.VINSERTF128, 3, w=w), INSERTF64X4: Form(Opcode.VINSERTF64X4, 3, w=1)}
        encodings |= {code: Form(Opcode.VPTERNLOGD, 3, w=w, last=table) for code, table in truth_tables().items()}
        encodings[MOVU_MASKED] = Form(Opcode.MOVUPS_STORE, prefix=p, w=w, sources=1, wide=False)
    else:
        # To join the two lower halves, VINSERTF128 takes a third of the time of VPERM2F128 on AMD processors.
        encodings |= {
            SHUFF_EVEN: Form(Opcode.VINSERTF128, 3, last=1),
            SHUFF_ODD: Form(Opcode.VPERM2F128, 3, last=0x31),
            INSERTF128: Form(Opcode.VINSERTF128, 3),
        }
        encodings |= {LOAD_ROW: Form(Opcode.VMASKMOVPS + double, 2), STORE_ROW: encodings[STORE]} | _blendv_forms(
            double
        )
    halves = {MOVLPD: Opcode.MOVLPS_STORE, MOVHPD: Opcode.MOVHPS_STORE}
    encodings |= {code: Form(opcode, w=int(wide), sources=1, wide=False) for code, opcode in halves.items()}
    encodings |= {code: Form(Opcode.VEXTRACTF128, 3, w=w, sources=1) for code in (EXTRACTF128, EXTRACTF128_STORE)}
    return encodings | {EXTRACTPS: Form(Opcode.VEXTRACTPS, 3, sources=1, wide=False)}


_ARITHMETIC = {
    ADD: Opcode.ADDPS,
    MUL: Opcode.MULPS,
    SUB: Opcode.SUBPS,
    DIV: Opcode.DIVPS,
    MIN: Opcode.MINPS,
    MAX: Opcode.MAXPS,
}
_LOGIC = {AND: Opcode.ANDPS, OR: Opcode.ORPS, XOR: Opcode.XORPS}
FUSED = {
    FMADD132: 0x98,
    FMADD213: 0xA8,
    FMADD231: 0xB8,
    FMSUB132: 0x9A,
    FMSUB213: 0xAA,
    FMSUB231: 0xBA,
    FNMADD132: 0x9C,
    FNMADD213: 0xAC,
    FNMADD231: 0xBC,
}


def _integer_forms(itemsize: int, w: int, evex: bool) -> dict[int, Form]:
    """Instructions on the bits of scalars as integers. AVX2 has comparisons (CMPGT), but no arithmetic right shift of
    64 bits."""
    top, double = 8 * itemsize - 1, itemsize == 8
    left = Opcode.PSHIFTQ if double else Opcode.PSHIFTD
    encodings = {
        SLL_BIT0: Form(left, w=w, digit=6, last=top, sources=1),
        SLL_BIT1: Form(left, w=w, digit=6, last=top - 1, sources=1),
    }
    if evex or not double:
        encodings[SRA] = Form(Opcode.PSHIFTD, w=w, digit=4, last=top, sources=1)
    return encodings if evex else encodings | {CMPGT: Form(Opcode.PCMPGTQ, 2) if double else Form(Opcode.PCMPGTD)}


def _blendv_forms(double: bool) -> dict[int, Form]:
    return {BLENDV + mask: Form(Opcode.VBLENDVPS + double, 3, last=mask << 4) for mask in range(16)}


def _scalar_forms(itemsize: int) -> dict[int, Form]:
    """The encodings for registers that hold one scalar. Bitwise instructions compute with 16 bytes."""
    bits = int(itemsize == 8)
    p = 3 if itemsize == 8 else 2
    encodings = {code: Form(opcode, prefix=p) for code, opcode in _ARITHMETIC.items()}
    encodings |= {code: Form(opcode, prefix=bits) for code, opcode in _LOGIC.items()}
    encodings |= {code: Form(opcode + 1, 2, 1, bits) for code, opcode in FUSED.items()}
    encodings |= {LOAD: Form(Opcode.MOVUPS, prefix=p, sources=1), STORE: Form(Opcode.MOVUPS_STORE, prefix=p, sources=1)}
    encodings |= {MOVE: Form(Opcode.MOVAPS, prefix=bits, sources=1), SQRT: Form(Opcode.SQRTPS, prefix=p)}
    return encodings | _integer_forms(itemsize, 0, False) | _blendv_forms(itemsize == 8)


def scalar_evex_forms(itemsize: int) -> dict[int, Form]:
    """The EVEX encodings for registers that hold one scalar. Bitwise instructions then read one scalar of memory. CMPGT
    and BLENDV are not needed."""
    w = int(itemsize == 8)
    encodings = {
        code: replace(form, w=w) for code, form in _scalar_forms(itemsize).items() if code < BLENDV and code != CMPGT
    }
    encodings |= _integer_forms(itemsize, w, True)
    return encodings | {code: Form(Opcode.VPTERNLOGD, 3, w=w, last=table) for code, table in truth_tables().items()}


def truth_tables() -> dict[int, int]:
    """The immediate bytes of VPTERNLOG: bit 4 d + 2 a + x of the byte is the result for the bits d, a and x."""
    results: dict[int, Callable[[int, int, int], int]] = {
        TERNLOG_SELECT: lambda where, one, other: one if where else other,
        TERNLOG_SIGN: lambda value, sign, mask: value ^ (sign & mask),
    }
    tables = {}
    for first, result in results.items():
        for k, order in enumerate(permutations(range(3))):
            bits = [result(*(index >> 2 - order.index(role) & 1 for role in range(3))) for index in range(8)]
            tables[first + k] = sum(bit << index for index, bit in enumerate(bits))
    return tables
