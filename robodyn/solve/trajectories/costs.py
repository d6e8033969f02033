"""Costs and limits of trajectories: `rd.costs.State(...) + rd.costs.Control(...)`.

Each cost is 1/2 sum w e^2, with weights w and errors e in SI units. Running costs are summed over the knots 0 to N - 1,
without a factor dt; those with `final=True` are of knot N alone. `Clearance` and `Friction` are limits: the optimum
obeys them, and they add nothing to the cost.

Weights and goals may have axes in front of their own: (steps + 1, n) has a value for each knot, (..., steps + 1, n) one
for each problem and knot, (..., 1, n) one for each problem.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from robodyn.api.queries.obstacles import Obstacles
from robodyn.api.queries.poses import require_poses
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, finite_number, flag, real_array, require_finite
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass
from robodyn.solve.inverse_kinematics.task_arguments import link_name

__all__ = ["CenterOfMass", "Clearance", "Control", "Cost", "Friction", "Pose", "State", "Sum"]


@dataclass(frozen=True, eq=False)
class Cost:
    """A cost or a limit. Costs are added by +."""

    @property
    def terms(self) -> tuple[Cost, ...]:
        """The costs of which it is the sum."""
        return (self,)

    def __add__(self, other: Any) -> Sum:
        return Sum((*self.terms, *other.terms)) if isinstance(other, Cost) else NotImplemented

    def __radd__(self, other: Any) -> Cost:
        """`sum` of a list of costs begins with 0."""
        return self if type(other) is int and other == 0 else NotImplemented


@dataclass(frozen=True, eq=False)
class Sum(Cost):
    """The sum of several costs."""

    parts: tuple[Cost, ...]

    @property
    def terms(self) -> tuple[Cost, ...]:
        """The costs of which it is the sum."""
        return tuple(term for part in self.parts for term in (part.terms if isinstance(part, Cost) else (part,)))


@dataclass(frozen=True, eq=False, init=False)
class State(Cost):
    """1/2 sum q |q (-) q_goal|^2 + qd |qd - qd_goal|^2, by `model.difference` on the tangent space.

    Args:
        q, qd: weights, a number or one for each velocity (nv,), not negative.
        q_goal: (nq,) configuration, needed if q is not zero; `rd.Mpc` can give it in each call.
        qd_goal: (nv,) velocity; None: zero.
        final: True for the last knot alone.

    Raises:
        ArgumentError, NumericalError: no numbers, negative weights, NaN or infinity.
    """

    q: Array
    qd: Array
    q_goal: Array | None
    qd_goal: Array | None
    final: bool

    def __init__(
        self,
        q: ArrayLike = 0.0,
        qd: ArrayLike = 0.0,
        q_goal: ArrayLike | None = None,
        qd_goal: ArrayLike | None = None,
        *,
        final: bool = False,
    ) -> None:
        _set(self, q=_weights("q", q), qd=_weights("qd", qd), final=flag("final", final))
        _set(self, q_goal=_optional("q_goal", q_goal), qd_goal=_optional("qd_goal", qd_goal))


@dataclass(frozen=True, eq=False, init=False)
class Control(Cost):
    """1/2 sum weight |tau - tau_goal|^2 of actuated velocities.

    Args:
        weight: a number or one for each velocity (nv,), not negative. Positive weights make each iteration convex.
        tau_goal: (nv,) joint forces; None: zero.

    Raises:
        ArgumentError, NumericalError: as `State`.
    """

    weight: Array
    tau_goal: Array | None

    def __init__(self, weight: ArrayLike, tau_goal: ArrayLike | None = None) -> None:
        _set(self, weight=_weights("weight", weight), tau_goal=_optional("tau_goal", tau_goal))


@dataclass(frozen=True, eq=False, init=False)
class Pose(Cost):
    """1/2 sum weight |e|^2 with e = [log(R_goal R'), p_goal - p] of a link's frame, rad and m in world axes.

    Args:
        link: name or index of the link, or frame.
        target: (4, 4) pose in the world.
        weight: a number, two for (rotation, position), or six, not negative. 0 leaves an axis free.
        final: True for the last knot alone.

    Raises:
        ArgumentError, NumericalError: as `State`.
    """

    link: str | int
    target: Array
    weight: Array
    final: bool

    def __init__(self, link: str | int, target: ArrayLike, weight: ArrayLike = 1.0, *, final: bool = False) -> None:
        weights = _weights("weight", weight)
        if weights.ndim and weights.shape[-1] == 2:
            weights = np.repeat(weights, 3, axis=-1)
        poses = _numbers("target", target, 4, 4)
        require_poses("target", poses)
        _set(self, link=link_name("Pose", "link", link), target=poses, weight=weights, final=flag("final", final))


@dataclass(frozen=True, eq=False, init=False)
class CenterOfMass(Cost):
    """1/2 sum weight |c - target|^2 of the centre of mass, m in world axes.

    Args:
        target: (3,) m.
        weight: a number or (3,), not negative.
        final: True for the last knot alone.

    Raises:
        ArgumentError, NumericalError: as `State`.
    """

    target: Array
    weight: Array
    final: bool

    def __init__(self, target: ArrayLike, weight: ArrayLike = 1.0, *, final: bool = False) -> None:
        _set(self, target=_numbers("target", target, 3), weight=_weights("weight", weight), final=flag("final", final))


@dataclass(frozen=True, eq=False, init=False)
class Clearance(Cost):
    """A limit: at the knots 1 to N all `distances` of shapes are at least `distance`.

    Args:
        distance: m.
        obstacles: things in the world from which shapes keep it as well, or None.

    Raises:
        ArgumentError: no finite number, or no obstacles.
    """

    distance: float
    obstacles: Obstacles | None

    def __init__(self, distance: float, obstacles: Obstacles | None = None) -> None:
        if obstacles is not None and not strict_types.is_a(obstacles, Obstacles):
            raise ArgumentError(f"obstacles: got {brief(obstacles)}; wanted robodyn.Obstacles or None")
        if obstacles is not None and obstacles.leading:
            raise ArgumentError(f"obstacles: got leading axes {obstacles.leading}; wanted one set for all problems")
        _set(self, distance=finite_number("distance", distance), obstacles=obstacles)


@dataclass(frozen=True, eq=False, init=False)
class Friction(Cost):
    """A limit: the force on a foot is in the square pyramid |f_x| <= mu f_z, |f_y| <= mu f_z while the foot is active.

    The pyramid lies around the cone of friction; mu / sqrt(2) makes one that lies within. (`WholeBodyControl` keeps
    |f_1| + |f_2| <= friction f_0, which lies within.) The force is that of `constrained_forward_dynamics` at the knot,
    without the impulse at touch-down.

    Args:
        foot: name of a constraint of the `Dynamics` with the rows x, y and z (`Point`, `Weld`). Its z axis is the
            normal: the axes are those of `to_at`, or of `targets`.
        mu: coefficient of friction, positive.

    Raises:
        ArgumentError: no name, or no positive finite number.
    """

    foot: str
    mu: float

    def __init__(self, foot: str, mu: float) -> None:
        name, coefficient = strict_types.text_or_none(foot), finite_number("mu", mu)
        if name is None:
            raise ArgumentError(f"foot: got {brief(foot)}; wanted the name of a constraint")
        if coefficient <= 0.0:
            raise ArgumentError(f"mu: got {brief(mu)}; wanted a positive number")
        _set(self, foot=name, mu=coefficient)


def _set(cost: Cost, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(cost, name, value)


def _numbers(name: str, given: Any, *own: int) -> Array:
    """A copy of finite numbers of shape (..., *own)."""
    array = real_array(name, given, own, np.float64).copy()
    require_finite(name, array, len(own))
    array.setflags(write=False)
    return array


def _optional(name: str, given: Any) -> Array | None:
    """Finite numbers of any shape; None for None."""
    return None if given is None else _numbers(name, given)


def _weights(name: str, given: Any) -> Array:
    """Finite numbers of any shape, none negative."""
    array = _numbers(name, 0.0 if given is None else given)
    if (array < 0.0).any():
        raise ArgumentError(f"{name}: got {brief(given)}; wanted weights that are not negative")
    return array
