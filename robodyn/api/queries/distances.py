"""Queries about distances between the shapes of a robot, and to obstacles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.distances.tasks import (
    BLOCKS,
    OBSTACLES,
    PART,
    Asked,
    cost,
    distance_task,
    obstacle_groups,
    task_of,
)
from robodyn.api.queries.call import Call
from robodyn.api.queries.core import Core
from robodyn.api.queries.fast_path import query
from robodyn.api.queries.obstacle_calls import prepared
from robodyn.api.queries.obstacles import Obstacles
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, broadcast_leading, finite_number, integer, real_array
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief

_PART, _MOST = PART, 1_000_000
"""Rough operations of a program where all pairs are too many for one, and of all programs together."""
_KEPT = "_distance_parts"
"""Where a model keeps the parts of its pairs."""
_MOST_SAMPLES = 1 << 20
"""Most configurations of an edge."""


class DistanceQueries(Core):
    """Queries about `model.pairs` of `model.shapes`, and about these shapes and obstacles (`robodyn.Obstacles`).

    Distances are signed, in m: negative where shapes overlap, then the length of the shortest translation that
    separates them. Those of `model.pairs` come first, then those of every shape to every obstacle, shape by shape:
    spheres, capsules, boxes. Shapes of links that the obstacles ignore are left out there.

    Raises, in all of them:
        ArgumentError: the model has no shapes, or there is nothing to measure.
        UnavailableError: far too many pairs to compile.
    """

    @query
    def distances(self, q: ArrayLike, obstacles: Obstacles | None = None, *, out: Array | None = None) -> Array:
        """Distances (..., n_pairs + n_shapes * n_obstacles), m.

        Exact, except that cylinders count as the capsules around them, other than to planes.
        """
        return cast(Array, self._about_shapes("distances", locals()))

    @query
    def min_distance(self, q: ArrayLike, obstacles: Obstacles | None = None, *, out: Array | None = None) -> Array:
        """The least of `distances` (...,), m. NaN where any coordinate, or an obstacle, is NaN."""
        return cast(Array, self._about_shapes("min_distance", locals()))

    @query
    def min_distance_gradient(
        self, q: ArrayLike, obstacles: Obstacles | None = None, *, out: Array | None = None
    ) -> Array:
        """Derivative (..., nv) of `min_distance` by q on the tangent space, m per rad or m.

        Where several distances are least it is that of the first; see `distances_gradient`.
        """
        return cast(Array, self._about_shapes("min_distance_gradient", locals()))

    @query
    def distances_gradient(
        self,
        q: ArrayLike,
        obstacles: Obstacles | None = None,
        pairs: Sequence[int] | None = None,
        *,
        out: Array | None = None,
    ) -> Array:
        """Derivatives (..., n, nv) of `distances` by q on the tangent space, m per rad or m.

        The rate of a distance is n . (v1 - v2), with the velocities of both witness points and the normal between
        them. Where it is not unique, as at coincident centres, one is chosen.

        Args:
            pairs: indices in `model.pairs`, in the order of the results; None: all.
        """
        return cast(Array, self._about_shapes("distances_gradient", locals()))

    @query
    def witness_points(self, q: ArrayLike, *, out: Array | None = None) -> Array:
        """The nearest points (..., n_pairs, 2, 3) of the shapes of each pair in world coordinates, m.

        The first is on the first shape. Where shapes overlap, moving one by the vector between the points separates
        them.
        """
        return cast(Array, self._about_shapes("witness_points", locals()))

    def is_free(self, q: ArrayLike, obstacles: Obstacles | None = None, clearance: float = 0.0) -> Any:
        """True (...,) where `min_distance` is above the clearance (m); False where it is NaN."""
        least = finite_number("clearance", clearance)
        distance = self.min_distance(q) if obstacles is None else self.min_distance(q, obstacles)
        return distance > least

    def edge_is_free(
        self,
        q0: ArrayLike,
        q1: ArrayLike,
        obstacles: Obstacles | None = None,
        clearance: float = 0.0,
        *,
        step: float = 0.05,
    ) -> Any:
        """True (...,) where `is_free` holds along `model.interpolate(q0, q1, t)`, ends included.

        It is sampled, and no proof: between two samples no joint moves by more than `step` (rad or m).

        Raises:
            ArgumentError: a step that is not above 0, or so small that an edge has a million samples.
        """
        width = finite_number("step", step)
        if not width > 0.0:
            raise ArgumentError(f"step: got {width:g}; wanted a number above 0, rad or m")
        model = self.model
        ends = [real_array(name, q, (model.nq,), np.float64) for name, q in (("q0", q0), ("q1", q1))]
        leading = broadcast_leading({"q0": (ends[0], 1), "q1": (ends[1], 1)})
        first, last = (np.broadcast_to(end, (*leading, model.nq)).reshape(-1, model.nq) for end in ends)
        farthest = np.abs(model.difference(first, last)).max(axis=-1, initial=0.0)
        with np.errstate(invalid="ignore"):
            pieces = np.where(np.isfinite(farthest), np.maximum(np.ceil(farthest / width), 1.0), 1.0)
        if pieces.max(initial=0.0) > _MOST_SAMPLES:
            raise ArgumentError(f"step: got {width:g} for an edge of length {farthest.max():g}; wanted a larger step")
        counts = pieces.astype(np.intp) + 1
        edge = np.repeat(np.arange(len(counts)), counts)
        t = (np.arange(len(edge)) - np.repeat(np.cumsum(counts) - counts, counts)) / pieces[edge]
        along = obstacles
        if obstacles is not None and _obstacles(obstacles).leading:
            along = obstacles.repeated(leading, edge)
        free = self.is_free(model.interpolate(first[edge], last[edge], t), along, clearance)
        hits = np.bincount(edge, weights=~free, minlength=len(counts))
        return (hits == 0.0).reshape(leading)[()]

    # How they are answered.

    def _about_shapes(self, name: str, given: dict[str, Any]) -> Any:
        """Answer a query by one program, or, with obstacles or too many pairs, by several."""
        model, pairs = self.model, given.get("pairs")
        if not model.collision_geometries:
            raise ArgumentError(
                f"model {model.name!r} has no shapes; wanted one with them: Model.with_shapes, or "
                "load_urdf(meshes='box' or 'spheres') where its collisions are meshes"
            )
        obstacles = None if given.get("obstacles") is None else _obstacles(given["obstacles"])
        if obstacles is not None and pairs is None and given.get("out") is None:
            answer = self._of_one_state(name, given["q"], obstacles)
            if answer is not None:
                return answer
        if obstacles is None and pairs is None and model.n_pairs and self._is_one_program(distance_task(name, model)):
            return self._ask(name, given)
        chosen = model.pairs if pairs is None else _chosen(pairs, model.n_pairs, model.pairs)
        leading = () if obstacles is None else obstacles.leading
        call = Call(self, {"q": given["q"]}, (), given.get("out"), more=[leading])
        if leading and np.broadcast_shapes(call.leading, leading) != call.leading:
            raise ArgumentError(f"obstacles: got leading axes {leading}, which do not broadcast with q's")
        if call.library.on_device:
            raise UnavailableError("obstacles, pairs: got q on a GPU; wanted NumPy arrays, for which they are answered")
        return call.finish(self._in_parts(name, call, chosen, obstacles))

    def _of_one_state(self, name: str, q: Any, obstacles: Obstacles) -> Any:
        """The answer for one state, (nq,) or a batch of one, by a prepared call; None if there is none."""
        if type(q) is not np.ndarray or q.dtype is not self.dtype:
            if not strict_types.is_a(q, np.ndarray, list, tuple):
                return None
            q = real_array("q", q, (self.model.nq,), self.dtype)
        if q.shape == (self.model.nq,):
            return prepared(self, name, q, obstacles, self.check is not False)
        if q.size != self.model.nq or not q.size or q.shape[-1] != q.size:
            return None
        answer = prepared(self, name, q.reshape(-1), obstacles, bool(self.check))
        return None if answer is None else np.reshape(answer, (*q.shape[:-1], *np.shape(answer)))

    def _is_one_program(self, task: Any) -> bool:
        """True if the engine answers the task as it is, True too if it shall raise the error."""
        return not self.engine.native or not self.model.n_bodies or self.engine.has_program(task)

    def _in_parts(
        self, name: str, call: Call, pairs: Sequence[tuple[int, int]], obstacles: Obstacles | None
    ) -> dict[str, Array]:
        """The results of a query, from those of several programs."""
        model, nv = self.model, self.model.nv
        rows = {} if obstacles is None else obstacles.rows()
        near = () if obstacles is None else obstacles.near(model)
        n_obstacles = sum(array.shape[-2] for array in rows.values())
        n, columns = len(pairs), len(pairs) + len(near) * n_obstacles
        if name.startswith("min") and not columns:
            raise ArgumentError(f"{name}: {model.name!r} has no pairs of shapes, and there are no obstacles")
        axes = {"distances": (), "distances_gradient": (nv,), "witness_points": (2, 3)}.get(name)
        own = self._own_parts(pairs)
        if axes is None:
            return self._least(name, call, own, near, rows)
        result = call.result(0, columns, *axes)
        for asked, start in own:
            self._fill(name, call, asked, {}, result[:, start : start + asked.size])
        to_obstacles = result[:, n:].reshape(call.batch, len(near), n_obstacles, *axes)
        for asked, given, first, start, count in _obstacle_parts(model.collision_geometries, near, rows, call):
            part = np.empty((call.batch, asked.size, *axes), self.dtype)
            self._fill(name, call, asked, given, part)
            blocks = part.reshape(call.batch, len(asked.near), asked.count, *axes)
            to_obstacles[:, first : first + len(asked.near), start : start + count] = blocks[:, :, :count]
        return {"d": result}

    def _own_parts(self, pairs: Sequence[tuple[int, int]]) -> list[tuple[Asked, int]]:
        """Parts of pairs, those of all pairs of the model found once."""
        model = self.model
        if pairs is not model.pairs:
            return list(_own_parts(model.collision_geometries, pairs))
        kept = vars(model)
        if _KEPT not in kept:
            kept[_KEPT] = list(_own_parts(model.collision_geometries, pairs))
        return cast(list[tuple[Asked, int]], kept[_KEPT])

    def _least(
        self, name: str, call: Call, own: list[tuple[Asked, int]], near: tuple[int, ...], rows: dict[str, Array]
    ) -> dict[str, Array]:
        """The least distance over several programs, or its gradient."""
        geometries, nv = self.model.collision_geometries, self.model.nv
        with_gradient = name == "min_distance_gradient"
        parts: list[tuple[Asked, dict[str, Array]]] = [(asked, {}) for asked, _ in own]
        parts += [(asked, given) for asked, given, *_ in _obstacle_parts(geometries, near, rows, call)]
        least, gradient = np.full(call.batch, np.inf, self.dtype), np.zeros((call.batch, nv), self.dtype)
        for asked, given in parts:
            d, row = np.empty(call.batch, self.dtype), np.empty((call.batch, nv), self.dtype)
            if with_gradient:
                self._fill("min_distance_with_gradient", call, asked, given, d, row)
                with np.errstate(invalid="ignore"):
                    nearer = ~(least <= d)
                gradient[nearer] = row[nearer]
            else:
                self._fill(name, call, asked, given, d)
            least = np.minimum(least, d)
        return {"dd_min_dq": gradient} if with_gradient else {"d_min": least}

    def _fill(self, name: str, call: Call, asked: Asked, given: dict[str, Array], *results: Array) -> None:
        task = task_of(name, self.model, asked)
        outputs = dict(zip(task.outputs, results, strict=True))
        if call.batch and asked.size:
            call.engine.compose(task, {"q": call.inputs["q"], **given}, outputs)


def _obstacles(given: Any) -> Obstacles:
    if not isinstance(given, Obstacles):
        raise ArgumentError(f"obstacles: got {brief(given)}; wanted robodyn.Obstacles or None")
    return given


def _chosen(given: Any, count: int, pairs: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The pairs with the indices that a user gives."""
    entries = strict_types.members(given) if strict_types.is_a(given, list, tuple) else (None,)
    numbers = [integer(each) for each in entries]
    if any(number is None or not 0 <= number < count for number in numbers):
        raise ArgumentError(f"pairs: got {brief(given)}; wanted a list of indices in model.pairs, 0 to {count - 1}")
    return tuple(pairs[number] for number in numbers if number is not None)


def _own_parts(geometries: tuple[Any, ...], pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[Asked, int]]:
    """Pairs in parts that are programs, and the number of the first one."""
    costs = [cost(geometries[i].kind, geometries[j].kind) for i, j in pairs]
    if sum(costs) > _MOST:
        raise UnavailableError(
            f"pairs: {len(pairs)} of them take about {sum(costs):,} operations, too many to compile; wanted at most "
            f"{_MOST:,}: fewer pairs, or spheres and capsules instead of boxes"
        )
    start, total = 0, 0
    for k, each in enumerate(costs):
        if total and total + each > _PART:
            yield Asked(tuple(pairs[start:k])), start
            start, total = k, 0
        total += each
    if pairs:
        yield Asked(tuple(pairs[start:])), start


def _obstacle_parts(
    geometries: tuple[Any, ...], near: tuple[int, ...], rows: dict[str, Array], call: Call
) -> Iterator[tuple[Asked, dict[str, Array], int, int, int]]:
    """Shapes and obstacles in parts that are programs: what is asked, its inputs, the first shape, the first obstacle,
    and the number of obstacles; a program may repeat the last one."""
    start = 0
    for kind, array in rows.items():
        k, block = array.shape[-2], BLOCKS[kind]
        flat = array.astype(call.dyn.dtype)
        if flat.ndim > 2:
            flat = np.broadcast_to(flat, (*call.leading, k, OBSTACLES[kind])).reshape(call.batch, k, OBSTACLES[kind])
        padded = flat.take(np.minimum(np.arange(-(-k // block) * block), k - 1), axis=-2)
        for first, asked in obstacle_groups(geometries, near, kind):
            for at in range(0, k, block):
                some = np.ascontiguousarray(padded[..., at : at + block, :])
                given = np.broadcast_to(some, (call.batch, block, OBSTACLES[kind]))
                yield asked, {kind: given}, first, start + at, min(block, k - at)
        start += k
