"""Short rollouts without the preparations of long ones: a program takes all steps, and only the last state is checked.

`Dynamics.rollout` reads, checks and lays out its arguments, and follows states in windows. For 50 steps of one state
this takes ten times as long as the steps. Once a call was answered, calls with arrays of the same shapes and dtype are
answered here. All other calls, and those that end in a state that is not finite, go the long way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from robodyn.api.motion.result import Rollout
from robodyn.core.integrators import STABLE
from robodyn.core.model import Model
from robodyn.internals.arguments import Array, address_of

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics
    from robodyn.api.motion.run import Run

_MOST_STEPS, _MOST_SCALARS = 1024, 1 << 16
"""Steps, and scalars of their states, up to which preparations take a large part of the time."""
MOST_KNOWN = 64
"""Kinds of calls that one `Dynamics` keeps."""
_READ = ("tau", "f_ext", "V0", "dV0", "kp", "kd", "q_des", "damping", "friction", "targets", "active")
"""Arguments whose arrays a program reads as they are."""
_NOT_NEGATIVE = ("kp", "kd", "damping", "friction")
_LONG_WAY = ("policy", "inertia", "armature", "gravity", "checkpoint", "out")
"""Arguments that need more than a program, unless they are None."""


_ARRAYS = ("q0", "qd0", *_READ)
_arrays, _long_way = itemgetter(*_ARRAYS), itemgetter(*_LONG_WAY)
_choices = itemgetter("dt", "steps", "save_every", "integrator", "limits")


class Loop(NamedTuple):
    """The arguments of a loop over steps, names of the arrays that calls give, and shapes of all states q and qd."""

    table: Any
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]

    def states(self, dyn: Dynamics, arguments: Mapping[str, Any]) -> tuple[Array, Array] | None:
        """All states q (steps + 1, ..., nq) and qd (steps + 1, ..., nv). None if an argument needs the long way, or the
        last state is not finite."""
        for name in ("q0", "qd0", *self.names):
            array = arguments[name]
            if not math.isfinite(np.vdot(array, array)) or (name in _NOT_NEGATIVE and array.min() < 0.0):
                return None
        q, qd = (np.empty(shape, dyn.dtype) for shape in self.shapes)
        q[0], qd[0] = nearly_unit(dyn.model, arguments["q0"]), arguments["qd0"]
        table = self.table.copied()
        for name in self.names:
            table.move(name, address_of(arguments[name]))
        for name, array in (("q", q), ("qd", qd)):
            start = address_of(array)
            table.move(name, start)
            table.move(f"{name}_next", start + array.strides[0])
        table.run(cast(Any, dyn.engine).launch, len(q) - 1)
        finite = math.isfinite(np.vdot(q[-1], q[-1])) and math.isfinite(np.vdot(qd[-1], qd[-1]))
        return (q, qd) if finite else None


class _Known(NamedTuple):
    """What calls of one kind share: the loop, which states are kept (None: all), and fields of the result."""

    loop: Loop
    kept: Array | None
    times: Array
    diverged: Any


class FastRollouts:
    """The kinds of calls of a `Dynamics` that are known. It lives until the `Dynamics` changes."""

    def __init__(self) -> None:
        self._known: dict[Any, _Known | None] = {}

    def answer(self, dyn: Dynamics, arguments: Mapping[str, Any]) -> Rollout | None:
        """The rollout, or None if it must go the long way. `arguments`: all of the call, by name."""
        known = self._known.get(kind_of_call(dyn, arguments))
        states = None if known is None else known.loop.states(dyn, arguments)
        if known is None or states is None:
            return None
        q, qd = states
        steps = len(q) - 1
        if known.kept is not None:
            q, qd = q[known.kept], qd[known.kept]
        return Rollout(known.times.copy(), q, qd, known.diverged.copy(), steps, dyn.model)

    def learn(self, run: Run, arguments: Mapping[str, Any], result: Rollout, every: int) -> None:
        """Answer calls like one that went the long way, if they can be answered so."""
        key = kind_of_call(run.dyn, arguments)
        if key is None or key in self._known or len(self._known) >= MOST_KNOWN:
            return
        loop, kept = loop_of(run, arguments), kept_states(run.steps, every)
        self._known[key] = loop and _Known(loop, kept, result.t.copy(), np.asarray(result.diverged)[()])


def kept_states(steps: int, every: int) -> Array | None:
    """Numbers of the states that are kept; None for all."""
    return None if every == 1 else np.minimum(np.arange(1 + -(-steps // every)) * every, steps)


def loop_of(run: Run, arguments: Mapping[str, Any]) -> Loop | None:
    """The loop of calls like one, None if they need more than a program."""
    dyn, steps = run.dyn, run.steps
    model, batch = dyn.model, run.start.batch
    make = getattr(dyn.engine, "loop_table", None)
    names = tuple(name for name in _READ if arguments[name] is not None)
    as_given = all(address_of(run.given[name]) == address_of(arguments[name]) for name in names)
    own = {*run.given} - {"tau", *names}  # e.g. places of feet, which follow from the state
    explicit = run.integrator in STABLE and {"damping", "kd"} & {*run.step.acting}
    large = steps > _MOST_STEPS or steps * batch * (model.nq + model.nv) > _MOST_SCALARS
    if make is None or run.engine is not dyn.engine or not as_given or own or explicit or large or not batch:
        return None
    if dyn.singularity() is not None:  # damping or targets may move what has no mass: it depends on their numbers
        return None
    shapes = (steps + 1, *run.start.leading, model.nq), (steps + 1, *run.start.leading, model.nv)
    states = tuple(np.empty((steps + 1, batch, shape[-1]), dyn.dtype) for shape in shapes)
    table = make(run.step, states, run.given, run.dt)
    return Loop(table, names, shapes) if table is not None and table.alone else None


def kind_of_call(dyn: Dynamics, arguments: Mapping[str, Any]) -> Any:
    """What calls of one kind have in common; None for those that always go the long way."""
    if arguments["progress"] is not False or not all(each is None for each in _long_way(arguments)):
        return None
    dt, steps, every, integrator, limits = _choices(arguments)
    if type(dt) is not float or type(steps) is not int or (type(every) is not int and every is not None):
        return None
    if type(integrator) is not str or type(limits) is not tuple or not all(type(word) is str for word in limits):
        return None
    shapes = []
    for name, array in zip(_ARRAYS, _arrays(arguments), strict=True):
        if array is None:
            continue
        if type(array) is not np.ndarray or array.dtype is not dyn.dtype or not array.flags.c_contiguous:
            return None
        shapes.append((name, array.shape))
    return dt, steps, every, integrator, limits, tuple(shapes)


def nearly_unit(model: Model, q: Array) -> Array:
    """Configurations (..., nq) with quaternions scaled to unit length. Entries that are unit up to roundings stay as
    they are, so a rollout continues from a last state as if it had not been interrupted."""
    starts = model.quaternion_starts
    if not starts.size:
        return q
    eps = float(np.finfo(q.dtype).eps)
    if q.ndim == 1 and all(abs(np.vdot(q[k : k + 4], q[k : k + 4]) - 1.0) <= 4.0 * eps for k in starts.tolist()):
        return q
    unit = model.unit_coordinates(q)
    return np.where(np.abs(unit - q) <= 8.0 * np.finfo(unit.dtype).eps, q, unit)
