"""Forks of processes with several threads: the child has only the thread that forked, but all locks of the others."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  logging too: what they do around forks must not begin in one
import importlib
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_ROOTS = ("robodyn", "llvmlite", "numpy", "platformdirs", "rich", "scipy")
"""Packages that queries import on first use."""
_IMPORTING: dict[str, Any] = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", sys.modules)
"""Modules that threads are importing now: Python creates a lock for each and removes it afterwards. If Python has no
such table, all loaded modules are used, which takes longer and misses modules that are not found yet."""


def lock() -> Any:
    """A reentrant lock that is free in the child of a fork, unless the thread that forked held it.

    The data that it guards must be valid at any time; for example a result is put into a dictionary once complete.
    """
    created = threading.RLock()
    _LOCKS.add(created)
    return created


_LOCKS: weakref.WeakSet[Any] = weakref.WeakSet()


def await_imports() -> None:
    """Wait until no thread is importing a module that queries import. Python locks a module during its import, and the
    child of a fork would wait for that lock for ever.

    Each module is waited for once, because the thread that forks may be importing it itself.
    """
    awaited: set[str] = set()
    while names := {name for name in tuple(_IMPORTING) if name.partition(".")[0] in _ROOTS} - awaited:
        awaited |= names
        for name in names:
            with suppress(Exception):  # the thread that imports the module gets the error
                importlib.import_module(name)


_GUARDS: list[tuple[Callable[[], None], Callable[[], None]]] = []


def guard(before: Callable[[], None], after: Callable[[], None]) -> None:
    """From now on call `before` before each fork, and `after` after it in both processes."""
    _GUARDS.append((before, after))


def _before_fork() -> None:
    try:
        await_imports()
    finally:  # also for guards that awaited imports have added
        for before, _ in _GUARDS:
            before()


def _after_in_both() -> None:
    for _, after in _GUARDS:
        after()


def _after_in_child() -> None:
    _after_in_both()
    for each in tuple(_LOCKS):
        if each.acquire(blocking=False):
            each.release()
        else:  # not replaced: a thread that forked in a signal handler may be waiting for this lock object
            each._release_save()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_both, after_in_child=_after_in_child)
