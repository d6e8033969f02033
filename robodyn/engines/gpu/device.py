"""Devices of the GPU engine: memory, streams, kernels and graphs. CUDA devices are accessed through CuPy."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from robodyn.engines.gpu.compiler import INSTALL, compile_cubin
from robodyn.engines.gpu.source import SHARED_BYTES, KernelSource
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError

T = TypeVar("T")
_MAJOR = 13
"""The major version of CUDA for which the extra `gpu` installs."""


class LoadedKernel(Protocol):
    """A kernel on a device. `handle`: the driver's handle of the kernel (CUfunction)."""

    source: KernelSource
    blocks_per_processor: int
    handle: int

    def launch(self, blocks: int, arrays: Sequence[Any], rows: int, numbers: Sequence[int] = ()) -> None:
        """Launch the kernel on the current stream with a grid of `blocks` blocks.

        `arrays`: inputs, outputs, constants, and the workspace or None, in the order of `KernelSource`; `numbers`: the
        values of `KernelSource.numbers`.
        """


class Graph(Protocol):
    """Recorded launches (a CUDA graph)."""

    def launch(self) -> None:
        """Run the graph on the current stream."""


class Device(Protocol):
    """A device and its array library.

    `number`: the driver's device index; `xp`: the array library, with NumPy's function names; `processors`: the number
    of multiprocessors; `shared_bytes`: the most dynamic shared memory that a block may request; `total_bytes`: the
    device's memory, free or not.
    """

    name: str
    number: int
    architecture: str
    processors: int
    shared_bytes: int
    total_bytes: int
    xp: Any

    def selected(self) -> AbstractContextManager[Any]:
        """Inside `with`, this device is current: arrays are allocated and kernels launched on it."""

    def is_selected(self) -> bool:
        """Whether this device is the current one."""

    def wrapped(self, value: Any) -> Any:
        """A foreign device array as an array of the library that shares its memory."""

    def constant(self, array: Array) -> Any:
        """A copy of a NumPy array on the device. Every stream may read it when this function returns."""

    def place(self, array: Any) -> str:
        """The name of the device that an array is on."""

    def is_here(self, array: Any) -> bool:
        """Whether an array is on this device."""

    def address(self, array: Any, dtype: np.dtype[Any]) -> int:
        """The address of an array's memory, or 0 if the array is elsewhere, of another dtype or not contiguous."""

    def load(self, source: KernelSource) -> LoadedKernel:
        """Compile a kernel, or take it from the cache, and load it."""

    def load_all(self, sources: Sequence[KernelSource]) -> list[LoadedKernel]:
        """Load several kernels, compiled in parallel."""

    def pinned(self, size: int) -> Array:
        """An array of `size` bytes of pinned host memory."""

    def stream(self) -> AbstractContextManager[Any]:
        """A new non-blocking stream; current inside `with`."""

    def foreign_stream(self, stream: Any) -> AbstractContextManager[Any]:
        """A stream of another library, an object with `__cuda_stream__`; current inside `with`."""

    def driver(self, name: str) -> int:
        """The address of a driver function, such as cuLaunchKernel, which takes a kernel by its handle."""

    def upload(self, host: Array, array: Any) -> None:
        """Copy pinned memory to the device, in the order of the current stream."""

    def download(self, array: Any, host: Array) -> None:
        """Copy a device array to pinned memory, in the order of the current stream."""

    def wait(self, stream: Any) -> None:
        """Wait until all work of a stream is done."""

    def settle(self) -> None:
        """Wait until all work of the current stream is done."""

    def free_bytes(self) -> int:
        """Bytes of device memory that can be allocated."""

    def sparse(self, entries: Any, columns: Any, starts: Any, shape: tuple[int, int]) -> Any:
        """A sparse matrix of the library in compressed-row format. It takes over the three arrays."""

    def record(self, work: Callable[[], None]) -> Graph:
        """Record the launches of `work` as a graph, without running them. Memory allocated by `work` belongs to it."""

    def is_recording(self) -> bool:
        """Whether the current stream is being captured: its launches are recorded and do not run."""


class CudaDevice:
    """The current CUDA device.

    Raises:
        UnavailableError: CuPy, the driver or a device is missing. The message says what to install.
    """

    def __init__(self) -> None:
        self._cupy = cupy = _cupy()
        self.xp: Any = cupy
        self._device = cupy.cuda.Device()
        properties = cupy.cuda.runtime.getDeviceProperties(self._device.id)
        self.number = int(self._device.id)
        self.name = properties["name"].decode(errors="replace")
        self.architecture = f"sm_{self._device.compute_capability}"
        self.processors = int(properties["multiProcessorCount"])
        self.shared_bytes = int(properties.get("sharedMemPerBlockOptin", SHARED_BYTES))
        self.total_bytes = int(self._device.mem_info[1])

    def selected(self) -> AbstractContextManager[Any]:
        """Inside `with`, this device is current: arrays are allocated and kernels launched on it."""
        return self._device  # type: ignore[no-any-return]

    def is_selected(self) -> bool:
        """Whether this device is the current one."""
        return bool(self._cupy.cuda.runtime.getDevice() == self.number)

    def wrapped(self, value: Any) -> Any:
        """A foreign device array as a CuPy array that shares its memory."""
        if isinstance(value, self.xp.ndarray):
            return value
        # DLPack orders the streams of the two libraries. The other interface makes the host wait, or orders nothing.
        if hasattr(value, "__dlpack__"):
            try:
                return self.xp.from_dlpack(value)
            except Exception:  # a foreign object may raise anything
                if getattr(value, "__cuda_array_interface__", None) is None:
                    raise
        return self.xp.asarray(value)

    def constant(self, array: Array) -> Any:
        """A copy of a NumPy array on the device. Every stream may read it when this function returns."""

        def placed() -> Any:
            # CuPy's pool could reuse freed memory while kernels on other streams still read it. Memory that comes
            # from CUDA itself is freed only after such kernels.
            with self._cupy.cuda.using_allocator(None):
                return self.xp.asarray(array)

        result = with_room(self._cupy, placed)
        self.settle()
        return result

    def place(self, array: Any) -> str:
        """The name of the device that an array is on."""
        return f"GPU {array.device.id}"

    def is_here(self, array: Any) -> bool:
        """Whether an array is on this device."""
        return bool(array.device.id == self._device.id)

    def address(self, array: Any, dtype: np.dtype[Any]) -> int:
        """The address of an array's memory, or 0 if the array is elsewhere, of another dtype or not contiguous."""
        memory = array.data
        fits = array.dtype == dtype and array.flags.c_contiguous and memory.device_id == self.number
        return int(memory.ptr) if fits else 0

    def load(self, source: KernelSource) -> LoadedKernel:
        """Compile a kernel, or take it from the cache, and load it."""
        return self._loaded(source, compile_cubin(source, self.architecture))

    def load_all(self, sources: Sequence[KernelSource]) -> list[LoadedKernel]:
        """Load several kernels, compiled in parallel."""
        if len(sources) < 2:
            return [self.load(source) for source in sources]
        with ThreadPoolExecutor(len(sources)) as pool:  # NVRTC releases the GIL and runs in parallel
            codes = list(pool.map(lambda source: compile_cubin(source, self.architecture), sources))
        return [self._loaded(source, code) for source, code in zip(sources, codes, strict=True)]

    def _loaded(self, source: KernelSource, code: bytes) -> LoadedKernel:
        return with_room(self._cupy, lambda: _CudaKernel(self._cupy, source, code))

    def pinned(self, size: int) -> Array:
        """An array of `size` bytes of pinned host memory."""
        try:
            memory = self._cupy.cuda.alloc_pinned_memory(max(1, size))
        except RuntimeError as error:
            _require_memory(error)
            raise
        return np.frombuffer(memory, np.uint8, size)

    def stream(self) -> AbstractContextManager[Any]:
        """A new non-blocking stream; current inside `with`."""
        return self._cupy.cuda.Stream(non_blocking=True)  # type: ignore[no-any-return]

    def foreign_stream(self, stream: Any) -> AbstractContextManager[Any]:
        """A stream of another library, an object with `__cuda_stream__`; current inside `with`."""
        return self._cupy.cuda.Stream.from_external(stream)  # type: ignore[no-any-return]

    def driver(self, name: str) -> int:
        """The address of a driver function, such as cuLaunchKernel, which takes a kernel by its handle."""
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0

    def upload(self, host: Array, array: Any) -> None:
        """Copy pinned memory to the device, in the order of the current stream."""
        array.data.copy_from_host_async(host.ctypes.data, host.nbytes)

    def download(self, array: Any, host: Array) -> None:
        """Copy a device array to pinned memory, in the order of the current stream."""
        array.data.copy_to_host_async(host.ctypes.data, host.nbytes)

    def wait(self, stream: Any) -> None:
        """Wait until all work of a stream is done."""
        stream.synchronize()

    def settle(self) -> None:
        """Wait until all work of the current stream is done."""
        self._cupy.cuda.get_current_stream().synchronize()

    def free_bytes(self) -> int:
        """Bytes of device memory that can be allocated: free in the driver or unused in CuPy's pool."""
        free, _ = self._device.mem_info
        return int(free) + int(self._cupy.get_default_memory_pool().free_bytes())

    def sparse(self, entries: Any, columns: Any, starts: Any, shape: tuple[int, int]) -> Any:
        """A `cupyx.scipy.sparse.csr_matrix`.

        Raises:
            UnavailableError: cuSPARSE, which CuPy needs for sparse matrices, is missing.
        """
        try:
            from cupyx.scipy.sparse import csr_matrix

            return csr_matrix((entries, columns, starts), shape=shape)
        except (ImportError, RuntimeError) as error:
            raise UnavailableError(
                f"sparse: CuPy makes no sparse matrix here ({error}); it wants cuSPARSE (wheel nvidia-cusparse)"
            ) from error

    def record(self, work: Callable[[], None]) -> Graph:
        """Record the launches of `work` as a graph, without running them. Memory allocated by `work` belongs to it."""
        return with_room(self._cupy, lambda: self._recorded(work))

    def _recorded(self, work: Callable[[], None]) -> Graph:
        cuda = self._cupy.cuda
        with self.selected():
            pool, stream = cuda.MemoryPool(), cuda.Stream(non_blocking=True)
            with cuda.using_allocator(pool.malloc), stream:
                stream.begin_capture()
                try:
                    work()
                except BaseException:
                    _abandon(stream)
                    raise
                return _CudaGraph(self, stream.end_capture(), pool)

    def is_recording(self) -> bool:
        """Whether the current stream is being captured: its launches are recorded and do not run."""
        return bool(self._cupy.cuda.get_current_stream().is_capturing())


def with_room(cupy: Any, work: Callable[[], T]) -> T:
    """Call `work` and return its result. If memory runs out, CuPy's pool frees its unused blocks, which only CuPy could
    use until then, and `work` is called again."""
    try:
        return work()
    except (MemoryError, RuntimeError, UnavailableError) as error:
        if not _says_no_memory(error):
            raise
    # Outside of the except block the exception no longer keeps arrays of its traceback alive.
    cupy.get_default_memory_pool().free_all_blocks()
    return work()


class _CudaGraph:
    """A recorded graph and the memory pool of its arrays.

    A pool of CuPy does not return its memory to the driver when it is destroyed (seen with CuPy 14.2: each recording of
    a gradient leaked its matrices until the process ended). So the pool is emptied first.
    """

    def __init__(self, device: CudaDevice, graph: Any, memory: Any) -> None:
        self._device, self._graph, self._memory = device, graph, memory

    def __del__(self) -> None:
        if not sys.is_finalizing():  # at exit CUDA may be unloaded, and it frees all memory itself
            self._graph = None
            with self._device.selected():  # `free_all_blocks` acts on the current device
                self._memory.free_all_blocks()

    def launch(self) -> None:
        with self._device.selected():
            with_room(self._device.xp, self._graph.launch)  # kernels may allocate local memory at launch


def _abandon(stream: Any) -> None:
    """End the capture of work that raised. CUDA's error about the broken capture is ignored, so that the first error is
    reported."""
    try:
        stream.end_capture()
    except RuntimeError:
        return


_OUT_OF_MEMORY = 2
"""CUDA's error code, the same for driver and runtime."""


def _says_no_memory(error: BaseException) -> bool:
    """Whether an error, or one of its causes, reports a lack of memory."""
    if isinstance(error, MemoryError) or getattr(error, "status", None) == _OUT_OF_MEMORY:
        return True
    return error.__cause__ is not None and _says_no_memory(error.__cause__)


def _require_memory(error: RuntimeError) -> None:
    """Raise MemoryError if an error of CUDA reports a lack of memory."""
    if _says_no_memory(error):
        raise MemoryError(str(error)) from error


class _CudaKernel:
    def __init__(self, cupy: Any, source: KernelSource, code: bytes) -> None:
        self.source, self._cupy = source, cupy
        try:
            blocks = self._loaded(cupy, code)
        except RuntimeError as error:
            raise UnavailableError(f"engine 'gpu': CUDA does not load {source.name} ({error})") from error
        if blocks < 1:
            raise UnavailableError(f"engine 'gpu': no block of {source.name} fits on a multiprocessor of this GPU")
        self.blocks_per_processor = blocks

    def _loaded(self, cupy: Any, code: bytes) -> int:
        """Load the code and return how many blocks are resident on a multiprocessor at a time."""
        source, driver, module = self.source, cupy.cuda.driver, cupy.cuda.Module()
        module.load(code)
        self._function = module.get_function(source.name)
        self.handle = int(self._function.ptr)
        if source.shared_bytes:  # static and dynamic memory may exceed the default limit only with this
            most = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.funcSetAttribute(self.handle, most, source.shared_bytes)
        resident = driver.occupancyMaxActiveBlocksPerMultiprocessor
        return int(resident(self.handle, source.block_threads, source.shared_bytes))

    def launch(self, blocks: int, arrays: Sequence[Any], rows: int, numbers: Sequence[int] = ()) -> None:
        arguments = [np.int64(0) if array is None else array for array in arrays]
        block, shared = (self.source.block_threads, 1, 1), self.source.shared_bytes
        arguments += map(np.int64, (rows, *numbers))
        call = partial(self._function, (blocks, 1, 1), block, tuple(arguments), shared_mem=shared)
        try:
            with_room(self._cupy, call)  # threads may need local memory
        except RuntimeError as error:
            _require_memory(error)
            raise


def _cupy() -> Any:
    """The module CuPy, if it can access a device.

    Raises:
        UnavailableError: CuPy is missing, or finds no device.
    """
    if importlib.util.find_spec("cupy") is None:
        raise UnavailableError(f"engine 'gpu': CuPy is not installed; {INSTALL} (wheel cupy-cuda{_MAJOR}x)")
    try:
        import cupy
    except Exception as error:  # a broken wheel, or libraries of another CUDA
        raise UnavailableError(f"engine 'gpu': CuPy cannot be imported ({error}); {INSTALL}") from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except RuntimeError as error:
        version = cupy.cuda.runtime.driverGetVersion()
        driver = f"the driver is for CUDA {version // 1000}.{version % 1000 // 10}" if version else "no NVIDIA driver"
        raise UnavailableError(
            f"engine 'gpu': no CUDA device ({error}); {driver}. CuPy wants a driver for CUDA {_MAJOR} "
            f"(cupy-cuda{_MAJOR}x) or 12 (cupy-cuda12x, nvidia-cuda-nvrtc-cu12 and nvidia-cuda-runtime-cu12)"
        ) from error
    if count < 1:
        raise UnavailableError("engine 'gpu': the driver knows no CUDA device")
    return cupy


def selected(number: int) -> AbstractContextManager[Any]:
    """Inside `with`, new engines use the CUDA device of that number.

    Raises:
        UnavailableError: there is no CUDA device.
    """
    return _cupy().cuda.Device(number)  # type: ignore[no-any-return]


def default_device() -> Device:
    """The current CUDA device, on which new engines run.

    Raises:
        UnavailableError: there is no CUDA device.
    """
    return CudaDevice()
