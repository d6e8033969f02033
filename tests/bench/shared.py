"""What all pages share: places, robots, what figures hold for, and how times are written."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Formatter
from typing import Any

import numpy as np

import robodyn as rd
from robodyn.tools.benchmark.contenders import RefusedError
from robodyn.tools.benchmark.tables import Cells

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "benchmarks"
MODELS = ROOT / "models"
COLLECTION = Path(os.environ.get("ROBODYN_SHARED_ROBOTS", ROOT.parent / "shared" / "robots"))
"""The shared collection of robots, which may be there."""
ROBOTS = {"arm6": "fixed", "arm7": "fixed", "quadruped": "floating", "humanoid": "floating"}
"""Robots of models/, and their bases."""
NOT_MEASURED = "not measured"


def robot(name: str, base: str | None = None) -> rd.Model:
    """A robot of models/."""
    return rd.load_urdf(MODELS / f"{name}.urdf", base=base or ROBOTS[name])


def robot_file(name: str) -> Path | None:
    """Of models/ or of the shared collection, where that is there."""
    return next((path for folder in (MODELS, COLLECTION) if (path := folder / f"{name}.urdf").exists()), None)


def header() -> dict[str, str]:
    """What the figures hold for."""
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())
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


def show(value: float | None, missing: str = "") -> str:
    """Seconds with a unit that fits."""
    if value is None:
        return missing
    value = float(f"{value:.3g}")  # rounded first, as that may take the next unit
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def times(value: float | None) -> str:
    """How many times as fast."""
    return NOT_MEASURED if value is None else f"{value:.3g} x"


def reason(error: BaseException) -> str:
    """An error as a remark."""
    said = " ".join(str(error).split())[:300]
    return said if isinstance(error, RefusedError) else f"{type(error).__name__}: {said}"


def geometric_mean(values: Iterable[float]) -> float:
    """Of ratios."""
    return float(np.exp(np.mean(np.log(list(values)))))


def facts(about: dict[str, str]) -> str:
    """The header as one line."""
    return ", ".join(f"{key} {value}" for key, value in about.items())


def markdown(table: Cells) -> str:
    """A table of a page."""
    return "\n".join(table.markdown())


def sections(tables: Iterable[Cells]) -> str:
    """Tables under headings."""
    return "\n\n".join(f"## {table.title}\n\n{markdown(table)}" for table in tables)


def titled(tables: Iterable[Cells]) -> str:
    """Tables after a line each."""
    return "\n\n".join(f"{table.title}:\n\n{markdown(table)}" for table in tables)


def picture(title: str, name: str | None) -> str:
    """A picture, if there is one."""
    return f"![{title}]({name})" if name else ""


def bullets(notes: Iterable[str]) -> str:
    """A list of notes."""
    return "\n".join(f"- {note}" for note in notes)


class _Cell(Formatter):
    """Formats of cells: `time` for seconds, `x` for ratios; nothing for None, or, after a "?", that it is missing."""

    def format_field(self, value: Any, spec: str) -> str:
        """A value by one of them, or as usual."""
        spec, missing = spec.removesuffix("?"), NOT_MEASURED if spec.endswith("?") else ""
        if value is None:
            return missing
        return show(value) if spec == "time" else f"{value:.3g} x" if spec == "x" else format(value, spec)


def table(title: str, rows: Iterable[Any], *columns: str) -> Cells:
    """A row for each object: columns are "heading | {0.field:format}"; headings of numbers begin with #."""
    named, cells = headings([each.split(" | ")[0] for each in columns]), [each.split(" | ")[1] for each in columns]
    return Cells(title, named, [tuple(_Cell().format(cell, row) for cell in cells) for row in rows])


def headings(words: Iterable[str]) -> tuple[str, ...]:
    """Those of numbers begin with #, and get the blank at the end that `Cells` wants."""
    return tuple(f"{word[1:]} " if word.startswith("#") else word for word in words)


def columns(words: str, *more: Sequence[str]) -> tuple[str, ...]:
    """Headings from a line, bars between them, and others."""
    return (*headings(words.split("|")), *(word for each in more for word in each))
