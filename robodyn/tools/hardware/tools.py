"""Programs of others: Verilator, which simulates Verilog, and yosys, which makes gates of it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from robodyn.internals.errors import UnavailableError

_TAIL = 2000
"""Characters of what a program printed that go into a message."""


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
    """What a program prints that ends well.

    Raises:
        UnavailableError: it ended badly, or not within the time.
    """
    try:
        ended = subprocess.run(
            command, cwd=folder, capture_output=True, encoding="utf-8", errors="replace", timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimedOutError(f"{Path(command[0]).name} was not done after {seconds:g} s") from None
    if ended.returncode:
        said = (ended.stdout + ended.stderr)[-_TAIL:].strip()
        raise UnavailableError(f"{Path(command[0]).name} ended with status {ended.returncode}: {said}")
    return ended.stdout


class TimedOutError(UnavailableError):
    """A program took longer than it was given."""
