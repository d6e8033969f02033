"""Derivatives of inverse and forward dynamics and of mass matrices.

q has unit quaternions. J_a is the derivative of tau = ID(q, qd, qdd) with respect to a, which is q (on the tangent
space), qd or qdd. A state is the triple (q, qd, qdd). All rules follow from J_a and the second derivatives of tau:

    forward dynamics     dqdd = H^-1 (dtau - J_q dq - J_qd dqd)                        at qdd = FD(q, qd, tau)
    H^-1 r               d(H^-1 r) = H^-1 (dr - dH a),  a = H^-1 r
    H a                  d(H a) = J_q dq + H da  of the robot without gravity, at qd = 0, qdd = a
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from robodyn.api.autodiff.coordinates import Coordinates
from robodyn.api.autodiff.rules import Arrays, Library, LinearMap, Rates, Smooth
from robodyn.api.dynamics import Dynamics
from robodyn.internals.cached import cached_property
from robodyn.internals.records import dataclass

Q, QD, QDD = 0, 1, 2
"""Indices of the parts of a state."""
_MANY = 4
"""From this many vectors per state Jacobians are cheaper: they cost about seven inverse dynamics, a vector two."""


def times(matrix: Any, vector: Any) -> Any:
    """Matrices (..., n, m) times vectors (..., m)."""
    return (matrix @ vector[..., None])[..., 0]


def times_transposed(matrix: Any, vector: Any) -> Any:
    """Transposes of matrices (..., n, m) times vectors (..., n)."""
    return (vector[..., None, :] @ matrix)[..., 0, :]


def many(vectors: Any, points: Arrays) -> bool:
    """Whether there are so many vectors per point that Jacobians cost less than a computation for each vector."""
    rows = prod(np.broadcast_shapes(*(tuple(point.shape[:-1]) for point in points)))
    return bool(prod(vectors.shape[:-1]) >= _MANY * max(1, rows))


class Torques:
    """Inverse dynamics tau = ID(q, qd, qdd) of one robot, with first and second derivatives.

    Args:
        dyn: the robot's `Dynamics`.
        masses: a `Dynamics` for mass matrices; its gravity may differ.
        library: the differentiating library.
        coordinates: the robot's coordinates.
    """

    def __init__(self, dyn: Dynamics, masses: Dynamics, library: Library, coordinates: Coordinates) -> None:
        self.dyn, self.masses, self.library, self.coordinates = dyn, masses, library, coordinates
        self._zeros = library.constant(np.zeros(dyn.model.nv))

    def zeros(self, q: Any) -> Any:
        """Zero velocity or acceleration, with as many leading axes as q."""
        return self._zeros.reshape((1,) * (q.ndim - 1) + tuple(self._zeros.shape))

    def jacobians(self, state: Arrays, wrt: tuple[int, ...]) -> Arrays:
        """The Jacobians J_a for each a in `wrt`."""
        jacobians: dict[int, Any] = {}
        if Q in wrt or QD in wrt:
            jacobians[Q], jacobians[QD] = self.library.call(self.dyn, "inverse_dynamics_gradient", *state)
        if QDD in wrt:
            (jacobians[QDD],) = self.library.call(self.masses, "mass_matrix", state[Q])
        return tuple(jacobians[a] for a in wrt)

    def along(self, state: Arrays, wrt: tuple[int, ...], directions: Arrays) -> Any:
        """The sum of J_a t_a, with a tangent direction t_a for each a in `wrt`."""
        return self.library.linear(_Along(self, wrt), state, directions)[0]

    def weighted(self, state: Arrays, wrt: tuple[int, ...], weights: Any) -> Arrays:
        """The products J_a' w for each a in `wrt`."""
        return self.library.linear(_Weighted(self, wrt), state, (weights,))

    def all_directions(self, q: Any, wrt: tuple[int, ...], directions: Arrays) -> Arrays:
        """Directions of q, qd and qdd; zero for those not in `wrt`."""
        return tuple(directions[wrt.index(a)] if a in wrt else self.zeros(q) for a in (Q, QD, QDD))

    def velocities(self, state: Arrays, rates: Rates) -> Arrays:
        """Rates of a state, that of q converted to a velocity; None becomes zero."""
        q, zeros = state[Q], self.zeros(state[Q])
        rate, *others = rates
        first = zeros if rate is None else self.coordinates.velocity(q, rate)
        return first, *(zeros if other is None else other for other in others)

    def hessian(self, state: Arrays, *weights: Any) -> Arrays:
        """Second derivatives of tau (..., nv, nv, nv), or of w . tau (..., nv, nv): (q, q), (q, qd), (qd, qd),
        (q, qdd)."""
        return self.library.call(self.dyn, "inverse_dynamics_hessian", *state, *weights)

    def state_gradient(self, state: Arrays, weights: Any, wrt: tuple[int, ...], directions: Arrays) -> Arrays:
        """The gradient of w . (sum of J_a t_a) with respect to each part of the state, for fixed w and t."""
        qq, q_qd, qd_qd, q_qdd = self.hessian(state, weights)
        t = self.all_directions(state[Q], wrt, directions)
        by_q = times_transposed(qq, t[Q]) + times(q_qd, t[QD]) + times(q_qdd, t[QDD])
        by_qd = times_transposed(q_qd, t[Q]) + times_transposed(qd_qd, t[QD])
        return self.coordinates.velocity_transposed(state[Q], by_q), by_qd, times_transposed(q_qdd, t[Q])


@dataclass(frozen=True)
class _Along(LinearMap):
    """Maps directions t_a to the sum of J_a t_a."""

    torques: Torques
    wrt: tuple[int, ...]

    @property
    def transposed(self) -> LinearMap:
        return _Weighted(self.torques, self.wrt)

    def apply(self, points: Arrays, vectors: Arrays) -> Arrays:
        products = [times(J, t) for J, t in zip(self.torques.jacobians(points, self.wrt), vectors, strict=True)]
        return (sum(products[1:], start=products[0]),)

    def tangent(self, points: Arrays, vectors: Arrays, rates: Rates) -> Arrays:
        """The sum over a and b of second derivatives of tau along t_a and s_b, where s are the rates."""
        qq, q_qd, qd_qd, q_qdd = self.torques.hessian(points)
        t = self.torques.all_directions(points[Q], self.wrt, vectors)
        s = self.torques.velocities(points, rates)

        def along(tensor: Any, first: Any, second: Any) -> Any:
            return times(times(tensor, second[..., None, :]), first)

        return (
            along(qq, t[Q], s[Q])
            + along(q_qd, t[Q], s[QD])
            + along(q_qd, s[Q], t[QD])
            + along(qd_qd, t[QD], s[QD])
            + along(q_qdd, t[Q], s[QDD])
            + along(q_qdd, s[Q], t[QDD]),
        )

    def pullback(self, points: Arrays, vectors: Arrays, weights: Arrays) -> Arrays:
        return self.torques.state_gradient(points, weights[0], self.wrt, vectors)


@dataclass(frozen=True)
class _Weighted(LinearMap):
    """Maps weights w to J_a' w."""

    torques: Torques
    wrt: tuple[int, ...]

    @property
    def transposed(self) -> LinearMap:
        return _Along(self.torques, self.wrt)

    def apply(self, points: Arrays, vectors: Arrays) -> Arrays:
        torques, (weights,) = self.torques, vectors
        if many(weights, points):
            return tuple(times_transposed(J, weights) for J in torques.jacobians(points, self.wrt))
        products = torques.library.call(torques.dyn, "inverse_dynamics_vjp", *points, weights)
        return tuple(products[a] for a in self.wrt)

    def tangent(self, points: Arrays, vectors: Arrays, rates: Rates) -> Arrays:
        """The sum over b of second derivatives of w . tau by a and b times the rates s_b."""
        qq, q_qd, qd_qd, q_qdd = self.torques.hessian(points, vectors[0])
        s = self.torques.velocities(points, rates)
        results = (
            times(qq, s[Q]) + times(q_qd, s[QD]) + times(q_qdd, s[QDD]),
            times_transposed(q_qd, s[Q]) + times(qd_qd, s[QD]),
            times_transposed(q_qdd, s[Q]),
        )
        return tuple(results[a] for a in self.wrt)

    def pullback(self, points: Arrays, vectors: Arrays, weights: Arrays) -> Arrays:
        return self.torques.state_gradient(points, vectors[0], self.wrt, weights)


class InverseDynamics(Smooth):
    """Inverse dynamics as a function of some of q, qd and qdd; the others are zero.

    Args:
        torques: inverse dynamics of the robot.
        query: name of the query of `Dynamics` that computes it.
        given: which parts of the state are arguments.
    """

    def __init__(self, torques: Torques, query: str, given: tuple[int, ...]) -> None:
        self.torques, self.query, self.given = torques, query, given

    def _state(self, x: Arrays) -> Arrays:
        return self.torques.all_directions(x[0], self.given, x)

    def value(self, *x: Any) -> Any:
        """The generalised forces tau."""
        arguments = self._state(x) if self.query == "inverse_dynamics" else x
        return self.torques.library.call(self.torques.dyn, self.query, *arguments)[0]

    def tangent(self, x: Arrays, y: Any, rates: Rates) -> Any:
        """The sum of J_a da."""
        moved = [(a, rate) for a, rate in zip(self.given, rates, strict=True) if rate is not None]
        directions = tuple(self.torques.coordinates.velocity(x[0], rate) if a == Q else rate for a, rate in moved)
        return self.torques.along(self._state(x), tuple(a for a, _ in moved), directions)

    def pullback(self, x: Arrays, y: Any, weights: Any, wanted: Sequence[bool]) -> Rates:
        """The products J_a' w."""
        wrt = tuple(a for a, want in zip(self.given, wanted, strict=True) if want)
        gradients = dict(zip(wrt, self.torques.weighted(self._state(x), wrt, weights), strict=True))
        if Q in gradients:
            gradients[Q] = self.torques.coordinates.velocity_transposed(x[0], gradients[Q])
        return [gradients.get(a) for a in self.given]


class Solve(LinearMap):
    """Maps r to H^-1 r, at q.

    Args:
        weightless: inverse dynamics without gravity: at qd = 0 it is H qdd.
    """

    def __init__(self, weightless: Torques) -> None:
        self.weightless = weightless

    @property
    def transposed(self) -> LinearMap:
        """The map itself, because H is symmetric."""
        return self

    def __call__(self, q: Any, r: Any) -> Any:
        """H^-1 r."""
        return self.weightless.library.linear(self, (q,), (r,))[0]

    def apply(self, points: Arrays, vectors: Arrays) -> Arrays:
        """H^-1 r. For few r: forward dynamics of the robot at rest without gravity."""
        (q,), (r,), call = points, vectors, self.weightless.library.call
        if many(r, points):
            return (times(call(self.weightless.masses, "mass_matrix_inverse", q)[0], r),)
        return call(self.weightless.dyn, "forward_dynamics", q, self.weightless.zeros(q), r)

    def tangent(self, points: Arrays, vectors: Arrays, rates: Rates) -> Arrays:
        """-H^-1 dH a with a = H^-1 r."""
        q, weightless = points[0], self.weightless
        state = (q, weightless.zeros(q), self(q, vectors[0]))
        return (-self(q, weightless.along(state, (Q,), (weightless.coordinates.velocity(q, rates[0]),))),)

    def pullback(self, points: Arrays, vectors: Arrays, weights: Arrays) -> Arrays:
        """-(d(H a)/dq)' H^-1 w with a = H^-1 r."""
        q, weightless = points[0], self.weightless
        state = (q, weightless.zeros(q), self(q, vectors[0]))
        (back,) = weightless.weighted(state, (Q,), -self(q, weights[0]))
        return (weightless.coordinates.velocity_transposed(q, back),)


class ForwardDynamics(Smooth):
    """qdd = FD(q, qd, tau)."""

    def __init__(self, torques: Torques, solve: Solve) -> None:
        self.torques, self.solve = torques, solve

    def value(self, *x: Any) -> Any:
        """qdd."""
        return self.torques.library.call(self.torques.dyn, "forward_dynamics", *x)[0]

    def tangent(self, x: Arrays, y: Any, rates: Rates) -> Any:
        """dqdd = H^-1 (dtau - J_q dq - J_qd dqd)."""
        q, qd, _ = x
        by_q, by_qd, by_tau = rates
        force = self.torques.zeros(q) if by_tau is None else by_tau
        moved = [(a, rate) for a, rate in ((Q, by_q), (QD, by_qd)) if rate is not None]
        if moved:
            directions = tuple(self.torques.coordinates.velocity(q, rate) if a == Q else rate for a, rate in moved)
            force = force - self.torques.along((q, qd, y), tuple(a for a, _ in moved), directions)
        return self.solve(q, force)

    def pullback(self, x: Arrays, y: Any, weights: Any, wanted: Sequence[bool]) -> Rates:
        """The gradients: f = H^-1 w for tau, -J_q' f for q, -J_qd' f for qd."""
        q, qd, _ = x
        force = self.solve(q, weights)
        wrt = tuple(a for a in (Q, QD) if wanted[a])
        gradients = dict(zip(wrt, self.torques.weighted((q, qd, y), wrt, -force), strict=True)) if wrt else {}
        if Q in gradients:
            gradients[Q] = self.torques.coordinates.velocity_transposed(q, gradients[Q])
        return gradients.get(Q), gradients.get(QD), force


class MassMatrix(Smooth):
    """The mass matrix H(q), by columns: H e_j = ID(q, 0, e_j) of the robot without gravity."""

    def __init__(self, weightless: Torques) -> None:
        self.weightless = weightless

    @cached_property
    def _unit(self) -> Any:
        return self.weightless.library.constant(np.eye(self.weightless.dyn.model.nv))

    def value(self, *x: Any) -> Any:
        """H."""
        return self.weightless.library.call(self.weightless.masses, "mass_matrix", *x)[0]

    def _columns(self, q: Any) -> Arrays:
        """A state for each column of H, along the last axis but one."""
        units = self._unit.reshape((1,) * (q.ndim - 1) + tuple(self._unit.shape))
        return q[..., None, :], self.weightless.zeros(q[..., None, :]), units

    def tangent(self, x: Arrays, y: Any, rates: Rates) -> Any:
        """dH, with columns d(H e_j)."""
        velocity = self.weightless.coordinates.velocity(x[0], rates[0])
        columns = self.weightless.along(self._columns(x[0]), (Q,), (velocity[..., None, :],))
        return self.weightless.library.xp.swapaxes(columns, -1, -2)

    def pullback(self, x: Arrays, y: Any, weights: Any, wanted: Sequence[bool]) -> Rates:
        """The gradient: the sum over columns of (d(H e_j)/dq)' w_j."""
        columns = self.weightless.library.xp.swapaxes(weights, -1, -2)
        (by_column,) = self.weightless.weighted(self._columns(x[0]), (Q,), columns)
        return (self.weightless.coordinates.velocity_transposed(x[0], by_column.sum(-2)),)


class MassMatrixInverse(Smooth):
    """The inverse mass matrix H^-1(q), with d(H^-1) = -H^-1 dH H^-1."""

    def __init__(self, mass_matrix: MassMatrix) -> None:
        self.mass_matrix = mass_matrix

    def value(self, *x: Any) -> Any:
        """H^-1."""
        weightless = self.mass_matrix.weightless
        return weightless.library.call(weightless.masses, "mass_matrix_inverse", *x)[0]

    def tangent(self, x: Arrays, y: Any, rates: Rates) -> Any:
        """-H^-1 dH H^-1."""
        return -(y @ self.mass_matrix.tangent(x, None, rates) @ y)

    def pullback(self, x: Arrays, y: Any, weights: Any, wanted: Sequence[bool]) -> Rates:
        """The gradient of `mass_matrix` with weights -H^-1 w H^-1."""
        return self.mass_matrix.pullback(x, None, -(y @ weights @ y), wanted)


class PotentialEnergy(Smooth):
    """Potential energy U(q). Its gradient on the tangent space is the gravity force."""

    def __init__(self, gravity_force: InverseDynamics) -> None:
        self.gravity_force, self.torques = gravity_force, gravity_force.torques

    def value(self, *x: Any) -> Any:
        """U."""
        return self.torques.library.call(self.torques.dyn, "potential_energy", *x)[0]

    def _force(self, q: Any) -> Any:
        return self.torques.library.smooth(self.gravity_force, q)

    def tangent(self, x: Arrays, y: Any, rates: Rates) -> Any:
        """Gravity force times velocity."""
        return (self._force(x[0]) * self.torques.coordinates.velocity(x[0], rates[0])).sum(-1)

    def pullback(self, x: Arrays, y: Any, weights: Any, wanted: Sequence[bool]) -> Rates:
        """The gradient: w times the gravity force."""
        force = weights[..., None] * self._force(x[0])
        return (self.torques.coordinates.velocity_transposed(x[0], force),)


class Distances(Smooth):
    """`distances` or `min_distance` of one robot. Their derivative is that of the witness points, not of a formula, and
    has itself no derivative.

    Args:
        dyn: the robot's `Dynamics`.
        name: of the query.
        library: the differentiating library.
        coordinates: the robot's coordinates.
    """

    def __init__(self, dyn: Dynamics, name: str, library: Library, coordinates: Coordinates) -> None:
        self.dyn, self.name, self.library, self.coordinates = dyn, name, library, coordinates

    def value(self, *x: Any) -> Any:
        """The distances."""
        return self.library.call(self.dyn, self.name, *x)[0]

    def _rows(self, x: Arrays) -> Any:
        """The derivatives (..., n, nv); n is 1 for a single distance."""
        rows = self.library.call(self.dyn, f"{self.name}_gradient", *x)[0]
        return rows if self.name == "distances" else rows[..., None, :]

    def tangent(self, x: Arrays, y: Any, rates: Rates) -> Any:
        """J v."""
        rate = times(self._rows(x), self.coordinates.velocity(x[0], rates[0]))
        return rate if self.name == "distances" else rate[..., 0]

    def pullback(self, x: Arrays, y: Any, weights: Any, wanted: Sequence[bool]) -> Rates:
        """J' w."""
        several = weights if self.name == "distances" else weights[..., None]
        return (self.coordinates.velocity_transposed(x[0], times_transposed(self._rows(x), several)),)
