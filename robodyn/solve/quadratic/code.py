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

import math
from typing import Any

import numpy as np

from robodyn.compile.llvm.straight_line import attributes
from robodyn.compile.llvm.target import Target
from robodyn.compile.loops.language import (
    Address,
    Array,
    LooseScalar,
    Scalar,
    Static,
    Vector,
    Word,
    array,
    chosen,
    clear,
    convert,
    lanes_of,
    local,
    routine,
    spread,
)
from robodyn.compile.loops.llvm import printed_module
from robodyn.compile.loops.table import Argument, words_of
from robodyn.engines.cpu.loops.runtime import transposed
from robodyn.solve.quadratic.factors import (
    ACTIVE,
    FIXED,
    FREE,
    LEFT_OUT,
    Work,
    accumulate,
    add,
    close,
    factorise,
    invert,
    largest_of,
    place_arrays,
    product,
    read_row,
    read_squares,
    root,
    rotate,
    row_of,
    types,
    zero,
)

SOLVED, INFEASIBLE, UNFINISHED, INVALID = range(4)
"""What became of a programme: solved; no x fulfils all rows; too many steps, or rounding errors; a number that is not
finite, or a lower bound above its upper bound by NaN."""
_PUSHED = 1e-12
"""Entry of r, relative to the largest, above which a step reduces the multiplier."""
_LEFT = 1e-6
"""Share of the largest x so far that counts as the size of x at least: rounding errors of larger ones remain."""
_HUGE, _NAN = 1e300, math.nan


def module_text(dtype: np.dtype[Any], target: Target, squares: bool) -> str:
    """The module for arrays of a dtype. `squares`: True if A, b and d are given instead of H and g."""
    facts = "quadratic", str(dtype), target, squares
    return printed_module(
        facts, types(dtype, target), lambda module: module.export(kernel, "kernel", squares=squares), attributes(target)
    )


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
    x, found = array(Vector, work.x), spread(Vector, work.scale)
    for v in range(work.padded // lanes_of(Vector)):
        size = chosen(x[v] < 0.0, -x[v], x[v])
        found = chosen(size > found, size, found)
    return largest_of(found)


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
def turn(work: Array[Work]) -> None:
    """C', from C."""
    width = lanes_of(Vector)
    if width == 1:
        for j in range(work.m):
            for i in range(work.n):
                work.across[i * work.wide + j] = work.C[j * work.padded + i]
        return
    for j in range(work.wide // width):
        for v in range(work.padded // width):
            block = transposed([array(Vector, work.C + (j * width + i) * work.padded)[v] for i in range(width)])
            for i in range(width):
                array(Vector, work.across + (v * width + i) * work.wide)[j] = block[i]


def find_values(work: Array[Work]) -> None:
    """C x."""
    end = work.wide // lanes_of(Vector)
    zero(work.values, end)
    accumulate(work.values, work.x, 1, work.across, work.n, work.wide, 0, end, minus=False)


@routine
def worst_bound(work: Array[Work], size: Scalar) -> Word:
    """The bound without an active side that is violated most; -1 if all hold. `size`: the largest x so far."""
    at, worst, n, end = -1, spread(Scalar, 0.0), work.n, work.wide // lanes_of(Vector)
    for k in range(work.first, n):
        if work.status[k] == FREE:
            value = work.x[k]
            below, above = work.lower[k] - value, value - work.upper[k]
            violated = chosen(below > above, below, above)
            bound = chosen(below > above, work.lower[k], work.upper[k])
            if violated > worst and violated > work.slack * rounding(bound, size):
                worst, at = violated, k
    find_values(work)
    values, lower, upper = array(Vector, work.values), array(Vector, work.lower + n), array(Vector, work.upper + n)
    status, excess = array(Vector, work.status + n), array(Vector, work.excess)
    none, least, slack = spread(Vector, 0.0), spread(Vector, size), spread(Vector, work.slack)
    for v in range(end):
        below, above = lower[v] - values[v], values[v] - upper[v]
        violated = chosen(below > above, below, above)
        bound = chosen(below > above, lower[v], upper[v])
        violated = chosen(violated > slack * (chosen(bound < 0.0, -bound, bound) + least), violated, none)
        excess[v] = chosen(status[v] < 0.5, violated, none)
    for k in range(work.m):
        if work.excess[k] > worst:
            worst, at = work.excess[k], n + k
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
    zero(column, end)
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
    work.status[work.active[at]] = spread(Scalar, FREE)
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
    zero(z, end)
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
    zero(work.r, padded // width)
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
            if work.status[work.active[k]] == ACTIVE and work.r[k] > _PUSHED * largest:
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
                work.status[p], going = chosen(fixed, spread(Scalar, FIXED), spread(Scalar, ACTIVE)), False
        elif drop < 0:
            work.status[p], going = spread(Scalar, LEFT_OUT), False
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
def solve(work: Array[Work]) -> Word:
    """Solve one programme whose H is factorised; returns what became of it. The number of steps is left in `most`."""
    turn(work)
    if product(work.x, work.x, 0, work.padded // lanes_of(Vector)) <= _HUGE:
        outcome, steps, fixed = SOLVED, 0, 0
        for k in range(work.first, work.bounds):
            if work.lower[k] == work.upper[k]:
                fixed = fixed + 1
            elif work.lower[k] > work.upper[k]:
                outcome = INFEASIBLE
            elif not work.lower[k] < work.upper[k]:
                work.most = 0
                return INVALID
        size, going = largest_x(work), outcome == SOLVED
        work.farthest = size
        if going and (fixed > 0 or worst_bound(work, size) >= 0):
            invert(work)
            work.most = work.most + fixed
            for k in range(work.first, work.bounds):
                if work.lower[k] == work.upper[k] and outcome == SOLVED:
                    steps = enforce(work, k, steps)
                    outcome = chosen(steps < 0, INFEASIBLE, outcome)
            going, corrected, size = outcome == SOLVED, False, work.farthest
            while going:
                p = worst_bound(work, size)
                if p >= 0:
                    steps = enforce(work, p, steps)
                    size, corrected = larger(work.farthest, size), False
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
    work.most = 0
    return INVALID


def checked(work: Array[Work], size: Scalar) -> Word:
    """Move x into its bounds by what rounding lacks. Returns whether all bounds hold up to rounding."""
    outcome, n = SOLVED, work.n
    find_values(work)
    for k in range(work.first, work.bounds):
        value, lower, upper = chosen(k < n, work.x[k], work.values[k - n]), work.lower[k], work.upper[k]
        if lower - value > work.loose * rounding(lower, size) or value - upper > work.loose * rounding(upper, size):
            outcome = UNFINISHED
        if k < n:
            work.x[k] = chosen(value < lower, lower, chosen(value > upper, upper, value))
    if product(work.x, work.x, 0, work.padded // lanes_of(Vector)) <= _HUGE:
        pass
    else:
        outcome = INVALID
    return outcome


# Batches.


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
        work.norm[k], work.status[k] = norm, spread(Scalar, FREE)
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
    work.first = 0
    place_arrays(work, workspace)
    close(work, work.m)
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
        factorise(work, squares=squares)
        write_results(work, table + (bounds + 3), row, solve(work))
