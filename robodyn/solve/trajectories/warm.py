"""Iterations of one problem on arrays that stay where they are: nothing is allocated, and no table is made again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.solve.trajectories.backward import BackwardPass
from robodyn.solve.trajectories.shooting import ARMIJO, CONVERGED, LEAST_MU, Search

_ONE = np.arange(1)


class WarmSearch:
    """The same iterations as those of a `Search` of one problem without limits of states, on its arrays.

    Args:
        search: with `problem.programs`.
    """

    @staticmethod
    def of(search: Search) -> WarmSearch | None:
        """For a search; None if it has limits of states or no programs."""
        programs, several = search.problem.programs, search.problem.steps > 1
        if programs is None or search.problem.limits or not programs.gradient_loop.available(not several):
            return None
        return WarmSearch(search)

    def __init__(self, search: Search) -> None:
        problem = search.problem
        programs = problem.programs
        assert programs is not None and problem.count == 1
        self._search, self._programs, self._problem = search, programs, problem
        n, (nq, nv, nu) = problem.steps, programs.sizes
        engine: Any = problem.dyn.engine
        self._launch, self._knots = engine.launch, n
        self._given = _filled(problem.phases.of(_ONE), n)
        self._numbers = {final: _filled(programs.numbers(_ONE, final), 1 if final else n) for final in (False, True)}
        self._trial = np.zeros((1, n + 1, nq)), np.zeros((1, n + 1, nv)), np.zeros((1, n, nu))
        self._plan, self._costs = (search.q, search.qd, search.u), np.zeros((1, n + 1, 1))
        self._bind_rolling(np.zeros((1, n, nu)), np.zeros((1, n, nu, 2 * nv)))
        self._bind_models(n, nv, nu)

    def _bind_rolling(self, k: Array, K: Array) -> None:
        """Tables of roll-outs: with feedback alone, and with the step k."""
        programs, n = self._programs, self._knots
        self._k, self._K = k, K
        to, others = self._trial, {**self._given, **self._numbers[False]}

        def table(size: float, step: Array, gains: Array) -> Any:
            arrays = programs.follow_arrays(to, self._costs, self._plan, np.full(1, size), step, gains)
            return programs.follow_loop.table({**arrays, **others}, 1)

        self._feedback = table(0.0, np.zeros_like(k), self._search.gains)
        self._step = table(1.0, k, K)
        last = {"q": to[0][:, n:], "qd": to[1][:, n:], "cost": self._costs[:, n:]}
        self._last = programs.last_loop.table({**last, **self._numbers[True]}, 1) if programs.last else None

    def _bind_models(self, n: int, nv: int, nu: int) -> None:
        """Tables of derivatives of steps and costs, and of the backward pass."""
        programs, problem, nx = self._programs, self._problem, 2 * nv
        q, qd, u = self._plan
        self._tau = u if nu == nv else np.zeros((1, n, nv))
        self._A, B = np.zeros((1, n, nx, nx)), np.zeros((1, n, nx, nv))
        arrays = {"q": q[:, :-1], "qd": qd[:, :-1], "tau": self._tau, "dt": programs.constant["dt"], **self._given}
        arrays |= {"A": self._A, "B": B}
        self._gradient = programs.gradient_loop.table(_knots_as_rows(arrays), n)
        self._all_B, self._B = B, B if nu == nv else np.zeros((1, n, nx, nu))
        lx, lxx = np.zeros((1, n + 1, nx)), np.zeros((1, n + 1, nx, nx))
        lu, luu = np.zeros((1, n, nu)), np.zeros((1, n, nu, nu))
        running, last = programs.model_arrays(q, qd, u, lx, lxx, lu, luu)
        self._model = programs.model_loop.table(_knots_as_rows({**running, **self._numbers[False]}), n)
        self._last_model = None
        if programs.last:
            self._last_model = programs.last_model_loop.table({**last, **self._numbers[True]}, 1)
        self._expected, self._ok = np.zeros((1, 2)), np.zeros(1, bool)
        self._bounds = (np.zeros_like(u), np.zeros_like(u)) if problem.boxed else (None, None)
        lux = np.zeros((1, 1, nu, nx))
        inputs = self._A, self._B, None, lx[:, :-1], lu, lxx[:, :-1], lux, luu, lx[:, n], lxx[:, n], self._search.mu
        backward = BackwardPass(nv, nu, n, box=problem.boxed, engine=problem.dyn.engine)
        self._backward = backward.one(
            [*inputs, *self._bounds], [self._k, self._K, self._expected, self._ok], self._search
        )

    def follow(self, q: Array, qd: Array) -> bool:
        """Follow the plan from another state with its feedback. False, without any change, if that is not finite."""
        self._trial[0][0, 0], self._trial[1][0, 0] = q, qd
        cost = self._rolled(self._feedback)
        if not math.isfinite(cost):
            return False
        self._accept(cost)
        return True

    def renew(self) -> None:
        """Read goals, weights and phases again."""
        for name, each in self._problem.phases.of(_ONE).items():
            np.copyto(self._given[name], each)
        for final, own in self._numbers.items():
            for name, each in self._programs.numbers(_ONE, final).items():
                np.copyto(own[name], each)

    def iterate(self, tolerance: float) -> None:
        """One iteration."""
        search, problem = self._search, self._problem
        if self._tau is not search.u:
            self._tau[0, :, problem.actuated] = search.u[0].T
        self._gradient.run(self._launch, 1)
        if self._B is not self._all_B:
            np.take(self._all_B, problem.actuated, axis=-1, out=self._B)
        self._model.run(self._launch, 1)
        if self._last_model is not None:
            self._last_model.run(self._launch, 1)
        lower, upper = self._bounds
        if lower is not None and upper is not None:
            np.subtract(problem.upper, search.u, out=upper)
            np.subtract(upper, 2.0 * problem.upper, out=lower)
        self._backward()
        if not self._ok[0]:
            search.iterations += 1
            search.stiffen(_ONE)
            return
        np.copyto(search.gains, self._K)
        linear, quadratic = self._expected[0].tolist()
        before = search.cost.item()
        if -(linear + quadratic) <= tolerance * abs(before) and search.mu.item() <= LEAST_MU:
            search.status[0] = CONVERGED
            return
        search.iterations += 1
        self._trial[0][0, 0], self._trial[1][0, 0] = problem.q0[0], problem.qd0[0]
        cost = self._rolled(self._step)
        if cost - before <= min(ARMIJO * (linear + quadratic), 0.0):  # not for NaN
            self._accept(cost)
            search.relax(_ONE, 0.1)
            return
        number = search.shorter(_ONE, self._k, self._K, self._expected).item()
        if number < 0:
            search.stiffen(_ONE)
        elif number == 0:
            search.relax(_ONE, 0.1)

    def _rolled(self, table: Any) -> float:
        """The cost of a roll-out, NaN or infinite if its end is not finite."""
        table.run(self._launch, self._knots)
        if self._last is not None:
            self._last.run(self._launch, 1)
        q, qd, _ = self._trial
        return float(np.add.reduce(self._costs, axis=None) + 0.0 * (q[0, -1].sum() + qd[0, -1].sum()))

    def _accept(self, cost: float) -> None:
        for to, each in zip(self._plan, self._trial, strict=True):
            np.copyto(to, each)
        self._search.cost[0] = cost


def _filled(arrays: Mapping[str, Array], knots: int) -> dict[str, Array]:
    """Copies (1, N, ...) of (1, N or 1, ...)."""
    return {name: np.repeat(each, 1 if each.shape[1] == knots else knots, axis=1) for name, each in arrays.items()}


def _knots_as_rows(arrays: dict[str, Array]) -> dict[str, Array]:
    """(N, 1, ...) of (1, N, ...), for a kernel that takes knots as rows."""
    return {name: each.swapaxes(0, 1) for name, each in arrays.items()}
