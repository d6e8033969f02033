"""The allocator of memory that is kept for results (`robodyn.engines.kept`): machine code."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from string import Template

from robodyn.engines.kept import (
    FROM_BYTES,
    HEAD,
    HUGE_FROM_BYTES,
    HUGE_PAGE,
    MARKED_FROM_BYTES,
    OTHERS,
    PLACES,
    STEP,
)

_MADV_HUGEPAGE, _MADV_FREE = 14, 8

# A block is %bytes long and starts 64 bytes before its array. @find_place looks for the place whose block is the
# smallest from %least to %most bytes (%oldest: whose block waits for longest instead, of any size); -1: there is none.
_TEXT = """
%Place = type { ptr, i64, i64, i64 }
%Kept = type { i64, i64, i64, i64, ptr, ptr, ptr, [$places x %Place] }

define internal i64 @find_place(ptr %kept, i64 %least, i64 %most, i1 %oldest) {
start:
  br label %look
look:
  %i = phi i64 [ 0, %start ], [ %i.next, %look ]
  %best = phi i64 [ -1, %start ], [ %best.next, %look ]
  %least.known = phi i64 [ 9223372036854775807, %start ], [ %least.next, %look ]
  %place = getelementptr %Kept, ptr %kept, i64 0, i32 7, i64 %i
  %bytes.at = getelementptr %Place, ptr %place, i64 0, i32 1
  %since.at = getelementptr %Place, ptr %place, i64 0, i32 2
  %block = load ptr, ptr %place, align 8
  %bytes = load i64, ptr %bytes.at, align 8
  %since = load i64, ptr %since.at, align 8
  %empty = icmp eq ptr %block, null
  %waits = xor i1 %empty, true
  %long = icmp sge i64 %bytes, %least
  %short = icmp sle i64 %bytes, %most
  %between = and i1 %long, %short
  %fits = or i1 %between, %oldest
  %measure = select i1 %oldest, i64 %since, i64 %bytes
  %less = icmp slt i64 %measure, %least.known
  %will.do = and i1 %waits, %fits
  %better = and i1 %will.do, %less
  %best.next = select i1 %better, i64 %i, i64 %best
  %least.next = select i1 %better, i64 %measure, i64 %least.known
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, $places
  br i1 %more, label %look, label %done
done:
  ret i64 %best.next
}

; The block of a place, which is empty from now on.
define internal ptr @taken(ptr %kept, i64 %i) {
  %place = getelementptr %Kept, ptr %kept, i64 0, i32 7, i64 %i
  %bytes.at = getelementptr %Place, ptr %place, i64 0, i32 1
  %block = load ptr, ptr %place, align 8
  %bytes = load i64, ptr %bytes.at, align 8
  %held.at = getelementptr %Kept, ptr %kept, i64 0, i32 2
  %held = load i64, ptr %held.at, align 8
  %held.less = sub i64 %held, %bytes
  store i64 %held.less, ptr %held.at, align 8
  store ptr null, ptr %place, align 8
  ret ptr %block
}

define internal i1 @locked(ptr %kept) {
  %pair = cmpxchg ptr %kept, i64 0, i64 1 acquire monotonic
  %mine = extractvalue { i64, i1 } %pair, 1
  ret i1 %mine
}

define internal void @drop(ptr %kept, i64 %i) {
  %bytes.at = getelementptr %Kept, ptr %kept, i64 0, i32 7, i64 %i, i32 1
  %bytes = load i64, ptr %bytes.at, align 8
  %block = call ptr @taken(ptr %kept, i64 %i)
  %munmap.at = getelementptr %Kept, ptr %kept, i64 0, i32 5
  %munmap = load ptr, ptr %munmap.at, align 8
  %failed = call i32 %munmap(ptr %block, i64 %bytes)
  ret void
}

; Gives all that waits back to the system; how many bytes it was.
define i64 @kept_release(ptr %kept) {
start:
  %mine = call i1 @locked(ptr %kept)
  br i1 %mine, label %begin, label %busy
begin:
  %held.at = getelementptr %Kept, ptr %kept, i64 0, i32 2
  %held = load i64, ptr %held.at, align 8
  br label %next
next:
  %i = call i64 @find_place(ptr %kept, i64 0, i64 0, i1 true)
  %some = icmp sge i64 %i, 0
  br i1 %some, label %one, label %done
one:
  call void @drop(ptr %kept, i64 %i)
  br label %next
done:
  store atomic i64 0, ptr %kept release, align 8
  ret i64 %held
busy:
  ret i64 0
}

; Bytes of a block for an array of %size.
define internal i64 @block_bytes(i64 %size) {
  %large = icmp sge i64 %size, $huge_from
  %step = select i1 %large, i64 $huge_page, i64 $step
  %more = add i64 %step, ${head}
  %over = sub i64 %more, 1
  %all = add i64 %size, %over
  %mask = sub i64 0, %step
  %bytes = and i64 %all, %mask
  ret i64 %bytes
}

; Tells the system something about a block of huge pages.
define internal void @advised(ptr %kept, ptr %block, i64 %bytes, i32 %what) {
start:
  %large = icmp sge i64 %bytes, $huge_from
  br i1 %large, label %tell, label %done
tell:
  %madvise.at = getelementptr %Kept, ptr %kept, i64 0, i32 6
  %madvise = load ptr, ptr %madvise.at, align 8
  %heard = call i32 %madvise(ptr %block, i64 %bytes, i32 %what)
  br label %done
done:
  ret void
}

; Lets the system have pages of blocks that waited while others came back. Nobody takes one meanwhile: the lock is held.
define internal void @mark_old(ptr %kept, i64 %clock) {
start:
  %early = sub i64 %clock, $others
  br label %look
look:
  %i = phi i64 [ 0, %start ], [ %i.next, %next ]
  %place = getelementptr %Kept, ptr %kept, i64 0, i32 7, i64 %i
  %bytes.at = getelementptr %Place, ptr %place, i64 0, i32 1
  %since.at = getelementptr %Place, ptr %place, i64 0, i32 2
  %marked.at = getelementptr %Place, ptr %place, i64 0, i32 3
  %block = load ptr, ptr %place, align 8
  %since = load i64, ptr %since.at, align 8
  %marked = load i64, ptr %marked.at, align 8
  %waits = icmp ne ptr %block, null
  %old = icmp sle i64 %since, %early
  %fresh = icmp eq i64 %marked, 0
  %a = and i1 %waits, %old
  %b = and i1 %a, %fresh
  br i1 %b, label %mark, label %next
mark:
  %bytes = load i64, ptr %bytes.at, align 8
  call void @advised(ptr %kept, ptr %block, i64 %bytes, i32 $free)
  store i64 1, ptr %marked.at, align 8
  br label %next
next:
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, $places
  br i1 %more, label %look, label %done
done:
  ret void
}

define internal ptr @mapped(ptr %kept, i64 %bytes) {
start:
  %mmap.at = getelementptr %Kept, ptr %kept, i64 0, i32 4
  %mmap = load ptr, ptr %mmap.at, align 8
  %block = call ptr %mmap(ptr null, i64 %bytes, i32 3, i32 $flags, i32 -1, i64 0)
  %failed = icmp eq ptr %block, inttoptr (i64 -1 to ptr)
  br i1 %failed, label %none, label %some
some:
  call void @advised(ptr %kept, ptr %block, i64 %bytes, i32 $huge)
  store i64 %bytes, ptr %block, align 8
  ret ptr %block
none:
  ret ptr null
}

; A new block for an array of %size bytes: where the system has none, what waits is given back first.
define internal ptr @fresh(ptr %kept, i64 %size) {
start:
  %bytes = call i64 @block_bytes(i64 %size)
  %sane = icmp ult i64 %size, 4611686018427387904
  br i1 %sane, label %map, label %none
map:
  %first = call ptr @mapped(ptr %kept, i64 %bytes)
  %refused = icmp eq ptr %first, null
  br i1 %refused, label %again, label %done
again:
  %released = call i64 @kept_release(ptr %kept)
  %second = call ptr @mapped(ptr %kept, i64 %bytes)
  %hopeless = icmp eq ptr %second, null
  br i1 %hopeless, label %none, label %done
done:
  %block = phi ptr [ %first, %map ], [ %second, %again ]
  %data = getelementptr i8, ptr %block, i64 $head
  ret ptr %data
none:
  ret ptr null
}

define ptr @kept_malloc(ptr %kept, i64 %size) {
start:
  %bytes = call i64 @block_bytes(i64 %size)
  %quarter = lshr i64 %bytes, 2
  %most = add i64 %bytes, %quarter
  %mine = call i1 @locked(ptr %kept)
  br i1 %mine, label %look, label %ask
look:
  %i = call i64 @find_place(ptr %kept, i64 %bytes, i64 %most, i1 false)
  %found = icmp sge i64 %i, 0
  br i1 %found, label %take, label %open
take:
  %place.bytes.at = getelementptr %Kept, ptr %kept, i64 0, i32 7, i64 %i, i32 1
  %own = load i64, ptr %place.bytes.at, align 8
  %block = call ptr @taken(ptr %kept, i64 %i)
  store i64 %own, ptr %block, align 8
  store atomic i64 0, ptr %kept release, align 8
  %data = getelementptr i8, ptr %block, i64 $head
  ret ptr %data
open:
  store atomic i64 0, ptr %kept release, align 8
  br label %ask
ask:
  %new = call ptr @fresh(ptr %kept, i64 %size)
  ret ptr %new
}

define ptr @kept_calloc(ptr %kept, i64 %count, i64 %size) {
start:
  %product = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %count, i64 %size)
  %bytes = extractvalue { i64, i1 } %product, 0
  %over = extractvalue { i64, i1 } %product, 1
  br i1 %over, label %none, label %some
some:
  %zeros = call ptr @fresh(ptr %kept, i64 %bytes)
  ret ptr %zeros
none:
  ret ptr null
}
declare { i64, i1 } @llvm.umul.with.overflow.i64(i64, i64)

define void @kept_free(ptr %kept, ptr %data, i64 %size) {
start:
  %nothing = icmp eq ptr %data, null
  br i1 %nothing, label %done, label %look
look:
  %block = getelementptr i8, ptr %data, i64 -$head
  %bytes = load i64, ptr %block, align 8
  %limit.at = getelementptr %Kept, ptr %kept, i64 0, i32 1
  %limit = load i64, ptr %limit.at, align 8
  %small = icmp sle i64 %bytes, %limit
  br i1 %small, label %mark, label %unmap
mark:
  %at.once = icmp sge i64 %bytes, $marked_from
  br i1 %at.once, label %spare, label %lock
spare:
  call void @advised(ptr %kept, ptr %block, i64 %bytes, i32 $free)
  br label %lock
lock:
  %marked = zext i1 %at.once to i64
  %mine = call i1 @locked(ptr %kept)
  br i1 %mine, label %room, label %unmap
room:
  %held.at = getelementptr %Kept, ptr %kept, i64 0, i32 2
  %held = load i64, ptr %held.at, align 8
  %all = add i64 %held, %bytes
  %much = icmp sgt i64 %all, %limit
  br i1 %much, label %evict, label %seek
seek:
  %p = phi i64 [ 0, %room ], [ %p.next, %full ]
  %place = getelementptr %Kept, ptr %kept, i64 0, i32 7, i64 %p
  %there = load ptr, ptr %place, align 8
  %empty = icmp eq ptr %there, null
  br i1 %empty, label %put, label %full
full:
  %p.next = add i64 %p, 1
  %p.more = icmp slt i64 %p.next, $places
  br i1 %p.more, label %seek, label %evict
evict:
  %oldest = call i64 @find_place(ptr %kept, i64 0, i64 0, i1 true)
  call void @drop(ptr %kept, i64 %oldest)
  br label %room
put:
  %place.bytes = getelementptr %Place, ptr %place, i64 0, i32 1
  %place.since = getelementptr %Place, ptr %place, i64 0, i32 2
  %place.marked = getelementptr %Place, ptr %place, i64 0, i32 3
  %clock.at = getelementptr %Kept, ptr %kept, i64 0, i32 3
  %clock = load i64, ptr %clock.at, align 8
  %later = add i64 %clock, 1
  store i64 %later, ptr %clock.at, align 8
  store i64 %all, ptr %held.at, align 8
  store i64 %bytes, ptr %place.bytes, align 8
  store i64 %clock, ptr %place.since, align 8
  store i64 %marked, ptr %place.marked, align 8
  store ptr %block, ptr %place, align 8
  call void @mark_old(ptr %kept, i64 %clock)
  store atomic i64 0, ptr %kept release, align 8
  br label %done
unmap:
  %munmap.at = getelementptr %Kept, ptr %kept, i64 0, i32 5
  %munmap = load ptr, ptr %munmap.at, align 8
  %failed = call i32 %munmap(ptr %block, i64 %bytes)
  br label %done
done:
  ret void
}

define ptr @kept_realloc(ptr %kept, ptr %data, i64 %size) {
start:
  %nothing = icmp eq ptr %data, null
  br i1 %nothing, label %new, label %look
look:
  %block = getelementptr i8, ptr %data, i64 -$head
  %bytes = load i64, ptr %block, align 8
  %room = sub i64 %bytes, $head
  %fits = icmp ule i64 %size, %room
  br i1 %fits, label %stay, label %move
stay:
  ret ptr %data
new:
  %alone = call ptr @kept_malloc(ptr %kept, i64 %size)
  ret ptr %alone
move:
  %larger = call ptr @kept_malloc(ptr %kept, i64 %size)
  %refused = icmp eq ptr %larger, null
  br i1 %refused, label %none, label %copy
copy:
  %b = phi i64 [ 0, %move ], [ %b.next, %copy ]
  %from = getelementptr i8, ptr %data, i64 %b
  %to = getelementptr i8, ptr %larger, i64 %b
  %line = load <8 x i64>, ptr %from, align 64
  store <8 x i64> %line, ptr %to, align 64
  %b.next = add i64 %b, 64
  %b.more = icmp ult i64 %b.next, %room
  br i1 %b.more, label %copy, label %copied
copied:
  call void @kept_free(ptr %kept, ptr %data, i64 %room)
  ret ptr %larger
none:
  ret ptr null
}
"""

# @new_array is NumPy's PyArray_New for results, with that allocator where %bytes are many and %handler is not null.
_NEW = """
define internal ptr @new_array(ptr %context, i64 %bytes, ptr %array.type, i32 %nd, ptr %shape, i32 %number) {
start:
  $addresses
  %new = load ptr, ptr %at.PyArray_New, align 8
  %handler = load ptr, ptr %at.handler, align 8
  %some = icmp ne ptr %handler, null
  %large = icmp sge i64 %bytes, $from
  %keeps = and i1 %some, %large
  br i1 %keeps, label %ours, label %plain
plain:
  %own = call ptr %new(ptr %array.type, i32 %nd, ptr %shape, i32 %number, ptr null, ptr null, i32 0, i32 0, ptr null)
  ret ptr %own
ours:
  %set = load ptr, ptr %at.PyDataMem_SetHandler, align 8
  %drop = load ptr, ptr %at.Py_DecRef, align 8
  %old = call ptr %set(ptr %handler)
  %failed = icmp eq ptr %old, null
  br i1 %failed, label %none, label %make
make:
  %kept = call ptr %new(ptr %array.type, i32 %nd, ptr %shape, i32 %number, ptr null, ptr null, i32 0, i32 0, ptr null)
  %back = call ptr %set(ptr %old)
  call void %drop(ptr %old)
  %stuck = icmp eq ptr %back, null
  br i1 %stuck, label %done, label %settle
settle:
  call void %drop(ptr %back)
  br label %done
done:
  ret ptr %kept
none:
  ret ptr null
}
"""


def kept_text(words: Mapping[str, object]) -> str:
    """The allocator, and `@new_array`."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS if hasattr(mmap, "MAP_ANONYMOUS") else 0
    numbers = {
        "places": PLACES,
        "head": HEAD,
        "step": STEP,
        "huge_page": HUGE_PAGE,
        "huge_from": HUGE_FROM_BYTES,
        "flags": flags,
        "marked_from": MARKED_FROM_BYTES,
        "others": OTHERS,
        "huge": _MADV_HUGEPAGE,
        "free": _MADV_FREE,
        "from": FROM_BYTES,
    }
    return Template(_TEXT + _NEW).substitute({**words, **numbers})
