"""Routines of rolled code besides steps: transposition of rows to vectors and back, mimicking joints, sums.

Arrays of vectors hold W states: scalar k of the states is vector k. Rows are in the user's arrays, at any address,
`stride` bytes apart. Rows past the end repeat the last row.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.loops.blocks import Number
from robodyn.compile.loops.language import (
    Address,
    Array,
    Loose,
    LooseScalar,
    Static,
    Unaligned,
    UnalignedScalar,
    Vector,
    Word,
    Words,
    address,
    all_of,
    anything,
    array,
    copy,
    extracted,
    fma,
    inserted,
    local,
    routine,
    shuffled,
    size_of,
    spread,
)


class Pair(ctypes.Structure):
    """Indices of an entry of a sum and of its target."""

    _fields_ = (("source", ctypes.c_int64), ("target", ctypes.c_int64))


def types_of(kind: VectorType) -> dict[str, Number]:
    """Types in a module with vectors of a kind, by name.

    `Vector` and `Scalar` are aligned to their size, `Loose` and `LooseScalar` to that of a scalar, `Unaligned` and
    `UnalignedScalar` not at all. `Words` are 64-bit integers, one per lane, aligned to a word. `Lanes` are integers of
    a scalar's size.
    """
    lane = f"i{8 * kind.itemsize}"
    vector, scalar = Number(kind.scalar, kind.width), Number(kind.scalar)
    return {
        "Vector": vector,
        "Scalar": scalar,
        "Loose": Number(kind.scalar, kind.width, kind.itemsize),
        "LooseScalar": Number(kind.scalar, 1, kind.itemsize),
        "Unaligned": Number(kind.scalar, kind.width, 1),
        "UnalignedScalar": Number(kind.scalar, 1, 1),
        "Words": Number("i64", kind.width, align=8),
        "Lanes": Number(lane, kind.width),
        "Lane": Number(lane),
    }


# Rows into vectors, and back.


def transposed(given: Static[Sequence[Vector]]) -> list[Vector]:
    """W vectors of W scalars, transposed in registers by log2(W) rounds of two-operand shuffles."""
    rows, width, distance = list(given), len(given), 1
    while distance < width:
        low = [k if not k & distance else width + k - distance for k in range(width)]
        high = [k + distance if not k & distance else width + k for k in range(width)]
        for i in range(width):
            if not i & distance:
                a, b = rows[i], rows[i + distance]
                rows[i] = shuffled(a, b, low)
                rows[i + distance] = shuffled(a, b, high)
        distance *= 2
    return rows


def row_starts(data: Address, stride: Word, row: Word, end: Word, width: Static[int]) -> Array[Address]:
    """Addresses of W rows."""
    starts = local(Address, width)
    for k in range(width):
        starts[k] = data + min(row + k, end) * stride
    return starts


def row_at(starts: Array[Address], k: Static[int], column: Word) -> Array[UnalignedScalar]:
    """Address of a column of the k-th row."""
    return array(UnalignedScalar, starts[k]) + column


@routine
def stage_in(
    data: Address, stride: Word, row: Word, end: Word, vectors: Array[Loose], count: Word, width: Static[int]
) -> None:
    """Load columns of W rows into vectors: blocks of W columns are transposed in registers; fewer columns are loaded
    one by one.

    If columns remain after the whole blocks, the last block overlaps the one before. Vectors of one state are a copy of
    the row.
    """
    if width == 1:
        copy(address(vectors), data + row * stride, count * size_of(Loose))
        return
    starts = row_starts(data, stride, row, end, width)
    if count < width:
        for column in range(count):
            value = anything(Vector)
            for k in range(width):
                value = inserted(value, row_at(starts, k, column)[0], k)
            vectors[column] = value
        return
    begin, behind = 0, 0
    while behind < count:
        block = transposed([array(Unaligned, row_at(starts, k, begin))[0] for k in range(width)])
        for k in range(width):
            vectors[begin + k] = block[k]
        behind = begin + width
        begin = min(behind, count - width)


def vectors_at(
    vectors: Array[Loose], places: Array[Word] | None, column: Word, count: Static[int]
) -> list[Array[Loose]]:
    """Addresses of the vectors of some columns: consecutive, or given by `places`."""
    return [vectors + (column + k if places is None else places[column + k]) for k in range(count)]


def are_zero(places: Array[Word] | None, column: Word) -> bool:
    """True if the next W columns all have the same place: only zeros share a place."""
    return places is not None and all_of(array(Words, places + column)[0] == spread(Words, places[column]))


@routine
def stage_out(
    data: Address,
    stride: Word,
    row: Word,
    end: Word,
    vectors: Array[Loose],
    places: Array[Word] | None,
    count: Word,
    width: Static[int],
) -> None:
    """Store vectors to columns of W rows, the inverse of `stage_in`. `places`: as for `vectors_at`. Zeros are not
    transposed."""
    if width == 1:
        copy(data + row * stride, address(vectors), count * size_of(Loose))
        return
    starts = row_starts(data, stride, row, end, width)
    if count < width:
        for column in range(count):
            (place,) = vectors_at(vectors, places, column, 1)
            value = place[0]
            for k in range(width):
                row_at(starts, k, column)[0] = extracted(value, k)
        return
    begin, behind = 0, 0
    while behind < count:
        if are_zero(places, begin):
            block = [spread(Vector, 0.0)] * width
        else:
            block = transposed([place[0] for place in vectors_at(vectors, places, begin, width)])
        for k in range(width):
            array(Unaligned, row_at(starts, k, begin))[0] = block[k]
        behind = begin + width
        begin = min(behind, count - width)


# Sums and couplings.


@routine
def subtract(a: Array[Loose], b: Array[Loose], to: Array[Loose], count: Word) -> None:
    """to[k] = a[k] - b[k]."""
    for k in range(count):
        to[k] = a[k] - b[k]


@routine
def couple(
    source: Array[Loose],
    to: Array[Loose],
    numbers: Array[Word],
    multiplier: Array[LooseScalar],
    offset: Array[LooseScalar],
    count: Word,
) -> None:
    """to[k] = multiplier[k] source[numbers[k]] + offset[k]."""
    for k in range(count):
        to[k] = fma(source[numbers[k]], spread(Vector, multiplier[k]), spread(Vector, offset[k]))


@routine
def gather(source: Array[Loose], to: Array[Loose], pairs: Array[Pair], weight: Array[LooseScalar], count: Word) -> None:
    """to[pairs[k].target] += weight[k] source[pairs[k].source]."""
    for k in range(count):
        pair = pairs[k]
        at = pair.target
        to[at] = fma(source[pair.source], spread(Vector, weight[k]), to[at])


@routine
def add_diagonal(to: Array[Unaligned], diagonal: Array[LooseScalar], count: Word) -> None:
    """to[k, k] += diagonal[k], with numbers of the model. A matrix of one state may be the user's own array."""
    for k in range(count):
        to[k * (count + 1)] = to[k * (count + 1)] + spread(Vector, diagonal[k])


@routine
def add_given_diagonal(to: Array[Unaligned], diagonal: Array[Unaligned], count: Word) -> None:
    """to[k, k] += diagonal[k], with vectors of an input."""
    for k in range(count):
        to[k * (count + 1)] = to[k * (count + 1)] + diagonal[k]
