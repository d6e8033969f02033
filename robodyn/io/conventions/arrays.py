"""Reads arrays of NumPy, PyTorch or CuPy, and checks that they have one library, one dtype and matching shapes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from robodyn.internals import strict_types
from robodyn.internals.arguments import Array, as_array, broadcast_leading, real_array, require_few_axes, wanted_shape
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief

_TYPES = {"torch": "Tensor", "cupy": "ndarray", "jax": "Array", "numpy": "ndarray"}
"""Array class of each library."""
_NAMES = {"numpy": "NumPy", "torch": "PyTorch", "cupy": "CuPy"}
_ALLOWED = "wanted arrays of NumPy, PyTorch or CuPy"


Axes = tuple[int | None, ...]
"""A trailing shape; None is an axis of any length."""


def read(given: Mapping[str, tuple[Any, Axes]]) -> tuple[list[Any], Any, tuple[int, ...]]:
    """Reads named arguments, each with its trailing axes.

    Lists, numbers and integer arrays take the dtype of the floating-point arrays, or float64 if there are none.

    Returns:
        The floating-point arrays, the module of their library, and the leading shape that they broadcast to.

    Raises:
        ArgumentError: arrays of several libraries or of an unknown one, values that are not real numbers, wrong
            trailing shapes, or leading shapes that do not broadcast. The message names the argument.
    """
    xp = library_of({name: value for name, (value, _) in given.items()})
    named_arrays = [name for name, (value, _) in given.items() if _library(value) is not None]
    raw = {
        name: value if xp is not np and name in named_arrays else as_numbers(name, value)
        for name, (value, _) in given.items()
    }
    _require_one_device(xp, {name: raw[name] for name in named_arrays})
    dtype = _common(xp, [raw[name].dtype for name in named_arrays if kind_of(xp, raw[name]) == "f"])
    arrays = {}
    for name, array in raw.items():
        shape = _shape_of(name, array, given[name][1])
        arrays[name] = _converted(xp, name, array, shape, dtype, raw[named_arrays[0]] if named_arrays else None)
    leading = broadcast_leading({name: (array, len(given[name][1])) for name, array in arrays.items()})
    return list(arrays.values()), xp, tuple(leading)


def _shape_of(name: str, array: Any, axes: Axes) -> tuple[int, ...]:
    """The trailing shape that an array must have. Axes of any length keep the array's own length."""
    own = tuple(array.shape)
    if len(own) < len(axes):
        text = ", ".join("m" if n is None else str(n) for n in axes)
        raise ArgumentError(f"{name}: got shape {own}; wanted (..., {text})")
    return tuple(length if n is None else n for n, length in zip(axes, own[len(own) - len(axes) :], strict=True))


def library_of(given: Mapping[str, Any]) -> Any:
    """The module of the arrays' library; NumPy if there are only lists and numbers.

    Raises:
        ArgumentError: arrays of several libraries, or of an unknown one.
    """
    libraries = {name: library for name, value in given.items() if (library := _library(value)) is not None}
    for name, library in libraries.items():
        if library not in _NAMES:
            raise ArgumentError(f"{name}: got {brief(given[name])}, an array of {library}; {_ALLOWED}")
        first, other = next(iter(libraries.items()))
        if library != other:
            raise ArgumentError(
                f"{name}: got an array of {_NAMES[library]}, where {first} is one of {_NAMES[other]}; {_ALLOWED}, "
                "all of one of them"
            )
    return sys.modules[next(iter(libraries.values()), "numpy")]


def as_numbers(name: str, value: Any, kinds: str = "fiu") -> Array:
    """A NumPy array from a list, a number or a NumPy array. `kinds`: allowed values of `dtype.kind`.

    Raises:
        ArgumentError: the values are not real numbers.
    """
    array = as_array(name, value, "wanted real numbers")
    if array.dtype.kind not in kinds:
        raise ArgumentError(f"{name}: got {brief(value)} of dtype {array.dtype}; wanted real numbers")
    return array


def like(xp: Any, array: Array, other: Any) -> Any:
    """Converts a NumPy array to the library, dtype and device of another array."""
    if xp.__name__ == "torch":
        return xp.as_tensor(np.asarray(array), dtype=other.dtype, device=other.device)
    return xp.asarray(array, dtype=other.dtype)


def _library(value: Any) -> str | None:
    """The library of an array; None for other values."""
    for name, kind in _TYPES.items():
        array = getattr(sys.modules.get(name), kind, None)
        if array is not None and strict_types.is_a(value, array):
            return name
    return None


def kind_of(xp: Any, array: Any) -> str:
    """NumPy's `dtype.kind` of an array of any library: "f", "i", "b" or "c", for instance."""
    if xp.__name__ != "torch":
        return str(array.dtype.kind)
    if array.dtype.is_floating_point:
        return "f"
    return "b" if array.dtype == xp.bool else "c" if array.dtype.is_complex else "i"


def _common(xp: Any, dtypes: list[Any]) -> Any:
    if not dtypes:
        return xp.float64
    if xp.__name__ != "torch":
        return np.result_type(*dtypes)
    dtype = dtypes[0]
    for other in dtypes[1:]:
        dtype = xp.promote_types(dtype, other)
    return dtype


def _converted(xp: Any, name: str, array: Any, shape: tuple[int, ...], dtype: Any, own: Any) -> Any:
    """Converts to an array (..., *shape) of a library and dtype, on the device of the array `own`."""
    if xp is np:
        return real_array(name, array, shape, dtype)
    wanted = wanted_shape(shape)
    if type(array) is np.ndarray:
        array = xp.asarray(real_array(name, array, shape, np.float64))
        return array.to(own.device, dtype) if xp.__name__ == "torch" else array.astype(dtype)
    if kind_of(xp, array) not in "fiu":
        raise ArgumentError(f"{name}: got {brief(array)} of dtype {array.dtype}; {wanted}")
    if len(array.shape) < len(shape) or tuple(array.shape[len(array.shape) - len(shape) :]) != shape:
        raise ArgumentError(f"{name}: got shape {tuple(array.shape)}; {wanted}")
    require_few_axes(name, len(array.shape) - len(shape))
    return array.to(dtype) if xp.__name__ == "torch" else array.astype(dtype, copy=False)


def _require_one_device(xp: Any, arrays: Mapping[str, Any]) -> None:
    devices = {name: str(array.device) for name, array in arrays.items()} if xp is not np else {}
    if len(set(devices.values())) > 1:
        listed = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise ArgumentError(f"got {listed}; wanted all arrays of a call on one device")
