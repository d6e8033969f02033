"""A batch of trajectory problems on arrays: steps, their derivatives, and the cost."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.api.queries.contacts import warn_of_rows
from robodyn.internals.arguments import Array
from robodyn.solve.trajectories.contact_steps import ContactSteps
from robodyn.solve.trajectories.costs import Cost
from robodyn.solve.trajectories.inequalities import Limits, limits_among
from robodyn.solve.trajectories.phases import Phases
from robodyn.solve.trajectories.programs import Programs
from robodyn.solve.trajectories.terms import Expansion, Penalty, Term, is_flat, terms_of

Plan: TypeAlias = tuple[Array, Array, Array]
"""q (R, N + 1, nq), qd (R, N + 1, nv) and u (R, N, nu)."""


class Problem:
    """B problems of one robot and cost that differ in their initial states, goals and phases.

    Trajectories are q (R, N + 1, nq), qd (R, N + 1, nv) and u (R, N, nu); `rows` (R,) are the problems they are about.

    Args:
        dyn: the robot, in double precision and unchecked.
        cost: the cost.
        q0, qd0: (B, nq) and (B, nv) initial states.
        steps: N.
        dt: s.
        actuated: (nv,) bools.
        limits: names of limits of the model that hold.
        active, targets: of constraints, as `Phases` reads them.
        leading: the shape of the batch, of B problems.
    """

    def __init__(
        self,
        dyn: Dynamics,
        cost: Cost,
        q0: Array,
        qd0: Array,
        *,
        steps: int,
        dt: float,
        actuated: Array,
        limits: tuple[str, ...],
        active: Any,
        targets: Any,
        leading: tuple[int, ...],
    ) -> None:
        model = dyn.model
        self.dyn, self.steps, self.dt, self.leading = dyn, steps, dt, leading
        self.q0, self.qd0, self.count = q0, qd0, len(q0)
        self.nv, self.actuated = model.nv, np.flatnonzero(actuated)
        self.nu = len(self.actuated)
        self.upper = np.full(self.nu, np.inf)
        if "effort" in limits:
            self.upper = model.effort_limit[self.actuated].copy()
        self.lower = -self.upper
        self.boxed = bool(np.isfinite(self.upper).any())
        self.flat = is_flat(dyn)
        self.contacts = None if model.contacts is None else ContactSteps(dyn, dt, cost.terms)
        self.phases = Phases(dyn, active, targets, q0, self.actuated, steps, leading)
        self.terms: list[Term] = terms_of(dyn, cost.terms, self.actuated, steps, leading)
        self.limits: Limits = limits_among(dyn, cost.terms, limits, self.actuated, self.phases, self.count, steps)
        self.programs = self._programs()

    def _programs(self) -> Programs | None:
        """Programs of the robot; None for engines without them, for contacts, and where one would be too large."""
        if self.contacts is not None or not (self.dyn.engine.native and self.nu and self.count):
            return None
        upper = self.upper if self.boxed else None
        found = Programs(self.dyn, self.steps, self.dt, self.actuated, upper, self.phases.names, self.terms)
        return found if found.available else None

    def step(self, rows: Array, k: int, q: Array, qd: Array, u: Array) -> tuple[Array, Array]:
        """The states after step k, of states (R, nq), (R, nv) and controls (R, nu)."""
        return self._stepped(q, qd, u, self.phases.of(rows, k))

    def _stepped(self, q: Array, qd: Array, u: Array, given: dict[str, Any]) -> tuple[Array, Array]:
        tau = self.phases.tau(u)
        if self.contacts is not None:
            return self.contacts.step(q, qd, tau)
        return self.dyn.step(q, qd, tau, self.dt, **given)

    def step_all(self, rows: Array, q: Array, qd: Array, u: Array) -> tuple[Array, Array]:
        """The states after all steps, each from its own knot: q, qd (R, N, ...)."""
        q, qd = np.ascontiguousarray(q[:, :-1]), np.ascontiguousarray(qd[:, :-1])
        return self._stepped(q, qd, u, self.phases.of(rows))

    def gaps(self, rows: Array, q: Array, qd: Array, u: Array) -> Array:
        """By how much steps miss the next knots, (R, N, 2 nv)."""
        after, rate = self.step_all(rows, q, qd, u)
        return np.concatenate((self.apart(q[:, 1:], after), rate - qd[:, 1:]), axis=-1)

    def derivatives(self, rows: Array, q: Array, qd: Array, u: Array) -> tuple[Array, Array]:
        """A (R, N, 2 nv, 2 nv) and B (R, N, 2 nv, nu) of all steps."""
        q, qd = np.ascontiguousarray(q[:, :-1]), np.ascontiguousarray(qd[:, :-1])
        tau = self.phases.tau(u)
        if self.contacts is not None:
            A, B = self.contacts.derivatives(q, qd, tau)
        else:
            A, B = self.dyn.step_gradient(q, qd, tau, self.dt, **self.phases.of(rows))
        return A, B if self.nu == self.nv else np.ascontiguousarray(B[..., self.actuated])

    def warn_of_contacts(self, what: str, q: Array, qd: Array, u: Array) -> None:
        """Warn of problems with a step whose contact forces do not converge."""
        contacts = self.dyn.model.contacts
        if self.contacts is not None and contacts is not None:
            lost = ~self.contacts.converged(q[:, :-1], qd[:, :-1], self.phases.tau(u))
            warn_of_rows(what, np.logical_or.reduce(lost, axis=1), self.leading, contacts)

    def apart(self, q: Array, other: Array) -> Array:
        """other (-) q, (..., nv)."""
        return other - q if self.flat else self.dyn.model.difference(q, other)

    def moved(self, q: Array, dq: Array) -> Array:
        """q (+) dq, (..., nq)."""
        return q + dq if self.flat else self.dyn.model.integrate(q, dq)

    def clipped(self, u: Array) -> Array:
        """Controls within effort limits."""
        return np.clip(u, self.lower, self.upper) if self.boxed else u

    def bounds(self, u: Array) -> tuple[Array | None, Array | None]:
        """Bounds (R, N, nu) of changes of controls; None if there are none."""
        return (self.lower - u, self.upper - u) if self.boxed else (None, None)

    def cost(self, rows: Array, q: Array, qd: Array, u: Array, limits: bool = True) -> Array:
        """(R,): the cost, with the penalties of limits if wanted; infinite where a state is not finite."""
        finite = np.isfinite(q).all(axis=(1, 2)) & np.isfinite(qd).all(axis=(1, 2)) & np.isfinite(u).all(axis=(1, 2))
        if not finite.all():
            cost = np.full(len(rows), np.inf)
            if finite.any():
                cost[finite] = self.cost(rows[finite], q[finite], qd[finite], u[finite], limits)
            return cost
        terms: list[Penalty] = [*self.terms, *(self.limits.limits if limits else ())]
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.zeros(len(rows)) + sum(term.value(rows, q, qd, u) for term in terms)
        return np.where(np.isnan(total), np.inf, total)

    def expand(self, rows: Array, q: Array, qd: Array, u: Array) -> Expansion:
        """The quadratic model of the cost with the penalties of limits."""
        into = Expansion.zeros(len(rows), self.steps, 2 * self.nv, self.nu)
        by_state, by_control = (np.einsum("...ii->...i", each) for each in (into.lxx[:, :-1], into.luu))
        terms: list[Penalty] = [*self.limits.limits]
        if self.programs is None:
            terms += self.terms
        else:
            found = self.programs.expand(rows, q, qd, u)
            into.lx[...], into.lu[...], by_control[...] = found["lx"], found["lu"], found["luu"]
            (by_state if self.programs.diagonal else into.lxx[:, :-1])[...] = found["lxx"]
            into.lxx[:, -1:] = found["vxx"]
        for term in terms:
            term.expand(rows, q, qd, u, into)
        return into

    def roll_out(self, rows: Array, u: Array) -> tuple[Array, Array]:
        """The states that controls (R, N, nu) lead to."""
        if self.programs is not None:
            n, nu, nv = self.steps, self.nu, self.nv
            rest = self.dyn.model.neutral()[None, None].repeat(n + 1, axis=1), np.zeros((1, n + 1, nv))
            without = np.zeros((1, n, nu)), np.zeros((1, n, nu, 2 * nv))
            (q, qd, _), _ = self._followed(rows, (*rest, u), np.zeros(len(rows)), *without)
            return q, qd
        q, qd = self._from_start(rows)
        at = self.q0[rows], self.qd0[rows]
        with np.errstate(all="ignore"):
            for k in range(self.steps):
                at = self.step(rows, k, *at, u[:, k])
                q[:, k + 1], qd[:, k + 1] = at
        return q, qd

    def follow(self, rows: Array, plan: Plan, size: Array, k: Array, K: Array) -> tuple[Plan, Array]:
        """The trajectory from q0 under u + size k + K (x (-) x_plan), within effort limits, and its cost; size (R,)."""
        if self.programs is None:
            tried = self._follow_by_steps(rows, plan, size, k, K)
            return tried, self.cost(rows, *tried)
        tried, cost = self._followed(rows, plan, size, k, K)
        with np.errstate(over="ignore", invalid="ignore"):
            # What is not finite at a knot is not so at all later ones.
            cost = cost + 0.0 * sum(each[:, -1].sum(axis=-1) for each in tried)
            cost = cost + sum(term.value(rows, *tried) for term in self.limits.limits)
        return tried, np.where(np.isnan(cost), np.inf, cost)

    def _followed(self, rows: Array, plan: Plan, size: Array, k: Array, K: Array) -> tuple[Plan, Array]:
        assert self.programs is not None
        start, given = (self.q0[rows], self.qd0[rows]), self.phases.of(rows)
        return self.programs.follow(rows, start, plan, size, k, K, given)

    def _follow_by_steps(self, rows: Array, plan: Plan, size: Array, k: Array, K: Array) -> Plan:
        old_q, old_qd, old_u = plan
        q, qd = self._from_start(rows)
        u, feed = np.empty_like(old_u), old_u + size[:, None, None] * k
        at = self.q0[rows], self.qd0[rows]
        with np.errstate(all="ignore"):
            for i in range(self.steps):
                off = np.concatenate((self.apart(old_q[:, i], at[0]), at[1] - old_qd[:, i]), axis=-1)
                u[:, i] = self.clipped(feed[:, i] + (K[:, i] @ off[..., None])[..., 0])
                at = self.step(rows, i, *at, u[:, i])  # contiguous arrays, which built-in functions take
                q[:, i + 1], qd[:, i + 1] = at
        return q, qd, u

    def _from_start(self, rows: Array) -> tuple[Array, Array]:
        q = np.empty((len(rows), self.steps + 1, self.q0.shape[1]))
        qd = np.empty((len(rows), self.steps + 1, self.nv))
        q[:, 0], qd[:, 0] = self.q0[rows], self.qd0[rows]
        return q, qd


def in_double(dyn: Dynamics) -> Dynamics:
    """The robot in double precision, without checks of values."""
    if dyn.dtype == np.float64 and not dyn.check:
        return dyn
    return dyn.variant(dtype="float64", check=False)


def part_of(plan: Plan, rows: Array) -> Plan:
    """Some of many trajectories."""
    q, qd, u = plan
    return q[rows], qd[rows], u[rows]
