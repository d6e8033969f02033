"""The kernel of a chain: calls the kernels of its stages for one vector of states after another.

It is a kernel like any other, `void kernel(ptr table, i64 first, i64 last, ptr workspace)`, so threads and quick calls
need not know. Behind the user's arrays the table has one constant, the descriptor, 64-bit integers:

    stages, offset of the stages' table in the workspace, offset of their own workspace, arrays to clear;
    for each of these its offset in the workspace, and its bytes;
    for each stage its address, the entries of its table, and for each entry (USER, array, 0),
    (BETWEEN, offset in the workspace, 0), (LITERAL, word, word) or (BATCH, word, 0).

What lies between stages is vectors of states, scalar k of a state being vector k of an array: that needs no
transposing, and stays in the cache. A flush brings results to the user's arrays.

The second word of the descriptor's entry in the table is the number of rows of the whole batch, or 0 where nobody said;
BATCH hands it on. A flush of more than the caches hold goes past them, straight to memory. The user's rows for the next
vector are fetched into the cache beforehand: they are too few for the processor to see them coming.
"""

from __future__ import annotations

from robodyn.codegen.llvm.straight_line import attributes
from robodyn.codegen.llvm.streaming import flush_functions, streams
from robodyn.codegen.llvm.target import Target
from robodyn.codegen.llvm.vectors import Lines, VectorType, declarations, table_word
from robodyn.engines.cpu.loops.runtime import runtime_functions

USER, BETWEEN, LITERAL, BATCH = range(4)


_FETCHED_BYTES = 1 << 14
"""Of the next rows of an input, at most: rows may lie far apart."""
_FETCH = f"""declare void @llvm.prefetch.p0(ptr, i32, i32, i32)

define internal void @fetch(ptr %table, i64 %inputs, i64 %row, i64 %rows) {{
entry:
  br label %input
input:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %data.at = getelementptr {{i64, i64}}, ptr %table, i64 %k
  %data = load ptr, ptr %data.at, align 8
  %stride.at = getelementptr i64, ptr %data.at, i64 1
  %stride = load i64, ptr %stride.at, align 8
  %begin = mul i64 %stride, %row
  %bytes = mul i64 %stride, %rows
  %any = icmp sgt i64 %bytes, 0
  %few = icmp sle i64 %bytes, {_FETCHED_BYTES}
  %some = and i1 %any, %few
  br i1 %some, label %line, label %next
line:
  %b = phi i64 [ 0, %input ], [ %b.next, %line ]
  %offset = add i64 %begin, %b
  %at = getelementptr i8, ptr %data, i64 %offset
  call void @llvm.prefetch.p0(ptr %at, i32 0, i32 3, i32 1)
  %b.next = add i64 %b, 64
  %b.more = icmp slt i64 %b.next, %bytes
  br i1 %b.more, label %line, label %next
next:
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, %inputs
  br i1 %k.more, label %input, label %done
done:
  ret void
}}

"""
"""fetch(table, inputs, row, rows): rows of inputs on their way to the cache while those before them are at work."""


def chain_module(n_inputs: int, n_arrays: int, kind: VectorType, target: Target) -> str:
    """The module for chains with n inputs, and arrays with outputs, for such vectors of states."""
    fence = "declare void @llvm.x86.sse.sfence()\n\n" if streams(kind, target) else ""
    clear = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n\n"
    wait = "  call void @llvm.x86.sse.sfence()\n" if fence else ""
    return f"""{fence}{clear}{_FETCH}define void @kernel(ptr %table, i64 %first, i64 %last, ptr %workspace) {{
entry:
  %descriptor.at = getelementptr {{ptr, i64}}, ptr %table, i64 {n_arrays}
  %descriptor = load ptr, ptr %descriptor.at, align 8
  %batch.at = getelementptr i64, ptr %descriptor.at, i64 1
  %batch = load i64, ptr %batch.at, align 8
  %n_stages = load i64, ptr %descriptor, align 8
  %inner.at = getelementptr i64, ptr %descriptor, i64 1
  %inner.offset = load i64, ptr %inner.at, align 8
  %inner = getelementptr i8, ptr %workspace, i64 %inner.offset
  %own.at = getelementptr i64, ptr %descriptor, i64 2
  %own.offset = load i64, ptr %own.at, align 8
  %own = getelementptr i8, ptr %workspace, i64 %own.offset
  %cleared.at = getelementptr i64, ptr %descriptor, i64 3
  %cleared = load i64, ptr %cleared.at, align 8
  %arrays = getelementptr i64, ptr %descriptor, i64 4
  %stages = getelementptr {{i64, i64}}, ptr %arrays, i64 %cleared
  br label %clear.next
clear.next:
  %c = phi i64 [ 0, %entry ], [ %c.next, %clear ]
  %c.more = icmp slt i64 %c, %cleared
  br i1 %c.more, label %clear, label %rows
clear:
  %c.at = getelementptr {{i64, i64}}, ptr %arrays, i64 %c
  %c.offset = load i64, ptr %c.at, align 8
  %c.array = getelementptr i8, ptr %workspace, i64 %c.offset
  %c.bytes.at = getelementptr i64, ptr %c.at, i64 1
  %c.bytes = load i64, ptr %c.bytes.at, align 8
  call void @llvm.memset.p0.i64(ptr align 64 %c.array, i8 0, i64 %c.bytes, i1 false)
  %c.next = add i64 %c, 1
  br label %clear.next
rows:
  %row = phi i64 [ %first, %clear.next ], [ %stop, %rows.next ]
  %far = add i64 %row, {kind.width}
  %whole = icmp slt i64 %far, %last
  %stop = select i1 %whole, i64 %far, i64 %last
  %left = sub i64 %last, %stop
  %many = icmp slt i64 {kind.width}, %left
  %following = select i1 %many, i64 {kind.width}, i64 %left
  call void @fetch(ptr %table, i64 {n_inputs}, i64 %stop, i64 %following)
  br label %stage
stage:
  %s = phi i64 [ 0, %rows ], [ %s.next, %call ]
  %cursor = phi ptr [ %stages, %rows ], [ %cursor.next, %call ]
  %address.word = load i64, ptr %cursor, align 8
  %address = inttoptr i64 %address.word to ptr
  %count.at = getelementptr i64, ptr %cursor, i64 1
  %count = load i64, ptr %count.at, align 8
  %entries = getelementptr i64, ptr %cursor, i64 2
  br label %entry.fill
entry.fill:
  %e = phi i64 [ 0, %stage ], [ %e.next, %entry.fill ]
  %at = getelementptr {{i64, i64, i64}}, ptr %entries, i64 %e
  %kind = load i64, ptr %at, align 8
  %a.at = getelementptr i64, ptr %at, i64 1
  %a = load i64, ptr %a.at, align 8
  %b.at = getelementptr i64, ptr %at, i64 2
  %b = load i64, ptr %b.at, align 8
  %is.user = icmp eq i64 %kind, {USER}
  %number = select i1 %is.user, i64 %a, i64 0
  %user.at = getelementptr {{i64, i64}}, ptr %table, i64 %number
  %user.data = load i64, ptr %user.at, align 8
  %user.stride.at = getelementptr i64, ptr %user.at, i64 1
  %user.stride = load i64, ptr %user.stride.at, align 8
  %base = ptrtoint ptr %workspace to i64
  %between = add i64 %base, %a
  %is.between = icmp eq i64 %kind, {BETWEEN}
  %other = select i1 %is.between, i64 %between, i64 %a
  %data = select i1 %is.user, i64 %user.data, i64 %other
  %is.batch = icmp eq i64 %kind, {BATCH}
  %known = select i1 %is.batch, i64 %batch, i64 %b
  %stride = select i1 %is.user, i64 %user.stride, i64 %known
  %to = getelementptr {{i64, i64}}, ptr %inner, i64 %e
  store i64 %data, ptr %to, align 8
  %to.stride = getelementptr i64, ptr %to, i64 1
  store i64 %stride, ptr %to.stride, align 8
  %e.next = add i64 %e, 1
  %e.more = icmp slt i64 %e.next, %count
  br i1 %e.more, label %entry.fill, label %call
call:
  call void %address(ptr %inner, i64 %row, i64 %stop, ptr %own)
  %words = mul i64 %count, 3
  %cursor.next = getelementptr i64, ptr %entries, i64 %words
  %s.next = add i64 %s, 1
  %s.more = icmp slt i64 %s.next, %n_stages
  br i1 %s.more, label %stage, label %rows.next
rows.next:
  %more = icmp slt i64 %stop, %last
  br i1 %more, label %rows, label %done
done:
{wait}  ret void
}}
"""


def flush_module(n_arrays: int, kind: VectorType, target: Target, *, packed: bool = False, dense: bool = True) -> str:
    """Arrays of vectors to rows of the user's: the table has the ones, then the others, then their sizes.

    The second word of the sizes is the rows of the whole batch, or 0. `packed`: behind the sizes are addresses of what
    says where each scalar is among the vectors. `dense`: see `flush_functions`.
    """
    out = Lines()

    def word(number: int, field: int, what: str) -> str:
        return table_word(out, number, field, what)

    sizes, batch = word(2 * n_arrays, 0, "ptr"), word(2 * n_arrays, 1, "i64")
    end = out.new("sub i64 %last, 1")
    for number in range(n_arrays):
        size = out.new(f"load i64, ptr {out.new(f'getelementptr i64, ptr {sizes}, i64 {number}')}, align 8")
        rows, stride = word(n_arrays + number, 0, "ptr"), word(n_arrays + number, 1, "i64")
        columns = f"i64 0, i64 {size}, i64 {size}"
        arguments = f"ptr {rows}, i64 {stride}, i64 %first, i64 {end}, ptr {word(number, 0, 'ptr')}"
        if packed:
            at = out.new(f"getelementptr i64, ptr {sizes}, i64 {n_arrays + number}")
            arguments += f", ptr {out.new(f'load ptr, ptr {at}, align 8')}"
        arguments += f", {columns}"
        out.do(f"call void @flush({arguments}, i64 {batch})")
    body = "\n".join(out.lines)
    kernel = f"""define void @kernel(ptr %table, i64 %first, i64 %last, ptr %workspace) #0 {{
{body}
  ret void
}}

"""
    own = flush_functions(kind, target, packed=packed, dense=dense) + kernel
    return declarations(kind) + runtime_functions(kind, own) + own + attributes(target)
