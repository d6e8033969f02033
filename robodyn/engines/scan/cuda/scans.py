"""Kernels of scans of segments by any associative operator.

They are printed from the texts that NumPy's scans run, traced. Element arrays are (size, n, batch).

A scan cuts the sequence into tiles, each the work of a warp for one row of the batch, which goes through it in rounds
of 32 elements that follow one another, one of a lane: a warp reads and writes scalars that lie side by side. A round is
scanned across the warp by shuffles, in five steps; then comes what the round before ended with. Totals of tiles are
scanned in the same way before that (`totals`, then `prefixes` on totals, then `prefixes` with what is carried in), so
that elements are read twice and written once. Where compositions take long, tiles are of 32 elements, whose prefixes
are kept, for what is carried in to be joined with (`locals`, then `carried`): elements go through memory once more, but
a warp composes half as often.

Where the batch fills warps, lanes are rows of it instead, each of which goes through its tile element by element, and
elements of sequences of one tile are read once. What is composed with what depends on the segments, and on which of the
two it is: neither on the order of threads nor on the grid nor on the batch else.

What a lane has found is in registers; elements that are too large for that are in shared memory, of which a block, then
of one warp, takes no more than every GPU gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.codegen.c_body import Body
from robodyn.codegen.ordering import in_short_order
from robodyn.engines.gpu.dialect import CudaDialect
from robodyn.engines.gpu.source import SCALARS, SHARED_BYTES, WARP, KernelSource
from robodyn.engines.scan.cuda.steps import BEGIN, BLOCK_THREADS, head_of, prelude_of
from robodyn.tracing.program import Port, Program

_INLINE, _REGISTER_BYTES = 600, 400
"""Operations and bytes of an element up to which a composition stands in the code wherever it is used, and elements are
in registers. Beyond, the composition is a function, for each copy of which NVRTC takes seconds; two elements of each
lane are in shared memory, as far as they have room, and only the third, which is composed with them, in local memory.
Riccati elements in double precision then take all 255 registers and next to no spills, and leave four warps to a
multiprocessor of sm_90, three of sm_80; all in local memory it was seven elements, more than caches hold."""
LONGEST_RUN = 32
"""Elements that a lane goes through in a sequence of one tile; rounds of a warp in one."""
_SHORTEST_RUN = 8
"""Elements that a lane goes through in a sequence of several tiles."""
_FEWEST_ROUNDS, _MOST_ROUNDS = 4, 128
"""Of a warp in a sequence of several tiles."""
_TILES = 1 << 10
"""Warps that keep a large GPU busy: longer sequences get longer tiles."""


def lanes_of(batch: int) -> int:
    """Lanes that share a tile."""
    return WARP if batch < WARP else 1


def run_length(n: int, lanes: int, *, long: bool = False) -> int:
    """Rounds of `lanes` elements in a tile of a scan of n; `long`: whether compositions take long."""
    if n <= lanes * (1 if long and lanes > 1 else LONGEST_RUN):
        return max(1, -(-n // lanes))
    if lanes == 1:
        return _SHORTEST_RUN
    if long:
        return 1
    return min(_MOST_ROUNDS, max(_FEWEST_ROUNDS, -(-n // (WARP * _TILES))))


def takes_long(composition: Program) -> bool:
    """Whether an operator's compositions are functions, not inline."""
    return composition.operations > _INLINE


_TEXT = """\
{prelude}
typedef {scalar} T;
typedef long long I;
enum {{ SIZE = {size}, THREADS = {threads}, LANES = {lanes}, TILES = THREADS / LANES, APART = {apart} }};

/* out = the stretch in0, then in1, the scalars of which lie STEP0 and STEP1 apart, and those of `out` APART. */
template <int STEP0, int STEP1> static __device__ {inline} void then(const T* in0, const T* in1, T* out)
{{
{composition}
}}

/* What was found so far, and what comes next in the order of the scan. */
template <int STEP0, int STEP1> static __device__ __forceinline__ void join(const T* found, const T* next, T* out)
{{
    {joined}
}}
static __device__ __forceinline__ void load(T* to, const T* from, I step)
{{
#pragma unroll
    for (int k = 0; k < SIZE; k++)
        to[k] = from[k * step];
}}
{growing}
static __device__ __forceinline__ void set(Growing& to, const T* from, I step)
{{
#pragma unroll
    for (int k = 0; k < SIZE; k++)
        to.now[k * APART] = from[k * step];
}}
static __device__ __forceinline__ void store(const Growing& from, T* to, I step)
{{
#pragma unroll
    for (int k = 0; k < SIZE; k++)
        to[k * step] = from.now[k * APART];
}}
static __device__ __forceinline__ void follow(Growing& found, const T* next)
{{
    join<APART, 1>(found.now, next, found.spare);
    become(found);
}}
static __device__ __forceinline__ void precede(const T* before, Growing& found)
{{
    join<1, APART>(before, found.now, found.spare);
    become(found);
}}

/* Elements lie in memory in the order of the scan, or backwards. */
static __device__ __forceinline__ I place(I at, I n)
{{
    return {place};
}}

{working}
{head}
{{
    {declared}
    const I tiles = (rows + LANES * length - 1) / (LANES * length);
    for (I work = (I)blockIdx.x * TILES + threadIdx.x / LANES; work < tiles * batch; work += (I)gridDim.x * TILES) {{
        const I row = work % batch, tile = work / batch, start = tile * LANES * length;
        const I last = start + LANES * length < rows ? start + LANES * length : rows;
        T other[SIZE];
{rest}\
    }}
}}
"""

_IN_REGISTERS = """
/* An element that grows: what it is, and what it becomes. All are variables, which copies only name anew. */
struct Growing {
    T now[SIZE], spare[SIZE];
};
static __device__ __forceinline__ void become(Growing& found)
{
    load(found.now, found.spare, 1);
}

/* What the lane so far before has. */
static __device__ __forceinline__ void take(T* to, const Growing& from, int distance)
{
#pragma unroll
    for (int k = 0; k < SIZE; k++)
        to[k] = __shfl_up_sync(0xffffffffu, from.now[k], distance);
}
"""

_IN_SHARED_MEMORY = """
/* An element that grows: where it is, and where it becomes what it will be. */
struct Growing {
    T *now, *spare;
};
static __device__ __forceinline__ void become(Growing& found)
{
    T* const before = found.now;
    found.now = found.spare;
    found.spare = before;
}

/* What the lane that many places before has; anything where there is no such lane. Nobody writes while others read. */
static __device__ __forceinline__ void take(T* to, const Growing& from, int distance)
{
    extern __shared__ T places[];
    const int at = __shfl_up_sync(0xffffffffu, int(from.now - places), distance);
    __syncwarp();
    load(to, places + at, APART);
    __syncwarp();
}
"""

_PLACES = """\
extern __shared__ T places[];
    Growing mine = {places + threadIdx.x, places + SIZE * THREADS + threadIdx.x};"""
_KEPT = "\n    __shared__ T all_kept[SIZE * TILES];\n    T* const kept = all_kept + threadIdx.x / LANES * SIZE;"
_KEPT_BESIDE = "\n    T* const kept = places + 2 * SIZE * THREADS;"

# A lane for each row.

_TOTALS = """\
        const I from = begin[last - 1], first = from > start ? from : start;
        set(mine, elements + place(first, rows) * batch + row, rows * batch);
        for (I at = first + 1; at < last; at++) {
            load(other, elements + place(at, rows) * batch + row, rows * batch);
            follow(mine, other);
        }
        store(mine, totals + place(tile, tiles) * batch + row, tiles * batch);
"""

_PREFIXES = """\
        if (carried && begin[start] < start)
            set(mine, carry + place(tile - 1, tiles) * batch + row, tiles * batch);
        for (I at = start; at < last; at++) {
            const I here = place(at, rows) * batch + row;
            load(other, elements + here, rows * batch);
            if (begin[at] == at)
                set(mine, other, 1);
            else
                follow(mine, other);
            store(mine, prefixes + here, rows * batch);
        }
"""

# A warp for each tile.

_ROUND = """
/* A round of elements, the first of which is at `base`: `mine` becomes what ends with the lane's, at `at`, from where
   its segment begins, or else the tile. `kept`: what came before the round, where there is any. */
static __device__ __forceinline__ void scan_round(
    Growing& mine, T* other, const T* kept, bool any, const T* __restrict__ elements, const I* __restrict__ begin, I n,
    I batch, I row, I base, I at, I last)
{
    I from = n;
    if (at < last) {
        from = begin[at];
        set(mine, elements + place(at, n) * batch + row, n * batch);
    }
    for (int d = 1; d < LANES; d *= 2) {
        take(other, mine, d);
        if (at >= base + d && from <= at - d)
            precede(other, mine);
    }
    if (any && from < base) {
        load(other, kept, 1);
        precede(other, mine);
    }
    __syncwarp();
}

/* What the last lane has, for all. */
static __device__ __forceinline__ void keep(T* kept, const Growing& mine, int lane)
{
    if (lane == LANES - 1)
        store(mine, kept, 1);
    __syncwarp();
}
"""

_ROUNDS = """\
        const int lane = threadIdx.x % LANES;
        bool any = {carried};
{brought}\
        for (I base = start; base < last; base += LANES) {{
            const I at = base + lane;
            scan_round(mine, other, kept, any, elements, begin, rows, batch, row, base, at, last);
            any = true;
            if (base + LANES < last)
                keep(kept, mine, lane);
            if ({stored})
                store(mine, {where} + row, {step} * batch);
        }}
        __syncwarp();
"""

_TOTALS_OF_WARPS = _ROUNDS.format(
    carried="false", brought="", stored="at == last - 1", where="totals + place(tile, tiles) * batch", step="tiles"
)

_BROUGHT = """\
        if (any)
            for (int k = lane; k < SIZE; k += LANES)
                kept[k] = carry[(k * tiles + place(tile - 1, tiles)) * batch + row];
        __syncwarp();
"""

_PREFIXES_OF_WARPS = _ROUNDS.format(
    carried="carried && begin[start] < start",
    brought=_BROUGHT,
    stored="at < last",
    where="prefixes + place(at, rows) * batch",
    step="rows",
)

# A warp for each tile of 32 elements, where compositions take long: prefixes within tiles are kept, so that what is
# carried in takes one composition more, not all of them again.

_LOCALS = """\
        const I at = start + threadIdx.x % LANES;
        scan_round(mine, other, other, false, elements, begin, rows, batch, row, start, at, last);
        if (at < last)
            store(mine, prefixes + place(at, rows) * batch + row, rows * batch);
        if (at == last - 1)
            store(mine, totals + place(tile, tiles) * batch + row, tiles * batch);
        __syncwarp();
"""

_CARRIED = """\
        const I at = start + threadIdx.x % LANES;
        if (at < last) {
            set(mine, elements + place(at, rows) * batch + row, rows * batch);
            if (tile > 0 && begin[at] < start) {
                load(other, carry + place(tile - 1, tiles) * batch + row, tiles * batch);
                precede(other, mine);
            }
            store(mine, prefixes + place(at, rows) * batch + row, rows * batch);
        }
"""

_NUMBERS = ("batch", "length", "carried")


def scan_kernels(
    composition: Program, dtype: np.dtype[Any], *, backwards: bool, lanes: int = WARP
) -> tuple[KernelSource, KernelSource]:
    """The kernels of an operator.

        scan_totals(elements, totals, begin, carry, workspace, rows, batch, length, carried)
        scan_prefixes(elements, prefixes, begin, carry, workspace, rows, batch, length, carried)

    Where compositions take long (`takes_long`) and lanes are 32, tiles are of 32 elements, and these are

        scan_locals(elements, prefixes, totals, begin, carry, workspace, rows, batch, length, carried)
        scan_carried(prefixes within tiles, prefixes, begin, carry, workspace, rows, batch, length, carried)

    Arrays: elements and prefixes (size, n, batch); totals, and carry, their prefixes, (size, tiles, batch). `begin`
    (n,): for each position in the order of the scan, where its segment begins. `rows` is n, `length` that of a run
    (`run_length`), a tile being as many runs as `lanes`, and `carried` says whether there is a carry.

    Args:
        composition: out (size,) from in0 (size,) and in1 (size,), in0 being nearer the root.
        dtype: of elements.
        backwards: whether positions are counted from the last element, and totals lie likewise.
        lanes: 32, or 1 (`lanes_of`).
    """
    texts: tuple[tuple[str, tuple[str, ...], str], ...]
    if lanes == 1:
        texts = ("totals", ("totals",), _TOTALS), ("prefixes", ("prefixes",), _PREFIXES)
    elif takes_long(composition):
        texts = ("locals", ("prefixes", "totals"), _LOCALS), ("carried", ("prefixes",), _CARRIED)
    else:
        texts = ("totals", ("totals",), _TOTALS_OF_WARPS), ("prefixes", ("prefixes",), _PREFIXES_OF_WARPS)
    first, second = (_scan_kernel(composition, dtype, backwards, lanes, *text) for text in texts)
    return first, second


def _scan_kernel(
    program: Program, dtype: np.dtype[Any], backwards: bool, lanes: int, name: str, results: tuple[str, ...], rest: str
) -> KernelSource:
    scalar, size = SCALARS[dtype.name], program.outputs[0].size
    element = size * dtype.itemsize
    inline = not takes_long(program) and element <= _REGISTER_BYTES
    shared = not inline and (2 * WARP + 1) * element <= SHARED_BYTES
    threads = WARP if shared else BLOCK_THREADS
    steps = {"in0": "STEP0", "in1": "STEP1", "out": "APART"}

    def scalar_of(port: Port, k: int) -> str:
        return f"{port.name}[{k} * {steps[port.name]}]"

    body = Body(in_short_order(program), CudaDialect(scalar), scalar_of, len(program.nodes) + 1)
    (statements,) = body.parts()
    parameters = [
        "const T* __restrict__ elements",
        *(f"T* __restrict__ {result}" for result in results),
        "const I* __restrict__ begin",
        "const T* __restrict__ carry",
        "T* workspace",
        *(f"I {number}" for number in ("rows", *_NUMBERS)),
    ]
    declared = _PLACES if shared else "Growing mine = {};"
    if lanes > 1:
        declared += _KEPT_BESIDE if shared else _KEPT
    text = _TEXT.format(
        prelude="\n".join(prelude_of(scalar, program)),
        scalar=scalar,
        size=size,
        lanes=lanes,
        threads=threads,
        apart="THREADS" if shared else "1",
        inline="__forceinline__" if inline else "__noinline__",
        composition="\n".join(f"    {line}" for line in statements),
        joined="then<STEP1, STEP0>(next, found, out);" if backwards else "then<STEP0, STEP1>(found, next, out);",
        place="n - 1 - at" if backwards else "at",
        growing=_IN_SHARED_MEMORY if shared else _IN_REGISTERS,
        head="\n".join(head_of(f"scan_{name}", parameters, threads)),
        working="" if lanes == 1 else _ROUND,
        declared=declared,
        rest=rest,
    )
    return KernelSource(
        f"scan_{name}",
        text,
        dtype,
        ("elements",),
        results,
        (BEGIN, np.zeros(1, dtype)),
        block_threads=threads,
        shared_bytes=(2 * threads + 1) * element if shared else 0,
        numbers=_NUMBERS,
    )
