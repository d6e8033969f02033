"""States for the commands that compute: from the command line, from a file, or drawn at random."""

from __future__ import annotations

import csv
import difflib
import re
import zipfile
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from robodyn.arguments import Array, broadcast_leading, real_array, require_finite
from robodyn.builders.findings import quoted
from robodyn.errors import ArgumentError, NumericalError
from robodyn.model import Model

QUANTITIES = ("q", "qd", "qdd", "tau")
_NAME_ARRAYS = ("coordinate_names", "velocity_names")
_LISTED = 40


def numbers(option: str, text: str, names: Sequence[str]) -> list[float]:
    """The numbers of an option's text, separated by commas or blanks: one for each of `names`.

    Raises:
        ArgumentError: something is not a number, or there are more or fewer than names.
    """
    words = re.split(r"\s*,\s*|\s+", text.strip()) if text.strip() else []
    values = []
    for place, word in enumerate(words, start=1):
        try:
            values.append(float(word))
        except ValueError:
            raise ArgumentError(f"{option}: entry {place} is {quoted(word)}; wanted a number") from None
    if len(values) != len(names):
        raise ArgumentError(f"{option}: {len(values)} given; wanted {len(names)}, for {_listed(names)}")
    return values


def read_states(model: Model, inputs: Sequence[str], options: Mapping[str, Any]) -> dict[str, Array]:
    """The states that the options of a command ask for: (B, nq) for q, (B, nv) for the others of `inputs`.

    What is not given is zero, and neutral for q. Quaternions come out as unit ones.

    Raises:
        ArgumentError: options that exclude each other, a file that cannot be read, wrong names, counts or shapes.
        NumericalError: NaN or infinity among the values.
    """
    typed = {name: options[name] for name in QUANTITIES if options.get(name) is not None}
    path, n_random, seed = options["states"], options["random"], options["seed"]
    if bool(typed) + (path is not None) + (n_random is not None) > 1:
        raise ArgumentError("states come from --q, --qd and the like, or from --states, or from --random; give one")
    if seed is not None and n_random is None:
        raise ArgumentError("--seed goes with --random, which is not given")
    for name in typed:
        if name not in inputs:
            raise ArgumentError(
                f"--{name} has no part in what is asked for; wanted {', '.join(f'--{i}' for i in inputs)}"
            )
    if n_random is not None:
        return _complete(model, inputs, _random(model, inputs, n_random, seed or 0))
    if path is not None:
        return _from_file(model, inputs, Path(path))
    names = _names(model)
    return _complete(model, inputs, {name: numbers(f"--{name}", text, names[name]) for name, text in typed.items()})


def _names(model: Model) -> dict[str, tuple[str, ...]]:
    return {"q": model.coordinate_names, **dict.fromkeys(QUANTITIES[1:], model.velocity_names)}


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return (", ".join(names[:_LISTED]) or "nothing: the robot has no degree of freedom") + more


def _random(model: Model, inputs: Sequence[str], n: int, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    q = model.random_configuration(rng, (n,))
    return {"q": q, **{name: rng.uniform(-1.0, 1.0, (n, model.nv)) for name in inputs[1:]}}


def _complete(model: Model, inputs: Sequence[str], values: Mapping[str, Any]) -> dict[str, Array]:
    """Check what is given, all of it, and fill in what is not."""
    sizes = {name: len(names) for name, names in _names(model).items()}
    given = {name: real_array(name, value, (sizes[name],), np.float64) for name, value in values.items()}
    for name, value in given.items():
        if value.ndim > 2:
            raise ArgumentError(f"{name}: got shape {value.shape}; wanted (states, {sizes[name]})")
        require_finite(name, value, 1)
    if "q" in given:
        given["q"] = model.normalized(given["q"])
    leading = broadcast_leading({name: (value, 1) for name, value in given.items()}) or (1,)
    default = {"q": model.neutral(), **dict.fromkeys(QUANTITIES[1:], np.zeros(model.nv))}
    return {name: np.broadcast_to(given.get(name, default[name]), (*leading, sizes[name])) for name in inputs}


# Files.


def _from_file(model: Model, inputs: Sequence[str], path: Path) -> dict[str, Array]:
    readers = {".npz": _read_npz, ".npy": _read_npy, ".csv": _read_csv}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ArgumentError(
            f"--states: {quoted(str(path))} ends in {quoted(path.suffix)}; allowed: {', '.join(readers)}"
        )
    try:
        return _complete(model, inputs, reader(model, inputs, path))
    except (ArgumentError, NumericalError) as error:
        raise type(error)(f"--states {quoted(path.name)}: {error}") from None


def _read_npz(model: Model, inputs: Sequence[str], path: Path) -> dict[str, Array]:
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise ArgumentError("it is not an .npz file")
        file.seek(0)
        contents = _numpy_file(file)
    unknown = sorted(set(contents) - {*QUANTITIES, *_NAME_ARRAYS})
    if unknown or not set(contents) & set(QUANTITIES):
        got = ", ".join(map(quoted, unknown)) or "none of them"
        raise ArgumentError(f"wrong keys: got {got}; allowed: {', '.join(QUANTITIES)}")
    for key in set(contents) & set(_NAME_ARRAYS):
        if contents[key].tolist() != list(getattr(model, key)):
            raise ArgumentError(f"its {key} are not those of {model.name!r}")
    return {name: contents[name] for name in QUANTITIES if name in contents}


def _read_npy(model: Model, inputs: Sequence[str], path: Path) -> dict[str, Array]:
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise ArgumentError("it is not an .npy file")
        file.seek(0)
        contents = _numpy_file(file)
    columns = real_array(f"{', '.join(inputs)} side by side", contents, (model.nq + 2 * model.nv,), np.float64)
    parts = np.split(columns, [model.nq, model.nq + model.nv], axis=-1)
    return dict(zip(inputs, parts, strict=True))


def _numpy_file(file: IO[bytes]) -> Any:
    """The array of an .npy file, or the arrays of an .npz file by name."""
    try:
        loaded = np.load(file, allow_pickle=False)
        return dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else loaded
    except Exception as error:  # a damaged file may raise almost anything
        raise ArgumentError(f"it cannot be read: {error}") from None


def _read_csv(model: Model, inputs: Sequence[str], path: Path) -> dict[str, Array]:
    names = _names(model)
    places = {f"{quantity}:{name}": (quantity, i) for quantity in QUANTITIES for i, name in enumerate(names[quantity])}
    if len(places) != sum(map(len, names.values())):
        raise ArgumentError("two coordinates of the robot share a name, so columns cannot tell them apart; use .npz")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, table = _csv_table(csv.reader(file))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ArgumentError(f"it cannot be read: {error}") from None
    for name in header:
        if name not in places:
            near = difflib.get_close_matches(name, places, n=3) or list(places)[:3]
            raise ArgumentError(f"got a column {quoted(name)}; wanted columns such as {', '.join(map(quoted, near))}")
    values: dict[str, Array] = {}
    for column, name in enumerate(header):
        quantity, i = places[name]
        if quantity not in values:
            rest = model.neutral() if quantity == "q" else np.zeros(model.nv)
            values[quantity] = np.tile(rest, (len(table), 1))
        values[quantity][:, i] = table[:, column]
    return values


def _csv_table(rows: Any) -> tuple[list[str], Array]:
    """The header of a CSV file and its numbers, (rows, columns)."""
    header = [name.strip() for name in next(rows, [])]
    if not header:
        raise ArgumentError("it is empty; wanted a header that names the columns")
    twice = [name for name, times in Counter(header).items() if times > 1]
    if twice:
        raise ArgumentError(f"two columns are named {quoted(twice[0])}")
    values = array("d")
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise ArgumentError(f"line {rows.line_num} has {len(row)} values; wanted {len(header)}, as in the header")
        for name, text in zip(header, row, strict=True):
            try:
                values.append(float(text))
            except ValueError:
                where = f"line {rows.line_num}, column {quoted(name)}"
                raise ArgumentError(f"{where}: got {quoted(text)}; wanted a number") from None
    return header, np.array(values).reshape(-1, len(header))
