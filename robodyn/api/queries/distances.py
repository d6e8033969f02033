"""Queries about distances between the shapes of a robot, and to obstacles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.distances.tasks import (
    BLOCKS,
    OBSTACLES,
    Asked,
    Measured,
    distance_task,
    loops_task,
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

_MOST_SAMPLES = 1 << 20
"""Most configurations of an edge."""


class DistanceQueries(Core):
    """Queries about `model.pairs` of `model.shapes`, and about these shapes and obstacles (`robodyn.Obstacles`).

    Distances are signed, in m: negative where shapes overlap, then the length of the shortest translation that
    separates them. Those of `model.pairs` come first, then those of every shape to every obstacle, shape by shape:
    spheres, capsules, boxes. Shapes of links that the obstacles ignore are left out there.

    Raises, in all of them:
        ArgumentError: the model has no shapes, or there is nothing to measure.
        UnavailableError: too many pairs for one program, on a GPU.
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

        Where several distances are least it is that of one of them; see `distances_gradient`.
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
        if obstacles is None and (getattr(q, "ndim", 1) < 2 or not self._skips_pairs()):
            return self.min_distance(q) > least  # one state, which a built-in function answers, or few pairs
        given = {"q": q, "obstacles": obstacles}
        return self._about_shapes("min_distance", given, least)

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

        It is sampled, and no proof: between two samples no joint moves by more than `step` (rad or m; attitudes by
        component).

        Raises:
            ArgumentError: a step that is not above 0, or so small that an edge has a million samples; obstacles whose
                leading axes do not broadcast with those of the edges.
        """
        width = finite_number("step", step)
        if not width > 0.0:
            raise ArgumentError(f"step: got {width:g}; wanted a number above 0, rad or m")
        model = self.model
        ends = [real_array(name, q, (model.nq,), np.float64) for name, q in (("q0", q0), ("q1", q1))]
        leading = broadcast_leading({"q0": (ends[0], 1), "q1": (ends[1], 1)})
        around = () if obstacles is None else _obstacles(obstacles).leading
        try:
            leading = np.broadcast_shapes(leading, around)
        except ValueError:
            raise ArgumentError(
                f"obstacles: got leading axes {around}, which do not broadcast with those of the edges, {leading}"
            ) from None
        first, last = (np.broadcast_to(end, (*leading, model.nq)).reshape(-1, model.nq) for end in ends)
        moved = model.difference(first, last)[:, model.v_source] * model.v_multiplier  # mimicking joints, too
        farthest = np.abs(moved).max(axis=-1, initial=0.0)
        with np.errstate(invalid="ignore"):
            pieces = np.where(np.isfinite(farthest), np.maximum(np.ceil(farthest / width), 1.0), 1.0)
        if pieces.max(initial=0.0) > _MOST_SAMPLES:
            raise ArgumentError(f"step: got {width:g} for an edge of length {farthest.max():g}; wanted a larger step")
        counts = pieces.astype(np.intp) + 1
        edge = np.repeat(np.arange(len(counts)), counts)
        t = (np.arange(len(edge)) - np.repeat(np.cumsum(counts) - counts, counts)) / pieces[edge]
        along = obstacles.repeated(leading, edge) if obstacles is not None and around else obstacles
        free = self.is_free(model.interpolate(first[edge], last[edge], t), along, clearance)
        hits = np.bincount(edge, weights=~free, minlength=len(counts))
        return (hits == 0.0).reshape(leading)[()]

    # How they are answered.

    def _about_shapes(self, name: str, given: dict[str, Any], clearance: float | None = None) -> Any:
        """Answer a query by the kernel of the model's own pairs, or with obstacles or some pairs only.

        `clearance`: then the result is whether the least distance is above it.
        """
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
                return answer if clearance is None else answer > clearance
        if clearance is None and obstacles is None and pairs is None and model.n_pairs and self._is_one_program(name):
            return self._ask(name, given)
        chosen = model.pairs if pairs is None else _chosen(pairs, model.n_pairs, model.pairs)
        leading = () if obstacles is None else obstacles.leading
        call = Call(self, {"q": given["q"]}, (), given.get("out"), more=[leading])
        if leading and np.broadcast_shapes(call.leading, leading) != call.leading:
            raise ArgumentError(f"obstacles: got leading axes {leading}, which do not broadcast with q's")
        if call.library.on_device:
            if clearance is not None and obstacles is None:
                return self.min_distance(given["q"]) > clearance
            raise UnavailableError("obstacles, pairs: got q on a GPU; wanted NumPy arrays, for which they are answered")
        rows = {} if obstacles is None else obstacles.rows()
        near = () if obstacles is None or not rows else obstacles.near(model)
        rows = rows if near else {}
        columns = len(chosen) + len(near) * sum(array.shape[-2] for array in rows.values())
        if name.startswith("min") and not columns:
            raise ArgumentError(f"{name}: {model.name!r} has no pairs of shapes, and there are no obstacles")
        axes = {"distances": (columns,), "distances_gradient": (columns, model.nv), "min_distance": ()}
        axes |= {"witness_points": (columns, 2, 3), "min_distance_gradient": (model.nv,)}
        result = call.result(0, *axes[name])
        if result.size:
            measured = Measured(name, tuple(chosen), near, tuple(rows), clearance is not None)
            answer = self._by_loops if call.engine.native and model.n_bodies else self._by_parts
            answer(measured, call, rows, clearance, result)
        return call.finish({"d": result if clearance is None else result > clearance})

    def _skips_pairs(self) -> bool:
        """True if the least distance is found by loops that skip pairs."""
        if not (self.engine.native and self.model.n_bodies and self.model.n_pairs and self.model.collision_geometries):
            return False
        task = distance_task("min_distance", self.model)
        return self.engine.has_program(task) and self.engine.generated(task).mode != "unrolled"

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

    def _is_one_program(self, name: str) -> bool:
        """True if the engine answers a query about all pairs as it is, True too if it shall raise the error."""
        task = distance_task(name, self.model)
        return not self.engine.native or not self.model.n_bodies or self.engine.has_program(task)

    def _by_loops(
        self, measured: Measured, call: Call, rows: dict[str, Array], clearance: float | None, result: Array
    ) -> None:
        """Let loops over pairs fill the result."""
        inputs = {"q": call.inputs["q"]}
        if clearance is not None:
            inputs["clearance"] = np.broadcast_to(np.array(clearance, self.dtype), (call.batch,))
        if rows:
            counts = np.array([array.shape[-2] for array in rows.values()], np.int64)
            inputs["counts"] = np.broadcast_to(counts, (call.batch, len(rows)))
        inputs |= {kind: _of_batch(array, kind, call) for kind, array in rows.items()}
        task = loops_task(self.model, measured)
        call.engine.compose(task, inputs, {next(iter(task.outputs)): result})

    def _by_parts(
        self, measured: Measured, call: Call, rows: dict[str, Array], clearance: float | None, result: Array
    ) -> None:
        """Fill the result from queries about the model's own pairs, and about blocks of obstacles."""
        name, near, n = measured.name, measured.near, len(measured.pairs)
        own: list[tuple[Asked, dict[str, Array]]] = [(Asked(measured.pairs), {})] if n else []
        parts = _obstacle_parts(self.model.collision_geometries, near, rows, call)
        if measured.is_least:
            self._least_of_parts(name, call, [*own, *((asked, given) for asked, given, *_ in parts)], result)
            return
        tail = result.shape[2:]
        for asked, given in own:
            self._fill(name, call, asked, given, result[:, :n])
        if not near:
            return
        to_obstacles = result[:, n:].reshape(call.batch, len(near), -1, *tail)
        for asked, given, first, start, count in parts:
            part = np.empty((call.batch, asked.size, *tail), self.dtype)
            self._fill(name, call, asked, given, part)
            blocks = part.reshape(call.batch, len(asked.near), asked.count, *tail)
            to_obstacles[:, first : first + len(asked.near), start : start + count] = blocks[:, :, :count]

    def _least_of_parts(
        self, name: str, call: Call, parts: list[tuple[Asked, dict[str, Array]]], result: Array
    ) -> None:
        """The least distance over several queries, or its gradient."""
        with_gradient = name == "min_distance_gradient"
        least, gradient = np.full(call.batch, np.inf, self.dtype), np.zeros((call.batch, self.model.nv), self.dtype)
        for asked, given in parts:
            d, row = np.empty(call.batch, self.dtype), np.empty((call.batch, self.model.nv), self.dtype)
            if with_gradient:
                self._fill("min_distance_with_gradient", call, asked, given, d, row)
                with np.errstate(invalid="ignore"):
                    nearer = ~(least <= d)
                gradient[nearer] = row[nearer]
            else:
                self._fill(name, call, asked, given, d)
            least = np.minimum(least, d)
        gradient[np.isnan(least)] = np.nan
        result[...] = gradient if with_gradient else least

    def _fill(self, name: str, call: Call, asked: Asked, given: dict[str, Array], *results: Array) -> None:
        task = task_of(name, self.model, asked)
        call.engine.compose(task, {"q": call.inputs["q"], **given}, dict(zip(task.outputs, results, strict=True)))


def _obstacle_parts(
    geometries: tuple[Any, ...], near: tuple[int, ...], rows: dict[str, Array], call: Call
) -> Iterator[tuple[Asked, dict[str, Array], int, int, int]]:
    """Shapes and obstacles in parts that are programs: what is asked, its inputs, the first shape, the first obstacle,
    and the number of obstacles; a program may repeat the last one."""
    start = 0
    for kind, array in rows.items():
        k, block = array.shape[-2], BLOCKS[kind]
        every = _of_batch(array, kind, call)
        padded = every.take(np.minimum(np.arange(-(-k // block) * block), k - 1), axis=-2)
        for first, asked in obstacle_groups(geometries, near, kind):
            for at in range(0, k, block):
                given = np.ascontiguousarray(padded[..., at : at + block, :])
                yield asked, {kind: given}, first, start + at, min(block, k - at)
        start += k


def _of_batch(array: Array, kind: str, call: Call) -> Array:
    """Obstacles (B, k, n) of a call's configurations; without copies if they are the same for all."""
    k, size = array.shape[-2], OBSTACLES[kind]
    own = array.astype(call.dyn.dtype)
    if own.ndim > 2:
        return np.broadcast_to(own, (*call.leading, k, size)).reshape(call.batch, k, size)
    return np.broadcast_to(own, (call.batch, k, size))


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
