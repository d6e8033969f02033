"""The backward pass of iterative linear-quadratic regulators, as loops, for one problem after another.

    void kernel(ptr table, i64 first, i64 last, ptr workspace)

With dx+ = A dx + B du + gap and the value 1/2 dx'V dx + v'dx of the next knot, the cost from a knot on is quadratic in
z = (du, dx, 1):

    Q = L + F'(V F + v e'),    F = (B, A, gap),    L = (luu, lux, lu; ., lxx, lx).

The last element of z makes the gradient a column. The first rows of a Cholesky factorisation of Q, those of controls,
are (U, Y, y) with U'U = Quu + mu. What remains of the other rows is the value of this knot,

    V = Qxx - Y'Y - mu K'K,    v = Qx - Y'y - mu K'k,    (K, k) = -U^-1 (Y, y).

Products with mu appear because gains with mu do not reach the least Q. Where k leaves its bounds, projected Newton
steps find the least Q within them (Tassa, Mansard, Todorov, Control-limited differential dynamic programming, 2014).
Gains of controls at bounds are zero.
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
    Flag,
    LooseScalar,
    Scalar,
    Static,
    Vector,
    Word,
    array,
    chosen,
    clear,
    convert,
    copy,
    lanes_of,
    local,
    routine,
    size_of,
    spread,
)
from robodyn.compile.loops.llvm import printed_module
from robodyn.engines.cpu.loops.runtime import types_of
from robodyn.solve.quadratic.factors import product
from robodyn.solve.trajectories.dense_code import eliminate, mirror, multiply, read, substitute, write

INPUTS = ("A", "B", "gap", "lx", "lu", "lxx", "lux", "luu", "vx", "vxx", "mu", "lower", "upper")
OUTPUTS = ("k", "K", "expected", "ok")
ENTRIES = (*INPUTS, *OUTPUTS, "sizes", "least")
"""Entries of the table."""
_NEWTON, _HALVINGS = 8, 10
"""Most projected Newton steps of a knot, and halvings of one."""
_ENOUGH = 0.1
"""Share of the decrease promised by the gradient that a step within bounds must reach."""
_NAN = math.nan


class Given(ctypes.Structure):
    """An array of the user's: the address of its numbers, 0 if there is none, and the bytes from a problem to the next
    and from a knot to the next."""

    _fields_ = (("data", ctypes.c_void_p), ("stride", ctypes.c_int64), ("knot", ctypes.c_int64))


class Work(ctypes.Structure):
    """Sizes and memory of one problem: numbers of states, controls and knots, and of a row of (du, dx, 1) and of
    (du, 1) in whole vectors; the bytes from `memory` to each of `PLACES`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("n", "nu", "steps", "line", "small")),
        ("memory", ctypes.c_void_p),
        ("offsets", ctypes.POINTER(ctypes.c_int64)),
    )


PLACES = (*"FWQGSHM", "inverse", "x", "slope", "move", "end", "done", "lower", "upper", "marks")
"""Memory of one problem: F; V F; Q, whose last rows become the value; gains; the first rows of Q while controls are
clamped; Quu + mu, and its part of the free controls; 1 / U_kk; and of steps within bounds du, the gradient, the Newton
step, where it ends, what is left of it, the bounds, and whether each control is clamped."""


def layout(n: int, nu: int, line: int, small: int, itemsize: int) -> list[int]:
    """Bytes from the beginning of scratch memory to each of `PLACES`, and to its end."""
    rows = {"F": n, "W": n, "Q": nu + n, "G": nu, "S": nu}
    offsets = [0]
    for name in PLACES:
        # Rows are written in whole vectors from any place, so memory goes on for a row behind the last one.
        size = (rows[name] + 1) * line if name in rows else (nu + 1) * small if name in "HM" else small
        offsets.append(offsets[-1] + (8 * (nu + 8) if name == "marks" else itemsize * size))
    return offsets


def types(dtype: np.dtype[Any], target: Target) -> dict[str, Any]:
    """Types in the module."""
    return types_of(VectorType.of(dtype, target))


def module_text(dtype: np.dtype[Any], target: Target) -> str:
    """The module for arrays of a dtype."""
    facts = "backward", str(dtype), target
    return printed_module(
        facts, types(dtype, target), lambda module: module.export(kernel, "kernel"), attributes(target)
    )


def at(work: Array[Work], name: Static[str]) -> Array[Scalar]:
    """A matrix or vector in memory."""
    return array(Scalar, work.memory + work.offsets[PLACES.index(name)])


def given(table: Array[Given], name: Static[str], row: Word, knot: Word) -> Array[LooseScalar]:
    """The numbers of a problem and knot in an array of the user's."""
    entry = table[ENTRIES.index(name)]
    return array(LooseScalar, entry.data + row * entry.stride + knot * entry.knot)


# A knot.


@routine
def quadratic(work: Array[Work], table: Array[Given], row: Word, knot: Word) -> None:
    """Q of a knot, from the value of the next one in the last rows of Q."""
    n, nu, line, Q, F, W = work.n, work.nu, work.line, at(work, "Q"), at(work, "F"), at(work, "W")
    A, B, gap = given(table, "A", row, knot), given(table, "B", row, knot), given(table, "gap", row, knot)
    for i in range(n):
        to = F + i * line
        read(to, B + i * nu, nu)
        read(to + nu, A + i * n, n)
        to[nu + n] = gap[i] if table[ENTRIES.index("gap")].data != 0 else spread(Scalar, 0.0)
    V, last = Q + (nu * line + nu), nu + n
    multiply(W, V, line, 1, F, n, n, line, 0, upper=False, how="=")
    for i in range(n):
        W[i * line + last] = W[i * line + last] + V[i * line + n]
    luu, lux, lu = given(table, "luu", row, knot), given(table, "lux", row, knot), given(table, "lu", row, knot)
    for i in range(nu):
        to = Q + i * line
        read(to, luu + i * nu, nu)
        read(to + nu, lux + i * n, n)
        to[last] = lu[i]
    lxx, lx = given(table, "lxx", row, knot), given(table, "lx", row, knot)
    for i in range(n):
        to = Q + (nu + i) * line
        read(to + nu, lxx + i * n, n)
        to[last] = lx[i]
    multiply(Q, F, 1, line, W, nu + n, n, line, 0, upper=True, how="+=")


@routine
def solve_knot(work: Array[Work], mu: Scalar, bounded: Flag, expected: Array[Scalar], least: Scalar) -> Flag:
    """Gains, and the value of the knot. Adds the predicted change of the cost to `expected`. Returns whether Quu + mu
    is positive definite."""
    n, nu, line, Q, G, inverse = work.n, work.nu, work.line, at(work, "Q"), at(work, "G"), at(work, "inverse")
    last, begin = nu + n, nu // lanes_of(Vector)
    if bounded:
        copy(at(work, "S"), Q, nu * line * size_of(Scalar))
    for i in range(nu):
        Q[i * line + i] = Q[i * line + i] + mu
    held = eliminate(Q, inverse, nu, line, least)
    if held:
        substitute(G, Q, inverse, nu, line, begin)
        clamped = False
        if bounded:
            for i in range(nu):
                k = G[i * line + last]
                clamped = clamped or k < at(work, "lower")[i] or k > at(work, "upper")[i]
        if clamped:
            held = clamp(work, mu, expected, least)
        else:
            square, moved = spread(Scalar, 0.0), spread(Scalar, 0.0)
            for i in range(nu):
                y, k = Q[i * line + last], G[i * line + last]
                square, moved = square + y * y, moved + k * k
            expected[0] = expected[0] - square
            expected[1] = expected[1] + 0.5 * (square - mu * moved)
        V = Q + nu * line
        multiply(V, Q + nu, 1, line, Q, n, nu, line, nu, upper=True, how="-=")
        if mu != 0.0:
            W = at(work, "S")
            for v in range(nu * line // lanes_of(Vector)):
                array(Vector, W)[v] = array(Vector, G)[v] * spread(Vector, mu)
            multiply(V, W + nu, 1, line, G, n, nu, line, nu, upper=True, how="-=")
        mirror(V + nu, n, line)
        if clamped:
            for i in range(nu):
                G[i * line + last] = at(work, "x")[i]
    return held


# Bounds.


@routine
def clamp(work: Array[Work], mu: Scalar, expected: Array[Scalar], least: Scalar) -> Flag:
    """The controls within their bounds, from the rows S of Q without mu and the Newton step that leaves them.

    Leaves what `solve_knot` needs: rows of Q and gains with zeros for clamped controls and in the last column, whose
    part of the value is added here. Returns whether the matrix of the free controls was positive definite.
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
    held = newton(work, least)
    if held:
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
        held = eliminate(Q, inverse, nu, line, least)
        substitute(G, Q, inverse, nu, line, nu // lanes_of(Vector))
        add_rows(Q, G, slope, nu, last, line)
    return held


def add_rows(Q: Array[Scalar], rows: Array[Scalar], shares: Array[Scalar], nu: Word, last: Word, line: Word) -> None:
    """Add rows of controls, each times a number, to the last column of the other rows of Q."""
    for j in range(nu, last):
        total: Scalar = Q[j * line + last]
        for i in range(nu):
            total = total + rows[i * line + j] * shares[i]
        Q[j * line + last] = total


@routine
def newton(work: Array[Work], least: Scalar) -> Flag:
    """Minimise 1/2 x'H x + g'x within bounds by projected Newton steps; leaves x, H x + g, and which controls are
    clamped. Returns whether the matrices of free controls were positive definite."""
    nu, small, line, end = work.nu, work.small, work.line, work.small // lanes_of(Vector)
    x, slope, move, H, M = (at(work, name) for name in ("x", "slope", "move", "H", "M"))
    lower, upper, inverse = at(work, "lower"), at(work, "upper"), at(work, "inverse")
    g, marks = at(work, "S") + (nu + work.n), array(Word, at(work, "marks"))
    for i in range(nu):
        x[i], marks[i] = within(x[i], lower[i], upper[i]), -1
    held, settled, going, steps = True, False, True, 0
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
            held = eliminate(M, inverse, nu, small, least)
            going = held
            if held:
                for i in reversed(range(nu)):
                    rest: Scalar = M[i * small + nu]
                    for j in range(i + 1, nu):
                        rest = rest + M[i * small + j] * move[j]
                    move[i] = -rest * inverse[i]
                settled = step_within(work)
    return held


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


@routine
def pass_back(work: Array[Work], table: Array[Given], row: Word, least: Scalar) -> Flag:
    """All knots of a problem, the last one first. Returns whether all could be solved."""
    n, nu, line, Q, G = work.n, work.nu, work.line, at(work, "Q"), at(work, "G")
    last, mu, bounded = nu + n, given(table, "mu", row, 0)[0], table[ENTRIES.index("lower")].data != 0
    vxx, vx, expected = given(table, "vxx", row, 0), given(table, "vx", row, 0), local(Scalar, 2)
    for i in range(n):
        to = Q + (nu + i) * line + nu
        read(to, vxx + i * n, n)
        to[n] = vx[i]
    expected[0], expected[1] = spread(Scalar, 0.0), spread(Scalar, 0.0)
    held, knot = True, work.steps - 1
    while held and knot >= 0:
        if bounded:
            low, high = given(table, "lower", row, knot), given(table, "upper", row, knot)
            read(at(work, "lower"), low, nu)
            read(at(work, "upper"), high, nu)
            for i in range(nu):
                held = held and low[i] <= high[i]
        if held:
            quadratic(work, table, row, knot)
            held = solve_knot(work, mu, bounded, expected, least)
        if held:
            k, K = given(table, "k", row, knot), given(table, "K", row, knot)
            for i in range(nu):
                k[i] = G[i * line + last]
                write(K + i * n, G + (i * line + nu), n)
        knot -= 1
    total = given(table, "expected", row, 0)
    total[0], total[1] = expected[0], expected[1]
    return held


@routine
def kernel(table: Array[Given], first: Word, last: Word, workspace: Address) -> None:
    """The backward pass of some problems. Results of those that fail are NaN."""
    sizes, work = array(Word, table[ENTRIES.index("sizes")].data), local(Work, 1)
    work.n, work.nu, work.steps, work.line, work.small = sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]
    work.memory, work.offsets = workspace, sizes + 6
    clear(workspace, sizes[5])
    least = array(Scalar, table[ENTRIES.index("least")].data)[0]
    for row in range(first, last):
        held = pass_back(work, table, row, least)
        array(Byte, table[ENTRIES.index("ok")].data + row)[0] = convert(Byte, 1 if held else 0)
        if not held:
            fill(given(table, "k", row, 0), work.steps * work.nu)
            fill(given(table, "K", row, 0), work.steps * work.nu * work.n)
            fill(given(table, "expected", row, 0), 2)


def fill(to: Array[LooseScalar], count: Word) -> None:
    """Set numbers to NaN."""
    for k in range(count):
        to[k] = spread(Scalar, _NAN)
