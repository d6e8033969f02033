"""Routes: whether a request becomes one program, kernels of its parts, or loops over bodies."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from robodyn.chains import (
    Chain,
    Derivative,
    Direct,
    Elimination,
    Stage,
    Step,
    StepGradient,
    StepPart,
    Units,
)
from robodyn.codegen.cache import ObjectCache
from robodyn.codegen.keys import Linked
from robodyn.codegen.llvm.jit import OPT
from robodyn.codegen.llvm.target import LEVELS
from robodyn.codegen.x86.lines import crowded
from robodyn.engines.cpu.backends import Backend, backend_of, writes_lines
from robodyn.engines.cpu.chains.solves import solve_operations
from robodyn.engines.cpu.chains.unread import unread
from robodyn.engines.cpu.loops.program import RolledProgram
from robodyn.engines.cpu.request import Request
from robodyn.errors import UnavailableError
from robodyn.joints import CODE
from robodyn.model import Model
from robodyn.records import dataclass
from robodyn.sweeps import Algorithm, DofOutput, PairOutput
from robodyn.tracing.program import Program

MAX_UNROLLED_OPERATIONS = {"x86": 80_000, "llvm": 64_000}
"""Programs with more operations are rolled, by what makes code of them. Unrolled code outgrows the instruction cache at
a tenth of this and still runs two to three times as fast as rolled code, which knows nothing of a robot's structure; it
is the time to compile, some 11 microseconds an operation with tracing and LLVM's some 60, that sets the limit: a first
answer is wanted within a second."""
MAX_UNROLLED_CHAIN = {"x86": 80_000, "llvm": 24_000}
"""Operations of a chain from which its stages are kernels of their own. Of LLVM's code solves run faster as loops then.
Our own takes two thirds to three quarters of the time of stages up to 60,000 operations, and nine tenths of it with
100,000, which take half a second longer to make."""
MAX_UNROLLED_CONTRACTION = 130_000
"""The same of code of ours for second derivatives contracted with a vector, which may take longer to make. It takes 0.3
to 0.4 of the time of loops, and two thirds of that of stages."""
_MAX_STAGE_OPERATIONS, _MAX_STAGE_CONTRACTION, _MAX_STAGE_ENTRIES = 64_000, 100_000, 1 << 14
"""The same, and entries of results, of stages that are kernels of their own: there are several, and solves to make,
before a first answer."""
_MAX_UNROLLED_STEP_PART = 24_000
MAX_UNROLLED_STEP = {"x86": 64_000, "llvm": 24_000}
"""The same of an integrator's step. What is larger is made in parts, which run as fast."""
MAX_UNROLLED_GRADIENT = {"x86": 300_000, "llvm": 64_000}
"""And of its gradient, or of the step differentiated: our own code takes some 5 microseconds an operation to make.
What is larger is made by kernels of algorithms and products of matrices, in five to ten times as long."""
_MAX_TRACED_BODIES, _MAX_TRACED_STEPS = 250, 4096
"""Bodies, and bodies times lanes or columns where a query has them, beyond which a program is not even traced. With
hundreds of bodies one state takes longer in a vector of eight copies than in rolled code for one."""
_MANY_STEPS, _ROLLED_SHARE = 1000, 2
"""Bodies times lanes from which the operations of loops are counted before a program is traced: of large robots they
are 1.5 to 2 times the program's."""
_STAGES_SHARE = 1.5
"""The same of a chain: one program has 0.5 to 1.1 of the operations that its stages and solves have so, and where these
are more than 1.5 times what is allowed, more than that. A trace that is not used takes a fifth of a second, or two. Not
where joints slide: much of what loops compute is the same in all states then, up to all of it."""
_MAX_BODIES_OF_PARTS = 100
"""Bodies up to which the parts of an integrator's step, and what is no query, are traced. They are a few operations for
every joint, but all have to be compiled before the first step: seconds from here on."""
_MAX_UNROLLED_ENTRIES = {"x86": 1 << 15, "llvm": 1 << 13}
"""Entries of a result beyond which it is made by loops, by what makes code of it. Most are zeros, which LLVM's code
stores one by one, and ours writes line by line: a humanoid's regressor of 9,610 entries takes a quarter of the time."""
_MAX_TENSOR_ENTRIES = 1 << 13
"""Entries of all results beyond which an algorithm at every unit vector runs at one after another."""
_TRIPLES_OF_A_PAIR = 5.0
"""Triples of degrees of freedom, each with the next one on its way to the world, for each pair of such, from which an
algorithm at every unit vector is run for one state on a vector of them: one program for all has operations for triples.
With AVX-512 an arm of seven joints takes 0.7 of the time so, one of six 0.95 of it."""
_FLUSHED_ENTRIES = 256
"""Results of a state from which unrolled code of LLVM's leaves vectors, and a loop writes them to rows from end to end
of each. Rows that are written here and there wait for memory twice as long once a batch is larger than the caches."""
_FLUSHED_BYTES = 60_000
"""The same of our own code, which copies whole lines on the way (`past_caches`): bytes of the results of a vector of
states. Twice of them leave the nearest cache for good then, and what the tree makes zero is copied as well."""
_FLUSHED_COMPUTED, _FLUSHED_PAIRS, _FLUSHED_OTHERS, _FLUSHED_CROWDED = 12_000, 28_000, 40_000, 120_000
"""Bytes with AVX2: of what computes much for its results, of matrices over pairs of joints, of others, and of rows
whose lines are not written on the way past the caches. Rows that the program writes itself are quicker while the caches
hold them, by a tenth where much is computed and up to a fifth elsewhere, and slower in large batches, by a sixth to a
half. Chains compute much, and matrices over pairs of joints that velocities count for: to count operations of loops
instead takes up to 40 milliseconds of a first answer, also where its code is in the cache."""
_MAX_WIDE_WORKSPACE = 1 << 30
"""Bytes of a workspace beyond which batches run state by state instead of in vectors."""
_MAX_WIDE_RESULTS = 1 << 20
"""Bytes of results as vectors beyond which loops run state by state: vectors would leave the second cache before rows
are made of them. The mass matrix of 150 bodies takes two thirds of the time so, a regressor of 100 half of it."""


@dataclass(frozen=True)
class Whole:
    """One straight-line program.

    `request`: what the program is for; its results may be left as vectors, which others bring to rows then; `linked`:
    where its code is kept; `backend`: what makes it; `code`: what is there; `program`: traced where there is none.
    """

    request: Request
    linked: Linked
    backend: Backend
    code: bytes | None = None
    program: Program | None = None


Route = Whole | Literal["parts", "loops"]
"""A program, kernels of stages, of unit vectors or of a step's parts and one that calls them, or loops over bodies."""


def find_route(request: Request, mode: str, cache: ObjectCache, *, trace: bool = True) -> Route | None:
    """What a request becomes; None where it has to be traced to know that, or to have code, and shall not be.

    Args:
        request: what is asked for.
        mode: "unrolled", "rolled", or "auto", which makes one program of what is small enough.
        cache: where machine code is kept, and what is too large.
        trace: whether to trace what counts and the cache do not decide.

    Raises:
        UnavailableError: a derivative of a program, which is a program or nothing, is too large for one.
    """
    limit = most_operations(request, mode)
    if limit is None:
        return _otherwise(request)
    request = _left_as_vectors(request)
    linked, backend = kept_at(request, "unrolled", cache), backend_of(request)
    code = backend.kept(linked)
    if code is not None:
        return Whole(request, linked, backend, code)
    if limit < math.inf and linked.too_large:
        return _otherwise(request)
    if not trace:
        return None
    program = program_within(request, limit, linked)
    return _otherwise(request) if program is None else Whole(request, linked, backend, program=program)


def kept_at(request: Request, kind: str, cache: ObjectCache) -> Linked:
    """Where machine code of a request's program is kept, of a kind."""
    left = [(name, hashlib.blake2b(entries, digest_size=8).hexdigest()) for name, entries in request.unread]
    facts = request.digest(kind, request.link, request.model.digest, left)
    return Linked(facts, request.label, request.target, OPT, cache)


def program_within(request: Request, limit: float, linked: Linked) -> Program | None:
    """A request's program, traced; None if it has more operations than a limit, which is known from now on."""
    program = request.trace() if limit == math.inf or _least_operations(request) <= limit else None
    if program is None or program.operations > limit:
        linked.mark_too_large()
        return None
    return program


def _otherwise(request: Request) -> Route:
    """What is not one program."""
    task = request.algorithm
    if isinstance(task, Direct | StepGradient) or (isinstance(task, Step) and isinstance(task.dynamics, Direct)):
        raise UnavailableError(
            f"engine 'cpu': {task.name} of {request.model.name!r} is too large for straight-line code"
        )
    if isinstance(task, Derivative):
        raise UnavailableError(
            f"engine 'cpu': {task.name} of {request.model.name!r} is too large for straight-line code, and there is no "
            "other for derivatives of queries without rules of their own"
        )
    return "loops" if isinstance(task, Algorithm | StepPart) else "parts"


def parts_of(request: Request) -> Iterator[Request]:
    """What the kernels are asked for that one of parts calls: those of algorithms, in order."""
    task = request.algorithm
    if isinstance(task, Units):
        yield replace(request, algorithm=task.algorithm)
    elif isinstance(task, Step):
        yield from (replace(request, algorithm=part, base=()) for part in task.parts)
    elif isinstance(task, Chain):
        left: set[str] = set()
        for stage in task.stages:
            if isinstance(stage, Stage):
                algorithm = stage.algorithm
                read = {name for name in algorithm.inputs if stage.reads.get(name, name) in left}
                vectors = frozenset((*algorithm.outputs, *read))
                yield replace(request, algorithm=algorithm, vectors=vectors, unread=_unread(request.model, task, stage))
            left.update(stage.outputs)


def _unread(model: Model, chain: Chain, stage: Stage) -> tuple[tuple[str, bytes], ...]:
    """What nobody reads of the arrays that a stage leaves, as its algorithm calls them."""
    found = unread(model, chain)
    names = ((name, stage.names.get(name, name)) for name in stage.algorithm.outputs)
    return tuple((name, found[left].entries.tobytes()) for name, left in names if left in found)


def too_wide(workspace_bytes: int) -> bool:
    """Whether a batch with so large a workspace runs state by state instead of in vectors."""
    return workspace_bytes > _MAX_WIDE_WORKSPACE


def writes_most(request: Request) -> bool:
    """Whether loops over bodies write so much for one state that batches run state by state."""
    return sum(request.scalars) * request.target.vector_bytes > _MAX_WIDE_RESULTS


def most_operations(request: Request, mode: str) -> float | None:
    """Operations up to which a request becomes one program; None where it does not become one whatever they are."""
    task = request.algorithm
    if isinstance(task, Derivative):  # whatever the mode: it has no loops
        inner = replace(request, algorithm=task.task)
        if most_operations(inner, "auto") is None:
            return None
        of_step = isinstance(task.task, Step)
        return (MAX_UNROLLED_GRADIENT if of_step else MAX_UNROLLED_OPERATIONS)[backend_of(request).name]
    if mode == "rolled" or (isinstance(task, Units) and isinstance(task.algorithm, Chain)):
        return None
    if mode == "unrolled":
        return math.inf
    if isinstance(task, Units) and request.target.narrow and _units_fill_a_vector(request):
        return None
    if not _worth_tracing(request):
        return None
    if isinstance(task, StepGradient) or (isinstance(task, Direct) and task.least is not None):
        return MAX_UNROLLED_GRADIENT[backend_of(request).name]
    if isinstance(task, Step):
        return MAX_UNROLLED_STEP[backend_of(request).name]
    return _MAX_UNROLLED_STEP_PART if isinstance(task, StepPart) else _most(request)


def _most(request: Request) -> int:
    """Operations of an algorithm, a chain, or what is asked at every unit vector."""
    task, backend = request.algorithm, backend_of(request).name
    contracts = backend == "x86" and isinstance(task, Algorithm | Chain) and "vector" in task.inputs
    if request.vectors:
        return _MAX_STAGE_CONTRACTION if contracts else _MAX_STAGE_OPERATIONS
    if contracts:
        return MAX_UNROLLED_CONTRACTION
    return (MAX_UNROLLED_CHAIN if isinstance(task, Chain) else MAX_UNROLLED_OPERATIONS)[backend]


def _worth_tracing(request: Request) -> bool:
    """Whether a program may be small enough, by counts that take no trace."""
    task, bodies = request.algorithm, request.model.n_bodies
    if isinstance(task, Direct) and task.least is not None:
        return _within(request, MAX_UNROLLED_GRADIENT, task)
    if isinstance(task, StepPart | Direct):
        return bodies <= _MAX_BODIES_OF_PARTS
    if bodies > _MAX_TRACED_BODIES or bodies * request.lanes > _MAX_TRACED_STEPS:
        return False
    if isinstance(task, StepGradient):
        if isinstance(task.gradient, Direct):
            return _within(request, MAX_UNROLLED_GRADIENT, task.gradient)
        return bodies * request.lanes <= _MAX_TRACED_STEPS
    if isinstance(task, Step):
        dynamics, projections = task.dynamics, [] if task.projection is None else [task.projection]
        if isinstance(dynamics, Direct):
            return _within(request, MAX_UNROLLED_STEP, dynamics, *projections)
        return _worth_tracing(replace(request, algorithm=dynamics))
    if isinstance(task, Chain):
        return solve_operations(request.model, task) <= _most(request)
    entries = request.scalars
    if isinstance(task, Units):
        return sum(entries) <= _MAX_TENSOR_ENTRIES
    most = _MAX_UNROLLED_ENTRIES[backend_of(request).name]
    return max(entries, default=0) <= (min(most, _MAX_STAGE_ENTRIES) if request.vectors else most)


def _within(request: Request, limits: Mapping[str, int], *tasks: Direct) -> bool:
    """Whether tasks are counted to have no more operations than one of the limits."""
    least = sum(task.least(request.model) for task in tasks if task.least is not None)
    return least <= limits[backend_of(request).name]


def _units_fill_a_vector(request: Request) -> bool:
    """Whether all unit vectors are one vector, on which an algorithm takes less time than one program for all."""
    model = request.model
    if model.nv * request.dtype.itemsize > LEVELS[request.target.level]:
        return False
    ways = [len(row) + 1 for row in Elimination(model).lower]
    return sum(way * way for way in ways) >= _TRIPLES_OF_A_PAIR * sum(ways)


def _least_operations(request: Request) -> int:
    """What a program takes at least, where that is known in a fraction of the time that tracing it takes: a step of
    several evaluations of the dynamics, of which one is traced; many bodies with many lanes, by those of loops, and of
    a chain of its solves."""
    task = request.algorithm
    many = isinstance(task, Algorithm | Chain) and request.model.n_bodies * request.lanes > _MANY_STEPS
    if many and isinstance(task, Algorithm):
        return _operations_of_loops(request)
    if many and isinstance(task, Chain) and not np.any(request.model.joint_kind == CODE["prismatic"]):
        stages = sum(map(_operations_of_loops, parts_of(request))) + solve_operations(request.model, task)
        return int(stages / _STAGES_SHARE)
    if not isinstance(task, Step | StepGradient):
        return 0
    evaluations = len((task if isinstance(task, Step) else task.step).parts) - 1
    return evaluations * replace(request, algorithm=_asked_for(task)).trace().operations if evaluations > 1 else 0


def _operations_of_loops(request: Request) -> int:
    """Those of an algorithm, as far as a program has them as well."""
    assert isinstance(request.algorithm, Algorithm)
    rolled = request.model, request.algorithm, request.dtype, request.target, request.base, request.link
    return RolledProgram(*rolled).operations // _ROLLED_SHARE


def _asked_for(task: Step | StepGradient) -> Algorithm | Chain | Direct:
    """What a step, or its gradient, evaluates."""
    return task.dynamics if isinstance(task, Step) else task.gradient


def _left_as_vectors(request: Request) -> Request:
    """The request for vectors, where results are so many that rows of them are better written one after another. Those
    of stages are vectors already, steps take their rows from one state to the next, and one state is one row."""
    if request.vectors or request.target.narrow or isinstance(request.algorithm, Step | StepPart):
        return request
    if sum(request.scalars) < _flushed_entries(request):
        return request
    return replace(request, vectors=frozenset(request.algorithm.outputs), packed=True)


def _flushed_entries(request: Request) -> int:
    """Scalars of a state's results from which they are left as vectors."""
    if backend_of(request).name != "x86":
        return _FLUSHED_ENTRIES
    return _flushed_bytes(request) // request.target.vector_bytes


def _flushed_bytes(request: Request) -> int:
    """The same in bytes of a vector of states."""
    if request.target.level == "avx512":
        return _FLUSHED_BYTES
    if any(crowded(size, request.target.width(request.dtype)) for size in request.scalars):
        return _FLUSHED_CROWDED
    task = request.algorithm
    pairs = all(
        isinstance(each, PairOutput) or (isinstance(each, DofOutput) and each.lanes) for each in task.outputs.values()
    )
    computes = not isinstance(task, Algorithm) or (pairs and "qd" in task.inputs)
    if computes and writes_lines(replace(request, packed=True)):
        return _FLUSHED_COMPUTED
    return _FLUSHED_PAIRS if pairs else _FLUSHED_OTHERS
