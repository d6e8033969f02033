"""Where a built-in function leaves results: new arrays, or the user's. Machine code that reads a `Context`."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template

from robodyn.engines.cpu.native.kept_code import kept_text

# Whether array %wanted can take output %k of %rows states (-1: of one): it is of the right type and shape, C-contiguous
# and writeable, and shares no memory with the arrays before it in the table. All of those are dense but for rows that
# are the same one, so memory is shared where the ranges from the first byte to the last meet.
_ADOPTABLE = """
define internal i1 @adoptable(ptr %context, ptr %table, i64 %rows, i64 %k, ptr %wanted) {
start:
  $addresses
  %array.type = load ptr, ptr %at.array_type, align 8
  %type.at = getelementptr i8, ptr %wanted, i64 $type
  %type = load ptr, ptr %type.at, align 8
  %exact = icmp eq ptr %type, %array.type
  br i1 %exact, label %array, label %no
array:
  %single = icmp eq i64 %rows, -1
  %count = select i1 %single, i64 1, i64 %rows
  %axes = select i1 %single, i64 0, i64 1
  %descr = load ptr, ptr %at.descr, align 8
  %own.descr.at = getelementptr i8, ptr %wanted, i64 $array_descr
  %own.descr = load ptr, ptr %own.descr.at, align 8
  %nd.at = getelementptr i8, ptr %wanted, i64 $array_nd
  %nd = load i32, ptr %nd.at, align 4
  %flags.at = getelementptr i8, ptr %wanted, i64 $array_flags
  %flags = load i32, ptr %flags.at, align 4
  %data.at = getelementptr i8, ptr %wanted, i64 $array_data
  %data = load ptr, ptr %data.at, align 8
  %dims.at = getelementptr i8, ptr %wanted, i64 $array_shape
  %dims = load ptr, ptr %dims.at, align 8
  %trailing.at = getelementptr i64, ptr %at.trailing, i64 %k
  %trailing = load i64, ptr %trailing.at, align 8
  %rank = add i64 %trailing, %axes
  %rank32 = trunc i64 %rank to i32
  %singleton = icmp eq ptr %own.descr, %descr
  %ranked = icmp eq i32 %nd, %rank32
  %order = and i32 %flags, $writeable_contiguous
  %open = icmp eq i32 %order, $writeable_contiguous
  %fit0 = and i1 %singleton, %ranked
  %fit = and i1 %fit0, %open
  br i1 %fit, label %shaped, label %no
shaped:
  %lengths = getelementptr [$max_trailing x i64], ptr %at.shapes, i64 %k
  %dims.tail = getelementptr i64, ptr %dims, i64 %axes
  br i1 %single, label %axis, label %batch
batch:
  %height = load i64, ptr %dims, align 8
  %high = icmp eq i64 %height, %rows
  br i1 %high, label %axis, label %no
axis:
  %a = phi i64 [ 0, %shaped ], [ 0, %batch ], [ %a.next, %length ]
  %a.more = icmp slt i64 %a, %trailing
  br i1 %a.more, label %length, label %memory
length:
  %a.next = add i64 %a, 1
  %own.length.at = getelementptr i64, ptr %dims.tail, i64 %a
  %own.length = load i64, ptr %own.length.at, align 8
  %length.at = getelementptr i64, ptr %lengths, i64 %a
  %length.wanted = load i64, ptr %length.at, align 8
  %same = icmp eq i64 %own.length, %length.wanted
  br i1 %same, label %axis, label %no
memory:
  %itemsize = load i64, ptr %at.itemsize, align 8
  %inputs = load i64, ptr %at.inputs, align 8
  %number = add i64 %inputs, %k
  %columns.at = getelementptr i64, ptr %at.columns, i64 %number
  %columns = load i64, ptr %columns.at, align 8
  %scalars = mul i64 %columns, %count
  %bytes = mul i64 %scalars, %itemsize
  %begin = ptrtoint ptr %data to i64
  %end = add i64 %begin, %bytes
  %before.last = sub i64 %count, 1
  br label %other
other:
  %j = phi i64 [ 0, %memory ], [ %j.next, %meet ]
  %j.more = icmp slt i64 %j, %number
  br i1 %j.more, label %meet, label %yes
meet:
  %j.next = add i64 %j, 1
  %j.record = getelementptr %Record, ptr %table, i64 %j
  %j.data = load ptr, ptr %j.record, align 8
  %j.stride.at = getelementptr %Record, ptr %j.record, i64 0, i32 1
  %j.stride = load i64, ptr %j.stride.at, align 8
  %j.columns.at = getelementptr i64, ptr %at.columns, i64 %j
  %j.columns = load i64, ptr %j.columns.at, align 8
  %j.row = mul i64 %j.columns, %itemsize
  %j.rows = mul i64 %j.stride, %before.last
  %j.bytes = add i64 %j.rows, %j.row
  %j.begin = ptrtoint ptr %j.data to i64
  %j.end = add i64 %j.begin, %j.bytes
  %starts = icmp ult i64 %j.begin, %end
  %ends = icmp ult i64 %begin, %j.end
  %meets = and i1 %starts, %ends
  br i1 %meets, label %no, label %other
yes:
  ret i1 true
no:
  ret i1 false
}
"""

# A new array for output %k of %rows states (-1: of one), or null.
_CREATE = """
define internal ptr @create(ptr %context, i64 %rows, i64 %k) {
  %shape = alloca [$axes x i64], align 16
  $addresses
  %single = icmp eq i64 %rows, -1
  %more = select i1 %single, i64 0, i64 1
  %lengths.at = getelementptr [$max_trailing x i64], ptr %at.shapes, i64 %k
  %lengths = load <$max_trailing x i64>, ptr %lengths.at, align 8
  %tail = getelementptr i64, ptr %shape, i64 1
  store i64 %rows, ptr %shape, align 8
  store <$max_trailing x i64> %lengths, ptr %tail, align 8
  %own.shape = select i1 %single, ptr %tail, ptr %shape
  %trailing.at = getelementptr i64, ptr %at.trailing, i64 %k
  %trailing = load i64, ptr %trailing.at, align 8
  %nd = add i64 %trailing, %more
  %nd32 = trunc i64 %nd to i32
  %number = load i64, ptr %at.type_number, align 8
  %number32 = trunc i64 %number to i32
  %array.type = load ptr, ptr %at.array_type, align 8
  %itemsize = load i64, ptr %at.itemsize, align 8
  %inputs = load i64, ptr %at.inputs, align 8
  %place = add i64 %inputs, %k
  %columns.at = getelementptr i64, ptr %at.columns, i64 %place
  %columns = load i64, ptr %columns.at, align 8
  %bytes.row = mul i64 %columns, %itemsize
  %bytes = mul i64 %bytes.row, %rows
  %fresh = call ptr @new_array(ptr %context, i64 %bytes, ptr %array.type, i32 %nd32, ptr %own.shape, i32 %number32)
  ret ptr %fresh
}
"""

# What the user gets of a result: its array, whose reference this takes, or where it has no axes and no array, a scalar
# of the number; null where there is no memory for that.
_HANDED = """
define internal ptr @handed(ptr %context, ptr %array, ptr %number) {
start:
  $addresses
  %bare = icmp eq ptr %array, null
  br i1 %bare, label %scalar, label %whole
scalar:
  %new = load ptr, ptr %at.PyArray_Scalar, align 8
  %descr = load ptr, ptr %at.descr, align 8
  %made = call ptr %new(ptr %number, ptr %descr, ptr null)
  ret ptr %made
whole:
  ret ptr %array
}
"""


def results_text(words: Mapping[str, object]) -> str:
    """`@adoptable`, `@create` and `@handed`, and the allocator of large results."""
    return kept_text(words) + Template(_ADOPTABLE + _CREATE + _HANDED).substitute(words)
