"""Inverse kinematics: configurations that reach target poses, for many targets and many seeds at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from robodyn.api.dynamics import Dynamics
from robodyn.api.queries.obstacles import Obstacles, require_fitting
from robodyn.core.constraints.resolved import anchored_by_calls
from robodyn.core.model import Model
from robodyn.internals.arguments import Array, count, flag, one_of
from robodyn.internals.array_library import Library
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief
from robodyn.solve.inverse_kinematics.aims import asked_for
from robodyn.solve.inverse_kinematics.all_solutions import distinct
from robodyn.solve.inverse_kinematics.branch import Branch
from robodyn.solve.inverse_kinematics.clearance import Clearance, read_clearance
from robodyn.solve.inverse_kinematics.inputs import Inputs, rounded_inwards
from robodyn.solve.inverse_kinematics.levenberg import steps_task
from robodyn.solve.inverse_kinematics.limits import bounds
from robodyn.solve.inverse_kinematics.one_target import OneTarget, residuals
from robodyn.solve.inverse_kinematics.report import IKReport, with_report
from robodyn.solve.inverse_kinematics.search import Search, Settings
from robodyn.solve.inverse_kinematics.tasks import PostureTask, Task, task_list
from robodyn.solve.inverse_kinematics.velocity import VelocityQueries

ENGINES = ("auto", "reference", "cpu", "gpu")
_STEPS, _LARGE, _SMALL = 4, 60_000, 6_000
"""Steps in one compiled program. Small problems get `_STEPS`; those over `_SMALL` get two, those over `_LARGE` one. The
size of a problem is estimated as the multiplications of one step's linear system."""
_CHUNK = 8192
"""Targets that are solved together. Their arrays stay in the cache."""
_MOST_SEEDS, _MOST_ITERATIONS = 100_000, 100_000
_MOST_TOLERANCES = 16
"""Tolerances whose settings are kept."""


class InverseKinematics(VelocityQueries):
    """Finds configurations that fulfil tasks.

    Takes Levenberg-Marquardt steps from several seeds, within joint limits. The steps are compiled for the robot and
    its tasks. Thousands of targets run in parallel on the CPU engine or the GPU engine. Constraints of the model are
    satisfied as well.

    Args:
        model: the robot.
        tasks: a list of `PoseTask`, `PositionTask`, `DirectionTask`, `GazeTask`, `DistanceTask`, `RelativePoseTask`,
            `CoMTask`, `PostureTask` and `ManipulabilityTask`, or one of them; a link's name or index is a pose task.
        posture: a preferred configuration in the null space of the tasks, same as `PostureTask(posture)`.
        limits: True to respect position limits of joints with one degree of freedom and of joints that mimic them. A
            lower limit above the upper one is ignored. A limit of a mimicking joint is ignored if it leaves nothing of
            the range of the joint that it mimics.
        engine, dtype, threads: as in `Dynamics`. "scan" is not available.
        clearance: solutions keep all pairs of shapes farther apart than this, m; None: shapes are ignored, unless there
            are obstacles, then 0. See `Dynamics.min_distance`.
        obstacles: things in the world from which all shapes keep this distance as well, the same for all calls.

    Tasks of the highest priority, 1 if there is one, must be within the tolerance, and constraints of the model with
    them. Each lower priority acts in the null space of all higher ones, where its weighted sum of squares becomes as
    small as steps lead, also if it cannot be done. If a higher one is out of reach, it stays as near as without the
    lower ones. Postures and manipulability act in the null space of all of these. Three quarters of the iterations
    serve all; the rest, if still needed, the highest priority alone. Bounds (boxes, cones, ranges, polygons) are tasks,
    whose error is how far the value is beyond.

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
        listed = len(all_tasks)
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
        self.dtype = self._dyn.dtype
        self._inputs = Inputs(self._dyn, all_tasks, listed, self._asked)
        self._n_targets = self._asked.targets
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
        """Number of tasks with a target: all but `PostureTask`, `ManipulabilityTask`, and `DistanceTask` between
        links."""
        return self._n_targets

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
        branch: dict[str, int] | None = None,
    ) -> tuple[Array, IKReport]:
        """Solves for configurations (..., nq); returns them and a report.

        Args:
            targets: (..., n_tasks, 4, 4) poses in the order of tasks, in world coordinates. The target of a
                `RelativePoseTask` is in the frame of its other link. A `PostureTask` has no target, or one that is
                ignored. A single task may have the shape (4, 4). If no task looks at rotations, positions
                (..., n_tasks, 3) will do, m; (3,) for a single task.
            q0: (..., nq) initial configuration, or values by joint names: the others are as for None. None: the
                posture, or the middle of the limits.
            seeds: number of initial configurations, q0 included. The first one that converges is returned.
            rng: a generator or a seed for the other initial configurations; None: Halton's sequence. They are the same
                for all targets.
            tolerance: the largest errors of a task, m and rad; None: (1e-6, 1e-6), in float32 (1e-4, 1e-4).
            iterations: steps from each initial configuration; twice as many from the first, and from all if there are
                `solutions`.
            obstacles: those of this call, instead of the solver's own: one set, or one for each target.
            starts: (k, nq) or (..., k, nq) initial configurations after q0, the same for all targets or some for each,
                fewer than seeds, or values (k,) or (..., k) by joint names. The others follow.
            solutions: number of different solutions of each target, from all seeds, those near q0 first: results have
                the shape (..., solutions, nq), and the report has this axis. Two are different if some joint differs
                by more than 0.1 rad or m. Where there are fewer, rows are NaN.
            branch: signs (1 or -1) by names of joints with one coordinate: only solutions in which these joints have
                them count, and other initial configurations than q0 and `starts` are within.

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
            UnavailableError: a clearance, starts, solutions, a branch or values by names with arrays on a GPU.
        """
        chosen = self._clearance, self._obstacles
        if obstacles is not None:
            chosen = read_clearance(self._dyn, self._clearance, obstacles)
        targets = self._inputs.poses(targets)
        if (
            rng is None
            and starts is None
            and solutions is None
            and branch is None
            and not (chosen[1] is not None and chosen[1].leading)
        ):
            answer = self._from_first(targets, q0, seeds, tolerance, iterations)
            if answer is not None:
                answer = self._if_apart(*answer, *chosen)
            if answer is not None:
                return answer
        by_name = isinstance(q0, dict)
        engine, library = self._dyn._engine_for({"targets": targets, "q0": None if by_name else q0})
        only = None if branch is None else Branch(self.model, branch)
        if only is not None and library.on_device:
            raise UnavailableError("branch: got arrays on a GPU; wanted NumPy arrays")
        if chosen[0] is not None and library.on_device:
            raise UnavailableError("clearance, obstacles: got arrays on a GPU; wanted NumPy arrays")
        goals, first, leading = self._inputs.read(library, targets, q0)
        settings = self._inputs.settings(tolerance)
        seeds = count("seeds", seeds, 1, _MOST_SEEDS)
        iterations = count("iterations", iterations, 1, _MOST_ITERATIONS)
        again = self._inputs.starts(library, starts, leading, seeds, rng, only)
        least, things = chosen
        task, near, apart = steps_task(self._asked, self.limits, self._steps), None, None
        if least is not None:
            require_fitting(things, leading, "the targets")
            near = Clearance(self._dyn, least, things, leading)
            apart = steps_task(self._asked, self.limits, 1, apart=True)
        blocks = -(-iterations // self._steps)
        goals = self._inputs.with_tail(library, goals, first)

        def search(other_starts: Array) -> Search:
            fixed = engine, library, self.model, task, self._steps, settings, self._inputs.size, self._asked
            return Search(*fixed, other_starts, blocks, apart, only)

        if solutions is not None:
            return self._all_solutions(library, solutions, search, goals, first, again, near, leading)
        of_all = search(again) if again.ndim == 2 else None
        results = [
            (of_all or search(again[rows])).run(goals[rows], first[rows], _of(near, np.arange(len(goals))[rows]))
            for rows in _chunks(len(goals), _CHUNK)
        ]
        return with_report(library, results, leading, near, self._clipped if self.limits else None)

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
        clipped = self._clipped if self.limits else None
        return with_report(library, results, (*leading, wanted), _of(near, targets), clipped)

    def _from_first(
        self, targets: Any, q0: Any, seeds: Any, tolerance: Any, iterations: Any
    ) -> tuple[Array, IKReport] | None:
        """The solution for one target that the first initial configuration leads to; None if another way is needed."""
        n, nq, dtype = self.n_targets, self.model.nq, self.dtype
        if not self._dyn.engine.native or not (type(seeds) is int and 1 <= seeds <= _MOST_SEEDS):
            return None
        if not (type(iterations) is int and 1 <= iterations <= _MOST_ITERATIONS):
            return None
        q = self._inputs.first if q0 is None else q0
        for array in (targets, q):
            if type(array) is not np.ndarray or array.dtype is not dtype or not array.flags.c_contiguous:
                return None
        if q.shape != (nq,) or not (targets.shape == (n, 4, 4) or (n, targets.shape) == (1, (4, 4))):
            return None
        key = tolerance if type(tolerance) is tuple and all(type(each) is float for each in tolerance) else None
        if key is not tolerance:
            return None
        goals = targets.reshape(16 * n)
        if self._inputs.tailed:
            goals = np.concatenate((goals, self._inputs.tail, q) if self._inputs.stays else (goals, self._inputs.tail))
        settings = self._settings_of_blocks(key)
        if self._one_target is None:
            task = steps_task(self._asked, self.limits, self._steps)
            try:
                arrays = q, goals, settings.released
                self._one_target = OneTarget(self._dyn.engine, task, self._steps, self._asked, arrays)
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
            np.array(errors, dtype).reshape(-1, 2),
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

    @cached_property
    def _clipped(self) -> tuple[Array, Array]:
        """Limits of all coordinates in the dtype, each rounded towards the inside of its range."""
        return rounded_inwards(bounds(self.model), self.dtype)

    def _settings_of_blocks(self, tolerance: Any) -> Settings:
        """Settings of blocks for one state."""
        if tolerance not in self._settings_by_tolerance:
            task, none = steps_task(self._asked, self.limits, self._steps), np.empty((0, self.model.nq), self.dtype)
            library, settings = self._dyn._engine_for({})[1], self._inputs.settings(tolerance)
            search = Search(
                self._dyn.engine,
                library,
                self.model,
                task,
                self._steps,
                settings,
                self._inputs.size,
                self._asked,
                none,
                1,
            )
            if len(self._settings_by_tolerance) >= _MOST_TOLERANCES:
                self._settings_by_tolerance.clear()
            released, pulled, least = search.settings
            self._settings_by_tolerance[tolerance] = Settings(released[0], pulled[0], least)
        return self._settings_by_tolerance[tolerance]


def _chunks(rows: int, most: int) -> Iterator[slice]:
    for first in range(0, max(rows, 1), most):
        yield slice(first, min(rows, first + most))


def _of(near: Clearance | None, rows: Array) -> Clearance | None:
    """The clearance of some targets."""
    return None if near is None else near.of(rows)
