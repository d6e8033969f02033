"""Generated kernels for inspection: source texts, assembler reports and occupancy."""

from __future__ import annotations

from collections.abc import Sequence

from robodyn.engines.gpu.choice import Variant
from robodyn.engines.gpu.compiler import Report, compile_reported
from robodyn.engines.gpu.occupancy import resident_blocks
from robodyn.engines.gpu.source import KernelSource
from robodyn.internals.cached import cached_property


class GeneratedKernels:
    """The kernels of one query on one robot.

    `mode`: the kind of kernel, in the terms of `GpuOptions`; `sources`: texts and arguments of the kernels, in launch
    order; `architecture`: the GPU architecture, such as "sm_90".
    """

    def __init__(self, variant: Variant, sources: Sequence[KernelSource], architecture: str) -> None:
        self.mode, self.sources, self.architecture = str(variant), tuple(sources), architecture

    def __repr__(self) -> str:
        names = ", ".join(source.name for source in self.sources)
        return f"<GeneratedKernels for {self.architecture}, {self.mode}: {names}>"

    @cached_property
    def text(self) -> str:
        """The CUDA C++ of all modules."""
        return "\n".join(source.text for source in self.sources)

    @cached_property
    def reports(self) -> tuple[Report, ...]:
        """The assembler's report about each kernel: registers, stack, spills."""
        return tuple(compile_reported(source, self.architecture).report for source in self.sources)

    @cached_property
    def resident_blocks(self) -> tuple[int, ...]:
        """How many blocks of each kernel are resident on a multiprocessor, limited by registers or shared memory.

        Raises:
            UnavailableError: the limits of the architecture are not known.
        """
        return tuple(
            resident_blocks(source, report, self.architecture)
            for source, report in zip(self.sources, self.reports, strict=True)
        )
