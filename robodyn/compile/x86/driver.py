"""The driver of our own machine code: what is the same for every program on vectors of a width.

    void drive(ptr table, i64 first, i64 last, ptr workspace, ptr program)

runs rows first .. last - 1, W at a time or one, on a frame on its own stack. Programs step from one W rows to the next
themselves, so the driver looks at arrays twice only: for the first rows, and for the last ones, where fewer than W are
left. Rows past the end are the last row again: what they compute is stored there again.
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
    """An array that a program uses: its number in the table, and bytes from the frame's start to what the program reads
    of it."""

    _fields_ = (("number", ctypes.c_int64), ("offset", ctypes.c_int64))


class Program(ctypes.Structure):
    """What the driver is told of a program."""

    _fields_ = (
        ("frame", ctypes.c_int64),  # bytes
        ("pointed", ctypes.c_int64),  # bytes from the frame's start to where the program points
        ("code", ctypes.c_int64),  # bytes from here to the code for W rows
        ("vectors", ctypes.c_int64),  # arrays of vectors; of each, the program reads its address
        ("rows", ctypes.c_int64),  # arrays of rows; of each, it reads `Rows`
        ("arrays", Used * 0),  # all of these
    )


class Rows(ctypes.Structure):
    """W rows of an array, in the frame; `Used.offset` says where `first` is."""

    _fields_ = (
        ("advance", ctypes.c_int64),  # bytes to the first of the next W rows
        ("first", ctypes.c_void_p),
        ("offsets", ctypes.c_int64 * 0),  # bytes from the first row to each
    )


@cache
def driver_module(width: int, target: Target) -> str:
    """The module for vectors of n states; where these are for one state alone, one row at a time."""
    step, types = 1 if target.narrow else width, {"Words": Number("i64", 2, align=8)}
    attached = attributes(target, '"probe-stack"="inline-asm"')
    return printed_module(("driver", step, target), types, lambda module: module.export(drive, step=step), attached)


@routine
def drive(
    table: Array[Argument], first: Word, last: Word, workspace: Address, program: Array[Program], step: Static[int]
) -> None:
    """Run a program on rows of its arrays, so many at a time."""
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
                # The code leaves the upper halves of vector registers full, which may slow down what runs next.
                processor("x86.avx.vzeroupper")
                return
            if last - row < step:
                break


def point(rows: Array[Rows], data: Address, stride: Word, row: Word, left: Word, step: Static[int]) -> None:
    """Say where rows of an array are, from one on; `left`: how many there are behind it."""
    rows.first = data + row * stride
    rows.advance = step * stride
    if step < PAIRED_ROWS:
        clipped_offsets(rows.offsets, stride, left, step)
    elif left >= step - 1:
        paired_offsets(rows.offsets, stride, step)
    else:
        clipped_offsets(rows.offsets, stride, left, step)


def clipped_offsets(offsets: Array[Word], stride: Word, left: Word, step: Static[int]) -> None:
    """Rows past the end are the last one: sums, one after the other, each stored on its own."""
    offset = 0
    offsets[0] = 0
    for k in range(1, step):
        offset += stride if k <= left else 0
        offsets[k] = offset


def paired_offsets(offsets: Array[Word], stride: Word, step: Static[int]) -> None:
    """Where there are as many rows. The code reads one offset at a time, and has it from two as soon as from one, but
    waits long for one of more. Batches of 16 to 64 states take up to a third less so."""
    strides = spread(Words, stride)
    pair, twice = inserted(strides, 0, 0), strides + strides
    for k in range(0, step, 2):
        array(Words, offsets + k)[0] = pair
        pair = pair + twice
