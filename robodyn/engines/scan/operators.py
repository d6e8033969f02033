"""Users' operators: functions of arrays, wrapped with the interface of semigroups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from robodyn.engines.scan.elements import library
from robodyn.engines.scan.semigroups import Semigroup
from robodyn.internals.arguments import Array, as_array
from robodyn.internals.errors import ArgumentError, RobodynError
from robodyn.internals.messages import brief


class Callables:
    """A user's operator on values (m, ...), which are stored as elements (1, m, ...).

    The functions get read-only arrays and must return an array of the same dtype. Otherwise changed arguments, or
    conversions to another dtype, could silently falsify results.
    """

    def __init__(self, op: Callable[..., Any], inverse: Callable[..., Any] | None, identity: Any) -> None:
        self.op, self.undo, self.one = op, inverse, identity
        self.name = getattr(op, "__name__", type(op).__name__)
        self.plain = op is np.add

    def compose(self, a: Array, b: Array, out: Array | None = None) -> Array:
        """op(a, b)."""
        if a.shape[1] != b.shape[1]:
            a = np.broadcast_to(a, b.shape)
        result = self._called("op", self.op, a, b)
        if out is None:
            return result
        out[...] = result
        return out

    def inverse(self, a: Array) -> Array:
        """inverse(a)."""
        assert self.undo is not None
        return self._called("inverse", self.undo, a)

    def identities(self, like: Array, n: int) -> Array:
        """n identity elements."""
        elements: Array = library(like).empty((1, n, *like.shape[2:]), like.dtype)
        elements[...] = self.one
        return elements

    def fit(self, data: Array) -> None:
        """Convert the identity to the dtype of values (n, ...).

        Raises:
            ArgumentError: the identity has another shape, or the dtype cannot represent it exactly.
        """
        wanted = f"wanted a number, or an array of shape {data.shape[1:]}, that {data.dtype} holds exactly"
        one = as_array("identity", self.one, wanted)
        if one.dtype.kind not in "fiucb" or one.shape not in ((), data.shape[1:]):
            raise ArgumentError(f"identity: got {brief(self.one)}; {wanted}")
        with np.errstate(all="ignore"):
            kept = one.astype(data.dtype) if one.dtype.kind != "c" or data.dtype.kind == "c" else one.real
        if not np.array_equal(kept, one, equal_nan=one.dtype.kind in "fc"):
            raise ArgumentError(f"identity: got {brief(self.one)}; {wanted}")
        self.one = kept

    def _called(self, what: str, function: Callable[..., Any], *values: Array) -> Array:
        shape, dtype = values[-1].shape[1:], values[-1].dtype
        try:
            result = function(*(_read_only(value[0]) for value in values))
        except RobodynError:
            raise
        except Exception as error:  # a user's function may raise anything
            raise ArgumentError(f"{what}: {self.name!r} raised {type(error).__name__}: {error}") from error
        is_array = hasattr(result, "shape") and hasattr(result, "dtype")
        if not is_array or (result.shape, result.dtype) != (shape, dtype):
            returned = f"shape {result.shape} and dtype {result.dtype}" if is_array else brief(result)
            raise ArgumentError(
                f"{what}: {self.name!r} returned {returned} for values of shape {shape} and dtype {dtype}; wanted an "
                "array of that shape and dtype"
            )
        return result[None]  # type: ignore[no-any-return]


def _read_only(array: Array) -> Array:
    view = array.view()
    if isinstance(view, np.ndarray):
        view.setflags(write=False)
    return view


def operator_of(
    op: Any, inverse: Any = None, identity: Any = None, *, invertible: bool = True
) -> Semigroup | Callables:
    """A user's operator with the interface that kernels use.

    Raises:
        ArgumentError: `op` is no operator, or its inverse or identity is missing.
    """
    if isinstance(op, Semigroup):
        if invertible and op.undo is None:
            raise ArgumentError(f"op: got {op.name!r}, which has no inverse; wanted one that has, or heavy paths")
        return op
    for name, function, needed in (("op", op, True), ("inverse", inverse, invertible)):
        if not callable(function) and (needed or function is not None):
            raise ArgumentError(f"{name}: got {brief(function)}; wanted a function of arrays")
    if identity is None:
        raise ArgumentError("identity: got None; wanted the operator's identity, one value")
    return Callables(op, inverse, identity)


def elements_of(work: Semigroup | Callables, data: Any, n: int) -> Array:
    """A user's data as elements (size, n, ...)."""
    numbers = f"wanted numbers ({n}, ...)"
    array = data if hasattr(data, "__cuda_array_interface__") else as_array("data", data, numbers)
    if isinstance(work, Semigroup):
        if array.ndim < 2 or array.shape[:2] != (work.size, n) or array.dtype.kind != "f":
            raise ArgumentError(
                f"data: got shape {array.shape} and dtype {array.dtype}; wanted floats ({work.size}, {n}, ...): the "
                f"scalars of a {work.name}, then the bodies"
            )
        return array
    if array.ndim < 1 or array.shape[0] != n or array.dtype.kind not in "fiucb":
        raise ArgumentError(f"data: got shape {array.shape} and dtype {array.dtype}; {numbers}")
    work.fit(array)
    return array[None]


def values_of(work: Semigroup | Callables, elements: Array) -> Array:
    """Elements in the shape of a user's data."""
    return elements if isinstance(work, Semigroup) else elements[0]
