"""The scan engine for NumPy arrays. It passes device arrays to the scan engine for GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from robodyn.core.model import Model
from robodyn.engines.protocol import Engine
from robodyn.engines.scan.options import ScanOptions
from robodyn.engines.scan.scans import Scans
from robodyn.internals.array_library import Library

if TYPE_CHECKING:
    from robodyn.engines.scan.cuda.engine import GpuScanEngine


class ScanEngine(Scans):
    """Answers queries about one model by scans on NumPy arrays."""

    def __init__(self, model: Model, dtype: np.dtype[Any], options: ScanOptions | None = None) -> None:
        super().__init__(model, dtype, options)
        self._there: GpuScanEngine | None = None

    def on_device(self) -> tuple[Engine, Library]:
        """The scan engine for arrays on a GPU, and its array library."""
        there = self.there()
        return there, there.library

    def there(self) -> GpuScanEngine:
        """The scan engine for arrays on a GPU."""
        from robodyn.engines.scan.cuda.engine import GpuScanEngine

        if self._there is None:
            self._there = GpuScanEngine(self.model, self.dtype, self.layout.options)
        return self._there
