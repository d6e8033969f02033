"""Scalars that carry their derivatives by some variables.

They are scalars as `robodyn.core.spatial` has them: formulas of contacts run on them unchanged (Griewank and Walther,
Evaluating Derivatives, 2008, chapter 3). Values and derivatives are scalars of any kind. Derivatives that are
structural zeros are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from robodyn.algorithms.definite import is_zero
from robodyn.core.spatial import select

Variable: TypeAlias = tuple[Any, ...]
"""The name of a variable."""
_TINY = 1e-37
"""Added to a divisor that may be zero. It is a normal number in both precisions."""


class Dual:
    """A value, and its derivatives by variables."""

    __slots__ = ("by", "value")

    def __init__(self, value: Any, by: Mapping[Variable, Any]) -> None:
        self.value, self.by = value, by

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Dual):
            return Dual(self.value + other, self.by)
        by = dict(self.by)
        for key, slope in other.by.items():
            by[key] = by[key] + slope if key in by else slope
        return _made(self.value + other.value, by)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return Dual(-self.value, {key: -slope for key, slope in self.by.items()})

    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, Dual):
            return 0.0 if is_zero(other) else self._scaled(self.value * other, other)
        by = {key: slope * other.value for key, slope in self.by.items()}
        for key, slope in other.by.items():
            more = slope * self.value
            by[key] = by[key] + more if key in by else more
        return _made(self.value * other.value, by)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self * (1.0 / other)

    def __rtruediv__(self, other: Any) -> Any:
        inverse = 1.0 / self.value
        return other * self._scaled(inverse, -(inverse * inverse))

    def __abs__(self) -> Any:
        size = abs(self.value)
        return self._scaled(size, self.value * (1.0 / (size + _TINY)))

    def _scaled(self, value: Any, factor: Any) -> Any:
        """A value whose derivatives are these times a factor."""
        return _made(value, {key: slope * factor for key, slope in self.by.items()})

    def sqrt(self) -> Any:
        """The square root; its derivative at zero is that of a small number."""
        root = np.sqrt(self.value)
        return self._scaled(root, 0.5 / (root + _TINY))

    def jumping(self) -> Any:
        """This value as a constant."""
        return Dual(self.value, {})

    def select(self, positive: Any, otherwise: Any) -> Any:
        """See `robodyn.core.spatial.select`."""
        one, other = (each if isinstance(each, Dual) else Dual(each, {}) for each in (positive, otherwise))
        by = {}
        for key in dict.fromkeys((*one.by, *other.by)):
            by[key] = select(self.value, one.by.get(key, 0.0), other.by.get(key, 0.0))
        return _made(select(self.value, one.value, other.value), by)

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        function = _FUNCTIONS.get(ufunc)
        if function is None or method != "__call__" or kwargs:
            return NotImplemented
        return function(*args)


def _made(value: Any, by: Mapping[Variable, Any]) -> Any:
    """A dual, or the value alone where it is a number that depends on nothing."""
    kept = {key: slope for key, slope in by.items() if not is_zero(slope)}
    return Dual(value, kept) if kept or not isinstance(value, float) else value


def value_of(x: Any) -> Any:
    """The value of a scalar that may be dual."""
    return x.value if isinstance(x, Dual) else x


def slopes_of(x: Any) -> Mapping[Variable, Any]:
    """The derivatives of a scalar that may be dual."""
    return x.by if isinstance(x, Dual) else {}


def _nearer(of: Any) -> Callable[[Any, Any], Any]:
    """The lesser or the greater of two scalars. Where they are equal, the derivative is that of the second."""

    def apply(a: Any, b: Any) -> Any:
        x, y = value_of(a), value_of(b)
        chosen = Dual(y - x if of is np.minimum else x - y, {}).select(a, b)
        return _made(of(x, y), slopes_of(chosen))

    return apply


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.sqrt: lambda a: a.sqrt(),
    np.abs: abs,
    np.minimum: _nearer(np.minimum),
    np.maximum: _nearer(np.maximum),
    np.add: lambda a, b: b + a if isinstance(b, Dual) else a + b,
    np.multiply: lambda a, b: b * a if isinstance(b, Dual) else a * b,
    np.subtract: lambda a, b: a - b if isinstance(a, Dual) else b.__rsub__(a),
    np.true_divide: lambda a, b: b.__rtruediv__(a) if isinstance(b, Dual) else a / b,
}
"""NumPy functions of these scalars. NumPy calls the arithmetic ones if the left operand is an array."""
