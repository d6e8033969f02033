"""What rolled code calls besides steps: rows of arrays into vectors and back, couplings, sums.

Of vectors of one state, arrays may be the user's own, which are aligned to nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from robodyn.codegen.llvm.vectors import VectorType, declarations
from robodyn.codegen.loops.blocks import Number
from robodyn.codegen.loops.language import (
    Address,
    Array,
    Routine,
    Scalar,
    Static,
    Vector,
    Word,
    Words,
    address,
    all_of,
    anything,
    array,
    copy,
    external,
    extracted,
    fma,
    inserted,
    local,
    shuffled,
    spread,
)
from robodyn.codegen.loops.llvm import Module

if TYPE_CHECKING:
    Row: TypeAlias = Vector
    Unaligned: TypeAlias = Scalar
else:

    class Row:
        """A vector that is aligned to nothing."""

    class Unaligned:
        """A scalar that is aligned to nothing."""


def types_of(kind: VectorType) -> dict[str, Number]:
    """What names of types stand for."""
    scalar, width = kind.scalar, kind.width
    return {
        "Vector": Number(scalar, width, kind.itemsize),
        "Row": Number(scalar, width, 1),
        "Words": Number("i64", width, 8),
        "Scalar": Number(scalar),
        "Unaligned": Number(scalar, 1, 1),
    }


# Rows into vectors and back. Rows past the end are the last one again.


@external("row_pointers")
def row_pointers(
    data: Address, stride: Word, row: Word, end: Word, rows: Array[Address], kind: Static[VectorType]
) -> None:
    """Where W rows begin."""
    for k in range(kind.width):
        rows[k] = data + min(row + k, end) * stride


@external("stage_in")
def stage_in(
    data: Address, stride: Word, row: Word, end: Word, vectors: Array[Vector], count: Word, kind: Static[VectorType]
) -> None:
    """Columns of W rows into vectors."""
    if kind.width == 1:
        copy(vectors, data + row * stride, count * kind.itemsize)
    else:
        rows = local(Address, kind.width)
        row_pointers(data, stride, row, end, rows, kind)
        stage(rows, vectors, None, count, column_in, block_in, kind)


@external("stage_out")
def stage_out(
    data: Address, stride: Word, row: Word, end: Word, vectors: Array[Vector], count: Word, kind: Static[VectorType]
) -> None:
    """Vectors to columns of W rows."""
    if kind.width == 1:
        copy(data + row * stride, vectors, count * kind.itemsize)
    else:
        rows = local(Address, kind.width)
        row_pointers(data, stride, row, end, rows, kind)
        stage(rows, vectors, None, count, column_out, block_out, kind)


@external("stage_packed")
def stage_packed(
    data: Address,
    stride: Word,
    row: Word,
    end: Word,
    vectors: Array[Vector],
    places: Array[Word],
    count: Word,
    kind: Static[VectorType],
) -> None:
    """The same of vectors that are where the numbers at `places` say."""
    rows = local(Address, kind.width)
    row_pointers(data, stride, row, end, rows, kind)
    stage(rows, vectors, places, count, packed_column_out, packed_block_out, kind)


_Part = Callable[[Array[Address], Array[Vector], Any, Word, VectorType], None]
"""What moves a column or W of them, from one on, between rows and vectors."""


def stage(
    rows: Array[Address],
    vectors: Array[Vector],
    places: Static[Any],
    count: Word,
    column: Static[_Part],
    block: Static[_Part],
    kind: Static[VectorType],
) -> None:
    """W columns at a time, or one by one where there are fewer. What is left over from whole blocks is the end of one
    more block, which goes over some columns again."""
    if count < kind.width:
        for c in range(count):
            column(rows, vectors, places, c, kind)
        return
    c, last = 0, count - kind.width
    while True:
        block(rows, vectors, places, c, kind)
        if c + kind.width >= count:
            break
        c = min(c + kind.width, last)


def row_at(row: Address, c: Word) -> Array[Row]:
    """Scalars of a row from a column on."""
    return array(Row, address(array(Scalar, row) + c))


def column_in(
    rows: Array[Address], vectors: Array[Vector], places: Static[Any], c: Word, kind: Static[VectorType]
) -> None:
    """One column into a vector."""
    value = anything(Vector)
    for k in range(kind.width):
        value = inserted(value, array(Unaligned, rows[k])[c], k)
    vectors[c] = value


def block_in(
    rows: Array[Address], vectors: Array[Vector], places: Static[Any], c: Word, kind: Static[VectorType]
) -> None:
    """W columns into vectors, transposed in registers."""
    to = vectors + c
    for k, value in enumerate(transposed([row_at(rows[k], c)[0] for k in range(kind.width)])):
        to[k] = value


def column_out(
    rows: Array[Address], vectors: Array[Vector], places: Static[Any], c: Word, kind: Static[VectorType]
) -> None:
    """A vector to one column."""
    value = vectors[c]
    for k in range(kind.width):
        array(Unaligned, rows[k])[c] = extracted(value, k)


def block_out(
    rows: Array[Address], vectors: Array[Vector], places: Static[Any], c: Word, kind: Static[VectorType]
) -> None:
    """Vectors to W columns."""
    source = vectors + c
    for k, value in enumerate(transposed([source[k] for k in range(kind.width)])):
        row_at(rows[k], c)[0] = value


def packed_column_out(
    rows: Array[Address], vectors: Array[Vector], places: Static[Any], c: Word, kind: Static[VectorType]
) -> None:
    """`column_out` of a vector that is elsewhere."""
    value = vectors[places[c]]
    for k in range(kind.width):
        array(Unaligned, rows[k])[c] = extracted(value, k)


def packed_block_out(
    rows: Array[Address], vectors: Array[Vector], places: Static[Any], c: Word, kind: Static[VectorType]
) -> None:
    """`block_out` of vectors that are elsewhere. Columns that are all in one place are zeros, and need no shuffles."""
    numbers = places + c
    several = array(Words, numbers)[0]
    if all_of(several == spread(Words, extracted(several, 0))):
        for k in range(kind.width):
            row_at(rows[k], c)[0] = spread(Vector, 0.0)
    else:
        for k, value in enumerate(transposed([vectors[numbers[k]] for k in range(kind.width)])):
            row_at(rows[k], c)[0] = value


def transposed(rows: Static[list[Any]]) -> list[Any]:
    """W vectors of W scalars, the other way round: by log2(W) rounds of shuffles of two."""
    width, distance = len(rows), 1
    while distance < width:
        low = [k if k & distance == 0 else width + k - distance for k in range(width)]
        high = [k + distance if k & distance == 0 else width + k for k in range(width)]
        for i in range(width):
            if i & distance == 0:
                a, b = rows[i], rows[i + distance]
                rows[i], rows[i + distance] = shuffled(a, b, low), shuffled(a, b, high)
        distance *= 2
    return rows


# Sums.


class Pair(ctypes.Structure):
    """Of `gather`: an entry of the one array, and one of the other."""

    _fields_ = (("source", ctypes.c_int64), ("target", ctypes.c_int64))


@external("subtract")
def subtract(a: Array[Vector], b: Array[Vector], to: Array[Vector], count: Word) -> None:
    """to[k] = a[k] - b[k]."""
    for k in range(count):
        to[k] = a[k] - b[k]


@external("couple")
def couple(
    source: Array[Vector],
    to: Array[Vector],
    number: Array[Word],
    multiplier: Array[Scalar],
    offset: Array[Scalar],
    count: Word,
) -> None:
    """to[k] = multiplier[k] source[number[k]] + offset[k]."""
    for k in range(count):
        to[k] = fma(source[number[k]], spread(Vector, multiplier[k]), spread(Vector, offset[k]))


@external("gather")
def gather(source: Array[Vector], to: Array[Vector], pairs: Array[Pair], weight: Array[Scalar], count: Word) -> None:
    """to[pairs[k].target] += weight[k] source[pairs[k].source]."""
    for k in range(count):
        pair = pairs[k]
        at = to + pair.target
        at[0] = fma(source[pair.source], spread(Vector, weight[k]), at[0])


@external("add_diagonal")
def add_diagonal(to: Array[Row], diagonal: Array[Scalar], count: Word) -> None:
    """Add the model's numbers on the diagonal of a matrix."""
    for k in range(count):
        at = to + k * (count + 1)
        at[0] = at[0] + spread(Vector, diagonal[k])


@external("add_given_diagonal")
def add_given_diagonal(to: Array[Row], diagonal: Array[Row], count: Word) -> None:
    """The same with numbers of each state."""
    for k in range(count):
        at = to + k * (count + 1)
        at[0] = at[0] + diagonal[k]


FUNCTIONS = {
    each.name: each
    for each in (
        *(row_pointers, stage_in, stage_out, stage_packed),
        *(subtract, couple, gather, add_diagonal, add_given_diagonal),
    )
}


@cache
def functions(kind: VectorType, names: tuple[str, ...]) -> Module:
    """Some of these, and what they call: LLVM takes its time for others as well."""
    module, done = Module(types_of(kind), "#0"), set[str]()
    while left := [name for name in (*names, *module.outside) if name not in done]:
        for name in left:
            function = FUNCTIONS[name].function
            module.function(Routine(function), {"kind": kind} if "kind" in function.__annotations__ else {})
            done.add(name)
    return module


_MEMORY = (
    "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n",
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n",
)


def runtime_functions(kind: VectorType, callers: str) -> str:
    """The functions that some text calls, and declarations of those that touch memory."""
    module = functions(kind, tuple(name for name in FUNCTIONS if f"@{name}(" in callers))
    declared = {*declarations(kind).splitlines(keepends=True), *_MEMORY}
    return "".join((*_MEMORY, *(line for line in module.text().splitlines(keepends=True) if line not in declared)))
