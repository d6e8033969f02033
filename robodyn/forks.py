"""Forks of a process with several threads: the child has the one that forked, and all that the others held."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import weakref
from contextlib import suppress

_ROOTS = ("robodyn", "llvmlite", "numpy", "platformdirs", "rich", "scipy")
"""Packages that queries import when they first need them."""


class Lock:
    """A reentrant lock that is free in the child of a fork, unless it was held by the thread that forked.

    What it guards must make sense at any time, as where a result is put into a dictionary once it is there.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def _free(self) -> None:
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


_LOCKS: weakref.WeakSet[Lock] = weakref.WeakSet()


def await_imports() -> None:
    """Wait until no thread is in the middle of importing what queries import: Python locks a module meanwhile, and the
    child of a fork would wait for that lock for ever."""
    for name in [name for name in tuple(sys.modules) if name.partition(".")[0] in _ROOTS]:
        with suppress(Exception):  # it failed where it was asked for, and is told there
            importlib.import_module(name)


def _after_fork() -> None:
    for lock in tuple(_LOCKS):
        lock._free()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
