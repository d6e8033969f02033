"""Arrays for the results of a built-in function, new ones or the user's: functions with loops."""

from __future__ import annotations

from robodyn.compile.loops.language import (
    NULL,
    Address,
    Array,
    Flag,
    Integer,
    Word,
    call,
    convert,
    local,
    routine,
    unsigned_less,
)
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.native.context import MAX_TRAILING, Context
from robodyn.engines.cpu.native.objects import PyArray
from robodyn.internals.tuning import KEPT_FROM_BYTES

ONE_STATE = -1
"""Number of rows of a call whose inputs have no axis of rows."""
_WRITEABLE_CONTIGUOUS = 0x0401  # NPY_ARRAY_WRITEABLE and NPY_ARRAY_C_CONTIGUOUS


@routine
def adoptable(
    context: Array[Context],
    table: Array[Argument],
    moves: Array[Word],
    rows: Word,
    k: Word,
    wanted: Array[PyArray],
) -> Flag:
    """True if an array can hold output k: it has the right type and shape, is C-contiguous and writeable, and shares no
    memory with the arrays before it in the table."""
    count, axes, steps = 1, 0, context.steps
    trailing = context.trailing[k]
    if wanted.type != context.array_type or wanted.descr != context.descr:
        return False
    if wanted.flags & _WRITEABLE_CONTIGUOUS != _WRITEABLE_CONTIGUOUS:
        return False
    if int(wanted.ndim) != int(steps != 0) + int(rows != ONE_STATE) + trailing:
        return False
    if steps != 0:
        if wanted.shape[0] != steps + 1:
            return False
        axes = 1
    if rows != ONE_STATE:
        if wanted.shape[axes] != rows:
            return False
        count, axes = rows, axes + 1
    lengths, own = context.shapes + MAX_TRAILING * k, wanted.shape + axes
    if any(own[a] != lengths[a] for a in range(trailing)):
        return False
    # All arrays have no gaps, or stride 0. So memory is shared exactly if the ranges from first to last byte overlap.
    number, itemsize = context.inputs + k, context.itemsize
    begin = wanted.data
    end = begin + context.columns[number] * count * itemsize * (steps + 1)
    for j in range(number):
        other = table + j
        start = other.data
        stop = start + (other.stride * (count - 1) + context.columns[j] * itemsize + moves[j] * steps)
        if unsigned_less(start, end) and unsigned_less(begin, stop):
            return False
    return True


def new_array(context: Array[Context], axes: Word, shape: Array[Word]) -> Address:
    """A new NumPy array, or null."""
    none = convert(Integer, 0)
    number = convert(Integer, context.type_number)
    return call(
        Address,
        context.PyArray_New,
        context.array_type,
        convert(Integer, axes),
        shape,
        number,
        NULL,  # strides
        NULL,  # data
        none,  # bytes of a number: implied by its type
        none,  # flags
        NULL,  # no prototype
    )


@routine
def create(context: Array[Context], rows: Word, k: Word) -> Address:
    """A new array for output k, or null. A large array of a batch takes memory from the pool for results."""
    shape, axes, frames = local(Word, 2 + MAX_TRAILING), 0, context.steps + 1
    lengths, trailing = context.shapes + MAX_TRAILING * k, context.trailing[k]
    if frames > 1:
        shape[0], axes = frames, 1
    if rows != ONE_STATE:
        shape[axes], axes = rows, axes + 1
    for a in range(trailing):
        shape[axes + a] = lengths[a]
    size = context.columns[context.inputs + k] * context.itemsize * rows * frames
    if context.handler == NULL or size < KEPT_FROM_BYTES:
        return new_array(context, axes + trailing, shape)
    old = call(Address, context.PyDataMem_SetHandler, context.handler)
    if old == NULL:
        return NULL
    made = new_array(context, axes + trailing, shape)
    back = call(Address, context.PyDataMem_SetHandler, old)
    call(None, context.Py_DecRef, old)
    if back != NULL:
        call(None, context.Py_DecRef, back)
    return made


def handed(context: Array[Context], result: Address, number: Array[Word]) -> Address:
    """The object that the user gets: the result's array, whose reference is passed on, or a NumPy scalar if the result
    has no axes. Null if memory is short."""
    if result == NULL:
        return call(Address, context.PyArray_Scalar, number, context.descr, NULL)
    return result
