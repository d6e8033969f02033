"""The machine code of a built-in function that answers a query, and the memory that describes the query to it.

One module serves all queries: whatever differs between two of them, addresses above all, is in a `Context`, so that
the compiled object can be kept on disk. What differs between versions of Python and NumPy is a `Layout`.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from string import Template

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

# NaN and infinity times zero are NaN, anything else is zero: the sum tells without a branch. Masked loads touch no
# memory behind the last number.
_FINITE = """
define internal i1 @finite$bytes(ptr %data, i64 %count) {
start:
  br label %block
block:
  %i = phi i64 [ 0, %start ], [ %next, %block ]
  %sum = phi <$lanes x $scalar> [ zeroinitializer, %start ], [ %more, %block ]
  %left = sub i64 %count, %i
  %left1 = insertelement <$lanes x i64> poison, i64 %left, i32 0
  %lefts = shufflevector <$lanes x i64> %left1, <$lanes x i64> poison, <$lanes x i32> zeroinitializer
  %mask = icmp slt <$lanes x i64> <$numbers>, %lefts
  %at = getelementptr $scalar, ptr %data, i64 %i
  %values = call <$lanes x $scalar> @llvm.masked.load.v${lanes}$short.p0(
    ptr %at, i32 1, <$lanes x i1> %mask, <$lanes x $scalar> zeroinitializer)
  %zeros = fmul <$lanes x $scalar> %values, zeroinitializer
  %more = fadd <$lanes x $scalar> %sum, %zeros
  %next = add i64 %i, $lanes
  %on = icmp slt i64 %next, %count
  br i1 %on, label %block, label %done
done:
  %odd = fcmp uno <$lanes x $scalar> %more, zeroinitializer
  %bits = bitcast <$lanes x i1> %odd to i$lanes
  %fine = icmp eq i$lanes %bits, 0
  ret i1 %fine
}
declare <$lanes x $scalar> @llvm.masked.load.v${lanes}$short.p0(ptr, i32, <$lanes x i1>, <$lanes x $scalar>)
"""

# Whether every quaternion has a length that a kernel can divide by. One that is not finite is left to its row.
_UNIT = """
define internal i1 @unit(ptr %context, ptr %table, i64 %first, i64 %last) {
start:
  $addresses
  %itemsize = load i64, ptr %at.itemsize, align 8
  %double = icmp eq i64 %itemsize, 8
  %count = load i64, ptr %at.quaternions, align 8
  %data = load ptr, ptr %table, align 8
  %stride.at = getelementptr {ptr, i64}, ptr %table, i64 0, i32 1
  %stride = load i64, ptr %stride.at, align 8
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %row, label %fine
row:
  %r = phi i64 [ %first, %start ], [ %r.next, %good ]
  %offset = mul i64 %r, %stride
  %base = getelementptr i8, ptr %data, i64 %offset
  br label %each
each:
  %k = phi i64 [ 0, %row ], [ %k.next, %more ]
  %column.at = getelementptr i64, ptr %at.quaternion, i64 %k
  %column = load i64, ptr %column.at, align 8
  br i1 %double, label %eight, label %four
eight:
  %at8 = getelementptr double, ptr %base, i64 %column
  %wide8 = load <4 x double>, ptr %at8, align 1
  br label %judge
four:
  %at4 = getelementptr float, ptr %base, i64 %column
  %narrow = load <4 x float>, ptr %at4, align 1
  %wide4 = fpext <4 x float> %narrow to <4 x double>
  br label %judge
judge:
  %q = phi <4 x double> [ %wide8, %eight ], [ %wide4, %four ]
  %squares = fmul <4 x double> %q, %q
  %sum = call double @llvm.vector.reduce.fadd.v4f64(double -0.0, <4 x double> %squares)
  %short = fcmp olt double %sum, $small
  %long = fcmp ogt double %sum, $large
  %odd = or i1 %short, %long
  br i1 %odd, label %bad, label %more
more:
  %k.next = add i64 %k, 1
  %again = icmp slt i64 %k.next, %count
  br i1 %again, label %each, label %good
good:
  %r.next = add i64 %r, 1
  %on = icmp slt i64 %r.next, %last
  br i1 %on, label %row, label %fine
fine:
  ret i1 true
bad:
  ret i1 false
}
declare double @llvm.vector.reduce.fadd.v4f64(double, <4 x double>)
"""

# @checked is a kernel whose table is a job: it runs the query's kernel between two looks at the numbers of its rows.
_CHECKED = """
%Record = type { ptr, i64 }
%Job = type { ptr, ptr, i32 }
define internal i1 @finite(ptr %record, i64 %columns, i64 %first, i64 %last, i64 %itemsize) {
  %data = load ptr, ptr %record, align 8
  %stride.at = getelementptr %Record, ptr %record, i64 0, i32 1
  %stride = load i64, ptr %stride.at, align 8
  %offset = mul i64 %stride, %first
  %start = getelementptr i8, ptr %data, i64 %offset
  %rows = sub i64 %last, %first
  %same = icmp eq i64 %stride, 0
  %several = select i1 %same, i64 1, i64 %rows
  %count = mul i64 %several, %columns
  %double = icmp eq i64 %itemsize, 8
  br i1 %double, label %eight, label %four
eight:
  %fine8 = call i1 @finite8(ptr %start, i64 %count)
  ret i1 %fine8
four:
  %fine4 = call i1 @finite4(ptr %start, i64 %count)
  ret i1 %fine4
}
define internal void @checked(ptr %job, i64 %first, i64 %last, ptr %workspace) {
start:
  %table.at = getelementptr %Job, ptr %job, i64 0, i32 1
  %bad.at = getelementptr %Job, ptr %job, i64 0, i32 2
  %context = load ptr, ptr %job, align 8
  %table = load ptr, ptr %table.at, align 8
  $addresses
  %inputs = load i64, ptr %at.inputs, align 8
  %itemsize = load i64, ptr %at.itemsize, align 8
  %kernel = load ptr, ptr %at.kernel, align 8
  %out.columns = load i64, ptr %at.out_columns, align 8
  %unit = call i1 @unit(ptr %context, ptr %table, i64 %first, i64 %last)
  br i1 %unit, label %scaled, label %bad
scaled:
  %any = icmp sgt i64 %inputs, 0
  br i1 %any, label %input, label %run
input:
  %i = phi i64 [ 0, %scaled ], [ %next, %good ]
  %record = getelementptr %Record, ptr %table, i64 %i
  %columns.at = getelementptr i64, ptr %at.columns, i64 %i
  %columns = load i64, ptr %columns.at, align 8
  %fine = call i1 @finite(ptr %record, i64 %columns, i64 %first, i64 %last, i64 %itemsize)
  br i1 %fine, label %good, label %bad
good:
  %next = add i64 %i, 1
  %on = icmp slt i64 %next, %inputs
  br i1 %on, label %input, label %run
run:
  call void %kernel(ptr %table, i64 %first, i64 %last, ptr %workspace)
  %output = getelementptr %Record, ptr %table, i64 %inputs
  %right = call i1 @finite(ptr %output, i64 %out.columns, i64 %first, i64 %last, i64 %itemsize)
  br i1 %right, label %done, label %bad
bad:
  store atomic i32 1, ptr %bad.at monotonic, align 4
  br label %done
done:
  ret void
}
"""

# @normed looks at quaternions alone.
_NORMED = """
define internal void @normed(ptr %job, i64 %first, i64 %last, ptr %workspace) {
start:
  %table.at = getelementptr %Job, ptr %job, i64 0, i32 1
  %bad.at = getelementptr %Job, ptr %job, i64 0, i32 2
  %context = load ptr, ptr %job, align 8
  %table = load ptr, ptr %table.at, align 8
  $addresses
  %kernel = load ptr, ptr %at.kernel, align 8
  %unit = call i1 @unit(ptr %context, ptr %table, i64 %first, i64 %last)
  br i1 %unit, label %run, label %bad
run:
  call void %kernel(ptr %table, i64 %first, i64 %last, ptr %workspace)
  ret void
bad:
  store atomic i32 1, ptr %bad.at monotonic, align 4
  ret void
}
"""

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
    finite = "".join(
        Template(_FINITE).substitute(
            bytes=size,
            lanes=lanes,
            scalar=scalar,
            short=short,
            numbers=", ".join(f"i64 {lane}" for lane in range(lanes)),
        )
        for size, lanes, scalar, short in ((8, 8, "double", "f64"), (4, 16, "float", "f32"))
    )
    return finite + Template(_UNIT + _CHECKED + _NORMED + _ENTRY).substitute(words)
