"""What engines are made with."""

from __future__ import annotations

from robodyn.engines.gpu.options import GpuOptions
from robodyn.engines.scan.options import ScanOptions
from robodyn.internals.records import dataclass

ENGINE_NAMES = ("auto", "reference", "cpu", "gpu", "scan")
"""What `engine=` can be."""
AUTO, REFERENCE = ENGINE_NAMES[:2]


@dataclass(frozen=True)
class Options:
    """What engines are made with, as given to `Dynamics`."""

    engine: str = AUTO
    threads: int | None = None
    compile: str = "lazy"
    code: str = "auto"
    scan: ScanOptions | None = None
    gpu: GpuOptions | None = None

    @property
    def chooses(self) -> bool:
        """Whether the engine is chosen call by call."""
        return self.engine == AUTO

    @property
    def takes_gpu(self) -> bool:
        """Whether arrays on a GPU are for the GPU engine."""
        return self.engine in (AUTO, "gpu")
