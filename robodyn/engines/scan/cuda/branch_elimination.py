"""Kernels that solve with a mass matrix by branch-induced sparsity (RBDA section 6.5), level by level of the tree.

The rows of H up to the diagonal are packed one after another. Entry e of a row belongs to the row's ancestor of depth
e. The factor is H = L' D L without fill-in. `eliminate_level` eliminates all descendants of a level's degrees of
freedom, which are neighbours in depth-first order, from the level's rows and right-hand sides. Each entry has its own
warp, so there are no races, and the order of summation depends on the tree only. Rows finally hold D L, and
`reciprocals` 1 / D. `solve_level` then runs from the roots outward.

Arrays: `entries` (pairs, batch): the packed rows; `vector` (nv, batch): right-hand sides; `reciprocals` and `solution`
(nv, batch); `dofs`: the `rows` degrees of freedom of the level, with `depth` ancestors each; `first` (nv,): starts of
rows; `ancestors` (pairs,): columns of entries; `order`, `rank`, `size` (nv,): the depth-first order, the ranks in it,
and the sizes of subtrees.
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
    """The sum of a value over the lanes of a warp, valid in the first lane."""
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
    """Eliminate all descendants from the rows of a level, with a warp for each entry and for each right-hand side."""
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
    """Compute the solutions of a level from those of ancestors, with a thread for each."""
    for work in range(first_work(BLOCK_THREADS), rows * batch, Word(blocks()) * BLOCK_THREADS):
        row, j = work % batch, dofs[work // batch]
        value = vector[j * batch + row]
        for e in range(first[j], first[j] + depth):
            value -= entries[e * batch + row] * solution[ancestors[e] * batch + row]
        solution[j * batch + row] = value * reciprocals[j * batch + row]


def branch_kernel(name: str, dtype: np.dtype[Any]) -> KernelSource:
    """The kernel "eliminate_level", which also reads its outputs, or "solve_level"."""
    solved = ("entries", "vector", "reciprocals")
    if name == "eliminate_level":
        return kernel_source(eliminate_level, dtype, (), solved, threads=BLOCK_THREADS, overlapping=solved)
    return kernel_source(solve_level, dtype, solved, ("solution",), threads=BLOCK_THREADS)
