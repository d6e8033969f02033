"""Derivatives of queries on the reference engine: traced programs, interpreted operation by operation on NumPy
arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from robodyn.algorithms.tasks import Task
from robodyn.compile.tracing.program import Program
from robodyn.compile.tracing.unrolled import trace
from robodyn.core.model import Model
from robodyn.engines.query_table import BASE
from robodyn.internals.arguments import Array
from robodyn.internals.errors import UnavailableError
from robodyn.internals.tuning import EVALUATED_ROWS, MAX_TRACED_BODIES


class Interpreted:
    """Programs of one model. Each is traced at its first run."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._programs: dict[tuple[Task, tuple[str, ...], int | None], Program] = {}

    def run(self, task: Task, inputs: Mapping[str, Array], outputs: Mapping[str, Array], link: int | None) -> None:
        """Fill `outputs` (B, ...) from `inputs` (B, ...); see `robodyn.engines.protocol.Engine`.

        Raises:
            UnavailableError: the robot has too many bodies to be traced.
        """
        bodies = self._model.n_bodies
        if bodies > MAX_TRACED_BODIES:
            raise UnavailableError(
                f"engine 'reference': {task.name} of {self._model.name!r} is one program for its {bodies} bodies; "
                f"wanted at most {MAX_TRACED_BODIES}"
            )
        key = task, tuple(name for name in BASE if name in inputs), link
        if key not in self._programs:
            self._programs[key] = trace(self._model, task, link=link, base=key[1])
        batch = next(iter(outputs.values())).shape[0]
        with np.errstate(all="ignore"):
            for start in range(0, batch, EVALUATED_ROWS):
                piece = slice(start, start + EVALUATED_ROWS)
                results = self._programs[key].evaluate({name: array[piece] for name, array in inputs.items()})
                for name, array in results.items():
                    outputs[name][piece] = array
