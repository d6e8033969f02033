"""Instructions of allocated programs, and the places in memory that they read and write.

An instruction is a tuple (code, d, a, x): the register d is written from the registers d, a and x, as the code says.
An x below zero is memory, ~x being a place: a space and an index in it. `STORE` writes d to memory.
"""

from __future__ import annotations

from typing import TypeAlias

(ADD, SUB, MUL, DIV, AND, OR, XOR, LESS, SQRT, LOAD, STORE, MOVE) = range(12)
"""d = a op x; `SQRT`, `LOAD` and `MOVE` read x alone. `LESS` sets all bits where a is greater than x, as integers."""
(FMA132, FMA213, FMA231, FMS132, FMS213, FMS231, FNMA132, FNMA213, FNMA231) = range(12, 21)
"""Of d, a, x the numbers say which are the factors, and then which is the summand: d = d x + a, d = a d + x and
d = a x + d; `FMS` takes the summand away, `FNMA` takes the product from it."""
(LOWEST, SECOND, SPREAD) = range(21, 24)
"""The bits of x, as integers: the lowest one to the top, the second lowest to the top, copies of the top one down."""
(LOW, HIGH, LOW_PAIRS, HIGH_PAIRS, EVEN, ODD) = range(24, 30)
"""Shuffles of a and x. In each 16 bytes the lower or the upper scalars side by side, or pairs of them (float32); of 16
bytes each the even ones of a and then those of x, or the odd ones."""
(ROWS, ROW, LOAD_ROW, STORE_ROW) = range(30, 34)
"""Read from place ~x to a general register: `ROWS` where the first of W rows of an array is, `ROW` the bytes from there
to another one. `LOAD_ROW`, `STORE_ROW`: d and the scalars from x on in that row, as many as mask a says, all where it
is -1. With 64 bytes a mask is a mask register, otherwise a vector."""
(MASK,) = range(34, 35)
"""The mask a, of x scalars."""

(EXTRACT, STORE_LANE, STORE_LOW, STORE_HIGH, STORE_ONE) = range(47, 52)
(STORE_SOME,) = range(62, 63)
"""`EXTRACT`: 16 bytes of x, the a-th, to the beginning of d. The others write to the row, from
scalar x on: the a-th 16 bytes of d; of its first 16 bytes the lower or the upper half, the a-th of four scalars, or
what mask 1 says (`STORE_SOME`, with AVX-512 alone)."""
(KEPT, AHEAD) = range(63, 65)
"""`KEPT`: the offset of the row is in general register d, where it was put in the beginning; in none (`NO_OFFSET`) if
it is the first row. `AHEAD`: the cache line of scalar x of the row is fetched, to be written."""
NO_OFFSET = 4
"""What stands in the place of a register in addresses without one."""
LOAD_LANE, LOAD_HALF = range(60, 62)
"""The a-th 16 bytes of d, or of 64 bytes the a-th half, from scalar x of the row on; the first ones clear all behind
them."""

(POINTER,) = range(52, 53)
"""The address of an array of vectors, from place ~x to the general register of space d of `ARRAYS`."""
STORE_PAST, FETCH = range(65, 67)
"""`STORE_PAST` writes d to memory past the caches, to a place that is aligned to its bytes. `FETCH`: the cache line x
bytes behind the first row is fetched, to be read."""
(CALL,) = range(67, 68)
"""Calls the function whose address is x bytes behind what the register of `lines.STATE` points to."""

CLEAR, STORE_MANY = range(68, 70)
"""Of registers of one scalar: `CLEAR` makes d zero, all 32 bytes of it; `STORE_MANY` writes a scalars of such a d to
place ~x and those behind it, as many as are 32 bytes, 16, 8 or 4."""
(ADVANCE,) = range(71, 72)
"""An address of rows, at place ~x, goes on by as many bytes as stand before it; through the register of `ROWS`."""

COMMUTES = (ADD, MUL, AND, OR, XOR)
OF_BITS = (AND, OR, XOR, LESS)
"""What works on 16 bytes even where a register holds one scalar."""

(CHOOSE, SIGNED) = 35, 41
"""Of bits of d, a and x in one of six orders, which these codes count up from here as `itertools.permutations` does:
those of the second where the first is set, and of the third elsewhere; the first, changed where the two others are
set. With 64 bytes alone."""

PICK = 72
"""Of registers of 32 bytes or less: each scalar of x where the highest bit of that in another register is set, and of
a elsewhere. The code is this one and the number of that register."""

Instruction: TypeAlias = tuple[int, int, int, int]

SPACE = 1 << 24
"""Places of one space."""
SPILLS, POOL, VECTORS, HEADER, ARRAYS = (k * SPACE for k in range(5))
"""Where spaces begin: vectors that registers give up, constants, vectors of constants and masks, addresses in the
frame, and arrays of vectors, a space for each."""
