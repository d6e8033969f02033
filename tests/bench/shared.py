"""What every suite of benchmarks needs: where results go, what they hold for, and how times are written."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

import robodyn as rd
from robodyn.tools.benchmark.tables import Cells

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "benchmarks"
MODELS = ROOT / "models"


def header() -> dict[str, str]:
    """What the figures hold for."""
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    return {
        "commit": git.stdout.strip() or "unknown",
        "processor": f"{cpu}, {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "robodyn": rd.__version__,
    }


def load() -> str:
    """How busy the machine is: processes that ran or waited in the last minute, of how many processors."""
    if not hasattr(os, "getloadavg"):
        return "unknown"
    return f"{os.getloadavg()[0]:.1f} of {os.cpu_count()} processors"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def show(value: float | None) -> str:
    """Seconds with a unit that fits."""
    if value is None:
        return ""
    value = float(f"{value:.3g}")  # rounded first, as that may take the next unit
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def facts(about: dict[str, str]) -> str:
    """The header as one line."""
    return ", ".join(f"{key} {value}" for key, value in about.items())


def page_of(
    title: str, text: Sequence[str], about: dict[str, str], notes: Iterable[str], tables: Iterable[Cells]
) -> str:
    """A page of docs/benchmarks: what it is, what it holds for, what it says, and its tables."""
    lines = [f"# {title}", "", *text, "", f"Measured on: {facts(about)}.", "", *(f"- {note}" for note in notes)]
    for table in tables:
        lines += ["", f"## {table.title}", "", *table.markdown()]
    return "\n".join(lines) + "\n"
