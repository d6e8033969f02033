"""Python's garbage collector, which waits while code is made.

Tracing and code generation make some hundred thousand tuples that stay until the code is there. Again and again the
collector would look through all of them, and all else that the process has, and find nothing: a third of the time.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from contextlib import contextmanager

_NEVER = 1 << 30
"""Objects that no process makes between two collections; whether the collector is enabled is left to the user."""
_USUAL = [gc.get_threshold()]


@contextmanager
def no_collection() -> Generator[None]:
    """The collector waits. Where several threads have it wait, the first that is done ends it for all, and so does the
    next one if a signal's handler raises at the wrong moment."""
    try:
        usual = gc.get_threshold()
        if usual[0] != _NEVER:
            _USUAL[0] = usual
            gc.set_threshold(_NEVER, *usual[1:])
        yield
    finally:
        _resume()


def _resume() -> None:
    if gc.get_threshold()[0] == _NEVER:
        gc.set_threshold(*_USUAL[0])


if hasattr(os, "register_at_fork"):
    # In a child there is nobody who would end the wait of another thread.
    os.register_at_fork(after_in_child=_resume)
