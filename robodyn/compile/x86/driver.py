"""The driver of the machine code of programs. It is the same for every program on vectors of one width.

    void drive(ptr table, i64 first, i64 last, ptr workspace, ptr program)

runs rows first to last - 1, W or one at a time, with a frame on its own stack. Programs advance to the next W rows
themselves. The driver therefore sets up the arrays' rows only twice: for the first rows, and for the last ones if fewer
than W are left. Rows past the end repeat the last row, whose results are stored again.
"""

from __future__ import annotations

import ctypes
from functools import cache

from robodyn.compile.llvm.straight_line import attributes
from robodyn.compile.llvm.target import Target
from robodyn.compile.loops.blocks import Number
from robodyn.compile.loops.language import (
    Address,
    Array,
    Byte,
    Static,
    Word,
    Words,
    address,
    array,
    call,
    inserted,
    local,
    processor,
    routine,
    spread,
)
from robodyn.compile.loops.llvm import printed_module
from robodyn.compile.loops.table import Argument
from robodyn.internals.tuning import PAIRED_ROWS


class Used(ctypes.Structure):
    """An array that a program uses: its number in the table, and the offset in the frame from which the program reads
    its address or rows."""

    _fields_ = (("number", ctypes.c_int64), ("offset", ctypes.c_int64))


class Program(ctypes.Structure):
    """The description of a program."""

    _fields_ = (
        ("frame", ctypes.c_int64),  # bytes
        ("pointed", ctypes.c_int64),  # bytes from the frame's start to the program's frame pointer
        ("code", ctypes.c_int64),  # bytes from here to the code for W rows
        ("vectors", ctypes.c_int64),  # number of arrays of vectors; the program reads their addresses
        ("rows", ctypes.c_int64),  # number of arrays of rows; the program reads a `Rows` for each
        ("arrays", Used * 0),  # arrays of vectors, then arrays of rows
    )


class Rows(ctypes.Structure):
    """W rows of an array, in the frame. `Used.offset` is the offset of `first`."""

    _fields_ = (
        ("advance", ctypes.c_int64),  # bytes to the first of the next W rows
        ("first", ctypes.c_void_p),
        ("offsets", ctypes.c_int64 * 0),  # bytes from the first row to each
    )


@cache
def driver_module(width: int, target: Target) -> str:
    """The driver's module for vectors of `width` states. For targets that compute one state at a time, it steps row by
    row."""
    step, types = 1 if target.narrow else width, {"Words": Number("i64", 2, align=8)}
    attached = attributes(target, '"probe-stack"="inline-asm"')
    avx = target.level != "neon"
    return printed_module(
        ("driver", step, target), types, lambda module: module.export(drive, step=step, avx=avx), attached
    )


@routine
def drive(
    table: Array[Argument],
    first: Word,
    last: Word,
    workspace: Address,
    program: Array[Program],
    step: Static[int],
    avx: Static[bool],
) -> None:
    """Run a program on rows of its arrays, `step` rows at a time."""
    frame = address(local(Byte, program.frame))
    pointed, code = frame + program.pointed, address(program) + program.code
    vectors, arrays = program.vectors, program.arrays
    both = vectors + program.rows
    for k in range(vectors):
        array(Address, frame + arrays[k].offset)[0] = table[arrays[k].number].data
    row = first
    while True:
        left = last - 1 - row
        for k in range(vectors, both):
            entry = table[arrays[k].number]
            point(array(Rows, frame + arrays[k].offset - 8), entry.data, entry.stride, row, left, step)
        while True:
            call(None, code, pointed)
            row += step
            if row >= last:
                if avx:
                    # The program leaves the upper halves of vector registers nonzero, which can slow down later SSE
                    # code.
                    processor("x86.avx.vzeroupper")
                return
            if last - row < step:
                break


def point(rows: Array[Rows], data: Address, stride: Word, row: Word, left: Word, step: Static[int]) -> None:
    """Set the addresses of an array's rows from `row` on. `left`: number of rows behind it."""
    rows.first = data + row * stride
    rows.advance = step * stride
    if step < PAIRED_ROWS:
        clipped_offsets(rows.offsets, stride, left, step)
    elif left >= step - 1:
        paired_offsets(rows.offsets, stride, step)
    else:
        clipped_offsets(rows.offsets, stride, left, step)


def clipped_offsets(offsets: Array[Word], stride: Word, left: Word, step: Static[int]) -> None:
    """Offsets of rows; rows past the end repeat the last one. The offsets are running sums, stored one by one."""
    offset = 0
    offsets[0] = 0
    for k in range(1, step):
        offset += stride if k <= left else 0
        offsets[k] = offset


def paired_offsets(offsets: Array[Word], stride: Word, step: Static[int]) -> None:
    """Offsets of rows if none is past the end, stored in pairs. The code reads one offset at a time. A read from a pair
    just stored does not stall, but one from a wider store does. Batches of 16 to 64 states take up to a third less
    time."""
    strides = spread(Words, stride)
    pair, twice = inserted(strides, 0, 0), strides + strides
    for k in range(0, step, 2):
        array(Words, offsets + k)[0] = pair
        pair = pair + twice
