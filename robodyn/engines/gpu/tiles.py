"""Rows of neighbouring states through shared memory.

Rows lie one behind another, so threads that each read their own row would touch a sector of memory each. Instead the 32
threads of a warp bring the rows of their 32 states into a tile side by side, each works on its own, and they write
results back side by side.
"""

from __future__ import annotations

from robodyn.engines.gpu.source import WARP

BAND = WARP * (WARP + 1)
"""Scalars of the tile through which `robodyn_drain` takes long rows."""


def padded(size: int) -> int:
    """Scalars from one row of a tile to the next: odd, so that rows begin in different banks."""
    return size | 1


ROWS = f"""\
/* A warp copies `count` rows of `size` scalars to its tile, and back. An even row is one scalar longer there: threads
   that use the same entry of their rows then find it in different banks. */
template <typename T>
__device__ __forceinline__ void robodyn_load(T* tile, const T* __restrict__ rows, int size, int count, int lane)
{{
    for (int i = lane; i < size * count; i += {WARP})
        tile[size % 2 ? i : i + i / size] = rows[i];
}}
template <typename T>
__device__ __forceinline__ void robodyn_store(T* __restrict__ rows, const T* tile, int size, int count, int lane)
{{
    for (int i = lane; i < size * count; i += {WARP})
        rows[i] = tile[size % 2 ? i : i + i / size];
}}
"""

DRAIN = f"""\
/* A warp writes rows that lie interleaved in the workspace: {WARP} columns at a time through `band`. */
template <typename T>
__device__ __forceinline__ void robodyn_drain(T* rows, const T* own, T* band, int size, int count, int lane)
{{
    for (int first = 0; first < size; first += {WARP}) {{
        const int columns = size - first < {WARP} ? size - first : {WARP};
        for (int k = 0; k < columns; k++)
            band[lane * {WARP + 1} + k] = own[(long long)(first + k) * {WARP}];
        __syncwarp();
        if (lane < columns)
            for (int r = 0; r < count; r++)
                rows[(long long)r * size + first + lane] = band[r * {WARP + 1} + lane];
        __syncwarp();
    }}
}}
"""
