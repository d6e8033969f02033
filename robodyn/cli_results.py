"""What the commands that compute do with states: query a model chunk by chunk, and show or write the results."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from rich.table import Table

from robodyn._version import __version__
from robodyn.arguments import Array, require_finite
from robodyn.dynamics import Dynamics
from robodyn.errors import ArgumentError, NumericalError
from robodyn.files import require_writable_kind
from robodyn.messages import printable, quoted
from robodyn.tables import console, number_tables, step_units, units

_CHUNK_STATES = 4096
_CHUNK_NUMBERS = 1 << 20
_STATES_DOWN, _STATES_ACROSS, _DOFS_SHOWN = 20, 5, 100


@dataclass(frozen=True)
class Query:
    """A query that a command asks: the method of `Dynamics`, what it takes, and what it answers.

    `results`: name of each result, and the units of its axes after that of states: a vector (nv) has one, a matrix
    (nv, nv) that of its rows and that of its columns ("step" for a small change of q).
    """

    method: str
    inputs: tuple[str, ...]
    results: dict[str, tuple[str, ...]]

    @property
    def matrices(self) -> bool:
        """Whether the results are matrices."""
        return any(len(axes) == 2 for axes in self.results.values())


QUERIES = {
    "id": Query("inverse_dynamics", ("q", "qd", "qdd"), {"tau": ("tau",)}),
    "fd": Query("forward_dynamics", ("q", "qd", "tau"), {"qdd": ("qdd",)}),
    "gradient of id": Query(
        "inverse_dynamics_gradient",
        ("q", "qd", "qdd"),
        {"dtau_dq": ("tau", "step"), "dtau_dqd": ("tau", "qd")},
    ),
    "gradient of fd": Query(
        "forward_dynamics_gradient",
        ("q", "qd", "tau"),
        {"dqdd_dq": ("qdd", "step"), "dqdd_dqd": ("qdd", "qd"), "dqdd_dtau": ("qdd", "tau")},
    ),
}


def compute(dyn: Dynamics, query: Query, states: Mapping[str, Array]) -> dict[str, Array]:
    """The results for all states, each (B, nv) or (B, nv, nv); with a progress bar where it may take long.

    Raises:
        NumericalError: a result is NaN or infinite; names the rows.
    """
    n, nv = len(states["q"]), dyn.model.nv
    results = {name: np.empty((n, *(nv,) * len(axes)), dyn.dtype) for name, axes in query.results.items()}
    step = max(1, min(_CHUNK_STATES, _CHUNK_NUMBERS // max(1, nv ** (2 if query.matrices else 1))))
    answer = getattr(dyn, query.method)
    starts: Iterable[int] = range(0, n, step)
    screen = console(stderr=True)
    if n > step and screen.is_terminal:
        starts = track(starts, description=f"{n} states", console=screen, transient=True)
    for start in starts:
        rows = slice(start, start + step)
        out = tuple(result[rows] for result in results.values())
        answer(*(states[name][rows] for name in query.inputs), out=out if len(out) > 1 else out[0])
    for name, result in results.items():
        try:
            require_finite(f"result {name}", result, result.ndim - 1)
        except NumericalError as error:
            raise NumericalError(f"{error}: the state is singular, overflows, or has huge angles") from None
    return results


# Onto the screen.


def show(dyn: Dynamics, query: Query, results: Mapping[str, Array]) -> None:
    """Print tables: of vectors the first states, of matrices the first state."""
    screen = console()
    n, nv = len(next(iter(results.values()))), dyn.model.nv
    if not n or not nv:
        screen.print(f"nothing to show: {n} states, {nv} degrees of freedom")
        return
    shown = 1
    for name, axes in query.results.items():
        labels = [_labels(dyn, axis)[:_DOFS_SHOWN] for axis in axes]
        values = results[name][:, :_DOFS_SHOWN]
        if query.matrices:
            tables = _matrix(name, labels[0], labels[1], values[0, :, :_DOFS_SHOWN], screen.width)
        else:
            shown, tables = _vectors(name, labels[0], values, screen.width)
        for table in tables:
            screen.print(table)
    left = [
        f"{count} more {what}"
        for count, what in ((n - shown, "states"), (nv - _DOFS_SHOWN, "degrees of freedom"))
        if count > 0
    ]
    if left:
        screen.print(f"... and {' and '.join(left)}; --out FILE or --json gives all of them")


def _matrix(title: str, rows: list[str], columns: list[str], values: Array, width: int) -> list[Table]:
    return number_tables(title, rows, [label.replace(" [", "\n[") for label in columns], values, width)


def _vectors(title: str, labels: list[str], values: Array, width: int) -> tuple[int, list[Table]]:
    """How many states are shown, and the tables: states go down, or across where the robot is too wide for that."""
    states = [f"state {i}" for i in range(min(len(values), _STATES_DOWN))]
    tables = _matrix(title, states, labels, values[: len(states)], width)
    if len(tables) <= 1:
        return len(states), tables
    across = states[:_STATES_ACROSS]
    return len(across), number_tables(title, labels, across, values[: len(across)].T, width)


def _axis_units(dyn: Dynamics, axis: str) -> tuple[str, ...]:
    return step_units(dyn.model) if axis == "step" else units(dyn.model, axis)


def _labels(dyn: Dynamics, axis: str) -> list[str]:
    names = map(printable, dyn.model.velocity_names)
    return [f"{name} [{unit}]" for name, unit in zip(names, _axis_units(dyn, axis), strict=True)]


def as_json(dyn: Dynamics, query: Query, states: Mapping[str, Array], results: Mapping[str, Array]) -> str:
    """Everything as one JSON object: what was asked of which model, names, units, and values as nested lists."""
    model = dyn.model
    inputs = {
        name: _entry(states[name], ["state", "coordinate" if name == "q" else "velocity"], [units(model, name)])
        for name in query.inputs
    }
    outputs = {
        name: _entry(results[name], ["state", *["velocity"] * len(axes)], [_axis_units(dyn, axis) for axis in axes])
        for name, axes in query.results.items()
    }
    return json.dumps(
        {
            "robodyn": __version__,
            "model": model.name,
            "query": query.method,
            "engine": dyn.engine.name,
            "dtype": str(dyn.dtype),
            "gravity": model.gravity.tolist(),
            "coordinate_names": list(model.coordinate_names),
            "velocity_names": list(model.velocity_names),
            "inputs": inputs,
            "results": outputs,
        },
        allow_nan=False,
    )


def _entry(values: Array, axes: list[str], axis_units: list[tuple[str, ...]]) -> dict[str, Any]:
    if len(axis_units) == 1:
        described: dict[str, Any] = {"units": list(axis_units[0])}
    else:
        rows, columns = map(list, axis_units)
        described = {"units": "row_units per column_units", "row_units": rows, "column_units": columns}
    return {"shape": list(values.shape), "axes": axes, **described, "values": values.tolist()}


# Into a file.


def output_path(text: str, query: Query) -> Path:
    """The path of `--out`, looked at before anything is computed.

    Raises:
        ArgumentError: it has no known ending, or its folder does not exist.
        OSError: it is there and no regular file.
    """
    path = Path(text)
    allowed = (".npz", ".json") if query.matrices else (".npz", ".json", ".csv")
    if path.suffix.lower() not in allowed:
        raise ArgumentError(f"--out: {quoted(text)} ends in {quoted(path.suffix)}; allowed here: {', '.join(allowed)}")
    if not path.parent.is_dir():
        raise ArgumentError(f"--out: {quoted(str(path.parent))} is not a folder")
    require_writable_kind(path)
    return path


def write(path: Path, dyn: Dynamics, query: Query, states: Mapping[str, Array], results: Mapping[str, Array]) -> None:
    """Write states and results, in the format that the path's ending names. Vectors written as .npz or .csv can be read
    as states again."""
    model = dyn.model
    if path.suffix.lower() == ".json":
        path.write_text(as_json(dyn, query, states, results) + "\n", encoding="utf-8")
    elif path.suffix.lower() == ".npz":
        names = {key: np.array(getattr(model, key), dtype=str) for key in ("coordinate_names", "velocity_names")}
        arrays: dict[str, Any] = {**states, **results, **names}
        with path.open("wb") as file:
            np.savez(file, **arrays)
    else:
        columns = {**states, **results}
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            own = {name: model.coordinate_names if name == "q" else model.velocity_names for name in columns}
            writer.writerow(f"{name}:{component}" for name in columns for component in own[name])
            writer.writerows([x for row in rows for x in row.tolist()] for rows in zip(*columns.values(), strict=True))
