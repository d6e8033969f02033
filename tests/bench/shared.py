"""What all pages share: places, robots, what figures hold for, and how times are written."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
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
Row = tuple[str, ...]


def robot(name: str, base: str | None = None) -> rd.Model:
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
    return float(np.exp(np.mean(np.log(list(values)))))


def facts(about: dict[str, str]) -> str:
    """The header as one line."""
    return ", ".join(f"{key} {value}" for key, value in about.items())


def markdown(table: Cells) -> str:
    """A table of a page."""
    return "\n".join(table.markdown())


def sections(tables: Iterable[Cells]) -> str:
    """Tables under headings, but those without rows."""
    return "\n\n".join(f"## {table.title}\n\n{markdown(table)}" for table in tables if table.rows)


def titled(tables: Iterable[Cells], end: str = ":") -> str:
    """Tables after a line each."""
    return "\n\n".join(f"{table.title}{end}\n\n{markdown(table)}" for table in tables)


def titleless(tables: Iterable[Cells]) -> str:
    """Tables alone."""
    return "\n\n".join(map(markdown, tables))


def picture(title: str, name: str | None) -> str:
    """A picture, if there is one."""
    return f"![{title}]({name})" if name else ""


def bullets(notes: Iterable[str]) -> str:
    return "\n".join(f"- {note}" for note in notes)


class _Cell(Formatter):
    """Formats of cells: `time` for seconds, `x` for ratios; nothing for None, or, after a "?", that it is missing."""

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        return getattr(args, str(key))

    def get_field(self, name: str, args: Any, kwargs: Any) -> Any:
        """None for what a mapping lacks."""
        try:
            return super().get_field(name, args, kwargs)
        except KeyError:
            return None, name

    def format_field(self, value: Any, spec: str) -> str:
        """A value by one of them, or as usual."""
        spec, missing = spec.removesuffix("?"), NOT_MEASURED if spec.endswith("?") else ""
        if value in (None, ""):
            return missing
        return show(value) if spec == "time" else f"{value:.3g} x" if spec == "x" else format(value, spec)


_CELL = _Cell()
_PROTOTYPE = re.compile(r"^<!-- (\w+)(?: by (\w+))?( filled)? -->\n\| (.+) \|\n\|(.+)\|\n\| (.+) \|\n", re.MULTILINE)
_HEADING = re.compile(r"^## (.*)$", re.MULTILINE)


def formatted(text: str, found: Any) -> dict[str, list[Cells]]:
    """Tables that a text has as prototypes, by their texts: "<!-- FIELD -->", the heading, and a row of formats.

    FIELD is that of `found` which has a row for each object; "FIELD by NAME": a table for each value of NAME, which is
    its title; "filled": without empty columns.
    """
    made: dict[str, list[Cells]] = {}
    for match in _PROTOTYPE.finditer(text):
        field, by, filled, *lines = match.groups()
        head, rule, cells = (line.split(bar) for line, bar in zip(lines, (" | ", "|", " | "), strict=True))
        headings = tuple(word + " " * each.endswith(":") for word, each in zip(head, rule, strict=True))
        groups: dict[str, list[Any]] = {}
        for row in getattr(found, field):
            title = getattr(row, by) if by else _HEADING.findall(text[: match.start()])[-1]
            groups.setdefault(title, []).append(row)
        tables = [
            Cells(title, headings, [tuple(_CELL.vformat(cell, row, {}) for cell in cells) for row in rows])
            for title, rows in groups.items()
        ]
        made[match[0]] = [table.filled() for table in tables] if filled else tables
    return made


def columns(*words: str) -> tuple[str, ...]:
    """Headings, bars between them: those of numbers begin with #, and get the blank at the end that `Cells` wants."""
    each = (word for several in words for word in several.split("|"))
    return tuple(f"{word[1:]} " if word.startswith("#") else word for word in each)


def goal(what: str, wanted: float, found: float | None, where: str = "", most: bool = False, unit: Any = times) -> Row:
    """What is wanted at least, or at `most`, beside what was found, of `where`, and whether it is reached."""
    reached = None if found is None else found <= wanted if most else found >= wanted
    told = {None: NOT_MEASURED, True: "yes", False: "NO"}[reached]
    return what, unit(wanted), unit(found) + (f" ({where})" if where else ""), told


def goal_table(rows: Sequence[Row]) -> Cells:
    return Cells("Goals", columns("what|#wanted|#measured|reached"), list(rows))


@contextmanager
def failing_alone(point: Any) -> Iterator[None]:
    """What fails in any way is a remark on a point: others are measured nevertheless."""
    try:
        yield
    except Exception as error:
        point.problem = reason(error)
