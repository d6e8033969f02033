"""What was measured on this machine, and how choosers look it up: one table of times, kept for other processes.

Choosers take the engine, the kernel or the method that answers a call. Each has a section of the store: rows, a row the
time of one choice for one call, of which those nearest to a call decide, or coefficients that were fitted to times.

The store is a file of JSON among the machine code in the cache, one for each version and processor. Its sections are
kept by the name of the device that was measured, "" for the processor itself. A file or a section that is damaged or
strange says that nothing was measured; it is never an error.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import astuple
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from robodyn.compile.cache import ObjectCache
from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass
from robodyn.internals.version import __version__

if TYPE_CHECKING:
    from robodyn.core.model import Model

_MOST_BYTES, _MOST_ROWS = 1 << 24, 1 << 14
"""Of the file, and of a section on one device: some times what `robodyn tune` measures."""
_LARGEST = 2.0**53
"""Of numbers: all whole ones up to here are doubles."""


@dataclass(frozen=True)
class Section:
    """A chooser's part of the store, and what it takes for alike.

    Args:
        name: of the chooser.
        choices: what it chooses from; rows about others are strange.
        like: trees count as alike up to this ratio of bodies.
        again: the fields of rows that are the same where a measurement takes the place of another.
        by_depth: trees are nearer where their depth is, not by bodies alone.
        beginnings: what is asked is like what its own name begins with, where it was not measured itself.
        usual: the choice that others must beat.
        margin: times faster that they must have been measured.
    """

    name: str
    choices: tuple[str, ...]
    like: float
    again: tuple[str, ...]
    by_depth: bool = True
    beginnings: bool = False
    usual: str = ""
    margin: float = 1.0


@dataclass(frozen=True)
class Row:
    """A measurement: `seconds` of a call.

    `chooser`: the name of a `Section`; `asked`: a query or a task; `depth`: of the tree, the bodies on its longest
    path; `choice`: what answered, an engine's name or a kernel's.
    """

    chooser: str
    asked: str
    dtype: str
    bodies: int
    depth: int
    batch: int
    choice: str
    seconds: float

    @property
    def place(self) -> tuple[str, str, int, int, int]:
        """What was measured, whichever the choice."""
        return self.asked, self.dtype, self.bodies, self.depth, self.batch


class Table:
    """Measurements of one section, and a table that holds where these say nothing.

    Rows of other choosers are left out.
    """

    def __init__(self, section: Section, rows: Iterable[Row], otherwise: Table | None = None) -> None:
        self.section, self.otherwise = section, otherwise
        self.rows = tuple(row for row in rows if row.chooser == section.name)

    def near(
        self, asked: str, dtype: str, bodies: int, depth: int, batch: int, among: Container[str] | None = None
    ) -> list[Row]:
        """The rows nearest to a call, all equally near; none where nothing like it was measured. `among`: choices that
        are left, all if None."""
        section = self.section
        if not batch:
            return []
        rows = [
            row
            for row in self.rows
            if row.dtype == dtype
            and (row.asked == asked or (section.beginnings and asked.startswith(row.asked)))
            and (among is None or row.choice in among)
            and max(row.bodies, bodies) <= section.like * min(row.bodies, bodies)
        ]
        if not rows:
            return self.otherwise.near(asked, dtype, bodies, depth, batch, among) if self.otherwise else []

        def distance(row: Row) -> tuple[bool, float, float]:
            tree = abs(math.log2(row.bodies / bodies))
            if section.by_depth:
                tree += abs(math.log2(row.depth / depth))
            return row.asked != asked, tree, abs(math.log2(row.batch / batch))

        distances = list(map(distance, rows))
        closest = min(distances)
        return [row for row, far in zip(rows, distances, strict=True) if far == closest]

    def nearest(self, asked: str, dtype: str, bodies: int, depth: int, batch: int) -> dict[str, float]:
        """Seconds by choice, the one to take first, where something like this call was measured; else nothing."""
        found = {row.choice: row.seconds for row in self.near(asked, dtype, bodies, depth, batch)}
        return dict(sorted(found.items(), key=lambda item: self._handicapped(*item)))

    def estimates(self, asked: str, dtype: str, model: Model, batch: int) -> dict[str, float]:
        """The same for a model."""
        return self.nearest(asked, dtype, model.n_bodies, model.tree.n_levels, batch)

    def unusual(self, asked: str, dtype: str, model: Model) -> bool:
        """Whether another choice than the usual one is the one to take for some batch of a model."""
        usual = self.section.usual
        batches = {row.batch for row in self.rows if (row.asked, row.dtype) == (asked, dtype)}
        return any(next(iter(self.estimates(asked, dtype, model, batch)), usual) != usual for batch in batches)

    def _handicapped(self, choice: str, seconds: float) -> float:
        """What choices are compared by."""
        return seconds if choice == self.section.usual else self.section.margin * seconds


# What is kept.


@cache
def table(section: Section, device: str = "", otherwise: Table | None = None) -> Table:
    """What was measured and kept of a section, on a device of that name."""
    return Table(section, _rows(section, _held(_known(), section.name, device)), otherwise)


def keep(found: Table, device: str = "") -> bool:
    """Keep measurements for other processes, in place of those that were made again and beside all others; whether that
    worked. The oldest of too many are dropped."""
    section, again = found.section, attrgetter(*found.section.again)
    replaced = set(map(again, found.rows))
    with ObjectCache.from_environment().alone():
        others = (row for row in _rows(section, _held(_file(), section.name, device)) if again(row) not in replaced)
        rows = (*others, *found.rows)[-_MOST_ROWS:]
        return _store([astuple(row)[1:] for row in rows], section.name, device)


def coefficients(chooser: str, terms: Mapping[str, Sequence[str]]) -> tuple[dict[str, list[float]], str] | None:
    """What was fitted to measurements and kept: a number for each of the terms by name, and where they come from, in
    words; None where nothing was."""
    found = _held(_known(), chooser, "")
    try:
        source, numbers = found["source"], {name: list(found["coefficients"][name]) for name in terms}
    except (TypeError, KeyError):
        return None
    good = isinstance(source, str) and all(
        len(numbers[name]) == len(terms[name]) and all(map(_is_number, numbers[name])) for name in terms
    )
    return ({name: list(map(float, each)) for name, each in numbers.items()}, source) if good else None


def keep_coefficients(chooser: str, fitted: Mapping[str, Sequence[float]], source: str) -> bool:
    """Keep what was fitted in place of what was; whether that worked."""
    found = {"source": source, "coefficients": {name: list(each) for name, each in fitted.items()}}
    with ObjectCache.from_environment().alone():
        return _store(found, chooser, "")


def forget() -> None:
    """Have the store read again when it is next asked, as a new process would."""
    _known.cache_clear()
    table.cache_clear()


# The file.


def _rows(section: Section, found: Any) -> tuple[Row, ...]:
    """Rows of what JSON holds; none where one is strange."""
    good = isinstance(found, list) and len(found) <= _MOST_ROWS and all(_is_row(section, each) for each in found)
    return tuple(Row(section.name, *each) for each in found) if good else ()


def _is_row(section: Section, found: Any) -> bool:
    """Whether it is the fields of a row but the first."""
    if not isinstance(found, list) or [type(each) for each in found[:-1]] != [str, str, int, int, int, str]:
        return False
    *_, bodies, depth, batch, choice, seconds = found
    numbers = (bodies, depth, batch, seconds)
    return choice in section.choices and all(_is_number(each) and each > 0 for each in numbers)


def _is_number(found: Any) -> bool:
    return type(found) in (int, float) and abs(found) <= _LARGEST


def _key() -> str:
    """Under what the file is kept: times of another version or processor are others."""
    try:
        from robodyn.compile.llvm.target import host_target

        processor = host_target().cpu, host_target().level
    except (ImportError, OSError, UnavailableError):  # nothing is compiled here, but a GPU may be measured
        processor = platform.machine(), ""
    return hashlib.blake2b(repr(("measurements", __version__, *processor)).encode(), digest_size=20).hexdigest()


def _file() -> dict[str, Any]:
    """The file as it is now; empty where there is none, or one that cannot be read."""
    data = ObjectCache.from_environment().get(_key()) or b""
    try:
        found = json.loads(data) if len(data) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


_known = cache(_file)


def _held(file: Mapping[str, Any], name: str, device: str) -> Any:
    """What a file holds of a section, as JSON has it, or None."""
    by_device = file.get(name)
    return by_device.get(device) if isinstance(by_device, dict) else None


def _store(found: Any, name: str, device: str) -> bool:
    """Keep what JSON holds as a section, beside all others in the file as it is now; whether that worked."""
    file = _file()
    by_device = file.get(name)
    file[name] = {**(by_device if isinstance(by_device, dict) else {}), device: found}
    cache, key, data = ObjectCache.from_environment(), _key(), json.dumps(file).encode()
    if len(data) > _MOST_BYTES:
        return False
    cache.put(key, data, "what was measured on this machine")
    forget()
    return cache.get(key) == data
