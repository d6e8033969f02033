"""Derivatives of accelerations with contacts by the implicit function theorem.

At the answer a, with r the forces that the rows exert on the degrees of freedom,

    ID(q, qd, a - b) - tau - r(q, qd, a) = 0        a = qdd + b(qd)

Forces of contacts are wrenches W between two links, which are functions of the poses, velocities J qd and accelerations
J a of these links. They run on dual numbers of these (`robodyn.algorithms.contacts.duals`), so that costs, softness and
points of contact have one text. ID has its derivatives with the wrenches as external forces, constant in the world,
which includes those of J' W at a constant W. Hence, with C = -dr/da, the curvature of the rows, and d at constant a and
J',

    (H + C) da = dtau - dID + H db + dr

At the answer H + C is the matrix of Newton's method. Derivatives are those of the rows that act there. For a floating
base dID - H db are the derivatives of ID at zero linear velocity of the base.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from robodyn.algorithms.constraints.terms import with_inputs
from robodyn.algorithms.contacts.duals import Dual, slopes_of, value_of
from robodyn.algorithms.contacts.rows import Group, Member, Row, Rows, bias_of_axes, combined
from robodyn.algorithms.contacts.tasks import SIZES, require_all_slots
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.definite import TreeFactors, is_zero
from robodyn.algorithms.idsva import idsva
from robodyn.algorithms.kinematics import link_acceleration
from robodyn.algorithms.manifold import rates_of_coordinates, unit
from robodyn.algorithms.motion_gradients import link_acceleration_gradient, link_velocity_gradient
from robodyn.algorithms.relative_motion import OfLink
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.core.spatial import Mat3, Transform, Vec3, add, cross, matmul, rotate, scale, sub, transpose

DERIVATIVES = ("dqdd_dq", "dqdd_dqd", "dqdd_dtau")
Matrix: TypeAlias = list[list[Any]]
"""Rows of scalars."""
_Q, _QD, _A, _POSE, _V, _ACC, _DRIFT = "q", "qd", "a", "pose", "velocity", "acceleration", "drift"
_ALONG, _X = "along", "residual"
"""Variables: coordinates, rates and accelerations of degrees of freedom; poses, velocities, accelerations J a of links,
their accelerations at a = 0, and J (a + B qd); residuals."""
_AXES = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def derived(
    model: Model,
    given: Mapping[str, Sequence[Any]],
    at: OfLink,
    bounding: float,
    damping: Sequence[Any],
    times: Any = 1.0,
    **changed: Sequence[Any],
) -> tuple[Matrix, Matrix, Matrix]:
    """da/dq, da/dqd and da/dtau, times a factor, at the accelerations `given["qdd"]`, which are an answer.

    `bounding`: as in `robodyn.algorithms.contacts.tasks.contact_task`. `damping`: coefficients of a damping that tau
    includes. `changed`: "armature" that replaces the model's.
    """
    nv, every = model.nv, range(model.nv)
    rows = _Moving(model, given, at, bounding)
    curved, by_q, by_qd = rows.forces_by()
    entries = at(with_inputs(CRBA, {**given, **changed}), None, None, **changed)["H"]
    lower = [[entries[nv * i + k] + curved[i][k] if k <= i else 0.0 for k in every] for i in every]
    outside = rows.wrenches()
    names = ("q", "qd", "qdd", *(("f_ext",) if outside else ()))
    inertia = {name for name in given if name == "inertia"}
    forces = {"f_ext": outside} if outside else {}
    sliding = [] if "V0" in given else _sliding(model)
    qd, qdd = list(given["qd"]), list(given["qdd"])
    for i, b in enumerate(bias_of_axes(model, given["qd"])):
        if i in sliding:
            qd[i], qdd[i] = 0.0, qdd[i] + b
    ID = at(with_inputs(idsva(names), inertia), None, None, qd=qd, qdd=qdd, **forces)
    armature = changed.get("armature", given.get("armature", model.armature.tolist()))
    for i, slopes in enumerate(bias_slopes(model, given["qd"])):
        # Armature resists along axes that turn.
        moved = {i: armature[i]} if i in sliding else {k: entries[nv * k + i] for k in every}
        for k, entry in moved.items():
            for j, slope in slopes.items() if not is_zero(entry) else ():
                _add(by_qd, k, j, entry * slope)
    factors = TreeFactors(lower)
    factors.inverse = [times * x for x in factors.inverse]

    def solved(name: str, rates: Matrix, damped: Sequence[Any], skipped: Sequence[int]) -> Matrix:
        columns = []
        for j in every:
            column = [rates[i][j] if j in skipped else rates[i][j] - ID[name][nv * i + j] for i in every]
            column[j] = column[j] - damped[j]
            columns.append(factors.solve(column))
        return [list(row) for row in zip(*columns, strict=True)]

    by_rates = solved("tau_qd", by_qd, damping, sliding)
    return solved("tau_q", by_q, [0.0] * nv, ()), by_rates, factors.inverse_matrix()


def _sliding(model: Model) -> list[int]:
    """Degrees of freedom along which a robot moves freely in the world, in axes that turn. Forces but those of armature
    do not depend on their velocities if a is given, so these may count as zero."""
    found: list[int] = []
    for i in range(model.n_bodies):
        kind, start = KINDS[model.joint_kind[i]], int(model.v_source[model.v_start[i]])
        if model.parent[i] < 0 and kind.name in ("floating", "planar"):
            found += [start + k for k in kind.lengths]
    return found


def bias_slopes(model: Model, qd: Sequence[Any]) -> list[dict[int, Any]]:
    """db/dqd, row by row."""
    turning = bias_of_axes(model, [Dual(x, {(_QD, i): 1.0}) for i, x in enumerate(qd)])
    return [{j: slope for (_, j), slope in slopes_of(each).items()} for each in turning]


def contact_gradient_task(
    model: Model, bounding: float, damped: bool = False, inputs: tuple[str, ...] = ("q", "qd", "qdd", "tau")
) -> ScalarTask:
    """`dqdd_dq`, `dqdd_dqd` and `dqdd_dtau` at accelerations "qdd" that `contact_task` found.

    `damped`: True if tau includes damping with the model's coefficients. `inputs`: also those of `contact_task`, and
    "damping", coefficients of a damping that tau includes instead.

    Raises:
        UnavailableError: there are more slots than act at once.
    """
    require_all_slots(model)
    return _gradient(bounding, damped, tuple(name for name in SIZES if name in inputs))


@lru_cache(maxsize=256)
def _gradient(bounding: float, damped: bool, inputs: tuple[str, ...]) -> ScalarTask:
    def text(model: Model, given: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
        damping = given.get("damping", model.damping.tolist() if damped else [0.0] * model.nv)
        found = derived(model, given, at, bounding, damping)
        for i, slopes in enumerate(bias_slopes(model, given["qd"])):
            for j, slope in slopes.items():
                _add(found[1], i, j, -slope)
        return {name: [x for row in matrix for x in row] for name, matrix in zip(DERIVATIVES, found, strict=True)}

    outputs = dict.fromkeys(DERIVATIVES, Sized(("nv", "nv")))
    name = "_".join(("contact_gradient", *inputs, repr(bounding), *(("damped",) if damped else ())))
    return ScalarTask(name, {each: SIZES[each] for each in inputs}, outputs, text, least=least, one_program=True)


def least(model: Model) -> int:
    """A rough lower bound of the operations: solves with the matrix of the tree."""
    return 2 * model.nv**2


class _Pair(NamedTuple):
    """Two links in contact.

    `rows`: the motion of the first relative to the second at the place `about`. `start`: the first of its degrees of
    freedom.
    """

    one: int
    other: int
    rows: list[Row]
    about: Vec3
    start: int


class _Change(NamedTuple):
    """Derivatives of a scalar by q, qd and a, as rows over degrees of freedom. `along`: those by a + B qd, by B, with
    what this changes with q in `by_q`."""

    by_q: Row
    by_qd: Row
    by_a: Row
    along: dict[float, Row]


class _Moving(Rows):
    """Rows on dual numbers. Those of contacts are over the motion of two links relative to each other: six more degrees
    of freedom for each pair of links.

    Contacts feel velocities as J (a + B qd), unless rows of two links differ in B: derivatives of their forces by qd
    are B times those by a. Their costs have residuals as variables, of which there are fewer than of two links.
    """

    def __init__(self, model: Model, given: Mapping[str, Sequence[Any]], at: OfLink, bounding: float) -> None:
        nv, qd = model.nv, given["qd"]
        self._plain = given
        self._rates = [Dual(x, {(_QD, i): 1.0}) for i, x in enumerate(qd)]
        self._turning = bias_of_axes(model, self._rates)
        bias = [value_of(each) for each in self._turning]
        self._known_a = [x + b for x, b in zip(given["qdd"], bias, strict=True)]
        self._a = [Dual(x, {(_A, i): 1.0}) for i, x in enumerate(self._known_a)]
        self._pairs: list[_Pair] = []
        state = {**given, "q": _coordinates(model, list(unit(model, given["q"]))), "qd": list(self._rates)}
        for name in {"friction", "contact_friction", "ground_pose"} & given.keys():
            # Dual numbers know how to meet other scalars, but not the other way round.
            state[name] = [Dual(x, {}) for x in given[name]]
        super().__init__(model, state, at, bias, bounding)
        self._forces: list[Any] = [0.0] * len(self._a)
        self._pulls: list[tuple[Row, _Change]] = []
        """Rows over degrees of freedom, and how the derivatives s' of costs along them change."""
        slots = {id(member) for member in self.of_slots}
        for group in self.groups:
            y = group.times(self._a)
            for member in group.members:
                x = [value - target for value, target in zip(member.of(y), member.targets, strict=True)]
                slopes = (
                    self._slopes_of_slot(group, member, x) if id(member) in slots else member.cost.derivatives(x)[0]
                )
                for slope, to in zip(slopes, member.combines, strict=True):
                    for k, c in to.items():
                        for dof, factor in group.rows[k].items():
                            self._forces[dof] = self._forces[dof] - factor * (c * slope)
        assert len(self._forces) == nv + 6 * len(self._pairs)

    def _slopes_of_slot(self, group: Group, member: Member, x: Sequence[Any]) -> list[Any]:
        """s' of a contact. Where the group has a row for each residual, changes of s' go to `_pulls`, and are left out
        of the result."""
        slopes, _ = member.cost.derivatives([Dual(value_of(each), {(_X, i): 1.0}) for i, each in enumerate(x)])
        by_x = [{key[1]: c for key, c in slopes_of(each).items() if key[0] == _X} for each in slopes]
        others = [
            Dual(value_of(each), {key: c for key, c in slopes_of(each).items() if key[0] != _X}) for each in slopes
        ]
        if len(group.rows) != sum(len(each.combines) for each in group.members):
            return [
                _with_changes(other, [(c, x[i]) for i, c in by.items()]) for other, by in zip(others, by_x, strict=True)
            ]
        changes = [self._change(each) for each in x]
        for to, other, by in zip(member.combines, others, by_x, strict=True):
            (k,) = to
            terms = [(1.0, self._change(other)), *((c, changes[i]) for i, c in by.items())]
            self._pulls.append((self._over_dofs(group.rows[k]), _sum_of_changes(terms)))
        return [Dual(each.value, {}) for each in others]

    def _over_dofs(self, row: Row) -> Row:
        """A row over the motion of a pair of links as one over degrees of freedom."""
        nv = self._model.nv
        places = {divmod(k - nv, 6): value_of(factor) for k, factor in row.items()}
        (pair,) = {number for number, _ in places}
        return combined(self._pairs[pair].rows, {k: factor for (_, k), factor in places.items()})

    def _pose(self, link: int) -> Any:
        """A pose that moves with the link, about its origin."""
        plain = super()._pose(link)
        return plain if link < 0 else self._once("moving", link, lambda: _moved(plain, link))

    def _end(self, link: int, X: Transform) -> tuple[Vec3, Mat3, Any, list[Row]]:
        """A frame whose motion is that of its link."""
        if link < 0:
            return super()._end(link, X)
        T, rows, start = self._pose(link), self._motion(link, -1, None), len(self._a) - 6
        R: Mat3 = (*T[0:3], *T[4:7], *T[8:11])
        away, turning = rotate(R, X.r), (self._qd[start], self._qd[start + 1], self._qd[start + 2])
        still: dict[str, Any] = {"qdd": [-b for b in self._bias]}
        still |= {name: [0.0] * 6 for name in ("V0", "dV0") if name in self._plain}
        plain = self._at(link_acceleration("world_aligned", True), link, **still)["A"]
        A = [Dual(x, {(_DRIFT, link, k): 1.0}) for k, x in enumerate(plain)]
        A[3:] = add(A[3:], add(cross((A[0], A[1], A[2]), away), cross(turning, cross(turning, away))))
        moved = [cross(axis, away) for axis in _AXES]
        for i in range(3):
            rows[3 + i] |= {start + k: turn[i] for k, turn in enumerate(moved) if not is_zero(turn[i])}
        return add((T[3], T[7], T[11]), away), matmul(R, transpose(X.E)), A, rows

    def _origin(self, link: int) -> Vec3:
        T = super()._pose(link)
        return T[3], T[7], T[11]

    def _twist(self, variable: tuple[Any, ...], link: int, vector: Sequence[Any]) -> list[Any]:
        """The Jacobian of a link times a vector: a variable, unless it has no name."""
        J, nv = self._columns(link), self._model.nv
        found = []
        for k in range(6):
            value: Any = 0.0
            for j in range(nv):
                if not is_zero(J[nv * k + j]):
                    value = value + J[nv * k + j] * vector[j]
            found.append(Dual(value, {(*variable, link, k): 1.0} if variable else {}))
        return found

    def _relative(self, one: int, other: int) -> list[Row]:
        return self._motion(one, other, self._damping_between(one, other))

    def _damping_between(self, one: int, other: int) -> float | None:
        """B of all rows of contacts between two links, None if they differ."""
        contacts, index = self._contacts, self._model.link_index
        found = set()
        for pair in contacts.pairs:
            if (one, other) == tuple(index(each.link) if each.link else -1 for each in (pair.first, pair.second)):
                found.add(pair.gains(self._dt, contacts.refsafe)[1])
                if pair.solreffriction is not None and contacts.cone == "elliptic":
                    found.add(pair.gains(self._dt, contacts.refsafe, pair.solreffriction)[1])
        return found.pop() if len(found) == 1 else None

    def _motion(self, one: int, other: int, damping: float | None) -> list[Row]:
        """`_relative` of links whose rows have this B, if they have one."""
        start = len(self._a)
        origins: list[Vec3] = [(T[3], T[7], T[11]) for T in (self._pose(one), self._pose(other))]
        about = origins[0] if one >= 0 else origins[1]

        def between(variable: tuple[Any, ...], vector: Sequence[Any]) -> Any:
            total: Any = (0.0,) * 6
            for sign, link, origin in ((1.0, one, origins[0]), (-1.0, other, origins[1])):
                if link >= 0:
                    twist = self._twist(variable, link, vector)
                    if origin is not about:
                        twist[3:] = add(twist[3:], cross((twist[0], twist[1], twist[2]), sub(about, origin)))
                    total = add(total, scale(sign, twist))
            return total

        rates, accelerations = ((_V,), (_ACC,)) if damping is None else ((), (_ALONG, damping))
        self._qd = [*self._qd, *between(rates, self._plain["qd"])]
        self._a = [*self._a, *between(accelerations, self._known_a)]
        self._pairs.append(_Pair(one, other, super()._relative(one, other), about, start))
        return [{start + k: 1.0} for k in range(6)]

    def wrenches(self) -> list[Any]:
        """External forces (n_bodies, 6) in world coordinates, with those of contacts. Empty if there are none."""
        if not (self._pairs or "f_ext" in self._plain):
            return []
        model = self._model
        total = list(self._plain["f_ext"]) if "f_ext" in self._plain else [0.0] * (6 * model.n_bodies)
        for pair in self._pairs:
            moment, force = (tuple(map(value_of, each)) for each in self._wrench(pair))
            moment = add(moment, cross(tuple(map(value_of, pair.about)), force))
            for sign, link in ((1.0, pair.one), (-1.0, pair.other)):
                body = int(model.link_body[link]) if link >= 0 else -1
                if body >= 0:
                    at = slice(6 * body, 6 * body + 6)
                    total[at] = add(total[at], scale(sign, (*moment, *force)))
        return total

    def forces_by(self) -> tuple[Matrix, Matrix, Matrix]:
        """The lower triangle of C, and derivatives of the rows' forces by q and qd at constant a."""
        nv = self._model.nv
        curved, by_q, by_qd = (_zeros(nv) for _ in range(3))
        along: dict[float, Matrix] = {}
        for i in range(nv):
            for (name, j), slope in slopes_of(self._forces[i]).items():
                _add(by_q if name == _Q else by_qd if name == _QD else curved, i, j, -slope if name == _A else slope)

        def pull(row: Row, change: _Change, pushes: bool) -> None:
            """Add what changes with a force along a row, or, if it does not push, with its opposite."""
            parts = [(by_q, change.by_q, True), (by_qd, change.by_qd, True), (curved, change.by_a, False)]
            parts += [(along.setdefault(B, _zeros(nv)), by, False) for B, by in change.along.items()]
            for matrix, by, every in parts:
                for i, x in row.items():
                    for j, y in by.items():
                        if every or j <= i:
                            matrix[i][j] = matrix[i][j] + x * y if every == pushes else matrix[i][j] - x * y

        for row, change in self._pulls:
            pull(row, change, False)
        for pair in self._pairs:
            moment, force = self._wrench(pair)
            away = [Dual(0.0, slopes_of(x)) for x in pair.about]  # the moment about a place that stays
            wrench = (*add(moment, cross((away[0], away[1], away[2]), force)), *force)
            for row, component in zip(pair.rows, wrench, strict=True):
                pull(row, self._change(component), True)
        for B, matrix in along.items():
            for i in range(nv):
                for j in range(i + 1):
                    if not is_zero(matrix[i][j]):
                        damped = B * matrix[i][j]
                        _add(curved, i, j, matrix[i][j])
                        _add(by_qd, i, j, -damped)
                        if i != j:
                            _add(by_qd, j, i, -damped)
        return curved, by_q, by_qd

    def _wrench(self, pair: _Pair) -> tuple[Vec3, Vec3]:
        """Moment about a pair's place, and force on its first link."""
        found = self._forces[pair.start : pair.start + 6]
        return (found[0], found[1], found[2]), (found[3], found[4], found[5])

    def _change(self, component: Any) -> _Change:
        """Derivatives of what depends on the motion of links."""
        by_q: Row = {}
        by_qd: Row = {}
        by_a: Row = {}
        along: dict[float, Row] = {}
        for (name, *which, link, k), slope in slopes_of(component).items():
            J = self._columns(link)
            if name == _POSE:
                targets = [(by_q, J)]
            elif name == _DRIFT:
                targets = list(zip((by_q, by_qd), self._drift_by(link), strict=True))
            elif name == _V:
                targets = [(by_q, self._turned(link, math.inf)), (by_qd, J)]
            else:
                B = which[0] if which else 0.0
                targets = [(by_q, self._turned(link, B)), (along.setdefault(B, {}) if which else by_a, J)]
            for total, columns in targets:
                for j in range(self._model.nv):
                    x = columns[self._model.nv * k + j]
                    if not is_zero(x):
                        total[j] = total.get(j, 0.0) + slope * x
        return _Change(by_q, by_qd, by_a, along)

    def _drift_by(self, link: int) -> tuple[Any, Any]:
        """Derivatives of a link's acceleration at a = 0 by q and qd, row by row."""
        nv, still = self._model.nv, {name: [0.0] * 6 for name in ("V0", "dV0") if name in self._plain}

        def found() -> tuple[Any, Any]:
            gradient = link_acceleration_gradient("world_aligned", True)
            by = self._at(gradient, link, qdd=[-b for b in self._bias], **still)
            by_qd, J = list(by["dA_dqd"]), by["dA_dqdd"]
            for k, turning in enumerate(self._turning):
                for (_, j), slope in slopes_of(turning).items():
                    for i in range(6):
                        by_qd[nv * i + j] = by_qd[nv * i + j] - J[nv * i + k] * slope
            return by["dA_dq"], by_qd

        return self._once("drift by", link, found)  # type: ignore[no-any-return]

    def _turned(self, link: int, damping: float) -> Any:
        """d(J (a + B qd))/dq of a link at a constant vector, row by row. B is infinite for J qd."""
        a, qd = self._known_a, self._plain["qd"]
        vector = qd if math.isinf(damping) else [x + damping * v for x, v in zip(a, qd, strict=True)]
        gradient = link_velocity_gradient("world_aligned")
        still = {name: [0.0] * 6 for name in ("V0",) if name in self._plain}
        name = f"turned by {damping}"
        return self._once(name, link, lambda: self._at(gradient, link, qd=vector, **still)["dV_dq"])


def _with_changes(scalar: Dual, terms: Iterable[tuple[Any, Any]]) -> Dual:
    """A scalar that also depends on others: terms are derivatives by them, and they."""
    by = dict(scalar.by)
    for factor, other in terms:
        for key, slope in slopes_of(other).items():
            by[key] = by[key] + factor * slope if key in by else factor * slope
    return Dual(scalar.value, by)


def _sum_of_changes(terms: Iterable[tuple[Any, _Change]]) -> _Change:
    """A sum of changes with factors."""
    total = _Change({}, {}, {}, {})
    for factor, (by_q, by_qd, by_a, along) in terms:
        rows = [(total.by_q, by_q), (total.by_qd, by_qd), (total.by_a, by_a)]
        rows += [(total.along.setdefault(B, {}), row) for B, row in along.items()]
        for to, row in rows:
            for k, x in row.items():
                to[k] = to.get(k, 0.0) + factor * x
    return total


def _zeros(n: int) -> Matrix:
    return [[0.0] * n for _ in range(n)]


def _add(matrix: Matrix, i: int, j: int, value: Any) -> None:
    matrix[i][j] = matrix[i][j] + value


def _coordinates(model: Model, q: Sequence[Any]) -> list[Any]:
    """Coordinates as functions of motions on the tangent space."""
    rates = rates_of_coordinates(model, q)
    return [Dual(x, {(_Q, dof): slope for dof, slope in row.items()}) for x, row in zip(q, rates, strict=True)]


def _moved(T: Sequence[Any], link: int) -> list[Any]:
    """A pose with its derivatives by rotations about its origin and translations, along the world's axes."""
    moved = list(T)
    for column in range(3):
        axis = T[column], T[4 + column], T[8 + column]
        turns = [cross(each, axis) for each in _AXES]
        for i in range(3):
            slopes = {(_POSE, link, k): turn[i] for k, turn in enumerate(turns) if not is_zero(turn[i])}
            moved[4 * i + column] = Dual(axis[i], slopes)
    for i in range(3):
        moved[4 * i + 3] = Dual(T[4 * i + 3], {(_POSE, link, 3 + i): 1.0})
    return moved
