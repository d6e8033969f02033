"""XLA handler for CPUs: machine code that calls a query's kernel; see `interface`."""

from __future__ import annotations

import ctypes
import math
from functools import cache

import numpy as np

from robodyn.bridges.jax.interface import (
    DTYPE,
    INTEGER,
    INVALID_ARGUMENT,
    POINTER,
    RESOURCE_EXHAUSTED,
    WORD,
    WRONG,
    Frame,
    Handlers,
    address_of,
    buffer_of,
    failure,
    fill,
    has_buffers,
    interface_minor,
    is_described,
    rows_of,
)
from robodyn.compile.llvm.jit import Code
from robodyn.compile.loops.language import (
    NULL,
    Address,
    Array,
    Word,
    address,
    array,
    call,
    load_atomic,
    local,
    place,
    routine,
    variable,
)
from robodyn.compile.loops.llvm import Module
from robodyn.compile.loops.table import Argument
from robodyn.engines.cpu.engine import CpuEngine
from robodyn.engines.cpu.kernels import Kernel
from robodyn.engines.cpu.threads.code import State

_NEVER = 2**63 - 1
_LINE = 64
_EXHAUSTED = ctypes.create_string_buffer(b"robodyn: there is not enough memory for the query")


class Context(ctypes.Structure):
    """Data of a query for its handler."""

    _fields_ = (
        ("kernel", POINTER),
        ("minor", INTEGER),  # minor version of the interface
        ("dtype", INTEGER),
        ("inputs", WORD),  # number of inputs
        ("arrays", WORD),  # number of inputs and outputs
        ("columns", ctypes.POINTER(WORD)),  # scalars in a row of each array
        ("itemsize", WORD),
        ("constants", WORD),  # words of the argument table after those of arrays
        ("constant", ctypes.POINTER(WORD)),
        ("workspace", WORD),  # bytes of scratch memory for each thread
        ("threads", WORD),
        ("share_rows", WORD),  # least number of rows for which the thread pool is used
        ("grain", WORD),
        ("pool", POINTER),
        ("malloc", POINTER),
        ("free", POINTER),
        ("wrong", POINTER),  # error messages
        ("exhausted", POINTER),
    )


@cache
def handler_text() -> str:
    """LLVM module of the handler."""
    module = Module({})
    module.export(handler)
    return module.text()


@routine
def handler(frame: Array[Frame]) -> Address:
    """Answer a call by XLA: run the kernel on its buffers."""
    context = variable(Array[Context], "context")[0]
    if is_described(frame, context.minor, 0):
        return NULL
    table = local(Word, 2 * context.arrays + context.constants)
    rows = fill_table(context, frame, table)
    if rows < 0:
        return failure(frame, context.wrong, INVALID_ARGUMENT)
    if rows == 0:
        return NULL
    shared = rows >= context.share_rows
    workspace, block, scratch = context.workspace, NULL, NULL
    if workspace != 0:
        parts = context.threads if shared else 1
        block = call(Address, context.malloc, parts * workspace + _LINE)
        if block == NULL:
            return failure(frame, context.exhausted, RESOURCE_EXHAUSTED)
        scratch = address((block + (_LINE - 1)) & -_LINE)
    kernel, pool = context.kernel, context.pool
    if shared:
        parallel = load_atomic(place(array(State, pool), "parallel"), "monotonic")
        call(None, parallel, pool, kernel, table, rows, context.grain, scratch, workspace)
    else:
        call(None, kernel, table, 0, rows, scratch)
    if block != NULL:
        call(None, context.free, block)
    return NULL


def fill_table(context: Array[Context], frame: Array[Frame], table: Array[Word]) -> Word:
    """Fill the kernel's argument table: arrays, then constants. An input of one row is used for all rows. Returns the
    number of rows, or -1 if the buffers do not fit the query."""
    inputs, arrays = context.inputs, context.arrays
    if not has_buffers(frame, inputs, arrays - inputs):
        return -1
    dtype, columns = context.dtype, context.columns
    rows = rows_of(frame.results.buffers[0], dtype, columns[inputs])
    for k in range(arrays):
        buffer = buffer_of(frame, k, inputs)
        own = rows_of(buffer, dtype, columns[k])
        if own < 0 or (own != rows and (own != 1 or k >= inputs)):
            return -1
        entry = array(Argument, table)[k]
        entry.data = buffer.data
        entry.stride = 0 if own == 1 else columns[k] * context.itemsize
    for k in range(context.constants):
        table[2 * arrays + k] = context.constant[k]
    return rows


class Handler:
    """The loaded handler of a kernel. It and everything that it points to must live as long as XLA may call it.

    Args:
        engine: the engine of the kernel.
        kernel: the kernel of one algorithm or chain.
        columns: scalars in a row of each input and each output, in the table's order.
    """

    def __init__(self, engine: CpuEngine, kernel: Kernel, columns: tuple[int, ...]) -> None:
        self._kernel = kernel
        self._code: Code = engine.load(handler_text())
        self._columns = (WORD * len(columns))(*columns)
        self._constants = (WORD * len(kernel.constants))(*kernel.constants)
        itemsize = np.dtype(engine.dtype).itemsize
        python = ctypes.pythonapi
        self._context = Context(
            kernel=kernel.address,
            minor=interface_minor(),
            dtype=DTYPE[itemsize],
            inputs=len(kernel.inputs),
            arrays=len(columns),
            columns=self._columns,
            itemsize=itemsize,
            constants=len(kernel.constants),
            constant=self._constants,
            workspace=math.ceil(kernel.workspace_bytes / _LINE) * _LINE,
            malloc=address_of(python.PyMem_RawMalloc),
            free=address_of(python.PyMem_RawFree),
            wrong=ctypes.addressof(WRONG),
            exhausted=ctypes.addressof(_EXHAUSTED),
            **_sharing(engine, kernel),
        )
        fill(self._code, self._context)
        self.address = self._code.address("handler")


def _sharing(engine: CpuEngine, kernel: Kernel) -> dict[str, int]:
    alone = {"threads": 1, "share_rows": _NEVER}
    if engine.threads == 1:
        return alone
    pool = engine.pool
    if not pool.parallel:
        return alone
    pool.start()
    return {
        "threads": engine.threads,
        "share_rows": engine.share_rows(kernel),
        "grain": engine.grain(kernel),
        "pool": pool.pointer,
    }


HANDLERS = Handlers("cpu")


def target_name(engine: CpuEngine, kernel: Kernel, columns: tuple[int, ...]) -> str:
    """XLA target name of a kernel. JAX caches compiled code on disk, so equal names must mean equal functions in all
    processes."""
    request = kernel.request
    facts = (request.link, request.model.digest, engine.threads, kernel.workspace_bytes, columns)
    digest = request.digest(kernel.mode, *facts)
    return f"robodyn_{request.algorithm.name}_{digest}"


def register(engine: CpuEngine, kernel: Kernel, columns: tuple[int, ...]) -> str:
    """Register a kernel with XLA, once per process; returns its target name.

    Raises:
        ValueError, RuntimeError: XLA refuses it.
    """
    return HANDLERS.register(target_name(engine, kernel, columns), lambda: Handler(engine, kernel, columns))
