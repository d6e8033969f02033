"""What single precision leaves of a result, by comparison with double precision at a few rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from robodyn.internals.arguments import Array

JUDGED_ROWS = 4
TOLERATED = 1e-2
"""Error, relative to the largest entry of a result at that row, from which it is reported."""
_ZERO = 1e-9
"""Results that are so small beside what is usual count as zero: what roundings leave of numbers that cancel."""


class Loss(NamedTuple):
    """The result with the largest relative error, the error (infinite where the result is not finite), the row."""

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
    """The worst of results (rows, ...) beside the right ones, or None where all are tolerable.

    `sizes` (rows,): about how large results usually are; a few orders of magnitude do not matter. Rows whose right
    result is not finite say nothing.
    """
    found = None
    with np.errstate(all="ignore"):
        for name, right in wanted.items():
            axes = tuple(range(1, right.ndim))
            largest = np.abs(right).max(axis=axes, initial=0.0)
            error = np.abs(got[name] - right).max(axis=axes, initial=0.0) / largest
            error = np.where(np.isnan(error), np.inf, error)
            error = np.where(np.isfinite(largest) & (largest > _ZERO * sizes[name]), error, 0.0)
            row = int(error.argmax())
            if error[row] > (TOLERATED if found is None else found.error):
                found = Loss(name, float(error[row]), row)
    return found
