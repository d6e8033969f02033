"""Kernels of the scan engine: a step on every element, and scans of segments by any associative operator.

Both are printed from the texts that NumPy's scans run, traced. Element arrays are (size, n, batch).

A scan cuts the sequence into tiles, each the work of a warp for one row of the batch, and each tile into 32 runs, one
of a lane. Lanes compose their runs element by element; run totals are scanned across the warp by shuffles, in five
rounds; then each lane goes through its run again, from what comes before it. Totals of tiles are scanned in the same
way before that (`totals`, then `prefixes` on totals, then `prefixes` with what is carried in). What is composed with
what depends on the segments alone: neither on the order of threads nor on the grid nor on the batch. No memory is
shared by threads, so elements may be of any size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robodyn.engines.gpu import sincos
from robodyn.engines.gpu.dialect import FUSED, CudaDialect
from robodyn.engines.gpu.ordering import in_short_order
from robodyn.engines.gpu.source import SCALARS, WARP, KernelSource
from robodyn.tracing.c_body import Body
from robodyn.tracing.program import Port, Program

BLOCK_THREADS = 128
_INLINE = 300
"""Operations of the largest composition that stands in the code wherever it is used: the elements of larger ones fill
more than all registers anyway, and NVRTC takes a second for each copy."""
LONGEST_RUN = 32
_SHORTEST_RUN = 8
"""Of a sequence of several tiles."""
_RUNS = 1 << 15
"""Runs that keep a large GPU busy: longer sequences get longer runs."""


def run_length(n: int) -> int:
    """Elements that a lane composes one after another in a scan of n."""
    if n <= WARP * LONGEST_RUN:
        return max(1, -(-n // WARP))
    return min(LONGEST_RUN, max(_SHORTEST_RUN, n // _RUNS))


def strides_of(name: str) -> tuple[str, str, str]:
    """Names of the numbers that say how far the scalars, elements and rows of an array lie apart, in scalars."""
    return f"{name}_scalar", f"{name}_element", f"{name}_row"


def step_kernel(program: Program, dtype: np.dtype[Any], name: str = "scan_step") -> KernelSource:
    """The kernel of a step: `rows` are elements times batch, a thread for each; arrays may have any strides, 0 where
    they broadcast, which are numbers (`strides_of`) behind the number "batch".

    `program`: its inputs and its one output have one axis.
    """
    scalar = SCALARS[dtype.name]
    ports = (*program.inputs, *program.outputs)
    body = Body(in_short_order(program), CudaDialect(scalar), _register_or_place, len(program.nodes) + 1)
    (statements,) = body.parts()
    loads = [
        f"const {scalar} {port.name}_{k} = {port.name}[{k} * {port.name}_scalar];"
        for port in program.inputs
        for k, node in enumerate(port.scalars)
        if node != -1
    ]
    pointers = [
        f"{'' if port in program.outputs else 'const '}{scalar}* __restrict__ {port.name} = "
        f"{port.name}_array + element * {port.name}_element + row * {port.name}_row;"
        for port in ports
    ]
    numbers = ("batch", *(number for port in ports for number in strides_of(port.name)))
    parameters = [
        *(f"const {scalar}* __restrict__ {port.name}_array" for port in program.inputs),
        *(f"{scalar}* __restrict__ {port.name}_array" for port in program.outputs),
        f"{scalar}* workspace",
        *(f"long long {number}" for number in ("rows", *numbers)),
    ]
    lines = [
        *_prelude(scalar, program),
        *_head(name, parameters),
        "{",
        f"    for (long long k = {BLOCK_THREADS}LL * blockIdx.x + threadIdx.x; k < rows;",
        f"         k += {BLOCK_THREADS}LL * gridDim.x) {{",
        "        const long long element = k / batch, row = k % batch;",
        *(f"        {line}" for line in (*pointers, *loads, *statements)),
        "    }",
        "}",
    ]
    return KernelSource(
        name,
        "\n".join([*lines, ""]),
        dtype,
        tuple(port.name for port in program.inputs),
        tuple(port.name for port in program.outputs),
        block_threads=BLOCK_THREADS,
        numbers=numbers,
    )


def _register_or_place(port: Port, k: int) -> str:
    """Inputs have been read into variables; results go where the output's pointer leads."""
    return f"out[{k} * out_scalar]" if port.name == "out" else f"{port.name}_{k}"


def _prelude(scalar: str, program: Program) -> list[str]:
    turning = program.counts.get("sin") or program.counts.get("cos")
    return [FUSED.rstrip(), *([sincos.text(scalar).rstrip()] if turning else [])]


def _head(name: str, parameters: Sequence[str]) -> list[str]:
    joined = ",\n    ".join(parameters)
    return [f'extern "C" __global__ void __launch_bounds__({BLOCK_THREADS}) {name}(', f"    {joined})"]


# Scans.

_TEXT = """\
{prelude}
typedef {scalar} T;
typedef long long I;
enum {{ SIZE = {size}, WARPS = {warps} }};

/* out = the stretch in0, then in1. */
static __device__ {inline} void then(const T* in0, const T* in1, T* out)
{{
{composition}
}}
static __device__ __forceinline__ void copy(T* to, const T* from)
{{
#pragma unroll
    for (int k = 0; k < SIZE; k++)
        to[k] = from[k];
}}

/* What was found so far, and what comes next in the order of the scan; into `found`. */
static __device__ __forceinline__ void join(T* found, const T* next)
{{
    T both[SIZE];
    {joined}
    copy(found, both);
}}

/* Elements lie in memory in the order of the scan, or backwards. */
static __device__ __forceinline__ I place(I at, I n)
{{
    return {place};
}}
static __device__ __forceinline__ void load(T* to, const T* __restrict__ from, I at, I n, I batch, I row)
{{
    from += place(at, n) * batch + row;
#pragma unroll
    for (int k = 0; k < SIZE; k++)
        to[k] = from[k * n * batch];
}}
static __device__ __forceinline__ void store(const T* from, T* __restrict__ to, I at, I n, I batch, I row)
{{
    to += place(at, n) * batch + row;
#pragma unroll
    for (int k = 0; k < SIZE; k++)
        to[k * n * batch] = from[k];
}}
static __device__ __forceinline__ void take(T* to, const T* from, int distance)
{{
#pragma unroll
    for (int k = 0; k < SIZE; k++)
        to[k] = __shfl_up_sync(0xffffffffu, from[k], distance);
}}

/* Run totals scanned across the warp: `mine` becomes what ends with the lane's run, from where the segment of the run's
   last element begins, or else the tile. */
static __device__ __forceinline__ void scan_runs(
    T* mine, const T* __restrict__ elements, const I* __restrict__ begin, I n, I batch, I row, I first, I last,
    I length, int lane)
{{
    I from = n;
    if (first < last) {{
        from = begin[last - 1];
        const I start = from > first ? from : first;
        load(mine, elements, start, n, batch, row);
        for (I at = start + 1; at < last; at++) {{
            T next[SIZE];
            load(next, elements, at, n, batch, row);
            join(mine, next);
        }}
    }} else {{
#pragma unroll
        for (int k = 0; k < SIZE; k++)
            mine[k] = 0;
    }}
    for (int d = 1; d < {warp}; d *= 2) {{
        T before[SIZE];
        take(before, mine, d);
        if (lane >= d && from < first - (d - 1) * length) {{
            join(before, mine);
            copy(mine, before);
        }}
    }}
}}

{head}
{{
    const int lane = threadIdx.x % {warp};
    const I tiles = (rows + {warp} * length - 1) / ({warp} * length);
    for (I work = (I)blockIdx.x * WARPS + threadIdx.x / {warp}; work < tiles * batch; work += (I)gridDim.x * WARPS) {{
        const I row = work % batch, tile = work / batch, start = tile * {warp} * length;
        const I first = start + lane * length, last = first + length < rows ? first + length : rows;
        T mine[SIZE];
        scan_runs(mine, elements, begin, rows, batch, row, first, last, length, lane);
{rest}\
    }}
}}
"""

_TOTALS = f"""\
        if (first < last && (last == rows || lane == {WARP - 1}))
            store(mine, totals, tile, tiles, batch, row);
"""

_PREFIXES = """\
        T found[SIZE];
        take(found, mine, 1);
        if (first < last) {
            if (carried && begin[first] < start) {
                T whole[SIZE];
                load(whole, carry, tile - 1, tiles, batch, row);
                if (lane)
                    join(whole, found);
                copy(found, whole);
            }
            for (I at = first; at < last; at++) {
                T next[SIZE];
                load(next, elements, at, rows, batch, row);
                if (begin[at] == at)
                    copy(found, next);
                else
                    join(found, next);
                store(found, prefixes, at, rows, batch, row);
            }
        }
"""

_BEGIN, _NUMBERS = np.zeros(1, np.int64), ("batch", "length", "carried")


def scan_kernels(composition: Program, dtype: np.dtype[Any], *, backwards: bool) -> tuple[KernelSource, KernelSource]:
    """The kernels of an operator.

        scan_totals(elements, totals, begin, carry, workspace, rows, batch, length, carried)
        scan_prefixes(elements, prefixes, begin, carry, workspace, rows, batch, length, carried)

    Arrays: elements and prefixes (size, n, batch); totals, and carry, their prefixes, (size, tiles, batch). `begin`
    (n,): for each position in the order of the scan, where its segment begins. `rows` is n, `length` that of a run
    (`run_length`), a tile being 32 runs, and `carried` says whether there is a carry.

    Args:
        composition: out (size,) from in0 (size,) and in1 (size,), in0 being nearer the root.
        dtype: of elements.
        backwards: whether positions are counted from the last element, and totals lie likewise.
    """
    return (
        _scan_kernel(composition, dtype, backwards, "scan_totals", "totals", _TOTALS),
        _scan_kernel(composition, dtype, backwards, "scan_prefixes", "prefixes", _PREFIXES),
    )


def _scan_kernel(
    program: Program, dtype: np.dtype[Any], backwards: bool, name: str, result: str, rest: str
) -> KernelSource:
    scalar = SCALARS[dtype.name]
    body = Body(
        in_short_order(program), CudaDialect(scalar), lambda port, k: f"{port.name}[{k}]", len(program.nodes) + 1
    )
    (statements,) = body.parts()
    parameters = [
        "const T* __restrict__ elements",
        f"T* __restrict__ {result}",
        "const I* __restrict__ begin",
        "const T* __restrict__ carry",
        "T* workspace",
        *(f"I {number}" for number in ("rows", *_NUMBERS)),
    ]
    text = _TEXT.format(
        prelude="\n".join(_prelude(scalar, program)),
        scalar=scalar,
        size=program.outputs[0].size,
        warp=WARP,
        warps=BLOCK_THREADS // WARP,
        inline="__forceinline__" if program.operations <= _INLINE else "__noinline__",
        composition="\n".join(f"    {line}" for line in statements),
        joined="then(next, found, both);" if backwards else "then(found, next, both);",
        place="n - 1 - at" if backwards else "at",
        head="\n".join(_head(name, parameters)),
        rest=rest,
    )
    constants = (_BEGIN, np.zeros(1, dtype))
    return KernelSource(
        name, text, dtype, ("elements",), (result,), constants, block_threads=BLOCK_THREADS, numbers=_NUMBERS
    )
