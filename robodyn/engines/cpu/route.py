"""Routes: whether a request becomes one program, kernels of its parts, or loops over bodies."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, cast

import numpy as np

from robodyn.algorithms.tasks import Chain, Derivative, IdentitySeeds, Step, SymbolicFactor
from robodyn.compile.cache import ObjectCache
from robodyn.compile.keys import Linked
from robodyn.compile.llvm.jit import OPT
from robodyn.compile.llvm.target import LEVELS
from robodyn.compile.tracing.program import Program
from robodyn.compile.x86.row_writer import crowded
from robodyn.core.joints import CODE
from robodyn.core.sweeps import Algorithm, PairOutput
from robodyn.engines.cpu.backends import Backend, backend_of, writes_lines
from robodyn.engines.cpu.chains.dead_outputs import dead_outputs_of
from robodyn.engines.cpu.chains.solves import solve_operations
from robodyn.engines.cpu.loops.program import RolledProgram
from robodyn.engines.cpu.request import Request
from robodyn.internals import tuning
from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass


@dataclass(frozen=True)
class SingleProgram:
    """One straight-line program.

    `request`: what the program is for; its results may be left as vectors, which others bring to rows then; `linked`:
    where its code is kept; `backend`: what makes it; `code`: what is there; `program`: traced where there is none.
    """

    request: Request
    linked: Linked
    backend: Backend
    code: bytes | None = None
    program: Program | None = None


Route = SingleProgram | Literal["parts", "loops"]
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
        return SingleProgram(request, linked, backend, code)
    if limit < math.inf and linked.too_large:
        return _otherwise(request)
    if not trace:
        return None
    program = program_within(request, limit, linked)
    return _otherwise(request) if program is None else SingleProgram(request, linked, backend, program=program)


def kept_at(request: Request, kind: str, cache: ObjectCache) -> Linked:
    """Where machine code of a request's program is kept, of a kind."""
    left = [(name, hashlib.blake2b(entries, digest_size=8).hexdigest()) for name, entries in request.unread]
    facts = request.digest(kind, request.link, request.model.digest, left)
    return Linked(facts, request.label, request.target, OPT, cache)


def program_within(request: Request, limit: float, linked: Linked) -> Program | None:
    """A request's program, traced; None if it has more operations than a limit, which is known from now on."""
    program = request.trace() if limit == math.inf or _least_operations(request, thorough=True) <= limit else None
    if program is None or program.operations > limit:
        linked.mark_too_large()
        return None
    return program


def _otherwise(request: Request) -> Route:
    """What is not one program."""
    task = request.algorithm
    if task.fallback is not None:
        return task.fallback
    no_other = ", and there is no other for derivatives of queries without rules of their own"
    raise UnavailableError(
        f"engine 'cpu': {task.name} of {request.model.name!r} is too large for straight-line code"
        + (no_other if isinstance(task, Derivative) else "")
    )


def parts_of(request: Request) -> Iterator[Request]:
    """What the kernels are asked for that one of parts calls: those of algorithms, in order."""
    task = request.algorithm
    if isinstance(task, Chain):
        for stage, vectors in task.algorithms():
            left = dead_outputs_of(request.model, task, stage)
            yield replace(request, algorithm=stage.algorithm, vectors=vectors, unread=left)
    elif isinstance(task, IdentitySeeds | Step):
        for part in task.parts:
            yield replace(request, algorithm=part, base=request.base if part.sweeps else ())


def writes_most(request: Request) -> bool:
    """Whether loops over bodies write so much for one state that batches run state by state."""
    return sum(request.scalars) * request.target.vector_bytes > tuning.MAX_WIDE_RESULTS


def most_operations(request: Request, mode: str) -> float | None:
    """Operations up to which a request becomes one program; None where it does not become one whatever they are."""
    task = request.algorithm
    if isinstance(task, Derivative):  # whatever the mode: it has no loops
        inner = most_operations(replace(request, algorithm=task.task), "auto")
        return None if inner is None else _budget(request)
    if mode == "rolled" or not task.traceable:
        return None
    if mode == "unrolled":
        return math.inf
    most = _budget(request)
    return most if _least_operations(request, thorough=False) <= most else None


def _budget(request: Request) -> int:
    """Operations that one program may have."""
    task, most = request.algorithm, tuning.MAX_OPERATIONS[backend_of(request).name]
    budget = "stage" if request.vectors else task.budget
    contracted = f"contracted {budget}" if task.fallback and "vector" in task.inputs else budget
    return most.get(contracted, most[budget])


def _least_operations(request: Request, *, thorough: bool) -> float:
    """Operations that a program has at least, or 0 where that is not known; infinite where it is not worth a trace.

    `thorough`: also what takes a while to count, but less than a trace: the operations of loops, and of what a step
    evaluates several times.
    """
    task, model = request.algorithm, request.model
    known, steps, (times, inner) = task.least_operations(model), model.n_bodies * request.lanes, task.calls(model)
    if not task.sweeps and inner is task:
        return known or (0 if model.n_bodies <= tuning.MAX_BODIES_OF_PARTS else math.inf)
    if model.n_bodies > tuning.MAX_TRACED_BODIES or steps > tuning.MAX_TRACED_STEPS:
        return math.inf
    many = thorough and steps > tuning.MANY_STEPS
    if isinstance(task, Chain):
        solves = solve_operations(model, task)
        if not many or np.any(model.joint_kind == CODE["prismatic"]):
            return solves
        return int((sum(map(_operations_of_loops, parts_of(request))) + solves) / tuning.STAGES_SHARE)
    if isinstance(task, IdentitySeeds):
        in_vectors = request.target.narrow and _units_fill_a_vector(request)
        return math.inf if in_vectors or sum(request.scalars) > tuning.MAX_TENSOR_ENTRIES else 0
    if isinstance(task, Algorithm):
        kind = "stage" if request.vectors and not request.packed else "query"
        if max(request.scalars, default=0) > tuning.MAX_ENTRIES[backend_of(request).name][kind]:
            return math.inf
        return _operations_of_loops(request) if many else 0
    if thorough and times > 1:
        return times * replace(request, algorithm=inner).trace().operations
    return known or 0


def _units_fill_a_vector(request: Request) -> bool:
    """Whether all unit vectors are one vector, on which an algorithm takes less time than one program for all."""
    model = request.model
    if model.nv * request.dtype.itemsize > LEVELS[request.target.level]:
        return False
    ways = [len(row) + 1 for row in SymbolicFactor(model).lower]
    return sum(way * way for way in ways) >= tuning.TRIPLES_OF_A_PAIR * sum(ways)


def _operations_of_loops(request: Request) -> int:
    """Those of an algorithm, as far as a program has them as well."""
    algorithm = cast(Algorithm, request.algorithm)
    rolled = RolledProgram(request.model, algorithm, request.dtype, request.target, request.base, request.link)
    return rolled.operations // tuning.ROLLED_SHARE


def _left_as_vectors(request: Request) -> Request:
    """The request for vectors, where results are so many that rows of them are better written one after another. Those
    of stages are vectors already, steps take their rows from one state to the next, and one state is one row."""
    if request.vectors or request.target.narrow or request.algorithm.recurrent:
        return request
    ours = backend_of(request).name == "x86"
    entries = _flushed_bytes(request) // request.target.vector_bytes if ours else tuning.FLUSHED_ENTRIES
    left = replace(request, vectors=frozenset(request.algorithm.outputs), packed=True)
    return request if sum(request.scalars) < entries else left


def _flushed_bytes(request: Request) -> int:
    """Bytes of results in a vector of states from which code of our own leaves them as vectors."""
    task, most = request.algorithm, tuning.FLUSHED_BYTES
    if request.target.level == "avx512":
        return most["avx512"]
    if any(crowded(size, request.target.width(request.dtype)) for size in request.scalars):
        return most["crowded"]
    pairs = all(isinstance(each, PairOutput) or getattr(each, "lanes", False) for each in task.outputs.values())
    # To count operations would take up to 40 milliseconds of a first answer, also where its code is in the cache.
    computes = task.fallback != "loops" or (pairs and "qd" in task.inputs)
    if computes and writes_lines(replace(request, packed=True)):
        return most["computed"]
    return most["pairs" if pairs else "others"]
