"""Single shooting: iLQR and DDP in boxes of controls, for many problems at once. Problems that are done rest.

The method is that of Tassa, Mansard and Todorov, Control-limited differential dynamic programming (2014), with the
regularisation on Quu that is 0 while steps succeed. Step size 1 is tried first; the others as one batch for the
problems whose cost it does not lower enough.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.solve.trajectories.backward import BackwardPass
from robodyn.solve.trajectories.curvature import Curvature
from robodyn.solve.trajectories.problem import Plan, Problem, part_of
from robodyn.solve.trajectories.terms import Expansion

RUNNING, CONVERGED, STALLED, DIVERGED = range(4)
SIZES = 0.5 ** np.arange(1, 11)
"""Step sizes after 1."""
ARMIJO = 1e-4
"""Share of the predicted decrease that a step must reach."""
LEAST_MU, MOST_MU = 1e-6, 1e10
"""Regularisation that is not zero is at least the first; beyond the second a search ends."""


class Search:
    """Trajectories of all problems, and how far they are.

    Args:
        problem: the problems.
        q, qd, u: first trajectories (B, N + 1, nq), (B, N + 1, nv), (B, N, nu).
        curvature: second derivatives of steps, or None for iLQR.
        tick: called with the number of problems that rest, after each iteration.
    """

    def __init__(
        self,
        problem: Problem,
        q: Array,
        qd: Array,
        u: Array,
        curvature: Curvature | None = None,
        tick: Callable[[int], None] | None = None,
    ) -> None:
        self.problem, self.q, self.qd, self.u, self.curvature = problem, q, qd, u, curvature
        count, shape = problem.count, (problem.count, problem.steps, problem.nu)
        self.mu, self.iterations = np.zeros(count), np.zeros(count, np.int64)
        self.status = np.full(count, RUNNING)
        self.gains = np.zeros((*shape, 2 * problem.nv))
        self.cost = np.full(count, np.inf)
        self._log: list[tuple[Array, Array]] = []
        self.backward: Callable[..., tuple[Array, Array, Array, Array]] = BackwardPass(
            problem.nv, problem.nu, problem.steps, box=problem.boxed, engine=problem.dyn.engine
        )
        self.tick = tick or (lambda done: None)

    def begin(self, rows: Array) -> None:
        """Evaluate the cost of some problems, whose search begins anew."""
        self.cost[rows] = self.measure(rows)
        self.mu[rows] = 0.0
        self.status[rows] = np.where(np.isfinite(self.cost[rows]), RUNNING, DIVERGED)

    def measure(self, rows: Array) -> Array:
        """What must fall, (R,)."""
        return self.problem.cost(rows, self.q[rows], self.qd[rows], self.u[rows])

    def run(self, rows: Array, iterations: int, tolerance: float) -> None:
        """At most so many iterations of the given problems."""
        self.begin(rows)
        self.logged(rows, self.cost[rows])
        for _ in range(iterations):
            rows = rows[self.status[rows] == RUNNING]
            if not rows.size:
                break
            self.iterate(rows, tolerance)
            self.logged(rows, self.cost[rows])
            self.tick(int((self.status != RUNNING).sum()))

    def logged(self, rows: Array, cost: Array) -> None:
        """Note what has become of some problems."""
        self._log.append((rows, cost))

    def log(self) -> Array:
        """(B, n): what must fall, at first and after each iteration; the last value is repeated."""
        counts = np.zeros(self.problem.count, np.int64)
        for rows, _ in self._log:
            counts[rows] += 1
        table, at = np.full((self.problem.count, counts.max(initial=1)), np.nan), np.zeros_like(counts)
        for rows, cost in self._log:
            table[rows, at[rows]] = cost
            at[rows] += 1
        last = np.maximum(counts - 1, 0)
        return table[np.arange(len(table))[:, None], np.minimum(np.arange(table.shape[1]), last[:, None])]

    def expansion(self, rows: Array) -> tuple[Expansion, Array, Array]:
        """The quadratic model of the cost, and A and B of steps."""
        at = self.q[rows], self.qd[rows], self.u[rows]
        return self.problem.expand(rows, *at), *self.problem.derivatives(rows, *at)

    def solve(
        self, rows: Array, gap: Array | None = None
    ) -> tuple[Expansion, Array, Array, Array, Array, Array, Array]:
        """The backward pass: the quadratic model, A and B, then k, K, expected and ok."""
        model, A, B = self.expansion(rows)
        if self.curvature is not None:
            curved = self.curvature.add(self.q[rows], self.qd[rows], self.u[rows], model, A)
            found = self._recursion(rows, curved, A, B, gap)
            flat = np.flatnonzero(~found[3])
            if flat.size:  # the model is not convex in the controls: without second derivatives it is
                part = Expansion(*(each[flat] for each in (model.lx, model.lxx, model.lu, model.luu, model.lux)))
                again = self._recursion(rows[flat], part, A[flat], B[flat], None if gap is None else gap[flat])
                for whole, own in zip(found, again, strict=True):
                    whole[flat] = own
            return model, A, B, *found
        return model, A, B, *self._recursion(rows, model, A, B, gap)

    def _recursion(
        self, rows: Array, model: Expansion, A: Array, B: Array, gap: Array | None
    ) -> tuple[Array, Array, Array, Array]:
        bounds = self.problem.bounds(self.u[rows])
        lx, lxx = model.lx, model.lxx
        of_steps = lx[:, :-1], model.lu, lxx[:, :-1], model.lux, model.luu
        return self.backward(A, B, gap, *of_steps, lx[:, -1], lxx[:, -1], self.mu[rows], *bounds)

    def iterate(self, rows: Array, tolerance: float) -> None:
        """One iteration of some problems."""
        *_, k, K, expected, ok = self.solve(rows)
        self.gains[rows[ok]] = K[ok]
        decrease = -expected.sum(-1)
        # A predicted rise, of a pass whose matrices are almost singular, is no convergence.
        done = ok & (np.abs(decrease) <= tolerance * np.abs(self.cost[rows])) & (self.mu[rows] <= LEAST_MU)
        self.status[rows[done]] = CONVERGED
        going = np.flatnonzero(~done)
        self.iterations[rows[going]] += 1
        trying = going[ok[going]]
        taken = self._try(rows[trying], np.ones(trying.size), k[trying], K[trying], expected[trying])
        self.relax(rows[trying[taken]])
        left = trying[~taken]
        if left.size:
            size = self.shorter(rows[left], k[left], K[left], expected[left])
            self.relax(rows[left[size == 0]])
            left = left[size < 0]
        self.stiffen(np.concatenate((rows[left], rows[going[~ok[going]]])))

    def _try(self, rows: Array, size: Array, k: Array, K: Array, expected: Array) -> Array:
        """Take steps of given sizes where the cost falls enough; returns where."""
        if not rows.size:
            return np.zeros(0, bool)
        tried, cost = self.problem.follow(rows, (self.q[rows], self.qd[rows], self.u[rows]), size, k, K)
        taken = falls_enough(cost - self.cost[rows], size * expected[:, 0] + size**2 * expected[:, 1])
        self.accept(rows[taken], part_of(tried, taken), cost[taken])
        return taken

    def shorter(self, rows: Array, k: Array, K: Array, expected: Array) -> Array:
        """Take the best step of `SIZES` that lowers the cost enough; returns its number, -1 for none."""
        plan = self.q[rows], self.qd[rows], self.u[rows]
        number, tried, cost = shorter_steps(self.problem, rows, plan, self.cost[rows], k, K, expected)
        self.accept(rows[number >= 0], tried, cost)
        return number

    def accept(self, rows: Array, plan: Plan, cost: Array) -> None:
        """New trajectories of some problems."""
        self.q[rows], self.qd[rows], self.u[rows] = plan
        self.cost[rows] = cost

    def relax(self, rows: Array) -> None:
        """Less regularisation after a step that is long enough."""
        self.mu[rows] = relaxed(self.mu[rows])

    def stiffen(self, rows: Array) -> None:
        """More regularisation after a failure; too much of it ends the search."""
        self.mu[rows] = stiffened(self.mu[rows])
        self.status[rows[self.mu[rows] > MOST_MU]] = STALLED


def falls_enough(change: Array, predicted: Array) -> Array:
    """Whether a cost falls by the share of a predicted change that a step must reach (Armijo); False for NaN."""
    found: Array = (change <= np.minimum(ARMIJO * predicted, 0.0)) & np.isfinite(change)
    return found


def relaxed(mu: Array) -> Array:
    """Less regularisation."""
    return np.where(mu < LEAST_MU, 0.0, 0.1 * mu)


def stiffened(mu: Array) -> Array:
    """More regularisation."""
    return np.maximum(LEAST_MU, 10.0 * mu)


def shorter_steps(
    problem: Problem, rows: Array, plan: Plan, before: Array, k: Array, K: Array, expected: Array
) -> tuple[Array, Plan, Array]:
    """The best step of `SIZES` that lowers the cost enough: its number (R,), -1 for none, and for the others the
    trajectories and their costs. `before`: costs of the plans."""
    n, many = len(SIZES), rows.size
    again = np.tile(np.arange(many), n)
    tried, cost = problem.follow(rows[again], part_of(plan, again), np.repeat(SIZES, many), k[again], K[again])
    cost = cost.reshape(n, many)
    good = falls_enough(cost - before, SIZES[:, None] * expected[:, 0] + SIZES[:, None] ** 2 * expected[:, 1])
    first, found = np.where(good, cost, np.inf).argmin(axis=0), good.any(axis=0)
    at = np.flatnonzero(found)
    number: Array = np.where(found, first, -1)
    return number, part_of(tried, first[at] * many + at), cost[first[at], at]
