"""Steps of robots with contacts, and their derivatives, without warnings: a search tries forces that lead nowhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.api.motion.step_spec import contact_step_gradient_of, step_solver
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.internals.messages import quoted
from robodyn.solve.trajectories.costs import Cost, Friction
from robodyn.solve.trajectories.programs import INTEGRATOR


class ContactSteps:
    """Steps by `INTEGRATOR`.

    Args:
        dyn: the robot, with contacts.
        dt: s, of a step.
        costs: what is minimised, to refuse limits that know nothing of contacts.

    Raises:
        ArgumentError, UnavailableError, SingularError: as `Dynamics.step_gradient`, and for `Friction`.
    """

    def __init__(self, dyn: Dynamics, dt: float, costs: tuple[Cost, ...]) -> None:
        if any(isinstance(each, Friction) for each in costs):
            raise UnavailableError(
                f"Friction: got some for {quoted(dyn.model.name)}, which has contacts; wanted the friction of "
                "rd.Contact, which forces obey at all times"
            )
        nothing = np.zeros((0, dyn.model.nv))
        dyn.step_gradient(np.zeros((0, dyn.model.nq)), nothing, nothing, dt)  # refuses by name what it cannot do
        self._dyn, self._dt, self._solver = dyn, dt, step_solver(dyn, INTEGRATOR, dt)
        self._gradient = contact_step_gradient_of(dyn, INTEGRATOR, dt, ("q", "qd", "qdd", "dt", "tau"))

    def step(self, q: Array, qd: Array, tau: Array) -> tuple[Array, Array]:
        """The states after steps from states (..., nq), (..., nv)."""
        after = {"q_next": np.empty_like(q), "qd_next": np.empty_like(qd)}
        self._solve(q, qd, tau, after)
        return after["q_next"], after["qd_next"]

    def derivatives(self, q: Array, qd: Array, tau: Array) -> tuple[Array, Array]:
        """A (..., 2 nv, 2 nv) and B (..., 2 nv, nv) of steps."""
        leading, nx, nv = qd.shape[:-1], 2 * qd.shape[-1], qd.shape[-1]
        found = {"A": np.empty((*leading, nx, nx)), "B": np.empty((*leading, nx, nv))}
        qdd = np.empty_like(qd)
        inputs, _ = self._solve(q, qd, tau, {"qdd": qdd})
        if qdd.size:
            results = {name: _rows(each, 2) for name, each in found.items()}
            self._dyn.engine.compose(self._gradient, {**inputs, "qdd": _rows(qdd)}, results)
        return found["A"], found["B"]

    def converged(self, q: Array, qd: Array, tau: Array) -> Array:
        """Whether forces of contacts converge in steps, (...); True for states that are not finite."""
        solution = self._solve(q, qd, tau, {"qdd": np.empty_like(qd)})[1]
        found: Array = (solution.converged | ~solution.finite).reshape(qd.shape[:-1])
        return found

    def _solve(self, q: Array, qd: Array, tau: Array, results: dict[str, Array]) -> Any:
        """Inputs (B, ...), and which rows converged; fills results (..., n)."""
        unit = q if self._dyn.engine.normalizes else self._dyn.model.unit_coordinates(q)
        inputs = {name: _rows(each) for name, each in (("q", unit), ("qd", qd), ("tau", tau))}
        inputs["dt"] = np.full(len(inputs["q"]), self._dt)
        return inputs, self._solver.solve(inputs, {name: _rows(each) for name, each in results.items()})


def _rows(array: Array, trailing: int = 1) -> Array:
    """(B, ...)."""
    return array.reshape(-1, *array.shape[array.ndim - trailing :])
