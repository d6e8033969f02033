"""The folder of machine code beside other users, none of whom can have this one run their code."""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import objects_folder
from other_users import CODE, KEY, OTHER, POISON

from robodyn.compile import cache_folder
from robodyn.compile.cache import FOLDER_VARIABLE, ObjectCache

grp, pwd = (pytest.importorskip(name, reason="owners and modes are those of POSIX") for name in ("grp", "pwd"))


@pytest.fixture(autouse=True)
def forget_groups():
    cache_folder._is_private.cache_clear()
    yield
    cache_folder._is_private.cache_clear()


def filled(folder, data=CODE):
    """A cache with an entry, whose folder and those above it are made for this user alone."""
    cache_folder.make(folder)
    made = ObjectCache(folder)
    made.put(KEY, data)
    assert made.get(KEY) == data
    return made


def refused(folder, *says):
    """Nothing is read, written, listed or removed, nobody waits, and the reason is known."""
    cache = ObjectCache(folder)
    before = sorted(Path(folder).parent.rglob("*"))
    for said in says:
        assert said in cache.problem()
    assert cache.get(KEY) is None
    cache.put(KEY, CODE)
    with cache.alone():
        assert cache.entries() == cache.clear() == []
    assert sorted(Path(folder).parent.rglob("*")) == before


def works(folder):
    cache = ObjectCache(folder)
    assert cache.problem() is None
    cache.put(KEY, CODE)
    assert cache.problem() is None
    assert cache.get(KEY) == CODE
    assert [entry.key for entry in cache.entries()] == [entry.key for entry in cache.clear()] == [KEY]
    with cache.alone():
        assert (Path(folder) / "lock").exists()


def disguise(monkeypatch, path, **fields):
    """Have the system say something else of what is at a path than it is."""
    lstat, wanted = os.lstat, str(path)

    def seen(place, **options):
        found = lstat(place, **options)
        if os.fspath(place) != wanted:
            return found
        return SimpleNamespace(**{name: getattr(found, name) for name in dir(found) if name[:3] == "st_"} | fields)

    monkeypatch.setattr("os.lstat", seen)


# Links and folders of others on the way.


@pytest.mark.parametrize("place", ["last", "above", "second"])
def test_a_link_of_another_user_is_refused(tmp_path, monkeypatch, place):
    filled(tmp_path / "real" / "objects")
    link, folder = tmp_path / "link", tmp_path / "link" / "objects"
    if place == "last":
        folder = link
        link.symlink_to("real/objects")
    elif place == "above":
        link.symlink_to(tmp_path / "real")
    else:
        folder, link = tmp_path / "own" / "objects", tmp_path / "link"
        link.symlink_to("real")
        (tmp_path / "own").symlink_to("link")
    assert ObjectCache(folder).get(KEY) == CODE
    disguise(monkeypatch, link, st_uid=os.geteuid() + 1)
    refused(folder, f"{link} is a symbolic link of user {os.geteuid() + 1}", f"this user, {os.geteuid()}, or of root")


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o702])
def test_a_folder_above_that_everybody_can_write_to_is_refused(tmp_path, mode):
    folder = tmp_path / "open" / "robodyn" / "objects"
    filled(folder)
    (tmp_path / "open").chmod(mode)
    refused(folder, f"{tmp_path / 'open'} has mode {mode:04o}", "sticky")
    (tmp_path / "open").chmod(mode | stat.S_ISVTX)
    works(folder)


def test_a_folder_that_is_to_be_made_below_an_open_one_is_refused(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    refused(tmp_path / "open" / "robodyn" / "objects", f"{tmp_path / 'open'} has mode 0777")


def test_a_folder_of_another_user_in_a_sticky_one_is_refused(tmp_path, monkeypatch):
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    folder = tmp_path / "sticky" / "robodyn" / "objects"
    filled(folder)
    disguise(monkeypatch, folder.parent, st_uid=os.geteuid() + 1)
    refused(folder, f"{folder.parent} belongs to user {os.geteuid() + 1}", f"of this user, {os.geteuid()}, or of root")


@pytest.mark.parametrize("name", ["", ".", "..", "objects"])
def test_what_is_behind_a_link_is_looked_at_too(tmp_path, name):
    open_one, private = tmp_path / "open", tmp_path / "private"
    filled(open_one / "robodyn" / "objects")
    private.mkdir(mode=0o700)
    target = {"": "robodyn/objects", ".": "./robodyn/./objects", "..": "../open/robodyn/objects", "objects": "robodyn"}
    (open_one / "link").symlink_to(target[name])
    (private / "link").symlink_to("../open/link")
    folder = private / "link" / ("objects" if name == "objects" else "")
    assert ObjectCache(folder).get(KEY) == CODE
    open_one.chmod(0o777)
    refused(folder, f"{open_one} has mode 0777")


def test_links_without_end_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    refused(tmp_path / "a" / "objects", os.strerror(errno.ELOOP))
    (tmp_path / "0").mkdir(mode=0o700)
    for number in range(50):
        (tmp_path / str(number + 1)).symlink_to(str(number))
    works(tmp_path / "39")
    refused(tmp_path / "50", os.strerror(errno.ELOOP))


# Groups.


@pytest.fixture
def groups(monkeypatch):
    """A system with this user, one more, and a group that has the name of this user."""
    known = SimpleNamespace(
        name="ada", members=[], users=[("ada", os.geteuid(), 7777), ("bob", os.geteuid() + 1, 8888)]
    )

    def user(name, number, group):
        return SimpleNamespace(pw_name=name, pw_uid=number, pw_gid=group)

    monkeypatch.setattr("grp.getgrgid", lambda group: SimpleNamespace(gr_name=known.name, gr_mem=known.members))
    monkeypatch.setattr("pwd.getpwuid", lambda number: next(user(*each) for each in known.users if each[1] == number))
    monkeypatch.setattr("pwd.getpwall", lambda: [user(*each) for each in known.users])
    return known


@pytest.fixture
def grouped(tmp_path, monkeypatch):
    """A folder below one that a group can write to."""
    above = tmp_path / "home"
    filled(above / "robodyn" / "objects")
    disguise(monkeypatch, above, st_mode=stat.S_IFDIR | 0o775, st_gid=7777)
    return above / "robodyn" / "objects"


def test_the_group_of_this_user_alone_may_write_above(groups, grouped):
    works(grouped)
    groups.members = ["ada"]
    cache_folder._is_private.cache_clear()
    works(grouped)


@pytest.mark.parametrize("change", ["name", "member", "user", "no group", "no user", "no list"])
def test_other_groups_may_not(groups, grouped, monkeypatch, change):
    def unknown(*_):
        raise KeyError

    {
        "name": lambda: setattr(groups, "name", "staff"),
        "member": lambda: groups.members.append("bob"),
        "user": lambda: groups.users.append(("eve", os.geteuid() + 2, 7777)),
        "no group": lambda: monkeypatch.setattr(grp, "getgrgid", unknown),
        "no user": lambda: monkeypatch.setattr(pwd, "getpwuid", unknown),
        "no list": lambda: monkeypatch.setitem(sys.modules, "grp", None),
    }[change]()
    refused(grouped, f"{grouped.parent.parent} has mode 0775, group 7777", "only this user and root can write to")


def test_an_access_control_list_is_no_private_group(groups, grouped):
    own, named, group, mask, others, nobody = 0x01, 0x02, 0x04, 0x10, 0x20, 2**32 - 1
    rows = (own, 7, nobody), (named, 7, OTHER), (group, 7, nobody), (mask, 7, nobody), (others, 5, nobody)
    listed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)
    try:
        os.setxattr(grouped.parent.parent, "system.posix_acl_access", listed)
    except (AttributeError, OSError) as error:
        pytest.skip(f"no such lists here: {error}")
    refused(grouped, "has mode 0775, group 7777")


# Exchanged while it is used.


@pytest.mark.parametrize("by", ["link", "folder"])
@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("action", ["get", "put", "clear", "entries"])
def test_a_folder_that_is_exchanged_does_no_harm(tmp_path, monkeypatch, action, call, by):
    """The folder gives way to another when the system is first, or next, asked for something in it."""
    cache, other = filled(tmp_path / "objects"), filled(tmp_path / "other", POISON)
    if by == "folder":
        other.folder.chmod(0o777)
    before, calls = sorted(path.name for path in other.folder.iterdir()), []

    def exchanging(real):
        def do(*arguments, **options):
            calls.append(real)
            if len(calls) == call:
                cache.folder.rename(tmp_path / "old")
                cache.folder.symlink_to("other") if by == "link" else other.folder.rename(cache.folder)
            return real(*arguments, **options)

        return do

    key = KEY[::-1] if action == "put" else KEY
    with monkeypatch.context() as patch:
        for name in ("open", "scandir"):
            patch.setattr(f"os.{name}", exchanging(getattr(os, name)))
        answer = getattr(cache, action)(*{"get": [key], "put": [key, CODE]}.get(action, []))
    assert len(calls) >= call
    if action == "get":
        assert answer == (CODE if call == 2 else None)
    if action == "entries":
        assert len(answer) == call - 1
    assert sorted(path.name for path in (cache.folder if by == "folder" else other.folder).iterdir()) == before


# Files in the folder.


def test_an_entry_with_two_names_is_one_still(tmp_path):
    cache = filled(tmp_path / "objects")
    os.link(cache.folder / f"{KEY}.object", tmp_path / "copy")
    assert cache.get(KEY) == CODE


@pytest.mark.parametrize("kind", ["pipe", "read pipe", "link", "folder", "writable", "another user's"])
def test_no_lock_is_on_what_is_no_file_of_this_user(tmp_path, monkeypatch, kind):
    cache, locked = filled(tmp_path / "objects"), []
    monkeypatch.setattr("fcntl.flock", lambda descriptor, operation: locked.append(operation))
    with cache.alone():
        assert len(locked) == 1
    place = cache.folder / "lock"
    if kind == "writable":
        place.chmod(0o622)
    elif kind == "another user's":
        fstat = os.fstat

        def of_another(descriptor):
            found = fstat(descriptor)
            return found if stat.S_ISDIR(found.st_mode) else os.stat_result((*found[:4], found.st_uid + 1, *found[5:]))

        monkeypatch.setattr("os.fstat", of_another)
    else:
        place.unlink()
        make = {"link": lambda: place.symlink_to("elsewhere"), "folder": place.mkdir}
        make.get(kind, lambda: os.mkfifo(place))()
    reader = os.open(place, os.O_RDONLY | os.O_NONBLOCK) if kind == "read pipe" else None
    with cache.alone():
        assert len(locked) == 1
    assert not (cache.folder / "elsewhere").exists()
    if reader is not None:
        os.close(reader)


def test_nobody_waits_on_a_disk_without_locks(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    def wait(_):
        raise AssertionError("waited")

    monkeypatch.setattr("fcntl.flock", none)
    monkeypatch.setattr("time.sleep", wait)
    with ObjectCache(tmp_path / "objects").alone():
        pass


# Ordinary places.


def test_the_default_folder(tmp_path, monkeypatch):
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir(mode=0o755)
    folder = ObjectCache.from_environment().folder
    assert folder.is_relative_to(tmp_path / "home")
    works(folder)


def test_a_home_that_is_a_link_of_this_user(tmp_path, monkeypatch):
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "disk").mkdir(mode=0o755)
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    works(ObjectCache.from_environment().folder)
    assert list((tmp_path / "disk").rglob("lock"))


def test_a_folder_of_this_user_in_the_systems_temporary_one(shared):
    shared.chmod(0o1777)
    works(shared / "mine")
    works(shared / "deeper" / "mine")


def test_links_of_root(shared, monkeypatch):
    """As on macOS, where /var is a link to /private/var."""
    (shared / "private" / "var").mkdir(parents=True, mode=0o755)
    (shared / "var").symlink_to("private/var")
    disguise(monkeypatch, shared / "var", st_uid=0)
    works(shared / "var" / "mine")
    monkeypatch.undo()
    assert cache_folder.safe_path(shared / "var" / "mine") == str(shared.resolve() / "private" / "var" / "mine")


def test_relative_paths_and_dots(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    works(Path("objects"))
    works(Path("a/b/objects"))
    works(Path("a/../a/./b/../other"))
    works(tmp_path / ".." / tmp_path.name / "more")
    (tmp_path / "link").symlink_to("a/b")
    works(Path("link/../behind"))
    assert (tmp_path / "a" / "behind" / "lock").exists()
    assert cache_folder.safe_path(Path("/..") / tmp_path.relative_to("/") / "objects") == str(tmp_path / "objects")


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
def test_folders_that_are_made_are_of_this_user_alone(tmp_path, mask):
    before = os.umask(mask)
    try:
        works(tmp_path / "new" / "robodyn" / "objects")
    finally:
        os.umask(before)
    for made in (tmp_path / "new", tmp_path / "new" / "robodyn", tmp_path / "new" / "robodyn" / "objects"):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_tests_keep_their_code_where_it_is_safe(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir(mode=0o700)
    (tmp_path / "checkout").mkdir()
    kept = tmp_path / "checkout" / "objects"
    assert objects_folder(kept) == kept
    (tmp_path / "checkout").chmod(0o777)
    fallback = objects_folder(kept)
    assert fallback.parent == tmp_path / "temporary"
    assert str(os.getuid()) in fallback.name
    assert objects_folder(kept) == objects_folder(None) == fallback
    works(fallback)


@pytest.mark.parametrize(
    ("users", "number"),
    [
        ("         0          0 4294967295\n", None),
        ("      1000          0          1\n", 65534),
        ("         0       1000          1\n         1     100000      65536\n", None),
        ("         0       1000          1\n         1     100000      65533\n", 65534),
        ("nonsense", None),
        ("", None),
    ],
)
def test_users_outside_of_a_container_are_known(users, number, monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda path: "65534\n" if path.name == "overflowuid" else users)
    cache_folder._outside.cache_clear()
    try:
        assert cache_folder._outside() == number
    finally:
        cache_folder._outside.cache_clear()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give folders away")
def test_folders_of_a_container_may_lie_below_those_of_its_machine(shared, monkeypatch):
    above = shared / "home"
    cache = filled(above / "cache")
    os.chown(above, OTHER, OTHER)
    assert f"belongs to user {OTHER}" in cache.problem()
    monkeypatch.setattr(cache_folder, "_outside", lambda: OTHER)
    assert cache.problem() is None and cache.get(KEY) == CODE
    above.chmod(0o777)
    assert "has mode 0777" in cache.problem()
