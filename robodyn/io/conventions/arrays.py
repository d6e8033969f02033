"""Arrays of NumPy, PyTorch or CuPy as users give them: of one library, one dtype and shapes that fit, or an error."""

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
"""What arrays of libraries are instances of."""
_NAMES = {"numpy": "NumPy", "torch": "PyTorch", "cupy": "CuPy"}
_ALLOWED = "wanted arrays of NumPy, PyTorch or CuPy"


Axes = tuple[int | None, ...]
"""A trailing shape; None is an axis of any length."""


def read(given: Mapping[str, tuple[Any, Axes]]) -> tuple[list[Any], Any, tuple[int, ...]]:
    """Arguments by name, each with its trailing axes, as arrays of floating point; the functions of their library; and
    the leading shape that they broadcast to.

    Lists, numbers and arrays of integers take the dtype of the others, float64 where there is none.

    Raises:
        ArgumentError: arrays of several libraries or of one that is not known, or no real numbers; shapes that differ
            or do not broadcast. Names the argument.
    """
    xp = library_of({name: value for name, (value, _) in given.items()})
    own = [name for name, (value, _) in given.items() if _library(value) is not None]
    raw = {
        name: value if xp is not np and name in own else as_numbers(name, value) for name, (value, _) in given.items()
    }
    _require_one_device(xp, {name: raw[name] for name in own})
    dtype = _common(xp, [raw[name].dtype for name in own if kind_of(xp, raw[name]) == "f"])
    found = {}
    for name, array in raw.items():
        shape = _shape_of(name, array, given[name][1])
        found[name] = _as(xp, name, array, shape, dtype, raw[own[0]] if own else None)
    leading = broadcast_leading({name: (array, len(given[name][1])) for name, array in found.items()})
    return list(found.values()), xp, tuple(leading)


def _shape_of(name: str, array: Any, axes: Axes) -> tuple[int, ...]:
    """The trailing shape that is wanted of an array, axes of any length as it has them."""
    own = tuple(array.shape)
    if len(own) < len(axes):
        text = ", ".join("m" if n is None else str(n) for n in axes)
        raise ArgumentError(f"{name}: got shape {own}; wanted (..., {text})")
    return tuple(there if n is None else n for n, there in zip(axes, own[len(own) - len(axes) :], strict=True))


def library_of(given: Mapping[str, Any]) -> Any:
    """The functions of the library that arrays belong to: NumPy's where there are only lists and numbers.

    Raises:
        ArgumentError: several, or one that is not known.
    """
    places = {name: found for name, value in given.items() if (found := _library(value)) is not None}
    for name, found in places.items():
        if found not in _NAMES:
            raise ArgumentError(f"{name}: got {brief(given[name])}, an array of {found}; {_ALLOWED}")
        first, other = next(iter(places.items()))
        if found != other:
            raise ArgumentError(
                f"{name}: got an array of {_NAMES[found]}, where {first} is one of {_NAMES[other]}; {_ALLOWED}, all of "
                "one of them"
            )
    return sys.modules[next(iter(places.values()), "numpy")]


def as_numbers(name: str, value: Any, kinds: str = "fiu") -> Array:
    """What NumPy makes of a list, a number or one of its own arrays. `kinds`: of its dtypes, those that are allowed.

    Raises:
        ArgumentError: no real numbers.
    """
    array = as_array(name, value, "wanted real numbers")
    if array.dtype.kind not in kinds:
        raise ArgumentError(f"{name}: got {brief(value)} of dtype {array.dtype}; wanted real numbers")
    return array


def like(xp: Any, array: Array, other: Any) -> Any:
    """A constant as an array like another one."""
    if xp.__name__ == "torch":
        return xp.as_tensor(np.asarray(array), dtype=other.dtype, device=other.device)
    return xp.asarray(array, dtype=other.dtype)


def _library(value: Any) -> str | None:
    """The library that a value is an array of."""
    for name, kind in _TYPES.items():
        array = getattr(sys.modules.get(name), kind, None)
        if array is not None and strict_types.is_a(value, array):
            return name
    return None


def kind_of(xp: Any, array: Any) -> str:
    """The kind of an array's numbers, as NumPy's `dtype.kind` says it."""
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
    found = dtypes[0]
    for each in dtypes[1:]:
        found = xp.promote_types(found, each)
    return found


def _as(xp: Any, name: str, array: Any, shape: tuple[int, ...], dtype: Any, own: Any) -> Any:
    """An array (..., *shape) of a library and a dtype; `own` is one where it is to live."""
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
    places = {name: str(array.device) for name, array in arrays.items()} if xp is not np else {}
    if len(set(places.values())) > 1:
        listed = ", ".join(f"{name} on {place}" for name, place in places.items())
        raise ArgumentError(f"got {listed}; wanted all arrays of a call on one device")
