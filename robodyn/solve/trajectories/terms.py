"""Costs of a problem on arrays: values, gradients and Gauss-Newton Hessians at all knots of many trajectories.

Trajectories are rows: q (R, N + 1, nq), qd (R, N + 1, nv), u (R, N, nu) of actuated velocities. `rows` (R,) says which
problem each is about, as line searches try several for one problem.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Protocol, TypeAlias

import numpy as np

from robodyn.api.dynamics import Dynamics
from robodyn.api.queries.poses import pose_error, pose_error_gradient
from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass
from robodyn.solve.trajectories.costs import CenterOfMass, Clearance, Control, Cost, Friction, Pose, State
from robodyn.solve.trajectories.knot_costs import Piece


@dataclass(frozen=True, eq=False)
class Expansion:
    """A quadratic model of a cost: lx (R, N + 1, nx), lxx (R, N + 1, nx, nx), lu (R, N, nu), luu (R, N, nu, nu) and
    lux (R, N, nu, nx), with nx = 2 nv."""

    lx: Array
    lxx: Array
    lu: Array
    luu: Array
    lux: Array

    @classmethod
    def zeros(cls, rows: int, steps: int, nx: int, nu: int) -> Expansion:
        """One to add to."""
        shapes = (steps + 1, nx), (steps + 1, nx, nx), (steps, nu), (steps, nu, nu), (steps, nu, nx)
        return cls(*(np.zeros((rows, *shape)) for shape in shapes))


class Penalty(Protocol):
    """A part of what is minimised."""

    def value(self, rows: Array, q: Array, qd: Array, u: Array) -> Array:
        """Its sum over all knots (R,)."""

    def expand(self, rows: Array, q: Array, qd: Array, u: Array, into: Expansion) -> None:
        """Add its quadratic model."""


class Term(Penalty, Protocol):
    """A part of the cost.

    `piece`: what it is in programs; `final`: True for the last knot alone, False for the others.
    """

    @property
    def piece(self) -> Piece:
        """Described in the class."""

    @property
    def final(self) -> bool:
        """Described in the class."""

    def numbers(self, rows: Array) -> tuple[Array, Array]:
        """Weights and goals of rows, (R or 1, knots or 1, ...)."""


class KnotValues:
    """Weights or goals of a cost, for each problem and knot.

    Args:
        name: of the argument, for messages.
        given: numbers of shape own, or () where `single`, with axes in front that broadcast to (*leading, steps + 1).
        own: trailing shape.
        steps, leading: of the problems.
    """

    def __init__(self, name: str, given: Array, own: tuple[int, ...], steps: int, leading: tuple[int, ...]) -> None:
        if given.shape == own:
            self._numbers = np.array(given, order="C").reshape(1, 1, *own)
            return
        shape = (*leading, steps + 1, *own)
        try:
            if given.ndim and given.shape[max(0, given.ndim - len(own)) :] != own:
                raise ValueError
            full = np.broadcast_to(given, shape)
        except ValueError:
            wanted = f"{own}, or with axes in front that broadcast to {shape[: -len(own)]}"
            raise ArgumentError(f"{name}: got shape {given.shape}; wanted {wanted}") from None
        axes = given.ndim - len(own)
        if axes <= 0:
            full = np.broadcast_to(given, own)[None, None]
        elif axes == 1 or not leading:
            full = np.broadcast_to(given, (steps + 1, *own))[None]
        self._numbers = np.ascontiguousarray(full.reshape(-1, *full.shape[-1 - len(own) :]))

    def at(self, rows: Array, final: bool) -> Array:
        """For rows, at all knots but the last, or the last: (R or 1, knots or 1, *own)."""
        numbers = self._numbers if len(self._numbers) == 1 else self._numbers[rows]
        if numbers.shape[1] == 1:
            return numbers
        return numbers[:, -1:] if final else numbers[:, :-1]

    def of(self, entries: Array) -> KnotValues:
        """Some of the entries of the last axis."""
        made = copy(self)
        made._numbers = np.ascontiguousarray(self._numbers[..., entries])
        return made

    def any(self) -> bool:
        """True if a number is not zero."""
        return bool(self._numbers.any())


Function: TypeAlias = Callable[[Array, Array], Array]
ErrorAndJacobian: TypeAlias = tuple[Function, Function | None]
"""An error and its Jacobian, of (goal, q); None for the identity."""


def _knots(array: Array, final: bool) -> Array:
    return array[:, -1:] if final else array[:, :-1]


class Residual:
    """1/2 sum w e(q)^2 of a residual that depends on the configuration.

    Args:
        error: of (goal, q) to e (..., n).
        jacobian: of (goal, q) to de/dq (..., n, nv), or None for the identity.
        weight, goal: numbers.
        final: True for the last knot alone.
        piece: what it is in programs.
    """

    def __init__(
        self,
        error: Function,
        jacobian: Function | None,
        weight: KnotValues,
        goal: KnotValues,
        final: bool,
        piece: Piece,
    ) -> None:
        self._error, self._jacobian, self.piece = error, jacobian, piece
        self._weight, self.goal, self.final = weight, goal, final

    def numbers(self, rows: Array) -> tuple[Array, Array]:
        """Weights and goals of rows."""
        return self._weight.at(rows, self.final), self.goal.at(rows, self.final)

    def value(self, rows: Array, q: Array, qd: Array, u: Array) -> Array:
        """Its sum over all knots (R,)."""
        e = self._error(self.goal.at(rows, self.final), _knots(q, self.final))
        value: Array = 0.5 * (self._weight.at(rows, self.final) * e * e).sum(axis=(1, 2))
        return value

    def expand(self, rows: Array, q: Array, qd: Array, u: Array, into: Expansion) -> None:
        """Add its quadratic model."""
        nv, goal, at = qd.shape[-1], self.goal.at(rows, self.final), _knots(q, self.final)
        w, e = self._weight.at(rows, self.final), self._error(goal, at)
        lx, lxx = (_knots(array, self.final) for array in (into.lx, into.lxx))
        if self._jacobian is None:
            own = np.arange(nv)
            lx[..., :nv] += w * e
            lxx[..., own, own] += w
            return
        J = self._jacobian(goal, at)
        weighted = (w[..., None] * J).swapaxes(-1, -2)
        lx[..., :nv] += (weighted @ e[..., None])[..., 0]
        lxx[..., :nv, :nv] += weighted @ J


class Velocity:
    """1/2 sum w |qd - goal|^2."""

    piece = Piece("Velocity")

    def __init__(self, weight: KnotValues, goal: KnotValues, final: bool) -> None:
        self._weight, self._goal, self.final = weight, goal, final

    def numbers(self, rows: Array) -> tuple[Array, Array]:
        """Weights and goals of rows."""
        return self._weight.at(rows, self.final), self._goal.at(rows, self.final)

    def value(self, rows: Array, q: Array, qd: Array, u: Array) -> Array:
        """Its sum over all knots (R,)."""
        e = _knots(qd, self.final) - self._goal.at(rows, self.final)
        value: Array = 0.5 * (self._weight.at(rows, self.final) * e * e).sum(axis=(1, 2))
        return value

    def expand(self, rows: Array, q: Array, qd: Array, u: Array, into: Expansion) -> None:
        """Add its quadratic model."""
        nv, w = qd.shape[-1], self._weight.at(rows, self.final)
        own = np.arange(nv, 2 * nv)
        _knots(into.lx, self.final)[..., nv:] += w * (_knots(qd, self.final) - self._goal.at(rows, self.final))
        _knots(into.lxx, self.final)[..., own, own] += w


class Effort:
    """1/2 sum w |tau - goal|^2 of actuated velocities. `weight`, `goal`: of these."""

    piece, final = Piece("Control"), False

    def __init__(self, weight: KnotValues, goal: KnotValues) -> None:
        self._weight, self._goal = weight, goal

    def numbers(self, rows: Array) -> tuple[Array, Array]:
        """Weights and goals of rows."""
        return self._weight.at(rows, False), self._goal.at(rows, False)

    def value(self, rows: Array, q: Array, qd: Array, u: Array) -> Array:
        """Its sum over all knots (R,)."""
        e = u - self._goal.at(rows, False)
        value: Array = 0.5 * (self._weight.at(rows, False) * e * e).sum(axis=(1, 2))
        return value

    def expand(self, rows: Array, q: Array, qd: Array, u: Array, into: Expansion) -> None:
        """Add its quadratic model."""
        w, own = self._weight.at(rows, False), np.arange(u.shape[-1])
        into.lu[...] += w * (u - self._goal.at(rows, False))
        into.luu[..., own, own] += w


def is_flat(dyn: Dynamics) -> bool:
    """True if configurations are a vector space: all joints have one coordinate, so that differences are by -."""
    return dyn.model.nq == dyn.model.nv and all(kind.nq == kind.nv == 1 for kind, _, _ in dyn.model.free_joints)


def terms_of(
    dyn: Dynamics, costs: tuple[Cost, ...], actuated: Array, steps: int, leading: tuple[int, ...]
) -> list[Term]:
    """The terms of costs that are no limits.

    Raises:
        ArgumentError: shapes that do not fit the robot, the steps or the problems; a link that the model has not; a
            quaternion of length zero; something that is no cost.
    """
    model, found = dyn.model, list[Term]()

    def numbers(name: str, given: Array | None, *own: int) -> KnotValues:
        return KnotValues(name, np.zeros(own) if given is None else given, own, steps, leading)

    for cost in costs:
        if isinstance(cost, State):
            weight = numbers("State.q", cost.q, model.nv)
            if weight.any():
                if cost.q_goal is None:
                    raise ArgumentError("State.q_goal: got None besides weights q; wanted a configuration")
                goal = numbers("State.q_goal", configurations("State.q_goal", model, cost.q_goal), model.nq)
                found.append(Residual(*_differences(dyn), weight, goal, cost.final, Piece("State")))
            weight = numbers("State.qd", cost.qd, model.nv)
            if weight.any():
                found.append(Velocity(weight, numbers("State.qd_goal", cost.qd_goal, model.nv), cost.final))
        elif isinstance(cost, Control):
            weight = numbers("Control.weight", cost.weight, model.nv)
            wanted = numbers("Control.tau_goal", cost.tau_goal, model.nv)
            found.append(Effort(weight.of(actuated), wanted.of(actuated)))
        elif isinstance(cost, Pose):
            link = model.link_index(cost.link)
            weight, goal = numbers("Pose.weight", cost.weight, 6), numbers("Pose.target", cost.target, 4, 4)
            found.append(Residual(*_pose(dyn, link), weight, goal, cost.final, Piece("Pose", link)))
        elif isinstance(cost, CenterOfMass):
            weight, goal = numbers("CenterOfMass.weight", cost.weight, 3), numbers("target", cost.target, 3)
            found.append(
                Residual(
                    lambda goal, q: dyn.center_of_mass(q) - goal,
                    lambda goal, q: dyn.center_of_mass_jacobian(q),
                    weight,
                    goal,
                    cost.final,
                    Piece("CenterOfMass"),
                )
            )
        elif not isinstance(cost, Clearance | Friction):
            raise ArgumentError(f"cost: got {brief(cost)} in the sum; wanted costs of robodyn.costs")
    return found


def configurations(name: str, model: Model, q: Array) -> Array:
    """Configurations (..., nq) with quaternions of unit length; arrays of other shapes as they are.

    Raises:
        ArgumentError: a quaternion of length zero; names the argument.
    """
    if q.shape[-1:] != (model.nq,):
        return q
    try:
        return model.normalize(q)
    except ArgumentError as error:
        raise ArgumentError(f"{name}: {str(error).removeprefix('q: ')}") from None


def _differences(dyn: Dynamics) -> ErrorAndJacobian:
    if is_flat(dyn):
        return (lambda goal, q: q - goal), None
    model = dyn.model
    return (
        lambda goal, q: model.difference(np.broadcast_to(goal, q.shape), q),
        lambda goal, q: model.difference_gradient(np.broadcast_to(goal, q.shape), q)[1],
    )


def _pose(dyn: Dynamics, link: int) -> ErrorAndJacobian:
    def jacobian(goal: Array, q: Array) -> Array:
        poses = dyn.link_pose(q, link)
        by_link, _ = pose_error_gradient(poses, np.broadcast_to(goal, poses.shape))
        return by_link @ dyn.jacobian(q, link)

    def error(goal: Array, q: Array) -> Array:
        poses = dyn.link_pose(q, link)
        return pose_error(poses, np.broadcast_to(goal, poses.shape))

    return error, jacobian
