"""Results of large batches, written past the caches. A kernel around a query's.

A processor that writes a few bytes of a line loads the line first, and later writes it back: twice the traffic that
results take, and past the size of the caches that is what a batch waits for. Whole lines can be written without loading
them. So where the results of a batch are large, the query's kernel writes those of some states to a buffer that stays
in the nearest cache, and whole lines of that go straight to memory. What little there is before the first line and
behind the last one is written as usual: neighbouring pieces have a part of it each.

Straight-line code of our own does that on the way: while W states are computed, lines of the W before them are copied,
one from time to time (`robodyn.compile.x86.general.copying`). Time to compute and time to write are not a sum then, but
little more than the longer one. It fetches arguments of states to come as well. For that the buffer has room for W
states before its first ones, those that are left over when it is full; or there are two that hold W states each, where
these are many bytes. The last W states of a range are copied all at once, and so are those of other code.
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
    """A kernel, and the descriptor that leads to it. `large`: address of the one that copies on the way, or 0."""

    def __init__(self, kernel: Kernel, row_bytes: Sequence[int], width: int, large: int) -> None:
        self.kernels: tuple[Kernel, ...] = getattr(kernel.keep, "kernels", ())
        vector_bytes = width * kernel.request.dtype.itemsize
        vectors = max(BUFFER_BYTES // (width * sum(row_bytes)), 1)
        rows = width * vectors
        words = list(kernel.constants)
        if kernel.batch:
            words[-1] = 0  # it has not to know: its results are not the user's
        end, results = _lines(kernel.workspace_bytes), []
        for each in row_bytes:
            end += 2 * LINE  # ends of the rows before the first ones
            if large and vectors > 1:
                end += _lines(width * each)  # those that are left over
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
    """Bytes of the lines that so many bytes take."""
    return -(-size // LINE) * LINE


def _pages(size: int) -> int:
    """Bytes of the pages that so many bytes take."""
    return -(-size // PAGE) * PAGE


def _shifts(row: int, rows: int, vector: int) -> list[int]:
    """By how far the first of some rows begins behind a line, in words of four bytes: how far behind the beginning of a
    page a buffer is to be, in lines, for the fewest stores that lie across two pages."""
    return [int(LINE * each.argmin()) for each in _across(row, rows, vector)]


def _across(row: int, rows: int, vector: int) -> Array:
    """(words, lines): how many stores lie across two pages.

    Args:
        row: bytes of a row.
        rows: how many go to the buffer at once.
        vector: bytes of a store, but for what is left at the end of a row.
    """
    begins = np.arange(0, row, vector)
    places = (row * np.arange(rows)[:, None] + begins).ravel()
    sizes = np.tile(np.minimum(vector, row - begins), rows)
    first = (PAGE + 1 - sizes - places) % PAGE  # of the buffer's places from which on a store lies across
    change = np.zeros(2 * PAGE, np.int64)
    np.add.at(change, first, 1)
    np.add.at(change, first + sizes - 1, -1)
    across: Array = np.cumsum(change).reshape(2, PAGE).sum(axis=0).reshape(PAGE // LINE, LINE)
    return across[:, :: LINE // WORDS].T


def begin_streaming_stores(maker: KernelCompiler, request: Request) -> None:
    """Begin to compile what a request's kernel for batches needs (`KernelCompiler.begin`)."""
    maker.begin(module_text(request.target), _LABEL, request.target, hurried=True)


def with_streaming_stores(maker: KernelCompiler, request: Request, kernel: Kernel) -> Kernel:
    """A kernel that does the same and writes large results past the caches; itself where it cannot, or does already."""
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
