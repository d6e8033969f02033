"""Many steps of an integrator in one call: a kernel that runs a step's kernel again and again, on arrays that move on.

It is a kernel like any other, `void kernel(ptr table, i64 first, i64 last, ptr workspace)`: threads share the rows of a
batch, and each takes its rows through all steps while they are in its cache. Behind the arrays, the table has one
constant, the descriptor, 64-bit integers:

    address of the step's kernel, steps, by how many bytes each array moves on from one step to the next.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from robodyn.arguments import Array
from robodyn.engines.cpu.kernels import Compiler, Kernel

_LINE = 64
Launch = Callable[[Kernel, int, int, int], None]


class March:
    """The kernel around the kernel of a step."""

    def __init__(self, compiler: Compiler, step: Kernel) -> None:
        self._step = step
        n_arrays = len(step.inputs) + len(step.request.algorithm.outputs)
        text = march_module(n_arrays)
        self._kernel = replace(
            step,
            mode="march",
            code=compiler.shared(text, "march", step.request.target),
            workspace_bytes=march_bytes(n_arrays),
            module=lambda: text,
        )

    def run(self, launch: Launch, states: tuple[Array, Array], given: Mapping[str, Array], dt: float) -> None:
        """Fill states (steps + 1, B, ...) behind their first row; `given` are (steps, B, ...), or (1, B, ...) where
        they stay. A state's scalars lie side by side in all of them."""
        q, qd = states
        steps, batch = len(q) - 1, q.shape[1]
        time = np.full((1, 1, 1), dt, q.dtype)
        arrays = {"q": q[:-1], "qd": qd[:-1], "q_next": q[1:], "qd_next": qd[1:], **given}
        arrays["dt"] = np.broadcast_to(time, (1, batch, 1))
        listed = [arrays[name] for name in (*self._step.inputs, *self._step.request.algorithm.outputs)]
        words = [word for array in listed for word in (array.__array_interface__["data"][0], array.strides[1])]
        moves = [array.strides[0] if len(array) > 1 else 0 for array in listed]
        descriptor = march_descriptor(self._step.address, steps, moves)
        table = (ctypes.c_int64 * (len(words) + 2))(*words, descriptor.ctypes.data, 0)
        launch(self._kernel, ctypes.addressof(table), batch, steps)


def march_bytes(n_arrays: int) -> int:
    """Bytes of scratch memory for the table that a step's kernel gets."""
    return -(-16 * n_arrays // _LINE) * _LINE


def march_descriptor(address: int, steps: int, moves: Sequence[int]) -> Array:
    """The descriptor."""
    return np.array([word % (1 << 64) for word in (address, steps, *moves)], dtype=np.uint64).view(np.int64)


def march_module(n_arrays: int) -> str:
    """The module for steps with so many inputs and outputs."""
    return f"""define void @kernel(ptr %table, i64 %first, i64 %last, ptr %workspace) {{
entry:
  %descriptor.at = getelementptr {{ptr, i64}}, ptr %table, i64 {n_arrays}
  %descriptor = load ptr, ptr %descriptor.at, align 8
  %address.word = load i64, ptr %descriptor, align 8
  %address = inttoptr i64 %address.word to ptr
  %steps.at = getelementptr i64, ptr %descriptor, i64 1
  %steps = load i64, ptr %steps.at, align 8
  %moves = getelementptr i64, ptr %descriptor, i64 2
  %own = getelementptr i8, ptr %workspace, i64 {march_bytes(n_arrays)}
  %some = icmp sgt i64 %steps, 0
  br i1 %some, label %step, label %done
step:
  %t = phi i64 [ 0, %entry ], [ %t.next, %call ]
  br label %array
array:
  %k = phi i64 [ 0, %step ], [ %k.next, %array ]
  %from = getelementptr {{i64, i64}}, ptr %table, i64 %k
  %start = load i64, ptr %from, align 8
  %stride.at = getelementptr i64, ptr %from, i64 1
  %stride = load i64, ptr %stride.at, align 8
  %move.at = getelementptr i64, ptr %moves, i64 %k
  %move = load i64, ptr %move.at, align 8
  %moved = mul i64 %t, %move
  %here = add i64 %start, %moved
  %to = getelementptr {{i64, i64}}, ptr %workspace, i64 %k
  store i64 %here, ptr %to, align 8
  %to.stride = getelementptr i64, ptr %to, i64 1
  store i64 %stride, ptr %to.stride, align 8
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, {n_arrays}
  br i1 %k.more, label %array, label %call
call:
  call void %address(ptr %workspace, i64 %first, i64 %last, ptr %own)
  %t.next = add i64 %t, 1
  %more = icmp slt i64 %t.next, %steps
  br i1 %more, label %step, label %done
done:
  ret void
}}
"""
