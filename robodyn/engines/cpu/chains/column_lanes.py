"""Columns of one state's matrix as lanes of SIMD vectors, for solves and products of a single state.

In batches, the lanes of a vector are states. For a single state they are columns of a matrix, so that its arithmetic
uses vectors too. A matrix of one state is stored as rows of scalars. A tile of columns is copied to whole vectors in
the workspace, and back; so sweeps need not handle the ends of rows.
"""

from __future__ import annotations

from dataclasses import replace

from robodyn.compile.llvm.target import LEVELS, Target
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.loops.language import (
    Array,
    Scalar,
    Static,
    Unaligned,
    UnalignedScalar,
    Vector,
    Word,
    Words,
    anything,
    array,
    clear,
    lanes_of,
    load_some,
    places_of,
    routine,
    size_of,
    spread,
    store_some,
)
from robodyn.engines.cpu.loops.runtime import transposed


def vectors_of_columns(kind: VectorType, target: Target) -> VectorType | None:
    """The vectors for columns of one state, if `kind` are vectors of one state; None if they are vectors of several
    states."""
    return replace(kind, width=LEVELS[target.level] // kind.itemsize, masked=True) if kind.width == 1 else None


def first_columns(count: Word) -> Words:
    """The mask of a vector's first `count` lanes."""
    return places_of(Words) < spread(Words, count)


@routine
def load_tile(X: Array[UnalignedScalar], Y: Array[Vector], line: Word, last: Word, n: Word, width: Static[int]) -> None:
    """Copy columns of n rows to `width` vectors per row. Rows of the matrix are `line` scalars apart. The last vector
    of a row has `last` columns, then zeros."""
    mask = first_columns(last)
    for k in range(n):
        row, tile = X + k * line, Y + k * width
        for j in range(width - 1):
            tile[j] = array(Unaligned, row + j * lanes_of(Vector))[0]
        tile[width - 1] = load_some(array(Unaligned, row + (width - 1) * lanes_of(Vector)), mask)


@routine
def store_tile(
    X: Array[UnalignedScalar], Y: Array[Vector], line: Word, last: Word, n: Word, width: Static[int]
) -> None:
    """The inverse of `load_tile`."""
    mask = first_columns(last)
    for k in range(n):
        row, tile = X + k * line, Y + k * width
        for j in range(width - 1):
            array(Unaligned, row + j * lanes_of(Vector))[0] = tile[j]
        store_some(array(Unaligned, row + (width - 1) * lanes_of(Vector)), mask, tile[width - 1])


@routine
def unit_tile(Y: Array[Vector], width: Word, column: Word, n: Word, count: Word) -> None:
    """Columns of the n x n identity matrix from `column` on, in `width` vectors per row."""
    clear(Y, n * width * size_of(Vector))
    first = array(Scalar, Y + column * width)
    for j in range(count):
        (first + j * (width * lanes_of(Vector) + 1))[0] = 1.0


@routine
def mirror_tile(
    X: Array[UnalignedScalar],
    Y: Array[Vector],
    column: Word,
    n: Word,
    count: Word,
    width: Static[int],
    most: Static[int],
) -> None:
    """For `count` columns of a symmetric inverse from `column` on: the rows before `column`, copied from below the
    diagonal of X. `most`: maximal number of columns. As many rows at a time as a vector has lanes, then one by one."""
    W, first = lanes_of(Vector), X + column * n
    whole = column & -lanes_of(Vector)
    for p in range(0, whole, W):
        for g in range(width):
            rows = [anything(Vector) for _ in range(W)]
            for j in range(g * W, min(g * W + W, most)):
                # After the last column, repeat it.
                rows[j - g * W] = array(Unaligned, first + (min(j, count - 1) * n + p))[0]
            turned = transposed(rows)
            for k in range(W):
                Y[(p + k) * width + g] = turned[k]
    for p in range(whole, column):
        row, to = first + p, array(Scalar, Y + p * width)
        for j in range(count):
            to[j] = row[j * n]
