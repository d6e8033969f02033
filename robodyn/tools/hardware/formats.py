"""Fixed point: how many bits a value has, and where its binary point stands.

A word of W bits is an integer in two's complement; with a fraction of f bits it stands for the integer times 2^-f. What
model and hardware both do:

- Inputs round to the nearest word, halves upwards, and saturate.
- A product is taken in full, 2^(s-1) is added, and s bits go: (x + 2^(s-1)) >>> s. Halves round upwards.
- Operands of a sum are brought to the finer one's point, and the sum is rounded once, in the same way.
- Of a result the low W bits stay: what does not fit wraps.
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
"""Bits of a word. A product of two that are wider does not fit into 64 bits, in which the model computes."""
_FINEST = 100
"""Bits of fraction: of constants that are almost nothing."""
_DEEPEST = 63
"""Bits that NumPy shifts by at most."""


@dataclass(frozen=True)
class Formats:
    """Formats of a program's values.

    Args:
        width: bits of every word.
        fraction: bits of it behind the binary point, by live node; may be negative, or more than the width.
        words: constants as integers, by node.
        proved: whether no result can wrap while inputs are inside the box.
    """

    width: int
    fraction: Mapping[int, int]
    words: Mapping[int, int]
    proved: bool

    @property
    def largest(self) -> int:
        """Of the integers in a word; the smallest is one below its negative."""
        return int(2 ** (self.width - 1) - 1)

    def shift(self, program: Program, index: int) -> int:
        """How many bits go when the result of a node is rounded."""
        operation, a, b = program.nodes[index]
        operands = [self.fraction[a]] if b < 0 else [self.fraction[a], self.fraction[b]]
        return (sum(operands) if operation == MUL else max(operands)) - self.fraction[index]

    def word(self, value: Array, index: int) -> Array:
        """Numbers as words of a node, rounded and saturated."""
        scaled = np.floor(np.ldexp(np.asarray(value, np.float64), self.fraction[index]) + 0.5)
        return np.clip(scaled, -self.largest - 1, self.largest).astype(np.int64)

    def number(self, word: Array, index: int) -> Array:
        """Words of a node as numbers."""
        return np.ldexp(np.asarray(word, np.float64), -self.fraction[index])

    def cut(self, wide: Array) -> Array:
        """The low bits of a result that a word has room for."""
        half, mask = 1 << (self.width - 1), (1 << self.width) - 1
        return ((wide + half) & mask) - half

    def result(self, program: Program, value: Mapping[int, Array], index: int) -> Array:
        """A result before it is cut to its word; of one that is far too large, another that is too large and has the
        same low bits.

        Sums are written so that nothing is wider than 64 bits, however far apart two binary points are; hardware's text
        (`verilog`) takes them in full.
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
        # x 2^apart + y, of which `shift` bits go.
        if shift > apart:
            return _rounded(x + (y >> min(apart, _DEEPEST)), shift - apart) if apart else _rounded(x + y, shift)
        up = apart - shift
        raised = x << up if up < self.width else (x != 0).astype(np.int64) << self.width
        return raised + _rounded(y, shift)


def _rounded(x: Array, shift: int) -> Array:
    """floor((x + 2^(shift - 1)) / 2^shift)."""
    if shift == 0:
        return x
    if shift > _DEEPEST:  # x is below 2^62, a half of the last place or less
        return np.zeros_like(x)
    return ((x >> (shift - 1)) + 1) >> 1


def fitting(size: float, width: int) -> int:
    """The largest fraction with which numbers up to a size fit into a word; one that is a power of two saturates, which
    takes no more from it than a rounding."""
    if size <= 0.0:
        return width - 1
    mantissa, exponent = math.frexp(size)
    return min(_FINEST, width - 1 - (exponent - 1 if mantissa == 0.5 else exponent))


def uniform(program: Program, width: int, fraction: int) -> Formats:
    """One binary point for all."""
    formats = Formats(width, dict.fromkeys(program.live, fraction), {}, proved=False)
    return _with_constants(program, formats)


def scaled(program: Program, width: int, ports: Mapping[str, Array], guard: int) -> Formats:
    """A binary point for each value, for the size that it has at samples (rows, size); results get `guard` more bits
    before it.

    Sizes are those of what hardware computes from words, not of exact values: of a small difference of large numbers
    roundings may be most.
    """
    fraction: dict[int, int] = {}
    formats = Formats(width, fraction, {}, proved=False)
    value = {node: ports[name][:, k] for name, k, node in input_nodes(program)}
    left = uses(program)
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
                left[operand] -= 1
                if left[operand] == 0:
                    del value[operand]
    return _with_constants(program, formats)


def _largest(value: Array) -> float:
    return float(np.max(np.abs(value), initial=0.0))


def proved(program: Program, width: int, intervals: Mapping[int, Interval]) -> Formats:
    """A binary point for each value such that nothing can wrap: for its interval and all that rounding may add.

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
            error[index] = 2.0 ** -fraction[index]  # half as much by rounding, all of it by saturating
            continue
        before = carried(program, index, size, error)
        fraction[index] = _between(program, index, fraction, width, _below(size[index] + before, width))
        error[index] = before + 2.0 ** (-fraction[index] - 1)
    return _with_constants(program, Formats(width, fraction, {}, proved=True))


def carried(program: Program, index: int, size: Mapping[int, Any], error: Mapping[int, Any]) -> Any:
    """What errors of its operands come to in a result, if these are at most of some size without and with them:
    numbers, or arrays.
    """
    operation, a, b = program.nodes[index]
    if operation == NEG:
        return error[a]
    if operation == MUL:
        return size[a] * error[b] + size[b] * error[a] + error[a] * error[b]
    return error[a] + error[b]


def _below(size: float, width: int) -> int:
    """The largest fraction with which numbers up to a size, rounded, are below the largest word."""
    fraction = fitting(size, width)
    return fraction if math.ldexp(size, fraction) + 0.5 < 2 ** (width - 1) - 1 else fraction - 1


def _between(program: Program, index: int, fraction: Mapping[int, int], width: int, wanted: int) -> int:
    """A fraction with which neither zeros are appended nor room is left that no operands can fill."""
    operation, a, b = program.nodes[index]
    if operation == MUL:
        exact = fraction[a] + fraction[b]
        coarsest = exact - width
    else:
        points = [fraction[a]] if b < 0 else [fraction[a], fraction[b]]
        exact, coarsest = max(points), min(points) - 1
    return max(coarsest, min(wanted, exact))


def _of_constant(value: float, width: int) -> int:
    """The fraction that fills a word, without zeros at its end."""
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
