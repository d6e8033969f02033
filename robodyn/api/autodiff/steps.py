"""Differentiable steps and rollouts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.algorithms.constraints.targets import targets_of
from robodyn.algorithms.tasks import COEFFICIENTS, Step
from robodyn.api.autodiff.calls import Call, TaskCall
from robodyn.api.autodiff.coordinates import Coordinates
from robodyn.api.autodiff.traced_rules import Answers
from robodyn.api.motion.step_spec import chosen_step, contact_step_at, forces_given, limits_kept, require_targets
from robodyn.api.motion.unused import warn_of_unused_forces
from robodyn.api.queries.contacts import without_dry_friction
from robodyn.core.constraints.resolved import anchored_by_calls
from robodyn.core.integrators import HOLDS_JOINTS, INTEGRATORS
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
_FOR_EACH_STEP = ("tau", "f_ext", "V0", "dV0", "q_des", "targets", "active")
"""Arrays that may change with every step."""
_MOST_STEPS = 1 << 30
_FEW = 8
"""Up to this many steps reverse mode stores all states instead of recomputing them."""
STEPS = ("step", "rollout")
"""Names of the functions."""

State = tuple[Any, Any]


class StepCall(TaskCall):
    """A step of an integrator. For robots too large for one program `Dynamics.step` computes it in parts."""

    does_without_program = True

    def answers(self, *arrays: Any, out: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        """The state after the step."""
        inputs, step = dict(zip(self.inputs, arrays, strict=True)), self.task
        engine, library = self.dyn._engine_for(inputs)
        assert isinstance(step, Step)
        if engine.has_program(step, self.base):
            return super().answers(*arrays, out=out)
        times = np.unique(library.to_numpy(inputs.pop("dt")))
        if times.size > 1:
            raise UnavailableError(f"step: {self.dyn.model.name!r} is too large for steps of several lengths at once")
        time = float(times[0]) if times.size else 1.0
        return self.dyn.step(**inputs, dt=time, integrator=step.integrator, limits=step.limits, out=out)


def as_static(name: str, value: Any) -> Any:
    """Convert an argument that is no array to a hashable value."""
    if name == "integrator":
        return one_of("integrator", value, tuple(INTEGRATORS))
    if name == "limits":
        return limits_kept(value, HOLDS_JOINTS[0])
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
        """Read the arguments that are not None: quaternions become unit, and all arrays get equally many leading
        axes."""

    @abstractmethod
    def _read(self, name: str, value: Any) -> Any:
        """Convert an argument to an array of the library in the working precision; may raise an ArgumentError."""

    @abstractmethod
    def _require_regular(self, held: bool = False) -> None:
        """Raise if the mass matrix is singular at every state; with `held` only if the constraints do not hold what has
        no mass."""

    @abstractmethod
    def forward_kinematics(self, q: Any) -> Any:
        """Transforms from all links to the world (..., n_links, 4, 4)."""

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
        targets: Any = None,
        active: Any = None,
        limits: str | Iterable[str] = (),
    ) -> State:
        """The state dt seconds later, q (..., nq) and qd (..., nv), as in `robodyn.Dynamics.step`.

        Differentiable to any order with respect to all arrays, including dt (...). The derivatives are those of the
        discrete step. A robot with constraints obeys them, and the step ends with `project`. Constraints to the world
        without `to_at` hold their links where q has them. These places count as constants in derivatives.

        Raises:
            SingularError: the mass matrix is singular at every state, and constraints do not hold what has no mass;
                names the body.
            UnavailableError: (derivatives) the robot is too large for straight-line code.
        """
        forces = {"tau": tau, **forces_given(locals()), **self._standing(q, targets)}
        stepper = _Stepper(self, forces, integrator, limits)
        arrays = self._arrays({"q": q, "qd": qd, "dt": self._time(dt), **forces}, tuple(forces))
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
        targets: Any = None,
        active: Any = None,
        limits: str | Iterable[str] = (),
        save_every: int | None = 1,
    ) -> State:
        """The kept states q (K, ..., nq) and qd (K, ..., nv) of a rollout, as in `robodyn.Dynamics.rollout`.

        Unlike there, rows that diverge become NaN or infinite. Reverse mode stores the kept states and recomputes the
        others: in between it needs the memory of 2 sqrt(save_every) states. Constraints are obeyed as by `step`.

        Raises:
            SingularError: as of `step`.
            UnavailableError: (derivatives) the robot is too large for straight-line code.
        """
        n = count("steps", steps, 1, _MOST_STEPS)
        forces = {"tau": tau, **forces_given(locals()), **self._standing(q0, targets)}
        every = n if save_every is None else count("save_every", save_every, 1, _MOST_STEPS)
        stepper = _Stepper(self, forces, integrator, limits)
        warn_of_unused_forces(self.dyn, "rollout", forces)
        fixed, timed = self._in_time({"q": q0, "qd": qd0, "dt": self._time(dt), **forces}, n)
        return _Followed(stepper, self._library, stepper.allowed(fixed), timed).states(n, min(every, n))

    def _standing(self, q: Any, targets: Any) -> dict[str, Any]:
        """The targets, if none are given, of constraints to the world that hold their links where they are. They do not
        depend on q for differentiation."""
        if targets is not None or not anchored_by_calls(self.model.constraints):
            return {}
        poses = self.forward_kinematics(self._library.fixed(self._read("q", q)))
        return {"targets": targets_of(self.model, poses, self._library.xp, self._library.constant)}

    def _time(self, dt: Any) -> Any:
        """Convert a number of seconds to an array; return anything else unchanged.

        Raises:
            ArgumentError: the number is not positive.
        """
        seconds = finite_real(dt)
        if seconds is None:
            return dt
        if seconds <= 0.0:
            raise ArgumentError(f"dt: got {brief(dt)}; wanted a positive finite number of seconds")
        return self._library.constant(np.array(seconds))

    def _in_time(self, given: Mapping[str, Any], n: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Separate constant arguments, including the first state, from those with a row for each of n steps."""
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
        # The first row of a timed array has its shape for one step.
        constant = self._arrays({**stays, **{name: each[0] for name, each in rows.items()}}, tuple(stays))
        q, qd = constant["q"], constant["qd"]
        leading = np.broadcast_shapes(q.shape[:-1], qd.shape[:-1])
        for name, array in constant.items():
            leading_axes = array.shape[: len(array.shape) - len(shapes[name])]
            if np.broadcast_shapes(leading_axes, leading) != leading:
                raise ArgumentError(
                    f"{name}: got leading axes {leading_axes}, states have {leading}; wanted axes that broadcast to "
                    "those of the states"
                )
            if name in timed:
                rows[name] = rows[name].reshape((n, *array.shape))
        xp = self._library.xp
        for name, array in (("q", q), ("qd", qd)):
            constant[name] = xp.broadcast_to(array, (*leading, array.shape[-1]))
        return {name: array for name, array in constant.items() if name not in timed}, rows


class _Stepper:
    """A step of a robot on arrays of a library: the user's arguments by name, with equally many leading axes."""

    def __init__(
        self, functions: Stepping, given: Mapping[str, Any], integrator: str, limits: str | Iterable[str]
    ) -> None:
        functions._require_regular(held=bool(functions.model.constraints))
        require_targets(given)
        chosen = one_of("integrator", integrator, tuple(INTEGRATORS))
        names = {name for name, value in given.items() if value is not None} | {"tau"}
        if "gravity" in names:
            names = names - {"gravity"} | {"dV0"}
        step: Any = chosen_step(functions.dyn, tuple(sorted(names)), chosen, limits_kept(limits, chosen), contacts=True)
        base = tuple(name for name in BASE if name in names)
        kind: type[TaskCall] = StepCall
        if functions.model.contacts is not None:
            inputs = ("q", "qd", "dt", *names)
            step, base, kind = contact_step_at(functions.dyn, chosen, None, inputs), (), TaskCall
        loose = np.isin(np.arange(functions.model.nv), without_dry_friction(functions.model)).astype(np.float64)
        self._loose = None if functions.model.contacts is None else functions._library.constant(loose)
        key = "step", step, base
        self._library = library = functions._library
        if key not in functions._calls:
            functions._calls[key] = kind(library.asked(functions.dyn), "step", step, base, checks=True)
        self._call, self._coordinates, model = functions._calls[key], functions._coordinates, functions.model
        self._no_tau, self._gravity = (library.constant(each) for each in (np.zeros(model.nv), model.gravity))

    def allowed(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Replace values that `Dynamics` refuses by NaN: negative stiffness, damping, friction or armature, and dt that
        is not positive; dt also where friction has no row of contacts. Values cannot be read while a library traces, so
        no error is raised. Multiplication by NaN or 1 keeps derivatives with respect to the argument."""
        xp, checked = self._library.xp, dict(arrays)
        if "friction" in checked and self._loose is not None:
            loose = xp.where(checked["friction"] * self._loose > 0.0, 1.0, 0.0).sum(-1) > 0.0
            checked["dt"] = checked["dt"] * xp.where(loose, math.nan, 1.0)
        for name in (*COEFFICIENTS, "kp", "kd", "dt"):
            if name in checked:
                wrong = checked[name] <= 0.0 if name == "dt" else checked[name] < 0.0
                checked[name] = checked[name] * xp.where(wrong, math.nan, 1.0)
        return checked

    def unit(self, q: Any) -> Any:
        """q with unit quaternions."""
        return self._coordinates.unit(q)

    def step(self, arrays: Mapping[str, Any]) -> State:
        """The state after the step."""
        xp, inputs = self._library.xp, dict(arrays)
        ones = (1,) * (len(inputs["q"].shape) - 1)
        if isinstance(self._call, StepCall):
            inputs["dt"] = inputs["dt"][..., None]
        for name in ("q", "q_des"):  # steps require unit quaternions
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
    """A rollout. `fixed`: the first state and constant inputs; `timed` (n, ...): inputs that change with every step."""

    def __init__(self, stepper: _Stepper, library: Library, fixed: Mapping[str, Any], timed: Mapping[str, Any]) -> None:
        self._stepper, self._library, self._timed = stepper, library, timed
        self._fixed = {name: array for name, array in fixed.items() if name not in ("q", "qd")}
        self._start: State = stepper.unit(fixed["q"]), fixed["qd"]

    def states(self, n: int, every: int) -> State:
        """The first state, every `every`-th state, and the last one."""
        library, windows = self._library, n // every
        follow = self._stepped if every == 1 else library.remade(partial(self._followed, every))

        def block(state: State, timed: Mapping[str, Any]) -> tuple[State, State]:
            state = follow(state, timed)
            return state, state

        in_windows = self._timed
        if every > 1:
            in_windows = {name: _cut(array, windows, every) for name, array in in_windows.items()}
        last, stacked = library.scan(block, self._start, in_windows, windows)
        parts = [[each[None], *others] for each, *others in zip(self._start, stacked, strict=True)]
        if n % every:
            rest = {name: array[windows * every :] for name, array in self._timed.items()}
            for part, each in zip(parts, self._followed(n % every, last, rest), strict=True):
                part.append(each[None])
        q, qd = (library.xp.concatenate(part, 0) for part in parts)
        return q, qd

    def _stepped(self, state: State, timed: Mapping[str, Any]) -> State:
        q, qd = state
        return self._stepper.step({**self._fixed, **timed, "q": q, "qd": qd})

    def _plain(self, n: int, state: State, timed: Mapping[str, Any]) -> State:
        """The state after n steps. Reverse mode stores all states."""
        last, _ = self._library.scan(lambda state, now: (self._stepped(state, now), None), state, timed, n)
        return last  # type: ignore[no-any-return]

    def _followed(self, n: int, state: State, timed: Mapping[str, Any]) -> State:
        """The state after n steps. Reverse mode stores about 2 sqrt(n) states."""
        if n < _FEW:
            return self._plain(n, state, timed)
        length = math.isqrt(n - 1) + 1
        whole = n // length
        window = self._library.remade(partial(self._plain, length))
        in_windows = {name: _cut(array, whole, length) for name, array in timed.items()}
        state, _ = self._library.scan(lambda state, now: (window(state, now), None), state, in_windows, whole)
        rest = {name: array[whole * length :] for name, array in timed.items()}
        return self._plain(n - whole * length, state, rest) if n > whole * length else state


def _cut(array: Any, count: int, length: int) -> Any:
    """The first `count * length` rows, reshaped to (count, length, ...)."""
    return array[: count * length].reshape((count, length, *array.shape[1:]))
