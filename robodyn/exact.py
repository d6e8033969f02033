"""What objects are and hold, without a question to their own code.

`isinstance` asks an object for its `__class__`, which may raise or lie, and a subclass of `str` may answer anything
when it is compared or measured. At the public edge values are looked at by their true types and become objects of
exactly the built-in ones; behind it nothing needs to be careful.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any


def is_a(value: object, *kinds: type[Any]) -> bool:
    """Whether the true type of `value` is one of `kinds`, or a subclass of one."""
    try:
        return issubclass(type(value), kinds)
    except Exception:  # abstract classes ask a class for its hash and its bases, and its metaclass may raise
        return False


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


def at_most(values: Iterable[Any], count: int) -> tuple[Any, ...] | None:
    """What a foreign iterable gives, None where that is more than `count` or where it raises."""
    try:
        found = tuple(islice(values, count + 1))
    except Exception:  # a foreign object may raise anything
        return None
    return found if len(found) <= count else None
