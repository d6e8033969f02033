"""Steps and rollouts as functions that a library differentiates."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.algorithms.tasks import COEFFICIENTS, Step
from robodyn.api.autodiff.calls import Call, TaskCall
from robodyn.api.autodiff.coordinates import Coordinates
from robodyn.api.autodiff.traced_rules import Answers
from robodyn.api.motion.step_spec import chosen_step, forces_given, limits_kept, require_targets
from robodyn.api.motion.unused import warn_of_unused_forces
from robodyn.core.constraints.refusals import require_no_constraints
from robodyn.core.integrators import IMPLICIT, INTEGRATORS
from robodyn.engines.query_table import BASE
from robodyn.internals.arguments import count, finite_real, one_of
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief

if TYPE_CHECKING:
    from robodyn.api.autodiff.rules import Library
    from robodyn.api.dynamics import Dynamics
    from robodyn.core.model import Model

STATIC_OF_STEPS = ("steps", "integrator", "limits", "save_every")
"""Arguments that are no arrays."""
_FOR_EACH_STEP = ("tau", "f_ext", "V0", "dV0", "q_des")
"""Arrays that may have others in each step."""
_MOST_STEPS = 1 << 30
_FEW = 8
"""Steps that are differentiated without making states again."""
STEPS = ("step", "rollout")
"""Names of the functions."""

State = tuple[Any, Any]


class StepCall(TaskCall):
    """A step of an integrator; robots too large for one program make it in parts."""

    does_without_program = True

    def answers(self, *arrays: Any, out: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        """The state after it."""
        given, step = dict(zip(self.inputs, arrays, strict=True)), self.task
        engine, library = self.dyn._engine_for(given)
        assert isinstance(step, Step)
        if engine.has_program(step, self.base):
            return super().answers(*arrays, out=out)
        times = np.unique(library.to_numpy(given.pop("dt")))
        if times.size != 1:
            raise UnavailableError(f"step: {self.dyn.model.name!r} is too large for steps of several lengths at once")
        time = float(times[0])
        return self.dyn.step(**given, dt=time, integrator=step.integrator, limits=step.limits, out=out)


def as_static(name: str, value: Any) -> Any:
    """An argument that is no array, as one that hashes and compares."""
    if name == "integrator":
        return one_of("integrator", value, tuple(INTEGRATORS))
    if name == "limits":
        return limits_kept(value, IMPLICIT[0])
    return None if value is None else count(name, value, 1, _MOST_STEPS)


class Stepping(ABC):
    """Functions `step` and `rollout`."""

    dyn: Dynamics
    model: Model
    _library: Library
    _calls: dict[tuple[Any, ...], Call]
    _coordinates: Coordinates

    @abstractmethod
    def _arrays(self, given: Mapping[str, Any], optional: tuple[str, ...]) -> dict[str, Any]:
        """Arguments read by name, those that are there: q of unit quaternions, all with equally many leading axes."""

    @abstractmethod
    def _read(self, name: str, value: Any) -> Any:
        """An argument as an array of the library, in the precision that is computed in; raises an ArgumentError."""

    @abstractmethod
    def _require_regular(self) -> None:
        """Raise where there are no accelerations."""

    def step(
        self,
        q: Any,
        qd: Any,
        tau: Any = None,
        dt: Any = 1e-3,
        *,
        integrator: str = "semi_implicit_euler",
        f_ext: Any = None,
        inertia: Any = None,
        armature: Any = None,
        damping: Any = None,
        friction: Any = None,
        gravity: Any = None,
        V0: Any = None,
        dV0: Any = None,
        kp: Any = None,
        kd: Any = None,
        q_des: Any = None,
        limits: str | Iterable[str] = (),
    ) -> State:
        """The state dt seconds later, q (..., nq) and qd (..., nv), as `robodyn.Dynamics.step` has it.

        Differentiable by all arrays, dt (...) among them, to any order: what is differentiated is the step that is
        taken.

        Raises:
            SingularError: the mass matrix is singular whatever the state; names the body.
            UnavailableError: of its derivatives, a robot too large for straight-line code.
        """
        given = {"tau": tau, **forces_given(locals())}
        stepper = _Stepper(self, given, integrator, limits)
        arrays = self._arrays({"q": q, "qd": qd, "dt": self._time(dt), **given}, tuple(given))
        return stepper.step(stepper.allowed(arrays))

    def rollout(
        self,
        q0: Any,
        qd0: Any,
        tau: Any = None,
        dt: Any = 1e-3,
        steps: int = 1000,
        *,
        integrator: str = "semi_implicit_euler",
        f_ext: Any = None,
        inertia: Any = None,
        armature: Any = None,
        damping: Any = None,
        friction: Any = None,
        gravity: Any = None,
        V0: Any = None,
        dV0: Any = None,
        kp: Any = None,
        kd: Any = None,
        q_des: Any = None,
        limits: str | Iterable[str] = (),
        save_every: int | None = 1,
    ) -> State:
        """States q (K, ..., nq) and qd (K, ..., nv) that a rollout keeps, as `robodyn.Dynamics.rollout` has them, but
        that rows which diverge go on to be no numbers.

        Reverse mode keeps those states, and makes the others again: between two that are kept it takes the memory of
        2 sqrt(save_every) of them.

        Raises:
            SingularError: the mass matrix is singular whatever the state; names the body.
            UnavailableError: of its derivatives, a robot too large for straight-line code.
        """
        n, given = count("steps", steps, 1, _MOST_STEPS), {"tau": tau, **forces_given(locals())}
        every = n if save_every is None else count("save_every", save_every, 1, _MOST_STEPS)
        stepper = _Stepper(self, given, integrator, limits)
        warn_of_unused_forces(self.dyn, "rollout", given)
        fixed, timed = self._in_time({"q": q0, "qd": qd0, "dt": self._time(dt), **given}, n)
        return _Followed(stepper, self._library, stepper.allowed(fixed), timed).states(n, min(every, n))

    def _time(self, dt: Any) -> Any:
        """An array, of a number that is a time.

        Raises:
            ArgumentError: it is none.
        """
        seconds = finite_real(dt)
        if seconds is None:
            return dt
        if seconds <= 0.0:
            raise ArgumentError(f"dt: got {brief(dt)}; wanted a positive finite number of seconds")
        return self._library.constant(np.array(seconds))

    def _in_time(self, given: Mapping[str, Any], n: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments that stay, the first state among them, and those that have a row for each of n steps."""
        shapes, rows = self.dyn.argument_shapes, {}
        axes = {name: np.ndim(value) - len(shapes[name]) for name, value in given.items() if value is not None}
        timed = {name for name in _FOR_EACH_STEP if name in axes and axes[name] > max(axes["q"], axes["qd"])}
        for name in timed:
            rows[name] = self._read(name, given[name])
            if rows[name].shape[0] != n:
                raise ArgumentError(
                    f"{name}: got shape {tuple(rows[name].shape)} for {n} steps; wanted {n} rows, or an axis less"
                )
        stays = {name: each for name, each in given.items() if name not in timed}
        # One row of each says what shape it has for a step.
        found = self._arrays({**stays, **{name: each[0] for name, each in rows.items()}}, tuple(stays))
        q, qd = found["q"], found["qd"]
        leading = np.broadcast_shapes(q.shape[:-1], qd.shape[:-1])
        for name, array in found.items():
            own = array.shape[: len(array.shape) - len(shapes[name])]
            if np.broadcast_shapes(own, leading) != leading:
                raise ArgumentError(f"{name}: got {own} of them for states {leading}; wanted states for all, or fewer")
            if name in timed:
                rows[name] = rows[name].reshape((n, *array.shape))
        xp = self._library.xp
        for name, array in (("q", q), ("qd", qd)):
            found[name] = xp.broadcast_to(array, (*leading, array.shape[-1]))
        return {name: array for name, array in found.items() if name not in timed}, rows


class _Stepper:
    """A step of a robot on arrays of a library: by name what a user gives, all with equally many leading axes."""

    def __init__(
        self, functions: Stepping, given: Mapping[str, Any], integrator: str, limits: str | Iterable[str]
    ) -> None:
        functions._require_regular()
        require_no_constraints(functions.model, "step and rollout of an automatic differentiation")
        require_targets(given)
        chosen = one_of("integrator", integrator, tuple(INTEGRATORS))
        names = {name for name, value in given.items() if value is not None} | {"tau"}
        if "gravity" in names:
            names = names - {"gravity"} | {"dV0"}
        step = chosen_step(functions.dyn, tuple(sorted(names)), chosen, limits_kept(limits, chosen))
        base = tuple(name for name in BASE if name in names)
        key = "step", step, base
        self._library = library = functions._library
        if key not in functions._calls:
            functions._calls[key] = StepCall(library.asked(functions.dyn), "step", step, base, checks=True)
        self._call, self._coordinates, model = functions._calls[key], functions._coordinates, functions.model
        self._no_tau, self._gravity = (library.constant(each) for each in (np.zeros(model.nv), model.gravity))

    def allowed(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments, those that `Dynamics` refuses as no numbers: stiffness, damping, friction and armature below zero,
        and times that are not above it. Values are not looked at where something is recorded, so rows tell of it; by a
        product, which derivatives by the argument itself go through."""
        xp, found = self._library.xp, dict(arrays)
        for name in (*COEFFICIENTS, "kp", "kd", "dt"):
            if name in found:
                wrong = found[name] <= 0.0 if name == "dt" else found[name] < 0.0
                found[name] = found[name] * xp.where(wrong, math.nan, 1.0)
        return found

    def unit(self, q: Any) -> Any:
        """q with quaternions of unit length."""
        return self._coordinates.unit(q)

    def step(self, arrays: Mapping[str, Any]) -> State:
        """The state after it."""
        xp, inputs = self._library.xp, dict(arrays)
        ones = (1,) * (len(inputs["q"].shape) - 1)
        inputs["dt"] = inputs["dt"][..., None]
        for name in ("q", "q_des"):  # steps move what is unit
            if name in inputs:
                inputs[name] = self._coordinates.unit(inputs[name])
        if "tau" not in inputs:
            inputs["tau"] = self._no_tau.reshape((*ones, -1))
        if "gravity" in inputs:
            upward = self._gravity - inputs.pop("gravity")
            accelerated = xp.concatenate((xp.zeros_like(upward), upward), -1)
            inputs["dV0"] = inputs["dV0"] + accelerated if "dV0" in inputs else accelerated
        points = tuple(inputs[name] for name in self._call.inputs)
        q, qd = self._library.linear(Answers(self._call, self._library), points, ())
        return q, qd


class _Followed:
    """A rollout of `n` steps: `fixed` are the first state and what stays, `timed` (n, ...) what changes."""

    def __init__(self, stepper: _Stepper, library: Library, fixed: Mapping[str, Any], timed: Mapping[str, Any]) -> None:
        self._stepper, self._library, self._timed = stepper, library, timed
        self._fixed = {name: array for name, array in fixed.items() if name not in ("q", "qd")}
        self._start: State = stepper.unit(fixed["q"]), fixed["qd"]

    def states(self, n: int, every: int) -> State:
        """The first state, each that `every` steps lead to, and the last."""
        library, whole = self._library, n // every
        follow = self._stepped if every == 1 else library.remade(partial(self._followed, every))

        def block(state: State, timed: Mapping[str, Any]) -> tuple[State, State]:
            state = follow(state, timed)
            return state, state

        among = self._timed
        if every > 1:
            among = {name: _cut(array, whole, every) for name, array in among.items()}
        last, kept = library.scan(block, self._start, among, whole)
        parts = [[each[None], *others] for each, *others in zip(self._start, kept, strict=True)]
        if n % every:
            rest = {name: array[whole * every :] for name, array in self._timed.items()}
            for part, each in zip(parts, self._followed(n % every, last, rest), strict=True):
                part.append(each[None])
        q, qd = (library.xp.concatenate(part, 0) for part in parts)
        return q, qd

    def _stepped(self, state: State, timed: Mapping[str, Any]) -> State:
        q, qd = state
        return self._stepper.step({**self._fixed, **timed, "q": q, "qd": qd})

    def _plain(self, n: int, state: State, timed: Mapping[str, Any]) -> State:
        """The state after n steps, of which reverse mode keeps them all."""
        found, _ = self._library.scan(lambda state, now: (self._stepped(state, now), None), state, timed, n)
        return found  # type: ignore[no-any-return]

    def _followed(self, n: int, state: State, timed: Mapping[str, Any]) -> State:
        """The state after n steps, of which reverse mode keeps about 2 sqrt(n)."""
        if n < _FEW:
            return self._plain(n, state, timed)
        length = math.isqrt(n - 1) + 1
        whole = n // length
        window = self._library.remade(partial(self._plain, length))
        among = {name: _cut(array, whole, length) for name, array in timed.items()}
        state, _ = self._library.scan(lambda state, now: (window(state, now), None), state, among, whole)
        rest = {name: array[whole * length :] for name, array in timed.items()}
        return self._plain(n - whole * length, state, rest) if n > whole * length else state


def _cut(array: Any, count: int, length: int) -> Any:
    """The first count length rows as (count, length, ...)."""
    return array[: count * length].reshape((count, length, *array.shape[1:]))
