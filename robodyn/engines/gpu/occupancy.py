"""Occupancy: how many blocks of a kernel are resident on a multiprocessor, computed without a device.

The limits are from the CUDA C++ Programming Guide (compute capabilities) and from NVIDIA's occupancy calculator.
"""

from __future__ import annotations

from robodyn.engines.gpu.compiler import Report
from robodyn.engines.gpu.source import WARP, KernelSource
from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass

_QUARTERS = 4
"""Partitions of a multiprocessor, each with its own registers and warps."""
_REGISTERS = 65536 // _QUARTERS
_REGISTER_UNIT, _SHARED_UNIT = 256, 128
"""Allocation units: registers of a warp, and bytes of shared memory of a block."""
_RESERVED_BYTES = 1 << 10
"""Bytes of each block's shared memory that CUDA reserves."""


@dataclass(frozen=True)
class Multiprocessor:
    """The limits of a multiprocessor: resident threads, resident blocks, and bytes of shared memory."""

    threads: int
    blocks: int
    shared_bytes: int


MULTIPROCESSORS = {
    "sm_80": Multiprocessor(2048, 32, 164 << 10),
    "sm_86": Multiprocessor(1536, 16, 100 << 10),
    "sm_89": Multiprocessor(1536, 24, 100 << 10),
    "sm_90": Multiprocessor(2048, 32, 228 << 10),
}


def resident_blocks(source: KernelSource, report: Report, arch: str) -> int:
    """The number of blocks of a kernel that are resident on a multiprocessor; 0 if not even one fits.

    Raises:
        UnavailableError: the architecture is not in `MULTIPROCESSORS`.
    """
    if arch not in MULTIPROCESSORS:
        known = ", ".join(MULTIPROCESSORS)
        raise UnavailableError(f"engine 'gpu': the limits of {arch!r} are not known here; known: {known}")
    limits = MULTIPROCESSORS[arch]
    warps = -(-source.block_threads // WARP)
    of_warp = _rounded(report.registers * WARP, _REGISTER_UNIT)
    of_block = _rounded(report.shared_bytes + source.shared_bytes + _RESERVED_BYTES, _SHARED_UNIT)
    return min(
        limits.blocks,
        limits.threads // (warps * WARP),
        _REGISTERS // of_warp * _QUARTERS // warps,
        limits.shared_bytes // of_block,
    )


def _rounded(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit
