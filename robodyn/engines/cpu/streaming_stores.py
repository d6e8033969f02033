"""Large results, written with streaming stores that bypass the caches. The kernel here wraps a query's kernel.

A processor that writes a part of a cache line first loads the line and later writes it back: twice the memory traffic
of the results. For batches larger than the caches, this traffic limits the speed. Streaming stores of whole lines need
no load. So for large batches the query's kernel writes results of some states to a buffer that stays in the first-level
cache, and whole lines are copied from there to memory. The bytes before the first whole line and after the last one are
written with normal stores, because other threads write the rest of these lines.

Programs of our own backend copy during the computation: while W states are computed, lines of the previous W states are
copied, one now and then (`robodyn.compile.x86.general.copying`). Then computation and memory traffic overlap. These
programs also prefetch the arguments of later states. The buffer has room for W states before its first ones: the rows
that are still to be copied when it is full. If W states take many bytes, there are two buffers of W states instead. The
last W states of a range are copied at once, as are all results of other code.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from robodyn.compile.llvm.streaming import streams
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.loops.table import Argument
from robodyn.compile.x86.memory import LoadedImage
from robodyn.engines.cpu.kernels import Kernel, KernelCompiler, rows_bytes
from robodyn.engines.cpu.request import Request
from robodyn.engines.cpu.streaming_stores_code import (
    LINE,
    MAX_PAIRS,
    PAGE,
    WORDS,
    BufferDescriptor,
    Result,
    module_text,
)
from robodyn.engines.cpu.wrapper import MAX_ARRAYS, Wrapper
from robodyn.internals.arguments import Array
from robodyn.internals.tuning import BUFFER_BYTES, MAX_BUFFER_BYTES

_LABEL = "robodyn past caches"


class _Wrapped:
    """A kernel, and the descriptor of its wrapper. `large`: address of the version that copies during computation, or
    0."""

    def __init__(self, kernel: Kernel, row_bytes: Sequence[int], width: int, large: int) -> None:
        self.kernels: tuple[Kernel, ...] = getattr(kernel.keep, "kernels", ())
        vector_bytes = width * kernel.request.dtype.itemsize
        vectors = max(BUFFER_BYTES // (width * sum(row_bytes)), 1)
        rows = width * vectors
        words = list(kernel.constants)
        if kernel.batch:
            words[-1] = 0  # unknown: the inner kernel writes to the buffer, not to the user's rows
        end, results = _lines(kernel.workspace_bytes), []
        for each in row_bytes:
            end += 2 * LINE  # ends of the rows before the first row
            if large and vectors > 1:
                end += _lines(width * each)  # rows that are still to be copied when the buffer is full
            shifts = (ctypes.c_int64 * WORDS)(*_shifts(each, rows, vector_bytes))
            results.append(Result(each, end, shifts))
            one = _lines(rows * each) + 3 * LINE
            end += 2 * PAGE + (2 * _pages(width * each + 4 * LINE) if large and vectors == 1 else one)
        self.workspace_bytes = end
        entries = [Argument(*pair) for pair in zip(words[0::2], words[1::2], strict=True)]
        self.descriptor = BufferDescriptor(
            kernel=kernel.address,
            large=large,
            inputs=len(kernel.inputs),
            row_bytes=sum(row_bytes),
            moved_bytes=rows_bytes(kernel.request) if large else 0,
            rows=rows,
            width=width,
            vector_bytes=vector_bytes,
            results=(Result * len(results))(*results),
            constants=(Argument * len(entries))(*entries),
            constant_count=len(entries),
        )
        self._kernel = kernel

    @property
    def operations(self) -> int:
        """Floating-point operations for one state."""
        return self._kernel.operations


def _lines(size: int) -> int:
    """`size` bytes, rounded up to whole cache lines."""
    return -(-size // LINE) * LINE


def _pages(size: int) -> int:
    """`size` bytes, rounded up to whole pages."""
    return -(-size // PAGE) * PAGE


def _shifts(row: int, rows: int, vector: int) -> list[int]:
    """Offsets of the buffer from the start of a page, in bytes, for which the fewest stores cross a page boundary. One
    offset for each distance of the first row from the start of its cache line, in words of four bytes."""
    return [int(LINE * each.argmin()) for each in _page_crossings(row, rows, vector)]


def _page_crossings(row: int, rows: int, vector: int) -> Array:
    """(words, lines): number of stores that cross a page boundary.

    Args:
        row: bytes of a row.
        rows: rows that go to the buffer at once.
        vector: bytes of a store, except at the end of a row.
    """
    begins = np.arange(0, row, vector)
    places = (row * np.arange(rows)[:, None] + begins).ravel()
    sizes = np.tile(np.minimum(vector, row - begins), rows)
    first = (PAGE + 1 - sizes - places) % PAGE  # first offset of the buffer for which a store crosses
    change = np.zeros(2 * PAGE, np.int64)
    np.add.at(change, first, 1)
    np.add.at(change, first + sizes - 1, -1)
    across: Array = np.cumsum(change).reshape(2, PAGE).sum(axis=0).reshape(PAGE // LINE, LINE)
    return across[:, :: LINE // WORDS].T


def begin_streaming_stores(maker: KernelCompiler, request: Request) -> None:
    """Start to compile the wrapper of a request's kernel for batches (`KernelCompiler.begin`)."""
    maker.begin(module_text(request.target), _LABEL, request.target, hurried=True)


def with_streaming_stores(maker: KernelCompiler, request: Request, kernel: Kernel) -> Kernel:
    """The kernel in a wrapper that writes large results with streaming stores. The kernel itself if it cannot be
    wrapped, or already uses them."""
    row_bytes = [scalars * request.dtype.itemsize for scalars in request.scalars]
    width, arrays = request.target.width(request.dtype), len(kernel.inputs) + len(row_bytes)
    vector = width * sum(row_bytes)
    streamed = kernel.batch and streams(VectorType.of(request.dtype, request.target), request.target)
    done = streamed or kernel.plain is not None
    if done or not 0 < vector <= MAX_BUFFER_BYTES or arrays > MAX_ARRAYS or len(kernel.constants) > 2 * MAX_PAIRS:
        return kernel
    image = kernel.code if isinstance(kernel.code, LoadedImage) else None
    wrapped = _Wrapped(kernel, row_bytes, width, 0 if image is None else image.large)
    made = replace(
        kernel,
        code=Wrapper(maker, module_text(request.target), _LABEL, request.target, arrays, wrapped.descriptor),
        constants=(ctypes.addressof(wrapped.descriptor), 0),
        workspace_bytes=wrapped.workspace_bytes,
        keep=wrapped,
        batch=True,
        plain=kernel,
    )
    made.__dict__.update((name, kernel.__dict__[name]) for name in ("program",) if name in kernel.__dict__)
    return made
