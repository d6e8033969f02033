"""Machine code that XLA calls in place of a query: a handler of its foreign function interface around a kernel.

The interface is a binary one in C (xla/ffi/api/c_api.h of jaxlib, version 0.x): a handler gets a frame that holds
buffers of arguments and results, and returns null or an error. The same frame, with an extension of type 1, asks at
registration which version the handler speaks. Versions 0.x have added fields at the ends of structs alone, so the
answer is the version that jaxlib has. What differs between two queries is in a `Context`, so that the handler
is compiled once and kept on disk; every query has a copy of it loaded, with its context's address in `@context`.
"""

from __future__ import annotations

import ctypes
import math
import re
import threading
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from robodyn.engines.cpu.engine import CpuEngine
from robodyn.engines.cpu.jit import Code
from robodyn.engines.cpu.kernels import Kernel
from robodyn.engines.cpu.pool import shared_pool

_WORD, _POINTER = ctypes.c_int64, ctypes.c_void_p
_DTYPE = {4: 11, 8: 12}
"""XLA's numbers for float32 and float64, by their size."""
_NEVER = 2**63 - 1
_LINE = 64


class Context(ctypes.Structure):
    """A query as its handler reads it."""

    _fields_ = (
        ("kernel", _POINTER),
        ("minor", _WORD),  # of the interface's version 0.minor
        ("inputs", _WORD),
        ("arrays", _WORD),  # inputs and outputs
        ("columns", _POINTER),  # scalars in a row of each array
        ("itemsize", _WORD),
        ("dtype", _WORD),
        ("constants", _WORD),  # words of the table after those of arrays
        ("constant", _POINTER),
        ("workspace", _WORD),  # bytes of scratch memory for each thread
        ("threads", _WORD),
        ("share_rows", _WORD),  # from so many rows the pool runs them
        ("grain", _WORD),
        ("pool", _POINTER),
        ("parallel", _POINTER),
        ("malloc", _POINTER),
        ("free", _POINTER),
    )


# Structs of c_api.h. %Arguments stands for XLA_FFI_Args and XLA_FFI_Rets, which are alike.
_TEXT = """
%Context = type { ptr, i64, i64, i64, ptr, i64, i64, i64, ptr, i64, i64, i64, i64, ptr, ptr, ptr, ptr }
%Arguments = type { i64, ptr, i64, ptr, ptr }
%Frame = type { i64, ptr, ptr, ptr, i32, %Arguments, %Arguments, %Arguments, ptr }
%Buffer = type { i64, ptr, i32, ptr, i64, ptr }
%Version = type { i64, ptr, i32, i32 }
%Api = type { i64, ptr, %Version, ptr, ptr }
%Extension = type { i64, i32, ptr, ptr }
%Metadata = type { i64, %Version, i32 }
%Failure = type { i64, ptr, ptr, i32 }

@context = global ptr null
$wrong
$exhausted

define internal ptr @failure(ptr %frame, ptr %message, i32 %code) {
  %args = alloca %Failure, align 8
  %message.at = getelementptr %Failure, ptr %args, i64 0, i32 2
  %code.at = getelementptr %Failure, ptr %args, i64 0, i32 3
  %extension.at = getelementptr %Failure, ptr %args, i64 0, i32 1
  store i64 28, ptr %args, align 8
  store ptr null, ptr %extension.at, align 8
  store ptr %message, ptr %message.at, align 8
  store i32 %code, ptr %code.at, align 4
  %api.at = getelementptr %Frame, ptr %frame, i64 0, i32 2
  %api = load ptr, ptr %api.at, align 8
  %create.at = getelementptr %Api, ptr %api, i64 0, i32 4
  %create = load ptr, ptr %create.at, align 8
  %error = call ptr %create(ptr %args)
  ret ptr %error
}

define ptr @handler(ptr %frame) {
start:
  %extension.at = getelementptr %Frame, ptr %frame, i64 0, i32 1
  %extension = load ptr, ptr %extension.at, align 8
  %plain = icmp eq ptr %extension, null
  br i1 %plain, label %execute, label %extended
extended:
  %type.at = getelementptr %Extension, ptr %extension, i64 0, i32 1
  %type = load i32, ptr %type.at, align 4
  %asks = icmp eq i32 %type, 1
  br i1 %asks, label %describe, label %execute
describe:
  %asked = load ptr, ptr @context, align 8
  %minor.at = getelementptr %Context, ptr %asked, i64 0, i32 1
  %minor64 = load i64, ptr %minor.at, align 8
  %minor = trunc i64 %minor64 to i32
  %metadata.at = getelementptr %Extension, ptr %extension, i64 0, i32 3
  %metadata = load ptr, ptr %metadata.at, align 8
  %major.told = getelementptr %Metadata, ptr %metadata, i64 0, i32 1, i32 2
  %minor.told = getelementptr %Metadata, ptr %metadata, i64 0, i32 1, i32 3
  %traits = getelementptr %Metadata, ptr %metadata, i64 0, i32 2
  store i32 0, ptr %major.told, align 4
  store i32 %minor, ptr %minor.told, align 4
  store i32 0, ptr %traits, align 4
  ret ptr null
execute:
  %context = load ptr, ptr @context, align 8
  %inputs.at = getelementptr %Context, ptr %context, i64 0, i32 2
  %arrays.at = getelementptr %Context, ptr %context, i64 0, i32 3
  %columns.at = getelementptr %Context, ptr %context, i64 0, i32 4
  %itemsize.at = getelementptr %Context, ptr %context, i64 0, i32 5
  %dtype.at = getelementptr %Context, ptr %context, i64 0, i32 6
  %constants.at = getelementptr %Context, ptr %context, i64 0, i32 7
  %constant.at = getelementptr %Context, ptr %context, i64 0, i32 8
  %inputs = load i64, ptr %inputs.at, align 8
  %arrays = load i64, ptr %arrays.at, align 8
  %columns = load ptr, ptr %columns.at, align 8
  %itemsize = load i64, ptr %itemsize.at, align 8
  %dtype64 = load i64, ptr %dtype.at, align 8
  %dtype = trunc i64 %dtype64 to i32
  %constants = load i64, ptr %constants.at, align 8
  %constant = load ptr, ptr %constant.at, align 8
  %given.at = getelementptr %Frame, ptr %frame, i64 0, i32 5, i32 2
  %given.buffers.at = getelementptr %Frame, ptr %frame, i64 0, i32 5, i32 4
  %wanted.at = getelementptr %Frame, ptr %frame, i64 0, i32 6, i32 2
  %wanted.buffers.at = getelementptr %Frame, ptr %frame, i64 0, i32 6, i32 4
  %given = load i64, ptr %given.at, align 8
  %wanted = load i64, ptr %wanted.at, align 8
  %given.buffers = load ptr, ptr %given.buffers.at, align 8
  %wanted.buffers = load ptr, ptr %wanted.buffers.at, align 8
  %total = add i64 %given, %wanted
  %inputs.right = icmp eq i64 %given, %inputs
  %total.right = icmp eq i64 %total, %arrays
  %some = icmp sgt i64 %wanted, 0
  %right1 = and i1 %inputs.right, %total.right
  %right = and i1 %right1, %some
  br i1 %right, label %size, label %refuse
size:
  %words1 = mul i64 %arrays, 2
  %words = add i64 %words1, %constants
  %table = alloca i64, i64 %words, align 16
  %result = load ptr, ptr %wanted.buffers, align 8
  %result.dims.at = getelementptr %Buffer, ptr %result, i64 0, i32 5
  %result.dims = load ptr, ptr %result.dims.at, align 8
  %rows = load i64, ptr %result.dims, align 8
  br label %array
array:
  %i = phi i64 [ 0, %size ], [ %i.next, %enter ]
  %is.input = icmp slt i64 %i, %inputs
  %i.output = sub i64 %i, %inputs
  %place = select i1 %is.input, i64 %i, i64 %i.output
  %buffers = select i1 %is.input, ptr %given.buffers, ptr %wanted.buffers
  %buffer.at = getelementptr ptr, ptr %buffers, i64 %place
  %buffer = load ptr, ptr %buffer.at, align 8
  %buffer.dtype.at = getelementptr %Buffer, ptr %buffer, i64 0, i32 2
  %buffer.rank.at = getelementptr %Buffer, ptr %buffer, i64 0, i32 4
  %buffer.dtype = load i32, ptr %buffer.dtype.at, align 4
  %buffer.rank = load i64, ptr %buffer.rank.at, align 8
  %dtype.right = icmp eq i32 %buffer.dtype, %dtype
  %rank.right = icmp eq i64 %buffer.rank, 2
  %known = and i1 %dtype.right, %rank.right
  br i1 %known, label %shape, label %refuse
shape:
  %dims.at = getelementptr %Buffer, ptr %buffer, i64 0, i32 5
  %dims = load ptr, ptr %dims.at, align 8
  %dims1 = getelementptr i64, ptr %dims, i64 1
  %buffer.rows = load i64, ptr %dims, align 8
  %buffer.columns = load i64, ptr %dims1, align 8
  %column.at = getelementptr i64, ptr %columns, i64 %i
  %column = load i64, ptr %column.at, align 8
  %columns.right = icmp eq i64 %buffer.columns, %column
  %rows.equal = icmp eq i64 %buffer.rows, %rows
  %rows.one = icmp eq i64 %buffer.rows, 1
  %repeats = and i1 %rows.one, %is.input
  %rows.right = or i1 %rows.equal, %repeats
  %shape.right = and i1 %columns.right, %rows.right
  br i1 %shape.right, label %enter, label %refuse
enter:
  %row.bytes = mul i64 %column, %itemsize
  %stride = select i1 %rows.one, i64 0, i64 %row.bytes
  %data.at = getelementptr %Buffer, ptr %buffer, i64 0, i32 3
  %data = load ptr, ptr %data.at, align 8
  %word = mul i64 %i, 2
  %entry.data = getelementptr i64, ptr %table, i64 %word
  %entry.stride = getelementptr i64, ptr %entry.data, i64 1
  store ptr %data, ptr %entry.data, align 8
  store i64 %stride, ptr %entry.stride, align 8
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %arrays
  br i1 %more, label %array, label %append
append:
  %k = phi i64 [ 0, %enter ], [ %k.next, %copy ]
  %left = icmp slt i64 %k, %constants
  br i1 %left, label %copy, label %begin
copy:
  %from = getelementptr i64, ptr %constant, i64 %k
  %value = load i64, ptr %from, align 8
  %to.word = add i64 %words1, %k
  %to = getelementptr i64, ptr %table, i64 %to.word
  store i64 %value, ptr %to, align 8
  %k.next = add i64 %k, 1
  br label %append
begin:
  %none = icmp eq i64 %rows, 0
  br i1 %none, label %done, label %share
share:
  %workspace.at = getelementptr %Context, ptr %context, i64 0, i32 9
  %threads.at = getelementptr %Context, ptr %context, i64 0, i32 10
  %share.rows.at = getelementptr %Context, ptr %context, i64 0, i32 11
  %scratch = load i64, ptr %workspace.at, align 8
  %threads = load i64, ptr %threads.at, align 8
  %share.rows = load i64, ptr %share.rows.at, align 8
  %shared = icmp sge i64 %rows, %share.rows
  %scratchless = icmp eq i64 %scratch, 0
  br i1 %scratchless, label %run, label %reserve
reserve:
  %parts = select i1 %shared, i64 %threads, i64 1
  %scratch.all = mul i64 %parts, %scratch
  %scratch.size = add i64 %scratch.all, 64
  %malloc.at = getelementptr %Context, ptr %context, i64 0, i32 15
  %malloc = load ptr, ptr %malloc.at, align 8
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
  %workspace = phi ptr [ null, %share ], [ %aligned, %align ]
  %kernel = load ptr, ptr %context, align 8
  br i1 %shared, label %run.shared, label %run.alone
run.shared:
  %grain.at = getelementptr %Context, ptr %context, i64 0, i32 12
  %pool.at = getelementptr %Context, ptr %context, i64 0, i32 13
  %parallel.at = getelementptr %Context, ptr %context, i64 0, i32 14
  %grain = load i64, ptr %grain.at, align 8
  %pool = load ptr, ptr %pool.at, align 8
  %parallel = load ptr, ptr %parallel.at, align 8
  call void %parallel(ptr %pool, ptr %kernel, ptr %table, i64 %rows, i64 %grain, ptr %workspace, i64 %scratch)
  br label %ran
run.alone:
  call void %kernel(ptr %table, i64 0, i64 %rows, ptr %workspace)
  br label %ran
ran:
  %kept = icmp eq ptr %raw, null
  br i1 %kept, label %done, label %release
release:
  %free.at = getelementptr %Context, ptr %context, i64 0, i32 16
  %free = load ptr, ptr %free.at, align 8
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


def _words(name: str, text: str) -> str:
    """A constant that holds a text as C has them."""
    return f'@{name} = private constant [{len(text) + 1} x i8] c"{text}\\00"'


TEXT = Template(_TEXT).substitute(
    wrong=_words("wrong", "robodyn: the buffers are not those of the query"),
    exhausted=_words("exhausted", "robodyn: there is not enough memory for the query"),
)
"""The module of a handler."""


@cache
def interface_minor() -> int:
    """The y of the version 0.y of the interface that jaxlib has.

    Raises:
        ValueError: it has another version, or does not say.
    """
    import jax

    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    text = header.read_text(encoding="utf-8") if header.is_file() else ""
    found = {name: int(n) for name, n in re.findall(r"^#define XLA_FFI_API_(MAJOR|MINOR) (\d+)$", text, re.MULTILINE)}
    if found.get("MAJOR") != 0 or "MINOR" not in found:
        raise ValueError(f"its interface has the version {found or 'unknown'}; wanted 0.x")
    return found["MINOR"]


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
        self._columns = (_WORD * len(columns))(*columns)
        self._constants = (_WORD * len(kernel.constants))(*kernel.constants)
        itemsize = np.dtype(engine.dtype).itemsize
        python = ctypes.pythonapi
        self._context = Context(
            kernel=kernel.address,
            minor=interface_minor(),
            inputs=len(kernel.inputs),
            arrays=len(columns),
            columns=ctypes.addressof(self._columns),
            itemsize=itemsize,
            dtype=_DTYPE[itemsize],
            constants=len(kernel.constants),
            constant=ctypes.addressof(self._constants),
            workspace=math.ceil(kernel.workspace_bytes / _LINE) * _LINE,
            malloc=_address(python.PyMem_RawMalloc),
            free=_address(python.PyMem_RawFree),
            **_sharing(engine, kernel),
        )
        _POINTER.from_address(self._code.address("context")).value = ctypes.addressof(self._context)
        self.address = self._code.address("handler")


def _sharing(engine: CpuEngine, kernel: Kernel) -> dict[str, int]:
    alone = {"threads": 1, "share_rows": _NEVER}
    if engine.threads == 1:
        return alone
    pool = shared_pool(engine.threads, engine.load)
    if not pool.pointer:
        return alone
    pool.start()
    return {
        "threads": engine.threads,
        "share_rows": engine.share_rows(kernel),
        "grain": engine.grain(kernel),
        "pool": pool.pointer,
        "parallel": pool.parallel,
    }


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


_HANDLERS: dict[str, Handler] = {}
"""Those that XLA knows, by target name. It may call them for as long as the process runs."""
_LOCK = threading.RLock()


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
    import jax

    name = target_name(engine, kernel, columns)
    with _LOCK:
        if name not in _HANDLERS:
            handler = Handler(engine, kernel, columns)
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler.address), platform="cpu")
            _HANDLERS[name] = handler
    return name
