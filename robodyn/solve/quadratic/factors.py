"""Memory of one quadratic programme, rows of padded matrices, and the minimum without bounds."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.loops.c_terms import Term
from robodyn.compile.loops.language import (
    Address,
    Array,
    Loose,
    LooseScalar,
    Operator,
    Scalar,
    Static,
    Vector,
    Word,
    array,
    chosen,
    clear,
    convert,
    extracted,
    fma,
    lanes_of,
    routine,
    shuffled,
    size_of,
    spread,
    switch,
)
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.loops.runtime import types_of

SIZES = ("n", "m", "rows", "padded", "most")
"""Words of the last entry of the table: numbers of unknowns, of rows of C and of A, n in whole vectors, and the most
steps after those for equalities."""
_MATRICES, _VECTORS = ("H", "J", "R"), ("x", "g", "d", "z", "r", "inverse")
_ROWS = ("A", "C", "across", "values", "excess")
_BOUNDS = ("lower", "upper", "norm", "status")
_LEAST_PIVOT = 1e-15
"""Smallest pivot of H relative to its largest diagonal entry. Smaller ones are rounding errors."""
TOLERANCES = ("slack", "loose", "independent", "scale")
"""Numbers of an entry of the table: violation of a bound that is a rounding error, relative to the bound and to the
largest x; largest such violation of a row that depends on the active ones, which is left out then; share of |d|^2 in
|d_2|^2 above which a row does not depend on them; size of x below which violations are relative to it instead."""
TILE = 8
"""Vectors of a row that are summed in registers."""
FREE, ACTIVE, FIXED, LEFT_OUT = 0.0, 1.0, 2.0, 3.0


def _pointers(kind: Any, names: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, ctypes.POINTER(kind)) for name in names)


class Work(ctypes.Structure):
    """Sizes, tolerances, and memory of one programme.

    `wide`: m in whole vectors; `first`: the first bound, n if x itself has none; `across`: C', row by row;
    `values`: C x, `excess`: by how much its bounds are violated; `farthest`: the largest x so far; `status`: of
    each bound, `FREE`, `ACTIVE`, `FIXED` (an active equality) or `LEFT_OUT`; `active`, `side`, `u`: of each active
    bound its index, 1 for a lower one or -1 for an upper one, and its multiplier."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in (*SIZES, "bounds", "count", "wide", "first")),
        *((name, ctypes.c_double) for name in (*TOLERANCES, "farthest")),
        *_pointers(ctypes.c_double, (*_MATRICES, *_VECTORS, *_ROWS, "u", *_BOUNDS)),
        *_pointers(ctypes.c_int64, ("active", "side")),
    )


class _Root(Operator):
    """The square root."""

    def read(self, reader: Any, value: Any) -> Any:
        """One operation of LLVM, or a call in C."""
        if isinstance(value, Term):
            return Term(f"sqrt({value.text})", value.type)
        return reader.make(value.type, "intrinsic", value, name=f"sqrt.f{8 * value.type.size}")

    def __call__(self, value: Any) -> Any:
        """NumPy's square root."""
        return np.sqrt(value)


root = _Root()


def types(dtype: np.dtype[Any], target: Target) -> dict[str, Any]:
    """Types in the module: vectors of doubles, and `Loose` ones of as many numbers of the arrays' dtype."""
    wide = VectorType.of(np.dtype(np.float64), target)
    given = types_of(VectorType.of(dtype, target, wide.width))
    return {**types_of(wide), "Loose": given["Loose"], "LooseScalar": given["LooseScalar"]}


def workspace_bytes(n: int, m: int, rows: int, padded: int, width: int) -> int:
    """Bytes of scratch memory. `width`: elements of a vector."""
    wide = -(-m // width) * width
    numbers = (len(_MATRICES) * n + rows + len(_VECTORS) + 3) * padded
    return 8 * (numbers + 2 * wide * (padded + 1) + len(_BOUNDS) * (padded + wide))


def vectors_of(count: Word) -> Word:
    """Vectors that hold so many numbers of a row: one for each if numbers are vectors themselves, with an element for
    each of several states."""
    width = lanes_of(Vector) // lanes_of(Scalar)
    return (count + width - 1) // width


def numbers(of: Array[Scalar]) -> Array[Scalar]:
    """An array of a structure, of vectors if numbers are vectors."""
    return array(Scalar, of)


def padded(count: Word) -> Word:
    """The least multiple of the vectors' width that is not below."""
    width = lanes_of(Vector)
    return (count + width - 1) // width * width


@routine
def place_arrays(work: Array[Work], workspace: Address) -> None:
    """Give each array its memory, for at most m rows of C. Bounds of C begin at a whole vector."""
    n, line, wide = work.n, work.padded, padded(work.m)
    at = array(Scalar, workspace)
    work.H, work.J, work.R = at, at + n * line, at + 2 * n * line
    at = at + 3 * n * line
    work.x, work.g, work.d, work.z, work.r = at, at + line, at + 2 * line, at + 3 * line, at + 4 * line
    work.inverse, work.u, work.A = at + 5 * line, at + 6 * line, at + 7 * line
    at = at + (7 + work.rows) * line
    work.C, work.across = at, at + wide * line
    at = at + 2 * wide * line
    work.values, work.excess = at, at + wide
    at = at + (2 * wide + line - n)
    work.lower, work.upper = at, at + (line + wide)
    work.norm, work.status = at + 2 * (line + wide), at + 3 * (line + wide)
    words = array(Word, at + (4 * (line + wide) - (line - n)))
    work.active, work.side = words, words + line


@routine
def close(work: Array[Work], m: Word) -> None:
    """Let C have m rows. Those behind them in the last vector never act."""
    n, line, wide, bits = work.n, work.padded, padded(m), size_of(Scalar)
    lower, upper, status = numbers(work.lower), numbers(work.upper), numbers(work.status)
    work.m, work.wide, work.bounds = m, wide, n + m
    for k in range(n + m, n + wide):
        lower[k], upper[k] = spread(Scalar, -math.inf), spread(Scalar, math.inf)
        status[k] = spread(Scalar, LEFT_OUT)
    clear(numbers(work.C) + m * line, bits * (wide - m) * line)


# Rows.


def total(vector: Vector) -> Scalar:
    """The sum of a vector's elements, of one state."""
    if lanes_of(Scalar) > 1:
        return vector  # type: ignore[return-value]
    width = lanes_of(Vector)
    while width > 2:
        width = width // 2
        vector = shuffled(vector, vector, range(width)) + shuffled(vector, vector, range(width, 2 * width))
    result: Scalar = extracted(vector, 0)
    if width == 2:
        result = result + extracted(vector, 1)
    return result


def largest_of(vector: Vector) -> Scalar:
    """The largest of a vector's elements."""
    width = lanes_of(Vector)
    while width > 2:
        width = width // 2
        low, high = shuffled(vector, vector, range(width)), shuffled(vector, vector, range(width, 2 * width))
        vector = chosen(high > low, high, low)
    result: Scalar = extracted(vector, 0)
    if width == 2:
        other = extracted(vector, 1)
        result = chosen(other > result, other, result)
    return result


def product(a: Array[Scalar], b: Array[Scalar], begin: Word, end: Word) -> Scalar:
    """a'b over whole vectors from `begin` to before `end`."""
    sums, one, other = spread(Vector, 0.0), array(Vector, a), array(Vector, b)
    for v in range(begin, end):
        sums = fma(one[v], other[v], sums)
    return total(sums)


def add(to: Array[Scalar], factor: Scalar, row: Array[Scalar], begin: Word, end: Word) -> None:
    """to += factor row over whole vectors."""
    sums, other, share = array(Vector, to), array(Vector, row), spread(Vector, factor)
    for v in range(begin, end):
        sums[v] = fma(share, other[v], sums[v])


@routine
def accumulate(
    to: Array[Scalar],
    factors: Array[Scalar],
    stride: Word,
    rows: Array[Scalar],
    count: Word,
    line: Word,
    begin: Word,
    end: Word,
    minus: Static[bool],
) -> None:
    """Add `count` rows, each times a factor, over whole vectors. Factors are `stride` and rows `line` numbers apart."""
    v, columns = begin, size_of(Vector) // size_of(Scalar)
    while v < end:
        for width in switch(min(end - v, TILE), range(1, TILE + 1)):
            result, factor, row = array(Vector, to) + v, factors, array(Vector, rows) + v
            sums = [result[c] for c in range(width)]
            for _ in range(count):
                share = spread(Vector, -factor[0] if minus else factor[0])
                for c in range(width):
                    sums[c] = fma(share, row[c], sums[c])
                factor, row = factor + stride, row + line // columns
            for c in range(width):
                result[c] = sums[c]
        v += TILE


def zero(to: Array[Scalar], end: Word) -> None:
    """Set `end` vectors to zero: quicker than `clear` for few."""
    vectors = array(Vector, to)
    for v in range(end):
        vectors[v] = spread(Vector, 0.0)


def rotate(a: Array[Scalar], b: Array[Scalar], c: Scalar, s: Scalar, end: Word) -> None:
    """a, b = c a + s b, c b - s a."""
    one, other, cosine, sine = array(Vector, a), array(Vector, b), spread(Vector, c), spread(Vector, s)
    for v in range(end):
        first, second = one[v], other[v]
        one[v] = cosine * first + sine * second
        other[v] = cosine * second - sine * first


def read_row(to: Array[Scalar], source: Array[LooseScalar], count: Word) -> None:
    """Copy a row of the user's, in double precision. What is behind it in the last vector stays zero."""
    width = lanes_of(Vector)
    behind = count - count % width
    for v in range(behind // width):
        array(Vector, to)[v] = convert(Vector, array(Loose, source + v * width)[0])
    for k in range(behind, count):
        to[k] = convert(Scalar, source[k])


def row_of(table: Array[Argument], number: Word, row: Word) -> Array[LooseScalar]:
    """A row of an array in the table."""
    return array(LooseScalar, table[number].data + row * table[number].stride)


# The minimum without bounds.


@routine
def read_squares(
    work: Array[Work], A: Array[LooseScalar], b: Array[LooseScalar], d: Array[LooseScalar], e: Array[LooseScalar]
) -> None:
    """A, g = -A'b - e, and diag(d) as H, to which `factorise` adds A'A."""
    n, padded, end = work.n, work.padded, work.padded // lanes_of(Vector)
    for k in range(n):
        work.H[k * padded + k], work.g[k] = convert(Scalar, d[k]), -convert(Scalar, e[k])
    for i in range(work.rows):
        line = work.A + i * padded
        clear(line, 8 * padded)
        read_row(line, A + i * n, n)
        add(work.g, -convert(Scalar, b[i]), line, 0, end)


@routine
def factorise(work: Array[Work], squares: Static[bool]) -> None:
    """H becomes U, row by row, U'y = g, and x = -U^-1 y."""
    n, line = work.n, work.padded
    H, g, x = numbers(work.H), numbers(work.g), numbers(work.x)
    y, inverse = numbers(work.z), numbers(work.inverse)
    width, end = lanes_of(Vector) // lanes_of(Scalar), vectors_of(n)
    if squares:
        for k in range(n):
            A = work.A
            accumulate(H + k * line, A + k, line, A, work.rows, line, k // width, end, minus=False)
    largest = spread(Scalar, 0.0)
    for k in range(n):
        largest = chosen(H[k * line + k] > largest, H[k * line + k], largest)
    least = chosen(largest > 0.0, largest * _LEAST_PIVOT, spread(Scalar, 1.0))
    for k in range(n):
        row, begin = H + k * line, k // width
        accumulate(row, H + k, line, H, k, line, begin, end, minus=True)
        pivot = row[k]
        pivot = chosen(pivot <= largest * _LEAST_PIVOT, least, pivot)  # NaN stays
        one = 1.0 / root(pivot)
        inverse[k], y[k] = one, g[k] * one
        vectors, share = array(Vector, row), spread(Vector, one)
        for v in range(begin, end):
            vectors[v] = vectors[v] * share
        # Entries left of the diagonal are no part of U. Nothing reads them, as they are multiplied with zeros alone.
        add(g, -y[k], row, begin, end)
    clear(x, size_of(Scalar) * line)
    for back in reversed(range(n)):
        rest = product(H + back * line, x, back // width, end)
        x[back] = -(y[back] + rest) * inverse[back]


@routine
def invert(work: Array[Work]) -> None:
    """J = U^-1; row k here is column k of J."""
    n, padded, width = work.n, work.padded, lanes_of(Vector)
    H, J, inverse = work.H, work.J, work.inverse
    clear(J, 8 * n * padded)
    for k in range(n):
        row, behind = J + k * padded, k // width + 1
        accumulate(row, H + k, padded, J, k, padded, 0, behind, minus=True)
        row[k] = spread(Scalar, 1.0)
        vectors, share = array(Vector, row), spread(Vector, inverse[k])
        for v in range(behind):
            vectors[v] = vectors[v] * share
