"""A dual active set method for strictly convex quadratic programmes, for one state after another.

    void kernel(ptr table, i64 first, i64 last, ptr workspace)

It solves, for each row of a batch,

    minimise 1/2 x'H x + g'x    subject to    lower <= (x, C x) <= upper

where the first n bounds are those of x and the others those of the m rows of C. Equal bounds make an equality. H and g
are given, or H = A'A + diag(d) and g = -A'b - e with the rows of A: then they are formed here, so that rounding of A is
not squared.

The method is that of Goldfarb and Idnani, A numerically stable dual method for solving strictly convex quadratic
programs (1983). It begins at the minimum without bounds, and adds one violated row after another. With H = U'U and
n_k the normals of the active rows,

    J = U^-1 Q,    J' (n_1 ... n_q) = (R, 0)',    R upper triangular,

so J'HJ = 1. With d = J'n, a step for a row with the normal n moves x along z = J_2 d_2, and multipliers along
r = R^-1 d_1. A Householder reflection of J_2 adds a row; rotations of R and J remove one. Equalities come first and
stay. A row whose d_2 is zero depends on the active ones. If it can replace none of them, no x fulfils all rows, unless
it is violated by rounding only.

Arithmetic is in double precision for arrays of either. Rows of matrices are padded to whole vectors, columns beside one
another.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from robodyn.compile.llvm.straight_line import attributes
from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.vectors import VectorType
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
    local,
    routine,
    shuffled,
    spread,
    switch,
)
from robodyn.compile.loops.llvm import printed_module
from robodyn.compile.loops.table import Argument, words_of
from robodyn.engines.cpu.loops.runtime import types_of

SOLVED, INFEASIBLE, UNFINISHED, INVALID = range(4)
"""What became of a programme: solved; no x fulfils all rows; too many steps, or rounding errors; a number that is not
finite, or a lower bound above its upper bound by NaN."""
ARRAYS = ("x", "multipliers", "outcome")
"""Results: x (n,), the multiplier of each bound (n + m,), positive at lower bounds and negative at upper ones, and two
words: what became of the programme, and the number of steps."""
SIZES = ("n", "m", "rows", "padded", "most")
"""Words of the last entry of the table: numbers of unknowns, of rows of C and of A, n in whole vectors, and the most
steps after those for equalities."""
_MATRICES, _VECTORS = ("H", "J", "R"), ("x", "g", "d", "z", "r", "inverse")
_BOUNDS = ("lower", "upper", "norm", "multipliers")
_LEAST_PIVOT = 1e-15
"""Smallest pivot of H relative to its largest diagonal entry. Smaller ones are rounding errors."""
TOLERANCES = ("slack", "loose", "independent", "scale")
"""Numbers of an entry of the table: violation of a bound that is a rounding error, relative to the bound and to the
largest x; largest such violation of a row that depends on the active ones, which is left out then; share of |d|^2 in
|d_2|^2 above which a row does not depend on them; size of x below which violations are relative to it instead."""
_PUSHED = 1e-12
"""Entry of r, relative to the largest, above which a step reduces the multiplier."""
_LEFT = 1e-6
"""Share of the largest x so far that counts as the size of x at least: rounding errors of larger ones remain."""
TILE = 8
"""Vectors of a row that are summed in registers."""
_HUGE, _NAN = 1e300, math.nan
_FREE, _ACTIVE, _FIXED, _LEFT_OUT = range(4)


def _pointers(kind: Any, names: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, ctypes.POINTER(kind)) for name in names)


class Work(ctypes.Structure):
    """Sizes, tolerances, and memory of one programme.

    `farthest`: the largest x so far; `status`: of each bound, `_FREE`, `_ACTIVE`, `_FIXED` (an active equality) or
    `_LEFT_OUT`; `active`, `side`, `u`: of each active bound its index, 1 for a lower one or -1 for an upper one, and
    its multiplier."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in (*SIZES, "bounds", "count")),
        *((name, ctypes.c_double) for name in (*TOLERANCES, "farthest")),
        *_pointers(ctypes.c_double, (*_MATRICES, *_VECTORS, "A", "C", "u", *_BOUNDS)),
        *_pointers(ctypes.c_int64, ("active", "side", "status")),
    )


class _Root(Operator):
    """The square root."""

    def read(self, reader: Any, value: Any) -> Any:
        """One operation of LLVM."""
        return reader.make(value.type, "intrinsic", value, name="sqrt.f64")

    def __call__(self, value: Any) -> Any:
        """NumPy's square root."""
        return np.sqrt(value)


root = _Root()


def types(dtype: np.dtype[Any], target: Target) -> dict[str, Any]:
    """Types in the module: vectors of doubles, and `Loose` ones of as many numbers of the arrays' dtype."""
    wide = VectorType.of(np.dtype(np.float64), target)
    given = types_of(VectorType.of(dtype, target, wide.width))
    return {**types_of(wide), "Loose": given["Loose"], "LooseScalar": given["LooseScalar"]}


def module_text(dtype: np.dtype[Any], target: Target, squares: bool) -> str:
    """The module for arrays of a dtype. `squares`: True if A, b and d are given instead of H and g."""
    facts = "quadratic", str(dtype), target, squares
    return printed_module(
        facts, types(dtype, target), lambda module: module.export(kernel, "kernel", squares=squares), attributes(target)
    )


def workspace_bytes(n: int, m: int, rows: int, padded: int) -> int:
    """Bytes of scratch memory."""
    return 8 * ((len(_MATRICES) * n + m + rows + len(_VECTORS) + 3) * padded + (len(_BOUNDS) + 1) * (n + m))


# Rows.


def total(vector: Vector) -> Scalar:
    """The sum of a vector's elements."""
    width = lanes_of(Vector)
    while width > 2:
        width = width // 2
        vector = shuffled(vector, vector, range(width)) + shuffled(vector, vector, range(width, 2 * width))
    result: Scalar = extracted(vector, 0)
    if width == 2:
        result = result + extracted(vector, 1)
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
    v = begin
    while v < end:
        for width in switch(min(end - v, TILE), range(1, TILE + 1)):
            result, factor, row = array(Vector, to) + v, factors, array(Vector, rows) + v
            sums = [result[c] for c in range(width)]
            for _ in range(count):
                share = spread(Vector, -factor[0] if minus else factor[0])
                for c in range(width):
                    sums[c] = fma(share, row[c], sums[c])
                factor, row = factor + stride, row + line // lanes_of(Vector)
            for c in range(width):
                result[c] = sums[c]
        v += TILE


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
    n, padded, width = work.n, work.padded, lanes_of(Vector)
    H, g, x, y, inverse, end = work.H, work.g, work.x, work.z, work.inverse, padded // width
    if squares:
        for k in range(n):
            A = work.A
            accumulate(H + k * padded, A + k, padded, A, work.rows, padded, k // width, end, minus=False)
    largest = spread(Scalar, 0.0)
    for k in range(n):
        largest = chosen(H[k * padded + k] > largest, H[k * padded + k], largest)
    for k in range(n):
        row, begin = H + k * padded, k // width
        accumulate(row, H + k, padded, H, k, padded, begin, end, minus=True)
        pivot = row[k]
        if pivot <= _LEAST_PIVOT * largest:  # NaN stays
            pivot = chosen(largest > 0.0, _LEAST_PIVOT * largest, spread(Scalar, 1.0))
        one = 1.0 / root(pivot)
        inverse[k], y[k] = one, g[k] * one
        vectors, share = array(Vector, row), spread(Vector, one)
        for v in range(begin, end):
            vectors[v] = vectors[v] * share
        # Entries left of the diagonal are no part of U. Nothing reads them, as they are multiplied with zeros alone.
        add(g, -y[k], row, begin, end)
    clear(x, 8 * padded)
    for back in reversed(range(n)):
        rest = product(H + back * padded, x, back // width, end)
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


# Bounds.


def value_of(work: Array[Work], k: Word) -> Scalar:
    """x_k, or a row of C times x."""
    found = spread(Scalar, 0.0)
    if k < work.n:
        found = work.x[k]
    else:
        found = product(work.C + (k - work.n) * work.padded, work.x, 0, work.padded // lanes_of(Vector))
    return found


def largest_x(work: Array[Work]) -> Scalar:
    """The largest |x_k|, or the scale of x if that is larger."""
    found: Scalar = work.scale
    for k in range(work.n):
        size = chosen(work.x[k] < 0.0, -work.x[k], work.x[k])
        found = chosen(size > found, size, found)
    return found


def larger(a: Scalar, b: Scalar) -> Scalar:
    """The larger of two numbers."""
    return chosen(a > b, a, b)


def least_size(work: Array[Work]) -> Scalar:
    """The size of x, at least what rounding of the largest one so far may have left."""
    return larger(largest_x(work), _LEFT * work.farthest)


def rounding(bound: Scalar, size: Scalar) -> Scalar:
    """What relative violations are multiplied with."""
    return chosen(bound < 0.0, -bound, bound) + size


@routine
def worst_bound(work: Array[Work], size: Scalar) -> Word:
    """The bound without an active side that is violated most; -1 if all hold. `size`: the largest x so far."""
    at, worst = -1, spread(Scalar, 0.0)
    for k in range(work.bounds):
        if work.status[k] == _FREE:
            value = value_of(work, k)
            below, above = work.lower[k] - value, value - work.upper[k]
            violated = chosen(below > above, below, above)
            bound = chosen(below > above, work.lower[k], work.upper[k])
            if violated > worst and violated > work.slack * rounding(bound, size):
                worst, at = violated, k
    return at


@routine
def add_active(work: Array[Work], p: Word, side: Word, u: Scalar, squared: Scalar) -> None:
    """Add the bound p, whose d and z are those of this step, with |d_2|^2: reflect J_2 so that d_2 has one entry."""
    q, padded, end = work.count, work.padded, work.padded // lanes_of(Vector)
    J, R, d, z = work.J, work.R, work.d, work.z
    length = root(squared)
    first = d[q]
    signed = chosen(first < 0.0, -length, length)
    # v = d_2 + signed e_1, and J_2 v = z + signed J_q
    add(z, signed, J + q * padded, 0, end)
    share = -1.0 / (squared + signed * first)
    d[q] = first + signed
    for k in range(q, work.n):
        if d[k] != 0.0:
            add(J + k * padded, share * d[k], z, 0, end)
    column = R + q * padded
    clear(column, 8 * padded)
    for k in range(q):
        column[k] = d[k]
    column[q] = -signed
    work.active[q], work.side[q], work.u[q] = p, side, u
    work.count = q + 1


@routine
def drop_active(work: Array[Work], at: Word) -> None:
    """Remove an active bound: R without its column becomes triangular by rotations."""
    padded, end, last = work.padded, work.padded // lanes_of(Vector), work.count - 1
    J, R = work.J, work.R
    work.status[work.active[at]] = _FREE
    for c in range(at, last):
        work.active[c], work.side[c], work.u[c] = work.active[c + 1], work.side[c + 1], work.u[c + 1]
        to, column = array(Vector, R + c * padded), array(Vector, R + (c + 1) * padded)
        for v in range(end):
            to[v] = column[v]
    for c in range(at, last):
        a, b = R[c * padded + c], R[c * padded + c + 1]
        length = root(a * a + b * b)
        cosine, sine = a / length, b / length
        for later in range(c, last):
            column = R + later * padded
            one, other = column[c], column[c + 1]
            column[c] = cosine * one + sine * other
            column[c + 1] = cosine * other - sine * one
        R[c * padded + c + 1] = spread(Scalar, 0.0)
        rotate(J + c * padded, J + (c + 1) * padded, cosine, sine, end)
    work.count = last


@routine
def directions(work: Array[Work], p: Word, side: Word) -> Scalar:
    """d, z and r for the bound p, whose side is 1 for a lower and -1 for an upper bound; returns |d_2|^2, and 0 if the
    bound depends on the active ones."""
    n, q, padded, width = work.n, work.count, work.padded, lanes_of(Vector)
    J, R, d, z, r, end = work.J, work.R, work.d, work.z, work.r, work.padded // width
    sign = chosen(side > 0, spread(Scalar, 1.0), spread(Scalar, -1.0))
    for k in range(n):
        if p < n:
            d[k] = sign * J[k * padded + p]
        else:
            d[k] = sign * product(J + k * padded, work.C + (p - n) * padded, 0, end)
    clear(z, 8 * padded)
    squared, taken = spread(Scalar, 0.0), spread(Scalar, 0.0)
    for k in range(q, n):
        squared = squared + d[k] * d[k]
    accumulate(z, d + q, 1, J + q * padded, n - q, padded, 0, end, minus=False)
    for k in range(q):
        taken = taken + d[k] * d[k]
        r[k] = d[k]
    for back in reversed(range(q)):
        column = R + back * padded
        entry = r[back] / column[back]
        add(r, -entry, column, 0, back // width + 1)
        r[back] = entry
    return chosen(squared > work.independent * (squared + taken), squared, spread(Scalar, 0.0))


@routine
def correct(work: Array[Work]) -> None:
    """Move x onto the active bounds, by what rounding in the steps before has left: x -= J_1 R^-T v."""
    padded, width = work.padded, lanes_of(Vector)
    clear(work.r, 8 * padded)
    for c in range(work.count):
        k, column = work.active[c], work.R + c * padded
        off = chosen(work.side[c] > 0, value_of(work, k) - work.lower[k], work.upper[k] - value_of(work, k))
        work.r[c] = (off - product(column, work.r, 0, c // width + 1)) / column[c]
    accumulate(work.x, work.r, 1, work.J, work.count, padded, 0, padded // width, minus=True)


@routine
def enforce(work: Array[Work], p: Word, steps: Word) -> Word:
    """Take steps until the bound p holds; returns the number of all steps, or -1 if no x fulfils p and the active ones.
    `steps`: the steps before."""
    fixed, value, end = work.lower[p] == work.upper[p], value_of(work, p), work.padded // lanes_of(Vector)
    below, above = work.lower[p] - value, value - work.upper[p]
    side = chosen(below > above, 1, -1)
    lack = chosen(below > above, below, above)
    bound = chosen(below > above, work.lower[p], work.upper[p])
    u, going = spread(Scalar, 0.0), True
    while going:
        steps = steps + 1
        squared = directions(work, p, side)
        least, largest = spread(Scalar, _HUGE), spread(Scalar, 0.0)
        for k in range(work.count):
            largest = chosen(work.r[k] > largest, work.r[k], largest)
        drop = -1
        for k in range(work.count):
            if work.status[work.active[k]] == _ACTIVE and work.r[k] > _PUSHED * largest:
                most = work.u[k] / work.r[k]
                if most < least:
                    least, drop = most, k
        if squared > 0.0:
            whole = lack / squared
            step = chosen(whole <= least, whole, least)
            add(work.x, step, work.z, 0, end)
            lack = lack - step * squared
            add(work.u, -step, work.r, 0, end)
            u = u + step
            if whole <= least:
                add_active(work, p, side, u, squared)
                work.status[p], going = chosen(fixed, _FIXED, _ACTIVE), False
        elif drop < 0:
            work.status[p], going = _LEFT_OUT, False
            steps = chosen(lack <= work.loose * rounding(bound, least_size(work)), steps, -1)
        else:
            add(work.u, -least, work.r, 0, end)
            u = u + least
        if going:
            drop_active(work, drop)
            going = steps < work.most
    work.farthest = larger(largest_x(work), work.farthest)
    return steps


@routine
def solve(work: Array[Work], squares: Static[bool]) -> Word:
    """Solve one programme; returns what became of it. The number of steps is left in `most`."""
    factorise(work, squares=squares)
    if product(work.x, work.x, 0, work.padded // lanes_of(Vector)) <= _HUGE:
        outcome, steps, fixed = SOLVED, 0, 0
        for k in range(work.bounds):
            if work.lower[k] == work.upper[k]:
                fixed = fixed + 1
            elif work.lower[k] > work.upper[k]:
                outcome = INFEASIBLE
            elif not work.lower[k] < work.upper[k]:
                return INVALID
        size, going = largest_x(work), outcome == SOLVED
        work.farthest = size
        if going and (fixed > 0 or worst_bound(work, size) >= 0):
            invert(work)
            work.most = work.most + fixed
            for k in range(work.bounds):
                if work.lower[k] == work.upper[k] and outcome == SOLVED:
                    steps = enforce(work, k, steps)
                    outcome = chosen(steps < 0, INFEASIBLE, outcome)
            going, corrected, size = outcome == SOLVED, False, work.farthest
            while going:
                p = worst_bound(work, size)
                if p >= 0:
                    steps, size, corrected = enforce(work, p, steps), larger(largest_x(work), size), False
                    outcome = chosen(steps < 0, INFEASIBLE, chosen(steps >= work.most, UNFINISHED, SOLVED))
                    going = outcome == SOLVED
                else:
                    going = not corrected
                    correct(work)
                    size, corrected = least_size(work), True
        work.most = steps
        if outcome == SOLVED:
            outcome = checked(work, size)
        return outcome
    return INVALID


def checked(work: Array[Work], size: Scalar) -> Word:
    """Move x into its bounds by what rounding lacks. Returns whether all bounds hold up to rounding."""
    outcome = SOLVED
    for k in range(work.bounds):
        value, lower, upper = value_of(work, k), work.lower[k], work.upper[k]
        if lower - value > work.loose * rounding(lower, size) or value - upper > work.loose * rounding(upper, size):
            outcome = UNFINISHED
        if k < work.n:
            work.x[k] = chosen(value < lower, lower, chosen(value > upper, upper, value))
    if product(work.x, work.x, 0, work.padded // lanes_of(Vector)) <= _HUGE:
        pass
    else:
        outcome = INVALID
    return outcome


# Batches.


def place_arrays(work: Array[Work], workspace: Address) -> None:
    """Give each array its memory."""
    line, bounds = work.padded, work.bounds
    at = array(Scalar, workspace)
    work.H, work.J, work.R = at, at + work.n * line, at + 2 * work.n * line
    at = at + 3 * work.n * line
    work.x, work.g, work.d, work.z, work.r = at, at + line, at + 2 * line, at + 3 * line, at + 4 * line
    work.inverse, work.u, work.A = at + 5 * line, at + 6 * line, at + 7 * line
    work.C = work.A + work.rows * line
    at = work.C + work.m * line
    work.lower, work.upper, work.norm, work.multipliers = at, at + bounds, at + 2 * bounds, at + 3 * bounds
    words = array(Word, at + 4 * bounds)
    work.status, work.active, work.side = words, words + bounds, words + (bounds + line)


@routine
def read_bounds(work: Array[Work], table: Array[Argument], row: Word) -> None:
    """C and the bounds, from three entries of the table. Rows of C get the length one."""
    C, lower, upper = row_of(table, 0, row), row_of(table, 1, row), row_of(table, 2, row)
    n, end = work.n, work.padded // lanes_of(Vector)
    for k in range(work.bounds):
        norm = spread(Scalar, 1.0)
        if k >= n:
            line = work.C + (k - n) * work.padded
            clear(line, 8 * work.padded)
            read_row(line, C + (k - n) * n, n)
            norm = root(product(line, line, 0, end))
            if norm == 0.0:
                norm = spread(Scalar, 1.0)
            vectors = array(Vector, line)
            for v in range(end):
                vectors[v] = vectors[v] / spread(Vector, norm)
        work.norm[k], work.status[k] = norm, _FREE
        work.lower[k] = convert(Scalar, lower[k]) / norm
        work.upper[k] = convert(Scalar, upper[k]) / norm


@routine
def write_results(work: Array[Work], table: Array[Argument], row: Word, outcome: Word) -> None:
    """x and the multipliers, NaN if there is no solution, and the outcome, to three entries of the table."""
    x, multipliers, n = row_of(table, 0, row), row_of(table, 1, row), work.n
    words, held = words_of(table, 2) + row * (table[2].stride // 8), outcome == SOLVED
    words[0], words[1] = outcome, work.most
    for k in range(n):
        x[k] = convert(LooseScalar, chosen(held, work.x[k], spread(Scalar, _NAN)))
    for k in range(work.bounds):
        multipliers[k] = convert(LooseScalar, spread(Scalar, chosen(held, spread(Scalar, 0.0), spread(Scalar, _NAN))))
    if held:
        for c in range(work.count):
            k = work.active[c]
            size = work.u[c] / work.norm[k]
            multipliers[k] = convert(LooseScalar, chosen(work.side[c] > 0, size, -size))


@routine
def kernel(table: Array[Argument], first: Word, last: Word, workspace: Address, squares: Static[bool]) -> None:
    """Solve the programmes of some rows."""
    bounds = 4 if squares else 2
    sizes, tolerances, work = words_of(table, bounds + 6), array(Scalar, table[bounds + 7].data), local(Work, 1)
    work.slack, work.loose, work.independent, work.scale = tolerances[0], tolerances[1], tolerances[2], tolerances[3]
    work.n, work.m, work.rows, work.padded = sizes[0], sizes[1], sizes[2], sizes[3]
    work.bounds = work.n + work.m
    place_arrays(work, workspace)
    n, padded = work.n, work.padded
    clear(work.z, 8 * padded)
    for row in range(first, last):
        work.most, work.count = sizes[4], 0
        read_bounds(work, table + bounds, row)
        clear(work.H, 8 * n * padded)
        clear(work.g, 8 * padded)
        clear(work.u, 8 * padded)
        clear(work.r, 8 * padded)
        given, vector = row_of(table, 0, row), row_of(table, 1, row)
        if squares:
            read_squares(work, given, vector, row_of(table, 2, row), row_of(table, 3, row))
        else:
            for k in range(n):
                read_row(work.H + k * padded, given + k * n, n)
            read_row(work.g, vector, n)
        write_results(work, table + (bounds + 3), row, solve(work, squares=squares))
