"""Velocities of joints that produce wished twists: inverse kinematics of one time step of a control loop."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from robodyn.api.dynamics import Dynamics
from robodyn.api.queries.obstacles import Obstacles, require_fitting
from robodyn.core.model import Model
from robodyn.core.reach import reach
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, finite_number, flag, integer, real_array
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief
from robodyn.solve.inverse_kinematics.aims import posture_weights
from robodyn.solve.inverse_kinematics.clearance import read_clearance
from robodyn.solve.inverse_kinematics.inputs import Inputs
from robodyn.solve.inverse_kinematics.seeds import middle
from robodyn.solve.inverse_kinematics.tasks import (
    CoMTask,
    DirectionTask,
    PoseTask,
    PositionTask,
    PostureTask,
    RelativePoseTask,
    Task,
)
from robodyn.solve.inverse_kinematics.velocity_rows import Form, Point, Wish, velocity_task
from robodyn.solve.quadratic.program import Programmes
from robodyn.solve.quadratic.report import ProgrammeReport

DAMPING = {"float64": 1e-3, "float32": 1e-2}
"""Default damping by dtype."""
POSTURE = 1e-2
"""Weight of the posture's velocities, relative to tasks of weight one."""
_NEAR = 0.1
"""Pairs of shapes nearer than the clearance and this times the size of the robot have a row."""
_ENTRIES = 4_000_000
"""Entries of gradients of distances that are computed together."""
_CHUNK = 1024
"""States that are solved together. Their matrices stay in the cache."""
_HEAVIEST = 1e6
"""Largest damping."""
_ALLOWED = "PoseTask, PositionTask, DirectionTask, RelativePoseTask, CoMTask, PostureTask"
_CONTAINERS = frozenset((np.ndarray, list, tuple))
_KEPT = 16
"""Forms of calls, and their settings, that are kept."""


class VelocityReport(ProgrammeReport):
    """What became of each state, in arrays with the leading axes of the states.

    `feasible`: True if there are velocities that keep all limits, hard tasks, constraints and clearances; others are
    NaN. `outcome`: 0 if so, 1 if no velocities do, 2 if the solver took too many steps, 3 if a number is not finite.
    `iterations`: steps of the solver. `at_limit` (..., nv): 1 where the velocity is held by its upper bound, -1 by its
    lower one, 0 otherwise, NaN without velocities. `clearance`: the least distance between shapes at q, m; None if no
    clearance is asked for.

    Args:
        ends: (..., 2) outcomes and steps.
        multipliers: (..., nv) of bounds, positive at lower ones.
        clearance: least distances.
    """

    __slots__ = "_multipliers", "clearance"

    def __init__(self, ends: Array, multipliers: Array, clearance: Array | None = None) -> None:
        super().__init__(ends)
        self._multipliers, self.clearance = multipliers, clearance

    @property
    def at_limit(self) -> Array:
        """The bounds that hold velocities."""
        return 0.0 - np.sign(self._multipliers)


class _Plan:
    """A form of calls with its settings, and memory for one state.

    `dyn`: the robot; `constant`: inputs of the task that are the same for all calls, by name; `gain`: that of limits.
    """

    def __init__(self, dyn: Dynamics, form: Form, constant: dict[str, Any], gain: float) -> None:
        model = dyn.model
        self.dyn, self.form, self.gain, self.task = dyn, form, gain, velocity_task(model, form)
        self.constant = {name: np.array(constant[name], dyn.dtype) for name in self.task.inputs if name in constant}
        self.shapes = {name: each.shape(model) for name, each in self.task.outputs.items()}
        n, sizes = len(form.wishes), {each.size for each in form.wishes}
        own = n, sizes.pop() if len(sizes) == 1 else 0
        self.full = {"q": (model.nq,), "before": (model.nv,), "goals": (n, 4, 4), "twists": own}
        """Shapes of the arrays of one state. Lists of twists have none."""
        self.takes_arrays = own[1] > 0 or not form.twists
        self.idle: list[_One] = []
        self._programmes: dict[int, Programmes] = {}

    def programmes(self, m: int) -> Programmes:
        """Quadratic programmes with m rows of C."""
        if m not in self._programmes:
            self._programmes[m] = Programmes(self.dyn.engine, self.dyn.model.nv, m, self.form.soft, scale=1.0)
        return self._programmes[m]

    def new(self, batch: int, m: int) -> tuple[Array, Array, Array]:
        """Arrays of velocities, multipliers with m rows of C, and outcomes."""
        nv, dtype = self.dyn.model.nv, self.dyn.dtype
        return np.empty((batch, nv), dtype), np.empty((batch, nv + m), dtype), np.empty((batch, 2), np.int64)

    def inputs_of(self, programme: dict[str, Array], batch: int) -> list[Array]:
        """Inputs of quadratic programmes from outputs of the task."""
        nothing = np.empty((batch, 0, self.dyn.model.nv), self.dyn.dtype)
        return [programme.get(name, nothing) for name in ("A", "b", "d", "e", "C", "lower", "upper")]

    def solve(
        self, given: dict[str, Array], dt: float, barriers: tuple[Array, Array] | None
    ) -> tuple[Array, Array, Array]:
        """Velocities (B, nv), multipliers and outcomes (B, 2).

        Args:
            given: inputs of the task (B, ...) that are not constant.
            dt: s.
            barriers: gradients of distances (B, k, nv) and their least rates (B, k), or None.
        """
        batch, dtype = len(given["q"]), self.dyn.dtype
        constant = self.constant | {"settings": self.constant["settings"].copy()}
        constant["settings"][:2] = dt, self.gain / dt
        inputs = given | {name: np.broadcast_to(each, (batch, *each.shape)) for name, each in constant.items()}
        made = {name: np.empty((batch, *shape), dtype) for name, shape in self.shapes.items()}
        self.dyn.engine.compose(self.task, inputs, made)
        arrays = self.inputs_of(made, batch)
        if barriers is not None:
            more = *barriers, np.full_like(barriers[1], np.inf)
            arrays[4:] = [np.concatenate(pair, 1) for pair in zip(arrays[4:], more, strict=True)]
        m = arrays[4].shape[1]
        results, programmes = self.new(batch, m), self.programmes(m)
        programmes.run(programmes.table(arrays, results), batch)
        return results


class _One:
    """Memory of one state, and calls on it: `program` fills a quadratic programme, `solve` solves it.

    Raises:
        UnavailableError: there is no such call.
    """

    def __init__(self, plan: _Plan) -> None:
        model, dtype, m = plan.dyn.model, plan.dyn.dtype, plan.form.fixed(plan.dyn.model)
        inputs = {name: np.zeros((1, *each.shape(model)), dtype) for name, each in plan.task.given.items()}
        for name, constant in plan.constant.items():
            inputs[name][0] = constant
        made = {name: np.empty((1, *shape), dtype) for name, shape in plan.shapes.items()}
        program = plan.dyn.engine.bound(plan.task, inputs, made)
        if program is None:
            raise UnavailableError("velocity: no program")
        programmes, arrays, results = plan.programmes(m), plan.inputs_of(made, 1), plan.new(1, m)
        self.program, self.settings = program.run, inputs["settings"][0]
        self.solve = programmes.one(programmes.table(arrays, results), arrays, results)
        self.x, self.multipliers, self.ends = results[0][0], results[1][0, : model.nv], results[2][0]
        own = [(name, plan.full[name], each) for name, each in inputs.items() if name not in plan.constant]
        # The first axis of one task may be missing.
        self.given = [
            (name, each.reshape(shape), shape, shape[1:] if len(shape) > 1 and shape[0] == 1 else shape)
            for name, shape, each in own
        ]
        """Name, memory, and both allowed shapes of each array of a call."""


class VelocityQueries:
    """The method `velocity` of `InverseKinematics`."""

    if TYPE_CHECKING:
        model: Model
        tasks: tuple[Task, ...]
        limits: bool
        dtype: np.dtype[Any]
        _dyn: Dynamics
        _clearance: float | None
        _obstacles: Obstacles | None
        _inputs: Inputs
        _plans: dict[Any, _Plan]

    def velocity(
        self,
        q: ArrayLike,
        twists: Any,
        dt: float,
        velocity_limits: Any = True,
        *,
        targets: ArrayLike | None = None,
        gain: Any = None,
        hard: Sequence[int] = (),
        acceleration_limits: Any = None,
        qd: ArrayLike | None = None,
        limit_gain: float = 0.5,
        posture_rate: float | None = None,
        damping: float | None = None,
        obstacles: Obstacles | None = None,
    ) -> tuple[Array, VelocityReport]:
        """Velocities of joints (..., nv) that produce the wished twists best; returns them and a report.

        They minimise the weighted sum of squares of what twists lack, plus that of a posture's velocities with weight
        0.01, plus |damping qd|^2, within all limits.

        Args:
            q: (..., nq) configurations.
            twists: the velocity that each task with a target wishes: (..., n_tasks, 6) twists of pose tasks, rotation
                first, rad/s and m/s; or (..., n_tasks, 3) velocities of position tasks and centres of mass, or angular
                velocities of direction tasks. For both kinds of tasks a list with an array (..., 6) or (..., 3) for
                each. A single task may have the shape (6,) or (3,). Axes are those of the world, and the velocity is
                that of the task's point ("world_aligned"); a `RelativePoseTask` moves as seen in the other link's axes.
                None: zero.
            dt: the time for which the velocities hold, s.
            velocity_limits: True for those of the model, False for none, or numbers above 0, one or (nv,).
            targets: as in `solve`. Tasks then follow these poses, too: gain / dt times their errors are added to
                twists. The error of a rotation is the rotation vector.
            gain: share of an error that a step corrects, from 0 to 1, a number or one for each target. None: 1. It
                needs `targets`.
            hard: indices of tasks whose twists hold exactly.
            acceleration_limits: numbers above 0, one or (nv,); None: none. They need `qd`.
            qd: (..., nv) velocities before the step.
            limit_gain: share, above 0 and up to 1, of what is left to a joint limit or a clearance that a step may use
                up, and of the errors of the model's constraints that it corrects. With acceleration limits, a joint may
                move towards its limit as fast as it can still stop in time instead.
            posture_rate: a posture is approached by this share a second times its weight, 1/s. None: 1. It needs a
                posture.
            damping: weight of the velocities themselves. A singular value s of the weighted Jacobian is followed to
                s^2 / (s^2 + damping^2). None: 1e-3, in float32 1e-2.
            obstacles: those of this call instead of the solver's own: one set, or one for each state.

        Limits of joints hold for q + dt qd. Where limits contradict one another, those of acceleration come first, then
        those of velocity: a joint beyond its position limit comes back as fast as these allow. Constraints of the model
        hold as J qd = -limit_gain phi / dt. With a clearance c, distances d of pairs that are nearer than c and a tenth
        of the robot's size change at least by -limit_gain (d - c) / dt.

        A row is NaN where no velocities fulfil the hard tasks, constraints and clearances within the limits, or where
        q, a twist, a target or qd is not finite; the report tells which.

        The quadratic programme is solved by Goldfarb and Idnani's dual active set, in at most 60 + 4 nv steps besides
        one for each equality.

        Raises:
            ArgumentError: wrong shapes or numbers, or a task that has no velocity.
            UnavailableError: the engine is on a GPU.
        """
        options = velocity_limits, gain, hard, acceleration_limits, limit_gain, posture_rate, damping
        given = {"q": q, "twists": twists, "goals": targets, "before": qd}
        key = _key(options, given)
        if obstacles is None and self._clearance is None:
            plan = None if key is None else self._plans.get(key)
            answer = None if plan is None else self._velocity_of_one(plan, given, dt)
            if answer is not None:
                return answer
        engine, library = self._dyn._engine_for({name: each for name, each in given.items() if name != "twists"})
        if library.on_device or engine.name == "gpu":
            raise UnavailableError("velocity: got engine 'gpu', or arrays on a GPU; allowed: 'cpu', 'reference'")
        length = _within("dt", dt, 0.0, np.inf, "s")
        plan = None if key is None else self._plans.get(key)
        if plan is None:
            plan = self._plan(options, given)
            if len(self._plans) >= _KEPT:
                self._plans.clear()
            if key is not None:
                self._plans[key] = plan
        flat, leading = self._read_state(library, plan.form, given)
        near = read_clearance(self._dyn, self._clearance, self._obstacles if obstacles is None else obstacles)
        if not leading and near[0] is None and engine.native and not plan.idle and plan.takes_arrays:
            with suppress(UnavailableError):  # too large for one program
                plan.idle.append(_One(plan))
        return self._velocities(plan, flat, leading, length, *near)

    def _velocity_of_one(self, plan: _Plan, given: dict[str, Any], dt: Any) -> tuple[Array, VelocityReport] | None:
        """The answer for one state by calls on memory that is kept; None if there is another way."""
        try:
            one = plan.idle.pop()  # of this thread alone, until it is back
        except IndexError:
            return None
        try:
            for name, place, shape, short in one.given:
                array = given[name]
                if type(array) is not np.ndarray or array.dtype is not place.dtype:
                    return None
                if array.shape != shape and array.shape != short:
                    return None
                place[...] = array
            if type(dt) is not float or not 0.0 < dt < np.inf:
                return None
            one.settings[0], one.settings[1] = dt, plan.gain / dt
            one.program()
            one.solve()
            return one.x.copy(), VelocityReport(one.ends.copy(), one.multipliers.copy())
        finally:
            plan.idle.append(one)

    def _velocities(
        self,
        plan: _Plan,
        flat: dict[str, Array],
        leading: tuple[int, ...],
        dt: float,
        clearance: float | None,
        obstacles: Obstacles | None,
    ) -> tuple[Array, VelocityReport]:
        """Velocities of a batch, some states at a time."""
        batch, nv = prod(leading), self.model.nv
        around = () if obstacles is None else obstacles.leading
        require_fitting(obstacles, leading, "q")
        qd, ends = np.empty((batch, nv), self.dtype), np.empty((batch, 2), np.int64)
        multipliers, distance = np.empty((batch, nv), self.dtype), np.empty(batch, self.dtype)
        for first in range(0, batch, _CHUNK):
            rows = slice(first, min(first + _CHUNK, batch))
            some = {name: each[rows] for name, each in flat.items()}
            barriers: tuple[Array, Array] | None = None
            if clearance is not None:
                things = obstacles
                if obstacles is not None and around:
                    things = obstacles.repeated(leading, np.arange(batch)[rows])
                normals, least, distance[rows] = self._barriers(some["q"], clearance, things, plan.gain / dt)
                barriers = normals, least
            qd[rows], every, ends[rows] = plan.solve(some, dt, barriers)
            multipliers[rows] = every[:, :nv]
        report = VelocityReport(
            ends.reshape(*leading, 2),
            multipliers.reshape(*leading, nv),
            None if clearance is None else distance.reshape(leading),
        )
        return qd.reshape(*leading, nv), report

    def _barriers(self, q: Array, clearance: float, obstacles: Obstacles | None, share: float) -> tuple[Array, ...]:
        """Gradients (B, k, nv) of the distances of near pairs, their least rates (B, k), and the least distances."""
        far = clearance + _NEAR * reach(self.model)
        distances = self._dyn.distances(q, obstacles)
        least = np.min(distances, axis=1, initial=np.inf)
        count = max(1, int((distances < far).sum(1).max(initial=0)))
        chosen = np.argsort(distances, axis=1)[:, :count]  # NaN comes last
        d = np.take_along_axis(distances, chosen, 1)
        with np.errstate(invalid="ignore"):
            rates = np.where(d < far, -share * (d - clearance), -np.inf)
        rates[np.isnan(least)] = np.nan
        rows = np.zeros((*d.shape, self.model.nv), q.dtype)
        step = max(1, _ENTRIES // max(1, distances.shape[1] * self.model.nv))
        for first in range(0, len(q), step):
            part = slice(first, first + step)
            things = obstacles
            if obstacles is not None and obstacles.leading:
                things = obstacles.repeated((len(q),), np.arange(len(q))[part])
            every = self._dyn.distances_gradient(q[part], things)
            rows[part] = np.take_along_axis(every, chosen[part, :, None], 1)
        rows[~(d < far)] = 0.0
        return rows, rates.astype(q.dtype), least

    # Arguments.

    def _plan(self, options: tuple[Any, ...], given: dict[str, Any]) -> _Plan:
        """Check the options of a call."""
        velocity_limits, gain, hard, acceleration_limits, limit_gain, posture_rate, damping = options
        model, name = self.model, self.dtype.name
        if not model.nv:
            raise ArgumentError(f"model {model.name!r} has no joints that move; wanted one with some")
        share = _within("limit_gain", limit_gain, 0.0, 1.0)
        weight = DAMPING[name] if damping is None else _within("damping", damping, 0.0, _HEAVIEST)
        rate = 1.0 if posture_rate is None else finite_number("posture_rate", posture_rate)
        if rate < 0.0:
            raise ArgumentError(f"posture_rate: got {brief(posture_rate)}; wanted a number from 0, 1/s")
        wishes = _wishes(model, self.tasks, hard)
        braking, postures = acceleration_limits is not None, [t for t in self.tasks if isinstance(t, PostureTask)]
        if braking and given["before"] is None:
            raise ArgumentError("acceleration_limits: need qd=, the velocities before the step")
        if not braking and given["before"] is not None:
            raise ArgumentError("qd: is read with acceleration_limits alone; wanted None, or acceleration_limits")
        if gain is not None and given["goals"] is None:
            raise ArgumentError("gain: is read with targets= alone; wanted None, or targets")
        if posture_rate is not None and not postures:
            raise ArgumentError("posture_rate: the tasks have no posture; wanted None, or a PostureTask")
        posture = posture_weights(model, postures[0]) if postures else None
        asked = given["twists"] is not None, given["goals"] is not None
        speed = model.velocity_limit
        if not (type(velocity_limits) is bool or isinstance(velocity_limits, np.bool_)):
            speed = _limits("velocity_limits", velocity_limits, model.nv)
        elif not flag("velocity_limits", velocity_limits):
            speed = np.full(model.nv, np.inf)
        constant = {
            "settings": [1.0, share, weight**2, POSTURE**2, rate],
            "speed": speed,
            "gains": _gains(1.0 if gain is None else gain, len(wishes)),
            "q_des": _posture(model, postures[0]) if postures else None,
            "acceleration": _limits("acceleration_limits", acceleration_limits, model.nv) if braking else None,
        }
        return _Plan(self._dyn, Form(wishes, posture, *asked, braking, self.limits), constant, share)

    def _read_state(self, library: Any, form: Form, given: dict[str, Any]) -> tuple[dict[str, Array], tuple[int, ...]]:
        """The inputs of a call (B, ...) by name, and the leading axes."""
        model, dtype = self.model, self.dtype
        arrays = {"q": real_array("q", given["q"], (model.nq,), dtype, what="model.nq numbers")}
        if form.twists:
            arrays["twists"] = _read_twists(given["twists"], form.wishes, dtype)
        if form.targets:
            goals, _, own = self._inputs.read(library, self._inputs.poses(given["goals"]), None)
            arrays["goals"] = goals.reshape(*own, goals.shape[-1])
        if form.braking:
            arrays["before"] = real_array("qd", given["before"], (model.nv,), dtype, what="model.nv numbers")
        try:
            leading = np.broadcast_shapes(*(each.shape[:-1] for each in arrays.values()))
        except ValueError:
            names = {"goals": "targets", "before": "qd"}
            shapes = ", ".join(f"{names.get(name, name)} {each.shape[:-1]}" for name, each in arrays.items())
            raise ArgumentError(f"velocity: got leading axes {shapes}; wanted some that broadcast") from None
        batch = prod(leading)
        flat = {k: np.broadcast_to(a, (*leading, a.shape[-1])).reshape(batch, a.shape[-1]) for k, a in arrays.items()}
        return flat, leading


def _key(options: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """What a plan depends on, by values and types: True is not 1 here. None for options that have no hash."""
    types = tuple(map(type, options))
    if not _CONTAINERS.isdisjoint(types):
        options = tuple(map(_by_value, options))
    key = options, types, tuple(each is None for each in given.values())
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _by_value(option: Any) -> Any:
    if type(option) is np.ndarray:
        return option.dtype.str, option.shape, option.tobytes()
    if type(option) is list or type(option) is tuple:
        return tuple((type(each), _by_value(each)) for each in option)
    return option


def _within(name: str, value: Any, low: float, high: float, unit: str = "") -> float:
    """A finite number above `low` and up to `high`."""
    number = finite_number(name, value)
    if not low < number <= high:
        wanted = f"above {low:g}" + (f" and up to {high:g}" if high < np.inf else "")
        raise ArgumentError(f"{name}: got {brief(value)}; wanted a number {wanted}{unit and ', '}{unit}")
    return number


def _limits(name: str, value: Any, nv: int) -> Array:
    """Limits (nv,), all above 0; infinity for none."""
    array = real_array(name, value, (), np.float64)
    if array.shape not in ((), (nv,)) or not (array > 0.0).all():
        raise ArgumentError(f"{name}: got {brief(value)}; wanted numbers above 0: one, or model.nv = {nv}")
    return np.broadcast_to(array, (nv,))


def _gains(value: Any, n: int) -> Array:
    array = real_array("gain", value, (), np.float64)
    if array.shape not in ((), (n,)) or not ((array >= 0.0) & (array <= 1.0)).all():
        raise ArgumentError(f"gain: got {brief(value)}; wanted numbers from 0 to 1: one, or {n}, one for each target")
    return np.broadcast_to(array, (n,))


def _posture(model: Model, task: PostureTask) -> Any:
    if task.q == "q0":
        raise ArgumentError("PostureTask.q: got 'q0', but velocities have no initial configuration; wanted (nq,)")
    return middle(model) if task.q == "middle" else task.q


def _wishes(model: Model, tasks: Sequence[Task], hard: Any) -> tuple[Wish, ...]:
    """The tasks that have a twist."""
    every = {k: each for k, each in enumerate(tasks) if not isinstance(each, PostureTask)}
    chosen = strict_types.members(hard) if strict_types.is_a(hard, list, tuple) else (None,)
    numbers = [integer(each) for each in chosen]
    if any(number not in every for number in numbers):
        raise ArgumentError(f"hard: got {brief(hard)}; wanted indices of tasks with a target: {list(every)}")
    return tuple(_wish(model, k, each, k in numbers) for k, each in every.items())


def _point(numbers: Sequence[float]) -> Point:
    x, y, z = numbers
    return x, y, z


def _wish(model: Model, k: int, task: Task, hard: bool) -> Wish:
    if task.bounds:
        raise ArgumentError(f"tasks[{k}]: {type(task).__name__} with bounds has no velocity; wanted one without")
    if getattr(task, "priority", 1) != 1:
        raise ArgumentError(f"tasks[{k}].priority: velocities have none; wanted 1, and hard={[k]} for strict tasks")
    if isinstance(task, CoMTask):
        return Wish(-1, -1, (0.0, 0.0, 0.0), (), task.weight, hard=hard)
    if isinstance(task, DirectionTask):
        turns = (task.weight,) * 3
        return Wish(model.link_index(task.link), -1, (0.0, 0.0, 0.0), turns, (), _point(task.axis), hard)
    if isinstance(task, PositionTask):
        return Wish(model.link_index(task.link), -1, _point(task.point), (), task.weight, hard=hard)
    if not isinstance(task, PoseTask | RelativePoseTask):
        raise ArgumentError(f"tasks[{k}]: {type(task).__name__} has no velocity; wanted one of {_ALLOWED}")
    weights = tuple(task.weight) if len(task.weight) == 6 else tuple(w for w in task.weight for _ in range(3))
    to = model.link_index(task.to) if isinstance(task, RelativePoseTask) else -1
    return Wish(model.link_index(task.link), to, _point(task.point), weights[:3], weights[3:], hard=hard)


def _read_twists(given: Any, wishes: Sequence[Wish], dtype: np.dtype[Any]) -> Array:
    """Twists of all tasks (..., sum of their sizes)."""
    sizes = [each.size for each in wishes]
    n, same = len(sizes), len(set(sizes)) == 1
    if strict_types.is_a(given, list, tuple) and (not same or n > 1):
        parts = strict_types.members(given)
        if len(parts) != n:
            raise ArgumentError(
                f"twists: got {len(parts)} entries; wanted {n}, an array (..., k) for each of k = {sizes}"
            )
        arrays = [real_array(f"twists[{k}]", part, (sizes[k],), dtype) for k, part in enumerate(parts)]
        try:
            leading = np.broadcast_shapes(*(each.shape[:-1] for each in arrays))
        except ValueError:
            shapes = [each.shape for each in arrays]
            raise ArgumentError(f"twists: got shapes {shapes}; wanted leading axes that broadcast") from None
        return np.concatenate([np.broadcast_to(each, (*leading, each.shape[-1])) for each in arrays], -1)
    if not same:
        raise ArgumentError(f"twists: got {brief(given)}; wanted a list of {n} arrays (..., k) with k = {sizes}")
    array = real_array("twists", given, (sizes[0],), dtype, what="a twist of each task")
    if array.ndim == 1 and n == 1:
        array = array[None]
    if array.ndim < 2 or array.shape[-2] != n:
        hint = "; of one task twists[..., None, :]" if n == 1 else ""
        raise ArgumentError(f"twists: got shape {array.shape}; wanted (..., {n}, {sizes[0]}), one for each task{hint}")
    return array.reshape(*array.shape[:-2], n * sizes[0])
