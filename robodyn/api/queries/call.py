"""One call of a `Dynamics`: reads and broadcasts its arguments, shapes and checks its results."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from robodyn.algorithms.tasks import Task, on_inertia
from robodyn.core.sweeps import PER_ROW
from robodyn.engines import buffer_pool
from robodyn.engines.query_table import FLAGS, QuerySpec
from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, broadcast_leading, real_array, require_finite
from robodyn.internals.array_library import Library
from robodyn.internals.errors import ArgumentError, NumericalError, UnavailableError

if TYPE_CHECKING:
    from robodyn.api.queries.core import Core

_MAX_OVERLAP_WORK = 100_000
"""Limit of steps when searching for shared memory (milliseconds), because unfavourable strides take forever."""
_MEANING = {
    "q": "model.nq numbers",
    "f_ext": "(n_bodies, 6) numbers",
    "inertia": "(n_bodies, 10) numbers",
    "V0": "",
    "dV0": "",
    "point": "",
    "targets": "a transform for each constraint",
    "active": "a number, or a bool, for each constraint, or one bool",
    "restitution": "one number for each state",
    **dict.fromkeys(PER_ROW, "a number for each row of the constraints"),
    "lam": "a number for each row of the constraints",
    "contact_friction": "a number for each contact",
    "ground_pose": "a pose",
    "gravity": "",
}


def _read(dyn: Core, library: Library, name: str, value: Any, shape: tuple[int, ...]) -> Array:
    meaning = _MEANING.get(name, "model.nv numbers")
    if name == "point" and len(shape) > 1:
        if _shape_of(value) == shape[1:]:  # one for all links
            one = real_array(name, value, shape[1:], dyn.dtype, what=meaning, read=library.array)
            value = library.xp.broadcast_to(one, shape)
        meaning = "a point for each link; or (3,), one for all"
    return real_array(name, value, shape, dyn.dtype, what=meaning, read=library.array, flags=name in FLAGS)


def _shape_of(value: Any) -> tuple[int, ...] | None:
    """The shape of an array or of a list of numbers; None for other objects."""
    if strict_types.is_a(value, list, tuple):
        members = strict_types.members(value)
        return (len(members),) if all(strict_types.is_a(each, int, float) for each in members) else None
    try:
        return tuple(value.shape)
    except Exception:  # a foreign object may raise anything
        return None


def _require_one_restitution(dyn: Core, shape: tuple[int, ...], axes: Sequence[tuple[int, int]]) -> None:
    """Raise if one state has as many restitutions as the model has constraints or rows.

    The user meant one number for each constraint, but the array would broadcast as one number for each state.

    `axes`: for each argument its number of axes, and how many of them belong to one state.

    Raises:
        ArgumentError: the shape is ambiguous in this way.
    """
    model = dyn.model
    several = sum(own > of_state for own, of_state in axes) > 1
    counts = {model.n_constraints: "constraints", model.n_rows: "rows"}
    if several or len(shape) != 1 or shape[0] < 2 or shape[0] not in counts:
        return
    raise ArgumentError(
        f"restitution: got {shape[0]} numbers for one state that has {shape[0]} {counts[shape[0]]}; wanted one number, "
        "the same for all constraints, or row_restitution=, a number for each row. For the state with each of several "
        "restitutions give q of shape (1, nq)"
    )


class Call:
    """The arguments of one call: checked, broadcast, and laid out as (B, ...) arrays. `q` is always among them.

    `library`: the array library of arguments and results. Values on a device are checked only with check=True, because
    reading them waits for the device. `given_q`: q as passed, before broadcasting. `inertia`: likewise, or None.
    `singular`: which rows (B,) have a singular mass matrix, None if unknown; their results become NaN.

    Args:
        dyn: the `Dynamics` that is called.
        given: arguments by name.
        optional: names of arguments that may be None, which means omitted.
        out: the user's arrays for results, or None.
        more: leading axes of further arrays, which broadcast with those of the arguments.
        shapes: shapes of arguments for one state, where they differ from `Dynamics.argument_shapes`.
    """

    def __init__(
        self,
        dyn: Core,
        given: Mapping[str, Any],
        optional: tuple[str, ...] = (),
        out: Any = None,
        more: Sequence[tuple[int, ...]] = (),
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        self.dyn, self.out = dyn, out
        shapes = {**dyn.argument_shapes, **(shapes or {})}
        self.engine, self.library = dyn._engine_for(given)
        arrays = {
            name: _read(dyn, self.library, name, value, shapes[name])
            for name, value in given.items()
            if value is not None or name not in optional
        }
        trailing = {name: len(shapes[name]) for name in arrays}
        self.leading = broadcast_leading({name: (array, trailing[name]) for name, array in arrays.items()})
        if "restitution" in arrays:
            _require_one_restitution(
                dyn, arrays["restitution"].shape, [(arrays[each].ndim, trailing[each]) for each in arrays]
            )
        for axes in more:
            with suppress(ValueError):  # the function that reads that array reports the mismatch
                self.leading = np.broadcast_shapes(self.leading, axes)
        self.checked = dyn.check if dyn.check is not None else self.leading == () and not self.library.on_device
        if self.checked:
            for name, array in arrays.items():
                require_finite(name, array, trailing[name])
        self.given_q = q = arrays["q"]
        arrays["q"] = q if self.engine.normalizes else dyn.model.unit_coordinates(q)
        self.inertia, self.singular = arrays.get("inertia"), cast(Array | None, None)
        self.batch = prod(self.leading)
        self.inputs: dict[str, Array] = {}
        for name, array in arrays.items():
            shape = shapes[name]
            full_shape = (*self.leading, *shape)
            with _memory_for(name, full_shape, array.dtype):
                broadcast = array if array.shape == full_shape else np.broadcast_to(array, full_shape)
                self.inputs[name] = broadcast.reshape(self.batch, *shape)

    def new(self, *shape: int) -> Array:
        """An array for intermediate results, (B, *shape).

        Raises:
            UnavailableError: there is not enough memory.
        """
        return self._new("an intermediate result", shape)

    def _new(self, what: str, shape: tuple[int, ...]) -> Array:
        with _memory_for(what, (*self.leading, *shape), self.dyn.dtype):
            new = self.library.xp.empty if self.library.on_device else buffer_pool.empty
            return cast(Array, new((self.batch, *shape), self.dyn.dtype))

    def result(self, number: int, *shape: int) -> Array:
        """An array (B, *shape) for result `number`: the user's `out` if results can be written to it directly.

        Raises:
            UnavailableError: there is not enough memory.
        """
        target = self.out
        if strict_types.is_a(target, tuple):
            targets = strict_types.members(target)
            target = targets[number] if number < len(targets) else None
        if type(target) is not np.ndarray and strict_types.is_a(target, np.ndarray):
            target = np.asarray(target)  # a subclass may report other properties than its memory has
        direct = (
            strict_types.is_a(target, self.library.xp.ndarray)
            and not self.checked  # results that turn out not to be finite must not reach `out`
            and target.shape == (*self.leading, *shape)
            and target.dtype == self.dyn.dtype
            and target.flags.c_contiguous
            and getattr(target.flags, "writeable", True)  # arrays on devices always are
            and not any(self.library.xp.may_share_memory(target, array) for array in self.inputs.values())
        )
        return target.reshape(self.batch, *shape) if direct else self._new(f"result number {number + 1}", shape)

    def results(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
        """Arrays for all results, from their shapes for one state, in order.

        Raises:
            UnavailableError: there is not enough memory.
        """
        return {name: self.result(number, *shape) for number, (name, shape) in enumerate(shapes.items())}

    def answer(
        self,
        question: QuerySpec,
        results: Mapping[str, Array],
        method: str = "auto",
        link: int | None = None,
        **choices: Any,
    ) -> None:
        """Let the engine answer a query on the arguments; `choices` as in `robodyn.engines.protocol.Engine.answer`."""
        with self._room_for_work():
            self.engine.answer(question, method, self.inputs, results, link, **choices)

    def run(self, task: Task, **outputs: Array) -> None:
        """Run an algorithm or a chain on the arguments, with `inertia` if it is one of them."""
        with self._room_for_work():
            self.engine.run(on_inertia(task) if self.inertia is not None else task, self.inputs, outputs)

    @contextmanager
    def _room_for_work(self) -> Iterator[None]:
        try:
            yield
        except MemoryError as error:
            raise UnavailableError(
                f"engine {self.engine.name!r}: no memory for what {self.batch} states need besides their results "
                f"({error}); ask for fewer states at a time"
            ) from error

    def finish(self, results: Mapping[str, Array]) -> Any:
        """Give results their leading axes, check them, and copy them to `out`. Returns one array, or a tuple."""
        out = self.out
        if self.singular is not None:
            for array in results.values():
                array[self.library.like_numpy(self.singular)] = np.nan
        shaped = {name: array.reshape((*self.leading, *array.shape[1:])) for name, array in results.items()}
        if self.checked:
            self._require_finite_results(shaped)
        values = tuple(array[()] for array in shaped.values()) if out is None else self._into(shaped, out)
        return values if len(values) > 1 else values[0]

    def _require_finite_results(self, shaped: Mapping[str, Array]) -> None:
        for name, array in shaped.items():
            message = ""
            try:
                require_finite(name, array, array.ndim - len(self.leading))
            except NumericalError as error:
                message = f"result {error}: the state is singular, overflows, or has huge angles"
            if message:
                self.require_attitudes()
                raise NumericalError(message)

    def require_attitudes(self) -> None:
        """Raise if a quaternion in q has zero length.

        Raises:
            ArgumentError: names the quaternion and its rows.
        """
        q = self.library.to_numpy(self.given_q)
        self.dyn.model.normalize(np.broadcast_to(q, (*self.leading, self.dyn.model.nq)))

    def _into(self, shaped: Mapping[str, Array], out: Any) -> tuple[Any, ...]:
        """Copy results that were not computed in place to the user's arrays. Returns the user's objects."""
        outputs = out if len(shaped) > 1 else (out,)
        targets = strict_types.members(outputs) if strict_types.is_a(outputs, tuple) else ()
        if len(targets) != len(shaped):
            raise ArgumentError(f"out: wanted a tuple of {len(shaped)} arrays: {', '.join(shaped)}")
        label = "out" if len(shaped) == 1 else "out ({})"
        checked = tuple(
            self.library.output(label.format(name), target, array.shape, self.dyn.dtype)
            for (name, array), target in zip(shaped.items(), targets, strict=True)
        )
        self._require_separate(checked)
        for target, array in zip(checked, shaped.values(), strict=True):
            if not self.library.xp.may_share_memory(target, array):
                target[...] = array
        return targets

    def _require_separate(self, targets: tuple[Array, ...]) -> None:
        """Raise if two results, or two entries of one result, would be written to the same memory."""
        share = self.library.xp.may_share_memory if self.library.on_device else _share_memory
        for i, target in enumerate(targets):
            if _overlaps_itself(target):
                raise ArgumentError(
                    f"out: got an array of shape {target.shape} and strides {target.strides}, several of whose entries "
                    "are the same memory; wanted memory of its own for every entry"
                )
            if any(share(target, other) for other in targets[:i]):
                raise ArgumentError("out: got arrays that share memory; wanted memory of its own for every result")


def against_gravity(xp: Any, model_gravity: Array, gravity: Array, dV0: Array | None) -> Array:
    """The base acceleration (..., 6) that turns the model's gravity into another one (..., 3)."""
    upward = xp.zeros((*gravity.shape[:-1], 6), model_gravity.dtype)
    upward[..., 3:] = model_gravity - gravity
    found: Array = upward if dV0 is None else dV0 + upward
    return found


@contextmanager
def _memory_for(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[None]:
    """Context around an allocation: turns a lack of memory into an UnavailableError that names the array."""
    size = prod(shape) * dtype.itemsize
    try:
        if size > sys.maxsize:
            raise MemoryError
        yield
    except MemoryError:
        raise UnavailableError(
            f"{what} of shape {shape} in {dtype} takes {size} bytes ({size / 1e9:.3g} GB); there is not that much "
            "memory, so ask for fewer states at a time"
        ) from None


def _share_memory(a: Array, b: Array) -> bool:
    try:
        return np.shares_memory(a, b, max_work=_MAX_OVERLAP_WORK)  # type: ignore[arg-type]  # the stubs know 0 and -1
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(array: Array) -> bool:
    if array.flags.c_contiguous or not array.size:
        return False
    axes = sorted((abs(stride), n) for stride, n in zip(array.strides, array.shape, strict=True) if n > 1)
    if axes[0][0] < array.itemsize:
        return True
    extent = array.itemsize
    for stride, n in axes:
        if stride < extent:
            break
        extent += stride * (n - 1)
    else:
        return False
    # Interlocking axes are rare. Only the addresses of all entries show whether two coincide.
    offsets = sum(np.ix_(*(np.arange(n) * stride for stride, n in axes)), start=np.zeros((), np.intp))
    return bool((np.diff(np.sort(offsets, axis=None)) < array.itemsize).any())
