"""Forward dynamics by scans, judged by what inverse dynamics of another engine makes of the accelerations."""

from __future__ import annotations

from typing import Any

import numpy as np
from conftest import random_states

import robodyn as rd
from robodyn.engines.scan import ScanOptions
from robodyn.joints import KINDS

EVERY_KIND = tuple(kind.name for kind in KINDS)
"""Joints whose bodies all have inertia: a universal joint is two, with nothing in between."""


def everything(model: rd.Model, shape: tuple[int, ...], seed: int) -> dict[str, np.ndarray]:
    """External forces and a moving base."""
    rng = np.random.default_rng(seed)
    return {
        "f_ext": rng.uniform(-5, 5, (*shape, model.n_bodies, 6)),
        "V0": rng.uniform(-1, 1, (*shape, 6)),
        "dV0": rng.uniform(-1, 1, (*shape, 6)),
    }


def residual(
    model: rd.Model,
    method: str,
    shape: tuple[int, ...] = (),
    seed: int = 0,
    *,
    scan: ScanOptions | None = None,
    dtype: str = "float64",
    engine: Any = "reference",
    **given: np.ndarray,
) -> float:
    """|ID(FD(tau)) - tau| / max |tau|, tau being the torques of random accelerations; infinite for NaN."""
    q, qd, qdd = random_states(model, shape, seed)
    judge = rd.Dynamics(model, engine=engine)
    tau = judge.inverse_dynamics(q, qd, qdd, **given)
    found = rd.Dynamics(model, engine="scan", dtype=dtype, scan=scan).forward_dynamics(
        q, qd, tau, method=method, **given
    )
    assert found.shape == tau.shape and found.dtype == dtype
    error = np.abs(judge.inverse_dynamics(q, qd, found.astype(float), **given) - tau).max(initial=0.0)
    return float(np.inf if np.isnan(error) else error / max(np.abs(tau).max(initial=0.0), 1e-3))
