"""One map at a time writes to a place: a lock that the death of its process frees."""

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
"""In the folder that is written to, as long as it is: who does so."""
_OTHERS = (errno.EAGAIN, errno.EACCES)
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_TRIES = 100
"""How often a lock file is opened anew that its owner removed between opening and locking."""
_OPEN = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

_HELD: dict[str, int | None] = {}
"""Places that maps of this process write to, with the descriptors of their locks."""
_GUARD = forks.lock()


def _after_fork() -> None:
    """The child of a fork holds nothing, and does not keep what its parent gives back."""
    for descriptor in _HELD.values():
        if descriptor is not None:
            os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def alone(place: str, folder: Path | None) -> Iterator[None]:
    """Around what one map alone may do.

    Maps of one process are told from one another whatever the place is; those of other processes only in a folder, on
    a system and a disk that have locks.

    Args:
        place: what stands for the place in this process.
        folder: where it is on this machine, made if it is missing; None where it is no folder.

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
        if os.getpid() == process:  # a child that was forked meanwhile has nothing to give back
            descriptor = _HELD.pop(place)
            if descriptor is not None:
                with suppress(OSError):
                    (folder / LOCK_FILE).unlink()  # type: ignore[operator]
                with suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)  # for children, too, that were forked in a bad moment
                os.close(descriptor)


def _locked(place: str, path: Path) -> int | None:
    """A descriptor of the file, which is locked; None where nobody can write, or the disk has no locks."""
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
            os.close(descriptor)  # removed by its owner, who was just done
        except OSError as error:
            owner = _owner(descriptor)
            os.close(descriptor)
            if error.errno not in _OTHERS:
                return None
            raise _taken(place, owner) from None
    raise _taken(place, "other maps in turn")


def _opened(path: Path) -> int:
    """A descriptor of the lock file, which is made if it is missing; that of another user can be read alone."""
    try:
        return os.open(path, _OPEN, 0o666)
    except OSError as error:
        if error.errno not in _READ_ONLY or not path.exists():
            raise
        return os.open(path, _OPEN & ~(os.O_RDWR | os.O_CREAT) | os.O_RDONLY)


def _sign(descriptor: int) -> None:
    owner = {"process": os.getpid(), "machine": socket.gethostname(), "since": datetime.now(UTC).isoformat()}
    with suppress(OSError):  # a full disk; the lock holds without words
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(owner).encode(), 0)


def _owner(descriptor: int) -> str:
    """Who holds a lock, as far as it has written that."""
    try:
        found = json.loads(os.pread(descriptor, 1000, 0))
        return quoted(f"process {found['process']} on {found['machine']} since {found['since']}", 200)[1:-1]
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _taken(place: str, owner: str) -> UnavailableError:
    return UnavailableError(
        f"out: another map writes to {quoted(place, 200)} ({owner}); wanted another place, or to wait until it is done"
    )
