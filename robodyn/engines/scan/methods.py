"""The methods of the scan engine, by query, and the functions that run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from robodyn.core.model import Model
from robodyn.engines.query_table import QUERIES
from robodyn.engines.scan.algorithms.forward import FORWARD
from robodyn.engines.scan.algorithms.gradient import inverse_dynamics_gradient
from robodyn.engines.scan.algorithms.inverse import inverse_dynamics
from robodyn.engines.scan.algorithms.mass_matrix import mass_matrix
from robodyn.engines.scan.states import State
from robodyn.internals.arguments import Array

Answer: TypeAlias = Callable[[State, str, Sequence[Array]], None]
"""A function that fills the results (B, ...) of a query, in order, by the named method."""

_AS = dict.fromkeys(("bias_force", "gravity_force"), "inverse_dynamics")
"""Queries that are special cases of another query, with some inputs zero. They have the methods of that query."""
_ONLY: Mapping[str, tuple[str, ...]] = {"mass_matrix": ("crba",)}
"""The methods of queries with a single method."""


def _inverse(state: State, method: str, results: Sequence[Array]) -> None:
    state.generalised(inverse_dynamics(state, method), results[0])


def _forward(state: State, method: str, results: Sequence[Array]) -> None:
    FORWARD[method](state, results[0])


def _mass_matrix(state: State, method: str, results: Sequence[Array]) -> None:
    mass_matrix(state, results[0])


def _gradient(state: State, method: str, results: Sequence[Array]) -> None:
    inverse_dynamics_gradient(state, dict(zip(("tau_q", "tau_qd"), results, strict=True)))


ANSWERS: dict[str, Answer] = {
    "inverse_dynamics": _inverse,
    "bias_force": _inverse,
    "gravity_force": _inverse,
    "forward_dynamics": _forward,
    "mass_matrix": _mass_matrix,
    "inverse_dynamics_gradient": _gradient,
}
"""The function that answers each query."""


def methods_of(question: str, model: Model | None = None) -> tuple[str, ...]:
    """Names of the scan engine's methods for a query. With `model`, only methods that can handle that model."""
    if question in _ONLY:
        return _ONLY[question]
    row = QUERIES[_AS.get(question, question)]
    return row.methods_on("scan") if model is None else row.possible(model, "scan")
