"""Queries about distances between the shapes of a robot, and to obstacles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from robodyn.algorithms.distances.tasks import (
    Asked,
    Measured,
    distance_task,
    loops_task,
    obstacle_blocks,
    result_shape,
    task_of,
)
from robodyn.api.queries.call import Call
from robodyn.api.queries.core import Core
from robodyn.api.queries.fast_path import query
from robodyn.api.queries.obstacles import Obstacles, require_fitting
from robodyn.compile.tracing.unrolled import output_shape
from robodyn.core.model import Model
from robodyn.core.shapes import Pairs
from robodyn.engines.protocol import Engine
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, broadcast_leading, finite_number, integer, real_array
from robodyn.internals.array_library import Library
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief

if TYPE_CHECKING:
    from robodyn.engines.cpu.native.entry import Entry

_KEPT, _MOST_ENTRIES = "_entries_around", 64
"""Where a `Dynamics` keeps built-in functions about obstacles, one for each query and numbers, and how many."""
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
        if obstacles is not None and not obstacles.on_device and pairs is None and given.get("out") is None:
            answer = self._built_in(name, given["q"], obstacles, clearance)
            if answer is not None:
                return answer
        if clearance is None and obstacles is None and pairs is None and model.n_pairs and self._is_one_program(name):
            return self._ask(name, given)
        chosen = model.pairs if pairs is None else _chosen(pairs, model.n_pairs, model.pairs)
        leading = () if obstacles is None else obstacles.leading
        call = Call(self, {"q": given["q"]}, (), given.get("out"), more=[leading])
        require_fitting(obstacles, call.leading, "q")
        if call.library.on_device and clearance is not None and obstacles is None:
            return self.min_distance(given["q"]) > clearance
        measured, columns = self._measured(name, chosen, obstacles, clearance)
        rows = {} if obstacles is None or not measured.kinds else obstacles.rows_in(call.library, self.dtype)
        if name.startswith("min") and not columns:
            raise ArgumentError(f"{name}: {model.name!r} has no pairs of shapes, and there are no obstacles")
        result = call.result(0, *result_shape(model, name, columns))
        if result.size:
            of_batch = {kind: _of_batch(array, call) for kind, array in rows.items()}
            if call.engine.native and model.n_bodies:
                self._by_loops(measured, call, of_batch, clearance, result)
            else:
                self._by_parts(measured, call, of_batch, result)
        return call.finish({"d": result if clearance is None else result > clearance})

    def _measured(
        self, name: str, pairs: Pairs, obstacles: Obstacles | None, clearance: float | None
    ) -> tuple[Measured, int]:
        """What is asked, and the number of distances."""
        near = () if obstacles is None or not obstacles.count else obstacles.near(self.model)
        kinds = obstacles.kinds if obstacles is not None and near else ()
        columns = len(pairs) + (len(near) * obstacles.count if obstacles is not None else 0)
        return Measured(name, tuple(pairs), near, kinds, clearance is not None), columns

    def _built_in(self, name: str, q: Any, obstacles: Obstacles, clearance: float | None) -> Any:
        """The answer of a built-in function for obstacles in these numbers; None if there is none, or if it leaves the
        call to the method."""
        kept: dict[Any, tuple[Engine, Entry | None]] = vars(self).setdefault(_KEPT, {})
        key = name, obstacles.numbers, clearance is None, self.check
        if not all(type(each) in (str, int) for each in obstacles.ignore):
            return None
        engine, entry = kept.get(key, (None, None))
        if engine is not self.engine:
            engine, entry = kept[key] = self.engine, self._entry_around(name, obstacles, clearance)
            for oldest in list(kept)[:-_MOST_ENTRIES]:  # a copy: other threads add to it
                kept.pop(oldest, None)
        if entry is None:
            return None
        if type(q) is not np.ndarray or q.dtype is not self.dtype:
            if not strict_types.is_a(q, np.ndarray, list, tuple):
                return None
            q = real_array("q", q, (self.model.nq,), self.dtype)
        limits = () if clearance is None else (clearance,)
        answer = entry.strict(q, *limits, *obstacles.rows(self.dtype).values())
        if answer is entry.missed:
            return None
        return answer if clearance is None else answer > clearance

    def _entry_around(self, name: str, obstacles: Obstacles, clearance: float | None) -> Entry | None:
        measured, columns = self._measured(name, self.model.pairs, obstacles, clearance)
        if not measured.kinds or not self.model.n_bodies:
            return None
        counts = {kind: array.shape[-2] for kind, array in obstacles.rows(self.dtype).items()}
        try:
            task = loops_task(self.model, measured)
            return self.engine.around(task, counts, result_shape(self.model, name, columns), self.check)
        except UnavailableError:  # the method reports it
            return None

    def _skips_pairs(self) -> bool:
        """True if the least distance is found by loops that skip pairs."""
        if not (self.engine.native and self.model.n_bodies and self.model.n_pairs and self.model.collision_geometries):
            return False
        task = distance_task("min_distance", self.model)
        return self.engine.has_program(task) and self.engine.generated(task).mode != "unrolled"

    def _is_one_program(self, name: str) -> bool:
        """True if the engine answers a query about all pairs as it is, True too if it shall raise the error."""
        task = distance_task(name, self.model)
        return not self.engine.native or not self.model.n_bodies or self.engine.has_program(task)

    def _by_loops(
        self, measured: Measured, call: Call, rows: dict[str, Array], clearance: float | None, result: Array
    ) -> None:
        """Let loops over pairs fill the result."""
        inputs = {"q": call.inputs["q"], **rows}
        if clearance is not None:
            inputs["clearance"] = np.broadcast_to(np.array(clearance, self.dtype), (call.batch,))
        if rows:
            counts = np.array([array.shape[-2] for array in rows.values()], np.int64)
            inputs["counts"] = np.broadcast_to(counts, (call.batch, len(rows)))
        task = loops_task(self.model, measured)
        call.engine.compose(task, inputs, {next(iter(task.outputs)): result})

    def _by_parts(self, measured: Measured, call: Call, rows: dict[str, Array], result: Array) -> None:
        """Fill the result from queries about the model's own pairs, and about blocks of obstacles."""
        name = "min_distance_with_gradient" if measured.name == "min_distance_gradient" else measured.name
        xp = call.library.xp
        least = xp.full(call.batch, np.inf, self.dtype)
        for asked, given, columns in _parts(self.model, measured, rows, call.library):
            task = task_of(name, self.model, asked)
            shapes = {key: output_shape(self.model, each) for key, each in task.outputs.items()}
            found = {key: call.new(*shape) for key, shape in shapes.items()}
            call.engine.compose(task, {"q": call.inputs["q"], **given}, found)
            d, own = next(iter(found.values())), [*found.values()][-1]
            if not measured.is_least:
                result[:, columns] = d
                continue
            with np.errstate(invalid="ignore"):
                nearer = ~(least <= d)
            result[...] = xp.where(_wide(nearer, result), own, result)
            least = np.minimum(least, d)
        if measured.is_least:
            result[...] = xp.where(_wide(least == least, result), result, np.nan)


def _wide(rows: Array, like: Array) -> Array:
    """An array (B,) with further axes of length 1, as many as `like` has."""
    return rows.reshape(len(rows), *(1,) * (like.ndim - 1))


def _parts(
    model: Model, measured: Measured, rows: Mapping[str, Array], library: Library
) -> Iterator[tuple[Asked, dict[str, Array], Array]]:
    """A query in parts that are programs: what is asked, its obstacles, and the columns of its results. A program may
    repeat the last obstacle."""
    n, counts = len(measured.pairs), {kind: array.shape[-2] for kind, array in rows.items()}
    starts = dict(zip(counts, accumulate(counts.values(), initial=n), strict=False))
    if n:
        yield Asked(measured.pairs), {}, library.constant(np.arange(n))
    for kind, asked, shapes, blocks in obstacle_blocks(model, measured.near, counts):
        for numbers in blocks:
            columns = starts[kind] + sum(counts.values()) * shapes[:, None] + numbers
            block = library.xp.take(rows[kind], library.constant(numbers), axis=1)
            yield asked, {kind: block}, library.constant(columns.ravel())


def _of_batch(array: Array, call: Call) -> Array:
    """Obstacles (B, k, n) of a call's configurations; without copies if they are the same for all."""
    own, broadcast_to = array.shape[-2:], call.library.xp.broadcast_to
    if array.ndim > 2:
        return cast(Array, broadcast_to(array, (*call.leading, *own)).reshape(call.batch, *own))
    return cast(Array, broadcast_to(array, (call.batch, *own)))


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
