"""What a built-in function does before and after a kernel: machine code that reads a `Context`."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template

# NaN and infinity times zero are NaN, anything else is zero: the sum tells without a branch. Four sums are made side by
# side, for each addition waits for the one before. Masked loads touch no memory behind the last number.
_FINITE = """
define internal i1 @finite$bytes(ptr %data, i64 %count) {
start:
  %some = icmp sge i64 %count, $four
  br i1 %some, label %four, label %rest
four:
  %k = phi i64 [ 0, %start ], [ %k.next, %four ]
$begun  %from = getelementptr $scalar, ptr %data, i64 %k
$added  %k.next = add i64 %k, $four
  %behind = add i64 %k.next, $four
  %again = icmp sle i64 %behind, %count
  br i1 %again, label %four, label %joined
joined:
  %sum01 = fadd <$lanes x $scalar> %more0, %more1
  %sum23 = fadd <$lanes x $scalar> %more2, %more3
  %sum4 = fadd <$lanes x $scalar> %sum01, %sum23
  br label %rest
rest:
  %whole = phi i64 [ 0, %start ], [ %k.next, %joined ]
  %sum.whole = phi <$lanes x $scalar> [ zeroinitializer, %start ], [ %sum4, %joined ]
  %any = icmp slt i64 %whole, %count
  br i1 %any, label %block, label %done
block:
  %i = phi i64 [ %whole, %rest ], [ %next, %block ]
  %sum = phi <$lanes x $scalar> [ %sum.whole, %rest ], [ %more, %block ]
  %left = sub i64 %count, %i
  %left1 = insertelement <$lanes x i64> poison, i64 %left, i32 0
  %lefts = shufflevector <$lanes x i64> %left1, <$lanes x i64> poison, <$lanes x i32> zeroinitializer
  %mask = icmp slt <$lanes x i64> <$numbers>, %lefts
  %at = getelementptr $scalar, ptr %data, i64 %i
  %values = call <$lanes x $scalar> @llvm.masked.load.v${lanes}$short.p0(
    ptr %at, i32 1, <$lanes x i1> %mask, <$lanes x $scalar> zeroinitializer)
  %more = call <$lanes x $scalar> @llvm.fmuladd.v${lanes}$short(
    <$lanes x $scalar> %values, <$lanes x $scalar> zeroinitializer, <$lanes x $scalar> %sum)
  %next = add i64 %i, $lanes
  %on = icmp slt i64 %next, %count
  br i1 %on, label %block, label %done
done:
  %all = phi <$lanes x $scalar> [ %sum.whole, %rest ], [ %more, %block ]
  %odd = fcmp uno <$lanes x $scalar> %all, zeroinitializer
  %bits = bitcast <$lanes x i1> %odd to i$lanes
  %fine = icmp eq i$lanes %bits, 0
  ret i1 %fine
}
declare <$lanes x $scalar> @llvm.masked.load.v${lanes}$short.p0(ptr, i32, <$lanes x i1>, <$lanes x $scalar>)
declare <$lanes x $scalar> @llvm.fmuladd.v${lanes}$short(
  <$lanes x $scalar>, <$lanes x $scalar>, <$lanes x $scalar>)
"""

_SIDE_BY_SIDE = 4
_BEGUN = "  %sum$n = phi <$lanes x $scalar> [ zeroinitializer, %start ], [ %more$n, %four ]\n"
_ADDED = """  %at$n = getelementptr <$lanes x $scalar>, ptr %from, i64 $n
  %values$n = load <$lanes x $scalar>, ptr %at$n, align $bytes
  %more$n = call <$lanes x $scalar> @llvm.fmuladd.v${lanes}$short(
    <$lanes x $scalar> %values$n, <$lanes x $scalar> zeroinitializer, <$lanes x $scalar> %sum$n)
"""

# Whether all numbers of rows %first to %last - 1 of arrays %from to %to - 1 of a table are finite.
_ALL_FINITE = """
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
define internal i1 @all_finite(ptr %context, ptr %table, i64 %from, i64 %to, i64 %first, i64 %last) {
start:
  $addresses
  %itemsize = load i64, ptr %at.itemsize, align 8
  br label %next
next:
  %i = phi i64 [ %from, %start ], [ %i.next, %look ]
  %more = icmp slt i64 %i, %to
  br i1 %more, label %look, label %fine
look:
  %i.next = add i64 %i, 1
  %record = getelementptr %Record, ptr %table, i64 %i
  %columns.at = getelementptr i64, ptr %at.columns, i64 %i
  %columns = load i64, ptr %columns.at, align 8
  %good = call i1 @finite(ptr %record, i64 %columns, i64 %first, i64 %last, i64 %itemsize)
  br i1 %good, label %next, label %odd
fine:
  ret i1 true
odd:
  ret i1 false
}
"""

# @checked is a kernel whose table is a job: it does the query's work between two looks at the numbers of its rows.
_CHECKED = """
define internal void @checked(ptr %job, i64 %first, i64 %last, ptr %workspace) {
start:
  %table.at = getelementptr %Job, ptr %job, i64 0, i32 1
  %bad.at = getelementptr %Job, ptr %job, i64 0, i32 3
  %given.at = getelementptr %Job, ptr %job, i64 0, i32 4
  %given = load ptr, ptr %given.at, align 8
  %context = load ptr, ptr %job, align 8
  %table = load ptr, ptr %table.at, align 8
  $addresses
  %inputs = load i64, ptr %at.inputs, align 8
  %outputs = load i64, ptr %at.outputs, align 8
  %arrays = add i64 %inputs, %outputs
  %fine = call i1 @all_finite(ptr %context, ptr %given, i64 0, i64 %inputs, i64 %first, i64 %last)
  br i1 %fine, label %run, label %bad
run:
  call void @worked(ptr %job, i64 %first, i64 %last, ptr %workspace)
  %right = call i1 @all_finite(ptr %context, ptr %table, i64 %inputs, i64 %arrays, i64 %first, i64 %last)
  br i1 %right, label %done, label %bad
bad:
  store atomic i32 1, ptr %bad.at monotonic, align 4
  br label %done
done:
  ret void
}
"""


def checks_text(words: Mapping[str, object]) -> str:
    """`@checked`, a kernel that looks at numbers around the query's kernel, `@worked`."""
    finite = ""
    for size, lanes, scalar, short in ((8, 8, "double", "f64"), (4, 16, "float", "f32")):
        kind = {"bytes": size, "lanes": lanes, "scalar": scalar, "short": short}
        begun, added = (
            "".join(Template(each).substitute(kind, n=n) for n in range(_SIDE_BY_SIDE)) for each in (_BEGUN, _ADDED)
        )
        numbers = ", ".join(f"i64 {lane}" for lane in range(lanes))
        four = _SIDE_BY_SIDE * lanes
        finite += Template(_FINITE).substitute(kind, begun=begun, added=added, numbers=numbers, four=four)
    return finite + Template(_ALL_FINITE + _CHECKED).substitute(words)
