"""Inverse kinematics: configurations that reach target poses, for many targets and many seeds at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robodyn.api.dynamics import Dynamics
from robodyn.api.queries.obstacles import Obstacles
from robodyn.core.constraints.resolved import anchored_by_calls
from robodyn.core.model import Model
from robodyn.core.reach import reach
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, count, finite_number, flag, one_of, real_array, require_finite
from robodyn.internals.array_library import Library
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass
from robodyn.solve.inverse_kinematics.all_solutions import distinct
from robodyn.solve.inverse_kinematics.clearance import Clearance, read_clearance
from robodyn.solve.inverse_kinematics.levenberg import bounds, steps_task
from robodyn.solve.inverse_kinematics.one_target import OneTarget, residuals
from robodyn.solve.inverse_kinematics.residuals import MEASURES
from robodyn.solve.inverse_kinematics.search import Found, Search, Settings
from robodyn.solve.inverse_kinematics.seeds import further_starts, middle
from robodyn.solve.inverse_kinematics.tasks import AllTasks, PostureTask, Task, asked_for, task_list
from robodyn.solve.inverse_kinematics.velocity import VelocityQueries

ENGINES = ("auto", "reference", "cpu", "gpu")
TOLERANCES = {"float64": (1e-6, 1e-6), "float32": (1e-4, 1e-4)}
"""Default tolerances in m and rad, by dtype."""
_SLACK = {"float64": 1e-10, "float32": 1e-6}
"""Distance in m or rad from a joint limit below which the joint counts as at the limit, by dtype."""
_LEAST = {"float64": 1e-10, "float32": 2e-6}
"""Smallest damping lambda for rows of size one, by dtype."""
_ROUNDING = {"float64": 1e-5, "float32": 0.05}
"""Factor of the smallest lambda of degrees of freedom, relative to the square of the heaviest row. It keeps J'J +
lambda positive definite despite rounding."""
_FARTHEST = 1e15
"""Upper bound in m of a tolerance. Its square does not overflow in any precision."""
_STEPS, _LARGE, _SMALL = 4, 60_000, 6_000
"""Steps in one compiled program. Small problems get `_STEPS`; those over `_SMALL` get two, those over `_LARGE` one. The
size of a problem is estimated as the multiplications of one step's linear system."""
_CHUNK = 8192
"""Targets that are solved together. Their arrays stay in the cache."""
_MOST_SEEDS, _MOST_ITERATIONS = 100_000, 100_000
_MOST_TOLERANCES = 16
"""Tolerances whose settings are kept."""


@dataclass(frozen=True, eq=False)
class IKReport:
    """Result of each target, in arrays with the leading axes of the targets.

    `converged`: True if all tasks and constraints are within the tolerance, and links keep the clearance; `residual`
    (..., n, 2): error of each task with a target, m and rad; `constraint_residual` (..., 2): error of all constraints
    of the model together, m and rad; `iterations`: steps taken, summed over all seeds up to the successful one;
    `start`: index of the successful seed, 0 for q0. If none succeeds, `start` is the seed with the smallest cost. It is
    -1 where there is no result: the target or q0 is not finite, or there are fewer `solutions`.
    `clearance` (...,): the least distance between shapes, m; None if no clearance is asked for.
    """

    converged: Array
    residual: Array
    constraint_residual: Array
    iterations: Array
    start: Array
    clearance: Array | None = None

    def __repr__(self) -> str:
        total, done = int(np.size(self.converged)), int(self.converged.sum())
        if not total:
            return "<IKReport: no targets>"
        worst = np.nanmax(np.asarray(_host(self.residual)).reshape(-1, 2), axis=0, initial=0.0)
        mean, lost = float(self.iterations.sum()) / total, int((self.start < 0).sum())
        return (
            f"<IKReport: {done} of {total} converged, {mean:.1f} iterations in the mean, "
            f"at most {worst[0]:.2g} m and {worst[1]:.2g} rad off{f', {lost} NaN' if lost else ''}>"
        )


class InverseKinematics(VelocityQueries):
    """Finds configurations that fulfil tasks.

    Takes Levenberg-Marquardt steps from several seeds, within joint limits. The steps are compiled for the robot and
    its tasks. Thousands of targets run in parallel on the CPU engine or the GPU engine. Constraints of the model are
    satisfied as well.

    Args:
        model: the robot.
        tasks: a list of `PoseTask`, `PositionTask`, `DirectionTask`, `RelativePoseTask`, `CoMTask` and `PostureTask`,
            or one of them; a link's name or index is a pose task.
        posture: (nq,) a preferred configuration in the null space of the tasks, same as `PostureTask(posture)`.
        limits: True to respect position limits of joints with one degree of freedom and of joints that mimic them. A
            lower limit above the upper one is ignored. A limit of a mimicking joint is ignored if it leaves nothing of
            the range of the joint that it mimics.
        engine, dtype, threads: as in `Dynamics`. "scan" is not available.
        clearance: solutions keep all pairs of shapes farther apart than this, m; None: shapes are ignored, unless there
            are obstacles, then 0. See `Dynamics.min_distance`.
        obstacles: things in the world from which all shapes keep this distance as well, the same for all calls.

    Raises:
        ArgumentError: an entry that is no task, a link that the model lacks, no task with a target in a model without
            constraints, a constraint whose target pose in the world is an input of each call, or a clearance of a
            model without shapes.
        UnavailableError: a clearance on a GPU.
    """

    def __init__(
        self,
        model: Model,
        tasks: Sequence[Task | str | int] | Task | str | int,
        posture: ArrayLike | None = None,
        limits: bool = True,
        *,
        engine: Literal["auto", "reference", "cpu", "gpu"] = "auto",
        dtype: str = "float64",
        threads: int | None = None,
        clearance: float | None = None,
        obstacles: Obstacles | None = None,
    ) -> None:
        all_tasks = task_list(tasks)
        self._listed = len(all_tasks)
        if posture is not None:
            all_tasks = (*all_tasks, PostureTask(posture))
        chosen: Any = one_of("engine", engine, ENGINES)
        self._dyn = Dynamics(model, engine=chosen, dtype=dtype, threads=threads, check=False)
        self.model, self.tasks, self.limits = model, all_tasks, flag("limits", limits)
        self._asked = asked_for(model, all_tasks)
        if not self._asked.aims and not model.constraints:
            raise ArgumentError(f"tasks: got {brief(tasks)}; wanted at least one task with a target")
        if anchored_by_calls(model.constraints):
            raise ArgumentError(
                "constraints: one to the world has no place; wanted to_at=, or a PoseTask or PositionTask instead"
            )
        self._clearance, self._obstacles = read_clearance(self._dyn, clearance, obstacles)
        self._postures = [np.array(each.q) for each in all_tasks if isinstance(each, PostureTask)]
        self.dtype = self._dyn.dtype
        self._size, self._lightest = _sizes(model, self._asked)
        rows = 6 * len(self._asked.aims) + model.n_rows
        size = min(rows, model.nv) ** 2 * max(rows, model.nv)
        self._one_target: OneTarget | Literal[False] | None = None
        self._settings_by_tolerance: dict[Any, Settings] = {}
        self._plans = {}
        self._steps = _STEPS if size <= _SMALL else 2 if size <= _LARGE else 1

    def __repr__(self) -> str:
        names = ", ".join(type(each).__name__ for each in self.tasks)
        return f"<InverseKinematics of {self.model.name!r}: {names}>"

    def __getstate__(self) -> dict[str, Any]:
        """All but machine code, which stays in its process."""
        return {**self.__dict__, "_one_target": None, "_plans": {}}

    @property
    def n_targets(self) -> int:
        """Number of tasks with a target. A `PostureTask` has none."""
        return len(self._asked.aims)

    def solve(
        self,
        targets: ArrayLike,
        q0: ArrayLike | None = None,
        *,
        seeds: int = 64,
        rng: np.random.Generator | int | None = None,
        tolerance: tuple[float, float] | None = None,
        iterations: int = 16,
        obstacles: Obstacles | None = None,
        starts: ArrayLike | None = None,
        solutions: int | None = None,
    ) -> tuple[Array, IKReport]:
        """Solves for configurations (..., nq); returns them and a report.

        Args:
            targets: (..., n_tasks, 4, 4) poses in the order of tasks, in world coordinates. The target of a
                `RelativePoseTask` is in the frame of its other link. A `PostureTask` has no target, or one that is
                ignored. A single task may have the shape (4, 4). If no task looks at rotations, positions
                (..., n_tasks, 3) will do, m; (3,) for a single task.
            q0: (..., nq) initial configuration; None: the posture, or the middle of the limits.
            seeds: number of initial configurations, q0 included. The first one that converges is returned.
            rng: a generator or a seed for the other initial configurations; None: Halton's sequence. They are the same
                for all targets.
            tolerance: the largest errors of a task, m and rad; None: (1e-6, 1e-6), in float32 (1e-4, 1e-4).
            iterations: steps from each initial configuration; twice as many from the first, and from all if there are
                `solutions`.
            obstacles: those of this call, instead of the solver's own: one set, or one for each target.
            starts: (k, nq) or (..., k, nq) initial configurations after q0, the same for all targets or some for each,
                fewer than seeds. The others follow.
            solutions: number of different solutions of each target, from all seeds, those near q0 first: results have
                the shape (..., solutions, nq), and the report has this axis. Two are different if some joint differs
                by more than 0.1 rad or m. Where there are fewer, rows are NaN.

        With a clearance, a seed counts only if its solution keeps it. If none does, solutions of the first seeds are
        moved until they do.

        If no seed converges, the result is the configuration with the smallest weighted sum of squares. All results
        respect the limits. A row is NaN and has not converged if its target or q0 (or a square of either) is not
        finite, if a quaternion of q0 has zero length, or if a target differs by more than 1e-2 from a pose (a rotation
        matrix and a position above 0 0 0 1). Results do not depend on the other targets of the call.

        Raises:
            ArgumentError: wrong shapes, invalid numbers of seeds, iterations or solutions, an invalid tolerance, or
                obstacles whose leading axes do not broadcast to those of the targets.
            NumericalError: NaN or infinity in `starts`.
            UnavailableError: a clearance, starts or solutions with arrays on a GPU.
        """
        chosen = self._clearance, self._obstacles
        if obstacles is not None:
            chosen = read_clearance(self._dyn, self._clearance, obstacles)
        targets = self._poses(targets)
        if rng is None and starts is None and solutions is None and not (chosen[1] is not None and chosen[1].leading):
            answer = self._from_first(targets, q0, seeds, tolerance, iterations)
            if answer is not None:
                answer = self._if_apart(*answer, *chosen)
            if answer is not None:
                return answer
        engine, library = self._dyn._engine_for({"targets": targets, "q0": q0})
        if chosen[0] is not None and library.on_device:
            raise UnavailableError("clearance, obstacles: got arrays on a GPU; wanted NumPy arrays")
        goals, first, leading = self._read(library, targets, q0)
        settings = self._settings(tolerance)
        seeds = count("seeds", seeds, 1, _MOST_SEEDS)
        iterations = count("iterations", iterations, 1, _MOST_ITERATIONS)
        again = self._again(library, starts, leading, seeds, rng)
        least, things = chosen
        task, near, apart = steps_task(self._asked, self.limits, self._steps), None, None
        if least is not None:
            _require_fitting(things, leading)
            near = Clearance(self._dyn, least, things, leading)
            apart = steps_task(self._asked, self.limits, 1, apart=True)
        posture, blocks = self._postures[0] if self._postures else None, -(-iterations // self._steps)

        def search(other_starts: Array) -> Search:
            fixed = engine, library, self.model, task, self._steps, settings, self._size, posture
            return Search(*fixed, other_starts, blocks, apart)

        if solutions is not None:
            return self._all_solutions(library, solutions, search, goals, first, again, near, leading)
        of_all = search(again) if again.ndim == 2 else None
        results = [
            (of_all or search(again[rows])).run(goals[rows], first[rows], _of(near, np.arange(len(goals))[rows]))
            for rows in _chunks(len(goals), _CHUNK)
        ]
        return self._answer(library, results, leading, near)

    def _all_solutions(
        self,
        library: Library,
        solutions: Any,
        search: Callable[[Array], Search],
        goals: Array,
        first: Array,
        again: Array,
        near: Clearance | None,
        leading: tuple[int, ...],
    ) -> tuple[Array, IKReport]:
        """Several solutions of each target, from all starts."""
        wanted = count("solutions", solutions, 1, 1 + again.shape[-2])
        if library.on_device:
            raise UnavailableError("solutions: got arrays on a GPU; wanted NumPy arrays")
        every, nq = 1 + again.shape[-2], self.model.nq
        alone, results = search(np.empty((0, nq), self.dtype)), []
        others = again if again.ndim == 3 else np.broadcast_to(again, (len(goals), *again.shape))
        for rows in _chunks(len(goals), max(1, _CHUNK // every)):
            some = np.arange(len(goals))[rows]
            begin = np.concatenate((first[rows][:, None], others[rows]), 1).reshape(-1, nq)
            repeated = np.repeat(goals[rows], every, 0)
            found = alone.run(repeated, begin, _of(near, np.repeat(some, every)), nearest=False)
            results.append(distinct(self.model, found, first[rows], every, wanted))
        targets = np.repeat(np.arange(len(goals)), wanted)
        return self._answer(library, results, (*leading, wanted), _of(near, targets))

    def _again(self, library: Library, given: Any, leading: tuple[int, ...], seeds: int, rng: Any) -> Array:
        """Initial configurations after the first, (seeds - 1, nq), or (B, seeds - 1, nq) if each target has its own."""
        nq = self.model.nq
        if given is None:
            return further_starts(self.model, seeds - 1, rng).astype(self.dtype)
        own = real_array("starts", given, (nq,), self.dtype, what="model.nq numbers", read=library.array)
        if library.on_device:
            raise UnavailableError("starts: got arrays on a GPU; wanted NumPy arrays")
        if own.ndim < 2:
            raise ArgumentError(f"starts: got shape {own.shape}; wanted (..., k, {nq})")
        if own.shape[-2] >= seeds:
            raise ArgumentError(f"starts: got {own.shape[-2]} for seeds={seeds}; wanted fewer, as q0 is the first seed")
        require_finite("starts", own, 1)
        more = further_starts(self.model, seeds - 1 - own.shape[-2], rng).astype(self.dtype)
        if own.ndim == 2:
            return np.concatenate((own, more))
        try:
            some = np.broadcast_to(own, (*leading, *own.shape[-2:])).reshape(prod(leading), *own.shape[-2:])
        except ValueError:
            raise ArgumentError(
                f"starts: got shape {own.shape}; wanted leading axes that broadcast to those of the targets, {leading}"
            ) from None
        return np.concatenate((some, np.broadcast_to(more, (len(some), *more.shape))), 1)

    def _from_first(
        self, targets: Any, q0: Any, seeds: Any, tolerance: Any, iterations: Any
    ) -> tuple[Array, IKReport] | None:
        """The solution for one target that the first initial configuration leads to; None if another way is needed."""
        n, nq, dtype = self.n_targets, self.model.nq, self.dtype
        if not self._dyn.engine.native or not (type(seeds) is int and 1 <= seeds <= _MOST_SEEDS):
            return None
        if not (type(iterations) is int and 1 <= iterations <= _MOST_ITERATIONS):
            return None
        q = self._middle if q0 is None else q0
        for array in (targets, q):
            if type(array) is not np.ndarray or array.dtype is not dtype or not array.flags.c_contiguous:
                return None
        if (
            q.shape != (nq,)
            or self._listed != n
            or not (targets.shape == (n, 4, 4) or (n, targets.shape) == (1, (4, 4)))
        ):
            return None
        key = tolerance if type(tolerance) is tuple and all(type(each) is float for each in tolerance) else None
        if key is not tolerance:
            return None
        goals = targets.reshape(16 * n)
        settings = self._settings_of_blocks(key)
        if self._one_target is None:
            task = steps_task(self._asked, self.limits, self._steps)
            arrays = (q, goals, settings.released, *(each.astype(dtype) for each in self._postures[:1]))
            try:
                self._one_target = OneTarget(self._dyn.engine, task, self._steps, arrays)
            except UnavailableError:  # too large for a program
                self._one_target = False
        if self._one_target is False:
            return None
        answer = self._one_target.search(q, goals, settings, 2 * -(-iterations // self._steps))
        if answer is None:
            return None
        q, measures, taken = answer
        if self.limits:
            lower, upper = self._clipped
            q = np.minimum(np.maximum(q, lower), upper)
        errors, left = residuals(measures)
        return q, IKReport(
            np.array(True),
            np.array(errors, dtype).reshape(n, 2),
            np.array(left, dtype),
            np.array(taken, np.int64),
            np.array(0, np.int64),
        )

    def _if_apart(
        self, q: Array, report: IKReport, least: float | None, obstacles: Obstacles | None
    ) -> tuple[Array, IKReport] | None:
        """The solution for one target, or None if it does not keep the clearance."""
        if least is None:
            return q, report
        distance = self._dyn.min_distance(q, obstacles)
        return (q, replace(report, clearance=np.array(distance))) if distance > least else None

    def _poses(self, targets: Any) -> Any:
        """Targets with positions alone as poses; others as they are."""
        try:
            shape = np.shape(targets)
        except ValueError:
            return targets  # a ragged list, which is refused where it is read
        if not shape or shape[-1] != 3 or any(aim.turn for aim in self._asked.aims):
            return targets
        library = self._dyn._engine_for({"targets": targets})[1]
        places = real_array("targets", targets, (3,), self.dtype, what="positions", read=library.array)
        n = self.n_targets
        if places.ndim > 1 and places.shape[-2] not in (n, self._listed):
            hint = "; of one task targets[..., None, :]" if n == 1 else ""
            raise ArgumentError(
                f"targets: got shape {places.shape}; wanted (..., {n}, 3), a position for each task{hint}"
            )
        poses = library.xp.zeros((*places.shape[:-1], 4, 4), self.dtype)
        poses[..., :3, 3] = places
        for k in range(4):
            poses[..., k, k] = 1.0
        return poses

    @cached_property
    def _middle(self) -> Array:
        """The first initial configuration if none is given."""
        return (self._postures[0] if self._postures else middle(self.model)).astype(self.dtype)

    @cached_property
    def _clipped(self) -> tuple[Array, Array]:
        """Limits of all coordinates in the dtype, each rounded towards the inside of its range."""
        return _rounded_inwards(bounds(self.model), self.dtype)

    def _settings_of_blocks(self, tolerance: Any) -> Settings:
        """Settings of blocks for one state."""
        if tolerance not in self._settings_by_tolerance:
            task, none = steps_task(self._asked, self.limits, self._steps), np.empty((0, self.model.nq), self.dtype)
            library, settings = self._dyn._engine_for({})[1], self._settings(tolerance)
            search = Search(
                self._dyn.engine, library, self.model, task, self._steps, settings, self._size, None, none, 1
            )
            if len(self._settings_by_tolerance) >= _MOST_TOLERANCES:
                self._settings_by_tolerance.clear()
            released, pulled, least = search.settings
            self._settings_by_tolerance[tolerance] = Settings(released[0], pulled[0], least)
        return self._settings_by_tolerance[tolerance]

    def _read(self, library: Library, targets: Any, q0: Any) -> tuple[Array, Array, tuple[int, ...]]:
        """Flattened targets (B, 16 n), initial configurations (B, nq) and the leading axes."""
        n, xp = self.n_targets, library.xp
        array = real_array("targets", targets, (4, 4), self.dtype, what="poses", read=library.array)
        if array.ndim == 2 and n == 1:
            array = array[None]
        if array.ndim > 2 and n < array.shape[-3] == self._listed:
            targeted = [k for k, task in enumerate(self.tasks) if task.targeted]
            array = array[..., targeted, :, :]
        if array.ndim == 2 or array.shape[-3] != n:
            hint = "; of one task targets[..., None, :, :]" if n == 1 else ""
            raise ArgumentError(
                f"targets: got shape {array.shape}; wanted (..., {n}, 4, 4), a pose for each task with a target{hint}"
            )
        own = self._postures[0] if self._postures else middle(self.model)
        if q0 is None:
            first = library.like_numpy(own.astype(self.dtype))
        else:
            first = real_array("q0", q0, (self.model.nq,), self.dtype, what="model.nq numbers", read=library.array)
        try:
            leading = np.broadcast_shapes(array.shape[:-3], first.shape[:-1])
        except ValueError:
            raise ArgumentError(
                f"q0: got shape {first.shape}, targets of shape {array.shape}; wanted leading axes that broadcast"
            ) from None
        batch = prod(leading)
        goals = xp.broadcast_to(array, (*leading, n, 4, 4)).reshape(batch, 16 * n)
        return goals, xp.broadcast_to(first, (*leading, self.model.nq)).reshape(batch, self.model.nq), leading

    def _settings(self, tolerance: Any) -> Array:
        """The settings of `steps_task` that depend on the call and the dtype, with tolerances that are not squared."""
        name = self.dtype.name
        wanted = TOLERANCES[name] if tolerance is None else tolerance
        pair = strict_types.members(wanted) if strict_types.is_a(wanted, tuple, list) else ()
        if len(pair) != 2:
            raise ArgumentError(f"tolerance: got {brief(tolerance)}; wanted two numbers, m and rad")
        distance, angle = (finite_number("tolerance", each) for each in pair)
        if not 0.0 < distance < _FARTHEST or not 0.0 < angle < 0.5 * np.pi:
            raise ArgumentError(
                f"tolerance: got {brief(tolerance)}; wanted a distance above 0 and below {_FARTHEST:g}, and an angle "
                "above 0 and below pi / 2"
            )
        common = max(self._lightest**2, _ROUNDING[name] * self._size**2)
        return np.array([distance, angle, _SLACK[name], _LEAST[name], _LEAST[name] * common])

    def _answer(
        self, library: Library, found: Sequence[Found], leading: tuple[int, ...], near: Clearance | None
    ) -> tuple[Array, IKReport]:
        """Joins the results of all chunks and restores the leading axes."""
        xp, n, nq = library.xp, self.n_targets, self.model.nq
        results = Found(*(xp.concatenate(parts) for parts in zip(*(each.arrays for each in found), strict=True)))
        q = results.q
        if self.limits:
            q = xp.clip(q, *map(library.constant, self._clipped))
        measures = results.measures.reshape(len(q), n + 1, MEASURES)
        distance = xp.sqrt(measures[..., 0])
        angle = xp.arctan2(xp.sqrt(measures[..., 1]), measures[..., 2])
        residual = xp.stack((distance[:, :n], angle[:, :n]), -1)
        constraint_residual = xp.sqrt(measures[:, n, :2])
        if results.lost.any():
            residual[results.lost] = np.nan
            q = xp.where(results.lost[:, None], np.nan, q)
        done, distance = results.done, None
        if near is not None:
            distance = near.distances(q, np.arange(len(q)))
            done = done & (distance > near.least)
            distance = distance.reshape(leading)
        report = IKReport(
            done.reshape(leading),
            residual.reshape(*leading, n, 2),
            constraint_residual.reshape(*leading, 2),
            results.iterations.reshape(leading),
            results.start.reshape(leading),
            distance,
        )
        return q.reshape(*leading, nq), report


def _sizes(model: Model, asked: AllTasks) -> tuple[float, float]:
    """Largest and smallest change of a weighted error per rad or m of joint motion, over all rows of the Jacobian."""
    sizes = [1.0, reach(model)] if model.constraints else []
    for aim in asked.aims:
        sizes += [aim.turn, *(aim.turns or ()), *(weight * reach(model, aim.point) for weight in aim.move)]
    return max(sizes), min(each for each in sizes if each)


def _chunks(rows: int, most: int) -> Iterator[slice]:
    for first in range(0, max(rows, 1), most):
        yield slice(first, min(rows, first + most))


def _require_fitting(obstacles: Obstacles | None, leading: tuple[int, ...]) -> None:
    """Refuse obstacles whose leading axes do not broadcast to those of the targets."""
    own = () if obstacles is None else obstacles.leading
    try:
        fits = np.broadcast_shapes(own, leading) == leading
    except ValueError:
        fits = False
    if not fits:
        raise ArgumentError(
            f"obstacles: got leading axes {own}; wanted some that broadcast to those of the targets, {leading}"
        )


def _of(near: Clearance | None, rows: Array) -> Clearance | None:
    """The clearance of some targets."""
    return None if near is None else near.of(rows)


def _rounded_inwards(limits: tuple[Array, Array], dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rounds joint limits to a dtype, each towards the inside of its range."""
    lower, upper = (each.astype(dtype) for each in limits)
    low = np.where(lower < limits[0], np.nextafter(lower, dtype.type(np.inf)), lower)
    high = np.where(upper > limits[1], np.nextafter(upper, dtype.type(-np.inf)), upper)
    return low, high


def _host(array: Array) -> Any:
    """Copies an array from a device to the host, as a NumPy array."""
    return array.get() if hasattr(array, "get") else array
