"""What is measured: queries, the states they are asked at, and those who answer them."""

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
"""What a query returns, (B, ...) each, in the order and the conventions of `robodyn.Dynamics`."""


USUAL = (
    *("inverse_dynamics", "forward_dynamics", "mass_matrix", "bias_force"),
    *("inverse_dynamics_gradient", "forward_dynamics_gradient"),
)
"""Queries that are measured where none are named."""


def numbers_of(question: QuerySpec, model: Model) -> int:
    """Numbers in the answer to one state."""
    return sum(map(prod, question.shapes(model, question.plain).values()))


def plain_call(dyn: Dynamics, question: QuerySpec) -> Callable[..., Any]:
    """A query as a function of the arrays of a plain call, in order; of the robot's last link, where it is about one.

    An attribute looked up now: after the first answer it may be a quicker function.
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
    """A peer that is not installed, or that cannot take this robot; says why."""


@dataclass(frozen=True)
class Prepared:
    """A contender with its inputs laid out: `run` answers all `states` of them once, `answers` says what came out."""

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
    """Whether it answers one state a call, called from a loop in Python, or a whole batch in one call."""
    prepare: Callable[[States], Prepared]
    ours: bool = False
    tolerance: float | None = None
    """How far its answers may be from ours, if not as usual for its dtype."""
    overhead: Callable[[float], Timing] | None = None
    """Measures, within n seconds, what one call costs whatever the robot."""
    overhead_name: str = ""
    """What is left of a call without its overhead."""


class Peer(Protocol):
    """Another library, with the model of one robot."""

    name: str
    """Name and version."""
    notes: tuple[str, ...]
    """What to know when comparing."""

    def contenders(self, query: str, threads: Sequence[int]) -> list[Contender]:
        """Its ways to answer a query; none where it has none."""


def draw(model: Model, count: int, seed: int = 0) -> dict[str, Array]:
    """Random states: q within limits, everything else between -1 and 1."""
    rng = np.random.default_rng(seed)
    q = model.random_configuration(rng, (count,))
    qd, qdd, tau = rng.uniform(-1.0, 1.0, (3, count, model.nv))
    return {"q": q, "qd": qd, "qdd": qdd, "tau": tau, "vector": rng.uniform(-1.0, 1.0, (count, model.nv))}


def repeated(states: States, batch: int) -> dict[str, Array]:
    """A batch of any size made of the same states over and over, so that each of its rows has a known answer."""
    return {name: np.resize(array, (batch, *array.shape[1:])) for name, array in states.items()}


def available_threads() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_by_one(
    call: Callable[..., Any], rows: Sequence[tuple[Any, ...]], read: Callable[[Any, int], Answers]
) -> Prepared:
    """A call that takes one state, in a loop over the arguments `rows`.

    `read` makes one state's answer of what a call returned and the row's number; nobody looks at it while timing.
    """

    def run() -> None:
        for arguments in rows:
            call(*arguments)

    def answers() -> Answers:
        each = [read(call(*arguments), row) for row, arguments in enumerate(rows)]
        return tuple(np.array(column) for column in zip(*each, strict=True))

    return Prepared(run, answers, len(rows))


def own_contenders(dyn: Dynamics, query: str, threads: int) -> tuple[Contender, Contender]:
    """Ours: one state a call, as users write it; and a batch, results written to the same `out` every time."""
    question, dtype = QUERIES[query], str(dyn.dtype)

    def given(states: States) -> list[Array]:
        return [states[name].astype(dyn.dtype, copy=False) for name in question.plain]

    def warm(*arguments: Any, **options: Any) -> Callable[..., Any]:
        """The query, looked up after its first answer."""
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
