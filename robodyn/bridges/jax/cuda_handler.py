"""XLA handler for GPUs: machine code that launches a query's kernel; see `interface`.

The kernel runs asynchronously on XLA's stream and accesses XLA's buffers directly. Scratch memory is an additional
result of the call, so that XLA allocates it. Launches do not depend on values in the buffers, so XLA may record them in
a CUDA graph. XLA compiles once for all GPUs and makes the CUDA context of a call's GPU current. So a handler has the
kernel for each GPU.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from robodyn.bridges.jax.interface import (
    DTYPE,
    INTEGER,
    INTERNAL,
    INVALID_ARGUMENT,
    POINTER,
    WORD,
    WRONG,
    Frame,
    Handlers,
    buffer_of,
    failure,
    fill,
    has_buffers,
    interface_minor,
    is_described,
    rows_of,
)
from robodyn.compile.cache import ObjectCache
from robodyn.compile.llvm.jit import Code
from robodyn.compile.llvm.target import host_target
from robodyn.compile.loops.language import (
    NULL,
    Address,
    Array,
    Integer,
    Word,
    array,
    call,
    convert,
    local,
    routine,
    variable,
)
from robodyn.compile.loops.llvm import Module
from robodyn.engines.cpu.kernels import KernelCompiler
from robodyn.engines.gpu.device import Device
from robodyn.engines.gpu.engine import Launch
from robodyn.engines.gpu.source import KernelSource
from robodyn.internals.version import __version__

_RECORDABLE = 1
"""Trait of handlers whose launches may be recorded in a CUDA graph."""


class Place(ctypes.Structure):
    """A kernel on one GPU."""

    _fields_ = (
        ("kernel", POINTER),  # null if it is not loaded on this GPU
        ("constant", ctypes.POINTER(WORD)),  # addresses of its constants on this GPU
        ("blocks", WORD),  # largest number of blocks of a launch
    )


class Context(ctypes.Structure):
    """Data of a kernel for its handler."""

    _fields_ = (
        ("launch", POINTER),  # cuLaunchKernel
        ("current", POINTER),  # cuCtxGetDevice
        ("places", ctypes.POINTER(Place)),  # indexed by GPU number
        ("gpus", WORD),  # length of `places`
        ("minor", INTEGER),  # minor version of the interface
        ("dtype", INTEGER),
        ("inputs", WORD),  # number of inputs
        ("arrays", WORD),  # number of inputs and outputs
        ("columns", ctypes.POINTER(WORD)),  # scalars in a row of each array
        ("constants", WORD),
        ("scratch", WORD),  # scalars of scratch memory for each block, 0 for none
        ("states", WORD),  # states that a block computes at a time
        ("threads", INTEGER),  # threads of a block
        ("shared", INTEGER),  # bytes of dynamic shared memory of a block
        ("wrong", POINTER),  # error messages
        ("refused", POINTER),  # the driver refuses to launch the kernel
    )


class StreamGet(ctypes.Structure):
    """XLA_FFI_Stream_Get_Args."""

    _fields_ = (("size", WORD), ("extension", POINTER), ("context", POINTER), ("stream", POINTER))


_STREAM_GET_BYTES = ctypes.sizeof(StreamGet)


@cache
def handler_text() -> str:
    """LLVM module of the handler."""
    module = Module({})
    module.export(handler)
    return module.text()


@routine
def handler(frame: Array[Frame]) -> Address:
    """Answer a call by XLA: launch the kernel on its buffers."""
    context = variable(Array[Context], "context")[0]
    if is_described(frame, context.minor, _RECORDABLE):
        return NULL
    rows = rows_of_call(context, frame)
    if rows < 0:
        return failure(frame, context.wrong, INVALID_ARGUMENT)
    if rows == 0:
        return NULL
    here = kernel_here(context)
    if here == NULL:
        return failure(frame, context.refused, INTERNAL)
    blocks, room = min((rows + context.states - 1) // context.states, here.blocks), NULL
    if context.scratch != 0:
        buffer = frame.results.buffers[context.arrays - context.inputs]
        blocks = min(blocks, rows_of(buffer, context.dtype, context.scratch))
        room = buffer.data
    if blocks <= 0:
        return failure(frame, context.wrong, INVALID_ARGUMENT)
    stream = local(Address, 1)
    error = find_stream(frame, stream)
    if error != NULL:
        return error
    if launch(context, frame, here, rows, blocks, room, stream[0]) != 0:
        return failure(frame, context.refused, INTERNAL)
    return NULL


def rows_of_call(context: Array[Context], frame: Array[Frame]) -> Word:
    """The number of rows of all buffers but scratch memory, or -1 if the buffers do not fit the kernel."""
    inputs, arrays = context.inputs, context.arrays
    if not has_buffers(frame, inputs, arrays - inputs + int(context.scratch != 0)):
        return -1
    dtype, columns = context.dtype, context.columns
    rows = rows_of(frame.results.buffers[0], dtype, columns[inputs])
    for k in range(arrays):
        if rows_of(buffer_of(frame, k, inputs), dtype, columns[k]) != rows:
            return -1
    return rows


def kernel_here(context: Array[Context]) -> Array[Place]:
    """The kernel on the GPU whose CUDA context is current; null if it is not loaded there."""
    number = local(Integer, 1)
    failed = call(Integer, context.current, number)
    gpu = convert(Word, number[0])
    if failed != 0 or gpu < 0 or gpu >= context.gpus:
        return array(Place, NULL)
    here: Array[Place] = context.places + gpu
    if here.kernel == NULL:
        return array(Place, NULL)
    return here


@routine
def launch(
    context: Array[Context],
    frame: Array[Frame],
    here: Array[Place],
    rows: Word,
    blocks: Word,
    room: Address,
    stream: Address,
) -> Integer:
    """Launch the kernel. Its arguments are the addresses of arrays, constants and scratch memory, and the number of
    rows. Returns the driver's error code."""
    inputs, arrays, constants = context.inputs, context.arrays, context.constants
    words = arrays + constants + 2
    values, parameters = local(Word, words), local(Address, words)
    for k in range(arrays):
        values[k] = buffer_of(frame, k, inputs).data
    for k in range(constants):
        values[arrays + k] = here.constant[k]
    values[words - 2], values[words - 1] = room, rows
    for k in range(words):
        parameters[k] = values + k
    grid, block = (convert(Integer, blocks), 1, 1), (context.threads, 1, 1)
    return call(Integer, context.launch, here.kernel, *grid, *block, context.shared, stream, parameters, NULL)


@routine
def find_stream(frame: Array[Frame], found: Array[Address]) -> Address:
    """Write the CUDA stream of a call to `found[0]`; returns an XLA error, or null."""
    given = local(StreamGet, 1)
    given.size, given.extension = _STREAM_GET_BYTES, NULL
    given.context, given.stream = frame.context, NULL
    error = call(Address, frame.api.stream_of, given)
    found[0] = given.stream
    return error


def scratch_shape(launch: Launch, rows: int) -> tuple[int, int] | None:
    """Shape of the scratch memory for n rows: one row per block. None for a kernel that needs none."""
    source = launch.kernel.source
    if not source.workspace_scalars:
        return None
    return min(-(-rows // source.states_per_block), launch.blocks), source.workspace(1)


class CudaHandler:
    """The loaded handler of a kernel. It and everything that it points to must live as long as XLA may call it.

    Args:
        launches: each GPU with the kernel's launch on it.
        columns: scalars in a row of each input and each output, in the kernel's order.
    """

    def __init__(self, launches: Sequence[tuple[Device, Launch]], columns: tuple[int, ...]) -> None:
        self._launches = tuple(launches)
        (device, launch), *_ = self._launches
        source = launch.kernel.source
        compiler = KernelCompiler(ObjectCache.from_environment())
        self._code: Code = compiler.shared(handler_text(), "robodyn runtime", host_target())
        self._columns = (WORD * len(columns))(*columns)
        self._constants = [(WORD * len(each.constants))(*map(_place, each.constants)) for _, each in self._launches]
        self._places = (Place * (1 + max(each.number for each, _ in self._launches)))()
        for (gpu, each), constants in zip(self._launches, self._constants, strict=True):
            self._places[gpu.number] = Place(each.kernel.handle, constants, each.blocks)
        numbers = ", ".join(str(gpu.number) for gpu, _ in self._launches)
        refused = (
            f"robodyn: the driver does not launch {source.name}, a kernel loaded on GPU {numbers} ({device.name}); "
            "wanted arrays there"
        )
        self._refused = ctypes.create_string_buffer(refused.encode())
        self._context = Context(
            launch=device.driver("cuLaunchKernel"),
            current=device.driver("cuCtxGetDevice"),
            places=self._places,
            gpus=len(self._places),
            minor=interface_minor(),
            dtype=DTYPE[source.dtype.itemsize],
            inputs=len(source.inputs),
            arrays=len(columns),
            columns=self._columns,
            constants=len(launch.constants),
            scratch=source.workspace(1),
            states=source.states_per_block,
            threads=source.block_threads,
            shared=source.shared_bytes,
            wrong=ctypes.addressof(WRONG),
            refused=ctypes.addressof(self._refused),
        )
        fill(self._code, self._context)
        self.address = self._code.address("handler")


def _place(array: Any) -> int:
    return int(array.__cuda_array_interface__["data"][0])


def gpu_numbers() -> list[int]:
    """The CUDA driver's numbers of JAX's GPUs in this process; empty if it has none, as in cross-compilation."""
    import jax

    try:
        return [device.local_hardware_id for device in jax.local_devices(backend="cuda")]
    except RuntimeError:
        return []


HANDLERS = Handlers("CUDA")


def target_name(task: str, source: KernelSource, columns: tuple[int, ...]) -> str:
    """XLA target name of a kernel. JAX caches compiled code on disk, so equal names must mean equal functions in all
    processes."""
    state = hashlib.blake2b(digest_size=16)
    facts = (source.inputs, source.outputs, columns, source.block_threads, source.shared_bytes, source.workspace(1))
    state.update(repr((source.name, source.text, str(source.dtype), facts, __version__)).encode())
    for each in source.constants:
        state.update(repr((each.dtype.str, each.shape)).encode() + each.tobytes())
    return f"robodyn_{task}_{state.hexdigest()}"


def register(task: str, launches: Sequence[tuple[Device, Launch]], columns: tuple[int, ...]) -> str:
    """Register a kernel of a task with XLA, once per process; returns its target name.

    Raises:
        UnavailableError: robodyn has no machine code for this CPU.
        ValueError, RuntimeError, OSError: XLA refuses it, or there is no CUDA driver.
    """
    name = target_name(task, launches[0][1].kernel.source, columns)
    return HANDLERS.register(name, lambda: CudaHandler(launches, columns))
