"""The driver, in LLVM's language: what is the same for every program on vectors of a width.

    void drive(ptr table, i64 first, i64 last, ptr workspace, ptr list)

runs rows first .. last - 1, W at a time, on a frame on its own stack. The list is 64-bit integers:

    bytes of the frame, bytes from its start to where programs point, bytes from the list to the code that runs once (0:
    there is none), and to the code for W rows, number of arrays of vectors, number of arrays of rows; for each of these
    its number, and the bytes from the frame's start to its address or those of its rows.

Rows past the end are the last row again: what they compute is stored there again.
"""

from __future__ import annotations

from robodyn.engines.cpu.straight_line import attributes
from robodyn.engines.cpu.target import Target


def driver_module(width: int, target: Target) -> str:
    """The module for vectors of so many states."""
    lanes = f"<{width} x i64>"
    numbers = "<" + ", ".join(f"i64 {k}" for k in range(width)) + ">"

    def splat(name: str, value: str) -> str:
        one = f"  %{name}.one = insertelement {lanes} poison, i64 {value}, i32 0\n"
        return one + f"  %{name} = shufflevector {lanes} %{name}.one, {lanes} poison, <{width} x i32> zeroinitializer"

    return f"""define void @drive(ptr %table, i64 %first, i64 %last, ptr %workspace, ptr %list) #0 {{
entry:
  %bytes = load i64, ptr %list
  %frame = alloca i8, i64 %bytes, align 64
  %bias.at = getelementptr i64, ptr %list, i64 1
  %bias = load i64, ptr %bias.at
  %pointed = getelementptr i8, ptr %frame, i64 %bias
  %once.at = getelementptr i64, ptr %list, i64 2
  %once = load i64, ptr %once.at
  %body.at = getelementptr i64, ptr %list, i64 3
  %body = load i64, ptr %body.at
  %code = getelementptr i8, ptr %list, i64 %body
  %n.vectors.at = getelementptr i64, ptr %list, i64 4
  %n.vectors = load i64, ptr %n.vectors.at
  %n.rows.at = getelementptr i64, ptr %list, i64 5
  %n.rows = load i64, ptr %n.rows.at
  %arrays = getelementptr i64, ptr %list, i64 6
  %n.arrays = add i64 %n.vectors, %n.rows
  %end = sub i64 %last, 1
  br label %vectors
vectors:
  %v = phi i64 [ 0, %entry ], [ %v.next, %vector ]
  %v.more = icmp slt i64 %v, %n.vectors
  br i1 %v.more, label %vector, label %prepare
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
prepare:
  %is.once = icmp ne i64 %once, 0
  br i1 %is.once, label %call.once, label %rows
call.once:
  %once.code = getelementptr i8, ptr %list, i64 %once
  call void %once.code(ptr %pointed)
  br label %rows
rows:
  %row = phi i64 [ %first, %prepare ], [ %first, %call.once ], [ %next, %call ]
  %left = sub i64 %end, %row
{splat("lefts", "%left")}
  %inside = icmp slt {lanes} {numbers}, %lefts
  %chosen = select <{width} x i1> %inside, {lanes} {numbers}, {lanes} %lefts
  br label %arrays.loop
arrays.loop:
  %k = phi i64 [ %n.vectors, %rows ], [ %k.next, %array ]
  %k.more = icmp slt i64 %k, %n.arrays
  br i1 %k.more, label %array, label %call
array:
  %entry.at = getelementptr {{i64, i64}}, ptr %arrays, i64 %k
  %number = load i64, ptr %entry.at
  %offset.at = getelementptr i64, ptr %entry.at, i64 1
  %offset = load i64, ptr %offset.at
  %data.at = getelementptr {{ptr, i64}}, ptr %table, i64 %number
  %data = load ptr, ptr %data.at
  %stride.at = getelementptr i64, ptr %data.at, i64 1
  %stride = load i64, ptr %stride.at
  %to = getelementptr i8, ptr %frame, i64 %offset
  %begin = mul i64 %row, %stride
  %first.row = getelementptr i8, ptr %data, i64 %begin
  %word = ptrtoint ptr %first.row to i64
{splat("strides", "%stride")}
{splat("words", "%word")}
  %offsets = mul {lanes} %chosen, %strides
  %places = add {lanes} %words, %offsets
  store {lanes} %places, ptr %to, align 8
  %k.next = add i64 %k, 1
  br label %arrays.loop
call:
  call void %code(ptr %pointed)
  %next = add i64 %row, {width}
  %more = icmp slt i64 %next, %last
  br i1 %more, label %rows, label %done
done:
  ret void
}}

{attributes(target, '"probe-stack"="inline-asm"')}"""
