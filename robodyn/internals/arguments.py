"""Checks of arguments of users. The public functions use them; internal code does not check again."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from robodyn.internals import strict_types
from robodyn.internals.errors import ArgumentError, NumericalError, UnavailableError
from robodyn.internals.messages import brief

Array: TypeAlias = NDArray[Any]
"""A NumPy array of real numbers."""
_Function = TypeVar("_Function", bound=Callable[..., Any])

_MAX_ROWS_NAMED = 5
_MAX_LEADING_AXES = 32
"""As many axes as NumPy broadcasts; arrays can have twice as many, so that results may have axes of their own."""
_MAX_MEMBERS = 100
"""Number of members of a list that are searched for arrays of other libraries."""
_TRACING = ("torch", "jax", "jaxlib")
"""Libraries whose arrays may be traced or track gradients."""
_DOUBLE = 8


def real_array(
    name: str,
    value: Any,
    shape: tuple[int, ...],
    dtype: Any,
    *,
    what: str = "",
    read: Callable[[str, Any, str], Array] | None = None,
    flags: bool = False,
) -> Array:
    """`value` as an array (..., *shape) of `dtype`; the trailing axes must match, leading axes are free.

    `read` converts arrays of another library than NumPy, like `as_array`. `flags`: for arrays of flags. Bools count as
    1 and 0, and a single bool is used for all entries.

    Raises:
        ArgumentError: not numeric and real, ragged, masked, of another trailing shape, or of too many axes.
        UnavailableError: there is not that much memory.
    """
    wanted = wanted_shape(shape, what)
    if flags and (type(value) is bool or strict_types.is_a(value, np.bool_)):
        return np.full(shape, bool(value), dtype)
    array = (as_array if read is None else read)(name, value, wanted)
    if array.dtype.kind not in ("fiub" if flags else "fiu"):
        raise ArgumentError(f"{name}: got {brief(value)} of dtype {array.dtype}; {wanted}")
    if array.ndim < len(shape) or array.shape[array.ndim - len(shape) :] != shape:
        raise ArgumentError(f"{name}: got shape {array.shape}; {wanted}")
    require_few_axes(name, array.ndim - len(shape))
    if array.dtype == dtype:
        return array
    try:
        with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite; checks of values find it
            return array.astype(dtype)
    except MemoryError as error:  # for example of a view that repeats one row
        raise UnavailableError(f"{name}: no memory for {array.shape} as {np.dtype(dtype)} ({error})") from error


def within_memory(function: _Function) -> _Function:
    """The function with an UnavailableError, which states the size, in place of a MemoryError. It names the class of
    methods whose names begin with an underscore."""
    private = function.__name__.startswith("_")
    name = function.__qualname__.partition(".")[0] if private else function.__name__

    @functools.wraps(function)
    def asked(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except MemoryError as error:
            raise UnavailableError(f"{name}: there is not that much memory ({error})") from error

    return asked  # type: ignore[return-value]


def as_array(name: str, value: Any, wanted: str) -> Array:
    """`value` as an array of any dtype and shape.

    `wanted` ends the error message. For tensors that require gradients, and arrays that JAX traces, the message names
    functions that accept them.

    Raises:
        ArgumentError: ragged, an object that raises, or masked: masked entries would count like the others.
        UnavailableError: there is not that much memory.
    """
    if type(value) is np.ndarray:
        return value
    try:
        masked = strict_types.is_a(value, np.ndarray) and bool(np.any(np.asarray(getattr(value, "mask", False))))
        array = np.asarray(value)
    except MemoryError as error:
        raise UnavailableError(f"{name}: no memory for {brief(value)} as an array ({brief(error)})") from error
    except Exception as error:  # a foreign object may raise anything
        raise ArgumentError(f"{name}: got {brief(value)}; {instead(value) or wanted}") from error
    if masked:
        raise ArgumentError(f"{name}: got an array with masked entries; {wanted}, none of them masked")
    return array


def instead(value: Any) -> str:
    """Advice for an array of PyTorch or JAX that NumPy cannot convert, as the end of a message; empty for other values.

    For a list, the advice for its first such array.
    """
    for _ in range(_MAX_LEADING_AXES):
        members = strict_types.members(value) if strict_types.is_a(value, list, tuple) else ()
        if not members:
            break
        value = next((each for each in members[:_MAX_MEMBERS] if _home(each) in _TRACING), members[0])
    if _home(value) not in _TRACING:
        return ""
    if _home(value) != "torch":
        return "wanted a NumPy array; robodyn.jax.wrap(dyn) answers inside JAX's transformations, such as jit and grad"
    try:
        tracked = bool(value.requires_grad)
    except Exception:  # a foreign object may raise anything
        tracked = False
    if tracked:
        return "it requires gradients: robodyn.torch.wrap(dyn) gives them, and tensor.detach() is an array without"
    return (
        "wanted a dense float32 or float64 tensor on the CPU, outside of torch.func's transformations; "
        "robodyn.torch.wrap(dyn) answers inside"
    )


def _home(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def require_few_axes(name: str, axes: int) -> None:
    """Raise for more leading axes than NumPy broadcasts.

    Raises:
        ArgumentError: there are.
    """
    if axes > _MAX_LEADING_AXES:
        raise ArgumentError(f"{name}: got {axes} leading axes; wanted at most {_MAX_LEADING_AXES}")


def wanted_shape(shape: tuple[int, ...], what: str = "") -> str:
    """A description of an array of this trailing shape, for messages."""
    return f"wanted a real array of shape ({', '.join(['...', *map(str, shape)])})" + (f": {what}" if what else "")


def broadcast_leading(arrays: dict[str, tuple[Array, int]]) -> tuple[int, ...]:
    """The common leading shape of named arrays, each given with its number of trailing axes.

    Raises:
        ArgumentError: the leading axes do not broadcast.
    """
    leading = {name: array.shape[: array.ndim - trailing] for name, (array, trailing) in arrays.items()}
    if len(alike := set(leading.values())) == 1:
        return alike.pop()
    try:
        return np.broadcast_shapes(*leading.values())
    except ValueError:
        listed = ", ".join(f"{name} {shape}" for name, shape in leading.items())
        single = "".join(f"; {name} is one number for each state" for name, (_, axes) in arrays.items() if not axes)
        raise ArgumentError(
            f"leading axes do not broadcast: got {listed}; wanted shapes that NumPy can broadcast{single}"
        ) from None


def output_array(name: str, given: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    """`given` itself, or its plain view if it is of a subclass, if it can take a result of this shape and dtype.

    Raises:
        ArgumentError: not an array, or of another shape or dtype, read-only, or masked.
    """
    wanted = f"wanted a writeable {np.dtype(dtype)} array of shape {shape}"
    if not strict_types.is_a(given, np.ndarray):
        raise ArgumentError(f"{name}: got {brief(given)}; {wanted}")
    array = as_array(name, given, wanted)
    if array.shape != shape or array.dtype != dtype or not array.flags.writeable:
        kind = "a writeable" if array.flags.writeable else "a read-only"
        raise ArgumentError(f"{name}: got {kind} {array.dtype} array of shape {array.shape}; {wanted}")
    return array


def one_of(name: str, value: Any, allowed: Sequence[str]) -> str:
    """`value` as an exact `str` if it is one of the allowed words.

    Raises:
        ArgumentError: it is not; the message lists them.
    """
    word = strict_types.text_or_none(value)
    if word is None or word not in allowed:
        raise ArgumentError(f"{name}: got {brief(value)}; allowed: {', '.join(repr(word) for word in allowed)}")
    return word


def words(name: str, value: Any, allowed: Sequence[str]) -> tuple[str, ...]:
    """`value`, a list or tuple of allowed words, as a tuple.

    Raises:
        ArgumentError: it is neither, or one of its words is not allowed; the message lists them.
    """
    if not strict_types.is_a(value, list, tuple):
        listed = ", ".join(repr(word) for word in allowed)
        raise ArgumentError(f"{name}: got {brief(value)}; wanted a list or tuple of words; allowed: {listed}")
    return tuple(one_of(name, word, allowed) for word in strict_types.members(value))


def flag(name: str, value: Any) -> bool:
    """`value` if it is a bool.

    Raises:
        ArgumentError: it is not.
    """
    if type(value) is not bool and not strict_types.is_a(value, np.bool_):
        raise ArgumentError(f"{name}: got {brief(value)}; allowed: True, False")
    return bool(value)


def integer(value: Any) -> int | None:
    """The integer value of an integer of Python or NumPy; None for anything else, and for bools."""
    if type(value) is int:
        return value
    if strict_types.is_a(value, int) and type(value) is not bool:
        return int.__int__(value)
    if not strict_types.is_a(value, np.integer) or strict_types.is_a(value, np.timedelta64):
        return None
    return int(np.generic.item(value))


def finite_real(value: Any) -> float | None:
    """`value` as a float if it is a finite real number of any type but bool, else None."""
    try:
        if strict_types.is_a(value, float):
            number = float.__float__(value)
        elif (whole := integer(value)) is not None:
            number = float(whole)
        elif strict_types.is_a(value, Real) and type(value) is not bool:
            number = float(value)
        else:
            return None
    except Exception:  # an int or a fraction beyond the range of float; a foreign object may raise anything
        return None
    return number if math.isfinite(number) else None


def finite_number(name: str, value: Any) -> float:
    """`value` as a finite float.

    Raises:
        ArgumentError: not a real number, NaN or infinite.
    """
    number = finite_real(value)
    if number is None:
        raise ArgumentError(f"{name}: got {brief(value)}; wanted a finite real number")
    return number


def count(name: str, value: Any, smallest: int, largest: int) -> int:
    """`value` as an int between `smallest` and `largest`.

    Raises:
        ArgumentError: not an integer, or out of range.
    """
    number = integer(value)
    if number is None or not smallest <= number <= largest:
        wanted = f"wanted an integer from {smallest} to {largest}" if smallest <= largest else "there is none"
        raise ArgumentError(f"{name}: got {brief(value)}; {wanted}")
    return number


def batch_shape(name: str, value: Any, numbers: int) -> tuple[int, ...]:
    """`value`, one integer or several, as the shape of a batch whose entries hold `numbers` numbers each.

    Raises:
        ArgumentError: not a tuple of integers from 0, or more numbers than memory can be addressed for.
    """
    members = strict_types.members(value) if strict_types.is_a(value, tuple, list) else (value,)
    shape = tuple(n for n in map(integer, members) if n is not None and n >= 0)
    if len(shape) < len(members) or len(members) > _MAX_LEADING_AXES:
        allowed = f"an integer from 0, or a tuple of at most {_MAX_LEADING_AXES} of them"
        raise ArgumentError(f"{name}: got {brief(value)}; wanted {allowed}")
    # NumPy multiplies the axes that are not 0, even if the array is empty.
    most = sys.maxsize // (_DOUBLE * max(1, numbers))
    if math.prod(n for n in shape if n) > most:
        raise ArgumentError(f"{name}: got {brief(value)}; wanted at most {most} entries in all")
    return shape


def require_finite(name: str, array: Array, trailing: int) -> None:
    """Raise for NaN or infinity in `array`, naming the rows (leading indices).

    Raises:
        NumericalError: some entry is not finite.
    """
    finite = np.isfinite(array)
    if not finite.all():
        raise NumericalError(f"{name}: NaN or infinite {rows_named(~finite, trailing)}; wanted finite numbers")


def rows_named(bad: Array, trailing: int) -> str:
    """The rows (leading indices) in which `bad` has a true entry, for messages."""
    rows = bad.any(axis=tuple(range(bad.ndim - trailing, bad.ndim))) if trailing else bad
    if rows.ndim == 0:
        where = np.argwhere(bad)[0] if trailing else ()
        return f"at index {', '.join(map(str, where))}" if len(where) else "value"
    indices = [tuple(map(int, row)) for row in np.argwhere(rows)]
    named = ", ".join(str(row[0]) if len(row) == 1 else str(row) for row in indices[:_MAX_ROWS_NAMED])
    return f"in {len(indices)} of {rows.size} rows: {named}" + (", ..." if len(indices) > _MAX_ROWS_NAMED else "")


def row_named(row: int, leading: tuple[int, ...]) -> str:
    """A row of a batch of that shape for messages: "row 3", "row (1, 2)"; empty for a single state."""
    at = tuple(int(k) for k in np.unravel_index(row, leading)) if leading else ()
    return f"row {at[0] if len(at) == 1 else at}" if at else ""


def address_of(array: Array) -> int:
    """The address of an array's first number."""
    address: int = array.__array_interface__["data"][0]
    return address
