"""Kernels: machine code of one algorithm on one model, from the cache or the compiler."""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from robodyn.arguments import Array
from robodyn.chains import Chain, Stage, Step, StepPart, Traceable, Units
from robodyn.engines.cpu.cache import ObjectCache, compiled, object_key
from robodyn.engines.cpu.jit import Code, compile_object
from robodyn.engines.cpu.rolled_program import RolledProgram
from robodyn.engines.cpu.solves import solve_operations
from robodyn.engines.cpu.target import Target
from robodyn.engines.cpu.unrolled import unrolled_module
from robodyn.errors import UnavailableError
from robodyn.model import Model
from robodyn.sweeps import Algorithm, Ancestors
from robodyn.tracing.program import Program
from robodyn.tracing.unrolled import input_shapes, output_shape, trace

OPT = 1
"""Level of LLVM's code generator. Level 2 takes twice the time for code that runs no faster."""
MAX_UNROLLED_OPERATIONS = 64_000
"""Programs with more operations are rolled. Unrolled code outgrows the instruction cache at a tenth of this and still
runs twice as fast as rolled code, which knows nothing of a robot's structure; it is the time to compile, some
60 microseconds an operation, that sets the limit."""
_MAX_TRACED_BODIES, _MAX_TRACED_STEPS = 250, 4096
"""Bodies, and bodies times lanes or columns where a query has them, beyond which a program is not even traced. With
hundreds of bodies one state takes longer in a vector of eight copies than in rolled code for one."""
_MAX_BODIES_OF_PARTS = 100
"""Bodies up to which the parts of an integrator's step are traced. They are a few operations for every joint, but all
have to be compiled before the first step: seconds from here on."""
MAX_UNROLLED_CHAIN = 24_000
"""Operations of a chain from which its stages are kernels of their own: solves run faster as loops then. Of an
integrator's step, those from which it takes too long to compile."""
_FLUSHED_ENTRIES = 256
"""Results of a state from which unrolled code leaves vectors, and a loop writes them to rows from end to end of each.
Rows that are written here and there wait for memory twice as long once a batch is larger than the caches."""
_MAX_UNROLLED_ENTRIES = 1 << 13
"""Entries of a result beyond which it is made by loops, and by one unit vector after another where an algorithm runs at
all of them: most are zeros, which unrolled code stores one by one."""
MAX_WIDE_WORKSPACE = 1 << 30
"""Bytes of a workspace beyond which batches run state by state instead of in vectors."""
_UNROLLED_NS = 1.0 / 7.0
_ROLLED_NS = 60.0
"""Nanoseconds per operation of one state (unrolled), and per step of a body (rolled), in a vector of one: estimates
that decide only whether a batch is worth sharing between threads."""

_ROLLED_MARK = b"rolled"
"""Stands in the cache in place of machine code for what is too large to unroll, so that it is not traced again."""

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


@dataclass(frozen=True)
class Request:
    """What a kernel is for: an algorithm or a chain on a model, with the base motions that are given and the query's
    link."""

    model: Model
    algorithm: Traceable
    dtype: np.dtype[Any]
    target: Target
    base: tuple[str, ...] = ()
    link: int | None = None
    vectors: frozenset[str] = frozenset()
    """Arrays that hold vectors of states instead of rows, as between the stages of a chain."""

    @property
    def label(self) -> str:
        """What it is, in words."""
        return f"{self.model.name} {self.algorithm.name} {self.dtype} {self.target.level}"

    @property
    def lanes(self) -> int:
        """Steps for a body in the algorithm's longest sweep."""
        many = any(
            getattr(sweep, "lanes", False) or (isinstance(sweep, Ancestors) and not sweep.of_link)
            for sweep in self.algorithm.sweeps
        )
        return self.model.nv_tree if many else 1

    @property
    def cacheable(self) -> bool:
        """Whether the algorithm's text is part of robodyn, whose sources are part of a key; others may change."""
        steps = [
            step
            for sweep in self.algorithm.sweeps
            for step in (getattr(sweep, name, None) for name in ("step", "start", "visit"))
            if step is not None
        ]
        return all(step.__module__.startswith("robodyn.") for step in steps)

    def digest(self, kind: str, *facts: object) -> str:
        """A hash of what determines a module of a kind, besides processor and versions."""
        state = hashlib.blake2b(digest_size=16)
        vectors = sorted(self.vectors)
        state.update(repr((kind, self.algorithm.name, self.base, str(self.dtype), vectors, *facts)).encode())
        return state.hexdigest()

    def trace(self) -> Program:
        """The straight-line program."""
        return trace(self.model, self.algorithm, link=self.link, base=self.base)

    def unrolled_module(self, program: Program) -> str:
        """The module of that program."""
        return unrolled_module(program, self.dtype, self.target, vectors=self.vectors)


class Counted(Protocol):
    """What a kernel needs beside its code, and knows how much work that is."""

    @property
    def operations(self) -> int:
        """Floating-point operations for one state."""


@dataclass
class Kernel:
    """Machine code and what it needs.

    `inputs`: names in the table's order; `constants`: the table's words after inputs and outputs; `row_ns`: about how
    long a state takes; `program`: the straight-line program, traced when asked for, or None for rolled code; `module`:
    its text, made when asked for; `batch`: whether the last of the constants is to be the rows of the whole batch.
    """

    request: Request
    mode: str
    code: Code
    inputs: tuple[str, ...]
    constants: tuple[int, ...]
    workspace_bytes: int
    row_ns: float
    module: Callable[[], str]
    keep: Counted | None = field(default=None, repr=False)
    batch: bool = False

    @cached_property
    def address(self) -> int:
        """Address of the function."""
        return self.code.address("kernel")

    @cached_property
    def function(self) -> Callable[[int, int, int, int], None]:
        """`function(table, first, last, workspace)`; other Python threads run meanwhile."""
        return _KERNEL(self.address)

    @cached_property
    def program(self) -> Program | None:
        """The straight-line program of unrolled code."""
        return self.request.trace() if self.mode == "unrolled" else None

    @property
    def modules(self) -> list[str]:
        """The texts of its modules: its own, and those of the kernels that it calls."""
        return [self.module(), *(text for kernel in getattr(self.keep, "kernels", ()) for text in kernel.modules)]

    @property
    def operations(self) -> int:
        """Floating-point operations for one state."""
        if self.keep is not None:
            return self.keep.operations
        assert self.program is not None
        return self.program.operations


def input_names(request: Request) -> tuple[str, ...]:
    """A kernel's inputs, in order."""
    return tuple(input_shapes(request.model, request.algorithm, request.base))


def _flushed(request: Request) -> Request:
    """The request for vectors, where results are so many that rows of them are better written one after another."""
    outputs = request.algorithm.outputs
    entries = sum(math.prod(output_shape(request.model, output)) for output in outputs.values())
    return replace(request, vectors=frozenset(outputs)) if entries >= _FLUSHED_ENTRIES else request


def _least_operations(request: Request) -> int:
    """What a program takes at least, where that is known in a fraction of the time that tracing it takes: a step of
    several evaluations of the dynamics, of which one is traced."""
    step = request.algorithm
    if not isinstance(step, Step) or len(step.parts) <= 2:
        return 0
    return (len(step.parts) - 1) * replace(request, algorithm=step.dynamics).trace().operations


class Compiler:
    """Makes kernels, looking into the cache first.

    Args:
        cache: where machine code is kept between processes.
        mode: "unrolled", "rolled", or "auto", which unrolls what is small enough.
    """

    def __init__(self, cache: ObjectCache, mode: str = "auto") -> None:
        self.cache, self.mode = cache, mode

    def kernel(self, request: Request, *, single: bool) -> Kernel:
        """The kernel of a request; `single`: for one state at a time, where that makes a difference.

        Raises:
            UnavailableError: LLVM cannot compile it, or it needs more memory than there is.
        """
        if self.mode != "rolled":
            asked = _flushed(request)
            found = self.unrolled(asked)
            if found is not None and asked.vectors:
                from robodyn.engines.cpu.chained import flushed_kernel

                return flushed_kernel(self, request, found)
            if found is not None:
                return found
        if not isinstance(request.algorithm, Algorithm):
            from robodyn.engines.cpu.chained import chained_kernel, repeated_kernel

            return (repeated_kernel if isinstance(request.algorithm, Units) else chained_kernel)(self, request)
        return self.rolled(request, 1 if single else None)

    def in_cache(self, request: Request) -> bool:
        """Whether an unrolled kernel, or the knowledge that there is none, waits in the cache."""
        task = request.algorithm
        if isinstance(task, Chain) and not self._unrollable(request):
            stages = (stage.algorithm for stage in task.stages if isinstance(stage, Stage))
            return all(self.in_cache(replace(request, algorithm=each)) for each in stages)
        if isinstance(task, Units) and (isinstance(task.algorithm, Chain) or not self._unrollable(request)):
            return self.in_cache(replace(request, algorithm=task.algorithm))
        return self._cache(request).get(self._unrolled_key(_flushed(request))) is not None

    def _cache(self, request: Request) -> ObjectCache:
        return self.cache if request.cacheable else ObjectCache(None)

    def _unrolled_key(self, request: Request) -> str:
        digest = request.digest("unrolled", request.link, request.model.digest)
        return object_key(digest, request.target, OPT)

    @staticmethod
    def _unrollable(request: Request) -> bool:
        """Whether tracing is worth a try."""
        bodies = request.model.n_bodies
        if isinstance(request.algorithm, StepPart):
            return bodies <= _MAX_BODIES_OF_PARTS
        if bodies > _MAX_TRACED_BODIES or bodies * request.lanes > _MAX_TRACED_STEPS:
            return False
        task = request.algorithm
        if isinstance(task, Step):
            return Compiler._unrollable(replace(request, algorithm=task.dynamics))
        if isinstance(task, Chain):
            return solve_operations(request.model, task) <= MAX_UNROLLED_CHAIN
        entries = [math.prod(output_shape(request.model, output)) for output in task.outputs.values()]
        return (sum(entries) if isinstance(task, Units) else max(entries, default=0)) <= _MAX_UNROLLED_ENTRIES

    def unrolled(self, request: Request) -> Kernel | None:
        """Unrolled code, or None where it would be too large, as a chain at every unit vector is."""
        if isinstance(request.algorithm, Units) and isinstance(request.algorithm.algorithm, Chain):
            return None
        forced = self.mode == "unrolled"
        if not forced and not self._unrollable(request):
            return None
        key, cache = self._unrolled_key(request), self._cache(request)
        code = cache.get(key)
        if code == _ROLLED_MARK and not forced:
            return None
        program: Program | None = None
        if code is None or code == _ROLLED_MARK:
            several = isinstance(request.algorithm, Chain | Step | StepPart)
            limit = MAX_UNROLLED_CHAIN if several else MAX_UNROLLED_OPERATIONS
            if forced or _least_operations(request) <= limit:
                program = request.trace()
            if program is None or (program.operations > limit and not forced):
                cache.put(key, _ROLLED_MARK, f"{request.label}: rolled")
                return None
            code = compile_object(request.unrolled_module(program), request.target, OPT)
            cache.put(key, code, request.label)
        kernel = Kernel(
            request=request,
            mode="unrolled",
            code=Code(code, request.target),
            inputs=input_names(request),
            constants=(),
            workspace_bytes=0,
            row_ns=0.0,
            module=lambda: request.unrolled_module(request.trace()),
        )
        # Half a kilobyte of machine code is about 40 operations: a warm start need not trace to know its cost.
        kernel.row_ns = len(code) / 12.0 * _UNROLLED_NS / request.target.width(request.dtype)
        if program is not None:
            kernel.__dict__["program"] = program
        return kernel

    def step(self, request: Request) -> tuple[Kernel, ...]:
        """Unrolled code of an integrator's step, or where it would be too large of each of its parts; nothing where
        these are too large as well, or code is to be rolled."""
        assert isinstance(request.algorithm, Step)
        if self.mode == "rolled":
            return ()
        whole = self.unrolled(request)
        if whole is not None:
            return (whole,)
        parts = [self.unrolled(replace(request, algorithm=part)) for part in request.algorithm.parts]
        return tuple(part for part in parts if part is not None) if all(parts) else ()

    def shared(self, text: str, label: str, target: Target) -> Code:
        """Code that every robot shares, from the cache if it is there."""
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        return Code(compiled(lambda: text, digest, label, target, OPT, self.cache), target)

    def rolled(self, request: Request, width: int | None) -> Kernel:
        """Rolled code for vectors of so many states; None: as many as registers hold, if their workspace is no larger
        than it should be."""
        program = self._rolled_program(request, width)
        if width is None and program.workspace_bytes > MAX_WIDE_WORKSPACE:
            program = self._rolled_program(request, 1)
        module = program.module
        digest = request.digest("rolled", module.traits, module.kind.width)
        key = object_key(digest, request.target, OPT)
        cache = self._cache(request)
        code = cache.get(key)
        if code is None:
            code = compile_object(module.text(), request.target, OPT)
            cache.put(key, code, f"{request.algorithm.name} rolled {request.dtype} {request.target.level}")
        steps = request.model.n_bodies * request.lanes
        return Kernel(
            request=request,
            mode="rolled",
            code=Code(code, request.target),
            inputs=module.inputs,
            constants=tuple(word for array in program.arrays for word in (array.ctypes.data, 0)),
            workspace_bytes=program.workspace_bytes,
            row_ns=steps * _ROLLED_NS / module.kind.width,
            module=module.text,
            keep=program,
        )

    @staticmethod
    def _rolled_program(request: Request, width: int | None) -> RolledProgram:
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


def workspace(size: int) -> tuple[int, Array]:
    """Scratch memory of a size, its address aligned to a cache line, and what owns it.

    Raises:
        UnavailableError: there is not that much memory.
    """
    try:
        owner = np.empty(size + 64, dtype=np.uint8)
    except MemoryError:
        raise UnavailableError(
            f"engine 'cpu': a query needs {size} bytes of scratch memory; there is not that much"
        ) from None
    return -(-owner.ctypes.data // 64) * 64, owner
