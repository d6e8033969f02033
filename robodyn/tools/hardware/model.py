"""The bit-exact model of the hardware, in NumPy's 64-bit integers, and error bounds of its results."""

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
"""Number of rows computed at a time."""
Watch = Callable[[int, Array], None]


@dataclass(frozen=True)
class Words:
    """Outputs of the hardware or its model: `words` (rows, outputs), and `wrapped` (rows,), the number of results of a
    row's operations that overflowed their words."""

    words: Array
    wrapped: Array


def quantized(program: Program, formats: Formats, ports: Mapping[str, Array]) -> Array:
    """Inputs as words (rows, inputs), in the hardware's order."""
    columns = [formats.word(ports[name][:, k], node) for name, k, node in input_nodes(program)]
    rows = len(next(iter(ports.values()))) if ports else 0
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0), np.int64)


def numbers(program: Program, formats: Formats, words: Array) -> dict[str, Array]:
    """Outputs as numbers (rows, size) by name. Constant outputs are exact."""
    scalars = output_scalars(program)
    columns = [
        formats.number(words[:, k], s) if isinstance(s, int) else np.full(len(words), s) for k, s in enumerate(scalars)
    ]
    outputs, start = {}, 0
    for port in program.outputs:
        outputs[port.name] = np.stack(columns[start : start + port.size], axis=1)
        start += port.size
    return outputs


def run(program: Program, formats: Formats, words: Array, watch: Watch | None = None) -> Words:
    """Compute the outputs for inputs (rows, inputs). Constant outputs are words of 0. `watch` is called with every
    value in the program's order, for one chunk of rows after another."""
    parts = [_run(program, formats, words[k : k + _CHUNK], watch) for k in range(0, len(words), _CHUNK)]
    empty = np.zeros((0, len(output_scalars(program))), np.int64)
    return Words(
        np.concatenate([empty, *(part.words for part in parts)]),
        np.concatenate([np.zeros(0, np.int64), *(part.wrapped for part in parts)]),
    )


def _run(program: Program, formats: Formats, words: Array, watch: Watch | None) -> Words:
    remaining = uses(program)
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
                    remaining[operand] -= 1
                    if remaining[operand] == 0:
                        del value[operand]
        if watch is not None:
            watch(index, value[index])
    columns = [value[s] if isinstance(s, int) else np.array([0]) for s in output_scalars(program)]
    return Words(np.stack([np.broadcast_to(each, len(words)) for each in columns], axis=1), wrapped)


def bounds(program: Program, formats: Formats, ports: Mapping[str, Array], words: Array) -> dict[str, Array]:
    """Bounds (rows, size) by name of the difference between hardware outputs and exact arithmetic on the same inputs.

    This is a running error analysis (Wilkinson 1965; Higham, Accuracy and Stability of Numerical Algorithms, section
    3.3): a bound of each value's error is computed along with the hardware's values. The bounds hold for rows without
    overflow. Rounding errors of the bounds themselves, 2^-53 relative, are neglected.
    """
    scalars = output_scalars(program)
    parts = []
    for start in range(0, len(words), _CHUNK):
        part = {name: array[start : start + _CHUNK] for name, array in ports.items()}
        parts.append(_bounds(program, formats, part, words[start : start + _CHUNK], scalars))
    all_rows = np.concatenate([np.zeros((0, len(scalars))), *parts])
    outputs, begin = {}, 0
    for port in program.outputs:
        outputs[port.name] = all_rows[:, begin : begin + port.size]
        begin += port.size
    return outputs


def _bounds(
    program: Program, formats: Formats, ports: Mapping[str, Array], words: Array, scalars: list[int | float]
) -> Array:
    size: dict[int, Array] = {}
    error: dict[int, Array] = {}
    exact = {node: ports[name][:, k] for name, k, node in input_nodes(program)}
    n_remaining = uses(program)

    def watch(index: int, word: Array) -> None:
        """Bound the error of a node by those of its operands, and free operands that are not needed any more."""
        operation, a, b = program.nodes[index]
        number = formats.number(word, index)
        size[index] = np.abs(number)
        if operation == CONSTANT:
            error[index] = np.abs(number - a)
        elif operation == INPUT:
            error[index] = np.abs(number - exact[index])
        else:
            rounding = 0.0 if formats.shift(program, index) == 0 else 2.0 ** (-formats.fraction[index] - 1)
            # Sizes include errors, so the product of two errors is counted more than once, on the safe side.
            error[index] = carried(program, index, size, error) + rounding
            for operand in (a, b):
                if operand >= 0:
                    n_remaining[operand] -= 1
                    if n_remaining[operand] == 0:
                        del size[operand], error[operand]

    run(program, formats, words, watch)
    columns: Iterator[Array] = (error[s] if isinstance(s, int) else np.zeros(1) for s in scalars)
    return np.stack([np.broadcast_to(each, len(words)) for each in columns], axis=1)
