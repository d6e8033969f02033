"""Loads images of machine code into memory."""

from __future__ import annotations

import ctypes
import platform
import sys
import weakref

from robodyn.compile.pages import AARCH64, EXECUTE, READ, give_back, protect, synchronize, take
from robodyn.compile.x86.image import PAGE, Image
from robodyn.internals.errors import UnavailableError


class LoadedImage:
    """Machine code loaded into this process. Its function is valid as long as this object lives.

    Args:
        image: the code.
        driver: address of the driver, to which the image's entry jumps.
        keep: an object that keeps the driver alive.

    Raises:
        UnavailableError: the system has no memory for the code, or forbids executing it.
    """

    def __init__(self, image: Image, driver: int, keep: object = None) -> None:
        self._keep = keep
        data_at = -(-len(image.code) // PAGE) * PAGE
        size = data_at + len(image.data)
        start = take(size)
        # At exit the memory stays mapped, because threads may still run the code while the interpreter shuts down.
        weakref.finalize(self, give_back, start, size).atexit = False
        ctypes.memmove(start, image.code, len(image.code))
        ctypes.memmove(start + data_at, image.data, len(image.data))
        ctypes.c_uint64.from_address(start + image.driver_at).value = driver
        protect(start, data_at, READ | EXECUTE)
        synchronize(start, len(image.code))
        protect(start + data_at, size - data_at, READ)
        self._entry = start + image.entry
        self.large = start + image.large if image.large else 0
        """Address of the function for large batches; 0 if there is none."""
        self.operations = image.operations
        """Floating-point operations for one state."""
        line_code = image.line_code
        self.lines = None if line_code is None else line_code.moved(start)
        """Addresses of the code that writes cache lines during the computation, or None."""

    def address(self, name: str) -> int:
        """Address of the function "kernel".

        Raises:
            UnavailableError: there is no function of that name.
        """
        if name != "kernel":
            raise UnavailableError(f"engine 'cpu': machine code without a function {name!r}")
        return self._entry


_RAN: list[bool] = []
"""Not empty once machine code has run in this process."""


def executable() -> bool:
    """Whether this process may execute memory that it wrote. A failure is not remembered, because it may be
    temporary."""
    if not _RAN and sys.platform.startswith("linux"):
        ret = b"\xc0\x03\x5f\xd6" if platform.machine() == AARCH64 else b"\xc3"
        image = Image(ret, bytes(8), 0, PAGE, 0)
        try:
            loaded = LoadedImage(image, 0)
            ctypes.CFUNCTYPE(None)(loaded.address("kernel"))()
            _RAN.append(True)
        except UnavailableError:
            pass
    return bool(_RAN)
