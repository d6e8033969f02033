"""Lock-free cached properties, and methods that a faster function can replace."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

_Method = TypeVar("_Method", bound=Callable[..., Any])
FastPathFinder = Callable[[Any, str, Callable[..., Any]], Callable[..., Any] | None]
"""(object, name of a method, bound method) -> a faster function for that object, or None."""


class _Looked:
    """A descriptor of a method that looks for a faster function at each attribute access."""

    def __init__(self, function: FunctionType, quicker: FastPathFinder) -> None:
        self._function, self._quicker = function, quicker
        self.__name__, self.__doc__, self.__wrapped__ = function.__name__, function.__doc__, function

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self._function
        method, name = self._function.__get__(instance), self.__name__
        if sum(name in vars(each) for each in type(instance).__mro__) != 1:
            return method  # a subclass overrides it, and its method calls this one
        return self._quicker(instance, name, method) or method


def with_fast_path(quicker: FastPathFinder) -> Decorator:
    """Decorate a method that a faster function can replace. `quicker` is called at each attribute access on an object.

    Methods that a subclass overrides are not replaced.
    """

    def looked(method: _Method) -> _Method:
        return cast(_Method, _Looked(cast(FunctionType, method), quicker))

    return looked


class Decorator(Protocol):
    """The type of a decorator that returns its argument unchanged."""

    def __call__(self, method: _Method, /) -> _Method:
        """The method."""


if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):
        """`functools.cached_property` without the lock that all instances share before Python 3.12.

        With that lock, a slow property, such as one that compiles, would block the properties of all other objects. The
        child of a fork at that time would wait for ever for a thread that it does not have. Here two threads may
        compute the same property at once; both get the result that was stored first."""

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            values = instance.__dict__
            try:
                return values[self.attrname]
            except KeyError:
                return values.setdefault(self.attrname, self.func(instance))
