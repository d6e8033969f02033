"""Flushes: vectors of states become rows of the user's arrays.

Results larger than the caches are written with streaming stores. A processor that writes a part of a cache line first
loads the line and later writes it back: twice the memory traffic of the results. Streaming stores of whole, aligned
lines need no load, but rows are seldom aligned. So each line is assembled in registers from two neighbouring blocks of
a row, or from the end of one row and the beginning of the next, by a shuffle that depends on the row's alignment. This
is faster within the caches too, because each line is written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from robodyn.compile.llvm.straight_line import attributes
from robodyn.compile.llvm.streaming import streamed_bytes, streams
from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.loops.language import (
    Address,
    Array,
    Lane,
    Lanes,
    Loose,
    Scalar,
    Static,
    Vector,
    Word,
    address,
    array,
    convert,
    lanes_of,
    permuted,
    places_of,
    routine,
    size_of,
    spread,
    store_some,
    stream,
)
from robodyn.compile.loops.llvm import printed_module
from robodyn.compile.loops.table import Argument, words_of
from robodyn.engines.cpu.loops.runtime import are_zero, stage_out, transposed, types_of, vectors_at

LINE = 64


def large_bytes(kind: VectorType, target: Target, *, dense: bool = True) -> int | None:
    """Bytes of a batch's results from which streaming stores are used. None if lines are not assembled: rows have gaps
    (`dense` is False), or a vector is shorter than a line."""
    return streamed_bytes(target) if dense and streams(kind, target) else None


@routine
def flush(
    data: Address,
    stride: Word,
    row: Word,
    end: Word,
    vectors: Array[Loose],
    places: Array[Word] | None,
    first: Word,
    stop: Word,
    count: Word,
    batch: Word,
    large: Static[int | None],
) -> None:
    """Write columns `first` to `stop - 1` of W rows of `count` columns.

    Whole lines are assembled where that is faster: if rows have no gaps between them, W rows exist, and a row has two
    lines or more. Streaming stores are used if an array of `batch` rows is large. The caller must issue a store fence
    before other threads read the rows. Otherwise as `stage_out`. `first` and `stop` are multiples of W, or the end.
    `places`: as for `vectors_at`; `large`: as for `large_bytes`.
    """
    width, size = lanes_of(Vector), size_of(Scalar)
    if large is not None:
        dense = count * size == stride and (data & (size - 1)) == 0
        if dense and end - row >= width - 1 and count >= 2 * width:
            if stride * batch > large:
                write_lines(data, stride, row, end, vectors, places, first, stop, count, True)
            else:
                write_lines(data, stride, row, end, vectors, places, first, stop, count, False)
            return
    if places is None:
        stage_out(data + first * size, stride, row, end, vectors + first, None, stop - first, width)
    else:
        stage_out(data + first * size, stride, row, end, vectors, places + first, stop - first, width)


def block(vectors: Array[Loose], places: Array[Word] | None, column: Word) -> list[Vector]:
    """W columns of W rows, transposed to parts of these rows."""
    found = vectors_at(vectors, places, column, lanes_of(Vector))
    return transposed([array(Vector, place)[0] for place in found])


def zeros_or_block(vectors: Array[Loose], places: Array[Word] | None, column: Word) -> list[Vector]:
    """`block`, without shuffles if all columns are zero."""
    if are_zero(places, column):
        return [spread(Vector, 0.0)] * lanes_of(Vector)
    return block(vectors, places, column)


def lanes_behind(off: Lane) -> Lanes:
    """Indices of a shuffle: the lanes of two adjacent blocks that make a line, which begins `off` scalars before the
    second block."""
    return places_of(Lanes) + spread(Lanes, lanes_of(Vector) - off)


def put(to: Array[Vector], value: Vector, past: Static[bool]) -> None:
    """Write a line to memory; `past`: with a streaming store."""
    if past:
        stream(to, value)
    else:
        to[0] = value


@routine
def write_lines(
    data: Address,
    stride: Word,
    row: Word,
    end: Word,
    vectors: Array[Loose],
    places: Array[Word] | None,
    first: Word,
    stop: Word,
    count: Word,
    past: Static[bool],
) -> None:
    """Write W rows as whole lines. The part before the first line and the part after the last line are stored
    separately."""
    width, size = lanes_of(Vector), size_of(Scalar)
    rows = [array(Scalar, data + min(row + k, end) * stride) for k in range(width)]
    offs = [(address(each) & (LINE - 1)) // size for each in rows]
    lines = [rows[k] - offs[k] for k in range(width)]
    behind = [convert(Lane, off) for off in offs]
    shuffles = [lanes_behind(off) for off in behind]
    lanes, left = places_of(Lanes), count & (width - 1)
    begin = 0 if first == 0 else first - width
    before = block(vectors, places, begin)
    if first == 0:
        store_some(array(Loose, rows[0]), lanes < spread(Lanes, width - behind[0]), before[0])
    whole = count - left
    for column in range(begin + width, whole if stop == count else stop, width):
        values = zeros_or_block(vectors, places, column)
        for k in range(width):
            put(array(Vector, lines[k] + column), permuted(before[k], shuffles[k], values[k]), past)
        before = values
    if stop == count:
        _write_ends(rows, lines, behind, shuffles, before, vectors, places, count, left, past)


def _write_ends(
    rows: Static[Sequence[Array[Scalar]]],
    lines: Static[Sequence[Array[Scalar]]],
    behind: Static[Sequence[Lane]],
    shuffles: Static[Sequence[Lanes]],
    before: Static[Sequence[Vector]],
    vectors: Array[Loose],
    places: Array[Word] | None,
    count: Word,
    left: Word,
    past: Static[bool],
) -> None:
    """Write the end of each row together with the beginning of the next row; a whole line before that, if there is
    one."""
    width, lanes = lanes_of(Vector), places_of(Lanes)
    ends, starts = block(vectors, places, count - width), block(vectors, places, 0)
    over, whole = convert(Lane, left), count - left
    rest = lanes_behind(over)
    for k in range(width - 1):
        if behind[k] + over >= width:
            line = permuted(before[k], shuffles[k], permuted(ends[k], rest, ends[k]))
            put(array(Vector, lines[k] + whole), line, past)
        put(array(Vector, lines[k + 1]), permuted(ends[k], shuffles[k + 1], starts[k + 1]), past)
    last = rows[width - 1]
    room = lanes >= spread(Lanes, width - behind[width - 1])
    store_some(array(Loose, last + (whole - width)), room, before[width - 1])
    store_some(array(Loose, last + (count - width)), lanes >= spread(Lanes, width - over), ends[width - 1])


@routine
def kernel(
    table: Array[Argument],
    first: Word,
    last: Word,
    workspace: Address,
    arrays: Static[int],
    packed: Static[bool],
    large: Static[int | None],
) -> None:
    """Bring arrays of vectors to rows of the user's arrays. The table has the vectors, the rows, then their sizes,
    whose second word is the number of rows of the whole batch, or 0. `packed`: after the sizes are addresses of arrays
    with the index of each scalar among the vectors."""
    sizes, batch = words_of(table, 2 * arrays), table[2 * arrays].stride
    for k in range(arrays):
        rows, size = table[arrays + k], sizes[k]
        places = array(Word, sizes[arrays + k]) if packed else None
        vectors = array(Loose, table[k].data)
        flush(rows.data, rows.stride, first, last - 1, vectors, places, 0, size, size, batch, large)


def flush_module(arrays: int, kind: VectorType, target: Target, *, packed: bool = False, dense: bool = True) -> str:
    """The module of `kernel` for some arrays; `dense`: as for `large_bytes`."""
    large = large_bytes(kind, target, dense=dense)
    facts = "flush", kind, target, arrays, packed, large
    known: dict[str, Any] = {"arrays": arrays, "packed": packed, "large": large}
    return printed_module(facts, types_of(kind), lambda module: module.export(kernel, **known), attributes(target))
