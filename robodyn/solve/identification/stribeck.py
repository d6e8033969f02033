"""Speeds of the Stribeck effect: the only unknowns that torques are not linear in.

All linear unknowns are eliminated (variable projection, Golub and Pereyra 1973): what a speed explains is the part of
its column that the others cannot, in units of that column.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]

from robodyn.api.queries.base_parameters import basis
from robodyn.internals.arguments import Array
from robodyn.solve.identification.rows import Samples

_SWEEPS, _GRID = 2, 24
_SLOWEST, _FASTEST = 0.02, 1.0
"""Speeds that are tried, relative to the largest of the joint."""
_MOST = 2_000
"""Samples that are looked at: a speed needs no more."""
_NOTHING = 1e-9
"""The part of a column, relative to its square, that counts as none."""
_ROUGH = {"xatol": 1e-3}


def find_speeds(samples: Samples, noise: Array) -> None:
    """Set `samples.speeds` to those that explain the torques best, and `samples.sizes` to what goes with them."""
    few = samples.some(_MOST)
    joints, first = few.unknowns.joints, few.unknowns.part("stribeck").start
    fastest = np.abs(few.motion[1][:, joints]).max(axis=0)
    few.speeds = np.where(fastest > 0.0, 0.1 * fastest, 1.0)
    pieces = list(few.equations(noise))
    A, b = np.concatenate([each[0] for each in pieces]), np.concatenate([each[1] for each in pieces])
    felt = basis(np.asarray(np.linalg.qr(A, mode="r")), strict=False).columns
    for _ in range(_SWEEPS):
        for k in np.flatnonzero(fastest > 0.0):
            others = A[:, felt[felt != first + k]]
            R = np.asarray(np.linalg.qr(others, mode="r"))
            Q = np.linalg.solve(R.T, others.T)
            rest = b - Q.T @ (Q @ b)

            def explained(log_speed: float, k: int = int(k), Q: Array = Q, rest: Array = rest) -> float:
                few.speeds[k] = np.exp(log_speed)
                column = few.column(first + k, noise)
                own = float(column @ column) - float(np.sum((Q @ column) ** 2))
                return float(column @ rest) ** 2 / max(own, _NOTHING * float(column @ column), _NOTHING)

            tried = np.log(fastest[k] * np.geomspace(_SLOWEST, _FASTEST, _GRID))
            best = int(np.argmax([explained(each) for each in tried]))
            around = tried[max(0, best - 1)], tried[min(_GRID - 1, best + 1)]
            found = minimize_scalar(lambda x, f=explained: -f(x), bounds=around, method="bounded", options=_ROUGH).x
            few.speeds[k] = np.exp(found)
            A[:, first + k] = few.column(first + k, noise)
    x = np.linalg.lstsq(A[:, felt], b, rcond=None)[0]
    sizes = dict(zip(felt.tolist(), x.tolist(), strict=True))
    samples.speeds = few.speeds
    samples.sizes = np.array([sizes.get(first + k, 0.0) for k in range(joints.size)])
