"""No kernel touches memory beside its arrays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from robodyn.compile.llvm.target import LEVELS, host_target
from robodyn.internals.errors import UnavailableError


def cases() -> Iterator[Any]:
    """Level, dtype, kind of code. Programs are quick to compile; of other code the mark `matrix` has all pairs of a
    level, a dtype and a kind, not all threes."""
    kinds = ("unrolled", "many results", "stages", "rolled")
    for (row, level), (column, code), (turn, dtype) in product(
        enumerate(LEVELS), enumerate(kinds), enumerate(("float64", "float32"))
    ):
        rare = pytest.mark.matrix if (row + column + turn) % 2 == 0 else pytest.mark.nightly
        yield pytest.param(level, dtype, code, marks=[] if code == "unrolled" else [rare])


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
