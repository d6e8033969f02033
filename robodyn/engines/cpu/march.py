"""Many steps of an integrator in one call: a kernel that runs a step's kernels again and again, on arrays that move on.

A step is one kernel, or where that would be too large several: those of its parts, and between them the one of the
dynamics. The kernel around them is one like any other, `void kernel(ptr table, i64 first, i64 last, ptr workspace)`:
threads share the rows of a batch, and each takes its rows through all steps while they are in its cache. The table has
one entry, the descriptor, 64-bit integers:

    steps, kernels of a step, offset of their own workspace;
    for each: its address, number of entries of its table, and for each of them
        address of the array, bytes from row to row, and bytes from one step to the next.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from robodyn.arguments import Array
from robodyn.chains import Step
from robodyn.engines.cpu.kernels import Kernel, Maker
from robodyn.records import dataclass

_LINE = 64
Launch = Callable[[Kernel, int, int, int], None]


@dataclass(frozen=True)
class Call:
    """One of a step's kernels, and the names of the arrays that it gets: inputs, then outputs."""

    kernel: Kernel
    arrays: tuple[str, ...]

    @property
    def entries(self) -> int:
        """Of its table."""
        return len(self.arrays) + len(self.kernel.constants) // 2


def whole_step(step: Step, kernel: Kernel) -> list[Call]:
    """A step that is one kernel."""
    return [Call(kernel, (*kernel.inputs, *step.outputs))]


def step_in_parts(step: Step, parts: Sequence[Kernel], dynamics: Kernel) -> list[Call]:
    """The kernels of the parts of a step, with the dynamics between them."""
    calls = []
    for part, kernel in zip(step.parts, parts, strict=True):
        calls.append(Call(kernel, (*kernel.inputs, *part.outputs)))
        if not part.last:
            calls.append(Call(dynamics, (*map(part.at, dynamics.inputs), part.asked)))
    return calls


class March:
    """The kernel around those of a step."""

    def __init__(self, maker: Maker, step: Step, calls: Sequence[Call]) -> None:
        self._step, self._calls = step, tuple(calls)
        tables = 16 * max(call.entries for call in calls)
        self._own = -(-tables // _LINE) * _LINE
        first = calls[0].kernel
        self._kernel = replace(
            first,
            mode="march",
            code=maker.shared(MODULE, "march", first.request.target),
            constants=(),
            workspace_bytes=self._own + max(call.kernel.workspace_bytes for call in calls),
            row_ns=sum(call.kernel.row_ns for call in calls),
            module=lambda: MODULE,
        )

    def run(self, launch: Launch, states: tuple[Array, Array], given: Mapping[str, Array], dt: float) -> None:
        """Fill states (steps + 1, B, ...) behind their first row; `given` are (steps, B, ...), or (1, B, ...) where
        they stay. A state's scalars lie side by side in all of them."""
        q, qd = states
        steps, batch = len(q) - 1, q.shape[1]
        time = np.full((1, 1, 1), dt, q.dtype)
        arrays = {"q": q[:-1], "qd": qd[:-1], "q_next": q[1:], "qd_next": qd[1:], **given}
        arrays["dt"] = np.broadcast_to(time, (1, batch, 1))
        if len(self._calls) > 1:
            arrays |= {name: np.empty_like(arrays[like][:1]) for name, like in self._step.between.items()}
        words = [steps, len(self._calls), self._own]
        for call in self._calls:
            words += [call.kernel.address, call.entries]
            for name in call.arrays:
                array = arrays[name]
                move = array.strides[0] if len(array) > 1 else 0
                words += [array.__array_interface__["data"][0], array.strides[1], move]
            constants = list(call.kernel.constants)
            if call.kernel.batch:
                constants[-1] = batch
            for pair in zip(constants[0::2], constants[1::2], strict=True):
                words += [*pair, 0]
        descriptor = np.array([word % (1 << 64) for word in words], dtype=np.uint64).view(np.int64)
        table = (ctypes.c_int64 * 2)(descriptor.ctypes.data, 0)
        launch(self._kernel, ctypes.addressof(table), batch, steps)


MODULE = """define void @kernel(ptr %table, i64 %first, i64 %last, ptr %workspace) {
entry:
  %descriptor = load ptr, ptr %table, align 8
  %steps = load i64, ptr %descriptor, align 8
  %count.at = getelementptr i64, ptr %descriptor, i64 1
  %count = load i64, ptr %count.at, align 8
  %own.at = getelementptr i64, ptr %descriptor, i64 2
  %own.offset = load i64, ptr %own.at, align 8
  %own = getelementptr i8, ptr %workspace, i64 %own.offset
  %calls = getelementptr i64, ptr %descriptor, i64 3
  %some = icmp sgt i64 %steps, 0
  br i1 %some, label %step, label %done
step:
  %t = phi i64 [ 0, %entry ], [ %t.next, %stepped ]
  br label %kernel
kernel:
  %c = phi i64 [ 0, %step ], [ %c.next, %call ]
  %at = phi ptr [ %calls, %step ], [ %at.next, %call ]
  %address.word = load i64, ptr %at, align 8
  %address = inttoptr i64 %address.word to ptr
  %entries.at = getelementptr i64, ptr %at, i64 1
  %entries = load i64, ptr %entries.at, align 8
  %arrays = getelementptr i64, ptr %at, i64 2
  br label %array
array:
  %k = phi i64 [ 0, %kernel ], [ %k.next, %array ]
  %from = getelementptr {i64, i64, i64}, ptr %arrays, i64 %k
  %start = load i64, ptr %from, align 8
  %stride.at = getelementptr i64, ptr %from, i64 1
  %stride = load i64, ptr %stride.at, align 8
  %move.at = getelementptr i64, ptr %from, i64 2
  %move = load i64, ptr %move.at, align 8
  %moved = mul i64 %t, %move
  %here = add i64 %start, %moved
  %to = getelementptr {i64, i64}, ptr %workspace, i64 %k
  store i64 %here, ptr %to, align 8
  %to.stride = getelementptr i64, ptr %to, i64 1
  store i64 %stride, ptr %to.stride, align 8
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, %entries
  br i1 %k.more, label %array, label %call
call:
  call void %address(ptr %workspace, i64 %first, i64 %last, ptr %own)
  %at.next = getelementptr {i64, i64, i64}, ptr %arrays, i64 %entries
  %c.next = add i64 %c, 1
  %c.more = icmp slt i64 %c.next, %count
  br i1 %c.more, label %kernel, label %stepped
stepped:
  %t.next = add i64 %t, 1
  %more = icmp slt i64 %t.next, %steps
  br i1 %more, label %step, label %done
done:
  ret void
}
"""
