"""States for tests of models, and comparison of results with tolerances."""

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
"""Tolerances of values relative to the largest entry: some hundred rounding errors in deep trees."""
DIFFERENCES = 1e-5
"""Tolerance of central differences with `STEP`, float64 only: truncation error h^2, rounding error 1e-16 / h."""
STEP = 1e-5
_MOST_STATES = 10_000


@dataclass(frozen=True)
class States:
    """A batch of states, (n, nq) and (n, nv), that the dtype represents exactly."""

    q: Array
    qd: Array
    qdd: Array
    tau: Array


def draw(dyn: Dynamics, states: int, seed: int) -> States:
    """Random states of a model.

    Raises:
        ArgumentError: `states` is no positive integer, or `seed` is no seed.
    """
    n = count("states", states, 1, _MOST_STATES)
    rng = np.random.default_rng(count("seed", seed, 0, 2**63 - 1))
    model = dyn.model
    q = model.random_configuration(rng, (n,)).astype(dyn.dtype).astype(np.float64)
    rates = rng.uniform(0.2, 1.5, (3, n, model.nv)) * rng.choice([-1.0, 1.0], (3, n, model.nv))
    return States(q, *rates.astype(dyn.dtype).astype(np.float64))


@dataclass(frozen=True)
class Sizes:
    """Magnitudes of a model: `reach`, the sum of all lengths (m); `force`, the largest gravity torque (N m)."""

    reach: float
    force: float

    @classmethod
    def of(cls, model: Model) -> Sizes:
        """The magnitudes of a model."""
        with np.errstate(all="ignore"):
            lengths = [np.linalg.norm(X[:, 9:], axis=1).sum() for X in (model.Xtree, model.link_X)]
            reach = float(sum(lengths))
            mass = float(np.abs(model.inertia[:, 0]).sum())
            return cls(reach, mass * float(np.linalg.norm(model.gravity)) * reach)


SMALL = 1e-3
"""Values below this fraction of a magnitude may be remainders of cancellation."""


def answers(dyn: Dynamics, *queries: str) -> bool:
    """Whether the engine answers all of these queries."""
    return all(dyn.engine.name in QUERIES[query].engines for query in queries)


def relative(got: Any, wanted: Any, least: float = 0.0) -> float:
    """Largest difference relative to the largest entry of `wanted`, or to `least`; infinite for NaN."""
    got, wanted = (np.asarray(each, dtype=np.float64) for each in (got, wanted))
    if got.shape != wanted.shape:
        return float("inf")
    if wanted.size == 0:
        return 0.0
    with np.errstate(all="ignore"):
        error = np.abs(got - wanted).max() / max(np.abs(wanted).max(), least, np.finfo(float).tiny)
    return float("inf") if np.isnan(error) else float(error)


def require(model: Model, what: str, errors: Mapping[str, tuple[float, float]]) -> None:
    """Raise unless every error is within its tolerance. `errors`: (error, tolerance) by name.

    Raises:
        AssertionError: names each error that is not.
    """
    wrong = [
        f"{name}: off by {error:.1e}, allowed {allowed:.0e}"
        for name, (error, allowed) in errors.items()
        if not error <= allowed
    ]
    if wrong:
        raise AssertionError("\n  ".join([f"{model.name!r} and {what} disagree:", *wrong]))
