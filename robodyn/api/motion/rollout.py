"""Rollouts: states followed through time, for a batch at once.

States lie time first, (steps + 1, B, ...), so that a step reads one slab and writes the next. They are followed in
windows: an engine that has a program for the step takes a window in one go; between windows rows that diverged are
frozen, and someone may ask to stop.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.api.motion.causes import causes
from robodyn.api.motion.result import Rollout
from robodyn.api.motion.run import Policy, Run, memory_for
from robodyn.api.motion.unused import warn_of_unused_forces
from robodyn.api.queries.call import Call
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
"""Scalars of states in a window: some milliseconds of work, and in a cache what one window leaves to the next."""
_SCALARS_ON_DEVICE = 1 << 26
"""The same on a device, which takes as long for the end of a window as for some hundred steps."""
_LONGEST_WINDOW = 1024
_CHECKPOINT_S = 1.0
"""Seconds between checkpoints, at least."""
_CHECKPOINT_SHARE = 20
"""How many times longer than writing a checkpoint the rollout goes on before the next."""


def rollout(
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
    checkpoint: str | os.PathLike[str] | None,
    progress: bool,
    out: Any,
) -> Rollout:
    """Follow states through time (`Dynamics.rollout`)."""
    run, every = prepared(dyn, q0, qd0, tau, dt, steps, integrator, given, limits, policy, save_every)
    file = None if checkpoint is None else _Checkpoint(require_writable(checkpoint, "checkpoint"))
    trajectory = _Trajectory(run, every, out)
    _follow(run, trajectory, file, flag("progress", progress))
    return trajectory.finished()


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
    """A rollout that has not begun, and how many steps lie between states that are kept."""
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
    """The state after one step (`Dynamics.step`)."""
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
    """The derivatives of one step (`Dynamics.step_gradient`)."""
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
    return _handed_out(run, "step_gradient", rows, targets, "derivative")


def _one_step(
    dyn: Dynamics, q: Any, qd: Any, tau: Any, dt: float, integrator: str, given: Mapping[str, Any], limits: Any
) -> Run:
    integrator, seconds = one_of("integrator", integrator, tuple(INTEGRATORS)), _seconds(dt)
    start = Call(dyn, {"q": q, "qd": qd}, more=_leading(dyn, {"tau": tau, **given}))
    with memory_for(start.batch):
        return Run(dyn, start, seconds, 1, integrator, {"tau": tau, **given}, limits)


def _leading(dyn: Dynamics, given: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """Leading axes of arrays that a step is given, of those that have axes enough."""
    found = []
    for name, value in given.items():
        with suppress(Exception):  # what is no array is refused where it is read
            value = np.asarray(value) if strict_types.is_a(value, np.ndarray) else value
            axes = np.ndim(value) - len(dyn.argument_shapes[name])
            found.append(tuple(np.shape(value)[:axes]) if value is not None and axes > 0 else ())
    return found


def _handed_out(run: Run, name: str, found: list[Array], targets: list[Array], what: str) -> tuple[Array, Array]:
    """Two results (B, ...) in the arrays that they are asked for in."""
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
    """States that are kept, and which rows have diverged.

    `every`: how many steps lie between kept states; the last one is kept, too.
    """

    def __init__(self, run: Run, every: int, out: Any) -> None:
        self._run, self._every = run, every
        xp, model, leading = run.library.xp, run.dyn.model, run.start.leading
        kept = 1 + -(-run.steps // every)
        shapes = {"q": (kept, *leading, model.nq), "qd": (kept, *leading, model.nv)}
        given = None if out is None else run.outputs(out, shapes)
        direct = all(run.may_fill(target) for target in given or ())
        try:
            arrays = (
                given if given is not None and direct else [xp.empty(each, run.dyn.dtype) for each in shapes.values()]
            )
        except (MemoryError, ValueError) as error:  # NumPy's for more than fits, and for more than could be addressed
            raise UnavailableError(
                f"rollout: no memory for {kept} states of {leading} ({error}); a larger save_every keeps fewer"
            ) from error
        self.states = [array.reshape(kept, run.start.batch, array.shape[-1]) for array in arrays]
        self._arrays, self._out = arrays, None if direct else given
        self.diverged = np.full(run.start.batch, -1, np.int64)
        self._untold = set[int]()
        """Rows for which the policy returned a tau that is not finite, and that diverged by it."""
        self._last: tuple[int, Any, Any] = (0, None, None)

    def keep(self, q: Array, qd: Array, first: int) -> None:
        """Keep what is to be kept of states (n + 1, B, ...), which begin after `first` steps."""
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
        """Keep the last finite state of rows that are no longer finite; rows that diverged before stay as they are."""
        xp, library = self._run.library.xp, self._run.library
        still = self.diverged >= 0
        if still.any():
            rows = library.like_numpy(np.flatnonzero(still))
            for states in (q, qd):
                states[1:, rows] = states[0, rows]
        # What is not finite stays so: the last states tell of all before.
        if self._run.finite(q[-1], qd[-1]):
            return
        finite = library.to_numpy(xp.isfinite(q).all(axis=-1) & xp.isfinite(qd).all(axis=-1))
        gone = np.flatnonzero(~finite[-1] & ~still)
        if self._run.asked is not None and gone.size:
            told = np.isfinite(library.to_numpy(self._run.asked)[gone]).all(axis=-1)
            self._untold |= set(gone[~told].tolist())
        for row in gone.tolist():
            good = int(np.flatnonzero(~finite[:, row])[0])
            self.diverged[row] = first + good
            for states in (q, qd):
                states[good:, row] = states[max(0, good - 1), row]

    def warn(self, interrupted: bool) -> None:
        """Say that it was interrupted, and which rows diverged."""
        run, done = self._run, self._last[0]
        if interrupted:
            text = f"rollout: interrupted after {done} of {run.steps} steps; what was computed is returned"
            warnings.warn(text, RuntimeWarning, stacklevel=5)
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
                stacklevel=5,
            )

    def _diverged_by(self, done: int) -> Array:
        """`diverged` after n steps: Ctrl-C may come when more is known than is kept."""
        return np.where(self.diverged > done, -1, self.diverged)

    def result(self) -> Rollout:
        """What there is so far, the last state included."""
        run, every, done = self._run, self._every, self._last[0]
        kept = len(self.states[0]) if done == run.steps else done // every + 1
        steps = np.minimum(np.arange(kept) * every, run.steps)
        if steps[-1] < done:  # in the place of the next state that is kept
            for target, last in zip(self.states, self._last[1:], strict=True):
                target[kept] = last
            steps, kept = np.append(steps, done), kept + 1
        q, qd = (run.outward(array[:kept]) for array in self._arrays)
        diverged = self._diverged_by(done).reshape(run.start.leading)[()]
        return Rollout(steps * run.dt, q, qd, diverged, done, run.dyn.model)

    def finished(self) -> Rollout:
        """The result, in the user's arrays where there are any."""
        found = self.result()
        if self._out is None:
            return found
        q, qd = (target[: len(found.t)] for target in self._out)
        q[...], qd[...] = found.q, found.qd
        return replace(found, q=q, qd=qd)


class _Checkpoint:
    """A file that tells of a trajectory, written so seldom that it costs little. It stays where it was named, whatever
    folder the process goes to."""

    def __init__(self, path: Path) -> None:
        self._path, self._next, self._failed = path.absolute(), 0.0, False

    def start(self, trajectory: _Trajectory) -> None:
        """Write it for the first time: where that fails, it is known before the work.

        Raises:
            ArgumentError, OSError: it cannot be written.
        """
        begin = time.monotonic()
        trajectory.result().save(self._path)
        self._plan(begin)

    def update(self, trajectory: _Trajectory, now: bool = False) -> None:
        """Write it if it is time, or `now`. Where that fails there is a warning, and no result is lost."""
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
    """Room for the states q and qd (n + 1, B, ...) of a window of n steps, the first ones in it."""
    model, batch, xp = run.dyn.model, run.start.batch, run.library.xp
    most = _SCALARS_ON_DEVICE if run.library.on_device else _WINDOW_SCALARS
    length = max(1, min(run.steps, _LONGEST_WINDOW, most // max(1, batch * (model.nq + model.nv))))
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


def _follow(run: Run, trajectory: _Trajectory, checkpoint: _Checkpoint | None, progress: bool) -> None:
    """Window by window."""
    q, qd = _first_window(run)
    length, done = len(q) - 1, 0
    trajectory.freeze(q[:1], qd[:1], 0)
    trajectory.keep(q[:1], qd[:1], 0)
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
                # A policy sees what is frozen: not where the next step would take it.
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
    trajectory.warn(run.interrupted)


@contextmanager
def progress_bar(shown: bool, steps: int, what: str = "rollout") -> Iterator[Callable[[int], None]]:
    """A function that is told of steps made, and shows them."""
    if not shown:
        yield lambda n: None
        return
    from rich.errors import LiveError
    from rich.progress import Progress

    bar = Progress()
    try:
        bar.start()
    except LiveError:  # older versions of rich have one at a time: another rollout's, or the user's
        yield lambda n: None
        return
    try:
        task = bar.add_task(what, total=steps)
        yield lambda n: bar.advance(task, n)
    finally:
        bar.stop()
