"""Figures that others published, measured on their hardware: never mixed with ours, shown beside them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

_READ = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
_THESIS = _READ["thesis"]
GPU, CPU = _THESIS["gpu"], _THESIS["cpu"]


def _by_size(columns: dict[str, dict[str, float]]) -> dict[str, dict[int, float]]:
    return {_THESIS[name]: {int(n): float(seconds) for n, seconds in each.items()} for name, each in columns.items()}


RNEA = _by_size(_THESIS["rnea"])
"""Seconds of inverse dynamics by the number of bodies, branching 2."""
CRBA = {float(branching): _by_size(columns) for branching, columns in _THESIS["crba"].items()}
"""Seconds of H and c by branching and number of bodies."""
GRID_HARDWARE, GRID_BATCH = "NVIDIA RTX 5090, float32, 1,024 states a call", 1024


@dataclass(frozen=True)
class Grid:
    """Microseconds of a whole batch, by GRiD and by those that it measured beside itself."""

    robot: str
    ours: str
    query: str
    kernel_us: float
    call_us: float
    others_us: dict[str, float]


@dataclass(frozen=True)
class Claim:
    """What a text says of a figure, and how ours are to be looked at.

    `ask`: "speed-up" (the largest over the recursion on one thread), "growth" (of times with size), "overtaking" (from
    which size on the first of `series` is faster than each of the others), or "order" (of `series`, at both ends).
    `group`: how names of groups of points begin. Scans are called by their methods.
    """

    where: str
    said: str
    ask: str
    group: str
    series: tuple[str, ...] = ()


GRID = tuple(Grid(**each) for each in _READ["grid"])
"""Robots beside those of ours that are most like them."""
SCANS_2016 = tuple(Claim(**each) for each in _READ["claims"])
"""Of Yang, Wu and Pan."""
