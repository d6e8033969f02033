"""Measures the error of float32 results by comparison with float64 at a few rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from robodyn.internals.arguments import Array

JUDGED_ROWS = 4
TOLERATED = 1e-2
"""Errors above this, relative to the result's largest entry in the row, are reported."""
_ZERO = 1e-9
"""Results below this multiple of the typical magnitude count as zero: they are rounding errors of terms that cancel."""


class Loss(NamedTuple):
    """The result with the largest relative error, the error (infinite if the result is not finite), and the row."""

    result: str
    error: float
    row: int

    def __str__(self) -> str:
        if np.isinf(self.error):
            return f"{self.result} is not finite"
        return f"{self.result} is off by {self.error:.0e} of its largest entry"


def judged_rows(batch: int) -> Array:
    """Rows of a batch to be judged: at most four, evenly spaced."""
    return np.unique(np.linspace(0, batch - 1, min(batch, JUDGED_ROWS)).astype(np.intp))


def worst_loss(got: Mapping[str, Array], wanted: Mapping[str, Array], sizes: Mapping[str, Array]) -> Loss | None:
    """The largest error of results (rows, ...) compared with the right ones; None if all are tolerable.

    `sizes` (rows,): typical magnitude of each result, to a few orders of magnitude. Rows whose right result is not
    finite are skipped.
    """
    worst = None
    with np.errstate(all="ignore"):
        for name, right in wanted.items():
            axes = tuple(range(1, right.ndim))
            largest = np.abs(right).max(axis=axes, initial=0.0)
            error = np.abs(got[name] - right).max(axis=axes, initial=0.0) / largest
            error = np.where(np.isnan(error), np.inf, error)
            error = np.where(np.isfinite(largest) & (largest > _ZERO * sizes[name]), error, 0.0)
            row = int(error.argmax())
            if error[row] > (TOLERATED if worst is None else worst.error):
                worst = Loss(name, float(error[row]), row)
    return worst
