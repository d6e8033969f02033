"""States that models are tested at, and how results are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.core.model import Model
from robodyn.engines.query_table import QUERIES
from robodyn.internals.arguments import Array, count
from robodyn.internals.records import dataclass

VALUES = {"float64": 1e-9, "float32": 2e-3}
"""Allowed differences of values, relative to the largest entry: some hundred roundings over deep trees."""
DIFFERENCES = 1e-5
"""Of derivatives by central differences with `STEP`, in float64 alone: h^2 truncation and 1e-16 / h rounding."""
STEP = 1e-5
_MOST_STATES = 10_000


@dataclass(frozen=True)
class States:
    """A batch of states that a dtype holds exactly: (n, nq) and (n, nv)."""

    q: Array
    qd: Array
    qdd: Array
    tau: Array


def draw(dyn: Dynamics, states: int, seed: int) -> States:
    """Random states of a model.

    Raises:
        ArgumentError: not a number of states from 1, or not a seed.
    """
    n = count("states", states, 1, _MOST_STATES)
    rng = np.random.default_rng(count("seed", seed, 0, 2**63 - 1))
    model = dyn.model
    q = model.random_configuration(rng, (n,)).astype(dyn.dtype).astype(np.float64)
    rates = rng.uniform(0.2, 1.5, (3, n, model.nv)) * rng.choice([-1.0, 1.0], (3, n, model.nv))
    return States(q, *rates.astype(dyn.dtype).astype(np.float64))


@dataclass(frozen=True)
class Sizes:
    """How large things of a model can be: `reach`, the sum of all lengths (m); `force`, what gravity can do (N m)."""

    reach: float
    force: float

    @classmethod
    def of(cls, model: Model) -> Sizes:
        """Those of a model."""
        with np.errstate(all="ignore"):
            lengths = [np.linalg.norm(X[:, 9:], axis=1).sum() for X in (model.Xtree, model.link_X)]
            reach = float(sum(lengths))
            mass = float(np.abs(model.inertia[:, 0]).sum())
            return cls(reach, mass * float(np.linalg.norm(model.gravity)) * reach)


SMALL = 1e-3
"""Of a size: what is smaller may be what is left after cancellation."""


def answers(dyn: Dynamics, *queries: str) -> bool:
    """Whether the engine answers these queries, of which not every engine knows all."""
    return all(dyn.engine.name in QUERIES[query].engines for query in queries)


def relative(got: Any, wanted: Any, least: float = 0.0) -> float:
    """Largest difference over the largest entry wanted, or over `least`; infinite where it is not a number."""
    got, wanted = (np.asarray(each, dtype=np.float64) for each in (got, wanted))
    if got.shape != wanted.shape:
        return float("inf")
    if wanted.size == 0:
        return 0.0
    with np.errstate(all="ignore"):
        error = np.abs(got - wanted).max() / max(np.abs(wanted).max(), least, np.finfo(float).tiny)
    return float("inf") if np.isnan(error) else float(error)


def require(model: Model, what: str, errors: Mapping[str, tuple[float, float]]) -> None:
    """Raise unless every error (name: error, allowed) is allowed.

    Raises:
        AssertionError: names each that is not.
    """
    wrong = [
        f"{name}: off by {error:.1e}, allowed {allowed:.0e}"
        for name, (error, allowed) in errors.items()
        if not error <= allowed
    ]
    if wrong:
        raise AssertionError("\n  ".join([f"{model.name!r} and {what} disagree:", *wrong]))
