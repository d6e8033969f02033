"""Rollouts: simulate a batch of states over time.

The first axis of state arrays is time, (steps + 1, B, ...): a step reads one slab and writes the next. Rollouts are
computed in windows of steps. An engine with a program for the step computes a window in one call. Between windows
diverged rows are frozen, and Ctrl-C takes effect.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.api.motion.causes import causes
from robodyn.api.motion.fast_rollouts import Begun, FastRollouts
from robodyn.api.motion.policy import Policy
from robodyn.api.motion.result import Rollout
from robodyn.api.motion.run import Run, memory_for
from robodyn.api.motion.step_spec import FORCES, forces_given
from robodyn.api.motion.unused import warn_of_unused_forces
from robodyn.api.queries.call import Call
from robodyn.api.queries.fast_path import FAST_ROLLOUTS
from robodyn.core.integrators import INTEGRATORS
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, count, finite_real, flag, one_of, row_named
from robodyn.internals.errors import ArgumentError, NumericalError, UnavailableError
from robodyn.internals.files import require_writable
from robodyn.internals.messages import brief

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics

_MOST_STEPS = 1 << 40
_WINDOW_SCALARS = 1 << 18
"""Scalars of states in a window: a few milliseconds of work, and small enough for a CPU cache."""
_SCALARS_ON_DEVICE = 1 << 26
"""The same on a GPU, where the end of a window takes as long as some hundred steps."""
_LONGEST_WINDOW = 1024
_CHECKPOINT_S = 1.0
"""Least time between checkpoints, in seconds."""
_CHECKPOINT_SHARE = 20
"""Least time between checkpoints, in multiples of the time to write one."""


def rollout(dyn: Dynamics, arguments: Mapping[str, Any], begun: Begun | None = None) -> Rollout:
    """Simulate states over time. `arguments`: those of `Dynamics.rollout` by name; `begun`: what is done already."""
    # Taken before anything is read: what is learnt goes with it if the `Dynamics` changes meanwhile.
    known = dyn.__dict__.setdefault(FAST_ROLLOUTS, FastRollouts())
    names = ("q0", "qd0", "tau", "dt", "steps", "integrator", "limits", "policy", "save_every")
    q0, qd0, tau, dt, steps, integrator, limits, policy, save_every = (arguments[name] for name in names)
    given = forces_given(arguments)
    run, every = prepared(dyn, q0, qd0, tau, dt, steps, integrator, given, limits, policy, save_every)
    checkpoint = arguments["checkpoint"]
    file = None if checkpoint is None else _Checkpoint(require_writable(checkpoint, "checkpoint"))
    trajectory = _Trajectory(run, every, arguments["out"])
    _follow(run, trajectory, file, flag("progress", arguments["progress"]), begun)
    trajectory.warn(run.interrupted)
    result = trajectory.finished()
    if run.engine.native and not run.interrupted and trajectory.diverged.max(initial=-1) < 0:
        known.learn(run, arguments, result, every)
    return result


def prepared(
    dyn: Dynamics,
    q0: Any,
    qd0: Any,
    tau: Any,
    dt: float,
    steps: int,
    integrator: str,
    given: Mapping[str, Any],
    limits: Any,
    policy: Policy | None,
    save_every: int | None,
) -> tuple[Run, int]:
    """A rollout before its first step, and the number of steps between kept states."""
    integrator, seconds = one_of("integrator", integrator, tuple(INTEGRATORS)), _seconds(dt)
    steps = count("steps", steps, 1, _MOST_STEPS)
    if not math.isfinite(steps * seconds):
        raise ArgumentError(f"dt: got {brief(dt)} for {steps} steps; wanted their times finite")
    every = steps if save_every is None else count("save_every", save_every, 1, _MOST_STEPS)
    if policy is not None and (tau is not None or not callable(policy)):
        got = "tau besides" if callable(policy) else brief(policy)
        raise ArgumentError(f"policy: got {got}; wanted a function of (t, q, qd) that returns tau, and no tau then")
    start = Call(dyn, {"q": q0, "qd": qd0})
    with memory_for(start.batch):
        run = Run(dyn, start, seconds, steps, integrator, {"tau": tau, **given}, limits, policy)
    warn_of_unused_forces(dyn, "rollout", given)
    return run, every


def advanced(
    dyn: Dynamics,
    state: tuple[Array, Array],
    dt: float,
    steps: int,
    integrator: str,
    given: Mapping[str, Any],
    limits: Any,
    policy: Policy | None = None,
) -> tuple[Array, Array, Array, Array]:
    """The states (B, ...) after some steps, which of them diverged (B,), and which had contact forces that converged.
    Nobody is warned of either. `given`: other arguments, tau among them, None for those that are not given."""
    others = {name: given.get(name) for name in FORCES}
    run, every = prepared(dyn, *state, given.get("tau"), dt, steps, integrator, others, limits, policy, None)
    trajectory = _Trajectory(run, every, None)
    _follow(run, trajectory, None, progress=False)
    if run.interrupted:
        raise KeyboardInterrupt
    q, qd = trajectory.states
    return q[-1], qd[-1], trajectory.diverged >= 0, run.converged


def step(
    dyn: Dynamics,
    q: Any,
    qd: Any,
    tau: Any,
    dt: float,
    integrator: str,
    given: Mapping[str, Any],
    limits: Any,
    out: Any,
) -> tuple[Array, Array]:
    """The state after one step (see `Dynamics.step`)."""
    run = _one_step(dyn, q, qd, tau, dt, integrator, given, limits)
    leading, model = run.start.leading, dyn.model
    targets = run.outputs(out, {"q": (*leading, model.nq), "qd": (*leading, model.nv)})
    with memory_for(run.start.batch):
        first = run.first()
        states = [run.library.xp.empty((2, *array.shape), dyn.dtype) for array in first]
    for slab, array in zip(states, first, strict=True):
        slab[0] = array
    run.window(states[0], states[1], 0)
    if run.interrupted:
        raise KeyboardInterrupt
    if run.start.checked or not run.outer.on_device:  # else nothing waits for the device
        run.warn_of_contacts("step")
    return _handed_out(run, "step", [slab[1] for slab in states], targets, "state after it")


def step_gradient(
    dyn: Dynamics,
    q: Any,
    qd: Any,
    tau: Any,
    dt: float,
    integrator: str,
    given: Mapping[str, Any],
    limits: Any,
    out: Any,
) -> tuple[Array, Array]:
    """The derivatives of one step (see `Dynamics.step_gradient`)."""
    run = _one_step(dyn, q, qd, tau, dt, integrator, given, limits)
    batch, nv = run.start.batch, dyn.model.nv
    targets = run.outputs(out, {"A": (*run.start.leading, 2 * nv, 2 * nv), "B": (*run.start.leading, 2 * nv, nv)})
    first, xp = run.first(), run.library.xp
    with memory_for(batch):
        rows = [
            array.reshape(batch, *array.shape[-2:])
            if run.may_fill(array, first)
            else xp.empty((batch, *array.shape[-2:]), dyn.dtype)
            for array in targets
        ]
    run.differentiate(*first, 0, *rows)
    run.warn_of_contacts("step_gradient")
    return _handed_out(run, "step_gradient", rows, targets, "derivative")


def _one_step(
    dyn: Dynamics, q: Any, qd: Any, tau: Any, dt: float, integrator: str, given: Mapping[str, Any], limits: Any
) -> Run:
    integrator, seconds = one_of("integrator", integrator, tuple(INTEGRATORS)), _seconds(dt)
    start = Call(dyn, {"q": q, "qd": qd}, more=_leading(dyn, {"tau": tau, **given}))
    with memory_for(start.batch):
        return Run(dyn, start, seconds, 1, integrator, {"tau": tau, **given}, limits)


def _leading(dyn: Dynamics, given: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """Leading axes of the arrays of a step, in addition to their axes for one state."""
    all_axes = []
    for name, value in given.items():
        with suppress(Exception):  # the function that reads the value raises if it is no array
            value = np.asarray(value) if strict_types.is_a(value, np.ndarray) else value
            axes = np.ndim(value) - len(dyn.argument_shapes[name])
            all_axes.append(tuple(np.shape(value)[:axes]) if value is not None and axes > 0 else ())
    return all_axes


def _handed_out(run: Run, name: str, found: list[Array], targets: list[Array], what: str) -> tuple[Array, Array]:
    """Copy two results (B, ...) to the user's arrays, which are returned."""
    if run.start.checked and not run.finite(*found):
        raise NumericalError(f"{name}: the {what} is not finite")
    for target, array in zip(targets, found, strict=True):
        if run.outer is not run.library or not run.library.xp.may_share_memory(target, array):
            target[...] = run.outward(array).reshape(target.shape)
    first, second = targets
    return first, second


def _seconds(dt: Any) -> float:
    seconds = finite_real(dt)
    if seconds is None or seconds <= 0.0:
        raise ArgumentError(f"dt: got {brief(dt)}; wanted a positive finite number of seconds")
    return seconds


class _Trajectory:
    """The kept states of a rollout, and which rows have diverged.

    `every`: number of steps between kept states; the last state is kept, too.
    """

    def __init__(self, run: Run, every: int, out: Any) -> None:
        self._run, self._every = run, every
        xp, model, leading = run.library.xp, run.dyn.model, run.start.leading
        n_kept = 1 + -(-run.steps // every)
        shapes = {"q": (n_kept, *leading, model.nq), "qd": (n_kept, *leading, model.nv)}
        outputs = None if out is None else run.outputs(out, shapes)
        direct = all(run.may_fill(target) for target in outputs or ())
        try:
            arrays = (
                outputs
                if outputs is not None and direct
                else [xp.empty(each, run.dyn.dtype) for each in shapes.values()]
            )
        except (MemoryError, ValueError) as error:  # ValueError: NumPy's for a size beyond the address space
            raise UnavailableError(
                f"rollout: no memory for {n_kept} states of {leading} ({error}); a larger save_every keeps fewer"
            ) from error
        self.states = [array.reshape(n_kept, run.start.batch, array.shape[-1]) for array in arrays]
        self._arrays, self._out = arrays, None if direct else outputs
        self.diverged = np.full(run.start.batch, -1, np.int64)
        self._untold = set[int]()
        """Rows that diverged because the policy returned a tau that is not finite."""
        self._last: tuple[int, Any, Any] = (0, None, None)

    def keep(self, q: Array, qd: Array, first: int) -> None:
        """Copy every n-th state of a window (n + 1, B, ...), whose first state is that after `first` steps."""
        n, every = len(q) - 1, self._every
        begin = -(-first // every)
        end = (first + n) // every + 1
        for target, source in zip(self.states, (q, qd), strict=True):
            if end > begin:
                target[begin:end] = source[begin * every - first :: every]
            if first + n == self._run.steps:
                target[-1] = source[n]
        self._last = first + n, q[n].copy(), qd[n].copy()

    def freeze(self, q: Array, qd: Array, first: int) -> None:
        """Overwrite states of diverged rows with their last finite state."""
        xp, library = self._run.library.xp, self._run.library
        diverged_before = self.diverged >= 0
        if diverged_before.any():
            rows = library.like_numpy(np.flatnonzero(diverged_before))
            for states in (q, qd):
                states[1:, rows] = states[0, rows]
        # A state that is not finite never becomes finite again, so checking the last states suffices.
        if self._run.finite(q[-1], qd[-1]):
            return
        finite = library.to_numpy(xp.isfinite(q).all(axis=-1) & xp.isfinite(qd).all(axis=-1))
        newly_diverged = np.flatnonzero(~finite[-1] & ~diverged_before)
        if self._run.asked is not None and newly_diverged.size:
            policy_finite = np.isfinite(library.to_numpy(self._run.asked)[newly_diverged]).all(axis=-1)
            self._untold |= set(newly_diverged[~policy_finite].tolist())
        for row in newly_diverged.tolist():
            first_bad = int(np.flatnonzero(~finite[:, row])[0])
            self.diverged[row] = first + first_bad
            for states in (q, qd):
                states[first_bad:, row] = states[max(0, first_bad - 1), row]

    def warn(self, interrupted: bool) -> None:
        """Warn about an interruption and about diverged rows."""
        run, done = self._run, self._last[0]
        if interrupted:
            text = f"rollout: interrupted after {done} of {run.steps} steps; what was computed is returned"
            warnings.warn(text, RuntimeWarning, stacklevel=4)
        run.warn_of_contacts("rollout")
        diverged = self._diverged_by(done)
        rows = np.flatnonzero(diverged >= 0)
        if rows.size:
            where = row_named(int(rows[0]), run.start.leading) or "the state"
            step = int(diverged[rows[0]])
            why = causes(run, dict(zip(rows.tolist(), diverged[rows].tolist(), strict=True)), self._untold)
            warnings.warn(
                f"rollout: {rows.size} of {diverged.size} rows diverged, {where} in step {step} (t = "
                f"{step * run.dt:.6g} s); they keep their last finite state. {why}",
                RuntimeWarning,
                stacklevel=4,
            )

    def _diverged_by(self, done: int) -> Array:
        """`diverged` after `done` steps. Ctrl-C may come between finding a divergence and keeping its states."""
        return np.where(self.diverged > done, -1, self.diverged)

    def result(self) -> Rollout:
        """The states so far, including the last one."""
        run, every, done = self._run, self._every, self._last[0]
        n_kept = len(self.states[0]) if done == run.steps else done // every + 1
        steps = np.minimum(np.arange(n_kept) * every, run.steps)
        if steps[-1] < done:  # the last state takes the slot of the next kept state
            for target, last in zip(self.states, self._last[1:], strict=True):
                target[n_kept] = last
            steps, n_kept = np.append(steps, done), n_kept + 1
        q, qd = (run.outward(array[:n_kept]) for array in self._arrays)
        diverged = self._diverged_by(done).reshape(run.start.leading)[()]
        contacts = run.dyn.model.contacts is not None
        converged = run.library.to_numpy(run.converged).reshape(run.start.leading)[()] if contacts else None
        return Rollout(steps * run.dt, q, qd, diverged, done, run.dyn.model, converged)

    def finished(self) -> Rollout:
        """The result, copied to the user's `out` arrays if there are any."""
        result = self.result()
        if self._out is None:
            return result
        q, qd = (target[: len(result.t)] for target in self._out)
        q[...], qd[...] = result.q, result.qd
        return replace(result, q=q, qd=qd)


class _Checkpoint:
    """A checkpoint file, written rarely enough to cost little. Its path is absolute, so that the process may change its
    working directory."""

    def __init__(self, path: Path) -> None:
        self._path, self._next, self._failed = path.absolute(), 0.0, False

    def start(self, trajectory: _Trajectory) -> None:
        """Write the file for the first time, so that errors appear before the rollout starts.

        Raises:
            ArgumentError, OSError: the file cannot be written.
        """
        begin = time.monotonic()
        trajectory.result().save(self._path)
        self._plan(begin)

    def update(self, trajectory: _Trajectory, now: bool = False) -> None:
        """Write the file if it is due, or `now`. An error becomes a warning, so that no result is lost."""
        begin = time.monotonic()
        if not now and begin < self._next:
            return
        try:
            trajectory.result().save(self._path)
        except (ArgumentError, OSError) as error:
            if not self._failed:
                warnings.warn(f"rollout: the checkpoint is not written: {error}", RuntimeWarning, stacklevel=5)
            self._failed = True
        self._plan(begin)

    def _plan(self, begin: float) -> None:
        end = time.monotonic()
        self._next = end + max(_CHECKPOINT_S, _CHECKPOINT_SHARE * (end - begin))


def _first_window(run: Run) -> tuple[Array, Array]:
    """Arrays q and qd (n + 1, B, ...) for a window of n steps, with the initial states in row 0."""
    model, batch, xp = run.dyn.model, run.start.batch, run.library.xp
    max_scalars = _SCALARS_ON_DEVICE if run.library.on_device else _WINDOW_SCALARS
    length = max(1, min(run.steps, _LONGEST_WINDOW, max_scalars // max(1, batch * (model.nq + model.nv))))
    with memory_for(batch):
        while True:
            try:
                q, qd = (xp.empty((length + 1, batch, n), run.dyn.dtype) for n in (model.nq, model.nv))
                break
            except MemoryError:
                if length == 1:
                    raise
                length //= 2
        q[0], qd[0] = run.first()
    return q, qd


def _follow(
    run: Run, trajectory: _Trajectory, checkpoint: _Checkpoint | None, progress: bool, begun: Begun | None = None
) -> None:
    """Compute a rollout window by window. `begun`: what is done already."""
    q, qd = _first_window(run)
    length, done = len(q) - 1, 0
    trajectory.freeze(q[:1], qd[:1], 0)
    trajectory.keep(q[:1], qd[:1], 0)
    if begun is not None:
        so_far = [each.reshape(len(each), *rows.shape[1:]) for each, rows in ((begun.q, q), (begun.qd, qd))]
        trajectory.keep(so_far[0], so_far[1], 0)
        q[0], qd[0], done = so_far[0][-1], so_far[1][-1], len(so_far[0]) - 1
        length = min(length, run.steps - done)
        run.goes_on(begun.stop)
    if checkpoint is not None:
        checkpoint.start(trajectory)
    with progress_bar(progress, run.steps) as advance:
        try:
            while done < run.steps and not run.interrupted:
                n = run.window(q[: length + 1], qd[: length + 1], done)
                trajectory.freeze(q[: n + 1], qd[: n + 1], done)
                trajectory.keep(q[: n + 1], qd[: n + 1], done)
                done += n
                q[0], qd[0] = q[n], qd[n]
                # Windows of one step, so that a policy sees the frozen state of diverged rows.
                length = 1 if run.policy is not None and trajectory.diverged.max(initial=-1) >= 0 else length
                length = min(length, run.steps - done)
                advance(n)
                if checkpoint is not None:
                    checkpoint.update(trajectory)
        except KeyboardInterrupt:
            run.interrupted = True
        finally:
            if checkpoint is not None:
                checkpoint.update(trajectory, now=True)


@contextmanager
def progress_bar(shown: bool, steps: int, what: str = "rollout") -> Iterator[Callable[[int], None]]:
    """A progress bar: yields a function that advances it by a number of steps."""
    if not shown:
        yield lambda n: None
        return
    from rich.errors import LiveError
    from rich.progress import Progress

    bar = Progress()
    try:
        bar.start()
    except LiveError:  # older versions of rich allow one bar at a time
        yield lambda n: None
        return
    try:
        task = bar.add_task(what, total=steps)
        yield lambda n: bar.advance(task, n)
    finally:
        bar.stop()
