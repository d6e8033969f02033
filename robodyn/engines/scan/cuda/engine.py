"""The scan engine for arrays on a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from robodyn.core.joints import unit_quaternion
from robodyn.core.model import Model
from robodyn.engines.gpu.device import Device, default_device
from robodyn.engines.gpu.device_arrays import DeviceArrays
from robodyn.engines.gpu.engine import require_own_process
from robodyn.engines.query_table import QuerySpec
from robodyn.engines.scan.algorithms.mass_matrix import require_sparse_memory, sparse_entries, sparse_pattern
from robodyn.engines.scan.cuda.device import ScanDevice
from robodyn.engines.scan.elements import scanning_on
from robodyn.engines.scan.elementwise import operators
from robodyn.engines.scan.methods import methods_of
from robodyn.engines.scan.options import ScanOptions
from robodyn.engines.scan.order import DEVICE_STRETCH, has_several
from robodyn.engines.scan.scans import Scans
from robodyn.engines.scan.states import State
from robodyn.internals.arguments import Array
from robodyn.internals.cached import cached_property

_FIRST = ("twist_pair", "crba")
"""Methods that "auto" prefers. "twist_pair" needs one scan, other methods two. Forward dynamics uses "aba_scan" instead
of "crba" if the host need not wait for it, or beyond `MOST_DENSE` degrees of freedom, but not with mimicking joints."""
MOST_DENSE = 256
"""The most degrees of freedom for which forward dynamics uses "crba" if paths are cut into several stretches:
"aba_scan" then depends on values, for which the host waits. Otherwise "aba_scan" takes at most a third of the time."""


class GpuScanEngine(Scans):
    """Runs queries by scans on a device.

    A model's constants, indices and kernels are copied to the device at the first call that needs them. Later calls
    return without waiting.

    Args:
        model, dtype, options: as for `Scans`.
        device: the device to run on, None for the current CUDA device.

    Raises:
        UnavailableError: no device.
    """

    normalizes = True

    def __init__(
        self, model: Model, dtype: Any, options: ScanOptions | None = None, device: Device | None = None
    ) -> None:
        self.device = default_device() if device is None else device
        self.library = DeviceArrays(self.device)
        self._process = os.getpid()
        with self.device.selected():
            super().__init__(model, dtype, options, ScanDevice(self.device))

    def answer(
        self,
        question: QuerySpec,
        method: str,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        link: int | None = None,
        **choices: Any,
    ) -> None:
        """Fill `outputs`; see `robodyn.engines.protocol.Engine`."""
        require_own_process(self._process)
        with self._scanning():
            super().answer(question, method, {**inputs, "q": self._unit(inputs["q"])}, outputs, link, **choices)

    def sparse_mass_matrix(self, inputs: Mapping[str, Array], finished: Callable[[Array], Array]) -> Any:
        """H of one state as a sparse matrix of the device's array library, in compressed-row format.

        Args:
            inputs: arrays (1, ...).
            finished: checks the entries, (1, nnz), and returns them as (nnz,).

        Raises:
            ArgumentError: the matrix does not fit in the device's memory.
            UnavailableError: the array library has no sparse matrices here.
        """
        require_own_process(self._process)
        nv = self.model.nv
        with self.device.selected():
            require_sparse_memory(self.layout)
            pattern = sparse_pattern(self.layout)
            entries = finished(self.sparse_entries(inputs)[None])
            return self.device.sparse(entries, pattern.columns.copy(), pattern.starts.copy(), (nv, nv))

    def sparse_entries(self, inputs: Mapping[str, Array]) -> Array:
        """The entries (nnz,) of `sparse_mass_matrix`, in the same order."""
        require_own_process(self._process)
        with self._scanning(), operators(self.layout.options.operators):
            return sparse_entries(State(self.layout, {**inputs, "q": self._unit(inputs["q"])}))

    @contextmanager
    def _scanning(self) -> Iterator[None]:
        """Inside `with`, steps and scans run as kernels on the device, and non-finite values cause no warnings."""
        place = self.layout.device
        assert place is not None
        with self.device.selected(), scanning_on(place), np.errstate(all="ignore"):
            yield

    def _unit(self, q: Array) -> Array:
        """q (B, nq) with every quaternion normalised. Quaternions of zero length become NaN."""
        entries = self.layout.quaternions
        if not entries[0].size:
            return q
        original = q
        q = q.copy()
        for columns, scaled in zip(entries, unit_quaternion(tuple(original[:, each] for each in entries)), strict=True):
            q[:, columns] = scaled
        return q

    @cached_property
    def _scans_bodies(self) -> bool:
        """Whether forward dynamics uses "aba_scan", see `MOST_DENSE`."""
        return self.model.nv > MOST_DENSE or not has_several(self.layout, DEVICE_STRETCH)

    def method(self, question: str, batch: int) -> str:
        """The method "auto" for a query and a batch size."""
        if question == "forward_dynamics" and not self.model.has_mimic and self._scans_bodies:
            return "aba_scan"
        methods = methods_of(question)
        return next((name for name in _FIRST if name in methods), methods[0])
