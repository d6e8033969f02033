"""Kernels that repeat a program on the states whose results are not good enough yet, on the device alone.

Few states are left by the program before, one in ten or fewer, so a thread for each state would leave most of each warp
idle. Instead each warp looks at the errors of many states, and puts the numbers of those that are left into a queue.
Once it has 32 of them, or has seen all of its states, each thread takes one and repeats the program until its error is
small enough. There is no list in memory and no atomic operation, and the host need not wait for a count.
"""

from __future__ import annotations

import numpy as np

from robodyn.algorithms.tasks import Repeated
from robodyn.compile.c.body import Body
from robodyn.core.model import Model
from robodyn.engines.gpu.dialect import CudaDialect
from robodyn.engines.gpu.source import SCALARS, WARP, KernelSource
from robodyn.engines.gpu.unrolled_kernels import (
    PART_OPERATIONS,
    PRELUDE,
    Block,
    Layout,
    PortArray,
    global_function,
    part_functions,
    traced,
)

_THREADS = 64
"""Threads of a block: two warps, of which each has a queue."""


def repeated_kernel(
    model: Model,
    task: Repeated,
    dtype: np.dtype[np.floating],
    base: tuple[str, ...] = (),
    name: str = "repeated",
) -> KernelSource:
    """The kernel that goes on with a task, after its first iterations. Errors that are NaN stay.

    Inputs that are results, too, are read from the results of the time before.

    Raises:
        ArgumentError: a constant of the model is out of the range of the dtype.
        UnavailableError: the program is too large.
    """
    program = traced(model, task.again, base)
    scalar, dialect = SCALARS[dtype.name], CudaDialect(SCALARS[dtype.name])
    results = {port.name for port in program.outputs}
    inputs = [PortArray(port, False, None) for port in program.inputs]
    outputs = [PortArray(port, True, None) for port in program.outputs]
    every = (*inputs, *outputs)
    rows = {id(array.port): array.row for array in every}
    body = Body(program, dialect, lambda port, k: f"{rows[id(port)]}[{k}]", PART_OPERATIONS)
    functions, statements = part_functions(body, Layout(every, 0), name)
    only_read = [array for array in inputs if array.port.name not in results]
    carried = [array for array in inputs if array.port.name in results]
    block = Block(scalar, _THREADS, 0, 0)
    enough = dialect.number(task.tolerance(dtype))
    lines = _lines(block, [*only_read, *outputs], carried, statements, task, enough)
    kernel = global_function(name, block, [*only_read, *outputs], (), lines)
    return KernelSource(
        name=name,
        text="\n".join([PRELUDE, *functions, kernel]),
        dtype=dtype,
        inputs=tuple(array.port.name for array in only_read),
        outputs=tuple(array.port.name for array in outputs),
        block_threads=_THREADS,
    )


def _lines(
    block: Block, arrays: list[PortArray], carried: list[PortArray], statements: list[str], task: Repeated, enough: str
) -> list[str]:
    """The kernel's text. `carried`: inputs that are copied from results before each time, as the program overwrites
    them."""
    (error,) = (array for array in arrays if array.is_output and array.port.name == task.error)
    copies = []
    for array in carried:
        own, size = f"{array.port.name}_before", array.port.size
        copies += [
            f"{block.scalar} {own}[{max(1, size)}];",
            f"for (int k = 0; k < {size}; k++) {own}[k] = {array.port.name}_out[k];",
            f"{array.pointer(block.scalar, array.row)} = {own};",
        ]
    return [
        f"__shared__ long long queues[{block.threads // WARP * 2 * WARP}];",
        f"long long* queue = queues + {block.warp} * {2 * WARP};",
        f"const int lane = threadIdx.x % {WARP};",
        f"long long first = {block.threads} * (long long)blockIdx.x + {block.warp} * {WARP};",
        "for (int waiting = 0;;) {",
        f"    for (; waiting < {WARP} && first < rows; first += {block.threads} * (long long)gridDim.x) {{",
        f"        const bool left = first + lane < rows && {error.row}_rows[first + lane] > {enough};",
        "        const unsigned votes = __ballot_sync(0xffffffffu, left);",
        "        if (left) queue[waiting + __popc(votes & ((1u << lane) - 1u))] = first + lane;",
        "        waiting += __popc(votes);",
        "    }",
        "    if (!waiting) break;",
        "    __syncwarp();",
        f"    const int count = waiting < {WARP} ? waiting : {WARP};",
        "    waiting -= count;",
        "    if (lane < count) {",
        "        const long long row = queue[waiting + lane];",
        *(f"        {array.own_row(block.scalar, 'row', '0')}" for array in arrays),
        f"        for (int time = 0; time < {task.most} && {error.row}[0] > {enough}; time++) {{",
        *(f"            {line}" for line in (*copies, *statements)),
        "        }",
        "    }",
        "    __syncwarp();",
        "}",
    ]
