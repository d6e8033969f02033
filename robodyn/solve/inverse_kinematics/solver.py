"""Inverse kinematics: configurations for poses, of many targets and many starts at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robodyn.api.dynamics import Dynamics
from robodyn.core.constraints.resolved import anchored_by_calls
from robodyn.core.model import Model
from robodyn.core.reach import reach
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, count, finite_number, flag, one_of, real_array
from robodyn.internals.array_library import Library
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief
from robodyn.internals.records import dataclass
from robodyn.solve.inverse_kinematics.levenberg import bounds, steps_task
from robodyn.solve.inverse_kinematics.residuals import MEASURES
from robodyn.solve.inverse_kinematics.search import Found, Search
from robodyn.solve.inverse_kinematics.seeds import middle, starts
from robodyn.solve.inverse_kinematics.tasks import AllTasks, PostureTask, Task, asked_for, task_list

ENGINES = ("auto", "reference", "cpu", "gpu")
TOLERANCES = {"float64": (1e-6, 1e-6), "float32": (1e-4, 1e-4)}
"""m and rad, by dtype."""
_SLACK = {"float64": 1e-10, "float32": 1e-6}
_LEAST = {"float64": 1e-10, "float32": 2e-6}
_ROUNDING = {"float64": 1e-5, "float32": 0.05}
"""Of the least lambda: what products of the heaviest rows need, so that rounding leaves their sum definite."""
_FARTHEST = 1e15
"""m: tolerances whose squares do not overflow in any precision."""
_STEPS, _LARGE, _SMALL = 4, 60_000, 6_000
"""Steps of a program: four of small robots; one where rows times degrees of freedom, or the rows alone, are many."""
_CHUNK = 8192
"""Rows that are looked at together: their arrays stay in the cache."""
_MOST_SEEDS, _MOST_ITERATIONS = 100_000, 100_000


@dataclass(frozen=True, eq=False)
class IKReport:
    """What became of every target; arrays with the leading axes of targets.

    `converged`: whether everything asked for is within the tolerance; `residual` (..., n, 2): how far each task with a
    target is off, m and rad; `constraint_residual` (..., 2): how far all constraints of the model together are off;
    `iterations`: steps taken, of all starts up to the one that was successful; `start`: its number, 0 for q0, or where
    none was, that of the one that came nearest, -1 where the target or q0 is not finite.
    """

    converged: Array
    residual: Array
    constraint_residual: Array
    iterations: Array
    start: Array

    def __repr__(self) -> str:
        total, done = int(np.size(self.converged)), int(self.converged.sum())
        if not total:
            return "<IKReport: no targets>"
        worst = np.nanmax(np.asarray(_host(self.residual)).reshape(-1, 2), axis=0, initial=0.0)
        mean, lost = float(self.iterations.sum()) / total, int((self.start < 0).sum())
        return (
            f"<IKReport: {done} of {total} converged, {mean:.1f} iterations in the mean, "
            f"at most {worst[0]:.2g} m and {worst[1]:.2g} rad off{f', {lost} not finite' if lost else ''}>"
        )


class InverseKinematics:
    """Finds configurations in which a robot does what tasks ask for.

    Steps of Levenberg and Marquardt from several starts, within joint limits, compiled for the robot and its tasks:
    thousands of targets run side by side, on the CPU engine or the GPU engine. Constraints of the model hold as well.

    Args:
        model: the robot.
        tasks: a list of `PoseTask`, `PositionTask`, `DirectionTask`, `RelativePoseTask`, `CoMTask` and `PostureTask`,
            or one of them; a link's name or index is a pose task.
        posture: (nq,) a configuration to be near to as far as tasks leave freedom: as `PostureTask(posture)`.
        limits: whether position limits of joints hold, those of joints of one degree of freedom, and of joints that
            mimic them. A lower limit above the upper one is none, nor is one of a joint that mimics another that leaves
            nothing of the other's range.
        engine, dtype, threads: as of `Dynamics`; "scan" has no part in this.

    Raises:
        ArgumentError: a task that is none, a link that the model has not, nothing to do, or a constraint to the world
            whose place comes with calls.
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
    ) -> None:
        given = task_list(tasks)
        self._listed = len(given)
        if posture is not None:
            given = (*given, PostureTask(posture))
        chosen: Any = one_of("engine", engine, ENGINES)
        self._dyn = Dynamics(model, engine=chosen, dtype=dtype, threads=threads, check=False)
        self.model, self.tasks, self.limits = model, given, flag("limits", limits)
        self._asked = asked_for(model, given)
        if not self._asked.aims and not model.constraints:
            raise ArgumentError(f"tasks: got {brief(tasks)}; wanted at least one task with a target")
        if anchored_by_calls(model.constraints):
            raise ArgumentError(
                "constraints: one to the world has no place; wanted to_at=, or a PoseTask or PositionTask instead"
            )
        self._postures = [np.array(each.q) for each in given if isinstance(each, PostureTask)]
        self.dtype = self._dyn.dtype
        self._size, self._lightest = _sizes(model, self._asked)
        rows = 6 * len(self._asked.aims) + model.n_rows
        size = min(rows, model.nv) ** 2 * max(rows, model.nv)
        self._steps = _STEPS if size <= _SMALL else 2 if size <= _LARGE else 1

    def __repr__(self) -> str:
        names = ", ".join(type(each).__name__ for each in self.tasks)
        return f"<InverseKinematics of {self.model.name!r}: {names}>"

    @property
    def n_targets(self) -> int:
        """Number of tasks that have a target: all but a posture."""
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
    ) -> tuple[Array, IKReport]:
        """Configurations (..., nq), and a report.

        Args:
            targets: (..., n_tasks, 4, 4) poses in world coordinates (of a `RelativePoseTask` in those of the other
                link), in the order of tasks; a `PostureTask` has none, or one that is not looked at. One task may have
                (4, 4).
            q0: (..., nq) where to start; None: the posture, or the middle of the limits.
            seeds: how many starts there are, q0 among them; the first one that converges counts.
            rng: a generator or a seed for the other starts; None: Halton's sequence. They are the same for all targets.
            tolerance: the largest errors of a task, m and rad; None: (1e-6, 1e-6), in float32 (1e-4, 1e-4).
            iterations: steps from each start; twice as many from the first.

        Where nothing converges the answer is the one that came nearest, by the weighted sum of squares. Limits hold
        always. A row in which the target or q0 is not finite (or its square is not), a quaternion of q0 has no length,
        or a target is no pose (a rotation above 0 0 0 1, by more than 1e-2) is NaN, and has not converged. Results do
        not depend on which other targets are asked for.

        Raises:
            ArgumentError: shapes, numbers of seeds or iterations, or a tolerance that is none.
        """
        engine, library = self._dyn._engine_for({"targets": targets, "q0": q0})
        goals, first, leading = self._read(library, targets, q0)
        settings = self._settings(tolerance)
        seeds = count("seeds", seeds, 1, _MOST_SEEDS)
        iterations = count("iterations", iterations, 1, _MOST_ITERATIONS)
        again = starts(self.model, seeds - 1, rng).astype(self.dtype)
        task = steps_task(self._asked, self.limits, self._steps)
        posture, blocks = self._postures[0] if self._postures else None, -(-iterations // self._steps)
        search = Search(engine, library, self.model, task, self._steps, settings, self._size, posture, again, blocks)
        found = [search.run(goals[rows], first[rows]) for rows in _chunks(len(goals))]
        return self._answer(library, found, leading, settings)

    def _read(self, library: Library, targets: Any, q0: Any) -> tuple[Array, Array, tuple[int, ...]]:
        """Goals (B, 16 n), first configurations (B, nq) and leading axes."""
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
        """Those of `steps_task` that calls and dtypes choose, the tolerances themselves instead of their squares."""
        name = self.dtype.name
        given = TOLERANCES[name] if tolerance is None else tolerance
        pair = strict_types.members(given) if strict_types.is_a(given, tuple, list) else ()
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
        self, library: Library, found: Sequence[Found], leading: tuple[int, ...], settings: Array
    ) -> tuple[Array, IKReport]:
        """Results of all rows with their leading axes."""
        xp, n, nq = library.xp, self.n_targets, self.model.nq
        every = Found(*(xp.concatenate(parts) for parts in zip(*(each.arrays for each in found), strict=True)))
        q = every.q
        if self.limits:
            q = xp.clip(q, *(library.constant(each) for each in _rounded_inwards(bounds(self.model), self.dtype)))
        measures = every.measures.reshape(len(q), n + 1, MEASURES)
        off = xp.sqrt(measures[..., 0])
        turned = xp.arctan2(xp.sqrt(measures[..., 1]), measures[..., 2])
        residual = xp.stack((off[:, :n], turned[:, :n]), -1)
        held = xp.sqrt(measures[:, n, :2])
        if every.lost.any():
            residual[every.lost] = np.nan
            q = xp.where(every.lost[:, None], np.nan, q)
        report = IKReport(
            every.done.reshape(leading),
            residual.reshape(*leading, n, 2),
            held.reshape(*leading, 2),
            every.iterations.reshape(leading),
            every.start.reshape(leading),
        )
        return q.reshape(*leading, nq), report


def _sizes(model: Model, asked: AllTasks) -> tuple[float, float]:
    """How much an angle, or a metre, changes weighted errors: of the heaviest row, and of the lightest one."""
    sizes = [1.0, reach(model)] if model.constraints else []
    for aim in asked.aims:
        sizes += [aim.turn, *(weight * reach(model, aim.point) for weight in aim.move)]
    return max(sizes), min(each for each in sizes if each)


def _chunks(rows: int) -> Iterator[slice]:
    for first in range(0, max(rows, 1), _CHUNK):
        yield slice(first, min(rows, first + _CHUNK))


def _rounded_inwards(limits: tuple[Array, Array], dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Bounds in a precision, none of them outside of what they were."""
    lower, upper = (each.astype(dtype) for each in limits)
    low = np.where(lower < limits[0], np.nextafter(lower, dtype.type(np.inf)), lower)
    high = np.where(upper > limits[1], np.nextafter(upper, dtype.type(-np.inf)), upper)
    return low, high


def _host(array: Array) -> Any:
    """An array of a device as a NumPy array."""
    return array.get() if hasattr(array, "get") else array
