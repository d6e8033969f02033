"""The wrapper's code around programs that write cache lines of results while they compute
(`robodyn.engines.cpu.chains.row_writer`).

A group has L vectors of W rows, where L is the number of scalars in a cache line. Vector v has the rows v, v + L, v + 2
L ... of the group. While a vector is computed, the lines of the previous one are written. Lines that its rows share
with another group are exceptions: for rows of the first vector the line in which they begin, and for rows of the last
vector the line in which they end. Their scalars are written one by one.

Rows after the last whole group are computed as vectors of W consecutive rows. Their lines begin with the row, not at a
multiple of 64 bytes, and scalars after the last whole line are written one by one. The last W rows may overlap rows
before them, which are computed twice.
"""

from __future__ import annotations

import ctypes

from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.loops.blocks import Number, Type
from robodyn.compile.loops.language import (
    Address,
    Array,
    Flag,
    Scalar,
    Static,
    Word,
    address,
    array,
    call,
    chosen,
    clear,
    copy,
    fetch,
    local,
    processor,
    routine,
)
from robodyn.compile.loops.llvm import Module, printed_module
from robodyn.compile.loops.table import Argument
from robodyn.compile.x86.row_writer import (
    ARRAYS_WORD,
    ENTRY_BYTES,
    ENTRY_WORD,
    LINE,
    NOTHING,
    SAVED_BYTES,
    SOURCE_WORD,
)
from robodyn.compile.x86.row_writer import MAX_ARRAYS as MAX_RESULTS
from robodyn.engines.cpu.wrapper import MAX_ARRAYS, Descriptor, export_kernels
from robodyn.internals.tuning import MAX_FETCHED_ROW


class Line:
    """The bytes of a cache line, aligned to a vector."""


class Result(ctypes.Structure):
    """One result of the program.

    `row_bytes`: bytes of a row; `first`: offset of its first vector in a place for vectors, bytes; `past`, `near`,
    `following`: addresses of the functions that write its lines with streaming stores, with normal stores, and to
    consecutive rows; `tables`: address of its tables of lines; `table_bytes`: bytes of each table.
    """

    _fields_ = (
        ("row_bytes", ctypes.c_int64),
        ("first", ctypes.c_int64),
        ("past", ctypes.c_void_p),
        ("near", ctypes.c_void_p),
        ("following", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
        ("table_bytes", ctypes.c_int64),
    )


class Gap(ctypes.Structure):
    """Vectors of zeros: offset in a place for vectors, and size, in bytes."""

    _fields_ = (("offset", ctypes.c_int64), ("size", ctypes.c_int64))


class LineDescriptor(Descriptor):
    """The descriptor of the wrapper.

    `kernel`: address of the kernel that flushes vectors afterwards; `constant`: the constant of its table; `inputs`:
    number of inputs; `row_bytes`: bytes of a row of all results; `program`, `finish`: addresses of the program, and of
    the function that writes its last lines; `empty`: address of a table without lines, of `empty_bytes` bytes;
    `place_bytes`: bytes of each of two places for vectors in the workspace, which are followed by saved registers, the
    program's state, and a table of lines; `large_bytes`: bytes of a batch's results above which streaming stores are
    used; `leaves`: nonzero if the other kernel is faster for large batches; `small_bytes`: bytes of a batch's results
    up to which the other kernel is faster; `results`: one for each result; `gaps`: vectors of zeros, and `gap_count`
    their number.
    """

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("constant", ctypes.c_void_p),
        ("inputs", ctypes.c_int64),
        ("row_bytes", ctypes.c_int64),
        ("program", ctypes.c_void_p),
        ("finish", ctypes.c_void_p),
        ("empty", ctypes.c_void_p),
        ("empty_bytes", ctypes.c_int64),
        ("place_bytes", ctypes.c_int64),
        ("large_bytes", ctypes.c_int64),
        ("leaves", ctypes.c_int64),
        ("small_bytes", ctypes.c_int64),
        ("results", ctypes.POINTER(Result)),
        ("gaps", ctypes.POINTER(Gap)),
        ("gap_count", ctypes.c_int64),
    )


class LineEntry(ctypes.Structure):
    """A line to write. `source`: offset of its vectors from the first vector; `target`: offset from the line in which
    the row begins; both in bytes."""

    _fields_ = (("source", ctypes.c_int32), ("target", ctypes.c_int32))


class State(ctypes.Structure):
    """The lines that the program writes (`robodyn.compile.x86.row_writer`).

    `entries`: address of the table of lines; `vectors`: address of the place with the vectors; `words`: for each result
    the address of the line in which its first row begins, then for each result the address of the function that writes
    it.
    """

    _fields_ = (
        ("unused", ctypes.c_int64),
        ("entries", ctypes.c_void_p),
        ("vectors", ctypes.c_void_p),
        ("words", ctypes.c_int64 * (2 * MAX_RESULTS)),
    )


assert State.entries.offset == 8 * ENTRY_WORD and State.vectors.offset == 8 * SOURCE_WORD
assert State.words.offset == 8 * ARRAYS_WORD and ctypes.sizeof(LineEntry) == ENTRY_BYTES


class Rows(ctypes.Structure):
    """Vectors of W rows: number of the first row, number of vectors, whether rows of a vector are consecutive, and then
    the first of the last W rows."""

    _fields_ = (
        ("start", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("following", ctypes.c_int64),
        ("top", ctypes.c_int64),
    )


@routine
def run(
    table: Array[Argument], arrays: Word, first: Word, last: Word, workspace: Address, kind: Static[VectorType]
) -> None:
    """Compute some rows of a batch.

    Args:
        table: the arrays, and the entry of the descriptor.
        arrays: number of arrays.
        first: number of the first row.
        last: number of the row after the last one.
        workspace: memory for vectors and for the kernel.
        kind: vectors of states.
    """
    descriptor = array(LineDescriptor, table[arrays].data)
    batch, inputs = table[arrays].stride, descriptor.inputs
    own = local(Argument, MAX_ARRAYS + 1)
    copy(own, table, ctypes.sizeof(Argument) * arrays)
    dense = are_dense(table + inputs, descriptor.results, arrays - inputs, kind)
    size, left = descriptor.row_bytes * batch, last - first
    large = size > descriptor.large_bytes
    if not dense or left < kind.width or size <= descriptor.small_bytes or (large and descriptor.leaves != 0):
        own[arrays].data = descriptor.constant
        own[arrays].stride = batch
        call(None, descriptor.kernel, own, first, last, workspace)
        return
    rows = local(Rows, 1)
    grouped = left & -kind.width * line_of(kind)
    if grouped > 0:
        rows.start, rows.count, rows.following = first, grouped // kind.width, 0
        compute(own, table, arrays, descriptor, rows, large, workspace, kind)
    if grouped < left:
        rows.start, rows.count, rows.following = first + grouped, (left - grouped + kind.width - 1) // kind.width, 1
        rows.top = last - kind.width
        compute(own, table, arrays, descriptor, rows, large, workspace, kind)


def line_of(kind: Static[VectorType]) -> int:
    """Scalars in a cache line."""
    return LINE // kind.itemsize


def are_dense(entries: Array[Argument], results: Array[Result], count: Word, kind: Static[VectorType]) -> Flag:
    """True if all results have no gaps between rows, at addresses aligned to a scalar."""
    dense = True
    for k in range(count):
        dense = dense and entries[k].stride == results[k].row_bytes and entries[k].data & (kind.itemsize - 1) == 0
    return dense


@routine
def compute(
    own: Array[Argument],
    table: Array[Argument],
    arrays: Word,
    descriptor: Array[LineDescriptor],
    rows: Array[Rows],
    large: Flag,
    workspace: Address,
    kind: Static[VectorType],
) -> None:
    """Compute some vectors, and write their results line by line. `own`: the program's table, filled in here."""
    width, line, inputs = kind.width, line_of(kind), descriptor.inputs
    outputs, place_bytes, following = arrays - inputs, descriptor.place_bytes, rows.following != 0
    state = array(State, workspace + (2 * place_bytes + SAVED_BYTES))
    first_entry = array(LineEntry, state.words + 2 * outputs)
    clear_gaps(descriptor, workspace)
    own[arrays].data = address(state)
    own[arrays].stride = 0
    state.entries = address(first_entry)
    copy(first_entry, descriptor.empty, descriptor.empty_bytes)
    for k in range(outputs):
        state.words[outputs + k] = writer_of(descriptor.results + k, following, large)
        own[inputs + k].stride = 0
    apart = chosen(following, 1, line)
    for i in range(rows.count):
        row, turn = first_row(rows, i, kind), (i & 1) * place_bytes
        vectors, others = workspace + turn, workspace + (place_bytes - turn)
        aim(own, table, inputs, row, apart)
        for k in range(outputs):
            own[inputs + k].data = vectors + descriptor.results[k].first
        if i + 1 < rows.count:
            fetch_rows(table, inputs, first_row(rows, i + 1, kind), apart, width)
        call(None, descriptor.program, own, 0, width, workspace)
        state.vectors = vectors
        number = i & (line - 1)
        opens, closes = number == 0, following or number == line - 1
        entry = first_entry
        for k in range(outputs):
            result = descriptor.results[k]
            row_bytes = result.row_bytes
            span, begin, end = row_bytes * apart, vectors + result.first, vectors + result.first + row_bytes * width
            to = int(table[inputs + k].data) + row_bytes * row
            to_line = chosen(following, to, to & -LINE)
            state.words[k] = to_line
            behind = (to - to_line) // kind.itemsize
            copy(entry, result.tables + behind * result.table_bytes, result.table_bytes)
            # The first lines of the next vector's rows begin with the last scalars of these rows.
            copy_lines(others + result.first - line * kind.bytes, end - line * kind.bytes, line * kind.bytes)
            if opens and behind != 0:
                entry.source = NOTHING
                write_numbers(to, span, begin, line - behind, width)
            if closes:
                count = ((to + row_bytes - to_line) & (LINE - 1)) // kind.itemsize
                write_numbers(to + row_bytes - count * kind.itemsize, span, end - count * kind.bytes, count, width)
            entry = array(LineEntry, address(entry) + result.table_bytes)
    call(None, descriptor.finish, state)
    processor("x86.sse.sfence")  # other threads may read the rows after this


def clear_gaps(descriptor: Array[LineDescriptor], workspace: Address) -> None:
    """Set vectors that the program never writes to zero, in both places."""
    for k in range(descriptor.gap_count):
        gap = descriptor.gaps[k]
        clear(workspace + gap.offset, gap.size)
        clear(workspace + gap.offset + descriptor.place_bytes, gap.size)


def writer_of(result: Array[Result], following: Flag, large: Flag) -> Address:
    """Address of the function that writes a result's lines."""
    found: Address = chosen(following, result.following, chosen(large, result.past, result.near))
    return found


def first_row(rows: Array[Rows], i: Word, kind: Static[VectorType]) -> Word:
    """Number of the first row of a vector."""
    found: Word = rows.start + kind.width * (i & -line_of(kind)) + (i & (line_of(kind) - 1))
    if rows.following != 0:
        found = min(rows.start + kind.width * i, rows.top)
    return found


def aim(own: Array[Argument], table: Array[Argument], inputs: Word, row: Word, apart: Word) -> None:
    """Let the program read a vector of rows, which are `apart` rows apart."""
    for k in range(inputs):
        stride = table[k].stride
        own[k].data = table[k].data + stride * row
        own[k].stride = stride * apart


def fetch_rows(table: Array[Argument], inputs: Word, row: Word, apart: Word, width: Word) -> None:
    """Prefetch a vector of rows of the inputs."""
    for k in range(inputs):
        stride = table[k].stride
        if stride > 0 and stride <= MAX_FETCHED_ROW:
            for j in range(width):
                begin = table[k].data + stride * (row + apart * j)
                for at in range(0, stride, LINE):
                    fetch(begin + at)


def copy_lines(to: Address, source: Address, size: Word) -> None:
    """Copy whole lines; `size` is in bytes."""
    for k in range(0, size, LINE):
        array(Line, to + k)[0] = array(Line, source + k)[0]


@routine
def write_numbers(to: Word, apart: Word, source: Address, count: Word, width: Word) -> None:
    """Write `count` scalars of W rows from as many vectors. Rows are `apart` bytes apart."""
    vectors = array(Scalar, source)
    for j in range(width):
        row = array(Scalar, to + apart * j)
        for k in range(count):
            row[k] = vectors[width * k + j]


def types_of(kind: VectorType) -> dict[str, Type]:
    """Types in the module, by name."""
    return {"Line": Number("i64", LINE // 8, align=kind.bytes), "Scalar": Number(kind.scalar)}


def lines_module(kind: VectorType) -> str:
    """The module; the same for every robot."""

    def export(module: Module) -> None:
        module.export(run, kind=kind)
        export_kernels(module)

    return printed_module(("lines", kind), types_of(kind), export)
