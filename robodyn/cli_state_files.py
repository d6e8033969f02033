"""States in files: .npz, .npy and .csv, with names, shapes and sizes looked at before numbers are loaded."""

from __future__ import annotations

import csv
import io
import math
import os
import zipfile
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from robodyn.arguments import Array, real_array
from robodyn.builders.values import number
from robodyn.errors import ArgumentError
from robodyn.files import open_regular
from robodyn.messages import near_misses, quoted
from robodyn.model import Model
from robodyn.questions import QUESTIONS

QUANTITIES = ("q", "qd", "qdd", "tau", "vector")
"""What states consist of."""

MAX_BYTES = 2 << 30
"""Most bytes of a file, and of its numbers as they are in memory: a small compressed file can unpack to any size."""

NO_NUMBER = "wanted a finite number in plain decimals such as 1, -0.5 or 2e-3"
"""What to say about a text that is no number."""

_NAME_ARRAYS = ("coordinate_names", "velocity_names")
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def component_names(model: Model) -> dict[str, tuple[str, ...]]:
    """The names of the components of each quantity."""
    return {"q": model.coordinate_names, **dict.fromkeys(QUANTITIES[1:], model.velocity_names)}


def read_state_file(model: Model, inputs: Sequence[str], path: Path) -> dict[str, Array]:
    """The quantities that a file of states holds, each (nq,) or (nv,) with leading axes; not looked at for NaN.

    Raises:
        OSError: the file cannot be opened, or is no regular file.
        ArgumentError: another ending, a file that cannot be read or is too large, wrong names, counts or shapes.
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


@contextmanager
def _damaged() -> Iterator[None]:
    """Around code that reads a file that may be damaged, which may raise almost anything."""
    try:
        yield
    except (ArgumentError, MemoryError):
        raise
    except Exception as error:
        raise ArgumentError(f"it cannot be read: {error}") from None


def _read_npz(model: Model, inputs: Sequence[str], file: IO[bytes]) -> dict[str, Array]:
    if not zipfile.is_zipfile(file):
        raise ArgumentError("it is not an .npz file")
    sizes = {name: len(names) for name, names in component_names(model).items()}
    with _damaged(), zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        keys = [member.filename.removesuffix(".npy") for member in members]
        _check_keys(keys)
        total = 0
        for key, member in zip(keys, members, strict=True):
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ArgumentError(f"it cannot be read: {key} is compressed as NumPy does not do it")
            with archive.open(member) as part:
                like = _stand_in(part, key, member.file_size)
            if key in sizes:
                real_array(key, like, (sizes[key],), like.dtype)
            total += _size_in_memory(like)
        _require_size(total)
    file.seek(0)
    with _damaged():
        contents = dict(np.load(file, allow_pickle=False))
    for key in set(keys) & set(_NAME_ARRAYS):
        if contents[key].tolist() != list(getattr(model, key)):
            raise ArgumentError(f"its {key} are not those of {model.name!r}")
    return {name: contents[name] for name in QUANTITIES if name in contents}


def _results() -> set[str]:
    """Names of what queries return, which stands beside states in files that this command wrote."""
    return {name for question in QUESTIONS.values() for name in question.results} - {*QUANTITIES}


def _check_keys(keys: Sequence[str]) -> None:
    unknown = sorted(set(keys) - {*QUANTITIES, *_NAME_ARRAYS} - _results())
    if unknown or not set(keys) & set(QUANTITIES):
        got = ", ".join(map(quoted, unknown)) or "none of them"
        raise ArgumentError(f"wrong keys: got {got}; allowed: {', '.join(QUANTITIES)}")
    if len(set(keys)) < len(keys):
        raise ArgumentError(f"it cannot be read: it holds {quoted(Counter(keys).most_common(1)[0][0])} twice")


def _read_npy(model: Model, inputs: Sequence[str], file: IO[bytes]) -> dict[str, Array]:
    if file.read(6) != np.lib.format.MAGIC_PREFIX:
        raise ArgumentError("it is not an .npy file")
    file.seek(0)
    sizes = [model.nq if name == "q" else model.nv for name in inputs]
    what, shape = f"{', '.join(inputs)} side by side", (sum(sizes),)
    with _damaged():
        like = _stand_in(file, "the array", os.fstat(file.fileno()).st_size)
        real_array(what, like, shape, like.dtype)
        _require_size(_size_in_memory(like))
        file.seek(0)
        columns = real_array(what, np.load(file, allow_pickle=False), shape, np.float64)
    return dict(zip(inputs, np.split(columns, np.cumsum(sizes)[:-1], axis=-1), strict=True))


def _stand_in(file: IO[bytes], name: str, size: int) -> Array:
    """An array that takes no memory, of the shape and dtype that the header at the start of an .npy file promises."""
    read_header = _HEADERS.get(np.lib.format.read_magic(file))
    if read_header is None:
        raise ArgumentError(f"it cannot be read: {name} is not of version 1 or 2 of the format")
    shape, _, dtype = read_header(file)
    if dtype.kind not in "fiuU":
        raise ArgumentError(f"it cannot be read: {name} holds {dtype}, and pickles are refused; wanted real numbers")
    if math.prod(shape) * dtype.itemsize != size - file.tell():
        raise ArgumentError(f"it cannot be read: {name} is not as long as its shape {shape} demands")
    return np.broadcast_to(np.zeros((), dtype), shape)


def _size_in_memory(like: Array) -> int:
    """Bytes of what `like` stands for, whose numbers become float64."""
    return int(like.size) * max(like.itemsize, np.dtype(np.float64).itemsize)


def _read_csv(model: Model, inputs: Sequence[str], file: IO[bytes]) -> dict[str, Array]:
    names = component_names(model)
    places = {f"{quantity}:{name}": (quantity, i) for quantity in QUANTITIES for i, name in enumerate(names[quantity])}
    if len(places) != sum(map(len, names.values())):
        raise ArgumentError("two coordinates of the robot share a name, so columns cannot tell them apart; use .npz")
    try:
        with io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
            rows = csv.reader(text)
            # Blanks around a name are no part of it, unless the robot's name has them.
            header = [name if name in places else name.strip() for name in next(rows, [])]
            _check_header([name for name in header if name.split(":")[0] not in _results()] or header, list(places))
            table = _csv_table(rows, header)
    except (csv.Error, UnicodeDecodeError) as error:
        raise ArgumentError(f"it cannot be read: {error}") from None
    values: dict[str, Array] = {}
    for column, name in enumerate(header):
        if name not in places:  # a result's
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


def _csv_table(rows: Any, header: Sequence[str]) -> Array:
    """The numbers of a CSV file below its header, (rows, columns)."""
    values = array("d")
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise ArgumentError(f"line {rows.line_num} has {len(row)} values; wanted {len(header)}, as in the header")
        for name, text in zip(header, row, strict=True):
            value = number(text)
            if value is None:
                where = f"line {rows.line_num}, column {quoted(name)}"
                raise ArgumentError(f"{where}: got {quoted(text)}; {NO_NUMBER}")
            values.append(value)
    return np.array(values).reshape(-1, len(header))
