"""The backward pass of iterative linear-quadratic regulators, as loops, for one problem after another or for several.

    void kernel(ptr table, i64 first, i64 last, ptr workspace)

With dx+ = A dx + B du + gap and the value 1/2 dx'V dx + v'dx of the next knot, the cost from a knot on is quadratic in
z = (du, dx, 1):

    Q = L + F'(V F + v e'),    F = (B, A, gap),    L = (luu, lux, lu; ., lxx, lx).

The last element of z makes the gradient a column. Steps q+ = q + dt qd+ of vector spaces need the lower half Y of
(B, A) alone: with dqd+ = Y z and dq+ = dq + dt Y z,

    F'V F = Y'M Y + Y'S E + E'S'Y + E'V11 E,    M = dt^2 V11 + dt (V12 + V21) + V22,    S = dt V11 + V21,    E z = dq.

The first rows of a Cholesky factorisation of Q, those of controls,
are (U, Y, y) with U'U = Quu + mu. What remains of the other rows is the value of this knot,

    V = Qxx - Y'Y - mu K'K,    v = Qx - Y'y - mu K'k,    (K, k) = -U^-1 (Y, y).

Products with mu appear because gains with mu do not reach the least Q. Where k leaves its bounds, projected Newton
steps find the least Q within them (Tassa, Mansard, Todorov, Control-limited differential dynamic programming, 2014).
Gains of controls at bounds are zero. A kernel for several problems leaves those with controls beyond their bounds to
the kernel for one, and a few that remain.
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
    Byte,
    Entry,
    Flag,
    Loose,
    LooseScalar,
    Scalar,
    Static,
    Vector,
    Word,
    all_of,
    array,
    call,
    chosen,
    clear,
    convert,
    copy,
    extracted,
    fma,
    lanes_of,
    local,
    routine,
    size_of,
    spread,
)
from robodyn.compile.loops.llvm import printed_module
from robodyn.engines.cpu.loops.runtime import stage_in, stage_out, types_of
from robodyn.solve.quadratic.factors import product
from robodyn.solve.trajectories.dense_code import columns_of_vectors, eliminate, mirror, multiply, substitute, transfer

INPUTS = (
    *("A", "B", "gap", "lx", "lu", "lxx", "lux", "luu", "vx", "vxx", "mu", "lower", "upper"),
    *("lxx_diagonal", "luu_diagonal", "Y", "dt"),
)
OUTPUTS = ("k", "K", "expected", "ok")
ENTRIES = (*INPUTS, *OUTPUTS, "sizes", "least", "columns", "alone")
"""Entries of the table."""
FEW = 4
"""Problems from which on several are solved at once."""
_NEWTON, _HALVINGS = 8, 10
"""Most projected Newton steps of a knot, and halvings of one."""
_ENOUGH = 0.1
"""Share of the decrease promised by the gradient that a step within bounds must reach."""
_NAN, _LINE = math.nan, 64


class Given(ctypes.Structure):
    """An array of the user's: the address of its numbers, 0 if there is none, and the bytes from a problem to the next
    and from a knot to the next."""

    _fields_ = (("data", ctypes.c_void_p), ("stride", ctypes.c_int64), ("knot", ctypes.c_int64))


class Work(ctypes.Structure):
    """Sizes and memory of one problem: numbers of states, controls and knots, of a row of (du, dx, 1) and of (du, 1) in
    whole vectors, and of columns of B; the problem, or the first of several and the last of all; the bytes from
    `memory` to each of `PLACES`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("n", "nu", "steps", "line", "small", "wide", "row", "end")),
        ("memory", ctypes.c_void_p),
        ("offsets", ctypes.POINTER(ctypes.c_int64)),
    )


PLACES = (*"FWQGSTHM", "next", "cross", "inverse", "x", "slope", "move", "end", "done", "lower", "upper", "marks")
"""Memory of one problem, or of several at once: F or Y; V F or M Y + S E; Q, whose last rows become the value; gains;
the first rows of Q while controls are clamped, or gains times mu; what is read and written for several problems; for
bounds Quu + mu and its part of the free controls; M and S of steps with dt; 1 / U_kk; for bounds du, the gradient, the
Newton step, where it ends, what is left of it, the bounds, and whether each control is clamped."""


def layout(n: int, nu: int, line: int, small: int, entry: int) -> list[int]:
    """Bytes from the beginning of scratch memory to each of `PLACES`, and to its end. `entry`: bytes of an entry."""
    rows, offsets = {"F": n, "W": n, "Q": nu + n, "G": nu, "S": nu}, [0]
    sizes = {"H": nu * small, "M": nu * small, "T": max(n * max(n, nu), nu * nu, n // 2 * (nu + n))} | {
        name: rows[name] * line for name in rows
    }
    sizes |= {"next": n // 2 * line, "cross": n // 2 * line}
    for name in PLACES:
        size = 8 * nu if name == "marks" else entry * sizes.get(name, small)
        offsets.append(offsets[-1] + -(-size // _LINE) * _LINE)
    return offsets


def types(dtype: np.dtype[Any], target: Target, several: bool) -> dict[str, Any]:
    """Types in the module. `several`: `Scalar` is a vector with a number for each of several problems; `Entry` is one
    number."""
    kinds = types_of(VectorType.of(dtype, target))
    kinds["Entry"] = kinds["Scalar"]
    return {**kinds, "Scalar": kinds["Vector"]} if several else kinds


def module_text(dtype: np.dtype[Any], target: Target, several: bool) -> str:
    """The module for arrays of a dtype."""
    return printed_module(
        ("backward", str(dtype), target, several),
        types(dtype, target, several),
        lambda module: module.export(kernel, "kernel", several=several),
        attributes(target),
    )


def at(work: Array[Work], name: Static[str]) -> Array[Scalar]:
    """A matrix or vector in memory."""
    return array(Scalar, work.memory + work.offsets[PLACES.index(name)])


def given(table: Array[Given], name: Static[str], row: Word, knot: Word) -> Array[LooseScalar]:
    """The numbers of a problem and knot in an array of the user's."""
    entry = table[ENTRIES.index(name)]
    return array(LooseScalar, entry.data + row * entry.stride + knot * entry.knot)


def numbers(
    work: Array[Work],
    table: Array[Given],
    name: Static[str],
    knot: Word,
    count: Word,
    several: Static[bool],
) -> Static[Array[Any]]:
    """`count` entries of an array of the user's: where they are, or for several problems in T."""
    if several:
        entry, T = table[ENTRIES.index(name)], at(work, "T")
        data = entry.data + knot * entry.knot
        stage_in(data, entry.stride, work.row, work.end, array(Loose, T), count, lanes_of(Scalar))
        return T
    return given(table, name, work.row, knot)


def put(
    work: Array[Work],
    table: Array[Given],
    name: Static[str],
    knot: Word,
    source: Array[Scalar],
    rows: Word,
    count: Word,
    line: Word,
    several: Static[bool],
) -> None:
    """Write rows of `count` entries to an array of the user's. `line`: entries from a row of `source` to the next."""
    if several:
        entry, T = table[ENTRIES.index(name)], at(work, "T")
        for i in range(rows):
            transfer(T + i * count, source + i * line, count)
        data = entry.data + knot * entry.knot
        stage_out(data, entry.stride, work.row, work.end, array(Loose, T), None, rows * count, lanes_of(Scalar))
    else:
        to = given(table, name, work.row, knot)
        for i in range(rows):
            transfer(to + i * count, source + i * line, count)


# A knot.


def quadratic(work: Array[Work], table: Array[Given], knot: Word, dt: Scalar, several: Static[bool]) -> None:
    """Q of a knot, from the value of the next one in the last rows of Q."""
    n, nu, line, Q, F, W = work.n, work.nu, work.line, at(work, "Q"), at(work, "F"), at(work, "W")
    V, last = Q + (nu * line + nu), nu + n
    if table[ENTRIES.index("dt")].data != 0:
        depth = n // 2
        copy_rows(F, line, numbers(work, table, "Y", knot, depth * last, several), depth, last)
        join(work, dt)
        multiply(Q, F, 1, line, W, nu, depth, line, 0, upper=True, how="=")
        multiply(Q + nu * line, F + nu, 1, line, W, depth, depth, line, nu, upper=True, how="+=")
        from_half = nu + depth
        multiply(Q + from_half * line, F + from_half, 1, line, W, depth, depth, line, from_half, upper=True, how="=")
    else:
        if table[ENTRIES.index("gap")].data != 0:
            gap = numbers(work, table, "gap", knot, n, several)
            for i in range(n):
                F[i * line + last] = gap[i]
        copy_controls(F, line, work, table, knot, several)
        copy_rows(F + nu, line, numbers(work, table, "A", knot, n * n, several), n, n)
        multiply(W, V, line, 1, F, n, n, line, 0, upper=False, how="=")
        for i in range(n):
            W[i * line + last] = W[i * line + last] + V[i * line + n]
        multiply(Q, F, 1, line, W, nu + n, n, line, 0, upper=True, how="=")
    if table[ENTRIES.index("luu")].data != 0:
        add_rows_of(Q, line, numbers(work, table, "luu", knot, nu * nu, several), nu, nu)
    if table[ENTRIES.index("lux")].data != 0:
        add_rows_of(Q + nu, line, numbers(work, table, "lux", knot, nu * n, several), nu, n)
    if table[ENTRIES.index("lxx")].data != 0:
        add_rows_of(V, line, numbers(work, table, "lxx", knot, n * n, several), n, n)
    if table[ENTRIES.index("luu_diagonal")].data != 0:
        add_along(Q, line + 1, numbers(work, table, "luu_diagonal", knot, nu, several), nu)
    if table[ENTRIES.index("lxx_diagonal")].data != 0:
        add_along(V, line + 1, numbers(work, table, "lxx_diagonal", knot, n, several), n)
    add_along(Q + last, line, numbers(work, table, "lu", knot, nu, several), nu)
    add_along(V + n, line, numbers(work, table, "lx", knot, n, several), n)


@routine
def join(work: Array[Work], dt: Scalar) -> None:
    """W = M Y + (0, S, 0, dt v1 + v2), and what Q has in the rows of dq without Y'W and costs: S'Y + V11 and v1."""
    n, nu, line, Q, F, W = work.n, work.nu, work.line, at(work, "Q"), at(work, "F"), at(work, "W")
    half, V, M, S, width = n // 2, Q + (nu * line + nu), at(work, "next"), at(work, "cross"), columns_of_vectors()
    step = spread(Vector, dt)
    for i in range(half):
        above, below = V + i * line, V + (half + i) * line
        m, s = M + i * line, S + i * line
        for v in range((half + (width - 1)) // width):  # what is behind the columns is not read
            upper_left, upper_right = array(Loose, above + v * width)[0], array(Loose, above + half + v * width)[0]
            lower_left, lower_right = array(Loose, below + v * width)[0], array(Loose, below + half + v * width)[0]
            cross = fma(step, upper_left, lower_left)
            array(Loose, s + v * width)[0] = cross
            array(Loose, m + v * width)[0] = fma(step, upper_right + cross, lower_right)
    multiply(W, M, line, 1, F, half, half, line, 0, upper=False, how="=")
    for i in range(half):
        row = W + i * line
        for j in range(half):
            row[nu + j] = row[nu + j] + S[i * line + j]
        row[nu + n] = dt * V[i * line + n] + V[(half + i) * line + n]
        for j in range(half):
            V[i * line + half + j] = spread(Scalar, 0.0)
    multiply(Q + nu * line, S, 1, line, F, half, half, line, nu, upper=True, how="+=")


def add_along(to: Array[Scalar], stride: Word, source: Static[Array[Any]], count: Word) -> None:
    """Add numbers to entries that are `stride` apart."""
    for i in range(count):
        to[i * stride] = to[i * stride] + source[i]


def add_rows_of(to: Array[Scalar], line: Word, source: Static[Array[Any]], rows: Word, count: Word) -> None:
    """Add rows of `count` entries, which are behind one another, to rows that are `line` entries apart."""
    width = columns_of_vectors()
    whole = count // width
    for i in range(rows):
        row, own = to + i * line, source + i * count
        for v in range(whole):
            both = array(Loose, row + v * width), array(Loose, own + v * width)
            both[0][0] = both[0][0] + both[1][0]
        for j in range(whole * width, count):
            row[j] = row[j] + own[j]


def copy_controls(
    to: Array[Scalar],
    line: Word,
    work: Array[Work],
    table: Array[Given],
    knot: Word,
    several: Static[bool],
) -> None:
    """Copy the columns of controls of B."""
    rows, nu, wide, columns = work.n, work.nu, work.wide, array(Word, table[ENTRIES.index("columns")].data)
    source = numbers(work, table, "B", knot, rows * wide, several)
    if table[ENTRIES.index("columns")].data == 0:
        copy_rows(to, line, source, rows, nu)
    else:
        for j in range(nu):
            column = columns[j]
            for i in range(rows):
                to[i * line + j] = source[i * wide + column]


def copy_rows(to: Array[Scalar], line: Word, source: Static[Array[Any]], rows: Word, count: Word) -> None:
    """Copy rows of `count` entries, which are behind one another, to rows that are `line` entries apart."""
    for i in range(rows):
        transfer(to + i * line, source + i * count, count)


def solve_knot(work: Array[Work], mu: Scalar, bounded: Static[Flag], expected: Array[Scalar], least: Scalar) -> None:
    """Gains, and the value of the knot. Adds the predicted change of the cost to `expected`. All are NaN if Quu + mu is
    not positive definite."""
    n, nu, line, Q, G, S = work.n, work.nu, work.line, at(work, "Q"), at(work, "G"), at(work, "S")
    last, inverse, width, clamped = nu + n, at(work, "inverse"), columns_of_vectors(), False
    if bounded:
        copy(S, Q, nu * line * size_of(Scalar))
    for i in range(nu):
        Q[i * line + i] = Q[i * line + i] + mu
    eliminate(Q, inverse, nu, line, least)
    substitute(G, Q, inverse, nu, line, nu // width)
    if bounded:
        for i in range(nu):
            k = G[i * line + last]
            clamped = clamped or k < at(work, "lower")[i] or k > at(work, "upper")[i]
    if clamped:
        clamp(work, mu, expected, least)
    else:
        square, moved = spread(Scalar, 0.0), spread(Scalar, 0.0)
        for i in range(nu):
            y, k = Q[i * line + last], G[i * line + last]
            square, moved = square + y * y, moved + k * k
        expected[0] = expected[0] - square
        expected[1] = expected[1] + 0.5 * (square - mu * moved)
    V = Q + nu * line
    multiply(V, Q + nu, 1, line, Q, n, nu, line, nu, upper=True, how="-=")
    if not all_of(mu == spread(Scalar, 0.0)):
        share = spread(Vector, mu)
        for v in range(nu * line // width):
            array(Vector, S)[v] = array(Vector, G)[v] * share
        multiply(V, S + nu, 1, line, G, n, nu, line, nu, upper=True, how="-=")
    mirror(V + nu, n, line)
    if clamped:
        for i in range(nu):
            G[i * line + last] = at(work, "x")[i]


# Bounds.


@routine
def clamp(work: Array[Work], mu: Scalar, expected: Array[Scalar], least: Scalar) -> None:
    """The controls within their bounds, from the rows S of Q without mu and the Newton step that leaves them.

    Leaves what `solve_knot` needs: rows of Q and gains with zeros for clamped controls and in the last column, whose
    part of the value is added here.
    """
    nu, line, small, Q, G, S = work.nu, work.line, work.small, at(work, "Q"), at(work, "G"), at(work, "S")
    x, slope, H, inverse = at(work, "x"), at(work, "slope"), at(work, "H"), at(work, "inverse")
    last = nu + work.n
    marks = array(Word, at(work, "marks"))
    for i in range(nu):
        for j in range(nu):
            H[i * small + j] = S[min(i, j) * line + max(i, j)]
        H[i * small + i] = H[i * small + i] + mu
        x[i] = G[i * line + last]
    newton(work, least)
    # The last column: v = Qx + Qux'k + K'(Qu + Quu k).
    for i in range(nu):
        promised = S[i * line + last]
        slope[i] = slope[i] - mu * x[i]
        expected[0] = expected[0] + x[i] * promised
        expected[1] = expected[1] + 0.5 * x[i] * (slope[i] - promised)
    add_rows(Q, S, x, nu, last, line)
    copy(Q, S, nu * line * size_of(Scalar))
    for i in range(nu):
        if marks[i] != 0:
            clear(Q + i * line, line * size_of(Scalar))
            for j in range(i):
                Q[j * line + i] = spread(Scalar, 0.0)
            Q[i * line + i] = spread(Scalar, 1.0)
        else:
            Q[i * line + i] = Q[i * line + i] + mu
        Q[i * line + last] = spread(Scalar, 0.0)
    eliminate(Q, inverse, nu, line, least)
    substitute(G, Q, inverse, nu, line, nu // lanes_of(Vector))
    add_rows(Q, G, slope, nu, last, line)


def add_rows(Q: Array[Scalar], rows: Array[Scalar], shares: Array[Scalar], nu: Word, last: Word, line: Word) -> None:
    """Add rows of controls, each times a number, to the last column of the other rows of Q."""
    for j in range(nu, last):
        total: Scalar = Q[j * line + last]
        for i in range(nu):
            total = total + rows[i * line + j] * shares[i]
        Q[j * line + last] = total


@routine
def newton(work: Array[Work], least: Scalar) -> None:
    """Minimise 1/2 x'H x + g'x within bounds by projected Newton steps; leaves x, H x + g, and which controls are
    clamped."""
    nu, small, line, end = work.nu, work.small, work.line, work.small // lanes_of(Vector)
    x, slope, move, H, M = (at(work, name) for name in ("x", "slope", "move", "H", "M"))
    lower, upper, inverse = at(work, "lower"), at(work, "upper"), at(work, "inverse")
    g, marks = at(work, "S") + (nu + work.n), array(Word, at(work, "marks"))
    for i in range(nu):
        x[i], marks[i] = within(x[i], lower[i], upper[i]), -1
    settled, going, steps = False, True, 0
    while going:
        same = True
        for i in range(nu):
            slope[i] = g[i * line] + product(H + i * small, x, 0, end)
            down = x[i] <= lower[i] and slope[i] > 0.0
            up = x[i] >= upper[i] and slope[i] < 0.0
            mark = 1 if down or up or lower[i] == upper[i] else 0
            same = same and mark == marks[i]
            marks[i] = mark
        going = not (settled and same) and steps < _NEWTON
        if going:
            steps += 1
            free_part(work)
            eliminate(M, inverse, nu, small, least)
            for i in reversed(range(nu)):
                rest: Scalar = M[i * small + nu]
                for j in range(i + 1, nu):
                    rest = rest + M[i * small + j] * move[j]
                move[i] = -rest * inverse[i]
            settled = step_within(work)


def within(value: Scalar, lower: Scalar, upper: Scalar) -> Scalar:
    """A value or the bound that it passes."""
    return chosen(value < lower, lower, chosen(value > upper, upper, value))


@routine
def free_part(work: Array[Work]) -> None:
    """H and the gradient of the controls that are free; ones on the diagonal for the others."""
    nu, small, H, M = work.nu, work.small, at(work, "H"), at(work, "M")
    marks, slope = array(Word, at(work, "marks")), at(work, "slope")
    zero = spread(Scalar, 0.0)
    for i in range(nu):
        for j in range(nu):
            M[i * small + j] = chosen(marks[i] + marks[j] == 0, H[i * small + j], zero)
        if marks[i] != 0:
            M[i * small + i] = spread(Scalar, 1.0)
        M[i * small + nu] = chosen(marks[i] == 0, slope[i], zero)


@routine
def step_within(work: Array[Work]) -> Flag:
    """Move x along the Newton step, cut off at bounds, halved until the value falls enough. Returns whether the whole
    step stays within bounds."""
    nu, small, end = work.nu, work.small, work.small // lanes_of(Vector)
    x, slope, move, to, H = (at(work, name) for name in ("x", "slope", "move", "end", "H"))
    lower, upper, done = at(work, "lower"), at(work, "upper"), at(work, "done")
    share, tries, whole, going = spread(Scalar, 1.0), 0, True, True
    while going:
        whole, promised = tries == 0, spread(Scalar, 0.0)
        for i in range(nu):
            wanted = x[i] + share * move[i]
            to[i] = within(wanted, lower[i], upper[i])
            whole = whole and to[i] == wanted
            done[i] = to[i] - x[i]
            promised = promised + slope[i] * done[i]
        curved = spread(Scalar, 0.0)
        for i in range(nu):
            curved = curved + done[i] * product(H + i * small, done, 0, end)
        going = promised + 0.5 * curved > _ENOUGH * promised and tries < _HALVINGS
        share, tries = 0.5 * share, tries + 1
    for i in range(nu):
        x[i] = to[i]
    return whole


# Batches.


def pass_back(
    work: Array[Work], table: Array[Given], expected: Array[Scalar], least: Scalar, several: Static[bool]
) -> Scalar:
    """All knots of a problem, or of several at once, the last one first. Returns 1 for each of several problems with
    controls beyond their bounds, or bounds that contradict, else 0."""
    n, nu, line, Q, G = work.n, work.nu, work.line, at(work, "Q"), at(work, "G")
    V, last, mu = Q + (nu * line + nu), nu + n, numbers(work, table, "mu", 0, 1, several)[0]
    dt = spread(Scalar, 0.0)
    if table[ENTRIES.index("dt")].data != 0:
        dt = numbers(work, table, "dt", 0, 1, several)[0]
    copy_rows(V, line, numbers(work, table, "vxx", 0, n * n, several), n, n)
    vx = numbers(work, table, "vx", 0, n, several)
    for i in range(n):
        V[i * line + n] = vx[i]
    expected[0], expected[1] = spread(Scalar, 0.0), spread(Scalar, 0.0)
    outside, knot = spread(Scalar, 0.0), work.steps
    while knot > 0 and not all_of(outside == spread(Scalar, 1.0)):
        knot -= 1
        bounded = False
        if not several:
            bounded = table[ENTRIES.index("lower")].data != 0
            if bounded:
                low, high = given(table, "lower", work.row, knot), given(table, "upper", work.row, knot)
                transfer(at(work, "lower"), low, nu)
                transfer(at(work, "upper"), high, nu)
                for i in range(nu):
                    expected[0] = chosen(low[i] <= high[i], expected[0], spread(Scalar, _NAN))
        quadratic(work, table, knot, dt, several)
        solve_knot(work, mu, bounded, expected, least)
        if several and table[ENTRIES.index("lower")].data != 0:
            lower = numbers(work, table, "lower", knot, nu, several)
            for i in range(nu):
                outside = chosen(lower[i] <= G[i * line + last], outside, spread(Scalar, 1.0))
            upper = numbers(work, table, "upper", knot, nu, several)
            for i in range(nu):
                outside = chosen(G[i * line + last] <= upper[i], outside, spread(Scalar, 1.0))
        put(work, table, "k", knot, G + last, nu, 1, line, several)
        put(work, table, "K", knot, G + nu, nu, n, line, several)
    for i in range(n):  # gains of the first knot alone may be not finite
        expected[0] = expected[0] + 0.0 * (V[i * line + i] + V[i * line + n])
    return outside


@routine
def kernel(table: Array[Given], first: Word, last: Word, workspace: Address, several: Static[bool]) -> None:
    """The backward passes of some problems. Results of those that fail are NaN."""
    sizes, work, expected = array(Word, table[ENTRIES.index("sizes")].data), local(Work, 1), local(Scalar, 2)
    work.n, work.nu, work.steps, work.line, work.small = sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]
    work.wide, work.memory, work.offsets, work.end = sizes[5], workspace, sizes + 7, last - 1
    clear(workspace, sizes[6])
    least = spread(Scalar, array(LooseScalar, table[ENTRIES.index("least")].data)[0])
    width = lanes_of(Scalar)
    row = first
    while row < last:
        work.row = row
        other = table[ENTRIES.index("alone")]
        if several and last - row < FEW:
            call(None, other.data, other.stride, row, last, workspace + sizes[6])
            row = last
        else:
            outside = pass_back(work, table, expected, least, several)
            for k in range(width):
                if row + k < last:
                    if several and extracted(outside, k) > 0.0:
                        call(None, other.data, other.stride, row + k, row + k + 1, workspace + sizes[6])
                    else:
                        finish(table, row + k, extracted(expected[0], k), extracted(expected[1], k), work)
            row += width


@routine
def finish(table: Array[Given], row: Word, linear: Entry, squared: Entry, work: Array[Work]) -> None:
    """Write whether a problem was solved, and the predicted change."""
    held, expected = linear == linear and squared == squared, given(table, "expected", row, 0)
    array(Byte, table[ENTRIES.index("ok")].data + row)[0] = convert(Byte, 1 if held else 0)
    expected[0], expected[1] = linear, squared
    if not held:
        fill(given(table, "k", row, 0), work.steps * work.nu)
        fill(given(table, "K", row, 0), work.steps * work.nu * work.n)
        fill(expected, 2)


def fill(to: Array[LooseScalar], count: Word) -> None:
    """Set numbers to NaN."""
    for k in range(count):
        to[k] = spread(LooseScalar, _NAN)
