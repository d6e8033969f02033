"""Results that a machine's memory cannot hold are refused before anything is allocated."""

from __future__ import annotations

import os
from math import prod
from pathlib import Path

from robodyn.errors import ArgumentError

_MEMINFO = Path("/proc/meminfo")


def available() -> int:
    """Bytes that a process may still take: what Linux says is available, elsewhere all that is built in."""
    try:
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def require_memory(what: str, shape: tuple[int, ...], bytes_each: int, remedy: str, there: int | None = None) -> None:
    """Raise where `what`, prod(shape) entries of n bytes, is more than there is: `there`, or what is available.

    Raises:
        ArgumentError: it is; says how much, and `remedy`.
    """
    needed = prod(shape) * bytes_each
    there = available() if there is None else there
    if needed > there:
        raise ArgumentError(
            f"{what}: {' x '.join(map(str, shape))} entries take {needed / 1e9:.3g} GB, and {there / 1e9:.3g} GB are "
            f"available; wanted {remedy}"
        )
