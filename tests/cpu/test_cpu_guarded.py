"""No kernel touches memory beside its arrays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from robodyn.compile.llvm.target import LEVELS, host_target
from robodyn.internals.errors import UnavailableError


def cases() -> Iterator[Any]:
    """Level, dtype, kind of code. Rolled code takes seconds to compile: every run asks that of one level and dtype."""
    for level in LEVELS:
        for dtype in ("float64", "float32"):
            yield level, dtype, "unrolled"
            marks = [] if level == "avx512" else [pytest.mark.matrix]
            yield pytest.param(level, dtype, "many results", marks=marks)
            yield pytest.param(level, dtype, "stages", marks=marks if dtype == "float64" else [pytest.mark.matrix])
            often = False
            yield pytest.param(level, dtype, "rolled", marks=[] if often else [pytest.mark.matrix])


@pytest.mark.skipif(sys.platform == "win32", reason="mprotect is POSIX")
@pytest.mark.parametrize(("level", "dtype", "code"), tuple(cases()))
@pytest.mark.some(of=8, rest="matrix")
def test_kernels_stay_inside_their_arrays(level: str, dtype: str, code: str) -> None:
    try:
        host_target(level)
    except UnavailableError as error:
        pytest.skip(str(error))
    program = Path(__file__).parents[1] / "guarded_kernels.py"
    command = [sys.executable, "-X", "faulthandler", str(program), level, code, dtype]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) >= (64 if code == "many results" else 100)
