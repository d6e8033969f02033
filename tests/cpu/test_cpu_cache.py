"""The cache of machine code: what it keeps, and everything that may be wrong with a disk."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from robodyn.compile import cache as module
from robodyn.compile.cache import FOLDER_VARIABLE, SIZE_VARIABLE, ObjectCache

CODE = bytes(range(256)) * 400
POSIX = pytest.mark.skipif(os.name != "posix", reason="owners and modes are those of POSIX")


def _permissions_hold():
    with tempfile.NamedTemporaryFile() as file:
        module.Path(file.name).chmod(0)
        return not os.access(file.name, os.R_OK)


PERMISSIONS = pytest.mark.skipif(not _permissions_hold(), reason="this user may do everything")


def key(name):
    return hashlib.blake2b(name.encode(), digest_size=20).hexdigest()


def file_of(cache, name):
    return cache.folder / f"{key(name)}.object"


@pytest.fixture
def cache(tmp_path):
    """A cache with one entry, "a"."""
    made = ObjectCache(tmp_path / "robodyn" / "objects")
    made.put(key("a"), CODE, "arm7 aba_q_qd_tau float64 avx512")
    return made


# What it is for.


def test_what_was_put_is_there_in_every_process(cache):
    assert cache.get(key("a")) == CODE
    assert ObjectCache(cache.folder).get(key("a")) == CODE
    assert cache.get(key("b")) is None
    cache.put(key("a"), b"other", "")
    assert cache.get(key("a")) == b"other"
    cache.put(key("empty"), b"")
    assert cache.get(key("empty")) == b""


@POSIX
def test_folder_and_files_are_of_this_user_alone(cache):
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert file_of(cache, "a").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in cache.folder.iterdir()] == [f"{key('a')}.object"]


def test_entries_say_what_they_are_and_when_they_were_used(cache):
    cache.put(key("b"), b"b", "hand\x1b[31m\n" + "é" * 200)
    os.utime(file_of(cache, "b"), (1e9, 1e9))
    first, second = cache.entries()
    assert (first.key, first.label) == (key("a"), "arm7 aba_q_qd_tau float64 avx512")
    assert len(CODE) < first.size < len(CODE) + 200
    assert second.last_used == 1e9
    assert second.label.startswith("hand?[31m?éé")
    assert len(second.label.encode()) <= 200
    assert cache.get(key("b")) == b"b"
    assert abs(cache.entries()[0].last_used - time.time()) < 60
    assert cache.entries()[0].key == key("b")


def test_clear_removes_entries_and_temporary_files_and_nothing_else(cache):
    cache.put(key("b"), b"b")
    temporary = cache.folder / f"{key('c')}.77.0a1b2c3d.tmp"
    for other in (temporary, cache.folder / "thesis.tex", cache.folder / "x.object"):
        other.write_text("text")
    assert sorted(entry.key for entry in cache.clear()) == sorted([key("a"), key("b")])
    assert sorted(path.name for path in cache.folder.iterdir()) == ["thesis.tex", "x.object"]
    assert cache.entries() == cache.clear() == []


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    cache = ObjectCache(tmp_path / "objects", max_bytes=4500)
    for age, name in enumerate("abcd"):
        cache.put(key(name), bytes(1000))
        os.utime(file_of(cache, name), (1e9 - age, 1e9 - age))
    assert cache.get(key("d")) is not None
    cache.put(key("e"), bytes(1000))
    assert {name for name in "abcde" if cache.get(key(name)) is not None} == set("abde")
    cache.put(key("huge"), bytes(4500))
    assert {name for name in "abde" if cache.get(key(name)) is not None} == set("abde")
    assert cache.get(key("huge")) is None


def test_files_of_dead_writers_are_removed_when_a_process_first_writes(cache, monkeypatch):
    monkeypatch.setattr(module, "_ROOM", {})
    dead, alive = (cache.folder / f"{key(name)}.77.0a1b2c3d.tmp" for name in ("dead", "alive"))
    for path in (dead, alive):
        path.write_bytes(b"half")
    os.utime(dead, (1e9, 1e9))
    cache.put(key("b"), b"b")
    assert not dead.exists()
    assert alive.exists()


def test_the_folder_is_not_looked_at_for_every_file(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(ObjectCache, "_evict", lambda self, folder, newest: looks.append(newest) or 0)
    cache = ObjectCache(tmp_path / "objects", max_bytes=1 << 20)
    for number in range(100):
        cache.put(key(str(number)), bytes(5000))
    assert 1 < len(looks) < 10


# Damaged entries.


DAMAGE = {
    "nothing left": lambda content: b"",
    "header cut": lambda content: content[:20],
    "end cut": lambda content: content[:-1],
    "one bit": lambda content: content[:-100] + bytes([content[-100] ^ 1]) + content[-99:],
    "label": lambda content: content.replace(b"arm7", b"arm6"),
    "longer": lambda content: content + b"\0",
    "magic": lambda content: b"R" + content[1:],
    "format": lambda content: content[:8] + b"\xff" + content[9:],
    "lengths": lambda content: content[:12] + b"\xff" * 12 + content[24:],
    "zeros": lambda content: bytes(len(content)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_entry_is_a_miss_and_removed(cache, damage):
    path = file_of(cache, "a")
    path.write_bytes(damage(path.read_bytes()))
    assert len(cache.entries()) == 1
    assert cache.get(key("a")) is None
    assert not path.exists()
    cache.put(key("a"), CODE)
    assert cache.get(key("a")) == CODE


def test_an_entry_under_another_name_is_a_miss(cache):
    file_of(cache, "a").rename(file_of(cache, "b"))
    assert cache.get(key("b")) is None


@POSIX
@pytest.mark.parametrize("kind", ["symlink", "dangling", "loop", "pipe", "folder", "writable"])
def test_what_is_no_file_of_ours_is_a_miss(cache, tmp_path, kind):
    path, elsewhere = file_of(cache, "a"), tmp_path / "elsewhere"
    if kind == "writable":
        path.chmod(0o620)
    else:
        path.rename(elsewhere)
        {
            "symlink": lambda: path.symlink_to(elsewhere),
            "dangling": lambda: path.symlink_to(tmp_path / "nothing"),
            "loop": lambda: path.symlink_to(path),
            "pipe": lambda: os.mkfifo(path),
            "folder": path.mkdir,
        }[kind]()
    assert all(entry.label is None for entry in cache.entries())
    assert cache.get(key("a")) is None
    if kind != "folder":
        assert not os.path.lexists(path)
        cache.put(key("a"), CODE)
        assert cache.get(key("a")) == CODE
    else:
        cache.put(key("a"), CODE)
        assert cache.get(key("a")) is None
    cache.clear()
    assert kind == "writable" or elsewhere.read_bytes().endswith(CODE)


# Disks.


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["write", "open", "replace"])
def test_a_full_or_failing_disk_is_harmless(cache, monkeypatch, number, call):
    def fail(*arguments, **options):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(f"os.{call}", fail)
        cache.put(key("b"), CODE)
        if call != "open":
            assert cache.get(key("a")) == CODE
    assert cache.get(key("b")) is None
    assert cache.get(key("a")) == CODE
    assert [path.name for path in cache.folder.iterdir()] == [f"{key('a')}.object"]


def test_a_disk_that_takes_less_than_it_is_given(cache, monkeypatch):
    write = os.write
    monkeypatch.setattr("os.write", lambda descriptor, data: write(descriptor, data[:1000]))
    cache.put(key("b"), CODE)
    assert cache.get(key("b")) == CODE


def test_a_disk_on_which_nothing_can_be_changed(cache, monkeypatch):
    def fail(*arguments, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    file_of(cache, "a").with_name(f"{key('bad')}.object").write_bytes(b"bad")
    for name in ("utime", "write", "unlink", "mkdir", "replace"):
        monkeypatch.setattr(f"os.{name}", fail)
    assert cache.get(key("a")) == CODE
    assert cache.get(key("bad")) is None
    assert cache.clear() == []


def test_a_folder_that_cannot_be_listed(cache, monkeypatch):
    def fail(*arguments, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("os.scandir", fail)
    assert cache.entries() == cache.clear() == []
    cache.put(key("b"), CODE)
    assert cache.get(key("b")) == CODE


def harmless(cache, says):
    """Nothing is kept, found, listed or removed, and the reason is known."""
    cache.put(key("a"), CODE)
    assert cache.get(key("a")) is None
    assert cache.entries() == cache.clear() == []
    if says is None:
        assert cache.problem() is None
    else:
        assert says in cache.problem()


def test_a_folder_that_is_a_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("text")
    harmless(ObjectCache(path), "is not a folder")
    harmless(ObjectCache(path / "objects"), f"{path} is not a folder")
    assert path.read_text() == "text"


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("pathlib.Path.mkdir", fail)
    harmless(ObjectCache(tmp_path / "a" / "b"), None)


@POSIX
def test_a_folder_that_is_a_dangling_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    harmless(ObjectCache(tmp_path / "link"), None)
    assert not (tmp_path / "nothing").exists()


@POSIX
def test_a_folder_may_be_a_link_to_one_of_ours(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    cache = ObjectCache(tmp_path / "link")
    cache.put(key("a"), CODE)
    assert cache.get(key("a")) == CODE


def test_a_path_that_no_disk_has():
    harmless(ObjectCache(module.Path("nul\0nul")), "null")
    harmless(ObjectCache(module.Path("/" + "x" * 5000)), "too long")


@POSIX
@PERMISSIONS
@pytest.mark.parametrize("mode", [0o000, 0o500, 0o400, 0o300])
def test_a_folder_without_permissions(cache, mode):
    cache.folder.chmod(mode)
    try:
        cache.put(key("b"), CODE)
        assert cache.get(key("a")) in (None, CODE)
        assert cache.get(key("b")) in (None, CODE)
        cache.entries()
        cache.clear()
    finally:
        cache.folder.chmod(0o700)


@POSIX
@PERMISSIONS
def test_a_file_without_permissions(cache):
    file_of(cache, "a").chmod(0)
    assert cache.get(key("a")) is None
    assert [entry.label for entry in cache.entries()] == [None]
    cache.put(key("a"), CODE)
    assert cache.get(key("a")) == CODE


# Folders that others could put code in.


@POSIX
@pytest.mark.parametrize("mode", [0o770, 0o720, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused(cache, mode):
    cache.folder.chmod(mode)
    harmless(cache, f"mode {mode:04o}")
    assert file_of(cache, "a").exists()
    cache.folder.chmod(0o755)
    assert cache.get(key("a")) == CODE


@POSIX
def test_a_folder_of_another_user_is_refused(cache, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 123456)
    harmless(cache, "belongs to user")


@POSIX
def test_a_file_of_another_user_is_a_miss(cache, monkeypatch):
    fstat = os.fstat

    def of_another(descriptor):
        found = fstat(descriptor)
        return found if stat.S_ISDIR(found.st_mode) else os.stat_result((*found[:4], found.st_uid + 1, *found[5:]))

    monkeypatch.setattr("os.fstat", of_another)
    assert cache.get(key("a")) is None
    assert not file_of(cache, "a").exists()


# Others at the same time.


def test_a_folder_that_vanishes(cache):
    import shutil

    shutil.rmtree(cache.folder.parent)
    assert cache.get(key("a")) is None
    cache.put(key("a"), CODE)
    assert cache.get(key("a")) == CODE


_WORK = """
import hashlib, random, sys
from pathlib import Path
from robodyn.compile.cache import ObjectCache
cache = ObjectCache(Path(sys.argv[1]), max_bytes=60_000)
chosen = random.Random(int(sys.argv[2]))
hits = 0
for turn in range(400):
    name = str(chosen.randrange(8))
    key = hashlib.blake2b(name.encode(), digest_size=20).hexdigest()
    found, wanted = cache.get(key), name.encode() * 10_000
    assert found in (None, wanted)
    hits += found is not None
    if found is None:
        cache.put(key, wanted, name)
    if turn % 100 == 99:
        cache.clear()
assert hits, "no hit at all"
"""


def test_processes_that_write_evict_and_clear_at_the_same_time(tmp_path):
    command = [sys.executable, "-c", _WORK, str(tmp_path / "objects")]
    running = [subprocess.Popen([*command, str(seed)], stderr=subprocess.PIPE, text=True) for seed in range(3)]
    for process in running:
        assert process.communicate()[1] == ""
        assert process.returncode == 0
    assert not list((tmp_path / "objects").glob("*.tmp"))


def test_threads_that_share_a_cache(cache):
    wrong = []

    def work(seed):
        for turn in range(200):
            name = str((turn * seed) % 5)
            cache.put(key(name), name.encode() * 5000)
            if cache.get(key(name)) not in (None, name.encode() * 5000):
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# The environment.


@pytest.mark.parametrize("value", ["", " ", "off", "OFF"])
def test_the_environment_switches_it_off(monkeypatch, value):
    monkeypatch.setenv(FOLDER_VARIABLE, value)
    harmless(ObjectCache.from_environment(), "switched off by ROBODYN_CACHE_DIR")


def test_the_environment_names_the_folder_and_the_size(monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "here"))
    assert ObjectCache.from_environment().folder == tmp_path / "here"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(FOLDER_VARIABLE, "there")
    assert ObjectCache.from_environment().folder == tmp_path / "there"
    for value, size in (("1.5", 3 << 19), ("0", 0), ("much", 512 << 20), ("-1", 512 << 20), ("nan", 512 << 20)):
        monkeypatch.setenv(SIZE_VARIABLE, value)
        assert ObjectCache.from_environment().max_bytes == size
    monkeypatch.delenv(SIZE_VARIABLE)
    assert ObjectCache.from_environment().max_bytes == 512 << 20


def test_the_default_folder_is_the_platforms(monkeypatch, tmp_path):
    import platformdirs

    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert ObjectCache.from_environment().folder == platformdirs.user_cache_path("robodyn") / "objects"


def test_a_user_without_a_home_has_no_cache(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: module.Path("~/.cache") / name)
    harmless(ObjectCache.from_environment(), "no home folder")
    monkeypatch.setenv(FOLDER_VARIABLE, "~a-user-that-does-not-exist/objects")
    harmless(ObjectCache.from_environment(), "no cache folder")
    assert list(tmp_path.iterdir()) == []
