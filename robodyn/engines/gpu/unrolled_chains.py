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
    program = trace(model, ScalarTask(task.name, sized(inputs), sized(outputs), text), base=given, link=link)
    if program.operations > MAX_OPERATIONS:
        raise UnavailableError(f"engine 'gpu': {task.name} of {model.name!r} is too large for straight-line code")
    return in_short_order(program)


# Solves by columns.


@dataclass(frozen=True)
class Columns:
    """What is known of a kernel that solves for columns.

    `nv`: rows of matrices; `many`: columns of a state; `states`: of which a block has factors at once; `threads`: of a
    block; `size`: scalars of a state's factors; `sides`: of solutions which of the given arrays is the right-hand side
    and which is subtracted from it, -1 for none, and the identity where there is neither; `steps`: of a solve, each the
    place of a factor, the row that changes, the row that is multiplied by the factor and subtracted from it, or -1
    where the row itself is multiplied, and whether the factor is the first that is used of its four.
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
    """H^-1 times matrices from the packed factors of H: a thread has a column of every solution. Neighbouring threads
    have neighbouring columns, so that they read and write side by side, and the same factors."""
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
    """Those of a solve with L' D L, for `Columns`."""
    lower = [row.tolist() for row in SymbolicFactor(model).lower]
    starts = [0, *accumulate(len(row) + 1 for row in lower)]
    below = [[(starts[k] + 1 + e, p) for e, p in enumerate(row)] for k, row in enumerate(lower)]
    steps = [(place, p, k) for k in reversed(range(model.nv)) for place, p in reversed(below[k])]
    for k in range(model.nv):
        steps += [(starts[k], k, -1), *((place, k, p) for place, p in below[k])]
    packs = [-1, *(place // PACK for place, _, _ in steps)]
    return tuple((*step, step[0] // PACK != before) for step, before in zip(steps, packs, strict=False))


def columns_of(model: Model, solve: Solve, dtype: np.dtype[Any]) -> tuple[tuple[str, ...], Columns]:
    """The arrays that the kernel of a solve is given beside factors, and what is known of it."""
    given = tuple(dict.fromkeys(each for one in solve.outputs.values() for each in one.arrays))
    many, steps, read_four = _columns(model, solve), _steps(model), SharedRead(SCALARS[dtype.name])
    states = max(1, _THREADS // many)
    threads = min(_MOST_THREADS, -(-states * many // WARP) * WARP)
    sides = tuple((_place(given, each.plus), _place(given, each.minus)) for each in solve.outputs.values())
    return given, Columns(model.nv, many, states, threads, packed_size(model), sides, steps, read_four)


def _solve_kernel(model: Model, solve: Solve, dtype: np.dtype[Any], name: str) -> KernelSource:
    """The kernel of a solve."""
    given, how = columns_of(model, solve, dtype)
    inputs, outputs = (factors_of(solve.matrix), *given), tuple(solve.outputs)
    known: dict[str, Any] = {"given": several(len(given)), "out": several(len(outputs)), "how": how}
    source = kernel_source(solve_columns, dtype, inputs, outputs, threads=how.threads, name=name, **known)
    return replace(source, threads_per_state=how.many)


def _place(names: Sequence[str], name: str | None) -> int:
    """Where a name stands, or -1."""
    return -1 if name is None else names.index(name)
