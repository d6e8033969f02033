"""Prints the loops over states of rolled kernels (grid-stride loops), with the pointers and copies of each state."""

from __future__ import annotations

from collections.abc import Sequence

from robodyn.engines.gpu.functions import Functions
from robodyn.engines.gpu.placement import Placement, Row
from robodyn.engines.gpu.source import WARP
from robodyn.engines.gpu.tiles import draining, loading, storing


def _pool(at: str) -> list[str]:
    return ["extern __shared__ T pool[];", f"T* const near = pool + {at};"]


def _argument(row: Row) -> str:
    return f"{'out' if row.is_output else 'in'}_{row.name}"


def by_tiles(place: Placement, rows: Sequence[Row], lines: Sequence[str], functions: Functions) -> list[str]:
    """The loop of kernels with one thread for each state. A warp takes 32 states, whose rows go through tiles in shared
    memory. The device functions for the copies are added to `functions`."""
    loads, stores, pointers = [], [], []
    for row in rows:
        argument, size = _argument(row), f"n_size_{row.name}"
        here, tile = f"{argument} + tile * {size}", f"near + n_at_{row.name}"
        constant = "" if row.is_output else "const "
        if row.name in place.drained:
            stores.append(f"{draining(functions)}({here}, k_row_{row.name}, near, {size}, count, lane);")
        elif row.name in place.near:
            pointers.append(f"{constant}T* const u_{row.name} = {tile} + lane * ({size} | 1);")
            if row.is_output:
                stores.append(f"{storing(functions)}({here}, {tile}, {size}, count, lane);")
            else:
                loads.append(f"{loading(functions)}({tile}, {here}, {size}, count, lane);")
        else:
            pointers.append(f"{constant}T* const u_{row.name} = {argument} + (tile + lane) * {size};")
    return [
        f"    const int lane = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP};",
        f"    const I first = ((I)blockIdx.x * {place.threads // WARP} + warp) * {WARP};",
        *(f"    {line}" for line in (_pool("warp * n_held") if place.held else [])),
        "    T* const own = workspace + first * n_left + lane;",
        *(f"    T* const {name} = own + (I)n_at_{name} * {WARP};" for name in place.far),
        f"    for (I tile = first; tile < rows; tile += (I)gridDim.x * {place.threads}) {{",
        f"        const int count = rows - tile < {WARP} ? (int)(rows - tile) : {WARP};",
        *(f"        {line}" for line in loads),
        "        __syncwarp();",
        "        if (lane < count) {",
        *(f"            {line}" for line in pointers),
        *lines,
        "        }",
        "        __syncwarp();",
        *(f"        {line}" for line in stores),
        "    }",
    ]


def by_states(partition: str, place: Placement, rows: Sequence[Row], lines: Sequence[str]) -> list[str]:
    """The loop of kernels with a warp or a block for each state. Some or all rows of a state are in shared memory.

    `lines`: the statements for one state. They must begin with a barrier before they read an input.
    """
    if partition == "warp":
        warps = place.threads // WARP
        opening = [
            f"const int THREADS = {WARP}, me = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP};",
            f"const I first = (I)blockIdx.x * {warps} + warp, all = (I)gridDim.x * {warps};",
        ]
    else:
        opening = [
            f"const int THREADS = {place.threads}, me = threadIdx.x;",
            "const I first = blockIdx.x, all = gridDim.x;",
        ]
    opening += _pool("warp * n_held" if partition == "warp" else "0") if place.held else []
    opening += ["T* const own = workspace + first * n_left;"]
    brought = {row.name for row in rows if row.name in place.near}
    for name in (*place.near, *place.far):
        prefix, memory = ("u_" if name in brought else ""), ("near" if name in place.near else "own")
        opening.append(f"T* const {prefix}{name} = {memory} + n_at_{name};")
    before, after = [], []
    for row in rows:
        argument, size = _argument(row), f"n_size_{row.name}"
        each = f"for (int k = me; k < {size}; k += THREADS)"
        if row.name not in brought:
            constant = "" if row.is_output else "const "
            before.append(f"{constant}T* const u_{row.name} = {argument} + row * {size};")
        elif row.is_output:
            after.append(f"{each} {argument}[row * {size} + k] = u_{row.name}[k];")
        else:
            before.append(f"{each} u_{row.name}[k] = {argument}[row * {size} + k];")
    if after:  # the next state's statements must not change rows before they are copied
        after.append("__syncwarp();" if partition == "warp" else "__syncthreads();")
    return [
        *(f"    {line}" for line in opening),
        "    for (I row = first; row < rows; row += all) {",
        *(f"        {line}" for line in before),
        *lines,
        *(f"        {line}" for line in after),
        "    }",
    ]
