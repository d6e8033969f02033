"""Foreign objects: whatever they raise when they are looked at becomes a LoadError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from robodyn.internals.errors import LoadError, RobodynError, UnavailableError
from robodyn.internals.messages import brief


@contextmanager
def foreign(what: str) -> Iterator[None]:
    """Around code that looks at an object of a user's or another library's class, which may raise anything.

    `what` names the object for the message. Raises LoadError in place of what is raised inside, UnavailableError for a
    lack of memory; errors of our own go through.
    """
    try:
        yield
    except RobodynError:
        raise
    except MemoryError as error:
        raise UnavailableError(f"cannot read {what}: there is not enough memory") from error
    except Exception as error:
        raise LoadError(f"cannot read {what}: it raises {brief(error)}") from error
