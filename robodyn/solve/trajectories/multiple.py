"""Multiple shooting: a first guess of states, whose gaps close on the way to the optimum.

Steps of states and controls are those of the linearised trajectory. All knots of a trial are one batch. The merit
J + nu sum |gap| falls with every step, where nu is above the costates.
"""

from __future__ import annotations

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.solve.trajectories.problem import part_of
from robodyn.solve.trajectories.shooting import CONVERGED, LEAST_MU, SIZES, Search, falls_enough
from robodyn.solve.trajectories.terms import Expansion

CLOSED = 1e-9
"""Gaps of a converged trajectory are smaller."""
_ABOVE = 1.5
"""nu is at least this times the largest costate."""


class MultipleShooting(Search):
    """A search whose trajectories may have gaps."""

    def begin(self, rows: Array) -> None:
        """Evaluate some problems, whose search begins anew."""
        self.gap = getattr(self, "gap", np.zeros((self.problem.count, self.problem.steps, 2 * self.problem.nv)))
        self.nu = getattr(self, "nu", np.zeros(self.problem.count))
        self.value = getattr(self, "value", np.full(self.problem.count, np.inf))
        with np.errstate(all="ignore"):
            self.gap[rows] = self.problem.gaps(rows, self.q[rows], self.qd[rows], self.u[rows])
        self.nu[rows] = 0.0
        super().begin(rows)
        self.value[rows] = self.cost[rows]

    def measure(self, rows: Array) -> Array:
        """The cost, infinite where steps are not finite."""
        cost = super().measure(rows)
        return np.where(np.isfinite(self.gap[rows]).all(axis=(1, 2)), cost, np.inf)

    def iterate(self, rows: Array, tolerance: float) -> None:
        """One iteration of some problems."""
        gap = self.gap[rows]
        model, A, B, k, K, _, ok = self.solve(rows, gap)
        self.gains[rows[ok]] = K[ok]
        dx, du = _linear(A, B, gap, k, K)
        slope = (model.lx * dx).sum(axis=(1, 2)) + (model.lu * du).sum(axis=(1, 2))
        size = np.abs(gap).sum(axis=(1, 2))
        closed = np.abs(gap).max(axis=(1, 2)) < CLOSED
        small = np.abs(slope) <= tolerance * np.abs(self.value[rows])
        done = ok & closed & small & (self.mu[rows] <= LEAST_MU)
        self.status[rows[done]] = CONVERGED
        going = np.flatnonzero(~done)
        self.iterations[rows[going]] += 1
        trying = going[ok[going]]
        least = _ABOVE * _largest_costate(model, A, dx, du)
        with np.errstate(divide="ignore", invalid="ignore"):
            descends = np.where(closed, 0.0, 2.0 * np.maximum(slope, 0.0) / size)
        nu = np.maximum(self.nu[rows], np.maximum(least, descends))
        self.nu[rows] = np.where(ok, nu, self.nu[rows])
        self.cost[rows] = self.value[rows] + self.nu[rows] * size
        fall = slope - self.nu[rows] * size
        number = np.full(len(rows), -1)
        number[trying] = self._step(rows[trying], np.ones(1), dx[trying], du[trying], fall[trying])
        left = trying[number[trying] < 0]
        if left.size:
            shorter = self._step(rows[left], SIZES, dx[left], du[left], fall[left])
            number[left] = np.where(shorter < 0, -1, shorter + 1)
        taken = trying[number[trying] >= 0]
        self.relax(rows[taken[number[taken] < 2]])
        self.stiffen(rows[going[number[going] < 0]])

    def _step(self, rows: Array, sizes: Array, dx: Array, du: Array, fall: Array) -> Array:
        """Take the longest step of these sizes that lowers the merit enough; returns its number, -1 for none."""
        n, many = len(sizes), rows.size
        if not many:
            return np.zeros(0, np.int64)
        all_rows = np.tile(rows, n)
        again, nv = np.tile(np.arange(many), n), self.problem.nv
        a, dx, du = np.repeat(sizes, many)[:, None, None], dx[again], du[again]
        with np.errstate(all="ignore"):
            q = self.problem.moved(self.q[all_rows], a * dx[..., :nv])
            qd, u = self.qd[all_rows] + a * dx[..., nv:], self.problem.clipped(self.u[all_rows] + a * du)
            gap = self.problem.gaps(all_rows, q, qd, u)
            value = self.problem.cost(all_rows, q, qd, u)
            merit = value + self.nu[all_rows] * np.abs(gap).sum(axis=(1, 2))
        merit = merit.reshape(n, many)
        now = self.cost[rows]
        good = falls_enough(merit - now, sizes[:, None] * fall)
        first, found = good.argmax(axis=0), good.any(axis=0)
        at = np.flatnonzero(found)
        chosen = first[at] * many + at
        self.accept(rows[at], part_of((q, qd, u), chosen), merit[first[at], at])
        self.gap[rows[at]], self.value[rows[at]] = gap[chosen], value[chosen]
        number: Array = np.where(found, first, -1)
        return number


def _linear(A: Array, B: Array, gap: Array, k: Array, K: Array) -> tuple[Array, Array]:
    """dx (R, N + 1, nx) and du (R, N, nu) of the linearised trajectory."""
    dx, du = np.zeros((len(A), A.shape[1] + 1, A.shape[-1])), np.empty_like(k)
    for i in range(A.shape[1]):
        du[:, i] = k[:, i] + (K[:, i] @ dx[:, i, :, None])[..., 0]
        dx[:, i + 1] = ((A[:, i] @ dx[:, i, :, None]) + (B[:, i] @ du[:, i, :, None]))[..., 0] + gap[:, i]
    return dx, du


def _largest_costate(model: Expansion, A: Array, dx: Array, du: Array) -> Array:
    """(R,): of the multipliers of steps at the minimum of the quadratic model."""
    costate = model.lx[:, -1] + (model.lxx[:, -1] @ dx[:, -1, :, None])[..., 0]
    largest: Array = np.abs(costate).max(axis=-1)
    for i in range(A.shape[1] - 1, 0, -1):
        own = model.lx[:, i] + (model.lxx[:, i] @ dx[:, i, :, None])[..., 0]
        own = own + (model.lux[:, i].swapaxes(-1, -2) @ du[:, i, :, None])[..., 0]
        costate = own + (A[:, i].swapaxes(-1, -2) @ costate[..., None])[..., 0]
        largest = np.maximum(largest, np.abs(costate).max(axis=-1))
    return largest
