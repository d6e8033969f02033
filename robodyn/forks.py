"""Forks of a process with several threads: the child has the one that forked, and all that the others held."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import weakref
from contextlib import suppress
from typing import Any

_ROOTS = ("robodyn", "llvmlite", "numpy", "platformdirs", "rich", "scipy")
"""Packages that queries import when they first need them."""


def lock() -> Any:
    """A reentrant lock that is free in the child of a fork, unless it was held by the thread that forked.

    What it guards must make sense at any time, as where a result is put into a dictionary once it is there.
    """
    made = threading.RLock()
    _LOCKS.add(made)
    return made


_LOCKS: weakref.WeakSet[Any] = weakref.WeakSet()


def await_imports() -> None:
    """Wait until no thread is in the middle of importing what queries import: Python locks a module meanwhile, and the
    child of a fork would wait for that lock for ever."""
    for name in [name for name in tuple(sys.modules) if name.partition(".")[0] in _ROOTS]:
        with suppress(Exception):  # it failed where it was asked for, and is told there
            importlib.import_module(name)


def _after_fork() -> None:
    for each in tuple(_LOCKS):
        if each.acquire(blocking=False):
            each.release()
        else:  # released, not made anew: a thread that forked in a signal's handler may be waiting for this very lock
            each._release_save()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
