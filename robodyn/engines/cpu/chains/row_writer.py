"""Results that programs leave as vectors, written to rows on the way (`robodyn.compile.x86.row_writer`): the kernel
around.

It computes L vectors of W rows after each other, each of which writes the lines of the one before. Rows that are left
over behind the last whole group are computed W by W, as they follow one another. Fewer than W rows go to the kernel
that brings vectors to rows at once; so do all where results have gaps between rows.
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
from robodyn.internals.tuning import CACHE_SHARE, CACHED_BYTES, LIGHT_OPERATIONS, NARROW_BYTES


@dataclass(frozen=True)
class _Lined:
    """The kernel for rows that are left over, and the descriptor."""

    kernels: tuple[Kernel, ...]
    descriptor: LineDescriptor

    @property
    def operations(self) -> int:
        """Floating-point operations for one state."""
        return self.kernels[0].operations


def _label(request: Request) -> str:
    return f"robodyn lines {request.dtype}"


def begin_lines(maker: KernelCompiler, kind: VectorType, request: Request) -> None:
    """Begin to compile what is around programs that write lines (`KernelCompiler.begin`)."""
    maker.begin(lines_module(kind), _label(request), request.target, hurried=True)


def takes_dense_rows(request: Request, kind: VectorType, operations: float) -> bool:
    """Whether a program that writes lines takes all vectors of states whose results are rows without gaps between them,
    large batches too: what brings others to rows at once need not know how that is done quickly."""
    return len(input_names(request)) + len(request.scalars) <= MAX_ARRAYS and not _leaves(request, kind, operations)


def _light(request: Request, operations: float) -> bool:
    return operations < LIGHT_OPERATIONS * sum(request.scalars)


def _leaves(request: Request, kind: VectorType, operations: float) -> bool:
    """Whether large batches are better brought to rows at once."""
    if streams(kind, request.target):
        return _light(request, operations)
    return any(crowded(scalars, kind.width) for scalars in request.scalars)


def _worth(request: Request, kind: VectorType, operations: float, large: int) -> int:
    """Bytes of results of a batch up to which vectors are better brought to rows at once, if `large` are past the
    caches."""
    narrow = sum(request.scalars) * kind.bytes <= NARROW_BYTES[request.target.vector_bytes]
    return min(CACHED_BYTES, large) if narrow and not _light(request, operations) else large


def lined_kernel(
    maker: KernelCompiler,
    kind: VectorType,
    lines: LineCode,
    operations: float,
    inner: Kernel,
    plain: Kernel,
    behind: Kernel,
) -> Kernel:
    """The kernel around a program; `plain` where it cannot be.

    Args:
        maker: of kernels.
        kind: vectors of states.
        lines: of the program.
        operations: of the program.
        inner: the program's kernel.
        plain: the kernel that does the same at once.
        behind: that which does it for large batches.
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
        leaves=_leaves(request, kind, operations),
        small_bytes=_worth(request, kind, operations, large),
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
