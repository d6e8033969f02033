"""How instructions are encoded: opcode, prefix and operands of each, by the size of registers and scalars.

Numbers are those of the Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

from robodyn.compile.x86.instructions import (
    ADD,
    AND,
    CHOOSE,
    DIV,
    EVEN,
    EXTRACT,
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
    LESS,
    LOAD,
    LOAD_HALF,
    LOAD_LANE,
    LOAD_ROW,
    LOW,
    LOW_PAIRS,
    LOWEST,
    MOVE,
    MUL,
    ODD,
    OR,
    PICK,
    SECOND,
    SIGNED,
    SPREAD,
    SQRT,
    STORE,
    STORE_HIGH,
    STORE_LANE,
    STORE_LOW,
    STORE_ONE,
    STORE_PAST,
    STORE_ROW,
    STORE_SOME,
    SUB,
    XOR,
)
from robodyn.internals.records import dataclass

_EVEX_BYTES = 64
"""Bytes of a vector register where EVEX encodes instructions; VEX does for others."""


def is_evex(size: int) -> bool:
    """Whether vector registers of n bytes are those of AVX-512."""
    return size == _EVEX_BYTES


@dataclass(frozen=True)
class Form:
    """How an instruction is encoded.

    `map`, `prefix`, `w`, `opcode`: as in the manual; `digit`: what stands in the place of the destination, which is the
    first source's then; `last`: the byte at the end; `sources`: 1 where there is no first source; `wide`: all bytes of
    the register, or 16.
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
    """Instructions by code, on registers of some bytes that hold scalars of a size."""
    if size == itemsize:
        return _scalar_forms(itemsize)
    double, wide = itemsize == 8, is_evex(size)
    p, w = int(double), int(double and wide)
    plain = {ADD: 0x58, MUL: 0x59, SUB: 0x5C, DIV: 0x5E, AND: 0x54, OR: 0x56, XOR: 0x57, LOW: 0x14, HIGH: 0x15}
    moves = {LOAD: 0x10, STORE: 0x11, MOVE: 0x28, SQRT: 0x51}
    found = {code: Form(opcode, prefix=p, w=w) for code, opcode in plain.items()}
    found |= {code: Form(opcode, 2, 1, int(double)) for code, opcode in FUSED.items()}
    found |= {code: Form(opcode, prefix=p, w=w, sources=1) for code, opcode in moves.items()}
    found |= {LOW_PAIRS: Form(0x14, w=int(wide)), HIGH_PAIRS: Form(0x15, w=int(wide))}
    found[STORE_PAST] = Form(0x2B, prefix=0, sources=1)
    found |= _integers(itemsize, w, wide)
    if wide:
        found |= {EVEN: Form(0x23, 3, w=1, last=0x88), ODD: Form(0x23, 3, w=1, last=0xDD)}
        found |= {LOAD_ROW: found[LOAD], STORE_ROW: found[STORE]}
        found |= {LOAD_LANE: Form(0x18, 3, w=w), LOAD_HALF: Form(0x1A, 3, w=1)}
        found |= {code: Form(0x25, 3, w=w, last=table) for code, table in truth_tables().items()}
        found[STORE_SOME] = Form(0x11, prefix=p, w=w, sources=1, wide=False)
    else:
        # Of two halves an AMD processor puts the first beside the first in a third of the time of any other.
        found |= {EVEN: Form(0x18, 3, last=1), ODD: Form(0x06, 3, last=0x31), LOAD_LANE: Form(0x18, 3)}
        found |= {LOAD_ROW: Form(0x2C + double, 2), STORE_ROW: found[STORE]} | _picks(double)
    halves = {STORE_LOW: 0x13, STORE_HIGH: 0x17}
    found |= {code: Form(opcode, w=int(wide), sources=1, wide=False) for code, opcode in halves.items()}
    found |= {code: Form(0x19, 3, w=w, sources=1) for code in (EXTRACT, STORE_LANE)}
    return found | {STORE_ONE: Form(0x17, 3, sources=1, wide=False)}


FUSED = {
    FMA132: 0x98,
    FMA213: 0xA8,
    FMA231: 0xB8,
    FMS132: 0x9A,
    FMS213: 0xAA,
    FMS231: 0xBA,
    FNMA132: 0x9C,
    FNMA213: 0xAC,
    FNMA231: 0xBC,
}


def _integers(itemsize: int, w: int, evex: bool) -> dict[int, Form]:
    """What works on the bits of scalars as integers. Processors with AVX2 compare them, and cannot copy the sign of 64
    bits down."""
    top, double = 8 * itemsize - 1, itemsize == 8
    left = 0x73 if double else 0x72
    found = {
        LOWEST: Form(left, w=w, digit=6, last=top, sources=1),
        SECOND: Form(left, w=w, digit=6, last=top - 1, sources=1),
    }
    if evex or not double:
        found[SPREAD] = Form(0x72, w=w, digit=4, last=top, sources=1)
    return found if evex else found | {LESS: Form(0x37, 2) if double else Form(0x66)}


def _picks(double: bool) -> dict[int, Form]:
    return {PICK + mask: Form(0x4A + double, 3, last=mask << 4) for mask in range(16)}


def _scalar_forms(itemsize: int) -> dict[int, Form]:
    """The same on the first scalar of a register alone, but for bits, of which 16 bytes are worked on."""
    bits = int(itemsize == 8)
    p = 3 if itemsize == 8 else 2
    plain = {ADD: 0x58, MUL: 0x59, SUB: 0x5C, DIV: 0x5E}
    found = {code: Form(opcode, prefix=p) for code, opcode in plain.items()}
    found |= {code: Form(opcode, prefix=bits) for code, opcode in {AND: 0x54, OR: 0x56, XOR: 0x57}.items()}
    found |= {code: Form(opcode + 1, 2, 1, bits) for code, opcode in FUSED.items()}
    found |= {LOAD: Form(0x10, prefix=p, sources=1), STORE: Form(0x11, prefix=p, sources=1)}
    found |= {MOVE: Form(0x28, prefix=bits, sources=1), SQRT: Form(0x51, prefix=p)}
    return found | _integers(itemsize, 0, False) | _picks(itemsize == 8)


def scalar_evex_forms(itemsize: int) -> dict[int, Form]:
    """The same by EVEX, which reads bits of memory as one scalar, and has no use for what compares or picks."""
    w = int(itemsize == 8)
    found = {code: replace(form, w=w) for code, form in _scalar_forms(itemsize).items() if code < PICK and code != LESS}
    found |= _integers(itemsize, w, True)
    return found | {code: Form(0x25, 3, w=w, last=table) for code, table in truth_tables().items()}


def truth_tables() -> dict[int, int]:
    """The last bytes of what works on bits: bit 4 d + 2 a + x is the result of bits d, a and x."""
    results: dict[int, Callable[[int, int, int], int]] = {
        CHOOSE: lambda where, one, other: one if where else other,
        SIGNED: lambda value, sign, mask: value ^ (sign & mask),
    }
    found = {}
    for first, result in results.items():
        for k, order in enumerate(permutations(range(3))):
            bits = [result(*(index >> 2 - order.index(role) & 1 for role in range(3))) for index in range(8)]
            found[first + k] = sum(bit << index for index, bit in enumerate(bits))
    return found
