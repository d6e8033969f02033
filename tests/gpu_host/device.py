"""A fake device: its arrays are in host memory, and its kernels run under the shim."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from robodyn.engines.gpu.source import SHARED_BYTES, KernelSource
from robodyn.internals.errors import UnavailableError

from . import ORDERS, _library, set_numbers
from .arrays import CURRENT, DeviceArray, _device, _plain, library

_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    *(ctypes.c_uint,) * 7,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_void_p),
)
"""cuLaunchKernel: kernel, sizes of the grid and of a block, shared bytes, stream, addresses of arguments, nothing."""

_CURRENT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))
"""cuCtxGetDevice."""
_KERNELS: list[HostKernel] = []
"""All that are loaded, on whatever device: handles are their places here, counted from 1."""


class HostDevice:
    """Runs kernels on the host, in an order of threads.

    `launches`: names of kernels and rows, in the order of their launches; `streams`: handles of foreign streams, in the
    order of their use; `transfers`: bytes each way; `waits`: how often somebody waited; `refused`: kernels with n
    threads for each state do not compile; `result`: what the driver's function returns where all is well; `current`:
    the number of the device whose context is current.
    """

    current = 0
    name, number, architecture, processors, shared_bytes = "host", 0, "sm_90", 2, SHARED_BYTES

    def __init__(self, order: str = "forward", memory: int = 1 << 34) -> None:
        self.order, self.memory, self.total_bytes = order, memory, memory
        self.xp = library(self._require_running)
        self.launches: list[tuple[str, int]] = []
        self.kernels: list[HostKernel] = []
        self.streams: list[int] = []
        self.result = 0
        self._driver = {"cuLaunchKernel": _LAUNCH(self._launched), "cuCtxGetDevice": _CURRENT(self._current)}
        self.uploads: list[int] = []
        self.downloads: list[int] = []
        self.waits = 0
        self.refused: tuple[int, ...] = ()
        self.lock = threading.Lock()
        self._recording: list[Callable[[], None]] | None = None

    @contextmanager
    def selected(self) -> Iterator[None]:
        yield

    def is_selected(self) -> bool:
        return self.number == HostDevice.current

    def wrapped(self, value: Any) -> Any:
        return value if isinstance(value, DeviceArray) else _device(np.asarray(value))

    def constant(self, array: Any) -> Any:
        return self.xp.asarray(array)

    def place(self, array: Any) -> str:
        return "another host"

    def is_here(self, array: Any) -> bool:
        return not getattr(array, "elsewhere", False)

    def address(self, array: Any, dtype: Any) -> int:
        held = _plain(array)
        found = held.dtype == dtype and held.flags.carray and held.size and self.is_here(array)
        return held.ctypes.data if found else 0

    def load(self, source: KernelSource) -> HostKernel:
        if source.threads_per_state in self.refused:
            raise UnavailableError(f"engine 'gpu': cannot compile {source.name}")
        kernel = HostKernel(self, source, len(_KERNELS) + 1)
        _KERNELS.append(kernel)
        self.kernels.append(kernel)
        return kernel

    def load_all(self, sources: Sequence[KernelSource]) -> list[HostKernel]:
        return [self.load(source) for source in sources]

    def pinned(self, size: int) -> Any:
        return np.full(size, 255, np.uint8)

    def stream(self) -> Any:
        return _Stream()

    @contextmanager
    def foreign_stream(self, stream: Any) -> Iterator[None]:
        self.streams.append(stream.__cuda_stream__()[1])
        yield

    def driver(self, name: str) -> int:
        return ctypes.cast(self._driver[name], ctypes.c_void_p).value or 0

    @staticmethod
    def _current(place: Any) -> int:
        place[0] = HostDevice.current
        return 0 if HostDevice.current >= 0 else 201  # CUDA_ERROR_INVALID_CONTEXT

    @staticmethod
    def _launched(handle: int, *given: Any) -> int:
        """As the driver's function does: arguments by their addresses, wrong ones as a number that is not zero."""
        *sizes, stream, parameters, extra = given
        kernel = _KERNELS[handle - 1]
        source, device = kernel.source, kernel.device
        if sizes[1:3] != [1, 1] or sizes[3:] != [source.block_threads, 1, 1, source.shared_bytes] or extra:
            return 1  # CUDA_ERROR_INVALID_VALUE
        if device.number != HostDevice.current:
            return 400  # CUDA_ERROR_INVALID_HANDLE
        count = len(source.inputs) + len(source.outputs) + len(source.constants) + 1
        pointers = [ctypes.c_void_p.from_address(parameters[k]).value for k in range(count)]
        rows = ctypes.c_longlong.from_address(parameters[count]).value
        device.streams.append(stream or 0)
        if device.result == 0:
            kernel.run(sizes[0], pointers, rows)
        return device.result

    def upload(self, host: Any, array: Any) -> None:
        assert array.stream is CURRENT.stream
        self.uploads.append(host.nbytes)
        _plain(array)[...] = host

    def download(self, array: Any, host: Any) -> None:
        assert array.stream is CURRENT.stream
        self.downloads.append(host.nbytes)
        host[...] = _plain(array)

    def wait(self, stream: Any) -> None:
        self._require_running()
        self.waits += 1

    def settle(self) -> None:
        self._require_running()

    def _require_running(self) -> None:
        """CUDA refuses to wait, and to copy from the host what is there for the moment, while it records."""
        if self._recording is not None:
            raise RuntimeError("this cannot be recorded")

    def free_bytes(self) -> int:
        return self.memory

    def sparse(self, entries: Any, columns: Any, starts: Any, shape: tuple[int, int]) -> Any:
        return SimpleNamespace(data=entries, indices=columns, indptr=starts, shape=shape)

    def record(self, work: Callable[[], None]) -> HostGraph:
        self._recording = []
        try:
            work()
            return HostGraph(self._recording)
        finally:
            self._recording = None

    def is_recording(self) -> bool:
        return self._recording is not None

    def start(self, launch: Callable[[], None]) -> None:
        if self._recording is None:
            launch()
        else:
            self._recording.append(launch)


class HostGraph:
    def __init__(self, launches: Sequence[Callable[[], None]]) -> None:
        self.launches = launches

    def launch(self) -> None:
        for each in self.launches:
            each()


class HostKernel:
    blocks_per_processor = 1

    def __init__(self, device: HostDevice, source: KernelSource, handle: int) -> None:
        self.device, self.source, self.handle = device, source, handle
        self._launch = _library(source).shim_launch
        self._launch.restype = ctypes.c_char_p

    def launch(self, blocks: int, arrays: Sequence[Any], rows: int, numbers: Sequence[int] = ()) -> None:
        """Checks what a GPU would not: that every array is contiguous, large enough, and of the right dtype."""
        source = self.source
        assert len(arrays) == len(source.inputs) + len(source.outputs) + len(source.constants) + 1
        scans = "batch" in source.numbers  # those know strides, and rows of several kinds
        for array in arrays[: len(source.inputs) + len(source.outputs)]:
            assert isinstance(array, DeviceArray) and (scans or array.flags.c_contiguous), array
            assert array.dtype == source.dtype and (scans or rows in array.shape[:2])
        for array, like in zip(arrays[len(source.inputs) + len(source.outputs) : -1], source.constants, strict=True):
            assert array is None or (array.dtype == like.dtype and array.flags.c_contiguous), array
        size = 0 if arrays[-1] is None else arrays[-1].size
        assert size >= source.workspace(blocks)
        self.device.start(
            lambda: self.run(blocks, [None if each is None else each.ctypes.data for each in arrays], rows, numbers)
        )

    def run(self, blocks: int, addresses: Sequence[int | None], rows: int, numbers: Sequence[int] = ()) -> None:
        """Run it on arrays at these addresses."""
        source = self.source
        self.device.launches.append((source.name, rows))
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        sizes = (ctypes.c_longlong(rows), ctypes.c_uint(blocks), ctypes.c_uint(source.block_threads))
        shared, order = ctypes.c_size_t(source.shared_bytes), ORDERS.index(self.device.order)
        with self.device.lock:  # the shim's fibres and numbers are one set
            set_numbers(source, numbers)
            wrong = self._launch(pointers, *sizes, shared, order, ctypes.c_uint(0))
        if wrong is not None:
            raise RuntimeError(f"{source.name}: {wrong.decode()}")


class _Stream:
    """Memory that is taken while it is current is its own."""

    def __init__(self) -> None:
        self._before: list[Any] = []

    def __enter__(self) -> None:
        self._before.append(CURRENT.stream)
        CURRENT.stream = self

    def __exit__(self, *what: object) -> None:
        CURRENT.stream = self._before.pop()
