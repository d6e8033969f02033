"""Forks of a process with several threads: the child has the one that forked, and all that the others held."""

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
"""Packages that queries import when they first need them."""
_IMPORTING: dict[str, Any] = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", sys.modules)
"""Modules that some thread imports now: Python makes a lock for each, and drops it afterwards. A Python that keeps them
elsewhere is asked for all modules there are, which takes longer and misses those that are not found yet."""


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
    child of a fork would wait for that lock for ever.

    Each module is waited for once: the thread that forks may itself be importing it.
    """
    awaited: set[str] = set()
    while names := {name for name in tuple(_IMPORTING) if name.partition(".")[0] in _ROOTS} - awaited:
        awaited |= names
        for name in names:
            with suppress(Exception):  # it failed where it was asked for, and is told there
                importlib.import_module(name)


_GUARDS: list[tuple[Callable[[], None], Callable[[], None]]] = []


def guard(before: Callable[[], None], after: Callable[[], None]) -> None:
    """From now on call one function before each fork, and another after it, in both processes."""
    _GUARDS.append((before, after))


def _before_fork() -> None:
    try:
        await_imports()
    finally:  # also of guards that come with what was waited for
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
        else:  # released, not made anew: a thread that forked in a signal's handler may be waiting for this very lock
            each._release_save()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_both, after_in_child=_after_in_child)
