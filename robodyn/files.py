"""Opening files that users name: regular ones only, so that nothing waits for a pipe or acts on a device."""

from __future__ import annotations

import errno
import os
import stat
from typing import IO


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file to read its bytes.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    _require_regular(os.stat(path), path)  # noqa: PTH116 - before opening, which may act on a device
    # The file may have changed since: O_NONBLOCK keeps even a pipe from blocking the second look.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    file = os.fdopen(descriptor, "rb")
    try:
        _require_regular(os.fstat(descriptor), path)
    except OSError:
        file.close()
        raise
    return file


def require_writable_kind(path: str | os.PathLike[str]) -> None:
    """Raise unless a file may be made at `path`: there is none yet, or a regular one.

    Raises:
        OSError: it is a directory, pipe, device or socket.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - the one call that open_regular makes too
    except FileNotFoundError:
        return
    _require_regular(found, path)


def _require_regular(status: os.stat_result, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory; give a regular file", os.fspath(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is a pipe, device or socket; give a regular file", os.fspath(path))
