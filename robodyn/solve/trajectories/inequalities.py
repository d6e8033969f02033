"""Limits of a problem by augmented Lagrangians: rows g <= 0 add (max(0, y + rho g)^2 - y^2) / (2 rho) to the cost.

Rows are in natural units: rad and m for positions, parts of the limit for velocities (rad/s and m/s where it is zero),
m for clearances, parts of the robot's weight for forces.
"""

from __future__ import annotations

import numpy as np

from robodyn.algorithms.joint_limits import limits_of
from robodyn.api.dynamics import Dynamics
from robodyn.api.queries.obstacles import Obstacles
from robodyn.core.constraints.resolved import resolved_constraints
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief, quoted
from robodyn.solve.trajectories.costs import Clearance, Cost, Friction
from robodyn.solve.trajectories.phases import Phases
from robodyn.solve.trajectories.terms import Expansion

_FIRST, _LEAST, _MOST = 10.0, 1e-3, 1e9
"""The first rho makes the penalty of the solution without limits this part of its cost; bounds of rho."""
_GROWTH, _ENOUGH = 5.0, 0.25
"""rho grows by this factor where violations have not shrunk to this part."""


class Rows:
    """Rows g (R, knots, n) of limits, and their derivatives."""

    of_controls = False
    """True for rows of the knots 0 to N - 1 that depend on controls, False for rows of the knots 1 to N."""
    count = 0

    def values(self, rows: Array, q: Array, qd: Array, u: Array) -> Array:
        """g at all knots; q, qd and u are those of these knots."""
        raise NotImplementedError

    def derivatives(self, rows: Array, q: Array, qd: Array, u: Array) -> tuple[Array, Array | None]:
        """dg/dx (..., n, 2 nv) and dg/du (..., n, nu), None for zero."""
        raise NotImplementedError


class Range(Rows):
    """Limits of positions or velocities: sign (x - bound) / size."""

    def __init__(self, of_q: bool, at: Array, column: Array, bound: Array, sign: float, size: Array, nx: int) -> None:
        self._of_q, self._at, self._bound, self._factor = of_q, at, bound, sign / size
        self.count = len(at)
        self._by_x = np.zeros((len(at), nx))
        self._by_x[np.arange(len(at)), column] = self._factor

    def values(self, rows: Array, q: Array, qd: Array, u: Array) -> Array:
        """Of all knots."""
        values: Array = ((q if self._of_q else qd)[..., self._at] - self._bound) * self._factor
        return values

    def derivatives(self, rows: Array, q: Array, qd: Array, u: Array) -> tuple[Array, Array | None]:
        """Constants."""
        return self._by_x, None


class Distances(Rows):
    """Clearances: least distance - distance, m, of all pairs of shapes."""

    def __init__(self, dyn: Dynamics, least: float, obstacles: Obstacles | None) -> None:
        self._dyn, self._least, self._obstacles = dyn, least, obstacles
        if dyn.engine.name == "gpu":
            raise UnavailableError("Clearance: got engine 'gpu'; allowed: 'cpu', 'reference'")
        self.count = dyn.distances(dyn.model.neutral()[None], obstacles).shape[-1]

    def values(self, rows: Array, q: Array, qd: Array, u: Array) -> Array:
        """Of all knots."""
        return self._least - self._dyn.distances(q, self._obstacles)

    def derivatives(self, rows: Array, q: Array, qd: Array, u: Array) -> tuple[Array, Array | None]:
        """By q alone."""
        by_q = -self._dyn.distances_gradient(q, self._obstacles)
        return np.concatenate((by_q, np.zeros_like(by_q)), axis=-1), None


class Pyramid(Rows):
    """Friction of feet: +-f_x - mu f_z and +-f_y - mu f_z, in parts of the robot's weight; -1 while a foot is off."""

    of_controls = True

    def __init__(self, dyn: Dynamics, phases: Phases, feet: list[tuple[int, int, float]], actuated: Array) -> None:
        model = dyn.model
        self._dyn, self._phases, self._actuated = dyn, phases, actuated
        self._numbers = np.repeat([number for number, _, _ in feet], 4)
        weight = model.total_mass * np.linalg.norm(model.gravity) or 1.0
        self.count = 4 * len(feet)
        self._edges = np.zeros((self.count, model.n_rows))
        for k, (_, row, mu) in enumerate(feet):
            for edge, (axis, sign) in enumerate(((0, 1.0), (0, -1.0), (1, 1.0), (1, -1.0))):
                self._edges[4 * k + edge, row + axis] = sign / weight
                self._edges[4 * k + edge, row + 2] = -mu / weight

    def values(self, rows: Array, q: Array, qd: Array, u: Array) -> Array:
        """Of all knots."""
        given = self._phases.of(rows)
        _, force = self._dyn.constrained_forward_dynamics(q, qd, self._phases.tau(u), **given)
        return self._where_active(force @ self._edges.T, given, -1.0)

    def derivatives(self, rows: Array, q: Array, qd: Array, u: Array) -> tuple[Array, Array | None]:
        """By the state and controls."""
        given = self._phases.of(rows)
        *_, by_q, by_qd, by_tau = self._dyn.constrained_forward_dynamics_gradient(q, qd, self._phases.tau(u), **given)
        by_x = self._edges @ np.concatenate((by_q, by_qd), axis=-1)
        return by_x, self._edges @ by_tau[..., self._actuated]

    def _where_active(self, values: Array, given: dict[str, Array], otherwise: float) -> Array:
        active = given.get("active")
        return values if active is None else np.where(active[..., self._numbers] > 0, values, otherwise)


class Limit:
    """Rows with their multipliers y (B, knots, n) and rho (B,), which is 0 until a first solution is known."""

    def __init__(self, of: Rows, problems: int, steps: int) -> None:
        self.of, self.y, self.rho = of, np.zeros((problems, steps, of.count)), np.zeros(problems)

    def violations(self, rows: Array, q: Array, qd: Array, u: Array) -> Array:
        """g (R, knots, n)."""
        return self.of.values(rows, *self._knots(q, qd), u)

    def value(self, rows: Array, q: Array, qd: Array, u: Array) -> Array:
        """The sum over all knots (R,)."""
        rho = self.rho[rows]
        if not rho.any():
            return np.zeros(len(rows))
        y, g = self.y[rows], self.violations(rows, q, qd, u)
        pushed = np.maximum(0.0, y + rho[:, None, None] * g)
        total: Array = 0.5 * (pushed * pushed - y * y).sum(axis=(1, 2))
        return np.divide(total, rho, out=np.zeros_like(total), where=rho > 0.0)

    def expand(self, rows: Array, q: Array, qd: Array, u: Array, into: Expansion) -> None:
        """Add the quadratic model of rows that push."""
        rho = self.rho[rows]
        if not rho.any():
            return
        at = self._knots(q, qd)
        pushed = np.maximum(0.0, self.y[rows] + rho[:, None, None] * self.of.values(rows, *at, u))
        if not pushed.any():
            return
        by_x, by_u = self.of.derivatives(rows, *at, u)
        stiff = np.where(pushed > 0.0, rho[:, None, None], 0.0)
        lx, lxx = ((a[:, :-1] if self.of.of_controls else a[:, 1:]) for a in (into.lx, into.lxx))
        across = (stiff[..., None] * by_x).swapaxes(-1, -2)
        lx += (pushed[..., None, :] @ by_x)[..., 0, :]
        lxx += across @ by_x
        if by_u is not None:
            into.lu[...] += (pushed[..., None, :] @ by_u)[..., 0, :]
            into.luu[...] += by_u.swapaxes(-1, -2) @ (stiff[..., None] * by_u)
            into.lux[...] += by_u.swapaxes(-1, -2) @ (stiff[..., None] * by_x)

    def _knots(self, q: Array, qd: Array) -> tuple[Array, Array]:
        return (q[:, :-1], qd[:, :-1]) if self.of.of_controls else (q[:, 1:], qd[:, 1:])


class Limits:
    """All limits of a problem, and the updates of their multipliers."""

    def __init__(self, limits: list[Limit], problems: int) -> None:
        self.limits = limits
        self.violation = np.full(problems, np.inf)
        """(B,) The largest g of each problem at its last update, or |g| where a multiplier pushes; natural units."""

    def __bool__(self) -> bool:
        return bool(self.limits)

    def update(self, rows: Array, q: Array, qd: Array, u: Array, cost: Array, grow: bool = True) -> None:
        """New multipliers after a solution of the problems `rows`; `cost` (R,): theirs without multipliers. `grow`: let
        rho grow where violations have not shrunk."""
        every = [limit.violations(rows, q, qd, u) for limit in self.limits]
        worst = np.zeros(len(rows))
        for limit, g in zip(self.limits, every, strict=True):
            rho = np.where(limit.rho[rows] > 0.0, limit.rho[rows], 1.0)[:, None, None]
            off = np.abs(np.maximum(g, -limit.y[rows] / rho))
            worst = np.maximum(worst, off.max(axis=(1, 2), initial=0.0))
        squares = np.sum([(np.maximum(g, 0.0) ** 2).sum(axis=(1, 2)) for g in every], axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            first = np.clip(2.0 * _FIRST * np.abs(cost) / squares, _LEAST, _MOST)
        first = np.where(squares > 0.0, first, 1.0)
        slow = worst > _ENOUGH * self.violation[rows]
        for limit, g in zip(self.limits, every, strict=True):
            rho = limit.rho[rows]
            limit.y[rows] = np.maximum(0.0, limit.y[rows] + rho[:, None, None] * g)
            grown = np.where(slow & grow, np.minimum(_GROWTH * rho, _MOST), rho)
            limit.rho[rows] = np.where(rho > 0.0, grown, first)
        self.violation[rows] = worst


def limits_among(
    dyn: Dynamics,
    costs: tuple[Cost, ...],
    names: tuple[str, ...],
    actuated: Array,
    phases: Phases,
    problems: int,
    steps: int,
) -> Limits:
    """The limits of costs, and those of the model that are named ("position", "velocity").

    Raises:
        ArgumentError: a foot that is no constraint with rows x, y and z, or a model without shapes.
    """
    model, found, feet = dyn.model, list[Rows](), list[tuple[int, int, float]]()
    nx = 2 * model.nv
    for name, each in limits_of(model, [name for name in names if name != "effort"]).items():
        if name == "velocity":
            size = np.where(each.bound > 0.0, each.bound, 1.0)
            for sign in (1.0, -1.0):
                found.append(Range(False, each.on, model.nv + each.on, sign * each.bound, sign, size, nx))
        else:
            sign = 1.0 if name == "upper" else -1.0
            found.append(Range(True, each.at, each.on, each.bound, sign, np.ones(len(each.on)), nx))
    for cost in costs:
        if isinstance(cost, Clearance):
            if not model.collision_geometries:
                raise ArgumentError(f"Clearance: model {quoted(model.name)} has no shapes; wanted Model.with_shapes")
            found.append(Distances(dyn, cost.distance, cost.obstacles))
        elif isinstance(cost, Friction):
            feet.append(_foot(dyn, cost))
    if feet:
        found.append(Pyramid(dyn, phases, feet, actuated))
    return Limits([Limit(rows, problems, steps) for rows in found], problems)


def _foot(dyn: Dynamics, cost: Friction) -> tuple[int, int, float]:
    """Number of the constraint, its first row of the force, and mu."""
    row, names = 0, list[str]()
    for each in resolved_constraints(dyn.model):
        if each.rows[-3:] == ("x", "y", "z"):
            names.append(each.name)
            if each.name == cost.foot:
                return each.number, row + len(each.rows) - 3, cost.mu
        row += len(each.rows)
    allowed = ", ".join(map(repr, names)) or "there is none"
    raise ArgumentError(f"foot: got {brief(cost.foot)}; wanted a constraint with rows x, y and z: {allowed}")
