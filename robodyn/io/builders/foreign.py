"""Converts exceptions that objects of other libraries raise to LoadError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from robodyn.internals.errors import LoadError, RobodynError, UnavailableError
from robodyn.internals.messages import brief


@contextmanager
def foreign(what: str) -> Iterator[None]:
    """Context for code that accesses an object of a user's or another library's class, which may raise anything.

    Args:
        what: name of the object for the error message.

    Raises:
        LoadError: the code raises an exception other than robodyn's own, which pass unchanged.
        UnavailableError: there is not enough memory.
    """
    try:
        yield
    except RobodynError:
        raise
    except MemoryError as error:
        raise UnavailableError(f"cannot read {what}: there is not enough memory") from error
    except Exception as error:
        raise LoadError(f"cannot read {what}: it raises {brief(error)}") from error
