"""Memory for machine code: written first, executed then, and never both at once."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import weakref
from functools import cache

from robodyn.codegen.x86.program import PAGE, Image
from robodyn.errors import UnavailableError

_READ, _WRITE, _EXECUTE = 1, 2, 4
_FAILED = ctypes.c_void_p(-1).value


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


def _protect(start: int, size: int, how: int) -> None:
    if _library().mprotect(start, size, how) != 0:
        raise _refused("protect")


def _refused(what: str) -> UnavailableError:
    return UnavailableError(
        f"engine 'cpu': the system does not {what} memory for machine code: {os.strerror(ctypes.get_errno())}"
    )


class LoadedImage:
    """Machine code loaded into this process; its function lives as long as this object.

    Args:
        image: the code.
        driver: address of the function that its entry goes on to.
        keep: what keeps the driver alive.

    Raises:
        UnavailableError: the system gives no memory for it, or does not let it be executed.
    """

    def __init__(self, image: Image, driver: int, keep: object = None) -> None:
        self._keep = keep
        library = _library()
        data_at = -(-len(image.code) // PAGE) * PAGE
        size = data_at + len(image.data)
        start = library.mmap(None, size, _READ | _WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if start == _FAILED:
            raise _refused("grant")
        # Threads may be inside while the interpreter is torn down: what lives then stays.
        weakref.finalize(self, library.munmap, start, size).atexit = False
        ctypes.memmove(start, image.code, len(image.code))
        ctypes.memmove(start + data_at, image.data, len(image.data))
        ctypes.c_uint64.from_address(start + image.driver_at).value = driver
        _protect(start, data_at, _READ | _EXECUTE)
        _protect(start + data_at, size - data_at, _READ)
        self._entry = int(start) + image.entry

    def address(self, name: str) -> int:
        """Address of the function "kernel".

        Raises:
            UnavailableError: there is no function of that name.
        """
        if name != "kernel":
            raise UnavailableError(f"engine 'cpu': machine code without a function {name!r}")
        return self._entry


@cache
def executable() -> bool:
    """Whether this system lets a process execute what it wrote."""
    if not sys.platform.startswith("linux"):
        return False
    image = Image(b"\xc3", bytes(8), 0, PAGE, 0)
    try:
        loaded = LoadedImage(image, 0)
        ctypes.CFUNCTYPE(None)(loaded.address("kernel"))()
    except UnavailableError:
        return False
    return True
