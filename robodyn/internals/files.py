"""Files that users name: regular ones only, so that nothing waits for a pipe or acts on a device.

They are read through `open_regular` or `read_regular`, and written whole or not at all through `whole_file`.
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
"""So many characters of a path are quoted in a message."""

_LEAST, _CHUNK = 1 << 15, 1 << 20
"""Bytes that are read at one time."""

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
    """A path from what a user gave as argument `name`: text or os.PathLike.

    Raises:
        ArgumentError: it is something else, empty, holds null characters, or ends in a slash as only folders' names do.
    """
    text = _spelt(given)
    if not text or "\0" in text or text.endswith(("/", os.sep)):
        raise ArgumentError(f"{name}: got {brief(given)}; wanted the name of a file")
    return Path(text)


def path_text(given: Any) -> str | None:
    """The path that a text or an os.PathLike spells; None for something else, and for what no file can be called."""
    text = _spelt(given)
    try:
        return None if text is None or b"\0" in os.fsencode(text) else text
    except UnicodeEncodeError:  # letters that the system's encoding lacks
        return None


def _spelt(given: Any) -> str | None:
    try:
        path = os.fspath(given) if strict_types.is_a(given, os.PathLike) else given
        return (
            os.fsdecode(path)
            if strict_types.is_a(path, bytes) and path is not given
            else strict_types.text_or_none(path)
        )
    except Exception:  # of a foreign object, which may raise anything
        return None


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file to read its bytes. Symbolic links are followed.

    Raises:
        ArgumentError: it is there and no regular file, or nothing can have such a name.
        OSError: it cannot be opened.
    """
    return os.fdopen(_opened(path)[0], "rb")


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """What a regular file holds; of more than `most` bytes the first `most` and one.

    Raises:
        ArgumentError: it is there and no regular file, or nothing can have such a name.
        OSError: it cannot be read.
    """
    descriptor, size = _opened(path)
    try:
        pieces: list[bytes] = []
        left = most + 1
        # A read takes memory for all that it is asked for; some systems say of files full of text that they are empty.
        size = min(max(size + 1, _LEAST), _CHUNK)
        while left > 0 and (piece := os.read(descriptor, min(left, size))):
            pieces.append(piece)
            left -= len(piece)
    finally:
        os.close(descriptor)
    return b"".join(pieces)


def _opened(path: str | os.PathLike[str]) -> tuple[int, int]:
    """The descriptor of a regular file that is opened to be read, and its size."""
    _require_regular(_looked_at(os.stat, path))  # before opening, which may act on a device
    # The file may have changed since: O_NONBLOCK keeps even a pipe from blocking the second look.
    descriptor = os.open(path, _READ)
    try:
        status = os.fstat(descriptor)
        _require_regular(status)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status.st_size


def require_writable(given: Any, name: str = "path") -> Path:
    """The path that a user gave as argument `name`, at which `whole_file` may write.

    Raises:
        ArgumentError: it is no name of a file, or something is there that is no regular file, as a symbolic link.
        OSError: the file that is there is read-only, or its folder cannot be looked into.
    """
    path = file_named(name, given)
    _replaced(path, name)
    return path


@contextmanager
def whole_file(given: Any, name: str = "path") -> Iterator[IO[bytes]]:
    """A new binary file, which takes the place of what is at the path after all of it was written.

    Until then it lies beside it under a random name, `.robodyn-*.part`. Where anything goes wrong it is removed, and
    what was there stays as it was. Owner, group and permissions of a file that is replaced stay; where the system does
    not let this user keep the group, groups may do nothing with it. Other names of that file (hard links) keep its old
    content. Any number of threads and processes may do so at once: the last one stays.

    Raises:
        ArgumentError: it is no name of a file, or something is there that is no regular file, as a symbolic link.
        OSError: the folder is not there, or the file cannot be written; `filename` is the path that was given.
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
                os.fsync(file.fileno())  # some disks are full only now
            os.replace(part, path)  # noqa: PTH105 - the one call that replaces on every system
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:  # which names the other file, or none
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error


def _be_like(descriptor: int, replaced: os.stat_result) -> None:
    """Give a new file the owner, the group and the permissions of another one."""
    mode, now = stat.S_IMODE(replaced.st_mode) & 0o777, os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (replaced.st_uid, replaced.st_gid):
        for owner in (replaced.st_uid, -1):
            with suppress(OSError):
                os.fchown(descriptor, owner, replaced.st_gid)
                break
        else:  # what was meant for that group is not for this one
            mode &= ~stat.S_IRWXG
    os.fchmod(descriptor, mode)


def _replaced(path: Path, name: str) -> os.stat_result | None:
    """The state of the regular file that may be replaced; None where nothing is there."""
    try:
        found = _looked_at(os.lstat, path)
        _require_regular(found)
    except FileNotFoundError:
        return None
    except ArgumentError as error:
        raise ArgumentError(f"{name}: {quoted(str(path), most=LONGEST_PATH)}: {error}") from None
    # Another process may have removed it by now, which is no reason to refuse.
    nobody = not found.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)  # root can write to any
    if (nobody or not os.access(path, os.W_OK)) and os.path.lexists(path):
        raise PermissionError(errno.EACCES, "it is read-only", str(path))
    return found


def _looked_at(look: Callable[[Any], os.stat_result], path: str | os.PathLike[str]) -> os.stat_result:
    try:
        return look(path)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise ArgumentError("its name is too long; give the name of a regular file") from None
        raise
    except ValueError as error:  # null characters, or what the system's encoding lacks
        raise ArgumentError(f"no file can have such a name ({error}); give the name of a regular file") from None


def _require_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        what = _KINDS.get(stat.S_IFMT(status.st_mode), "special file")
        raise ArgumentError(f"it is a {what}; give the name of a regular file")
