"""Model predictive control: `robodyn.Mpc`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from robodyn.api.dynamics import Dynamics
from robodyn.api.motion.robot import dynamics_of
from robodyn.api.motion.unused import warn_of_unused_forces
from robodyn.api.queries.poses import require_poses
from robodyn.core.constraints.resolved import anchored_by_calls
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, count, finite_real, real_array, require_finite, within_memory
from robodyn.internals.errors import ArgumentError, NumericalError, UnavailableError
from robodyn.internals.messages import brief
from robodyn.solve.trajectories.costs import Cost, Pose, State, Sum
from robodyn.solve.trajectories.optimize import MOST_STEPS, positive, read, result_of, searched
from robodyn.solve.trajectories.phases import places
from robodyn.solve.trajectories.problem import Problem
from robodyn.solve.trajectories.shooting import DIVERGED, RUNNING, Search
from robodyn.solve.trajectories.terms import KnotValues, Residual, configurations
from robodyn.solve.trajectories.trajectory import Trajectory
from robodyn.solve.trajectories.warm import WarmSearch

_FIRST, _TOLERANCE = 100, 1e-9
"""Most iterations of the first call, and its tolerance."""
_WHOLE = 1e-9
"""Rounding of elapsed times, in knots."""
_LONGEST = 1 << 50
"""Most knots that pass in a call, and are counted in all."""
_ONE = np.arange(1)


class Mpc:
    """Model predictive control: in each call one iteration of trajectory optimisation from the robot's state.

    The first call, and the first after `reset`, optimises until it has converged. Later ones shift the plan by the time
    that has passed, follow it from the new state with its feedback, and take one iteration. Copies, also by pickle,
    have no plan. An object is for one thread at a time.

    Args:
        dyn: the robot.
        cost: as of `robodyn.optimize_trajectory`.
        steps, dt: of the horizon, s.
        limits, actuated: as there.
        active, targets: as there; with more rows than `steps` a schedule that begins with the first call, whose last
            row stays. Without targets constraints to the world without a place hold their links where the state of each
            call has them.

    Raises:
        ArgumentError, UnavailableError: as `robodyn.optimize_trajectory`.
    """

    @within_memory
    def __init__(
        self,
        dyn: Dynamics | Model,
        cost: Cost,
        steps: int,
        dt: float,
        *,
        limits: str | Sequence[str] | None = None,
        actuated: Sequence[str] | Array | None = None,
        active: ArrayLike | None = None,
        targets: ArrayLike | None = None,
    ) -> None:
        self._dyn = dynamics_of(dyn, "Mpc", constraints="obeyed")
        self._steps, self._dt = count("steps", steps, 1, MOST_STEPS), positive("dt", dt)
        warn_of_unused_forces(self._dyn, "Mpc")
        model = self._dyn.model
        self._schedules = {
            name: _schedule(name, value, own, self._steps)
            for name, value, own in (
                ("active", active, (model.n_constraints,)),
                ("targets", targets, (model.n_constraints, 12)),
            )
            if value is not None and model.constraints
        }
        windows = {name: _window(rows, 0, self._steps) for name, rows in self._schedules.items()}
        self._given: dict[str, Any] = {
            "limits": limits,
            "actuated": actuated,
            "active": windows.get("active", active),
            "targets": windows.get("targets", targets),
        }
        free = "targets" not in windows and model.contacts is None
        self._anchored = free and anchored_by_calls(model.constraints)
        self._needs_goal = strict_types.is_a(cost, Cost) and any(
            isinstance(each, State) and each.q_goal is None and each.q.any() for each in cost.terms
        )
        self._cost = _with_goals(cost, model) if self._needs_goal else cost
        self._goals: dict[str, KnotValues] = {}
        start = model.neutral(), np.zeros(model.nv)
        read(self._dyn, self._cost, start, self._steps, self._dt, np.zeros(model.nv), None, **self._given)  # checks all
        if self._dyn.engine.name == "gpu":
            raise UnavailableError(
                "Mpc: got engine 'gpu', which is for batches of problems; allowed: 'cpu', 'reference'"
            )
        self.reset()

    def reset(self) -> None:
        """Forget the plan, but not the goal: the next call is a first one."""
        self._search: Search | None = None
        self._warm: WarmSearch | None = None
        self._passed, self._shifted = 0.0, 0

    def __getstate__(self) -> dict[str, Any]:
        """All but the plan, whose programs stay in their process."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_search", "_warm")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores it, without a plan."""
        self.__dict__.update(state)
        self.reset()

    @property
    def plan(self) -> Trajectory:
        """The trajectory that the last call planned, from its state on.

        Raises:
            ArgumentError: there was no call.
        """
        if self._search is None:
            raise ArgumentError("plan: there is none before the first call")
        return result_of(self._search, self._dyn)

    def __call__(
        self, q: ArrayLike, qd: ArrayLike, goal: ArrayLike | None = None, elapsed: float | None = None
    ) -> Array:
        """Joint forces (nv,) for the state now; zeros where not actuated.

        Args:
            q, qd: (nq,) and (nv,), the state.
            goal: replaces `q_goal` of all `State` costs, (nq,) or (steps + 1, nq), or `target` of all `Pose` costs,
                (4, 4) or (steps + 1, 4, 4), from now on. None: as it was.
            elapsed: s since the last call; None: dt. The plan is shifted by whole steps; fractions add up.

        Raises:
            ArgumentError: wrong shapes, or a negative time.
            NumericalError: NaN or infinity in an argument, or a first plan that diverges. If a later one does, forces
                are those of the plan before, and `plan.status` is "diverged".
        """
        model, passed = self._dyn.model, self._dt if elapsed is None else finite_real(elapsed)
        if passed is None or not 0.0 <= passed <= _LONGEST * self._dt:
            raise ArgumentError(
                f"elapsed: got {brief(elapsed)}; wanted a number of seconds from 0 to {_LONGEST * self._dt:g}"
            )
        arrays = []
        for name, value, n in (("q", q, model.nq), ("qd", qd, model.nv)):
            array = real_array(name, value, (n,), np.float64)
            if array.ndim > 1:
                raise ArgumentError(f"{name}: got shape {array.shape}; wanted ({n},)")
            require_finite(name, array, 1)
            arrays.append(array)
        state = configurations("q", model, arrays[0]), arrays[1]
        if goal is not None:
            self._goals |= self._read_goal(goal)
        if self._search is None:
            self._first(state)
        else:
            self._next(self._search, state, goal is not None, passed)
        search = self._search
        assert search is not None
        search.problem.warn_of_contacts("Mpc", search.q, search.qd, search.u)
        tau: Array = search.problem.phases.tau(search.u[0, 0])
        return tau.astype(self._dyn.dtype)

    @within_memory
    def _first(self, state: tuple[Array, Array]) -> None:
        if self._needs_goal and "State" not in self._goals:
            raise ArgumentError("goal: got None; wanted a configuration, as State has no q_goal")
        problem, u, _ = read(self._dyn, self._cost, state, self._steps, self._dt, None, None, **self._given)
        self._passed, self._shifted = 0.0, 0
        self._aim(problem)
        search = searched(problem, u, None, None, _FIRST, _TOLERANCE, lambda n: None)
        if search.status[0] == DIVERGED:
            raise NumericalError("Mpc: the first plan is not finite; a smaller dt may help")
        self._search = search
        self._warm = WarmSearch.of(search, _TOLERANCE)

    def _next(self, search: Search, state: tuple[Array, Array], aims_anew: bool, passed: float) -> None:
        problem = search.problem
        if aims_anew:
            self._aim(problem)
        self._shift(search, passed)
        problem.q0[0], problem.qd0[0] = state
        if self._anchored:
            problem.phases.put("targets", places(problem.dyn, problem.q0)[:, None])
        search.mu[0] = min(search.mu[0], 1.0)
        if self._warm is not None:
            search.status[0] = RUNNING
            if aims_anew:
                self._warm.read_goals()
            if self._schedules or self._anchored:
                self._warm.read_phases()
            if self._warm.follow():
                self._warm.iterate()
                return
        plan = search.q, search.qd, search.u
        with_feedback, cost = problem.follow(_ONE, plan, np.zeros(1), np.zeros_like(search.u), search.gains)
        if not np.isfinite(cost[0]):
            with_feedback = (*problem.roll_out(_ONE, search.u), search.u)
            cost = problem.cost(_ONE, *with_feedback)
        search.status[0] = RUNNING
        if not np.isfinite(cost[0]):
            search.status[0] = DIVERGED  # the plan stays, and its controls are returned
            return
        search.accept(_ONE, with_feedback, cost)
        if problem.limits:
            at = search.q, search.qd, search.u
            problem.limits.update(_ONE, *at, problem.cost(_ONE, *at, limits=False), grow=False)
            search.cost[:] = problem.cost(_ONE, *at)
        search.iterate(_ONE, _TOLERANCE)

    def _shift(self, search: Search, passed: float) -> None:
        """Move the plan by the whole knots that have passed; its end is repeated."""
        self._passed += passed / self._dt
        knots = math.floor(self._passed + _WHOLE)
        if not knots:
            return
        self._passed, self._shifted = max(0.0, self._passed - knots), min(self._shifted + knots, _LONGEST)
        for array in (search.q, search.qd, search.u, search.gains, *(each.y for each in search.problem.limits.limits)):
            some = min(knots, array.shape[1] - 1)
            array[:, : array.shape[1] - some] = array[:, some:]  # NumPy copies what overlaps
            if some > 1:
                array[:, array.shape[1] - some :] = array[:, -1:]
        for name, rows in self._schedules.items():
            if len(rows) > 1:
                search.problem.phases.put(name, _window(rows, self._shifted, self._steps)[None])

    def _read_goal(self, given: Any) -> dict[str, KnotValues]:
        """The goal of a call, by the kind of the costs that it is for."""
        anything = real_array("goal", given, (), np.float64)
        model, terms = self._dyn.model, self._cost.terms
        own: tuple[int, ...]
        if anything.shape[-2:] == (4, 4) and any(isinstance(each, Pose) for each in terms):
            kind, own = "Pose", (4, 4)
        elif any(isinstance(each, State) and each.q.any() for each in terms):
            kind, own = "State", (model.nq,)
        else:
            raise ArgumentError(f"goal: got {brief(given)}; the cost has no State with a q_goal and no Pose to replace")
        array = real_array("goal", anything, own, np.float64)
        require_finite("goal", array, len(own))
        if kind == "Pose":
            require_poses("goal", array)
        else:
            array = configurations("goal", model, array)
        return {kind: KnotValues("goal", array, own, self._steps, ())}

    def _aim(self, problem: Problem) -> None:
        """Set the goals of calls."""
        for each in problem.terms:
            if isinstance(each, Residual) and each.piece.kind in self._goals:
                each.goal = self._goals[each.piece.kind]


def _schedule(name: str, value: Any, own: tuple[int, ...], steps: int) -> Array:
    """(n, *own): values of steps, one for all."""
    array = real_array(name, value, own, np.float64, flags=name == "active")
    if array.ndim == len(own):
        return array[None]
    if array.ndim > len(own) + 1 or len(array) < steps:
        raise ArgumentError(f"{name}: got shape {array.shape}; wanted {own}, or at least {steps} of them")
    return array


def _window(rows: Array, first: int, steps: int) -> Array:
    """(steps, ...) of a schedule, whose last row is repeated; (1, ...) as it is."""
    return rows[np.minimum(np.arange(first, first + steps), len(rows) - 1)]


def _with_goals(cost: Cost, model: Model) -> Cost:
    """The cost with a configuration where `State` has none; each first call replaces it."""
    parts = []
    for each in cost.terms:
        if isinstance(each, State) and each.q_goal is None and each.q.any():
            each = State(each.q, each.qd, model.neutral(), each.qd_goal, final=each.final)
        parts.append(each)
    return Sum(tuple(parts))
