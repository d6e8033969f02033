"""Foreign objects: whatever they raise when they are looked at becomes a LoadError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from robodyn.errors import LoadError, RobodynError
from robodyn.messages import brief


@contextmanager
def foreign(what: str) -> Iterator[None]:
    """Around code that looks at an object of a user's or another library's class, which may raise anything.

    `what` names the object for the message. Raises LoadError in place of what is raised inside; errors of our own and
    a lack of memory go through.
    """
    try:
        yield
    except (RobodynError, MemoryError):
        raise
    except Exception as error:
        raise LoadError(f"cannot read {what}: it raises {brief(error)}") from error
