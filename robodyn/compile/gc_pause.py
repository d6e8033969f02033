"""Pauses Python's garbage collector during code generation.

Tracing and code generation make several hundred thousand tuples, which stay alive until the code is complete. The
collector would scan these and all other objects of the process repeatedly without freeing any: a third of the time.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from contextlib import contextmanager

_NEVER = 1 << 30
"""Collection threshold that no process reaches. The threshold pauses the collector; `gc.enable` and `gc.disable` are
left to the user."""
_USUAL = [gc.get_threshold()]


@contextmanager
def no_collection() -> Generator[None]:
    """Pause the collector.

    If several threads pause it, the first one that finishes resumes it for all. If a signal handler raises at the wrong
    moment, the next pause resumes it.
    """
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
    # A forked child lacks the threads that would resume the collector.
    os.register_at_fork(after_in_child=_resume)
