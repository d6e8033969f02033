"""Blocks that a multiprocessor holds, beside what NVIDIA's occupancy calculator gives."""

from __future__ import annotations

import numpy as np
import pytest

from robodyn.engines.gpu.compiler import Report
from robodyn.engines.gpu.occupancy import resident_blocks
from robodyn.engines.gpu.source import KernelSource


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "static", "dynamic", "blocks"),
    [
        ("sm_90", 128, 32, 0, 0, 16),  # threads
        ("sm_86", 128, 32, 0, 0, 12),
        ("sm_90", 32, 32, 0, 0, 32),  # blocks
        ("sm_86", 32, 32, 0, 0, 16),
        ("sm_89", 32, 32, 0, 0, 24),
        ("sm_90", 128, 128, 0, 0, 4),  # registers: 4096 of a warp
        ("sm_90", 128, 129, 0, 0, 3),  # which come in steps of eight for a thread
        ("sm_90", 128, 168, 0, 0, 3),
        ("sm_90", 128, 255, 0, 0, 2),
        ("sm_90", 96, 80, 0, 0, 8),  # and for each quarter of the multiprocessor: 6 warps in each
        ("sm_80", 256, 255, 0, 0, 1),
        ("sm_90", 512, 255, 0, 0, 0),
        ("sm_80", 128, 32, 48 << 10, 0, 3),  # shared memory, of which the system takes some of each block
        ("sm_86", 128, 32, 48 << 10, 0, 2),
        ("sm_90", 128, 32, 0, 48 << 10, 4),
        ("sm_90", 128, 32, 1 << 10, 226 << 10, 1),
        ("sm_90", 128, 32, 1 << 10, 227 << 10, 0),
    ],
)
def test_gpu_occupancy(arch: str, threads: int, registers: int, static: int, dynamic: int, blocks: int) -> None:
    source = KernelSource("kernel", "", np.dtype(np.float32), (), (), block_threads=threads, shared_bytes=dynamic)
    assert resident_blocks(source, Report(registers, 0, 0, static), arch) == blocks
