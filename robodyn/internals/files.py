"""Files that users name. Only regular files are accepted: reading a pipe would block, and a device would act.

They are read with `open_regular` or `read_regular`. `whole_file` writes them completely or not at all.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from robodyn.internals import strict_types
from robodyn.internals.errors import ArgumentError
from robodyn.internals.messages import brief, quoted

LONGEST_PATH = 300
"""Most characters of a path in a message."""

_LEAST, _CHUNK = 1 << 15, 1 << 20
"""Least and most bytes of one read."""

_KINDS = {
    stat.S_IFDIR: "directory",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def file_named(name: str, given: Any) -> Path:
    """A path from argument `name` of a user, a text or os.PathLike.

    Raises:
        ArgumentError: something else, empty, with null characters, or ending in a slash as only folders' names do.
    """
    text = _spelt(given)
    if not text or "\0" in text or text.endswith(("/", os.sep)):
        raise ArgumentError(f"{name}: got {brief(given)}; wanted the name of a file")
    return Path(text)


def path_text(given: Any) -> str | None:
    """The path of a text or an os.PathLike; None for anything else, and for names that no file can have."""
    text = _spelt(given)
    try:
        return None if text is None or b"\0" in os.fsencode(text) else text
    except UnicodeEncodeError:  # characters that the system's encoding lacks
        return None


def _spelt(given: Any) -> str | None:
    try:
        path = os.fspath(given) if strict_types.is_a(given, os.PathLike) else given
        return (
            os.fsdecode(path)
            if strict_types.is_a(path, bytes) and path is not given
            else strict_types.text_or_none(path)
        )
    except Exception:  # a foreign object may raise anything
        return None


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file to read its bytes. Symbolic links are followed.

    Raises:
        ArgumentError: the path exists and is not a regular file, or the name is impossible.
        OSError: it cannot be opened.
    """
    return os.fdopen(_opened(path)[0], "rb")


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """The content of a regular file; if it has more than `most` bytes, its first `most` + 1.

    Raises:
        ArgumentError: the path exists and is not a regular file, or the name is impossible.
        OSError: it cannot be read.
    """
    descriptor, size = _opened(path)
    try:
        pieces: list[bytes] = []
        left = most + 1
        # A read allocates all the memory it asks for. Some systems report a size of 0 for files that are not empty.
        size = min(max(size + 1, _LEAST), _CHUNK)
        while left > 0 and (piece := os.read(descriptor, min(left, size))):
            pieces.append(piece)
            left -= len(piece)
    finally:
        os.close(descriptor)
    return b"".join(pieces)


def _opened(path: str | os.PathLike[str]) -> tuple[int, int]:
    """The descriptor of a regular file, open for reading, and its size (bytes)."""
    _require_regular(_looked_at(os.stat, path))  # before opening, which may act on a device
    # The file may have changed since: O_NONBLOCK keeps a pipe from blocking before the second check.
    descriptor = os.open(path, _READ)
    try:
        status = os.fstat(descriptor)
        _require_regular(status)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status.st_size


def require_writable(given: Any, name: str = "path") -> Path:
    """The path of argument `name` of a user, at which `whole_file` may write.

    Raises:
        ArgumentError: not a file name, or the path exists and is not a regular file (symbolic links are not).
        OSError: the existing file is read-only, or its folder cannot be read.
    """
    path = file_named(name, given)
    _replaced(path, name)
    return path


@contextmanager
def whole_file(given: Any, name: str = "path") -> Iterator[IO[bytes]]:
    """A new binary file, which replaces the file at the path after it is completely written.

    Until then it is beside that file under a random name, `.robodyn-*.part`. After an error it is removed, and the old
    file stays. A replaced file's owner, group and permissions are kept. If the system does not let this user set the
    group, groups lose their permissions. Other hard links of the old file keep its content. Threads and processes may
    write the same path at once: the last one wins.

    Raises:
        ArgumentError: not a file name, or the path exists and is not a regular file (symbolic links are not).
        OSError: the folder does not exist, or the file cannot be written; `filename` is the user's path.
    """
    path = file_named(name, given)
    replaced = _replaced(path, name)
    part = path.parent / f".robodyn-{secrets.token_hex(16)}.part"
    try:
        descriptor = os.open(part, _WRITE, 0o666 if replaced is None else 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if replaced is not None and hasattr(os, "fchmod"):
                    _be_like(file.fileno(), replaced)
                yield file
                file.flush()
                os.fsync(file.fileno())  # some disks report only now that they are full
            os.replace(part, path)  # noqa: PTH105 - the one call that replaces on every system
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:  # it names the temporary file, or none
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error


def _be_like(descriptor: int, replaced: os.stat_result) -> None:
    """Give a new file the owner, the group and the permissions of another one."""
    mode, now = stat.S_IMODE(replaced.st_mode) & 0o777, os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (replaced.st_uid, replaced.st_gid):
        for owner in (replaced.st_uid, -1):
            with suppress(OSError):
                os.fchown(descriptor, owner, replaced.st_gid)
                break
        else:  # permissions of that group are not meant for this one
            mode &= ~stat.S_IRWXG
    os.fchmod(descriptor, mode)


def _replaced(path: Path, name: str) -> os.stat_result | None:
    """The status of the regular file that would be replaced; None if there is none."""
    try:
        status = _looked_at(os.lstat, path)
        _require_regular(status)
    except FileNotFoundError:
        return None
    except ArgumentError as error:
        raise ArgumentError(f"{name}: {quoted(str(path), most=LONGEST_PATH)}: {error}") from None
    # Another process may have removed the file since, which is not an error.
    nobody = not status.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)  # root can write to any file
    if (nobody or not os.access(path, os.W_OK)) and os.path.lexists(path):
        raise PermissionError(errno.EACCES, "it is read-only", str(path))
    return status


def _looked_at(look: Callable[[Any], os.stat_result], path: str | os.PathLike[str]) -> os.stat_result:
    try:
        return look(path)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise ArgumentError("its name is too long; give the name of a regular file") from None
        raise
    except ValueError as error:  # null characters, or characters that the system's encoding lacks
        raise ArgumentError(f"no file can have such a name ({error}); give the name of a regular file") from None


def _require_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        what = _KINDS.get(stat.S_IFMT(status.st_mode), "special file")
        raise ArgumentError(f"it is a {what}; give the name of a regular file")
