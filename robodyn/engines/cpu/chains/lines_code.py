"""The code around programs that write lines of results on the way (`chains.lines`), in LLVM's language.

A function for each number of arrays (`robodyn.engines.cpu.around`). Behind the arrays its table has one constant, the
descriptor, and the rows of the whole batch. The descriptor, 64-bit integers:

    address of the kernel that brings vectors to rows at once, and its constant; number of inputs, address of the
    program, of what finishes its lines, and of a table of no lines; bytes of that; bytes from one place for vectors in
    the workspace to the other, behind which are saved registers, the program's words and a table of lines; number of
    gaps; bytes of a row of all results, bytes of results of a batch above which lines go past the caches, whether the
    other kernel does that better, and bytes of results of a batch up to which the other kernel takes less time;
    for each result the bytes of a row, where its first vector is in the workspace, addresses of the functions that
    write its lines past the caches, to them, and to rows that follow one another, that of its tables of lines, and
    bytes of each;
    for each gap where it is, and how many bytes it has.

A group is as many vectors of W rows as a line has scalars, L: vector v has rows v, v + L, v + 2 L ... of the group.
While a vector is computed, the lines of the one before are written, but for those that its rows share with rows of
another vector that is still to come, or of another group: what rows of the first vector have of the line that they
begin in, and rows of the last one of the line that they end in, is written scalar by scalar.

Rows that are left over are W after W that follow one another. Their lines are those of a row that begins with one, and
are written where the row is; what is behind the last whole one is written scalar by scalar. The last W rows of all can
have some of those before, which are computed twice then.
"""

from __future__ import annotations

from robodyn.codegen.llvm.vectors import VectorType
from robodyn.codegen.x86.lines import ARRAYS_WORD, ENTRY_WORD, LINE, NOTHING, SAVED_BYTES, SOURCE_WORD
from robodyn.engines.cpu.around import MAX_ARRAYS, entries_text

HEAD, RESULT_WORDS = 13, 7
"""Words of the descriptor before those of results, and of each of these."""
_MAX_ROW_BYTES = 1 << 11
"""Of an input whose next rows are fetched."""

_PARTS = f"""\
define internal i64 @word(ptr %words, i64 %k) alwaysinline {{
  %at = getelementptr i64, ptr %words, i64 %k
  %word = load i64, ptr %at, align 8
  ret i64 %word
}}

; Of array %k, where it is (%field 0) or bytes from one row to the next (1).
define internal i64 @array(ptr %table, i64 %k, i64 %field) alwaysinline {{
  %twice = mul i64 %k, 2
  %number = add i64 %twice, %field
  %word = call i64 @word(ptr %table, i64 %number)
  ret i64 %word
}}

; Word %field of result %k.
define internal i64 @result(ptr %descriptor, i64 %k, i64 %field) alwaysinline {{
  %words = mul i64 %k, {RESULT_WORDS}
  %more = add i64 %words, {HEAD}
  %number = add i64 %more, %field
  %word = call i64 @word(ptr %descriptor, i64 %number)
  ret i64 %word
}}

define internal void @set(ptr %words, i64 %k, i64 %word) alwaysinline {{
  %at = getelementptr i64, ptr %words, i64 %k
  store i64 %word, ptr %at, align 8
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
  %value = load <8 x i64>, ptr %k.from, align VECTOR
  store <8 x i64> %value, ptr %k.to, align VECTOR
  %next = add i64 %k, {LINE}
  %more = icmp slt i64 %next, %bytes
  br i1 %more, label %line, label %done
done:
  ret void
}}

; Whether all results are rows without gaps between them, at addresses of scalars.
define internal i1 @dense(ptr %table, ptr %descriptor, i64 %inputs, i64 %arrays, i64 %itemsize) {{
entry:
  %mask = sub i64 %itemsize, 1
  br label %look
look:
  %k = phi i64 [ %inputs, %entry ], [ %next, %one ]
  %good = phi i1 [ true, %entry ], [ %both, %one ]
  %more = icmp slt i64 %k, %arrays
  br i1 %more, label %one, label %done
one:
  %number = sub i64 %k, %inputs
  %data = call i64 @array(ptr %table, i64 %k, i64 0)
  %stride = call i64 @array(ptr %table, i64 %k, i64 1)
  %bytes = call i64 @result(ptr %descriptor, i64 %number, i64 0)
  %dense = icmp eq i64 %stride, %bytes
  %odd = and i64 %data, %mask
  %even = icmp eq i64 %odd, 0
  %fits = and i1 %dense, %even
  %both = and i1 %good, %fits
  %next = add i64 %k, 1
  br label %look
done:
  ret i1 %good
}}

; Whether results of %batch rows are more bytes than word %k says.
define internal i1 @exceed(ptr %descriptor, i64 %batch, i64 %k) {{
  %bytes = call i64 @word(ptr %descriptor, i64 9)
  %limit = call i64 @word(ptr %descriptor, i64 %k)
  %all = mul i64 %bytes, %batch
  %more = icmp sgt i64 %all, %limit
  ret i1 %more
}}

; The vectors of lines that are never written, in both places.
define internal void @zeros(ptr %descriptor, i64 %outputs, ptr %workspace) {{
entry:
  %gaps = call i64 @word(ptr %descriptor, i64 8)
  %far = call i64 @word(ptr %descriptor, i64 7)
  %words = mul i64 %outputs, {RESULT_WORDS}
  %first = add i64 %words, {HEAD}
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %next, %one ]
  %more = icmp slt i64 %k, %gaps
  br i1 %more, label %one, label %done
one:
  %twice = mul i64 %k, 2
  %number = add i64 %first, %twice
  %behind = add i64 %number, 1
  %offset = call i64 @word(ptr %descriptor, i64 %number)
  %bytes = call i64 @word(ptr %descriptor, i64 %behind)
  %at = getelementptr i8, ptr %workspace, i64 %offset
  %other = getelementptr i8, ptr %at, i64 %far
  call void @llvm.memset.p0.i64(ptr align VECTOR %other, i8 0, i64 %bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr align VECTOR %at, i8 0, i64 %bytes, i1 false)
  %next = add i64 %k, 1
  br label %look
done:
  ret void
}}

; Of W rows that are %apart bytes apart, some scalars from %to on, which are vectors from %from on.
define internal void @edge(i64 %to, i64 %apart, ptr %from, i64 %count) {{
entry:
  br label %row
row:
  %j = phi i64 [ 0, %entry ], [ %j.next, %row.next ]
  %behind = mul i64 %j, %apart
  %place = add i64 %to, %behind
  br label %look
look:
  %k = phi i64 [ 0, %row ], [ %k.next, %one ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %row.next
one:
  %k.bytes = mul i64 %k, ITEMSIZE
  %address = add i64 %place, %k.bytes
  %at = inttoptr i64 %address to ptr
  %vector = mul i64 %k, VECTOR
  %lane = mul i64 %j, ITEMSIZE
  %offset = add i64 %vector, %lane
  %source = getelementptr i8, ptr %from, i64 %offset
  %value = load INTEGER, ptr %source, align ITEMSIZE
  store INTEGER %value, ptr %at, align ITEMSIZE
  %k.next = add i64 %k, 1
  br label %look
row.next:
  %j.next = add i64 %j, 1
  %j.more = icmp slt i64 %j.next, WIDTH
  br i1 %j.more, label %row, label %done
done:
  ret void
}}

; The first row of vector %i from row %start on: of a group, or of rows that follow one another, of whose last W rows
; the first is %top.
define internal i64 @first_row(i64 %start, i64 %i, i1 %following, i64 %top) alwaysinline {{
  %v = and i64 %i, SPAN_BITS
  %group = and i64 %i, GROUP_BITS
  %group.rows = mul i64 %group, WIDTH
  %inside = add i64 %group.rows, %v
  %spread = add i64 %start, %inside
  %before = mul i64 %i, WIDTH
  %along = add i64 %start, %before
  %too.far = icmp sgt i64 %along, %top
  %clipped = select i1 %too.far, i64 %top, i64 %along
  %row = select i1 %following, i64 %clipped, i64 %spread
  ret i64 %row
}}

; Rows %row, %row + %apart ... of inputs on their way to the cache.
define internal void @fetch(ptr %table, i64 %inputs, i64 %row, i64 %apart) {{
entry:
  br label %input
input:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %more = icmp slt i64 %k, %inputs
  br i1 %more, label %one, label %done
one:
  %data = call i64 @array(ptr %table, i64 %k, i64 0)
  %stride = call i64 @array(ptr %table, i64 %k, i64 1)
  %any = icmp sgt i64 %stride, 0
  %few = icmp sle i64 %stride, {_MAX_ROW_BYTES}
  %some = and i1 %any, %few
  br i1 %some, label %rows, label %next
rows:
  %j = phi i64 [ 0, %one ], [ %j.next, %rows.next ]
  %ahead = mul i64 %j, %apart
  %number = add i64 %row, %ahead
  %begin = mul i64 %number, %stride
  %place = add i64 %data, %begin
  br label %line
line:
  %b = phi i64 [ 0, %rows ], [ %b.next, %line ]
  %address = add i64 %place, %b
  %at = inttoptr i64 %address to ptr
  call void @llvm.prefetch.p0(ptr %at, i32 0, i32 3, i32 1)
  %b.next = add i64 %b, {LINE}
  %b.more = icmp slt i64 %b.next, %stride
  br i1 %b.more, label %line, label %rows.next
rows.next:
  %j.next = add i64 %j, 1
  %j.more = icmp slt i64 %j.next, WIDTH
  br i1 %j.more, label %rows, label %next
next:
  %k.next = add i64 %k, 1
  br label %input
done:
  ret void
}}

"""


def _run(kind: VectorType) -> str:
    W, L, bits = kind.width, LINE // kind.itemsize, kind.width.bit_length() - 1
    near = L * kind.bytes
    return f"""\
define void @run(ptr %table, i64 %arrays, i64 %first, i64 %last, ptr %workspace) {{
entry:
  %own = alloca [{MAX_ARRAYS + 1} x %Pair], align 16
  %descriptor.word = call i64 @array(ptr %table, i64 %arrays, i64 0)
  %descriptor = inttoptr i64 %descriptor.word to ptr
  %batch = call i64 @array(ptr %table, i64 %arrays, i64 1)
  %plain.word = call i64 @word(ptr %descriptor, i64 0)
  %plain = inttoptr i64 %plain.word to ptr
  %constant = call i64 @word(ptr %descriptor, i64 1)
  %inputs = call i64 @word(ptr %descriptor, i64 2)
  %outputs = sub i64 %arrays, %inputs
  %own.bytes = mul i64 %arrays, 16
  call void @llvm.memcpy.p0.p0.i64(ptr align 16 %own, ptr align 8 %table, i64 %own.bytes, i1 false)
  %behind = mul i64 %arrays, 2
  %behind.next = add i64 %behind, 1
  call void @set(ptr %own, i64 %behind, i64 %constant)
  call void @set(ptr %own, i64 %behind.next, i64 %batch)
  %dense = call i1 @dense(ptr %table, ptr %descriptor, i64 %inputs, i64 %arrays, i64 {kind.itemsize})
  %left = sub i64 %last, %first
  %enough = icmp sge i64 %left, {W}
  %can = and i1 %dense, %enough
  %large = call i1 @exceed(ptr %descriptor, i64 %batch, i64 10)
  %other.word = call i64 @word(ptr %descriptor, i64 11)
  %other = icmp ne i64 %other.word, 0
  %better = and i1 %large, %other
  %worse = xor i1 %better, true
  %worth = call i1 @exceed(ptr %descriptor, i64 %batch, i64 12)
  %both = and i1 %worth, %worse
  %good = and i1 %can, %both
  br i1 %good, label %begin, label %through
through:
  call void %plain(ptr %own, i64 %first, i64 %last, ptr %workspace)
  ret void
begin:
  %rows = and i64 %left, {-W * L}
  %vectors = lshr i64 %rows, {bits}
  %stop = add i64 %first, %rows
  %some = icmp sgt i64 %rows, 0
  br i1 %some, label %groups, label %grouped
groups:
  call void @vectors(ptr %table, ptr %own, ptr %descriptor, i64 %arrays, i1 %large, i64 %first, i64 %vectors, \
i1 false, i64 0, ptr %workspace)
  br label %grouped
grouped:
  %some.behind = icmp slt i64 %stop, %last
  br i1 %some.behind, label %following, label %done
following:
  %over = sub i64 %last, %stop
  %over.up = add i64 %over, {W - 1}
  %over.vectors = lshr i64 %over.up, {bits}
  %top = sub i64 %last, {W}
  call void @vectors(ptr %table, ptr %own, ptr %descriptor, i64 %arrays, i1 %large, i64 %stop, i64 %over.vectors, \
i1 true, i64 %top, ptr %workspace)
  br label %done
done:
  ret void
}}

; Some vectors from row %start on, of groups, or %following one another; %own is a table to fill.
define internal void @vectors(ptr %table, ptr %own, ptr %descriptor, i64 %arrays, i1 %large, i64 %start, \
i64 %vectors, i1 %following, i64 %top, ptr %workspace) {{
entry:
  %inputs = call i64 @word(ptr %descriptor, i64 2)
  %outputs = sub i64 %arrays, %inputs
  %program.word = call i64 @word(ptr %descriptor, i64 3)
  %program = inttoptr i64 %program.word to ptr
  %finish.word = call i64 @word(ptr %descriptor, i64 4)
  %finish = inttoptr i64 %finish.word to ptr
  %none.word = call i64 @word(ptr %descriptor, i64 5)
  %none = inttoptr i64 %none.word to ptr
  %none.bytes = call i64 @word(ptr %descriptor, i64 6)
  %far = call i64 @word(ptr %descriptor, i64 7)
  %both = mul i64 %far, 2
  %state.offset = add i64 %both, {SAVED_BYTES}
  %state = getelementptr i8, ptr %workspace, i64 %state.offset
  call void @zeros(ptr %descriptor, i64 %outputs, ptr %workspace)
  %base = ptrtoint ptr %workspace to i64
  %state.word = ptrtoint ptr %state to i64
  %words = add i64 %outputs, %outputs
  %all.words = add i64 %words, {ARRAYS_WORD}
  %entries = getelementptr i64, ptr %state, i64 %all.words
  %entries.word = ptrtoint ptr %entries to i64
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %entries, ptr align 8 %none, i64 %none.bytes, i1 false)
  call void @set(ptr %state, i64 {ENTRY_WORD}, i64 %entries.word)
  %last = sub i64 %vectors, 1
  %apart = select i1 %following, i64 1, i64 {L}
  br label %result
result:
  %m = phi i64 [ 0, %entry ], [ %m.next, %result ]
  %m.array = add i64 %inputs, %m
  %m.past = call i64 @result(ptr %descriptor, i64 %m, i64 2)
  %m.near = call i64 @result(ptr %descriptor, i64 %m, i64 3)
  %m.following = call i64 @result(ptr %descriptor, i64 %m, i64 4)
  %m.line = select i1 %large, i64 %m.past, i64 %m.near
  %m.function = select i1 %following, i64 %m.following, i64 %m.line
  %m.dst = add i64 %m, {ARRAYS_WORD}
  %m.function.at = add i64 %m.dst, %outputs
  call void @set(ptr %state, i64 %m.function.at, i64 %m.function)
  %m.twice = mul i64 %m.array, 2
  %m.stride = add i64 %m.twice, 1
  call void @set(ptr %own, i64 %m.stride, i64 0)
  %m.next = add i64 %m, 1
  %m.more = icmp slt i64 %m.next, %outputs
  br i1 %m.more, label %result, label %ready
ready:
  %state.number = mul i64 %arrays, 2
  %state.stride = add i64 %state.number, 1
  call void @set(ptr %own, i64 %state.number, i64 %state.word)
  call void @set(ptr %own, i64 %state.stride, i64 0)
  br label %vector
vector:
  %i = phi i64 [ 0, %ready ], [ %i.next, %vector.next ]
  %v = and i64 %i, {L - 1}
  %row = call i64 @first_row(i64 %start, i64 %i, i1 %following, i64 %top)
  br label %input
input:
  %k = phi i64 [ 0, %vector ], [ %k.next, %input.one ]
  %k.more = icmp slt i64 %k, %inputs
  br i1 %k.more, label %input.one, label %aim
aim:
  %parity = and i64 %i, 1
  %turn = mul i64 %parity, %far
  br label %aim.one
aim.one:
  %p = phi i64 [ 0, %aim ], [ %p.next, %aim.one ]
  %p.offset = call i64 @result(ptr %descriptor, i64 %p, i64 1)
  %p.array = add i64 %inputs, %p
  %p.place = add i64 %base, %p.offset
  %p.turned = add i64 %p.place, %turn
  %p.twice = mul i64 %p.array, 2
  call void @set(ptr %own, i64 %p.twice, i64 %p.turned)
  %p.next = add i64 %p, 1
  %p.more = icmp slt i64 %p.next, %outputs
  br i1 %p.more, label %aim.one, label %ahead
input.one:
  %k.data = call i64 @array(ptr %table, i64 %k, i64 0)
  %k.stride = call i64 @array(ptr %table, i64 %k, i64 1)
  %k.begin = mul i64 %k.stride, %row
  %k.place = add i64 %k.data, %k.begin
  %k.apart = mul i64 %k.stride, %apart
  %k.number = mul i64 %k, 2
  %k.number.next = add i64 %k.number, 1
  call void @set(ptr %own, i64 %k.number, i64 %k.place)
  call void @set(ptr %own, i64 %k.number.next, i64 %k.apart)
  %k.next = add i64 %k, 1
  br label %input
ahead:
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i, %last
  br i1 %more, label %fetch, label %compute
fetch:
  %f.row = call i64 @first_row(i64 %start, i64 %i.next, i1 %following, i64 %top)
  call void @fetch(ptr %table, i64 %inputs, i64 %f.row, i64 %apart)
  br label %compute
compute:
  call void %program(ptr %own, i64 0, i64 {W}, ptr %workspace)
  %source = add i64 %base, %turn
  call void @set(ptr %state, i64 {SOURCE_WORD}, i64 %source)
  %other = sub i64 %far, %turn
  %opens = icmp eq i64 %v, 0
  %last.of.group = icmp eq i64 %v, {L - 1}
  %closes = or i1 %last.of.group, %following
  br label %next
next:
  %n = phi i64 [ 0, %compute ], [ %n.next, %further ]
  %n.entries = phi ptr [ %entries, %compute ], [ %n.entries.next, %further ]
  %n.array = add i64 %inputs, %n
  %n.data = call i64 @array(ptr %table, i64 %n.array, i64 0)
  %n.bytes = call i64 @result(ptr %descriptor, i64 %n, i64 0)
  %n.begin = mul i64 %n.bytes, %row
  %n.place = add i64 %n.data, %n.begin
  %n.aligned = and i64 %n.place, {-LINE}
  %n.line = select i1 %following, i64 %n.place, i64 %n.aligned
  %n.dst = add i64 %n, {ARRAYS_WORD}
  call void @set(ptr %state, i64 %n.dst, i64 %n.line)
  %n.off.bytes = sub i64 %n.place, %n.line
  %n.off = lshr i64 %n.off.bytes, {kind.itemsize.bit_length() - 1}
  %n.tables.word = call i64 @result(ptr %descriptor, i64 %n, i64 5)
  %n.table.bytes = call i64 @result(ptr %descriptor, i64 %n, i64 6)
  %n.table.offset = mul i64 %n.off, %n.table.bytes
  %n.table.word = add i64 %n.tables.word, %n.table.offset
  %n.table = inttoptr i64 %n.table.word to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %n.entries, ptr align 8 %n.table, i64 %n.table.bytes, i1 false)
  %n.entries.next = getelementptr i8, ptr %n.entries, i64 %n.table.bytes
  %n.offset = call i64 @result(ptr %descriptor, i64 %n, i64 1)
  %n.turned = add i64 %n.offset, %turn
  %n.first = getelementptr i8, ptr %workspace, i64 %n.turned
  %n.span = mul i64 %n.bytes, %apart
  %n.size = mul i64 %n.bytes, {W}
  %n.end = getelementptr i8, ptr %n.first, i64 %n.size
  %n.tail = getelementptr i8, ptr %n.end, i64 {-near}
  %n.head.offset = add i64 %n.offset, %other
  %n.other = getelementptr i8, ptr %workspace, i64 %n.head.offset
  %n.head = getelementptr i8, ptr %n.other, i64 {-near}
  call void @lines(ptr %n.head, ptr %n.tail, i64 {near})
  %n.shared = icmp ne i64 %n.off, 0
  %n.opens = and i1 %opens, %n.shared
  br i1 %n.opens, label %open, label %opened
open:
  store i32 {NOTHING}, ptr %n.entries, align 8
  %n.heads = sub i64 {L}, %n.off
  call void @edge(i64 %n.place, i64 %n.span, ptr %n.first, i64 %n.heads)
  br label %opened
opened:
  br i1 %closes, label %close, label %further
close:
  %n.behind = add i64 %n.place, %n.bytes
  %n.whole = sub i64 %n.behind, %n.line
  %n.tails.bytes = and i64 %n.whole, {LINE - 1}
  %n.tails = lshr i64 %n.tails.bytes, {kind.itemsize.bit_length() - 1}
  %n.from = sub i64 %n.behind, %n.tails.bytes
  %n.back = mul i64 %n.tails, {-kind.bytes}
  %n.last = getelementptr i8, ptr %n.end, i64 %n.back
  call void @edge(i64 %n.from, i64 %n.span, ptr %n.last, i64 %n.tails)
  br label %further
further:
  %n.next = add i64 %n, 1
  %n.more = icmp slt i64 %n.next, %outputs
  br i1 %n.more, label %next, label %vector.next
vector.next:
  br i1 %more, label %vector, label %done
done:
  call void %finish(ptr %state)
  call void @llvm.x86.sse.sfence()
  ret void
}}

"""


def lines_module(kind: VectorType) -> str:
    """The module; the same for every robot."""
    line = LINE // kind.itemsize
    parts = _PARTS.replace("ITEMSIZE", str(kind.itemsize)).replace("INTEGER", f"i{8 * kind.itemsize}")
    parts = parts.replace("WIDTH", str(kind.width)).replace("SPAN_BITS", str(line - 1))
    parts = parts.replace("GROUP_BITS", str(-line)).replace("VECTOR", str(kind.bytes))
    return f"""%Pair = type {{ i64, i64 }}
declare void @llvm.x86.sse.sfence()
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

{parts}{_run(kind)}{entries_text()}"""
