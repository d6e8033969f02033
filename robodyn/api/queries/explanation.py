"""Implements `Dynamics.explain`: which engine and method answer a query, and why."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from robodyn.api.queries.engine_selector import current_table
from robodyn.engines.protocol import Explanation
from robodyn.engines.query_table import asked_of
from robodyn.internals.arguments import count, one_of
from robodyn.internals.errors import UnavailableError

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics

_MOST_STATES = 1 << 40


def explain(dyn: Dynamics, query: str, batch: int) -> Explanation:
    """Engine, method and reason for a query of a batch (see `Dynamics.explain`)."""
    queries = asked_of(dyn.model)
    question = queries[query := one_of("query", query, tuple(queries))]
    batch, engine = count("batch", batch, 1, _MOST_STATES), dyn.engine.name
    chooses = dyn._options.chooses
    estimates = current_table().estimates(query, dyn.dtype.name, dyn.model, batch) if chooses else {}
    if estimates:
        return _scheduled(dyn, query, batch, estimates)
    if not question.is_answered_by(engine):
        answering = ", ".join(map(repr, question.engines))
        raise UnavailableError(f"engine: {engine!r} does not answer {query!r}; engines that do: {answering}")
    dyn._require_possible(question)
    return dyn.engine.explain(question, batch)


def _scheduled(dyn: Dynamics, query: str, batch: int, found: Mapping[str, float]) -> Explanation:
    """The explanation of the available engine with the least measured time."""
    available = {}
    for name in found:
        with suppress(UnavailableError):  # the table may name an engine that is no longer installed
            available[name] = dyn.variant(engine=name)
    fastest = next(iter(available.values()), None) or dyn.variant(engine=dyn.engine.name)
    inner = explain(fastest, query, batch)
    reason = f"the fastest of the engines measured nearest to this call; {inner.reason}"
    return replace(inner, reason=reason, estimates={name: found[name] for name in available})
