"""Rollouts: states followed through time, for a batch at once.

States lie time first, (steps + 1, B, ...), so that a step reads one slab and writes the next. They are followed in
windows: an engine that has a program for the step takes a window in one go; between windows rows that diverged are
frozen, and someone may ask to stop.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from robodyn.algorithms.aba import aba
from robodyn.algorithms.forward_gradient import forward_by_mass_matrix
from robodyn.arguments import Array, count, finite_real, flag, one_of, real_array, row_named
from robodyn.array_library import Library
from robodyn.chains import on_inertia, step_of
from robodyn.engines.protocol import Marching
from robodyn.errors import ArgumentError
from robodyn.integrators import INTEGRATORS
from robodyn.messages import brief
from robodyn.query import Query

if TYPE_CHECKING:
    from robodyn.dynamics import Dynamics

Policy = Callable[[float, Array, Array], Any]
"""(t, q (..., nq), qd (..., nv)) to tau (..., nv)."""

_MOST_STEPS = 1 << 40
_WINDOW_SCALARS = 1 << 18
"""Scalars of states in a window: some milliseconds of work, and in a cache what one window leaves to the next."""
_LONGEST_WINDOW = 1024


@dataclass(frozen=True)
class Rollout:
    """What a rollout came to. Times are the first axis: (K,) of `t`, (K, ..., nq) of `q`, (K, ..., nv) of `qd`.

    `t`: seconds from the start of the states that were saved; `diverged` (...): the step after which a row's state was
    no longer finite, -1 where it always was. From then on the row keeps its last finite state. `steps`: how many were
    made; fewer than asked for after an interruption.
    """

    t: Array
    q: Array
    qd: Array
    diverged: Array
    steps: int

    def save(self, path: str | Path) -> None:
        """Write it as a NumPy archive (.npz), which `load` reads."""
        q, qd = (array if isinstance(array, np.ndarray) else array.get() for array in (self.q, self.qd))
        np.savez(path, t=self.t, q=q, qd=qd, diverged=self.diverged, steps=self.steps)

    @staticmethod
    def load(path: str | Path) -> Rollout:
        """Read what `save` wrote.

        Raises:
            ArgumentError: the file holds something else.
        """
        try:
            with np.load(path, allow_pickle=False) as found:
                arrays = [np.asarray(found[name]) for name in ("t", "q", "qd", "diverged")]
                return Rollout(arrays[0], arrays[1], arrays[2], arrays[3], int(found["steps"]))
        except (KeyError, ValueError, TypeError, EOFError) as error:
            raise ArgumentError(f"path: {brief(str(path))} holds no rollout ({error})") from error


def rollout(
    dyn: Dynamics,
    q0: Any,
    qd0: Any,
    tau: Any,
    dt: float,
    steps: int,
    integrator: str,
    f_ext: Any,
    inertia: Any,
    policy: Policy | None,
    save_every: int | None,
    checkpoint: str | Path | None,
    progress: bool,
    out: Any,
) -> Rollout:
    """Follow states through time (`Dynamics.rollout`)."""
    one_of("integrator", integrator, tuple(INTEGRATORS))
    steps = count("steps", steps, 1, _MOST_STEPS)
    seconds = finite_real(dt)
    if seconds is None or seconds <= 0.0:
        raise ArgumentError(f"dt: got {brief(dt)}; wanted a positive finite number of seconds")
    every = steps if save_every is None else count("save_every", save_every, 1, _MOST_STEPS)
    if policy is not None and (tau is not None or not callable(policy)):
        got = "tau besides" if callable(policy) else brief(policy)
        raise ArgumentError(f"policy: got {got}; wanted a function of (t, q, qd) that returns tau, and no tau then")
    start = Query(dyn, None, q=q0, qd=qd0)
    run = _Run(dyn, start, seconds, steps, integrator, {"tau": tau, "f_ext": f_ext, "inertia": inertia}, policy)
    return _followed(run, _Trajectory(run, every, out), checkpoint, flag("progress", progress))


class _Run:
    """A rollout under way.

    `dyn`: what answers; `start`: its query about the first states; `given`: what stays or changes with the steps;
    `library`: of arrays where the engine lives, which need not be that of the user's, `outer`.
    """

    def __init__(
        self,
        dyn: Dynamics,
        start: Query,
        dt: float,
        steps: int,
        integrator: str,
        given: Mapping[str, Any],
        policy: Policy | None,
    ) -> None:
        self.dyn, self.start, self.dt, self.steps, self.policy = dyn, start, dt, steps, policy
        self.integrator, self.engine, self.outer = integrator, start.engine, start.library
        self.library: Library = getattr(start.engine, "library", start.library)
        self.given = {name: self._read(name, value) for name, value in given.items() if value is not None}
        if "tau" not in self.given:
            self.given["tau"] = self.library.xp.zeros((1, start.batch, dyn.model.nv), dyn.dtype)
        inputs = tuple(name for name in ("q", "qd", "tau", "f_ext") if name in ("q", "qd") or name in self.given)
        dynamics = forward_by_mass_matrix(inputs) if dyn.model.has_mimic else aba(inputs)
        self.task = on_inertia(dynamics) if "inertia" in self.given else dynamics
        dyn._require_regular(start)
        start.library = self.library

    def _read(self, name: str, value: Any) -> Array:
        """(steps, B, ...), or (1, B, ...) for what does not change: an axis more than the batch has is time."""
        shape, leading = self.dyn.argument_shapes[name], self.start.leading
        array = real_array(name, value, shape, self.dyn.dtype, read=self.outer.array)
        axes = array.shape[: array.ndim - len(shape)]
        timed = len(axes) > len(leading)
        wanted = (*((self.steps,) if timed else ()), *leading)
        try:
            whole = np.broadcast_to(array, (*wanted, *shape))
        except ValueError:
            raise ArgumentError(
                f"{name}: got shape {array.shape} for {self.steps} steps of states {leading}; wanted "
                f"{(*leading, *shape)}, or {(self.steps, *leading, *shape)} for one in each step"
            ) from None
        laid: Array = whole.reshape(self.steps if timed else 1, self.start.batch, *shape)
        if name == "inertia":
            self.start.inertia = laid[0]
        return self.inward(laid)

    def inward(self, array: Array) -> Array:
        """One of the user's arrays where the engine lives."""
        return array if self.outer is self.library else self.library.like_numpy(array)

    def outward(self, array: Array) -> Array:
        """An array of the engine's as one of the user's library."""
        return array if self.outer is self.library else self.library.to_numpy(array)

    def window(self, q: Array, qd: Array, first: int) -> None:
        """Fill states (n + 1, B, ...) behind their first row, the state after `first` steps."""
        steps = len(q) - 1
        given = {
            name: array[first : first + steps] if len(array) > 1 or self.steps == 1 else array
            for name, array in self.given.items()
        }
        if self.policy is None and self._marched((q, qd), given):
            return
        with np.errstate(all="ignore"):
            for k in range(steps):
                now = {name: array[k if len(array) > 1 else 0] for name, array in given.items()}
                if self.policy is not None:
                    now["tau"] = self._asked(self.policy, first + k, q[k], qd[k])
                    if self._marched((q[k : k + 2], qd[k : k + 2]), {name: a[None] for name, a in now.items()}):
                        continue
                system = _Arrays(self, now)
                q[k + 1], qd[k + 1] = INTEGRATORS[self.integrator](system, q[k], qd[k], self.dt)

    def _marched(self, states: tuple[Array, Array], given: Mapping[str, Array]) -> bool:
        step = step_of(self.task, self.integrator, self.dyn.joint_forces)
        return isinstance(self.engine, Marching) and self.engine.march(step, states, given, self.dt)

    def _asked(self, policy: Policy, k: int, q: Array, qd: Array) -> Array:
        """tau (B, nv) of a policy."""
        leading, nv = self.start.leading, self.dyn.model.nv
        state = [self.outward(each).reshape(*leading, each.shape[-1]) for each in (q, qd)]
        answer = policy(k * self.dt, *state)
        what = "the tau that it returns"
        tau = real_array("policy", answer, (nv,), self.dyn.dtype, what=what, read=self.outer.array)
        try:
            return self.inward(np.broadcast_to(tau, (*leading, nv)).reshape(self.start.batch, nv))
        except ValueError:
            raise ArgumentError(
                f"policy: returned shape {tau.shape} for states {leading}; wanted tau of shape {(*leading, nv)}"
            ) from None


class _Arrays:
    """A robot for integrators: coordinates and vectors are arrays (B, ...)."""

    def __init__(self, run: _Run, given: Mapping[str, Array]) -> None:
        self._run, self._given = run, given

    def acceleration(self, q: Array, qd: Array) -> Array:
        """qdd (B, nv)."""
        run, xp = self._run, self._run.library.xp
        inputs = {**self._given, "q": q, "qd": qd}
        query = run.start
        query.inputs = inputs
        run.dyn._take_joint_forces(query)
        if not run.engine.normalizes:
            query.inputs["q"] = run.dyn.model.unit_coordinates(q)
        qdd = xp.empty(qd.shape, qd.dtype)
        engine: Any = run.engine
        engine.run(run.dyn._scan("forward_dynamics") or run.task, query.inputs, {"qdd": qdd})
        return cast(Array, qdd)

    def moved(self, q: Array, u: Array) -> Array:
        """q (+) u (B, nq)."""
        return self._joint_by_joint("integrate", q, u, q.shape)

    def bracket(self, a: Array, b: Array) -> Array:
        """The Lie bracket (B, nv)."""
        return self._joint_by_joint("bracket", a, b, b.shape)

    def _joint_by_joint(self, operation: str, left: Array, right: Array, shape: tuple[int, ...]) -> Array:
        out = self._run.library.xp.empty(shape, right.dtype)
        for kind, q_index, v_index in self._run.dyn.model.free_joints:
            at, along = (self._run.library.like_numpy(index) for index in (q_index, v_index))
            first = at if operation == "integrate" else along
            values = getattr(kind, operation)(
                tuple(left[:, first[:, c]] for c in range(first.shape[1])),
                tuple(right[:, along[:, c]] for c in range(along.shape[1])),
            )
            for c, value in enumerate(values):
                out[:, first[:, c]] = value
        return cast(Array, out)


class _Trajectory:
    """States that are kept, and which rows have diverged.

    `every`: how many steps lie between kept states; the last one is kept, too.
    """

    def __init__(self, run: _Run, every: int, out: Any) -> None:
        self._run, self._every = run, every
        xp, model, leading = run.library.xp, run.dyn.model, run.start.leading
        kept = 1 + -(-run.steps // every)
        shapes = [(kept, *leading, n) for n in (model.nq, model.nv)]
        given = None if out is None else _given(out, shapes, run)
        direct = given is not None and run.outer is run.library
        arrays = given if given is not None and direct else [xp.empty(each, run.dyn.dtype) for each in shapes]
        self.states = [array.reshape(kept, run.start.batch, array.shape[-1]) for array in arrays]
        self._arrays, self._out = arrays, None if direct else given
        self.diverged = np.full(run.start.batch, -1, np.int64)
        self._last: tuple[int, Any, Any] | None = None

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
        if bool(xp.isfinite(q[-1]).all() & xp.isfinite(qd[-1]).all()):
            return
        finite = library.to_numpy(xp.isfinite(q).all(axis=-1) & xp.isfinite(qd).all(axis=-1))
        for row in np.flatnonzero(~finite[-1] & ~still).tolist():
            good = int(np.flatnonzero(~finite[:, row])[0])
            self.diverged[row] = first + good
            for states in (q, qd):
                states[good:, row] = states[max(0, good - 1), row]

    def warn(self) -> None:
        """Say which rows diverged."""
        rows = np.flatnonzero(self.diverged >= 0)
        if rows.size:
            where = row_named(int(rows[0]), self._run.start.leading) or "the state"
            step = int(self.diverged[rows[0]])
            warnings.warn(
                f"rollout: {rows.size} of {self.diverged.size} rows diverged, {where} in step {step} (t = "
                f"{step * self._run.dt:.6g} s); they keep their last finite state. A smaller dt may help",
                RuntimeWarning,
                stacklevel=5,
            )

    def result(self, done: int) -> Rollout:
        """What there is after so many steps, the state after the last of them included."""
        run, every = self._run, self._every
        whole = done == run.steps
        kept = len(self.states[0]) if whole else done // every + 1
        steps = [min(k * every, run.steps) for k in range(kept)]
        arrays = [array[:kept] for array in self._arrays]
        if steps[-1] < done and self._last is not None:
            steps.append(done)
            for k, (array, last) in enumerate(zip(arrays, self._last[1:], strict=True)):
                arrays[k] = run.library.xp.concatenate((array, last.reshape(1, *array.shape[1:])))
        arrays = [run.outward(array) for array in arrays]
        for target, array in zip(self._out or (), arrays, strict=False):
            target[: len(array)] = array[: len(target)]
        t = np.array(steps, np.float64) * run.dt
        return Rollout(t, arrays[0], arrays[1], self.diverged.reshape(run.start.leading)[()], done)


def _given(out: Any, shapes: list[tuple[int, ...]], run: _Run) -> list[Array]:
    """The user's arrays for q and qd."""
    if not isinstance(out, tuple) or len(out) != 2:
        raise ArgumentError("out: wanted a tuple of 2 arrays: q, qd")
    arrays = [
        run.outer.output(f"out ({name})", target, shape, run.dyn.dtype)
        for name, target, shape in zip(("q", "qd"), out, shapes, strict=True)
    ]
    for name, array in zip(("q", "qd"), arrays, strict=True):
        if not array.flags.c_contiguous:
            raise ArgumentError(f"out ({name}): got a strided array; wanted a contiguous one")
    if run.outer.xp.may_share_memory(*arrays):
        raise ArgumentError("out: got arrays that share memory; wanted memory of its own for every result")
    return arrays


def _followed(run: _Run, trajectory: _Trajectory, checkpoint: str | Path | None, progress: bool) -> Rollout:
    """Window by window."""
    model, batch, xp = run.dyn.model, run.start.batch, run.library.xp
    scalars = max(1, batch * (model.nq + model.nv))
    length = max(1, min(run.steps, _LONGEST_WINDOW, _WINDOW_SCALARS // scalars))
    q, qd = (xp.empty((length + 1, batch, n), run.dyn.dtype) for n in (model.nq, model.nv))
    q[0], qd[0] = (run.inward(run.start.inputs[name]) for name in ("q", "qd"))
    done = 0
    trajectory.freeze(q[:1], qd[:1], 0)
    trajectory.keep(q[:1], qd[:1], 0)
    with progress_bar(progress, run.steps) as advance:
        try:
            while done < run.steps:
                n = min(length, run.steps - done)
                run.window(q[: n + 1], qd[: n + 1], done)
                trajectory.freeze(q[: n + 1], qd[: n + 1], done)
                trajectory.keep(q[: n + 1], qd[: n + 1], done)
                done += n
                q[0], qd[0] = q[n], qd[n]
                advance(n)
                if checkpoint is not None:
                    trajectory.result(done).save(checkpoint)
        except KeyboardInterrupt:
            text = f"rollout: interrupted after {done} of {run.steps} steps; what was computed is returned"
            warnings.warn(text, RuntimeWarning, stacklevel=4)
    trajectory.warn()
    return trajectory.result(done)


@contextmanager
def progress_bar(shown: bool, steps: int) -> Iterator[Callable[[int], None]]:
    """A function that is told of steps made, and shows them."""
    if not shown:
        yield lambda n: None
        return
    from rich.progress import Progress

    with Progress() as bar:
        task = bar.add_task("rollout", total=steps)
        yield lambda n: bar.advance(task, n)
