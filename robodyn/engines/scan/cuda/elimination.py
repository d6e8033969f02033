"""Kernels that solve block tri-diagonal systems by odd-even elimination (Yang, Wu and Pan 2016, algorithm 2).

The algebra of blocks is traced from the functions that NumPy runs (`robodyn.engines.scan.systems.odd_even`): the
factorisation of a block, the reduction of a column by it, the elimination of a neighbour, and the last solve. Here
"block" means a matrix block; thread blocks are called blocks of threads.

`solve_tiles` solves systems of up to 32 blocks in one launch. A block of threads takes as many systems as fit in 32
slots. Each warp has one column of all 32 blocks: of the diagonal, of the couplings, or of the right-hand sides. Lane k
has the block of slot k. Blocks are interleaved in shared memory, so that lanes access different banks. In a step of the
elimination, a lane for each block factorises the diagonal. Then every column is reduced by its own block; warps of
diagonal columns reduce the couplings to preceding blocks. Then every column subtracts the contributions of the blocks
at the step's distance on both sides.

In longer systems, `reduce_blocks` and `take_blocks` make steps in global memory, with a thread for each column of each
block, until interleaved systems of up to 32 blocks are left. `residual_blocks` is for iterative refinement.

The contributions of neighbours are always subtracted in the same order, so results depend neither on the order of
threads nor on the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from robodyn.compile.loops.gpu import (
    WARP,
    all_threads,
    barrier,
    block,
    blocks,
    first_work,
    rolled,
    shared,
    thread,
    unrolled,
)
from robodyn.compile.loops.language import (
    Array,
    Flag,
    Index,
    Integer,
    Routine,
    Scalar,
    Static,
    Word,
    convert,
    local,
    routine,
)
from robodyn.compile.tracing.program import Program
from robodyn.engines.gpu.functions import kernel_source
from robodyn.engines.gpu.source import KernelSource
from robodyn.engines.gpu.straight import Straight
from robodyn.internals.records import dataclass

TILE = WARP
"""Slots for matrix blocks of a block of threads."""
BLOCK_THREADS = 128
"""Threads in a block of threads, for the kernels in global memory."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a system, and the steps for columns of its blocks.

    `k`: rows and columns of a block; `columns`: right-hand sides; the steps are traced from
    `robodyn.engines.scan.cuda.systems.column_steps`.
    """

    k: int
    columns: int
    factored: Straight
    substituted: Straight
    solved: Straight
    less: Straight
    taken: Straight

    @property
    def width(self) -> int:
        """Columns of the diagonal, the couplings and the right-hand sides together."""
        return 2 * self.k + self.columns

    @property
    def lower(self) -> int:
        """Scalars of a packed diagonal block: the diagonal, then the entries below it, row by row."""
        return self.k * (self.k + 1) // 2


def load(to: Array[Scalar], source: Array[Scalar], stride: Index, count: Static[int]) -> None:
    """Load `count` scalars with the given stride."""
    for n in unrolled(count):
        to[n] = source[n * stride]


def store(source: Array[Scalar], to: Array[Scalar], stride: Index, count: Static[int]) -> None:
    """Store `count` scalars with the given stride."""
    for n in unrolled(count):
        to[n * stride] = source[n]


def set_zero(to: Array[Scalar], count: Static[int]) -> None:
    """Set scalars to zero."""
    for n in unrolled(count):
        to[n] = 0.0


def load_lower(to: Array[Scalar], source: Array[Scalar], stride: Word, k: Static[int]) -> None:
    """Load a diagonal block in packed form (`Shape.lower`)."""
    for n in range(k):
        to[n] = source[n * (k + 1) * stride]
        for m in range(n):
            to[k + n * (n - 1) // 2 + m] = source[(n * k + m) * stride]


def store_column_of_lower(source: Array[Scalar], to: Array[Scalar], column: Integer, k: Static[int]) -> None:
    """Store a column of a diagonal block in packed form."""
    for n in unrolled(k):
        if n >= column:
            to[(n if n == column else k + n * (n - 1) // 2 + column) * TILE] = source[n]


def load_coupling(
    to: Array[Scalar],
    U: Array[Scalar],
    apart: Index,
    distance: Index,
    before: Flag,
    after: Flag,
    column: Integer,
    k: Static[int],
) -> None:
    """Load a column of couplings, to the following block if column >= k, else to the preceding block. The latter is a
    row of the preceding block's couplings. Zero if there is no such block."""
    if column >= k and after:
        load(to, U + (column - k) * apart, k * apart, k)
    elif column < k and before:
        load(to, U + (column * k * apart - distance), apart, k)
    else:
        set_zero(to, k)


def take_block(
    value: Array[Scalar],
    left: Array[Scalar],
    right: Array[Scalar],
    stride: Index,
    weights: Array[Scalar],
    apart: Index,
    shape: Static[Shape],
) -> None:
    """Subtract the contribution of a neighbouring block, from its reduced coupling (`left`) and column (`right`)."""
    row = local(Scalar, shape.k)
    for n in rolled(shape.k):
        load(row, left + n * shape.k * apart, apart, shape.k)
        shape.taken(value, row, right + n * stride, weights + n * apart, value)


def take(
    value: Array[Scalar],
    P: Array[Scalar],
    Q: Array[Scalar],
    rest: Array[Scalar],
    weights: Array[Scalar],
    apart: Index,
    distance: Index,
    before: Flag,
    after: Flag,
    column: Integer,
    shape: Static[Shape],
) -> None:
    """Subtract from a column the contributions of the blocks at a distance on both sides.

    P, Q: the reduced couplings to following and to preceding blocks; `rest`: the reduced right-hand sides.
    """
    diagonal, coupling = column < shape.k, shape.k <= column < 2 * shape.k
    own = column if diagonal else column - shape.k if coupling else column - 2 * shape.k
    stride = (shape.k if diagonal or coupling else shape.columns) * apart
    if before and not coupling:
        right = (P if diagonal else rest) + own * apart
        take_block(value, P - distance, right - distance, stride, weights - distance, apart, shape)
    if after:
        right = (Q if diagonal else P if coupling else rest) + own * apart
        take_block(value, Q + distance, right + distance, stride, weights + distance, apart, shape)


@routine
def solve_tiles(
    diagonal: Array[Scalar],
    coupling: Array[Scalar],
    right: Array[Scalar],
    solution: Array[Scalar],
    order: Array[Word],
    groups: Array[Word],
    workspace: Array[Scalar],
    rows: Word,
    batch: Word,
    tiles: Word,
    shape: Static[Shape],
) -> None:
    """Solve systems of up to 32 blocks.

    `order` (n,): indices of blocks, system after system; `groups` (groups, 3): for the systems of each length: the
    length, their start in `order`, and their number; `tiles`: the number of tiles of `TILE` slots that all systems of
    all rows fill.
    """
    k, columns = shape.k, shape.columns
    near = shared(Scalar, TILE * (shape.lower + 2 * k * k + k * columns))
    places = shared(Word, TILE)
    sizes = shared(Word, 2)
    slot, column = thread() % TILE, thread() // TILE
    of_diagonal, of_coupling = column < k, k <= column < 2 * k
    own = column if of_diagonal else column - k if of_coupling else column - 2 * k
    width: Integer = k if of_diagonal or of_coupling else columns
    # Addresses of this lane's block. D: the packed diagonal, later weights and L; U: couplings, later P; Q: full
    # columns of the diagonal, later Q; R: right-hand sides, later the reduced ones.
    D = near + slot
    U = D + TILE * shape.lower
    Q = U + TILE * k * k
    R = Q + TILE * k * k
    place = (Q if of_diagonal else U if of_coupling else R) + own * TILE
    value, found, lower = local(Scalar, k), local(Scalar, k), local(Scalar, shape.lower)
    for work in range(Word(block()), tiles, Word(blocks())):
        if column == 0:
            find_places(places, sizes, order, groups, work, rows, batch, slot)
        barrier()
        length = convert(Integer, sizes[0])
        ahead = slot % length
        behind = length - 1 - ahead
        there = places[slot] >= 0
        if there:
            source = diagonal if of_diagonal else coupling if of_coupling else right
            apart = sizes[1]
            load(value, source + (own * apart + places[slot]), width * apart, k)
            store(value, place, width * TILE, k)
            if of_diagonal:
                store_column_of_lower(value, D, column, k)
        distance: Integer = 1
        while True:
            barrier()
            if there and column == 0:
                shape.factored(D, D, TILE)
            barrier()
            if distance >= length:
                break
            before, after = ahead >= distance, behind >= distance
            if there:
                load(lower, D, TILE, shape.lower)
                load(value, place, width * TILE, k)
                if of_diagonal or of_coupling:
                    load_coupling(found, U, TILE, distance, before, after, column, k)
                else:
                    load(found, value, 1, k)
                shape.substituted(lower, found, found)
            barrier()
            if there:
                store(found, place, width * TILE, k)
            barrier()
            if there:
                if of_coupling:
                    set_zero(value, k)
                take(value, U, Q, R, D, TILE, distance, before, after, column, shape)
            barrier()
            if there:
                store(value, place, width * TILE, k)
                if of_diagonal:
                    store_column_of_lower(value, D, column, k)
            distance *= 2
        if there and not of_diagonal and not of_coupling:
            load(lower, D, TILE, shape.lower)
            load(value, place, width * TILE, k)
            shape.solved(lower, value, value)
            store(value, solution + (own * sizes[1] + places[slot]), width * sizes[1], k)
        barrier()


def find_places(
    places: Array[Word],
    sizes: Array[Word],
    order: Array[Word],
    groups: Array[Word],
    work: Word,
    rows: Word,
    batch: Word,
    slot: Integer,
) -> None:
    """Find the block of a slot, or -1. Also stores the length of the tile's systems and the stride of scalars."""
    tile, group = work, groups
    while True:
        each = TILE // group[0]
        of_group = (group[2] * batch + each - 1) // each
        if tile < of_group:
            break
        tile -= of_group
        group = group + 3
    length = convert(Integer, group[0])
    fit = TILE // length
    system = tile * fit + slot // length
    first = group[1] + system // batch * length
    there = slot // length < fit and system < group[2] * batch
    places[slot] = order[first + slot % length] * batch + system % batch if there else -1
    if slot == 0:
        sizes[0] = length
        sizes[1] = rows * batch


@routine
def reduce_blocks(
    diagonal: Array[Scalar],
    coupling: Array[Scalar],
    right: Array[Scalar],
    found: Array[Scalar],
    ahead: Array[Word],
    behind: Array[Word],
    workspace: Array[Scalar],
    rows: Word,
    batch: Word,
    distance: Word,
    shape: Static[Shape],
) -> None:
    """Reduce each column of each block by the block's factor, with a thread for each column."""
    k, columns, apart = shape.k, shape.columns, rows * batch
    lower, result = local(Scalar, shape.lower), local(Scalar, k)
    for work in range(first_work(BLOCK_THREADS), apart * shape.width, all_threads(BLOCK_THREADS)):
        column, at = convert(Integer, work // apart), work % apart
        place = at // batch
        before, after = ahead[place] >= distance, behind[place] >= distance
        load_lower(lower, diagonal + at, apart, k)
        shape.factored(lower, lower)
        if column < 2 * k:
            load_coupling(result, coupling + at, apart, distance * batch, before, after, column, k)
        else:
            load(result, right + ((column - 2 * k) * apart + at), columns * apart, k)
        shape.substituted(lower, result, result)
        P = found + at
        Q = P + k * k * apart
        rest = Q + k * k * apart
        if column < k:
            store(result, Q + column * apart, k * apart, k)
        elif column < 2 * k:
            store(result, P + (column - k) * apart, k * apart, k)
        else:
            store(result, rest + (column - 2 * k) * apart, columns * apart, k)
        if column == 0:
            store(lower, rest + k * columns * apart, apart, k)


@routine
def take_blocks(
    diagonal: Array[Scalar],
    right: Array[Scalar],
    found: Array[Scalar],
    diagonal_left: Array[Scalar],
    coupling_left: Array[Scalar],
    right_left: Array[Scalar],
    ahead: Array[Word],
    behind: Array[Word],
    workspace: Array[Scalar],
    rows: Word,
    batch: Word,
    distance: Word,
    shape: Static[Shape],
) -> None:
    """Subtract from each column of each block the contributions of blocks at a distance, from the results of
    `reduce_blocks`, with a thread for each column."""
    k, columns, apart = shape.k, shape.columns, rows * batch
    value = local(Scalar, k)
    for work in range(first_work(BLOCK_THREADS), apart * shape.width, all_threads(BLOCK_THREADS)):
        column, at = convert(Integer, work // apart), work % apart
        place = at // batch
        before, after = ahead[place] >= distance, behind[place] >= distance
        P = found + at
        Q = P + k * k * apart
        rest = Q + k * k * apart
        if column < k:
            load(value, diagonal + (column * apart + at), k * apart, k)
        elif column < 2 * k:
            set_zero(value, k)
        else:
            load(value, right + ((column - 2 * k) * apart + at), columns * apart, k)
        weights = rest + k * columns * apart
        take(value, P, Q, rest, weights, apart, distance * batch, before, after, column, shape)
        if column < k:
            store(value, diagonal_left + (column * apart + at), k * apart, k)
        elif column < 2 * k:
            store(value, coupling_left + ((column - k) * apart + at), k * apart, k)
        else:
            store(value, right_left + ((column - 2 * k) * apart + at), columns * apart, k)


@routine
def residual_blocks(
    diagonal: Array[Scalar],
    coupling: Array[Scalar],
    right: Array[Scalar],
    solution: Array[Scalar],
    residual: Array[Scalar],
    ahead: Array[Word],
    behind: Array[Word],
    workspace: Array[Scalar],
    rows: Word,
    batch: Word,
    shape: Static[Shape],
) -> None:
    """The residual of a solution, with a thread for each column of each block."""
    k, columns, apart = shape.k, shape.columns, rows * batch
    value, row = local(Scalar, k), local(Scalar, k)
    for work in range(first_work(BLOCK_THREADS), apart * columns, all_threads(BLOCK_THREADS)):
        column, at = convert(Integer, work // apart), work % apart
        place = at // batch
        load(value, right + (column * apart + at), columns * apart, k)
        own = solution + (column * apart + at)
        for n in rolled(k):
            load(row, diagonal + (n * k * apart + at), apart, k)
            shape.less(value, row, own + n * columns * apart, value)
            if behind[place] > 0:
                load(row, coupling + (n * apart + at), k * apart, k)
                shape.less(value, row, own + (n * columns * apart + batch), value)
            if ahead[place] > 0:
                load(row, coupling + (n * k * apart + at - batch), apart, k)
                shape.less(value, row, own + (n * columns * apart - batch), value)
        store(value, residual + (column * apart + at), columns * apart, k)


KERNELS: dict[str, tuple[Routine[..., None], tuple[str, ...], tuple[str, ...]]] = {
    "solve_tiles": (solve_tiles, ("diagonal", "coupling", "right"), ("solution",)),
    "reduce_blocks": (reduce_blocks, ("diagonal", "coupling", "right"), ("found",)),
    "take_blocks": (
        take_blocks,
        ("diagonal", "right", "found"),
        ("diagonal_left", "coupling_left", "right_left"),
    ),
    "residual_blocks": (residual_blocks, ("diagonal", "coupling", "right", "solution"), ("residual",)),
}
"""Routines with the names of their inputs and outputs."""


def elimination_kernel(
    name: str, steps: Mapping[str, Program], k: int, columns: int, dtype: np.dtype[Any]
) -> KernelSource:
    """A kernel for systems of blocks (k, k).

    Arrays: diagonal and coupling (k, k, n, batch); right, solution and residual (k, columns, n, batch); found, the
    results of `reduce_blocks` for `take_blocks`, (2 k^2 + k columns + k, n, batch). `rows` is n. `ahead`, `behind`
    (n,): the number of blocks before and after each block in its system.

    Args:
        name: one of `KERNELS`.
        steps: "factored", "substituted", "solved", "less" and "taken", traced, of one column and of one row of a
            block (`robodyn.engines.scan.cuda.systems.column_steps`).
        k: rows of a block.
        columns: number of right-hand sides.
        dtype: the type of arrays.
    """
    function, inputs, outputs = KERNELS[name]
    shape = Shape(k, columns, **{each: Straight(each, program, dtype) for each, program in steps.items()})
    threads = TILE * shape.width if name == "solve_tiles" else BLOCK_THREADS
    return kernel_source(function, dtype, inputs, outputs, threads=threads, blocks=1, shape=shape)
