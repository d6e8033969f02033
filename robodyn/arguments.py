"""Checks of what users pass in. They stand at the public edge only; nothing behind it checks again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from robodyn.errors import ArgumentError, NumericalError

Array: TypeAlias = NDArray[Any]
"""A NumPy array of real numbers."""

_MAX_ROWS_NAMED = 5


def real_array(name: str, value: Any, shape: tuple[int, ...], dtype: Any, *, what: str = "") -> Array:
    """`value` as an array (..., *shape) of `dtype`; the trailing axes must match, leading axes are free.

    Raises:
        ArgumentError: not numeric and real, ragged, or of another trailing shape.
    """
    wanted = f"a real array of shape ({', '.join(['...', *map(str, shape)])})" + (f": {what}" if what else "")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ArgumentError(f"{name}: got {_brief(value)}; wanted {wanted}") from error
    if array.dtype.kind not in "fiu":
        raise ArgumentError(f"{name}: got {_brief(value)} of dtype {array.dtype}; wanted {wanted}")
    if array.ndim < len(shape) or array.shape[array.ndim - len(shape) :] != shape:
        raise ArgumentError(f"{name}: got shape {array.shape}; wanted {wanted}")
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite and is met by the checks of values
        return array.astype(dtype, copy=False)


def broadcast_leading(arrays: dict[str, tuple[Array, int]]) -> tuple[int, ...]:
    """The common leading shape of named arrays, each given with its number of trailing axes.

    Raises:
        ArgumentError: the leading axes do not broadcast.
    """
    leading = {name: array.shape[: array.ndim - trailing] for name, (array, trailing) in arrays.items()}
    try:
        return np.broadcast_shapes(*leading.values())
    except ValueError:
        listed = ", ".join(f"{name} {shape}" for name, shape in leading.items())
        raise ArgumentError(
            f"leading axes do not broadcast: got {listed}; wanted shapes that NumPy can broadcast"
        ) from None


def output_array(name: str, given: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    """`given` itself if it can take a result of this shape and dtype.

    Raises:
        ArgumentError: not an array, or of another shape or dtype, or read-only.
    """
    if not isinstance(given, np.ndarray) or given.shape != shape or given.dtype != dtype or not given.flags.writeable:
        got = (
            f"{'a writeable' if given.flags.writeable else 'a read-only'} {given.dtype} array of shape {given.shape}"
            if isinstance(given, np.ndarray)
            else _brief(given)
        )
        raise ArgumentError(f"{name}: got {got}; wanted a writeable {np.dtype(dtype)} array of shape {shape}")
    return given


def one_of(name: str, value: Any, allowed: Sequence[str]) -> str:
    """`value` if it is one of the allowed words.

    Raises:
        ArgumentError: it is not; the message lists them.
    """
    if not isinstance(value, str) or value not in allowed:
        raise ArgumentError(f"{name}: got {_brief(value)}; allowed: {', '.join(repr(word) for word in allowed)}")
    return value


def flag(name: str, value: Any) -> bool:
    """`value` if it is a bool.

    Raises:
        ArgumentError: it is not.
    """
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(f"{name}: got {_brief(value)}; allowed: True, False")
    return bool(value)


def finite_number(name: str, value: Any) -> float:
    """`value` as a finite float.

    Raises:
        ArgumentError: not a real number, NaN or infinite.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.integer | np.floating)
        or not np.isfinite(value)
    ):
        raise ArgumentError(f"{name}: got {_brief(value)}; wanted a finite real number")
    return float(value)


def count(name: str, value: Any, smallest: int, largest: int) -> int:
    """`value` as an int between `smallest` and `largest`.

    Raises:
        ArgumentError: not an integer, or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not smallest <= value <= largest:
        raise ArgumentError(f"{name}: got {_brief(value)}; wanted an integer from {smallest} to {largest}")
    return int(value)


def require_finite(name: str, array: Array, trailing: int) -> None:
    """Raise for NaN or infinity in `array`, naming the rows (leading indices).

    Raises:
        NumericalError: some entry is not finite.
    """
    bad = ~np.isfinite(array)
    if bad.any():
        raise NumericalError(f"{name}: NaN or infinite {rows_named(bad, trailing)}; wanted finite numbers")


def rows_named(bad: Array, trailing: int) -> str:
    """Words that say in which rows (leading indices) `bad` has a true entry."""
    rows = bad.any(axis=tuple(range(bad.ndim - trailing, bad.ndim))) if trailing else bad
    if rows.ndim == 0:
        where = np.argwhere(bad)[0] if trailing else ()
        return f"at index {', '.join(map(str, where))}" if len(where) else "value"
    found = [tuple(map(int, row)) for row in np.argwhere(rows)]
    named = ", ".join(str(row[0]) if len(row) == 1 else str(row) for row in found[:_MAX_ROWS_NAMED])
    return f"in {len(found)} of {rows.size} rows: {named}" + (", ..." if len(found) > _MAX_ROWS_NAMED else "")


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
