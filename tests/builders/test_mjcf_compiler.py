"""MuJoCo in a process of its own: hostile files are refused in time, and nothing else suffers from them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from test_mjcf_files import stl
from test_mjcf_sites import ARM as SITES

import robodyn as rd
from robodyn.io.builders import child, mjcf_compiler
from robodyn.io.builders.mjcf_compiler import compiled

mujoco = pytest.importorskip("mujoco")
VERSION = tuple(map(int, mujoco.__version__.split(".")[:3]))
PROGRAM = mjcf_compiler._PROGRAM
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals and forks of POSIX")

GOOD = '<mujoco><worldbody><body><joint name="j"/><geom size="1"/></body></worldbody></mujoco>'
SLOW = GOOD.replace("<body>", '<replicate count="20000"><body>').replace("</body>", "</body></replicate>")
LOCKING = '<mujoco><asset><mesh builtin="supersphere" name="a" params="100000 1 1"/></asset></mujoco>'


@pytest.fixture
def anew():
    """Children of other limits, before and after."""
    PROGRAM.close()
    yield
    PROGRAM.close()


def pids():
    return [each.process.pid for each in PROGRAM.idle]


def test_a_child_is_kept(anew):
    rd.load_mjcf(GOOD)
    (first,) = pids()
    with pytest.raises(rd.LoadError, match="does not compile it"):
        rd.load_mjcf("<mujoco><nonsense/></mujoco>")
    for _ in range(5):
        compiled(GOOD, {})
        assert pids() == [first]


def test_a_lock_that_is_left_behind(anew):
    with pytest.raises(rd.LoadError, match="does not compile it"):
        rd.load_mjcf(LOCKING)
    assert rd.load_mjcf(GOOD).nv == 1


def test_too_slow(anew, monkeypatch):
    rd.load_mjcf(GOOD)
    monkeypatch.setattr(PROGRAM, "seconds", 0.4)
    start = time.perf_counter()
    with pytest.raises(rd.LoadError, match=r"more than 0.4 s to compile it, .*mujoco.MjModel\.from_xml_path"):
        rd.load_mjcf(SLOW)
    assert time.perf_counter() - start < 10.0
    monkeypatch.undo()
    assert rd.load_mjcf(GOOD).nv == 1


@pytest.mark.skipif(sys.platform != "linux", reason="memory of processes is limited there alone")
def test_too_much_memory(anew, monkeypatch):
    monkeypatch.setattr(PROGRAM, "memory", 400 << 20)
    field = '<mujoco><asset><hfield name="t" nrow="{0}" ncol="{0}" size="1 1 1 1"/></asset><worldbody/></mujoco>'
    with pytest.raises(rd.LoadError, match=r"more than 400 MiB of memory.*mujoco\.MjModel"):
        rd.load_mjcf(field.format(15_000))
    assert rd.load_mjcf(GOOD).nv == 1


def test_too_large(anew, monkeypatch, tmp_path):
    monkeypatch.setattr(PROGRAM, "largest", 100_000)
    picture = '<mujoco><asset><texture name="t" type="2d" builtin="flat" width="500" height="500"/></asset></mujoco>'
    with pytest.raises(rd.LoadError, match="bytes of it; at most 100000 are taken"):
        rd.load_mjcf(picture)
    assert rd.load_mjcf(GOOD).nv == 1


def test_a_mjb_is_looked_at_in_the_child_first(anew, tmp_path):
    data = compiled(GOOD, {}).data
    assert mjcf_compiler.checked_binary(data).data == data
    rng = np.random.default_rng(0)
    path = tmp_path / "a.mjb"
    for _ in range(30):
        damaged = bytearray(data)
        for at in rng.integers(4, len(data), 3):
            damaged[at] = rng.integers(256)
        path.write_bytes(damaged[: rng.integers(8, len(data) + 1)])
        with suppress(rd.RobodynError):
            rd.load_mjcf(path)
    assert rd.load_mjcf(GOOD).nv == 1


@pytest.mark.parametrize("seed", range(3))
def test_texts_that_were_changed(seed):
    """Whatever a text says, there is a model or an error of ours."""
    print("seed", seed)
    rng, loaded = np.random.default_rng(seed), 0
    words = ("0", "-1", "1e308", "nan", "", "4294967296", "1 2", "x", "free", "1e-300", "world")
    for _ in range(30):
        text = SITES
        for _ in range(rng.integers(1, 4)):
            places = list(re.finditer(r'="([^"]*)"|<[a-z]+[^<>]*/>', text))
            found = places[rng.integers(len(places))]
            if found[1] is None:
                text = text[: found.start()] + found[0] * int(rng.integers(3)) + text[found.end() :]
            else:
                text = text[: found.start(1)] + words[rng.integers(len(words))] + text[found.end(1) :]
        with suppress(rd.RobodynError):
            rd.load_mjcf(text, strict=False)
            loaded += 1
    assert 0 < loaded < 30 and rd.load_mjcf(GOOD).nv == 1


def test_files_of_one_name_are_not_mixed_up():
    """MuJoCo keeps what it read of files."""
    text = GOOD.replace("<mujoco>", '<mujoco><asset><mesh name="m" file="0_m.stl"/></asset>')
    text = text.replace('size="1"', 'type="mesh" mesh="m"')
    masses = []
    for size in (1.0, 2.0, 1.0):
        made = mujoco.MjModel.from_binary_path("m", {"m": compiled(text, {"0_m.stl": stl(size)}).data})
        masses.append(float(made.body_mass[1]))
    assert masses[0] == masses[2] and abs(masses[1] / masses[0] - 8.0) < 1e-6


def test_warnings_of_mujoco_are_findings():
    if VERSION < (4,):
        pytest.skip("this version of MuJoCo does not warn of it")
    model = rd.load_mjcf(GOOD.replace("<mujoco>", '<mujoco><compiler settotalmass="2"/>'))
    (found,) = (each for each in model.report if each.code == "mjcf-warning")
    assert "settotalmass" in found.message and found.severity == "warning"


def test_threads(anew, monkeypatch):
    monkeypatch.setattr(child, "_MOST_IDLE", 2)
    found, errors = [], []

    def load(k):
        try:
            for n in range(3):
                text = GOOD.replace('"j"', f'"j{k}_{n}"')
                assert rd.load_mjcf(text).joint_names == (f"j{k}_{n}",)
            found.append(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=load, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == list(range(3)) and not errors and len(pids()) <= 2


@POSIX
def test_children_that_are_gone_are_replaced(anew):
    rd.load_mjcf(GOOD)
    for number in (signal.SIGKILL, signal.SIGSEGV):
        (pid,) = pids()
        os.kill(pid, number)
        assert rd.load_mjcf(GOOD).nv == 1
        assert pids() != [pid]
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # nothing of it is left


FAKE = """
import sys, os
size = lambda n: n.to_bytes(8, "little")
os.write(1, size(1) + size(7) + b"robodyn")
os.read(0, 100)
os.write(1, {answer})
os.read(0, 1 << 20)
os.read(0, 1 << 20)
"""


@pytest.mark.parametrize(
    "answer",
    [
        "(1 << 62).to_bytes(8, 'little')",
        "(2).to_bytes(8, 'little') + (1 << 62).to_bytes(8, 'little')",
        "(0).to_bytes(8, 'little')",
        "b'abc'",
    ],
)
def test_what_comes_back_is_not_believed(answer, anew, monkeypatch):
    monkeypatch.setattr(child, "_START", FAKE.replace("{answer}", answer))
    monkeypatch.setattr(PROGRAM, "seconds", 2.0 if answer != "b'abc'" else 0.3)
    with pytest.raises(rd.LoadError, match=r"MuJoCo crashes|more than 0\.3 s"):
        compiled(GOOD, {})


@POSIX
@pytest.mark.parametrize("python", [None, "", "/nowhere/python", "/bin/true", "/bin/cat"])
def test_odd_programs(python, anew, monkeypatch):
    """A program that has Python inside is not Python."""
    monkeypatch.setattr(sys, "executable", python)
    assert rd.load_mjcf(GOOD).nv == 1
    PROGRAM.close()
    monkeypatch.setattr(sys, "exec_prefix", "/nowhere")
    with pytest.raises(rd.UnavailableError, match=r"process of its own.*load_mjcf\(mujoco\.MjModel"):
        rd.load_mjcf(GOOD)
    assert rd.load_mjcf(mujoco.MjModel.from_xml_string(GOOD)).nv == 1


ALONE = """
import multiprocessing, os, signal, sys, threading, time
sys.path.insert(0, {root!r})
import robodyn as rd
from robodyn.io.builders import mjcf_compiler
GOOD, SLOW = {good!r}, {slow!r}
pids = lambda: [each.process.pid for each in mjcf_compiler._PROGRAM.idle]
def in_child(queue):
    assert not pids()
    for _ in range(20):
        assert rd.load_mjcf(GOOD).nv == 1
    queue.put(pids())
if __name__ == "__main__":
    rd.load_mjcf(GOOD)
    own = pids()
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    forked = [context.Process(target=in_child, args=(queue,), daemon=True) for _ in range(2)]
    for each in forked:
        each.start()
    for _ in range(20):
        assert rd.load_mjcf(GOOD).nv == 1
    assert pids() == own
    others = [queue.get() for _ in forked]
    for each in forked:
        each.join(30)
        assert each.exitcode == 0
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    try:
        rd.load_mjcf(SLOW)
    except KeyboardInterrupt:
        print("interrupted", time.monotonic() - start < 5)
    assert rd.load_mjcf(GOOD).nv == 1
    print("pids", *own, *sum(others, []), *pids())
"""


@POSIX
def test_forks_interrupts_and_the_end(tmp_path):
    """In a process without standard input. Forks have children of their own, Ctrl-C ends what is slow, none is left."""
    program = tmp_path / "alone.py"
    program.write_text(ALONE.format(root=str(Path(rd.__file__).parents[1]), good=GOOD, slow=SLOW))
    command = f"exec {sys.executable} -W error {program} <&-"
    run = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0 and not run.stderr, run.stderr
    first, second = run.stdout.splitlines()
    assert first == "interrupted True"
    numbers = set(map(int, second.split()[1:]))
    assert len(numbers) == 4
    until = time.monotonic() + 10.0
    while time.monotonic() < until and any(Path(f"/proc/{pid}").exists() for pid in numbers):
        time.sleep(0.05)
    assert not [pid for pid in numbers if Path(f"/proc/{pid}").exists()]


def test_a_program_elsewhere(tmp_path):
    """Where this package is found by the hook of an editable install alone, and not on the path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = f"import robodyn as rd; print(rd.load_mjcf({GOOD!r}).nv)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    if "No module named 'robodyn'" in done.stderr:
        pytest.skip("robodyn is not installed here")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
