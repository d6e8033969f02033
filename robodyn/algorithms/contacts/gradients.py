"""Derivatives of accelerations with contacts by the implicit function theorem.

At the answer a, with r the forces that the rows exert on the degrees of freedom,

    ID(q, qd, qdd) - tau - r(q, qd, a) = 0        a = qdd + b(qd)

Forces of contacts are wrenches W between two links, which are functions of the poses, velocities J qd and accelerations
J a of these links. They run on dual numbers of these (`robodyn.algorithms.contacts.duals`), so that costs, softness and
points of contact have one text. ID has its derivatives with the wrenches as external forces, constant in the world,
which includes those of J' W at a constant W. Hence, with C = -dr/da, the curvature of the rows, and d at constant a and
J',

    (H + C) dqdd = dtau - dID + dr - C db

At the answer H + C is the matrix of Newton's method. Derivatives are those of the rows that act there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from robodyn.algorithms.constraints.terms import with_inputs
from robodyn.algorithms.contacts.duals import Dual, slopes_of, value_of
from robodyn.algorithms.contacts.rows import Row, Rows, bias_of_axes
from robodyn.algorithms.contacts.tasks import SIZES, require_all_slots
from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.definite import TreeFactors, is_zero
from robodyn.algorithms.idsva import idsva
from robodyn.algorithms.kinematics import link_acceleration
from robodyn.algorithms.manifold import scalars, unit
from robodyn.algorithms.motion_gradients import link_acceleration_gradient, link_velocity_gradient
from robodyn.algorithms.relative_motion import OfLink
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.model import Model
from robodyn.core.spatial import Mat3, Transform, Vec3, add, cross, matmul, rotate, scale, sub, transpose

DERIVATIVES = ("dqdd_dq", "dqdd_dqd", "dqdd_dtau")
Matrix: TypeAlias = list[list[Any]]
"""Rows of scalars."""
_Q, _QD, _A, _POSE, _V, _ACC, _DRIFT = "q", "qd", "a", "pose", "velocity", "acceleration", "drift"
"""Variables: coordinates, rates and accelerations of degrees of freedom; poses, velocities, accelerations J a of links,
and their accelerations at a = 0."""
_BY_ENTRY = SimpleNamespace(
    cos=np.frompyfunc(np.cos, 1, 1),
    sin=np.frompyfunc(np.sin, 1, 1),
    stack=np.stack,
    concatenate=np.concatenate,
    linalg=np.linalg,
)
"""NumPy for arrays of scalars: its own functions of angles do not ask the entries."""
_AXES = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def derived(
    model: Model,
    given: Mapping[str, Sequence[Any]],
    at: OfLink,
    bounding: float,
    damping: Sequence[Any],
    **changed: Sequence[Any],
) -> tuple[Matrix, Matrix, Matrix]:
    """dqdd/dq, dqdd/dqd and dqdd/dtau at the accelerations `given["qdd"]`, which are an answer.

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
    ID = at(with_inputs(idsva(names), inertia), None, None, **forces)
    factors = TreeFactors(lower)

    def solved(name: str, rates: Matrix, damped: Sequence[Any]) -> Matrix:
        columns = []
        for j in every:
            column = [rates[i][j] - ID[name][nv * i + j] for i in every]
            column[j] = column[j] - damped[j]
            columns.append(factors.solve(column))
        return [list(row) for row in zip(*columns, strict=True)]

    return solved("tau_q", by_q, [0.0] * nv), solved("tau_qd", by_qd, damping), factors.inverse_matrix()


def contact_gradient_task(
    model: Model, bounding: float, damped: bool = False, inputs: tuple[str, ...] = ("q", "qd", "qdd", "tau")
) -> ScalarTask:
    """`dqdd_dq`, `dqdd_dqd` and `dqdd_dtau` at accelerations "qdd" that `contact_task` found.

    `damped`: True if tau includes damping with the model's coefficients. `inputs`: also those of `contact_task`.

    Raises:
        UnavailableError: there are more slots than act at once.
    """
    require_all_slots(model)
    return _gradient(bounding, damped, tuple(name for name in SIZES if name in inputs))


@lru_cache(maxsize=256)
def _gradient(bounding: float, damped: bool, inputs: tuple[str, ...]) -> ScalarTask:
    def text(model: Model, given: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
        damping = model.damping.tolist() if damped else [0.0] * model.nv
        found = derived(model, given, at, bounding, damping)
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


class _Moving(Rows):
    """Rows on dual numbers. Those of contacts are over the motion of two links relative to each other: six more degrees
    of freedom for each pair of links."""

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
        if "friction" in given:  # dual numbers know how to meet other scalars, but not the other way round
            state["friction"] = [Dual(x, {}) for x in given["friction"]]
        super().__init__(model, state, at, bias, bounding)
        self._forces: list[Any] = [0.0] * len(self._a)
        for group in self.groups:
            y = group.times(self._a)
            for member in group.members:
                x = [value - target for value, target in zip(member.of(y), member.targets, strict=True)]
                slopes, _ = member.cost.derivatives(x)
                for slope, to in zip(slopes, member.combines, strict=True):
                    for k, c in to.items():
                        for dof, factor in group.rows[k].items():
                            self._forces[dof] = self._forces[dof] - factor * (c * slope)
        assert len(self._forces) == nv + 6 * len(self._pairs)

    def _pose(self, link: int) -> Any:
        """A pose that moves with the link, about its origin."""
        plain = super()._pose(link)
        return plain if link < 0 else self._once("moving", link, lambda: _moved(plain, link))

    def _end(self, link: int, X: Transform) -> tuple[Vec3, Mat3, Any, list[Row]]:
        """A frame whose motion is that of its link."""
        if link < 0:
            return super()._end(link, X)
        T, rows, start = self._pose(link), self._relative(link, -1), len(self._a) - 6
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

    def _twist(self, name: str, link: int, vector: Sequence[Any]) -> list[Any]:
        """The Jacobian of a link times a vector: a variable."""
        J, nv = self._columns(link), self._model.nv
        found = []
        for k in range(6):
            value: Any = 0.0
            for j in range(nv):
                if not is_zero(J[nv * k + j]):
                    value = value + J[nv * k + j] * vector[j]
            found.append(Dual(value, {(name, link, k): 1.0}))
        return found

    def _relative(self, one: int, other: int) -> list[Row]:
        start = len(self._a)
        origins: list[Vec3] = [(T[3], T[7], T[11]) for T in (self._pose(one), self._pose(other))]
        about = origins[0] if one >= 0 else origins[1]

        def between(name: str, vector: Sequence[Any]) -> Any:
            total: Any = (0.0,) * 6
            for sign, link, origin in ((1.0, one, origins[0]), (-1.0, other, origins[1])):
                if link >= 0:
                    twist = self._twist(name, link, vector)
                    if origin is not about:
                        twist[3:] = add(twist[3:], cross((twist[0], twist[1], twist[2]), sub(about, origin)))
                    total = add(total, scale(sign, twist))
            return total

        self._qd = [*self._qd, *between(_V, self._plain["qd"])]
        self._a = [*self._a, *between(_ACC, self._known_a)]
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
        """The lower triangle of C, and derivatives of the rows' forces by q and, less C db, by qd."""
        nv = self._model.nv
        curved, by_q, by_qd = ([[0.0] * nv for _ in range(nv)] for _ in range(3))
        for i in range(nv):
            for (name, j), slope in slopes_of(self._forces[i]).items():
                _add(by_q if name == _Q else by_qd if name == _QD else curved, i, j, -slope if name == _A else slope)
        for pair in self._pairs:
            moment, force = self._wrench(pair)
            away = [Dual(0.0, slopes_of(x)) for x in pair.about]  # the moment about a place that stays
            wrench = (*add(moment, cross((away[0], away[1], away[2]), force)), *force)
            for row, component in zip(pair.rows, wrench, strict=True):
                changes = self._change(component)
                for i, x in row.items():
                    for matrix, change, sign in zip((by_q, by_qd, curved), changes, (1.0, 1.0, -1.0), strict=True):
                        for j, y in change.items():
                            if matrix is not curved or j <= i:
                                _add(matrix, i, j, sign * (x * y))
        for k, turning in enumerate(self._turning):
            for (_, j), slope in slopes_of(turning).items():
                for i in range(nv):
                    entry = curved[max(i, k)][min(i, k)]
                    if not is_zero(entry):
                        _add(by_qd, i, j, -(entry * slope))
        return curved, by_q, by_qd

    def _wrench(self, pair: _Pair) -> tuple[Vec3, Vec3]:
        """Moment about a pair's place, and force on its first link."""
        found = self._forces[pair.start : pair.start + 6]
        return (found[0], found[1], found[2]), (found[3], found[4], found[5])

    def _change(self, component: Any) -> tuple[Row, Row, Row]:
        """Derivatives of a component of a wrench by q, qd and a."""
        by_q: Row = {}
        by_qd: Row = {}
        by_a: Row = {}
        for (name, link, k), slope in slopes_of(component).items():
            J = self._columns(link)
            if name == _POSE:
                targets = [(by_q, J)]
            elif name == _DRIFT:
                targets = list(zip((by_q, by_qd), self._drift_by(link), strict=True))
            elif name == _V:
                targets = [(by_q, self._turned(link, self._plain["qd"])), (by_qd, J)]
            else:
                targets = [(by_q, self._turned(link, self._known_a)), (by_a, J)]
            for total, columns in targets:
                for j in range(self._model.nv):
                    x = columns[self._model.nv * k + j]
                    if not is_zero(x):
                        total[j] = total.get(j, 0.0) + slope * x
        return by_q, by_qd, by_a

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

    def _turned(self, link: int, vector: Sequence[Any]) -> Any:
        """d(J vector)/dq of a link, row by row."""
        name = "turned by qd" if vector is self._plain["qd"] else "turned by a"
        gradient = link_velocity_gradient("world_aligned")
        still = {name: [0.0] * 6 for name in ("V0",) if name in self._plain}
        return self._once(name, link, lambda: self._at(gradient, link, qd=vector, **still)["dV_dq"])


def _add(matrix: Matrix, i: int, j: int, value: Any) -> None:
    matrix[i][j] = matrix[i][j] + value


def _coordinates(model: Model, q: Sequence[Any]) -> list[Any]:
    """Coordinates as functions of motions on the tangent space."""
    by: list[dict[Any, Any]] = [{} for _ in q]
    for kind, q_index, v_index in model.free_joints:
        for at, along in zip(q_index, v_index, strict=True):
            place = np.stack([scalars([q[i] for i in at])] * kind.nv)
            for dof, rates in zip(along, kind.rate(place, np.eye(kind.nv).astype(object), _BY_ENTRY), strict=True):
                for i, slope in zip(at, rates, strict=True):
                    if not is_zero(slope):
                        by[i][_Q, int(dof)] = slope
    return [Dual(x, slopes) for x, slopes in zip(q, by, strict=True)]


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
