"""The machine code of a built-in function that answers a query, and the memory that describes the query to it.

One module serves all queries: whatever differs between two of them, addresses above all, is in a `Context`, so that
the compiled object can be kept on disk. What differs between versions of Python and NumPy is a `Layout`.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from string import Template

from robodyn.engines.cpu.native_checks import checks_text
from robodyn.engines.cpu.vectors import literal
from robodyn.query import SMALL_SQUARE

MAX_INPUTS = 8
MAX_TRAILING = 4
MAX_QUATERNIONS = 16
_WORD, _POINTER = ctypes.c_int64, ctypes.c_void_p


class Context(ctypes.Structure):
    """A query, as its built-in function reads it. The addresses are those of objects that outlive it."""

    _fields_ = (
        ("inputs", _WORD),  # how many
        ("array_type", _POINTER),
        ("descr", _POINTER),
        ("descr_type", _POINTER),
        ("type_number", _WORD),
        ("itemsize", _WORD),
        ("trailing", _WORD),  # axes of the output of one state
        ("out_columns", _WORD),  # scalars of it
        ("check", _WORD),  # bit 0: single states, bit 1: batches
        ("kernel", _POINTER),
        ("pool", _POINTER),
        ("parallel", _POINTER),
        ("start", _POINTER),  # callable that starts the pool's threads
        ("threads", _WORD),
        ("grain", _WORD),
        ("share_rows", _WORD),  # from so many rows the pool runs them
        ("release_rows", _WORD),  # from so many rows without the GIL
        ("workspace", _WORD),  # bytes for each thread
        ("fallback", _POINTER),
        ("PyArray_New", _POINTER),
        ("PyArray_Return", _POINTER),
        ("PyErr_Clear", _POINTER),
        ("PyEval_RestoreThread", _POINTER),
        ("PyEval_SaveThread", _POINTER),
        ("PyMem_RawFree", _POINTER),
        ("PyMem_RawMalloc", _POINTER),
        ("PyObject_CallNoArgs", _POINTER),
        ("PyObject_Vectorcall", _POINTER),
        ("Py_DecRef", _POINTER),
        ("columns", _WORD * MAX_INPUTS),  # scalars in a row of each input
        ("shape", _WORD * MAX_TRAILING),  # of the output of one state
        ("quaternions", _WORD),  # how many there are in the first input
        ("quaternion", _WORD * MAX_QUATERNIONS),  # the column at which each starts
    )


@dataclass(frozen=True)
class Layout:
    """Bytes from the start of an object to what the code reads."""

    type: int
    tuple_items: int
    bytes_data: int
    array_data: int
    array_nd: int
    array_shape: int
    array_strides: int
    array_descr: int
    array_flags: int
    descr_byteorder: int


CPYTHON = Layout(
    type=8,
    tuple_items=tuple.__basicsize__,
    bytes_data=bytes.__basicsize__ - 1,
    array_data=16,
    array_nd=24,
    array_shape=32,
    array_strides=40,
    array_descr=56,
    array_flags=64,
    descr_byteorder=26,
)
"""64-bit CPython with a GIL and NumPy 2, unless a probe disagrees."""

# The function itself. %rows is -1 until an input has an axis of rows.
_ENTRY = """
define ptr @entry(ptr %self, ptr %args, i64 %given, ptr %names) {
start:
  %table = alloca [$records x %Record], align 16
  %job = alloca %Job, align 16
  %shape = alloca [$axes x i64], align 16
  %item.at = getelementptr i8, ptr %self, i64 $tuple_items
  %item = load ptr, ptr %item.at, align 8
  %context = getelementptr i8, ptr %item, i64 $bytes_data
  $addresses
  %inputs = load i64, ptr %at.inputs, align 8
  %itemsize = load i64, ptr %at.itemsize, align 8
  %array.type = load ptr, ptr %at.array_type, align 8
  %descr = load ptr, ptr %at.descr, align 8
  %all = icmp eq i64 %given, %inputs
  %positional = icmp eq ptr %names, null
  %plain = and i1 %all, %positional
  br i1 %plain, label %read, label %other
read:
  %i = phi i64 [ 0, %start ], [ %i.next, %keep ]
  %rows = phi i64 [ -1, %start ], [ %rows.next, %keep ]
  %more = icmp slt i64 %i, %inputs
  br i1 %more, label %look, label %ready
look:
  %arg.at = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg.at, align 8
  %type.at = getelementptr i8, ptr %arg, i64 $type
  %type = load ptr, ptr %type.at, align 8
  %exact = icmp eq ptr %type, %array.type
  br i1 %exact, label %array, label %other
array:
  %descr.at = getelementptr i8, ptr %arg, i64 $array_descr
  %own.descr = load ptr, ptr %descr.at, align 8
  %singleton = icmp eq ptr %own.descr, %descr
  br i1 %singleton, label %typed, label %copied
copied:
  %descr.type.at = getelementptr i8, ptr %own.descr, i64 $type
  %order.at = getelementptr i8, ptr %own.descr, i64 $descr_byteorder
  %own.descr.type = load ptr, ptr %descr.type.at, align 8
  %descr.type = load ptr, ptr %at.descr_type, align 8
  %order = load i8, ptr %order.at, align 1
  %same.type = icmp eq ptr %own.descr.type, %descr.type
  %native = icmp eq i8 %order, 61
  %same.descr = and i1 %same.type, %native
  br i1 %same.descr, label %typed, label %other
typed:
  %data.at = getelementptr i8, ptr %arg, i64 $array_data
  %nd.at = getelementptr i8, ptr %arg, i64 $array_nd
  %dims.at = getelementptr i8, ptr %arg, i64 $array_shape
  %flags.at = getelementptr i8, ptr %arg, i64 $array_flags
  %data = load ptr, ptr %data.at, align 8
  %nd = load i32, ptr %nd.at, align 4
  %dims = load ptr, ptr %dims.at, align 8
  %flags = load i32, ptr %flags.at, align 4
  %c.order = and i32 %flags, 1
  %contiguous = icmp ne i32 %c.order, 0
  %columns.at = getelementptr i64, ptr %at.columns, i64 %i
  %columns = load i64, ptr %columns.at, align 8
  br i1 %contiguous, label %dense, label %other
dense:
  switch i32 %nd, label %other [
    i32 1, label %state
    i32 2, label %batch
  ]
state:
  %n1 = load i64, ptr %dims, align 8
  br label %width
batch:
  %rows2 = load i64, ptr %dims, align 8
  %n2.at = getelementptr i64, ptr %dims, i64 1
  %n2 = load i64, ptr %n2.at, align 8
  %stride2 = mul i64 %n2, %itemsize
  %unknown = icmp eq i64 %rows, -1
  %equal = icmp eq i64 %rows, %rows2
  %agrees = or i1 %unknown, %equal
  %some = icmp sgt i64 %rows2, 0
  %fits = and i1 %agrees, %some
  br i1 %fits, label %width, label %other
width:
  %n = phi i64 [ %n1, %state ], [ %n2, %batch ]
  %stride = phi i64 [ 0, %state ], [ %stride2, %batch ]
  %rows.next = phi i64 [ %rows, %state ], [ %rows2, %batch ]
  %right = icmp eq i64 %n, %columns
  br i1 %right, label %keep, label %other
keep:
  %record = getelementptr %Record, ptr %table, i64 %i
  %record.stride = getelementptr %Record, ptr %record, i64 0, i32 1
  store ptr %data, ptr %record, align 8
  store i64 %stride, ptr %record.stride, align 8
  %i.next = add i64 %i, 1
  br label %read
ready:
  %single = icmp eq i64 %rows, -1
  %count = select i1 %single, i64 1, i64 %rows
  %axes = select i1 %single, i64 0, i64 1
  %pool = load ptr, ptr %at.pool, align 8
  %share.rows = load i64, ptr %at.share_rows, align 8
  %shared = icmp sge i64 %count, %share.rows
  br i1 %shared, label %staff, label %allocate
staff:
  %poolless = icmp eq ptr %pool, null
  br i1 %poolless, label %other, label %begun
begun:
  %started.at = getelementptr i8, ptr %pool, i64 $pool_started
  %started = load atomic i32, ptr %started.at acquire, align 4
  %idle = icmp eq i32 %started, 0
  br i1 %idle, label %hire, label %allocate
hire:
  %call = load ptr, ptr %at.PyObject_CallNoArgs, align 8
  %start.callable = load ptr, ptr %at.start, align 8
  %hired = call ptr %call(ptr %start.callable)
  %interrupted = icmp eq ptr %hired, null
  br i1 %interrupted, label %raise, label %hired.drop
hired.drop:
  %drop0 = load ptr, ptr %at.Py_DecRef, align 8
  call void %drop0(ptr %hired)
  br label %allocate
raise:
  ret ptr null
allocate:
  store i64 %rows, ptr %shape, align 8
  %shape.tail = getelementptr i64, ptr %shape, i64 1
  %tail = load <$trailing x i64>, ptr %at.shape, align 8
  store <$trailing x i64> %tail, ptr %shape.tail, align 8
  %out.shape = select i1 %single, ptr %shape.tail, ptr %shape
  %trailing = load i64, ptr %at.trailing, align 8
  %out.nd = add i64 %trailing, %axes
  %out.nd32 = trunc i64 %out.nd to i32
  %number = load i64, ptr %at.type_number, align 8
  %number32 = trunc i64 %number to i32
  %new = load ptr, ptr %at.PyArray_New, align 8
  %out = call ptr %new(ptr %array.type, i32 %out.nd32, ptr %out.shape, i32 %number32, ptr null, ptr null, i32 0, i32 0,
    ptr null)
  %full = icmp eq ptr %out, null
  br i1 %full, label %forget, label %describe
forget:
  %clear = load ptr, ptr %at.PyErr_Clear, align 8
  call void %clear()
  br label %other
describe:
  %out.data.at = getelementptr i8, ptr %out, i64 $array_data
  %out.data = load ptr, ptr %out.data.at, align 8
  %out.columns = load i64, ptr %at.out_columns, align 8
  %out.stride = mul i64 %out.columns, %itemsize
  %out.record = getelementptr %Record, ptr %table, i64 %inputs
  %out.record.stride = getelementptr %Record, ptr %out.record, i64 0, i32 1
  store ptr %out.data, ptr %out.record, align 8
  store i64 %out.stride, ptr %out.record.stride, align 8
  %scratch = load i64, ptr %at.workspace, align 8
  %scratchless = icmp eq i64 %scratch, 0
  br i1 %scratchless, label %prepare, label %reserve
reserve:
  %threads = load i64, ptr %at.threads, align 8
  %parts = select i1 %shared, i64 %threads, i64 1
  %scratch.all = mul i64 %parts, %scratch
  %scratch.size = add i64 %scratch.all, 64
  %malloc = load ptr, ptr %at.PyMem_RawMalloc, align 8
  %block = call ptr %malloc(i64 %scratch.size)
  %exhausted = icmp eq ptr %block, null
  br i1 %exhausted, label %discard, label %prepare
prepare:
  %raw = phi ptr [ null, %describe ], [ %block, %reserve ]
  %raw.number = ptrtoint ptr %raw to i64
  %raw.up = add i64 %raw.number, 63
  %raw.aligned = and i64 %raw.up, -64
  %workspace = inttoptr i64 %raw.aligned to ptr
  %job.table = getelementptr %Job, ptr %job, i64 0, i32 1
  %job.bad = getelementptr %Job, ptr %job, i64 0, i32 2
  store ptr %context, ptr %job, align 8
  store ptr %table, ptr %job.table, align 8
  store atomic i32 0, ptr %job.bad monotonic, align 4
  %check = load i64, ptr %at.check, align 8
  %check.bit = lshr i64 %check, %axes
  %checks = trunc i64 %check.bit to i1
  %query.kernel = load ptr, ptr %at.kernel, align 8
  %quaternions = load i64, ptr %at.quaternions, align 8
  %turns = icmp sgt i64 %quaternions, 0
  %looks = or i1 %checks, %turns
  %looking.kernel = select i1 %checks, ptr @checked, ptr @normed
  %kernel = select i1 %looks, ptr %looking.kernel, ptr %query.kernel
  %argument = select i1 %looks, ptr %job, ptr %table
  %release.rows = load i64, ptr %at.release_rows, align 8
  %long = icmp sge i64 %count, %release.rows
  br i1 %long, label %release, label %run
release:
  %save = load ptr, ptr %at.PyEval_SaveThread, align 8
  %thread = call ptr %save()
  br label %run
run:
  %held = phi ptr [ null, %prepare ], [ %thread, %release ]
  br i1 %shared, label %run.shared, label %run.alone
run.shared:
  %parallel = load ptr, ptr %at.parallel, align 8
  %grain = load i64, ptr %at.grain, align 8
  call void %parallel(ptr %pool, ptr %kernel, ptr %argument, i64 %count, i64 %grain, ptr %workspace, i64 %scratch)
  br label %ran
run.alone:
  call void %kernel(ptr %argument, i64 0, i64 %count, ptr %workspace)
  br label %ran
ran:
  br i1 %long, label %resume, label %tidy
resume:
  %restore = load ptr, ptr %at.PyEval_RestoreThread, align 8
  call void %restore(ptr %held)
  br label %tidy
tidy:
  br i1 %scratchless, label %judge, label %unreserve
unreserve:
  %free = load ptr, ptr %at.PyMem_RawFree, align 8
  call void %free(ptr %raw)
  br label %judge
judge:
  %bad = load atomic i32, ptr %job.bad monotonic, align 4
  %good = icmp eq i32 %bad, 0
  br i1 %good, label %answer, label %discard
answer:
  %scalar = icmp eq i64 %out.nd, 0
  br i1 %scalar, label %unwrap, label %whole
whole:
  ret ptr %out
unwrap:
  %return = load ptr, ptr %at.PyArray_Return, align 8
  %number.object = call ptr %return(ptr %out)
  ret ptr %number.object
discard:
  %drop1 = load ptr, ptr %at.Py_DecRef, align 8
  call void %drop1(ptr %out)
  br label %other
other:
  %vectorcall = load ptr, ptr %at.PyObject_Vectorcall, align 8
  %fallback = load ptr, ptr %at.fallback, align 8
  %answer.other = call ptr %vectorcall(ptr %fallback, ptr %args, i64 %given, ptr %names)
  ret ptr %answer.other
}
"""


def native_text(layout: Layout, pool_started: int) -> str:
    """The module: `entry` is the C function of every built-in made of a `Context`.

    Args:
        layout: of the objects it reads.
        pool_started: bytes from a pool's start to the word that says whether its threads have started.
    """
    addresses = "\n".join(
        f"  %at.{name} = getelementptr i8, ptr %context, i64 {getattr(Context, name).offset}"
        for name, *_ in Context._fields_
    )
    words = {
        **vars(layout),
        "addresses": addresses.strip(),
        "records": MAX_INPUTS + 1,
        "axes": MAX_TRAILING + 1,
        "trailing": MAX_TRAILING,
        "pool_started": pool_started,
        "small": literal(SMALL_SQUARE, "double"),
        "large": literal(1.0 / SMALL_SQUARE, "double"),
    }
    return checks_text(words) + Template(_ENTRY).substitute(words)
