"""Python's garbage collector, which waits while code is made.

Tracing and code generation make some hundred thousand tuples that stay until the code is there. Again and again the
collector would look through all of them, and all else that the process has, and find nothing: a third of the time.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress

_WAITS: list[None] = []
"""One for each time that the collector was told to wait."""


@contextmanager
def no_collection() -> Generator[None]:
    """Where the collector runs, it waits; then it runs again."""
    if not gc.isenabled():
        yield
        return
    _WAITS.append(None)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        with suppress(IndexError):
            _WAITS.pop()


def _after_fork() -> None:
    """In a child there is nobody who would end the wait of another thread."""
    if _WAITS:
        _WAITS.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
