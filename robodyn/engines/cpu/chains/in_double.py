"""The kernel of states in single precision that computes in double: it calls another for some rows after the others.

What goes in is exact in double precision, and what comes out is rounded once. It is a kernel like any other, `void
kernel(ptr table, i64 first, i64 last, ptr workspace)`. Behind the user's arrays the table has one constant, the
descriptor, 64-bit integers:

    address of the kernel in double precision, number of inputs, of all arrays, of words behind the arrays in its table,
    offset of its own workspace, address of the `Force` that is taken from an input first, or 0, rows at a time;
    for each array the scalars of a state, and the offset of their doubles in the workspace;
    the words.

The workspace begins with the table of that kernel, whose arrays are these doubles.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from robodyn.arguments import Array
from robodyn.codegen.loops.llvm import Module
from robodyn.engines.cpu.chains.plan import StageCall
from robodyn.engines.cpu.native.answers import JointForce
from robodyn.engines.cpu.native.context import Force
from robodyn.engines.cpu.native.joint_forces import DOUBLE, force

_LINE = 64
_BLOCK = 8
"""Numbers that are converted together: a power of two."""
_MAX_ROWS, _MAX_BYTES = 64, 1 << 18
"""Rows at a time, and bytes of their doubles, at most: these stay in the second cache."""


class InDoublePlan:
    """The descriptor, and the workspace that it takes.

    Args:
        sizes: scalars of one state of each array, inputs first.
        inputs: how many of them are inputs.
        call: the kernel in double precision, of the same arrays.
        step: rows that this kernel works on at once; so many are given to it, or a multiple.
        force: damping and friction, which are taken from an input.
    """

    def __init__(
        self, sizes: Sequence[int], inputs: int, call: StageCall, step: int, force: JointForce | None = None
    ) -> None:
        self._kept = force  # which owns its arrays
        self._force = Force() if force is None else _force(force)
        fitting = min(_MAX_ROWS, _MAX_BYTES // max(1, 8 * sum(sizes)))
        rows = max(step, fitting // step * step)
        constants = (*call.constants[:-1], rows) if call.batch else call.constants
        at = _lines(16 * len(sizes) + 8 * len(constants))
        words: list[int] = []
        for size in sizes:
            words += (size, at)
            at += _lines(8 * size * rows)
        self.workspace_bytes = at + call.workspace_bytes
        taken = 0 if force is None else ctypes.addressof(self._force)
        words = [call.address, inputs, len(sizes), len(constants), at, taken, rows, *words, *constants]
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
    taken = Module({})
    taken.export(force, kind=DOUBLE)
    return f"""{taken.text()}
{_converted("extend", "float", "double", "fpext")}{_converted("round", "double", "float", "fptrunc")}{_TAKE}
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
  %most.at = getelementptr i64, ptr %descriptor, i64 6
  %most = load i64, ptr %most.at, align 8
  %sizes = getelementptr i64, ptr %descriptor, i64 7
  %constants = getelementptr {{i64, i64}}, ptr %sizes, i64 %arrays
  %constants.to = getelementptr {{i64, i64}}, ptr %workspace, i64 %arrays
  %some = icmp slt i64 %first, %last
  br i1 %some, label %place, label %done
place:
  %p = phi i64 [ 0, %entry ], [ %p.next, %place ]
  %p.at = getelementptr {{i64, i64}}, ptr %sizes, i64 %p
  %p.size = load i64, ptr %p.at, align 8
  %p.offset.at = getelementptr i64, ptr %p.at, i64 1
  %p.offset = load i64, ptr %p.offset.at, align 8
  %p.doubles = getelementptr i8, ptr %workspace, i64 %p.offset
  %p.stride = shl i64 %p.size, 3
  %p.to = getelementptr {{ptr, i64}}, ptr %workspace, i64 %p
  store ptr %p.doubles, ptr %p.to, align 8
  %p.stride.to = getelementptr {{ptr, i64}}, ptr %workspace, i64 %p, i32 1
  store i64 %p.stride, ptr %p.stride.to, align 8
  %p.next = add i64 %p, 1
  %p.more = icmp slt i64 %p.next, %arrays
  br i1 %p.more, label %place, label %word.check
word.check:
  %w = phi i64 [ 0, %place ], [ %w.next, %word ]
  %w.more = icmp slt i64 %w, %words
  br i1 %w.more, label %word, label %piece
word:
  %w.at = getelementptr i64, ptr %constants, i64 %w
  %w.value = load i64, ptr %w.at, align 8
  %w.to = getelementptr i64, ptr %constants.to, i64 %w
  store i64 %w.value, ptr %w.to, align 8
  %w.next = add i64 %w, 1
  br label %word.check
piece:
  %r = phi i64 [ %first, %word.check ], [ %r.next, %piece.done ]
  %left = sub i64 %last, %r
  %all = icmp slt i64 %left, %most
  %rows = select i1 %all, i64 %left, i64 %most
  br label %array
array:
  %a = phi i64 [ 0, %piece ], [ %a.next, %array.done ]
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
  %own.stride = shl i64 %size, 3
  %is.result = icmp sge i64 %a, %inputs
  %calls = icmp eq i64 %a, %inputs
  br i1 %calls, label %ready, label %which
ready:
  br i1 %forced, label %take, label %call
take:
  call void @take(ptr %workspace, ptr %force, i64 %rows)
  br label %call
call:
  call void %address(ptr %workspace, i64 0, i64 %rows, ptr %own)
  br label %which
which:
  br i1 %is.result, label %round, label %extend
extend:
  call void @extend(ptr %user, i64 %user.stride, ptr %doubles, i64 %own.stride, i64 %size, i64 %rows)
  br label %array.done
round:
  call void @round(ptr %doubles, i64 %own.stride, ptr %user, i64 %user.stride, i64 %size, i64 %rows)
  br label %array.done
array.done:
  %a.next = add i64 %a, 1
  %a.more = icmp slt i64 %a.next, %arrays
  br i1 %a.more, label %array, label %piece.done
piece.done:
  %r.next = add i64 %r, %rows
  %r.more = icmp slt i64 %r.next, %last
  br i1 %r.more, label %piece, label %done
done:
  ret void
}}
"""


def _converted(name: str, given: str, wanted: str, how: str) -> str:
    """Rows of numbers of one precision as those of the other."""
    aligned = {"float": 4, "double": 8}
    return f"""
define internal void @{name}(ptr %from, i64 %from.stride, ptr %to, i64 %to.stride, i64 %size, i64 %rows) {{
entry:
  %some = icmp sgt i64 %size, 0
  %blocks = and i64 %size, {-_BLOCK}
  %several = icmp sgt i64 %blocks, 0
  br i1 %some, label %row, label %done
row:
  %r = phi i64 [ 0, %entry ], [ %r.next, %row.done ]
  %from.offset = mul i64 %r, %from.stride
  %from.row = getelementptr i8, ptr %from, i64 %from.offset
  %to.offset = mul i64 %r, %to.stride
  %to.row = getelementptr i8, ptr %to, i64 %to.offset
  br i1 %several, label %block, label %rest
block:
  %b = phi i64 [ 0, %row ], [ %b.next, %block ]
  %from.block.at = getelementptr {given}, ptr %from.row, i64 %b
  %values = load <{_BLOCK} x {given}>, ptr %from.block.at, align {aligned[given]}
  %block.converted = {how} <{_BLOCK} x {given}> %values to <{_BLOCK} x {wanted}>
  %to.block.at = getelementptr {wanted}, ptr %to.row, i64 %b
  store <{_BLOCK} x {wanted}> %block.converted, ptr %to.block.at, align {aligned[wanted]}
  %b.next = add i64 %b, {_BLOCK}
  %b.more = icmp slt i64 %b.next, %blocks
  br i1 %b.more, label %block, label %rest
rest:
  %done.so.far = phi i64 [ 0, %row ], [ %blocks, %block ]
  %any.left = icmp slt i64 %done.so.far, %size
  br i1 %any.left, label %number, label %row.done
number:
  %k = phi i64 [ %done.so.far, %rest ], [ %k.next, %number ]
  %from.at = getelementptr {given}, ptr %from.row, i64 %k
  %value = load {given}, ptr %from.at, align {aligned[given]}
  %converted = {how} {given} %value to {wanted}
  %to.at = getelementptr {wanted}, ptr %to.row, i64 %k
  store {wanted} %converted, ptr %to.at, align {aligned[wanted]}
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, %size
  br i1 %k.more, label %number, label %row.done
row.done:
  %r.next = add i64 %r, 1
  %r.more = icmp slt i64 %r.next, %rows
  br i1 %r.more, label %row, label %done
done:
  ret void
}}
"""


_TAKE = """
define internal void @take(ptr %table, ptr %force, i64 %rows) {
entry:
  %target = load i64, ptr %force, align 8
  %source.at = getelementptr i64, ptr %force, i64 1
  %source = load i64, ptr %source.at, align 8
  %n.at = getelementptr i64, ptr %force, i64 3
  %n = load i64, ptr %n.at, align 8
  %to.at = getelementptr {ptr, i64}, ptr %table, i64 %target
  %to = load ptr, ptr %to.at, align 8
  %rates.at = getelementptr {ptr, i64}, ptr %table, i64 %source
  %rates = load ptr, ptr %rates.at, align 8
  %stride = shl i64 %n, 3
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %r.next, %row ]
  %offset = mul i64 %r, %stride
  %to.row = getelementptr i8, ptr %to, i64 %offset
  %rates.row = getelementptr i8, ptr %rates, i64 %offset
  call void @force(ptr %to.row, ptr %to.row, ptr %rates.row, ptr %force, i64 -1)
  %r.next = add i64 %r, 1
  %r.more = icmp slt i64 %r.next, %rows
  br i1 %r.more, label %row, label %done
done:
  ret void
}
"""
"""Damping and friction taken from forces: as many numbers as there are speeds."""
