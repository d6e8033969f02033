"""Errors of tasks and their Jacobians, on scalars.

A link's frame has the axes b_k and the origin p. The target has the axes t_k and the origin r. In world coordinates:

    s = 1/2 sum of b_k x t_k  (sine of the angle times the axis)        c = 1/2 (sum of b_k . t_k - 1)  (its cosine)
    e_ang = s sqrt(2 / (1 + c))  (2 sin(angle / 2) times the axis)      e_lin = r - p

e_ang has the direction of the shortest rotation and grows with the angle up to pi. It equals the rotation vector to
second order, so the geometric Jacobian is that of Newton's method. At an angle of pi there is no shortest rotation: a
small offset about an axis of the target selects one. A direction task has s = b x t and c = b . t, and uses the two
components of the error that are perpendicular to t. For a gaze t is the direction from p to r. It turns, too, where p
moves by v: the error changes with the angular velocity w + t x v / |r - p|.

A row may keep a value between bounds. Its error is how far the value is beyond one; between them row and error are
zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

import numpy as np

from robodyn.algorithms.constraints.terms import Terms, orthonormal
from robodyn.algorithms.definite import is_zero, product
from robodyn.algorithms.energy import CENTER_OF_MASS, CENTER_OF_MASS_JACOBIAN
from robodyn.algorithms.kinematics import forward_kinematics, jacobian
from robodyn.algorithms.poses import NOT_A_POSE, deviation
from robodyn.algorithms.relative_motion import OfLink, between, pose_from_world
from robodyn.core.constraints.kinds import Weld
from robodyn.core.constraints.resolved import are_distances, resolved_constraints
from robodyn.core.joints import is_positive
from robodyn.core.model import Model
from robodyn.core.reach import reach
from robodyn.core.spatial import IDENTITY, Transform, Vec3, add, cross, dot, rotate, rotate_back, scale, sub
from robodyn.internals.records import dataclass
from robodyn.solve.inverse_kinematics.aims import Aim

_POSE, _JACOBIAN = forward_kinematics(True), jacobian("world")
_LEAST = 1e-4
"""Value of 1 + c below which the offset selects the direction of rotation: angles beyond 179.2 degrees."""
_TINY = 1e-30
"""Added to squares before a root, so that it has no division by zero."""
_OPEN = -1e15
"""The lower bound of a value that has none."""


def relu(x: Any) -> Any:
    """x if it is positive, else 0."""
    return np.maximum(x, 0.0)


def times(factor: Any, row: Sequence[Any]) -> list[Any]:
    """A row of scalars times a factor. Structural zeros are kept."""
    return [value if is_zero(value) else factor * value for value in row]


@dataclass
class _Bounded:
    """A row that keeps a value between bounds: value, bounds and Jacobian, all weighted; 1 if it `acts`, else 0;
    `side`: 1 for the lower bound, -1 for the upper one."""

    value: Any
    low: Any
    high: Any
    row: list[Any]
    acts: Any = 0.0
    side: Any = 0.0

    def beyond(self, value: Any) -> tuple[Any, Any]:
        """1 if a value is beyond a bound, else 0, and the side."""
        below, above = is_positive(self.low - value), is_positive(value - self.high)
        return below + above, below - above


@dataclass
class Rows:
    """Weighted errors, their Jacobian `J` (nv scalars for each error), and unweighted measures of aims."""

    errors: list[Any] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    """Largest change of each weighted error per rad."""
    J: list[list[Any]] = field(default_factory=list)
    measures: list[tuple[Any, Any, Any]] = field(default_factory=list)
    held: list[tuple[Any, bool]] = field(default_factory=list)
    """Unweighted errors of constraints, each with True if it is an angle."""
    turned: list[Any] = field(default_factory=list)
    """Cosines of the angular errors of constraints."""
    level: int = 0
    """The level of priority of the rows that are added."""
    levels: list[int] = field(default_factory=list)
    """The level of each row."""
    bounded: dict[int, _Bounded] = field(default_factory=dict)
    """Rows with bounds, by their numbers."""

    def add(self, weight: float, error: Any, row: list[Any], length: float = 1.0) -> None:
        """Adds a row. `length`: change of the error in m per rad if the error is a distance, else 1."""
        self.errors.append(weight * error)
        self.sizes.append(weight * length)
        self.J.append(times(weight, row))
        self.levels.append(self.level)

    def keep(self, weight: float, value: Any, low: Any, high: Any, row: list[Any], length: float = 1.0) -> Any:
        """Adds a row that keeps a value between bounds; returns its error."""
        bounded = _Bounded(weight * value, weight * low, weight * high, times(weight, row))
        bounded.acts, bounded.side = bounded.beyond(bounded.value)
        error = relu(low - value) - relu(value - high)
        self.bounded[len(self.errors)] = bounded
        self.add(weight, error, times(bounded.acts, row), length)
        return error

    def foreseen(self, dq: list[Any], y: Sequence[Any] | None) -> Rows:
        """The rows of the next guess at the active set, after a step dq with the multipliers y of rows.

        Rows with bounds act if dq leads beyond one, and lead to it. Those that have acted still do if their multiplier
        pushes to the inside, and all of them if there are no multipliers.
        """
        rows = replace(self, errors=list(self.errors), J=list(self.J), bounded={})
        for i, each in self.bounded.items():
            change = product(each.row, dq)
            outside, side = each.beyond(each.value + change)
            idle = 1.0 - each.acts
            stays = each.acts if y is None else each.acts * is_positive(each.side * y[i])
            new = _Bounded(each.value, each.low, each.high, each.row)
            new.acts, new.side = stays + idle * outside, each.acts * each.side + idle * side
            up, down = is_positive(new.side), is_positive(-new.side)
            rows.errors[i] = new.acts * (up * (each.low - each.value) + down * (each.high - each.value))
            rows.J[i], rows.bounded[i] = times(new.acts, each.row), new
        return rows

    def of(self, level: int) -> list[int]:
        """Numbers of the rows of a level."""
        return [i for i, each in enumerate(self.levels) if each == level]

    def constraint_measure(self) -> tuple[Any, Any, Any]:
        """Sums of squares of the constraints' errors in m and in rad, and the sum of their negative cosines."""
        parts, lack = [0.0, 0.0], 0.0
        for phi, angle in self.held:
            parts[angle] = parts[angle] + phi * phi
        for c in self.turned:
            lack = lack + relu(-c)
        return parts[0], parts[1], lack

    def cost(self, level: int = 0) -> Any:
        """Weighted sum of squares of the rows of a level."""
        total: Any = 0.0
        for i in self.of(level):
            total = total + self.errors[i] * self.errors[i]
        return total


class Goals:
    """Target frames from 16 scalars for each aim with a target, with orthonormal axes, then the `bounds` of each aim. A
    matrix that is no pose, or a transposed pose, becomes NaN."""

    def __init__(self, aims: Sequence[Aim], numbers: Sequence[Any]) -> None:
        self.frames: list[Transform] = []
        self.bounds: list[Sequence[Any]] = []
        at = 0
        for aim in aims:
            turns = not aim.kind and bool(aim.turn or aim.bounds)
            self.frames.append(target_frame(numbers[at : at + 16], turns) if aim.targeted else IDENTITY)
            at += 16 * aim.targeted
        for aim in aims:
            self.bounds.append(numbers[at : at + aim.bounds])
            at += aim.bounds


def target_frame(T: Sequence[Any], turns: bool) -> Transform:
    """The frame of a target matrix of 16 scalars, with orthonormal axes; NaN for a matrix that is no pose. `turns`:
    False if its rotation does not count, and is left out."""
    pose = pose_from_world(T)
    if not turns:
        return Transform(IDENTITY.E, pose.r)
    straight = is_positive(NOT_A_POSE - deviation(pose.E, T[12:16]))
    return Transform(orthonormal(scale(straight / straight, pose.E)), pose.r)


class Scene:
    """Evaluates the rows of all aims and constraints at a configuration.

    Args:
        model, aims: the robot and its aims.
        goals: targets of the aims.
        q: scalars, quaternions of unit length.
        at: returns the outputs of an algorithm.
    """

    def __init__(self, model: Model, aims: Sequence[Aim], goals: Goals, q: Sequence[Any], at: OfLink) -> None:
        self._model, self._aims, self._goals = model, aims, goals
        self._q, self._at = q, partial(at, q=q)
        self._known: dict[tuple[str, int], Any] = {}

    def rows(self, slopes: bool) -> Rows:
        """Errors, and their Jacobians if `slopes`."""
        rows = Rows()
        for aim, goal, bounds in zip(self._aims, self._goals.frames, self._goals.bounds, strict=True):
            rows.level = aim.level
            if aim.link < 0:
                self._center(rows, aim, goal, bounds, slopes)
            elif aim.kind == "distance":
                self._distance(rows, aim, goal, bounds, slopes)
            elif aim.kind == "gaze" or (aim.axis is not None and aim.bounds):
                self._pointed(rows, aim, goal, bounds, slopes)
            elif aim.bounds:
                self._boxed(rows, aim, goal, bounds, slopes)
            else:
                self._framed(rows, aim, goal, slopes)
        rows.level = 0
        if self._model.constraints:
            self._constraints(rows, slopes)
        return rows

    # Links; -1 is the world.

    def _pose(self, link: int) -> Transform:
        if link < 0:
            return IDENTITY
        if ("pose", link) not in self._known:
            self._known["pose", link] = pose_from_world(self._at(_POSE, link)["T"])
        return self._known["pose", link]  # type: ignore[no-any-return]

    def _columns(self, link: int) -> Sequence[Any]:
        """A link's geometric Jacobian with respect to the world's origin, (6, nv) flattened."""
        if link < 0:
            return [0.0] * (6 * self._model.nv)
        if ("jacobian", link) not in self._known:
            self._known["jacobian", link] = self._at(_JACOBIAN, link)["J"]
        return self._known["jacobian", link]  # type: ignore[no-any-return]

    # Rows.

    def _framed(self, rows: Rows, aim: Aim, goal: Transform, slopes: bool) -> None:
        reference = self._pose(aim.to)
        target, own = goal.after(reference), Transform(IDENTITY.E, aim.point).after(self._pose(aim.link))  # type: ignore[arg-type]
        offset = sub(target.r, own.r)
        if aim.to >= 0:
            offset = rotate(reference.E, offset)
        distance: Any = 0.0
        for weight, part in zip(aim.move, offset, strict=True):
            if weight:
                distance = distance + part * part
        s, c = _turn(aim, own, target) if aim.turn else ((0.0, 0.0, 0.0), 1.0)
        turns = _turns(aim, target, s, c, reference) if aim.turn else []
        # About some axes alone the errors of the rows are measured: the whole angle may be large.
        partly = aim.turns is not None and len(turns) < 3
        rows.measures.append((distance, *((sum(e * e for *_, e in turns), 1.0) if partly else (dot(s, s), c))))
        moves = [(weight, part) for weight, part in zip(aim.move, offset, strict=True) if weight]
        n = self._model.nv
        J: list[list[Any]] = [[0.0] * n for _ in (*turns, *moves)]
        if slopes:
            of, to = self._columns(aim.link), self._columns(aim.to)
            for k, moving in enumerate(between(self._model, aim.link, aim.to)):
                if not moving:
                    continue
                column = [of[n * r + k] - to[n * r + k] for r in range(6)]
                ang: Vec3 = (column[0], column[1], column[2])
                for row, (_, axis, _) in zip(J, turns, strict=False):
                    row[k] = dot(axis, ang)
                if moves:
                    lin = add(column[3:], cross(ang, own.r))
                    lin = rotate(reference.E, lin) if aim.to >= 0 else lin
                    wanted = [part for weight, part in zip(aim.move, lin, strict=True) if weight]
                    for row, part in zip(J[len(turns) :], wanted, strict=True):
                        row[k] = part
        for (weight, _, error), row in zip(turns, J, strict=False):
            rows.add(weight, error, row)
        for (weight, error), row in zip(moves, J[len(turns) :], strict=True):
            rows.add(weight, error, row, reach(self._model, aim.point))

    def _point(self, aim: Aim) -> Transform:
        """From the world to the point on the aim's link."""
        return Transform(IDENTITY.E, aim.point).after(self._pose(aim.link))  # type: ignore[arg-type]

    def _motion(self, aim: Aim, point: Vec3, slopes: bool) -> list[tuple[Vec3, Vec3]]:
        """Angular and linear velocity of a point of the aim's link, relative to `to`, by degree of freedom."""
        n = self._model.nv
        if not slopes:
            return [((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))] * n
        of, to, found = self._columns(aim.link), self._columns(aim.to), []
        for k, moving in enumerate(between(self._model, aim.link, aim.to)):
            column = [of[n * r + k] - to[n * r + k] if moving else 0.0 for r in range(6)]
            ang: Vec3 = (column[0], column[1], column[2])
            found.append((ang, add(column[3:], cross(ang, point)) if moving else (0.0, 0.0, 0.0)))
        return found

    def _boxed(self, rows: Rows, aim: Aim, goal: Transform, bounds: Sequence[Any], slopes: bool) -> None:
        """A point in a box."""
        own, distance = self._point(aim), 0.0
        place = rotate(goal.E, sub(own.r, goal.r))
        motion = [rotate(goal.E, lin) for _, lin in self._motion(aim, own.r, slopes)]
        for k, weight in enumerate(aim.move):
            if weight:
                row, length = [each[k] for each in motion], reach(self._model, aim.point)
                error: Any = rows.keep(weight, place[k], bounds[k], bounds[3 + k], row, length)
                distance = distance + error * error
        rows.measures.append((distance, 0.0, 1.0))

    def _distance(self, rows: Rows, aim: Aim, goal: Transform, bounds: Sequence[Any], slopes: bool) -> None:
        own, to = self._point(aim), goal
        if aim.to >= 0:
            to = Transform(IDENTITY.E, aim.to_point).after(self._pose(aim.to))  # type: ignore[arg-type]
        way = sub(own.r, to.r)
        distance = np.sqrt(dot(way, way) + _TINY)
        along = scale(1.0 / distance, way)
        row = [dot(along, lin) for _, lin in self._motion(aim, own.r, slopes)]
        length = reach(self._model, aim.point) + float(np.linalg.norm(aim.to_point))
        error = rows.keep(aim.move[0], distance, bounds[0], bounds[1], row, length)
        rows.measures.append((error * error, 0.0, 1.0))

    def _pointed(self, rows: Rows, aim: Aim, goal: Transform, bounds: Sequence[Any], slopes: bool) -> None:
        """A gaze, or an axis in a cone."""
        assert aim.axis is not None
        own, gaze = self._point(aim), aim.kind == "gaze"
        b = rotate_back(own.E, aim.axis)  # type: ignore[arg-type]
        basis = [rotate_back(own.E, each) for each in perpendicular_basis(aim.axis)]
        way = sub(goal.r, own.r)
        near = 1.0 / np.sqrt(dot(way, way) + _TINY)
        t = scale(near, way) if gaze else rotate_back(goal.E, aim.axis)  # type: ignore[arg-type]
        s, c = cross(b, t), dot(b, t)
        e = rotation_error(s, c, basis[0])
        motion = [add(w, scale(near, cross(t, v))) if gaze else w for w, v in self._motion(aim, own.r, slopes)]
        if not aim.bounds:
            for axis in basis:
                rows.add(aim.turn, dot(axis, e), [dot(axis, each) for each in motion])
            rows.measures.append((0.0, dot(s, s), c))
            return
        widest, sine, cosine = bounds
        chord = np.sqrt(dot(e, e) + _TINY)
        row = [dot(e, each) / chord for each in motion]
        rows.keep(aim.turn, -chord, -widest, 0.0, row)
        outside, across = is_positive(chord - widest), np.sqrt(dot(s, s) + _TINY)
        left = across * cosine - c * sine
        rows.measures.append((0.0, outside * left * left, 1.0 + outside * (c * cosine + across * sine - 1.0)))

    def _center(self, rows: Rows, aim: Aim, goal: Transform, bounds: Sequence[Any], slopes: bool) -> None:
        offset = sub(goal.r, self._at(CENTER_OF_MASS)["com"])
        n, distance = self._model.nv, 0.0
        J = self._at(CENTER_OF_MASS_JACOBIAN)["J"] if slopes else [0.0] * (3 * n)
        if aim.bounds:
            x, y, _ = rotate(goal.E, scale(-1.0, offset))
            motion = [rotate(goal.E, (J[k], J[n + k], J[2 * n + k])) for k in range(n)]
            for k in range(0, aim.bounds, 3):
                a, b, edge = bounds[k : k + 3]
                row = [a * each[0] + b * each[1] for each in motion]
                error: Any = rows.keep(aim.move[0], a * x + b * y, _OPEN, edge, row, reach(self._model))
                distance = distance + error * error
        else:
            for k, (weight, part) in enumerate(zip(aim.move, offset, strict=True)):
                if weight:
                    distance = distance + part * part
                    rows.add(weight, part, list(J[n * k : n * k + n]), reach(self._model))
        rows.measures.append((distance, 0.0, 1.0))

    def _constraints(self, rows: Rows, slopes: bool) -> None:
        constraints = resolved_constraints(self._model)
        terms = Terms(self._model, constraints, {"q": self._q}, self._at, False)
        norms = (each.norm for each in constraints for _ in each.rows)
        distances = are_distances(self._model, constraints)
        integrable = (fixed for each in constraints for fixed in each.integrable)
        for row, norm, distance, fixed in zip(terms.rows(), norms, distances, integrable, strict=True):
            J = row.J if slopes and fixed and row.J is not None else [0.0] * self._model.nv
            rows.add(1.0 / norm, -row.phi, J, reach(self._model) if distance else norm)
            rows.held.append((row.phi / norm, not distance))
        for each in constraints:
            if each.kind is Weld:
                a, b = terms.frames(each)
                kept = [k for k, name in enumerate(("rx", "ry", "rz")) if name in each.rows]
                if len(kept) > 1:
                    # The sine is zero for an angle of pi as well, so the cosine is checked. A hinge checks its axis.
                    which = [k for k in range(3) if k not in kept] or kept
                    total: Any = sum((dot(a.E[3 * k : 3 * k + 3], b.E[3 * k : 3 * k + 3]) for k in which), 0.0)
                    rows.turned.append(total if len(which) == 1 else 0.5 * (total - 1.0))


def rotation_error(s: Vec3, c: Any, axis: Vec3) -> Any:
    """e_ang; `axis` selects the direction of rotation where it is half a turn."""
    lack = relu(_LEAST - (1.0 + c))
    return scale(np.sqrt(2.0 / (1.0 + c + lack)), add(s, scale(100.0 * lack, axis)))


def _turn(aim: Aim, own: Transform, target: Transform) -> tuple[Vec3, Any]:
    """s and c of the module's docstring."""
    if aim.axis is not None:
        b, t = (rotate_back(X.E, aim.axis) for X in (own, target))  # type: ignore[arg-type]
        return cross(b, t), dot(b, t)
    s: Any = (0.0, 0.0, 0.0)
    c: Any = -1.0
    for k in range(3):
        b, t = own.E[3 * k : 3 * k + 3], target.E[3 * k : 3 * k + 3]
        s, c = add(s, cross(b, t)), c + dot(b, t)
    return scale(0.5, s), 0.5 * c


def _turns(aim: Aim, target: Transform, s: Vec3, c: Any, reference: Transform) -> list[tuple[float, Vec3, Any]]:
    """Weights and rotation axes of the rows, each with its error."""
    basis = None if aim.axis is None else perpendicular_basis(aim.axis)
    axis: Any = target.E[:3] if basis is None else rotate_back(target.E, basis[0])
    e: Any = rotation_error(s, c, axis)
    unit: list[Any] = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)]
    if basis is None and aim.turns is None:
        return [(aim.turn, *each) for each in zip(unit, e, strict=True)]
    if aim.turns is not None:
        axes = unit if aim.to < 0 else [reference.E[3 * k : 3 * k + 3] for k in range(3)]
        weighted = [(weight, each) for weight, each in zip(aim.turns, axes, strict=True) if weight]
    else:
        assert basis is not None
        weighted = [(aim.turn, rotate_back(target.E, each)) for each in basis]
    return [(weight, each, dot(each, e)) for weight, each in weighted]


def perpendicular_basis(axis: Sequence[float]) -> tuple[Vec3, Vec3]:
    """Two unit vectors that form an orthogonal basis with a given unit vector."""
    least = np.eye(3)[int(np.argmin(np.abs(axis)))]
    one = np.cross(axis, least)
    one /= np.linalg.norm(one)
    return tuple(one.tolist()), tuple(np.cross(axis, one).tolist())


def beyond(rows: Rows, levels: Sequence[int], least: tuple[Any, Any], lower: bool = False) -> Any:
    """A number that is zero if and only if all errors of the highest priority are within tolerance.

    Args:
        rows: errors.
        levels: level of each aim.
        least: squared tolerance of distances, and squared sine of the tolerance of angles.
        lower: True for those of all other priorities instead.
    """
    total: Any = 0.0
    for level, (distance, sine, c) in zip(levels, rows.measures, strict=True):
        if (level > 0) is not lower:
            continue
        for value, most in ((distance, least[0]), (sine, least[1])):
            if not is_zero(value):
                total = total + relu(value - most)
        if not is_zero(sine):
            total = total + relu(-c)
    if rows.held and not lower:
        *sums, lack = rows.constraint_measure()
        for value, most in zip(sums, least, strict=True):
            if not is_zero(value):
                total = total + relu(value - most)
        total = total + lack
    return total


def flat_measures(rows: Rows) -> list[Any]:
    """The measures of all aims in order, then those of all constraints together."""
    flat = [value for each in rows.measures for value in each]
    return [*flat, *rows.constraint_measure()] if rows.held else flat
