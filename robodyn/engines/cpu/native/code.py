"""What answers a call whose arrays were found: functions with loops that read a `Context`."""

from __future__ import annotations

from robodyn.compile.loops.language import (
    NULL,
    Address,
    Array,
    Flag,
    Integer,
    Word,
    address,
    array,
    call,
    code_of,
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
    MAX_CONSTANTS,
    MAX_INPUTS,
    MAX_OUTPUTS,
    Context,
    Job,
    Known,
    Version,
)
from robodyn.engines.cpu.native.joint_forces import worked
from robodyn.engines.cpu.native.objects import PyArray, PyFloat, PyTuple
from robodyn.engines.cpu.native.results import ONE_STATE, adoptable, create, handed
from robodyn.engines.cpu.threads.code import State as Pool
from robodyn.internals.tuning import CROWD, STREAMED_BYTES

LEFT: Address = -1
"""Instead of an answer: the call is left to the checked function."""
_UNREADABLE = -2
"""Instead of rows: an input is not what kernels read."""
_MAX_RECORDS = MAX_INPUTS + MAX_OUTPUTS + MAX_CONSTANTS // 2
_NEW_BYTES = STREAMED_BYTES // CROWD
_LINE = 64
_CONTIGUOUS = 1  # NPY_ARRAY_C_CONTIGUOUS
_NATIVE = ord("=")


@routine
def answer(context: Array[Context], arrays: Array[Address], targets: Array[Address]) -> Address:
    """The answer to a call, null with an exception, or `LEFT`.

    Args:
        context: answers such calls.
        arrays: those of the question, by their places.
        targets: where the user's array for the result stands, or their tuple; null without `out=`.
    """
    table, given = local(Argument, _MAX_RECORDS), local(Argument, MAX_INPUTS)
    rows = read_inputs(context, arrays, table, given)
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
    row_bytes = enter_results(context, table, results, numbers, rows, targets)
    if row_bytes < 0:
        return LEFT
    large = not adopts and row_bytes * count > _NEW_BYTES
    enter_constants(version, array(Word, table + (context.inputs + outputs)), count, large)
    if not computed(context, version, table, given, rows, count, parallel):
        drop(context, results, outputs)
        return LEFT
    if outputs == 1:
        return handed(context, results[0], numbers)
    return bundled(context, results, numbers)


def read_inputs(
    context: Array[Context], arrays: Array[Address], table: Array[Argument], given: Array[Argument]
) -> Word:
    """Enter the inputs in two tables; the rows that they have, or `ONE_STATE`, or `_UNREADABLE`."""
    rows, itemsize = ONE_STATE, context.itemsize
    for i in range(context.inputs):
        argument = arrays[context.places[i]]
        columns, width = context.columns[i], context.widths[i]
        data, stride = NULL, 0
        if width < 0:
            number = array(PyFloat, argument)
            if number.type != context.float_type:
                return _UNREADABLE
            data = address(place(number, "value"))
        else:
            each = array(PyArray, argument)
            if each.type != context.array_type or not has_dtype(context, each) or each.flags & _CONTIGUOUS == 0:
                return _UNREADABLE
            data, shape = each.data, each.shape
            axes = int(each.ndim) - (1 if width == 0 else 2)
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
        for record in (table + i, given + i):
            record.data, record.stride = data, stride
    return rows


def has_dtype(context: Array[Context], given: Array[PyArray]) -> Flag:
    """Whether numbers of an array are of the right type, which a copy of the description tells as well."""
    descr = given.descr
    if descr == context.descr:
        return True
    return bool(descr.type == context.descr_type and descr.byteorder == _NATIVE)


def is_known(context: Array[Context], given: Array[Argument], rows: Word) -> Flag:
    """Whether one of the inputs is what answers are known for, if they are not for everything."""
    known, i = array(Known, context.known), context.known_input
    if known == NULL:
        return True
    record = given + i
    size = context.columns[i] * context.itemsize * (1 if record.stride == 0 else rows)
    if size != known.bytes:
        return False
    return call(Integer, context.memcmp, known.data, record.data, size) == 0


def team(context: Array[Context]) -> Address:
    """The function that shares rows between threads, which it starts; null with an exception, or `LEFT`."""
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
    """Enter an array that has all rows, one behind the other; bytes of a row."""
    record = table + i
    stride: Word = context.columns[i] * context.itemsize
    record.data, record.stride = data, stride
    return stride


def enter_results(
    context: Array[Context],
    table: Array[Argument],
    results: Array[Address],
    numbers: Array[Word],
    rows: Word,
    targets: Array[Address],
) -> Word:
    """Enter results: the user's arrays, new ones, or a number where a result is a scalar. Bytes of a row of all; -1
    where there is no such array, and nothing is left of the others."""
    row_bytes = 0
    for k in range(context.outputs):
        result, data = NULL, address(numbers + k)
        if targets != NULL:
            result = targets[k]
            if not adoptable(context, table, rows, k, array(PyArray, result)):
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
        row_bytes += enter(context, table, context.inputs + k, data)
    return row_bytes


@routine
def drop(context: Array[Context], results: Array[Address], count: Word) -> None:
    """Nobody gets the first results. Numbers are null here, as Py_DecRef may have it."""
    for k in range(count):
        call(None, context.Py_DecRef, results[k])


def enter_constants(version: Array[Version], words: Array[Word], count: Word, large: Flag) -> None:
    """Enter what the kernel's table has behind the arrays. Rows of large results in new arrays count several times:
    the caches are full of the results of calls before."""
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
    rows: Word,
    count: Word,
    parallel: Address,
) -> Flag:
    """Whether the kernel, and what is around it, could compute results: there was memory, and numbers are finite."""
    drive, loan = context.drive, NULL
    if drive >= 0:  # forces are taken from a copy of the input
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
    job.context, job.kernel, job.table, job.given = context, version.kernel, table, given
    store_atomic(place(job, "bad"), 0, "monotonic")
    kernel, argument = version.kernel, address(table)
    if context.forces != 0:
        kernel, argument = code_of(worked), address(job)
    if context.check >> int(rows != ONE_STATE) & 1 == 1:
        kernel, argument = code_of(checked), address(job)
    run(context, version, kernel, argument, count, workspace, parallel)
    if claimed != NULL:
        store_atomic(array(Integer, claimed), 0, "release")
    free(context, reserved)
    free(context, loan)
    return bool(load_atomic(place(job, "bad"), "monotonic") == 0)


def scratch(context: Array[Context], size: Word) -> tuple[Address, Address, Address]:
    """Scratch memory, on a line of its own, or null; what was claimed for that, if nobody else has it, and what was
    reserved otherwise."""
    own = context.scratch
    if own != NULL and exchange_if(array(Integer, own), 0, 1, "acquire"):
        return own + _LINE, own, NULL
    block = call(Address, context.PyMem_RawMalloc, size + _LINE)
    return address((block + (_LINE - 1)) & -_LINE), NULL, block


def free(context: Array[Context], block: Address) -> None:
    """Give memory back, if there is some."""
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
    """Run a kernel for all rows, without the GIL where that takes long."""
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
    """The tuple of several results, null with an exception, or `LEFT`."""
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
