"""Chains as several unrolled kernels: what is one program is one kernel, and solves for matrices are one with a thread
for each column.

The gradient of forward dynamics as one program has more values waiting than a thread has registers. Taken apart, it is
three kernels: accelerations, and with them L and D of H = L' D L; the gradient of inverse dynamics; and solves, whose
threads need L, D and one column of each matrix ("split" in Plancher et al., Accelerating Robot Dynamics Gradients on a
CPU, GPU, and FPGA, section IV-B, where the threads of a block take columns).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from robodyn.chains import Direct, Elimination, Products, Sized, Solution, Solve, Stage, Traceable
from robodyn.codegen.ordering import in_short_order
from robodyn.engines.gpu.source import SCALARS, WARP, KernelSource
from robodyn.engines.gpu.unrolled_kernels import (
    MAX_OPERATIONS,
    PART_OPERATIONS,
    print_program,
    unrollable,
    unrolled_kernel,
)
from robodyn.errors import UnavailableError
from robodyn.model import Model
from robodyn.tracing.expression import Value
from robodyn.tracing.program import Program
from robodyn.tracing.solves import PACK, Factors, packed_size, solved
from robodyn.tracing.unrolled import input_shapes, output_shape, trace

_THREADS, _MOST_THREADS = 128, 256
"""Threads in a block of solves, for as many states as they have columns for; and where one state has more columns."""

_Stages = tuple[Stage | Solve | Products, ...]


def factors_of(matrix: str) -> str:
    """What the factors of a matrix are called that one kernel leaves to another."""
    return f"{matrix}_factors"


def left(model: Model, task: Traceable) -> dict[str, Any]:
    """Everything that kernels of a task leave to one another, and its outputs, by name."""
    found: dict[str, Any] = {name: each for stage in task.in_stages() for name, each in stage.outputs.items()}
    size = Sized((packed_size(model),))
    return found | {factors_of(solve.matrix): size for solve in task.solves} | dict(task.outputs)


def divisible(model: Model, task: Traceable) -> bool:
    """Whether a task can be several unrolled kernels: a guess from sizes, made without tracing."""
    stages, pieces = task.in_stages(), _pieces(model, task)
    if len(pieces) < 2 or task.unit_input is not None or any(isinstance(stage, Products) for stage in stages):
        return False
    entries = sum(map(len, Elimination(model).lower))
    most = max((len(solve.outputs) for solve in task.solves if _columns(model, solve)), default=0)
    algorithms = [stage.algorithm for stage in stages if isinstance(stage, Stage)]
    return 2 * most * entries <= PART_OPERATIONS and all(unrollable(model, each) for each in algorithms)


def unrolled_kernels(
    model: Model,
    task: Traceable,
    dtype: np.dtype[Any],
    base: tuple[str, ...] = (),
    link: int | None = None,
    *,
    fusion: str = "complete",
) -> tuple[KernelSource, ...]:
    """The kernels of a task in the order of their launches, as those of `rolled_kernels`.

    Args:
        fusion: "complete" for one kernel, "split" for several.

    All others are those of `unrolled_kernel`.

    Raises:
        ArgumentError: a constant of the model is beyond the precision.
        UnavailableError: a program is too large.
    """
    if fusion == "complete" or not divisible(model, task):
        return (unrolled_kernel(model, task, dtype, base, link),)
    return tuple(
        print_program(part, dtype, f"kernel_{number}")
        if isinstance(part, Program)
        else _solve_kernel(model, part, dtype, f"kernel_{number}")
        for number, part in enumerate(_parts(model, task, base, link))
    )


def printable(model: Model, task: Traceable, base: tuple[str, ...], link: int | None) -> bool:
    """Whether no program of several unrolled kernels is too large."""
    try:
        return divisible(model, task) and bool(_parts(model, task, base, link))
    except UnavailableError:
        return False


def _parts(model: Model, task: Traceable, base: tuple[str, ...], link: int | None) -> list[Program | Solve]:
    """Programs, and solves by columns."""
    pieces = _pieces(model, task)
    found: list[Program | Solve] = []
    for number, piece in enumerate(pieces):
        if (solve := _solve_of(model, piece)) is not None:
            found.append(solve)
        else:
            later = {name for each in pieces[number + 1 :] for name in _read(model, each)}
            found.append(_program(model, task, piece, {*task.outputs, *later}, base, link))
    return found


def _columns(model: Model, stage: Stage | Solve | Products) -> int:
    """Columns of every solution of a solve whose threads can have one each; 0 of other stages."""
    solutions = [each for each in stage.outputs.values() if isinstance(each, Solution)]
    if not model.nv or not solutions or any(each.known for each in solutions):
        return 0
    shapes = {output_shape(model, each) for each in solutions}
    counts = {math.prod(shape) // model.nv for shape in shapes}
    return 0 if len(counts) > 1 or (counts == {1} and len(next(iter(shapes))) == 1) else counts.pop()


def _solve_of(model: Model, piece: _Stages) -> Solve | None:
    """The solve by columns that a piece is, if it is one."""
    first = piece[0]
    return first if isinstance(first, Solve) and _columns(model, first) else None


def _pieces(model: Model, task: Traceable) -> list[_Stages]:
    """Stages by kernel: a solve by columns is one, and what needs a solution before it begins another."""
    found: list[_Stages] = []
    pending: _Stages = ()
    for stage in task.in_stages():
        ends = stage.sweeps and any(each in task.solves for each in pending)
        if pending and (ends or _columns(model, stage)):
            found.append(pending)
            pending = ()
        if _columns(model, stage):
            found.append((stage,))
        else:
            pending = (*pending, stage)
    return [*found, pending] if pending else found


def _read(model: Model, piece: _Stages) -> set[str]:
    """What a piece reads, by the chain's names."""
    if (solve := _solve_of(model, piece)) is not None:
        return {factors_of(solve.matrix), *(name for each in solve.outputs.values() for name in each.arrays)}
    return {name for stage in piece for name in stage.inputs}


def _program(
    model: Model, task: Traceable, piece: _Stages, wanted: set[str], base: tuple[str, ...], link: int | None
) -> Program:
    """The program of stages; of what they leave, `wanted`."""
    known = left(model, task)
    shapes = input_shapes(model, task) | {each: output_shape(model, output) for each, output in known.items()}
    made = {each: None for stage in piece for each in stage.outputs}
    matrices = [each for each in made if factors_of(each) in wanted]
    outputs = [*(each for each in made if each in wanted), *map(factors_of, matrices)]
    inputs = sorted(_read(model, piece) - made.keys(), key=list(shapes).index)

    def text(model: Model, given: Mapping[str, Any], at: Any) -> Mapping[str, Any]:
        pool: dict[str, Sequence[Value]] = dict(given)
        for stage in piece:
            if isinstance(stage, Stage):
                others = {each: pool[stage.reads.get(each, each)] for each in stage.algorithm.inputs}
                results = at(stage.algorithm, **others)
                pool.update({stage.names.get(each, each): scalars for each, scalars in results.items()})
            else:
                assert isinstance(stage, Solve)  # chains with products are not divisible
                pool.update(solved(stage, dict(pool), model))
        nv = model.nv
        for matrix in matrices:
            H = pool[matrix]
            pool[factors_of(matrix)] = Factors([H[nv * r : nv * r + nv] for r in range(nv)]).packed(model)
        return {each: pool[each] for each in outputs}

    def sized(names: Sequence[str]) -> dict[str, Sized]:
        return {each: Sized(shapes[each]) for each in names}

    given = base if any(stage.sweeps for stage in piece) else ()
    program = trace(model, Direct(task.name, sized(inputs), sized(outputs), text), base=given, link=link)
    if program.operations > MAX_OPERATIONS:
        raise UnavailableError(f"engine 'gpu': {task.name} of {model.name!r} is too large for straight-line code")
    return in_short_order(program)


# Solves by columns.

_PRELUDE = """\
#ifndef ROBODYN_PACK
#define ROBODYN_PACK
/* Four numbers of shared memory at once, read where they are used: left to itself the compiler reads all of them first,
   and has no registers for them. */
#ifdef __CUDA_ARCH__
__device__ __forceinline__ void robodyn_unpack(const float* from, float* to)
{
    asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
                 : "r"((unsigned)__cvta_generic_to_shared(from)));
}
__device__ __forceinline__ void robodyn_unpack(const double* from, double* to)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(from);
    asm volatile("ld.volatile.shared.v2.f64 {%0, %1}, [%2];" : "=d"(to[0]), "=d"(to[1]) : "r"(at));
    asm volatile("ld.volatile.shared.v2.f64 {%0, %1}, [%2];" : "=d"(to[2]), "=d"(to[3]) : "r"(at + 16));
}
#else
template <typename T>
__device__ __forceinline__ void robodyn_unpack(const T* from, T* to)
{
    for (int k = 0; k < 4; k++)
        to[k] = from[k];
}
#endif
#endif
"""


class _Unpacking:
    """Statements that use packed factors, and those that read them, four at a time, where they are first used."""

    def __init__(self, scalar: str) -> None:
        self.scalar = scalar
        self.lines: list[str] = []
        self._reads, self._here = 0, -1

    def entry(self, place: int) -> str:
        """A factor."""
        if place // PACK != self._here:
            self._reads, self._here = self._reads + 1, place // PACK
            self.lines.append(f"{self.scalar} f{self._reads}[{PACK}];")
            self.lines.append(f"robodyn_unpack(factors + {PACK * self._here}, f{self._reads});")
        return f"f{self._reads}[{place % PACK}]"


def _solving(model: Model, count: int, scalar: str) -> list[str]:
    """Statements that put solutions of n columns in the place of right-hand sides, x0_k, x1_k, ... in row k."""
    lower = [row.tolist() for row in Elimination(model).lower]
    starts = [0, *accumulate(len(row) + 1 for row in lower)]
    code = _Unpacking(scalar)
    for k in range(model.nv - 1, -1, -1):
        for e in range(len(lower[k]) - 1, -1, -1):
            factor, p = code.entry(starts[k] + 1 + e), lower[k][e]
            code.lines += [f"x{s}_{p} -= {factor} * x{s}_{k};" for s in range(count)]
    for k in range(model.nv):
        factor = code.entry(starts[k])
        code.lines += [f"x{s}_{k} *= {factor};" for s in range(count)]
        for e, p in enumerate(lower[k]):
            factor = code.entry(starts[k] + 1 + e)
            code.lines += [f"x{s}_{k} -= {factor} * x{s}_{p};" for s in range(count)]
    return code.lines


def _solve_kernel(model: Model, solve: Solve, dtype: np.dtype[Any], name: str) -> KernelSource:
    """The kernel of a solve: a thread has a column of every solution. Neighbouring threads have neighbouring columns,
    so that they read and write side by side, and the same factors."""
    nv, scalar, factors = model.nv, SCALARS[dtype.name], factors_of(solve.matrix)
    inputs = tuple(dict.fromkeys((factors, *(each for one in solve.outputs.values() for each in one.arrays))))
    outputs = tuple(solve.outputs)
    arrays = [f"const {scalar}* __restrict__ in_{each}" for each in inputs]
    arrays += [f"{scalar}* __restrict__ out_{each}" for each in outputs]
    many, rows, size = _columns(model, solve), range(nv), packed_size(model)
    states = max(1, _THREADS // many)
    threads = min(_MOST_THREADS, -(-states * many // WARP) * WARP)
    lines = [
        f"alignas(16) __shared__ {scalar} packs[{states * size}];",
        f"for (long long first = {states} * (long long)blockIdx.x; first < rows; "
        f"first += {states} * (long long)gridDim.x) {{",
        f"    const int count = rows - first < {states} ? (int)(rows - first) : {states};",
        "    __syncthreads();",
        f"    for (int k = threadIdx.x; k < {size} * count; k += {threads})",
        f"        packs[k] = in_{factors}[{size} * first + k];",
        "    __syncthreads();",
        f"    for (int e = threadIdx.x; e < {many} * count; e += {threads}) {{",
        f"        const int r = e / {many}, c = e % {many};",
        "        const long long row = first + r;",
        f"        const {scalar}* const factors = packs + {size} * r;",
        *(f"        const {scalar}* const {each} = in_{each} + {nv * many} * row + c;" for each in inputs[1:]),
        *(f"        {scalar}* const {each} = out_{each} + {nv * many} * row + c;" for each in outputs),
        *(
            f"        {scalar} x{s}_{k} = {_right_side(solution, k, many, scalar)};"
            for s, solution in enumerate(solve.outputs.values())
            for k in rows
        ),
        *(f"        {line}" for line in _solving(model, len(outputs), scalar)),
        *(f"        {each}[{many * k}] = x{s}_{k};" for s, each in enumerate(outputs) for k in rows),
        "    }",
        "}",
    ]
    head = ",\n    ".join([*arrays, f"{scalar}* workspace", "long long rows"])
    statements = "".join(f"    {line}\n" for line in lines)
    declared = f'extern "C" __global__ void __launch_bounds__({threads}) {name}(\n    {head})'
    return KernelSource(
        name=name,
        text=f"{_PRELUDE}{declared}\n{{\n{statements}}}\n",
        dtype=dtype,
        inputs=inputs,
        outputs=outputs,
        threads_per_state=many,
        block_threads=threads,
    )


def _right_side(solution: Solution, k: int, many: int, scalar: str) -> str:
    """Row k of a column, of n, of what a solution is solved for."""
    if not solution.arrays:
        return f"{scalar}(c == {k})"
    terms = [] if solution.plus is None else [f"{solution.plus}[{many * k}]"]
    terms += [] if solution.minus is None else [f"-{solution.minus}[{many * k}]"]
    return " ".join(terms).replace(" -", " - ")
