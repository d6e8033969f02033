"""A cache of machine code on disk, so that later processes need not compile again.

A process executes the machine code that it loads. A folder is therefore used only if no other user can add files to it
(`cache_folder.py`). A file is used only if it belongs to this user and nobody else can write to it. No method raises:
an entry that cannot be read counts as missing, and an entry that cannot be written is compiled again next time.
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
"""Environment variable with the path of the folder; empty or "off" disables the cache."""
SIZE_VARIABLE = "ROBODYN_CACHE_MAX_MB"
"""Environment variable with the size limit, in units of 2^20 bytes."""
DEFAULT_MEGABYTES = 512

_FORMAT = 1
_MAGIC = b"robodyn\0"
_HEADER = struct.Struct("<8sIIQ32s")  # magic, format, bytes of the label, bytes of the code, checksum
_KEY_BYTES, _CHECKSUM_BYTES = 20, 32
_ENTRY = re.compile(rf"([0-9a-f]{{{2 * _KEY_BYTES}}})\.object")
_TEMPORARY = re.compile(rf"[0-9a-f]{{{2 * _KEY_BYTES}}}\.[0-9]+\.[0-9a-f]+\.tmp")
_LOCK, _PATIENCE_S = "lock", 5.0
"""Name of the lock file, and how long to wait for the lock, which is held for milliseconds."""
_ABANDONED_S = 3600.0
"""Age at which a temporary file is taken to be left over from a dead process: writing one takes milliseconds."""
_LABEL_BYTES = 200
# O_NOFOLLOW: links are not followed. O_NONBLOCK: a pipe in place of an entry does not block. Windows has neither flag.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_WRITE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class _BadEntryError(Exception):
    """A file that has the name of an entry but is damaged or was not written by this module."""


@dataclass(frozen=True)
class Entry:
    """One object in the cache."""

    key: str
    label: str | None
    """A description; None if the file is damaged."""
    size: int
    """Bytes on disk."""
    last_used: float
    """Seconds since the epoch."""


_PROCESSES = 8
"""Number of processes that can write at the same time without exceeding the size limit."""
_ROOM: dict[tuple[str, int], int] = {}
"""Bytes that this process may still write before it checks the folder's size again, by folder and limit."""


class ObjectCache:
    """Machine code by key, in a folder that only this user can access. Safe for any number of threads and processes.

    Args:
        folder: where entries are; made when first needed. None for no cache.
        max_bytes: limit of the entries' total size. The least recently used entries are removed first.
        why_not: the reason if there is no folder.
    """

    def __init__(
        self, folder: Path | None, max_bytes: int = DEFAULT_MEGABYTES << 20, why_not: str = "switched off"
    ) -> None:
        self.folder, self.max_bytes, self._why_not = folder, max_bytes, why_not

    @staticmethod
    def from_environment() -> ObjectCache:
        """The cache that the environment variables select; by default `objects` in the platform's cache folder of
        robodyn."""
        setting = os.environ.get(FOLDER_VARIABLE)
        if setting is not None and setting.strip().lower() in ("", "off"):
            return ObjectCache(None, why_not=f"switched off by {FOLDER_VARIABLE}={setting}")
        try:
            if setting is not None:
                folder = Path(setting).expanduser().absolute()
            else:
                from platformdirs import user_cache_path

                folder = user_cache_path("robodyn") / "objects"
        except (OSError, RuntimeError) as error:
            return ObjectCache(None, why_not=f"no cache folder: {error}")
        if not folder.is_absolute():
            return ObjectCache(None, why_not=f"this user has no home folder; {FOLDER_VARIABLE} can name a cache folder")
        return ObjectCache(folder, _max_bytes())

    def problem(self) -> str | None:
        """The reason why the folder cannot be used, or None. A folder that does not exist yet is no problem."""
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
        """Store machine code under a key. `label`: a description for people who look at the cache."""
        text = _printable(label)
        header = _HEADER.pack(_MAGIC, _FORMAT, len(text), len(data), _checksum(key, text, data))
        size = len(header) + len(text) + len(data)
        folder = self._open(make_it=True) if size <= self.max_bytes else None
        if folder is None:
            return
        with folder:
            # The file is written under a temporary name and renamed, so that readers see a complete entry or none.
            temporary = f"{key}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
            try:
                _write_new(folder, temporary, header + text + data)
                folder.replace(_name(key), by=temporary)
            except (OSError, MemoryError):
                return
            finally:
                folder.remove(temporary)
            self._make_room(folder, _name(key), size)

    @contextmanager
    def alone(self, lock: str = _LOCK, patience_s: float = _PATIENCE_S) -> Iterator[None]:
        """A context in which this thread alone reads and rewrites an entry. Other processes and threads wait for at
        most `patience_s` seconds. Nobody waits if there is no folder or the system has no locks. `lock`: name of the
        lock file; locks on different files are independent."""
        descriptor = self._lock(lock) if fcntl is not None else None
        try:
            if descriptor is not None:
                _wait_for(descriptor, patience_s)
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _lock(self, name: str) -> int | None:
        """A descriptor of the lock file, or None if it cannot be opened or is not a plain file of this user."""
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
        """All entries, the most recently used first; empty if the folder cannot be used."""
        folder = self._open()
        if folder is None:
            return []
        with folder:
            return _entries(folder)

    def clear(self) -> list[Entry]:
        """Remove all entries and return them. Files that do not belong to the cache stay."""
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
        """The folder, or None if there is none or it must not be used. `make_it`: make a missing folder."""
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
        """Evict entries if necessary. The folder is listed only after this process has written its share of the free
        space: listing thousands of files takes longer than writing one."""
        place = (folder.path, self.max_bytes)
        room = _ROOM.get(place, 0) - written
        _ROOM[place] = room if room > 0 else (self.max_bytes - self._evict(folder, newest)) // _PROCESSES

    def _evict(self, folder: Folder, newest: str) -> int:
        """Remove the least recently used entries until the others fit, and temporary files of dead processes. Returns
        the bytes left."""
        files = sorted(_files(folder), key=lambda file: file[1].st_mtime_ns)
        total = sum(status.st_size for _, status in files)
        for name, status in files:
            abandoned = _TEMPORARY.fullmatch(name) and time.time() - status.st_mtime > _ABANDONED_S
            if abandoned or (total > self.max_bytes and name != newest and _ENTRY.fullmatch(name)):
                folder.remove(name)
                total -= status.st_size
        return total


def _max_bytes() -> int:
    """The size limit in bytes from the environment; the default if the variable is not a valid number."""
    try:
        megabytes = float(os.environ.get(SIZE_VARIABLE, DEFAULT_MEGABYTES))
    except ValueError:
        return DEFAULT_MEGABYTES << 20
    most = megabytes * (1 << 20)
    return int(most) if math.isfinite(most) and most >= 0 else DEFAULT_MEGABYTES << 20


def _name(key: str) -> str:
    return f"{key}.object"


def _files(folder: Folder) -> list[tuple[str, os.stat_result]]:
    """The cache's files, entries and temporary files."""
    return [(name, status) for name, status in folder.files() if _ENTRY.fullmatch(name) or _TEMPORARY.fullmatch(name)]


def _entries(folder: Folder) -> list[Entry]:
    entries = [
        Entry(match[1], _label(folder, name), status.st_size, status.st_mtime)
        for name, status in folder.files()
        if (match := _ENTRY.fullmatch(name))
    ]
    return sorted(entries, key=lambda entry: entry.last_used, reverse=True)


def _is_own_file(status: os.stat_result) -> bool:
    """Whether it is a plain file to which only this user can write. A second hard link, as backup programs make, is
    allowed: the file's mode applies to all its names."""
    if not stat.S_ISREG(status.st_mode):
        return False
    return not POSIX or (status.st_uid == os.geteuid() and not status.st_mode & OTHERS_WRITE)


def _file(folder: Folder, name: str) -> BinaryIO:
    """Open an entry's file without following links. Raises _BadEntryError unless it is a plain file to which only this
    user can write."""
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
    """Lock a file; give up after `patience_s` seconds, or at once if the disk has no locks."""
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
    """An entry's label, number of bytes of code, and checksum."""
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
    """A label in which unprintable characters are replaced."""
    text = "".join(character if character.isprintable() else "?" for character in label)
    return text.encode(errors="replace")[:_LABEL_BYTES].decode(errors="ignore").encode()


def _checksum(key: str, label: bytes, code: bytes) -> bytes:
    """Checksum of an entry, its key included: a file under the name of another key counts as damaged."""
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
