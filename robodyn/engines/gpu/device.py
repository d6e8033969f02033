"""What the GPU engine needs of a device: memory, streams, kernels and graphs. CUDA devices are reached through CuPy."""

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
"""Of CUDA: the one that the extra `gpu` installs for."""


class LoadedKernel(Protocol):
    """A kernel on a device; `handle`: what the driver knows it by."""

    source: KernelSource
    blocks_per_processor: int
    handle: int

    def launch(self, blocks: int, arrays: Sequence[Any], rows: int, numbers: Sequence[int] = ()) -> None:
        """Start it on the current stream, on a grid of n blocks, with the arrays that `KernelSource` lists:
        inputs, outputs, constants, and the workspace or None; and its numbers."""


class Graph(Protocol):
    """Launches that were recorded once."""

    def launch(self) -> None:
        """Start them on the current stream."""


class Device(Protocol):
    """A device and the library of its arrays.

    `number`: the driver's; `xp`: functions named as NumPy's; `processors`: multiprocessors; `shared_bytes`: the most
    dynamic shared memory that a block may ask for; `total_bytes`: its memory, free or not.
    """

    name: str
    number: int
    architecture: str
    processors: int
    shared_bytes: int
    total_bytes: int
    xp: Any

    def selected(self) -> AbstractContextManager[Any]:
        """Arrays are made, and kernels launched, on this device."""

    def is_selected(self) -> bool:
        """Whether they are."""

    def wrapped(self, value: Any) -> Any:
        """A foreign array on a device, as one of the library that shares its memory."""

    def constant(self, array: Array) -> Any:
        """A copy of a NumPy array, which is there for every stream when this returns."""

    def place(self, array: Any) -> str:
        """Which device an array is on."""

    def is_here(self, array: Any) -> bool:
        """Whether an array is on this device."""

    def address(self, array: Any, dtype: np.dtype[Any]) -> int:
        """Where an array of the library begins, if it is on this device, of that dtype and contiguous; else 0."""

    def load(self, source: KernelSource) -> LoadedKernel:
        """Compile a kernel, or take it from the cache, and load it."""

    def load_all(self, sources: Sequence[KernelSource]) -> list[LoadedKernel]:
        """The same for several kernels, compiled side by side."""

    def pinned(self, size: int) -> Array:
        """Host memory (size,), bytes, that transfers need not copy first."""

    def stream(self) -> AbstractContextManager[Any]:
        """A new stream, which waits for no other; current inside `with`."""

    def foreign_stream(self, stream: Any) -> AbstractContextManager[Any]:
        """A stream of another library, an object that has `__cuda_stream__`; current inside `with`."""

    def driver(self, name: str) -> int:
        """The address of a function of the driver, such as cuLaunchKernel, which takes a kernel by its handle."""

    def upload(self, host: Array, array: Any) -> None:
        """Copy pinned bytes to the device, in the order of the current stream."""

    def download(self, array: Any, host: Array) -> None:
        """Copy bytes to pinned memory, in the order of the current stream."""

    def wait(self, stream: Any) -> None:
        """Wait until all work of a stream is done."""

    def settle(self) -> None:
        """Wait until all work of the current stream is done."""

    def free_bytes(self) -> int:
        """Memory that can be had."""

    def sparse(self, entries: Any, columns: Any, starts: Any, shape: tuple[int, int]) -> Any:
        """A sparse matrix of the library in compressed rows, from arrays that are its own from then on."""

    def record(self, work: Callable[[], None]) -> Graph:
        """What `work` launches, as a graph; nothing runs yet. Memory that it takes belongs to the graph."""

    def is_recording(self) -> bool:
        """Whether the current stream records: nothing that is started there runs yet."""


class CudaDevice:
    """The current CUDA device.

    Raises:
        UnavailableError: CuPy, the driver or a device is missing; says what to install.
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
        """Arrays are made, and kernels launched, on this device."""
        return self._device  # type: ignore[no-any-return]

    def is_selected(self) -> bool:
        """Whether they are."""
        return bool(self._cupy.cuda.runtime.getDevice() == self.number)

    def wrapped(self, value: Any) -> Any:
        """A foreign array on a device, as a CuPy array that shares its memory."""
        if isinstance(value, self.xp.ndarray):
            return value
        # DLPack orders the streams of the two libraries; the other interface has the host wait, or nobody.
        if hasattr(value, "__dlpack__"):
            try:
                return self.xp.from_dlpack(value)
            except Exception:  # a foreign object may raise anything
                if getattr(value, "__cuda_array_interface__", None) is None:
                    raise
        return self.xp.asarray(value)

    def constant(self, array: Array) -> Any:
        """A copy of a NumPy array, which is there for every stream when this returns."""

        def placed() -> Any:
            # CuPy's pool would hand it on, once it is let go, while kernels on other streams read it; CUDA waits for
            # them.
            with self._cupy.cuda.using_allocator(None):
                return self.xp.asarray(array)

        found = with_room(self._cupy, placed)
        self.settle()
        return found

    def place(self, array: Any) -> str:
        """Which device an array is on."""
        return f"GPU {array.device.id}"

    def is_here(self, array: Any) -> bool:
        """Whether an array is on this device."""
        return bool(array.device.id == self._device.id)

    def address(self, array: Any, dtype: np.dtype[Any]) -> int:
        """Where an array of the library begins, if it is on this device, of that dtype and contiguous; else 0."""
        memory = array.data
        found = array.dtype == dtype and array.flags.c_contiguous and memory.device_id == self.number
        return int(memory.ptr) if found else 0

    def load(self, source: KernelSource) -> LoadedKernel:
        """Compile a kernel, or take it from the cache, and load it."""
        return self._loaded(source, compile_cubin(source, self.architecture))

    def load_all(self, sources: Sequence[KernelSource]) -> list[LoadedKernel]:
        """The same for several kernels, compiled side by side."""
        if len(sources) < 2:
            return [self.load(source) for source in sources]
        with ThreadPoolExecutor(len(sources)) as pool:  # NVRTC holds no lock, nor the interpreter's
            codes = list(pool.map(lambda source: compile_cubin(source, self.architecture), sources))
        return [self._loaded(source, code) for source, code in zip(sources, codes, strict=True)]

    def _loaded(self, source: KernelSource, code: bytes) -> LoadedKernel:
        return with_room(self._cupy, lambda: _CudaKernel(self._cupy, source, code))

    def pinned(self, size: int) -> Array:
        """Host memory (size,), bytes, that transfers need not copy first."""
        try:
            memory = self._cupy.cuda.alloc_pinned_memory(max(1, size))
        except RuntimeError as error:
            _require_memory(error)
            raise
        return np.frombuffer(memory, np.uint8, size)

    def stream(self) -> AbstractContextManager[Any]:
        """A new stream, which waits for no other; current inside `with`."""
        return self._cupy.cuda.Stream(non_blocking=True)  # type: ignore[no-any-return]

    def foreign_stream(self, stream: Any) -> AbstractContextManager[Any]:
        """A stream of another library, an object that has `__cuda_stream__`; current inside `with`."""
        return self._cupy.cuda.Stream.from_external(stream)  # type: ignore[no-any-return]

    def driver(self, name: str) -> int:
        """The address of a function of the driver, such as cuLaunchKernel, which takes a kernel by its handle."""
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0

    def upload(self, host: Array, array: Any) -> None:
        """Copy pinned bytes to the device, in the order of the current stream."""
        array.data.copy_from_host_async(host.ctypes.data, host.nbytes)

    def download(self, array: Any, host: Array) -> None:
        """Copy bytes to pinned memory, in the order of the current stream."""
        array.data.copy_to_host_async(host.ctypes.data, host.nbytes)

    def wait(self, stream: Any) -> None:
        """Wait until all work of a stream is done."""
        stream.synchronize()

    def settle(self) -> None:
        """Wait until all work of the current stream is done."""
        self._cupy.cuda.get_current_stream().synchronize()

    def free_bytes(self) -> int:
        """Memory that can be had: what the driver has left, and what CuPy keeps for later."""
        free, _ = self._device.mem_info
        return int(free) + int(self._cupy.get_default_memory_pool().free_bytes())

    def sparse(self, entries: Any, columns: Any, starts: Any, shape: tuple[int, int]) -> Any:
        """A `cupyx.scipy.sparse.csr_matrix`.

        Raises:
            UnavailableError: cuSPARSE, which CuPy wants for one, is not there.
        """
        try:
            from cupyx.scipy.sparse import csr_matrix

            return csr_matrix((entries, columns, starts), shape=shape)
        except (ImportError, RuntimeError) as error:
            raise UnavailableError(
                f"sparse: CuPy makes no sparse matrix here ({error}); it wants cuSPARSE (wheel nvidia-cusparse)"
            ) from error

    def record(self, work: Callable[[], None]) -> Graph:
        """What `work` launches, as a graph; nothing runs yet. Memory that it takes belongs to the graph."""
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
        """Whether the current stream records: nothing that is started there runs yet."""
        return bool(self._cupy.cuda.get_current_stream().is_capturing())


def with_room(cupy: Any, work: Callable[[], T]) -> T:
    """What `work` returns. Where there is no memory, CuPy gives back what its pool keeps for later, which nobody else
    can have before, and `work` is tried again."""
    try:
        return work()
    except (MemoryError, RuntimeError, UnavailableError) as error:
        if not _says_no_memory(error):
            raise
    # From here on the error is gone, and what it held on to.
    cupy.get_default_memory_pool().free_all_blocks()
    return work()


class _CudaGraph:
    """A recorded graph and the pool of the memory that its kernels take.

    A pool of CuPy's keeps its memory from the driver when it goes itself (measured with CuPy 14.2: each recording of a
    gradient cost its matrices until the process ended), so it is emptied before.
    """

    def __init__(self, device: CudaDevice, graph: Any, memory: Any) -> None:
        self._device, self._graph, self._memory = device, graph, memory

    def __del__(self) -> None:
        if not sys.is_finalizing():  # then CUDA may be gone, and takes everything back by itself
            self._graph = None
            with self._device.selected():  # CuPy asks for the pool of the current device
                self._memory.free_all_blocks()

    def launch(self) -> None:
        with self._device.selected():
            with_room(self._device.xp, self._graph.launch)  # whose kernels may need memory of their own


def _abandon(stream: Any) -> None:
    """End a capture whose work failed; that error is worth more than what CUDA says to a broken capture."""
    try:
        stream.end_capture()
    except RuntimeError:
        return


_OUT_OF_MEMORY = 2
"""CUDA's number for it, the driver's and the runtime's."""


def _says_no_memory(error: BaseException) -> bool:
    """Whether an error, or what it was raised from, is that there is no memory."""
    if isinstance(error, MemoryError) or getattr(error, "status", None) == _OUT_OF_MEMORY:
        return True
    return error.__cause__ is not None and _says_no_memory(error.__cause__)


def _require_memory(error: RuntimeError) -> None:
    """Raise MemoryError where an error of CUDA says that."""
    if _says_no_memory(error):
        raise MemoryError(str(error)) from error


class _CudaKernel:
    def __init__(self, cupy: Any, source: KernelSource, code: bytes) -> None:
        self.source, self._cupy = source, cupy
        try:
            found = self._loaded(cupy, code)
        except RuntimeError as error:
            raise UnavailableError(f"engine 'gpu': CUDA does not load {source.name} ({error})") from error
        if found < 1:
            raise UnavailableError(f"engine 'gpu': no block of {source.name} fits on a multiprocessor of this GPU")
        self.blocks_per_processor = found

    def _loaded(self, cupy: Any, code: bytes) -> int:
        """Load the code; how many blocks a multiprocessor holds."""
        source, driver, module = self.source, cupy.cuda.driver, cupy.cuda.Module()
        module.load(code)
        self._function = module.get_function(source.name)
        self.handle = int(self._function.ptr)
        if source.shared_bytes:  # static memory comes on top, and only this allows for more than usual of the two
            most = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.funcSetAttribute(self.handle, most, source.shared_bytes)
        resident = driver.occupancyMaxActiveBlocksPerMultiprocessor
        return int(resident(self.handle, source.block_threads, source.shared_bytes))

    def launch(self, blocks: int, arrays: Sequence[Any], rows: int, numbers: Sequence[int] = ()) -> None:
        given = [np.int64(0) if array is None else array for array in arrays]
        block, shared = (self.source.block_threads, 1, 1), self.source.shared_bytes
        given += map(np.int64, (rows, *numbers))
        call = partial(self._function, (blocks, 1, 1), block, tuple(given), shared_mem=shared)
        try:
            with_room(self._cupy, call)  # threads may have memory of their own
        except RuntimeError as error:
            _require_memory(error)
            raise


def _cupy() -> Any:
    """CuPy, where it can reach a device.

    Raises:
        UnavailableError: it is not there, or cannot.
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
    """Inside `with`, the device that engines are made for is the CUDA device of that number.

    Raises:
        UnavailableError: there is none.
    """
    return _cupy().cuda.Device(number)  # type: ignore[no-any-return]


def default_device() -> Device:
    """The device that engines are made for.

    Raises:
        UnavailableError: there is none.
    """
    return CudaDevice()
