"""Damping and friction around a kernel: machine code that reads a `Context`."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template

_TYPE = "%Force = type { i64, i64, i64, i64, ptr, ptr, ptr }"

# n numbers of %to, %step apart, are those of %from plus %sign times (damping x + friction sign(x)).
_FORCE = """
define internal void @force$bytes(ptr %to, ptr %from, ptr %rates, ptr %force, i64 %n, i64 %step, $scalar %sign) {
start:
  %damping.at = getelementptr %Force, ptr %force, i64 0, i32 4
  %friction.at = getelementptr %Force, ptr %force, i64 0, i32 5
  %damping = load ptr, ptr %damping.at, align 8
  %friction = load ptr, ptr %friction.at, align 8
  br label %next
next:
  %i = phi i64 [ 0, %start ], [ %i.next, %one ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %one, label %done
one:
  %i.next = add i64 %i, 1
  %x.at = getelementptr $scalar, ptr %rates, i64 %i
  %d.at = getelementptr $scalar, ptr %damping, i64 %i
  %f.at = getelementptr $scalar, ptr %friction, i64 %i
  %x = load $scalar, ptr %x.at, align 1
  %d = load $scalar, ptr %d.at, align 1
  %f = load $scalar, ptr %f.at, align 1
  %up = fcmp ogt $scalar %x, 0.0
  %down = fcmp olt $scalar %x, 0.0
  %still = fmul $scalar %x, 0.0
  %falls = select i1 %down, $scalar -1.0, $scalar %still
  %direction = select i1 %up, $scalar 1.0, $scalar %falls
  %viscous = fmul $scalar %d, %x
  %dry = fmul $scalar %f, %direction
  %both = fadd $scalar %viscous, %dry
  %part = fmul $scalar %both, %sign
  %place = mul i64 %i, %step
  %value.at = getelementptr $scalar, ptr %from, i64 %place
  %result.at = getelementptr $scalar, ptr %to, i64 %place
  %value = load $scalar, ptr %value.at, align 1
  %result = fadd $scalar %value, %part
  store $scalar %result, ptr %result.at, align 1
  br label %next
done:
  ret void
}
"""

# @worked is a kernel whose table is a job: the query's kernel, with forces taken from an input before it (%before) or
# added to results behind it.
_WORKED = """
define internal ptr @row(ptr %record, i64 %number) {
  %data = load ptr, ptr %record, align 8
  %stride.at = getelementptr %Record, ptr %record, i64 0, i32 1
  %stride = load i64, ptr %stride.at, align 8
  %offset = mul i64 %stride, %number
  %at = getelementptr i8, ptr %data, i64 %offset
  ret ptr %at
}
define internal void @forces(ptr %context, ptr %table, ptr %given, i64 %first, i64 %last, i1 %before) {
start:
  $addresses
  %many = load i64, ptr %at.forces, align 8
  %itemsize = load i64, ptr %at.itemsize, align 8
  %double = icmp eq i64 %itemsize, 8
  br label %next
next:
  %k = phi i64 [ 0, %start ], [ %k.next, %skip ], [ %k.next, %rows ]
  %more = icmp slt i64 %k, %many
  br i1 %more, label %look, label %done
look:
  %k.next = add i64 %k, 1
  %force = getelementptr %Force, ptr %at.force, i64 %k
  %target.at = getelementptr %Force, ptr %force, i64 0, i32 0
  %source.at = getelementptr %Force, ptr %force, i64 0, i32 1
  %step.at = getelementptr %Force, ptr %force, i64 0, i32 2
  %n.at = getelementptr %Force, ptr %force, i64 0, i32 3
  %ones.at = getelementptr %Force, ptr %force, i64 0, i32 6
  %target = load i64, ptr %target.at, align 8
  %source = load i64, ptr %source.at, align 8
  %step = load i64, ptr %step.at, align 8
  %n = load i64, ptr %n.at, align 8
  %ones = load ptr, ptr %ones.at, align 8
  %drive = load i64, ptr %at.drive, align 8
  %taken = icmp eq i64 %target, %drive
  %now = icmp eq i1 %taken, %before
  br i1 %now, label %begin, label %skip
skip:
  br label %next
begin:
  %to.record = getelementptr %Record, ptr %table, i64 %target
  %lent.record = getelementptr %Record, ptr %given, i64 %target
  %from.record = select i1 %before, ptr %lent.record, ptr %to.record
  %constant = icmp slt i64 %source, 0
  %some = select i1 %constant, i64 0, i64 %source
  %rates.record = getelementptr %Record, ptr %given, i64 %some
  br label %rows
rows:
  %r = phi i64 [ %first, %begin ], [ %r.next, %row.done ]
  %r.more = icmp slt i64 %r, %last
  br i1 %r.more, label %row, label %next
row:
  %r.next = add i64 %r, 1
  %to = call ptr @row(ptr %to.record, i64 %r)
  %from = call ptr @row(ptr %from.record, i64 %r)
  %rates.own = call ptr @row(ptr %rates.record, i64 %r)
  %rates = select i1 %constant, ptr %ones, ptr %rates.own
  br i1 %double, label %eight, label %four
eight:
  %sign8 = select i1 %before, double -1.0, double 1.0
  call void @force8(ptr %to, ptr %from, ptr %rates, ptr %force, i64 %n, i64 %step, double %sign8)
  br label %row.done
four:
  %sign4 = select i1 %before, float -1.0, float 1.0
  call void @force4(ptr %to, ptr %from, ptr %rates, ptr %force, i64 %n, i64 %step, float %sign4)
  br label %row.done
row.done:
  br label %rows
done:
  ret void
}
define internal void @worked(ptr %job, i64 %first, i64 %last, ptr %workspace) {
start:
  %table.at = getelementptr %Job, ptr %job, i64 0, i32 1
  %kernel.at = getelementptr %Job, ptr %job, i64 0, i32 2
  %given.at = getelementptr %Job, ptr %job, i64 0, i32 4
  %context = load ptr, ptr %job, align 8
  %table = load ptr, ptr %table.at, align 8
  %kernel = load ptr, ptr %kernel.at, align 8
  %given = load ptr, ptr %given.at, align 8
  call void @forces(ptr %context, ptr %table, ptr %given, i64 %first, i64 %last, i1 true)
  call void %kernel(ptr %table, i64 %first, i64 %last, ptr %workspace)
  call void @forces(ptr %context, ptr %table, ptr %given, i64 %first, i64 %last, i1 false)
  ret void
}
"""


def joint_forces_text(words: Mapping[str, object]) -> str:
    """`@worked`, a kernel that does a query's work, damping and friction included."""
    return _TYPE + _force_text(8) + _force_text(4) + Template(_WORKED).substitute(words)


def taken_text() -> str:
    """`@force8` alone, for a module of its own."""
    return _TYPE + _force_text(8)


def _force_text(itemsize: int) -> str:
    """`@force8`, or `@force4`: damping and friction of one state."""
    return Template(_FORCE).substitute(bytes=itemsize, scalar={8: "double", 4: "float"}[itemsize])
