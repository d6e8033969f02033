"""The scan engine: algorithms as scans over paths and subtrees, for one huge tree or a batch of trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from robodyn.arguments import Array
from robodyn.chains import Scan, Task
from robodyn.engines.scan.costs import CHOICES, current_costs, estimates
from robodyn.engines.scan.elementwise import operators
from robodyn.engines.scan.forward import FORWARD
from robodyn.engines.scan.gradient import inverse_dynamics_gradient
from robodyn.engines.scan.inverse import inverse_dynamics
from robodyn.engines.scan.mass_matrix import mass_matrix
from robodyn.engines.scan.options import ScanOptions
from robodyn.engines.scan.states import Layout, State
from robodyn.errors import UnavailableError
from robodyn.model import Model

if TYPE_CHECKING:
    from robodyn.dynamics import Dynamics
    from robodyn.engines.scan.on_gpu import ScanDevice

Answer: TypeAlias = Callable[[State, str, Mapping[str, Array]], None]
"""Fills outputs (B, ...) of one query by the method named."""


class ScanEngine:
    """Runs queries on one model by scans, on NumPy arrays or on those of a device (`GpuScanEngine`).

    `normalizes`: no, quaternions must be unit.
    """

    name = "scan"
    normalizes = False

    def __init__(
        self,
        model: Model,
        dtype: np.dtype[Any],
        options: ScanOptions | None = None,
        device: ScanDevice | None = None,
    ) -> None:
        self.model, self.dtype = model, dtype
        self.layout = Layout(model, dtype, options or ScanOptions(), device)
        self._chosen: dict[tuple[str, int], str] = {}

    def run(
        self,
        algorithm: Task | Scan,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        *,
        link: int | None = None,
    ) -> None:
        """Fill `outputs` in place; see `robodyn.engines.protocol.Engine`."""
        if not isinstance(algorithm, Scan):
            self._unavailable(algorithm)
        answer = _ANSWERS[algorithm.query]
        batch = len(inputs["q"])
        method = self.method(algorithm, batch)
        rows = self.layout.states_at_once
        for start in range(0, batch, rows):
            piece = slice(start, start + rows)
            # Values that are not finite stay in their rows, also as warnings.
            with np.errstate(all="ignore"), operators(self.layout.options.operators):
                state = State(self.layout, {name: array[piece] for name, array in inputs.items()})
                answer(state, method, {n: a[piece] for n, a in outputs.items()})

    def method(self, task: Scan, batch: int) -> str:
        """The method that answers a query of a batch."""
        if task.method != "auto" or task.query not in CHOICES:
            return task.method
        if (task.query, batch) not in self._chosen:
            self._chosen[task.query, batch] = next(iter(estimates(current_costs(), self.layout, task.query, batch)))
        return self._chosen[task.query, batch]

    def prepare(self, algorithm: Task) -> None:
        """Nothing: it compiles nothing."""

    def generated(self, algorithm: Task) -> NoReturn:
        """Nothing: it compiles nothing.

        Raises:
            UnavailableError: always.
        """
        raise UnavailableError("engine: 'scan' compiles nothing; programs are the 'cpu' engine's")

    def fast_call(self, name: str, algorithm: Task, dyn: Dynamics) -> None:
        """None: calls take longer than what stands before them."""

    def _unavailable(self, algorithm: Task) -> NoReturn:
        raise UnavailableError(
            f"engine: 'scan' does not answer this query ({algorithm.name}); it answers "
            f"{', '.join(_ANSWERS)}; engines that answer all: 'reference', 'cpu'"
        )


def _inverse(state: State, method: str, outputs: Mapping[str, Array]) -> None:
    state.generalised(inverse_dynamics(state, method), outputs["tau"])


def _forward(state: State, method: str, outputs: Mapping[str, Array]) -> None:
    FORWARD[method](state, outputs["qdd"])


def _mass_matrix(state: State, method: str, outputs: Mapping[str, Array]) -> None:
    mass_matrix(state, outputs["H"])


def _gradient(state: State, method: str, outputs: Mapping[str, Array]) -> None:
    inverse_dynamics_gradient(state, outputs)


_ANSWERS: dict[str, Answer] = {
    "inverse_dynamics": _inverse,
    "forward_dynamics": _forward,
    "mass_matrix": _mass_matrix,
    "inverse_dynamics_gradient": _gradient,
}
