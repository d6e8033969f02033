"""`robodyn.optimize_trajectory`: trajectories of least cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.tasks import LIMITS
from robodyn.api.dynamics import Dynamics
from robodyn.api.motion.robot import dynamics_of
from robodyn.api.motion.rollout import progress_bar
from robodyn.api.motion.unused import warn_of_unused_forces
from robodyn.core.model import Model
from robodyn.internals import strict_types
from robodyn.internals.arguments import (
    Array,
    broadcast_leading,
    count,
    finite_real,
    flag,
    one_of,
    real_array,
    require_finite,
    within_memory,
)
from robodyn.internals.errors import ArgumentError, SingularError
from robodyn.internals.messages import brief
from robodyn.solve.trajectories.costs import Cost
from robodyn.solve.trajectories.curvature import Curvature
from robodyn.solve.trajectories.device_search import DeviceSearch, require_device_search
from robodyn.solve.trajectories.guess import holding
from robodyn.solve.trajectories.multiple import MultipleShooting
from robodyn.solve.trajectories.pool import PooledSearch
from robodyn.solve.trajectories.problem import Problem, in_double
from robodyn.solve.trajectories.riccati_scan import RiccatiScan, why_no_scan
from robodyn.solve.trajectories.shooting import CONVERGED, DIVERGED, STALLED, Search
from robodyn.solve.trajectories.terms import configurations
from robodyn.solve.trajectories.trajectory import STATUSES, Trajectory

BACKWARD = "auto", "recursion", "scan"
MOST_STEPS, _MOST_ITERATIONS = 1 << 20, 1 << 20
_CHUNK_SCALARS = 1 << 21
"""Problems that are solved together have some so many entries of A: their arrays stay near."""
_SOLVES, _COARSE = 20, 1e-6
"""Solves with limits, the first with this tolerance at least."""
_KEPT, _NEAR = 1e-6, 1e-3
"""Violations of limits of a converged trajectory, and of one from which on solves are exact, in natural units."""


@within_memory
def optimize_trajectory(
    dyn: Dynamics | Model,
    cost: Cost,
    start: tuple[ArrayLike, ArrayLike],
    steps: int,
    dt: float,
    tau0: ArrayLike | None = None,
    q_guess: Any = None,
    *,
    limits: str | Sequence[str] | None = None,
    actuated: Sequence[str] | Array | None = None,
    active: ArrayLike | None = None,
    targets: ArrayLike | None = None,
    method: Literal["ilqr", "ddp"] = "ilqr",
    backward: Literal["auto", "recursion", "scan"] = "auto",
    iterations: int = 100,
    tolerance: float = 1e-9,
    progress: bool = False,
) -> Trajectory:
    """Joint forces that lead from a state along a trajectory of least cost, for one problem or a batch.

    Steps are those of `Dynamics.step`, semi-implicit Euler: constraints, contacts and `joint_forces` act as there.
    Without `q_guess` trajectories are rolled out (single shooting), and the cost falls in every iteration.

    Args:
        dyn: the robot.
        cost: a sum of `robodyn.costs`.
        start: (q0, qd0), (..., nq) and (..., nv): the initial states of all problems.
        steps: N.
        dt: s, of a step.
        tau0: first guess of joint forces, (nv,), (steps, nv) or (..., steps, nv). None: what holds q0: gravity forces,
            on constraints `constrained_inverse_dynamics`; zeros for a floating robot in the air. With contacts: what
            stops joints with drives in each step.
        q_guess: first guess of configurations (..., steps + 1, nq), or of (q, qd), for multiple shooting: the dynamics
            are obeyed at the end only. Velocities follow from configurations, where they are not given.
        limits: "effort", "position" and "velocity": which limits of the model hold. Efforts are within at all times,
            states up to 1e-6 of a solution that converged.
        actuated: names of joints or velocities with drives, or bools (nv,); None: all but floating joints.
        active: (steps, n_constraints) or (..., steps, n_constraints): which constraints hold in each step, or
            (n_constraints,).
        targets: (steps, n_constraints, 12), (..., steps, n_constraints, 12) or (n_constraints, 12): where. None:
            constraints to the world without a place hold their links where q0 has them, points along the world's axes.
        method: "ilqr", or "ddp", with second derivatives of steps: quadratic convergence of strongly nonlinear
            problems, for trees of joints with one coordinate, without constraints and contacts.
        backward: how gains are computed: by a Riccati "recursion" from the last knot, or by a "scan" over stretches of
            knots, whose parallel steps are fewer. "auto" is the recursion, but on a GPU a scan where its depth is at
            most half of the recursion's. A scan needs positive weights of `Control`, and no limits of effort.
        iterations: most iterations. Limits of states, clearances and friction take up to 20 solves of as many each.
        tolerance: an iteration that would lower the cost by less than this part of it is the last.
        progress: True for a progress bar: the number of problems that are done.

    Computed in double precision; the results have the dtype of `dyn`.

    Raises:
        ArgumentError: wrong shapes or values, costs that do not fit the robot, or a "scan" where there is none.
        NumericalError: NaN or infinity in an argument.
        SingularError: a robot whose mass matrix is singular.
        UnavailableError: arrays on a GPU, `method="ddp"` for a robot without second derivatives, or for a robot with
            contacts what they do not know: `max_contacts`, `active`, `targets`, `Friction`. On the GPU engine:
            contacts, `q_guess`, "ddp", limits other than "effort", and robots whose kernels would be too large.

    Warns:
        ConvergenceWarning: contact forces did not converge in a step of the result.
    """
    dyn = dynamics_of(dyn, "optimize_trajectory", constraints="obeyed")
    word, way = one_of("method", method, ("ilqr", "ddp")), one_of("backward", backward, BACKWARD)
    shown = flag("progress", progress)
    most, small = count("iterations", iterations, 1, _MOST_ITERATIONS), positive("tolerance", tolerance)
    warn_of_unused_forces(dyn, "optimize_trajectory")
    problem, u, guess = read(
        dyn, cost, start, steps, dt, tau0, q_guess, limits=limits, actuated=actuated, active=active, targets=targets
    )
    curvature = Curvature(problem) if word == "ddp" else None
    with progress_bar(shown, problem.count, "optimize_trajectory") as advance:
        search = searched(problem, u, guess, curvature, most, small, advance, way)
    problem.warn_of_contacts("optimize_trajectory", search.q, search.qd, search.u)
    return result_of(search, dyn)


def read(
    dyn: Dynamics,
    cost: Any,
    start: Any,
    steps: Any,
    dt: Any,
    tau0: Any,
    q_guess: Any,
    *,
    limits: Any,
    actuated: Any,
    active: Any,
    targets: Any,
) -> tuple[Problem, Array, tuple[Array, Array] | None]:
    """The problem of checked arguments, its first controls (B, N, nu), and its first states, if they are given."""
    model = dyn.model
    reason = dyn._loose if model.constraints else dyn.singularity()
    if reason is not None:
        raise SingularError(reason)
    if not strict_types.is_a(cost, Cost):
        raise ArgumentError(f"cost: got {brief(cost)}; wanted a sum of robodyn.costs")
    n, seconds = count("steps", steps, 1, MOST_STEPS), positive("dt", dt)
    full, leading = _arrays(model, start, n, tau0, q_guess)
    drives = dyn._actuated(actuated)
    if not drives.any():
        raise ArgumentError(f"actuated: got {brief(actuated)}; wanted at least one velocity with a drive")
    names = _limit_names(limits)
    problem = Problem(
        in_double(dyn),
        cost,
        configurations("q0", model, full["q0"]),
        full["qd0"],
        steps=n,
        dt=seconds,
        actuated=drives,
        limits=names,
        active=active,
        targets=targets,
        leading=leading,
    )
    if tau0 is None:
        u = holding(problem)
    else:
        if full["tau0"][..., ~drives].any():
            free = model.velocity_names[int(np.flatnonzero(~drives & full["tau0"].any(axis=(0, 1)))[0])]
            raise ArgumentError(f"tau0: got a force at {free!r}, which has no drive; wanted 0 there")
        u = full["tau0"][..., problem.actuated]
    guess = _first_states(problem, full) if q_guess is not None else None
    return problem, np.array(problem.clipped(u)), guess


def _arrays(model: Model, start: Any, n: int, tau0: Any, q_guess: Any) -> tuple[dict[str, Array], tuple[int, ...]]:
    """Checked arrays (B, ...) by name, copies, and the shape of the batch."""
    if not strict_types.is_a(start, tuple, list) or len(strict_types.members(start)) != 2:
        raise ArgumentError(f"start: got {brief(start)}; wanted a pair (q0, qd0)")
    q0, qd0 = strict_types.members(start)
    arrays = {
        "q0": (real_array("q0", q0, (model.nq,), np.float64), 1),
        "qd0": (real_array("qd0", qd0, (model.nv,), np.float64), 1),
    }
    if tau0 is not None:
        forces = real_array("tau0", tau0, (model.nv,), np.float64)
        arrays["tau0"] = (_with_knots("tau0", forces, n), 2)
    if q_guess is not None:
        pair = strict_types.members(q_guess) if strict_types.is_a(q_guess, tuple) else (q_guess, None)
        if len(pair) != 2:
            raise ArgumentError(f"q_guess: got {brief(q_guess)}; wanted configurations, or a pair (q, qd)")
        guessed = real_array("q_guess", pair[0], (model.nq,), np.float64)
        arrays["q_guess"] = (_with_knots("q_guess", guessed, n + 1), 2)
        if pair[1] is not None:
            rates = real_array("q_guess[1]", pair[1], (model.nv,), np.float64)
            arrays["qd_guess"] = (_with_knots("q_guess[1]", rates, n + 1), 2)
    leading = broadcast_leading(arrays)
    size = math.prod(leading)
    full = {}
    for name, (array, trailing) in arrays.items():
        require_finite(name, array, trailing)
        own = array.shape[array.ndim - trailing :]
        full[name] = np.broadcast_to(array, (*leading, *own)).reshape(size, *own).copy()
    return full, leading


def searched(
    problem: Problem,
    u: Array,
    guess: tuple[Array, Array] | None,
    curvature: Curvature | None,
    iterations: int,
    tolerance: float,
    advance: Callable[[int], None],
    backward: str = "recursion",
) -> Search:
    """The search of all problems at its end."""
    reason = why_no_scan(problem, curvature is not None) if backward != "recursion" else ""
    if reason and backward == "scan":
        raise ArgumentError(f"backward: got 'scan' with {reason}; wanted 'auto' or 'recursion'")
    rows, done = np.arange(problem.count), [0]
    some = max(1, _CHUNK_SCALARS // (problem.steps * 4 * problem.nv**2))
    if problem.dyn.engine.name == "gpu":
        require_device_search(problem, guess is not None, curvature is not None)
        search: Search = (on_device := DeviceSearch(problem, u, "recursion" if reason else backward))
        some = on_device.at_once
    else:
        q, qd = problem.roll_out(rows, u) if guess is None else guess
        kind = MultipleShooting if guess is not None else Search if backward == "scan" else PooledSearch
        search = kind(problem, q, qd, u, curvature)
        if backward == "scan":
            search.backward = RiccatiScan(problem.nv, problem.nu, problem.steps, engine=problem.dyn.engine)
        elif isinstance(search, PooledSearch) and search.pooled:
            some = max(1, problem.count)  # a pool has arrays for a few of them
    for first in range(0, problem.count, some):
        of_chunk = rows[first : first + some]

        def tick(resting: int) -> None:
            advance(resting - done[0])
            done[0] = resting

        search.tick = tick if not problem.limits else lambda resting: None
        search.run(of_chunk, iterations, max(tolerance, _COARSE) if problem.limits else tolerance)
        if problem.limits:
            _with_limits(search, of_chunk, iterations, tolerance)
        advance(first + len(of_chunk) - done[0])
        done[0] = first + len(of_chunk)
    return search


def _with_limits(search: Search, rows: Array, iterations: int, tolerance: float) -> None:
    """Solve again with multipliers until limits hold. Problems that they hold in rest."""
    problem, coarse = search.problem, max(tolerance, _COARSE)
    rows = rows[search.status[rows] != DIVERGED]
    exact = np.full(problem.count, tolerance >= coarse)
    for _ in range(_SOLVES):
        at = search.q[rows], search.qd[rows], search.u[rows]
        problem.limits.update(rows, *at, problem.cost(rows, *at, limits=False))
        kept = problem.limits.violation[rows] <= _KEPT
        rows = rows[~(kept & exact[rows] & (search.status[rows] == CONVERGED))]
        if not rows.size:
            return
        exact[rows] = (tolerance >= coarse) | (problem.limits.violation[rows] < _NEAR)
        for part, allowed in ((rows[~exact[rows]], coarse), (rows[exact[rows]], tolerance)):
            if part.size:
                search.run(part, iterations, allowed)
    at = search.q[rows], search.qd[rows], search.u[rows]
    problem.limits.update(rows, *at, problem.cost(rows, *at, limits=False))
    missed = rows[(problem.limits.violation[rows] > _KEPT) | ~exact[rows]]
    search.status[missed[search.status[missed] == CONVERGED]] = STALLED


def result_of(search: Search, dyn: Dynamics) -> Trajectory:
    """The result with the leading axes of the problems."""
    problem, leading = search.problem, search.problem.leading
    gains = np.zeros((problem.count, problem.steps, problem.nv, 2 * problem.nv))
    gains[..., problem.actuated, :] = search.gains
    every = np.arange(problem.count)
    on_device = isinstance(search, DeviceSearch)  # which has no limits of states
    cost = search.cost if on_device else problem.cost(every, search.q, search.qd, search.u, limits=False)
    violation = np.where(np.isfinite(cost), problem.limits.violation, np.inf) if problem.limits else np.zeros(len(cost))

    def shaped(array: Array) -> Array:
        with np.errstate(over="ignore"):  # costs beyond float32 are infinite there
            return array.reshape((*leading, *array.shape[1:])).astype(dyn.dtype)

    words = np.array(STATUSES)[search.status].reshape(leading)
    return Trajectory(
        shaped(search.q),
        shaped(search.qd),
        shaped(problem.phases.tau(search.u)),
        shaped(gains),
        shaped(cost)[()],
        (search.status == CONVERGED).reshape(leading)[()],
        search.iterations.reshape(leading)[()],
        words if leading else str(words[()]),
        shaped(search.log()),
        shaped(violation)[()],
    )


def positive(name: str, value: Any) -> float:
    """A positive finite number.

    Raises:
        ArgumentError: it is not.
    """
    number = finite_real(value)
    if number is None or number <= 0.0:
        raise ArgumentError(f"{name}: got {brief(value)}; wanted a positive finite number")
    return number


def _limit_names(given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    words = (given,) if strict_types.is_a(given, str) else given
    if not strict_types.is_a(words, tuple, list):
        raise ArgumentError(f"limits: got {brief(given)}; allowed: None, {', '.join(map(repr, LIMITS))}, or several")
    return tuple(one_of("limits", each, LIMITS) for each in strict_types.members(words))


def _with_knots(name: str, array: Array, knots: int) -> Array:
    """(..., knots, n) of an array (n,) or (..., knots, n)."""
    if array.ndim == 1:
        return np.broadcast_to(array, (knots, array.shape[-1]))
    if array.shape[-2] != knots:
        raise ArgumentError(f"{name}: got shape {array.shape}; wanted ({array.shape[-1]},) or (..., {knots}, ...)")
    return array


def _first_states(problem: Problem, full: dict[str, Array]) -> tuple[Array, Array]:
    """States (B, N + 1, ...) of a guess, the first of which are those of the problems."""
    q = configurations("q_guess", problem.dyn.model, full["q_guess"])
    q[:, 0] = problem.q0
    if "qd_guess" in full:
        qd = full["qd_guess"]
    else:
        qd = np.empty((*q.shape[:2], problem.nv))
        qd[:, 1:] = problem.apart(q[:, :-1], q[:, 1:]) / problem.dt
    qd[:, 0] = problem.qd0
    return q, qd
