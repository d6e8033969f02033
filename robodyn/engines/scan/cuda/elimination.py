"""Kernels that solve block tri-diagonal systems by odd-even elimination (Yang, Wu and Pan 2016, algorithm 2).

The algebra of blocks is printed from the text that NumPy runs (`robodyn.engines.scan.systems.odd_even`): factors of a
block, a column reduced by them, what a neighbour takes from a column, the last solve.

`solve_tiles` solves systems of up to 32 blocks in one launch. A block of threads takes as many systems as have room in
32 places. A warp has one column of all of them, of the diagonal, of couplings, or of right-hand sides, and lane k what
belongs to place k. Blocks lie in shared memory entry by entry, so that lanes find theirs in different banks. A step of
the elimination factorises diagonal blocks, a lane each; then every column is reduced by its own block (columns of the
diagonal stand aside for couplings to what comes before); then every column takes what the blocks at a distance on
either side have left. In longer systems `reduce_blocks` and `take_blocks` make steps over global memory, a thread for
each column of each block, until what is left are interleaved systems of up to 32 blocks. `residual_blocks` is for
refinement.

Columns take from their neighbours always in the same order, so results depend neither on the order of threads nor on
the batch.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from robodyn.codegen.c_body import Body
from robodyn.codegen.ordering import in_short_order
from robodyn.engines.gpu.dialect import FUSED, CudaDialect
from robodyn.engines.gpu.source import SCALARS, WARP, KernelSource
from robodyn.tracing.program import Port, Program

TILE = WARP
"""Blocks that a block of threads holds."""
BLOCK_THREADS = 128
"""Of the kernels over global memory."""

_TEXT = """\
{fused}
typedef {scalar} T;
typedef long long I;
constexpr int K = {k}, RIGHT = {columns}, WIDTH = 2 * K + RIGHT, LOWER = K * (K + 1) / 2, TILE = {tile};

{functions}
template <int N, class S> static __device__ __forceinline__ void load(T* to, const T* from, S stride)
{{
#pragma unroll
    for (int n = 0; n < N; n++)
        to[n] = from[n * stride];
}}
template <int N, class S> static __device__ __forceinline__ void store(const T* from, T* to, S stride)
{{
#pragma unroll
    for (int n = 0; n < N; n++)
        to[n * stride] = from[n];
}}
static __device__ __forceinline__ void clear(T* to)
{{
#pragma unroll
    for (int n = 0; n < K; n++)
        to[n] = 0;
}}
static __device__ __forceinline__ void copy(T* to, const T* from)
{{
#pragma unroll
    for (int n = 0; n < K; n++)
        to[n] = from[n];
}}

/* Of a diagonal block the diagonal is kept, and then what is below it, row by row. */
static __device__ __forceinline__ void load_lower(T* to, const T* from, I stride)
{{
#pragma unroll
    for (int n = 0; n < K; n++) {{
        to[n] = from[n * (K + 1) * stride];
#pragma unroll
        for (int m = 0; m < n; m++)
            to[K + n * (n - 1) / 2 + m] = from[(n * K + m) * stride];
    }}
}}
static __device__ __forceinline__ void store_column_of_lower(const T* from, T* to, int column)
{{
#pragma unroll
    for (int n = 0; n < K; n++)
        if (n >= column)
            to[(n == column ? n : K + n * (n - 1) / 2 + column) * TILE] = from[n];
}}

/* A column of couplings to what comes before is a row of the couplings of the block there. */
template <class S> static __device__ __forceinline__ void load_coupling(
    T* to, const T* U, S apart, S distance, bool before, bool after, int column)
{{
    if (column >= K && after)
        load<K>(to, U + (column - K) * apart, K * apart);
    else if (column < K && before)
        load<K>(to, U + column * K * apart - distance, apart);
    else
        clear(to);
}}

/* What a block takes from a column, row by row of what it left of a coupling and a column. */
template <class S> static __device__ __forceinline__ void take_block(
    T* value, const T* left, const T* right, S stride, const T* weights, S apart)
{{
#pragma unroll 1
    for (int n = 0; n < K; n++) {{
        T row[K];
        load<K>(row, left + n * K * apart, apart);
        taken(value, row, right + n * stride, weights + n * apart, value);
    }}
}}

/* The same of those at a distance on either side: P and Q are what they left of their couplings to what follows and to
   what comes before, rest of right-hand sides. */
template <class S> static __device__ __forceinline__ void take(
    T* value, const T* P, const T* Q, const T* rest, const T* weights, S apart, S distance, bool before, bool after,
    int column)
{{
    const bool diagonal = column < K, coupling = !diagonal && column < 2 * K;
    const int own = diagonal ? column : coupling ? column - K : column - 2 * K;
    const S stride = diagonal || coupling ? K * apart : RIGHT * apart;
    if (before && !coupling) {{
        const T* const right = (diagonal ? P : rest) + own * apart;
        take_block(value, P - distance, right - distance, stride, weights - distance, apart);
    }}
    if (after) {{
        const T* const right = (diagonal ? Q : coupling ? P : rest) + own * apart;
        take_block(value, Q + distance, right + distance, stride, weights + distance, apart);
    }}
}}

{head}
{{
{body}\
}}
"""

_SOLVE_TILES = """\
    __shared__ T near[TILE * (LOWER + 2 * K * K + K * RIGHT)];
    __shared__ I places[TILE];
    __shared__ I sizes[2];
    const int slot = threadIdx.x % TILE, column = threadIdx.x / TILE;
    const bool of_diagonal = column < K, of_coupling = !of_diagonal && column < 2 * K;
    const int own = of_diagonal ? column : of_coupling ? column - K : column - 2 * K;
    const int width = of_diagonal || of_coupling ? K : RIGHT;
    /* Those of this lane's block: what is kept of the diagonal, then weights and L; couplings, then P; whole columns of
       the diagonal, then Q; right-hand sides, then rest. */
    T *const D = near + slot, *const U = D + TILE * LOWER, *const Q = U + TILE * K * K, *const R = Q + TILE * K * K;
    T* const place = (of_diagonal ? Q : of_coupling ? U : R) + own * TILE;
    for (I work = blockIdx.x; work < tiles; work += gridDim.x) {
        if (column == 0) {
            I tile = work;
            const I* group = groups;
            while (true) {
                const I each = TILE / group[0], of_group = (group[2] * batch + each - 1) / each;
                if (tile < of_group)
                    break;
                tile -= of_group;
                group += 3;
            }
            const int length = (int)group[0], each = TILE / length;
            const I system = tile * each + slot / length, first = group[1] + system / batch * length;
            const bool there = slot / length < each && system < group[2] * batch;
            places[slot] = there ? order[first + slot % length] * batch + system % batch : -1;
            if (slot == 0) {
                sizes[0] = length;
                sizes[1] = rows * batch;
            }
        }
        __syncthreads();
        const int length = (int)sizes[0], ahead = slot % length, behind = length - 1 - ahead;
        const bool there = places[slot] >= 0;
        if (there) {
            const T* const from = of_diagonal ? diagonal : of_coupling ? coupling : right;
            const I apart = sizes[1];
            T given[K];
            load<K>(given, from + own * apart + places[slot], width * apart);
            store<K>(given, place, width * TILE);
            if (of_diagonal)
                store_column_of_lower(given, D, column);
        }
        for (int distance = 1;; distance *= 2) {
            __syncthreads();
            if (there && column == 0)
                factored(D, D, TILE);
            __syncthreads();
            if (distance >= length)
                break;
            const bool before = ahead >= distance, after = behind >= distance;
            T value[K], found[K];
            if (there) {
                T lower[LOWER];
                load<LOWER>(lower, D, TILE);
                load<K>(value, place, width * TILE);
                if (of_diagonal || of_coupling)
                    load_coupling(found, U, TILE, distance, before, after, column);
                else
                    copy(found, value);
                substituted(lower, found, found);
            }
            __syncthreads();
            if (there)
                store<K>(found, place, width * TILE);
            __syncthreads();
            if (there) {
                if (of_coupling)
                    clear(value);
                take(value, U, Q, R, D, TILE, distance, before, after, column);
            }
            __syncthreads();
            if (there) {
                store<K>(value, place, width * TILE);
                if (of_diagonal)
                    store_column_of_lower(value, D, column);
            }
        }
        if (there && !of_diagonal && !of_coupling) {
            const I apart = sizes[1];
            T value[K], lower[LOWER];
            load<LOWER>(lower, D, TILE);
            load<K>(value, place, width * TILE);
            solved(lower, value, value);
            store<K>(value, solution + own * apart + places[slot], width * apart);
        }
        __syncthreads();
    }
"""

_EACH_COLUMN = """\
    const I apart = rows * batch;
    for (I work = (I)blockIdx.x * {threads} + threadIdx.x; work < apart * {width}; work += (I)gridDim.x * {threads}) {{
        const int column = (int)(work / apart);
        const I at = work % apart, place = at / batch;
"""

_REDUCE_BLOCKS = """\
        const bool before = ahead[place] >= distance, after = behind[place] >= distance;
        T lower[LOWER], result[K];
        load_lower(lower, diagonal + at, apart);
        factored(lower, lower);
        if (column < 2 * K)
            load_coupling(result, coupling + at, apart, distance * batch, before, after, column);
        else
            load<K>(result, right + (column - 2 * K) * apart + at, RIGHT * apart);
        substituted(lower, result, result);
        T* const P = found + at, *const Q = P + K * K * apart, *const rest = Q + K * K * apart;
        if (column < K)
            store<K>(result, Q + column * apart, K * apart);
        else if (column < 2 * K)
            store<K>(result, P + (column - K) * apart, K * apart);
        else
            store<K>(result, rest + (column - 2 * K) * apart, RIGHT * apart);
        if (column == 0)
            store<K>(lower, rest + K * RIGHT * apart, apart);
    }
"""

_TAKE_BLOCKS = """\
        const bool before = ahead[place] >= distance, after = behind[place] >= distance;
        const T *const P = found + at, *const Q = P + K * K * apart, *const rest = Q + K * K * apart;
        T value[K];
        if (column < K)
            load<K>(value, diagonal + column * apart + at, K * apart);
        else if (column < 2 * K)
            clear(value);
        else
            load<K>(value, right + (column - 2 * K) * apart + at, RIGHT * apart);
        take(value, P, Q, rest, rest + K * RIGHT * apart, apart, distance * batch, before, after, column);
        if (column < K)
            store<K>(value, diagonal_left + column * apart + at, K * apart);
        else if (column < 2 * K)
            store<K>(value, coupling_left + (column - K) * apart + at, K * apart);
        else
            store<K>(value, right_left + (column - 2 * K) * apart + at, RIGHT * apart);
    }
"""

_RESIDUAL_BLOCKS = """\
        T value[K];
        load<K>(value, right + column * apart + at, RIGHT * apart);
        const T* const own = solution + column * apart + at;
#pragma unroll 1
        for (int n = 0; n < K; n++) {
            T row[K];
            load<K>(row, diagonal + n * K * apart + at, apart);
            less(value, row, own + n * RIGHT * apart, value);
            if (behind[place] > 0) {
                load<K>(row, coupling + n * apart + at, K * apart);
                less(value, row, own + n * RIGHT * apart + batch, value);
            }
            if (ahead[place] > 0) {
                load<K>(row, coupling + n * K * apart + at - batch, apart);
                less(value, row, own + n * RIGHT * apart - batch, value);
            }
        }
        store<K>(value, residual + column * apart + at, RIGHT * apart);
    }
"""

_BODIES = {
    "solve_tiles": _SOLVE_TILES,
    "reduce_blocks": _EACH_COLUMN.format(threads=BLOCK_THREADS, width="WIDTH") + _REDUCE_BLOCKS,
    "take_blocks": _EACH_COLUMN.format(threads=BLOCK_THREADS, width="WIDTH") + _TAKE_BLOCKS,
    "residual_blocks": _EACH_COLUMN.format(threads=BLOCK_THREADS, width="RIGHT") + _RESIDUAL_BLOCKS,
}
_ARGUMENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "solve_tiles": (("diagonal", "coupling", "right"), ("solution",), ("order", "groups"), ("batch", "tiles")),
    "reduce_blocks": (("diagonal", "coupling", "right"), ("found",), ("ahead", "behind"), ("batch", "distance")),
    "take_blocks": (
        ("diagonal", "right", "found"),
        ("diagonal_left", "coupling_left", "right_left"),
        ("ahead", "behind"),
        ("batch", "distance"),
    ),
    "residual_blocks": (
        ("diagonal", "coupling", "right", "solution"),
        ("residual",),
        ("ahead", "behind"),
        ("batch",),
    ),
}
"""Inputs, outputs, constants and numbers of each kernel."""


def elimination_kernel(
    name: str, steps: dict[str, Program], k: int, columns: int, dtype: np.dtype[Any]
) -> KernelSource:
    """A kernel for systems of blocks (k, k) and right-hand sides of n columns.

        solve_tiles(diagonal, coupling, right, solution, order, groups, workspace, rows, batch, tiles)
        reduce_blocks(diagonal, coupling, right, found, ahead, behind, workspace, rows, batch, distance)
        take_blocks(diagonal, right, found, diagonal_left, coupling_left, right_left, ahead, behind, workspace, rows,
                    batch, distance)
        residual_blocks(diagonal, coupling, right, solution, residual, ahead, behind, workspace, rows, batch)

    Arrays: diagonal and coupling (k, k, n, batch); right, solution and residual (k, columns, n, batch); found, what
    `reduce_blocks` leaves for `take_blocks`, (2 k^2 + k columns + k, n, batch). `rows` is n. `ahead`, `behind` (n,):
    blocks before and after each in its system. `order` (n,): places of blocks, system after system; `groups` (number
    of groups, 3): systems of one length, that length, where they begin in `order`, and how many there are; `tiles`:
    how many of `TILE` places they fill, n systems of each group and row in one as have room.

    Args:
        name: one of these.
        steps: "factored", "substituted", "solved", "less" and "taken", traced, of one column and of one row of a
            block (`robodyn.engines.scan.cuda.systems.column_steps`).
        k: rows of a block.
        columns: of right-hand sides.
        dtype: of arrays.
    """
    inputs, outputs, constants, numbers = _ARGUMENTS[name]
    scalar, threads = SCALARS[dtype.name], BLOCK_THREADS
    if name == "solve_tiles":
        threads = TILE * (2 * k + columns)
    parameters = [
        *(f"const T* __restrict__ {each}" for each in inputs),
        *(f"T* __restrict__ {each}" for each in outputs),
        *(f"const I* __restrict__ {each}" for each in constants),
        "T* workspace",
        *(f"I {each}" for each in ("rows", *numbers)),
    ]
    joined = ",\n    ".join(parameters)
    text = _TEXT.format(
        fused=FUSED.rstrip(),
        scalar=scalar,
        k=k,
        columns=columns,
        tile=TILE,
        functions="\n".join(_function(each, program, scalar) for each, program in steps.items()),
        head=f'extern "C" __global__ void __launch_bounds__({threads}, 1) {name}(\n    {joined})',
        body=_BODIES[name],
    )
    empty = tuple(np.zeros(1, np.int64) for _ in constants)
    return KernelSource(name, text, dtype, inputs, outputs, empty, block_threads=threads, numbers=numbers)


def _function(name: str, program: Program, scalar: str) -> str:
    """A step as a function of arrays, of which `out` may be one, whose scalars lie `apart`. Each is read when it is
    first needed: all at once they would fill the registers."""
    body = Body(in_short_order(program), CudaDialect(scalar), _register_or_place, len(program.nodes) + 1)
    (statements,) = body.parts()
    lines, read = [], set()
    for statement in statements:
        for port, k in _READ.findall(statement):
            if (port, k) not in read:
                read.add((port, k))
                lines.append(f"const T {port}_{k} = {port}[{k} * apart];")
        lines.append(statement)
    parameters = ", ".join([*(f"const T* {port.name}" for port in program.inputs), "T* out", "int apart = 1"])
    text = "\n".join(f"    {line}" for line in lines)
    return f"static __device__ __forceinline__ void {name}({parameters})\n{{\n{text}\n}}"


_READ = re.compile(r"\b(in\d+)_(\d+)\b")


def _register_or_place(port: Port, k: int) -> str:
    return f"out[{k} * apart]" if port.name == "out" else f"{port.name}_{k}"
