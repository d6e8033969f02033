"""Trajectories of a few problems on arrays that stay where they are: nothing is allocated, no table is made again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.solve.trajectories.backward import BackwardPass
from robodyn.solve.trajectories.problem import Plan, Problem


class FixedArrays:
    """Roll-outs, derivatives and backward passes of M trajectories.

    Attributes: `plan`: q (M, N + 1, nq), qd (M, N + 1, nv) and u (M, N, nu); `trial`: those of the last roll-out; `k`,
    `K`, `expected`, `ok`: results of the last backward pass.

    Args:
        problem: with programs, and without limits of states.
        rows: (M,) the problems that the trajectories belong to.
        plan: arrays that the caller changes in place.
        gains, mu: (M, N, nu, 2 nv) for roll-outs with feedback alone, and (M,) for backward passes, likewise.
    """

    def __init__(self, problem: Problem, rows: Array, plan: Plan, gains: Array, mu: Array) -> None:
        programs = problem.programs
        assert programs is not None and not problem.limits
        self._problem, self._programs, self._mu, self.plan = problem, programs, mu, plan
        self._engine: Any = problem.dyn.engine
        many, n, (nq, nv, nu) = len(rows), problem.steps, programs.sizes
        self._knots, self._gains = n, gains
        self._of_phases = _filled(problem.phases.of(rows), many, n)
        self._numbers = {
            final: _filled(programs.numbers(rows, final), many, 1 if final else n) for final in (False, True)
        }
        states = np.zeros((many, n + 1, nq + nv))
        self.trial: Plan = states[..., :nq], states[..., nq:], np.zeros((many, n, nu))
        self._ends = states[:, -1]
        self.k, self.K = np.zeros((many, n, nu)), np.zeros((many, n, nu, 2 * nv))
        self.expected, self.ok = np.zeros((many, 2)), np.zeros(many, bool)
        self._bind_roll_outs(many, n)
        self._bind_models(many, n, nv, nu)

    @staticmethod
    def possible(problem: Problem, many: int) -> bool:
        """Whether a problem has them."""
        programs = problem.programs
        if programs is None or problem.limits:
            return False
        return programs.gradient_loop.available(many == 1 and problem.steps == 1)

    def _bind_roll_outs(self, many: int, n: int) -> None:
        """Tables of roll-outs: with feedback alone, and with the step k."""
        programs, to, others = self._programs, self.trial, {**self._of_phases, **self._numbers[False]}
        costs = np.zeros((many, n + 1, 1))
        self._costs = costs[..., 0]

        def table(size: float, step: Array, gains: Array) -> Any:
            arrays = programs.follow_arrays(to, costs, self.plan, np.full(many, size), step, gains)
            return programs.follow_loop.table({**arrays, **others}, many)

        self._feedback = table(0.0, np.zeros_like(self.k), self._gains)
        self._step = table(1.0, self.k, self.K)
        last = {"q": to[0][:, n:], "qd": to[1][:, n:], "cost": costs[:, n:]}
        self._last = [programs.last_loop.table({**last, **self._numbers[True]}, many)] if programs.last else []

    def _bind_models(self, many: int, n: int, nv: int, nu: int) -> None:
        """Tables of derivatives of steps and costs, and of the backward pass."""
        programs, problem, nx = self._programs, self._problem, 2 * nv
        q, qd, u = self.plan
        self._tau = u if nu == nv else np.zeros((many, n, nv))
        A, B = np.zeros((many, n, nx, nx)), np.zeros((many, n, nx, nv))
        self._all_B, self._B = B, B if nu == nv else np.zeros((many, n, nx, nu))
        to = programs.models(many)
        arrays = {"q": q[:, :-1], "qd": qd[:, :-1], "tau": self._tau, "dt": programs.constant["dt"], **self._of_phases}
        arrays |= {"A": A, "B": B}
        running, last = programs.model_arrays(q, qd, u, to)
        running |= self._numbers[False]
        if many == 1:  # knots are rows
            arrays, running = ({name: each.swapaxes(0, 1) for name, each in some.items()} for some in (arrays, running))
        self._models = [
            loop.table(some, n if many == 1 else many)
            for loop, some in ((programs.gradient_loop, arrays), (programs.model_loop, running))
        ]
        self._last_models = []
        if programs.last:
            self._last_models.append(programs.last_model_loop.table({**last, **self._numbers[True]}, many))
        self._bounds = (np.zeros_like(u), np.zeros_like(u)) if problem.boxed else (None, None)
        backward = BackwardPass(nv, nu, n, box=problem.boxed, engine=self._engine)
        lxx = (None, to["lxx"]) if programs.diagonal else (to["lxx"], None)
        lx, dt = to["lx"], None if problem.linear_dt is None else np.array(problem.linear_dt)
        costs = lx[:, :-1], to["lu"], lxx[0], None, None, lx[:, n], to["vxx"][:, 0]
        inputs = A, self._B, None, *costs, self._mu, *self._bounds, lxx[1], to["luu"], dt
        self._backward = backward.bound(inputs, (self.k, self.K, self.expected, self.ok), many)

    def read(self, rows: Array, to: slice | int = slice(None)) -> None:
        """Read weights, goals and phases of problems, for some of the trajectories."""
        own = [(self._of_phases, self._problem.phases.of(rows))]
        own += [(self._numbers[final], self._programs.numbers(rows, final)) for final in (False, True)]
        for arrays, given in own:
            for name, each in given.items():
                arrays[name][to] = each if isinstance(to, slice) else each[0]

    def move(self, source: int, to: int) -> None:
        """Copy what `read` has read for one trajectory to another one."""
        for arrays in (self._of_phases, *self._numbers.values()):
            for each in arrays.values():
                each[to] = each[source]

    def roll_out(self, many: int, with_step: bool) -> Array:
        """Costs (many,) of the first trajectories from the first states of `trial`, NaN or infinite if their ends are
        not finite: with the step k and K, or with `gains` alone."""
        (self._step if with_step else self._feedback).run(self._engine.launch, self._knots, many)
        for each in self._last:
            each.run(self._engine.launch, 1, many)
        cost: Array = np.add.reduce(self._costs[:many], axis=1)
        cost += 0.0 * np.add.reduce(self._ends[:many], axis=1)
        return cost

    def solve(self, many: int) -> None:
        """Derivatives of steps and costs at the plans, and backward passes."""
        problem, u, alone = self._problem, self.plan[2], len(self.ok) == 1
        if self._tau is not u:
            self._tau[..., problem.actuated] = u
        for each in self._models:
            each.run(self._engine.launch, 1 if alone else self._knots, None if alone else many)
        for each in self._last_models:
            each.run(self._engine.launch, 1, many)
        if self._B is not self._all_B:
            np.take(self._all_B, problem.actuated, axis=-1, out=self._B)
        lower, upper = self._bounds
        if lower is not None and upper is not None:
            np.subtract(problem.upper, u, out=upper)
            np.subtract(problem.lower, u, out=lower)
        self._backward(many)


def _filled(arrays: Mapping[str, Array], many: int, knots: int) -> dict[str, Array]:
    """Copies (M, N, ...) of (M or 1, N or 1, ...)."""
    filled = {name: np.empty((many, knots, *each.shape[2:])) for name, each in arrays.items()}
    for name, each in arrays.items():
        filled[name][...] = each
    return filled


def copied(to: Iterable[Array], source: Iterable[Array]) -> None:
    """Copy arrays into others."""
    for one, each in zip(to, source, strict=True):
        np.copyto(one, each)
