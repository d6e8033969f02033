"""The cache of machine code beside another user in truth, who plants code wherever permissions allow it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from other_users import CODE, KEY, OTHER, POISON

from robodyn.compile.cache import ObjectCache
from robodyn.compile.cache_folder import make

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can act as another user"
)


_BECOME = """
import os, sys
from pathlib import Path
from robodyn.compile.cache import ObjectCache
from robodyn.compile.cache_folder import make
import grp, pwd, shutil  # before this user has no right to read them
os.chdir("/")
os.umask(0)
os.setgroups([])
os.setgid({other})
os.setuid({other})
key, code, poison = {key!r}, {code!r}, {poison!r}
place = Path(sys.argv[1])
"""


def as_another(program, place):
    """Run a program as another user, in whose sight is a place."""
    start = _BECOME.format(other=OTHER, key=KEY, code=CODE, poison=POISON)
    done = subprocess.run([sys.executable, "-c", start + program, place], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


_PLANT = """
own, unpacked = place / "sticky" / "nobody", place / "unpacked"
make(own)
ObjectCache(own).put(key, poison)
assert ObjectCache(own).get(key) == poison
entry = own / f"{key}.object"
own.chmod(0o755)
entry.chmod(0o644)

def leads(target):
    try:
        return (target / entry.name).read_bytes() == entry.read_bytes()
    except OSError:
        return False

def plant(target):
    "Whether a path can be made to lead to the poison, by any of these."
    ways = (
        lambda: target.symlink_to(unpacked),
        lambda: shutil.copytree(own, target, dirs_exist_ok=True),
        lambda: (target / entry.name).symlink_to(entry),
        lambda: os.link(entry, target / entry.name),
        lambda: target.rename(target.with_name("away")) and target.symlink_to(unpacked),
        lambda: target.parent.rename(target.parent.with_name("away")) and shutil.copytree(own, target),
    )
    for way in ways:
        if not leads(target):
            try:
                way()
            except OSError:
                pass
    return leads(target)

print(plant(place / (place / "target").read_text()))
"""

TARGETS = {
    "sticky/new": True,  # another user may make it first
    "sticky/new/objects": True,
    "sticky/mine": False,
    "sticky/mine/robodyn/objects": False,
    "sticky/mine/new": False,
    "open/objects": True,
    "open/new": True,
    "open/deeper/objects": True,
    "writable": True,
    "grouped/objects": True,
    "closed/objects": False,
    "closed/readable": False,
    "linked/objects": True,
}
"""Folders for the cache, and whether another user can have their path lead to code of theirs."""


@pytest.mark.parametrize("name", TARGETS)
def test_what_another_user_plants_is_never_loaded(shared, name):
    for each, mode in (("sticky", 0o1777), ("open", 0o777), ("grouped", 0o775), ("closed", 0o755)):
        (shared / each).mkdir()
        (shared / each).chmod(mode)
    os.chown(shared / "grouped", 0, OTHER)
    mine = ("sticky/mine", "sticky/mine/robodyn/objects", "open/objects", "open/deeper/objects", "grouped/objects")
    for each in (*mine, "closed/objects", "writable"):
        make(shared / each)
    (shared / "writable").chmod(0o777)
    (shared / "closed" / "readable").mkdir(mode=0o755)
    (shared / "linked").symlink_to("open")  # root's, but to where everybody can write
    ObjectCache(shared / "unpacked").put(KEY, POISON)  # a file of root that another user filled: from an archive, say
    (shared / "unpacked").chmod(0o755)
    (shared / "unpacked" / f"{KEY}.object").chmod(0o644)
    (shared / "target").write_text(name)
    assert as_another(_PLANT, shared) == f"{TARGETS[name]}\n"

    cache, left = ObjectCache(shared / name), sorted((shared / "sticky").rglob("*"))
    assert cache.get(KEY) is None
    assert (cache.problem() is None) != TARGETS[name]
    cache.put(KEY, CODE)
    assert cache.get(KEY) == (None if TARGETS[name] else CODE)
    with cache.alone():
        assert len(cache.entries()) == len(cache.clear()) == (0 if TARGETS[name] else 1)
    assert all(path.exists() for path in left)


_OTHER_WAY = """
def check(name, use):
    cache = ObjectCache(place / name)
    cache.put(key, code)
    assert (cache.get(key) == code) == use, (name, cache.problem(), cache.get(key) == code)
    assert (cache.problem() is None) == use, (name, cache.problem())
    with cache.alone():
        assert len(cache.entries()) == len(cache.clear()) == int(use), name

for line in (place / "places").read_text().splitlines():
    name, use = line.split()
    check(name, use == "True")
"""


def test_folders_of_root_and_of_others_in_the_eyes_of_another_user(shared):
    third = OTHER - 1
    for name, owner, mode in (
        ("sticky", 0, 0o1777),
        ("roots", 0, 0o755),
        ("theirs", OTHER, 0o755),
        ("thirds", third, 0o755),
        ("thirds/theirs", OTHER, 0o700),
        ("sticky/thirds", third, 0o1777),
        ("sticky/thirds/theirs", OTHER, 0o700),
        ("roots/theirs", OTHER, 0o700),
        ("roots/open", 0, 0o777),
        ("roots/open/theirs", OTHER, 0o700),
        ("roots/group", 0, 0o775),
        ("roots/group/theirs", OTHER, 0o700),
    ):
        (shared / name).mkdir()
        (shared / name).chmod(mode)
        os.chown(shared / name, owner, owner)
    make(shared / "roots" / "objects")
    ObjectCache(shared / "roots" / "objects").put(KEY, POISON)
    (shared / "roots" / "objects").chmod(0o755)
    (shared / "roots" / "objects" / f"{KEY}.object").chmod(0o644)
    for name, target, owner in (
        ("roots/link", "../theirs", 0),
        ("roots/wrong", "objects", 0),
        ("theirs/link", "../roots/theirs", OTHER),
        ("theirs/wrong", "../roots/objects", OTHER),
        ("sticky/planted", "../theirs", third),
    ):
        (shared / name).symlink_to(target)
        os.chown(shared / name, owner, owner, follow_symlinks=False)
    places = {
        "roots/objects": False,
        "roots/theirs": True,
        "roots/theirs/new": True,
        "roots/open/theirs": False,
        "roots/group/theirs": False,
        "roots/link": True,
        "roots/link/new": True,
        "roots/wrong": False,
        "theirs/new/objects": True,
        "theirs/link": True,
        "theirs/wrong": False,
        "sticky/new": True,
        "sticky/planted": False,
        "thirds/theirs": False,
        "sticky/thirds/theirs": False,
    }
    (shared / "places").write_text("".join(f"{name} {use}\n" for name, use in places.items()))
    as_another(_OTHER_WAY, shared)
    assert ObjectCache(shared / "roots" / "objects").get(KEY) == POISON


def test_an_entry_that_is_a_file_of_another_user_is_a_miss(tmp_path):
    cache, planted = ObjectCache(tmp_path / "objects"), tmp_path / "planted" / f"{KEY}.object"
    make(cache.folder)
    ObjectCache(planted.parent).put(KEY, POISON)
    os.chown(planted, OTHER, OTHER)
    os.link(planted, cache.folder / f"{KEY}.object")
    assert cache.get(KEY) is None
    assert planted.exists()
    cache.put(KEY, CODE)
    assert cache.get(KEY) == CODE
