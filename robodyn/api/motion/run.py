"""Steps of a rollout: by programs of engines, or by the generic integrators over arrays.

Both share the arguments of the call, which `Run` reads and lays out once.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from robodyn.algorithms.dual_numbers import Differentiable, Slopes, step_gradient
from robodyn.algorithms.joint_limits import dof_of_coordinates, inertia_moved, limits_of, linear_dofs
from robodyn.algorithms.tasks import COEFFICIENTS, Repeated, ScalarTask, Step, StepGradient, Task
from robodyn.api.motion.built_in_steps import NOT_NEGATIVE, STEADY, nearly_unit, nearly_unit_on_device
from robodyn.api.motion.policy import BuiltInStep, Policy, PolicyLoop, Stop, follow, tau_of
from robodyn.api.motion.step_spec import (
    FORWARD_DYNAMICS,
    WITH_CONTACTS,
    chosen_step,
    contact_step_gradient_of,
    gradient_of,
    limits_kept,
    require_targets,
    step_solver,
)
from robodyn.api.queries.call import Call, against_gravity
from robodyn.api.queries.contacts import OF_CONTACTS, Solver, require_not_negative, require_of_contacts, warn_of_rows
from robodyn.core.constraints.resolved import anchored_by_calls
from robodyn.core.integrators import HOLDS_JOINTS, INTEGRATORS, STABLE, Limits
from robodyn.core.joints import JointKind
from robodyn.engines.protocol import Engine, TimeLoops
from robodyn.engines.query_table import BASE, FLAGS, OF_CONSTRAINTS
from robodyn.engines.recursions import recursive_engine
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, real_array, require_finite
from robodyn.internals.array_library import Library
from robodyn.internals.cached import cached_property
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import users_line

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics

_LOOKED_AT, _POWERS = 16, 12
"""Number of states and of power iterations for the estimate of the damping rate."""
_FEW = 1 << 13
"""Numbers of states whose sum of squares is taken."""
_WINDOW_S = 0.1
"""A window stepped in Python ends after this many seconds, so that checkpoints and progress lag no more."""


@contextmanager
def memory_for(batch: int) -> Iterator[None]:
    """Context that turns a MemoryError of a step of `batch` states into an UnavailableError."""
    try:
        yield
    except MemoryError as error:
        raise UnavailableError(
            f"rollout: no memory for a step of {batch} states ({error}); ask for fewer states at a time"
        ) from error


class Run:
    """A rollout in progress.

    `dyn`: the `Dynamics`. `start`: the call with the first states. `given`: other inputs by name, (1, B, ...) or
    (steps, B, ...). `as_given`: the same before quaternions are normalised. `timed`: names of inputs that change with
    time. `asked`: the last tau (B, nv) of the policy. `library`: array library of the engine. `outer`: array library of
    the user's arrays. `interrupted`: True after Ctrl-C.
    """

    def __init__(
        self,
        dyn: Dynamics,
        start: Call,
        dt: float,
        steps: int,
        integrator: str,
        given: Mapping[str, Any],
        limits: Any,
        policy: Policy | None = None,
    ) -> None:
        checked_limits = limits_kept(limits, integrator)
        require_targets(given)
        for name in OF_CONTACTS:
            if given.get(name) is not None and dyn.model.contacts is None:
                require_of_contacts(dyn.model, name, given[name])
        self.dyn, self.start, self.dt, self.steps, self.policy = dyn, start, dt, steps, policy
        self.integrator, self.engine, self.outer, self.interrupted = integrator, start.engine, start.library, False
        self.library: Library = getattr(start.engine, "library", start.library)
        self.timed: set[str] = set()
        self.asked: Array | None = None
        self.given = {name: self._read(name, value) for name, value in given.items() if value is not None}
        self.as_given = dict(self.given)
        if "tau" not in self.given:
            self.given["tau"] = self.library.xp.zeros((1, start.batch, dyn.model.nv), dyn.dtype)
        if "q_des" in self.given:
            self.given["q_des"] = self._attitudes_of("q_des")
        if "gravity" in self.given:
            model_gravity = self.library.constant(dyn.model.gravity.astype(dyn.dtype))
            gravity, dV0 = self.given.pop("gravity"), self.given.get("dV0")
            self.given["dV0"] = against_gravity(self.library.xp, model_gravity, gravity, dV0)
        self.converged = self.library.xp.full(start.batch, True, bool)
        if (
            dyn.model.contacts is None
            and dyn.model.constraints
            and "targets" not in self.given
            and anchored_by_calls(dyn.model.constraints)
        ):
            standing = cast(Any, dyn).constraint_targets(self.library.to_numpy(self.first()[0]))
            self.given["targets"] = self.library.like_numpy(standing)[None]
        self.step = chosen_step(dyn, tuple(self.given), integrator, checked_limits, contacts=True)
        self._require_regular()
        if start.checked:
            start.require_attitudes()
        start.library = self.library
        self._warn_of_damping()

    @cached_property
    def step_gradient(self) -> StepGradient:
        """The derivative of a step."""
        return gradient_of(self.step, self.dyn.model, tuple(self.given))

    @cached_property
    def moves(self) -> Array | None:
        """The inertia that each degree of freedom moves, if the step may hold joints at limits, else None."""
        if not self.step.holds:
            return None
        return self.library.constant(inertia_moved(self.dyn.model).astype(self.dyn.dtype))

    @cached_property
    def bounds(self) -> dict[str, Limits]:
        """The model's limits as arrays of the engine's library."""
        dtype, placed = self.dyn.dtype, self.library.constant
        return {
            name: Limits(
                placed(each.on), placed(each.bound.astype(dtype)), None if each.at is None else placed(each.at)
            )
            for name, each in limits_of(self.dyn.model, self.step.limits).items()
        }

    def _require_regular(self) -> None:
        """Raise if the mass matrix is singular at every state, with the given armature and the terms that an implicit
        step adds to it.

        Raises:
            SingularError: the mass matrix is singular at every state.
        """
        dyn, given, implicit = self.dyn, self.given, self.step.implicit
        if (
            "armature" not in self.step.dynamics.inputs
            or "inertia" in given
            or self.library.on_device
            or not dyn.model.nv
        ):
            dyn._require_regular(self.start, held=bool(dyn.model.constraints))
            return

        def least(name: str) -> Array:
            if name not in given:
                return getattr(dyn.model, name) if name in self.step.acting else np.zeros(dyn.model.nv)
            rows = self.library.to_numpy(given[name]).reshape(-1, dyn.model.nv)
            return rows.min(axis=0) if len(rows) else np.ones(dyn.model.nv)

        floor = least("armature").astype(np.float64)
        if implicit:
            floor = floor + self.dt * (least("damping") + least("friction"))
        if self.integrator in HOLDS_JOINTS:
            floor = floor + self.dt * (least("kd") + self.dt * least("kp"))
        dyn._require_regular_with(floor)

    def _attitudes_of(self, name: str) -> Array:
        """An input of configurations, with quaternions scaled to unit length.

        Raises:
            ArgumentError: values are checked, and one has zero length.
        """
        model, library = self.dyn.model, self.library
        if not model.quaternion_starts.size:
            return self.given[name]
        q = library.to_numpy(self.given[name])
        if self.start.checked:
            try:
                model.normalize(q)
            except ArgumentError as error:
                raise ArgumentError(f"{name}: {error}") from None
        return library.like_numpy(model.unit_coordinates(q))

    def _warn_of_damping(self) -> None:
        """Warn if explicit steps are too long for the damping at the first states."""
        bound = STABLE.get(self.integrator)
        if bound is None or not {"damping", "kd"} & {*self.step.acting} or not self.start.batch:
            return
        rows = {name: array[0][:_LOOKED_AT] for name, array in self.given.items() if name not in BASE}
        with np.errstate(all="ignore"):
            rate = _Arrays(self, rows).fastest(self.first()[0][:_LOOKED_AT])
        if rate * self.dt > bound:
            warnings.warn(
                f"rollout: {self.integrator!r} is unstable at dt={self.dt:g}: damping takes velocities away at "
                f"{rate:.3g} per second, and the longest step for that is {bound / rate:.3g} s; 'semi_implicit_euler' "
                "takes damping implicitly",
                RuntimeWarning,
                stacklevel=users_line(),
            )

    def _read(self, name: str, value: Any) -> Array:
        """An input as (steps, B, ...), or (1, B, ...) if it is constant. An axis in front of the batch axes is time."""
        leading = self.start.leading
        per_dof = (*COEFFICIENTS, "kp", "kd")
        shape, stays = self.dyn.argument_shapes[name], name in ("inertia", "gravity", *per_dof, *OF_CONTACTS)
        array = real_array(name, value, shape, self.dyn.dtype, read=self.outer.array, flags=name in FLAGS)
        if self.start.checked or name in per_dof:
            require_finite(name, array, len(shape))
        if name in per_dof:
            require_not_negative(name, array)
        if self.start.checked or not self.outer.on_device:
            require_of_contacts(self.dyn.model, name, array, self.outer)
        timed = array.ndim - len(shape) > len(leading) and not stays
        if timed:
            self.timed.add(name)
        try:
            broadcast = np.broadcast_to(array, (*((self.steps,) if timed else ()), *leading, *shape))
        except ValueError:
            each = "" if stays else f", or {(self.steps, *leading, *shape)} for one in each step"
            raise ArgumentError(
                f"{name}: got shape {array.shape} for {self.steps} steps of states {leading}; wanted "
                f"{(*leading, *shape)}{each}"
            ) from None
        if name == "inertia":
            self.start.inertia = array
        flattened = broadcast.reshape(self.steps if timed else 1, self.start.batch, *shape)
        return self.inward(self._in_rows(flattened, len(shape)))

    def _in_rows(self, array: Array, trailing: int) -> Array:
        """The array, with its last axes contiguous for each index of the others, as programs of steps require."""
        one = array[(slice(0, 1),) * (array.ndim - trailing)]
        return array if one.flags.c_contiguous else self.outer.xp.ascontiguousarray(array)

    def first(self) -> tuple[Array, Array]:
        """The first states, with quaternions scaled to unit length (`nearly_unit`)."""
        q, qd = (self.inward(self.start.inputs[name]) for name in ("q", "qd"))
        if self.library.on_device:
            return nearly_unit_on_device(self.dyn.model, q, self.library.xp), qd
        return nearly_unit(self.dyn.model, q), qd

    def as_given_at_start(self) -> tuple[Array, Array]:
        """The first states q (B, nq) and qd (B, nv) as passed by the user, without normalisation."""
        q = self.start.given_q
        rows = self.outer.xp.broadcast_to(q, (*self.start.leading, q.shape[-1])).reshape(self.start.batch, q.shape[-1])
        return self.inward(rows), self.inward(self.start.inputs["qd"])

    def outputs(self, out: Any, shapes: Mapping[str, tuple[int, ...]]) -> list[Array]:
        """The user's `out` arrays for results by name, which must be contiguous; new arrays if `out` is None."""
        if out is None:
            with memory_for(self.start.batch):
                return [self.outer.xp.empty(shape, self.dyn.dtype) for shape in shapes.values()]
        targets = strict_types.members(out) if strict_types.is_a(out, tuple) else ()
        if len(targets) != len(shapes):
            raise ArgumentError(f"out: wanted a tuple of {len(shapes)} arrays: {', '.join(shapes)}")
        arrays = [
            self.outer.output(f"out ({name})", target, shape, self.dyn.dtype)
            for (name, shape), target in zip(shapes.items(), targets, strict=True)
        ]
        for name, array in zip(shapes, arrays, strict=True):
            if not array.flags.c_contiguous:
                raise ArgumentError(f"out ({name}): got a strided array; wanted a contiguous one")
        if self.outer.xp.may_share_memory(*arrays):
            raise ArgumentError("out: got arrays that share memory; wanted memory of its own for every result")
        return arrays

    def may_fill(self, target: Array, read: Iterable[Array] = ()) -> bool:
        """Whether the engine may write directly to one of the user's arrays: it must not overlap `read` or inputs."""
        may_share = self.library.xp.may_share_memory
        return self.outer is self.library and not any(
            may_share(target, array) for array in (*read, *self.given.values())
        )

    def inward(self, array: Array) -> Array:
        """Convert one of the user's arrays to the engine's library."""
        return array if self.outer is self.library else self.library.like_numpy(array)

    def outward(self, array: Array) -> Array:
        """Convert an array of the engine to the user's library."""
        return array if self.outer is self.library else self.library.to_numpy(array)

    def window(self, q: Array, qd: Array, first: int, qdd: Array | None = None) -> int:
        """Fill states (n + 1, B, ...) from their row 0, the state after `first` steps. Returns the number of steps
        computed: n, or fewer if they took long or were interrupted. `qdd`: for the accelerations (n, B, nv) of steps
        with contacts; not under a policy."""
        steps = len(q) - 1
        inputs = {
            name: array[first : first + steps] if len(array) > 1 or self.steps == 1 else array
            for name, array in self.given.items()
        }
        if self.policy is None and self._ran_time_loop((q, qd), inputs, qdd):
            return steps
        if self.policy is not None and self.built_in is not None:
            return self._followed_policy(self.built_in, q, qd, inputs, first)
        loop = self._loop(q, qd, inputs)
        end = time.monotonic() + _WINDOW_S
        for k in range(steps):
            try:
                tau = None if self.policy is None else self._policy_tau(first + k, q[k], qd[k])
                if loop is not None:
                    loop.step(k, tau)  # type: ignore[arg-type]
                else:
                    now = {name: array[k if len(array) > 1 else 0] for name, array in inputs.items()}
                    found = None if qdd is None else qdd[k]
                    self._step(q[k : k + 2], qd[k : k + 2], now if tau is None else {**now, "tau": tau}, found)
            except KeyboardInterrupt:
                self.interrupted = True
                return k
            # End the window at a state that is not finite: it is frozen before the policy sees it.
            if time.monotonic() > end or (self.policy is not None and not self.finite(q[k + 1], qd[k + 1])):
                return k + 1
        return steps

    def _followed_policy(self, step: BuiltInStep, q: Array, qd: Array, inputs: Mapping[str, Array], first: int) -> int:
        """`window` under a policy by a built-in function. The step to a state that is not finite ends it."""
        assert self.policy is not None
        until = time.monotonic() + _WINDOW_S
        k, asked, answer, self.interrupted = follow(
            step, self.policy, self.dt, (q, qd), self.start.leading, first, until
        )
        if not asked:
            return k
        now = {name: array[k if len(array) > 1 else 0] for name, array in inputs.items()}
        try:
            self._step(q[k : k + 2], qd[k : k + 2], {**now, "tau": self._tau_of(answer)})
        except KeyboardInterrupt:
            self.interrupted = True
            return k
        return k + 1

    @cached_property
    def built_in(self) -> BuiltInStep | None:
        """A built-in function that takes steps of all states. None if the engine has none."""
        names = tuple(name for name in self.given if name != "tau")
        arrays = [self.given[name] for name in names]
        timed = [len(array) > 1 for array in arrays]
        if self.outer is not self.library or not self.start.batch:
            return None
        if not all(array[0].flags.c_contiguous for array, changes in zip(arrays, timed, strict=True) if changes):
            return None
        entry = self.stepping(names)
        with memory_for(self.start.batch):
            others = [
                array if changes else np.ascontiguousarray(array[0])
                for array, changes in zip(arrays, timed, strict=True)
            ]
        return None if entry is None else BuiltInStep(entry, others, timed)

    def goes_on(self, stop: Stop) -> None:
        """Go on after steps under the policy that stopped."""
        policy, answers = self.policy, [stop.answer] if stop.asked else []
        self.interrupted = stop.interrupted
        if policy is not None:
            self.policy = lambda t, q, qd: answers.pop() if answers else policy(t, q, qd)

    def stepping(self, names: tuple[str, ...], steps: int = 0) -> Any:
        """A built-in function that takes steps of q, qd, inputs in the order of `names`, and tau if that is none of
        them. It answers only calls with finite numbers. `steps`: as of `CpuEngine.stepping`. None if the engine has
        none."""
        make = getattr(self.engine, "stepping", None)
        arrays, contacts = ("q", "qd", *names, *(("tau",) if "tau" not in names else ())), self.dyn.model.contacts
        if make is None or (contacts is not None and contacts.crowded):
            return None
        step: Step | Repeated = self.step
        single = self.start.batch == 1
        if contacts is not None:
            inputs = tuple(name for name in (*arrays, "dt") if name in ("q", "qd", *WITH_CONTACTS, "dt"))
            step = self._solver.by_blocks(inputs, ("q_next", "qd_next"))
        return make(step, arrays, self.dt, single=single, steps=steps, steady=STEADY, nonnegative=NOT_NEGATIVE)

    def _loop(self, q: Array, qd: Array, inputs: Mapping[str, Array]) -> PolicyLoop | None:
        """The steps of a window under a policy, one program each. None if the engine has none."""
        make = getattr(self.engine, "loop_table", None)
        if make is None or not q.size or self.dyn.model.contacts is not None or self.policy is None:
            return None
        tau = self.library.xp.empty((1, self.start.batch, self.dyn.model.nv), self.dyn.dtype)
        given = {**{name: array[:1] for name, array in inputs.items()}, "tau": tau}
        with memory_for(self.start.batch):
            table = make(self.step, (q[:2], qd[:2]), given, self.dt)
        return None if table is None else PolicyLoop(table, self.engine, (q, qd), {**inputs, "tau": tau})

    def finite(self, q: Array, qd: Array) -> bool:
        """Whether all states are finite."""
        xp = self.library.xp
        # A sum of squares tells sooner, unless it overflows, as long as BLAS leaves it to one thread.
        few = q.size <= _FEW and not self.library.on_device
        if few and math.isfinite(np.vdot(q, q)) and math.isfinite(np.vdot(qd, qd)):
            return True
        return bool(xp.isfinite(q).all() & xp.isfinite(qd).all())

    def _step(self, q: Array, qd: Array, given: dict[str, Array], qdd: Array | None = None) -> None:
        """Fill the second of two states, and the accelerations of a step with contacts."""
        if self.dyn.model.contacts is not None:
            self._contact_step(q, qd, given, qdd)
            return
        if self.policy is not None and self._ran_time_loop((q, qd), {name: a[None] for name, a in given.items()}):
            return
        with np.errstate(all="ignore"), memory_for(self.start.batch):
            q[1], qd[1] = INTEGRATORS[self.integrator](_Arrays(self, given), q[0], qd[0], self.dt)
            if self.step.projection is not None:
                state = {"q": q[1].copy(), "qd": qd[1].copy()}
                self.composed(self.step.projection, {**given, **state}, {"q_held": q[1], "qd_held": qd[1]})

    def _contact_step(self, q: Array, qd: Array, given: Mapping[str, Array], qdd: Array | None) -> None:
        """Fill the second of two states of a robot with contacts."""
        with memory_for(self.start.batch):
            results = {"q_next": q[1], "qd_next": qd[1], **({} if qdd is None else {"qdd": qdd})}
            solution = self._solver.solve(self._with_contacts(q[0], qd[0], given), results)
        self.converged &= solution.converged | ~solution.finite

    def _ran_contacts(self, states: tuple[Array, Array], given: Mapping[str, Array], qdd: Array | None) -> bool:
        """Run steps with contacts by one program. False if the engine has none."""
        (q, qd), batch, contacts = states, self.start.batch, self.dyn.model.contacts
        repeat = getattr(self.engine, "repeat", None)
        if repeat is None or contacts is None or contacts.crowded or not q.size:
            return False
        inputs = {name: array for name, array in given.items() if name in WITH_CONTACTS}
        inputs |= {"q": q[:-1], "qd": qd[:-1], "dt": self._lengths[None]}
        results = {"q_next": q[1:], "qd_next": qd[1:], **({} if qdd is None else {"qdd": qdd})}
        task = self._solver.by_blocks(tuple(inputs), (*results, "error"))
        with memory_for(batch):
            error = np.zeros((len(q) - 1, batch), q.dtype)
            if not repeat(task, {**inputs, **results, "error": error}, batch):
                return False
        self.converged &= ~(error > task.tolerance(error.dtype)).any(axis=0)
        return True

    def _with_contacts(self, q: Array, qd: Array, given: Mapping[str, Array]) -> dict[str, Array]:
        """Inputs of a step with contacts."""
        forces = {name: a for name, a in given.items() if name in WITH_CONTACTS}
        unit = q if self.engine.normalizes else self.dyn.model.unit_coordinates(q)
        return {"q": unit, "qd": qd, **forces, "dt": self._lengths}

    @cached_property
    def _solver(self) -> Solver:
        """What takes steps with contacts."""
        return step_solver(self.dyn, self.integrator, self.dt, self.engine)

    @cached_property
    def _lengths(self) -> Array:
        """The time step of each row (B,)."""
        return cast(Array, self.library.xp.full(self.start.batch, self.dt, self.dyn.dtype))

    def warn_of_contacts(self, what: str) -> None:
        """Warn of states whose contact forces did not converge."""
        contacts = self.dyn.model.contacts
        if contacts is not None:
            warn_of_rows(what, ~self.library.to_numpy(self.converged), self.start.leading, contacts)

    def given_at(self, k: int) -> dict[str, Array]:
        """The inputs of step `k`, (B, ...)."""
        return {name: array[k if len(array) > 1 else 0] for name, array in self.given.items()}

    def differentiate(self, q: Array, qd: Array, k: int, A: Array, B: Array, qdd: Array | None = None) -> None:
        """Fill A and B with derivatives of the state after step `k` with respect to the state q, qd (B, ...) before it
        and to tau. `qdd`: the accelerations of a step with contacts, None if they are to be found."""
        nv, engine = self.dyn.model.nv, self.engine
        inputs = self.given_at(k)
        if self.dyn.model.contacts is not None:
            names = ("q", "qd", "qdd", "dt", *inputs)
            task = contact_step_gradient_of(self.dyn, self.integrator, self.dt, names)
            engine.compose(task, self.with_answers(q, qd, inputs, qdd), {"A": A, "B": B})
            return
        with np.errstate(all="ignore"), memory_for(self.start.batch):
            if isinstance(engine, TimeLoops):
                time = self.library.xp.full((len(q), 1), self.dt, self.dyn.dtype)
                if engine.step_gradient(self.step_gradient, {**inputs, "q": q, "qd": qd, "dt": time}, {"A": A, "B": B}):
                    return
            after, derivatives = step_gradient(INTEGRATORS[self.integrator], _Arrays(self, inputs), q, qd, self.dt)
            for r, of in enumerate(("q", "qd")):
                for target, c, by in ((A, 0, "q"), (A, 1, "qd"), (B, 0, "tau")):
                    target[:, nv * r : nv * (r + 1), nv * c : nv * (c + 1)] = derivatives.get((of, by), 0.0)
            projection = self.step_gradient.projection
            if projection is not None:
                names, like = ("q_q", "qd_q", "qd_qd"), (len(q), nv, nv)
                slopes = {name: self.library.xp.empty(like, self.dyn.dtype) for name in names}
                self.composed(projection, {**inputs, "q": after[0], "qd": after[1]}, slopes)
                for target in (A, B):
                    target[:, nv:] = slopes["qd_q"] @ target[:, :nv] + slopes["qd_qd"] @ target[:, nv:]
                    target[:, :nv] = slopes["q_q"] @ target[:, :nv]

    def with_answers(self, q: Array, qd: Array, given: Mapping[str, Array], qdd: Array | None) -> dict[str, Array]:
        """Inputs of a step with contacts, and the accelerations "qdd" in it, which are found if they are not known."""
        inputs = self._with_contacts(q, qd, given)
        if qdd is not None:
            return {**inputs, "qdd": qdd}
        with memory_for(self.start.batch):
            qdd = self.library.xp.empty(qd.shape, qd.dtype)
            solution = self._solver.solve(inputs, {"qdd": qdd})
        self.converged &= solution.converged | ~solution.finite
        return {**inputs, "qdd": qdd}

    def _ran_time_loop(self, states: tuple[Array, Array], given: Mapping[str, Array], qdd: Array | None = None) -> bool:
        """Run the steps by the engine's time loop. False if it has none for them."""
        if self.dyn.model.contacts is not None:
            return self._ran_contacts(states, given, qdd)
        with memory_for(self.start.batch):
            return isinstance(self.engine, TimeLoops) and self.engine.march(self.step, states, given, self.dt)

    @cached_property
    def without_scans(self) -> Engine:
        """The engine; in place of the scan engine another one, which runs recursions on NumPy arrays."""
        if self.engine.name != "scan":
            return self.engine
        chosen = replace(self.dyn._options, engine="auto")
        return recursive_engine(self.dyn.model, self.dyn.dtype, chosen)

    def composed(self, task: ScalarTask, inputs: Mapping[str, Array], out: Mapping[str, Array]) -> None:
        """Run a scalar task. Results that are missing in `out` are dropped."""
        engine, model = self.without_scans, self.dyn.model
        task_inputs = {name: array for name, array in inputs.items() if name in task.inputs or name in BASE}
        if "dt" in task.inputs:
            task_inputs["dt"] = self.library.xp.full((len(task_inputs["q"]), 1), self.dt, self.dyn.dtype)
        like = next(iter(out.values()))
        outputs = {
            name: out[name] if name in out else np.empty_like(like, shape=(len(like), *each.shape(model)))
            for name, each in task.outputs.items()
        }
        task_inputs["q"] = task_inputs["q"] if engine.normalizes else model.unit_coordinates(task_inputs["q"])
        engine.compose(task, task_inputs, outputs)

    def recurred(self, task: Task, inputs: Mapping[str, Array], out: Mapping[str, Array]) -> None:
        """Run a task that the scan engine does not support, on NumPy copies if necessary."""
        engine = self.without_scans
        if engine is self.engine:
            engine.run(task, inputs, out)
            return
        host_inputs = {name: self.library.to_numpy(array) for name, array in inputs.items()}
        results = {name: np.empty(array.shape, array.dtype) for name, array in out.items()}
        engine.run(task, host_inputs, results)
        for name, array in results.items():
            out[name][...] = self.library.like_numpy(array)

    def _policy_tau(self, k: int, q: Array, qd: Array) -> Array:
        """tau (B, nv) of the policy. The policy gets copies of the state, so it may keep or overwrite them."""
        leading = self.start.leading
        state = [self.outward(each.copy()).reshape(*leading, each.shape[-1]) for each in (q, qd)]
        assert self.policy is not None
        answer = self.policy(k * self.dt, *state)
        return self._tau_of(answer)

    def _tau_of(self, answer: Any) -> Array:
        """tau (B, nv) that the policy returned."""
        leading, nv = self.start.leading, self.dyn.model.nv
        plain = type(answer) is np.ndarray and self.outer is self.library
        if not plain or answer.dtype is not self.dyn.dtype or answer.shape != (*leading, nv):
            answer = tau_of(answer, leading, nv, self.dyn.dtype, self.outer)
        self.asked = self.inward(self._in_rows(answer.reshape(self.start.batch, nv), 1))
        return self.asked


class _Arrays(Differentiable):
    """The robot as the generic integrators see it; coordinates and vectors are arrays (B, ...)."""

    def __init__(self, run: Run, given: Mapping[str, Array]) -> None:
        model, library, dtype = run.dyn.model, run.library, run.dyn.dtype
        acting = {name: given.get(name) for name in run.step.acting}
        for name, array in acting.items():
            if array is None:
                acting[name] = library.constant(getattr(model, name).astype(dtype))
        super().__init__(acting, run.bounds, run.moves)
        self._run = run
        others = ("f_ext", "inertia", *OF_CONSTRAINTS)
        self._others = {name: given[name] for name in run.step.forward_dynamics.inputs if name in others}
        self._others |= {name: given[name] for name in BASE if name in given}

    def solved(self, q: Array, qd: Array, tau: Array, armature: Array | None) -> Array:
        """Accelerations qdd (B, nv)."""
        run, qdd = self._run, self._run.library.xp.empty(qd.shape, qd.dtype)
        if isinstance(run.step.dynamics, ScalarTask):
            inputs = self._inputs(run.without_scans, q, qd, tau, armature)
            run.composed(run.step.dynamics, inputs, {"qdd": qdd})
        elif armature is None:
            inputs = self._inputs(run.engine, q, qd, tau, None)
            run.engine.answer(FORWARD_DYNAMICS, "auto", inputs, {"qdd": qdd})
        else:
            self._recurred(run.step.dynamics, (q, qd, tau, armature), {"qdd": qdd})
        return cast(Array, qdd)

    def gradient(self, q: Array, qd: Array, tau: Array, armature: Array | None) -> tuple[Array, Slopes]:
        """qdd (B, nv), and its derivatives (B, nv, nv)."""
        run, xp, shape = self._run, self._run.library.xp, (*qd.shape, qd.shape[1])
        qdd, by = xp.empty(qd.shape, qd.dtype), {name: xp.empty(shape, qd.dtype) for name in ("q", "qd", "tau")}
        outputs = {"qdd": qdd, **{f"dqdd_d{name}": array for name, array in by.items()}}
        task = run.step_gradient.gradient
        if isinstance(task, ScalarTask):
            run.composed(task, self._inputs(run.without_scans, q, qd, tau, armature), outputs)
        else:
            self._recurred(task, (q, qd, tau, armature), outputs)
        return qdd, by

    def _inputs(self, engine: Engine, q: Array, qd: Array, tau: Array, armature: Array | None) -> dict[str, Array]:
        if not engine.normalizes:
            q = self._run.dyn.model.unit_coordinates(q)
        inputs = {**self._others, "q": q, "qd": qd, "tau": tau}
        return (
            inputs
            if armature is None
            else {**inputs, "armature": self._run.library.xp.broadcast_to(armature, qd.shape)}
        )

    def _recurred(self, task: Task, state: tuple[Array, Array, Array, Array | None], out: Mapping[str, Array]) -> None:
        """Run a task that the scan engine does not support."""
        self._run.recurred(task, self._inputs(self._run.without_scans, *state), out)

    @cached_property
    def identity(self) -> Array:
        """Identity matrices (B, nv, nv)."""
        run, nv = self._run, self._run.dyn.model.nv
        xp = run.library.xp
        return cast(Array, xp.broadcast_to(xp.eye(nv, dtype=run.dyn.dtype), (run.start.batch, nv, nv)))

    @cached_property
    def v_of(self) -> Array:
        """The degree of freedom of each coordinate whose rate is a velocity."""
        return self._run.library.constant(dof_of_coordinates(self._run.dyn.model))

    def blocks(self, operation: Callable[[JointKind, Any, Any], Any], v: Array) -> list[tuple[Any, Any]]:
        """(indices, operation(kind, velocities)) for each kind of joint with several degrees of freedom."""
        library, free = self._run.library, self._run.dyn.model.free_joints
        places = ((kind, library.constant(v_index)) for kind, _, v_index in free if kind.nv > 1)
        return [(at, operation(kind, v[:, at], library.xp)) for kind, at in places]

    def fastest(self, q: Array) -> float:
        """Lower estimate of the largest eigenvalue of H^-1 D over all states, 1/s, by power iteration with Rayleigh
        quotients. Products with H^-1 are accelerations from rest."""
        library, model = self._run.library, self._run.dyn.model
        acting = (library.to_numpy(self._given[name]) for name in ("damping", "kd") if name in self._given)
        damping = np.broadcast_to(sum(acting), (q.shape[0], model.nv))
        x = np.random.default_rng(0).uniform(0.5, 1.0, damping.shape).astype(damping.dtype)
        still, armature, rate = library.like_numpy(np.zeros_like(x)), self._given.get("armature"), 0.0
        free = library.to_numpy(self.solved(q, still, still, armature))
        for _ in range(_POWERS):
            force = damping * x
            moved = library.to_numpy(self.solved(q, still, library.like_numpy(force), armature)) - free
            rates = (force * moved).sum(axis=-1) / (force * x).sum(axis=-1)
            rate = max(rate, float(np.where(np.isfinite(rates), rates, 0.0).max(initial=0.0)))
            x = moved / np.abs(moved).max(axis=-1, initial=0.0)[:, None]
        return rate

    def apart(self, q: Array, other: Array) -> Array:
        """other (-) q (B, nv)."""
        return self._joint_by_joint("difference", q, other, (q.shape[0], self._run.dyn.model.nv))

    def spread(self, values: Array, on: Array) -> Array:
        """(B, nv): the values at degrees of freedom `on`, zero elsewhere."""
        run = self._run
        out = run.library.xp.zeros((values.shape[0], run.dyn.model.nv), run.dyn.dtype)
        out[:, on] = values
        return cast(Array, out)

    def moved(self, q: Array, u: Array) -> Array:
        """q (+) u (B, nq)."""
        return self._joint_by_joint("integrate", q, u, q.shape)

    def linear(self, v: Any) -> Array:
        """The components in m/s (B, nv)."""
        run = self._run
        return cast(Array, v * run.library.constant(linear_dofs(run.dyn.model).astype(run.dyn.dtype)))

    def turned(self, v: Array, u: Array) -> Array:
        """Linear velocities (B, nv) in axes that turn by u."""
        return self._joint_by_joint("turned", v, u, v.shape)

    def bracket(self, a: Array, b: Array) -> Array:
        """The Lie bracket (B, nv)."""
        return self._joint_by_joint("bracket", a, b, b.shape)

    def _joint_by_joint(self, operation: str, left: Array, right: Array, shape: tuple[int, ...]) -> Array:
        out = self._run.library.xp.empty(shape, right.dtype)
        for kind, q_index, v_index in self._run.dyn.model.free_joints:
            at, along = (self._run.library.constant(index) for index in (q_index, v_index))
            # Indices of the operands and the result: each is a configuration or a velocity.
            left_at, right_at, out_at = {
                "integrate": (at, along, at),
                "difference": (at, at, along),
                "bracket": (along, along, along),
                "turned": (along, along, along),
            }[operation]
            values = getattr(kind, operation)(
                tuple(left[:, left_at[:, c]] for c in range(left_at.shape[1])),
                tuple(right[:, right_at[:, c]] for c in range(right_at.shape[1])),
            )
            for c, value in enumerate(values):
                out[:, out_at[:, c]] = value
        return cast(Array, out)
