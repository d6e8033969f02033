"""What a GPU can do at most: bytes that a copy moves, and fused products and sums in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from robodyn.engines.gpu.source import SCALARS, KernelSource
from robodyn.tools.benchmark.timing import measure as timed
from tests.bench.gpu.machine import Machine

COPIED_BYTES = 1 << 30
_CHAINS, _STEPS, _ROUNDS = 8, 16, 32
"""Sums that do not wait for one another, steps of each in a turn of the loop, turns."""
_THREADS = 256
_WAVES = 4
FLOPS_OF_A_ROW = 2 * _CHAINS * _STEPS * _ROUNDS


@dataclass(frozen=True)
class Ceilings:
    """`bytes_per_s`: read and written by a copy on the device; `flops`: each second, by dtype, a fused product and sum
    being two."""

    bytes_per_s: float
    flops: dict[str, float] = field(default_factory=dict)

    def seconds(self, moved: float, operations: float, dtype: str) -> float:
        """The least that so many bytes and operations take: whichever takes longer."""
        return max(moved / self.bytes_per_s, operations / self.flops[dtype])


def measure(machine: Machine, dtypes: Sequence[str], seconds: float, copied: int = COPIED_BYTES) -> Ceilings:
    """Measure both."""
    flops = {dtype: _multiplied(machine, dtype, seconds) for dtype in dtypes}
    return Ceilings(_copied(machine, copied, seconds), flops)


def _copied(machine: Machine, size: int, seconds: float) -> float:
    xp, word = machine.device.xp, np.dtype(np.float64)
    source, target = (xp.empty((size // word.itemsize,), word) for _ in range(2))
    source[...] = 1.0  # memory that was never written may be read faster

    def copy() -> None:
        target[...] = source

    return 2 * size / timed(copy, seconds, machine.clock).best_s


def _multiplied(machine: Machine, dtype: str, seconds: float) -> float:
    device = machine.device
    kernel = device.load(fma_kernel(dtype))
    blocks = _WAVES * device.processors * kernel.blocks_per_processor
    rows = blocks * _THREADS
    start = device.xp.asarray(np.full(rows, 0.5, dtype))
    end = device.xp.empty((rows,), np.dtype(dtype))
    call = partial(kernel.launch, blocks, [start, end, None], rows)
    found = machine.kernels(call, seconds)
    np.testing.assert_allclose(device.xp.asnumpy(end[:_THREADS]), _CHAINS, rtol=1e-6)
    return rows * FLOPS_OF_A_ROW / found.best_s


def fma_kernel(dtype: str) -> KernelSource:
    """Each thread drives sums towards 1, which a product and a sum of 1/2 each do: all it reads and writes is one
    number."""
    chains = range(_CHAINS)
    step = " ".join(f"v{k} = v{k} * x + x;" for k in chains)
    text = f"""\
extern "C" __global__ void __launch_bounds__({_THREADS}) fma_ceiling(
    const T* given, T* left, T* workspace, long long rows)
{{
    for (long long r = blockIdx.x * (long long)blockDim.x + threadIdx.x; r < rows;
         r += gridDim.x * (long long)blockDim.x) {{
        const T x = given[r];
        T {", ".join(f"v{k} = x * {k}" for k in chains)};
        for (int round = 0; round < {_ROUNDS}; round++) {{
            {_STEPS * f"{step} "}
        }}
        left[r] = {" + ".join(f"v{k}" for k in chains)};
    }}
}}
"""
    text = text.replace("T*", f"{SCALARS[dtype]}*").replace("T ", f"{SCALARS[dtype]} ")
    return KernelSource("fma_ceiling", text, np.dtype(dtype), ("given",), ("left",), block_threads=_THREADS)
