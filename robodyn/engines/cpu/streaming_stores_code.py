"""The wrapper around kernels of batches that writes large results with streaming stores
(`robodyn.engines.cpu.streaming_stores`)."""

from __future__ import annotations

import ctypes
from typing import Any, TypeAlias

from robodyn.compile.llvm.streaming import streamed_bytes
from robodyn.compile.llvm.target import Target
from robodyn.compile.loops.blocks import Number
from robodyn.compile.loops.language import (
    NULL,
    Address,
    Array,
    Flag,
    Integer,
    Static,
    Word,
    array,
    call,
    local,
    processor,
    routine,
    stream,
)
from robodyn.compile.loops.llvm import Module, printed_module
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.wrapper import MAX_ARRAYS, Descriptor, export_kernels
from robodyn.internals.tuning import MOVED_BYTES

LINE, PAGE = 64, 4096
"""Bytes of a cache line, and of a page."""
WORDS = LINE // 4
"""Words of four bytes in a cache line. A row of results may begin at any of them."""
MAX_PAIRS = 64
"""Maximal number of pairs of a kernel's constants."""


class Line:
    """The bytes of an aligned cache line."""


Unaligned: TypeAlias = Line
"""The same number of bytes at any address."""
TYPES = {"Line": Number("i64", LINE // 8, align=LINE), "Unaligned": Number("i64", LINE // 8, align=4)}


class Result(ctypes.Structure):
    """One result of the query.

    `row_bytes`: bytes of a row; `offset`: offset in the workspace; the buffer begins on the next page; `shifts`: offset
    of the buffer from the start of its page, in bytes, for each distance of the rows from the start of a cache line, in
    words of four bytes. They minimize stores that cross a page boundary.
    """

    _fields_ = (
        ("row_bytes", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("shifts", ctypes.c_int64 * WORDS),
    )


class BufferDescriptor(Descriptor):
    """The descriptor of the wrapper.

    `kernel`: address of the query's kernel; `large`: address of its version that copies during computation, or 0;
    `inputs`: number of inputs; `row_bytes`: bytes of a row of all results; `moved_bytes`: bytes of a row of all arrays,
    or 0 if inputs do not count; `rows`: rows in the buffer; `width`: rows of a vector; `vector_bytes`: bytes of a
    vector; `results`: one for each result; `constants`: the last entries of the kernel's table, and `constant_count`
    their number.
    """

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("large", ctypes.c_void_p),
        ("inputs", ctypes.c_int64),
        ("row_bytes", ctypes.c_int64),
        ("moved_bytes", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("vector_bytes", ctypes.c_int64),
        ("results", ctypes.POINTER(Result)),
        ("constants", ctypes.POINTER(Argument)),
        ("constant_count", ctypes.c_int64),
    )


class Output(ctypes.Structure):
    """A result of a call. Addresses are integers here, because they are rounded.

    `data`: address of the user's rows; `row_bytes`: bytes of a row; `grain`: alignment of rows relative to the first
    one, bytes; `page`: address of the page where its buffer begins; `apart`: bytes between the two buffers; `shifts`:
    those of `Result`.
    """

    _fields_ = (
        ("data", ctypes.c_int64),
        ("row_bytes", ctypes.c_int64),
        ("grain", ctypes.c_int64),
        ("page", ctypes.c_int64),
        ("apart", ctypes.c_int64),
        ("shifts", ctypes.POINTER(ctypes.c_int64)),
    )


@routine
def run(
    table: Array[Argument],
    arrays: Word,
    first: Word,
    last: Word,
    workspace: Address,
    streamed: Static[int],
    fence: Static[str],
) -> None:
    """Compute some rows of a batch.

    Args:
        table: the arrays, and the entry of the descriptor.
        arrays: number of arrays.
        first: number of the first row.
        last: number of the row after the last one.
        workspace: memory for buffers and for the kernel.
        streamed: bytes of a batch's results above which they are large.
        fence: LLVM's name of the instruction that waits for streaming stores.
    """
    descriptor = array(BufferDescriptor, table[arrays].data)
    batch = table[arrays].stride
    count = arrays - descriptor.inputs
    own = local(Argument, MAX_ARRAYS + MAX_PAIRS)
    copy_entries(own, table, arrays)
    copy_entries(own + arrays, descriptor.constants, descriptor.constant_count)
    moved = descriptor.moved_bytes * batch
    large = descriptor.row_bytes * batch > streamed or moved > MOVED_BYTES
    if not large or not are_dense(table + descriptor.inputs, descriptor.results, count):
        call(None, descriptor.kernel, own, first, last, workspace)
        return
    outputs = local(Output, MAX_ARRAYS)
    find_outputs(outputs, table + descriptor.inputs, descriptor, count, workspace)
    if descriptor.large != NULL and first + 2 * descriptor.width <= last:
        copy_on_the_way(own, arrays, outputs, descriptor, first, last, workspace)
    else:
        copy_in_turns(own, outputs, descriptor, count, first, last, workspace)
    if fence:
        processor(fence)  # other threads may read the rows after this


def copy_entries(to: Array[Argument], source: Array[Argument], count: Word) -> None:
    """Copy entries of a table."""
    for k in range(count):
        to[k].data = source[k].data
        to[k].stride = source[k].stride


def are_dense(entries: Array[Argument], results: Array[Result], count: Word) -> Flag:
    """True if all results have no gaps between rows, at addresses that are multiples of four bytes."""
    dense = True
    for k in range(count):
        dense = dense and entries[k].stride == results[k].row_bytes and entries[k].data & 3 == 0
    return dense


def find_outputs(
    outputs: Array[Output],
    entries: Array[Argument],
    descriptor: Array[BufferDescriptor],
    count: Word,
    workspace: Address,
) -> None:
    """Fill in the results of this call."""
    for k in range(count):
        result, output = descriptor.results[k], outputs[k]
        row_bytes = result.row_bytes
        output.data = entries[k].data
        output.row_bytes = row_bytes
        output.grain = min(row_bytes & -row_bytes, LINE)
        output.page = rounded_up(workspace + result.offset, PAGE)
        output.apart = rounded_up(row_bytes * descriptor.width + 4 * LINE, PAGE)
        output.shifts = result.shifts


def rounded_up(value: Word, step: Static[int]) -> Word:
    """The next multiple of a power of two."""
    return (value + step - 1) & -step


def address_of(output: Array[Output], row: Word) -> Word:
    """Address of a row of the user's array."""
    found: Word = output.data + output.row_bytes * row
    return found


@routine
def buffer_of(output: Array[Output], row: Word, turn: Word) -> Word:
    """Address of the buffer for the rows from `row` on. `turn`: 0 for the first or only buffer, 1 for the second.

    The buffer has the same distance from the start of a cache line as the user's row, except that rows whose bytes are
    a multiple of 16, 32 or 64 begin at such a multiple. `shifts` selects an offset for which few stores cross a page
    boundary: such stores are slow on AMD processors, as are stores that cross a cache line while streaming stores are
    pending.
    """
    behind = address_of(output, row) & (LINE - 1) & -output.grain
    found: Word = output.page + output.shifts[behind >> 2] + turn * output.apart + behind
    return found


@routine
def aim(own: Array[Argument], outputs: Array[Output], count: Word, row: Word, turn: Word) -> None:
    """Let the kernel write results to the buffers for the rows from `row` on. `own`: their entries in its table."""
    for k in range(count):
        own[k].data = buffer_of(outputs + k, row, turn) - outputs[k].row_bytes * row


@routine
def flush(output: Array[Output], row: Word, turn: Word, first: Word, last: Word, vector: Word) -> None:
    """Copy rows first .. last - 1 to memory with streaming stores, from the buffer that begins with `row`.

    The copy begins at the last multiple of `vector` bytes before the first row; the buffer holds these bytes too.
    """
    begin = address_of(output, first) & -vector
    source = buffer_of(output, row, turn) + begin - address_of(output, row)
    size = address_of(output, last) - begin
    before = min(-begin & (LINE - 1), size)
    end = before + ((size - before) & -LINE)
    copy_words(begin, source, 0, before)
    for k in range(before, end, LINE):
        stream(array(Line, begin + k), array(Unaligned, source + k)[0])
    copy_words(begin, source, end, size)


def copy_words(to: Word, source: Word, first: Word, last: Word) -> None:
    """Copy words of four bytes between two offsets."""
    for k in range(first, last, 4):
        array(Integer, to + k)[0] = array(Integer, source + k)[0]


def copy_lines(to: Word, source: Word, size: Word) -> None:
    """Copy whole lines; `size` is in bytes."""
    for k in range(0, size, LINE):
        array(Line, to + k)[0] = array(Line, source + k)[0]


def copy_in_turns(
    own: Array[Argument],
    outputs: Array[Output],
    descriptor: Array[BufferDescriptor],
    count: Word,
    first: Word,
    last: Word,
    workspace: Address,
) -> None:
    """Compute some rows into the buffers, copy them to memory, and continue with the next rows."""
    row = first
    while row < last:
        stop = min(row + descriptor.rows, last)
        aim(own + descriptor.inputs, outputs, count, row, 0)
        call(None, descriptor.kernel, own, row, stop, workspace)
        for k in range(count):
            flush(outputs + k, row, 0, row, stop, 1)
        row = stop


def copy_on_the_way(
    own: Array[Argument],
    arrays: Word,
    outputs: Array[Output],
    descriptor: Array[BufferDescriptor],
    first: Word,
    last: Word,
    workspace: Address,
) -> None:
    """Copy the results of one vector of states while the next one is computed.

    All stores go to aligned vectors of memory, so the part of the first row before the first aligned address is written
    separately. The last store of a vector of states is incomplete. It is repeated for the next states, and then begins
    with up to 63 bytes of the rows before, which may be in two cache lines of the buffer.
    """
    width, count = descriptor.width, arrays - descriptor.inputs
    before, row, turn = first, first + width, 0
    aim(own + descriptor.inputs, outputs, count, first, turn)
    call(None, descriptor.kernel, own, first, row, workspace)
    for k in range(count):
        begin = address_of(outputs + k, first)
        copy_words(begin, buffer_of(outputs + k, first, turn), 0, -begin & (descriptor.vector_bytes - 1))
    bump, step, flip = descriptor.vector_bytes - 1, width, int(descriptor.rows == width)
    while row < last:
        stop = min(row + step, last)
        for k in range(count):
            kept = keep_pending(outputs + k, descriptor, before, row, turn)
            source, target = own[arrays + 2 * k], own[arrays + 2 * k + 1]
            row_bytes = outputs[k].row_bytes
            begin = address_of(outputs + k, row - width)
            aligned = (begin + bump) & -descriptor.vector_bytes
            source.data = kept + (aligned - begin) - row_bytes * row
            source.stride = row_bytes
            target.data = aligned - row_bytes * row
            target.stride = row_bytes
        turn ^= flip
        aim(own + descriptor.inputs, outputs, count, row, turn)
        call(None, descriptor.large, own, row, stop, workspace)
        before, row, bump, step = row, stop, 0, descriptor.rows
    final = before + (last - before - 1) // width * width
    for k in range(count):
        flush(outputs + k, before, turn, final, last, descriptor.vector_bytes)


def keep_pending(
    output: Array[Output], descriptor: Array[BufferDescriptor], before: Word, row: Word, turn: Word
) -> Word:
    """Address of the rows of the vector of states before `row`, which are still to be copied when the buffer is reused.

    They are in the buffer that begins with row `before`. A buffer for several vectors of states moves them to the space
    before its first row. Two buffers for one vector each take turns, so the rows stay where they are. Only the bytes of
    their last line are copied to the other buffer, whose first row begins with them.
    """
    size = output.row_bytes * descriptor.width
    pending: Word = buffer_of(output, before, turn) + output.row_bytes * (row - descriptor.width - before)
    if descriptor.rows == descriptor.width:
        move_line_ends(buffer_of(output, row, turn ^ 1), pending + size, 2 * LINE)
        return pending
    room: Word = buffer_of(output, row, turn) - size
    move_line_ends(room, pending, size + 2 * LINE)
    return room


def move_line_ends(to: Word, source: Word, size: Word) -> None:
    """Copy whole lines, from the line before an address on."""
    copy_lines((to & -LINE) - LINE, (source & -LINE) - LINE, size)


def module_text(target: Target) -> str:
    """The module; the same for every robot."""
    known: dict[str, Any] = {
        "streamed": streamed_bytes(target),
        "fence": "x86.sse.sfence" if target.triple[:6] == "x86_64" else "",
    }

    def export(module: Module) -> None:
        module.export(run, **known)
        export_kernels(module)

    return printed_module(("past caches", known), TYPES, export)
