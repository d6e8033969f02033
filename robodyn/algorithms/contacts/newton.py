"""Newton's method for accelerations under soft rows.

    minimise  1/2 (a - a0)' H (a - a0) + sum s_i(J a - a_ref)

Steps p have length 1 without *looks*, slopes on the line. Else length 1 is taken if the slope there is at most half of
that at the start, or some looks find a better length: Newton's method inside a bracket, or else the secant of the
bracket's ends or its middle. The error of the answer is bounded: |a - a*| <= |g| in the norms of H and H^-1, as the
cost is strongly convex. Rounding of the forces of stiff rows exceeds this bound, but not the last step, which divides
by their stiffness.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robodyn.algorithms.contacts.rows import Group
from robodyn.algorithms.definite import TreeFactors, is_zero, product
from robodyn.core.joints import flat
from robodyn.core.spatial import select

_ACCEPTED = 0.5
_INNER = 0.02
_FAR = 1e12
_TINY = 1e-30
_DOUBT = 10.0
"""How many times as long as the last step the error may be."""
_LARGEST = 3e38
"""Beyond all accelerations, in both precisions."""


class Newton:
    """The state of the iterations.

    Args:
        H: mass matrix (nv, nv).
        force: H a0.
        groups: soft rows.
        start: accelerations, or None for a0.
    """

    def __init__(
        self, H: Sequence[Sequence[Any]], force: Sequence[Any], groups: Sequence[Group], start: Sequence[Any] | None
    ) -> None:
        self._H, self._groups, self._force = H, groups, force
        self._factors = TreeFactors(H)
        self._free = self._factors.solve(force)
        self.a = self._free if start is None else list(start)
        self._residual = [m - f for m, f in zip(self._times_H(self.a), force, strict=True)]  # H (a - a0)
        self._x = self._residuals(self.a, True)
        self._stepped: Any = _FAR  # p' H p of the last step

    def _times_H(self, vector: Sequence[Any]) -> list[Any]:
        return [product(row, vector) for row in self._H]

    def _residuals(self, vector: Sequence[Any], less_targets: bool) -> list[list[Any]]:
        """J times a vector, less a_ref, of each member."""
        found = []
        for group in self._groups:
            y = group.times(vector)
            for member in group.members:
                x = member.of(y)
                found.append(
                    [value - target for value, target in zip(x, member.targets, strict=True)] if less_targets else x
                )
        return found

    def freeze(self) -> None:
        """Take the accelerations as constants of derivatives of the program. At an answer each further step of length 1
        doubles the number of derivatives that are right: those of orders below 2 after one, below 4 after two."""
        # A node of its own: what is a multiple of another node would make that one a constant, too.
        self.a = [flat(np.maximum(x, -_LARGEST)) for x in self.a]
        self._residual = [m - f for m, f in zip(self._times_H(self.a), self._force, strict=True)]
        self._x = self._residuals(self.a, True)

    def step(self, looks: int) -> None:
        """One iteration; without looks it has length 1."""
        gradient, lower = list(self._residual), [list(row) for row in self._H]
        places = iter(self._x)
        for group in self._groups:
            n = len(group.rows)
            pull: list[Any] = [0.0] * n
            curved: list[list[Any]] = [[0.0] * n for _ in range(n)]
            for member in group.members:
                slopes, second = member.cost.derivatives(next(places))
                for i, to in enumerate(member.combines):
                    for k, c in to.items():
                        pull[k] = pull[k] + c * slopes[i]
                _add_congruence(curved, member.combines, second)
            _add_rows(group, pull, curved, gradient, lower)
        p = TreeFactors(lower).solve([-g for g in gradient])
        self._move(p, product(p, gradient), looks)

    def _move(self, p: Sequence[Any], slope: Any, looks: int) -> None:
        """Go along p, where the cost has a slope."""
        along, Hp = self._residuals(p, False), self._times_H(p)
        start, rate = product(p, self._residual), product(p, Hp)
        costs = [member.cost for group in self._groups for member in group.members]
        lines = [cost.line(x, xp) for cost, x, xp in zip(costs, self._x, along, strict=True)]

        def slopes(t: Any) -> tuple[Any, Any]:
            first, second = start + t * rate, rate + _TINY
            for line in lines:
                one, two = line(t)
                first, second = first + one, second + two
            return first, second

        self._stepped = rate
        t = _length(slopes, slope, looks)
        self.a = [x + t * each for x, each in zip(self.a, p, strict=True)]
        self._residual = [x + t * each for x, each in zip(self._residual, Hp, strict=True)]
        self._x = [[x + t * xp for x, xp in zip(*each, strict=True)] for each in zip(self._x, along, strict=True)]

    def finish(self) -> tuple[list[list[Any]], Any]:
        """The forces -s'(x) of each member, in order, and the bound of the error, by H, relative to |a0|, |a| and the
        root of s'(x) x, all added up. The last is there for forces that hold each other, whose rounding exceeds the
        accelerations' where nothing else acts."""
        gradient, places, forces = list(self._residual), iter(self._x), []
        held: Any = 0.0
        for group in self._groups:
            pull: list[Any] = [0.0] * len(group.rows)
            for member in group.members:
                x = next(places)
                slopes, _ = member.cost.derivatives(x)
                forces.append([-each for each in slopes])
                held = held + product(slopes, x)
                for i, to in enumerate(member.combines):
                    for k, c in to.items():
                        pull[k] = pull[k] + c * slopes[i]
            _add_rows(group, pull, None, gradient, None)
        squared: Any = 0.0
        for k, z in enumerate(self._factors.up(gradient)):
            squared = squared + z * z * self._factors.inverse[k]
        free = product(self._free, self._force)
        moved = product(self.a, [x + f for x, f in zip(self._residual, self._force, strict=True)])
        size: Any = 0.0
        for each in (free, moved, held):
            size = size + np.sqrt(np.maximum(each, 0.0))
        least = np.minimum(squared, _DOUBT * _DOUBT * self._stepped)
        return forces, np.sqrt(np.maximum(least, 0.0)) / (size + _TINY)


def _length(slopes: Any, start: Any, looks: int) -> Any:
    """How far to go along a direction whose slope at 0 is `start`, below 0."""
    first, second = slopes(1.0)
    if not looks:
        return 1.0
    beyond = first
    low, at_low = select(beyond, 0.0, 1.0), select(beyond, start, first)
    high, at_high = select(beyond, 1.0, _FAR), select(beyond, first, _FAR)
    t: Any = 1.0
    best, t_best = abs(first), t
    for k in range(looks):
        newton = t - first / second
        width = high - low
        closed = 0.5 * _FAR - high
        other = low - at_low * width / (at_high - at_low) if k % 2 == 0 else low + 0.5 * width
        inside = np.minimum(newton - (low + _INNER * width), (high - _INNER * width) - newton)
        t = select(closed, select(inside, newton, other), select(newton - low, newton, 2.0 * t))
        first, second = slopes(t)
        low, at_low = select(first, low, t), select(first, at_low, first)
        high, at_high = select(first, t, high), select(first, first, at_high)
        closer = best - abs(first)
        t_best, best = select(closer, t, t_best), np.minimum(best, abs(first))
    found = select(best - abs(start), select(low, low, t), t_best)
    return select(abs(beyond) - _ACCEPTED * abs(start), found, 1.0)


def _add_congruence(total: list[list[Any]], C: Sequence[Any], second: Sequence[Sequence[Any]]) -> None:
    """total += C' S C, the lower triangle; S by its lower triangle."""
    n = len(C)
    for i in range(n):
        for j in range(n):
            s = second[max(i, j)][min(i, j)]
            if is_zero(s):
                continue
            for k, c in C[i].items():
                for m, d in C[j].items():
                    if m <= k:
                        total[k][m] = total[k][m] + c * s * d


def _add_rows(group: Group, pull: Any, curved: Any, gradient: list[Any], lower: list[list[Any]] | None) -> None:
    """gradient += R' pull, lower += R' K R."""
    rows = group.rows
    for row, strength in zip(rows, pull, strict=True):
        for dof, x in row.items():
            gradient[dof] = gradient[dof] + x * strength
    if lower is None:
        return
    n = len(rows)
    spread: list[dict[int, Any]] = []  # K R
    for i in range(n):
        line: dict[int, Any] = {}
        for j in range(n):
            s = curved[max(i, j)][min(i, j)]
            if not is_zero(s):
                for dof, x in rows[j].items():
                    line[dof] = line.get(dof, 0.0) + s * x
        spread.append(line)
    for row, line in zip(rows, spread, strict=True):
        for i, x in row.items():
            for j, y in line.items():
                if j <= i:
                    lower[i][j] = lower[i][j] + x * y
