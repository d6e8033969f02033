"""Soft rows of a robot in a state: contacts, limits, dry friction and equalities, as groups of residuals.

MuJoCo's accelerations are linear in the velocities of its free joints, which are in world axes. Ours of floating and
planar joints are in body axes, so a = qdd + b with b = (omega x v, 0) takes the place of MuJoCo's accelerations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np

from robodyn.algorithms.contacts.costs import Cost, Elliptic, Huber, OneSided, Pyramid, Quadratic
from robodyn.algorithms.contacts.geometry import Slot, ground, slots
from robodyn.algorithms.definite import is_zero
from robodyn.algorithms.kinematics import forward_kinematics, jacobian, link_acceleration
from robodyn.algorithms.relative_motion import OfLink, between
from robodyn.core.constraints.kinds import Coupling, Lock, Point, Weld
from robodyn.core.constraints.resolved import ResolvedConstraint, resolved_constraints
from robodyn.core.contacts.kinds import LEAST_FRICTION, Contacts, EqualityRows, JointRow, Softness
from robodyn.core.joints import KINDS, quaternion_log
from robodyn.core.model import Model
from robodyn.core.spatial import (
    Mat3,
    Transform,
    Vec3,
    add,
    cross,
    dot,
    matmul,
    rotate_back,
    scale,
    select,
    sub,
    transpose,
)
from robodyn.internals.records import dataclass

Row: TypeAlias = dict[int, Any]
"""A row over degrees of freedom; others are zero."""
_LEAST_R = 1e-15
_TINY = 1e-30
POINT = 16
"""Numbers of a slot of the input `points`: distance less margin, place, normal, first tangent, R, K I, B,
B B of tangents, and both coefficients of friction."""
_DIRECT = 6
"""Rows of a group up to which they are rows over degrees of freedom; more are combinations of the motion of two bodies
relative to each other."""


@dataclass(frozen=True)
class Member:
    """A cost of a group's rows: residuals are x = C y - target, with y the rows times accelerations.

    `combines`: C, for each residual its coefficients by the index of a row. `targets`: a_ref.
    """

    cost: Cost
    combines: Sequence[Mapping[int, Any]]
    targets: Sequence[Any]

    def of(self, y: Sequence[Any]) -> list[Any]:
        """C y."""
        return [_sum(c * y[k] for k, c in each.items()) for each in self.combines]


@dataclass(frozen=True)
class Group:
    """Rows over degrees of freedom, and costs of combinations of them."""

    rows: Sequence[Row]
    members: Sequence[Member]

    def times(self, vector: Sequence[Any]) -> list[Any]:
        """The rows times a vector over degrees of freedom."""
        return [_sum(x * vector[k] for k, x in row.items()) for row in self.rows]


class Rows:
    """All soft rows of a model in a state.

    Args:
        model: a robot with contacts.
        given: the state.
        at: evaluates algorithms in the state.
        bias: b.
        dt: time step that bounds time constants.
    """

    def __init__(self, model: Model, given: Mapping[str, Sequence[Any]], at: OfLink, bias: Sequence[Any], dt: Any):
        assert model.contacts is not None
        self._model, self._at, self._q, self._qd, self._dt = model, at, given["q"], given["qd"], dt
        self._contacts: Contacts = model.contacts
        self._bias, self._given, self._ground = bias, given, ground(given)
        self._known: dict[tuple[str, int], Any] = {}
        self.of_slots: list[Member] = []
        """The members of slots, in their order."""
        self.groups: list[Group] = [*self._of_contacts(), *self._of_joints(), *self._of_equalities()]

    # Links.

    def _pose(self, link: int) -> Any:
        if link < 0:
            return self._ground
        return self._once("T", link, lambda: self._at(forward_kinematics(True), link)["T"])

    def _origin(self, link: int) -> Vec3:
        """Where the rows of `_relative` are taken."""
        T = self._pose(link)
        return T[3], T[7], T[11]

    def _columns(self, link: int) -> Any:
        """The Jacobian of a link's origin in world axes, row by row."""
        if link < 0:
            return [0.0] * (6 * self._model.nv)
        return self._once("J", link, lambda: self._at(jacobian("world_aligned"), link)["J"])

    def _once(self, name: str, link: int, found: Callable[[], Any]) -> Any:
        if (name, link) not in self._known:
            self._known[name, link] = found()
        return self._known[name, link]

    def _relative(self, one: int, other: int) -> list[Row]:
        """The motion of one link relative to another at the origin of the first (of the second for the world)."""
        model, nv = self._model, self._model.nv
        dofs = [k for k, moves in enumerate(between(model, one, other)) if moves]
        origins = [self._origin(link) for link in (one, other)]
        about = origins[0] if one >= 0 else origins[1]
        rows: list[Row] = [{} for _ in range(6)]
        for sign, link, origin in ((1.0, one, origins[0]), (-1.0, other, origins[1])):
            if link < 0:
                continue
            J = self._columns(link)
            away = sub(about, origin) if origin is not about else None
            for k in dofs:
                column = [J[nv * i + k] for i in range(6)]
                if all(map(is_zero, column)):
                    continue
                if away is not None:
                    column[3:] = add(column[3:], cross((column[0], column[1], column[2]), away))
                for row, x in zip(rows, column, strict=True):
                    row[k] = row.get(k, 0.0) + sign * x
        return [{k: x for k, x in row.items() if not is_zero(x)} for row in rows]

    # Contacts.

    def _of_contacts(self) -> Iterator[Group]:
        """Contacts of the same two links are a group."""
        model = self._model
        if "points" in self._given:
            yield from self._of_points()
            return
        pairs = self._contacts.pairs
        links = [
            tuple(model.link_index(shape.link) if shape.link else -1 for shape in (pair.first, pair.second))
            for pair in pairs
        ]
        found: dict[int, Member] = {}
        order = sorted(range(len(links)), key=lambda k: links[k])
        starts = np.cumsum([0, *(pair.slots for pair in pairs)])
        for (one, other), same in groupby(order, key=lambda k: links[k]):
            numbered = [
                (int(starts[k]) + i, k, slot)
                for k in same
                for i, slot in enumerate(slots(pairs[k], self._pose(one), self._pose(other)))
            ]
            origin = self._pose(one if one >= 0 else other)
            about: Vec3 = (origin[3], origin[7], origin[11])
            wrenches = [
                _wrenches(sub(slot.point, about), (slot.n, slot.t1, slot.t2), pairs[k].condim)
                for _, k, slot in numbered
            ]
            basis = self._relative(one, other)
            count = sum(map(len, wrenches))
            if count <= _DIRECT:
                rows = [combined(basis, wrench) for each in wrenches for wrench in each]
                places = iter(range(count))
                wrenches = [[{next(places): 1.0} for _ in each] for each in wrenches]
            else:
                rows = basis
            group = Group(rows, [])
            rates = group.times(self._qd)
            members = []
            for combines, (number, k, slot) in zip(wrenches, numbered, strict=True):
                found[number] = member = self._contact(k, slot, combines, rates)
                members.append(member)
            yield Group(rows, members)
        self.of_slots = [found[k] for k in sorted(found)]

    def _of_points(self) -> Iterator[Group]:
        """The deepest slots, of any pairs. Their rows are about all degrees of freedom."""
        columns, origin = self._columns_at_base()
        contacts, points, sides, nv = self._contacts, self._given["points"], self._given["sides"], self._model.nv
        condim = max(pair.condim for pair in contacts.pairs)
        for k in range(len(points) // POINT):
            gap, *place, R, KI, B, B_t, mu, mu_2 = points[POINT * k : POINT * (k + 1)]
            p, n, t1 = (tuple(place[i : i + 3]) for i in (0, 3, 6))
            arm, side = sub(p, origin), sides[nv * k : nv * (k + 1)]
            wrenches = [(*cross(arm, axis), *axis) for axis in (n, t1, cross(n, t1))[:condim]]
            rows: list[Row] = [
                {i: side[i] * _sum(w * x for w, x in zip(wrench, column, strict=True)) for i, column in columns.items()}
                for wrench in wrenches
            ]
            group = Group(rows, [])
            v = group.times(self._qd)
            targets = [-B * v[0] - KI * gap, *(-B_t * rate for rate in v[1:])]
            cost = self._cost(condim, (mu, mu_2), R, gap)
            member = Member(cost, [{i: 1.0} for i in range(len(rows))], targets)
            self.of_slots.append(member)
            yield Group(rows, [member])

    def _columns_at_base(self) -> tuple[dict[int, list[Any]], Vec3]:
        """Velocities (w, v) of the point of the moving links that is at a common place, for each degree of freedom, and
        that place: the origin of the first link."""
        model, nv = self._model, self._model.nv
        moved = [between(model, link, -1) for link in range(len(model.link_names))]
        T = self._pose(0)
        origin: Vec3 = (T[3], T[7], T[11])
        columns: dict[int, list[Any]] = {}
        for link in sorted(range(len(moved)), key=lambda link: -sum(moved[link])):
            new = [i for i in range(nv) if moved[link][i] and i not in columns]
            if not new:
                continue
            J, T = self._columns(link), self._pose(link)
            away = sub(origin, (T[3], T[7], T[11]))
            for i in new:
                w, v = (tuple(J[nv * row + i] for row in rows) for rows in (range(3), range(3, 6)))
                columns[i] = [*w, *add(v, cross(w, away))]
        return columns, origin

    def _contact(self, k: int, slot: Slot, combines: Sequence[Mapping[int, Any]], rates: Sequence[Any]) -> Member:
        dt, options = self._dt, self._contacts
        pair, friction = options.pairs[k], self._friction(k)
        gap = slot.dist - pair.margin
        K, B = pair.gains(dt, options.refsafe)
        impedance = impedance_of(pair, gap)
        weight = pair.invweight
        softness = (1.0 - impedance) / impedance * weight
        v = [_sum(c * rates[k] for k, c in each.items()) for each in combines]
        targets = [-B * v[0] - K * impedance * gap]
        if pair.solreffriction is not None and options.cone == "elliptic":
            B = pair.gains(dt, options.refsafe, pair.solreffriction)[1]
        targets += [-B * rate for rate in v[1:]]
        R = regularisation(softness, pair.condim, friction[0], options)
        return Member(self._cost(pair.condim, friction, R, gap), combines, targets)

    def _friction(self, k: int) -> tuple[Any, ...]:
        """Coefficients of friction of contact k along both tangents, and against turning."""
        pair = self._contacts.pairs[k]
        if "contact_friction" not in self._given:
            return (*pair.friction, *pair.turning)
        mu = np.maximum(self._given["contact_friction"][k], LEAST_FRICTION)
        return mu, mu, *pair.turning

    def _cost(self, condim: int, friction: Sequence[Any], R: Any, gap: Any) -> Cost:
        D = _stiffness(R, gap)
        if condim == 1:
            return OneSided(D)
        if self._contacts.cone == "pyramidal":
            return Pyramid(D, friction)
        return Elliptic(D, friction, self._contacts.impratio)

    # Joints.

    def _of_joints(self) -> Iterator[Group]:
        """Limits and dry friction of a degree of freedom are a group."""
        members: dict[int, list[Member]] = {}
        model, lower, upper = self._model, self._model.lower, self._model.upper
        for row in self._contacts.limits:
            i = model.joint_index(row.joint)
            dof = int(model.v_source[model.v_start[i]]) + row.component
            at = int(model.q_source[model.q_start[i]]) + row.component
            if row.most is not None:
                yield self._largest_angle(row, row.most, dof, self._q[at : at + 4])
                continue
            for sign, bound in ((1.0, float(lower[at])), (-1.0, float(upper[at]))):
                if np.isfinite(bound):
                    gap = sign * (self._q[at] - bound) - row.margin
                    members.setdefault(dof, []).append(self._joint_row(row, sign, dof, gap, None))
        for row in self._contacts.dry_friction:
            i = model.joint_index(row.joint)
            dof = int(model.v_source[model.v_start[i]]) + row.component
            loss = self._given["friction"][dof] if "friction" in self._given else float(model.friction[dof])
            if not is_zero(loss):
                members.setdefault(dof, []).append(self._joint_row(row, 1.0, dof, 0.0, loss))
        for dof, each in members.items():
            yield Group([{dof: 1.0}], each)

    def _largest_angle(self, row: JointRow, most: float, dof: int, quaternion: Any) -> Group:
        """The limit of a spherical joint: one row, about the axis of its rotation."""
        turn = quaternion_log(tuple(quaternion))
        angle = np.sqrt(dot(turn, turn) + _TINY)
        line: Row = {dof + k: -x / angle for k, x in enumerate(turn)}
        v = Group([line], []).times(self._qd)[0]
        gap = most - angle - row.margin
        impedance = impedance_of(row, gap)
        K, B = row.gains(self._dt, self._contacts.refsafe)
        assert row.invweight is not None
        D = _stiffness((1.0 - impedance) / impedance * row.invweight, gap)
        return Group([line], [Member(OneSided(D), [{0: 1.0}], [-B * v - K * impedance * gap])])

    def _joint_row(self, row: JointRow, sign: float, dof: int, gap: Any, loss: Any) -> Member:
        K, B = row.gains(self._dt, self._contacts.refsafe)
        v = sign * self._qd[dof]
        assert row.invweight is not None
        if loss is not None:
            impedance = impedance_of(row, 0.0)
            R = max((1.0 - impedance) / impedance * row.invweight, _LEAST_R)
            return Member(Huber(1.0 / R, loss), [{0: 1.0}], [-B * v])
        impedance = impedance_of(row, gap)
        D = _stiffness((1.0 - impedance) / impedance * row.invweight, gap)
        return Member(OneSided(D), [{0: sign}], [-B * v - K * impedance * gap])

    # Equalities.

    def _of_equalities(self) -> Iterator[Group]:
        for held, rows in zip(resolved_constraints(self._model), self._contacts.equalities, strict=True):
            if held.kind in (Point, Weld):
                yield self._frames(held, rows)
            elif held.kind in (Coupling, Lock):
                yield self._coordinates(held, rows)

    def _equality(self, rows: EqualityRows, J: list[Row], errors: Sequence[Any], drift: Sequence[Any]) -> Group:
        """Rows that are held together: their impedance is that of the norm of the errors."""
        size = abs(errors[0]) if len(errors) == 1 else np.sqrt(_sum(e * e for e in errors))
        impedance = impedance_of(rows, size)
        K, B = rows.gains(self._dt, self._contacts.refsafe)
        weights = [rows.invweight] * 3 + [rows.rotational] * 3
        R = [np.maximum((1.0 - impedance) / impedance * weight, _LEAST_R) for weight in weights]
        rates = Group(J, []).times(self._qd)
        members = [
            Member(Quadratic(1.0 / R[k]), [{k: 1.0}], [-B * rates[k] - K * impedance * error - drift[k]])
            for k, error in enumerate(errors)
        ]
        return Group(J, members)

    def _end(self, link: int, X: Transform) -> tuple[Vec3, Mat3, Any, list[Row]]:
        """The place and the axes of a frame, in world axes, and its acceleration at a = 0 and Jacobian."""
        if link < 0:
            return X.r, transpose(X.E), [0.0] * 6, [{} for _ in range(6)]
        still: dict[str, Any] = {"qdd": [-b for b in self._bias]}
        still |= {name: [0.0] * 6 for name in ("V0", "dV0") if name in self._given}
        T = self._at(forward_kinematics(True), link, list(X.r))["T"]
        A = self._at(link_acceleration("world_aligned", True), link, list(X.r), **still)["A"]
        J, nv = self._at(jacobian("world_aligned"), link, list(X.r))["J"], self._model.nv
        axes = matmul((*T[0:3], *T[4:7], *T[8:11]), transpose(X.E))
        rows: list[Row] = [{k: J[nv * i + k] for k in range(nv) if not is_zero(J[nv * i + k])} for i in range(6)]
        return (T[3], T[7], T[11]), axes, A, rows

    def _frames(self, held: ResolvedConstraint, rows: EqualityRows) -> Group:
        """The distance of two places in world axes, as of MuJoCo's connect; of a weld also the vector part of the
        quaternion (v, w) of one frame in the other. Its rate is (w d + d x v) / 2 with d the angular velocity in the
        other frame."""
        (p, axes, A, J), (p_to, axes_to, A_to, J_to) = self._end(held.link, held.X), self._end(held.to, held.X_to)
        # What carries both turns the line between them, too.
        lines = [combined(pair, {0: 1.0, 1: -1.0}) for pair in zip(J, J_to, strict=True)]
        errors, drift = list(sub(p, p_to)), list(sub(A[3:], A_to[3:]))
        if held.kind is Point:
            return self._equality(rows, lines[3:], errors, drift)
        M = matmul(transpose(axes_to), axes)
        w = 0.5 * np.sqrt(np.maximum(1.0 + M[0] + M[4] + M[8], _TINY))
        v: Vec3 = scale(0.25 / w, (M[7] - M[5], M[2] - M[6], M[3] - M[1]))

        def rate(d: Vec3) -> Vec3:
            return scale(0.5, add(scale(w, d), cross(d, v)))  # type: ignore[no-any-return]

        x, y, z = (rate((axes_to[3 * k], axes_to[3 * k + 1], axes_to[3 * k + 2])) for k in range(3))
        turning = [combined(lines[:3], dict(enumerate(each))) for each in zip(x, y, z, strict=True)]
        one, other = (Group(each[:3], []).times(self._qd) for each in (lines, J_to))
        d = rotate_back(axes_to, (one[0], one[1], one[2]))
        spin = rotate_back(axes_to, (other[0], other[1], other[2]))
        alpha: Vec3 = sub(rotate_back(axes_to, sub(A[:3], A_to[:3])), cross(spin, d))
        change = add(scale(-0.5 * dot(d, v), d), cross(d, rate(d)))
        errors += v
        drift += add(rate(alpha), scale(0.5, change))
        return self._equality(rows, [*lines[3:], *turning], errors, drift)

    def _coordinates(self, held: ResolvedConstraint, rows: EqualityRows) -> Group:
        """A sum of coordinates, or the coordinate of a locked joint."""
        model = self._model
        if held.kind is Coupling:
            terms = [(int(model.v_source[v]), x, c) for v, x, c in held.joints]
            offset = -held.offset
        else:
            i = held.joint
            terms = [(int(model.v_source[model.v_start[i]]), int(model.q_start[i]), 1.0)]
            offset = -held.value[0]
        row: Row = {}
        error: Any = offset
        for dof, coordinate, factor in terms:
            ratio, shift = float(model.q_multiplier[coordinate]), float(model.q_offset[coordinate])
            row[dof] = row.get(dof, 0.0) + factor * ratio
            error = error + factor * (ratio * self._q[int(model.q_source[coordinate])] + shift)
        return self._equality(rows, [row], [error], [0.0])


def regularisation(softness: Any, condim: int, mu: Any, contacts: Contacts) -> Any:
    """R of a contact's normal, or of the edges of its pyramid. `softness`: (1-I)/I w."""
    if condim == 1 or contacts.cone == "elliptic":
        return softness
    return 2.0 * mu * mu * (1.0 + mu * mu) / contacts.impratio * softness


def bias_of_axes(model: Model, qd: Sequence[Any]) -> list[Any]:
    """b (nv,): omega x v of joints whose linear velocities are in body axes."""
    b: list[Any] = [0.0] * model.nv
    for i in range(model.n_bodies):
        kind, start = KINDS[model.joint_kind[i]].name, int(model.v_source[model.v_start[i]])
        if kind == "floating":
            b[start : start + 3] = cross(tuple(qd[start + 3 : start + 6]), tuple(qd[start : start + 3]))
        elif kind == "planar":
            b[start : start + 2] = [-qd[start + 2] * qd[start + 1], qd[start + 2] * qd[start]]
    return b


def _sum(terms: Any) -> Any:
    """The sum of scalars that are not structural zeros."""
    total: Any = 0.0
    for each in terms:
        if not is_zero(each):
            total = total + each
    return total


def _wrenches(arm: Vec3, axes: tuple[Vec3, Vec3, Vec3], condim: int) -> list[dict[int, Any]]:
    """What a motion (w, v) contributes to the residuals of a contact at `arm`: velocities along the normal and the
    tangents, then angular velocities about them."""
    along = [_wrench(arm, axis) for axis in axes[:condim]]
    return along + [{k: x for k, x in enumerate(axis) if not is_zero(x)} for axis in axes[: max(condim - 3, 0)]]


def _wrench(arm: Vec3, axis: Vec3) -> dict[int, Any]:
    """What a motion (w, v) contributes to the velocity along an axis of a point at `arm`, without structural zeros."""
    return {k: x for k, x in enumerate((*cross(arm, axis), *axis)) if not is_zero(x)}


def combined(rows: Sequence[Row], factors: Mapping[int, Any]) -> Row:
    """A combination of rows."""
    total: Row = {}
    for k, factor in factors.items():
        for dof, x in rows[k].items():
            total[dof] = total.get(dof, 0.0) + factor * x
    return {dof: x for dof, x in total.items() if not is_zero(x)}


def _stiffness(softness: Any, gap: Any) -> Any:
    """1 / R where the row acts, else 0."""
    return select(-gap, 1.0 / np.maximum(softness, _LEAST_R), 0.0)


def impedance_of(row: Softness, gap: Any) -> Any:
    """I at a distance, a scalar or an array, by MuJoCo's `solimp`."""
    dmin, dmax, width, middle, power = row.impedance
    if dmin == dmax or width <= _LEAST_R:
        return 0.5 * (dmin + dmax)
    x = abs(gap) * (1.0 / width)
    if is_zero(x):
        return dmin
    x = np.minimum(x, 1.0)
    if power == 1.0:
        return dmin + x * (dmax - dmin)
    rising = _power(x, power) * (1.0 / middle ** (power - 1.0))
    falling = 1.0 - _power(1.0 - x, power) * (1.0 / (1.0 - middle) ** (power - 1.0))
    return dmin + select(x - middle, falling, rising) * (dmax - dmin)


def _power(x: Any, power: float) -> Any:
    """x^p of x from 0 to 1; whole and half powers are exact."""
    total: Any = 1.0
    half = 2.0 * power
    for _ in range(int(half) // 2):
        total = total * x
    return total * np.sqrt(x) if int(half) % 2 else total
