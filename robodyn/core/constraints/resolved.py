"""Constraints of a model as numbers: indices of links and joints, transforms of frames, names of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.constraints.kinds import Constraint, Coupling, Lock, Point, Rod, Rolling, Weld, gains
from robodyn.core.joints import KINDS, unit_quaternion
from robodyn.core.reach import reach
from robodyn.core.spatial import IDENTITY, Transform, cross, scale
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass

if TYPE_CHECKING:
    from robodyn.core.model import Model

_LENGTHS = ("x", "y", "z", "length", *Rolling.rows)
"""Names of the rows of frames that are distances."""


@dataclass(frozen=True)
class ResolvedConstraint:
    """A constraint with its names replaced by numbers.

    `number`: its index among the model's; `name`: unique in the model; `rows`: their names; `gains`: on phidot and on
    phi, by which errors decay; `link`, `to`: indices, -1 for the world; `X`, `X_to`: transforms from either to its
    frame; `anchored`: True if the target pose in the world is an input of each call; `length`: of a rod, or the radius
    of a wheel, whose axle is the z axis of its frame; `joints`: of a coupling, its (tree velocity, tree coordinate,
    number); `offset`; `norm`: of the coupling's coefficients on the robot's velocities; `joint`: of a lock, `value`.
    """

    kind: type[Constraint]
    number: int
    name: str
    rows: tuple[str, ...]
    gains: tuple[float, float]
    link: int = -1
    to: int = -1
    X: Transform = IDENTITY
    X_to: Transform = IDENTITY
    anchored: bool = False
    length: float = 0.0
    joints: tuple[tuple[int, int, float], ...] = ()
    offset: float = 0.0
    norm: float = 1.0
    joint: int = -1
    value: tuple[float, ...] = ()

    @property
    def framed(self) -> bool:
        """True if it holds two frames, False if it holds coordinates."""
        return self.kind in (Point, Weld, Rod, Rolling)

    @property
    def integrable(self) -> tuple[bool, ...]:
        """For every row True if it restricts positions, not velocities alone."""
        return tuple(self.kind is not Rolling or name == "height" for name in self.rows)

    @property
    def vectors(self) -> range:
        """Where in its rows vectors begin, each of three rows; none for rows that are no vectors."""
        return range(0, len(self.rows), 3) if self.kind in (Point, Weld) else range(0)


@lru_cache(maxsize=64)
def resolved_constraints(model: Model) -> tuple[ResolvedConstraint, ...]:
    """The constraints of a model.

    Raises:
        ArgumentError: a link or joint that the model has not, or two frames on one body; names it.
    """
    names = _names(model.constraints)
    return tuple(_resolved(model, k, names[k], each) for k, each in enumerate(model.constraints))


def _names(constraints: Sequence[Constraint]) -> list[str]:
    """Unique names: a repeated name gets a number, "tool0", "tool0_2"."""
    taken, unique, last = {each.name for each in constraints}, list[str](), dict[str, int]()
    for each in constraints:
        name, k = each.name, last.get(each.name, 0) + 1
        while k > 1 and (name := f"{each.name}_{k}") in taken:
            k += 1
        last[each.name] = k
        unique.append(name)
    return unique


def anchored_by_calls(constraints: Sequence[Constraint]) -> bool:
    """True if the place of one of them in the world is an input of each call."""
    return any(not isinstance(each, Coupling | Lock) and each.to is None and each.to_at is None for each in constraints)


def row_names(model: Model) -> tuple[str, ...]:
    """Names of rows, "foot.x", in the order of declaration."""
    return tuple(f"{each.name}.{row}" for each in resolved_constraints(model) for row in each.rows)


def velocities_of(model: Model, joint: int) -> Array:
    """Degrees of freedom that move a joint; for a joint that mimics another, those of the other."""
    start = int(model.v_start[joint])
    return model.v_source[start : start + KINDS[model.joint_kind[joint]].nv]


def row_units(model: Model, held: Sequence[ResolvedConstraint]) -> list[str]:
    """The unit of each row's error: "m", "rad", or for couplings "m or rad" where joints of both kinds are in it."""
    return [unit for each in held for unit in _units(model, each)]


def _units(model: Model, held: ResolvedConstraint) -> list[str]:
    if held.kind is Lock:
        kind = KINDS[model.joint_kind[held.joint]]
        return ["m" if k in kind.lengths else "rad" for k in range(kind.nv)]
    if held.kind is Coupling:
        joints = np.searchsorted(model.v_start, [v for v, _, _ in held.joints], side="right") - 1
        return [" or ".join(sorted({"m" if KINDS[model.joint_kind[i]].lengths else "rad" for i in joints}))]
    return ["m" if name in _LENGTHS else "rad" for name in held.rows]


def are_distances(model: Model, held: Sequence[ResolvedConstraint]) -> list[bool]:
    """True for rows that are distances, which grow with the robot's size.

    Couplings are not: they are sums of coordinates, whatever their unit.
    """
    kinds = (each.kind for each in held for _ in each.rows)
    units = row_units(model, held)
    return [unit == "m" and kind is not Coupling for unit, kind in zip(units, kinds, strict=True)]


def row_sizes(model: Model, held: Sequence[ResolvedConstraint]) -> Array:
    """(m,) largest change of each row by a rotation of one radian: for distances the reach of the robot in m, for a
    coupling the norm of its numbers. Rows divided by these can be compared, whatever their units."""
    norms = [each.norm for each in held for _ in each.rows]
    return np.where(are_distances(model, held), reach(model), np.array(norms, float))


def _resolved(model: Model, number: int, name: str, constraint: Constraint) -> ResolvedConstraint:
    common: dict[str, Any] = {
        "kind": type(constraint),
        "number": number,
        "name": name,
        "gains": gains(constraint.baumgarte),
    }
    where = f"constraints[{number}] {name!r}"
    if isinstance(constraint, Coupling):
        joints = tuple(_coordinate(model, where, joint, c) for joint, c in constraint.joints)
        norm = math.hypot(*(c * float(model.v_multiplier[v]) for v, _, c in joints)) or 1.0
        return ResolvedConstraint(**common, rows=constraint.rows, joints=joints, offset=constraint.offset, norm=norm)
    if isinstance(constraint, Lock):
        return ResolvedConstraint(**common, **_locked(model, where, constraint))
    link = _link(model, where, "link", constraint.link)
    to = -1 if constraint.to is None else _link(model, where, "to", constraint.to)
    bodies = [int(model.link_body[each]) if each >= 0 else -1 for each in (link, to)]
    if bodies[0] == bodies[1]:
        on = "the world" if bodies[0] < 0 else f"body {model.body_names[bodies[0]]!r}"
        raise ArgumentError(f"{where}: both frames are on {on}; wanted links that move relative to each other")
    X, length = frame_of(constraint.at), constraint.length if isinstance(constraint, Rod) else 0.0
    if isinstance(constraint, Rolling):
        X, length = _turned_to(constraint.axis).after(X), constraint.radius
    return ResolvedConstraint(
        **common,
        rows=constraint.rows,
        link=link,
        to=to,
        X=X,
        X_to=IDENTITY if constraint.to_at is None else frame_of(constraint.to_at),
        anchored=anchored_by_calls([constraint]),
        length=length,
    )


def _turned_to(axis: tuple[float, ...]) -> Transform:
    """A rotation to a frame whose z axis is a unit vector."""
    least = min(range(3), key=lambda k: abs(axis[k]))
    x: Any = cross((float(least == 0), float(least == 1), float(least == 2)), (axis[0], axis[1], axis[2]))
    x = scale(1.0 / math.hypot(*x), x)
    return Transform((*x, *cross((axis[0], axis[1], axis[2]), x), *axis), (0.0, 0.0, 0.0))


def _link(model: Model, where: str, field: str, name: str) -> int:
    try:
        return model.link_index(name)
    except ArgumentError as error:
        raise ArgumentError(f"{where}: {field}{str(error).removeprefix('link')}") from None


def _joint(model: Model, where: str, name: str) -> int:
    try:
        return model.joint_index(name)
    except ArgumentError as error:
        raise ArgumentError(f"{where}: {error}") from None


def _coordinate(model: Model, where: str, name: str, c: float) -> tuple[int, int, float]:
    i = _joint(model, where, name)
    if KINDS[model.joint_kind[i]].nv != 1:
        raise ArgumentError(f"{where}: joint {name!r} has several degrees of freedom; wanted joints of one")
    return int(model.v_start[i]), int(model.q_start[i]), c


def _locked(model: Model, where: str, lock: Lock) -> dict[str, Any]:
    i = _joint(model, where, lock.joint)
    kind = KINDS[model.joint_kind[i]]
    neutral = np.zeros(kind.nq)
    if kind.quaternion is not None:
        neutral[kind.quaternion + 3] = 1.0
    value = tuple(neutral.tolist()) if lock.value is None else lock.value
    if len(value) != kind.nq:
        raise ArgumentError(f"{where}: value: got {brief(lock.value)}; wanted {kind.nq} coordinates of {lock.joint!r}")
    if kind.quaternion is not None:
        four = slice(kind.quaternion, kind.quaternion + 4)
        if not any(value[four]):
            raise ArgumentError(f"{where}: value: got {brief(lock.value)}; wanted a quaternion xyzw that has a length")
        unit = unit_quaternion(tuple(map(np.float64, value[four])))
        value = (*value[: four.start], *map(float, unit), *value[four.stop :])
    rows = ("value",) if kind.nv == 1 else tuple(map(str, range(kind.nv)))
    return {"rows": rows, "joint": i, "value": value}


def frame_of(numbers: Sequence[float]) -> Transform:
    """The transform that a row of twelve numbers holds, as in `Model.link_X`."""
    return Transform(tuple(numbers[:9]), (numbers[9], numbers[10], numbers[11]))
