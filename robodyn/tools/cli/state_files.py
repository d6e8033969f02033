"""Reads states from .npz, .npy and .csv files. Names, shapes and sizes are checked before numbers are loaded."""

from __future__ import annotations

import csv
import io
import math
import os
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from robodyn.core.model import Model
from robodyn.engines.query_table import every_query
from robodyn.internals.archives import Archive, npy_like, read_npy
from robodyn.internals.arguments import Array, real_array
from robodyn.internals.errors import ArgumentError
from robodyn.internals.files import open_regular
from robodyn.internals.messages import near_misses, quoted
from robodyn.io.builders.values import number

QUANTITIES = ("q", "qd", "qdd", "tau", "vector")
"""Arrays that a state may have."""

MAX_BYTES = 2 << 30
"""Largest size of a file and of its numbers in memory. A small compressed file can unpack to any size."""

NO_NUMBER = "wanted a finite number in plain decimals such as 1, -0.5 or 2e-3"
"""Message for a text that is no number."""

NAME_ARRAYS = ("coordinate_names", "velocity_names")
"""Arrays of an .npz file that identify the robot, so that its states are not used for another one."""

_REAL = "fiu"
"""Allowed dtype kinds of numbers."""

_NUMBER_BYTES = np.dtype(np.float64).itemsize

LONGEST_LINE = 4 << 20
"""Longest row of a .csv file in characters, including line breaks in quotes."""


def component_names(model: Model) -> dict[str, tuple[str, ...]]:
    """The names of the components of each quantity."""
    return {"q": model.coordinate_names, **dict.fromkeys(QUANTITIES[1:], model.velocity_names)}


def read_state_file(model: Model, inputs: Sequence[str], path: Path) -> dict[str, Array]:
    """The arrays of a file of states, each (nq,) or (nv,) with leading axes, not checked for NaN.

    Raises:
        OSError: the file cannot be opened.
        ArgumentError: unknown suffix, no regular file, a file that cannot be read or is too large, wrong names, counts
            or shapes.
        UnavailableError: there is no memory for it.
    """
    readers = {".npz": _read_npz, ".npy": _read_npy, ".csv": _read_csv}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ArgumentError(f"it ends in {quoted(path.suffix)}; allowed: {', '.join(readers)}")
    with open_regular(path) as file:
        _require_size(os.fstat(file.fileno()).st_size)
        return reader(model, inputs, file)


def _require_size(size: int) -> None:
    if size > MAX_BYTES:
        raise ArgumentError(f"it takes {size} bytes; at most {MAX_BYTES} are read, so split it")


def _read_npz(model: Model, inputs: Sequence[str], file: IO[bytes]) -> dict[str, Array]:
    archive = Archive(file)
    _check_keys(archive.keys)
    keys = [key for key in archive.keys if key in (*QUANTITIES, *NAME_ARRAYS)]
    likes = {key: archive.like(key, "U" if key in NAME_ARRAYS else _REAL) for key in keys}
    for key, names in component_names(model).items():
        if key in likes:
            real_array(key, likes[key], (len(names),), likes[key].dtype)
    _require_size(sum(map(_size_in_memory, likes.values())))
    for key in set(keys) & set(NAME_ARRAYS):
        names = getattr(model, key)
        if likes[key].shape != (len(names),) or not np.array_equal(archive.read(key, "U"), np.array(names, dtype=str)):
            raise ArgumentError(f"its {key} are not those of {model.name!r}")
    return {key: archive.read(key, _REAL) for key in keys if key in QUANTITIES}


def _results() -> set[str]:
    """Names of results, which files written by this program contain besides states."""
    return {name for question in every_query().values() for name in question.results} - {*QUANTITIES}


def _check_keys(keys: Sequence[str]) -> None:
    unknown = sorted(set(keys) - {*QUANTITIES, *NAME_ARRAYS} - _results())
    if unknown or not set(keys) & set(QUANTITIES):
        got = ", ".join(map(quoted, unknown)) or "none of them"
        raise ArgumentError(f"wrong keys: got {got}; allowed: {', '.join(QUANTITIES)}")


def _read_npy(model: Model, inputs: Sequence[str], file: IO[bytes]) -> dict[str, Array]:
    sizes = [model.nq if name == "q" else model.nv for name in inputs]
    what, shape = f"{', '.join(inputs)} side by side", (sum(sizes),)
    like = npy_like(file, _REAL)
    real_array(what, like, shape, like.dtype)
    _require_size(_size_in_memory(like))
    columns = real_array(what, read_npy(file, _REAL), shape, np.float64)
    return dict(zip(inputs, np.split(columns, np.cumsum(sizes)[:-1], axis=-1), strict=True))


def _size_in_memory(like: Array) -> int:
    """Bytes of an array like `like` in float64. A state counts as one number at least: a file for a robot without
    degrees of freedom can declare any number of states."""
    return math.prod(max(1, extent) for extent in map(int, like.shape)) * max(int(like.itemsize), _NUMBER_BYTES)


def _read_csv(model: Model, inputs: Sequence[str], file: IO[bytes]) -> dict[str, Array]:
    names = component_names(model)
    places = {f"{quantity}:{name}": (quantity, i) for quantity in QUANTITIES for i, name in enumerate(names[quantity])}
    if len(places) != sum(map(len, names.values())):
        raise ArgumentError("two coordinates of the robot share a name, so columns cannot tell them apart; use .npz")
    try:
        with io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
            lines = _Lines(text)
            # Strip blanks around a column's name unless the robot's name contains them.
            header = [name if name in places else name.strip() for name in next(lines, [])]
            _check_header([name for name in header if name.split(":")[0] not in _results()] or header, list(places))
            quantities = {places[name][0] for name in header if name in places}
            table = _csv_table(lines, header, sum(len(names[quantity]) for quantity in quantities))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ArgumentError(f"it cannot be read: {error}") from None
    values: dict[str, Array] = {}
    for column, name in enumerate(header):
        if name not in places:  # the column of a result
            continue
        quantity, i = places[name]
        if quantity not in values:
            rest = model.neutral() if quantity == "q" else np.zeros(model.nv)
            values[quantity] = np.tile(rest, (len(table), 1))
        values[quantity][:, i] = table[:, column]
    return values


def _check_header(header: Sequence[str], known: Sequence[str]) -> None:
    if not header:
        raise ArgumentError("it is empty; wanted a header that names the columns")
    twice = [name for name, times in Counter(header).items() if times > 1]
    if twice:
        raise ArgumentError(f"two columns are named {quoted(twice[0])}")
    allowed = set(known)
    for name in header:
        if name not in allowed:
            near = ", ".join(map(quoted, near_misses(name, known, otherwise=3)))
            raise ArgumentError(f"got a column {quoted(name)}; wanted columns such as {near}")


class _Lines:
    """Iterates over the rows of a .csv file as lists of values; raises for rows longer than `LONGEST_LINE`."""

    def __init__(self, text: IO[str]) -> None:
        self._text, self._left = text, 0
        self._rows = csv.reader(self._pieces())

    def _pieces(self) -> Iterator[str]:
        while piece := self._text.readline(self._left + 1):
            self._left -= len(piece)
            if self._left < 0:
                raise ArgumentError(
                    f"line {self.number + 1} is longer than {LONGEST_LINE} characters; use .npz for so many columns"
                )
            yield piece

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        self._left = LONGEST_LINE
        return next(self._rows)

    @property
    def number(self) -> int:
        """Number of the line read last, from 1."""
        return self._rows.line_num


def _csv_table(lines: _Lines, header: Sequence[str], width: int) -> Array:
    """The numbers of a CSV file below its header, (rows, columns). `width`: numbers of a row in memory."""
    values = array("d")
    max_values = MAX_BYTES // (_NUMBER_BYTES * max(width, len(header))) * len(header)
    for row in lines:
        if not row:
            continue
        if len(row) != len(header):
            raise ArgumentError(f"line {lines.number} has {len(row)} values; wanted {len(header)}, as in the header")
        if len(values) >= max_values:
            raise ArgumentError(f"line {lines.number}: its numbers take more than {MAX_BYTES} bytes, so split it")
        for name, text in zip(header, row, strict=True):
            value = number(text)
            if value is None:
                where = f"line {lines.number}, column {quoted(name)}"
                raise ArgumentError(f"{where}: got {quoted(text)}; {NO_NUMBER}")
            values.append(value)
    return np.frombuffer(values, np.float64).reshape(-1, len(header))
