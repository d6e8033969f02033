"""What a query would run, and why."""

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
    """What `dyn` runs for a query of a batch (`Dynamics.explain`)."""
    asked = asked_of(dyn.model)
    question = asked[query := one_of("query", query, tuple(asked))]
    batch, engine = count("batch", batch, 1, _MOST_STATES), dyn.engine.name
    chooses = dyn._options.chooses
    found = current_table().estimates(query, dyn.dtype.name, dyn.model, batch) if chooses else {}
    if found:
        return _scheduled(dyn, query, batch, found)
    if not question.is_answered_by(engine):
        answering = ", ".join(map(repr, question.engines))
        raise UnavailableError(f"engine: {engine!r} does not answer {query!r}; engines that do: {answering}")
    dyn._require_possible(question)
    return dyn.engine.explain(question, batch)


def _scheduled(dyn: Dynamics, query: str, batch: int, found: Mapping[str, float]) -> Explanation:
    """What the engine with the least estimate runs."""
    there = {}
    for name in found:
        with suppress(UnavailableError):  # measured once, and gone since
            there[name] = dyn.variant(engine=name)
    answering = next(iter(there.values()), None) or dyn.variant(engine=dyn.engine.name)
    inner = explain(answering, query, batch)
    reason = f"the fastest of the engines measured nearest to this call; {inner.reason}"
    return replace(inner, reason=reason, estimates={name: found[name] for name in there})
