"""Replay of GPU calls: a call of a known form launches the kernels of the earlier call without further checks.

The form of a call (array shapes, omitted arguments, choices) determines the kernels and their arrays. The first call of
a form runs the method. If the method launched exactly one plan, directly on the memory of arguments and results, later
calls of the form launch that plan at once. Other calls go to the method: arrays that need conversion, results that
overlap arguments, checked values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from robodyn.internals.records import dataclass

if TYPE_CHECKING:
    from robodyn.api.dynamics import Dynamics
    from robodyn.api.queries.fast_path import Epoch
    from robodyn.engines.gpu.engine import GpuEngine, Plan

_MOST = 1 << 10
"""Number of forms that a query remembers before it forgets all of them."""
_CHOSEN, TEXT = frozenset(map(id, (str, int, bool, type(None)))), frozenset((id(str),))
"""Types by identity, because a foreign type may override comparison and hashing."""

Extent = tuple[int, int]
"""Start and end address of an array."""
_Values = tuple[list[Any], list[Any], list[Extent]]
"""Values of a call: their part of the key of its form, the arrays among them, and the extents of these."""


@dataclass(frozen=True)
class _Launches:
    """The launch that answers calls of one form.

    `plan`, `rows`: arguments of `GpuEngine.start`. `given`: for each array that the plan reads, its index among the
    call's arrays. `made`: for each array that the plan fills, its index among the results. `shapes`: shapes of the
    results. `flat`: True if the first axis of all arrays has length `rows`.
    """

    plan: Plan
    rows: int
    given: Mapping[str, int]
    made: Mapping[str, int]
    shapes: tuple[tuple[int, ...], ...]
    flat: bool


class Launching:
    """Replaces the method of a query for arrays on a GPU.

    Args:
        dyn: the `Dynamics`.
        method: the query's bound method.
        engine: the GPU engine.
        epoch: counter of changes of `dyn`.
    """

    def __init__(self, dyn: Dynamics, method: Callable[..., Any], engine: GpuEngine, epoch: Epoch) -> None:
        self.__self__, self.__name__, self.__doc__ = dyn, method.__name__, method.__doc__  # as methods have them
        self.__wrapped__, self.__qualname__ = method, method.__qualname__
        self._engine, self._epoch, self._since = engine, epoch, epoch.now.value
        self._array, self._address = engine.device.xp.ndarray, engine.device.address
        self._known: dict[tuple[Any, ...], _Launches] = {}

    def __reduce__(self) -> Any:
        return getattr, (self.__self__, self.__name__)

    def takes(self, value: Any) -> bool:
        """Whether a value is an array of the device's own library."""
        return type(value) is self._array

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Answer a call like the method, by replay if its form is known."""
        outs = out if type(out) is tuple else () if out is None else (out,)
        arguments, outputs = self._read((*args, *kwargs.values())), self._read(outs)
        dyn, engine = self.__self__, self._engine
        if (
            arguments is not None
            and outputs is not None
            and len(outputs[1]) == len(outs)
            and TEXT.issuperset(map(id, map(type, kwargs)))
            and not dyn.check
            and not dyn.joint_forces
            and engine.here()
        ):
            if self._epoch.now.value != self._since:
                self._known, self._since = {}, self._epoch.now.value
            (kinds, arrays, read), (shapes, results, written) = arguments, outputs
            key = (len(args), *kwargs, *kinds, out is outs, *shapes)
            known = self._known  # a local reference: another thread may replace the table after a change of `dyn`
            launch = known.get(key)
            if launch is None:
                return self._learn(known, key, arguments, args, out, kwargs)
            if _apart(written, read):
                try:
                    return self._launch(launch, arrays, results, out)
                except (MemoryError, RuntimeError):
                    pass  # the method frees memory, needs less, or reports the error
        return self.__wrapped__(*args, out=out, **kwargs)

    def _read(self, values: Sequence[Any]) -> _Values | None:
        """Key, arrays and extents of values; None if one is neither an array that kernels take nor a choice."""
        kinds: list[Any] = []
        arrays: list[Any] = []
        extents: list[Extent] = []
        for value in values:
            if type(value) is self._array:
                start = self._address(value, self._engine.dtype)
                if not start:
                    return None
                arrays.append(value)
                extents.append((start, start + value.nbytes))
                kinds.append(value.shape)
            elif id(type(value)) in _CHOSEN:
                kinds.append((type(value), value))  # True and 1 are different choices
            else:
                return None
        return kinds, arrays, extents

    def _launch(self, known: _Launches, given: Sequence[Any], made: Sequence[Any], out: Any) -> Any:
        engine, rows = self._engine, known.rows
        results = made or [engine.device.xp.empty(shape, engine.dtype) for shape in known.shapes]
        arrays = {name: given[place] for name, place in known.given.items()}
        arrays |= {name: results[place] for name, place in known.made.items()}
        if not known.flat:
            arrays = {name: array.reshape(rows, -1) for name, array in arrays.items()}
        engine.start(known.plan, arrays, rows)
        return out if made else tuple(results) if len(results) > 1 else results[0]

    def _learn(
        self,
        known: dict[tuple[Any, ...], _Launches],
        key: tuple[Any, ...],
        given: _Values,
        args: tuple[Any, ...],
        out: Any,
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Answer by the method, and remember its launch if that was all that it did on the GPU."""
        with self._engine.watched() as starts:
            answer = self.__wrapped__(*args, out=out, **kwargs)
        results = self._read(answer if type(answer) is tuple else (answer,))
        if len(starts) == 1 and results is not None:
            (plan, arrays, rows), (_, read, extents), (shapes, filled, places) = starts[0], given, results
            inputs = plan.inputs
            reads = self._places(arrays, inputs, extents)
            fills = self._places(arrays, [name for name in arrays if name not in inputs], places)
            all_filled = fills is not None and sorted(fills.values()) == list(range(len(filled)))
            if reads is not None and fills is not None and all_filled and self._engine.at_once(plan, rows):
                if len(known) >= _MOST:
                    known.clear()
                flat = all(each.shape[:1] == (rows,) for each in (*read, *filled))
                known[key] = _Launches(plan, rows, reads, fills, tuple(shapes), flat)
        return answer

    def _places(
        self, arrays: Mapping[str, Any], names: Sequence[str], extents: Sequence[Extent]
    ) -> dict[str, int] | None:
        """Index of each named array's extent in `extents`; None if one occurs there not exactly once."""
        places = {}
        for name in names:
            start = self._address(arrays[name], self._engine.dtype)
            extent = start, start + arrays[name].nbytes
            if extents.count(extent) != 1:
                return None
            places[name] = extents.index(extent)
        return places


def _apart(written: Sequence[Extent], read: Sequence[Extent]) -> bool:
    """Whether written extents overlap neither read extents nor each other."""
    others = [*read, *written]
    return not written or all(
        end <= first or last <= start
        for place, (start, end) in enumerate(written, len(read))
        for first, last in (*others[:place], *others[place + 1 :])
    )
