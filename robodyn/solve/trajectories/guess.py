"""First controls: those that hold the robot where it starts."""

from __future__ import annotations

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.core.joints import KINDS
from robodyn.internals.arguments import Array
from robodyn.solve.trajectories.contact_steps import ContactSteps
from robodyn.solve.trajectories.problem import Problem

_NEWTON, _AT_REST = 6, 1e-6
"""Most iterations of Newton's method for a step, and velocities in rad/s or m/s that count as none."""
_SINGULAR = 1e-10
"""Eigenvalues of a matrix that count as zero, relative to the largest."""
_SCALARS = 1 << 21
"""Problems whose derivatives of a step have some so many entries are taken together."""


def holding(problem: Problem) -> Array:
    """Controls (B, N, nu): gravity forces at q0; on constraints those of `constrained_inverse_dynamics` under which
    joints with drives rest. Zeros where a floating robot has no active constraint, as it falls anyway. With contacts
    those that stop all joints with drives, however the rest moves."""
    dyn, model, still = problem.dyn, problem.dyn.model, np.zeros_like(problem.qd0)
    floats = any(KINDS[code].name == "floating" for code in model.joint_kind.tolist())
    shape = (problem.count, problem.steps, problem.nv)
    if problem.contacts is not None:
        return _rigid(problem, problem.contacts)
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


def _rigid(problem: Problem, contacts: ContactSteps) -> Array:
    """Controls (B, N, nu) after whose steps joints with drives are at rest."""
    some = max(1, _SCALARS // (2 * problem.nv) ** 2)
    parts = [
        _stopping(problem, contacts, problem.q0[first : first + some], problem.qd0[first : first + some])
        for first in range(0, problem.count, some)
    ]
    return np.concatenate((np.zeros((0, problem.steps, problem.nu)), *parts))


def _stopping(problem: Problem, contacts: ContactSteps, q: Array, qd: Array) -> Array:
    """Those from states (R, nq), (R, nv), by Newton's method for each step."""
    driven, tau_of = problem.actuated, problem.phases.tau
    u, found = np.zeros((len(q), problem.nu)), np.zeros((len(q), problem.steps, problem.nu))
    for k in range(problem.steps):
        for _ in range(_NEWTON):
            left = contacts.step(q, qd, tau_of(u))[1][:, driven]
            moves = np.abs(left).max(axis=1) > _AT_REST
            if not moves.any():
                break
            by_u = contacts.derivatives(q, qd, tau_of(u))[1][:, problem.nv + driven][..., driven]
            moves &= np.isfinite(by_u).all(axis=(1, 2)) & np.isfinite(left).all(axis=1)
            change = np.linalg.solve(by_u[moves], left[moves, :, None])[..., 0]
            u[moves] = problem.clipped(u[moves] - change)
        found[:, k] = u
        q, qd = contacts.step(q, qd, tau_of(u))
    return found


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
    rates = _with_joints_at_rest(dyn, q, drives, targets, pattern)
    tau, *_ = dyn.constrained_inverse_dynamics(q, still, rates, drives, targets, active=pattern, residual=True)
    tau = tau[..., problem.actuated]
    tau = np.where(np.isfinite(tau), tau, 0.0)
    return np.broadcast_to(tau, (problem.count, problem.steps, problem.nu)).copy()


def _with_joints_at_rest(dyn: Dynamics, q: Array, drives: Array, targets: Array | None, pattern: Array | None) -> Array:
    """Accelerations (B, N or 1, nv) from rest at q (B, 1, nq) if joints with drives do not move: a robot on too few
    feet tips over as one rigid body. Forces for accelerations that it cannot have would throw its legs about."""
    J, H = dyn.constraint_jacobian(q, targets)[..., ~drives], dyn.mass_matrix(q)[..., ~drives, :][..., ~drives]
    if pattern is not None:
        J = J * dyn._active_rows(q, pattern)[..., None]
    n = H.shape[-1]
    H, none = np.broadcast_to(H, (*J.shape[:-2], n, n)), np.zeros((*J.shape[:-1], J.shape[-2]))
    system = np.block([[H, J.swapaxes(-1, -2)], [J, none]])
    inverse = np.linalg.pinv(system, rcond=_SINGULAR, hermitian=True)[..., :n, :n]
    rates = np.zeros((*J.shape[:-2], dyn.model.nv))
    rates[..., ~drives] = -(inverse @ dyn.gravity_force(q)[..., ~drives, None])[..., 0]
    return rates
