"""A folder to which no other user can add files, and access to its files by name.

A process executes the machine code that it loads. Another user who could put a file into the cache could therefore run
code as this user. So every component of the folder's path is checked, from the root down. If each belongs to this user
or to root, and nobody else can rename or replace the next component, the whole path stays as it was checked. Files are
then opened relative to a descriptor of the folder instead of its path. On Windows the system's protection of the user's
folder is trusted.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Container
from contextlib import suppress
from functools import cache
from pathlib import Path

POSIX = os.name == "posix"
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ROOT = 0
_MOST_LINKS = 40
"""Limit of symbolic links on one path, the same as Linux has."""
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
"""Flags for opening the folder. Other programs never inherit Python's descriptors (PEP 446)."""


class UnsafeFolderError(OSError):
    """A folder that must not be used. The message names the part of its path, the problem, and what is wanted."""


class Folder:
    """A folder that was checked, held by a descriptor: files are found in it even if its path changes.

    `path`: its path without symbolic links. `descriptor`: None on Windows, where names are joined to the path.
    """

    def __init__(self, path: str, descriptor: int | None) -> None:
        self.path, self.descriptor = path, descriptor

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)

    def open(self, name: str, flags: int) -> int:
        """A descriptor of a file. New files are readable by this user only.

        Raises:
            OSError: from the system.
        """
        return os.open(self._place(name), flags, 0o600, dir_fd=self.descriptor)

    def replace(self, name: str, by: str) -> None:
        """Rename the file `by` to `name`, and replace a file of that name.

        Raises:
            OSError: from the system.
        """
        os.replace(self._place(by), self._place(name), src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def remove(self, name: str) -> bool:
        """Remove a file. Returns False if there is none or it cannot be removed."""
        try:
            os.unlink(self._place(name), dir_fd=self.descriptor)
        except (OSError, ValueError):
            return False
        return True

    def touch(self, descriptor: int, name: str) -> None:
        """Set the time at which an open file was last used. A read-only disk is not an error."""
        with suppress(OSError):
            os.utime(descriptor if os.utime in os.supports_fd else self._place(name))

    def files(self) -> list[tuple[str, os.stat_result]]:
        """Names and status of the folder's entries; links are not followed. Empty if the folder cannot be listed."""
        entries = []
        with suppress(OSError), os.scandir(self.path if self.descriptor is None else self.descriptor) as listing:
            for each in listing:
                with suppress(OSError):
                    entries.append((each.name, each.stat(follow_symlinks=False)))
        return entries

    def _place(self, name: str) -> str:
        return name if self.descriptor is not None else os.path.join(self.path, name)  # noqa: PTH118 - a tenth of the time


def open_folder(path: Path) -> Folder:
    """Check and open a folder. It is opened anew for each use: forked processes would share a descriptor kept open.

    Raises:
        UnsafeFolderError: the folder must not be used.
        OSError: there is no such folder, or no descriptor is left.
        ValueError: no folder has such a path.
    """
    checked = safe_path(path)
    if not POSIX:
        return Folder(checked, None)
    descriptor = os.open(checked, _FOLDER)
    try:
        _check_folder(checked, os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return Folder(checked, descriptor)


def make(path: Path) -> None:
    """Make a folder and its missing parents, accessible by this user only. Nothing is made if the path ends at a broken
    link.

    Raises:
        OSError: from the system.
        ValueError: no folder has such a path.
    """
    missing = []
    for each in (path, *path.parents):
        if os.path.lexists(each):
            break
        missing.append(each)
    for each in reversed(missing):
        with suppress(FileExistsError):  # another process was faster
            each.mkdir(mode=0o700)


def safe_path(path: Path) -> str:
    """The path of a folder without symbolic links, after a check of each component.

    Raises:
        UnsafeFolderError: the folder must not be used.
        OSError: there is no such folder, or its status cannot be read.
        ValueError: no folder has such a path.
    """
    if not POSIX:
        _check_folder(str(path), path.stat())
        return str(path)
    user, links, ahead = os.geteuid(), 0, _names(str(path.absolute()))
    trusted = {_ROOT, user, _outside()}
    at, status = "", os.lstat("/")  # no slash at its end
    while ahead:
        _check_above(at, status, user, trusted)
        name = ahead.pop()
        below = at.rpartition("/")[0] if name == ".." else f"{at}/{name}"
        child = os.lstat(below or "/")
        if not stat.S_ISLNK(child.st_mode):
            at, status = below, child
            continue
        if child.st_uid not in trusted:
            wanted = f"wanted one of this user, {user}, or of root"
            raise UnsafeFolderError(f"{below} is a symbolic link of user {child.st_uid}; {wanted}")
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = str(Path(below).readlink())
        ahead += _names(target)
        if target.startswith("/"):
            at, status = "", os.lstat("/")
    _check_folder(at or "/", status)
    return at or "/"


def _names(path: str) -> list[str]:
    """The components of a path, in reverse order."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _check_above(path: str, found: os.stat_result, user: int, trusted: Container[int | None]) -> None:
    """Raise UnsafeFolderError if another user could replace the entries of a folder."""
    mode = found.st_mode
    if not stat.S_ISDIR(mode):
        raise UnsafeFolderError(f"{path} is not a folder")
    if found.st_uid not in trusted:
        wanted = f"wanted a folder of this user, {user}, or of root"
        raise UnsafeFolderError(f"{path or '/'} belongs to user {found.st_uid}; {wanted}")
    # In a sticky folder, such as /tmp, only the owner of a file can rename or remove it.
    if not mode & OTHERS_WRITE or mode & stat.S_ISVTX:
        return
    if mode & stat.S_IWOTH or not _is_private(found.st_gid, user) or _has_list(path):
        wanted = "wanted a folder that only this user and root can write to, or one with the sticky bit"
        raise UnsafeFolderError(f"{path or '/'} has mode {stat.S_IMODE(mode):04o}, group {found.st_gid}; {wanted}")


def _check_folder(path: str, found: os.stat_result) -> None:
    """Raise UnsafeFolderError unless the folder itself belongs to this user and nobody else can write to it."""
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeFolderError(f"{path} is not a folder")
    if not POSIX:
        return
    if found.st_uid != os.geteuid():
        wanted = f"wanted a folder of this user, {os.geteuid()}"
        raise UnsafeFolderError(f"{path} belongs to user {found.st_uid}; {wanted}")
    if found.st_mode & OTHERS_WRITE:
        mode = stat.S_IMODE(found.st_mode)
        raise UnsafeFolderError(f"{path} has mode {mode:04o}; wanted a folder that nobody but this user can write to")


@cache
def _outside() -> int | None:
    """The user id that stands, inside a container, for all users outside it, the machine's root included. None outside
    of containers. The folders above a container's home often belong to the machine's root."""
    try:
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text())
        lines = Path("/proc/self/uid_map").read_text().splitlines()
        ranges = [range(first, first + n) for first, _, n in (map(int, line.split()) for line in lines)]
    except (OSError, ValueError):
        return None
    return None if not ranges or any(overflow in users for users in ranges) else overflow


@cache
def _is_private(group: int, user: int) -> bool:
    """Whether a group has no member but this user. Many systems give each user a private group with write access."""
    try:
        import grp
        import pwd

        entry, own = grp.getgrgid(group), pwd.getpwuid(user)
        return (
            entry.gr_name == own.pw_name
            and set(entry.gr_mem) <= {own.pw_name}
            and all(each.pw_uid == user for each in pwd.getpwall() if each.pw_gid == group)
        )
    except (ImportError, KeyError, OSError):
        return False


def _has_list(path: str) -> bool:
    """Whether a folder has an access control list. The group bits of its mode are then the mask of that list."""
    if not hasattr(os, "getxattr"):
        return False
    try:
        os.getxattr(path, "system.posix_acl_access", follow_symlinks=False)
    except OSError as error:
        return error.errno not in (errno.ENODATA, errno.ENOTSUP)
    return True
