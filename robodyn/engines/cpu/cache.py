"""Compiled machine code kept on disk, so that the next process need not compile it again.

Machine code that a process loads is code that it runs. So a folder is used only if it belongs to this user and nobody
else can write to it, and so is each file in it. Nothing here raises: what cannot be read is a miss, and what cannot be
written is compiled again next time.
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
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

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
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# A link is not followed, and a pipe in the place of an entry must not make the reader wait. Windows has neither flag.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_WRITE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class _BadEntryError(Exception):
    """A file in the place of an entry that is none of ours, or damaged."""


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
            found = os.stat(self.folder)  # noqa: PTH116 - a third of the time of Path.stat, before every read
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            return f"{self.folder}: {getattr(error, 'strerror', None) or error}"
        if not stat.S_ISDIR(found.st_mode):
            return f"{self.folder} is not a folder"
        if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
            return f"{self.folder} belongs to user {found.st_uid}; wanted a folder of this user, {os.geteuid()}"
        if os.name == "posix" and found.st_mode & _OTHERS_WRITE:
            mode = stat.S_IMODE(found.st_mode)
            return f"{self.folder} has mode {mode:04o}; wanted a folder that nobody but this user can write to"
        return None

    # Entries.

    def get(self, key: str) -> bytes | None:
        """The machine code under a key, or None. A damaged entry is removed."""
        if self.folder is None or self.problem() is not None:
            return None
        path = self._path(key)
        try:
            with _opened(path) as file:
                code = _read_code(file, key)
                with suppress(OSError):  # a read-only disk still serves what it has
                    os.utime(file.fileno() if os.utime in os.supports_fd else path)
                return code
        except _BadEntryError:
            _remove(path)
        except (OSError, ValueError, MemoryError):
            pass
        return None

    def put(self, key: str, data: bytes, label: str = "") -> None:
        """Keep machine code under a key. `label` says what it is to people who look at the cache."""
        words = _printable(label)
        checksum = _checksum(key, words, data)
        header = _HEADER.pack(_MAGIC, _FORMAT, len(words), len(data), checksum)
        if len(header) + len(words) + len(data) > self.max_bytes or not self._prepare():
            return
        path = self._path(key)
        # Written under a name of its own and renamed: readers see all of an entry or nothing.
        temporary = path.with_name(f"{key}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
        try:
            _write_new(temporary, header + words + data)
            temporary.replace(path)
        except OSError:
            return
        finally:
            _remove(temporary)
        self._make_room(path, len(header) + len(words) + len(data))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Around reading an entry and writing it anew: other processes and threads that do so wait, some seconds at
        most; nobody waits where there is no folder, or the system has no locks."""
        descriptor = self._locked() if fcntl is not None and self._prepare() else None
        try:
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _locked(self) -> int | None:
        assert self.folder is not None and fcntl is not None
        try:
            descriptor = os.open(self.folder / _LOCK, _WRITE, 0o600)
        except OSError:
            return None
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(_PATIENCE_S / 1000)
        return descriptor

    def entries(self) -> list[Entry]:
        """Everything in the cache, the most recently used first; nothing if the folder cannot be used."""
        if self.problem() is not None:
            return []
        found = [
            Entry(match[1], _label(path), status.st_size, status.st_mtime)
            for path, status in self._files()
            if (match := _ENTRY.fullmatch(path.name))
        ]
        return sorted(found, key=lambda entry: entry.last_used, reverse=True)

    def clear(self) -> list[Entry]:
        """Remove everything, and return what was removed. Files that are not the cache's are left alone."""
        removed = [entry for entry in self.entries() if _remove(self._path(entry.key))]
        if self.problem() is None:
            for path, _ in self._files():
                if _TEMPORARY.fullmatch(path.name):
                    _remove(path)
        return removed

    # Files.

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{key}.object"

    def _prepare(self) -> bool:
        """Make the folder if it is missing; False where there is one that must not be used."""
        if self.folder is None:
            return False
        with suppress(OSError, ValueError):
            if not self.folder.exists():
                self.folder.parent.mkdir(parents=True, exist_ok=True)
                self.folder.mkdir(mode=0o700, exist_ok=True)
        return self.problem() is None

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Files of the cache, entries and temporary ones."""
        if self.folder is None:
            return
        with suppress(OSError), os.scandir(self.folder) as listing:
            for each in listing:
                if _ENTRY.fullmatch(each.name) or _TEMPORARY.fullmatch(each.name):
                    with suppress(OSError):
                        yield Path(each.path), each.stat(follow_symlinks=False)

    def _make_room(self, newest: Path, written: int) -> None:
        """Evict, but look at the folder only once a part of the room that was found is used up: there may be thousands
        of files, and looking at them all takes longer than writing one."""
        assert self.folder is not None
        place = (str(self.folder), self.max_bytes)
        room = _ROOM.get(place, 0) - written
        _ROOM[place] = room if room > 0 else (self.max_bytes - self._evict(newest)) // _PROCESSES

    def _evict(self, newest: Path) -> int:
        """Remove what was not used for longest until the rest is small enough, and what dead processes left; the bytes
        that are left."""
        files = sorted(self._files(), key=lambda file: file[1].st_mtime_ns)
        total = sum(status.st_size for _, status in files)
        for path, status in files:
            abandoned = _TEMPORARY.fullmatch(path.name) and time.time() - status.st_mtime > _ABANDONED_S
            if abandoned or (total > self.max_bytes and path != newest and _ENTRY.fullmatch(path.name)):
                _remove(path)
                total -= status.st_size
        return total


def _max_bytes() -> int:
    """The limit that the environment asks for; the default where it is no number."""
    try:
        megabytes = float(os.environ.get(SIZE_VARIABLE, DEFAULT_MEGABYTES))
    except ValueError:
        return DEFAULT_MEGABYTES << 20
    return int(megabytes * (1 << 20)) if math.isfinite(megabytes) and megabytes >= 0 else DEFAULT_MEGABYTES << 20


def _opened(path: Path) -> BinaryIO:
    """An entry's file, opened without following links, if it is a plain file that this user alone can write to."""
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _BadEntryError from None
        raise
    status = os.fstat(descriptor)
    own = not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE)
    if not own or not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise _BadEntryError
    return os.fdopen(descriptor, "rb")


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


def _label(path: Path) -> str | None:
    try:
        with _opened(path) as file:
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


def _write_new(path: Path, content: bytes) -> None:
    descriptor = os.open(path, _WRITE_NEW, 0o600)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
    finally:
        os.close(descriptor)


def _remove(path: Path) -> bool:
    """Whether the file was there and is gone."""
    try:
        path.unlink()
    except (OSError, ValueError):
        return False
    return True
