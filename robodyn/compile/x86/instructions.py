"""The instructions of allocated programs, named after the mnemonics of Intel's manual, and places in memory.

An instruction is a tuple (code, d, a, x): register d is computed from the registers d, a and x. A negative x is memory:
the place ~x, which is an index in a space.
"""

from __future__ import annotations

from typing import TypeAlias

(ADD, SUB, MUL, DIV, AND, OR, XOR, CMPGT, SQRT, LOAD, STORE, MOVE, MIN, MAX) = range(14)
"""d = a op x. `SQRT`, `LOAD` and `MOVE` (MOVA) only read x. `STORE` writes d to memory. `CMPGT` sets all bits of the
scalars where a > x, compared as signed integers. `MIN` and `MAX` give x where one of the two is NaN, or both are
zero."""
(FMADD132, FMADD213, FMADD231, FMSUB132, FMSUB213, FMSUB231, FNMADD132, FNMADD213, FNMADD231) = range(14, 23)
"""Fused multiply-add. The digits number d, a, x as 1, 2, 3: first the two factors, then the summand. 132: d = d x + a,
213: d = a d + x, 231: d = a x + d. `FMSUB` subtracts the summand, `FNMADD` subtracts the product from the summand."""
(SLL_BIT0, SLL_BIT1, SRA) = range(23, 26)
"""Shifts of the scalars of x as integers. `SLL_BIT0` and `SLL_BIT1` shift left until the lowest or second lowest bit is
the sign bit. `SRA` shifts right and fills the scalar with its sign bit."""
(UNPCKL, UNPCKH, UNPCKLPD, UNPCKHPD, SHUFF_EVEN, SHUFF_ODD) = range(26, 32)
"""Shuffles of a and x. `UNPCKL` and `UNPCKH` interleave the lower or upper scalars within each 16-byte lane; the `PD`
ones interleave pairs of float32. `SHUFF_EVEN` and `SHUFF_ODD` take the even or odd 16-byte lanes, first of a, then of
x (VSHUFF64X2; with AVX2 VINSERTF128 and VPERM2F128)."""
(MOV_ROWS, MOV_OFFSET, LOAD_ROW, STORE_ROW) = range(32, 36)
"""`MOV_ROWS` loads the address of the first of W rows of an array from place ~x to a general register. `MOV_OFFSET`
loads the offset in bytes from the first row to another row. `LOAD_ROW` and `STORE_ROW` move between d and the scalars
of that row from index x on: all if a is -1, else those in mask a (MOVU, VMASKMOV). With 64-byte registers the mask is a
mask register, else a vector register."""
(KMOV,) = range(36, 37)
"""Sets the first x bits of mask register a."""

(EXTRACTF128, EXTRACTF128_STORE, MOVLPD, MOVHPD, EXTRACTPS) = range(49, 54)
(MOVU_MASKED,) = range(64, 65)
"""`EXTRACTF128` moves the a-th 16 bytes of x to the beginning of d. The others store to the row from index x on:
`EXTRACTF128_STORE` the a-th 16 bytes of d; `MOVLPD` and `MOVHPD` the lower or upper half of its first 16 bytes;
`EXTRACTPS` its a-th scalar of the first four; `MOVU_MASKED` those of its first 16 bytes in mask 1 (AVX-512 only)."""
(USE_OFFSET, PREFETCHW) = range(65, 67)
"""`USE_OFFSET` is no instruction: from here on general register d holds the row's offset, loaded at the program's
beginning; `NO_INDEX` is for the first row, whose offset is zero. `PREFETCHW` prefetches, for writing, the cache line of
scalar x of the row."""
NO_INDEX = 4
"""The index register's number in a SIB byte that means no index."""
INSERTF128, INSERTF64X4 = range(62, 64)
"""Load the a-th 16 bytes of d, or the a-th half of its 64 bytes, from the row, from index x on. Loading the first part
(a = 0) clears the rest of d."""

(MOV_POINTER,) = range(54, 55)
"""Loads the address of an array of vectors from place ~x to the general register for space d of `ARRAYS`."""
MOVNT, PREFETCHT0 = range(67, 69)
"""`MOVNT` is a streaming store of d, to a place aligned to its size. `PREFETCHT0` prefetches, for reading, the cache
line x bytes behind the first row."""
(CALL,) = range(69, 70)
"""Calls the function whose address is stored x bytes behind the address in register `row_writer.STATE`."""

CLEAR, STORE_ZEROS = range(70, 72)
"""For programs with one scalar in a register. `CLEAR` sets 32 bytes of d to zero (VXORPS). `STORE_ZEROS` stores a
scalars of such a d to place ~x and the following places: 32, 16, 8 or 4 bytes."""
(ADVANCE,) = range(73, 74)
"""Adds to the address of rows at place ~x the number of bytes stored in the word before it. Two instructions, which use
the register of `MOV_ROWS`."""

COMMUTES = (ADD, MUL, AND, OR, XOR)
BITWISE = (AND, OR, XOR, CMPGT)
"""Instructions that compute with 16 bytes even if a register holds one scalar."""

(TERNLOG_SELECT, TERNLOG_SIGN) = 37, 43
"""VPTERNLOG, a function of three bits (AVX-512 only). `TERNLOG_SELECT`: the second bit if the first is set, else the
third. `TERNLOG_SIGN`: the first bit, flipped if the other two are set. The codes from here on are the six orders of d,
a and x as first, second and third, in the sequence of `itertools.permutations`."""

BLENDV = 74
"""VBLENDV, for VEX: each scalar of x if the sign bit of the same scalar in a mask register is set, else that of a. The
code is this one plus the number of the mask register."""

FNEG, FABS, FCMGT_ZERO, FACGT = range(112, 116)
"""NEON only. `FCMGT_ZERO` sets all bits of the scalars of x that are greater than zero, `FACGT` those where |a| > |x|.
"""
FMADD, FMSUB, FNMADD = 128, 160, 192
"""Fused multiply-add of four registers, for NEON and one scalar in a register: a x + y, a x - y and y - a x. The code
is this one plus the number of y."""

Instruction: TypeAlias = tuple[int, int, int, int]

SPACE = 1 << 24
"""Number of places in a space."""
SPILLS, POOL, VECTORS, HEADER, ARRAYS = (k * SPACE for k in range(5))
"""First places of the spaces: spilled registers, scalar constants, vectors of constants and masks, addresses in the
frame, and arrays of vectors. Each array of vectors has a space of its own."""
