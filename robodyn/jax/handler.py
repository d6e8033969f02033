"""Machine code that XLA calls on processors in place of a query: a handler around a kernel; see `interface`."""

from __future__ import annotations

import ctypes
import math
from string import Template

import numpy as np

from robodyn.codegen.llvm.jit import Code
from robodyn.engines.cpu.engine import CpuEngine
from robodyn.engines.cpu.kernels import Kernel
from robodyn.engines.cpu.threads.code import State
from robodyn.jax.interface import (
    COMMON,
    DTYPE,
    POINTER,
    WORD,
    WRONG,
    Handlers,
    address,
    declared,
    fields,
    fill,
    interface_minor,
    words,
)

_NEVER = 2**63 - 1
_LINE = 64


class Context(ctypes.Structure):
    """A query as its handler reads it."""

    _fields_ = (
        ("kernel", POINTER),
        ("minor", WORD),  # of the interface's version 0.minor
        ("inputs", WORD),
        ("arrays", WORD),  # inputs and outputs
        ("columns", POINTER),  # scalars in a row of each array
        ("itemsize", WORD),
        ("dtype", WORD),
        ("constants", WORD),  # words of the table after those of arrays
        ("constant", POINTER),
        ("workspace", WORD),  # bytes of scratch memory for each thread
        ("threads", WORD),
        ("share_rows", WORD),  # from n rows the pool runs them
        ("grain", WORD),
        ("pool", POINTER),
        ("malloc", POINTER),
        ("free", POINTER),
    )


_TEXT = """
$context
$wrong
$exhausted

define ptr @handler(ptr %frame) {
start:
$fields
  %asked = call i1 @described(ptr %frame, i64 %minor, i32 0)
  br i1 %asked, label %done, label %count
count:
  %outputs = sub i64 %arrays, %inputs
  %right = call i1 @counts(ptr %frame, i64 %inputs, i64 %outputs)
  br i1 %right, label %size, label %refuse
size:
  %type = trunc i64 %dtype to i32
  %words1 = mul i64 %arrays, 2
  %words = add i64 %words1, %constants
  %table = alloca i64, i64 %words, align 16
  %first = call ptr @buffer(ptr %frame, i64 %inputs, i64 %inputs)
  %first.column.at = getelementptr i64, ptr %columns, i64 %inputs
  %first.column = load i64, ptr %first.column.at, align 8
  %rows = call i64 @rows(ptr %first, i32 %type, i64 %first.column)
  br label %array
array:
  %i = phi i64 [ 0, %size ], [ %i.next, %enter ]
  %buffer = call ptr @buffer(ptr %frame, i64 %i, i64 %inputs)
  %column.at = getelementptr i64, ptr %columns, i64 %i
  %column = load i64, ptr %column.at, align 8
  %own = call i64 @rows(ptr %buffer, i32 %type, i64 %column)
  %known = icmp sge i64 %own, 0
  %equal = icmp eq i64 %own, %rows
  %one = icmp eq i64 %own, 1
  %is.input = icmp slt i64 %i, %inputs
  %repeats = and i1 %one, %is.input
  %serves = or i1 %equal, %repeats
  %fits = and i1 %known, %serves
  br i1 %fits, label %enter, label %refuse
enter:
  %row.bytes = mul i64 %column, %itemsize
  %stride = select i1 %one, i64 0, i64 %row.bytes
  %data.at = getelementptr %Buffer, ptr %buffer, i64 0, i32 3
  %data = load ptr, ptr %data.at, align 8
  %word = mul i64 %i, 2
  %entry.data = getelementptr i64, ptr %table, i64 %word
  %entry.stride = getelementptr i64, ptr %entry.data, i64 1
  store ptr %data, ptr %entry.data, align 8
  store i64 %stride, ptr %entry.stride, align 8
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %arrays
  br i1 %more, label %array, label %begin
begin:
  %behind = getelementptr i64, ptr %table, i64 %words1
  call void @copy(ptr %constant, ptr %behind, i64 %constants)
  %none = icmp eq i64 %rows, 0
  br i1 %none, label %done, label %share
share:
  %shared = icmp sge i64 %rows, %share_rows
  %scratchless = icmp eq i64 %workspace, 0
  br i1 %scratchless, label %run, label %reserve
reserve:
  %parts = select i1 %shared, i64 %threads, i64 1
  %scratch.all = mul i64 %parts, %workspace
  %scratch.size = add i64 %scratch.all, 64
  %block = call ptr %malloc(i64 %scratch.size)
  %failed = icmp eq ptr %block, null
  br i1 %failed, label %give.up, label %align
align:
  %block.number = ptrtoint ptr %block to i64
  %block.up = add i64 %block.number, 63
  %block.aligned = and i64 %block.up, -64
  %aligned = inttoptr i64 %block.aligned to ptr
  br label %run
run:
  %raw = phi ptr [ null, %share ], [ %block, %align ]
  %scratch = phi ptr [ null, %share ], [ %aligned, %align ]
  br i1 %shared, label %run.shared, label %run.alone
run.shared:
  %parallel.at = getelementptr i8, ptr %pool, i64 $parallel
  %parallel = load atomic ptr, ptr %parallel.at monotonic, align 8
  call void %parallel(ptr %pool, ptr %kernel, ptr %table, i64 %rows, i64 %grain, ptr %scratch, i64 %workspace)
  br label %ran
run.alone:
  call void %kernel(ptr %table, i64 0, i64 %rows, ptr %scratch)
  br label %ran
ran:
  %kept = icmp eq ptr %raw, null
  br i1 %kept, label %done, label %release
release:
  call void %free(ptr %raw)
  br label %done
done:
  ret ptr null
refuse:
  %error.wrong = call ptr @failure(ptr %frame, ptr @wrong, i32 3)
  ret ptr %error.wrong
give.up:
  %error.memory = call ptr @failure(ptr %frame, ptr @exhausted, i32 8)
  ret ptr %error.memory
}
"""
TEXT = COMMON + Template(_TEXT).substitute(
    context=declared(Context),
    parallel=State.parallel.offset,
    fields=fields(Context),
    wrong=WRONG,
    exhausted=words("exhausted", "robodyn: there is not enough memory for the query"),
)
"""The module of a handler."""


class Handler:
    """A kernel's handler, loaded; it and all that it points to must live as long as XLA may call it.

    Args:
        engine: whose kernel it is.
        kernel: of one algorithm or chain.
        columns: scalars in a row of each input and each output, in the table's order.
    """

    def __init__(self, engine: CpuEngine, kernel: Kernel, columns: tuple[int, ...]) -> None:
        self._kernel = kernel
        self._code: Code = engine.load(TEXT)
        self._columns = (WORD * len(columns))(*columns)
        self._constants = (WORD * len(kernel.constants))(*kernel.constants)
        itemsize = np.dtype(engine.dtype).itemsize
        python = ctypes.pythonapi
        self._context = Context(
            kernel=kernel.address,
            minor=interface_minor(),
            inputs=len(kernel.inputs),
            arrays=len(columns),
            columns=ctypes.addressof(self._columns),
            itemsize=itemsize,
            dtype=DTYPE[itemsize],
            constants=len(kernel.constants),
            constant=ctypes.addressof(self._constants),
            workspace=math.ceil(kernel.workspace_bytes / _LINE) * _LINE,
            malloc=address(python.PyMem_RawMalloc),
            free=address(python.PyMem_RawFree),
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
    """What XLA shall call a kernel: the same name in every process means the same function, also in what JAX keeps."""
    request = kernel.request
    facts = (request.link, request.model.digest, engine.threads, kernel.workspace_bytes, columns)
    digest = request.digest(kernel.mode, *facts)
    return f"robodyn_{request.algorithm.name}_{digest}"


def register(engine: CpuEngine, kernel: Kernel, columns: tuple[int, ...]) -> str:
    """Make a kernel known to XLA, once in a process; returns its target's name.

    Raises:
        ValueError, RuntimeError: XLA does not take it.
    """
    return HANDLERS.register(target_name(engine, kernel, columns), lambda: Handler(engine, kernel, columns))
