"""The command `cache`: it shows what is kept on disk, removes it, and says why there is nothing."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys

import pytest
from cli_runner import refused, run

from robodyn.compile.cache import FOLDER_VARIABLE, SIZE_VARIABLE, ObjectCache

CODE = bytes(range(256)) * 400


def key(name):
    return hashlib.blake2b(name.encode(), digest_size=20).hexdigest()


def file_of(cache, name):
    return cache.folder / f"{key(name)}.object"


@pytest.fixture
def environment(monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "objects"))
    monkeypatch.delenv(SIZE_VARIABLE, raising=False)
    return ObjectCache.from_environment()


def test_the_command_shows_and_clears(environment):
    status, out, err = run("cache")
    assert (status, err) == (0, "")
    assert str(environment.folder) in out
    assert "0, 0 bytes of at most 512 MB" in out
    assert not environment.folder.exists()

    for number in range(45):
        environment.put(key(str(number)), CODE, f"arm{number} [bold]rnea")
    file_of(environment, "44").write_bytes(b"damaged")
    status, out, err = run("cache")
    assert (status, err) == (0, "")
    assert "45, 4.3 MB of at most 512 MB" in out
    assert "arm43 [bold]rnea  100.1 kB" in out
    assert re.search(r"damaged +7 bytes +\d\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d", out)
    assert "... and 5 more" in out

    assert run("cache", "--clear") == (0, f"removed 45 objects, 4.3 MB, from {environment.folder}\n", "")
    assert environment.entries() == []
    assert run("cache", "--clear")[1].startswith("removed 0 objects, 0 bytes")


def test_the_command_says_why_there_is_no_cache(environment, monkeypatch):
    environment.folder.write_text("a file")
    status, out, _ = run("cache")
    assert (status, "not used" in out, "is not a folder" in out) == (0, True, True)
    refused(["cache", "--clear"], "nothing was removed", "is not a folder")
    environment.folder.unlink()
    environment.folder.mkdir(mode=0o777)
    environment.folder.chmod(0o777)
    monkeypatch.setenv(FOLDER_VARIABLE, str(environment.folder / "robodyn" / "objects"))
    if os.name == "posix":  # one of the folders above may be exchanged by others
        says = (
            "not used",
            f"{environment.folder} has mode 0777",
            "wanted a folder that only this user and root can write",
        )
        assert [said for said in says if said not in " ".join(run("cache")[1].split())] == []
        refused(["cache", "--clear"], "nothing was removed", *says[1:])
    monkeypatch.setenv(FOLDER_VARIABLE, "off")
    assert "switched off by ROBODYN_CACHE_DIR=off" in run("cache")[1]
    refused(["cache", "--clear"], "switched off")


def test_the_command_says_what_could_not_be_removed(environment):
    environment.put(key("a"), CODE)
    file_of(environment, "b").mkdir()
    status, out, err = run("cache", "--clear")
    assert (status, out.startswith("removed 1 object, ")) == (2, True)
    assert "1 object in" in err
    assert "could not be removed" in err


def test_llvm_is_not_imported_where_it_is_not_needed():
    code = (
        "import sys, robodyn, robodyn.tools.cli.app, robodyn.tools.cli.cache\n"
        "from robodyn.compile.cache import ObjectCache\n"
        "ObjectCache.from_environment().entries()\n"
        "assert not [name for name in sys.modules if name.startswith('llvmlite')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
