"""Programs of a trajectory's robot: roll-outs with feedback and costs, each for all knots in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.api.motion.step_spec import chosen_step, gradient_of
from robodyn.internals.arguments import Array, address_of
from robodyn.solve.trajectories.follow import followed, velocity_gradient
from robodyn.solve.trajectories.knot_costs import expansion_task, is_diagonal, value_task
from robodyn.solve.trajectories.terms import Term, is_flat

_MOST_TABLES = 64
"""Argument tables that one loop keeps."""
INTEGRATOR = "semi_implicit_euler"


class Loop:
    """Calls a task's kernel for one knot of many rows after another.

    Args:
        engine: a CPU engine.
        task: the task.
    """

    def __init__(self, engine: Any, task: Any) -> None:
        self._engine, self._task = engine, task
        self._tables: dict[Any, Any] = {}

    def available(self, *single: bool) -> bool:
        """Whether the task is one program, for one row (True) and for several (False)."""
        return all(self._engine.has_program(self._task, (), each) for each in single)

    def table(self, arrays: Mapping[str, Array], rows: int) -> Any:
        """The arguments for arrays (R or 1, N or 1, ...), whose `run(launch, N)` fills results. What an array has for
        one row and knot is contiguous."""
        assert all(each[:1, :1].flags.c_contiguous for each in arrays.values())
        wide = {name: np.broadcast_to(each, (rows, *each.shape[1:])).swapaxes(0, 1) for name, each in arrays.items()}
        return self._engine.task_loop(self._task, wide, rows)

    def __call__(self, arrays: Mapping[str, Array], rows: int, knots: int) -> None:
        """Fill results."""
        key = rows, *((len(each) > 1, each.shape[1] > 1, each.strides[:2]) for each in arrays.values())
        table = self._tables.get(key)
        if table is None:
            if len(self._tables) >= _MOST_TABLES:
                self._tables.clear()
            table = self._tables[key] = self.table(arrays, rows)
            table.release()
        else:
            for name, each in arrays.items():
                table.move(name, address_of(each))
        table.run(self._engine.launch, knots)


class Programs:
    """All programs of a problem.

    Args:
        dyn: the robot, in double precision.
        steps, dt: number N and length of steps.
        actuated: (nu,) velocities that controls drive.
        upper: (nu,) bounds of |u|, or None.
        given: names of further inputs of steps, "active" and "targets".
        terms: of the cost.

    Attributes: `linear`: steps are q+ = q + dt qd+, and the gradient is that of velocities alone; `diagonal`: Hessians
    of running costs are.
    """

    def __init__(
        self,
        dyn: Dynamics,
        steps: int,
        dt: float,
        actuated: Array,
        upper: Array | None,
        given: Sequence[str],
        terms: Sequence[Term],
    ) -> None:
        engine, nv, nu = dyn.engine, dyn.model.nv, len(actuated)
        self.running, self.last = (tuple(each for each in terms if each.final is final) for final in (False, True))
        self.sizes = dyn.model.nq, nv, nu
        self.steps, self.constant = steps, {"dt": np.full((1, 1, 1), dt)}
        if upper is not None:
            self.constant["upper"] = np.ascontiguousarray(upper)[None, None]
        running, last = (tuple(each.piece for each in some) for some in (self.running, self.last))
        step = chosen_step(dyn, ("tau", *given), INTEGRATOR, ())
        driven = tuple(int(v) for v in actuated)
        self.follow_loop = Loop(engine, followed(step, nv, driven, upper is not None, value_task(running, nu)))
        self.last_loop = Loop(engine, value_task(last, 0))
        gradient = gradient_of(step, dyn.model, ("tau", *given))
        self.linear = is_flat(dyn) and not dyn.model.constraints
        self.gradient_loop = Loop(engine, velocity_gradient(gradient, nv, driven) if self.linear else gradient)
        self.diagonal = is_diagonal(running, is_flat(dyn))
        self.model_loop = Loop(engine, expansion_task(running, nu, nv, self.diagonal))
        self.last_model_loop = Loop(engine, expansion_task(last, 0, nv, diagonal=False))

    @property
    def available(self) -> bool:
        """Whether all are there that a search needs."""
        loops = self.follow_loop, self.last_loop, self.model_loop, self.last_model_loop
        return all(each.available(False, True) for each in loops)

    def terms_of(self, final: bool) -> tuple[Term, ...]:
        """Terms of the last knot, or of the others."""
        return self.last if final else self.running

    def numbers(self, rows: Array, final: bool) -> dict[str, Array]:
        """Weights and goals of rows, by name."""
        found: dict[str, Array] = {}
        for number, term in enumerate(self.terms_of(final)):
            found[f"w{number}"], found[f"g{number}"] = term.numbers(rows)
        return found

    def follow(
        self,
        rows: Array,
        start: tuple[Array, Array],
        plan: tuple[Array, Array, Array],
        size: Array,
        k: Array,
        K: Array,
        given: Mapping[str, Array],
    ) -> tuple[tuple[Array, Array, Array], Array]:
        """Roll-outs q (R, N + 1, nq), qd (R, N + 1, nv), u (R, N, nu), and their costs (R,).

        Args:
            rows: the problems that they belong to.
            start: q0 (R, nq) and qd0 (R, nv).
            plan: q, qd and u, of the shapes of the results or (1, ...).
            size: (R,) times which k is added.
            k, K: (R or 1, N, nu) and (R or 1, N, nu, 2 nv).
            given: further inputs (R or 1, N or 1, ...).
        """
        count, n, (nq, nv, nu) = len(size), self.steps, self.sizes
        q, qd, u = np.empty((count, n + 1, nq)), np.empty((count, n + 1, nv)), np.empty((count, n, nu))
        cost = np.zeros((count, n + 1, 1))
        q[:, 0], qd[:, 0] = start
        *planned, k, K = map(np.ascontiguousarray, (*plan, k, K))
        arrays = self.follow_arrays((q, qd, u), cost, planned, size, k, K)
        self.follow_loop({**arrays, **given, **self.numbers(rows, final=False)}, count, n)
        if self.last:
            last = {"q": q[:, n:], "qd": qd[:, n:], "cost": cost[:, n:], **self.numbers(rows, final=True)}
            self.last_loop(last, count, 1)
        return (q, qd, u), cost.sum(axis=(1, 2))

    def follow_arrays(
        self,
        to: tuple[Array, Array, Array],
        cost: Array,
        plan: Sequence[Array],
        size: Array,
        k: Array,
        K: Array,
    ) -> dict[str, Array]:
        """Arguments of a roll-out, without further inputs."""
        q, qd, u = to
        states = {"q": q[:, :-1], "qd": qd[:, :-1], "q_next": q[:, 1:], "qd_next": qd[:, 1:], "u": u}
        planned = {"q_plan": plan[0][:, :-1], "qd_plan": plan[1][:, :-1], "u_plan": plan[2], "k": k, "K": K}
        return {**states, **planned, "size": size[:, None, None], "cost": cost[:, :-1], **self.constant}

    def models(self, rows: int) -> dict[str, Array]:
        """Arrays for the quadratic models of knots of trajectories: lx (R, N + 1, nx), lu (R, N, nu), the diagonal luu
        (R, N, nu), lxx (R, N, nx, nx), or (R, N, nx) if it is diagonal, and vxx (R, 1, nx, nx) of knot N."""
        n, (_, nv, nu) = self.steps, self.sizes
        nx = 2 * nv
        shapes = {"lx": (n + 1, nx), "lu": (n, nu), "luu": (n, nu), "vxx": (1, nx, nx)}
        shapes["lxx"] = (n, nx) if self.diagonal else (n, nx, nx)
        return {name: np.zeros((rows, *shape)) for name, shape in shapes.items()}

    def model_arrays(self, q: Array, qd: Array, u: Array, to: Mapping[str, Array]) -> Any:
        """Arguments of the quadratic models `to` of knots 0 to N - 1, and of knot N, without weights and goals."""
        running = {"q": q[:, :-1], "qd": qd[:, :-1], "u": u, "lx": to["lx"][:, :-1]}
        running |= {name: to[name] for name in ("lxx", "lu", "luu")}
        return running, {"q": q[:, -1:], "qd": qd[:, -1:], "lx": to["lx"][:, -1:], "lxx": to["vxx"]}

    def expand(self, rows: Array, q: Array, qd: Array, u: Array) -> dict[str, Array]:
        """The quadratic models of all knots of trajectories."""
        q, qd, u = map(np.ascontiguousarray, (q, qd, u))
        to = self.models(len(q))
        running, last = self.model_arrays(q, qd, u, to)
        running |= self.numbers(rows, final=False)
        if len(q) == 1:  # knots beside one another
            running = {name: each.swapaxes(0, 1) for name, each in running.items()}
            self.model_loop(running, self.steps, 1)
        else:
            self.model_loop(running, len(q), self.steps)
        if self.last:
            self.last_model_loop({**last, **self.numbers(rows, final=True)}, len(q), 1)
        return to
