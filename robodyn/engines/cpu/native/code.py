"""The machine code of a built-in function that answers a query: one module for all of them."""

from __future__ import annotations

import ctypes
from string import Template

from robodyn.engines.cpu.native.checks import checks_text
from robodyn.engines.cpu.native.context import (
    MAX_CONSTANTS,
    MAX_INPUTS,
    MAX_OUTPUTS,
    MAX_TRAILING,
    Context,
    Layout,
    Version,
)
from robodyn.engines.cpu.native.results import results_text

_TYPES = """
%Record = type { ptr, i64 }
%Job = type { ptr, ptr, ptr, i32 }
"""

# The function itself. %rows is -1 until an input has an axis of rows. An input that comes by name does so behind the
# others and before `out=`. %targets is where the user's array for the result stands, or their tuple; null without
# `out=`.
_ENTRY = """
define ptr @entry(ptr %self, ptr %args, i64 %given, ptr %names) {
start:
  %table = alloca [$max_records x %Record], align 16
  %job = alloca %Job, align 16
  %results = alloca [$max_outputs x ptr], align 16
  %item.at = getelementptr i8, ptr %self, i64 $tuple_items
  %item = load ptr, ptr %item.at, align 8
  %context = getelementptr i8, ptr %item, i64 $bytes_data
  $addresses
  %inputs = load i64, ptr %at.inputs, align 8
  %itemsize = load i64, ptr %at.itemsize, align 8
  %array.type = load ptr, ptr %at.array_type, align 8
  %descr = load ptr, ptr %at.descr, align 8
  %keyword = load ptr, ptr %at.keyword, align 8
  %has.keyword = icmp ne ptr %keyword, null
  %named.inputs = zext i1 %has.keyword to i64
  %positional = sub i64 %inputs, %named.inputs
  %all = icmp eq i64 %given, %positional
  br i1 %all, label %keywords, label %other
keywords:
  %no.names = icmp eq ptr %names, null
  br i1 %no.names, label %unnamed, label %named
unnamed:
  br i1 %has.keyword, label %other, label %plain
named:
  %names.size.at = getelementptr i8, ptr %names, i64 $tuple_size
  %names.size = load i64, ptr %names.size.at, align 8
  %first.at = getelementptr i8, ptr %names, i64 $tuple_items
  %some.names = icmp sgt i64 %names.size, 0
  %leads = and i1 %has.keyword, %some.names
  br i1 %leads, label %leading, label %trailing
leading:
  %first.name = load ptr, ptr %first.at, align 8
  %is.keyword = icmp eq ptr %first.name, %keyword
  br i1 %is.keyword, label %trailing, label %other
trailing:
  %further = sub i64 %names.size, %named.inputs
  switch i64 %further, label %other [
    i64 0, label %plain
    i64 1, label %last
  ]
last:
  %last.at = getelementptr ptr, ptr %first.at, i64 %named.inputs
  %last.name = load ptr, ptr %last.at, align 8
  %out.name = load ptr, ptr %at.out_name, align 8
  %is.out = icmp eq ptr %last.name, %out.name
  br i1 %is.out, label %target, label %other
target:
  %target.at = getelementptr ptr, ptr %args, i64 %inputs
  br label %plain
plain:
  %targets = phi ptr [ null, %unnamed ], [ null, %trailing ], [ %target.at, %target ]
  %adopts = icmp ne ptr %targets, null
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
  %alone = icmp eq i64 %count, 1
  %which = zext i1 %alone to i64
  %version = getelementptr [$version_bytes x i8], ptr %at.versions, i64 %which
  $version_addresses
  %query.kernel = load ptr, ptr %by.kernel, align 8
  %missing = icmp eq ptr %query.kernel, null
  br i1 %missing, label %other, label %divide
divide:
  %pool = load ptr, ptr %at.pool, align 8
  %share.rows = load i64, ptr %by.share_rows, align 8
  %shared = icmp sge i64 %count, %share.rows
  br i1 %shared, label %staff, label %aim
staff:
  %poolless = icmp eq ptr %pool, null
  br i1 %poolless, label %other, label %begun
begun:
  %started.at = getelementptr i8, ptr %pool, i64 $pool_started
  %started = load atomic i32, ptr %started.at acquire, align 4
  %idle = icmp eq i32 %started, 0
  br i1 %idle, label %hire, label %aim
hire:
  %call = load ptr, ptr %at.PyObject_CallNoArgs, align 8
  %start.callable = load ptr, ptr %at.start, align 8
  %hired = call ptr %call(ptr %start.callable)
  %interrupted = icmp eq ptr %hired, null
  br i1 %interrupted, label %raise, label %hired.drop
hired.drop:
  %drop0 = load ptr, ptr %at.Py_DecRef, align 8
  call void %drop0(ptr %hired)
  br label %aim
raise:
  ret ptr null
aim:
  %outputs = load i64, ptr %at.outputs, align 8
  %several = icmp sgt i64 %outputs, 1
  %picks = and i1 %adopts, %several
  br i1 %picks, label %pick, label %gather
pick:
  %bundle = load ptr, ptr %targets, align 8
  %bundle.type.at = getelementptr i8, ptr %bundle, i64 $type
  %bundle.type = load ptr, ptr %bundle.type.at, align 8
  %tuple.type = load ptr, ptr %at.tuple_type, align 8
  %is.bundle = icmp eq ptr %bundle.type, %tuple.type
  br i1 %is.bundle, label %measure, label %other
measure:
  %bundle.size.at = getelementptr i8, ptr %bundle, i64 $tuple_size
  %bundle.size = load i64, ptr %bundle.size.at, align 8
  %bundle.items = getelementptr i8, ptr %bundle, i64 $tuple_items
  %complete = icmp eq i64 %bundle.size, %outputs
  br i1 %complete, label %gather, label %other
gather:
  %wanted.first = phi ptr [ %targets, %aim ], [ %bundle.items, %measure ]
  br label %result
result:
  %k = phi i64 [ 0, %gather ], [ %k.next, %describe ]
  %k.more = icmp slt i64 %k, %outputs
  br i1 %k.more, label %obtain, label %fill
obtain:
  br i1 %adopts, label %adopt, label %create
adopt:
  %wanted.at = getelementptr ptr, ptr %wanted.first, i64 %k
  %wanted = load ptr, ptr %wanted.at, align 8
  %adoptable = call i1 @adoptable(ptr %context, ptr %table, i64 %rows, i64 %k, ptr %wanted)
  br i1 %adoptable, label %adopted, label %discard
adopted:
  %grow = load ptr, ptr %at.Py_IncRef, align 8
  call void %grow(ptr %wanted)
  br label %describe
create:
  %fresh = call ptr @create(ptr %context, i64 %rows, i64 %k)
  %full = icmp eq ptr %fresh, null
  br i1 %full, label %forget, label %describe
forget:
  %forgotten = phi i64 [ %k, %create ], [ %outputs, %bind ]
  %clear = load ptr, ptr %at.PyErr_Clear, align 8
  call void %clear()
  br label %discard
describe:
  %out = phi ptr [ %fresh, %create ], [ %wanted, %adopted ]
  %out.at = getelementptr ptr, ptr %results, i64 %k
  store ptr %out, ptr %out.at, align 8
  %out.number = add i64 %inputs, %k
  %out.columns.at = getelementptr i64, ptr %at.columns, i64 %out.number
  %out.columns = load i64, ptr %out.columns.at, align 8
  %out.stride = mul i64 %out.columns, %itemsize
  %out.data.at = getelementptr i8, ptr %out, i64 $array_data
  %out.data = load ptr, ptr %out.data.at, align 8
  %out.record = getelementptr %Record, ptr %table, i64 %out.number
  %out.record.stride = getelementptr %Record, ptr %out.record, i64 0, i32 1
  store ptr %out.data, ptr %out.record, align 8
  store i64 %out.stride, ptr %out.record.stride, align 8
  %k.next = add i64 %k, 1
  br label %result
fill:
  %words = load i64, ptr %by.constant_words, align 8
  %constants = load ptr, ptr %by.constants, align 8
  %arrays = add i64 %inputs, %outputs
  %constants.to = getelementptr %Record, ptr %table, i64 %arrays
  %batch.given = load i64, ptr %by.batch, align 8
  %counts = icmp ne i64 %batch.given, 0
  %last.word = sub i64 %words, 1
  br label %fill.more
fill.more:
  %w = phi i64 [ 0, %fill ], [ %w.next, %fill.word ]
  %w.more = icmp slt i64 %w, %words
  br i1 %w.more, label %fill.word, label %equip
fill.word:
  %word.at = getelementptr i64, ptr %constants, i64 %w
  %word.to = getelementptr i64, ptr %constants.to, i64 %w
  %constant = load i64, ptr %word.at, align 8
  %is.last = icmp eq i64 %w, %last.word
  %is.batch = and i1 %is.last, %counts
  %word = select i1 %is.batch, i64 %count, i64 %constant
  store i64 %word, ptr %word.to, align 8
  %w.next = add i64 %w, 1
  br label %fill.more
equip:
  %scratch.bytes = load i64, ptr %by.workspace, align 8
  %scratchless = icmp eq i64 %scratch.bytes, 0
  br i1 %scratchless, label %prepare, label %seek
seek:
  %scratch = load ptr, ptr %at.scratch, align 8
  %homeless = icmp eq ptr %scratch, null
  br i1 %homeless, label %reserve, label %claim
claim:
  %claim.pair = cmpxchg ptr %scratch, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %claim.pair, 1
  %scratch.memory = getelementptr i8, ptr %scratch, i64 64
  br i1 %mine, label %prepare, label %reserve
reserve:
  %threads = load i64, ptr %at.threads, align 8
  %parts = select i1 %shared, i64 %threads, i64 1
  %scratch.all = mul i64 %parts, %scratch.bytes
  %scratch.size = add i64 %scratch.all, 64
  %malloc = load ptr, ptr %at.PyMem_RawMalloc, align 8
  %block = call ptr %malloc(i64 %scratch.size)
  %block.number = ptrtoint ptr %block to i64
  %block.up = add i64 %block.number, 63
  %block.aligned = and i64 %block.up, -64
  %block.memory = inttoptr i64 %block.aligned to ptr
  %exhausted = icmp eq ptr %block, null
  br i1 %exhausted, label %discard, label %prepare
prepare:
  %workspace = phi ptr [ null, %equip ], [ %scratch.memory, %claim ], [ %block.memory, %reserve ]
  %claimed = phi ptr [ null, %equip ], [ %scratch, %claim ], [ null, %reserve ]
  %reserved = phi ptr [ null, %equip ], [ null, %claim ], [ %block, %reserve ]
  %job.table = getelementptr %Job, ptr %job, i64 0, i32 1
  %job.kernel = getelementptr %Job, ptr %job, i64 0, i32 2
  %job.bad = getelementptr %Job, ptr %job, i64 0, i32 3
  store ptr %context, ptr %job, align 8
  store ptr %table, ptr %job.table, align 8
  store ptr %query.kernel, ptr %job.kernel, align 8
  store atomic i32 0, ptr %job.bad monotonic, align 4
  %check = load i64, ptr %at.check, align 8
  %check.bit = lshr i64 %check, %axes
  %checks = trunc i64 %check.bit to i1
  %kernel = select i1 %checks, ptr @checked, ptr %query.kernel
  %argument = select i1 %checks, ptr %job, ptr %table
  %release.rows = load i64, ptr %by.release_rows, align 8
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
  %grain = load i64, ptr %by.grain, align 8
  call void %parallel(ptr %pool, ptr %kernel, ptr %argument, i64 %count, i64 %grain, ptr %workspace,
    i64 %scratch.bytes)
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
  %unclaimed = icmp eq ptr %claimed, null
  br i1 %unclaimed, label %tidy.block, label %unclaim
unclaim:
  store atomic i32 0, ptr %claimed release, align 4
  br label %judge
tidy.block:
  %unreserved = icmp eq ptr %reserved, null
  br i1 %unreserved, label %judge, label %unreserve
unreserve:
  %free = load ptr, ptr %at.PyMem_RawFree, align 8
  call void %free(ptr %reserved)
  br label %judge
judge:
  %bad = load atomic i32, ptr %job.bad monotonic, align 4
  %good = icmp eq i32 %bad, 0
  br i1 %good, label %answer, label %discard
answer:
  br i1 %several, label %bind, label %only
only:
  %only.result = load ptr, ptr %results, align 8
  %only.answer = call ptr @handed(ptr %context, ptr %only.result, i1 %adopts)
  ret ptr %only.answer
bind:
  %new.tuple = load ptr, ptr %at.PyTuple_New, align 8
  %tuple = call ptr %new.tuple(i64 %outputs)
  %unbound = icmp eq ptr %tuple, null
  br i1 %unbound, label %forget, label %place
place:
  %p = phi i64 [ 0, %bind ], [ %p.next, %place ]
  %whole = phi i1 [ true, %bind ], [ %whole.next, %place ]
  %part.at = getelementptr ptr, ptr %results, i64 %p
  %part = load ptr, ptr %part.at, align 8
  %part.answer = call ptr @handed(ptr %context, ptr %part, i1 %adopts)
  %part.there = icmp ne ptr %part.answer, null
  %whole.next = and i1 %whole, %part.there
  %set = load ptr, ptr %at.PyTuple_SetItem, align 8
  %placed = call i32 %set(ptr %tuple, i64 %p, ptr %part.answer)
  %p.next = add i64 %p, 1
  %p.more = icmp slt i64 %p.next, %outputs
  br i1 %p.more, label %place, label %bound
bound:
  br i1 %whole.next, label %hand, label %incomplete
hand:
  ret ptr %tuple
incomplete:
  %drop1 = load ptr, ptr %at.Py_DecRef, align 8
  call void %drop1(ptr %tuple)
  ret ptr null
discard:
  %made = phi i64 [ %k, %adopt ], [ %forgotten, %forget ], [ %outputs, %reserve ], [ %outputs, %judge ]
  br label %drop
drop:
  %left = phi i64 [ %made, %discard ], [ %left.next, %drop.one ]
  %left.next = sub i64 %left, 1
  %some.left = icmp sgt i64 %left, 0
  br i1 %some.left, label %drop.one, label %other
drop.one:
  %drop.at = getelementptr ptr, ptr %results, i64 %left.next
  %dropped = load ptr, ptr %drop.at, align 8
  %drop2 = load ptr, ptr %at.Py_DecRef, align 8
  call void %drop2(ptr %dropped)
  br label %drop
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
    words = {
        **vars(layout),
        "addresses": _addresses("at", "context", Context),
        "version_addresses": _addresses("by", "version", Version),
        "version_bytes": ctypes.sizeof(Version),
        "max_records": MAX_INPUTS + MAX_OUTPUTS + MAX_CONSTANTS // 2,
        "max_outputs": MAX_OUTPUTS,
        "max_trailing": MAX_TRAILING,
        "axes": MAX_TRAILING + 1,
        "pool_started": pool_started,
        "writeable_contiguous": 0x0401,  # NPY_ARRAY_WRITEABLE and NPY_ARRAY_C_CONTIGUOUS
    }
    return _TYPES + checks_text(words) + results_text(words) + Template(_ENTRY).substitute(words)


def _addresses(prefix: str, base: str, struct: type[ctypes.Structure]) -> str:
    """Lines that find the fields of a struct."""
    lines = (
        f"  %{prefix}.{name} = getelementptr i8, ptr %{base}, i64 {getattr(struct, name).offset}"
        for name, *_ in struct._fields_
    )
    return "\n".join(lines).strip()
