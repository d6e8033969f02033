"""First controls: those that hold the robot where it starts."""

from __future__ import annotations

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.core.joints import KINDS
from robodyn.internals.arguments import Array
from robodyn.solve.trajectories.problem import Problem


def holding(problem: Problem) -> Array:
    """Controls (B, N, nu): gravity forces at q0; on constraints those of `constrained_inverse_dynamics`. Zeros where a
    floating robot has no active constraint, as it falls anyway."""
    dyn, model, still = problem.dyn, problem.dyn.model, np.zeros_like(problem.qd0)
    floats = any(KINDS[code].name == "floating" for code in model.joint_kind.tolist())
    shape = (problem.count, problem.steps, problem.nv)
    if not model.constraints:
        tau = still if floats else dyn.gravity_force(problem.q0)
        return np.broadcast_to(tau[:, None], shape)[..., problem.actuated].copy()
    every = np.arange(problem.count)
    given = problem.phases.of(every)
    active, targets = given.get("active"), given.get("targets")
    if active is None:
        return _held(dyn, problem, still, None, targets, floats)
    tau = np.empty((problem.count, problem.steps, problem.nu))
    steps = np.broadcast_to(active, (problem.count, problem.steps, model.n_constraints)) > 0
    patterns, which = np.unique(steps.reshape(-1, model.n_constraints), axis=0, return_inverse=True)
    which = which.reshape(problem.count, problem.steps)
    for number, pattern in enumerate(patterns):
        held = _held(dyn, problem, still, pattern, targets, floats)
        tau = np.where((which == number)[..., None], held, tau)
    return tau


def _held(
    dyn: Dynamics, problem: Problem, still: Array, pattern: Array | None, targets: Array | None, floats: bool
) -> Array:
    """Controls (B, N or 1, nu) that hold q0 on the active constraints."""
    if pattern is not None and not pattern.any():
        tau = still if floats else dyn.gravity_force(problem.q0)
        return tau[:, None, problem.actuated]
    drives = np.zeros(problem.nv, bool)
    drives[problem.actuated] = True
    q, still = problem.q0[:, None], still[:, None]
    tau, *_ = dyn.constrained_inverse_dynamics(q, still, still, drives, targets, active=pattern, residual=True)
    tau = tau[..., problem.actuated]
    tau = np.where(np.isfinite(tau), tau, 0.0)
    return np.broadcast_to(tau, (problem.count, problem.steps, problem.nu)).copy()
