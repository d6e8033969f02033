"""The code around kernels of batches (`robodyn.engines.cpu.past_caches`), in LLVM's language.

A function for each number of arrays (`robodyn.engines.cpu.around`). Behind the arrays its table has one constant, the
descriptor, and the rows of the whole batch. The descriptor, 64-bit integers:

    address of the query's kernel, its constants in pairs of words, number of inputs, bytes of a row of all results,
    rows that go to the buffer at once, address of the kernel for large batches or 0, rows of a vector, what an address
    is and-ed with to be that of a vector, bytes of a row of all arrays or 0 if they do not count, whether the kernel
    for large batches claims lines and has the user's arrays, or copies on the way, number of the word at which tables
    begin;
    for each result the bytes of a row, and a place in the workspace, on the next page to which its buffer begins;
    the constants;
    for each result a table, by how far rows begin behind a line, in words of four bytes: how far behind the beginning
    of a page the buffer is to be, so that few stores lie across two pages.
"""

from __future__ import annotations

from robodyn.codegen.llvm.streaming import streamed_bytes
from robodyn.codegen.llvm.target import Target
from robodyn.engines.cpu.around import MAX_ARRAYS, entries_text

LINE = 64
TABLE = LINE // 4
"""Words of a table."""
MAX_PAIRS = 64
"""Pairs of a kernel's constants at most."""
HEAD, PAGE = 11, 4096
"""Words of the descriptor before those of results."""
_FENCE, _STREAMED = "  ; fence\n", "STREAMED_BYTES"
_MOVED_BYTES = 1 << 25
"""Arguments and results of a batch from which these are written past the caches as well, however small they are: the
arguments have cleared the caches anyway."""

_CLAIMED_BYTES = 1 << 20
"""Arguments and results of a batch from which lines are claimed: the second cache of most processors holds no more."""

_COPIES = f"""\
; Words of four bytes, from offset %first to offset %last.
define internal void @words(ptr %to, ptr %from, i64 %first, i64 %last) {{
entry:
  br label %look
look:
  %k = phi i64 [ %first, %entry ], [ %next, %one ]
  %more = icmp slt i64 %k, %last
  br i1 %more, label %one, label %done
one:
  %k.from = getelementptr i8, ptr %from, i64 %k
  %k.to = getelementptr i8, ptr %to, i64 %k
  %value = load i32, ptr %k.from, align 4
  store i32 %value, ptr %k.to, align 4
  %next = add i64 %k, 4
  br label %look
done:
  ret void
}}

; %bytes that are whole lines, one of them or more.
define internal void @lines(ptr %to, ptr %from, i64 %bytes) {{
entry:
  br label %line
line:
  %k = phi i64 [ 0, %entry ], [ %next, %line ]
  %k.from = getelementptr i8, ptr %from, i64 %k
  %k.to = getelementptr i8, ptr %to, i64 %k
  %value = load <8 x i64>, ptr %k.from, align {LINE}
  store <8 x i64> %value, ptr %k.to, align {LINE}
  %next = add i64 %k, {LINE}
  %more = icmp slt i64 %next, %bytes
  br i1 %more, label %line, label %done
done:
  ret void
}}

; %bytes from a buffer; both are aligned to four bytes.
define internal void @past(ptr %to, ptr %from, i64 %bytes) {{
entry:
  %word = ptrtoint ptr %to to i64
  %up = sub i64 0, %word
  %before = and i64 %up, {LINE - 1}
  %short = call i64 @llvm.smin.i64(i64 %before, i64 %bytes)
  %left = sub i64 %bytes, %short
  %middle = and i64 %left, -{LINE}
  %tail = add i64 %short, %middle
  call void @words(ptr %to, ptr %from, i64 0, i64 %short)
  br label %look
look:
  %k = phi i64 [ %short, %entry ], [ %next, %line ]
  %more = icmp slt i64 %k, %tail
  br i1 %more, label %line, label %end
line:
  %k.from = getelementptr i8, ptr %from, i64 %k
  %k.to = getelementptr i8, ptr %to, i64 %k
  %value = load <8 x i64>, ptr %k.from, align 4
  store <8 x i64> %value, ptr %k.to, align {LINE}, !nontemporal !0
  %next = add i64 %k, {LINE}
  br label %look
end:
  call void @words(ptr %to, ptr %from, i64 %tail, i64 %bytes)
  ret void
}}

"""
"""@words, @lines and @past: copies of memory."""

_RUN = f"""\
define void @run(ptr %table, i64 %arrays, i64 %first, i64 %last, ptr %workspace) {{
entry:
  %own = alloca [{MAX_ARRAYS + MAX_PAIRS} x %Pair], align 16
  %descriptor.at = getelementptr %Pair, ptr %table, i64 %arrays
  %descriptor = load ptr, ptr %descriptor.at, align 8
  %batch.at = getelementptr %Pair, ptr %table, i64 %arrays, i32 1
  %batch = load i64, ptr %batch.at, align 8
  %kernel = load ptr, ptr %descriptor, align 8
  %pairs.at = getelementptr i64, ptr %descriptor, i64 1
  %pairs = load i64, ptr %pairs.at, align 8
  %inputs.at = getelementptr i64, ptr %descriptor, i64 2
  %inputs = load i64, ptr %inputs.at, align 8
  %bytes.at = getelementptr i64, ptr %descriptor, i64 3
  %bytes = load i64, ptr %bytes.at, align 8
  %rows.at = getelementptr i64, ptr %descriptor, i64 4
  %rows = load i64, ptr %rows.at, align 8
  %results = getelementptr i64, ptr %descriptor, i64 {HEAD}
  %outputs = sub i64 %arrays, %inputs
  %constants = getelementptr %Pair, ptr %results, i64 %outputs
  %own.constants = getelementptr %Pair, ptr %own, i64 %arrays
  %moved.at = getelementptr i64, ptr %descriptor, i64 8
  %moved = load i64, ptr %moved.at, align 8
  %written = mul i64 %bytes, %batch
  %large.results = icmp sgt i64 %written, {_STREAMED}
  %all = mul i64 %moved, %batch
  %large.arrays = icmp sgt i64 %all, {_MOVED_BYTES}
  %large = or i1 %large.results, %large.arrays
  br label %copy
copy:
  %k = phi i64 [ 0, %entry ], [ %k.next, %copy ]
  %k.from = getelementptr %Pair, ptr %table, i64 %k
  %k.to = getelementptr %Pair, ptr %own, i64 %k
  %pair = load <2 x i64>, ptr %k.from, align 8
  store <2 x i64> %pair, ptr %k.to, align 16
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, %arrays
  br i1 %k.more, label %copy, label %constant
constant:
  %c = phi i64 [ 0, %copy ], [ %c.next, %constant.one ]
  %c.more = icmp slt i64 %c, %pairs
  br i1 %c.more, label %constant.one, label %way
constant.one:
  %c.from = getelementptr %Pair, ptr %constants, i64 %c
  %c.to = getelementptr %Pair, ptr %own.constants, i64 %c
  %c.pair = load <2 x i64>, ptr %c.from, align 8
  store <2 x i64> %c.pair, ptr %c.to, align 16
  %c.next = add i64 %c, 1
  br label %constant
way:
  %claims.at = getelementptr i64, ptr %descriptor, i64 9
  %claims.word = load i64, ptr %claims.at, align 8
  %claims = icmp ne i64 %claims.word, 0
  br i1 %claims, label %claimed, label %look
claimed:
  %other.at = getelementptr i64, ptr %descriptor, i64 5
  %other = load ptr, ptr %other.at, align 8
  %beyond = icmp sgt i64 %all, {_CLAIMED_BYTES}
  %either = select i1 %beyond, ptr %other, ptr %kernel
  call void %either(ptr %own, i64 %first, i64 %last, ptr %workspace)
  ret void
look:
  %o = phi i64 [ 0, %way ], [ %o.next, %look.one ]
  %fit = phi i1 [ %large, %way ], [ %fit.next, %look.one ]
  %o.more = icmp slt i64 %o, %outputs
  br i1 %o.more, label %look.one, label %decide
look.one:
  %o.number = add i64 %inputs, %o
  %o.result = getelementptr %Pair, ptr %results, i64 %o
  %o.bytes = load i64, ptr %o.result, align 8
  %o.at = getelementptr %Pair, ptr %table, i64 %o.number
  %o.stride.at = getelementptr %Pair, ptr %o.at, i64 0, i32 1
  %o.data = load i64, ptr %o.at, align 8
  %o.stride = load i64, ptr %o.stride.at, align 8
  %o.dense = icmp eq i64 %o.stride, %o.bytes
  %o.odd = and i64 %o.data, 3
  %o.even = icmp eq i64 %o.odd, 0
  %o.good = and i1 %o.dense, %o.even
  %fit.next = and i1 %fit, %o.good
  %o.next = add i64 %o, 1
  br label %look
decide:
  br i1 %fit, label %choose, label %through
choose:
  %copying.at = getelementptr i64, ptr %descriptor, i64 5
  %copying = load i64, ptr %copying.at, align 8
  %copies = icmp ne i64 %copying, 0
  %vector.at = getelementptr i64, ptr %descriptor, i64 6
  %vector = load i64, ptr %vector.at, align 8
  %two = mul i64 %vector, 2
  %third = add i64 %first, %two
  %several = icmp sle i64 %third, %last
  %overlaps = and i1 %copies, %several
  br i1 %overlaps, label %overlapped, label %piece
overlapped:
  call void @overlapped(ptr %table, ptr %own, ptr %descriptor, i64 %arrays, i64 %first, i64 %last, ptr %workspace)
  br label %done
through:
  call void %kernel(ptr %own, i64 %first, i64 %last, ptr %workspace)
  ret void
piece:
  %row = phi i64 [ %first, %choose ], [ %stop, %write.next ]
  %far = add i64 %row, %rows
  %stop = call i64 @llvm.smin.i64(i64 %far, i64 %last)
  %some = icmp slt i64 %row, %last
  br i1 %some, label %aim, label %done
aim:
  call void @aim(ptr %table, ptr %own, ptr %descriptor, i64 %outputs, i64 %row, i64 0, ptr %workspace)
  call void %kernel(ptr %own, i64 %row, i64 %stop, ptr %workspace)
  br label %write
write:
  %w = phi i64 [ 0, %aim ], [ %w.next, %write.one ]
  %w.more = icmp slt i64 %w, %outputs
  br i1 %w.more, label %write.one, label %write.next
write.one:
  call void @write(ptr %table, ptr %descriptor, i64 %w, i64 %row, i64 0, i64 %row, i64 %stop, i64 -1, ptr %workspace)
  %w.next = add i64 %w, 1
  br label %write
write.next:
  br label %piece
done:
{_FENCE}  ret void
}}

"""
"""@run: decides, and computes and copies in turns; to be given what waits for lines that are on their way."""

_PARTS = f"""\
; Results of the kernel are what buffer %turn holds from row %row on.
define internal void @aim(ptr %table, ptr %own, ptr %descriptor, i64 %outputs, i64 %row, i64 %turn, ptr %workspace) {{
entry:
  %inputs.at = getelementptr i64, ptr %descriptor, i64 2
  %inputs = load i64, ptr %inputs.at, align 8
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %next, %one ]
  %more = icmp slt i64 %k, %outputs
  br i1 %more, label %one, label %done
one:
  %buffer = call i64 @buffer(ptr %table, ptr %descriptor, i64 %k, i64 %row, i64 %turn, ptr %workspace)
  %result = getelementptr i64, ptr %descriptor, i64 {HEAD}
  %pair = getelementptr %Pair, ptr %result, i64 %k
  %bytes = load i64, ptr %pair, align 8
  %offset = mul i64 %bytes, %row
  %base = sub i64 %buffer, %offset
  %number = add i64 %inputs, %k
  %to = getelementptr %Pair, ptr %own, i64 %number
  store i64 %base, ptr %to, align 16
  %next = add i64 %k, 1
  br label %look
done:
  ret void
}}

; Rows %from to %to of result %k go from buffer %turn, which begins with row %row, to memory, and what is before them
; from an address on that is and-ed with %mask.
define internal void @write(ptr %table, ptr %descriptor, i64 %k, i64 %row, i64 %turn, i64 %from, i64 %to, i64 %mask, \
ptr %workspace) {{
  %buffer = call i64 @buffer(ptr %table, ptr %descriptor, i64 %k, i64 %row, i64 %turn, ptr %workspace)
  %place = call i64 @place(ptr %table, ptr %descriptor, i64 %k, i64 %from)
  %begin = call i64 @place(ptr %table, ptr %descriptor, i64 %k, i64 %row)
  %end = call i64 @place(ptr %table, ptr %descriptor, i64 %k, i64 %to)
  %aligned = and i64 %place, %mask
  %into = sub i64 %aligned, %begin
  %source = add i64 %buffer, %into
  %bytes = sub i64 %end, %aligned
  %to.at = inttoptr i64 %aligned to ptr
  %from.at = inttoptr i64 %source to ptr
  call void @past(ptr %to.at, ptr %from.at, i64 %bytes)
  ret void
}}

"""
"""@aim and @write: a kernel writes to a buffer, and a buffer is written to memory."""

_OVERLAPPED = f"""\
; The first line of the first W states, as far as it is theirs, is written by itself; so the copies of these begin with
; the line behind it. The last one of them is not complete yet, and written again by the next copies, which begin with
; some bytes of the rows before: up to 63, which may be in two lines of a buffer that is less far off a line.
define internal void @overlapped(ptr %table, ptr %own, ptr %descriptor, i64 %arrays, i64 %first, i64 %last, \
ptr %workspace) {{
entry:
  %kernel = load ptr, ptr %descriptor, align 8
  %inputs.at = getelementptr i64, ptr %descriptor, i64 2
  %inputs = load i64, ptr %inputs.at, align 8
  %rows.at = getelementptr i64, ptr %descriptor, i64 4
  %rows = load i64, ptr %rows.at, align 8
  %copying.at = getelementptr i64, ptr %descriptor, i64 5
  %copying = load ptr, ptr %copying.at, align 8
  %vector.at = getelementptr i64, ptr %descriptor, i64 6
  %vector = load i64, ptr %vector.at, align 8
  %mask.at = getelementptr i64, ptr %descriptor, i64 7
  %mask = load i64, ptr %mask.at, align 8
  %up = xor i64 %mask, -1
  %turns = icmp eq i64 %rows, %vector
  %flip = zext i1 %turns to i64
  %results = getelementptr i64, ptr %descriptor, i64 {HEAD}
  %outputs = sub i64 %arrays, %inputs
  %pairs = getelementptr %Pair, ptr %own, i64 %arrays
  %second = add i64 %first, %vector
  call void @aim(ptr %table, ptr %own, ptr %descriptor, i64 %outputs, i64 %first, i64 0, ptr %workspace)
  call void %kernel(ptr %own, i64 %first, i64 %second, ptr %workspace)
  br label %begin
begin:
  %b = phi i64 [ 0, %entry ], [ %b.next, %begin.one ]
  %b.more = icmp slt i64 %b, %outputs
  br i1 %b.more, label %begin.one, label %piece
begin.one:
  %b.place = call i64 @place(ptr %table, ptr %descriptor, i64 %b, i64 %first)
  %b.buffer = call i64 @buffer(ptr %table, ptr %descriptor, i64 %b, i64 %first, i64 0, ptr %workspace)
  %b.back = sub i64 0, %b.place
  %b.bytes = and i64 %b.back, %up
  %b.to = inttoptr i64 %b.place to ptr
  %b.from = inttoptr i64 %b.buffer to ptr
  call void @words(ptr %b.to, ptr %b.from, i64 0, i64 %b.bytes)
  %b.next = add i64 %b, 1
  br label %begin
piece:
  %before = phi i64 [ %first, %begin ], [ %row, %work ]
  %row = phi i64 [ %second, %begin ], [ %stop, %work ]
  %turn = phi i64 [ 0, %begin ], [ %turn.next, %work ]
  %bump = phi i64 [ %up, %begin ], [ 0, %work ]
  %step = phi i64 [ %vector, %begin ], [ %rows, %work ]
  %turn.next = xor i64 %turn, %flip
  %far = add i64 %row, %step
  %stop = call i64 @llvm.smin.i64(i64 %far, i64 %last)
  %some = icmp slt i64 %row, %last
  br i1 %some, label %some.rows, label %end
some.rows:
  %pending.row = sub i64 %row, %vector
  %behind = sub i64 %pending.row, %before
  br label %move
move:
  %m = phi i64 [ 0, %some.rows ], [ %m.next, %move.one ]
  %m.more = icmp slt i64 %m, %outputs
  br i1 %m.more, label %move.one, label %work
move.one:
  %bytes.at = getelementptr %Pair, ptr %results, i64 %m
  %bytes = load i64, ptr %bytes.at, align 8
  %span = mul i64 %bytes, %vector
  %old = call i64 @buffer(ptr %table, ptr %descriptor, i64 %m, i64 %before, i64 %turn, ptr %workspace)
  %new = call i64 @buffer(ptr %table, ptr %descriptor, i64 %m, i64 %row, i64 %turn.next, ptr %workspace)
  %into = mul i64 %bytes, %behind
  %pending = add i64 %old, %into
  %pending.end = add i64 %pending, %span
  %room = sub i64 %new, %span
  %long = add i64 %span, {2 * LINE}
  %source = select i1 %turns, i64 %pending.end, i64 %pending
  %target = select i1 %turns, i64 %new, i64 %room
  %size = select i1 %turns, i64 {2 * LINE}, i64 %long
  %left = select i1 %turns, i64 %pending, i64 %room
  %source.line = and i64 %source, -{LINE}
  %target.line = and i64 %target, -{LINE}
  %source.before = sub i64 %source.line, {LINE}
  %target.before = sub i64 %target.line, {LINE}
  %line.from = inttoptr i64 %source.before to ptr
  %line.to = inttoptr i64 %target.before to ptr
  call void @lines(ptr %line.to, ptr %line.from, i64 %size)
  %offset = mul i64 %bytes, %row
  %place = call i64 @place(ptr %table, ptr %descriptor, i64 %m, i64 %pending.row)
  %place.up = add i64 %place, %bump
  %to = and i64 %place.up, %mask
  %to.base = sub i64 %to, %offset
  %ahead = sub i64 %to, %place
  %from = add i64 %left, %ahead
  %from.base = sub i64 %from, %offset
  %twice = mul i64 %m, 2
  %from.pair = getelementptr %Pair, ptr %pairs, i64 %twice
  %from.bytes = getelementptr %Pair, ptr %from.pair, i64 0, i32 1
  %to.pair = getelementptr %Pair, ptr %from.pair, i64 1
  %to.bytes = getelementptr %Pair, ptr %to.pair, i64 0, i32 1
  store i64 %from.base, ptr %from.pair, align 16
  store i64 %bytes, ptr %from.bytes, align 8
  store i64 %to.base, ptr %to.pair, align 16
  store i64 %bytes, ptr %to.bytes, align 8
  %m.next = add i64 %m, 1
  br label %move
work:
  call void @aim(ptr %table, ptr %own, ptr %descriptor, i64 %outputs, i64 %row, i64 %turn.next, ptr %workspace)
  call void %copying(ptr %own, i64 %row, i64 %stop, ptr %workspace)
  br label %piece
end:
  %all = sub i64 %last, %before
  %but.one = sub i64 %all, 1
  %whole = udiv i64 %but.one, %vector
  %skipped = mul i64 %whole, %vector
  %final = add i64 %before, %skipped
  br label %finish
finish:
  %f = phi i64 [ 0, %end ], [ %f.next, %finish.one ]
  %f.more = icmp slt i64 %f, %outputs
  br i1 %f.more, label %finish.one, label %done
finish.one:
  call void @write(ptr %table, ptr %descriptor, i64 %f, i64 %before, i64 %turn, i64 %final, i64 %last, i64 %mask, \
ptr %workspace)
  %f.next = add i64 %f, 1
  br label %finish
done:
  ret void
}}

"""
"""@overlapped: copies while it computes."""

_PLACES = f"""\
; Where row %row of result %k is in memory.
define internal i64 @place(ptr %table, ptr %descriptor, i64 %k, i64 %row) {{
  %inputs.at = getelementptr i64, ptr %descriptor, i64 2
  %inputs = load i64, ptr %inputs.at, align 8
  %number = add i64 %inputs, %k
  %at = getelementptr %Pair, ptr %table, i64 %number
  %data = load i64, ptr %at, align 8
  %results = getelementptr i64, ptr %descriptor, i64 {HEAD}
  %result = getelementptr %Pair, ptr %results, i64 %k
  %bytes = load i64, ptr %result, align 8
  %rows = mul i64 %bytes, %row
  %place = add i64 %data, %rows
  ret i64 %place
}}

; Where a buffer of result %k begins for rows from %row on, the only one or the first of two (%turn is 0) or the second:
; as far off a line as the user's, but that rows whose bytes are a multiple of 16, 32 or 64 begin at such a one. What is
; stored across lines, when others are on their way past the caches, takes twice the time on a Zen 3, and across pages a
; hundred times as long on a Zen 4: which stores these are a table decides.
define internal i64 @buffer(ptr %table, ptr %descriptor, i64 %k, i64 %row, i64 %turn, ptr %workspace) {{
  %results = getelementptr i64, ptr %descriptor, i64 {HEAD}
  %result = getelementptr %Pair, ptr %results, i64 %k
  %place = call i64 @place(ptr %table, ptr %descriptor, i64 %k, i64 %row)
  %bytes = load i64, ptr %result, align 8
  %opposite = sub i64 0, %bytes
  %multiple = and i64 %bytes, %opposite
  %grain = call i64 @llvm.smin.i64(i64 %multiple, i64 {LINE})
  %grains = sub i64 0, %grain
  %within = and i64 %place, {LINE - 1}
  %off = and i64 %within, %grains
  %offset.at = getelementptr %Pair, ptr %result, i64 0, i32 1
  %offset = load i64, ptr %offset.at, align 8
  %base = ptrtoint ptr %workspace to i64
  %vector.at = getelementptr i64, ptr %descriptor, i64 6
  %vector = load i64, ptr %vector.at, align 8
  %span = mul i64 %bytes, %vector
  %room = add i64 %span, {4 * LINE + PAGE - 1}
  %apart = and i64 %room, -{PAGE}
  %far = mul i64 %turn, %apart
  %tables.at = getelementptr i64, ptr %descriptor, i64 10
  %tables = load i64, ptr %tables.at, align 8
  %word = lshr i64 %off, 2
  %words.before = mul i64 %k, {TABLE}
  %first = add i64 %tables, %words.before
  %number.of.word = add i64 %first, %word
  %shift.at = getelementptr i64, ptr %descriptor, i64 %number.of.word
  %shift = load i64, ptr %shift.at, align 8
  %place.in.space = add i64 %base, %offset
  %up = add i64 %place.in.space, {PAGE - 1}
  %page = and i64 %up, -{PAGE}
  %one = add i64 %page, %shift
  %start = add i64 %one, %far
  %buffer = add i64 %start, %off
  ret i64 %buffer
}}
"""
"""@place and @buffer: where things are."""


def module_text(target: Target) -> str:
    """The module; the same for every robot."""
    fences = target.triple.startswith("x86_64")
    declaration = "declare void @llvm.x86.sse.sfence()\n" if fences else ""
    fence = "  call void @llvm.x86.sse.sfence()\n" if fences else ""
    run = _RUN.replace(_FENCE, fence).replace(_STREAMED, str(streamed_bytes(target)))
    functions = _COPIES + run + _PARTS + _OVERLAPPED + _PLACES
    return f"""{declaration}
%Pair = type {{ i64, i64 }}

{functions}declare i64 @llvm.smin.i64(i64, i64)
{entries_text()}
!0 = !{{i32 1}}
"""
