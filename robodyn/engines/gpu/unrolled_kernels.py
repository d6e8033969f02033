"""Unrolled kernels: a traced program as straight-line CUDA C++, with one thread for each state.

Rows are copied through tiles in shared memory (`tiles`). Inputs with too long rows are read directly, and results with
too long rows go through a window (`staged_stores`).

Warps work independently, in grid-stride loops: barriers synchronise one warp only, and any number of blocks is correct.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from robodyn.algorithms.tasks import Derivative, ScalarTask, Traceable
from robodyn.compile.c import sincos
from robodyn.compile.c.body import Body
from robodyn.compile.lowering import lower
from robodyn.compile.ordering import in_short_order, values_alive
from robodyn.compile.tracing.program import Port, Program
from robodyn.compile.tracing.unrolled import output_shape, trace
from robodyn.core.model import Model
from robodyn.core.sweeps import Ancestors
from robodyn.engines.cpu.chains.solves import solve_operations
from robodyn.engines.gpu.dialect import FUSED, CudaDialect
from robodyn.engines.gpu.functions import Functions
from robodyn.engines.gpu.source import SCALARS, SHARED_BYTES, WARP, KernelSource
from robodyn.engines.gpu.staged_stores import MAX_SLOTS, Window
from robodyn.engines.gpu.tiles import loading, padded, storing
from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass

MAX_OPERATIONS = 32_000
"""Operations of the longest program that is printed, if there are other kernels of its task. NVRTC takes about 20 s to
compile it."""
MOST_OPERATIONS = 80_000
"""The same of tasks that are one program only, and of their derivatives, as on the CPU engine."""
VALUES_IN_REGISTERS = {"float32": 270, "float64": 106}
"""The most values alive at once for which the assembler for sm_90 spills nothing. A thread has 255 registers, but the
assembler reorders operations, so this count is only a guide."""
PART_OPERATIONS = 8000
"""Operations in one function. Functions pass values to one another through memory, so shorter functions cause more
traffic. Compile time grows faster than linearly with the length, and longer functions exceed the registers anyway."""
_BLOCKS = (128, 64, 32)
"""Candidates for the threads of a block. The largest one whose tiles fit in shared memory is used."""
_WINDOW_BYTES, _LEAST_WINDOW = 27 << 10, 32
"""The bytes of a warp's window: a multiprocessor of a Hopper GPU has room for eight, and registers for no more such
warps. And the fewest scalars of a window for each lane: with fewer, the runs of neighbouring scalars would be short."""
_MAX_STEPS, _MAX_ENTRIES = 4096, 8192
"""The most steps over bodies, and entries of results, for which tracing is tried."""

PRELUDE = f"""\
#ifndef ROBODYN_PRINTED
#define ROBODYN_PRINTED
{FUSED}\
{sincos.text("float")}{sincos.text("double")}#endif
"""


@dataclass(frozen=True)
class PortArray:
    """An input or output. `offset`: the start of its warp's tile in shared memory, None if it has no tile; `windowed`:
    True if it goes through the window instead."""

    port: Port
    is_output: bool
    offset: int | None
    windowed: bool = False

    @property
    def row(self) -> str:
        """The name of the pointer to a thread's row."""
        return f"{self.port.name}_{'out' if self.is_output else 'in'}"

    def pointer(self, scalar: str, name: str) -> str:
        """The declaration of a pointer."""
        return f"{'' if self.is_output else 'const '}{scalar}* {name}"

    def own_row(self, scalar: str, first: str = "first", lane: str = "lane") -> str:
        """The statement that sets the pointer to a thread's row, or to the warp's first row if the array is windowed.

        `first`: the row of the warp's first thread; `lane`: the thread's offset from it.
        """
        size = self.port.size
        direct = f"{self.row}_rows + ({first}{'' if self.windowed else f' + {lane}'}) * {size}"
        place = direct if self.offset is None else f"tile + {self.offset} + {lane} * {padded(size)}"
        return f"{self.pointer(scalar, self.row)} = {place};"

    def copy(self, functions: Functions, first: str = "first") -> str:
        """The statement that copies rows to the tile of an input, or from the tile of an output."""
        rows, tile = f"{self.row}_rows + ({first}) * {self.port.size}", f"tile + {self.offset}"
        name, (to, since) = (storing, (rows, tile)) if self.is_output else (loading, (tile, rows))
        return f"{name(functions)}({to}, {since}, {self.port.size}, count, lane);"


@dataclass(frozen=True)
class Block:
    """A block of threads. `tile`: scalars of shared memory for the tiles of each warp; `dynamic_bytes`: bytes of shared
    memory that must be requested at launch, 0 if it is static."""

    scalar: str
    threads: int
    tile: int
    dynamic_bytes: int

    @property
    def warp(self) -> str:
        """The index of a thread's warp in its block. It is a constant for blocks of one warp, so that the compiler
        knows that all threads branch alike."""
        return f"threadIdx.x / {WARP}" if self.threads > WARP else "0"

    def tiles(self) -> list[str]:
        """The statements that set the pointer `tile` to the warp's part of shared memory."""
        if not self.tile:
            return []
        size = self.threads // WARP * self.tile
        array = (
            f"extern __shared__ {self.scalar} tiles[];"
            if self.dynamic_bytes
            else f"__shared__ {self.scalar} tiles[{size}];"
        )
        return [array, f"{self.scalar}* tile = tiles + {self.warp} * {self.tile};"]

    def each_tile(self) -> list[str]:
        """The beginning of a warp's loop over its groups of 32 states."""
        first = f"{self.threads} * (long long)blockIdx.x + {self.warp} * {WARP}"
        return [
            *self.tiles(),
            f"const int lane = threadIdx.x % {WARP};",
            f"for (long long first = {first}; first < rows; first += {self.threads} * (long long)gridDim.x) {{",
            f"    const int count = rows - first < {WARP} ? (int)(rows - first) : {WARP};",
        ]


@dataclass(frozen=True)
class Layout:
    """The arrays in the order of arguments, the scalars of shared memory of a warp, and the window for results, or
    None. The window precedes the tiles."""

    arrays: tuple[PortArray, ...]
    tile: int
    window: Window | None = None

    @property
    def row(self) -> int:
        """The stride of the window's rows, one row for each lane, in scalars."""
        return 0 if self.window is None else padded(self.window.room)


def _tiled(program: Program, room: int, beside: int) -> Layout:
    """Place tiles in shared memory of `room` scalars. Inputs get tiles only while all tiles fit in `beside` scalars.

    Results get tiles before inputs, and short rows before long ones: a load brings neighbouring scalars into the cache
    for later loads, while each store goes to memory alone.
    """
    ports = [*((port, False) for port in program.inputs), *((port, True) for port in program.outputs)]
    offsets: dict[tuple[str, bool], int] = {}
    used = 0
    for port, is_output in sorted(ports, key=lambda each: (not each[1], each[0].size)):
        size = WARP * padded(port.size)
        needed = port.size and (is_output or any(node != -1 for node in port.scalars))
        if needed and used + size <= (room if is_output else beside):
            offsets[port.name, is_output] = used
            used += size
    return Layout(
        tuple(PortArray(port, is_output, offsets.get((port.name, is_output))) for port, is_output in ports), used
    )


def _layout(program: Program, room: int, itemsize: int, *, march: bool) -> Layout:
    """Tiles in shared memory of `room` scalars, or a window if the tiles of all results do not fit.

    Tiles of inputs take at most half of the room (except in `march`). With more, fewer warps would be resident to hide
    memory latency.
    """
    tiled = _tiled(program, room, room if march else room // 2)
    fit = all(array.offset is not None for array in tiled.arrays if array.is_output and array.port.size)
    share = min(room, _WINDOW_BYTES // itemsize)
    lines = min(share // WARP - 1, MAX_SLOTS)
    if march or fit or lines < _LEAST_WINDOW:
        return tiled
    window = Window(program, lower(program), lines, itemsize)
    front = WARP * padded(window.room)
    if front > share or window.room > MAX_SLOTS:
        return tiled
    beside = _tiled(replace(program, outputs=()), 0, share - front)
    inputs = (replace(array, offset=None if array.offset is None else front + array.offset) for array in beside.arrays)
    results = (PortArray(port, True, None, windowed=port.size > 0) for port in program.outputs)
    return Layout((*inputs, *results), front + beside.tile, window)


def unrollable(model: Model, task: Traceable) -> bool:
    """Whether a task is likely small enough to be traced. Estimated from sizes, without tracing."""
    lanes = any(
        getattr(sweep, "lanes", False) or (isinstance(sweep, Ancestors) and not sweep.of_link) for sweep in task.sweeps
    )
    if isinstance(task, Derivative):
        return unrollable(model, task.task)
    times, inner = task.calls(model)
    solves = solve_operations(model, inner)
    entries = sum(math.prod(output_shape(model, output)) for output in task.outputs.values())
    steps = model.n_bodies * (model.nv_tree if lanes else 1) * times
    if steps > _MAX_STEPS or entries > _MAX_ENTRIES or solves * times > MAX_OPERATIONS:
        return False
    return (inner.least_operations(model) or 0) * times <= _most(task)


def _most(task: Traceable) -> int:
    """Operations of the longest program of a task that is printed."""
    inner = task
    while isinstance(inner, Derivative):
        inner = inner.task
    return MOST_OPERATIONS if isinstance(inner, ScalarTask) and inner.one_program else MAX_OPERATIONS


def traced(model: Model, task: Traceable, base: Iterable[str] = (), link: int | None = None) -> Program:
    """The straight-line program of a task, with its operations in an order that needs few registers.

    Raises:
        UnavailableError: the program is too large.
    """
    if unrollable(model, task):
        program = trace(model, task, link=link, base=base)
        if program.operations <= _most(task):
            return in_short_order(program)
    raise UnavailableError(f"engine 'gpu': {task.name} of {model.name!r} is too large for straight-line code")


def fits_registers(program: Program, dtype: np.dtype[Any]) -> bool:
    """Whether a thread's registers suffice for a program. Spills are slow: those of all threads exceed every cache."""
    operations = lower(program)
    return len(operations) <= PART_OPERATIONS and values_alive(operations) <= VALUES_IN_REGISTERS[dtype.name]


def unrolled_kernel(
    model: Model,
    task: Traceable,
    dtype: np.dtype[Any] | str,
    base: Iterable[str] = (),
    link: int | None = None,
    name: str = "kernel",
    *,
    shared_bytes: int = SHARED_BYTES,
) -> KernelSource:
    """The kernel of a task on a model.

    Args:
        model: the robot. Its constants become literals of the code.
        task: the task to compute.
        dtype: the type of arrays and arithmetic.
        base: which of V0 and dV0 are inputs; the others are zero.
        link: the index of the task's link, if the task is about one.
        name: the kernel's name, a C identifier.
        shared_bytes: shared memory that a block may have. With more, longer rows get tiles.

    Raises:
        ArgumentError: a constant of the model is out of the range of the dtype.
        UnavailableError: the program is too large.
    """
    program = traced(model, task, base, link)
    return print_program(program, np.dtype(dtype), name, shared_bytes=shared_bytes)


def marching_kernel(
    model: Model,
    step: Traceable,
    dtype: np.dtype[Any],
    name: str = "march",
    *,
    base: Iterable[str] = (),
    shared_bytes: int = SHARED_BYTES,
) -> KernelSource:
    """The kernel that integrates over many steps. The parameters are those of `unrolled_kernel`.

    Raises:
        ArgumentError: a constant of the model is out of the range of the dtype.
        UnavailableError: a step's program is too large.
    """
    return print_program(traced(model, step, base), dtype, name, shared_bytes=shared_bytes, march=True)


def print_program(
    program: Program,
    dtype: np.dtype[Any],
    name: str = "kernel",
    *,
    shared_bytes: int = SHARED_BYTES,
    part_operations: int = PART_OPERATIONS,
    march: bool = False,
) -> KernelSource:
    """The kernel of a program. Operations are printed in the program's order.

    Args:
        program: the program to compute.
        dtype: the type of arrays and arithmetic.
        name: the kernel's name, a C identifier.
        shared_bytes: shared memory that a block may have.
        part_operations: a longer program is divided into functions of so many operations.
        march: True if the program is an integration step that the kernel repeats (`KernelSource`).

    Raises:
        ArgumentError: a constant is out of the range of the dtype.
    """
    scalar, dialect = SCALARS[dtype.name], CudaDialect(SCALARS[dtype.name])
    called = Functions(scalar, name)
    room = shared_bytes // dtype.itemsize
    layout = _layout(program, room, dtype.itemsize, march=march)
    arrays, tile, window = layout.arrays, layout.tile, layout.window
    # Windows have barriers among the operations. With several warps in a block, which may leave the loop at different
    # times, the compiler duplicates the code between barriers. So blocks with a window have one warp.
    threads = next(count for count in _BLOCKS if count // WARP * tile <= room) if window is None else WARP
    rows = {id(array.port): array.row for array in arrays}
    if window is None:
        body = Body(program, dialect, lambda port, k: f"{rows[id(port)]}[{k}]", part_operations)
    else:
        inputs = ((int(node), port, k) for port in program.inputs for k, node in enumerate(port.scalars))
        sources = {node: f"{rows[id(port)]}[{k}]" for node, port, k in inputs}
        behind = window.statements(dialect, called, sources, rows, layout.row)

        def place(port: Port, k: int) -> str:
            return f"{rows[id(port)]}[{k}]" if id(port) in rows else f"mine[{window.slot(port, k)}]"

        body = Body(window.made, dialect, place, part_operations, behind)
    functions, statements = part_functions(body, layout, name)
    asked = threads // WARP * tile * dtype.itemsize
    block = Block(scalar, threads, tile, asked if asked > SHARED_BYTES else 0)
    kernel = (
        _marching(name, block, called, arrays, statements)
        if march
        else _kernel(name, block, called, layout, statements)
    )
    return KernelSource(
        name=name,
        text="\n".join([PRELUDE, called.text(), *functions, kernel]),
        dtype=dtype,
        inputs=tuple(port.name for port in program.inputs),
        outputs=tuple(port.name for port in program.outputs),
        block_threads=threads,
        shared_bytes=block.dynamic_bytes,
        numbers=_march_numbers(arrays) if march else (),
    )


def part_functions(body: Body, layout: Layout, name: str) -> tuple[list[str], list[str]]:
    """The functions of a program that is too long for one function, and the statements of the kernel."""
    parts, scalar, arrays = body.parts(), body.dialect.scalar, layout.arrays
    if len(parts) == 1:
        return [], parts[0]
    through = [] if layout.window is None else [f"{scalar}* window", f"{scalar}* mine", "int count", "int lane"]
    parameters = ", ".join([*(array.pointer(scalar, array.row) for array in arrays), *through, f"{scalar}* frame"])
    arguments = ", ".join([*(array.row for array in arrays), *(each.split()[-1] for each in through), "frame"])
    functions = [
        f"static __device__ __noinline__ void {name}_part{k}({parameters})\n{_braces(part)}"
        for k, part in enumerate(parts)
    ]
    calls = [f"{name}_part{k}({arguments});" for k in range(len(parts))]
    return functions, [f"{scalar} frame[{max(1, body.frame_size)}];", *calls]


def _braces(lines: Sequence[str]) -> str:
    return "{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"


def _kernel(name: str, block: Block, functions: Functions, layout: Layout, statements: Sequence[str]) -> str:
    """The kernel: a loop in which each warp takes 32 states at a time."""
    scalar, arrays = block.scalar, layout.arrays
    staged = [array for array in arrays if array.offset is not None]
    if layout.window is None:
        opening = ["if (lane < count) {", *(f"    {array.own_row(scalar)}" for array in arrays)]
    else:  # all threads of a warp share the window's stores, so threads without a state recompute the last state
        opening = [
            "{",
            "    const int state = lane < count ? lane : count - 1;",
            f"    {scalar}* window = tile;",
            f"    {scalar}* mine = window + lane * {layout.row};",
            *(f"    {array.own_row(scalar, lane='state')}" for array in arrays),
        ]
    lines = [
        *block.each_tile(),
        *(f"    {array.copy(functions)}" for array in staged if not array.is_output),
        "    __syncwarp();",
        *(f"    {line}" for line in opening),
        *(f"        {line}" for line in statements),
        "    }",
        "    __syncwarp();",
        *(f"    {array.copy(functions)}" for array in staged if array.is_output),
        "}",
    ]
    return global_function(name, block, arrays, (), lines)


def global_function(
    name: str, block: Block, arrays: Sequence[PortArray], numbers: Sequence[str], lines: Sequence[str]
) -> str:
    """A kernel with these lines of text."""
    scalar = block.scalar
    parameters = [array.pointer(scalar, f"__restrict__ {array.row}_rows") for array in arrays]
    counts = [f"long long {each}" for each in ("rows", *numbers)]
    head = ",\n    ".join([*parameters, f"{scalar}* workspace", *counts])
    return f'extern "C" __global__ void __launch_bounds__({block.threads}) {name}(\n    {head})\n{_braces(lines)}'


# Integration over many steps in one kernel.

_CARRIED = {"q": "q_next", "qd": "qd_next"}
"""The output that becomes an input of the next step, by the input's name."""


def _march_numbers(arrays: Sequence[PortArray]) -> tuple[str, ...]:
    inputs = [array.port.name for array in arrays if not array.is_output]
    return ("steps", *(f"{name}_moves" for name in inputs if name not in _CARRIED))


def _marching(
    name: str, block: Block, functions: Functions, arrays: Sequence[PortArray], statements: Sequence[str]
) -> str:
    """A kernel in which each warp integrates its 32 states over all steps. Further results have a row for each step.

    States stay in shared memory. If their rows have no tile, each step reads the output rows of the step before.
    """
    scalar = block.scalar
    by_name = {array.port.name: array for array in arrays}
    carried = [by_name[each] for each in _CARRIED]
    others = [array for array in arrays if not array.is_output and array.port.name not in _CARRIED]
    after_step = [by_name[each] for each in _CARRIED.values()]
    results = [array for array in arrays if array.is_output]
    slabs = {
        **{array.port.name: f"step * {array.port.name}_moves * rows + first" for array in others},
        **{array.port.name: "step * rows + first" for array in results},
    }
    rows = [array.own_row(scalar, slabs[array.port.name]) for array in (*others, *results)]
    for array, after in zip(carried, after_step, strict=True):
        size = array.port.size
        slab = f"{after.row}_rows + ((step - 1) * rows + first + lane) * {size}"
        chosen = f"step ? {slab} : {array.row}_rows + (first + lane) * {size}"
        place = chosen if array.offset is None else f"tile + {array.offset} + lane * {padded(size)}"
        rows.append(f"{array.pointer(scalar, array.row)} = {place};")
    lines = [
        *block.each_tile(),
        *(f"    {array.copy(functions)}" for array in carried if array.offset is not None),
        "    for (long long step = 0; step < steps; step++) {",
        *(
            f"        if (step == 0 || {array.port.name}_moves) {array.copy(functions, slabs[array.port.name])}"
            for array in others
            if array.offset is not None
        ),
        "        __syncwarp();",
        "        if (lane < count) {",
        *(f"            {row}" for row in rows),
        *(f"            {line}" for line in statements),
        *(
            f"            for (int k = 0; k < {array.port.size}; k++) "
            f"tile[{array.offset} + lane * {padded(array.port.size)} + k] = {after.row}[k];"
            for array, after in zip(carried, after_step, strict=True)
            if array.offset is not None
        ),
        "        }",
        "        __syncwarp();",
        *(f"        {array.copy(functions, slabs[array.port.name])}" for array in results if array.offset is not None),
        "    }",
        "    __syncwarp();",
        "}",
    ]
    return global_function(name, block, arrays, _march_numbers(arrays), lines)
