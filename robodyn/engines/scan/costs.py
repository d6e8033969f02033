"""Estimates which method is fastest, with a cost model that is fitted to measurements on a machine.

The time of a method is a sum of terms with nonnegative coefficients: a constant for the call, the sequential rounds of
scans, the work on all bodies of all states, and the entries and the factorisation of the mass matrix for methods that
compute it. The tree's shape enters through the rounds, which depend on the lengths of heavy paths.

Yang, Wu and Pan (2016) leave an automatic choice between their algorithms to future work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robodyn.core.model import Model
from robodyn.engines.memory import available
from robodyn.engines.scan.methods import methods_of
from robodyn.engines.scan.states import Layout
from robodyn.engines.scan.trees.branches import branches_of
from robodyn.engines.tuning_store import coefficients, keep_coefficients
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import BRANCHES_FOR_DENSE, SMALL_MATRIX

TERMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("rnea", "rnea_world", "twist_pair"), ("call", "rounds", "bodies")),
    **dict.fromkeys(("aba_scan", "hybrid_abia", "hybrid_abia_fused"), ("call", "rounds", "bodies")),
    **dict.fromkeys(("crba", "jsiia"), ("call", "rounds", "bodies", "pairs", "factor")),
}
"""The terms of each method's cost. The constraint force algorithm is missing, so it is never chosen automatically: it
loses accuracy on long chains."""

Coefficients = Mapping[str, Sequence[float]]
"""Seconds per unit of each term, by method."""


@dataclass(frozen=True)
class Costs:
    """Coefficients of all methods, and a text that describes their source."""

    coefficients: Coefficients
    source: str


def terms(layout: Layout, method: str, batch: int) -> np.ndarray:
    """The amount of each term of a method, for a call with `batch` states."""
    n, nv = layout.n, layout.model.nv
    pieces, branches = -(-batch // layout.states_at_once), branches_of(layout)
    amounts = {
        "call": 1.0,
        "rounds": float(layout.rounds * pieces),
        "bodies": float(n * batch),
        "pairs": float((n * nv if method == "jsiia" else branches.pairs) * batch),
        "factor": min(nv**3 / 3.0, BRANCHES_FOR_DENSE * branches.squares) * batch,
    }
    return np.array([amounts[name] for name in TERMS[method]])


def estimate(costs: Costs, layout: Layout, method: str, batch: int) -> float:
    """The estimated time of a method, in seconds."""
    return float(terms(layout, method, batch) @ np.asarray(costs.coefficients[method]))


def choices_of(question: str, model: Model | None = None) -> tuple[str, ...]:
    """The methods among which the automatic choice of a query selects; empty if the query has one method only. With
    `model`, only methods that can handle that model."""
    methods = methods_of(question, model)
    return tuple(name for name in methods if name in TERMS) if len(methods_of(question)) > 1 else ()


def estimates(costs: Costs, layout: Layout, query: str, batch: int) -> dict[str, float]:
    """Estimated seconds by method, the fastest first, for methods that can answer the query on the layout's model."""
    possible = [name for name in choices_of(query, layout.model) if _has_room(layout, name, batch)]
    seconds = {name: estimate(costs, layout, name, batch) for name in possible}
    return dict(sorted(seconds.items(), key=lambda item: item[1]))


def _has_room(layout: Layout, method: str, batch: int) -> bool:
    if method not in ("crba", "jsiia") or layout.model.nv <= SMALL_MATRIX:
        return True
    return batch * layout.model.nv**2 * layout.dtype.itemsize < available() / 4


BUILT_IN = Costs(
    {
        "rnea": (6.5e-4, 1.3e-4, 7.9e-7),
        "rnea_world": (9.4e-4, 5.0e-5, 5.3e-7),
        "twist_pair": (3.7e-4, 1.7e-4, 2.8e-7),
        "aba_scan": (3.6e-4, 3.1e-4, 8.1e-7),
        "hybrid_abia": (2.1e-3, 2.2e-4, 2.3e-6),
        "hybrid_abia_fused": (1.9e-3, 1.8e-4, 2.5e-6),
        "crba": (1.3e-3, 2.4e-4, 2.0e-6, 2.0e-8, 2.9e-11),
        "jsiia": (1.4e-3, 2.3e-4, 5.4e-6, 1.2e-6, 4.9e-9),
    },
    "built in: one core of a Zen 3 server processor",
)
"""Costs for machines without measurements."""


_SECTION = "scans"


def measured_costs() -> Costs | None:
    """The stored costs that were measured on this machine, or None."""
    stored = coefficients(_SECTION, TERMS)
    return None if stored is None else Costs(*stored)


def keep(costs: Costs) -> bool:
    """Store measured costs for other processes. Returns False if that fails."""
    return keep_coefficients(_SECTION, costs.coefficients, costs.source)


def current_costs() -> Costs:
    """The costs measured on this machine, or the built-in ones."""
    return measured_costs() or BUILT_IN
