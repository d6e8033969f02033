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
        ("out_name", _POINTER),  # the interned string "out"
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
        ("Py_IncRef", _POINTER),
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
    tuple_size: int
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
    tuple_size=16,
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
  br i1 %all, label %keywords, label %other
keywords:
  %positional = icmp eq ptr %names, null
  br i1 %positional, label %plain, label %named
named:
  %names.size.at = getelementptr i8, ptr %names, i64 $tuple_size
  %names.size = load i64, ptr %names.size.at, align 8
  %one = icmp eq i64 %names.size, 1
  br i1 %one, label %keyword, label %other
keyword:
  %keyword.at = getelementptr i8, ptr %names, i64 $tuple_items
  %keyword.name = load ptr, ptr %keyword.at, align 8
  %out.name = load ptr, ptr %at.out_name, align 8
  %is.out = icmp eq ptr %keyword.name, %out.name
  br i1 %is.out, label %target, label %other
target:
  %target.at = getelementptr ptr, ptr %args, i64 %given
  %target.array = load ptr, ptr %target.at, align 8
  br label %plain
plain:
  %wanted = phi ptr [ null, %keywords ], [ %target.array, %target ]
  %adopts = icmp ne ptr %wanted, null
  br label %read
read:
  %i = phi i64 [ 0, %plain ], [ %i.next, %keep ]
  %rows = phi i64 [ -1, %plain ], [ %rows.next, %keep ]
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
  br i1 %adopts, label %adopt, label %create
adopt:
  %adopt.check = load i64, ptr %at.check, align 8
  %adopt.bit = lshr i64 %adopt.check, %axes
  %adopt.checks = trunc i64 %adopt.bit to i1
  %careful = or i1 %adopt.checks, %single
  br i1 %careful, label %other, label %adopt.type
adopt.type:
  %wanted.type.at = getelementptr i8, ptr %wanted, i64 $type
  %wanted.type = load ptr, ptr %wanted.type.at, align 8
  %wanted.exact = icmp eq ptr %wanted.type, %array.type
  br i1 %wanted.exact, label %adopt.array, label %other
adopt.array:
  %wanted.descr.at = getelementptr i8, ptr %wanted, i64 $array_descr
  %wanted.descr = load ptr, ptr %wanted.descr.at, align 8
  %wanted.nd.at = getelementptr i8, ptr %wanted, i64 $array_nd
  %wanted.nd = load i32, ptr %wanted.nd.at, align 4
  %wanted.flags.at = getelementptr i8, ptr %wanted, i64 $array_flags
  %wanted.flags = load i32, ptr %wanted.flags.at, align 4
  %wanted.data.at = getelementptr i8, ptr %wanted, i64 $array_data
  %wanted.data = load ptr, ptr %wanted.data.at, align 8
  %wanted.dims.at = getelementptr i8, ptr %wanted, i64 $array_shape
  %wanted.dims = load ptr, ptr %wanted.dims.at, align 8
  %wanted.trailing = load i64, ptr %at.trailing, align 8
  %wanted.axes = add i64 %wanted.trailing, 1
  %wanted.axes32 = trunc i64 %wanted.axes to i32
  %wanted.singleton = icmp eq ptr %wanted.descr, %descr
  %wanted.rank = icmp eq i32 %wanted.nd, %wanted.axes32
  %wanted.order = and i32 %wanted.flags, $writeable_contiguous
  %wanted.open = icmp eq i32 %wanted.order, $writeable_contiguous
  %wanted.fit0 = and i1 %wanted.singleton, %wanted.rank
  %wanted.fit = and i1 %wanted.fit0, %wanted.open
  br i1 %wanted.fit, label %adopt.rows, label %other
adopt.rows:
  %wanted.rows = load i64, ptr %wanted.dims, align 8
  %wanted.same = icmp eq i64 %wanted.rows, %rows
  br i1 %wanted.same, label %adopt.axis, label %other
adopt.axis:
  %axis = phi i64 [ 0, %adopt.rows ], [ %axis.next, %adopt.length ]
  %axis.more = icmp slt i64 %axis, %wanted.trailing
  br i1 %axis.more, label %adopt.length, label %adopt.memory
adopt.length:
  %axis.next = add i64 %axis, 1
  %length.at = getelementptr i64, ptr %wanted.dims, i64 %axis.next
  %length = load i64, ptr %length.at, align 8
  %length.wanted.at = getelementptr i64, ptr %at.shape, i64 %axis
  %length.wanted = load i64, ptr %length.wanted.at, align 8
  %length.same = icmp eq i64 %length, %length.wanted
  br i1 %length.same, label %adopt.axis, label %other
adopt.memory:
  %wanted.columns = load i64, ptr %at.out_columns, align 8
  %wanted.scalars = mul i64 %wanted.columns, %rows
  %wanted.bytes = mul i64 %wanted.scalars, %itemsize
  %wanted.first = ptrtoint ptr %wanted.data to i64
  %wanted.end = add i64 %wanted.first, %wanted.bytes
  br label %adopt.input
adopt.input:
  %j = phi i64 [ 0, %adopt.memory ], [ %j.next, %adopt.apart ]
  %j.more = icmp slt i64 %j, %inputs
  br i1 %j.more, label %adopt.overlap, label %adopted
adopt.overlap:
  %j.record = getelementptr %Record, ptr %table, i64 %j
  %j.data = load ptr, ptr %j.record, align 8
  %j.stride.at = getelementptr %Record, ptr %j.record, i64 0, i32 1
  %j.stride = load i64, ptr %j.stride.at, align 8
  %j.columns.at = getelementptr i64, ptr %at.columns, i64 %j
  %j.columns = load i64, ptr %j.columns.at, align 8
  %j.row = mul i64 %j.columns, %itemsize
  %j.last = sub i64 %rows, 1
  %j.before = mul i64 %j.stride, %j.last
  %j.bytes = add i64 %j.before, %j.row
  %j.first = ptrtoint ptr %j.data to i64
  %j.end = add i64 %j.first, %j.bytes
  %j.starts = icmp ult i64 %j.first, %wanted.end
  %j.ends = icmp ult i64 %wanted.first, %j.end
  %j.meets = and i1 %j.starts, %j.ends
  br i1 %j.meets, label %other, label %adopt.apart
adopt.apart:
  %j.next = add i64 %j, 1
  br label %adopt.input
adopted:
  %grow = load ptr, ptr %at.Py_IncRef, align 8
  call void %grow(ptr %wanted)
  br label %describe
create:
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
  %fresh = call ptr %new(ptr %array.type, i32 %out.nd32, ptr %out.shape, i32 %number32, ptr null, ptr null, i32 0,
    i32 0, ptr null)
  %full = icmp eq ptr %fresh, null
  br i1 %full, label %forget, label %describe
forget:
  %clear = load ptr, ptr %at.PyErr_Clear, align 8
  call void %clear()
  br label %other
describe:
  %out = phi ptr [ %fresh, %create ], [ %wanted, %adopted ]
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
  %answer.nd.at = getelementptr i8, ptr %out, i64 $array_nd
  %answer.nd = load i32, ptr %answer.nd.at, align 4
  %scalar = icmp eq i32 %answer.nd, 0
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
        "writeable_contiguous": 0x0401,  # NPY_ARRAY_WRITEABLE and NPY_ARRAY_C_CONTIGUOUS
        "small": literal(SMALL_SQUARE, "double"),
        "large": literal(1.0 / SMALL_SQUARE, "double"),
    }
    return checks_text(words) + Template(_ENTRY).substitute(words)
