"""The engines of a `Dynamics`: the only place where their names are looked at."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.engines.gpu.options import GpuOptions
from robodyn.engines.protocol import Engine
from robodyn.engines.scan.options import ScanOptions
from robodyn.errors import UnavailableError
from robodyn.model import Model

if TYPE_CHECKING:
    from robodyn.engines.gpu.engine import GpuEngine

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


def make_engine(model: Model, dtype: np.dtype[Any], options: Options) -> Engine:
    """The engine of that name; "auto" is the fastest one that runs here for NumPy arrays.

    Raises:
        UnavailableError: an engine that cannot run on this machine.
    """
    name = options.engine
    if name in (AUTO, "cpu"):
        try:
            from robodyn.engines.cpu.engine import CpuEngine

            return CpuEngine(model, dtype, options.threads, options.compile, options.code, lenient=options.chooses)
        except (UnavailableError, ImportError, OSError) as error:
            if name == "cpu":
                raise UnavailableError(f"engine: 'cpu' does not run here: {error}") from error
            warnings.warn(f"engine 'cpu' does not run here, 'reference' does: {error}", RuntimeWarning, stacklevel=3)
    if name == "gpu":
        return make_gpu_engine(model, dtype, options)
    if name == "scan":
        from robodyn.engines.scan.engine import ScanEngine

        return ScanEngine(model, dtype, options.scan)
    from robodyn.engines.reference import ReferenceEngine

    return ReferenceEngine(model, dtype)


def make_gpu_engine(model: Model, dtype: np.dtype[Any], options: Options) -> GpuEngine:
    """The GPU engine.

    Raises:
        UnavailableError: no GPU.
    """
    from robodyn.engines.gpu.engine import GpuEngine

    return GpuEngine(model, dtype, options.gpu)


def judging_engine(engine: Engine, threads: int | None) -> Engine:
    """An engine that runs recursions on a few rows of NumPy arrays in float64: the same, if it does."""
    double = np.dtype(np.float64)
    if engine.dtype == double and (engine.native or engine.name == REFERENCE):
        return engine
    return make_engine(engine.model, double, Options(REFERENCE if engine.name == REFERENCE else AUTO, threads))
