"""Kernels of algorithms and chains at every unit vector: one kernel that runs at all of them, two programs with hoisted
code, or a chain split into parts.

In the chain of second derivatives of forward dynamics, two stages depend on the unit vector: the contraction of second
derivatives of inverse dynamics with H^-1 times the vector, which is a row of H^-1, and products of its results with the
gradient. So a chain that is too large for one program becomes three kernels: all other stages for one state, the
contraction at rows of H^-1, and products row by row, whose lanes are columns. The last two run for some unit vectors at
a time, whose arrays stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, partial

from robodyn.algorithms.tasks import (
    Chain,
    IdentitySeeds,
    Product,
    Products,
    Solution,
    Solve,
    Stage,
    with_identity_seeds,
)
from robodyn.compile.llvm.vectors import VectorType
from robodyn.compile.tracing.program import SHARED
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.core.sweeps import Output
from robodyn.engines.cpu.backends import X86
from robodyn.engines.cpu.calls import by_states, calls_module
from robodyn.engines.cpu.chains.plan import StageCall
from robodyn.engines.cpu.chains.products import products_for
from robodyn.engines.cpu.chains.units import IdentitySeedsCall, IdentitySeedsPlan, Within
from robodyn.engines.cpu.hoisting import Hoisted
from robodyn.engines.cpu.kernels import Kernel, KernelCompiler, unrolled_ns
from robodyn.engines.cpu.request import Request, input_names
from robodyn.internals.records import dataclass

_ROWS = "rows of "
"""Prefix of a matrix' name: each unit vector has one row of it as input."""


@dataclass(frozen=True)
class Half:
    """One of two programs. The first one runs once per state, the second one at every unit vector."""

    operations: int


@dataclass(frozen=True)
class WithIdentitySeeds:
    """Kernels, the number of runs of each kernel per state, and the plan of their calls."""

    kernels: tuple[Kernel, ...]
    times: tuple[int, ...]
    plan: IdentitySeedsPlan

    @property
    def operations(self) -> int:
        """Floating-point operations for one state."""
        return sum(times * kernel.operations for kernel, times in zip(self.kernels, self.times, strict=True))

    @property
    def row_ns(self) -> float:
        """Estimated time of a state, ns."""
        return sum(times * kernel.row_ns for kernel, times in zip(self.kernels, self.times, strict=True))


@dataclass(frozen=True)
class Parts:
    """A chain at every unit vector, split into parts.

    `once`: stages that do not depend on the vector; other parts read their results, `inverse` among them.
    `contraction`: the stage whose input `vector` is H^-1 times the vector.
    """

    once: Chain
    contraction: Stage
    vector: str
    inverse: str
    products: Products

    @property
    def contracted(self) -> IdentitySeeds:
        """The contraction at unit vectors. Its code is the same as that for rows of an inverse."""
        return with_identity_seeds(self.contraction.algorithm, self.vector)


@cache
def parts_at_units(task: IdentitySeeds) -> Parts | None:
    """The parts of a chain at unit vectors; None if it cannot be split this way."""
    chain, vector = task.algorithm, task.vector
    once, contractions, products = list[Stage | Solve](), list[Stage](), list[Products]()
    solved, inverses = dict[str, str](), dict[str, str]()
    for stage in chain.in_stages():
        moving = {vector, *solved, *(name for each in contractions for name in each.outputs)}
        if isinstance(stage, Products):
            products.append(stage)
        elif isinstance(stage, Solve):
            still = {name: each for name, each in stage.outputs.items() if moving.isdisjoint(each.arrays)}
            others = {name: each for name, each in stage.outputs.items() if name not in still}
            if stage.matrix in moving or any(each.arrays != (vector,) or not each.plus for each in others.values()):
                return None
            solved.update(dict.fromkeys(others, stage.matrix))
            inverses.update((stage.matrix, name) for name, each in still.items() if not each.arrays)
            once += [Solve(stage.matrix, still)] if still else []
        elif moving.isdisjoint(stage.inputs):
            once.append(stage)
        else:
            contractions.append(stage)
    if len(contractions) != 1 or len(products) != 1 or {*chain.outputs} != {*products[0].outputs}:
        return None
    (contraction,), (last,) = contractions, products
    read = dict(zip(contraction.algorithm.inputs, contraction.inputs, strict=True))
    along = [name for name in read if read[name] in solved]
    elsewhere = {read[name] for name in read if name not in along} | {*last.inputs}
    if len(along) != 1 or not elsewhere.isdisjoint((vector, *solved)):
        return None
    matrix = solved[read[along[0]]]
    if matrix not in inverses:
        return None
    inputs = tuple(name for name in chain.inputs if name != vector)
    results = {name for stage in once for name in stage.outputs}
    read_later = {*read.values(), *last.inputs, inverses[matrix]} & results
    first = Chain(f"{chain.name}_once", inputs, tuple(once), tuple(sorted(read_later)))
    return Parts(first, contraction, along[0], inverses[matrix], last)


def repeated_kernel(maker: KernelCompiler, request: Request, inner: Kernel) -> Kernel:
    """The kernel that calls the kernel `inner` of an algorithm or a chain at every unit vector."""
    task, nv = request.algorithm, request.model.nv
    call = StageCall(inner.address, (*inner.inputs, *task.outputs), inner.constants, inner.workspace_bytes)
    return _at_units(maker, request, "repeated", (inner,), (nv,), [IdentitySeedsCall(call, 0, nv)], {})


def halved_kernel(maker: KernelCompiler, request: Request, halves: Hoisted) -> Kernel:
    """The kernel that calls the first program once per state, and the second one at every unit vector."""
    task, nv = request.algorithm, request.model.nv
    (first, second), shared = _halves(maker, halves)
    names = (*first.inputs, SHARED)
    calls = [
        IdentitySeedsCall(StageCall(first.address, names, (), 0), 0, 1),
        IdentitySeedsCall(StageCall(second.address, (*names, *task.outputs), (), 0), 0, nv),
    ]
    within = {SHARED: Within(shared * request.dtype.itemsize)}
    return _at_units(maker, request, "halved", (first, second), (1, nv), calls, within)


def _halves(maker: KernelCompiler, halves: Hoisted) -> tuple[tuple[Kernel, Kernel], int]:
    """The kernels of both programs, and the number of scalars that the first one stores."""
    images, names = halves.made(), (*input_names(halves.request), SHARED)
    kernels = []
    for k, (code, part) in enumerate(zip((images.first, images.second), halves.requests, strict=True)):
        loaded = X86.loaded(code, part, maker.cache)
        operations = X86.operations(code)
        kernels.append(
            Kernel(
                request=part,
                mode="half",
                code=loaded,
                inputs=names[: len(names) - 1 + k],
                constants=(),
                workspace_bytes=0,
                row_ns=unrolled_ns(part, operations),
                module=partial(halves.module, k),
                keep=Half(int(operations)),
                own_listing=partial(halves.listing, k),
            )
        )
    first, second = kernels
    return (first, second), images.shared


def parted_kernel(
    maker: KernelCompiler, request: Request, parts: Parts, once: Kernel, contraction: Hoisted | Kernel
) -> Kernel:
    """The kernel of a chain split into parts. It calls the first part once, then the contraction and the products for
    as many unit vectors as a SIMD vector holds, then for the next ones."""
    model, size = request.model, request.dtype.itemsize
    nv, stage = model.nv, parts.contraction
    renamed = {**stage.reads, parts.vector: _ROWS + parts.inverse}
    within = {name: Within(_scalars(request, each) * size) for name, each in parts.once.outputs.items()}
    within[_ROWS + parts.inverse] = Within(0, nv * size, parts.inverse)
    block = max(8, request.target.width(request.dtype))
    for name, output in stage.outputs.items():
        row = _scalars(request, output) * size
        within[name] = Within(min(block, nv) * row, row)
    kernels, times = [once], [1]
    left = (*once.inputs, *parts.once.results)
    calls = [IdentitySeedsCall(StageCall(once.address, left, once.constants, once.workspace_bytes), 0, 1)]
    if isinstance(contraction, Hoisted):
        (first, every), shared = _halves(maker, contraction)
        within[SHARED] = Within(shared * size)
        names = tuple(renamed.get(name, name) for name in (*first.inputs, SHARED))
        calls.append(IdentitySeedsCall(StageCall(first.address, names, (), 0), 0, 1))
        kernels.append(first)
        times.append(1)
    else:
        every = contraction
    read = tuple(renamed.get(name, name) for name in every.inputs)
    contracted = StageCall(every.address, (*read, *stage.outputs), every.constants, every.workspace_bytes)
    multiply = _products(maker, request, parts.products)
    arrays = (*parts.products.inputs, *parts.products.outputs)
    multiplied = StageCall(multiply.address, arrays, multiply.constants, multiply.workspace_bytes)
    for k in range(0, nv, block):
        calls += [
            IdentitySeedsCall(each, k, min(k + block, nv), tuple(stage.outputs)) for each in (contracted, multiplied)
        ]
    return _at_units(maker, request, "apart", (*kernels, every, multiply), (*times, nv, nv), calls, within)


def _scalars(request: Request, output: Output | Solution | Product) -> int:
    return math.prod(output_shape(request.model, output))


def _products(maker: KernelCompiler, request: Request, stage: Products) -> Kernel:
    """The kernel of products for single states, whose lanes are columns."""
    target = request.target
    plan, text = products_for(request.model, stage, VectorType.of(request.dtype, target, 1), target)
    return Kernel(
        request=request,
        mode="rolled",
        code=maker.shared(text, f"robodyn products {request.dtype} {target.level}", target),
        inputs=stage.inputs,
        constants=plan.words,
        workspace_bytes=plan.workspace_bytes,
        row_ns=plan.row_ns,
        module=lambda: text,
        keep=plan,
    )


def _at_units(
    maker: KernelCompiler,
    request: Request,
    mode: str,
    kernels: tuple[Kernel, ...],
    times: tuple[int, ...],
    calls: Sequence[IdentitySeedsCall],
    within: dict[str, Within],
) -> Kernel:
    """The kernel that makes the planned calls."""
    task, inputs = request.algorithm, input_names(request)
    keep = WithIdentitySeeds(
        kernels, times, IdentitySeedsPlan(request.model, task, inputs, calls, request.dtype, within)
    )
    text = calls_module(by_states, arrays=len(inputs) + len(task.outputs))
    return Kernel(
        request=request,
        mode=mode,
        code=maker.shared(text, "robodyn units", request.target),
        inputs=inputs,
        constants=(keep.plan.descriptor.ctypes.data, 0),
        workspace_bytes=keep.plan.workspace_bytes,
        row_ns=keep.row_ns,
        module=lambda: text,
        keep=keep,
    )
