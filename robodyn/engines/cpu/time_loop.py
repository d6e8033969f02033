"""Many steps of an integrator in one call: a step's kernels are called repeatedly, on arrays that advance with the
steps.

A step is one kernel. If that would be too large, it is several kernels: one for each part of the step, with calls of
the dynamics kernel between them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from robodyn.algorithms.tasks import Step
from robodyn.engines.cpu.calls import (
    CALL_WORDS,
    ENTRY_WORDS,
    HEADER_WORDS,
    WORDS,
    Called,
    CallsPlan,
    by_steps,
    calls_module,
    constants_of,
    workspace_of,
)
from robodyn.engines.cpu.kernels import Kernel, KernelCompiler
from robodyn.internals.arguments import Array, address_of
from robodyn.internals.records import dataclass

Launch = Callable[[Kernel, int, int, int], None]


@dataclass(frozen=True)
class Call:
    """One of a step's kernels, and the names of its arrays: inputs, then outputs."""

    kernel: Kernel
    arrays: tuple[str, ...]

    @property
    def entries(self) -> int:
        """Number of entries of its table."""
        return len(self.arrays) + len(self.kernel.constants) // 2


def whole_step(step: Step, kernel: Kernel) -> list[Call]:
    """The calls of a step that is one kernel."""
    return [Call(kernel, (*kernel.inputs, *step.outputs))]


def step_in_parts(step: Step, parts: Sequence[Kernel], dynamics: Kernel) -> list[Call]:
    """The calls of a step's parts, with calls of the dynamics between them."""
    calls = []
    for part, kernel in zip(step.parts, parts, strict=True):
        calls.append(Call(kernel, (*kernel.inputs, *part.outputs)))
        if not part.last:
            calls.append(Call(dynamics, (*map(part.at, dynamics.inputs), part.asked)))
    return calls


class TimeLoop:
    """The kernel that calls the kernels of all steps."""

    def __init__(self, maker: KernelCompiler, calls: Sequence[Call], between: Mapping[str, str] | None = None) -> None:
        self._between, self._calls = between or {}, tuple(calls)
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

    def table(self, states: tuple[Array, Array], given: Mapping[str, Array], dt: float) -> LoopTable:
        """The arguments that fill states (steps + 1, B, ...) after their first row. `given`: inputs (steps, B, ...), or
        (1, B, ...) if they are constant. One state's scalars are contiguous in all arrays."""
        q, qd = states
        batch = q.shape[1]
        time = np.full((1, 1, 1), dt, q.dtype)
        arrays = {"q": q[:-1], "qd": qd[:-1], "q_next": q[1:], "qd_next": qd[1:], **given}
        arrays["dt"] = np.broadcast_to(time, (1, batch, 1))
        if len(self._calls) > 1:
            arrays |= {name: np.empty_like(arrays[like][:1]) for name, like in self._between.items()}
        return self.table_of(arrays, batch)

    def table_of(self, arrays: Mapping[str, Array], batch: int) -> LoopTable:
        """The arguments for arrays by name, (steps, B, ...), or (1, B, ...) if they are constant."""
        return LoopTable(self._kernel, self._calls, arrays, batch)


class LoopTable:
    """The arguments of a loop over time. Their arrays may be exchanged for others of the same strides.

    `arrays`: by name, (steps, B, ...), or (1, B, ...) if they are constant.
    """

    def __init__(self, kernel: Kernel, calls: Sequence[Call], arrays: Mapping[str, Array], batch: int) -> None:
        self._kernel, self._batch = kernel, batch
        self._owners: tuple[object, ...] = tuple(calls), arrays  # kernels and arrays must outlive their addresses
        self._places: dict[str, list[int]] = {}
        planned, at = [], HEADER_WORDS
        for call in calls:
            entries = [_entry(arrays[name]) for name in call.arrays]
            for k, name in enumerate(call.arrays):
                self._places.setdefault(name, []).append(at + CALL_WORDS + ENTRY_WORDS * k + 1)
            constants = list(call.kernel.constants)
            if call.kernel.batch:
                constants[-1] = batch
            entries += constants_of(constants)
            planned.append(Called(call.kernel.address, entries, call.kernel.workspace_bytes))
            at += CALL_WORDS + ENTRY_WORDS * len(entries)
        self._use(CallsPlan(planned).descriptor)

    def _use(self, words: Array) -> None:
        self._words, self._at = words, memoryview(words)  # type: ignore[arg-type]
        self._table = (ctypes.c_int64 * 2)(words.ctypes.data, 0)

    def copied(self) -> LoopTable:
        """The same arguments, which another thread does not change."""
        made = object.__new__(LoopTable)
        made.__dict__.update(self.__dict__)
        made._use(self._words.copy())
        return made

    def release(self) -> None:
        """Keep arrays alive no longer: others take their places before each run."""
        self._owners = self._owners[:1]

    def move(self, name: str, address: int) -> None:
        """Exchange an array for the one at an address."""
        for place in self._places.get(name, ()):
            self._at[place] = address

    def of_steps(self, steps: int) -> tuple[Kernel, int]:
        """The kernel, and the address of its argument table, for so many steps."""
        self._table[1] = steps
        return self._kernel, ctypes.addressof(self._table)

    def run(self, launch: Launch, steps: int, rows: int | None = None) -> None:
        """Take so many steps, of the first `rows` states if not of all."""
        launch(*self.of_steps(steps), self._batch if rows is None else rows, steps)


def _entry(array: Array) -> tuple[int, int, int, int]:
    """The entry of an array (steps, B, ...). Its address advances with the steps if there are several."""
    move = array.strides[0] if len(array) > 1 else 0
    return WORDS, address_of(array), array.strides[1], move
