"""The common part of the scan engines: algorithms as scans over paths and subtrees, for one huge tree or a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from robodyn.algorithms.tasks import Task
from robodyn.core.model import Model
from robodyn.engines.protocol import Engine, Explanation
from robodyn.engines.query_table import QuerySpec
from robodyn.engines.scan.algorithms.mass_matrix import require_sparse_memory, sparse_mass_matrix
from robodyn.engines.scan.costs import choices_of, current_costs, estimates
from robodyn.engines.scan.elementwise import operators
from robodyn.engines.scan.methods import ANSWERS, methods_of
from robodyn.engines.scan.options import ScanOptions
from robodyn.engines.scan.states import Layout, State
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError

if TYPE_CHECKING:
    from robodyn.engines.scan.cuda.device import ScanDevice


class Scans(Engine):
    """Answers queries about one model by scans, on NumPy arrays (`ScanEngine`) or device arrays (`GpuScanEngine`)."""

    name = "scan"

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
        algorithm: Task,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        *,
        link: int | None = None,
    ) -> None:
        """Refuse: the scan engine does not run algorithms that are lists of sweeps.

        Raises:
            UnavailableError: always.
        """
        self._refuse(algorithm.name)

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
        if question.name not in ANSWERS:
            self._refuse(question.name)
        if not inputs["q"].size:  # no states or no joints: the results are empty
            return
        fill, batch = ANSWERS[question.name], len(inputs["q"])
        chosen = self.method(question.name, batch) if method == "auto" else method
        rows = self.layout.states_at_once if batch > 1 else 1  # the query of a device's free memory is slow
        for start in range(0, batch, rows):
            piece = slice(start, start + rows)
            # Non-finite values affect only their own rows. They cause no warnings.
            with np.errstate(all="ignore"), operators(self.layout.options.operators):
                state = State(self.layout, {name: array[piece] for name, array in inputs.items()})
                fill(state, chosen, [array[piece] for array in outputs.values()])

    def sparse_mass_matrix(self, inputs: Mapping[str, Array], finished: Callable[[Array], Array]) -> Any:
        """H of one state as a `scipy.sparse.csr_array`.

        Args:
            inputs: arrays (1, ...).
            finished: checks the entries, (1, nnz), and returns them as (nnz,).

        Raises:
            ArgumentError: the matrix does not fit in memory.
        """
        require_sparse_memory(self.layout)
        arguments = {**inputs, "q": self.model.unit_coordinates(inputs["q"])}
        with np.errstate(all="ignore"), operators(self.layout.options.operators):
            H = sparse_mass_matrix(State(self.layout, arguments))
        H.data = finished(H.data[None])
        return H

    def method(self, question: str, batch: int) -> str:
        """The method "auto" for a query and a batch size."""
        if not choices_of(question):
            return methods_of(question)[0]
        if (question, batch) not in self._chosen:
            self._chosen[question, batch] = next(iter(estimates(current_costs(), self.layout, question, batch)))
        return self._chosen[question, batch]

    def explain(self, question: QuerySpec, batch: int) -> Explanation:
        """The method with the shortest estimated time, and the estimates."""
        options, name, costs = self.layout.options, question.name, current_costs()
        how = f"{options.layout} layout, {options.kernel} kernel, {options.operators} operators"
        method = self.method(name, batch)
        if not choices_of(name):
            return Explanation(name, batch, self.name, method, f"the only one; {how}")
        seconds = estimates(costs, self.layout, name, batch)
        return Explanation(name, batch, self.name, method, f"the least estimate ({costs.source}); {how}", seconds)

    def _refuse(self, asked: str) -> NoReturn:
        raise UnavailableError(
            f"engine: 'scan' does not answer this query ({asked}); it answers {', '.join(ANSWERS)}; engines that "
            "answer all: 'reference', 'cpu'"
        )
