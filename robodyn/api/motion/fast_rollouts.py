"""Short rollouts without the preparations of long ones.

`Dynamics.rollout` reads, checks and lays out its arguments, and follows states in windows. For 50 steps of one state
this takes ten times as long as the steps. Once a call was answered, calls like it are answered here by built-in
functions (`robodyn.api.motion.built_in_steps`). All other calls, and those that come to a state that is not finite, go
the long way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robodyn.api.motion.built_in_steps import (
    NOT_NEGATIVE,
    Inputs,
    Loop,
    kind_of_call,
    loop_of,
    possible,
    shapes_of_call,
)
from robodyn.api.motion.policy import BuiltInStep, Stop, follow
from robodyn.api.motion.result import Rollout, rollout_of
from robodyn.engines import buffer_pool
from robodyn.internals.arguments import Array

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics
    from robodyn.api.motion.run import Run

MOST_KNOWN = 64
"""Kinds of calls that one `Dynamics` keeps."""
_NOT_DIVERGED: Any = np.int64(-1)


class Begun(NamedTuple):
    """A rollout that stopped early: states q (k + 1, ..., nq) and qd (k + 1, ..., nv) so far, all of them finite."""

    q: Array
    qd: Array
    stop: Stop


class _Known(NamedTuple):
    """What calls of one kind share.

    `kept`: numbers of the states that are kept, None for all; `times`: theirs; `inputs`: what their steps take; `loop`:
    takes all steps, None under a policy; `entry`: takes a step under one; `timed`: whether each input has a value for
    each step then."""

    kept: Array | None
    times: Array
    inputs: Inputs
    loop: Loop | None
    entry: Any = None
    timed: tuple[bool, ...] = ()


class FastRollouts:
    """The kinds of calls of a `Dynamics` that are known. It lives until the `Dynamics` changes."""

    def __init__(self) -> None:
        self._known: dict[Any, _Known | None] = {}

    def answer(self, dyn: Dynamics, arguments: Mapping[str, Any]) -> Rollout | Begun | None:
        """The rollout; its beginning, if a policy does not lead to the end; or None if it must go the long way.
        `arguments`: all of the call, by name."""
        known = self._known.get(_key(dyn, arguments))
        if known is None:
            return None
        out, kept, loop = arguments["out"], known.kept, known.loop
        direct = None
        if out is not None:
            direct = out if kept is None and loop is not None and np.ndim(arguments["q0"]) <= 2 else None
            if direct is None and not _fit(out, dyn, arguments, len(known.times)):
                return None
        states = _under_policy(known, dyn, arguments) if loop is None else loop.states(dyn, arguments, direct)
        if states is None or isinstance(states, Begun):
            return states
        q, qd = states
        steps, diverged = len(q) - 1, _NOT_DIVERGED if q.ndim == 2 else np.full(q.shape[1:-1], -1, np.int64)
        if kept is not None:
            q, qd = q[kept], qd[kept]
        if out is not direct:
            out[0][...], out[1][...] = q, qd
            q, qd = out
        return rollout_of(known.times.copy(), q, qd, diverged, steps, dyn.model)

    def learn(self, run: Run, arguments: Mapping[str, Any], result: Rollout, every: int) -> None:
        """Answer calls like one that went the long way, if they can be answered so."""
        key = _key(run.dyn, arguments)
        known = self._known.get(key)
        if known is not None:
            known.inputs.remember(arguments)
        elif key is not None and key not in self._known and len(self._known) < MOST_KNOWN:
            self._known[key] = _learnt(run, arguments, kept_states(run.steps, every), result.t.copy())


def _learnt(run: Run, arguments: Mapping[str, Any], kept: Array | None, times: Array) -> _Known | None:
    if run.policy is None:
        loop = loop_of(run, arguments)
        return None if loop is None else _Known(kept, times, loop.inputs, loop)
    if not possible(run, arguments) or not arguments["q0"].ndim == arguments["qd0"].ndim == len(run.start.leading) + 1:
        return None
    inputs = Inputs(run, arguments)
    entry, timed = run.stepping(inputs.inputs), tuple(name in run.timed for name in inputs.inputs)
    return None if entry is None else _Known(kept, times, inputs, None, entry, timed)


def kept_states(steps: int, every: int) -> Array | None:
    """Numbers of the states that are kept; None for all."""
    return None if every == 1 else np.minimum(np.arange(1 + -(-steps // every)) * every, steps)


def _key(dyn: Dynamics, arguments: Mapping[str, Any]) -> Any:
    """What calls of one kind have in common; None for those that always go the long way. Under a policy these are all
    shapes, too: an array that does not fit must be told before the policy is called."""
    kind, model = kind_of_call(arguments), dyn.model
    if kind is not None and model.contacts is not None:  # one state has other programs than batches
        kind = kind, np.size(arguments["q0"]) == model.nq and np.size(arguments["qd0"]) == model.nv
    if kind is None or arguments["policy"] is None:
        return kind
    shapes = shapes_of_call(dyn, arguments)
    return None if shapes is None or not callable(arguments["policy"]) else (kind, shapes)


def _fit(out: Any, dyn: Dynamics, arguments: Mapping[str, Any], n_kept: int) -> bool:
    """Whether arrays of the user can take the states that are kept, wherever these were computed."""
    if type(out) is not tuple or len(out) != 2 or not all(type(each) is np.ndarray for each in out):
        return False
    leading = max((np.shape(arguments[name])[:-1] for name in ("q0", "qd0")), key=len)
    for each, n in zip(out, (dyn.model.nq, dyn.model.nv), strict=True):
        if each.shape != (n_kept, *leading, n) or each.dtype is not dyn.dtype:
            return False
    return all(each.flags.c_contiguous and each.flags.writeable for each in out) and not np.may_share_memory(*out)


def _under_policy(known: _Known, dyn: Dynamics, arguments: Mapping[str, Any]) -> tuple[Array, Array] | Begun | None:
    """All states q (steps + 1, ..., nq) and qd under a policy, or those before one that is not finite. None if the long
    way must answer from the start on."""
    arrays = known.inputs.of(dyn, arguments)
    if arrays is None or not all(math.isfinite(np.vdot(each, each)) for each in arrays):
        return None
    if any(arguments[name].min(initial=0.0) < 0.0 for name in NOT_NEGATIVE if arguments[name] is not None):
        return None
    step = BuiltInStep(known.entry, arrays[2:], known.timed)
    steps, leading = arguments["steps"], arguments["q0"].shape[:-1]
    states = [buffer_pool.empty((steps + 1, *array.shape), dyn.dtype) for array in arrays[:2]]
    for slab, array in zip(states, arrays[:2], strict=True):
        slab[0] = array
    stop = follow(step, arguments["policy"], arguments["dt"], (states[0], states[1]), leading)
    if stop.steps < steps:
        q, qd = (each[: stop.steps + 1] for each in states)
        return Begun(q, qd, stop)
    q, qd = (each.reshape(steps + 1, *leading, each.shape[-1]) for each in states)
    return q, qd
