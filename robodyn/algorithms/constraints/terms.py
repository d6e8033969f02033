"""Rows of constraints on scalars: residuals, their rates and accelerations, and Jacobians.

With V = V_b - V_a and A = A_b - A_a - V_a x V, the motion of b that an observer on a sees (world coordinates, at
qdd = 0), rows are in axes of a:

    phi_lin = p_b - p_a                   phi_ang = sum of a_i x b_i / 2
    phidot_lin = V.lin + V.ang x p_b      phidot_ang = V.ang
    gamma_lin = A.lin + A.ang x p_b + V.ang x phidot_lin              gamma_ang = A.ang

phi_ang is the sine of the angle times the axis: it has no branch, and no other zero within half a turn. A hinge holds
two of the angular rows; for these phi_ang is a_i x b_i of the axis i that it leaves free. Columns of J are those of the
joints between the two links; columns of common ancestors cancel, also where the constraint is violated.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from robodyn.algorithms.kinematics import forward_kinematics, jacobian, link_acceleration, link_velocity
from robodyn.algorithms.relative_motion import OfLink, between, pose_from_world
from robodyn.algorithms.tasks import floating_place
from robodyn.core.constraints.kinds import ROWS, Constraint, Lock, Rod, Rolling, Weld
from robodyn.core.constraints.resolved import ResolvedConstraint
from robodyn.core.joints import KINDS, is_positive, unit_quaternion
from robodyn.core.model import Model
from robodyn.core.spatial import (
    IDENTITY,
    ZERO_MOTION,
    Motion,
    Transform,
    Vec3,
    add,
    cross,
    dot,
    rotate,
    rotate_back,
    scale,
    sub,
)
from robodyn.core.sweeps import Algorithm, with_given
from robodyn.internals.records import dataclass

_POSE = forward_kinematics(True)
APART = 1e-5
"""Ends of a rod that are nearer than this share of its length have no direction: in single precision it is a rounding
error."""
_ROUNDING = 1e-30
"""Square of a row of J, relative to that of its size, that is a rounding error whatever its terms are."""
_LEAST_ROW = 1e-5


@dataclass
class Row:
    """One row: phi, phidot, its acceleration at qdd = 0, and its Jacobian (nv scalars, 0.0 for joints without effect).

    Quantities that are not computed are zero. `size`: the sum of squares of the terms that entries of J are sums of; an
    entry that is small compared to its root is a rounding error."""

    phi: Any = 0.0
    phidot: Any = 0.0
    gamma: Any = 0.0
    J: list[Any] | None = None
    size: Any = 0.0


class Terms:
    """Rows of constraints at a state.

    `at` evaluates algorithms, and `world` is the transform from the world, both with the world's origin where `nearby`
    puts it.

    Args:
        model: the robot.
        held: its constraints.
        given: scalars of inputs by name: "q", "qd" for rates, and "targets" (12 of each constraint).
        at: evaluates algorithms.
        moving: True to compute rates and gamma.
        columns: True to compute Jacobians.
        nearby: True to move the world's origin to the floating base where that changes no row. Digits are then not lost
            far away, and frames are relative to the base's position.
    """

    def __init__(
        self,
        model: Model,
        held: Sequence[ResolvedConstraint],
        given: Mapping[str, Sequence[Any]],
        at: OfLink,
        moving: bool,
        columns: bool = True,
        nearby: bool = False,
    ) -> None:
        self._model, self._held, self._given, self.at, self._moving = model, held, given, at, moving
        self._with_columns = columns
        self.world = IDENTITY
        place = floating_place(model) if nearby and not any(name in given for name in ("V0", "dV0")) else []
        if place:
            q = list(given["q"])
            self.world = Transform(IDENTITY.E, scale(-1.0, place_of_base(model, tuple(q[k] for k in place))))
            for k in place:
                q[k] = 0.0
            self.at = partial(at, q=q)
        self._known: dict[tuple[str, int], Any] = {}
        self._weights: dict[int, Any] = {}

    def rows(self) -> list[Row]:
        """All rows, in the order of declaration."""
        rows: list[Row] = []
        for held in self._held:
            if held.framed:
                rows += self._directed(held) if held.kind in (Rod, Rolling) else self._frames(held)
            else:
                rows += self._lock(held) if held.kind is Lock else [self._sum(held)]
        return rows

    # Links in world coordinates; -1 is the world.

    def _of(self, what: str, link: int) -> Any:
        if (what, link) not in self._known:
            self._known[what, link] = getattr(self, f"_{what}")(link)
        return self._known[what, link]

    def _pose(self, link: int) -> Transform:
        if link < 0:
            return self.world
        X = pose_from_world(self.at(_POSE, link)["T"])
        return X.after(self.world) if self._model.link_body[link] < 0 else X

    def _velocity(self, link: int) -> Motion:
        if link < 0 or not self._moving:
            return ZERO_MOTION
        V = self.at(link_velocity("world"), link)["V"]
        return Motion(tuple(V[:3]), tuple(V[3:]))

    def _acceleration(self, link: int) -> Motion:
        if link < 0 or not self._moving:
            return ZERO_MOTION
        still = (0.0,) * self._model.nv
        A = self.at(link_acceleration("world", False), link, qdd=still)["A"]
        return Motion(tuple(A[:3]), tuple(A[3:]))

    def _jacobian(self, link: int) -> Sequence[Any]:
        return [0.0] * (6 * self._model.nv) if link < 0 else self.at(jacobian("world"), link)["J"]

    # Rows.

    def _target(self, held: ResolvedConstraint) -> Transform:
        """The transform from the world to frame a."""
        if held.to < 0 and "targets" in self._given:
            numbers = self._given["targets"][12 * held.number : 12 * held.number + 12]
            return Transform(orthonormal(numbers[:9]), tuple(numbers[9:])).after(self.world)
        return held.X_to.after(self._of("pose", held.to))

    def _columns(self, held: ResolvedConstraint) -> dict[int, Motion]:
        """Motions s_b - s_a of degrees of freedom that move one frame relative to the other, by their indices."""
        n, model = self._model.nv, self._model
        if not self._with_columns:
            return {}
        of, to = self._of("jacobian", held.link), self._of("jacobian", held.to)
        columns = {}
        for k, moves in enumerate(between(model, held.link, held.to)):
            if moves:
                column = tuple(of[n * row + k] - to[n * row + k] for row in range(6))
                columns[k] = Motion(column[:3], column[3:])
        return columns

    def _apart(self, held: ResolvedConstraint) -> tuple[Transform, Transform, Motion, Motion]:
        """Frames a and b, V and A of the module."""
        a, b = self.frames(held)
        V_b, V_a = self._of("velocity", held.link), self._of("velocity", held.to)
        V = V_b - V_a
        A = self._of("acceleration", held.link) - self._of("acceleration", held.to) - V_a.cross(V)
        return a, b, V, A

    def frames(self, held: ResolvedConstraint) -> tuple[Transform, Transform]:
        """Transforms from the world to frame a and to frame b."""
        return self._target(held), held.X.after(self._of("pose", held.link))

    def _frames(self, held: ResolvedConstraint) -> list[Row]:
        a, b, V, A = self._apart(held)
        values = frame_rows(held.kind, held.rows, a, b, V, A)
        n = self._model.nv
        rows = {name: Row(phi, phidot, gamma, [0.0] * n) for name, (phi, phidot, gamma) in values.items()}
        for k, column in self._columns(held).items():
            for name, (entry, size) in frame_entries(held.rows, a, b, column).items():
                rows[name].J[k], rows[name].size = entry, rows[name].size + size  # type: ignore[index]
        return list(rows.values())

    def _directed(self, held: ResolvedConstraint) -> list[Row]:
        a, b, V, A = self._apart(held)
        if held.kind is Rod:
            phi, phidot, gamma, u = rod_row(held.length, a, b, V, A, self._weight(held))
            rows = [Row(phi, phidot, gamma, [0.0] * self._model.nv)]
        else:
            values, contact = rolling_rows(held.length, a, b, V, A, self._weight(held))
            rows = [Row(*each, [0.0] * self._model.nv) for each in values]
        for k, column in self._columns(held).items():
            entries = [rod_entry(u, b, column)] if held.kind is Rod else rolling_entries(contact, b, column)
            for row, (entry, size) in zip(rows, entries, strict=True):
                row.J[k], row.size = entry, row.size + size  # type: ignore[index]
        return rows

    def _sum(self, held: ResolvedConstraint) -> Row:
        model, row = self._model, Row(-held.offset, J=[0.0] * self._model.nv)
        assert row.J is not None
        for v, q, c in held.joints:
            source, weight = int(model.v_source[v]), c * float(model.v_multiplier[v])
            coordinate = self._given["q"][int(model.q_source[q])]
            value = float(model.q_multiplier[q]) * coordinate + float(model.q_offset[q])
            row.phi = row.phi + c * value
            row.J[source], row.size = row.J[source] + weight, row.size + weight * weight
            if self._moving:
                row.phidot = row.phidot + weight * self._given["qd"][source]
        return row

    def _lock(self, held: ResolvedConstraint) -> list[Row]:
        model, kind = self._model, KINDS[self._model.joint_kind[held.joint]]
        start = int(model.q_start[held.joint])
        index = range(start, start + kind.nq)
        coordinates, places = self._given["q"], model.q_source.tolist()
        q = [float(model.q_multiplier[k]) * coordinates[places[k]] + float(model.q_offset[k]) for k in index]
        if kind.quaternion is not None:
            at = kind.quaternion
            q[at : at + 4] = unit_quaternion(tuple(q[at : at + 4]))
        rows = []
        for k, phi in enumerate(kind.difference(held.value, tuple(q))):
            v = int(model.v_start[held.joint]) + k
            source, weight = int(model.v_source[v]), float(model.v_multiplier[v])
            row = Row(phi, J=[0.0] * model.nv)
            assert row.J is not None
            row.J[source], row.size = weight, weight * weight
            if self._moving:
                row.phidot = weight * self._given["qd"][source]
            rows.append(row)
        return rows

    @cached_property
    def active(self) -> list[Any] | None:
        """The weight of every row, or None if constraints cannot be switched off."""
        if "active" not in self._given:
            return None
        return [self._weight(each) for each in self._held for _ in each.rows]

    def _weight(self, held: ResolvedConstraint) -> Any:
        """1 for an active constraint, 0 for an inactive one, from any number; None without an input "active"."""
        if "active" not in self._given:
            return None
        if held.number not in self._weights:
            self._weights[held.number] = is_positive(self._given["active"][held.number])
        return self._weights[held.number]


def base_axes(model: Model) -> tuple[float, ...]:
    """The rotation (nine numbers) from world axes to those in which the position of the floating base is."""
    root = int(np.flatnonzero(model.parent < 0)[0])
    return tuple(model.Xtree[root, :9].tolist())


def place_of_base(model: Model, q: Vec3) -> Vec3:
    """In world axes, the shift of a floating base with the position coordinates q."""
    return rotate_back(base_axes(model), q)


def frame_rows(
    kind: type[Constraint], names: Sequence[str], a: Transform, b: Transform, V: Motion, A: Motion
) -> dict[str, tuple[Any, Any, Any]]:
    """phi, phidot and gamma of the rows of a point or a weld, by name. `a`, `b`: transforms from the world."""
    at_b = add(V.lin, cross(V.ang, b.r))
    leaves = add(add(A.lin, cross(A.ang, b.r)), cross(V.ang, at_b))
    moves = (rotate(a.E, sub(b.r, a.r)), rotate(a.E, at_b), rotate(a.E, leaves))
    turned = _turned(a, b, names) if kind is Weld else (0.0, 0.0, 0.0)
    turns = (turned, rotate(a.E, V.ang), rotate(a.E, A.ang))
    every = dict(zip(ROWS, (*zip(*turns, strict=True), *zip(*moves, strict=True)), strict=True))
    return {name: every[name] for name in names}


def frame_entries(names: Sequence[str], a: Transform, b: Transform, column: Motion) -> dict[str, tuple[Any, Any]]:
    """Entries of J of a degree of freedom in the rows of a point or a weld, and the squares of their terms.

    `column`: the motion of b relative to a at unit velocity.
    """
    lin = add(column.lin, cross(column.ang, b.r))
    turn, move = dot(column.ang, column.ang), dot(lin, lin)
    pairs = zip((*rotate(a.E, column.ang), *rotate(a.E, lin)), (*[turn] * 3, *[move] * 3), strict=True)
    every = dict(zip(ROWS, pairs, strict=True))
    return {name: every[name] for name in names}


def rod_row(length: Any, a: Transform, b: Transform, V: Motion, A: Motion, weight: Any) -> tuple[Any, Any, Any, Vec3]:
    """phi, phidot, gamma and the direction of a rod, |d| = length, with d from a to b. `weight`: 0 if it is inactive,
    None if it is always active."""
    d, v = sub(b.r, a.r), add(V.lin, cross(V.ang, b.r))
    size = np.sqrt(dot(d, d))
    apart = is_positive(size - APART * length)
    if weight is not None:  # an inactive rod gets a direction, so that nothing is NaN
        near = (1.0 - weight) * (1.0 - apart)
        size, apart = size + near, apart + near
    size = size * (apart / apart)  # NaN instead of a direction of rounding errors if both ends coincide
    u = scale(1.0 / size, d)
    along = dot(u, v)
    acceleration = add(add(A.lin, cross(A.ang, b.r)), cross(V.ang, v))
    # The rate of d in a's axes is v less the rotation of these axes: seen from a, so the same formula holds.
    return size - length, along, dot(u, acceleration) + (dot(v, v) - along * along) / size, u


def rod_entry(u: Vec3, b: Transform, column: Motion) -> tuple[Any, Any]:
    """The entry of J of a degree of freedom in the row of a rod, and the square of its terms."""
    lin = add(column.lin, cross(column.ang, b.r))
    return dot(u, lin), dot(lin, lin)


class Contact(NamedTuple):
    """The lowest point of a wheel, in world axes: `arm` from its centre; directions forward, to the side, and up."""

    arm: Vec3
    forward: Vec3
    side: Vec3
    up: Vec3


def rolling_rows(
    radius: Any, a: Transform, b: Transform, V: Motion, A: Motion, weight: Any
) -> tuple[list[tuple[Any, Any, Any]], Contact]:
    """phi, phidot and gamma of the rows of a wheel about the z axis of b on the x-y plane of a, and the contact.

    In axes of a, with the axle n and s = sqrt(nx^2 + ny^2): the plane's steepest direction within the wheel is
    u = (-nz l, s) with l = (nx, ny) / s, the side. The lowest point is at -radius u from the centre. Of the velocity of
    the material point there, rows are the components along (ny, -nx) / s, l and z. gamma is the rate of these
    components, whose directions turn with the axle. `weight`: as of `rod_row`; a wheel that lies flat has no lowest
    point.
    """
    n, w = rotate(a.E, b.E[6:]), rotate(a.E, V.ang)
    at_b = add(V.lin, cross(V.ang, b.r))
    v, acceleration = rotate(a.E, at_b), rotate(a.E, add(add(A.lin, cross(A.ang, b.r)), cross(V.ang, at_b)))
    s = steepness(n, weight)
    rates, gains = rolling_motion(radius, n, s, w, v, rotate(a.E, A.ang), acceleration)
    errors = (0.0, 0.0, rotate(a.E, sub(b.r, a.r))[2] - radius * s)
    forward, side, u = rolling_directions(n, s)
    arm, *directions = (rotate_back(a.E, each) for each in (scale(-radius, u), forward, side, (0.0, 0.0, 1.0)))
    return list(zip(errors, rates, gains, strict=True)), Contact(arm, *directions)


def steepness(n: Vec3, weight: Any) -> Any:
    """s of `rolling_rows`; NaN for a wheel that lies flat, unless it is inactive."""
    s = np.sqrt(n[0] * n[0] + n[1] * n[1])
    apart = is_positive(s - APART)
    if weight is not None:
        near = (1.0 - weight) * (1.0 - apart)
        s, apart = s + near, apart + near
    return s * (apart / apart)


def rolling_directions(n: Vec3, s: Any) -> tuple[Vec3, Vec3, Vec3]:
    """Of a wheel with the axle n in axes of the plane: forward, to the side, and up within the wheel."""
    x, y = n[0] / s, n[1] / s
    return (y, -x, 0.0), (x, y, 0.0), (-n[2] * x, -n[2] * y, s)


def rolling_motion(
    radius: Any, n: Vec3, s: Any, w: Vec3, v: Vec3, alpha: Vec3 | None = None, acceleration: Vec3 | None = None
) -> tuple[list[Any], list[Any]]:
    """Rates of the rows of a wheel, and their accelerations if those of b are given, all in axes of a.

    `n`, `s`: as in `rolling_rows`. `w`, `v`, `alpha`, `acceleration`: motion of b and of its origin, seen from a.
    """
    forward, side, u = rolling_directions(n, s)
    slip = sub(v, scale(radius, cross(w, u)))
    rates = [dot(slip, forward), dot(slip, side), slip[2]]
    if alpha is None or acceleration is None:
        return rates, []
    x, y, _ = side
    turned = cross(w, n)
    rate = x * turned[0] + y * turned[1]
    dx, dy = (turned[0] - x * rate) / s, (turned[1] - y * rate) / s
    du = (-turned[2] * x - n[2] * dx, -turned[2] * y - n[2] * dy, rate)
    gains = sub(acceleration, scale(radius, add(cross(alpha, u), cross(w, du))))
    along = dot(gains, forward) + slip[0] * dy - slip[1] * dx
    return rates, [along, dot(gains, side) + slip[0] * dx + slip[1] * dy, gains[2]]


def rolling_entries(contact: Contact, b: Transform, column: Motion) -> list[tuple[Any, Any]]:
    """Entries of J of a degree of freedom in the rows of a wheel, and the squares of their terms."""
    lin, turn = add(column.lin, cross(column.ang, b.r)), cross(column.ang, contact.arm)
    size, moved = dot(lin, lin) + dot(turn, turn), add(lin, turn)
    return [(dot(moved, direction), size) for direction in contact[1:]]


def moves(square: Any, made_of: Any, size: Any, proximal: tuple[float, int]) -> Any:
    """1 if a row of J moves with some joint, 0 if it is a rounding error. As rows are scaled by A_kk, a rounding error
    would be held like any other row.

    Args:
        square: the sum of squares of the row.
        made_of: the sum of squares of the terms of its entries (`Row.size`).
        size: of the row (`row_sizes`), so that the comparison does not depend on units.
        proximal: a row that is smaller than the proximal term, relative to its terms, counts as zero.
    """
    least = min(proximal[0], _LEAST_ROW)
    return is_positive((square - least * least * made_of) * (1.0 / (size * size)) - _ROUNDING)


def with_inputs(algorithm: Algorithm, given: Container[str]) -> Algorithm:
    """The algorithm with "inertia" and "armature" as inputs if `given` has them."""
    for name in ("inertia", "armature"):
        if name in given:
            algorithm = with_given(algorithm, name)
    return algorithm


def orthonormal(E: Sequence[Any]) -> tuple[Any, ...]:
    """Axes made orthonormal and right-handed, as quaternions are made unit; NaN if they are not right-handed."""
    one, other, third = (tuple(E[k : k + 3]) for k in (0, 3, 6))
    x = scale(1.0 / np.sqrt(dot(one, one)), one)
    y = sub(other, scale(dot(x, other), x))
    y = scale(1.0 / np.sqrt(dot(y, y)), y)
    z = cross(x, y)
    handed = is_positive(dot(z, third))
    return (*x, *y, *scale(handed / handed, z))


def _turned(a: Transform, b: Transform, rows: Sequence[str]) -> Vec3:
    """Half the sum of a_i x b_i in the axes of a; for a hinge a_i x b_i of its axis alone, whose zeros do not depend on
    the hinge's angle. Rows of E are axes in world coordinates."""
    free = [k for k, name in enumerate(("rx", "ry", "rz")) if name not in rows]
    axes, weight = (free, 1.0) if len(free) == 1 else ([0, 1, 2], 0.5)
    total: Any = (0.0, 0.0, 0.0)
    for k in axes:
        (ax, ay, az), (bx, by, bz) = a.E[3 * k : 3 * k + 3], b.E[3 * k : 3 * k + 3]
        total = add(total, cross((ax, ay, az), (bx, by, bz)))
    return rotate(a.E, scale(weight, total))
