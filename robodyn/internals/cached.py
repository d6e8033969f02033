"""Properties that are computed once, without a lock, and methods that something quicker stands in for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

_Method = TypeVar("_Method", bound=Callable[..., Any])
FastPathFinder = Callable[[Any, str, Callable[..., Any]], Callable[..., Any] | None]
"""(object, name of a method, the bound method) to what stands in for it on that object, or None."""


class _Looked:
    """A method that looks for something quicker when it is looked up."""

    def __init__(self, function: FunctionType, quicker: FastPathFinder) -> None:
        self._function, self._quicker = function, quicker
        self.__name__, self.__doc__, self.__wrapped__ = function.__name__, function.__doc__, function

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self._function
        method, name = self._function.__get__(instance), self.__name__
        if sum(name in vars(each) for each in type(instance).__mro__) != 1:
            return method  # a subclass has one of its own, which asks for this one
        return self._quicker(instance, name, method) or method


def with_fast_path(quicker: FastPathFinder) -> Decorator:
    """Decorate a method that something quicker may stand in for, which is asked for when the method is looked up on an
    object of the class. What a subclass has made its own stays as it is."""

    def looked(method: _Method) -> _Method:
        return cast(_Method, _Looked(cast(FunctionType, method), quicker))

    return looked


class Decorator(Protocol):
    """What gives a method back as it was, for all that types know."""

    def __call__(self, method: _Method, /) -> _Method:
        """The method."""


if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):
        """`functools.cached_property` without the lock that all instances share before Python 3.12.

        Whoever computes a property for long, such as one that compiles, would hold up those of all other objects; and
        the child of a fork in the meantime would wait for ever, for a thread that it does not have. Two threads may
        compute the same property at once here; all get what the first of them found.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            kept = instance.__dict__
            try:
                return kept[self.attrname]
            except KeyError:
                return kept.setdefault(self.attrname, self.func(instance))
