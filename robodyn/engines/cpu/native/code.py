"""The machine code of a built-in function that answers a query: one module for all of them."""

from __future__ import annotations

import ctypes
from string import Template

from robodyn.codegen.llvm.streaming import CROWD, STREAMED_BYTES
from robodyn.engines.cpu.native.checks import checks_text
from robodyn.engines.cpu.native.context import (
    ARRAY,
    CHOICE,
    HASH,
    MAX_CONSTANTS,
    MAX_INPUTS,
    MAX_OUTPUTS,
    MAX_SLOTS,
    MAX_TRAILING,
    MAX_TYPES,
    OUT,
    Context,
    Form,
    Front,
    Layout,
    Slot,
    Version,
)
from robodyn.engines.cpu.native.forms import forms_text
from robodyn.engines.cpu.native.joint_forces import joint_forces_text
from robodyn.engines.cpu.native.results import results_text

_TYPES = """
%Record = type { ptr, i64 }
%Job = type { ptr, ptr, ptr, i32, ptr }
"""

# Answers a call whose arrays were found: %given are those of the question by their places, %targets is where the user's
# array for the result stands, or their tuple; null without `out=`. %rows is -1 until an input has an axis of rows. What
# it leaves to the checked function is -1.
_ANSWER = """
define internal ptr @answer(ptr %context, ptr %arrays.given, ptr %targets) {
start:
  %table = alloca [$max_records x %Record], align 16
  %given = alloca [$max_inputs x %Record], align 16
  %job = alloca %Job, align 16
  %results = alloca [$max_outputs x ptr], align 16
  %bare.numbers = alloca [$max_outputs x i64], align 16
  $addresses
  %inputs = load i64, ptr %at.inputs, align 8
  %itemsize = load i64, ptr %at.itemsize, align 8
  %array.type = load ptr, ptr %at.array_type, align 8
  %descr = load ptr, ptr %at.descr, align 8
  br label %read
read:
  %i = phi i64 [ 0, %start ], [ %i.next, %keep ]
  %rows = phi i64 [ -1, %start ], [ %rows.kept, %keep ]
  %more = icmp slt i64 %i, %inputs
  br i1 %more, label %look, label %ready
look:
  %stand.at = getelementptr i64, ptr %at.places, i64 %i
  %stand = load i64, ptr %stand.at, align 8
  %arg.at = getelementptr ptr, ptr %arrays.given, i64 %stand
  %arg = load ptr, ptr %arg.at, align 8
  %type.at = getelementptr i8, ptr %arg, i64 $type
  %type = load ptr, ptr %type.at, align 8
  %columns.at = getelementptr i64, ptr %at.columns, i64 %i
  %columns = load i64, ptr %columns.at, align 8
  %width.at = getelementptr i64, ptr %at.widths, i64 %i
  %width = load i64, ptr %width.at, align 8
  %scalar = icmp slt i64 %width, 0
  br i1 %scalar, label %number, label %arrayed
number:
  %float.type = load ptr, ptr %at.float_type, align 8
  %is.float = icmp eq ptr %type, %float.type
  %float.data = getelementptr i8, ptr %arg, i64 $float_value
  br i1 %is.float, label %keep, label %other
arrayed:
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
  br i1 %contiguous, label %dense, label %other
dense:
  %flat = icmp eq i64 %width, 0
  %axes.own = select i1 %flat, i32 1, i32 2
  %axes.more = sub i32 %nd, %axes.own
  switch i32 %axes.more, label %other [
    i32 0, label %shape
    i32 1, label %batch
  ]
batch:
  %rows2 = load i64, ptr %dims, align 8
  %row.bytes = mul i64 %columns, %itemsize
  %dims.row = getelementptr i64, ptr %dims, i64 1
  %unknown = icmp eq i64 %rows, -1
  %equal = icmp eq i64 %rows, %rows2
  %agrees = or i1 %unknown, %equal
  %some = icmp sgt i64 %rows2, 0
  %fits = and i1 %agrees, %some
  br i1 %fits, label %shape, label %other
shape:
  %lengths.own = phi ptr [ %dims, %dense ], [ %dims.row, %batch ]
  %stride = phi i64 [ 0, %dense ], [ %row.bytes, %batch ]
  %rows.next = phi i64 [ %rows, %dense ], [ %rows2, %batch ]
  %n1 = load i64, ptr %lengths.own, align 8
  br i1 %flat, label %line, label %grid
grid:
  %n2.at = getelementptr i64, ptr %lengths.own, i64 1
  %n2 = load i64, ptr %n2.at, align 8
  %wide = icmp eq i64 %n2, %width
  br i1 %wide, label %area, label %other
area:
  %n12 = mul i64 %n1, %n2
  br label %line
line:
  %n = phi i64 [ %n1, %shape ], [ %n12, %area ]
  %right = icmp eq i64 %n, %columns
  br i1 %right, label %keep, label %other
keep:
  %numbers = phi ptr [ %data, %line ], [ %float.data, %number ]
  %own.stride = phi i64 [ %stride, %line ], [ 0, %number ]
  %rows.kept = phi i64 [ %rows.next, %line ], [ %rows, %number ]
  %record = getelementptr %Record, ptr %table, i64 %i
  %record.stride = getelementptr %Record, ptr %record, i64 0, i32 1
  store ptr %numbers, ptr %record, align 8
  store i64 %own.stride, ptr %record.stride, align 8
  %given.record = getelementptr %Record, ptr %given, i64 %i
  %given.stride = getelementptr %Record, ptr %given.record, i64 0, i32 1
  store ptr %numbers, ptr %given.record, align 8
  store i64 %own.stride, ptr %given.stride, align 8
  %i.next = add i64 %i, 1
  br label %read
ready:
  %known = load ptr, ptr %at.known, align 8
  %anything = icmp eq ptr %known, null
  br i1 %anything, label %suits, label %recall
recall:
  %k.which = load i64, ptr %at.known_input, align 8
  %k.record = getelementptr %Record, ptr %given, i64 %k.which
  %k.data = load ptr, ptr %k.record, align 8
  %k.stride.at = getelementptr %Record, ptr %k.record, i64 0, i32 1
  %k.stride = load i64, ptr %k.stride.at, align 8
  %k.one = icmp eq i64 %k.stride, 0
  %k.columns.at = getelementptr i64, ptr %at.columns, i64 %k.which
  %k.columns = load i64, ptr %k.columns.at, align 8
  %k.row = mul i64 %k.columns, %itemsize
  %k.all = mul i64 %k.row, %rows
  %k.bytes = select i1 %k.one, i64 %k.row, i64 %k.all
  %known.bytes.at = getelementptr i8, ptr %known, i64 8
  %known.bytes = load i64, ptr %known.bytes.at, align 8
  %k.long = icmp eq i64 %k.bytes, %known.bytes
  br i1 %k.long, label %compare, label %other
compare:
  %known.data = load ptr, ptr %known, align 8
  %memcmp = load ptr, ptr %at.memcmp, align 8
  %differs = call i32 %memcmp(ptr %known.data, ptr %k.data, i64 %k.bytes)
  %k.same = icmp eq i32 %differs, 0
  br i1 %k.same, label %suits, label %other
suits:
  %adopts = icmp ne ptr %targets, null
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
  br i1 %idle, label %hire, label %team
hire:
  %call = load ptr, ptr %at.PyObject_CallNoArgs, align 8
  %start.callable = load ptr, ptr %at.start, align 8
  %hired = call ptr %call(ptr %start.callable)
  %interrupted = icmp eq ptr %hired, null
  br i1 %interrupted, label %raise, label %hired.drop
hired.drop:
  %drop0 = load ptr, ptr %at.Py_DecRef, align 8
  call void %drop0(ptr %hired)
  br label %team
raise:
  ret ptr null
team:
  %own.parallel.at = getelementptr i8, ptr %pool, i64 $pool_parallel
  %own.parallel = load atomic ptr, ptr %own.parallel.at monotonic, align 8
  %lone = icmp eq ptr %own.parallel, null
  br i1 %lone, label %other, label %aim
aim:
  %parallel = phi ptr [ null, %divide ], [ %own.parallel, %team ]
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
  %k = phi i64 [ 0, %gather ], [ %k.next, %noted ]
  %row.of.results = phi i64 [ 0, %gather ], [ %row.of.more, %noted ]
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
  %k.trailing.at = getelementptr i64, ptr %at.trailing, i64 %k
  %k.trailing = load i64, ptr %k.trailing.at, align 8
  %axisless = icmp eq i64 %k.trailing, 0
  %bare = and i1 %axisless, %single
  br i1 %bare, label %number.alone, label %create.array
create.array:
  %fresh = call ptr @create(ptr %context, i64 %rows, i64 %k)
  %full = icmp eq ptr %fresh, null
  br i1 %full, label %forget, label %describe
forget:
  %forgotten = phi i64 [ %k, %create.array ], [ %outputs, %bind ]
  %clear = load ptr, ptr %at.PyErr_Clear, align 8
  call void %clear()
  br label %discard
describe:
  %own.out = phi ptr [ %fresh, %create.array ], [ %wanted, %adopted ]
  %own.data.at = getelementptr i8, ptr %own.out, i64 $array_data
  %own.data = load ptr, ptr %own.data.at, align 8
  br label %noted
number.alone:
  %own.number = getelementptr i64, ptr %bare.numbers, i64 %k
  br label %noted
noted:
  %out = phi ptr [ %own.out, %describe ], [ null, %number.alone ]
  %out.data = phi ptr [ %own.data, %describe ], [ %own.number, %number.alone ]
  %out.at = getelementptr ptr, ptr %results, i64 %k
  store ptr %out, ptr %out.at, align 8
  %out.number = add i64 %inputs, %k
  %out.columns.at = getelementptr i64, ptr %at.columns, i64 %out.number
  %out.columns = load i64, ptr %out.columns.at, align 8
  %out.stride = mul i64 %out.columns, %itemsize
  %out.record = getelementptr %Record, ptr %table, i64 %out.number
  %out.record.stride = getelementptr %Record, ptr %out.record, i64 0, i32 1
  store ptr %out.data, ptr %out.record, align 8
  store i64 %out.stride, ptr %out.record.stride, align 8
  %row.of.more = add i64 %row.of.results, %out.stride
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
  %written = mul i64 %row.of.results, %count
  %lasting = icmp sgt i64 %written, $new_bytes
  %new = xor i1 %adopts, true
  %crowding = and i1 %lasting, %new
  %more.rows = mul i64 %count, %batch.given
  %weighed = select i1 %crowding, i64 %more.rows, i64 %count
  br label %fill.more
fill.more:
  %w = phi i64 [ 0, %fill ], [ %w.next, %fill.word ]
  %w.more = icmp slt i64 %w, %words
  br i1 %w.more, label %fill.word, label %lend
fill.word:
  %word.at = getelementptr i64, ptr %constants, i64 %w
  %word.to = getelementptr i64, ptr %constants.to, i64 %w
  %constant = load i64, ptr %word.at, align 8
  %is.last = icmp eq i64 %w, %last.word
  %is.batch = and i1 %is.last, %counts
  %word = select i1 %is.batch, i64 %weighed, i64 %constant
  store i64 %word, ptr %word.to, align 8
  %w.next = add i64 %w, 1
  br label %fill.more
lend:
  %drive = load i64, ptr %at.drive, align 8
  %driveless = icmp slt i64 %drive, 0
  br i1 %driveless, label %equip, label %borrow
borrow:
  %drive.columns.at = getelementptr i64, ptr %at.columns, i64 %drive
  %drive.columns = load i64, ptr %drive.columns.at, align 8
  %drive.row = mul i64 %drive.columns, %itemsize
  %drive.bytes = mul i64 %drive.row, %count
  %malloc0 = load ptr, ptr %at.PyMem_RawMalloc, align 8
  %loan = call ptr %malloc0(i64 %drive.bytes)
  %refused = icmp eq ptr %loan, null
  br i1 %refused, label %discard, label %borrowed
borrowed:
  %drive.record = getelementptr %Record, ptr %table, i64 %drive
  %drive.stride = getelementptr %Record, ptr %drive.record, i64 0, i32 1
  store ptr %loan, ptr %drive.record, align 8
  store i64 %drive.row, ptr %drive.stride, align 8
  br label %equip
equip:
  %lent = phi ptr [ null, %lend ], [ %loan, %borrowed ]
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
  br i1 %exhausted, label %return, label %prepare
return:
  %free0 = load ptr, ptr %at.PyMem_RawFree, align 8
  call void %free0(ptr %lent)
  br label %discard
prepare:
  %workspace = phi ptr [ null, %equip ], [ %scratch.memory, %claim ], [ %block.memory, %reserve ]
  %claimed = phi ptr [ null, %equip ], [ %scratch, %claim ], [ null, %reserve ]
  %reserved = phi ptr [ null, %equip ], [ null, %claim ], [ %block, %reserve ]
  %job.table = getelementptr %Job, ptr %job, i64 0, i32 1
  %job.kernel = getelementptr %Job, ptr %job, i64 0, i32 2
  %job.bad = getelementptr %Job, ptr %job, i64 0, i32 3
  %job.given = getelementptr %Job, ptr %job, i64 0, i32 4
  store ptr %given, ptr %job.given, align 8
  store ptr %context, ptr %job, align 8
  store ptr %table, ptr %job.table, align 8
  store ptr %query.kernel, ptr %job.kernel, align 8
  store atomic i32 0, ptr %job.bad monotonic, align 4
  %check = load i64, ptr %at.check, align 8
  %check.bit = lshr i64 %check, %axes
  %checks = trunc i64 %check.bit to i1
  %forces = load i64, ptr %at.forces, align 8
  %forced = icmp ne i64 %forces, 0
  %working = select i1 %forced, ptr @worked, ptr %query.kernel
  %kernel = select i1 %checks, ptr @checked, ptr %working
  %jobs = or i1 %checks, %forced
  %argument = select i1 %jobs, ptr %job, ptr %table
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
  %unlent = icmp eq ptr %lent, null
  br i1 %unlent, label %verdict, label %give.back
give.back:
  %free1 = load ptr, ptr %at.PyMem_RawFree, align 8
  call void %free1(ptr %lent)
  br label %verdict
verdict:
  %bad = load atomic i32, ptr %job.bad monotonic, align 4
  %good = icmp eq i32 %bad, 0
  br i1 %good, label %answer, label %discard
answer:
  br i1 %several, label %bind, label %only
only:
  %only.result = load ptr, ptr %results, align 8
  %only.answer = call ptr @handed(ptr %context, ptr %only.result, ptr %bare.numbers)
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
  %part.number = getelementptr i64, ptr %bare.numbers, i64 %p
  %part.answer = call ptr @handed(ptr %context, ptr %part, ptr %part.number)
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
  %made = phi i64 [ %k, %adopt ], [ %forgotten, %forget ], [ %outputs, %borrow ], [ %outputs, %return ],
    [ %outputs, %verdict ]
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
  ret ptr inttoptr (i64 -1 to ptr)
}
"""


def native_text(layout: Layout, pool_started: int, pool_parallel: int) -> str:
    """The module: `entry` is the C function of every built-in made of a `Front`.

    Args:
        layout: of the objects it reads.
        pool_started: bytes from a pool's start to the word that says whether its threads have started.
        pool_parallel: bytes to the address of the function that shares rows between them, null where there is none.
    """
    words = {
        **vars(layout),
        "addresses": _addresses("at.{}", "context", Context),
        "version_addresses": _addresses("by.{}", "version", Version),
        "front_addresses": _addresses("front.{}", "front", Front),
        "form_addresses": _addresses("form.{}.at", "form", Form),
        "slot_addresses": _addresses("slot.{}", "slot.own", Slot),
        "version_bytes": ctypes.sizeof(Version),
        "form_bytes": ctypes.sizeof(Form),
        "slot_bytes": ctypes.sizeof(Slot),
        "max_records": MAX_INPUTS + MAX_OUTPUTS + MAX_CONSTANTS // 2,
        "max_inputs": MAX_INPUTS,
        "max_outputs": MAX_OUTPUTS,
        "max_trailing": MAX_TRAILING,
        "max_places": MAX_SLOTS,
        "max_types": MAX_TYPES,
        "axes": MAX_TRAILING + 1,
        "new_bytes": STREAMED_BYTES // CROWD,
        "pool_started": pool_started,
        "pool_parallel": pool_parallel,
        "hash": HASH - (1 << 64),
        "ARRAY": ARRAY,
        "OUT": OUT,
        "CHOICE": CHOICE,
        "writeable_contiguous": 0x0401,  # NPY_ARRAY_WRITEABLE and NPY_ARRAY_C_CONTIGUOUS
    }
    around = joint_forces_text(words) + checks_text(words) + results_text(words)
    return _TYPES + around + Template(_ANSWER).substitute(words) + forms_text(words)


def _addresses(name: str, base: str, struct: type[ctypes.Structure]) -> str:
    """Lines that find the fields of a struct."""
    lines = (
        f"  %{name.format(field)} = getelementptr i8, ptr %{base}, i64 {getattr(struct, field).offset}"
        for field, *_ in struct._fields_
    )
    return "\n".join(lines).strip()
