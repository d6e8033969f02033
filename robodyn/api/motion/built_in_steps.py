"""Built-in functions that take the steps of short rollouts, and what they take from the arguments of a call.

They are made once for calls of a kind. What such a call needs besides its numbers is done here: quaternions are scaled,
a gravity becomes an acceleration of the base, feet get the places where they stand. Calls that need more, or that may
have to raise or warn, go the long way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robodyn.api.motion.step_spec import needs_armature
from robodyn.api.queries.call import against_gravity
from robodyn.api.queries.contacts import OF_CONTACTS, without_dry_friction
from robodyn.core.integrators import STABLE
from robodyn.core.joints import unit_quaternion
from robodyn.core.model import Model
from robodyn.internals.arguments import Array
from robodyn.internals.errors import RobodynError

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics
    from robodyn.api.motion.run import Run

_MOST_STEPS, MOST_SCALARS = 1024, 1 << 21
"""Steps, and scalars of their states, up to which preparations take a large part of the time."""
STEADY = ("inertia", "armature", "damping", "friction", "kp", "kd")
"""Inputs of a step that have one value for all steps."""
NOT_NEGATIVE = ("armature", "damping", "friction", "kp", "kd")
GIVEN = ("tau", "f_ext", *STEADY, "gravity", "V0", "dV0", "q_des", "targets", "active")
"""Arguments of a call that are arrays, besides the first state."""
_EPS = {kind: float(np.finfo(kind).eps) for kind in (np.float32, np.float64)}
_given, _states = itemgetter(*GIVEN), itemgetter("q0", "qd0")
_choices = itemgetter("dt", "steps", "save_every", "integrator", "limits", "progress", "checkpoint")


def kind_of_call(arguments: Mapping[str, Any]) -> Any:
    """What calls of one kind have in common besides shapes; None for those that always go the long way."""
    dt, steps, every, integrator, limits, progress, checkpoint = _choices(arguments)
    if type(dt) is not float or type(steps) is not int or (type(every) is not int and every is not None):
        return None
    if type(integrator) is not str or type(limits) is not tuple or progress is not False or checkpoint is not None:
        return None
    if limits and not all(type(word) is str for word in limits):
        return None
    if any(arguments.get(name) is not None for name in OF_CONTACTS):
        return None
    return dt, steps, every, integrator, limits, tuple([each is None for each in _given(arguments)])


def shapes_of_call(dyn: Dynamics, arguments: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """The shapes of the arrays of a call. None if one is no contiguous array of the dtype."""
    shapes = []
    for array in (*_states(arguments), *_given(arguments)):
        if array is not None:
            if type(array) is not np.ndarray or array.dtype is not dyn.dtype or not array.flags.c_contiguous:
                return None
            shapes.append(array.shape)
    return tuple(shapes)


class Inputs:
    """The arrays that a built-in function of steps takes, from the arguments of a call.

    `names`: the arguments that calls give besides the first state; `inputs`: the inputs of a step that they become."""

    def __init__(self, run: Run, arguments: Mapping[str, Any]) -> None:
        model, acting = run.dyn.model, run.step.acting
        self.names = tuple(name for name in GIVEN if arguments[name] is not None)
        self._read = itemgetter("q0", "qd0", *self.names)
        self._feet = "targets" in run.given and "targets" not in self.names
        inside = ["dV0" if name == "gravity" else name for name in self.names]
        self.inputs = tuple(dict.fromkeys([*inside, *["targets"] * self._feet]))
        stable = STABLE.get(run.integrator)
        self._most_damping = stable / run.dt if stable is not None and {"damping", "kd"} & {*acting} else None
        self._damping = model.damping if "damping" in acting else 0.0
        loose = "friction" in self.names and model.contacts is not None
        self._loose = without_dry_friction(model) if loose else None
        changed = self._feet or model.quaternion_starts.size or loose or {"gravity", "inertia"} & {*self.names}
        self._plain = not changed and self._most_damping is None
        self._inertia: Array | None = None
        self.remember(arguments)

    def remember(self, arguments: Mapping[str, Any]) -> None:
        """From now on take calls with this inertia, which leaves a regular mass matrix."""
        if "inertia" in self.names:
            self._inertia = np.array(arguments["inertia"])

    def of(self, dyn: Dynamics, arguments: Mapping[str, Any]) -> Sequence[Array] | None:
        """q, qd and `inputs`, in this order, with at most one axis for several states. None where the long way must
        answer."""
        arrays: Sequence[Array] = self._read(arguments)
        q, qd = arrays[0], arrays[1]
        if not type(q) is type(qd) is np.ndarray or arguments["steps"] * (q.size + qd.size) > MOST_SCALARS:
            return None
        if self._plain and q.ndim <= 2:
            return arrays
        if not all(type(each) is np.ndarray and each.dtype is dyn.dtype for each in arrays):
            return None
        with suppress(ValueError, IndexError, RobodynError):  # the long way tells what is wrong
            return self._changed(dyn, dict(zip(("q", "qd", *self.names), arrays, strict=True)))
        return None

    def _changed(self, dyn: Dynamics, given: dict[str, Array]) -> Sequence[Array] | None:
        model, leading = dyn.model, given["q"].shape[:-1]
        if given["q"].shape[-1] != model.nq:
            return None
        if "inertia" in given and not np.array_equal(given["inertia"], self._inertia):  # type: ignore[arg-type]
            return None
        if self._loose is not None and given["friction"][..., self._loose].any():
            return None
        given["q"] = nearly_unit(model, given["q"])
        if "q_des" in given:
            given["q_des"] = model.unit_coordinates(given["q_des"])
        if "gravity" in given:
            gravity = given.pop("gravity")
            if gravity.ndim > max(given["q"].ndim, given["qd"].ndim):  # it has no value for each step
                return None
            given["dV0"] = against_gravity(np, model.gravity.astype(dyn.dtype), gravity, given.get("dV0"))
        if self._feet:
            given["targets"] = dyn.constraint_targets(given["q"])
        if self._most_damping is not None and not is_calm(dyn, given, self._damping, self._most_damping):
            return None
        if len(leading) > 1:
            given = {name: _in_rows(array, dyn.argument_shapes[name], leading) for name, array in given.items()}
        return [given[name] for name in ("q", "qd", *self.inputs)]


class Loop(NamedTuple):
    """A built-in function that takes all steps of calls of a kind. `still`: the tau of calls that give none."""

    entry: Any
    inputs: Inputs
    still: tuple[Array, ...]

    def states(
        self, dyn: Dynamics, arguments: Mapping[str, Any], out: tuple[Array, Array] | None = None
    ) -> tuple[Array, Array] | None:
        """All states q (steps + 1, ..., nq) and qd (steps + 1, ..., nv). None if an argument needs the long way, or the
        last state is not finite. `out`: the user's arrays for states with at most one axis for several of them."""
        arrays = self.inputs.of(dyn, arguments)
        if arrays is None:
            return None
        entry = self.entry
        found = entry.strict(*arrays, *self.still) if out is None else entry.strict(*arrays, *self.still, out=out)
        if found is entry.missed:
            return None
        q0 = arguments["q0"]
        if q0.ndim > 2:
            found = tuple([each.reshape(len(each), *q0.shape[:-1], each.shape[-1]) for each in found])
        states: tuple[Array, Array] = found
        return states


def possible(run: Run, arguments: Mapping[str, Any]) -> bool:
    """Whether calls like one can do without the preparations of a `Run`."""
    dyn = run.dyn
    if run.engine is not dyn.engine or not run.start.batch or run.steps > _MOST_STEPS or dyn.singularity() is not None:
        return False  # damping or targets may move what has no mass: it depends on their numbers
    return arguments["armature"] is None or not needs_armature(dyn)


def loop_of(run: Run, arguments: Mapping[str, Any]) -> Loop | None:
    """The loop of calls like one, None if they need more than a program."""
    if not possible(run, arguments):
        return None
    inputs = Inputs(run, arguments)
    entry = run.stepping(inputs.inputs, run.steps)
    still = () if "tau" in inputs.inputs else (np.zeros(run.dyn.model.nv, run.dyn.dtype),)
    return None if entry is None else Loop(entry, inputs, still)


def is_calm(dyn: Dynamics, given: Mapping[str, Array], own: Array | float, most: float) -> bool:
    """Whether explicit steps are certainly short enough for the damping: the largest eigenvalue of H^-1 D is at most
    the sum of all of them. A given armature larger than the model's makes it smaller.

    Args:
        dyn: the `Dynamics`.
        given: a call's arrays by name, of a state or several.
        own: damping if none is given.
        most: eigenvalue for which a step is stable, 1/s.
    """
    if "armature" in given and (given["armature"] < dyn.model.armature).any():
        return False
    damping = given.get("damping", own) + given.get("kd", 0.0)
    inverse = dyn.mass_matrix_inverse(given["q"], inertia=given.get("inertia"))
    return bool(np.einsum("...ii,...i->...", inverse, damping).max(initial=0.0) <= most)


def nearly_unit(model: Model, q: Array) -> Array:
    """Configurations (..., nq) with quaternions scaled to unit length. Entries that are unit up to roundings stay as
    they are, so a rollout continues from a last state as if it had not been interrupted."""
    starts = model.quaternion_starts
    if not starts.size:
        return q
    eps = _EPS[q.dtype.type]
    quaternions = [q[..., k : k + 4] for k in starts.tolist()]
    if q.ndim == 1:
        off = [abs(a * a + b * b + c * c + d * d - 1.0) for a, b, c, d in [each.tolist() for each in quaternions]]
    else:
        off = [np.abs(np.einsum("...i,...i->...", each, each) - 1.0).max(initial=0.0) for each in quaternions]
    if all(each <= 4.0 * eps for each in off):
        return q
    unit = model.unit_coordinates(q)
    return np.where(np.abs(unit - q) <= 8.0 * eps, q, unit)


def nearly_unit_on_device(model: Model, q: Array, xp: Any) -> Array:
    """The same for configurations (B, nq) on a device, without waiting for it."""
    close, found = 8.0 * _EPS[q.dtype.type], q.copy()
    for start in model.quaternion_starts.tolist():
        given = tuple(q[:, start + k] for k in range(4))
        for k, (entry, unit) in enumerate(zip(given, unit_quaternion(given), strict=True)):
            found[:, start + k] = xp.where(abs(unit - entry) <= close, entry, unit)
    return found


def _in_rows(array: Array, shape: tuple[int, ...], leading: tuple[int, ...]) -> Array:
    """An array with one axis in place of the leading axes of states, after one of time if there is one.

    Raises:
        ValueError: other axes.
    """
    axes, batch = array.shape[: array.ndim - len(shape)], prod(leading)
    if axes in ((), leading):
        return array.reshape(*(batch,)[: len(axes)], *shape)
    if axes[1:] != leading:
        raise ValueError(f"axes {axes} for states {leading}")
    return array.reshape(axes[0], batch, *shape)
