"""The bit-exact model: what hardware computes, in NumPy's integers of 64 bits, and a bound of its error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from robodyn.compile.tracing.expression import CONSTANT, INPUT
from robodyn.compile.tracing.program import Program
from robodyn.internals.arguments import Array
from robodyn.internals.records import dataclass
from robodyn.tools.hardware.formats import Formats, carried
from robodyn.tools.hardware.program import input_nodes, output_scalars, uses

_CHUNK = 512
"""Rows at a time."""
Watch = Callable[[int, Array], None]


@dataclass(frozen=True)
class Words:
    """What came out of hardware or its model: `words` (rows, outputs), and `wrapped` (rows,), how many results of a
    row's operations did not fit into their words."""

    words: Array
    wrapped: Array


def quantized(program: Program, formats: Formats, ports: Mapping[str, Array]) -> Array:
    """Inputs as words, (rows, inputs), in hardware's order."""
    columns = [formats.word(ports[name][:, k], node) for name, k, node in input_nodes(program)]
    rows = len(next(iter(ports.values()))) if ports else 0
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0), np.int64)


def numbers(program: Program, formats: Formats, words: Array) -> dict[str, Array]:
    """Outputs as numbers, (rows, size) by name; what is constant is exact."""
    scalars = output_scalars(program)
    columns = [
        formats.number(words[:, k], s) if isinstance(s, int) else np.full(len(words), s) for k, s in enumerate(scalars)
    ]
    found, start = {}, 0
    for port in program.outputs:
        found[port.name] = np.stack(columns[start : start + port.size], axis=1)
        start += port.size
    return found


def run(program: Program, formats: Formats, words: Array, watch: Watch | None = None) -> Words:
    """The outputs for inputs (rows, inputs). Outputs that are numbers are words of 0. `watch` sees every value, some
    rows at a time, in order; the rows begin again with the first value."""
    parts = [_run(program, formats, words[k : k + _CHUNK], watch) for k in range(0, len(words), _CHUNK)]
    empty = np.zeros((0, len(output_scalars(program))), np.int64)
    return Words(
        np.concatenate([empty, *(part.words for part in parts)]),
        np.concatenate([np.zeros(0, np.int64), *(part.wrapped for part in parts)]),
    )


def _run(program: Program, formats: Formats, words: Array, watch: Watch | None) -> Words:
    left = uses(program)
    value: dict[int, Array] = {node: words[:, k] for k, (_, _, node) in enumerate(input_nodes(program))}
    wrapped = np.zeros(len(words), np.int64)
    for index in program.live:
        operation, a, b = program.nodes[index]
        if operation == CONSTANT:
            value[index] = np.array([formats.words[index]])
        elif operation != INPUT:
            wide = formats.result(program, value, index)
            value[index] = formats.cut(wide)
            wrapped += value[index] != wide
            for operand in (a, b):
                if operand >= 0:
                    left[operand] -= 1
                    if left[operand] == 0:
                        del value[operand]
        if watch is not None:
            watch(index, value[index])
    columns = [value[s] if isinstance(s, int) else np.array([0]) for s in output_scalars(program)]
    return Words(np.stack([np.broadcast_to(each, len(words)) for each in columns], axis=1), wrapped)


def bounds(program: Program, formats: Formats, ports: Mapping[str, Array], words: Array) -> dict[str, Array]:
    """How far hardware's outputs can be from those of exact arithmetic on the same inputs, (rows, size) by name.

    A running error bound (Wilkinson 1965; Higham, Accuracy and Stability of Numerical Algorithms, section 3.3): beside
    every value a bound of its error goes along, from the values that hardware itself computes. It holds where nothing
    wrapped. Roundings of the bound itself are left out: they are 2^-53 of it.
    """
    scalars = output_scalars(program)
    parts = []
    for start in range(0, len(words), _CHUNK):
        part = {name: array[start : start + _CHUNK] for name, array in ports.items()}
        parts.append(_bounds(program, formats, part, words[start : start + _CHUNK], scalars))
    every = np.concatenate([np.zeros((0, len(scalars))), *parts])
    found, begin = {}, 0
    for port in program.outputs:
        found[port.name] = every[:, begin : begin + port.size]
        begin += port.size
    return found


def _bounds(
    program: Program, formats: Formats, ports: Mapping[str, Array], words: Array, scalars: list[int | float]
) -> Array:
    size: dict[int, Array] = {}
    error: dict[int, Array] = {}
    exact = {node: ports[name][:, k] for name, k, node in input_nodes(program)}
    left = uses(program)

    def watch(index: int, word: Array) -> None:
        """Bound the error of a node by those of its operands, and let go of operands that nobody reads any more."""
        operation, a, b = program.nodes[index]
        number = formats.number(word, index)
        size[index] = np.abs(number)
        if operation == CONSTANT:
            error[index] = np.abs(number - a)
        elif operation == INPUT:
            error[index] = np.abs(number - exact[index])
        else:
            rounding = 0.0 if formats.shift(program, index) == 0 else 2.0 ** (-formats.fraction[index] - 1)
            # Sizes are those with errors: the product of two errors is counted twice over, on the safe side.
            error[index] = carried(program, index, size, error) + rounding
            for operand in (a, b):
                if operand >= 0:
                    left[operand] -= 1
                    if left[operand] == 0:
                        del size[operand], error[operand]

    run(program, formats, words, watch)
    columns: Iterator[Array] = (error[s] if isinstance(s, int) else np.zeros(1) for s in scalars)
    return np.stack([np.broadcast_to(each, len(words)) for each in columns], axis=1)
