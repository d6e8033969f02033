"""Second derivatives of time steps, which DDP has and iLQR has not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.internals.messages import quoted
from robodyn.solve.trajectories.problem import Problem
from robodyn.solve.trajectories.terms import Expansion, is_flat


class Curvature:
    """Second derivatives of the step qd' = qd + dt qdd, q' = q + dt qd', contracted with the costates.

    The multipliers are those of the trajectory, lambda_k = lx + A' lambda_k+1, so that steps are Newton's. With damping
    qdd is forward dynamics with dt times the damping as armature, as steps have it.

    Raises:
        UnavailableError: a robot with constraints, contacts, dry friction, or joints of several coordinates.
    """

    def __init__(self, problem: Problem) -> None:
        dyn, model = problem.dyn, problem.dyn.model
        what = None
        if model.constraints:
            what = "has constraints"
        elif model.contacts is not None:
            what = "has contacts"
        elif not is_flat(dyn):
            what = "has joints of several coordinates"
        elif "friction" in dyn.joint_forces and model.friction.any():
            what = "has dry friction (joint_forces)"
        if what is not None:
            raise UnavailableError(f'method: got "ddp" for {quoted(model.name)}, which {what}; wanted "ilqr"')
        self._problem: Problem = problem
        self._dyn: Dynamics = dyn
        if "damping" in dyn.joint_forces and model.damping.any():
            stiff = model.tree_armature + problem.dt * model.tree_damping
            self._dyn = dyn.variant(replace(model, tree_armature=stiff))

    def add(self, q: Array, qd: Array, u: Array, model: Expansion, A: Array) -> Expansion:
        """The model with the second derivatives of steps."""
        nv, dt, actuated = self._problem.nv, self._problem.dt, self._problem.actuated
        costate, vector = model.lx[:, -1], np.empty((*u.shape[:2], nv))
        for i in range(u.shape[1] - 1, -1, -1):
            vector[:, i] = dt * (costate[:, nv:] + dt * costate[:, :nv])
            costate = model.lx[:, i] + (A[:, i].swapaxes(-1, -2) @ costate[..., None])[..., 0]
        tau = self._problem.phases.tau(u)
        at = np.ascontiguousarray(q[:, :-1]), np.ascontiguousarray(qd[:, :-1])
        q_q, q_qd, qd_qd, q_tau = self._dyn.forward_dynamics_hessian(*at, tau, vector=vector)
        lxx, lux = model.lxx.copy(), model.lux.copy()
        lxx[:, :-1, :nv, :nv] += 0.5 * (q_q + q_q.swapaxes(-1, -2))
        lxx[:, :-1, :nv, nv:] += q_qd
        lxx[:, :-1, nv:, :nv] += q_qd.swapaxes(-1, -2)
        lxx[:, :-1, nv:, nv:] += qd_qd
        lux[..., :nv] += q_tau.swapaxes(-1, -2)[..., actuated, :]
        return Expansion(model.lx, lxx, model.lu, model.luu, lux)
