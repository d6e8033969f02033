"""A lock that lets one map at a time write to a place. The end of its process releases it."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from robodyn.internals import forks
from robodyn.internals.errors import UnavailableError
from robodyn.internals.messages import quoted

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".robodyn.lock"
"""Lock file in the output folder while a map writes there. It names the map's process."""
_OTHERS = (errno.EAGAIN, errno.EACCES)
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_TRIES = 100
"""Number of attempts to lock the file if its owner removes it between opening and locking."""
_OPEN = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

_HELD: dict[str, int | None] = {}
"""Places that maps of this process write to, and the file descriptors of their locks."""
_GUARD = forks.lock()


def _after_fork() -> None:
    """In the child of a fork: close inherited descriptors, which would keep the parent's locks alive."""
    for descriptor in _HELD.values():
        if descriptor is not None:
            os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def alone(place: str, folder: Path | None) -> Iterator[None]:
    """Context that excludes other maps from a place.

    Maps of the same process are always excluded. Maps of other processes are excluded only for folders, on systems and
    disks with file locks.

    Args:
        place: key of the place in this process.
        folder: its folder on this machine, made if it is missing; None if it is no folder.

    Raises:
        UnavailableError: another map writes there; names its process.
        OSError: the folder cannot be made.
    """
    process = os.getpid()
    with _GUARD:
        if place in _HELD:
            raise _taken(place, f"process {process}, this one")
        _HELD[place] = None
    try:
        if folder is not None and fcntl is not None:
            folder.mkdir(parents=True, exist_ok=True)
            _HELD[place] = _locked(place, folder / LOCK_FILE)
        yield
    finally:
        if os.getpid() == process:  # a child forked meanwhile does not own the lock
            descriptor = _HELD.pop(place)
            if descriptor is not None:
                with suppress(OSError):
                    (folder / LOCK_FILE).unlink()  # type: ignore[operator]
                with suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)  # unlocks also for descriptors inherited by children
                os.close(descriptor)


def _locked(place: str, path: Path) -> int | None:
    """A descriptor of the locked file; None if nobody can write there or the disk has no locks."""
    for _ in range(_TRIES):
        try:
            descriptor = _opened(path)
        except OSError as error:
            if error.errno in _READ_ONLY:
                return None
            raise
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.fstat(descriptor).st_ino == path.stat().st_ino:
                    _sign(descriptor)
                    return descriptor
            os.close(descriptor)  # its owner has just finished and removed the file
        except OSError as error:
            owner = _owner(descriptor)
            os.close(descriptor)
            if error.errno not in _OTHERS:
                return None
            raise _taken(place, owner) from None
    raise _taken(place, "other maps in turn")


def _opened(path: Path) -> int:
    """Open the lock file, which is made if it is missing; read-only if it belongs to another user."""
    try:
        return os.open(path, _OPEN, 0o666)
    except OSError as error:
        if error.errno not in _READ_ONLY or not path.exists():
            raise
        return os.open(path, _OPEN & ~(os.O_RDWR | os.O_CREAT) | os.O_RDONLY)


def _sign(descriptor: int) -> None:
    owner = {"process": os.getpid(), "machine": socket.gethostname(), "since": datetime.now(UTC).isoformat()}
    with suppress(OSError):  # on a full disk the lock holds without its text
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(owner).encode(), 0)


def _owner(descriptor: int) -> str:
    """Description of the lock's owner, from the file's text."""
    try:
        owner = json.loads(os.pread(descriptor, 1000, 0))
        return quoted(f"process {owner['process']} on {owner['machine']} since {owner['since']}", 200)[1:-1]
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _taken(place: str, owner: str) -> UnavailableError:
    return UnavailableError(
        f"out: another map writes to {quoted(place, 200)} ({owner}); wanted another place, or to wait until it is done"
    )
