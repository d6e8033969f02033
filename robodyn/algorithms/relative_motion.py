"""Queries about several links at once, and about the motion of a link relative to another one.

Both combine queries about one link in functions of scalars. Engines trace these into one program, which computes shared
quantities once, or run the parts on arrays. With V_a and V_b the velocities of two links in world coordinates, and A_a
and A_b their accelerations, the motion of b that an observer on a sees is

    V = V_b - V_a        A = A_b - A_a - V_a x V

(the derivative of V in the moving frame). Its Jacobian has the columns s_j of the joints between the links; columns of
common ancestors cancel exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Protocol, TypeAlias

import numpy as np

from robodyn.algorithms.kinematic_gradients import frame_velocity, jacobian_derivative
from robodyn.algorithms.kinematics import (
    Frame,
    classical_frame,
    forward_kinematics,
    jacobian,
    link_acceleration,
    link_velocity,
    to_frame,
)
from robodyn.algorithms.tasks import ScalarTask, Sized
from robodyn.core.joints import KINDS
from robodyn.core.model import Model
from robodyn.core.spatial import Motion, Transform, add, cross, dot, sub
from robodyn.core.sweeps import PER_BODY, Algorithm, with_given

Scalars: TypeAlias = Sequence[Any]


class OfLink(Protocol):
    """Evaluates an algorithm at the inputs of a call, about a link and a point on it if given.

    `others` replace inputs of the call. Returns scalars by output.
    """

    def __call__(
        self, algorithm: Algorithm, link: int | None = None, point: Scalars | None = None, **others: Scalars
    ) -> Mapping[str, Scalars]:
        """The algorithm's outputs."""


class _Relative:
    """Quantities of two links: `of` is the link (with the point on it), `to` the other."""

    def __init__(self, at: OfLink, of: int, to: int, point: Scalars | None) -> None:
        self._at, self._of, self._to, self._point = at, of, to, point

    def poses(self) -> tuple[Transform, Transform]:
        """Transforms from the world to both links; the first one ends at the point."""
        of = self._at(_POSE, self._of, self._point)["T"]
        return pose_from_world(of), pose_from_world(self._at(_POSE, self._to)["T"])

    def motions(self, algorithm: Algorithm) -> tuple[Motion, Motion]:
        """A velocity or acceleration of both links."""
        name = next(iter(algorithm.outputs))
        of, to = self._at(algorithm, self._of)[name], self._at(algorithm, self._to)[name]
        return Motion(tuple(of[:3]), tuple(of[3:])), Motion(tuple(to[:3]), tuple(to[3:]))

    def columns(self, algorithm: Algorithm, between: Sequence[bool]) -> list[Motion]:
        """The difference of two Jacobians, or of matrices with their columns; zero where `between` is False."""
        name, n = next(iter(algorithm.outputs)), len(between)
        of, to = self._at(algorithm, self._of)[name], self._at(algorithm, self._to)[name]
        columns = []
        for k, moves in enumerate(between):
            column = tuple(of[n * row + k] - to[n * row + k] if moves else 0.0 for row in range(6))
            columns.append(Motion(column[:3], column[3:]))  # type: ignore[arg-type]
        return columns


_POSE = forward_kinematics(True)


def pose_from_world(T: Scalars) -> Transform:
    """The transform from the world to a link of the pose T (16 scalars)."""
    E = (T[0], T[4], T[8], T[1], T[5], T[9], T[2], T[6], T[10])
    return Transform(E, (T[3], T[7], T[11]))


def _rows(columns: Sequence[Motion]) -> list[Any]:
    """Columns as the scalars of a matrix (6, n)."""
    every = [(*column.ang, *column.lin) for column in columns]
    return [column[row] for row in range(6) for column in every]


def _pose(model: Model, pair: _Relative, frame: Frame, classical: bool, between: Sequence[bool]) -> list[Any]:
    """T_a^-1 T_b."""
    of, to = pair.poses()
    # The pose [R p] has R = E' and p = r.
    columns = [of.E[3 * k : 3 * k + 3] for k in range(3)]
    offset = sub(of.r, to.r)
    rows = [to.E[3 * k : 3 * k + 3] for k in range(3)]
    scalars = [value for row in rows for value in (*(dot(row, column) for column in columns), dot(row, offset))]
    return [*scalars, 0.0, 0.0, 0.0, 1.0]


def _jacobian(model: Model, pair: _Relative, frame: Frame, classical: bool, between: Sequence[bool]) -> list[Any]:
    """Columns s_j of the joints between the links, with a minus on the path to a."""
    X = to_frame(frame, pair.poses()[0])
    return _rows([X.motion(column) for column in pair.columns(jacobian("world"), between)])


def _jacobian_derivative(
    model: Model, pair: _Relative, frame: Frame, classical: bool, between: Sequence[bool]
) -> list[Any]:
    """X_F (ds_j - v_F x s_j)."""
    X = pair.poses()[0]
    XF, vF = to_frame(frame, X), frame_velocity(frame, X, pair.motions(link_velocity("world"))[0])
    columns = pair.columns(jacobian("world"), between)
    rates = pair.columns(jacobian_derivative("world"), between)
    return _rows([XF.motion(rate - vF.cross(column)) for column, rate in zip(columns, rates, strict=True)])


def _velocity(model: Model, pair: _Relative, frame: Frame, classical: bool, between: Sequence[bool]) -> list[Any]:
    """V_b - V_a."""
    of, to = pair.motions(link_velocity("world"))
    seen = to_frame(frame, pair.poses()[0]).motion(of - to)
    return [*seen.ang, *seen.lin]


def _acceleration(model: Model, pair: _Relative, frame: Frame, classical: bool, between: Sequence[bool]) -> list[Any]:
    """A_b - A_a - V_a x (V_b - V_a)."""
    X = to_frame(classical_frame(frame) if classical else frame, pair.poses()[0])
    V_of, V_to = pair.motions(link_velocity("world"))
    A_of, A_to = pair.motions(link_acceleration("world", False))
    V = V_of - V_to
    a, v = X.motion(A_of - A_to - V_to.cross(V)), X.motion(V)
    lin = add(a.lin, cross(v.ang, v.lin)) if classical else a.lin
    return [*a.ang, *lin]


_TEXTS: dict[str, tuple[Callable[..., list[Any]], tuple[str, ...]]] = {
    "link_pose": (_pose, ("q",)),
    "jacobian": (_jacobian, ("q",)),
    "jacobian_derivative": (_jacobian_derivative, ("q", "qd")),
    "link_velocity": (_velocity, ("q", "qd")),
    "link_acceleration": (_acceleration, ("q", "qd", "qdd")),
}
RELATIVE = tuple(_TEXTS)
"""Queries that can be about a link's motion relative to another."""


def between(model: Model, of: int, to: int) -> list[bool]:
    """For every degree of freedom, True if it moves one link relative to another (-1: to the world), also through
    joints that mimic it."""
    bodies = [int(model.link_body[link]) if link >= 0 else -1 for link in (of, to)]
    paths = [set(model.tree.path(body)) if body >= 0 else set() for body in bodies]
    moves = [False] * model.nv
    starts = [*model.v_start.tolist(), model.nv_tree]
    for i in paths[0] ^ paths[1]:
        for v in range(starts[i], starts[i + 1]):
            moves[int(model.v_source[v])] = True
    return moves


def _at_origin(model: Model, known: Mapping[str, Scalars], at: OfLink, links: Sequence[int], frame: Frame) -> OfLink:
    """The evaluator with the floating base at the world's origin, if both links are on it.

    Their relative motion does not depend on the place of the base, and far from the origin digits would be lost.
    Results in the frame "world" do depend on it, and keep `at`.
    """
    bodies = [int(model.link_body[each]) for each in links]
    root, *others = {int(model.tree.path(body)[0]) if body >= 0 else -1 for body in bodies}
    if frame == "world" or others or root < 0 or KINDS[model.joint_kind[root]].name != "floating":
        return at
    start = int(model.q_source[model.q_start[root]])
    q = list(known["q"])
    q[start : start + 3] = (0.0, 0.0, 0.0)
    return partial(at, q=q)


@cache
def of_places(
    name: str,
    algorithm: Algorithm,
    shapes: tuple[tuple[int | str, ...], ...],
    links: tuple[int, ...],
    several: bool,
    to: int | None,
    points: bool,
    frame: Frame,
    classical: bool,
) -> ScalarTask:
    """A query about links as one task.

    Args:
        name: of the query.
        algorithm: answers the query about one link.
        shapes: axes of its results about one link.
        links: indices of the links; `several`: True if results have an axis for them.
        to: the link that their motion is relative to, or None.
        points: True for points on the links, an input "point" (n, 3), or (3,) unless `several`.
        frame, classical: arguments of the call.
    """
    inputs = _TEXTS[name][1] if to is not None else algorithm.inputs
    sizes = {each: Sized(("nq",) if each == "q" else ("nv",)) for each in inputs}
    if points:
        sizes["point"] = Sized((len(links), 3) if several else (3,))
    outputs = {
        output: Sized((len(links), *axes) if several else axes)
        for output, axes in zip(algorithm.outputs, shapes, strict=True)
    }

    def text(model: Model, known: Mapping[str, Scalars], at: OfLink) -> Mapping[str, Scalars]:
        collected: dict[str, list[Any]] = {output: [] for output in outputs}
        for k, link in enumerate(links):
            point = known["point"][3 * k : 3 * k + 3] if points else None
            if to is None:
                of_link: Mapping[str, Scalars] = at(algorithm, link, point)
            else:
                pair = _Relative(_at_origin(model, known, at, (link, to), frame), link, to, point)
                scalars = _TEXTS[name][0](model, pair, frame, classical, between(model, link, to))
                of_link = {next(iter(outputs)): scalars}
            for output in outputs:
                collected[output] += of_link[output]
        return collected

    which = f"of_{'_'.join(map(str, links))}" + ("" if several else "_alone") + ("" if to is None else f"_to_{to}")
    what = f"{algorithm.name}_{which}" + ("_at_points" if points else "") + ("_classical" if classical else "")
    return ScalarTask(f"{what}_{frame}", sizes, outputs, text)


class OnArrays:
    """Runs parts of a task on arrays (B, ...); scalars are arrays (B,).

    Args:
        run: runs an algorithm, as engines do.
        inputs: inputs of the whole task.
        new: creates an array (B, *shape).
        shapes: shapes of an algorithm's outputs, by name.
    """

    def __init__(
        self,
        run: Callable[..., None],
        inputs: Mapping[str, Any],
        new: Callable[[tuple[int, ...]], Any],
        shapes: Callable[[Algorithm], Mapping[str, tuple[int, ...]]],
    ) -> None:
        self._run, self._inputs, self._new, self._shapes = run, inputs, new, shapes
        self._known: dict[tuple[Algorithm, int | None], Mapping[str, Scalars]] = {}

    def __call__(
        self, algorithm: Algorithm, link: int | None = None, point: Scalars | None = None, **others: Scalars
    ) -> Mapping[str, Scalars]:
        """The algorithm's outputs; computed once per link where `point` and `others` are missing."""
        if point is not None:
            return self._asked(with_given(algorithm, "point"), link, {**others, "point": point})
        if others:
            return self._asked(algorithm, link, others)
        key = algorithm, link
        if key not in self._known:
            self._known[key] = self._asked(algorithm, link, {})
        return self._known[key]

    def _asked(self, algorithm: Algorithm, link: int | None, others: Mapping[str, Scalars]) -> Mapping[str, Scalars]:
        inputs = dict(self._inputs)
        for name, scalars in others.items():
            inputs[name] = array = self._new((len(scalars),))
            for k, scalar in enumerate(scalars):
                array[:, k] = scalar
            if name in PER_BODY:
                inputs[name] = array.reshape(array.shape[0], len(scalars) // PER_BODY[name], PER_BODY[name])
        wanted = (*algorithm.inputs, "V0", "dV0")
        outputs = {name: self._new(shape) for name, shape in self._shapes(algorithm).items()}
        self._run(algorithm, {name: inputs[name] for name in wanted if name in inputs}, outputs, link=link)
        return {name: scalars_of(array) for name, array in outputs.items()}


def scalars_of(array: Any) -> list[Any]:
    """Arrays (B,), one for each entry of a state of an array (B, ...)."""
    flat = array.reshape(array.shape[0], int(np.prod(array.shape[1:])))
    return [flat[:, k] for k in range(flat.shape[1])]
