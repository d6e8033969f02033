"""Chains of stages as several unrolled kernels. A solve for matrices is a kernel with a thread for each column.

The gradient of forward dynamics as one program has more live values than a thread has registers. Divided, it is three
kernels: accelerations, together with L and D of H = L' D L; the gradient of inverse dynamics; and the solves, whose
threads need L, D and one column of each matrix. Plancher et al. (Accelerating Robot Dynamics Gradients on a CPU, GPU,
and FPGA, section IV-B) call this "split"; there the threads of a block take columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np

from robodyn.algorithms.tasks import Products, ScalarTask, Sized, Solution, Solve, Stage, SymbolicFactor, Traceable
from robodyn.compile.loops.cuda_reads import ALIGNMENT, SharedRead
from robodyn.compile.loops.gpu import barrier, block, blocks, shared, thread
from robodyn.compile.loops.language import Array, Integer, Scalar, Static, Word, local, routine
from robodyn.compile.ordering import in_short_order
from robodyn.compile.tracing.expression import Value
from robodyn.compile.tracing.program import Program
from robodyn.compile.tracing.solves import PACK, Factors, packed_size, solved
from robodyn.compile.tracing.unrolled import input_shapes, output_shape, trace
from robodyn.core.model import Model
from robodyn.engines.gpu.functions import kernel_source, several
from robodyn.engines.gpu.source import SCALARS, WARP, KernelSource
from robodyn.engines.gpu.unrolled_kernels import (
    MAX_OPERATIONS,
    PART_OPERATIONS,
    print_program,
    unrollable,
    unrolled_kernel,
)
from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass

_THREADS, _MOST_THREADS = 128, 256
"""Threads of a block of solves: about so many, and the most, for states with more columns than that."""

_Stages = tuple[Stage | Solve | Products, ...]


def factors_of(matrix: str) -> str:
    """The name of the array with the factors of a matrix, which one kernel passes to another."""
    return f"{matrix}_factors"


def left(model: Model, task: Traceable) -> dict[str, Any]:
    """The outputs of a task and all intermediate arrays that its kernels pass to one another, by name."""
    arrays: dict[str, Any] = {name: each for stage in task.in_stages() for name, each in stage.outputs.items()}
    size = Sized((packed_size(model),))
    return arrays | {factors_of(solve.matrix): size for solve in task.solves} | dict(task.outputs)


def divisible(model: Model, task: Traceable) -> bool:
    """Whether a task can be divided into several unrolled kernels. Estimated from sizes, without tracing."""
    stages, pieces = task.in_stages(), _pieces(model, task)
    if len(pieces) < 2 or task.unit_input is not None or any(isinstance(stage, Products) for stage in stages):
        return False
    entries = sum(map(len, SymbolicFactor(model).lower))
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
    """The kernels of a task in launch order. They share arrays like those of `rolled_kernels`.

    Args:
        fusion: "complete" for one kernel, "split" for several.

    The other parameters are those of `unrolled_kernel`.

    Raises:
        ArgumentError: a constant of the model is out of the range of the dtype.
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
    """Whether a task can be divided into unrolled kernels none of which is too large."""
    try:
        return divisible(model, task) and bool(_parts(model, task, base, link))
    except UnavailableError:
        return False


def _parts(model: Model, task: Traceable, base: tuple[str, ...], link: int | None) -> list[Program | Solve]:
    """The task's kernels: programs, and solves by columns."""
    pieces = _pieces(model, task)
    parts: list[Program | Solve] = []
    for number, piece in enumerate(pieces):
        if (solve := _solve_of(model, piece)) is not None:
            parts.append(solve)
        else:
            later = {name for each in pieces[number + 1 :] for name in _read(model, each)}
            parts.append(_program(model, task, piece, {*task.outputs, *later}, base, link))
    return parts


def _columns(model: Model, stage: Stage | Solve | Products) -> int:
    """The number of columns of a solve with a thread for each column; 0 for other stages."""
    solutions = [each for each in stage.outputs.values() if isinstance(each, Solution)]
    if not model.nv or not solutions or any(each.known for each in solutions):
        return 0
    shapes = {output_shape(model, each) for each in solutions}
    counts = {math.prod(shape) // model.nv for shape in shapes}
    return 0 if len(counts) > 1 or (counts == {1} and len(next(iter(shapes))) == 1) else counts.pop()


def _solve_of(model: Model, piece: _Stages) -> Solve | None:
    """The solve by columns, if a piece is one; else None."""
    first = piece[0]
    return first if isinstance(first, Solve) and _columns(model, first) else None


def _pieces(model: Model, task: Traceable) -> list[_Stages]:
    """The stages of each kernel. A solve by columns is one kernel; sweeps after a solve begin another one."""
    pieces: list[_Stages] = []
    pending: _Stages = ()
    for stage in task.in_stages():
        ends = stage.sweeps and any(each in task.solves for each in pending)
        if pending and (ends or _columns(model, stage)):
            pieces.append(pending)
            pending = ()
        if _columns(model, stage):
            pieces.append((stage,))
        else:
            pending = (*pending, stage)
    return [*pieces, pending] if pending else pieces


def _read(model: Model, piece: _Stages) -> set[str]:
    """The arrays that a piece reads, by the chain's names."""
    if (solve := _solve_of(model, piece)) is not None:
        return {factors_of(solve.matrix), *(name for each in solve.outputs.values() for name in each.arrays)}
    return {name for stage in piece for name in stage.inputs}


def _program(
    model: Model, task: Traceable, piece: _Stages, wanted: set[str], base: tuple[str, ...], link: int | None
) -> Program:
    """The program of a piece's stages, with those results as outputs that are in `wanted`."""
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

    base_inputs = base if any(stage.sweeps for stage in piece) else ()
    program = trace(model, ScalarTask(task.name, sized(inputs), sized(outputs), text), base=base_inputs, link=link)
    if program.operations > MAX_OPERATIONS:
        raise UnavailableError(f"engine 'gpu': {task.name} of {model.name!r} is too large for straight-line code")
    return in_short_order(program)


# Solves by columns.


@dataclass(frozen=True)
class Columns:
    """Compile-time constants of a kernel that solves for columns.

    `nv`: rows of the matrices; `many`: columns of a state; `states`: states whose factors a block holds at a time;
    `threads`: threads of a block; `size`: scalars of a state's factors. `sides`: for each solution, the indices of the
    arrays `given` whose difference is the right-hand side, -1 for none; with neither, the right-hand side is the
    identity.

    `steps`: the steps (place, k, by, fresh) of a solve. Row k is reduced by row `by` times the factor at `place`, or
    multiplied by that factor if `by` is -1. `fresh`: True if the factor is the first to be used of its group of four.
    """

    nv: int
    many: int
    states: int
    threads: int
    size: int
    sides: tuple[tuple[int, int], ...]
    steps: tuple[tuple[int, int, int, bool], ...]
    read_four: SharedRead


@routine
def solve_columns(
    factors: Array[Scalar],
    given: tuple[Array[Scalar], ...],
    out: tuple[Array[Scalar], ...],
    workspace: Array[Scalar],
    rows: Word,
    how: Static[Columns],
) -> None:
    """H^-1 times matrices, from the packed factors of H. Each thread computes one column of every solution.
    Neighbouring threads have neighbouring columns, so their accesses are coalesced and they read the same factors."""
    packs = shared(Scalar, how.states * how.size, ALIGNMENT)
    solutions, four = [local(Scalar, how.nv) for _ in how.sides], local(Scalar, PACK)
    for first in range(how.states * Word(block()), rows, how.states * Word(blocks())):
        count = Integer(min(rows - first, how.states))
        barrier()
        for k in range(thread(), how.size * count, how.threads):
            packs[k] = factors[how.size * first + k]
        barrier()
        for e in range(thread(), how.many * count, how.threads):
            r, c = e // how.many, e % how.many
            own, start = packs + how.size * r, how.nv * how.many * (first + r) + c
            for s, (plus, minus) in enumerate(how.sides):
                for k in range(how.nv):
                    at = start + how.many * k
                    if plus < 0 and minus < 0:
                        solutions[s][k] = 1.0 if c == k else 0.0
                    elif plus < 0:
                        solutions[s][k] = -given[minus][at]
                    else:
                        solutions[s][k] = given[plus][at] if minus < 0 else given[plus][at] - given[minus][at]
            for place, k, by, fresh in how.steps:
                if fresh:
                    how.read_four(four, own + place // PACK * PACK)
                for s in range(len(out)):
                    if by < 0:
                        solutions[s][k] *= four[place % PACK]
                    else:
                        solutions[s][k] -= four[place % PACK] * solutions[s][by]
            for s in range(len(out)):
                for k in range(how.nv):
                    out[s][start + how.many * k] = solutions[s][k]


def _steps(model: Model) -> tuple[tuple[int, int, int, bool], ...]:
    """The steps of a solve with L' D L, as in `Columns.steps`."""
    lower = [row.tolist() for row in SymbolicFactor(model).lower]
    starts = [0, *accumulate(len(row) + 1 for row in lower)]
    below = [[(starts[k] + 1 + e, p) for e, p in enumerate(row)] for k, row in enumerate(lower)]
    steps = [(place, p, k) for k in reversed(range(model.nv)) for place, p in reversed(below[k])]
    for k in range(model.nv):
        steps += [(starts[k], k, -1), *((place, k, p) for place, p in below[k])]
    packs = [-1, *(place // PACK for place, _, _ in steps)]
    return tuple((*step, step[0] // PACK != before) for step, before in zip(steps, packs, strict=False))


def columns_of(model: Model, solve: Solve, dtype: np.dtype[Any]) -> tuple[tuple[str, ...], Columns]:
    """The names of the arrays that a solve's kernel reads besides factors, and the kernel's constants."""
    arrays = tuple(dict.fromkeys(each for one in solve.outputs.values() for each in one.arrays))
    many, steps, read_four = _columns(model, solve), _steps(model), SharedRead(SCALARS[dtype.name])
    states = max(1, _THREADS // many)
    threads = min(_MOST_THREADS, -(-states * many // WARP) * WARP)
    sides = tuple((_place(arrays, each.plus), _place(arrays, each.minus)) for each in solve.outputs.values())
    return arrays, Columns(model.nv, many, states, threads, packed_size(model), sides, steps, read_four)


def _solve_kernel(model: Model, solve: Solve, dtype: np.dtype[Any], name: str) -> KernelSource:
    """The kernel of a solve."""
    arrays, how = columns_of(model, solve, dtype)
    inputs, outputs = (factors_of(solve.matrix), *arrays), tuple(solve.outputs)
    known: dict[str, Any] = {"given": several(len(arrays)), "out": several(len(outputs)), "how": how}
    source = kernel_source(solve_columns, dtype, inputs, outputs, threads=how.threads, name=name, **known)
    return replace(source, threads_per_state=how.many)


def _place(names: Sequence[str], name: str | None) -> int:
    """The index of a name, or -1 for None."""
    return -1 if name is None else names.index(name)
