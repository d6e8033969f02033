"""Routes: how a request is compiled, as one program, as kernels of its parts, or as loops over bodies."""

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

    `request`: its request; the results may be vectors, which another kernel brings to rows; `linked`: its code in the
    cache; `backend`: generates the code; `code`: the cached code, or None; `program`: traced, if no code is cached.
    """

    request: Request
    linked: Linked
    backend: Backend
    code: bytes | None = None
    program: Program | None = None


Route = SingleProgram | Literal["parts", "loops"]
"""One program; "parts": kernels of stages, of unit vectors or of a step's parts, and a kernel that calls them; "loops":
loops over bodies."""


def find_route(request: Request, mode: str, cache: ObjectCache, *, trace: bool = True) -> Route | None:
    """The route of a request. None if `trace` is False and a trace is necessary.

    Args:
        request: the request.
        mode: "unrolled", "rolled", or "auto", which makes one program of small tasks.
        cache: the cache of machine code, which also knows programs that are too large.
        trace: True if the program may be traced when estimates and the cache do not decide.

    Raises:
        UnavailableError: the task can be one program only, and it is too large for one.
    """
    limit = most_operations(request, mode)
    if limit is None:
        return _fallback_route(request)
    request = _with_vector_results(request)
    linked, backend = kept_at(request, "unrolled", cache), backend_of(request)
    code = backend.kept(linked)
    if code is not None:
        return SingleProgram(request, linked, backend, code)
    if limit < math.inf and linked.too_large:
        return _fallback_route(request)
    if not trace:
        return None
    program = program_within(request, limit, linked)
    return _fallback_route(request) if program is None else SingleProgram(request, linked, backend, program=program)


def kept_at(request: Request, kind: str, cache: ObjectCache) -> Linked:
    """The place in the cache of a request's machine code of some kind."""
    left = [(name, hashlib.blake2b(entries, digest_size=8).hexdigest()) for name, entries in request.unread]
    facts = request.digest(kind, request.link, request.model.digest, left)
    return Linked(facts, request.label, request.target, OPT, cache)


def program_within(request: Request, limit: float, linked: Linked) -> Program | None:
    """A request's traced program. None if it has more operations than `limit`; the cache remembers that."""
    program = request.trace() if limit == math.inf or _least_operations(request, thorough=True) <= limit else None
    if program is None or program.operations > limit:
        linked.mark_too_large()
        return None
    return program


def _fallback_route(request: Request) -> Route:
    """The route of a request that is not one program."""
    task = request.algorithm
    if task.fallback is not None:
        return task.fallback
    if request.constraint_query is not None or request.distance_query is not None:
        return "loops"
    no_other = ", and there is no other for derivatives of queries without rules of their own"
    raise UnavailableError(
        f"engine 'cpu': {task.name} of {request.model.name!r} is too large for straight-line code"
        + (no_other if isinstance(task, Derivative) else "")
    )


def parts_of(request: Request) -> Iterator[Request]:
    """Requests for the kernels of a task's parts: a chain's algorithms, or the parts of another task."""
    task = request.algorithm
    if isinstance(task, Chain):
        for stage, vectors in task.algorithms():
            left = dead_outputs_of(request.model, task, stage)
            yield replace(request, algorithm=stage.algorithm, vectors=vectors, unread=left)
    elif isinstance(task, IdentitySeeds | Step):
        for part in task.parts:
            yield replace(request, algorithm=part, base=request.base if part.sweeps else ())


def writes_most(request: Request) -> bool:
    """True if loops over bodies write such large results that batches run state by state."""
    return sum(request.scalars) * request.target.vector_bytes > tuning.MAX_WIDE_RESULTS


def most_operations(request: Request, mode: str) -> float | None:
    """Maximal operations of a request that becomes one program; None if it never does."""
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
    """Maximal operations of one program."""
    task, most = request.algorithm, tuning.MAX_OPERATIONS[backend_of(request).name]
    if request.distance_query is not None:
        return tuning.STRAIGHT_DISTANCES[request.distance_query.name]
    loops = request.constraint_query is not None
    budget = "stage" if request.vectors else "query" if loops else task.budget
    contracted = f"contracted {budget}" if task.fallback and "vector" in task.inputs else budget
    return most.get(contracted, most[budget])


def _least_operations(request: Request, *, thorough: bool) -> float:
    """A lower bound on the operations of a program; 0 if unknown, infinite if the request is not worth a trace.

    `thorough`: also count operations of loops, and of tasks that a step evaluates several times. This takes less time
    than a trace.
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
    """True if all unit vectors fit into one SIMD vector, and the algorithm on it is faster than one program for all of
    them."""
    model = request.model
    if model.nv * request.dtype.itemsize > LEVELS[request.target.level]:
        return False
    ways = [len(row) + 1 for row in SymbolicFactor(model).lower]
    return sum(way * way for way in ways) >= tuning.TRIPLES_OF_A_PAIR * sum(ways)


def _operations_of_loops(request: Request) -> int:
    """Operations of an algorithm's loops, scaled to a lower bound for its program."""
    algorithm = cast(Algorithm, request.algorithm)
    rolled = RolledProgram(request.model, algorithm, request.dtype, request.target, request.base, request.link)
    return rolled.operations // tuning.ROLLED_SHARE


def _with_vector_results(request: Request) -> Request:
    """The request with results as vectors, if they are so large that another kernel should bring them to rows.
    Unchanged if results are vectors already, for steps, whose next step reads the rows, and for single states."""
    if request.vectors or request.target.narrow or request.algorithm.recurrent:
        return request
    ours = backend_of(request).name == "x86"
    entries = _flushed_bytes(request) // request.target.vector_bytes if ours else tuning.FLUSHED_ENTRIES
    left = replace(request, vectors=frozenset(request.algorithm.outputs), packed=True)
    return request if sum(request.scalars) < entries else left


def _flushed_bytes(request: Request) -> int:
    """Bytes of results in a vector of states from which code of our own backend leaves results as vectors."""
    task, most = request.algorithm, tuning.FLUSHED_BYTES
    if request.target.level == "avx512":
        return most["avx512"]
    if any(crowded(size, request.target.width(request.dtype)) for size in request.scalars):
        return most["crowded"]
    pairs = all(isinstance(each, PairOutput) or getattr(each, "lanes", False) for each in task.outputs.values())
    # A count of operations would need a trace, even if the code is in the cache.
    computes = task.fallback != "loops" or (pairs and "qd" in task.inputs)
    if computes and writes_lines(replace(request, packed=True)):
        return most["computed"]
    return most["pairs" if pairs else "others"]
