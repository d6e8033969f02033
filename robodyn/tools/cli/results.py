"""Answers queries for the commands that compute, chunk by chunk, and shows or writes the results."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from inspect import signature
from itertools import product
from math import prod
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from rich.progress import track
from rich.table import Table

from robodyn.api.dynamics import Dynamics
from robodyn.api.queries.obstacles import Obstacles
from robodyn.core.constraints.refusals import constraints_named
from robodyn.core.constraints.resolved import row_names
from robodyn.core.model import Model
from robodyn.core.tables import console, number_tables, step_units, units
from robodyn.engines.query_table import FRAMES, QuerySpec, Result, every_query, named
from robodyn.internals.arguments import Array, one_of, require_finite
from robodyn.internals.errors import ArgumentError, NumericalError
from robodyn.internals.files import file_named, require_writable, whole_file
from robodyn.internals.messages import near_misses, printable, quoted
from robodyn.internals.records import dataclass
from robodyn.internals.version import __version__
from robodyn.io.builders.values import whole_number
from robodyn.tools.cli.obstacle_files import read_obstacles
from robodyn.tools.cli.state_files import NAME_ARRAYS
from robodyn.tools.cli.states import numbers

_CHUNK_STATES = 4096
_CHUNK_NUMBERS = 1 << 20
_OF_TREE = ("forward_dynamics", "inverse_dynamics", "mass_matrix_inverse")
"""Prefixes of queries that ignore constraints although these would change their results."""
_STATES_DOWN, _STATES_ACROSS, _SHOWN = 20, 5, 100


@dataclass(frozen=True)
class Asking:
    """The query of a command, its choices such as link and frame, and obstacles."""

    question: QuerySpec
    choices: Mapping[str, Any] = field(default_factory=dict)
    obstacles: Obstacles | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the query's inputs."""
        return self.question.plain

    @property
    def vectors(self) -> bool:
        """Whether every result is a scalar or a vector."""
        return all(len(result.axes) <= 1 for result in self.question.results.values())

    def shapes(self, model: Model) -> dict[str, tuple[int, ...]]:
        """Shapes of the results for one state."""
        shapes = self.question.shapes(model, self.question.plain)
        if self.obstacles is not None:
            n = model.n_pairs + len(self.obstacles.near(model)) * self.obstacles.count
            for name, result in self.question.results.items():
                if result.axes[:1] == ("n_pairs",):
                    shapes[name] = (n, *shapes[name][1:])
        return shapes


def asking(name: str, options: Mapping[str, Any]) -> Asking:
    """The query and choices of a command, from a query's name or short name and the options.

    Raises:
        ArgumentError: no such query, a missing link, or options that the query does not have.
    """
    known = named()
    if name not in known:
        near = ", ".join(near_misses(name, known, 3))
        raise ArgumentError(f"QUERY: got {quoted(name)}; wanted a query that `robodyn queries` lists, such as {near}")
    question, chosen = known[name]
    link = options.get("link")
    if question.of_link != (link is not None):
        raise ArgumentError(
            f"--link: not given; {name} is about a link" if link is None else f"--link: {name} is about no link"
        )
    choices: dict[str, Any] = dict(chosen)
    if question.of_link:
        choices["link"] = link
    for option, allowed in (("relative_to", question.can_be_relative), ("point", question.of_link)):
        value = options.get(option)
        if value is not None:
            if not allowed:
                raise ArgumentError(f"--{option.replace('_', '-')}: {name} takes none")
            choices[option] = numbers("--point", value, ("x", "y", "z")) if option == "point" else value
    frame = options.get("frame")
    if question.in_frame:
        choices["frame"] = one_of("--frame", "world_aligned" if frame is None else frame, FRAMES)
    elif frame is not None:
        raise ArgumentError(f"--frame: {name} is not seen from a frame")
    if not hasattr(Dynamics, question.name):
        raise ArgumentError(f"QUERY: {name} is in the table of queries, and Dynamics has no method of that name")
    path = options.get("obstacles")
    if path is None:
        return Asking(question, choices)
    if not takes_obstacles(question):
        raise ArgumentError(f"--obstacles: {name} takes none")
    return Asking(question, choices, read_obstacles(path))


def takes_obstacles(question: QuerySpec) -> bool:
    """Whether the query's method takes obstacles."""
    return "obstacles" in signature(getattr(Dynamics, question.name)).parameters


def require_constraints(option: str, model: Model, asked: Iterable[QuerySpec]) -> None:
    """Raise if a query is about constraints and the model has none.

    Raises:
        ArgumentError: names the first such query.
    """
    about = next((question for question in asked if question.of_constraints), None)
    if about is not None and not model.constraints:
        raise ArgumentError(f"{option}: {about.name} is about constraints, and {quoted(model.name)} has none")


def say_of_constraints(model: Model, asked: Iterable[QuerySpec]) -> None:
    """Note on standard error that these queries ignore the robot's constraints."""
    names = [each.name for each in asked if each.name.startswith(_OF_TREE)]
    if model.constraints and names:
        print(
            printable(
                f"robodyn: note: {quoted(model.name)} has constraints ({constraints_named(model)}), and is taken "
                f"without them for {', '.join(names)}; constrained_forward_dynamics obeys them, and in Python "
                "constrained_inverse_dynamics"
            ),
            file=sys.stderr,
        )


def linked(model: Model, text: str) -> str | int:
    """The link of an option: a name, or an index if no link has that name."""
    index = None if text in model.link_names else whole_number(text)
    return text if index is None else index


def list_queries(as_json: bool) -> None:
    """Print every query: names, inputs, results and description."""
    if as_json:
        print(json.dumps(list(map(_described, every_query().values())), indent=1))
        return
    table = Table("query", "short", "takes", "returns", "what it is")
    for name, question in every_query().items():
        short = ", ".join((*filter(None, (question.short,)), *question.variants))
        takes = ", ".join((*question.inputs, *(("link",) if question.of_link else ())))
        table.add_row(name, short, takes, ", ".join(question.results), question.about)
    screen = console()
    if not screen.is_terminal:  # a line for each query, for other programs
        screen.width = sys.maxsize
    table.columns[0].no_wrap = True
    screen.print(table)


def _described(question: QuerySpec) -> dict[str, Any]:
    results = {name: {"axes": list(result.axes), "unit": result.unit} for name, result in question.results.items()}
    return {
        "query": question.name,
        "short": question.short,
        "about": question.about,
        "inputs": list(question.inputs),
        "optional": list(question.optional),
        "link": question.of_link,
        "results": results,
        "engines": list(question.engines),
    }


def compute(dyn: Dynamics, asked: Asking, states: Mapping[str, Array]) -> dict[str, Array]:
    """The results for all states, each (B, ...). Several chunks show a progress bar.

    Raises:
        NumericalError: a result is NaN or infinite; names the rows.
    """
    question, n = asked.question, len(states["q"])
    require_constraints("QUERY", dyn.model, (question,))
    shapes = asked.shapes(dyn.model)
    results = {name: np.empty((n, *shape), dyn.dtype) for name, shape in shapes.items()}
    largest = max(1, *map(prod, shapes.values()), dyn.model.nv)
    step = max(1, min(_CHUNK_STATES, _CHUNK_NUMBERS // largest))
    starts: Iterable[int] = range(0, n, step)
    screen = console(stderr=True)
    if n > step and screen.is_terminal:
        starts = track(starts, description=f"{n} states", console=screen, transient=True)
    others = {name: value for name, value in asked.choices.items() if name != "link"}
    if "relative_to" in others:
        others["relative_to"] = linked(dyn.model, others["relative_to"])
    if asked.obstacles is not None:
        others["obstacles"] = asked.obstacles
    link = linked(dyn.model, asked.choices["link"]) if question.of_link else None
    for start in starts:
        rows = slice(start, start + step)
        out = tuple(result[rows] for result in results.values())
        inputs = {name: states[name][rows] for name in question.plain}
        by_place, by_name = question.arguments(inputs, link)
        getattr(dyn, question.name)(*by_place, **by_name, **others, out=out if len(out) > 1 else out[0])
    for name, result in results.items():
        try:
            require_finite(f"result {name}", result, result.ndim - 1)
        except NumericalError as error:
            raise NumericalError(f"{error}: the state is singular, overflows, or has huge angles") from None
    return results


# Tables.


def show(dyn: Dynamics, asked: Asking, results: Mapping[str, Array]) -> None:
    """Print tables: the first states of vector results, the first state of matrix results."""
    screen = console()
    n, nv = len(next(iter(results.values()))), dyn.model.nv
    if not any(array.size for array in results.values()):
        screen.print(f"nothing to show: {n} states, {nv} degrees of freedom")
        return
    shown = 1
    for name, result in asked.question.results.items():
        labels = [each[:_SHOWN] for each in axis_labels(dyn.model, result, asked.obstacles)]
        values = results[name]
        for axis in range(1, values.ndim):
            values = values.take(range(min(_SHOWN, values.shape[axis])), axis)
        if asked.vectors:
            columns = labels[0] if labels else [f"[{result.unit}]"]
            shown, tables = _vectors(name, columns, values.reshape(n, -1), screen.width)
        else:
            rows, columns = [", ".join(words) for words in product(*labels[:-1])], labels[-1] if labels else [""]
            tables = _matrix(name, rows, columns, values[0].reshape(len(rows), len(columns)), screen.width)
        for table in tables:
            screen.print(table)
    hidden = [
        f"{count} more {what}" for count, what in ((n - shown, "states"), *_hidden(dyn.model, asked)) if count > 0
    ]
    if hidden:
        screen.print(f"... and {' and '.join(hidden)}; --out FILE or --json gives all of them")


def _hidden(model: Model, asked: Asking) -> list[tuple[int, str]]:
    """Numbers of entries along axes that are not shown, with their names."""
    axes = {axis for result in asked.question.results.values() for axis in result.axes if isinstance(axis, str)}
    return [
        (len(_names(model, axis, asked.obstacles)) - _SHOWN, words) for axis, words in _MANY.items() if axis in axes
    ]


def _matrix(title: str, rows: list[str], columns: list[str], values: Array, width: int) -> list[Table]:
    return number_tables(title, rows, [label.replace(" [", "\n[") for label in columns], values, width)


def _vectors(title: str, labels: list[str], values: Array, width: int) -> tuple[int, list[Table]]:
    """The number of states shown, and the tables. States are rows, or columns if the vectors are too wide."""
    states = [f"state {i}" for i in range(min(len(values), _STATES_DOWN))]
    tables = _matrix(title, states, labels, values[: len(states)], width)
    if len(tables) <= 1:
        return len(states), tables
    across = states[:_STATES_ACROSS]
    return len(across), number_tables(title, labels, across, values[: len(across)].T, width)


_QUANTITIES = ("qd", "qdd", "tau", "step")
_SIX = ("angular x", "angular y", "angular z", "linear x", "linear y", "linear z")
_PARAMETERS = ("m", "mcx", "mcy", "mcz", "Ixx", "Ixy", "Ixz", "Iyy", "Iyz", "Izz")


_OBSTACLE = {"spheres": "sphere", "capsules": "capsule", "boxes": "box"}


def pair_names(model: Model, counts: Sequence[tuple[str, int]] = (), near: Sequence[int] = ()) -> list[str]:
    """Names of the pairs of `Dynamics.distances`: shapes by their names, or by index and link.

    `counts`: numbers of obstacles by kind; `near`: the shapes that are measured to them.
    """
    shapes = model.collision_geometries
    times = Counter(each.name for each in shapes)
    names = [
        each.name if each.name and times[each.name] == 1 else f"shape {k} of {each.link}"
        for k, each in enumerate(shapes)
    ]
    around = [f"{_OBSTACLE[kind]} {k}" for kind, count in counts for k in range(count)]
    return [f"{names[i]} - {names[j]}" for i, j in model.pairs] + [f"{names[i]} - {x}" for i in near for x in around]


def slot_names(model: Model) -> list[str]:
    """Names of the slots of a model's contacts: shapes by their names, or by kind and link, and a number where a pair
    has several."""
    names = []
    for pair in model.contacts.pairs if model.contacts is not None else ():
        shapes = (each.name or f"{each.kind} of {each.link or 'the world'}" for each in (pair.first, pair.second))
        name = " - ".join(shapes)
        names += [name] if pair.slots == 1 else [f"{name} {k}" for k in range(pair.slots)]
    return names


def _pairs_of(model: Model, obstacles: Obstacles | None) -> list[str]:
    if obstacles is None:
        return pair_names(model)
    return pair_names(model, [(kind, each.shape[-2]) for kind, each in obstacles.rows().items()], obstacles.near(model))


def _names(model: Model, axis: int | str, obstacles: Obstacles | None = None) -> list[str]:
    """Names of the entries along an axis."""
    if axis == "n_pairs":
        return list(map(printable, _pairs_of(model, obstacles)))
    if axis == "n_slots":
        return list(map(printable, slot_names(model)))
    if axis == "nv":
        return list(map(printable, model.velocity_names))
    if axis == "n_links":
        return list(map(printable, model.link_names))
    if axis == "n_bodies":
        return list(map(printable, model.body_names))
    if axis == "n_rows":
        return list(map(printable, row_names(model)))
    if axis == "nq":
        return list(map(printable, model.coordinate_names))
    if axis == "parameters":
        return [f"{printable(body)} {name}" for body in model.body_names for name in _PARAMETERS]
    return list({6: _SIX, 3: ("x", "y", "z")}.get(cast(int, axis), tuple(map(str, range(cast(int, axis))))))


def axis_units(model: Model, result: Result) -> list[tuple[str, ...] | None]:
    """Units of the entries along each axis of a result; None for axes without units of their own.

    The quantities in a result's unit belong to its axes of velocities, in order.
    """
    named = [word for part in result.unit.split(" / ") for word in part.split() if word in _QUANTITIES]
    along = [k for k, axis in enumerate(result.axes) if axis == "nv"]
    all_units: list[tuple[str, ...] | None] = [None] * len(result.axes)
    # Match from the last axis: "W / step qd" has no axis for W.
    for axis, quantity in zip(reversed(along), reversed(named), strict=False):
        all_units[axis] = step_units(model) if quantity == "step" else units(model, quantity)
    return all_units


def axis_labels(model: Model, result: Result, obstacles: Obstacles | None = None) -> list[list[str]]:
    """Names of the entries along each axis of a result, with units of entries."""
    labels = []
    for axis, each in zip(result.axes, axis_units(model, result), strict=True):
        names = _names(model, axis, obstacles)
        labels.append(names if each is None else [f"{name} [{unit}]" for name, unit in zip(names, each, strict=True)])
    return labels


def as_json(dyn: Dynamics, asked: Asking, states: Mapping[str, Array], results: Mapping[str, Array]) -> str:
    """A JSON object with the query, the model, names, units, and values as nested lists."""
    model, question = dyn.model, asked.question
    inputs = {
        name: _entry(
            states[name], ["coordinate" if name == "q" else "velocity"], [units(model, _quantity(name))], "as listed"
        )
        for name in asked.inputs
    }
    outputs = {
        name: _entry(results[name], _axes(result), axis_units(model, result), result.unit)
        for name, result in question.results.items()
    }
    return json.dumps(
        {
            "robodyn": __version__,
            "model": model.name,
            "query": question.name,
            **asked.choices,
            "engine": dyn.engine.name,
            "dtype": str(dyn.dtype),
            "gravity": model.gravity.tolist(),
            "coordinate_names": list(model.coordinate_names),
            "velocity_names": list(model.velocity_names),
            **({"pair_names": _pairs_of(model, asked.obstacles)} if question.of_shapes else {}),
            **({"slot_names": slot_names(model)} if question.of_contacts else {}),
            "inputs": inputs,
            "results": outputs,
        },
        allow_nan=False,
    )


_MANY = {
    "nv": "degrees of freedom",
    "n_links": "links",
    "n_bodies": "bodies",
    "parameters": "inertial parameters",
    "n_rows": "rows of constraints",
    "nq": "coordinates",
    "n_pairs": "pairs",
    "n_slots": "points of contact",
}
"""Names of axes, in the plural for tables; `_AXES` has those for JSON."""
_AXES = {
    "nv": "velocity",
    "n_links": "link",
    "n_bodies": "body",
    "parameters": "inertial parameter",
    "n_rows": "row",
    "nq": "coordinate",
    "n_pairs": "pair",
    "n_slots": "point of contact",
}


def _axes(result: Result) -> list[str]:
    return [_AXES[axis] if isinstance(axis, str) else f"{axis} components" for axis in result.axes]


def _quantity(name: str) -> str:
    """The quantity whose units an input has; a vector counts as a velocity."""
    return "qd" if name == "vector" else name


def _entry(values: Array, axes: list[str], each: list[tuple[str, ...] | None], unit: str) -> dict[str, Any]:
    if any(along is None for along in each) or not each:
        described: dict[str, Any] = {"units": unit}
    elif len(each) == 1:
        described = {"units": list(each[0] or ())}
    elif len(each) == 2:
        rows, columns = (list(along or ()) for along in each)
        described = {"units": "row_units per column_units", "row_units": rows, "column_units": columns}
    else:
        described = {"units": unit}
    return {"shape": list(values.shape), "axes": ["state", *axes], **described, "values": values.tolist()}


# Files.


def output_path(text: str, asked: Asking) -> Path:
    """Check the path of `--out` before anything is computed.

    Raises:
        ArgumentError: unknown suffix, missing folder, or the path exists and is no regular file.
        OSError: the file exists and is read-only.
    """
    path = file_named("--out", text)
    allowed = (".npz", ".json", ".csv") if asked.vectors else (".npz", ".json")
    if path.suffix.lower() not in allowed:
        raise ArgumentError(f"--out: {quoted(text)} ends in {quoted(path.suffix)}; allowed here: {', '.join(allowed)}")
    if not path.parent.is_dir():
        raise ArgumentError(f"--out: {quoted(str(path.parent))} is not a folder")
    return require_writable(path, "--out")


def write(path: Path, dyn: Dynamics, asked: Asking, states: Mapping[str, Array], results: Mapping[str, Array]) -> None:
    """Write states and results in the format of the path's suffix. Files .npz and .csv can be read as states again;
    their results are then ignored."""
    with whole_file(path, "--out") as file:
        if path.suffix.lower() == ".json":
            file.write(f"{as_json(dyn, asked, states, results)}\n".encode())
        elif path.suffix.lower() == ".npz":
            named = {name: np.array(getattr(dyn.model, name), dtype=str) for name in NAME_ARRAYS}
            arrays: dict[str, Any] = {**states, **results, **named}
            np.savez(file, **arrays)
        else:
            _write_csv(file, dyn.model, asked, states, results)


def _write_csv(
    file: IO[bytes], model: Model, asked: Asking, states: Mapping[str, Array], results: Mapping[str, Array]
) -> None:
    components_of = {name: model.coordinate_names if name == "q" else model.velocity_names for name in states}
    headers = [f"{name}:{component}" for name, components in components_of.items() for component in components]
    for name, result in asked.question.results.items():
        headers += [f"{name}:{each}" for axis in result.axes for each in _csv_names(model, axis, asked.obstacles)]
        headers += [] if result.axes else [name]
    columns = [array.reshape(len(array), prod(array.shape[1:])) for array in (*states.values(), *results.values())]
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text)
    writer.writerow(headers)
    writer.writerows([x for row in rows for x in row.tolist()] for rows in zip(*columns, strict=True))
    text.detach()  # keeps the file open


def _csv_names(model: Model, axis: int | str, obstacles: Obstacles | None) -> Sequence[str]:
    """Names of the entries along an axis, unescaped, as `state_files` reads them."""
    names = {"nv": model.velocity_names, "nq": model.coordinate_names}
    return names[axis] if axis in names else _names(model, axis, obstacles)
