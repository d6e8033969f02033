"""Runs external programs: Verilator, which simulates Verilog, and yosys, which synthesises it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from robodyn.internals.errors import UnavailableError

_TAIL = 2000
"""Characters of a program's output that error messages quote."""


def tool(*names: str) -> str:
    """The path of the first program of these that is installed.

    Raises:
        UnavailableError: none is.
    """
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return path
    raise UnavailableError(f"{names[0]} is not installed; on Debian and Ubuntu `apt-get install {names[0]}` brings it")


def called(command: Sequence[str], folder: Path, seconds: float | None = None) -> str:
    """Run a program and return its output.

    Raises:
        UnavailableError: it failed, or took longer than `seconds`.
    """
    try:
        process = subprocess.run(
            command, cwd=folder, capture_output=True, encoding="utf-8", errors="replace", timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimedOutError(f"{Path(command[0]).name} was not done after {seconds:g} s") from None
    if process.returncode:
        output = (process.stdout + process.stderr)[-_TAIL:].strip()
        raise UnavailableError(f"{Path(command[0]).name} ended with status {process.returncode}: {output}")
    return process.stdout


class TimedOutError(UnavailableError):
    """A program exceeded its time limit."""
