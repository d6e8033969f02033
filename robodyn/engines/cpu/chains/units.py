"""The kernel of an algorithm at every unit vector of an input: it calls the algorithm's kernel once for each state.

One state of the user's is a batch of nv states to the algorithm: all have the same row of every input, unit vectors are
the rows of an identity matrix, and results of one state lie behind one another as they should. So nothing is copied,
and the lanes of a vector are unit vectors.

It is a kernel like any other, `void kernel(ptr table, i64 first, i64 last, ptr workspace)`. Behind the user's arrays
the table has one constant, the descriptor, 64-bit integers:

    address of the algorithm's kernel, nv, offset of its own workspace, number of entries of its table;
    for each entry (array, stride, 0), which is the user's row of the state, with rows of this stride in it, or
    (-1, word, word).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from robodyn.arguments import Array
from robodyn.chains import Units
from robodyn.engines.cpu.chains.plan import StageCall
from robodyn.model import Model
from robodyn.tracing.unrolled import output_shape

_LINE = 64


class UnitsPlan:
    """The descriptor, and the workspace that it takes.

    Args:
        model: the robot.
        task: what to run.
        inputs: names of the task's inputs in the table's order.
        call: the algorithm's kernel; its results are called as those of the task.
        dtype: of arrays.
    """

    def __init__(
        self,
        model: Model,
        task: Units,
        inputs: Sequence[str],
        call: StageCall,
        dtype: np.dtype[np.float64] | np.dtype[np.float32],
    ) -> None:
        self.times = model.nv
        self.identity: Array = np.eye(model.nv, dtype=dtype)
        arrays = [*inputs, *task.outputs]
        entries: list[tuple[int, int, int]] = []
        for name in call.arrays:
            if name == task.vector:
                entries.append((-1, self.identity.ctypes.data, self.identity.strides[0]))
            else:
                shape = output_shape(model, task.outputs[name].output) if name in task.outputs else None
                stride = 0 if shape is None else math.prod(shape) * dtype.itemsize
                entries.append((arrays.index(name), stride, 0))
        pairs = zip(call.constants[0::2], call.constants[1::2], strict=True)
        entries += [(-1, data, stride) for data, stride in pairs]
        own = -(-16 * len(entries) // _LINE) * _LINE
        self.workspace_bytes = own + call.workspace_bytes
        words = [call.address, model.nv, own, len(entries), *(word for entry in entries for word in entry)]
        self.descriptor: Array = np.array([word % (1 << 64) for word in words], dtype=np.uint64).view(np.int64)


def units_module(n_arrays: int) -> str:
    """The module for tasks with n inputs and outputs."""
    return f"""define void @kernel(ptr %table, i64 %first, i64 %last, ptr %workspace) {{
entry:
  %descriptor.at = getelementptr {{ptr, i64}}, ptr %table, i64 {n_arrays}
  %descriptor = load ptr, ptr %descriptor.at, align 8
  %address.word = load i64, ptr %descriptor, align 8
  %address = inttoptr i64 %address.word to ptr
  %times.at = getelementptr i64, ptr %descriptor, i64 1
  %times = load i64, ptr %times.at, align 8
  %own.at = getelementptr i64, ptr %descriptor, i64 2
  %own.offset = load i64, ptr %own.at, align 8
  %own = getelementptr i8, ptr %workspace, i64 %own.offset
  %count.at = getelementptr i64, ptr %descriptor, i64 3
  %count = load i64, ptr %count.at, align 8
  %entries = getelementptr i64, ptr %descriptor, i64 4
  %some = icmp slt i64 %first, %last
  br i1 %some, label %row, label %done
row:
  %r = phi i64 [ %first, %entry ], [ %r.next, %call ]
  br label %fill
fill:
  %e = phi i64 [ 0, %row ], [ %e.next, %fill ]
  %at = getelementptr {{i64, i64, i64}}, ptr %entries, i64 %e
  %array = load i64, ptr %at, align 8
  %a.at = getelementptr i64, ptr %at, i64 1
  %a = load i64, ptr %a.at, align 8
  %b.at = getelementptr i64, ptr %at, i64 2
  %b = load i64, ptr %b.at, align 8
  %is.user = icmp sge i64 %array, 0
  %number = select i1 %is.user, i64 %array, i64 0
  %user.at = getelementptr {{i64, i64}}, ptr %table, i64 %number
  %user.data = load i64, ptr %user.at, align 8
  %user.stride.at = getelementptr i64, ptr %user.at, i64 1
  %user.stride = load i64, ptr %user.stride.at, align 8
  %user.offset = mul i64 %r, %user.stride
  %user.row = add i64 %user.data, %user.offset
  %data = select i1 %is.user, i64 %user.row, i64 %a
  %stride = select i1 %is.user, i64 %a, i64 %b
  %to = getelementptr {{i64, i64}}, ptr %workspace, i64 %e
  store i64 %data, ptr %to, align 8
  %to.stride = getelementptr i64, ptr %to, i64 1
  store i64 %stride, ptr %to.stride, align 8
  %e.next = add i64 %e, 1
  %e.more = icmp slt i64 %e.next, %count
  br i1 %e.more, label %fill, label %call
call:
  call void %address(ptr %workspace, i64 0, i64 %times, ptr %own)
  %r.next = add i64 %r, 1
  %more = icmp slt i64 %r.next, %last
  br i1 %more, label %row, label %done
done:
  ret void
}}
"""
