"""Operators that users give as functions, made to look like semigroups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from robodyn.arguments import Array
from robodyn.engines.scan.elements import library
from robodyn.engines.scan.semigroups import Semigroup
from robodyn.errors import ArgumentError, RobodynError
from robodyn.messages import brief


class Callables:
    """A user's operator on values (m, ...), seen as elements (1, m, ...)."""

    plain = False

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
        """n times the identity."""
        found: Array = library(like).empty((1, n, *like.shape[2:]), like.dtype)
        found[...] = self.one
        return found

    def _called(self, what: str, function: Callable[..., Any], *values: Array) -> Array:
        shape = values[-1].shape[1:]
        try:
            result = function(*(value[0] for value in values))
        except RobodynError:
            raise
        except Exception as error:  # a user's function may raise anything
            raise ArgumentError(f"{what}: {self.name!r} raised {type(error).__name__}: {error}") from error
        if getattr(result, "shape", None) != shape:
            raise ArgumentError(
                f"{what}: {self.name!r} returned {brief(getattr(result, 'shape', result))} for values of shape "
                f"{shape}; wanted an array of that shape"
            )
        return result[None]  # type: ignore[no-any-return]


def operator_of(
    op: Any, inverse: Any = None, identity: Any = None, *, invertible: bool = True
) -> Semigroup | Callables:
    """A user's operator as kernels want it.

    Raises:
        ArgumentError: no operator, or one whose inverse or identity is missing.
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
    """Data of a user as elements (size, n, ...)."""
    array = data if hasattr(data, "__cuda_array_interface__") else np.asarray(data)
    if isinstance(work, Semigroup):
        if array.ndim < 2 or array.shape[:2] != (work.size, n) or array.dtype.kind != "f":
            raise ArgumentError(
                f"data: got shape {array.shape} and dtype {array.dtype}; wanted floats ({work.size}, {n}, ...): the "
                f"scalars of a {work.name}, then the bodies"
            )
        return array
    if array.ndim < 1 or array.shape[0] != n or array.dtype.kind not in "fiucb":
        raise ArgumentError(f"data: got shape {array.shape} and dtype {array.dtype}; wanted numbers ({n}, ...)")
    return array[None]


def values_of(work: Semigroup | Callables, elements: Array) -> Array:
    """Elements as a user's data looks."""
    return elements if isinstance(work, Semigroup) else elements[0]
