"""Memory pages for machine code. A page is writable first and executable later, never both at once."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import sys
from collections.abc import Callable
from functools import cache

from robodyn.internals.errors import UnavailableError

READ, WRITE, EXECUTE = 1, 2, 4
AARCH64 = "aarch64"
"""What Linux calls these processors."""
_FAILED = ctypes.c_void_p(-1).value


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


def _refused(what: str) -> UnavailableError:
    return UnavailableError(
        f"engine 'cpu': the system does not {what} memory for machine code: {os.strerror(ctypes.get_errno())}"
    )


def take(size: int) -> int:
    """Map new writable pages and return their address.

    Raises:
        UnavailableError: the system has no memory for them.
    """
    start = _library().mmap(None, size, READ | WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if start == _FAILED:
        raise _refused("grant")
    return int(start)


def protect(start: int, size: int, how: int) -> None:
    """Set the access rights of pages to `how`.

    Raises:
        UnavailableError: the system refuses.
    """
    if _library().mprotect(start, size, how) != 0:
        raise _refused("protect")


@cache
def _clear_cache() -> Callable[[int, int], None]:
    """The function of GCC's runtime library that makes written instructions visible."""
    try:
        function = ctypes.CDLL("libgcc_s.so.1")["__clear_cache"]
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"engine 'cpu': no way to make written machine code visible: {error}") from None
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p], None
    return function


def synchronize(start: int, size: int) -> None:
    """Make instructions that were written visible to the processor's fetching of instructions. x86 processors do that
    themselves.

    Raises:
        UnavailableError: the function that does so is missing.
    """
    if platform.machine() == AARCH64:
        _clear_cache()(start, start + size)


def give_back(start: int, size: int) -> None:
    """Unmap pages."""
    _library().munmap(start, size)


def require_executable() -> None:
    """Check that this process may execute memory that it wrote. Hardened systems forbid this, and LLVM would then abort
    the process.

    Raises:
        UnavailableError: the process may not.
    """
    if not sys.platform.startswith("linux"):
        return
    start = take(mmap.PAGESIZE)
    try:
        if _library().mprotect(start, mmap.PAGESIZE, READ | EXECUTE) != 0 and ctypes.get_errno() != errno.ENOMEM:
            raise UnavailableError(
                "engine 'cpu': this system does not let a process execute what it wrote, which compiled queries are: "
                f"{os.strerror(ctypes.get_errno())}; the engine 'reference' works here"
            )
    finally:
        give_back(start, mmap.PAGESIZE)
