"""A store of measured run times on this machine, shared between processes.

Choosers pick the engine, the kernel or the method for a call. Each chooser has a section of the store. A section holds
either rows or coefficients. A row is the time of one choice for one call; a chooser looks up the rows nearest to a
call. Coefficients are fitted to measured times.

The store is a JSON file in the cache of machine code, one for each version of robodyn and each processor. Sections are
stored by the name of the measured device, "" for the CPU. A damaged file or section counts as empty; it is never an
error.
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
"""Maximal bytes of the file, and maximal rows of a section on one device: a few times as many as `robodyn tune`
stores."""
_LARGEST = 2.0**53
"""Maximal absolute value of numbers: all integers up to it are exact as doubles."""


@dataclass(frozen=True)
class Section:
    """A chooser's part of the store, and its rules for similar calls.

    Args:
        name: name of the chooser.
        choices: allowed choices; rows with another choice are invalid.
        like: maximal ratio between numbers of bodies of similar trees.
        again: fields of rows that identify a measurement; a new row replaces an old one with the same values.
        by_depth: True if the distance between trees includes their depths, not bodies alone.
        beginnings: True if a query without rows may use rows of a query whose name is a prefix of its name.
        usual: the default choice.
        margin: factor by which another choice must be faster than the default.
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

    `chooser`: name of a `Section`; `asked`: name of a query or a task; `depth`: number of bodies on the longest path of
    the tree; `choice`: name of the engine or kernel that was measured.
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
        """The call that was measured, without the choice."""
        return self.asked, self.dtype, self.bodies, self.depth, self.batch


class Table:
    """Measurements of one section, with a second table for calls that are not similar to any of them.

    Rows of other choosers are ignored.
    """

    def __init__(self, section: Section, rows: Iterable[Row], otherwise: Table | None = None) -> None:
        self.section, self.otherwise = section, otherwise
        self.rows = tuple(row for row in rows if row.chooser == section.name)

    def near(
        self, asked: str, dtype: str, bodies: int, depth: int, batch: int, among: Container[str] | None = None
    ) -> list[Row]:
        """The rows nearest to a call, all at the same distance. Empty if no similar call was measured. `among`: allowed
        choices; None allows all."""
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
        """Seconds by choice for the most similar measured call, best choice first. Empty if no similar call was
        measured."""
        seconds = {row.choice: row.seconds for row in self.near(asked, dtype, bodies, depth, batch)}
        return dict(sorted(seconds.items(), key=lambda item: self._compared_seconds(*item)))

    def estimates(self, asked: str, dtype: str, model: Model, batch: int) -> dict[str, float]:
        """`nearest` for a model."""
        return self.nearest(asked, dtype, model.n_bodies, model.tree.n_levels, batch)

    def unusual(self, asked: str, dtype: str, model: Model) -> bool:
        """True if another choice than the default is best for some measured batch size of a model."""
        usual = self.section.usual
        batches = {row.batch for row in self.rows if (row.asked, row.dtype) == (asked, dtype)}
        return any(next(iter(self.estimates(asked, dtype, model, batch)), usual) != usual for batch in batches)

    def _compared_seconds(self, choice: str, seconds: float) -> float:
        """Seconds for comparisons: times `margin` for choices other than the default."""
        return seconds if choice == self.section.usual else self.section.margin * seconds


# Access to the store.


@cache
def table(section: Section, device: str = "", otherwise: Table | None = None) -> Table:
    """The stored measurements of a section on a device."""
    return Table(section, _rows(section, _section_data(_known(), section.name, device)), otherwise)


def keep(found: Table, device: str = "") -> bool:
    """Store measurements for other processes. They replace older measurements of the same calls; the oldest rows are
    dropped if there are too many. False if the store could not be written."""
    section, again = found.section, attrgetter(*found.section.again)
    replaced = set(map(again, found.rows))
    with ObjectCache.from_environment().alone():
        others = (
            row for row in _rows(section, _section_data(_file(), section.name, device)) if again(row) not in replaced
        )
        rows = (*others, *found.rows)[-_MOST_ROWS:]
        return _store([astuple(row)[1:] for row in rows], section.name, device)


def coefficients(chooser: str, terms: Mapping[str, Sequence[str]]) -> tuple[dict[str, list[float]], str] | None:
    """Fitted coefficients of a chooser: numbers for the terms by name, and a description of their source. None if none
    are stored."""
    entry = _section_data(_known(), chooser, "")
    try:
        source, numbers = entry["source"], {name: list(entry["coefficients"][name]) for name in terms}
    except (TypeError, KeyError):
        return None
    good = isinstance(source, str) and all(
        len(numbers[name]) == len(terms[name]) and all(map(_is_number, numbers[name])) for name in terms
    )
    return ({name: list(map(float, values)) for name, values in numbers.items()}, source) if good else None


def keep_coefficients(chooser: str, fitted: Mapping[str, Sequence[float]], source: str) -> bool:
    """Store fitted coefficients in place of older ones. False if the store could not be written."""
    section = {"source": source, "coefficients": {name: list(values) for name, values in fitted.items()}}
    with ObjectCache.from_environment().alone():
        return _store(section, chooser, "")


def forget() -> None:
    """Read the store anew at its next use, as a new process would."""
    _known.cache_clear()
    table.cache_clear()


# The file.


def _rows(section: Section, found: Any) -> tuple[Row, ...]:
    """Rows of a section's JSON data; none if one row is invalid."""
    good = isinstance(found, list) and len(found) <= _MOST_ROWS and all(_is_row(section, each) for each in found)
    return tuple(Row(section.name, *each) for each in found) if good else ()


def _is_row(section: Section, found: Any) -> bool:
    """True if JSON data are the fields of a valid row, without its first field."""
    if not isinstance(found, list) or [type(each) for each in found[:-1]] != [str, str, int, int, int, str]:
        return False
    *_, bodies, depth, batch, choice, seconds = found
    numbers = (bodies, depth, batch, seconds)
    return choice in section.choices and all(_is_number(each) and each > 0 for each in numbers)


def _is_number(found: Any) -> bool:
    return type(found) in (int, float) and abs(found) <= _LARGEST


def _key() -> str:
    """The cache key of the file: times of another version or another processor are stored separately."""
    try:
        from robodyn.compile.llvm.target import host_target

        processor = host_target().cpu, host_target().level
    except (ImportError, OSError, UnavailableError):  # nothing is compiled here, but a GPU may be measured
        processor = platform.machine(), ""
    return hashlib.blake2b(repr(("measurements", __version__, *processor)).encode(), digest_size=20).hexdigest()


def _file() -> dict[str, Any]:
    """The file as it is now; empty if it does not exist or cannot be read."""
    data = ObjectCache.from_environment().get(_key()) or b""
    try:
        content = json.loads(data) if len(data) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        content = None
    return content if isinstance(content, dict) else {}


_known = cache(_file)


def _section_data(file: Mapping[str, Any], name: str, device: str) -> Any:
    """A section's JSON data in a file, or None."""
    by_device = file.get(name)
    return by_device.get(device) if isinstance(by_device, dict) else None


def _store(found: Any, name: str, device: str) -> bool:
    """Write a section's JSON data; other sections of the file remain. False if the file could not be written."""
    file = _file()
    by_device = file.get(name)
    file[name] = {**(by_device if isinstance(by_device, dict) else {}), device: found}
    cache, key, data = ObjectCache.from_environment(), _key(), json.dumps(file).encode()
    if len(data) > _MOST_BYTES:
        return False
    cache.put(key, data, "what was measured on this machine")
    forget()
    return cache.get(key) == data
