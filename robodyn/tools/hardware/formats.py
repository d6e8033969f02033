"""Fixed-point formats: the binary point of every value of a program.

A word of W bits is an integer in two's complement. With a fraction of f bits its value is the integer times 2^-f. The
hardware and its model share these rules:

- Inputs are rounded to the nearest word, halves upwards, and saturate.
- A product is computed exactly and rounded by dropping s bits: (x + 2^(s-1)) >>> s. Halves are rounded upwards.
- Operands of a sum are aligned to the finer binary point, and the sum is rounded once, in the same way.
- A result keeps its low W bits: values that do not fit wrap around.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from robodyn.compile.tracing.expression import ADD, CONSTANT, INPUT, MUL, NEG
from robodyn.compile.tracing.program import Program
from robodyn.internals.arguments import Array
from robodyn.internals.errors import ArgumentError
from robodyn.internals.records import dataclass
from robodyn.tools.hardware.program import input_nodes, uses
from robodyn.tools.hardware.ranges import Interval

NARROWEST, WIDEST = 4, 32
"""Limits of the width of a word in bits. The model computes in 64 bits, which products of wider words exceed."""
_FINEST = 100
"""Largest number of fraction bits; it matters for tiny constants."""
_DEEPEST = 63
"""Largest shift in NumPy, bits."""


@dataclass(frozen=True)
class Formats:
    """Formats of a program's values.

    Args:
        width: bits of every word.
        fraction: bits behind the binary point, by live node; may be negative, or larger than the width.
        words: constants as integers, by node.
        proved: True if no result can wrap for inputs inside the box.
    """

    width: int
    fraction: Mapping[int, int]
    words: Mapping[int, int]
    proved: bool

    @property
    def largest(self) -> int:
        """The largest integer of a word; the smallest is -largest - 1."""
        return int(2 ** (self.width - 1) - 1)

    def shift(self, program: Program, index: int) -> int:
        """Number of bits dropped when the result of a node is rounded."""
        operation, a, b = program.nodes[index]
        operands = [self.fraction[a]] if b < 0 else [self.fraction[a], self.fraction[b]]
        return (sum(operands) if operation == MUL else max(operands)) - self.fraction[index]

    def word(self, value: Array, index: int) -> Array:
        """Convert numbers to words of a node, rounded and saturated."""
        scaled = np.floor(np.ldexp(np.asarray(value, np.float64), self.fraction[index]) + 0.5)
        return np.clip(scaled, -self.largest - 1, self.largest).astype(np.int64)

    def number(self, word: Array, index: int) -> Array:
        """Convert words of a node to numbers."""
        return np.ldexp(np.asarray(word, np.float64), -self.fraction[index])

    def cut(self, wide: Array) -> Array:
        """The low W bits of a result, as a signed integer."""
        half, mask = 1 << (self.width - 1), (1 << self.width) - 1
        return ((wide + half) & mask) - half

    def result(self, program: Program, value: Mapping[int, Array], index: int) -> Array:
        """The result of a node before `cut`. A result far too large for its word may be replaced by another one that is
        also too large and has the same low bits.

        Sums are computed such that nothing exceeds 64 bits, however far apart the binary points are. The Verilog
        (`verilog`) computes them in full width.
        """
        operation, a, b = program.nodes[index]
        shift = self.shift(program, index)
        if operation == MUL:
            return _rounded(value[a] * value[b], shift)
        if operation == NEG:
            return _rounded(-value[a], shift)
        x, y = value[a], value[b] if operation == ADD else -value[b]
        apart = self.fraction[b] - self.fraction[a]
        if apart < 0:
            x, y, apart = y, x, -apart
        # The sum is x 2^apart + y; `shift` bits are dropped.
        if shift > apart:
            return _rounded(x + (y >> min(apart, _DEEPEST)), shift - apart) if apart else _rounded(x + y, shift)
        up = apart - shift
        raised = x << up if up < self.width else (x != 0).astype(np.int64) << self.width
        return raised + _rounded(y, shift)


def _rounded(x: Array, shift: int) -> Array:
    """Round to nearest: floor((x + 2^(shift - 1)) / 2^shift)."""
    if shift == 0:
        return x
    if shift > _DEEPEST:  # x is below 2^62, so it rounds to 0
        return np.zeros_like(x)
    return ((x >> (shift - 1)) + 1) >> 1


def fitting(size: float, width: int) -> int:
    """The largest fraction such that numbers up to `size` fit into a word. A `size` that is a power of two saturates,
    with an error of one last place."""
    if size <= 0.0:
        return width - 1
    mantissa, exponent = math.frexp(size)
    return min(_FINEST, width - 1 - (exponent - 1 if mantissa == 0.5 else exponent))


def uniform(program: Program, width: int, fraction: int) -> Formats:
    """The same binary point for all values."""
    formats = Formats(width, dict.fromkeys(program.live, fraction), {}, proved=False)
    return _with_constants(program, formats)


def scaled(program: Program, width: int, ports: Mapping[str, Array], guard: int) -> Formats:
    """A binary point for each value, from its largest magnitude at samples (rows, size), with `guard` additional bits
    for results.

    Magnitudes are those of hardware results, not of exact values, because rounding errors may dominate a small
    difference of large numbers.
    """
    fraction: dict[int, int] = {}
    formats = Formats(width, fraction, {}, proved=False)
    value = {node: ports[name][:, k] for name, k, node in input_nodes(program)}
    remaining = uses(program)
    for index in program.live:
        operation, a, b = program.nodes[index]
        if operation == CONSTANT:
            fraction[index] = _of_constant(a, width)
            value[index] = formats.number(np.array([_constant_word(a, width, fraction[index])]), index)
            continue
        if operation == INPUT:
            fraction[index] = fitting(_largest(value[index]), width)
            value[index] = formats.number(formats.word(value[index], index), index)
            continue
        x = value[a]
        exact = (
            -x if b < 0 else x * value[b] if operation == MUL else x + value[b] if operation == ADD else x - value[b]
        )
        room = math.ldexp(_largest(exact), guard)
        fraction[index] = _between(program, index, fraction, width, fitting(room, width))
        value[index] = formats.number(formats.word(exact, index), index)
        for operand in (a, b):
            if operand >= 0:
                remaining[operand] -= 1
                if remaining[operand] == 0:
                    del value[operand]
    return _with_constants(program, formats)


def _largest(value: Array) -> float:
    return float(np.max(np.abs(value), initial=0.0))


def proved(program: Program, width: int, intervals: Mapping[int, Interval]) -> Formats:
    """A binary point for each value such that nothing can wrap, from intervals and accumulated rounding errors.

    Raises:
        ArgumentError: intervals overflow.
    """
    fraction: dict[int, int] = {}
    error: dict[int, float] = {}
    size = {index: max(map(abs, ends)) for index, ends in intervals.items()}
    if not all(map(math.isfinite, size.values())):
        raise ArgumentError('ranges: got "intervals", whose ends overflow; wanted "sampled", or a smaller box')
    for index in program.live:
        operation, a, _ = program.nodes[index]
        if operation == CONSTANT:
            fraction[index] = _of_constant(a, width)
            error[index] = abs(_constant_word(a, width, fraction[index]) * 2.0 ** -fraction[index] - a)
            continue
        if operation == INPUT:
            fraction[index] = fitting(size[index], width)
            error[index] = 2.0 ** -fraction[index]  # saturation; rounding alone gives half of it
            continue
        before = carried(program, index, size, error)
        fraction[index] = _between(program, index, fraction, width, _below(size[index] + before, width))
        error[index] = before + 2.0 ** (-fraction[index] - 1)
    return _with_constants(program, Formats(width, fraction, {}, proved=True))


def carried(program: Program, index: int, size: Mapping[int, Any], error: Mapping[int, Any]) -> Any:
    """Bound of a result's error due to errors of its operands. `size`, `error`: bounds of magnitudes and errors by
    node, numbers or arrays."""
    operation, a, b = program.nodes[index]
    if operation == NEG:
        return error[a]
    if operation == MUL:
        return size[a] * error[b] + size[b] * error[a] + error[a] * error[b]
    return error[a] + error[b]


def _below(size: float, width: int) -> int:
    """The largest fraction such that numbers up to `size` are below the largest word after rounding."""
    fraction = fitting(size, width)
    return fraction if math.ldexp(size, fraction) + 0.5 < 2 ** (width - 1) - 1 else fraction - 1


def _between(program: Program, index: int, fraction: Mapping[int, int], width: int, wanted: int) -> int:
    """Limit the wanted fraction of a result: not finer than the exact result, and not coarser than its operands can
    require."""
    operation, a, b = program.nodes[index]
    if operation == MUL:
        exact = fraction[a] + fraction[b]
        coarsest = exact - width
    else:
        points = [fraction[a]] if b < 0 else [fraction[a], fraction[b]]
        exact, coarsest = max(points), min(points) - 1
    return max(coarsest, min(wanted, exact))


def _of_constant(value: float, width: int) -> int:
    """The fraction of a constant that fills a word, without trailing zero bits."""
    fraction = fitting(abs(value), width)
    word = _constant_word(value, width, fraction)
    while word and word % 2 == 0:
        word, fraction = word // 2, fraction - 1
    return fraction


def _constant_word(value: float, width: int, fraction: int) -> int:
    largest = (1 << (width - 1)) - 1
    return max(-largest - 1, min(largest, math.floor(math.ldexp(value, fraction) + 0.5)))


def _with_constants(program: Program, formats: Formats) -> Formats:
    words = {
        index: _constant_word(program.nodes[index][1], formats.width, formats.fraction[index])
        for index in program.live
        if program.nodes[index][0] == CONSTANT
    }
    return Formats(formats.width, formats.fraction, words, formats.proved)
