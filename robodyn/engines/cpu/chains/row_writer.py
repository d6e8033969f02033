"""The wrapper around programs that write their results to rows line by line (`robodyn.compile.x86.row_writer`).

The program computes groups of L vectors of W rows. While it computes one vector, it writes the cache lines of the
previous one. Rows after the last whole group are computed as vectors of W consecutive rows. Fewer than W rows are left
to the kernel that brings vectors to rows afterwards, and so are results with gaps between rows.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace

from robodyn.compile.llvm.streaming import streamed_bytes, streams
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.x86.image import LineCode
from robodyn.compile.x86.row_writer import ARRAYS_WORD, ENTRY_BYTES, LINE, SAVED_BYTES, crowded
from robodyn.engines.cpu.caches import last_cache_bytes
from robodyn.engines.cpu.chains.row_writer_code import Gap, LineDescriptor, Result, lines_module
from robodyn.engines.cpu.kernels import Kernel, KernelCompiler
from robodyn.engines.cpu.request import Request, input_names
from robodyn.engines.cpu.wrapper import MAX_ARRAYS, Wrapper
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import CACHE_SHARE, CACHED_BYTES, LIGHT_OPERATIONS, NARROW_BYTES, WIDE_BYTES


@dataclass(frozen=True)
class _Lined:
    """The kernel for the remaining rows, and the descriptor."""

    kernels: tuple[Kernel, ...]
    descriptor: LineDescriptor

    @property
    def operations(self) -> int:
        """Floating-point operations for one state."""
        return self.kernels[0].operations


def _label(request: Request) -> str:
    return f"robodyn lines {request.dtype}"


def begin_lines(maker: KernelCompiler, kind: VectorType, request: Request) -> None:
    """Start to compile the wrapper of programs that write lines (`KernelCompiler.begin`)."""
    maker.begin(lines_module(kind), _label(request), request.target, hurried=True)


def takes_dense_rows(request: Request, kind: VectorType, operations: float) -> bool:
    """True if the program that writes lines also handles large batches whose results have no gaps between rows. Then
    the kernel that flushes vectors afterwards needs no fast code for such results."""
    return len(input_names(request)) + len(request.scalars) <= MAX_ARRAYS and not _flush_wins_when_large(
        request, kind, operations
    )


def _computes_little(request: Request, operations: float) -> bool:
    return operations < LIGHT_OPERATIONS * sum(request.scalars)


def _flush_wins_when_large(request: Request, kind: VectorType, operations: float) -> bool:
    """True if flushing vectors afterwards is faster for large batches."""
    if streams(kind, request.target):
        return _computes_little(request, operations)
    return any(crowded(scalars, kind.width) for scalars in request.scalars)


def _small_bytes(request: Request, kind: VectorType, operations: float, large: int) -> int:
    """Bytes of a batch's results up to which flushing vectors afterwards is faster. `large`: bytes from which streaming
    stores are used."""
    vector = sum(request.scalars) * kind.bytes
    between = NARROW_BYTES[request.target.vector_bytes] < vector <= WIDE_BYTES
    return large if between or _computes_little(request, operations) else min(CACHED_BYTES, large)


def lined_kernel(
    maker: KernelCompiler,
    kind: VectorType,
    lines: LineCode,
    operations: float,
    inner: Kernel,
    plain: Kernel,
    behind: Kernel,
) -> Kernel:
    """The wrapper of a program that writes lines; `plain` if there are too many arrays.

    Args:
        maker: the compiler.
        kind: vectors of states.
        lines: the program's code that writes lines.
        operations: operations of the program.
        inner: the program's kernel.
        plain: the kernel that flushes vectors afterwards.
        behind: its version for large batches.
    """
    request, layout = inner.request, lines.layout
    arrays = len(inner.inputs) + len(layout.filled)
    if arrays > MAX_ARRAYS:
        return plain
    text, vector = lines_module(kind), layout.vector_bytes
    place_bytes = -(-vector * layout.starts[-1] // LINE) * LINE
    constant, _ = behind.constants
    empty_bytes, tables = ENTRY_BYTES * sum(layout.lines), lines.tables + ENTRY_BYTES * sum(layout.lines)
    results = []
    for k, row in enumerate(layout.filled):
        size = ENTRY_BYTES * layout.lines[k]
        writers = lines.past[k], lines.near[k], lines.following[k]
        results.append(Result(len(row) * request.dtype.itemsize, vector * layout.starts[k], *writers, tables, size))
        tables += layout.line * size
    gaps = [Gap(vector * first, vector * count) for first, count in layout.gaps()]
    large = max(streamed_bytes(request.target), last_cache_bytes() // CACHE_SHARE)
    descriptor = LineDescriptor(
        kernel=behind.address,
        constant=constant,
        inputs=len(inner.inputs),
        row_bytes=sum(request.scalars) * request.dtype.itemsize,
        program=lines.body,
        finish=lines.finish,
        empty=lines.tables,
        empty_bytes=empty_bytes,
        place_bytes=place_bytes,
        large_bytes=large,
        leaves=_flush_wins_when_large(request, kind, operations),
        small_bytes=_small_bytes(request, kind, operations, large),
        results=(Result * len(results))(*results),
        gaps=(Gap * len(gaps))(*gaps),
        gap_count=len(gaps),
    )
    own = 2 * place_bytes + SAVED_BYTES + 8 * (ARRAYS_WORD + 2 * len(results)) + empty_bytes
    return replace(
        plain,
        code=Wrapper(maker, text, _label(request), request.target, arrays, descriptor),
        constants=(ctypes.addressof(descriptor), 0),
        workspace_bytes=-(-max(behind.workspace_bytes, own) // LINE) * LINE,
        module=lambda: text,
        keep=_Lined((behind,), descriptor),
        plain=plain,
    )
