"""What objects are and hold, without a question to their own code.

`isinstance` asks an object for its `__class__`, which may raise or lie, and a subclass of `str` may answer anything
when it is compared or measured. At the public edge values are looked at by their true types and become objects of
exactly the built-in ones; behind it nothing needs to be careful.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import islice
from operator import attrgetter
from typing import Any, TypeVar

_T = TypeVar("_T")


def is_a(value: object, *kinds: type[Any]) -> bool:
    """Whether the true type of `value` is one of `kinds`, or a subclass of one."""
    try:
        return issubclass(type(value), kinds)
    except Exception:  # abstract classes ask a class for its hash and its bases, and its metaclass may raise
        return False


def is_whole(value: object, *kinds: Any) -> bool:
    """Whether `value` is an object of one of these data classes itself, and lacks no field."""
    own: Any = type(value)  # `own in kinds` would ask a class whether it equals them
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
    """Whether the true type of each of them is `kind` itself. A set of types would ask classes for their hashes."""
    return set(map(id, map(type, values))) <= {id(kind)}


def name_of(kind: type[Any]) -> str:
    """The name of a type, which its metaclass might not tell."""
    return str(type.__dict__["__name__"].__get__(kind))


def type_name(value: object) -> str:
    """The name of the type of `value`."""
    return name_of(type(value))


def text(value: Any) -> str:
    """The characters of a string, of whatever subclass."""
    return value if type(value) is str else str.__str__(value)


def text_or_none(value: object) -> str | None:
    """The characters of a string, of whatever subclass; None for anything else."""
    if type(value) is str:
        return value
    return str.__str__(value) if is_a(value, str) else None


def members(value: Any) -> tuple[Any, ...]:
    """What a tuple or list holds, of whatever subclass, as a tuple; a tuple itself."""
    if type(value) is tuple:
        return value
    return tuple(tuple.__iter__(value) if is_a(value, tuple) else list.__iter__(value))


def of_kind(value: Any, kind: type[_T]) -> _T | None:
    """An object of a data class with slots, of whatever subclass, as one of the class itself; None for anything else,
    and where it lacks a field."""
    if is_whole(value, kind):
        return value  # type: ignore[no-any-return]
    try:
        return kind(*(kind.__dict__[name].__get__(value) for name in kind.__dict__["__match_args__"]))
    except (AttributeError, TypeError):
        return None


def at_most(values: Iterable[Any], count: int) -> tuple[Any, ...] | None:
    """What a foreign iterable gives, None where that is more than `count` or where it raises."""
    try:
        found = tuple(islice(values, count + 1))
    except Exception:  # a foreign object may raise anything
        return None
    return found if len(found) <= count else None
