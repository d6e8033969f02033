"""The driver, in LLVM's language: what is the same for every program on vectors of a width.

    void drive(ptr table, i64 first, i64 last, ptr workspace, ptr list)

runs rows first .. last - 1, W at a time or one, on a frame on its own stack. The list is 64-bit integers:

    bytes of the frame, bytes from its start to where programs point, bytes from the list to the code for W rows,
    number of arrays of vectors, number of arrays of rows; for each of these its number, and the bytes from the
    frame's start to its address, or to that of the first of W rows and the offsets of all of them from there.

Before the address of the first row stands how far it is to the one W rows later: the code goes on by that itself, so
that the driver looks at arrays twice only, for the first rows and for the last ones, where fewer than W are left. Rows
past the end are the last row again: what they compute is stored there again. The upper halves of vector registers,
which the code leaves full, are cleared once at the end: what runs next may be slowed down by them.
"""

from __future__ import annotations

from robodyn.codegen.llvm.straight_line import attributes
from robodyn.codegen.llvm.target import Target


def driver_module(width: int, target: Target) -> str:
    """The module for vectors of n states; where these are for one state alone, one row at a time."""
    step = 1 if target.narrow else width
    return f"""define void @drive(ptr %table, i64 %first, i64 %last, ptr %workspace, ptr %list) #0 {{
entry:
  %bytes = load i64, ptr %list
  %frame = alloca i8, i64 %bytes, align 64
  %bias.at = getelementptr i64, ptr %list, i64 1
  %bias = load i64, ptr %bias.at
  %pointed = getelementptr i8, ptr %frame, i64 %bias
  %body.at = getelementptr i64, ptr %list, i64 2
  %body = load i64, ptr %body.at
  %code = getelementptr i8, ptr %list, i64 %body
  %n.vectors.at = getelementptr i64, ptr %list, i64 3
  %n.vectors = load i64, ptr %n.vectors.at
  %n.rows.at = getelementptr i64, ptr %list, i64 4
  %n.rows = load i64, ptr %n.rows.at
  %arrays = getelementptr i64, ptr %list, i64 5
  %n.arrays = add i64 %n.vectors, %n.rows
  %end = sub i64 %last, 1
  br label %vectors
vectors:
  %v = phi i64 [ 0, %entry ], [ %v.next, %vector ]
  %v.more = icmp slt i64 %v, %n.vectors
  br i1 %v.more, label %vector, label %rows
vector:
  %v.entry = getelementptr {{i64, i64}}, ptr %arrays, i64 %v
  %v.number = load i64, ptr %v.entry
  %v.offset.at = getelementptr i64, ptr %v.entry, i64 1
  %v.offset = load i64, ptr %v.offset.at
  %v.data.at = getelementptr {{ptr, i64}}, ptr %table, i64 %v.number
  %v.data = load ptr, ptr %v.data.at
  %v.to = getelementptr i8, ptr %frame, i64 %v.offset
  store ptr %v.data, ptr %v.to
  %v.next = add i64 %v, 1
  br label %vectors
rows:
  %row = phi i64 [ %first, %vectors ], [ %next, %call.more ]
  %left = sub i64 %end, %row
  br label %arrays.loop
arrays.loop:
  %k = phi i64 [ %n.vectors, %rows ], [ %k.next, %array.done ]
  %k.more = icmp slt i64 %k, %n.arrays
  br i1 %k.more, label %array, label %call
array:
  %entry.at = getelementptr {{i64, i64}}, ptr %arrays, i64 %k
  %number = load i64, ptr %entry.at
  %offset.at = getelementptr i64, ptr %entry.at, i64 1
  %offset = load i64, ptr %offset.at
  %data.at = getelementptr {{ptr, i64}}, ptr %table, i64 %number
  %data = load i64, ptr %data.at
  %stride.at = getelementptr i64, ptr %data.at, i64 1
  %stride = load i64, ptr %stride.at
  %to = getelementptr i8, ptr %frame, i64 %offset
  %begin = mul i64 %row, %stride
  %place = add i64 %data, %begin
  store i64 %place, ptr %to
  %advance = mul i64 {step}, %stride
  %advance.to = getelementptr i64, ptr %to, i64 -1
  store i64 %advance, ptr %advance.to
  %offsets.to = getelementptr i64, ptr %to, i64 1
{_offsets(step)}array.done:
  %k.next = add i64 %k, 1
  br label %arrays.loop
call:
  %at = phi i64 [ %row, %arrays.loop ], [ %next, %call.more ]
  call void %code(ptr %pointed)
  %next = add i64 %at, {step}
  %more = icmp slt i64 %next, %last
  br i1 %more, label %call.more, label %done
call.more:
  %rest = sub i64 %last, %next
  %whole = icmp sge i64 %rest, {step}
  br i1 %whole, label %call, label %rows
done:
  call void @llvm.x86.avx.vzeroupper()
  ret void
}}

declare void @llvm.x86.avx.vzeroupper()

{attributes(target, '"probe-stack"="inline-asm"')}"""


_PAIRED = 16
"""Rows from which two offsets are stored at one time. Of fewer the first ones come later so, by what it takes to bring
a number to a vector, and no time is won."""


def _offsets(width: int) -> str:
    """From the first row to each, and the label of what is next."""
    if width == 1:
        return "  store i64 0, ptr %offsets.to\n  br label %array.done\n"
    if width < _PAIRED:
        return f"{_clipped(width)}  br label %array.done\n"
    return f"""  %all = icmp sge i64 %left, {width - 1}
  br i1 %all, label %array.whole, label %array.clipped
array.whole:
{_in_pairs(width)}  br label %array.done
array.clipped:
{_clipped(width)}  br label %array.done
"""


def _in_pairs(width: int) -> str:
    """Where W rows are left. The code reads one at a time, and has it from two as soon as from one, but waits long for
    one of more. Batches of 16 to 64 states take up to a third less so."""
    text = """  %one = insertelement <2 x i64> poison, i64 %stride, i32 0
  %both = shufflevector <2 x i64> %one, <2 x i64> poison, <2 x i32> zeroinitializer
  %pair0 = insertelement <2 x i64> %both, i64 0, i32 0
  %twice = add <2 x i64> %both, %both
  store <2 x i64> %pair0, ptr %offsets.to, align 8
"""
    for k in range(2, width, 2):
        text += f"""  %pair{k} = add <2 x i64> %pair{k - 2}, %twice
  %pair{k}.to = getelementptr i64, ptr %offsets.to, i64 {k}
  store <2 x i64> %pair{k}, ptr %pair{k}.to, align 8
"""
    return text


def _clipped(width: int) -> str:
    """Where there are fewer: sums, one after the other, each stored on its own."""
    text, before = "  store i64 0, ptr %offsets.to\n", "0"
    for k in range(1, width):
        text += f"""  %inside{k} = icmp sle i64 {k}, %left
  %further{k} = select i1 %inside{k}, i64 %stride, i64 0
  %offset{k} = add i64 {before}, %further{k}
  %offset{k}.to = getelementptr i64, ptr %offsets.to, i64 {k}
  store i64 %offset{k}, ptr %offset{k}.to
"""
        before = f"%offset{k}"
    return text
