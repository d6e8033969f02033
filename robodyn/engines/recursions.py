"""The engines that run recursions on NumPy arrays."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from robodyn.core.model import Model
from robodyn.engines.options import REFERENCE, Options
from robodyn.engines.protocol import Engine
from robodyn.internals.errors import UnavailableError


def recursive_engine(model: Model, dtype: np.dtype[Any], options: Options) -> Engine:
    """The engine that is asked for; "auto" is the fastest one that runs here.

    Raises:
        UnavailableError: "cpu" does not run on this machine.
    """
    if options.engine != REFERENCE:
        try:
            from robodyn.engines.cpu.engine import CpuEngine

            return CpuEngine(model, dtype, options.threads, options.compile, options.code, lenient=options.chooses)
        except (UnavailableError, ImportError, OSError) as error:
            if not options.chooses:
                raise UnavailableError(f"engine: 'cpu' does not run here: {error}") from error
            warnings.warn(f"engine 'cpu' does not run here, 'reference' does: {error}", RuntimeWarning, stacklevel=4)
    from robodyn.engines.reference import ReferenceEngine

    return ReferenceEngine(model, dtype)
