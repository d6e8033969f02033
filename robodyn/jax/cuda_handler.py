"""Machine code that XLA calls on GPUs in place of a query: a handler that launches a kernel; see `interface`.

The kernel runs on XLA's stream, reads and fills XLA's own memory, and nothing waits. Scratch memory is one more result
of the call, so that XLA allocates it. A launch is the same whatever the buffers hold, so XLA may record it in a graph.
XLA compiles once for all GPUs, and makes the context of the one that a call is for current: a handler has the kernel on
each of them.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from string import Template
from typing import Any

from robodyn._version import __version__
from robodyn.codegen.cache import ObjectCache
from robodyn.codegen.llvm.jit import Code
from robodyn.codegen.llvm.target import host_target
from robodyn.engines.cpu.kernels import Maker
from robodyn.engines.gpu.device import Device
from robodyn.engines.gpu.engine import Launch
from robodyn.engines.gpu.source import KernelSource
from robodyn.jax.interface import (
    COMMON,
    DTYPE,
    POINTER,
    WORD,
    WRONG,
    Handlers,
    declared,
    fields,
    fill,
    interface_minor,
)


class Place(ctypes.Structure):
    """A kernel on one GPU."""

    _fields_ = (
        ("kernel", POINTER),  # null where it is not loaded
        ("constant", POINTER),  # addresses of its constants there
        ("blocks", WORD),  # the most
    )


class Context(ctypes.Structure):
    """A kernel as its handler reads it."""

    _fields_ = (
        ("launch", POINTER),  # cuLaunchKernel
        ("current", POINTER),  # cuCtxGetDevice
        ("places", POINTER),  # of the GPUs by their numbers
        ("gpus", WORD),
        ("minor", WORD),  # of the interface's version 0.minor
        ("inputs", WORD),
        ("arrays", WORD),  # inputs and outputs
        ("columns", POINTER),  # scalars in a row of each array
        ("dtype", WORD),
        ("constants", WORD),
        ("scratch", WORD),  # scalars for each block, 0 for a kernel that needs none
        ("states", WORD),  # that a block works on at a time
        ("threads", WORD),  # of a block
        ("shared", WORD),  # bytes of dynamic shared memory of a block
        ("refused", POINTER),  # what to say where the driver does not launch it
    )


_TEXT = """
%Stream = type { i64, ptr, ptr, ptr }
%Place = type { ptr, ptr, i64 }
$context
$wrong

; The stream that the call is for, left at a place, or an error.
define internal ptr @stream(ptr %frame, ptr %place) {
start:
  %args = alloca %Stream, align 8
  %extension.at = getelementptr %Stream, ptr %args, i64 0, i32 1
  %context.at = getelementptr %Stream, ptr %args, i64 0, i32 2
  %stream.at = getelementptr %Stream, ptr %args, i64 0, i32 3
  %own.at = getelementptr %Frame, ptr %frame, i64 0, i32 3
  %own = load ptr, ptr %own.at, align 8
  store i64 32, ptr %args, align 8
  store ptr null, ptr %extension.at, align 8
  store ptr %own, ptr %context.at, align 8
  store ptr null, ptr %stream.at, align 8
  %api.at = getelementptr %Frame, ptr %frame, i64 0, i32 2
  %api = load ptr, ptr %api.at, align 8
  %get.at = getelementptr %Api, ptr %api, i64 0, i32 8
  %get = load ptr, ptr %get.at, align 8
  %error = call ptr %get(ptr %args)
  %stream = load ptr, ptr %stream.at, align 8
  store ptr %stream, ptr %place, align 8
  ret ptr %error
}

define ptr @handler(ptr %frame) {
start:
$fields
  %asked = call i1 @described(ptr %frame, i64 %minor, i32 1)
  br i1 %asked, label %done, label %count
count:
  %scratches = icmp ne i64 %scratch, 0
  %one.more = zext i1 %scratches to i64
  %outputs1 = sub i64 %arrays, %inputs
  %outputs = add i64 %outputs1, %one.more
  %right = call i1 @counts(ptr %frame, i64 %inputs, i64 %outputs)
  br i1 %right, label %size, label %refuse
size:
  %type = trunc i64 %dtype to i32
  %scratch.word = add i64 %arrays, %constants
  %rows.word = add i64 %scratch.word, 1
  %words = add i64 %scratch.word, 2
  %values = alloca i64, i64 %words, align 16
  %parameters = alloca ptr, i64 %words, align 16
  %stream.place = alloca ptr, align 8
  %number.place = alloca i32, align 4
  %first = call ptr @buffer(ptr %frame, i64 %inputs, i64 %inputs)
  %first.column.at = getelementptr i64, ptr %columns, i64 %inputs
  %first.column = load i64, ptr %first.column.at, align 8
  %rows = call i64 @rows(ptr %first, i32 %type, i64 %first.column)
  %known = icmp sge i64 %rows, 0
  br i1 %known, label %array, label %refuse
array:
  %i = phi i64 [ 0, %size ], [ %i.next, %enter ]
  %buffer = call ptr @buffer(ptr %frame, i64 %i, i64 %inputs)
  %column.at = getelementptr i64, ptr %columns, i64 %i
  %column = load i64, ptr %column.at, align 8
  %own = call i64 @rows(ptr %buffer, i32 %type, i64 %column)
  %fits = icmp eq i64 %own, %rows
  br i1 %fits, label %enter, label %refuse
enter:
  %data.at = getelementptr %Buffer, ptr %buffer, i64 0, i32 3
  %data = load ptr, ptr %data.at, align 8
  %entry = getelementptr i64, ptr %values, i64 %i
  store ptr %data, ptr %entry, align 8
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %arrays
  br i1 %more, label %array, label %locate
locate:
  %none = icmp eq i64 %rows, 0
  br i1 %none, label %done, label %number
number:
  %lost = call i32 %current(ptr %number.place)
  %number32 = load i32, ptr %number.place, align 4
  %number64 = zext i32 %number32 to i64
  %told = icmp eq i32 %lost, 0
  %listed = icmp ult i64 %number64, %gpus
  %somewhere = and i1 %told, %listed
  br i1 %somewhere, label %look, label %give.up
look:
  %here = getelementptr %Place, ptr %places, i64 %number64
  %constant.at = getelementptr %Place, ptr %here, i64 0, i32 1
  %blocks.at = getelementptr %Place, ptr %here, i64 0, i32 2
  %kernel = load ptr, ptr %here, align 8
  %constant = load ptr, ptr %constant.at, align 8
  %blocks = load i64, ptr %blocks.at, align 8
  %missing = icmp eq ptr %kernel, null
  br i1 %missing, label %give.up, label %begin
begin:
  %behind = getelementptr i64, ptr %values, i64 %arrays
  call void @copy(ptr %constant, ptr %behind, i64 %constants)
  %scratch.at = getelementptr i64, ptr %values, i64 %scratch.word
  %rows.at = getelementptr i64, ptr %values, i64 %rows.word
  store i64 0, ptr %scratch.at, align 8
  store i64 %rows, ptr %rows.at, align 8
  %up = add i64 %rows, %states
  %up1 = sub i64 %up, 1
  %wanted = sdiv i64 %up1, %states
  %fewer = icmp slt i64 %wanted, %blocks
  %grid1 = select i1 %fewer, i64 %wanted, i64 %blocks
  br i1 %scratches, label %take, label %point
take:
  %room = call ptr @buffer(ptr %frame, i64 %arrays, i64 %inputs)
  %most = call i64 @rows(ptr %room, i32 %type, i64 %scratch)
  %room.at = getelementptr %Buffer, ptr %room, i64 0, i32 3
  %room.data = load ptr, ptr %room.at, align 8
  store ptr %room.data, ptr %scratch.at, align 8
  %less = icmp slt i64 %most, %grid1
  %grid2 = select i1 %less, i64 %most, i64 %grid1
  %enough = icmp sgt i64 %most, 0
  br i1 %enough, label %point, label %refuse
point:
  %grid = phi i64 [ %grid1, %begin ], [ %grid2, %take ]
  br label %parameter
parameter:
  %j = phi i64 [ 0, %point ], [ %j.next, %parameter ]
  %value.at = getelementptr i64, ptr %values, i64 %j
  %parameter.at = getelementptr ptr, ptr %parameters, i64 %j
  store ptr %value.at, ptr %parameter.at, align 8
  %j.next = add i64 %j, 1
  %further = icmp slt i64 %j.next, %words
  br i1 %further, label %parameter, label %ask
ask:
  %error.stream = call ptr @stream(ptr %frame, ptr %stream.place)
  %given = icmp eq ptr %error.stream, null
  br i1 %given, label %start.kernel, label %pass.on
start.kernel:
  %stream = load ptr, ptr %stream.place, align 8
  %grid32 = trunc i64 %grid to i32
  %threads32 = trunc i64 %threads to i32
  %shared32 = trunc i64 %shared to i32
  %code = call i32 %launch(ptr %kernel, i32 %grid32, i32 1, i32 1, i32 %threads32, i32 1, i32 1, i32 %shared32,
                           ptr %stream, ptr %parameters, ptr null)
  %started = icmp eq i32 %code, 0
  br i1 %started, label %done, label %give.up
done:
  ret ptr null
pass.on:
  ret ptr %error.stream
refuse:
  %error.wrong = call ptr @failure(ptr %frame, ptr @wrong, i32 3)
  ret ptr %error.wrong
give.up:
  %error.launch = call ptr @failure(ptr %frame, ptr %refused, i32 13)
  ret ptr %error.launch
}
"""
TEXT = COMMON + Template(_TEXT).substitute(context=declared(Context), fields=fields(Context), wrong=WRONG)
"""The module of a handler."""


def scratch_shape(launch: Launch, rows: int) -> tuple[int, int] | None:
    """The shape of the scratch memory for n rows, a row for each block; None for a kernel that needs none."""
    source = launch.kernel.source
    if not source.workspace_scalars:
        return None
    return min(-(-rows // source.states_per_block), launch.blocks), source.workspace(1)


class CudaHandler:
    """A kernel's handler, loaded; it and all that it points to must live as long as XLA may call it.

    Args:
        launches: of the kernel, one on each GPU that it is loaded on, with the GPU.
        columns: scalars in a row of each input and each output, in the kernel's order.
    """

    def __init__(self, launches: Sequence[tuple[Device, Launch]], columns: tuple[int, ...]) -> None:
        self._launches = tuple(launches)
        (device, launch), *_ = self._launches
        source = launch.kernel.source
        maker = Maker(ObjectCache.from_environment())
        self._code: Code = maker.shared(TEXT, "robodyn runtime", host_target())
        self._columns = (WORD * len(columns))(*columns)
        self._constants = [(WORD * len(each.constants))(*map(_place, each.constants)) for _, each in self._launches]
        self._places = (Place * (1 + max(each.number for each, _ in self._launches)))()
        for (gpu, each), constants in zip(self._launches, self._constants, strict=True):
            self._places[gpu.number] = Place(each.kernel.handle, ctypes.addressof(constants), each.blocks)
        numbers = ", ".join(str(gpu.number) for gpu, _ in self._launches)
        self._refused = (
            f"robodyn: the driver does not launch {source.name}, a kernel loaded on GPU {numbers} ({device.name}); "
            "wanted arrays there"
        ).encode()
        self._context = Context(
            launch=device.driver("cuLaunchKernel"),
            current=device.driver("cuCtxGetDevice"),
            places=ctypes.addressof(self._places),
            gpus=len(self._places),
            minor=interface_minor(),
            inputs=len(source.inputs),
            arrays=len(columns),
            columns=ctypes.addressof(self._columns),
            dtype=DTYPE[source.dtype.itemsize],
            constants=len(launch.constants),
            scratch=source.workspace(1),
            states=source.states_per_block,
            threads=source.block_threads,
            shared=source.shared_bytes,
            refused=ctypes.cast(ctypes.c_char_p(self._refused), POINTER).value,
        )
        fill(self._code, self._context)
        self.address = self._code.address("handler")


def _place(array: Any) -> int:
    return int(array.__cuda_array_interface__["data"][0])


def gpu_numbers() -> list[int]:
    """The driver's numbers of the GPUs that JAX has in this process; none where code is lowered for others."""
    import jax

    try:
        return [device.local_hardware_id for device in jax.local_devices(backend="cuda")]
    except RuntimeError:
        return []


HANDLERS = Handlers("CUDA")


def target_name(task: str, source: KernelSource, columns: tuple[int, ...]) -> str:
    """What XLA shall call a kernel: the same name in every process means the same function, also in what JAX keeps."""
    state = hashlib.blake2b(digest_size=16)
    facts = (source.inputs, source.outputs, columns, source.block_threads, source.shared_bytes, source.workspace(1))
    state.update(repr((source.name, source.text, str(source.dtype), facts, __version__)).encode())
    for array in source.constants:
        state.update(repr((array.dtype.str, array.shape)).encode() + array.tobytes())
    return f"robodyn_{task}_{state.hexdigest()}"


def register(task: str, launches: Sequence[tuple[Device, Launch]], columns: tuple[int, ...]) -> str:
    """Make a kernel of a task known to XLA, once in a process; returns its target's name.

    Raises:
        UnavailableError: there is no machine code for this processor.
        ValueError, RuntimeError, OSError: XLA does not take it, or there is no driver.
    """
    name = target_name(task, launches[0][1].kernel.source, columns)
    return HANDLERS.register(name, lambda: CudaHandler(launches, columns))
