"""The kernel of an algorithm at every unit vector of an input: it calls the algorithm's kernels for each state.

One state of the user's is a batch of nv states to the algorithm: all have the same row of every input, unit vectors are
the rows of an identity matrix, and results of one state lie behind one another as they should. So nothing is copied,
and the lanes of a vector are unit vectors. Where the algorithm is in two halves (`halves.py`), the first runs once for
each state, and leaves to the second what does not depend on the unit vector; so do the first stages of a chain that is
taken apart (`tensors.py`), whose others run for some unit vectors after the others.

It is a kernel like any other, `void kernel(ptr table, i64 first, i64 last, ptr workspace)`. Behind the user's arrays
the table has one constant, the descriptor, 64-bit integers:

    number of calls, offset of their tables in the workspace, offset of their own workspace;
    for each of them the kernel's address, its first row and the end of its rows, number of entries of its table, and
    for each entry (array, stride, 0), which is the user's row of the state, with rows of this stride in it,
    (-1, word, word), or (-2, offset, stride), which is a place in the workspace.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from robodyn.arguments import Array
from robodyn.chains import Units
from robodyn.engines.cpu.chains.plan import StageCall
from robodyn.model import Model
from robodyn.records import dataclass
from robodyn.tracing.unrolled import output_shape

_LINE = 64
_LITERAL, _WITHIN = -1, -2


@dataclass(frozen=True)
class Within:
    """An array in the workspace: its bytes, and those from one row to the next, 0 if all have the same; `of`: the array
    whose memory it is."""

    size: int
    stride: int = 0
    of: str | None = None


@dataclass(frozen=True)
class UnitsCall:
    """A kernel, and the rows that it is called for; `moving`: arrays that begin with the first of these."""

    call: StageCall
    first: int
    end: int
    moving: tuple[str, ...] = ()


class UnitsPlan:
    """The descriptor, and the workspace that it takes.

    Args:
        model: the robot.
        task: what to run.
        inputs: names of the task's inputs in the table's order.
        calls: kernels; their inputs and results are called as those of the task, or as arrays between them.
        dtype: of arrays.
        within: these arrays.
    """

    def __init__(
        self,
        model: Model,
        task: Units,
        inputs: Sequence[str],
        calls: Sequence[UnitsCall],
        dtype: np.dtype[np.float64] | np.dtype[np.float32],
        within: Mapping[str, Within],
    ) -> None:
        self.identity: Array = np.eye(model.nv, dtype=dtype)
        arrays = [*inputs, *task.outputs]
        offsets, end = dict[str, int](), 0
        for name, each in within.items():
            offsets[name] = end if each.of is None else offsets[each.of]
            end += _up(each.size) if each.of is None else 0

        def entry(asked: UnitsCall, name: str) -> tuple[int, int, int]:
            if name == task.vector:
                return _LITERAL, self.identity.ctypes.data, self.identity.strides[0]
            if name in within:
                stride = within[name].stride
                return _WITHIN, offsets[name] - asked.first * stride * (name in asked.moving), stride
            shape = output_shape(model, task.outputs[name].output) if name in task.outputs else None
            return arrays.index(name), 0 if shape is None else math.prod(shape) * dtype.itemsize, 0

        words: list[int] = []
        longest = 0
        for asked in calls:
            call = asked.call
            pairs = zip(call.constants[0::2], call.constants[1::2], strict=True)
            entries = [entry(asked, name) for name in call.arrays]
            entries += [(_LITERAL, data, stride) for data, stride in pairs]
            longest = max(longest, len(entries))
            words += [call.address, asked.first, asked.end, len(entries), *(word for each in entries for word in each)]
        own = end + _up(16 * longest)
        self.workspace_bytes = own + _up(max(asked.call.workspace_bytes for asked in calls))
        words = [len(calls), end, own, *words]
        self.descriptor: Array = np.array([word % (1 << 64) for word in words], dtype=np.uint64).view(np.int64)


def _up(size: int) -> int:
    return -(-size // _LINE) * _LINE


def units_module(n_arrays: int) -> str:
    """The module for tasks with n inputs and outputs."""
    return f"""define void @kernel(ptr %table, i64 %first, i64 %last, ptr %workspace) {{
entry:
  %descriptor.at = getelementptr {{ptr, i64}}, ptr %table, i64 {n_arrays}
  %descriptor = load ptr, ptr %descriptor.at, align 8
  %calls = load i64, ptr %descriptor, align 8
  %calls.from = getelementptr i64, ptr %descriptor, i64 3
  %target.at = getelementptr i64, ptr %descriptor, i64 1
  %target.offset = load i64, ptr %target.at, align 8
  %target = getelementptr i8, ptr %workspace, i64 %target.offset
  %own.at = getelementptr i64, ptr %descriptor, i64 2
  %own.offset = load i64, ptr %own.at, align 8
  %own = getelementptr i8, ptr %workspace, i64 %own.offset
  %workspace.word = ptrtoint ptr %workspace to i64
  %some = icmp slt i64 %first, %last
  br i1 %some, label %row, label %done
row:
  %r = phi i64 [ %first, %entry ], [ %r.next, %row.done ]
  br label %kernel
kernel:
  %c = phi i64 [ 0, %row ], [ %c.next, %call ]
  %from = phi ptr [ %calls.from, %row ], [ %entries.end, %call ]
  %address.word = load i64, ptr %from, align 8
  %address = inttoptr i64 %address.word to ptr
  %begin.at = getelementptr i64, ptr %from, i64 1
  %begin = load i64, ptr %begin.at, align 8
  %end.at = getelementptr i64, ptr %from, i64 2
  %end = load i64, ptr %end.at, align 8
  %count.at = getelementptr i64, ptr %from, i64 3
  %count = load i64, ptr %count.at, align 8
  %entries = getelementptr i64, ptr %from, i64 4
  %entries.end = getelementptr {{i64, i64, i64}}, ptr %entries, i64 %count
  br label %fill
fill:
  %e = phi i64 [ 0, %kernel ], [ %e.next, %fill ]
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
  %is.within = icmp eq i64 %array, {_WITHIN}
  %within = add i64 %workspace.word, %a
  %other = select i1 %is.within, i64 %within, i64 %a
  %data = select i1 %is.user, i64 %user.row, i64 %other
  %stride = select i1 %is.user, i64 %a, i64 %b
  %to = getelementptr {{i64, i64}}, ptr %target, i64 %e
  store i64 %data, ptr %to, align 8
  %to.stride = getelementptr i64, ptr %to, i64 1
  store i64 %stride, ptr %to.stride, align 8
  %e.next = add i64 %e, 1
  %e.more = icmp slt i64 %e.next, %count
  br i1 %e.more, label %fill, label %call
call:
  call void %address(ptr %target, i64 %begin, i64 %end, ptr %own)
  %c.next = add i64 %c, 1
  %c.more = icmp slt i64 %c.next, %calls
  br i1 %c.more, label %kernel, label %row.done
row.done:
  %r.next = add i64 %r, 1
  %more = icmp slt i64 %r.next, %last
  br i1 %more, label %row, label %done
done:
  ret void
}}
"""
