"""What is compared with an oracle, at which states, and how the difference is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import robodyn as rd

Array = NDArray[np.float64]
Oracle = Any
"""An object with the queries of `robodyn.Dynamics`, each about a batch (B, ...) of states."""

N_STATES = 10
FAR = 100.0
"""Angles (rad) and lengths (m) beyond this come from limits that mean "none"; such a state is drawn anew."""


@dataclass(frozen=True)
class States:
    """Random states of one robot, and the links to be asked about. `tau` moves it about as `qdd` does; `effort` is of
    one size for all joints, however light what they move."""

    q: Array
    qd: Array
    qdd: Array
    f_ext: Array
    V0: Array
    dV0: Array
    step: Array
    tau: Array
    effort: Array
    links: tuple[int, ...]


def random_states(oracle: Oracle, links: tuple[int, ...], seed: int, n: int = N_STATES) -> States:
    """`n` states away from rest; prints the seed, so that a failure can be repeated."""
    model = oracle.model
    print(f"states of {model.name}: seed {seed}")
    rng = np.random.default_rng(seed)

    def away_from_zero(*shape: int) -> Array:
        return rng.uniform(0.2, 1.5, shape) * rng.choice([-1.0, 1.0], shape)

    q = model.random_configuration(rng, (n,))
    q = np.where(np.abs(q) > FAR, away_from_zero(n, model.nq), q)
    qd, qdd, other, effort, step = (away_from_zero(n, model.nv) for _ in range(5))
    f_ext, V0, dV0 = away_from_zero(n, model.n_bodies, 6), away_from_zero(n, 6), away_from_zero(n, 6)
    tau = oracle.inverse_dynamics(q, qd, other, f_ext)
    return States(q, qd, qdd, f_ext, V0, dV0, step, tau, effort, links)


@dataclass(frozen=True)
class Quantity:
    """One comparison: our answer, the oracle's, and the largest difference allowed, relative to the largest entry of
    the oracle's answer at the same state.

    `least` is the smallest entry to be relative to, where forces or motions cancel: `ONE` or `INERTIA` times
    `CANCELLED`. `inverts`: whether H is inverted; the tolerance is then at least `INVERSION` times the difference
    between Pinocchio's inverse and that of its H by NumPy.
    """

    name: str
    group: str
    ours: Callable[[rd.Dynamics, Oracle, States], Any]
    wanted: Callable[[Oracle, States], Any]
    tolerance: float = 1e-10
    least: str = "one"
    inverts: bool = False


CANCELLED = 1e-3
INVERSION = 10.0
