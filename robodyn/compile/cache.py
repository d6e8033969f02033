"""Compiled machine code kept on disk, so that the next process need not compile it again.

Machine code that a process loads is code that it runs. So a folder is used only if no other user can put files in it
(`cache_folder.py`), and a file in it only if it belongs to this user and nobody else can write to it. Nothing here
raises: what cannot be read is a miss, and what cannot be written is compiled again next time.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import re
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from robodyn.compile.cache_folder import OTHERS_WRITE, POSIX, Folder, UnsafeFolderError, make, open_folder, safe_path
from robodyn.internals.records import dataclass

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

FOLDER_VARIABLE = "ROBODYN_CACHE_DIR"
"""Environment variable that names the folder; empty or "off" for no cache."""
SIZE_VARIABLE = "ROBODYN_CACHE_MAX_MB"
"""Environment variable that limits the size, in megabytes of 2^20 bytes."""
DEFAULT_MEGABYTES = 512

_FORMAT = 1
_MAGIC = b"robodyn\0"
_HEADER = struct.Struct("<8sIIQ32s")  # magic, format, bytes of the label, bytes of the code, checksum
_KEY_BYTES, _CHECKSUM_BYTES = 20, 32
_ENTRY = re.compile(rf"([0-9a-f]{{{2 * _KEY_BYTES}}})\.object")
_TEMPORARY = re.compile(rf"[0-9a-f]{{{2 * _KEY_BYTES}}}\.[0-9]+\.[0-9a-f]+\.tmp")
_LOCK, _PATIENCE_S = "lock", 5.0
"""The file that locks are on, and how long a lock is waited for: it is held for milliseconds."""
_ABANDONED_S = 3600.0
"""Age of a temporary file, whose writing takes milliseconds, at which its process is surely gone."""
_LABEL_BYTES = 200
# A link is not followed, and a pipe in the place of an entry must not make the reader wait. Windows has neither flag.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_WRITE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class _BadEntryError(Exception):
    """A file in the place of an entry that was not written here, or is damaged."""


@dataclass(frozen=True)
class Entry:
    """One object in the cache."""

    key: str
    label: str | None
    """What it is, in words; None if the file is damaged."""
    size: int
    """Bytes on disk."""
    last_used: float
    """Seconds since the epoch."""


_PROCESSES = 8
"""Processes that may write at the same time before the limit is exceeded for a while."""
_ROOM: dict[tuple[str, int], int] = {}
"""By folder and limit: bytes that this process may still write before it looks again."""


class ObjectCache:
    """Machine code by key, in a folder of this user alone. Safe for any number of threads and processes.

    Args:
        folder: where entries are; made when first needed, readable by this user alone. None for no cache.
        max_bytes: when entries take more than this, those not used for longest are removed.
        why_not: why there is no folder.
    """

    def __init__(
        self, folder: Path | None, max_bytes: int = DEFAULT_MEGABYTES << 20, why_not: str = "switched off"
    ) -> None:
        self.folder, self.max_bytes, self._why_not = folder, max_bytes, why_not

    @staticmethod
    def from_environment() -> ObjectCache:
        """The cache that the environment asks for: by default `objects` in the platform's cache folder of robodyn."""
        given = os.environ.get(FOLDER_VARIABLE)
        if given is not None and given.strip().lower() in ("", "off"):
            return ObjectCache(None, why_not=f"switched off by {FOLDER_VARIABLE}={given}")
        try:
            if given is not None:
                folder = Path(given).expanduser().absolute()
            else:
                from platformdirs import user_cache_path

                folder = user_cache_path("robodyn") / "objects"
        except (OSError, RuntimeError) as error:
            return ObjectCache(None, why_not=f"no cache folder: {error}")
        if not folder.is_absolute():
            return ObjectCache(None, why_not=f"this user has no home folder; {FOLDER_VARIABLE} can name a cache folder")
        return ObjectCache(folder, _max_bytes())

    def problem(self) -> str | None:
        """Why the folder cannot be used, or None. One that does not exist yet is none: it is made when needed."""
        if self.folder is None:
            return self._why_not
        try:
            safe_path(self.folder)
        except FileNotFoundError:
            return None
        except UnsafeFolderError as error:
            return str(error)
        except (OSError, ValueError) as error:
            return f"{self.folder}: {getattr(error, 'strerror', None) or error}"
        return None

    # Entries.

    def get(self, key: str) -> bytes | None:
        """The machine code under a key, or None. A damaged entry is removed."""
        folder = self._open()
        if folder is None:
            return None
        with folder:
            try:
                with _file(folder, _name(key)) as file:
                    code = _read_code(file, key)
                    folder.touch(file.fileno(), _name(key))
                    return code
            except _BadEntryError:
                folder.remove(_name(key))
            except (OSError, ValueError, MemoryError):
                return None
        return None

    def put(self, key: str, data: bytes, label: str = "") -> None:
        """Keep machine code under a key. `label` says what it is to people who look at the cache."""
        words = _printable(label)
        header = _HEADER.pack(_MAGIC, _FORMAT, len(words), len(data), _checksum(key, words, data))
        size = len(header) + len(words) + len(data)
        folder = self._open(make_it=True) if size <= self.max_bytes else None
        if folder is None:
            return
        with folder:
            # Written under a name of its own and renamed: readers see all of an entry or nothing.
            temporary = f"{key}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
            try:
                _write_new(folder, temporary, header + words + data)
                folder.replace(_name(key), by=temporary)
            except (OSError, MemoryError):
                return
            finally:
                folder.remove(temporary)
            self._make_room(folder, _name(key), size)

    @contextmanager
    def alone(self, lock: str = _LOCK, patience_s: float = _PATIENCE_S) -> Iterator[None]:
        """Around reading an entry and writing it anew: other processes and threads that do so wait, some seconds at
        most; nobody waits where there is no folder, or the system has no locks. `lock`: the file that the lock is on;
        those on others do not wait for one another."""
        descriptor = self._lock(lock) if fcntl is not None else None
        try:
            if descriptor is not None:
                _wait_for(descriptor, patience_s)
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _lock(self, name: str) -> int | None:
        """A descriptor of the file that a lock is on, or None where something else is in its place."""
        folder = self._open(make_it=True)
        if folder is None:
            return None
        try:
            with folder:
                descriptor = folder.open(name, _WRITE)
        except OSError:
            return None
        if _is_own_file(os.fstat(descriptor)):
            return descriptor
        os.close(descriptor)
        return None

    def entries(self) -> list[Entry]:
        """Everything in the cache, the most recently used first; nothing if the folder cannot be used."""
        folder = self._open()
        if folder is None:
            return []
        with folder:
            return _entries(folder)

    def clear(self) -> list[Entry]:
        """Remove everything, and return what was removed. Files that are not the cache's are left alone."""
        folder = self._open()
        if folder is None:
            return []
        with folder:
            removed = [entry for entry in _entries(folder) if folder.remove(_name(entry.key))]
            for name, _ in folder.files():
                if _TEMPORARY.fullmatch(name):
                    folder.remove(name)
            return removed

    # The folder.

    def _open(self, make_it: bool = False) -> Folder | None:
        """The folder, made if it is missing and asked for; None where there is none, or one that must not be used."""
        if self.folder is None:
            return None
        with suppress(OSError, ValueError):
            try:
                return open_folder(self.folder)
            except FileNotFoundError:
                if make_it:
                    make(self.folder)
                    return open_folder(self.folder)
        return None

    def _make_room(self, folder: Folder, newest: str, written: int) -> None:
        """Evict, but look at the folder only once a part of the room that was found is used up: there may be thousands
        of files, and looking at them all takes longer than writing one."""
        place = (folder.path, self.max_bytes)
        room = _ROOM.get(place, 0) - written
        _ROOM[place] = room if room > 0 else (self.max_bytes - self._evict(folder, newest)) // _PROCESSES

    def _evict(self, folder: Folder, newest: str) -> int:
        """Remove what was not used for longest until the rest is small enough, and what dead processes left; the bytes
        that are left."""
        files = sorted(_files(folder), key=lambda file: file[1].st_mtime_ns)
        total = sum(status.st_size for _, status in files)
        for name, status in files:
            abandoned = _TEMPORARY.fullmatch(name) and time.time() - status.st_mtime > _ABANDONED_S
            if abandoned or (total > self.max_bytes and name != newest and _ENTRY.fullmatch(name)):
                folder.remove(name)
                total -= status.st_size
        return total


def _max_bytes() -> int:
    """The limit that the environment asks for; the default where it is no number."""
    try:
        megabytes = float(os.environ.get(SIZE_VARIABLE, DEFAULT_MEGABYTES))
    except ValueError:
        return DEFAULT_MEGABYTES << 20
    most = megabytes * (1 << 20)
    return int(most) if math.isfinite(most) and most >= 0 else DEFAULT_MEGABYTES << 20


def _name(key: str) -> str:
    return f"{key}.object"


def _files(folder: Folder) -> list[tuple[str, os.stat_result]]:
    """Files of the cache, entries and temporary ones."""
    return [(name, status) for name, status in folder.files() if _ENTRY.fullmatch(name) or _TEMPORARY.fullmatch(name)]


def _entries(folder: Folder) -> list[Entry]:
    found = [
        Entry(match[1], _label(folder, name), status.st_size, status.st_mtime)
        for name, status in folder.files()
        if (match := _ENTRY.fullmatch(name))
    ]
    return sorted(found, key=lambda entry: entry.last_used, reverse=True)


def _is_own_file(status: os.stat_result) -> bool:
    """Whether it is a plain file that this user alone can write to. It may have a second name, as backups give it:
    under that, too, nobody else can write to it."""
    if not stat.S_ISREG(status.st_mode):
        return False
    return not POSIX or (status.st_uid == os.geteuid() and not status.st_mode & OTHERS_WRITE)


def _file(folder: Folder, name: str) -> BinaryIO:
    """An entry's file, opened without following links, if it is a plain file that this user alone can write to."""
    try:
        descriptor = folder.open(name, _READ)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _BadEntryError from None
        raise
    if _is_own_file(os.fstat(descriptor)):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise _BadEntryError


def _wait_for(descriptor: int, patience_s: float) -> None:
    """Wait until a file is locked, so long at most; not at all where the disk has no locks."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_PATIENCE_S / 1000)
        except OSError:
            return


def _read_header(file: BinaryIO) -> tuple[bytes, int, bytes]:
    """Label, bytes of code and checksum of an entry."""
    header = file.read(_HEADER.size)
    if len(header) != _HEADER.size:
        raise _BadEntryError
    magic, version, label_bytes, code_bytes, checksum = _HEADER.unpack(header)
    size = os.fstat(file.fileno()).st_size
    if (magic, version) != (_MAGIC, _FORMAT) or size != _HEADER.size + label_bytes + code_bytes:
        raise _BadEntryError
    return file.read(label_bytes), code_bytes, checksum


def _read_code(file: BinaryIO, key: str) -> bytes:
    label, code_bytes, checksum = _read_header(file)
    code = file.read(code_bytes)
    if _checksum(key, label, code) != checksum:
        raise _BadEntryError
    return code


def _label(folder: Folder, name: str) -> str | None:
    try:
        with _file(folder, name) as file:
            return _read_header(file)[0].decode(errors="replace")
    except (_BadEntryError, OSError, MemoryError):
        return None


def _printable(label: str) -> bytes:
    """A label that a terminal can show as it is."""
    text = "".join(character if character.isprintable() else "?" for character in label)
    return text.encode(errors="replace")[:_LABEL_BYTES].decode(errors="ignore").encode()


def _checksum(key: str, label: bytes, code: bytes) -> bytes:
    """Of all that an entry says, its key included: a file under another key's name is damaged too."""
    state = hashlib.blake2b(key.encode(), digest_size=_CHECKSUM_BYTES)
    state.update(len(label).to_bytes(4, "little"))
    state.update(label)
    state.update(code)
    return state.digest()


def _write_new(folder: Folder, name: str, content: bytes) -> None:
    descriptor = folder.open(name, _WRITE_NEW)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
    finally:
        os.close(descriptor)
