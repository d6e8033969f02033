"""Under limits of the operating system answers are right, or errors of robodyn's own: no crash, and nothing hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import robodyn as rd

ROOT = Path(__file__).resolve().parents[2]
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits as Linux has them")


def under(which: str, amount: int, folder: Path) -> list[str]:
    """What tests/limited.py says of its answers."""
    folder.chmod(0o700)
    environment = {**os.environ, "ROBODYN_CACHE_DIR": str(folder), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-X", "faulthandler", str(ROOT / "tests" / "limited.py"), which, str(amount)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    words = done.stdout.split()
    print(which, amount, words)
    assert len(words) == 9 and set(words) <= {"right", "refused", "memory"}, done.stderr[-3000:]
    return words


@LINUX
@pytest.mark.matrix
def test_without_threads_everything_is_computed(tmp_path: Path) -> None:
    assert set(under("threads", 0, tmp_path)) == {"right"}


@LINUX
@pytest.mark.nightly
def test_without_processes_everything_is_computed(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give its rights away")
    assert set(under("processes", 0, tmp_path)) == {"right"}


@LINUX
@pytest.mark.nightly
@pytest.mark.parametrize("amount", [0, 8])
def test_without_descriptors_only_files_are_refused(amount: int, tmp_path: Path) -> None:
    words = under("files", amount, tmp_path)
    assert words[7] == ("right" if amount else "refused")
    assert {*words[:7], words[8]} == {"right"}


@LINUX
@pytest.mark.nightly
def test_files_that_may_not_grow_are_not_needed(tmp_path: Path) -> None:
    assert set(under("sizes", 500, tmp_path)) == {"right"}


@LINUX
@pytest.mark.nightly
@pytest.mark.parametrize("amount", [8, 64])  # with less the C library ends a process whose threads have no room
def test_short_memory(amount: int, tmp_path: Path) -> None:
    words = under("memory", amount, tmp_path)
    assert amount < 16 or set(words) == {"right"}


@LINUX
@pytest.mark.nightly
def test_threads_of_half_a_mebibyte_of_stack(tmp_path: Path) -> None:
    assert set(under("stack", 1 << 19, tmp_path)) == {"right"}


def test_compiling_in_the_background_without_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The call waits instead."""

    def fail(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    tmp_path.chmod(0o700)
    monkeypatch.setenv("ROBODYN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("threading.Thread.start", fail)
    model = rd.random_tree(3, seed=77)
    q = model.random_configuration(0, (2,))
    dyn, reference = rd.Dynamics(model, engine="cpu", compile="background"), rd.Dynamics(model, engine="reference")
    for _ in range(2):
        np.testing.assert_allclose(dyn.gravity_force(q), reference.gravity_force(q), atol=1e-12)


def test_a_small_file_takes_little_memory() -> None:
    """A file object may take memory for all that it is asked for."""
    asked = []

    class File:
        def read(self, size: int) -> bytes:
            asked.append(size)
            return b"" if len(asked) > 1 else b'<robot name="r"><link name="a"/></robot>'

    assert rd.load_urdf(File()).name == "r"
    assert max(asked) <= 1 << 20


def test_measurements_are_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the compiler's library does not load, as in short memory, nothing was measured."""
    from robodyn.engines import tuning_store

    def fail() -> Any:
        raise OSError("libllvmlite.so does not load")

    monkeypatch.setattr("robodyn.compile.llvm.target.host_target", fail)
    tuning_store.forget()
    assert isinstance(tuning_store._file(), dict)
    tuning_store.forget()
