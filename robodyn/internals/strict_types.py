"""True types and contents of objects, found without running their own code.

`isinstance` reads an object's `__class__`, which may raise or lie, and a subclass of `str` may override comparison and
length. Public functions check values by their true types and convert them to exact built-in types; internal code can
trust them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import islice
from operator import attrgetter
from typing import Any, TypeVar

_T = TypeVar("_T")


def is_a(value: object, *kinds: type[Any]) -> bool:
    """True if the true type of `value` is one of `kinds`, or a subclass of one."""
    try:
        return issubclass(type(value), kinds)
    except Exception:  # abstract classes read a class's hash and bases, and its metaclass may raise
        return False


def is_whole(value: object, *kinds: Any) -> bool:
    """True if the exact type of `value` is one of these data classes, and no field is missing."""
    own: Any = type(value)  # `own in kinds` would call `__eq__` of a metaclass
    for kind in kinds:
        if own is kind:
            try:
                _all_fields(kind)(value)
            except AttributeError:
                return False
            return True
    return False


@cache
def _all_fields(kind: Any) -> attrgetter[Any]:
    return attrgetter(*kind.__match_args__)


def all_are(values: Iterable[object], kind: type[Any]) -> bool:
    """True if the exact type of every value is `kind`. A set of types would call `__hash__` of metaclasses."""
    return set(map(id, map(type, values))) <= {id(kind)}


def name_of(kind: type[Any]) -> str:
    """The name of a type, whose metaclass may hide it."""
    return str(type.__dict__["__name__"].__get__(kind))


def type_name(value: object) -> str:
    """The name of the type of `value`."""
    return name_of(type(value))


def text(value: Any) -> str:
    """The characters of a string of any subclass, as an exact `str`."""
    return value if type(value) is str else str.__str__(value)


def text_or_none(value: object) -> str | None:
    """The characters of a string of any subclass, as an exact `str`; None for anything else."""
    if type(value) is str:
        return value
    return str.__str__(value) if is_a(value, str) else None


def members(value: Any) -> tuple[Any, ...]:
    """The members of a tuple or list of any subclass, as an exact tuple."""
    if type(value) is tuple:
        return value
    return tuple(tuple.__iter__(value) if is_a(value, tuple) else list.__iter__(value))


def of_kind(value: Any, kind: type[_T]) -> _T | None:
    """An object of a data class with slots, or of a subclass, as one of the exact class.

    None for anything else, and if a field is missing.
    """
    if is_whole(value, kind):
        return value  # type: ignore[no-any-return]
    try:
        return kind(*(kind.__dict__[name].__get__(value) for name in kind.__dict__["__match_args__"]))
    except (AttributeError, TypeError):
        return None


def at_most(values: Iterable[Any], count: int) -> tuple[Any, ...] | None:
    """The members of a foreign iterable; None if there are more than `count`, or if it raises."""
    try:
        result = tuple(islice(values, count + 1))
    except Exception:  # a foreign object may raise anything
        return None
    return result if len(result) <= count else None
