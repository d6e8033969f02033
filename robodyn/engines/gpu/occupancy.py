"""How many blocks of a kernel a multiprocessor holds at a time: what the driver says of a device that is there, for one
that is not.

Limits are those of the CUDA C++ Programming Guide (compute capabilities) and of NVIDIA's occupancy calculator.
"""

from __future__ import annotations

from robodyn.engines.gpu.compiler import Report
from robodyn.engines.gpu.source import WARP, KernelSource
from robodyn.internals.errors import UnavailableError
from robodyn.internals.records import dataclass

_QUARTERS = 4
"""Parts of a multiprocessor, each with registers and warps of its own."""
_REGISTERS = 65536 // _QUARTERS
_REGISTER_UNIT, _SHARED_UNIT = 256, 128
"""Registers of a warp, and bytes of a block, are given out in multiples of these."""
_RESERVED_BYTES = 1 << 10
"""Shared memory of each block that the system takes."""


@dataclass(frozen=True)
class Multiprocessor:
    """What blocks share: the most threads and blocks at a time, and bytes of shared memory."""

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
    """Blocks of a kernel that a multiprocessor works on at a time; 0 if it cannot hold one.

    Raises:
        UnavailableError: an architecture that is not in `MULTIPROCESSORS`.
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
