"""Answers a call whose arguments were identified: functions with loops that read a `Context`."""

from __future__ import annotations

from typing import Any

from robodyn.compile.loops.language import (
    NULL,
    Address,
    Array,
    Flag,
    Integer,
    Static,
    Word,
    address,
    array,
    call,
    code_of,
    convert,
    exchange_if,
    load_atomic,
    local,
    place,
    routine,
    store_atomic,
)
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.native.checks import checked
from robodyn.engines.cpu.native.context import (
    FIXED,
    MAX_INPUTS,
    MAX_OUTPUTS,
    MAX_RECORDS,
    Context,
    Job,
    Known,
    Version,
)
from robodyn.engines.cpu.native.joint_forces import DOUBLE, SINGLE, worked
from robodyn.engines.cpu.native.objects import PyArray, PyFloat, PyTuple
from robodyn.engines.cpu.native.results import ONE_STATE, adoptable, create, handed
from robodyn.engines.cpu.native.rollouts import STATE, checked_steps
from robodyn.engines.cpu.threads.code import State as Pool
from robodyn.internals.tuning import CROWD, STREAMED_BYTES

LEFT: Address = -1
"""Returned instead of an answer: the checked function must answer the call."""
_UNREADABLE = -2
"""Returned instead of a number of rows: kernels cannot read an input."""
_MAX_ARRAYS = MAX_INPUTS + MAX_OUTPUTS
_NEW_BYTES = STREAMED_BYTES // CROWD
_LINE = 64
_CONTIGUOUS = 1  # NPY_ARRAY_C_CONTIGUOUS
_NATIVE = ord("=")


@routine
def answer(context: Array[Context], arrays: Array[Address], targets: Array[Address]) -> Address:
    """The answer to a call. Null with an exception, or `LEFT`.

    Args:
        context: the context of such calls.
        arrays: arrays of the query, by their index.
        targets: address of the user's array for the result, or of their tuple; null without `out=`.
    """
    table, given, moves = local(Argument, MAX_RECORDS), local(Argument, MAX_INPUTS), local(Word, _MAX_ARRAYS)
    rows = read_inputs(context, arrays, table, given, moves, address(local(SINGLE, MAX_INPUTS)))
    if rows == _UNREADABLE or not is_known(context, given, rows):
        return LEFT
    count = 1 if rows == ONE_STATE else rows
    version = context.versions + int(count == 1)
    if version.kernel == NULL:
        return LEFT
    parallel: Address = NULL
    if count >= version.share_rows:
        parallel = team(context)
        if parallel in (NULL, LEFT):
            return parallel
    outputs = context.outputs
    adopts = targets != NULL
    if adopts and outputs > 1:
        bundle = array(PyTuple, targets[0])
        if bundle.type != context.tuple_type or bundle.size != outputs:
            return LEFT
        targets = bundle.items
    results, numbers = local(Address, MAX_OUTPUTS), local(Word, MAX_OUTPUTS)
    row_bytes = enter_results(context, table, moves, results, numbers, rows, targets)
    if row_bytes < 0:
        return LEFT
    large = not adopts and row_bytes * count > _NEW_BYTES
    enter_constants(version, array(Word, table + (context.inputs + outputs)), count, large)
    if not computed(context, version, table, given, moves, rows, count, parallel):
        drop(context, results, outputs)
        return LEFT
    if outputs == 1:
        return handed(context, results[0], numbers)
    return bundled(context, results, numbers)


def read_inputs(
    context: Array[Context],
    arrays: Array[Address],
    table: Array[Argument],
    given: Array[Argument],
    moves: Array[Word],
    singles: Address,
) -> Word:
    """Enter the inputs in two tables. Returns their number of rows, `ONE_STATE`, or `_UNREADABLE`.

    Args:
        context, arrays: as of `answer`.
        table, given: tables to fill.
        moves: filled with the bytes by which each input advances with the steps of a rollout.
        singles: memory for floats in single precision.
    """
    rows, itemsize = ONE_STATE, context.itemsize
    for i in range(context.inputs):
        argument = arrays[context.places[i]]
        columns, width = context.columns[i], context.widths[i]
        data, stride, move = NULL, 0, 0
        if width == FIXED:
            data = context.defaults[i]
        elif width < 0:
            data = context.defaults[i]
            if data == NULL:
                number = array(PyFloat, argument)
                if number.type != context.float_type:
                    return _UNREADABLE
                data = address(place(number, "value"))
            value = array(DOUBLE, data)[0]
            if context.positive >> i & 1 == 1 and not (value > 0.0 and value * 0.0 == 0.0):
                return _UNREADABLE
            if itemsize == 4:
                single = array(SINGLE, singles) + i
                single[0] = convert(SINGLE, value)
                data = address(single)
        else:
            each = array(PyArray, argument)
            if each.type != context.array_type or not has_dtype(context, each) or each.flags & _CONTIGUOUS == 0:
                return _UNREADABLE
            data, shape = each.data, each.shape
            axes = int(each.ndim) - (1 if width == 0 else 2)
            if has_times(context, i, axes, rows):
                if shape[0] != context.steps or context.steady >> i & 1 == 1:
                    return _UNREADABLE
                move = columns * itemsize * (1 if rows == ONE_STATE else rows)
                axes, shape = axes - 1, shape + 1
            if axes == 1:
                own = shape[0]
                if own < 1 or (rows != own and rows != ONE_STATE):
                    return _UNREADABLE
                rows, stride, shape = own, columns * itemsize, shape + 1
            elif axes != 0:
                return _UNREADABLE
            size = shape[0]
            if width != 0:
                if shape[1] != width:
                    return _UNREADABLE
                size *= width
            if size != columns:
                return _UNREADABLE
            if context.nonnegative >> i & 1 == 1:
                count = columns * (1 if stride == 0 else rows)
                if not (
                    are_nonnegative(data, count, DOUBLE) if itemsize == 8 else are_nonnegative(data, count, SINGLE)
                ):
                    return _UNREADABLE
        for record in (table + i, given + i):
            record.data, record.stride = data, stride
        moves[i] = move
    return rows


def has_times(context: Array[Context], i: Word, axes: Word, rows: Word) -> Flag:
    """True if an input has a value for each step of a rollout: its axes before those of one state are one more than
    those of the first state."""
    return bool(context.steps != 0 and i >= STATE and axes == (1 if rows == ONE_STATE else 2))


@routine
def are_nonnegative(data: Address, count: Word, kind: Static[Any]) -> Flag:
    """True if numbers are finite and at least 0. Infinity times zero is NaN."""
    numbers = array(kind, data)
    return all(numbers[k] >= 0.0 and numbers[k] * 0.0 == 0.0 for k in range(count))


def has_dtype(context: Array[Context], given: Array[PyArray]) -> Flag:
    """True if an array has the right dtype. A copy of the dtype object is recognized by its type and byte order."""
    descr = given.descr
    if descr == context.descr:
        return True
    return bool(descr.type == context.descr_type and descr.byteorder == _NATIVE)


def is_known(context: Array[Context], given: Array[Argument], rows: Word) -> Flag:
    """True if an input has the values for which answers are valid, or if answers are valid for all values."""
    known, i = array(Known, context.known), context.known_input
    if known == NULL:
        return True
    record = given + i
    size = context.columns[i] * context.itemsize * (1 if record.stride == 0 else rows)
    if size != known.bytes:
        return False
    return call(Integer, context.memcmp, known.data, record.data, size) == 0


def team(context: Array[Context]) -> Address:
    """The function that shares rows between threads; starts the threads. Null with an exception, or `LEFT`."""
    pool = array(Pool, context.pool)
    if pool == NULL:
        return LEFT
    if load_atomic(place(pool, "started"), "acquire") == 0:
        started = call(Address, context.PyObject_CallNoArgs, context.start)
        if started == NULL:
            return NULL
        call(None, context.Py_DecRef, started)
    parallel: Address = load_atomic(place(pool, "parallel"), "monotonic")
    return LEFT if parallel == NULL else parallel


def enter(context: Array[Context], table: Array[Argument], i: Word, data: Address) -> Word:
    """Enter an array with contiguous rows. Returns the bytes of a row."""
    record = table + i
    stride: Word = context.columns[i] * context.itemsize
    record.data, record.stride = data, stride
    return stride


def enter_results(
    context: Array[Context],
    table: Array[Argument],
    moves: Array[Word],
    results: Array[Address],
    numbers: Array[Word],
    rows: Word,
    targets: Array[Address],
) -> Word:
    """Enter results: the user's arrays, new arrays, or numbers for scalar results. Returns the bytes of a row of all
    results. -1 if an array is missing or unsuitable; no references are kept then."""
    row_bytes = 0
    for k in range(context.outputs):
        result, data = NULL, address(numbers + k)
        if targets != NULL:
            result = targets[k]
            if not adoptable(context, table, moves, rows, k, array(PyArray, result)):
                drop(context, results, k)
                return -1
            call(None, context.Py_IncRef, result)
        elif rows != ONE_STATE or context.trailing[k] != 0:
            result = create(context, rows, k)
            if result == NULL:
                call(None, context.PyErr_Clear)
                drop(context, results, k)
                return -1
        if result != NULL:
            data = array(PyArray, result).data
        results[k] = result
        stride = enter(context, table, context.inputs + k, data)
        moves[context.inputs + k] = stride * (1 if rows == ONE_STATE else rows)
        row_bytes += stride
    return row_bytes


@routine
def drop(context: Array[Context], results: Array[Address], count: Word) -> None:
    """Release the first results. Scalar results are null here, which Py_DecRef allows."""
    for k in range(count):
        call(None, context.Py_DecRef, results[k])


def enter_constants(version: Array[Version], words: Array[Word], count: Word, large: Flag) -> None:
    """Enter the constants of the kernel's table. Large results in new arrays count as several times as many rows:
    results of earlier calls fill the caches, so streaming stores pay off earlier."""
    constants, n, batch = array(Word, version.constants), version.constant_words, version.batch
    for w in range(n):
        words[w] = constants[w]
    if batch != 0:
        words[n - 1] = count * batch if large else count


def computed(
    context: Array[Context],
    version: Array[Version],
    table: Array[Argument],
    given: Array[Argument],
    moves: Array[Word],
    rows: Word,
    count: Word,
    parallel: Address,
) -> Flag:
    """Run the kernel, with checks and joint forces. False if memory was short, or if a number is not finite."""
    drive, loan = context.drive, NULL
    if drive >= 0:  # forces are subtracted from a copy of the input
        loan = call(Address, context.PyMem_RawMalloc, context.columns[drive] * context.itemsize * count)
        if loan == NULL:
            return False
        enter(context, table, drive, loan)
    workspace, claimed, reserved = NULL, NULL, NULL
    if version.workspace != 0:
        threads = 1 if parallel == NULL else context.threads
        workspace, claimed, reserved = scratch(context, version.workspace * threads)
        if workspace == NULL:
            free(context, loan)
            return False
    job = local(Job, 1)
    job.context, job.kernel, job.table, job.given, job.moves = context, version.kernel, table, given, moves
    job.constants = version.constant_words
    store_atomic(place(job, "bad"), 0, "monotonic")
    kernel, argument = version.kernel, address(table)
    if context.forces != 0:
        kernel, argument = code_of(worked), address(job)
    if context.check >> int(rows != ONE_STATE) & 1 == 1:
        kernel, argument = code_of(checked), address(job)
    if context.steps != 0:
        kernel, argument = code_of(checked_steps), address(job)
    run(context, version, kernel, argument, count, workspace, parallel)
    if claimed != NULL:
        store_atomic(array(Integer, claimed), 0, "release")
    free(context, reserved)
    free(context, loan)
    return bool(load_atomic(place(job, "bad"), "monotonic") == 0)


def scratch(context: Array[Context], size: Word) -> tuple[Address, Address, Address]:
    """Scratch memory aligned to a cache line, or null; the claimed shared memory, or null; the allocated block, or
    null."""
    own = context.scratch
    if own != NULL and exchange_if(array(Integer, own), 0, 1, "acquire"):
        return own + _LINE, own, NULL
    block = call(Address, context.PyMem_RawMalloc, size + _LINE)
    return address((block + (_LINE - 1)) & -_LINE), NULL, block


def free(context: Array[Context], block: Address) -> None:
    """Free a block, unless it is null."""
    if block != NULL:
        call(None, context.PyMem_RawFree, block)


def run(
    context: Array[Context],
    version: Array[Version],
    kernel: Address,
    argument: Address,
    count: Word,
    workspace: Address,
    parallel: Address,
) -> None:
    """Run a kernel for all rows; long runs release the GIL."""
    long, thread = count >= version.release_rows, NULL
    if long:
        thread = call(Address, context.PyEval_SaveThread)
    if parallel == NULL:
        call(None, kernel, argument, 0, count, workspace)
    else:
        call(None, parallel, context.pool, kernel, argument, count, version.grain, workspace, version.workspace)
    if long:
        call(None, context.PyEval_RestoreThread, thread)


def bundled(context: Array[Context], results: Array[Address], numbers: Array[Word]) -> Address:
    """The tuple of several results. Null with an exception, or `LEFT`."""
    outputs = context.outputs
    bundle = call(Address, context.PyTuple_New, outputs)
    if bundle == NULL:
        call(None, context.PyErr_Clear)
        drop(context, results, outputs)
        return LEFT
    whole = True
    for k in range(outputs):
        part = handed(context, results[k], numbers + k)
        whole = whole and part != NULL
        call(Integer, context.PyTuple_SetItem, bundle, k, part)
    if whole:
        return bundle
    call(None, context.Py_DecRef, bundle)
    return NULL
