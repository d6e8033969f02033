"""Memory of large results, kept when an array dies and used again by the next one.

Fresh pages cost ten to fifty times what writing to them costs. So arrays of 128 KiB and more that queries make have an
allocator of their own (NEP 49: an array goes back to the allocator that it came from). A block that comes back waits
in one of a few places for a result of about its size. It belongs to one array or waits, never both. While it waits, if
it is large and others came back meanwhile, the system may take its pages (MADV_FREE), as it does when memory is short;
nobody has to be asked.

The allocator is machine code, as arrays may die while the interpreter is torn down. A thread that finds its lock taken
does not wait: it asks the system for pages, or gives them back.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

import numpy as np

from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass
from robodyn.internals.tuning import KEPT_FROM_BYTES

LIMIT_VARIABLE = "ROBODYN_KEPT_MB"
"""Environment variable that limits what waits, in megabytes of 2^20 bytes; 0: nothing is kept."""
_SHARE = 4
"""What waits is at most this part of the machine's memory, or of what its control group grants."""
PLACES = 32
STEP, HUGE_PAGE = 1 << 16, 1 << 21
"""Blocks are multiples of the one, or of the other."""
HEAD = 64
"""Bytes before an array, a cache line: a block's size is there while an array has it."""
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


class Place(ctypes.Structure):
    """Where a block waits."""

    _fields_ = (
        ("start", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("since", ctypes.c_int64),
        ("marked", ctypes.c_int64),
    )


class Kept(ctypes.Structure):
    """All that waits: `held` bytes of at most `limit`; `clock` counts blocks that came back."""

    _fields_ = (
        ("lock", ctypes.c_int64),
        ("limit", ctypes.c_int64),
        ("held", ctypes.c_int64),
        ("clock", ctypes.c_int64),
        ("mmap", ctypes.c_void_p),
        ("munmap", ctypes.c_void_p),
        ("madvise", ctypes.c_void_p),
        ("places", Place * PLACES),
    )


class _Handler(ctypes.Structure):
    """PyDataMem_Handler."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("kept", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class _Allocator:
    """What waits, NumPy's handler, the capsule around that, and two functions: `PyDataMem_SetHandler` and the one that
    gives back what waits."""

    kept: Kept
    handler: _Handler
    capsule: object
    set_handler: Callable[[object], object]
    release: Callable[[int], int]


_STARTED: list[_Allocator] = []
"""That of this process, at most one. It stays: arrays may die last."""
_CAPSULE = b"mem_handler"


def memory_limit() -> int:
    """Bytes that may wait: what `ROBODYN_KEPT_MB` says, by default a quarter of the machine's memory, or of what its
    control group grants; nothing where the system has no huge pages."""
    try:
        megabytes = float(os.environ[LIMIT_VARIABLE])
        if 0.0 <= megabytes < math.inf:
            return min(int(megabytes * (1 << 20)), sys.maxsize)
    except (KeyError, ValueError):
        pass
    try:
        if "[never]" in _HUGE_PAGES.read_text(encoding="ascii"):
            return 0
    except (OSError, UnicodeError):
        return 0
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no control group, or no limit
        memory = min(memory, int(_GROUP_LIMIT.read_text(encoding="ascii")))
    return memory // _SHARE


def start(function: Callable[[str], int], set_handler: int) -> None:
    """Have the allocator, where the system is one that it knows, unless it is there.

    Args:
        function: the address of a function of its machine code; that stays loaded.
        set_handler: the address of `PyDataMem_SetHandler`.
    """
    if _STARTED or not sys.platform.startswith("linux") or platform.machine() not in ("x86_64", "aarch64"):
        return
    limit = memory_limit()
    if not limit:
        return
    library, any_object = ctypes.CDLL(None), ctypes.py_object
    calls = {name: ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in ("mmap", "munmap", "madvise")}
    kept = Kept(limit=limit, **calls)
    own = {name: function(f"kept_{name}") for name in ("malloc", "calloc", "realloc", "free")}
    handler = _Handler(name=b"robodyn", version=1, kept=ctypes.addressof(kept), **own)
    capsule = ctypes.PYFUNCTYPE(any_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    found = _Allocator(
        kept,
        handler,
        capsule(("PyCapsule_New", ctypes.pythonapi))(ctypes.addressof(handler), _CAPSULE, None),
        ctypes.PYFUNCTYPE(any_object, any_object)(set_handler),
        ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(function("kept_release")),
    )
    ctypes.pythonapi.Py_IncRef(any_object(found))
    _STARTED.append(found)


def handler() -> int:
    """Address of the capsule that NumPy takes for an allocator; 0 where there is none."""
    return id(_STARTED[0].capsule) if _STARTED else 0


def held_bytes() -> int:
    """Bytes that wait for an array."""
    return int(_STARTED[0].kept.held) if _STARTED else 0


def release_memory() -> int:
    """Give memory that is kept for results back to the system; arrays that are alive keep theirs.

    Large results, of 128 KiB and more, leave their memory to later ones when they die, which saves the system the work
    to find new pages. See [engines](../engines.md#memory-of-results).

    Returns:
        Bytes that were given back.
    """
    return sum(each.release(ctypes.addressof(each.kept)) for each in _STARTED)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """`np.empty`, in memory that is kept where it is large."""
    if not _STARTED or math.prod(shape) * dtype.itemsize < KEPT_FROM_BYTES:
        return np.empty(shape, dtype)
    # NumPy's allocator is a variable of the context. In a copy of it nothing that interrupts can leave ours behind.
    return copy_context().run(_empty, _STARTED[0], shape, dtype)


def _empty(allocator: _Allocator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    allocator.set_handler(allocator.capsule)
    return np.empty(shape, dtype)


def _after_fork() -> None:
    """A thread that is not in the child may have been in the middle of a change: what waits is forgotten then."""
    for kept in (each.kept for each in _STARTED):
        if kept.lock:
            ctypes.memset(ctypes.addressof(kept.places), 0, ctypes.sizeof(kept.places))
            kept.held = kept.lock = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
