"""States for commands: from the command line, from a file, or drawn at random."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robodyn.core.model import Model
from robodyn.internals.arguments import Array, broadcast_leading, count, real_array, require_finite
from robodyn.internals.errors import ArgumentError, NumericalError
from robodyn.internals.messages import printable, quoted
from robodyn.io.builders.values import number
from robodyn.tools.cli.state_files import NO_NUMBER, QUANTITIES, component_names, read_state_file

_LISTED = 40


def numbers(option: str, text: str, names: Sequence[str]) -> list[float]:
    """Parse an option's numbers, separated by commas or blanks: one for each of `names`.

    Raises:
        ArgumentError: a word is no finite number in plain decimals, or the number of words is wrong.
    """
    words = re.split(r"\s*,\s*|\s+", text.strip()) if text.strip() else []
    values = []
    for place, word in enumerate(words, start=1):
        value = number(word)
        if value is None:
            raise ArgumentError(f"{option}: entry {place} is {quoted(word)}; {NO_NUMBER}")
        values.append(value)
    if len(values) != len(names):
        raise ArgumentError(f"{option}: {len(values)} given; wanted {len(names)}, for {_listed(names)}")
    return values


def read_states(model: Model, inputs: Sequence[str], options: Mapping[str, Any]) -> dict[str, Array]:
    """The states of a command's options: (B, nq) for q, (B, nv) for the other `inputs`.

    Missing inputs are zero; a missing q is neutral. Quaternions are normalised.

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
    names = component_names(model)
    return _complete(model, inputs, {name: numbers(f"--{name}", text, names[name]) for name, text in typed.items()})


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return (", ".join(map(printable, names[:_LISTED])) or "nothing: the robot has no degree of freedom") + more


def _random(model: Model, inputs: Sequence[str], n: int, seed: int) -> dict[str, Array]:
    # The limit is the address space; below it NumPy raises a MemoryError.
    count("--random", n, 0, sys.maxsize // (np.dtype(np.float64).itemsize * max(1, model.nq, model.nv)))
    rng = np.random.default_rng(seed)
    q = model.random_configuration(rng, (n,))
    return {"q": q, **{name: rng.uniform(-1.0, 1.0, (n, model.nv)) for name in inputs[1:]}}


def _complete(model: Model, inputs: Sequence[str], values: Mapping[str, Any]) -> dict[str, Array]:
    """Check the given inputs and add defaults for missing ones."""
    sizes = {name: len(names) for name, names in component_names(model).items()}
    float_arrays = {name: real_array(name, value, (sizes[name],), np.float64) for name, value in values.items()}
    for name, value in float_arrays.items():
        if value.ndim > 2:
            raise ArgumentError(f"{name}: got shape {value.shape}; wanted (states, {sizes[name]})")
        require_finite(name, value, 1)
    if "q" in float_arrays:
        float_arrays["q"] = model.normalize(float_arrays["q"])
    leading = broadcast_leading({name: (value, 1) for name, value in float_arrays.items()}) or (1,)
    default = {"q": model.neutral(), **dict.fromkeys(QUANTITIES[1:], np.zeros(model.nv))}
    return {name: np.broadcast_to(float_arrays.get(name, default[name]), (*leading, sizes[name])) for name in inputs}


def _from_file(model: Model, inputs: Sequence[str], path: Path) -> dict[str, Array]:
    try:
        return _complete(model, inputs, read_state_file(model, inputs, path))
    except (ArgumentError, NumericalError) as error:
        raise type(error)(f"--states {quoted(path.name)}: {error}") from None
