"""Whole-body control: joint torques and contact forces that track tasks, by a quadratic programme in each state."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from robodyn.api.dynamics import Dynamics
from robodyn.compile.c.code import require_identifier, require_unreserved
from robodyn.core.contacts.kinds import Contact
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, one_of, real_array, within_memory
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief, quoted
from robodyn.solve.inverse_kinematics.aims import asked_for
from robodyn.solve.inverse_kinematics.inputs import Inputs
from robodyn.solve.quadratic.report import ProgrammeReport
from robodyn.solve.whole_body.code import RESIDUALS
from robodyn.solve.whole_body.export import c_code
from robodyn.solve.whole_body.program import Controller, aligned
from robodyn.solve.whole_body.terms import terms_task
from robodyn.solve.whole_body.tracking import Tracking, constants_of, feet_of, layout_of, trackings

_ENGINES = ("cpu", "reference")
_CHUNK = 1 << 18
"""Numbers of terms that are computed together, so that they stay in the cache."""


class WholeBodyReport(ProgrammeReport):
    """What became of each state, in arrays with the leading axes of the states.

    `feasible`: True if there are torques within all constraints; results of other states are NaN. `outcome`: 0 if so,
    1 if there are none, 2 if the solver took too many steps, 3 if a number is not finite. `iterations`: steps of the
    solver. `residuals` (..., 4): of the optimality conditions, NaN where not feasible:

    - `stationarity`: the largest entry of the gradient of the Lagrangian along accelerations and forces that the
      dynamics and the feet allow, for the lowest priority, relative to that of the gradient without active limits;
    - `dynamics`: what the base's equations lack, N or Nm;
    - `contacts`: the largest acceleration of a foot that stands, m/s^2;
    - `violation`: by how much a torque exceeds its limit, Nm or N, or a force its pyramid, N.
    """

    __slots__ = ("residuals",)

    def __init__(self, ends: Array, residuals: Array) -> None:
        super().__init__(ends)
        self.residuals = residuals

    @property
    def stationarity(self) -> Array:
        """Relative error of the gradient."""
        return self.residuals[..., 0]

    @property
    def dynamics(self) -> Array:
        """Error of the base's equations."""
        return self.residuals[..., 1]

    @property
    def contacts(self) -> Array:
        """Accelerations of feet that stand."""
        return self.residuals[..., 2]

    @property
    def violation(self) -> Array:
        """Violation of pyramids and limits."""
        return self.residuals[..., 3]


class WholeBodyControl:
    """Joint torques that track tasks, with contact forces that feet can exert.

    In each state it finds accelerations qdd and forces f that minimise

        sum of weight / 2 |J qdd + Jdot qd - (kp e - kd J qd)|^2 + 1e-6 / 2 |f|^2

    over all tasks, with e = (log(R_d R'), p_d - p) in the world's axes for poses, and `model.difference` for postures.
    The dynamics hold; feet that stand have no acceleration; |f_1| / mu_1 + |f_2| / mu_2 <= f_0 for each of them;
    torques are within limits. Tasks of a lower priority act in the null space of higher ones. Pyramids lie within the
    cone of friction; those of `costs.Friction`, |f_1| <= mu f_0 and |f_2| <= mu f_0, lie around it.

    Args:
        dyn: the robot. Damping and friction of joints count as in `Dynamics.inverse_dynamics`. Arithmetic is in double
            precision for either dtype.
        tasks: a list of `Tracking`, or one.
        feet: a list of `Contact` of a `Sphere` on a link with a `Plane` of the world. The point of the sphere that is
            nearest to the plane stands. A list of none is a robot in the air, or one with a fixed base.
        limits: "effort" or ("effort",) for |tau| <= `model.effort_limit`, where joints have one; () or None for none.

    Raises:
        ArgumentError: entries that are no `Tracking` or no `Contact`, links that the model lacks, other limits.
        UnavailableError: the engine is "gpu" or "scan"; joints that mimic others; constraints of the model; feet that
            are no spheres on planes.
    """

    def __init__(
        self,
        dyn: Dynamics,
        tasks: Sequence[Tracking] | Tracking,
        feet: Sequence[Contact] = (),
        limits: str | Sequence[str] | None = ("effort",),
    ) -> None:
        if not strict_types.is_a(dyn, Dynamics):
            raise ArgumentError(f"dyn: got {brief(dyn)}; wanted a robodyn.Dynamics")
        self.model, self.dtype, model = dyn.model, dyn.dtype, dyn.model
        _require_plain(dyn)
        self.tasks = trackings(tasks)
        self.limits = _limits(limits)
        points = feet_of(model, feet)
        self.feet = tuple(strict_types.members(feet))
        own = dyn if dyn.dtype == np.float64 else dyn.variant(dtype="float64")
        self._given, self._dyn = dyn, own
        self._layout = layout_of(model, self.tasks, points, own.joint_forces)
        targeted = [each.task for each in self.tasks if each.task.targeted]
        self._inputs = Inputs(own, targeted, len(targeted), asked_for(model, targeted)) if targeted else None
        self._targeted = [k for k, each in enumerate(self.tasks) if each.task.targeted]
        self._task = terms_task(model, self._layout)
        self._constants, self._roots, self._kept = constants_of(model, self.tasks, self._layout)
        limit = np.full(model.nv, np.inf)
        if self.limits:
            limit[:] = model.effort_limit
        limit[list(self._layout.base)] = np.inf
        self._limit = limit
        self._friction = np.array([foot.friction for foot in points]).reshape(len(points), 2)
        self._prepare()

    def _prepare(self) -> None:
        self._controller = Controller(
            self._dyn.engine, self._layout, self._roots, self._kept, self._friction, self._limit
        )
        self._idle: list[_One] = []

    def __getstate__(self) -> dict[str, Any]:
        """All but machine code, which stays in its process."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_controller", "_idle", "_task")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores it."""
        self.__dict__.update(state)
        self._task = terms_task(self.model, self._layout)
        self._prepare()

    def __repr__(self) -> str:
        names = ", ".join(type(each.task).__name__ for each in self.tasks)
        return f"<WholeBodyControl of {self.model.name!r}: {names}; {len(self.feet)} feet>"

    def __call__(
        self, q: ArrayLike, qd: ArrayLike, targets: ArrayLike | None = None, active: ArrayLike | None = None
    ) -> tuple[Array, Array, Array, WholeBodyReport]:
        """tau (..., nv), qdd (..., nv), f (..., n_feet, 3) and a report.

        tau is zero for the base. f is along the normal and both tangents of `Dynamics.contact_frames`, on the first
        shape of each contact, N: on a horizontal plane along z, y and -x.

        Args:
            q, qd: (..., nq) and (..., nv), the state.
            targets: (..., n, 4, 4) poses of the tasks that are no postures, in their order, as of `InverseKinematics`:
                (4, 4) for a single one, and positions (..., n, 3) if no task looks at rotations.
            active: (..., n_feet) True for feet that stand; others have no force. None: all stand.

        Raises:
            ArgumentError: wrong shapes, or no targets where tasks need some.
            UnavailableError: arrays on a GPU, or a robot too large for one program.
        """
        answer = self._of_one(q, qd, targets, active)
        return self._of_several(q, qd, targets, active) if answer is None else answer

    @within_memory
    def _of_several(self, q: Any, qd: Any, targets: Any, active: Any) -> tuple[Array, Array, Array, WholeBodyReport]:
        """The answer for any states, and for one in the first call."""
        engine, library = self._given._engine_for({"q": q, "qd": qd, "targets": targets, "active": active})
        if library.on_device or engine.name not in _ENGINES:
            raise UnavailableError("WholeBodyControl: got arrays on a GPU; wanted NumPy arrays")
        arrays, leading = self._read(library, q, qd, targets, active)
        if not leading and self._dyn.engine.native and not self._idle:
            with suppress(UnavailableError):  # the long way tells what is the matter
                self._idle.append(_One(self))
        return self._batch(arrays, leading)

    def to_c(self, name: str = "wbc") -> str:
        """The controller as a C99 file with a function `name` for one state, with `<math.h>` alone.

        It returns `report.outcome`, allocates nothing but memory on the stack, and takes a bounded number of steps. gcc
        and clang compile it with `-fno-strict-aliasing`; a comment in the file says what its arguments are.

        Raises:
            ArgumentError: a name that is no C identifier, is a keyword, or that <math.h> declares.
        """
        text = strict_types.text_or_none(name)
        if text is None:
            raise ArgumentError(f"name: got {brief(name)}; wanted a name for the function")
        controller, text = self._controller, require_unreserved("name", require_identifier("name", text))
        return c_code(self.model, self._layout, self._constants, controller.robot, controller.tables, text)

    # Batches.

    def _batch(self, arrays: dict[str, Array], leading: tuple[int, ...]) -> tuple[Array, Array, Array, WholeBodyReport]:
        """The answer for arrays (B, ...)."""
        batch, layout, engine = prod(leading), self._layout, self._dyn.engine
        results = self._controller.results(layout, batch)
        threads = self._dyn.threads or 1
        step = max(16, threads * (_CHUNK // layout.size))
        terms = aligned((min(batch, step), layout.size))
        for first in range(0, batch, step):
            rows = slice(first, min(first + step, batch))
            count = rows.stop - rows.start
            some = {name: each[rows] for name, each in arrays.items() if name != "on"}
            some |= {name: np.broadcast_to(each, (count, *each.shape)) for name, each in self._constants.items()}
            engine.compose(self._task, some, {"terms": terms[:count]})
            own = [terms, arrays["on"][rows], *(each[rows] for each in results)]
            self._controller.for_several(count).run(self._controller.table(own), count)
        tau, qdd, f, ends, residuals = results
        tau, qdd, f = (each.astype(self.dtype, copy=False) for each in (tau, qdd, f))
        report = WholeBodyReport(ends.reshape(*leading, 2), residuals.reshape(*leading, len(RESIDUALS)))
        nv = layout.nv
        return tau.reshape(*leading, nv), qdd.reshape(*leading, nv), f.reshape(*leading, *f.shape[1:]), report

    def _read(
        self, library: Any, q: Any, qd: Any, targets: Any, active: Any
    ) -> tuple[dict[str, Array], tuple[int, ...]]:
        """The inputs of a call (B, ...) by name, and the leading axes."""
        model, feet = self.model, len(self.feet)
        arrays = {
            "q": real_array("q", q, (model.nq,), np.float64, what="model.nq numbers"),
            "qd": real_array("qd", qd, (model.nv,), np.float64, what="model.nv numbers"),
            "on": np.ones(feet) if active is None else _flags(active, feet),
        }
        if self._inputs is None:
            if targets is not None:
                raise ArgumentError("targets: no task has one; wanted None")
        elif targets is None:
            raise ArgumentError(
                f"targets: got None; wanted {len(self._targeted)} poses (..., n, 4, 4), one for each task"
            )
        else:
            goals, _, own = self._inputs.read(library, self._inputs.poses(targets), None)
            arrays["goals"] = goals.reshape(*own, goals.shape[-1])
        try:
            leading = np.broadcast_shapes(*(each.shape[:-1] for each in arrays.values()))
        except ValueError:
            names = {"goals": "targets", "on": "active"}
            shapes = ", ".join(f"{names.get(name, name)} {each.shape[:-1]}" for name, each in arrays.items())
            raise ArgumentError(f"WholeBodyControl: got leading axes {shapes}; wanted some that broadcast") from None
        batch = prod(leading)
        return {
            name: np.ascontiguousarray(np.broadcast_to(a, (*leading, a.shape[-1])).reshape(batch, a.shape[-1]))
            for name, a in arrays.items()
        }, leading

    # One state.

    def _of_one(self, q: Any, qd: Any, targets: Any, active: Any) -> tuple[Array, Array, Array, WholeBodyReport] | None:
        """The answer for one state by calls on memory that is kept; None if there is another way."""
        try:
            one = self._idle.pop()  # of this thread alone, until it is back
        except IndexError:
            return None
        try:
            return one.answer(q, qd, targets, active)
        finally:
            self._idle.append(one)


class _One:
    """Memory of one state, and calls on it.

    Raises:
        UnavailableError: there is no such call.
    """

    def __init__(self, of: WholeBodyControl) -> None:
        layout, model, engine = of._layout, of.model, of._dyn.engine
        inputs = {name: np.zeros((1, *each.shape(model))) for name, each in of._task.given.items()}
        for name, constant in of._constants.items():
            inputs[name][0] = constant
        terms = aligned((1, layout.size))
        program = engine.bound(of._task, inputs, {"terms": terms})
        if program is None:
            raise UnavailableError("WholeBodyControl: no program")
        self._dtype, on = of.dtype, np.ones((1, len(layout.feet)))
        self._results = of._controller.results(layout, 1)
        table = of._controller.table([terms, on, *self._results])
        self._program = program.run
        self._solve = of._controller.one(table, terms, on, self._results)
        self._q, self._qd, self._on = inputs["q"][0], inputs["qd"][0], on[0]
        n = layout.targets
        self._goals = inputs["goals"][0].reshape(n, 4, 4) if n else None

    def answer(self, q: Any, qd: Any, targets: Any, active: Any) -> tuple[Array, Array, Array, WholeBodyReport] | None:
        """The answer for one state; None if arrays have other types or shapes."""
        dtype = self._dtype
        if type(q) is not np.ndarray or q.dtype is not dtype or q.shape != self._q.shape:
            return None
        if type(qd) is not np.ndarray or qd.dtype is not dtype or qd.shape != self._qd.shape:
            return None
        if self._goals is not None:
            if type(targets) is not np.ndarray or targets.dtype is not dtype:
                return None
            if targets.shape != self._goals.shape and targets.shape != self._goals.shape[1:] * (len(self._goals) == 1):
                return None
            self._goals[...] = targets
        elif targets is not None:
            return None
        if active is None:
            self._on[...] = 1.0
        elif type(active) is np.ndarray and active.dtype == bool and active.shape == self._on.shape:
            self._on[...] = active
        else:
            return None
        self._q[...], self._qd[...] = q, qd
        self._program()
        self._solve()
        tau, qdd, f, ends, residuals = (each[0].copy() for each in self._results)
        if dtype != np.float64:
            tau, qdd, f = (each.astype(dtype) for each in (tau, qdd, f))
        return tau, qdd, f, WholeBodyReport(ends, residuals)


def _require_plain(dyn: Dynamics) -> None:
    """Refuse what the equations of this module lack."""
    model = dyn.model
    if dyn.engine.name not in _ENGINES:
        raise UnavailableError(f"WholeBodyControl: got engine {dyn.engine.name!r}; allowed: 'cpu', 'reference'")
    if not model.nv:
        raise ArgumentError(f"model {model.name!r} has no joints that move; wanted one with some")
    if (model.mimics >= 0).any():
        names = ", ".join(quoted(model.joint_names[k]) for k in np.flatnonzero(model.mimics >= 0).tolist())
        raise UnavailableError(f"WholeBodyControl: joints {names} mimic others; wanted a model without")
    if model.constraints:
        names = ", ".join(quoted(each.name) for each in model.constraints)
        raise UnavailableError(f"WholeBodyControl: the model has constraints {names}; wanted one without")


def _limits(given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    entries = strict_types.members(given) if strict_types.is_a(given, list, tuple) else (given,)
    return tuple(dict.fromkeys(one_of("limits", each, ("effort",)) for each in entries))


def _flags(given: Any, feet: int) -> Array:
    """1 for True, 0 for False, of each foot."""
    array = real_array("active", given, (feet,), np.float64, what="a flag of each foot", flags=True)
    if not ((array == 0.0) | (array == 1.0)).all():
        raise ArgumentError(f"active: got {brief(given)}; wanted True or False for each foot")
    return array
