"""Iterations that go on for those states alone whose error is too large (`robodyn.algorithms.tasks.Repeated`).

The kernel calls two others: one for the first iterations of a chunk of states, and one that goes on. States that are
not done after a chunk wait in a queue, with copies of their inputs. Once it holds a chunk and more, or at the end, the
second kernel runs on all of it; states that are done leave it. So vectors of states stay full, and memory in the cache.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from robodyn.algorithms.tasks import AtAnswer, Repeated
from robodyn.compile.loops.language import (
    NULL,
    Address,
    Array,
    Flag,
    Static,
    Word,
    array,
    call,
    chosen,
    convert,
    copy,
    load_atomic,
    local,
    routine,
)
from robodyn.compile.loops.table import Argument
from robodyn.compile.tracing.unrolled import input_shapes, output_shape
from robodyn.engines.cpu.calls import (
    BATCH,
    USER,
    WORDS,
    WORKSPACE,
    Called,
    Calls,
    CallsPlan,
    calls_module,
    constants_of,
    lines,
    run_calls,
)
from robodyn.engines.cpu.kernels import Kernel, KernelCompiler
from robodyn.engines.cpu.native.joint_forces import DOUBLE, SINGLE, row
from robodyn.internals import arguments
from robodyn.internals.errors import UnavailableError
from robodyn.internals.tuning import REPEATED_ROWS

_MOST_ARRAYS = 32


class Column(ctypes.Structure):
    """An array of the second kernel. `outer`: its number in the table of the call, -1 if it is not there; `size`: bytes
    of a row; `own`: offset in the workspace of a chunk's rows, if it is not in the table; `queue`: offset of the rows
    that wait."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("outer", "size", "own", "queue"))


class Plan(ctypes.Structure):
    """`first`: address of the first kernel. `again`: address of a word with the address of the second one, which is
    null until it is compiled. `inputs`, `outputs`: number of columns, inputs of the second kernel first. `start`,
    `result`, `error`: columns of the input from which it starts, of the result that this is, and of the error.
    `chunk`, `queue`: rows of a chunk and of the queue. `most`: how often the second kernel runs for a row. `rows`:
    offset of the numbers of the rows that wait, each with how often it ran. `marked`: number of the array in the table
    of the call whose rows are marked by `nan` where errors stay too large, -1 if none is."""

    _fields_ = (
        ("first", ctypes.c_void_p),
        ("again", ctypes.c_void_p),
        *(
            (name, ctypes.c_int64)
            for name in ("inputs", "outputs", "start", "result", "error", "chunk", "queue", "most", "rows", "marked")
        ),
        ("tolerance", ctypes.c_double),
        ("nan", ctypes.c_double),
    )


@routine
def repeated(
    table: Array[Argument], first: Word, last: Word, workspace: Address, arrays: Static[int], kind: Static[Any]
) -> None:
    """Both kernels for rows `first` to `last - 1`. `kind`: of numbers."""
    plan = array(Plan, table[arrays].data)
    columns, count = array(Column, plan + 1), plan.inputs + plan.outputs
    again: Address = load_atomic(array(Address, plan.again), "acquire")
    cold, warm = local(Argument, _MOST_ARRAYS), local(Argument, _MOST_ARRAYS)
    for c in range(count):
        column, k = columns + c, chosen(c > plan.start, c - 1, c)
        warm[c].data, warm[c].stride = workspace + column.queue, column.size
        if column.outer >= 0:
            cold[k].data, cold[k].stride = table[column.outer].data, table[column.outer].stride
        elif c != plan.start:
            cold[k].stride = column.size
    waiting, begin, places = 0, first, array(Word, workspace + plan.rows)
    while begin < last:
        end = min(begin + plan.chunk, last)
        for c in range(plan.inputs, count):
            if columns[c].outer < 0:
                cold[c - 1].data = workspace + columns[c].own - columns[c].size * begin
        call(None, plan.first, cold, begin, end, NULL)
        for r in range(begin, end):
            if is_off(plan, cold + (plan.error - 1), r, kind=kind):
                if again == NULL:
                    mark(plan, table, r, kind=kind)
                else:
                    for c in range(plan.inputs):
                        source = cold + chosen(c == plan.start, plan.result - 1, chosen(c > plan.start, c - 1, c))
                        copy(row(warm + c, waiting), row(source, r), columns[c].size)
                    places[2 * waiting], places[2 * waiting + 1] = r, 0
                    waiting += 1
        begin = end
        while waiting > chosen(begin < last, plan.queue - plan.chunk, 0):
            call(None, again, warm, 0, waiting, NULL)
            waiting = left(plan, table, warm, places, waiting, kind=kind)


@routine
def left(
    plan: Array[Plan],
    table: Array[Argument],
    warm: Array[Argument],
    places: Array[Word],
    waiting: Word,
    kind: Static[Any],
) -> Word:
    """Hand out the results of rows that are done, and move the others to the front. Returns their number."""
    columns, kept = array(Column, plan + 1), 0
    for k in range(waiting):
        r, times = places[2 * k], places[2 * k + 1] + 1
        off = is_off(plan, warm + plan.error, k, kind=kind)
        if off and times < plan.most:
            for c in range(plan.inputs):
                if c == plan.start:
                    copy(row(warm + c, kept), row(warm + plan.result, k), columns[c].size)
                elif k != kept:
                    copy(row(warm + c, kept), row(warm + c, k), columns[c].size)
            places[2 * kept], places[2 * kept + 1] = r, times
            kept += 1
        else:
            for c in range(plan.inputs, plan.inputs + plan.outputs):
                if columns[c].outer >= 0:
                    copy(row(table + columns[c].outer, r), row(warm + c, k), columns[c].size)
            if off:
                mark(plan, table, r, kind=kind)
    return kept


@routine
def is_off(plan: Array[Plan], errors: Array[Argument], number: Word, kind: Static[Any]) -> Flag:
    """True if the error of a row is too large. NaN is not."""
    return bool(convert(DOUBLE, array(kind, row(errors, number))[0]) > plan.tolerance)


@routine
def mark(plan: Array[Plan], table: Array[Argument], number: Word, kind: Static[Any]) -> None:
    """Mark a row whose error stays too large."""
    if plan.marked >= 0:
        array(kind, row(table + plan.marked, number))[0] = convert(kind, plan.nan)


class Again:
    """The second kernel, which is compiled when a state needs it first."""

    def __init__(self, make: Callable[[], Kernel]) -> None:
        self._make, self.address = make, ctypes.c_int64()
        self.kernel: Kernel | None = None

    def compiled(self) -> bool:
        """Compile it. True if it was not there."""
        if self.kernel is not None:
            return False
        kernel = self._make()
        self.kernel, self.address.value = kernel, kernel.address
        return True


class RepeatedProgram:
    """The plan of a task, and memory that it points to."""

    def __init__(self, task: Repeated, first: Kernel, again: Again, alone: bool) -> None:
        request, itemsize = first.request, first.request.dtype.itemsize
        shapes = input_shapes(request.model, task.again, request.base)
        sizes = {name: math.prod(shape) * itemsize for name, shape in shapes.items()}
        results = {name: math.prod(output_shape(request.model, each)) for name, each in task.first.outputs.items()}
        names, outer = [*sizes, *results], [*first.inputs, *task.outputs]
        if len(names) > _MOST_ARRAYS or [name for name in sizes if name != task.start] != [*first.inputs]:
            raise UnavailableError(f"{task.name}: takes too many arrays")
        chunk, queue = (1, 1) if alone else (REPEATED_ROWS, 2 * REPEATED_ROWS)
        end, columns = 0, []
        for c, name in enumerate(names):
            size, is_result = sizes[name] if c < len(sizes) else results[name] * itemsize, c >= len(sizes)
            outside = outer.index(name) if name in outer and (is_result or name != task.start) else -1
            columns.append(Column(outside, size, end, end + lines(size * chunk)))
            end += lines(size * chunk) + lines(size * queue)
        inputs = len(sizes)
        plan = Plan(
            first=first.address,
            again=ctypes.addressof(again.address),
            inputs=inputs,
            outputs=len(results),
            start=names.index(task.start),
            result=inputs + [*results].index(task.start),
            error=inputs + [*results].index(task.error),
            chunk=chunk,
            queue=queue,
            most=task.most,
            rows=end,
            marked=-1 if task.error in task.outputs else len(first.inputs),
            tolerance=task.tolerance(request.dtype),
            nan=math.nan,
        )
        self.words: arguments.Array = np.frombuffer(bytearray(bytes(plan) + b"".join(map(bytes, columns))), np.int64)
        self.workspace_bytes, self.again, self._first, self._task = end + lines(16 * queue), again, first, task

    @property
    def kernels(self) -> list[Kernel]:
        """Both kernels, or the first one."""
        return [self._first, *([self.again.kernel] if self.again.kernel is not None else [])]

    @property
    def operations(self) -> int:
        """Those of the first kernel."""
        return self._first.operations

    def wants_more(self, error: arguments.Array) -> bool:
        """Compile the second kernel if these errors (...) need it. True if it was not there."""
        return bool((error > self._task.tolerance(error.dtype)).any()) and self.again.compiled()


def repeated_kernel(maker: KernelCompiler, task: Repeated, first: Kernel, again: Again, alone: bool) -> Kernel:
    """The kernel of a task. `first`, `again`: those that it calls; `alone`: True for single states."""
    program, request = RepeatedProgram(task, first, again, alone), first.request
    arrays = len(first.inputs) + len(task.outputs)
    kind = DOUBLE if request.dtype == np.float64 else SINGLE
    text = calls_module(repeated, arrays=arrays, kind=kind)
    return replace(
        first,
        request=replace(request, algorithm=task),
        mode="repeated",
        code=maker.shared(text, "repeated", request.target),
        constants=(program.words.ctypes.data, 0),
        workspace_bytes=program.workspace_bytes,
        module=lambda: text,
        keep=program,
        own_listing=None,
        alone=alone,
        plain=None,
    )


@routine
def by_chunks(
    table: Array[Argument],
    first: Word,
    last: Word,
    workspace: Address,
    inputs: Static[int],
    arrays: Static[int],
    rows: Static[int],
    size: Static[int],
    kind: Static[Any],
) -> None:
    """All calls for some rows after others. What iterations find are rows of `size` bytes at the begin of the
    workspace, which move back by their size for each row before. Where it is NaN, so is the first result."""
    calls, batch = array(Calls, table[arrays].data), table[arrays].stride
    begin = first
    while begin < last:
        end = min(begin + rows, last)
        run_calls(table, calls, begin, end, workspace, batch, begin)
        for r in range(begin, end):
            found = array(kind, workspace + size * (r - begin))[0]
            if found != found:
                array(kind, row(table + inputs, r))[0] = found
        begin = end


class AtAnswerProgram:
    """The calls of a task at what iterations find, chunk by chunk: both kernels, and memory that these calls point
    to."""

    def __init__(self, task: AtAnswer, first: Kernel, then: Kernel, alone: bool) -> None:
        self.kernels, rows = [first, then], 1 if alone else REPEATED_ROWS
        (size,) = (math.prod(output_shape(first.request.model, each)) for each in task.first.outputs.values())
        self.size = size = size * first.request.dtype.itemsize
        self.inputs = tuple(name for name in (*first.inputs, *then.inputs) if name not in task.first.outputs)
        self.inputs = tuple(dict.fromkeys(self.inputs))
        users = [*self.inputs, *task.outputs]

        def entry(name: str) -> tuple[int, int, int, int]:
            return (WORKSPACE, 0, size, -size) if name in task.first.outputs else (USER, users.index(name), 0, 0)

        calls = []
        for kernel, outputs in ((first, task.first.outputs), (then, task.outputs)):
            own, last = kernel.constants[:-2], kernel.constants[-2:]
            entries = [*map(entry, (*kernel.inputs, *outputs)), *constants_of(own)]
            entries += constants_of(last, BATCH if kernel.batch else WORDS)
            calls.append(Called(kernel.address, entries, kernel.workspace_bytes))
        plan = CallsPlan(calls, lines(size * rows))
        self.words, self.workspace_bytes = plan.descriptor, plan.workspace_bytes

    @property
    def operations(self) -> int:
        """Those of both kernels."""
        return sum(kernel.operations for kernel in self.kernels)


def at_answer_kernel(maker: KernelCompiler, task: AtAnswer, first: Kernel, then: Kernel, alone: bool) -> Kernel:
    """The kernel of a task at what iterations find. `first`, `then`: those that it calls; `alone`: True for single
    states."""
    program, request = AtAnswerProgram(task, first, then, alone), first.request
    inputs, kind = len(program.inputs), DOUBLE if request.dtype == np.float64 else SINGLE
    rows = {"rows": 1 if alone else REPEATED_ROWS, "size": program.size}
    text = calls_module(by_chunks, inputs=inputs, arrays=inputs + len(task.outputs), kind=kind, **rows)
    return replace(
        first,
        request=replace(request, algorithm=task),
        mode="repeated",
        code=maker.shared(text, "at answers", request.target),
        inputs=program.inputs,
        constants=(program.words.ctypes.data, 0),
        workspace_bytes=program.workspace_bytes,
        row_ns=first.row_ns + then.row_ns,
        module=lambda: text,
        keep=program,
        batch=then.batch,
        own_listing=None,
        alone=alone,
        plain=None,
    )
