"""Base parameters: the combinations of inertial parameters that inverse dynamics depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robodyn.core.model import generator_of
from robodyn.internals.arguments import Array, count
from robodyn.internals.errors import NumericalError
from robodyn.internals.records import dataclass

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics

_ROWS = 5
"""Regressor rows per column, by default."""
_DEPENDENT, _INDEPENDENT = 1e-9, 1e-6
"""Thresholds for the relative norm of a column after projecting out the previous ones. Below the first the column is
dependent, above the second independent; a norm in between raises."""
_NOTHING = 1e-12
"""Columns that are smaller, relative to the largest, are zero; of measured data those below `_DEPENDENT`."""
_LEFT_OUT = 1e-9
"""Smaller coefficients, relative to the largest of their column, are rounding errors and become zero."""


@dataclass(frozen=True)
class BaseParameters:
    """A basis of the inertial parameters that torques depend on.

    `columns` (b,): indices of the regressor's basis columns. `matrix` (b, 10 n_bodies): the base parameters are
    `matrix @ model.inertia.ravel()`, and the regressor is `regressor[..., columns] @ matrix`.
    """

    columns: Array
    matrix: Array

    @property
    def rank(self) -> int:
        """How many base parameters there are."""
        return int(self.columns.size)


def base_parameters(dyn: Dynamics, states: int | None, rng: object) -> BaseParameters:
    """See `Dynamics.base_parameters`."""
    if dyn.dtype != np.float64:  # float32 has too few digits to tell dependent columns from independent ones
        dyn = type(dyn)(dyn.model)
    model = dyn.model
    columns, generator = 10 * model.n_bodies, generator_of(rng)
    if not model.nv:
        return BaseParameters(np.empty(0, np.intp), np.zeros((0, columns)))
    minimum = -(-_ROWS * columns // model.nv)
    n = minimum if states is None else count("states", states, 1, 10**7)

    def rows(n: int) -> Array:
        q = model.random_configuration(generator, (n,))
        qd, qdd = generator.standard_normal((2, n, model.nv))
        return np.asarray(dyn.regressor(q, qd, qdd), np.float64).reshape(-1, columns)

    base = basis(rows(n))
    others = rows(max(minimum // 4, 1))
    error = np.abs(others[:, base.columns] @ base.matrix - others).max(initial=0.0)
    if not error <= 1e-7 * np.abs(others).max(initial=0.0):
        raise NumericalError(
            f"base_parameters: {n} states of {model.name!r} do not tell which parameters torques depend on: the "
            f"basis that they give is {error:.1e} off at others; give more states"
        )
    return base


def basis(Y: Array, strict: bool = True) -> BaseParameters:
    """Basis of the columns of Y: the columns independent of previous ones, and the coefficients of all columns.

    `strict`: refuse a column that is neither; else it counts as dependent, as of measured data that hardly tell it.
    """
    sizes = np.linalg.norm(Y, axis=0)
    used = np.flatnonzero(sizes > (_NOTHING if strict else _DEPENDENT) * sizes.max(initial=0.0))
    scaled: Array = np.linalg.qr(Y[:, used] / sizes[used], mode="r")  # type: ignore[assignment]  # columns depend on each other as before
    chosen: list[int] = []
    basis = np.empty_like(scaled)
    for k in range(used.size):
        remainder, previous = scaled[:, k], basis[:, : len(chosen)]
        for _ in range(2):  # reorthogonalise once: rounding leaves a remainder
            remainder = remainder - previous @ (previous.T @ remainder)
        size = float(np.linalg.norm(remainder))
        if size > _INDEPENDENT:
            basis[:, len(chosen)] = remainder / size
            chosen.append(k)
        elif strict and size > _DEPENDENT:
            raise NumericalError(
                f"base_parameters: parameter {int(used[k])} is neither independent of those before it nor a "
                f"combination of them: {size:.1e} of its column is left; give more states"
            )
    matrix = np.zeros((len(chosen), Y.shape[1]))
    coefficients = np.linalg.lstsq(scaled[:, chosen], scaled, rcond=None)[0]
    coefficients *= sizes[used] / sizes[used[chosen], None]
    coefficients[np.abs(coefficients) < _LEFT_OUT * np.abs(coefficients).max(axis=0, initial=0.0)] = 0.0
    coefficients[:, chosen] = np.eye(len(chosen))
    matrix[:, used] = coefficients
    return BaseParameters(used[chosen], matrix)
