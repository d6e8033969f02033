"""Identities of mechanics that hold for every robot, whatever computes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from robodyn.arguments import Array
from robodyn.dynamics import Dynamics
from robodyn.testing.states import DIFFERENCES, STEP, VALUES, States, relative


def identities(dyn: Dynamics, s: States) -> dict[str, tuple[float, float]]:
    """Every identity with its error and what is allowed; forces of joints, such as damping, may take no part."""
    found = dict(_values(dyn, s))
    if dyn.dtype == np.float64:
        found |= dict(_derivatives(dyn, s))
    return found


def _values(dyn: Dynamics, s: States) -> Iterator[tuple[str, tuple[float, float]]]:
    """Those between queries at one state."""
    allowed = VALUES[dyn.dtype.name]
    tau, H, C = dyn.inverse_dynamics(s.q, s.qd, s.qdd), dyn.mass_matrix(s.q), dyn.coriolis_matrix(s.q, s.qd)
    bias, gravity = dyn.bias_force(s.q, s.qd), dyn.gravity_force(s.q)
    force = max(float(np.abs(each).max(initial=0.0)) for each in (tau, bias, gravity))
    yield "H qdd + bias = tau", (relative(_times(H, s.qdd) + bias, tau, force), allowed)
    yield "C qd + gravity = bias", (relative(_times(C, s.qd) + gravity, bias, force), allowed)
    yield "H = H'", (relative(H, np.swapaxes(H, -1, -2)), 0.0)
    kinetic = 0.5 * np.einsum("ni,nij,nj->n", s.qd, H, s.qd)
    yield "qd' H qd / 2 = kinetic energy", (relative(kinetic, dyn.kinetic_energy(s.q, s.qd)), allowed)
    if dyn.singularity() is None:
        again = dyn.inverse_dynamics(s.q, s.qd, dyn.forward_dynamics(s.q, s.qd, tau))
        yield "inverse of forward dynamics", (relative(again, tau, force), allowed)
    link = len(dyn.model.link_names) - 1
    velocity = dyn.link_velocity(s.q, s.qd, link)
    yield "J qd = velocity of the last link", (relative(_times(dyn.jacobian(s.q, link), s.qd), velocity, 1.0), allowed)
    if dyn.model.nv and dyn.model.total_mass > 0.0:
        h, A = dyn.centroidal_momentum(s.q, s.qd)
        yield "A qd = centroidal momentum", (relative(_times(A, s.qd), h), allowed)


def _derivatives(dyn: Dynamics, s: States) -> Iterator[tuple[str, tuple[float, float]]]:
    """Those between a query and the rate of another."""
    model = dyn.model

    def rate(ask: Callable[[Array, Array], Array]) -> Array:
        """Of what is asked at q and qd, along qd and qdd."""
        ends = []
        for t in (STEP, -STEP):
            ends.append(ask(model.integrate(s.q, s.qd + 0.5 * t * s.qdd, t), s.qd + t * s.qdd))
        change: Array = (ends[0] - ends[1]) / (2.0 * STEP)
        return change

    tau, gravity = dyn.inverse_dynamics(s.q, s.qd, s.qdd), dyn.gravity_force(s.q)
    H, C = dyn.mass_matrix(s.q), dyn.coriolis_matrix(s.q, s.qd)
    size = float(np.abs(H).max(initial=0.0)) + float(np.abs(C).max(initial=0.0))
    skew = rate(lambda q, qd: dyn.mass_matrix(q)) - 2.0 * C
    yield "dH/dt - 2 C is skew-symmetric", (relative(skew, -np.swapaxes(skew, -1, -2), size), DIFFERENCES)
    power = sum(float(np.abs(s.qd * force).sum(axis=-1).max(initial=0.0)) for force in (tau, gravity))
    potential = rate(lambda q, qd: dyn.potential_energy(q))
    yield "gravity' qd = dU/dt", (relative(np.sum(gravity * s.qd, axis=-1), potential, power), DIFFERENCES)
    energy = rate(lambda q, qd: dyn.kinetic_energy(q, qd) + dyn.potential_energy(q))
    yield "tau' qd = dE/dt", (relative(np.sum(tau * s.qd, axis=-1), energy, power), DIFFERENCES)
    by_q, by_qd = dyn.inverse_dynamics_gradient(s.q, s.qd, s.qdd)
    along = rate(lambda q, qd: dyn.inverse_dynamics(q, qd, s.qdd))
    both = _times(by_q, s.qd) + _times(by_qd, s.qdd)
    least = float(np.abs(tau).max(initial=0.0))
    yield "dtau/dq qd + dtau/dqd qdd = dtau/dt", (relative(both, along, least), DIFFERENCES)


def _times(matrices: Array, vectors: Array) -> Array:
    product: Array = np.einsum("nij,nj->ni", matrices, vectors)
    return product
