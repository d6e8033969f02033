"""Results of large batches past the caches: a kernel around a query's own.

A processor that writes a few bytes of a line loads the line first, and later writes it back: twice the traffic that
results take, and past the size of the caches that is what a batch waits for. Whole lines can be written without loading
them. So where the results of a batch are large, the query's kernel writes those of some states to a buffer that stays
in the nearest cache, and whole lines of that go straight to memory. What little there is before the first line and
behind the last one is written as usual: neighbouring pieces have a part of it each.

It is a kernel like any other, `void kernel(ptr table, i64 first, i64 last, ptr workspace)`; of n arrays it is the
function `kernel<n>`. Behind the arrays its table has one constant, the descriptor, and the rows of the whole batch. The
descriptor, 64-bit integers:

    address of the query's kernel, its constants in pairs of words, number of inputs, bytes of a row of all results,
    rows that go to the buffer at once;
    for each result the bytes of a row, and where its buffer is in the workspace;
    the constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from robodyn.arguments import Array
from robodyn.codegen.llvm.jit import Code
from robodyn.codegen.llvm.streaming import STREAMED_BYTES, streams
from robodyn.codegen.llvm.target import Target
from robodyn.codegen.llvm.vectors import VectorType
from robodyn.engines.cpu.kernels import Kernel, Maker
from robodyn.engines.cpu.request import Request
from robodyn.tracing.unrolled import output_shape

_LINE = 64
_BUFFER_BYTES = 1 << 14
"""Of results that go to the buffer at once, unless one vector of states has more: half of a small nearest cache."""
_MAX_BUFFER_BYTES = 1 << 18
"""With more than that in a vector of states the buffer leaves the second cache as well."""
_MAX_ARRAYS, _MAX_PAIRS = 16, 64
_HEAD = 5  # words of the descriptor before those of results


def module_text(target: Target) -> str:
    """`kernel1` to `kernel16`; the same for every robot."""
    fences = target.triple.startswith("x86_64")
    declaration = "declare void @llvm.x86.sse.sfence()\n" if fences else ""
    call = "  call void @llvm.x86.sse.sfence()\n" if fences else ""
    entries = "".join(
        f"""define void @kernel{n}(ptr %table, i64 %first, i64 %last, ptr %workspace) {{
  call void @run(ptr %table, i64 {n}, i64 %first, i64 %last, ptr %workspace)
  ret void
}}
"""
        for n in range(1, _MAX_ARRAYS + 1)
    )
    return f"""{declaration}
%Pair = type {{ i64, i64 }}

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

; %bytes from a buffer that is as far off a line as they will be; both are aligned to four bytes.
define internal void @past(ptr %to, ptr %from, i64 %bytes) {{
entry:
  %word = ptrtoint ptr %to to i64
  %up = sub i64 0, %word
  %before = and i64 %up, {_LINE - 1}
  %short = call i64 @llvm.smin.i64(i64 %before, i64 %bytes)
  %left = sub i64 %bytes, %short
  %middle = and i64 %left, -{_LINE}
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
  %value = load <8 x i64>, ptr %k.from, align {_LINE}
  store <8 x i64> %value, ptr %k.to, align {_LINE}, !nontemporal !0
  %next = add i64 %k, {_LINE}
  br label %look
end:
  call void @words(ptr %to, ptr %from, i64 %tail, i64 %bytes)
  ret void
}}

define internal void @run(ptr %table, i64 %arrays, i64 %first, i64 %last, ptr %workspace) {{
entry:
  %own = alloca [{_MAX_ARRAYS + _MAX_PAIRS} x %Pair], align 16
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
  %results = getelementptr i64, ptr %descriptor, i64 {_HEAD}
  %outputs = sub i64 %arrays, %inputs
  %constants = getelementptr %Pair, ptr %results, i64 %outputs
  %own.constants = getelementptr %Pair, ptr %own, i64 %arrays
  %all = mul i64 %bytes, %batch
  %large = icmp sgt i64 %all, {STREAMED_BYTES}
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
  br i1 %c.more, label %constant.one, label %look
constant.one:
  %c.from = getelementptr %Pair, ptr %constants, i64 %c
  %c.to = getelementptr %Pair, ptr %own.constants, i64 %c
  %c.pair = load <2 x i64>, ptr %c.from, align 8
  store <2 x i64> %c.pair, ptr %c.to, align 16
  %c.next = add i64 %c, 1
  br label %constant
look:
  %o = phi i64 [ 0, %constant ], [ %o.next, %look.one ]
  %fit = phi i1 [ %large, %constant ], [ %fit.next, %look.one ]
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
  br i1 %fit, label %piece, label %through
through:
  call void %kernel(ptr %own, i64 %first, i64 %last, ptr %workspace)
  ret void
piece:
  %row = phi i64 [ %first, %decide ], [ %stop, %write.done ]
  %far = add i64 %row, %rows
  %stop = call i64 @llvm.smin.i64(i64 %far, i64 %last)
  %some = icmp slt i64 %row, %last
  br i1 %some, label %aim, label %done
aim:
  %a = phi i64 [ 0, %piece ], [ %a.next, %aim.one ]
  %a.more = icmp slt i64 %a, %outputs
  br i1 %a.more, label %aim.one, label %work
aim.one:
  %a.number = add i64 %inputs, %a
  %a.at = getelementptr %Pair, ptr %table, i64 %a.number
  %a.data = load i64, ptr %a.at, align 8
  %a.buffer = call i64 @buffer(ptr %results, i64 %a, i64 %a.data, i64 %row, ptr %workspace)
  %a.result = getelementptr %Pair, ptr %results, i64 %a
  %a.bytes = load i64, ptr %a.result, align 8
  %a.offset = mul i64 %a.bytes, %row
  %a.base = sub i64 %a.buffer, %a.offset
  %a.own = getelementptr %Pair, ptr %own, i64 %a.number
  store i64 %a.base, ptr %a.own, align 16
  %a.next = add i64 %a, 1
  br label %aim
work:
  call void %kernel(ptr %own, i64 %row, i64 %stop, ptr %workspace)
  %count = sub i64 %stop, %row
  br label %write
write:
  %w = phi i64 [ 0, %work ], [ %w.next, %write.one ]
  %w.more = icmp slt i64 %w, %outputs
  br i1 %w.more, label %write.one, label %write.done
write.one:
  %w.number = add i64 %inputs, %w
  %w.at = getelementptr %Pair, ptr %table, i64 %w.number
  %w.data = load i64, ptr %w.at, align 8
  %w.buffer = call i64 @buffer(ptr %results, i64 %w, i64 %w.data, i64 %row, ptr %workspace)
  %w.result = getelementptr %Pair, ptr %results, i64 %w
  %w.row.bytes = load i64, ptr %w.result, align 8
  %w.offset = mul i64 %w.row.bytes, %row
  %w.place = add i64 %w.data, %w.offset
  %w.bytes = mul i64 %w.row.bytes, %count
  %w.to = inttoptr i64 %w.place to ptr
  %w.from = inttoptr i64 %w.buffer to ptr
  call void @past(ptr %w.to, ptr %w.from, i64 %w.bytes)
  %w.next = add i64 %w, 1
  br label %write
write.done:
  br label %piece
done:
{call}  ret void
}}

; Where the buffer of result %k begins for rows from %row on: as far off a line as the user's.
define internal i64 @buffer(ptr %results, i64 %k, i64 %data, i64 %row, ptr %workspace) {{
  %result = getelementptr %Pair, ptr %results, i64 %k
  %bytes = load i64, ptr %result, align 8
  %offset.at = getelementptr %Pair, ptr %result, i64 0, i32 1
  %offset = load i64, ptr %offset.at, align 8
  %rows = mul i64 %bytes, %row
  %place = add i64 %data, %rows
  %off = and i64 %place, {_LINE - 1}
  %base = ptrtoint ptr %workspace to i64
  %start = add i64 %base, %offset
  %buffer = add i64 %start, %off
  ret i64 %buffer
}}
declare i64 @llvm.smin.i64(i64, i64)
{entries}
!0 = !{{i32 1}}
"""


@dataclass(frozen=True)
class _Entry:
    """The function of the shared module for n arrays."""

    code: Code
    arrays: int

    def address(self, name: str) -> int:
        """Address of the function."""
        return self.code.address(f"{name}{self.arrays}")


class _Around:
    """A kernel, and the descriptor that leads to it."""

    def __init__(self, kernel: Kernel, row_bytes: Sequence[int], rows: int) -> None:
        self.kernels: tuple[Kernel, ...] = getattr(kernel.keep, "kernels", ())
        words = list(kernel.constants)
        if kernel.batch:
            words[-1] = 0  # it has not to know: its results are not the user's
        end, buffers = -(-kernel.workspace_bytes // _LINE) * _LINE, []
        for each in row_bytes:
            buffers.append((each, end))
            end += -(-rows * each // _LINE) * _LINE + _LINE
        self.workspace_bytes = end
        head = (kernel.address, len(words) // 2, len(kernel.inputs), sum(row_bytes), rows)
        numbers = [*head, *(word for pair in buffers for word in pair), *words]
        self.descriptor: Array = np.array([word % (1 << 64) for word in numbers], dtype=np.uint64).view(np.int64)
        self._kernel = kernel

    @property
    def operations(self) -> int:
        """Floating-point operations for one state."""
        return self._kernel.operations


def past_caches(maker: Maker, request: Request, kernel: Kernel) -> Kernel:
    """A kernel that does the same and writes large results past the caches; itself where it cannot, or does already."""
    row_bytes = [
        math.prod(output_shape(request.model, output)) * request.dtype.itemsize
        for output in request.algorithm.outputs.values()
    ]
    width, arrays = request.target.width(request.dtype), len(kernel.inputs) + len(row_bytes)
    vector = width * sum(row_bytes)
    flushes = kernel.batch and streams(VectorType.of(request.dtype, request.target), request.target)
    if flushes or not 0 < vector <= _MAX_BUFFER_BYTES or arrays > _MAX_ARRAYS or len(kernel.constants) > 2 * _MAX_PAIRS:
        return kernel
    around = _Around(kernel, row_bytes, width * max(_BUFFER_BYTES // vector, 1))
    code = maker.shared(module_text(request.target), "robodyn past caches", request.target)
    made = replace(
        kernel,
        code=_Entry(code, arrays),
        constants=(around.descriptor.ctypes.data, 0),
        workspace_bytes=around.workspace_bytes,
        keep=around,
        batch=True,
        plain=kernel,
    )
    made.__dict__.update((name, kernel.__dict__[name]) for name in ("program",) if name in kernel.__dict__)
    return made
