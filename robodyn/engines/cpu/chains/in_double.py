"""The kernel of a state in single precision that computes in double: it calls another for each state.

What goes in is exact in double precision, and what comes out is rounded once. It is a kernel like any other, `void
kernel(ptr table, i64 first, i64 last, ptr workspace)`. Behind the user's arrays the table has one constant, the
descriptor, 64-bit integers:

    address of the kernel in double precision, number of inputs, of all arrays, of words behind the arrays in its table,
    offset of its own workspace, address of the `Force` that is taken from an input first, or 0;
    for each array the scalars of a state, and the offset of their doubles in the workspace;
    the words.

The workspace begins with the table of that kernel, whose arrays are these doubles: one state's, so strides are 0.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from robodyn.arguments import Array
from robodyn.engines.cpu.chains.plan import StageCall
from robodyn.engines.cpu.native.answers import JointForce
from robodyn.engines.cpu.native.context import Force
from robodyn.engines.cpu.native.joint_forces import taken_text

_LINE = 64


class InDoublePlan:
    """The descriptor, and the workspace that it takes.

    Args:
        sizes: scalars of one state of each array, inputs first.
        inputs: how many of them are inputs.
        call: the kernel in double precision, of the same arrays.
        force: damping and friction, which are taken from an input.
    """

    def __init__(self, sizes: Sequence[int], inputs: int, call: StageCall, force: JointForce | None = None) -> None:
        self._kept = force  # which owns its arrays
        self._force = Force() if force is None else _force(force)
        at = _lines(16 * len(sizes) + 8 * len(call.constants))
        words: list[int] = []
        for size in sizes:
            words += (size, at)
            at += _lines(8 * size)
        self.workspace_bytes = at + call.workspace_bytes
        taken = 0 if force is None else ctypes.addressof(self._force)
        words = [call.address, inputs, len(sizes), len(call.constants), at, taken, *words, *call.constants]
        self.descriptor: Array = np.array([word % (1 << 64) for word in words], dtype=np.uint64).view(np.int64)


def _force(force: JointForce) -> Force:
    """The same for machine code."""
    assert force.source is not None
    data = force.damping.ctypes.data, force.friction.ctypes.data
    return Force(force.target, force.source, force.step, force.damping.size, *data)


def _lines(size: int) -> int:
    return -(-size // _LINE) * _LINE


def in_double_module(n_arrays: int) -> str:
    """The module for n inputs and outputs."""
    return f"""{taken_text()}
define void @kernel(ptr %table, i64 %first, i64 %last, ptr %workspace) {{
entry:
  %descriptor.at = getelementptr {{ptr, i64}}, ptr %table, i64 {n_arrays}
  %descriptor = load ptr, ptr %descriptor.at, align 8
  %address.word = load i64, ptr %descriptor, align 8
  %address = inttoptr i64 %address.word to ptr
  %inputs.at = getelementptr i64, ptr %descriptor, i64 1
  %inputs = load i64, ptr %inputs.at, align 8
  %arrays.at = getelementptr i64, ptr %descriptor, i64 2
  %arrays = load i64, ptr %arrays.at, align 8
  %words.at = getelementptr i64, ptr %descriptor, i64 3
  %words = load i64, ptr %words.at, align 8
  %own.at = getelementptr i64, ptr %descriptor, i64 4
  %own.offset = load i64, ptr %own.at, align 8
  %own = getelementptr i8, ptr %workspace, i64 %own.offset
  %force.at = getelementptr i64, ptr %descriptor, i64 5
  %force = load ptr, ptr %force.at, align 8
  %forced = icmp ne ptr %force, null
  %sizes = getelementptr i64, ptr %descriptor, i64 6
  %constants = getelementptr {{i64, i64}}, ptr %sizes, i64 %arrays
  %constants.to = getelementptr {{i64, i64}}, ptr %workspace, i64 %arrays
  %some = icmp slt i64 %first, %last
  br i1 %some, label %place, label %done
place:
  %p = phi i64 [ 0, %entry ], [ %p.next, %place ]
  %p.at = getelementptr {{i64, i64}}, ptr %sizes, i64 %p, i32 1
  %p.offset = load i64, ptr %p.at, align 8
  %p.doubles = getelementptr i8, ptr %workspace, i64 %p.offset
  %p.to = getelementptr {{ptr, i64}}, ptr %workspace, i64 %p
  store ptr %p.doubles, ptr %p.to, align 8
  %p.stride.to = getelementptr {{ptr, i64}}, ptr %workspace, i64 %p, i32 1
  store i64 0, ptr %p.stride.to, align 8
  %p.next = add i64 %p, 1
  %p.more = icmp slt i64 %p.next, %arrays
  br i1 %p.more, label %place, label %word.check
word.check:
  %w = phi i64 [ 0, %place ], [ %w.next, %word ]
  %w.more = icmp slt i64 %w, %words
  br i1 %w.more, label %word, label %row
word:
  %w.at = getelementptr i64, ptr %constants, i64 %w
  %w.value = load i64, ptr %w.at, align 8
  %w.to = getelementptr i64, ptr %constants.to, i64 %w
  store i64 %w.value, ptr %w.to, align 8
  %w.next = add i64 %w, 1
  br label %word.check
row:
  %r = phi i64 [ %first, %word.check ], [ %r.next, %row.done ]
  br label %array
array:
  %a = phi i64 [ 0, %row ], [ %a.next, %array.done ]
  %a.result = icmp sge i64 %a, %inputs
  %user.at = getelementptr {{ptr, i64}}, ptr %table, i64 %a
  %user.data = load ptr, ptr %user.at, align 8
  %user.stride.at = getelementptr {{ptr, i64}}, ptr %table, i64 %a, i32 1
  %user.stride = load i64, ptr %user.stride.at, align 8
  %user.offset = mul i64 %r, %user.stride
  %user = getelementptr i8, ptr %user.data, i64 %user.offset
  %size.at = getelementptr {{i64, i64}}, ptr %sizes, i64 %a
  %size = load i64, ptr %size.at, align 8
  %doubles.at = getelementptr {{ptr, i64}}, ptr %workspace, i64 %a
  %doubles = load ptr, ptr %doubles.at, align 8
  %calls = icmp eq i64 %a, %inputs
  br i1 %calls, label %ready, label %which
ready:
  br i1 %forced, label %take, label %call
take:
  %target = load i64, ptr %force, align 8
  %source.at = getelementptr %Force, ptr %force, i64 0, i32 1
  %source = load i64, ptr %source.at, align 8
  %n.at = getelementptr %Force, ptr %force, i64 0, i32 3
  %n = load i64, ptr %n.at, align 8
  %from.at = getelementptr {{ptr, i64}}, ptr %workspace, i64 %target
  %from = load ptr, ptr %from.at, align 8
  %rates.at = getelementptr {{ptr, i64}}, ptr %workspace, i64 %source
  %rates = load ptr, ptr %rates.at, align 8
  call void @force8(ptr %from, ptr %from, ptr %rates, ptr %force, i64 %n, i64 1, double -1.0)
  br label %call
call:
  call void %address(ptr %workspace, i64 0, i64 1, ptr %own)
  br label %which
which:
  %empty = icmp eq i64 %size, 0
  br i1 %empty, label %array.done, label %direction
direction:
  br i1 %a.result, label %round, label %extend
extend:
  %e = phi i64 [ 0, %direction ], [ %e.next, %extend ]
  %e.from = getelementptr float, ptr %user, i64 %e
  %e.single = load float, ptr %e.from, align 4
  %e.double = fpext float %e.single to double
  %e.to = getelementptr double, ptr %doubles, i64 %e
  store double %e.double, ptr %e.to, align 8
  %e.next = add i64 %e, 1
  %e.more = icmp slt i64 %e.next, %size
  br i1 %e.more, label %extend, label %array.done
round:
  %o = phi i64 [ 0, %direction ], [ %o.next, %round ]
  %o.from = getelementptr double, ptr %doubles, i64 %o
  %o.double = load double, ptr %o.from, align 8
  %o.single = fptrunc double %o.double to float
  %o.to = getelementptr float, ptr %user, i64 %o
  store float %o.single, ptr %o.to, align 4
  %o.next = add i64 %o, 1
  %o.more = icmp slt i64 %o.next, %size
  br i1 %o.more, label %round, label %array.done
array.done:
  %a.next = add i64 %a, 1
  %a.more = icmp slt i64 %a.next, %arrays
  br i1 %a.more, label %array, label %row.done
row.done:
  %r.next = add i64 %r, 1
  %r.more = icmp slt i64 %r.next, %last
  br i1 %r.more, label %row, label %done
done:
  ret void
}}
"""
