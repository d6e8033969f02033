"""A pool of memory for large results. The memory of a freed array is reused by the next one.

Page faults on new pages take longer than writing the results. So queries allocate arrays of 16 KiB and more with an
allocator of their own (NEP 49: NumPy returns memory to the allocator that it came from). A freed block goes into a slot
of the pool, until an array of similar size needs memory. A block either belongs to one array or is in the pool. Large
blocks in the pool are marked with MADV_FREE after a while: the operating system may take their pages when memory is
short.

The allocator is machine code, because arrays may be freed while the interpreter shuts down. A thread that finds the
pool locked does not wait: it maps new pages, or unmaps those of its array.
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
"""Environment variable: maximal size of the pool, in units of 2^20 bytes; 0 disables the pool."""
_SHARE = 4
"""The pool takes at most this fraction (1/4) of the machine's memory, or of the limit of the process's control
group."""
PLACES = 32
STEP, HUGE_PAGE = 1 << 16, 1 << 21
"""Sizes of blocks are multiples of `STEP` bytes, of large blocks of `HUGE_PAGE` bytes."""
HEAD = 64
"""Bytes in front of an array's data, one cache line. They hold the size of the block while an array uses it."""
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


class Place(ctypes.Structure):
    """A slot of the pool. `since`: the clock when its block was freed; `marked`: 1 once the system may take its
    pages."""

    _fields_ = (
        ("start", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("since", ctypes.c_int64),
        ("marked", ctypes.c_int64),
    )


class Kept(ctypes.Structure):
    """The pool: `held` bytes of at most `limit` bytes; `clock` counts freed blocks."""

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
    """PyDataMem_Handler of NumPy."""

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
    """The pool, NumPy's handler, the capsule around the handler, and two functions: `PyDataMem_SetHandler`, and
    `release`, which returns all blocks of the pool to the system."""

    kept: Kept
    handler: _Handler
    capsule: object
    set_handler: Callable[[object], object]
    release: Callable[[int], int]


_STARTED: list[_Allocator] = []
"""The allocator of this process, or nothing. It is never deleted: arrays may be freed last."""
_CAPSULE = b"mem_handler"


def memory_limit() -> int:
    """Maximal bytes in the pool: `ROBODYN_KEPT_MB`, by default a quarter of the machine's memory or of the control
    group's limit. 0 if the system has no huge pages."""
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
    """Create the allocator once per process, on Linux with an x86-64 or AArch64 processor.

    Args:
        function: returns addresses of functions of the allocator's machine code, which is never unloaded.
        set_handler: address of `PyDataMem_SetHandler`.
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
    allocator = _Allocator(
        kept,
        handler,
        capsule(("PyCapsule_New", ctypes.pythonapi))(ctypes.addressof(handler), _CAPSULE, None),
        ctypes.PYFUNCTYPE(any_object, any_object)(set_handler),
        ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(function("kept_release")),
    )
    ctypes.pythonapi.Py_IncRef(any_object(allocator))
    _STARTED.append(allocator)


def handler() -> int:
    """Address of the capsule that describes the allocator to NumPy; 0 if there is none."""
    return id(_STARTED[0].capsule) if _STARTED else 0


def held_bytes() -> int:
    """Bytes in the pool."""
    return int(_STARTED[0].kept.held) if _STARTED else 0


def release_memory() -> int:
    """Return the memory of the pool for results to the operating system. Arrays in use keep theirs.

    When large results (16 KiB and more) are freed, their memory stays in a pool for later results. This saves page
    faults. See [engines](../engines.md#memory-of-results).

    Returns:
        Number of bytes returned.
    """
    return sum(each.release(ctypes.addressof(each.kept)) for each in _STARTED)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """`np.empty`; large arrays take memory from the pool."""
    if not _STARTED or math.prod(shape) * dtype.itemsize < KEPT_FROM_BYTES:
        return np.empty(shape, dtype)
    # NumPy's allocator is a context variable. Set in a copy of the context, it cannot stay behind after an interrupt.
    return copy_context().run(_empty, _STARTED[0], shape, dtype)


def _empty(allocator: _Allocator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    allocator.set_handler(allocator.capsule)
    return np.empty(shape, dtype)


def _after_fork() -> None:
    """Drop the pool's blocks in a forked child if the lock was taken: a thread of the parent may have been changing
    it."""
    for kept in (each.kept for each in _STARTED):
        if kept.lock:
            ctypes.memset(ctypes.addressof(kept.places), 0, ctypes.sizeof(kept.places))
            kept.held = kept.lock = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
