"""A folder that no other user can put files in, and its files by name.

A process runs the machine code that it loads: another user who could place a file in the cache could run code as this
one. So every component of the folder's path is looked at, from the root down. Where each belongs to this user or to
root, and nobody else can rename or replace the next one, the whole path stays as it was found. Files are then reached
through a descriptor of the folder, not through its path. On Windows a user's folder is as safe as the system made it.
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
"""Symbolic links on one path; as many as Linux follows."""
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
"""Descriptors are not inherited by other programs in any case (PEP 446)."""


class UnsafeFolderError(OSError):
    """A folder that must not be used: the part of its path, what is wrong with that, and what is wanted."""


class Folder:
    """A folder that was found to be safe, by a descriptor: names are of files in it, whatever becomes of its path.

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
        """A descriptor of a file; new ones are readable by this user alone.

        Raises:
            OSError: the system's.
        """
        return os.open(self._place(name), flags, 0o600, dir_fd=self.descriptor)

    def replace(self, name: str, by: str) -> None:
        """Give the file `by` another name, that of a file which goes if there is one.

        Raises:
            OSError: the system's.
        """
        os.replace(self._place(by), self._place(name), src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def remove(self, name: str) -> bool:
        """Whether a file was there and is gone."""
        try:
            os.unlink(self._place(name), dir_fd=self.descriptor)
        except (OSError, ValueError):
            return False
        return True

    def touch(self, descriptor: int, name: str) -> None:
        """Note that an open file is used now. A disk that cannot be written to still serves what it has."""
        with suppress(OSError):
            os.utime(descriptor if os.utime in os.supports_fd else self._place(name))

    def files(self) -> list[tuple[str, os.stat_result]]:
        """Names and states of what is in the folder, links not followed; empty where it cannot be listed."""
        found = []
        with suppress(OSError), os.scandir(self.path if self.descriptor is None else self.descriptor) as listing:
            for each in listing:
                with suppress(OSError):
                    found.append((each.name, each.stat(follow_symlinks=False)))
        return found

    def _place(self, name: str) -> str:
        return name if self.descriptor is not None else os.path.join(self.path, name)  # noqa: PTH118 - a tenth of the time


def open_folder(path: Path) -> Folder:
    """A folder for as long as it is used, checked anew each time: a descriptor that is held would be shared by forks.

    Raises:
        UnsafeFolderError: it must not be used.
        OSError: there is no such folder, or no descriptor is left.
        ValueError: no folder has such a path.
    """
    found = safe_path(path)
    if not POSIX:
        return Folder(found, None)
    descriptor = os.open(found, _FOLDER)
    try:
        _check_folder(found, os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return Folder(found, descriptor)


def make(path: Path) -> None:
    """Make a folder and all above it that are missing, for this user alone; none where a link leads nowhere.

    Raises:
        OSError: the system's.
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
    """The path of a folder without symbolic links, after each of its components was found to be safe.

    Raises:
        UnsafeFolderError: it must not be used.
        OSError: there is no such folder, or it cannot be looked at.
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
        beyond = at.rpartition("/")[0] if name == ".." else f"{at}/{name}"
        found = os.lstat(beyond or "/")
        if not stat.S_ISLNK(found.st_mode):
            at, status = beyond, found
            continue
        if found.st_uid not in trusted:
            wanted = f"wanted one of this user, {user}, or of root"
            raise UnsafeFolderError(f"{beyond} is a symbolic link of user {found.st_uid}; {wanted}")
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = str(Path(beyond).readlink())
        ahead += _names(target)
        if target.startswith("/"):
            at, status = "", os.lstat("/")
    _check_folder(at or "/", status)
    return at or "/"


def _names(path: str) -> list[str]:
    """The components of a path, the first one last."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _check_above(path: str, found: os.stat_result, user: int, trusted: Container[int | None]) -> None:
    """Raise UnsafeFolderError where another user could put something else in the place of what is in a folder."""
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
    """Raise UnsafeFolderError unless the folder itself is this user's, and nobody else can write to it."""
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
    """The number under which a container sees all users that it does not have, root of the machine among them; None
    where there is no such number, as outside of containers. Folders above a home often are root's of the machine."""
    try:
        number = int(Path("/proc/sys/kernel/overflowuid").read_text())
        lines = Path("/proc/self/uid_map").read_text().splitlines()
        here = [range(first, first + n) for first, _, n in (map(int, line.split()) for line in lines)]
    except (OSError, ValueError):
        return None
    return None if not here or any(number in users for users in here) else number


@cache
def _is_private(group: int, user: int) -> bool:
    """Whether nobody but a user is in a group: many systems give each user such a group, and let it write."""
    try:
        import grp
        import pwd

        found, own = grp.getgrgid(group), pwd.getpwuid(user)
        return (
            found.gr_name == own.pw_name
            and set(found.gr_mem) <= {own.pw_name}
            and all(each.pw_uid == user for each in pwd.getpwall() if each.pw_gid == group)
        )
    except (ImportError, KeyError, OSError):
        return False


def _has_list(path: str) -> bool:
    """Whether a folder has an access control list: the bits of its group are then those of others that it names."""
    if not hasattr(os, "getxattr"):
        return False
    try:
        os.getxattr(path, "system.posix_acl_access", follow_symlinks=False)
    except OSError as error:
        return error.errno not in (errno.ENODATA, errno.ENOTSUP)
    return True
