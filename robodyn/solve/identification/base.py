"""Base parameters of measured data: which combinations can be felt, least squares, and covariances."""

from __future__ import annotations

import numpy as np

from robodyn.api.queries.base_parameters import BaseParameters, basis
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError
from robodyn.internals.records import dataclass

CONFIDENCE = 3.841458820694124
"""95 % of squares of a standard normal variable are smaller."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """Least squares in units of the noise.

    `R` (p, p), `d` (p,): the equations R x = d of all parameters; `base`: which combinations can be felt; `values` (b,)
    of them and `covariance` (b, b) for noise of one unit; `misfit`: the variance that is left, in units of the noise,
    of `rows` equations; `condition`: of the equations of base parameters, each in units of its own effect.
    """

    R: Array
    d: Array
    base: BaseParameters
    values: Array
    covariance: Array
    misfit: float
    rows: int
    condition: float

    @property
    def bounds(self) -> Array:
        """(b, 2) 95 % confidence intervals of base parameters, from the covariance."""
        half = np.sqrt(CONFIDENCE * np.diag(self.covariance))
        return np.column_stack((self.values - half, self.values + half))


def estimate(factor: Array, rows: int) -> Estimate:
    """From the triangular factor of equations beside their right-hand sides (`rows.factor`).

    Raises:
        ArgumentError: there are not more equations than base parameters.
    """
    R, d, left = factor[:-1, :-1], factor[:-1, -1], float(factor[-1, -1])
    base = basis(R, strict=False)
    if rows <= base.rank:
        raise ArgumentError(
            f"identify: {rows} equations for {base.rank} base parameters; wanted more samples, or fewer unknowns"
        )
    Q, S = np.linalg.qr(R[:, base.columns])
    values = np.linalg.solve(S, Q.T @ d)
    inverse = np.linalg.inv(S)
    missed = d - R[:, base.columns] @ values
    misfit = (left**2 + float(missed @ missed)) / (rows - base.rank)
    sizes = np.linalg.norm(S, axis=0)
    condition = float(np.linalg.cond(S / sizes)) if base.rank else 1.0
    return Estimate(R, d, base, values, inverse @ inverse.T, misfit, rows, condition)
