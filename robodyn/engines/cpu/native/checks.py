"""Checks for NaN and infinity around a kernel: functions with loops."""

from __future__ import annotations

from typing import Any

from robodyn.compile.loops.blocks import Number
from robodyn.compile.loops.language import (
    Address,
    Array,
    Flag,
    Static,
    Word,
    all_of,
    array,
    fma,
    load_some,
    place,
    places_of,
    routine,
    spread,
    store_atomic,
)
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.native.context import Context, Job
from robodyn.engines.cpu.native.joint_forces import row, worked

DOUBLES, SINGLES = Number("double", 8, align=1), Number("float", 16, align=1)
"""Blocks of numbers that are checked together, without alignment."""
_SIDE_BY_SIDE = 4


@routine
def finite(data: Address, count: Word, vector: Static[Any]) -> Flag:
    """True if all numbers are finite.

    NaN and infinity times zero are NaN, other numbers times zero are zero. So a sum of these products needs no
    branches. Four sums are computed side by side, because each addition depends on the one before. No memory after the
    last number is read.
    """
    lanes: Any = Number("i64", vector.width)
    size, width = vector.size // vector.width, vector.width
    zero = spread(vector, 0.0)
    total, sums, done = zero, [zero] * _SIDE_BY_SIDE, 0
    while done + _SIDE_BY_SIDE * width <= count:
        numbers = array(vector, data + done * size)
        for n in range(_SIDE_BY_SIDE):
            sums[n] = fma(numbers[n], 0.0, sums[n])
        done += _SIDE_BY_SIDE * width
    if done > 0:
        total = (sums[0] + sums[1]) + (sums[2] + sums[3])
    while done < count:
        mask = places_of(lanes) < spread(lanes, count - done)
        total = fma(load_some(array(vector, data + done * size), mask), 0.0, total)
        done += width
    return all_of(total == 0.0)


@routine
def rows_finite(record: Array[Argument], columns: Word, first: Word, last: Word, itemsize: Word) -> Flag:
    """True if all numbers in some rows of an array are finite."""
    start = row(record, first)
    count = (1 if record.stride == 0 else last - first) * columns
    if itemsize == 8:
        return finite(start, count, DOUBLES)
    return finite(start, count, SINGLES)


@routine
def all_finite(
    context: Array[Context], table: Array[Argument], begin: Word, end: Word, first: Word, last: Word
) -> Flag:
    """True if all numbers in some rows are finite, in arrays `begin` to `end - 1` of a table."""
    itemsize = context.itemsize
    return all(rows_finite(table + i, context.columns[i], first, last, itemsize) for i in range(begin, end))


@routine
def checked(job: Array[Job], first: Word, last: Word, workspace: Address) -> None:
    """A kernel that checks inputs, does a query's work, and checks results."""
    context = job.context
    inputs = context.inputs
    if all_finite(context, job.given, 0, inputs, first, last):
        worked(job, first, last, workspace)
        if all_finite(context, job.table, inputs, inputs + context.outputs, first, last):
            return
    store_atomic(place(job, "bad"), 1, "monotonic")
