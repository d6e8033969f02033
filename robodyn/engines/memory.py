"""Refuses results that do not fit into the machine's memory, before anything is allocated."""

from __future__ import annotations

import ctypes
import os
import sys
from math import prod
from pathlib import Path

from robodyn.internals.errors import ArgumentError

_MEMINFO = Path("/proc/meminfo")


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("total", "available", "total_page_file", "available_page_file")),
        *((name, ctypes.c_uint64) for name in ("total_virtual", "available_virtual", "available_extended_virtual")),
    )


def available() -> int:
    """Bytes of memory that a process can still allocate: as Linux and Windows report, elsewhere all physical memory."""
    if sys.platform == "win32":
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        succeeded = ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
        return int(status.available) if succeeded else sys.maxsize
    try:
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def require_memory(what: str, shape: tuple[int, ...], bytes_each: int, remedy: str, there: int | None = None) -> None:
    """Raise if prod(shape) entries of `bytes_each` bytes exceed the memory: `there` bytes, by default all that is
    available.

    Raises:
        ArgumentError: they do; the message tells how much, and `remedy`.
    """
    needed = prod(shape) * bytes_each
    there = available() if there is None else there
    if needed > there:
        raise ArgumentError(
            f"{what}: {' x '.join(map(str, shape))} entries take {needed / 1e9:.3g} GB, and {there / 1e9:.3g} GB are "
            f"available; wanted {remedy}"
        )
