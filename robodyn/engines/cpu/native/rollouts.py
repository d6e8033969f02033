"""The steps of a rollout around the kernel of a step: functions with loops.

The first two inputs are the state before the first step, the two results all states (steps + 1, ..., n). Other inputs
may have a value for each step, on an axis in front."""

from __future__ import annotations

from robodyn.compile.loops.language import (
    Address,
    Array,
    Flag,
    Word,
    call,
    chosen,
    copy,
    local,
    place,
    routine,
    size_of,
    store_atomic,
)
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.native.checks import DOUBLES, SINGLES, finite, rows_finite
from robodyn.engines.cpu.native.context import MAX_INPUTS, MAX_OUTPUTS, MAX_RECORDS, Job
from robodyn.engines.cpu.native.joint_forces import row

STATE = 2
"""Number of inputs, and of results, that are a state."""


@routine
def all_steps(job: Array[Job], first: Word, last: Word, workspace: Address) -> None:
    """A kernel that takes all steps, one after the other on arrays that advance."""
    context = job.context
    inputs, count = context.inputs, context.inputs + context.outputs
    table, moves = local(Argument, MAX_RECORDS), local(Word, MAX_INPUTS + MAX_OUTPUTS)
    copy(table + count, job.table + count, job.constants * size_of(Word))
    for i in range(count):
        table[i].data, table[i].stride, moves[i] = job.table[i].data, job.table[i].stride, job.moves[i]
    for k in range(STATE):
        states = job.table + (inputs + k)
        for r in range(first, last):
            copy(row(states, r), row(job.given + k, r), context.columns[k] * context.itemsize)
        table[k].data, table[k].stride, moves[k] = states.data, states.stride, moves[inputs + k]
        table[inputs + k].data = states.data + moves[k]
    for _ in range(context.steps):
        call(None, job.kernel, table, first, last, workspace)
        for i in range(count):
            table[i].data += moves[i]


@routine
def checked_steps(job: Array[Job], first: Word, last: Word, workspace: Address) -> None:
    """`all_steps`, with checks of the inputs and of the last state: a state that is not finite never becomes finite
    again."""
    if inputs_finite(job, first, last):
        all_steps(job, first, last, workspace)
        if last_finite(job, first, last):
            return
    store_atomic(place(job, "bad"), 1, "monotonic")


@routine
def inputs_finite(job: Array[Job], first: Word, last: Word) -> Flag:
    """True if all numbers in some rows of the inputs are finite."""
    context = job.context
    itemsize, record = context.itemsize, local(Argument, 1)
    for i in range(context.inputs):
        columns, move = context.columns[i], job.moves[i]
        record.data, record.stride = job.given[i].data, job.given[i].stride
        times = chosen(move == 0, 1, context.steps)
        if move != 0 and move == columns * itemsize * (last - first):  # these are all rows: one piece of memory
            numbers, times = columns * times * (last - first), 0
            if not (finite(record.data, numbers, DOUBLES) if itemsize == 8 else finite(record.data, numbers, SINGLES)):
                return False
        for _ in range(times):
            if not rows_finite(record, columns, first, last, itemsize):
                return False
            record.data += move
    return True


@routine
def last_finite(job: Array[Job], first: Word, last: Word) -> Flag:
    """True if the state after the last step is finite, in some rows."""
    context, record = job.context, local(Argument, 1)
    for i in range(context.inputs, context.inputs + context.outputs):
        record.data = job.table[i].data + job.moves[i] * context.steps
        record.stride = job.table[i].stride
        if not rows_finite(record, context.columns[i], first, last, context.itemsize):
            return False
    return True
