"""Images in memory."""

from __future__ import annotations

import ctypes
import sys
import weakref

from robodyn.compile.pages import EXECUTE, READ, give_back, protect, take
from robodyn.compile.x86.image import PAGE, Image
from robodyn.internals.errors import UnavailableError


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
        data_at = -(-len(image.code) // PAGE) * PAGE
        size = data_at + len(image.data)
        start = take(size)
        # Threads may be inside while the interpreter is torn down: what lives then stays.
        weakref.finalize(self, give_back, start, size).atexit = False
        ctypes.memmove(start, image.code, len(image.code))
        ctypes.memmove(start + data_at, image.data, len(image.data))
        ctypes.c_uint64.from_address(start + image.driver_at).value = driver
        protect(start, data_at, READ | EXECUTE)
        protect(start + data_at, size - data_at, READ)
        self._entry = start + image.entry
        self.large = start + image.large if image.large else 0
        """Address of the one for large batches; 0 where there is none."""
        self.operations = image.operations
        """Operations of a state."""
        found = image.line_code
        self.lines = None if found is None else found.moved(start)
        """Addresses of what writes lines on the way."""

    def address(self, name: str) -> int:
        """Address of the function "kernel".

        Raises:
            UnavailableError: there is no function of that name.
        """
        if name != "kernel":
            raise UnavailableError(f"engine 'cpu': machine code without a function {name!r}")
        return self._entry


_RAN: list[bool] = []
"""Not empty once machine code ran in this process."""


def executable() -> bool:
    """Whether this system lets a process execute what it wrote. What fails once may succeed later."""
    if not _RAN and sys.platform.startswith("linux"):
        image = Image(b"\xc3", bytes(8), 0, PAGE, 0)
        try:
            loaded = LoadedImage(image, 0)
            ctypes.CFUNCTYPE(None)(loaded.address("kernel"))()
            _RAN.append(True)
        except UnavailableError:
            pass
    return bool(_RAN)
