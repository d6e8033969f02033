"""Figures that others published, measured on their hardware: never mixed with ours, shown beside them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import SimpleNamespace

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
GRID = tuple(SimpleNamespace(**each) for each in _READ["grid"])
"""Robots beside those of ours that are most like them."""
SCANS_2016 = tuple(SimpleNamespace(**{"series": (), **each}) for each in _READ["claims"])
"""Claims of Yang, Wu and Pan."""
