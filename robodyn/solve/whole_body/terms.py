"""The numbers of whole-body control in a state, on scalars: dynamics, feet and tasks.

Unknowns are x = (qdd, f): accelerations in an order of their own (`Layout.order`), then forces of feet in axes of their
contacts. With H the mass matrix, c the bias force, and J the Jacobian of the feet's points in axes of contacts,

    tau = H qdd + c - J'f = W x + c,    E'x = (-drift, -c of the base),    E' = (J 0; rows of W of the base)

where drift is the classical acceleration of the points at qdd = 0. Rows of tasks are w (J qdd + Jdot qd - wished).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np

from robodyn.algorithms.crba import CRBA
from robodyn.algorithms.definite import product
from robodyn.algorithms.energy import CENTER_OF_MASS, CENTER_OF_MASS_JACOBIAN
from robodyn.algorithms.kinematics import forward_kinematics, jacobian, link_acceleration, link_velocity
from robodyn.algorithms.manifold import joint_by_joint, unit
from robodyn.algorithms.momentum import CENTER_OF_MASS_ACCELERATION, CENTER_OF_MASS_VELOCITY
from robodyn.algorithms.poses import quaternion_from_rotation
from robodyn.algorithms.relative_motion import OfLink, between
from robodyn.algorithms.rnea import rnea
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.joints import is_positive, quaternion_log
from robodyn.core.model import Model
from robodyn.core.spatial import add, cross, dot, matmul, rotate, sub, transpose
from robodyn.internals.records import dataclass
from robodyn.solve.inverse_kinematics.residuals import target_frame

Vec: TypeAlias = tuple[float, float, float]
_SOUND = 1e-30
"""Factor of the sum of squares of all inputs in a number that tells whether they are finite."""
_LINE = 8
"""Rows of results are padded to whole vectors of any width."""


@dataclass(frozen=True)
class Foot:
    """A point of a link that stands: `link`, its index; `at`, m in the link's frame; `below`, from there in world axes;
    `axes`: normal and both tangents of the force on the link, in world axes; `friction`: along both tangents."""

    link: int
    at: Vec
    below: Vec
    axes: tuple[Vec, Vec, Vec]
    friction: tuple[float, float]


@dataclass(frozen=True)
class Goal:
    """A task of a link, or of the centre of mass (-1): `point` in the link's frame; weights `turns` about and `moves`
    along the world's axes, empty if the task has no such part; `level`: 0 for the highest priority; `number`: of its
    gains; `target`: of its pose."""

    link: int
    point: Vec
    turns: tuple[float, ...]
    moves: tuple[float, ...]
    level: int
    number: int
    target: int

    @property
    def rows(self) -> int:
        """Number of its rows."""
        return sum(map(bool, (*self.turns, *self.moves)))


@dataclass(frozen=True)
class Layout:
    """What the text of a controller depends on, and where its numbers stand in a state's `terms`.

    `postures`: level and number of the gains of each posture. `order`: the degree of freedom of each unknown
    acceleration; `base`: degrees of freedom without a torque; `targets`, `gains`: numbers of poses and of tasks;
    `joint_forces`: as of `Dynamics`.
    """

    nv: int
    feet: tuple[Foot, ...]
    goals: tuple[Goal, ...]
    postures: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    base: tuple[int, ...]
    levels: int
    targets: int
    gains: int
    joint_forces: tuple[str, ...] = ()

    @property
    def unknowns(self) -> int:
        """Number of accelerations and forces."""
        return self.nv + 3 * len(self.feet)

    @property
    def equations(self) -> int:
        """Three of each foot, and those of the base."""
        return 3 * len(self.feet) + len(self.base)

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of tasks of each level."""
        return tuple(sum(goal.rows for goal in self.goals if goal.level == k) for k in range(self.levels))

    @property
    def places(self) -> dict[str, tuple[int, int, int]]:
        """Where each matrix begins, its rows, and how many numbers a row takes."""
        shapes = {
            "E": (self.unknowns, self.equations),
            "W": (self.nv, self.unknowns),
            "bias": (1, self.nv),
            "drift": (1, 3 * len(self.feet)),
            "A": (sum(self.rows), self.nv),
            "a": (1, sum(self.rows)),
            "pull": (self.levels, self.nv),
            "sound": (1, 1),
        }
        places, begin = {}, 0
        for name, (rows, columns) in shapes.items():
            line = -(-columns // _LINE) * _LINE
            places[name] = begin, rows, line
            begin += rows * line
        return places

    @property
    def size(self) -> int:
        """Numbers of a state."""
        begin, rows, line = self.places["sound"]
        return begin + rows * line


def elimination_order(model: Model, feet: Sequence[Foot]) -> tuple[int, ...]:
    """Degrees of freedom in the order in which equations of feet use them up: those that move one foot alone come
    before those that move several, so that equations of other feet stay sparse."""
    moved = np.array([between(model, foot.link, -1) for foot in feet], bool).reshape(len(feet), model.nv)
    alone = [np.flatnonzero(moves & (moved.sum(0) == 1)).tolist() for moves in moved]
    first = [k for each in alone for k in each]
    return (*first, *(k for k in reversed(range(model.nv)) if k not in first))


@lru_cache(maxsize=256)
def terms_task(model: Model, layout: Layout) -> ScalarTask:
    """A task that gives the `terms` of a state."""
    nq, nv, gains = "nq", "nv", layout.gains
    inputs = {"q": Sized((nq,)), "qd": Sized((nv,)), "gains": Sized((gains, 3))}
    if layout.targets:
        inputs["goals"] = Sized((16 * layout.targets,))
    if layout.postures:
        inputs |= {"q_des": Sized((len(layout.postures), nq)), "share": Sized((len(layout.postures), nv))}

    def text(model: Model, known: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
        return {"terms": _Terms(model, layout, known, at).all()}

    digest = blake2b(repr(layout).encode(), digest_size=16).hexdigest()
    return ScalarTask(f"whole_body_terms_{digest}", inputs, {"terms": Sized((layout.size,))}, text, one_program=True)


class _Terms:
    """The text of `terms_task`."""

    def __init__(self, model: Model, layout: Layout, given: Mapping[str, Sequence[Any]], at: OfLink) -> None:
        self._model, self._layout, self._given = model, layout, given
        self._q = unit(model, given["q"])
        self._at: Any = partial(at, q=list(self._q))
        self._still = [0.0] * model.nv
        self._known: dict[Any, Any] = {}

    def all(self) -> list[Any]:
        """All numbers, row after row."""
        layout, nv = self._layout, self._model.nv
        J, drift = self._feet()
        H = self._at(CRBA)["H"]
        bias = self._bias()
        count = 3 * len(layout.feet)
        W = [[*(H[nv * i + k] for k in layout.order), *(-J[r][i] for r in range(count))] for i in range(nv)]
        E = [[*(J[r][k] for r in range(count)), *(H[nv * b + k] for b in layout.base)] for k in layout.order]
        E += [[*[0.0] * count, *(-J[r][b] for b in layout.base)] for r in range(count)]
        A, a = self._tasks()
        read = [x for each in self._given.values() for x in each]
        matrices = {
            "E": E, "W": W, "bias": [bias], "drift": [drift], "A": A, "a": [a],
            "pull": self._postures(), "sound": [[_SOUND * product(read, read)]],
        }  # fmt: skip
        found: list[Any] = []
        for name, (_, _, line) in layout.places.items():
            for row in matrices[name]:
                found += [*row, *[0.0] * (line - len(row))]
        return found

    def _bias(self) -> list[Any]:
        """Generalised forces at rest of the joints' accelerations."""
        model, qd = self._model, self._given["qd"]
        bias = list(self._at(rnea(("q", "qd", "qdd")), qdd=self._still)["tau"])
        for k in range(model.nv):
            if "damping" in self._layout.joint_forces and model.damping[k]:
                bias[k] = bias[k] + float(model.damping[k]) * qd[k]
            if "friction" in self._layout.joint_forces and model.friction[k]:
                bias[k] = bias[k] + float(model.friction[k]) * (is_positive(qd[k]) - is_positive(-qd[k]))
        return bias

    def _of(self, algorithm: Any, name: str, link: int | None, **others: Any) -> Any:
        if (name, link) not in self._known:
            self._known[name, link] = self._at(algorithm, link, **others)[name]
        return self._known[name, link]

    # Links, in axes of the world, at their origins.

    def _pose(self, link: int) -> tuple[Any, Any]:
        """Rotation, row by row, and position."""
        T = self._of(forward_kinematics(True), "T", link)
        return (*T[0:3], *T[4:7], *T[8:11]), (T[3], T[7], T[11])

    def _spatial(self, link: int, arm: Any) -> tuple[list[Any], list[Any]]:
        """Six rows of the Jacobian at a point of the link, and the velocity there."""
        n = self._model.nv
        J = self._of(jacobian("world_aligned"), "J", link)
        rows: list[list[Any]] = [[0.0] * n for _ in range(6)]
        for k, moves in enumerate(between(self._model, link, -1)):
            if moves:
                turn = (J[k], J[n + k], J[2 * n + k])
                move = add((J[3 * n + k], J[4 * n + k], J[5 * n + k]), cross(turn, arm))
                for row, x in zip(rows, (*turn, *move), strict=True):
                    row[k] = x
        V = self._of(link_velocity("world_aligned"), "V", link)
        return rows, [*V[:3], *add(tuple(V[3:]), cross(tuple(V[:3]), arm))]

    def _acceleration(self, link: int, arm: Any, round_arm: Any) -> list[Any]:
        """Angular, and classical linear acceleration of a point without accelerations of joints. `round_arm`: the point
        about which the link's turning counts."""
        A = self._of(link_acceleration("world_aligned", True), "A", link, qdd=self._still)
        V = self._of(link_velocity("world_aligned"), "V", link)
        turn = (V[0], V[1], V[2])
        whirl = cross(turn, cross(turn, round_arm))
        return [*A[:3], *add(add(tuple(A[3:]), cross(tuple(A[:3]), arm)), whirl)]

    def _feet(self) -> tuple[list[list[Any]], list[Any]]:
        """Rows of the Jacobian of all feet, and their accelerations without accelerations of joints, along axes of
        contacts. Points of one link that stand cannot differ by centripetal accelerations: these are the first one's.
        """
        rows: list[list[Any]] = []
        drift: list[Any] = []
        first: dict[int, Any] = {}
        for foot in self._layout.feet:
            arm = add(rotate(self._pose(foot.link)[0], foot.at), foot.below)
            J, _ = self._spatial(foot.link, arm)
            A = self._acceleration(foot.link, arm, first.setdefault(foot.link, arm))
            for axis in foot.axes:
                rows.append([dot(axis, (J[3][k], J[4][k], J[5][k])) for k in range(self._model.nv)])
                drift.append(dot(axis, tuple(A[3:])))
        return rows, drift

    # Tasks.

    def _tasks(self) -> tuple[list[list[Any]], list[Any]]:
        """Weighted rows of all tasks but postures, level by level, and their wishes."""
        A, a = [], []
        for level in range(self._layout.levels):
            for goal in self._layout.goals:
                if goal.level == level:
                    kp, kd, weight = self._given["gains"][3 * goal.number : 3 * goal.number + 3]
                    for own, row, error, rate, drift in self._rows(goal):
                        heavy = own * weight
                        A.append([heavy * row[k] for k in self._layout.order])
                        a.append(heavy * (kp * error - kd * rate - drift))
        return A, a

    def _rows(self, goal: Goal) -> list[tuple[Any, ...]]:
        """Weight, Jacobian, error, velocity, and acceleration without those of joints, of each row."""
        n = self._model.nv
        target = target_frame(self._given["goals"][16 * goal.target : 16 * goal.target + 16], bool(goal.turns))
        if goal.link < 0:
            J = self._of(CENTER_OF_MASS_JACOBIAN, "J", None)
            rows: list[Any] = [list(J[n * r : n * r + n]) for r in range(3)]
            errors: list[Any] = list(sub(target.r, tuple(self._of(CENTER_OF_MASS, "com", None))))
            rates = list(self._of(CENTER_OF_MASS_VELOCITY, "v", None))
            drifts = list(self._of(CENTER_OF_MASS_ACCELERATION, "a", None, qdd=self._still))
        else:
            R, p = self._pose(goal.link)
            arm = rotate(R, goal.point)
            rows, rates = self._spatial(goal.link, arm)
            drifts = self._acceleration(goal.link, arm, arm)
            way = sub(target.r, add(p, arm))
            turned = [0.0] * 3
            if goal.turns:
                turn: Any = matmul(transpose(target.E), transpose(R))  # R_d R'
                turned = list(quaternion_log(quaternion_from_rotation(turn)))
            errors = [*turned, *way]
        weights = (*goal.turns, *goal.moves)
        first = len(rows) - len(goal.moves) - len(goal.turns)
        return [
            (w, rows[first + r], errors[first + r], rates[first + r], drifts[first + r])
            for r, w in enumerate(weights)
            if w
        ]

    def _postures(self) -> list[list[Any]]:
        """Weighted wishes of the accelerations of joints, of each level: sums over its postures."""
        model, layout, given = self._model, self._layout, self._given
        pulls: list[list[Any]] = [[0.0] * model.nv for _ in range(layout.levels)]
        for k, (level, number) in enumerate(layout.postures):
            there = unit(model, given["q_des"][model.nq * k : model.nq * (k + 1)])
            way = _difference(model, self._q, there)
            kp, kd, _ = given["gains"][3 * number : 3 * number + 3]
            share = given["share"][model.nv * k : model.nv * (k + 1)]
            for i, dof in enumerate(layout.order):
                pulls[level][i] = pulls[level][i] + share[dof] * (kp * way[dof] - kd * given["qd"][dof])
        return pulls


def _difference(model: Model, q: Sequence[Any], there: Sequence[Any]) -> Any:
    return joint_by_joint(model, "v", lambda kind, at, _: kind.difference(tuple(q[at]), tuple(there[at])))
