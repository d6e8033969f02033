"""Many steps of an integrator in one call: a step's kernels are called again and again, on arrays that move on.

A step is one kernel, or where that would be too large several: those of its parts, and between them the one of the
dynamics.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from robodyn.algorithms.tasks import Step
from robodyn.engines.cpu.calls import WORDS, Called, CallsPlan, by_steps, calls_module, constants_of, workspace_of
from robodyn.engines.cpu.kernels import Kernel, KernelCompiler
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass

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


class TimeLoop:
    """The kernel around those of a step."""

    def __init__(self, maker: KernelCompiler, step: Step, calls: Sequence[Call]) -> None:
        self._step, self._calls = step, tuple(calls)
        first, text = calls[0].kernel, calls_module(by_steps)
        self._kernel = replace(
            first,
            mode="march",
            code=maker.shared(text, "march", first.request.target),
            constants=(),
            workspace_bytes=workspace_of((call.entries, call.kernel.workspace_bytes) for call in calls),
            row_ns=sum(call.kernel.row_ns for call in calls),
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
        if len(self._calls) > 1:
            arrays |= {name: np.empty_like(arrays[like][:1]) for name, like in self._step.between.items()}
        called = []
        for call in self._calls:
            entries = [_entry(arrays[name]) for name in call.arrays]
            constants = list(call.kernel.constants)
            if call.kernel.batch:
                constants[-1] = batch
            entries += constants_of(constants)
            called.append(Called(call.kernel.address, entries, call.kernel.workspace_bytes))
        plan = CallsPlan(called)
        table = (ctypes.c_int64 * 2)(plan.descriptor.ctypes.data, steps)
        launch(self._kernel, ctypes.addressof(table), batch, steps)


def _entry(array: Array) -> tuple[int, int, int, int]:
    """An array of steps and rows, whose address moves on with the steps if there are several."""
    move = array.strides[0] if len(array) > 1 else 0
    return WORDS, array.__array_interface__["data"][0], array.strides[1], move
