"""Kernels whose threads work together, on a GPU under compute-sanitizer: no byte outside arrays, no two threads at one
place of shared memory without a barrier between."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from gpu_host import missing, watched
from gpu_host.device import HostDevice
from gpu_host.scan_functions import add_functions

PROGRAM = "compute-sanitizer"
FOUND = 97


def run_watched(tool: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A program of kernels with a tool of compute-sanitizer watching; it exits with `FOUND` where that finds much."""
    command = [PROGRAM, "--tool", tool, "--error-exitcode", str(FOUND), sys.executable, str(Path(watched.__file__))]
    return subprocess.run([*command, *words], capture_output=True, text=True, timeout=300, check=False)


@cache
def unable(tool: str) -> str:
    """Why a tool sees nothing here; empty if it finds what was planted."""
    if shutil.which(PROGRAM) is None:
        return f"{PROGRAM} is not on PATH"
    done = run_watched(tool, "planted", tool)
    if done.returncode == FOUND:
        return ""
    return f"{PROGRAM} does not find a planted mistake here: {(done.stdout + done.stderr).strip()[:300]}"


@pytest.mark.gpu
@pytest.mark.parametrize("tool", sorted(watched.FAR))
@pytest.mark.parametrize("partition", ["warp", "block", "thread", "unrolled"])
@pytest.mark.parametrize("query", ["inverse_dynamics", "forward_dynamics_gradient"])
def test_gpu_kernels_are_clean_under_compute_sanitizer(query: str, partition: str, tool: str) -> None:
    if reason := unable(tool):
        pytest.skip(reason)
    done = run_watched(tool, query, partition)
    assert done.returncode == 0 and watched.SAID in done.stdout, done.stdout + done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("tool", sorted(watched.FAR))
@pytest.mark.parametrize("words", [("systems", "elimination"), ("scans", "bush")])
def test_kernels_of_scans_are_clean_under_compute_sanitizer(words: tuple[str, str], tool: str) -> None:
    if reason := unable(tool):
        pytest.skip(reason)
    done = run_watched(tool, *words)
    assert done.returncode == 0 and watched.SAID in done.stdout, done.stdout + done.stderr


@pytest.mark.skipif(bool(missing()), reason=missing() or "it runs")
@pytest.mark.kernels
def test_what_is_watched_runs(capsys: pytest.CaptureFixture[str]) -> None:
    host = HostDevice()
    watched.main("inverse_dynamics", "warp", host)
    watched.main("planted", "racecheck", host)
    assert capsys.readouterr().out.splitlines()[-1] == watched.SAID
    assert [name for name, _ in host.launches] == ["kernel", "planted"]
    watched.main("forward_dynamics_gradient", "unrolled", host)
    assert capsys.readouterr().out.splitlines()[-1] == watched.SAID
    assert len(host.launches) == 7
    watched.main("systems", "elimination", host)
    assert capsys.readouterr().out.splitlines()[-1] == watched.SAID
    add_functions(host.xp)
    watched.main("scans", "bush", host)
    assert capsys.readouterr().out.splitlines()[-1] == watched.SAID
    assert {"fold", "pair_matrix", "pair_list", "scan_prefixes"} <= {name for name, _ in host.launches}
    assert f"+ {1 << 40}LL]" in watched.planted(watched.FAR["memcheck"]).text
