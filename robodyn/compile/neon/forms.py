"""The encoding of each instruction: the word for registers 0, its text, and where operands are in the word.

The numbers are those of the Arm Architecture Reference Manual for A-profile architecture, chapter C7 (vectors and
scalars) and C6 (general registers).
"""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

from robodyn.compile.x86 import instructions as I


class Field(NamedTuple):
    """An operand within a word: its lowest bit, its number of bits, and the unit in which it is counted."""

    shift: int
    bits: int = 5
    unit: int = 1
    signed: bool = False

    def encoded(self, operand: int) -> int:
        """The bits of an operand."""
        return (operand // self.unit & (1 << self.bits) - 1) << self.shift

    def decoded(self, word: int) -> int:
        """The operand in a word."""
        number = word >> self.shift & (1 << self.bits) - 1
        return (number - (1 << self.bits) * (self.signed and number >> self.bits - 1)) * self.unit


class Form(NamedTuple):
    """An instruction: the word without its operands, its text with a place for each operand, and their fields."""

    word: int
    text: str
    fields: tuple[Field, ...] = ()

    def encoded(self, *operands: int) -> int:
        """The instruction's word."""
        word = self.word
        for field, operand in zip(self.fields, operands, strict=True):
            word |= field.encoded(operand)
        return word

    def line(self, word: int) -> str:
        """The instruction as text."""
        return self.text.format(*(field.decoded(word) for field in self.fields))


_D, _N, _M, _A = Field(0), Field(5), Field(16), Field(10)
_THREE, _TWO = (_D, _N, _M), (_D, _N)
_DOUBLE = 1 << 22
"""Instructions on doubles have this bit, others are on floats."""

_VECTOR = {
    I.ADD: (0x4E20D400, "fadd"),
    I.SUB: (0x4EA0D400, "fsub"),
    I.MUL: (0x6E20DC00, "fmul"),
    I.DIV: (0x6E20FC00, "fdiv"),
    I.MIN: (0x4EA0F400, "fmin"),
    I.MAX: (0x4E20F400, "fmax"),
    I.FACGT: (0x6EA0EC00, "facgt"),
    I.FMADD231: (0x4E20CC00, "fmla"),
    I.FNMADD231: (0x4EA0CC00, "fmls"),
    I.UNPCKL: (0x4E803800, "zip1"),
    I.UNPCKH: (0x4E807800, "zip2"),
}
"""Instructions on vectors of two operands; a multiply-add also adds to the vector that it overwrites."""
_VECTOR_UNARY = {
    I.SQRT: (0x6EA1F800, "fsqrt"),
    I.FNEG: (0x6EA0F800, "fneg"),
    I.FABS: (0x4EA0F800, "fabs"),
}
_SCALAR = {
    I.ADD: (0x1E202800, "fadd"),
    I.SUB: (0x1E203800, "fsub"),
    I.MUL: (0x1E200800, "fmul"),
    I.DIV: (0x1E201800, "fdiv"),
    I.MIN: (0x1E205800, "fmin"),
    I.MAX: (0x1E204800, "fmax"),
}
_SCALAR_UNARY = {I.SQRT: (0x1E21C000, "fsqrt"), I.FNEG: (0x1E214000, "fneg"), I.FABS: (0x1E20C000, "fabs")}
_FUSED = {
    I.FMADD: (0x1F000000, "fmadd"),
    I.FMSUB: (0x1F208000, "fnmsub"),
    I.FNMADD: (0x1F008000, "fmsub"),
}
_BITWISE = {I.AND: (0x4E201C00, "and"), I.OR: (0x4EA01C00, "orr"), I.XOR: (0x6E201C00, "eor")}
_SELECTS = {(0, 1, 2): (0x6E601C00, "bsl"), (2, 1, 0): (0x6EA01C00, "bit"), (1, 2, 0): (0x6EE01C00, "bif")}
"""Selections by bits, by the numbers of the operands that d, a and x hold: a mask, where it is set, and elsewhere. The
instructions for other orders are these with a and x exchanged."""
_MEMORY = {16: ("q", 0x3D800000, 0xAD000000), 8: ("d", 0xFD000000, 0x6D000000), 4: ("s", 0xBD000000, 0x2D000000)}
"""By the bytes of a register: its letter, and the words of a store and of the store of a pair. Loads have one more
bit."""
_LOADS = 1 << 22
PAIR_REACH, NEAR = 64, 256
"""Reach of a pair's offset, in registers; and of an offset that is no multiple of the register, in bytes."""
FAR = 4096
"""Reach of an offset in registers."""


def _on(letter: str, count: int) -> str:
    return ", ".join(f"{letter}{{{k}}}" for k in range(count))


def _vectors(kind: str, count: int) -> str:
    return ", ".join(f"v{{{k}}}.{kind}" for k in range(count))


def forms(itemsize: int, scalar: bool) -> dict[int, Form]:
    """The instructions on registers, by code. `scalar`: True if a register holds one scalar of `itemsize` bytes."""
    double = itemsize == 8
    kind, bits = ("2d" if double else "4s"), 8 * itemsize
    of = _DOUBLE * double
    found = {code: Form(word | of, f"{name} {_vectors(kind, 3)}", _THREE) for code, (word, name) in _VECTOR.items()}
    found |= {
        code: Form(word | of, f"{name} {_vectors(kind, 2)}", _TWO) for code, (word, name) in _VECTOR_UNARY.items()
    }
    found[I.FCMGT_ZERO] = Form(0x4EA0C800 | of, f"fcmgt {_vectors(kind, 2)}, #0.0", _TWO)
    found |= {code: Form(word, f"{name} {_vectors('16b', 3)}", _THREE) for code, (word, name) in _BITWISE.items()}
    for shift, code in ((bits - 1, I.SLL_BIT0), (bits - 2, I.SLL_BIT1)):
        found[code] = Form(0x4F005400 | bits + shift << 16, f"shl {_vectors(kind, 2)}, #{shift}", _TWO)
    # A comparison as integers: a shift by 63 bits takes longer on some processors.
    found[I.SRA] = Form(0x4EA0A800 | of, f"cmlt {_vectors(kind, 2)}, #0", _TWO)
    found[I.UNPCKLPD] = Form(0x4EC03800, f"zip1 {_vectors('2d', 3)}", _THREE)
    found[I.UNPCKHPD] = Form(0x4EC07800, f"zip2 {_vectors('2d', 3)}", _THREE)
    for code, (d, a, x) in enumerate(permutations(range(3)), I.TERNLOG_SELECT):
        swapped = (d, a, x) not in _SELECTS
        word, name = _SELECTS[(d, x, a) if swapped else (d, a, x)]
        text = f"{name} v{{0}}.16b, v{{{1 + swapped}}}.16b, v{{{2 - swapped}}}.16b"
        found[code] = Form(word, text, (_D, _M, _N) if swapped else _THREE)
    if scalar:
        letter = "d" if double else "s"
        found |= {code: Form(word | of, f"{name} {_on(letter, 3)}", _THREE) for code, (word, name) in _SCALAR.items()}
        found |= {
            code: Form(word | of, f"{name} {_on(letter, 2)}", _TWO) for code, (word, name) in _SCALAR_UNARY.items()
        }
        found |= {
            code: Form(word | of, f"{name} {_on(letter, 4)}", (*_THREE, _A)) for code, (word, name) in _FUSED.items()
        }
    return found


def _moves() -> dict[tuple[str, int], Form]:
    found = {}
    for size, (letter, word, pair) in _MEMORY.items():
        for load, name in ((False, "st"), (True, "ld")):
            bit = _LOADS * load
            found[name + "r", size] = Form(
                word | bit, f"{name}r {letter}{{0}}, [x{{1}}, #{{2}}]", (_D, _N, Field(10, 12, size))
            )
            found[name + "ur", size] = Form(
                word - 0x1000000 | bit, f"{name}ur {letter}{{0}}, [x{{1}}, #{{2}}]", (_D, _N, Field(12, 9, 1, True))
            )
            found[name + "p", size] = Form(
                pair | bit,
                f"{name}p {letter}{{0}}, {letter}{{1}}, [x{{2}}, #{{3}}]",
                (_D, _A, _N, Field(15, 7, size, True)),
            )
    return found


MOVES = _moves()
"""Loads and stores by name and bytes of the register: "ldr" and "str" at an offset that is a multiple of the register,
"ldur" and "stur" at a near one, "ldp" and "stp" of pairs."""
LANES = {
    (name, size, lane): Form(
        (0x0D008000 if size == 4 else 0x0D008400)
        | _LOADS * (name == "ld1")
        | lane * size // 8 << 30
        | (lane * size // 4 & 1) << 12,
        f"{name} {{{{v{{0}}.{'s' if size == 4 else 'd'}}}}}[{lane}], [x{{1}}]",
        _TWO,
    )
    for name, size, lane in (("st1", 8, 1), ("st1", 4, 1), ("st1", 4, 2), ("st1", 4, 3), ("ld1", 4, 2))
}
"""Loads and stores of one scalar of a vector, by name, bytes and index of the scalar."""
MOV = Form(0x4EA01C00, "mov v{0}.16b, v{1}.16b", _THREE)
"""Its source is both operands of a bitwise or."""
CLEAR = Form(0x6F00E400, "movi v{0}.2d, #0000000000000000", (_D,))
LOAD_WORD = Form(0xF9400000, "ldr x{0}, [x{1}, #{2}]", (_D, _N, Field(10, 12, 8)))
STORE_WORD = Form(0xF9000000, "str x{0}, [x{1}, #{2}]", (_D, _N, Field(10, 12, 8)))
ADD_NUMBER = Form(0x91000000, "add x{0}, x{1}, #{2}", (_D, _N, Field(10, 12)))
ADD_PAGES = Form(0x91400000, "add x{0}, x{1}, #{2}, lsl #12", (_D, _N, Field(10, 12)))
ADD_WORD = Form(0x8B000000, "add x{0}, x{1}, x{2}", _THREE)
PAGE_OF = Form(0x90000000, "adrp x{0}, #{2} + {1}", (_D, Field(29, 2, 4096), Field(5, 19, 4 * 4096, True)))
BRANCH = Form(0xD61F0000, "br x{0}", (_N,))
RETURN = Form(0xD65F03C0, "ret")
