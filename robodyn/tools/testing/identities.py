"""Identities of mechanics that hold for every robot."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.internals.arguments import Array
from robodyn.tools.testing.states import DIFFERENCES, SMALL, STEP, VALUES, Sizes, States, answers, relative

_Error = tuple[str, tuple[float, float]]
_ROUNDINGS = 8.0 * np.finfo(np.float64).eps


def identities(dyn: Dynamics, s: States) -> dict[str, tuple[float, float]]:
    """(error, tolerance) of each identity between queries that the engine answers."""
    errors = dict(_values(dyn, s))
    if dyn.dtype == np.float64:
        errors |= dict(_derivatives(dyn, s))
    return errors


def _values(dyn: Dynamics, s: States) -> Iterator[_Error]:
    """Identities between queries at one state."""
    allowed, sizes = VALUES[dyn.dtype.name], Sizes.of(dyn.model)
    tau, H = dyn.inverse_dynamics(s.q, s.qd, s.qdd), dyn.mass_matrix(s.q)
    force = max(float(np.abs(tau).max(initial=0.0)), SMALL * sizes.force)
    yield "H = H'", (relative(H, np.swapaxes(H, -1, -2)), 0.0)
    if answers(dyn, "bias_force"):
        bias = dyn.bias_force(s.q, s.qd)
        yield "H qdd + bias = tau", (relative(_times(H, s.qdd) + bias, tau, force), allowed)
        if answers(dyn, "coriolis_matrix", "gravity_force"):
            total = _times(dyn.coriolis_matrix(s.q, s.qd), s.qd) + dyn.gravity_force(s.q)
            yield "C qd + gravity = bias", (relative(total, bias, force), allowed)
    if answers(dyn, "kinetic_energy"):
        kinetic = 0.5 * np.einsum("ni,nij,nj->n", s.qd, H, s.qd)
        yield "qd' H qd / 2 = kinetic energy", (relative(kinetic, dyn.kinetic_energy(s.q, s.qd)), allowed)
    if answers(dyn, "forward_dynamics") and dyn.singularity() is None:
        again = dyn.inverse_dynamics(s.q, s.qd, dyn.forward_dynamics(s.q, s.qd, tau))
        yield "inverse of forward dynamics", (relative(again, tau, force), allowed)
    if answers(dyn, "link_velocity", "jacobian"):
        link = len(dyn.model.link_names) - 1
        J = dyn.jacobian(s.q, link)
        velocity, size = dyn.link_velocity(s.q, s.qd, link), _times(np.abs(J), np.abs(s.qd))
        for part, rows in (("turns", slice(0, 3)), ("moves", slice(3, 6))):
            error = relative(_times(J, s.qd)[:, rows], velocity[:, rows], float(size[:, rows].max(initial=0.0)))
            yield f"J qd is how the last link {part}", (error, allowed)
    if answers(dyn, "centroidal_momentum") and dyn.model.nv and dyn.model.total_mass > 0.0:
        h, A = dyn.centroidal_momentum(s.q, s.qd)
        largest = float(_times(np.abs(A), np.abs(s.qd)).max(initial=0.0))
        yield "A qd = centroidal momentum", (relative(_times(A, s.qd), h, SMALL * largest), allowed)


def _derivatives(dyn: Dynamics, s: States) -> Iterator[_Error]:
    """Identities between a query and the time derivative of another."""
    model = dyn.model
    # A mimic joint moves by its multiplier times as far.
    step = STEP / max(1.0, float(np.abs(model.v_multiplier).max(initial=0.0)))

    def judge(value: Array, ask: Callable[[Array, Array], Array], least: float) -> tuple[float, float]:
        """(error, tolerance) of a time derivative of `ask`, by central differences along qd and qdd."""
        ends = [ask(model.integrate(s.q, s.qd + 0.5 * t * s.qdd, t), s.qd + t * s.qdd) for t in (step, -step)]
        size = max(float(np.abs(value).max(initial=0.0)), least, float(np.finfo(float).tiny))
        rounding = _ROUNDINGS * max(float(np.abs(end).max(initial=0.0)) for end in ends) / step
        return relative(value, (ends[0] - ends[1]) / (2.0 * step), size), DIFFERENCES + rounding / size

    tau = dyn.inverse_dynamics(s.q, s.qd, s.qdd)
    force = max(float(np.abs(tau).max(initial=0.0)), SMALL * Sizes.of(model).force)
    power = float(np.abs(s.qd * tau).sum(axis=-1).max(initial=0.0)) + force
    if answers(dyn, "coriolis_matrix"):
        C = dyn.coriolis_matrix(s.q, s.qd)
        symmetric = C + np.swapaxes(C, -1, -2)
        least = float(np.abs(dyn.mass_matrix(s.q)).max(initial=0.0)) + float(np.abs(C).max(initial=0.0))
        yield "C + C' = dH/dt", judge(symmetric, lambda q, qd: dyn.mass_matrix(q), least)
    if answers(dyn, "gravity_force", "potential_energy"):
        along = np.sum(dyn.gravity_force(s.q) * s.qd, axis=-1)
        yield "gravity' qd = dU/dt", judge(along, lambda q, qd: dyn.potential_energy(q), power)
    if answers(dyn, "kinetic_energy", "potential_energy"):
        along = np.sum(tau * s.qd, axis=-1)
        yield "tau' qd = dE/dt", judge(along, lambda q, qd: dyn.kinetic_energy(q, qd) + dyn.potential_energy(q), power)
    if answers(dyn, "inverse_dynamics_gradient"):
        by_q, by_qd = dyn.inverse_dynamics_gradient(s.q, s.qd, s.qdd)
        both = _times(by_q, s.qd) + _times(by_qd, s.qdd)
        yield (
            "dtau/dq qd + dtau/dqd qdd = dtau/dt",
            judge(both, lambda q, qd: dyn.inverse_dynamics(q, qd, s.qdd), force),
        )


def _times(matrices: Array, vectors: Array) -> Array:
    product: Array = np.einsum("nij,nj->ni", matrices, vectors)
    return product
