"""No kernel touches memory beside its arrays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from robodyn.engines.cpu.target import LEVELS, host_target
from robodyn.errors import UnavailableError


@pytest.mark.skipif(sys.platform == "win32", reason="mprotect is POSIX")
@pytest.mark.parametrize("code", ["unrolled", "rolled"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("level", LEVELS)
def test_kernels_stay_inside_their_arrays(level: str, dtype: str, code: str) -> None:
    try:
        host_target(level)
    except UnavailableError as error:
        pytest.skip(str(error))
    program = Path(__file__).with_name("guarded_kernels.py")
    command = [sys.executable, "-X", "faulthandler", str(program), level, code, dtype]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 100
