"""The command `export --language verilog`: writes a robot's gradient as a hardware project folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from robodyn.core.model import Model
from robodyn.engines.query_table import named
from robodyn.internals.arguments import one_of
from robodyn.internals.errors import ArgumentError
from robodyn.internals.files import file_named, read_regular
from robodyn.internals.messages import brief, printable, quoted
from robodyn.tools.cli.results import say_of_constraints

DEFAULT_QUERY = "fd_gradient"
OPTIONS: Mapping[str, Any] = {
    "width": 18,
    "multipliers": None,
    "interval": None,
    "box": None,
    "formulation": "idsva",
    "fraction": None,
    "ranges": "sampled",
}
"""Options of Verilog alone, and their defaults."""
_OF_C: Mapping[str, Any] = {
    "link": None,
    "relative_to": None,
    "frame": "world_aligned",
    "classical": False,
    "joint_forces": "",
    "inputs": "",
    "obstacles": None,
    "ignore": None,
    "dtype": "float64",
    "name": None,
    "header": None,
}
_LARGEST_FILE = 1 << 20
"""Largest size of a --box file in bytes; a box has a few numbers for each joint."""


def refuse_options(options: Mapping[str, Any], verilog: bool) -> None:
    """Raise if an option of the other language was given.

    Raises:
        ArgumentError: names the option.
    """
    for name, usual in (_OF_C if verilog else OPTIONS).items():
        if options[name] != usual:
            language = "c" if verilog else "verilog"
            raise ArgumentError(
                f"--{name.replace('_', '-')}: got {quoted(str(options[name]))}; only --language {language} has it"
            )


def export(load: Callable[[], Model], options: Mapping[str, Any]) -> None:
    """Print the Verilog, or write the folder that `--out` names.

    Raises:
        ArgumentError: wrong options, or options that this robot does not support.
        OSError: a file cannot be written.
    """
    # Imported here because fixed-point code takes a while to import and C does not need it.
    from robodyn.tools.hardware import datapath
    from robodyn.tools.hardware.program import QUERIES

    refuse_options(options, verilog=True)
    queries = {word: question.name for word, (question, _) in named().items() if question.name in QUERIES}
    word = one_of("--query", options["query"] or DEFAULT_QUERY, tuple(queries))
    query = queries[word]
    box = None if options["box"] is None else box_of(options["box"])
    chosen = {name: options[name] for name in OPTIONS if name != "box"}
    model = load()
    say_of_constraints(model, (named()[word][0],))
    d = datapath(model, query=query, box=box, **chosen)
    if options["out"] is None:
        print(d.verilog(), end="")
        return
    d.write(options["out"])
    print(
        f"wrote {d.name}: {d.multipliers} multipliers, a state every {d.interval} cycles, latency {d.latency} cycles, "
        f"to {printable(str(options['out']))}"
    )


def box_of(text: str) -> Any:
    """Read a box from a JSON file: an object with "qd", "qdd", "Minv" and "q", as in `robodyn.hardware.Box`.

    Raises:
        ArgumentError: no regular file, or wrong contents.
        OSError: the file cannot be read.
    """
    from robodyn.tools.hardware import Box

    path: Path = file_named("--box", text)
    read = read_regular(path, _LARGEST_FILE)
    if len(read) > _LARGEST_FILE:
        raise ArgumentError(f"--box: {quoted(str(path))} has more than {_LARGEST_FILE} bytes")
    try:
        contents = json.loads(read)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"--box: {quoted(str(path))} is no JSON: {brief(error)}") from None
    allowed = ("qd", "qdd", "Minv", "q")
    if not isinstance(contents, dict):
        raise ArgumentError(f"--box: got {brief(contents)}; wanted an object with numbers for {', '.join(allowed)}")
    for name in contents:
        one_of("--box", name, allowed)
    return Box(**contents)
