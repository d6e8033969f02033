"""The cache of machine code where the system gives no more files, and while processes damage it under each other."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("resource", reason="limits of files are those of POSIX")

SECONDS = 45
"""Of the nightly run."""
PROCESSES = 4


def run(program, *arguments):
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


_LIMITED = """
import errno, os, resource, sys
from pathlib import Path
import numpy as np
import robodyn as rd
from robodyn.compile.cache import FOLDER_VARIABLE, ObjectCache

kind, folder = sys.argv[1], Path(sys.argv[2])
os.environ[FOLDER_VARIABLE] = str(folder)
cache, key, other = ObjectCache.from_environment(), "0" * 40, "1" * 40
cache.put(key, b"kept")
first, model = rd.random_tree(3, seed=1), rd.random_tree(5, seed=2)
rng = np.random.default_rng(3)
states = [model.random_configuration(rng, (7,)), *rng.uniform(-1, 1, (2, 7, model.nv))]

def ask(dyn):
    q, qd, last = states
    return dyn.inverse_dynamics(q, qd, last), dyn.mass_matrix(q)

wanted = ask(rd.Dynamics(model, engine="reference"))
rd.Dynamics(first, engine="cpu").mass_matrix(np.zeros(first.nq))  # whatever is imported late is there now
dyn, known = rd.Dynamics(model, engine="cpu"), len(cache.entries())

if kind == "size":
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
else:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        assert error.errno == errno.EMFILE
    for _ in range(int(kind)):
        os.close(taken.pop())

for got, right in zip(ask(dyn), wanted):
    assert np.abs(got - right).max() <= 1e-9 * np.abs(right).max()
found = cache.get(key)
assert found == (b"kept" if kind == "size" else None), found
cache.put(other, b"new")
assert cache.get(other) is None
with cache.alone():
    assert cache.problem() is None
assert kind != "0" or cache.entries() == cache.clear() == []

if kind != "size":
    os.closerange(taken[0], taken[-1] + 1)
assert len(cache.entries()) == known  # nothing was kept, and nothing was taken for damaged
assert not list(folder.glob("*.tmp"))
assert cache.get(key) == b"kept"
"""


@pytest.mark.parametrize("kind", ["0", "1", "size"])
@pytest.mark.matrix
def test_answers_come_where_no_file_can_be_opened_or_written(tmp_path, kind):
    """That many descriptors are left, or files may have no bytes."""
    run(_LIMITED, kind, str(tmp_path / "objects"))


_FUZZ = """
import os, random, shutil, sys, time
from pathlib import Path
from robodyn.compile.cache import ObjectCache

folder, seed, end = Path(sys.argv[1]), int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
chosen = random.Random(seed)
keys = [f"{number:040x}" for number in range(12)]
true = {key: key.encode() * times for times, key in enumerate(keys, 50)}
cache = ObjectCache(folder, max_bytes=20_000)
hits = misses = damaged = 0

def damage(name):
    '''What a disk, a person or another program may do to a file and to the folder; never to anything beside it: files
    are opened without following links, and links lead to what is in the folder or is nowhere.'''
    way, path = chosen.randrange(8), folder / name
    if way < 3:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if way == 0:
                os.truncate(descriptor, chosen.randrange(3000))
            elif way == 1:
                os.pwrite(descriptor, chosen.randbytes(chosen.choice([4, 1000])), chosen.randrange(60))
            else:
                os.fchmod(descriptor, 0o622)
        finally:
            os.close(descriptor)
    elif way == 3:
        path.unlink()
        path.symlink_to(chosen.choice(["nowhere", path.name, "lock", chosen.choice(keys) + ".object"]))
    elif way == 4:
        path.unlink()
        os.mkfifo(path)
    elif way == 5:
        path.rename(path.with_name(chosen.choice(keys) + ".object"))
    elif way == 6:
        (folder / "lock").unlink()
        chosen.choice([os.mkfifo, Path.touch])(folder / "lock")
    else:
        shutil.rmtree(folder.rename(folder.with_name(f"away{seed}")))

while time.monotonic() < end:
    key, action = chosen.choice(keys), chosen.random()
    if action < 0.6:
        found = cache.get(key)
        assert found is None or found == true[key], (key, found[:80])
        hits, misses = hits + (found is not None), misses + (found is None)
    elif action < 0.9:
        cache.put(key, true[key], key)
    elif action < 0.93:
        with cache.alone():
            cache.put(key, true[key])
    elif action < 0.95:
        cache.entries()
        assert cache.problem() is None
    elif action < 0.951:
        cache.clear()
    elif action > 0.97:
        damaged += 1
        try:
            damage(f"{key}.object")
        except OSError:
            pass  # another process was faster
assert min(hits, misses, damaged) > 10, (hits, misses, damaged)
print(hits, misses, damaged)
"""


def fuzz(folder, seconds):
    command = [sys.executable, "-c", _FUZZ, str(folder)]
    print(f"seeds 0 to {PROCESSES - 1}")
    running = [
        subprocess.Popen([*command, str(seed), str(seconds)], stdout=-1, stderr=subprocess.PIPE, text=True)
        for seed in range(PROCESSES)
    ]
    for process in running:
        out, err = process.communicate(timeout=seconds + 120)
        assert (process.returncode, err) == (0, ""), err
        print(f"hits, misses, files damaged: {out}", end="")


@pytest.mark.nightly
def test_processes_that_damage_each_others_files(tmp_path):
    """Whatever is done to files, what is found is what was put, and nothing raises or waits."""
    fuzz(tmp_path / "objects", SECONDS)
