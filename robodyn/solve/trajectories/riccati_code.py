"""Elements of stretches of knots, and their composition: the backward pass as an associative scan, as loops.

A stretch is an element (A, b, C, J, v) of Särkkä and García-Fernández (Temporal Parallelization of Dynamic Programming
and Linear Quadratic Control, 2023, eq. 40 to 42, with v = -eta). With x the state before the stretch, and costates y of
the state behind it, the state behind is A x + b - C y, and the cost of the stretch in x and y begins with 1/2 x'J x +
v'x. Elements compose; the value behind the last knot is the element (0, 0, 0, V, v).

The element of a stretch is that of its backward pass from the value 0: J and v are the value before it, A is the
product of its closed loops, and each knot adds a Gramian (A B) (Quu)^-1 (A B)' to C.
"""

from __future__ import annotations

import ctypes
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
    copy,
    local,
    routine,
    size_of,
    spread,
)
from robodyn.compile.loops.llvm import printed_module
from robodyn.solve.quadratic.factors import accumulate, root
from robodyn.solve.trajectories.backward_code import (
    ENTRIES,
    Given,
    Work,
    at,
    copy_rows,
    quadratic,
    solve_knot,
    types,
)
from robodyn.solve.trajectories.dense_code import columns_of_vectors, eliminate, multiply, transfer

SCAN_ENTRIES = (*ENTRIES, "element", "first", "second", "scan_sizes")
"""Entries of the table: those of the backward pass, and elements (4 n + 2, n), which are A, A', C, J, b and v."""
MATRICES = ("A1", "C1", "J1", "A2", "C2", "U1", "U2", "L1", "L2", "M", "T", "R")
"""Memory of a composition: matrices of n rows. That of a stretch is A1 (n + 1 rows: A' and b), C1, and `T` for
products with F, of n + nu + 1 rows, which begin at `M`; there are no more controls than states."""
_LINE = 64


class Room(ctypes.Structure):
    """Sizes and memory of an element: n, entries of a row, bytes of a matrix, and where the first one is."""

    _fields_ = (
        ("n", ctypes.c_int64),
        ("line", ctypes.c_int64),
        ("step", ctypes.c_int64),
        ("memory", ctypes.c_void_p),
    )


def room_bytes(n: int, line: int, entry: int) -> tuple[int, int]:
    """Bytes of a matrix of `MATRICES`, and of all of them. `line`: entries of a row of n + 1 in whole vectors."""
    step = -(-(n + 1) * line * entry // _LINE) * _LINE
    return step, len(MATRICES) * step


def matrix(room: Array[Room], name: Static[str]) -> Array[Scalar]:
    """A matrix in memory."""
    return array(Scalar, room.memory + MATRICES.index(name) * room.step)


def element(table: Array[Given], name: Static[str], row: Word) -> Array[LooseScalar]:
    """An element in the table."""
    entry = table[SCAN_ENTRIES.index(name)]
    return array(LooseScalar, entry.data + row * entry.stride)


# The element of a stretch.


@routine
def stretch(
    work: Array[Work], room: Array[Room], table: Array[Given], result: Array[LooseScalar], least: Scalar
) -> None:
    """The element of `work.steps` knots."""
    n, nu, line, Q, ln = work.n, work.nu, work.line, at(work, "Q"), room.line
    A, C, expected = matrix(room, "A1"), matrix(room, "C1"), local(Scalar, 2)
    expected[0], expected[1] = spread(Scalar, 0.0), spread(Scalar, 0.0)
    clear(Q, (nu + n) * line * size_of(Scalar))
    clear(A, (n + 1) * ln * size_of(Scalar))
    clear(C, n * ln * size_of(Scalar))
    for i in range(n):
        A[i * ln + i] = spread(Scalar, 1.0)
    for knot in reversed(range(work.steps)):
        quadratic(work, table, knot, spread(Scalar, 0.0), several=False)
        solve_knot(work, spread(Scalar, 0.0), False, expected, least)
        behind(work, room)
    V = Q + (nu * line + nu)
    for i in range(n):
        for j in range(n):
            result[i * n + j] = A[j * ln + i]
    copy_out(result + n * n, A, n, n, ln)
    copy_out(result + 2 * n * n, C, n, n, ln)
    copy_out(result + 3 * n * n, V, n, n, line)
    copy_out(result + 4 * n * n, A + n * ln, 1, n, ln)
    for i in range(n):
        result[4 * n * n + n + i] = V[i * line + n]


def behind(work: Array[Work], room: Array[Room]) -> None:
    """A', b and C of a stretch with one more knot in front, whose F, U and gains are in memory."""
    n, nu, line, ln = work.n, work.nu, work.line, room.line
    A, C, P = matrix(room, "A1"), matrix(room, "C1"), matrix(room, "M")
    Z, F, Q, G, inverse = matrix(room, "U1"), at(work, "F"), at(work, "Q"), at(work, "G"), at(work, "inverse")
    end = ln // columns_of_vectors()
    multiply(P, F, 1, line, A, nu + n + 1, n, ln, 0, upper=False, how="=")
    forward(Z, Q, inverse, P, nu, line, ln)
    multiply(C, Z, 1, ln, Z, n, nu, ln, 0, upper=False, how="+=")
    copy(A, P + nu * ln, n * ln * size_of(Scalar))
    b, moved = array(Vector, A + n * ln), array(Vector, P + (nu + n) * ln)
    for v in range(end):
        b[v] = b[v] + moved[v]
    multiply(A, G + nu, 1, line, P, n + 1, nu, ln, 0, upper=False, how="+=")


def forward(
    Z: Array[Scalar], U: Array[Scalar], inverse: Array[Scalar], P: Array[Scalar], count: Word, line: Word, ln: Word
) -> None:
    """Z = U'^-1 P of rows of `ln` entries, for the first `count` rows of U."""
    end = ln // columns_of_vectors()
    for i in range(count):
        row, source = array(Vector, Z + i * ln), array(Vector, P + i * ln)
        for v in range(end):
            row[v] = source[v]
        accumulate(Z + i * ln, U + i, line, Z, i, ln, 0, end, minus=True)
        share = spread(Vector, inverse[i])
        for v in range(end):
            row[v] = row[v] * share


def copy_out(to: Array[LooseScalar], source: Array[Scalar], rows: Word, count: Word, line: Word) -> None:
    """Write rows one behind another."""
    for i in range(rows):
        transfer(to + i * count, source + i * line, count)


# The composition of elements.


@routine
def compose(
    room: Array[Room],
    inverse: Array[Scalar],
    one: Array[LooseScalar],
    two: Array[LooseScalar],
    result: Array[LooseScalar],
    least: Scalar,
) -> None:
    """The element of a stretch and the one behind it. The result may be neither.

    With M = (1 + C1 J2)^-1 and y = b1 - C1 v2: A = A2 M A1, b = A2 M y + b2, C = A2 M C1 A2' + C2,
    J = A1' J2 M A1 + J1, v = A1' (v2 + J2 M y) + v1. J2 M and M C1 are X'X and Y'Y, so that they stay symmetric and
    positive semi-definite (see `robodyn.engines.scan.systems.riccati`).
    """
    n, ln = room.n, room.line
    A1, C1, J1, A2, C2 = (matrix(room, name) for name in ("A1", "C1", "J1", "A2", "C2"))
    U1, U2, L1, L2 = (matrix(room, name) for name in ("U1", "U2", "L1", "L2"))
    M, T, R, square = matrix(room, "M"), matrix(room, "T"), matrix(room, "R"), n * n
    copy_rows(A1, ln, one, n, n)
    copy_rows(C1, ln, one + 2 * square, n, n)
    copy_rows(J1, ln, one + 3 * square, n, n)
    copy_rows(A2, ln, two + square, n, n)
    copy_rows(C2, ln, two + 2 * square, n, n)
    b1, v1, b2, v2 = one + 4 * square, one + (4 * square + n), two + 4 * square, two + (4 * square + n)
    for i in range(n):
        y: Scalar = spread(Scalar, b1[i])
        v: Scalar = spread(Scalar, v1[i])
        for j in range(n):
            y = y - C1[i * ln + j] * v2[j]
            v = v + A1[j * ln + i] * v2[j]
        A1[i * ln + n], J1[i * ln + n] = y, v
        A2[i * ln + n], C2[i * ln + n] = spread(Scalar, 0.0), spread(Scalar, 0.0)
    copy_rows(U1, ln, one + 2 * square, n, n)
    copy_rows(U2, ln, two + 3 * square, n, n)
    semidefinite(U1, L1, n, ln, least)
    semidefinite(U2, L2, n, ln, least)
    multiply(M, U2, ln, 1, L1, n, n, ln, 0, upper=False, how="=")
    multiply(T, U1, ln, 1, L2, n, n, ln, 0, upper=False, how="=")
    multiply(L1, M, ln, 1, T, n, n, ln, 0, upper=False, how="=")
    multiply(L2, T, ln, 1, M, n, n, ln, 0, upper=False, how="=")
    for i in range(n):
        L1[i * ln + i] = L1[i * ln + i] + 1.0
        L2[i * ln + i] = L2[i * ln + i] + 1.0
    eliminate(L1, inverse, n, ln, least)
    forward(M, L1, inverse, U2, n, ln, ln)  # X
    eliminate(L2, inverse, n, ln, least)
    forward(U2, L2, inverse, U1, n, ln, ln)  # Y
    multiply(T, M, ln, 1, A1, n, n, ln, 0, upper=False, how="=")
    multiply(R, M, 1, ln, T, n, n, ln, 0, upper=False, how="=")
    multiply(A1, C1, ln, 1, R, n, n, ln, 0, upper=False, how="-=")
    multiply(J1, T, 1, ln, T, n, n, ln, 0, upper=False, how="+=")
    multiply(M, U2, ln, 1, A2, n, n, ln, 0, upper=False, how="=")
    multiply(C2, M, 1, ln, M, n, n, ln, 0, upper=False, how="+=")
    multiply(R, A2, 1, ln, A1, n, n, ln, 0, upper=False, how="=")
    multiply(T, A1, 1, ln, A2, n, n, ln, 0, upper=False, how="=")
    copy_out(result, R, n, n, ln)
    copy_out(result + square, T, n, n, ln)
    copy_out(result + 2 * square, C2, n, n, ln)
    copy_out(result + 3 * square, J1, n, n, ln)
    for i in range(n):
        result[4 * square + i] = R[i * ln + n] + b2[i]
        result[4 * square + n + i] = J1[i * ln + n]


@routine
def semidefinite(U: Array[Scalar], L: Array[Scalar], n: Word, line: Word, least: Scalar) -> None:
    """S = U'U of a positive semi-definite S, in place, and L = U'. Rows of pivots that are rounding errors are zero."""
    width = columns_of_vectors()
    clear(L, n * line * size_of(Scalar))
    for k in range(n):
        row, begin = U + k * line, k // width
        bound = least * row[k]
        accumulate(row, U + k, line, U, k, line, begin, line // width, minus=True)
        pivot = row[k]
        small = pivot <= bound  # not for NaN
        share = chosen(small, spread(Scalar, 0.0), 1.0 / root(chosen(small, spread(Scalar, 1.0), pivot)))
        for j in range(k):
            row[j] = spread(Scalar, 0.0)
        for j in range(k, n):
            row[j] = row[j] * share
            L[j * line + k] = row[j]


# Kernels.


@routine
def scan_kernel(table: Array[Given], first: Word, last: Word, workspace: Address, composing: Static[bool]) -> None:
    """Elements of some stretches, or compositions of some pairs."""
    sizes, room = array(Word, table[SCAN_ENTRIES.index("scan_sizes")].data), local(Room, 1)
    least = spread(Scalar, array(LooseScalar, table[ENTRIES.index("least")].data)[0])
    own, work = array(Word, table[ENTRIES.index("sizes")].data), local(Work, 1)
    clear(workspace, own[5] + sizes[2])
    room.n, room.line, room.step, room.memory = own[0], sizes[0], sizes[1], workspace + own[5]
    work.n, work.nu, work.steps, work.line, work.small, work.wide = own[0], own[1], own[2], own[3], own[4], own[1]
    work.memory, work.offsets, work.end = workspace, own + 6, last - 1
    for row in range(first, last):
        work.row = row
        result = element(table, "element", row)
        if composing:
            compose(room, at(work, "F"), element(table, "first", row), element(table, "second", row), result, least)
        else:
            stretch(work, room, table, result, least)


def scan_module_text(dtype: np.dtype[Any], target: Target) -> str:
    """The module for arrays of a dtype: `stretches` and `pairs`."""

    def export(module: Any) -> None:
        module.export(scan_kernel, "stretches", composing=False)
        module.export(scan_kernel, "pairs", composing=True)

    return printed_module(("riccati scan", str(dtype), target), types(dtype, target, False), export, attributes(target))


def knot_operations(n: int, nu: int) -> float:
    """Multiplications and additions of a knot of the recursion, in pairs."""
    both = n + nu
    return n * n * both + 0.5 * n * both * both + nu * both * (0.5 * nu + n) / 2 + 0.5 * nu * n * n


def stretch_operations(n: int, nu: int) -> float:
    """Of a knot of a stretch's element."""
    return knot_operations(n, nu) + n * n * (nu + n + 1) + nu * n * (0.5 * nu + n) + (n + 1) * nu * n


def composition_operations(n: int) -> float:
    """Of a composition: twelve products, four factorisations and two triangular solves."""
    return (12.0 + 4.0 / 6.0 + 2.0 / 2.0) * n**3
