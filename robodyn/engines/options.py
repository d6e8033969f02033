"""Options of engines."""

from __future__ import annotations

from robodyn.engines.gpu.options import GpuOptions
from robodyn.engines.scan.options import ScanOptions
from robodyn.internals.records import dataclass

ENGINE_NAMES = ("auto", "reference", "cpu", "gpu", "scan")
"""Allowed values of `engine=`."""
AUTO, REFERENCE = ENGINE_NAMES[:2]


@dataclass(frozen=True)
class Options:
    """Options of engines, as passed to `Dynamics`."""

    engine: str = AUTO
    threads: int | None = None
    compile: str = "lazy"
    code: str = "auto"
    scan: ScanOptions | None = None
    gpu: GpuOptions | None = None

    @property
    def chooses(self) -> bool:
        """True if the engine is chosen anew for each call."""
        return self.engine == AUTO

    @property
    def takes_gpu(self) -> bool:
        """True if the GPU engine answers calls with arrays on a GPU."""
        return self.engine in (AUTO, "gpu")
