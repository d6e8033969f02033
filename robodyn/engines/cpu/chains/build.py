"""Kernels that call others: chains, programs whose results go from vectors to rows, and kernels in mixed precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from robodyn.algorithms.tasks import Chain, Products, Solve, Stage
from robodyn.compile.llvm.streaming import FLUSHED, streams
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.tracing.unrolled import input_shapes, output_shape
from robodyn.compile.x86.memory import LoadedImage
from robodyn.engines.cpu.backends import X86, backend_of, writes_lines
from robodyn.engines.cpu.calls import by_vectors, calls_module
from robodyn.engines.cpu.chains.column_lanes import vectors_of_columns
from robodyn.engines.cpu.chains.dead_outputs import unread
from robodyn.engines.cpu.chains.mixed_precision import MixedPrecisionPlan, mixed_precision_module
from robodyn.engines.cpu.chains.panel_code import panel_rows
from robodyn.engines.cpu.chains.plan import ChainPlan, StageCall, sizes_between
from robodyn.engines.cpu.chains.products import ProductsPlan, products_for
from robodyn.engines.cpu.chains.row_writer import begin_lines, lined_kernel, takes_dense_rows
from robodyn.engines.cpu.chains.solve_code import FACTORS, SolveKind, solve_module
from robodyn.engines.cpu.chains.solves import SolvePlan
from robodyn.engines.cpu.chains.store_rows_code import flush_module
from robodyn.engines.cpu.kernels import Kernel, KernelCompiler
from robodyn.engines.cpu.native.answers import JointForce
from robodyn.engines.cpu.request import Request, input_names
from robodyn.engines.cpu.route import SingleProgram, parts_of
from robodyn.engines.cpu.sparse_results import packing
from robodyn.engines.cpu.streaming_stores import with_streaming_stores
from robodyn.internals import tuning
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import FLUSH_NS

_CHAIN = "robodyn chain"


@dataclass(frozen=True)
class FlushPlan:
    """The data of a flush: arrays of vectors become rows. `sizes`: scalars of a row of each array, then addresses of
    `places`: for each array the index of each scalar among the vectors, if it is not its own."""

    sizes: Array
    places: tuple[Array, ...] = ()
    operations = 0


@dataclass(frozen=True)
class Stages:
    """The kernels of a chain, and the plan of their calls."""

    kernels: tuple[Kernel, ...]
    plan: ChainPlan

    @property
    def operations(self) -> int:
        """Floating-point operations for one state; solves are estimated."""
        return sum(kernel.operations for kernel in self.kernels)


@dataclass(frozen=True)
class Rounded:
    """The kernel in double precision, and the plan of its calls."""

    kernels: tuple[Kernel]
    plan: MixedPrecisionPlan

    @property
    def operations(self) -> int:
        """Floating-point operations for one state."""
        return self.kernels[0].operations


_Call: TypeAlias = tuple[Kernel, tuple[str, ...]]
"""A kernel and the names of the arrays that it is called with."""


class Chained:
    """Collects kernels in the order of their calls. Between the calls, arrays hold vectors of states.

    `sizes`: scalars of one state of each array between the calls, by name.
    """

    def __init__(self, maker: KernelCompiler, request: Request, sizes: dict[str, int]) -> None:
        self.maker, self.request, self.sizes = maker, request, sizes
        wide = VectorType.of(request.dtype, request.target)
        self.too_wide = sum(self.sizes.values()) * wide.bytes > tuning.MAX_WIDE_WORKSPACE
        self.kind = VectorType.of(request.dtype, request.target, 1) if self.too_wide else wide
        self.kernels: list[Kernel] = []
        self.arrays: list[tuple[str, ...]] = []
        self.vectors: set[str] = set()
        """Names of arrays that the stages so far stored as vectors."""
        self.places: dict[str, str] = {}
        """Arrays that share memory: a solution overwrites its right-hand side, an inverse its matrix."""
        self.programs: list[Callable[[], None]] = []
        """Functions that generate the machine code of programs."""

    def chain(self, chain: Chain) -> Kernel:
        """The kernel that calls the kernels of a chain's stages. LLVM compiles loops in other threads while programs
        are traced."""
        self.maker.begin(_chain_text(self.request, self.kind), _CHAIN, self.request.target, hurried=True)
        last = chain.stages[-1]
        flushes = last in chain.solves and tuple(last.outputs) == chain.results
        parts = parts_of(self.request)
        begin: dict[type, Callable[[Any], Callable[[], _Call]]] = {
            Stage: lambda stage: self._algorithm(stage, next(parts)),
            Solve: lambda solve: self._solve(solve, flushes and solve is last),
            Products: self._multiply,
        }
        calls = [begin[type(stage)](stage) for stage in chain.stages]
        if not flushes:
            calls.append(self.flush(chain.results))
        # Generate machine code of programs first: loading waits for all that LLVM compiles in other threads.
        for code in self.programs:
            code()
        for call in calls:
            self.take(*call())
        users = [*input_names(self.request), *(FLUSHED + name for name in chain.results)]
        vectors = {name: self.sizes[name] for name in sorted(self.vectors) if name not in self.places}
        cleared = [name for name, each in unread(self.request.model, chain).items() if each.zero]
        return self.calling("chained", users, vectors, cleared)

    def calling(self, mode: str, users: list[str], vectors: dict[str, int], cleared: Sequence[str] = ()) -> Kernel:
        """The kernel that calls the kernels collected so far; `cleared`: see `ChainPlan`."""
        calls = [
            StageCall(kernel.address, names, kernel.constants, kernel.workspace_bytes, kernel.batch)
            for kernel, names in zip(self.kernels, self.arrays, strict=True)
        ]
        plan = ChainPlan(users, vectors, self.places, calls, self.kind, cleared)
        text, kernels = _chain_text(self.request, self.kind), tuple(self.kernels)
        return Kernel(
            request=self.request,
            mode=mode,
            code=self.maker.sharing(text, _CHAIN, self.request.target, hurried=True)(),
            inputs=input_names(self.request),
            constants=(plan.descriptor.ctypes.data, 0),
            workspace_bytes=plan.workspace_bytes,
            row_ns=sum(kernel.row_ns for kernel in kernels),
            module=lambda: text,
            keep=Stages(kernels, plan),
            batch=True,
        )

    def take(self, kernel: Kernel, arrays: tuple[str, ...]) -> None:
        """Add a kernel to the calls."""
        self.kernels.append(kernel)
        self.arrays.append(arrays)

    def _algorithm(self, stage: Stage, part: Request) -> Callable[[], _Call]:
        """Start to compile loops, or trace a program. A program becomes machine code when `programs` are called."""
        maker = self.maker
        self.vectors.update(stage.outputs)
        route = "loops" if self.too_wide else maker.route(part)
        made = self._program(route) if isinstance(route, SingleProgram) else maker.rolling(part, self.kind.width)

        def call() -> _Call:
            kernel = made()
            return kernel, (*(stage.reads.get(name, name) for name in kernel.inputs), *stage.outputs)

        return call

    def _program(self, route: SingleProgram) -> Callable[[], Kernel]:
        """A function that loads a program's machine code, which `programs` generate before."""
        coded = [route]

        def code() -> None:
            coded[0] = self.maker.coded(route)

        self.programs.append(code)
        return lambda: self.maker.whole(coded[0])

    def _solve(self, solve: Solve, flushes: bool) -> Callable[[], _Call]:
        first = FACTORS + solve.matrix not in self.vectors
        rows = tuple(name for name in solve.inputs if name not in self.vectors)
        request = self.request
        asked = SolveKind(solve, first, rows, flushes, vectors_of_columns(self.kind, request.target))
        plan = SolvePlan(request.model, asked, self.kind, panel_rows(request.target))
        text = solve_module(asked, self.kind, request.target)
        self.vectors.update((FACTORS + solve.matrix, *solve.outputs))
        for name, solution in solve.outputs.items():
            if len(solution.arrays) == 1 and solution.arrays[0] in self.vectors:
                self.places[name] = solution.arrays[0]
            elif not solution.arrays:
                self.places[name] = solve.matrix
        label = f"robodyn solve {request.dtype} {request.target.level}"
        pointers = tuple(word for array in plan.arrays for word in (array.ctypes.data, 0))
        flush_ns = sum(self.sizes[name] for name in solve.outputs) * FLUSH_NS if flushes else 0.0
        arrays, row_ns = asked.arrays, plan.row_ns + flush_ns
        return self._loops(text, label, pointers, arrays, row_ns, plan, plan.workspace_bytes, flushes)

    def _multiply(self, stage: Products) -> Callable[[], _Call]:
        request = self.request
        plan, text = products_for(request.model, stage, self.kind, request.target)
        label = f"robodyn products {request.dtype} {request.target.level}"
        self.vectors.update(stage.outputs)
        arrays = (*stage.inputs, *stage.outputs)
        return self._loops(text, label, plan.words, arrays, plan.row_ns, plan, plan.workspace_bytes)

    def flush(self, names: Sequence[str], places: Sequence[Array] = (), *, dense: bool = True) -> Callable[[], _Call]:
        """Start to compile a flush of vectors to the user's rows. `places`: see `FlushPlan`; `dense`: see
        `store_rows_code.large_bytes`."""
        sizes = [each.size for each in places] or [self.sizes[name] for name in names]
        words = [*sizes, *(each.ctypes.data for each in places)]
        request, plan = self.request, FlushPlan(np.array(words, np.int64), tuple(places))
        text = flush_module(len(names), self.kind, request.target, packed=bool(places), dense=dense)
        label = _flush_label(request)
        pointers = (plan.sizes.ctypes.data, 0)
        arrays = (*names, *(FLUSHED + name for name in names))
        return self._loops(text, label, pointers, arrays, sum(sizes) * FLUSH_NS, plan, 0, True)

    def _loops(
        self,
        text: str,
        label: str,
        words: tuple[int, ...],
        arrays: tuple[str, ...],
        row_ns: float,
        plan: SolvePlan | ProductsPlan | FlushPlan,
        scratch: int,
        batch: bool = False,
    ) -> Callable[[], _Call]:
        """Start to compile a module that many robots share; the function returned waits for it."""
        code = self.maker.sharing(text, label, self.request.target, hurried=isinstance(plan, FlushPlan))

        def call() -> _Call:
            kernel = Kernel(
                request=self.request,
                mode="rolled",
                code=code(),
                inputs=(),
                constants=words,
                workspace_bytes=scratch,
                row_ns=row_ns,
                module=lambda: text,
                keep=plan,
                batch=batch,
            )
            return kernel, arrays

        return call


def _chain_text(request: Request, kind: VectorType) -> str:
    inputs = len(input_names(request))
    arrays, fence = inputs + len(request.algorithm.outputs), "x86.sse.sfence" if streams(kind, request.target) else ""
    return calls_module(by_vectors, inputs=inputs, arrays=arrays, width=kind.width, fence=fence)


def _flush_label(request: Request) -> str:
    return f"robodyn flush {request.dtype} {request.target.level}"


def chained_kernel(maker: KernelCompiler, request: Request) -> Kernel:
    """The kernel of a chain: it calls one kernel per stage, and a kernel that brings results to rows."""
    chain = request.algorithm
    assert isinstance(chain, Chain)
    return Chained(maker, request, sizes_between(request.model, chain)).chain(chain)


def flushed_kernel(maker: KernelCompiler, request: Request, inner: Kernel) -> Kernel:
    """The kernel of a program whose results are vectors: the program's kernel `inner`, then one that brings results to
    rows. Or the program that writes rows itself, line by line."""
    outputs = request.algorithm.outputs
    ours = inner.code if isinstance(inner.code, LoadedImage) else None
    lines = None if ours is None else ours.lines
    if ours is None or lines is None:
        places = [packing(request.model, each) for each in outputs.values()]
    else:
        places = [lines.layout.places(k) for k in range(len(outputs))]
    sizes = {name: int(each.max()) + 1 for name, each in zip(outputs, places, strict=True)}
    work = Chained(maker, request, sizes)
    work.take(inner, (*inner.inputs, *outputs))
    dense = lines is None or ours is None or not takes_dense_rows(request, work.kind, ours.operations)
    work.take(*work.flush(tuple(outputs), places, dense=dense)())
    users = [*inner.inputs, *(FLUSHED + name for name in outputs)]
    whole = work.calling("unrolled", users, sizes)
    if ours is None or lines is None:
        return whole
    return lined_kernel(
        maker, work.kind, lines, ours.operations, inner, whole, with_streaming_stores(maker, request, whole)
    )


def begin_flushing(maker: KernelCompiler, request: Request, operations: float) -> None:
    """Start to compile the code around a program that leaves results as vectors (`KernelCompiler.begin`)."""
    kind = VectorType.of(request.dtype, request.target)
    lines = backend_of(request) is X86 and writes_lines(request)
    dense = not lines or not takes_dense_rows(request, kind, operations)
    text = flush_module(len(request.algorithm.outputs), kind, request.target, packed=True, dense=dense)
    maker.begin(text, _flush_label(request), request.target, hurried=True)
    if lines:
        begin_lines(maker, kind, request)
    maker.begin(_chain_text(request, kind), _CHAIN, request.target, hurried=True)


def mixed_precision_kernel(maker: KernelCompiler, request: Request, inner: Kernel, force: JointForce | None) -> Kernel:
    """A kernel with single-precision arrays that lets `inner` compute in double precision. `force`: damping and
    friction, subtracted from an input in double precision."""
    task, model = request.algorithm, request.model
    shapes = input_shapes(model, task, request.base)
    sizes = [math.prod(shapes[name]) for name in inner.inputs]
    sizes += [math.prod(output_shape(model, output)) for output in task.outputs.values()]
    call = StageCall(inner.address, (), inner.constants, inner.workspace_bytes, inner.batch)
    step = 1 if inner.alone else inner.request.target.width(inner.request.dtype)
    plan = MixedPrecisionPlan(sizes, len(inner.inputs), call, step, force)
    text = mixed_precision_module(len(sizes))
    return Kernel(
        request=request,
        mode="rounded",
        code=maker.shared(text, "robodyn in double", request.target),
        inputs=inner.inputs,
        constants=(plan.descriptor.ctypes.data, 0),
        workspace_bytes=plan.workspace_bytes,
        row_ns=inner.row_ns,
        module=lambda: text,
        keep=Rounded((inner,), plan),
        alone=inner.alone,
    )
