"""Kernels for people to look at."""

from __future__ import annotations

from collections.abc import Sequence

from robodyn.engines.gpu.choice import Variant
from robodyn.engines.gpu.compiler import Report, compile_reported
from robodyn.engines.gpu.occupancy import resident_blocks
from robodyn.engines.gpu.source import KernelSource
from robodyn.internals.cached import cached_property


class GeneratedKernels:
    """The kernels of one query on one robot.

    `mode`: which kind, as in `GpuOptions`; `sources`: texts and what each is called with, in the order of launches.
    """

    def __init__(self, variant: Variant, sources: Sequence[KernelSource], architecture: str) -> None:
        self.mode, self.sources, self.architecture = str(variant), tuple(sources), architecture

    def __repr__(self) -> str:
        names = ", ".join(source.name for source in self.sources)
        return f"<GeneratedKernels for {self.architecture}, {self.mode}: {names}>"

    @cached_property
    def text(self) -> str:
        """CUDA C++, one module after the other."""
        return "\n".join(source.text for source in self.sources)

    @cached_property
    def reports(self) -> tuple[Report, ...]:
        """What the assembler says about each: registers, stack, spills."""
        return tuple(compile_reported(source, self.architecture).report for source in self.sources)

    @cached_property
    def resident_blocks(self) -> tuple[int, ...]:
        """How many blocks of each a multiprocessor works on at a time; what limits that is registers or shared memory.

        Raises:
            UnavailableError: an architecture whose limits are not known here.
        """
        return tuple(
            resident_blocks(source, report, self.architecture)
            for source, report in zip(self.sources, self.reports, strict=True)
        )
