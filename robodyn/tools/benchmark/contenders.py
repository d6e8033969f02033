"""The parts of a benchmark: queries, states, and contenders that answer the queries."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Protocol, cast

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.core.model import Model
from robodyn.engines.query_table import QUERIES, QuerySpec
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass
from robodyn.tools.benchmark.timing import Timing

States = Mapping[str, Array]
"""q (B, nq), qd, qdd, tau and vector (B, nv)."""
Answers = tuple[Array, ...]
"""Results of a query, (B, ...) each, in the order and conventions of `robodyn.Dynamics`."""


USUAL = (
    *("inverse_dynamics", "forward_dynamics", "mass_matrix", "bias_force"),
    *("inverse_dynamics_gradient", "forward_dynamics_gradient"),
)
"""Queries that are measured by default."""


def numbers_of(question: QuerySpec, model: Model) -> int:
    """The number of scalars in the results for one state."""
    return sum(map(prod, question.shapes(model, question.plain).values()))


def plain_call(dyn: Dynamics, question: QuerySpec) -> Callable[..., Any]:
    """A query as a function of its required arrays, in order. Link queries use the robot's last link.

    The method is looked up at each call of `plain_call`: after the first answer it may be a faster function.
    """
    method = getattr(dyn, question.name)
    if not question.of_link and "vector" not in question.plain:
        return cast(Callable[..., Any], method)
    link = len(dyn.model.link_names) - 1

    def call(*arrays: Any, **options: Any) -> Any:
        by_place, by_name = question.arguments(dict(zip(question.plain, arrays, strict=True)), link)
        return method(*by_place, **by_name, **options)

    return call


class RefusedError(Exception):
    """A peer is not installed, or cannot represent this robot; the message says why."""


@dataclass(frozen=True)
class Prepared:
    """A contender with prepared inputs: `run` answers all `states` once, `answers` returns the results."""

    run: Callable[[], object]
    answers: Callable[[], Answers]
    states: int


@dataclass(frozen=True)
class Contender:
    """One way to answer one query."""

    name: str
    query: str
    dtype: str
    threads: int
    single: bool
    """True: one state a call, in a Python loop. False: a whole batch in one call."""
    prepare: Callable[[States], Prepared]
    ours: bool = False
    tolerance: float | None = None
    """Tolerance of the difference from our results; None for the default of the dtype."""
    overhead: Callable[[float], Timing] | None = None
    """Function of a time in seconds that measures the cost of a call that does not depend on the robot."""
    overhead_name: str = ""
    """Name of the estimate without that overhead."""


class Peer(Protocol):
    """Another library, with the model of one robot."""

    name: str
    """Name and version."""
    notes: tuple[str, ...]
    """Remarks for comparisons."""

    def contenders(self, query: str, threads: Sequence[int]) -> list[Contender]:
        """Its ways to answer a query; an empty list if it has none."""


def draw(model: Model, count: int, seed: int = 0) -> dict[str, Array]:
    """Random states: q within limits, all others uniform between -1 and 1."""
    rng = np.random.default_rng(seed)
    q = model.random_configuration(rng, (count,))
    qd, qdd, tau = rng.uniform(-1.0, 1.0, (3, count, model.nv))
    return {"q": q, "qd": qd, "qdd": qdd, "tau": tau, "vector": rng.uniform(-1.0, 1.0, (count, model.nv))}


def repeated(states: States, batch: int) -> dict[str, Array]:
    """A batch that repeats the same states, so that the result of each row is known."""
    return {name: np.resize(array, (batch, *array.shape[1:])) for name, array in states.items()}


def available_threads() -> int:
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_by_one(
    call: Callable[..., Any], rows: Sequence[tuple[Any, ...]], read: Callable[[Any, int], Answers]
) -> Prepared:
    """Prepare a call that takes one state, in a loop over the arguments `rows`.

    `read`: converts the return value of a call, with the row's number, to the results of one state. It is not timed.
    """

    def run() -> None:
        for arguments in rows:
            call(*arguments)

    def answers() -> Answers:
        each = [read(call(*arguments), row) for row, arguments in enumerate(rows)]
        return tuple(np.array(column) for column in zip(*each, strict=True))

    return Prepared(run, answers, len(rows))


def own_contenders(dyn: Dynamics, query: str, threads: int) -> tuple[Contender, Contender]:
    """Our contenders: one state a call, as users write it, and a batch with results in the same `out` every time."""
    question, dtype = QUERIES[query], str(dyn.dtype)

    def given(states: States) -> list[Array]:
        return [states[name].astype(dyn.dtype, copy=False) for name in question.plain]

    def warm(*arguments: Any, **options: Any) -> Callable[..., Any]:
        """Call the query once, then look it up again (see `plain_call`)."""
        plain_call(dyn, question)(*arguments, **options)
        return plain_call(dyn, question)

    def single(states: States) -> Prepared:
        def read(answer: Any, row: int) -> Answers:
            return answer if isinstance(answer, tuple) else (answer,)

        rows = list(zip(*given(states), strict=True))
        return one_by_one(warm(*rows[0]), rows, read)

    def batch(states: States) -> Prepared:
        arrays, shapes = given(states), question.shapes(dyn.model, question.plain).values()
        results = tuple(np.full((len(arrays[0]), *shape), np.nan, dyn.dtype) for shape in shapes)
        out = results if len(results) > 1 else results[0]
        run = partial(warm(*arrays, out=out), *arrays, out=out)
        return Prepared(run, lambda: results, len(arrays[0]))

    name = f"robodyn {dyn.engine.name}"
    return (
        Contender(name, query, dtype, threads, single=True, prepare=single, ours=True),
        Contender(name, query, dtype, threads, single=False, prepare=batch, ours=True),
    )
