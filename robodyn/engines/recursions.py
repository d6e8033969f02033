"""Creates the engines that run recursions on NumPy arrays."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from robodyn.core.model import Model
from robodyn.engines.options import REFERENCE, Options
from robodyn.engines.protocol import Engine
from robodyn.internals.errors import UnavailableError


def recursive_engine(model: Model, dtype: np.dtype[Any], options: Options) -> Engine:
    """The "reference" or "cpu" engine. "auto" is the CPU engine if it runs on this machine.

    Raises:
        UnavailableError: "cpu" was asked for and does not run here.
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
