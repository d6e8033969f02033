"""Kernels that solve with a mass matrix along the branches of a tree (RBDA section 6.5), a level at a time.

Rows up to the diagonal lie one behind another; entry e of the row of a degree of freedom belongs to its ancestor of
depth e. The factor is H = L' D L without fill: `eliminate_level` takes all descendants of a level's degrees of freedom,
which are neighbours in depth-first order, out of their rows and right-hand sides. Each entry has a warp, so no two
write to one place, and sums are taken in an order that the tree alone decides. Rows stay as D L, beside the reciprocals
of D. `solve_level` then goes from the roots outward.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from robodyn.engines.gpu.source import SCALARS, WARP, KernelSource

BLOCK_THREADS = 128

_TEXT = """\
typedef {scalar} T;
typedef long long I;

extern "C" __global__ void __launch_bounds__({threads}) {name}(
    {parameters})
{{
{body}\
}}
"""

_ELIMINATE = f"""\
    const int lane = threadIdx.x % {WARP};
    const I columns = depth + 2, first_work = ((I)blockIdx.x * {BLOCK_THREADS} + threadIdx.x) / {WARP};
    for (I work = first_work; work < rows * columns * batch; work += (I)gridDim.x * {BLOCK_THREADS // WARP}) {{
        const I row = work % batch, column = work / batch % columns, j = dofs[work / batch / columns];
        T total = 0;
        for (I at = rank[j] + 1 + lane; at < rank[j] + size[j]; at += {WARP}) {{
            const I i = order[at];
            const T left = entries[(first[i] + depth) * batch + row] * reciprocals[i * batch + row];
            total += left * (column <= depth ? entries[(first[i] + column) * batch + row] : vector[i * batch + row]);
        }}
        for (int d = {WARP // 2}; d > 0; d /= 2)
            total += __shfl_down_sync(0xffffffffu, total, d);
        if (lane == 0) {{
            T* const place = column <= depth ? entries + (first[j] + column) * batch + row : vector + j * batch + row;
            *place -= total;
            if (column == depth)
                reciprocals[j * batch + row] = 1 / *place;
        }}
    }}
"""

_SOLVE = f"""\
    for (I work = (I)blockIdx.x * {BLOCK_THREADS} + threadIdx.x; work < rows * batch;
         work += (I)gridDim.x * {BLOCK_THREADS}) {{
        const I row = work % batch, j = dofs[work / batch];
        T value = vector[j * batch + row];
        for (I e = first[j]; e < first[j] + depth; e++)
            value -= entries[e * batch + row] * solution[ancestors[e] * batch + row];
        solution[j * batch + row] = value * reciprocals[j * batch + row];
    }}
"""

_KERNELS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "eliminate_level": (
        _ELIMINATE,
        (),
        ("entries", "vector", "reciprocals"),
        ("dofs", "first", "order", "rank", "size"),
    ),
    "solve_level": (_SOLVE, ("entries", "vector", "reciprocals"), ("solution",), ("dofs", "first", "ancestors")),
}
"""Body, inputs, outputs (which are read as well) and constants of each kernel."""


def branch_kernel(name: str, dtype: np.dtype[Any]) -> KernelSource:
    """A kernel for one level.

        eliminate_level(entries, vector, reciprocals, dofs, first, order, rank, size, workspace, rows, batch, depth)
        solve_level(entries, vector, reciprocals, solution, dofs, first, ancestors, workspace, rows, batch, depth)

    Arrays: `entries` (pairs, batch), and for each degree of freedom `vector`, right-hand sides, `reciprocals` and
    `solution` (nv, batch). `dofs`: those of the level, `rows` of them, which have `depth` ancestors each; `first`
    (nv,): where rows start; `ancestors` (pairs,): whose entries they hold; `order`, `rank`, `size` (nv,): the
    depth-first walk, places in it, and how many degrees of freedom each subtree has.

    Args:
        name: one of the two.
        dtype: of arrays.
    """
    body, inputs, outputs, constants = _KERNELS[name]
    numbers = ("batch", "depth")
    parameters = [
        *(f"const T* __restrict__ {each}" for each in inputs),
        *(f"T* {each}" for each in outputs),
        *(f"const I* __restrict__ {each}" for each in constants),
        "T* workspace",
        *(f"I {each}" for each in ("rows", *numbers)),
    ]
    text = _TEXT.format(
        scalar=SCALARS[dtype.name], threads=BLOCK_THREADS, name=name, parameters=",\n    ".join(parameters), body=body
    )
    empty = tuple(np.zeros(1, np.int64) for _ in constants)
    return KernelSource(name, text, dtype, inputs, outputs, empty, block_threads=BLOCK_THREADS, numbers=numbers)
