"""One step of tasks with strict priorities, on scalars.

With S S = M of the module `robodyn.solve.inverse_kinematics.levenberg`, steps are S x. J_k are the rows of level k and
e_k its errors. Each level acts in the null space N_k of those above it, and corrects what they have changed (Siciliano
and Slotine, A general framework for managing multiple tasks in highly redundant robotic systems, 1991):

    B_k = J_k S N_k                 x += B_k' (B_k B_k' + lambda_k)^-1 (e_k - J_k S x)
    N_0 = 1                         N_k+1 = N_k - N_k B_k' (B_k B_k' + least)^-1 B_k

The lambda of lower levels is proportional to their error, as they need not reach their targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robodyn.algorithms.definite import Definite, is_zero, product
from robodyn.solve.inverse_kinematics.residuals import Rows, times
from robodyn.solve.inverse_kinematics.secondary import Aside

_BEND = 0.1
"""lambda of lower levels, relative to their error times the size of their rows. Tasks take the fewest steps with it,
whether they can be done or not."""
_TINY = 1e-30
"""Avoids the root of zero."""


class Damped:
    """The system B x = e of rows with damping.

    Args:
        B: rows.
        by_row: what is added to the diagonal of B B', for each row.
        common: what is added to the diagonal of B' B, which is used where there are fewer columns than rows.
    """

    def __init__(self, B: list[list[Any]], by_row: Sequence[Any], common: Any) -> None:
        n, m = len(B[0]), len(B)
        self.B, self._wide = B, m <= n
        if self._wide:
            lower = [[product(B[i], B[k]) for k in range(i + 1)] for i in range(m)]
            diagonal: Sequence[Any] = by_row
        else:
            self._columns = [[row[k] for row in B] for k in range(n)]
            lower = [[product(self._columns[i], self._columns[k]) for k in range(i + 1)] for i in range(n)]
            diagonal = [common] * n
        for i, each in enumerate(diagonal):
            lower[i][i] = lower[i][i] + each
        self._factors = Definite(lower)

    def solved(self, errors: Sequence[Any]) -> list[Any]:
        """B' (B B' + lambda)^-1 e, or (B' B + lambda)^-1 B' e, which is equal."""
        return self.with_multipliers(errors)[0]

    def with_multipliers(self, errors: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """x, and what is proportional to the multipliers y: x = B' y."""
        if not self._wide:
            x = self._factors.solved([product(column, errors) for column in self._columns])
            return x, [e - product(row, x) for e, row in zip(errors, self.B, strict=True)]
        y = self._factors.solved(errors)
        return [product([row[k] for row in self.B], y) for k in range(len(self.B[0]))], y

    def without(self, x: list[Any]) -> list[Any]:
        """x less its part that changes the rows."""
        part = self.solved([product(row, x) for row in self.B])
        return [a if is_zero(b) else a - b for a, b in zip(x, part, strict=True)]


def step_of(
    rows: Rows,
    free: Sequence[Any],
    slide: Sequence[Any],
    damping: Any,
    floor: tuple[Any, Any],
    aside: Aside | None,
    pull: Any,
    levels: int,
) -> tuple[list[Any], list[Any] | None]:
    """dq of all levels, and multipliers of rows if there is only one level.

    Args:
        rows: errors and Jacobians.
        free, slide: factors of S: 0 for joints that must not move, and how far others slide.
        damping: of the first level.
        floor: smallest lambda for rows of size one, and for degrees of freedom.
        aside: where secondary goals lead, if there are any. It is moved to the null space of all rows.
        pull: 1, or 0 for the first level alone.
        levels: how many there are.
    """
    scale = [a * b for a, b in zip(free, slide, strict=True)]
    least = [floor[0] * size**2 for size in rows.sizes]
    onward = None
    if aside is not None:
        onward = [0.0 if is_zero(a) else a * each for a, each in zip(aside.step, free, strict=True)]
    if levels == 1 and (aside is None or aside.linear):
        errors = rows.errors
        if onward is not None:
            errors = [e - product(row, onward) for e, row in zip(errors, rows.J, strict=True)]
        system = Damped(_scaled(rows.J, scale), [damping + each for each in least], damping + floor[1])
        solved, y = system.with_multipliers(errors)
        dq = [along * each for along, each in zip(slide, solved, strict=True)]
        return (dq if onward is None else [a + b for a, b in zip(dq, onward, strict=True)]), y
    x: list[Any] = [0.0] * len(scale)
    above: list[Damped] = []
    for level in range(levels):
        which = rows.of(level)
        if not which:
            continue
        B = JS = _scaled([rows.J[i] for i in which], scale)
        for each in above:
            B = [each.without(row) for row in B]
        errors = [rows.errors[i] - product(row, x) for i, row in zip(which, JS, strict=True)]
        if level:
            damping = _BEND * np.sqrt(rows.cost(level) + _TINY) * max(rows.sizes[i] for i in which)
        step = Damped(B, [damping + least[i] for i in which], damping + floor[1]).solved(errors)
        x = [a + b for a, b in zip(x, times(pull, step) if level else step, strict=True)]
        if level < levels - 1 or onward is not None:
            above.append(Damped(B, [least[i] for i in which], floor[1]))
    if onward is not None:
        assert aside is not None
        z = [0.0 if is_zero(a) else a / along for a, along in zip(onward, slide, strict=True)]
        for each in above:
            z = each.without(z)
        x = [a + b for a, b in zip(x, aside.shortened(z), strict=True)]
    return [along * each for along, each in zip(slide, x, strict=True)], None


def _scaled(J: Sequence[Sequence[Any]], scale: Sequence[Any]) -> list[list[Any]]:
    """J S."""
    return [[x if is_zero(x) else x * each for x, each in zip(row, scale, strict=True)] for row in J]
