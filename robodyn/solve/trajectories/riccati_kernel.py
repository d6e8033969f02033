"""Scans of backward passes on a GPU: a warp for each stretch or pair, with the text of the CPU (`riccati_code.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from robodyn.compile.loops.gpu import WARP, block, blocks, pool
from robodyn.compile.loops.language import Array, Scalar, Static, Word, address, convert, local, routine, spread
from robodyn.engines.gpu.functions import kernel_source, several, vector_types
from robodyn.engines.gpu.source import KernelSource
from robodyn.internals.arguments import Array as Numbers
from robodyn.solve.trajectories.backward_code import ENTRIES, Given, Work, at
from robodyn.solve.trajectories.backward_kernel import constants, point, prepare
from robodyn.solve.trajectories.riccati_code import (
    Room,
    compose,
    composition_operations,
    knot_operations,
    room_bytes,
    stretch,
    stretch_operations,
)

_STRETCHED = ("A", "B", "lx", "lu", "lxx", "luu")
_PAIRED = ("first", "second")
_BETTER = 0.5
"""Scans are chosen where their depth is this part of the recursion's or less."""


def scan_sources(
    n: int, nu: int, dtype: np.dtype[Any], shared_bytes: int, *, gap: bool = False
) -> tuple[KernelSource, KernelSource]:
    """The kernels of elements of stretches, and of compositions of pairs.

        stretches(inputs, element, sizes, numbers, room, workspace, rows, batch, first, length)
        pairs(first, second, element, sizes, numbers, room, workspace, rows, batch, first, length)

    Rows of the first kernel are those of `backward_kernel.backward`. Elements are (rows, 4 n + 2, n); row r of the
    second one composes the elements r of both arrays.
    """
    line = -(-(n + 1) // WARP) * WARP
    step, beyond = room_bytes(n, line, dtype.itemsize)
    sizes, numbers = constants(n, nu, dtype, beyond)
    size, scalars = int(sizes[4]), int(sizes[5])
    shared = size <= shared_bytes

    def made(name: str, inputs: tuple[str, ...], composing: bool) -> KernelSource:
        return kernel_source(
            scan,
            dtype,
            inputs,
            ("element",),
            threads=WARP,
            name=name,
            shared_bytes=size if shared else 0,
            workspace_scalars=0 if shared else scalars,
            threads_per_state=WARP,
            types=vector_types(dtype),
            constants=(sizes, numbers, np.array([line, step, size - beyond], np.int64)),
            sources=several(len(inputs)),
            names=inputs,
            shared=shared,
            composing=composing,
        )

    return made("stretches", (*_STRETCHED, *(("gap",) if gap else ())), False), made("pairs", _PAIRED, True)


@routine
def scan(
    sources: tuple[Array[Scalar], ...],
    element: Array[Scalar],
    sizes: Array[Word],
    numbers: Array[Scalar],
    places: Array[Word],
    workspace: Array[Scalar],
    rows: Word,
    batch: Word,
    first: Word,
    length: Word,
    names: Static[tuple[str, ...]],
    shared: Static[bool],
    composing: Static[bool],
) -> None:
    """Elements of stretches, or compositions."""
    table, work, room = local(Given, len(ENTRIES)), local(Work, 1), local(Room, 1)
    memory = pool(Scalar, sizes[5]) if shared else workspace + Word(block()) * sizes[5]
    prepare(work, table, sizes, memory)
    work.steps = length
    room.n, room.line, room.step = sizes[0], places[0], places[1]
    room.memory = address(memory) + places[2]
    size, least = (4 * sizes[0] + 2) * sizes[0], spread(Scalar, numbers[0])
    for row in range(Word(block()), rows, Word(blocks())):
        result = element + row * size
        if composing:
            compose(room, at(work, "F"), sources[0] + row * size, sources[1] + row * size, result, least)
        else:
            for number in range(len(names)):
                base = convert(Word, sources[number])
                point(table, names[number], base, sizes, row, batch, first + row // batch * length)
            stretch(work, room, table, result, least)


def chosen_length(n: int, nu: int, steps: int, problems: int, warps: int) -> int:
    """Knots of a stretch that make a scan of so many problems shortest, or 0 where the recursion is to be preferred.

    A model of work: `warps` run at once, and take the time of their operations; nothing is known of memory.
    """
    knot, own, pair = knot_operations(n, nu), stretch_operations(n, nu), composition_operations(n)

    def waves(rows: int) -> int:
        return -(-rows // warps)

    def depth(length: int) -> float:
        many, first = divmod(steps, length)
        rounds = math.ceil(math.log2(many + 1))
        alone = waves(problems * many) * length * (own + knot) + waves(problems * (many + 1)) * rounds * pair
        return alone + waves(problems) * first * knot

    lengths = sorted({max(1, round(2 ** (k / 2))) for k in range(2 * max(1, steps // 2).bit_length())})
    best = min((length for length in lengths if length < steps), key=depth, default=0)
    return best if best and depth(best) <= _BETTER * waves(problems) * steps * knot else 0


class DeviceScan:
    """Backward passes by scans on a device.

    Args:
        launches: the kernels of `scan_sources`, and that of the backward pass.
        n, nu: numbers of states and controls.
        length: knots of a stretch.
        xp: the array library of the device.
    """

    def __init__(self, launches: tuple[Callable[..., None], ...], n: int, nu: int, length: int, xp: Any) -> None:
        self._stretches, self._pairs, self._pass = launches
        self._n, self._nu, self._length, self._xp = n, nu, length, xp

    def __call__(self, given: dict[str, Numbers], problems: int, steps: int) -> Numbers:
        """Fill k and K of `given`, arrays with knots before problems as for the backward pass; returns the predicted
        changes (problems, 2)."""
        xp, n, dtype = self._xp, self._n, given["A"].dtype
        many, first = divmod(steps, self._length)
        rows = problems * many
        penalty = given["mu"][None, :, None, None] * xp.eye(self._nu, dtype=dtype)
        given = {**given, "luu": given["luu"] + penalty, "mu": xp.zeros((problems,), dtype)}
        elements, other = (xp.zeros(((many + 1) * problems, 4 * n + 2, n), dtype) for _ in range(2))
        elements[rows:, 3 * n : 4 * n], elements[rows:, 4 * n + 1] = given["vxx"], given["vx"]
        numbers = [problems, first, self._length]
        self._stretches({**given, "element": elements}, rows, xp, numbers)
        apart = 1
        while apart <= many:
            left = (many + 1 - apart) * problems
            pair = {"first": elements[:left], "second": elements[apart * problems :], "element": other[:left]}
            self._pairs(pair, left, xp, numbers)
            other[left:] = elements[left:]
            elements, other, apart = other, elements, 2 * apart
        behind = elements[problems:]
        expected = xp.empty((rows, 2), dtype)
        self._pass({**given, **self._values(behind), "expected": expected}, rows, xp, numbers)
        total: Numbers = expected.reshape((many, problems, 2)).sum(axis=0)
        if first:
            before = xp.empty((problems, 2), dtype)
            at = self._values(elements[:problems])
            self._pass({**given, **at, "expected": before}, problems, xp, [problems, 0, first])
            total = total + before
        return total

    def _values(self, elements: Numbers) -> dict[str, Numbers]:
        n, contiguous = self._n, self._xp.ascontiguousarray
        return {"vxx": contiguous(elements[:, 3 * n : 4 * n]), "vx": contiguous(elements[:, 4 * n + 1])}
