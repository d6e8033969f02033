"""The quadratic programme of velocities of joints that produce wished twists, on scalars.

    minimise    sum of w^2 |J qd - v|^2 over tasks  +  c^2 |qd - z|^2 of a posture  +  damping^2 |qd|^2
    subject to  lower <= qd <= upper,   J qd = v for hard tasks,   J_c qd = -gain phi / dt for constraints

The wished velocity v of a task is its twist, plus gain / dt times the error of its pose. z leads to the posture.
`robodyn.solve.quadratic` has the rows w J as A, w v as b, and what the posture and damping add to H and g as d and e.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np

from robodyn.algorithms.constraints.terms import Terms
from robodyn.algorithms.definite import is_zero, product
from robodyn.algorithms.energy import CENTER_OF_MASS, CENTER_OF_MASS_JACOBIAN
from robodyn.algorithms.joint_limits import limits_of
from robodyn.algorithms.kinematics import forward_kinematics, jacobian
from robodyn.algorithms.manifold import joint_by_joint, unit
from robodyn.algorithms.poses import quaternion_from_rotation
from robodyn.algorithms.relative_motion import OfLink, between, pose_from_world
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.constraints.resolved import resolved_constraints
from robodyn.core.joints import is_positive, quaternion_log
from robodyn.core.model import Model
from robodyn.core.reach import reach
from robodyn.core.spatial import (
    IDENTITY,
    Transform,
    add,
    cross,
    dot,
    matmul,
    rotate,
    rotate_back,
    sub,
    transpose,
)
from robodyn.internals.records import dataclass
from robodyn.solve.inverse_kinematics.residuals import perpendicular_basis, rotation_error, target_frame

_POSE, _JACOBIAN = forward_kinematics(True), jacobian("world")
_LEAST_ROW = 1e-5
"""Length of a row, relative to its terms, below which its entries are rounding errors in either precision."""
_SOUND = 1e-30
"""Factor of the sum of squares of all inputs in g: negligible, unless one of them is not finite."""
_UNLIMITED = 1e30
"""Joint limits beyond this number are ignored, as in `solve`."""
SETTINGS = ("dt", "share", "damping", "posture", "rate")
"""Numbers of the input `settings`: dt, s; gain of limits and constraints by dt; damping^2; weight^2 of the posture; the
rate at which it is approached, 1/s."""
Numbers: TypeAlias = tuple[float, ...]
Point: TypeAlias = tuple[float, float, float]


@dataclass(frozen=True)
class Wish:
    """A task whose velocity is wished.

    `link`: its index, -1 for the centre of mass; `to`: the link in whose axes it moves, -1 for the world; `point`: in
    the link's axes, m; `axis`: of a direction, in the link's axes; `turns`, `moves`: weights about and along the axes,
    or an empty tuple if the twist has no such part; `hard`: True for an equality.
    """

    link: int
    to: int
    point: Point
    turns: Numbers
    moves: Numbers
    axis: Point | None = None
    hard: bool = False

    @property
    def size(self) -> int:
        """Length of its twist."""
        return 3 * (bool(self.turns) + bool(self.moves))

    @property
    def rows(self) -> int:
        """Number of its rows."""
        turning = sum(map(bool, self.turns)) if self.axis is None else 2
        return turning + sum(map(bool, self.moves))


@dataclass(frozen=True)
class Form:
    """What the programme of a call depends on: the tasks; weights of a posture (nv,), or None; whether calls give
    twists, targets, and accelerations; whether there are position limits."""

    wishes: tuple[Wish, ...]
    posture: Numbers | None
    twists: bool
    targets: bool
    braking: bool
    limits: bool

    @property
    def soft(self) -> int:
        """Rows of A, at least one."""
        return max(1, sum(each.rows for each in self.wishes if not each.hard))

    def fixed(self, model: Model) -> int:
        """Rows of C: of hard tasks and of the model's constraints."""
        return sum(each.rows for each in self.wishes if each.hard) + model.n_rows

    def inputs(self) -> dict[str, Sized]:
        """Inputs of the task."""
        n = len(self.wishes)
        found = {"q": Sized(("nq",)), "settings": Sized((len(SETTINGS),)), "speed": Sized(("nv",))}
        if self.twists:
            found["twists"] = Sized((sum(each.size for each in self.wishes),))
        if self.targets:
            found |= {"goals": Sized((16 * n,)), "gains": Sized((n,))}
        if self.posture is not None:
            found["q_des"] = Sized(("nq",))
        if self.braking:
            found |= {"before": Sized(("nv",)), "acceleration": Sized(("nv",))}
        return found


@lru_cache(maxsize=256)
def velocity_task(model: Model, form: Form) -> ScalarTask:
    """A task that gives `A`, `b`, `d`, `e`, `C` if it has rows, `lower` and `upper` of a quadratic programme."""
    m, nv = form.fixed(model), model.nv
    outputs = {"A": Sized((form.soft, nv)), "b": Sized((form.soft,)), "d": Sized((nv,)), "e": Sized((nv,))}
    outputs |= {"C": Sized((m, nv))} if m else {}
    outputs |= {"lower": Sized((nv + m,)), "upper": Sized((nv + m,))}

    def text(model: Model, known: Mapping[str, Sequence[Any]], at: OfLink) -> Mapping[str, Sequence[Any]]:
        return _Velocities(model, form, known, at).programme()

    digest = blake2b(repr(form).encode(), digest_size=16).hexdigest()
    return ScalarTask(f"inverse_kinematics_velocity_{digest}", form.inputs(), outputs, text)


class _Velocities:
    """The text of `velocity_task`."""

    def __init__(self, model: Model, form: Form, given: Mapping[str, Sequence[Any]], at: OfLink) -> None:
        self._model, self._form, self._given = model, form, given
        self._q = unit(model, given["q"])
        self._links = partial(at, q=list(self._q))
        self._known: dict[Any, Any] = {}
        self._dt, self._share, self._damping, self._pull, self._rate = given["settings"]

    def programme(self) -> dict[str, Sequence[Any]]:
        """The outputs of the task."""
        model, A, b, C, equal = self._model, [], [], [], []
        begin = 0
        for k, wish in enumerate(self._form.wishes):
            twist = self._given["twists"][begin : begin + wish.size] if self._form.twists else (0.0,) * wish.size
            begin += wish.size
            for weight, row, wanted in self._rows(wish, k, twist):
                if wish.hard:
                    C.append(_kept(row, max(1.0, reach(model, wish.point)) ** 2))
                    equal.append(wanted)
                else:
                    A.append([each if is_zero(each) else weight * each for each in row])
                    b.append(weight * wanted)
        if not A:
            A, b = [[0.0] * model.nv], [0.0]
        if model.constraints:
            terms = Terms(model, resolved_constraints(model), {"q": self._q}, self._links, False)
            fixed = [row for held in resolved_constraints(model) for row in held.integrable]
            for each, integrable in zip(terms.rows(), fixed, strict=True):
                C.append(_kept(each.J or [0.0] * model.nv, each.size))
                equal.append(-self._share * each.phi if integrable else 0.0)
        lower, upper = self._bounds()
        d, e = self._posture()
        found = {"A": [x for row in A for x in row], "b": b, "d": d, "e": e}
        found |= {"C": [x for row in C for x in row]} if C else {}
        return found | {"lower": [*lower, *equal], "upper": [*upper, *equal]}

    # Tasks.

    def _at(self, algorithm: Any, name: str, link: int | None = None) -> Any:
        if (name, link) not in self._known:
            self._known[name, link] = self._links(algorithm, link)[name]
        return self._known[name, link]

    def _rows(self, wish: Wish, k: int, twist: Sequence[Any]) -> list[tuple[float, list[Any], Any]]:
        """Weight, row of the Jacobian, and wished velocity, of each row of a task."""
        n, goal, gain = self._model.nv, None, 0.0
        if self._form.targets:
            goal = target_frame(self._given["goals"][16 * k : 16 * k + 16], bool(wish.turns))
            gain = self._given["gains"][k] / self._dt
        if wish.link < 0:
            J, com = self._at(CENTER_OF_MASS_JACOBIAN, "J"), self._at(CENTER_OF_MASS, "com")
            error = [0.0] * 3 if goal is None else sub(goal.r, com)
            wanted = [v + gain * e for v, e in zip(twist, error, strict=True)]
            return [(w, list(J[n * r : n * r + n]), wanted[r]) for r, w in enumerate(wish.moves) if w]
        reference = IDENTITY if wish.to < 0 else pose_from_world(self._at(_POSE, "T", wish.to))
        own = Transform(IDENTITY.E, wish.point).after(pose_from_world(self._at(_POSE, "T", wish.link)))
        turned, moved = ([0.0] * 3, [0.0] * 3) if goal is None else self._errors(wish, own, goal, reference)
        errors = [*(turned if wish.turns else ()), *(moved if wish.moves else ())]
        wanted = [v + gain * e for v, e in zip(twist, errors, strict=True)]
        columns = self._columns(wish, own, reference)
        if wish.axis is not None:
            axes = [rotate_back(own.E, each) for each in perpendicular_basis(wish.axis)]
            return [(wish.turns[0], [_dot(axis, column[:3]) for column in columns], dot(axis, wanted)) for axis in axes]
        weights = [*wish.turns, *wish.moves]
        first = 0 if wish.turns else 3
        return [(w, [column[first + r] for column in columns], wanted[r]) for r, w in enumerate(weights) if w]

    def _columns(self, wish: Wish, own: Transform, reference: Transform) -> list[list[Any]]:
        """The twist for each degree of freedom, at the task's point, in axes of the world or of the other link."""
        n, nothing = self._model.nv, [0.0] * 6
        of = self._at(_JACOBIAN, "J", wish.link)
        to = [0.0] * (6 * n) if wish.to < 0 else self._at(_JACOBIAN, "J", wish.to)
        columns = []
        for k, moving in enumerate(between(self._model, wish.link, wish.to)):
            column = nothing
            if moving:
                V = [of[n * r + k] - to[n * r + k] for r in range(6)]
                parts: Any = V[:3], add(V[3:], cross((V[0], V[1], V[2]), own.r)) if wish.moves else V[3:]
                column = [x for part in parts for x in (part if wish.to < 0 else rotate(reference.E, part))]
            columns.append(column)
        return columns

    @staticmethod
    def _errors(wish: Wish, own: Transform, goal: Transform, reference: Transform) -> tuple[Any, Any]:
        """The rotation vector and the way to the target, in axes of the world or of the other link."""
        target = goal.after(reference)
        way: Any = rotate(reference.E, sub(target.r, own.r))
        if not wish.turns:
            return [0.0] * 3, way
        if wish.axis is None:
            turn: Any = matmul(transpose(target.E), own.E)  # from the link's present axes to the wished ones
            return rotate(reference.E, quaternion_log(quaternion_from_rotation(turn))), way
        b, t = rotate_back(own.E, wish.axis), rotate_back(target.E, wish.axis)
        return rotation_error(cross(b, t), dot(b, t), rotate_back(own.E, perpendicular_basis(wish.axis)[0])), way

    # Posture and limits.

    def _posture(self) -> tuple[list[Any], list[Any]]:
        """What the posture and damping add to the diagonal of H, and to -g."""
        d, e = [self._damping] * self._model.nv, [0.0] * self._model.nv
        if self._form.posture is not None:
            q, there = self._q, unit(self._model, self._given["q_des"])
            way = joint_by_joint(self._model, "v", lambda kind, at, _: kind.difference(tuple(q[at]), tuple(there[at])))
            for k, weight in enumerate(self._form.posture):
                if weight:
                    d[k] = d[k] + self._pull
                    e[k] = self._pull * (self._rate * weight) * way[k]
        read = [x for name, each in self._given.items() if name not in ("speed", "acceleration") for x in each]
        e[0] = e[0] + _SOUND * product(read, read)
        return d, e

    def _bounds(self) -> tuple[list[Any], list[Any]]:
        """Lower and upper bounds of velocities. Where limits contradict, those of accelerations come first, then those
        of velocities."""
        model, dt = self._model, self._dt
        highest: list[Any] = list(self._given["speed"])
        lowest: list[Any] = [-each for each in highest]
        most: list[Any] = [None] * model.nv
        if self._form.braking:
            most = list(self._given["acceleration"])
            for k, before in enumerate(self._given["before"]):
                low, high = before - most[k] * dt, before + most[k] * dt
                highest[k] = np.maximum(np.minimum(highest[k], high), low)
                lowest[k] = np.minimum(np.maximum(lowest[k], low), high)
        lower, upper = list(lowest), list(highest)
        crossed = model.lower > model.upper
        limits = limits_of(model, ("position",)) if self._form.limits else {}
        for side, each in limits.items():
            for v, bound, at in zip(each.on.tolist(), each.bound.tolist(), each.at.tolist(), strict=True):
                if crossed[at] or abs(bound) >= _UNLIMITED:
                    continue
                if side == "upper":
                    speed = self._towards(bound - self._q[at], most[v])
                    upper[v] = np.maximum(np.minimum(highest[v], speed), lowest[v])
                else:
                    speed = self._towards(self._q[at] - bound, most[v])
                    lower[v] = np.minimum(np.maximum(lowest[v], -speed), highest[v])
        return lower, upper

    def _towards(self, room: Any, a: Any) -> Any:
        """The largest velocity towards a limit: a share of the room that is left in a step, or one from which the
        acceleration a stops in time, with v dt + v^2 / 2a = room. Negative beyond the limit."""
        if a is None:
            return self._share * room
        inside, beyond = np.maximum(room, 0.0), np.maximum(-room, 0.0)
        return 2.0 * inside / (self._dt + np.sqrt(self._dt * self._dt + 2.0 * inside / a)) - beyond / self._dt


def _kept(row: list[Any], size: Any) -> list[Any]:
    """A row of an equality; zeros if its entries are rounding errors of terms whose sum of squares is `size`. Such an
    equality would hold the joints in a direction of rounding errors."""
    keep = is_positive(product(row, row) - _LEAST_ROW * _LEAST_ROW * size)
    return [each if is_zero(each) else keep * each for each in row]


def _dot(axis: Any, column: Any) -> Any:
    return 0.0 if all(map(is_zero, column)) else dot(axis, column)
