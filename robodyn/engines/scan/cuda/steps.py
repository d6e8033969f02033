"""Kernels of steps: on every element, and from places to places, or there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from robodyn.arguments import Array
from robodyn.codegen.c_body import Body
from robodyn.codegen.ordering import in_short_order
from robodyn.engines.gpu import sincos
from robodyn.engines.gpu.dialect import FUSED, CudaDialect
from robodyn.engines.gpu.source import SCALARS, KernelSource
from robodyn.tracing.program import Port, Program

BLOCK_THREADS = 128
BEGIN = np.zeros(1, np.int64)
"""Stands for an array of indices that comes with a call."""


def strides_of(name: str) -> tuple[str, str, str]:
    """Names of the numbers that say how far the scalars, elements and rows of an array lie apart, in scalars."""
    return f"{name}_scalar", f"{name}_element", f"{name}_row"


def parameters_of(
    scalar: str,
    given: Sequence[str],
    found: Sequence[str],
    indices: Sequence[str],
    numbers: Sequence[str],
    overlapping: Collection[str] = (),
) -> list[str]:
    """A kernel's, as `KernelSource` lists them: arrays that are read, those that are written, indices, the workspace,
    `rows` and other numbers. `overlapping`: arrays whose memory may be that of others."""

    def alone(name: str) -> str:
        return name if name in overlapping else f"__restrict__ {name}"

    return [
        *(f"const {scalar}* {alone(name)}" for name in given),
        *(f"{scalar}* {alone(name)}" for name in found),
        *(f"const long long* __restrict__ {name}" for name in indices),
        f"{scalar}* workspace",
        *(f"long long {number}" for number in ("rows", *numbers)),
    ]


def strides_in(array: Array, elements: int, batch: int) -> tuple[int, int, int]:
    """From scalar to scalar, element to element and row to row, in scalars; 0 along what broadcasts to these."""
    (scalar, element, row), (_, n, rows), size = array.strides, array.shape, array.itemsize
    return scalar // size, 0 if n < elements else element // size, 0 if rows < batch else row // size


def step_kernel(program: Program, dtype: np.dtype[Any], name: str = "scan_step") -> KernelSource:
    """The kernel of a step: `rows` are elements times batch, a thread for each; arrays may have any strides, 0 where
    they broadcast, which are numbers (`strides_of`) behind the number "batch".

    `program`: its inputs and its one output have one axis.
    """
    scalar = SCALARS[dtype.name]
    ports = (*program.inputs, *program.outputs)
    body = Body(in_short_order(program), CudaDialect(scalar), _register_or_place, len(program.nodes) + 1)
    (statements,) = body.parts()
    loads = [
        f"const {scalar} {port.name}_{k} = {port.name}[{k} * {port.name}_scalar];"
        for port in program.inputs
        for k, node in enumerate(port.scalars)
        if node != -1
    ]
    pointers = [
        f"{'' if port in program.outputs else 'const '}{scalar}* __restrict__ {port.name} = "
        f"{port.name}_array + element * {port.name}_element + row * {port.name}_row;"
        for port in ports
    ]
    numbers = ("batch", *(number for port in ports for number in strides_of(port.name)))
    given, found = ([f"{port.name}_array" for port in side] for side in (program.inputs, program.outputs))
    parameters = parameters_of(scalar, given, found, (), numbers)
    lines = [
        *prelude_of(scalar, program),
        *head_of(name, parameters),
        "{",
        f"    for (long long k = {BLOCK_THREADS}LL * blockIdx.x + threadIdx.x; k < rows;",
        f"         k += {BLOCK_THREADS}LL * gridDim.x) {{",
        "        const long long element = k / batch, row = k % batch;",
        *(f"        {line}" for line in (*pointers, *loads, *statements)),
        "    }",
        "}",
    ]
    return KernelSource(
        name,
        "\n".join([*lines, ""]),
        dtype,
        tuple(port.name for port in program.inputs),
        tuple(port.name for port in program.outputs),
        block_threads=BLOCK_THREADS,
        numbers=numbers,
    )


def _register_or_place(port: Port, k: int) -> str:
    """Inputs have been read into variables; results go where the output's pointer leads."""
    return f"out[{k} * out_scalar]" if port.name == "out" else f"{port.name}_{k}"


def prelude_of(scalar: str, program: Program) -> list[str]:
    """What comes before a kernel that does what a program does."""
    turning = program.counts.get("sin") or program.counts.get("cos")
    return [FUSED.rstrip(), *([sincos.text(scalar).rstrip()] if turning else [])]


def head_of(name: str, parameters: Sequence[str], threads: int = BLOCK_THREADS) -> list[str]:
    """The first lines of a kernel."""
    joined = ",\n    ".join(parameters)
    return [f'extern "C" __global__ void __launch_bounds__({threads}) {name}(', f"    {joined})"]


_MOVES = """\
{{
    for (long long k = {threads}LL * blockIdx.x + threadIdx.x; k < rows * size; k += {threads}LL * gridDim.x) {{
        const long long scalar = k / rows, at = k % rows, element = at / batch, row = at % batch;
        const long long asked = places[element], place = asked < 0 ? asked + many : asked;
        to_array[scalar * to_scalar + (putting ? place : element) * to_element + row * to_row]
            = from_array[scalar * from_scalar + (putting ? element : place) * from_element + row * from_row];
    }}
}}
"""


def move_kernel(dtype: np.dtype[Any]) -> KernelSource:
    """The kernel that takes elements from places, or puts them there: `rows` are elements times batch, a thread for
    each of their `size` scalars, those of all elements before the next: what one after another is anywhere in memory
    then stays in the cache. Arrays may have any strides. Negative places count from the end of the `many` that there
    are.

        scan_move(from, to, places, workspace, rows, batch, size, putting, many, strides of from, strides of to)
    """
    numbers = ("batch", "size", "putting", "many", *strides_of("from"), *strides_of("to"))
    scalar = SCALARS[dtype.name]
    parameters = parameters_of(scalar, ("from_array",), ("to_array",), ("places",), numbers)
    text = "\n".join([*head_of("scan_move", parameters), _MOVES.format(threads=BLOCK_THREADS)])
    return KernelSource(
        "scan_move", text, dtype, ("from",), ("to",), (BEGIN,), block_threads=BLOCK_THREADS, numbers=numbers
    )
