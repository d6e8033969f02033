"""Arrays in host memory that are as foreign as CuPy's: what CuPy refuses, or does only by waiting, is refused here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

_FACTS = ("shape", "dtype", "ndim", "size", "itemsize", "nbytes", "strides", "ctypes")
_METHODS = (
    "reshape",
    "astype",
    "copy",
    "view",
    "all",
    "any",
    "sum",
    "max",
    "min",
    "ravel",
    "transpose",
    "swapaxes",
    "argmax",
    "argmin",
)
_OPTIONS = {"axis", "keepdims", "copy", "dtype"}
"""Of the methods, what CuPy's take as well: they know no `initial` and no `where`."""


class _Current(threading.local):
    """Which stream is, in this thread; None for the one that is there without being made."""

    stream: Any = None


CURRENT = _Current()


class DeviceArray(np.lib.mixins.NDArrayOperatorsMixin):
    """No array of NumPy, neither by its type nor by conversion; looking at it is counted.

    `held`: what is in it; `stream`: the stream that was current when its memory was taken, and on which alone that
    memory is known to be free.
    """

    looks = 0
    elsewhere = False

    def __init__(self, held: Any, stream: Any) -> None:
        self.held, self.stream = np.asarray(held), stream

    def _like(self, held: Any) -> DeviceArray:
        assert np.asarray(held).flags.aligned
        return DeviceArray(held, self.stream)

    def __getattr__(self, name: str) -> Any:
        if name in _FACTS:
            return getattr(self.held, name)
        if name not in _METHODS:
            raise AttributeError(name)

        def call(*given: Any, **options: Any) -> DeviceArray:
            if not set(options) <= _OPTIONS:
                raise TypeError(f"{name}: {set(options) - _OPTIONS}")
            return self._like(getattr(self.held, name)(*given, **options))

        return call

    @property
    def flags(self) -> SimpleNamespace:
        """Those that CuPy has."""
        found = self.held.flags
        return SimpleNamespace(c_contiguous=found.c_contiguous, f_contiguous=found.f_contiguous, owndata=found.owndata)

    @property
    def T(self) -> DeviceArray:
        return self._like(self.held.T)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self.held.__array_interface__)

    def __array__(self, *given: Any, **options: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __array_ufunc__(self, ufunc: Any, how: str, *inputs: Any, out: Any = None, **others: Any) -> Any:
        kept = {} if out is None else {"out": _all_plain(out)}
        result = getattr(ufunc, how)(*_all_plain(inputs), **kept, **others)
        return out[0] if out is not None else _device(result)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _device(function(*_all_plain(args), **{key: _all_plain(value) for key, value in kwargs.items()}))

    def __getitem__(self, key: Any) -> DeviceArray:
        return self._like(self.held[_indices(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.held[_indices(key)] = _all_plain(value)

    def __len__(self) -> int:
        return len(self.held)

    def __iter__(self) -> Iterator[DeviceArray]:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        DeviceArray.looks += 1
        return repr(self.held)

    def _looked(self) -> Any:
        DeviceArray.looks += 1
        return self.held

    def __bool__(self) -> bool:
        return bool(self._looked())

    def __int__(self) -> int:
        return int(self._looked())

    def __float__(self) -> float:
        return float(self._looked())

    def tolist(self) -> Any:
        return self._looked().tolist()

    def get(self) -> Any:
        return self._looked().copy()


def _plain(value: Any) -> Any:
    return value.held if isinstance(value, DeviceArray) else value


def _all_plain(values: Any) -> Any:
    """Arguments of a function, lists of arrays among them, all of whose arrays are there."""
    if isinstance(values, list | tuple):
        return type(values)(map(_all_plain, values))
    if isinstance(values, np.ndarray):
        raise TypeError("an array of NumPy beside one of the device")
    return _plain(values)


def _indices(key: Any) -> Any:
    """CuPy copies NumPy's indices to the device at each use."""
    if isinstance(key, tuple):
        return tuple(map(_indices, key))
    if isinstance(key, np.ndarray | list):
        raise TypeError("indices of NumPy for an array of the device")
    return _plain(key)


def _device(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_device, value))
    return DeviceArray(value, CURRENT.stream) if isinstance(value, np.ndarray | np.generic) else value


def library(wait: Callable[[], None]) -> SimpleNamespace:
    """Functions named as NumPy's; `wait` is called before what a recorded call cannot do."""

    def asarray(value: Any) -> DeviceArray:
        if isinstance(value, DeviceArray):
            return value
        wait()
        found: DeviceArray = _device(np.array(value))
        return found

    def asnumpy(array: DeviceArray) -> Any:
        wait()
        return array.get()

    def empty(shape: Any, dtype: Any) -> Any:
        return _device(np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 255, dtype))

    return SimpleNamespace(
        ndarray=DeviceArray,
        asarray=asarray,
        asnumpy=asnumpy,
        empty=empty,
        empty_like=lambda array: empty(array.shape, array.dtype),
        zeros=lambda shape, dtype: _device(np.zeros(shape, dtype)),
        full=lambda shape, value, dtype: _device(np.full(shape, value, dtype)),
        cos=np.cos,
        sin=np.sin,
        cross=np.cross,
        linalg=SimpleNamespace(),
        eye=lambda n, dtype: _device(np.eye(n, dtype=dtype)),
        arange=lambda n: _device(np.arange(n)),
        argpartition=np.argpartition,
        sort=np.sort,
        take_along_axis=np.take_along_axis,
        moveaxis=np.moveaxis,
        isfinite=np.isfinite,
        rint=np.rint,
        add=np.add,
        sqrt=np.sqrt,
        stack=np.stack,
        concatenate=np.concatenate,
        take=np.take,
        where=np.where,
        repeat=np.repeat,
        flatnonzero=np.flatnonzero,
        clip=np.clip,
        arctan2=np.arctan2,
        broadcast_to=np.broadcast_to,
        ascontiguousarray=lambda array: array if array.flags.c_contiguous else array.copy(),
        may_share_memory=lambda a, b: np.may_share_memory(a.held, b.held),
    )


def there(*arrays: Any) -> tuple[Any, ...]:
    """Copies on the device."""
    return tuple(_device(np.array(array)) for array in arrays)


class Moving:
    """A `Dynamics` whose calls hand every array of NumPy's over to the device, in its dtype."""

    def __init__(self, dyn: Any) -> None:
        self.dyn, self.model = dyn, dyn.model

    def __getattr__(self, query: str) -> Callable[..., Any]:
        def moved(value: Any) -> Any:
            return _device(np.array(value, self.dyn.dtype)) if type(value) is np.ndarray else value

        def call(*given: Any, **others: Any) -> Any:
            named = {name: moved(value) for name, value in others.items()}
            return getattr(self.dyn, query)(*map(moved, given), **named)

        return call
