"""Creates the engines of a `Dynamics`. No other module interprets engine names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.model import Model
from robodyn.engines.options import AUTO, REFERENCE, Options
from robodyn.engines.protocol import Engine
from robodyn.engines.recursions import recursive_engine

if TYPE_CHECKING:
    from robodyn.engines.gpu.engine import GpuEngine


def make_engine(model: Model, dtype: np.dtype[Any], options: Options) -> Engine:
    """The engine that `options` name. "auto" is the fastest engine for NumPy arrays on this machine.

    Raises:
        UnavailableError: the engine cannot run on this machine.
    """
    if options.engine == "gpu":
        return make_gpu_engine(model, dtype, options)
    if options.engine == "scan":
        from robodyn.engines.scan.engine import ScanEngine

        return ScanEngine(model, dtype, options.scan)
    return recursive_engine(model, dtype, options)


def make_gpu_engine(model: Model, dtype: np.dtype[Any], options: Options) -> GpuEngine:
    """The GPU engine.

    Raises:
        UnavailableError: no GPU.
    """
    from robodyn.engines.gpu.engine import GpuEngine

    return GpuEngine(model, dtype, options.gpu)


def judging_engine(engine: Engine, threads: int | None) -> Engine:
    """An engine that runs recursions on NumPy arrays in float64: the same engine if it does, else a new one."""
    double = np.dtype(np.float64)
    if engine.dtype == double and (engine.native or engine.name == REFERENCE):
        return engine
    return make_engine(engine.model, double, Options(REFERENCE if engine.name == REFERENCE else AUTO, threads))
