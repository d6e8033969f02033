"""What is compared with an oracle, at which states, and how the difference is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import robodyn as rd
from robodyn.algorithms.kinematics import Frame
from robodyn.engines.query_table import FRAMES

Array = NDArray[np.float64]
Oracle = Any
"""An object with a `model`, queries named and ordered as those of `robodyn.Dynamics` and about batches (B, ...), and
`inversion_error`."""

N_STATES = 10
CANCELLED = 1e-3
"""Entries smaller than this times their natural size are what is left where others cancel; differences are not taken
relative to them."""
INVERSION = 10.0
"""A tolerance is at least this times the error of the oracle's inverse of H, where H is inverted."""


@dataclass(frozen=True)
class States:
    """Random states (B, ...) of one robot, and the links to be asked about. `tau` makes it accelerate about as `qdd`
    does; `effort` is of one size for all joints, however light what they move; `step` is a way on the manifold."""

    q: Array
    qd: Array
    qdd: Array
    f_ext: Array
    wrench: Array
    V0: Array
    dV0: Array
    step: Array
    tau: Array
    effort: Array
    links: tuple[int, ...]


def random_states(oracle: Oracle, links: Iterable[int], seed: int, n: int = N_STATES) -> States:
    """`n` states, rates and forces away from zero; prints the seed, so that a failure can be repeated."""
    model = oracle.model
    print(f"states of {model.name}: seed {seed}")
    rng = np.random.default_rng(seed)

    def away_from_zero(*shape: int) -> Array:
        return rng.uniform(0.2, 1.5, shape) * rng.choice([-1.0, 1.0], shape)

    # Limits have no part in dynamics, and real files have them equal, at 1e16 or reversed.
    unlimited = replace(model, tree_lower=np.full(model.nq_tree, -np.inf), tree_upper=np.full(model.nq_tree, np.inf))
    q = unlimited.random_configuration(rng, (n,))
    qd, qdd, other, effort, step = (away_from_zero(n, model.nv) for _ in range(5))
    f_ext = away_from_zero(n, model.n_bodies, 6)
    wrench, V0, dV0 = (away_from_zero(n, 6) for _ in range(3))
    tau = oracle.inverse_dynamics(q, qd, other, f_ext=f_ext)
    return States(q, qd, qdd, f_ext, wrench, V0, dV0, step, tau, effort, tuple(links))


def one(oracle: Oracle, s: States) -> Array:
    """Natural size of lengths, angles, rates and joint accelerations in SI units, (B,)."""
    return np.ones(len(s.q))


def inertia(oracle: Oracle, s: States) -> Array:
    """Natural size of forces, energies and momenta at rates and accelerations of size one: the largest entry of H."""
    return np.abs(oracle.mass_matrix(s.q)).max(axis=(1, 2))


def acceleration(oracle: Oracle, s: States) -> Array:
    """Natural size of accelerations that such forces cause: times the largest entry of the inverse."""
    return inertia(oracle, s) * np.abs(oracle.mass_matrix_inverse(s.q)).max(axis=(1, 2))


@dataclass(frozen=True)
class Quantity:
    """One comparison: our answer, the oracle's (arrays (B, ...) or tuples of them), and how far they may differ.

    `tolerance`: largest difference relative to the largest entry of the oracle's array at the same state.
    `size`: natural size of the entries; `least`: the part of it that differences are relative to at least.
    `inverts`: whether the oracle inverts H.
    """

    name: str
    group: str
    ours: Callable[[rd.Dynamics, Oracle, States], Any]
    wanted: Callable[[Oracle, States], Any]
    tolerance: float = 1e-10
    size: Callable[[Oracle, States], Array] = one
    least: float = CANCELLED
    inverts: bool = False

    def allowed(self, oracle: Oracle, s: States) -> float:
        """The tolerance at these states."""
        return max(self.tolerance, INVERSION * oracle.inversion_error(s.q)) if self.inverts else self.tolerance

    def error(self, dyn: rd.Dynamics, oracle: Oracle, s: States) -> float:
        """Largest difference at any state, relative to the largest entry there."""
        least = self.least * self.size(oracle, s)
        ours, wanted = self.ours(dyn, oracle, s), self.wanted(oracle, s)
        if not isinstance(wanted, tuple):
            ours, wanted = (ours,), (wanted,)
        return max(relative(a, b, least) for a, b in zip(ours, wanted, strict=True))


def relative(ours: Array, wanted: Array, least: Array | float = 0.0) -> float:
    """Largest over the states of (largest difference) / (largest entry wanted, or `least`); NaN counts as infinite."""
    assert ours.shape == wanted.shape, f"shapes differ: {ours.shape}, {wanted.shape}"
    rest = tuple(range(1, wanted.ndim))
    difference, size = np.abs(ours - wanted).max(axis=rest), np.abs(wanted).max(axis=rest)
    error = difference / np.maximum(np.maximum(size, least), np.finfo(float).tiny)
    return float(np.nan_to_num(error, nan=np.inf).max())


def _same(name: str, group: str, ask: Callable[[Any, States], Any], **options: Any) -> Quantity:
    """The same question to both."""
    return Quantity(name, group, lambda dyn, _, s: ask(dyn, s), lambda oracle, s: ask(oracle, s), **options)


def _of_links(name: str, group: str, ask: Callable[[Any, States, int], Array]) -> Quantity:
    """The same question to both about each of the links."""
    return _same(name, group, lambda d, s: tuple(ask(d, s, link) for link in s.links))


def _force_on_a_link(frame: Frame) -> Quantity:
    """Our `external_force`, by the oracle's Jacobian: it takes J' f off the torques."""

    def ours(d: rd.Dynamics, o: Oracle, s: States) -> tuple[Array, ...]:
        forces = [rd.external_force(d.model, s.q, link, s.wrench, frame=frame) for link in s.links]
        return tuple(d.inverse_dynamics(s.q, s.qd, s.qdd, f_ext=f_ext) for f_ext in forces)

    def wanted(o: Oracle, s: States) -> tuple[Array, ...]:
        free = o.inverse_dynamics(s.q, s.qd, s.qdd)
        return tuple(free - np.einsum("bij,bi->bj", o.jacobian(s.q, link, frame=frame), s.wrench) for link in s.links)

    return Quantity(f"inverse dynamics, force on a link, {frame}", "forces", ours, wanted, size=inertia)


def _residuals(method: str) -> list[Quantity]:
    """Forward dynamics by what the oracle says of our accelerations: the torques it needs for them, less those given.

    Relative to the largest torque where torques are in proportion to what they move; for efforts of one size also to
    the largest sum of |H| |qdd|, since then accelerations are huge and cancel.
    """

    def residual(d: rd.Dynamics, o: Oracle, s: States, **base: Array) -> Array:
        qdd = d.forward_dynamics(s.q, s.qd, s.tau, f_ext=s.f_ext, method=method, **base)
        needed = o.inverse_dynamics(s.q, s.qd, qdd, f_ext=s.f_ext, **base)
        return (needed - s.tau) / np.abs(s.tau).max(axis=1, keepdims=True)

    def backward_error(d: rd.Dynamics, o: Oracle, s: States) -> Array:
        qdd = d.forward_dynamics(s.q, s.qd, s.effort, f_ext=s.f_ext, method=method)
        needed = o.inverse_dynamics(s.q, s.qd, qdd, f_ext=s.f_ext)
        summed = np.abs(o.mass_matrix(s.q)) @ np.abs(qdd)[..., None]
        return (needed - s.effort) / np.maximum(summed[..., 0], np.abs(s.effort)).max(axis=1, keepdims=True)

    def moving(d: rd.Dynamics, o: Oracle, s: States) -> Array:
        return residual(d, o, s, V0=s.V0, dV0=s.dV0)

    def nothing(o: Oracle, s: States) -> Array:
        return np.zeros_like(s.tau)

    return [
        Quantity(f"{method} residual", "FD residual", residual, nothing, 1e-11, least=1.0),
        Quantity(f"{method} residual, base moving", "FD residual", moving, nothing, 1e-11, least=1.0),
        Quantity(f"{method} residual, equal efforts", "FD backward error", backward_error, nothing, 1e-13, least=1.0),
    ]


QUANTITIES: tuple[Quantity, ...] = (
    _same("inverse dynamics", "forces", lambda d, s: d.inverse_dynamics(s.q, s.qd, s.qdd), size=inertia),
    _same(
        "inverse dynamics, external forces",
        "forces",
        lambda d, s: d.inverse_dynamics(s.q, s.qd, s.qdd, f_ext=s.f_ext),
        size=inertia,
    ),
    *(_force_on_a_link(frame) for frame in FRAMES),
    _same("bias force", "forces", lambda d, s: d.bias_force(s.q, s.qd, f_ext=s.f_ext), size=inertia),
    _same("gravity force", "forces", lambda d, s: d.gravity_force(s.q), size=inertia),
    _same("Coriolis matrix", "Coriolis", lambda d, s: d.coriolis_matrix(s.q, s.qd), size=inertia),
    _same(
        "Coriolis force",
        "Coriolis",
        lambda d, s: (d.coriolis_matrix(s.q, s.qd) @ s.qd[..., None])[..., 0],
        size=inertia,
    ),
    _same("mass matrix", "H", lambda d, s: d.mass_matrix(s.q), size=inertia, least=0.0),
    _same("mass matrix inverse", "H inverse", lambda d, s: d.mass_matrix_inverse(s.q), least=0.0, inverts=True),
    *_residuals("aba"),
    *_residuals("crba"),
    _same("kinetic energy", "totals", lambda d, s: d.kinetic_energy(s.q, s.qd), size=inertia),
    _same("potential energy", "totals", lambda d, s: d.potential_energy(s.q), size=inertia),
    _same("centre of mass", "totals", lambda d, s: d.center_of_mass(s.q)),
    _same("centroidal momentum", "totals", lambda d, s: d.centroidal_momentum(s.q, s.qd), size=inertia),
    _same("poses", "poses", lambda d, s: d.forward_kinematics(s.q)),
    *(
        _of_links(f"Jacobian, {frame}", "Jacobians", lambda d, s, link, frame=frame: d.jacobian(s.q, link, frame=frame))
        for frame in FRAMES
    ),
    *(
        _of_links(
            f"velocity, {frame}",
            "link motion",
            lambda d, s, link, frame=frame: d.link_velocity(s.q, s.qd, link, frame=frame),
        )
        for frame in FRAMES
    ),
    *(
        _of_links(
            f"acceleration, {frame}",
            "link motion",
            lambda d, s, link, frame=frame: d.link_acceleration(s.q, s.qd, s.qdd, link, frame=frame),
        )
        for frame in FRAMES
    ),
    *(
        _of_links(
            f"classical acceleration, {frame}",
            "link motion",
            lambda d, s, link, frame=frame: d.link_acceleration(s.q, s.qd, s.qdd, link, frame=frame, classical=True),
        )
        for frame in FRAMES
    ),
    _same(
        "gradient of inverse dynamics",
        "ID gradient",
        lambda d, s: d.inverse_dynamics_gradient(s.q, s.qd, s.qdd, f_ext=s.f_ext),
        tolerance=1e-9,
        size=inertia,
    ),
    _same(
        "gradient of forward dynamics",
        "FD gradient",
        lambda d, s: d.forward_dynamics_gradient(s.q, s.qd, s.tau, f_ext=s.f_ext),
        tolerance=1e-9,
        size=acceleration,
        inverts=True,
    ),
    _same(
        "inverse dynamics, base moving",
        "moving base",
        lambda d, s: d.inverse_dynamics(s.q, s.qd, s.qdd, f_ext=s.f_ext, V0=s.V0, dV0=s.dV0),
        size=inertia,
    ),
    _same(
        "Coriolis matrix, base moving",
        "moving base",
        lambda d, s: d.coriolis_matrix(s.q, s.qd, V0=s.V0),
        size=inertia,
    ),
    _same(
        "gradient of inverse dynamics, base moving",
        "moving base",
        lambda d, s: d.inverse_dynamics_gradient(s.q, s.qd, s.qdd, f_ext=s.f_ext, V0=s.V0, dV0=s.dV0),
        tolerance=1e-9,
        size=inertia,
    ),
    _same(
        "kinetic energy, base moving", "moving base", lambda d, s: d.kinetic_energy(s.q, s.qd, V0=s.V0), size=inertia
    ),
    _same(
        "centroidal momentum, base moving",
        "moving base",
        lambda d, s: d.centroidal_momentum(s.q, s.qd, V0=s.V0),
        size=inertia,
    ),
    *(
        _of_links(
            f"velocity, {frame}, base moving",
            "moving base",
            lambda d, s, link, frame=frame: d.link_velocity(s.q, s.qd, link, frame=frame, V0=s.V0),
        )
        for frame in FRAMES
    ),
    *(
        _of_links(
            f"{'classical ' * classical}acceleration, {frame}, base moving",
            "moving base",
            lambda d, s, link, frame=frame, classical=classical: d.link_acceleration(
                s.q, s.qd, s.qdd, link, frame=frame, classical=classical, V0=s.V0, dV0=s.dV0
            ),
        )
        for classical in (False, True)
        for frame in FRAMES
    ),
    Quantity(
        "integrate",
        "manifold",
        lambda d, o, s: o.coordinates(d.model.integrate(s.q, s.step)),
        lambda o, s: o.integrate(s.q, s.step),
    ),
    Quantity(
        "difference",
        "manifold",
        lambda d, o, s: d.model.difference(s.q, d.model.integrate(s.q, s.step)),
        lambda o, s: o.difference(s.q, o.model.integrate(s.q, s.step)),
    ),
)
"""Every comparison. An oracle may be asked a part of them."""

NEEDS_REGULAR = ("H inverse", "FD residual", "FD backward error", "FD gradient")
"""Groups that a robot with a singular mass matrix has not."""


def quantities_of(model: rd.Model, singular: bool) -> list[Quantity]:
    """Those that are defined for a model."""
    return [
        quantity
        for quantity in QUANTITIES
        if not (singular and quantity.group in NEEDS_REGULAR)
        and not (model.has_mimic and (quantity.group == "manifold" or quantity.name.startswith("aba")))
    ]
