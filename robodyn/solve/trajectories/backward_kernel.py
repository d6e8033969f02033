"""The backward pass on a GPU: a warp for each problem, or for each stretch of one, whose lanes are elements of vectors.

The text is that of the CPU engine (`backward_code.py`). Arrays have knots before problems, (N, B, ...).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from robodyn.compile.loops.gpu import WARP, block, blocks, pool
from robodyn.compile.loops.language import (
    Array,
    Scalar,
    Static,
    Word,
    address,
    array,
    clear,
    convert,
    local,
    routine,
    spread,
)
from robodyn.engines.gpu.functions import kernel_source, several, vector_types
from robodyn.engines.gpu.source import KernelSource
from robodyn.internals.arguments import Array as Numbers
from robodyn.solve.trajectories.backward import least_pivot
from robodyn.solve.trajectories.backward_code import ENTRIES, PLACES, Given, Work, fill, given, layout, pass_back

OF_KNOTS = frozenset(("A", "B", "gap", "lx", "lu", "lxx", "lux", "luu", "lower", "upper", "k", "K"))
"""Arrays that have a row for each knot; the others have one for each row of the launch, but `mu` for each problem."""
INPUTS = ("A", "B", "lx", "lu", "lxx", "luu", "vx", "vxx", "mu")
"""Without a gap and bounds. No cost of the GPU engine has products of states and controls."""
OUTPUTS = ("k", "K", "expected")
_OFFSETS = 6
"""Sizes before the offsets of `PLACES`."""


def shapes(n: int, nu: int) -> dict[str, tuple[int, ...]]:
    """Of arrays, for a row or a knot of a row."""
    found: dict[str, tuple[int, ...]] = {"A": (n, n), "B": (n, nu), "gap": (n,), "lx": (n,), "lu": (nu,)}
    found |= {"lxx": (n, n), "lux": (nu, n), "luu": (nu, nu), "lower": (nu,), "upper": (nu,), "k": (nu,), "K": (nu, n)}
    return found | {"vx": (n,), "vxx": (n, n), "mu": (), "expected": (2,)}


def backward_source(
    n: int, nu: int, dtype: np.dtype[Any], shared_bytes: int, *, gap: bool = False, box: bool = False
) -> KernelSource:
    """The kernel for n states and nu controls.

        backward(sources, results, sizes, numbers, workspace, rows, batch, first, length)

    Row r is the stretch r // batch of the problem r % batch. A stretch has `length` knots; the first one begins
    at the knot `first`. Results of rows that fail are NaN.

    Args:
        n, nu: numbers of states and controls.
        dtype: of arrays and arithmetic.
        shared_bytes: shared memory that a block may have. Problems that need more are in global memory.
        gap: True if gaps are given.
        box: True if bounds are given.
    """
    inputs = (*INPUTS, *(("gap",) if gap else ()), *(("lower", "upper") if box else ()))
    sizes, numbers = constants(n, nu, dtype)
    size, scalars = int(sizes[4]), int(sizes[5])
    shared = scalars if size <= shared_bytes else 0
    return kernel_source(
        backward,
        dtype,
        inputs,
        OUTPUTS,
        threads=WARP,
        shared_bytes=size if shared else 0,
        workspace_scalars=0 if shared else scalars,
        threads_per_state=WARP,
        types=vector_types(dtype),
        constants=(sizes, numbers),
        sources=several(len(inputs)),
        results=several(len(OUTPUTS)),
        names=(*inputs, *OUTPUTS),
        shared=bool(shared),
    )


def constants(n: int, nu: int, dtype: np.dtype[Any], beyond: int = 0) -> tuple[Numbers, Numbers]:
    """Sizes (n, nu, `line`, `small`, bytes and scalars of memory), offsets of `PLACES` and bytes of arrays; the least
    pivot. `beyond`: bytes of further memory."""
    line, small = (-(-(count + 1) // WARP) * WARP for count in (n + nu, nu))
    *offsets, size = layout(n, nu, line, small, dtype.itemsize)
    own = shapes(n, nu)
    bytes_of = [prod(own[name]) * dtype.itemsize if name in own else 0 for name in ENTRIES]
    size += beyond
    sizes = np.array([n, nu, line, small, size, size // dtype.itemsize, *offsets, *bytes_of], np.int64)
    return sizes, np.array([least_pivot(dtype)], dtype)


@routine
def backward(
    sources: tuple[Array[Scalar], ...],
    results: tuple[Array[Scalar], ...],
    sizes: Array[Word],
    numbers: Array[Scalar],
    workspace: Array[Scalar],
    rows: Word,
    batch: Word,
    first: Word,
    length: Word,
    names: Static[tuple[str, ...]],
    shared: Static[bool],
) -> None:
    """Pass back through stretches of problems; `shared`: whether in shared memory, instead of the workspace."""
    table, work, expected = local(Given, len(ENTRIES)), local(Work, 1), local(Scalar, 2)
    memory = pool(Scalar, sizes[5]) if shared else workspace + Word(block()) * sizes[5]
    prepare(work, table, sizes, memory)
    work.steps = length
    for row in range(Word(block()), rows, Word(blocks())):
        for number in range(len(names)):
            base = convert(Word, sources[number] if number < len(sources) else results[number - len(sources)])
            point(table, names[number], base, sizes, row, batch, first + row // batch * length)
        pass_back(work, table, expected, spread(Scalar, numbers[0]), several=False)
        change = given(table, "expected", 0, 0)
        change[0], change[1] = expected[0], expected[1]
        if not (expected[0] == expected[0] and expected[1] == expected[1]):
            fill(change, 2)
            for knot in range(length):
                fill(given(table, "k", 0, knot), work.nu)
                fill(given(table, "K", 0, knot), work.nu * work.n)


def point(
    table: Array[Given], name: Static[str], base: Word, sizes: Array[Word], row: Word, batch: Word, start: Word
) -> None:
    """Where an array has a row's numbers; `start`: the first knot of the row's stretch."""
    entry, size = table[ENTRIES.index(name)], sizes[_OFFSETS + len(PLACES) + ENTRIES.index(name)]
    if name in OF_KNOTS:
        entry.data, entry.knot = base + (start * batch + row % batch) * size, batch * size
    else:
        entry.data = base + (row % batch if name == "mu" else row) * size


def prepare(work: Array[Work], table: Array[Given], sizes: Array[Word], memory: Array[Scalar]) -> None:
    """Sizes and cleared memory of a warp, and a table without arrays."""
    for number in range(len(ENTRIES)):
        entry = table[number]
        entry.data, entry.stride, entry.knot = 0, 0, 0
    work.n, work.nu, work.line, work.small, work.wide = sizes[0], sizes[1], sizes[2], sizes[3], sizes[1]
    work.row, work.end, work.memory = 0, 0, address(memory)
    work.offsets = array(Word, convert(Word, sizes + _OFFSETS))
    clear(memory, sizes[4])
