"""Kernels: machine code of one algorithm on one model, from the cache or the compiler."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import field, replace
from typing import Protocol

import numpy as np

from robodyn.compile.cache import ObjectCache
from robodyn.compile.keys import Linked, begin, begun, compiled, compiling, kept, memory_is_limited
from robodyn.compile.llvm.jit import OPT, Code, assembly
from robodyn.compile.llvm.target import Target
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.tracing.program import Program
from robodyn.compile.tracing.unrolled import input_shapes, output_shape
from robodyn.core.sweeps import Algorithm
from robodyn.engines.cpu.backends import Loaded
from robodyn.engines.cpu.constraints.program import ConstraintProgram
from robodyn.engines.cpu.loops.program import RolledProgram
from robodyn.engines.cpu.parts.code import CALL_WORDS
from robodyn.engines.cpu.parts.plan import Plan
from robodyn.engines.cpu.parts.program import PartedProgram
from robodyn.engines.cpu.request import Request, input_names
from robodyn.engines.cpu.route import Route, SingleProgram, find_route
from robodyn.engines.cpu.tiered_compilation import HURRIED, Replaced, Trampoline, later, trampoline_text
from robodyn.internals import tuning
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import HURRY_CHARACTERS, OPERATION_NS, ROW_BYTES_A_NS, STEP_NS

_TRAMPOLINE = "robodyn relay"

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Counted(Protocol):
    """Data that a kernel needs besides its code, with its number of operations."""

    @property
    def operations(self) -> int:
        """Floating-point operations for one state."""


@dataclass
class Kernel:
    """Machine code and its data.

    `inputs`: names of inputs in the order of the argument table; `constants`: words of the table after inputs and
    outputs; `row_ns`: estimated time of a state, ns; `program`: the straight-line program, traced on first access, or
    None for rolled code; `module`: makes the LLVM module's text; `own_listing`: makes the assembly listing of code that
    LLVM did not make; `batch`: True if the last constant must be set to the number of rows of the batch; `alone`: True
    for single states, False for batches, None for both; `plain`: the same kernel without streaming stores, None if this
    kernel has none.
    """

    request: Request
    mode: str
    code: Loaded
    inputs: tuple[str, ...]
    constants: tuple[int, ...]
    workspace_bytes: int
    row_ns: float
    module: Callable[[], str]
    keep: Counted | None = field(default=None, repr=False)
    batch: bool = False
    own_listing: Callable[[], str] | None = None
    alone: bool | None = None
    plain: Kernel | None = field(default=None, repr=False)

    @cached_property
    def address(self) -> int:
        """Address of the kernel function."""
        return self.code.address("kernel")

    @cached_property
    def function(self) -> Callable[[int, int, int, int], None]:
        """`function(table, first, last, workspace)`; releases the GIL."""
        return _KERNEL(self.address)

    @property
    def width(self) -> int:
        """States in a vector of rolled code; 1 for other code."""
        keep = self.keep if self.plain is None else self.plain.keep
        return keep.module.kind.width if isinstance(keep, RolledProgram) else 1

    @property
    def tasks(self) -> int:
        """Number of tasks of a kernel for a tree in parts, whose rows are tasks; 0 for all other kernels."""
        return len(self.keep.tasks.after) if isinstance(self.keep, PartedProgram) else 0

    @cached_property
    def program(self) -> Program | None:
        """The straight-line program of unrolled code, or None."""
        return self.request.trace() if self.mode == "unrolled" else None

    @property
    def modules(self) -> list[str]:
        """LLVM modules of this kernel and of all kernels that it calls."""
        return [self.module(), *(text for kernel in getattr(self.keep, "kernels", ()) for text in kernel.modules)]

    @property
    def listings(self) -> list[str]:
        """Assembly listings of this kernel and of all kernels that it calls."""
        own = assembly(self.module(), self.request.target, OPT) if self.own_listing is None else self.own_listing()
        return [own, *(text for kernel in getattr(self.keep, "kernels", ()) for text in kernel.listings)]

    @property
    def operations(self) -> int:
        """Floating-point operations for one state."""
        if self.keep is not None:
            return self.keep.operations
        assert self.program is not None
        return self.program.operations


class KernelCompiler:
    """Makes kernels that are one piece of code, from the cache if possible.

    Args:
        cache: the cache of machine code, shared between processes.
        mode: "unrolled", "rolled", or "auto", which unrolls small programs.
        hurried: True if large LLVM modules are first compiled without optimization
            (`robodyn.engines.cpu.tiered_compilation`).
    """

    def __init__(self, cache: ObjectCache, mode: str = "auto", *, hurried: bool = False) -> None:
        self.cache, self.mode, self.hurried = cache, mode, hurried

    def route(self, request: Request) -> Route:
        """The kind of code for a request, with a trace if that is necessary to decide."""
        route = find_route(request, self.mode, self._cache(request))
        assert route is not None
        return route

    def _cache(self, request: Request) -> ObjectCache:
        return self.cache if request.cacheable else ObjectCache(None)

    @staticmethod
    def coded(route: SingleProgram) -> SingleProgram:
        """The same route with its machine code, not loaded yet."""
        if route.code is not None:
            return route
        assert route.program is not None
        return replace(route, code=route.backend.made(route.linked, route.request, route.program))

    def whole(self, route: SingleProgram) -> Kernel:
        """The kernel of one straight-line program."""
        route = self.coded(route)
        request, program, code = route.request, route.program, route.code
        assert code is not None
        kernel = Kernel(
            request=request,
            mode="unrolled",
            code=route.backend.loaded(code, request, self.cache),
            inputs=input_names(request),
            constants=(),
            workspace_bytes=0,
            # The cached code knows its number of operations, so a warm start needs no trace.
            row_ns=unrolled_ns(request, route.backend.operations(code)),
            module=lambda: request.unrolled_module(request.trace()),
            own_listing=lambda: route.backend.listing(request),
        )
        if program is not None:
            kernel.__dict__["program"] = program
        return kernel

    def shared(self, text: str, label: str, target: Target) -> Code:
        """Code that all robots share, from the cache or compiled."""
        return Code(compiled(text, label, target, OPT, self.cache), target)

    def shared_soon(self, text: str, label: str, target: Target, replaced: Replaced) -> Code:
        """`shared`; without optimization if the optimized code is not cached, which then replaces it later
        (`replaced.replace`)."""
        if not self.hurried or memory_is_limited():
            return self.shared(text, label, target)
        code = kept(text, target, OPT, self.cache)
        if code is not None:
            return Code(code, target)
        hurried = Code(compiled(text, label, target, HURRIED, self.cache), target)
        later(replaced, lambda: self.shared(text, label, target))
        return hurried

    def begin(self, text: str, label: str, target: Target, *, hurried: bool = False) -> None:
        """Start to compile code that `shared` will return, in another thread. `hurried`: for `shared_soon`, or
        `sharing` with `hurried`, instead."""
        if not hurried or not self.hurried or memory_is_limited():
            begin(text, label, target, OPT, self.cache)
        elif kept(text, target, OPT, self.cache) is None:
            begin(text, label, target, HURRIED, self.cache)

    def sharing(self, text: str, label: str, target: Target, *, hurried: bool = False) -> Callable[[], Loaded]:
        """Start to compile code that all robots share; the function returned waits for it. Large modules, or all if
        `hurried`, are first compiled without optimization."""
        cache = self.cache
        code = kept(text, target, OPT, cache)

        def make() -> bytes:
            return compiled(text, label, target, OPT, cache)

        if code is None and self._compiles_twice(math.inf if hurried else len(text)):
            wait = compiling(text, label, target, HURRIED, cache)
            self._begin_trampoline(target)
            return lambda: self._behind_trampoline(wait(), target, make)
        wait = begun(code, make)
        return lambda: Code(wait(), target)

    def _compiles_twice(self, characters: float) -> bool:
        return self.hurried and characters > HURRY_CHARACTERS and not memory_is_limited()

    def _begin_trampoline(self, target: Target) -> None:
        self.begin(trampoline_text(), _TRAMPOLINE, target)

    def _behind_trampoline(self, hurried: bytes, target: Target, better: Callable[[], bytes]) -> Trampoline:
        trampoline = Trampoline(self.shared(trampoline_text(), _TRAMPOLINE, target), Code(hurried, target))
        later(trampoline, lambda: Code(better(), target))
        return trampoline

    def rolled(self, request: Request, width: int | None) -> Kernel:
        """Rolled code for vectors of `width` states. None: as many states as registers hold, if their workspace is not
        too large, else one."""
        return self.rolling(request, width)()

    def rolling(self, request: Request, width: int | None) -> Callable[[], Kernel]:
        """Start to compile `rolled` code; the function returned waits for it."""
        program = self._rolled_program(request, width)
        if width is None and program.workspace_bytes > tuning.MAX_WIDE_WORKSPACE:
            program = self._rolled_program(request, 1)
        module = program.module
        linked = self._rolled_code(request, module.kind)
        code = self._loops(linked, module.text)
        steps = program.steps * request.lanes
        return lambda: Kernel(
            request=request,
            mode="rolled",
            code=code(),
            inputs=module.inputs,
            constants=tuple(word for array in program.arrays for word in (array.ctypes.data, 0)),
            workspace_bytes=program.workspace_bytes,
            row_ns=steps * STEP_NS / module.kind.width,
            module=module.text,
            keep=program,
        )

    def _loops(self, linked: Linked, text: Callable[[], str]) -> Callable[[], Loaded]:
        """Start to compile a module, whose text is made only if the cache has no code. Large modules are first compiled
        without optimization."""
        target, code = linked.target, linked.code()
        if code is None:
            module, first = text(), replace(linked, opt=HURRIED)
            if self._compiles_twice(len(module)):
                wait = first.code_of(lambda: module)
                self._begin_trampoline(target)
                return lambda: self._behind_trampoline(wait(), target, lambda: linked.compiled(module))
            wait = linked.code_of(lambda: module)
        else:
            wait = begun(code, lambda: linked.compiled(text()))
        return lambda: Code(wait(), target)

    def parted(self, request: Request, width: int | None, plan: Plan) -> Kernel:
        """Rolled code for a tree in parts, on one vector of `width` states (None: as for `rolled`). The kernel's rows
        are tasks."""

        def made(width: int | None) -> PartedProgram:
            model, algorithm = request.model, request.algorithm
            assert isinstance(algorithm, Algorithm)
            of = model, algorithm, request.dtype, request.target, request.base
            return PartedProgram(*of, width, plan.parts, plan.tasks, plan.renumbered)

        program = made(width)
        if width is None and program.workspace_bytes > tuning.MAX_WIDE_WORKSPACE:
            program = made(1)
        module = program.module
        code = self._rolled_code(request, module.kind, "parted").code_of(module.text)()
        return Kernel(
            request=request,
            mode="parted",
            code=Code(code, request.target),
            inputs=module.inputs,
            constants=(*(word for array in program.arrays for word in (array.ctypes.data, 0)), *[0] * CALL_WORDS),
            workspace_bytes=program.workspace_bytes,
            row_ns=plan.alone_ns / module.kind.width,
            module=module.text,
            keep=program,
        )

    def _rolled_code(self, request: Request, kind: VectorType, mode: str = "rolled") -> Linked:
        """The cached code of rolled code for robots with the traits of this one and vectors of this type."""
        of = RolledProgram if request.constraint_query is None else ConstraintProgram
        facts = *of.traits(request.model, request.base), kind.width
        label = f"{request.algorithm.name} {mode} {request.dtype} {request.target.level}"
        return Linked(request.digest(mode, *facts), label, request.target, OPT, self._cache(request))

    @staticmethod
    def _rolled_program(request: Request, width: int | None) -> RolledProgram:
        if request.constraint_query is not None:
            return ConstraintProgram(
                request.model, request.constraint_query, request.dtype, request.target, request.base, width
            )
        assert isinstance(request.algorithm, Algorithm)
        return RolledProgram(
            request.model,
            request.algorithm,
            request.dtype,
            request.target,
            request.base,
            request.link,
            width,
            request.vectors,
        )


def unrolled_ns(request: Request, operations: float) -> float:
    """Estimated time of a state in a program of so many operations, ns."""
    computed = max(1.0, operations) * OPERATION_NS / request.target.width(request.dtype)
    return computed + rows_bytes(request) / ROW_BYTES_A_NS


def rows_bytes(request: Request) -> int:
    """Bytes of one state in all arrays of rows."""
    shapes = dict(input_shapes(request.model, request.algorithm, request.base))
    shapes |= {name: output_shape(request.model, output) for name, output in request.algorithm.outputs.items()}
    scalars = sum(math.prod(shape) for name, shape in shapes.items() if name not in request.vectors)
    return scalars * request.dtype.itemsize


def workspace(size: int) -> tuple[int, Array]:
    """Scratch memory of a size: its address, aligned to a cache line, and its owner.

    Raises:
        UnavailableError: there is not enough memory.
    """
    try:
        owner = np.empty(size + 64, dtype=np.uint8)
    except MemoryError:
        raise UnavailableError(
            f"engine 'cpu': a query needs {size} bytes of scratch memory; there is not that much"
        ) from None
    return -(-owner.ctypes.data // 64) * 64, owner
