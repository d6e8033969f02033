"""Calls on arrays of a GPU that are like one before: the same kernels are launched, and nothing is looked at again.

Which kernels answer a call, and on which of its arrays, follows from what its arguments are: their shapes, which of
them are left out, what is chosen. A call whose method launched one plan, on the very memory of its arguments and
results, has shown all of that, and those like it launch that plan at once. Whatever else there is goes to the method:
arrays that must be converted, results that overlap arguments, values that are to be looked at.
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
"""Kinds of calls that a query keeps, until it forgets all of them."""
_CHOSEN, TEXT = frozenset(map(id, (str, int, bool, type(None)))), frozenset((id(str),))
"""Types by their identities: a foreign one may compare, and hash, as it likes."""

Extent = tuple[int, int]
"""Where an array begins, and where it ends."""
_Values = tuple[list[Any], list[Any], list[Extent]]
"""What tells calls with some values apart, the arrays among these, and where they are."""


@dataclass(frozen=True)
class _Launches:
    """What answers calls of one kind.

    `plan`, `rows`: as `GpuEngine.start` has them; `given`: places among the arguments that are arrays of what the plan
    reads, by name; `made`: places among the results of what it fills; `shapes`: of the results; `flat`: whether the
    first axis of all of them is that of the rows.
    """

    plan: Plan
    rows: int
    given: Mapping[str, int]
    made: Mapping[str, int]
    shapes: tuple[tuple[int, ...], ...]
    flat: bool


class Launching:
    """A query on arrays of a GPU. It stands where a quick call stands.

    Args:
        dyn: what is asked.
        method: the query's, bound.
        engine: what answers there.
        epoch: when `dyn` was changed last.
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
        """Answer as the method does."""
        outs = out if type(out) is tuple else () if out is None else (out,)
        given, made = self._read((*args, *kwargs.values())), self._read(outs)
        dyn, engine = self.__self__, self._engine
        if (
            given is not None
            and made is not None
            and len(made[1]) == len(outs)
            and TEXT.issuperset(map(id, map(type, kwargs)))
            and not dyn.check
            and not dyn.joint_forces
            and engine.here()
        ):
            if self._epoch.now.value != self._since:
                self._known, self._since = {}, self._epoch.now.value
            (kinds, arrays, read), (shapes, results, written) = given, made
            key = (len(args), *kwargs, *kinds, out is outs, *shapes)
            known = self._known  # if another thread sets an attribute and puts a new table there, this one goes
            found = known.get(key)
            if found is None:
                return self._learn(known, key, given, args, out, kwargs)
            if _apart(written, read):
                try:
                    return self._launch(found, arrays, results, out)
                except (MemoryError, RuntimeError):
                    pass  # the method frees memory, takes less of it, or says what is wrong
        return self.__wrapped__(*args, out=out, **kwargs)

    def _read(self, values: Sequence[Any]) -> _Values | None:
        """What there is to know of some values; None where one is no array as kernels want it, nor a choice."""
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
                kinds.append((type(value), value))  # True is another choice than 1
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
        """Answer by the method, and keep what it launched where that is all that it did."""
        with self._engine.watched() as starts:
            answer = self.__wrapped__(*args, out=out, **kwargs)
        results = self._read(answer if type(answer) is tuple else (answer,))
        if len(starts) == 1 and results is not None:
            (plan, arrays, rows), (_, read, extents), (shapes, filled, places) = starts[0], given, results
            inputs = plan.inputs
            reads = self._places(arrays, inputs, extents)
            fills = self._places(arrays, [name for name in arrays if name not in inputs], places)
            whole = fills is not None and sorted(fills.values()) == list(range(len(filled)))
            if reads is not None and fills is not None and whole and self._engine.at_once(plan, rows):
                if len(known) >= _MOST:
                    known.clear()
                flat = all(each.shape[:1] == (rows,) for each in (*read, *filled))
                known[key] = _Launches(plan, rows, reads, fills, tuple(shapes), flat)
        return answer

    def _places(
        self, arrays: Mapping[str, Any], names: Sequence[str], extents: Sequence[Extent]
    ) -> dict[str, int] | None:
        """Which of some memories arrays are, by name; None where one of them is none of these, or several."""
        places = {}
        for name in names:
            start = self._address(arrays[name], self._engine.dtype)
            extent = start, start + arrays[name].nbytes
            if extents.count(extent) != 1:
                return None
            places[name] = extents.index(extent)
        return places


def _apart(written: Sequence[Extent], read: Sequence[Extent]) -> bool:
    """Whether what is written is no part of what is read, nor of what else is written."""
    others = [*read, *written]
    return not written or all(
        end <= first or last <= start
        for place, (start, end) in enumerate(written, len(read))
        for first, last in (*others[:place], *others[place + 1 :])
    )
