"""Reverse-mode gradients of rollouts: weights of states are propagated from the last step to the first.

One-level checkpointing (Griewank and Walther, Evaluating Derivatives, 2008, section 12.3): about sqrt(n) states are
kept, and those in between are computed again window by window. n steps take the memory of 2 sqrt(n) states, and each
state is computed twice.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from robodyn.algorithms.tasks import ScalarTask, Step, against
from robodyn.api.autodiff.coordinates import Coordinates
from robodyn.api.motion.causes import causes
from robodyn.api.motion.fast_gradients import FastGradients
from robodyn.api.motion.rollout import prepared
from robodyn.api.motion.run import Run, memory_for
from robodyn.api.motion.step_spec import WITH_CONTACTS, contact_step_at, forces_given
from robodyn.api.queries.fast_path import FAST_GRADIENTS
from robodyn.engines.query_table import BASE
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, one_of, real_array, require_finite
from robodyn.internals.errors import ArgumentError, UnavailableError
from robodyn.internals.messages import brief, users_line

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics

STATE = ("q0", "qd0")
_MOST_WORDS = 100
"""At most this many names of `wrt` are read, because an iterator may be endless."""
_INSIDE = {"gravity": "dV0"}
"""Arguments whose input of a step has another name."""


class _Before(NamedTuple):
    """The state before a step, and its accelerations if the robot has contacts."""

    q: Array
    qd: Array
    qdd: Array | None


class _Steps(ABC):
    """Propagates weights (B, ...) of the state after a step to the state before it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        library, dtype = run.library, run.dyn.dtype

        def constant(array: Array) -> Array:
            return library.constant(array if array.dtype.kind in "iu" else array.astype(dtype))

        self.coordinates = Coordinates(run.dyn.model, library.xp, constant)

    def there(self) -> bool:
        """Whether the engine supports this way."""
        return True

    @abstractmethod
    def weights(self, q: Array, weight: Array) -> Array:
        """Convert weights (B, nv) on the tangent space at q to the weights that `back` takes for configurations."""

    @abstractmethod
    def motions(self, q: Array, weight: Array) -> Array:
        """The inverse of `weights`."""

    @abstractmethod
    def back(self, k: int, before: _Before, by_q: Array, by_qd: Array) -> tuple[Array, Array, dict[str, Array]]:
        """From weights of the state after step k: weights of q and qd before it, and gradients with respect to other
        inputs by name."""


class _Programs(_Steps):
    """Steps by the adjoint of a step's program. Weights of configurations are those of nq plain numbers; the component
    along a quaternion's length does not matter, since steps normalise quaternions."""

    def __init__(self, run: Run, step: Step | ScalarTask, wrt: tuple[str, ...]) -> None:
        super().__init__(run)
        self._task: Any = against(step, wrt)

    def there(self) -> bool:
        """Whether the adjoint program is small enough to be compiled."""
        base = tuple(name for name in BASE if name in self.run.given)
        return self.run.without_scans.has_program(self._task, base)

    def weights(self, q: Array, weight: Array) -> Array:
        return cast(Array, self.coordinates.velocity_transposed(q, weight))

    def motions(self, q: Array, weight: Array) -> Array:
        return cast(Array, self.coordinates.rate_transposed(q, weight))

    def back(self, k: int, before: _Before, by_q: Array, by_qd: Array) -> tuple[Array, Array, dict[str, Array]]:
        gradients = self._ask(self.run.given_at(k), before, by_q, by_qd)
        return gradients["q"], gradients["qd"], gradients

    def _ask(self, given: Mapping[str, Array], before: _Before, by_q: Array, by_qd: Array) -> dict[str, Array]:
        run, xp, task, (q, qd, _) = self.run, self.run.library.xp, self._task, before
        inputs = {**given, "q": q, "qd": qd, "dt": xp.full((len(q), 1), run.dt, run.dyn.dtype)}
        gradients = {name: xp.empty(inputs[name].shape, run.dyn.dtype) for name in task.wrt}
        inputs |= {task.weights["q_next"]: by_q, task.weights["qd_next"]: by_qd}
        run.recurred(task, inputs, {f"by_{name}": array for name, array in gradients.items()})
        return gradients


class _AtAnswers(_Programs):
    """Steps with contacts, by the adjoint of a step at its accelerations."""

    def __init__(self, run: Run, wrt: tuple[str, ...]) -> None:
        names = ("q", "qd", "qdd", "dt", *(name for name in run.given if name in WITH_CONTACTS))
        super().__init__(run, contact_step_at(run.dyn, run.integrator, run.dt, names), wrt)

    def there(self) -> bool:
        return self.run.engine.has_program(self._task)

    def _ask(self, given: Mapping[str, Array], before: _Before, by_q: Array, by_qd: Array) -> dict[str, Array]:
        run, task = self.run, self._task
        inputs = run.with_answers(before.q, before.qd, given, before.qdd)
        gradients = {name: run.library.xp.empty(inputs[name].shape, run.dyn.dtype) for name in task.wrt}
        inputs |= {task.weights["q_next"]: by_q, task.weights["qd_next"]: by_qd}
        run.engine.run(task, inputs, {f"by_{name}": array for name, array in gradients.items()})
        return gradients


class _Matrices(_Steps):
    """Steps by the matrices of `step_gradient`, for robots too large for an adjoint program."""

    def weights(self, q: Array, weight: Array) -> Array:
        return weight

    def motions(self, q: Array, weight: Array) -> Array:
        return weight

    def back(self, k: int, before: _Before, by_q: Array, by_qd: Array) -> tuple[Array, Array, dict[str, Array]]:
        run, nv, xp, (q, qd, qdd) = self.run, self.run.dyn.model.nv, self.run.library.xp, before
        A, B = (xp.empty((len(q), 2 * nv, n * nv), run.dyn.dtype) for n in (2, 1))
        run.differentiate(q, qd, k, A, B, qdd)
        weight = xp.concatenate((by_q, by_qd), axis=-1)[:, None, :]
        found = (weight @ A)[:, 0]
        return found[:, :nv], found[:, nv:], {"tau": (weight @ B)[:, 0]}


class _Windows:
    """The states of a rollout, recomputed one window at a time."""

    def __init__(self, run: Run) -> None:
        self._run, steps = run, run.steps
        self._length = math.isqrt(steps - 1) + 1
        xp, dtype, sizes = run.library.xp, run.dyn.dtype, (run.dyn.model.nq, run.dyn.model.nv)
        self._starts = [xp.empty((-(-steps // self._length), run.start.batch, n), dtype) for n in sizes]
        self._window = [xp.empty((self._length + 1, run.start.batch, n), dtype) for n in sizes]
        self._qdd = None if run.dyn.model.contacts is None else xp.empty_like(self._window[1][1:])
        for slab, array in zip(self._window, run.first(), strict=True):
            slab[0] = array
        for j in range(len(self._starts[0])):
            for start, slab in zip(self._starts, self._window, strict=True):
                start[j] = slab[0]
            n = self._fill(j)
            if j + 1 < len(self._starts[0]):
                for slab in self._window:
                    slab[0] = slab[n]
        finite = [run.library.to_numpy(xp.isfinite(slab[n]).all(axis=-1)) for slab in self._window]
        self.diverged = np.flatnonzero(~(finite[0] & finite[1]))
        """Rows whose last state is not finite."""
        self.last = self._window[0][n].copy()
        """The last configurations."""

    def backwards(self) -> Iterator[tuple[int, Array, Array, Array | None]]:
        """From the last window to the first: the number of steps before it, its states q and qd (n + 1, B, ...), and
        the accelerations of its steps, if the robot has contacts."""
        for j in range(len(self._starts[0]) - 1, -1, -1):
            n = min(self._length, self._run.steps - j * self._length)
            if j + 1 < len(self._starts[0]):  # the arrays still hold the last window
                for start, slab in zip(self._starts, self._window, strict=True):
                    slab[0] = start[j]
                n = self._fill(j)
            q, qd = self._window
            yield j * self._length, q[: n + 1], qd[: n + 1], self._qdd

    def _fill(self, j: int) -> int:
        """Compute the steps of a window from its first states; returns their number."""
        run, (q, qd), first = self._run, self._window, j * self._length
        n, done = min(self._length, run.steps - first), 0
        while done < n:
            qdd = None if self._qdd is None else self._qdd[done:n]
            done += run.window(q[done : n + 1], qd[done : n + 1], first + done, qdd)
            if run.interrupted:
                raise KeyboardInterrupt
        return n


class _Weights:
    """The user's weights (K, B, nv) of the states that a rollout keeps, None for none."""

    def __init__(self, run: Run, every: int, q_weight: Any, qd_weight: Any) -> None:
        self._run, self._every = run, every
        self._of_q, self._of_qd = self._read("q_weight", q_weight), self._read("qd_weight", qd_weight)

    def _read(self, name: str, value: Any) -> Array | None:
        if value is None:
            return None
        run, nv = self._run, self._run.dyn.model.nv
        array = real_array(name, value, (nv,), run.dyn.dtype, read=run.outer.array)
        if run.start.checked:
            require_finite(name, array, 1)
        n_kept = 1 + -(-run.steps // self._every)
        try:
            broadcast = np.broadcast_to(array, (n_kept, *run.start.leading, nv))
        except ValueError:
            shape = (n_kept, *run.start.leading, nv)
            raise ArgumentError(
                f"{name}: got shape {array.shape}; wanted {shape}, {n_kept} states being kept"
            ) from None
        return run.inward(broadcast.reshape(n_kept, run.start.batch, nv))

    def added(self, k: int, way: _Steps, q: Array, by_q: Array, by_qd: Array) -> tuple[Array, Array]:
        """Add the user's weights of the state after k steps, if it is kept."""
        if k % self._every and k != self._run.steps:
            return by_q, by_qd
        row = -(-k // self._every)
        return (
            by_q if self._of_q is None else by_q + way.weights(q, self._of_q[row]),
            by_qd if self._of_qd is None else by_qd + self._of_qd[row],
        )


def rollout_vjp(dyn: Dynamics, arguments: Mapping[str, Any]) -> dict[str, Array]:
    """The gradient of a weighted sum of the states of a rollout. `arguments`: those of `Dynamics.rollout_vjp` by
    name."""
    known = dyn.__dict__.setdefault(FAST_GRADIENTS, FastGradients())  # before anything is read, as in `rollout`
    choices = ("q0", "qd0", "tau", "dt", "steps", "integrator", "limits", "save_every")
    q0, qd0, tau, dt, steps, integrator, limits, save_every = (arguments[name] for name in choices)
    given, weights = forces_given(arguments), (arguments["q_weight"], arguments["qd_weight"])
    run, every = prepared(dyn, q0, qd0, tau, dt, steps, integrator, given, limits, None, save_every)
    names = _checked_wrt(arguments["wrt"], given)
    with memory_for(run.start.batch), np.errstate(all="ignore"):
        backwards = _Backwards(run, _Weights(run, every, *weights), names)
        gradients = backwards.gradients()
    run.warn_of_contacts("rollout_vjp")
    results = {}
    for name, array in gradients.items():
        time = (steps,) if name in run.timed else ()
        results[name] = run.outward(array).reshape(*time, *run.start.leading, *array.shape[2:])
    if run.start.checked:
        for name, array in results.items():
            require_finite(f"gradient by {name}", array, array.ndim)
    if run.engine.native and not backwards.diverged:
        known.learn(run, arguments, every, names)
    return results


class _Backwards:
    """Propagates weights from the last state of a rollout to the first and accumulates gradients."""

    def __init__(self, run: Run, weights: _Weights, names: tuple[str, ...]) -> None:
        self._run, self._weights, self._names = run, weights, names
        others = dict.fromkeys(_input_name(name) for name in names if name not in STATE)
        self._way = _backward_steps(run, tuple(others))
        self._found = {name: run.library.xp.zeros(run.given[name].shape, run.dyn.dtype) for name in others}

    def gradients(self) -> dict[str, Array]:
        """Gradients by name, (steps, B, ...) for inputs that change with time and (1, B, ...) for others."""
        run, way, windows = self._run, self._way, _Windows(self._run)
        zeros = run.library.xp.zeros((run.start.batch, run.dyn.model.nv), run.dyn.dtype)
        by_q, by_qd = way.weights(windows.last, zeros), zeros
        for first, q, qd, qdd in windows.backwards():
            for n in range(len(q) - 1, 0, -1):
                by_q, by_qd = self._weights.added(first + n, way, q[n], by_q, by_qd)
                before = _Before(q[n - 1], qd[n - 1], None if qdd is None else qdd[n - 1])
                by_q, by_qd = self._stepped_back(first + n - 1, before, by_q, by_qd)
        start = run.first()[0]
        by_q, by_qd = self._weights.added(0, way, start, by_q, by_qd)
        state = {"q0": way.motions(start, by_q)[None], "qd0": by_qd[None]}
        gradients = {name: state[name] if name in STATE else self._by_argument(name) for name in self._names}
        self._set_nan(gradients, windows.diverged)
        return gradients

    def _stepped_back(self, k: int, before: _Before, by_q: Array, by_qd: Array) -> tuple[Array, Array]:
        by_q, by_qd, others = self._way.back(k, before, by_q, by_qd)
        for name, total in self._found.items():
            total[k if len(total) > 1 else 0] += others.get(name, 0.0)  # 0 for a model without bodies
        return by_q, by_qd

    def _by_argument(self, name: str) -> Array:
        """The gradient with respect to an argument, from the gradient with respect to its input of steps."""
        gradient = self._found[_input_name(name)]
        if name == "gravity":
            return cast(Array, -gradient[..., 3:].sum(axis=0, keepdims=True))
        return self._way.motions(self._run.given[name], gradient) if name == "q_des" else gradient

    def _set_nan(self, found: Mapping[str, Array], rows: Array) -> None:
        """Set gradients of diverged rows to NaN and warn."""
        self.diverged = bool(rows.size)
        if not self.diverged:
            return
        for array in found.values():
            array[:, self._run.library.like_numpy(rows)] = np.nan
        why = causes(self._run, dict.fromkeys(rows.tolist(), self._run.steps))
        warnings.warn(
            f"rollout_vjp: {rows.size} of {self._run.start.batch} rows diverged; their gradients are NaN. {why}",
            RuntimeWarning,
            stacklevel=users_line(),
        )


def _backward_steps(run: Run, others: tuple[str, ...]) -> _Steps:
    """Adjoint programs if the engine has them, else matrices.

    Raises:
        UnavailableError: matrices do not give all gradients of `others`, or `max_contacts` chooses slots.
    """
    wrt = "q", "qd", *others
    programs = _Programs(run, run.step, wrt) if run.dyn.model.contacts is None else _AtAnswers(run, wrt)
    if programs.there():
        return programs
    missing = [name for name in others if name != "tau"]
    if missing and run.dyn.model.n_bodies:
        raise UnavailableError(
            f"rollout_vjp: a step of {run.dyn.model.name!r} is too large for the straight-line code that the gradient "
            f"by {missing[0]!r} takes; wanted wrt of 'q0', 'qd0' and 'tau'"
        )
    return _Matrices(run)


def _checked_wrt(wrt: Any, given: Mapping[str, Any]) -> tuple[str, ...]:
    """The checked names of `wrt`."""
    allowed = (*STATE, "tau", *(name for name, value in given.items() if value is not None))
    chosen = (wrt,) if strict_types.is_a(wrt, str) else strict_types.at_most(wrt, _MOST_WORDS)
    if not chosen:
        raise ArgumentError(f"wrt: got {brief(wrt)}; allowed: {', '.join(map(repr, allowed))}")
    return tuple(dict.fromkeys(one_of("wrt", each, allowed) for each in chosen))


def _input_name(name: str) -> str:
    """Name of an argument among the inputs of steps."""
    return _INSIDE.get(name, name)
