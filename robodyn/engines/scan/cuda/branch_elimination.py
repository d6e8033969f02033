"""Kernels that solve with a mass matrix along the branches of a tree (RBDA section 6.5), a level at a time.

Rows up to the diagonal lie one behind another; entry e of the row of a degree of freedom belongs to its ancestor of
depth e. The factor is H = L' D L without fill: `eliminate_level` takes all descendants of a level's degrees of freedom,
which are neighbours in depth-first order, out of their rows and right-hand sides. Each entry has a warp, so no two
write to one place, and sums are taken in an order that the tree alone decides. Rows stay as D L, beside the reciprocals
of D. `solve_level` then goes from the roots outward.

Arrays: `entries` (pairs, batch), and for each degree of freedom `vector`, right-hand sides, `reciprocals` and
`solution` (nv, batch). `dofs`: those of the level, `rows` of them, which have `depth` ancestors each; `first` (nv,):
where rows start; `ancestors` (pairs,): whose entries they hold; `order`, `rank`, `size` (nv,): the depth-first walk,
places in it, and how many degrees of freedom each subtree has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.compile.loops.gpu import WARP, block, blocks, first_work, from_behind, lane, thread
from robodyn.compile.loops.language import Array, Scalar, Word, routine
from robodyn.engines.gpu.functions import kernel_source
from robodyn.engines.gpu.source import KernelSource

BLOCK_THREADS = 128
WARPS = BLOCK_THREADS // WARP


def sum_of_warp(value: Scalar) -> Scalar:
    """The sum of a value over the lanes of a warp; the first lane has it."""
    for distance in (16, 8, 4, 2, 1):
        value += from_behind(value, distance)
    return value


@routine
def eliminate_level(
    entries: Array[Scalar],
    vector: Array[Scalar],
    reciprocals: Array[Scalar],
    dofs: Array[Word],
    first: Array[Word],
    order: Array[Word],
    rank: Array[Word],
    size: Array[Word],
    workspace: Array[Scalar],
    rows: Word,
    batch: Word,
    depth: Word,
) -> None:
    """Take all descendants out of the rows of a level: a warp for each entry, and for each right-hand side."""
    columns = depth + 2
    for work in range(Word(block()) * WARPS + thread() // WARP, rows * columns * batch, Word(blocks()) * WARPS):
        row, column, j = work % batch, work // batch % columns, dofs[work // batch // columns]
        total: Scalar = 0.0
        for at in range(rank[j] + 1 + lane(), rank[j] + size[j], WARP):
            i = order[at]
            left = entries[(first[i] + depth) * batch + row] * reciprocals[i * batch + row]
            total += left * (entries[(first[i] + column) * batch + row] if column <= depth else vector[i * batch + row])
        total = sum_of_warp(total)
        if lane() == 0:
            place = entries + ((first[j] + column) * batch + row) if column <= depth else vector + (j * batch + row)
            place[0] -= total
            if column == depth:
                reciprocals[j * batch + row] = 1.0 / place[0]


@routine
def solve_level(
    entries: Array[Scalar],
    vector: Array[Scalar],
    reciprocals: Array[Scalar],
    solution: Array[Scalar],
    dofs: Array[Word],
    first: Array[Word],
    ancestors: Array[Word],
    workspace: Array[Scalar],
    rows: Word,
    batch: Word,
    depth: Word,
) -> None:
    """Solutions of a level from those of its ancestors: a thread for each."""
    for work in range(first_work(BLOCK_THREADS), rows * batch, Word(blocks()) * BLOCK_THREADS):
        row, j = work % batch, dofs[work // batch]
        value = vector[j * batch + row]
        for e in range(first[j], first[j] + depth):
            value -= entries[e * batch + row] * solution[ancestors[e] * batch + row]
        solution[j * batch + row] = value * reciprocals[j * batch + row]


def branch_kernel(name: str, dtype: np.dtype[Any]) -> KernelSource:
    """The kernel "eliminate_level", whose outputs are read as well, or "solve_level"."""
    solved = ("entries", "vector", "reciprocals")
    if name == "eliminate_level":
        return kernel_source(eliminate_level, dtype, (), solved, threads=BLOCK_THREADS, overlapping=solved)
    return kernel_source(solve_level, dtype, solved, ("solution",), threads=BLOCK_THREADS)
